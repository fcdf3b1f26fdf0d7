//! Labels of the open pool: who is a current member, where the newest checkpoint is. See `format/label.rs` for the
//! slots, `quorum.rs` for who may change what they say.
//!
//! Invariants
//! 1. A label of epoch `e` is written only after all it refers to is durable.
//! 2. An epoch counts once it is durable on every disk that it names as current; a disk that fails to take it is
//!    dropped and the next epoch says so.
//! 3. A disk that was away votes, or carries the log, only after it was brought what it missed of checkpoint, or log.
//! 4. A label that was cut short may be durable: the disks that it names as voters could be opened by it, so nothing
//!    goes on without half of them.
//! 5. A disk that was put back from a copy counts as that, whatever label it was given since, until it is durably on
//!    record that nobody knows what it lacks.
//! 6. No label is written while the pool is frozen. So a disk that is lost and back before a label without it was
//!    durable missed none.
//! 7. A label replaces the one before the last, so the last is durable by then; a disk that is opened, or comes back,
//!    is flushed first.
//! 8. What was written to a disk since its last durable label is on record when it is lost: it may come back as a copy
//!    that has this label, and not that.

use super::choice::{self, Candidate};
use super::{Store, join, quorum};
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::fail;
use crate::format::Id;
use crate::format::label::{ANNEX_LEN, Anchor, BatchBound, DiskPlan, Label, Membership, UNSEEN, has_annex, with_annex};
use crate::format::lineage::Lineage;
use crate::format::record::DiskRecord;
use crate::io::{Buf, Disk, DiskError};
use crate::limits::DISKS_MAX;
use crate::mutant::{self, Mutant};
use crate::segment::DiskRoom;
use crate::sync::Turn;
use crate::units::{BLOCK, DiskNo, DiskOffset};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// The most voters: disks whose majority opens the pool. One more for a moment, while one takes the place of another.
pub const VOTERS_MAX: usize = 5;
/// Copies of the log, where there are as many disks.
pub const LOGGERS_MAX: usize = 3;
/// Copies of the log where that many are on fast disks and no layout needs more.
pub const LOGGERS_MIN: usize = 2;

/// What the labels say now, or will say next.
pub struct Labels {
    /// The pool's name.
    pub pool_name: RefCell<String>,
    /// Its incompatible features.
    pub features: Cell<u64>,
    /// The newest epoch.
    pub epoch: Cell<u64>,
    /// The openings that led to the newest label, that label's own included.
    pub lineage: RefCell<Lineage>,
    /// The first batch that the newest of them would write.
    pub opened_batch: Cell<u64>,
    /// How long batches of the log are.
    pub batch_bound: Cell<BatchBound>,
    /// The largest number that an opening was promised.
    pub promised: Cell<u64>,
    /// What the last label says that was durable on all disks it calls current, and its epoch.
    pub durable: Cell<Membership>,
    /// The epoch of that label.
    pub durable_epoch: Cell<u64>,
    /// The voters of the last label that is known to be durable: what the next label says of it.
    pub durable_voters: Cell<DiskSet>,
    /// While the pool is opened by a label that may never have been durable: the voters of the one before, whose
    /// majority is needed, too. Empty: it was.
    pub joint: Cell<DiskSet>,
    /// The voters of labels that were written since that one, and may be durable on some disks or on all: nobody knows,
    /// for one of those was lost.
    pub attempted: RefCell<Vec<DiskSet>>,
    /// The disks that have missed nothing, although they may have been away since that label.
    pub whole: Cell<DiskSet>,
    /// The newest checkpoint.
    pub anchor: Cell<Anchor>,
    /// Disks whose majority opens the pool; each has the newest checkpoint.
    pub voters: Cell<DiskSet>,
    /// Disks that carry the log; each has all of its live part.
    pub loggers: Cell<DiskSet>,
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
            features: Cell::new(label.features),
            epoch: Cell::new(label.epoch),
            lineage: RefCell::new(label.lineage.clone()),
            opened_batch: Cell::new(label.opened_batch),
            batch_bound: Cell::new(label.batch_bound),
            promised: Cell::new(label.promised),
            durable: Cell::new(label.membership),
            durable_epoch: Cell::new(label.durable_epoch),
            durable_voters: Cell::new(label.durable_voters),
            joint: Cell::new(DiskSet::EMPTY),
            attempted: RefCell::default(),
            whole: Cell::new(label.membership.current),
            anchor: Cell::new(label.anchor),
            voters: Cell::new(label.membership.voters),
            loggers: Cell::new(label.membership.loggers),
            outdated: Cell::new(true),
            moving: Turn::default(),
            turn: Turn::default(),
        }
    }

    /// Disk `no` neither votes nor carries the log from now on: when it is back it lacks what was written meanwhile.
    pub fn strike(&self, no: DiskNo) {
        self.voters.set(self.voters.get().without(no));
        self.loggers.set(self.loggers.get().without(no));
    }

    /// Disks that are not among `present` miss something now, and are brought it when they are back.
    pub fn forget_absent(&self, present: DiskSet) {
        self.whole.set(self.whole.get() & present);
    }

    /// Disk `no` is back before any label without it was durable: it votes, and carries the log, as that label says.
    pub fn restore(&self, no: DiskNo) {
        let durable = self.durable.get();
        self.voters.set(self.voters.get() | durable.voters & DiskSet::only(no));
        self.loggers.set(self.loggers.get() | durable.loggers & DiskSet::only(no));
    }
}

impl Store {
    /// Brings the labels up to date if they are not. Waits while the pool is frozen.
    pub async fn write_labels(&self) -> Result<()> {
        let _turn = self.labels.turn.take().await;
        while self.labels.outdated.get() {
            self.thawed().await?;
            self.labels.outdated.set(false);
            let epoch = self.labels.epoch.get() + 1;
            self.labels.epoch.set(epoch);
            let labels = self.make_labels(epoch);
            let Some((_, any)) = labels.first() else { return fail!(Lost, "no disk is left") };
            let membership = any.membership;
            self.labels.attempted.borrow_mut().push(membership.voters);
            join(labels.iter().map(|(no, label)| self.write_label(*no, label))).await;
            // A disk that did not take it was lost, and the labels are outdated again.
            if !self.labels.outdated.get() {
                self.labels.durable.set(membership);
                self.labels.attempted.borrow_mut().clear();
                self.labels.durable_epoch.set(epoch);
                self.labels.durable_voters.set(membership.voters);
                self.labels.joint.set(DiskSet::EMPTY);
                self.labels.whole.set(membership.current);
                for (no, member) in self.members.borrow_mut().iter_mut() {
                    if membership.current.contains(*no) {
                        member.current_epoch = epoch;
                    }
                }
                self.review_freeze();
            }
        }
        Ok(())
    }

    /// Has the number `opening` promised by more than half of the voters: nobody who opens the pool after that is
    /// ignorant of it. `labels`: those of the disks that are believed; they are written anew as they are, but for the
    /// promise.
    pub async fn promise(&self, opening: u64, labels: &[Label], degraded: bool) -> Result<()> {
        let mut promised = DiskSet::EMPTY;
        // The rest is as it was: a disk that took no part in the newest label must not look as if it had.
        let writes = labels.iter().map(|own| {
            let label = Label { promised: opening, serial: own.serial + 1, ..own.clone() };
            async move { (own.disk_no, self.write_label(own.disk_no, &label).await) }
        });
        for (no, written) in join(writes).await {
            if written {
                promised.insert(no);
            }
        }
        let voters = self.labels.durable.get().voters;
        if !(quorum::may_open(voters, promised & self.current_set()) || degraded && !promised.is_empty()) {
            return fail!(
                NotPossible,
                "too many disks failed while the pool was opened: it needs more than half of those that vote"
            );
        }
        self.labels.promised.set(opening);
        Ok(())
    }

    /// The disks that carry checkpoints and are there.
    pub fn voters(&self) -> Vec<DiskNo> {
        self.present(self.labels.voters.get())
    }

    /// The disks that carry the log and are there.
    pub fn loggers(&self) -> Vec<DiskNo> {
        self.present(self.labels.loggers.get())
    }

    /// Whether the log and the votes are where they are best.
    pub fn is_settled(&self) -> bool {
        self.loggers_wanted(|_| true) == self.loggers().into_iter().collect()
            && self.voters_next() == self.voters().into_iter().collect()
    }

    /// The disks that are to carry the log, of those that `may`.
    pub fn loggers_wanted(&self, may: impl Fn(DiskNo) -> bool) -> DiskSet {
        let needed = self.log_copies();
        self.choose(self.labels.loggers.get(), |candidates| {
            candidates.retain(|disk| may(disk.no));
            choice::loggers(candidates, needed)
        })
    }

    /// Copies of the log that the layouts of this pool need: one more than the failures that any of them survives. A
    /// pool that is closed has no memory to make up for one that follows.
    fn log_copies(&self) -> usize {
        if self.is_closing() {
            return LOGGERS_MAX;
        }
        let map = self.map.borrow();
        let failures = map.tables.values().map(|table| table.record.layout.failures()).max().unwrap_or(0);
        if mutant::active(Mutant::LogCopiesTooFew) { LOGGERS_MIN } else { failures + 1 }
    }

    /// The disk that is to follow those that carry the log; those of `now` have the log up to some position.
    pub fn follower_wanted(&self, now: DiskSet) -> Option<DiskNo> {
        let carrying = self.labels.loggers.get();
        self.choose(now, |candidates| choice::follower(candidates, carrying))
    }

    /// The disks that vote after the next checkpoint: one more or one fewer than now, or those that do now if they are
    /// the best.
    pub fn voters_next(&self) -> DiskSet {
        let now = self.voters().into_iter().collect();
        choice::next_voters(now, self.choose(now, |candidates| choice::voters(candidates)))
    }

    /// Chooses among the disks that are there and up to date. One without a record is about to join, or to leave.
    fn choose<T>(&self, now: DiskSet, choice: impl FnOnce(&mut Vec<Candidate<'_>>) -> T) -> T {
        let members = self.members.borrow();
        let map = self.map.borrow();
        let mut candidates = Vec::new();
        for (no, _) in members.iter().filter(|(_, member)| member.current && member.disk.is_some()) {
            let Some(DiskRoom { record, .. }) = map.disks.get(no) else { continue };
            let now = now.contains(*no);
            let DiskRecord { usage, media, domain, .. } = record;
            candidates.push(Candidate { no: *no, usage: *usage, media: *media, domain, now });
        }
        choice(&mut candidates)
    }

    fn present(&self, set: DiskSet) -> Vec<DiskNo> {
        let members = self.members.borrow();
        let there = |no: &DiskNo| members.get(no).is_some_and(|member| member.current && member.disk.is_some());
        set.iter().filter(there).collect()
    }

    /// The labels of epoch `epoch` for the disks that are there.
    fn make_labels(&self, epoch: u64) -> Vec<(DiskNo, Label)> {
        let members = self.members.borrow();
        let set = |pick: &dyn Fn(&super::Member) -> bool| {
            members.iter().filter(|(_, member)| pick(member)).map(|(no, _)| *no).collect()
        };
        let current = set(&|member| member.current && member.disk.is_some());
        let membership = Membership {
            members: set(&|_| true),
            current,
            voters: self.labels.voters.get() & current,
            loggers: self.labels.loggers.get() & current,
        };
        let mut disk_ids = Box::new([Id::default(); DISKS_MAX]);
        let mut seen_epochs = Box::new([0; DISKS_MAX]);
        for (no, member) in members.iter() {
            disk_ids[no.0 as usize] = member.id;
            // A fresh label on it must not hide what its old one told.
            seen_epochs[no.0 as usize] = if member.out_of_step { UNSEEN } else { member.seen_epoch };
        }
        let there = members.iter().filter(|(_, member)| member.disk.is_some());
        let label = |(no, member): (&DiskNo, &super::Member)| {
            let label = Label {
                pool_id: self.id,
                pool_name: self.labels.pool_name.borrow().clone(),
                features: self.labels.features.get(),
                disk_id: member.id,
                disk_no: *no,
                serial: member.label_serial + 1,
                epoch,
                durable_epoch: self.labels.durable_epoch.get(),
                durable_voters: self.labels.durable_voters.get(),
                seen_epochs: seen_epochs.clone(),
                lineage: self.labels.lineage.borrow().clone(),
                promised: self.labels.promised.get(),
                opened_batch: self.labels.opened_batch.get(),
                batch_bound: self.labels.batch_bound.get(),
                slab_len: self.slab,
                plan: member.plan,
                membership,
                anchor: self.labels.anchor.get(),
                disk_ids: disk_ids.clone(),
            };
            (*no, label)
        };
        there.map(label).collect()
    }

    /// Writes a label to its disk and makes it durable there: later labels say that it was seen there. Says whether it
    /// is.
    async fn write_label(&self, no: DiskNo, label: &Label) -> bool {
        let mut completed = 0;
        if let Some(member) = self.members.borrow_mut().get_mut(&no) {
            member.label_serial = label.serial;
            completed = member.completed;
        }
        let slots = DiskPlan::label_slots(label.plan.disk_len);
        let annexes = DiskPlan::label_annexes(label.plan.disk_len);
        let (block, annex) = label.encode();
        let (block, annex) = (block.freeze(), annex.map(Buf::freeze));
        let parity = (label.serial % 2) as usize;
        let ends = [parity, 2 + parity].into_iter();
        let annexed = ends.clone().filter(|end| *end < 2 || !mutant::active(Mutant::AnnexAtOneEnd));
        let annexes = annexed.filter_map(|end| Some((annexes[end], annex.clone()?)));
        let all = annexes.chain(ends.map(|end| (slots[end], block.clone())));
        let written = join(all.map(|(at, bytes)| self.disk_write(no, at, vec![bytes]))).await;
        // A failed write or flush takes the disk out, and the next epoch says so.
        let durable = written.iter().all(|written| written.is_ok()) && self.disk_flush(no).await.is_ok();
        // One that an opening repeats with its promise counts, too: the label that it repeats names those before it.
        let promises = label.promised > self.labels.promised.get();
        if durable && !(promises && mutant::active(Mutant::PromiseNotSeen)) {
            let mut members = self.members.borrow_mut();
            if let Some(member) = members.get_mut(&no).filter(|member| !member.out_of_step) {
                // A copy with this label has what was written before it. Of one with an older label of this epoch
                // nothing tells that it is older.
                if label.epoch > member.seen_epoch {
                    member.touched.retain(|_, after| *after > completed);
                }
                member.seen_epoch = label.epoch;
            }
        }
        durable
    }
}

/// What stands in a slot at `at`, with its annex where one belongs to it.
pub async fn read_slot(disk: &dyn Disk, at: DiskOffset, annex: DiskOffset) -> core::result::Result<Buf, DiskError> {
    let block = disk.read(at, Buf::zeroed(BLOCK as usize)).await?;
    if !has_annex(&block) {
        return Ok(block);
    }
    let annex = disk.read(annex, Buf::zeroed(ANNEX_LEN as usize)).await?;
    Ok(with_annex(&block, Some(&annex)))
}
