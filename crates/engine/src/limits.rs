//! Every limit of the format and of the engine, in one place, with the relations between them asserted.

use crate::units::{BLOCK, ByteCount, INDEX_BITS};

/// The most columns a layout may have (parity columns counted, copies not).
pub const COLUMNS_MAX: u8 = 32;
/// The most slots (columns x copies) a segment may have.
pub const SLOTS_MAX: usize = COLUMNS_MAX as usize * COPIES_MAX as usize;
/// The most copies of a mirror.
pub const COPIES_MAX: u8 = 3;
/// The most parity columns.
pub const PARITY_MAX: u8 = 2;
/// The most copies of metadata, and of the log: with one more disk lost than these less one, some may be lost.
pub const METADATA_COPIES: usize = 3;
/// Ended jobs that a pool remembers.
pub const JOBS_KEPT: usize = 16;
/// The smallest interleave; every interleave is a multiple of it.
pub const INTERLEAVE_MIN: ByteCount = ByteCount::kib(4);
/// The largest interleave.
pub const INTERLEAVE_MAX: ByteCount = ByteCount::mib(4);
/// The longest stripe, in bytes of data, of a virtual disk that is written in units of one stripe each.
pub const UNIT_MAX: ByteCount = ByteCount::kib(64);
/// The smallest slab.
pub const SLAB_MIN: ByteCount = ByteCount::mib(1);
/// The largest slab.
pub const SLAB_MAX: ByteCount = ByteCount::gib(1);
/// The slab of a pool that asks for none, where its disks have no more than [`SLABS_DEFAULT_MAX`] of them.
pub const SLAB_DEFAULT: ByteCount = ByteCount::mib(64);
/// Slabs that a pool gets at most which asks for no size of them, as long as they are no larger than [`SLAB_MAX`]. What
/// an opening reads, and what segments take of memory, grows with their number.
pub const SLABS_DEFAULT_MAX: u64 = 1 << 20;
/// The most disks of one pool. The format has room for 1,024, in the annexes of labels; what is in memory of a set of
/// disks takes a bit for each.
pub const DISKS_MAX: usize = 256;
/// The most bytes of a pool's, disk's or virtual disk's name (UTF-8).
pub const NAME_MAX: usize = 48;
/// The largest disk.
pub const DISK_SIZE_MAX: ByteCount = ByteCount((1 << 62) - BLOCK);
/// The most percent of a disk's time that jobs leave clients.
pub const FOREGROUND_SHARE_MAX: u8 = 90;
/// The most of a virtual disk that may lie in packed stripes, in thousandths.
pub const FINE_SHARE_MAX: u16 = 500;
/// The most pieces of a virtual disk that are pinned to its fast tier.
pub const PINS_MAX: usize = 64;
/// The largest virtual disk.
pub const VDISK_SIZE_MAX: ByteCount = ByteCount(1 << 56);
/// The most chunks of a stripe table: their pages are numbered with 32 bits.
pub const CHUNKS_MAX: u32 = u32::MAX / 16;
/// The most bytes of the log ring that one batch takes.
pub const BATCH_MAX: ByteCount = ByteCount::mib(16);
/// The largest client request, in bytes; exports split nothing larger.
pub const REQUEST_MAX: ByteCount = ByteCount::mib(32);

/// The slab of a pool of disks of these sizes that asks for none: 64 MiB up to 64 TiB, then as many times that as it
/// takes for [`SLABS_DEFAULT_MAX`].
pub fn default_slab(capacities: &[ByteCount]) -> ByteCount {
    let raw = capacities.iter().fold(0u64, |sum, capacity| sum.saturating_add(capacity.0));
    let enough = |slab: &ByteCount| raw / slab.0 <= SLABS_DEFAULT_MAX;
    let sizes = core::iter::successors(Some(SLAB_DEFAULT), |slab| Some(*slab * 2));
    sizes.take_while(|slab| *slab <= SLAB_MAX).find(enough).unwrap_or(SLAB_MAX)
}

const _: () = assert!(INTERLEAVE_MIN.0 == BLOCK);
const _: () = assert!(INTERLEAVE_MAX.0.is_multiple_of(INTERLEAVE_MIN.0));
const _: () = assert!(SLAB_MAX.0 / INTERLEAVE_MIN.0 <= 1 << INDEX_BITS);
const _: () = assert!(SLAB_MIN.0.is_multiple_of(BLOCK) && SLAB_MAX.0.is_multiple_of(SLAB_MIN.0));

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_large_pool_gets_larger_slabs_rather_than_more() {
        let tib = ByteCount::gib(1024);
        let slabs = |disks: usize, tib_each: u64| default_slab(&vec![tib * tib_each; disks]);
        assert_eq!((slabs(1, 1), slabs(8, 8)), (SLAB_DEFAULT, SLAB_DEFAULT));
        assert_eq!((slabs(8, 9), slabs(16, 8), slabs(24, 20)), (SLAB_DEFAULT * 2, SLAB_DEFAULT * 2, SLAB_DEFAULT * 8));
        assert_eq!((slabs(64, 20), slabs(64, 100), default_slab(&[])), (SLAB_MAX, SLAB_MAX, SLAB_DEFAULT));
        assert_eq!(default_slab(&[DISK_SIZE_MAX; DISKS_MAX]), SLAB_MAX);
    }
}
