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
use core::ops::Range;

/// A stripe that was committed: its table, its number, and where it is.
pub type Committed = (TableNo, u64, Place);

impl Store {
    /// The last stripes that each disk has strips of, of those that the log speaks of and that are still where it says.
    pub(super) fn last_on_each_disk(&self, changes: &[(TableNo, u64, Change)]) -> BTreeMap<DiskNo, Vec<Committed>> {
        let map = self.map.borrow();
        let (mut last, mut newer) = (BTreeMap::<DiskNo, Vec<Committed>>::new(), BTreeSet::new());
        let mut unmapped: Vec<(TableNo, Range<u64>)> = Vec::new();
        for (table, first, change) in changes.iter().rev() {
            match change {
                Change::Unmapped { count, .. } => unmapped.push((*table, *first..first.saturating_add(*count))),
                Change::Moved(place) => {
                    let is_void = unmapped.iter().any(|(of, range)| of == table && range.contains(first));
                    if !newer.insert((*table, *first)) || is_void || !map.tables.contains_key(table) {
                        continue;
                    }
                    let Some(segment) = map.segments.get(&place.segment) else { continue };
                    for at in segment.record.slabs.iter().flatten() {
                        let of_disk = last.entry(at.disk).or_default();
                        if of_disk.len() < STRIPS {
                            of_disk.push((*table, *first, *place));
                        }
                    }
                }
            }
            let all = last.len() == map.disks.len() && last.values().all(|of_disk| of_disk.len() == STRIPS);
            if all || unmapped.len() > UNMAPPED_MAX {
                break;
            }
        }
        last
    }

    /// The disks that lack one of the last strips of which the log speaks, of those that are up to date by all that
    /// they say.
    pub async fn rolled_back(&self, last: &BTreeMap<DiskNo, Vec<Committed>>) -> Vec<DiskNo> {
        if mutant::active(Mutant::RolledBackUnseen) {
            return Vec::new();
        }
        let strips = last.iter().flat_map(|(no, of_disk)| of_disk.iter().map(|committed| (*no, *committed)));
        let strips: Vec<(DiskNo, Committed)> = strips.collect();
        let lacking = join(strips.iter().map(|(no, committed)| self.lacks(*no, *committed))).await;
        let lacking = strips.into_iter().zip(lacking).filter(|(_, lacks)| *lacks);
        let disks: BTreeSet<DiskNo> = lacking.map(|((no, _), _)| no).collect();
        disks.into_iter().collect()
    }

    /// Whether disk `no`, which is to have a strip of this stripe, has something else there.
    async fn lacks(&self, no: DiskNo, (table, stripe, place): Committed) -> bool {
        let Some(target) = Target::new(self, place).map(|target| target.owned_by(table, stripe)) else { return false };
        let slots = 0..target.layout.slots();
        let on_it = |slot: &usize| target.slabs[*slot].is_some_and(|at| at.disk == no);
        let Some(slot) = slots.into_iter().find(on_it) else { return false };
        if target.layout.failures() == 0 || target.may_lack >> slot & 1 == 1 || !self.is_current(no) {
            return false;
        }
        // Memory has the checksums: they were in the log.
        let Ok(sums) = self.sums_of(&target).await else { return false };
        self.is_another(&Target { looks: true, ..target }, slot, &sums).await
    }
}

/// How many strips of each disk are looked at.
const STRIPS: usize = 8;
/// How many ranges that were unmapped are remembered.
const UNMAPPED_MAX: usize = 4096;
