//! Hollow segments: those of which little is in use. What they hold can be moved to free places of the other segments
//! of their table, and then they go back to the pool, for whoever needs slabs (`store/compact.rs`). And the room that
//! is kept for stacks of tables, so that what older ones hold can always rise (`vdisk/rise.rs`).
//!
//! Invariants
//! 1. A segment that is being emptied takes no stripe, and its free places are none of its table's.
//! 2. One is emptied only where the other segments of its table have free places for all that it holds, and beside
//!    those the places that clients need: they are claimed before the first stripe is moved. So it is a gain each time,
//!    and it ends.
//! 3. No segment is made for what is moved.
//! 4. While a virtual disk has older tables, a few segments of the layout of its newest one are left to what rises.
//!    When all of them are filled, so much has left the older tables that these, put together, can give a segment back.

use super::lists::Fit;
use super::{Map, Segment};
use crate::disk_set::DiskSet;
use crate::format::record::{Record, TableRecord};
use crate::geometry::Layout;
use crate::mutant::{self, Mutant};
use crate::stripe::table::{Place, Table};
use crate::units::{SegmentNo, TableNo};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Free places that are left to the clients of a table, beside those for what is moved.
const PLACES_LEFT: u64 = 64;
/// No more than this part of the places of a segment is left to them, as a divisor.
const PLACES_LEFT_SHARE: u64 = 8;
/// Segments of its layout that a table can get, at least, while it lacks none.
const SEGMENTS_MIN: u64 = 2;
/// Segments that are looked at for one that can be emptied: the most hollow ones of a table.
pub const LOOKS: usize = 16;

/// What a table could give back.
pub struct HollowTable {
    /// Free places that nobody has claimed.
    pub spare: u64,
    /// Segments that could be emptied, the most hollow ones first.
    pub segments: VecDeque<Hollow>,
}

/// A segment that could be emptied.
pub struct Hollow {
    /// The segment.
    pub id: SegmentNo,
    /// Places of it: so many fewer are there to spare when it was emptied.
    pub all: u64,
    /// Free ones of them.
    pub free: u64,
    /// Places that its table must have to spare, with those that are left to clients.
    pub needs: u64,
}

/// Whether segments of a table are emptied at all.
fn may_give_segments(table: &Table) -> bool {
    let is_plain = table.record.packs.is_none() && table.record.tier.is_none();
    is_plain && !table.fixed && table.segments.len() > 1
}

impl Map {
    /// The segment that is most worth being emptied, with its table: of those that lie on some of `disks` (none: any),
    /// and are none of `tried`.
    pub fn most_hollow(&mut self, disks: DiskSet, tried: &BTreeSet<SegmentNo>) -> Option<(TableNo, SegmentNo)> {
        self.see_disks();
        self.most_hollow_seen(disks, tried)
    }

    /// Whether a segment on some of `disks` (none: any) can be emptied, as the disks were seen last.
    pub fn has_hollow(&self, disks: DiskSet) -> bool {
        self.most_hollow_seen(disks, &BTreeSet::new()).is_some()
    }

    fn most_hollow_seen(&self, disks: DiskSet, tried: &BTreeSet<SegmentNo>) -> Option<(TableNo, SegmentNo)> {
        let may = |table: &&TableNo| may_give_segments(&self.tables[table]);
        let found = self.tables.keys().filter(may).filter_map(|table| self.hollow_of(*table, disks, tried));
        let best = found.max_by_key(|found| (found.free.count() * 1024 / found.free.len(), found.record.id))?;
        Some((best.record.owner, best.record.id))
    }

    /// What tables could give back, as the disks were seen last.
    pub fn hollow_tables(&self) -> Vec<HollowTable> {
        let is_still = |found: &&Segment| found.moving.is_none() && !found.frozen && !found.emptying;
        let tables = self.tables.iter().filter(|(_, state)| may_give_segments(state));
        let look = |(table, state): (&TableNo, &Table)| {
            let hollow = |found: &Segment| {
                let (all, free) = (found.free.len() as u64, found.free.count() as u64);
                Hollow { id: found.record.id, all, free, needs: all + self.left_to_clients(*table, all) }
            };
            let segments = self.ranked(*table, Fit::Healthy).filter(is_still).map(hollow).collect();
            HollowTable { spare: state.free.saturating_sub(state.claims), segments }
        };
        tables.map(look).collect()
    }

    /// The disks that a slot of a segment could come to if slabs of hollow segments were free there.
    pub fn disks_to_empty_for(&self, segment: SegmentNo) -> DiskSet {
        self.homes_if_free(segment).collect()
    }

    fn hollow_of(&self, table: TableNo, disks: DiskSet, tried: &BTreeSet<SegmentNo>) -> Option<&Segment> {
        let fits = |found: &&Segment| {
            let suits = disks.is_empty() || !(found.disks() & disks).is_empty();
            suits && !tried.contains(&found.record.id) && self.can_be_emptied(found)
        };
        self.ranked(table, Fit::Healthy).take(LOOKS).find(fits)
    }

    /// Whether a segment can be emptied now (invariant 2).
    fn can_be_emptied(&self, found: &Segment) -> bool {
        let state = &self.tables[&found.record.owner];
        let (all, free) = (found.free.len() as u64, found.free.count() as u64);
        let left = self.left_to_clients(found.record.owner, all);
        let is_still = found.moving.is_none() && !found.frozen && found.in_flight.is_empty();
        is_still && !found.emptying && state.free >= state.claims + free + (all - free) + left
    }

    /// Free places that clients of a table need, beside those for what is moved out of a segment of `all` places.
    fn left_to_clients(&self, table: TableNo, all: u64) -> u64 {
        PLACES_LEFT.min(all / PLACES_LEFT_SHARE).max(1) + self.kept_for_tier(table)
    }

    /// Begins to empty a segment. Returns how many places were claimed for what it holds; none: it cannot be emptied
    /// any more.
    pub fn begin_emptying(&mut self, id: SegmentNo) -> Option<u64> {
        let found = self.segments.get(&id).filter(|found| self.can_be_emptied(found))?;
        let (owner, free) = (found.record.owner, found.free.count() as u64);
        let held = found.free.len() as u64 - free;
        let table = self.tables.get_mut(&owner).expect("a segment for data has a table");
        table.free -= free;
        table.claims += held;
        table.fronts.forget(id);
        self.segments.get_mut(&id).expect("it was looked up").emptying = true;
        self.relist(id);
        Some(held)
    }

    /// Ends the emptying of a segment, be it that all of it was moved or not; `claims` are left of those that were made
    /// for it. Returns records.
    pub fn end_emptying(&mut self, table: TableNo, id: SegmentNo, claims: u64) -> Vec<Record<'static>> {
        if let Some(table) = self.tables.get_mut(&table) {
            table.claims = table.claims.saturating_sub(claims);
        }
        let Some(found) = self.segments.get_mut(&id) else { return Vec::new() };
        found.emptying = false;
        let (owner, free) = (found.record.owner, found.free.count() as u64);
        if let Some(table) = self.tables.get_mut(&owner) {
            table.free += free;
        }
        self.relist(id);
        let found = &self.segments[&id];
        let is_idle = found.free.is_full() && found.in_flight.is_empty() && found.moving.is_none();
        match is_idle && !self.is_pinned(id) {
            true => alloc::vec![self.drop_segment(id)],
            false => Vec::new(),
        }
    }

    /// Takes up to `count` free places of `table`, beside each other, for what is moved; they were claimed before. The
    /// fullest segment that has some is filled first. None: those that have some lack disks.
    pub fn take_for_move(&mut self, table: TableNo, count: u32) -> Option<(Place, u32)> {
        self.see_disks();
        let found = self.fullest(table).find(|found| !found.frozen)?;
        let (id, first) = (found.record.id, found.free.first(0..found.free.len())?);
        Some(self.take_at(table, id, first, count))
    }

    /// Whether slabs are kept for what rises from older tables (invariant 4): nobody else makes a segment then.
    pub fn keeps_for_rising(&self) -> bool {
        let possible = |layout, disks| self.segments_possible_now(layout, disks);
        self.is_short_for_rising(possible) && !mutant::active(Mutant::RisingKeepsNothing)
    }

    /// Whether no more than what is kept is `possible` for some stack: segments of a layout, on disks.
    fn is_short_for_rising(&self, possible: impl Fn(Layout, DiskSet) -> u64) -> bool {
        let mut stacks = self.vdisks.values().filter(|vdisk| vdisk.tables.len() > 1 && !vdisk.fixed);
        stacks.any(|vdisk| {
            let newest = self.tables[&vdisk.tables[0]].record;
            possible(newest.layout, newest.disks) <= self.segments_to_rise(&vdisk.tables)
        })
    }

    /// Whether `table` gets no segment, or the last ones only; `soon`: not even when what drains is free.
    pub fn lacks_segments(&self, table: TableNo, soon: bool) -> bool {
        let Some(state) = self.tables.get(&table).filter(|table| !table.fixed) else { return false };
        let TableRecord { layout, disks, .. } = state.record;
        let possible = |layout, disks| match soon {
            true => self.segments_possible(layout, disks),
            false => self.segments_possible_now(layout, disks),
        };
        possible(layout, disks) < SEGMENTS_MIN || self.is_short_for_rising(possible)
    }

    /// How many segments of the newest of these tables hold what a segment of any older one does, and one more.
    pub fn segments_to_rise(&self, tables: &[TableNo]) -> u64 {
        let data = |table: &TableNo| {
            let layout = self.tables[table].record.layout;
            layout.data_len().0 * layout.segment_stripes(self.slab) as u64
        };
        let (newest, older) = (data(&tables[0]), tables[1..].iter().map(data).max().unwrap_or(0));
        older.div_ceil(newest) + 1
    }
}
