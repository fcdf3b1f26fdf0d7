//! What there is to watch: status and counters.

use super::export::reach;
use crate::api::API_VERSION;
use crate::api::error::Answer;
use crate::api::export::ExportInfo;
use crate::api::name::VdiskName;
use crate::api::pool::{DiskState, Health, PoolInfo};
use crate::api::vdisk::VdiskInfo;
use crate::api::watch::{
    Attention, DiskStat, EventPage, PoolStat, PoolStatus, Stat, Status, VdiskStat, VdiskStatus, Version,
};
use crate::daemon::concerns::{concerns, full};
use crate::daemon::opening::{Unopened, Why};
use crate::daemon::{Daemon, lock};
use crate::ops::Perform;
use crate::ops::export::ExportRemove;
use crate::ops::line::ToLine;
use crate::ops::watch::{EventList, StatShow, StatusShow, VersionShow};

impl Perform<VersionShow> for Daemon {
    fn perform(&self, _: &VersionShow) -> Answer<Version> {
        Ok(Version { weft: env!("CARGO_PKG_VERSION").into(), api: API_VERSION.into() })
    }
}

impl Perform<EventList> for Daemon {
    fn perform(&self, list: &EventList) -> Answer<EventPage> {
        if let Some(pool) = list.pool.as_ref().filter(|pool| !self.parts.journal.knows(pool)) {
            self.pool(pool)?;
        }
        Ok(self.parts.journal.page(list))
    }
}

impl Perform<StatusShow> for Daemon {
    fn perform(&self, query: &StatusShow) -> Answer<Status> {
        let asked = |name: &String| query.pool.as_ref().is_none_or(|pool| pool == name);
        // In this order: one that is opened meanwhile is in both, and not in neither.
        let mut unopened = lock(&self.unopened).clone();
        let pools = match &query.pool {
            Some(pool) => vec![self.pool(pool)?],
            None => self.pools()?,
        };
        unopened
            .retain(|unopened| asked(&unopened.found.name) && pools.iter().all(|pool| pool.id != unopened.found.id));
        // What a person closed needs none.
        let waiting = unopened.iter().filter(|unopened| unopened.why != Why::Exported);
        let mut attention: Vec<Attention> = waiting.map(not_open).collect();
        let mut exports = self.exports();
        exports.retain(|export| asked(&export.vdisk.pool));
        let mut reached = Vec::new();
        attention.extend(pools.iter().flat_map(concerns));
        // That of a mount whose device was lost is the mount's affair.
        for export in exports.iter().filter(|export| !self.waits_for_its_mount(export)) {
            let Some(reason) = &export.reason else { continue };
            // What is offered again when its pool is open is not to be forgotten.
            let opening = unopened.iter().find(|unopened| unopened.found.name == export.vdisk.pool);
            let (reason, hint) = match self.is_about_to_be_offered(export, &pools) {
                true => ("its pool was opened a moment ago", None),
                false => {
                    (reason.as_str(), opening.map(Unopened::hint).or(Some(ExportRemove::all(&export.vdisk).line())))
                }
            };
            attention.push(Attention {
                subject: format!("export {}", export.vdisk),
                message: format!("not offered on {}: {reason}", export.uri),
                hint,
            });
        }
        for export in exports.iter().filter(|export| export.active) {
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
                hint: Some(ExportRemove::at(&export.vdisk, at).line()),
            });
        }
        attention.extend(self.mounts_that_need_a_person());
        let waits = unopened.iter().any(Unopened::is_wanted);
        let healths = pools.iter().map(|pool| pool.health).chain(waits.then_some(Health::Failed));
        Ok(Status {
            health: healths.max().unwrap_or(Health::Healthy),
            jobs: pools.iter().flat_map(|pool| &pool.jobs).filter(|job| !job.state.is_over()).cloned().collect(),
            pools: pools.iter().map(|pool| in_one_line(pool, &exports)).collect(),
            reached,
            attention,
        })
    }
}

impl Perform<StatShow> for Daemon {
    fn perform(&self, query: &StatShow) -> Answer<Stat> {
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

fn not_open(unopened: &Unopened) -> Attention {
    Attention {
        subject: format!("pool {}", unopened.found.name),
        message: format!("not open: {}", unopened.found.reason),
        hint: Some(unopened.hint()),
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
        full_percent: full::percent(pool),
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
