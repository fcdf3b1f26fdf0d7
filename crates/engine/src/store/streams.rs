//! The clients of a pool that seem to read in order: what the store remembers of them, and what is read ahead for them.
//! `vdisk/ahead.rs` has the story, and decides how far.

use super::together::Part;
use super::{Store, join};
use crate::error::Result;
use crate::io::IoSlice;
use crate::segment::ahead::Fetch;
use crate::stripe::table::Place;
use crate::units::{Nanos, VdiskNo};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Streams that are remembered, for the whole pool.
const STREAMS_MAX: usize = 64;
/// Requests in a row, after the first, that make a stream.
const PROVEN: u32 = 2;
/// Requests of a client that overtake each other, at most.
pub(crate) const OVERTAKE: u64 = 16;
/// A stream that was not read from for so long does not count among those that share the budget, and begins nothing
/// more when its client seeks.
pub(crate) const RESTS: Nanos = Nanos::millis(500);
/// One that was not read from for so long is forgotten.
const LEFT: Nanos = Nanos::secs(10);

/// The clients of a pool that seem to read in order.
#[derive(Default)]
pub struct Streams {
    pub(crate) all: Vec<Stream>,
    /// What was asked for and not begun, in order.
    pub(crate) asked: VecDeque<(Rc<Fetch>, Vec<Part>)>,
    /// How many there were.
    begun: u64,
    /// None of them was read from before this.
    touched: Nanos,
}

/// A client of a virtual disk that seems to read in order.
pub(crate) struct Stream {
    /// No two have the same.
    pub(crate) id: u64,
    vdisk: VdiskNo,
    /// Where its next request is expected.
    pub(crate) next: u64,
    /// Requests in a row.
    score: u32,
    /// Bytes to have ahead of it.
    pub(crate) window: u64,
    /// The first stripe that was not asked for yet.
    pub(crate) fetched: u64,
    pub(crate) touched: Nanos,
    /// Stripes asked for, by where they end.
    pub(crate) held: VecDeque<(u64, Place)>,
    pub(crate) fetches: VecDeque<Rc<Fetch>>,
}

impl Stream {
    pub(crate) fn is_proven(&self) -> bool {
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
    pub fn forget_streams(&self, vdisk: Option<VdiskNo>) {
        let mut streams = self.traffic.streams.borrow_mut();
        let (gone, left) = core::mem::take(&mut streams.all)
            .into_iter()
            .partition(|stream| vdisk.is_none_or(|vdisk| vdisk == stream.vdisk));
        streams.all = left;
        let gone: Vec<Stream> = gone;
        gone.into_iter().for_each(|stream| self.forget_stream(stream));
    }

    fn forget_stream(&self, mut stream: Stream) {
        stream.fetches.drain(..).for_each(|fetch| self.traffic.lanes.cancel(&fetch));
        let mut map = self.map.borrow_mut();
        stream.held.drain(..).for_each(|(_, place)| map.ahead.forget(place));
    }

    /// Finds the stream that a request goes on with, or begins one; its index.
    pub(crate) fn find_stream(&self, streams: &mut Streams, vdisk: VdiskNo, offset: u64, len: u64) -> usize {
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
        if now.since(streams.touched) > RESTS {
            self.tidy_streams(streams, vdisk, now);
        }
        if streams.all.len() >= STREAMS_MAX {
            let oldest = streams.all.iter().enumerate().min_by_key(|(_, stream)| (stream.is_proven(), stream.touched));
            let oldest = oldest.map(|(nth, _)| nth).expect("there are many");
            self.forget_stream(streams.all.swap_remove(oldest));
        }
        let (next, held, fetches) = (offset + len, VecDeque::new(), VecDeque::new());
        streams.begun += 1;
        let id = streams.begun;
        streams.all.push(Stream { id, vdisk, next, score: 0, window: 0, fetched: 0, touched: now, held, fetches });
        streams.all.len() - 1
    }

    /// A client reads elsewhere: what it has left is not begun, and what nobody reads any more is forgotten.
    fn tidy_streams(&self, streams: &mut Streams, vdisk: VdiskNo, now: Nanos) {
        for stream in &mut streams.all {
            if stream.vdisk == vdisk && now.since(stream.touched) > RESTS {
                stream.fetches.drain(..).for_each(|fetch| self.traffic.lanes.cancel(&fetch));
                stream.window = 0;
            }
        }
        while let Some(nth) = streams.all.iter().position(|stream| now.since(stream.touched) > LEFT) {
            self.forget_stream(streams.all.swap_remove(nth));
        }
        streams.touched = streams.all.iter().map(|stream| stream.touched).min().unwrap_or(now);
    }

    /// Room for `len` more bytes, if need be by forgetting what the client that rests longest has not read. `false`:
    /// there is none.
    pub(crate) fn has_room_ahead(&self, streams: &mut Streams, own: usize, len: u64) -> bool {
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
            oldest.fetches.drain(..).for_each(|fetch| self.traffic.lanes.cancel(&fetch));
            oldest.window = 0;
            let mut map = self.map.borrow_mut();
            oldest.held.drain(..).for_each(|(_, place)| map.ahead.forget(place));
        }
    }

    /// Begins all that was asked for until now, in that order: in which order tasks run nobody knows.
    pub(crate) async fn fetch_asked(self: Rc<Store>) {
        let asked = core::mem::take(&mut self.traffic.streams.borrow_mut().asked);
        join(asked.into_iter().map(|(fetch, parts)| self.fetch(fetch, parts))).await;
    }

    async fn fetch(&self, fetch: Rc<Fetch>, parts: Vec<Part>) {
        let answers = self.read_together(&parts, Some(&fetch)).await;
        self.keep_ahead(&parts, answers, &fetch);
        fetch.end();
    }

    /// Keeps what was read ahead, and unpins it.
    pub(crate) fn keep_ahead(&self, parts: &[Part], answers: Vec<Result<Vec<IoSlice>>>, fetch: &Rc<Fetch>) {
        for (part, strips) in parts.iter().zip(answers) {
            let place = part.target.place;
            let records = {
                let mut map = self.map.borrow_mut();
                map.ahead.arrived(place, fetch, strips.ok());
                map.unpin(place)
            };
            let any = !records.is_empty();
            self.append_all(records);
            if any || self.signals.wants_stripes.get() {
                self.signals.room.notify();
            }
        }
    }
}
