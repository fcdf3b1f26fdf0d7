//! Stories of write-back caches: packed stripes on disks of their own choice.

use super::{PARITY, Story};
use crate::rig::resiliencies;
use crate::sample::sample;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::ErrorKind;
use weft_engine::format::record::{CacheChoice, Media, OWNER_METADATA, Usage};
use weft_engine::format::{FEATURE_CACHES, Id};
use weft_engine::geometry::Resiliency;
use weft_engine::io::Disk;
use weft_engine::pool::cache::{CacheAsk, CacheTurn, DisksThen};
use weft_engine::pool::job::JobState;
use weft_engine::pool::{DiskChange, Instead, NewDisk};
use weft_engine::units::{ByteCount, DiskNo, Nanos};
use weft_engine::world::World;

impl Story {
    /// A story of a virtual disk where nothing is packed but in a cache.
    fn uncached(seed: u64, resiliency: Resiliency) -> Story {
        let mut story = Story::new(seed, resiliency);
        story.rig.close().unwrap();
        story.rig.options.tuning.fine_share = 0;
        story.rig.open(&mut story.rng).unwrap();
        story
    }

    /// A story of a pool of hard disks, a virtual disk whose cache is the pool's to choose, and three disks more.
    fn unchosen(seed: u64, resiliency: Resiliency) -> Story {
        let mut story = Story::with_more(seed, resiliency, 3);
        story.rig.close().unwrap();
        story.rig.options.tuning.fine_share = 0;
        story.rig.open(&mut story.rng).unwrap();
        let hdd = DiskChange { media: Some(Media::Hdd), ..DiskChange::default() };
        (0..story.rig.members as u16).for_each(|no| story.set_disk(no, hdd.clone()));
        story
    }

    fn set_disk(&self, no: u16, change: DiskChange) {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.disk_set(DiskNo(no), change).await.unwrap() });
    }

    fn use_as(&self, no: u16, usage: Usage) {
        self.set_disk(no, DiskChange { usage: Some(usage), ..DiskChange::default() });
    }

    /// Has a solid-state disk join that takes what names it only.
    fn join(&self, at: usize) -> u16 {
        let disk = Rc::new(self.rig.disks[at].clone());
        let new = NewDisk { disk, id: Id([100 + at as u8; 16]), name: format!("s{at}"), media: Media::Ssd };
        let pool = self.rig.pool();
        self.rig.run(async move { pool.disk_add(new, Usage::ManualSelect).await.unwrap().0 })
    }

    fn review(&self) -> Vec<CacheTurn> {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.review_caches().await.unwrap() })
    }

    /// Writes here and there, and sees that it rests on these disks (bits); 0: nowhere.
    pub(super) fn rests_on(&mut self, disks: u64, word: u64) {
        self.until_empty();
        // Who reads what was there lets go of it.
        self.rig.world.run_until(Nanos::secs(5), || false);
        self.scatter(60, word);
        self.destage();
        assert_eq!((self.packed() > 30, self.disks_of_packs()), (disks != 0, disks), "of {}", self.layout);
        self.prove();
        self.flush();
        self.crash();
        self.prove();
    }

    /// Sets a cache of `size` on `disks` (bits); 0 bytes: none.
    fn set_cache(&self, size: ByteCount, disks: u64) {
        let (pool, ask) = (self.rig.pool(), CacheAsk { size, disks: DiskSet::from_words(&[disks]), may_lose: false });
        let ask = (size > ByteCount::ZERO).then_some(ask);
        self.rig.run(async move { pool.vdisk_set_cache("vdisk", ask.as_ref(), CacheChoice::Typed).await.unwrap() });
    }

    /// The disks (bits) that packed stripes lie on.
    pub(super) fn disks_of_packs(&self) -> u64 {
        let pool = self.rig.pool();
        let map = pool.store().map.borrow();
        let packs: Vec<_> = map.tables.values().filter(|table| table.record.packs.is_some()).collect();
        let owned = map.segments.values().filter(|segment| segment.record.owner != OWNER_METADATA);
        let ours = owned.filter(|segment| packs.iter().any(|table| table.record.id == segment.record.owner));
        ours.flat_map(|segment| segment.record.slabs.iter().flatten()).fold(0, |set, at| set | 1 << at.disk.0)
    }

    /// Waits until nothing is packed.
    pub(super) fn until_empty(&self) {
        let vdisk = self.vdisk();
        self.rig.world.run_until(Nanos::secs(60), move || vdisk.packed().1 == 0);
        assert_eq!(self.vdisk().packed().1, 0, "the cache empties itself");
    }
}

/// Small writes go to the cache's disks, with as many copies as failures are survived and one; they are read there,
/// also after a crash; a cache that is to lie elsewhere, or to be no more, empties itself.
pub fn small_writes_lie_on_the_disks_of_the_cache_until_it_is_to_lie_elsewhere() {
    for (seed, resiliency) in resiliencies().into_iter().enumerate() {
        let mut story = Story::uncached(800 + seed as u64, resiliency);
        let copies = story.layout.failures() + 1;
        let (first, second) = ((1 << copies) - 1, ((1 << copies) - 1) << 1);
        story.fill(1);
        story.set_cache(ByteCount::mib(1), first);
        story.scatter(60, 1000);
        story.destage();
        assert!(story.packed() > 30, "{} units of {}", story.packed(), story.layout);
        assert_eq!(story.disks_of_packs(), first);
        assert_eq!(story.vdisk().counters.read_for_write.get(), 0, "nothing was read for a small write");
        story.prove();
        let counters = &story.vdisk().counters;
        assert_eq!(counters.read_packed.get(), story.packed() * 4096, "what rests there is read there");
        assert!(counters.packed_parts.get() <= 60 && counters.packed_parts.get() * 4096 <= counters.packed.get());
        assert_eq!((counters.destaged.get(), counters.destaged_stripes.get()), (0, 0));
        story.flush();
        story.crash();
        assert_eq!((story.packed() > 30, story.disks_of_packs()), (true, first));
        story.prove();
        story.set_cache(ByteCount::mib(1), second);
        story.scatter(10, 2000);
        story.destage();
        story.until_empty();
        story.prove();
        // Who reads what was there lets go of it, then the new one is made.
        story.rig.world.run_until(Nanos::secs(5), || false);
        story.scatter(60, 3000);
        story.destage();
        assert_eq!((story.packed() > 30, story.disks_of_packs()), (true, second));
        story.prove();
        story.flush();
        story.crash();
        let (rests, before) = (story.packed() * 4096, story.vdisk().counters.destaged.get());
        story.set_cache(ByteCount::ZERO, 0);
        story.until_empty();
        assert_eq!(story.vdisk().counters.destaged.get() - before, rests, "all of it is brought down");
        let counters = &story.vdisk().counters;
        assert!(counters.destaged_stripes.get() <= counters.destaged.get() / 4096);
        story.flush();
        story.crash();
        assert_eq!((story.packed(), story.vdisk().cache()), (0, None));
        story.prove();
    }
}

/// A smaller cache holds less at once, a larger one more; the power goes at any moment of it.
pub fn a_cache_grows_shrinks_moves_and_goes_and_a_crash_at_any_moment_loses_nothing() {
    for seed in sample(0..40) {
        let mut story = Story::uncached(900 + seed, resiliencies()[seed as usize % 5]);
        story.fill(1);
        let all = (1 << story.rig.disks.len()) - 1;
        for round in 0..4 {
            let size = [ByteCount::ZERO, ByteCount::kib(256), ByteCount::kib(512), ByteCount::mib(1)]
                [story.rng.below(4) as usize];
            let disks = if story.rng.chance(0.5) { 0 } else { all & !(1 << story.rng.below(2)) };
            let (pool, ask) =
                (story.rig.pool(), CacheAsk { size, disks: DiskSet::from_words(&[disks]), may_lose: false });
            let ask = (size > ByteCount::ZERO).then_some(ask);
            story.scatter(30, 1_000 + round * 1_000);
            story.flush();
            story.rig.world.spawn(
                "cache",
                Box::pin(async move {
                    let _ = pool.vdisk_set_cache("vdisk", ask.as_ref(), CacheChoice::Typed).await;
                    pool.destage_everything().await;
                    let _ = pool.checkpoint().await;
                }),
            );
            let steps = Nanos(story.rng.below(150_000_000));
            story.rig.world.run_until(steps, || false);
            story.crash();
            story.prove();
        }
    }
}

/// A cache one of whose disks fails loses nothing, takes nothing more, and empties itself.
pub fn a_cache_that_lacks_redundancy_takes_nothing_and_empties_itself() {
    let mut story = Story::uncached(950, PARITY);
    story.fill(1);
    story.set_cache(ByteCount::mib(1), 0b11);
    story.scatter(60, 1000);
    story.destage();
    assert!(story.packed() > 30);
    story.flush();
    story.rig.disks[1].vanish();
    story.scatter(60, 2000);
    story.flush();
    assert!(!story.rig.pool().store().has_disk(DiskNo(1)));
    story.until_empty();
    story.destage();
    assert_eq!(story.packed(), 0, "small writes are merged");
    story.prove_bytes();
    story.rig.disks[1].return_intact(&mut story.rng);
    story.come_back();
    story.rig.world.run_until(Nanos::secs(30), || false);
    story.scatter(60, 3000);
    story.destage();
    assert!(story.packed() > 30, "it is used again");
    story.prove();
}

/// A disk without which a cache has too few leaves all the same: what lies there is brought down first.
pub fn a_disk_of_a_cache_leaves_once_that_has_emptied_itself() {
    let mut story = Story::uncached(955, PARITY);
    story.fill(1);
    let last = story.rig.disks.len() as u64 - 1;
    story.set_cache(ByteCount::mib(1), 1 << last | 1);
    story.scatter(60, 1000);
    story.destage();
    assert!(story.packed() > 30 && story.disks_of_packs() >> last & 1 == 1);
    let no = DiskNo(last as u16);
    let pool = story.rig.pool();
    let leaving = pool.plan_disk_remove(no, Instead::Nothing).unwrap();
    assert_eq!(leaving.caches, ["vdisk"]);
    let removed = story.rig.run(async move {
        let job = pool.disk_remove(no, None, 0).await.unwrap();
        pool.job_wait(job).await.unwrap()
    });
    assert_eq!(removed.state, JobState::Done, "{removed:?}");
    assert_eq!((story.packed(), story.rig.pool().info().disks.len() as u64), (0, last));
    story.scatter(20, 2000);
    story.destage();
    assert_eq!(story.packed(), 0, "one disk is too few");
    story.prove();
    story.rig.close().unwrap();
    story.rig.disks.last().unwrap().vanish();
    story.rig.open(&mut story.rng).unwrap();
    story.prove();
}

/// A cache that survives less than what lies below it is refused, and so is one that its disks have no room for.
pub fn a_cache_that_survives_less_is_refused() {
    let story = Story::uncached(960, Resiliency::Parity { parity: 2 });
    let refused = |size: ByteCount, disks: u64| {
        let (pool, ask) = (story.rig.pool(), CacheAsk { size, disks: DiskSet::from_words(&[disks]), may_lose: false });
        story.rig.run(async move { pool.vdisk_set_cache("vdisk", Some(&ask), CacheChoice::Typed).await.unwrap_err() })
    };
    let few = refused(ByteCount::mib(1), 0b11);
    assert_eq!(few.kind, ErrorKind::NotPossible, "{few}");
    assert!(few.context.contains("needs 3 disks; of those named 2 take data"), "{few}");
    for size in [ByteCount(4096), ByteCount::gib(1)] {
        let wrong = refused(size, 0);
        assert_eq!(wrong.kind, ErrorKind::InvalidInput, "{wrong}");
    }
    assert!(!story.labels_say(FEATURE_CACHES));
    story.set_cache(ByteCount::mib(1), 0b111);
    assert!(story.labels_say(FEATURE_CACHES), "who does not know caches must not read the pool");
}

/// A cache that is the pool's to choose comes with solid-state disks, stays where there are more of them, moves when
/// too few of its own are left, goes when there are too few at all, and comes again. What the owner says holds.
pub fn a_cache_that_the_pool_chooses_follows_its_disks_and_a_typed_one_does_not() {
    for (seed, resiliency) in resiliencies().into_iter().enumerate() {
        let mut story = Story::unchosen(970 + seed as u64, resiliency);
        let (needed, first) = (story.layout.failures() + 1, story.rig.members);
        if needed > 2 {
            // Three disks in all: there is none to move to.
            continue;
        }
        story.fill(1);
        assert_eq!(story.review(), []);
        let capacity = story.rig.disks[first].shape().capacity;
        let new = |nth: usize| (capacity, Media::Ssd, format!("s{}", first + nth));
        let pool = story.rig.pool();
        let planned = pool.plan_caches_then(&DisksThen::Joined((0..needed).map(new).collect(), Usage::ManualSelect));
        assert_eq!((planned.len(), pool.info().disks.len()), (1, first), "a plan changes nothing");
        assert_eq!(pool.plan_caches(), []);
        let mut disks: Vec<u16> = (0..needed).map(|nth| story.join(first + nth)).collect();
        let on = |disks: &[u16]| disks.iter().fold(0, |set, no| set | 1u64 << no);
        assert_eq!(story.review(), planned);
        assert_eq!(story.vdisk().cache().unwrap().disks, DiskSet::from_words(&[on(&disks)]));
        story.rests_on(on(&disks), 1_000);
        // One more changes nothing, and takes the place of one that is to be emptied.
        disks.push(story.join(first + needed));
        assert_eq!(story.review(), []);
        story.use_as(disks[0], Usage::Retired);
        assert_eq!(story.review().len(), 1);
        assert_eq!(story.review(), []);
        story.rests_on(on(&disks[1..]), 2_000);
        story.use_as(disks[1], Usage::Retired);
        assert_eq!(story.review()[0].to, None);
        story.rests_on(0, 3_000);
        story.set_cache(ByteCount::ZERO, 0);
        for no in &disks {
            story.use_as(*no, Usage::ManualSelect);
        }
        story.crash();
        assert_eq!(story.review(), [], "the owner said that there is to be none");
        story.rests_on(0, 4_000);
        let pool = story.rig.pool();
        story.rig.run(async move { pool.vdisk_set_cache("vdisk", None, CacheChoice::Auto).await.unwrap() });
        assert_eq!(story.review().len(), 1);
        assert_eq!(story.vdisk().cache().unwrap().layout.slots(), needed);
    }
}

/// The power goes at any moment while disks come to be other than they were and caches are chosen anew.
pub fn a_crash_while_caches_are_chosen_anew_loses_nothing() {
    for seed in sample(0..30) {
        let mut story = Story::unchosen(1_000 + seed, resiliencies()[seed as usize % 5]);
        story.fill(1);
        let disks: Vec<u16> = (0..3).map(|nth| story.join(story.rig.members + nth)).collect();
        for round in 0..4 {
            story.scatter(30, 1_000 + round * 1_000);
            story.flush();
            let usages = [Usage::ManualSelect, Usage::ManualSelect, Usage::Retired, Usage::AutoSelect];
            let (no, usage) = (DiskNo(*story.rng.pick(&disks)), *story.rng.pick(&usages));
            let pool = story.rig.pool();
            story.rig.world.spawn(
                "review",
                Box::pin(async move {
                    let _ = pool.disk_set(no, DiskChange { usage: Some(usage), ..DiskChange::default() }).await;
                    let _ = pool.review_caches().await;
                    pool.destage_everything().await;
                    let _ = pool.checkpoint().await;
                }),
            );
            let steps = Nanos(story.rng.below(150_000_000));
            story.rig.world.run_until(steps, || false);
            story.crash();
            story.prove();
        }
    }
}
