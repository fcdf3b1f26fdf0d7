//! Storms: changes, reads and checkpoints beside each other, while virtual disks come and go in the same metadata
//! segments, one disk rots, another one comes and goes, and the power is cut anywhere.

use super::*;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::record::JobKind;
use weft_engine::geometry::Resiliency;
use weft_engine::pool::VdiskSpec;
use weft_engine::pool::job::JobState;
use weft_engine::sync::join_all;
use weft_engine::units::{DiskNo, VirtualOffset};

/// The disk whose medium rots, and the one that comes and goes. The last one is well.
const ROTS: usize = 0;
const FLICKERS: usize = 1;
const LIVES: u64 = 5;

/// A part of a storm that runs beside others.
type Piece<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// What a storm did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Checkpoints that came to their end.
    pub checkpoints: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Copies of pages that were damaged.
    pub damaged: u64,
    /// How often a disk went.
    pub gone: u64,
    /// The most pages that a root had.
    pub pages: usize,
}

/// The storm of a seed.
pub fn storm(seed: u64) -> Result<Tally, String> {
    let mut rig = new_rig(seed, Scheduling::Random);
    let ended = lives(&mut rig, seed);
    rig.halt();
    ended
}

fn lives(rig: &mut Rig, seed: u64) -> Result<Tally, String> {
    let mut rng = Rng::new(seed).fork("tree");
    let expected = Shared::default();
    let tally = Rc::new(RefCell::new(Tally::default()));
    for life in 0..LIVES {
        if rig.disks[FLICKERS].is_gone() && rng.chance(0.5) {
            rig.disks[FLICKERS].come_back(&mut rng);
        }
        let pool = rig.open(&mut rng).map_err(|error| format!("life {life}: it does not open: {error}"))?;
        let (shared, first) = (expected.clone(), pool.clone());
        rig.run(async move {
            let found = entries(&first).await?;
            shared.borrow_mut().reopened(&found)?;
            judge(&first).await
        })
        .map_err(|why| format!("life {life}, opened: {why}"))?;
        if life + 1 < LIVES {
            rig.world.crash_at(rig.world.operations() + 1 + rng.below(6000));
        }
        let (disks, fork, shared, count) = (rig.disks.clone(), rng.fork("life"), expected.clone(), tally.clone());
        rng.next_u64();
        let lived = rig.world.block_on_within(crate::rig::TIMEOUT, live(pool, disks, fork, shared, count));
        match lived {
            Ok(ended) => ended.map_err(|why| format!("life {life}: {why}"))?,
            Err(crate::world::Stop::Crashed) => {}
            Err(stop) => return Err(format!("life {life} never ended ({stop:?}): {:?}", rig.world.tasks())),
        }
        if life + 1 < LIVES {
            tally.borrow_mut().cuts += 1;
            rig.halt();
            for disk in rig.disks.iter().filter(|disk| !disk.is_gone()) {
                disk.power_cut(&mut rng);
            }
        }
    }
    end(rig, &mut rng, &expected)?;
    let tally = *tally.borrow();
    Ok(tally)
}

/// Everything is put right; then one disk after the other must have all of it alone.
fn end(rig: &mut Rig, rng: &mut Rng, expected: &Shared) -> Result<(), String> {
    let (pool, disk, mut luck) = (rig.pool(), rig.disks[FLICKERS].clone(), rng.fork("end"));
    let shared = expected.clone();
    rig.run(async move {
        if disk.is_gone() {
            disk.come_back(&mut luck);
            attach(&pool, FLICKERS, &disk).await?;
        }
        // Jobs that began before the disk was back do not bring it up to date; those that follow them do.
        pool.store().world.sleep(Nanos::secs(60)).await;
        repair(&pool).await?;
        checkpoint(&pool, &shared).await
    })?;
    // What rots is not the business of a repair.
    copies_are_right(rig, FLICKERS..DISKS).map_err(|why| format!("after a repair: {why}"))?;
    let pool = rig.pool();
    let pages = rig.run(async move {
        let report = pool.check(true).await.map_err(|error| format!("checking: {error}"))?;
        if !report.problems.is_empty() {
            return Err(format!("at the end: {:?}", report.problems));
        }
        pool.checkpoint().await.map_err(|error| format!("{error}"))?;
        Ok(copies(&pool))
    })?;
    rig.close().map_err(|error| format!("closing: {error}"))?;
    let images: Vec<DiskImage> = rig.disks.iter().map(SimDisk::image).collect();
    for alone in 0..DISKS {
        let mut images = images.clone();
        for (_, copies) in &pages {
            if !copies.iter().any(|(disk, _)| *disk == alone) {
                return Err(format!("disk {alone} has no copy of some page: {copies:?}"));
            }
            copies.iter().filter(|(disk, _)| *disk != alone).for_each(|(disk, at)| images[*disk].spoil(*at));
        }
        let mut rig = rig_of(&images, 1, Scheduling::Random);
        let opened = rig.open(&mut rng.fork("alone"));
        let judged = match opened {
            Err(error) => Err(format!("{error}")),
            Ok(pool) => rig.run(async move { entries(&pool).await }),
        };
        rig.halt();
        if judged? != expected.borrow().head {
            return Err(format!("disk {alone} alone has other entries"));
        }
    }
    Ok(())
}

/// Lookups that take longer than several checkpoints: what they read was somebody's place all the while.
pub fn slow_readers(seed: u64) -> Result<(), String> {
    let latencies = Latencies {
        read: 1_000_000..400_000_000,
        write: 10_000..100_000,
        flush: 10_000..100_000,
        grain: 10_000,
        straggle: 0.0,
    };
    let mut rig = new_rig(seed, Scheduling::Random);
    rig.halt();
    let images: Vec<DiskImage> = rig.disks.iter().map(SimDisk::image).collect();
    let mut rig = rig_with(&images, seed, Scheduling::Random, &latencies);
    let mut rng = Rng::new(seed).fork("slow readers");
    let pool = rig.open(&mut rng).map_err(|error| format!("it does not open: {error}"))?;
    let ended = rig.run(async move {
        let expected = Shared::default();
        (0..400).for_each(|_| expected.borrow_mut().change(pool.store(), Change::draw(&mut rng)));
        checkpoint(&pool, &expected).await?;
        for round in 0..8 {
            pool.store().tree().forget_pages();
            let mut all: Vec<Piece<'_>> = Vec::new();
            for no in 0..6 {
                let (pool, expected, mut rng) = (&pool, &expected, rng.fork(&format!("{round} {no}")));
                all.push(Box::pin(async move {
                    pool.store().world.sleep(Nanos(rng.below(500_000_000))).await;
                    let key = key(&mut rng);
                    let should = expected.borrow().head.get(&key).cloned();
                    let found = pool.store().tree().get(At::Head, key).await.map_err(|error| format!("{error}"))?;
                    if found.as_deref() == should.as_deref() { Ok(()) } else { Err(format!("{key:?} is wrong")) }
                }));
            }
            let (pool, expected, mut rng) = (&pool, &expected, rng.fork(&format!("{round}")));
            all.push(Box::pin(async move {
                for _ in 0..40 {
                    for _ in 0..8 {
                        let change = Change::draw(&mut rng);
                        expected.borrow_mut().change(pool.store(), change);
                    }
                    checkpoint(pool, expected).await?;
                    pool.store().world.sleep(Nanos(5_000_000)).await;
                }
                Ok(())
            }));
            join_all(all).await.into_iter().collect::<Result<(), String>>()?;
        }
        judge(&pool).await
    });
    rig.halt();
    ended
}

async fn live(
    pool: Rc<Pool>,
    disks: Vec<SimDisk>,
    mut rng: Rng,
    expected: Shared,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), String> {
    for round in 0..6 + rng.below(6) {
        for _ in 0..rng.below(60) {
            let change = Change::draw(&mut rng);
            expected.borrow_mut().change(pool.store(), change);
        }
        let trouble = trouble(&pool, &disks, rng.fork(&format!("trouble {round}")), &tally);
        let readers = (0..2).map(|no| read(&pool, &expected, rng.fork(&format!("reader {round} {no}"))));
        let writer = volumes(&pool, rng.fork(&format!("volumes {round}")));
        let saver = async {
            checkpoint(&pool, &expected).await?;
            tally.borrow_mut().checkpoints += 1;
            Ok(())
        };
        let mut all: Vec<Piece<'_>> = vec![Box::pin(saver), Box::pin(trouble), Box::pin(writer)];
        readers.for_each(|reader| all.push(Box::pin(reader)));
        join_all(all).await.into_iter().collect::<Result<(), String>>()?;
        let pages = copies(&pool).len().max(tally.borrow().pages);
        tally.borrow_mut().pages = pages;
        if rng.chance(0.3) {
            let found = entries(&pool).await?;
            if found != expected.borrow().head {
                return Err(format!("{} entries, not those there should be", found.len()));
            }
        }
        if rng.chance(0.2) {
            judge(&pool).await?;
        }
    }
    Ok(())
}

/// A checkpoint, of both.
async fn checkpoint(pool: &Rc<Pool>, expected: &Shared) -> Result<(), String> {
    let changes = expected.borrow().since.len();
    pool.checkpoint().await.map_err(|error| format!("checkpoint: {error}"))?;
    expected.borrow_mut().is_durable(changes);
    Ok(())
}

/// Lookups and scans, mostly from the disks, while all else goes on.
async fn read(pool: &Rc<Pool>, expected: &Shared, mut rng: Rng) -> Result<(), String> {
    let tree = pool.store().tree();
    for _ in 0..rng.below(25) {
        if rng.chance(0.3) {
            tree.forget_pages();
        }
        let key = key(&mut rng);
        if rng.chance(0.2) {
            let range = KeyRange::new(Key::new(KIND, key.major, 0, 0), Key::new(KIND, key.major, u64::MAX, 0));
            tree.scan(At::Head, range, usize::MAX).await.map_err(|error| format!("a scan: {error}"))?;
            continue;
        }
        let should = expected.borrow().head.get(&key).cloned();
        let found = tree.get(At::Head, key).await.map_err(|error| format!("{key:?}: {error}"))?;
        if found.as_deref() != should.as_deref() {
            return Err(format!("{key:?} is not what it was when it was asked for"));
        }
        pool.store().world.sleep(Nanos(rng.below(2_000_000))).await;
    }
    Ok(())
}

/// Something befalls a disk: pages rot, or one goes, or comes back.
async fn trouble(pool: &Rc<Pool>, disks: &[SimDisk], mut rng: Rng, tally: &RefCell<Tally>) -> Result<(), String> {
    pool.store().world.sleep(Nanos(rng.below(30_000_000))).await;
    let flickers = &disks[FLICKERS];
    match rng.below(4) {
        0 => {
            for (_, copies) in copies(pool) {
                for (disk, at) in copies.into_iter().filter(|(disk, _)| *disk == ROTS) {
                    if rng.chance(0.5) {
                        continue;
                    }
                    if rng.chance(0.5) {
                        disks[disk].rot(at)
                    } else {
                        disks[disk].spoil(at)
                    }
                    tally.borrow_mut().damaged += 1;
                }
            }
        }
        1 if !flickers.is_gone() => {
            tally.borrow_mut().gone += 1;
            flickers.vanish();
            if rng.chance(0.5) {
                pool.store().disk_lost(DiskNo(FLICKERS as u16), "the storm says so");
                pool.store().world.sleep(Nanos(rng.below(20_000_000))).await;
                flickers.return_intact(&mut rng);
                attach(pool, FLICKERS, flickers).await?;
            }
        }
        2 if flickers.is_gone() => {
            if rng.chance(0.5) {
                flickers.return_intact(&mut rng)
            } else {
                flickers.come_back(&mut rng)
            }
            attach(pool, FLICKERS, flickers).await?;
            if rng.chance(0.5) {
                repair(pool).await?;
            }
        }
        _ => {}
    }
    Ok(())
}

async fn repair(pool: &Rc<Pool>) -> Result<(), String> {
    let mut ended = None;
    // One that was under way when a disk blinked has failed for that.
    for _ in 0..3 {
        let job = pool.job_start(JobKind::Repair, 0).await.map_err(|error| format!("a repair: {error}"))?;
        let job = pool.job_wait(job).await.map_err(|error| format!("a repair: {error}"))?;
        if job.state != JobState::Failed {
            return Ok(());
        }
        ended = Some(job);
    }
    Err(format!("a repair: {ended:?}"))
}

/// A virtual disk comes, is written and goes: its pages lie among those of the tree.
async fn volumes(pool: &Rc<Pool>, mut rng: Rng) -> Result<(), String> {
    let told = |error: weft_engine::error::Error| format!("a virtual disk: {error}");
    if rng.chance(0.5) {
        return Ok(());
    }
    if pool.vdisk("vdisk").is_some() && rng.chance(0.5) {
        return pool.vdisk_remove("vdisk").await.map_err(told);
    }
    if pool.vdisk("vdisk").is_none() {
        let spec = VdiskSpec {
            name: "vdisk".into(),
            size: ByteCount::mib(2),
            resiliency: Resiliency::Mirror { copies: 2 },
            columns: Some(1),
            interleave: Some(ByteCount::kib(64)),
            fixed: false,
            sector: 4096,
            disks: DiskSet::EMPTY,
        };
        pool.vdisk_create(&spec).await.map_err(told)?;
    }
    let vdisk = pool.vdisk("vdisk").expect("it was made");
    let at = VirtualOffset(rng.below(31) * (64 << 10));
    vdisk.write(at, &vec![1; 64 << 10], rng.chance(0.5)).await.map_err(told)
}
