//! Latencies by seed, for fault runs: completions come in any order, and often several at one moment, so that the
//! scheduler has something to choose from.

use super::{Agenda, Op, Timing};
use crate::rng::Rng;
use std::ops::Range;
use weft_engine::units::Nanos;

/// The ranges latencies are drawn from, in nanoseconds; equal ends (`5..6`) make them constant.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Nanoseconds that a read takes.
    pub read: Range<u64>,
    /// Nanoseconds that a write or a discard takes.
    pub write: Range<u64>,
    /// Nanoseconds that a flush takes.
    pub flush: Range<u64>,
    /// All latencies are rounded up to multiples of this, so that operations meet.
    pub grain: u64,
    /// The chance that an operation takes up to fifty times longer.
    pub straggle: f64,
}

impl Default for Latencies {
    /// Reads and writes of 0.1 to 2 ms, flushes of 0.5 to 10 ms, in steps of 0.1 ms; one in a hundred straggles.
    fn default() -> Latencies {
        Latencies {
            read: 100_000..2_000_000,
            write: 100_000..2_000_000,
            flush: 500_000..10_000_000,
            grain: 100_000,
            straggle: 0.01,
        }
    }
}

impl Latencies {
    /// Every operation takes the same `span`: for exhaustive searches, where the order must not depend on luck.
    pub fn constant(span: Nanos) -> Latencies {
        let each = span.0..span.0 + 1;
        Latencies { read: each.clone(), write: each.clone(), flush: each, grain: 1, straggle: 0.0 }
    }
}

/// The model; no queue, no capacity: every operation takes what the dice say.
pub struct Random {
    latencies: Latencies,
    rng: Rng,
    agenda: Agenda<u64>,
}

impl Random {
    /// A model drawing from `rng`.
    pub fn new(latencies: Latencies, rng: Rng) -> Random {
        Random { latencies, rng, agenda: Agenda::new() }
    }
}

impl Timing for Random {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let range = match op {
            Op::Read(..) => self.latencies.read.clone(),
            Op::Write(..) | Op::Discard(..) => self.latencies.write.clone(),
            Op::Flush | Op::WriteThrough(..) => self.latencies.flush.clone(),
        };
        let mut span = self.rng.range(range);
        if self.rng.chance(self.latencies.straggle) {
            span *= self.rng.range(2..51);
        }
        self.agenda.put(Nanos((now.0 + span).next_multiple_of(self.latencies.grain)), id);
    }

    fn next(&self) -> Option<Nanos> {
        self.agenda.next()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<u64>) {
        while let Some(id) = self.agenda.take(now) {
            done.push(id);
        }
    }

    fn reset(&mut self) {
        self.agenda.clear();
    }
}
