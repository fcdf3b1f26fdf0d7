//! The stripe table: virtual stripe number -> physical stripe, or unmapped. Kept in chunks of sixteen metadata pages,
//! made when the first stripe inside is mapped. A page is in memory while somebody needs it (`store/table_pages.rs`).
//!
//! Invariants
//! 1. An unmapped stripe costs nothing until its chunk exists; an absent chunk maps nothing.
//! 2. A page whose entries changed since its last image is marked dirty in the same step; a new chunk starts with all
//!    pages dirty, so that every page of a checkpointed chunk has an image and a missing one is damage.
//! 3. An entry is nothing, *zero*, or a place. Zero ends the search in a stack of tables: what older ones have there is
//!    not read. It takes no place.
//! 4. A page that is not in memory is never taken for one that maps nothing: whoever looks has it loaded before.
//! 5. A page leaves memory only when it is clean, and its last image is durable and named by a checkpoint.

use crate::format::page::{CHUNK_ENTRIES, CHUNK_PAGES, PAGE_ENTRIES};
use crate::format::record::{PageRun, TableRecord};
use crate::mutant::{self, Mutant};
use crate::stripe::fronts::Fronts;
use crate::units::{Birth, SegmentNo};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

/// Bytes of memory that the entries of a page take.
pub const PAGE_MEMORY: u64 = (PAGE_ENTRIES * size_of::<u64>()) as u64;
/// All pages (bits) of a chunk.
const ALL: u32 = (1 << CHUNK_PAGES) - 1;

/// The entries of a page.
type Entries = [u64; PAGE_ENTRIES];
/// A page that maps nothing.
static BLANK: Entries = [0; PAGE_ENTRIES];

/// Where a stripe is: stripe `index` of segment `segment`. Two are the same where these are: what lies there may be of
/// another birth.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The segment.
    pub segment: SegmentNo,
    /// The stripe's index in it.
    pub index: u32,
    /// The version that whoever names the place expects there.
    pub birth: Birth,
}

impl Place {
    /// The place itself, whatever lies there.
    pub const fn at(segment: SegmentNo, index: u32) -> Place {
        Place { segment, index, birth: Birth::NONE }
    }

    /// That place, in which the version lies that record `seq` commits.
    pub fn born(self, seq: u64) -> Place {
        Place { birth: Birth::of(if mutant::active(Mutant::BirthsAlike) { 0 } else { seq }), ..self }
    }

    const fn key(self) -> (SegmentNo, u32) {
        (self.segment, self.index)
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Place {}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Place) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Place) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// What a table says of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing: the next older table of the stack tells.
    Unmapped,
    /// It is zeros, whatever older tables have there.
    Zero,
    /// It lies there.
    At(Place),
}

impl Entry {
    /// The place, if there is one.
    pub fn place(self) -> Option<Place> {
        match self {
            Entry::At(place) => Some(place),
            Entry::Unmapped | Entry::Zero => None,
        }
    }
}

impl From<Option<Place>> for Entry {
    fn from(place: Option<Place>) -> Entry {
        place.map_or(Entry::Unmapped, Entry::At)
    }
}

/// One stripe table, with the room its stripes may take.
pub struct Table {
    /// Its number and layout.
    pub record: TableRecord,
    /// Whether slabs were reserved up front and are kept when empty.
    pub fixed: bool,
    /// Its chunks, by number.
    pub chunks: BTreeMap<u32, Chunk>,
    /// The segments that hold its stripes.
    pub segments: BTreeSet<SegmentNo>,
    /// The segments that are being filled.
    pub fronts: Fronts,
    /// Free stripes in its segments.
    pub free: u64,
    /// How many of the free stripes are promised to buffers.
    pub claims: u64,
    /// Mapped stripes: those that its segments say are in use.
    pub mapped: u64,
    /// Its pages whose entries take memory, and when each was asked for last.
    loaded: BTreeMap<u32, u64>,
    /// How many of them are dirty.
    dirty: u64,
    /// The newest time at which a page was asked for.
    now: u64,
}

/// A run of entries that share sixteen pages.
pub struct Chunk {
    /// Where the pages live.
    pub pages: PageRun,
    /// What pages map that are in memory; one that maps nothing needs none.
    entries: [Option<Box<Entries>>; CHUNK_PAGES as usize],
    /// Pages (bits) that are not in memory.
    absent: u32,
    /// Pages (bits) that changed since their last image.
    pub dirty: u32,
    /// Pages (bits) whose last image is on its way: no checkpoint names it yet.
    leaving: u32,
    /// The version of each page's newest image; 0 where there is none.
    pub versions: [u64; CHUNK_PAGES as usize],
}

impl Table {
    /// An empty table.
    pub fn new(record: TableRecord) -> Table {
        Table {
            record,
            fixed: false,
            chunks: BTreeMap::new(),
            segments: BTreeSet::new(),
            fronts: Fronts::default(),
            free: 0,
            claims: 0,
            mapped: 0,
            loaded: BTreeMap::new(),
            dirty: 0,
            now: 0,
        }
    }

    /// The chunk a stripe belongs to.
    pub fn chunk_of(stripe: u64) -> u32 {
        (stripe / CHUNK_ENTRIES) as u32
    }

    /// The pages that stripes belong to, counted through all chunks.
    pub fn pages_of(stripes: &Range<u64>) -> Range<u32> {
        let each = PAGE_ENTRIES as u64;
        (stripes.start / each) as u32..stripes.end.div_ceil(each).min(u64::from(u32::MAX)) as u32
    }

    /// The stripes of a page.
    pub fn stripes_of(page: u32) -> Range<u64> {
        let first = u64::from(page) * PAGE_ENTRIES as u64;
        first..first + PAGE_ENTRIES as u64
    }

    /// Where `stripe` is. Its page is in memory.
    pub fn get(&self, stripe: u64) -> Option<Place> {
        self.entry(stripe).place()
    }

    /// What there is of `stripe`. Its page is in memory.
    pub fn entry(&self, stripe: u64) -> Entry {
        let (chunk, page, at) = parts(stripe);
        self.chunks.get(&chunk).map_or(Entry::Unmapped, |chunk| unpack(chunk.page(page)[at]))
    }

    /// Sets the entry of `stripe` and returns what it was. Any but nothing needs the chunk to exist; the page is in
    /// memory.
    pub fn set(&mut self, stripe: u64, entry: impl Into<Entry>) -> Entry {
        let entry = entry.into();
        let (number, page, at) = parts(stripe);
        let Some(chunk) = self.chunks.get_mut(&number) else {
            assert!(entry == Entry::Unmapped, "a stripe is mapped only where its chunk exists");
            return Entry::Unmapped;
        };
        assert!(chunk.is_there(page), "a page is loaded before it changes");
        let was = chunk.keeps_memory(page);
        let slot = &mut chunk.entries[page as usize];
        let before = match slot {
            None if entry == Entry::Unmapped => Entry::Unmapped,
            slot => unpack(core::mem::replace(&mut slot.get_or_insert_with(|| Box::new(BLANK))[at], pack(entry))),
        };
        chunk.dirty |= 1 << page;
        if chunk.keeps_memory(page) && !was {
            self.dirty += 1;
        }
        if chunk.entries[page as usize].is_some() {
            self.loaded.entry(number * CHUNK_PAGES + page).or_insert(self.now);
        }
        before
    }

    /// Unmaps stripes, or makes them `zero`, as far as their chunks exist. Returns where some of them were.
    pub fn set_all(&mut self, stripes: Range<u64>, zero: bool) -> Vec<Place> {
        let entry = if zero { Entry::Zero } else { Entry::Unmapped };
        let mut places = Vec::new();
        let end = stripes.end.div_ceil(CHUNK_ENTRIES).min(u32::MAX.into()) as u32;
        let chunks: Vec<u32> =
            self.chunks.range(Self::chunk_of(stripes.start)..end).map(|(number, _)| *number).collect();
        for chunk in chunks {
            let first = u64::from(chunk) * CHUNK_ENTRIES;
            for stripe in first.max(stripes.start)..(first + CHUNK_ENTRIES).min(stripes.end) {
                if self.entry(stripe) != entry {
                    places.extend(self.set(stripe, entry).place());
                }
            }
        }
        places
    }

    /// Takes a page of a chunk from the payload of its image; it is clean then.
    pub fn load_page(&mut self, number: u32, page: u32, version: u64, payload: &[u8]) {
        let Some(chunk) = self.chunks.get_mut(&number) else { return };
        self.dirty -= chunk.keeps_memory(page) as u64;
        let mut entries = Box::new(BLANK);
        for (entry, bytes) in entries.iter_mut().zip(payload.chunks_exact(8)) {
            *entry = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        let blank = *entries == BLANK;
        chunk.entries[page as usize] = (!blank).then_some(entries);
        chunk.versions[page as usize] = version;
        chunk.dirty &= !(1 << page);
        chunk.absent &= !(1 << page);
        let id = number * CHUNK_PAGES + page;
        match blank {
            true => self.loaded.remove(&id),
            false => self.loaded.insert(id, self.now),
        };
    }

    /// Takes a page out of memory that nobody needs just now. `false`: it has to stay.
    pub fn unload_page(&mut self, page: u32) -> bool {
        let Some(chunk) = self.chunks.get_mut(&(page / CHUNK_PAGES)) else { return false };
        let bit = 1 << (page % CHUNK_PAGES);
        let stays = (chunk.dirty | chunk.leaving) & bit != 0 && !mutant::active(Mutant::DirtyTablePageDropped);
        if stays || chunk.entries[(page % CHUNK_PAGES) as usize].is_none() {
            return false;
        }
        self.dirty -= chunk.keeps_memory(page % CHUNK_PAGES) as u64;
        chunk.dirty &= !bit;
        chunk.entries[(page % CHUNK_PAGES) as usize] = None;
        chunk.absent |= bit;
        self.loaded.remove(&page);
        true
    }

    /// Those of `pages` that are not in memory, `max` at most; the others were asked for at `now`.
    pub fn absent_in(&mut self, pages: Range<u32>, max: usize, now: u64) -> Vec<u32> {
        self.now = now;
        self.loaded.range_mut(pages.clone()).for_each(|(_, asked)| *asked = now);
        let chunks = self.chunks.range(pages.start / CHUNK_PAGES..pages.end.div_ceil(CHUNK_PAGES));
        let absent = chunks.flat_map(|(number, chunk)| {
            let all = (0..CHUNK_PAGES).filter(|page| !chunk.is_there(*page));
            all.map(move |page| number * CHUNK_PAGES + page)
        });
        absent.filter(|page| pages.contains(page)).take(max).collect()
    }

    /// Whether where `stripe` is can be told without loading its page.
    pub fn is_there(&self, stripe: u64) -> bool {
        let (chunk, page, _) = parts(stripe);
        self.chunks.get(&chunk).is_none_or(|chunk| chunk.is_there(page))
    }

    /// The stripes from `from` on that share the first page that there is.
    pub fn next_page(&self, from: u64) -> Option<Range<u64>> {
        let chunk = u32::try_from(from / CHUNK_ENTRIES).ok()?;
        let (number, _) = self.chunks.range(chunk..).next()?;
        let first = (u64::from(*number) * CHUNK_ENTRIES).max(from);
        Some(first..(first / PAGE_ENTRIES as u64 + 1) * PAGE_ENTRIES as u64)
    }

    /// Pages whose entries take memory; how many of them are dirty.
    pub fn in_memory(&self) -> (u64, u64) {
        (self.loaded.len() as u64, self.dirty)
    }

    /// When each page that takes memory was asked for last.
    pub fn loaded(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.loaded.iter().map(|(page, asked)| (*asked, *page))
    }

    /// The entries of a page for its next image, which has the version it returns: it is clean then, and leaves.
    pub fn take_image(&mut self, number: u32, page: u32) -> Option<(u64, &[u64])> {
        let chunk = self.chunks.get_mut(&number)?;
        self.dirty -= chunk.keeps_memory(page) as u64;
        chunk.dirty &= !(1 << page);
        chunk.leaving |= 1 << page;
        chunk.versions[page as usize] += 1;
        Some((chunk.versions[page as usize], chunk.page(page)))
    }

    /// The last image of a page is durable, and a checkpoint names it.
    pub fn has_left(&mut self, number: u32, page: u32) {
        if let Some(chunk) = self.chunks.get_mut(&number) {
            chunk.leaving &= !(1 << page);
        }
    }

    /// Notes that images up to version `begun` may lie where the next one of a page goes, and none is its truth: it is
    /// to be written anew.
    pub fn is_behind(&mut self, number: u32, page: u32, begun: u64) {
        if let Some(chunk) = self.chunks.get_mut(&number) {
            chunk.versions[page as usize] = begun;
            chunk.leaving &= !(1 << page);
            self.soil(number, page);
        }
    }

    /// Has the next checkpoint write a page, which is in memory.
    pub fn soil(&mut self, number: u32, page: u32) {
        let Some(chunk) = self.chunks.get_mut(&number).filter(|chunk| chunk.is_there(page)) else { return };
        let was = chunk.keeps_memory(page);
        chunk.dirty |= 1 << page;
        self.dirty += (chunk.keeps_memory(page) && !was) as u64;
    }

    /// Every mapped stripe of these, whose pages are in memory, in order.
    pub fn mapped_in(&self, stripes: Range<u64>) -> impl Iterator<Item = (u64, Place)> + '_ {
        let pages = self
            .chunks
            .range(Self::chunk_of(stripes.start)..)
            .flat_map(|(number, chunk)| (0..CHUNK_PAGES).map(move |page| (number * CHUNK_PAGES + page, chunk, page)));
        let (first, last) = (stripes.start, stripes.end);
        let pages = pages.skip_while(move |(id, ..)| Self::stripes_of(*id).end <= first);
        let pages = pages.take_while(move |(id, ..)| Self::stripes_of(*id).start < last);
        let entries = pages.flat_map(|(id, chunk, page)| Self::stripes_of(id).zip(chunk.page(page).iter()));
        let within = entries.filter(move |(stripe, _)| stripes.contains(stripe));
        within.filter_map(|(stripe, entry)| Some((stripe, unpack(*entry).place()?)))
    }

    /// Every mapped stripe from `from` on whose page is in memory, in order.
    pub fn mapped_from(&self, from: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        let pages = self.loaded.range((from / PAGE_ENTRIES as u64) as u32..).map(|(page, _)| Self::stripes_of(*page));
        pages.flat_map(move |stripes| self.mapped_in(stripes.start.max(from)..stripes.end))
    }
}

impl Chunk {
    /// A chunk that maps nothing, all of it still to be written.
    pub fn new(pages: PageRun) -> Chunk {
        let entries = [const { None }; CHUNK_PAGES as usize];
        Chunk { pages, entries, absent: 0, dirty: ALL, leaving: 0, versions: [0; CHUNK_PAGES as usize] }
    }

    /// A chunk whose pages lie on the disks.
    pub fn on_disks(pages: PageRun) -> Chunk {
        Chunk { absent: ALL, dirty: 0, ..Chunk::new(pages) }
    }

    /// Whether a page is in memory.
    pub fn is_there(&self, page: u32) -> bool {
        self.absent >> page & 1 == 0
    }

    /// The entries of one of its pages, which is in memory.
    fn page(&self, page: u32) -> &[u64] {
        assert!(self.is_there(page), "a page of a stripe table is loaded before it is looked at");
        self.entries[page as usize].as_deref().unwrap_or(&BLANK)
    }

    /// Whether a page takes memory that no eviction can have back.
    fn keeps_memory(&self, page: u32) -> bool {
        self.dirty >> page & 1 == 1 && self.entries[page as usize].is_some()
    }
}

/// The chunk of a stripe, the page in it, and which of its entries.
fn parts(stripe: u64) -> (u32, u32, usize) {
    let within = (stripe % CHUNK_ENTRIES) as usize;
    (Table::chunk_of(stripe), (within / PAGE_ENTRIES) as u32, within % PAGE_ENTRIES)
}

/// The entry of a stripe that is zeros: no place has it, since the upper half of those is not 0.
const ZERO: u64 = 1;

/// 0: unmapped; 1: zero; else segment + 1 in the upper half; in the lower one the index, and the birth above it.
fn pack(entry: Entry) -> u64 {
    match entry {
        Entry::Unmapped => 0,
        Entry::Zero => ZERO,
        Entry::At(place) => (place.segment.0 as u64 + 1) << 32 | u64::from(place.birth.above(place.index)),
    }
}

fn unpack(entry: u64) -> Entry {
    let (index, birth) = Birth::split(entry as u32);
    match (entry >> 32).checked_sub(1) {
        Some(segment) => Entry::At(Place { segment: SegmentNo(segment as u32), index, birth }),
        None if entry == ZERO => Entry::Zero,
        None => Entry::Unmapped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_set::DiskSet;
    use crate::geometry::{Layout, Resiliency};
    use crate::units::{ByteCount, INDEX_BITS, TableNo};

    #[test]
    fn entries_read_back_and_mark_their_page_dirty() {
        let layout = Layout::new(Resiliency::Simple, 1, ByteCount::kib(4)).unwrap();
        let mut table =
            Table::new(TableRecord { id: TableNo(1), layout, disks: DiskSet::EMPTY, packs: None, tier: None });
        assert_eq!(table.get(9000), None);
        assert_eq!(table.set(9000, None), Entry::Unmapped);
        let mut chunk = Chunk::new(PageRun { segment: SegmentNo(0), first: 0, count: CHUNK_PAGES });
        chunk.dirty = 0;
        table.chunks.insert(1, chunk);
        let place = Place { birth: Birth::of(7), ..Place::at(SegmentNo(0), (1 << INDEX_BITS) - 1) };
        assert_eq!(table.set(9000, Some(place)), Entry::Unmapped);
        assert_eq!(table.get(9000), Some(place));
        assert_eq!(table.get(9000).unwrap().birth, place.birth);
        assert_eq!(table.chunks[&1].dirty, 1 << ((9000 - CHUNK_ENTRIES) / PAGE_ENTRIES as u64));
        assert_eq!(table.mapped_from(8999).collect::<Vec<_>>(), [(9000, place)]);
        assert_eq!(table.mapped_from(9001).count(), 0);
        assert_eq!(table.mapped_in(9000..9001).collect::<Vec<_>>(), [(9000, place)]);
        assert_eq!(table.mapped_in(0..9000).count(), 0);
        assert_eq!(table.set(9000, Entry::Zero), Entry::At(place));
        assert_eq!((table.get(9000), table.entry(9000)), (None, Entry::Zero));
        let page = ((9000 - CHUNK_ENTRIES) / PAGE_ENTRIES as u64) as u32;
        let image: Vec<u8> = table.chunks[&1].page(page).iter().flat_map(|entry| entry.to_le_bytes()).collect();
        table.load_page(1, page, 7, &image);
        assert_eq!(table.entry(9000), Entry::Zero);
        assert_eq!(table.mapped_from(0).count(), 0);
        assert_eq!(table.set(9000, None), Entry::Zero);
    }

    #[test]
    fn a_page_leaves_memory_when_a_checkpoint_has_it_and_comes_back() {
        let layout = Layout::new(Resiliency::Simple, 1, ByteCount::kib(4)).unwrap();
        let mut table =
            Table::new(TableRecord { id: TableNo(1), layout, disks: DiskSet::EMPTY, packs: None, tier: None });
        table.chunks.insert(0, Chunk::new(PageRun { segment: SegmentNo(0), first: 0, count: CHUNK_PAGES }));
        let place = Place::at(SegmentNo(3), 4);
        table.set(600, Some(place));
        assert_eq!((table.in_memory(), table.unload_page(1)), ((1, 1), false), "it is dirty");
        let image: Vec<u8> = table.take_image(0, 1).unwrap().1.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        assert_eq!((table.in_memory(), table.unload_page(1)), ((1, 0), false), "it is on its way");
        table.has_left(0, 1);
        assert!(table.unload_page(1) && !table.is_there(600) && table.is_there(0));
        assert_eq!(table.absent_in(0..40, 9, 1), [1]);
        table.load_page(0, 1, 1, &image);
        assert_eq!((table.get(600), table.in_memory()), (Some(place), (1, 0)));
        table.is_behind(0, 1, 2);
        assert_eq!((table.in_memory(), table.chunks[&0].versions[1]), ((1, 1), 2));
    }
}
