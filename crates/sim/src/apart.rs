//! Stories of stripes that are on their way to disks which answer nothing, while their rest lands in a log on other
//! disks, and the power goes.

use crate::disk::SimDisk;
use crate::rig::Rig;
use crate::rng::Rng;
use crate::world::{Scheduling, SimWorld};
use std::cell::Cell;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::record::{OWNER_METADATA, Usage};
use weft_engine::geometry::Resiliency;
use weft_engine::pool::{DiskChange, Pool, VdiskSpec};
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::world::World;

/// Bytes of a stripe.
const STRIPE: u64 = 64 << 10;
/// The disks that carry the log: as many as it has copies.
const JOURNALS: [DiskNo; 3] = [DiskNo(4), DiskNo(5), DiskNo(6)];
/// For so long a disk answers nothing.
const STALL: Nanos = Nanos::secs(20);
/// Long for a flush that waits for no such disk.
const SHORT: Nanos = Nanos::secs(1);

/// What became whole is durable although the disk that it is written to answers nothing.
pub fn what_is_on_its_way_is_durable_once_its_rest_has_landed() {
    let mut story = Story::landed_on_its_way(1);
    story.crash();
    assert_eq!(story.read("a", 0), 7);
}

/// The log keeps it until then, and no longer.
pub fn what_landed_on_its_way_stays_in_the_log_until_it_is_down() {
    let mut story = Story::landed_on_its_way(2);
    assert_eq!(story.landings(), 1);
    story.pass(STALL);
    assert_eq!(story.landings(), 0, "it is down");
    story.until(&story.flush("a"));
    story.crash();
    assert_eq!((story.read("a", 0), story.landings()), (7, 0));
}

/// What was written after it landed before its rest could: the rest does not land behind that.
pub fn nothing_older_lands_behind_what_is_newer() {
    let mut story = Story::kept_from_landing(3);
    story.write("a", 0, 4096, 9);
    let first = story.flush("a");
    story.pass(Nanos::millis(100));
    assert!(!first.get(), "what is older is neither down nor landed");
    story.until(&story.flush("b"));
    story.until(&story.flush("a"));
    story.crash();
    assert_eq!((story.read("a", 0), story.read("a", 4096)), (9, 7));
}

/// A virtual disk may go while who flushes it waits for a stripe on its way: the log keeps nothing of it.
pub fn what_is_on_its_way_does_not_land_once_its_virtual_disk_is_removed() {
    let story = Story::kept_from_landing(4);
    let waits = story.flush("a");
    story.pass(Nanos::millis(100));
    assert!(!waits.get(), "it waits for its stripe");
    let pool = story.rig.pool();
    let removed = pool.clone();
    story.rig.world.spawn("removal", Box::pin(async move { drop(removed.vdisk_remove("a").await) }));
    story.until(&story.flush("b"));
    story.pass(STALL);
    assert_eq!((pool.vdisk("a").is_none(), story.landings()), (true, 0));
}

fn has_metadata(pool: &Pool, no: DiskNo) -> bool {
    let map = pool.store().map.borrow();
    let pages = map.segments.values().filter(|segment| segment.record.owner == OWNER_METADATA);
    pages.flat_map(|segment| segment.record.slabs.iter().flatten()).any(|at| at.disk == no)
}

fn spec(name: &str, disks: DiskSet) -> VdiskSpec {
    VdiskSpec {
        name: name.into(),
        size: ByteCount::mib(1),
        resiliency: Resiliency::Simple,
        columns: Some(1),
        interleave: Some(ByteCount(STRIPE)),
        fixed: false,
        sector: 4096,
        disks,
    }
}

/// A pool of some disks for the log, and four for the stripes of virtual disks *a*, on a disk of its own, and *b*.
struct Story {
    rig: Rig,
    rng: Rng,
}

impl Story {
    fn new(seed: u64) -> Story {
        let world = SimWorld::new(seed, Scheduling::Random);
        let mut rng = world.rng("story");
        let mut rig = Rig::new(world, 4 + JOURNALS.len(), ByteCount::mib(48));
        rig.log_len = Some(ByteCount::mib(4));
        rig.create(ByteCount::mib(1)).expect("blank disks take a pool");
        rig.open(&mut rng).expect("it opens");
        // Where there is nothing of the configuration: checkpoints do not wait for it.
        let own = (0..4).map(DiskNo).find(|no| !has_metadata(&rig.pool(), *no)).expect("it has three copies");
        let pool = rig.pool();
        rig.run(async move {
            for (name, disks) in [("a", DiskSet::only(own)), ("b", DiskSet::EMPTY)] {
                pool.vdisk_create(&spec(name, disks)).await.expect("there is room");
            }
            for no in JOURNALS {
                let journal = DiskChange { usage: Some(Usage::Journal), ..DiskChange::default() };
                pool.disk_set(no, journal).await.expect("it may be one");
            }
        });
        let pool = rig.pool();
        let apart = move || pool.store().loggers() == JOURNALS;
        rig.world.run_until(Nanos::secs(60), apart);
        assert_eq!(rig.pool().store().loggers(), JOURNALS, "the log is on its own disks");
        Story { rig, rng }
    }

    /// The first stripe of *a* holds 7, and has landed on its way to a disk that answers nothing for a while.
    fn landed_on_its_way(seed: u64) -> Story {
        let story = Story::new(seed);
        story.fill("a");
        story.disk_of("a").stall(STALL);
        story.write("a", 0, STRIPE, 7);
        let flushed = story.flush("a");
        story.pass(SHORT);
        assert!(flushed.get(), "it waits for the disk");
        story
    }

    /// The first stripe of *a* holds 7, and is on its way to a disk that answers nothing for a while. A commit of *b*
    /// that is not durable, whose disk answers sooner, keeps who flushes from landing it.
    fn kept_from_landing(seed: u64) -> Story {
        let story = Story::new(seed);
        ["a", "b"].iter().for_each(|name| story.fill(name));
        let (of_a, of_b) = (story.disk_of("a"), story.disk_of("b"));
        story.write("b", 0, STRIPE, 8);
        let pool = story.rig.pool();
        let is_there = || pool.store().limbo.has_unflushed();
        story.rig.world.run_until(SHORT, is_there);
        assert!(is_there(), "it is written");
        of_a.stall(STALL);
        of_b.stall(Nanos::millis(200));
        story.write("a", 0, STRIPE, 7);
        story
    }

    /// Writes all of a virtual disk, and makes that durable.
    fn fill(&self, name: &str) {
        (0..16).for_each(|stripe| self.write(name, stripe * STRIPE, STRIPE, 1));
        self.until(&self.flush(name));
        let pool = self.rig.pool();
        self.rig.run(async move { pool.checkpoint().await.expect("it is taken") });
    }

    /// The disk that its stripes lie on.
    fn disk_of(&self, name: &str) -> SimDisk {
        let pool = self.rig.pool();
        let map = pool.store().map.borrow();
        let vdisk = map.vdisks.values().find(|vdisk| vdisk.name == name).expect("it is there");
        let place = map.place_of(vdisk.tables[0], 0).expect("it was filled");
        let at = map.segments[&place.segment].record.slabs[0].expect("it has a slab");
        self.rig.disks[at.disk.0 as usize].clone()
    }

    fn write(&self, name: &str, at: u64, len: u64, value: u8) {
        let vdisk = self.rig.pool().vdisk(name).expect("it is there");
        let data = vec![value; len as usize];
        self.rig.run(async move { vdisk.write(VirtualOffset(at), &data, false).await.expect("there is room") });
    }

    /// Begins to flush; says when that is done.
    fn flush(&self, name: &str) -> Rc<Cell<bool>> {
        let vdisk = self.rig.pool().vdisk(name).expect("it is there");
        let done = Rc::new(Cell::new(false));
        let told = done.clone();
        let flushing = async move {
            told.set(vdisk.flush().await.is_ok());
        };
        self.rig.world.spawn("client", Box::pin(flushing));
        done
    }

    fn read(&self, name: &str, at: u64) -> u8 {
        let vdisk = self.rig.pool().vdisk(name).expect("it is there");
        self.rig.run(async move {
            let mut bytes = [0; 4096];
            vdisk.read(VirtualOffset(at), &mut bytes).await.expect("it can be read");
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
            bytes[0]
        })
    }

    /// Stripes that the log keeps something of.
    fn landings(&self) -> usize {
        self.rig.pool().store().commits.landings.borrow().len()
    }

    fn pass(&self, span: Nanos) {
        self.rig.world.run_until(span, || false);
    }

    fn until(&self, done: &Rc<Cell<bool>>) {
        let told = done.clone();
        self.rig.world.run_until(Nanos::secs(60), move || told.get());
        assert!(done.get(), "it takes more than a minute");
    }

    fn crash(&mut self) {
        self.rig.power_cut(&mut self.rng);
        self.rig.open(&mut self.rng).expect("it opens");
    }
}
