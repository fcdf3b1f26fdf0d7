//! The life of a pool: jobs, members, settings, leaving and coming back.

use super::{Exit, stories, table, wrong};
use crate::machine::{Machine, TIMEOUT};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

impl Machine {
    fn disk_names(&self) -> Vec<String> {
        let pool = self.json(&["pool", "show", "tank"]);
        pool["disks"].as_array().unwrap().iter().map(|disk| disk["name"].as_str().unwrap().to_string()).collect()
    }
}

#[test]
fn jobs_are_started_steered_and_waited_for() {
    let mut machine = Machine::new();
    // Small slabs: a job takes many steps.
    machine.typed("pool create tank $D/d1 $D/d2 $D/d3 $D/d4 --create-size 64MiB --slab-size 1MiB");
    machine.typed("vdisk create tank/media --size 64MiB");
    machine.write("tank/media", 16 << 20);
    table::play(&mut machine, stories::NO_JOBS);
    let job = machine.paused(&["scrub", "tank"]);
    let id = job.strip_prefix("tank/").unwrap().to_string();
    let next = id.parse::<u32>().unwrap() + 1;
    let names = |text: &str| text.replace("JOB", &job).replace("ID", &id).replace("NEXT", &next.to_string());
    table::play(&mut machine, &names(stories::PAUSED_JOB));
    let ran = machine.weft(&["repair", "tank", "--wait"]);
    assert_eq!(ran.exit, Exit::Done, "{}", ran.err);
    assert!(ran.out.contains("repair of pool tank started") && ran.out.contains("done"), "{}", ran.out);
    assert!(ran.err.lines().all(|line| line.starts_with(&names("tank/NEXT (repair): "))), "{}", ran.err);
    let ran = machine.weft(&["scrub", "tank", "--wait", "--json", "--quiet"]);
    let job: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((job["state"].as_str(), ran.err.as_str()), (Some("done"), ""));
    assert_eq!(machine.weft(&["rebalance", "tank", "--wait"]).exit, Exit::Done);
    let jobs = machine.done(&["job", "list", "tank"]);
    assert!(jobs.contains("cancelled") && jobs.contains("rebalance"), "{jobs}");
    assert!(machine.json(&["pool", "show", "tank"])["settings"]["scrubbed"].is_u64());
}

#[test]
fn a_virtual_disk_gets_another_layout_while_it_is_used() {
    let machine = Machine::new();
    machine.typed("pool create tank $D/d1 $D/d2 $D/d3 $D/d4 --create-size 64MiB --slab-size 1MiB");
    machine.typed("vdisk create tank/media --size 64MiB --resiliency parity --columns 3 --interleave 4KiB");
    machine.write("tank/media", 16 << 20);
    let change = ["vdisk", "change", "tank/media", "--columns", "4"];
    let would = machine.done(&[&change[..], &["--dry-run"]].concat());
    assert!(would.contains("3 columns") && would.contains("4 columns") && would.contains("data are moved"), "{would}");
    let layout = |key: &str| machine.json(&["vdisk", "show", "tank/media"])["layout"][key].clone();
    assert_eq!(layout("columns"), 3, "a dry run changes nothing");
    let wide = ["vdisk", "change", "tank/media", "--columns", "9"];
    assert_eq!(machine.refused(&wide, Exit::NotPossible), "weft vdisk change tank/media --columns 4");
    let odd = ["vdisk", "change", "tank/media", "--interleave", "5KiB"];
    assert!(machine.refused(&odd, Exit::Usage).starts_with("weft vdisk change tank/media --interleave "));
    machine.refused(&["vdisk", "change", "tank/none", "--columns", "4"], Exit::NotFound);
    let job = machine.paused_of(&[&change, &["vdisk", "change", "tank/media", "--columns", "3"]]);
    let shown = machine.json(&["vdisk", "show", "tank/media"]);
    let columns = [&shown["layout"], &shown["older"][0]["layout"]].map(|layout| layout["columns"].as_u64().unwrap());
    assert!([[4, 3], [3, 4]].contains(&columns), "{shown}");
    let told = format!("still lie in single parity, {} columns", columns[1]);
    assert!(machine.done(&["vdisk", "show", "tank/media"]).contains(&told));
    assert_eq!(machine.json(&["job", "show", &job])["name"], "reshape media");
    let other = ["vdisk", "change", "tank/media", "--interleave", "16KiB"];
    assert_eq!(machine.refused(&other, Exit::NotPossible), "weft job list tank");
    let ran = machine.weft(&["vdisk", "change", "tank/media", "--wait"]);
    assert_eq!(ran.exit, Exit::Done, "{} {}", ran.out, ran.err);
    assert_eq!(machine.json(&["job", "show", &job])["state"], "done");
    let shown = machine.json(&["vdisk", "show", "tank/media"]);
    assert!(shown["older"].is_null() && shown["layout"]["columns"] == columns[0], "{shown}");
    let again = ["vdisk", "change", "tank/media", "--columns", &columns[0].to_string()];
    assert_eq!(machine.json(&again)["outcome"], "already-so");
}

#[test]
fn disks_are_added_replaced_and_removed() {
    let machine = Machine::with_tank();
    let (d5, d6) = (machine.disk("d5"), machine.disk("d6"));
    let add = ["disk", "add", "tank", &d5, "--create-size", "1GiB"];
    assert!(machine.done(&[&add[..], &["--dry-run"]].concat()).contains("disk tank/d5 would be created"));
    assert!(!Path::new(&d5).exists());
    machine.done(&add);
    assert_eq!(machine.disk_names(), ["d1", "d2", "d3", "d4", "d5"]);
    machine.refused(&add, Exit::NotPossible);

    // What is on a disk is judged as for a new pool.
    fs::write(&d6, b"XFSB").unwrap();
    fs::File::options().write(true).open(&d6).unwrap().set_len(300 << 20).unwrap();
    let line = ["disk", "add", "tank", &d6, "--usage", "spare"];
    let hint = machine.refused(&line, Exit::NotPossible);
    assert_eq!(hint, format!("weft disk add tank {d6} --usage spare --force"));
    machine.done(&[&line[..], &["--force"]].concat());
    assert_eq!(machine.json(&["disk", "show", "tank/d6"])["usage"], "spare");

    // A member takes the place of another, and a new file does.
    let replaced = machine.weft(&["disk", "replace", "tank", "d1", "d6", "--wait"]);
    assert_eq!(replaced.exit, Exit::Done, "{}", replaced.err);
    assert_eq!(machine.disk_names(), ["d2", "d3", "d4", "d5", "d6"]);
    assert_eq!(machine.json(&["disk", "show", "tank/d6"])["usage"], "auto");
    let d7 = machine.disk("d7");
    let line = ["disk", "replace", "tank", "d2", &d7, "--create-size", "1GiB"];
    assert!(machine.done(&[&line[..], &["--dry-run"]].concat()).contains("replacement of disk tank/d2 by d7 would be"));
    assert!(!Path::new(&d7).exists());
    machine.typed("vdisk create tank/moves --size 1GiB");
    machine.write("tank/moves", 16 << 20);
    // A disk that leaves while its job is paused; one that has left before is made a new disk of.
    let (mut leaves, mut comes) = ("d2", "d7");
    let job = loop {
        let line = format!("disk replace tank {leaves} $D/{comes} --create-size 1GiB --force --json");
        let started: Value = serde_json::from_str(&machine.typed(&line)).unwrap();
        let job = started["job"].as_str().unwrap().to_string();
        machine.weft(&["job", "pause", &job]);
        if machine.json(&["job", "show", &job])["state"] == "paused" {
            break job;
        }
        (leaves, comes) = (comes, leaves);
    };
    machine.refused(&["disk", "replace", "tank", leaves, "d3"], Exit::NotPossible);
    assert_eq!(machine.json(&["disk", "remove", "tank", leaves])["outcome"], "already-so");
    machine.done(&["job", "resume", &job]);
    machine.until(&["pool", "show", "tank"], |pool| pool["disks"].as_array().unwrap().len() == 5);
    if comes == "d2" {
        assert_eq!(machine.weft(&["disk", "replace", "tank", "d2", &d7, "--force", "--wait"]).exit, Exit::Done);
    }
    machine.done(&["vdisk", "remove", "tank/moves", "--yes"]);

    // A removal that cannot be says what is missing.
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB", "--columns", "5"]);
    let ran = machine.weft(&["disk", "remove", "tank", "d7"]);
    assert_eq!(ran.exit, Exit::NotPossible, "{}", ran.err);
    assert!(ran.err.contains("disk d7 is needed by tank/media (single parity takes 5 disks"), "{}", ran.err);
    // One of those that left is blank, and could take its place.
    assert!(ran.err.contains("try: weft disk replace tank d7 /"), "{}", ran.err);
    machine.done(&["vdisk", "remove", "tank/media", "--yes"]);
    assert!(machine.done(&["disk", "remove", "tank", &d7, "--dry-run"]).contains("would be started"));
    assert_eq!(machine.weft(&["disk", "remove", "tank", "d7", "--wait"]).exit, Exit::Done);
    assert_eq!(machine.disk_names(), ["d3", "d4", "d5", "d6"]);
    assert_eq!(machine.json(&["disk", "show", &d7])["state"], "available");
}

#[test]
fn what_a_pool_knows_of_a_disk_is_set_and_a_disk_goes_into_maintenance_and_back() {
    let mut machine = Machine::with_tank();
    table::play(&mut machine, stories::KNOWN);
    let line = "disk set tank d1 usage=retired media=ssd name=old domain=rack2 --json";
    let changes = machine.typed(line);
    assert!(changes.contains("weft disk remove tank old"), "{changes}");
    table::play(&mut machine, stories::MAINTENANCE);
    machine.until(&["disk", "show", "tank/d2"], |disk| disk["state"] == "healthy");
}

#[test]
fn settings_are_shown_as_they_are_typed() {
    table::play(&mut Machine::with_tank(), stories::SETTINGS);
}

#[test]
fn an_exported_pool_stays_closed_over_a_restart_until_it_is_imported() {
    let mut machine = Machine::with_tank();
    table::play(&mut machine, stories::EXPORTED);
    (0..2).for_each(|_| table::play(&mut machine, stories::STAYS_CLOSED));
    // A disk of it that is away is known by its name.
    machine.hide("d3");
    let importable = machine.json(&["pool", "import"]);
    assert_eq!((importable[0]["name"].as_str(), importable[0]["missing"][0].as_str()), (Some("tank"), Some("d3")));
    let away = machine.json(&["disk", "list"]).as_array().unwrap().iter().find(|disk| disk["name"] == "d3").cloned();
    assert_eq!(away.expect("it is listed")["state"], "missing");
    machine.show("d3");
    table::play(&mut machine, stories::IMPORTED);
}

#[test]
fn what_survives_of_a_pool_is_imported_degraded() {
    let mut machine = Machine::with_tank();
    machine.stop();
    (2..=3).for_each(|n| fs::remove_file(machine.disk(&format!("d{n}"))).unwrap());
    machine.start();
    let attention = machine.json(&["status"])["attention"][0].clone();
    assert_eq!(attention["hint"], "weft pool import tank --read-only --degraded", "{attention}");
    let waits = "(not found: d2, d3); it opens by itself when enough of them are back";
    assert!(attention["message"].as_str().unwrap().ends_with(waits), "{attention}");
    let hint = machine.refused(&["pool", "import", "tank"], Exit::NotPossible);
    assert_eq!(hint, "weft pool import tank --read-only --degraded");
    machine.done(&["pool", "import", "tank", "--read-only", "--degraded"]);
    machine.restart();
    let pool = machine.json(&["pool", "show", "tank"]);
    assert_eq!((pool["read_only"].as_bool(), pool["health"].as_str()), (Some(true), Some("read-only")));
}

#[test]
fn a_new_disk_where_a_missing_one_was_takes_its_place() {
    let mut machine = Machine::with_tank();
    machine.stop();
    let size = fs::metadata(machine.disk("d3")).unwrap().len();
    fs::remove_file(machine.disk("d3")).unwrap();
    fs::File::create(machine.disk("d3")).unwrap().set_len(size).unwrap();
    machine.start();
    assert_eq!(machine.json(&["disk", "show", "tank/d3"])["state"], "missing");
    assert_eq!(machine.weft(&["disk", "replace", "tank", "d3", &machine.disk("d3"), "--wait"]).exit, Exit::Done);
    assert_eq!(machine.json(&["status"])["health"], "healthy");
}

#[test]
fn a_pool_that_waits_for_its_disks_says_so_and_opens_by_itself_when_enough_are_back() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    machine.typed("export add tank/media --nbd unix:$O/s");
    machine.stop();
    let away = |name: &str| machine.path(name);
    (1..=4).map(|n| format!("d{n}")).for_each(|name| fs::rename(machine.disk(&name), away(&name)).unwrap());
    machine.start();
    let away = |name: &str| machine.path(name);
    let waits = || {
        let status = machine.json(&["status"]);
        let mut attention = status["attention"].as_array().unwrap().iter();
        let one = attention.find(|one| one["subject"] == "pool tank").unwrap_or_else(|| panic!("{status}"));
        (one["message"].as_str().unwrap().to_string(), one["hint"].as_str().unwrap().to_string())
    };
    let expected = "not open: none of its disks is there (not found: d1, d2, d3, d4); it opens by itself when enough \
                    of them are back";
    assert_eq!(waits(), (expected.into(), "weft disk list".into()));
    assert_eq!(machine.refused(&["pool", "show", "tank"], Exit::NotPossible), "weft disk list");
    fs::rename(away("d1"), machine.disk("d1")).unwrap();
    let begun = Instant::now();
    while !waits().0.contains("(not found: d2, d3, d4)") {
        assert!(begun.elapsed() < TIMEOUT);
        std::thread::sleep(Duration::from_millis(20));
    }
    // Its content comes after its name: a copy that takes its time.
    fs::write(machine.disk("d2"), []).unwrap();
    machine.until(&["disk", "list"], |disks| disks.to_string().contains("/d2\""));
    fs::copy(away("d2"), machine.disk("d2")).unwrap();
    fs::rename(away("d3"), machine.disk("d3")).unwrap();
    machine.until(&["status"], |status| status["pools"][0]["disks_healthy"] == 3);
    machine.until(&["status"], |status| status["pools"][0]["exports"] == 1);
}

#[test]
fn a_pool_whose_disks_will_not_come_back_is_given_up_by_exporting_it() {
    let mut machine = Machine::with_tank();
    machine.stop();
    (1..=4).for_each(|n| fs::remove_file(machine.disk(&format!("d{n}"))).unwrap());
    machine.start();
    assert_eq!(machine.json(&["status"])["attention"][0]["subject"], "pool tank");
    machine.done(&["pool", "export", "tank", "--dry-run"]);
    assert_eq!(machine.json(&["status"])["attention"][0]["subject"], "pool tank");
    assert!(machine.done(&["pool", "export", "tank"]).starts_with("pool tank closed\n"));
    for _ in 0..2 {
        assert_eq!(machine.json(&["status"])["attention"], Value::Array(Vec::new()));
        machine.restart();
    }
}

#[test]
fn writing_to_a_pool_without_most_of_its_disks_is_asked_for_twice() {
    table::play(&mut Machine::with_tank(), stories::ASKED_TWICE);
}

#[test]
fn the_share_of_a_virtual_disk_for_small_writes_is_set_while_it_is_used() {
    table::play(&mut Machine::with_tank(), stories::SHARED);
}

#[test]
fn a_virtual_disk_gets_a_write_back_cache_another_one_and_none_while_it_is_used() {
    table::play(&mut Machine::with_tank(), stories::CACHED);
}

#[test]
fn a_virtual_disk_gets_a_fast_tier_pins_another_one_and_none_while_it_is_used() {
    table::play(&mut Machine::with_tank(), stories::TIERED);
}

#[test]
fn a_virtual_disk_gets_a_read_cache_another_one_and_none_while_it_is_used() {
    table::play(&mut Machine::with_tank(), stories::READ_CACHED);
}

#[test]
fn a_disk_that_becomes_a_journal_is_emptied_or_refused() {
    table::play(&mut Machine::with_tank(), stories::JOURNAL);
}

#[test]
fn pools_and_virtual_disks_are_renamed() {
    table::play(&mut Machine::with_tank(), stories::RENAMED);
}

#[test]
fn a_disk_that_returns_to_an_open_pool_is_taken_back_and_a_stranger_is_not() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB", "--columns", "4"]);
    machine.stop();
    let (there, away) = (machine.disk("d3"), machine.path("d3"));
    fs::rename(&there, &away).unwrap();
    machine.start();
    let missing = machine.json(&["disk", "show", "tank/d3"]);
    assert_eq!((missing["state"].as_str(), missing["path"].as_str()), (Some("missing"), Some(there.as_str())));
    let status = machine.done(&["status"]);
    assert!(status.contains(&format!("missing, last seen as {there}")), "{status}");
    fs::rename(&away, machine.disk("elsewhere")).unwrap();
    machine.until(&["disk", "show", "tank/d3"], |disk| disk["state"] == "healthy");
    let disk = machine.json(&["disk", "show", "tank/d3"]);
    assert_eq!(disk["path"], machine.disk("elsewhere").as_str());
    assert!(machine.done(&["events", "tank"]).contains("disk d3 was found as"));

    // A disk that was removed while it was away comes back as a stranger.
    machine.done(&["vdisk", "remove", "tank/media", "--yes"]);
    machine.stop();
    fs::rename(machine.disk("elsewhere"), &away).unwrap();
    machine.start();
    assert_eq!(machine.weft(&["disk", "remove", "tank", "d3", "--wait"]).exit, Exit::Done);
    fs::rename(&away, &there).unwrap();
    let stranger = "was a disk of this pool and is none any more";
    machine.until_told("tank", stranger);
    assert_eq!(machine.json(&["disk", "show", &there])["state"], "foreign");
    assert_eq!(machine.disk_names(), ["d1", "d2", "d4"]);
    machine.done(&["disk", "list"]);
    assert_eq!(machine.done(&["events", "tank"]).matches(stranger).count(), 1);
}

#[test]
fn events_outlive_the_daemon() {
    let mut machine = Machine::with_tank();
    machine.restart();
    let events = machine.done(&["events", "tank", "--json"]);
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&str> = events.iter().map(|event| event["text"].as_str().unwrap()).collect();
    let texts: Vec<&str> = texts.into_iter().filter(|text| !text.starts_with("pool opened")).collect();
    assert_eq!(texts, ["pool tank created", "pool tank found on 4 disks"]);
    assert!(events[0]["no"].as_u64() < events[1]["no"].as_u64());
    machine.done(&["pool", "remove", "tank", "--yes"]);
    assert!(machine.done(&["events", "tank"]).contains("pool tank removed"), "its events outlive the pool, too");
}

#[test]
fn wrong_upkeep_is_refused_with_a_command_that_would_work_and_changes_nothing() {
    let mut machine = Machine::with_tank();
    table::play(&mut machine, "weft vdisk create tank/media --size 1GiB");
    let before = machine.shown();
    table::play(&mut machine, wrong::UPKEEP);
    assert_eq!(machine.shown(), before);
    assert!(!Path::new(&machine.disk("d9")).exists());
}
