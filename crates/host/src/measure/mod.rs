//! `weft disk measure`: what a disk does, by reading it.
//!
//! Invariants
//! 1. Nothing is written: the disk is opened for reading only.
//! 2. A disk that somebody uses (a daemon, a mount, another program that claimed it) is refused; whoever wants it all
//!    the same gets one read at a time, after each of which the disk is left alone for as long as that took.
//! 3. The disk is claimed for a moment only, to see whether that is possible: a daemon that starts meanwhile finds it.

pub mod classes;
pub(crate) mod wear;

use crate::api::error::{Answer, ApiError, Kind};
use crate::disk::file::DiskKind;
use crate::disk::onlooker::open_to_read;
use crate::disk::{DiskOptions, OpenDisk, is_rotational};
use rustix::fs::{self, SeekFrom};
use rustix::io::Errno;
use std::fs::Metadata;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weft_engine::error::ErrorKind;
use weft_engine::io::Buf;
use weft_engine::units::BLOCK;
use weft_lab::measured::{Figures, Random, Stream};

/// Bytes of a long read.
const LONG: u64 = 1 << 20;
/// Long reads at once.
const LONG_AT_ONCE: u64 = 4;
/// Places at which long reads are measured, and how far each reaches at most.
const PLACES: u64 = 7;
const REACH: u64 = 4 << 30;
/// Random reads at once.
const TOGETHER: u64 = 32;
/// The least that can be measured.
const SIZE_MIN: u64 = 64 << 20;

/// How to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    /// How long it takes altogether.
    pub span: Duration,
    /// Also where somebody uses the disk, with half of its time at most.
    pub in_use: bool,
}

/// What was found, and what makes it doubtful.
#[derive(Debug)]
pub struct Found {
    /// The figures.
    pub figures: Figures,
    /// Doubts, as sentences.
    pub doubts: Vec<String>,
}

/// Measures a disk: a block device or a file. [`Kind::AlreadyExists`]: somebody uses it.
pub fn measure(path: &Path, how: How) -> Answer<Found> {
    if !how.in_use {
        free(path)?;
    }
    let kind = std::fs::metadata(path).map_err(|error| cannot_open(path, &error))?;
    if !(kind.is_file() || kind.file_type().is_block_device()) {
        let what = format!("{} is neither a block device nor a file", path.display());
        return Err(ApiError::new(Kind::InvalidInput, what).hint("weft disk list"));
    }
    let (fd, direct) = open_to_read(path).map_err(|errno| cannot_open(path, &errno.into()))?;
    let size = fs::seek(&fd, SeekFrom::End(0)).map_err(|errno| cannot(path, &errno.to_string()))? / BLOCK * BLOCK;
    if size < SIZE_MIN {
        let what = format!("{} has {size} bytes; what is measured has 64 MiB at least", path.display());
        return Err(ApiError::new(Kind::NotPossible, what));
    }
    let reader = Reader { fd, path, gentle: how.in_use };
    let long = how.span / 2 / PLACES as u32;
    let streams = (0..PLACES).map(|nth| reader.stream(place(nth, size), size, long)).collect::<Answer<Vec<_>>>()?;
    let rest = how.span / 2;
    let (alone, together) = match how.in_use {
        true => (reader.random(size, 1, rest)?, None),
        false => (reader.random(size, 1, rest / 2)?, Some(reader.random(size, TOGETHER, rest / 2)?)),
    };
    let rotational = is_rotational(&reader.fd, if kind.is_file() { DiskKind::File } else { DiskKind::Block });
    let figures = Figures { size, rotational, streams, alone, together };
    Ok(Found { figures, doubts: doubts(&kind, direct, how) })
}

/// Where the long reads of one place begin: the last ones end where the disk does.
fn place(nth: u64, size: u64) -> u64 {
    let last = size.saturating_sub(REACH.min(size / PLACES));
    last / (PLACES - 1) * nth / LONG * LONG
}

/// Refuses a disk that somebody uses.
fn free(path: &Path) -> Answer<()> {
    let options = DiskOptions { read_only: true, ..DiskOptions::default() };
    OpenDisk::open(path, &options).map(drop).map_err(|error| match error.kind {
        ErrorKind::AlreadyExists => {
            let what = format!("{}; measuring would disturb it, and be disturbed", error.context);
            ApiError::new(Kind::AlreadyExists, what)
        }
        ErrorKind::NotFound => ApiError::new(Kind::NotFound, error.context).hint("weft disk list"),
        ErrorKind::InvalidInput => ApiError::new(Kind::InvalidInput, error.context).hint("weft disk list"),
        _ => ApiError::new(Kind::NotPossible, error.context),
    })
}

fn cannot_open(path: &Path, error: &std::io::Error) -> ApiError {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            ApiError::new(Kind::NotFound, format!("{} does not exist", path.display())).hint("weft disk list")
        }
        _ => cannot(path, &error.to_string()),
    }
}

fn cannot(path: &Path, why: &str) -> ApiError {
    ApiError::new(Kind::NotPossible, format!("{} cannot be read: {why}", path.display())).hint("weft disk list")
}

fn doubts(kind: &Metadata, direct: bool, how: How) -> Vec<String> {
    let mut doubts = Vec::new();
    if kind.is_file() && kind.blocks() * 512 < kind.len() / 10 * 9 {
        let there = kind.blocks() as f64 * 51200.0 / kind.len() as f64;
        doubts.push(format!("only {there:.0} % of the file are there: its holes are read without any disk"));
    }
    if !direct {
        doubts.push("its file system reads through memory only: what memory holds is no figure of a disk".into());
    }
    if how.in_use {
        doubts.push(
            "others may have used it meanwhile, and it was read one request at a time: it does this at least".into(),
        );
    }
    doubts
}

struct Reader<'a> {
    fd: OwnedFd,
    path: &'a Path,
    /// Whether the disk is left alone as long as it was read.
    gentle: bool,
}

/// What reads took.
#[derive(Default)]
struct Tally {
    nanos: Vec<u64>,
    /// From the first to the last, without what it was left alone.
    span: u64,
}

impl Reader<'_> {
    /// Reads on from `from`, again and again if it has to.
    fn stream(&self, from: u64, size: u64, span: Duration) -> Answer<Stream> {
        let reach = REACH.min(size - from) / LONG * LONG;
        let next = AtomicU64::new(0);
        let at = || from + next.fetch_add(LONG, Ordering::Relaxed) % reach;
        let tally = self.read(if self.gentle { 1 } else { LONG_AT_ONCE }, LONG, span, &|_| at())?;
        Ok(Stream { at: from, rate: tally.nanos.len() as f64 * LONG as f64 * 1e9 / tally.span as f64 })
    }

    fn random(&self, size: u64, at_once: u64, span: Duration) -> Answer<Random> {
        let mut seed = [0; 8];
        // Places that were read by an earlier measurement may be in a cache.
        getrandom::fill(&mut seed).map_err(|error| cannot(self.path, &error.to_string()))?;
        let state = AtomicU64::new(u64::from_le_bytes(seed));
        let at = || mixed(state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)) % (size / BLOCK) * BLOCK;
        let mut tally = self.read(at_once, BLOCK, span, &|_| at())?;
        tally.nanos.sort_unstable();
        let count = tally.nanos.len();
        let mean = tally.nanos.iter().sum::<u64>() / count as u64;
        let per_second = count as f64 * 1e9 / tally.span as f64;
        Ok(Random { per_second, mean, p99: tally.nanos[(count * 99 / 100).min(count - 1)] })
    }

    /// Reads from places that `at` gives, so many at once, until the time is over: each thread once at least.
    fn read(&self, at_once: u64, len: u64, span: Duration, at: &(dyn Fn(u64) -> u64 + Sync)) -> Answer<Tally> {
        let begun = Instant::now();
        let one = |thread: u64| -> Result<Tally, (u64, Errno)> {
            let (mut buf, mut tally) = (Buf::zeroed(len as usize), Tally::default());
            loop {
                let (place, before) = (at(thread), Instant::now());
                let mut done = 0;
                while done < len {
                    match rustix::io::pread(&self.fd, &mut buf[done as usize..], place + done) {
                        Ok(0) => return Err((place + done, Errno::NXIO)),
                        Ok(read) => done += read as u64,
                        Err(Errno::INTR) => {}
                        Err(errno) => return Err((place + done, errno)),
                    }
                }
                let took = before.elapsed();
                tally.nanos.push(took.as_nanos().max(1) as u64);
                if self.gentle {
                    std::thread::sleep(took);
                }
                if begun.elapsed() >= span {
                    return Ok(tally);
                }
            }
        };
        let ended: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once).map(|no| scope.spawn(move || one(no))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a reader does not panic")).collect()
        });
        let mut all = Tally::default();
        for tally in ended {
            let tally = tally.map_err(|(place, errno)| {
                ApiError::new(Kind::NotPossible, format!("{} cannot be read at {place}: {errno}", self.path.display()))
                    .hint("weft disk list")
            })?;
            all.nanos.extend(tally.nanos);
        }
        let busy = all.nanos.iter().sum();
        all.span = if self.gentle { busy } else { begun.elapsed().as_nanos().max(1) as u64 };
        Ok(all)
    }
}

/// A number that looks drawn (splitmix64).
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const AT_ONCE: How = How { span: Duration::ZERO, in_use: false };

    fn disk(size: u64) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        (dir, path)
    }

    #[test]
    fn a_file_is_measured_at_seven_places_from_its_first_byte_to_its_last() {
        let (_dir, path) = disk(100 << 20);
        let Found { figures, doubts } = measure(&path, AT_ONCE).unwrap();
        assert_eq!((figures.size, figures.streams.len()), (100 << 20, 7));
        assert!(figures.streams.iter().all(|stream| stream.rate > 0.0 && stream.at.is_multiple_of(LONG)));
        assert_eq!(figures.streams[0].at, 0);
        assert!(figures.streams[6].at > 80 << 20 && figures.streams[6].at < 100 << 20);
        assert!(figures.alone.mean > 0 && figures.together.unwrap().p99 > 0);
        assert!(doubts[0].contains("0 % of the file are there"), "{doubts:?}");
    }

    #[test]
    fn nothing_is_written_and_it_can_be_a_file_that_is_not_ours_to_write() {
        let (_dir, path) = disk(64 << 20);
        File::options().write(true).open(&path).unwrap().write_all_at(&[7; 4096], 5 << 20).unwrap();
        let before = std::fs::read(&path).unwrap();
        let mut read_only = std::fs::metadata(&path).unwrap().permissions();
        read_only.set_readonly(true);
        std::fs::set_permissions(&path, read_only).unwrap();
        measure(&path, AT_ONCE).unwrap();
        assert!(std::fs::read(&path).unwrap() == before);
    }

    #[test]
    fn a_disk_that_somebody_uses_is_refused_unless_that_is_meant() {
        let (_dir, path) = disk(64 << 20);
        let claimed = OpenDisk::open(&path, &DiskOptions::default()).unwrap();
        let refused = measure(&path, AT_ONCE).unwrap_err();
        assert_eq!(refused.kind, Kind::AlreadyExists);
        assert!(refused.message.contains("in use"), "{refused:?}");
        let Found { figures, doubts } = measure(&path, How { in_use: true, ..AT_ONCE }).unwrap();
        assert!(figures.together.is_none() && doubts.iter().any(|doubt| doubt.contains("one request at a time")));
        drop(claimed);
        // It was not claimed by measuring either.
        let _claimed = OpenDisk::open(&path, &DiskOptions::default()).unwrap();
    }

    #[test]
    fn what_is_no_disk_is_told() {
        let (dir, path) = disk(1 << 20);
        assert!(measure(&path, AT_ONCE).unwrap_err().message.contains("64 MiB at least"));
        assert_eq!(measure(dir.path(), AT_ONCE).unwrap_err().kind, Kind::InvalidInput);
        assert_eq!(measure(&dir.path().join("none"), AT_ONCE).unwrap_err().kind, Kind::NotFound);
        // Whoever opens a pipe that nobody writes to waits for ever.
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, fs::Mode::RUSR, 0).unwrap();
        assert_eq!(measure(&pipe, How { in_use: true, ..AT_ONCE }).unwrap_err().kind, Kind::InvalidInput);
        assert_eq!(
            measure(&dir.path().join("none"), How { in_use: true, ..AT_ONCE }).unwrap_err().kind,
            Kind::NotFound
        );
    }
}
