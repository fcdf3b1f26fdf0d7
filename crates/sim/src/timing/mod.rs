//! How long a disk takes. A model is a queue on the virtual clock: operations go in, and come out when it says so, in
//! its own order. It knows nothing of content or faults.
//!
//! [`Random`] is for fault runs: latencies by seed, so that completions reorder. [`Hdd`], [`Smr`] and [`Ssd`] are for
//! judging policies; their classes ([`HddClass::HDD_7200_8TB`], ...) agree with named drives, and a test prints and
//! holds the table.

mod extents;
mod hdd;
mod random;
mod smr;
mod ssd;

pub use hdd::{Hdd, HddClass};
pub use random::{Latencies, Random};
pub use smr::{Smr, SmrClass};
pub use ssd::{Ssd, SsdClass};

use std::collections::BTreeMap;
use weft_engine::units::{ByteCount, DiskOffset, Nanos};

/// An operation, as far as time is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Read so many bytes from this place.
    Read(DiskOffset, ByteCount),
    /// Write so many bytes to this place.
    Write(DiskOffset, ByteCount),
    /// Write them past the write cache, or through it, to the medium (FUA).
    WriteThrough(DiskOffset, ByteCount),
    /// Empty the write cache.
    Flush,
    /// Forget so many bytes at this place.
    Discard(DiskOffset, ByteCount),
}

/// A timing model of one disk.
pub trait Timing {
    /// Takes an operation in. `now` never goes back from one call to the next.
    fn submit(&mut self, now: Nanos, id: u64, op: Op);

    /// The next moment at which [`Timing::advance`] has something to do; `None` when nothing is under way.
    fn next(&self) -> Option<Nanos>;

    /// Lets time pass until `now`; puts the operations that completed into `done`, first completed first.
    fn advance(&mut self, now: Nanos, done: &mut Vec<u64>);

    /// Forgets everything under way and everything cached: the power was off.
    fn reset(&mut self);
}

/// Things that happen at known moments, in order; those of one moment in the order they were put in.
struct Agenda<T> {
    entries: BTreeMap<(Nanos, u64), T>,
    put: u64,
}

impl<T> Agenda<T> {
    fn new() -> Agenda<T> {
        Agenda { entries: BTreeMap::new(), put: 0 }
    }

    fn put(&mut self, at: Nanos, entry: T) {
        self.put += 1;
        self.entries.insert((at, self.put), entry);
    }

    fn next(&self) -> Option<Nanos> {
        self.entries.keys().next().map(|(at, _)| *at)
    }

    /// The next entry, if its moment is not after `now`.
    fn take(&mut self, now: Nanos) -> Option<T> {
        let entry = self.entries.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    fn clear(&mut self) {
        self.entries.clear();
    }
}

/// How long `len` bytes take at `rate` bytes per second.
fn span_of(len: u64, rate: u64) -> u64 {
    (u128::from(len) * 1_000_000_000 / u128::from(rate)) as u64
}

#[cfg(test)]
mod tests;
