//! `weft disk measure` and what `weft plan` does with it: no daemon, disks are files.

use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use weft_host::cli::exit::Exit;
use weft_host::cli::{self, Io};
use weft_host::daemon::config::Surroundings;

/// Runs a command of somebody whose home is `home`.
fn weft(home: &Path, line: &[&str]) -> (Exit, String, String) {
    let argv: Vec<OsString> = ["weft"].iter().chain(line).map(OsString::from).collect();
    let home = home.as_os_str().to_os_string();
    let var = |name: &str| (name == "HOME").then(|| home.clone());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut io = Io { out: &mut out, err: &mut err, ask: None, terminal: false, progress: false };
    let exit = cli::run(&argv, &Surroundings { root: false, var: &var }, &mut io);
    (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn disk(home: &Path, name: &str) -> String {
    let path = home.join(name);
    File::create(&path).unwrap().set_len(128 << 20).unwrap();
    path.display().to_string()
}

#[test]
fn what_was_measured_is_a_class_to_plan_with() {
    let home = tempfile::tempdir().unwrap();
    let path = disk(home.path(), "d1");
    let (exit, out, err) = weft(home.path(), &["disk", "measure", &path, "--time", "100ms", "--json"]);
    assert_eq!((exit, err.as_str()), (Exit::Done, ""));
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&told["name"], &told["figures"]["size"]), (&"d1".into(), &(128u64 << 20).into()));
    assert_eq!(told["figures"]["streams"].as_array().unwrap().len(), 7);
    assert!(told["doubts"][0].as_str().unwrap().contains("holes"));
    let kept = home.path().join(".local/state/weft/classes/d1.json");
    assert_eq!(told["kept"], kept.display().to_string());
    let (exit, out, err) = weft(home.path(), &["plan", "--disks", "4x4TB:d1"]);
    assert_eq!(exit, Exit::Done, "{err}");
    assert!(out.contains("4 x 4 TB d1") && out.contains("`d1` was measured by reading"), "{out}");
}

#[test]
fn a_class_that_nobody_measured_is_refused_with_what_there_is() {
    let home = tempfile::tempdir().unwrap();
    let (exit, _, err) = weft(home.path(), &["plan", "--disks", "4x4TB:tape"]);
    assert_eq!(exit, Exit::Usage);
    assert!(err.contains("`tape` is no class of disks") && err.contains("no disk was measured"), "{err}");
    assert!(err.contains("try: weft disk measure DISK --name tape"), "{err}");
}

#[test]
fn names_that_are_classes_and_spans_that_are_none_are_refused_before_anything_is_read() {
    let home = tempfile::tempdir().unwrap();
    let path = disk(home.path(), "ssd");
    for line in [
        &["disk", "measure", &path][..],
        &["disk", "measure", &path, "--name", "hdd"],
        &["disk", "measure", &path, "--name", "a", "--time", "2h"],
        &["disk", "measure", &path, "--name", "../a"],
    ] {
        let (exit, _, err) = weft(home.path(), line);
        assert_eq!(exit, Exit::Usage, "{line:?}: {err}");
    }
    let (exit, _, err) = weft(home.path(), &["disk", "measure", "/no/such/disk"]);
    assert_eq!(exit, Exit::NotFound, "{err}");
}

#[test]
fn a_picture_of_a_plan_is_the_same_each_time() {
    let home = tempfile::tempdir().unwrap();
    let picture = |name: &str| {
        let path = home.path().join(name).display().to_string();
        let (exit, _, err) = weft(home.path(), &["plan", "--disks", "6x4TB", "--svg", &path]);
        assert_eq!(exit, Exit::Done, "{err}");
        std::fs::read(path).unwrap()
    };
    let first = picture("a.svg");
    assert!(first.starts_with(b"<svg") && first == picture("b.svg"));
}

#[test]
fn a_workload_that_writes_destroys_nothing_unless_that_is_said() {
    let home = tempfile::tempdir().unwrap();
    let path = disk(home.path(), "d1");
    let job = home.path().join("job.fio");
    std::fs::write(&job, "[fill]\nrw=write\nbs=64k\nsize=1m\n[back]\nstonewall\nrw=read\nbs=64k\nsize=1m\n").unwrap();
    let job = job.display().to_string();
    let line = ["lab", "run", "--on", &path, "--workload", &job];
    let (exit, _, err) = weft(home.path(), &line);
    assert_eq!(exit, Exit::Usage);
    assert!(err.contains("would be lost") && err.contains("--yes"), "{err}");
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    let (exit, out, err) = weft(home.path(), &[&line[..], &["--yes", "--json"]].concat());
    assert_eq!(exit, Exit::Done, "{err}");
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&told[0]["requests"], &told[1]["bytes"]), (&16.into(), &(1 << 20).into()));
    assert!(std::fs::read(&path).unwrap()[..1 << 20].iter().any(|byte| *byte != 0));
    std::fs::write(home.path().join("job.fio"), "[a]\nrw=read\nbs=none").unwrap();
    let (exit, _, err) = weft(home.path(), &line);
    assert_eq!(exit, Exit::Usage);
    assert!(err.contains("line 3: `bs=none` has no size"), "{err}");
}

#[test]
fn workloads_have_names_wherever_a_line_of_diskspd_goes() {
    let home = tempfile::tempdir().unwrap();
    let path = disk(home.path(), "d1");
    let on = |workload: &str, more: &[&str]| {
        weft(home.path(), &[&["lab", "run", "--json", "--on", &path, "--workload", workload], more].concat())
    };
    let (exit, out, err) = on("robocopy", &["--yes"]);
    assert_eq!(exit, Exit::Done, "{err}");
    let told: Value = serde_json::from_str(&out).unwrap();
    // The whole of a small disk is filled with files, each with a record of its own.
    assert_eq!(told[0]["job"], "robocopy");
    assert!(told[0]["bytes"].as_u64().unwrap() > (100 << 20), "{told}");
    let (exit, _, err) = on("camera", &[]);
    assert!(exit == Exit::Usage && err.contains("--yes"), "{err}");
    let (_, _, err) = on("robocpy", &[]);
    assert!(err.contains("`robocpy` is none of iometer-32k-65-65, passmark-file-server, robocopy, camera"), "{err}");
    let (_, out, _) = weft(home.path(), &["lab", "list"]);
    assert!(out.contains("passmark-file-server") && out.contains("63 of 68 claims"), "{out}");
}
