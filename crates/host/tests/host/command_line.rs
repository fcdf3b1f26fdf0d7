//! The command line, the socket and the daemon together, on the real engine and small files.

mod at_risk;
mod classes;
mod dumped;
mod found;
mod mapped;
mod stories;
mod table;
mod upkeep;
mod uses;
mod wrong;

use crate::machine::{Machine, Nbd, TIMEOUT};
use rustix::fs::{FlockOperation, flock, inotify};
use serde_json::Value;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weft_engine::store::Tuning;
use weft_engine::units::Nanos;
use weft_host::cli;
use weft_host::cli::exit::Exit;
use weft_host::daemon::{self, config::Options};
use weft_host::wire::client::Client;

/// How often a disk is opened before the daemon has found it claimed: to read its label, and to claim it, twice.
const OPENED_CLAIMED: usize = 3;

impl Machine {
    /// With a pool `tank` of four disks.
    fn with_tank() -> Machine {
        let machine = Machine::new();
        machine.typed("pool create tank $D/d1 $D/d2 $D/d3 $D/d4 --create-size 1GiB");
        machine
    }

    /// Starts the daemon while somebody claims a disk. `meanwhile` happens when the daemon has looked what is there and
    /// waits for that disk; then the claim ends.
    fn start_claimed(&mut self, disk: &str, meanwhile: impl FnOnce() + Send) {
        let claimed = File::open(self.disk(disk)).unwrap();
        flock(&claimed, FlockOperation::LockExclusive).unwrap();
        let watch = inotify::init(inotify::CreateFlags::empty()).unwrap();
        inotify::add_watch(&watch, self.disk(disk), inotify::WatchFlags::OPEN).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = [const { MaybeUninit::uninit() }; 4096];
                let mut opened = inotify::Reader::new(&watch, &mut buffer);
                (0..OPENED_CLAIMED).for_each(|_| assert!(opened.next().is_ok()));
                meanwhile();
                flock(&claimed, FlockOperation::Unlock).unwrap();
            });
            self.start();
        });
    }

    /// Waits until one of the pool's events has these words.
    fn until_told(&self, pool: &str, words: &str) {
        let begun = Instant::now();
        while !self.done(&["events", pool]).contains(words) {
            assert!(begun.elapsed() < TIMEOUT, "never told: {words}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_pool_and_a_virtual_disk_come_and_go() {
    table::play(&mut Machine::new(), stories::COME_AND_GO);
}

#[test]
fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let mut machine = Machine::new();
    table::play(&mut machine, stories::DRY_POOL);
    assert!(!Path::new(&machine.disk("d1")).exists());
    table::play(&mut machine, stories::DRY);
}

#[test]
fn what_destroys_asks_first() {
    let machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    let offered = machine.refused(&["vdisk", "remove", "tank/media"], Exit::Usage);
    assert_eq!(offered, "weft vdisk remove tank/media --yes");
    let kept = machine.weft_asking(&["vdisk", "remove", "tank/media"], Some(false));
    assert_eq!(kept.exit, Exit::NotPossible);
    machine.done(&["vdisk", "show", "tank/media"]);
    let removed = machine.weft_asking(&["vdisk", "remove", "tank/media"], Some(true));
    assert_eq!((removed.exit, removed.out.contains("removed")), (Exit::Done, true));
    machine.refused(&["pool", "remove", "nowhere"], Exit::NotFound);
}

#[test]
fn a_virtual_disk_that_lost_writes_is_cleared_when_a_person_agrees() {
    let mut machine = Machine::with_tank();
    machine.stop();
    // Nothing becomes durable but by a flush.
    let never = Nanos::secs(1 << 30);
    let tuning = Tuning { commit_interval: never, idle_land: never, ..Tuning::default() };
    machine.start_of(daemon::parts(tuning).unwrap());
    machine.typed("vdisk create tank/media --size 1GiB --resiliency simple --columns 1 --disks d1");
    machine.typed("export add tank/media --nbd unix:$O/s");
    assert_eq!(machine.json(&["vdisk", "clear", "tank/media", "--yes"])["outcome"], "already-so");
    // A disk goes, and comes back without what was written to it last.
    fs::copy(machine.disk("d1"), machine.path("other/d1")).unwrap();
    let client = Nbd::to(&machine.path("other/s"), "tank/media").write(64 << 10);
    // What is still on its way when its disk goes waits for the disk, and is not lost.
    machine.until(&["vdisk", "show", "tank/media"], |vdisk| vdisk["counters"]["whole_stripe_bytes"] == 64 << 10);
    machine.hide("d1");
    machine.until(&["disk", "show", "tank/d1"], |disk| disk["state"] == "missing");
    // It is the same file: another one would not be taken for it.
    fs::copy(machine.path("other/d1"), machine.path("away/d1")).unwrap();
    machine.show("d1");
    machine.until(&["vdisk", "show", "tank/media"], |vdisk| vdisk["health"] == "failed");
    assert_ne!(client.ask(3, 0), 0, "a flush of what is lost");
    machine.until(&["disk", "show", "tank/d1"], |disk| disk["state"] == "healthy");
    let told = machine.json(&["status"])["attention"].clone();
    let hints: Vec<&Value> = told.as_array().unwrap().iter().map(|one| &one["hint"]).collect();
    assert!(hints.contains(&&"weft vdisk clear tank/media".into()), "{told}");
    let would = machine.done(&["vdisk", "clear", "tank/media", "--dry-run"]);
    assert!(would.contains("given up: what was written last to bytes 0 to 65536"), "{would}");
    assert_eq!(machine.refused(&["vdisk", "clear", "tank/media"], Exit::Usage), "weft vdisk clear tank/media --yes");
    assert_eq!(machine.weft_asking(&["vdisk", "clear", "tank/media"], Some(false)).exit, Exit::NotPossible);
    assert_eq!(machine.json(&["vdisk", "show", "tank/media"])["health"], "failed");
    assert_eq!(machine.weft_asking(&["vdisk", "clear", "tank/media"], Some(true)).exit, Exit::Done);
    assert_eq!(machine.json(&["vdisk", "show", "tank/media"])["health"], "healthy");
    machine.refused(&["vdisk", "clear", "tank/none", "--yes"], Exit::NotFound);
}

#[test]
fn exports_survive_a_restart_and_pools_are_found_again_under_other_names() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    let at = format!("unix:{}", machine.path("nbd.sock").display());
    let add = ["export", "add", "tank/media", "--nbd", &at];
    assert_eq!(machine.json(&add)["outcome"], "created");
    assert_eq!(machine.json(&add)["outcome"], "already-so");
    assert!(machine.path("nbd.sock").exists());
    assert_eq!(
        machine.refused(&["vdisk", "remove", "tank/media", "--yes"], Exit::NotPossible),
        "weft export remove tank/media"
    );
    assert_eq!(
        machine.refused(&["pool", "remove", "tank", "--yes"], Exit::NotPossible),
        "weft export remove tank/media"
    );

    machine.stop();
    assert!(!machine.path("weft.sock").exists());
    assert!(!machine.path("nbd.sock").exists(), "stopping ends the exports");
    fs::rename(machine.disk("d1"), machine.disk("x")).unwrap();
    fs::rename(machine.disk("d2"), machine.disk("d1")).unwrap();
    machine.start();
    let export = &machine.json(&["export", "list"])[0];
    assert_eq!((&export["active"], export["nbd"].as_str()), (&Value::Bool(true), Some(at.as_str())));
    assert!(machine.path("nbd.sock").exists());
    assert_eq!(machine.json(&["status"])["health"], "healthy");

    machine.done(&["export", "remove", "tank/media", "--nbd"]);
    machine.refused(&["export", "remove", "tank/media"], Exit::NotFound);
    machine.restart();
    assert_eq!(machine.done(&["export", "list"]), "no exports\n");
}

#[test]
fn a_daemon_waits_for_disks_that_a_killed_one_still_claims() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    let at = format!("unix:{}", machine.path("nbd.sock").display());
    machine.done(&["export", "add", "tank/media", "--nbd", &at]);
    machine.stop();
    machine.start_claimed("d3", || {});
    assert_eq!(machine.json(&["status"])["health"], "healthy");
    assert!(machine.path("nbd.sock").exists());
    let events = machine.done(&["events", "tank"]);
    assert!(!events.contains("not opened"), "{events}");
}

#[test]
fn a_disk_that_appears_while_the_daemon_starts_is_noticed() {
    let mut machine = Machine::with_tank();
    machine.stop();
    let (away, there) = (machine.path("away/copy"), machine.path("disks/copy"));
    fs::copy(machine.disk("d1"), &away).unwrap();
    machine.start_claimed("d3", || fs::rename(&away, &there).unwrap());
    machine.until_told("tank", "is a copy of disk d1, which is there");
}

#[test]
fn a_pool_without_one_of_its_disks_opens_degraded_and_a_person_is_told() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    machine.write("tank/media", 192 << 10);
    machine.stop();
    fs::remove_file(machine.disk("d3")).unwrap();
    machine.start();
    let status = machine.json(&["status"]);
    assert_eq!(status["health"], "degraded");
    assert_eq!(status["attention"][0]["subject"], "disk tank/d3");
    let text = machine.done(&["status", "tank"]);
    let last_seen = machine.disk("d3");
    let told = format!("! disk tank/d3: missing, last seen as {last_seen}; rebuilt where there is room after 5m\n");
    assert!(text.contains(&(told + "  try: weft disk replace tank d3 DISK\n")), "{text}");
    let check = machine.weft(&["pool", "check", "tank"]);
    assert_eq!((check.exit, check.out.contains("is not sound")), (Exit::Other, true), "{}", check.out);
    assert!(
        machine.weft(&["disk", "replace", "tank", "d3", &machine.disk("d3"), "--create-size", "1GiB", "--wait"]).exit
            == Exit::Done
    );
    assert_eq!(machine.weft(&["pool", "check", "tank", "--repair"]).exit, Exit::Done);
}

#[test]
fn a_disk_that_is_there_twice_keeps_its_pool_closed_and_both_places_are_named() {
    let mut machine = Machine::with_tank();
    machine.stop();
    let (disk, copy) = (File::open(machine.disk("d1")).unwrap(), File::create(machine.disk("copy-of-d1")).unwrap());
    let mut label = [0; 4096];
    disk.read_exact_at(&mut label, 0).unwrap();
    copy.write_all_at(&label, 0).unwrap();
    copy.set_len(disk.metadata().unwrap().len()).unwrap();
    machine.start();
    let message = machine.json(&["status"])["attention"][0]["message"].as_str().unwrap().to_string();
    assert!(message.contains("copy-of-d1") && message.contains("twice"), "{message}");
    machine.refused(&["pool", "show", "tank"], Exit::NotPossible);
    fs::remove_file(machine.disk("copy-of-d1")).unwrap();
    machine.done(&["pool", "show", "tank"]);
}

#[test]
fn a_disk_outside_the_daemons_places_is_remembered() {
    let mut machine = Machine::new();
    let elsewhere = machine.path("elsewhere").display().to_string();
    machine.done(&["pool", "create", "tank", &elsewhere, "--create-size", "1GiB"]);
    machine.restart();
    assert_eq!(machine.json(&["pool", "show", "tank"])["disks"][0]["path"], elsewhere.as_str());
}

#[test]
fn a_disk_that_holds_something_is_refused_by_name_and_taken_by_force() {
    let machine = Machine::new();
    let disk = machine.disk("d1");
    fs::write(&disk, b"XFSB").unwrap();
    File::options().write(true).open(&disk).unwrap().set_len(300 << 20).unwrap();
    let create = ["pool", "create", "tank", &disk];
    let ran = machine.weft(&create);
    assert_eq!(ran.exit, Exit::NotPossible);
    assert!(ran.err.contains("an XFS file system"), "{}", ran.err);
    let mut start = [0; 4];
    File::open(&disk).unwrap().read_exact_at(&mut start, 0).unwrap();
    assert_eq!(&start, b"XFSB", "refused, so untouched");
    assert_eq!(machine.refused(&create, Exit::NotPossible), format!("weft pool create tank {disk} --force"));
    machine.done(&[&create[..], &["--force"]].concat());
    let again = machine.weft(&["pool", "create", "pond", &disk, "--force"]);
    assert_eq!(again.exit, Exit::NotPossible);
    assert!(again.err.contains("it is disk d1 of pool tank"), "{}", again.err);
}

#[test]
fn a_pool_that_cannot_be_made_leaves_no_files_behind() {
    let machine = Machine::new();
    let disk = machine.disk("small");
    machine.refused(&["pool", "create", "tank", &disk, "--create-size", "1MiB"], Exit::Usage);
    assert!(!Path::new(&disk).exists());
}

#[test]
fn wrong_commands_are_refused_with_one_that_would_work() {
    let mut machine = Machine::with_tank();
    table::play(&mut machine, "weft vdisk create tank/media --size 1GiB");
    let before = machine.shown();
    table::play(&mut machine, wrong::COMMANDS);
    assert_eq!(machine.shown(), before, "what is refused changes nothing");
    assert!(!Path::new(&machine.disk("d9")).exists());
}

#[test]
fn interleave_need_not_be_a_power_of_two() {
    table::play(&mut Machine::with_tank(), stories::INTERLEAVE);
}

#[test]
fn a_second_daemon_is_refused_on_the_socket_and_on_the_state() {
    let machine = Machine::new();
    let refused = |state: &str, socket: &str| {
        let (state, socket) = (machine.path(state), machine.path(socket));
        let options = Options { state, socket, places: Some(Vec::new()), ..machine.options() };
        let started = daemon::start(&options, daemon::parts(Tuning::default()).unwrap());
        started.err().map(|error| error.message).unwrap_or_default()
    };
    assert!(refused("state2", "weft.sock").contains("uses the socket"));
    assert!(refused("state", "weft2.sock").contains("uses the state directory"));
    assert_eq!(machine.done(&["pool", "list"]), "no pools\n", "the first still answers");
}

#[test]
fn without_a_daemon_the_exit_code_says_so() {
    let mut machine = Machine::new();
    machine.stop();
    let offered = machine.refused(&["status"], Exit::Unreachable);
    assert!(offered.starts_with("weft serve --socket "), "{offered}");
    machine.done(&["version"]);
    machine.done(&["completions", "bash"]);
    machine.done(&["man"]);
}

#[test]
fn rates_events_and_plans_are_told() {
    let mut machine = Machine::with_tank();
    machine.typed("vdisk create tank/media --size 1GiB");
    machine.write("tank/media", 192 << 10);
    table::play(&mut machine, stories::TOLD);
    let rates = machine.json(&["stat", "tank/media"]);
    let percent = rates["rows"][1]["whole_stripe_percent"].as_f64().unwrap();
    assert!(machine.done(&["stat"]).contains(&format!("{percent:.0} %")), "{rates:#}");
    let spans = machine.done(&["stat", "--interval", "1ms", "--count", "2", "--json"]);
    let spans: Vec<Value> = spans.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(spans.len(), 2);
    let events = machine.done(&["events", "tank", "--json"]);
    let texts: Vec<String> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["text"].as_str().unwrap().to_string())
        .collect();
    let by_people: Vec<&str> = texts.iter().map(String::as_str).filter(|text| text.ends_with(" created")).collect();
    assert_eq!(by_people[..2], ["pool tank created", "vdisk tank/media created"]);
    assert_eq!(machine.done(&["events", "--follow", "--count", "1"]).lines().count(), 1);
}

#[test]
fn every_command_prints_the_same_value_as_json() {
    let mut machine = Machine::with_tank();
    table::play(&mut machine, stories::SHOWN);
    let shown = stories::SHOWN.lines().filter(|line| line.starts_with("weft ") && !line.contains("create"));
    for line in shown.map(|line| line.trim_start_matches("weft ")) {
        let text = machine.typed(line);
        assert!(text.ends_with('\n') && !text.contains('\u{1b}'), "{line:?}: {text}");
        assert!(text.lines().all(|line| line.trim_end() == line), "{line:?}: {text:?}");
    }
    assert!(machine.typed("pool list --color always").contains('\u{1b}'));
    assert_eq!(machine.typed("vdisk resize tank/media 2GiB --quiet"), "");
}

#[test]
fn the_socket_answers_anything_in_the_error_form_and_describes_itself() {
    let machine = Machine::with_tank();
    let client = Client::new(machine.path("weft.sock"));
    let document: Value = serde_json::from_str(&client.get_text("/openapi.json").unwrap()).unwrap();
    assert!(document["paths"]["/v1/pools/{pool}/check"]["post"].is_object());
    for path in [
        "/",
        "/v2/pools",
        "/v1/nothing",
        "/v1/events?after=x",
        "/v1/status?pol=tank",
        "/v1/plan",
        "/v1/plan?disks=257x4TB",
        "/v1/plan?disks=4x4TB&pool=tank",
        "/v1/plan?disks=4x4TB&jobs=nonsense",
        "/v1/plan?pool=nowhere",
        "/v1/pools/a%2Fb",
        "/v1/disks/%ff",
    ] {
        let answer: Value =
            serde_json::from_str(&client.get_text(path).unwrap()).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(answer["kind"].is_string() && answer["message"].is_string(), "{path}: {answer}");
    }
}

#[test]
fn the_planner_answers_over_the_socket_what_it_prints() {
    let machine = Machine::with_tank();
    let client = Client::new(machine.path("weft.sock"));
    let value = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    for (query, options) in [
        ("disks=7x4TB,2x8TB", "--disks 7x4TB,2x8TB"),
        ("pool=tank&failures=2&workload=media", "--pool tank --failures 2 --workload media"),
    ] {
        let answered = value(client.get_text(&format!("/v1/plan?{query}")).unwrap());
        assert!(answered["best"][0]["usable"].as_u64() > Some(0), "{answered}");
        assert_eq!(answered, value(machine.typed(&format!("plan {options} --json"))));
    }
    let page = machine.path("plan.html");
    machine.typed(&format!("plan --pool tank --html {}", page.display()));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg") && page.ends_with("</html>\n"));
}

#[test]
fn the_help_of_every_command_shows_an_example_and_the_examples_parse() {
    use clap::{CommandFactory, Parser};
    fn walk(command: &clap::Command, path: &str, seen: &mut usize) {
        let subs: Vec<_> = command.get_subcommands().collect();
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<&str> = help.lines().map(str::trim).filter(|line| line.starts_with("weft ")).collect();
        assert!(!subs.is_empty() || !examples.is_empty(), "{path} has no example");
        for example in examples {
            let line = example.split([';', '|', '>']).next().unwrap();
            // Every second part lies within quotation marks.
            let parts = line.split('"').enumerate();
            let words: Vec<&str> = parts
                .flat_map(|(nth, part)| if nth % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
                .collect();
            assert!(cli::args::Cli::try_parse_from(&words).is_ok(), "{example}");
            *seen += 1;
        }
        for sub in subs {
            walk(sub, &format!("{path} {}", sub.get_name()), seen);
        }
    }
    let mut seen = 0;
    walk(&cli::args::Cli::command(), "weft", &mut seen);
    assert!(seen > 25, "{seen}");
}
