//! What clients gave back of stripes piece by piece. File systems free their blocks as it suits them, and hardly ever a
//! whole stripe at once: a stripe is unmapped when the last piece of it is given back that anybody ever wrote.
//!
//! Invariants
//! 1. A sector counts as given back only until somebody writes to it.
//! 2. Sectors that were not given back are zeros where a stripe is unmapped: they were read. Checksums only tell where
//!    reading is worth while, since other blocks than zeros may have the checksum of zeros.
//!
//! This is kept in memory only. What is forgotten, with a restart or because it was too much, stays mapped until its
//! stripe is discarded as a whole.

use super::Vdisk;
use crate::bits::BitSet;
use crate::error::Result;
use crate::segment::fine::UNIT;
use crate::store::execute::Target;
use crate::store::join;
use crate::units::SECTOR;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of memory for what is remembered. A stripe of 1 MiB takes 256 and its place among the others.
const MEMORY_MAX: usize = 4 << 20;
const PLACE: usize = 64;

/// The stripes of a virtual disk of which a part was given back.
#[derive(Default)]
pub(super) struct PartialDiscards {
    parts: BTreeMap<u64, Part>,
    /// Grows with every write to one of them, and with every new one.
    changes: u64,
}

struct Part {
    sectors: BitSet,
    /// The change after which nobody wrote to the stripe.
    unwritten_since: u64,
}

impl PartialDiscards {
    fn add(&mut self, stripe: u64, stripe_sectors: usize, sectors: Range<usize>) {
        if !self.parts.contains_key(&stripe) {
            while self.parts.len() >= MEMORY_MAX / (stripe_sectors / 8 + PLACE) && self.parts.pop_first().is_some() {}
            self.changes += 1;
            let part = Part { sectors: BitSet::empty(stripe_sectors), unwritten_since: self.changes };
            self.parts.insert(stripe, part);
        }
        self.parts.get_mut(&stripe).expect("it was just made").sectors.insert(sectors);
    }

    /// Somebody wrote to these bytes of `stripe`.
    pub(super) fn wrote(&mut self, stripe: u64, bytes: Range<usize>) {
        if let Some(part) = self.parts.get_mut(&stripe) {
            self.changes += 1;
            part.unwritten_since = self.changes;
            part.sectors.remove(sectors_of(&bytes));
        }
    }

    /// Stripes were given back as a whole.
    pub(super) fn forget(&mut self, stripes: Range<u64>) {
        while let Some(stripe) = self.parts.range(stripes.clone()).map(|(stripe, _)| *stripe).next() {
            self.parts.remove(&stripe);
        }
    }
}

impl Vdisk {
    /// Takes note that `bytes` of `stripe` were given back, and unmaps the stripe if it holds nothing else. Says
    /// whether it did.
    pub(super) async fn give_back(&self, stripe: u64, bytes: Range<usize>) -> Result<bool> {
        if !self.has_one_table() {
            return Ok(false);
        }
        let sectors = (self.layout().data_len().0 / SECTOR) as usize;
        self.partial_discards.borrow_mut().add(stripe, sectors, sectors_of(&bytes));
        // The version that is in flight is the one to be looked at.
        while self.in_flight(stripe).is_some() {
            self.check_flows()?;
            self.moved.changed().await;
        }
        self.check_there()?;
        let unwritten_since = || self.partial_discards.borrow().parts.get(&stripe).map(|part| part.unwritten_since);
        let before = unwritten_since();
        if before.is_none() || !self.rest_is_zeros(stripe).await {
            return Ok(false);
        }
        self.forget_if(stripe, || unwritten_since() == before, || self.check_flows()).await
    }

    /// Whether what was not given back of `stripe` is zeros that nobody is about to write.
    async fn rest_is_zeros(&self, stripe: u64) -> bool {
        let Some(rest) = self.not_discarded(stripe) else { return false };
        if rest.is_empty() {
            return true;
        }
        // Whether those are zeros is not worth a look.
        if self.has_fine_in(stripe, &rest) {
            return false;
        }
        let Ok(_held) = self.load_places(stripe..stripe + 1).await else { return false };
        if self.removed.get() {
            return false;
        }
        let place = self.store.map.borrow().place_of(self.table(), stripe);
        let Some(target) = place.and_then(|place| Target::new(&self.store, place)) else { return place.is_none() };
        // Pinned: the stripe stays where it is, and the pages of its checksums with it.
        self.store.map.borrow_mut().pin(target.place);
        let sums = self.store.sums_of(&target).await;
        self.release(target.place);
        let seem_zeros = |sums: &Vec<u32>| {
            rest.iter().all(|run| target.seem_zeros(&super::read::wants(target.layout, run.start, run.len()), sums))
        };
        if !sums.as_ref().is_ok_and(seem_zeros) || self.removed.get() {
            return false;
        }
        let start = stripe * target.layout.data_len().0;
        let are_zeros = rest.into_iter().map(async |run| {
            let mut bytes = vec![0; run.len()];
            let read = self.read_below(start + run.start as u64..start + run.end as u64, &mut bytes).await;
            super::add(&self.counters.read_for_write, *read.as_ref().unwrap_or(&0));
            read.is_ok() && bytes.iter().all(|byte| *byte == 0)
        });
        join(are_zeros).await.into_iter().all(|zeros| zeros)
    }

    /// Whether units of these runs of `stripe` lie in packed stripes.
    fn has_fine_in(&self, stripe: u64, runs: &[Range<usize>]) -> bool {
        let (map, start) = (self.store.map.borrow(), stripe * self.layout().data_len().0);
        let Some(fine) = map.fine(self.table()) else { return false };
        let units = |run: &Range<usize>| (start + run.start as u64) / UNIT..(start + run.end as u64).div_ceil(UNIT);
        runs.iter().any(|run| fine.range(units(run)).next().is_some())
    }

    /// The byte runs of `stripe` that were not given back and are not in its buffer; `None`: in the buffer there is
    /// more than was given back.
    fn not_discarded(&self, stripe: u64) -> Option<Vec<Range<usize>>> {
        let discarded = self.partial_discards.borrow();
        let sectors = &discarded.parts.get(&stripe)?.sectors;
        let rest = sectors.runs(0..sectors.len(), false);
        let is_gathered =
            |run: &Range<usize>| self.with_filling(stripe, |buffer| buffer.has_any(bytes_of(run))).unwrap_or(false);
        (!rest.iter().any(is_gathered)).then(|| rest.iter().map(bytes_of).collect())
    }
}

fn sectors_of(bytes: &Range<usize>) -> Range<usize> {
    bytes.start / SECTOR as usize..bytes.end / SECTOR as usize
}

fn bytes_of(sectors: &Range<usize>) -> Range<usize> {
    sectors.start * SECTOR as usize..sectors.end * SECTOR as usize
}
