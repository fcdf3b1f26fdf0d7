//! In which order the stripes of a table lie on the disks, and where they can be put in order.
//!
//! A *run* is what a disk reads without a seek: stripes that follow each other in the table and lie in one segment, one
//! after the other. Those that are mapped nowhere lie between none.
//!
//! Invariants
//! 1. Places for what is put in order follow one another from the first on; where there are too few of them in the
//!    segment that is being filled, a segment that is empty is begun.
//! 2. A segment is made for that only while there is room for [`SEGMENTS_LEFT`] more, and for as much as the segments
//!    of the table have free: it never holds more of what is free than it leaves to the rest of the pool.
//! 3. Of what is free in the segments of a table, as much is left to its clients as is taken.

use super::lists::Fit;
use super::{Map, Segment};
use crate::format::record::{Record, SEGMENT_LEN, SLAB_LEN};
use crate::mutant::{self, Mutant};
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
}

impl Map {
    /// How `stripes` of `table` lie on the disks; the pages that tell are in memory.
    pub fn runs(&self, table: TableNo, stripes: Range<u64>) -> Runs {
        let (mut found, mut last) = (Runs::default(), None);
        for (_, place) in self.in_base(table, stripes) {
            found.stripes += 1;
            found.runs += (last != Some((place.segment, place.index))) as u64;
            last = Some((place.segment, place.index + 1));
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
        let state = &self.tables[&table];
        let usable = |segment: &&Segment| !segment.frozen && segment.moving.is_none() && self.is_healthy(segment);
        if let Some(segment) = state.current.map(|id| &self.segments[&id]).filter(usable) {
            let (tail, to_the_end) = tail_of(segment);
            if tail >= count || to_the_end && tail > 0 {
                return tail.min(count);
            }
        }
        let empty = self.ranked(table, Fit::Healthy).take_while(|segment| segment.free.is_full()).find(usable);
        let empty = empty.map(|segment| segment.record.id);
        let Some(id) = empty.or_else(|| self.segment_for_order(table, records)) else { return 0 };
        let segment = self.segments.get_mut(&id).expect("it was just found");
        segment.cursor = 0;
        let fit = segment.free.len() as u64;
        self.tables.get_mut(&table).expect("looked up before").current = Some(id);
        count.min(fit)
    }

    /// Makes a segment for what is put in order, where that leaves enough room to others.
    fn segment_for_order(&mut self, table: TableNo, records: &mut Vec<Record<'static>>) -> Option<SegmentNo> {
        let state = &self.tables[&table];
        let layout = state.record.layout;
        let left = self.segments_possible_now(layout, state.record.disks).saturating_sub(1);
        let leaves_enough = left >= SEGMENTS_LEFT && left * layout.segment_stripes(self.slab) as u64 >= state.free;
        let len = SEGMENT_LEN + layout.slots() as u64 * SLAB_LEN;
        let fits = leaves_enough && self.has_config_room_for_packs(len) || mutant::active(Mutant::OrderTakesRoom);
        if state.fixed || !fits || !self.can_place_whole(table) {
            return None;
        }
        self.new_segment(table, records).ok()
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
