//! The life of a pool: jobs, members, settings, leaving and coming back.

use super::{Exit, Machine};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

impl Machine {
    fn hold_jobs(&self, hold: bool) {
        self.storage.held.store(hold, Ordering::Relaxed);
    }

    fn until(&self, line: &[&str], holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let value = self.json(line);
            if holds(&value) {
                return value;
            }
            assert!(begun.elapsed() < PATIENCE, "{line:?} is still {value:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn disk_names(&self) -> Vec<String> {
        let pool = self.json(&["pool", "show", "tank"]);
        pool["disks"].as_array().unwrap().iter().map(|disk| disk["name"].as_str().unwrap().to_string()).collect()
    }
}

#[test]
fn jobs_are_started_steered_and_waited_for() {
    let machine = Machine::with_tank();
    assert_eq!(machine.done(&["job", "list"]), "no jobs\n");
    machine.hold_jobs(true);
    let would = machine.done(&["scrub", "tank", "--dry-run"]);
    assert!(would.starts_with("scrub of pool tank would be started\n"), "{would}");
    assert_eq!(machine.done(&["job", "list"]), "no jobs\n");

    let started = machine.json(&["scrub", "tank"]);
    assert_eq!((started["outcome"].as_str(), started["job"].as_str()), (Some("started"), Some("tank/1")));
    let again = machine.json(&["scrub", "tank"]);
    assert_eq!((again["outcome"].as_str(), again["job"].as_str()), (Some("already-so"), Some("tank/1")));
    assert!(machine.done(&["scrub", "tank"]).contains("job tank/1 is running"));
    machine.done(&["job", "pause", "1", "--dry-run"]);
    assert_eq!(machine.json(&["job", "show", "1"])["state"], "running");
    machine.done(&["job", "pause", "1"]);
    assert_eq!(machine.json(&["job", "pause", "tank/1"])["outcome"], "already-so");
    let status = machine.done(&["status"]);
    assert!(status.contains("! job tank/1: scrub is paused\n  try: weft job resume tank/1\n"), "{status}");
    machine.done(&["job", "resume", "1"]);
    assert_eq!(machine.json(&["status"])["jobs"][0]["job"], "tank/1");

    machine.done(&["rebalance", "tank"]);
    machine.done(&["job", "cancel", "2"]);
    machine.refused(&["job", "resume", "2"], Exit::NotPossible);
    assert_eq!(machine.json(&["job", "cancel", "2"])["outcome"], "already-so");

    machine.hold_jobs(false);
    let ran = machine.weft(&["repair", "tank", "--wait"]);
    assert_eq!(ran.exit, Exit::Done, "{}", ran.err);
    assert!(ran.out.contains("repair of pool tank started") && ran.out.contains("done"), "{}", ran.out);
    assert!(ran.err.lines().all(|line| line.starts_with("tank/3 (repair): ")), "{}", ran.err);
    let ran = machine.weft(&["scrub", "tank", "--wait", "--json", "--quiet"]);
    let job: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((job["state"].as_str(), ran.err.as_str()), (Some("done"), ""));
    let jobs = machine.done(&["job", "list", "tank"]);
    assert!(jobs.contains("cancelled") && jobs.contains("rebalance"), "{jobs}");
    assert!(machine.json(&["pool", "show", "tank"])["settings"]["scrubbed"].is_u64());
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
    machine.hold_jobs(true);
    let line = ["disk", "replace", "tank", "d2", &d7, "--create-size", "1GiB"];
    assert!(machine.done(&[&line[..], &["--dry-run"]].concat()).contains("replacement of disk tank/d2 by d7 would be"));
    assert!(!Path::new(&d7).exists());
    machine.done(&line);
    machine.refused(&["disk", "replace", "tank", "d2", "d3"], Exit::NotPossible);
    assert_eq!(machine.json(&["disk", "remove", "tank", "d2"])["outcome"], "already-so");
    machine.hold_jobs(false);
    machine.until(&["pool", "show", "tank"], |pool| pool["disks"].as_array().unwrap().len() == 5);

    // A removal that cannot be says what is missing.
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB", "--columns", "5"]);
    let ran = machine.weft(&["disk", "remove", "tank", "d7"]);
    assert_eq!(ran.exit, Exit::NoSpace);
    assert!(ran.err.contains("4.00 MiB is missing") || ran.err.contains("is missing"), "{}", ran.err);
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
    let machine = Machine::with_tank();
    let set = |more: &[&str]| machine.json(&[&["disk", "set", "tank", "d1"], more].concat());
    assert_eq!(set(&["usage=auto"])["outcome"], "already-so");
    assert_eq!(set(&["usage=retired", "--dry-run"])["dry_run"], true);
    assert_eq!(machine.json(&["disk", "show", "tank/d1"])["usage"], "auto");
    let changes = set(&["usage=retired", "media=ssd", "name=old", "domain=rack2"])["changes"].clone();
    assert!(changes.to_string().contains("weft disk remove tank old"), "{changes}");
    let disk = machine.json(&["disk", "show", "tank/old"]);
    let words = [&disk["usage"], &disk["media"], &disk["domain"]].map(|word| word.as_str().unwrap());
    assert_eq!(words, ["retired", "ssd", "rack2"]);
    machine.refused(&["disk", "set", "tank", "old", "name=d2"], Exit::NotPossible);

    machine.done(&["disk", "set", "tank", "d2", "maintenance=on"]);
    let status = machine.done(&["status"]);
    assert!(status.contains("! disk tank/d2: in maintenance"), "{status}");
    assert!(status.contains("try: weft disk set tank d2 maintenance=off"), "{status}");
    machine.refused(&["disk", "set", "tank", "d3", "maintenance=on"], Exit::NotPossible);
    machine.done(&["disk", "set", "tank", "d2", "maintenance=off"]);
    machine.until(&["disk", "show", "tank/d2"], |disk| disk["state"] == "healthy");
}

#[test]
fn settings_are_shown_as_they_are_typed() {
    let machine = Machine::with_tank();
    let shown = machine.done(&["pool", "show", "tank"]);
    for line in ["repair-after      5m", "scrub-every       4w", "foreground-share  50%", "full              70,80,90"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let set = ["pool", "set", "tank", "repair-after=never", "full=10,20,30"];
    assert!(machine.done(&[&set[..], &["--dry-run"]].concat()).contains("  repair-after 5m -> never\n"));
    assert_eq!(machine.json(&["pool", "show", "tank"])["settings"]["repair_after_seconds"], 300);
    machine.done(&set);
    assert_eq!(machine.json(&set)["outcome"], "already-so");
    assert_eq!(machine.json(&["pool", "show", "tank"])["settings"]["repair_after_seconds"], Value::Null);
}

#[test]
fn an_exported_pool_stays_closed_over_a_restart_until_it_is_imported() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    machine.done(&["export", "add", "tank/media", "--nbd", "tcp:127.0.0.1:1"]);
    assert_eq!(machine.refused(&["pool", "export", "tank"], Exit::NotPossible), "weft export remove tank/media");
    machine.done(&["export", "remove", "tank/media"]);
    machine.done(&["pool", "export", "tank", "--dry-run"]);
    machine.done(&["pool", "show", "tank"]);
    assert!(machine.done(&["pool", "export", "tank"]).starts_with("pool tank closed\n"));
    for _ in 0..2 {
        assert_eq!(machine.refused(&["pool", "show", "tank"], Exit::NotPossible), "weft pool import tank");
        assert_eq!(machine.json(&["status"])["attention"], Value::Array(Vec::new()), "a person wanted it so");
        assert_eq!(machine.json(&["disk", "show", "d1"])["state"], "closed");
        machine.stop();
        machine.start();
    }
    // A disk of it that is away is known by its name.
    fs::rename(machine.disk("d3"), machine.dir.path().join("d3")).unwrap();
    let importable = machine.json(&["pool", "import"]);
    assert_eq!((importable[0]["name"].as_str(), importable[0]["missing"][0].as_str()), (Some("tank"), Some("d3")));
    let away = machine.json(&["disk", "list"]).as_array().unwrap().iter().find(|disk| disk["name"] == "d3").cloned();
    assert_eq!(away.expect("it is listed")["state"], "missing");
    fs::rename(machine.dir.path().join("d3"), machine.disk("d3")).unwrap();

    assert!(machine.done(&["pool", "import", "tank", "--dry-run"]).contains("pool tank would be opened"));
    machine.done(&["pool", "import", "tank", "--read-only"]);
    assert_eq!(machine.json(&["pool", "import", "tank", "--read-only"])["outcome"], "already-so");
    machine.stop();
    machine.start();
    assert_eq!(machine.json(&["pool", "show", "tank"])["read_only"], true, "also over a restart");
    assert_eq!(machine.refused(&["scrub", "tank"], Exit::NotPossible), "weft status tank");
    assert_eq!(machine.refused(&["pool", "import", "tank"], Exit::NotPossible), "weft pool export tank");
    machine.done(&["pool", "export", "tank"]);
    machine.done(&["pool", "import", "tank"]);
    assert_eq!(machine.json(&["pool", "show", "tank"])["read_only"], false);
    assert_eq!(machine.done(&["pool", "import"]), "no pools to import: those that were found are open\n");
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
    machine.stop();
    machine.start();
    let pool = machine.json(&["pool", "show", "tank"]);
    assert_eq!((pool["read_only"].as_bool(), pool["health"].as_str()), (Some(true), Some("degraded")));
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
    machine.done(&["export", "add", "tank/media", "--nbd", "tcp:127.0.0.1:1"]);
    machine.stop();
    let away = |name: &str| machine.dir.path().join(name);
    (1..=4).map(|n| format!("d{n}")).for_each(|name| fs::rename(machine.disk(&name), away(&name)).unwrap());
    machine.start();
    let away = |name: &str| machine.dir.path().join(name);
    let waits = || {
        let status = machine.json(&["status"]);
        let mut attention = status["attention"].as_array().unwrap().iter();
        let one = attention.find(|one| one["subject"] == "pool tank").unwrap_or_else(|| panic!("{status}"));
        (one["message"].as_str().unwrap().to_string(), one["hint"].as_str().unwrap().to_string())
    };
    let expected = "not open: none of its disks is there (not found: d1, d2, d3, d4); it opens by itself when enough of them are back";
    assert_eq!(waits(), (expected.into(), "weft disk list".into()));
    assert_eq!(machine.refused(&["pool", "show", "tank"], Exit::NotPossible), "weft disk list");
    fs::rename(away("d1"), machine.disk("d1")).unwrap();
    let begun = Instant::now();
    while !waits().0.contains("(not found: d2, d3, d4)") {
        assert!(begun.elapsed() < PATIENCE);
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
        machine.stop();
        machine.start();
    }
}

#[test]
fn writing_to_a_pool_without_most_of_its_disks_is_asked_for_twice() {
    let mut machine = Machine::with_tank();
    machine.stop();
    (2..=4).for_each(|n| fs::remove_file(machine.disk(&format!("d{n}"))).unwrap());
    machine.start();
    let import = ["pool", "import", "tank", "--degraded"];
    assert_eq!(machine.refused(&import, Exit::Usage), "weft pool import tank --degraded --yes");
    assert!(machine.done(&[&import[..], &["--dry-run"]].concat()).contains("would be opened"));
    assert_eq!(machine.json(&["pool", "list"]), Value::Array(Vec::new()));
    machine.done(&[&import[..], &["--yes"]].concat());
    assert_eq!(machine.json(&["pool", "show", "tank"])["read_only"], false);
}

#[test]
fn pools_and_virtual_disks_are_renamed() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    machine.done(&["vdisk", "create", "tank/vm", "--size", "1GiB"]);
    assert_eq!(
        machine.refused(&["vdisk", "rename", "tank/media", "vm"], Exit::NotPossible),
        "weft vdisk rename tank/media vm2"
    );
    machine.refused(&["vdisk", "rename", "tank/media", "pond/films"], Exit::Usage);
    machine.done(&["vdisk", "rename", "tank/media", "films", "--dry-run"]);
    machine.done(&["vdisk", "rename", "tank/media", "tank/films"]);
    machine.done(&["vdisk", "show", "tank/films"]);
    machine.done(&["export", "add", "tank/films", "--nbd", "tcp:127.0.0.1:1"]);
    machine.refused(&["vdisk", "rename", "tank/films", "x"], Exit::NotPossible);
    machine.refused(&["pool", "rename", "tank", "pond"], Exit::NotPossible);
    machine.done(&["export", "remove", "tank/films"]);
    machine.done(&["pool", "rename", "tank", "pond", "--dry-run"]);
    machine.done(&["pool", "show", "tank"]);
    machine.done(&["pool", "rename", "tank", "pond"]);
    machine.stop();
    machine.start();
    machine.done(&["vdisk", "show", "pond/films"]);
    machine.refused(&["pool", "show", "tank"], Exit::NotFound);
}

#[test]
fn a_disk_that_returns_to_an_open_pool_is_taken_back_and_a_stranger_is_not() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB", "--columns", "4"]);
    machine.stop();
    let (there, away) = (machine.disk("d3"), machine.dir.path().join("d3"));
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
    let told = |events: &str| events.matches("was a disk of this pool and is none any more").count();
    let begun = Instant::now();
    while told(&machine.done(&["events", "tank"])) == 0 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(machine.json(&["disk", "show", &there])["state"], "foreign");
    assert_eq!(machine.disk_names(), ["d1", "d2", "d4"]);
    machine.done(&["disk", "list"]);
    assert_eq!(told(&machine.done(&["events", "tank"])), 1);
}

#[test]
fn events_outlive_the_daemon() {
    let mut machine = Machine::with_tank();
    machine.stop();
    machine.start();
    let events = machine.done(&["events", "tank", "--json"]);
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&str> = events.iter().map(|event| event["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["pool tank created", "pool tank found on 4 disks"]);
    assert!(events[0]["no"].as_u64() < events[1]["no"].as_u64());
    machine.done(&["pool", "remove", "tank", "--yes"]);
    assert!(machine.done(&["events", "tank"]).contains("pool tank removed"), "its events outlive the pool, too");
}

#[test]
fn wrong_upkeep_is_refused_with_a_command_that_would_work_and_changes_nothing() {
    let machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    let (d1, d9) = (machine.disk("d1"), machine.disk("d9"));
    let table: Vec<(Vec<&str>, Exit, &str)> = vec![
        (vec!["job"], Exit::Usage, "weft job --help"),
        (vec!["job", "show"], Exit::Usage, "weft job show tank/3"),
        (vec!["job", "show", "x"], Exit::Usage, "weft job show 1"),
        (vec!["job", "show", "tank/x"], Exit::Usage, "weft job show tank/1"),
        (vec!["job", "show", "7"], Exit::NotFound, "weft job list"),
        (vec!["job", "pause", "tank/7"], Exit::NotFound, "weft job list"),
        (vec!["job", "cancel", "pond/1"], Exit::NotFound, "weft pool show tank"),
        (vec!["job", "list", "pond"], Exit::NotFound, "weft pool show tank"),
        (vec!["scrub"], Exit::Usage, "weft scrub --help"),
        (vec!["scrub", "pond"], Exit::NotFound, "weft pool show tank"),
        (vec!["repair", "pond"], Exit::NotFound, "weft pool show tank"),
        (vec!["rebalance", "tank/media"], Exit::Usage, "weft rebalance tank-media"),
        (vec!["pool", "set", "tank"], Exit::Usage, "weft pool set --help"),
        (vec!["pool", "set", "tank", "repair-after=soon"], Exit::Usage, "weft pool set tank repair-after=5m"),
        (vec!["pool", "set", "tank", "scrub-every=1s"], Exit::Usage, "weft pool set tank scrub-every=1h"),
        (vec!["pool", "set", "tank", "foreground-share=99%"], Exit::Usage, "weft pool set tank foreground-share=90%"),
        (vec!["pool", "set", "tank", "full=90,80,70"], Exit::Usage, "weft pool set tank full=70,80,90"),
        (vec!["pool", "set", "tank", "repair=5m"], Exit::Usage, "weft pool set tank repair-after=5m"),
        (vec!["pool", "set", "pond", "repair-after=5m"], Exit::NotFound, "weft pool show tank"),
        (vec!["pool", "rename", "tank"], Exit::Usage, "weft pool rename --help"),
        (vec!["pool", "rename", "tank", "a b"], Exit::Usage, "weft pool rename tank a-b"),
        (vec!["pool", "rename", "pond", "lake"], Exit::NotFound, "weft pool show tank"),
        (vec!["pool", "import", "pond"], Exit::NotFound, "weft pool import"),
        (vec!["pool", "import", "--read-only"], Exit::Usage, "weft pool import --help"),
        (vec!["pool", "export"], Exit::Usage, "weft pool export --help"),
        (vec!["pool", "export", "pond"], Exit::NotFound, "weft pool show tank"),
        (vec!["vdisk", "rename", "tank/x", "y"], Exit::NotFound, "weft vdisk show tank/media"),
        (vec!["vdisk", "rename", "tank/media", "a@b"], Exit::Usage, "weft vdisk rename tank/media a-b"),
        (vec!["disk", "add", "tank"], Exit::Usage, "weft disk add --help"),
        (vec!["disk", "add", "tank", &d9], Exit::NotFound, "--create-size 10GiB"),
        (vec!["disk", "add", "tank", &d1], Exit::NotPossible, "weft pool show tank"),
        (vec!["disk", "add", "tank", &d9, &d9, "--create-size", "1GiB"], Exit::Usage, "weft disk add tank"),
        (vec!["disk", "add", "tank", &d9, "--create-size", "1MiB"], Exit::NotPossible, "weft disk add --help"),
        (vec!["disk", "add", "tank", &d9, "--create-size", "1G"], Exit::Usage, "--create-size 1GiB"),
        (vec!["disk", "add", "tank", &d9, "--usage", "hot"], Exit::Usage, "--usage auto"),
        (vec!["disk", "add", "tank", &d9, "--usage", "retired", "--create-size", "1GiB"], Exit::Usage, "weft disk add"),
        (vec!["disk", "add", "pond", &d9], Exit::NotFound, "weft pool show tank"),
        (vec!["disk", "remove", "tank"], Exit::Usage, "weft disk remove --help"),
        (vec!["disk", "remove", "tank", "d9"], Exit::NotFound, "weft disk list --pool tank"),
        (vec!["disk", "remove", "tank", "d1"], Exit::NoSpace, "weft vdisk create tank/media-2 --size 1GiB"),
        (vec!["disk", "remove", "pond", "d1"], Exit::NotFound, "weft pool show tank"),
        (vec!["disk", "replace", "tank", "d1"], Exit::Usage, "weft disk replace --help"),
        (vec!["disk", "replace", "tank", "d9", &d9], Exit::NotFound, "weft disk list --pool tank"),
        (vec!["disk", "replace", "tank", "d1", &d9], Exit::NotFound, "--create-size 10GiB"),
        (vec!["disk", "replace", "tank", "d1", "d1"], Exit::NotPossible, "weft disk replace tank d1 DISK"),
        (vec!["disk", "replace", "tank", "d1", &d1], Exit::NotPossible, "weft"),
        (vec!["disk", "set", "tank", "d1"], Exit::Usage, "weft disk set --help"),
        (vec!["disk", "set", "tank", "d1", "usage=hot"], Exit::Usage, "weft disk set tank d1 usage=auto"),
        (vec!["disk", "set", "tank", "d1", "media=tape"], Exit::Usage, "weft disk set tank d1 media=hdd"),
        (vec!["disk", "set", "tank", "d1", "name=a/b"], Exit::Usage, "weft disk set tank d1 name=a-b"),
        (vec!["disk", "set", "tank", "d1", "name=d2"], Exit::NotPossible, "weft disk set tank d1 name=d22"),
        (vec!["disk", "set", "tank", "d1", "maintenance=yes"], Exit::Usage, "weft disk set tank d1 maintenance=on"),
        (vec!["disk", "set", "tank", "d9", "usage=auto"], Exit::NotFound, "weft disk list --pool tank"),
    ];
    let before = (machine.json(&["pool", "list"]), machine.json(&["job", "list"]));
    for (line, exit, offered) in table {
        let hint = machine.refused(&line, exit);
        assert!(hint.contains(offered), "{line:?}: {hint}");
    }
    assert_eq!((machine.json(&["pool", "list"]), machine.json(&["job", "list"])), before);
    assert!(!Path::new(&d9).exists());
}
