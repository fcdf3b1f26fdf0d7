//! Stories of virtual disks that get another layout while they are used; see `crates/sim/src/fine/change.rs`.

use weft_sim::fine::{change, change_crash};

#[test]
fn every_layout_becomes_every_other_one_under_load() {
    change::every_layout_becomes_every_other_one_under_load();
}

#[test]
fn a_crash_at_any_moment_of_a_change_loses_nothing_and_the_change_goes_on() {
    change::a_crash_at_any_moment_of_a_change_loses_nothing_and_the_change_goes_on();
}

#[test]
fn what_is_zeroed_above_an_older_table_stays_zeros() {
    change::what_is_zeroed_above_an_older_table_stays_zeros();
}

#[test]
fn disks_go_and_come_back_in_the_middle_of_a_change() {
    change::disks_go_and_come_back_in_the_middle_of_a_change();
}

#[test]
fn caches_that_are_lost_in_the_middle_of_a_change_take_nothing_that_was_flushed() {
    change::caches_that_are_lost_in_the_middle_of_a_change_take_nothing_that_was_flushed();
}

#[test]
fn a_change_without_room_stops_says_so_and_goes_on_later() {
    change::a_change_without_room_stops_says_so_and_goes_on_later();
}

#[test]
fn a_change_for_which_there_is_no_room_is_refused() {
    change::a_change_for_which_there_is_no_room_is_refused();
}

#[test]
fn a_fixed_virtual_disk_keeps_its_promise_in_the_middle_of_a_change() {
    change::a_fixed_virtual_disk_keeps_its_promise_in_the_middle_of_a_change();
}

#[test]
fn a_change_is_paused_cancelled_and_asked_for_again() {
    change::a_change_is_paused_cancelled_and_asked_for_again();
}

#[test]
fn a_virtual_disk_is_removed_in_the_middle_of_a_change_and_leaves_nothing() {
    change::a_virtual_disk_is_removed_in_the_middle_of_a_change_and_leaves_nothing();
}

#[test]
fn the_bit_of_stacks_is_set_before_the_first() {
    change::the_bit_of_stacks_is_set_before_the_first();
}

#[test]
fn what_landed_before_a_change_and_was_given_back_stays_away() {
    change::what_landed_before_a_change_and_was_given_back_stays_away();
}

#[test]
fn what_is_written_while_it_rises_is_newer() {
    change::what_is_written_while_it_rises_is_newer();
}

#[test]
fn a_crash_at_every_disk_operation_of_a_change_loses_nothing() {
    change_crash::a_crash_at_every_disk_operation_of_a_change_loses_nothing();
}

#[test]
fn what_clients_wrote_hides_an_older_table_only_once_it_is_durable() {
    change::what_clients_wrote_hides_an_older_table_only_once_it_is_durable();
}

#[test]
fn nobody_spins_while_room_is_to_come_from_a_slow_disk() {
    change::nobody_spins_while_room_is_to_come_from_a_slow_disk();
}
