//! A write-back cache that is emptied while it is used: `weft_sim::cached_writes`.

use weft_sim::cached_writes;

#[test]
fn no_flush_before_a_cache_waits_for_hard_disks() {
    cached_writes::no_flush_before_a_cache_waits_for_hard_disks();
}

#[test]
fn what_becomes_whole_is_flushed_without_hard_disks() {
    cached_writes::what_becomes_whole_is_flushed_without_hard_disks();
}

#[test]
fn who_flushes_more_than_hard_disks_take_never_waits_long() {
    cached_writes::who_flushes_more_than_hard_disks_take_never_waits_long();
}

#[test]
fn a_full_cache_takes_as_much_as_is_brought_down() {
    cached_writes::a_full_cache_takes_as_much_as_is_brought_down();
}

#[test]
fn what_cannot_be_packed_any_more_has_no_others_merged() {
    cached_writes::what_cannot_be_packed_any_more_has_no_others_merged();
}

#[test]
fn what_cannot_be_read_of_a_full_cache_is_in_nobodys_way() {
    cached_writes::what_cannot_be_read_of_a_full_cache_is_in_nobodys_way();
}

#[test]
fn a_virtual_disk_may_go_while_its_cache_is_emptied() {
    cached_writes::a_virtual_disk_may_go_while_its_cache_is_emptied();
}

#[test]
fn a_block_that_nobody_can_heal_is_held_against_its_disk_once() {
    cached_writes::a_block_that_nobody_can_heal_is_held_against_its_disk_once();
}
