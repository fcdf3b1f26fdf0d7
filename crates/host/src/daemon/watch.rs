//! What there is to watch: status and counters.

use super::concerns::{concerns, full_percent};
use super::exports::{LOST, reach};
use super::opening::{Unopened, Why};
use super::{Daemon, lock};
use crate::api::error::Answer;
use crate::api::export::ExportInfo;
use crate::api::name::VdiskName;
use crate::api::pool::{DiskState, Health, PoolInfo, PoolQuery};
use crate::api::vdisk::VdiskInfo;
use crate::api::watch::{Attention, DiskStat, PoolStat, PoolStatus, Stat, StatQuery, Status, VdiskStat, VdiskStatus};

impl Daemon {
    pub(super) fn watch_status(&self, query: &PoolQuery) -> Answer<Status> {
        let pools = match &query.pool {
            Some(pool) => vec![self.pool(pool)?],
            None => self.pools()?,
        };
        let mut attention = Vec::new();
        let asked = |name: &String| query.pool.as_ref().is_none_or(|pool| pool == name);
        for unopened in lock(&self.unopened).iter().filter(|unopened| asked(&unopened.found.name)) {
            // What a person closed needs none.
            if unopened.why != Why::Exported {
                attention.push(Attention {
                    subject: format!("pool {}", unopened.found.name),
                    message: format!("not open: {}", unopened.found.reason),
                    hint: Some(unopened.hint()),
                });
            }
        }
        let exports = self.exports();
        let mut reached = Vec::new();
        attention.extend(pools.iter().flat_map(concerns));
        for export in exports.iter().filter(|export| asked(&export.vdisk.pool)) {
            // That of a mount whose device was lost is the mount's affair.
            if let Some(reason) = export.reason.as_ref().filter(|reason| *reason != LOST) {
                // What is offered again when its pool is open is not to be forgotten.
                let unopened = lock(&self.unopened);
                let opening = unopened.iter().find(|unopened| unopened.found.name == export.vdisk.pool);
                attention.push(Attention {
                    subject: format!("export {}", export.vdisk),
                    message: format!("not offered on {}: {reason}", export.uri),
                    hint: opening.map(Unopened::hint).or(Some(format!("weft export remove {}", export.vdisk))),
                });
            }
        }
        for export in exports.iter().filter(|export| asked(&export.vdisk.pool) && export.active) {
            let Some((at, (who, how))) = export.place().and_then(|at| Some((at.clone(), reach(&export.terms, &at)?)))
            else {
                continue;
            };
            if !export.terms.allow.is_empty() {
                reached.push(format!("{} on {at}: {who} can {how} it", export.vdisk));
                continue;
            }
            attention.push(Attention {
                subject: format!("export {}", export.vdisk),
                message: format!("any machine that reaches {at} can {how} it, without a password or encryption"),
                hint: Some(format!("weft export remove {} --nbd {}", export.vdisk, at)),
            });
        }
        attention.extend(self.mounts_that_need_a_person());
        Ok(Status {
            health: pools.iter().map(|pool| pool.health).max().unwrap_or(Health::Healthy),
            jobs: pools.iter().flat_map(|pool| &pool.jobs).filter(|job| !job.state.is_over()).cloned().collect(),
            pools: pools.iter().map(|pool| in_one_line(pool, &exports)).collect(),
            reached,
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
        let memory = self.parts.exports.memory();
        Ok(Stat { at_nanos, pools: pools.iter().map(|pool| counters(pool, only.as_ref())).collect(), memory })
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
        full_percent: full_percent(pool),
        log_disks: pool.disks.iter().filter(|disk| disk.logs).map(|disk| disk.name.clone()).collect(),
        redundancy: pool.vdisks.iter().map(redundancy).collect(),
    }
}

fn redundancy(vdisk: &VdiskInfo) -> VdiskStatus {
    VdiskStatus {
        name: vdisk.name.vdisk.clone(),
        health: vdisk.health,
        failures: vdisk.layout.resiliency.failures().into(),
        failures_left: vdisk.failures_left,
        failures_new: vdisk.failures_new,
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
        memory: pool.memory.clone(),
    }
}
