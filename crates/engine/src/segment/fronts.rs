//! Fronts: the segments that a table fills at once, each on disks of its own.
//!
//! A segment lies on as many disks as a stripe has slots. Where a pool has twice as many, a stream that filled one
//! segment after the other would leave half of them idle. So a table fills as many segments at once as there are disks
//! for, and goes from one to the next whenever a run of stripes has gone to each of its disks
//! ([`crate::stripe::fronts`]).
//!
//! Invariants
//! 1. Places of a front are taken in their order: its disks are written, and read, without seeks.
//! 2. A table has one front until it holds half as much as the segments of the others would: a small virtual disk takes
//!    no more segments than it needs; nor does one that is opened often. All fronts begin at the same time, and so they
//!    end at the same time: each time on other groups of disks, so that what one disk lost is rebuilt from all others.
//! 3. A segment that is made only so that a front lies on disks of its own leaves room to others
//!    ([`Map::may_spare_segment`]), and lets as many segments be made after it as any other choice of disks would.
//! 4. Disks that have less than half of the room of the emptiest one take no segment for the sake of a front: they
//!    would be full long before the others.
//! 5. Where there is no such segment, two fronts share one: fronts never keep anybody from writing.

use super::lists::Fit;
use super::{DiskRoom, Map, Segment};
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::format::record::{Record, TableRecord};
use crate::mutant::{self, Mutant};
use crate::segment::allocate::SLABS_KEPT;
use crate::segment::segments_on;
use crate::stripe::fronts::{FRONTS_MAX, Turn, fronts_of};
use crate::units::{DiskNo, SegmentNo, TableNo};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Into how many grains the room of the emptiest disk is divided.
const GRAINS: usize = 32;
/// Segments that are looked at for one that lies apart from the other fronts.
pub(super) const LOOKS: usize = 64;

impl Map {
    /// Whose turn it is to take stripes of `table`.
    pub(super) fn turn(&self, table: TableNo) -> Turn {
        let state = &self.tables[&table];
        let layout = state.record.layout;
        let per_segment = layout.segment_stripes(self.slab) as u64;
        let held = self.places_of(table).saturating_sub(state.free);
        let possible = self.fronts_possible(table);
        // What it holds changes with each commit: fronts that have begun stay for longer.
        let share = if state.fronts.count() == possible { 8 } else { 2 };
        let is_worth_it = held * share >= (possible as u64 - 1) * per_segment;
        state.fronts.turn(if is_worth_it { possible } else { 1 }, layout)
    }

    /// For how many fronts of `table` there are disks.
    fn fronts_possible(&self, table: TableNo) -> usize {
        let TableRecord { layout, disks, .. } = self.tables[&table].record;
        // More disks than that make no difference, and this is asked for each run of stripes.
        let enough = FRONTS_MAX * layout.slots();
        fronts_of(self.disks_for(disks).take(enough).count(), layout.slots())
    }

    /// By how many free slabs disks may differ that count as equally empty where there are several fronts. If the
    /// emptiest ones were taken every time, those that hold a few slabs of metadata would always be left for the last
    /// front, and share their segments with nobody else.
    pub(super) fn grain(&self, table: TableNo) -> usize {
        if self.fronts_possible(table) == 1 {
            return 1;
        }
        let free = self.disks_for(self.tables[&table].record.disks).map(|disk| disk.free.count());
        (free.max().unwrap_or(0) / GRAINS).max(1)
    }

    /// The segment that takes the next stripes of `table`, in the order that [`super::allocate`] states.
    pub(super) fn choose_segment(
        &mut self,
        table: TableNo,
        turn: Turn,
        records: &mut Vec<Record<'static>>,
    ) -> Result<SegmentNo> {
        let usable = |segment: &&Segment| !segment.free.is_empty() && !segment.frozen && self.is_healthy(segment);
        if let Some(current) = self.tables[&table].fronts.at(turn, turn.front).filter(|id| usable(&&self.segments[id]))
        {
            return Ok(current);
        }
        self.see_disks();
        let others = self.disks_of_others(table, turn, turn.front);
        let best = self.best_apart(table, others);
        if let Some(best) = best.filter(|best| turn.fronts > 1 && self.suits(table, turn, *best, others)) {
            return Ok(best);
        }
        if turn.fronts > 1
            && self.newest_empty(table).take(turn.fronts).count() < turn.fronts
            && let Some(made) = self.make_apart(table, others, records)
        {
            return Ok(made);
        }
        let state = &self.tables[&table];
        let degraded = self.ranked(table, Fit::Degraded).find(|segment| !segment.frozen);
        let degraded = degraded.map(|segment| segment.record.id);
        let scarce = self.is_scarce(table, 8);
        if let Some(best) = best
            && (self.segments[&best].free.is_full() || state.fixed || !scarce)
        {
            return Ok(best);
        }
        // Where there is another choice, none is made of the slabs that are kept.
        let makes_none = state.fixed || self.keeps_for_rising();
        match (best, degraded) {
            (Some(best), _) if makes_none => Ok(best),
            (Some(best), _) => Ok(self.new_segment(table, records).unwrap_or(best)),
            (None, Some(degraded)) if !makes_none && self.can_place_whole(table) => {
                Ok(self.new_segment(table, records).unwrap_or(degraded))
            }
            (None, Some(degraded)) => Ok(degraded),
            (None, None) => self.new_segment(table, records),
        }
    }

    /// Whether a segment suits a front as well as one that is made for it: it lies apart from the `others`, and
    /// is empty, unless a quarter of the table's places is free. Fronts that begin with empty segments end together: so
    /// the first ones do in any case. After an opening, fronts go on with what those before it had left.
    fn suits(&self, table: TableNo, turn: Turn, segment: SegmentNo, others: DiskSet) -> bool {
        let (state, found) = (&self.tables[&table], &self.segments[&segment]);
        let begins = (0..turn.fronts).any(|front| state.fronts.at(turn, front).is_none());
        let partly = match begins {
            true if state.segments.len() < 2 * turn.fronts => false,
            true => found.free.count() * 8 >= found.free.len(),
            false => !self.is_scarce(table, 4),
        };
        is_apart(found, others) && (partly || found.free.is_full())
    }

    /// Whether less than one in `share` of a table's places is free.
    fn is_scarce(&self, table: TableNo, share: u64) -> bool {
        self.tables[&table].free * share < self.places_of(table)
    }

    /// Places for stripes in all segments of a table.
    fn places_of(&self, table: TableNo) -> u64 {
        let state = &self.tables[&table];
        state.segments.len() as u64 * state.record.layout.segment_stripes(self.slab) as u64
    }

    /// The disks that are taken up by fronts other than `front`. Those that are about to be full do not count:
    /// all fronts end at about the same time, and the next ones need not lie where the last ones did.
    pub(super) fn disks_of_others(&self, table: TableNo, turn: Turn, front: usize) -> DiskSet {
        let state = &self.tables[&table];
        let others = (0..turn.fronts).filter(|other| *other != front).filter_map(|other| state.fronts.at(turn, other));
        let filled = others.map(|id| &self.segments[&id]).filter(|found| found.free.count() * 8 >= found.free.len());
        filled.fold(DiskSet::EMPTY, |set, found| set | found.record.disks())
    }

    /// The segment of a table with the most free places; of those that have half as many, the one that shares the
    /// fewest disks with `others`.
    fn best_apart(&self, table: TableNo, others: DiskSet) -> Option<SegmentNo> {
        // Few are frozen at a time.
        let mut ranked = self.ranked(table, Fit::Healthy).filter(|segment| !segment.frozen);
        if others.is_empty() {
            return ranked.next().map(|segment| segment.record.id);
        }
        let mut ranked = ranked.take(LOOKS).peekable();
        let least = ranked.peek()?.free.count() / 2;
        let good = ranked.take_while(|segment| segment.free.count() >= least);
        good.min_by_key(|segment| (segment.record.disks() & others).len()).map(|segment| segment.record.id)
    }

    /// The disks that the next segment of `table` had better not lie on: those of the newest ones that wait to
    /// be filled, as far as these lie apart, and are not enough for all fronts.
    pub(super) fn disks_of_newest(&self, table: TableNo) -> DiskSet {
        let fronts = self.fronts_possible(table);
        if fronts == 1 {
            return DiskSet::EMPTY;
        }
        let mut set = DiskSet::EMPTY;
        for (nth, newest) in self.newest_empty(table).take(fronts).enumerate() {
            match is_apart(newest, set) {
                true if nth + 1 == fronts => return DiskSet::EMPTY,
                true => set |= newest.record.disks(),
                false => break,
            }
        }
        set
    }

    /// Makes a segment that shares no disk with `others` (none: any), if there are such disks, and enough room.
    pub(super) fn make_apart(
        &mut self,
        table: TableNo,
        others: DiskSet,
        records: &mut Vec<Record<'static>>,
    ) -> Option<SegmentNo> {
        if !self.may_spare_segment(table) {
            return None;
        }
        match others.is_empty() {
            true => self.new_segment(table, records).ok(),
            false => self.new_segment_on(table, self.disks_apart(table, others)?, records).ok(),
        }
    }

    /// The disks for a segment of `table` that shares none with `others`. None: those with enough room are too
    /// few, they lie in fewer domains than all disks do, or segments that take them let fewer others be made.
    pub(super) fn disks_apart<'a>(&'a self, table: TableNo, others: DiskSet) -> Option<DiskSet> {
        if others.is_empty() {
            return None;
        }
        let TableRecord { layout, disks, .. } = self.tables[&table].record;
        let slots = layout.slots();
        // Copied once: there may be hundreds of them, and they are gone through several times.
        let room = |disk: &'a DiskRoom| Candidate {
            room: disk.free.count().saturating_sub(SLABS_KEPT) as u64,
            no: disk.record.no,
            domain: &disk.record.domain,
        };
        let all: Vec<Candidate> = self.disks_for(disks).map(room).filter(|disk| disk.room > 0).collect();
        let wastes = mutant::active(Mutant::FrontsWasteRoom);
        let most = all.iter().map(|disk| disk.room).max().unwrap_or(0);
        let least = if wastes { 0 } else { most.div_ceil(2) };
        let fits = |disk: &&Candidate| !others.contains(disk.no) && disk.room >= least;
        let mut apart: Vec<Candidate> = all.iter().filter(fits).copied().collect();
        if apart.len() < slots || domains_of(&apart).min(slots) < domains_of(&all).min(slots) {
            return None;
        }
        // The first are those with most room.
        apart.select_nth_unstable_by_key(slots - 1, |disk| Reverse(disk.room));
        let taken: DiskSet = apart[..slots].iter().map(|disk| disk.no).collect();
        let before: Vec<u64> = all.iter().map(|disk| disk.room).collect();
        let after: Vec<u64> = all.iter().map(|disk| disk.room - taken.contains(disk.no) as u64).collect();
        let fits = segments_on(&after, slots as u64) + 1 >= segments_on(&before, slots as u64);
        (fits || wastes).then(|| apart.iter().map(|disk| disk.no).collect())
    }
}

/// A disk that a segment may come to lie on.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    /// Slabs that data may take there.
    room: u64,
    no: DiskNo,
    /// Empty: it is in none.
    domain: &'a str,
}

/// In how many domains disks lie; one that is in none is one of its own.
fn domains_of(disks: &[Candidate]) -> usize {
    let named = disks.iter().map(|disk| disk.domain).filter(|domain| !domain.is_empty());
    let domains: BTreeSet<&str> = named.clone().collect();
    disks.len() - named.count() + domains.len()
}

fn is_apart(segment: &Segment, others: DiskSet) -> bool {
    (segment.record.disks() & others).is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::allocate::Claim;
    use super::super::allocate::tests::map_of;
    use super::*;
    use crate::geometry::{Layout, Resiliency};
    use crate::stripe::fronts::Fronts;
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
        let claimed = (0..4).filter(|_| map.claim(table, Claim::Overwrite, &mut Vec::new())).count() as u32;
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
                let mut all: Vec<DiskSet> = runs.iter().map(|id| map.segments[id].record.disks()).collect();
                all.dedup();
                all.len() == fronts
                    && all.iter().map(|set| set.len()).sum::<usize>()
                        == all.iter().fold(DiskSet::EMPTY, |set, own| set | *own).len()
            };
            let rounds = runs[100..].windows(fronts);
            let (all, good) = (rounds.len(), rounds.filter(apart).count());
            assert!(good * 10 >= all * 8, "{disks} disks, {slots} slots: {good} of {all} rounds");
        }
    }

    #[test]
    fn what_several_fronts_fill_has_every_disk_share_segments_with_every_other() {
        for (disks, slots) in [(8, 4), (10, 4), (16, 4), (24, 3)] {
            let (mut map, table) = thin(&alloc::vec![400; disks], parity(slots));
            (0..disks * 2500).for_each(|_| assert!(take(&mut map, table).is_some()));
            let on: Vec<DiskSet> =
                map.tables[&table].segments.iter().map(|id| map.segments[id].record.disks()).collect();
            let together =
                |a: u16, b: u16| on.iter().filter(|on| on.contains(DiskNo(a)) && on.contains(DiskNo(b))).count();
            let mean = on.len() * slots * (slots - 1) / (disks * (disks - 1));
            for (a, b) in (0..disks as u16).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let even = (mean.div_ceil(10)..=mean * 3).contains(&together(a, b));
                assert!(even, "of {disks} disks, {a} and {b} share {} segments; the mean is {mean}", together(a, b));
            }
        }
    }

    #[test]
    fn a_table_that_holds_little_fills_one_segment_after_the_other() {
        let (mut map, table) = thin(&[400; 16], parity(4));
        let segments = |map: &Map| map.tables[&table].segments.len();
        (0..64 + 32).for_each(|_| assert!(take(&mut map, table).is_some()));
        assert_eq!(segments(&map), 2, "it holds one and a half");
        (0..4).for_each(|_| assert!(take(&mut map, table).is_some()));
        assert_eq!(segments(&map), 2 + 4);
    }

    #[test]
    fn a_pool_that_is_opened_often_makes_no_segments_for_that() {
        let (mut map, table) = thin(&[400; 16], parity(4));
        (0..5000).for_each(|_| assert!(take(&mut map, table).is_some()));
        let segments = |map: &Map| map.tables[&table].segments.len();
        let before = segments(&map);
        for _ in 0..40 {
            map.tables.get_mut(&table).unwrap().fronts = Fronts::default();
            (0..4).for_each(|_| assert!(take(&mut map, table).is_some()));
        }
        assert!(segments(&map) <= before + 2 * 4, "{} segments, {before} before", segments(&map));
    }

    #[test]
    fn disks_that_are_nearly_full_take_no_segment_for_the_sake_of_a_front() {
        for (slabs, apart) in
            [([400, 400, 400, 400, 250, 250, 250, 250], true), ([400, 400, 400, 400, 90, 90, 90, 90], false)]
        {
            let (mut map, table) = thin(&slabs, parity(4));
            (0..1000).for_each(|_| assert!(take(&mut map, table).is_some()));
            let on: DiskSet = map.tables[&table]
                .segments
                .iter()
                .fold(DiskSet::EMPTY, |set, id| set | map.segments[id].record.disks());
            assert_eq!(on.iter().any(|no| no.0 >= 4), apart, "{slabs:?}: segments on {on:?}");
        }
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
            while plain.new_segment_on(table, DiskSet::EMPTY, &mut Vec::new()).is_ok() {}
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
