//! Disks that come back while the pool is open: as they went, behind, or as an older copy of what they were.
//!
//! Invariants
//! 1. A disk counts as whole only where its label, and the last blocks that were made durable on it, say that it
//!    lacks nothing. Any other is brought up to date by a repair that begins by itself.
//! 2. What is a copy of a disk, perhaps, is used for it only where the pool can do without the disk
//!    ([`Pool::check_dispensable`]): nothing goes with a copy that goes again. None of its metadata is believed, and
//!    all of its strips are proven.

use super::Pool;
use super::open::probe;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::event::Event;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::label::{Label, UNSEEN};
use crate::format::record::OWNER_METADATA;
use crate::io::Disk;
use crate::mutant::{self, Mutant};
use crate::store::quorum;
use crate::units::DiskNo;
use alloc::boxed::Box;
use alloc::rc::Rc;

/// What tells that something is a copy of a disk, perhaps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copied {
    /// It is another file.
    File,
    /// It lacks what was made durable on the disk.
    Older,
}

/// What a disk that is back has, by its label.
struct Standing {
    /// It says nothing of what this pool wrote since: it was used elsewhere.
    diverged: bool,
    /// It is not older than what was made durable on it, and none of that is unknown.
    known: bool,
}

impl Pool {
    /// A disk that was away is there again. One that missed nothing is current at once; any other is brought up to date
    /// by a repair that begins by itself. Refused where it is an older copy of what it was, and the pool cannot do
    /// without the disk: see [`Pool::check_dispensable`].
    pub fn attach(&self, disk: Rc<dyn Disk>) -> LocalBoxFuture<'_, Result<DiskNo>> {
        Box::pin(async move { self.attach_as(disk, None).await })
    }

    /// Attaches a disk that is not the very thing that was there before, but another file for one. It may be a copy
    /// made at an earlier time of this opening, which its label does not tell.
    pub fn attach_copy(&self, disk: Rc<dyn Disk>) -> LocalBoxFuture<'_, Result<DiskNo>> {
        Box::pin(async move { self.attach_as(disk, Some(Copied::File)).await })
    }

    async fn attach_as(&self, disk: Rc<dyn Disk>, copied: Option<Copied>) -> Result<DiskNo> {
        self.store.check_writable()?;
        let Some((label, _)) = probe(&disk).await? else {
            return fail!(NotFound, "the disk carries no label of a pool");
        };
        if label.pool_id != self.store.id {
            return fail!(NotPossible, "the disk belongs to pool {}, not to {}", label.pool_name, self.name());
        }
        let no = label.disk_no;
        self.store.late_requests_end(no).await?;
        // Its cache alone may have strips that a commit speaks of, and no commit flushes it for those; and its newest
        // label: the next one goes where the one before it is.
        if !mutant::active(Mutant::ReturnFlushesNothing) && disk.flush().await.is_err() {
            return fail!(NotPossible, "disk {no} cannot make durable what it holds");
        }
        let lacks_some = copied.is_none() && self.store.lacks_last_writes(no, &disk).await;
        let Standing { diverged, known } = self.judge(&label, &disk)?;
        let copied = copied.or((lacks_some && !diverged).then_some(Copied::Older));
        if let Some(copied) = copied.filter(|_| !mutant::active(Mutant::CopiesStandIn)) {
            self.check_copy(no, copied)?;
        }
        let whole = copied.is_none()
            && label.lineage == *self.store.labels.lineage.borrow()
            && label.epoch >= self.store.labels.durable_epoch.get()
            && self.store.labels.whole.get().contains(no);
        let whole = whole || mutant::active(Mutant::ReturnedDiskIsWhole);
        self.end_maintenance(no);
        self.welcome(no, disk, &label, whole);
        if copied.is_some() || diverged {
            self.store.set_last_writes_aside(no);
        }
        if !known {
            self.store.world.emit(Event::DiskOutOfStep { disk: no, diverged });
        }
        if (!known || copied.is_some()) && !mutant::active(Mutant::UnknownAbsenceTracked) {
            self.store.note_unknown(no);
        }
        Ok(no)
    }

    /// Refuses a disk with this label that is no member, or was used by a later opening; says how it stands else.
    fn judge(&self, label: &Label, disk: &Rc<dyn Disk>) -> Result<Standing> {
        let no = label.disk_no;
        let (since, seen) = {
            let members = self.store.members.borrow();
            let Some(member) = members.get(&no).filter(|member| member.id == label.disk_id) else {
                return fail!(
                    NotPossible,
                    "disk {} was removed from pool {}; it is no part of it any more",
                    label.disk_id,
                    label.pool_name
                );
            };
            if member.disk.is_some() {
                return fail!(AlreadyExists, "disk {no} is there already");
            }
            if label.plan.disk_len > disk.shape().capacity {
                return fail!(Corrupt, "disk {no} is smaller than it was");
            }
            let since = if member.out_of_step { UNSEEN } else { member.current_epoch.max(member.seen_epoch) };
            (since, member.seen_epoch)
        };
        let lineage = self.store.labels.lineage.borrow();
        let promised = label.promised > self.store.labels.promised.get();
        if label.lineage.follows(&lineage) && (promised || label.lineage.opened > lineage.opened) {
            return fail!(
                NotPossible,
                "disk {no} was used by a later opening of pool {}, on another machine perhaps: close this one",
                self.name()
            );
        }
        let diverged = !lineage.follows(&label.lineage) || quorum::has_strayed(&lineage, seen, label);
        Ok(Standing { diverged, known: !diverged && label.epoch >= since })
    }

    /// Notes whether a copy of disk `no` is refused, and refuses it.
    fn check_copy(&self, no: DiskNo, copied: Copied) -> Result<()> {
        let refusal = self.check_dispensable(no, copied);
        if let Some(member) = self.store.members.borrow_mut().get_mut(&no) {
            member.copy_refused = refusal.is_err();
        }
        refusal
    }

    /// Refuses to take a copy of disk `no` for the disk where the pool cannot do without that: what is proven of a copy
    /// may not be in it, and what was written to it until the disk itself is back would be gone with it. The pool waits
    /// for the disk then, as if it were away.
    fn check_dispensable(&self, no: DiskNo, copied: Copied) -> Result<()> {
        let refuse = |why: &str| match copied {
            Copied::File => fail!(
                NotPossible,
                "it is another file than disk {no} was, an older copy perhaps, and {why}: give the disk itself back"
            ),
            Copied::Older => fail!(
                NotPossible,
                "it lacks what was written to disk {no} last, as an older copy of it would, and {why}: give the disk \
                back as it was"
            ),
        };
        if let Some(reason) = self.store.frozen() {
            return refuse(&reason);
        }
        let map = self.store.map.borrow();
        let data = map.segments.values().filter(|segment| segment.record.owner != OWNER_METADATA);
        if !data.clone().all(|segment| map.is_safe_without(segment, no)) {
            return refuse("others do not have all that it should");
        }
        // What is written from now on may lie on all copies that are not proven yet, and go with them; and it has
        // nothing on disks that are missing.
        let used = data.fold(DiskSet::default(), |used, segment| used | segment.disks());
        let unproven = (used - self.store.current_set() - DiskSet::from_iter([no])).len();
        let survives = map.tables.values().map(|table| table.record.layout.failures()).filter(|failures| *failures > 0);
        match survives.min().is_some_and(|failures| unproven >= failures) {
            true => refuse("others are missing, or not proven yet"),
            false => Ok(()),
        }
    }

    /// Uses a disk again. `whole`: no label without it was durable, and nothing was that it lacks, but for what it had
    /// not flushed when it went: strips of segments that are on record, and what is being written again for that very
    /// reason.
    fn welcome(&self, no: DiskNo, disk: Rc<dyn Disk>, label: &Label, whole: bool) {
        if let Some(member) = self.store.members.borrow_mut().get_mut(&no) {
            member.plan = label.plan;
            member.label_serial = label.serial;
            member.disk = Some(disk);
            member.parked = None;
            member.current = whole;
            member.gone = None;
            member.out_of_room = false;
            member.protected = None;
            member.touched.clear();
            member.copy_refused = false;
        }
        if let Some(room) = self.store.map.borrow_mut().disks.get_mut(&no) {
            (room.healthy, room.current) = (true, whole);
        }
        if whole {
            self.store.labels.restore(no);
        }
        self.store.commits.comings_and_goings.set(self.store.commits.comings_and_goings.get() + 1);
        self.store.labels.outdated.set(true);
        self.store.world.emit(Event::DiskReturned { disk: no });
        self.store.review_freeze();
        // Also who waits for room in the log: what is in limbo keeps it, and may be settled now.
        self.store.wake_all();
        self.store.log.demand();
    }
}
