//! Stories of segments that are emptied because somebody needs their slabs; see `crates/sim/src/fine/hollow.rs`.

use weft_sim::fine::hollow;

#[test]
fn what_is_discarded_here_and_there_is_room_for_others() {
    hollow::what_is_discarded_here_and_there_is_room_for_others();
}

#[test]
fn a_change_of_a_nearly_full_pool_ends_under_random_writes() {
    hollow::a_change_of_a_nearly_full_pool_ends_under_random_writes();
}

#[test]
fn disks_that_are_away_for_a_moment_cost_no_room() {
    hollow::disks_that_are_away_for_a_moment_cost_no_room();
}

#[test]
fn a_disk_that_is_gone_is_rebuilt_where_hollow_segments_lie() {
    hollow::a_disk_that_is_gone_is_rebuilt_where_hollow_segments_lie();
}

#[test]
fn a_disk_leaves_where_hollow_segments_lie() {
    hollow::a_disk_leaves_where_hollow_segments_lie();
}

#[test]
fn what_was_moved_comes_to_lie_in_order() {
    hollow::what_was_moved_comes_to_lie_in_order();
}

#[test]
fn whatever_happens_while_segments_are_emptied_loses_nothing() {
    hollow::whatever_happens_while_segments_are_emptied_loses_nothing();
}

#[test]
fn what_is_packed_above_a_stripe_that_is_moved_stays() {
    hollow::what_is_packed_above_a_stripe_that_is_moved_stays();
}

#[test]
fn what_is_written_while_segments_are_emptied_is_newer() {
    hollow::what_is_written_while_segments_are_emptied_is_newer();
}
