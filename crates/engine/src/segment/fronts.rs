//! Fronts: the segments that a table fills at once, each on disks of its own.
//!
//! A segment lies on as many disks as a stripe has slots. Where a pool has twice as many, a stream that filled one
//! segment after the other would leave half of them idle. So a table fills as many segments at once as there are disks
//! for, and goes from one to the next whenever a run of stripes has gone to each of its disks
//! ([`crate::stripe::fronts`]).
//!
//! Invariants
//! 1. Places of a front are taken in their order: its disks are written, and read, without seeks.
//! 2. A table that holds little has one front: a small virtual disk takes no more segments than it needs.
//! 3. A segment that is made only so that a front lies on disks of its own leaves room to others
//!    ([`Map::may_spare_segment`]), and lets as many segments be made after it as any other choice of disks would.
//! 4. Where there is no such segment, two fronts share one: fronts never keep anybody from writing.

use super::lists::Fit;
use super::{Map, Segment};
use crate::error::Result;
use crate::format::record::{Record, TableRecord};
use crate::mutant::{self, Mutant};
use crate::segment::allocate::SLABS_KEPT;
use crate::segment::segments_on;
use crate::stripe::fronts::{Turn, fronts_of};
use crate::units::{DiskNo, SegmentNo, TableNo};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Segments that are looked at for one that lies apart from the other fronts.
pub(super) const LOOKS: usize = 64;

impl Map {
    /// Whose turn it is to take stripes of `table`.
    pub(super) fn turn(&self, table: TableNo) -> Turn {
        let state = &self.tables[&table];
        let layout = state.record.layout;
        let per_segment = layout.segment_stripes(self.slab) as u64;
        let held = (state.segments.len() as u64 * per_segment).saturating_sub(state.free);
        let fronts = if held < per_segment / 2 { 1 } else { self.fronts_possible(table) };
        state.fronts.turn(fronts, layout)
    }

    /// For how many fronts of `table` there are disks.
    fn fronts_possible(&self, table: TableNo) -> usize {
        let TableRecord { layout, disks, .. } = self.tables[&table].record;
        fronts_of(self.disks_for(disks).count(), layout.slots())
    }

    /// The segment that takes the next stripes of `table`, in the order that [`super::allocate`] states.
    pub(super) fn choose_segment(
        &mut self,
        table: TableNo,
        turn: Turn,
        records: &mut Vec<Record<'static>>,
    ) -> Result<SegmentNo> {
        let usable = |segment: &&Segment| !segment.free.is_empty() && !segment.frozen && self.is_healthy(segment);
        if let Some(current) = self.tables[&table].fronts.at(turn.front).filter(|id| usable(&&self.segments[id])) {
            return Ok(current);
        }
        self.see_disks();
        let others = self.disks_of_others(table, turn.fronts, turn.front);
        let best = self.best_apart(table, others);
        if others != 0
            && best.is_none_or(|best| !is_apart(&self.segments[&best], others))
            && self.ranked(table, Fit::Healthy).take_while(|found| found.free.is_full()).take(turn.fronts).count()
                < turn.fronts
            && let Some(made) = self.make_apart(table, others, records)
        {
            return Ok(made);
        }
        let state = &self.tables[&table];
        let degraded = self.ranked(table, Fit::Degraded).find(|segment| !segment.frozen);
        let degraded = degraded.map(|segment| segment.record.id);
        let per_segment = state.record.layout.segment_stripes(self.slab) as u64;
        let scarce = state.free * 8 < state.segments.len() as u64 * per_segment;
        if let Some(best) = best
            && (self.segments[&best].free.is_full() || state.fixed || !scarce)
        {
            return Ok(best);
        }
        let fixed = state.fixed;
        match (best, degraded) {
            (Some(best), _) => Ok(self.new_segment(table, records).unwrap_or(best)),
            (None, Some(degraded)) if !fixed && self.can_place_whole(table) => {
                Ok(self.new_segment(table, records).unwrap_or(degraded))
            }
            (None, Some(degraded)) => Ok(degraded),
            (None, None) => self.new_segment(table, records),
        }
    }

    /// The disks (bits) that are taken up by fronts other than `front`. Those that are about to be full do not count:
    /// all fronts end at about the same time, and the next ones need not lie where the last ones did.
    pub(super) fn disks_of_others(&self, table: TableNo, fronts: usize, front: usize) -> u64 {
        let state = &self.tables[&table];
        let others = (0..fronts).filter(|other| *other != front).filter_map(|other| state.fronts.at(other));
        let filled = others.map(|id| &self.segments[&id]).filter(|found| found.free.count() * 8 >= found.free.len());
        filled.fold(0, |set, found| set | disks_of(found))
    }

    /// The segment of a table with the most free places; of those that have half as many, the one that shares the
    /// fewest disks with `others` (bits).
    fn best_apart(&self, table: TableNo, others: u64) -> Option<SegmentNo> {
        // Few are frozen at a time.
        let mut ranked = self.ranked(table, Fit::Healthy).filter(|segment| !segment.frozen);
        if others == 0 {
            return ranked.next().map(|segment| segment.record.id);
        }
        let mut ranked = ranked.take(LOOKS).peekable();
        let least = ranked.peek()?.free.count() / 2;
        let good = ranked.take_while(|segment| segment.free.count() >= least);
        good.min_by_key(|segment| (disks_of(segment) & others).count_ones()).map(|segment| segment.record.id)
    }

    /// The disks (bits) that the next segment of `table` had better not lie on: those of the newest ones that wait to
    /// be filled, as far as these lie apart, and are not enough for all fronts.
    pub(super) fn disks_of_newest(&self, table: TableNo) -> u64 {
        let fronts = self.fronts_possible(table);
        if fronts == 1 {
            return 0;
        }
        let mut set = 0;
        for (nth, newest) in self.newest_empty(table).take(fronts).enumerate() {
            match is_apart(newest, set) {
                true if nth + 1 == fronts => return 0,
                true => set |= disks_of(newest),
                false => break,
            }
        }
        set
    }

    /// Makes a segment that shares no disk with `others` (bits), if there are such disks, and there is enough room.
    pub(super) fn make_apart(
        &mut self,
        table: TableNo,
        others: u64,
        records: &mut Vec<Record<'static>>,
    ) -> Option<SegmentNo> {
        let disks = self.disks_apart(table, others).filter(|_| self.may_spare_segment(table))?;
        self.new_segment_on(table, disks, records).ok()
    }

    /// The disks (bits) for a segment of `table` that shares none with `others`. None: they are too few, they lie in
    /// fewer domains than all disks do, or segments that take them let fewer others be made.
    pub(super) fn disks_apart(&self, table: TableNo, others: u64) -> Option<u64> {
        if others == 0 {
            return None;
        }
        let TableRecord { layout, disks, .. } = self.tables[&table].record;
        let slots = layout.slots();
        let room = |no: DiskNo| self.disks[&no].free.count().saturating_sub(SLABS_KEPT) as u64;
        let all: Vec<DiskNo> = self.disks_for(disks).map(|disk| disk.record.no).filter(|no| room(*no) > 0).collect();
        let mut apart: Vec<DiskNo> = all.iter().copied().filter(|no| others >> *no & 1 == 0).collect();
        if apart.len() < slots || self.domains_of(&apart).min(slots) < self.domains_of(&all).min(slots) {
            return None;
        }
        apart.sort_unstable_by_key(|no| Reverse(room(*no)));
        let left = |no: &DiskNo| room(*no) - apart[..slots].contains(no) as u64;
        let before: Vec<u64> = all.iter().map(|no| room(*no)).collect();
        let after: Vec<u64> = all.iter().map(left).collect();
        let fits = segments_on(&after, slots as u64) + 1 >= segments_on(&before, slots as u64);
        (fits || mutant::active(Mutant::FrontsWasteRoom)).then(|| apart.iter().fold(0, |set, no| set | 1 << *no))
    }

    /// In how many domains disks lie; one that is in none is one of its own.
    fn domains_of(&self, disks: &[DiskNo]) -> usize {
        let named = |no: &DiskNo| Some(self.disks[no].record.domain.as_str()).filter(|name| !name.is_empty());
        let names: BTreeSet<&str> = disks.iter().filter_map(named).collect();
        names.len() + disks.iter().filter(|no| named(no).is_none()).count()
    }
}

/// The disks (bits) of a segment.
pub(super) fn disks_of(segment: &Segment) -> u64 {
    segment.record.slabs.iter().flatten().fold(0, |set, at| set | 1 << at.disk)
}

fn is_apart(segment: &Segment, others: u64) -> bool {
    disks_of(segment) & others == 0
}

#[cfg(test)]
mod tests {
    use super::super::allocate::tests::map_of;
    use super::*;
    use crate::geometry::{Layout, Resiliency};
    use crate::stripe::fronts::FRONTS_MAX;
    use crate::units::ByteCount;
    use proptest::prelude::*;

    fn parity(slots: usize) -> Layout {
        Layout::new(Resiliency::Parity { parity: 1 }, slots as u8, ByteCount::kib(256)).unwrap()
    }

    /// A map whose table is thin.
    fn thin(slabs: &[u32], layout: Layout) -> (Map, TableNo) {
        let (mut map, table) = map_of(slabs, layout);
        map.tables.get_mut(&table).unwrap().fixed = false;
        (map, table)
    }

    /// Takes a run of four stripes, as a stream does. Returns where it lies.
    fn take(map: &mut Map, table: TableNo) -> Option<(SegmentNo, u32)> {
        let claimed = (0..4).filter(|_| map.claim(table, true, &mut Vec::new())).count() as u32;
        let (place, count) = (claimed > 0).then(|| map.take_stripes(table, claimed, &mut Vec::new()).unwrap())?;
        (count..claimed).for_each(|_| map.unclaim(table));
        map.end_write(place, count);
        Some((place.segment, count))
    }

    #[test]
    fn a_stream_goes_from_one_front_to_the_next_and_each_has_disks_of_its_own() {
        for (disks, slots) in [(8, 4), (10, 4), (16, 4), (9, 3), (24, 3)] {
            let (mut map, table) = thin(&alloc::vec![400; disks], parity(slots));
            let fronts = (disks / slots).min(FRONTS_MAX);
            let runs: Vec<SegmentNo> = (0..5000).map(|_| take(&mut map, table).unwrap().0).collect();
            let apart = |runs: &&[SegmentNo]| {
                let mut all: Vec<u64> = runs.iter().map(|id| disks_of(&map.segments[id])).collect();
                all.dedup();
                all.len() == fronts
                    && all.iter().map(|set| set.count_ones() as usize).sum::<usize>()
                        == all.iter().fold(0, |set, own| set | own).count_ones() as usize
            };
            let rounds = runs[100..].windows(fronts);
            let (all, good) = (rounds.len(), rounds.filter(apart).count());
            assert!(good * 10 >= all * 9, "{disks} disks, {slots} slots: {good} of {all} rounds");
        }
    }

    #[test]
    fn a_table_that_holds_little_fills_one_segment() {
        let (mut map, table) = thin(&[400; 16], parity(4));
        let runs: BTreeSet<SegmentNo> = (0..32).map(|_| take(&mut map, table).unwrap().0).collect();
        assert_eq!((runs.len(), map.tables[&table].segments.len()), (1, 1), "half of a segment");
        (0..32).for_each(|_| assert!(take(&mut map, table).is_some()));
        assert_eq!(map.tables[&table].segments.len(), 4);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn as_many_segments_can_be_made_as_if_there_were_one_front(
            slabs in prop::collection::vec(2u32..40, 4..17),
            slots in 3usize..6,
        ) {
            prop_assume!(slabs.len() >= slots);
            let (mut plain, table) = thin(&slabs, parity(slots));
            while plain.new_segment_on(table, 0, &mut Vec::new()).is_ok() {}
            let (mut map, table) = thin(&slabs, parity(slots));
            let mut stripes = 0;
            while let Some((_, count)) = take(&mut map, table) {
                stripes += u64::from(count);
            }
            let (made, most) = (map.tables[&table].segments.len(), plain.tables[&table].segments.len());
            prop_assert!(made >= most, "{made} segments of {most}");
            prop_assert_eq!(stripes, made as u64 * 256, "all of them are filled");
        }
    }
}
