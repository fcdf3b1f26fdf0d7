//! Stories of segments of which little is in use: they are emptied when somebody needs their slabs, whatever else
//! happens meanwhile.

use super::change::{LAYOUTS, ask};
use super::{Story, UNIT, bytes_of};
use crate::sample::sample;
use crate::world::Stop;
use std::cell::RefCell;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::{Error, ErrorKind};
use weft_engine::format::FEATURE_MOVES;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::Instead;
use weft_engine::pool::job::JobState;
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::world::World;

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// The word of the other virtual disk.
const OTHER: u64 = 77;

impl Story {
    /// How many units fit a virtual disk of the story's layout that has all of the pool.
    fn room(&self) -> u64 {
        self.rig.pool().store().map.borrow().room_for(self.layout, 0, DiskSet::EMPTY).0 / UNIT
    }

    /// A small pool with a thin virtual disk that takes `share` percent of it.
    fn nearly_full(seed: u64, layout: (Resiliency, u8, u64), share: u64) -> Story {
        Story::nearly_full_on(seed, layout, share, ByteCount::mib(16))
    }

    /// A pool of disks of such a size, with a thin virtual disk that takes `share` percent of it.
    fn nearly_full_on(
        seed: u64,
        (resiliency, columns, interleave): (Resiliency, u8, u64),
        share: u64,
        disk: ByteCount,
    ) -> Story {
        let mut story = Story::with_disks(seed, 5, disk);
        story.layout = Layout::new(resiliency, columns, ByteCount::kib(interleave)).unwrap();
        let units = story.room() * share / 100;
        story.make((resiliency, columns, interleave), ByteCount(units * UNIT));
        story
    }

    /// A pool with a virtual disk that has all of it, and is filled, with so many scattered units written anew; and
    /// with another one. Returns where that is full.
    fn full_beside_another(seed: u64, layout: (Resiliency, u8, u64), scattered: u64) -> (Story, u64) {
        let mut story = Story::nearly_full(seed, layout, 100);
        story.fill(1);
        story.scatter(scattered, 1_000);
        story.flush();
        story.destage();
        story.rig.make_vdisk_named("other", story.layout, ByteCount::gib(1), 4096, false).unwrap();
        let full = story.fill_other(0);
        (story, full)
    }

    /// Writes to the other virtual disk from byte `at` on, as long as there is room. Returns where that ended.
    fn fill_other(&mut self, mut at: u64) -> u64 {
        let other = self.rig.pool().vdisk("other").unwrap();
        let piece = bytes_of(OTHER, 64 << 10);
        self.rig.run(async move {
            loop {
                match other.write(VirtualOffset(at), &piece, false).await {
                    Ok(()) => at += piece.len() as u64,
                    Err(error) => {
                        assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
                        other.flush().await.unwrap();
                        return at;
                    }
                }
            }
        })
    }

    /// Has somebody write to the other virtual disk from byte `at` on, beside all else, until he is refused. Returns
    /// where that will have ended, and with what.
    fn begin_to_fill_other(&self, mut at: u64) -> Rc<RefCell<Option<(u64, Error)>>> {
        let other = self.rig.pool().vdisk("other").unwrap();
        let ended = Rc::new(RefCell::new(None));
        let end = ended.clone();
        let filling = async move {
            let refused = loop {
                match other.write(VirtualOffset(at), &bytes_of(OTHER, 64 << 10), false).await {
                    Ok(()) => at += 64 << 10,
                    Err(error) => break error,
                }
            };
            *end.borrow_mut() = Some((at, refused));
        };
        self.rig.world.spawn("filling", Box::pin(filling));
        ended
    }

    fn prove_other(&self, len: u64) {
        let other = self.rig.pool().vdisk("other").unwrap();
        let bytes = self.rig.run(async move {
            let mut bytes = vec![0; len as usize];
            other.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
        });
        assert!(bytes.unwrap() == bytes_of(OTHER, len), "the other virtual disk is as it was written");
    }

    /// Discards every second stripe.
    fn discard_every_second(&mut self) {
        let per = self.per_stripe();
        let (vdisk, stripes) = (self.vdisk(), self.units() / per);
        self.rig.run(async move {
            for stripe in (0..stripes).step_by(2) {
                vdisk.discard(VirtualOffset(stripe * per * UNIT), per * UNIT, false).await.unwrap();
            }
            vdisk.flush().await.unwrap();
        });
        for stripe in (0..stripes).step_by(2) {
            self.words.extend((stripe * per..(stripe + 1) * per).map(|unit| (unit, 0)));
        }
    }

    /// How many segments were emptied since the pool was opened.
    fn emptied(&self) -> u64 {
        self.rig.pool().store().compaction.segments.get()
    }
}

/// What is discarded here and there in a full virtual disk is room for another one.
pub fn what_is_discarded_here_and_there_is_room_for_others() {
    for (nth, layout) in sample(LAYOUTS.into_iter().enumerate()) {
        let (mut story, before) = Story::full_beside_another(5_000 + nth as u64, layout, 20);
        assert!(!story.labels_say(FEATURE_MOVES));
        story.discard_every_second();
        assert_eq!(story.emptied(), 0, "nobody needs anything");
        let freed = story.units() * UNIT / 2;
        let got = story.fill_other(before);
        // Some is left to overwrites, and the last segment may stay hollow.
        let (name, least) = (story.layout, freed * 6 / 10);
        assert!(got - before >= least, "{name}: {} bytes of {freed} discarded ones", got - before);
        assert!(story.emptied() > 0 && story.labels_say(FEATURE_MOVES));
        story.prove();
        story.prove_other(got);
        // An overwrite is no new data.
        let per = story.per_stripe();
        for word in 0..200 {
            let stripe = story.rng.below(story.units() / per / 2) * 2 + 1;
            let unit = stripe * per + story.rng.below(per);
            story.write(unit, 1, 2_000 + word);
        }
        story.flush();
        story.prove();
        story.crash();
        story.prove();
        story.prove_other(got);
        story.checkpoint();
        story.rig.close().unwrap();
        story.rig.open(&mut story.rng).unwrap();
        story.prove();
        story.prove_other(got);
    }
}

/// A virtual disk of a pool that is nearly full is overwritten anywhere all the time that it is given another layout:
/// no write is refused, and the change ends.
pub fn a_change_of_a_nearly_full_pool_ends_under_random_writes() {
    let changes = [
        ((PARITY, 5, 16), (PARITY, 4, 16), 80),
        ((PARITY, 4, 16), (PARITY, 5, 16), 80),
        ((PARITY, 5, 16), (MIRROR, 1, 64), 50),
        ((MIRROR, 1, 64), (PARITY, 4, 4), 90),
        ((PARITY, 4, 16), (PARITY, 4, 64), 85),
        ((Resiliency::Simple, 3, 4), (PARITY, 5, 16), 70),
    ];
    for (nth, (from, to, filled)) in sample(changes.into_iter().enumerate()) {
        for seed in 0..2 {
            let mut story = Story::nearly_full_on(5_100 + nth as u64 * 10 + seed, from, 95, ByteCount::mib(24));
            let written = story.units() * filled / 95;
            (0..written).step_by(64).for_each(|unit| story.write(unit, 64.min(written - unit), 1));
            story.flush();
            let pool = story.rig.pool();
            let asked = ask(to);
            let job = story.rig.run(async move { pool.vdisk_change("vdisk", &asked, 0).await.unwrap().unwrap() });
            for round in 0.. {
                let count = 1 + story.rng.below(16);
                let unit = story.rng.below(written - count);
                story.write(unit, count, 1_000 + round);
                if round % 64 == 63 {
                    story.flush();
                }
                let pool = story.rig.pool();
                let ended = || !pool.jobs().iter().any(|found| found.id == job && found.state == JobState::Running);
                if round % 16 == 15 && ended() {
                    break;
                }
                assert!(round < 100_000, "it ends");
            }
            let pool = story.rig.pool();
            let ended = story.rig.run(async move { pool.job_wait(job).await.unwrap() });
            assert_eq!(ended.state, JobState::Done, "{from:?} to {to:?}: {ended:?}");
            assert!(!story.vdisk().is_stacked());
            story.prove();
            story.flush();
            story.crash();
            story.prove();
        }
    }
}

/// Disks that are away for a moment while segments are emptied cost a client time, and no room: what was discarded is
/// his as if they had been there all the time. Disks that stay away are waited for no longer than clients ever wait.
pub fn disks_that_are_away_for_a_moment_cost_no_room() {
    let bear_a_loss = LAYOUTS.into_iter().enumerate().filter(|(_, layout)| layout.0 != Resiliency::Simple);
    for (nth, layout) in sample(bear_a_loss) {
        for stays_away in [false, true] {
            let (mut story, before) = Story::full_beside_another(5_500 + nth as u64, layout, 20);
            story.discard_every_second();
            let freed = story.units() * UNIT / 2;
            let ended = story.begin_to_fill_other(before);
            for round in 0.. {
                let steps = Nanos(story.rng.below(400_000_000));
                story.rig.world.run_until(steps, || ended.borrow().is_some());
                if ended.borrow().is_some() {
                    break;
                }
                let no = story.rng.below(5) as usize;
                story.rig.disks[no].vanish();
                if stays_away {
                    break;
                }
                let steps = Nanos(story.rng.below(1_500_000_000));
                story.rig.world.run_until(steps, || false);
                story.come_back();
                assert!(round < 1_000, "it ends");
            }
            let name = story.layout;
            if stays_away {
                story.rig.world.run_until(Nanos::secs(60), || ended.borrow().is_some());
                assert!(ended.borrow().is_some(), "{name}: nobody waits for ever");
                continue;
            }
            let (end, error) = ended.take().expect("he was refused");
            assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
            let least = freed * 6 / 10;
            assert!(end - before >= least, "{name}: {} bytes of {freed} discarded ones", end - before);
            let other = story.rig.pool().vdisk("other").unwrap();
            story.rig.run(async move { other.flush().await.unwrap() });
            story.prove();
            story.prove_other(end);
            story.crash();
            story.prove();
            story.prove_other(end);
        }
    }
}

/// A disk is gone for good in a pool that is full, though half of what lies there was discarded: what the disk had is
/// rebuilt on the others by itself, and then another one may go.
pub fn a_disk_that_is_gone_is_rebuilt_where_hollow_segments_lie() {
    let bear_a_loss = LAYOUTS.into_iter().enumerate().filter(|(_, layout)| layout.0 != Resiliency::Simple);
    for (nth, layout) in sample(bear_a_loss) {
        let (mut story, full) = Story::full_beside_another(5_700 + nth as u64, layout, 20);
        story.discard_every_second();
        story.rig.disks[nth].vanish();
        let pool = story.rig.pool();
        let lacks = || {
            let map = pool.store().map.borrow();
            map.segments.values().any(|segment| map.unsound(&segment.record) > 0)
        };
        let (asked, gone) = (pool.clone(), DiskNo(nth as u16));
        let _ = story.rig.run(async move { asked.store().disk_flush(gone).await });
        assert!(lacks());
        let stop = story.rig.world.run_until(Nanos::secs(24 * 3600), || !lacks());
        assert_eq!(stop, Stop::Done, "{}: it is not rebuilt", story.layout);
        drop(pool);
        assert!(story.emptied() > 0);
        story.prove_bytes();
        story.prove_other(full);
        story.crash();
        story.rig.disks[(nth + 1) % 5].vanish();
        story.rig.world.run_until(Nanos::secs(1), || false);
        story.prove_bytes();
        story.prove_other(full);
    }
}

/// A disk leaves a pool that is full, though half of what lies there was discarded: that it can is told before, and not
/// without what was discarded. Every second time the power goes on the way.
pub fn a_disk_leaves_where_hollow_segments_lie() {
    for seed in sample(0..12) {
        let (mut story, full) = Story::full_beside_another(5_800 + seed, LAYOUTS[seed as usize % LAYOUTS.len()], 20);
        let (no, pool) = (DiskNo(seed as u16 % 5), story.rig.pool());
        let refused = pool.plan_disk_remove(no, Instead::Nothing).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NoSpace, "{refused}");
        story.discard_every_second();
        let leaving = pool.plan_disk_remove(no, Instead::Nothing).unwrap_or_else(|error| panic!("{error}"));
        assert!(leaving.empties > ByteCount::ZERO, "{leaving:?}");
        let asked = pool.clone();
        story.rig.run(async move { asked.disk_remove(no, None, 0).await.unwrap() });
        drop(pool);
        let is_cut = seed / LAYOUTS.len() as u64 % 2 == 1;
        if is_cut {
            let steps = Nanos(story.rng.below(300_000_000));
            story.rig.world.run_until(steps, || false);
            story.crash();
        }
        let pool = story.rig.pool();
        let is_gone = || !pool.store().map.borrow().disks.contains_key(&no);
        let stop = story.rig.world.run_until(Nanos::secs(3600), is_gone);
        assert_eq!(stop, Stop::Done, "{}: {:?}", story.layout, pool.jobs());
        drop(pool);
        assert!(story.emptied() > 0 || is_cut);
        story.prove_bytes();
        story.prove_other(full);
    }
}

/// What was moved on disks that seek is put in order once there is room for that, without an opening in between.
pub fn what_was_moved_comes_to_lie_in_order() {
    let mut story = Story::that_seeks(5_600, PARITY, ByteCount::mib(40));
    story.fill(1);
    story.flush();
    assert!(story.rest());
    story.rig.make_vdisk_named("other", story.layout, ByteCount::gib(1), 4096, false).unwrap();
    let before = story.fill_other(0);
    story.discard_every_second();
    assert!(story.rest());
    assert!(story.fill_other(before) > before && story.emptied() > 0);
    let pool = story.rig.pool();
    story.rig.run(async move { pool.vdisk_remove("other").await.unwrap() });
    assert!(story.rest());
    // What stayed where it was has holes in between, as before; what came into them does not lie there any more.
    let after = story.runs();
    assert!(after.runs * 3 < after.stripes * 2, "{after:?}");
    story.prove();
    story.crash();
    story.prove();
}

/// Crashes, disks that go and come back, overwrites and discards in the middle of it: what was flushed is there.
pub fn whatever_happens_while_segments_are_emptied_loses_nothing() {
    for seed in sample(0..20) {
        let layout = LAYOUTS[seed as usize % LAYOUTS.len()];
        let (mut story, _) = Story::full_beside_another(5_240 + seed, layout, 30);
        story.discard_every_second();
        for round in 0..3 {
            story.begin_to_fill_other((64 << 20) + round * (16 << 20));
            let steps = Nanos(story.rng.below(150_000_000));
            story.rig.world.run_until(steps, || false);
            for op in 0..story.rng.below(12) {
                let unit = story.rng.below(story.units() - 8);
                story.write(unit, 1 + op % 8, 10_000 + round * 100 + op);
                let steps = Nanos(story.rng.below(2_000_000));
                story.rig.world.run_until(steps, || false);
            }
            story.flush();
            match story.rng.below(3) {
                0 => story.crash(),
                1 if layout.0 != Resiliency::Simple => {
                    let no = story.rng.below(5) as usize;
                    story.rig.disks[no].vanish();
                    let steps = Nanos(story.rng.below(100_000_000));
                    story.rig.world.run_until(steps, || false);
                    story.come_back();
                }
                _ => story.destage(),
            }
            story.prove_bytes();
        }
        story.rig.world.run_until(Nanos::secs(5), || false);
        story.crash();
        story.prove();
    }
}

/// What is packed above a stripe that is moved stays above it, also where a crash has the log read again.
pub fn what_is_packed_above_a_stripe_that_is_moved_stays() {
    for (nth, layout) in [(PARITY, 3, 16), (MIRROR, 2, 12)].into_iter().enumerate() {
        let mut story = Story::nearly_full(5_300 + nth as u64, layout, 75);
        story.fill(1);
        let per = story.per_stripe();
        for stripe in (1..story.units() / per).step_by(2) {
            story.write(stripe * per + 1, 1, 1_000 + stripe);
        }
        story.flush();
        story.destage();
        story.flush();
        story.checkpoint();
        story.rig.make_vdisk_named("other", story.layout, ByteCount::gib(1), 4096, false).unwrap();
        story.discard_every_second();
        story.begin_to_fill_other(0);
        let pool = story.rig.pool();
        story.rig.world.run_until(Nanos::secs(1000), || pool.store().compaction.segments.get() > 0);
        drop(pool);
        assert!(story.emptied() > 0 && story.packed() > 20, "{} units are packed", story.packed());
        story.crash();
        assert!(story.packed() > 20, "{} units are packed", story.packed());
        story.prove();
    }
}

/// What clients write, or discard, while segments are emptied is what is read afterwards.
pub fn what_is_written_while_segments_are_emptied_is_newer() {
    for seed in sample(0..12) {
        let mut story = Story::nearly_full(5_400 + seed, LAYOUTS[seed as usize % LAYOUTS.len()], 75);
        story.fill(1);
        story.rig.make_vdisk_named("other", story.layout, ByteCount::gib(1), 4096, false).unwrap();
        story.discard_every_second();
        story.begin_to_fill_other(0);
        let (per, vdisk) = (story.per_stripe(), story.vdisk());
        for op in 0..400 {
            let stripe = story.rng.below(story.units() / per / 2) * 2 + 1;
            match op % 7 {
                // A discard gives way to nobody, and is there at once.
                3 => {
                    let vdisk = vdisk.clone();
                    let gone =
                        async move { vdisk.discard(VirtualOffset(stripe * per * UNIT), per * UNIT, false).await };
                    story.rig.run(gone).unwrap();
                    story.words.extend((stripe * per..(stripe + 1) * per).map(|unit| (unit, 0)));
                }
                _ if story.words.get(&(stripe * per)) == Some(&0) => {}
                _ => story.write(stripe * per, per, 10_000 + op),
            }
            let steps = Nanos(story.rng.below(4_000_000));
            story.rig.world.run_until(steps, || false);
        }
        story.rig.world.run_until(Nanos::secs(5), || false);
        assert!(story.emptied() > 0);
        story.prove();
        story.flush();
        story.crash();
        story.prove();
    }
}
