//! Claims that rules and arithmetic decide: efficiency, stripes, alignment, room.
//!
//! The rules (STORAGE_SPACES.md 1.5 to 1.8): a row of an array takes `interleave` bytes from each column; of C columns
//! C - p hold data, p being the parity columns; a write is aligned when the file system's cluster is a whole number of
//! rows; interleaves and clusters are powers of two, an NTFS cluster at most 2 MiB, slabs 256 MiB.

use super::{Claim, Found, Lab, Verdict};
use crate::capacity::Space;
use crate::disks::{Class, PlannedDisk};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::ByteCount;

/// What is decided exactly.
struct Exact {
    spaces: String,
    weft: String,
    holds: bool,
}

impl From<Exact> for Found {
    fn from(Exact { spaces, weft, holds }: Exact) -> Found {
        Found::new(spaces, weft, Verdict::Exact(holds), "")
    }
}

fn exact(spaces: String, weft: String, holds: bool) -> Found {
    Exact { spaces, weft, holds }.into()
}

const TB: f64 = 1e12;
const SINGLE: Resiliency = Resiliency::Parity { parity: 1 };
const DUAL: Resiliency = Resiliency::Parity { parity: 2 };

/// Every claim that is decided so.
pub(super) const CLAIMS: &[Claim] = &[
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
    Claim { id: "Q21", about: "the fewest disks of dual parity", says: "7", find: fewest_disks },
    Claim {
        id: "Q54",
        about: "a SAS cable of 4 x 6 Gb/s; 24 disks of 150 MB/s",
        says: "2.4 GB/s, in practice 2.2; two cables for 3.6 GB/s",
        find: cables,
    },
    Claim {
        id: "Q56",
        about: "mirrors of 24 x 600 GB, 8 x 146 GB, 16 x 1 TB",
        says: "7.2 TB, about 584 GB, about 8 TB",
        find: database,
    },
    Claim { id: "Q58", about: "tiers: when data move, and in what units", says: "01:00, 1 MB", find: tiers },
    Claim {
        id: "Q59",
        about: "a cache of 1 GB that is destaged from 25 to 50 % fill",
        says: "half full leaves 500 MB",
        find: half_full,
    },
];

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

fn efficiency(_: &Lab) -> Found {
    let of = |share: f64| format!("{:.0} %, {:.2}", (share * 100.0).floor(), 1.0 / share);
    let each = |of: &dyn Fn(u64) -> String| [3, 4, 5].map(of).join("; ");
    let spaces = each(&|columns| of(Rules::new(columns, 1, 256).efficiency()));
    let weft = each(&|columns| of(share(layout(SINGLE, columns as u8, 256))));
    let holds = spaces == "66 %, 1.50; 75 %, 1.33; 80 %, 1.25";
    exact(spaces, weft, holds)
}

fn row_of_three(_: &Lab) -> Found {
    let (rules, ours) = (Rules::new(3, 1, 16), layout(SINGLE, 3, 16));
    let words = |row: u64, data: u64| format!("{}, of them {} data", kib(row), kib(data));
    Exact {
        spaces: words(rules.row(), rules.row_data()),
        weft: words(ours.slots() as u64 * ours.interleave().0, ours.data_len().0),
        holds: (rules.row(), rules.row_data()) == (48 << 10, 32 << 10),
    }
    .into()
}

fn four_columns(_: &Lab) -> Found {
    let aligns = Rules::aligns(4, 1);
    Exact {
        spaces: if aligns { "there are some" } else { "none" }.into(),
        weft: "any: stripes are gathered whole, whatever the alignment".into(),
        holds: !aligns,
    }
    .into()
}

fn seven_disks(_: &Lab) -> Found {
    let spaces = [3, 5].map(|columns| 7.0 * 4.0 * Rules::new(columns, 1, 256).efficiency());
    let weft = [3, 5].map(|columns| room(7, 4.0 * TB, layout(SINGLE, columns, 256)) / TB);
    let words = |of: [f64; 2]| format!("{:.2} and {:.2} TB", of[0], of[1]);
    let holds = (spaces[0] / 18.5 - 1.0).abs() < 0.02 && (spaces[1] - 22.4).abs() < 0.005;
    Exact { spaces: words(spaces), weft: words(weft), holds }.into()
}

fn dual_columns(_: &Lab) -> Found {
    let aligned: Vec<String> =
        (4..=17).filter(|columns| Rules::aligns(*columns, 2)).map(|columns| columns.to_string()).collect();
    let spaces = aligned.join(", ");
    Exact { holds: spaces == "4, 6, 10", spaces, weft: "any from 4 to 32".into() }.into()
}

fn dual_cluster(_: &Lab) -> Found {
    let (rules, ours) = (Rules::new(10, 2, 16), layout(DUAL, 10, 16));
    let cluster = rules.cluster();
    Exact {
        spaces: cluster.map_or("none".into(), kib),
        weft: format!("any; a stripe holds {}", kib(ours.data_len().0)),
        holds: cluster == Some(128 << 10),
    }
    .into()
}

fn eight_disks(_: &Lab) -> Found {
    let (rules, ours) = (Rules::new(5, 1, 16), layout(SINGLE, 5, 16));
    let words = |data: u64, lost: f64| format!("{}, {:.0} %", kib(data), lost * 100.0);
    let lost = 1.0 - ours.data_columns() as f64 / ours.slots() as f64;
    Exact {
        spaces: words(rules.row_data(), 1.0 - rules.efficiency()),
        weft: words(ours.data_len().0, lost),
        holds: rules.row_data() == 64 << 10 && (rules.efficiency() - 0.8).abs() < 1e-9,
    }
    .into()
}

fn four_disks(_: &Lab) -> Found {
    let spaces = 4.0 * 1.6 * Rules::new(3, 1, 256).efficiency();
    let weft = room(4, 1.6 * TB, layout(SINGLE, 3, 256)) / TB;
    Exact { spaces: format!("{spaces:.2} TB"), weft: format!("{weft:.2} TB"), holds: (spaces / 4.2 - 1.0).abs() < 0.02 }
        .into()
}

fn largest_interleave(_: &Lab) -> Found {
    let rules = INTERLEAVES.rev().map(|power| Rules { columns: 3, parity: 1, interleave: 1 << power });
    let largest = rules.into_iter().find_map(|rules| Some((rules.interleave, rules.cluster()?)));
    Exact {
        spaces: largest
            .map_or("none".into(), |(interleave, cluster)| format!("{} with {}", kib(interleave), kib(cluster))),
        weft: "4096 KiB with any".into(),
        holds: largest == Some((1 << 20, 2 << 20)) && layout(SINGLE, 3, 4096).data_len() == ByteCount::mib(8),
    }
    .into()
}

fn one_mebibyte(_: &Lab) -> Found {
    let ours = layout(Resiliency::Simple, 4, 256);
    Exact {
        spaces: format!("{} x 256 KiB", (1 << 20) / Rules::new(4, 0, 256).interleave),
        weft: format!("{} x {}", ours.data_columns(), kib(ours.interleave().0)),
        holds: Rules::new(4, 0, 256).row_data() == 1 << 20,
    }
    .into()
}

fn row_of_four(_: &Lab) -> Found {
    let (rules, ours) = (Rules::new(4, 1, 256), layout(SINGLE, 4, 256));
    let words = |data: u64, parity: u64| format!("{} and {}", kib(data), kib(parity));
    Exact {
        spaces: words(rules.row_data(), rules.parity * rules.interleave),
        weft: words(ours.data_len().0, (ours.slots() - ours.data_columns()) as u64 * ours.interleave().0),
        holds: rules.row_data() == 768 << 10,
    }
    .into()
}

fn four_mebibytes(_: &Lab) -> Found {
    let ours = layout(Resiliency::Simple, 8, 256);
    let words = |row: u64| format!("{} x 256 KiB", (4 << 20) / row);
    Exact {
        spaces: words(Rules::new(8, 0, 256).row_data()),
        weft: words(ours.data_len().0),
        holds: (4 << 20) / Rules::new(8, 0, 256).row_data() == 2,
    }
    .into()
}

fn fewest_disks(_: &Lab) -> Found {
    // The pool's own records must survive the loss of two disks as well (1.5); columns from 7 on (1.6).
    let weft = (3..=7).find(|columns| Layout::new(DUAL, *columns, ByteCount::kib(256)).is_ok());
    exact("7 (by its documentation; 6 columns were used)".into(), weft.map_or("none".into(), |n| n.to_string()), true)
}

fn cables(_: &Lab) -> Found {
    // 8b/10b: ten bits on the wire for a byte.
    let nominal = 4.0 * 6e9 / 10.0 / 1e9;
    let needed = 24.0 * 150e6 / 1e9;
    let count = (needed / 2.2_f64).ceil();
    let words = format!("{nominal:.1} GB/s; {needed:.1} GB/s need {count} cables at 2.2");
    exact(words.clone(), words, (nominal, needed, count) == (2.4, 3.6, 2.0))
}

fn database(_: &Lab) -> Found {
    let mirror = |columns| Layout::new(Resiliency::Mirror { copies: 2 }, columns, ByteCount::kib(256));
    let sets = [(24, 600e9), (8, 146e9), (16, 1e12)];
    let spaces = sets.map(|(count, size)| count as f64 * size / 2.0 / TB);
    let weft = sets.map(|(count, size)| room(count, size, mirror(1).expect("a mirror of one column")) / TB);
    let words = |of: [f64; 3]| format!("{:.2} TB, {:.0} GB, {:.2} TB", of[0], of[1] * 1e3, of[2]);
    let holds = words(spaces) == "7.20 TB, 584 GB, 8.00 TB";
    exact(words(spaces), words(weft), holds)
}

fn tiers(_: &Lab) -> Found {
    let weft = "all the time, whole stripes; at a time of day where `tier-schedule` says one";
    exact("01:00, 1 MB (documented)".into(), weft.into(), true)
}

fn half_full(_: &Lab) -> Found {
    let left = 1000 - 1000 / 2;
    let weft = "no such cache: what is written lies in whole stripes, or in the log until then";
    exact(format!("{left} MB"), weft.into(), left == 500)
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
}
