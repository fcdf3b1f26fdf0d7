//! Stories of read caches: copies of what is read often, on a solid-state disk in front of hard disks.

use super::{PARITY, Story, UNIT, bytes_of};
use crate::rig::resiliencies;
use crate::sample::sample;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::ErrorKind;
use weft_engine::format::record::{Media, SlabAt, Usage};
use weft_engine::format::{FEATURE_READ_CACHES, Id};
use weft_engine::geometry::Resiliency;
use weft_engine::pool::info::Health;
use weft_engine::pool::job::JobState;
use weft_engine::pool::read_cache::ReadCacheAsk;
use weft_engine::pool::{DiskChange, NewDisk};
use weft_engine::store::shelf::ShelfInfo;
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;

/// What is read again and again.
const HOT: [u64; 24] =
    [3, 17, 29, 31, 50, 77, 101, 128, 140, 177, 200, 230, 255, 300, 333, 360, 401, 444, 480, 512, 600, 700, 801, 900];

impl Story {
    /// A story of a full virtual disk on hard disks, in a pool with `more` solid-state disks; nothing is packed.
    fn behind_ssd(seed: u64, resiliency: Resiliency, more: usize) -> Story {
        let mut story = Story::with_more(seed, resiliency, more);
        story.rig.close().unwrap();
        story.rig.options.tuning.fine_share = 0;
        // A disk of which much rots is left alone.
        story.rig.options.tuning.bad_blocks_max = u64::MAX;
        story.rig.open(&mut story.rng).unwrap();
        for no in 0..story.rig.members as u16 {
            let (pool, hdd) = (story.rig.pool(), DiskChange { media: Some(Media::Hdd), ..DiskChange::default() });
            story.rig.run(async move { pool.disk_set(DiskNo(no), hdd).await.unwrap() });
        }
        for at in story.rig.members..story.rig.disks.len() {
            let disk = Rc::new(story.rig.disks[at].clone());
            let new = NewDisk { disk, id: Id([100 + at as u8; 16]), name: format!("s{at}"), media: Media::Ssd };
            let pool = story.rig.pool();
            story.rig.run(async move { pool.disk_add(new, Usage::ManualSelect).await.unwrap() });
        }
        story.fill(1);
        story
    }

    /// One with a read cache of `size` on a solid-state disk, and its number.
    fn with_read_cache(seed: u64, resiliency: Resiliency, size: ByteCount) -> (Story, usize) {
        let story = Story::behind_ssd(seed, resiliency, 1);
        story.set_read_cache(size, 0);
        let ssd = story.rig.members;
        (story, ssd)
    }

    fn set_read_cache(&self, size: ByteCount, disks: u64) {
        let (pool, ask) = (self.rig.pool(), ReadCacheAsk { size, disks: DiskSet::from_words(&[disks]) });
        let ask = (size > ByteCount::ZERO).then_some(ask);
        self.rig.run(async move { pool.vdisk_set_read_cache("vdisk", ask.as_ref()).await.unwrap() });
    }

    fn shelf(&self) -> Option<ShelfInfo> {
        self.rig.pool().store().shelf_info(self.vdisk().id())
    }

    /// Reads a unit and sees that it is what was written last.
    fn read_unit(&self, unit: u64) {
        let vdisk = self.vdisk();
        let bytes = self.rig.run(async move {
            let mut bytes = vec![0xAA; UNIT as usize];
            vdisk.read(VirtualOffset(unit * UNIT), &mut bytes).await.map(|()| bytes)
        });
        let word = self.words.get(&unit).copied().unwrap_or(0);
        assert!(bytes.unwrap() == bytes_of(word, UNIT), "unit {unit} is not of {word}");
    }

    /// Reads some units; how many parts were found in the read cache.
    fn read_units(&self, units: &[u64]) -> u64 {
        let before = self.vdisk().counters.kept_hits.get();
        units.iter().for_each(|unit| self.read_unit(*unit));
        self.vdisk().counters.kept_hits.get() - before
    }

    /// Reads some units so often that they are kept, and waits until they are.
    fn warm(&self, units: &[u64]) {
        self.read_units(units);
        self.read_units(units);
        self.pass(1);
    }

    fn pass(&self, secs: u64) {
        self.rig.world.run_until(Nanos::secs(secs), || false);
    }

    /// Requests that the disks other than `ssd` were asked to read.
    fn reads_of_others(&self, ssd: usize) -> u64 {
        let others = self.rig.disks.iter().enumerate().filter(|(no, _)| *no != ssd);
        others.map(|(_, disk)| disk.stats().reads).sum()
    }

    /// Where the blocks of the read cache lie on their disks.
    fn blocks_of_shelf(&self) -> Vec<(usize, DiskOffset)> {
        let pool = self.rig.pool();
        let store = pool.store();
        let slabs: Vec<SlabAt> =
            store.map.borrow().read_caches.values().flat_map(|cache| cache.record.slabs()).collect();
        let blocks = |at: SlabAt| {
            let first = store.slab_offset(at, 0).0;
            (0..store.slab.0 / BLOCK).map(move |block| (at.disk.0 as usize, DiskOffset(first + block * BLOCK)))
        };
        slabs.into_iter().flat_map(blocks).collect()
    }

    fn reopen(&mut self) {
        self.rig.close().unwrap();
        self.rig.open(&mut self.rng).unwrap();
        self.pass(2);
    }
}

/// What was missed twice is read from the solid-state disk alone, also after a restart; after a crash it is right.
pub fn what_is_read_again_comes_from_the_cache_also_after_a_restart() {
    for (seed, resiliency) in resiliencies().into_iter().enumerate() {
        let (mut story, ssd) = Story::with_read_cache(1_100 + seed as u64, resiliency, ByteCount::mib(2));
        assert_eq!(story.read_units(&HOT), 0);
        story.pass(1);
        assert_eq!(story.read_units(&HOT), 0, "what is read once is not kept");
        story.pass(1);
        let before = story.reads_of_others(ssd);
        assert_eq!(story.read_units(&HOT), HOT.len() as u64);
        assert_eq!(story.reads_of_others(ssd), before, "no hard disk is asked");
        assert_eq!(story.shelf().unwrap().held, ByteCount(HOT.len() as u64 * UNIT));
        let vdisk = story.vdisk();
        let told = story.rig.run(async move { vdisk.explain_read(VirtualOffset(3 * UNIT), 4096).await.unwrap() });
        assert!(told.iter().any(|line| line.contains("read cache hit: 4 KiB at")), "{told:?}");
        // A stream passes by.
        let filled = story.shelf().unwrap().counters.filled;
        (0..3).for_each(|_| story.prove_bytes());
        story.pass(1);
        assert_eq!(story.shelf().unwrap().counters.filled, filled);
        story.reopen();
        assert_eq!(story.read_units(&HOT), HOT.len() as u64, "all of it is found again");
        story.prove();
        story.crash();
        story.pass(2);
        assert!(story.read_units(&HOT) > 0, "what was there before the crash still is, as far as it was durable");
        story.prove();
        story.set_read_cache(ByteCount::ZERO, 0);
        assert!(story.shelf().is_none() && story.read_units(&HOT) == 0);
        story.pass(5);
        story.prove();
        let pool = story.rig.pool();
        let free = pool.store().map.borrow().disks[&DiskNo(ssd as u16)].free.is_full();
        assert!(free, "its slabs are free");
    }
}

/// Whatever lies where the cache was written: it is proven, and dropped where it is wrong.
pub fn what_is_wrong_in_a_cache_is_dropped_and_the_disks_are_read() {
    let (story, ssd) = Story::with_read_cache(1_110, PARITY, ByteCount::mib(1));
    story.warm(&HOT);
    assert_eq!(story.read_units(&HOT), HOT.len() as u64);
    // Nobody flushes the disk for the sake of the cache; what it has taken hides what rots below.
    story.rig.disks[ssd].protect(true);
    for (no, at) in story.blocks_of_shelf() {
        assert_eq!(no, ssd);
        story.rig.disks[no].rot(at);
    }
    assert_eq!(story.read_units(&HOT), 0);
    let shelf = story.shelf().unwrap();
    assert_eq!(shelf.counters.unproven, HOT.len() as u64);
    story.pass(1);
    assert_eq!(story.read_units(&HOT), HOT.len() as u64, "it is kept anew");
    story.rig.disks[ssd].protect(true);
    for (no, at) in story.blocks_of_shelf() {
        story.rig.disks[no].spoil(at);
    }
    assert_eq!(story.read_units(&HOT), 0, "what cannot be read is not there");
    assert!(story.rig.pool().info().disks[ssd].counters.bad_blocks > 0, "and is counted against the disk");
    story.prove_bytes();
}

/// What was written anew lies elsewhere; what had its place before is not read there.
pub fn what_was_written_anew_is_not_read_from_the_cache() {
    for seed in 0..5 {
        let (mut story, _) = Story::with_read_cache(1_120 + seed, resiliencies()[seed as usize], ByteCount::mib(2));
        let all: Vec<u64> = (0..200).map(|nth| nth * 5).collect();
        for round in 0..6 {
            story.warm(&all);
            assert!(story.read_units(&all) > 100);
            let units = story.units();
            story.write(0, units, 100 + round);
            story.flush();
            story.checkpoint();
            story.read_units(&all);
            story.scatter(60, 1_000 + round * 100);
            story.flush();
            story.destage();
            story.read_units(&all);
        }
        story.prove();
        story.crash();
        story.pass(2);
        story.read_units(&all);
        story.prove();
    }
}

/// Nobody waits for a disk of the cache: neither for what is written there, nor for what it does not answer.
pub fn a_disk_of_a_cache_that_does_not_answer_delays_no_read() {
    let (story, ssd) = Story::with_read_cache(1_130, Resiliency::Mirror { copies: 2 }, ByteCount::mib(2));
    story.read_units(&HOT);
    let began = story.rig.world.now();
    story.rig.disks[ssd].stall(Nanos::secs(20));
    story.read_units(&HOT);
    story.pass(1);
    story.read_units(&HOT);
    let took = story.rig.world.now().since(began);
    assert!(took < Nanos::secs(10), "{took:?}: who reads waits for what is written");
    story.pass(40);
    story.warm(&HOT);
    assert_eq!(story.read_units(&HOT), HOT.len() as u64);
    let began = story.rig.world.now();
    story.rig.disks[ssd].stall(Nanos::secs(20));
    story.read_units(&HOT);
    let took = story.rig.world.now().since(began);
    assert!(
        took >= Nanos::secs(1) && took < Nanos::secs(10),
        "{took:?}: one waits for the read timeout, the rest do not"
    );
    story.pass(40);
    assert!(story.read_units(&HOT) > 0, "it is read again when it answers again");
    story.prove();
}

/// What lies on the disks is judged there, whatever the cache has of it.
pub fn a_check_reads_the_disks_and_not_the_cache() {
    let (story, ssd) = Story::with_read_cache(1_140, PARITY, ByteCount::mib(2));
    // Whole strips, as a check reads them.
    let read_strips = |story: &Story| {
        let before = story.vdisk().counters.kept_hits.get();
        for strip in 0..6 {
            let vdisk = story.vdisk();
            story.rig.run(async move {
                let mut bytes = vec![0; 4 * UNIT as usize];
                vdisk.read(VirtualOffset(strip * 40 * UNIT), &mut bytes).await.unwrap();
            });
        }
        story.vdisk().counters.kept_hits.get() - before
    };
    read_strips(&story);
    read_strips(&story);
    story.pass(1);
    assert_eq!(read_strips(&story), 6);
    let pool = story.rig.pool();
    let mut rotten = 0;
    let slabs: Vec<SlabAt> = {
        let map = pool.store().map.borrow();
        let data = map.segments.values().filter(|segment| !segment.mapped.is_empty());
        data.flat_map(|segment| segment.record.slabs.iter().flatten().copied().collect::<Vec<_>>()).collect()
    };
    for at in slabs.into_iter().filter(|at| at.disk == DiskNo(0)) {
        let first = pool.store().slab_offset(at, 0).0;
        for block in 0..pool.store().slab.0 / BLOCK {
            story.rig.disks[0].rot(DiskOffset(first + block * BLOCK));
            rotten += 1;
        }
    }
    let checked = pool.clone();
    let report = story.rig.run(async move { checked.check(false).await.unwrap() });
    let in_use = report.bytes.0 / story.layout.slots() as u64 / BLOCK;
    assert!(rotten > 0 && report.bad_blocks > 0 && report.curable_blocks == report.bad_blocks, "{report:?}");
    assert!(report.bad_blocks >= in_use / 2, "of {in_use} blocks of a disk, about: {report:?}");
    let scrubbed = pool.clone();
    let report = story.rig.run(async move { scrubbed.check(true).await.unwrap() });
    assert_eq!(report.healed_blocks, report.bad_blocks, "{report:?}");
    // What a check took from the cache would be bad yet, and seen without it.
    story.set_read_cache(ByteCount::ZERO, 0);
    let report = story.rig.run(async move { pool.check(false).await.unwrap() });
    assert!(report.is_sound() && report.bad_blocks == 0, "{report:?}");
    assert!(!story.rig.disks[ssd].is_gone());
}

/// The slabs of a cache are nobody else's, also after a crash; they are not free while something is written there; and
/// who does not know read caches does not open the pool.
pub fn the_slabs_of_a_cache_are_its_own_until_the_last_write_there_has_ended() {
    // The log lies on the others.
    let mut story = Story::behind_ssd(1_150, PARITY, 4);
    let ssd = story.rig.members + 3;
    assert!(!story.labels_say(FEATURE_READ_CACHES));
    story.set_read_cache(ByteCount::mib(3), 1 << ssd);
    assert!(story.labels_say(FEATURE_READ_CACHES), "who does not know read caches must not open the pool");
    story.prove();
    story.crash();
    story.pass(1);
    let pool = story.rig.pool();
    let taken = |story: &Story| {
        let pool = story.rig.pool();
        let map = pool.store().map.borrow();
        let disk = &map.disks[&DiskNo(ssd as u16)];
        disk.free.len() - disk.free.count()
    };
    assert_eq!((taken(&story), story.shelf().unwrap().capacity), (3, ByteCount::mib(3)));
    story.prove();
    story.read_units(&HOT);
    story.read_units(&HOT[..12]);
    story.rig.disks[ssd].stall(Nanos::secs(10));
    story.pass(1);
    let discards = story.rig.disks[ssd].stats().discards;
    let setting = pool.clone();
    story.rig.world.spawn("none", Box::pin(async move { setting.vdisk_set_read_cache("vdisk", None).await.unwrap() }));
    story.pass(3);
    let logged = pool.store().log.durable() == pool.store().log.seq();
    assert!(logged && story.shelf().is_none() && taken(&story) == 3);
    assert_eq!(story.rig.disks[ssd].stats().discards, discards, "something is being written there");
    story.pass(20);
    assert_eq!(taken(&story), 0);
    story.prove();
}

/// A disk of the cache that is gone costs hits, and nothing else; what the cache has is there even where the disks
/// have lost it.
pub fn a_cache_whose_disk_goes_shrinks_and_costs_nothing() {
    let mut story = Story::behind_ssd(1_160, Resiliency::Simple, 2);
    let (first, second) = (story.rig.members, story.rig.members + 1);
    story.set_read_cache(ByteCount::mib(4), 0);
    story.warm(&HOT);
    assert_eq!(story.read_units(&HOT), HOT.len() as u64);
    // The disks that have it are away.
    let hard: Vec<usize> = (0..story.rig.members).collect();
    story.rig.disks[hard[0]].vanish();
    assert_eq!(story.read_units(&HOT), HOT.len() as u64);
    story.rig.disks[hard[0]].return_intact(&mut story.rng);
    story.pass(1);
    story.come_back();
    for ssd in [first, second] {
        story.rig.disks[ssd].vanish();
        story.read_units(&HOT);
        story.flush();
        assert_eq!(story.rig.pool().info().vdisks[0].health, Health::Healthy, "no data is missing");
        story.rig.disks[ssd].return_intact(&mut story.rng);
        story.come_back();
        story.pass(5);
    }
    story.warm(&HOT);
    assert!(story.read_units(&HOT) > 0);
    story.prove();
    for (ssd, left) in [(first, Some(ByteCount::mib(2))), (second, None)] {
        let (pool, no) = (story.rig.pool(), DiskNo(ssd as u16));
        let removed = story.rig.run(async move {
            let job = pool.disk_remove(no, None, 0).await.unwrap();
            pool.job_wait(job).await.unwrap()
        });
        assert_eq!(removed.state, JobState::Done, "{removed:?}");
        assert_eq!(story.shelf().map(|shelf| shelf.capacity), left);
        story.warm(&HOT);
        story.prove();
    }
    story.rig.close().unwrap();
    story.rig.disks[first..].iter().for_each(|disk| disk.vanish());
    story.rig.open(&mut story.rng).unwrap();
    story.prove();
}

/// It comes, grows, shrinks, moves and goes; its disk is put back from a copy; the power goes at any moment.
pub fn a_crash_at_any_moment_of_a_read_cache_makes_no_read_wrong() {
    for seed in sample(0..40) {
        let mut story = Story::behind_ssd(1_200 + seed, resiliencies()[seed as usize % 5], 2);
        let ssds = [story.rig.members, story.rig.members + 1];
        let mut copies = ssds.map(|ssd| story.rig.disks[ssd].image());
        for round in 0..4 {
            let hot: Vec<u64> = (0..40).map(|_| story.rng.below(1024)).collect();
            let size = ByteCount::mib(story.rng.below(4));
            let disks = ssds.iter().fold(0, |set, ssd| set | u64::from(story.rng.chance(0.6)) << ssd);
            story.warm(&hot);
            story.scatter(20, 1_000 + round * 1_000);
            story.flush();
            let (pool, ask) = (story.rig.pool(), ReadCacheAsk { size, disks: DiskSet::from_words(&[disks]) });
            let ask = (size > ByteCount::ZERO).then_some(ask);
            let setting = async move {
                let _ = pool.vdisk_set_read_cache("vdisk", ask.as_ref()).await;
                let _ = pool.checkpoint().await;
            };
            story.rig.world.spawn("set", Box::pin(setting));
            let steps = Nanos(story.rng.below(150_000_000));
            story.rig.world.run_until(steps, || false);
            story.warm(&hot);
            story.read_units(&hot);
            if story.rng.chance(0.5) {
                story.crash();
            } else {
                story.rig.close().unwrap();
                if story.rng.chance(0.3) {
                    let at = story.rng.below(2) as usize;
                    let now = story.rig.disks[ssds[at]].image();
                    story.rig.disks[ssds[at]].vanish();
                    story.rig.disks[ssds[at]].return_as(&copies[at]);
                    copies[at] = now;
                }
                story.rig.open(&mut story.rng).unwrap();
            }
            let rests = story.rng.below(3);
            story.pass(rests);
            story.read_units(&hot);
            story.prove_bytes();
        }
        // A disk that was put back is brought what it lacks before the pool is as it should be.
        story.pass(60);
        story.prove();
    }
}

/// A cache that is too small for what is read keeps what is wanted; one without memory for its index has less.
pub fn a_cache_that_is_too_small_writes_again_what_is_wanted() {
    for memory in [128 << 20, 100 * 64] {
        let mut story = Story::behind_ssd(1_170, PARITY, 1);
        story.rig.close().unwrap();
        story.rig.options.tuning.shelf_memory = memory;
        story.rig.open(&mut story.rng).unwrap();
        story.set_read_cache(ByteCount::mib(2), 0);
        story.warm(&HOT);
        // All the rest, in an order that no stream has, twice and again; the hot ones all the time.
        let mut hits = 0;
        for round in 0..3 {
            for nth in 0..1024 {
                let unit = (nth * 389 + round) % 1024;
                story.read_units(&[unit, unit]);
                if nth % 64 == 63 {
                    hits += story.read_units(&HOT);
                    story.pass(1);
                }
            }
        }
        let shelf = story.shelf().unwrap();
        let asked = 3 * 16 * HOT.len() as u64;
        assert!(shelf.held <= shelf.capacity && shelf.memory < 5 << 20, "{shelf:?}");
        if memory > 1 << 20 {
            assert!(hits * 10 >= asked * 7, "{hits} of {asked} were hits: {shelf:?}");
            assert!(shelf.counters.again > 0 && shelf.counters.again < shelf.counters.filled, "{shelf:?}");
        } else {
            assert!(shelf.held.0 <= 100 * UNIT, "{shelf:?}");
        }
        story.prove();
        story.reopen();
        assert!(story.read_units(&HOT) > 0);
        story.prove();
    }
}

/// What cannot be is refused, and says what can.
pub fn a_read_cache_that_cannot_be_is_refused() {
    let story = Story::behind_ssd(1_180, PARITY, 0);
    let refused = |story: &Story, size: ByteCount, disks: u64| {
        let (pool, ask) = (story.rig.pool(), ReadCacheAsk { size, disks: DiskSet::from_words(&[disks]) });
        story.rig.run(async move { pool.vdisk_set_read_cache("vdisk", Some(&ask)).await.unwrap_err() })
    };
    let none = refused(&story, ByteCount::mib(1), 0);
    assert_eq!(none.kind, ErrorKind::NotPossible, "{none}");
    assert!(none.context.contains("no solid-state disk that takes data"), "{none}");
    let large = refused(&story, ByteCount::gib(1), 1);
    assert_eq!(large.kind, ErrorKind::InvalidInput, "{large}");
    assert!(!story.labels_say(FEATURE_READ_CACHES));
    story.set_read_cache(ByteCount(5), 1);
    assert_eq!(story.shelf().unwrap().capacity, ByteCount::mib(1), "whole slabs are taken");
    story.prove();
}
