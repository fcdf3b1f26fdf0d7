//! Pools that were made of fewer disks than they have when the storm begins: what lies where it did when they were
//! small must not be all there is.

use crate::rig::Rig;
use crate::rng::Rng;
use std::rc::Rc;
use weft_engine::error::Result;
use weft_engine::format::Id;
use weft_engine::format::record::{Media, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::NewDisk;
use weft_engine::pool::job::has_ended;
use weft_engine::units::{ByteCount, VirtualOffset};

/// How often a pool has grown.
const GROWN: f64 = 0.2;
/// What is written before it grows, so that there is metadata.
const EARLY: u64 = 64 << 10;

/// Makes the pool of a storm on its first [`Rig::members`] disks, at once or in two steps; leaves it closed.
pub(super) fn create(rig: &mut Rig, rng: &Rng) -> std::result::Result<(), String> {
    let mut rng = rng.fork("growth");
    let members = rig.members;
    if members < 2 || !rng.chance(GROWN) {
        return rig.create(ByteCount::mib(1)).map_err(|error| format!("creating: {error}"));
    }
    rig.members = rng.range(1..members as u64) as usize;
    let grown = grow(rig, members, &mut rng);
    rig.members = members;
    grown.map_err(|error| format!("creating, and growing: {error}"))
}

fn grow(rig: &mut Rig, members: usize, rng: &mut Rng) -> Result<()> {
    rig.create(ByteCount::mib(1))?;
    let pool = rig.open(rng)?;
    let layout = Layout::new(Resiliency::Simple, 1, ByteCount(EARLY))?;
    rig.make_vdisk_named("early", layout, ByteCount(EARLY), 4096, false)?;
    let new = (rig.members..members).map(|no| NewDisk {
        disk: Rc::new(rig.disks[no].clone()),
        id: Id([no as u8 + 1; 16]),
        name: format!("d{no}"),
        media: Media::Ssd,
    });
    let new: Vec<NewDisk> = new.collect();
    rig.run(async move {
        let early = pool.vdisk("early").expect("it was just made");
        early.write(VirtualOffset(0), &[0xEA; EARLY as usize], true).await?;
        drop(early);
        for disk in new {
            pool.disk_add(disk, Usage::AutoSelect).await?;
        }
        pool.vdisk_remove("early").await?;
        pool.store().pause().await;
        while let Some(job) = pool.jobs().into_iter().find(|job| !has_ended(job.state)) {
            pool.job_wait(job.id).await?;
        }
        Result::Ok(())
    })?;
    rig.close()
}
