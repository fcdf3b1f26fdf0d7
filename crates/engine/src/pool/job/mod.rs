//! Jobs: long work on a pool, one at a time, with progress; they survive a restart. What each kind does is in
//! [`repair`], [`scrub`], [`rebalance`] and [`reshape`]; this file owns who runs when.
//!
//! Invariants
//! 1. A job's record changes in the map and in the log in one step; a job that had not ended when the pool was closed,
//!    or died, goes on when it is open again.
//! 2. Every job finds out by itself what is left to do, so it may be stopped anywhere and begun again.
//! 3. One job runs at a time; one that matters more takes the place of one that matters less at its next step, also if
//!    it becomes due meanwhile.
//! 4. Of each kind and target there is one job at most that has not ended.

mod optimize;
pub mod rebalance;
pub mod repair;
mod reshape;
pub mod scrub;
mod ticket;

use super::Pool;
use crate::error::{ErrorKind, Result};
use crate::event::Event;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::record::{JobRecord, Record, Usage};
use crate::limits::JOBS_KEPT;
use crate::sync::Signal;
use crate::units::{ByteCount, JobNo, Nanos};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

pub use crate::format::record::{JobKind, JobState};
use ticket::stuck;
pub use ticket::{Halt, Ticket};

/// A job that left something undone is begun again no sooner than after this long.
const AGAIN_AFTER: Nanos = Nanos::secs(5);

/// The jobs of an open pool, beside their records.
#[derive(Default)]
pub struct Jobs {
    running: RefCell<Option<Rc<Ticket>>>,
    ended: Signal,
    /// Those that ended since the pool was opened and are remembered, in that order.
    order: RefCell<Vec<JobNo>>,
    /// What a job found, or why it failed.
    notes: RefCell<BTreeMap<JobNo, String>>,
    /// The kind of error that a job failed with.
    failures: RefCell<BTreeMap<JobNo, ErrorKind>>,
    /// What could not be done when the store had seen so many changes, and when that was.
    tried: RefCell<BTreeMap<(u8, u32), (u64, Nanos)>>,
    /// A timer runs that will look again.
    timer: Cell<Nanos>,
    /// No job begins any more.
    closed: Cell<bool>,
    /// Unix seconds when the clock of the world stood at 0.
    epoch: Cell<u64>,
}

/// A job, as people see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobInfo {
    /// Its number; never reused within the pool.
    pub id: JobNo,
    /// What it does.
    pub kind: JobKind,
    /// How far it is.
    pub state: JobState,
    /// Bytes done.
    pub done: ByteCount,
    /// About how many bytes there are in all.
    pub total: ByteCount,
    /// Bytes per second at present; 0 if it does not run.
    pub rate: ByteCount,
    /// How long it will still take at that rate.
    pub left: Option<Nanos>,
    /// When it was begun, in Unix seconds; 0: not known.
    pub began: u64,
    /// Bad blocks it found, and how many of them it rewrote.
    pub bad: (u64, u64),
    /// What it found, or why it failed.
    pub note: String,
    /// The kind of error it failed with: `NoSpace` when something found no place, `Lost` when more was lost than the
    /// redundancy covers. None if it did not fail, or failed before the pool was opened.
    pub failure: Option<ErrorKind>,
}

/// Runs jobs until the pool stops or fails.
pub async fn runner(pool: Rc<Pool>) {
    loop {
        let woken = pool.store.signals.work.changed();
        if pool.store.stopping.get() || pool.jobs.closed.get() || pool.store.log.failure().is_some() {
            return;
        }
        pool.start_what_is_due();
        match pool.next_job() {
            Some(record) => pool.run_job(record).await,
            None => woken.await,
        }
    }
}

/// Begins what is due while another job runs, until the pool stops or fails: that one gives way to what matters more,
/// or would keep it waiting for as long as it waits itself.
pub async fn due_watch(pool: Rc<Pool>) {
    loop {
        let woken = pool.store.signals.work.changed();
        if pool.store.stopping.get() || pool.jobs.closed.get() || pool.store.log.failure().is_some() {
            return;
        }
        let running = pool.jobs.running.borrow().as_ref().map(|ticket| rank(ticket.kind));
        if running.is_some_and(|rank| rank > 0) {
            pool.start_what_is_due();
        }
        woken.await;
    }
}

impl Pool {
    /// Jobs that have not ended, and the last ones that did, by number.
    pub fn jobs(&self) -> Vec<JobInfo> {
        let running = self.jobs.running.borrow().clone();
        let (notes, failures) = (self.jobs.notes.borrow(), self.jobs.failures.borrow());
        let map = self.store.map.borrow();
        let info = |record: &JobRecord| {
            let ticket = running.as_ref().filter(|ticket| ticket.id == record.id);
            let (done, total) =
                ticket.map_or((record.done, record.total), |ticket| (ticket.done.get(), ticket.total.get()));
            let bad = ticket.map_or((record.bad, record.healed), |ticket| (ticket.bad.get(), ticket.healed.get()));
            let rate = ticket.map_or(0, |ticket| ticket.rate_now(self.store.world.now()));
            let left =
                (rate > 0).then(|| Nanos((total.saturating_sub(done) as u128 * 1_000_000_000 / rate as u128) as u64));
            JobInfo {
                id: record.id,
                kind: record.kind,
                state: record.state,
                done: ByteCount(done),
                total: ByteCount(total),
                rate: ByteCount(rate),
                left,
                began: record.began,
                bad,
                note: notes.get(&record.id).cloned().unwrap_or_default(),
                failure: failures.get(&record.id).copied(),
            }
        };
        map.notes.jobs.values().map(info).collect()
    }

    /// Begins a job; `at` is the time in Unix seconds. One of the same kind and target that has not ended goes on: its
    /// number.
    pub fn job_start(&self, kind: JobKind, at: u64) -> LocalBoxFuture<'_, Result<JobNo>> {
        Box::pin(async move {
            self.plan_job_start()?;
            let id = self.begin_job(kind, at);
            if kind == JobKind::Repair {
                // A person does not want to wait for a disk that may come back.
                let record = self.job(id)?;
                self.set_job(JobRecord { cursor: repair::ASKED_FOR, ..record });
                if let Some(ticket) = self.jobs.running.borrow().as_ref().filter(|ticket| ticket.id == id) {
                    ticket.cursor.set(repair::ASKED_FOR);
                    ticket.order(Halt::Yield);
                }
            }
            self.store.make_durable(self.store.log.seq()).await?;
            Ok(id)
        })
    }

    /// Lets a job wait until [`Pool::job_resume`].
    pub fn job_pause(&self, id: JobNo) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move { self.order_job(id, Halt::Pause, JobState::Paused).await })
    }

    /// Ends a job where it is. A disk that it was emptying is used again as it was before it was retired: it would else
    /// be emptied anew. A journal disk stays one, and keeps what it holds until disks change or the pool is opened.
    pub fn job_cancel(&self, id: JobNo) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move { self.order_job(id, Halt::Cancel, JobState::Cancelled).await })
    }

    /// Lets a paused job go on.
    pub fn job_resume(&self, id: JobNo) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let record = self.plan_job_steer(id, JobState::Waiting)?;
            self.wake_job(record.id, JobState::Paused);
            self.store.make_durable(self.store.log.seq()).await
        })
    }

    /// Waits until a job has ended, and says how.
    pub fn job_wait(&self, id: JobNo) -> LocalBoxFuture<'_, Result<JobInfo>> {
        Box::pin(async move {
            self.job(id)?;
            loop {
                let Some(info) = self.jobs().into_iter().find(|info| info.id == id) else {
                    return fail!(NotFound, "job {id} ended long ago");
                };
                if has_ended(info.state) {
                    return Ok(info);
                }
                self.store.check_writable()?;
                if self.jobs.closed.get() {
                    return fail!(Closed, "the pool is being closed; the job goes on when it is open again");
                }
                self.jobs.ended.changed().await;
            }
        })
    }

    /// The time, in Unix seconds, as the host told it; 0 if it did not.
    pub fn unix_now(&self) -> u64 {
        match self.jobs.epoch.get() {
            0 => 0,
            epoch => epoch + self.store.world.now().0 / 1_000_000_000,
        }
    }

    /// Tells the time, in Unix seconds: jobs that begin by themselves note it.
    pub fn set_unix_now(&self, now: u64) {
        self.jobs.epoch.set(now.saturating_sub(self.store.world.now().0 / 1_000_000_000).max(1));
    }

    /// Stops the running job at its next step, and lets none begin.
    pub(super) async fn stop_jobs(&self) {
        self.jobs.closed.set(true);
        self.store.signals.work.notify();
        if let Some(ticket) = &*self.jobs.running.borrow() {
            ticket.order(Halt::Yield);
        }
        self.jobs.ended.until(|| self.jobs.running.borrow().is_none()).await;
    }

    fn job(&self, id: JobNo) -> Result<JobRecord> {
        match self.store.map.borrow().notes.jobs.get(&id) {
            Some(record) => Ok(record.clone()),
            None => fail!(NotFound, "there is no job {id}"),
        }
    }

    async fn order_job(&self, id: JobNo, halt: Halt, state: JobState) -> Result<()> {
        let record = self.plan_job_steer(id, state)?;
        if record.state == state {
            return Ok(());
        }
        let running = self.jobs.running.borrow().clone();
        match running.filter(|ticket| ticket.id == id) {
            Some(ticket) => {
                ticket.order(halt);
                self.use_again(&record, state);
                self.jobs.ended.until(|| !self.is_running(id)).await;
            }
            None => {
                self.use_again(&record, state);
                self.set_job(JobRecord { state, ..record });
            }
        }
        self.store.make_durable(self.store.log.seq()).await
    }

    fn use_again(&self, job: &JobRecord, state: JobState) {
        let JobKind::Evacuate { disk, .. } = job.kind else { return };
        if state != JobState::Cancelled {
            return;
        }
        self.note_tried(job.kind);
        let record = self.store.map.borrow_mut().change_disk(disk, |disk| {
            if disk.usage == Usage::Retired {
                disk.usage = disk.retired_from;
            }
        });
        if record.is_some() {
            self.store.append_changes(record);
            self.store.changed();
        }
    }

    /// What a job does, with the names that there are.
    fn describe_job(&self, kind: JobKind) -> String {
        match kind {
            JobKind::Reshape(vdisk) | JobKind::Optimize(vdisk) => match self.store.map.borrow().vdisks.get(&vdisk) {
                Some(vdisk) if matches!(kind, JobKind::Reshape(_)) => format!("reshape {}", vdisk.name),
                Some(vdisk) => format!("optimize the tiers of {}", vdisk.name),
                None => describe(kind),
            },
            _ => describe(kind),
        }
    }

    /// Lets a job that is in state `from` go on.
    pub(super) fn wake_job(&self, id: JobNo, from: JobState) {
        if let Ok(record) = self.job(id)
            && record.state == from
        {
            self.set_job(JobRecord { state: JobState::Waiting, ..record });
            self.store.signals.work.notify();
        }
    }

    fn is_running(&self, id: JobNo) -> bool {
        self.jobs.running.borrow().as_ref().is_some_and(|ticket| ticket.id == id)
    }

    /// A job of this kind and target that has not ended; made if there is none.
    pub(super) fn begin_job(&self, kind: JobKind, at: u64) -> JobNo {
        if let Some(id) = self.active_job(|other| key(other) == key(kind)) {
            self.change_kind(id, kind);
            return id;
        }
        let (id, next) = {
            let mut map = self.store.map.borrow_mut();
            let id = map.notes.next.next_job;
            map.notes.next.next_job = id.next();
            (id, map.notes.next)
        };
        self.store.append_all(alloc::vec![Record::Pool(next)]);
        let began = if at == 0 { self.unix_now() } else { at };
        self.set_job(JobRecord {
            id,
            kind,
            state: JobState::Waiting,
            began,
            done: 0,
            total: 0,
            cursor: 0,
            bad: 0,
            healed: 0,
        });
        // One that begins by itself is awaited by nobody: its record is written now, so that it is known by its number
        // after a crash. It must not wait for that itself: what is in limbo may wait for what a repair brings back.
        self.store.log.demand();
        if let Some(ticket) = &*self.jobs.running.borrow()
            && rank(kind) < rank(ticket.kind)
        {
            ticket.order(Halt::Yield);
        }
        self.store.signals.work.notify();
        id
    }

    /// A disk that is being emptied is to leave the pool, too, or to make place for a certain other one.
    fn change_kind(&self, id: JobNo, kind: JobKind) {
        let Some(record) = self.store.map.borrow().notes.jobs.get(&id).cloned() else { return };
        let more = matches!(kind, JobKind::Evacuate { to, forget, .. } if to.is_some() || forget);
        if record.kind == kind || !more {
            return;
        }
        self.set_job(JobRecord { kind, ..record });
        if let Some(ticket) = self.jobs.running.borrow().as_ref().filter(|ticket| ticket.id == id) {
            ticket.order(Halt::Yield);
        }
    }

    /// A job that has not ended and whose kind is `wanted`.
    fn active_job(&self, wanted: impl Fn(JobKind) -> bool) -> Option<JobNo> {
        let map = self.store.map.borrow();
        map.notes.jobs.values().find(|record| !has_ended(record.state) && wanted(record.kind)).map(|record| record.id)
    }

    /// Begins jobs that nobody asked for: what is missing is made good, what is retired or a journal is emptied.
    fn start_what_is_due(self: &Rc<Self>) {
        let now = self.store.world.now();
        match self.repair_due() {
            Some(due) if due > now => self.look_again(due),
            Some(_) if !self.was_tried(JobKind::Repair) => match self.tried_until(JobKind::Repair) {
                Some(due) if due > now => self.look_again(due),
                _ => drop(self.begin_job(JobKind::Repair, 0)),
            },
            _ => {}
        }
        for disk in self.disks_to_empty() {
            let kind = JobKind::Evacuate { disk, to: None, forget: false };
            let leaving = self.active_job(|other| key(other) == key(kind)).is_some();
            if !leaving && !self.was_tried(kind) {
                match self.tried_until(kind) {
                    Some(due) if due > now => self.look_again(due),
                    _ => drop(self.begin_job(kind, 0)),
                }
            }
        }
    }

    /// Wakes the runner at `due`, if no timer does so before.
    fn look_again(self: &Rc<Self>, due: Nanos) {
        let now = self.store.world.now();
        let timer = self.jobs.timer.get();
        if timer > now && timer <= due {
            return;
        }
        self.jobs.timer.set(due);
        let store = self.store.clone();
        let world = store.world.clone();
        world.spawn(
            "job timer",
            Box::pin(async move {
                store.world.sleep(due.since(now)).await;
                store.signals.work.notify();
            }),
        );
    }

    /// Whether nothing has changed since such a job last left something undone.
    fn was_tried(&self, kind: JobKind) -> bool {
        self.jobs
            .tried
            .borrow()
            .get(&key(kind))
            .is_some_and(|(changes, _)| *changes == self.store.signals.changes.get())
    }

    /// Until when such a job, which left something undone, is not begun again: much may change at once where disks come
    /// and go.
    fn tried_until(&self, kind: JobKind) -> Option<Nanos> {
        let tried = self.jobs.tried.borrow();
        tried.get(&key(kind)).map(|(_, at)| *at + AGAIN_AFTER)
    }

    /// Notes that such a job leaves something undone, as things are now.
    fn note_tried(&self, kind: JobKind) {
        self.note_tried_at(kind, self.store.signals.changes.get());
    }

    /// Notes that a job of this kind was tried when the store had seen `changes` changes.
    fn note_tried_at(&self, kind: JobKind, changes: u64) {
        self.jobs.tried.borrow_mut().insert(key(kind), (changes, self.store.world.now()));
    }

    /// The job that has its turn.
    fn next_job(&self) -> Option<JobRecord> {
        let map = self.store.map.borrow();
        let ready =
            map.notes.jobs.values().filter(|record| matches!(record.state, JobState::Waiting | JobState::Running));
        ready.min_by_key(|record| (rank(record.kind), record.id)).cloned()
    }

    async fn run_job(self: &Rc<Self>, record: JobRecord) {
        let ticket = Rc::new(Ticket::new(&record, &self.store));
        *self.jobs.running.borrow_mut() = Some(ticket.clone());
        let id = record.id;
        let changes = self.store.signals.changes.get();
        if record.state != JobState::Running {
            self.set_job(JobRecord { state: JobState::Running, ..record.clone() });
            self.store.world.emit(Event::JobStarted { job: id, what: self.describe_job(record.kind) });
        }
        let result = match record.kind {
            JobKind::Repair => self.repair(&ticket).await,
            JobKind::Scrub => self.scrub(&ticket).await,
            JobKind::Rebalance => self.rebalance(&ticket).await,
            JobKind::Reshape(vdisk) => self.reshape(vdisk, &ticket).await,
            JobKind::Optimize(vdisk) => self.optimize(vdisk, &ticket).await,
            JobKind::Evacuate { disk, to, forget } => self.evacuate(disk, to, forget, &ticket).await,
        };
        // What moved is needed where the newest checkpoint has it, too: without a newer one the pool could not do
        // without a disk that everything has left.
        if !matches!(result, Err(Halt::Yield | Halt::Pause))
            && *self.store.meta.homes.borrow() != self.store.metadata_homes()
        {
            // Where that fails, the log's keeper tries again.
            let _ = self.checkpoint().await;
        }
        *self.jobs.running.borrow_mut() = None;
        let (state, note) = match result {
            Ok(note) => (JobState::Done, note),
            Err(Halt::Yield) => (JobState::Waiting, String::new()),
            Err(Halt::Pause) => (JobState::Paused, String::new()),
            Err(Halt::Cancel) => (JobState::Cancelled, String::from("cancelled")),
            Err(Halt::Failed(error)) => {
                self.jobs.failures.borrow_mut().insert(id, error.kind);
                (JobState::Failed, error.context)
            }
        };
        if has_ended(state) {
            let ended = format!("{}{}{note}", self.describe_job(record.kind), if note.is_empty() { "" } else { ": " });
            self.store.world.emit(Event::JobEnded { job: id, what: ended, state });
        }
        if state == JobState::Failed {
            // Another try would end no better until something changes.
            self.note_tried_at(record.kind, changes);
        }
        if state == JobState::Cancelled {
            self.note_tried(record.kind);
        }
        if !note.is_empty() {
            self.jobs.notes.borrow_mut().insert(id, note);
        }
        if self.store.log.failure().is_none() {
            self.save(&ticket, state);
            self.forget_old_jobs(id);
        }
        self.jobs.ended.notify();
    }

    /// Puts the progress of a job on record.
    fn save(&self, ticket: &Ticket, state: JobState) {
        let Some(record) = self.store.map.borrow().notes.jobs.get(&ticket.id).cloned() else { return };
        let total = if state == JobState::Done { ticket.done.get() } else { ticket.total.get() };
        self.set_job(JobRecord {
            state,
            done: ticket.done.get(),
            total,
            cursor: ticket.cursor.get(),
            bad: ticket.bad.get(),
            healed: ticket.healed.get(),
            ..record
        });
    }

    fn set_job(&self, record: JobRecord) {
        self.store.map.borrow_mut().notes.jobs.insert(record.id, record.clone());
        self.store.append_all(alloc::vec![Record::Job(record)]);
    }

    /// Forgets all but the last jobs that ended, this one included: by when they ended, as old numbers may end late,
    /// and somebody waits for those.
    fn forget_old_jobs(&self, last: JobNo) {
        let mut order = self.jobs.order.borrow_mut();
        order.retain(|id| *id != last);
        order.push(last);
        let mut ended: Vec<JobNo> = {
            let map = self.store.map.borrow();
            let ended = map.notes.jobs.values().filter(|record| has_ended(record.state) && record.id != last);
            ended.map(|record| record.id).collect()
        };
        // Those that ended before the pool was opened are not in it, and go first.
        ended.sort_by_key(|id| (order.iter().position(|other| other == id).map_or(0, |at| at + 1), *id));
        ended.truncate((ended.len() + 1).saturating_sub(JOBS_KEPT));
        for id in ended {
            self.store.map.borrow_mut().notes.jobs.remove(&id);
            self.jobs.notes.borrow_mut().remove(&id);
            self.jobs.failures.borrow_mut().remove(&id);
            order.retain(|other| *other != id);
            self.store.append_all(alloc::vec![Record::JobDrop(id)]);
        }
    }
}

/// Whether a job in this state goes on no more.
pub fn has_ended(state: JobState) -> bool {
    matches!(state, JobState::Done | JobState::Cancelled | JobState::Failed)
}

/// What a job of this kind does, in words.
pub fn describe(kind: JobKind) -> String {
    match kind {
        JobKind::Repair => "repair".into(),
        JobKind::Scrub => "scrub".into(),
        JobKind::Rebalance => "rebalance".into(),
        JobKind::Reshape(vdisk) => format!("reshape virtual disk {vdisk}"),
        JobKind::Optimize(vdisk) => format!("optimize the tiers of virtual disk {vdisk}"),
        JobKind::Evacuate { disk, to: Some(to), .. } => format!("replace disk {disk} by disk {to}"),
        JobKind::Evacuate { disk, forget: true, .. } => format!("remove disk {disk}"),
        JobKind::Evacuate { disk, .. } => format!("evacuate disk {disk}"),
    }
}

/// Lower runs first.
fn rank(kind: JobKind) -> u8 {
    match kind {
        JobKind::Repair => 0,
        JobKind::Evacuate { .. } => 1,
        JobKind::Rebalance => 2,
        JobKind::Reshape(_) => 3,
        JobKind::Optimize(_) => 4,
        JobKind::Scrub => 5,
    }
}

/// Equal for jobs of which there is one at most.
fn key(kind: JobKind) -> (u8, u32) {
    match kind {
        JobKind::Evacuate { disk, .. } => (rank(kind), disk.0.into()),
        JobKind::Reshape(vdisk) | JobKind::Optimize(vdisk) => (rank(kind), vdisk.0),
        JobKind::Repair | JobKind::Rebalance | JobKind::Scrub => (rank(kind), 0),
    }
}
