//! Long jobs of a pool: what they are called, how far they are, and how they are started and steered.

use super::error::BadValue;
use super::validate;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// What a job does.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Gives back the redundancy that missing disks took, and brings returned disks up to date.
    Repair,
    /// Reads and proves everything that is written, and rewrites what is wrong.
    Scrub,
    /// Moves slabs until all disks are equally full.
    Rebalance,
    /// Moves everything off one disk.
    Evacuate,
    /// Brings the data of a virtual disk into the layout that it is to have.
    Reshape,
    /// Brings what is sought out most of a virtual disk to its fast tier.
    Optimize,
}

/// How a job is.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It begins when what it waits for is over.
    Waiting,
    /// It works.
    Running,
    /// A person paused it.
    Paused,
    /// It did all there was to do.
    Done,
    /// A person cancelled it.
    Cancelled,
    /// It ended before all was done; its note says why.
    Failed,
}

/// A long job of a pool.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct JobInfo {
    /// What it is asked for by: `POOL/N`.
    pub job: String,
    /// The pool it works on.
    pub pool: String,
    /// Its number within the pool.
    pub id: u32,
    /// What it does, and to what: `repair`, `remove disk d3`.
    pub name: String,
    /// What it does.
    pub kind: JobKind,
    /// The disk that it works on, when it is one.
    pub disk: Option<String>,
    /// The virtual disk that it works on, when it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vdisk: Option<String>,
    /// How it is.
    pub state: JobState,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all, as far as is known.
    pub total: u64,
    /// Bytes per second, lately.
    pub rate: u64,
    /// Seconds until it is done, as far as can be told.
    pub left_seconds: Option<u64>,
    /// When it was asked for, in seconds since 1970 UTC.
    pub began: u64,
    /// What it found; why it failed, or what it waits for.
    pub note: String,
}

/// The jobs that are asked for by their kind alone. Disks are evacuated by removing or replacing them.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum StartKind {
    /// See [`JobKind::Repair`].
    Repair,
    /// See [`JobKind::Scrub`].
    Scrub,
    /// See [`JobKind::Rebalance`].
    Rebalance,
}

/// What to do with a job.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum JobAction {
    /// It stops, and keeps what it did.
    Pause,
    /// It goes on.
    Resume,
    /// It ends; what it did stays as it is.
    Cancel,
}

impl JobInfo {
    /// The share that is done, 0 to 100.
    pub fn percent(&self) -> f64 {
        match (self.state, self.total) {
            (JobState::Done, _) => 100.0,
            (_, 0) => 0.0,
            _ => self.done.min(self.total) as f64 / self.total as f64 * 100.0,
        }
    }
}

impl JobState {
    /// Whether nothing more comes of the job.
    pub fn is_over(self) -> bool {
        matches!(self, JobState::Done | JobState::Cancelled | JobState::Failed)
    }
}

impl From<StartKind> for JobKind {
    fn from(kind: StartKind) -> JobKind {
        match kind {
            StartKind::Repair => JobKind::Repair,
            StartKind::Scrub => JobKind::Scrub,
            StartKind::Rebalance => JobKind::Rebalance,
        }
    }
}

/// Validates what names a job: `POOL/N`, or `N` where only one pool has a job of that number. The pool, if named, and
/// the number.
pub fn job_name(text: &str) -> Result<(Option<&str>, u32), BadValue> {
    let (pool, number) = match text.rsplit_once('/') {
        Some((pool, number)) => (Some(pool), number),
        None => (None, text),
    };
    let fits = pool.is_none_or(|pool| validate::name(pool).is_ok());
    match number.parse() {
        Ok(number) if fits && !text.contains('+') => Ok((pool, number)),
        _ => {
            let pool = pool.map(|pool| format!("{}/", validate::nearest_name(pool))).unwrap_or_default();
            Err(BadValue::new(format!("`{text}` names no job; POOL/N or N does"), format!("{pool}1")))
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobKind::Repair => "repair",
            JobKind::Scrub => "scrub",
            JobKind::Rebalance => "rebalance",
            JobKind::Evacuate => "evacuate",
            JobKind::Reshape => "reshape",
            JobKind::Optimize => "optimize",
        })
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobState::Waiting => "waiting",
            JobState::Running => "running",
            JobState::Paused => "paused",
            JobState::Done => "done",
            JobState::Cancelled => "cancelled",
            JobState::Failed => "failed",
        })
    }
}

impl fmt::Display for JobAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobAction::Pause => "pause",
            JobAction::Resume => "resume",
            JobAction::Cancel => "cancel",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_with_or_without_its_pool() {
        assert_eq!(job_name("tank/3"), Ok((Some("tank"), 3)));
        assert_eq!(job_name("3"), Ok((None, 3)));
        for text in ["", "tank", "tank/", "/3", "tank/x", "a/b/3", "-1", "+3", "99999999999"] {
            let nearest = job_name(text).expect_err(text).nearest.unwrap();
            assert!(job_name(&nearest).is_ok(), "{text}: {nearest}");
        }
    }
}
