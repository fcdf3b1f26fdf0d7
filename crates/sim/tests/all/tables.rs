//! Pages of stripe tables come into memory when they are needed, and leave it.

use crate::planted::tables;

#[test]
fn an_opening_reads_no_page_of_a_stripe_table() {
    tables::an_opening_reads_no_page_of_a_stripe_table();
}

#[test]
fn reads_all_over_a_table_hold_no_more_of_it_than_there_is_memory_for() {
    tables::reads_all_over_a_table_hold_no_more_of_it_than_there_is_memory_for();
}

#[test]
fn a_crash_anywhere_between_loading_changing_and_dropping_pages_loses_nothing() {
    tables::a_crash_anywhere_between_loading_changing_and_dropping_pages_loses_nothing();
}

#[test]
fn a_page_that_changed_stays_until_a_checkpoint_has_it() {
    tables::a_page_that_changed_stays_until_a_checkpoint_has_it();
}

#[test]
fn a_page_that_is_lost_is_an_error_for_its_stripes_only() {
    tables::a_page_that_is_lost_is_an_error_for_its_stripes_only();
}

#[test]
fn a_page_is_waited_for_where_only_a_slow_disk_has_it() {
    tables::a_page_is_waited_for_where_only_a_slow_disk_has_it();
}

#[test]
fn one_copy_of_a_page_is_read_and_another_one_where_it_is_not_the_page() {
    tables::one_copy_of_a_page_is_read_and_another_one_where_it_is_not_the_page();
}
