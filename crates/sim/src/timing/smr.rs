//! A hard disk with shingled tracks (SMR) that manages itself: tracks overlap in bands, so that a band is written from
//! its beginning on, or read and written anew as a whole.
//!
//! The model
//! 1. **Mechanics.** One [`Hdd`]: the cache on the medium lies outside, the bands behind it.
//! 2. **Streams.** A write at the beginning of a band opens it, and writes that go on where the last one ended go
//!    straight to the medium, from band to band. A few such streams are followed. One that is left behind in the
//!    middle of a band makes the band due for cleaning.
//! 3. **Cache.** Every other write goes to the next place of the cache on the medium, which is written in order; it
//!    counts for its band, in bytes and in entries, of which the disk's map holds so many.
//! 4. **Cleaning.** A band is read and written anew, which frees what was cached of it, the band that waits longest
//!    first. That goes on while the cache has no room for a write, which waits, and after a while without requests.
//! 5. Reads go to the band also where the newest bytes lie in the cache: what reading pays for a scattered past is not
//!    modelled.

use super::hdd::{Hdd, HddClass};
use super::{Op, Timing};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use weft_engine::io::DiskShape;
use weft_engine::units::{ByteCount, DiskOffset, Nanos};

/// Streams that are followed at once.
const STREAMS: usize = 8;
/// What cleaning asks of the disk at once.
const PIECE: u64 = 1 << 20;

/// A class of shingled disks.
#[derive(Clone, Debug)]
pub struct SmrClass {
    /// Its mechanics, and the size that it shows.
    pub hdd: HddClass,
    /// The cache on the medium.
    pub cache: ByteCount,
    /// Entries that the map of the cache holds.
    pub entries: u64,
    /// Bytes of a band.
    pub band: ByteCount,
    /// After so many nanoseconds without a request it cleans.
    pub idle: u64,
}

impl SmrClass {
    /// What such a disk reports about itself, of the given size (at most the class's).
    pub fn shape(&self, capacity: ByteCount) -> DiskShape {
        self.hdd.shape(capacity)
    }
}

/// A shingled disk's queue.
pub struct Smr {
    class: SmrClass,
    disk: Hdd,
    /// What the mechanics are doing, and for whom.
    inside: BTreeMap<u64, Whose>,
    submitted: u64,
    /// Where streams go on, the one used last at the end.
    streams: VecDeque<u64>,
    /// What is cached of each band, in the order in which bands came.
    due: VecDeque<u64>,
    cached: BTreeMap<u64, Cached>,
    bytes: u64,
    entries: u64,
    /// Where the cache goes on.
    cursor: u64,
    /// Writes that the cache has no room for.
    waiting: VecDeque<(u64, Range<u64>, bool)>,
    cleaning: Option<Cleaning>,
    /// Requests of the host that are under way, and when there was one last.
    busy: u64,
    since: Nanos,
}

#[derive(Clone, Copy, Default)]
struct Cached {
    bytes: u64,
    entries: u64,
}

enum Whose {
    Host(u64),
    Cleaning,
}

struct Cleaning {
    band: u64,
    /// What was cached of it when that began.
    held: Cached,
    writes: bool,
    pieces: u64,
}

impl Smr {
    /// A disk of this class with an empty queue and an empty cache.
    pub fn new(class: SmrClass) -> Smr {
        let all = ByteCount(class.hdd.capacity.0 + class.cache.0);
        Smr {
            disk: Hdd::new(HddClass { capacity: all, ..class.hdd.clone() }),
            class,
            inside: BTreeMap::new(),
            submitted: 0,
            streams: VecDeque::new(),
            due: VecDeque::new(),
            cached: BTreeMap::new(),
            bytes: 0,
            entries: 0,
            cursor: 0,
            waiting: VecDeque::new(),
            cleaning: None,
            busy: 0,
            since: Nanos(0),
        }
    }
}

impl Timing for Smr {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        self.busy += 1;
        self.since = now;
        match op {
            Op::Read(at, len) => self.ask(now, Whose::Host(id), Op::Read(self.home(at.0), len)),
            Op::Write(at, len) => self.write(now, id, at.0..at.0 + len.0, false),
            Op::WriteThrough(at, len) => self.write(now, id, at.0..at.0 + len.0, true),
            Op::Flush | Op::Discard(..) => self.ask(now, Whose::Host(id), op),
        }
        self.work(now);
    }

    fn next(&self) -> Option<Nanos> {
        let idle = self.may_clean_idly().then(|| self.since + Nanos(self.class.idle));
        [self.disk.next(), idle].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<u64>) {
        let mut ended = Vec::new();
        while let Some(at) = self.next().filter(|at| *at <= now) {
            self.disk.advance(at, &mut ended);
            for id in ended.drain(..) {
                match self.inside.remove(&id) {
                    Some(Whose::Host(id)) => {
                        self.busy -= 1;
                        self.since = at;
                        done.push(id);
                    }
                    Some(Whose::Cleaning) => self.cleaned(at),
                    None => {}
                }
            }
            self.work(at);
        }
    }

    fn reset(&mut self) {
        *self = Smr::new(self.class.clone());
    }
}

// Writing.
impl Smr {
    fn write(&mut self, now: Nanos, id: u64, bytes: Range<u64>, through: bool) {
        if self.goes_on(&bytes) {
            let (at, len) = (self.home(bytes.start), ByteCount(bytes.end - bytes.start));
            let op = if through { Op::WriteThrough(at, len) } else { Op::Write(at, len) };
            return self.ask(now, Whose::Host(id), op);
        }
        self.waiting.push_back((id, bytes, through));
    }

    /// Whether a write is a part of a stream of whole bands.
    fn goes_on(&mut self, bytes: &Range<u64>) -> bool {
        let band = self.class.band.0;
        let open = self.streams.iter().position(|next| *next == bytes.start);
        if open.is_none() && !bytes.start.is_multiple_of(band) {
            return false;
        }
        if let Some(nth) = open {
            self.streams.remove(nth);
        }
        self.streams.push_back(bytes.end);
        if self.streams.len() > STREAMS
            && let Some(left) = self.streams.pop_front()
            && !left.is_multiple_of(band)
        {
            self.count(left / band, 0);
        }
        true
    }

    /// Counts an entry of the cache for a band.
    fn count(&mut self, band: u64, bytes: u64) {
        let due = &mut self.due;
        let cached = self.cached.entry(band).or_insert_with(|| {
            due.push_back(band);
            Cached::default()
        });
        cached.bytes += bytes;
        cached.entries += 1;
        self.bytes += bytes;
        self.entries += 1;
    }

    /// Lets writes into the cache, first come first served, while there is room; else cleans.
    fn work(&mut self, now: Nanos) {
        while let Some((id, bytes, through)) = self.waiting.front().cloned() {
            let len = bytes.end - bytes.start;
            if self.entries > 0 && (self.bytes + len > self.class.cache.0 || self.entries >= self.class.entries) {
                break;
            }
            self.waiting.pop_front();
            self.count(bytes.start / self.class.band.0, len);
            if self.cursor + len > self.class.cache.0 {
                self.cursor = 0;
            }
            let (at, len) = (DiskOffset(self.cursor), ByteCount(len));
            self.cursor += len.0;
            self.ask(now, Whose::Host(id), if through { Op::WriteThrough(at, len) } else { Op::Write(at, len) });
        }
        let idly = self.may_clean_idly() && now >= self.since + Nanos(self.class.idle);
        if self.cleaning.is_none() && (!self.waiting.is_empty() || idly) {
            self.clean(now);
        }
    }

    fn home(&self, at: u64) -> DiskOffset {
        DiskOffset(self.class.cache.0 + at)
    }

    fn ask(&mut self, now: Nanos, whose: Whose, op: Op) {
        self.submitted += 1;
        self.inside.insert(self.submitted, whose);
        self.disk.submit(now, self.submitted, op);
    }
}

// Cleaning.
impl Smr {
    fn may_clean_idly(&self) -> bool {
        self.busy == 0 && self.cleaning.is_none() && !self.due.is_empty()
    }

    fn clean(&mut self, now: Nanos) {
        let Some(band) = self.due.pop_front() else { return };
        let held = self.cached.remove(&band).unwrap_or_default();
        self.pass(now, band, held, false);
    }

    /// Reads a band, or writes it.
    fn pass(&mut self, now: Nanos, band: u64, held: Cached, writes: bool) {
        let start = band * self.class.band.0;
        let end = (start + self.class.band.0).min(self.class.hdd.capacity.0);
        let pieces = (end - start).div_ceil(PIECE);
        self.cleaning = Some(Cleaning { band, held, writes, pieces });
        for at in (start..end).step_by(PIECE as usize) {
            let (place, len) = (self.home(at), ByteCount(PIECE.min(end - at)));
            // What was cleaned is safe before its place in the cache is used again.
            let op = if writes { Op::WriteThrough(place, len) } else { Op::Read(place, len) };
            self.ask(now, Whose::Cleaning, op);
        }
    }

    /// A piece of what cleaning asked for has ended.
    fn cleaned(&mut self, now: Nanos) {
        let Some(cleaning) = &mut self.cleaning else { return };
        cleaning.pieces -= 1;
        if cleaning.pieces > 0 {
            return;
        }
        let (band, held, writes) = (cleaning.band, cleaning.held, cleaning.writes);
        if !writes {
            return self.pass(now, band, held, true);
        }
        self.cleaning = None;
        self.bytes -= held.bytes;
        self.entries -= held.entries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn small() -> SmrClass {
        let hdd = HddClass { capacity: ByteCount::gib(100), ..HddClass::HDD_7200_8TB };
        SmrClass { hdd, cache: ByteCount::gib(1), entries: 1000, band: ByteCount::mib(32), idle: 1_000_000_000 }
    }

    /// When so many writes, one after the other, have ended.
    fn run(smr: &mut Smr, from: Nanos, writes: impl Iterator<Item = (u64, u64)>) -> Nanos {
        let (mut now, mut done) = (from, Vec::new());
        for (id, (at, len)) in writes.enumerate() {
            smr.submit(now, id as u64, Op::Write(DiskOffset(at), ByteCount(len)));
            while done.is_empty() {
                now = smr.next().expect("writes end");
                smr.advance(now, &mut done);
            }
            done.clear();
        }
        now
    }

    fn scattered(count: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut rng = Rng::new(1);
        (0..count).map(move |_| (rng.below(ByteCount::gib(100).0 / 4096) * 4096, 4096))
    }

    #[test]
    fn a_stream_from_the_beginning_of_a_band_goes_at_the_mediums_rate() {
        let mut smr = Smr::new(small());
        let took = run(&mut smr, Nanos(0), (0..4000).map(|nth| (nth << 20, 1 << 20)));
        let rate = (4000u64 << 20) as f64 * 1e9 / took.0 as f64;
        assert!(rate > 235e6, "{rate}");
        assert!(smr.due.is_empty());
    }

    #[test]
    fn scattered_writes_are_quick_until_the_cache_is_full_and_wait_for_whole_bands_then() {
        let mut smr = Smr::new(small());
        let quick = run(&mut smr, Nanos(0), scattered(1000));
        assert!(quick < Nanos::secs(2), "{quick:?}");
        let slow = run(&mut smr, quick, scattered(40));
        // A band is read and written at 200 MB/s and less; it had a write or two in the cache.
        assert!(slow.since(quick) > Nanos::secs(4), "{slow:?}");
    }

    #[test]
    fn it_cleans_when_it_is_left_alone_and_then_rests() {
        let mut smr = Smr::new(small());
        let mut done = Vec::new();
        let mut last = run(&mut smr, Nanos(0), scattered(50));
        while let Some(at) = smr.next() {
            assert!(at >= last, "time goes forward");
            last = at;
            smr.advance(at, &mut done);
        }
        assert_eq!((smr.bytes, smr.entries, smr.cached.len()), (0, 0, 0));
        assert!(last > Nanos::secs(10), "it takes its time: {last:?}");
    }

    #[test]
    fn a_stream_that_is_left_in_the_middle_of_a_band_makes_it_due() {
        let mut smr = Smr::new(small());
        let band = ByteCount::mib(32).0;
        run(&mut smr, Nanos(0), (0..STREAMS as u64 + 1).map(|nth| (nth * 2 * band, 1 << 20)));
        assert_eq!(smr.due, [0]);
    }
}
