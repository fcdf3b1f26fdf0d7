//! Which faults a disk is to have: the next one exactly, or some by chance.

use crate::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use weft_engine::io::DiskError;
use weft_engine::units::{BLOCK, ByteCount, DiskOffset, Nanos};

/// How likely each fault is, per operation it can befall. The default plan has none.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// A read finds one of its blocks unreadable, until that is rewritten.
    pub latent: f64,
    /// A read fails, and the next one of the same blocks does not.
    pub transient: f64,
    /// A read finds one of its blocks changed.
    pub rot: f64,
    /// A write goes to another place.
    pub misdirect: f64,
    /// A write reports success and does nothing.
    pub lose: f64,
    /// A write reports an error and does anything.
    pub write_error: f64,
    /// A flush reports an error and makes nothing durable.
    pub flush_error: f64,
    /// The disk stops answering for a while.
    pub stall: f64,
    /// The longest such while.
    pub stall_max: Nanos,
    /// A write that a power cut tears leaves junk, or what cannot be read, in the blocks it was meant for.
    pub ruin: f64,
}

/// A fault about to be injected by a [`FaultPlan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// This block becomes unreadable.
    Latent(DiskOffset),
    /// The read of so many bytes from here fails.
    Transient(DiskOffset, u64),
    /// This block changes by itself.
    Rot(DiskOffset),
    /// A write of `len` bytes meant for `at` lands at `to`.
    Misdirect {
        /// Where it was meant to go.
        at: DiskOffset,
        /// Where it goes.
        to: DiskOffset,
        /// How long it is.
        len: ByteCount,
    },
    /// A write of so many bytes for this place is lost.
    Lose(DiskOffset, ByteCount),
    /// A write of so many bytes to this place fails.
    WriteError(DiskOffset, ByteCount),
    /// A flush fails.
    FlushError,
    /// The disk stops answering for this long.
    Stall(Nanos),
}

/// Asked before each planned fault: `true` lets it happen. It may look into the ledgers of all disks, this one
/// included.
pub type Guard = Rc<dyn Fn(Fault) -> bool>;

/// What happens to one write, instead of what should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteFault {
    /// It goes to this place; the place meant for it keeps its bytes.
    Misdirect(DiskOffset),
    /// It reports success and does nothing.
    Lose,
    /// It reports this error; any of its sectors may be written.
    Error(DiskError),
}

/// The faults one disk will have.
#[derive(Default)]
pub(crate) struct Faults {
    pub plan: FaultPlan,
    pub guard: Option<Guard>,
    /// For the next writes, first come first served.
    pub writes: VecDeque<WriteFault>,
    /// For the next reads of each of these blocks, and how many of them.
    pub reads: BTreeMap<u64, (u32, DiskError)>,
    /// For the next flushes.
    pub flushes: VecDeque<DiskError>,
}

impl Faults {
    /// The faults planned for one read.
    pub fn draw_read(&self, at: DiskOffset, len: u64, rng: &mut Rng) -> Vec<Fault> {
        let mut drawn = self.draw_stall(rng);
        let block = |rng: &mut Rng| DiskOffset(at.0 + rng.below((len / BLOCK).max(1)) * BLOCK);
        if len > 0 && rng.chance(self.plan.latent) {
            drawn.push(Fault::Latent(block(rng)));
        }
        if len > 0 && self.plan.transient > 0.0 && rng.chance(self.plan.transient) {
            drawn.push(Fault::Transient(at, len));
        }
        if len > 0 && rng.chance(self.plan.rot) {
            drawn.push(Fault::Rot(block(rng)));
        }
        drawn
    }

    /// The error planned for a read of these bytes; it happens as often as is planned.
    pub fn take_read_error(&mut self, at: DiskOffset, len: u64) -> Option<DiskError> {
        let blocks = at.0 / BLOCK..(at.0 + len).div_ceil(BLOCK);
        let (block, (left, error)) = self.reads.range_mut(blocks).next()?;
        *left -= 1;
        let (block, error, done) = (*block, *error, *left == 0);
        if done {
            self.reads.remove(&block);
        }
        Some(error)
    }

    /// The faults planned for one write on a disk of `capacity`.
    pub fn draw_write(&self, at: DiskOffset, len: ByteCount, capacity: ByteCount, rng: &mut Rng) -> Vec<Fault> {
        let mut drawn = self.draw_stall(rng);
        if rng.chance(self.plan.misdirect) {
            let to = DiskOffset(rng.below((capacity.0 - len.0) / BLOCK + 1) * BLOCK);
            drawn.push(Fault::Misdirect { at, to, len });
        } else if rng.chance(self.plan.lose) {
            drawn.push(Fault::Lose(at, len));
        } else if rng.chance(self.plan.write_error) {
            drawn.push(Fault::WriteError(at, len));
        }
        drawn
    }

    /// The faults planned for one flush.
    pub fn draw_flush(&self, rng: &mut Rng) -> Vec<Fault> {
        let mut drawn = self.draw_stall(rng);
        if rng.chance(self.plan.flush_error) {
            drawn.push(Fault::FlushError);
        }
        drawn
    }

    fn draw_stall(&self, rng: &mut Rng) -> Vec<Fault> {
        let stalls = rng.chance(self.plan.stall) && self.plan.stall_max.0 > 0;
        if stalls { vec![Fault::Stall(Nanos(rng.range(0..self.plan.stall_max.0) + 1))] } else { Vec::new() }
    }
}
