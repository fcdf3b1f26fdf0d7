//! Long jobs of a pool: `weft job`, and the verbs that start one.

use super::table::{Rows, Style, Tone, cell, human, pairs, percent};
use super::text::Text;
use super::{Changing, Doer, Verb, values, verb};
use crate::api::job::{JobAction, JobInfo, JobState, StartKind};
use crate::api::span;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::time::{Duration, UNIX_EPOCH};
use utoipa::{IntoParams, ToSchema};

/// `weft job`.
#[derive(Subcommand, Clone, Debug)]
pub enum Job {
    /// List the jobs that run, wait or are paused, and the last ones that ended
    #[command(after_help = "Examples:\n  weft job list\n  weft job list tank")]
    List(JobList),
    /// Show one job
    #[command(after_help = "Examples:\n  weft job show tank/3\n  weft job show 3")]
    Show(JobShow),
    /// Pause a job: it keeps what it did
    #[command(after_help = "Examples:\n  weft job pause tank/3")]
    Pause(JobSteer),
    /// Let a paused job go on
    #[command(after_help = "Examples:\n  weft job resume tank/3")]
    Resume(JobSteer),
    /// End a job; what it did stays as it is
    #[command(after_help = "Examples:\n  weft job cancel tank/3")]
    Cancel(JobSteer),
}

impl Job {
    /// Does what was typed.
    pub fn run<D: Doer>(self, doer: &mut D) -> D::Done {
        match self {
            Job::List(operation) => doer.operate(operation),
            Job::Show(operation) => doer.operate(operation),
            Job::Pause(operation) => doer.operate(JobSteer { action: JobAction::Pause, ..operation }),
            Job::Resume(operation) => doer.operate(JobSteer { action: JobAction::Resume, ..operation }),
            Job::Cancel(operation) => doer.operate(JobSteer { action: JobAction::Cancel, ..operation }),
        }
    }
}

impl JobList {
    /// Asks for the jobs of `pool`.
    pub fn of(pool: &str) -> JobList {
        JobList { pool: Some(pool.into()) }
    }
}

impl JobShow {
    /// Asks for one job.
    pub fn of(job: &str) -> JobShow {
        JobShow { job: job.into() }
    }
}

impl JobStart {
    /// Asks `pool` for a job.
    pub fn of(pool: &str, kind: StartKind) -> JobStart {
        JobStart { pool: pool.into(), kind, wait: false, changing: Changing::default() }
    }
}

impl JobSteer {
    /// Asks to steer `job`.
    pub fn of(job: &str, action: JobAction) -> JobSteer {
        JobSteer { job: job.into(), action, changing: Changing::default() }
    }
}

/// Asks for the jobs.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobList {
    /// Only this pool's.
    #[arg(value_parser = values::name)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// Asks for one job.
#[derive(Args, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct JobShow {
    /// POOL/N, or N where only one pool has it
    #[arg(value_name = "ID", value_parser = values::job)]
    #[serde(skip)]
    pub job: String,
}

/// Asks for a job. Disks are evacuated by removing or replacing them.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct JobStart {
    /// The pool
    #[arg(value_parser = values::name)]
    #[serde(skip)]
    pub pool: String,
    /// What it shall do.
    #[arg(skip = StartKind::Scrub)]
    pub kind: StartKind,
    /// Show the job's progress, and return when it is done
    #[arg(long)]
    #[serde(skip)]
    pub wait: bool,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks to steer a job.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct JobSteer {
    /// POOL/N, or N where only one pool has it
    #[arg(value_name = "ID", value_parser = values::job)]
    #[serde(skip)]
    pub job: String,
    /// What to do with it.
    #[arg(skip = JobAction::Pause)]
    pub action: JobAction,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

verb!(JobList: "job list");

verb!(JobShow: "job show");

impl Verb for JobStart {
    fn verb(&self) -> &'static str {
        match self.kind {
            StartKind::Repair => "repair",
            StartKind::Scrub => "scrub",
            StartKind::Rebalance => "rebalance",
        }
    }

    fn changing(&mut self) -> Option<&mut Changing> {
        Some(&mut self.changing)
    }

    fn waits(&self) -> bool {
        self.wait
    }
}

impl Verb for JobSteer {
    fn verb(&self) -> &'static str {
        match self.action {
            JobAction::Pause => "job pause",
            JobAction::Resume => "job resume",
            JobAction::Cancel => "job cancel",
        }
    }

    fn changing(&mut self) -> Option<&mut Changing> {
        Some(&mut self.changing)
    }
}

impl Text for Vec<JobInfo> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no jobs\n".into();
        }
        jobs(self, style)
    }
}

/// A table of jobs.
fn jobs(jobs: &[JobInfo], style: Style) -> String {
    let mut rows = Rows::new(style, &["JOB", "WHAT", "STATE", ">DONE", ">OF", ">SHARE", ">RATE", ">LEFT", "NOTE"]);
    for job in jobs {
        let over = job.state.is_over();
        let rate = if over || job.rate == 0 { "-".into() } else { format!("{}/s", human(job.rate)) };
        let left = job.left_seconds.filter(|_| !over).map_or_else(|| "-".into(), span::left);
        rows.row(vec![
            cell(&job.job),
            cell(&job.name),
            (job.state.to_string(), tone(job.state)),
            cell(human(job.done)),
            cell(human(job.total)),
            cell(percent(job.percent())),
            cell(rate),
            cell(left),
            cell(&job.note),
        ]);
    }
    rows.draw()
}

impl Text for JobInfo {
    fn text(&self, _: Style) -> String {
        let began =
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(self.began.min(u32::MAX.into())));
        let mut shown = vec![
            ("job", self.job.clone()),
            ("what", self.name.clone()),
            ("state", self.state.to_string()),
            ("progress", format!("{}, {}", percent(self.percent()), progress(self))),
            ("began", began.to_string()),
        ];
        if !self.note.is_empty() {
            shown.push(("note", self.note.clone()));
        }
        pairs(&shown)
    }
}

/// How far a job is, in words.
pub(crate) fn progress(job: &JobInfo) -> String {
    let mut text = format!("{} of {}", human(job.done), human(job.total));
    if job.state == JobState::Running && job.rate > 0 {
        text += &format!(", {}/s", human(job.rate));
    }
    match (job.state, job.left_seconds) {
        (JobState::Running, Some(left)) => text += &format!(", {} left", span::left(left)),
        (JobState::Waiting | JobState::Paused, _) => text += &format!(", {}", job.state),
        _ => {}
    }
    if job.state == JobState::Waiting && !job.note.is_empty() {
        text += &format!(": {}", job.note);
    }
    text
}

fn tone(state: JobState) -> Tone {
    match state {
        JobState::Done => Tone::Good,
        JobState::Waiting | JobState::Paused | JobState::Cancelled => Tone::Poor,
        JobState::Failed => Tone::Bad,
        JobState::Running => Tone::Plain,
    }
}
