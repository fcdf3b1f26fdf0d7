//! How long a batch of the log may be, and how far its end is proven.

use crate::planted::batches;

#[test]
fn a_batch_from_before_the_bound_is_missed_as_far_as_it_may_have_reached() {
    batches::a_batch_from_before_the_bound_is_missed_as_far_as_it_may_have_reached();
}

#[test]
fn a_crash_anywhere_while_the_bound_changes_leaves_the_end_of_the_log_proven() {
    batches::a_crash_anywhere_while_the_bound_changes_leaves_the_end_of_the_log_proven();
}

#[test]
fn the_end_of_a_long_log_is_proven_within_a_batch() {
    batches::the_end_of_a_long_log_is_proven_within_a_batch();
}
