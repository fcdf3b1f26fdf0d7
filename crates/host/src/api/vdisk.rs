//! Virtual disks, as the API speaks of them.

use super::cache::CacheInfo;
use super::class::Class;
use super::name::VdiskName;
use super::pool::Health;
use super::read_cache::ReadCacheInfo;
use super::share::FineShare;
use super::size::typed;
use super::tier::TierInfo;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;
use weft_engine::geometry;
use weft_engine::units::ByteCount;

/// What protects the data, without its numbers.
#[derive(Serialize, Deserialize, ToSchema, clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum ResiliencyKind {
    /// Nothing: every disk is needed.
    Simple,
    /// Copies.
    Mirror,
    /// Parity columns.
    Parity,
    /// Copies first, parity columns later: a fast tier of mirrored stripes in front of parity, on the same disks.
    MirrorParity,
}

/// What protects the data.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Resiliency {
    /// Nothing: every disk is needed.
    Simple,
    /// Everything in this many copies.
    Mirror {
        /// 2 or 3.
        copies: u8,
    },
    /// This many parity columns.
    Parity {
        /// 1 or 2.
        parity: u8,
    },
}

/// Whether room is reserved.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Provisioning {
    /// Room is taken as it is written.
    #[default]
    Thin,
    /// All room is reserved when the disk is made.
    Fixed,
}

/// How a virtual disk lies on the disks.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// What protects the data.
    pub resiliency: Resiliency,
    /// Columns, parity columns counted, copies not.
    pub columns: u8,
    /// Bytes of one stripe on one column.
    pub interleave: u64,
}

/// What a virtual disk did since its pool opened.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VdiskCounters {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Bytes clients read.
    pub read_bytes: u64,
    /// Bytes clients wrote.
    pub written_bytes: u64,
    /// Client bytes that left the stripe buffers as part of a whole stripe.
    pub whole_stripe_bytes: u64,
    /// Client bytes that a flush forced into the log before their stripe was whole.
    pub landed_bytes: u64,
    /// Bytes read from disks because of writes.
    pub write_caused_read_bytes: u64,
    /// Bytes of small writes that left in packed stripes.
    #[serde(default)]
    pub packed_bytes: u64,
    /// Bytes clients read that lay in packed stripes, in the write-back cache where there is one.
    #[serde(default)]
    pub packed_read_bytes: u64,
    /// Partial stripes that left in packed stripes, each of which would else have been merged.
    #[serde(default)]
    pub packed_parts: u64,
    /// Bytes of packed stripes of a write-back cache that held little, which were brought together in fewer.
    #[serde(default)]
    pub repacked_bytes: u64,
    /// Bytes that the mover brought out of packed stripes into whole ones (destaged).
    #[serde(default)]
    pub destaged_bytes: u64,
    /// Stripes that it merged for that.
    #[serde(default)]
    pub destaged_stripes: u64,
    /// Bytes in whole stripes that were moved beside their neighbours, so that reads in order need no seeks.
    #[serde(default)]
    pub ordered_bytes: u64,
    /// Bytes in stripes that were brought to the fast tier because they were sought out, or pinned.
    #[serde(default)]
    pub promoted_bytes: u64,
    /// Bytes in stripes that were moved out of the fast tier.
    #[serde(default)]
    pub demoted_bytes: u64,
    /// Bytes read by clients that lay in the fast tier.
    #[serde(default)]
    pub fast_read_bytes: u64,
    /// Bytes clients read that came from the read cache.
    #[serde(default)]
    pub read_cache_bytes: u64,
    /// Parts of stripes that were found in the read cache.
    #[serde(default)]
    pub read_cache_hits: u64,
    /// Parts of stripes that were sought out, and were not found there.
    #[serde(default)]
    pub read_cache_misses: u64,
}

/// What packed stripes, in the write-back cache where there is one, were good for over a span.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Default, Debug)]
pub struct PackedUse {
    /// The share of the bytes clients read that lay there, 0 to 100; none: nothing was read.
    pub read_percent: Option<f64>,
    /// The share of the bytes leaving the stripe buffers, packed or in stripes that clients filled, that went there,
    /// 0 to 100; the rest went around it. None: nothing left.
    pub write_percent: Option<f64>,
    /// How many fewer stripes were merged than partial ones went there: what was overwritten while it rested, and what
    /// was brought down together; what still rests counts, too.
    pub merges_saved: u64,
}

impl VdiskCounters {
    /// The share of what was sought out that the read cache had, 0 to 100; none: nothing was.
    pub fn read_cache_percent(&self) -> Option<f64> {
        let all = self.read_cache_hits + self.read_cache_misses;
        (all > 0).then(|| self.read_cache_hits as f64 / all as f64 * 100.0)
    }

    /// What packed stripes were good for.
    pub fn packed_use(&self) -> PackedUse {
        let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64 * 100.0);
        PackedUse {
            read_percent: share(self.packed_read_bytes, self.read_bytes),
            write_percent: share(self.packed_bytes, self.packed_bytes + self.whole_stripe_bytes),
            merges_saved: self.packed_parts.saturating_sub(self.destaged_stripes),
        }
    }
}

/// What a virtual disk still has in a layout that it is to have no more.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub struct OlderTable {
    /// The layout.
    pub layout: Layout,
    /// Bytes that lie so.
    pub used: u64,
}

/// One virtual disk.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct VdiskInfo {
    /// Its name, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub name: VdiskName,
    /// Its size as clients see it, in bytes.
    pub size: u64,
    /// How it lies on the disks: what is written from now on, where that has changed.
    pub layout: Layout,
    /// What still lies otherwise, while its layout changes (`vdisk change`); the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub older: Vec<OlderTable>,
    /// What it makes of writes that are smaller than its stripes.
    #[serde(default)]
    pub class: Class,
    /// Whether its room is reserved.
    pub provisioning: Provisioning,
    /// Its sector as clients see it, in bytes.
    pub sector: u16,
    /// Bytes of it that hold data.
    pub used: u64,
    /// Bytes of the pool's disks it occupies.
    pub footprint: u64,
    /// Bytes of small writes that lie in packed stripes, until the mover has brought them into whole ones.
    #[serde(default)]
    pub packed: u64,
    /// The share of it that may lie in packed stripes: its own, or `auto`.
    #[serde(default)]
    #[schema(value_type = String)]
    pub fine_share: FineShare,
    /// The most bytes of packed stripes it may have, as things stand now; 0: small writes are merged.
    #[serde(default)]
    pub packed_max: u64,
    /// Whether the mover brings `packed` down now, beside clients; else it waits until the pool is idle.
    #[serde(default)]
    pub packed_moves: bool,
    /// Whether some of it lies on disks that seek and may have to be put in order once the pool is idle.
    #[serde(default)]
    pub to_be_ordered: bool,
    /// Its write-back cache, if it has one: then `packed` lies there, of at most `packed_max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<CacheInfo>,
    /// Whether the pool chooses that (`write-cache=auto`), and chooses anew when its disks change.
    #[serde(default)]
    pub write_cache_auto: bool,
    /// Its fast tier, if it has one, or had one that still holds something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierInfo>,
    /// Its read cache, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_cache: Option<ReadCacheInfo>,
    /// The share of its raw bytes that is data, 0 to 1, by its layout.
    pub efficiency: f64,
    /// How well it is.
    pub health: Health,
    /// How many more disks can fail before something of what is written is lost, as of now.
    pub failures_left: u32,
    /// How many can fail before something is lost of what is written from now on; none: too few disks are there to
    /// write it at all.
    pub failures_new: Option<u32>,
    /// Why writes were lost for good, and no more are taken until it is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What it did since the pool opened.
    pub counters: VdiskCounters,
    /// What packed stripes were good for since then.
    #[serde(default)]
    pub packed_use: PackedUse,
    /// Where it is offered.
    pub exports: Vec<String>,
}

/// What a request does.
#[derive(Serialize, Deserialize, ToSchema, clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// The plan of one request.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The virtual disk, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// What the request does.
    pub operation: Operation,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: u64,
    /// The plan, line by line.
    pub plan: Vec<String>,
    /// How many more disks can fail before something of what is written is lost.
    pub failures_left: u32,
    /// How many can fail before something is lost of what is written from now on; none: it cannot be written.
    pub failures_new: Option<u32>,
}

/// Where a piece of a virtual disk is.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Lies {
    /// Nowhere: it reads as zeros.
    Nowhere,
    /// In memory, and in the log as far as it was flushed.
    Memory,
    /// In whole stripes.
    Stripes,
    /// In stripes of a layout that it is to have no more.
    Older,
    /// In its fast tier.
    Fast,
    /// In packed stripes, those of its write-back cache where it has one.
    Packed,
}

/// A piece of a virtual disk that is everywhere in the same kind of place, on the same disks.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct VdiskPiece {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: u64,
    /// Where it is.
    pub lies: Lies,
    /// Names of the disks of its stripes, parity and copies included.
    pub disks: Vec<String>,
    /// How many slots of its stripes are on no disk.
    pub absent: usize,
}

/// Which disks hold a virtual disk.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct VdiskMapped {
    /// The virtual disk, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// Its pieces, one after the other.
    pub pieces: Vec<VdiskPiece>,
    /// Where there is more than this answer holds, in bytes.
    pub next: Option<u64>,
}

/// What can be lost now, for people: `survive 1 disk failure`.
pub fn survive(failures: Option<u32>) -> String {
    match failures {
        None => "have too few disks to be taken at all".into(),
        Some(0) => "survive no disk failure".into(),
        Some(1) => "survive 1 disk failure".into(),
        Some(n) => format!("survive {n} disk failures"),
    }
}

impl VdiskPiece {
    /// Whether `next` is in the same kind of place, right behind it.
    pub fn goes_on_as(&self, next: &VdiskPiece) -> bool {
        let place = |piece: &VdiskPiece| (piece.lies, piece.absent);
        self.offset + self.length == next.offset && place(self) == place(next) && self.disks == next.disks
    }
}

impl VdiskInfo {
    /// Whether new writes get less redundancy than its layout promises, and a cache that is to have less, for want of
    /// disks.
    pub fn is_short_of_disks(&self) -> bool {
        let below = self.layout.resiliency.failures();
        let cache = self.write_cache.as_ref().filter(|cache| cache.may_lose && !cache.drains);
        let promised = cache.map_or(below, |cache| cache.layout.resiliency.failures());
        self.failures_new.is_none_or(|new| new < u32::from(promised))
    }
}

#[cfg(test)]
impl VdiskInfo {
    /// A healthy one that nothing was done to.
    pub fn sample(name: &str, layout: Layout) -> VdiskInfo {
        let failures = u32::from(layout.resiliency.failures());
        VdiskInfo {
            name: name.parse().unwrap(),
            size: 1,
            layout,
            older: Vec::new(),
            provisioning: Provisioning::Thin,
            sector: 512,
            used: 1,
            footprint: 1,
            packed: 0,
            class: Default::default(),
            fine_share: Default::default(),
            packed_max: 0,
            packed_moves: false,
            to_be_ordered: false,
            write_cache: None,
            write_cache_auto: true,
            read_cache: None,
            tier: None,
            efficiency: layout.efficiency(),
            health: Health::Healthy,
            failures_left: failures,
            failures_new: Some(failures),
            failure: None,
            packed_use: Default::default(),
            counters: VdiskCounters::default(),
            exports: Vec::new(),
        }
    }
}

impl Resiliency {
    /// How many disks may be lost.
    pub fn failures(self) -> u8 {
        match self {
            Resiliency::Simple => 0,
            Resiliency::Mirror { copies } => copies - 1,
            Resiliency::Parity { parity } => parity,
        }
    }

    /// The fewest columns this can have.
    pub fn columns_min(self) -> u8 {
        match self {
            Resiliency::Simple | Resiliency::Mirror { .. } => 1,
            Resiliency::Parity { parity } => parity + 2,
        }
    }

    /// How many disks every column needs.
    pub fn disks_per_column(self) -> u8 {
        match self {
            Resiliency::Mirror { copies } => copies,
            Resiliency::Simple | Resiliency::Parity { .. } => 1,
        }
    }

    /// What a pool of `disks` disks gives to those who ask for nothing.
    pub fn default_for(disks: usize) -> Resiliency {
        geometry::Resiliency::chosen(disks, None).into()
    }
}

impl From<geometry::Resiliency> for Resiliency {
    fn from(resiliency: geometry::Resiliency) -> Resiliency {
        match resiliency {
            geometry::Resiliency::Simple => Resiliency::Simple,
            geometry::Resiliency::Mirror { copies } => Resiliency::Mirror { copies },
            geometry::Resiliency::Parity { parity } => Resiliency::Parity { parity },
        }
    }
}

impl From<Resiliency> for geometry::Resiliency {
    fn from(resiliency: Resiliency) -> geometry::Resiliency {
        match resiliency {
            Resiliency::Simple => geometry::Resiliency::Simple,
            Resiliency::Mirror { copies } => geometry::Resiliency::Mirror { copies },
            Resiliency::Parity { parity } => geometry::Resiliency::Parity { parity },
        }
    }
}

impl From<geometry::Layout> for Layout {
    fn from(layout: geometry::Layout) -> Layout {
        let (columns, interleave) = (layout.columns() as u8, layout.interleave().0);
        Layout { resiliency: layout.resiliency().into(), columns, interleave }
    }
}

impl Layout {
    /// Columns that hold data.
    pub fn data_columns(self) -> u8 {
        match self.resiliency {
            Resiliency::Parity { parity } => self.columns - parity,
            Resiliency::Simple | Resiliency::Mirror { .. } => self.columns,
        }
    }

    /// How many different disks one stripe needs.
    pub fn disks_needed(self) -> usize {
        usize::from(self.columns) * usize::from(self.resiliency.disks_per_column())
    }

    /// Bytes of data in one stripe.
    pub fn stripe_data_len(self) -> u64 {
        u64::from(self.data_columns()) * self.interleave
    }

    /// The share of raw bytes that is data, 0 to 1.
    pub fn efficiency(self) -> f64 {
        f64::from(self.data_columns()) / self.disks_needed() as f64
    }
}

impl fmt::Display for Resiliency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resiliency::Simple => f.write_str("simple"),
            Resiliency::Mirror { copies } => write!(f, "mirror of {copies}"),
            Resiliency::Parity { parity: 1 } => f.write_str("single parity"),
            Resiliency::Parity { .. } => f.write_str("dual parity"),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.columns == 1 { "" } else { "s" };
        write!(
            f,
            "{}, {} column{plural}, {} interleave",
            self.resiliency,
            self.columns,
            typed(ByteCount(self.interleave))
        )
    }
}

impl fmt::Display for Provisioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Provisioning::Thin => "thin",
            Provisioning::Fixed => "fixed",
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Read => "read",
            Operation::Write => "write",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn efficiency_is_data_columns_over_disks() {
        let layout = |resiliency, columns| Layout { resiliency, columns, interleave: 65_536 };
        assert_eq!(layout(Resiliency::Parity { parity: 1 }, 4).efficiency(), 0.75);
        assert_eq!(layout(Resiliency::Mirror { copies: 2 }, 2).efficiency(), 0.5);
        assert_eq!(layout(Resiliency::Parity { parity: 2 }, 6).stripe_data_len(), 4 * 65_536);
    }
}
