//! `weft-sim`: runs storms by seed, and the exhaustive search. One line per failure repeats it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use weft_sim::storm::{Profile, run_profile};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("streams", rest)) => return weft_sim::figures::streams_command(rest),
        Some(("rebuild", rest)) => return weft_sim::figures::rebuild_command(rest),
        Some(("refill", rest)) => return weft_sim::figures::refill_command(rest),
        Some(("capacity", [])) => return weft_sim::figures::capacity_command(),
        _ => {}
    }
    match parse(&args) {
        Ok(Job::Seed(profile, seed)) => storms(profile, seed, 1, true),
        Ok(Job::Runs { profile, count, first }) => storms(profile, first, count, false),
        Ok(Job::Exhaustive) => exhaustive(),
        Ok(Job::Case(case)) => repeat(&case),
        Err(why) => {
            eprintln!(
                "weft-sim: {why}\nusage: weft-sim [--profile NAME] SEED | [--profile NAME] --runs N [--seed FIRST] | --exhaustive [--case CASE] | streams | rebuild | refill | capacity"
            );
            ExitCode::from(2)
        }
    }
}

enum Job {
    Seed(Option<Profile>, u64),
    Runs { profile: Option<Profile>, count: u64, first: u64 },
    Exhaustive,
    Case(String),
}

fn parse(args: &[String]) -> Result<Job, String> {
    let number = |text: &String| text.parse::<u64>().map_err(|_| format!("{text} is not a number"));
    let (profile, args) = match args {
        [flag, name, rest @ ..] if flag == "--profile" => (Some(name.parse()?), rest),
        all => (None, all),
    };
    match args {
        [seed] if !seed.starts_with('-') => Ok(Job::Seed(profile, number(seed)?)),
        [runs, count] if runs == "--runs" => Ok(Job::Runs { profile, count: number(count)?, first: 1 }),
        [runs, count, seed, first] if runs == "--runs" && seed == "--seed" => {
            Ok(Job::Runs { profile, count: number(count)?, first: number(first)? })
        }
        [all] if all == "--exhaustive" && profile.is_none() => Ok(Job::Exhaustive),
        [all, flag, case] if all == "--exhaustive" && flag == "--case" => Ok(Job::Case(case.clone())),
        _ => Err(String::from("what shall be run?")),
    }
}

/// Runs `count` seeds; says on one line how to repeat each that fails. Without a profile, that follows from each seed.
fn storms(profile: Option<Profile>, first: u64, count: u64, verbose: bool) -> ExitCode {
    let mut failed = 0u64;
    for seed in first..first.saturating_add(count) {
        let profile = profile.unwrap_or_else(|| Profile::of_seed(seed));
        let outcome = catch_unwind(AssertUnwindSafe(|| run_profile(profile, seed)));
        let again = format!("weft-sim --profile {profile} {seed}");
        match outcome {
            Ok(Ok(summary)) if verbose => {
                println!("{profile}, seed {seed}: {} (trace {:016x})", summary.line, summary.hash);
            }
            Ok(Ok(_)) => {}
            Ok(Err(why)) => {
                failed += 1;
                println!("FAILED: {again}   # {why}");
            }
            Err(_) => {
                failed += 1;
                println!("FAILED: {again}   # it panicked, see above");
            }
        }
    }
    println!("{} passed, {failed} failed", count - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tiny pools, every crash point x power cut x tolerated loss.
fn exhaustive() -> ExitCode {
    match weft_sim::exhaustive::run(&weft_sim::exhaustive::Options::default()) {
        Ok(summary) => {
            println!("exhaustive: {summary}");
            println!("{} passed, 0 failed", summary.opened);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("FAILED: {failure}");
            println!("{} passed, 1 failed", failure.opened);
            ExitCode::FAILURE
        }
    }
}

/// One case of the exhaustive search again.
fn repeat(case: &str) -> ExitCode {
    let outcome = case.parse().and_then(|case| weft_sim::exhaustive::repeat(&case));
    match outcome {
        Ok(()) => {
            println!("1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("FAILED: {why}\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}
