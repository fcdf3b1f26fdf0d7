//! What is removed is removed once, and harms nobody: virtual disks are removed beside others that want their room,
//! with a crash at every disk operation.
//!
//! A virtual disk is written, flushed and removed while another one is written: that one gets the slabs, pages and
//! stripes of the first. After each crash the pool must open and prove sound; every flushed byte of a virtual disk that
//! is there must be right; one whose removal was not begun must be there, one whose removal was acknowledged must not.

use crate::disk::{DiskImage, SimDisk};
use crate::rig::Rig;
use crate::timing::{Latencies, Random};
use crate::world::{Scheduling, SimWorld, Stop};
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::Result;
use weft_engine::format::Id;
use weft_engine::format::record::Media;
use weft_engine::geometry::Resiliency;
use weft_engine::io::DiskShape;
use weft_engine::pool::create::create;
use weft_engine::pool::{NewDisk, Pool, PoolOptions, VdiskSpec};
use weft_engine::sync::join_all;
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::world::World;

/// A pool and what is done on it.
#[derive(Clone, Copy, Debug)]
pub struct Story {
    /// Its name.
    pub name: &'static str,
    /// How many disks.
    pub disks: usize,
    /// What its virtual disks survive.
    pub resiliency: Resiliency,
    /// Whether its virtual disks have their slabs from the beginning.
    pub fixed: bool,
    /// Whether a checkpoint is taken beside it all.
    pub checkpoint: bool,
    /// How long the second virtual disk waits before it is written.
    pub late: Nanos,
    /// How long slabs are free before their disks are told.
    pub rest: Nanos,
}

/// Bytes of each virtual disk: more than a segment.
const SIZE: u64 = 1280 << 10;
const STRIP: u64 = 64 << 10;
/// Power cuts at each crash point.
const CUTS: u64 = 6;
const TIMEOUT: Nanos = Nanos::secs(600);

/// How far a virtual disk has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
enum Stage {
    #[default]
    None,
    Made,
    Flushed,
    Leaving,
    Gone,
}

/// The virtual disks of a story: name, what each of their bytes is, and how far each has come.
const NAMES: [(&str, u8); 3] = [("stays", 0x51), ("leaves", 0x1e), ("comes", 0xc0)];

/// Every story.
pub fn stories() -> Vec<Story> {
    let simple = Story {
        name: "simple",
        disks: 1,
        resiliency: Resiliency::Simple,
        fixed: false,
        checkpoint: false,
        late: Nanos(0),
        rest: Nanos(0),
    };
    let mirror = Story { name: "mirror", disks: 2, resiliency: Resiliency::Mirror { copies: 2 }, ..simple };
    vec![
        simple,
        Story { name: "simple-checkpoint", checkpoint: true, ..simple },
        Story { name: "simple-late", late: Nanos::millis(3), ..simple },
        Story { name: "simple-rest", late: Nanos::millis(3), rest: Nanos::millis(20), ..simple },
        Story { name: "fixed", fixed: true, ..simple },
        mirror,
        Story { name: "mirror-checkpoint", checkpoint: true, late: Nanos::millis(1), ..mirror },
        Story { name: "parity", disks: 3, resiliency: Resiliency::Parity { parity: 1 }, ..simple },
    ]
}

/// What a search that found nothing has tried, or found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Pools opened after a crash.
    pub opened: u64,
    /// Bytes that the disks were told to forget.
    pub discarded: u64,
    /// The crashes after which something was wrong, and what.
    pub failures: Vec<String>,
}

/// Crashes `story` at every disk operation. Ends with the first failure, or goes on if `all`.
pub fn search(story: Story, all: bool) -> Outcome {
    let base = base(story);
    let mut outcome = Outcome::default();
    // What comes before the removal is every other search's business.
    let mut whole = Played::new(story, &base);
    if let Err(why) = whole.play(u64::MAX) {
        outcome.failures.push(format!("{}: {why}", story.name));
        return outcome;
    }
    for at in whole.left_from.get() + 1.. {
        let mut played = Played::new(story, &base);
        let ended = played.play(at);
        outcome.discarded = played.rig.disks.iter().map(|disk| disk.stats().discarded_bytes.0).sum();
        if let Err(why) = &ended {
            outcome.failures.push(format!("{}, before operation {at}: {why}", story.name));
            return outcome;
        }
        for cut in 0..CUTS {
            outcome.opened += 1;
            if let Err(why) = played.judge(cut) {
                outcome.failures.push(format!("{}, crash at operation {at}, cut {cut}: {why}", story.name));
            }
        }
        if ended == Ok(true) || !all && !outcome.failures.is_empty() {
            return outcome;
        }
    }
    outcome
}

/// The disks of a story, with an empty pool.
fn base(story: Story) -> Vec<DiskImage> {
    let shape = DiskShape { capacity: ByteCount::mib(12), physical_sector: 512, rotational: false };
    let mut rig = rig(&vec![DiskImage::blank(shape); story.disks]);
    let disks = rig.disks.iter().enumerate().map(|(no, disk)| NewDisk {
        disk: Rc::new(disk.clone()),
        id: Id([no as u8 + 1; 16]),
        name: format!("d{no}"),
        media: Media::Ssd,
    });
    let options = PoolOptions {
        id: Id([0xEE; 16]),
        name: "pool".into(),
        slab: ByteCount::mib(1),
        log_len: Some(ByteCount::kib(256)),
    };
    let disks = disks.collect();
    rig.run(async move { create(disks, &options).await }).expect("a pool can be made");
    rig.halt();
    rig.disks.iter().map(SimDisk::image).collect()
}

fn rig(images: &[DiskImage]) -> Rig {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disk = |(no, image): (usize, &DiskImage)| {
        let latencies = Latencies::constant(Nanos(100_000));
        SimDisk::from_image(&world, image, Box::new(Random::new(latencies, world.rng(&format!("timing {no}")))))
    };
    let disks = images.iter().enumerate().map(disk).collect();
    Rig::with_disks(world, disks)
}

/// A story on its disks, up to a crash.
struct Played {
    story: Story,
    rig: Rig,
    stages: Rc<[Cell<Stage>; 3]>,
    /// Disk operations before the removal.
    left_from: Rc<Cell<u64>>,
}

type Branch = Pin<Box<dyn Future<Output = Result<()>>>>;

impl Played {
    fn new(story: Story, images: &[DiskImage]) -> Played {
        let mut rig = rig(images);
        rig.options.tuning.discard_rest = story.rest;
        Played { story, rig, stages: Rc::default(), left_from: Rc::default() }
    }

    /// Plays the story up to operation `at`. `true`: to its end.
    fn play(&mut self, at: u64) -> std::result::Result<bool, String> {
        let world = self.rig.world.clone();
        world.crash_at(at);
        let mut rng = world.rng("order");
        let opening = self.rig.opening(&mut rng);
        let (story, stages, clock, left_from) =
            (self.story, self.stages.clone(), world.clone(), self.left_from.clone());
        let played = world.block_on_within(TIMEOUT, async move {
            let pool = opening.await?;
            make(&pool, story, 0, &stages).await?;
            write(&pool, 0, &stages).await?;
            make(&pool, story, 1, &stages).await?;
            write(&pool, 1, &stages).await?;
            if !story.fixed {
                make(&pool, story, 2, &stages).await?;
            }
            left_from.set(clock.operations());
            let (remove, others) = ((pool.clone(), stages.clone()), (pool.clone(), stages.clone()));
            let (saved, wait) = (pool.clone(), clock.clone());
            let branches: Vec<Branch> = vec![
                Box::pin(async move {
                    remove.1[1].set(Stage::Leaving);
                    remove.0.vdisk_remove(NAMES[1].0).await?;
                    remove.1[1].set(Stage::Gone);
                    Ok(())
                }),
                Box::pin(async move {
                    wait.sleep(story.late).await;
                    if story.fixed {
                        make(&others.0, story, 2, &others.1).await?;
                    }
                    write(&others.0, 2, &others.1).await
                }),
                Box::pin(async move { if story.checkpoint { saved.checkpoint().await } else { Ok(()) } }),
            ];
            join_all(branches).await.into_iter().collect::<Result<()>>()?;
            // What is done behind the back of clients is done by then.
            clock.sleep(Nanos::millis(100)).await;
            pool.vdisk(NAMES[2].0).expect("it was made").flush().await
        });
        let ended = match played {
            Ok(ended) => ended.map(|()| true).map_err(|error| format!("it failed: {error}")),
            Err(Stop::Crashed) => Ok(false),
            Err(stop) => Err(format!("it never ended ({stop:?}); still there: {:?}", world.tasks())),
        };
        self.rig.halt();
        ended
    }

    /// Opens what a power cut leaves: `cut` 0 takes nothing, 1 everything that is not flushed, 2 and 3 every other
    /// write, and others some of it.
    fn judge(&self, cut: u64) -> std::result::Result<(), String> {
        use crate::disk::Fate;
        let mut chance = self.rig.world.rng(&format!("cut {cut} of {}", self.rig.world.operations()));
        let images = self.rig.disks.iter().map(|disk| {
            let fates = disk.unflushed().into_iter().enumerate().map(|(no, _)| match cut {
                0 => Fate::Kept,
                1 => Fate::Dropped,
                2 | 3 if no as u64 % 2 == cut % 2 => Fate::Kept,
                2 | 3 => Fate::Dropped,
                _ if chance.chance(0.5) => Fate::Kept,
                _ => Fate::Dropped,
            });
            disk.after_power_cut(&fates.collect::<Vec<Fate>>())
        });
        let images: Vec<DiskImage> = images.collect();
        let mut rig = rig(&images);
        let judged = self.judge_pool(&mut rig);
        rig.halt();
        judged
    }

    fn judge_pool(&self, rig: &mut Rig) -> std::result::Result<(), String> {
        let mut rng = rig.world.rng("order");
        let pool = rig.open(&mut rng).map_err(|error| format!("it does not open: {error}"))?;
        let proof = pool.clone();
        let report = rig.run(async move { proof.check(false).await }).map_err(|error| format!("checking: {error}"))?;
        if !report.is_sound() {
            return Err(format!("it is not sound: {report:?}"));
        }
        for ((name, byte), stage) in NAMES.into_iter().zip(self.stages.iter()) {
            let stage = stage.get();
            let Some(vdisk) = pool.vdisk(name) else {
                if [Stage::Made, Stage::Flushed].contains(&stage) {
                    return Err(format!("{name} is not there, and was {stage:?}"));
                }
                continue;
            };
            if stage == Stage::Gone {
                return Err(format!("{name} is there, and was removed"));
            }
            let read = async move {
                let mut bytes = vec![0xAA; SIZE as usize];
                vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
            };
            let bytes = rig.run(read).map_err(|error| format!("{name} cannot be read: {error}"))?;
            let old = stage < Stage::Flushed;
            if let Some(at) = bytes.iter().position(|read| *read != byte && !(old && *read == 0)) {
                return Err(format!("{name} holds {:#x} at byte {at}, and was {stage:?}", bytes[at]));
            }
        }
        Ok(())
    }
}

async fn make(pool: &Rc<Pool>, story: Story, no: usize, stages: &[Cell<Stage>; 3]) -> Result<()> {
    let spec = VdiskSpec {
        name: NAMES[no].0.into(),
        size: ByteCount(SIZE),
        resiliency: story.resiliency,
        columns: Some(story.resiliency.columns_min()),
        interleave: Some(ByteCount(STRIP)),
        fixed: story.fixed,
        sector: 4096,
        disks: DiskSet::EMPTY,
    };
    pool.vdisk_create(&spec).await?;
    stages[no].set(Stage::Made);
    Ok(())
}

async fn write(pool: &Rc<Pool>, no: usize, stages: &[Cell<Stage>; 3]) -> Result<()> {
    let vdisk = pool.vdisk(NAMES[no].0).expect("it was made");
    vdisk.write(VirtualOffset(0), &vec![NAMES[no].1; SIZE as usize], false).await?;
    vdisk.flush().await?;
    stages[no].set(Stage::Flushed);
    Ok(())
}
