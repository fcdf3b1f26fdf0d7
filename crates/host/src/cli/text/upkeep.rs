//! The text of jobs, of pools that are not open, and of what a pool does by itself.

use super::Text;
use crate::api::job::{JobInfo, JobState};
use crate::api::pool::{DiskInfo, Latency, PoolInfo};
use crate::api::span;
use crate::api::upkeep::Importable;
use crate::cli::table::{Rows, Style, Tone, cell, human, pairs, percent};
use crate::daemon::upkeep::shown;
use std::time::{Duration, UNIX_EPOCH};

impl Text for Vec<JobInfo> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no jobs\n".into();
        }
        jobs(self, style)
    }
}

/// A table of jobs.
pub(super) fn jobs(jobs: &[JobInfo], style: Style) -> String {
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

impl Text for Vec<Importable> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no pools to import: those that were found are open\n".into();
        }
        let mut rows = Rows::new(style, &["POOL", "IDENTITY", ">DISKS", "NOT FOUND", "WHY IT IS NOT OPEN"]);
        for pool in self {
            let missing = if pool.missing.is_empty() { "-".into() } else { pool.missing.join(",") };
            rows.row(vec![cell(&pool.name), cell(&pool.id), cell(pool.disks.len()), cell(missing), cell(&pool.reason)]);
        }
        rows.draw()
    }
}

/// How full the log is, and where it is.
pub(super) fn log(pool: &PoolInfo) -> String {
    let disks: Vec<&str> = pool.disks.iter().filter(|disk| disk.logs).map(|disk| disk.name.as_str()).collect();
    let on = if disks.is_empty() { String::new() } else { format!(", on {}", disks.join(", ")) };
    format!("{} full{on}", percent(pool.log_fill * 100.0))
}

/// What a pool does by itself, and what of it cannot be used.
pub(super) fn settings(pool: &PoolInfo) -> Vec<(&'static str, String)> {
    let mut lines: Vec<(&'static str, String)> = shown(&pool.settings).into_iter().collect();
    let scrubbed = pool.settings.scrubbed.map_or_else(
        || "never".into(),
        |at| humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(at.min(u32::MAX.into()))).to_string(),
    );
    lines.push(("last scrub", scrubbed));
    let room = pool.free.saturating_sub(pool.unusable);
    if pool.promised > room {
        let told = format!(
            "{} to virtual disks, {} more than there is room for",
            human(pool.promised),
            human(pool.promised - room)
        );
        lines.push(("promised", told));
    }
    if pool.unusable > 0 {
        let why = pool.unusable_why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        lines.push(("not usable", format!("{}{why}", human(pool.unusable))));
    }
    lines
}

/// The state of a disk, with a word more when it works and is slow.
pub(super) fn state_of_disk(disk: &DiskInfo) -> (String, Tone) {
    match disk.slow {
        true => (format!("{}, slow", disk.state), Tone::Poor),
        false => (disk.state.to_string(), super::disk_tone(disk.state)),
    }
}

/// What a disk is used for, and how it answers.
pub(super) fn use_of_disk(disk: &DiskInfo) -> Vec<(&'static str, String)> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let latency = disk.latency.map(|latency| {
        let Latency { p50_nanos, p99_nanos, max_nanos } = latency;
        let ms = |nanos: u64| format!("{:.1} ms", nanos as f64 / 1e6);
        format!("half within {}, 99 % within {}, longest {}", ms(p50_nanos), ms(p99_nanos), ms(max_nanos))
    });
    vec![
        ("usage", or_none(disk.usage.map(|usage| usage.to_string()))),
        ("domain", or_none(disk.domain.clone())),
        ("latency", or_none(latency)),
        ("log", if disk.logs { "a copy of it is here".into() } else { "-".into() }),
        ("vote", if disk.votes { "yes".into() } else { "-".into() }),
    ]
}
