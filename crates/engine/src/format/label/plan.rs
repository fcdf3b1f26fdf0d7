//! Where the parts of a disk lie. Format: `docs/on-disk-format.md`, "Where the parts of a disk lie".

use super::{ANNEX_LEN, DISKS_NARROW, LABEL_SLOTS};
use crate::error::Result;
use crate::fail;
use crate::limits::DISK_SIZE_MAX;
use crate::units::{BLOCK, ByteCount, DiskOffset};

/// Where the first checkpoint area begins, behind the labels and their annexes.
const BLOB_AT: u64 = 64 << 10;

const _: () = assert!(LABEL_SLOTS * (BLOCK + ANNEX_LEN) <= BLOB_AT);

/// Where the parts of one disk lie. Every disk of a pool has its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskPlan {
    /// The bytes weft uses: whole blocks.
    pub disk_len: ByteCount,
    /// The first of two checkpoint areas of `blob_len` bytes each.
    pub blob_at: DiskOffset,
    /// Bytes of one checkpoint area.
    pub blob_len: ByteCount,
    /// The log ring.
    pub log_at: DiskOffset,
    /// Bytes of the log ring; the same on every disk of a pool.
    pub log_len: ByteCount,
    /// The first slab.
    pub data_at: DiskOffset,
    /// How many slabs.
    pub slabs: u32,
}

impl DiskPlan {
    /// Plans a disk of `capacity` bytes. The log ring must be `log_len` long where the pool has one already.
    pub fn new(capacity: ByteCount, slab: ByteCount, log_len: Option<ByteCount>) -> Result<DiskPlan> {
        const ALIGN: u64 = 64 << 10;
        if capacity > DISK_SIZE_MAX {
            return fail!(InvalidInput, "a disk of {capacity} is too large: up to {DISK_SIZE_MAX} can be used");
        }
        let disk_len = ByteCount(capacity.0 / BLOCK * BLOCK);
        let blob_at = DiskOffset(BLOB_AT);
        // A slab costs at most 72 bytes of checkpoint, on every voter; room for a pool of 64 disks of this size. A
        // larger one has that room, too, for what the tree holds is not in a checkpoint.
        let blob_len = ByteCount((ALIGN + capacity.0 / slab.0 * 72 * DISKS_NARROW as u64).next_multiple_of(ALIGN));
        let log_at = blob_at + blob_len * 2;
        let log_len = log_len.unwrap_or(ByteCount((capacity.0 / 32).clamp(1 << 20, 1 << 30) / ALIGN * ALIGN));
        let after = log_at + log_len;
        // Slabs start at a whole MiB, so that they suit any device's erase and zone sizes as well as the device itself
        // does.
        let data_at = DiskOffset(after.0.next_multiple_of(if slab >= ByteCount::mib(8) { 1 << 20 } else { ALIGN }));
        let room = disk_len.0.saturating_sub(data_at.0 + LABEL_SLOTS * BLOCK);
        let slabs = (room / slab.0).min(u32::MAX as u64) as u32;
        if slabs < 4 {
            let needed = ByteCount(data_at.0 + 4 * slab.0 + LABEL_SLOTS * BLOCK);
            return fail!(
                InvalidInput,
                "a disk of {capacity} is too small for slabs of {slab}: at least {needed} are needed"
            );
        }
        Ok(DiskPlan { disk_len, blob_at, blob_len, log_at, log_len, data_at, slabs })
    }

    /// Leaves room behind the last slab for the annexes of labels.
    pub fn with_annexes(mut self, slab: ByteCount) -> DiskPlan {
        let room = self.disk_len.0.saturating_sub(self.data_at.0 + LABEL_SLOTS * (BLOCK + ANNEX_LEN));
        self.slabs = self.slabs.min((room / slab.0) as u32);
        self
    }

    /// Where the annexes of labels lie, in the order of [`DiskPlan::label_slots`].
    pub fn label_annexes(capacity: ByteCount) -> [DiskOffset; 4] {
        let head = LABEL_SLOTS * BLOCK;
        let tail = (capacity.0 / BLOCK * BLOCK).saturating_sub(LABEL_SLOTS * (BLOCK + ANNEX_LEN));
        [DiskOffset(head), DiskOffset(head + ANNEX_LEN), DiskOffset(tail), DiskOffset(tail + ANNEX_LEN)]
    }

    /// The label slots of a disk of `capacity` bytes: head 0, head 1, tail 0, tail 1.
    pub fn label_slots(capacity: ByteCount) -> [DiskOffset; 4] {
        let tail = capacity.0 / BLOCK * BLOCK - LABEL_SLOTS * BLOCK;
        [DiskOffset(0), DiskOffset(BLOCK), DiskOffset(tail), DiskOffset(tail + BLOCK)]
    }
}
