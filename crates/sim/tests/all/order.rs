//! Stories of what is put in order; see `crates/sim/src/fine/order.rs`.

use weft_sim::fine::order;

#[test]
fn what_was_written_anywhere_comes_to_lie_in_order_and_then_all_is_still() {
    order::what_was_written_anywhere_comes_to_lie_in_order_and_then_all_is_still();
}

#[test]
fn what_lay_anywhere_when_the_pool_was_opened_comes_to_lie_in_order() {
    order::what_lay_anywhere_when_the_pool_was_opened_comes_to_lie_in_order();
}

#[test]
fn a_few_writes_now_and_then_do_not_move_everything_each_time() {
    order::a_few_writes_now_and_then_do_not_move_everything_each_time();
}

#[test]
fn what_is_written_while_it_is_put_in_order_is_what_is_read() {
    order::what_is_written_while_it_is_put_in_order_is_what_is_read();
}

#[test]
fn a_crash_anywhere_while_things_are_put_in_order_loses_nothing() {
    order::a_crash_anywhere_while_things_are_put_in_order_loses_nothing();
}

#[test]
fn what_is_put_in_order_leaves_clients_the_room_that_they_need() {
    order::what_is_put_in_order_leaves_clients_the_room_that_they_need();
}

#[test]
fn a_check_beside_what_is_put_in_order_finds_nothing() {
    order::a_check_beside_what_is_put_in_order_finds_nothing();
}

#[test]
fn packed_stripes_are_left_by_all_of_their_units() {
    weft_sim::random_writes::packed_stripes_are_left_by_all_of_their_units();
}

#[test]
fn no_flush_waits_for_the_mover_to_let_go_of_the_log() {
    weft_sim::random_writes::no_flush_waits_for_the_mover_to_let_go_of_the_log();
}

#[test]
fn a_virtual_disk_may_go_while_the_mover_is_at_work() {
    weft_sim::random_writes::a_virtual_disk_may_go_while_the_mover_is_at_work();
}

#[test]
fn no_second_with_a_usual_log_has_less_than_a_third_of_the_median() {
    weft_sim::random_writes::no_second_with_a_usual_log_has_less_than_a_third_of_the_median();
}

#[test]
fn no_second_of_single_writes_has_less_than_a_third_of_the_median() {
    weft_sim::random_writes::no_second_of_single_writes_has_less_than_a_third_of_the_median();
}

#[test]
fn no_second_has_less_than_half_of_the_median() {
    weft_sim::random_writes::no_second_has_less_than_half_of_the_median();
}

#[test]
fn small_writes_are_packed_while_a_disk_is_missing() {
    weft_sim::random_writes::small_writes_are_packed_while_a_disk_is_missing();
}

#[test]
fn small_writes_are_packed_in_a_pool_that_is_nearly_full() {
    weft_sim::random_writes::small_writes_are_packed_in_a_pool_that_is_nearly_full();
}

#[test]
fn what_is_read_ahead_of_the_mover_is_forgotten_when_it_rests() {
    weft_sim::random_writes::what_is_read_ahead_of_the_mover_is_forgotten_when_it_rests();
}
