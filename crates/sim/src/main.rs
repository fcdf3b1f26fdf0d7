//! `weft-sim`: runs storms by seed, and the exhaustive searches. One line per failure repeats it.

use std::process::ExitCode;
use weft_sim::many::{self, Tally};
use weft_sim::storm::{Profile, run_profile};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("streams", rest)) => return weft_sim::figures::streams_command(rest),
        Some(("flushes", rest)) => return weft_sim::figures::flushes_command(rest),
        Some(("rebuild", rest)) => return weft_sim::figures::rebuild_command(rest),
        Some(("refill", rest)) => return weft_sim::figures::refill_command(rest),
        Some(("capacity", [])) => return weft_sim::figures::capacity_command(),
        Some(("work", rest)) => return weft_sim::work::command(rest),
        Some(("mkpool", rest)) => return weft_sim::mkpool::command(rest),
        #[cfg(feature = "mutants")]
        Some(("--mutant", rest)) => return hunt(rest),
        _ => {}
    }
    match parse(&args) {
        Ok(Job::Seed(profile, seed)) => storm(profile, seed),
        Ok(Job::Runs { profile, count, first }) => storms(profile, first, count),
        Ok(Job::Exhaustive(only)) => exhaustive(only),
        Ok(Job::Case(case)) => repeat(&case),
        Ok(Job::Quorum(extra)) => quorum(extra),
        Err(why) => {
            eprintln!(
                "weft-sim: {why}\nusage: weft-sim [--profile NAME] SEED | [--profile NAME] --runs N [--seed FIRST] | --exhaustive [--only SCENE | --case CASE] | --quorum [DEPTH] | streams | flushes | rebuild | refill | capacity | mkpool | work | --mutant NAME --profile NAME --runs N"
            );
            ExitCode::from(2)
        }
    }
}

enum Job {
    Seed(Option<Profile>, u64),
    Runs { profile: Option<Profile>, count: u64, first: u64 },
    Exhaustive(String),
    Case(String),
    Quorum(usize),
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
        [all] if all == "--exhaustive" && profile.is_none() => Ok(Job::Exhaustive(String::new())),
        [all, flag, only] if all == "--exhaustive" && flag == "--only" => Ok(Job::Exhaustive(only.clone())),
        [all, flag, case] if all == "--exhaustive" && flag == "--case" => Ok(Job::Case(case.clone())),
        [all] if all == "--quorum" && profile.is_none() => Ok(Job::Quorum(1)),
        [all, extra] if all == "--quorum" && profile.is_none() => Ok(Job::Quorum(number(extra)? as usize)),
        _ => Err(String::from("what shall be run?")),
    }
}

/// Runs one seed, and tells what it was like. Without a profile, that follows from the seed.
fn storm(profile: Option<Profile>, seed: u64) -> ExitCode {
    let profile = profile.unwrap_or_else(|| Profile::any(seed));
    match run_profile(profile, seed) {
        Ok(summary) => {
            println!("{profile}, seed {seed}: {} (trace {:016x})\n1 passed, 0 failed", summary.line, summary.hash);
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("FAILED: weft-sim --profile {profile} {seed}   # {why}\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

/// Runs `count` seeds on all processors; says on one line how to repeat each that fails. Progress goes to stderr.
fn storms(profile: Option<Profile>, first: u64, count: u64) -> ExitCode {
    let seeds = first..first.saturating_add(count);
    let range = format!("seeds {first} to {}", seeds.end.saturating_sub(1));
    let step = (count / 20).clamp(1, 500);
    let profile_of = |seed| profile.unwrap_or_else(|| Profile::any(seed));
    let told = |tally: &Tally| {
        if tally.done().is_multiple_of(step) {
            let failed: String = tally.failed.keys().map(|seed| format!(", {seed} failed")).collect();
            eprintln!("weft-sim: {range}: {} of {count} done{failed}", tally.done());
        }
    };
    let tally = many::run(seeds, many::processors(), |seed| run_profile(profile_of(seed), seed).map(drop), told);
    for (seed, why) in &tally.failed {
        println!("FAILED: weft-sim --profile {} {seed}   # {why}", profile_of(*seed));
    }
    println!("{range}\n{} passed, {} failed", tally.passed, tally.failed.len());
    if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tiny pools, every crash point x power cut x tolerated loss: all scenes, or those whose names contain `only`.
/// Progress goes to stderr.
fn exhaustive(only: String) -> ExitCode {
    let options = weft_sim::exhaustive::Options { only, ..Default::default() };
    let began = std::time::Instant::now();
    let told = |name: &str, summary: &weft_sim::exhaustive::Summary| {
        eprintln!("weft-sim: {:4} s, {name} done; so far {summary}", began.elapsed().as_secs());
    };
    match weft_sim::exhaustive::run_telling(&options, told) {
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

/// The protocol of labels and votes, so many steps deeper than the tests go.
fn quorum(extra: usize) -> ExitCode {
    match weft_sim::quorum::command(extra, 5_000_000) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
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

/// Runs storms with a broken engine until one fails that passes with a sound one.
#[cfg(feature = "mutants")]
fn hunt(args: &[String]) -> ExitCode {
    use weft_engine::mutant;
    let Some((mutant, (profile, first, count))) = args.split_first().and_then(|(name, rest)| {
        let mutant = mutant::named(name)?;
        match parse(rest).ok()? {
            Job::Runs { profile: Some(profile), count, first } => Some((mutant, (profile, first, count))),
            _ => None,
        }
    }) else {
        let names: Vec<String> = mutant::ALL.iter().map(|mutant| format!("{mutant:?}")).collect();
        eprintln!("weft-sim: --mutant NAME --profile NAME --runs N [--seed FIRST]; mutants: {}", names.join(", "));
        return ExitCode::from(2);
    };
    match weft_sim::storm::hunt(mutant, profile, first..first.saturating_add(count)) {
        Some((seed, why)) => {
            println!("{mutant:?}: caught by {profile} {seed}: {why}");
            ExitCode::SUCCESS
        }
        None => {
            println!("{mutant:?}: LIVES through {count} storms of {profile} from seed {first} on");
            ExitCode::FAILURE
        }
    }
}
