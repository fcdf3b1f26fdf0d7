//! The map of the pool: which disks have which slabs free, which segments exist, which stripe of a segment belongs to
//! whom.
//!
//! Invariants
//! 1. A slab belongs to at most one segment; a stripe index of a segment to at most one virtual stripe.
//! 2. A stripe that was replaced or unmapped becomes free only after the record that says so is durable, and after the
//!    last reader of it is done.
//! 3. `Table::free` counts the free stripes of its segments; `claims` never exceeds it but right after a replay.
//! 4. The configuration fits the smallest checkpoint area with room to spare for virtual disks, disks and jobs:
//!    segments and chunks, which come with data, are refused before it is full.
//! 5. What a dropped segment or table had drains before it is free ([`drain`]).
//! 6. What was read ahead of a stripe goes with its place, in the step that frees it ([`ahead`]).
//! 7. Every change here that must survive a crash is returned as records, which the caller appends to the log in the
//!    same step.

pub mod ahead;
pub mod allocate;
mod config;
mod copies;
mod dense;
mod disks;
pub mod drain;
pub mod fine;
mod fronts;
pub mod hollow;
mod lists;
pub mod notes;
mod numbers;
pub mod packs;
mod pairs;
mod places;
mod prove;
pub mod read_cache;
mod reserve;
pub mod run;
pub mod shelf;
mod sound;
pub mod space;
pub mod stack;
mod tables;
pub mod taken;
pub mod tier;

pub use self::sound::slots_on;
use crate::bits::BitSet;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::fail;
use crate::format::page::CHUNK_PAGES;
use crate::format::page::{PAGE_SUMS, PageId, PageKind};
use crate::format::record::{
    CHUNK_LEN, OWNER_METADATA, Record, SEGMENT_LEN, SLAB_LEN, SegmentRecord, SlabAt, TableRecord, TreeRecord,
    VdiskRecord,
};
use crate::limits::{DISKS_MAX, VDISK_SIZE_MAX};
use crate::stripe::fronts::Fronts;
use crate::stripe::table::{Chunk, Place, Table};
use crate::units::{ByteCount, DiskNo, SegmentNo, TableNo, VdiskNo};
use ahead::Ahead;
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
pub use disks::{DiskRoom, handed_on};
use drain::{Draining, Former, Known};
use fine::Fine;
use lists::{Listed, Lists};
use notes::Notes;
use read_cache::ReadCache;
pub use reserve::segments_on;

/// The part of the checkpoint area that they may take, as a divisor.
const EVENTS_SHARE: u64 = 16;

/// The pool's configuration and space, in memory.
pub struct Map {
    /// Bytes of a slab.
    pub slab: ByteCount,
    /// Bytes that a checkpoint may have: those of the smallest checkpoint area.
    pub config_max: ByteCount,
    /// The most slabs that the disks that are there can have.
    pub slabs_max: BTreeMap<DiskNo, u32>,
    /// Bytes of the records of segments and chunks.
    bulk: u64,
    /// Page pairs that are the tree's.
    tree_pairs: u64,
    /// The members, present or not.
    pub disks: BTreeMap<DiskNo, DiskRoom>,
    /// Virtual disks.
    pub vdisks: BTreeMap<VdiskNo, VdiskRecord>,
    /// Stripe tables.
    pub tables: BTreeMap<TableNo, Table>,
    /// Segments, metadata segments included.
    pub segments: BTreeMap<SegmentNo, Segment>,
    /// Which of them are metadata segments.
    metadata: BTreeSet<SegmentNo>,
    /// All of them, by what is asked of them.
    lists: Lists,
    /// The tree's root, as the newest checkpoint has it.
    pub tree: Option<TreeRecord>,
    /// What is said of the pool that is not about space.
    pub notes: Notes,
    /// Slabs that are taken and in no segment: where a slot is moving to, or has moved from.
    pub in_transit: BTreeMap<SlabAt, Option<SegmentNo>>,
    /// Where stripes were written whose commits were withdrawn, by (table, stripe); see `store/limbo.rs`.
    pub limbo: BTreeMap<(TableNo, u64), Place>,
    draining: Draining,
    /// Which segments changed of what is in use.
    touched: space::Touched,
    /// Tables that the opening had to count what is in use from.
    pub tables_counted: u64,
    /// Places that tables map and that did not count as in use, until their pages were loaded.
    pub unseen: BTreeSet<Place>,
    /// Counts how often pages of stripe tables were asked for.
    asked: u64,
    /// Stripes that become free when the log is durable up to the sequence number.
    freeing: VecDeque<(u64, Place)>,
    /// Stripes that are being read, how often, and whether they became free meanwhile.
    pins: BTreeMap<Place, (u32, bool)>,
    /// What was read ahead of stripes, as long as they lie where it was read.
    pub ahead: Ahead,
    /// The fast tiers of tables ([`tier`]).
    tiers: BTreeMap<TableNo, TableNo>,
    /// Read caches.
    pub read_caches: BTreeMap<VdiskNo, ReadCache>,
    /// Bytes that the index of one may take in memory.
    pub shelf_memory: u64,
    /// Units that lie in packed stripes, by the table above which they do.
    fine: BTreeMap<TableNo, Fine>,
    /// The most bytes of memory that they took.
    pub fine_peak: u64,
}

/// One segment.
pub struct Segment {
    /// What the log says of it.
    pub record: SegmentRecord,
    /// Stripe indexes that may be given out (for metadata: page pairs).
    pub free: BitSet,
    /// Stripe indexes that the table maps; none of metadata.
    pub mapped: BitSet,
    /// Whether they are known; else they are to be counted.
    told: bool,
    /// Where the search for a free index goes on.
    pub cursor: u32,
    /// Stripe indexes that were given out and are neither committed nor given up: what lies there proves nothing.
    pub in_flight: BitSet,
    /// While a slot of it moves: the indexes that were given out since its strips began to be copied.
    pub moving: Option<BitSet>,
    /// Nothing new is written into it: a move of it is at its end.
    pub frozen: bool,
    /// What it holds is moved to other segments of its table: nothing new is written into it ([`hollow`]).
    pub emptying: bool,
    /// The lists of slabs that it had before slots of it moved.
    before: Known,
    /// How it is listed ([`lists`]).
    listed: Listed,
}

impl Segment {
    /// A segment that holds nothing.
    fn new(record: SegmentRecord, indexes: usize) -> Segment {
        let mut free = BitSet::empty(indexes);
        free.insert(0..indexes);
        let mapped = BitSet::empty(if record.owner == OWNER_METADATA { 0 } else { indexes });
        Segment {
            record,
            free,
            mapped,
            told: true,
            cursor: 0,
            in_flight: BitSet::empty(indexes),
            moving: None,
            frozen: false,
            emptying: false,
            before: Known::new(),
            listed: Listed::default(),
        }
    }

    /// Whether a committed stripe lies at `index`.
    pub fn in_use(&self, index: u32) -> bool {
        !self.free.contains(index as usize) && !self.in_flight.contains(index as usize)
    }

    /// Whether a table maps a stripe at `index`, which may be none of the segment's.
    pub fn has_stripe(&self, index: u32) -> bool {
        (index as usize) < self.mapped.len() && self.mapped.contains(index as usize)
    }

    /// Whether a committed stripe has checksums in page `page` of those of the segment.
    pub fn uses_sheet(&self, page: u32) -> bool {
        let each = self.record.sums_range(0, 1).end.max(1);
        let first = u64::from(page) * PAGE_SUMS as u64;
        let mut indexes = first / each..(first + PAGE_SUMS as u64).div_ceil(each).min(self.free.len() as u64);
        indexes.any(|index| self.in_use(index as u32))
    }

    /// What those hold who may read or write in its slabs, or in those it had.
    pub fn known(&self) -> Known {
        self.before.iter().cloned().chain([Rc::downgrade(&self.record.slabs)]).collect()
    }

    /// The disks it lies on, as bits; those that cannot be, in a record that is not proven yet, are none.
    pub fn disks(&self) -> DiskSet {
        self.record.disks()
    }

    /// Where a slot lies, if it has a disk.
    pub fn slab(&self, slot: usize) -> Option<SlabAt> {
        self.record.slabs[slot]
    }
}

impl Map {
    /// An empty map.
    pub fn new(slab: ByteCount) -> Map {
        Map {
            slab,
            config_max: ByteCount(u64::MAX),
            slabs_max: BTreeMap::new(),
            bulk: 0,
            tree_pairs: 0,
            disks: BTreeMap::new(),
            vdisks: BTreeMap::new(),
            tables: BTreeMap::new(),
            segments: BTreeMap::new(),
            metadata: BTreeSet::new(),
            lists: Lists::default(),
            tree: None,
            notes: Notes::default(),
            in_transit: BTreeMap::new(),
            limbo: BTreeMap::new(),
            draining: Draining::default(),
            touched: space::Touched::default(),
            tables_counted: 0,
            unseen: BTreeSet::new(),
            asked: 0,
            freeing: VecDeque::new(),
            pins: BTreeMap::new(),
            ahead: Ahead::default(),
            tiers: BTreeMap::new(),
            read_caches: BTreeMap::new(),
            shelf_memory: 0,
            fine: BTreeMap::new(),
            fine_peak: 0,
        }
    }

    /// The whole configuration as records.
    pub fn records(&self) -> Vec<Record<'static>> {
        let mut records = self.few_records();
        let data = self.segments.values().filter(|segment| segment.record.owner != OWNER_METADATA);
        records.extend(data.map(|segment| Record::Segment(segment.record.clone())));
        for table in self.tables.values() {
            records.extend(table.chunks.iter().map(|(number, chunk)| chunk_record(table.record.id, *number, chunk)));
        }
        records
    }

    /// What of the configuration a checkpoint writes each time: all but what comes with data, which is in the tree.
    pub fn few_records(&self) -> Vec<Record<'static>> {
        let mut records = Vec::new();
        records.push(Record::Pool(self.notes.next));
        records.push(Record::Settings(self.notes.settings));
        records.extend(self.notes.jobs.values().map(|job| Record::Job(job.clone())));
        let events = ByteCount(self.config_max.0 / EVENTS_SHARE);
        records.extend(self.notes.newest_events(events).map(|event| Record::Event(event.clone())));
        records.extend(self.disks.values().map(|disk| Record::Disk(disk.record.clone())));
        let metadata = self.metadata_segments();
        records.extend(metadata.map(|segment| Record::Segment(segment.record.clone())));
        records.extend(self.tables.values().map(|table| Record::Table(table.record)));
        records.extend(self.vdisks.values().map(|vdisk| Record::Vdisk(vdisk.clone())));
        records.extend(self.read_caches.values().map(|cache| Record::ReadCache(cache.record.clone())));
        records
    }

    /// Applies a configuration record, as found in a checkpoint or in the log. Free space is not kept while records are
    /// applied; call [`Map::recount`] after the last one. The pages of a chunk that a checkpoint has lie on the
    /// disks; one that the log makes maps nothing yet.
    pub fn apply(&mut self, record: Record<'_>) -> Result<()> {
        match record {
            Record::Pool(next) => self.notes.next = next,
            Record::Disk(record) => {
                let (no, room) = (record.no.0 as usize, record.disk_len.0 / self.slab.0);
                if no >= DISKS_MAX || record.slabs as u64 > room || record.disk_len >= VDISK_SIZE_MAX {
                    return fail!(Corrupt, "the record of disk {} contradicts itself", record.no);
                }
                self.disks
                    .insert(record.no, DiskRoom { record, healthy: false, current: false, free: BitSet::empty(0) });
            }
            Record::Vdisk(record) => {
                self.vdisks.insert(record.id, record);
            }
            Record::VdiskDrop(id) => {
                self.vdisks.remove(&id);
            }
            Record::Table(record) => {
                // Said again: a disk took the place of another, or left.
                let table = self.tables.entry(record.id).or_insert_with(|| Table::new(record));
                table.record.disks = record.disks;
                self.tiers.extend(record.tier.map(|of| (of, record.id)));
            }
            Record::TableDrop(id) => {
                self.tables.remove(&id);
                self.tiers.retain(|_, tier| *tier != id);
                self.forget_packs(id);
            }
            Record::Segment(record) => {
                let record = copies::with_a_slot_for_each(record);
                if record.id == SegmentNo(u32::MAX) {
                    return fail!(Corrupt, "segment {} is beyond all numbers", record.id);
                }
                self.notes.next.next_segment = self.notes.next.next_segment.max(record.id.next());
                if self.indexes(&record) == 0 {
                    return fail!(Corrupt, "segment {} has no room for a stripe", record.id);
                }
                let indexes = self.indexes(&record) as usize;
                self.put_segment_again(Segment::new(record, indexes));
            }
            Record::SegmentDrop(id) => {
                self.segments.remove(&id);
                self.metadata.remove(&id);
            }
            Record::Chunk(record) => self.apply_chunk(record)?,
            Record::Tree(tree) => self.tree = Some(tree),
            Record::DiskDrop(no) => {
                self.disks.remove(&no);
            }
            Record::Settings(settings) => self.notes.settings = settings,
            Record::Job(job) => {
                self.notes.jobs.insert(job.id, job);
            }
            Record::JobDrop(id) => {
                self.notes.jobs.remove(&id);
            }
            Record::Event(event) => self.notes.note_event(event),
            Record::ReadCache(cache) => self.apply_read_cache(cache)?,
            Record::Commit(_) | Record::Move(_) | Record::Unmap(_) | Record::Landed(_) | Record::Pack(_) => {
                return fail!(Corrupt, "a configuration holds a record that is none");
            }
        }
        Ok(())
    }

    /// The table that a page of a stripe table is of, its chunk there, and which of its pages it is.
    pub fn chunk_of(&mut self, id: PageId) -> Option<(&mut Table, u32, u32)> {
        let table = self.tables.get_mut(&TableNo(id.owner)).filter(|_| id.kind == PageKind::Table)?;
        let number = id.number / CHUNK_PAGES;
        table.chunks.contains_key(&number).then_some((table, number, id.number % CHUNK_PAGES))
    }

    /// Works out what is free from what is in use ([`space`]), and proves invariant 1 on the way.
    pub fn recount(&mut self) -> Result<()> {
        self.prove_numbers()?;
        self.prove_names()?;
        self.prove_references()?;
        for disk in self.disks.values_mut() {
            disk.free = BitSet::empty(disk.record.slabs as usize);
            disk.free.insert(0..disk.record.slabs as usize);
        }
        for table in self.tables.values_mut() {
            (table.free, table.claims, table.fronts) = (0, 0, Fronts::default());
            table.segments.clear();
        }
        // What is reserved is the newest table's.
        for vdisk in self.vdisks.values() {
            if let Some(table) = vdisk.tables.first().and_then(|id| self.tables.get_mut(id)) {
                table.fixed = vdisk.fixed;
            }
        }
        let slab = self.slab;
        for segment in self.segments.values_mut() {
            for at in segment.record.slabs.iter().flatten() {
                let room = self.disks.get_mut(&at.disk).map(|disk| &mut disk.free);
                match room.filter(|free| (at.slab as usize) < free.len() && free.contains(at.slab as usize)) {
                    Some(free) => free.remove(at.slab as usize..at.slab as usize + 1),
                    None => {
                        return fail!(
                            Corrupt,
                            "slab {} of disk {} is claimed twice or does not exist",
                            at.slab,
                            at.disk
                        );
                    }
                }
            }
            let indexes = indexes(&segment.record, slab) as usize;
            segment.free = BitSet::empty(indexes);
            segment.free.insert(0..indexes);
            if let Some(table) = self.tables.get_mut(&segment.record.owner) {
                table.segments.insert(segment.record.id);
            }
        }
        self.take_read_caches()?;
        self.tree_pairs = 0;
        self.make_fine();
        self.prove_fine()?;
        self.take_mapped()?;
        self.take_pages()?;
        let segments = self.segments.values().map(|segment| segment_len(&segment.record));
        let chunks = self.tables.values().map(|table| table.chunks.len() as u64 * CHUNK_LEN);
        self.bulk = segments.sum::<u64>() + chunks.sum::<u64>();
        for table in self.tables.values_mut() {
            table.free = table.segments.iter().map(|id| self.segments[id].free.count() as u64).sum();
        }
        self.list_all();
        Ok(())
    }

    fn take_pages(&mut self) -> Result<()> {
        let sheets = self.segments.values().map(|segment| segment.record.sheet).filter(|run| run.count > 0);
        let chunks = self.tables.values().flat_map(|table| table.chunks.values().map(|chunk| chunk.pages));
        let runs: Vec<_> = sheets.chain(chunks).collect();
        for run in runs {
            let range = run.first as usize..run.first.saturating_add(run.count) as usize;
            let segment = self.segments.get_mut(&run.segment).filter(|segment| segment.record.owner == OWNER_METADATA);
            match segment
                .filter(|segment| range.end <= segment.free.len() && segment.free.runs(range.clone(), false).is_empty())
            {
                Some(segment) => segment.free.remove(range),
                None => return fail!(Corrupt, "metadata pages {run:?} are claimed twice or do not exist"),
            }
        }
        Ok(())
    }

    /// Whether a stripe table has this chunk; none that was dropped does.
    pub fn has_chunk(&self, table: TableNo, chunk: u32) -> bool {
        self.tables.get(&table).is_some_and(|table| table.chunks.contains_key(&chunk))
    }

    /// Stripe indexes (or page pairs) of a segment.
    pub fn indexes(&self, record: &SegmentRecord) -> u32 {
        indexes(record, self.slab)
    }

    /// Gives back every segment of a thin table that holds nothing and is promised to nothing: a crash may have come
    /// before that was durable.
    pub fn drop_empty_segments(&mut self) -> Vec<Record<'static>> {
        let mut records = Vec::new();
        let ids: Vec<SegmentNo> = self.segments.keys().copied().collect();
        for id in ids {
            let segment = &self.segments[&id];
            let Some(table) = self.tables.get(&segment.record.owner) else { continue };
            let promised = table.claims + self.kept_for_tier(segment.record.owner);
            if !table.fixed && segment.free.is_full() && table.free - segment.free.len() as u64 >= promised {
                records.push(self.drop_segment(id));
            }
        }
        records
    }

    /// Forgets a segment that holds nothing; its slabs and pages drain.
    pub fn drop_segment(&mut self, id: SegmentNo) -> Record<'static> {
        let segment = self.take_segment(id);
        let (known, record) = (segment.known(), segment.record);
        let slabs = record.slabs.iter().flatten().copied().collect();
        self.drain(Former::Segment(id), slabs, known, alloc::vec![record.sheet]);
        Record::SegmentDrop(id)
    }

    /// Forgets a segment that was just made and is in no log: what it had is free at once.
    fn undo_segment(&mut self, id: SegmentNo) {
        let record = self.take_segment(id).record;
        record.slabs.iter().flatten().for_each(|at| self.put_back(*at));
        self.put_pages_back(record.sheet);
    }

    fn take_segment(&mut self, id: SegmentNo) -> Segment {
        let segment = self.segments.remove(&id).expect("a segment that is dropped exists");
        self.metadata.remove(&id);
        self.unlist(&segment);
        self.ahead.forget_segment(id);
        self.forget_kept_segment(id);
        self.bulk -= segment_len(&segment.record);
        if let Some(table) = self.tables.get_mut(&segment.record.owner) {
            table.segments.remove(&id);
            table.free -= if segment.emptying { 0 } else { segment.free.count() as u64 };
            table.fronts.forget(id);
        }
        segment
    }

    /// Forgets a virtual disk, its tables and their segments.
    pub fn drop_vdisk(&mut self, id: VdiskNo) -> Vec<Record<'static>> {
        let Some(vdisk) = self.vdisks.remove(&id) else { return Vec::new() };
        let mut records: Vec<_> = self.drop_read_cache(id).into_iter().chain([Record::VdiskDrop(id)]).collect();
        for table in self.with_packs(&vdisk.tables) {
            self.fine.remove(&table);
            records.extend(self.drop_table(table));
        }
        records
    }

    /// Forgets a table and its segments.
    fn drop_table(&mut self, id: TableNo) -> Vec<Record<'static>> {
        let Some(table) = self.tables.get(&id) else { return Vec::new() };
        let segments: Vec<SegmentNo> = table.segments.iter().copied().collect();
        let mut records: Vec<_> = segments.into_iter().map(|segment| self.drop_segment(segment)).collect();
        let table = self.tables.remove(&id).expect("it was looked up");
        self.tiers.retain(|_, tier| *tier != id);
        self.bulk -= table.chunks.len() as u64 * CHUNK_LEN;
        let pages = table.chunks.values().map(|chunk| chunk.pages).collect();
        self.drain(Former::Table(id), Vec::new(), Vec::new(), pages);
        records.push(Record::TableDrop(id));
        self.freeing.retain(|(_, place)| self.segments.contains_key(&place.segment));
        self.limbo.retain(|_, place| self.segments.contains_key(&place.segment));
        records
    }

    /// These tables, those of their packed stripes, and their fast tiers.
    pub fn with_packs(&self, tables: &[TableNo]) -> Vec<TableNo> {
        let packs = tables.iter().filter_map(|table| self.fine(*table)).map(|fine| fine.packs);
        packs.chain(self.with_tiers(tables)).collect()
    }

    /// Gives out numbers for a new table and virtual disk.
    pub fn new_vdisk(
        &mut self,
        mut vdisk: VdiskRecord,
        layout: crate::geometry::Layout,
        disks: DiskSet,
    ) -> (VdiskNo, Vec<Record<'static>>) {
        let (table, id) = (self.notes.next.take_table(), self.notes.next.next_vdisk);
        self.notes.next.next_vdisk = id.next();
        (vdisk.id, vdisk.tables) = (id, alloc::vec![table]);
        let record = TableRecord { id: table, layout, disks, packs: None, tier: None };
        let mut fresh = Table::new(record);
        fresh.fixed = vdisk.fixed;
        self.tables.insert(table, fresh);
        self.vdisks.insert(id, vdisk.clone());
        (id, alloc::vec![Record::Pool(self.notes.next), Record::Table(record), Record::Vdisk(vdisk)])
    }
}

/// The record of a chunk of a table.
pub fn chunk_record(table: TableNo, number: u32, chunk: &Chunk) -> Record<'static> {
    let versions = chunk.versions.map(|version| version.min(u32::MAX.into()) as u32);
    Record::Chunk(crate::format::record::ChunkRecord { table, chunk: number, pages: chunk.pages, versions })
}

/// A commit record, borrowed.
pub fn commit_record(table: TableNo, stripe: u64, place: Place, retires: u64, sums: &[u32]) -> Record<'_> {
    Record::Commit(crate::format::record::CommitRecord {
        table,
        stripe,
        segment: place.segment,
        index: place.index,
        birth: place.birth,
        retires,
        sums: Cow::Borrowed(sums),
    })
}

/// Bytes of a metadata page with its two slots.
pub const PAGE_PAIR: u64 = 2 * crate::units::BLOCK;

fn segment_len(record: &SegmentRecord) -> u64 {
    SEGMENT_LEN + record.slabs.len() as u64 * SLAB_LEN
}

fn indexes(record: &SegmentRecord, slab: ByteCount) -> u32 {
    if record.owner == OWNER_METADATA { (slab.0 / PAGE_PAIR) as u32 } else { record.layout.segment_stripes(slab) }
}
