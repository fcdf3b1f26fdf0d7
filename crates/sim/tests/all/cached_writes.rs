//! A write-back cache that is emptied while it is used: `weft_sim::cached_writes`.

use weft_sim::cached_writes;

#[test]
fn no_flush_before_a_cache_waits_for_hard_disks() {
    cached_writes::no_flush_before_a_cache_waits_for_hard_disks();
}

#[test]
fn a_full_cache_takes_as_much_as_is_brought_down() {
    cached_writes::a_full_cache_takes_as_much_as_is_brought_down();
}

#[test]
fn what_cannot_be_packed_any_more_has_no_others_merged() {
    cached_writes::what_cannot_be_packed_any_more_has_no_others_merged();
}
