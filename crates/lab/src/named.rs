//! Workloads by name, as the threads of the collection ran them (STORAGE_SPACES.md section 3).
//!
//! Invariants
//! 1. A workload asks for the same, byte for byte, each time.
//! 2. What the thread does not state is assumed, and said where the workload stands.

use crate::command_line::Line;
use crate::jobs::{Job, Places};
use crate::workload::Ask;
use std::collections::VecDeque;
use std::ops::Range;
use weft_engine::units::Nanos;
use weft_sim::rng::Rng;

/// A workload that has a name.
pub struct Named {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    job: fn(&str) -> Job,
}

/// Every one.
pub const NAMED: &[Named] = &[
    Named {
        name: "iometer-32k-65-65",
        about: "requests of 32 KiB, 65 % read, 65 % at random, one at a time",
        job: iometer,
    },
    Named {
        name: "passmark-file-server",
        about: "80 % random reads and 20 % writes of 16 KiB on 500 MiB, two at once, for 120 s",
        job: file_server,
    },
    Named {
        name: "robocopy",
        about: "a tree of files of 4 KiB to 256 MiB is written, eight files at once; 8 GiB",
        job: robocopy,
    },
    Named {
        name: "camera",
        about: "16 cameras of 1 MiB/s each write files of 64 MiB, over the oldest when all is full, for 60 s",
        job: camera,
    },
];

impl Named {
    /// What it asks for.
    pub fn jobs(&self) -> Vec<Job> {
        vec![(self.job)(self.name)]
    }
}

/// Finds a workload by its name.
pub fn find(name: &str) -> Option<&'static Named> {
    NAMED.iter().find(|named| named.name == name)
}

/// Lists the names.
pub fn names() -> String {
    NAMED.iter().map(|named| named.name).collect::<Vec<_>>().join(", ")
}

/// Asks as IOMeter was set in Q68 (S4, L23 to L31): 32 KB, 65 % read, 65 % random. How many requests were under way is
/// not stated; one is what IOMeter begins with.
fn iometer(name: &str) -> Job {
    let line = Line { writes: 0.35, len: 32 << 10, random: true, follows: 0.35, ..Line::ONE };
    Job { endless: true, ..Job::of(name, line) }
}

/// Asks as PassMark's "File Server" did in Q63 (S3, L24 to L46): 500 MB, two threads, 120 s. Four reads to each write,
/// at random, as usual for that kind of load, and 16 KiB, which PassMark's own disk tests ask for, are assumed.
fn file_server(name: &str) -> Job {
    let line = Line { writes: 0.2, len: 16 << 10, random: true, depth: 2, span: Some(Nanos::secs(120)), ..Line::ONE };
    Job { size: Some(500 << 20), endless: true, ..Job::of(name, line) }
}

/// Writes what robocopy would for a tree of files, as in Q19 (S0, L293). Nothing is stated of that tree but its size of
/// 32 GB; here it is what fits into 8 GiB ([`SIZES`]), and eight files at once are what `/MT` takes unless it is told.
fn robocopy(name: &str) -> Job {
    let line = Line { writes: 1.0, len: 1 << 20, depth: 8, ..Line::ONE };
    Job { size: Some(8 << 30), places: Places::Tree, ..Job::of(name, line) }
}

/// Writes what a recorder of surveillance cameras does. The collection has no figures for one: 16 cameras of 1 MiB/s
/// each, which append 256 KiB at a time, are assumed.
fn camera(name: &str) -> Job {
    let line = Line { writes: 1.0, len: 256 << 10, depth: 16, span: Some(Nanos::secs(60)), ..Line::ONE };
    Job { endless: true, rate: Some(16 << 20), places: Places::Cameras, ..Job::of(name, line) }
}

/// How many of a hundred files have sizes between these powers of two: documents and sources, pictures, music, films.
const SIZES: [(u64, Range<u64>); 4] = [(50, 12..16), (35, 16..20), (12, 20..24), (3, 24..28)];
/// The largest share of the room that one file has, so that a small room holds a tree, too.
const LARGEST: u64 = 16;
/// What a file takes at least, and how long its record is written.
const CLUSTER: u64 = 4096;
/// Files whose records lie in one cluster.
const RECORDS: u64 = 4;
/// The part of the room, at its beginning, where the records of files lie.
const RECORD_ROOM: u64 = 256;

/// A tree that is being copied: files lie one after the other, so many grow at once, each in order, and when one is
/// complete its record is written.
struct Tree {
    rng: Rng,
    room: u64,
    /// Bytes of a request at most.
    len: u64,
    at_once: usize,
    open: VecDeque<File>,
    files: u64,
    /// Where the next file begins.
    next: u64,
}

struct File {
    left: Range<u64>,
    record: u64,
}

/// Tells the requests of a tree that is copied into so much room, until it is full.
pub(crate) fn tree(room: u64, line: Line) -> impl Iterator<Item = Ask> + Send + 'static {
    let Line { len, depth, .. } = line;
    let next = record_room(room);
    Tree { rng: Rng::new(1), room, len, at_once: depth, open: VecDeque::new(), files: 0, next }
}

fn record_room(room: u64) -> u64 {
    (room / RECORD_ROOM).next_multiple_of(CLUSTER)
}

impl Tree {
    /// Begins the next file, if it still fits.
    fn begin(&mut self) -> Option<File> {
        let begin = self.next;
        self.next += self.size().min(self.room / LARGEST).next_multiple_of(CLUSTER);
        let record = self.files / RECORDS * CLUSTER % record_room(self.room);
        self.files += 1;
        (self.next <= self.room).then_some(File { left: begin..self.next, record })
    }

    fn size(&mut self) -> u64 {
        let mut nth = self.rng.below(100);
        let powers = SIZES.iter().find_map(|(files, powers)| {
            let found = nth < *files;
            nth = nth.saturating_sub(*files);
            found.then(|| powers.clone())
        });
        let power = self.rng.range(powers.expect("the shares are a hundred"));
        self.rng.range(1 << power..2 << power)
    }
}

impl Iterator for Tree {
    type Item = Ask;

    fn next(&mut self) -> Option<Ask> {
        if self.open.len() < self.at_once && self.next <= self.room {
            let file = self.begin();
            self.open.extend(file);
        }
        let mut file = self.open.pop_front()?;
        let len = self.len.min(file.left.end - file.left.start);
        if len == 0 {
            return Some(Ask::Write(file.record, CLUSTER));
        }
        let at = file.left.start;
        file.left.start += len;
        self.open.push_back(file);
        Some(Ask::Write(at, len))
    }
}

/// Bytes of a file of a camera at most.
const CLIP: u64 = 64 << 20;

/// Tells the requests of cameras that take turns, without end. Files that were begun together lie side by side; one
/// that is full is made durable. The cameras' files become full one after the other.
pub(crate) fn cameras(room: u64, line: Line) -> impl Iterator<Item = Ask> + Send + 'static {
    let Line { len, depth, .. } = line;
    let cameras = depth as u64;
    let file = CLIP.min(room / cameras) / len * len;
    let rounds = room / (file * cameras);
    (0..).flat_map(move |nth: u64| {
        let (camera, turn) = (nth % cameras, nth / cameras);
        let written = turn * len + camera * file / cameras / len * len;
        let at = (written / file % rounds * cameras + camera) * file + written % file;
        let full = (written + len).is_multiple_of(file);
        std::iter::once(Ask::Write(at, len)).chain(full.then_some(Ask::Flush))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const ROOM: u64 = 1 << 30;

    fn asks(name: &str, room: u64) -> Box<dyn Iterator<Item = Ask> + Send> {
        Job::read(name).unwrap()[0].asks(room).unwrap()
    }

    #[test]
    fn every_name_is_read_and_asks_for_the_same_each_time_within_the_room() {
        for named in NAMED {
            let first: Vec<Ask> = asks(named.name, ROOM).take(100_000).collect();
            assert!(first.len() > 300 && first.iter().eq(&asks(named.name, ROOM).take(100_000).collect::<Vec<_>>()));
            for ask in first {
                let (Ask::Write(at, len) | Ask::Read(at, len)) = ask else { continue };
                assert!(at + len <= ROOM && at % 4096 == 0 && len % 4096 == 0, "{}: {ask:?}", named.name);
            }
            assert_eq!(Job::read(&format!(" {}\n", named.name)).unwrap(), named.jobs());
        }
        let error = Job::read("robocpy").unwrap_err();
        assert!(error.contains("`robocpy` stands before") || error.contains("robocopy, camera"), "{error}");
    }

    #[test]
    fn iometer_reads_and_draws_two_of_three_requests() {
        let asks: Vec<Ask> = asks("iometer-32k-65-65", ROOM).take(10_000).collect();
        let ends = |ask: &Ask| match *ask {
            Ask::Read(at, len) | Ask::Write(at, len) => (at, at + len),
            _ => (0, 0),
        };
        let reads = asks.iter().filter(|ask| matches!(ask, Ask::Read(..))).count();
        let follow = asks.windows(2).filter(|pair| ends(&pair[0]).1 == ends(&pair[1]).0).count();
        assert!((6350..6650).contains(&reads) && (3350..3650).contains(&follow), "{reads} {follow}");
    }

    #[test]
    fn a_tree_fills_the_room_with_files_of_the_stated_sizes_each_in_order() {
        let (mut ends, mut records, mut bytes) = (BTreeMap::new(), 0, 0);
        for ask in asks("robocopy", 8 << 30) {
            let Ask::Write(at, len) = ask else { panic!("{ask:?}") };
            if at < record_room(8 << 30) {
                records += 1;
                continue;
            }
            bytes += len;
            let begun = ends.remove(&at).unwrap_or(at);
            ends.insert(at + len, begun);
        }
        // A file that ends where another begins can be taken for its first part.
        assert!((1000..5000).contains(&records) && ends.len() <= records, "{records} {}", ends.len());
        assert!(bytes > (8 << 30) / 10 * 9, "{bytes}");
        let mean = bytes / records as u64;
        assert!((2 << 20..5 << 20).contains(&mean), "{mean}");
    }

    #[test]
    fn cameras_append_at_their_rate_and_come_round_to_the_oldest_file() {
        let room = 256 << 20;
        let job = Job::read("camera").unwrap().remove(0);
        let (mut next, mut flushes, mut over) = (BTreeMap::new(), 0, 0);
        for (due, ask) in job.timed(room).unwrap().take(5000) {
            match ask {
                Ask::Write(at, len) => {
                    let camera = at / (16 << 20) % 16;
                    let then = next.insert(camera, at + len);
                    over += u64::from(then.is_some_and(|then| then != at));
                }
                _ => flushes += 1,
            }
            assert!(due.0 <= 80 * 1_000_000_000);
        }
        // One file of 16 MiB for each camera: the one that is full is the oldest, and the next.
        assert_eq!(next.len(), 16);
        assert!(flushes >= 60 && (over..=over + 1).contains(&flushes), "{flushes} {over}");
    }
}
