//! The freeze: while too few disks are there, nothing is written and nothing is called durable. The pool thaws by
//! itself when enough of them are back.
//!
//! Invariants
//! 1. A frozen pool writes no label, no page, no checkpoint and no log batch. What the disk that follows the log lacks
//!    of it is copied there, if the log is all that the pool lacks (`follow.rs`): no label names that disk yet.
//! 2. Clients wait as long as the pool has been frozen for less than
//!    [`Tuning::freeze_limit`](super::Tuning::freeze_limit); then they are refused, until it thaws. What works for the
//!    pool itself waits until it thaws, stops or fails.
//! 3. Whoever waits is woken when the pool freezes, thaws, and begins to refuse.

use super::{Store, quorum};
use crate::disk_set::DiskSet;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::mutant::{self, Mutant};
use crate::units::{DiskNo, Nanos, SegmentNo};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// Whether the pool is frozen, and since when.
#[derive(Default)]
pub struct Freeze {
    /// Why, and from when on.
    frozen: RefCell<Option<(String, Nanos)>>,
    /// It has been for so long that clients are refused.
    refuses: Cell<bool>,
    /// How often it has frozen.
    count: Cell<u64>,
    /// Nobody may wait for disks: the pool is being closed.
    closing: Cell<bool>,
    /// It is being opened.
    opening: Cell<bool>,
}

impl Store {
    /// Why the pool is frozen, if it is.
    pub fn frozen(&self) -> Option<String> {
        self.freeze.frozen.borrow().as_ref().map(|(reason, _)| reason.clone())
    }

    /// For how long the pool has been frozen, if it is.
    pub fn frozen_for(&self) -> Option<Nanos> {
        self.freeze.frozen.borrow().as_ref().map(|(_, since)| self.world.now().since(*since))
    }

    /// Lets nobody wait for disks any more: the pool is being closed.
    pub fn refuse_to_wait(&self) {
        self.freeze.closing.set(true);
        self.wake_all();
    }

    /// The pool is being opened, or is no more: nobody can bring a disk back meanwhile, so the opening waits for none.
    pub fn set_opening(&self, opening: bool) {
        self.freeze.opening.set(opening);
    }

    /// Ends the background tasks.
    pub fn stop_tasks(&self) {
        self.stopping.set(true);
        self.wake_all();
    }

    /// Whether any disk of the pool is missing.
    pub fn misses_disks(&self) -> bool {
        self.members.borrow().values().any(|member| member.disk.is_none())
    }

    /// Whether nobody may wait for disks.
    pub fn is_closing(&self) -> bool {
        self.freeze.closing.get()
    }

    /// Waits until something has changed since [`Store::changes`] was `changes`, as long as disks are missing that went
    /// a short while ago. `false`: there are none, or not any more.
    pub async fn await_disks(&self, changes: u64) -> bool {
        const LOOK: Nanos = Nanos::millis(50);
        loop {
            if self.signals.changes.get() != changes {
                return true;
            }
            if !self.awaits_disks() || self.log.failure().is_some() {
                return false;
            }
            self.world.sleep(LOOK).await;
        }
    }

    /// Whether disks are missing that went so short a while ago that clients wait for them.
    pub fn awaits_disks(&self) -> bool {
        let recent = |gone: Nanos| !self.is_timeout_over(gone);
        self.members.borrow().values().any(|member| member.disk.is_none() && member.gone.is_some_and(recent))
    }

    /// Whether disks have room that nobody can have yet: they may be back in a moment, or are back and not current yet.
    pub fn awaits_room(&self) -> bool {
        let is_behind = |no: &DiskNo| self.has_disk(*no) && !self.is_current(*no);
        let awaits = self.awaits_disks() || self.members.borrow().keys().any(is_behind);
        awaits && !mutant::active(Mutant::RoomIsNotAwaited)
    }

    /// Whether somebody who has waited for disks since `since` is to be refused.
    pub fn is_timeout_over(&self, since: Nanos) -> bool {
        self.freeze.closing.get() || self.world.now().since(since) >= self.tuning.freeze_limit
    }

    /// Freezes or thaws the pool, as the disks that are there demand. To be called whenever one goes or comes.
    pub fn review_freeze(&self) {
        if self.read_only || !self.writing.get() {
            return;
        }
        let reason = self.too_little();
        let was = self.freeze.frozen.borrow().is_some();
        match reason {
            Some(reason) if !was => {
                self.freeze.count.set(self.freeze.count.get() + 1);
                *self.freeze.frozen.borrow_mut() = Some((reason.clone(), self.world.now()));
                self.world.emit(Event::PoolFrozen { reason });
            }
            Some(reason) => {
                if let Some((told, _)) = &mut *self.freeze.frozen.borrow_mut() {
                    *told = reason;
                }
            }
            None if was => {
                *self.freeze.frozen.borrow_mut() = None;
                self.freeze.refuses.set(false);
                self.world.emit(Event::PoolThawed);
            }
            None => return,
        }
        self.wake_all();
    }

    /// Waits until the pool is not frozen. Fails when it stops or has failed.
    pub async fn thawed(&self) -> Result<()> {
        loop {
            if let Some(error) = self.log.failure() {
                return Err(error);
            }
            let changed = self.signals.work.changed();
            match self.frozen() {
                None => return Ok(()),
                Some(reason) if self.freeze.closing.get() || self.freeze.opening.get() => return Err(frozen(reason)),
                Some(_) => changed.await,
            }
        }
    }

    /// Refuses what a client asks for once the pool has been frozen for too long.
    pub fn check_not_frozen(&self) -> Result<()> {
        match self.frozen() {
            Some(reason) if self.freeze.refuses.get() || self.freeze.closing.get() => Err(frozen(reason)),
            _ => Ok(()),
        }
    }

    /// Makes every record below `seq` durable, for a client: refuses while the pool is frozen for too long.
    pub async fn make_durable(&self, seq: u64) -> Result<()> {
        self.log.make_durable_unless(seq, || self.check_not_frozen()).await
    }

    /// Makes every record below `seq` durable, for the pool itself: waits while it is frozen, unless it is being
    /// closed.
    pub async fn make_logged(&self, seq: u64) -> Result<()> {
        self.log.make_durable_unless(seq, || self.check_not_closing()).await
    }

    /// Refuses what would wait for disks while the pool is being closed, or opened.
    pub fn check_not_closing(&self) -> Result<()> {
        let opening = self.freeze.opening.get() && !mutant::active(Mutant::OpeningWaits);
        match self.frozen() {
            Some(reason) if self.freeze.closing.get() || opening => Err(frozen(reason)),
            _ => Ok(()),
        }
    }

    /// Notes whether the log is held by what cannot leave it, so that nothing can make room there as things are.
    pub fn note_pinned(&self, pinned: bool) {
        let now = pinned.then_some(self.signals.changes.get());
        if self.signals.pinned.replace(now) != now && pinned {
            self.log.moved.notify();
        }
    }

    /// Whether that is so.
    pub fn is_log_pinned(&self) -> bool {
        self.signals.pinned.get() == Some(self.signals.changes.get())
    }

    /// What the pool lacks to go on: labels, log and metadata each need some of their disks.
    fn too_little(&self) -> Option<String> {
        if let Some(reason) = self.too_few_voters() {
            return Some(reason);
        }
        let current = self.current_set();
        if (self.labels.loggers.get() & current).is_empty() {
            let missing = self.names_of(self.labels.durable.get().loggers);
            return Some(format!("no disk with the log is there: {missing} missing, one of them is needed"));
        }
        let on = self.metadata_beyond(current)?;
        Some(format!("metadata is out of reach: {} missing, one of them is needed", self.names_of(on)))
    }

    /// Whether the log is all that the pool lacks.
    pub(super) fn lacks_the_log_alone(&self) -> bool {
        let current = self.current_set();
        let no_log = (self.labels.loggers.get() & current).is_empty();
        no_log && self.too_few_voters().is_none() && self.metadata_beyond(current).is_none()
    }

    fn too_few_voters(&self) -> Option<String> {
        let current = self.current_set();
        let voters = self.labels.durable.get().voters;
        if !quorum::may_go_on(voters, current) && !mutant::active(Mutant::FreezeIgnored) {
            let (there, all) = ((voters & current).len(), voters.len());
            let missing = self.names_of(voters - current);
            return Some(format!(
                "{there} of the {all} disks that vote are there, {missing} missing: half of them are needed"
            ));
        }
        let joint = self.labels.joint.get();
        if !joint.is_empty() && !quorum::may_open(joint, self.present_set()) {
            let missing = self.names_of(joint - self.present_set());
            return Some(format!("{missing} missing: more than half of the disks that voted last are needed"));
        }
        if let Some(voters) = self.attempted_beyond(self.present_set()) {
            let missing = self.names_of(voters - self.present_set());
            return Some(format!(
                "{missing} missing, and may have become the only disks that vote: half of those are needed"
            ));
        }
        None
    }

    /// The voters of a label that was cut short of which less than half are among `present`: the others may open the
    /// pool by it.
    pub fn attempted_beyond(&self, present: DiskSet) -> Option<DiskSet> {
        if mutant::active(Mutant::AttemptedForgotten) {
            return None;
        }
        let attempted = self.labels.attempted.borrow();
        attempted.iter().copied().find(|voters| !voters.is_empty() && !quorum::may_go_on(*voters, present))
    }

    /// The disks of a metadata segment of which the disks `current` hold no copy: as things are, as the newest
    /// checkpoint has it, or as the log may say when the power goes. A copy that has moved since is found by no opening
    /// before it reads the log, and nobody knows whether that it moved is durable.
    pub fn metadata_beyond(&self, current: DiskSet) -> Option<DiskSet> {
        let map = self.map.borrow();
        let before = self.meta.homes.borrow();
        let logged = self.log.homes();
        let before = before.iter().map(|(id, on)| (*id, *on)).chain(logged);
        let before = before.filter(|(id, _)| map.segments.contains_key(id)).map(|(_, on)| on);
        let now = map.metadata_segments().map(|found| found.disks());
        now.chain(before).find(|on| (*on & current).is_empty())
    }

    /// The disks of each metadata segment.
    pub fn metadata_homes(&self) -> BTreeMap<SegmentNo, DiskSet> {
        let map = self.map.borrow();
        map.metadata_segments().map(|found| (found.record.id, found.disks())).collect()
    }

    fn names_of(&self, set: DiskSet) -> String {
        let map = self.map.borrow();
        let name =
            |no: DiskNo| map.disks.get(&no).map_or_else(|| format!("disk {no}"), |disk| disk.record.name.clone());
        let names: Vec<String> = set.iter().map(name).collect();
        format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
    }

    /// Lets everybody who waits for anything look again.
    pub fn wake_all(&self) {
        self.log.moved.notify();
        self.log.wake.notify();
        self.log.pressure.notify();
        self.signals.room.notify();
        self.changed();
    }
}

/// Begins to refuse clients whenever the pool has been frozen for too long, until the pool stops or fails.
pub async fn freeze_watch(store: Rc<Store>) {
    loop {
        let changed = store.signals.work.changed();
        if store.stopping.get() || store.log.failure().is_some() {
            return;
        }
        let (count, limit) = (store.freeze.count.get(), store.tuning.freeze_limit);
        match store.frozen_for() {
            Some(span) if !store.freeze.refuses.get() => {
                store.world.sleep(limit.since(span)).await;
                if store.freeze.count.get() == count && store.frozen_for().is_some_and(|span| span >= limit) {
                    store.freeze.refuses.set(true);
                    store.wake_all();
                }
            }
            _ => changed.await,
        }
    }
}

/// Refusal for want of disks.
pub fn frozen(reason: String) -> Error {
    Error::new(ErrorKind::Frozen, reason)
}
