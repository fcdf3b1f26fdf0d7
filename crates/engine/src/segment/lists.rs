//! Segments by what is asked of them, so that nobody looks at all of them: which one of a table takes the next stripe,
//! which metadata segment has pages beside each other, which ones lack something.
//!
//! Invariants
//! 1. Every segment is listed as it is: what changes its free places, its slabs or what they missed lists it again in
//!    the same step ([`Map::relist`]).
//! 2. The lists are of the disks that are there: who uses them looks first whether one has come or gone, and makes them
//!    anew then ([`Map::see_disks`]).
//! 3. A metadata segment is listed with as many free pages beside each other as it has, or with more: who finds fewer
//!    corrects that.

use super::{Map, Segment};
use crate::disk_set::DiskSet;
use crate::format::record::{OWNER_METADATA, PageRun, SegmentRecord};
use crate::mutant::{self, Mutant};
use crate::units::{SegmentNo, TableNo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// How well a segment takes stripes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) enum Fit {
    /// It has no free place, or too few disks.
    #[default]
    Not,
    /// Disks are missing, as many as the layout bears.
    Degraded,
    /// All of its disks are there.
    Healthy,
}

/// A segment in the order of those of its table: the last one is the best, of equals the one with the lowest number.
pub(super) type Rank = (TableNo, Fit, u32, Reverse<SegmentNo>);

/// All segments, as they are listed.
#[derive(Default)]
pub(super) struct Lists {
    /// The disks that are there.
    there: DiskSet,
    /// Segments for data that take stripes.
    ranks: BTreeSet<Rank>,
    /// What there is of each table's segments.
    tallies: BTreeMap<TableNo, Tally>,
    /// Segments for data that are not sound.
    unsound: BTreeSet<SegmentNo>,
    /// Metadata segments with free pages, by how many lie beside each other.
    pages: BTreeSet<(u32, SegmentNo)>,
    /// Free page pairs.
    pairs: u64,
}

/// What there is of the segments of a table.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Tally {
    /// Their slabs.
    pub slabs: u64,
    /// How many of those that hold stripes have how many slots that are not sound.
    pub held: BTreeMap<u8, u64>,
}

/// How a segment is listed; by default it is not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Listed {
    fit: Fit,
    /// It holds stripes.
    held: bool,
    /// Slots that are not sound.
    unsound: u8,
    /// Slots that have a slab.
    slabs: u8,
    /// Free places, or page pairs.
    free: u32,
    /// Free page pairs beside each other, at most; of metadata only.
    beside: u32,
}

impl Listed {
    /// How a segment is to be listed when the disks `there` are. `beside`: the most page pairs beside each other.
    fn of(segment: &Segment, there: DiskSet, beside: u32) -> Listed {
        let (record, free) = (&segment.record, segment.free.count() as u32);
        let slabs = record.slabs.iter().flatten().count() as u8;
        if record.owner == OWNER_METADATA {
            return Listed { free, slabs, beside: beside.min(free), ..Listed::default() };
        }
        let slots = record.slabs.len();
        let is_there = |slot: &usize| record.slabs[*slot].is_some_and(|at| there.contains(at.disk));
        let healthy = (0..slots).filter(is_there).count();
        let sound = (0..slots).filter(|slot| is_there(slot) && record.missed >> slot & 1 == 0).count();
        let takes_none = free == 0 || segment.emptying && !mutant::active(Mutant::EmptiedTakesStripes);
        let fit = match healthy {
            _ if takes_none => Fit::Not,
            all if all == slots => Fit::Healthy,
            some if some + record.layout.failures() >= slots => Fit::Degraded,
            _ => Fit::Not,
        };
        Listed { fit, held: !segment.free.is_full(), unsound: (slots - sound) as u8, slabs, free, beside: 0 }
    }

    fn rank(self, record: &SegmentRecord) -> Option<Rank> {
        (self.fit != Fit::Not).then_some((record.owner, self.fit, self.free, Reverse(record.id)))
    }
}

impl Lists {
    /// Lists a segment as it `is`, which was listed as it `was`.
    fn change(&mut self, record: &SegmentRecord, was: Listed, is: Listed) {
        let (before, after) = (was.rank(record), is.rank(record));
        if before != after {
            let _ = before.is_some_and(|rank| self.ranks.remove(&rank));
            self.ranks.extend(after);
        }
        self.count(record, was, is);
    }

    /// Counts a segment as it `is`, which was counted as it `was`.
    fn count(&mut self, record: &SegmentRecord, was: Listed, is: Listed) {
        if record.owner == OWNER_METADATA {
            self.pairs = self.pairs + u64::from(is.free) - u64::from(was.free);
            if was.beside != is.beside {
                self.pages.remove(&(was.beside, record.id));
                self.pages.extend((is.beside > 0).then_some((is.beside, record.id)));
            }
        }
        if (was.slabs, was.unsound, was.held) == (is.slabs, is.unsound, is.held) {
            return;
        }
        let tally = self.tallies.entry(record.owner).or_default();
        tally.slabs = tally.slabs + u64::from(is.slabs) - u64::from(was.slabs);
        if was.held {
            let left = tally.held.get_mut(&was.unsound).expect("it was counted");
            *left -= 1;
            tally.held.retain(|_, count| *count > 0);
        }
        if is.held {
            *tally.held.entry(is.unsound).or_default() += 1;
        }
        if *tally == Tally::default() {
            self.tallies.remove(&record.owner);
        }
        match is.unsound {
            0 => self.unsound.remove(&record.id),
            _ => self.unsound.insert(record.id),
        };
    }
}

impl Map {
    /// Lists a segment as it is now.
    pub(super) fn relist(&mut self, id: SegmentNo) {
        self.relist_beside(id, 0);
    }

    /// Lists a metadata segment as it is now that so many more of its page pairs are free.
    pub(super) fn relist_beside(&mut self, id: SegmentNo, freed: u32) {
        let Some(segment) = self.segments.get_mut(&id) else { return };
        let was = segment.listed;
        // What is freed may lie between two runs.
        let beside = if freed > 0 { was.beside * 2 + freed } else { was.beside };
        segment.listed = Listed::of(segment, self.lists.there, beside);
        self.lists.change(&segment.record, was, segment.listed);
    }

    /// Lists a segment that is new, as it is.
    pub(super) fn list(&mut self, id: SegmentNo) {
        let all = self.segments.get(&id).map_or(0, |segment| segment.free.count() as u32);
        self.relist_beside(id, all);
    }

    /// Lists a segment no more.
    pub(super) fn unlist(&mut self, segment: &Segment) {
        self.lists.change(&segment.record, segment.listed, Listed::default());
    }

    /// Lists all segments anew.
    pub(super) fn list_all(&mut self) {
        let there = self.disks_there();
        let (mut lists, mut ranks) = (Lists { there, ..Lists::default() }, Vec::new());
        for segment in self.segments.values_mut() {
            segment.listed = Listed::of(segment, there, u32::MAX);
            lists.count(&segment.record, Listed::default(), segment.listed);
            ranks.extend(segment.listed.rank(&segment.record));
        }
        // To make a set of all there is takes a fraction of the time of adding one after the other.
        lists.ranks = ranks.into_iter().collect();
        self.lists = lists;
    }

    /// Lists all segments anew if a disk has come or gone.
    pub fn see_disks(&mut self) {
        if self.disks_there() != self.lists.there && !mutant::active(Mutant::ListsForgetDisks) {
            self.list_all();
        }
    }

    fn disks_there(&self) -> DiskSet {
        self.disks.values().filter(|disk| disk.healthy).map(|disk| disk.record.no).collect()
    }

    /// The segments of a table that are as `fit`, the best first: that with the most free places, of equals that with
    /// the lowest number.
    pub(super) fn ranked(&self, table: TableNo, fit: Fit) -> impl Iterator<Item = &Segment> {
        let worst = (table, fit, 0, Reverse(SegmentNo(u32::MAX)));
        let best = (table, fit, u32::MAX, Reverse(SegmentNo(0)));
        self.lists.ranks.range(worst..=best).rev().map(|(.., Reverse(id))| &self.segments[id])
    }

    /// The segments of a table that have free places, and all of their disks: the fullest first.
    pub(super) fn fullest(&self, table: TableNo) -> impl Iterator<Item = &Segment> {
        let worst = (table, Fit::Healthy, 0, Reverse(SegmentNo(u32::MAX)));
        let best = (table, Fit::Healthy, u32::MAX, Reverse(SegmentNo(0)));
        self.lists.ranks.range(worst..=best).map(|(.., Reverse(id))| &self.segments[id])
    }

    /// The segments of a table that hold nothing, and have all of their disks: the newest first.
    pub(super) fn newest_empty(&self, table: TableNo) -> impl Iterator<Item = &Segment> {
        let all = self.tables[&table].record.layout.segment_stripes(self.slab);
        let ranks = (table, Fit::Healthy, all, Reverse(SegmentNo(u32::MAX)))..;
        let own = self.lists.ranks.range(ranks).take_while(move |(owner, ..)| *owner == table);
        own.map(|(.., Reverse(id))| &self.segments[id])
    }

    /// Whether a table has a segment beside this one that has free places, and all of its disks.
    pub fn has_healthy_beside(&mut self, table: TableNo, segment: SegmentNo) -> bool {
        self.see_disks();
        self.ranked(table, Fit::Healthy).any(|found| found.record.id != segment)
    }

    /// Slabs of the segments of a table.
    pub fn slabs_of(&self, table: TableNo) -> u64 {
        self.lists.tallies.get(&table).map_or(0, |tally| tally.slabs)
    }

    /// How many slots of segments of a table that hold stripes are not sound, and of how many segments as many. The
    /// lists are those of the disks that are there ([`Map::see_disks`]).
    pub fn unsound_of(&self, table: TableNo) -> impl Iterator<Item = (usize, u64)> + Clone + '_ {
        let tally = self.lists.tallies.get(&table);
        tally.into_iter().flat_map(|tally| tally.held.iter().map(|(unsound, count)| (usize::from(*unsound), *count)))
    }

    /// The segments that may lack something: those for data that are not sound, and all for metadata. The
    /// lists are those of the disks that are there ([`Map::see_disks`]).
    pub fn maybe_lacking(&self) -> impl Iterator<Item = &Segment> {
        let data = self.lists.unsound.iter().map(|id| &self.segments[id]);
        self.metadata_segments().chain(data)
    }

    /// Free page pairs of all metadata segments.
    pub(super) fn free_pairs(&self) -> u64 {
        self.lists.pairs
    }

    /// Free page pairs beside each other: the first ones of the first metadata segment that has so many.
    pub(super) fn pairs_beside(&mut self, count: u32) -> Option<PageRun> {
        loop {
            let id = self.first_with(count)?;
            let segment = self.segments.get_mut(&id).expect("what is listed exists");
            let runs = segment.free.runs(0..segment.free.len(), true);
            if let Some(run) = runs.iter().find(|run| run.len() >= count as usize) {
                return Some(PageRun { segment: id, first: run.start as u32, count });
            }
            let (was, beside) = (segment.listed, runs.iter().map(|run| run.len()).max().unwrap_or(0) as u32);
            segment.listed.beside = beside;
            self.lists.change(&segment.record, was, segment.listed);
        }
    }

    /// The first metadata segment that is listed with so many free page pairs beside each other.
    pub(super) fn first_with(&self, count: u32) -> Option<SegmentNo> {
        let (mut first, mut beside) = (None, Some(count));
        while let Some(least) = beside {
            let found = self.lists.pages.range((least, SegmentNo(0))..).next().copied();
            first = first.into_iter().chain(found.map(|(_, id)| id)).min();
            beside = found.and_then(|(beside, _)| beside.checked_add(1));
        }
        first
    }

    /// What is not listed as it is.
    pub fn check_lists(&mut self, problems: &mut Vec<String>) {
        self.see_disks();
        let there = self.disks_there();
        let mut counted = 0;
        for segment in self.segments.values() {
            let longest = segment.free.runs(0..segment.free.len(), true).iter().map(|run| run.len()).max();
            let is = Listed::of(segment, there, segment.listed.beside);
            let (no, was) = (segment.record.id, segment.listed);
            let metadata = segment.record.owner == OWNER_METADATA;
            if is != was || metadata && (was.beside as usize) < longest.unwrap_or(0) {
                problems.push(alloc::format!("segment {no} is {is:?}, it is listed as {was:?}"));
            }
            counted += if metadata { u64::from(is.free) } else { 0 };
            let ranked = was.rank(&segment.record).is_none_or(|rank| self.lists.ranks.contains(&rank));
            let paged = was.beside == 0 || self.lists.pages.contains(&(was.beside, no));
            if !ranked || !paged || (was.unsound > 0) != self.lists.unsound.contains(&no) {
                problems.push(alloc::format!("segment {no} is not in the lists that it belongs to"));
            }
        }
        if counted != self.lists.pairs {
            problems.push(alloc::format!("{counted} pairs of pages are free, {} are counted", self.lists.pairs));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::allocate::tests::map_of;
    use super::*;
    use crate::geometry::{Layout, Resiliency};
    use crate::stripe::table::Place;
    use crate::units::{ByteCount, DiskNo, Nanos};
    use proptest::prelude::*;

    /// The best segment for a stripe, found by a look at all there are.
    fn scanned(map: &Map, table: TableNo) -> [Option<SegmentNo>; 2] {
        let best = |healthy: bool| {
            let own = map.tables[&table].segments.iter().map(|id| &map.segments[id]);
            let fit = own.filter(|found| !found.free.is_empty() && !found.frozen && !found.emptying);
            let fit = fit.filter(|found| map.takes_stripes(found));
            let fit = fit.filter(|found| map.is_healthy(found) == healthy);
            fit.max_by_key(|found| (found.free.count(), Reverse(found.record.id))).map(|found| found.record.id)
        };
        [best(true), best(false)]
    }

    fn listed(map: &mut Map, table: TableNo) -> [Option<SegmentNo>; 2] {
        map.see_disks();
        [Fit::Healthy, Fit::Degraded].map(|fit| {
            let found = map.ranked(table, fit).find(|found| !found.frozen);
            found.map(|found| found.record.id)
        })
    }

    /// The first pages beside each other, found by a look at all metadata segments.
    fn pages_scanned(map: &Map, count: u32) -> Option<PageRun> {
        map.metadata_segments().find_map(|found| {
            let runs = found.free.runs(0..found.free.len(), true);
            let run = runs.into_iter().find(|run| run.len() >= count as usize)?;
            Some(PageRun { segment: found.record.id, first: run.start as u32, count })
        })
    }

    /// Does something to a segment, or a disk.
    fn step(map: &mut Map, table: TableNo, what: u8, which: usize) {
        let ids: Vec<SegmentNo> = map.tables[&table].segments.iter().copied().collect();
        let id = ids.get(which % ids.len().max(1)).copied();
        let disk = DiskNo((which % 6) as u16);
        match (what, id) {
            (0, _) => drop(map.new_segment(table, &mut Vec::new())),
            (1 | 2, _) if map.tables[&table].free > 0 => {
                if let Ok((place, count)) = map.take_stripes(table, 1 + which as u32 % 9, &mut Vec::new()) {
                    map.end_write(place, count);
                }
            }
            (3 | 4, Some(id)) => {
                let taken = map.segments[&id].free.first_absent(0..map.segments[&id].free.len());
                if taken < map.segments[&id].free.len() {
                    map.free(Place::at(id, taken as u32));
                }
            }
            (5, _) => map.disks.get_mut(&disk).unwrap().healthy ^= true,
            (6, Some(id)) => drop(map.mark_missed(id, 1 << (which % 4))),
            (7, Some(id)) => drop(map.clear_missed(id, which % 4)),
            (8, Some(id)) => map.segments.get_mut(&id).unwrap().frozen ^= true,
            (9, Some(id)) => {
                let to = map.place_slot(id, which % 4, None);
                drop(to.and_then(|to| map.rehome(id, which % 4, to)));
            }
            (13, Some(id)) if map.segments[&id].emptying => drop(map.end_emptying(table, id, 0)),
            (13, Some(id)) => drop(map.begin_emptying(id)),
            (10, _) => drop(map.take_pair(&mut Vec::new())),
            (11, Some(id)) if map.segments[&id].free.is_full() => drop(map.drop_segment(id)),
            (12, _) => {
                let settled = map.settle_drained(u64::MAX, Nanos(0), |_, _| false);
                assert!(!settled.used, "nobody reads");
            }
            _ => {}
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn what_is_chosen_is_what_a_look_at_all_of_them_finds(
            steps in prop::collection::vec((0u8..14, 0usize..64), 1..80),
            count in 1u32..200,
        ) {
            let layout = Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::mib(1)).unwrap();
            let (mut map, table) = map_of(&[40; 6], layout);
            map.tables.get_mut(&table).unwrap().fixed = false;
            for (what, which) in steps {
                step(&mut map, table, what, which);
                prop_assert_eq!(listed(&mut map, table), scanned(&map, table));
                prop_assert_eq!(pages_scanned(&map, count), map.pairs_beside(count));
                let first = map.metadata_segments().find(|found| !found.free.is_empty()).map(|found| found.record.id);
                prop_assert_eq!(first, map.first_with(1));
                let own = map.tables[&table].segments.iter().map(|id| &map.segments[id]);
                let slabs: usize = own.clone().map(|found| found.record.slabs.iter().flatten().count()).sum();
                prop_assert_eq!(slabs as u64, map.slabs_of(table));
                let held = own.filter(|found| !found.free.is_full()).map(|found| map.unsound(&found.record));
                let mut tally = BTreeMap::new();
                held.for_each(|unsound| *tally.entry(unsound).or_default() += 1);
                prop_assert_eq!(tally, map.unsound_of(table).collect::<BTreeMap<usize, u64>>());
                let mut problems = Vec::new();
                map.check_lists(&mut problems);
                prop_assert!(problems.is_empty(), "{problems:?}");
            }
        }
    }
}
