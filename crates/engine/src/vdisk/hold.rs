//! Holding: whole stripes of a client that flushes after every little that it writes stay in memory for a while.
//!
//! The story
//! 1. A stripe that leaves as soon as it is whole is in the caches of its disks when the flush comes. On disks that
//!    seek the flush then waits until their arms have been where it lies, and where the log lies.
//! 2. So such a stripe goes on gathering: the flush lands it in the log, and waits for that alone.
//! 3. When there are enough of them they leave together, one behind the other: one trip of the arms for many flushes.
//! 4. A client that writes more before it flushes is a stream. What is held leaves then, and what follows leaves as it
//!    becomes whole: written to the log first, it would take the disks longer than a trip of their arms.
//!
//! Invariants
//! 1. What is held is in a gathering buffer like any other: read from there, landed by flushes, and sent to the disks
//!    by whoever makes room in memory, in the log, or for others.
//! 2. No virtual disk holds more than [`HELD_MAX`] for each disk, nor more than an eighth of the log or of the memory
//!    for buffers, nor anything for which flushes would wait for room in the log.
//! 3. Nothing is held once its client rests.

use super::Vdisk;
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::units::BLOCK;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

/// Bytes before a flush from which on a client is a stream.
const LITTLE: u64 = 3 << 19;
/// Flushes after little, in a row, after which whole stripes are held.
const PROVEN: u32 = 3;
/// Bytes that are held at most for each disk that they go to: what it writes while a flush waits.
const HELD_MAX: u64 = 4 << 20;

/// What a virtual disk knows of its clients' flushes, and which of its stripes it holds.
#[derive(Default)]
pub(super) struct Hold {
    /// Bytes written since the last flush.
    unflushed: Cell<u64>,
    /// Flushes in a row that came after little.
    after_little: Cell<u32>,
    /// Stripes that were whole, and did not leave for that. Some may have left since.
    held: RefCell<BTreeSet<u64>>,
}

impl Hold {
    /// Forgets which stripes are held: they are others now.
    pub(super) fn forget(&self) {
        self.held.borrow_mut().clear();
    }
}

impl Vdisk {
    /// Notes that a client writes `len` bytes.
    pub(super) fn hold_wrote(&self, len: u64) {
        let unflushed = self.hold.unflushed.get() + len;
        self.hold.unflushed.set(unflushed);
        if unflushed > LITTLE {
            self.hold.after_little.set(0);
        }
    }

    /// Notes that a client flushes.
    pub(super) fn hold_flushed(&self) {
        match self.hold.unflushed.replace(0) {
            0 => {}
            1..=LITTLE => self.hold.after_little.set(self.hold.after_little.get().saturating_add(1)),
            _ => self.hold.after_little.set(0),
        }
    }

    /// Seals `stripe` if it is whole, or holds it.
    pub(super) fn seal_or_hold(self: &Rc<Self>, stripe: u64) {
        if self.hold.after_little.get() < PROVEN {
            self.release_held();
            return self.seal_if_whole(stripe);
        }
        if self.with_filling(stripe, |buffer| buffer.is_whole()) != Some(true) {
            return;
        }
        if !self.holds_stripes() {
            return self.seal_if_whole(stripe);
        }
        self.hold.held.borrow_mut().insert(stripe);
        // Whoever does not flush rests some time, and nothing is held then.
        self.start_idle_timer();
        if mutant::active(Mutant::HeldIsNotLanded) {
            self.unlanded.borrow_mut().remove(&stripe);
        }
        let (log, memory) = (self.store.log.fill().1, self.store.traffic.budgets.buffers.limit());
        let most = (HELD_MAX * self.layout().data_columns() as u64).min(log / 8).min(memory / 8);
        let held = self.hold.held.borrow().len() as u64 * self.stripe_len().0;
        if held >= most && !mutant::active(Mutant::HoldsWithoutEnd) {
            self.release_held();
        }
    }

    /// Lets go of what is held: it leaves now.
    pub(crate) fn release_held(self: &Rc<Self>) {
        if mutant::active(Mutant::HeldForEver) {
            return;
        }
        let held = core::mem::take(&mut *self.hold.held.borrow_mut());
        held.into_iter().for_each(|stripe| self.seal_if_whole(stripe));
    }

    /// Whether it pays to hold: flushes wait for arms, and the log takes a whole stripe without waiting for room.
    fn holds_stripes(&self) -> bool {
        let (log, len) = (&self.store.log, self.stripe_len().0 + BLOCK);
        let lands = len <= log.record_max() && log.has_room(len, Room::Landing) && !self.has_pins();
        let flushed = || self.store.loggers().iter().any(|no| !self.store.power_of(*no).is_protected());
        lands && self.seeks() && flushed() && !self.store.is_log_apart(self.table())
    }
}
