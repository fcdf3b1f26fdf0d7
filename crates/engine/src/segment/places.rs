//! The places of stripes: one is taken by a commit, let go of by the next, and free when nobody can need it any more.
//!
//! Invariants
//! 1. A place that a commit replaced is free only when the record of that commit is durable, and its last reader done.
//! 2. A commit that is withdrawn gives the stripe its former place back, unless a later one let go of it.

use super::Map;
use crate::format::record::Record;
use crate::mutant::{self, Mutant};
use crate::stripe::table::{Entry, Place};
use crate::units::{SegmentNo, TableNo};
use alloc::vec::Vec;

impl Map {
    /// Sets the entry of `stripe` of `table` and lets go of where it was once the record with sequence number `seq` is
    /// durable.
    pub fn commit(&mut self, table: TableNo, stripe: u64, entry: impl Into<Entry>, seq: u64) {
        let before = self.remap(table, stripe, entry);
        let in_limbo = self.limbo.remove(&(table, stripe));
        self.freeing.extend(before.into_iter().chain(in_limbo).map(|place| (seq, place)));
    }

    /// Takes back that `seq` committed `stripe` of `table` to `place`: `before` is the truth again. `false`: a later
    /// change has replaced it already; what it let go of is free with that one.
    pub fn withdraw(&mut self, table: TableNo, stripe: u64, place: Place, before: Entry, seq: u64) -> bool {
        let entry = before.place().and_then(|before| self.freeing.iter().position(|entry| *entry == (seq, before)));
        let Some(found) = self.tables.get(&table) else { return false };
        if found.get(stripe) == Some(place) {
            self.remap(table, stripe, before);
            entry.map(|at| self.freeing.remove(at));
            return true;
        }
        let later = self.freeing.iter().position(|(_, replaced)| *replaced == place);
        if let (Some(at), Some(later)) = (entry, later) {
            let until = self.freeing[later].0;
            let (_, old) = self.freeing.remove(at).expect("it was just found");
            self.freeing.insert(later, (until, old));
        }
        false
    }

    /// Where the newest version of `stripe` of `table` was written, durable or not.
    pub fn place_of(&self, table: TableNo, stripe: u64) -> Option<Place> {
        self.limbo.get(&(table, stripe)).copied().or_else(|| self.tables[&table].get(stripe))
    }

    /// Makes free what records below `durable` let go of. Returns records (segments that became empty and were given
    /// back).
    pub fn release(&mut self, durable: u64) -> Vec<Record<'static>> {
        let mut records = Vec::new();
        while self.freeing.front().is_some_and(|(seq, _)| *seq < durable) {
            let (_, place) = self.freeing.pop_front().expect("the front was looked at");
            match self.pins.get_mut(&place) {
                Some((_, freed)) => *freed = true,
                None => records.extend(self.free(place)),
            }
        }
        records
    }

    /// How many places become free when the log moves on.
    pub fn count_freeing(&self) -> usize {
        self.freeing.len()
    }

    /// Whether something becomes free by itself: when the log moves on, or when it has drained.
    pub fn is_freeing(&self) -> bool {
        !self.freeing.is_empty() || self.is_draining()
    }

    /// Keeps a stripe from being reused while it is read.
    pub fn pin(&mut self, place: Place) {
        self.pins.entry(place).or_insert((0, false)).0 += 1;
    }

    /// Ends one reading. Returns records, as [`Map::release`] does.
    pub fn unpin(&mut self, place: Place) -> Vec<Record<'static>> {
        let (count, freed) = self.pins.get_mut(&place).expect("what is unpinned was pinned");
        *count -= 1;
        if *count > 0 {
            return Vec::new();
        }
        let freed = *freed;
        self.pins.remove(&place);
        if freed { self.free(place) } else { Vec::new() }
    }

    /// Whether stripes of this segment are being read.
    pub fn is_pinned(&self, segment: SegmentNo) -> bool {
        self.pins.range(Place::at(segment, 0)..=Place::at(segment, u32::MAX)).next().is_some()
    }

    /// Gives a stripe index back at once: one that was never committed, or that nothing refers to any more.
    pub fn free(&mut self, place: Place) -> Vec<Record<'static>> {
        if !mutant::active(Mutant::AheadOutlivesPlace) {
            self.ahead.forget(place);
        }
        self.forget_kept(place);
        // The table may have been dropped since, and its segments with it.
        let Some(segment) = self.segments.get_mut(&place.segment) else { return Vec::new() };
        segment.free.insert(place.index as usize..place.index as usize + 1);
        let owner = segment.record.owner;
        if !mutant::active(Mutant::FreedStaysUnlisted) {
            self.relist(place.segment);
        }
        let promised = if self.tiers.is_empty() { 0 } else { self.kept_for_tier(owner) };
        let segment = &self.segments[&place.segment];
        let Some(table) = self.tables.get_mut(&owner) else { return Vec::new() };
        table.free += u64::from(!segment.emptying);
        let kept = table.fixed
            || segment.moving.is_some()
            || !segment.in_flight.is_empty()
            || !segment.free.is_full()
            || table.fronts.has(place.segment) && table.claims > 0;
        // What is being emptied was promised to nobody when that began.
        let needed = || !segment.emptying && table.free - (segment.free.len() as u64) < table.claims + promised;
        if kept || needed() {
            return Vec::new();
        }
        alloc::vec![self.drop_segment(place.segment)]
    }
}
