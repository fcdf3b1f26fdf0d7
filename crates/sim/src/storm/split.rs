//! Split: the disks of one pool are seen by two machines, each of which opens what it sees by the majority rule,
//! attaches what comes and lets go of what leaves, as the daemon does. Disks are carried to and fro, with or without
//! what their caches held, while clients write on both sides; machines are killed, closed and cut off, one or both.
//!
//! The rules:
//! 1. Whoever opens the pool finds everything that anybody was told to be durable, and nothing that an opening before
//!    had not.
//! 2. Once the pool is open elsewhere, a machine that still has it open calls nothing durable that is not there: two
//!    histories never both acknowledge.
//! 3. With all disks on one machine the pool opens, and becomes well by itself.
//!
//! Errors are excused throughout: disks are gone all the time.

use super::Summary;
use super::clients::{Seen, Shared, Strain, flush, read_all, start_clients};
use super::daemon::Daemon;
use super::redundancy;
use super::scene::Scene;
use crate::disk::FaultPlan;
use crate::oracle::Oracle;
use crate::rig::{Rig, TIMEOUT};
use crate::rng::Rng;
use crate::world::{SimWorld, Stop};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use weft_engine::error::Result as Answer;
use weft_engine::format::record::SettingsRecord;
use weft_engine::io::Disk;
use weft_engine::pool::{OpenOptions, Pool};
use weft_engine::units::{ByteCount, Nanos};
use weft_engine::world::World;

/// The virtual time in which a pool must be well again once one machine has all its disks.
const HEAL_WITHIN: Nanos = Nanos::secs(1800);
/// Machines.
const HOSTS: usize = 2;

/// Runs the storm in `world`.
pub(super) fn run(world: &SimWorld, rng: Rng, scene: Scene) -> Result<Summary, String> {
    let mut storm = Split::new(world.clone(), scene, rng);
    let result = storm.run();
    let line = storm.line();
    storm.rig.halt();
    Summary::of(world, line, result)
}

/// A machine that has the pool open.
struct Host {
    pool: Rc<Pool>,
    daemon: Rc<Daemon>,
    shared: Rc<Shared>,
}

/// How the machine that had disks let go of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    Kept,
    Lost,
}

struct Split {
    rig: Rig,
    scene: Scene,
    hosts: [Option<Host>; HOSTS],
    /// Which machine sees each disk; none: it lies on a table.
    places: Rc<RefCell<Vec<Option<usize>>>>,
    /// What the pool may hold, as far as that is not in the hands of the machine that opened it last.
    truth: Oracle,
    owner: Option<usize>,
    strain: Rc<Strain>,
    /// Disks that are about to be carried elsewhere.
    meddlers: Rc<Cell<u64>>,
    rng: Rng,
    openings: u64,
    refused: u64,
    carried: u64,
    deaths: u64,
    done: u64,
}

impl Split {
    fn new(world: SimWorld, mut scene: Scene, mut rng: Rng) -> Split {
        scene.faults = FaultPlan::default();
        scene.size = ByteCount::kib(if scene.fixed { 256 } else { 256 + rng.below(3) * 256 });
        scene.tuning.failures_max = u64::MAX;
        // Reads beyond what is there wait for that long, once for each disk that goes.
        scene.tuning.freeze_limit = Nanos::millis(*rng.pick(&[100, 1000, 10_000]));
        let mut rig = Rig::of_any_kind(world, scene.disks, scene.capacity);
        rig.options = OpenOptions { tuning: scene.tuning, ..OpenOptions::default() };
        // A machine that lost a disk has lost it until it opens it anew.
        rig.plugged = true;
        let strain = Rc::new(Strain::default());
        strain.begin();
        Split {
            places: Rc::new(RefCell::new(vec![Some(0); scene.disks])),
            truth: Oracle::new(scene.size.0, scene.sector as u64),
            rig,
            scene,
            hosts: [None, None],
            owner: None,
            strain,
            meddlers: Rc::default(),
            rng,
            openings: 0,
            refused: 0,
            carried: 0,
            deaths: 0,
            done: 0,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.rig.create(ByteCount::mib(1)).map_err(|error| format!("creating: {error}"))?;
        self.set_up()?;
        for no in 0..self.rng.range(10..40) {
            self.event().and_then(|()| self.let_time_pass()).map_err(|why| format!("event {no}: {why}"))?;
        }
        self.end().map_err(|why| format!("at the end: {why}"))
    }

    /// Makes the virtual disk.
    fn set_up(&mut self) -> Result<(), String> {
        let pool = self.rig.open(&mut self.rng).map_err(|error| format!("opening: {error}"))?;
        let Scene { layout, size, sector, fixed, .. } = self.scene;
        self.rig.make_vdisk(layout, size, sector, fixed).map_err(|error| format!("making the disk: {error}"))?;
        let repair_after = *self.rng.pick(&[0, 1, 300, u32::MAX]);
        let settings = SettingsRecord { repair_after, ..SettingsRecord::default() };
        self.rig.run(async move { pool.set(settings).await }).map_err(|error| format!("settings: {error}"))?;
        self.rig.close().map_err(|error| format!("closing: {error}"))?;
        self.start(0)
    }

    fn event(&mut self) -> Result<(), String> {
        let host = self.rng.below(HOSTS as u64) as usize;
        match (self.rng.below(12), self.hosts[host].is_some()) {
            (0..=5, false) => self.start(host),
            (5, true) => self.kill(host),
            (6, true) => self.close(host),
            (7, _) => self.die(),
            (8, _) => {
                let world = &self.rig.world;
                world.crash_at(world.operations() + self.rng.range(1..400));
                Ok(())
            }
            (9, _) => Ok(()),
            _ => self.carry_some(),
        }
    }

    /// Clients work, 1 ms to 30 s.
    fn let_time_pass(&mut self) -> Result<(), String> {
        let span = Nanos(1_000_000 << self.rng.below(16)).min(Nanos::secs(30));
        for host in self.hosts.iter().flatten() {
            if host.shared.is_over() {
                let Some(vdisk) = host.pool.vdisk("vdisk") else { return Err("the virtual disk is gone".into()) };
                let ops = 5 + self.rng.below(80);
                start_clients(&self.rig.world, &vdisk, &host.shared, self.scene.clients.min(3), ops);
                let (world, beside) = (&self.rig.world, self.scene.beside);
                super::changed::start(beside, world, &host.pool, (&host.shared, "vdisk"), &mut self.rng);
            }
        }
        let stop = self.rig.world.run_until(span, || false);
        self.look_after(stop)
    }

    /// What a run of the world that was not awaited ended with.
    fn look_after(&mut self, stop: Stop) -> Result<(), String> {
        self.judge_clients()?;
        match stop {
            Stop::Limit | Stop::Idle | Stop::Done => Ok(()),
            Stop::Crashed => self.die(),
            Stop::Livelock => Err(format!("it spins: {:?}; {:?}", self.rig.world.spinning(), self.rig.world.tasks())),
        }
    }

    fn judge_clients(&self) -> Result<(), String> {
        let failed = self.hosts.iter().flatten().find_map(|host| host.shared.failure.borrow().clone());
        failed.map_or(Ok(()), Err)
    }

    /// Some disks go to a machine, or away.
    fn carry_some(&mut self) -> Result<(), String> {
        let all = self.rig.disks.len() as u64;
        let count = *self.rng.clone().pick(&[1, all / 2, all.div_ceil(2), all - 1, all]).max(&1);
        self.rng.next_u64();
        let to = [None, Some(0), Some(1)][self.rng.below(3) as usize];
        let mut disks: Vec<usize> = (0..all as usize).collect();
        while disks.len() as u64 > count {
            disks.remove(self.rng.below(disks.len() as u64) as usize);
        }
        let cache = if self.rng.chance(0.5) { Cache::Kept } else { Cache::Lost };
        disks.into_iter().for_each(|at| self.carry(at, to, cache));
        Ok(())
    }

    fn carry(&mut self, at: usize, to: Option<usize>, cache: Cache) {
        self.carried += 1;
        carry(&self.rig.disks[at], cache, to, &mut self.rng);
        self.places.borrow_mut()[at] = to;
    }

    /// The machine opens the pool with the disks that it sees.
    fn start(&mut self, host: usize) -> Result<(), String> {
        let all = self.places.borrow().iter().all(|place| *place == Some(host));
        if self.rng.chance(0.2) {
            self.meddle_soon();
        }
        let meddled = self.meddlers.get() > 0;
        let opening = self.opening(host);
        match self.rig.world.block_on_within(TIMEOUT, opening) {
            Ok(Ok(pool)) => self.opened(host, pool),
            Ok(Err(error)) if all && !meddled => Err(format!("all disks are there, opening: {error}")),
            Ok(Err(_)) => {
                self.refused += 1;
                self.let_go(host, Cache::Kept);
                self.judge_clients()
            }
            Err(Stop::Crashed) => self.die(),
            Err(stop) => Err(format!("opening hangs ({stop:?}): {:?}", self.rig.world.tasks())),
        }
    }

    fn opening(&mut self, host: usize) -> impl Future<Output = Answer<Rc<Pool>>> + use<> {
        let places = self.places.borrow().clone();
        let seen = (0..places.len()).filter(|at| places[*at] == Some(host) && !self.rig.disks[*at].is_gone());
        let disks: Vec<Rc<dyn Disk>> = seen.map(|at| self.rig.disks[at].plugged()).collect();
        let world: Rc<dyn World> = Rc::new(self.rig.world.clone());
        let options = OpenOptions { lineage: self.rng.next_u64() | 1, ..self.rig.options };
        Pool::open(world, disks, options)
    }

    /// A disk is carried elsewhere in the midst of what comes next.
    fn meddle_soon(&mut self) {
        let (world, places, meddlers) = (self.rig.world.clone(), self.places.clone(), self.meddlers.clone());
        meddlers.set(meddlers.get() + 1);
        let at = self.rng.below(self.rig.disks.len() as u64) as usize;
        let (disk, to) = (self.rig.disks[at].clone(), [None, Some(0), Some(1)][self.rng.below(3) as usize]);
        let (after, mut rng) = (Nanos(self.rng.below(30_000_000)), Rng::new(self.rng.next_u64()));
        self.rig.world.spawn(
            "meddler",
            Box::pin(async move {
                world.sleep(after).await;
                let cache = if rng.chance(0.5) { Cache::Kept } else { Cache::Lost };
                carry(&disk, cache, to, &mut rng);
                places.borrow_mut()[at] = to;
                meddlers.set(meddlers.get() - 1);
            }),
        );
    }

    /// What the machine finds is judged (rule 1), and whoever else has the pool open is measured by it from now on
    /// (rule 2).
    fn opened(&mut self, host: usize, pool: Rc<Pool>) -> Result<(), String> {
        self.openings += 1;
        let mut oracle = self.truth_now();
        self.rig.pool = Some(pool.clone());
        let places = self.places.clone();
        let every = Nanos::millis(*self.rng.pick(&[20, 200, 1000]));
        let sees = Box::new(move |at: usize| places.borrow()[at] == Some(host));
        let daemon = Daemon::start_seeing(&self.rig, every, Rng::new(self.rng.next_u64()), sees);
        let read = read_all(&self.rig, "vdisk", self.scene.size.0, self.scene.sector as u64);
        self.rig.pool = None;
        if self.rig.world.crashed() {
            return self.die();
        }
        let seen = Rc::new(read?);
        let unit = self.scene.sector as u64;
        for (range, _) in &seen.lost {
            oracle.unseen((range.start / unit) as usize..range.end.div_ceil(unit) as usize);
        }
        seen.judge(&mut oracle, true).map_err(|why| format!("machine {host} opened the pool: {why}"))?;
        self.measure_others(host, &seen)?;
        let shared = Shared::new(self.scene.size.0, unit, self.rng.fork("clients"), self.strain.clone());
        shared.rests.set(*self.rng.pick(&[(0.1, 30_000_000), (0.2, 2_000_000_000)]));
        // No two machines write the same.
        shared.tag.set(self.openings << 32 | 1);
        *shared.oracle.borrow_mut() = oracle;
        self.owner = Some(host);
        self.hosts[host] = Some(Host { pool, daemon, shared: Rc::new(shared) });
        Ok(())
    }

    fn measure_others(&self, host: usize, seen: &Rc<Seen>) -> Result<(), String> {
        self.judge_clients()?;
        for (no, other) in self.hosts.iter().enumerate().filter(|(no, _)| *no != host) {
            let Some(other) = other else { continue };
            // Only the first opening elsewhere knows all that it had called durable, and nothing newer.
            if self.owner == Some(no) {
                *other.shared.rival.borrow_mut() = Some(seen.clone());
                // What it called durable while this one was reading.
                other.shared.judge_rival()?;
            }
        }
        Ok(())
    }

    /// What the pool may hold now.
    fn truth_now(&self) -> Oracle {
        let owner = self.owner.and_then(|owner| self.hosts[owner].as_ref());
        owner.map_or_else(|| self.truth.clone(), |host| host.shared.oracle.borrow().clone())
    }

    /// The machine's process is killed, or the machine loses its power and with it what its disks had not made durable.
    fn kill(&mut self, host: usize) -> Result<(), String> {
        let cache = if self.rng.chance(0.5) { Cache::Kept } else { Cache::Lost };
        self.forget(host);
        self.let_go(host, cache);
        Ok(())
    }

    /// The machine gives up the pool, as a clean stop does it.
    fn close(&mut self, host: usize) -> Result<(), String> {
        let Some(running) = &self.hosts[host] else { return Ok(()) };
        running.shared.ops_left.set(0);
        let (pool, shared) = (running.pool.clone(), running.shared.clone());
        let stop = self.rig.world.run_until(TIMEOUT, move || shared.is_over());
        if stop != Stop::Done {
            return match stop {
                Stop::Crashed => self.die(),
                stop => {
                    let vdisk = pool.vdisk("vdisk").map(|vdisk| vdisk.describe()).unwrap_or_default();
                    Err(format!("clients hang ({stop:?}): {:?}; {vdisk}", self.rig.world.tasks()))
                }
            };
        }
        self.judge_clients()?;
        // Where disks are missing it says so; nothing was promised then.
        match self.rig.world.block_on_within(TIMEOUT, async move { pool.close().await }) {
            Ok(_) => {
                self.judge_clients()?;
                self.kill(host)
            }
            Err(Stop::Crashed) => self.die(),
            Err(stop) => Err(format!("closing hangs ({stop:?}): {:?}", self.rig.world.tasks())),
        }
    }

    /// The machine has the pool open no more.
    fn forget(&mut self, host: usize) {
        if self.owner == Some(host) {
            self.truth = self.truth_now();
            self.owner = None;
        }
        if let Some(running) = self.hosts[host].take() {
            self.deaths += 1;
            self.done += running.shared.done.get();
            running.daemon.stop();
            running.shared.ops_left.set(0);
            // Its tasks are those of a process that is no more: they reach no disk, and end.
            running.pool.store().refuse_to_wait();
            running.pool.store().stop_tasks();
        }
    }

    /// No handle that the machine has works any more.
    fn let_go(&mut self, host: usize, cache: Cache) {
        for at in 0..self.rig.disks.len() {
            if self.places.borrow()[at] == Some(host) {
                carry(&self.rig.disks[at], cache, Some(host), &mut self.rng);
            }
        }
    }

    /// All machines die at once.
    fn die(&mut self) -> Result<(), String> {
        self.judge_clients()?;
        (0..HOSTS).for_each(|host| self.forget(host));
        self.rig.halt();
        self.meddlers.set(0);
        let power = self.rng.chance(0.7);
        for disk in self.rig.disks.iter().filter(|disk| !disk.is_gone()) {
            match power {
                true => disk.power_cut(&mut self.rng),
                false => disk.survive_kill(&mut self.rng),
            }
        }
        Ok(())
    }

    /// All disks on one machine: rule 3.
    fn end(&mut self) -> Result<(), String> {
        self.rig.world.crash_at(u64::MAX);
        self.die()?;
        let cache = if self.rng.chance(0.5) { Cache::Kept } else { Cache::Lost };
        (0..self.rig.disks.len()).for_each(|at| self.carry(at, Some(0), cache));
        let opening = self.opening(0);
        let pool = self.rig.world.block_on_within(TIMEOUT, opening);
        let pool = pool.map_err(|stop| format!("opening hangs ({stop:?})"))?;
        self.opened(0, pool.map_err(|error| format!("all disks are there, opening: {error}"))?)?;
        let Some(Host { pool, daemon, shared }) = self.hosts[0].take() else { return Err("nobody has it".into()) };
        self.owner = None;
        let deadline = self.rig.world.now() + HEAL_WITHIN;
        while let Some(ill) = daemon.ill() {
            if self.rig.world.now() > deadline {
                return Err(format!("all disks are there for {HEAL_WITHIN:?}, but {ill}"));
            }
            self.rig.world.run_until(Nanos::secs(1), || false);
        }
        self.strain.end(self.rig.world.now());
        self.rig.world.run_until(Nanos(1), || false);
        let vdisk = pool.vdisk("vdisk").ok_or("the virtual disk is gone")?;
        let (judged, world) = (shared.clone(), self.rig.world.clone());
        self.rig.run(async move { flush(&vdisk, &judged, &world).await.map(drop) })?;
        self.rig.pool = Some(pool.clone());
        let seen = read_all(&self.rig, "vdisk", self.scene.size.0, self.scene.sector as u64)?;
        seen.judge_lost(self.scene.sector as u64, |_| false)?;
        seen.judge(&mut shared.oracle.borrow_mut(), false)?;
        let report =
            self.rig.run(async move { pool.check(false).await }).map_err(|error| format!("checking: {error}"))?;
        redundancy::judge_check(&report)?;
        daemon.stop();
        self.rig.close().map_err(|error| format!("closing: {error}"))
    }

    fn line(&self) -> String {
        let Scene { layout, size, sector, fixed, disks, .. } = &self.scene;
        format!(
            "{layout}, {size} {}, sector {sector}, {disks} disks between two machines: {} operations, {} disks carried, {} openings, {} refused, {} deaths",
            if *fixed { "fixed" } else { "thin" },
            self.done,
            self.carried,
            self.openings,
            self.refused,
            self.deaths
        )
    }
}

/// A disk is unplugged; unless it is to lie on a table, it is plugged in again.
fn carry(disk: &crate::disk::SimDisk, cache: Cache, to: Option<usize>, rng: &mut Rng) {
    disk.vanish();
    match (to, cache) {
        (None, _) => {}
        (Some(_), Cache::Kept) => disk.return_intact(rng),
        (Some(_), Cache::Lost) => disk.come_back(rng),
    }
}
