//! Stories of packed stripes; see `crates/sim/src/fine.rs`.

use weft_sim::fine;

#[test]
fn small_writes_leave_packed_and_read_nothing_with_every_resiliency() {
    fine::small_writes_leave_packed_and_read_nothing_with_every_resiliency();
}

#[test]
fn what_is_moved_down_is_as_it_was_and_its_packed_stripes_are_free() {
    fine::what_is_moved_down_is_as_it_was_and_its_packed_stripes_are_free();
}

#[test]
fn a_whole_stripe_and_a_discard_make_fine_units_void() {
    fine::a_whole_stripe_and_a_discard_make_fine_units_void();
}

#[test]
fn parts_of_a_block_are_packed_with_the_rest_of_it() {
    fine::parts_of_a_block_are_packed_with_the_rest_of_it();
}

#[test]
fn a_crash_anywhere_between_packing_overwriting_moving_and_checkpoints_loses_nothing_that_was_flushed() {
    fine::a_crash_anywhere_between_packing_overwriting_moving_and_checkpoints_loses_nothing_that_was_flushed();
}

#[test]
fn an_idle_virtual_disk_has_nothing_packed_after_a_while() {
    fine::an_idle_virtual_disk_has_nothing_packed_after_a_while();
}

#[test]
fn a_virtual_disk_with_packed_stripes_is_removed_beside_the_mover_and_leaves_nothing() {
    fine::a_virtual_disk_with_packed_stripes_is_removed_beside_the_mover_and_leaves_nothing();
}

#[test]
fn the_bit_of_packed_stripes_is_set_before_the_first_and_goes_with_the_last() {
    fine::the_bit_of_packed_stripes_is_set_before_the_first_and_goes_with_the_last();
}

#[test]
fn packed_stripes_leave_room_for_the_configuration_of_whole_ones() {
    fine::packed_stripes_leave_room_for_the_configuration_of_whole_ones();
}

#[test]
fn disks_that_blink_while_stripes_are_packed_take_nothing_that_was_flushed() {
    fine::disks_that_blink_while_stripes_are_packed_take_nothing_that_was_flushed();
}

#[test]
fn what_a_lost_stripe_had_replaced_is_there_when_that_is_given_up() {
    fine::what_a_lost_stripe_had_replaced_is_there_when_that_is_given_up();
}

#[test]
fn what_is_written_beside_the_mover_is_never_replaced_by_what_it_read() {
    fine::beside::what_is_written_beside_the_mover_is_never_replaced_by_what_it_read();
}

#[test]
fn what_is_written_beside_packing_lies_above_what_was_written_before() {
    fine::beside::what_is_written_beside_packing_lies_above_what_was_written_before();
}

#[test]
fn a_share_of_its_own_holds_at_once_and_after_a_crash() {
    fine::share::a_share_of_its_own_holds_at_once_and_after_a_crash();
}

#[test]
fn more_may_lie_packed_on_disks_that_do_not_seek() {
    fine::share::more_may_lie_packed_on_disks_that_do_not_seek();
}

#[test]
fn a_map_says_where_each_block_lies() {
    fine::share::a_map_says_where_each_block_lies();
}

#[test]
fn units_that_are_written_whole_read_nothing() {
    fine::share::units_that_are_written_whole_read_nothing();
}

#[test]
fn small_writes_lie_on_the_disks_of_the_cache_until_it_is_to_lie_elsewhere() {
    fine::cache::small_writes_lie_on_the_disks_of_the_cache_until_it_is_to_lie_elsewhere();
}

#[test]
fn a_cache_grows_shrinks_moves_and_goes_and_a_crash_at_any_moment_loses_nothing() {
    fine::cache::a_cache_grows_shrinks_moves_and_goes_and_a_crash_at_any_moment_loses_nothing();
}

#[test]
fn a_cache_that_lacks_redundancy_takes_nothing_and_empties_itself() {
    fine::cache::a_cache_that_lacks_redundancy_takes_nothing_and_empties_itself();
}

#[test]
fn a_cache_that_survives_less_is_refused() {
    fine::cache::a_cache_that_survives_less_is_refused();
}

#[test]
fn a_disk_of_a_cache_leaves_once_that_has_emptied_itself() {
    fine::cache::a_disk_of_a_cache_leaves_once_that_has_emptied_itself();
}

#[test]
fn a_cache_that_the_pool_chooses_follows_its_disks_and_a_typed_one_does_not() {
    fine::cache::a_cache_that_the_pool_chooses_follows_its_disks_and_a_typed_one_does_not();
}

#[test]
fn a_cache_may_survive_less_where_that_is_said() {
    fine::risk::a_cache_may_survive_less_where_that_is_said();
}

#[test]
fn what_rested_on_a_lost_disk_is_an_error_until_it_is_back() {
    fine::risk::what_rested_on_a_lost_disk_is_an_error_until_it_is_back();
}

#[test]
fn a_crash_while_caches_are_chosen_anew_loses_nothing() {
    fine::cache::a_crash_while_caches_are_chosen_anew_loses_nothing();
}

#[test]
fn a_disk_that_becomes_a_journal_carries_the_log_and_nothing_else() {
    fine::journal::a_disk_that_becomes_a_journal_carries_the_log_and_nothing_else();
}

#[test]
fn a_crash_while_a_disk_becomes_a_journal_loses_nothing_and_it_goes_on() {
    fine::journal::a_crash_while_a_disk_becomes_a_journal_loses_nothing_and_it_goes_on();
}

#[test]
fn what_no_other_disk_can_have_stays_on_a_journal_until_there_is_one() {
    fine::journal::what_no_other_disk_can_have_stays_on_a_journal_until_there_is_one();
}

#[test]
fn a_journal_keeps_the_copies_of_metadata_that_too_few_others_have() {
    fine::journal::a_journal_keeps_the_copies_of_metadata_that_too_few_others_have();
}

#[test]
fn what_is_read_again_comes_from_the_cache_also_after_a_restart() {
    fine::shelf::what_is_read_again_comes_from_the_cache_also_after_a_restart();
}

#[test]
fn what_is_wrong_in_a_cache_is_dropped_and_the_disks_are_read() {
    fine::shelf::what_is_wrong_in_a_cache_is_dropped_and_the_disks_are_read();
}

#[test]
fn what_was_written_anew_is_not_read_from_the_cache() {
    fine::shelf::what_was_written_anew_is_not_read_from_the_cache();
}

#[test]
fn a_disk_of_a_cache_that_does_not_answer_delays_no_read() {
    fine::shelf::a_disk_of_a_cache_that_does_not_answer_delays_no_read();
}

#[test]
fn a_check_reads_the_disks_and_not_the_cache() {
    fine::shelf::a_check_reads_the_disks_and_not_the_cache();
}

#[test]
fn the_slabs_of_a_cache_are_its_own_until_the_last_write_there_has_ended() {
    fine::shelf::the_slabs_of_a_cache_are_its_own_until_the_last_write_there_has_ended();
}

#[test]
fn a_cache_whose_disk_goes_shrinks_and_costs_nothing() {
    fine::shelf::a_cache_whose_disk_goes_shrinks_and_costs_nothing();
}

#[test]
fn a_crash_at_any_moment_of_a_read_cache_makes_no_read_wrong() {
    fine::shelf::a_crash_at_any_moment_of_a_read_cache_makes_no_read_wrong();
}

#[test]
fn a_cache_that_is_too_small_writes_again_what_is_wanted() {
    fine::shelf::a_cache_that_is_too_small_writes_again_what_is_wanted();
}

#[test]
fn a_read_cache_that_cannot_be_is_refused() {
    fine::shelf::a_read_cache_that_cannot_be_is_refused();
}

#[test]
fn what_the_log_has_of_a_lost_version_is_written_again_and_a_flush_waits_for_that() {
    fine::kept::what_the_log_has_of_a_lost_version_is_written_again_and_a_flush_waits_for_that();
}

#[test]
fn what_gathers_again_lies_below_what_was_written_since() {
    fine::kept::what_gathers_again_lies_below_what_was_written_since();
}
