//! The hook: a program that is run for each event, with the event as one line of JSON on its standard input.
//!
//! Invariants
//! 1. At most one hook runs at a time, in the order of the events, and none for longer than [`RUN_MAX`].
//! 2. When events come faster than the hook takes them, at most [`BEHIND_MAX`] wait; older ones are passed over, and
//!    that is an event.
//! 3. Events that the hook itself causes here do not run it again.

use super::events::Journal;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::watch::EventInfo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The longest that one hook runs before it is killed.
const RUN_MAX: Duration = Duration::from_secs(10);
/// The most events that wait for the hook.
const BEHIND_MAX: u64 = 1_000;
/// How long the end of the daemon waits for events that were not told yet.
const STOP_MAX: Duration = Duration::from_secs(2);

/// The thread that runs the hook.
pub(super) struct Hook {
    journal: Arc<Journal>,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// What is run, and for how long at most.
struct Runner {
    program: PathBuf,
    socket: PathBuf,
    run_max: Duration,
}

impl Hook {
    /// Runs `program` for every event from now on, with the daemon's `socket` in `WEFT_SOCKET`.
    pub(super) fn start(program: &Path, socket: &Path, journal: Arc<Journal>) -> Answer<Hook> {
        let ended = Arc::new(AtomicBool::new(false));
        let runner = Runner { program: program.into(), socket: socket.into(), run_max: RUN_MAX };
        let (told, end) = (journal.clone(), ended.clone());
        let thread = thread::Builder::new().name("weft-hook".into()).spawn(move || runner.follow(&told, &end));
        let thread =
            thread.map_err(|error| ApiError::new(Kind::Internal, format!("no thread for the hook: {error}")))?;
        Ok(Hook { journal, ended, thread })
    }

    /// Returns when everything was told, or [`STOP_MAX`] after.
    pub(super) fn stop(self) {
        self.journal.end(&self.ended);
        let begun = Instant::now();
        while !self.thread.is_finished() && begun.elapsed() < STOP_MAX {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Runner {
    fn follow(&self, journal: &Journal, ended: &AtomicBool) {
        let mut after = journal.note(None, format!("events are told to {}", self.program.display()));
        let mut own = BTreeSet::from([after]);
        let mut failing = false;
        loop {
            let events = journal.follow(after, ended);
            let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
            let mut passed_over = first.no - after - 1;
            after = last.no;
            own = own.split_off(&first.no);
            for event in &events {
                if own.contains(&event.no) || !event.fresh {
                    continue;
                }
                if journal.newest() - event.no > BEHIND_MAX {
                    passed_over += 1;
                    continue;
                }
                match self.run(event) {
                    Ok(()) => failing = false,
                    // Said once, until it works again.
                    Err(_) if failing => {}
                    Err(why) => {
                        failing = true;
                        own.insert(journal.warn(None, format!("the hook {} {why}", self.program.display())));
                    }
                }
            }
            if passed_over > 0 {
                let text = format!("{passed_over} events were passed over: the hook is too slow for them");
                own.insert(journal.warn(None, text));
            }
        }
    }

    /// Runs the hook for one event (invariant 1); says in a few words why it did not work.
    fn run(&self, event: &EventInfo) -> Result<(), String> {
        let mut line = serde_json::to_vec(event).expect("events have string keys only");
        line.push(b'\n');
        let child = Command::new(&self.program)
            .env("WEFT_SOCKET", &self.socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn();
        let mut child = child.map_err(|error| format!("cannot be run: {error}"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // An event fits into a pipe: this never waits. A hook that does not read it does not want it.
            let _ = stdin.write_all(&line);
        }
        match self.wait(&mut child) {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(format!("ended with {status}")),
            Ok(None) => Err(format!("was killed after {} s", self.run_max.as_secs_f64())),
            Err(error) => Err(format!("cannot be waited for: {error}")),
        }
    }

    /// How the child ended; `None`: it did not in time and was killed, with all it started.
    fn wait(&self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        let pid = Pid::from_child(child);
        let ends = pidfd_open(pid, PidfdFlags::empty())?;
        let limit = Timespec { tv_sec: self.run_max.as_secs() as i64, tv_nsec: self.run_max.subsec_nanos().into() };
        let mut fds = [PollFd::new(&ends, PollFlags::IN)];
        let ended = loop {
            match poll(&mut fds, Some(&limit)) {
                Ok(ready) => break ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        if ended {
            return child.wait().map(Some);
        }
        // Its group has its number for as long as it is not waited for.
        let _ = kill_process_group(pid, Signal::KILL);
        child.wait()?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::watch::EventList;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn script(dir: &Path, body: &str) -> PathBuf {
        let path = dir.join("hook");
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn runner(program: PathBuf, run_max: Duration) -> Runner {
        Runner { program, socket: "/run/weft.sock".into(), run_max }
    }

    /// Lets the hook follow a journal to its end.
    fn told(runner: &Runner, journal: &Journal, events: &[&str]) {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let following = scope.spawn(|| runner.follow(journal, &ended));
            while journal.page(&EventList::default()).events.is_empty() {
                thread::yield_now();
            }
            events.iter().for_each(|event| {
                journal.warn(Some("tank"), *event);
            });
            journal.end(&ended);
            following.join().unwrap();
        });
    }

    #[test]
    fn every_event_is_told_once_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let program =
            script(dir.path(), &format!("cat >> {}; echo \"$WEFT_SOCKET\" >> {}.sock", out.display(), out.display()));
        let journal = Journal::default();
        told(&runner(program, RUN_MAX), &journal, &["one", "two \"quoted\"", "three"]);
        let lines = fs::read_to_string(&out).unwrap();
        let texts: Vec<String> =
            lines.lines().map(|line| serde_json::from_str::<EventInfo>(line).unwrap().text).collect();
        assert_eq!(texts, ["one", "two \"quoted\"", "three"]);
        assert!(fs::read_to_string(dir.path().join("out.sock")).unwrap().starts_with("/run/weft.sock\n"));
    }

    #[test]
    fn a_hook_that_fails_is_told_of_once_and_not_to_itself() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::default();
        let count = dir.path().join("count");
        let program = script(dir.path(), &format!("echo run >> {}; exit 3", count.display()));
        told(&runner(program, RUN_MAX), &journal, &["one", "two", "three"]);
        assert_eq!(fs::read_to_string(&count).unwrap().lines().count(), 3);
        let texts = journal.page(&EventList::default()).events;
        assert_eq!(texts.iter().filter(|event| event.text.contains("ended with")).count(), 1, "{texts:?}");
    }

    #[test]
    fn a_hook_that_hangs_is_killed_with_all_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "sleep 1000 & sleep 1000");
        let begun = Instant::now();
        let event =
            EventInfo { no: 1, at_ms: 0, pool: None, warning: false, text: "one".into(), in_pool: None, fresh: true };
        let why = runner(program, Duration::from_millis(50)).run(&event).unwrap_err();
        assert!(why.starts_with("was killed"), "{why}");
        assert!(begun.elapsed() < Duration::from_secs(500));
        let missing = runner(dir.path().join("none"), RUN_MAX).run(&event).unwrap_err();
        assert!(missing.starts_with("cannot be run"), "{missing}");
    }
}
