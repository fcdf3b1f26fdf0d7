//! Workloads: requests against a [`Volume`], so many at once, and what became of them over time.

use crate::volume::Volume;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use weft_engine::sync::{Promise, promise};
use weft_engine::units::Nanos;
use weft_engine::world::World;
use weft_sim::rng::Rng;

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Write so many bytes there.
    Write(u64, u64),
    /// Write them, and be sure that they would survive.
    WriteThrough(u64, u64),
    /// Read them.
    Read(u64, u64),
    /// Make all durable.
    Flush,
    /// Forget them.
    Forget(u64, u64),
}

impl Ask {
    /// Tells how many bytes it moves.
    pub fn moves(self) -> u64 {
        match self {
            Ask::Write(_, len) | Ask::WriteThrough(_, len) | Ask::Read(_, len) => len,
            Ask::Flush | Ask::Forget(..) => 0,
        }
    }
}

/// What became of requests: bytes over time.
#[derive(Clone, Default, Debug)]
pub struct Trace {
    /// When so many bytes had been moved: nanoseconds, bytes.
    pub points: Vec<(u64, u64)>,
    /// Requests that ended.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// The time it took.
    pub nanos: u64,
    /// Bytes that the disks read meanwhile.
    pub disk_read: u64,
    /// Bytes that the disks wrote meanwhile.
    pub disk_written: u64,
}

/// How long nearly nothing must happen for a knee, after how long a start.
const KNEE: u64 = 2_000_000_000;
const START: u64 = 1_000_000_000;

impl Trace {
    /// Bytes per second over all of it.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.nanos as f64
    }

    /// Requests per second.
    pub fn per_second(&self) -> f64 {
        self.requests as f64 * 1e9 / self.nanos as f64
    }

    /// Bytes per second from when so many bytes had been moved.
    pub fn rate_after(&self, bytes: u64) -> f64 {
        let since = self.points.iter().find(|(_, moved)| *moved >= bytes).copied().unwrap_or((0, 0));
        (self.bytes - since.1) as f64 * 1e9 / (self.nanos - since.0) as f64
    }

    /// Bytes per second until so many bytes had been moved.
    pub fn rate_until(&self, bytes: u64) -> f64 {
        let until = self.points.iter().find(|(_, moved)| *moved >= bytes).copied().unwrap_or((self.nanos, self.bytes));
        until.1 as f64 * 1e9 / until.0 as f64
    }

    /// Bytes moved before the longest gap of the first two seconds in which it went on less than a quarter as fast as
    /// until then; none: that never happened.
    pub fn knee(&self) -> Option<u64> {
        let warm = self.points.iter().enumerate().filter(|(_, (at, _))| *at >= START && at + KNEE <= self.nanos);
        let slow = warm.map(|(nth, (at, bytes))| {
            let until = self.points[nth..].partition_point(|(later, _)| *later <= at + KNEE) + nth;
            let more = self.points[until - 1].1 - bytes;
            (nth, until, (more as f64 / KNEE as f64) < *bytes as f64 / *at as f64 / 4.0)
        });
        let (from, until, _) = slow.into_iter().find(|(_, _, slow)| *slow)?;
        let gap = |nth: &usize| self.points[*nth + 1].0 - self.points[*nth].0;
        (from..until).filter(|nth| nth + 1 < self.points.len()).max_by_key(gap).map(|nth| self.points[nth].1)
    }

    /// Bytes per second in each of `count` equal spans of the time.
    pub fn spans(&self, count: usize) -> Vec<f64> {
        let step = (self.nanos / count as u64).max(1);
        let moved = |at: u64| {
            let nth = self.points.partition_point(|(when, _)| *when <= at);
            if nth == 0 { 0 } else { self.points[nth - 1].1 }
        };
        let span = |nth: u64| (moved((nth + 1) * step) - moved(nth * step)) as f64 * 1e9 / step as f64;
        (0..count as u64).map(span).collect()
    }

    /// One after the other.
    pub fn then(mut self, next: Trace) -> Trace {
        let (nanos, bytes) = (self.nanos, self.bytes);
        self.points.extend(next.points.iter().map(|(at, moved)| (nanos + at, bytes + moved)));
        self.requests += next.requests;
        self.bytes += next.bytes;
        self.nanos += next.nanos;
        self.disk_read += next.disk_read;
        self.disk_written += next.disk_written;
        self
    }
}

/// Bytes between two points of a trace, at least.
const GRAIN: u64 = 1 << 20;

struct Course<I> {
    asks: RefCell<I>,
    start: u64,
    until: u64,
    trace: RefCell<Trace>,
    noted: Cell<u64>,
}

/// Asks `depth` at once until there are no more, or `span` is over; ends with a flush if `flush`, which counts.
pub fn drive(
    volume: &Rc<dyn Volume>,
    asks: impl Iterator<Item = Ask> + 'static,
    depth: usize,
    span: Option<Nanos>,
    flush: bool,
) -> Trace {
    drive_timed(volume, at_rate(asks, None), depth, span, flush)
}

/// Gives each request the time from the beginning at which it is due, for so many bytes a second; none: at once.
pub fn at_rate<I: Iterator<Item = Ask>>(asks: I, rate: Option<u64>) -> impl Iterator<Item = (Nanos, Ask)> {
    let mut before = 0u128;
    asks.map(move |ask| {
        let due = rate.map_or(0, |rate| before * 1_000_000_000 / u128::from(rate));
        before += u128::from(ask.moves());
        (Nanos(due as u64), ask)
    })
}

/// Asks as [`drive`] does, nothing before it is due.
pub fn drive_timed(
    volume: &Rc<dyn Volume>,
    asks: impl Iterator<Item = (Nanos, Ask)> + 'static,
    depth: usize,
    span: Option<Nanos>,
    flush: bool,
) -> Trace {
    let world = volume.world();
    let start = world.now().0;
    let until = span.map_or(u64::MAX, |span| start + span.0);
    let (asks, trace) = (RefCell::new(asks), RefCell::new(Trace::default()));
    let course = Rc::new(Course { asks, start, until, trace, noted: Cell::new(0) });
    let before = volume.moved();
    let (inside, runner, host) = (course.clone(), volume.clone(), world.clone());
    let nanos = world.block_on(async move {
        let mut ends = Vec::new();
        for _ in 0..depth {
            let (ended, end): (Promise<()>, _) = promise();
            ends.push(end);
            let (course, volume) = (inside.clone(), runner.clone());
            host.spawn(
                "client",
                Box::pin(async move {
                    course.run(volume).await;
                    ended.keep(());
                }),
            );
        }
        for end in ends {
            end.wait().await;
        }
        if flush {
            runner.flush().await;
        }
        host.now().0 - start
    });
    let after = volume.moved();
    let mut trace = course.trace.take();
    trace.nanos = nanos.expect("a sound volume answers");
    (trace.disk_read, trace.disk_written) = (after.0 - before.0, after.1 - before.1);
    trace.points.push((trace.nanos, trace.bytes));
    trace
}

impl<I: Iterator<Item = (Nanos, Ask)>> Course<I> {
    async fn run(&self, volume: Rc<dyn Volume>) {
        let world = volume.world();
        while world.now().0 < self.until {
            let Some((due, ask)) = self.asks.borrow_mut().next() else { return };
            let due = self.start + due.0;
            if due >= self.until {
                return;
            }
            if due > world.now().0 {
                world.sleep(Nanos(due - world.now().0)).await;
            }
            match ask {
                Ask::Write(at, len) => volume.write(at, len, false).await,
                Ask::WriteThrough(at, len) => volume.write(at, len, true).await,
                Ask::Read(at, len) => volume.read(at, len).await,
                Ask::Flush => volume.flush().await,
                Ask::Forget(at, len) => volume.forget(at, len).await,
            }
            self.note(world.now().0 - self.start, ask.moves());
        }
    }

    fn note(&self, at: u64, len: u64) {
        let mut trace = self.trace.borrow_mut();
        trace.requests += u64::from(len > 0);
        trace.bytes += len;
        if trace.bytes >= self.noted.get() + GRAIN {
            self.noted.set(trace.bytes);
            let bytes = trace.bytes;
            trace.points.push((at, bytes));
        }
    }
}

/// Lets time pass.
pub fn rest(volume: &Rc<dyn Volume>, span: Nanos) {
    let world = volume.world();
    let host = world.clone();
    world.block_on(async move { host.sleep(span).await });
}

/// Requests of `len` bytes from `from` on, `count` bytes in all.
pub fn in_order(from: u64, count: u64, len: u64) -> impl Iterator<Item = Ask> + 'static {
    (0..count / len).map(move |nth| Ask::Write(from + nth * len, len))
}

/// Requests of `len` bytes at random places of the first `over` bytes, without end.
pub fn at_random(seed: u64, over: u64, len: u64, one: fn(u64, u64) -> Ask) -> impl Iterator<Item = Ask> + 'static {
    let mut rng = Rng::new(seed);
    std::iter::repeat_with(move || one(rng.below(over / len) * len, len))
}

/// Requests that write extents, `len` bytes at most each.
pub fn extents(extents: Vec<std::ops::Range<u64>>, len: u64) -> impl Iterator<Item = Ask> + 'static {
    let pieces = move |range: std::ops::Range<u64>| {
        let end = range.end;
        range.step_by(len as usize).map(move |at| Ask::Write(at, len.min(end - at)))
    };
    extents.into_iter().flat_map(pieces)
}
