//! What is in use, as checkpoints keep it.

use crate::planted::space;

#[test]
fn a_crash_anywhere_leaves_what_is_in_use_known() {
    space::a_crash_anywhere_leaves_what_is_in_use_known();
}

#[test]
fn what_is_committed_while_a_checkpoint_runs_is_in_use() {
    space::what_is_committed_while_a_checkpoint_runs_is_in_use();
}

#[test]
fn pages_of_a_checkpoint_that_was_cut_off_mislead_nobody() {
    space::pages_of_a_checkpoint_that_was_cut_off_mislead_nobody();
}

#[test]
fn what_is_lost_of_what_is_in_use_is_counted() {
    space::what_is_lost_of_what_is_in_use_is_counted();
}

#[test]
fn a_whole_checkpoint_has_its_tables_counted_and_the_next_one_has_not() {
    space::a_whole_checkpoint_has_its_tables_counted_and_the_next_one_has_not();
}

#[test]
fn what_an_older_weft_left_of_what_is_in_use_is_not_believed() {
    space::what_an_older_weft_left_of_what_is_in_use_is_not_believed();
}
