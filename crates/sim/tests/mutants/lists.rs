//! Segments as they are listed, for whoever looks for one: by their free places, and by the disks that are there. Each
//! story ends with a panic if one rule is broken.

use crate::story::*;

/// A pool in which segments lie on different pairs of disks.
fn pairs_of_disks(seed: u64) -> Story {
    let story = Story::new(seed, 4, MIRROR2);
    story.write_and_flush(0, 1 << 20, 1);
    story
}

/// Stripes are written over and discarded: their segments are listed with what that leaves free.
pub fn what_becomes_free_is_listed() {
    let story = pairs_of_disks(31);
    assert_eq!(story.prove(), 0);
    let stripe = story.stripe();
    story.discard(stripe, 3 * stripe);
    story.flush().unwrap();
    story.checkpoint();
    assert_eq!(story.prove(), 0);
    story.write_and_flush(0, 9 * stripe, 2);
    story.checkpoint();
    assert_eq!(story.prove(), 0);
    assert_eq!(story.byte(0, 9 * stripe).unwrap(), 2);
}

/// A disk goes, and comes back: segments are listed as what they are with it, and without it.
pub fn what_a_disk_takes_with_it_is_listed() {
    let mut story = pairs_of_disks(32);
    story.rig.options.tuning.auto_jobs = false;
    story.close();
    story.open().unwrap();
    assert_eq!(story.info().vdisks[0].degraded_segments, 0);
    let on = {
        let pool = story.rig.pool();
        let map = pool.store().map.borrow();
        let held = map.segments.values().find(|found| !found.mapped.is_empty()).expect("something was written");
        held.record.slabs[0].expect("it has all its disks").disk
    };
    story.rig.disks[usize::from(on.0)].vanish();
    story.write_and_flush(0, 4 * story.stripe(), 2);
    story.prove();
    let degraded = {
        let pool = story.rig.pool();
        let map = pool.store().map.borrow();
        let held = map.segments.values().filter(|found| !found.mapped.is_empty());
        held.filter(|found| map.unsound(&found.record) > 0).count() as u64
    };
    assert!(degraded > 0, "some stripes were not written again");
    assert_eq!(story.info().vdisks[0].degraded_segments, degraded);
    assert_eq!(story.byte(0, 4 * story.stripe()).unwrap(), 2);
}
