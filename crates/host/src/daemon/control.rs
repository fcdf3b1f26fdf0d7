//! The daemon as [`Control`]: which operation is whose, and which of them run alone.

use super::{Daemon, lock};
use crate::api::error::Answer;
use crate::api::export::{ExportAdd, ExportInfo, ExportRemove};
use crate::api::job::{JobInfo, JobStart, JobSteer};
use crate::api::mount::{MountForget, MountInfo};
use crate::api::name::VdiskName;
use crate::api::pool::{ChangeQuery, CheckQuery, CheckReport, DiskInfo, PoolCreate, PoolInfo, PoolQuery};
use crate::api::upkeep::{DiskAdd, DiskRemove, DiskReplace, DiskSet, Importable, PoolImport, PoolSet, Rename};
use crate::api::vdisk::{ExplainQuery, Explanation, VdiskCreate, VdiskInfo, VdiskResize};
use crate::api::watch::{Change, EventPage, EventQuery, Outcome, Stat, StatQuery, Status, Version};
use crate::api::{API_VERSION, Control};

impl Daemon {
    /// Runs a changing operation alone, and notes what it changed.
    fn change(&self, pool: &str, operation: impl FnOnce() -> Answer<Change>) -> Answer<Change> {
        let _alone = lock(&self.changing);
        let change = operation()?;
        // A job that has started is told of by the pool itself.
        if !change.dry_run && !matches!(change.outcome, Outcome::AlreadySo | Outcome::Started) {
            let what = match change.outcome {
                Outcome::Changed => format!(": {}", change.changes.join("; ")),
                _ => String::new(),
            };
            self.parts.journal.note(Some(pool), format!("{} {}{what}", change.subject, change.outcome));
        }
        Ok(change)
    }
}

impl Control for Daemon {
    fn version(&self) -> Answer<Version> {
        Ok(Version { weft: env!("CARGO_PKG_VERSION").into(), api: API_VERSION.into() })
    }

    fn status(&self, query: &PoolQuery) -> Answer<Status> {
        self.watch_status(query)
    }

    fn stat(&self, query: &StatQuery) -> Answer<Stat> {
        self.watch_stat(query)
    }

    fn events(&self, query: &EventQuery) -> Answer<EventPage> {
        if let Some(pool) = query.pool.as_ref().filter(|pool| !self.parts.journal.knows(pool)) {
            self.pool(pool)?;
        }
        Ok(self.parts.journal.page(query))
    }

    fn pool_list(&self) -> Answer<Vec<PoolInfo>> {
        self.pools()
    }

    fn pool_show(&self, pool: &str) -> Answer<PoolInfo> {
        self.pool(pool)
    }

    fn pool_create(&self, request: &PoolCreate) -> Answer<Change> {
        self.change(&request.name, || self.create_pool(request))
    }

    fn pool_remove(&self, pool: &str, how: ChangeQuery) -> Answer<Change> {
        self.pool(pool)?;
        self.change(pool, || self.remove_pool(pool, how))
    }

    fn pool_check(&self, pool: &str, how: CheckQuery) -> Answer<CheckReport> {
        self.pool(pool)?;
        let repair = how.repair && !how.dry_run;
        let _alone = repair.then(|| lock(&self.changing));
        self.parts.engine.pool_check(pool, repair)
    }

    fn pool_rename(&self, pool: &str, request: &Rename) -> Answer<Change> {
        self.pool(pool)?;
        self.change(pool, || self.rename_pool(pool, request))
    }

    fn pool_set(&self, pool: &str, request: &PoolSet) -> Answer<Change> {
        self.pool(pool)?;
        self.change(pool, || self.set_pool(pool, request))
    }

    fn pool_export(&self, pool: &str, how: ChangeQuery) -> Answer<Change> {
        // One that is waited for is not there.
        if let Err(error) = self.pool(pool)
            && self.waited_for(pool).is_none()
        {
            return Err(error);
        }
        self.change(pool, || self.export_pool(pool, how))
    }

    fn importable(&self) -> Answer<Vec<Importable>> {
        let _alone = lock(&self.changing);
        Ok(self.importable_pools())
    }

    fn pool_import(&self, request: &PoolImport) -> Answer<Change> {
        self.change(&request.pool, || self.import_pool(request))
    }

    fn job_list(&self, query: &PoolQuery) -> Answer<Vec<JobInfo>> {
        self.jobs(query)
    }

    fn job_show(&self, job: &str) -> Answer<JobInfo> {
        self.job(job)
    }

    fn job_start(&self, pool: &str, request: JobStart) -> Answer<Change> {
        self.pool(pool)?;
        self.change(pool, || self.start_job(pool, request))
    }

    fn job_steer(&self, job: &str, request: JobSteer) -> Answer<Change> {
        let found = self.job(job)?;
        self.change(&found.pool, || self.steer_job(&found.job, request))
    }

    fn disk_list(&self, query: &PoolQuery) -> Answer<Vec<DiskInfo>> {
        self.disks(query)
    }

    fn disk_show(&self, disk: &str) -> Answer<DiskInfo> {
        self.disk(disk)
    }

    fn disk_add(&self, pool: &str, request: &DiskAdd) -> Answer<Change> {
        self.pool(pool)?;
        self.change(pool, || self.add_disks(pool, request))
    }

    fn disk_remove(&self, pool: &str, disk: &str, how: DiskRemove) -> Answer<Change> {
        self.pool(pool)?;
        self.change(pool, || self.remove_disk(pool, disk, how))
    }

    fn disk_replace(&self, pool: &str, disk: &str, request: &DiskReplace) -> Answer<Change> {
        self.pool(pool)?;
        self.change(pool, || self.replace_disk(pool, disk, request))
    }

    fn disk_set(&self, pool: &str, disk: &str, request: &DiskSet) -> Answer<Change> {
        self.pool(pool)?;
        self.change(pool, || self.set_disk(pool, disk, request))
    }

    fn vdisk_list(&self, query: &PoolQuery) -> Answer<Vec<VdiskInfo>> {
        let pools = match &query.pool {
            Some(pool) => vec![self.pool(pool)?],
            None => self.pools()?,
        };
        Ok(pools.into_iter().flat_map(|pool| pool.vdisks).collect())
    }

    fn vdisk_show(&self, vdisk: &VdiskName) -> Answer<VdiskInfo> {
        self.vdisk(vdisk)
    }

    fn vdisk_create(&self, request: &VdiskCreate) -> Answer<Change> {
        request.judge()?;
        self.pool(&request.name.pool)?;
        self.change(&request.name.pool, || self.create_vdisk(request))
    }

    fn vdisk_resize(&self, vdisk: &VdiskName, request: &VdiskResize) -> Answer<Change> {
        self.vdisk(vdisk)?;
        self.change(&vdisk.pool, || self.resize_vdisk(vdisk, request))
    }

    fn vdisk_rename(&self, vdisk: &VdiskName, request: &Rename) -> Answer<Change> {
        self.vdisk(vdisk)?;
        self.change(&vdisk.pool, || self.rename_vdisk(vdisk, request))
    }

    fn vdisk_remove(&self, vdisk: &VdiskName, how: ChangeQuery) -> Answer<Change> {
        self.vdisk(vdisk)?;
        self.change(&vdisk.pool, || self.remove_vdisk(vdisk, how))
    }

    fn vdisk_clear(&self, vdisk: &VdiskName, how: ChangeQuery) -> Answer<Change> {
        self.vdisk(vdisk)?;
        self.change(&vdisk.pool, || self.clear_vdisk(vdisk, how))
    }

    fn explain(&self, vdisk: &VdiskName, query: ExplainQuery) -> Answer<Explanation> {
        self.explain_request(vdisk, query)
    }

    fn export_list(&self) -> Answer<Vec<ExportInfo>> {
        Ok(self.exports())
    }

    fn export_add(&self, request: &ExportAdd) -> Answer<Change> {
        self.vdisk(&request.vdisk)?;
        self.change(&request.vdisk.pool, || self.add_export(request))
    }

    fn export_remove(&self, vdisk: &VdiskName, how: &ExportRemove) -> Answer<Change> {
        self.change(&vdisk.pool, || self.remove_export(vdisk, how))
    }

    fn mount_list(&self) -> Answer<Vec<MountInfo>> {
        Ok(self.mounts())
    }

    fn mount_note(&self, mount: &MountInfo) -> Answer<Change> {
        self.vdisk(&mount.vdisk)?;
        self.change(&mount.vdisk.pool, || self.note_mount(mount))
    }

    fn mount_forget(&self, which: &MountForget) -> Answer<Change> {
        let pool = self.mounts().into_iter().find(|mount| mount.dir == which.dir).map(|mount| mount.vdisk.pool);
        self.change(&pool.unwrap_or_default(), || self.forget_mount(&which.dir))
    }
}
