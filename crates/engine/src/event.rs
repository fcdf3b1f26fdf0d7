//! What the engine tells the world about, as it happens. One renderer (`Display`) serves logs, `weft events` and the
//! simulator's trace.

use crate::format::Id;
use crate::format::record::{CacheRecord, JobState};
use crate::units::{DiskNo, DiskOffset, JobNo, Nanos};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Something a person or a test may want to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The pool opened; `replayed` log batches were applied, `torn` says that a torn tail was dropped.
    PoolOpened {
        /// Log batches applied.
        replayed: u64,
        /// Whether the log ended in a torn batch.
        torn: bool,
    },
    /// A disk answers no more, or failed a write or a flush; the pool goes on without it.
    DiskLost {
        /// Which.
        disk: DiskNo,
        /// Why.
        reason: String,
    },
    /// A person took a disk out for a while; the pool goes on without it.
    DiskInMaintenance {
        /// Which.
        disk: DiskNo,
    },
    /// A disk has not answered a request for the write timeout, and cannot be done without: whatever needs it waits.
    DiskStalled {
        /// Which.
        disk: DiskNo,
        /// For how long so far.
        waited: Nanos,
    },
    /// A task was run again and again though neither time nor any disk had moved on: a fault of weft itself.
    TaskSpins {
        /// Its name.
        task: &'static str,
        /// How often it was run.
        polls: u64,
    },
    /// A disk that was missing is back and is being brought up to date.
    DiskReturned {
        /// Which.
        disk: DiskNo,
    },
    /// A disk says of itself that it is older than the pool last saw it, or that it was used without the others:
    /// nothing of its metadata is believed.
    DiskOutOfStep {
        /// Which.
        disk: DiskNo,
        /// Whether it was used without the others.
        diverged: bool,
    },
    /// A block could not be read or failed its checksum.
    BlockBad {
        /// Which disk.
        disk: DiskNo,
        /// Where on it.
        at: DiskOffset,
        /// `false`: the disk reported an error; `true`: the disk returned wrong bytes.
        checksum: bool,
    },
    /// A bad block was reconstructed and rewritten.
    BlockHealed {
        /// Which disk.
        disk: DiskNo,
        /// Where on it.
        at: DiskOffset,
    },
    /// A bad block could not be reconstructed: more was lost than the redundancy covers.
    BlockLost {
        /// Which disk.
        disk: DiskNo,
        /// Where on it.
        at: DiskOffset,
    },
    /// A damaged metadata copy was found and rewritten from another.
    MetadataHealed {
        /// Which disk.
        disk: DiskNo,
        /// Which structure.
        what: &'static str,
    },
    /// A disk that was behind has everything again.
    DiskCaughtUp {
        /// Which.
        disk: DiskNo,
    },
    /// A disk has become much slower than its peers, or is so no more.
    DiskSlow {
        /// Which.
        disk: DiskNo,
        /// Whether it is.
        slow: bool,
        /// What nine of ten of its requests take no longer than.
        own: Nanos,
        /// What the median of its peers takes for that.
        median: Nanos,
    },
    /// A disk that kept showing bad blocks takes nothing new from now on.
    DiskRetired {
        /// Which.
        disk: DiskNo,
        /// How many it had shown.
        bad_blocks: u64,
    },
    /// A disk that kept failing takes nothing new from now on.
    DiskUnreliable {
        /// Which.
        disk: DiskNo,
        /// How often a write or a flush had failed.
        failures: u64,
    },
    /// A disk is flushed no more, for it keeps what it has taken when the power fails; or it is flushed again.
    DiskProtected {
        /// Which.
        disk: DiskNo,
        /// Whether it needs no flush.
        protected: bool,
    },
    /// A disk joined the pool.
    DiskAdded {
        /// Which.
        disk: DiskNo,
    },
    /// A disk left the pool.
    DiskRemoved {
        /// Which.
        disk: DiskNo,
    },
    /// The pool chose the write-back cache of a virtual disk anew, for its disks have changed.
    CacheChosen {
        /// The name of the virtual disk.
        vdisk: String,
        /// What it had.
        from: Option<CacheRecord>,
        /// What it has from now on.
        to: Option<CacheRecord>,
    },
    /// The log is carried by other disks than before.
    LogMoved {
        /// By these.
        disks: Vec<DiskNo>,
    },
    /// A hot spare took the place of another disk.
    SpareUsed {
        /// Which.
        disk: DiskNo,
    },
    /// A disk that was removed from the pool still carries its label; it is left alone.
    DiskForeign {
        /// Its identity.
        id: Id,
        /// The pool's name.
        pool: String,
    },
    /// A job began.
    JobStarted {
        /// Its number.
        job: JobNo,
        /// What it does.
        what: String,
    },
    /// A job ended.
    JobEnded {
        /// Its number.
        job: JobNo,
        /// What it did.
        what: String,
        /// How it ended.
        state: JobState,
    },
    /// Too few disks are there: nothing is written until enough of them are back.
    PoolFrozen {
        /// What is missing.
        reason: String,
    },
    /// Enough disks are back: the pool goes on.
    PoolThawed,
    /// The pool stopped accepting writes.
    PoolFailed {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::PoolOpened { replayed, torn } => {
                write!(f, "pool opened, {replayed} log batches replayed")?;
                if *torn { f.write_str(", a torn tail was dropped") } else { Ok(()) }
            }
            Event::DiskLost { disk, reason } => write!(f, "disk {disk} lost: {reason}"),
            Event::DiskInMaintenance { disk } => write!(f, "disk {disk} is in maintenance"),
            Event::DiskStalled { disk, waited } => write!(
                f,
                "disk {disk} has not answered for {} seconds; it cannot be done without, and whatever needs it waits",
                waited.0 / 1_000_000_000
            ),
            Event::TaskSpins { task, polls } => {
                write!(
                    f,
                    "task \"{task}\" was run {polls} times in a row without getting on: a fault of weft, please report it"
                )
            }
            Event::DiskReturned { disk } => write!(f, "disk {disk} is back"),
            Event::DiskOutOfStep { disk, diverged: true } => {
                write!(f, "disk {disk} was used elsewhere without the other disks: what it holds is brought in line")
            }
            Event::DiskOutOfStep { disk, diverged: false } => {
                write!(
                    f,
                    "disk {disk} is older than it was (put back from a copy?): what it holds is brought up to date"
                )
            }
            Event::BlockBad { disk, at, checksum: true } => write!(f, "disk {disk} at {}: checksum mismatch", at.0),
            Event::BlockBad { disk, at, checksum: false } => write!(f, "disk {disk} at {}: read error", at.0),
            Event::BlockHealed { disk, at } => write!(f, "disk {disk} at {}: block reconstructed and rewritten", at.0),
            Event::BlockLost { disk, at } => write!(f, "disk {disk} at {}: block lost, beyond the redundancy", at.0),
            Event::MetadataHealed { disk, what } => {
                write!(f, "disk {disk}: damaged {what} rewritten from another copy")
            }
            Event::DiskCaughtUp { disk } => write!(f, "disk {disk} is up to date again"),
            Event::DiskSlow { disk, slow: true, own, median } => write!(
                f,
                "disk {disk} is slow: a tenth of its requests take {} ms and more, {} ms on its peers; whatever waits for it is that slow",
                own.0 / 1_000_000,
                median.0 / 1_000_000
            ),
            Event::DiskSlow { disk, slow: false, .. } => write!(f, "disk {disk} is as fast as its peers again"),
            Event::DiskRetired { disk, bad_blocks } => {
                write!(f, "disk {disk} is retired after {bad_blocks} bad blocks: what it holds moves to other disks")
            }
            Event::DiskUnreliable { disk, failures } => {
                write!(f, "disk {disk} is retired after it failed {failures} times: what it holds moves to other disks")
            }
            Event::DiskProtected { disk, protected: true } => {
                write!(f, "disk {disk} is power-protected: no flush is sent to it any more")
            }
            Event::DiskProtected { disk, protected: false } => {
                write!(f, "disk {disk} is not power-protected: it is flushed from now on")
            }
            Event::DiskAdded { disk } => write!(f, "disk {disk} joined the pool"),
            Event::DiskRemoved { disk } => write!(f, "disk {disk} left the pool"),
            Event::CacheChosen { vdisk, from, to } => {
                write!(f, "the write-back cache of {vdisk} is chosen anew (auto): ")?;
                cache(f, from)?;
                f.write_str(" -> ")?;
                cache(f, to)
            }
            Event::LogMoved { disks: on } => {
                f.write_str("the log is on ")?;
                disks(f, on)?;
                f.write_str(" now")
            }
            Event::SpareUsed { disk } => write!(f, "disk {disk}, a hot spare, takes the place of another disk"),
            Event::DiskForeign { id, pool } => {
                write!(f, "disk {id} was removed from pool {pool} and is no part of it any more; it is left alone")
            }
            Event::JobStarted { job, what } => write!(f, "job {job} began: {what}"),
            Event::JobEnded { job, what, state: JobState::Done } => write!(f, "job {job} is done: {what}"),
            Event::JobEnded { job, what, state: JobState::Cancelled } => write!(f, "job {job} was ended: {what}"),
            Event::JobEnded { job, what, .. } => write!(f, "job {job} failed: {what}"),
            Event::PoolFrozen { reason } => write!(f, "pool is frozen until disks are back: {reason}"),
            Event::PoolThawed => f.write_str("pool goes on: enough disks are back"),
            Event::PoolFailed { reason } => write!(f, "pool accepts no more writes: {reason}"),
        }
    }
}

/// Writes which disks, with commas between them.
fn disks(f: &mut fmt::Formatter<'_>, disks: &[DiskNo]) -> fmt::Result {
    for (nth, disk) in disks.iter().enumerate() {
        let before = if nth == 0 {
            ""
        } else if nth + 1 < disks.len() {
            ", "
        } else {
            " and "
        };
        write!(f, "{before}disk {disk}")?;
    }
    Ok(())
}

/// Writes how large a cache is, and on which disks.
fn cache(f: &mut fmt::Formatter<'_>, cache: &Option<CacheRecord>) -> fmt::Result {
    let Some(cache) = cache else { return f.write_str("none") };
    write!(f, "{} on ", cache.size)?;
    let on: Vec<DiskNo> = cache.disks.iter().collect();
    disks(f, &on)?;
    write!(f, ", {}", cache.layout.resiliency())
}
