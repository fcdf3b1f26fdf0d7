//! What the tree has of the configuration: segments and chunks. Each story ends with a panic if one rule is broken.

use crate::story::*;
use std::collections::BTreeSet;
use weft_engine::tree::Key;
use weft_engine::units::{ByteCount, Nanos, SegmentNo, VirtualOffset};
use weft_engine::world::World;

/// Takes every page pair that is free for the tree, for as long as the pool is open: of the metadata segments that
/// there are, or (`everywhere`) also of those that could be made. And gives the tree more than its half pairs hold.
fn take_pairs(story: &Story, everywhere: bool) {
    let pool = story.rig.pool();
    let store = pool.store();
    let mut records = Vec::new();
    loop {
        let mut map = store.map.borrow_mut();
        let free = map
            .segments
            .values()
            .any(|found| found.record.owner == weft_engine::format::record::OWNER_METADATA && !found.free.is_empty());
        if !free && !everywhere || map.take_pair(&mut records).is_none() {
            break;
        }
    }
    store.append_all(records);
    (0..40).for_each(|no| store.tree().put(Key::new(100, no, 0, 0), &[7; 500]));
}

fn whole_checkpoints(story: &Story) -> u64 {
    story.rig.pool().store().counters.whole_checkpoints.get()
}

/// A pool with something in its tree.
fn used(seed: u64) -> Story {
    let story = Story::new(seed, 3, MIRROR2);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.checkpoint();
    story.write_and_flush(2 * story.stripe(), 2 * story.stripe(), 3);
    story
}

fn judge(story: &Story) {
    let stripe = story.stripe();
    for (at, len, byte) in [(0, 2 * stripe, 1), (2 * stripe, 2 * stripe, 3), (4 * stripe, 2 * stripe, 1)] {
        assert_eq!(story.byte(at, len).unwrap(), byte, "{len} bytes at {at}");
    }
    assert_eq!(story.prove(), 0);
}

fn cut_and_judge(mut story: Story) -> Story {
    story.cut();
    let mut again = story.with_images(&story.images());
    again.open().unwrap();
    judge(&again);
    again
}

/// A checkpoint that finds no page for the tree has all of the configuration itself; the next one has it in the tree
/// again.
pub fn a_checkpoint_for_whose_tree_there_is_no_room_is_taken_all_the_same() {
    for more in 0..3 {
        let story = used(1);
        take_pairs(&story, true);
        story.checkpoint();
        assert_eq!(whole_checkpoints(&story), 1);
        for nth in 0..more {
            story.write_and_flush((8 + nth) * story.stripe(), story.stripe(), 5);
            story.checkpoint();
        }
        let again = cut_and_judge(story);
        again.write_and_flush(0, 512, 1);
        again.checkpoint();
        assert_eq!(whole_checkpoints(&again), 0);
        cut_and_judge(again).close();
    }
}

/// A page of the tree is lost on all disks while the pool is open: what it held is in memory, and is written anew when
/// it changes, or when the page is missed.
pub fn what_a_lost_page_of_the_tree_held_is_written_anew() {
    for scrubbed in [false, true] {
        let story = used(2);
        let pool = story.rig.pool();
        for (_, copies) in weft_sim::tree::copies(&pool) {
            copies.iter().for_each(|(disk, at)| story.rig.disks[*disk].spoil(*at));
        }
        pool.store().tree().forget_pages();
        if scrubbed {
            let report = story.rig.run(async move { pool.check(true).await.unwrap() });
            println!("{report:?}");
        } else {
            let layout = story.layout;
            story.rig.make_vdisk_named("other", layout, ByteCount::mib(1), 512, true).unwrap();
            story.checkpoint();
        }
        let again = cut_and_judge(story);
        again.write_and_flush(0, 512, 1);
        again.checkpoint();
        cut_and_judge(again).close();
    }
}

/// A checkpoint whose tree lies in a metadata segment that was made for it can be opened.
pub fn a_metadata_segment_that_is_made_for_the_tree_of_a_checkpoint_is_found() {
    let story = used(3);
    let homes = |story: &Story| -> BTreeSet<SegmentNo> {
        let pool = story.rig.pool();
        let map = pool.store().map.borrow();
        map.segments
            .values()
            .filter(|found| found.record.owner == weft_engine::format::record::OWNER_METADATA)
            .map(|found| found.record.id)
            .collect()
    };
    let before = homes(&story);
    take_pairs(&story, false);
    assert_eq!(homes(&story), before);
    story.checkpoint();
    assert_eq!(homes(&story).len(), before.len() + 1);
    assert_eq!(whole_checkpoints(&story), 0);
    cut_and_judge(story).close();
}

/// What an opening replayed is in its first checkpoint.
pub fn what_is_replayed_is_in_the_next_checkpoint() {
    let mut story = Story::new(4, 3, MIRROR2);
    story.write_and_flush(0, 2 * story.stripe(), 1);
    story.write_and_flush(2 * story.stripe(), 2 * story.stripe(), 3);
    story.write_and_flush(4 * story.stripe(), 2 * story.stripe(), 1);
    story.cut();
    let mut again = story.with_images(&story.images());
    again.open().unwrap();
    cut_and_judge(again).close();
}

/// A virtual disk that no checkpoint knows is written and removed at any moment of a checkpoint: what the log has of it
/// can be replayed.
pub fn a_virtual_disk_that_is_removed_while_a_checkpoint_is_taken_is_no_riddle() {
    for step in 0..120 {
        let mut story = used(6);
        let layout = story.layout;
        story.rig.make_vdisk_named("other", layout, ByteCount::mib(1), 512, false).unwrap();
        let (pool, other) = (story.rig.pool(), story.rig.pool().vdisk("other").unwrap());
        let (written, len, world) = (other.clone(), story.stripe(), story.rig.world.clone());
        story.rig.run(async move { written.write(VirtualOffset(0), &vec![8; len as usize], true).await.unwrap() });
        let remover = async move {
            world.sleep(Nanos(step * 50_000)).await;
            other.write(VirtualOffset(len), &vec![9; len as usize], true).await.unwrap();
            drop(other);
            pool.vdisk_remove("other").await.unwrap();
        };
        story.rig.world.spawn("remover", Box::pin(remover));
        story.checkpoint();
        story.cut();
        let mut again = story.with_images(&story.images());
        again.open().unwrap_or_else(|error| panic!("step {step}: {error}"));
        judge(&again);
        again.close();
    }
}
