//! The write-back cache of a space: a container on disks of the pool, with a log of slots and a data area of chunks.
//!
//! Facts (STORAGE_SPACES.md 1.10, measured there on Windows 11 24H2 unless marked)
//! 1. The container is a mirror. Its columns are not stated; here as many as the disks give, with the interleave of
//!    256 KiB that every mirror gets by default (1.6, 1.7: inferred).
//! 2. The log has 1024 slots of 4 KiB; one write request takes one, requests that come together share one, which names
//!    up to 244 entries. A write into sectors that are cached already takes none.
//! 3. The data area is cut in chunks of one stripe of data each.
//! 4. Nothing is destaged by time. When there is no slot left, everything is. That the same happens when there is no
//!    chunk left is inferred; a request waits meanwhile.
//! 5. How much of that goes on at once is **not known**. [`Unit::Slot`] takes one slot's entries at a time, oldest slot
//!    first, as a ring is emptied, flushes the disks before the slot counts as free (P36 calls that "per-slot
//!    flushes"), and records in a checkpoint where the log begins now; the others bound what follows from it.
//! 6. What was cached is read back from the container; the rest of a stripe that is cached in part is read from the
//!    array; then the stripe is written whole.
//! 7. The older profile ([`Style::Levels`], 2012 R2): destaging begins when the cache is half full and ends at a
//!    quarter (S2 L122), beside the writes; what its log is like is not known, so it has none that could wrap. What was
//!    destaged is durable before its chunk is free; here one chunk after the other (inferred from Q61 and Q62, which
//!    are otherwise out of reach).

use super::ranges::Ranges;
use super::rows::{Rows, SLAB, Shape, Slabs};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use weft_engine::sync::Signal;

/// Slots of the log.
pub const SLOTS: usize = 1024;
/// Bytes of one.
pub const SLOT: u64 = 4096;
/// Entries that one names.
pub const ENTRIES: usize = 244;
/// Where the first checkpoint lies: behind the log.
pub const CHECKPOINT: u64 = 4 << 20;
/// Where the chunks begin: behind the log and the two checkpoints.
const CHUNKS: u64 = 8 << 20;

/// How much is destaged at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// What one slot names, which is what one request wrote, or several that came together.
    Slot,
    /// A number of stripes.
    Stripes(usize),
}

/// When what was destaged is made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushes {
    /// After each unit.
    Each,
    /// When all is done.
    Last,
}

/// What makes a cache destage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Its log or its room has come to an end: everything, while writers wait; with a flush after each unit, or one at
    /// the end.
    Wraps(Unit, Flushes),
    /// It is half full: down to a quarter, beside the writers.
    Levels,
}

/// A cache.
pub struct Cache {
    /// Where the container lies.
    pub rows: Rows,
    /// What makes it destage.
    pub style: Style,
    /// Slots it has.
    slots_max: usize,
    chunk: u64,
    chunks: u64,
    held: RefCell<BTreeMap<u64, Chunk>>,
    free: RefCell<BTreeSet<u64>>,
    cursor: Cell<u64>,
    /// What each slot names, oldest first.
    slots: RefCell<VecDeque<Vec<u64>>>,
    written: Cell<u64>,
    log: Log,
}

/// What is cached of a stripe.
pub struct Chunk {
    place: u64,
    /// Bytes of the stripe that are there.
    pub valid: Ranges,
}

/// Requests whose slot is not written yet.
#[derive(Default)]
struct Log {
    gathered: RefCell<Vec<u64>>,
    gathers: Cell<u64>,
    recorded: Cell<u64>,
    writing: Cell<bool>,
    changed: Signal,
}

impl Cache {
    /// A container of `size` on the disks `among`, `copies` of everything, for stripes of `chunk` bytes.
    pub fn new(size: u64, chunk: u64, copies: u64, among: Vec<usize>, style: Style, slabs: &mut Slabs) -> Cache {
        let columns = (among.len() as u64 / copies).clamp(1, 8);
        let shape = Shape { columns, parity: 0, copies, interleave: 256 << 10 };
        let mut rows = Rows::new(shape, among);
        for row in 0..(CHUNKS + size).div_ceil(columns * SLAB) {
            rows.add(row, slabs);
        }
        let chunks = size / chunk;
        assert!(chunks > 0, "a cache of {size} bytes holds no stripe of {chunk}");
        Cache {
            rows,
            style,
            slots_max: if style == Style::Levels { usize::MAX } else { SLOTS - 1 },
            chunk,
            chunks,
            held: RefCell::default(),
            free: RefCell::new((0..chunks).collect()),
            cursor: Cell::new(0),
            slots: RefCell::default(),
            written: Cell::new(0),
            log: Log::default(),
        }
    }

    /// Whether a request that needs so many new chunks, and a slot, has room.
    pub fn has_room(&self, new: usize) -> bool {
        self.slots.borrow().len() < self.slots_max && self.free.borrow().len() >= new
    }

    /// How many of these stripes have no chunk.
    pub fn without_chunk(&self, stripes: Range<u64>) -> usize {
        let held = self.held.borrow();
        stripes.filter(|stripe| !held.contains_key(stripe)).count()
    }

    /// Stripes it can hold.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The part of it that is taken.
    pub fn fill(&self) -> f64 {
        1.0 - self.free.borrow().len() as f64 / self.chunks as f64
    }

    /// Takes in bytes `part` of a stripe: where they go, and whether any of them is new to the cache.
    pub fn take_in(&self, stripe: u64, part: Range<u64>) -> (Range<u64>, bool) {
        let mut held = self.held.borrow_mut();
        let chunk = held.entry(stripe).or_insert_with(|| Chunk { place: self.place(), valid: Ranges::default() });
        let new = !chunk.valid.covers(&part);
        chunk.valid.insert(part.clone());
        let at = CHUNKS + chunk.place * self.chunk;
        (at + part.start..at + part.end, new)
    }

    /// The next free chunk.
    fn place(&self) -> u64 {
        let mut free = self.free.borrow_mut();
        let next = free.range(self.cursor.get()..).next().or_else(|| free.iter().next());
        let place = *next.expect("room was made before");
        free.remove(&place);
        self.cursor.set(place + 1);
        place
    }

    /// Where the cached ones of a stripe's bytes lie, and those of the stripe that are not cached.
    pub fn find(&self, stripe: u64, part: Range<u64>) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let held = self.held.borrow();
        let Some(chunk) = held.get(&stripe) else { return (Vec::new(), vec![part]) };
        let at = CHUNKS + chunk.place * self.chunk;
        let there = chunk.valid.within(part.clone()).into_iter().map(|range| at + range.start..at + range.end);
        (there.collect(), chunk.valid.missing(part))
    }

    /// Adds entries to the log and waits until a slot that names them is written by `write`, which gets its place.
    pub async fn record<F: Future<Output = ()>>(&self, entries: &[u64], write: impl Fn(Range<u64>) -> F) {
        self.log.gathered.borrow_mut().extend_from_slice(entries);
        let mine = self.log.gathers.get();
        while self.log.recorded.get() <= mine {
            if self.log.writing.get() {
                self.log.changed.changed().await;
                continue;
            }
            self.log.writing.set(true);
            let gathered = self.log.gathered.take();
            let nth = self.log.gathers.replace(self.log.gathers.get() + 1);
            let slots: Vec<Vec<u64>> = match gathered.is_empty() {
                true => vec![Vec::new()],
                false => gathered.chunks(ENTRIES).map(<[u64]>::to_vec).collect(),
            };
            let first = self.written.replace(self.written.get() + slots.len() as u64) % SLOTS as u64;
            let last = (first + slots.len() as u64).min(SLOTS as u64);
            write(first * SLOT..last * SLOT).await;
            self.slots.borrow_mut().extend(slots);
            self.log.recorded.set(nth + 1);
            self.log.writing.set(false);
            self.log.changed.notify();
        }
    }

    /// Stripes to destage next; none: nothing is left.
    pub fn next_unit(&self, unit: Unit) -> Option<Vec<u64>> {
        let mut slots = self.slots.borrow_mut();
        // Slots that name nothing, of requests that went past the cache, only make room.
        let mut stripes = std::iter::from_fn(|| slots.pop_front()).find(|stripes| !stripes.is_empty())?;
        if let Unit::Stripes(most) = unit {
            while stripes.len() < most
                && let Some(more) = slots.pop_front()
            {
                stripes.extend(more);
            }
            if stripes.len() > most {
                slots.push_front(stripes.split_off(most));
            }
        }
        stripes.sort_unstable();
        stripes.dedup();
        Some(stripes)
    }

    /// Takes a chunk out, and where its bytes lie; its place is free after [`Cache::release`].
    pub fn take_out(&self, stripe: u64) -> Option<(Chunk, Vec<Range<u64>>)> {
        let (there, _) = self.find(stripe, 0..self.chunk);
        self.held.borrow_mut().remove(&stripe).map(|chunk| (chunk, there))
    }

    /// Frees the place of a chunk.
    pub fn release(&self, chunk: &Chunk) {
        self.free.borrow_mut().insert(chunk.place);
    }

    /// Begins at the first chunk again: all are free.
    pub fn rewind(&self) {
        if self.free.borrow().len() as u64 == self.chunks {
            self.cursor.set(0);
        }
    }
}
