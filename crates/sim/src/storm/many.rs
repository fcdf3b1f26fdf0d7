//! Many: virtual disks of different layouts are made, written, read, grown and removed, several at once, while the
//! power goes, the engine is killed, and as many disks vanish as every virtual disk survives. The pool is small, and
//! often full; so is the room for its configuration.
//!
//! The rules:
//! 1. A change that was acknowledged holds after every crash; one that was begun holds or does not, whole: a virtual
//!    disk is there or not, has its old size or the new one. Nothing is there that nobody made.
//! 2. What is read of each is right, and nothing fails but for want of room.
//! 3. A pool that is opened read-only shows what it shows when it is opened for writing afterwards, and not one request
//!    changes a disk.
//! 4. The configuration never outgrows its room; and once all virtual disks are gone, so is all that they took.

use super::Summary;
use super::changed;
use super::clients::{Shared, Strain, read_all, start_clients};
use super::daemon::Daemon;
use super::outage::span;
use super::redundancy;
use super::redundancy::survives;
use super::scene::{Beside, Scene};
use crate::disk::{DiskStats, FaultPlan, SimDisk};
use crate::rig::{Rig, TIMEOUT, resiliencies};
use crate::rng::Rng;
use crate::world::{SimWorld, Stop};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::{Error, ErrorKind};
use weft_engine::format::record::{JOB_LEN, SettingsRecord};
use weft_engine::geometry::Layout;
use weft_engine::limits::JOBS_KEPT;
use weft_engine::pool::{OpenOptions, Pool, VdiskSpec};
use weft_engine::units::{ByteCount, DiskNo, Nanos};
use weft_engine::world::World;

/// The virtual time in which a pool must be well again once all its disks are back.
const HEAL_WITHIN: Nanos = Nanos::secs(1800);
/// Virtual disks at once.
const SLOTS: usize = 4;

/// Runs the storm in `world`.
pub(super) fn run(world: &SimWorld, rng: Rng, scene: Scene) -> Result<Summary, String> {
    let mut storm = Many::new(world.clone(), scene, rng);
    let result = storm.run();
    let line = storm.line();
    storm.rig.halt();
    Summary::of(world, line, result)
}

/// How far a virtual disk has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// There is none.
    None,
    /// It was asked for: it may be there.
    Begun,
    /// It is there.
    Made,
    /// It is to be removed: it may be there.
    Leaving,
}

/// One virtual disk after another.
struct Slot {
    name: String,
    stage: Stage,
    layout: Layout,
    sector: u32,
    size: u64,
    /// The size that it was asked to have.
    grows_to: u64,
    shared: Rc<Shared>,
}

/// What the tasks share with the storm.
struct Field {
    world: SimWorld,
    slots: RefCell<Vec<Slot>>,
    rng: RefCell<Rng>,
    /// The fewest failures that a virtual disk here survives.
    least: usize,
    disks: usize,
    /// Whether virtual disks have write-back caches now and then.
    beside: Beside,
    made: Cell<u64>,
    removed: Cell<u64>,
    grown: Cell<u64>,
    /// Refused for want of room.
    full: Cell<u64>,
    outages: Cell<u64>,
    /// Tasks that are not done.
    busy: Cell<u64>,
    failure: RefCell<Option<String>>,
}

struct Many {
    rig: Rig,
    scene: Scene,
    field: Rc<Field>,
    daemon: Option<Rc<Daemon>>,
    config_max: ByteCount,
    rng: Rng,
    crashes: u64,
    looks: u64,
}

impl Many {
    fn new(world: SimWorld, mut scene: Scene, mut rng: Rng) -> Many {
        scene.faults = FaultPlan::default();
        scene.tuning.failures_max = u64::MAX;
        scene.capacity = ByteCount::mib(*rng.pick(&[8, 9, 12]));
        scene.disks = 3 + rng.below(4) as usize;
        let mut rig = Rig::of_any_kind(world.clone(), scene.disks, scene.capacity);
        rig.options = OpenOptions { tuning: scene.tuning, ..OpenOptions::default() };
        rig.plugged = true;
        let field = Field {
            slots: RefCell::new((0..SLOTS).map(|_| Slot::empty(&world)).collect()),
            world,
            least: *rng.pick(&[0, 1, 1, 1]),
            disks: scene.disks,
            beside: scene.beside,
            rng: RefCell::new(rng.fork("changes")),
            made: Cell::new(0),
            removed: Cell::new(0),
            grown: Cell::new(0),
            full: Cell::new(0),
            outages: Cell::new(0),
            busy: Cell::new(0),
            failure: RefCell::new(None),
        };
        // The records of jobs have their room in any case.
        let config_max = ByteCount::kib(*rng.pick(&[3, 4, 6, 64, 64])) + ByteCount((JOBS_KEPT * JOB_LEN) as u64);
        Many { rig, scene, field: Rc::new(field), daemon: None, config_max, rng, crashes: 0, looks: 0 }
    }

    fn run(&mut self) -> Result<(), String> {
        self.rig.create(ByteCount::mib(1)).map_err(|error| format!("creating: {error}"))?;
        self.open()?;
        let pool = self.rig.pool();
        let repair_after = *self.rng.pick(&[0, 1, 300]);
        let settings = SettingsRecord { repair_after, ..SettingsRecord::default() };
        self.rig.run(async move { pool.set(settings).await }).map_err(|error| format!("settings: {error}"))?;
        for round in 0..2 + self.rng.below(4) {
            self.round().map_err(|why| format!("round {round}: {why}"))?;
        }
        self.remove_all().map_err(|why| format!("at the end: {why}"))?;
        self.stop_daemon();
        self.rig.close().map_err(|error| format!("closing: {error}"))
    }

    fn round(&mut self) -> Result<(), String> {
        let world = self.rig.world.clone();
        let made: Vec<usize> = (0..SLOTS).filter(|no| self.field.slots.borrow()[*no].stage == Stage::Made).collect();
        made.into_iter().for_each(|no| self.field.send_clients(&self.rig.pool(), no));
        let changes = 3 + self.rng.below(8);
        self.field.clone().start("changes", self.field.clone().change(self.rig.pool(), changes));
        let outages = self.rng.below(3);
        let daemon = self.daemon.clone().ok_or("nobody looks after the disks")?;
        self.field.clone().start("outages", self.outages(daemon, outages));
        if self.rng.chance(0.6) {
            world.crash_at(world.operations() + self.rng.range(1..1500));
        }
        let field = self.field.clone();
        let stop = world.run_until(TIMEOUT, move || field.is_over());
        self.field.judge()?;
        if !matches!(stop, Stop::Done | Stop::Crashed) {
            let waits: Vec<String> = self.rig.pool().vdisks().iter().map(|vdisk| vdisk.describe()).collect();
            return Err(format!("it hangs ({stop:?}); {waits:?}; still there: {:?}", world.tasks()));
        }
        world.crash_at(u64::MAX);
        if stop == Stop::Crashed || self.rng.chance(0.3) {
            self.crash();
            if self.rng.chance(0.4) {
                self.look_only()?;
            }
            self.open()?;
            let place_of = |no: DiskNo| Some(no.0 as usize);
            redundancy::judge(&self.rig, place_of, &BTreeSet::new())?;
            self.judge(true)?;
        }
        self.calm()
    }

    /// One outage after the other, of no more disks than every virtual disk survives.
    fn outages(&mut self, daemon: Rc<Daemon>, count: u64) -> impl Future<Output = Result<(), String>> + use<> {
        let (field, disks, pool) = (self.field.clone(), self.rig.disks.clone(), self.rig.pool());
        let mut rng = Rng::new(self.rng.next_u64());
        async move {
            for _ in 0..count {
                field.world.sleep(Nanos(rng.below(*rng.clone().pick(&[20_000_000, 1_000_000_000])))).await;
                let failures = field.failures();
                let mut hit: Vec<usize> = (0..disks.len()).collect();
                while hit.len() > 1.max(rng.below(failures as u64 + 1) as usize) {
                    hit.remove(rng.below(hit.len() as u64) as usize);
                }
                // The engine may not have noticed yet that the one before is not over.
                if !daemon.has_all() || !survives(&pool, &hit, failures) {
                    continue;
                }
                field.outages.set(field.outages.get() + 1);
                hit.iter().for_each(|at| disks[*at].vanish());
                field.world.sleep(span(&mut rng)).await;
                hit.iter().for_each(|at| give_back(&disks[*at], &mut rng));
            }
            Ok(())
        }
    }

    /// The machine dies; then all disks are there.
    fn crash(&mut self) {
        self.crashes += 1;
        self.stop_daemon();
        self.rig.halt();
        self.field.busy.set(0);
        let power = self.rng.chance(0.7);
        for disk in &self.rig.disks {
            match disk.is_gone() {
                true => give_back(disk, &mut self.rng),
                false if power => disk.power_cut(&mut self.rng),
                false => disk.survive_kill(&mut self.rng),
            }
        }
    }

    fn open(&mut self) -> Result<(), String> {
        let opening = self.rig.opening(&mut self.rng);
        let opened = self.rig.world.block_on_within(TIMEOUT, opening);
        let pool = opened.map_err(|stop| format!("opening hangs ({stop:?}): {:?}", self.rig.world.tasks()))?;
        let pool = pool.map_err(|error| format!("opening: {error}"))?;
        pool.store().map.borrow_mut().config_max = self.config_max;
        self.rig.pool = Some(pool);
        let every = Nanos::millis(*self.rng.pick(&[20, 200, 1000]));
        self.daemon = Some(Daemon::start(&self.rig, every, Rng::new(self.rng.next_u64())));
        Ok(())
    }

    /// Rule 3.
    fn look_only(&mut self) -> Result<(), String> {
        self.looks += 1;
        let changes = |disks: &[SimDisk]| -> Vec<(u64, u64, u64)> {
            let each = |stats: DiskStats| (stats.writes, stats.discards, stats.flushes);
            disks.iter().map(|disk| each(disk.stats())).collect()
        };
        let before = changes(&self.rig.disks);
        self.rig.options.read_only = true;
        let opening = self.rig.opening(&mut self.rng);
        self.rig.options.read_only = false;
        let opened = self.rig.world.block_on_within(TIMEOUT, opening);
        let pool = opened.map_err(|stop| format!("opening read-only hangs ({stop:?})"))?;
        self.rig.pool = Some(pool.map_err(|error| format!("opening read-only: {error}"))?);
        self.judge(true).map_err(|why| format!("opened read-only: {why}"))?;
        self.rig.halt();
        match changes(&self.rig.disks) == before {
            true => Ok(()),
            false => Err("a pool that was opened read-only changed its disks".into()),
        }
    }

    /// Rules 1 and 2. `crashed`: what is there is the truth from now on.
    fn judge(&self, crashed: bool) -> Result<(), String> {
        let pool = self.rig.pool();
        let mut slots = self.field.slots.borrow_mut();
        for vdisk in pool.vdisks() {
            if !slots.iter().any(|slot| slot.stage != Stage::None && slot.name == vdisk.name()) {
                return Err(format!("{} is there, and should not be", vdisk.name()));
            }
        }
        for slot in slots.iter_mut().filter(|slot| slot.stage != Stage::None) {
            let Some(vdisk) = pool.vdisk(&slot.name) else {
                if slot.stage == Stage::Made || !crashed && slot.stage == Stage::Leaving {
                    return Err(format!("{} is gone", slot.name));
                }
                slot.stage = Stage::None;
                // Its clients went with the machine.
                slot.shared.clients_left.set(0);
                continue;
            };
            if slot.stage == Stage::Begun && !crashed {
                return Err(format!("{} was refused, and is there", slot.name));
            }
            let size = vdisk.size().0;
            if size != slot.size && size != slot.grows_to {
                return Err(format!("{} has {size} bytes, not {} or {}", slot.name, slot.size, slot.grows_to));
            }
            let mut oracle = slot.shared.oracle.borrow_mut();
            if size != slot.size {
                oracle.grow(size);
            }
            let seen = read_all(&self.rig, &slot.name, size, slot.sector as u64)?;
            seen.judge_lost(slot.sector as u64, |_| false).map_err(|why| format!("{}: {why}", slot.name))?;
            seen.judge(&mut oracle, crashed).map_err(|why| format!("{}: {why}", slot.name))?;
            drop(oracle);
            (slot.stage, slot.size, slot.grows_to) = (Stage::Made, size, size);
            slot.shared.busy.borrow_mut().clear();
            slot.shared.clients_left.set(0);
            slot.shared.strain.end(self.rig.world.now());
        }
        Ok(())
    }

    /// All disks are there, and the pool becomes well by itself.
    fn calm(&mut self) -> Result<(), String> {
        let world = self.rig.world.clone();
        let daemon = self.daemon.clone().ok_or("nobody looks after the disks")?;
        let deadline = world.now() + HEAL_WITHIN;
        while let Some(ill) = daemon.ill() {
            if world.now() > deadline {
                return Err(format!("all disks are back for {HEAL_WITHIN:?}, but {ill}"));
            }
            world.run_until(Nanos::secs(1), || false);
        }
        self.judge(false)?;
        let pool = self.rig.pool();
        let report =
            self.rig.run(async move { pool.check(false).await }).map_err(|error| format!("checking: {error}"))?;
        redundancy::judge_check(&report)?;
        let pool = self.rig.pool();
        let records = pool.store().map.borrow().records();
        let len: usize = records.iter().map(|record| record.encoded_len()).sum();
        match len as u64 <= self.config_max.0 {
            true => Ok(()),
            false => {
                let map = pool.store().map.borrow();
                let (tables, segments) = (map.tables.len(), map.segments.len());
                let (vdisks, jobs, disks) = (map.vdisks.len(), map.notes.jobs.len(), map.disks.len());
                let few = format!("{disks} disks, {vdisks} virtual disks, {tables} tables, {jobs} jobs");
                let max = self.config_max;
                Err(format!("the configuration has {len} bytes, and room for {max}: {few}, {segments} segments"))
            }
        }
    }

    /// Rule 4.
    fn remove_all(&mut self) -> Result<(), String> {
        let pool = self.rig.pool();
        let removed = self.rig.run(async move {
            for vdisk in pool.vdisks() {
                pool.vdisk_remove(&vdisk.name()).await?;
            }
            pool.checkpoint().await?;
            pool.store().drained_all().await;
            Ok::<(), Error>(())
        });
        removed.map_err(|error| format!("removing all: {error}"))?;
        self.field.slots.borrow_mut().iter_mut().for_each(|slot| slot.stage = Stage::None);
        let info = self.rig.pool().info();
        if info.allocated != info.metadata || info.allocated + info.free != info.capacity {
            return Err(format!(
                "nothing is left, but {} of {} are taken ({} for metadata), {} are free",
                info.allocated, info.capacity, info.metadata, info.free
            ));
        }
        self.stop_daemon();
        self.rig.close().map_err(|error| format!("closing: {error}"))?;
        self.open()?;
        self.judge(true)
    }

    fn stop_daemon(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop();
        }
    }

    fn line(&self) -> String {
        let field = &self.field;
        format!(
            "{} disks of {}, room for a configuration of {}: {} made, {} grown, {} removed, {} refused as full, {} outages, {} crashes, {} looks",
            self.scene.disks,
            self.scene.capacity,
            self.config_max,
            field.made.get(),
            field.grown.get(),
            field.removed.get(),
            field.full.get(),
            field.outages.get(),
            self.crashes,
            self.looks
        )
    }
}

impl Slot {
    fn empty(world: &SimWorld) -> Slot {
        let layout = Layout::new(resiliencies()[0], 1, ByteCount::kib(4)).expect("a valid layout");
        let shared = Shared::new(4096, 4096, world.rng("nobody"), Rc::default());
        let name = String::from("none");
        Slot { name, stage: Stage::None, layout, sector: 4096, size: 0, grows_to: 0, shared: Rc::new(shared) }
    }
}

impl Field {
    fn start(self: Rc<Self>, name: &'static str, task: impl Future<Output = Result<(), String>> + 'static) {
        self.busy.set(self.busy.get() + 1);
        let world = self.world.clone();
        world.spawn(
            name,
            Box::pin(async move {
                if let Err(why) = task.await {
                    self.failure.borrow_mut().get_or_insert(why);
                }
                self.busy.set(self.busy.get() - 1);
            }),
        );
    }

    fn is_over(&self) -> bool {
        let clients = || self.slots.borrow().iter().all(|slot| slot.shared.is_over());
        self.judge().is_err() || self.busy.get() == 0 && clients()
    }

    fn judge(&self) -> Result<(), String> {
        let slots = self.slots.borrow();
        let client = || {
            let told = |slot: &Slot| slot.shared.failure.borrow().as_ref().map(|why| format!("{}: {why}", slot.name));
            slots.iter().find_map(told)
        };
        self.failure.borrow().clone().or_else(client).map_or(Ok(()), Err)
    }

    /// How many disks every virtual disk survives.
    fn failures(&self) -> usize {
        let slots = self.slots.borrow();
        let there = slots.iter().filter(|slot| slot.stage != Stage::None);
        there.map(|slot| slot.layout.failures()).min().unwrap_or(0)
    }

    fn send_clients(&self, pool: &Rc<Pool>, no: usize) {
        let Some(vdisk) = pool.vdisk(&self.slots.borrow()[no].name) else { return };
        let (clients, ops) = {
            let mut rng = self.rng.borrow_mut();
            (1 + rng.below(2), 5 + rng.below(50))
        };
        let slots = self.slots.borrow();
        start_clients(&self.world, &vdisk, &slots[no].shared, clients, ops);
        let of = (&slots[no].shared, slots[no].name.as_str());
        changed::start(self.beside, &self.world, pool, of, &mut self.rng.borrow_mut());
    }

    /// Makes, grows and removes virtual disks, one after the other.
    async fn change(self: Rc<Self>, pool: Rc<Pool>, count: u64) -> Result<(), String> {
        for _ in 0..count {
            let (no, pause, dice) = {
                let mut rng = self.rng.borrow_mut();
                let most = *rng.pick(&[2_000_000, 100_000_000, 3_000_000_000]);
                (rng.below(SLOTS as u64) as usize, rng.below(most), rng.below(3))
            };
            self.world.sleep(Nanos(pause)).await;
            let stage = self.slots.borrow()[no].stage;
            match (stage, dice) {
                (Stage::None, _) => self.make(&pool, no).await?,
                (Stage::Made, 0) => self.remove(&pool, no).await?,
                (Stage::Made, _) => self.grow(&pool, no).await?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A refusal for want of room, or of disks that are away, is counted; anything else is wrong.
    fn refused(&self, what: &str, error: Error) -> Result<(), String> {
        self.full.set(self.full.get() + 1);
        match error.kind {
            ErrorKind::NoSpace | ErrorKind::NotPossible | ErrorKind::Frozen => Ok(()),
            _ => Err(format!("{what}: {error}")),
        }
    }

    async fn make(&self, pool: &Rc<Pool>, no: usize) -> Result<(), String> {
        let spec = self.plan(no);
        self.made.set(self.made.get() + 1);
        match pool.vdisk_create(&spec).await {
            Ok(_) => self.slots.borrow_mut()[no].stage = Stage::Made,
            // It may come to light after a crash, and is not tried again before.
            Err(error) => return self.refused("making a virtual disk", error),
        }
        self.send_clients(pool, no);
        Ok(())
    }

    /// A new virtual disk in slot `no`.
    fn plan(&self, no: usize) -> VdiskSpec {
        let mut rng = self.rng.borrow_mut();
        let fit = resiliencies().into_iter().filter(|resiliency| {
            let layout = Layout::new(*resiliency, resiliency.columns_min(), ByteCount::kib(4)).expect("it is valid");
            layout.slots() <= self.disks && layout.failures() >= self.least
        });
        let resiliency = *rng.pick(&fit.collect::<Vec<_>>());
        let interleave = ByteCount::kib(*rng.pick(&[4, 8, 24, 64]));
        let layout = Layout::new(resiliency, resiliency.columns_min(), interleave).expect("it is valid");
        let fixed = rng.chance(0.25);
        let size = ByteCount::kib(if fixed { 256 } else { 128 << rng.below(5) });
        let sector = *rng.pick(&[512, 4096]);
        let name = format!("v{}-{}", self.made.get(), "x".repeat(rng.below(40) as usize));
        let shared = Shared::new(size.0, sector as u64, Rng::new(rng.next_u64()), Rc::new(Strain::default()));
        let (stage, size, sector) = (Stage::Begun, size.0, sector);
        self.slots.borrow_mut()[no] =
            Slot { name: name.clone(), stage, layout, sector, size, grows_to: size, shared: Rc::new(shared) };
        VdiskSpec {
            name,
            size: ByteCount(size),
            resiliency,
            columns: Some(layout.columns() as u8),
            interleave: Some(interleave),
            fixed,
            sector,
            disks: DiskSet::EMPTY,
        }
    }

    async fn grow(&self, pool: &Rc<Pool>, no: usize) -> Result<(), String> {
        let (name, size) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[no];
            slot.grows_to = slot.size + 4096 * (1 + self.rng.borrow_mut().below(64));
            (slot.name.clone(), slot.grows_to)
        };
        let grown = pool.vdisk_resize(&name, ByteCount(size)).await;
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[no];
        match grown {
            Ok(()) => {
                self.grown.set(self.grown.get() + 1);
                slot.size = size;
                slot.shared.oracle.borrow_mut().grow(size);
                Ok(())
            }
            Err(error) => {
                slot.grows_to = slot.size;
                self.refused("growing a virtual disk", error)
            }
        }
    }

    /// Removes a virtual disk, sometimes while it is being used.
    async fn remove(&self, pool: &Rc<Pool>, no: usize) -> Result<(), String> {
        let (name, shared) = {
            let slots = self.slots.borrow();
            (slots[no].name.clone(), slots[no].shared.clone())
        };
        shared.ops_left.set(0);
        if self.rng.borrow_mut().chance(0.5) {
            while !shared.is_over() {
                self.world.sleep(Nanos::millis(1)).await;
            }
        }
        // What is under way may fail from here on.
        shared.strain.begin();
        self.slots.borrow_mut()[no].stage = Stage::Leaving;
        pool.vdisk_remove(&name).await.map_err(|error| format!("removing {name}: {error}"))?;
        while !shared.is_over() {
            self.world.sleep(Nanos::millis(1)).await;
        }
        shared.failure.borrow().clone().map_or(Ok(()), Err)?;
        self.removed.set(self.removed.get() + 1);
        self.slots.borrow_mut()[no].stage = Stage::None;
        Ok(())
    }
}

/// A disk is back, with its cache or without.
fn give_back(disk: &SimDisk, rng: &mut Rng) {
    match rng.chance(0.5) {
        true => disk.return_intact(rng),
        false => disk.come_back(rng),
    }
}
