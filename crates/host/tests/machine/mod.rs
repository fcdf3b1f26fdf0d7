//! The real binary on small disk files: a daemon, and commands typed at it. Nothing depends on how long anything takes:
//! what must happen is waited for.
#![allow(dead_code, reason = "each test binary uses its part")]

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Far more than anything here takes; when it is over the story has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A machine with a directory of disks, and perhaps a daemon.
pub struct Machine {
    dir: TempDir,
    daemon: Option<Child>,
}

impl Machine {
    /// With a daemon, and a pool `p` of four disks that holds `p/v`: 96 MiB, single parity on four columns.
    pub fn with_vdisk() -> Machine {
        let mut machine = Machine { dir: tempfile::tempdir().unwrap(), daemon: None };
        fs::create_dir(machine.path("disks")).unwrap();
        machine.serve();
        let disks: Vec<String> = (0..4).map(|n| machine.disk(n).display().to_string()).collect();
        let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
        let create = [&["pool", "create", "p"], disks.as_slice(), &["--create-size", "64MiB", "--slab-size", "1MiB"]];
        machine.done(&create.concat());
        let sizes = ["--size", "96MiB", "--interleave", "16KiB"];
        machine.done(&[&["vdisk", "create", "p/v", "--resiliency", "parity", "--columns", "4"], &sizes[..]].concat());
        machine
    }

    /// Starts the daemon; returns when it is ready.
    pub fn serve(&mut self) {
        let mut serve = self.weft();
        serve.args(["serve", "--state"]).arg(self.path("state")).arg("--disks").arg(self.path("disks"));
        let mut daemon = serve.stderr(Stdio::piped()).spawn().unwrap();
        let mut told = Vec::new();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
        // Without a daemon the line never comes, but the end does.
        while told.last().is_none_or(|line| line != "weft: ready") {
            told.push(lines.next().unwrap_or_else(|| panic!("the daemon ended: {told:?}")).unwrap());
        }
        // A full pipe must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        self.daemon = Some(daemon);
    }

    /// Kills the daemon like a crash does.
    pub fn crash(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Ends the daemon if there is one.
    pub fn end(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    /// Asks the daemon to stop, as a service manager does.
    pub fn stop(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        let pid = rustix::process::Pid::from_child(&daemon);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(daemon.wait().unwrap().success());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn disk(&self, n: usize) -> PathBuf {
        self.path("disks").join(format!("d{n}"))
    }

    pub fn weft(&self) -> Command {
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        weft.env("WEFT_SOCKET", self.path("weft.sock")).stdin(Stdio::null());
        weft
    }

    pub fn ran(&self, line: &[&str]) -> Output {
        self.weft().args(line).output().unwrap()
    }

    /// A command that must work; its words.
    pub fn done(&self, line: &[&str]) -> String {
        worked(self.ran(line), &format!("weft {line:?}"))
    }

    /// What a refused command says.
    pub fn refused(&self, line: &[&str]) -> String {
        let ran = self.ran(line);
        assert!(!ran.status.success(), "weft {line:?}");
        String::from_utf8(ran.stderr).unwrap()
    }

    /// A command that must work; its value.
    pub fn json(&self, line: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[line, &["--json"]].concat())).unwrap()
    }

    /// Waits until the value of a command is as it must become.
    pub fn until(&self, line: &[&str], holds: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        loop {
            let value = self.json(line);
            if holds(&value) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{line:?} is still {value:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a program said that must have worked.
pub fn worked(ran: Output, what: &str) -> String {
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{what}: {}\n{out}{err}", ran.status);
    out.into_owned()
}
