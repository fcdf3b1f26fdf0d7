//! Stories of the log on two fast disks, and of the one that follows them (`store/follow.rs`).

use std::rc::Rc;
use weft_engine::units::{DiskNo, Nanos};
use weft_engine::world::World;
use weft_sim::follower::{
    FAST, a_layout_that_survives_two_failures_has_three_copies_of_the_log, both_vanish_in_the_midst_of_writes,
    first_bytes, land, loggers, no_commit_flushes_a_disk_that_it_says_nothing_of,
    no_commit_flushes_the_disk_that_follows, pool, rest, settle,
    what_a_removed_disk_had_committed_is_right_where_a_crash_brings_it_back,
};

#[test]
fn two_journal_disks_carry_the_log_alone_and_a_hard_disk_has_it_a_moment_later() {
    let (mut rig, mut rng) = pool(1);
    assert_eq!(loggers(&rig.pool()), FAST.map(|no| DiskNo(no as u16)));
    (0..8).for_each(|no| assert!(land(&rig, no, 1)));
    rest(&rig, Nanos::secs(3));
    let store = rig.pool().store().clone();
    let (no, until) = store.follower.reached().unwrap();
    assert!(!loggers(&rig.pool()).contains(&no));
    assert_eq!(until, store.log.live().1);
    assert_eq!(store.follower.memory().0, 0);
    drop(store);
    rig.power_cut(&mut rng);
    rig.disks[FAST[0]].vanish();
    rig.open(&mut rng).unwrap();
    assert_eq!(first_bytes(&rig, 8), [1; 8]);
    rig.close().unwrap();
}

#[test]
fn a_layout_that_survives_two_failures_has_three_copies_of_the_log_from_the_first_write_on() {
    a_layout_that_survives_two_failures_has_three_copies_of_the_log();
}

#[test]
fn nobody_waits_for_the_disk_that_follows() {
    no_commit_flushes_the_disk_that_follows();
}

#[test]
fn nobody_waits_for_a_disk_that_no_commit_speaks_of() {
    no_commit_flushes_a_disk_that_it_says_nothing_of();
}

#[test]
fn what_was_removed_is_gone_or_right_after_a_crash() {
    what_a_removed_disk_had_committed_is_right_where_a_crash_brings_it_back();
}

#[test]
fn a_pool_that_was_closed_opens_without_both() {
    let (mut rig, mut rng) = pool(3);
    (0..8).for_each(|no| assert!(land(&rig, no, 1)));
    rig.close().unwrap();
    FAST.iter().for_each(|no| rig.disks[*no].vanish());
    rig.open(&mut rng).unwrap();
    assert_eq!(first_bytes(&rig, 8), [1; 8]);
    rig.close().unwrap();
}

#[test]
fn both_journal_disks_vanish_at_any_moment_and_the_one_that_follows_has_everything() {
    both_vanish_in_the_midst_of_writes();
}

#[test]
fn the_journal_disks_that_were_lost_carry_the_log_again_when_they_are_back() {
    let (mut rig, mut rng) = pool(4);
    (0..8).for_each(|no| assert!(land(&rig, no, 1)));
    FAST.iter().for_each(|no| rig.disks[*no].vanish());
    (0..8).for_each(|no| assert!(land(&rig, no, 2)));
    settle(&rig);
    assert_eq!(loggers(&rig.pool()), [0, 1, 2].map(DiskNo));
    for no in FAST {
        rig.disks[no].come_back(&mut rng);
        let (pool, back) = (rig.pool(), Rc::new(rig.disks[no].clone()));
        rig.run(async move { pool.attach(back).await.unwrap() });
    }
    let (pool, world) = (rig.pool(), rig.world.clone());
    rig.run(async move {
        while loggers(&pool) != FAST.map(|no| DiskNo(no as u16)) {
            world.sleep(Nanos::millis(10)).await;
        }
    });
    (0..8).for_each(|no| assert!(land(&rig, no, 3)));
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    assert_eq!(first_bytes(&rig, 8), [3; 8]);
    rig.close().unwrap();
}
