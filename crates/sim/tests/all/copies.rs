//! Stories of stripes that are copied to lie in a better place; see `crates/sim/src/fine/copies.rs`.

use weft_sim::fine::copies;

#[test]
fn a_copy_that_is_lost_costs_nothing() {
    copies::a_copy_that_is_lost_costs_nothing();
}

#[test]
fn what_clients_wrote_into_a_copy_is_never_lost_in_silence() {
    copies::what_clients_wrote_into_a_copy_is_never_lost_in_silence();
}
