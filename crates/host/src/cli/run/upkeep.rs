//! The commands of a pool's life after it was made.

use super::{Ran, Session, absolute};
use crate::api::Control;
use crate::api::error::{Answer, ApiError, BadValue, Kind};
use crate::api::job::{JobAction, JobStart, JobSteer, StartKind};
use crate::api::name::VdiskName;
use crate::api::pool::{ChangeQuery, PoolQuery};
use crate::api::upkeep::{DiskAdd, DiskRemove, DiskReplace, DiskSet, PoolImport, PoolSet, Rename};
use crate::api::watch::{Change, Outcome};
use crate::cli::args::{self, Changing, Job, OneJob};
use std::path::Path;

impl Session<'_, '_> {
    pub(super) fn job(&mut self, weft: &dyn Control, job: &Job) -> Ran {
        let mut steer = |OneJob { job, changing }: &OneJob, action| {
            let change = weft.job_steer(job, JobSteer { action, dry_run: changing.dry_run })?;
            self.changed(change)
        };
        match job {
            Job::Pause(one) => steer(one, JobAction::Pause),
            Job::Resume(one) => steer(one, JobAction::Resume),
            Job::Cancel(one) => steer(one, JobAction::Cancel),
            Job::List { pool } => self.print(&weft.job_list(&PoolQuery { pool: pool.clone() })?),
            Job::Show { job } => self.print(&weft.job_show(job)?),
        }
    }

    pub(super) fn start_job(&mut self, weft: &dyn Control, start: &args::StartJob, kind: StartKind) -> Ran {
        let change = weft.job_start(&start.pool, JobStart { kind, dry_run: start.changing.dry_run })?;
        self.started(weft, change, start.wait)
    }

    /// A job was started: says so, or waits for it.
    fn started(&mut self, weft: &dyn Control, change: Change, wait: bool) -> Ran {
        let job = change.job.clone().filter(|_| wait && !change.dry_run);
        let Some(job) = job else { return self.changed(change) };
        if !self.cli.common.json {
            self.changed(change)?;
        }
        self.wait(weft, &job)
    }

    pub(super) fn pool_rename(&mut self, weft: &dyn Control, rename: &args::PoolRename) -> Ran {
        let request = Rename { name: rename.new.clone(), dry_run: rename.changing.dry_run };
        self.changed(weft.pool_rename(&rename.pool, &request)?)
    }

    pub(super) fn vdisk_rename(&mut self, weft: &dyn Control, name: &VdiskName, new: &str, how: Changing) -> Ran {
        let plain = match new.split_once('/') {
            None => new,
            Some((pool, plain)) if pool == name.pool => plain,
            Some((pool, plain)) => {
                let message = format!("{name} is in pool {} and stays there; {pool} is another", name.pool);
                let hint = format!("weft vdisk rename {name} {plain}");
                return Err(ApiError::new(Kind::InvalidInput, message).hint(hint).into());
            }
        };
        self.changed(weft.vdisk_rename(name, &Rename { name: plain.into(), dry_run: how.dry_run })?)
    }

    /// Asks first where anything is given up.
    pub(super) fn vdisk_clear(&mut self, weft: &dyn Control, name: &VdiskName, how: Changing) -> Ran {
        if !how.dry_run && !how.yes {
            let would = weft.vdisk_clear(name, ChangeQuery { dry_run: true })?;
            if would.outcome != Outcome::AlreadySo {
                let harm = format!("clearing {} gives up writes that were lost", would.subject);
                let question = format!("Clear {}? What it lost is given up.", would.subject);
                self.agreed(&would, &harm, &question, "was left as it is")?;
            }
        }
        self.changed(weft.vdisk_clear(name, ChangeQuery { dry_run: how.dry_run })?)
    }

    pub(super) fn pool_set(&mut self, weft: &dyn Control, set: &args::PoolSettings) -> Ran {
        let asked = PoolSet { dry_run: set.changing.dry_run, ..PoolSet::default() };
        let asked = set.settings.iter().fold(asked, |asked, one| asked.and(*one));
        self.changed(weft.pool_set(&set.pool, &asked)?)
    }

    pub(super) fn pool_import(&mut self, weft: &dyn Control, import: &args::PoolImport) -> Ran {
        let args::PoolImport { pool, read_only, degraded, changing } = import;
        let Some(pool) = pool else { return self.print(&weft.importable()?) };
        let request =
            PoolImport { pool: pool.clone(), read_only: *read_only, degraded: *degraded, dry_run: changing.dry_run };
        // What is written then may count for nothing when the others are back, and what they hold, too.
        if *degraded && !*read_only && !changing.dry_run && !changing.yes {
            let would = weft.pool_import(&PoolImport { dry_run: true, ..request.clone() })?;
            if would.outcome != Outcome::AlreadySo {
                let harm =
                    format!("writing to {} without most of its disks gives up what only those know", would.subject);
                let question = format!(
                    "Write to {} without the disks that are missing? What only they know is given up.",
                    would.subject
                );
                self.agreed(&would, &harm, &question, "was left closed")?;
            }
        }
        self.changed(weft.pool_import(&request)?)
    }

    pub(super) fn pool_export(&mut self, weft: &dyn Control, export: &args::PoolExport) -> Ran {
        self.changed(weft.pool_export(&export.pool, ChangeQuery { dry_run: export.changing.dry_run })?)
    }

    pub(super) fn disk_add(&mut self, weft: &dyn Control, add: &args::DiskAdd) -> Ran {
        let request = DiskAdd {
            disks: add.disks.iter().map(|disk| absolute(disk)).collect::<Answer<_>>()?,
            usage: add.usage,
            create_size: add.create_size,
            force: add.force,
            dry_run: add.changing.dry_run,
        };
        self.changed(weft.disk_add(&add.pool, &request)?)
    }

    pub(super) fn disk_remove(&mut self, weft: &dyn Control, remove: &args::DiskRemove) -> Ran {
        let how = DiskRemove { force: remove.force, dry_run: remove.changing.dry_run };
        let change = weft.disk_remove(&remove.pool, &member(&remove.disk)?, how)?;
        self.started(weft, change, remove.wait)
    }

    pub(super) fn disk_replace(&mut self, weft: &dyn Control, replace: &args::DiskReplace) -> Ran {
        let of_pool = weft.pool_show(&replace.pool)?.disks.iter().any(|disk| disk.name == replace.new);
        let request = DiskReplace {
            by: if of_pool { replace.new.clone() } else { absolute(Path::new(&replace.new))?.display().to_string() },
            create_size: replace.create_size,
            force: replace.force,
            dry_run: replace.changing.dry_run,
        };
        let change = weft.disk_replace(&replace.pool, &member(&replace.old)?, &request)?;
        self.started(weft, change, replace.wait)
    }

    pub(super) fn disk_set(&mut self, weft: &dyn Control, set: &args::DiskSettings) -> Ran {
        let asked = DiskSet { dry_run: set.changing.dry_run, ..DiskSet::default() };
        let asked = set.settings.iter().fold(asked, |asked, one| asked.and(one.clone()));
        self.changed(weft.disk_set(&set.pool, &member(&set.disk)?, &asked)?)
    }
}

/// A disk as the daemon looks for it: what begins like a path is one, whatever the working directory.
fn member(disk: &str) -> Answer<String> {
    if disk.is_empty() {
        return Err(BadValue::new("a disk has a name, an identity or a path", "d1").into());
    }
    Ok(if disk.starts_with('.') { absolute(Path::new(disk))?.display().to_string() } else { disk.into() })
}
