//! `weft plan`: asks the planner; the daemon only for the disks of a pool.

use super::{Ran, Session};
use crate::api::error::{Answer as Result, ApiError, Kind};
use crate::cli::args;
use crate::ops::{absolute, plan};
use crate::wire::client::Client;
use std::path::Path;
use weft_lab::jobs::Job;
use weft_lab::plan::{Question, Workload};
use weft_lab::recorded;

impl Session<'_, '_> {
    pub(super) fn plan(&mut self, told: &args::Plan) -> Ran {
        let find = |word: &str| match word.parse() {
            Ok(class) => Ok(class),
            Err(_) => self.classes()?.find(word),
        };
        let media = find(&told.media)?;
        let disks = match (&told.disks, &told.pool) {
            (Some(disks), _) => disks.of(media, find)?,
            (None, pool) => {
                let client = Client::new(self.socket()?);
                plan::members(&client, pool.as_deref().unwrap_or_default(), media)?
            }
        };
        let (workload, jobs) = match &told.workload {
            args::For::Kind(kind) => (*kind, Vec::new()),
            args::For::File(path) => (Workload::Own, own(path)?),
            args::For::Told(text) => {
                (Workload::Own, Job::read(text).map_err(|why| ApiError::new(Kind::InvalidInput, why))?)
            }
        };
        let question = Question {
            disks,
            grow: told.grow.as_ref().map_or(Ok(Vec::new()), |disks| disks.of(media, find))?,
            failures: told.failures,
            workload,
            jobs,
            exact: told.exact,
            failures_percent: told.disk_failures,
            replace_hours: told.replace_after * 24.0,
        };
        let answer = plan::answer(&question)?;
        if let Some(path) = &told.svg {
            keep(path, &weft_lab::picture::svg(&answer), "--svg plan.svg")?;
        }
        if let Some(path) = &told.html {
            keep(path, &weft_lab::page::html(&answer), "--html plan.html")?;
        }
        self.print(&crate::cli::text::Planned { answer, compare: told.compare })
    }
}

/// Writes a file that was asked for with `option`.
fn keep(path: &Path, text: &str, option: &str) -> Result<()> {
    let path = absolute(path)?;
    std::fs::write(&path, text).map_err(|error| {
        ApiError::new(Kind::NotPossible, format!("{} cannot be written: {error}", path.display()))
            .hint(format!("weft plan --disks 4x4TB {option}"))
    })
}

/// The jobs that a file describes.
fn own(path: &Path) -> Result<Vec<Job>> {
    let bad = |kind, why: String| {
        ApiError::new(kind, format!("{}: {why}", path.display())).hint("weft plan --disks 4x4TB --workload mixed")
    };
    let text = std::fs::read_to_string(path).map_err(|error| bad(Kind::NotPossible, error.to_string()))?;
    let jobs = if recorded::is_recording(&text) { recorded::jobs(&text) } else { Job::read(&text) };
    jobs.map_err(|why| bad(Kind::InvalidInput, why))
}
