//! A disk that is being filled by an evacuation vanishes for a moment and comes back without what it had not made
//! durable.
//!
//! Whatever the moment, every flushed byte must be right, and no redundancy may be missing that is not on record: what
//! a repair does not know of, it does not make good.

use crate::rig::Rig;
use crate::sample::sample;
use crate::world::{Scheduling, SimWorld};
use std::rc::Rc;
use weft_engine::error::Result;
use weft_engine::format::Id;
use weft_engine::format::record::{Media, SettingsRecord, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::Disk;
use weft_engine::pool::job::{JobKind, has_ended};
use weft_engine::pool::{DiskChange, NewDisk, Pool};
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::world::World;

/// Bytes of the virtual disk.
const SIZE: u64 = 3 << 20;

/// Plays it for one seed, which chooses when the disk goes and for how long. Says what was wrong.
pub fn run(seed: u64, resiliency: Resiliency) -> std::result::Result<(), String> {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("blink");
    let layout = Layout::new(resiliency, resiliency.columns_min(), ByteCount::kib(32)).expect("a valid layout");
    let members = layout.slots().max(3);
    let mut rig = Rig::new(world.clone(), members + 1, ByteCount::mib(16));
    rig.members = members;
    let told = |error| format!("{error}");
    rig.create(ByteCount::mib(1)).map_err(told)?;
    let pool = rig.open(&mut rng).map_err(told)?;
    rig.make_vdisk(layout, ByteCount(SIZE), 4096, false).map_err(told)?;
    let target = rig.disks[members].clone();
    let new = NewDisk { disk: Rc::new(target.clone()), id: Id([0xAD; 16]), name: "new".into(), media: Media::Ssd };
    let (filled, mut fate) = (pool.clone(), rng.fork("fate"));
    let moved: Result<()> = rig.run(async move {
        // Slots are not rebuilt elsewhere for the sake of a moment.
        let settings = SettingsRecord { repair_after: u32::MAX, ..SettingsRecord::default() };
        filled.set(settings).await?;
        let vdisk = filled.vdisk("vdisk").expect("it was made");
        vdisk.write(VirtualOffset(0), &content(), false).await?;
        vdisk.flush().await?;
        let to = filled.disk_add(new, Usage::ManualSelect).await?;
        filled.disk_set(to, DiskChange { usage: Some(Usage::AutoSelect), ..Default::default() }).await?;
        let kind = JobKind::Evacuate { disk: DiskNo(0), to: Some(to), forget: false };
        let job = filled.job_start(kind, 0).await?;
        world.sleep(Nanos(fate.below(40_000_000))).await;
        target.vanish();
        // A disk that was away stays so for whoever had it open; a simulated one has to be asked.
        let _ = filled.store().disk_flush(to).await;
        world.sleep(Nanos(fate.below(3_000_000))).await;
        target.come_back(&mut fate);
        filled.attach(Rc::new(target) as Rc<dyn Disk>).await?;
        filled.job_wait(job).await?;
        settle(&filled).await
    });
    let judged = moved.map_err(|error| format!("{error}")).and_then(|()| judge(&mut rig, pool, members));
    rig.halt();
    judged
}

/// Disks blink in turn while metadata leaves one: where there is no copy of it left that is up to date, no disk ever
/// catches up.
pub fn disks_that_blink_in_turn_while_metadata_moves_catch_up() {
    for seed in sample(0..160) {
        in_turn(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

fn in_turn(seed: u64) -> std::result::Result<(), String> {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("blink in turn");
    let members = 4;
    let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(32)).expect("a valid layout");
    let mut rig = Rig::new(world.clone(), members, ByteCount::mib(16));
    let told = |error| format!("{error}");
    rig.create(ByteCount::mib(1)).map_err(told)?;
    let pool = rig.open(&mut rng).map_err(told)?;
    rig.make_vdisk(layout, ByteCount(SIZE), 4096, false).map_err(told)?;
    let (filled, disks) = (pool.clone(), rig.disks.clone());
    let moved: Result<()> = rig.run(async move {
        let vdisk = filled.vdisk("vdisk").expect("it was made");
        vdisk.write(VirtualOffset(0), &content(), false).await?;
        vdisk.flush().await?;
        for _ in 0..8 {
            let leaves = rng.below(members as u64) as usize;
            let used = |usage| DiskChange { usage: Some(usage), ..Default::default() };
            filled.disk_set(DiskNo(leaves as u16), used(Usage::Retired)).await?;
            vdisk.write(VirtualOffset(0), &content(), false).await?;
            vdisk.flush().await?;
            let kind = JobKind::Evacuate { disk: DiskNo(leaves as u16), to: None, forget: false };
            let job = filled.job_start(kind, 0).await?;
            // A move that waits for the checkpoint before it does so for long.
            let checkpoint = (filled.clone(), rng.below(4_000_000));
            world.spawn(
                "checkpoint",
                Box::pin(async move {
                    checkpoint.0.store().world.sleep(Nanos(checkpoint.1)).await;
                    let _ = checkpoint.0.checkpoint().await;
                }),
            );
            disks[rng.below(members as u64) as usize].stall(Nanos(rng.below(20_000_000)));
            for _ in 0..3 + rng.below(6) {
                let blinks = rng.below(members as u64) as usize;
                let disk = &disks[blinks];
                world.sleep(Nanos(rng.below(2_000_000))).await;
                disk.vanish();
                let _ = filled.store().disk_flush(DiskNo(blinks as u16)).await;
                world.sleep(Nanos(rng.below(2_000_000))).await;
                disk.come_back(&mut rng);
                let _ = filled.attach(Rc::new(disk.clone()) as Rc<dyn Disk>).await;
            }
            let _ = filled.job_wait(job).await;
            filled.disk_set(DiskNo(leaves as u16), used(Usage::AutoSelect)).await?;
        }
        world.sleep(Nanos::secs(20)).await;
        settle(&filled).await
    });
    let judged = moved.map_err(|error| format!("{error}")).and_then(|()| {
        let stale = (0..members as u16).map(DiskNo).find(|no| !pool.store().is_current(*no));
        stale.map_or(Ok(()), |no| Err(format!("{no} never caught up")))?;
        judge(&mut rig, pool, 0)
    });
    rig.halt();
    judged
}

/// Lets jobs that begin by themselves begin and end.
async fn settle(pool: &Rc<Pool>) -> Result<()> {
    for _ in 0..10 {
        pool.store().pause().await;
        while let Some(job) = pool.jobs().into_iter().find(|job| !has_ended(job.state)) {
            pool.job_wait(job.id).await?;
        }
    }
    Ok(())
}

fn judge(rig: &mut Rig, pool: Rc<Pool>, target: usize) -> std::result::Result<(), String> {
    let harmed = rig.disks[target].harmed();
    if !harmed.is_empty() {
        return Err(format!("the disk itself is harmed: {harmed:?}"));
    }
    let read = {
        let vdisk = pool.vdisk("vdisk").ok_or("the virtual disk is gone")?;
        async move {
            let mut bytes = vec![0xAA; SIZE as usize];
            vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
        }
    };
    let bytes = rig.run(read).map_err(|error| format!("it cannot be read: {error}"))?;
    if let Some(at) = bytes.iter().zip(content()).position(|(read, wrote)| *read != wrote) {
        return Err(format!("byte {at} is wrong"));
    }
    let unsound = pool.unsound_bytes();
    let report = rig.run(async move { pool.check(false).await }).map_err(|error| format!("checking: {error}"))?;
    if !report.problems.is_empty() || report.lost_stripes > 0 || report.bad_blocks > 0 && unsound == ByteCount::ZERO {
        return Err(format!("{unsound} are on record as unsound, and the check finds {report:?}"));
    }
    Ok(())
}

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 4096 * 31 + at % 251) as u8).collect()
}
