//! The storm: one seed, one pool, everything at once; then calm, and the pool must be well.
//!
//! Rounds of clients (writes, reads, flushes, FUA, discards, zeroes of any size, several at once) end in a power cut, a kill, a clean stop, or a power cut
//! while the pool is being opened again. All the while the *victims* misbehave: as many disks as the layout survives, chosen by seed, may lose and
//! misplace writes, rot, stall, fail, vanish and come back old. Survival is owed throughout: every read is judged, every opening must work, every
//! check must find nothing but what the victims did. In half of the storms a caretaker is at work, too ([`upkeep`]).

mod upkeep;

use crate::disk::FaultPlan;
use crate::oracle::Oracle;
use crate::rig::{PATIENCE, Rig};
use crate::rng::Rng;
use crate::world::{Scheduling, SimWorld, Stop};
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::ops::Range;
use std::rc::Rc;
use upkeep::Ids;
use weft_engine::error::ErrorKind;
use weft_engine::pool::OpenOptions;
use weft_engine::store::Tuning;
use weft_engine::stripe::geometry::{Layout, Resiliency};
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;

/// What a storm was like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// One line for people.
    pub line: String,
    /// Equal for equal runs.
    pub hash: u64,
}

/// The scene of one storm, all of it from the seed.
struct Scene {
    layout: Layout,
    sector: u32,
    fixed: bool,
    disks: usize,
    capacity: ByteCount,
    size: ByteCount,
    tuning: Tuning,
    victims: Vec<usize>,
    faults: FaultPlan,
    rounds: u64,
    ops: u64,
    clients: u64,
    /// Disks that are in no pool at first.
    extras: usize,
    /// Whether disks and jobs are meddled with.
    upkeep: bool,
}

/// What the clients of a round share.
struct Shared {
    oracle: RefCell<Oracle>,
    busy: RefCell<Vec<(u64, Range<usize>)>>,
    rng: RefCell<Rng>,
    tag: Cell<u64>,
    done: Cell<u64>,
    ops_left: Cell<u64>,
    clients_left: Cell<u64>,
    failure: RefCell<Option<String>>,
    full: Cell<u64>,
}

/// Runs the storm of `seed`.
pub fn run(seed: u64) -> Result<Summary, String> {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("storm");
    let scene = Scene::new(&mut rng);
    let mut storm = Storm::new(world.clone(), scene, rng);
    let result = storm.run();
    let line = storm.line();
    storm.rig.halt();
    let hash = world.trace_hash();
    match result {
        Ok(()) => Ok(Summary { line, hash }),
        Err(why) => Err(format!("{why}\n  scene: {line}")),
    }
}

struct Storm {
    rig: Rig,
    scene: Scene,
    shared: Rc<Shared>,
    rng: Rng,
    crashes: u64,
    openings: u64,
    ids: Rc<Ids>,
}

impl Storm {
    fn new(world: SimWorld, scene: Scene, rng: Rng) -> Storm {
        let mut rig = Rig::new(world, scene.disks + scene.extras, scene.capacity);
        rig.members = scene.disks;
        let ids = Rc::new(Ids::new(rig.disks.len(), scene.disks));
        rig.options = OpenOptions { tuning: scene.tuning, degraded: true, ..OpenOptions::default() };
        let shared = Shared {
            oracle: RefCell::new(Oracle::new(scene.size.0, scene.sector as u64)),
            busy: RefCell::default(),
            rng: RefCell::new(rng.fork("clients")),
            tag: Cell::new(1),
            done: Cell::new(0),
            ops_left: Cell::new(0),
            clients_left: Cell::new(0),
            failure: RefCell::new(None),
            full: Cell::new(0),
        };
        Storm { rig, scene, shared: Rc::new(shared), rng, crashes: 0, openings: 0, ids }
    }

    fn run(&mut self) -> Result<(), String> {
        self.rig.create(ByteCount::mib(1)).map_err(|error| format!("creating: {error}"))?;
        self.open()?;
        let Scene { layout, size, sector, fixed, .. } = self.scene;
        self.rig.make_vdisk(layout, size, sector, fixed).map_err(|error| format!("making the disk: {error}"))?;
        if self.scene.upkeep {
            self.set_policy()?;
        }
        self.curse();
        for round in 0..self.scene.rounds {
            self.round().map_err(|why| format!("round {round}: {why}"))?;
            if self.rng.chance(0.3) {
                if !self.calm().map_err(|why| format!("calm after round {round}: {why}"))? {
                    break;
                }
                self.scene.victims = Scene::victims(self.scene.layout, self.scene.disks, &mut self.rng);
                self.curse();
            }
        }
        self.calm()?;
        self.rig.close().map_err(|error| format!("closing: {error}"))
    }

    /// The victims misbehave from now on.
    fn curse(&self) {
        for victim in &self.scene.victims {
            self.rig.disks[*victim].set_plan(self.scene.faults.clone());
        }
    }

    /// Clients work until they are done or the world ends; then it begins again.
    fn round(&mut self) -> Result<(), String> {
        let world = self.rig.world.clone();
        let vdisk = self.rig.pool().vdisk("vdisk").ok_or("the virtual disk is gone")?;
        self.start_clients(&vdisk);
        self.maybe_lose_a_disk();
        self.start_caretaker();
        let crash = self.rng.chance(0.7);
        if crash {
            world.crash_at(world.operations() + self.rng.range(1..self.scene.ops * 6));
        }
        let shared = self.shared.clone();
        let stop = world.run_until(world.now() + PATIENCE, move || {
            shared.clients_left.get() == 0 || shared.failure.borrow().is_some()
        });
        if let Some(why) = self.shared.failure.borrow().clone() {
            return Err(why);
        }
        match stop {
            Stop::Done | Stop::Crashed => {}
            other => {
                let buffers = vdisk.describe();
                let (used, ring) = self.rig.pool().store().log.fill();
                return Err(format!(
                    "the clients hang ({other:?}); log {used}/{ring}; {buffers}; still there: {:?}",
                    world.tasks()
                ));
            }
        }
        drop(vdisk);
        world.crash_at(u64::MAX);
        self.end_of_round(stop == Stop::Crashed)?;
        self.open()?;
        self.judge_after_crash()?;
        self.check()
    }

    fn end_of_round(&mut self, crashed: bool) -> Result<(), String> {
        self.shared.busy.borrow_mut().clear();
        if !crashed && self.rng.chance(0.4) {
            return self.rig.close().map_err(|error| format!("closing: {error}"));
        }
        self.crashes += 1;
        if self.rng.chance(0.7) {
            self.rig.power_cut(&mut self.rng);
        } else {
            self.rig.halt();
            let mut rng = self.rng.fork("kill");
            self.rig.disks.iter().for_each(|disk| disk.survive_kill(&mut rng));
        }
        Ok(())
    }

    /// Opens the pool; now and then the power goes once more while that is under way.
    fn open(&mut self) -> Result<(), String> {
        let world = self.rig.world.clone();
        while self.rng.chance(0.25) {
            let opening = self.rig.opening(&mut self.rng);
            world.crash_at(world.operations() + self.rng.range(1..120));
            match world.block_on_within(PATIENCE, opening) {
                Ok(Ok(pool)) => drop(pool),
                Ok(Err(error)) => return Err(format!("opening: {error}")),
                Err(Stop::Crashed) => {}
                Err(other) => return Err(format!("opening hangs ({other:?}): {:?}", world.tasks())),
            }
            world.crash_at(u64::MAX);
            self.crashes += 1;
            self.rig.power_cut(&mut self.rng);
        }
        self.openings += 1;
        self.rig.open(&mut self.rng).map(|_| ()).map_err(|error| format!("opening: {error}"))
    }

    fn start_clients(&mut self, vdisk: &Rc<Vdisk>) {
        self.shared.ops_left.set(self.scene.ops);
        self.shared.clients_left.set(self.scene.clients);
        for client in 0..self.scene.clients {
            let (vdisk, shared, world) = (vdisk.clone(), self.shared.clone(), self.rig.world.clone());
            let job = async move {
                while shared.ops_left.get() > 0 && shared.failure.borrow().is_none() {
                    shared.ops_left.set(shared.ops_left.get() - 1);
                    if let Err(why) = operate(&vdisk, &shared, client, &world).await {
                        shared.failure.borrow_mut().get_or_insert(why);
                    }
                }
                shared.clients_left.set(shared.clients_left.get() - 1);
            };
            self.rig.world.spawn("client", Box::pin(job));
        }
    }

    /// One of the victims may go, or come back with what it had.
    fn maybe_lose_a_disk(&mut self) {
        if self.scene.victims.is_empty() || !self.rng.chance(0.4) {
            return;
        }
        let victim = self.rig.disks[*self.rng.pick(&self.scene.victims)].clone();
        let (world, mut rng) = (self.rig.world.clone(), self.rng.fork("vanish"));
        self.rng.next_u64();
        let after = Nanos(rng.below(200_000_000));
        self.rig.world.spawn(
            "fate",
            Box::pin(async move {
                world.sleep(after).await;
                if victim.is_gone() {
                    victim.come_back(&mut rng);
                } else {
                    victim.vanish();
                }
            }),
        );
    }

    fn read_all(&self) -> Result<Vec<u8>, String> {
        let vdisk = self.rig.pool().vdisk("vdisk").ok_or("the virtual disk is gone")?;
        let len = self.scene.size.as_usize();
        let read = async move {
            let mut bytes = vec![0; len];
            for (nth, piece) in bytes.chunks_mut(256 << 10).enumerate() {
                vdisk.read(VirtualOffset(nth as u64 * (256 << 10)), piece).await?;
            }
            Ok::<_, weft_engine::error::Error>(bytes)
        };
        self.rig.run(read).map_err(|error| format!("reading everything: {error}"))
    }

    fn judge_after_crash(&mut self) -> Result<(), String> {
        let bytes = self.read_all()?;
        self.shared.oracle.borrow_mut().judge_after_crash(0, &bytes)
    }

    fn check(&self) -> Result<(), String> {
        let pool = self.rig.pool();
        let report =
            self.rig.run(async move { pool.check(false).await }).map_err(|error| format!("checking: {error}"))?;
        if !report.problems.is_empty() || report.lost_stripes > 0 {
            return Err(format!("the check found {report:?}"));
        }
        if report.bad_blocks > 0 && self.scene.victims.is_empty() && !self.scene.upkeep {
            return Err(format!("blocks are bad without anybody's fault: {report:?}"));
        }
        Ok(())
    }

    /// No more faults: every disk is back, and the pool must become whole. `false`: it has not the room for that.
    fn calm(&mut self) -> Result<bool, String> {
        self.rig.close().map_err(|error| format!("closing: {error}"))?;
        let mut rng = self.rng.fork("calm");
        for disk in &self.rig.disks {
            disk.set_plan(FaultPlan::default());
            if disk.is_gone() {
                disk.come_back(&mut rng);
            }
        }
        self.rig.open(&mut self.rng).map_err(|error| format!("opening in the calm: {error}"))?;
        self.judge_after_crash()?;
        if !self.settle()? {
            return Ok(false);
        }
        let pool = self.rig.pool();
        self.rig.run(async move { pool.check(true).await }).map_err(|error| format!("healing: {error}"))?;
        let pool = self.rig.pool();
        let report =
            self.rig.run(async move { pool.check(false).await }).map_err(|error| format!("checking: {error}"))?;
        if !report.is_sound() {
            return Err(format!("after the repair the check still finds {report:?}"));
        }
        let bytes = self.read_all()?;
        self.shared.oracle.borrow().judge(0, &bytes).map(|()| true)
    }

    fn line(&self) -> String {
        let mut line = String::new();
        let Scene { layout, disks, size, victims, sector, fixed, .. } = &self.scene;
        let kind = if *fixed { "fixed" } else { "thin" };
        let _ = write!(
            line,
            "{layout}, {size} {kind}, sector {sector}, {disks} disks of {}, victims {victims:?}: {} operations, {} of them upkeep, {} refused as full, {} crashes, {} openings",
            self.scene.capacity,
            self.shared.done.get(),
            self.ids.acts.get(),
            self.shared.full.get(),
            self.crashes,
            self.openings
        );
        line
    }
}

/// One operation of one client, judged.
async fn operate(vdisk: &Rc<Vdisk>, shared: &Shared, client: u64, world: &SimWorld) -> Result<(), String> {
    let (dice, pause) = {
        let mut rng = shared.rng.borrow_mut();
        (rng.below(100), if rng.chance(0.1) { rng.below(30_000_000) } else { 0 })
    };
    if pause > 0 {
        world.sleep(Nanos(pause)).await;
    }
    shared.done.set(shared.done.get() + 1);
    match dice {
        0..=9 => return flush(vdisk, shared).await,
        10..=29 => return read(vdisk, shared, client).await,
        _ => {}
    }
    let Some((units, stripes)) = shared.reserve(client, vdisk.stripe_len().0) else { return Ok(()) };
    let (offset, len) = shared.bytes_of(&units);
    let fua = shared.rng.borrow_mut().chance(0.15);
    let result = match dice {
        30..=37 if stripes => {
            shared.oracle.borrow_mut().begin_discard(units.clone());
            vdisk.discard(offset, len, fua).await
        }
        30..=41 => {
            shared.oracle.borrow_mut().begin(units.clone(), 0);
            let keep = shared.rng.borrow_mut().chance(0.3);
            vdisk.write_zeroes(offset, len, keep, fua).await
        }
        _ => {
            let tag = shared.tag.replace(shared.tag.get() + 1);
            let bytes = {
                let mut oracle = shared.oracle.borrow_mut();
                oracle.begin(units.clone(), tag);
                oracle.bytes(tag, units.len())
            };
            vdisk.write(offset, &bytes, fua).await
        }
    };
    shared.busy.borrow_mut().retain(|(owner, _)| *owner != client);
    match result {
        Ok(()) if fua && dice > 37 => shared.oracle.borrow_mut().durable(units),
        Ok(()) => {}
        Err(error) if error.kind == ErrorKind::NoSpace => {
            shared.full.set(shared.full.get() + 1);
            shared.oracle.borrow_mut().failed(units);
        }
        Err(error) => return Err(format!("writing {len} bytes at {}: {error}", offset.0)),
    }
    Ok(())
}

async fn flush(vdisk: &Rc<Vdisk>, shared: &Shared) -> Result<(), String> {
    let mark = {
        let busy: Vec<Range<usize>> = shared.busy.borrow().iter().map(|(_, range)| range.clone()).collect();
        shared.oracle.borrow().mark(&busy)
    };
    vdisk.flush().await.map_err(|error| format!("flushing: {error}"))?;
    shared.oracle.borrow_mut().flushed(&mark);
    Ok(())
}

async fn read(vdisk: &Rc<Vdisk>, shared: &Shared, client: u64) -> Result<(), String> {
    let Some((units, _)) = shared.reserve(client, vdisk.stripe_len().0) else { return Ok(()) };
    let (offset, len) = shared.bytes_of(&units);
    let mut bytes = vec![0xAA; len as usize];
    let result = vdisk.read(offset, &mut bytes).await;
    shared.busy.borrow_mut().retain(|(owner, _)| *owner != client);
    result.map_err(|error| format!("reading {len} bytes at {}: {error}", offset.0))?;
    shared.oracle.borrow().judge(units.start, &bytes).map_err(|why| format!("reading: {why}"))
}

impl Shared {
    /// A range of units that nobody else works on, now `client`'s; and whether it is whole stripes.
    fn reserve(&self, client: u64, stripe: u64) -> Option<(Range<usize>, bool)> {
        let mut rng = self.rng.borrow_mut();
        let unit = self.oracle.borrow().unit();
        let total = self.oracle.borrow().units() as u64;
        let per_stripe = (stripe / unit).max(1);
        let whole = rng.chance(0.3);
        let len = match rng.below(4) {
            0 => 1 + rng.below(2),
            1 => 1 + rng.below(8),
            2 => 1 + rng.below(per_stripe + 4),
            _ => 1 + rng.below(per_stripe * 3),
        };
        let (start, len) = if whole {
            let stripes = 1 + rng.below(3);
            (rng.below(total.div_ceil(per_stripe)) * per_stripe, stripes * per_stripe)
        } else {
            (rng.below(total), len)
        };
        let units = start as usize..(start + len).min(total) as usize;
        let mut busy = self.busy.borrow_mut();
        if units.is_empty() || busy.iter().any(|(_, other)| other.start < units.end && units.start < other.end) {
            return None;
        }
        busy.push((client, units.clone()));
        Some((units, whole))
    }

    fn bytes_of(&self, units: &Range<usize>) -> (VirtualOffset, u64) {
        let unit = self.oracle.borrow().unit();
        (VirtualOffset(units.start as u64 * unit), units.len() as u64 * unit)
    }
}

impl Scene {
    /// As many disks as the layout survives, or none.
    fn victims(layout: Layout, disks: usize, rng: &mut Rng) -> Vec<usize> {
        let count = if rng.chance(0.7) { layout.failures() } else { 0 };
        let mut victims: Vec<usize> = Vec::new();
        while victims.len() < count {
            let victim = rng.below(disks as u64) as usize;
            if !victims.contains(&victim) {
                victims.push(victim);
            }
        }
        victims
    }

    fn new(rng: &mut Rng) -> Scene {
        let resiliency = *rng.pick(&[
            Resiliency::Simple,
            Resiliency::Mirror { copies: 2 },
            Resiliency::Mirror { copies: 3 },
            Resiliency::Parity { parity: 1 },
            Resiliency::Parity { parity: 1 },
            Resiliency::Parity { parity: 2 },
        ]);
        let columns = resiliency.columns_min() + rng.below(3) as u8;
        let interleave = *rng.pick(&[
            ByteCount::kib(4),
            ByteCount::kib(8),
            ByteCount::kib(12),
            ByteCount::kib(24),
            ByteCount::kib(64),
        ]);
        let layout = Layout::new(resiliency, columns, interleave).expect("scenes are valid");
        let disks = layout.slots() + rng.below(3) as usize;
        let victims = Scene::victims(layout, disks, rng);
        let often = |rng: &mut Rng, most: f64| if rng.chance(0.5) { most * rng.below(100) as f64 / 100.0 } else { 0.0 };
        let faults = FaultPlan {
            latent: often(rng, 0.02),
            rot: often(rng, 0.02),
            misdirect: often(rng, 0.01),
            lose: often(rng, 0.01),
            write_error: if rng.chance(0.2) { 0.002 } else { 0.0 },
            flush_error: if rng.chance(0.2) { 0.002 } else { 0.0 },
            stall: often(rng, 0.01),
            stall_max: Nanos::secs(5),
        };
        let tuning = Tuning {
            buffer_memory: *rng.pick(&[64 << 10, 512 << 10, 8 << 20]),
            sheet_memory: *rng.pick(&[16 << 10, 256 << 10, 8 << 20]),
            commit_interval: Nanos::millis(*rng.pick(&[1, 50, 1000])),
            commit_bytes: *rng.pick(&[64 << 10, 1 << 20, 256 << 20]),
            idle_land: Nanos::millis(*rng.pick(&[20, 5000])),
            runs_in_flight: 1 + rng.below(8) as usize,
            run_bytes: *rng.pick(&[4 << 10, 64 << 10, 1 << 20]),
            read_patience: Nanos::millis(*rng.pick(&[5, 200, 1000])),
            bad_blocks_max: *rng.pick(&[5, 256, u64::MAX]),
            failures_max: *rng.pick(&[1, 3, u64::MAX]),
            freeze_limit: Nanos::secs(30),
            auto_jobs: true,
            // Groups of a few stripes: more can happen between them.
            move_memory: 1 << 20,
        };
        let fixed = rng.chance(0.25);
        let upkeep = rng.chance(0.5);
        Scene {
            layout,
            sector: *rng.pick(&[512, 4096]),
            fixed,
            disks,
            capacity: ByteCount::mib(*rng.pick(&[9, 12, 20])),
            size: ByteCount::kib(if fixed { 512 } else { 512 + rng.below(5) * 1024 }),
            tuning,
            victims,
            faults,
            rounds: 2 + rng.below(4),
            ops: 40 + rng.below(200),
            clients: 1 + rng.below(6),
            extras: if upkeep { 1 + rng.below(3) as usize } else { 0 },
            upkeep,
        }
    }
}
