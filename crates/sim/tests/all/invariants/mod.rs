//! One story or more for every numbered invariant of the engine that a simulated world can show. Each says which it is
//! about: the file, and the number in its head.

use crate::planted::check;

mod crashes;
mod members;
mod metadata;
mod service;
mod space;

/// pool/check.rs, both invariants, and stripe/execute.rs, invariant 4.
#[test]
fn a_check_that_only_looks_changes_nothing() {
    check::a_check_that_only_looks_changes_nothing();
}

/// store/proof.rs, invariant 4.
#[test]
fn a_copy_that_lacks_its_checksums_is_damage() {
    check::a_copy_that_lacks_its_checksums_is_damage();
}

/// pool/check.rs, invariant 2, beyond the redundancy.
#[test]
fn what_is_lost_is_told_by_a_look_as_by_a_repair() {
    check::what_is_lost_is_told_by_a_look_as_by_a_repair();
}

#[test]
fn a_scrub_whose_disk_goes_finds_nothing_bad() {
    check::a_scrub_whose_disk_goes_finds_nothing_bad();
}

/// store/execute.rs, invariant 3: only what the segment has given up is left alone.
#[test]
fn a_repair_beside_moves_leaves_nothing_bad() {
    check::a_repair_beside_moves_leaves_nothing_bad();
}
