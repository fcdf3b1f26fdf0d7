//! What was published about Storage Spaces, repeated: what the source says, what its rules give, and what weft gives.
//!
//! So far those claims that its rules decide: efficiency, stripes, alignment, room, and the rate of simple layouts.
//! They are numbered as in the collection of the claims, Q1 to Q68. Claims about behaviour (bursts, collapses, caches)
//! need a model of Storage Spaces that the same workload runs against; there is none yet, and none of them is listed
//! here.
//!
//! The rules: a row of an array takes `interleave` bytes from each column; of C columns C - p hold data, p being the
//! parity columns; a write is aligned when the file system's cluster is a whole number of rows; interleaves and
//! clusters are powers of two, an NTFS cluster at most 2 MiB, slabs 256 MiB.

use crate::capacity::Space;
use crate::disks::{Class, PlannedDisk};
use crate::ratios;
use serde::Serialize;
use std::fmt::Write;
use weft_engine::stripe::geometry::{Layout, Resiliency};
use weft_engine::units::ByteCount;

const TB: f64 = 1e12;
const SINGLE: Resiliency = Resiliency::Parity { parity: 1 };
const DUAL: Resiliency = Resiliency::Parity { parity: 2 };

/// A claim that can be repeated.
pub struct Claim {
    /// Its number, `Q2`.
    pub id: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What the source says.
    pub says: &'static str,
    find: fn() -> Found,
}

/// What was found about a claim.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Finding {
    /// The claim's number.
    pub id: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What the source says.
    pub says: &'static str,
    /// What the rules of Storage Spaces give.
    pub spaces: String,
    /// What weft gives.
    pub weft: String,
    /// Whether the rules give what the source says.
    pub holds: bool,
}

struct Found {
    spaces: String,
    weft: String,
    holds: bool,
}

impl Claim {
    /// Repeats it.
    pub fn run(&self) -> Finding {
        let Found { spaces, weft, holds } = (self.find)();
        Finding { id: self.id, about: self.about, says: self.says, spaces, weft, holds }
    }
}

/// Every claim that can be repeated, by number.
pub const CLAIMS: [Claim; 13] = [
    Claim {
        id: "Q2",
        about: "efficiency of single parity, and bytes written for each of data",
        says: "3 columns 66 %, 1.5; 4: 75 %; 5: 80 %",
        find: efficiency,
    },
    Claim {
        id: "Q4",
        about: "a row of 3 columns with 16 KiB",
        says: "48 KiB, of them 32 KiB data",
        find: row_of_three,
    },
    Claim {
        id: "Q7",
        about: "clusters that align with 4 columns",
        says: "none: 256 / 3 is no whole number",
        find: four_columns,
    },
    Claim { id: "Q8", about: "7 disks of 4 TB", says: "3 columns about 18.5 TB, 5 columns 22.4 TB", find: seven_disks },
    Claim { id: "Q9", about: "columns of dual parity that align", says: "4, 6, 10", find: dual_columns },
    Claim {
        id: "Q20",
        about: "cluster for dual parity of 10 columns with 16 KiB",
        says: "128 KiB",
        find: dual_cluster,
    },
    Claim {
        id: "Q22",
        about: "8 disks of 8 TB, 5 columns, 16 KiB",
        says: "a row holds 64 KiB of data; 20 % are lost to parity",
        find: eight_disks,
    },
    Claim { id: "Q42", about: "4 disks of 1.6 TB, 3 columns", says: "4.2 TB", find: four_disks },
    Claim {
        id: "Q43",
        about: "the largest interleave that a cluster aligns with, 3 columns",
        says: "1024 KiB with clusters of 2048 KiB",
        find: largest_interleave,
    },
    Claim {
        id: "Q44",
        about: "1 MiB on a simple space over 4 disks",
        says: "4 x 256 KiB, four times as fast",
        find: one_mebibyte,
    },
    Claim {
        id: "Q45",
        about: "a row of single parity on 4 disks",
        says: "768 KiB of data and 256 KiB of parity",
        find: row_of_four,
    },
    Claim {
        id: "Q50",
        about: "4 MiB on a simple space over 8 disks",
        says: "2 x 256 KiB on each",
        find: four_mebibytes,
    },
    Claim {
        id: "Q51",
        about: "sequential writes to simple spaces, disks of 150 MB/s",
        says: "1, 2, 4 columns: 150, about 300, about 600 MB/s",
        find: simple_rates,
    },
];

/// The claim of this number, however its letter is written.
pub fn claim(id: &str) -> Option<&'static Claim> {
    CLAIMS.iter().find(|claim| claim.id.eq_ignore_ascii_case(id))
}

/// All of them, as a table in Markdown.
pub fn table() -> String {
    let mut table =
        String::from("| | about | the source says | by its rules | weft | holds |\n|---|---|---|---|---|---|\n");
    for Finding { id, about, says, spaces, weft, holds } in CLAIMS.iter().map(Claim::run) {
        let holds = if holds { "yes" } else { "no" };
        writeln!(table, "| {id} | {about} | {says} | {spaces} | {weft} | {holds} |")
            .expect("writing to a string works");
    }
    table
}

/// What the rules of Storage Spaces say of an array.
#[derive(Clone, Copy)]
struct Rules {
    columns: u64,
    parity: u64,
    interleave: u64,
}

/// The largest cluster of NTFS.
const CLUSTER_MAX: u64 = 2 << 20;
/// Interleaves that were seen to work, and the largest.
const INTERLEAVES: std::ops::RangeInclusive<u32> = 14..=20;

impl Rules {
    fn new(columns: u64, parity: u64, interleave_kib: u64) -> Rules {
        Rules { columns, parity, interleave: interleave_kib << 10 }
    }

    fn data_columns(self) -> u64 {
        self.columns - self.parity
    }

    fn row(self) -> u64 {
        self.columns * self.interleave
    }

    fn row_data(self) -> u64 {
        self.data_columns() * self.interleave
    }

    fn efficiency(self) -> f64 {
        self.data_columns() as f64 / self.columns as f64
    }

    /// The smallest cluster that is a whole number of rows.
    fn cluster(self) -> Option<u64> {
        (12..=21).map(|power| 1 << power).find(|cluster| cluster % self.row_data() == 0 && *cluster <= CLUSTER_MAX)
    }

    /// Whether any interleave aligns with any cluster.
    fn aligns(columns: u64, parity: u64) -> bool {
        INTERLEAVES
            .map(|power| Rules { columns, parity, interleave: 1 << power })
            .any(|rules| rules.cluster().is_some())
    }
}

fn layout(resiliency: Resiliency, columns: u8, interleave_kib: u64) -> Layout {
    Layout::new(resiliency, columns, ByteCount::kib(interleave_kib)).expect("the claims are about valid layouts")
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes >> 10)
}

fn share(layout: Layout) -> f64 {
    layout.data_columns() as f64 / layout.slots() as f64
}

/// Bytes that weft's allocator gives to one virtual disk of `layout`.
fn room(count: usize, size: f64, layout: Layout) -> f64 {
    let disks = vec![PlannedDisk { size: size as u64, class: Class::Hdd7200 }; count];
    Space::new(&disks).expect("disks of that size make a pool").room(layout).0 as f64
}

fn efficiency() -> Found {
    let of = |share: f64| format!("{:.0} %, {:.2}", (share * 100.0).floor(), 1.0 / share);
    let each = |of: &dyn Fn(u64) -> String| [3, 4, 5].map(of).join("; ");
    let spaces = each(&|columns| of(Rules::new(columns, 1, 256).efficiency()));
    let weft = each(&|columns| of(share(layout(SINGLE, columns as u8, 256))));
    let holds = spaces == "66 %, 1.50; 75 %, 1.33; 80 %, 1.25";
    Found { spaces, weft, holds }
}

fn row_of_three() -> Found {
    let (rules, ours) = (Rules::new(3, 1, 16), layout(SINGLE, 3, 16));
    let words = |row: u64, data: u64| format!("{}, of them {} data", kib(row), kib(data));
    Found {
        spaces: words(rules.row(), rules.row_data()),
        weft: words(ours.slots() as u64 * ours.interleave().0, ours.data_len().0),
        holds: (rules.row(), rules.row_data()) == (48 << 10, 32 << 10),
    }
}

fn four_columns() -> Found {
    let aligns = Rules::aligns(4, 1);
    Found {
        spaces: if aligns { "there are some" } else { "none" }.into(),
        weft: "any: stripes are gathered whole, whatever the alignment".into(),
        holds: !aligns,
    }
}

fn seven_disks() -> Found {
    let spaces = [3, 5].map(|columns| 7.0 * 4.0 * Rules::new(columns, 1, 256).efficiency());
    let weft = [3, 5].map(|columns| room(7, 4.0 * TB, layout(SINGLE, columns, 256)) / TB);
    let words = |of: [f64; 2]| format!("{:.2} and {:.2} TB", of[0], of[1]);
    let holds = (spaces[0] / 18.5 - 1.0).abs() < 0.02 && (spaces[1] - 22.4).abs() < 0.005;
    Found { spaces: words(spaces), weft: words(weft), holds }
}

fn dual_columns() -> Found {
    let aligned: Vec<String> =
        (4..=17).filter(|columns| Rules::aligns(*columns, 2)).map(|columns| columns.to_string()).collect();
    let spaces = aligned.join(", ");
    Found { holds: spaces == "4, 6, 10", spaces, weft: "any from 4 to 32".into() }
}

fn dual_cluster() -> Found {
    let (rules, ours) = (Rules::new(10, 2, 16), layout(DUAL, 10, 16));
    let cluster = rules.cluster();
    Found {
        spaces: cluster.map_or("none".into(), kib),
        weft: format!("any; a stripe holds {}", kib(ours.data_len().0)),
        holds: cluster == Some(128 << 10),
    }
}

fn eight_disks() -> Found {
    let (rules, ours) = (Rules::new(5, 1, 16), layout(SINGLE, 5, 16));
    let words = |data: u64, lost: f64| format!("{}, {:.0} %", kib(data), lost * 100.0);
    let lost = 1.0 - room(8, 8.0 * TB, ours) / (64.0 * TB);
    Found {
        spaces: words(rules.row_data(), 1.0 - rules.efficiency()),
        weft: words(ours.data_len().0, lost),
        holds: rules.row_data() == 64 << 10 && (rules.efficiency() - 0.8).abs() < 1e-9,
    }
}

fn four_disks() -> Found {
    let spaces = 4.0 * 1.6 * Rules::new(3, 1, 256).efficiency();
    let weft = room(4, 1.6 * TB, layout(SINGLE, 3, 256)) / TB;
    Found { spaces: format!("{spaces:.2} TB"), weft: format!("{weft:.2} TB"), holds: (spaces / 4.2 - 1.0).abs() < 0.02 }
}

fn largest_interleave() -> Found {
    let rules = INTERLEAVES.rev().map(|power| Rules { columns: 3, parity: 1, interleave: 1 << power });
    let largest = rules.into_iter().find_map(|rules| Some((rules.interleave, rules.cluster()?)));
    Found {
        spaces: largest
            .map_or("none".into(), |(interleave, cluster)| format!("{} with {}", kib(interleave), kib(cluster))),
        weft: "4096 KiB with any".into(),
        holds: largest == Some((1 << 20, 2 << 20)) && layout(SINGLE, 3, 4096).data_len() == ByteCount::mib(8),
    }
}

fn one_mebibyte() -> Found {
    let ours = layout(Resiliency::Simple, 4, 256);
    Found {
        spaces: format!("{} x 256 KiB", (1 << 20) / Rules::new(4, 0, 256).interleave),
        weft: format!("{} x {}", ours.data_columns(), kib(ours.interleave().0)),
        holds: Rules::new(4, 0, 256).row_data() == 1 << 20,
    }
}

fn row_of_four() -> Found {
    let (rules, ours) = (Rules::new(4, 1, 256), layout(SINGLE, 4, 256));
    let words = |data: u64, parity: u64| format!("{} and {}", kib(data), kib(parity));
    Found {
        spaces: words(rules.row_data(), rules.parity * rules.interleave),
        weft: words(ours.data_len().0, (ours.slots() - ours.data_columns()) as u64 * ours.interleave().0),
        holds: rules.row_data() == 768 << 10,
    }
}

fn four_mebibytes() -> Found {
    let ours = layout(Resiliency::Simple, 8, 256);
    let words = |row: u64| format!("{} x 256 KiB", (4 << 20) / row);
    Found {
        spaces: words(Rules::new(8, 0, 256).row_data()),
        weft: words(ours.data_len().0),
        holds: (4 << 20) / Rules::new(8, 0, 256).row_data() == 2,
    }
}

/// Measures weft on disks that do 150 MB/s where the stream lies.
fn simple_rates() -> Found {
    let class = Class::Hdd5400.hdd().expect("it is one of hard disks");
    let weft = [1, 2, 4].map(|columns| {
        let (bench, case) = ratios::stream_on(&class, layout(Resiliency::Simple, columns, 256));
        let rate = bench.pass(case, class.outer_rate as f64, 1).rate;
        bench.world.halt();
        rate
    });
    let words = |rates: [f64; 3]| rates.map(|rate| format!("{:.0}", rate / 1e6)).join(", ") + " MB/s";
    let spaces = [1.0, 2.0, 4.0].map(|columns| columns * class.outer_rate as f64);
    Found { holds: spaces == [150e6, 300e6, 600e6], spaces: words(spaces), weft: words(weft) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_align_with_powers_of_two_of_data_columns_only() {
        assert_eq!(Rules::new(3, 1, 32).cluster(), Some(64 << 10));
        assert_eq!(Rules::new(5, 1, 16).cluster(), Some(64 << 10));
        assert_eq!(Rules::new(4, 1, 16).cluster(), None);
        let single: Vec<u64> = (3..=8).filter(|columns| Rules::aligns(*columns, 1)).collect();
        assert_eq!(single, [3, 5]);
    }

    #[test]
    fn claims_are_found_by_number_however_it_is_written() {
        assert_eq!(claim("q51").unwrap().id, "Q51");
        assert!(claim("Q1").is_none() && claim("51").is_none());
    }
}
