//! What is read ahead of clients is the truth, or is not read.

use weft_sim::read_ahead::{changes_beside_a_reader, rot_before_a_reader};

#[test]
fn what_was_read_ahead_is_not_read_once_it_was_written_discarded_or_zeroed_and_its_place_given_away() {
    assert_eq!(changes_beside_a_reader(), None);
}

#[test]
fn what_is_read_ahead_is_proven_like_any_other_read_and_damage_is_put_right() {
    assert_eq!(rot_before_a_reader(), None);
}
