//! Read-ahead: who reads in order finds what comes next in memory.
//!
//! The story
//! 1. Every read is compared with where the last ones ended ([`crate::store::streams`]), so that any number of clients
//!    may read in order at once, each several requests at a time. The third request in a row makes a stream.
//! 2. A stream has a window: so many bytes beyond what was read last are read ahead, by stripes
//!    ([`Ahead`](crate::segment::ahead::Ahead)). It begins with little and grows as long as the client goes on; when a
//!    quarter of it is used up, as much is read, in one go, so that disks seek seldom.
//! 3. A read that finds its stripe there copies from it; one that finds it on its way waits, and others make room for
//!    it.
//! 4. What the client has passed is forgotten. So is a stream that rests, and what was not begun of it is not begun
//!    when the client reads elsewhere.
//!
//! Invariants
//! 1. All that is held or on its way fits the budget `ahead_memory`; each stream may have its share.
//! 2. Nobody waits for what is read ahead but those who want just that ([`crate::store::lanes`]).

use super::Vdisk;
use crate::geometry::{Layout, Resiliency};
use crate::segment::Map;
use crate::segment::ahead::{Fetch, Found};
use crate::store::execute::Target;
use crate::store::lanes::CHUNK;
use crate::store::streams::{OVERTAKE, RESTS, Streams};
use crate::store::together::Part;
use crate::stripe::plan::Want;
use crate::stripe::table::Place;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Bytes per disk that are read ahead together.
const PER_DISK: u64 = 1 << 20;
/// By how much a window grows with each time that more is asked for.
const GROWTH: u64 = 4;
/// What a stream has of each disk at most, on its way or there: disks get ahead of each other, and one that rests loses
/// a revolution.
const WINDOW_PER_COLUMN: u64 = 12 << 20;
/// A shorter way from one part to the next, past what another copy reads, takes no less time than reading it.
const CHUNK_MIN: u64 = 4 << 20;

impl Vdisk {
    /// Takes note that `len` bytes at `offset` are read, and reads ahead where that makes a stream.
    pub(super) fn follow(&self, offset: u64, len: u64) {
        if len == 0 || self.store.tuning.ahead_memory == 0 {
            return;
        }
        let any = {
            let mut streams = self.store.traffic.streams.borrow_mut();
            let nth = self.store.find_stream(&mut streams, self.id, offset, len);
            let before = streams.asked.len();
            if streams.all[nth].is_proven() && !self.store.stopping.get() {
                self.advance(&mut streams, nth, len);
            }
            streams.asked.len() > before
        };
        if any {
            self.store.world.spawn("read ahead", Box::pin(self.store.clone().fetch_asked()));
        }
    }

    /// Forgets what a stream has passed, and asks for more where a quarter of its window is used up.
    fn advance(&self, streams: &mut Streams, nth: usize, len: u64) {
        let (layout, now) = (self.layout(), self.store.world.now());
        let data_len = layout.data_len().0;
        let active =
            streams.all.iter().filter(|stream| stream.is_proven() && now.since(stream.touched) <= RESTS).count();
        let most = (self.store.tuning.ahead_memory / active.max(1) as u64).min(self.window_max(layout));
        let stream = &mut streams.all[nth];
        // Requests that were overtaken may still want some of it, and somebody waits for what is on its way.
        let behind = (most / 2).max(len * OVERTAKE / 2);
        {
            let mut map = self.store.map.borrow_mut();
            let passed = |map: &Map, (end, place): &(u64, Place)| {
                *end + behind <= stream.next && !matches!(map.ahead.get(*place), Some(Found::Coming(_)))
            };
            while let Some((_, place)) = stream.held.pop_front_if(|held| passed(&map, held)) {
                map.ahead.forget(place);
            }
        }
        while stream.fetches.pop_front_if(|fetch| fetch.has_ended()).is_some() {}
        if most < data_len {
            return;
        }
        let per_fetch = (PER_DISK / layout.interleave().0).max(1);
        if stream.window == 0 || stream.fetched * data_len < stream.next {
            stream.fetched = stream.next / data_len;
        }
        if stream.window > 0 && stream.fetched * data_len - stream.next / data_len * data_len > stream.window / 4 * 3 {
            return;
        }
        stream.window = (stream.window * GROWTH).max(data_len * per_fetch).max(len * 2).min(most);
        let (window, from) = (stream.window, stream.fetched);
        let end = ((stream.next + window).min(self.size().0) / data_len).max(from);
        let chunk = self.chunk(layout, window);
        let mut at = from;
        while at < end {
            let to = (at + per_fetch).min(end);
            let fetch = Rc::new(Fetch::default());
            fetch.chunk.set(chunk);
            fetch.stream.set(Some(streams.all[nth].id));
            let (parts, reached) = self.take_ahead(streams, nth, at..to, &fetch);
            if !parts.is_empty() {
                streams.all[nth].fetches.push_back(fetch.clone());
                streams.asked.push_back((fetch, parts));
            }
            streams.all[nth].fetched = reached;
            if reached < to {
                return;
            }
            at = to;
        }
    }

    /// Pins those of `stripes` that are worth reading ahead. Returns them, and how far it came.
    fn take_ahead(
        &self,
        streams: &mut Streams,
        nth: usize,
        stripes: core::ops::Range<u64>,
        fetch: &Rc<Fetch>,
    ) -> (Vec<Part>, u64) {
        let data_len = self.layout().data_len().0;
        let mut parts = Vec::new();
        for stripe in stripes.clone() {
            // Whoever reads there has the page of the table in memory before.
            if !self.store.map.borrow().tables[&self.table()].is_there(stripe) {
                return (parts, stripe);
            }
            let in_flight = self.in_flight(stripe).is_some();
            let place = self.store.map.borrow().place_of(self.table(), stripe);
            let Some(place) = place.filter(|place| !in_flight && self.store.map.borrow().ahead.get(*place).is_none())
            else {
                continue;
            };
            if !self.store.has_room_ahead(streams, nth, data_len) {
                return (parts, stripe);
            }
            let Some(target) = Target::new(&self.store, place) else { continue };
            let target = target.owned_by(self.table(), stripe);
            let mut map = self.store.map.borrow_mut();
            map.pin(place);
            map.ahead.expect(place, data_len, fetch.clone());
            streams.all[nth].held.push_back(((stripe + 1) * data_len, place));
            let (layout, blocks) = (target.layout, 0..target.layout.strip_blocks());
            let wants = (0..layout.data_columns()).map(|column| Want { column, blocks: blocks.clone() }).collect();
            parts.push(Part { target, wants });
        }
        (parts, stripes.end)
    }

    /// The most bytes that a stream has ahead: a few calls for each disk; of a mirror a chunk for each copy and the
    /// next one.
    fn window_max(&self, layout: Layout) -> u64 {
        let copies = layout.copies() as u64;
        match layout.resiliency() {
            Resiliency::Mirror { .. } => 2 * copies * self.chunk_max() * layout.columns() as u64,
            _ => (WINDOW_PER_COLUMN * layout.data_columns() as u64).max(layout.data_len().0 * 2),
        }
    }

    /// Bytes that one copy gives before another has its turn. Where the window is too small for long ones, one copy
    /// gives all.
    fn chunk(&self, layout: Layout, window: u64) -> u64 {
        let chunk = window / (2 * layout.copies() * layout.columns()) as u64;
        if chunk < CHUNK_MIN { self.chunk_max() } else { chunk.min(self.chunk_max()) }
    }

    fn chunk_max(&self) -> u64 {
        let any = self.store.members.borrow().keys().copied().find(|no| self.store.has_disk(*no));
        CHUNK[any.is_some_and(|no| !self.store.is_rotational(no)) as usize]
    }
}
