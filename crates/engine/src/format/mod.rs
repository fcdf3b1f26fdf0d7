//! What stands on the disks, byte by byte. `docs/on-disk-format.md` is the one description; `tests/format_doc.rs` holds
//! these structs against it. Everything is little-endian, fixed-size, explicitly padded and covered by a CRC32C.

pub mod batch;
pub mod doc;
pub mod label;
pub mod lineage;
pub mod page;
pub mod record;
pub mod zone;

use crate::limits::NAME_MAX;
use alloc::string::String;

/// The version of the format this engine writes.
///
/// - 1: the first.
/// - 2: labels, pages and log batches carry the lineage of the pool; labels have serial numbers; a chunk says which
///   version its pages have at least.
/// - 3: segments and chunks are entries of the tree, whose root is in the checkpoint.
/// - 4: segments have marks of owners, and the tree versions of checksum pages.
/// - 5: an entry of a stripe table, a commit and a mark say the birth of the stripe.
pub const VERSION: u32 = 5;

/// The oldest version that it reads: opened for writing, such a pool is of [`VERSION`] from then on.
pub const VERSION_OLDEST: u32 = 2;

/// The incompatible feature of pools with packed stripes: there are `PACK` records in their log.
pub const FEATURE_PACKS: u64 = 1;

/// The incompatible feature of pools with write-back caches, now or at any time before.
pub const FEATURE_CACHES: u64 = 2;

/// The incompatible feature of pools with a virtual disk of more than one table, now or at any time before: there may
/// be zero entries in their tables, and jobs that empty the older ones.
pub const FEATURE_STACKS: u64 = 4;

/// The incompatible feature of pools with fast tiers, now or at any time before: stripes of a table may lie in segments
/// of another one, which have another layout.
pub const FEATURE_TIERS: u64 = 8;

/// The incompatible feature of pools with read caches, now or at any time before: slabs are taken that no segment has.
pub const FEATURE_READ_CACHES: u64 = 16;

/// The incompatible feature of pools of which segments were emptied, now or at any time before: there may be `MOVE`
/// records in their log.
pub const FEATURE_MOVES: u64 = 32;

/// The incompatible feature of pools with a disk whose number is 64 or more, now or at any time before: their labels
/// have annexes, and sets of disks may have more than one word.
pub const FEATURE_WIDE: u64 = 64;

/// The incompatible feature of pools whose log's batches may lie apart, and copies of them behind their positions, now
/// or at any time before ([`batch::spread`]).
pub const FEATURE_SPREAD: u64 = 128;

/// All incompatible features that it knows.
pub const FEATURES: u64 = FEATURE_PACKS
    | FEATURE_CACHES
    | FEATURE_STACKS
    | FEATURE_TIERS
    | FEATURE_READ_CACHES
    | FEATURE_MOVES
    | FEATURE_WIDE
    | FEATURE_SPREAD;

/// 128 random bits that name a pool or a disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Id(pub [u8; 16]);

impl core::fmt::Display for Id {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&at) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Whether `name` can be the name of a pool, a disk or a virtual disk: what people can type, and what can be shown to
/// them.
pub fn is_name(name: &str) -> bool {
    let allowed =
        |c: char| !c.is_control() && !c.is_whitespace() && !['/', '@', ',', char::REPLACEMENT_CHARACTER].contains(&c);
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(allowed) && !name.starts_with('-')
}

/// A name in its fixed field: UTF-8, padded with zeros. Longer names were refused when they were given.
pub(crate) fn name_to_bytes<const N: usize>(name: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// The name in a fixed field; bytes that are not UTF-8 (a damaged or hostile disk) are replaced.
pub(crate) fn name_from_bytes(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}
