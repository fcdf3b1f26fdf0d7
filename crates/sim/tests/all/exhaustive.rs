//! The exhaustive search: the scenes of three shapes, or a sample of them, each to its end. `weft-sim --exhaustive`
//! goes through the other two shapes as well, which takes minutes.

use weft_sim::exhaustive::{Options, run};
use weft_sim::sample::part_named;

/// Shapes whose scenes are few enough.
const SHAPES: [&str; 3] = ["simple/", "mirror2/", "parity3/"];

#[test]
fn every_crash_point_and_power_cut_with_every_tolerated_loss_keeps_the_promise_on_tiny_pools() {
    let part = part_named("WEFT_SAMPLE");
    let mut opened = 0;
    for only in SHAPES {
        match run(&Options { only: only.into(), part, ..Options::default() }) {
            Ok(summary) => opened += summary.opened,
            Err(failure) => panic!("{only}: {failure}"),
        }
    }
    let least = if part.is_some() { 2_000 } else { 10_000 };
    assert!(opened > least, "{opened} pools were opened");
}
