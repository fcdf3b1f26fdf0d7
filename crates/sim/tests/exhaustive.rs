//! The exhaustive search, as CI runs it: where more than four writes are unflushed it takes a sample of their subsets. `weft-sim --exhaustive` takes all of
//! nine.

use weft_sim::exhaustive::{Options, run};

#[test]
fn every_crash_point_and_power_cut_with_every_tolerated_loss_keeps_the_promise_on_tiny_pools() {
    match run(&Options { full_max: 4, ..Options::default() }) {
        Ok(summary) => {
            println!("{summary}");
            assert!(summary.opened > 10_000 && summary.went_on > 100 && summary.cut_again > 1000, "{summary}");
        }
        Err(failure) => panic!("{failure}"),
    }
}
