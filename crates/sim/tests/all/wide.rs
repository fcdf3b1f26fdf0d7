//! Stories of pools with more than 64 disks; see `crates/sim/src/wide.rs`.

use weft_sim::wide;

#[test]
fn a_pool_of_as_many_disks_as_there_may_be_works_as_any_other() {
    wide::a_pool_of_as_many_disks_as_there_may_be_works_as_any_other();
}

#[test]
fn either_end_of_wide_labels_is_enough() {
    wide::either_end_of_wide_labels_is_enough();
}

#[test]
fn a_pool_grows_beyond_64_disks_and_a_crash_at_any_moment_loses_nothing() {
    wide::a_pool_grows_beyond_64_disks_and_a_crash_at_any_moment_loses_nothing();
}

#[test]
fn a_pool_with_a_missing_disk_does_not_grow_beyond_64() {
    wide::a_pool_with_a_missing_disk_does_not_grow_beyond_64();
}

#[test]
fn a_pool_whose_disks_have_no_room_for_annexes_does_not_grow_beyond_64() {
    wide::a_pool_whose_disks_have_no_room_for_annexes_does_not_grow_beyond_64();
}

#[test]
fn disks_of_a_wide_pool_come_and_go() {
    wide::disks_of_a_wide_pool_come_and_go();
}
