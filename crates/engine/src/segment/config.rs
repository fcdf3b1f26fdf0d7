//! Room for the configuration: all of it must fit a checkpoint area, so what it grows by is counted before it is
//! promised.

use super::lists::Rank;
use super::{EVENTS_SHARE, Map, Segment};
use crate::bits::BitSet;
use crate::error::Result;
use crate::fail;
use crate::format::record::{DISK_LEN, JOB_LEN, Record, SEGMENT_LEN, SLAB_LEN, TABLE_LEN, VDISK_LEN, len_of_vdisk};
use crate::limits::{JOBS_KEPT, METADATA_COPIES};
use crate::mutant::{self, Mutant};
use crate::stripe::table::Chunk;
use crate::units::{ByteCount, SegmentNo};

/// Bytes of the record of a metadata segment.
pub(super) const METADATA_LEN: u64 = SEGMENT_LEN + METADATA_COPIES as u64 * SLAB_LEN;
/// Bytes of the counts of what is shared.
const RC_LEN: usize = 2 * size_of::<usize>();

impl Map {
    /// Refuses `more` bytes of records that come with data once the configuration fills seven eighths of its area with
    /// them, and what may come with them (invariant 4).
    pub fn check_config_room(&self, more: u64) -> Result<()> {
        let len = self.config_len();
        let more = if mutant::active(Mutant::ConfigRoomUncounted) { 0 } else { more + METADATA_LEN };
        if len + more > self.config_max.0 / 8 * 7 {
            return fail!(
                NoSpace,
                "the pool's configuration has {} of {}: larger slabs or a larger interleave need less of it",
                ByteCount(len),
                self.config_max
            );
        }
        Ok(())
    }

    /// Whether there is room for the records of packed stripes: they are refused before those without which a write
    /// fails.
    pub(super) fn has_config_room_for_packs(&self, more: u64) -> bool {
        let room = self.config_len() + more + METADATA_LEN <= self.config_max.0 / 8 * 6;
        room || mutant::active(Mutant::ConfigRoomUncounted)
    }

    /// Bytes of memory, about, that segments and chunks take, whatever of them is used.
    pub fn memory(&self) -> u64 {
        let heap = |found: &Segment| {
            let sets = [&found.free, &found.mapped, &found.in_flight].map(BitSet::heap_bytes);
            sets.iter().sum::<usize>() + size_of_val(&*found.record.slabs) + RC_LEN
        };
        let heap: usize = self.segments.values().map(heap).sum();
        let segments = self.segments.len() * size_of::<(SegmentNo, Segment, SegmentNo, Rank)>();
        let chunks = self.tables.values().map(|table| table.chunks.len()).sum::<usize>() * size_of::<(u32, Chunk)>();
        // Nodes of a tree that grew are two thirds full, about.
        (heap + (segments + chunks) * 3 / 2) as u64
    }

    /// Bytes of the configuration, with all the events and jobs that it may keep: those come whether there is room or
    /// not.
    fn config_len(&self) -> u64 {
        let few = self.disks.len() * DISK_LEN + self.tables.len() * TABLE_LEN;
        let one = Record::Pool(self.notes.next).encoded_len() + Record::Settings(self.notes.settings).encoded_len();
        let vdisks: usize = self.vdisks.values().map(|vdisk| len_of_vdisk(vdisk).max(VDISK_LEN)).sum();
        let reads = self.read_caches.values().map(|cache| Record::ReadCache(cache.record.clone()).encoded_len());
        let vdisks = vdisks + reads.sum::<usize>();
        let jobs = self.notes.jobs.len().max(JOBS_KEPT) * JOB_LEN;
        self.bulk + (few + vdisks + one + jobs) as u64 + self.config_max.0 / EVENTS_SHARE
    }
}
