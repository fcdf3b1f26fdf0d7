//! Copies of metadata: how many there are, where they lie, and how they follow the pool as it grows and shrinks.
//!
//! A metadata segment has a slot for each copy there may be. As many have a disk as there are disks for data, two at
//! least: in a pool of one disk they share it. A slot without a disk lacks nothing as long as there is no disk for it.
//!
//! Invariants
//! 1. Two copies share a disk only while no other disk for data has room: a repair parts them ([`Map::copy_home`]).
//! 2. A copy is given up only for a disk that leaves, while as many others can be read as virtual disks survive
//!    failures, and one more; two at least ([`Map::may_vanish`]).

use super::allocate::SLABS_KEPT;
use super::drain::Known;
use super::{DiskRoom, Map, Segment};
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::fail;
use crate::format::record::{OWNER_METADATA, PageRun, Record, SegmentRecord, SlabAt, Usage};
use crate::geometry::{Layout, Resiliency};
use crate::limits::METADATA_COPIES;
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, ByteCount, DiskNo, SegmentNo};

/// How many copies metadata has that is made now.
pub(super) struct Copies {
    /// All of them.
    pub all: usize,
    /// The disks they are on.
    pub apart: usize,
}

impl Copies {
    /// Counts one for each disk for data with room (`ordinary`), or two on whatever disks there are (`others`).
    pub fn on(ordinary: usize, others: usize) -> Copies {
        let disks = ordinary.max((ordinary + others).min(2));
        let all = disks.clamp(2, METADATA_COPIES);
        Copies { all, apart: all.min(disks.max(1)) }
    }
}

/// The record of a segment with a slot for each copy that metadata may have: pools made before have fewer.
pub(super) fn with_a_slot_for_each(mut record: SegmentRecord) -> SegmentRecord {
    if record.owner == OWNER_METADATA && record.slabs.len() < METADATA_COPIES {
        let none = core::iter::repeat_n(None, METADATA_COPIES - record.slabs.len());
        record.slabs = record.slabs.iter().copied().chain(none).collect();
        record.layout = layout();
    }
    record
}

fn layout() -> Layout {
    let copies = Resiliency::Mirror { copies: METADATA_COPIES as u8 };
    Layout::new(copies, 1, ByteCount(BLOCK)).expect("metadata has a layout that there is")
}

/// Whether a copy shares its disk with one before it.
fn is_second(record: &SegmentRecord, slot: usize) -> bool {
    let disk = |at: &Option<SlabAt>| at.map(|at| at.disk);
    let own = disk(&record.slabs[slot]);
    own.is_some() && record.slabs[..slot].iter().any(|at| disk(at) == own)
}

impl Map {
    /// Whether a slot is one of metadata that has no disk, or shares that of another copy.
    pub fn is_spare_copy(&self, record: &SegmentRecord, slot: usize) -> bool {
        record.owner == OWNER_METADATA && (record.slabs[slot].is_none() || is_second(record, slot))
    }

    /// A disk for data, with room and without a copy of this metadata, for a slot that has none, or shares that of
    /// another copy. Hot spares are for copies that were lost.
    pub fn copy_home(&self, record: &SegmentRecord, slot: usize) -> Option<DiskNo> {
        if !self.is_spare_copy(record, slot) || mutant::active(Mutant::CopiesStayTogether) {
            return None;
        }
        let holds = |no: DiskNo| record.slabs.iter().flatten().any(|at| at.disk == no);
        let wanted = |disk: &DiskRoom| disk.record.usage == Usage::AutoSelect && !holds(disk.record.no);
        self.home_among(record.id, slot, wanted)
    }

    /// Whether a slot has not what it should have: its disk, or all strips there. Metadata that has no disk, or shares
    /// that of another copy, lacks something only where there is a disk for it.
    pub fn lacks(&self, record: &SegmentRecord, slot: usize) -> bool {
        match self.is_spare_copy(record, slot) {
            true => self.copy_home(record, slot).is_some(),
            false => !self.is_sound(record, slot),
        }
    }

    /// The segments that hold metadata pages.
    pub fn metadata_segments(&self) -> impl Iterator<Item = &Segment> + Clone {
        self.metadata.iter().map(|id| &self.segments[id])
    }

    /// Whether a copy of metadata that leaves disk `no` and finds no other place may be given up: the others that can
    /// be read survive what every virtual disk does.
    pub fn may_vanish(&self, record: &SegmentRecord, no: DiskNo) -> bool {
        let others = self.readable_copies(record).without(no);
        let survived = self.tables.values().map(|table| table.record.layout.failures()).max().unwrap_or(0);
        if mutant::active(Mutant::JournalCopiesGivenUp) && record.owner == OWNER_METADATA && !others.is_empty() {
            return true;
        }
        record.owner == OWNER_METADATA && others.len() > survived.max(1)
    }

    /// How many disks may fail before metadata that is in use is out of reach; none: there is none.
    pub fn metadata_failures_left(&self) -> Option<u32> {
        let used = self.metadata_segments().filter(|found| !found.free.is_full());
        used.map(|found| self.readable_copies(&found.record).len().saturating_sub(1) as u32).min()
    }

    /// The disks from which this metadata can be read.
    fn readable_copies(&self, record: &SegmentRecord) -> DiskSet {
        let readable = |no: &DiskNo| self.disks.get(no).is_some_and(|disk| disk.healthy && disk.current);
        record.slabs.iter().flatten().map(|at| at.disk).filter(readable).collect()
    }

    /// Whether a slot that lies on journal disk `no` has another place, or can be done without. The last slabs of other
    /// disks are none: they are for overwriting, and what came to the journal for want of them would follow for ever.
    pub fn may_leave_journal(&self, segment: SegmentNo, slot: usize, no: DiskNo) -> bool {
        let home = self.home_for(segment, slot, None).and_then(|home| self.disks.get(&home));
        let vanishes = || self.segments.get(&segment).is_some_and(|segment| self.may_vanish(&segment.record, no));
        home.is_some_and(|home| home.free.count() > SLABS_KEPT) || vanishes()
    }

    /// Gives up the copy of metadata in `slot`, which lies on a disk that is to be empty, where [`Map::may_vanish`].
    /// Returns the record of it, the slab, which stays taken until it has drained, and what those hold who know it.
    pub fn give_up_copy(&mut self, segment: SegmentNo, slot: usize) -> Option<(Record<'static>, SlabAt, Known)> {
        let record = &self.segments.get(&segment)?.record;
        let left = record.slabs[slot]?;
        let leaves = self.disks.get(&left.disk).is_some_and(|disk| disk.record.usage.is_for_no_data());
        if !leaves || !self.may_vanish(record, left.disk) {
            return None;
        }
        let known = self.segments[&segment].known();
        let record = self.set_slab(segment, slot, None)?;
        Some((record, left, known))
    }

    /// Whether a copy of metadata that leaves a disk which is there may lie beside another one: when only one disk is
    /// left to the pool, missing ones counted, and no virtual disk survives a failure, so that nothing is lost by it.
    pub fn may_double(&self, segment: SegmentNo, slot: usize) -> bool {
        let Some(record) = self.segments.get(&segment).map(|segment| &segment.record) else { return false };
        let Some(from) = record.slabs[slot].and_then(|at| self.disks.get(&at.disk)) else { return false };
        let stays = |disk: &&DiskRoom| disk.record.usage != Usage::Retired && disk.record.no != from.record.no;
        record.owner == OWNER_METADATA
            && from.healthy
            && self.disks.values().filter(stays).count() < 2
            && self.tables.values().all(|table| table.record.layout.failures() == 0)
    }

    /// Makes a segment for metadata.
    pub(super) fn new_metadata_segment(&mut self) -> Result<SegmentNo> {
        let ordinary = self.writable_disks().filter(|disk| !disk.free.is_empty()).count();
        let copies = Copies::on(ordinary, self.last_resort(DiskSet::EMPTY, 0).count());
        let mut slabs = self.place(copies.apart, 0, 0, DiskSet::EMPTY)?;
        // One copy at least must be where it can be read. While none of the disks that are there is up to date, there
        // is no such place: the pool would need, for ever, what only those have that need it themselves.
        let is_current = |disk: &&DiskRoom| disk.current && disk.record.usage != Usage::ManualSelect;
        let current: DiskSet = self.disks.values().filter(is_current).map(|disk| disk.record.no).collect();
        let is_read = slabs.iter().flatten().any(|at| current.contains(at.disk));
        let is_forgiven = current.is_empty() && mutant::active(Mutant::MetadataMadeStale);
        if !is_read && !is_forgiven {
            // No disk at all would mean any.
            let better = if current.is_empty() { None } else { self.place(1, 0, 0, current).ok() };
            let Some(better) = better else {
                slabs.into_iter().flatten().for_each(|at| self.put_back(at));
                return fail!(NoSpace, "no disk whose metadata is up to date has room for more; see 'weft status'");
            };
            core::mem::replace(&mut slabs[0], better[0]).into_iter().for_each(|at| self.put_back(at));
        }
        while slabs.len() < copies.all {
            let again = self.place(1, 0, 0, DiskSet::EMPTY).unwrap_or_else(|_| alloc::vec![None]);
            slabs.extend(again);
        }
        slabs.resize(METADATA_COPIES, None);
        Ok(self.insert_segment(OWNER_METADATA, layout(), PageRun { segment: SegmentNo(0), first: 0, count: 0 }, slabs))
    }
}
