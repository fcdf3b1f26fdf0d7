//! Outages: any number of disks vanishes at once, more than the redundancy and all of them, too, in the midst of load,
//! and comes back 10 ms to 2 minutes later.
//!
//! The pool is opened by the majority rule; a harness attaches disks that are back, as the daemon does. The rules:
//!
//! 1. While no more is missing than the pool survives, nothing fails.
//! 2. While more is missing, operations may end with errors, but end. What is read is right all the same.
//! 3. Once all disks are back the pool heals within [`HEAL_WITHIN`] by itself, without being opened anew: nothing that
//!    was flushed is lost, nothing lacks its redundancy, and clients are served.
//! 4. A pool that is opened with some disks opens, or says why not; with all of them it opens.
//! 5. A disk that lost its volatile cache took unflushed data with it. Where that was beyond the redundancy, that data
//!    may be lost: it is an error then, and no flush succeeds over it.

use super::Summary;
use super::changed::is_at_work;
use super::clients::{self, Seen, Shared, Strain, read_all, start_clients};
use super::copied::Copies;
use super::daemon::Daemon;
use super::redundancy::{self, survives};
use super::scene::Scene;
use crate::disk::{FaultPlan, SimDisk};
use crate::rig::{Rig, TIMEOUT};
use crate::rng::Rng;
use crate::world::{SimWorld, Stop};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use weft_engine::format::record::SettingsRecord;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::{OpenOptions, Pool};
use weft_engine::units::{ByteCount, DiskNo, Nanos};
use weft_engine::world::World;

/// The virtual time in which a pool must be well again once all its disks are back.
const HEAL_WITHIN: Nanos = Nanos::secs(1800);
/// The client number of the harness itself.
const PROBE: u64 = u64::MAX;

/// Which outages there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Any number of disks; they come back with all they took.
    Any,
    /// Any number of disks; some come back without what their caches held.
    Powerless,
    /// No more than the pool survives, one outage after the other, with caches lost.
    Flicker,
    /// One disk, or as many as the layout survives, with caches lost, while slots move.
    Blink,
    /// None; but the power goes amid checkpoints.
    Torn,
    /// Any number of disks, some of which are back as older copies of themselves first (`copied.rs`).
    Copied,
    /// What [`Kind::Powerless`] is; and what a machine refuses to open, a person may tell it to (`forced.rs`).
    Forced,
}

/// Runs the storm in `world`.
pub(super) fn run(world: &SimWorld, rng: Rng, scene: Scene, kind: Kind) -> Result<Summary, String> {
    let mut storm = Outages::new(world.clone(), scene, rng, kind);
    let result = storm.run();
    let line = storm.line();
    storm.rig.halt();
    Summary::of(world, line, result)
}

/// What the tasks that take disks away share with the storm.
pub(super) struct Sky {
    /// Outages that are not over.
    under_way: Cell<u64>,
    count: Cell<u64>,
    /// A disk has lost what its cache held, while more was missing than the pool survives.
    pub(super) lossy: Cell<bool>,
    pub(super) kind: Kind,
    pub(super) copies: Copies,
}

pub(super) struct Outages {
    pub(super) rig: Rig,
    pub(super) scene: Scene,
    pub(super) shared: Rc<Shared>,
    pub(super) strain: Rc<Strain>,
    pub(super) sky: Rc<Sky>,
    daemon: Option<Rc<Daemon>>,
    pub(super) rng: Rng,
    crashes: u64,
    openings: u64,
    refused: u64,
    /// The disks that go on from what a person opened, until all others have caught up.
    pub(super) side: Option<BTreeSet<usize>>,
    /// How often a person did.
    pub(super) forced: u64,
}

impl Outages {
    fn new(world: SimWorld, mut scene: Scene, mut rng: Rng, kind: Kind) -> Outages {
        // A disk that vanishes often is not a bad one here.
        scene.tuning.failures_max = u64::MAX;
        scene.faults = FaultPlan::default();
        if kind == Kind::Torn && rng.chance(0.7) {
            // What one disk tears no other one has; and stripes are many, so that pages change in many sectors.
            scene.layout = Layout::new(Resiliency::Simple, 1, ByteCount::kib(4)).expect("it is valid");
            (scene.disks, scene.capacity, scene.size) = (1, ByteCount::mib(20), ByteCount::kib(4608));
        }
        let mut rig = Rig::of_any_kind(world, scene.disks, scene.capacity);
        rig.options = OpenOptions { tuning: scene.tuning, ..OpenOptions::default() };
        // A disk that lost its cache behind a handle that goes on as if nothing had been would be a disk whose flushes
        // lie.
        rig.plugged = kind != Kind::Any || rng.chance(0.5);
        let strain = Rc::new(Strain::default());
        let shared = Shared::new(scene.size.0, scene.sector as u64, rng.fork("clients"), strain.clone());
        shared.rests.set(*rng.pick(&[(0.1, 30_000_000), (0.2, 2_000_000_000), (0.2, 10_000_000_000)]));
        let sky = Sky {
            under_way: Cell::new(0),
            count: Cell::new(0),
            lossy: Cell::new(false),
            kind,
            copies: Copies::default(),
        };
        let sky = Rc::new(sky);
        if kind == Kind::Forced {
            shared.oracle.borrow_mut().keep_all();
        }
        let shared = Rc::new(shared);
        Outages {
            rig,
            scene,
            shared,
            strain,
            sky,
            daemon: None,
            rng,
            crashes: 0,
            openings: 0,
            refused: 0,
            side: None,
            forced: 0,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        super::grown::create(&mut self.rig, &self.rng)?;
        self.open()?;
        let Scene { layout, size, sector, fixed, .. } = self.scene;
        self.rig.make_vdisk(layout, size, sector, fixed).map_err(|error| format!("making the disk: {error}"))?;
        let repair_after = *self.rng.pick(&[0, 1, 300, u32::MAX]);
        let pool = self.rig.pool();
        let settings = SettingsRecord { repair_after, ..SettingsRecord::default() };
        self.rig.run(async move { pool.set(settings).await }).map_err(|error| format!("settings: {error}"))?;
        for round in 0..self.scene.rounds {
            if !self.round().map_err(|why| format!("round {round}: {why}"))? {
                return Ok(());
            }
        }
        self.stop_daemon();
        self.rig.close().map_err(|error| format!("closing: {error}"))
    }

    /// Clients and outages, until the clients are done or the world ends; then all disks come back. `false`: data was
    /// lost that may be lost.
    fn round(&mut self) -> Result<bool, String> {
        let world = self.rig.world.clone();
        let vdisk = self.rig.pool().vdisk("vdisk").ok_or("the virtual disk is gone")?;
        start_clients(&world, &vdisk, &self.shared, self.scene.clients, self.scene.ops);
        super::changed::start(self.scene.beside, &world, &self.rig.pool(), (&self.shared, "vdisk"), &mut self.rng);
        let spared = Rc::new(Cell::new(self.sky.kind != Kind::Torn));
        if spared.get() {
            (0..self.rng.range(1..4)).for_each(|_| self.start_outage());
        } else {
            self.cut_a_checkpoint(spared.clone());
        }
        match self.sky.kind {
            Kind::Blink => self.start_moves(),
            Kind::Copied => self.start_copies(),
            _ => {}
        }
        if self.sky.kind != Kind::Torn && self.rng.chance(0.4) {
            world.crash_at(world.operations() + self.rng.range(1..self.scene.ops * 6));
        }
        let shared = self.shared.clone();
        let stop = world.run_until(TIMEOUT, move || shared.is_over() && spared.get());
        if let Some(why) = self.shared.failure.borrow().clone() {
            return Err(why);
        }
        if !matches!(stop, Stop::Done | Stop::Crashed) {
            let (spins, tasks, buffers) = (world.spinning(), world.tasks(), vdisk.describe());
            return Err(format!("the clients hang ({stop:?}, {spins:?}); {buffers}; still there: {tasks:?}"));
        }
        drop(vdisk);
        world.crash_at(u64::MAX);
        if stop == Stop::Crashed || self.rng.chance(0.3) {
            self.crash();
            self.open()?;
            self.judge_redundancy()?;
            self.judge_after_crash()?;
            self.bring_all_back();
        }
        self.heal()
    }

    /// Takes a checkpoint while the clients work, and has the power go amid it; unless that is over before: it was
    /// spared then.
    fn cut_a_checkpoint(&mut self, spared: Rc<Cell<bool>>) {
        let (world, pool) = (self.rig.world.clone(), self.rig.pool());
        let pause = Nanos(self.rng.below(*self.rng.clone().pick(&[100_000_000, 1_000_000_000])));
        let operations = self.rng.range(1..*self.rng.clone().pick(&[15, 30, 100]));
        let cut = async move {
            world.sleep(pause).await;
            world.crash_at(world.operations() + operations);
            let _ = pool.checkpoint().await;
            world.crash_at(u64::MAX);
            spared.set(true);
        };
        self.rig.world.spawn("checkpoint that is cut short", Box::pin(cut));
    }

    /// The machine dies; each disk that is there keeps what it will.
    fn crash(&mut self) {
        self.crashes += 1;
        self.note_side();
        if let Some(daemon) = &self.daemon {
            self.sky.copies.end_all(&self.rig.disks, daemon, &self.strain);
        }
        self.stop_daemon();
        self.rig.halt();
        self.shared.busy.borrow_mut().clear();
        self.sky.under_way.set(0);
        let power = self.rng.chance(0.7) || self.sky.kind == Kind::Torn;
        for disk in self.rig.disks.iter().filter(|disk| !disk.is_gone()) {
            match power {
                true => disk.power_cut(&mut self.rng),
                false => disk.survive_kill(&mut self.rng),
            }
        }
        if matches!(self.sky.kind, Kind::Any | Kind::Powerless) && self.rng.chance(0.3) {
            self.change_guard();
        }
        if self.sky.kind == Kind::Forced {
            self.scatter();
        }
    }

    /// Disks that were away come back, and some that went on without them are away instead.
    fn change_guard(&mut self) {
        let (gone, there): (Vec<SimDisk>, Vec<SimDisk>) = self.rig.disks.iter().cloned().partition(SimDisk::is_gone);
        if gone.is_empty() {
            return;
        }
        self.strain.begin();
        gone.iter().for_each(|disk| self.sky.give_back(disk, &mut self.rng, &self.strain));
        for disk in there {
            if self.rng.chance(0.5) {
                disk.vanish();
            }
        }
    }

    /// Opens the pool with the disks that are there. If it refuses, more and more of the others come back; with all of
    /// them it must open.
    fn open(&mut self) -> Result<(), String> {
        if self.open_side()? {
            return Ok(());
        }
        loop {
            let gone: Vec<SimDisk> = self.rig.disks.iter().filter(|disk| disk.is_gone()).cloned().collect();
            if !gone.is_empty() {
                self.strain.begin();
            }
            let opening = self.rig.opening(&mut self.rng);
            match self.rig.world.block_on_within(TIMEOUT, opening) {
                Ok(Ok(pool)) => {
                    self.opened(pool);
                    return Ok(());
                }
                Ok(Err(error)) if gone.is_empty() => return Err(format!("all disks are there, opening: {error}")),
                Ok(Err(_)) => {
                    self.is_refused();
                    if self.force()? {
                        return Ok(());
                    }
                    let disk = self.rng.pick(&gone).clone();
                    self.sky.give_back(&disk, &mut self.rng, &self.strain);
                }
                Err(stop) => return Err(format!("opening hangs ({stop:?}): {:?}", self.rig.world.tasks())),
            }
        }
    }

    /// The pool is open, and a harness looks after its disks.
    pub(super) fn opened(&mut self, pool: Rc<Pool>) {
        self.openings += 1;
        self.rig.pool = Some(pool);
        let every = Nanos::millis(*self.rng.pick(&[20, 200, 1000, 3000]));
        let rng = Rng::new(self.rng.next_u64());
        self.daemon = Some(Daemon::start(&self.rig, every, rng));
    }

    /// The pool did not open: the disks are as they were.
    pub(super) fn is_refused(&mut self) {
        self.refused += 1;
        self.rig.halt();
        let there = self.rig.disks.iter().filter(|disk| !disk.is_gone());
        there.for_each(|disk| disk.survive_kill(&mut self.rng));
    }

    /// What is there after a crash is judged; what cannot be read for now is judged later.
    fn judge_after_crash(&mut self) -> Result<(), String> {
        let seen = self.read_all()?;
        let unit = self.scene.sector as u64;
        seen.judge_lost(unit, |_| self.strain.is_now())?;
        let mut oracle = self.shared.oracle.borrow_mut();
        for (range, _) in &seen.lost {
            oracle.unseen((range.start / unit) as usize..range.end.div_ceil(unit) as usize);
        }
        seen.judge(&mut oracle, true)
    }

    /// Nothing lacks its strip but for a reason; before anything heals it. Without the metadata that says what should
    /// be where, that is judged later.
    fn judge_redundancy(&self) -> Result<(), String> {
        if self.strain.is_now() {
            return Ok(());
        }
        let place_of = |no: DiskNo| Some(no.0 as usize);
        redundancy::judge(&self.rig, place_of, &BTreeSet::new())
    }

    pub(super) fn read_all(&self) -> Result<Seen, String> {
        read_all(&self.rig, "vdisk", self.scene.size.0, self.scene.sector as u64)
    }

    /// Disks that were away when the machine died come back one by one.
    fn bring_all_back(&mut self) {
        for disk in self.rig.disks.iter().filter(|disk| disk.is_gone()) {
            let (disk, sky, strain, world) =
                (disk.clone(), self.sky.clone(), self.strain.clone(), self.rig.world.clone());
            let after = span(&mut self.rng);
            let mut rng = Rng::new(self.rng.next_u64());
            sky.under_way.set(sky.under_way.get() + 1);
            self.rig.world.spawn(
                "return",
                Box::pin(async move {
                    world.sleep(after).await;
                    sky.give_back(&disk, &mut rng, &strain);
                    sky.under_way.set(sky.under_way.get() - 1);
                }),
            );
        }
    }

    fn start_outage(&mut self) {
        let outage = Outage {
            world: self.rig.world.clone(),
            disks: self.rig.disks.clone(),
            pool: self.rig.pool(),
            strain: self.strain.clone(),
            sky: self.sky.clone(),
            daemon: self.daemon.clone(),
            failures: self.scene.layout.failures(),
            rng: Rng::new(self.rng.next_u64()),
        };
        self.sky.under_way.set(self.sky.under_way.get() + 1);
        self.rig.world.spawn("outage", Box::pin(outage.run()));
    }

    /// All disks come back, and the pool becomes well by itself. `false`: data was lost that may be lost, and the storm
    /// is over.
    fn heal(&mut self) -> Result<bool, String> {
        let world = self.rig.world.clone();
        let sky = self.sky.clone();
        let stop = world.run_until(TIMEOUT, move || sky.under_way.get() == 0);
        if stop != Stop::Done {
            return Err(format!("the outages do not end ({stop:?})"));
        }
        self.judge_redundancy()?;
        let deadline = world.now() + HEAL_WITHIN;
        loop {
            world.run_until(Nanos::secs(1), || false);
            self.use_all_disks();
            let served = self.probe()?;
            let ill = self.ill();
            if served && ill.is_none() {
                break;
            }
            if ill.is_none() && self.sky.lossy.get() && self.has_failed() {
                // It says so, and goes on saying so until it is opened anew; what was flushed is there then.
                self.strain.end(world.now());
                self.sky.lossy.set(false);
                return self.restart().map(|()| false);
            }
            if world.now() > deadline {
                let vdisk = self.rig.pool().vdisk("vdisk").map(|vdisk| vdisk.describe()).unwrap_or_default();
                let ill = ill.unwrap_or_else(|| format!("clients are not served; {vdisk}"));
                let then = self.restart().map_or_else(|why| why, |()| "helps".into());
                return Err(format!("all disks are back for {HEAL_WITHIN:?}, but {ill}; a restart: {then}"));
            }
        }
        self.strain.end(world.now());
        let lossy = self.sky.lossy.replace(false);
        let seen = self.read_all()?;
        let oracle = self.shared.oracle.borrow().clone();
        let any = self.sky.copies.took_some.replace(false);
        let excused =
            |units: Range<usize>| any || oracle.is_inherited(units.clone()) || lossy && !oracle.is_flushed(units);
        seen.judge_lost(self.scene.sector as u64, excused)?;
        seen.judge(&mut self.shared.oracle.borrow_mut(), false)?;
        self.side = None;
        if lossy {
            return Ok(seen.lost.is_empty());
        }
        let pool = self.rig.pool();
        let report =
            self.rig.run(async move { pool.check(false).await }).map_err(|error| format!("checking: {error}"))?;
        redundancy::judge_check(&report).map(|()| true)
    }

    /// Whether the virtual disk says that it lost what was written, and lost some: what memory has is no loss.
    fn has_failed(&self) -> bool {
        self.rig.pool().vdisk("vdisk").is_some_and(|vdisk| vdisk.failure().is_some() && !vdisk.plan_clear().is_empty())
    }

    /// Whether a pool that did not heal is well once it is opened anew; to tell a pool that waits from one that is
    /// lost.
    fn restart(&mut self) -> Result<(), String> {
        self.stop_daemon();
        self.rig.halt();
        self.rig.disks.iter().for_each(|disk| disk.survive_kill(&mut self.rng));
        self.open()?;
        let seen = self.read_all()?;
        let any = self.sky.copies.took_some.get();
        seen.judge_lost(self.scene.sector as u64, |units| any || self.shared.oracle.borrow().is_inherited(units))?;
        seen.judge(&mut self.shared.oracle.borrow_mut(), true)
    }

    /// One write and one flush, and whether they succeeded.
    fn probe(&mut self) -> Result<bool, String> {
        let Some(vdisk) = self.rig.pool().vdisk("vdisk") else { return Err("the virtual disk is gone".into()) };
        let (shared, world) = (self.shared.clone(), self.rig.world.clone());
        let before = shared.excused.get();
        let probing = async move {
            clients::change(&vdisk, &shared, PROBE, &world, 99).await?;
            clients::flush(&vdisk, &shared, &world).await?;
            Ok(shared.excused.get() == before)
        };
        match self.rig.world.block_on_within(TIMEOUT, probing) {
            Ok(served) => served,
            Err(stop) => Err(format!("a write and a flush hang ({stop:?}): {:?}", self.rig.world.tasks())),
        }
    }

    /// What is not well yet.
    fn ill(&self) -> Option<String> {
        let (pool, daemon) = (self.rig.pool(), self.daemon.as_ref()?);
        let attached = |at: &usize| !daemon.is_attached(*at);
        if let Some(at) = (0..self.rig.disks.len()).find(attached) {
            return Some(format!("disk {at} is not attached: {}", daemon.refused()));
        }
        let members: Vec<DiskNo> = pool.store().members.borrow().keys().copied().collect();
        let (behind, all) = (members.iter().filter(|no| !pool.store().is_current(**no)).count(), members.len());
        if behind > 0 {
            return Some(format!("{behind} of {all} disks are not current; jobs {:?}", pool.jobs()));
        }
        // What a disk took with it for good stays lost until it is written anew.
        if !self.sky.lossy.get() && pool.unsound_bytes() != ByteCount::ZERO {
            return Some(format!("{} lack their redundancy; jobs {:?}", pool.unsound_bytes(), pool.jobs()));
        }
        pool.jobs().into_iter().find(is_at_work).map(|_| format!("jobs run: {:?}", pool.jobs()))
    }

    fn stop_daemon(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop();
        }
    }

    fn line(&self) -> String {
        let Scene { layout, disks, size, sector, fixed, capacity, .. } = &self.scene;
        format!(
            "{layout}, {size} {}, sector {sector}, {disks} disks of {capacity}, handles {}: {} operations, {} excused, {} refused as full, {} outages, {} crashes, {} openings, {} refused, {} forced",
            if *fixed { "fixed" } else { "thin" },
            if self.rig.plugged { "die" } else { "live" },
            self.shared.done.get(),
            self.shared.excused.get(),
            self.shared.full.get(),
            self.sky.count.get(),
            self.crashes,
            self.openings,
            self.refused,
            self.forced
        )
    }
}

/// One outage.
struct Outage {
    world: SimWorld,
    disks: Vec<SimDisk>,
    pool: Rc<Pool>,
    strain: Rc<Strain>,
    sky: Rc<Sky>,
    daemon: Option<Rc<Daemon>>,
    failures: usize,
    rng: Rng,
}

impl Outage {
    async fn run(mut self) {
        let pause = Nanos(self.rng.below(*self.rng.clone().pick(&[100_000_000, 3_000_000_000])));
        self.world.sleep(pause).await;
        if self.sky.kind == Kind::Blink && self.rng.chance(0.5) {
            self.end_of_a_move().await;
        }
        let mut hit = self.choose();
        // One that was away, and back before the pool noticed, is one that it has to do without until it is attached
        // anew.
        let attached = |daemon: &Rc<Daemon>| (0..self.disks.len()).all(|at| daemon.is_attached(at));
        let survives = self.daemon.as_ref().is_some_and(attached) && survives(&self.pool, &hit, self.failures);
        if self.sky.kind == Kind::Flicker && !survives {
            hit.clear();
        }
        if !hit.is_empty() {
            self.sky.count.set(self.sky.count.get() + 1);
            if !survives {
                self.strain.begin();
            }
            hit.iter().for_each(|at| self.disks[*at].vanish());
            if let Some(daemon) = &self.daemon {
                self.sky.come_as_copies((&self.world, daemon), &self.disks, &hit, (&mut self.rng, &self.strain)).await;
            }
        }
        let together = self.rng.chance(0.5).then(|| span(&mut self.rng));
        let mut returns: Vec<(Nanos, usize)> =
            hit.into_iter().map(|at| (together.unwrap_or_else(|| span(&mut self.rng)), at)).collect();
        returns.sort();
        let gone_at = self.world.now();
        for (after, at) in returns {
            self.world.sleep((gone_at + after).since(self.world.now())).await;
            let disk = self.disks[at].clone();
            self.sky.give_back(&disk, &mut self.rng, &self.strain);
        }
        self.sky.under_way.set(self.sky.under_way.get() - 1);
    }

    /// Waits until a move has just ended, if one does within a second: what was moved may not be durable yet.
    async fn end_of_a_move(&mut self) {
        const LOOK: Nanos = Nanos(100_000);
        let moving = |pool: &Pool| {
            let map = pool.store().map.borrow();
            map.segments.values().filter(|segment| segment.moving.is_some()).count()
        };
        let mut before = 0;
        for _ in 0..10_000 {
            let now = moving(&self.pool);
            if now < before {
                return;
            }
            before = now;
            self.world.sleep(LOOK).await;
        }
    }

    /// The disks that vanish: all, as many as the layout survives, one more, or any.
    fn choose(&mut self) -> Vec<usize> {
        let mut there: Vec<usize> =
            (0..self.disks.len()).filter(|at| !self.disks[*at].is_gone() && !self.sky.copies.is_copy(*at)).collect();
        let count = match self.rng.below(4) {
            _ if matches!(self.sky.kind, Kind::Flicker | Kind::Blink) => {
                1.max(self.rng.below(self.failures as u64 + 1) as usize)
            }
            0 => there.len(),
            1 => self.failures.max(1),
            2 => self.failures + 1,
            _ => 1 + self.rng.below(self.disks.len() as u64) as usize,
        };
        while there.len() > count {
            there.remove(self.rng.below(there.len() as u64) as usize);
        }
        there
    }
}

impl Sky {
    /// The disk is back, with its cache or without.
    pub(super) fn give_back(&self, disk: &SimDisk, rng: &mut Rng, strain: &Strain) {
        if self.kind != Kind::Any && rng.chance(0.5) {
            if strain.is_now() {
                self.lossy.set(true);
            }
            disk.come_back(rng);
        } else {
            disk.return_intact(rng);
        }
    }
}

/// How long a disk is away: 10 ms to 2 minutes, every order of magnitude alike.
pub(super) fn span(rng: &mut Rng) -> Nanos {
    Nanos::millis(10 << rng.below(15)).min(Nanos::secs(120))
}
