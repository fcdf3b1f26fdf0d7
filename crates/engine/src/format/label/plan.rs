//! Where the parts of a disk lie. Format: `docs/on-disk-format.md`, "Where the parts of a disk lie".

use super::{ANNEX_LEN, DISKS_NARROW, LABEL_SLOTS};
use crate::error::Result;
use crate::fail;
use crate::limits::DISK_SIZE_MAX;
use crate::units::{BLOCK, ByteCount, DiskOffset};

/// Where the first checkpoint area begins, behind the labels and their annexes.
const BLOB_AT: u64 = 64 << 10;

/// Disks of its own size whose slabs a disk of a pool of more than [`DISKS_NARROW`] has room for in its checkpoints.
const DISKS_WIDE: usize = 256;

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
        DiskPlan::of(capacity, slab, log_len, DISKS_NARROW, LABEL_SLOTS * BLOCK)
    }

    /// Plans a disk of a pool whose labels have annexes: with room for these, and for the configuration of more disks.
    pub fn wide(capacity: ByteCount, slab: ByteCount, log_len: Option<ByteCount>) -> Result<DiskPlan> {
        DiskPlan::of(capacity, slab, log_len, DISKS_WIDE, LABEL_SLOTS * (BLOCK + ANNEX_LEN))
    }

    /// Plans a disk for pools of as many `disks` of its size, with labels of `tail` bytes at its end.
    fn of(
        capacity: ByteCount,
        slab: ByteCount,
        log_len: Option<ByteCount>,
        disks: usize,
        tail: u64,
    ) -> Result<DiskPlan> {
        const ALIGN: u64 = 64 << 10;
        if capacity > DISK_SIZE_MAX {
            return fail!(InvalidInput, "a disk of {capacity} is too large: up to {DISK_SIZE_MAX} can be used");
        }
        let disk_len = ByteCount(capacity.0 / BLOCK * BLOCK);
        let blob_at = DiskOffset(BLOB_AT);
        // A slab costs at most 72 bytes of checkpoint, on every voter.
        let blob_len = ByteCount((ALIGN + capacity.0 / slab.0 * 72 * disks as u64).next_multiple_of(ALIGN));
        let log_at = blob_at + blob_len * 2;
        let log_len = log_len.unwrap_or(ByteCount((capacity.0 / 32).clamp(1 << 20, 1 << 30) / ALIGN * ALIGN));
        let after = log_at + log_len;
        // Slabs start at a whole MiB, so that they suit any device's erase and zone sizes as well as the device itself
        // does.
        let data_at = DiskOffset(after.0.next_multiple_of(if slab >= ByteCount::mib(8) { 1 << 20 } else { ALIGN }));
        let room = disk_len.0.saturating_sub(data_at.0 + tail);
        let slabs = (room / slab.0).min(u32::MAX as u64) as u32;
        if slabs < 4 {
            let needed = ByteCount(data_at.0 + 4 * slab.0 + tail);
            return fail!(
                InvalidInput,
                "a disk of {capacity} is too small for slabs of {slab}: at least {needed} are needed"
            );
        }
        Ok(DiskPlan { disk_len, blob_at, blob_len, log_at, log_len, data_at, slabs })
    }

    /// Whether the labels of this disk can have annexes: there is room for them behind the last slab.
    pub fn has_room_for_annexes(&self, slab: ByteCount) -> bool {
        let slabs = slab * u64::from(self.slabs);
        self.data_at.0 + slabs.0 + LABEL_SLOTS * (BLOCK + ANNEX_LEN) <= self.disk_len.0
    }

    /// Whether the parts lie as they must: what is read from a disk says anything. A pool that became `wide` has disks
    /// of before, too.
    pub(super) fn is_sound(&self, slab: ByteCount, wide: bool) -> bool {
        let (len, log_len) = (self.disk_len, Some(self.log_len));
        let narrow = DiskPlan::new(len, slab, log_len).is_ok_and(|expected| expected == *self);
        match wide {
            false => narrow,
            true if narrow => self.has_room_for_annexes(slab),
            true => DiskPlan::wide(len, slab, log_len).is_ok_and(|expected| expected == *self),
        }
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
