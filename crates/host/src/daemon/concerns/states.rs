//! Disks that are not healthy.

use super::{concern, copies, of_pool, repair_plan};
use crate::api::job::JobKind;
use crate::api::pool::{DiskInfo, DiskState, Health, PoolInfo, Usage};
use crate::api::watch::Attention;
use crate::ops::disk::{DiskRemove, DiskReplace, DiskShow};
use crate::ops::job::JobShow;
use crate::ops::line::ToLine;
use crate::ops::settings::DiskSet;

/// A disk that is not healthy: what becomes of it by itself, or what to do.
pub(super) fn told(pool: &PoolInfo, disk: &DiskInfo) -> Option<Attention> {
    let (pool_name, name) = (&pool.name, &disk.name);
    let last_seen = last_seen(disk);
    let show = DiskShow::of(format!("{pool_name}/{name}")).line();
    let again = DiskSet::back(pool_name, name).line();
    let running = |kind: JobKind| pool.jobs.iter().find(|job| job.kind == kind && !job.state.is_over());
    let leaving = running(JobKind::Evacuate).filter(|job| job.disk.as_ref() == Some(name));
    let (message, hint) = match disk.state {
        DiskState::Healthy => return None,
        DiskState::Returning => {
            let job = running(JobKind::Repair).map(|job| format!(" (job {})", job.job)).unwrap_or_default();
            (format!("back; what it missed is being brought to it{job}"), show)
        }
        // Nothing can be done with it, and nothing is rebuilt, where nothing may be written.
        state if pool.read_only && pool.frozen.is_none() && disk.copy_at.is_none() => {
            (format!("{state}{last_seen}"), show)
        }
        DiskState::Maintenance => ("in maintenance: nothing is read from it or written to it".into(), again),
        state if leaving.is_some() => {
            let job = leaving.map(|job| job.job.as_str()).unwrap_or_default();
            (format!("{state}{last_seen}; it is leaving the pool (job {job})"), JobShow::of(job).line())
        }
        DiskState::Failed if disk.out_of_room => (
            format!(
                "taken out{last_seen}: the file system of its file is full; it is used again by itself when there is \
                room"
            ),
            format!("df {}", disk.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()),
        ),
        DiskState::Failed if pool.frozen.is_some() => (
            format!(
                "failed{last_seen}: it answered with errors and was taken out; the pool waits for it, it can be given \
                another chance"
            ),
            again,
        ),
        state if disk.copy_at.is_some() => (format!("{state}{}", copies::not_taken(disk)), show),
        state if pool.frozen.is_some() => (format!("{state}{last_seen}; the pool waits for it"), show),
        state => {
            let told = format!("{state}{last_seen}");
            let redundant = pool.vdisks.iter().all(|vdisk| vdisk.health == Health::Healthy);
            match (running(JobKind::Repair), redundant) {
                (Some(job), _) => {
                    (format!("{told}; its data is being rebuilt (job {})", job.job), JobShow::of(&job.job).line())
                }
                // What is in its way is to be taken away, and not the disk out of the pool.
                (None, true) if hindrance(disk).is_some() => (told, show),
                (None, false) if hindrance(disk).is_some() => (told + &repair_plan(pool), show),
                (None, true) if disk.needed_by.is_empty() => (
                    format!("{told}; all data has its full redundancy without it"),
                    DiskRemove::of(pool_name, name).line(),
                ),
                (None, false) if state == DiskState::Failed && disk.usage != Some(Usage::Retired) => (
                    format!(
                        "{told}: it answered with errors and was taken out{}; it can be given another chance",
                        repair_plan(pool)
                    ),
                    again,
                ),
                (None, true) => (
                    format!(
                        "{told}; without it new data has less redundancy than {} asks for",
                        of_pool(pool, &disk.needed_by)
                    ),
                    DiskReplace::some(pool_name, name).line(),
                ),
                (None, false) => (told + &repair_plan(pool), DiskReplace::some(pool_name, name).line()),
            }
        }
    };
    Some(concern(format!("disk {pool_name}/{name}"), message, hint))
}

/// Where it was, and what is in the way of opening it there.
fn last_seen(disk: &DiskInfo) -> String {
    match (&disk.path, hindrance(disk)) {
        (Some(path), Some(why)) => {
            format!(": {} cannot be opened: {why}; it is used again by itself when it can be", path.display())
        }
        (Some(path), None) => format!(", last seen as {}", path.display()),
        (None, _) => String::new(),
    }
}

/// Why a missing disk cannot be opened.
fn hindrance(disk: &DiskInfo) -> Option<&String> {
    disk.hindrance.as_ref().filter(|_| disk.state == DiskState::Missing && disk.copy_at.is_none())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{disk, pool, told};
    use crate::api::pool::Frozen;
    use crate::api::pool::{DiskState, Health};

    #[test]
    fn a_missing_disk_that_cannot_be_opened_is_told_with_the_reason_and_not_to_be_removed() {
        let mut tank = pool(vec![disk("d0", 1), disk("d1", 1)]);
        let away = &mut tank.disks[1];
        away.state = DiskState::Missing;
        (away.path, away.hindrance) = (Some("/srv/d1".into()), Some("Operation not permitted".into()));
        let said = "disk tank/d1: missing: /srv/d1 cannot be opened: Operation not permitted; it is used again by \
                    itself when it can be";
        assert_eq!(told(&tank), [format!("{said} | weft disk show tank/d1")]);
        tank.read_only = true;
        assert_eq!(told(&tank)[0], format!("{said} | weft disk show tank/d1"));
        tank.read_only = false;
        tank.vdisks[0].health = Health::Degraded;
        assert_eq!(told(&tank), [format!("{said}; rebuilt where there is room after 5m | weft disk show tank/d1")]);
        tank.frozen = Some(Frozen { reason: "why".into(), seconds: 12, missing: vec!["d1".into()] });
        assert_eq!(told(&tank)[1], format!("{said}; the pool waits for it | weft disk show tank/d1"));
    }
}
