//! The classic storm: one pool, everything at once; then calm, and the pool must be well.
//!
//! Rounds of clients (writes, reads, flushes, FUA, discards, zeroes of any size, several at once) end in a power cut, a
//! kill, a clean stop, or a power cut while the pool is being opened again. All the while the *victims* misbehave: as
//! many disks as the layout survives, chosen by seed, may lose and misplace writes, rot, stall, fail, vanish and come
//! back old. Survival is owed throughout: every read is judged, every opening must work, every check must find nothing
//! but what the victims did. In half of the storms a caretaker is at work, too ([`super::upkeep`]).

use super::Summary;
use super::clients::{Shared, Strain, start_clients};
use super::damage::Past;
use super::redundancy;
use super::scene::Scene;
use super::upkeep::Ids;
use crate::disk::FaultPlan;
use crate::rig::{Rig, TIMEOUT};
use crate::rng::Rng;
use crate::world::{SimWorld, Stop};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::rc::Rc;
use weft_engine::error::ErrorKind;
use weft_engine::health::DiskState;
use weft_engine::pool::OpenOptions;
use weft_engine::units::{DiskNo, Nanos, VirtualOffset};
use weft_engine::world::World;

/// Runs the storm in `world`.
pub(super) fn run(world: &SimWorld, rng: Rng, scene: Scene, damage: bool) -> Result<Summary, String> {
    let mut storm = Storm::new(world.clone(), scene, rng);
    if damage {
        storm.worsen();
    }
    let result = storm.run();
    let line = storm.line();
    storm.rig.halt();
    Summary::of(world, line, result)
}

pub(super) struct Storm {
    pub(super) rig: Rig,
    pub(super) scene: Scene,
    pub(super) shared: Rc<Shared>,
    pub(super) rng: Rng,
    crashes: u64,
    openings: u64,
    /// Disks that lost what they had taken without anybody noticing that they were away.
    pub(super) liars: Rc<RefCell<BTreeSet<usize>>>,
    /// What is done to disks beside that; see [`super::damage`].
    pub(super) past: Option<Rc<Past>>,
    pub(super) ids: Rc<Ids>,
}

impl Storm {
    fn new(world: SimWorld, scene: Scene, rng: Rng) -> Storm {
        let mut rig = Rig::of_any_kind(world, scene.disks + scene.extras, scene.capacity);
        rig.members = scene.disks;
        let ids = Rc::new(Ids::new(rig.disks.len(), scene.disks));
        rig.options = OpenOptions { tuning: scene.tuning, degraded: true, ..OpenOptions::default() };
        let shared = Shared::new(scene.size.0, scene.sector as u64, rng.fork("clients"), Rc::new(Strain::default()));
        Storm {
            rig,
            scene,
            shared: Rc::new(shared),
            rng,
            crashes: 0,
            openings: 0,
            liars: Rc::default(),
            past: None,
            ids,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        super::grown::create(&mut self.rig, &self.rng)?;
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
                if self.scene.beside.risky {
                    self.scene.victims.clear();
                }
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
        let excused = self.shared.excused.get();
        self.shared.may_freeze.set(self.may_freeze());
        start_clients(&world, &vdisk, &self.shared, self.scene.clients, self.scene.ops);
        self.maybe_lose_a_disk();
        self.start_copies();
        self.start_caretaker();
        super::changed::start(self.scene.beside, &world, &self.rig.pool(), (&self.shared, "vdisk"), &mut self.rng);
        let crash = self.rng.chance(0.7);
        if crash {
            world.crash_at(world.operations() + self.rng.range(1..self.scene.ops * 6));
        }
        let shared = self.shared.clone();
        let stop = world.run_until(world.now() + TIMEOUT, move || shared.is_over());
        if let Some(why) = self.shared.failure.borrow().clone() {
            return Err(why);
        }
        if self.past.is_none() && self.shared.excused.get() > excused && !self.votes_are_too_few() {
            return Err("clients were told that the pool is frozen, and enough disks vote".into());
        }
        match stop {
            Stop::Done | Stop::Crashed => {}
            other => {
                let buffers = vdisk.describe();
                let (used, ring) = self.rig.pool().store().log.fill();
                return Err(format!(
                    "the clients hang ({other:?}, {:?}); log {used}/{ring}; {buffers}; still there: {:?}",
                    world.spinning(),
                    world.tasks()
                ));
            }
        }
        drop(vdisk);
        world.crash_at(u64::MAX);
        self.end_of_round(stop == Stop::Crashed)?;
        self.put_back();
        self.open()?;
        self.judge_redundancy()?;
        self.judge_after_crash()?;
        self.check()
    }

    /// Nothing lacks its strip but for a reason; before anything heals it.
    fn judge_redundancy(&self) -> Result<(), String> {
        let pool = self.rig.pool();
        let place_of = |no: DiskNo| (0..self.rig.disks.len()).find(|at| self.ids.member(&pool, *at) == Some(no));
        redundancy::judge(&self.rig, place_of, &self.liars.borrow())
    }

    /// Disks that the pool says lack what was written while they were away.
    fn behind(&self) -> Vec<usize> {
        let pool = self.rig.pool();
        let behind: Vec<DiskNo> =
            pool.info().disks.iter().filter(|disk| disk.state == DiskState::Stale).map(|disk| disk.no).collect();
        let lacks = |at: &usize| self.ids.member(&pool, *at).is_some_and(|no| behind.contains(&no));
        (0..self.rig.disks.len()).filter(lacks).collect()
    }

    /// The power goes, as likely as `power` says, or the engine is killed.
    fn die(&mut self, power: f64) {
        if self.rng.chance(power) {
            self.rig.power_cut(&mut self.rng);
        } else {
            self.rig.halt();
            let mut rng = self.rng.fork("kill");
            self.rig.disks.iter().for_each(|disk| disk.survive_kill(&mut rng));
        }
    }

    fn end_of_round(&mut self, crashed: bool) -> Result<(), String> {
        self.shared.busy.borrow_mut().clear();
        if !crashed && self.rng.chance(0.4) && self.close()? {
            return Ok(());
        }
        self.crashes += 1;
        if self.rng.chance(0.7) {
            // It takes a victim with it, before anybody has noticed.
            let taken = self.scene.victims.iter().filter(|_| self.rng.chance(0.25));
            taken.for_each(|victim| self.rig.disks[*victim].vanish());
            let behind = self.behind();
            self.rig.power_cut(&mut self.rng);
            if self.rng.chance(0.3) {
                self.dare(&behind)?;
            }
        } else {
            self.die(0.0);
        }
        Ok(())
    }

    /// Whether so many disks are victims that the pool may freeze: when most of those that vote fail at once.
    fn may_freeze(&self) -> bool {
        self.scene.victims.len() * 2 > self.scene.disks
    }

    /// Whether less than half of the disks that vote are there.
    fn votes_are_too_few(&self) -> bool {
        let store = self.rig.pool().store().clone();
        let voters = store.labels.durable.get().voters;
        (voters & store.current_set()).len() * 2 < voters.len()
    }

    /// A clean stop; a kill where the pool is frozen, which it may be. `false`: a power cut was due in its midst.
    fn close(&mut self) -> Result<bool, String> {
        let (world, pool) = (self.rig.world.clone(), self.rig.pool());
        let closed = world.block_on_within(TIMEOUT, async move { pool.close().await });
        let is_frozen = matches!(&closed, Ok(Err(error)) if error.kind == ErrorKind::Frozen);
        if is_frozen && self.may_freeze() && self.votes_are_too_few() {
            world.crash_at(u64::MAX);
            self.crashes += 1;
            self.die(0.0);
            return Ok(true);
        }
        if closed.is_ok() {
            // A crash that was due in a moment finds nothing to crash.
            world.crash_at(u64::MAX);
            self.rig.pool.take().into_iter().for_each(|pool| drop(pool.release()));
            world.run_until_idle(world.now() + TIMEOUT);
        }
        world.crash_at(u64::MAX);
        match closed {
            Ok(closed) => closed.map(|()| true).map_err(|error| format!("closing: {error}")),
            Err(Stop::Crashed) => Ok(false),
            Err(stop) => Err(format!("closing hangs ({stop:?}): {:?}", world.tasks())),
        }
    }

    /// Opens the pool; now and then the power goes, or it is killed, once more while that is under way.
    fn open(&mut self) -> Result<(), String> {
        let world = self.rig.world.clone();
        while self.rng.chance(0.25) {
            let opening = self.rig.opening(&mut self.rng);
            let most = *self.rng.pick(&[20, 120]);
            world.crash_at(world.operations() + self.rng.range(1..most));
            match world.block_on_within(TIMEOUT, opening) {
                Ok(Ok(pool)) => drop(pool),
                Ok(Err(error)) if self.take_away_diverged(&error) => {
                    world.crash_at(u64::MAX);
                    continue;
                }
                Ok(Err(error)) => return Err(format!("opening: {error}")),
                Err(Stop::Crashed) => {}
                Err(other) => return Err(format!("opening hangs ({other:?}): {:?}", world.tasks())),
            }
            world.crash_at(u64::MAX);
            self.crashes += 1;
            self.die(0.6);
        }
        self.open_for_good().map_err(|error| format!("opening: {error}"))
    }

    fn open_for_good(&mut self) -> weft_engine::error::Result<()> {
        self.openings += 1;
        match self.rig.open(&mut self.rng) {
            Err(error) if self.take_away_diverged(&error) => self.rig.open(&mut self.rng).map(drop),
            opened => opened.map(drop),
        }
    }

    /// One of the victims may go, or come back with what it had.
    fn maybe_lose_a_disk(&mut self) {
        if self.scene.victims.is_empty() || !self.rng.chance(0.4) {
            return;
        }
        let at = *self.rng.pick(&self.scene.victims);
        let victim = self.rig.disks[at].clone();
        let (pool, ids, liars) = (self.rig.pool(), self.ids.clone(), self.liars.clone());
        // What it costs that a disk is away is owed right after somebody noticed.
        let crash_soon = self.rng.chance(0.3).then(|| self.rng.range(1..60));
        let (world, mut rng) = (self.rig.world.clone(), self.rng.fork("vanish"));
        self.rng.next_u64();
        let after = Nanos(rng.below(200_000_000));
        self.rig.world.spawn(
            "fate",
            Box::pin(async move {
                world.sleep(after).await;
                if victim.is_gone() {
                    victim.come_back(&mut rng);
                    if ids.member(&pool, at).is_some_and(|no| pool.store().has_disk(no)) {
                        liars.borrow_mut().insert(at);
                    }
                } else {
                    victim.vanish();
                    // A pool that was closed meanwhile is being opened again.
                    if let Some(after) = crash_soon.filter(|_| !pool.store().stopping.get()) {
                        world.crash_at(world.operations() + after);
                    }
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
        self.close()?;
        let mut rng = self.rng.fork("calm");
        for disk in &self.rig.disks {
            disk.set_plan(FaultPlan::default());
            if disk.is_gone() {
                disk.come_back(&mut rng);
            }
        }
        self.put_back();
        self.open_for_good().map_err(|error| format!("opening in the calm: {error}"))?;
        self.judge_redundancy()?;
        self.judge_after_crash()?;
        if !self.replace_strange()? || !self.settle()? {
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
        self.liars.borrow_mut().clear();
        let bytes = self.read_all()?;
        self.shared.oracle.borrow().judge(0, &bytes)?;
        self.rig.close().map_err(|error| format!("closing: {error}"))?;
        self.lose_others()?;
        self.rig.open(&mut self.rng).map(|_| true).map_err(|error| format!("opening after the calm: {error}"))
    }

    fn line(&self) -> String {
        let mut line = String::new();
        let Scene { layout, disks, size, victims, sector, fixed, .. } = &self.scene;
        let kind = if *fixed { "fixed" } else { "thin" };
        let _ = write!(
            line,
            "{layout}, {size} {kind}, sector {sector}, {disks} disks of {}, victims {victims:?}: {} operations, {} of them upkeep, {} refused as full, {} crashes, {} openings, {} runs held for reads",
            self.scene.capacity,
            self.shared.done.get(),
            self.ids.acts.get(),
            self.shared.full.get(),
            self.crashes,
            self.openings,
            self.rig.held
        );
        line
    }
}
