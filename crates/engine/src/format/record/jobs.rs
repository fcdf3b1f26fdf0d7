//! Settings and jobs as records: what the owner wants, and the long work that follows from it.

use super::*;
use crate::units::{DiskNo, JobNo, VdiskNo};

pub(super) fn encode_settings(settings: &SettingsRecord) -> SettingsBody {
    SettingsBody {
        repair_after: settings.repair_after,
        scrub_every: settings.scrub_every,
        scrubbed: settings.scrubbed,
        foreground_share: settings.foreground_share,
        full: settings.full,
        tiers_at: settings.tiers_at.map_or(0, |minutes| minutes + 1),
        pad_0: 0,
    }
}

pub(super) fn decode_settings(body: &[u8]) -> Result<SettingsRecord> {
    let (settings, _) = take::<SettingsBody>(body)?;
    Ok(SettingsRecord {
        repair_after: settings.repair_after,
        scrub_every: settings.scrub_every,
        scrubbed: settings.scrubbed,
        foreground_share: settings.foreground_share.min(90),
        full: settings.full,
        tiers_at: settings.tiers_at.checked_sub(1).filter(|minutes| *minutes < MINUTES_OF_DAY),
    })
}

pub(super) fn encode_job(job: &JobRecord) -> JobBody {
    let (kind, disk, to, forget) = match job.kind {
        JobKind::Repair => (0, DISK_ABSENT, None, false),
        JobKind::Scrub => (1, DISK_ABSENT, None, false),
        JobKind::Rebalance => (2, DISK_ABSENT, None, false),
        JobKind::Evacuate { disk, to, forget } => (3, disk, to, forget),
        // The lower half of the number, and the upper one.
        JobKind::Reshape(VdiskNo(no)) => (4, DiskNo(no as u16), Some(DiskNo((no >> 16) as u16)), false),
        JobKind::Optimize(VdiskNo(no)) => (5, DiskNo(no as u16), Some(DiskNo((no >> 16) as u16)), false),
    };
    JobBody {
        id: job.id.0,
        kind,
        state: job.state as u8,
        disk: disk.0,
        to: to.unwrap_or(DISK_ABSENT).0,
        forget: forget as u8,
        pad_0: 0,
        cursor: job.cursor,
        began: job.began,
        done: job.done,
        total: job.total,
        bad: job.bad,
        healed: job.healed,
    }
}

pub(super) fn decode_job(body: &[u8]) -> Result<JobRecord> {
    let (job, _) = take::<JobBody>(body)?;
    let kind = match job.kind {
        0 => JobKind::Repair,
        1 => JobKind::Scrub,
        2 => JobKind::Rebalance,
        3 => JobKind::Evacuate {
            disk: DiskNo(job.disk),
            to: (job.to != DISK_ABSENT.0).then_some(DiskNo(job.to)),
            forget: job.forget != 0,
        },
        4 => JobKind::Reshape(VdiskNo(u32::from(job.to) << 16 | u32::from(job.disk))),
        5 => JobKind::Optimize(VdiskNo(u32::from(job.to) << 16 | u32::from(job.disk))),
        other => return fail!(Corrupt, "jobs of kind {other} are not known"),
    };
    let state = match job.state {
        0 => JobState::Waiting,
        1 => JobState::Running,
        2 => JobState::Paused,
        3 => JobState::Done,
        4 => JobState::Cancelled,
        5 => JobState::Failed,
        other => return fail!(Corrupt, "a job is in state {other}, which is not known"),
    };
    Ok(JobRecord {
        id: JobNo(job.id),
        kind,
        state,
        began: job.began,
        done: job.done,
        total: job.total,
        cursor: job.cursor,
        bad: job.bad,
        healed: job.healed,
    })
}
