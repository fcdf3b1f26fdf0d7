//! Jobs: showing, starting, steering.

use super::Seen;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::job::{JobAction, JobInfo, JobKind, JobState, StartKind, job_name};
use crate::api::name::VdiskName;
use crate::api::watch::{Change, Outcome};
use crate::daemon::Daemon;
use crate::daemon::opening::wall_clock;
use crate::ops::Perform;
use crate::ops::job::{JobList, JobShow, JobStart, JobSteer};
use crate::ops::line::ToLine;
use crate::ops::vdisk_change::VdiskChange;
use crate::ops::watch::StatusShow;

impl Perform<JobList> for Daemon {
    fn perform(&self, list: &JobList) -> Answer<Vec<JobInfo>> {
        let pools = match &list.pool {
            Some(pool) => vec![self.pool(pool)?],
            None => self.pools()?,
        };
        Ok(pools.into_iter().flat_map(|pool| pool.jobs).collect())
    }
}

impl Perform<JobShow> for Daemon {
    fn perform(&self, show: &JobShow) -> Answer<JobInfo> {
        self.job(&show.job)
    }
}

impl Perform<JobStart> for Daemon {
    fn perform(&self, start: &JobStart) -> Answer<Change> {
        self.change_pool(&start.pool, |seen| self.start_job(seen, start))
    }
}

impl Perform<JobSteer> for Daemon {
    fn perform(&self, steer: &JobSteer) -> Answer<Change> {
        let found = self.job(&steer.job)?;
        self.change(&found.pool, || self.steer_job(&found.job, steer))
    }
}

impl Daemon {
    /// One job, by `POOL/N` or, where only one pool has it, by `N`.
    fn job(&self, wanted: &str) -> Answer<JobInfo> {
        let (pool, _) = job_name(wanted).map_err(|bad| ApiError::from(bad).offer(&JobList::default()))?;
        pool.map(|pool| self.pool(pool)).transpose()?;
        self.job_of_open_pool(wanted)
    }

    /// Finds a job of an open pool, without a look for pools that are not open.
    fn job_of_open_pool(&self, wanted: &str) -> Answer<JobInfo> {
        let (pool, id) = job_name(wanted)?;
        let mut jobs = self.perform(&JobList::default())?;
        jobs.retain(|job| pool.is_none_or(|pool| pool == job.pool));
        let known = jobs.iter().map(|job| job.job.clone()).collect::<Vec<_>>();
        let mut found: Vec<JobInfo> = jobs.into_iter().filter(|job| job.id == id).collect();
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => {
                let (there, hint) = match known.as_slice() {
                    [] => ("there are none".into(), JobList::default().line()),
                    [only] => (format!("there is {only}"), JobShow::of(only).line()),
                    _ => (format!("there are {}", known.join(", ")), JobList::default().line()),
                };
                Err(ApiError::new(Kind::NotFound, format!("no job {wanted}; {there}")).hint(hint))
            }
            n => {
                let message = format!("{n} pools have a job {wanted}; POOL/N names one");
                Err(ApiError::new(Kind::InvalidInput, message).offer(&JobShow::of(&found[0].job)))
            }
        }
    }

    fn start_job(&self, seen: &Seen, request: &JobStart) -> Answer<Change> {
        let pool = seen.writable()?;
        let dry_run = request.changing.dry_run;
        let kind = JobKind::from(request.kind);
        let subject = format!("{kind} of pool {}", pool.name);
        if let Some(job) = pool.jobs.iter().find(|job| job.kind == kind && !job.state.is_over()) {
            return Ok(already(job, subject, dry_run));
        }
        let change = Change::new(Outcome::Started, subject, dry_run).line(match request.kind {
            StartKind::Repair => "what is missing is computed from the other disks and written to those that have room",
            StartKind::Scrub => "everything that is written is read and proven; what is wrong is written again",
            StartKind::Rebalance => "slabs move until all disks are equally full",
        });
        let id = self.parts.engine.job_start(&pool.name, request.kind, wall_clock(), request.changing.run())?;
        Ok(match id {
            Some(id) => change.job(format!("{}/{id}", pool.name)),
            None => change,
        })
    }

    fn steer_job(&self, wanted: &str, request: &JobSteer) -> Answer<Change> {
        let job = self.job_of_open_pool(wanted)?;
        let (action, dry_run) = (request.action, request.changing.dry_run);
        let becomes = match action {
            JobAction::Pause => JobState::Paused,
            JobAction::Resume => JobState::Running,
            JobAction::Cancel => JobState::Cancelled,
        };
        let so_already = match (action, job.state) {
            (JobAction::Resume, JobState::Waiting | JobState::Running) => true,
            (_, state) => state == becomes,
        };
        let subject = format!("job {}", job.job);
        if so_already {
            let change = Change::new(Outcome::AlreadySo, subject, dry_run);
            return Ok(change.line(format!("{}: {}", job.name, job.state)).job(job.job));
        }
        if job.state.is_over() {
            let message = format!("job {} ({}) is {} and cannot {action} any more", job.job, job.name, job.state);
            return Err(ApiError::new(Kind::NotPossible, message).offer(&JobList::of(&job.pool)));
        }
        let steered = self.parts.engine.job_steer(&job.pool, job.id, action, request.changing.run());
        steered.map_err(|error| error.or_hint(|| StatusShow::of(&job.pool).line()))?;
        let mut change = Change::new(Outcome::Changed, subject, dry_run).line(format!(
            "{}: {} -> {becomes}, {:.0} % done",
            job.name,
            job.state,
            job.percent()
        ));
        if let (JobAction::Cancel, Some(disk)) = (action, &job.disk) {
            change = change.line(format!("disk {disk} stays, and takes new data again"));
        }
        if let (JobAction::Cancel, Some(vdisk)) = (action, &job.vdisk) {
            let name = VdiskName { pool: job.pool.clone(), vdisk: vdisk.clone() };
            let line = VdiskChange::of(&name).line();
            change =
                change.line(format!("what lies as before stays so, and is used as ever; `{line}` goes on with it"));
        }
        Ok(change.job(job.job))
    }
}

/// What was asked for is being done by `job`.
pub(in crate::daemon) fn already(job: &JobInfo, subject: String, dry_run: bool) -> Change {
    let line = format!("job {} is {}, {:.0} % done", job.job, job.state, job.percent());
    Change::new(Outcome::AlreadySo, subject, dry_run).line(line).job(job.job.clone())
}
