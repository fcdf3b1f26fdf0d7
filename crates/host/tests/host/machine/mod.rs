//! A machine for tests: directories, small disk files in them, a daemon with its real engine, and commands typed at it.
//! The daemon is a thread of the test, where commands cost next to nothing, or the real binary, which can be killed.
//! Nothing depends on how long anything takes: what must happen is waited for.

use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weft_engine::store::Tuning;
use weft_host::api::job::{JobInfo, JobState};
use weft_host::cli::exit::Exit;
use weft_host::cli::{self, Io};
use weft_host::daemon::config::{Options, Surroundings};
use weft_host::daemon::{self, Parts, Running};
use weft_host::ops::Perform;
use weft_host::ops::pool::PoolList;
use weft_host::wire::client::Client;

/// Far more than anything here takes; when it is over the story has failed.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A machine with directories `disks`, `other` and `away`, of which the daemon looks for disks in the first.
pub struct Machine {
    dir: TempDir,
    daemon: Daemon,
    /// Commands are typed at the real binary, too.
    of_processes: bool,
}

enum Daemon {
    None,
    Thread(Box<Running>),
    Process(Child),
}

/// A command and what came of it.
#[derive(Debug)]
pub struct Ran {
    pub exit: Exit,
    pub out: String,
    pub err: String,
}

impl Machine {
    fn bare(of_processes: bool) -> Machine {
        let machine = Machine { dir: scratch(of_processes), daemon: Daemon::None, of_processes };
        ["disks", "other", "away"].iter().for_each(|dir| fs::create_dir(machine.path(dir)).unwrap());
        machine
    }

    /// With a daemon that is a thread, and nothing else.
    pub fn new() -> Machine {
        let mut machine = Machine::bare(false);
        machine.start();
        machine
    }

    /// With a daemon that is a process, and a pool `p` of four disks that holds `p/v`: 96 MiB, single parity on four
    /// columns.
    pub fn with_vdisk() -> Machine {
        let mut machine = Machine::bare(true);
        machine.start();
        machine.typed("pool create p $D/d0 $D/d1 $D/d2 $D/d3 --create-size 64MiB --slab-size 1MiB");
        machine.typed("vdisk create p/v --resiliency parity --columns 4 --size 96MiB --interleave 16KiB");
        machine
    }

    /// Starts the daemon; returns when it is ready.
    pub fn start(&mut self) {
        self.daemon = match self.of_processes {
            true => self.process(),
            false => self.thread(daemon::parts(Tuning::default()).unwrap()),
        };
    }

    /// Starts the daemon, a thread with these parts; returns when it is ready.
    pub fn start_of(&mut self, parts: Parts) {
        self.daemon = self.thread(parts);
    }

    fn thread(&self, parts: Parts) -> Daemon {
        Daemon::Thread(Box::new(daemon::start(&self.options(), parts).unwrap()))
    }

    /// What the daemon is started with.
    pub fn options(&self) -> Options {
        Options {
            state: self.path("state"),
            socket: self.path("weft.sock"),
            places: Some(vec![self.path("disks")]),
            degraded: false,
            memory: None,
            fine_share: Some(0),
            waits: Default::default(),
            hook: None,
        }
    }

    fn process(&self) -> Daemon {
        let mut serve = self.binary();
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
        Daemon::Process(daemon)
    }

    /// Kills the daemon, a process, like a crash does.
    pub fn crash(&mut self) {
        match std::mem::replace(&mut self.daemon, Daemon::None) {
            Daemon::Process(mut daemon) => {
                daemon.kill().unwrap();
                daemon.wait().unwrap();
            }
            _ => panic!("only a process can crash"),
        }
    }

    /// Stops the daemon, if there is one, as a service manager does.
    pub fn stop(&mut self) {
        match std::mem::replace(&mut self.daemon, Daemon::None) {
            Daemon::None => {}
            Daemon::Thread(running) => running.stop().unwrap(),
            Daemon::Process(mut daemon) => {
                let pid = rustix::process::Pid::from_child(&daemon);
                rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
                assert!(daemon.wait().unwrap().success());
            }
        }
    }

    /// Stops the daemon, and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Ends the daemon if there is one, whatever state it is in.
    pub fn end(&mut self) {
        match std::mem::replace(&mut self.daemon, Daemon::None) {
            Daemon::None => {}
            Daemon::Thread(running) => drop(running.stop()),
            Daemon::Process(mut daemon) => {
                let _ = daemon.kill();
                let _ = daemon.wait();
            }
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where the disk `name` is.
    pub fn disk(&self, name: &str) -> String {
        self.path("disks").join(name).display().to_string()
    }

    /// Takes a disk away.
    pub fn hide(&self, disk: &str) {
        fs::rename(self.disk(disk), self.path("away").join(disk)).unwrap();
    }

    /// Brings a disk back that was taken away.
    pub fn show(&self, disk: &str) {
        fs::rename(self.path("away").join(disk), self.disk(disk)).unwrap();
    }

    fn binary(&self) -> Command {
        let mut weft = Command::new(env!("CARGO_BIN_EXE_weft"));
        weft.env("WEFT_SOCKET", self.path("weft.sock")).stdin(Stdio::null());
        weft
    }

    /// The words of a line as it is typed, where `~` is a space within a word (see [`Machine::place`]).
    pub fn words(&self, line: &str) -> Vec<String> {
        line.split_whitespace().map(|word| self.place(word).replace('~', " ")).collect()
    }

    /// What is meant by a text: `$D` in it is the directory of disks, `$O` another directory.
    pub fn place(&self, text: &str) -> String {
        let [disks, other] = ["disks", "other"].map(|dir| self.path(dir).display().to_string());
        text.replace("$D", &disks).replace("$O", &other)
    }

    pub fn weft(&self, line: &[&str]) -> Ran {
        self.weft_asking(line, None)
    }

    /// Runs a command; a person answers what it asks.
    pub fn weft_asking(&self, line: &[&str], answer: Option<bool>) -> Ran {
        if self.of_processes {
            return Ran::from(self.binary().args(line).output().unwrap());
        }
        let argv: Vec<OsString> = ["weft"].iter().chain(line).map(OsString::from).collect();
        let socket = self.path("weft.sock").into_os_string();
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
    pub fn done(&self, line: &[&str]) -> String {
        let ran = self.weft(line);
        assert_eq!((ran.exit, ran.err.as_str()), (Exit::Done, ""), "{line:?}: {}", ran.out);
        ran.out
    }

    /// A line that must work (see [`Machine::words`]); its words.
    pub fn typed(&self, line: &str) -> String {
        self.done(&self.words(line).iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A command that must work; its value.
    pub fn json(&self, line: &[&str]) -> Value {
        let text = self.done(&[line, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line:?}: {error}: {text}"))
    }

    /// A command that must fail in the error form; the command it offers.
    pub fn refused(&self, line: &[&str], exit: Exit) -> String {
        self.weft(line).offered(line, exit)
    }

    /// Waits until the value of a command is as it must become.
    pub fn until(&self, line: &[&str], holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let value = self.json(line);
            if holds(&value) {
                return value;
            }
            assert!(begun.elapsed() < TIMEOUT, "{line:?} is still {value:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What there is when nothing goes on by itself any more, without what is counted and measured.
    pub fn shown(&self) -> Value {
        let some = |of: &Value, keys: &[&str]| -> Value {
            let one = |one: &Value| -> Value { keys.iter().map(|key| (key.to_string(), one[key].clone())).collect() };
            of.as_array().unwrap().iter().map(one).collect()
        };
        let files = |dir| -> Vec<String> {
            let mut files: Vec<_> = std::fs::read_dir(self.path(dir)).unwrap().map(|file| file.unwrap()).collect();
            files.sort_by_key(|file| file.path());
            files.iter().map(|file| format!("{:?} {}", file.file_name(), file.metadata().unwrap().len())).collect()
        };
        let pools = self.settled();
        let all = |key: &str, keys: &[&str]| -> Value {
            pools.as_array().unwrap().iter().map(|pool| some(&pool[key], keys)).collect()
        };
        json!({
            "pools": some(&pools, &["id", "name", "read_only", "free", "settings", "health"]),
            "vdisks": all("vdisks", &["name", "size", "layout", "provisioning", "footprint", "health", "exports"]),
            "disks": all("disks", &["name", "no", "path", "state", "media", "usage", "domain"]),
            "jobs": all("jobs", &["job", "state"]),
            "disk files": files("disks"),
            "other files": files("other"),
        })
    }

    /// The open pools, when no job goes on by itself any more that changes what is asked about.
    fn settled(&self) -> Value {
        let (client, begun) = (Client::new(self.path("weft.sock")), Instant::now());
        loop {
            let pools = client.perform(&PoolList {}).unwrap();
            let writable = pools.iter().filter(|pool| !pool.read_only);
            let goes_on = |job: &JobInfo| matches!(job.state, JobState::Waiting | JobState::Running);
            if !writable.flat_map(|pool| &pool.jobs).any(goes_on) {
                return serde_json::to_value(pools).unwrap();
            }
            assert!(begun.elapsed() < TIMEOUT, "jobs go on for ever: {pools:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Starts a job that leaves something to do whenever it ends, and pauses it. Its name.
    pub fn paused(&self, start: &[&str]) -> String {
        self.paused_of(&[start])
    }

    /// Starts jobs by turns, each of which leaves the next one something to do, until one is paused before it ends. Its
    /// name.
    pub fn paused_of(&self, starts: &[&[&str]]) -> String {
        let begun = Instant::now();
        for start in starts.iter().cycle() {
            let job = self.json(start)["job"].as_str().unwrap().to_string();
            self.weft(&["job", "pause", &job]);
            if self.json(&["job", "show", &job])["state"] == "paused" {
                return job;
            }
            assert!(begun.elapsed() < TIMEOUT, "{start:?} always ends before it is paused");
        }
        unreachable!("there is something to start")
    }

    /// Writes the first bytes of a virtual disk, as an NBD client does, and flushes them.
    pub fn write(&self, vdisk: &str, len: u32) {
        let socket = self.path("other").join("w");
        self.typed(&format!("export add {vdisk} --nbd unix:$O/w"));
        Nbd::to(&socket, vdisk).write(len).flush();
        self.done(&["export", "remove", vdisk]);
    }
}

impl Ran {
    /// What was offered by a command that failed as it must: two lines, of which the second is a command.
    pub fn offered(&self, line: &[&str], exit: Exit) -> String {
        assert_eq!(self.exit, exit, "{line:?}: {}{}", self.out, self.err);
        assert_eq!(self.out, "", "{line:?}");
        let lines: Vec<&str> = self.err.lines().collect();
        assert_eq!(lines.len(), 2, "{line:?}: {}", self.err);
        assert!(lines[0].starts_with("weft: "), "{}", lines[0]);
        lines[1].strip_prefix("try: ").unwrap_or_else(|| panic!("{line:?}: {}", self.err)).to_string()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        use Exit::{Done, Lost, NoSpace, NotFound, NotPossible, Other, Unreachable, Usage};
        let exits = [Done, Other, Usage, NotPossible, NotFound, NoSpace, Lost, Unreachable];
        let words = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ran {
            exit: exits[output.status.code().expect("it ended by itself") as usize],
            out: words(&output.stdout),
            err: words(&output.stderr),
        }
    }
}

/// A client on an NBD socket.
pub struct Nbd(UnixStream);

impl Nbd {
    pub fn to(socket: &std::path::Path, vdisk: &str) -> Nbd {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend([b"IHAVEOPT".as_slice(), &1u32.to_be_bytes(), &(vdisk.len() as u32).to_be_bytes()].concat());
        hello.extend(vdisk.as_bytes());
        stream.write_all(&hello).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        Nbd(stream)
    }

    /// Writes the first bytes.
    pub fn write(self, len: u32) -> Nbd {
        assert_eq!(self.ask(1, len), 0, "the answer to a write");
        self
    }

    /// Makes what was written durable.
    pub fn flush(self) -> Nbd {
        assert_eq!(self.ask(3, 0), 0, "the answer to a flush");
        self
    }

    /// The error in the answer to a command at offset 0; 0 is none.
    pub fn ask(&self, command: u16, len: u32) -> u32 {
        let mut stream = &self.0;
        let head = [&0x2560_9513u32.to_be_bytes()[..], &[0; 2], &command.to_be_bytes(), &[0; 16], &len.to_be_bytes()];
        stream.write_all(&head.concat()).unwrap();
        stream.write_all(&(0..len * u32::from(command == 1)).map(|n| n as u8 | 1).collect::<Vec<u8>>()).unwrap();
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).unwrap();
        u32::from_be_bytes(answer[4..8].try_into().unwrap())
    }
}

/// In memory, where there is such a file system: few stories are about disks, and those are told with processes.
fn scratch(on_disk: bool) -> TempDir {
    let in_memory = (!on_disk).then(|| tempfile::tempdir_in("/dev/shm").ok()).flatten();
    in_memory.unwrap_or_else(|| tempfile::tempdir().unwrap())
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
