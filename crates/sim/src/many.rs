//! Many seeds, as many at once as there are processors. A seed is one world on one thread, so what comes of it does not
//! depend on the others: the failures, in the order of their seeds, are equal however many threads there are.
//!
//! Mutants (`weft_engine::mutant`) are set for the whole process, hence for all of its seeds.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Bytes of the stack of a thread: what a main thread has.
const STACK: usize = 8 << 20;

/// What came of many seeds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Seeds that passed.
    pub passed: u64,
    /// Seeds that failed, and why.
    pub failed: BTreeMap<u64, String>,
}

impl Tally {
    /// Seeds that have been run.
    pub fn done(&self) -> u64 {
        self.passed + self.failed.len() as u64
    }
}

/// Counts the processors that this process may use.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs `one` for every seed, on so many threads; a panic is a failure. `told` hears of every seed that is over.
pub fn run(
    seeds: Range<u64>,
    threads: usize,
    one: impl Fn(u64) -> Result<(), String> + Sync,
    told: impl Fn(&Tally) + Sync,
) -> Tally {
    let (next, tally) = (AtomicU64::new(seeds.start), Mutex::new(Tally::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| one(seed)));
            let outcome = outcome.unwrap_or_else(|panic| Err(format!("it panicked: {}", words(&*panic))));
            let mut tally = tally.lock().expect("no thread panics while it counts");
            match outcome {
                Ok(()) => tally.passed += 1,
                Err(why) => drop(tally.failed.insert(seed, why)),
            }
            told(&tally);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let thread = thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, work).expect("the system has room for a thread");
        }
    });
    tally.into_inner().expect("no thread panics while it counts")
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storm;
    use std::collections::BTreeSet;

    /// Every seventh seed fails, and one panics.
    fn some_fail(seed: u64) -> Result<(), String> {
        assert_ne!(seed, 19, "an odd seed");
        if seed.is_multiple_of(7) { Err(format!("{seed} is a multiple of seven")) } else { Ok(()) }
    }

    #[test]
    fn the_failures_are_the_same_on_any_number_of_threads() {
        let alone = run(10..60, 1, some_fail, |_| {});
        assert_eq!(alone.failed.keys().copied().collect::<Vec<_>>(), [14, 19, 21, 28, 35, 42, 49, 56]);
        assert!(alone.failed[&19].contains("an odd seed") && alone.done() == 50, "{alone:?}");
        for threads in [2, 3, 8, 80] {
            assert_eq!(run(10..60, threads, some_fail, |_| {}), alone);
        }
    }

    #[test]
    fn every_seed_is_run_once_and_told_once() {
        let (ran, told) = (Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
        let one = |seed| {
            ran.lock().unwrap().push(seed);
            Ok(())
        };
        run(5..25, 4, one, |tally| assert!(told.lock().unwrap().insert(tally.done())));
        let mut ran = ran.into_inner().unwrap();
        ran.sort();
        assert_eq!(ran, (5..25).collect::<Vec<_>>());
        assert_eq!(told.into_inner().unwrap(), (1..=20).collect());
    }

    #[test]
    fn a_storm_beside_others_is_the_storm_it_is_alone() {
        let hashes = |threads| {
            let hashes = Mutex::new(BTreeMap::new());
            let one = |seed| {
                let hash = storm::run(seed)?.hash;
                hashes.lock().unwrap().insert(seed, hash);
                Ok(())
            };
            let tally = run(1..9, threads, one, |_| {});
            (tally, hashes.into_inner().unwrap())
        };
        assert_eq!(hashes(4), hashes(1));
    }
}
