//! In which order the stripes of a table lie on the disks, and where they can be put in order.
//!
//! A *run* is what a disk reads without a seek: stripes that follow each other in the table and lie in one segment, one
//! after the other. Those that are mapped nowhere lie between none. Where a table is filled at several fronts, as many
//! runs are under way at once.
//!
//! Invariants
//! 1. Places for what is put in order follow one another from the first on; where there are too few of them in the
//!    segment that is being filled, a segment that is empty is begun.
//! 2. A segment is made for that only while there is room for [`SEGMENTS_LEFT`] more, and for as much as the segments
//!    of the table have free: it never holds more of what is free than it leaves to the rest of the pool.
//! 3. Of what is free in the segments of a table, as much is left to its clients as is taken.

use super::fronts::LOOKS;
use super::lists::Fit;
use super::{Map, Segment};
use crate::disk_set::DiskSet;
use crate::format::record::{Record, SEGMENT_LEN, SLAB_LEN};
use crate::mutant::{self, Mutant};
use crate::stripe::fronts::Turn;
use crate::stripe::table::Place;
use crate::units::{SegmentNo, TableNo};
use alloc::vec::Vec;
use core::ops::Range;

/// Segments of the same layout that are left to clients.
const SEGMENTS_LEFT: u64 = 2;

/// How stripes lie on the disks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Runs {
    /// How many are mapped.
    pub stripes: u64,
    /// In how many runs they lie.
    pub runs: u64,
    /// How many runs lie beside each other, on different disks ([`super::fronts`]).
    pub fronts: u64,
}

impl Map {
    /// How `stripes` of `table` lie on the disks; the pages that tell are in memory.
    pub fn runs(&self, table: TableNo, stripes: Range<u64>) -> Runs {
        let mut found = Runs { fronts: self.turn(table).fronts as u64, ..Runs::default() };
        // Where the next stripe of each run that is under way would lie.
        let mut heads: Vec<(SegmentNo, u32)> = Vec::new();
        for (_, place) in self.in_base(table, stripes) {
            found.stripes += 1;
            match heads.iter_mut().find(|head| **head == (place.segment, place.index)) {
                Some(head) => head.1 += 1,
                None => {
                    found.runs += 1;
                    heads.drain(..(heads.len() + 1).saturating_sub(found.fronts as usize));
                    heads.push((place.segment, place.index + 1));
                }
            }
        }
        found
    }

    /// The stripes of `table` that lie in its own segments, not in those of a fast tier, and where.
    pub fn in_base(&self, table: TableNo, stripes: Range<u64>) -> impl Iterator<Item = (u64, Place)> {
        let has_tier = self.tier_of(table).is_some();
        self.tables[&table].mapped_in(stripes).filter(move |(_, place)| !has_tier || !self.is_fast(*place))
    }

    /// Has the next stripes of `table` lie one after the other. Says for how many of `count` that holds; 0: there is no
    /// room for that now. Makes a segment where it is needed; its records are added to `records`.
    pub fn begin_run(&mut self, table: TableNo, count: u64, records: &mut Vec<Record<'static>>) -> u64 {
        let count = count.min(self.room_for_order(table));
        if count == 0 {
            return 0;
        }
        self.see_disks();
        let turn = self.turn(table);
        (0..turn.fronts)
            .try_fold(count, |count, front| self.begin_front(table, turn, front, count, records))
            .unwrap_or(0)
    }

    /// Has one front take its share of the next `count` stripes one after the other. Says for how many of them that
    /// holds.
    fn begin_front(
        &mut self,
        table: TableNo,
        turn: Turn,
        front: usize,
        count: u64,
        records: &mut Vec<Record<'static>>,
    ) -> Option<u64> {
        let share = turn.shares(count)[front];
        let others = self.disks_of_others(table, turn, front);
        let state = &self.tables[&table];
        let is_of_another =
            |id| (0..turn.fronts).any(|other| other != front && state.fronts.at(turn, other) == Some(id));
        let usable = |segment: &&Segment| {
            !segment.frozen
                && !segment.emptying
                && segment.moving.is_none()
                && self.is_healthy(segment)
                && !is_of_another(segment.record.id)
        };
        if let Some(segment) = state.fronts.at(turn, front).map(|id| &self.segments[&id]).filter(usable) {
            let (tail, to_the_end) = tail_of(segment);
            if tail >= share || to_the_end && tail > 0 {
                return Some(turn.most(count, front, tail));
            }
        }
        let empty = self.ranked(table, Fit::Healthy).take_while(|segment| segment.free.is_full()).filter(usable);
        let empty = empty.take(LOOKS).min_by_key(|segment| (segment.record.disks() & others).len());
        let empty = empty.map(|segment| segment.record.id);
        let id = empty.or_else(|| self.segment_for_order(table, others, records))?;
        let segment = self.segments.get_mut(&id).expect("it was just found");
        segment.cursor = 0;
        let fit = segment.free.len() as u64;
        self.tables.get_mut(&table).expect("looked up before").fronts.set(turn, front, id);
        Some(turn.most(count, front, fit))
    }

    /// Makes a segment for what is put in order, where that leaves enough room to others; best on none of the disks of
    /// `others`.
    fn segment_for_order(
        &mut self,
        table: TableNo,
        others: DiskSet,
        records: &mut Vec<Record<'static>>,
    ) -> Option<SegmentNo> {
        let apart = if others.is_empty() { None } else { self.make_apart(table, others, records) };
        if apart.is_some() {
            return apart;
        }
        let fits = self.may_spare_segment(table) || mutant::active(Mutant::OrderTakesRoom);
        if self.tables[&table].fixed || !fits || !self.can_place_whole(table) {
            return None;
        }
        self.new_segment(table, records).ok()
    }

    /// Whether a segment more can be made for `table` just so that its stripes lie better.
    pub(super) fn may_spare_segment(&self, table: TableNo) -> bool {
        let state = &self.tables[&table];
        let layout = state.record.layout;
        let left = self.segments_possible_now(layout, state.record.disks).saturating_sub(1);
        let leaves_enough = left >= SEGMENTS_LEFT && left * layout.segment_stripes(self.slab) as u64 >= state.free;
        let len = SEGMENT_LEN + layout.slots() as u64 * SLAB_LEN;
        !state.fixed && !self.keeps_for_rising() && leaves_enough && self.has_config_room_for_packs(len)
    }

    /// How many stripes of `table` may be put in order at once.
    fn room_for_order(&self, table: TableNo) -> u64 {
        if mutant::active(Mutant::OrderTakesRoom) {
            return u64::MAX;
        }
        let state = &self.tables[&table];
        let layout = state.record.layout;
        let possible = self.segments_possible_now(layout, state.record.disks).saturating_sub(SEGMENTS_LEFT);
        let fresh = if state.fixed { 0 } else { possible * layout.segment_stripes(self.slab) as u64 };
        (state.free + fresh).saturating_sub(state.claims) / 2
    }
}

/// How many free places follow each other from where the next stripe goes, and whether they reach the segment's end.
fn tail_of(segment: &Segment) -> (u64, bool) {
    let (from, len) = (segment.cursor as usize, segment.free.len());
    let end = segment.free.first_absent(from..len);
    ((end - from) as u64, end == len)
}
