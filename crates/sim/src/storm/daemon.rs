//! The harness in the daemon's place: it notices disks that are gone, and attaches those that are back.

use super::changed::is_at_work;
use crate::disk::SimDisk;
use crate::rig::Rig;
use crate::rng::Rng;
use crate::world::SimWorld;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use weft_engine::format::Id;
use weft_engine::io::Disk;
use weft_engine::pool::Pool;
use weft_engine::units::{ByteCount, DiskNo, Nanos};
use weft_engine::world::World;

/// Looks after the disks of an open pool until it is told to stop, or its world ends.
pub(super) struct Daemon {
    world: SimWorld,
    pool: Rc<Pool>,
    disks: Vec<SimDisk>,
    /// Whether a handle stays dead once its disk was gone.
    plugged: bool,
    /// How often each disk had vanished when the pool was given its handle.
    known: RefCell<Vec<u64>>,
    /// Which file each was when the pool was given its handle, and when it was last up to date.
    files: RefCell<Vec<(u64, Option<u64>)>>,
    /// Which disks this machine sees; another may see the others.
    sees: Box<dyn Fn(usize) -> bool>,
    every: Nanos,
    rng: RefCell<Rng>,
    stopped: Cell<bool>,
    /// Why a disk could not be attached, the last time.
    refused: RefCell<String>,
}

impl Daemon {
    /// Starts it for the pool that `rig` has just opened.
    pub(super) fn start(rig: &Rig, every: Nanos, rng: Rng) -> Rc<Daemon> {
        Daemon::start_seeing(rig, every, rng, Box::new(|_| true))
    }

    /// Starts a daemon on a machine that sees some of the disks only.
    pub(super) fn start_seeing(rig: &Rig, every: Nanos, rng: Rng, sees: Box<dyn Fn(usize) -> bool>) -> Rc<Daemon> {
        let daemon = Rc::new(Daemon {
            world: rig.world.clone(),
            pool: rig.pool(),
            disks: rig.disks.clone(),
            plugged: rig.plugged,
            known: RefCell::new(rig.disks.iter().map(SimDisk::unplugged).collect()),
            files: RefCell::new(rig.disks.iter().map(|disk| (disk.file(), None)).collect()),
            sees,
            every,
            rng: RefCell::new(rng),
            stopped: Cell::new(false),
            refused: RefCell::default(),
        });
        let work = daemon.clone();
        let job = async move {
            while !work.stopped.get() {
                work.world.sleep(work.every).await;
                for at in 0..work.disks.len() {
                    if !work.stopped.get() {
                        work.look(at).await;
                    }
                }
            }
        };
        rig.world.spawn("daemon", Box::pin(job));
        daemon
    }

    pub(super) fn stop(&self) {
        self.stopped.set(true);
    }

    /// Whether the pool has a handle of disk `at` that works.
    pub(super) fn is_attached(&self, at: usize) -> bool {
        self.member(at).is_some_and(|no| self.pool.store().has_disk(no)) && !self.is_dead(at)
    }

    /// Whether what is in the place of disk `at` is what the pool has.
    pub(super) fn has_taken(&self, at: usize) -> bool {
        self.files.borrow()[at].0 == self.disks[at].file() && self.is_attached(at)
    }

    /// Whether it is the disk for the pool, and no copy that is not proven yet.
    pub(super) fn is_disk(&self, at: usize) -> bool {
        self.has_taken(at) && self.member(at).is_some_and(|no| !self.pool.store().is_unproven_copy(no))
    }

    /// Whether the pool has a handle of every disk that works.
    pub(super) fn has_all(&self) -> bool {
        (0..self.disks.len()).all(|at| self.is_attached(at))
    }

    /// Why a disk could not be attached, the last time; for people.
    pub(super) fn refused(&self) -> String {
        self.refused.borrow().clone()
    }

    /// What is not well yet: a disk that is not attached or not current, redundancy that is not there, a job that runs.
    pub(super) fn ill(&self) -> Option<String> {
        let missing = |at: &usize| self.member(*at).is_some() && !self.is_attached(*at);
        if let Some(at) = (0..self.disks.len()).find(missing) {
            return Some(format!("disk {at} is not attached: {}", self.refused()));
        }
        let members: Vec<DiskNo> = self.pool.store().members.borrow().keys().copied().collect();
        if let Some(no) = members.into_iter().find(|no| !self.pool.store().is_current(*no)) {
            return Some(format!("disk {no} is not current; jobs {:?}", self.pool.jobs()));
        }
        if self.pool.unsound_bytes() != ByteCount::ZERO {
            return Some(format!("{} lack their redundancy; jobs {:?}", self.pool.unsound_bytes(), self.pool.jobs()));
        }
        let running = self.pool.jobs().into_iter().find(is_at_work);
        running.map(|job| format!("a job runs: {job:?}"))
    }

    async fn look(&self, at: usize) {
        let Some(no) = self.member(at) else { return };
        let store = self.pool.store();
        if store.has_disk(no) && self.is_dead(at) && self.rng.borrow_mut().chance(0.5) {
            store.disk_lost(no, "its device is gone");
        }
        if self.disks[at].is_gone() || !(self.sees)(at) || store.has_disk(no) {
            return;
        }
        let (time, file) = (self.disks[at].unplugged(), self.disks[at].file());
        let attached = match self.is_another_file(at, no) {
            true => self.pool.attach_copy(self.handle(at)).await,
            false => self.pool.attach(self.handle(at)).await,
        };
        match attached {
            Ok(_) => {
                self.known.borrow_mut()[at] = time;
                self.files.borrow_mut()[at].0 = file;
            }
            Err(error) => *self.refused.borrow_mut() = format!("disk {at}: {error}"),
        }
    }

    /// Whether disk `at` was another file when it was last up to date. A copy that never was says nothing of it.
    fn is_another_file(&self, at: usize, no: DiskNo) -> bool {
        let left_current = self.pool.store().members.borrow()[&no].left_current;
        let (last, whole) = &mut self.files.borrow_mut()[at];
        if left_current || whole.is_none() {
            *whole = Some(*last);
        }
        *whole != Some(self.disks[at].file())
    }

    fn handle(&self, at: usize) -> Rc<dyn Disk> {
        match self.plugged {
            true => self.disks[at].plugged(),
            false => Rc::new(self.disks[at].clone()),
        }
    }

    fn is_dead(&self, at: usize) -> bool {
        let disk = &self.disks[at];
        disk.is_gone() || self.plugged && self.known.borrow()[at] != disk.unplugged()
    }

    /// The number in the pool of disk `at`, with the identity that [`Rig::create`] gave it.
    fn member(&self, at: usize) -> Option<DiskNo> {
        let id = Id([at as u8 + 1; 16]);
        let members = self.pool.store().members.borrow();
        members.iter().find(|(_, member)| member.id == id).map(|(no, _)| *no)
    }
}
