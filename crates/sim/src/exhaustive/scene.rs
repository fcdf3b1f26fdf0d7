//! What is tried: tiny pools (shapes), what is done to them (scripts), and the machine that plays a script up to a
//! crash.
//!
//! Every stripe has two or more 4 KiB blocks, so that a write can fill one in part, whole, or begin the next. Time is
//! constant per disk and tasks run oldest first: a scene has one run, and a crash point of it is a number.

use crate::disk::{DiskImage, Fate, SimDisk};
use crate::oracle::Oracle;
use crate::rig::Rig;
use crate::timing::{Latencies, Random};
use crate::world::{Scheduling, SimWorld, Stop};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::record::Media;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::DiskShape;
use weft_engine::pool::create::create;
use weft_engine::pool::{NewDisk, Pool, PoolOptions, VdiskSpec};
use weft_engine::sync::join_all;
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};

/// A pool's disks and the layout of its one virtual disk.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// How many disks.
    pub disks: usize,
    /// What the virtual disk survives.
    pub resiliency: Resiliency,
    /// Its columns.
    pub columns: u8,
}

/// One thing that is done.
#[derive(Clone, Debug)]
pub enum Step {
    /// The pool is opened.
    Open,
    /// The virtual disk is made.
    Create,
    /// Writes at this byte this many bytes; `true`: with FUA.
    Write(u64, u64, bool),
    /// The virtual disk is flushed.
    Flush,
    /// Discards from this byte on this many bytes.
    Discard(u64, u64),
    /// A checkpoint is taken.
    Checkpoint,
    /// The pool is closed as a clean stop does it.
    Close,
    /// Time passes.
    Wait(Nanos),
    /// This disk vanishes.
    Vanish(usize),
    /// All of these at once, each a sequence.
    Together(Vec<Vec<Step>>),
}

/// What is done to a pool.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its name.
    pub name: String,
    /// Bytes of a strip of the virtual disk.
    pub strip: u64,
    /// Bytes of its logical sector, which are also the oracle's unit.
    pub sector: u32,
    /// Bytes of the log ring.
    pub ring: u64,
    /// How long (in nanoseconds) each disk takes for a read or a write, and for a flush.
    pub pace: fn(u64) -> (u64, u64),
    /// How late (in nanoseconds) one thing happens beside the others.
    pub shift: u64,
    /// What is done, for stripes of so many data bytes and that shift.
    pub steps: fn(u64, u64) -> Vec<Step>,
    /// Whether the virtual disk is there before the script begins.
    pub made: bool,
}

/// A script on a shape.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The pool.
    pub shape: Shape,
    /// What is done.
    pub script: Script,
}

/// Why a script went no further.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Halt {
    /// The crash point came.
    Crashed,
    /// Something happened that must not.
    Failed(String),
}

/// Stripes of the virtual disk.
const STRIPES: u64 = 3;
const DISK_LEN: ByteCount = ByteCount::mib(6);
const LATENCY: u64 = 100_000;
const TIMEOUT: Nanos = Nanos::secs(600);

/// Every shape.
pub fn shapes() -> Vec<Shape> {
    let shape = |name, disks, resiliency, columns| Shape { name, disks, resiliency, columns };
    vec![
        shape("simple", 1, Resiliency::Simple, 1),
        shape("mirror2", 2, Resiliency::Mirror { copies: 2 }, 1),
        shape("mirror3", 3, Resiliency::Mirror { copies: 3 }, 1),
        shape("parity3", 3, Resiliency::Parity { parity: 1 }, 3),
        // One disk more than carry the log.
        shape("dual4", 4, Resiliency::Parity { parity: 2 }, 4),
    ]
}

/// Every script.
pub fn scripts() -> Vec<Script> {
    use Step::*;
    let whole = |name: &str, steps| Script {
        name: name.into(),
        strip: 0,
        sector: 4096,
        ring: 128 << 10,
        pace: |_| (LATENCY, LATENCY),
        shift: 0,
        steps,
        made: true,
    };
    let mut all = vec![
        Script { made: false, ..whole("create", |s, _| vec![Open, Create, Write(0, s, false), Flush]) },
        whole("rewrite", |s, _| vec![Open, Write(0, s, false), Flush, Write(0, s, false), Flush]),
        whole("landing", |s, _| vec![Open, Write(0, 4096, false), Flush, Write(4096, s - 4096, false), Flush]),
        whole("fua", |s, _| vec![Open, Write(0, 4096, true), Write(s, s, true), Write(4096, s - 4096, true)]),
        Script { sector: 512, ..whole("sectors", sectors) },
        whole("discard", |s, _| {
            vec![Open, Write(0, 2 * s, false), Flush, Discard(0, s), Flush, Write(4096, s, false), Flush]
        }),
        whole("checkpoint", |s, _| {
            vec![Open, Write(0, s, false), Write(s, 4096, false), Flush, Checkpoint, Write(0, s, false), Flush]
        }),
        whole("reopen", |s, _| {
            vec![Open, Write(0, s + 4096, false), Flush, Close, Open, Write(s + 4096, 4096, false), Flush, Close]
        }),
        whole("idle", |s, _| vec![Open, Write(0, s + 4096, false), Wait(Nanos::secs(12)), Write(0, s, false)]),
        // The second checkpoint finds a commit that is not durable yet.
        whole("early", |s, _| {
            let begin = vec![Open, Write(0, s, false), Flush, Checkpoint, Write(0, s, false), Write(s, 4096, false)];
            [begin, vec![Wait(Nanos::millis(1)), Checkpoint, Write(0, s, false)]].concat()
        }),
        Script { strip: 256 << 10, ..whole("reuse", reuse) },
        Script { pace: skewed, ..whole("together", together) },
        Script { ring: 64 << 10, ..whole("ring", ring) },
        whole("lost", lost),
    ];
    for shift in [250_000, 450_000, 650_000] {
        all.push(Script { pace: skewed, shift, ..whole(&format!("lost-late-{}", shift / 1000), lost_late) });
    }
    for shift in [250_000, 2_500_000] {
        all.push(Script { pace: lame, shift, ..whole(&format!("race-{}", shift / 1000), race) });
    }
    all
}

/// Each disk is somewhat slower than the one before it.
fn skewed(disk: u64) -> (u64, u64) {
    (LATENCY + disk * 30_000, LATENCY + disk * 30_000)
}

/// The first disk writes fast and flushes slowly, the others the other way round.
fn lame(disk: u64) -> (u64, u64) {
    if disk == 0 { (LATENCY, 30 * LATENCY) } else { (4 * LATENCY, LATENCY) }
}

fn sectors(stripe: u64, _: u64) -> Vec<Step> {
    use Step::*;
    vec![
        Open,
        Write(512, 1024, false),
        Flush,
        Write(1024, 1024, false),
        Write(stripe - 512, 1024, true),
        Write(0, stripe, false),
        Flush,
    ]
}

/// A segment has four stripes here: the fourth overwrite must not take the place of what is still the truth.
fn reuse(stripe: u64, _: u64) -> Vec<Step> {
    use Step::*;
    let mut steps = vec![Open, Write(0, stripe, false), Flush, Write(0, stripe, false)];
    (0..4).for_each(|_| steps.push(Write(stripe, stripe, false)));
    steps.extend([Wait(Nanos::millis(5)), Write(stripe, stripe, false), Flush]);
    steps
}

fn together(stripe: u64, _: u64) -> Vec<Step> {
    use Step::*;
    vec![
        Open,
        Write(0, stripe, false),
        Flush,
        Together(vec![
            vec![Checkpoint],
            vec![Write(stripe, stripe, false), Flush],
            vec![Write(0, stripe, false), Flush],
        ]),
    ]
}

/// A stripe becomes whole and somebody waits for it while a checkpoint writes pages and flushes disks.
fn race(stripe: u64, shift: u64) -> Vec<Step> {
    use Step::*;
    let late = vec![Wait(Nanos(shift)), Write(stripe, stripe, false), Flush, Write(0, stripe, false), Flush];
    vec![Open, Write(0, 2 * stripe, false), Flush, Together(vec![vec![Checkpoint], late])]
}

/// More than the log ring holds.
fn ring(stripe: u64, _: u64) -> Vec<Step> {
    use Step::*;
    let mut steps = vec![Open];
    for no in 0..10 {
        steps.extend([Write(no % 3 * stripe + 4096 * (no % 2), 4096, false), Flush]);
    }
    steps
}

fn lost(stripe: u64, _: u64) -> Vec<Step> {
    use Step::*;
    vec![
        Open,
        Write(0, stripe, false),
        Flush,
        Vanish(1),
        Write(0, stripe, false),
        Write(stripe, 4096, false),
        Flush,
        Checkpoint,
        Write(2 * stripe, stripe, true),
    ]
}

/// A disk vanishes at some moment of a checkpoint, beside writes that somebody waits for.
fn lost_late(stripe: u64, shift: u64) -> Vec<Step> {
    use Step::*;
    let write = vec![Write(0, stripe, false), Flush, Write(stripe, stripe, false), Flush];
    let vanish = vec![Wait(Nanos(shift)), Vanish(0)];
    vec![Open, Write(0, stripe, false), Flush, Together(vec![vec![Checkpoint], write, vanish])]
}

impl Scene {
    /// Its name: shape and script.
    pub fn name(&self) -> String {
        format!("{}/{}", self.shape.name, self.script.name)
    }

    /// Scenes of one group begin with the same disks, which take as long for everything; they differ in what is done.
    pub fn group(&self) -> String {
        let Script { strip, sector, ring, pace, made, .. } = &self.script;
        let pace: Vec<(u64, u64)> = (0..self.shape.disks as u64).map(pace).collect();
        format!("{} {strip} {sector} {ring} {pace:?} {made}", self.shape.name)
    }

    /// How many disks may be lost.
    pub fn failures(&self) -> usize {
        self.shape.resiliency.failures() as usize
    }

    /// Whether a script makes sense on a shape: disks vanish only where that is survived.
    pub fn fits(&self) -> bool {
        !self.script.name.starts_with("lost") || self.failures() > 0
    }

    fn strip(&self) -> u64 {
        match (self.script.strip, self.layout_columns()) {
            (0, 1) => 8192,
            (0, _) => 4096,
            (strip, _) => strip,
        }
    }

    fn layout_columns(&self) -> usize {
        let parity = match self.shape.resiliency {
            Resiliency::Parity { parity } => parity,
            _ => 0,
        };
        (self.shape.columns - parity) as usize
    }

    /// User bytes of a stripe.
    pub fn stripe(&self) -> u64 {
        self.strip() * self.layout_columns() as u64
    }

    /// Bytes of the virtual disk.
    pub fn size(&self) -> u64 {
        STRIPES * self.stripe()
    }

    fn layout(&self) -> Layout {
        Layout::new(self.shape.resiliency, self.shape.columns, ByteCount(self.strip())).expect("shapes are valid")
    }
}

/// A pool and its judge, on disks that can stop at any operation.
pub struct Machine {
    scene: Scene,
    /// The disks.
    pub rig: Rig,
    /// The judge.
    pub oracle: Rc<RefCell<Oracle>>,
    busy: Rc<RefCell<Vec<Range<usize>>>>,
    tag: Rc<Cell<u64>>,
    /// Whether the virtual disk was promised.
    pub made: Rc<Cell<bool>>,
    /// The disks that vanished.
    pub dead: Rc<RefCell<Vec<usize>>>,
}

type Action = Pin<Box<dyn Future<Output = Result<(), String>>>>;

impl Machine {
    /// Disks with these images.
    pub fn new(scene: &Scene, images: &[DiskImage], oracle: Oracle) -> Machine {
        let world = SimWorld::new(1, Scheduling::Fifo);
        let disk = |(no, image): (usize, &DiskImage)| {
            let (each, flush) = (scene.script.pace)(no as u64);
            let mut latencies = Latencies::constant(Nanos(each));
            latencies.flush = flush..flush + 1;
            SimDisk::from_image(&world, image, Box::new(Random::new(latencies, world.rng(&format!("timing {no}")))))
        };
        let disks = images.iter().enumerate().map(disk).collect();
        Machine {
            scene: scene.clone(),
            rig: Rig::with_disks(world, disks),
            oracle: Rc::new(RefCell::new(oracle)),
            busy: Rc::default(),
            tag: Rc::new(Cell::new(0x1_0000)),
            made: Rc::new(Cell::new(scene.script.made)),
            dead: Rc::default(),
        }
    }

    /// Blank disks with a pool on them, and the virtual disk if the script wants it to be there.
    pub fn base(scene: &Scene) -> Result<Vec<DiskImage>, String> {
        let shape = DiskShape { capacity: DISK_LEN, physical_sector: 512, rotational: false };
        let blank = vec![DiskImage::blank(shape); scene.shape.disks];
        let mut machine = Machine::new(scene, &blank, scene_oracle(scene));
        let disks = machine.rig.disks.iter().enumerate().map(|(no, disk)| NewDisk {
            disk: Rc::new(disk.clone()),
            id: Id([no as u8 + 1; 16]),
            name: format!("d{no}"),
            media: Media::Ssd,
        });
        let (disks, ring) = (disks.collect(), Some(ByteCount(scene.script.ring)));
        let options = PoolOptions { id: Id([0xEE; 16]), name: "pool".into(), slab: ByteCount::mib(1), log_len: ring };
        let made = machine.drive(async move { create(disks, &options).await });
        made.map_err(|halt| format!("{halt:?}"))?.map_err(|error| error.to_string())?;
        if scene.script.made {
            for step in [Step::Open, Step::Create, Step::Close] {
                machine.perform(&step).map_err(|halt| format!("{halt:?}"))?;
            }
        }
        machine.stop();
        Ok(machine.rig.disks.iter().map(SimDisk::image).collect())
    }

    /// What is written from now on is told apart from what a script wrote.
    pub fn use_new_tags(&self) {
        self.tag.set(0x100_0000);
    }

    /// Takes all steps of the script, or those before the crash.
    pub fn play(&mut self) -> Result<(), Halt> {
        for step in (self.scene.script.steps)(self.scene.stripe(), self.scene.script.shift) {
            self.perform(&step)?;
        }
        Ok(())
    }

    /// Takes one step.
    pub fn perform(&mut self, step: &Step) -> Result<(), Halt> {
        match step {
            Step::Open => {
                let mut rng = self.rig.world.rng("order");
                let pool = self.drive(self.rig.opening(&mut rng))?;
                self.rig.pool = Some(pool.map_err(|error| Halt::Failed(format!("the pool does not open: {error}")))?);
                Ok(())
            }
            Step::Close => {
                let pool = self.rig.pool();
                self.drive(async move { pool.close().await })?
                    .map_err(|error| Halt::Failed(format!("the pool does not close: {error}")))?;
                self.rig.pool = None;
                match self.rig.world.run_until_idle(TIMEOUT) {
                    Stop::Idle => Ok(()),
                    Stop::Crashed => Err(Halt::Crashed),
                    stop => Err(Halt::Failed(format!("a closed pool goes on: {stop:?}"))),
                }
            }
            step => {
                let action = self.action(step);
                self.drive(action)?.map_err(Halt::Failed)
            }
        }
    }

    /// Runs a future to its end, or to the crash.
    pub fn drive<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Result<T, Halt> {
        self.rig.world.block_on_within(TIMEOUT, future).map_err(|stop| match stop {
            Stop::Crashed => Halt::Crashed,
            stop => Halt::Failed(format!("it never ended ({stop:?}); still there: {:?}", self.rig.world.tasks())),
        })
    }

    /// Stops the engine where it is.
    pub fn stop(&mut self) {
        self.rig.halt();
    }

    /// The images of all disks after a power cut with these fates.
    pub fn images(&self, fates: &[Vec<Fate>]) -> Vec<DiskImage> {
        self.rig.disks.iter().zip(fates).map(|(disk, fates)| disk.after_power_cut(fates)).collect()
    }

    fn action(&self, step: &Step) -> Action {
        match step.clone() {
            Step::Write(at, len, fua) => self.write(at, len, fua),
            Step::Flush => self.flush(),
            Step::Discard(at, len) => self.discard(at, len),
            Step::Create => self.create(),
            Step::Checkpoint => {
                let pool = self.rig.pool();
                Box::pin(
                    async move { pool.checkpoint().await.map_err(|error| format!("a checkpoint failed: {error}")) },
                )
            }
            Step::Wait(span) => {
                let world = self.rig.world.clone();
                Box::pin(async move {
                    weft_engine::world::World::sleep(&world, span).await;
                    Ok(())
                })
            }
            Step::Vanish(no) => {
                let (disk, dead) = (self.rig.disks[no].clone(), self.dead.clone());
                Box::pin(async move {
                    dead.borrow_mut().push(no);
                    disk.vanish();
                    Ok(())
                })
            }
            Step::Together(branches) => {
                let branches: Vec<Action> = branches.iter().map(|steps| self.sequence(steps)).collect();
                Box::pin(async move { join_all(branches).await.into_iter().collect() })
            }
            Step::Open | Step::Close => unreachable!("opening and closing are steps of their own"),
        }
    }

    fn sequence(&self, steps: &[Step]) -> Action {
        // Each step is begun only when the one before it has ended: actions do nothing before they are polled.
        let actions: Vec<Action> = steps.iter().map(|step| self.action(step)).collect();
        Box::pin(async move {
            for action in actions {
                action.await?;
            }
            Ok(())
        })
    }

    fn units(&self, at: u64, len: u64) -> Range<usize> {
        let unit = self.oracle.borrow().unit();
        (at / unit) as usize..((at + len) / unit) as usize
    }

    fn write(&self, at: u64, len: u64, fua: bool) -> Action {
        let (oracle, busy, units) = (self.oracle.clone(), self.busy.clone(), self.units(at, len));
        let (pool, tags) = (self.rig.pool(), self.tag.clone());
        Box::pin(async move {
            let tag = tags.get();
            tags.set(tag + 1);
            let data = oracle.borrow().bytes(tag, units.len());
            oracle.borrow_mut().begin(units.clone(), tag);
            busy.borrow_mut().push(units.clone());
            let written = vdisk(&pool)?.write(VirtualOffset(at), &data, fua).await;
            busy.borrow_mut().retain(|range| *range != units);
            written.map_err(|error| format!("a write failed: {error}"))?;
            if fua {
                oracle.borrow_mut().durable(units);
            }
            Ok(())
        })
    }

    fn flush(&self) -> Action {
        let (oracle, busy, pool) = (self.oracle.clone(), self.busy.clone(), self.rig.pool());
        Box::pin(async move {
            let mark = oracle.borrow().mark(&busy.borrow());
            vdisk(&pool)?.flush().await.map_err(|error| format!("a flush failed: {error}"))?;
            oracle.borrow_mut().flushed(&mark);
            Ok(())
        })
    }

    fn discard(&self, at: u64, len: u64) -> Action {
        let (oracle, pool, units) = (self.oracle.clone(), self.rig.pool(), self.units(at, len));
        Box::pin(async move {
            oracle.borrow_mut().begin_discard(units);
            let discarded = vdisk(&pool)?.discard(VirtualOffset(at), len, false).await;
            discarded.map_err(|error| format!("a discard failed: {error}"))
        })
    }

    fn create(&self) -> Action {
        let layout = self.scene.layout();
        let spec = VdiskSpec {
            name: "vdisk".into(),
            size: ByteCount(self.scene.size()),
            resiliency: layout.resiliency(),
            columns: Some(layout.columns() as u8),
            interleave: Some(layout.interleave()),
            fixed: false,
            sector: self.scene.script.sector,
            disks: DiskSet::EMPTY,
        };
        let (pool, made) = (self.rig.pool(), self.made.clone());
        Box::pin(async move {
            pool.vdisk_create(&spec).await.map_err(|error| format!("the virtual disk cannot be made: {error}"))?;
            made.set(true);
            Ok(())
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The world owns tasks that own the world.
        self.stop();
    }
}

/// The judge of a scene's virtual disk.
pub fn scene_oracle(scene: &Scene) -> Oracle {
    Oracle::new(scene.size(), scene.script.sector as u64)
}

fn vdisk(pool: &Rc<Pool>) -> Result<Rc<weft_engine::vdisk::Vdisk>, String> {
    pool.vdisk("vdisk").ok_or_else(|| "the virtual disk is gone".to_string())
}
