//! A workload on something real: a file, a block device, or an export that is reached over NBD. The requests are those
//! that the lab's models get (`weft_lab::jobs`); what is measured here is wall-clock time.
//!
//! Invariants
//! 1. So many requests are under way as the job says, from the first to the last; no request is asked twice.
//! 2. What is written is the same bytes each time, which no storage that compresses or looks for zeros can shorten.
//! 3. The first request that fails ends it all, and its error is told.

mod direct;
mod nbd;

pub use direct::Direct;
pub use nbd::{Address, Nbd};

use crate::api::error::{Answer, ApiError, Kind};
use serde::Serialize;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use weft_engine::units::Nanos;
use weft_lab::jobs::Job;
use weft_lab::workload::Ask;

/// Buckets of the histogram: four to every power of two of nanoseconds.
const PER_DOUBLING: usize = 4;

/// Something that answers requests.
pub trait Target {
    /// Bytes it has.
    fn size(&self) -> u64;

    /// Whether it refuses writes.
    fn read_only(&self) -> bool;

    /// Asks what `source` gives, `depth` at once, until there is no more.
    fn drive(&mut self, source: &Source, depth: usize) -> Answer<()>;
}

/// What is still to be asked, and what became of the rest.
pub struct Source {
    asks: Mutex<Box<dyn Iterator<Item = (Nanos, Ask)> + Send>>,
    begun: Instant,
    until: Option<Duration>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: u64,
    bytes: u64,
    buckets: Vec<u64>,
    slowest: u64,
    total: u128,
    seconds: Vec<u64>,
}

/// What became of a job.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Outcome {
    /// The job.
    pub job: String,
    /// Requests that ended, flushes not counted.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nanoseconds that all took.
    pub nanos: u64,
    /// How long requests took.
    pub latency: Latency,
    /// Bytes moved in each second.
    pub seconds: Vec<u64>,
}

/// How long requests took, in nanoseconds; a quantile is at most a fifth too high.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Latency {
    /// The mean.
    pub mean: u64,
    /// Half of them took no longer.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1000.
    pub p999: u64,
    /// The slowest.
    pub max: u64,
    /// How many took at most so long, and longer than the bucket before.
    pub histogram: Vec<Bucket>,
}

/// Requests that took about the same time.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
pub struct Bucket {
    /// The longest of them, in nanoseconds.
    pub up_to: u64,
    /// How many.
    pub count: u64,
}

/// Runs a job.
pub fn run(target: &mut dyn Target, job: &Job) -> Answer<Outcome> {
    let size = target.size();
    let Some(asks) = job.timed(size) else {
        let what = format!("job `{}` needs {} bytes at least, and there are {size}", job.name, job.least());
        return Err(ApiError::new(Kind::NotPossible, what));
    };
    if job.writes() && target.read_only() {
        return Err(ApiError::new(
            Kind::ReadOnly,
            format!("job `{}` writes, and nothing can be written there", job.name),
        ));
    }
    let until = job.span().map(|span| Duration::from_nanos(span.0));
    let source = Source { asks: Mutex::new(asks), begun: Instant::now(), until, seen: Mutex::default() };
    target.drive(&source, job.line.depth)?;
    let nanos = source.begun.elapsed().as_nanos() as u64;
    let seen = source.seen.into_inner().expect("nobody panicked while counting");
    Ok(seen.outcome(&job.name, nanos))
}

impl Source {
    /// What to ask next, once it is due, and since when it has been: of a job that keeps to a rate, what is asked late
    /// has taken the longer for it.
    pub fn next(&self) -> Option<(Ask, Instant)> {
        let over = |elapsed| self.until.is_some_and(|until| elapsed >= until);
        if over(self.begun.elapsed()) {
            return None;
        }
        let (due, ask) = self.asks.lock().expect("nobody panicked while asking").next()?;
        if due.0 == 0 {
            return Some((ask, Instant::now()));
        }
        let due = Duration::from_nanos(due.0);
        if over(due) {
            return None;
        }
        std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
        Some((ask, self.begun + due))
    }

    /// Notes that a request that was asked `then` has ended.
    pub fn note(&self, ask: Ask, then: Instant) {
        let len = ask.moves();
        if len == 0 {
            return;
        }
        let (took, at) = (then.elapsed().as_nanos() as u64, self.begun.elapsed().as_secs() as usize);
        self.seen.lock().expect("nobody panicked while counting").note(took, at, len);
    }
}

impl Seen {
    fn note(&mut self, took: u64, second: usize, len: u64) {
        let bucket = bucket(took);
        grow(&mut self.buckets, bucket);
        grow(&mut self.seconds, second);
        self.buckets[bucket] += 1;
        self.seconds[second] += len;
        self.requests += 1;
        self.bytes += len;
        self.slowest = self.slowest.max(took);
        self.total += u128::from(took);
    }

    fn outcome(self, job: &str, nanos: u64) -> Outcome {
        let quantile = |per_mille: u64| {
            let wanted = (self.requests * per_mille).div_ceil(1000).max(1);
            let mut seen = 0;
            let found = self.buckets.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            found.map_or(0, |bucket| upper_end(bucket).min(self.slowest))
        };
        let full = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let latency = Latency {
            mean: (self.total / u128::from(self.requests.max(1))) as u64,
            p50: quantile(500),
            p99: quantile(990),
            p999: quantile(999),
            max: self.slowest,
            histogram: full.map(|(at, count)| Bucket { up_to: upper_end(at), count: *count }).collect(),
        };
        let (job, requests, bytes) = (job.to_string(), self.requests, self.bytes);
        Outcome { job, requests, bytes, nanos, latency, seconds: self.seconds }
    }
}

fn grow(counts: &mut Vec<u64>, at: usize) {
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
}

fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(PER_DOUBLING as u64);
    let doublings = nanos.ilog2() as usize;
    let quarter = (nanos >> (doublings - 2)) as usize & (PER_DOUBLING - 1);
    doublings * PER_DOUBLING + quarter
}

fn upper_end(bucket: usize) -> u64 {
    let (doublings, quarter) = (bucket / PER_DOUBLING, (bucket % PER_DOUBLING) as u64);
    let end = u128::from(4 + quarter + 1) << doublings >> 2;
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

/// What is written: `len` bytes that look drawn, the same each time.
fn filling(len: usize) -> Vec<u8> {
    let mut state = 0x5eed_u64;
    let word = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_is_between_their_ends() {
        for nanos in (4..5000).chain([1 << 20, (1 << 20) + 1, 999_999_999, u64::MAX]) {
            let at = bucket(nanos);
            assert!(nanos <= upper_end(at) && (at <= 8 || nanos > upper_end(at - 1)), "{nanos}");
            assert!(upper_end(at) as f64 <= nanos as f64 * 1.26, "{nanos}");
        }
    }

    #[test]
    fn quantiles_and_seconds_are_counted() {
        let mut seen = Seen::default();
        (1..=1000).for_each(|nth| seen.note(nth * 1000, (nth / 400) as usize, 10));
        let outcome = seen.outcome("a", 7);
        assert_eq!((outcome.requests, outcome.bytes, outcome.seconds), (1000, 10_000, vec![3990, 4000, 2010]));
        let Latency { mean, p50, p99, max, .. } = outcome.latency;
        assert_eq!((mean, max), (500_500, 1_000_000));
        assert!((500_000..630_000).contains(&p50) && (990_000..=1_000_000).contains(&p99), "{p50} {p99}");
    }

    #[test]
    fn what_is_written_is_not_to_be_shortened_and_the_same_each_time() {
        let bytes = filling(4096);
        assert_eq!(bytes, filling(4096));
        assert!(bytes.iter().filter(|byte| **byte == 0).count() < 64);
    }
}
