//! A log on hard disks that goes on where their heads are.

use weft_sim::spread;

#[test]
fn who_flushes_each_write_waits_for_no_revolution() {
    spread::who_flushes_each_write_waits_for_no_revolution();
}

#[test]
fn how_long_disks_take_to_begin_is_learnt() {
    spread::how_long_disks_take_to_begin_is_learnt();
}

#[test]
fn a_crash_at_any_moment_loses_nothing_of_a_spread_log() {
    spread::a_crash_at_any_moment_loses_nothing_of_a_spread_log();
}

#[test]
fn copies_lie_in_order_and_within_their_rounds() {
    spread::copies_lie_in_order_and_within_their_rounds();
}

#[test]
fn a_disk_with_spread_copies_may_follow_and_carry_the_log_again() {
    spread::a_disk_with_spread_copies_may_follow_and_carry_the_log_again();
}

#[test]
fn a_batch_that_is_cut_short_has_one_copy_on_each_disk() {
    spread::a_batch_that_is_cut_short_has_one_copy_on_each_disk();
}

#[test]
fn a_disk_that_lacks_many_batches_is_looked_through_once() {
    spread::a_disk_that_lacks_many_batches_is_looked_through_once();
}

#[test]
fn copies_lie_further_behind_where_the_log_may_not_go_on() {
    spread::copies_lie_further_behind_where_the_log_may_not_go_on();
}
