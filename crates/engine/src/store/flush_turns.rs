//! How a stream and clients that flush share disks that seek.
//!
//! A flush of a disk empties its cache, so whoever waits for one waits for everything that the cache took before. A
//! stream beside clients that flush keeps the caches full: each of their flushes would take what it takes to write all
//! that, and a commit is two flushes, one behind the other. So they share the disks by turns:
//! 1. From the end of one commit to the end of the next, runs of stripes are given
//!    [`Tuning::flush_turn_bytes`](super::Tuning::flush_turn_bytes) of each disk, in the order in which they got their
//!    places: side by side on the disk, and written in one go. They mostly begin right behind a commit, so one of the
//!    next one's flushes waits for them, and the other finds the caches empty.
//! 2. A flush that waits for just these stripes does not hold them.
//!
//! Between two flushes of one client a moment passes: where it was short between the last two, the next one is expected
//! for as long. What makes room in the log, the log itself and jobs are not held. Disks that do not seek serve all at
//! once.
//!
//! Invariants
//! 1. No run of stripes is held longer than [`HELD_MAX`] for the sake of flushes, but for the moment until the next
//!    look.
//! 2. Where nobody flushes, nothing is held.
//! 3. What a flush waits for is not held for the sake of flushes.

use super::Store;
use super::turns::HELD_MAX;
use crate::sync::Signal;
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

/// So long after a flush has ended the next one is still expected.
const EXPECTED: Nanos = Nanos::millis(20);
/// How often runs that are held look whether anybody flushes.
const LOOK: Nanos = Nanos::millis(4);

/// Clients that wait until the log is durable, and what is written beside them.
#[derive(Default)]
pub struct FlushTurns {
    waiting: Cell<u32>,
    /// When the last of them had its answer.
    ended: Cell<Option<Nanos>>,
    /// Whether the last one came so soon after the one before that another is expected.
    repeats: Cell<bool>,
    /// Bytes per disk of the runs that began since the last commit ended.
    written: Cell<u64>,
    /// The numbers of the runs that are held, and of the next one.
    held: RefCell<BTreeSet<u64>>,
    next: Cell<u64>,
    /// A task wakes those that are held now and then.
    watched: Cell<bool>,
    moved: Signal,
}

/// Held while a client waits until the log is durable.
pub struct FlushWaits<'a>(&'a Store);

impl Drop for FlushWaits<'_> {
    fn drop(&mut self) {
        let turns = &self.0.traffic.flush_turns;
        turns.waiting.set(turns.waiting.get() - 1);
        turns.ended.set(Some(self.0.world.now()));
    }
}

impl Store {
    /// A client waits until the log is durable, as long as it holds this.
    pub fn flush_waits(&self) -> FlushWaits<'_> {
        let turns = &self.traffic.flush_turns;
        turns.waiting.set(turns.waiting.get() + 1);
        FlushWaits(self)
    }

    /// A commit has ended: what is written from now on is for the next one.
    pub fn flush_turn_ended(&self) {
        self.traffic.flush_turns.written.set(0);
        self.traffic.flush_turns.moved.notify();
    }

    /// A flush begins: stripes that it waits for are held for no other's sake any more.
    pub fn flush_begins(&self) {
        let FlushTurns { ended, repeats, moved, .. } = &self.traffic.flush_turns;
        repeats.set(ended.get().is_some_and(|at| self.world.now().since(at) <= EXPECTED));
        moved.notify();
    }

    /// Waits until `per_disk` bytes may be written to disks beside clients that flush. `is_flushed`: whether a flush
    /// waits for them.
    pub(super) async fn await_flush_turn(self: &Rc<Self>, per_disk: u64, is_flushed: impl Fn() -> bool) {
        let (turns, began) = (&self.traffic.flush_turns, self.world.now());
        let mine = turns.next.replace(turns.next.get() + 1);
        turns.held.borrow_mut().insert(mine);
        loop {
            let first = turns.held.borrow().first() == Some(&mine);
            let is_over = || self.stopping.get() || self.world.now().since(began) >= HELD_MAX;
            if is_flushed() || first && (!self.is_held_by_flushes() || is_over()) {
                break;
            }
            self.watch_flush_turns();
            turns.moved.changed().await;
        }
        turns.held.borrow_mut().remove(&mine);
        turns.written.set(turns.written.get() + per_disk);
        turns.moved.notify();
    }

    /// Whether runs of stripes would be in the way of clients that flush: there is one, or the next is expected, and
    /// the disks were given their share already.
    fn is_held_by_flushes(&self) -> bool {
        let FlushTurns { waiting, ended, repeats, written, .. } = &self.traffic.flush_turns;
        let soon = |at: Nanos| self.world.now().since(at) <= EXPECTED;
        let expected = || repeats.get() && ended.get().is_some_and(soon);
        written.get() >= self.tuning.flush_turn_bytes && (waiting.get() > 0 || expected())
    }

    /// Wakes runs that are held, until none is: nobody tells that no flush is expected any more.
    fn watch_flush_turns(self: &Rc<Self>) {
        if self.traffic.flush_turns.watched.replace(true) {
            return;
        }
        let (store, world) = (self.clone(), self.world.clone());
        let watch = async move {
            let turns = &store.traffic.flush_turns;
            while !turns.held.borrow().is_empty() {
                store.world.sleep(LOOK).await;
                turns.moved.notify();
            }
            turns.watched.set(false);
        };
        world.spawn("flush turns watch", Box::pin(watch));
    }
}
