//! The exhaustive search: the scenes of three shapes, or a sample of them, each to its end. `weft-sim --exhaustive`
//! goes through the other two shapes as well, which takes minutes.

use weft_sim::exhaustive::{Options, run, scenes};
use weft_sim::sample::sample;

/// Shapes whose scenes are few enough.
const SHAPES: [&str; 3] = ["simple/", "mirror2/", "parity3/"];

#[test]
fn every_crash_point_and_power_cut_with_every_tolerated_loss_keeps_the_promise_on_tiny_pools() {
    let mut opened = 0;
    let names = scenes().into_iter().map(|scene| scene.name());
    for only in sample(names.filter(|name| SHAPES.iter().any(|shape| name.starts_with(shape)))) {
        match run(&Options { only: only.clone(), ..Options::default() }) {
            Ok(summary) => opened += summary.opened,
            Err(failure) => panic!("{only}: {failure}"),
        }
    }
    assert!(opened > 3_000, "{opened} pools were opened");
}
