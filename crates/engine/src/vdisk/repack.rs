//! Repacking: what is left in packed stripes that hold little comes together in fewer, on the same disks.
//!
//! Units leave packed stripes in the order of their addresses, as the mover comes by; a packed stripe is free when the
//! last of its units has left. Those that were written while the mover was in the midst of what they hold keep the rest
//! until it comes by again, so that a virtual disk whose units are as many as it is to have needs half as many packed
//! stripes again. A cache has not that many, nor has a pool that is nearly full: then small writes would be merged one
//! by one.
//!
//! Invariants
//! 1. What is brought together lies where it was until its new packed stripe is the truth (`parcel.rs`).
//! 2. That retires nothing that landed, which may be newer.
//! 3. What cannot be read is set aside until the pool has changed.
//! 4. Each time fewer packed stripes are left than before, or nothing is written: where one of them has no place, or no
//!    memory, none is. What was given up, or replaced, meanwhile makes them fewer still.

use super::destage::By;
use super::read::{target_at, wants};
use super::{Vdisk, add};
use crate::error::Result;
use crate::io::IoSlice;
use crate::mutant::{self, Mutant};
use crate::segment::fine::{Spot, UNIT};
use crate::store::budget::Budget;
use crate::store::together::Part;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Packed stripes that are looked at for those that hold least.
const LOOKS: usize = 1024;
/// Bytes of packed stripes that are brought together at once.
const TOGETHER: u64 = 16 << 20;

/// Which packed stripes are being brought together, and from which one on others are sought.
#[derive(Default)]
pub(super) struct Repack {
    next: u64,
    under_way: BTreeSet<u64>,
    /// What could not be read, and the state of the pool ([`crate::store::Store::changes`]) in which that was so.
    aside: BTreeSet<u64>,
    changes: u64,
}

impl Vdisk {
    /// Brings together what the emptiest packed stripes hold. Says whether there are fewer then.
    pub(crate) async fn repack(self: &Rc<Self>, budget: &Budget, by: By) -> bool {
        let may = !self.removed.get() && !self.drains();
        if !may || mutant::active(Mutant::PacksStayThin) {
            return false;
        }
        let (stripes, parts) = self.plan_repack();
        if parts.is_empty() {
            return false;
        }
        self.packing.set(self.packing.get() + 1);
        let before = self.packed().1;
        let _lease = budget.take(2 * self.packs_layout().raw_len().0 * parts.len() as u64).await;
        let read = self.read_packs(&parts).await;
        let mut units = self.units_read(&stripes, &read);
        units.sort_unstable_by_key(|(unit, ..)| *unit);
        let groups: Vec<&[(u64, Spot, &[u8])]> = units.chunks(self.packs_places() as usize).collect();
        // What could not be read stays where it is.
        if !groups.is_empty() && groups.len() < read.iter().flatten().count() {
            let make = || self.parcels_of(&groups);
            let written = self.write_packs(groups.len(), make, by, &mut BTreeSet::new()).await;
            add(&self.counters.repacked, units.len() as u64 * UNIT * written as u64);
        }
        let unread = stripes.iter().zip(&read).filter(|(_, read)| read.is_none()).map(|(stripe, _)| *stripe);
        let mut repack = self.repack.borrow_mut();
        repack.under_way.retain(|stripe| !stripes.contains(stripe));
        repack.aside.extend(unread);
        drop(repack);
        // Who makes room asks again as long as that brings something.
        let fewer = self.packed().1 < before;
        self.end_packing();
        fewer
    }

    /// The packed stripes that are to be brought together, and how they are read; pinned.
    fn plan_repack(&self) -> (Vec<u64>, Vec<Part>) {
        let map = &mut *self.store.map.borrow_mut();
        let Some(fine) = map.fine(self.table_of(map)) else { return (Vec::new(), Vec::new()) };
        let (packs, layout) = (fine.packs, map.tables[&fine.packs].record.layout);
        let (places, most) = (layout.data_len().0 / UNIT, (TOGETHER / layout.raw_len().0).max(2) as usize);
        let (repack, changes) = (&mut *self.repack.borrow_mut(), self.store.signals.changes.get());
        if repack.changes != changes {
            (repack.changes, repack.aside) = (changes, BTreeSet::new());
        }
        let (found, next) = fine.emptiest(repack.next, LOOKS);
        repack.next = next;
        let (mut chosen, mut units) = (Vec::new(), 0);
        let again = mutant::active(Mutant::RepackReadsAgain);
        let is_free = |stripe: &u64| !repack.under_way.contains(stripe) && (!repack.aside.contains(stripe) || again);
        for stripe in found.into_iter().filter(is_free).take(most) {
            let holds = fine.units_in(stripe).count() as u64;
            // What is in a shadow stays until that is durable.
            if holds == 0 {
                continue;
            }
            // One that is nearly full gains nothing.
            if holds * 8 > places * 7 {
                break;
            }
            units += holds;
            chosen.push(stripe);
        }
        if units.div_ceil(places) >= chosen.len() as u64 {
            return (Vec::new(), Vec::new());
        }
        let mut parts = Vec::new();
        chosen.retain(|stripe| {
            let Some(place) = map.place_of(packs, *stripe) else { return false };
            let target = target_at(map, place, (packs, *stripe));
            map.pin(place);
            parts.push(Part { wants: wants(layout, 0, layout.data_len().as_usize()), target });
            true
        });
        repack.under_way.extend(&chosen);
        (chosen, parts)
    }

    /// The bytes of packed stripes, which are pinned no longer then; `None`: one cannot be read.
    async fn read_packs(&self, parts: &[Part]) -> Vec<Option<Vec<u8>>> {
        let answers = self.store.read_together(parts, None).await;
        let bytes = |(part, answer): (&Part, Result<Vec<IoSlice>>)| {
            self.release(part.target.place);
            Some(self.bytes_of(part, answer.ok()?, 0..part.target.layout.data_len().as_usize()))
        };
        parts.iter().zip(answers).map(bytes).collect()
    }

    /// The units that lie in packed stripes now, with what was read of these.
    fn units_read<'a>(&self, stripes: &[u64], read: &'a [Option<Vec<u8>>]) -> Vec<(u64, Spot, &'a [u8])> {
        if self.removed.get() {
            return Vec::new();
        }
        let map = self.store.map.borrow();
        let Some(fine) = map.fine(self.table_of(&map)) else { return Vec::new() };
        let mut units = Vec::new();
        for (stripe, bytes) in stripes.iter().zip(read) {
            let Some(bytes) = bytes else { continue };
            for unit in fine.units_in(*stripe) {
                let spot = fine.get(unit).expect("it is read from there");
                let at = spot.index as usize * UNIT as usize;
                units.push((unit, spot, &bytes[at..at + UNIT as usize]));
            }
        }
        units
    }
}
