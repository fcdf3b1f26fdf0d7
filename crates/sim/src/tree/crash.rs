//! A crash, or a disk that goes, at every disk operation of an opening, changes and checkpoints.

use super::*;
use crate::disk::Fate;
use crate::world::Stop;
use weft_engine::units::DiskNo;
use weft_engine::world::World;

/// Power cuts at each crash point.
const CUTS: u64 = 4;

/// A new pool.
fn base() -> Vec<DiskImage> {
    let mut rig = new_rig(1, Scheduling::Fifo);
    rig.halt();
    rig.disks.iter().map(SimDisk::image).collect()
}

/// What is crashed: three checkpoints of changes, the first of which makes the first metadata segment.
async fn script(pool: Rc<Pool>, expected: Shared, mut rng: Rng) -> Result<(), String> {
    for _ in 0..3 {
        (0..60).for_each(|_| expected.borrow_mut().change(pool.store(), Change::draw(&mut rng)));
        let changes = expected.borrow().since.len();
        pool.checkpoint().await.map_err(|error| format!("checkpoint: {error}"))?;
        expected.borrow_mut().is_durable(changes);
    }
    Ok(())
}

fn played(images: &[DiskImage]) -> (Rig, Shared) {
    (rig_of(images, 1, Scheduling::Fifo), Shared::default())
}

/// Crashes the script at every `step`th disk operation. Returns how many pools were opened.
pub fn everywhere(step: usize) -> Result<u64, String> {
    let images = base();
    let mut opened = 0;
    for at in (1..).step_by(step) {
        let (mut rig, expected) = played(&images);
        rig.world.crash_at(at);
        let opening = rig.opening(&mut rig.world.rng("order"));
        let (shared, rng) = (expected.clone(), rig.world.rng("script"));
        let ended = rig.world.block_on_within(crate::rig::TIMEOUT, async move {
            let pool = opening.await.map_err(|error| format!("it does not open: {error}"))?;
            script(pool, shared, rng).await
        });
        rig.halt();
        let is_whole = match ended {
            Ok(ended) => ended.map(|()| true)?,
            Err(Stop::Crashed) => false,
            Err(stop) => return Err(format!("operation {at}: it never ended ({stop:?})")),
        };
        for cut in 0..CUTS {
            opened += 1;
            judge_cut(&rig, &expected.borrow(), cut).map_err(|why| format!("operation {at}, cut {cut}: {why}"))?;
        }
        if is_whole {
            break;
        }
    }
    Ok(opened)
}

/// Opens what a power cut leaves: 0 takes nothing, 1 everything that is not flushed, others some of it.
fn judge_cut(rig: &Rig, expected: &Expected, cut: u64) -> Result<(), String> {
    let mut chance = rig.world.rng(&format!("cut {cut}"));
    let fates = |disk: &SimDisk, chance: &mut Rng| {
        let fate = |_| match cut {
            0 => Fate::Kept,
            1 => Fate::Dropped,
            _ if chance.chance(0.5) => Fate::Kept,
            _ => Fate::Dropped,
        };
        disk.unflushed().into_iter().map(fate).collect::<Vec<Fate>>()
    };
    let images: Vec<DiskImage> = rig.disks.iter().map(|disk| disk.after_power_cut(&fates(disk, &mut chance))).collect();
    let mut again = rig_of(&images, 2, Scheduling::Fifo);
    let mut may = Expected { head: Model::new(), durable: expected.durable.clone(), since: expected.since.clone() };
    let opened = again.open(&mut Rng::new(1)).map_err(|error| format!("it does not open: {error}"));
    let judged = opened.and_then(|pool| {
        again.run(async move {
            may.reopened(&entries(&pool).await?)?;
            judge(&pool).await?;
            // What the crash left free is given out, and nothing else.
            let mut rng = Rng::new(3);
            (0..60).for_each(|_| may.change(pool.store(), Change::draw(&mut rng)));
            pool.checkpoint().await.map_err(|error| format!("the next checkpoint: {error}"))?;
            pool.store().tree().forget_pages();
            if entries(&pool).await? != may.head {
                return Err("the next checkpoint has other entries".into());
            }
            judge(&pool).await
        })
    });
    again.halt();
    judged
}

/// Takes a disk away at every `step`th disk operation, for a moment; then every page must be on every disk.
pub fn blinks_everywhere(step: usize) -> Result<u64, String> {
    let images = base();
    let mut points = 0;
    for at in (1..).step_by(step) {
        let (mut rig, expected) = played(&images);
        let mut rng = rig.world.rng("order");
        let pool = rig.open(&mut rng).map_err(|error| format!("it does not open: {error}"))?;
        let before = rig.world.operations();
        let done: Rc<RefCell<Option<Result<(), String>>>> = Rc::default();
        let (shared, place) = (expected.clone(), done.clone());
        let script_rng = rig.world.rng("script");
        let task = async move {
            let ended = script(pool, shared, script_rng).await;
            *place.borrow_mut() = Some(ended);
        };
        rig.world.spawn("script", Box::pin(task));
        let world = rig.world.clone();
        rig.world.run_until(crate::rig::TIMEOUT, || world.operations() >= before + at || done.borrow().is_some());
        let is_over = done.borrow().is_some();
        let disk = rig.disks[1].clone();
        disk.vanish();
        let (pool, mut luck) = (rig.pool(), rig.world.rng("luck"));
        rig.run(async move {
            pool.store().disk_lost(DiskNo(1), "it is gone for a moment");
            pool.store().world.sleep(Nanos(300_000)).await;
            disk.return_intact(&mut luck);
            attach(&pool, 1, &disk).await
        })
        .map_err(|why| format!("operation {at}: {why}"))?;
        rig.world.run_until(crate::rig::TIMEOUT, || done.borrow().is_some());
        let ended = done.borrow_mut().take().unwrap_or_else(|| Err("it never ended".into()));
        let judged = ended.and_then(|()| every_copy_is_right(&rig, &expected.borrow().head));
        let pool = rig.pool();
        let judged = judged.and_then(|()| rig.run(async move { judge(&pool).await }));
        rig.halt();
        judged.map_err(|why| format!("a disk blinks at operation {at}: {why}"))?;
        points += 1;
        if is_over {
            break;
        }
    }
    Ok(points)
}

/// Each disk has all pages of the tree as they should be.
fn every_copy_is_right(rig: &Rig, head: &Model) -> Result<(), String> {
    let pool = rig.pool();
    let found = rig.run(async move {
        // A disk that is back is brought up to date by a job.
        pool.store().world.sleep(Nanos::secs(30)).await;
        entries(&pool).await
    })?;
    if found != *head {
        return Err("it has other entries".into());
    }
    copies_are_right(rig, 0..DISKS)
}
