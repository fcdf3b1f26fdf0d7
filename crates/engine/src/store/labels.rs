//! Labels of the open pool: who is a current member, where the newest checkpoint is. See `format/label.rs` for the slots.
//!
//! Invariants
//! 1. A label of epoch `e` is written only after all it refers to is durable.
//! 2. An epoch counts once it is durable on every disk that it names as current; a disk that fails to take it is dropped and the next epoch
//!    says so.
//! 3. A disk that was away votes, or carries the log, only after it was brought what it missed of checkpoint, or log.

use super::choice::{self, Candidate};
use super::{Store, join};
use crate::error::Result;
use crate::fail;
use crate::format::Id;
use crate::format::label::{Anchor, DiskPlan, Label, Membership};
use crate::format::record::DiskRecord;
use crate::limits::DISKS_MAX;
use crate::segment::DiskRoom;
use crate::sync::Turn;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// The most voters: disks whose majority opens the pool. One more for a moment, while one takes the place of another.
pub const VOTERS_MAX: usize = 5;
/// Copies of the log, where there are as many disks.
pub const LOGGERS_MAX: usize = 3;

/// What the labels say now, or will say next.
pub struct Labels {
    /// The pool's name.
    pub pool_name: RefCell<String>,
    /// The newest epoch.
    pub epoch: Cell<u64>,
    /// The opening that wrote the newest label, and the first batch it would write.
    pub opened: Cell<(u64, u64)>,
    /// The newest checkpoint.
    pub anchor: Cell<Anchor>,
    /// Disks whose majority opens the pool; each has the newest checkpoint.
    pub voters: Cell<u64>,
    /// Disks that carry the log; each has all of its live part.
    pub loggers: Cell<u64>,
    /// Whether the disks carry something else than this.
    pub outdated: Cell<bool>,
    /// Held while the log moves to other disks.
    pub moving: Turn,
    turn: Turn,
}

impl Labels {
    /// What `label` says.
    pub fn new(label: &Label) -> Labels {
        Labels {
            pool_name: RefCell::new(label.pool_name.clone()),
            epoch: Cell::new(label.epoch),
            opened: Cell::new((label.opened, label.opened_batch)),
            anchor: Cell::new(label.anchor),
            voters: Cell::new(label.membership.voters),
            loggers: Cell::new(label.membership.loggers),
            outdated: Cell::new(true),
            moving: Turn::default(),
            turn: Turn::default(),
        }
    }

    /// Disk `no` neither votes nor carries the log from now on: when it is back it lacks what was written meanwhile.
    pub fn strike(&self, no: u16) {
        self.voters.set(self.voters.get() & !(1 << no));
        self.loggers.set(self.loggers.get() & !(1 << no));
    }
}

impl Store {
    /// Brings the labels up to date if they are not. Fails when no current disk is left.
    pub async fn write_labels(&self) -> Result<()> {
        let _turn = self.labels.turn.take().await;
        while self.labels.outdated.replace(false) {
            let epoch = self.labels.epoch.get() + 1;
            self.labels.epoch.set(epoch);
            let labels = self.make_labels(epoch);
            if labels.iter().all(|(_, label)| label.membership.current >> label.disk_no & 1 == 0) {
                self.labels.outdated.set(true);
                return fail!(Lost, "no disk with up-to-date metadata is left");
            }
            join(labels.iter().map(|(no, label)| self.write_label(*no, label))).await;
        }
        Ok(())
    }

    /// The disks that carry checkpoints and are there.
    pub fn voters(&self) -> Vec<u16> {
        self.present(self.labels.voters.get())
    }

    /// The disks that carry the log and are there.
    pub fn loggers(&self) -> Vec<u16> {
        self.present(self.labels.loggers.get())
    }

    /// Whether the log and the votes are where they are best.
    pub fn is_settled(&self) -> bool {
        self.loggers_wanted(|_| true) == set_of(&self.loggers()) && self.voters_next() == set_of(&self.voters())
    }

    /// The disks that are to carry the log, of those that `may`.
    pub fn loggers_wanted(&self, may: impl Fn(u16) -> bool) -> u64 {
        self.choose(self.labels.loggers.get(), |candidates| {
            candidates.retain(|disk| may(disk.no));
            choice::loggers(candidates)
        })
    }

    /// The disks that vote after the next checkpoint: one more or one fewer than now, or those that do now if they are the best.
    pub fn voters_next(&self) -> u64 {
        let now = set_of(&self.voters());
        choice::next_voters(now, self.choose(now, |candidates| choice::voters(candidates)))
    }

    /// Chooses among the disks that are there and up to date. One without a record is about to join, or to leave.
    fn choose(&self, now: u64, choice: impl FnOnce(&mut Vec<Candidate<'_>>) -> u64) -> u64 {
        let members = self.members.borrow();
        let map = self.map.borrow();
        let mut candidates = Vec::new();
        for (no, _) in members.iter().filter(|(_, member)| member.current && member.disk.is_some()) {
            let Some(DiskRoom { record, .. }) = map.disks.get(no) else { continue };
            let now = now >> no & 1 == 1;
            let DiskRecord { usage, media, domain, .. } = record;
            candidates.push(Candidate { no: *no, usage: *usage, media: *media, domain, now });
        }
        choice(&mut candidates)
    }

    fn present(&self, set: u64) -> Vec<u16> {
        let members = self.members.borrow();
        let there = |no: &u16| members.get(no).is_some_and(|member| member.current && member.disk.is_some());
        (0..DISKS_MAX as u16).filter(|no| set >> no & 1 == 1).filter(there).collect()
    }

    fn make_labels(&self, epoch: u64) -> Vec<(u16, Label)> {
        let members = self.members.borrow();
        let set = |pick: &dyn Fn(&super::Member) -> bool| {
            members.iter().filter(|(_, member)| pick(member)).fold(0u64, |set, (no, _)| set | 1 << no)
        };
        let current = set(&|member| member.current && member.disk.is_some());
        let membership = Membership {
            members: set(&|_| true),
            current,
            voters: self.labels.voters.get() & current,
            loggers: self.labels.loggers.get() & current,
        };
        let mut disk_ids = [Id::default(); DISKS_MAX];
        members.iter().for_each(|(no, member)| disk_ids[*no as usize] = member.id);
        let there = members.iter().filter(|(_, member)| member.disk.is_some());
        let label = |(no, member): (&u16, &super::Member)| {
            let label = Label {
                pool_id: self.id,
                pool_name: self.labels.pool_name.borrow().clone(),
                disk_id: member.id,
                disk_no: *no,
                epoch,
                opened: self.labels.opened.get().0,
                opened_batch: self.labels.opened.get().1,
                slab_len: self.slab,
                plan: member.plan,
                membership,
                anchor: self.labels.anchor.get(),
                disk_ids,
            };
            (*no, label)
        };
        there.map(label).collect()
    }

    async fn write_label(&self, no: u16, label: &Label) {
        let slots = DiskPlan::label_slots(label.plan.disk_len);
        let block = label.encode().freeze();
        let parity = (label.epoch % 2) as usize;
        let both = [slots[parity], slots[2 + parity]];
        let written = join(both.into_iter().map(|at| self.disk_write(no, at, vec![block.clone()]))).await;
        if written.iter().all(|written| written.is_ok()) {
            // A failed flush takes the disk out, and the next epoch says so.
            let _ = self.disk_flush(no).await;
        }
    }
}

/// Numbers of disks as bits.
pub fn set_of(disks: &[u16]) -> u64 {
    disks.iter().fold(0, |set, no| set | 1 << no)
}
