//! The follower: one more copy of the log, for which nobody waits.
//!
//! Two fast disks are enough to carry the log where no layout survives more than one failure, and a flush should not
//! wait for a third one that is slower (`choice.rs`). That one gets the log all the same, a moment later and in long
//! pieces. No label names it: it counts for nothing. But should all disks that carry the log be lost at once, what it
//! lacks is still in memory: it is brought that, and carries the log from then on. So a pool that is open outlives the
//! loss of both. One that is being closed names it first.
//!
//! Invariants
//! 1. The follower is named as carrying the log only when all of the live part is durable there, while nothing is
//!    added to that: no disk with the log is there, so the pool is frozen.
//! 2. Nobody waits for it, but for a move of the log: that writes to the same place, so the two take turns. No commit
//!    flushes its disk, but for strips of the stripes that it commits (`commit.rs`).
//! 3. Batches are kept in memory until it has them, [`RECENT_MAX`] bytes at most. What is more is read from the disks
//!    that carry the log; should those be lost just then, the pool stays frozen until one of them is back.

use super::Store;
use super::log_move::Target;
use crate::disk_set::DiskSet;
use crate::event::Event;
use crate::io::{Buf, IoSlice};
use crate::log::Run;
use crate::mutant::{self, Mutant};
use crate::units::{DiskNo, Nanos};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use core::cell::{Cell, RefCell};

/// The most bytes of batches that are kept for it.
pub const RECENT_MAX: u64 = 16 << 20;
/// Bytes of the log that are copied before a move of the log may have its turn.
const STEP: u64 = 8 << 20;
/// How long it lets batches gather, so that a disk that seeks does so once for many.
const PAUSE: Nanos = Nanos::secs(1);

/// The disk that follows the log, and what it may lack.
#[derive(Default)]
pub struct Follower {
    target: RefCell<Option<Target>>,
    /// Whether there is one, or is about to be.
    wanted: Cell<bool>,
    /// Whether the task runs that looks after it.
    runs: Cell<bool>,
    /// Batches by where they lie.
    recent: RefCell<BTreeMap<u64, IoSlice>>,
    bytes: Cell<u64>,
    peak: Cell<u64>,
}

impl Follower {
    /// A batch was written to the disks that carry the log.
    pub(super) fn note(&self, position: u64, batch: IoSlice) {
        if !self.wanted.get() {
            return;
        }
        let mut recent = self.recent.borrow_mut();
        let mut bytes = self.bytes.get() + batch.len() as u64;
        recent.insert(position, batch);
        while bytes > RECENT_MAX
            && let Some((_, oldest)) = recent.pop_first()
        {
            bytes -= oldest.len() as u64;
        }
        self.bytes.set(bytes);
        self.peak.set(self.peak.get().max(bytes));
    }

    /// The bytes of a run, if all of it is in memory.
    pub(super) fn read(&self, run: &Run) -> Option<IoSlice> {
        let recent = self.recent.borrow();
        let mut whole = Buf::zeroed((run.end - run.start) as usize);
        for batch in &run.batches {
            let (at, bytes) = ((batch.position - run.start) as usize, recent.get(&batch.position)?);
            whole[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Some(whole.freeze())
    }

    /// Bytes that are kept for it: now, and at most so far.
    pub fn memory(&self) -> (u64, u64) {
        (self.bytes.get(), self.peak.get())
    }

    /// The disk that follows, and the position up to which it has the log.
    pub fn reached(&self) -> Option<(DiskNo, u64)> {
        self.target.borrow().as_ref().map(|target| (target.no, target.until))
    }

    /// Forgets what lies before `position`.
    fn forget(&self, position: u64) {
        let mut recent = self.recent.borrow_mut();
        *recent = recent.split_off(&position);
        self.bytes.set(recent.values().map(|batch| batch.len() as u64).sum());
    }

    /// Whether there is much that it lacks, or nothing that it has.
    fn is_pressed(&self) -> bool {
        self.wanted.get() && self.target.borrow().is_none() || self.bytes.get() >= RECENT_MAX / 2
    }
}

/// Copies the log to the disk that follows, and has that carry it if no other disk does any more, until none is to
/// follow, or the pool stops or fails.
async fn log_follower(store: Rc<Store>) {
    loop {
        let moved = store.log.moved.changed();
        if store.stopping.get() || store.log.failure().is_some() {
            break;
        }
        if store.loggers().is_empty() {
            store.promote_follower().await;
        } else if store.follow().await {
            continue;
        }
        if !store.follower.wanted.get() {
            break;
        }
        moved.await;
        let mut left = PAUSE;
        while left > Nanos(0) && !store.follower.is_pressed() && !store.loggers().is_empty() && !store.stopping.get() {
            let span = left.min(Nanos::millis(100));
            store.world.sleep(span).await;
            left = left.since(span);
        }
    }
    store.follower.runs.set(false);
}

impl Store {
    /// Has a disk follow the log, if one is to. To be called when the log may have moved.
    pub fn start_follower(self: &Rc<Self>) {
        if self.read_only || self.follower.runs.get() || self.follower_wanted(DiskSet::EMPTY).is_none() {
            return;
        }
        self.follower.runs.set(true);
        self.follower.wanted.set(true);
        self.world.spawn("log follower", Box::pin(log_follower(self.clone())));
    }

    /// Copies what the disk that follows lacks of the log, a part of it. Says whether there is more.
    async fn follow(&self) -> bool {
        let _moving = self.labels.moving.take().await;
        let before = self.follower.target.take().filter(|target| self.losses(target.no) == target.losses);
        let now = before.as_ref().map_or(DiskSet::EMPTY, |target| DiskSet::only(target.no));
        let wanted = self.follower_wanted(now);
        self.follower.wanted.set(wanted.is_some());
        let Some(no) = wanted else {
            self.follower.forget(u64::MAX);
            return false;
        };
        let (tail, head) = self.log.live();
        let before = before.filter(|target| target.no == no);
        let mut target = before.unwrap_or_else(|| {
            self.log_places.forget(no);
            Target { no, losses: self.losses(no), until: tail }
        });
        let bound = head.min(target.until.max(tail) + STEP);
        if !self.copy_log(&mut target, bound).await {
            return false;
        }
        self.follower.forget(target.until);
        let more = target.until < self.log.live().1 && target.until < head;
        *self.follower.target.borrow_mut() = Some(target);
        more
    }

    /// The log is carried by others from now on; it was on the disks `before`, up to its head. To be called
    /// before anything is added to it.
    pub(super) fn begin_to_follow(&self, before: DiskSet) {
        let wanted = self.follower_wanted(before);
        self.follower.wanted.set(wanted.is_some());
        let until = self.log.live().1;
        // What follows writes each batch to its position: where copies lie behind theirs it begins anew.
        let lies_behind = |no| {
            let behind = self.log_places.end_on(no).is_some_and(|end| end > until);
            behind && !mutant::active(Mutant::FormerLoggerFollows)
        };
        let has_it = wanted.filter(|no| before.contains(*no) && !lies_behind(*no));
        *self.follower.target.borrow_mut() = has_it.map(|no| Target { no, losses: self.losses(no), until });
        if wanted.is_some() {
            self.log.moved.notify();
        }
    }

    /// All disks that carried the log are lost: the one that followed them does so from now on, if it can be brought
    /// what it lacks.
    async fn promote_follower(&self) {
        let _moving = self.labels.moving.take().await;
        if !self.lacks_the_log_alone() {
            return;
        }
        let Some(mut target) = self.follower.target.take() else { return };
        let (no, (_, head)) = (target.no, self.log.live());
        let copied = mutant::active(Mutant::FollowerNamedEarly) || self.copy_log(&mut target, head).await;
        let durable = copied && self.disk_flush(no).await.is_ok() && self.losses(no) == target.losses;
        // One of the others may be back, and have gone on.
        if durable && self.lacks_the_log_alone() && self.log.live().1 == head {
            self.labels.loggers.set(DiskSet::only(no));
            self.labels.outdated.set(true);
            self.world.emit(Event::LogMoved { disks: vec![no] });
            self.review_freeze();
            self.changed();
        } else if copied {
            *self.follower.target.borrow_mut() = Some(target);
        }
    }
}
