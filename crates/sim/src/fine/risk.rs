//! Stories of write-back caches that survive less than what lies below them: what they may lose, and what they may not.

use super::{PARITY, Story, UNIT, bytes_of};
use crate::rig::resiliencies;
use crate::sample::sample;
use std::collections::BTreeSet;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::{ErrorKind, Result};
use weft_engine::format::record::CacheChoice;
use weft_engine::health::Health;
use weft_engine::pool::cache::CacheAsk;
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};

impl Story {
    /// Asks for a cache of 1 MiB on these disks (bits; 0: nobody says).
    fn ask_for(&self, disks: u64, may_lose: bool) -> Result<()> {
        let (pool, ask) =
            (self.rig.pool(), CacheAsk { size: ByteCount::mib(1), disks: DiskSet::from_words(&[disks]), may_lose });
        self.rig.run(async move { pool.vdisk_set_cache("vdisk", Some(&ask), CacheChoice::Typed).await })
    }

    /// Units that cannot be read. All others are what was written last.
    fn unreadable(&self) -> BTreeSet<u64> {
        let lost = |unit: &u64| {
            let (vdisk, at) = (self.vdisk(), VirtualOffset(unit * UNIT));
            let found = self.rig.run(async move {
                let mut bytes = vec![0xAA; UNIT as usize];
                vdisk.read(at, &mut bytes).await.map(|()| bytes)
            });
            let word = self.words.get(unit).copied().unwrap_or(0);
            assert!(found.as_ref().is_ok_and(|bytes| *bytes == bytes_of(word, UNIT)) || found.is_err(), "unit {unit}");
            found.is_err()
        };
        (0..self.units()).filter(lost).collect()
    }

    /// How many failures it survives: what is written, and new writes.
    fn survives(&self) -> (u32, Option<u32>) {
        let vdisk = &self.rig.pool().info().vdisks[0];
        (vdisk.failures_left, vdisk.failures_new)
    }
}

/// Only who says so gets a cache that survives less. It has as many copies as there are disks, what it survives is
/// told, and a safe one takes its place once there are disks for that.
pub fn a_cache_may_survive_less_where_that_is_said() {
    for (seed, resiliency) in resiliencies().into_iter().enumerate() {
        let mut story = Story::new(1_200 + seed as u64, resiliency);
        let (failures, all) = (story.layout.failures(), (1 << story.rig.disks.len()) - 1);
        story.fill(1);
        for copies in 1..=failures {
            let disks = (1 << copies) - 1;
            assert_eq!(story.ask_for(disks, false).unwrap_err().kind, ErrorKind::NotPossible);
            story.ask_for(disks, true).unwrap();
            let cache = story.vdisk().cache().unwrap();
            assert_eq!((cache.layout.slots(), cache.disks), (copies, DiskSet::from_words(&[disks])));
            story.rests_on(disks, 1_000 * copies as u64);
            assert_eq!(story.survives(), (copies as u32 - 1, Some(copies as u32 - 1)));
        }
        // With disks enough it is as safe as any.
        story.ask_for(all, true).unwrap();
        assert_eq!(story.vdisk().cache().unwrap().layout.failures(), failures);
        if failures > 0 {
            story.ask_for(1, true).unwrap();
        }
        story.ask_for(0, false).unwrap();
        assert_eq!(story.vdisk().cache().unwrap().layout.failures(), failures, "not where the other one was");
        story.until_empty();
        story.rig.world.run_until(Nanos::secs(5), || false);
        assert_eq!(story.survives(), (failures as u32, Some(failures as u32)));
        story.prove();
    }
}

/// Without its disk, what rested in such a cache cannot be read, and never is an older version read instead; all else
/// is served. The disk is back: all of it is there, but for what was written anew meanwhile.
pub fn what_rested_on_a_lost_disk_is_an_error_until_it_is_back() {
    for seed in sample(0..12) {
        let mut story = Story::with_more(1_220 + seed, PARITY, 0);
        let disk = story.rig.disks.len() - 1;
        story.fill(1);
        story.ask_for(1 << disk, true).unwrap();
        story.scatter(60, 1_000);
        story.destage();
        story.flush();
        assert_eq!(story.disks_of_packs(), 1 << disk);
        let rested = story.packed();
        assert!(rested > 30, "{rested} units");
        let at_once = seed % 2 == 0;
        if at_once {
            // The daemon runs on; what it still has in memory is served.
            story.rig.disks[disk].vanish();
            story.rig.world.run_until(Nanos::secs(2), || false);
        } else {
            story.rig.power_cut(&mut story.rng);
            story.rig.disks[disk].vanish();
            story.rig.open(&mut story.rng).unwrap();
        }
        let lost = story.unreadable();
        assert!(lost.iter().all(|unit| story.words[unit] >= 1_000), "only what rested there: {lost:?}");
        assert!(at_once || lost.len() as u64 == rested, "{} of {rested} units", lost.len());
        let health = story.rig.pool().info().vdisks[0].health;
        assert_eq!((health, story.survives().0), (Health::Unhealthy, 0));
        // Some of the lost units are written anew, and stripes beside them, which have lost units or have none.
        let anew: Vec<u64> = lost.iter().copied().step_by(3).collect();
        anew.iter().for_each(|unit| story.write(*unit, 1, 7_000 + unit));
        story.flush();
        story.destage();
        story.scatter(40, 20_000);
        let per = story.per_stripe();
        (0..4).for_each(|stripe| story.write(stripe * 5 * per, per, 9_000 + stripe));
        story.flush();
        story.destage();
        let still = story.unreadable();
        assert!(still.is_subset(&lost), "nothing more is lost: {still:?} of {lost:?}");
        assert!(still.iter().all(|unit| story.words[unit] < 7_000), "what was written anew is there: {still:?}");
        if seed % 3 == 0 {
            story.rig.power_cut(&mut story.rng);
            story.rig.open(&mut story.rng).unwrap();
            assert_eq!(story.unreadable(), still, "after a crash without the disk");
        }
        story.rig.disks[disk].return_intact(&mut story.rng);
        story.come_back();
        story.rig.world.run_until(Nanos::secs(60), || false);
        assert_eq!(story.unreadable(), BTreeSet::new(), "the disk is back");
        story.prove();
        assert_eq!(story.rig.pool().info().vdisks[0].health, Health::Healthy);
        story.crash();
        story.prove();
    }
}
