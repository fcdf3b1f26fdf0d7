//! The life of a pool of memory: jobs that do a quarter of their work each time somebody looks.

use super::{FakeEngine, disk, write_label};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use weft_engine::pool::{Amount, Instead, Leaving, Protection, Refusal, VdiskPlan, VdiskSpec, Wanted};
use weft_engine::stripe::geometry::{Layout, Resiliency};
use weft_engine::units::ByteCount;
use weft_host::api::error::{Answer, ApiError, Kind};
use weft_host::api::job::{JobAction, JobInfo, JobKind, JobState};
use weft_host::api::pool::Usage;
use weft_host::api::pool::{DiskState, Health, PoolInfo};
use weft_host::daemon::backend::{DiskChange, Label, NewMember};

const WORK: u64 = 4 << 20;

impl FakeEngine {
    /// Lets the jobs of the open pools go on.
    pub(super) fn work(&self) {
        if self.storage.held.load(Ordering::Relaxed) {
            return;
        }
        let open = self.open.lock().unwrap();
        for pool in self.storage.pools.lock().unwrap().values_mut().filter(|pool| open.contains(&pool.name)) {
            for n in 0..pool.jobs.len() {
                let job = &mut pool.jobs[n];
                if job.state == JobState::Running {
                    job.done += WORK / 4;
                }
                if job.state == JobState::Running && job.done >= job.total {
                    job.state = JobState::Done;
                    finish(pool, n);
                }
            }
        }
    }

    /// Gives a pool another name, on its disks as well.
    pub(super) fn rename(&self, pool: &str, name: &str) -> Answer<()> {
        self.with(pool, |pool| {
            pool.name = name.into();
            for disk in &mut pool.disks {
                disk.pool = Some(name.into());
                if let Some(path) = &disk.path {
                    write_label(path, &pool.id, name, disk.id.as_ref().unwrap(), &disk.name);
                }
            }
            pool.vdisks.iter_mut().for_each(|vdisk| vdisk.name.pool = name.into());
        })?;
        self.open.lock().unwrap().iter_mut().filter(|open| *open == pool).for_each(|open| *open = name.into());
        Ok(())
    }
}

fn finish(pool: &mut PoolInfo, n: usize) {
    let job = &pool.jobs[n];
    match (job.kind, job.disk.clone()) {
        (JobKind::Evacuate, Some(gone)) => {
            let left = pool.disks.iter().position(|disk| disk.name == gone).expect("it was there");
            let disk = pool.disks.remove(left);
            if let Some(path) = disk.path.filter(|path| path.exists()) {
                let file = fs::File::options().write(true).open(path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 0).unwrap();
            }
        }
        (JobKind::Scrub, _) => pool.settings.scrubbed = Some(job.began),
        (JobKind::Repair, _) => {
            let returning = pool.disks.iter_mut().filter(|disk| disk.state == DiskState::Returning);
            returning.for_each(|disk| disk.state = DiskState::Healthy);
            pool.vdisks.iter_mut().for_each(|vdisk| vdisk.health = Health::Healthy);
        }
        _ => {}
    }
    let all = pool.disks.iter().all(|disk| disk.state == DiskState::Healthy);
    pool.health = if all { Health::Healthy } else { Health::Degraded };
}

pub(super) fn start(pool: &mut PoolInfo, kind: JobKind, name: &str, disk: Option<String>, now: u64) -> u32 {
    let id = pool.jobs.iter().map(|job| job.id).max().unwrap_or(0) + 1;
    pool.jobs.push(JobInfo {
        job: format!("{}/{id}", pool.name),
        pool: pool.name.clone(),
        id,
        name: name.into(),
        kind,
        disk,
        state: JobState::Running,
        done: 0,
        total: WORK,
        rate: 1 << 20,
        left_seconds: Some(4),
        began: now,
        note: String::new(),
    });
    id
}

pub(super) fn steer(pool: &mut PoolInfo, id: u32, action: JobAction) {
    let job = pool.jobs.iter_mut().find(|job| job.id == id).expect("it was there");
    job.state = match action {
        JobAction::Pause => JobState::Paused,
        JobAction::Resume => JobState::Running,
        JobAction::Cancel => JobState::Cancelled,
    };
}

pub(super) fn add(pool: &mut PoolInfo, member: &NewMember, usage: Usage) -> u16 {
    let no = pool.disks.iter().filter_map(|disk| disk.no).max().map_or(0, |no| no + 1);
    let disk_id = format!("{}{no}", pool.id);
    write_label(&member.path, &pool.id, &pool.name, &disk_id, &member.name);
    let capacity = fs::metadata(&member.path).unwrap().len();
    let mut added = disk(&pool.name, no, disk_id, member, capacity);
    added.usage = Some(usage);
    pool.disks.push(added);
    no
}

pub(super) fn judge_removal(pool: &PoolInfo, disk: u16, instead: Instead) -> Answer<Leaving> {
    let leaving = pool.disks.iter().find(|other| other.no == Some(disk)).expect("it was there");
    let others = pool.disks.len() - 1 + usize::from(matches!(instead, Instead::New(_)));
    let needed = pool.vdisks.iter().map(|vdisk| usize::from(vdisk.layout.columns)).max().unwrap_or(0);
    if others < needed {
        let message = format!("{} is missing: {needed} disks are needed and {others} would be left", ByteCount(WORK));
        return Err(ApiError::new(Kind::NoSpace, message));
    }
    Ok(Leaving { moves: ByteCount(leaving.allocated.max(WORK)), losses: Vec::new() })
}

pub(super) fn remove(pool: &mut PoolInfo, disk: u16, to: Option<u16>, now: u64) -> u32 {
    let name = |no: u16| pool.disks.iter().find(|disk| disk.no == Some(no)).unwrap().name.clone();
    let (leaving, to) = (name(disk), to.map(name));
    let what = match to {
        Some(to) => format!("replace disk {leaving} by {to}"),
        None => format!("remove disk {leaving}"),
    };
    start(pool, JobKind::Evacuate, &what, Some(leaving), now)
}

pub(super) fn set(pool: &mut PoolInfo, disk: u16, change: &DiskChange) {
    let disk = pool.disks.iter_mut().find(|other| other.no == Some(disk)).expect("it was there");
    disk.usage = change.usage.or(disk.usage);
    disk.media = change.media.unwrap_or(disk.media);
    disk.name = change.name.clone().unwrap_or(disk.name.clone());
    if let Some(domain) = &change.domain {
        disk.domain = (!domain.is_empty()).then(|| domain.clone());
    }
}

pub(super) fn judge_offline(pool: &PoolInfo) -> Answer<()> {
    if pool.disks.iter().filter(|disk| disk.state == DiskState::Healthy).count() < pool.disks.len() {
        return Err(ApiError::new(Kind::NotPossible, "it holds the last copy of something"));
    }
    Ok(())
}

pub(super) fn offline(pool: &mut PoolInfo, disk: u16) -> Answer<()> {
    judge_offline(pool)?;
    pool.disks.iter_mut().find(|other| other.no == Some(disk)).expect("it was there").state = DiskState::Maintenance;
    Ok(())
}

pub(super) fn online(pool: &mut PoolInfo, disk: u16) {
    pool.disks.iter_mut().find(|other| other.no == Some(disk)).expect("it was there").state = DiskState::Returning;
    start(pool, JobKind::Repair, "repair", None, 0);
}

pub(super) fn attach(pool: &mut PoolInfo, label: &Label, path: &Path) -> Answer<u16> {
    let Some(disk) = pool.disks.iter_mut().find(|disk| disk.id.as_ref() == Some(&label.disk_id)) else {
        return Err(ApiError::new(Kind::NotPossible, "it is no disk of this pool"));
    };
    disk.path = Some(path.into());
    disk.state = DiskState::Returning;
    let no = disk.no.expect("members have numbers");
    start(pool, JobKind::Repair, "repair", None, 0);
    Ok(no)
}

/// The bytes of `size` where there is room for `room`.
pub(super) fn bytes(size: Amount, room: ByteCount) -> ByteCount {
    match size {
        Amount::Bytes(bytes) => bytes,
        Amount::Share(percent) => {
            ByteCount(room.0 / 100 * u64::from(percent) + room.0 % 100 * u64::from(percent) / 100)
        }
    }
}

pub(super) fn plan_vdisk(pool: &PoolInfo, wanted: &Wanted) -> Result<VdiskPlan, Refusal> {
    let spec = &wanted.spec;
    let named = |no: u16| spec.disks == 0 || spec.disks >> no & 1 == 1;
    let healthy = pool.disks.iter().filter(|disk| disk.state == DiskState::Healthy);
    let there = healthy.filter(|disk| disk.no.is_some_and(named)).count();
    let resiliency = match wanted.protection {
        Protection::Given(resiliency) => resiliency,
        Protection::Chosen(failures) => Resiliency::chosen(there, failures),
    };
    let default = Layout::default_for(resiliency, there, false)?;
    let columns = spec.columns.unwrap_or(default.columns() as u8);
    let layout = Layout::new(resiliency, columns, spec.interleave.unwrap_or(ByteCount::kib(64)))?;
    if layout.slots() > there {
        return Err(Refusal::TooFewDisks { layout, there, named: spec.disks != 0 });
    }
    let room = ByteCount(pool.free / layout.slots() as u64 * layout.data_columns() as u64);
    let size = bytes(wanted.size, room);
    if spec.fixed && size > room {
        return Err(Refusal::NoRoom { layout, size: Some(size), room });
    }
    Ok(VdiskPlan { spec: VdiskSpec { size, resiliency, ..spec.clone() }, layout, room })
}
