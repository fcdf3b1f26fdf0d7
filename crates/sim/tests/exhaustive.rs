//! The exhaustive search, as CI runs it: a bounded part of some scenes. `weft-sim --exhaustive` goes through all of them, to their ends.

use weft_sim::exhaustive::{Options, run};

/// Scenes that differ in what they write, and the most pools that are opened for each.
const SCENES: [&str; 6] =
    ["mirror2/rewrite", "simple/reuse", "parity3/rewrite", "mirror2/reopen", "simple/checkpoint", "mirror2/early"];
const OPENED_MAX: u64 = 100_000;

#[test]
fn every_crash_point_and_power_cut_with_every_tolerated_loss_keeps_the_promise_on_tiny_pools() {
    let mut opened = 0;
    for only in SCENES {
        match run(&Options { only: only.into(), limit: Some(OPENED_MAX), ..Options::default() }) {
            Ok(summary) => opened += summary.opened,
            Err(failure) => panic!("{only}: {failure}"),
        }
    }
    assert!(opened > 2_000, "{opened} pools were opened");
}
