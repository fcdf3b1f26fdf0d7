//! What there is to watch: status, rates, events; and what a change answers.

use super::job::JobInfo;
use super::pool::{DiskCounters, Health, MemoryBudget};
use super::vdisk::VdiskCounters;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What a changing operation did, or with `dry_run` would do.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// What came of it.
    pub outcome: Outcome,
    /// Whether nothing was changed because only the answer was asked for.
    pub dry_run: bool,
    /// What it is about: `pool tank`, `vdisk tank/media`.
    pub subject: String,
    /// What changed, one line each.
    pub changes: Vec<String>,
    /// The job that carries it out, `POOL/N`, when it takes long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// What came of a changing operation.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It exists now.
    Created,
    /// It is different now.
    Changed,
    /// It is gone now.
    Removed,
    /// It was so before.
    AlreadySo,
    /// A job does it.
    Started,
    /// It can be used now.
    Opened,
    /// It cannot be used now; nothing of it is lost.
    Closed,
}

/// Who answers.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The version of weft.
    pub weft: String,
    /// The version of the control API.
    pub api: String,
}

/// One screen: how everything is, and what needs a person.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct Status {
    /// The worst health of all pools; healthy when there are none, failed while one that is to be open is not.
    pub health: Health,
    /// The pools that are open.
    pub pools: Vec<PoolStatus>,
    /// The jobs that run, wait or are paused.
    pub jobs: Vec<JobInfo>,
    /// What other machines can use because they are named, a line for each export.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<String>,
    /// What needs a person, the worst first.
    pub attention: Vec<Attention>,
}

/// One pool in one line.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// How well it is.
    pub health: Health,
    /// The size of its disks, in bytes.
    pub capacity: u64,
    /// Bytes of its disks that are occupied.
    pub allocated: u64,
    /// Disks that work.
    pub disks_healthy: usize,
    /// Disks in all.
    pub disks: usize,
    /// Virtual disks.
    pub vdisks: usize,
    /// Exports that are active.
    pub exports: usize,
    /// How full it is, 0 to 100.
    pub full_percent: f64,
    /// The disks that carry its log.
    pub log_disks: Vec<String>,
    /// What of its virtual disks can be lost now.
    #[serde(default)]
    pub redundancy: Vec<VdiskStatus>,
}

/// The redundancy of one virtual disk, as it is now.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct VdiskStatus {
    /// Its name within its pool.
    pub name: String,
    /// How well it is.
    pub health: Health,
    /// How many disk failures its layout survives when all its disks are there.
    pub failures: u32,
    /// How many more disks can fail before something of what is written is lost.
    pub failures_left: u32,
    /// How many can fail before something is lost of what is written from now on; none: it cannot be written.
    pub failures_new: Option<u32>,
}

/// Something that needs a person.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct Attention {
    /// What it is about: `pool tank`, `disk tank/d2`.
    pub subject: String,
    /// What is the matter.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// All counters at one moment. Rates are the difference of two.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct Stat {
    /// When, on the daemon's monotonic clock, in nanoseconds.
    pub at_nanos: u64,
    /// The pools asked for.
    pub pools: Vec<PoolStat>,
    /// What the daemon holds in memory for all pools together.
    #[serde(default)]
    pub memory: Vec<MemoryBudget>,
}

/// The counters of one pool.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct PoolStat {
    /// Its name.
    pub name: String,
    /// Nanoseconds since it was opened, which is what the counters cover.
    pub open_nanos: u64,
    /// How full its log is, 0 to 1.
    pub log_fill: f64,
    /// Its virtual disks, or the one asked for.
    pub vdisks: Vec<VdiskStat>,
    /// Its disks.
    pub disks: Vec<DiskStat>,
    /// What it holds in memory.
    #[serde(default)]
    pub memory: Vec<MemoryBudget>,
}

/// The counters of one virtual disk.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct VdiskStat {
    /// Its name within its pool.
    pub name: String,
    /// What it did since the pool opened.
    pub counters: VdiskCounters,
}

/// The counters of one disk.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct DiskStat {
    /// Its name within its pool.
    pub name: String,
    /// What it did since the pool opened.
    pub counters: DiskCounters,
}

/// Some events, oldest first.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct EventPage {
    /// The events.
    pub events: Vec<EventInfo>,
    /// The number to ask after next.
    pub next: u64,
}

/// One event.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct EventInfo {
    /// Its number, from 1; it goes on where the daemon's last run ended.
    pub no: u64,
    /// When, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The pool it is about; none when it is about the daemon.
    pub pool: Option<String>,
    /// Whether a person should look.
    pub warning: bool,
    /// What happened.
    pub text: String,
    /// Its number in the history of its pool, when it was taken over from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_pool: Option<u64>,
    /// Whether it happened in this run of the daemon; known inside it only.
    #[serde(skip)]
    pub fresh: bool,
}

impl Change {
    /// A change of `subject` that came out as `outcome`.
    pub fn new(outcome: Outcome, subject: impl Into<String>, dry_run: bool) -> Change {
        Change { outcome, dry_run, subject: subject.into(), changes: Vec::new(), job: None }
    }

    /// Names the job that carries the change out.
    pub fn job(self, job: impl Into<String>) -> Change {
        Change { job: Some(job.into()), ..self }
    }

    /// Adds a line of what changed.
    pub fn line(mut self, line: impl Into<String>) -> Change {
        self.changes.push(line.into());
        self
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Created => "created",
            Outcome::Changed => "changed",
            Outcome::Removed => "removed",
            Outcome::AlreadySo => "already so",
            Outcome::Started => "started",
            Outcome::Opened => "opened",
            Outcome::Closed => "closed",
        })
    }
}
