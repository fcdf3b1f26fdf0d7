//! Stories of virtual disks that get another layout while they are used: a stack of tables that is one again at the
//! end.

use super::{Story, UNIT};
use crate::rig::Rig;
use crate::rng::Rng;
use crate::sample::sample;
use crate::world::{Scheduling, SimWorld};
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::ErrorKind;
use weft_engine::format::FEATURE_STACKS;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::Refusal;
use weft_engine::pool::change::{ChangeAsk, ChangePlan};
use weft_engine::pool::job::{JobInfo, JobKind, JobState};
use weft_engine::store::join;
use weft_engine::units::{ByteCount, JobNo, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;

/// Bytes of a write in a pool that is full.
const WRITE: u64 = 16 << 10;

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// Layouts that share no length of a stripe, and some that do.
pub(super) const LAYOUTS: [(Resiliency, u8, u64); 5] =
    [(PARITY, 3, 16), (MIRROR, 1, 64), (PARITY, 4, 16), (Resiliency::Simple, 3, 4), (MIRROR, 2, 12)];

pub(super) fn ask((resiliency, columns, interleave): (Resiliency, u8, u64)) -> ChangeAsk {
    let interleave = Some(ByteCount::kib(interleave));
    ChangeAsk { resiliency: Some(resiliency), columns: Some(columns), interleave }
}

impl Story {
    /// A story of a virtual disk of this layout on five disks.
    pub(super) fn of(seed: u64, (resiliency, columns, interleave): (Resiliency, u8, u64), fixed: bool) -> Story {
        let mut story = Story::with_disks(seed, 5, ByteCount::mib(32));
        story.layout = Layout::new(resiliency, columns, ByteCount::kib(interleave)).unwrap();
        story.rig.make_vdisk(story.layout, ByteCount::mib(4), 512, fixed).unwrap();
        story
    }

    /// Makes the virtual disk, of this layout.
    pub(super) fn make(&mut self, (resiliency, columns, interleave): (Resiliency, u8, u64), size: ByteCount) {
        self.layout = Layout::new(resiliency, columns, ByteCount::kib(interleave)).unwrap();
        self.rig.make_vdisk(self.layout, size, 512, false).unwrap();
    }

    /// A story of a pool on so many disks, without a virtual disk.
    pub(super) fn with_disks(seed: u64, disks: usize, capacity: ByteCount) -> Story {
        let world = SimWorld::new(seed, Scheduling::Random);
        let mut rng = world.rng("story");
        let mut rig = Rig::new(world, disks, capacity);
        rig.options.tuning.fine_share = 200;
        // A few stripes rise at a time.
        rig.options.tuning.buffer_memory = 1 << 20;
        rig.options.tuning.idle_land = Nanos::secs(100_000);
        rig.create(ByteCount::mib(1)).unwrap();
        rig.open(&mut rng).unwrap();
        let layout = Layout::new(Resiliency::Simple, 1, ByteCount::kib(4)).unwrap();
        Story { rig, rng, layout, words: Default::default() }
    }

    /// Asks what another layout would come to.
    fn plan(&self, name: &'static str, ask: ChangeAsk) -> Result<ChangePlan, Refusal> {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.plan_vdisk_change(name, &ask).await })
    }

    /// Asks for another layout, and returns the job.
    pub(super) fn change(&self, ask: ChangeAsk) -> Option<JobNo> {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.vdisk_change("vdisk", &ask, 0).await.unwrap() })
    }

    fn wait(&self, job: JobNo) -> JobInfo {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.job_wait(job).await.unwrap() })
    }

    fn pause(&self, job: JobNo) {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.job_pause(job).await.unwrap() });
    }

    fn resume(&self, job: JobNo) {
        let pool = self.rig.pool();
        self.rig.run(async move { pool.job_resume(job).await.unwrap() });
    }

    /// Lets the virtual disk serve again, where it lost writes.
    pub(super) fn clear(&self) {
        let vdisk = self.vdisk();
        if vdisk.failure().is_some() {
            vdisk.clear().unwrap();
        }
    }

    fn repair(&self) {
        let pool = self.rig.pool();
        self.rig.run(async move {
            let job = pool.job_start(JobKind::Repair, 0).await.unwrap();
            pool.job_wait(job).await.unwrap()
        });
    }

    /// Waits until the only table is of this layout.
    pub(super) fn until_changed(&self, job: Option<JobNo>) {
        if let Some(job) = job {
            let ended = self.wait(job);
            assert_eq!(ended.state, JobState::Done, "{ended:?}");
        }
        assert!(!self.vdisk().is_stacked());
    }

    fn discard(&mut self, unit: u64, count: u64) {
        let vdisk = self.vdisk();
        self.rig.run(async move { vdisk.discard(VirtualOffset(unit * UNIT), count * UNIT, false).await.unwrap() });
    }

    fn zero(&mut self, unit: u64, count: u64) {
        let vdisk = self.vdisk();
        let zeros = async move { vdisk.write_zeroes(VirtualOffset(unit * UNIT), count * UNIT, false, false).await };
        self.rig.run(zeros).unwrap();
        self.words.extend((unit..unit + count).map(|unit| (unit, 0)));
    }

    /// Does something at random that a client may do.
    fn disturb(&mut self, word: u64) {
        let (unit, units) = (self.rng.below(self.units()), self.units());
        let (long, short) = ((1 + self.rng.below(120)).min(units - unit), (1 + self.rng.below(3)).min(units - unit));
        match self.rng.below(12) {
            0 => self.destage(),
            1 => self.flush(),
            2 => self.write(unit, long, word),
            3 => self.zero(unit, long),
            4 => self.checkpoint(),
            5 => drop(self.move_down()),
            _ => self.write(unit, short, word),
        }
    }
}

/// From every layout to every other one, beside clients: the bytes are the same at every moment, and at the end there
/// is one table.
pub fn every_layout_becomes_every_other_one_under_load() {
    for (nth, from) in LAYOUTS.into_iter().enumerate() {
        for (other, to) in LAYOUTS.into_iter().enumerate() {
            let mut story = Story::of(2_000 + (nth * 10 + other) as u64, from, nth % 2 == 1);
            let half = story.units() / 2;
            story.write(0, half, 1);
            story.scatter(60, 100);
            story.destage();
            let job = story.change(ask(to));
            assert_eq!(job.is_none(), from == to);
            for round in 0..40 {
                story.disturb(10_000 + round);
                if round % 8 == 0 {
                    story.prove_bytes();
                }
            }
            story.until_changed(job);
            story.prove();
            let layout = story.vdisk().layout();
            assert_eq!((layout.resiliency(), layout.columns() as u8), (to.0, to.1));
            story.flush();
            story.crash();
            story.prove();
            story.rig.close().unwrap();
            story.rig.open(&mut story.rng).unwrap();
            story.prove();
            assert!(story.rig.pool().store().map.borrow().tables.len() <= 2, "a table, and one of packed stripes");
        }
    }
}

/// The power goes at any moment of a change, again and again: what was flushed is there, and the change goes on by
/// itself.
pub fn a_crash_at_any_moment_of_a_change_loses_nothing_and_the_change_goes_on() {
    for seed in sample(0..40) {
        let (from, to) = (LAYOUTS[seed as usize % 5], LAYOUTS[(seed as usize / 5 + seed as usize + 1) % 5]);
        let mut story = Story::of(2_200 + seed, from, seed % 3 == 0);
        story.write(0, story.units() / 2, 1);
        story.scatter(40, 100);
        let mut asked = false;
        for round in 0..8 {
            (0..story.rng.below(12)).for_each(|op| story.disturb(1_000_000 + round * 1000 + op));
            story.flush();
            let (pool, again) = (story.rig.pool(), story.rng.chance(0.3));
            let asking = async move {
                if !asked || again {
                    let _ = pool.vdisk_change("vdisk", &ask(to), 0).await;
                }
                pool.destage_everything().await;
                let _ = pool.checkpoint().await;
            };
            asked = true;
            story.rig.world.spawn("change", Box::pin(asking));
            let steps = Nanos(story.rng.below(150_000_000));
            story.rig.world.run_until(steps, || false);
            story.crash();
            story.prove();
        }
        let job = story.change(ask(to));
        story.until_changed(job);
        story.prove();
    }
}

/// What is discarded, or zeroed, above an older table is zeros from then on: at once, after a crash and a checkpoint,
/// as parts of stripes and whole, and when the older table is gone.
pub fn what_is_zeroed_above_an_older_table_stays_zeros() {
    for (nth, to) in LAYOUTS.into_iter().enumerate().skip(1) {
        let mut story = Story::of(2_300 + nth as u64, LAYOUTS[0], false);
        story.fill(1);
        let job = story.change(ask(to)).unwrap();
        story.pause(job);
        let (per, old) = (story.vdisk().stripe_len().0 / UNIT, story.per_stripe());
        let places = [(0, 4 * per * old), (per * old * 5, per), (per * old * 5 + 3 * per, old), (250, 1), (256, 300)];
        for (unit, count) in places {
            story.zero(unit, count);
            story.prove_bytes();
        }
        // A discard forgets what are whole stripes; the rest of it is as it was.
        let first = (600u64).next_multiple_of(per);
        story.discard(first, 3 * per);
        story.words.extend((first..first + 3 * per).map(|unit| (unit, 0)));
        story.prove();
        story.flush();
        story.crash();
        story.prove();
        story.checkpoint();
        story.write(2, 3, 7);
        story.write(per * old * 5 + 1, 1, 8);
        story.prove();
        story.flush();
        story.destage();
        story.crash();
        story.prove();
        story.checkpoint();
        story.checkpoint();
        story.rig.close().unwrap();
        story.rig.open(&mut story.rng).unwrap();
        story.prove();
        let job = story.change(ask(to));
        story.until_changed(job);
        story.prove();
        // Another one comes on top of zero entries.
        let job = story.change(ask(LAYOUTS[0]));
        story.prove();
        story.until_changed(job);
        story.prove();
        story.crash();
        story.prove();
    }
}

/// One disk after the other goes and comes back in the middle of a change.
pub fn disks_go_and_come_back_in_the_middle_of_a_change() {
    for seed in sample(0..10) {
        let mut story = Story::of(2_400 + seed, LAYOUTS[seed as usize % 3], false);
        story.write(0, story.units() * 3 / 4, 1);
        story.flush();
        let to = LAYOUTS[(seed as usize + 1) % 3];
        let job = story.change(ask(to));
        for round in 0..4 {
            let no = story.rng.below(5) as usize;
            story.rig.disks[no].vanish();
            (0..4).for_each(|op| story.disturb(5_000 + round * 100 + op));
            let steps = Nanos(story.rng.below(300_000_000));
            story.rig.world.run_until(steps, || false);
            story.prove_bytes();
            story.come_back();
            story.repair();
        }
        story.until_changed(job);
        story.repair();
        story.prove();
        story.flush();
        story.crash();
        story.prove();
    }
}

/// All disks lose what their caches held, in the middle of a change: what was flushed is there, at the latest when the
/// owner says that what was lost is given up.
pub fn caches_that_are_lost_in_the_middle_of_a_change_take_nothing_that_was_flushed() {
    for seed in sample(0..20) {
        let mut story = Story::of(2_450 + seed, LAYOUTS[seed as usize % 5], false);
        story.write(0, story.units() * 3 / 4, 1);
        story.flush();
        let job = story.change(ask(LAYOUTS[(seed as usize + 2) % 5]));
        for _ in 0..3 {
            let steps = Nanos(story.rng.below(60_000_000));
            story.rig.world.run_until(steps, || false);
            story.lose_caches();
            story.come_back();
            story.clear();
            story.prove_bytes();
        }
        // The job may have ended with the writes that were lost.
        let job = story.change(ChangeAsk::default()).or(job);
        story.until_changed(job);
        story.prove_bytes();
        story.crash();
        story.prove_bytes();
    }
}

/// A thin virtual disk of a pool that is nearly full: what is moved makes room for the next. Where somebody else takes
/// the room meanwhile, the change stops and says so, nothing is lost, and it goes on when there is room again.
pub fn a_change_without_room_stops_says_so_and_goes_on_later() {
    let mut story = Story::of(2_500, LAYOUTS[0], false);
    story.fill(1);
    story.flush();
    let simple = Layout::new(Resiliency::Simple, 1, ByteCount::kib(64)).unwrap();
    let job = story.change(ask(LAYOUTS[1])).unwrap();
    story.pause(job);
    let room = story.rig.pool().store().map.borrow().room_for(simple, 0, DiskSet::EMPTY);
    story.rig.make_vdisk_named("other", simple, room, 4096, true).unwrap();
    story.resume(job);
    let ended = story.wait(job);
    assert_eq!((ended.state, ended.failure), (JobState::Failed, Some(ErrorKind::NoSpace)), "{ended:?}");
    assert!(ended.note.contains("Add a disk") && ended.note.contains("still lie as before"), "{}", ended.note);
    story.prove();
    story.crash();
    story.prove();
    let pool = story.rig.pool();
    story.rig.run(async move { pool.vdisk_remove("other").await.unwrap() });
    let job = story.change(ChangeAsk::default());
    story.until_changed(job);
    story.prove();
}

/// What there is no room for is refused beforehand, with how much there is.
pub fn a_change_for_which_there_is_no_room_is_refused() {
    let mut story = Story::with_disks(2_510, 4, ByteCount::mib(14));
    story.layout = Layout::new(Resiliency::Simple, 4, ByteCount::kib(16)).unwrap();
    story.rig.make_vdisk(story.layout, ByteCount::mib(24), 512, false).unwrap();
    story.fill(1);
    let refused = story.plan("vdisk", ask((MIRROR, 2, 16))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    let wide = story.plan("vdisk", ask((PARITY, 5, 16))).unwrap_err();
    assert_eq!(wide.kind(), ErrorKind::NotPossible, "{wide}");
    assert!(story.plan("none", ChangeAsk::default()).is_err());
    assert!(story.plan("vdisk", ChangeAsk::default()).unwrap().is_already_so());
    story.prove();
}

/// A fixed virtual disk takes all its writes at every moment of a change, whoever fills the rest of the pool.
pub fn a_fixed_virtual_disk_keeps_its_promise_in_the_middle_of_a_change() {
    let mut story = Story::of(2_520, LAYOUTS[0], true);
    story.fill(1);
    story.flush();
    let job = story.change(ask(LAYOUTS[1])).unwrap();
    story.pause(job);
    let simple = Layout::new(Resiliency::Simple, 1, ByteCount::kib(64)).unwrap();
    story.rig.make_vdisk_named("other", simple, ByteCount::mib(256), 4096, false).unwrap();
    let other = story.rig.pool().vdisk("other").unwrap();
    story.rig.run(async move {
        let mut at = 0;
        while other.write(VirtualOffset(at), &vec![9; 1 << 20], true).await.is_ok() {
            at += 1 << 20;
        }
    });
    for round in 2..5 {
        story.fill(round);
        story.scatter(30, round * 1000);
        story.prove();
    }
    story.resume(job);
    story.scatter(100, 9_000);
    story.until_changed(Some(job));
    story.fill(7);
    story.prove();
}

/// A change is paused and goes on; cancelled, it stops where it is, and goes on when it is asked for again; another one
/// is refused meanwhile.
pub fn a_change_is_paused_cancelled_and_asked_for_again() {
    let mut story = Story::of(2_530, LAYOUTS[0], false);
    story.fill(1);
    story.flush();
    let job = story.change(ask(LAYOUTS[2])).unwrap();
    story.pause(job);
    let other = story.plan("vdisk", ask(LAYOUTS[1])).unwrap_err();
    assert!(other.kind() == ErrorKind::NotPossible && other.to_string().contains("is under way"), "{other}");
    story.scatter(30, 100);
    story.prove();
    let left = story.vdisk().bytes_in_older();
    assert!(left > 0);
    let cancelled = story.rig.pool();
    story.rig.run(async move { cancelled.job_cancel(job).await.unwrap() });
    story.rig.world.run_until(Nanos::secs(5), || false);
    assert_eq!((story.vdisk().is_stacked(), story.vdisk().bytes_in_older()), (true, left));
    story.prove();
    story.flush();
    story.crash();
    story.rig.world.run_until(Nanos::secs(5), || false);
    assert!(story.vdisk().is_stacked(), "what a person ended does not begin by itself");
    story.prove();
    let again = story.change(ChangeAsk::default());
    assert!(again.is_some_and(|again| again != job));
    story.until_changed(again);
    story.prove();
}

/// A virtual disk that is removed in the middle of a change leaves nothing.
pub fn a_virtual_disk_is_removed_in_the_middle_of_a_change_and_leaves_nothing() {
    for seed in sample(0..8) {
        let mut story = Story::of(2_540 + seed, LAYOUTS[0], seed % 2 == 1);
        story.fill(1);
        story.scatter(30, 100);
        let job = story.change(ask(LAYOUTS[1 + seed as usize % 4])).unwrap();
        let steps = Nanos(story.rng.below(60_000_000));
        story.rig.world.run_until(steps, || false);
        let pool = story.rig.pool();
        story.rig.run(async move { pool.vdisk_remove("vdisk").await.unwrap() });
        let ended = story.wait(job);
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
        story.rig.close().unwrap();
        story.rig.open(&mut story.rng).unwrap();
        let pool = story.rig.pool();
        assert!(pool.store().map.borrow().tables.is_empty());
        let report = story.rig.run(async move { pool.check(false).await.unwrap() });
        assert!(report.is_sound(), "{report:?}");
    }
}

/// Who does not know stacks must not open a pool that has had one.
pub fn the_bit_of_stacks_is_set_before_the_first() {
    let mut story = Story::of(2_550, LAYOUTS[0], false);
    story.fill(1);
    assert!(!story.labels_say(FEATURE_STACKS));
    let job = story.change(ask(LAYOUTS[0]));
    assert!(job.is_none() && !story.labels_say(FEATURE_STACKS), "it is so already");
    let job = story.change(ask(LAYOUTS[1]));
    assert!(story.labels_say(FEATURE_STACKS));
    story.until_changed(job);
    assert!(story.labels_say(FEATURE_STACKS));
}

/// What landed before a table came on top, and was given back before that, does not come into it after a crash, however
/// long somebody else keeps the log.
pub fn what_landed_before_a_change_and_was_given_back_stays_away() {
    let mut story = Story::of(2_560, LAYOUTS[0], false);
    let simple = Layout::new(Resiliency::Simple, 1, ByteCount::kib(64)).unwrap();
    story.rig.make_vdisk_named("other", simple, ByteCount::mib(1), 4096, false).unwrap();
    let other = story.rig.pool().vdisk("other").unwrap();
    // It lies in the log, and stays there.
    story.rig.run(async move { other.write(VirtualOffset(0), &[5; 4096], true).await.unwrap() });
    story.write(3, 1, 4);
    story.flush();
    let per = story.per_stripe();
    story.write(0, per, 5);
    story.discard(0, 2 * per);
    story.words.extend((0..2 * per).map(|unit| (unit, 0)));
    story.write(40 * per, 4 * per, 6);
    story.flush();
    let job = story.change(ask(LAYOUTS[1]));
    story.until_changed(job);
    story.checkpoint();
    story.checkpoint();
    story.prove_bytes();
    story.crash();
    story.prove();
}

/// What a client writes while a stripe rises is what is read afterwards.
pub fn what_is_written_while_it_rises_is_newer() {
    for seed in sample(0..30) {
        let mut story = Story::of(2_600 + seed, LAYOUTS[0], false);
        story.fill(1);
        story.flush();
        let job = story.change(ask(LAYOUTS[1 + seed as usize % 4]));
        for op in 0..60 {
            let unit = story.rng.below(story.units());
            story.write(unit, 1, 100 + op);
            if op % 10 == 9 {
                story.flush();
            }
        }
        story.until_changed(job);
        story.prove();
        story.flush();
        story.crash();
        story.prove();
    }
}

/// What clients wrote whole above an older table hides it only once it is durable: where it is lost with the caches of
/// all disks, and given up, what was flushed before is read again.
pub fn what_clients_wrote_hides_an_older_table_only_once_it_is_durable() {
    for seed in sample(0..30) {
        let mut story = Story::of(2_650 + seed, LAYOUTS[0], false);
        story.fill(1);
        story.flush();
        let job = story.change(ask(LAYOUTS[2])).unwrap();
        story.pause(job);
        let written = story.units() / 4 * 3;
        (0..written).step_by(32).for_each(|unit| story.write(unit, 32.min(written - unit), 2));
        let steps = Nanos(story.rng.below(5_000_000));
        story.rig.world.run_until(steps, || false);
        let pool = story.rig.pool();
        let resuming = async move { drop(pool.job_resume(job).await) };
        story.rig.world.spawn("resume", Box::pin(resuming));
        let steps = Nanos(story.rng.below(3_000_000));
        story.rig.world.run_until(steps, || false);
        story.lose_caches();
        story.come_back();
        story.clear();
        let bytes = story.bytes();
        for unit in 0..story.units() {
            let found = bytes[(unit * UNIT) as usize];
            let right = found == 1 || found == 2 && unit < written;
            assert!(right, "seed {seed}: unit {unit} is of {found}");
        }
    }
}

/// Writers wait for room that comes once a slow disk has answered. Who makes room and who waits for it do not wake each
/// other meanwhile: each write ends.
pub fn nobody_spins_while_room_is_to_come_from_a_slow_disk() {
    for seed in sample(0..60) {
        let before = LAYOUTS[seed as usize % LAYOUTS.len()];
        let after = LAYOUTS[(seed / 5 + seed + 1) as usize % LAYOUTS.len()];
        let mut story = Story::of(2_600 + seed, before, false);
        story.fill(1);
        story.flush();
        story.change(ask(after));
        let world = story.rig.world.clone();
        let pause = Nanos(story.rng.below(40_000_000));
        story.rig.run(async move { world.sleep(pause).await });
        let simple = Layout::new(Resiliency::Simple, 1, ByteCount::kib(64)).unwrap();
        let pool = story.rig.pool();
        story.rig.make_vdisk_named("other", simple, ByteCount::mib(256), 4096, false).unwrap();
        let (other, vdisk) = (pool.vdisk("other").unwrap(), story.vdisk());
        let filler = other.clone();
        let filled = story.rig.run(async move {
            let mut at = 0;
            while filler.write(VirtualOffset(at), &vec![9; 1 << 20], true).await.is_ok() {
                at += 1 << 20;
            }
            at
        });
        for _ in 0..8 {
            let slow = story.rng.below(story.rig.disks.len() as u64) as usize;
            story.rig.disks[slow].stall(Nanos(story.rng.below(200_000_000)));
            let given = story.rng.below(filled / WRITE / 4 - 1) * WRITE * 4;
            let some = |vdisk: &Rc<Vdisk>, rng: &mut Rng, len: u64| {
                let vdisk = vdisk.clone();
                let at = VirtualOffset(rng.below(len / WRITE) * WRITE);
                async move { drop(vdisk.write(at, &[7; WRITE as usize], false).await) }
            };
            let rng = &mut story.rng;
            let mut writes: Vec<_> = (0..12).map(|_| some(&vdisk, rng, 4 << 20)).collect();
            writes.extend((0..6).map(|_| some(&other, rng, 256 << 20)));
            let giver = other.clone();
            story.rig.run(async move {
                let _ = giver.discard(VirtualOffset(given), 4 * WRITE, false).await;
                join(writes.into_iter()).await;
            });
        }
    }
}
