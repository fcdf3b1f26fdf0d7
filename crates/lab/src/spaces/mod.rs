//! A model of Storage Spaces that the same workloads run against as against weft: the mechanisms that are documented or
//! were measured, on simulated disks in virtual time. Nothing in it knows a rate, a knee or a collapse; those follow.
//!
//! Facts (STORAGE_SPACES.md, sections in front; what is inferred is marked)
//! 1. 1.10: a request of whole stripes that were never written goes straight to the disks, parity with it, and takes
//!    one slot of the log. Any other request goes to the cache ([`cache`]) as a whole: the test is on the request.
//!    (How the stripes of a request that is whole in part are treated is not stated.)
//! 2. 1.10: a stripe that was written is consistent, and never rewritten in place: its next write goes to the cache.
//! 3. 1.8: thin: a row gets its slabs with the first write, one update of the pool's database for each row (on up to
//!    five disks, 1.12), at destage where there is a cache. Fixed: all at creation.
//! 4. 1.8: TRIM gives a row back when all of it is free; partly used ones stay as they are. (That a row which was given
//!    back is as if never written is inferred.)
//! 5. 1.10: simple spaces and mirrors on hard disks have no cache. With one on solid-state disks it takes requests up
//!    to 256 KiB; longer ones go past it (1.10, semantics).
//! 6. 1.13: a mirror notes in its dirty-region log the first write to a slab, before that write. (Cleaning it takes 30
//!    idle seconds and is left out.)
//! 7. 1.14: a flush reaches the disks as a flush, and a write that must be durable as a write-through; ordinary writes
//!    stay in their write caches. (Whether slots of ordinary writes are flushed one by one is not stated; here
//!    they are not.)
//! 8. S1 L44: mirrors read from either copy.

pub mod array;
pub mod cache;
pub mod drive;
pub mod ranges;
pub mod rows;
#[cfg(test)]
mod tests;

use crate::volume::{Done, Volume};
use array::{Array, Kind, Part, merged};
use cache::{CHECKPOINT, Cache, Flushes, Style, Unit};
use ranges::Ranges;
use rows::{Rows, Shape, Slabs};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use weft_engine::store::join;
use weft_engine::sync::{Signal, Turn};
use weft_engine::world::World;
use weft_sim::world::SimWorld;

/// Where the pool's database lies on each disk.
const DATABASE: u64 = 16 << 20;
/// Bytes of one of its records.
const RECORD: u64 = 4096;
/// The longest request that the cache of a mirror takes.
const SMALL: u64 = 256 << 10;

/// Mechanisms that a test can take out, to see what follows from them.
#[derive(Clone, Copy, Debug)]
pub struct Mechanisms {
    /// Whole new stripes go past the cache.
    pub bypass: bool,
    /// Stripes once written are never rewritten in place.
    pub consistent: bool,
    /// Stripes cached in part are completed by reading.
    pub completes: bool,
    /// TRIM gives rows back.
    pub trim: bool,
    /// Only the ends of a request that is whole in part go to the cache: the other reading of what is documented.
    pub split: bool,
}

impl Mechanisms {
    /// All of them, as documented.
    pub const ALL: Mechanisms =
        Mechanisms { bypass: true, consistent: true, completes: true, trim: true, split: false };
}

/// A space, as it is created.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The disks of the pool.
    pub disks: Vec<Kind>,
    /// Those that data may lie on.
    pub data: Vec<usize>,
    /// Shape.
    pub shape: Shape,
    /// Whether rows get slabs when they are first written.
    pub thin: bool,
    /// Its size; fixed ones get all slabs at once.
    pub size: u64,
    /// Bytes of the cache, and the disks it lies on.
    pub cache: Option<(u64, Vec<usize>)>,
    /// What makes it destage.
    pub style: Style,
    /// Slabs of each disk that data have which are not looked at: they lie between the cache and what is written now.
    pub used: u64,
    /// What works.
    pub mechanisms: Mechanisms,
}

impl Spec {
    /// A thin space of this shape on hard disks, with what 24H2 gives it: a cache of 1 GiB on the same disks for
    /// parity, none else.
    pub fn on(disks: Vec<Kind>, shape: Shape) -> Spec {
        let data: Vec<usize> = (0..disks.len()).collect();
        let cache = (shape.parity > 0).then(|| (1 << 30, data.clone()));
        let style = Style::Wraps(Unit::Slot, Flushes::Each);
        let size = 1 << 40;
        Spec { disks, data, shape, thin: true, size, cache, style, used: 0, mechanisms: Mechanisms::ALL }
    }
}

/// A space. A handle: clones are the same.
#[derive(Clone)]
pub struct Space(Rc<Inner>);

struct Inner {
    array: Rc<Array>,
    mechanisms: Mechanisms,
    thin: bool,
    slabs: RefCell<Slabs>,
    rows: RefCell<Rows>,
    cache: Option<Cache>,
    /// Stripes that were written.
    consistent: RefCell<Ranges>,
    trimmed: RefCell<Ranges>,
    /// Rows that the dirty-region log names.
    dirty: RefCell<BTreeSet<u64>>,
    allocating: Turn,
    /// Requests under way; closed: none may begin.
    busy: Cell<u64>,
    closed: Cell<bool>,
    destaging: Cell<bool>,
    changed: Signal,
}

/// How a request is written.
enum Way {
    Straight,
    Bypass,
    Cached(Vec<Range<u64>>, Vec<u64>),
}

impl Space {
    /// A new space on new disks.
    pub fn new(spec: &Spec) -> Space {
        let mut slabs = Slabs::new(spec.disks.len());
        let copies = if spec.shape.parity > 0 { spec.shape.parity + 1 } else { spec.shape.copies };
        let cache = spec.cache.as_ref();
        let cache =
            cache.map(|(size, on)| Cache::new(*size, spec.shape.stripe(), copies, on.clone(), spec.style, &mut slabs));
        slabs.skip(spec.used);
        let mut rows = Rows::new(spec.shape, spec.data.clone());
        if !spec.thin {
            (0..spec.size.div_ceil(spec.shape.row())).for_each(|row| rows.add(row, &mut slabs));
        }
        Space(Rc::new(Inner {
            array: Array::new(&spec.disks),
            mechanisms: spec.mechanisms,
            thin: spec.thin,
            slabs: RefCell::new(slabs),
            rows: RefCell::new(rows),
            cache,
            consistent: RefCell::default(),
            trimmed: RefCell::default(),
            dirty: RefCell::default(),
            allocating: Turn::default(),
            busy: Cell::new(0),
            closed: Cell::new(false),
            destaging: Cell::new(false),
            changed: Signal::new(),
        }))
    }
}

impl Volume for Space {
    fn world(&self) -> SimWorld {
        self.0.array.world.clone()
    }

    fn write(&self, at: u64, len: u64, durable: bool) -> Done {
        let space = self.0.clone();
        Box::pin(async move { space.write(at..at + len, durable).await })
    }

    fn read(&self, at: u64, len: u64) -> Done {
        let space = self.0.clone();
        Box::pin(async move {
            let parts = space.holders(at..at + len);
            space.array.read(&parts).await;
        })
    }

    fn flush(&self) -> Done {
        let space = self.0.clone();
        Box::pin(async move { space.array.flush_all().await })
    }

    fn forget(&self, at: u64, len: u64) -> Done {
        self.0.trim(at..at + len);
        Box::pin(std::future::ready(()))
    }

    fn moved(&self) -> (u64, u64) {
        self.0.array.moved()
    }
}

// Writing.
impl Inner {
    async fn write(self: Rc<Self>, bytes: Range<u64>, durable: bool) {
        let parts = self.split(bytes);
        let one = |part| self.clone().write_part(part, durable);
        join(parts.into_iter().map(one)).await;
    }

    /// The ends of a request and the whole stripes between them, if they go different ways.
    fn split(&self, bytes: Range<u64>) -> Vec<Range<u64>> {
        let stripe = self.rows.borrow().shape.stripe();
        let whole = bytes.start.next_multiple_of(stripe)..bytes.end / stripe * stripe;
        if !self.mechanisms.split || whole.start >= whole.end {
            return vec![bytes];
        }
        let parts = [bytes.start..whole.start, whole.clone(), whole.end..bytes.end];
        parts.into_iter().filter(|part| part.start < part.end).collect()
    }

    async fn write_part(self: Rc<Self>, bytes: Range<u64>, durable: bool) {
        self.trimmed.borrow_mut().remove(bytes.clone());
        let way = loop {
            self.changed.until(|| !self.closed.get()).await;
            match self.way(&bytes) {
                Some(way) => break way,
                None => self.make_room().await,
            }
        };
        self.busy.set(self.busy.get() + 1);
        match way {
            Way::Straight => self.write_straight(bytes, durable).await,
            Way::Bypass => self.write_past_cache(bytes, durable).await,
            Way::Cached(places, new) => self.write_to_cache(places, &new, durable).await,
        }
        self.busy.set(self.busy.get() - 1);
        self.changed.notify();
        self.destage_by_level();
    }

    /// How a request goes, with its room in the cache taken; none: there is no room.
    fn way(&self, bytes: &Range<u64>) -> Option<Way> {
        let Some(cache) = &self.cache else { return Some(Way::Straight) };
        let shape = self.rows.borrow().shape;
        if shape.parity == 0 && bytes.end - bytes.start > SMALL {
            return Some(Way::Straight);
        }
        let stripe = shape.stripe();
        let stripes = bytes.start / stripe..bytes.end.div_ceil(stripe);
        let whole = bytes.start.is_multiple_of(stripe) && bytes.end.is_multiple_of(stripe);
        let new = !self.consistent.borrow().meets(&stripes)
            && cache.without_chunk(stripes.clone()) == stripes.clone().count();
        if shape.parity > 0 && whole && new && self.mechanisms.bypass {
            return cache.has_room(0).then_some(Way::Bypass);
        }
        if !cache.has_room(cache.without_chunk(stripes.clone())) {
            return None;
        }
        let (mut places, mut entries) = (Vec::new(), Vec::new());
        for no in stripes {
            let part = bytes.start.max(no * stripe) - no * stripe..bytes.end.min((no + 1) * stripe) - no * stripe;
            let (place, new) = cache.take_in(no, part);
            places.push(place);
            entries.extend(new.then_some(no));
        }
        Some(Way::Cached(places, entries))
    }

    /// Writes in place.
    async fn write_straight(&self, bytes: Range<u64>, durable: bool) {
        self.allocate(bytes.clone()).await;
        let copies = self.rows.borrow().shape.copies;
        if copies > 1 {
            let rows = self.rows.borrow().of(&bytes);
            for row in rows {
                if self.dirty.borrow_mut().insert(row) {
                    self.note(copies as usize).await;
                }
            }
        }
        let parts = self.rows.borrow().data(bytes, true);
        self.put(&parts, durable).await;
    }

    async fn write_past_cache(&self, bytes: Range<u64>, durable: bool) {
        self.allocate(bytes.clone()).await;
        let stripe = self.rows.borrow().shape.stripe();
        let stripes = bytes.start / stripe..bytes.end / stripe;
        let parts = self.rows.borrow().whole(stripes.clone());
        self.put(&parts, durable).await;
        self.note_slot(&[], durable).await;
        self.remember(stripes);
    }

    async fn write_to_cache(&self, places: Vec<Range<u64>>, new: &[u64], durable: bool) {
        let Some(cache) = &self.cache else { return };
        let parts = merged(places.into_iter().flat_map(|place| cache.rows.data(place, true)).collect());
        self.put(&parts, durable).await;
        if !new.is_empty() {
            self.note_slot(new, durable).await;
        }
    }

    /// Writes parts, through the disks' caches if it must be durable.
    async fn put(&self, parts: &[Part], durable: bool) {
        match durable {
            true => self.array.write_through(parts).await,
            false => self.array.write(parts).await,
        }
    }

    async fn note_slot(&self, entries: &[u64], durable: bool) {
        let Some(cache) = &self.cache else { return };
        let write = |place: Range<u64>| async {
            let parts = cache.rows.data(place, true);
            self.put(&parts, durable).await;
        };
        cache.record(entries, write).await;
    }

    fn remember(&self, stripes: Range<u64>) {
        if self.mechanisms.consistent {
            self.consistent.borrow_mut().insert(stripes);
        }
    }

    /// Gives the rows of these bytes slabs, where they have none.
    async fn allocate(&self, bytes: Range<u64>) {
        let rows = self.rows.borrow().of(&bytes);
        for row in rows {
            if self.rows.borrow().has(row) {
                continue;
            }
            let turn = self.allocating.take().await;
            if !self.rows.borrow().has(row) {
                self.note(5).await;
                self.rows.borrow_mut().add(row, &mut self.slabs.borrow_mut());
            }
            drop(turn);
        }
    }

    /// Writes a record to the first `most` disks, durably.
    async fn note(&self, most: usize) {
        let disks = 0..self.array.count().min(most);
        let parts: Vec<Part> = disks.map(|disk| Part { disk, at: DATABASE, len: RECORD }).collect();
        self.put(&parts, true).await;
    }
}

// Destaging.
impl Inner {
    /// Ends when there may be room in the cache.
    async fn make_room(self: &Rc<Self>) {
        let Some(cache) = &self.cache else { return };
        let Style::Wraps(unit, flushes) = cache.style else {
            self.destage_by_level();
            return self.changed.changed().await;
        };
        if self.closed.replace(true) {
            return;
        }
        self.changed.until(|| self.busy.get() == 0).await;
        while let Some(stripes) = cache.next_unit(unit) {
            self.destage(cache, stripes).await;
            if flushes == Flushes::Each {
                self.advance_tail(cache).await;
            }
        }
        cache.rewind();
        self.advance_tail(cache).await;
        self.closed.set(false);
        self.changed.notify();
    }

    /// Makes durable what was destaged, then records that its slots are free: without the record, the log would be
    /// replayed from where it began, over slots that were used again.
    async fn advance_tail(&self, cache: &Cache) {
        self.array.flush_all().await;
        let checkpoint = cache.rows.data(CHECKPOINT..CHECKPOINT + RECORD, true);
        self.put(&checkpoint, true).await;
    }

    /// Begins to destage beside the writers when the cache is half full; ends at a quarter.
    fn destage_by_level(self: &Rc<Self>) {
        let Some(cache) = &self.cache else { return };
        if cache.style != Style::Levels || cache.fill() < 0.5 || self.destaging.replace(true) {
            return;
        }
        let space = self.clone();
        let task = async move {
            let Some(cache) = &space.cache else { return };
            while cache.fill() > 0.25
                && let Some(stripes) = cache.next_unit(Unit::Stripes(1))
            {
                space.destage(cache, stripes).await;
                space.advance_tail(cache).await;
                space.changed.notify();
            }
            space.destaging.set(false);
        };
        self.array.world.spawn("destage", Box::pin(task));
    }

    /// Brings these stripes from the cache to their places.
    async fn destage(&self, cache: &Cache, stripes: Vec<u64>) {
        let shape = self.rows.borrow().shape;
        let len = shape.stripe();
        let (mut reads, mut chunks) = (Vec::new(), Vec::new());
        for stripe in stripes {
            let Some((chunk, there)) = cache.take_out(stripe) else { continue };
            reads.extend(there.into_iter().flat_map(|place| cache.rows.data(place, false)));
            if shape.parity > 0 && self.mechanisms.completes {
                let rest = chunk.valid.missing(0..len).into_iter();
                let rest = rest.map(|part| stripe * len + part.start..stripe * len + part.end);
                reads.extend(rest.flat_map(|bytes| self.rows.borrow().data(bytes, false)));
            }
            chunks.push((stripe, chunk));
        }
        self.array.read(&merged(reads)).await;
        for (stripe, _) in &chunks {
            self.allocate(stripe * len..(stripe + 1) * len).await;
        }
        let place = |(stripe, chunk): &(u64, cache::Chunk)| match shape.parity {
            0 => {
                let there = chunk.valid.within(0..len).into_iter();
                let there = there.map(|part| stripe * len + part.start..stripe * len + part.end);
                there.flat_map(|bytes| self.rows.borrow().data(bytes, true)).collect()
            }
            _ => self.rows.borrow().whole(*stripe..stripe + 1),
        };
        let writes: Vec<Part> = chunks.iter().flat_map(place).collect();
        self.array.write(&merged(writes)).await;
        for (stripe, chunk) in &chunks {
            self.remember(*stripe..stripe + 1);
            cache.release(chunk);
        }
    }
}

// Reading and trimming.
impl Inner {
    /// Where these bytes are to be read.
    fn holders(&self, bytes: Range<u64>) -> Vec<Part> {
        let rows = self.rows.borrow();
        let Some(cache) = &self.cache else { return rows.data(bytes, false) };
        let len = rows.shape.stripe();
        let mut parts = Vec::new();
        for no in bytes.start / len..bytes.end.div_ceil(len) {
            let part = bytes.start.max(no * len) - no * len..bytes.end.min((no + 1) * len) - no * len;
            let (there, rest) = cache.find(no, part);
            parts.extend(there.into_iter().flat_map(|place| cache.rows.data(place, false)));
            let rest = rest.into_iter().map(|part| no * len + part.start..no * len + part.end);
            parts.extend(rest.flat_map(|bytes| rows.data(bytes, false)));
        }
        merged(parts)
    }

    fn trim(&self, bytes: Range<u64>) {
        if !self.thin || !self.mechanisms.trim || bytes.start == bytes.end {
            return;
        }
        let mut rows = self.rows.borrow_mut();
        let (row_len, stripe) = (rows.shape.row(), rows.shape.stripe());
        self.trimmed.borrow_mut().insert(bytes.clone());
        for row in rows.of(&bytes) {
            let whole = row * row_len..(row + 1) * row_len;
            if !self.trimmed.borrow().covers(&whole) {
                continue;
            }
            self.trimmed.borrow_mut().remove(whole.clone());
            let stripes = whole.start / stripe..whole.end / stripe;
            if let Some(cache) = &self.cache {
                stripes
                    .clone()
                    .filter_map(|stripe| cache.take_out(stripe))
                    .for_each(|(chunk, _)| cache.release(&chunk));
            }
            self.consistent.borrow_mut().remove(stripes);
            rows.remove(row, &mut self.slabs.borrow_mut());
        }
    }
}
