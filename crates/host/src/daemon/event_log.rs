//! The events on disk: one JSON value per line in the state directory, `events.jsonl` and, before it, `events.1.jsonl`
//! to `events.3.jsonl`.
//!
//! Invariants
//! 1. The files together never hold more than [`FILES`] x [`FILE_MAX`] and one page of events.
//! 2. A line that is not as weft wrote it, such as the torn last line of a crash, costs that line only.
//! 3. An event is on the disk soon after it happened, not before it is told.

use super::events::{EVENTS_MAX, Journal};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::watch::EventInfo;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

/// A file that is longer is put aside, in bytes.
const FILE_MAX: u64 = 4 << 20;
/// The files in all.
const FILES: usize = 4;
/// How much of a file is read, from its end, in bytes.
const READ_MAX: u64 = 2 * FILE_MAX;

/// The thread that writes events down.
pub(super) struct EventLog {
    journal: Arc<Journal>,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl EventLog {
    /// Puts the events that `dir` holds before those in `journal`, and writes down all that follow.
    pub(super) fn open(dir: &Path, journal: Arc<Journal>) -> Answer<EventLog> {
        let mut earlier = Vec::new();
        for n in (0..FILES).rev() {
            earlier.extend(read(&file(dir, n)));
        }
        let mut last = 0;
        earlier.retain(|event: &EventInfo| {
            let before = last;
            last = last.max(event.no);
            event.no > before
        });
        earlier.drain(..earlier.len().saturating_sub(EVENTS_MAX));
        let mut after = journal.restore(earlier);
        let ended = Arc::new(AtomicBool::new(false));
        let (dir, told, end) = (dir.to_path_buf(), journal.clone(), ended.clone());
        let write = move || {
            let mut failing = false;
            loop {
                let events = told.follow(after, &end);
                let Some(last) = events.last() else { return };
                after = last.no;
                match append(&dir, &events) {
                    Ok(()) => failing = false,
                    // Said once: saying it is an event, too.
                    Err(_) if failing => {}
                    Err(error) => {
                        failing = true;
                        told.warn(None, format!("events are not kept in {}: {error}", dir.display()));
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("weft-events".into()).spawn(write);
        let thread = thread.map_err(|error| ApiError::new(Kind::Internal, format!("no thread for events: {error}")))?;
        Ok(EventLog { journal, ended, thread })
    }

    /// Returns when everything that happened is written down.
    pub(super) fn stop(self) {
        self.journal.end(&self.ended);
        let _ = self.thread.join();
    }
}

/// The file of the events, or with `n` above 0 the n-th before it.
fn file(dir: &Path, n: usize) -> PathBuf {
    match n {
        0 => dir.join("events.jsonl"),
        n => dir.join(format!("events.{n}.jsonl")),
    }
}

/// The events in a file (invariant 2).
fn read(path: &Path) -> Vec<EventInfo> {
    let bytes = || {
        let mut file = File::open(path)?;
        let len = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(len.saturating_sub(READ_MAX)))?;
        let mut bytes = Vec::new();
        file.take(READ_MAX).read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    let bytes = bytes().unwrap_or_default();
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Writes events at the end, durably, and puts the file aside when it is long (invariant 1).
fn append(dir: &Path, events: &[EventInfo]) -> io::Result<()> {
    let path = file(dir, 0);
    let mut log = File::options().create(true).append(true).read(true).mode(0o600).open(&path)?;
    let mut lines = Vec::new();
    if !ends_a_line(&mut log)? {
        lines.push(b'\n');
    }
    for event in events {
        serde_json::to_writer(&mut lines, event)?;
        lines.push(b'\n');
    }
    log.write_all(&lines)?;
    log.sync_data()?;
    if log.metadata()?.len() < FILE_MAX {
        return Ok(());
    }
    for n in (1..FILES).rev() {
        match fs::rename(file(dir, n - 1), file(dir, n)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Whether the last line is whole; after a crash it may not be.
fn ends_a_line(log: &mut File) -> io::Result<bool> {
    if log.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    log.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    log.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::watch::EventList;
    use std::os::unix::fs::MetadataExt;

    fn texts(dir: &Path) -> Vec<String> {
        let journal = Arc::new(Journal::default());
        EventLog::open(dir, journal.clone()).unwrap().stop();
        journal.page(&EventList::default()).events.into_iter().map(|event| event.text).collect()
    }

    #[test]
    fn events_outlive_the_daemon() {
        let dir = tempfile::tempdir().unwrap();
        for run in 0..3 {
            let journal = Arc::new(Journal::default());
            journal.note(None, format!("start {run}"));
            let log = EventLog::open(dir.path(), journal.clone()).unwrap();
            journal.warn(Some("tank"), format!("lost {run}"));
            log.stop();
        }
        assert_eq!(fs::metadata(file(dir.path(), 0)).unwrap().mode() & 0o077, 0, "for the owner only");
        assert_eq!(texts(dir.path()), ["start 0", "lost 0", "start 1", "lost 1", "start 2", "lost 2"]);
    }

    #[test]
    fn a_torn_or_foreign_line_costs_itself_only() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::default());
        let log = EventLog::open(dir.path(), journal.clone()).unwrap();
        journal.note(None, "one");
        log.stop();
        let path = file(dir.path(), 0);
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend(
            b"{\"no\":1,\"at_ms\":0,\"pool\":null,\"warning\":false,\"text\":\"again\"}\n\xff\xfe\n{\"no\":2,\"at_",
        );
        fs::write(&path, bytes).unwrap();
        let journal = Arc::new(Journal::default());
        let log = EventLog::open(dir.path(), journal.clone()).unwrap();
        journal.note(None, "two");
        log.stop();
        assert_eq!(texts(dir.path()), ["one", "two"]);
    }

    #[test]
    fn long_files_are_put_aside_and_the_oldest_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let event = |no| EventInfo {
            no,
            at_ms: 0,
            pool: None,
            warning: false,
            text: "x".repeat(4_000),
            in_pool: None,
            fresh: false,
        };
        let per_file = FILE_MAX / 4_000;
        let mut no = 0;
        for _ in 0..(FILES as u64 + 2) * 4 {
            let events: Vec<EventInfo> = (0..per_file / 4 + 2).map(|n| event(no + n + 1)).collect();
            no += events.len() as u64;
            append(dir.path(), &events).unwrap();
        }
        let sizes: Vec<u64> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
        assert!((FILES - 1..=FILES).contains(&sizes.len()), "{sizes:?}");
        assert!(sizes.iter().sum::<u64>() < (FILES as u64 + 1) * FILE_MAX, "{sizes:?}");
        let journal = Arc::new(Journal::default());
        EventLog::open(dir.path(), journal.clone()).unwrap().stop();
        assert_eq!(journal.note(None, "next"), no + 1);
    }

    #[test]
    fn a_directory_that_takes_nothing_is_an_event_and_no_end() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(file(dir.path(), 0)).unwrap();
        let journal = Arc::new(Journal::default());
        let log = EventLog::open(dir.path(), journal.clone()).unwrap();
        journal.note(None, "one");
        log.stop();
        let events = journal.page(&EventList::default()).events;
        assert!(events[1].text.starts_with("events are not kept in"), "{events:?}");
    }
}
