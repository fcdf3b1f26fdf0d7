//! The setting of stories that restrict virtual disks to some disks of their pool.

use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::geometry::Resiliency;
use weft_engine::pool::{OpenOptions, VdiskSpec};
use weft_engine::store::Tuning;
use weft_engine::units::ByteCount;
use weft_engine::vdisk::Vdisk;
use weft_sim::rig::Rig;
use weft_sim::rng::Rng;
use weft_sim::world::{Scheduling, SimWorld};

/// A new pool, just opened, of disks of this capacity.
pub fn opened(seed: u64, disks: usize, capacity: ByteCount, tuning: Tuning) -> (Rig, Rng) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("story");
    let mut rig = Rig::new(world, disks, capacity);
    rig.options = OpenOptions { tuning, ..OpenOptions::default() };
    rig.create(ByteCount::mib(1)).unwrap();
    rig.open(&mut rng).unwrap();
    (rig, rng)
}

/// A virtual disk of this size on these disks (bits), with an interleave of 64 KiB.
pub fn make(rig: &Rig, name: &str, size: ByteCount, layout: (Resiliency, u8), disks: DiskSet) -> Rc<Vdisk> {
    let (pool, (resiliency, columns)) = (rig.pool(), layout);
    let spec = VdiskSpec {
        name: name.into(),
        size,
        resiliency,
        columns: Some(columns),
        interleave: Some(ByteCount::kib(64)),
        fixed: false,
        sector: 4096,
        disks,
    };
    rig.run(async move { pool.vdisk_create(&spec).await.unwrap() })
}
