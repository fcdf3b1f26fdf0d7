//! What is in use, as checkpoints keep it: no opening looks into tables for that, and none believes what is lost, old,
//! or not all of it. Each story ends with a panic if one rule is broken.

use crate::story::*;
use weft_engine::checksum::crc32c;
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::format::record::{self, Record};
use weft_engine::tree::Key;
use weft_engine::units::{BLOCK, ByteCount, Nanos};
use weft_engine::world::World;
use weft_sim::disk::DiskImage;
use weft_sim::world::Stop;

/// What each stripe of a story holds: what was flushed last, and what may be there beside it.
struct Oracle {
    flushed: Vec<u8>,
    written: Vec<u8>,
}

/// One step of a story: the first stripe, how many, and what is written there (0: it is discarded).
type Step = (u64, u64, u8);

const STRIPES: usize = 12;
const STEPS: [Step; 9] =
    [(0, 8, 1), (4, 6, 2), (0, 2, 0), (2, 8, 3), (0, 4, 4), (9, 3, 5), (3, 5, 0), (0, 12, 6), (1, 3, 7)];

fn small() -> Story {
    Story::new(11, 2, MIRROR2)
}

fn tables_counted(story: &Story) -> u64 {
    story.rig.pool().store().map.borrow().tables_counted
}

/// What tables map and what counts as in use agree, and so does what is free: written over, nothing is lost.
fn judge(story: &Story) {
    assert_eq!(story.prove(), 0);
    let stripe = story.stripe();
    let before = story.read(0, STRIPES as u64 * stripe).unwrap();
    story.write_and_flush(STRIPES as u64 * stripe, 20 * stripe, 9);
    story.write_and_flush(STRIPES as u64 * stripe, 20 * stripe, 10);
    assert!(story.read(0, STRIPES as u64 * stripe).unwrap() == before, "what was written beside it took its place");
    assert_eq!(story.prove(), 0);
}

fn opened_again(story: &mut Story) -> Story {
    story.cut();
    let mut again = story.with_images(&story.images());
    again.open().unwrap();
    again
}

/// Stripes are written over and discarded, with checkpoints between, and the power goes at every disk operation: what
/// is flushed is there, what is in use is known, and no table was counted.
pub fn a_crash_anywhere_leaves_what_is_in_use_known() {
    let mut crashes = 0;
    for at in 1.. {
        let mut story = small();
        let first = story.rig.world.operations();
        story.rig.world.crash_at(first + at);
        let mut oracle = Oracle { flushed: vec![0; STRIPES], written: vec![0; STRIPES] };
        let crashed = STEPS.iter().enumerate().any(|(nth, step)| play(&story, &mut oracle, nth, *step).is_none());
        story.rig.world.crash_at(u64::MAX);
        let mut again = opened_again(&mut story);
        let stripe = again.stripe();
        for (nth, (flushed, written)) in oracle.flushed.iter().zip(&oracle.written).enumerate() {
            let byte = again.byte(nth as u64 * stripe, stripe).unwrap();
            let is_right = byte == *flushed || byte == *written;
            assert!(is_right, "crash {at}: stripe {nth} holds {byte}, not {flushed} or {written}");
        }
        assert_eq!(tables_counted(&again), 0, "crash {at}");
        judge(&again);
        again.close();
        again.open().unwrap();
        assert_eq!(tables_counted(&again), 0, "crash {at}");
        judge(&again);
        again.rig.halt();
        crashes += 1;
        if !crashed {
            break;
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 100, "there is more to crash than {crashes} operations");
}

/// Does a step, with a flush or a checkpoint after it. `None`: the power went.
fn play(story: &Story, oracle: &mut Oracle, nth: usize, (first, count, byte): Step) -> Option<()> {
    let (vdisk, pool, stripe) = (story.vdisk(), story.rig.pool(), story.stripe());
    let stripes = first as usize..(first + count) as usize;
    oracle.written[stripes].fill(byte);
    let at = weft_engine::units::VirtualOffset(first * stripe);
    let act = async move {
        match byte {
            0 => vdisk.discard(at, count * stripe, true).await.unwrap(),
            byte => vdisk.write(at, &vec![byte; (count * stripe) as usize], true).await.unwrap(),
        }
        if nth % 2 == 1 {
            pool.checkpoint().await.unwrap();
        }
    };
    match story.rig.world.block_on_within(Nanos::secs(600), act) {
        Ok(()) => {
            oracle.flushed.copy_from_slice(&oracle.written);
            Some(())
        }
        Err(Stop::Crashed) => None,
        Err(other) => panic!("it hangs: {other:?}"),
    }
}

/// Stripes are committed, and let go of, while a checkpoint runs that begins at any disk operation of the write: it has
/// them or the log has.
pub fn what_is_committed_while_a_checkpoint_runs_is_in_use() {
    for step in 0..40 {
        let mut story = small();
        let stripe = story.stripe();
        story.write_and_flush(0, 8 * stripe, 1);
        story.checkpoint();
        story.write_and_flush(0, 6 * stripe, 2);
        let vdisk = story.vdisk();
        let writer = async move {
            let at = weft_engine::units::VirtualOffset(2 * stripe);
            vdisk.write(at, &vec![3; 8 * stripe as usize], true).await.unwrap();
        };
        let (pool, world) = (story.rig.pool(), story.rig.world.clone());
        let begins = world.operations() + step;
        world.spawn("writer", Box::pin(writer));
        story.rig.run(async move {
            // Not for ever: the write may take fewer.
            for _ in 0..1000 {
                if world.operations() >= begins {
                    break;
                }
                world.sleep(Nanos(10_000)).await;
            }
            pool.checkpoint().await.unwrap();
        });
        story.flush().unwrap();
        let mut again = opened_again(&mut story);
        judge(&again);
        again.checkpoint();
        let mut third = opened_again(&mut again);
        judge(&third);
        third.close();
    }
}

/// A checkpoint is cut off after it wrote pages of tables, at every disk operation: the next opening begins with those
/// that the one before it named.
pub fn pages_of_a_checkpoint_that_was_cut_off_mislead_nobody() {
    for at in 1.. {
        let mut story = small();
        let stripe = story.stripe();
        story.write_and_flush(0, 8 * stripe, 1);
        story.checkpoint();
        story.write_and_flush(0, 6 * stripe, 2);
        story.rig.world.crash_at(story.rig.world.operations() + at);
        let pool = story.rig.pool();
        let crashed =
            story.rig.world.block_on_within(Nanos::secs(600), async move { pool.checkpoint().await }).is_err();
        story.rig.world.crash_at(u64::MAX);
        let mut rng = story.rng.fork(&format!("cut {at}"));
        // What was not flushed is there, or not.
        story.rig.power_cut(&mut rng);
        let mut again = story.with_images(&story.images());
        again.open().unwrap();
        judge(&again);
        let mut third = opened_again(&mut again);
        judge(&third);
        third.close();
        if !crashed {
            return;
        }
    }
}

/// Every page of the tree is lost on all disks, one after the other: what that held of what is in use is counted, and
/// never free.
pub fn what_is_lost_of_what_is_in_use_is_counted() {
    let mut story = small();
    let stripe = story.stripe();
    story.write_and_flush(0, 10 * stripe, 1);
    story.write_and_flush(3 * stripe, 4 * stripe, 2);
    // The entries have pages of their own.
    for no in 0..40 {
        let tree = story.rig.pool().store().tree();
        tree.put(Key::new(5, 1 << 40, no, 0), &[7; 500]);
        tree.put(Key::new(9, no, 0, 0), &[7; 500]);
    }
    story.checkpoint();
    let pages = weft_sim::tree::copies(&story.rig.pool());
    story.cut();
    let images = story.images();
    let mut counted = 0;
    for (_, copies) in &pages {
        let mut again = story.with_images(&images);
        copies.iter().for_each(|(disk, at)| again.rig.disks[*disk].spoil(*at));
        if again.open().is_err() {
            continue;
        }
        counted += tables_counted(&again);
        assert_eq!(again.byte(3 * stripe, 4 * stripe).unwrap(), 2);
        let problems = |story: &Story| {
            let pool = story.rig.pool();
            let report = story.rig.run(async move { pool.check(true).await.unwrap() });
            report.problems.into_iter().filter(|problem| !problem.contains("tree")).collect::<Vec<_>>()
        };
        assert_eq!(problems(&again), Vec::<String>::new());
        again.write_and_flush(12 * stripe, 20 * stripe, 9);
        assert_eq!(again.byte(3 * stripe, 4 * stripe).unwrap(), 2);
        again.checkpoint();
        let mut third = opened_again(&mut again);
        assert_eq!(tables_counted(&third), 0);
        judge(&third);
        third.close();
    }
    assert!(counted > 0, "none of {} pages says what is in use", pages.len());
}

/// A checkpoint that has all of the configuration says nothing of what is in use; the one after it does.
pub fn a_whole_checkpoint_has_its_tables_counted_and_the_next_one_has_not() {
    let mut story = small();
    story.write_and_flush(0, 8 * story.stripe(), 1);
    story.rig.pool().store().begin_tree_anew();
    story.checkpoint();
    let mut again = opened_again(&mut story);
    assert_eq!(tables_counted(&again), 1);
    judge(&again);
    again.checkpoint();
    let mut third = opened_again(&mut again);
    assert_eq!(tables_counted(&third), 0);
    judge(&third);
    third.close();
}

/// A weft that knows nothing of what is in use has changed tables, and took a checkpoint: what the tree still has of it
/// counts for nothing, and all is counted once.
pub fn what_an_older_weft_left_of_what_is_in_use_is_not_believed() {
    let mut story = small();
    let stripe = story.stripe();
    story.write_and_flush(0, 4 * stripe, 1);
    story.checkpoint();
    story.write_and_flush(0, 8 * stripe, 2);
    // So the next checkpoint leaves the tree as it is.
    let pool = story.rig.pool();
    pool.store().map.borrow_mut().take_touched_space();
    pool.store().map.borrow_mut().space_written();
    drop(pool);
    story.checkpoint();
    story.cut();
    let images: Vec<DiskImage> = story.images().iter().map(by_an_older_weft).collect();
    let mut again = story.with_images(&images);
    again.open().unwrap();
    assert_eq!((tables_counted(&again), again.byte(0, 8 * stripe).unwrap()), (1, 2));
    judge(&again);
    again.checkpoint();
    let mut third = opened_again(&mut again);
    assert_eq!(tables_counted(&third), 0);
    judge(&third);
    third.close();
}

/// A disk whose newest checkpoint says nothing of what is in use.
fn by_an_older_weft(image: &DiskImage) -> DiskImage {
    let mut image = image.clone();
    let newest = label_of(&image);
    let (plan, mut anchor) = (newest.plan, newest.anchor);
    let at = plan.blob_at + plan.blob_len * (anchor.checkpoint_no % 2);
    let len = ByteCount(anchor.checkpoint_len.next_multiple_of(BLOCK));
    let mut blob = image.read(at, len).unwrap().to_vec();
    let (mut rest, mut written) = (&blob[..anchor.checkpoint_len as usize], Vec::new());
    while !rest.is_empty() {
        let record = match record::decode(&mut rest).unwrap() {
            Record::Tree(tree) => Record::Tree(record::TreeRecord { space: false, ..tree }),
            other => other,
        };
        record.encode(&mut written);
    }
    blob[..written.len()].copy_from_slice(&written);
    anchor.checkpoint_crc = crc32c(&written);
    image.overwrite(at, &blob);
    for slot in DiskPlan::label_slots(image.shape().capacity) {
        let Ok(Some(label)) = Label::decode(&image.read(slot, ByteCount(BLOCK)).unwrap()) else { continue };
        if label.anchor.checkpoint_no == anchor.checkpoint_no {
            image.overwrite(slot, &Label { anchor, ..label }.encode().0);
        }
    }
    image
}
