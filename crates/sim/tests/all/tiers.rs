//! Stories of fast tiers; see `crates/sim/src/fine/tier.rs`.

use weft_sim::fine::tier;

#[test]
fn what_is_written_lies_in_the_tier_until_that_is_full_or_is_to_be_no_more() {
    tier::what_is_written_lies_in_the_tier_until_that_is_full_or_is_to_be_no_more();
}

#[test]
fn what_is_sought_out_comes_to_the_tier_and_what_is_not_leaves_it() {
    tier::what_is_sought_out_comes_to_the_tier_and_what_is_not_leaves_it();
}

#[test]
fn after_a_day_the_tier_catches_what_the_best_placement_would() {
    tier::after_a_day_the_tier_catches_what_the_best_placement_would();
}

#[test]
fn what_is_pinned_lies_in_the_tier() {
    tier::what_is_pinned_lies_in_the_tier();
}

#[test]
fn a_job_moves_what_is_hot_now() {
    tier::a_job_moves_what_is_hot_now();
}

#[test]
fn what_is_written_while_it_moves_is_what_is_read() {
    tier::what_is_written_while_it_moves_is_what_is_read();
}

#[test]
fn what_is_written_beside_a_job_that_moves_lies_above_what_it_read() {
    tier::what_is_written_beside_a_job_that_moves_lies_above_what_it_read();
}

#[test]
fn a_crash_anywhere_while_stripes_move_loses_nothing() {
    tier::a_crash_anywhere_while_stripes_move_loses_nothing();
}

#[test]
fn a_tier_that_lost_a_disk_takes_nothing_and_empties_itself() {
    tier::a_tier_that_lost_a_disk_takes_nothing_and_empties_itself();
}

#[test]
fn a_full_disk_is_overwritten_whatever_tier_it_lies_in() {
    tier::a_full_disk_is_overwritten_whatever_tier_it_lies_in();
}

#[test]
fn the_labels_name_tiers_before_the_first_record_does() {
    tier::the_labels_name_tiers_before_the_first_record_does();
}
