//! How long a batch of the log may be, and so how far behind the end of a log is looked for what contradicts it. Each
//! story ends with a panic if one rule is broken.

use crate::story::*;
use weft_engine::error::ErrorKind;
use weft_engine::format::label::BatchBound;
use weft_engine::pool::OpenOptions;
use weft_engine::units::{BLOCK, ByteCount, Nanos, VirtualOffset};
use weft_sim::disk::SimDisk;
use weft_sim::rig::Rig;
use weft_sim::world::{Scheduling, SimWorld, Stop};

/// What bounds no batch: the weft that knew no bound.
const OLDER: u64 = 0;
/// A bound so short that eight of them are one batch of an older weft.
const SHORT: u64 = 16 << 10;
/// Stripes of which one flush lands a half: their batch is much longer than [`SHORT`].
const STRIPES: u64 = 12;

/// A pool whose disks were written by a weft with this bound, open.
fn pool_of(bound: u64) -> Story {
    let mut story = Story::new(5, 3, MIRROR2);
    story.close();
    open_with(&mut story, bound);
    story
}

fn open_with(story: &mut Story, bound: u64) {
    story.rig.options.tuning.batch_bytes = bound;
    story.open().unwrap();
}

/// Lands half of each of some stripes with one flush.
fn land(story: &Story, stripes: std::ops::Range<u64>, byte: u8) {
    stripes.for_each(|no| story.write(no * story.stripe(), story.stripe() / 2, byte).unwrap());
    story.flush().unwrap();
}

/// Where each batch of the log begins that an opening would find, and where it ends.
fn batches(story: &Story) -> Vec<std::ops::Range<u64>> {
    let mut looks = story.with_images(&story.images());
    looks.rig.options = OpenOptions { read_only: true, ..looks.rig.options };
    looks.open().unwrap();
    let pool = looks.rig.pool();
    let log = &pool.store().log;
    let (tail, head) = log.live();
    let starts: Vec<u64> = log.run_from(tail, u64::MAX).map_or(Vec::new(), |run| {
        assert_eq!(run.end, head, "the log of a story fits one round");
        run.batches.iter().map(|batch| batch.position).collect()
    });
    let ends = starts.iter().skip(1).copied().chain([head]);
    let found = starts.iter().copied().zip(ends).map(|(from, until)| from..until).collect();
    drop(pool);
    looks.rig.halt();
    found
}

/// The pool opens as it is, and has what was flushed; with any batch but the last gone from all disks it does not.
fn judge(story: &Story, halves: u8) {
    let all = batches(story);
    let images = story.images();
    let plan = label_of(&images[0]).plan;
    for (nth, batch) in all.iter().enumerate() {
        let is_last = nth + 1 == all.len();
        let mut damaged = images.clone();
        let at = plan.log_at + ByteCount(batch.start % plan.log_len.0);
        damaged.iter_mut().for_each(|image| image.overwrite(at, &[0; BLOCK as usize]));
        let mut again = story.with_images(&damaged);
        match again.open() {
            Err(error) => assert!(!is_last && error.kind == ErrorKind::Corrupt, "batch {nth} of {all:?}: {error}"),
            // Whether the last one was ever whole, nobody can know.
            Ok(()) => assert!(is_last, "batch {nth} of {all:?} is gone, and nobody says so"),
        }
    }
    let mut again = story.with_images(&images);
    again.open().unwrap();
    let stripe = again.stripe();
    for no in 0..STRIPES {
        assert_eq!(again.byte(no * stripe, stripe / 2).unwrap(), halves, "stripe {no}");
    }
    assert_eq!(again.prove(), 0);
    again.rig.halt();
}

fn is_long(batch: &std::ops::Range<u64>) -> bool {
    batch.end - batch.start > 4 * SHORT
}

/// A batch of an older weft is gone whose successor, of the older weft or of one that has a bound, is there: the pool
/// does not open as if the log had ended before it.
pub fn a_batch_from_before_the_bound_is_missed_as_far_as_it_may_have_reached() {
    for (then, bytes) in [(OLDER, 0), (SHORT, SHORT)] {
        let mut story = pool_of(OLDER);
        story.checkpoint();
        land(&story, 0..STRIPES, 1);
        story.cut();
        assert!(batches(&story).iter().any(is_long), "{:?}", batches(&story));
        // What lies in the log keeps it there.
        open_with(&mut story, then);
        land(&story, STRIPES..STRIPES + 1, 2);
        story.cut();
        story.rig.options.tuning.batch_bytes = SHORT;
        let found = batches(&story);
        let long = found.iter().position(is_long).expect("it still is there");
        assert!(long + 1 < found.len(), "{found:?}");
        assert_eq!(label_of(&story.images()[0]).batch_bound.most, bytes);
        judge(&story, 1);
    }
}

/// Every opening that has another bound than the one before says so before its first batch, and a crash at any disk
/// operation of it, and of a long flush, leaves a pool that opens, and misses what is missing.
pub fn a_crash_anywhere_while_the_bound_changes_leaves_the_end_of_the_log_proven() {
    let mut crashes = 0;
    for (before, then) in [(OLDER, SHORT), (SHORT, OLDER), (4 * SHORT, SHORT), (SHORT, SHORT)] {
        let mut first = pool_of(before);
        first.checkpoint();
        land(&first, 0..STRIPES, 1);
        first.cut();
        let images = first.images();
        for at in 1.. {
            let mut story = first.with_images(&images);
            story.rig.options.tuning.batch_bytes = then;
            story.rig.world.crash_at(story.rig.world.operations() + at);
            let crashed = !opens_and_lands(&mut story);
            story.rig.world.crash_at(u64::MAX);
            story.cut();
            story.rig.options.tuning.batch_bytes = SHORT;
            judge(&story, 1);
            crashes += 1;
            if !crashed {
                let bound = label_of(&story.images()[0]).batch_bound;
                assert_eq!(bound.most, then);
                assert!(then != OLDER || bound == BatchBound::default());
                break;
            }
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 60, "there is more to crash than {crashes} operations");
}

/// Opens the pool, and lands the other stripes with one flush. `false`: the power went.
fn opens_and_lands(story: &mut Story) -> bool {
    let (opening, stripe) = (story.rig.opening(&mut story.rng), story.stripe());
    let act = async move {
        let pool = opening.await.unwrap();
        let vdisk = pool.vdisk("vdisk").unwrap();
        for no in STRIPES..2 * STRIPES {
            vdisk.write(VirtualOffset(no * stripe), &vec![3; stripe as usize / 2], false).await.unwrap();
        }
        vdisk.flush().await.unwrap();
    };
    match story.rig.world.block_on_within(Nanos::secs(600), act) {
        Ok(()) => true,
        Err(Stop::Crashed) => false,
        Err(other) => panic!("it hangs: {other:?}"),
    }
}

/// However long the log is, an opening looks for a successor of its last batch no farther than one may lie.
pub fn the_end_of_a_long_log_is_proven_within_a_batch() {
    let read = |bound: u64| {
        let world = SimWorld::new(8, Scheduling::Random);
        let mut rng = world.rng("story");
        let mut rig = Rig::new(world, 3, ByteCount::gib(2));
        rig.options.tuning.batch_bytes = bound;
        rig.create(ByteCount::mib(16)).unwrap();
        rig.open(&mut rng).unwrap();
        rig.close().unwrap();
        let bytes = |rig: &Rig| rig.disks.iter().map(|disk: &SimDisk| disk.stats().read_bytes.0).sum::<u64>();
        let before = bytes(&rig);
        rig.open(&mut rng).unwrap();
        let read = bytes(&rig) - before;
        rig.close().unwrap();
        read
    };
    let (older, bounded) = (read(OLDER), read(1 << 20));
    assert!(older > 3 * (64 << 20) / 8, "an eighth of a log of 64 MiB on each of three disks: {older}");
    assert!(bounded < 3 * (2 << 20), "{bounded}");
}
