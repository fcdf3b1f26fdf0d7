//! Writing whole stripes to places that follow each other, and knowing which slots have them for good once their disks
//! were flushed. Who commits what was written this way needs no limbo: it is durable before its record is.
//!
//! Invariants
//! 1. A slot counts as written only if its disk took it, was not lost from before that until the look, and is there.
//! 2. Places that nothing was committed to are given back with their claims.
//! 3. Where the log lies on other disks, nobody who waits for it waits for a disk that took what was merged, or what
//!    the log has: that is flushed before it is committed.

use super::execute::Target;
use super::{Store, join};
use crate::mutant::{self, Mutant};
use crate::stripe::sealed::Sealed;
use crate::stripe::table::Place;
use crate::units::{DiskNo, TableNo};
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// What was written to consecutive places of a segment.
pub struct Written {
    /// The first place.
    pub place: Place,
    /// Where that is; none: the segment was gone.
    pub target: Option<Target>,
    /// For each slot that has them: its disk, and how often that had been lost before.
    slots: Vec<Option<(DiskNo, u64)>>,
}

impl Written {
    /// The slots (bits) that lack them as things stand now.
    pub fn lacking(&self, store: &Store) -> u128 {
        let has = |disk: DiskNo, losses: u64| store.has_disk(disk) && store.losses(disk) == losses;
        let lacks = |slot: &Option<(DiskNo, u64)>| !slot.is_some_and(|(disk, losses)| has(disk, losses));
        self.slots.iter().enumerate().fold(0, |set, (slot, at)| set | (lacks(at) as u128) << slot)
    }

    /// The slots (bits) that did not take them.
    pub fn missed(&self) -> u128 {
        self.slots.iter().enumerate().fold(0, |set, (slot, at)| set | (at.is_none() as u128) << slot)
    }

    /// The disks that took some of it.
    pub fn disks(&self) -> impl Iterator<Item = DiskNo> + '_ {
        self.slots.iter().flatten().map(|(disk, _)| *disk)
    }
}

impl Store {
    /// Writes one slot's strips of stripes to consecutive places. `false`: that slot has no disk, or lost it.
    pub async fn write_strips(&self, target: &Target, slot: usize, sealed: &[Rc<Sealed>]) -> bool {
        let Some((at, block)) = target.locate(slot, 0) else { return false };
        let mut slices = Vec::new();
        for (nth, sealed) in sealed.iter().enumerate() {
            let column = target.layout.column(target.place.index + nth as u32, slot);
            slices.extend(sealed.strip(column));
        }
        let written = self.disk_write(at.disk, self.slab_offset(at, block), slices).await.is_ok();
        if written {
            self.touched(at.disk, target.place.segment);
        }
        written
    }

    /// Writes stripes to consecutive places from `place` on.
    pub async fn write_places(&self, place: Place, sealed: &[Rc<Sealed>]) -> Written {
        let Some(target) = Target::new(self, place) else { return Written { place, target: None, slots: Vec::new() } };
        let disk = |slot: usize| target.slabs[slot].map(|at| (at.disk, self.losses(at.disk)));
        let before: Vec<_> = (0..target.layout.slots()).map(disk).collect();
        let wrote = join((0..target.layout.slots()).map(|slot| self.write_strips(&target, slot, sealed))).await;
        let slots = before.into_iter().zip(wrote).map(|(before, wrote)| before.filter(|_| wrote)).collect();
        Written { place, target: Some(target), slots }
    }

    /// Whether the disks that took some of `sealed` are flushed before that is committed (invariant 3). Those that a
    /// stream is written to are not: a flush for each run would take the time that they need to write what follows.
    pub fn flushes_first(&self, written: &Written, sealed: &[Rc<Sealed>]) -> bool {
        if mutant::active(Mutant::FlushWaitsForMerged) {
            return false;
        }
        let loggers = self.loggers();
        let forgets = mutant::active(Mutant::LandedInFlightUnflushed);
        let is_known = |sealed: &Rc<Sealed>| sealed.merged || sealed.is_landed() && !forgets;
        sealed.iter().any(is_known) && !written.disks().any(|disk| loggers.contains(&disk))
    }

    /// Whether the log lies on other disks than stripes of this table may.
    pub fn is_log_apart(&self, table: TableNo) -> bool {
        let (map, loggers) = (self.map.borrow(), self.loggers());
        let Some(table) = map.tables.get(&table) else { return false };
        !map.disks_for(table.record.disks).any(|disk| loggers.contains(&disk.record.no))
    }

    /// Flushes the disks that took some of what was written.
    pub async fn flush_written(&self, written: impl Iterator<Item = &Written>) {
        let disks: BTreeSet<DiskNo> = written.flat_map(Written::disks).collect();
        join(disks.into_iter().map(|no| self.flush_shared(no))).await;
    }

    /// Gives back places that nothing was committed to. Whose they were claims others.
    pub fn give_up(&self, place: Place, count: u32) {
        let mut map = self.map.borrow_mut();
        if let Some(owner) = map.segments.get(&place.segment).map(|segment| segment.record.owner) {
            map.reclaim(owner, count);
        }
        map.end_write(place, count);
        drop(map);
        for nth in 0..count {
            let records = self.map.borrow_mut().free(Place { index: place.index + nth, ..place });
            self.append_all(records);
        }
    }
}
