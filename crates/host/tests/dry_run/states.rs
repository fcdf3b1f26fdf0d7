//! The states in which everything is asked, each the way to it.

use super::Ran;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weft_engine::store::Tuning;
use weft_host::api::job::{JobInfo, JobState};
use weft_host::cli::{self, Io};
use weft_host::daemon::config::{Options, Surroundings};
use weft_host::daemon::{self, Running};
use weft_host::ops::Perform;
use weft_host::ops::pool::PoolList;
use weft_host::wire::client::Client;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

const FOUR: &str = "pool create p $D/d1 $D/d2 $D/d3 $D/d4 --create-size 64MiB --slab-size 1MiB";
const PARITY: &str = "vdisk create p/v --size 16MiB --resiliency parity --columns 3 --interleave 16KiB";
const FIXED: &str = "vdisk create p/f --size 12MiB --resiliency mirror --copies 2 --columns 1 --fixed";

/// Name, and the steps: commands, and what begins with `!` (see [`Machine::step`]).
pub const STATES: &[(&str, &[&str])] = &[
    ("nothing there", &[]),
    ("one disk", &["pool create p $D/d1 --create-size 64MiB --slab-size 1MiB"]),
    ("an empty pool", &[FOUR]),
    ("virtual disks", &[FOUR, PARITY, FIXED, "!write p/v 4194304"]),
    (
        "a virtual disk of fine stripes",
        &[FOUR, "vdisk create p/s --size 4608 --resiliency simple --columns 1 --interleave 4KiB"],
    ),
    ("an offered virtual disk", &[FOUR, PARITY, FIXED, "export add p/v --nbd unix:$O/s"]),
    ("for reading only", &[FOUR, PARITY, FIXED, "pool export p", "pool import p --read-only"]),
    (
        "for reading only, with a job that was paused",
        &[FOUR, PARITY, FIXED, "!write p/v 8388608", "!pause", "pool export p", "pool import p --read-only"],
    ),
    ("a paused job", &[FOUR, PARITY, FIXED, "!write p/v 8388608", "!pause"]),
    ("a disk missing", &[FOUR, PARITY, FIXED, "!write p/v 4194304", "!stop", "!hide d4", "!start"]),
    ("a disk in maintenance", &[FOUR, PARITY, FIXED, "disk set p d4 maintenance=on"]),
    (
        "three disks that all is on",
        &["pool create p $D/d1 $D/d2 $D/d3 --create-size 64MiB --slab-size 1MiB", PARITY, "!write p/v 8388608"],
    ),
    (
        "disks of all uses",
        &[
            FOUR,
            "disk add p $D/d5 --create-size 64MiB --usage spare",
            "disk set p d1 usage=manual",
            FIXED,
            "vdisk create p/n --size 4MiB --resiliency simple --columns 1 --disks d1 --fixed",
            "disk set p d4 usage=retired",
        ],
    ),
    ("full", &[FOUR, "vdisk create p/f --size 92% --resiliency mirror --columns 2 --fixed"]),
    ("nearly full", &[FOUR, FIXED, "vdisk create p/v --size 90% --resiliency simple --columns 1 --fixed"]),
    (
        "unequal disks",
        &[
            "pool create p $D/d1 $D/d2 $D/d3 --create-size 64MiB --slab-size 4MiB",
            "disk add p $D/d4 --create-size 512MiB",
            FIXED,
            PARITY,
        ],
    ),
    ("a closed pool", &[FOUR, PARITY, FIXED, "pool export p"]),
    ("a closed pool of which a disk is away", &[FOUR, PARITY, "pool export p", "!hide d4"]),
    (
        "a closed pool of which too many disks are away",
        &[FOUR, PARITY, "pool export p", "!hide d2", "!hide d3", "!hide d4"],
    ),
    ("a pool that is waited for", &[FOUR, PARITY, "!stop", "!hide d2", "!hide d3", "!hide d4", "!start"]),
    ("a disk that is there twice", &[FOUR, PARITY, "pool export p", "!copy d1 d9"]),
    (
        "a closed pool whose name is taken",
        &[FOUR, "pool export p", "pool create p $O/x --create-size 64MiB --slab-size 1MiB"],
    ),
    ("a closed pool that is damaged", &[FOUR, PARITY, "pool export p", "!damage"]),
    ("things in the way", &[FOUR, PARITY, "!foreign d5", "!empty d6 65536", "!empty d7 67108864"]),
];

/// A machine with a directory of disks, one of other files, and a daemon on its real engine.
pub struct Machine {
    dir: TempDir,
    running: Mutex<Option<Running>>,
}

impl Machine {
    /// One that is in the state which `steps` lead to.
    pub fn after(steps: &[&str]) -> Machine {
        let machine = Machine { dir: scratch(), running: Mutex::default() };
        ["disks", "other", "away"].iter().for_each(|dir| fs::create_dir(machine.path(dir)).unwrap());
        machine.start();
        steps.iter().for_each(|step| machine.step(step));
        machine
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.path("disks").join(name)
    }

    fn start(&self) {
        let options = Options {
            state: self.path("state"),
            socket: self.path("weft.sock"),
            places: Some(vec![self.path("disks")]),
            degraded: false,
            memory: None,
            waits: Default::default(),
            hook: None,
        };
        let parts = daemon::parts(Tuning::default()).unwrap();
        *self.running.lock().unwrap() = Some(daemon::start(&options, parts).unwrap());
    }

    fn stop(&self) {
        if let Some(running) = self.running.lock().unwrap().take() {
            running.stop().unwrap();
        }
    }

    /// Takes one step: a command that must work, or something that happens to the disks.
    fn step(&self, step: &str) {
        match step.split(' ').collect::<Vec<_>>()[..] {
            ["!stop"] => self.stop(),
            ["!start"] => self.start(),
            ["!hide", disk] => fs::rename(self.disk(disk), self.path("away").join(disk)).unwrap(),
            ["!copy", from, to] => drop(fs::copy(self.disk(from), self.disk(to)).unwrap()),
            ["!empty", disk, len] => File::create(self.disk(disk)).unwrap().set_len(len.parse().unwrap()).unwrap(),
            ["!foreign", disk] => {
                fs::write(self.disk(disk), b"XFSB").unwrap();
                File::options().write(true).open(self.disk(disk)).unwrap().set_len(64 << 20).unwrap();
            }
            // The configuration, on every disk.
            ["!damage"] => {
                for disk in ["d1", "d2", "d3", "d4"] {
                    let file = File::options().write(true).open(self.disk(disk)).unwrap();
                    std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 2 << 20], 64 << 10).unwrap();
                }
            }
            // One may have ended before it is paused.
            ["!pause"] => loop {
                let started: Value = serde_json::from_str(&self.done("scrub p --json")).unwrap();
                let job = started["job"].as_str().unwrap().to_string();
                self.weft(&format!("job pause {job}"));
                let job: Value = serde_json::from_str(&self.done(&format!("job show {job} --json"))).unwrap();
                if job["state"] == "paused" {
                    break;
                }
            },
            ["!write", vdisk, len] => self.write(vdisk, len.parse().unwrap()),
            _ => drop(self.done(step)),
        }
    }

    /// Runs a command.
    pub fn weft(&self, line: &str) -> Ran {
        let [disks, other] = ["disks", "other"].map(|dir| self.path(dir).display().to_string());
        let line = line.replace("$D", &disks).replace("$O", &other);
        let argv: Vec<OsString> = std::iter::once("weft").chain(line.split(' ')).map(OsString::from).collect();
        let socket = self.path("weft.sock").into_os_string();
        let var = |name: &str| (name == "WEFT_SOCKET").then(|| socket.clone());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut io = Io { out: &mut out, err: &mut err, ask: None, terminal: false, progress: false };
        let exit = cli::run(&argv, &Surroundings { root: false, var: &var }, &mut io);
        Ran { exit, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
    }

    /// A command that must work; its words.
    pub fn done(&self, line: &str) -> String {
        let ran = self.weft(line);
        assert_eq!((ran.exit as u8, ran.err.as_str()), (0, ""), "{line}");
        ran.out
    }

    /// The open pools, when no job goes on by itself any more that changes what is asked about.
    pub fn settled(&self) -> Value {
        let (client, begun) = (Client::new(self.path("weft.sock")), Instant::now());
        loop {
            let pools = client.perform(&PoolList {}).unwrap();
            let writable = pools.iter().filter(|pool| !pool.read_only);
            let goes_on = |job: &JobInfo| matches!(job.state, JobState::Waiting | JobState::Running);
            if !writable.flat_map(|pool| &pool.jobs).any(goes_on) {
                return serde_json::to_value(pools).unwrap();
            }
            assert!(begun.elapsed() < PATIENCE, "jobs go on for ever: {pools:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes the first bytes of a virtual disk, as an NBD client does, and flushes them.
    fn write(&self, vdisk: &str, len: u32) {
        let socket = self.path("other").join("w");
        self.done(&format!("export add {vdisk} --nbd unix:{}", socket.display()));
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend([b"IHAVEOPT".as_slice(), &1u32.to_be_bytes(), &(vdisk.len() as u32).to_be_bytes()].concat());
        hello.extend(vdisk.as_bytes());
        stream.write_all(&hello).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        for (command, len) in [(1u16, len), (3, 0)] {
            let head =
                [&0x2560_9513u32.to_be_bytes()[..], &[0; 2], &command.to_be_bytes(), &[0; 16], &len.to_be_bytes()];
            stream.write_all(&head.concat()).unwrap();
            stream.write_all(&(0..len * u32::from(command == 1)).map(|n| n as u8 | 1).collect::<Vec<u8>>()).unwrap();
            let mut answer = [0; 16];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer[4..8], [0; 4], "the answer to command {command}");
        }
        drop(stream);
        self.done(&format!("export remove {vdisk}"));
    }
}

/// In memory where there is such a file system: nothing here is about disks that are slow.
fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(running) = self.running.lock().unwrap().take() {
            let _ = running.stop();
        }
    }
}
