//! What there is to watch: status and counters.

use super::{Daemon, lock};
use crate::api::error::Answer;
use crate::api::export::ExportInfo;
use crate::api::name::VdiskName;
use crate::api::pool::{DiskState, Health, PoolInfo, PoolQuery};
use crate::api::watch::{Attention, DiskStat, PoolStat, PoolStatus, Stat, StatQuery, Status, VdiskStat};

/// Above this share of a pool's disks being occupied a person should look.
const FULL: f64 = 0.9;

impl Daemon {
    pub(super) fn watch_status(&self, query: &PoolQuery) -> Answer<Status> {
        let pools = match &query.pool {
            Some(pool) => vec![self.pool(pool)?],
            None => self.pools()?,
        };
        let mut attention = Vec::new();
        for unopened in
            lock(&self.unopened).iter().filter(|unopened| query.pool.as_ref().is_none_or(|pool| *pool == unopened.name))
        {
            attention.push(Attention {
                subject: format!("pool {}", unopened.name),
                message: format!("not open: {}", unopened.reason),
                hint: Some("weft disk list".into()),
            });
        }
        let exports = self.exports();
        pools.iter().for_each(|pool| concerns(pool, &mut attention));
        let concerned = |export: &&ExportInfo| query.pool.as_ref().is_none_or(|pool| *pool == export.vdisk.pool);
        for export in exports.iter().filter(concerned) {
            if let Some(reason) = &export.reason {
                attention.push(Attention {
                    subject: format!("export {}", export.vdisk),
                    message: format!("not offered on {}: {reason}", export.nbd),
                    hint: Some(format!("weft export remove {}", export.vdisk)),
                });
            }
        }
        Ok(Status {
            health: pools.iter().map(|pool| pool.health).max().unwrap_or(Health::Healthy),
            jobs: pools.iter().flat_map(|pool| pool.jobs.clone()).collect(),
            pools: pools.iter().map(|pool| in_one_line(pool, &exports)).collect(),
            attention,
        })
    }

    pub(super) fn watch_stat(&self, query: &StatQuery) -> Answer<Stat> {
        let at_nanos = self.started.elapsed().as_nanos() as u64;
        let (pools, only) = match query.of.as_deref() {
            None => (self.pools()?, None),
            Some(of) if of.contains('/') => {
                let name: VdiskName = of.parse()?;
                self.vdisk(&name)?;
                (vec![self.pool(&name.pool)?], Some(name))
            }
            Some(pool) => (vec![self.pool(pool)?], None),
        };
        Ok(Stat { at_nanos, pools: pools.iter().map(|pool| counters(pool, only.as_ref())).collect() })
    }
}

fn in_one_line(pool: &PoolInfo, exports: &[ExportInfo]) -> PoolStatus {
    PoolStatus {
        name: pool.name.clone(),
        health: pool.health,
        capacity: pool.capacity,
        allocated: pool.allocated,
        disks_healthy: pool.disks.iter().filter(|disk| disk.state == DiskState::Healthy).count(),
        disks: pool.disks.len(),
        vdisks: pool.vdisks.len(),
        exports: exports.iter().filter(|export| export.active && export.vdisk.pool == pool.name).count(),
    }
}

/// What of a pool needs a person, the worst first.
fn concerns(pool: &PoolInfo, attention: &mut Vec<Attention>) {
    let mut concern = |subject: String, message: String, hint: Option<String>| {
        attention.push(Attention { subject, message, hint });
    };
    for vdisk in pool.vdisks.iter().filter(|vdisk| vdisk.health == Health::Failed) {
        concern(
            format!("vdisk {}", vdisk.name),
            "some of its data cannot be read".into(),
            Some(format!("weft pool check {}", pool.name)),
        );
    }
    for disk in pool.disks.iter().filter(|disk| disk.state != DiskState::Healthy) {
        let last_seen = disk.path.as_ref().map(|path| format!(", last seen as {}", path.display())).unwrap_or_default();
        let message = format!("{}{last_seen}", disk.state);
        concern(
            format!("disk {}/{}", pool.name, disk.name),
            message,
            Some(format!("weft disk show {}/{}", pool.name, disk.name)),
        );
    }
    for disk in pool.disks.iter().filter(|disk| disk.state == DiskState::Healthy && disk.counters.errors > 0) {
        let message = format!("{} of its reads and writes failed", disk.counters.errors);
        concern(format!("disk {}/{}", pool.name, disk.name), message, Some(format!("weft events {}", pool.name)));
    }
    if pool.read_only {
        concern(format!("pool {}", pool.name), "accepts no writes".into(), Some(format!("weft events {}", pool.name)));
    }
    if pool.capacity > 0 && pool.allocated as f64 > FULL * pool.capacity as f64 {
        let share = pool.allocated as f64 / pool.capacity as f64 * 100.0;
        concern(
            format!("pool {}", pool.name),
            format!("{share:.0} % full"),
            Some(format!("weft vdisk list {}", pool.name)),
        );
    }
}

fn counters(pool: &PoolInfo, only: Option<&VdiskName>) -> PoolStat {
    let shown = pool.vdisks.iter().filter(|vdisk| only.is_none_or(|only| vdisk.name == *only));
    PoolStat {
        name: pool.name.clone(),
        open_nanos: pool.open_nanos,
        log_fill: pool.log_fill,
        vdisks: shown.map(|vdisk| VdiskStat { name: vdisk.name.vdisk.clone(), counters: vdisk.counters }).collect(),
        disks: pool.disks.iter().map(|disk| DiskStat { name: disk.name.clone(), counters: disk.counters }).collect(),
    }
}
