//! The life of a pool, on the engine's thread: jobs, members, settings. Each function is one question of the daemon.

use super::open::{OpenPool, new_disk};
use super::world::named;
use super::{Pools, info, labels};
use crate::api::daily::Daily;
use crate::api::error::{Answer, ApiError};
use crate::api::job::{JobAction, JobInfo, JobKind, JobState, StartKind};
use crate::api::pool::{Media, PoolInfo, PoolSettings, Usage};
use crate::api::power::PowerSetting;
use crate::daemon::backend::{DiskChange, NewMember, Run};
use crate::disk::DiskOptions;
use crate::runtime::Local;
use std::path::PathBuf;
use std::rc::Rc;
use weft_engine::format::record::{self, SettingsRecord};
use weft_engine::pool::cache::{CacheTurn, DisksThen};
use weft_engine::pool::create::NewDisk;
use weft_engine::pool::{Instead, Leaving, job};
use weft_engine::units::{ByteCount, DiskNo, JobNo};

/// A span of the engine's that never ends, in seconds.
const NEVER: u32 = u32::MAX;

/// Gives an open pool another name.
pub async fn rename(local: Rc<Local<Pools>>, pool: String, name: String, run: Run) -> Answer<PoolInfo> {
    let open = local.state().pool(&pool)?;
    match run {
        Run::Dry => open.pool.plan_rename(&name)?,
        Run::Real => {
            open.pool.rename(&name).await?;
            let mut pools = local.state().open.borrow_mut();
            pools.remove(&pool);
            pools.insert(name, open.clone());
        }
    }
    Ok(info::pool(&open, local.world().now()))
}

/// What the pool does by itself, in the words of the API.
pub fn settings(settings: &SettingsRecord) -> PoolSettings {
    let span = |seconds: u32| (seconds != NEVER).then_some(u64::from(seconds));
    PoolSettings {
        repair_after_seconds: span(settings.repair_after),
        scrub_every_seconds: span(settings.scrub_every),
        scrubbed: (settings.scrubbed > 0).then_some(settings.scrubbed),
        foreground_share: settings.foreground_share,
        full: settings.full,
        tier_schedule: Daily(settings.tiers_at),
    }
}

/// Changes what the pool does by itself; when it was scrubbed stays.
pub async fn set(open: Rc<OpenPool>, asked: PoolSettings, run: Run) -> Answer<()> {
    let span = |seconds: Option<u64>| seconds.map_or(NEVER, |seconds| u32::try_from(seconds).unwrap_or(NEVER - 1));
    let now = open.pool.settings();
    let next = SettingsRecord {
        repair_after: span(asked.repair_after_seconds),
        scrub_every: span(asked.scrub_every_seconds),
        foreground_share: asked.foreground_share,
        full: asked.full,
        tiers_at: asked.tier_schedule.0,
        ..now
    };
    match run {
        Run::Dry => open.pool.plan_set(&next)?,
        Run::Real => open.pool.set(next).await?,
    }
    Ok(())
}

/// The pool's jobs: those that have not ended first, then those that have, the last first.
pub fn jobs(open: &OpenPool, pool: &str) -> Vec<JobInfo> {
    let mut jobs: Vec<JobInfo> = open.pool.jobs().iter().map(|info| job_info(open, pool, info)).collect();
    jobs.sort_by_key(|job| (job.state.is_over(), if job.state.is_over() { u32::MAX - job.id } else { job.id }));
    jobs
}

fn job_info(open: &OpenPool, pool: &str, info: &job::JobInfo) -> JobInfo {
    let disk_name = |no: DiskNo| open.disk_name(no);
    let (kind, disk) = match info.kind {
        job::JobKind::Repair => (JobKind::Repair, None),
        job::JobKind::Scrub => (JobKind::Scrub, None),
        job::JobKind::Rebalance => (JobKind::Rebalance, None),
        job::JobKind::Evacuate { disk, .. } => (JobKind::Evacuate, Some(disk_name(disk))),
        job::JobKind::Reshape(_) => (JobKind::Reshape, None),
        job::JobKind::Optimize(_) => (JobKind::Optimize, None),
    };
    let vdisk = match info.kind {
        job::JobKind::Reshape(vdisk) | job::JobKind::Optimize(vdisk) => open.vdisk_name(vdisk),
        _ => None,
    };
    // While it works: at its end it says so itself.
    let note = match info.bad {
        (bad, healed) if bad > 0 && info.note.is_empty() => format!("{bad} bad blocks so far, {healed} rewritten"),
        _ => info.note.clone(),
    };
    JobInfo {
        job: format!("{pool}/{}", info.id),
        pool: pool.into(),
        id: info.id.0,
        name: match &vdisk {
            Some(vdisk) if kind == JobKind::Optimize => format!("optimize the tiers of {vdisk}"),
            Some(vdisk) => format!("reshape {vdisk}"),
            None => named(&job::describe(info.kind), &disk_name),
        },
        kind,
        disk,
        vdisk,
        state: match info.state {
            job::JobState::Waiting => JobState::Waiting,
            job::JobState::Running => JobState::Running,
            job::JobState::Paused => JobState::Paused,
            job::JobState::Done => JobState::Done,
            job::JobState::Cancelled => JobState::Cancelled,
            job::JobState::Failed => JobState::Failed,
        },
        done: info.done.0,
        total: info.total.0,
        rate: info.rate.0,
        left_seconds: info.left.map(|left| left.0.div_ceil(1_000_000_000)),
        began: info.began,
        note: named(&note, &disk_name),
    }
}

/// Starts a job at the moment `now`.
pub async fn start(open: Rc<OpenPool>, kind: StartKind, now: u64, run: Run) -> Answer<Option<u32>> {
    let kind = match kind {
        StartKind::Repair => job::JobKind::Repair,
        StartKind::Scrub => job::JobKind::Scrub,
        StartKind::Rebalance => job::JobKind::Rebalance,
    };
    Ok(match run {
        Run::Dry => open.pool.plan_job_start().map(|()| None)?,
        Run::Real => Some(open.pool.job_start(kind, now).await?.0),
    })
}

/// Pauses, resumes or cancels a job.
pub async fn steer(open: Rc<OpenPool>, id: u32, action: JobAction, run: Run) -> Answer<()> {
    let (pool, id) = (&open.pool, JobNo(id));
    match (run, action) {
        (Run::Dry, JobAction::Pause) => pool.plan_job_steer(id, job::JobState::Paused).map(|_| ())?,
        (Run::Dry, JobAction::Resume) => pool.plan_job_steer(id, job::JobState::Waiting).map(|_| ())?,
        (Run::Dry, JobAction::Cancel) => pool.plan_job_steer(id, job::JobState::Cancelled).map(|_| ())?,
        (Run::Real, JobAction::Pause) => pool.job_pause(id).await?,
        (Run::Real, JobAction::Resume) => pool.job_resume(id).await?,
        (Run::Real, JobAction::Cancel) => pool.job_cancel(id).await?,
    }
    Ok(())
}

/// Refuses whatever adding these disks would refuse, then says which caches the pool would choose with them.
pub async fn validate_add(
    open: Rc<OpenPool>,
    new: Vec<(ByteCount, Media, String)>,
    usage: Usage,
) -> Answer<Vec<CacheTurn>> {
    open.pool.plan_growth(new.len())?;
    new.iter().try_for_each(|(capacity, _, name)| open.pool.plan_disk_add(*capacity, name).map(drop))?;
    let new = new.into_iter().map(|(capacity, media, name)| (capacity, engine_media(media), name)).collect();
    Ok(open.pool.plan_caches_then(&DisksThen::Joined(new, engine_usage(usage))))
}

/// Chooses caches anew that are the pool's to choose, now that its disks have changed. What is done is done: where this
/// fails, that is told, and the next change of disks tries again.
pub async fn review_caches(open: Rc<OpenPool>) -> Answer<Vec<CacheTurn>> {
    Ok(open.pool.review_caches().await.unwrap_or_else(|error| {
        let pool = open.pool.name();
        open.journal.warn(Some(&pool), format!("write-back caches are not chosen anew: {error}"));
        Vec::new()
    }))
}

/// Refuses whatever adding this disk would refuse, then says what it comes to when it takes the place of another.
pub async fn validate_replacement(
    open: Rc<OpenPool>,
    disk: DiskNo,
    (capacity, name): (ByteCount, String),
) -> Answer<Answer<Leaving>> {
    open.pool.plan_disk_add(capacity, &name)?;
    Ok(open.pool.plan_disk_remove(disk, Instead::New(capacity)).map_err(ApiError::from))
}

/// Makes a disk a member. Its number, and the pool as it is then.
pub async fn add(local: Rc<Local<Pools>>, pool: String, member: NewMember, usage: Usage) -> Answer<(DiskNo, PoolInfo)> {
    let open = local.state().pool(&pool)?;
    let (disk, new) = new_disk(&local, &member)?;
    let new = NewDisk { disk: open.sockets.plug(disk.clone()), ..new };
    let no = open.pool.disk_add(new, engine_usage(usage)).await?;
    open.found(no, member.path, &disk);
    Ok((no, info::pool(&open, local.world().now())))
}

/// What the leaving of a disk comes to.
pub async fn validate_removal(open: Rc<OpenPool>, disk: DiskNo, instead: Instead) -> Answer<Leaving> {
    Ok(open.pool.plan_disk_remove(disk, instead)?)
}

/// Starts the job that empties a disk and takes it out of the pool.
pub async fn remove(open: Rc<OpenPool>, disk: DiskNo, to: Option<DiskNo>, now: u64) -> Answer<u32> {
    let job = open.pool.disk_remove(disk, to, now).await?.0;
    review_caches(open).await?;
    Ok(job)
}

/// What a change of a disk comes to.
pub struct DiskTurn {
    /// The pool then; now, where nothing was changed yet.
    pub now: PoolInfo,
    /// The write-back caches that it chooses anew.
    pub turned: Vec<CacheTurn>,
    /// What becomes of what the disk holds, where it is to take no more data by itself and nothing was changed yet.
    pub leaving: Option<Answer<Leaving>>,
}

/// Changes what the pool knows of a disk, then whether it is in maintenance.
pub async fn set_disk(
    local: Rc<Local<Pools>>,
    pool: String,
    disk: DiskNo,
    asked: DiskChange,
    run: Run,
) -> Answer<DiskTurn> {
    let open = local.state().pool(&pool)?;
    let then = DisksThen::Changed(disk, asked.usage.map(engine_usage), asked.media.map(engine_media));
    let rests_only = DiskChange { maintenance: None, ..asked.clone() } == DiskChange::default();
    let change = weft_engine::pool::DiskChange {
        usage: asked.usage.map(engine_usage),
        media: asked.media.map(engine_media),
        name: asked.name,
        domain: asked.domain,
        power: asked.power_protected.map(|said| match said {
            PowerSetting::Auto => record::PowerProtected::Auto,
            PowerSetting::Yes => record::PowerProtected::Yes,
            PowerSetting::No => record::PowerProtected::No,
        }),
    };
    if !rests_only {
        let changed = match run {
            Run::Dry => open.pool.plan_disk_set(disk, &change),
            Run::Real => open.pool.disk_set(disk, change).await,
        };
        changed.map_err(|error| with_names(&open, error))?;
    }
    let rests = match (asked.maintenance, run) {
        (None, _) => Ok(()),
        (Some(true), Run::Dry) => open.pool.plan_disk_offline(disk),
        (Some(true), Run::Real) => open.pool.disk_offline(disk).await,
        (Some(false), Run::Dry) => open.pool.plan_disk_online(disk),
        (Some(false), Run::Real) => open.pool.disk_online(disk).await,
    };
    rests.map_err(|error| with_names(&open, error))?;
    let turned = match run {
        _ if asked.usage.is_none() && asked.media.is_none() => Vec::new(),
        Run::Dry => open.pool.plan_caches_then(&then),
        Run::Real => review_caches(open.clone()).await?,
    };
    let leaving = matches!(asked.usage, Some(Usage::Retired | Usage::Journal | Usage::Manual)) && run == Run::Dry;
    let leaving = leaving.then(|| open.pool.plan_disk_remove(disk, Instead::Nothing).map_err(ApiError::from));
    Ok(DiskTurn { now: info::pool(&open, local.world().now()), turned, leaving })
}

/// The engine's error, with disks called by their names.
fn with_names(open: &OpenPool, error: weft_engine::error::Error) -> ApiError {
    let error = ApiError::from(error);
    let message = named(&error.message, &|no| open.disk_name(no));
    ApiError { message, ..error }
}

/// Uses a member again that was missing, or failed, and is at `path` now. Its number.
pub async fn attach(local: Rc<Local<Pools>>, pool: String, path: PathBuf) -> Answer<DiskNo> {
    let open = local.state().pool(&pool)?;
    let disk = local.open_disk(&path, &DiskOptions::default())?;
    let id = labels::probe(&path)?.map(|label| label.disk_id);
    let handle = open.sockets.plug(disk.clone());
    let attached = match id.as_ref().is_some_and(|id| open.is_another_file(id, &path)) {
        true => open.pool.attach_copy(handle).await,
        false => open.pool.attach(handle).await,
    };
    let no = attached.map_err(|error| {
        id.iter().for_each(|id| open.note_copy(id, &path));
        with_names(&open, error)
    })?;
    open.found(no, path, &disk);
    Ok(no)
}

/// Disks that were in maintenance when the pool was last closed are so again; where that cannot be, it is over.
pub async fn resume_maintenance(open: &OpenPool) -> Answer<()> {
    let resting: Vec<DiskNo> = {
        let store = open.pool.store();
        let (map, members) = (store.map.borrow(), store.members.borrow());
        let there = |no: &DiskNo| members.get(no).is_some_and(|member| member.disk.is_some());
        let resting = map.disks.values().filter(|disk| disk.record.maintenance).map(|disk| disk.record.no);
        resting.filter(there).collect()
    };
    for no in resting {
        if open.pool.disk_offline(no).await.is_err() {
            open.pool.disk_online(no).await?;
        }
    }
    Ok(())
}

fn engine_media(media: Media) -> record::Media {
    match media {
        Media::Hdd => record::Media::Hdd,
        Media::Ssd => record::Media::Ssd,
        Media::Unspecified => record::Media::Unspecified,
    }
}

fn engine_usage(usage: Usage) -> record::Usage {
    match usage {
        Usage::Auto => record::Usage::AutoSelect,
        Usage::Manual => record::Usage::ManualSelect,
        Usage::Spare => record::Usage::HotSpare,
        Usage::Journal => record::Usage::Journal,
        Usage::Retired => record::Usage::Retired,
    }
}
