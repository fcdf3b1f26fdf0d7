//! Missing disks that lie where they were, and cannot be opened.

use super::{concern, repair_plan};
use crate::api::job::{JobInfo, JobKind};
use crate::api::pool::{DiskInfo, DiskState, Health, PoolInfo};
use crate::api::watch::Attention;
use crate::ops::disk::DiskShow;
use crate::ops::line::ToLine;

/// What is said of such a disk: what is in its way is to be taken away, and not the disk out of the pool. `None`: it is
/// none, or is on its way out.
pub(super) fn told(pool: &PoolInfo, disk: &DiskInfo) -> Option<Attention> {
    let under_way = |kind: JobKind| pool.jobs.iter().find(move |job| job.kind == kind && !job.state.is_over());
    let leaves = |job: &JobInfo| job.disk.as_ref() == Some(&disk.name);
    let why = disk.hindrance.as_ref().filter(|_| disk.state == DiskState::Missing && disk.copy_at.is_none())?;
    if under_way(JobKind::Evacuate).is_some_and(leaves) {
        return None;
    }
    let path = disk.path.as_ref()?.display();
    let whole = pool.vdisks.iter().all(|vdisk| vdisk.health == Health::Healthy);
    let meanwhile = match under_way(JobKind::Repair) {
        _ if pool.frozen.is_some() => "; the pool waits for it".into(),
        Some(job) => format!("; its data is being rebuilt (job {})", job.job),
        None if whole => String::new(),
        None => repair_plan(pool),
    };
    let message =
        format!("{}: {path} cannot be opened: {why}; it is used again by itself when it can be{meanwhile}", disk.state);
    let show = DiskShow::of(format!("{}/{}", pool.name, disk.name)).line();
    Some(concern(format!("disk {}/{}", pool.name, disk.name), message, show))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{disk, pool, told};
    use super::*;
    use crate::api::pool::Frozen;

    #[test]
    fn a_missing_disk_that_cannot_be_opened_is_told_with_the_reason_and_not_to_be_removed() {
        let mut tank = pool(vec![disk("d0", 1), disk("d1", 1)]);
        let away = &mut tank.disks[1];
        away.state = DiskState::Missing;
        (away.path, away.hindrance) = (Some("/srv/d1".into()), Some("Operation not permitted".into()));
        let said = "disk tank/d1: missing: /srv/d1 cannot be opened: Operation not permitted; it is used again by \
                    itself when it can be";
        assert_eq!(told(&tank), [format!("{said} | weft disk show tank/d1")]);
        tank.vdisks[0].health = Health::Degraded;
        assert_eq!(told(&tank), [format!("{said}; rebuilt where there is room after 5m | weft disk show tank/d1")]);
        tank.frozen = Some(Frozen { reason: "why".into(), seconds: 12, missing: vec!["d1".into()] });
        assert_eq!(told(&tank)[1], format!("{said}; the pool waits for it | weft disk show tank/d1"));
    }
}
