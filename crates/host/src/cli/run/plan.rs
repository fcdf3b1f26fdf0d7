//! `weft plan`: asks the planner; the daemon only for the disks of a pool.

use super::{Ran, Session};
use crate::api::error::{Answer as Result, ApiError, Kind};
use crate::api::pool::Media;
use crate::cli::args;
use crate::ops::pool::PoolShow;
use crate::ops::{Perform, absolute};
use crate::wire::client::Client;
use std::path::Path;
use weft_engine::error::ErrorKind;
use weft_lab::disks::{Class, PlannedDisk};
use weft_lab::jobs::Job;
use weft_lab::plan::{Question, Workload, plan};
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
                members(&client, pool.as_deref().unwrap_or_default(), media)?
            }
        };
        let (workload, jobs) = match &told.workload {
            args::For::Kind(kind) => (*kind, Vec::new()),
            args::For::File(path) => (Workload::Own, own(path)?),
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
        let answer = plan(&question).map_err(|error| {
            let kind = match error.kind {
                ErrorKind::NoSpace => Kind::NoSpace,
                ErrorKind::InvalidInput => Kind::InvalidInput,
                _ => Kind::NotPossible,
            };
            ApiError::new(kind, error.to_string()).hint("weft plan --disks 4x4TB --failures 1")
        })?;
        if let Some(path) = &told.svg {
            let path = absolute(path)?;
            std::fs::write(&path, weft_lab::picture::svg(&answer)).map_err(|error| {
                ApiError::new(Kind::NotPossible, format!("{} cannot be written: {error}", path.display()))
                    .hint("weft plan --disks 4x4TB --svg plan.svg")
            })?;
        }
        self.print(&crate::cli::text::Planned { answer, compare: told.compare })
    }
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

/// The disks of an open pool. A pool knows of a disk whether it is solid-state; `media` says which hard disks the
/// others are.
fn members(weft: &Client, pool: &str, media: Class) -> Result<Vec<PlannedDisk>> {
    let class = |of: &Media| match of {
        Media::Ssd => Class::Ssd,
        _ if media.rotational() => media,
        _ => Class::Hdd7200,
    };
    let pool = weft.perform(&PoolShow { pool: pool.into() })?;
    Ok(pool.disks.iter().map(|disk| PlannedDisk { size: disk.capacity, class: class(&disk.media) }).collect())
}
