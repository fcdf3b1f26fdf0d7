//! Read-ahead: who reads in order finds what comes next in memory.
//!
//! The story
//! 1. Every read is compared with where the last ones ended ([`Streams`]), so that any number of clients may read in
//!    order at once, each several requests at a time. The third request in a row makes a stream.
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
use crate::segment::Map;
use crate::segment::ahead::{Fetch, Found};
use crate::store::lanes::CHUNK;
use crate::store::{Store, join};
use crate::stripe::execute::Target;
use crate::stripe::geometry::{Layout, Resiliency};
use crate::stripe::plan::Want;
use crate::stripe::table::Place;
use crate::stripe::together::Part;
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Streams that are remembered, for the whole pool.
const STREAMS_MAX: usize = 64;
/// Requests in a row, after the first, that make a stream.
const PROVEN: u32 = 2;
/// Requests of a client that overtake each other, at most.
const OVERTAKE: u64 = 16;
/// Bytes per disk that are read ahead together.
const PER_DISK: u64 = 1 << 20;
/// By how much a window grows with each time that more is asked for.
const GROWTH: u64 = 4;
/// What a stream has of each disk at most, on its way or there: disks get ahead of each other, and one that rests loses
/// a revolution.
const WINDOW_PER_COLUMN: u64 = 12 << 20;
/// A shorter way from one part to the next, past what another copy reads, takes no less time than reading it.
const CHUNK_MIN: u64 = 4 << 20;
/// A stream that was not read from for so long does not count among those that share the budget, and begins nothing
/// more when its client seeks.
const RESTS: Nanos = Nanos::millis(500);
/// One that was not read from for so long is forgotten.
const LEFT: Nanos = Nanos::secs(10);

/// The clients of a pool that seem to read in order.
#[derive(Default)]
pub struct Streams {
    all: Vec<Stream>,
    /// What was asked for and not begun, in order.
    asked: VecDeque<(Rc<Fetch>, Vec<Part>)>,
}

struct Stream {
    vdisk: u32,
    /// Where its next request is expected.
    next: u64,
    /// Requests in a row.
    score: u32,
    /// Bytes to have ahead of it.
    window: u64,
    /// The first stripe that was not asked for yet.
    fetched: u64,
    touched: Nanos,
    /// Stripes asked for, by where they end.
    held: VecDeque<(u64, Place)>,
    fetches: VecDeque<Rc<Fetch>>,
}

impl Stream {
    fn is_proven(&self) -> bool {
        self.score >= PROVEN
    }

    /// How far a request is from where it is expected; none: too far.
    fn distance(&self, offset: u64, len: u64) -> Option<u64> {
        let distance = self.next.abs_diff(offset);
        (distance <= len * OVERTAKE).then_some(distance)
    }
}

impl Store {
    /// Forgets what was read ahead of a virtual disk (none: of all), and reads no more of it.
    pub fn forget_streams(&self, vdisk: Option<u32>) {
        let mut streams = self.streams.borrow_mut();
        let (gone, left) = core::mem::take(&mut streams.all)
            .into_iter()
            .partition(|stream| vdisk.is_none_or(|vdisk| vdisk == stream.vdisk));
        streams.all = left;
        let gone: Vec<Stream> = gone;
        gone.into_iter().for_each(|stream| self.forget_stream(stream));
    }

    fn forget_stream(&self, mut stream: Stream) {
        stream.fetches.drain(..).for_each(|fetch| self.lanes.cancel(&fetch));
        let mut map = self.map.borrow_mut();
        stream.held.drain(..).for_each(|(_, place)| map.ahead.forget(place));
    }

    /// Finds the stream that a request goes on with, or begins one; its index.
    fn find_stream(&self, streams: &mut Streams, vdisk: u32, offset: u64, len: u64) -> usize {
        let now = self.world.now();
        let all = streams.all.iter().enumerate().filter(|(_, stream)| stream.vdisk == vdisk);
        let nearest = all.filter_map(|(nth, stream)| Some((stream.distance(offset, len)?, nth))).min();
        if let Some((distance, nth)) = nearest {
            let stream = &mut streams.all[nth];
            stream.score = stream.score.saturating_add((distance == 0) as u32);
            stream.next = stream.next.max(offset + len);
            stream.touched = now;
            return nth;
        }
        self.tidy_streams(streams, vdisk, now);
        let (next, held, fetches) = (offset + len, VecDeque::new(), VecDeque::new());
        streams.all.push(Stream { vdisk, next, score: 0, window: 0, fetched: 0, touched: now, held, fetches });
        streams.all.len() - 1
    }

    /// A client reads elsewhere: what it has left is not begun, and what nobody reads any more is forgotten.
    fn tidy_streams(&self, streams: &mut Streams, vdisk: u32, now: Nanos) {
        for stream in &mut streams.all {
            if stream.vdisk == vdisk && now.since(stream.touched) > RESTS {
                stream.fetches.drain(..).for_each(|fetch| self.lanes.cancel(&fetch));
                stream.window = 0;
            }
        }
        while let Some(nth) = streams.all.iter().position(|stream| now.since(stream.touched) > LEFT) {
            self.forget_stream(streams.all.swap_remove(nth));
        }
        if streams.all.len() >= STREAMS_MAX {
            let oldest = streams.all.iter().enumerate().min_by_key(|(_, stream)| (stream.is_proven(), stream.touched));
            let oldest = oldest.map(|(nth, _)| nth).expect("there are many");
            self.forget_stream(streams.all.swap_remove(oldest));
        }
    }

    /// Room for `len` more bytes, if need be by forgetting what the client that rests longest has not read. `false`:
    /// there is none.
    fn has_room_ahead(&self, streams: &mut Streams, own: usize, len: u64) -> bool {
        let limit = self.tuning.ahead_memory;
        loop {
            if self.map.borrow().ahead.memory().0 + len <= limit {
                return true;
            }
            let others =
                streams.all.iter_mut().enumerate().filter(|(nth, stream)| *nth != own && !stream.held.is_empty());
            let Some((_, oldest)) = others.min_by_key(|(_, stream)| stream.touched) else { return false };
            if self.world.now().since(oldest.touched) <= RESTS {
                return false;
            }
            oldest.fetches.drain(..).for_each(|fetch| self.lanes.cancel(&fetch));
            oldest.window = 0;
            let mut map = self.map.borrow_mut();
            oldest.held.drain(..).for_each(|(_, place)| map.ahead.forget(place));
        }
    }

    /// Begins all that was asked for until now, in that order: in which order tasks run nobody knows.
    async fn fetch_asked(self: Rc<Store>) {
        let asked = core::mem::take(&mut self.streams.borrow_mut().asked);
        join(asked.into_iter().map(|(fetch, parts)| self.fetch(fetch, parts))).await;
    }

    async fn fetch(&self, fetch: Rc<Fetch>, parts: Vec<Part>) {
        let answers = self.read_together(&parts, Some(&fetch)).await;
        for (part, strips) in parts.iter().zip(answers) {
            let place = part.target.place;
            let records = {
                let mut map = self.map.borrow_mut();
                map.ahead.arrived(place, &fetch, strips.ok());
                map.unpin(place)
            };
            let any = !records.is_empty();
            self.append_all(records);
            if any || self.wants_stripes.get() {
                self.room.notify();
            }
        }
        fetch.end();
    }
}

impl Vdisk {
    /// Takes note that `len` bytes at `offset` are read, and reads ahead where that makes a stream.
    pub(super) fn follow(&self, offset: u64, len: u64) {
        if len == 0 || self.store.tuning.ahead_memory == 0 || !self.has_one_table() {
            return;
        }
        let any = {
            let mut streams = self.store.streams.borrow_mut();
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
        let behind = (most / 4).max(len * OVERTAKE / 2);
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
        let layout = self.layout();
        let data_len = layout.data_len().0;
        let mut parts = Vec::new();
        for stripe in stripes.clone() {
            let flies = self.flying(stripe).is_some();
            let place = self.store.map.borrow().place_of(self.table(), stripe);
            let Some(place) = place.filter(|place| !flies && self.store.map.borrow().ahead.get(*place).is_none())
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
            let blocks = 0..layout.strip_blocks();
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
