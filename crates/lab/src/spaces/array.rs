//! The disks that the models stand on: simulated in virtual time, with their queues, arms and write caches, without
//! bytes.
//!
//! Invariant: a flush covers every write that ended before it was asked for; flushes that are asked for while one is
//! under way share the next.

use super::drive::{Drive, Policy};
use std::cell::Cell;
use std::rc::Rc;
use weft_engine::io::DiskShape;
use weft_engine::store::join;
use weft_engine::sync::Signal;
use weft_engine::units::{ByteCount, DiskOffset};
use weft_sim::timed::TimedDisk;
use weft_sim::timing::{Hdd, HddClass, Op, Smr, SmrClass, Ssd, SsdClass, Timing};
use weft_sim::world::{Scheduling, SimWorld};

/// What a disk is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A hard disk.
    Hdd(HddClass),
    /// A hard disk with shingled tracks.
    Smr(SmrClass),
    /// A solid-state disk.
    Ssd(SsdClass),
    /// A hard disk that waits for its host before it writes back.
    Waits(Policy),
}

impl Kind {
    /// Its model.
    pub fn timing(&self) -> Box<dyn Timing> {
        match self {
            Kind::Hdd(class) => Box::new(Hdd::new(class.clone())),
            Kind::Smr(class) => Box::new(Smr::new(class.clone())),
            Kind::Ssd(class) => Box::new(Ssd::new(class.clone())),
            Kind::Waits(policy) => Box::new(Drive::new(policy.clone())),
        }
    }

    /// The model of the `nth` disk of many, which have not turned as far as each other; see [`Hdd::among`].
    pub fn timing_among(&self, nth: usize) -> Box<dyn Timing> {
        match self {
            Kind::Hdd(class) => Box::new(Hdd::among(class.clone(), nth)),
            other => other.timing(),
        }
    }

    /// Whether it keeps what it has taken over a power cut, as one does for which a flush is nothing.
    pub fn is_protected(&self) -> bool {
        matches!(self, Kind::Ssd(class) if class.flush == 0)
    }

    /// What it reports about itself, whole.
    pub fn shape(&self) -> DiskShape {
        match self {
            Kind::Hdd(class) => class.shape(class.capacity),
            Kind::Smr(class) => class.shape(class.hdd.capacity),
            Kind::Ssd(class) => class.shape(class.capacity),
            Kind::Waits(Policy { class, .. }) => class.shape(class.capacity),
        }
    }
}

/// A part of one disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Part {
    /// The disk.
    pub disk: usize,
    /// Its first byte.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// Disks in one world.
pub struct Array {
    /// Their clock.
    pub world: SimWorld,
    disks: Vec<Member>,
}

struct Member {
    disk: TimedDisk,
    begun: Cell<u64>,
    ended: Cell<u64>,
    running: Cell<bool>,
    changed: Signal,
}

impl Array {
    /// These disks, in a world of their own.
    pub fn new(kinds: &[Kind]) -> Rc<Array> {
        let world = SimWorld::new(1, Scheduling::Fifo);
        let member = |kind: &Kind| Member {
            disk: TimedDisk::new(&world, kind.timing()),
            begun: Cell::new(0),
            ended: Cell::new(0),
            running: Cell::new(false),
            changed: Signal::new(),
        };
        let disks = kinds.iter().map(member).collect();
        Rc::new(Array { world, disks })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.disks.len()
    }

    /// Bytes read from all disks, and written to them.
    pub fn moved(&self) -> (u64, u64) {
        let stats = self.disks.iter().map(|member| member.disk.stats());
        stats.fold((0, 0), |(read, written), one| (read + one.read_bytes.0, written + one.written_bytes.0))
    }

    /// Writes all parts side by side.
    pub async fn write(&self, parts: &[Part]) {
        let one = |part: &Part| self.disks[part.disk].disk.submit(Op::Write(DiskOffset(part.at), ByteCount(part.len)));
        join(parts.iter().map(one)).await;
    }

    /// Writes all parts side by side, through the disks' caches.
    pub async fn write_through(&self, parts: &[Part]) {
        let op = |part: &Part| Op::WriteThrough(DiskOffset(part.at), ByteCount(part.len));
        join(parts.iter().map(|part| self.disks[part.disk].disk.submit(op(part)))).await;
    }

    /// Reads all parts side by side.
    pub async fn read(&self, parts: &[Part]) {
        let one = |part: &Part| self.disks[part.disk].disk.submit(Op::Read(DiskOffset(part.at), ByteCount(part.len)));
        join(parts.iter().map(one)).await;
    }

    /// Empties the write caches of these disks.
    pub async fn flush(&self, disks: impl Iterator<Item = usize>) {
        join(disks.map(|disk| self.disks[disk].flush())).await;
    }

    /// Empties all write caches.
    pub async fn flush_all(&self) {
        self.flush(0..self.disks.len()).await;
    }
}

impl Member {
    async fn flush(&self) {
        let mine = self.begun.get() + 1;
        while self.ended.get() < mine {
            if self.running.get() {
                self.changed.changed().await;
                continue;
            }
            let nth = self.begun.get() + 1;
            self.running.set(true);
            self.begun.set(nth);
            self.disk.submit(Op::Flush).await;
            self.ended.set(nth);
            self.running.set(false);
            self.changed.notify();
        }
    }
}

/// Puts parts that touch each other on one disk together.
pub fn merged(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_unstable();
    let mut merged: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        match merged.last_mut() {
            Some(last) if last.disk == part.disk && last.at + last.len == part.at => last.len += part.len,
            _ => merged.push(part),
        }
    }
    merged
}
