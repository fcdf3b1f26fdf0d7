//! Stories of fast tiers: stripes that lie with another layout, on other disks, and come and go by heat.

use super::{PARITY, Story, UNIT, bytes_of};
use crate::rig::{Rig, resiliencies};
use crate::sample::sample;
use crate::world::{Scheduling, SimWorld, Stop};
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::ErrorKind;
use weft_engine::format::FEATURE_TIERS;
use weft_engine::format::record::OWNER_METADATA;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::VdiskSpec;
use weft_engine::pool::job::{JobKind, JobState};
use weft_engine::pool::tier::TierAsk;
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::vdisk::tier::TierFill;

/// So long nobody has to ask for anything.
const IDLE: Nanos = Nanos::millis(200);
/// By then what can be moved is.
const ENDS: Nanos = Nanos::secs(1200);

impl Story {
    /// A virtual disk of `size` on the first disks of a pool, and as many disks for its tier as a mirror of its
    /// redundancy has copies, and one.
    pub(super) fn tiered(seed: u64, resiliency: Resiliency, size: ByteCount) -> Story {
        Story::tiered_on(seed, resiliency, size, ByteCount::mib(64))
    }

    /// [`Story::tiered`] on disks of this size.
    fn tiered_on(seed: u64, resiliency: Resiliency, size: ByteCount, capacity: ByteCount) -> Story {
        let world = SimWorld::new(seed, Scheduling::Random);
        let mut rng = world.rng("story");
        let columns = resiliency.columns_min().max(2);
        let layout = Layout::new(resiliency, columns, ByteCount::kib(16)).unwrap();
        let (below, above) = (layout.slots() + 1, layout.failures() + 2);
        let mut rig = Rig::of_kind(world, below + above, capacity, false);
        rig.options.tuning.fine_share = 0;
        rig.options.tuning.idle_land = IDLE;
        rig.options.tuning.buffer_memory = 8 << 20;
        rig.create(ByteCount::mib(1)).unwrap();
        rig.open(&mut rng).unwrap();
        let spec = VdiskSpec {
            name: "vdisk".into(),
            size,
            resiliency,
            columns: Some(columns),
            interleave: Some(ByteCount::kib(16)),
            fixed: false,
            sector: 512,
            disks: DiskSet::from_words(&[(1 << below) - 1]),
        };
        let story = Story { rig, rng, layout, words: BTreeMap::new() };
        let pool = story.rig.pool();
        story.rig.run(async move { pool.vdisk_create(&spec).await.map(drop).unwrap() });
        story
    }

    /// The disks (bits) for its tier.
    fn fast_disks(&self) -> u64 {
        let (below, above) = (self.layout.slots() + 1, self.layout.failures() + 2);
        ((1 << above) - 1) << below
    }

    fn set_tier_on(&self, size: ByteCount, disks: u64) {
        let (pool, ask) =
            (self.rig.pool(), TierAsk { size, disks: DiskSet::from_words(&[disks]), resiliency: None, columns: None });
        let ask = (size > ByteCount::ZERO).then_some(ask);
        self.rig.run(async move { pool.vdisk_set_tier("vdisk", ask.as_ref()).await.unwrap() });
    }

    pub(super) fn set_tier(&self, size: ByteCount) {
        self.set_tier_on(size, self.fast_disks());
    }

    fn fill_of_tier(&self) -> TierFill {
        self.vdisk().tier_fill().unwrap_or_default()
    }

    /// The disks (bits) that stripes of the fast tier lie on.
    fn disks_of_tier(&self) -> u64 {
        let pool = self.rig.pool();
        let map = pool.store().map.borrow();
        let tiers: Vec<_> = map.tables.values().filter(|table| table.record.tier.is_some()).collect();
        let owned = map.segments.values().filter(|segment| segment.record.owner != OWNER_METADATA);
        let ours = owned.filter(|segment| tiers.iter().any(|table| table.record.id == segment.record.owner));
        ours.flat_map(|segment| segment.record.slabs.iter().flatten()).fold(0, |set, at| set | 1 << at.disk.0)
    }

    /// Waits until no more lies in the tier than `most` bytes.
    pub(super) fn until_left(&self, most: u64) {
        let vdisk = self.vdisk();
        let left = move || vdisk.tier_fill().is_none_or(|fill| fill.used <= most);
        let stop = self.rig.world.run_until(ENDS, left);
        assert_eq!(stop, Stop::Done, "{:?} should be {most}", self.fill_of_tier());
    }

    /// Reads these units again and again, as clients do who seek.
    fn heat(&self, units: std::ops::Range<u64>, times: u64) {
        for nth in 0..times {
            for unit in units.clone() {
                let vdisk = self.vdisk();
                let offset = (unit * 7 + nth) % (units.end - units.start) + units.start;
                self.rig.run(async move {
                    let mut bytes = vec![0; UNIT as usize];
                    vdisk.read(VirtualOffset(offset * UNIT), &mut bytes).await.unwrap();
                });
            }
        }
    }

    fn pin(&self, bytes: std::ops::Range<u64>, pinned: bool) {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.vdisk_pin("vdisk", core::slice::from_ref(&bytes), pinned).await.unwrap() });
    }

    /// How many bytes of these units a read finds in the fast tier.
    fn fast_bytes(&self, units: std::ops::Range<u64>) -> u64 {
        let vdisk = self.vdisk();
        let before = vdisk.counters.read_fast.get();
        let len = (units.end - units.start) * UNIT;
        self.rig.run(async move {
            let mut bytes = vec![0; len as usize];
            vdisk.read(VirtualOffset(units.start * UNIT), &mut bytes).await.unwrap();
            vdisk.counters.read_fast.get() - before
        })
    }
}

/// What is written whole lies on the disks of the tier, until that is full, and then below; it is read there, also
/// after a crash. A tier that is to lie elsewhere, or to be no more, empties itself.
pub fn what_is_written_lies_in_the_tier_until_that_is_full_or_is_to_be_no_more() {
    for (seed, resiliency) in resiliencies().into_iter().enumerate() {
        let mut story = Story::tiered(1400 + seed as u64, resiliency, ByteCount::mib(8));
        story.set_tier(ByteCount::mib(4));
        story.fill(1);
        let fill = story.fill_of_tier();
        assert!(fill.used > (3 << 20) && fill.used <= fill.size, "{fill:?} of {}", story.layout);
        assert_eq!(story.disks_of_tier() & !story.fast_disks(), 0);
        story.prove();
        assert!(story.vdisk().counters.read_fast.get() > 0, "what lies there is read there");
        story.crash();
        story.prove();
        // At rest an eighth of it is free for what comes.
        story.until_left(7 << 19);
        story.prove();
        let copies = story.layout.failures() as u32 + 1;
        let other = story.fast_disks() & (story.fast_disks() - 1);
        assert!(other.count_ones() >= copies);
        story.set_tier_on(ByteCount::mib(4), other);
        story.until_left(0);
        story.prove();
        story.rig.world.run_until(Nanos::secs(5), || false);
        let unit = story.per_stripe();
        (0..8).for_each(|nth| story.write(nth * unit, unit, 100 + nth));
        story.flush();
        assert_eq!(story.disks_of_tier() & !other, 0, "it lies elsewhere now");
        assert!(story.fill_of_tier().used > 0);
        story.set_tier(ByteCount::ZERO);
        story.until_left(0);
        story.rig.world.run_until(Nanos::secs(5), || false);
        assert!(story.vdisk().tier_fill().is_none(), "it is gone");
        assert_eq!(story.disks_of_tier(), 0);
        story.crash();
        story.prove();
        assert!(story.labels_say(FEATURE_TIERS), "they say so for ever");
    }
}

/// What is sought out most comes to the tier, and stays there whatever is read once; what cools leaves. Then all is
/// still.
pub fn what_is_sought_out_comes_to_the_tier_and_what_is_not_leaves_it() {
    let mut story = Story::tiered(1420, PARITY, ByteCount::mib(16));
    story.fill(1);
    story.set_tier(ByteCount::mib(4));
    let hot = 1024..1024 + 512;
    story.heat(hot.clone(), 3);
    story.rig.world.run_until(Nanos::secs(300), || false);
    assert_eq!(story.fast_bytes(hot.clone()), 512 * UNIT, "{:?}", story.fill_of_tier());
    assert!(story.vdisk().counters.promoted.get() >= 512 * UNIT);
    story.prove();
    // A scan of everything heats nothing.
    for nth in 0..4 {
        let all = story.units();
        story.fast_bytes(0..all);
        story.rig.world.run_until(Nanos::secs(400), || false);
        assert_eq!(story.fast_bytes(hot.clone()), 512 * UNIT, "after scan {nth}");
    }
    // Something that is hotter takes its place.
    let hotter = 2048..2048 + 768;
    story.heat(hotter.clone(), 8);
    story.rig.world.run_until(Nanos::secs(400), || false);
    assert_eq!(story.fast_bytes(hotter), 768 * UNIT, "{:?}", story.fill_of_tier());
    story.rig.world.run_until(Nanos::secs(1000), || false);
    let requests = story.rig.requests();
    story.rig.world.run_until(Nanos::secs(3600), || false);
    assert_eq!(story.rig.requests(), requests, "nothing is done any more");
    story.crash();
    story.prove();
}

/// Ranges are sought out by Zipf's law, ten times as much as the tier holds: after a day it catches nine tenths, or
/// more, of what the best placement would, and what the report says of its size.
pub fn after_a_day_the_tier_catches_what_the_best_placement_would() {
    const MIB: u64 = 1 << 20;
    let (ranges, tier) = (160, 16);
    let mut story = Story::tiered_on(1425, PARITY, ByteCount::mib(ranges), ByteCount::mib(160));
    story.fill(1);
    story.set_tier(ByteCount::mib(tier));
    // Which range is how hot has nothing to do with where it lies.
    let mut order: Vec<u64> = (0..ranges).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, story.rng.below(at as u64 + 1) as usize);
    }
    let weight = |rank: u64| 1.0 / (rank as f64 + 1.0).powf(0.99);
    let all: f64 = (0..ranges).map(weight).sum();
    let best = (0..tier).map(weight).sum::<f64>() / all;
    let read = |story: &mut Story, count: u64| {
        let vdisk = story.vdisk();
        let before = vdisk.counters.read_fast.get();
        for _ in 0..count {
            let mut at = story.rng.below(1 << 32) as f64 / (1u64 << 32) as f64 * all;
            let rank = (0..ranges).find(|rank| {
                at -= weight(*rank);
                at < 0.0
            });
            let range = order[rank.unwrap_or(ranges - 1) as usize];
            let offset = range * MIB + story.rng.below(MIB / UNIT) * UNIT;
            let vdisk = story.vdisk();
            story.rig.run(async move {
                let mut bytes = vec![0; UNIT as usize];
                vdisk.read(VirtualOffset(offset), &mut bytes).await.unwrap();
            });
        }
        (vdisk.counters.read_fast.get() - before) as f64 / (count * UNIT) as f64
    };
    for _ in 0..48 {
        read(&mut story, 200);
        story.rig.world.run_until(Nanos::secs(1800), || false);
    }
    let caught = read(&mut story, 4000);
    assert!(caught >= 0.9 * best, "{caught:.3} of the requests were caught, {best:.3} could be");
    // What the report says of as much as lies there.
    let vdisk = story.vdisk();
    let used = story.fill_of_tier().used;
    let curve = story.rig.run(async move { vdisk.heat_curve().await.unwrap() });
    let said = |bytes: u64| {
        let points = curve.points.iter().filter(|(size, _)| size.0 <= bytes);
        points.map(|(_, seeks)| *seeks).max().unwrap_or(0) as f64 / curve.seeks as f64
    };
    // Its sizes double: what lies there is between two of them.
    assert!(said(used) <= caught + 0.05 && caught <= said(2 * used) + 0.05, "{caught:.3}, {curve:?}");
    story.rig.world.run_until(Nanos::secs(5), || false);
    let everything = story.units();
    story.fast_bytes(0..everything);
    story.rig.world.run_until(Nanos::secs(400), || false);
    let after = read(&mut story, 4000);
    assert!(after >= 0.9 * best, "{after:.3} after a scan, {best:.3} could be");
}

/// What is pinned comes to the tier though nobody asks for it, and stays there; without its pin it may leave.
pub fn what_is_pinned_lies_in_the_tier() {
    let mut story = Story::tiered(1430, PARITY, ByteCount::mib(16));
    story.fill(1);
    story.set_tier(ByteCount::mib(4));
    story.pin(4 << 20..6 << 20, true);
    story.rig.world.run_until(Nanos::secs(300), || false);
    assert_eq!(story.fast_bytes(1024..1536), 512 * UNIT);
    let pool = story.rig.pool();
    let too_much = story.rig.run(async move { pool.vdisk_pin("vdisk", &[0..4 << 20, 4 << 20..6 << 20], true).await });
    assert_eq!(too_much.map_err(|error| error.kind), Err(ErrorKind::NotPossible));
    story.heat(0..768, 8);
    story.rig.world.run_until(Nanos::secs(700), || false);
    assert_eq!(story.fast_bytes(1024..1536), 512 * UNIT, "what is hot does not displace it");
    story.crash();
    assert_eq!(story.fast_bytes(1024..1536), 512 * UNIT);
    story.pin(4 << 20..6 << 20, false);
    story.heat(0..768, 8);
    story.rig.world.run_until(Nanos::secs(700), || false);
    assert_eq!((story.fast_bytes(0..768), story.fast_bytes(1024..1536)), (768 * UNIT, 0));
    story.prove();
}

/// A job does now, beside clients, what else waits until nobody asks for anything.
pub fn a_job_moves_what_is_hot_now() {
    let mut story = Story::tiered(1435, PARITY, ByteCount::mib(16));
    story.rig.close().unwrap();
    story.rig.options.tuning.idle_land = Nanos::secs(100_000);
    story.rig.open(&mut story.rng).unwrap();
    story.fill(1);
    story.set_tier(ByteCount::mib(4));
    story.heat(1024..1536, 3);
    let (pool, id) = (story.rig.pool(), story.vdisk().id());
    let job = story.rig.run(async move {
        let job = pool.job_start(JobKind::Optimize(id), 0).await.unwrap();
        pool.job_wait(job).await.unwrap()
    });
    // Beside clients some of it may have been moved before the job was asked for.
    assert_eq!((job.state, job.note.ends_with("came to the fast tier, 0 B left it")), (JobState::Done, true));
    assert_eq!(story.fast_bytes(1024..1536), 512 * UNIT);
    story.prove();
}

/// Parts of stripes, and whole ones, are written while these move between the tiers.
pub fn what_is_written_while_it_moves_is_what_is_read() {
    let (mut up, mut down) = (0, 0);
    for seed in sample(0..24) {
        let mut story = Story::tiered(1440 + seed, resiliencies()[seed as usize % 5], ByteCount::mib(8));
        story.set_tier(ByteCount::mib(2));
        story.fill(1);
        for round in 0..6 {
            let size = ByteCount::mib(1 + story.rng.below(4));
            story.set_tier(size);
            let first = story.rng.below(4) << 20;
            story.pin(0..8 << 20, false);
            story.pin(first..first + (512 << 10), true);
            let pause = Nanos(IDLE.0 + story.rng.below(60_000_000));
            story.rig.world.run_until(pause, || false);
            for nth in 0..40 {
                let (unit, word) = (story.rng.below(story.units()), 100_000 * (round + 1) + nth);
                story.write(unit, 1, word);
                story.rig.world.run_until(Nanos(story.rng.below(1_000_000)), || false);
            }
        }
        (up, down) = (up + story.vdisk().counters.promoted.get(), down + story.vdisk().counters.demoted.get());
        story.prove_bytes();
        story.flush();
        story.crash();
        story.prove();
    }
    assert!(up > 0 && down > 0, "{up} bytes were brought up, {down} down");
}

/// Units are written at every moment of a job that brings their stripes up, beside clients.
pub fn what_is_written_beside_a_job_that_moves_lies_above_what_it_read() {
    for seed in sample(0..10) {
        let mut story = Story::tiered(1580 + seed, resiliencies()[seed as usize % 5], ByteCount::mib(8));
        story.rig.close().unwrap();
        story.rig.options.tuning.idle_land = Nanos::secs(100_000);
        story.rig.open(&mut story.rng).unwrap();
        story.fill(1);
        story.set_tier(ByteCount::mib(4));
        story.pin(4 << 20..6 << 20, true);
        let (pool, id) = (story.rig.pool(), story.vdisk().id());
        let job = story.rig.run(async move { pool.job_start(JobKind::Optimize(id), 0).await.unwrap() });
        let pool = story.rig.pool();
        let runs = || {
            pool.jobs()
                .iter()
                .any(|other| other.id == job && matches!(other.state, JobState::Waiting | JobState::Running))
        };
        let mut word = 1000;
        while runs() {
            word += 1;
            let (unit, pause) = (1024 + story.rng.below(512), Nanos(story.rng.below(200_000)));
            story.write(unit, 1, word);
            story.rig.world.run_until(pause, || false);
        }
        assert!(word > 1050 && story.vdisk().counters.promoted.get() > 0, "{word}");
        drop(pool);
        story.prove_bytes();
        story.flush();
        story.crash();
        story.prove();
    }
}

/// The power goes anywhere.
pub fn a_crash_anywhere_while_stripes_move_loses_nothing() {
    for seed in sample(0..40) {
        let mut story = Story::tiered(1480 + seed, resiliencies()[seed as usize % 5], ByteCount::mib(8));
        story.set_tier(ByteCount::mib(4));
        story.fill(1);
        match seed % 3 {
            0 => story.set_tier(ByteCount::ZERO),
            1 => story.set_tier_on(ByteCount::mib(4), story.fast_disks() & (story.fast_disks() - 1)),
            _ => story.pin(5 << 20..7 << 20, true),
        }
        let steps = Nanos(IDLE.0 + story.rng.below(600_000_000));
        story.rig.world.run_until(steps, || false);
        story.crash();
        story.prove();
        if seed % 3 < 2 {
            story.until_left(0);
        }
        story.prove();
    }
}

/// A disk of the tier is lost: what lay there has its redundancy again without it, below.
pub fn a_tier_that_lost_a_disk_takes_nothing_and_empties_itself() {
    for (seed, resiliency) in resiliencies().into_iter().enumerate() {
        if resiliency.failures() == 0 {
            continue;
        }
        let mut story = Story::tiered(1530 + seed as u64, resiliency, ByteCount::mib(8));
        // Just as many disks as it needs.
        let disks = story.fast_disks() & (story.fast_disks() - 1);
        story.set_tier_on(ByteCount::mib(4), disks);
        story.fill(1);
        assert!(story.fill_of_tier().used > 0);
        let lost = disks.trailing_zeros() as usize;
        story.rig.disks[lost].vanish();
        let unit = story.per_stripe();
        (0..40).for_each(|nth| story.write(nth * unit, unit, 100 + nth));
        story.flush();
        story.until_left(0);
        story.rig.world.run_until(Nanos::secs(5), || false);
        let degraded = story.rig.pool().info().vdisks[0].degraded_segments;
        assert_eq!(degraded, 0, "what lay there lies below, whole");
        story.prove_bytes();
        story.crash();
        story.prove_bytes();
    }
}

/// A virtual disk that is full, with all its tier has room for: what is there is overwritten without an error, whatever
/// tier it lies in, and what lies in the tier can leave.
pub fn a_full_disk_is_overwritten_whatever_tier_it_lies_in() {
    for seed in sample(0..6) {
        let mut story = Story::tiered(1550 + seed, PARITY, ByteCount::mib(512));
        story.set_tier(ByteCount::mib(16));
        let (per, mut at, mut full) = (story.per_stripe(), 0, false);
        while !full {
            let (vdisk, bytes) = (story.vdisk(), bytes_of(at + 1, per * UNIT));
            let wrote = story.rig.run(async move { vdisk.write(VirtualOffset(at * per * UNIT), &bytes, false).await });
            match wrote {
                Ok(()) => story.words.extend((at * per..(at + 1) * per).map(|unit| (unit, at + 1))),
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
                    full = true;
                }
            }
            at += !full as u64;
        }
        story.flush();
        assert!(story.fill_of_tier().used > 0);
        for nth in 0..at {
            let stripe = if seed % 2 == 0 { nth } else { story.rng.below(at) };
            story.write(stripe * per, per, 100_000 + nth);
        }
        story.flush();
        story.set_tier(ByteCount::ZERO);
        story.until_left(0);
        let vdisk = story.vdisk();
        for (unit, word) in story.words.clone().into_iter().step_by(37) {
            let vdisk: Rc<_> = vdisk.clone();
            let bytes = story.rig.run(async move {
                let mut bytes = vec![0; UNIT as usize];
                vdisk.read(VirtualOffset(unit * UNIT), &mut bytes).await.map(|()| bytes)
            });
            assert!(bytes.unwrap() == bytes_of(word, UNIT), "unit {unit}");
        }
    }
}

/// What the labels say is there before the first record of a tier is.
pub fn the_labels_name_tiers_before_the_first_record_does() {
    let story = Story::tiered(1560, PARITY, ByteCount::mib(8));
    assert!(!story.labels_say(FEATURE_TIERS));
    story.set_tier(ByteCount::mib(4));
    assert!(story.labels_say(FEATURE_TIERS));
}
