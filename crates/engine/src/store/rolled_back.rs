//! Disks that are older than their labels: put back from copies that were made after the last label was written.
//!
//! An older label tells that a disk was put back, and a log disk that lacks batches does. What was committed since the
//! last labels were written, on disks that carry no log, the log alone speaks of. An opening looks at the last strips
//! that it says were made durable on each disk: one that is not there was lost, with all that came after the copy. It
//! takes a few, for one may be what was there before: parity of equal data is zeros.
//!
//! Invariants
//! 1. A disk that lacks one of the last strips of which the log speaks counts as one of which nobody knows what it
//!    lacks.
//! 2. A look changes nothing and holds nothing against a disk: that follows from what is made of it.
//! 3. Where nothing would bring back what was lost, nothing is looked at: reads tell.

use super::execute::Target;
use super::replay::Change;
use super::{Store, join};
use crate::mutant::{self, Mutant};
use crate::stripe::table::Place;
use crate::units::{DiskNo, TableNo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// How many strips of each disk are looked at.
const STRIPS: usize = 8;
/// The most records that are gone through, the last first: a disk that none of them speaks of would have all of them
/// gone through.
const RECORDS: usize = 1 << 16;

/// A stripe that was committed: its table, its number, and where it is.
pub type Committed = (TableNo, u64, Place);

impl Store {
    /// The last stripes that each disk has strips of, of those that the log speaks of and that are still where it says:
    /// `changes` were applied.
    pub(super) fn last_on_each_disk(&self, changes: &[(TableNo, u64, Change)]) -> BTreeMap<DiskNo, Vec<Committed>> {
        let map = self.map.borrow();
        let mut last = BTreeMap::<DiskNo, Vec<Committed>>::new();
        for (table, stripe, change) in changes.iter().rev().take(RECORDS) {
            let Change::Moved(place) = change else { continue };
            let is_there = map.tables.get(table).is_some_and(|table| table.get(*stripe) == Some(*place));
            let Some(segment) = map.segments.get(&place.segment).filter(|_| is_there) else { continue };
            // What a slot lacks by what is on record tells nothing of its disk.
            let may_lack = map.may_lack(&segment.record);
            let slots = segment.record.slabs.iter().enumerate().filter(|(slot, _)| may_lack >> slot & 1 == 0);
            for at in slots.filter_map(|(_, at)| *at) {
                let of_disk = last.entry(at.disk).or_default();
                if of_disk.len() < STRIPS && !of_disk.contains(&(*table, *stripe, *place)) {
                    of_disk.push((*table, *stripe, *place));
                }
            }
            if last.len() == map.disks.len() && last.values().all(|of_disk| of_disk.len() == STRIPS) {
                break;
            }
        }
        last
    }

    /// The disks that lack one of the last strips of which the log speaks, of those that are up to date by all that
    /// they say.
    pub async fn rolled_back(&self, last: &BTreeMap<DiskNo, Vec<Committed>>) -> BTreeSet<DiskNo> {
        if mutant::active(Mutant::RolledBackUnseen) {
            return BTreeSet::new();
        }
        let strips = last.iter().flat_map(|(no, of_disk)| of_disk.iter().map(|committed| (*no, *committed)));
        let looks = strips.map(|(no, committed)| async move { (no, self.lacks(no, committed).await) });
        join(looks).await.into_iter().filter(|(_, lacks)| *lacks).map(|(no, _)| no).collect()
    }

    /// Whether disk `no`, which is to have a strip of this stripe, has something else there.
    async fn lacks(&self, no: DiskNo, (table, stripe, place): Committed) -> bool {
        let Some(target) = Target::new(self, place).map(|target| target.owned_by(table, stripe)) else { return false };
        let on_it = |slot: &usize| target.slabs[*slot].is_some_and(|at| at.disk == no);
        let Some(slot) = (0..target.layout.slots()).find(on_it) else { return false };
        if target.layout.failures() == 0 || target.may_lack >> slot & 1 == 1 || !self.is_current(no) {
            return false;
        }
        // Memory has the checksums: they were in the log.
        let Ok(sums) = self.sums_of(&target).await else { return false };
        self.holds_another(&Target { looks: true, ..target }, slot, &sums).await
    }
}
