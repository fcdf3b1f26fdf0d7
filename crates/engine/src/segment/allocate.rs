//! Where new things go: stripes into segments, segments onto slabs, metadata pages into metadata segments.
//!
//! Choices, in the order they are tried for a new stripe:
//! 1. the segment of the front whose turn it is, from where the last stripe went (a stream stays sequential on every
//!    disk; [`super::fronts`] says how many there are);
//! 2. a segment of the table that is entirely free;
//! 3. a new segment, while free stripes are less than an eighth of what the table holds;
//! 4. the table's segment with the most free stripes.
//!
//! Among equals, one that lies apart from the other fronts is taken.
//!
//! A segment with a missing disk is taken only when no healthy one can be had.

use super::segments_on;
use super::{DiskRoom, Map, PAGE_PAIR, Segment, chunk_record, segment_len};
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::fail;
use crate::format::page::CHUNK_PAGES;
use crate::format::page::PAGE_SUMS;
use crate::format::record::{
    CHUNK_LEN, OWNER_METADATA, PageRun, Record, SEGMENT_LEN, SLAB_LEN, SegmentRecord, SlabAt, TableRecord, Usage,
};
use crate::geometry::Layout;
use crate::stripe::table::{Chunk, Place, Table};
use crate::units::{DiskNo, SegmentNo, TableNo};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Free slabs on each disk that data segments leave alone, so that metadata can always grow.
pub const SLABS_KEPT: usize = 1;

/// What a free stripe is claimed for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// New data. It takes neither the last free stripe, which overwrites need, nor what lies in the fast tier may need
    /// ([`super::tier`]), nor what is kept for what rises ([`super::hollow`]).
    New,
    /// A stripe that gives its old place back, or was promised one before: it may take the last.
    Overwrite,
    /// What rises from older tables: it takes what is kept for that, and not the last.
    Rise,
}

impl Map {
    /// Promises one free stripe of `table`. Makes a new segment where needed; its records are added to `records`.
    /// `false`: there is no room now.
    pub fn claim(&mut self, table: TableNo, what: Claim, records: &mut Vec<Record<'static>>) -> bool {
        // Places of segments that were made of what is kept are kept, too.
        if what == Claim::New && self.is_stacked(table) && self.keeps_for_rising() {
            return false;
        }
        loop {
            let state = &self.tables[&table];
            let kept = if what == Claim::Overwrite { 0 } else { 1 + self.kept_for_tier(table) };
            if state.free > state.claims + kept {
                self.tables.get_mut(&table).expect("looked up before").claims += 1;
                return true;
            }
            if state.fixed && state.free > state.claims {
                self.tables.get_mut(&table).expect("looked up before").claims += 1;
                return true;
            }
            let is_kept = what != Claim::Rise && self.keeps_for_rising();
            if is_kept || self.new_segment(table, records).is_err() {
                return false;
            }
        }
    }

    /// Promises stripes again whose places were taken and are about to be given back.
    pub fn reclaim(&mut self, table: TableNo, count: u32) {
        if let Some(table) = self.tables.get_mut(&table) {
            table.claims += count as u64;
        }
    }

    /// Gives a promise back.
    pub fn unclaim(&mut self, table: TableNo) {
        if let Some(table) = self.tables.get_mut(&table) {
            table.claims = table.claims.saturating_sub(1);
        }
    }

    /// Takes up to `count` free stripes of `table` with consecutive indexes; they were claimed before.
    pub fn take_stripes(
        &mut self,
        table: TableNo,
        count: u32,
        records: &mut Vec<Record<'static>>,
    ) -> Result<(Place, u32)> {
        let turn = self.turn(table);
        let id = self.choose_segment(table, turn, records)?;
        let count = turn.left.min(count.into()) as u32;
        let segment = &self.segments[&id];
        let (len, from) = (segment.free.len(), segment.cursor as usize);
        let found = segment.free.first(from..len).or_else(|| segment.free.first(0..from));
        let (place, taken) = self.take_at(table, id, found.expect("the chosen segment has a free stripe"), count);
        self.segments.get_mut(&id).expect("the chosen segment exists").cursor = (place.index + taken) % len as u32;
        let state = self.tables.get_mut(&table).expect("stripes are taken for a table that exists");
        state.fronts.set(turn, turn.front, id);
        state.fronts.took(taken.into());
        Ok((place, taken))
    }

    /// Takes up to `count` free stripes of a segment of `table` from index `first` on, which is one of them.
    pub(super) fn take_at(&mut self, table: TableNo, id: SegmentNo, first: usize, count: u32) -> (Place, u32) {
        let segment = self.segments.get_mut(&id).expect("the chosen segment exists");
        let mut end = first + 1;
        while end < segment.free.len() && end - first < count as usize && segment.free.contains(end) {
            end += 1;
        }
        segment.free.remove(first..end);
        segment.in_flight.insert(first..end);
        if let Some(moving) = &mut segment.moving {
            moving.insert(first..end);
        }
        let taken = (end - first) as u64;
        let state = self.tables.get_mut(&table).expect("stripes are taken for a table that exists");
        state.free -= taken;
        state.claims = state.claims.saturating_sub(taken);
        self.relist(id);
        (Place::at(id, first as u32), taken as u32)
    }

    /// The `count` stripes from `place` on, as [`Map::take_stripes`] gave them, are committed or given up.
    pub fn end_write(&mut self, place: Place, count: u32) {
        if let Some(segment) = self.segments.get_mut(&place.segment) {
            segment.in_flight.remove(place.index as usize..(place.index + count) as usize);
        }
    }

    /// Whether free stripes of `table` are only waiting for a move to end.
    pub fn is_frozen(&self, table: TableNo) -> bool {
        self.tables.get(&table).is_some_and(|table| table.segments.iter().any(|id| self.segments[id].frozen))
    }

    /// A disk for a new home of `slot` of `segment`: a healthy one with a free slab that the segment does not use, nor
    /// is about to; better one in a domain that it does not use; better a hot spare; better the emptiest. `only`: that
    /// one or none. Metadata moves only where metadata is up to date: from the others it is not read, and a copy there
    /// may be the last one; two copies of it come to lie on one disk where [`Map::may_double`].
    pub fn home_for(&self, segment: SegmentNo, slot: usize, only: Option<DiskNo>) -> Option<DiskNo> {
        self.home_among(segment, slot, |disk| only.is_none_or(|only| only == disk.record.no))
    }

    /// The best home, as [`Map::home_for`] chooses it, among the disks that are `wanted`.
    pub(super) fn home_among(
        &self,
        segment: SegmentNo,
        slot: usize,
        wanted: impl Fn(&DiskRoom) -> bool,
    ) -> Option<DiskNo> {
        let record = &self.segments.get(&segment)?.record;
        let table = self.tables.get(&record.owner).map_or(DiskSet::EMPTY, |table| table.record.disks);
        let spares = self.disks.values().filter(|disk| disk.healthy && disk.record.usage == Usage::HotSpare);
        let unused = |no: DiskNo| self.is_unused(record, no);
        let fits = |disk: &&DiskRoom| {
            let no = disk.record.no;
            let double = || self.may_double(segment, slot) && record.slabs[slot].is_none_or(|at| at.disk != no);
            let readable = record.owner != OWNER_METADATA || disk.current;
            readable && (unused(no) || double()) && !disk.free.is_empty() && wanted(disk)
        };
        let good = |disk: &&DiskRoom| {
            let no = disk.record.no;
            let apart = !self.shares_domain(segment, slot, no);
            (unused(no), apart, disk.record.usage == Usage::HotSpare, disk.free.count(), core::cmp::Reverse(no))
        };
        self.disks_for(table).chain(spares).filter(fits).max_by_key(good).map(|disk| disk.record.no)
    }

    /// Whether a segment has no slot on disk `no`, and none on its way there.
    fn is_unused(&self, record: &SegmentRecord, no: DiskNo) -> bool {
        let there = record.slabs.iter().flatten().copied();
        there.chain(self.bound_for(record.id)).all(|at| at.disk != no)
    }

    /// The disks that a slot of a segment could come to if they had a free slab.
    pub(super) fn homes_if_free(&self, segment: SegmentNo) -> impl Iterator<Item = DiskNo> {
        let found = self.segments.get(&segment).map(|found| &found.record);
        found.into_iter().flat_map(move |record| {
            let table = self.tables.get(&record.owner).map_or(DiskSet::EMPTY, |table| table.record.disks);
            let fits = move |disk: &&DiskRoom| {
                self.is_unused(record, disk.record.no) && (record.owner != OWNER_METADATA || disk.current)
            };
            self.disks_for(table).filter(fits).map(|disk| disk.record.no)
        })
    }

    /// Whether disk `no` is in the domain of another slot of the segment, wherever that is or is going.
    pub fn shares_domain(&self, segment: SegmentNo, slot: usize, no: DiskNo) -> bool {
        let (Some(name), Some(found)) = (self.domain_of(no), self.segments.get(&segment)) else { return false };
        let others = found.record.slabs.iter().enumerate().filter(|(other, _)| *other != slot);
        let mut others = others.filter_map(|(_, at)| *at).chain(self.bound_for(segment));
        others.any(|at| self.domain_of(at.disk) == Some(name))
    }

    /// The domain that a disk is in, if it is in one.
    pub(super) fn domain_of(&self, no: DiskNo) -> Option<&str> {
        self.disks.get(&no).map(|disk| disk.record.domain.as_str()).filter(|name| !name.is_empty())
    }

    /// Slabs that slots of a segment are on their way to.
    fn bound_for(&self, segment: SegmentNo) -> impl Iterator<Item = SlabAt> {
        self.in_transit.iter().filter(move |(_, of)| **of == Some(segment)).map(|(at, _)| *at)
    }

    /// Takes a free slab on the disk that [`Map::home_for`] names.
    pub fn place_slot(&mut self, segment: SegmentNo, slot: usize, only: Option<DiskNo>) -> Option<SlabAt> {
        let no = self.home_for(segment, slot, only)?;
        let free = &mut self.disks.get_mut(&no)?.free;
        let slab = free.first(0..free.len())?;
        free.remove(slab..slab + 1);
        let at = SlabAt { disk: no, slab: slab as u32 };
        self.in_transit.insert(at, Some(segment));
        Some(at)
    }

    /// Gives one slot of a segment another home. Returns the record of it; the old slab stays taken until it has
    /// drained.
    pub fn rehome(&mut self, segment: SegmentNo, slot: usize, to: SlabAt) -> Option<Record<'static>> {
        self.in_transit.remove(&to);
        self.set_slab(segment, slot, Some(to))
    }

    /// Says where a slot lies from now on; the slab it had is in transit.
    pub(super) fn set_slab(&mut self, id: SegmentNo, slot: usize, to: Option<SlabAt>) -> Option<Record<'static>> {
        let segment = self.segments.get_mut(&id)?;
        let mut slabs = segment.record.slabs.to_vec();
        self.in_transit.extend(slabs[slot].map(|left| (left, None)));
        slabs[slot] = to;
        segment.before = segment.known();
        segment.before.retain(|slabs| slabs.strong_count() > 0);
        segment.record.slabs = slabs.into();
        segment.record.missed &= !(1 << slot);
        let record = Record::Segment(segment.record.clone());
        self.relist(id);
        Some(record)
    }

    /// Makes the chunk of `table` that `stripe` falls in, if it does not exist.
    pub fn ensure_chunk(&mut self, table: TableNo, stripe: u64, records: &mut Vec<Record<'static>>) -> Result<()> {
        let number = Table::chunk_of(stripe);
        if self.tables[&table].chunks.contains_key(&number) {
            return Ok(());
        }
        self.check_config_room(CHUNK_LEN)?;
        let pages = self.take_page_run(CHUNK_PAGES, true, records)?;
        let chunk = Chunk::new(pages);
        records.push(chunk_record(table, number, &chunk));
        self.tables.get_mut(&table).expect("looked up before").chunks.insert(number, chunk);
        self.bulk += CHUNK_LEN;
        Ok(())
    }

    /// Adds a segment to `table`: on healthy disks if enough have room, else with as many slots absent as the layout
    /// bears.
    pub fn new_segment(&mut self, table: TableNo, records: &mut Vec<Record<'static>>) -> Result<SegmentNo> {
        let disks = self.disks_apart(table, self.disks_of_newest(table));
        self.new_segment_on(table, disks.unwrap_or(self.tables[&table].record.disks), records)
    }

    /// Adds a segment to `table`, on `disks` (none: any), which are some of those that it is restricted to.
    pub(super) fn new_segment_on(
        &mut self,
        table: TableNo,
        disks: DiskSet,
        records: &mut Vec<Record<'static>>,
    ) -> Result<SegmentNo> {
        let TableRecord { layout, packs, .. } = self.tables[&table].record;
        let len = SEGMENT_LEN + layout.slots() as u64 * SLAB_LEN;
        self.check_config_room(len)?;
        if packs.is_some() && !self.has_config_room_for_packs(len) {
            return fail!(NoSpace, "what is left for the pool's configuration is kept for whole stripes");
        }
        let slabs = self.place_evenly(layout.slots(), SLABS_KEPT, layout.failures(), disks, self.grain(table))?;
        let pages = self.sheet_pages(layout);
        // The slabs are taken before the pages are: a metadata segment made for them must not get the same ones.
        let id = self.insert_segment(table, layout, PageRun { segment: SegmentNo(0), first: 0, count: 0 }, slabs);
        let sheet = match self.take_page_run(pages, false, records) {
            Ok(sheet) => sheet,
            Err(error) => {
                self.undo_segment(id);
                return Err(error);
            }
        };
        let segment = self.segments.get_mut(&id).expect("it was just made");
        segment.record.sheet = sheet;
        records.push(Record::Segment(segment.record.clone()));
        Ok(id)
    }

    /// Pages with the checksums of a new segment, and with the mark of each stripe's owner.
    pub(super) fn sheet_pages(&self, layout: Layout) -> u32 {
        let sums = (layout.stripe_sums() as u64 + 1) * layout.segment_stripes(self.slab) as u64;
        sums.div_ceil(PAGE_SUMS as u64) as u32
    }

    /// How many more segments of `layout` the free slabs allow, and those that are free in a moment, on `disks` (none:
    /// any).
    pub fn segments_possible(&self, layout: Layout, disks: DiskSet) -> u64 {
        self.segments_with(layout, disks, |disk| self.free_soon(disk.record.no))
    }

    /// How many of them can be made right now.
    pub fn segments_possible_now(&self, layout: Layout, disks: DiskSet) -> u64 {
        self.segments_with(layout, disks, |disk| disk.free.count())
    }

    pub(super) fn segments_with(&self, layout: Layout, disks: DiskSet, free: impl Fn(&DiskRoom) -> usize) -> u64 {
        let free: Vec<u64> = self.disks_for(disks).map(|disk| free(disk).saturating_sub(SLABS_KEPT) as u64).collect();
        segments_on(&free, layout.slots() as u64)
    }

    /// Whether there are as many healthy disks with room as a segment of `table` has slots.
    pub fn can_place_whole(&self, table: TableNo) -> bool {
        let TableRecord { layout, disks, .. } = self.tables[&table].record;
        let slots = layout.slots();
        self.disks_for(disks).filter(|disk| disk.free.count() > SLABS_KEPT).count() >= slots
    }

    /// On which disks stripes of a table that is restricted to `disks` (none: it is not) could lie if disk `gone`
    /// were none of them and disk `come` took data: as many as are asked for, or fewer. Those that are not for new data
    /// count where the others are too few, as they do when a segment is placed.
    pub fn places_for(&self, disks: DiskSet, slots: usize, gone: Option<DiskNo>, come: Option<DiskNo>) -> usize {
        let allowed = |no: DiskNo| disks.is_empty() || disks.contains(no);
        let come = come.filter(|no| allowed(*no) && self.disks.get(no).is_some_and(|disk| disk.healthy));
        let mut on: BTreeSet<DiskNo> = self.disks_for(disks).map(|disk| disk.record.no).chain(come).collect();
        on.retain(|no| Some(*no) != gone);
        if on.len() < slots {
            let others = self.last_resort(disks, SLABS_KEPT).map(|disk| disk.record.no);
            on.extend(others.filter(|no| Some(*no) != gone));
        }
        on.len().min(slots)
    }

    /// Slabs for `slots` slots on different disks, in different domains as far as there are any, the emptiest first;
    /// where there are fewer disks than slots, up to `absent_max` of these may stay without one.
    pub(super) fn place(
        &mut self,
        slots: usize,
        keep: usize,
        absent_max: usize,
        disks: DiskSet,
    ) -> Result<Vec<Option<SlabAt>>> {
        self.place_evenly(slots, keep, absent_max, disks, 1)
    }

    /// [`Map::place`], where disks whose free slabs differ by no more than about `grain` count as equally empty.
    fn place_evenly(
        &mut self,
        slots: usize,
        keep: usize,
        absent_max: usize,
        disks: DiskSet,
        grain: usize,
    ) -> Result<Vec<Option<SlabAt>>> {
        // Among disks that are equally empty, others are taken together every time: what one disk lost is then rebuilt
        // from, and onto, all others.
        let turn = |no: DiskNo| shuffled(self.notes.next.next_segment, no);
        let ranked = |disk: &DiskRoom, grain| (disk.free.count() / grain, turn(disk.record.no), disk.record.no);
        let (mut room, mut healthy, mut has_domains) = (Vec::new(), 0, false);
        for disk in self.disks_for(disks) {
            healthy += 1;
            if disk.free.count() > keep {
                has_domains |= !disk.record.domain.is_empty();
                room.push(ranked(disk, grain));
            }
        }
        let best_first = |a: &(usize, u64, DiskNo), b: &(usize, u64, DiskNo)| b.cmp(a);
        if has_domains {
            room.sort_unstable_by(best_first);
            room = self.apart_first(room);
        } else if room.len() > slots {
            // There may be hundreds of them: who is not among the first need not be in order.
            room.select_nth_unstable_by(slots - 1, best_first);
        }
        if healthy < slots {
            room.extend(self.last_resort(disks, keep).map(|disk| ranked(disk, 1)));
        }
        // A slot stays empty where a disk is missing, not where one is full: that would be to give redundancy away.
        let absent_max = absent_max.min(slots.saturating_sub(healthy));
        if room.len() + absent_max < slots {
            let have = room.len();
            return fail!(
                NoSpace,
                "{slots} disks with a free slab of {} are needed, {have} of {healthy} have one",
                self.slab
            );
        }
        room.truncate(slots);
        // Which column a disk gets must not follow from its fill level, or parity-free columns would gather on the
        // emptiest disk.
        room.sort_unstable_by_key(|(_, turn, _)| *turn);
        let mut slabs: Vec<Option<SlabAt>> = Vec::with_capacity(slots);
        for (_, _, no) in room {
            let free = &mut self.disks.get_mut(&no).expect("it was just listed").free;
            let slab = free.first(0..free.len()).expect("it has a free slab");
            free.remove(slab..slab + 1);
            slabs.push(Some(SlabAt { disk: no, slab: slab as u32 }));
        }
        slabs.resize(slots, None);
        Ok(slabs)
    }

    /// Those disks first that are the first of their domains.
    fn apart_first(&self, room: Vec<(usize, u64, DiskNo)>) -> Vec<(usize, u64, DiskNo)> {
        let mut domains = BTreeSet::new();
        let (apart, together): (Vec<_>, Vec<_>) = room.into_iter().partition(|(.., no)| {
            let domain = &self.disks[no].record.domain;
            domain.is_empty() || domains.insert(domain.as_str())
        });
        apart.into_iter().chain(together).collect()
    }

    /// Disks that are not for new data, and are better than none: hot spares, then journal disks, then retired ones.
    pub(super) fn last_resort(&self, disks: DiskSet, keep: usize) -> impl Iterator<Item = &DiskRoom> {
        let with = move |usage: Usage| {
            self.disks.values().filter(move |disk| {
                let allowed = disks.is_empty() || disks.contains(disk.record.no);
                disk.healthy && allowed && disk.record.usage == usage && disk.free.count() > keep
            })
        };
        with(Usage::HotSpare).chain(with(Usage::Journal)).chain(with(Usage::Retired))
    }

    pub(super) fn insert_segment(
        &mut self,
        owner: TableNo,
        layout: Layout,
        sheet: PageRun,
        slabs: Vec<Option<SlabAt>>,
    ) -> SegmentNo {
        let id = self.notes.next.next_segment;
        self.notes.next.next_segment = id.next();
        let owners = owner != OWNER_METADATA;
        let record = SegmentRecord { id, owner, layout, sheet, owners, slabs: slabs.into(), missed: 0 };
        let indexes = self.indexes(&record) as usize;
        if let Some(table) = self.tables.get_mut(&owner) {
            table.segments.insert(id);
            table.free += indexes as u64;
        }
        self.bulk += segment_len(&record);
        self.put_segment(Segment::new(record, indexes));
        self.list(id);
        id
    }

    pub(super) fn put_segment(&mut self, segment: Segment) {
        let SegmentRecord { id, owner, .. } = segment.record;
        match owner {
            OWNER_METADATA => self.metadata.insert(id),
            _ => self.metadata.remove(&id),
        };
        self.segments.insert(id, segment);
    }

    /// Takes page pairs beside each other. `last`: also those that are kept for the tree, where there are no others.
    fn take_page_run(&mut self, count: u32, last: bool, records: &mut Vec<Record<'static>>) -> Result<PageRun> {
        assert!(count as u64 * PAGE_PAIR <= self.slab.0, "{count} pages do not fit a metadata segment");
        loop {
            let found = if self.may_take_pairs(count.into()) { self.free_page_run(count) } else { None };
            if let Some(run) = found {
                return Ok(run);
            }
            // It stays where a second one would be needed and cannot be had: others will use it.
            match self.new_metadata_segment() {
                Ok(id) => records.push(Record::Segment(self.segments[&id].record.clone())),
                Err(error) => return self.free_page_run(count).filter(|_| last).ok_or(error),
            }
        }
    }

    fn free_page_run(&mut self, count: u32) -> Option<PageRun> {
        let run = self.pairs_beside(count)?;
        let segment = self.segments.get_mut(&run.segment)?;
        segment.free.remove(run.first as usize..(run.first + count) as usize);
        self.relist(run.segment);
        Some(run)
    }
}

/// A number that depends on every bit of both (the finisher of splitmix64): the order of disks in the eyes of a
/// segment.
fn shuffled(segment: SegmentNo, disk: DiskNo) -> u64 {
    let mut mixed = ((segment.0 as u64) << 16 | disk.0 as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::format::record::{Away, CacheChoice, DiskRecord, Media, PowerProtected, VdiskRecord};
    use crate::geometry::Resiliency;
    use crate::units::{ByteCount, VdiskNo};
    use alloc::string::String;

    /// A map of empty disks with so many slabs, and a table of `layout` on them.
    pub fn map_of(slabs: &[u32], layout: Layout) -> (Map, TableNo) {
        let mut map = Map::new(ByteCount::mib(64));
        for (no, slabs) in slabs.iter().enumerate() {
            let record = DiskRecord {
                no: DiskNo(no as u16),
                media: Media::Hdd,
                usage: Usage::AutoSelect,
                slabs: *slabs,
                disk_len: map.slab * *slabs as u64,
                name: alloc::format!("d{no}"),
                domain: String::new(),
                away: Away::No,
                maintenance: false,
                retired_from: Usage::AutoSelect,
                power: PowerProtected::Auto,
            };
            map.add_disk(record, ByteCount::gib(1));
        }
        let vdisk = VdiskRecord {
            id: VdiskNo(0),
            name: String::from("vdisk"),
            size: ByteCount::gib(1),
            sector: 4096,
            fixed: true,
            tables: Vec::new(),
            fine_share: None,
            cache: None,
            tier: None,
            cache_choice: CacheChoice::Auto,
        };
        let (id, _) = map.new_vdisk(vdisk, layout, DiskSet::EMPTY);
        let table = map.vdisks[&id].tables[0];
        (map, table)
    }

    #[test]
    fn where_disks_for_data_are_too_few_the_others_take_some_rather_than_leave_a_slot_empty() {
        let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(64)).unwrap();
        for usage in [Usage::HotSpare, Usage::Journal, Usage::Retired] {
            let (mut map, table) = map_of(&[20, 20], layout);
            map.change_disk(DiskNo(1), |disk| disk.usage = usage);
            map.new_segment(table, &mut Vec::new()).unwrap();
            assert_eq!(map.segments.len(), 2, "one for data, one for its checksums");
            for segment in map.segments.values() {
                let on: BTreeSet<DiskNo> = segment.record.slabs.iter().flatten().map(|at| at.disk).collect();
                assert_eq!(on, BTreeSet::from([DiskNo(0), DiskNo(1)]), "{usage:?}: {:?}", segment.record);
            }
        }
    }

    #[test]
    fn places_are_counted_as_they_are_given() {
        let layout = Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::kib(64)).unwrap();
        let (mut map, table) = map_of(&[20; 5], layout);
        let places = |map: &Map, gone, come| map.places_for(DiskSet::EMPTY, 4, gone, come);
        assert_eq!((places(&map, None, None), places(&map, Some(DiskNo(4)), None)), (4, 4));
        for (usage, left) in [(Usage::HotSpare, 4), (Usage::Journal, 4), (Usage::Retired, 4), (Usage::ManualSelect, 3)]
        {
            map.change_disk(DiskNo(4), |disk| disk.usage = usage);
            assert_eq!(places(&map, Some(DiskNo(0)), None), left, "{usage:?}");
            assert_eq!(places(&map, Some(DiskNo(0)), Some(DiskNo(4))), 4, "{usage:?}");
            let mut made = Map::new(map.slab);
            core::mem::swap(&mut made, &mut map);
            made.disks.get_mut(&DiskNo(0)).unwrap().healthy = false;
            let id = made.new_segment(table, &mut Vec::new()).unwrap();
            assert_eq!(made.segments[&id].record.slabs.iter().flatten().count(), left, "{usage:?}");
            (map, _) = map_of(&[20; 5], layout);
        }
        map.disks.get_mut(&DiskNo(1)).unwrap().healthy = false;
        assert_eq!(places(&map, Some(DiskNo(0)), Some(DiskNo(1))), 3, "a disk that is not there takes nothing");
        assert_eq!(
            map.places_for(DiskSet::from_words(&[0b11100]), 4, Some(DiskNo(4)), None),
            2,
            "only the disks that are named"
        );
    }

    #[test]
    fn every_disk_shares_segments_with_every_other_about_equally_often() {
        let layout = Layout::new(Resiliency::Parity { parity: 1 }, 5, ByteCount::kib(256)).unwrap();
        for disks in [6, 12, 24] {
            let (mut map, table) = map_of(&alloc::vec![500; disks], layout);
            let mut together = alloc::vec![0usize; disks * disks];
            while let Ok(id) = map.new_segment(table, &mut Vec::new()) {
                let on: Vec<usize> =
                    map.segments[&id].record.slabs.iter().flatten().map(|at| at.disk.0 as usize).collect();
                on.iter().for_each(|a| on.iter().for_each(|b| together[a * disks + b] += 1));
            }
            let mean = 500 * 4 / (disks - 1);
            for (pair, count) in together.iter().enumerate().filter(|(pair, _)| pair % (disks + 1) != 0) {
                let (a, b) = (pair / disks, pair % disks);
                let even = (mean / 2..=mean * 3 / 2).contains(count);
                assert!(even, "of {disks} disks, {a} and {b} share {count} segments; the mean is {mean}");
            }
        }
    }
}
