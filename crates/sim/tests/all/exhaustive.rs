//! The exhaustive search, as CI runs it: every scene of three shapes, to its end. `weft-sim --exhaustive` goes through
//! the other two as well, which take minutes.

use weft_sim::exhaustive::{Options, run};

/// Shapes whose scenes are few enough.
const SHAPES: [&str; 3] = ["simple/", "mirror2/", "parity3/"];

#[test]
fn every_crash_point_and_power_cut_with_every_tolerated_loss_keeps_the_promise_on_tiny_pools() {
    let mut opened = 0;
    for only in SHAPES {
        match run(&Options { only: only.into(), ..Options::default() }) {
            Ok(summary) => opened += summary.opened,
            Err(failure) => panic!("{only}: {failure}"),
        }
    }
    assert!(opened > 10_000, "{opened} pools were opened");
}
