//! What a dry run promises is what happens: every operation that changes something, asked in every state first with
//! `--dry-run` and then for real, of the daemon on its real engine and small files.
//!
//! 1. Both answers are the same, word for word: the refusal with what it offers, or the promise with its numbers.
//! 2. A dry run changes nothing, nor does a refusal.
//! 3. The numbers that are promised are what is there afterwards.
//! 4. A check that does not repair, as a dry run or plainly, finds the same each time, and counts nothing against a
//!    disk; the repair puts right what it counted.

mod asked;
mod states;

use crate::machine::{Machine, Ran};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use weft_engine::units::ByteCount;
use weft_host::cli::exit::Exit;
use weft_host::ublk;
use weft_sim::sample::sample;

/// States that are tried at a time: most of what they wait for are disks.
const AT_ONCE: usize = 4;
/// How often a check is asked for again, at most, while data moves by itself.
const LOOKS: usize = 100;
/// Who may make a block device.
static UBLK: Mutex<()> = Mutex::new(());

#[test]
fn what_a_dry_run_promises_is_what_happens() {
    let only = std::env::var("WEFT_STATE").unwrap_or_default();
    let states: Vec<_> = match only.is_empty() {
        true => sample(states::STATES).collect(),
        false => states::STATES.iter().filter(|(name, _)| name.contains(&only)).collect(),
    };
    let (next, taken, broken) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let try_states = || {
        while let Some((name, steps)) = states.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut machine = states::after(steps);
            let mut before = machine.shown();
            for line in asked::LINES {
                // Block devices have numbers that all of the machine shares.
                let _alone = line.contains("--ublk").then(|| UBLK.lock().unwrap_or_else(PoisonError::into_inner));
                let kept = if line.starts_with("pool check") { check_kept } else { promise_kept };
                match kept(&machine, line, &before) {
                    Ok(false) => continue,
                    Ok(true) => drop(taken.fetch_add(1, Ordering::Relaxed)),
                    Err(why) => broken.lock().unwrap().push(format!("{name}: weft {line}\n{why}")),
                }
                machine = states::after(steps);
                before = machine.shown();
            }
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(try_states))));
    if !std::path::Path::new(ublk::CONTROL).exists() {
        eprintln!("SKIPPED: ublk devices that are made: this kernel has none, so that they were only refused");
    }
    let (asked, taken, broken) = (states.len() * asked::LINES.len(), taken.into_inner(), broken.into_inner().unwrap());
    eprintln!("{asked} commands in {} states, of which {taken} changed something", states.len());
    assert!(broken.is_empty(), "{} promises were broken\n\n{}", broken.len(), broken.join("\n\n"));
    assert!(!only.is_empty() || taken > asked / 10, "{taken} of {asked} changed something: they prove too little");
}

/// Asks twice. Whether the second time changed something; what was wrong if they differ.
fn promise_kept(machine: &Machine, line: &str, before: &Value) -> Result<bool, String> {
    let dry = run(machine, &format!("{line} --dry-run --json"));
    let unchanged = machine.shown();
    if unchanged != *before {
        return Err(format!("  the dry run changed something: {}", difference(before, &unchanged)));
    }
    let real = run(machine, &format!("{line} --yes --json"));
    let told = format!("  dry:  {}  real: {}", told(&dry), told(&real));
    // What is offered instead is asked the same way.
    let offered = |ran: &Ran| ran.err.replace(" --dry-run", "").replace(" --yes", "");
    if dry.exit != real.exit || offered(&dry) != offered(&real) {
        return Err(told);
    }
    let now = machine.shown();
    if real.exit != Exit::Done {
        let changed = || format!("{told}  a refusal changed something: {}", difference(before, &now));
        return if now == *before { Ok(false) } else { Err(changed()) };
    }
    let (mut promised, done): (Value, Value) = (read(&dry.out), read(&real.out));
    if promised["dry_run"] != true || done["dry_run"] != false {
        return Err(told);
    }
    promised["dry_run"] = json!(false);
    // The number of a job is given when it begins.
    let already = done["outcome"] == "already-so";
    if !already && let Some(job) = done.get("job") {
        promised["job"] = job.clone();
    }
    if promised != done {
        return Err(told);
    }
    numbers_are_true(line, before, &now, &done).map_err(|why| format!("{told}  {why}"))?;
    Ok(!already)
}

/// Looks twice, and then does what the line says. Whether that put something right; what was wrong (head, 4).
fn check_kept(machine: &Machine, line: &str, before: &Value) -> Result<bool, String> {
    let errors = || -> Vec<Value> {
        let disks = machine.json(&["disk", "list"]);
        disks.as_array().unwrap().iter().map(|disk| disk["counters"]["errors"].clone()).collect()
    };
    let counted = errors();
    let look = || run(machine, &format!("{line} --dry-run --json"));
    let (mut dry, mut again) = (look(), look());
    // Data that moves between tiers by itself has other redundancy there; that has an end.
    for _ in 0..LOOKS {
        if dry.out == again.out || found(&dry) != found(&again) {
            break;
        }
        (dry, again) = (again, look());
    }
    let unchanged = machine.shown();
    if unchanged != *before {
        return Err(format!("  the dry run changed something: {}", difference(before, &unchanged)));
    }
    if (&dry.out, &dry.err) != (&again.out, &again.err) || errors() != counted {
        return Err(format!("  once: {}  again: {}  errors: {counted:?}, {:?}", told(&dry), told(&again), errors()));
    }
    let real = run(machine, &format!("{line} --yes --json"));
    let told = format!("  dry:  {}  real: {}", told(&dry), told(&real));
    if dry.out.is_empty() {
        return if (dry.exit, &dry.err) == (real.exit, &real.err.replace(" --yes", "")) {
            Ok(false)
        } else {
            Err(told)
        };
    }
    let (looked, done) = (read(&dry.out), read(&real.out));
    let repairs = line.ends_with("--repair");
    let promised = if repairs { looked["repairable"].clone() } else { json!(0) };
    let left = read(&run(machine, "pool check p --json").out)["repairable"].clone();
    let kept = done["repaired"] == promised && (left == json!(0) || !repairs && left == looked["repairable"]);
    if kept { Ok(promised != json!(0)) } else { Err(format!("{told}  {left} are left to repair")) }
}

/// What a check found, without how much it looked at.
fn found(ran: &Ran) -> Value {
    let mut answer = if ran.out.is_empty() { Value::Null } else { read(&ran.out) };
    if let Some(answer) = answer.as_object_mut() {
        answer.remove("checked");
    }
    answer
}

fn run(machine: &Machine, line: &str) -> Ran {
    machine.weft(&machine.words(line).iter().map(String::as_str).collect::<Vec<_>>())
}

/// What an answer says about sizes is what is there now.
fn numbers_are_true(line: &str, before: &Value, now: &Value, done: &Value) -> Result<(), String> {
    let said = done["changes"].to_string();
    let find = |shown: &Value, name: &str| {
        shown["vdisks"][0].as_array().unwrap().iter().find(|vdisk| vdisk["name"] == name).cloned().unwrap()
    };
    let words: Vec<&str> = line.split(' ').collect();
    if let ["vdisk", "create" | "resize", name, ..] = words[..] {
        let size = ByteCount(find(now, name)["size"].as_u64().unwrap()).to_string();
        if !said.contains(&size) {
            return Err(format!("it has {size} now"));
        }
    }
    if let ["vdisk", "remove", name, ..] = words[..] {
        let free = |shown: &Value| shown["pools"][0]["free"].as_u64().unwrap();
        let freed = ByteCount(find(before, name)["footprint"].as_u64().unwrap());
        let given_back = ByteCount(free(now) - free(before));
        if given_back < freed || !said.contains(&format!("{freed} of the pool")) {
            return Err(format!("{given_back} are free that were not"));
        }
    }
    Ok(())
}

fn told(ran: &Ran) -> String {
    format!("{:?} {}{}\n", ran.exit, ran.out.split_whitespace().collect::<Vec<_>>().join(" "), ran.err)
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The first thing that two views of the machine show differently.
fn difference(before: &Value, after: &Value) -> String {
    let views = before.as_object().unwrap();
    let (key, was) = views.iter().find(|(key, was)| after[*key] != **was).expect("there is one");
    format!("{key}\n  was {was}\n  is  {}", after[key])
}
