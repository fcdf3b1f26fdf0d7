//! Stories of what is put in order while nobody asks for anything.

use super::{PARITY, Story, bytes_of};
use crate::rig::{Rig, resiliencies};
use crate::sample::sample;
use crate::world::{Scheduling, SimWorld, Stop};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::segment::run::Runs;
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;

/// So long nobody has to ask for anything.
const IDLE: Nanos = Nanos::millis(200);
/// By then what can be put in order is.
const ENDS: Nanos = Nanos::secs(600);

impl Story {
    /// Begins one on disks that seek, with a virtual disk of `size` whose small writes are merged.
    pub(super) fn that_seeks(seed: u64, resiliency: Resiliency, size: ByteCount) -> Story {
        let world = SimWorld::new(seed, Scheduling::Random);
        let mut rng = world.rng("story");
        let columns = resiliency.columns_min().max(2);
        let layout = Layout::new(resiliency, columns, ByteCount::kib(16)).unwrap();
        let mut rig = Rig::of_kind(world, layout.slots() + 1, ByteCount::mib(24), true);
        rig.options.tuning.fine_share = 0;
        rig.options.tuning.idle_land = IDLE;
        rig.options.tuning.buffer_memory = 8 << 20;
        rig.create(ByteCount::mib(1)).unwrap();
        rig.open(&mut rng).unwrap();
        rig.make_vdisk(layout, size, 512, false).unwrap();
        Story { rig, rng, layout, words: BTreeMap::new() }
    }

    /// Fills the virtual disk, then writes each of its stripes anew, in any order; nobody waits in between.
    pub(super) fn fill_anyhow(&mut self, word: u64) {
        self.fill(word);
        let per = self.per_stripe();
        let mut stripes: Vec<u64> = (0..self.units() / per).collect();
        for at in (1..stripes.len()).rev() {
            stripes.swap(at, self.rng.below(at as u64 + 1) as usize);
        }
        for stripe in stripes {
            self.write(stripe * per, per, word + 1 + stripe);
        }
        self.flush();
    }

    pub(super) fn runs(&self) -> Runs {
        let vdisk = self.vdisk();
        self.rig.run(async move { vdisk.runs().await.unwrap() })
    }

    fn ordered(&self) -> u64 {
        self.vdisk().counters.ordered.get()
    }

    /// Waits until nothing is left to be put in order. Says whether it came to that.
    pub(super) fn rest(&self) -> bool {
        let vdisk = self.vdisk();
        let rests = move || vdisk.packed().0 == 0 && !vdisk.is_to_be_ordered();
        self.rig.world.run_until(ENDS, rests) == Stop::Done
    }

    /// Lets time pass until something is being put in order.
    fn run_until_it_orders(&self) {
        let (vdisk, before) = (self.vdisk(), self.ordered());
        let stop = self.rig.world.run_until(ENDS, move || vdisk.counters.ordered.get() > before);
        assert_eq!(stop, Stop::Done, "something is put in order, of {:?}", self.runs());
    }
}

/// What was written anywhere lies in order after a while; then no disk is asked for anything, until something is
/// written.
pub fn what_was_written_anywhere_comes_to_lie_in_order_and_then_all_is_still() {
    for (seed, resiliency) in resiliencies().into_iter().enumerate() {
        let mut story = Story::that_seeks(1200 + seed as u64, resiliency, ByteCount::mib(4));
        story.fill_anyhow(10_000);
        let before = story.runs();
        // Some may be in order already: the disks had a moment for themselves.
        assert!(before.runs * 3 > before.stripes || story.ordered() > 0, "it lies anywhere: {before:?}");
        let few = before.stripes / 6;
        assert!(story.rest(), "there is an end to it");
        let after = story.runs();
        assert!(story.ordered() > 0 && after.runs < few, "{before:?}, then {after:?}");
        assert_eq!(after.stripes, before.stripes);
        assert_eq!((story.vdisk().counters.merged.get(), story.vdisk().counters.read_for_write.get()), (0, 0));
        // The last checkpoint may still have to be taken.
        story.rig.world.run_until(Nanos::secs(30), || false);
        let requests = story.rig.requests();
        story.rig.world.run_until(Nanos::secs(3600), || false);
        assert_eq!(story.rig.requests(), requests, "nothing is done any more");
        story.prove();
        // A stream that overwrites all of it leaves it in order, but where the room that there was lay apart.
        let ordered = story.ordered();
        story.fill(20_000);
        assert!(story.rest());
        let moved = story.ordered() - ordered;
        assert!(moved <= story.vdisk().size().0 / 2, "{moved} bytes were moved, then {:?}", story.runs());
        // Once more, with what small writes leave after they were packed.
        let ordered = story.ordered();
        story.set_share(Some(500));
        story.scatter(60, 50_000);
        story.flush();
        story.destage();
        assert!(story.rest());
        assert!(story.ordered() > ordered && story.runs().runs < few, "{:?}", story.runs());
        story.prove();
        story.crash();
        story.prove();
    }
}

/// After an opening it is found what lies anywhere, too.
pub fn what_lay_anywhere_when_the_pool_was_opened_comes_to_lie_in_order() {
    let mut story = Story::that_seeks(1220, PARITY, ByteCount::mib(4));
    story.fill_anyhow(10_000);
    story.crash();
    let before = story.runs();
    assert!(before.runs * 2 > before.stripes, "it lies anywhere: {before:?}");
    assert!(story.rest() && story.runs().runs * 3 < before.runs, "{:?}", story.runs());
    story.prove();
}

/// A few writes now and then, and long pauses in between: what is moved for them is in proportion to them.
pub fn a_few_writes_now_and_then_do_not_move_everything_each_time() {
    let mut story = Story::that_seeks(1225, PARITY, ByteCount::mib(4));
    story.fill_anyhow(10_000);
    assert!(story.rest());
    let counters = |story: &Story| {
        let counters = &story.vdisk().counters;
        (counters.ordered.get(), counters.merged.get() + counters.whole.get())
    };
    let (ordered, written) = counters(&story);
    for round in 0..60 {
        story.scatter(3, 50_000 + 10 * round);
        story.flush();
        story.destage();
        story.rest();
    }
    let (ordered, written) = (counters(&story).0 - ordered, counters(&story).1 - written);
    // What was left of that once after the opening is not more than all.
    let most = 4 * written + story.vdisk().size().0;
    assert!(ordered > 0 && ordered <= most, "{ordered} bytes were moved for {written}");
    story.prove();
}

/// Parts of stripes, and whole ones, are written while these are put in order.
pub fn what_is_written_while_it_is_put_in_order_is_what_is_read() {
    let mut ordered = 0;
    for seed in 0..24 {
        let mut story = Story::that_seeks(1230 + seed, PARITY, ByteCount::mib(4));
        story.fill_anyhow(10_000);
        for round in 0..6 {
            // What is ordered is read first: some come in the midst of that.
            let pause = Nanos(IDLE.0 + story.rng.below(40_000_000));
            story.rig.world.run_until(pause, || false);
            for nth in 0..20 {
                let (unit, word) = (story.rng.below(story.units()), 100_000 * (round + 1) + nth);
                story.write(unit, 1, word);
            }
        }
        ordered += story.ordered();
        story.prove_bytes();
        story.flush();
        story.crash();
        story.prove();
    }
    assert!(ordered > 0, "something is put in order beside that");
}

/// The power goes anywhere.
pub fn a_crash_anywhere_while_things_are_put_in_order_loses_nothing() {
    for seed in sample(0..40) {
        let mut story = Story::that_seeks(1260 + seed, resiliencies()[seed as usize % 5], ByteCount::mib(4));
        story.fill_anyhow(10_000);
        story.run_until_it_orders();
        let steps = Nanos(story.rng.below(300_000_000));
        story.rig.world.run_until(steps, || false);
        story.crash();
        story.prove();
        assert!(story.rest(), "there is an end to it");
        story.prove();
    }
}

/// However much lies anywhere, and however little room there is: what is put in order leaves two segments at any
/// moment, and another virtual disk can write them then.
pub fn what_is_put_in_order_leaves_clients_the_room_that_they_need() {
    for seed in sample(0..8) {
        let mut story = Story::that_seeks(1300 + seed, PARITY, ByteCount::mib(16));
        let layout = story.layout;
        let segment = ByteCount(layout.segment_stripes(ByteCount::mib(1)) as u64 * layout.data_len().0);
        story.rig.make_vdisk_named("other", layout, ByteCount::mib(64), 512, false).unwrap();
        story.fill_anyhow(10_000);
        let store = story.rig.pool().store().clone();
        let left = move || store.map.borrow().segments_possible_now(layout, DiskSet::EMPTY);
        let other = story.rig.pool().vdisk("other").unwrap();
        let mut at = 0;
        while left() > 3 {
            story.rig.run(write_all(other.clone(), at, segment)).unwrap();
            at += segment.0;
        }
        assert_eq!(left(), 3, "there is some room");
        let (vdisk, seen, least) = (story.vdisk(), left.clone(), Rc::new(Cell::new(u64::MAX)));
        let (told, until) = (least.clone(), Nanos::millis(story.rng.below(1000)));
        let began = vdisk.counters.ordered.get();
        story.run_until_it_orders();
        story.rig.world.run_until(until, move || {
            told.set(told.get().min(seen()));
            vdisk.packed().0 == 0 && !vdisk.is_to_be_ordered()
        });
        assert!(story.ordered() > began && least.get() >= 2, "room for {} segments was left", least.get());
        let written = story.rig.run(write_all(other, at, segment * 2));
        assert_eq!(written.map_err(|error| error.context), Ok(()), "room for {} segments was left", left());
        story.prove_bytes();
    }
}

async fn write_all(vdisk: Rc<Vdisk>, from: u64, len: ByteCount) -> weft_engine::error::Result<()> {
    let step = 64 << 10;
    for at in (from..from + len.0).step_by(step) {
        let bytes = bytes_of(77, (step as u64).min(from + len.0 - at));
        vdisk.write(VirtualOffset(at), &bytes, false).await?;
    }
    vdisk.flush().await
}

/// Checks find nothing wrong beside it: neither one that only looks, nor the one right after a repair.
pub fn a_check_beside_what_is_put_in_order_finds_nothing() {
    let (mut tried, mut beside) = (0, 0);
    for seed in sample(0..40) {
        let mut story = Story::that_seeks(1320 + seed, resiliencies()[seed as usize % 5], ByteCount::mib(4));
        story.fill_anyhow(10_000);
        story.run_until_it_orders();
        let before = story.ordered();
        for repair in [false, true, false] {
            let pool = story.rig.pool();
            let report = story.rig.run(async move { pool.check(repair).await.unwrap() });
            assert!(report.is_sound(), "seed {seed}, repair {repair}: {report:?}");
            assert_eq!(report.bad_pages, 0, "seed {seed}, repair {repair}: {report:?}");
        }
        tried += 1;
        beside += (story.ordered() > before) as u64;
    }
    assert!(beside * 2 > tried, "it went on beside {beside} of {tried} checks");
}
