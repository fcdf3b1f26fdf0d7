//! What lies in a read cache, and where: the index of one, in memory.
//!
//! The cache is cut into *zones* of some MiB, which are filled one after the other from front to end, so that its disks
//! are written in long pieces; the oldest is emptied when one is needed. What of it was asked for since it came is
//! written again, to the newest zone, up to half a zone; the rest goes. What comes in was missed twice: at the first
//! miss only its address is noted, in a table that forgets by itself. That is S3-FIFO (Yang, Zhang, Qiu, Yue and
//! Vigfusson, "FIFO Queues are All You Need for Cache Eviction", SOSP 2023) with its small queue left out, so that what
//! is wanted once never wears a disk: a scan passes by.
//!
//! Invariants
//! 1. An entry is a hint. It names a place and a birth, and is dropped in the step that frees the place; what it leads
//!    to is believed only once the checksums of the stripe prove it (`store/shelf.rs`).
//! 2. No two entries cover one block; of an entry that was replaced the zone may still know, and that counts for
//!    nothing.
//! 3. Its memory is bounded: entries by a number, what waits to be written by [`WAITING_MAX`] bytes. Beyond that the
//!    oldest zone goes, or what comes is not kept; nobody waits.

use crate::format::record::SlabAt;
use crate::format::zone::{Listed, ZONE_BLOCKS_MAX, index_blocks};
use crate::io::Buf;
use crate::mutant::{self, Mutant};
use crate::stripe::table::Place;
use crate::units::{BLOCK, Birth, ByteCount, SegmentNo};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The most blocks of one entry: 64 KiB.
pub const PIECE_MAX: usize = 16;
/// Bytes that wait to be written, at most.
pub const WAITING_MAX: u64 = 4 << 20;
/// Bytes of memory of an entry, about: in the tree of them, and in the list of its zone.
pub const ENTRY_MEMORY: u64 = 64;
/// The fewest and the most addresses that are noted.
const GHOSTS: Range<u64> = 1 << 10..1 << 20;

/// A number of a zone; none is given twice while the pool is open.
pub type ZoneNo = u32;

/// A block of a strip: segment, index, and column above block.
type Key = (SegmentNo, u32, u32);

fn key(place: Place, column: usize, block: usize) -> Key {
    (place.segment, place.index, (column as u32) << 16 | block as u32)
}

/// Blocks of one strip that lie side by side in a zone.
#[derive(Clone, Copy)]
struct Piece {
    birth: Birth,
    zone: ZoneNo,
    at: u16,
    count: u16,
    /// It was asked for since it came.
    wanted: bool,
}

/// Where blocks lie that were looked for.
#[derive(Clone)]
pub struct Hit {
    /// The slab. Who holds it keeps it from being given to anybody else.
    pub slab: Rc<[Option<SlabAt>]>,
    /// The first block in it.
    pub block: u64,
    /// How many.
    pub count: usize,
}

/// Blocks of a strip, and what is in them.
pub struct Fill {
    /// The stripe.
    pub place: Place,
    /// The data column.
    pub column: usize,
    /// The first block within the strip.
    pub block: usize,
    /// The bytes: whole blocks, [`PIECE_MAX`] at most.
    pub bytes: Buf,
}

impl Fill {
    fn count(&self) -> usize {
        self.bytes.len() / BLOCK as usize
    }
}

/// Part of a slab.
struct Zone {
    slab: Rc<[Option<SlabAt>]>,
    first: u32,
    blocks: u32,
    /// Which of them was begun before which; 0: it holds nothing.
    serial: u64,
    /// What was written to it, in that order.
    listed: Vec<Listed>,
    /// The first block that is free; the index comes before it.
    next: u32,
    /// How many of `listed` its index on the disk has.
    saved: usize,
}

/// Where to write something.
pub struct Spot {
    /// The zone.
    pub zone: ZoneNo,
    /// Its slab.
    pub slab: Rc<[Option<SlabAt>]>,
    /// The block of the slab.
    pub block: u64,
    /// The block of the zone.
    at: u32,
}

/// The index of a zone, as it is to be written.
pub struct Saving {
    /// Its slab.
    pub slab: Rc<[Option<SlabAt>]>,
    /// The first block of the zone in the slab.
    pub first: u32,
    /// Which version of the zone.
    pub serial: u64,
    /// The first block of the index that is to be written.
    pub from: usize,
    /// The pieces of that block and of those after it.
    pub pieces: Vec<Listed>,
}

/// What was done with a cache since the pool was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ShelfCounters {
    /// Bytes written to it.
    pub filled: u64,
    /// Bytes of those that it had before, and that were asked for.
    pub again: u64,
    /// Bytes that were to be kept and were not: its disks were busy.
    pub passed: u64,
    /// Pieces that were not what the checksums say.
    pub unproven: u64,
}

/// The index of one read cache.
pub struct Shelf {
    pieces: BTreeMap<Key, Piece>,
    zones: BTreeMap<ZoneNo, Zone>,
    next_zone: ZoneNo,
    serial: u64,
    /// The zone that is being filled.
    open: Option<ZoneNo>,
    /// What is to be written.
    waiting: VecDeque<Fill>,
    waiting_bytes: u64,
    /// Addresses that were missed once.
    ghosts: Vec<u32>,
    /// Entries, at most, in all lists of zones; and how many there are.
    most: usize,
    listed: usize,
    /// Blocks that it has.
    blocks: u64,
    /// The most memory that it took.
    pub peak: u64,
    /// See [`ShelfCounters`].
    pub counters: ShelfCounters,
}

/// A zone that holds nothing: its slab, its first block there, and how many blocks its index has.
pub type Unread = (ZoneNo, Rc<[Option<SlabAt>]>, u32, u32);

impl Shelf {
    /// An empty one of no zones, for a cache of `size`, with as many entries as fit `memory` bytes.
    pub fn new(size: ByteCount, memory: u64) -> Shelf {
        let ghosts = (size.0 / BLOCK).clamp(GHOSTS.start, GHOSTS.end);
        Shelf {
            pieces: BTreeMap::new(),
            zones: BTreeMap::new(),
            next_zone: 0,
            serial: 0,
            open: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            ghosts: vec![0; ghosts as usize],
            most: (memory / ENTRY_MEMORY) as usize,
            listed: 0,
            blocks: 0,
            peak: 0,
            counters: ShelfCounters::default(),
        }
    }

    /// Gives it these slabs of `slab` bytes: those that it had it keeps, with what lies there; others go.
    pub fn set_slabs(&mut self, slabs: impl Iterator<Item = SlabAt>, slab: ByteCount) {
        let mut old: BTreeMap<SlabAt, Vec<ZoneNo>> = BTreeMap::new();
        for (no, zone) in &self.zones {
            old.entry(zone.slab[0].expect("a zone has its slab")).or_default().push(*no);
        }
        for at in slabs {
            if old.remove(&at).is_some() {
                continue;
            }
            let (held, blocks): (Rc<[Option<SlabAt>]>, _) = (Rc::new([Some(at)]), (slab.0 / BLOCK) as u32);
            for first in (0..blocks).step_by(ZONE_BLOCKS_MAX as usize) {
                let blocks = ZONE_BLOCKS_MAX.min(blocks - first);
                let next = index_blocks(blocks);
                let (slab, listed) = (held.clone(), Vec::new());
                self.zones.insert(self.next_zone, Zone { slab, first, blocks, serial: 0, listed, next, saved: 0 });
                self.next_zone += 1;
            }
        }
        for no in old.into_values().flatten() {
            self.empty_zone(no);
            self.zones.remove(&no);
        }
    }

    /// What those hold who may read or write in a slab.
    pub fn known(&self, at: SlabAt) -> Option<Rc<[Option<SlabAt>]>> {
        self.zones.values().find(|zone| zone.slab[0] == Some(at)).map(|zone| zone.slab.clone())
    }

    /// Bytes that it takes in memory: entries, noted addresses, and what waits.
    pub fn memory(&self) -> u64 {
        self.listed as u64 * ENTRY_MEMORY + self.ghosts.len() as u64 * 4 + self.waiting_bytes
    }

    /// The most bytes that it may take; what is wanted of a zone that is emptied waits beside what comes.
    pub fn memory_max(&self) -> u64 {
        let again = u64::from(ZONE_BLOCKS_MAX) / 2 * BLOCK;
        self.most as u64 * ENTRY_MEMORY + self.ghosts.len() as u64 * 4 + WAITING_MAX + again
    }

    /// Bytes that it has.
    pub fn held(&self) -> ByteCount {
        ByteCount(self.blocks * BLOCK)
    }

    /// Where `blocks` of a column of the stripe at `place` lie, all of them. Nothing changes.
    pub fn find(&self, place: Place, column: usize, blocks: &Range<usize>) -> Option<Vec<Hit>> {
        let (mut hits, mut at) = (Vec::new(), blocks.start);
        while at < blocks.end {
            let (first, piece) = self.covering(place, column, at)?;
            let zone = &self.zones[&piece.zone];
            let end = (first + usize::from(piece.count)).min(blocks.end);
            let block = u64::from(zone.first) + u64::from(piece.at) + (at - first) as u64;
            hits.push(Hit { slab: zone.slab.clone(), block, count: end - at });
            at = end;
        }
        Some(hits)
    }

    /// Notes that these were asked for.
    pub fn want(&mut self, place: Place, column: usize, blocks: &Range<usize>) {
        let first = self.covering(place, column, blocks.start).map_or(blocks.start, |(first, _)| first);
        let range = key(place, column, first)..key(place, column, blocks.end);
        self.pieces.range_mut(range).for_each(|(_, piece)| piece.wanted = true);
    }

    /// The piece of this version of the stripe that has a block, and its first block.
    fn covering(&self, place: Place, column: usize, block: usize) -> Option<(usize, Piece)> {
        let range = key(place, column, 0)..=key(place, column, block);
        let (found, piece) = self.pieces.range(range).next_back()?;
        let first = (found.2 & 0xffff) as usize;
        let born = piece.birth == place.birth || mutant::active(Mutant::ShelfOutlivesPlace);
        (born && block < first + usize::from(piece.count)).then_some((first, *piece))
    }

    /// Takes note of a miss at an address. Whether it is not the first one, so that it is worth keeping what is read.
    pub fn missed(&mut self, address: u64) -> bool {
        // The finisher of splitmix64.
        let mut mixed = address.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let (place, print) = ((mixed % self.ghosts.len() as u64) as usize, (mixed >> 32) as u32 | 1);
        core::mem::replace(&mut self.ghosts[place], print) == print
    }

    /// Whether so many more bytes may wait to be written; else they count as passed by.
    pub fn may_wait(&mut self, bytes: u64) -> bool {
        let may = self.waiting_bytes + bytes <= WAITING_MAX && !self.zones.is_empty();
        self.counters.passed += if may { 0 } else { bytes };
        may
    }

    /// Has something written.
    pub fn wait(&mut self, fill: Fill) {
        self.waiting_bytes += fill.bytes.len() as u64;
        self.waiting.push_back(fill);
    }

    /// Has something written that was here before: first, so that it replaces nothing that came since.
    pub fn wait_again(&mut self, fill: Fill) {
        self.counters.again += fill.bytes.len() as u64;
        self.waiting_bytes += fill.bytes.len() as u64;
        self.waiting.push_front(fill);
    }

    /// Bytes that wait.
    pub fn waits(&self) -> u64 {
        self.waiting_bytes
    }

    /// Forgets what waits.
    pub fn forget_waiting(&mut self) {
        self.counters.passed += self.waiting_bytes;
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Whether the zone that is being filled has room; else one has to be begun.
    pub fn is_open(&self) -> bool {
        let zone = self.open.and_then(|no| self.zones.get(&no));
        zone.is_some_and(|zone| zone.next + PIECE_MAX as u32 <= zone.blocks)
    }

    /// The zone to be begun next, of those on disks that are `there`: an empty one, or the oldest; where there is only
    /// one, that one again.
    pub fn next_zone(&self, there: impl Fn(SlabAt) -> bool) -> Option<ZoneNo> {
        let on = |zone: &Zone| zone.slab[0].is_some_and(&there);
        let zones = self.zones.iter().filter(|(_, zone)| on(zone));
        zones.min_by_key(|(no, zone)| (zone.serial, **no)).map(|(no, _)| *no)
    }

    /// Empties a zone, which begins anew. Returns what of it was asked for, half of it at most: where it lies, its
    /// place, column and first block.
    pub fn begin_zone(&mut self, no: ZoneNo) -> Vec<(Hit, Place, usize, usize)> {
        let mut again = Vec::new();
        if let Some(zone) = self.zones.get(&no) {
            let mut left = zone.blocks as usize / 2;
            for listed in &zone.listed {
                let place = Place { segment: listed.segment, index: listed.index, birth: listed.birth };
                let key = key(place, listed.column.into(), listed.block.into());
                let wanted = self.pieces.get(&key).is_some_and(|piece| piece.wanted && piece.is(listed, no));
                let count = usize::from(listed.count);
                if wanted && count <= left {
                    left -= count;
                    let block = u64::from(zone.first) + u64::from(listed.at);
                    let hit = Hit { slab: zone.slab.clone(), block, count };
                    again.push((hit, place, listed.column.into(), listed.block.into()));
                }
            }
        }
        self.empty_zone(no);
        self.serial += 1;
        if let Some(zone) = self.zones.get_mut(&no) {
            zone.serial = self.serial;
            self.open = Some(no);
        }
        again
    }

    fn empty_zone(&mut self, no: ZoneNo) {
        let Some(zone) = self.zones.get_mut(&no) else { return };
        let listed = core::mem::take(&mut zone.listed);
        self.listed -= listed.len();
        (zone.serial, zone.saved, zone.next) = (0, 0, index_blocks(zone.blocks));
        self.open = self.open.filter(|open| *open != no);
        for listed in listed {
            let key = (listed.segment, listed.index, u32::from(listed.column) << 16 | u32::from(listed.block));
            if self.pieces.get(&key).is_some_and(|piece| piece.is(&listed, no)) {
                self.remove(&key);
            }
        }
    }

    /// Takes what waits, as much as goes side by side into the zone that is being filled and is no more than `most`
    /// bytes, and says where it goes.
    pub fn take(&mut self, most: usize) -> Option<(Spot, Vec<Fill>)> {
        let no = self.open?;
        let zone = self.zones.get_mut(&no)?;
        let (at, mut fills, mut blocks) = (zone.next, Vec::new(), 0);
        while let Some(next) = self.waiting.front() {
            let end = blocks + next.count();
            if zone.next as usize + end > zone.blocks as usize || end * BLOCK as usize > most && blocks > 0 {
                break;
            }
            blocks = end;
            fills.extend(self.waiting.pop_front());
        }
        zone.next += blocks as u32;
        self.waiting_bytes -= blocks as u64 * BLOCK;
        let block = u64::from(zone.first) + u64::from(at);
        (blocks > 0).then(|| (Spot { zone: no, slab: zone.slab.clone(), block, at }, fills))
    }

    /// What was taken lies there now; `again`: it had been here before. A zone that was given up, or begun anew,
    /// meanwhile has nothing of it.
    pub fn written(&mut self, spot: &Spot, fills: &[Fill]) {
        let mut at = spot.at;
        let is_there = self.open == Some(spot.zone) && self.zones.get(&spot.zone).is_some_and(|zone| zone.next > at);
        if !is_there {
            return;
        }
        for fill in fills {
            let listed = Listed {
                segment: fill.place.segment,
                index: fill.place.index,
                birth: fill.place.birth,
                column: fill.column as u16,
                block: fill.block as u16,
                count: fill.count() as u16,
                at: at as u16,
            };
            self.insert(spot.zone, listed);
            at += fill.count() as u32;
            self.counters.filled += fill.bytes.len() as u64;
        }
    }

    fn insert(&mut self, no: ZoneNo, listed: Listed) {
        let Some(zone) = self.zones.get_mut(&no) else { return };
        zone.listed.push(listed);
        self.listed += 1;
        self.blocks += u64::from(listed.count);
        let Listed { segment, index, birth, column, block, count, at } = listed;
        let place = Place { segment, index, birth };
        let (column, first, end) = (column.into(), usize::from(block), usize::from(block) + usize::from(count));
        // What overlaps it goes: it begins no more than a piece before.
        let from = key(place, column, first.saturating_sub(PIECE_MAX));
        let near = self.pieces.range(from..key(place, column, end));
        let overlaps = |found: &Key, piece: &Piece| (found.2 & 0xffff) as usize + usize::from(piece.count) > first;
        let gone: Vec<Key> = near.filter(|(found, piece)| overlaps(found, piece)).map(|(found, _)| *found).collect();
        gone.iter().for_each(|found| self.remove(found));
        self.pieces.insert(key(place, column, first), Piece { birth, zone: no, at, count, wanted: false });
        self.peak = self.peak.max(self.memory());
    }

    fn remove(&mut self, key: &Key) {
        if let Some(piece) = self.pieces.remove(key) {
            self.blocks -= u64::from(piece.count);
        }
    }

    /// Empties the oldest zones until what is listed fits the memory.
    pub fn trim(&mut self) {
        while self.listed > self.most {
            let used = self.zones.iter().filter(|(_, zone)| zone.serial > 0);
            let Some((oldest, _)) = used.min_by_key(|(_, zone)| zone.serial) else { return };
            let oldest = *oldest;
            self.empty_zone(oldest);
        }
    }

    /// Forgets the stripe at a place.
    pub fn forget(&mut self, place: Place) {
        self.forget_range(key(place, 0, 0)..=(place.segment, place.index, u32::MAX));
        self.waiting
            .iter()
            .filter(|fill| fill.place == place)
            .for_each(|fill| self.waiting_bytes -= fill.bytes.len() as u64);
        self.waiting.retain(|fill| fill.place != place);
    }

    /// Forgets all stripes of a segment.
    pub fn forget_segment(&mut self, segment: SegmentNo) {
        self.forget_range((segment, 0, 0)..=(segment, u32::MAX, u32::MAX));
        let of = |fill: &&Fill| fill.place.segment == segment;
        self.waiting_bytes -= self.waiting.iter().filter(of).map(|fill| fill.bytes.len() as u64).sum::<u64>();
        self.waiting.retain(|fill| fill.place.segment != segment);
    }

    /// Forgets blocks that were not what they should be.
    pub fn forget_blocks(&mut self, place: Place, column: usize, blocks: &Range<usize>) {
        let first = self.covering(place, column, blocks.start).map_or(blocks.start, |(first, _)| first);
        self.forget_range(key(place, column, first)..=key(place, column, blocks.end.saturating_sub(1)));
    }

    fn forget_range(&mut self, range: core::ops::RangeInclusive<Key>) {
        while let Some((found, _)) = self.pieces.range(range.clone()).next() {
            let found = *found;
            self.remove(&found);
        }
    }

    /// The index of the zone that is being filled, where as much was written since it was saved last that it is worth
    /// it; `all`: where anything was.
    pub fn saving(&self, all: bool) -> Option<(ZoneNo, Saving)> {
        let no = self.open?;
        let zone = self.zones.get(&no)?;
        let unsaved: u32 = zone.listed[zone.saved..].iter().map(|listed| u32::from(listed.count)).sum();
        let full = zone.next + PIECE_MAX as u32 > zone.blocks;
        if unsaved == 0 || !(all || full || unsaved >= zone.blocks / 8) {
            return None;
        }
        let from = zone.saved / crate::format::zone::ZONE_ENTRIES;
        let pieces = zone.listed[from * crate::format::zone::ZONE_ENTRIES..].to_vec();
        Some((no, Saving { slab: zone.slab.clone(), first: zone.first, serial: zone.serial, from, pieces }))
    }

    /// That index is on the disk.
    pub fn saved(&mut self, no: ZoneNo, saving: &Saving) {
        if let Some(zone) = self.zones.get_mut(&no).filter(|zone| zone.serial == saving.serial) {
            let saved = saving.from * crate::format::zone::ZONE_ENTRIES + saving.pieces.len();
            zone.saved = zone.saved.max(saved.min(zone.listed.len()));
        }
    }

    /// The zones that hold nothing: their slab, their first block there, and how many blocks their index has.
    pub fn unread(&self) -> Vec<Unread> {
        let unread = self.zones.iter().filter(|(_, zone)| zone.serial == 0);
        unread.map(|(no, zone)| (*no, zone.slab.clone(), zone.first, index_blocks(zone.blocks))).collect()
    }

    /// Takes what the index of a zone says, of what is `there` still. Entries that are newer stay.
    pub fn load(&mut self, no: ZoneNo, serial: u64, pieces: Vec<Listed>, there: impl Fn(&Listed) -> bool) {
        let Some(zone) = self.zones.get(&no).filter(|zone| zone.serial == 0) else { return };
        let (index, blocks) = (index_blocks(zone.blocks), zone.blocks);
        if serial == 0 || serial > 1 << 62 || self.listed + pieces.len() > self.most {
            return;
        }
        self.serial = self.serial.max(serial);
        let fits = |listed: &Listed| {
            let end = u32::from(listed.at) + u32::from(listed.count);
            let count = usize::from(listed.count);
            u32::from(listed.at) >= index && end <= blocks && (1..=PIECE_MAX).contains(&count)
        };
        let mut next = index;
        for listed in pieces.into_iter().filter(|listed| fits(listed) && there(listed)) {
            next = next.max(u32::from(listed.at) + u32::from(listed.count));
            self.insert(no, listed);
        }
        if let Some(zone) = self.zones.get_mut(&no) {
            (zone.serial, zone.next, zone.saved) = (serial, next, zone.listed.len());
        }
    }
}

impl Piece {
    /// Whether it is that which a zone lists.
    fn is(&self, listed: &Listed, zone: ZoneNo) -> bool {
        (self.zone, self.at, self.birth) == (zone, listed.at, listed.birth)
    }
}

#[cfg(test)]
mod tests;
