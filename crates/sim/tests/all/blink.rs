//! Moves to a disk that is lost, and back, while they go on.

use weft_sim::blink::{self, run};
use weft_sim::rig::resiliencies;
use weft_sim::sample::sample;

#[test]
fn a_disk_that_blinks_while_it_is_filled_loses_nothing_that_was_flushed_and_no_redundancy_in_silence() {
    let mut failures = Vec::new();
    for resiliency in resiliencies() {
        for seed in sample(0..40) {
            failures.extend(run(seed, resiliency).err().map(|why| format!("{resiliency}, seed {seed}: {why}")));
        }
    }
    assert!(failures.is_empty(), "{} of 200, the first: {}", failures.len(), failures[0]);
}

#[test]
fn disks_that_blink_in_turn_while_metadata_moves_catch_up() {
    blink::disks_that_blink_in_turn_while_metadata_moves_catch_up();
}
