//! The protocol of labels, votes and freezing, explored as deep as CI has time for; `weft-sim --quorum` goes deeper.

use weft_sim::quorum::{MUTANTS, explore, find_mutant, searches};
use weft_sim::sample::sample;

#[test]
fn no_sequence_of_events_makes_two_histories_acknowledge_or_loses_what_was_acknowledged_or_leaves_a_pool_shut() {
    for search in searches(0, 400_000) {
        let found = explore(search);
        println!("{} disks, {:?}: {found}", search.disks, search.kind);
        assert!(found.broken.is_none(), "{} disks, {:?}: {found}", search.disks, search.kind);
        assert_eq!(found.depth, search.depth, "{} disks, {:?}: there are too many states", search.disks, search.kind);
    }
}

#[test]
fn every_mutant_of_the_protocol_is_found() {
    for mutant in sample(MUTANTS) {
        let found = find_mutant(mutant);
        println!("{mutant:?}: {}", found.as_ref().map_or("not found".into(), |found| found.to_string()));
        assert!(found.is_some(), "{mutant:?} is not found");
    }
}
