//! Stories of packed stripes: what small writes leave, and what becomes of it. Each ends with a panic where something
//! does not hold.

pub mod behind;
pub mod beside;
pub mod cache;
pub mod change;
pub mod change_crash;
pub mod copies;
pub mod hollow;
pub mod journal;
pub mod kept;
pub mod order;
pub mod risk;
pub mod share;
pub mod shelf;
pub mod tier;

use crate::rig::{Rig, resiliencies};
use crate::rng::Rng;
use crate::sample::sample;
use crate::world::{Scheduling, SimWorld};
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_engine::format::record::{JOB_LEN, Record};
use weft_engine::format::{FEATURE_PACKS, label::DiskPlan, label::Label};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::Disk;
use weft_engine::store::Tuning;
use weft_engine::units::{BLOCK, ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };

const UNIT: u64 = 4096;

/// A pool with one full virtual disk of which half may lie in packed stripes, and what is written there.
struct Story {
    rig: Rig,
    rng: Rng,
    layout: Layout,
    /// The word of each unit; 0: zeros.
    words: BTreeMap<u64, u64>,
}

impl Story {
    fn new(seed: u64, resiliency: Resiliency) -> Story {
        Story::with_more(seed, resiliency, 0)
    }

    /// Begins one with `more` disks that are not the pool's yet.
    fn with_more(seed: u64, resiliency: Resiliency, more: usize) -> Story {
        let columns = resiliency.columns_min().max(2);
        Story::laid_out(seed, Layout::new(resiliency, columns, ByteCount::kib(16)).unwrap(), more)
    }

    /// Begins one with a virtual disk of this layout, and `more` disks that are not the pool's yet.
    fn laid_out(seed: u64, layout: Layout, more: usize) -> Story {
        let world = SimWorld::new(seed, Scheduling::Random);
        let mut rng = world.rng("story");
        let mut rig = Rig::new(world, layout.slots() + 1 + more, ByteCount::mib(24));
        rig.members -= more;
        rig.options.tuning.fine_share = 500;
        // Nothing is moved down unless a story says so.
        rig.options.tuning.idle_land = Nanos::secs(100_000);
        rig.create(ByteCount::mib(1)).unwrap();
        rig.open(&mut rng).unwrap();
        rig.make_vdisk(layout, ByteCount::mib(4), 512, false).unwrap();
        Story { rig, rng, layout, words: BTreeMap::new() }
    }

    fn vdisk(&self) -> Rc<Vdisk> {
        self.rig.pool().vdisk("vdisk").unwrap()
    }

    fn units(&self) -> u64 {
        self.vdisk().size().0 / UNIT
    }

    fn per_stripe(&self) -> u64 {
        self.layout.data_len().0 / UNIT
    }

    fn write(&mut self, unit: u64, count: u64, word: u64) {
        let vdisk = self.vdisk();
        let bytes = bytes_of(word, count * UNIT);
        self.rig.run(async move { vdisk.write(VirtualOffset(unit * UNIT), &bytes, false).await.unwrap() });
        self.words.extend((unit..unit + count).map(|unit| (unit, word)));
    }

    /// Writes `new` at byte `at`, and notes it in `bytes`.
    fn write_bytes(&self, bytes: &mut [u8], at: u64, new: &[u8]) {
        bytes[at as usize..][..new.len()].copy_from_slice(new);
        let (vdisk, new) = (self.vdisk(), new.to_vec());
        self.rig.run(async move { vdisk.write(VirtualOffset(at), &new, false).await.unwrap() });
    }

    /// Writes anew `count` units anywhere.
    fn scatter(&mut self, count: u64, word: u64) {
        for nth in 0..count {
            let unit = self.rng.below(self.units());
            self.write(unit, 1, word + nth);
        }
    }

    fn fill(&mut self, word: u64) {
        let units = self.units();
        self.write(0, units, word);
        self.flush();
    }

    fn flush(&self) {
        let vdisk = self.vdisk();
        self.rig.run(async move { vdisk.flush().await.unwrap() });
    }

    /// Has everything that gathers leave.
    fn destage(&self) {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.destage_everything().await });
    }

    fn move_down(&self) -> usize {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.move_everything_down().await })
    }

    fn set_share(&self, thousandths: Option<u16>) {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.vdisk_set_fine_share("vdisk", thousandths).await.unwrap() });
    }

    fn packed(&self) -> u64 {
        self.vdisk().packed().0
    }

    /// Compares every unit with what was written, and has the pool checked.
    fn prove(&self) {
        self.prove_bytes();
        let pool = self.rig.pool();
        let report = self.rig.run(async move { pool.check(false).await.unwrap() });
        assert!(report.is_sound(), "{report:?}");
    }

    /// All that is read.
    fn bytes(&self) -> Vec<u8> {
        let (vdisk, len) = (self.vdisk(), self.units() * UNIT);
        let bytes = self.rig.run(async move {
            let mut bytes = vec![0xAA; len as usize];
            vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
        });
        bytes.unwrap()
    }

    fn prove_bytes(&self) {
        let bytes = self.bytes();
        for unit in 0..self.units() {
            let word = self.words.get(&unit).copied().unwrap_or(0);
            let found = &bytes[(unit * UNIT) as usize..][..UNIT as usize];
            assert!(found == bytes_of(word, UNIT), "unit {unit} is not of {word}, it is of {}", found[0]);
        }
    }

    /// Whether the labels on the disks say that there may be this: on all, or on none.
    fn labels_say(&self, feature: u64) -> bool {
        let found = self.rig.disks.iter().map(|disk| {
            let slots = DiskPlan::label_slots(disk.shape().capacity);
            let labels =
                slots.map(|at| disk.peek(at, ByteCount(BLOCK)).ok().and_then(|block| Label::decode(&block).ok()?));
            let newest = labels.into_iter().flatten().max_by_key(|label| label.serial).expect("it has a label");
            newest.features & feature != 0
        });
        let found: Vec<bool> = found.collect();
        assert!(found.iter().all(|says| *says == found[0]), "{found:?}");
        found[0]
    }

    fn crash(&mut self) {
        self.rig.power_cut(&mut self.rng);
        self.rig.open(&mut self.rng).unwrap();
    }

    /// All disks are away, without what they had not made durable.
    fn lose_caches(&self) {
        self.rig.disks.iter().for_each(|disk| {
            disk.vanish();
            disk.power_cut_with(&[]);
        });
        // Whoever has something to flush finds that they are gone; nobody may have. A disk that is back before anybody
        // found that would be one that lies about a flush.
        self.rig.world.run_until(Nanos::secs(5), || false);
        let pool = self.rig.pool();
        for no in 0..self.rig.disks.len() as u16 {
            let pool = pool.clone();
            let _ = self.rig.run(async move { pool.store().disk_flush(DiskNo(no)).await });
        }
    }

    /// All disks are back as they are.
    fn come_back(&mut self) {
        let pool = self.rig.pool();
        self.rig.disks.iter().for_each(|disk| disk.return_intact(&mut self.rng));
        for no in (0..self.rig.disks.len()).filter(|no| !pool.store().has_disk(DiskNo(*no as u16))) {
            let (pool, disk) = (pool.clone(), Rc::new(self.rig.disks[no].clone()) as Rc<dyn Disk>);
            // One alone may wait for the others.
            let back = async move { pool.attach(disk).await.map(drop).unwrap() };
            self.rig.world.spawn("disk back", Box::pin(back));
        }
        self.rig.world.run_until(Nanos::secs(2), || false);
    }

    fn checkpoint(&self) {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.checkpoint().await.unwrap() });
    }
}

fn bytes_of(word: u64, len: u64) -> Vec<u8> {
    word.to_le_bytes().iter().copied().cycle().take(len as usize).collect()
}

/// Small writes are packed, found after crashes, and needed no reading.
pub fn small_writes_leave_packed_and_read_nothing_with_every_resiliency() {
    for (seed, resiliency) in resiliencies().into_iter().enumerate() {
        let mut story = Story::new(seed as u64, resiliency);
        story.fill(1);
        story.scatter(100, 1000);
        story.flush();
        story.destage();
        let vdisk = story.vdisk();
        assert!(story.packed() > 60, "{} units are packed", story.packed());
        assert_eq!(vdisk.counters.read_for_write.get(), 0);
        story.prove();
        story.flush();
        story.crash();
        assert!(story.packed() > 60);
        story.prove();
        // Whatever the checkpoint has: the records of packed stripes stay.
        story.checkpoint();
        story.checkpoint();
        story.scatter(20, 5000);
        story.flush();
        story.crash();
        story.prove();
        let packed = story.packed();
        story.rig.close().unwrap();
        story.rig.open(&mut story.rng).unwrap();
        assert_eq!(story.packed(), packed);
        story.prove();
    }
}

/// The mover leaves what was written, and nothing packed.
pub fn what_is_moved_down_is_as_it_was_and_its_packed_stripes_are_free() {
    let mut story = Story::new(7, PARITY);
    story.fill(1);
    let mut most = 0;
    for round in 1..5 {
        story.scatter(150, round * 1000);
        story.flush();
        story.destage();
        most = most.max(story.packed());
        story.prove();
    }
    // The mover may have brought down all of it since, in one go: the virtual disk is small.
    assert!(most > 0);
    while story.move_down() > 0 {}
    story.flush();
    story.checkpoint();
    assert_eq!((story.vdisk().packed().0, story.vdisk().packed().1), (0, 0));
    story.prove();
    story.crash();
    assert_eq!(story.packed(), 0);
    story.prove();
}

/// What replaces fine units is read, also after a crash.
pub fn a_whole_stripe_and_a_discard_make_fine_units_void() {
    let mut story = Story::new(8, PARITY);
    story.fill(1);
    let per = story.per_stripe();
    for stripe in 0..20 {
        story.write(stripe * per, 1, 100 + stripe);
    }
    story.flush();
    story.destage();
    assert_eq!(story.packed(), 20);
    story.write(0, 4 * per, 7);
    let (vdisk, len) = (story.vdisk(), 4 * per * UNIT);
    story.rig.run(async move { vdisk.discard(VirtualOffset(len), len, false).await.unwrap() });
    story.words.extend((4 * per..8 * per).map(|unit| (unit, 0)));
    story.flush();
    assert_eq!(story.packed(), 12);
    story.prove();
    story.crash();
    assert_eq!(story.packed(), 12);
    story.prove();
    let (vdisk, at) = (story.vdisk(), 8 * per * UNIT);
    story.rig.run(async move { vdisk.write_zeroes(VirtualOffset(at), len + UNIT, false, true).await.unwrap() });
    story.words.extend((8 * per..12 * per + 1).map(|unit| (unit, 0)));
    story.prove();
    story.crash();
    story.prove();
}

/// Sectors of a block that is not all there.
pub fn parts_of_a_block_are_packed_with_the_rest_of_it() {
    let mut story = Story::new(9, Resiliency::Mirror { copies: 2 });
    story.fill(1);
    for (round, at) in [(2u8, 512u64), (3, 1024), (4, 0)] {
        let vdisk = story.vdisk();
        story.rig.run(async move {
            vdisk.write(VirtualOffset(40 * UNIT + at), &[round; 512], true).await.unwrap();
        });
        story.destage();
        assert_eq!(story.packed(), 1);
        story.crash();
    }
    let vdisk = story.vdisk();
    let bytes = story.rig.run(async move {
        let mut bytes = [0; 4096];
        vdisk.read(VirtualOffset(40 * UNIT), &mut bytes).await.unwrap();
        bytes
    });
    assert!(bytes[..512] == [4; 512] && bytes[512..1024] == [2; 512] && bytes[1024..1536] == [3; 512]);
    assert!(bytes[1536..] == bytes_of(1, UNIT)[1536..]);
}

/// Crashes at any time.
pub fn a_crash_anywhere_between_packing_overwriting_moving_and_checkpoints_loses_nothing_that_was_flushed() {
    for seed in sample(0..60) {
        let mut story = Story::new(100 + seed, resiliencies()[seed as usize % 5]);
        story.fill(1);
        for round in 0..6 {
            let before = story.words.clone();
            let ops = story.rng.below(40);
            for op in 0..ops {
                let word = 1_000_000 + round * 1000 + op;
                let (unit, per) = (story.rng.below(story.units()), story.per_stripe());
                match story.rng.below(20) {
                    0 => story.write(unit / per * per, per.min(story.units() - unit / per * per), word),
                    1 => story.destage(),
                    2 => story.flush(),
                    3 => drop(story.move_down()),
                    4 => story.checkpoint(),
                    _ => story.write(unit, 1, word),
                }
            }
            drop(before);
            story.flush();
            // What is under way when the power goes is anywhere.
            let pool = story.rig.pool();
            let what = story.rng.below(3);
            story.rig.world.spawn(
                "last steps",
                Box::pin(async move {
                    if what > 0 {
                        pool.destage_everything().await;
                    }
                    if what > 1 {
                        pool.move_everything_down().await;
                        let _ = pool.checkpoint().await;
                    }
                }),
            );
            let steps = Nanos(story.rng.below(80_000_000));
            story.rig.world.run_until(steps, || false);
            story.crash();
            story.prove();
        }
    }
}

/// The mover works while nobody else does.
pub fn an_idle_virtual_disk_has_nothing_packed_after_a_while() {
    let mut story = Story::new(10, PARITY);
    story.rig.close().unwrap();
    story.rig.options.tuning.idle_land = Nanos::millis(500);
    story.rig.open(&mut story.rng).unwrap();
    story.fill(1);
    story.scatter(100, 1000);
    story.flush();
    story.destage();
    let vdisk = story.vdisk();
    story.rig.world.run_until(Nanos::secs(60), move || vdisk.packed().0 == 0);
    assert_eq!(story.packed(), 0);
    story.prove();
}

/// A removal beside the mover.
pub fn a_virtual_disk_with_packed_stripes_is_removed_beside_the_mover_and_leaves_nothing() {
    let mut story = Story::new(11, PARITY);
    story.fill(1);
    story.scatter(200, 1000);
    story.flush();
    story.destage();
    assert!(story.packed() > 0);
    let pool = story.rig.pool();
    let mover = pool.clone();
    let moving = async move {
        mover.move_everything_down().await;
    };
    story.rig.world.spawn("mover", Box::pin(moving));
    let removed = pool.clone();
    story.rig.run(async move { removed.vdisk_remove("vdisk").await.unwrap() });
    story.rig.close().unwrap();
    story.rig.open(&mut story.rng).unwrap();
    let store = story.rig.pool().store().clone();
    assert!(store.map.borrow().tables.is_empty());
    let pool = story.rig.pool();
    let report = story.rig.run(async move { pool.check(false).await.unwrap() });
    assert!(report.is_sound(), "{report:?}");
}

/// Who does not know packed stripes may open a pool that has none: before the first, and after the last.
pub fn the_bit_of_packed_stripes_is_set_before_the_first_and_goes_with_the_last() {
    let mut story = Story::new(12, PARITY);
    story.fill(1);
    story.rig.close().unwrap();
    assert!(!story.labels_say(FEATURE_PACKS), "nothing was packed yet");
    story.rig.open(&mut story.rng).unwrap();
    story.scatter(60, 1000);
    story.flush();
    story.destage();
    assert!(story.packed() > 0 && story.labels_say(FEATURE_PACKS));
    story.crash();
    story.prove();
    // From now on nothing is packed.
    story.rig.close().unwrap();
    story.rig.options.tuning.fine_share = 0;
    story.rig.open(&mut story.rng).unwrap();
    story.checkpoint();
    assert!(story.labels_say(FEATURE_PACKS), "there still are some");
    while story.move_down() > 0 {}
    story.flush();
    story.rig.world.run_until(Nanos::secs(5), || false);
    let store = story.rig.pool().store().clone();
    assert!(!store.map.borrow().has_packs(), "the table of packed stripes is gone");
    drop(store);
    story.scatter(20, 2000);
    story.flush();
    story.destage();
    assert_eq!(story.packed(), 0);
    story.checkpoint();
    story.checkpoint();
    assert!(!story.labels_say(FEATURE_PACKS));
    story.crash();
    assert!(!story.labels_say(FEATURE_PACKS));
    story.prove();
    // And anew, with another table.
    story.rig.close().unwrap();
    story.rig.options.tuning.fine_share = 500;
    story.rig.open(&mut story.rng).unwrap();
    story.scatter(60, 3000);
    story.flush();
    story.destage();
    assert!(story.packed() > 0 && story.labels_say(FEATURE_PACKS));
    story.crash();
    story.prove();
}

/// Room for the configuration is counted before it is taken, and packed stripes take none of the last of it.
pub fn packed_stripes_leave_room_for_the_configuration_of_whole_ones() {
    let jobs_to_come = (weft_engine::limits::JOBS_KEPT * JOB_LEN) as u64;
    let len = |story: &Story| {
        let records = story.rig.pool().store().map.borrow().records();
        let others = records.iter().filter(|record| !matches!(record, Record::Job(_)));
        jobs_to_come + others.map(|record| record.encoded_len() as u64).sum::<u64>()
    };
    for more in (0..1600).step_by(40) {
        let mut story = Story::new(13, PARITY);
        // It has a segment that is not full: overwriting needs no other.
        let units = 16 * story.per_stripe();
        story.write(0, units, 1);
        story.flush();
        let max = len(&story) + more;
        story.rig.pool().store().map.borrow_mut().config_max = ByteCount(max);
        for nth in 0..30 {
            let unit = story.rng.below(units);
            story.write(unit, 1, 1000 + nth);
        }
        story.flush();
        story.destage();
        let found = len(&story);
        assert!(found <= max, "the configuration has {found} bytes, and room for {max}");
        assert!(more < 1600 - 80 || story.packed() > 0, "there is room, and nothing is packed");
        story.prove();
        story.rig.close().unwrap();
    }
}

/// What says where units lie in packed stripes stays within its budget, however many virtual disks want some: what has
/// no room there is merged, as it is where nothing is packed, and nothing fails.
pub fn packed_units_are_no_more_than_their_memory_takes() {
    for (limit, some, all) in [(0, 0, 0), (16 << 10, 1, 300), (64 << 20, 700, u64::MAX)] {
        let tuning = Tuning {
            fine_share: 500,
            fine_memory: limit,
            // Nothing is moved down but for want of room.
            idle_land: Nanos::secs(100_000),
            ..Tuning::default()
        };
        let world = SimWorld::new(6, Scheduling::Random);
        let mut rng = world.rng("story");
        let mut rig = Rig::new(world, 4, ByteCount::mib(64));
        rig.options.tuning = tuning;
        rig.create(ByteCount::mib(1)).unwrap();
        rig.open(&mut rng).unwrap();
        let layout = Layout::new(PARITY, 3, ByteCount::kib(64)).unwrap();
        let made = |name: &str| {
            rig.make_vdisk_named(name, layout, ByteCount::mib(8), 4096, false).unwrap();
            rig.pool().vdisk(name).unwrap()
        };
        let vdisks: Vec<Rc<Vdisk>> = ["a", "b", "c"].map(made).into();
        for vdisk in vdisks.clone() {
            rig.run(async move { vdisk.write(VirtualOffset(0), &vec![1; 8 << 20], true).await.unwrap() });
        }
        let mut words = BTreeMap::new();
        let mut most = 0;
        for nth in 0..1200 {
            let (no, unit) = (nth as usize % 3, rng.below(2048));
            let word = 2 + (nth % 250) as u8;
            words.insert((no, unit), word);
            let vdisk = vdisks[no].clone();
            rig.run(async move { vdisk.write(VirtualOffset(unit << 12), &[word; 4096], false).await.unwrap() });
            if nth % 60 == 59 {
                let (pool, vdisks) = (rig.pool(), vdisks.clone());
                rig.run(async move {
                    for vdisk in vdisks {
                        vdisk.flush().await.unwrap();
                    }
                    pool.destage_everything().await;
                });
            }
            let memory = rig.pool().store().memory();
            let units = memory.iter().find(|budget| budget.name == "packed units").unwrap();
            assert!(units.peak <= limit && units.limit == limit, "{units:?}");
            most = most.max(vdisks.iter().map(|vdisk| vdisk.packed().0).sum());
        }
        assert!(most >= some && most <= all, "of {limit} bytes: {most} units were packed at most");
        for ((no, unit), word) in words {
            let vdisk = vdisks[no].clone();
            rig.run(async move {
                let mut bytes = [0; 4096];
                vdisk.read(VirtualOffset(unit << 12), &mut bytes).await.unwrap();
                assert!(bytes == [word; 4096], "unit {unit} of {no}");
            });
        }
        drop(vdisks);
        rig.close().unwrap();
    }
}

/// All disks lose their caches in the midst of packing: what was flushed is in the log, or in packed stripes that are.
pub fn disks_that_blink_while_stripes_are_packed_take_nothing_that_was_flushed() {
    for step in 0..24 {
        let mut story = Story::new(300, PARITY);
        story.fill(1);
        story.scatter(40, 1000);
        story.flush();
        let pool = story.rig.pool();
        story.rig.world.spawn("packing", Box::pin(async move { pool.destage_everything().await }));
        story.rig.world.run_until(Nanos(step * 1_500_000), || false);
        story.lose_caches();
        story.come_back();
        story.rig.world.run_until(Nanos::secs(5), || false);
        story.prove();
        story.crash();
        story.prove();
    }
}

/// A whole stripe is lost before it was durable, and given up: the fine units that it had replaced are there again.
pub fn what_a_lost_stripe_had_replaced_is_there_when_that_is_given_up() {
    for wait in [1, 5, 20, 80, 200] {
        let mut story = Story::new(400, PARITY);
        story.fill(1);
        story.write(0, 2, 5);
        story.flush();
        story.destage();
        story.flush();
        assert_eq!(story.packed(), 2);
        let per = story.per_stripe();
        let before = story.words.clone();
        story.write(0, per, 9);
        story.rig.world.run_until(Nanos::millis(wait), || false);
        story.lose_caches();
        story.come_back();
        story.rig.world.run_until(Nanos::secs(20), || false);
        if story.vdisk().failure().is_some() {
            story.vdisk().clear().unwrap();
            story.words = before;
        }
        story.prove();
        story.flush();
        story.crash();
        story.prove();
    }
}
