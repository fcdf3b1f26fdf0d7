//! What of a segment is there: its disks, and the strips that they should have.

use super::{Map, Segment};
use crate::format::record::{Away, OWNER_METADATA, Record, SegmentRecord, SlabAt};
use crate::mutant::{self, Mutant};
use crate::units::{DiskNo, SegmentNo};

impl Map {
    /// Whether every slot of a segment lies on a healthy disk.
    pub fn is_healthy(&self, segment: &Segment) -> bool {
        let healthy = |disk: DiskNo| self.disks.get(&disk).is_some_and(|room| room.healthy);
        segment.record.slabs.iter().all(|at| at.is_some_and(|at| healthy(at.disk)))
    }

    /// Whether enough slots of a segment lie on healthy disks for a stripe to be written there.
    pub fn takes_stripes(&self, segment: &Segment) -> bool {
        let healthy = |at: &SlabAt| self.disks.get(&at.disk).is_some_and(|room| room.healthy);
        let there = segment.record.slabs.iter().flatten().filter(|at| healthy(at)).count();
        there + segment.record.layout.failures() >= segment.record.layout.slots()
    }

    /// Whether a slot has its disk, and that disk all the strips of the slot.
    pub fn is_sound(&self, segment: &SegmentRecord, slot: usize) -> bool {
        let there = |at: SlabAt| self.disks.get(&at.disk).is_some_and(|disk| disk.healthy);
        segment.slabs[slot].is_some_and(there) && segment.missed >> slot & 1 == 0
    }

    /// The slots (bits) of a segment that may lack strips: that is on record, or nobody knows what their disk lacks.
    pub fn may_lack(&self, segment: &SegmentRecord) -> u128 {
        let is_unknown = |at: SlabAt| self.disks.get(&at.disk).is_some_and(|disk| disk.record.away == Away::Unknown);
        let slots = segment.slabs.iter().enumerate();
        slots.fold(segment.missed, |set, (slot, at)| set | u128::from(at.is_some_and(is_unknown)) << slot)
    }

    /// Whether what lies in a segment is there without disk `no`: enough others have their strips for certain.
    pub fn is_safe_without(&self, segment: &Segment, no: DiskNo) -> bool {
        let record = &segment.record;
        let on_it = slots_on(record, no);
        let is_missing = |slot: &usize| !self.is_sound(record, *slot);
        let missing = (0..record.slabs.len()).filter(is_missing).fold(0, |slots, slot| slots | 1 << slot);
        let may_lack = if mutant::active(Mutant::UnprovenIsSafe) { 0 } else { self.may_lack(record) };
        let uncertain = (missing | on_it | may_lack).count_ones() as usize;
        let is_empty = record.owner != OWNER_METADATA && segment.free.is_full();
        on_it == 0 || is_empty || uncertain <= record.layout.failures()
    }

    /// How many slots of a segment are not sound.
    pub fn unsound(&self, segment: &SegmentRecord) -> usize {
        (0..segment.slabs.len()).filter(|slot| !self.is_sound(segment, *slot)).count()
    }

    /// Notes that these slots (bits) of a segment lack strips. Returns the record, if that is news.
    pub fn mark_missed(&mut self, id: SegmentNo, slots: u128) -> Option<Record<'static>> {
        let segment = self.segments.get_mut(&id)?;
        if segment.record.missed & slots == slots {
            return None;
        }
        segment.record.missed |= slots;
        let record = Record::Segment(segment.record.clone());
        self.relist(id);
        Some(record)
    }

    /// Notes that a slot has all its strips. Returns the record, if that is news.
    pub fn clear_missed(&mut self, id: SegmentNo, slot: usize) -> Option<Record<'static>> {
        let segment = self.segments.get_mut(&id)?;
        if segment.record.missed >> slot & 1 == 0 {
            return None;
        }
        segment.record.missed &= !(1 << slot);
        let record = Record::Segment(segment.record.clone());
        self.relist(id);
        Some(record)
    }
}

/// The slots (bits) of a segment that lie on disk `no`.
pub fn slots_on(segment: &SegmentRecord, no: DiskNo) -> u128 {
    let on = |at: &Option<SlabAt>| at.is_some_and(|at| at.disk == no);
    segment.slabs.iter().enumerate().fold(0, |set, (slot, at)| set | (on(at) as u128) << slot)
}
