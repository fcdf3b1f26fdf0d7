//! The command line, the socket and the daemon together, over an engine of memory.

mod fake;
#[path = "command_line/upkeep.rs"]
mod upkeep;
#[path = "command_line/uses.rs"]
mod uses;

use fake::{FakeEngine, FakeExports, Storage};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tempfile::TempDir;
use weft_host::cli::exit::Exit;
use weft_host::cli::{self, Io};
use weft_host::daemon::config::{Options, Surroundings};
use weft_host::daemon::events::Journal;
use weft_host::daemon::{self, Parts, Running};
use weft_host::wire::client::Client;

/// A machine: a directory of disks, storage that outlives daemons, and a daemon.
struct Machine {
    dir: TempDir,
    storage: Arc<Storage>,
    exports: Arc<FakeExports>,
    running: Option<Running>,
}

/// What a command answered.
struct Ran {
    exit: Exit,
    out: String,
    err: String,
}

impl Machine {
    fn new() -> Machine {
        let mut machine = Machine {
            dir: tempfile::tempdir().unwrap(),
            storage: Arc::default(),
            exports: Arc::default(),
            running: None,
        };
        fs::create_dir(machine.disks()).unwrap();
        machine.start();
        machine
    }

    /// With a pool `tank` of four disks.
    fn with_tank() -> Machine {
        let machine = Machine::new();
        let mut line = vec!["pool".to_string(), "create".into(), "tank".into()];
        line.extend((1..=4).map(|n| machine.disk(&format!("d{n}"))));
        line.extend(["--create-size".into(), "1GiB".into()]);
        machine.done(&line.iter().map(String::as_str).collect::<Vec<_>>());
        machine
    }

    fn start(&mut self) {
        self.exports = Arc::default();
        let parts = Parts {
            engine: Arc::new(FakeEngine::new(self.storage.clone())),
            exports: self.exports.clone(),
            journal: Arc::new(Journal::default()),
        };
        let options = Options {
            state: self.dir.path().join("state"),
            socket: self.socket(),
            places: Some(vec![self.disks()]),
            degraded: false,
            memory: None,
            waits: Default::default(),
            hook: None,
        };
        self.running = Some(daemon::start(&options, parts).unwrap());
    }

    fn stop(&mut self) {
        self.running.take().unwrap().stop().unwrap();
    }

    fn disks(&self) -> PathBuf {
        self.dir.path().join("disks")
    }

    fn disk(&self, name: &str) -> String {
        self.disks().join(name).display().to_string()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("weft.sock")
    }

    fn weft(&self, line: &[&str]) -> Ran {
        self.weft_asking(line, None)
    }

    fn weft_asking(&self, line: &[&str], answer: Option<bool>) -> Ran {
        let argv: Vec<OsString> = ["weft"].iter().chain(line).map(OsString::from).collect();
        let socket = self.socket().into_os_string();
        let var = |name: &str| (name == "WEFT_SOCKET").then(|| socket.clone());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut ask = |_: &str| answer == Some(true);
        let mut io = Io {
            out: &mut out,
            err: &mut err,
            ask: answer.is_some().then_some(&mut ask as &mut dyn FnMut(&str) -> bool),
            terminal: false,
            progress: false,
        };
        let exit = cli::run(&argv, &Surroundings { root: false, var: &var }, &mut io);
        Ran { exit, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
    }

    /// A command that must work; its words.
    fn done(&self, line: &[&str]) -> String {
        let ran = self.weft(line);
        assert_eq!((ran.exit, ran.err.as_str()), (Exit::Done, ""), "{line:?}");
        ran.out
    }

    /// A command that must work; its value.
    fn json(&self, line: &[&str]) -> Value {
        let text = self.done(&[line, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line:?}: {error}: {text}"))
    }

    /// A command that must fail in the error form; the command it offers.
    fn refused(&self, line: &[&str], exit: Exit) -> String {
        let ran = self.weft(line);
        assert_eq!(ran.exit, exit, "{line:?}: {}{}", ran.out, ran.err);
        assert_eq!(ran.out, "", "{line:?}");
        let lines: Vec<&str> = ran.err.lines().collect();
        assert_eq!(lines.len(), 2, "{line:?}: {}", ran.err);
        assert!(lines[0].starts_with("weft: "), "{}", lines[0]);
        lines[1].strip_prefix("try: ").unwrap_or_else(|| panic!("{line:?}: {}", ran.err)).to_string()
    }
}

#[test]
fn a_pool_and_a_virtual_disk_come_and_go() {
    let machine = Machine::with_tank();
    let created = machine.done(&["vdisk", "create", "tank/media", "--size", "2GiB"]);
    assert!(created.contains("vdisk tank/media created"), "{created}");
    assert!(created.contains("single parity, 4 columns, 64KiB interleave"), "{created}");
    assert_eq!(machine.json(&["vdisk", "show", "tank/media"])["size"], 2u64 << 30);
    assert_eq!(machine.json(&["vdisk", "list"]).as_array().unwrap().len(), 1);
    assert_eq!(machine.json(&["pool", "show", "tank"])["disks"].as_array().unwrap().len(), 4);
    assert!(machine.done(&["pool", "list"]).contains("healthy"));

    machine.done(&["vdisk", "resize", "tank/media", "3GiB"]);
    assert_eq!(machine.json(&["vdisk", "resize", "tank/media", "3GiB"])["outcome"], "already-so");
    machine.done(&["vdisk", "resize", "tank/media", "max"]);
    assert_eq!(machine.json(&["vdisk", "show", "tank/media"])["size"], 4u64 << 30);
    machine.refused(&["vdisk", "resize", "tank/media", "50%"], Exit::NoSpace);
    machine.done(&["vdisk", "remove", "tank/media", "--yes"]);
    machine.refused(&["vdisk", "show", "tank/media"], Exit::NotFound);
    machine.done(&["pool", "remove", "tank", "--yes"]);
    assert_eq!(machine.json(&["pool", "list"]), Value::Array(Vec::new()));
    assert!(machine.json(&["disk", "list"]).as_array().unwrap().iter().all(|disk| disk["state"] == "available"));
}

#[test]
fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let machine = Machine::new();
    let disk = machine.disk("d1");
    let would = machine.done(&["pool", "create", "tank", &disk, "--create-size", "1GiB", "--dry-run"]);
    assert!(would.contains("pool tank would be created"), "{would}");
    assert!(!Path::new(&disk).exists());
    assert_eq!(machine.done(&["pool", "list"]), "no pools\n");

    let machine = Machine::with_tank();
    let would = machine.json(&["vdisk", "create", "tank/media", "--size", "90%", "--dry-run"]);
    assert_eq!((&would["dry_run"], &would["outcome"]), (&Value::Bool(true), &"created".into()));
    assert_eq!(machine.done(&["vdisk", "list"]), "no virtual disks\n");
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    machine.done(&["export", "add", "tank/media", "--nbd", "tcp:localhost:10809", "--dry-run"]);
    assert_eq!(machine.done(&["export", "list"]), "no exports\n");
    machine.done(&["vdisk", "resize", "tank/media", "2GiB", "--dry-run"]);
    machine.done(&["vdisk", "remove", "tank/media", "--dry-run"]);
    machine.done(&["pool", "remove", "tank", "--dry-run"]);
    assert_eq!(machine.json(&["vdisk", "show", "tank/media"])["size"], 1u64 << 30);
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
    let machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    assert_eq!(machine.json(&["vdisk", "clear", "tank/media", "--yes"])["outcome"], "already-so");
    machine.storage.lose_a_write("tank/media");
    let hint = &machine.json(&["status"])["attention"][0]["hint"];
    assert_eq!(hint, "weft vdisk clear tank/media");
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
    let at = format!("unix:{}", machine.dir.path().join("nbd.sock").display());
    let add = ["export", "add", "tank/media", "--nbd", &at];
    assert_eq!(machine.json(&add)["outcome"], "created");
    assert_eq!(machine.json(&add)["outcome"], "already-so");
    assert_eq!(machine.exports.offered.lock().unwrap().len(), 1);
    assert_eq!(
        machine.refused(&["vdisk", "remove", "tank/media", "--yes"], Exit::NotPossible),
        "weft export remove tank/media"
    );
    assert_eq!(
        machine.refused(&["pool", "remove", "tank", "--yes"], Exit::NotPossible),
        "weft export remove tank/media"
    );

    machine.stop();
    assert!(!machine.socket().exists());
    assert!(machine.exports.offered.lock().unwrap().is_empty(), "stopping ends the exports");
    fs::rename(machine.disk("d1"), machine.disk("x")).unwrap();
    fs::rename(machine.disk("d2"), machine.disk("d1")).unwrap();
    machine.start();
    let export = &machine.json(&["export", "list"])[0];
    assert_eq!((&export["active"], export["nbd"].as_str()), (&Value::Bool(true), Some(at.as_str())));
    assert_eq!(machine.exports.offered.lock().unwrap().len(), 1);
    assert_eq!(machine.json(&["status"])["health"], "healthy");

    machine.done(&["export", "remove", "tank/media", "--nbd"]);
    machine.refused(&["export", "remove", "tank/media"], Exit::NotFound);
    machine.stop();
    machine.start();
    assert_eq!(machine.done(&["export", "list"]), "no exports\n");
}

#[test]
fn a_daemon_waits_for_disks_that_a_killed_one_still_claims() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    let at = format!("unix:{}", machine.dir.path().join("nbd.sock").display());
    machine.done(&["export", "add", "tank/media", "--nbd", &at]);
    machine.stop();
    machine.storage.claimed.store(3, Ordering::Relaxed);
    machine.start();
    assert_eq!(machine.storage.claimed.load(Ordering::Relaxed), 0);
    assert_eq!(machine.json(&["status"])["health"], "healthy");
    assert_eq!(machine.exports.offered.lock().unwrap().len(), 1);
    let events = machine.done(&["events", "tank"]);
    assert!(!events.contains("not opened"), "{events}");
}

#[test]
fn a_pool_without_one_of_its_disks_opens_degraded_and_a_person_is_told() {
    let mut machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    machine.stop();
    fs::remove_file(machine.disk("d3")).unwrap();
    machine.start();
    let status = machine.json(&["status"]);
    assert_eq!(status["health"], "degraded");
    assert_eq!(status["attention"][0]["subject"], "disk tank/d3");
    let text = machine.done(&["status", "tank"]);
    let last_seen = machine.disk("d3");
    let told =
        format!("! disk tank/d3: missing, last seen as {last_seen}; all data has its full redundancy without it\n");
    assert!(text.contains(&(told + "  try: weft disk remove tank d3\n")), "{text}");
    let check = machine.weft(&["pool", "check", "tank"]);
    assert_eq!((check.exit, check.out.contains("is not sound")), (Exit::Other, true), "{}", check.out);
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
    let elsewhere = machine.dir.path().join("elsewhere").display().to_string();
    machine.done(&["pool", "create", "tank", &elsewhere, "--create-size", "1GiB"]);
    machine.stop();
    machine.start();
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
    machine.refused(&["pool", "create", "tank", &disk, "--create-size", "1MiB"], Exit::NotPossible);
    assert!(!Path::new(&disk).exists());
}

#[test]
fn wrong_commands_are_refused_with_one_that_would_work() {
    let machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    let (d1, d2) = (machine.disk("d1"), machine.disk("d9"));
    let create = |more: &[&'static str]| [&["vdisk", "create", "tank/v", "--size", "1GiB"][..], more].concat();
    let table: Vec<(Vec<&str>, Exit, &str)> = vec![
        (vec!["vdisk", "create", "tank/v", "--size", "10G"], Exit::Usage, "weft vdisk create tank/v --size 10GiB"),
        (vec!["vdisk", "create", "tank/v", "--size=10G"], Exit::Usage, "weft vdisk create tank/v --size=10GiB"),
        (vec!["vdisk", "create", "tank/v"], Exit::Usage, "weft vdisk create --help"),
        (vec!["vdisk", "create", "v", "--size", "1GiB"], Exit::Usage, "weft vdisk create v/media --size 1GiB"),
        (create(&["--interleave", "5KiB"]), Exit::Usage, "weft vdisk create tank/v --size 1GiB --interleave 8KiB"),
        (create(&["--columns", "33"]), Exit::Usage, "weft vdisk create tank/v --size 1GiB --columns 32"),
        (create(&["--columns", "300"]), Exit::Usage, "weft vdisk create tank/v --size 1GiB --columns 32"),
        (create(&["--copies", "4"]), Exit::Usage, "weft vdisk create tank/v --size 1GiB --copies 3"),
        (create(&["--failures", "3"]), Exit::Usage, "weft vdisk create tank/v --size 1GiB --failures 2"),
        (create(&["--sector", "1024"]), Exit::Usage, "weft vdisk create tank/v --size 1GiB --sector 512"),
        (create(&["--resiliency", "raid5"]), Exit::Usage, "weft vdisk create tank/v --size 1GiB --resiliency simple"),
        (create(&["--resilency", "parity"]), Exit::Usage, "weft vdisk create tank/v --size 1GiB --resiliency parity"),
        (create(&["--thin", "--fixed"]), Exit::Usage, "weft vdisk create tank/v --size 1GiB --fixed"),
        (
            create(&["--resiliency", "parity", "--columns", "2"]),
            Exit::Usage,
            "weft vdisk create tank/v --size 1GiB --resiliency parity --failures 1 --columns 3",
        ),
        (
            create(&["--resiliency", "parity", "--columns", "5"]),
            Exit::NotPossible,
            "weft vdisk create tank/v --size 1GiB --resiliency parity --failures 1 --columns 4",
        ),
        (create(&["--write-cache", "1GiB"]), Exit::NotPossible, "weft vdisk create tank/v --size 1GiB"),
        (create(&["--disks", "d1,d7"]), Exit::NotFound, "weft disk list --pool tank"),
        (
            create(&["--disks", "d1,d2", "--resiliency", "parity"]),
            Exit::NotPossible,
            "weft vdisk create tank/v --size 1GiB --resiliency mirror --copies 2",
        ),
        (
            vec!["vdisk", "create", "tank/media", "--size", "1GiB"],
            Exit::NotPossible,
            "weft vdisk create tank/media2 --size 1GiB",
        ),
        (
            vec!["vdisk", "create", "tank/v", "--size", "9TiB", "--fixed"],
            Exit::NoSpace,
            "weft vdisk create tank/v --size max --fixed",
        ),
        (vec!["vdisk", "create", "pond/v", "--size", "1GiB"], Exit::NotFound, "weft pool show tank"),
        (vec!["vdisk", "resize", "tank/media", "1MiB"], Exit::NotPossible, "weft vdisk create tank/media2 --size 1MiB"),
        (vec!["vdisk", "resize", "tank/media", "1000000001"], Exit::Usage, "weft vdisk resize tank/media 976563KiB"),
        (vec!["vdisk", "show", "tank/x"], Exit::NotFound, "weft vdisk show tank/media"),
        (vec!["vdisk", "remove", "tank/x", "--yes"], Exit::NotFound, "weft vdisk show tank/media"),
        (vec!["pool", "create", "tank", &d2], Exit::NotPossible, "weft pool create tank2"),
        (vec!["pool", "create", "pond", &d2], Exit::NotFound, "--create-size 10GiB"),
        (vec!["pool", "create", "pond", &d1, &d1], Exit::Usage, "weft pool create pond"),
        (vec!["pool", "create", "pond", &d1], Exit::NotPossible, "weft pool show tank"),
        (vec!["pool", "create", "pond", &d2, "--slab-size", "3GiB"], Exit::Usage, "--slab-size 1GiB"),
        (vec!["pool", "create", "p/q", &d2], Exit::Usage, "weft pool create p-q"),
        (vec!["pool", "create", "pond"], Exit::Usage, "weft pool create --help"),
        (vec!["pool", "show", "pond"], Exit::NotFound, "weft pool show tank"),
        (vec!["pool", "lst"], Exit::Usage, "weft pool list"),
        (vec!["pool"], Exit::Usage, "weft pool --help"),
        (vec!["quux"], Exit::Usage, "weft --help"),
        (vec![], Exit::Usage, "weft --help"),
        (vec!["frobnicate"], Exit::Usage, "weft --help"),
        (vec!["check", "tank"], Exit::Usage, "weft pool check tank"),
        (vec!["vdisk", "resize", "tank/media", "--size", "3GiB"], Exit::Usage, "weft vdisk resize tank/media 3GiB"),
        (vec!["vdisk", "resize", "tank/media", "--size=3GiB"], Exit::Usage, "weft vdisk resize tank/media 3GiB"),
        (vec!["vdisk", "resize", "tank/media"], Exit::Usage, "weft vdisk resize --help"),
        (vec!["pool", "list", "--state", "x"], Exit::Usage, "weft pool list"),
        (vec!["disk", "show", "nowhere"], Exit::NotFound, "weft disk list"),
        (
            vec!["export", "add", "tank/media", "--nbd", "tcp:host"],
            Exit::Usage,
            "weft export add tank/media --nbd tcp:host:10809",
        ),
        (vec!["export", "add", "tank/media"], Exit::Usage, "weft export add tank/media --nbd unix:/run/weft/nbd.sock"),
        (vec!["export", "add", "tank/x", "--nbd", "tcp:host:1"], Exit::NotFound, "weft vdisk show tank/media"),
        (vec!["export", "remove", "tank/media"], Exit::NotFound, "weft export list"),
        (vec!["explain", "tank/media", "read", "2GiB", "4KiB"], Exit::Usage, "weft explain tank/media read 0 65536"),
        (vec!["explain", "tank/media", "erase", "0", "4KiB"], Exit::Usage, "weft explain tank/media read 0 4KiB"),
        (vec!["stat", "tank/x"], Exit::NotFound, "weft vdisk show tank/media"),
        (vec!["stat", "--interval", "soon"], Exit::Usage, "weft stat --interval 1s"),
        (vec!["events", "pond"], Exit::NotFound, "weft pool show tank"),
        (vec!["status", "--color", "purple"], Exit::Usage, "weft status --color auto"),
        (vec!["man", "vdisk", "frob"], Exit::NotFound, "weft man vdisk"),
        (vec!["completions", "tcsh"], Exit::Usage, "weft completions zsh"),
    ];
    let before = machine.json(&["pool", "list"]);
    for (line, exit, offered) in table {
        let hint = machine.refused(&line, exit);
        assert!(hint.contains(offered), "{line:?}: {hint}");
    }
    assert_eq!(machine.json(&["pool", "list"]), before, "what is refused changes nothing");
    assert!(!Path::new(&d2).exists());
}

#[test]
fn interleave_need_not_be_a_power_of_two() {
    let machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/v", "--size", "1GiB", "--interleave", "24KiB"]);
    assert_eq!(machine.json(&["vdisk", "show", "tank/v"])["layout"]["interleave"], 24 << 10);
}

#[test]
fn a_second_daemon_is_refused_on_the_socket_and_on_the_state() {
    let machine = Machine::new();
    let parts = || Parts {
        engine: Arc::new(FakeEngine::new(Arc::default())),
        exports: Arc::new(FakeExports::default()),
        journal: Arc::new(Journal::default()),
    };
    let refused = |state: &str, socket: &str| {
        let at = |name: &str| machine.dir.path().join(name);
        let options = Options {
            state: at(state),
            socket: at(socket),
            places: Some(Vec::new()),
            degraded: false,
            memory: None,
            waits: Default::default(),
            hook: None,
        };
        daemon::start(&options, parts()).err().map(|error| error.message).unwrap_or_default()
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
    let machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    let rates = machine.json(&["stat", "tank/media"]);
    assert_eq!(rates["rows"][1]["name"], "tank/media");
    assert_eq!(rates["rows"][1]["whole_stripe_percent"], 75.0);
    assert!(machine.done(&["stat"]).contains("75.0 %"));
    let memory = machine.json(&["stat", "--memory"]);
    assert_eq!(memory["pools"][0]["budgets"][0]["keeping"], "enforced");
    let shown = machine.done(&["stat", "--memory"]);
    assert!(shown.contains("not enforced, only counted") && shown.contains("(all)"), "{shown}");
    assert_eq!((&memory["all"][0]["limit"], &memory["all"][0]["used"]), (&json!(1 << 20), &json!(4096)));
    let spans = machine.done(&["stat", "--interval", "1ms", "--count", "2", "--json"]);
    let spans: Vec<Value> = spans.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(spans.len(), 2);
    let events = machine.done(&["events", "tank", "--json"]);
    let texts: Vec<String> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["text"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(texts, ["pool tank created", "vdisk tank/media created"]);
    assert_eq!(machine.done(&["events", "--follow", "--count", "1"]).lines().count(), 1);
    let plan = machine.done(&["explain", "tank/media", "write", "64KiB", "4KiB"]);
    assert!(plan.contains("write 4096 bytes of tank/media"), "{plan}");
}

#[test]
fn every_command_prints_the_same_value_as_json() {
    let machine = Machine::with_tank();
    machine.done(&["vdisk", "create", "tank/media", "--size", "1GiB"]);
    let lines: [&[&str]; 12] = [
        &["version"],
        &["status"],
        &["stat"],
        &["pool", "list"],
        &["pool", "show", "tank"],
        &["pool", "check", "tank"],
        &["disk", "list"],
        &["disk", "show", "tank/d1"],
        &["vdisk", "list", "tank"],
        &["vdisk", "show", "tank/media"],
        &["export", "list"],
        &["explain", "tank/media", "read", "0", "4KiB"],
    ];
    for line in lines {
        machine.json(line);
        let text = machine.done(line);
        assert!(text.ends_with('\n') && !text.contains('\u{1b}'), "{line:?}: {text}");
        assert!(text.lines().all(|line| line.trim_end() == line), "{line:?}: {text:?}");
    }
    assert!(machine.done(&["pool", "list", "--color", "always"]).contains('\u{1b}'));
    assert_eq!(machine.done(&["vdisk", "resize", "tank/media", "2GiB", "--quiet"]), "");
}

#[test]
fn the_socket_answers_anything_in_the_error_form_and_describes_itself() {
    let machine = Machine::with_tank();
    let client = Client::new(machine.socket());
    let document: Value = serde_json::from_str(&client.get_text("/openapi.json").unwrap()).unwrap();
    assert!(document["paths"]["/v1/pools/{pool}/check"]["post"].is_object());
    for path in [
        "/",
        "/v2/pools",
        "/v1/nothing",
        "/v1/events?after=x",
        "/v1/status?pol=tank",
        "/v1/pools/a%2Fb",
        "/v1/disks/%ff",
    ] {
        let answer: Value =
            serde_json::from_str(&client.get_text(path).unwrap()).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(answer["kind"].is_string() && answer["message"].is_string(), "{path}: {answer}");
    }
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
            let words: Vec<&str> = line.split_whitespace().collect();
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
