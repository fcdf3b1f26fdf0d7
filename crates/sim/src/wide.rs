//! Stories of pools with more than 64 disks: their labels have annexes, and sets of disks more than one word.

use crate::disk::{DiskImage, SimDisk};
use crate::rig::{Rig, id_of};
use crate::rng::Rng;
use crate::world::{Scheduling, SimWorld, Stop};
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::ErrorKind;
use weft_engine::format::FEATURE_WIDE;
use weft_engine::format::label::{DISKS_NARROW, DiskPlan};
use weft_engine::format::record::{CacheChoice, JobState, Media, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::limits::DISKS_MAX;
use weft_engine::pool::NewDisk;
use weft_engine::pool::cache::CacheAsk;
use weft_engine::pool::leaving::Instead;
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;

const SIZE: ByteCount = ByteCount::mib(12);
const CAPACITY: ByteCount = ByteCount::mib(32);

/// A pool of the first `members` of `count` disks, and what was written to its virtual disk.
struct Story {
    rig: Rig,
    rng: Rng,
    word: u8,
}

impl Story {
    fn new(seed: u64, count: usize, members: usize, capacity: ByteCount) -> Story {
        let world = SimWorld::new(seed, Scheduling::Random);
        let mut rng = world.rng("story");
        let mut rig = Rig::new(world, count, capacity);
        rig.members = members;
        rig.options.tuning.buffer_memory = 8 << 20;
        rig.create(ByteCount::mib(1)).unwrap();
        rig.open(&mut rng).unwrap();
        let layout = Layout::new(Resiliency::Parity { parity: 2 }, 6, ByteCount::kib(16)).unwrap();
        rig.make_vdisk(layout, SIZE, 512, false).unwrap();
        let mut story = Story { rig, rng, word: 0 };
        story.write();
        story
    }

    /// Writes all of the virtual disk anew, and flushes it.
    fn write(&mut self) {
        self.word += 1;
        let (vdisk, word) = (self.rig.pool().vdisk("vdisk").unwrap(), self.word);
        self.rig.run(async move {
            for at in 0..SIZE.0 >> 20 {
                vdisk.write(VirtualOffset(at << 20), &pattern(at, word), false).await.unwrap();
            }
            vdisk.flush().await.unwrap();
        });
    }

    /// Everything is what was flushed last.
    fn prove(&self) {
        let (vdisk, word) = (self.rig.pool().vdisk("vdisk").unwrap(), self.word);
        self.rig.run(async move {
            for at in 0..SIZE.0 >> 20 {
                let mut found = vec![0; 1 << 20];
                vdisk.read(VirtualOffset(at << 20), &mut found).await.unwrap();
                assert!(found == pattern(at, word), "MiB {at} is not what was written");
            }
        });
    }

    /// The power goes, and the pool is opened by the disks that are there.
    fn crash(&mut self) {
        self.rig.power_cut(&mut self.rng);
        self.rig.open(&mut self.rng).unwrap();
    }

    fn add(&self, at: usize) -> weft_engine::error::Result<DiskNo> {
        let pool = self.rig.pool();
        let new = self.new_disk(at);
        self.rig.run(async move { pool.disk_add(new, Usage::AutoSelect).await })
    }

    fn new_disk(&self, at: usize) -> NewDisk {
        let disk = Rc::new(self.rig.disks[at].clone());
        NewDisk { disk, id: id_of(at), name: format!("d{at}"), media: Media::Ssd }
    }

    fn is_wide(&self) -> bool {
        self.rig.pool().store().labels.features.get() & FEATURE_WIDE != 0
    }

    /// The disks that something lies on.
    fn used(&self) -> DiskSet {
        let pool = self.rig.pool();
        let map = pool.store().map.borrow();
        map.segments.values().fold(DiskSet::EMPTY, |set, found| set | found.disks())
    }

    /// Which of the disks has this number in the pool.
    fn at(&self, no: DiskNo) -> usize {
        let disks = self.rig.pool().info().disks;
        let id = disks.iter().find(|disk| disk.no == no).expect("it is a member").id;
        (0..self.rig.disks.len()).find(|at| id_of(*at) == id).expect("it is one of the disks")
    }

    fn disk(&self, no: DiskNo) -> SimDisk {
        self.rig.disks[self.at(no)].clone()
    }

    /// Waits until nothing is missing and no job runs.
    fn until_healthy(&self) {
        let pool = self.rig.pool();
        let stop = self.rig.world.run_until(Nanos::secs(600), move || {
            let rests = pool.jobs().iter().all(|job| matches!(job.state, JobState::Done | JobState::Cancelled));
            rests && pool.info().vdisks.iter().all(|vdisk| vdisk.degraded_segments == 0)
        });
        assert_eq!(stop, Stop::Done, "it heals by itself");
    }
}

fn pattern(at: u64, word: u8) -> Vec<u8> {
    let mut bytes = vec![word; 1 << 20];
    bytes
        .chunks_mut(8)
        .enumerate()
        .for_each(|(nth, chunk)| chunk[..7].copy_from_slice(&(at << 20 | nth as u64).to_le_bytes()[..7]));
    bytes
}

/// A pool of as many disks as there may be: what is written survives the power and the loss of two of them, and is
/// brought up to date where these come back.
pub fn a_pool_of_as_many_disks_as_there_may_be_works_as_any_other() {
    let mut story = Story::new(6_000, DISKS_MAX, DISKS_MAX, CAPACITY);
    assert!(story.is_wide());
    story.crash();
    story.prove();
    let used = story.used();
    assert!(used.iter().any(|no| no.0 as usize >= DISKS_NARROW), "{used:?}");
    let lost: Vec<DiskNo> = used.iter().collect();
    for no in [lost[0], lost[lost.len() - 1]] {
        story.rig.disks[no.0 as usize].vanish();
        story.rig.pool().store().disk_lost(no, "the story says so");
    }
    story.write();
    story.prove();
    story.crash();
    story.prove();
    for no in [lost[0], lost[lost.len() - 1]] {
        story.rig.disks[no.0 as usize].return_intact(&mut story.rng);
    }
    story.rig.close().unwrap();
    story.rig.open(&mut story.rng).unwrap();
    story.until_healthy();
    story.prove();
    let pool = story.rig.pool();
    assert!(pool.plan_disk_remove(lost[0], Instead::New(CAPACITY)).is_ok(), "one for another is no more disks");
    let refused = pool.plan_disk_add(CAPACITY, "one-more").unwrap_err();
    assert!(refused.kind == ErrorKind::NotPossible && refused.context.contains("256 disks already"), "{refused}");
}

/// Each end of a label is a whole label, its annex included.
pub fn either_end_of_wide_labels_is_enough() {
    for end in 0..2 {
        let mut story = Story::new(6_010 + end, DISKS_NARROW + 6, DISKS_NARROW + 6, CAPACITY);
        story.crash();
        story.rig.close().unwrap();
        for disk in &story.rig.disks {
            let mut image = disk.image();
            let capacity = image.shape().capacity;
            let (slots, annexes) = (DiskPlan::label_slots(capacity), DiskPlan::label_annexes(capacity));
            for nth in [0, 1].map(|nth| nth + 2 * end as usize) {
                image.overwrite(slots[nth], &[0xEE; BLOCK as usize]);
                image.overwrite(annexes[nth], &[0xEE; BLOCK as usize]);
            }
            disk.vanish();
            disk.return_as(&image);
        }
        story.rig.open(&mut story.rng).unwrap();
        story.prove();
        story.write();
        story.crash();
        story.prove();
    }
}

/// A pool grows beyond 64 disks while the power goes at any moment; then a write-back cache on disks with large numbers
/// survives a crash, and one of them leaves.
pub fn a_pool_grows_beyond_64_disks_and_a_crash_at_any_moment_loses_nothing() {
    for seed in crate::sample::sample(0..12) {
        let mut story = Story::new(6_020 + seed, DISKS_NARROW + 4, DISKS_NARROW, CAPACITY);
        assert!(!story.is_wide(), "labels of 64 disks are as they always were");
        let (pool, new) = (story.rig.pool(), story.new_disk(DISKS_NARROW));
        let grows = async move { drop(pool.disk_add(new, Usage::AutoSelect).await) };
        story.rig.world.spawn("grows", Box::pin(grows));
        let (first, nth) = (story.rig.requests(), story.rng.below(900));
        let disks = story.rig.disks.clone();
        let requests = move || {
            disks.iter().map(|disk| disk.stats().reads + disk.stats().writes + disk.stats().flushes).sum::<u64>()
        };
        story.rig.world.run_until(Nanos::secs(5), move || requests() >= first + nth);
        story.crash();
        story.prove();
        for at in DISKS_NARROW..DISKS_NARROW + 4 {
            if story.rig.pool().info().disks.iter().all(|disk| disk.id != id_of(at)) {
                story.add(at).unwrap();
            }
        }
        assert!(story.is_wide());
        let names = |story: &Story| story.rig.pool().info().disks.iter().map(|disk| disk.no).collect::<DiskSet>();
        assert!(
            names(&story).len() == DISKS_NARROW + 4 && names(&story).iter().any(|no| no.0 as usize >= DISKS_NARROW)
        );
        let cached: DiskSet = names(&story).iter().skip(DISKS_NARROW).collect();
        let (pool, ask) = (story.rig.pool(), CacheAsk { size: ByteCount::mib(2), disks: cached, may_lose: false });
        story.rig.run(async move { pool.vdisk_set_cache("vdisk", Some(&ask), CacheChoice::Typed).await.unwrap() });
        story.write();
        story.crash();
        assert_eq!(story.rig.pool().vdisk("vdisk").unwrap().cache().map(|cache| cache.disks), Some(cached));
        story.prove();
        let leaves = cached.iter().last().unwrap();
        let pool = story.rig.pool();
        let ended = story.rig.run(async move {
            let job = pool.disk_remove(leaves, None, 0).await.unwrap();
            pool.job_wait(job).await.unwrap()
        });
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
        story.crash();
        story.prove();
        assert!(story.is_wide() && !names(&story).contains(leaves));
    }
}

/// Up to two disks of a pool of more than 64 are away at a time, and come back as they were, or as copies of any age,
/// while the power goes, disks join, and all is written anew: nothing is lost, and the pool heals by itself.
pub fn disks_of_a_wide_pool_come_and_go() {
    let mut wide = 0;
    for seed in crate::sample::sample(0..12) {
        let mut story = Story::new(6_100 + seed, DISKS_NARROW + 6, DISKS_NARROW, CAPACITY);
        let mut copies: Vec<DiskImage> = story.rig.disks.iter().map(|disk| disk.image()).collect();
        let (mut gone, mut members) = (Vec::new(), DISKS_NARROW);
        for _ in 0..20 {
            match story.rng.below(6) {
                0 if gone.is_empty() && members < story.rig.disks.len() => {
                    story.add(members).unwrap();
                    members += 1;
                }
                1 | 2 if gone.len() < 2 => {
                    let held: Vec<DiskNo> = story.used().iter().filter(|no| !gone.contains(no)).collect();
                    let no = *story.rng.pick(&held);
                    story.disk(no).vanish();
                    story.rig.pool().store().disk_lost(no, "the story says so");
                    gone.push(no);
                }
                3 if !gone.is_empty() => {
                    let back: Vec<usize> = gone.drain(..).map(|no| story.at(no)).collect();
                    story.rig.close().unwrap();
                    for at in back {
                        match story.rng.chance(0.5) {
                            true => story.rig.disks[at].return_intact(&mut story.rng),
                            false => story.rig.disks[at].return_as(&copies[at]),
                        }
                    }
                    story.rig.open(&mut story.rng).unwrap();
                    story.until_healthy();
                    copies = story.rig.disks.iter().map(|disk| disk.image()).collect();
                }
                4 => story.crash(),
                _ => story.write(),
            }
            story.prove();
        }
        wide += story.is_wide() as u32;
    }
    assert!(wide > 0, "some of them grew beyond 64");
}

/// Nobody knows of a disk that is missing whether it has room for a longer label.
pub fn a_pool_with_a_missing_disk_does_not_grow_beyond_64() {
    let story = Story::new(6_050, DISKS_NARROW + 1, DISKS_NARROW, CAPACITY);
    story.rig.disks[7].vanish();
    story.rig.pool().store().disk_lost(DiskNo(7), "the story says so");
    let refused = story.add(DISKS_NARROW).unwrap_err();
    assert!(refused.kind == ErrorKind::NotPossible && refused.context.contains("disk d7 is missing"), "{refused}");
    let fewer = Story::new(6_051, DISKS_NARROW, DISKS_NARROW - 1, CAPACITY);
    fewer.rig.disks[7].vanish();
    fewer.rig.pool().store().disk_lost(DiskNo(7), "the story says so");
    let pool = fewer.rig.pool();
    assert!(pool.plan_growth(1).is_ok() && pool.plan_growth(2).is_err(), "the second one would be too many");
    assert!(!story.is_wide());
}

/// Where the last slab ends too near to the end of a disk for an annex, the pool says so, and nothing is written there.
pub fn a_pool_whose_disks_have_no_room_for_annexes_does_not_grow_beyond_64() {
    let plan = DiskPlan::new(CAPACITY, ByteCount::mib(1), None).unwrap();
    let tight = plan.data_at + ByteCount::mib(1) * u64::from(plan.slabs) + ByteCount(2 * BLOCK);
    let story = Story::new(6_060, DISKS_NARROW + 1, DISKS_NARROW, ByteCount(tight.0));
    let ends = |story: &Story| {
        let image = story.rig.disks[3].image();
        image.read(DiskOffset(tight.0 - 64 * BLOCK), ByteCount(62 * BLOCK)).unwrap().to_vec()
    };
    let before = ends(&story);
    let refused = story.add(DISKS_NARROW).unwrap_err();
    assert!(refused.kind == ErrorKind::NotPossible && refused.context.contains("no room"), "{refused}");
    assert!(!story.is_wide() && ends(&story) == before);
    story.prove();
}
