//! Planted bugs: each must be noticed by the storm or by the damage, within a few seeds.

extern crate std;
use super::super::mutant::{ALL, Mutant, set};
use super::damage::damage;
use super::storm::{slow_readers, storm};
use super::*;
use std::format;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};

/// How many seeds a planted bug may survive.
const SEEDS: u64 = 60;

/// What a run found wrong, by its own judgement or by an assertion.
fn finding<T>(run: impl FnOnce() -> Judged<T>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(judged) => judged.err(),
        Err(panic) => Some(
            panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
                .unwrap_or_default(),
        ),
    }
}

/// What is found wrong with this seed.
fn noticed(seed: u64) -> Option<String> {
    let told = |by: &str, why: String| format!("{by}: {why}");
    let storm = finding(|| storm(seed, 500)).map(|why| told("storm", why));
    let readers = || finding(|| slow_readers(seed)).map(|why| told("readers", why));
    let damage = || finding(|| damage(seed, 20)).map(|why| told("damage", why));
    storm.or_else(readers).or_else(damage)
}

/// The first seed that notices `mutant`, and what it says.
fn caught(mutant: Mutant) -> Option<(u64, String)> {
    set(Some(mutant));
    let seen = (0..SEEDS).find_map(|seed| Some((seed, noticed(1000 + seed)?)));
    set(None);
    seen
}

#[test]
fn every_planted_bug_is_noticed() {
    for mutant in ALL {
        let (seed, why) = caught(mutant).unwrap_or_else(|| panic!("nothing notices {mutant:?}"));
        let line: String = why.chars().take(150).collect();
        std::println!("{mutant:?}: seed {seed}, {line}");
    }
    assert_eq!(noticed(1000), None, "without one nothing is noticed");
}
