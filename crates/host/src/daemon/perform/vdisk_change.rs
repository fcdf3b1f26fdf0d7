//! Another layout for a virtual disk that is used.

use super::Seen;
use super::job::already;
use super::vdisk::find_vdisk;
use crate::api::cache::WriteCache;
use crate::api::error::{Answer, ApiError};
use crate::api::job::{JobInfo, JobKind, JobState};
use crate::api::tier::TierChoice;
use crate::api::vdisk::{Layout, VdiskInfo};
use crate::api::watch::{Change, Outcome};
use crate::daemon::Daemon;
use crate::daemon::opening::wall_clock;
use crate::ops::Perform;
use crate::ops::disk::DiskAdd;
use crate::ops::job::JobList;
use crate::ops::line::ToLine;
use crate::ops::vdisk_change::VdiskChange;
use crate::ops::vdisk_set::VdiskSet;
use crate::ops::watch::StatusShow;
use weft_engine::error::{Error, ErrorKind};
use weft_engine::pool::Refusal;
use weft_engine::pool::change::{ChangeAsk, ChangePlan};

impl Perform<VdiskChange> for Daemon {
    fn perform(&self, change: &VdiskChange) -> Answer<Change> {
        change.validate()?;
        self.change_pool(&change.vdisk.pool, |seen| self.change_vdisk(seen, change))
    }
}

impl Daemon {
    fn change_vdisk(&self, seen: &Seen, request: &VdiskChange) -> Answer<Change> {
        let (name, dry_run) = (&request.vdisk, request.changing.dry_run);
        let vdisk = find_vdisk(&seen.pool, name)?;
        let pool = seen.writable()?;
        let resiliency = request.resiliency_asked(Some(vdisk.layout.resiliency))?;
        let ask = ChangeAsk {
            resiliency: resiliency.map(Into::into),
            columns: request.columns,
            interleave: request.interleave_bytes()?,
        };
        let planned = self.parts.engine.vdisk_change(name, ask, wall_clock(), request.changing.run());
        let planned = planned.map_err(|error| error.or_hint(|| StatusShow::of(&name.pool).line()))?;
        let (plan, job) = planned.map_err(|refusal| cannot_change(request, &vdisk, refusal))?;
        let subject = format!("vdisk {name}");
        if plan.is_already_so() {
            return Ok(Change::new(Outcome::AlreadySo, subject, dry_run).line(vdisk.layout.to_string()));
        }
        let ChangePlan { from, to, moves, goes_on } = plan;
        let ours = |job: &&JobInfo| {
            job.kind == JobKind::Reshape && job.vdisk.as_ref() == Some(&name.vdisk) && !job.state.is_over()
        };
        let under_way = pool.jobs.iter().find(ours);
        if let Some(job) = under_way.filter(|job| goes_on && job.state != JobState::Paused) {
            return Ok(already(job, subject, dry_run));
        }
        let (from, to) = (Layout::from(from), Layout::from(to));
        let change = Change::new(Outcome::Started, subject, dry_run);
        let change = match goes_on {
            true => change.line(format!("goes on: {from} -> {to}")),
            false => change.line(format!("layout {from} -> {to}")),
        };
        let change = change
            .line(format!("{moves} of data are moved while all of it is used; what is written has the new layout"));
        Ok(match job {
            Some(id) => change.job(format!("{}/{id}", name.pool)),
            None => change,
        })
    }
}

/// Why a virtual disk cannot get another layout, with what can be done.
fn cannot_change(request: &VdiskChange, now: &VdiskInfo, refusal: Refusal) -> ApiError {
    let name = &request.vdisk;
    let plain = VdiskChange::of(name);
    let hint = match &refusal {
        Refusal::TooFewDisks { layout, there, .. } => {
            let resiliency = Layout::from(*layout).resiliency;
            let columns = (there / usize::from(resiliency.disks_per_column())) as u8;
            match columns >= resiliency.columns_min() {
                true => VdiskChange { columns: Some(columns), ..asks_alike(request) }.line(),
                false => DiskAdd::some(&name.pool).line(),
            }
        }
        Refusal::NoRoom { .. } => DiskAdd::some(&name.pool).line(),
        Refusal::TooLarge { .. } => VdiskChange { interleave: None, ..asks_alike(request) }.line(),
        Refusal::Pool(error) if error.kind == ErrorKind::InvalidInput => {
            VdiskChange { columns: Some(now.layout.columns), ..plain }.line()
        }
        Refusal::Pool(error) if error.kind == ErrorKind::NotPossible && now.tier.is_some() => {
            VdiskSet { tier: Some(TierChoice::Off), ..VdiskSet::of(name) }.line()
        }
        Refusal::Pool(error) if error.kind == ErrorKind::NotPossible && now.older.is_empty() => match now.write_cache {
            Some(_) => VdiskSet::cache(name, WriteCache::Off).line(),
            None => StatusShow::of(&name.pool).line(),
        },
        Refusal::Pool(error) if error.kind == ErrorKind::NotPossible => JobList::of(&name.pool).line(),
        _ => StatusShow::of(&name.pool).line(),
    };
    ApiError::from(Error::from(refusal)).hint(hint)
}

/// Asks for the same, without the words that say how.
fn asks_alike(request: &VdiskChange) -> VdiskChange {
    VdiskChange { changing: Default::default(), wait: false, ..request.clone() }
}
