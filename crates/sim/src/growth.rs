//! A pool that grew survives what its layouts promise, its first disks as well as those that came later.
//!
//! A pool is made of few disks and written to, so that its metadata lies on those. Disks are added, and a virtual disk
//! is made that survives failures; as many of the first disks as it survives then go at once. What was flushed must be
//! right, at once and after a restart.

use crate::rig::Rig;
use crate::world::{Scheduling, SimWorld};
use std::rc::Rc;
use weft_engine::error::Result;
use weft_engine::format::Id;
use weft_engine::format::record::{Media, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::job::has_ended;
use weft_engine::pool::{NewDisk, Pool};
use weft_engine::units::{ByteCount, DiskNo, VirtualOffset};

/// A pool that grows.
#[derive(Clone, Copy, Debug)]
struct Growth {
    /// The disks it is made of.
    first: usize,
    /// The disks it has in the end.
    last: usize,
    /// What is made then.
    resiliency: Resiliency,
    /// Its columns.
    columns: u8,
}

const GROWTHS: [Growth; 5] = [
    Growth { first: 1, last: 2, resiliency: Resiliency::Mirror { copies: 2 }, columns: 1 },
    Growth { first: 1, last: 4, resiliency: Resiliency::Parity { parity: 1 }, columns: 4 },
    Growth { first: 2, last: 3, resiliency: Resiliency::Parity { parity: 1 }, columns: 3 },
    Growth { first: 2, last: 6, resiliency: Resiliency::Parity { parity: 2 }, columns: 6 },
    Growth { first: 2, last: 5, resiliency: Resiliency::Mirror { copies: 3 }, columns: 1 },
];

const WRITTEN: u64 = 1 << 20;

/// What does not hold, if anything.
pub fn first_disks_of_pools_that_grew_go() -> Option<String> {
    let told = |growth: &Growth| go(*growth).err().map(|why| format!("{growth:?}: {why}"));
    GROWTHS.iter().find_map(told)
}

fn go(growth: Growth) -> std::result::Result<(), String> {
    let world = SimWorld::new(growth.last as u64, Scheduling::Random);
    let mut rng = world.rng("growth");
    let mut rig = Rig::new(world, growth.last, ByteCount::mib(24));
    rig.members = growth.first;
    let said = |what: &str, done: Result<()>| done.map_err(|error| format!("{what}: {error}"));
    said("creation", rig.create(ByteCount::mib(1)))?;
    said("opening", rig.open(&mut rng).map(drop))?;
    let simple = Layout::new(Resiliency::Simple, 1, ByteCount::kib(16)).expect("one column is a layout");
    said("the first virtual disk", rig.make_vdisk_named("first", simple, ByteCount::mib(4), 4096, false))?;
    said("its writing", write(&rig, "first", 1))?;
    for no in growth.first..growth.last {
        let (pool, disk) = (rig.pool(), Rc::new(rig.disks[no].clone()));
        let new = NewDisk { disk, id: Id([no as u8 + 1; 16]), name: format!("d{no}"), media: Media::Ssd };
        said("a new disk", rig.run(async move { pool.disk_add(new, Usage::AutoSelect).await.map(drop) }))?;
    }
    let layout = Layout::new(growth.resiliency, growth.columns, ByteCount::kib(16)).expect("it is a layout");
    said("the second virtual disk", rig.make_vdisk_named("second", layout, ByteCount::mib(4), 4096, false))?;
    said("its writing", write(&rig, "second", 2))?;
    settle(&rig);
    let left = rig.pool().info().vdisks.iter().find(|vdisk| vdisk.name == "second").map(|vdisk| vdisk.failures_left);
    if left != Some(layout.failures() as u32) {
        return Err(format!("it is said to survive {left:?} failures"));
    }
    let gone = growth.first.min(layout.failures());
    rig.disks[..gone].iter().for_each(|disk| disk.vanish());
    let pool = rig.pool();
    (0..gone as u16).map(DiskNo).for_each(|no| pool.store().disk_lost(no, "the story says so"));
    said("writing without them", write(&rig, "second", 3))?;
    read(&rig, 3)?;
    rig.power_cut(&mut rng);
    said("opening without them", rig.open(&mut rng).map(drop))?;
    read(&rig, 3)?;
    let pool = rig.pool();
    said("closing", rig.run(async move { pool.close().await }))
}

fn write(rig: &Rig, name: &str, value: u8) -> Result<()> {
    let vdisk = rig.pool().vdisk(name).expect("it was made");
    rig.run(async move { vdisk.write(VirtualOffset(0), &vec![value; WRITTEN as usize], true).await })
}

fn read(rig: &Rig, value: u8) -> std::result::Result<(), String> {
    let Some(vdisk) = rig.pool().vdisk("second") else { return Err("the second virtual disk is not there".into()) };
    let bytes = rig.run(async move {
        let mut bytes = vec![0; WRITTEN as usize];
        vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
    });
    match bytes {
        Ok(bytes) if bytes.iter().all(|byte| *byte == value) => Ok(()),
        Ok(_) => Err(format!("not all of it is {value}")),
        Err(error) => Err(format!("what was flushed cannot be read: {error}")),
    }
}

/// Lets jobs that begin by themselves begin and end.
fn settle(rig: &Rig) {
    let pool: Rc<Pool> = rig.pool();
    rig.run(async move {
        pool.store().pause().await;
        while let Some(job) = pool.jobs().into_iter().find(|job| !has_ended(job.state)) {
            let _ = pool.job_wait(job.id).await;
        }
    });
}
