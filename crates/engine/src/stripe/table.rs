//! The stripe table: virtual stripe number -> physical stripe, or unmapped. Kept in chunks of sixteen metadata pages,
//! made when the first stripe inside is mapped.
//!
//! Invariants
//! 1. An unmapped stripe costs nothing until its chunk exists; an absent chunk maps nothing.
//! 2. A page whose entries changed since its last image is marked dirty in the same step; a new chunk starts with all
//!    pages dirty, so that every page of a checkpointed chunk has an image and a missing one is damage.
//! 3. An entry is nothing, *zero*, or a place. Zero ends the search in a stack of tables: what older ones have there is
//!    not read. It takes no place.

use crate::format::page::{CHUNK_ENTRIES, CHUNK_PAGES, PAGE_ENTRIES};
use crate::format::record::{PageRun, TableRecord};
use crate::mutant::{self, Mutant};
use crate::units::{Birth, SegmentNo};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

/// Bytes of memory that the entries of a chunk take.
pub const CHUNK_BYTES: u64 = CHUNK_ENTRIES * size_of::<u64>() as u64;

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
    /// The segment that is being filled.
    pub current: Option<SegmentNo>,
    /// Free stripes in its segments.
    pub free: u64,
    /// How many of the free stripes are promised to buffers.
    pub claims: u64,
    /// Mapped stripes: those that its segments say are in use.
    pub mapped: u64,
}

/// A run of entries that share sixteen pages.
pub struct Chunk {
    /// Where the pages live.
    pub pages: PageRun,
    entries: Box<[u64]>,
    /// Pages (bits) that changed since their last image.
    pub dirty: u32,
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
            current: None,
            free: 0,
            claims: 0,
            mapped: 0,
        }
    }

    /// The chunk a stripe belongs to.
    pub fn chunk_of(stripe: u64) -> u32 {
        (stripe / CHUNK_ENTRIES) as u32
    }

    /// Where `stripe` is.
    pub fn get(&self, stripe: u64) -> Option<Place> {
        self.entry(stripe).place()
    }

    /// What there is of `stripe`.
    pub fn entry(&self, stripe: u64) -> Entry {
        let chunk = self.chunks.get(&Self::chunk_of(stripe));
        chunk.map_or(Entry::Unmapped, |chunk| unpack(chunk.entries[(stripe % CHUNK_ENTRIES) as usize]))
    }

    /// Sets the entry of `stripe` and returns what it was. Any but nothing needs the chunk to exist.
    pub fn set(&mut self, stripe: u64, entry: impl Into<Entry>) -> Entry {
        let entry = entry.into();
        let Some(chunk) = self.chunks.get_mut(&Self::chunk_of(stripe)) else {
            assert!(entry == Entry::Unmapped, "a stripe is mapped only where its chunk exists");
            return Entry::Unmapped;
        };
        let at = (stripe % CHUNK_ENTRIES) as usize;
        let before = unpack(core::mem::replace(&mut chunk.entries[at], pack(entry)));
        chunk.dirty |= 1 << (at / PAGE_ENTRIES);
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
    pub fn load_page(&mut self, chunk: u32, page: u32, version: u64, payload: &[u8]) {
        let Some(chunk) = self.chunks.get_mut(&chunk) else { return };
        let entries = &mut chunk.entries[page as usize * PAGE_ENTRIES..][..PAGE_ENTRIES];
        for (entry, bytes) in entries.iter_mut().zip(payload.chunks_exact(8)) {
            *entry = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        chunk.versions[page as usize] = version;
        chunk.dirty &= !(1 << page);
    }

    /// Notes that images up to version `begun` may lie where the next one of a page goes, and none is its truth: it is
    /// to be written anew.
    pub fn is_behind(&mut self, chunk: u32, page: u32, begun: u64) {
        let Some(chunk) = self.chunks.get_mut(&chunk) else { return };
        chunk.versions[page as usize] = begun;
        chunk.dirty |= 1 << page;
    }

    /// Every mapped stripe from `from` on, in order.
    pub fn mapped_from(&self, from: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        self.mapped_before(from, u64::MAX)
    }

    /// Every mapped stripe from `from` on, in order, as far as the chunk that `end` falls in.
    pub fn mapped_before(&self, from: u64, end: u64) -> impl Iterator<Item = (u64, Place)> + '_ {
        let last = (end / CHUNK_ENTRIES).min(u32::MAX.into()) as u32;
        let first = Self::chunk_of(from).min(last);
        self.chunks.range(first..=last).flat_map(move |(number, chunk)| {
            let first = *number as u64 * CHUNK_ENTRIES;
            let entries = chunk.entries.iter().enumerate().skip(from.saturating_sub(first) as usize);
            entries.filter_map(move |(at, entry)| Some((first + at as u64, unpack(*entry).place()?)))
        })
    }
}

impl Chunk {
    /// A chunk that maps nothing, all of it still to be written. Nothing can be mapped before there is room for it.
    pub fn new(pages: PageRun) -> Chunk {
        Chunk { pages, entries: Box::default(), dirty: (1 << CHUNK_PAGES) - 1, versions: [0; CHUNK_PAGES as usize] }
    }

    /// Takes the memory for its entries, if it has none yet.
    pub fn make_room(&mut self) {
        if self.entries.is_empty() {
            self.entries = vec![0; CHUNK_ENTRIES as usize].into_boxed_slice();
        }
    }

    /// The payload of one of its pages.
    pub fn page(&self, page: u32) -> &[u64] {
        &self.entries[page as usize * PAGE_ENTRIES..][..PAGE_ENTRIES]
    }
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
    use crate::geometry::{Layout, Resiliency};
    use crate::units::{ByteCount, INDEX_BITS, TableNo};

    #[test]
    fn entries_read_back_and_mark_their_page_dirty() {
        let layout = Layout::new(Resiliency::Simple, 1, ByteCount::kib(4)).unwrap();
        let mut table = Table::new(TableRecord { id: TableNo(1), layout, disks: 0, packs: None });
        assert_eq!(table.get(9000), None);
        assert_eq!(table.set(9000, None), Entry::Unmapped);
        let mut chunk = Chunk::new(PageRun { segment: SegmentNo(0), first: 0, count: CHUNK_PAGES });
        chunk.make_room();
        chunk.dirty = 0;
        table.chunks.insert(1, chunk);
        let place = Place { birth: Birth::of(7), ..Place::at(SegmentNo(0), (1 << INDEX_BITS) - 1) };
        assert_eq!(table.set(9000, Some(place)), Entry::Unmapped);
        assert_eq!(table.get(9000), Some(place));
        assert_eq!(table.get(9000).unwrap().birth, place.birth);
        assert_eq!(table.chunks[&1].dirty, 1 << ((9000 - CHUNK_ENTRIES) / PAGE_ENTRIES as u64));
        assert_eq!(table.mapped_from(8999).collect::<Vec<_>>(), [(9000, place)]);
        assert_eq!(table.mapped_from(9001).count(), 0);
        assert_eq!(table.set(9000, Entry::Zero), Entry::At(place));
        assert_eq!((table.get(9000), table.entry(9000)), (None, Entry::Zero));
        let image: Vec<u8> = table.chunks[&1].page(1).iter().flat_map(|entry| entry.to_le_bytes()).collect();
        table.load_page(1, 1, 7, &image);
        assert_eq!(table.entry(9000), Entry::Zero);
        assert_eq!(table.mapped_from(0).count(), 0);
        assert_eq!(table.set(9000, None), Entry::Zero);
    }
}
