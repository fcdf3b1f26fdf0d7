//! The setting of every story here: a small pool on simulated disks, and short words for what is done to it.

use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::{Error, ErrorKind, Result};
use weft_engine::event::Event;
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::info::PoolInfo;
use weft_engine::pool::{Amount, Class, Protection, VdiskSpec, Wanted};
use weft_engine::units::{BLOCK, ByteCount, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_sim::disk::{DiskImage, SimDisk};
use weft_sim::rig::Rig;
use weft_sim::rng::Rng;
use weft_sim::timing::{Latencies, Random};
use weft_sim::world::{Scheduling, SimWorld};

pub const SIMPLE: Resiliency = Resiliency::Simple;
pub const MIRROR2: Resiliency = Resiliency::Mirror { copies: 2 };
pub const MIRROR3: Resiliency = Resiliency::Mirror { copies: 3 };
pub const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
pub const STRIP: u64 = 16 << 10;

/// A rig, its stream of chance, and short words for what stories do.
pub struct Story {
    pub rig: Rig,
    pub rng: Rng,
    pub layout: Layout,
}

impl Story {
    /// A new pool with one thin virtual disk of 1 MiB, open.
    pub fn new(seed: u64, disks: usize, resiliency: Resiliency) -> Story {
        Story::of_size(seed, disks, resiliency, ByteCount::mib(1), false)
    }

    pub fn of_size(seed: u64, disks: usize, resiliency: Resiliency, size: ByteCount, fixed: bool) -> Story {
        let world = SimWorld::new(seed, Scheduling::Random);
        let rng = world.rng("story");
        let rig = Rig::new(world, disks, ByteCount::mib(8));
        let columns = match resiliency {
            Resiliency::Parity { .. } => disks as u8,
            _ => 1,
        };
        let layout = Layout::new(resiliency, columns, ByteCount(STRIP)).unwrap();
        let mut story = Story { rig, rng, layout };
        story.rig.create(ByteCount::mib(1)).unwrap();
        story.open().unwrap();
        story.rig.make_vdisk(layout, size, 512, fixed).unwrap();
        story
    }

    /// A new pool of disks of 32 MiB with one thin virtual disk, as large as there is room for.
    pub fn of_all_the_room(disks: usize, slab: ByteCount, columns: u8, resiliency: Resiliency, class: Class) -> Story {
        let world = SimWorld::new(1, Scheduling::Random);
        let mut rng = world.rng("story");
        let mut rig = Rig::new(world, disks, ByteCount::mib(32));
        rig.create(slab).unwrap();
        let pool = rig.open(&mut rng).unwrap();
        let (columns, interleave) = (Some(columns), Some(ByteCount::kib(64)));
        let (name, size) = (String::from("vdisk"), ByteCount::ZERO);
        let spec =
            VdiskSpec { name, size, resiliency, columns, interleave, fixed: false, sector: 512, disks: DiskSet::EMPTY };
        let protection = Protection::Given(resiliency);
        let plan = pool.plan_wanted(&Wanted { size: Amount::Share(100), protection, class, spec }).unwrap();
        let layout = plan.layout;
        rig.run(async move { pool.vdisk_create(&plan.spec).await.unwrap() });
        Story { rig, rng, layout }
    }

    /// Gives the disks other contents, in a new world.
    pub fn with_images(&self, images: &[DiskImage]) -> Story {
        self.on_disks(images, Latencies::default())
    }

    /// Does what [`Story::with_images`] does, on disks of another pace.
    pub fn on_disks(&self, images: &[DiskImage], latencies: Latencies) -> Story {
        let world = SimWorld::new(99, Scheduling::Random);
        let rng = world.rng("story");
        let disk = |(no, image)| {
            let timing = Random::new(latencies.clone(), world.rng(&format!("timing {no}")));
            SimDisk::from_image(&world, image, Box::new(timing))
        };
        let disks = images.iter().enumerate().map(disk).collect();
        let rig = Rig { options: self.rig.options, ..Rig::with_disks(world.clone(), disks) };
        Story { rig, rng, layout: self.layout }
    }

    pub fn open(&mut self) -> Result<()> {
        self.rig.open(&mut self.rng).map(drop)
    }

    pub fn vdisk(&self) -> Rc<Vdisk> {
        self.rig.pool().vdisk("vdisk").expect("the story made it")
    }

    pub fn stripe(&self) -> u64 {
        self.layout.data_len().0
    }

    pub fn write(&self, at: u64, len: u64, byte: u8) -> Result<()> {
        let vdisk = self.vdisk();
        self.rig.run(async move { vdisk.write(VirtualOffset(at), &vec![byte; len as usize], false).await })
    }

    pub fn flush(&self) -> Result<()> {
        let vdisk = self.vdisk();
        self.rig.run(async move { vdisk.flush().await })
    }

    pub fn write_and_flush(&self, at: u64, len: u64, byte: u8) {
        self.write(at, len, byte).unwrap();
        self.flush().unwrap();
    }

    pub fn read(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let vdisk = self.vdisk();
        let mut into = vec![0xAA; len as usize];
        self.rig.run(async move { vdisk.read(VirtualOffset(at), &mut into).await.map(|()| into) })
    }

    /// The one byte that a range is filled with.
    pub fn byte(&self, at: u64, len: u64) -> Result<u8> {
        let bytes = self.read(at, len)?;
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "the range is filled with one byte");
        Ok(bytes[0])
    }

    pub fn discard(&self, at: u64, len: u64) {
        let vdisk = self.vdisk();
        self.rig.run(async move { vdisk.discard(VirtualOffset(at), len, false).await.unwrap() });
    }

    pub fn checkpoint(&self) {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.checkpoint().await.unwrap() });
    }

    pub fn close(&mut self) {
        self.rig.close().unwrap();
    }

    /// A power cut that takes everything that was not flushed.
    pub fn cut(&mut self) {
        self.rig.halt();
        self.rig.disks.iter().for_each(|disk| disk.power_cut_with(&[]));
    }

    pub fn images(&self) -> Vec<DiskImage> {
        self.rig.disks.iter().map(SimDisk::image).collect()
    }

    pub fn info(&self) -> PoolInfo {
        self.rig.pool().info()
    }

    /// Proves the pool; nothing may be wrong but blocks that redundancy covers.
    pub fn prove(&self) -> u64 {
        let pool = self.rig.pool();
        let report = self.rig.run(async move { pool.check(false).await.unwrap() });
        assert!(report.problems.is_empty() && report.lost_stripes == 0, "{report:?}");
        report.bad_blocks
    }

    pub fn events(&self) -> Vec<Event> {
        self.rig.world.take_events().into_iter().map(|(_, event)| event).collect()
    }

    pub fn plan(&self, disk: usize) -> DiskPlan {
        label_of(&self.rig.disks[disk].image()).plan
    }
}

/// The newest label of a disk.
pub fn label_of(image: &DiskImage) -> Label {
    let slots = DiskPlan::label_slots(image.shape().capacity);
    let labels = slots.into_iter().filter_map(|at| image.read(at, ByteCount(BLOCK)).ok());
    let labels = labels.filter_map(|block| Label::decode(&block).unwrap());
    labels.max_by_key(|label| label.epoch).expect("a member has a label")
}

pub fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error: Error| error.kind)
}

/// The label in one slot of a disk.
pub fn label_at(image: &DiskImage, slot: weft_engine::units::DiskOffset) -> Label {
    let block = image.read(slot, ByteCount(BLOCK)).unwrap();
    Label::decode(&block).unwrap().expect("there is a label in this slot")
}

/// Disks with equal contents.
pub fn assert_same(now: &[DiskImage], before: &[DiskImage]) {
    let prints = |images: &[DiskImage]| images.iter().map(DiskImage::fingerprint).collect::<Vec<_>>();
    assert_eq!(prints(now), prints(before), "no byte is changed");
}
