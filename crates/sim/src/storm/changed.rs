//! Virtual disks that get other layouts while clients work; the jobs that bring their data there are paused, ended and
//! asked for again. None of it may cost a byte, nor any redundancy.

use super::clients::Shared;
use super::scene::{Beside, JOURNALS};
use super::{cached, tiered};
use crate::rng::Rng;
use crate::world::SimWorld;
use std::rc::Rc;
use weft_engine::error::ErrorKind;
use weft_engine::format::record::Usage;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::change::ChangeAsk;
use weft_engine::pool::job::{JobInfo, JobKind, JobState, has_ended};
use weft_engine::pool::{DiskChange, Pool};
use weft_engine::units::{ByteCount, JobNo, Nanos};
use weft_engine::world::World;

/// Changes what is to change about a virtual disk, at random, until its clients are done.
pub(super) fn start(
    beside: Beside,
    world: &SimWorld,
    pool: &Rc<Pool>,
    (shared, name): (&Rc<Shared>, &str),
    rng: &mut Rng,
) {
    if beside.journals {
        set_log_apart(world, pool);
    }
    if beside.cached {
        cached::start(world, pool, shared, (name, beside.risky), rng);
    }
    if beside.tiered {
        tiered::start(world, pool, shared, name, rng);
    }
    if beside.changed {
        change_layouts(world, pool, shared, name, rng);
    }
}

/// Has the last disks carry the log and nothing else.
fn set_log_apart(world: &SimWorld, pool: &Rc<Pool>) {
    let pool = pool.clone();
    let setting = async move {
        let last: Vec<_> = pool.info().disks.iter().rev().map(|disk| disk.no).collect();
        for disk in last.into_iter().take(JOURNALS) {
            let journal = DiskChange { usage: Some(Usage::Journal), ..DiskChange::default() };
            // It may have left, or the pool be frozen.
            let _ = pool.disk_set(disk, journal).await;
        }
    };
    world.spawn("journal setter", Box::pin(setting));
}

/// Whether a job is to end by itself: one that changes a layout rests as long as it is paused.
pub(super) fn is_at_work(job: &JobInfo) -> bool {
    let rests = job.state == JobState::Paused && matches!(job.kind, JobKind::Reshape(_));
    !has_ended(job.state) && !rests
}

fn change_layouts(world: &SimWorld, pool: &Rc<Pool>, shared: &Rc<Shared>, name: &str, rng: &mut Rng) {
    let (world, pool, shared, name) = (world.clone(), pool.clone(), shared.clone(), name.to_string());
    let Some(failures) = pool.vdisk(&name).map(|vdisk| vdisk.layout().failures()) else { return };
    let mut rng = Rng::new(rng.next_u64());
    world.clone().spawn(
        "layout changer",
        Box::pin(async move {
            while shared.clients_left.get() > 0 && shared.failure.borrow().is_none() {
                world.sleep(Nanos(rng.below(400_000_000))).await;
                let done = match rng.below(6) {
                    0 => pool.vdisk_change(&name, &ChangeAsk::default(), 0).await.map(drop),
                    1 | 2 => steer(&pool, &mut rng).await,
                    _ => pool.vdisk_change(&name, &any_layout(&pool, failures, &mut rng), 0).await.map(drop),
                };
                match done {
                    Err(error) if error.kind == ErrorKind::Corrupt => {
                        shared.failure.borrow_mut().get_or_insert(format!("changing a layout: {error}"));
                    }
                    // Another one is under way; or there is no room, or the pool is frozen, or the virtual disk gone.
                    Ok(()) | Err(_) => {}
                }
            }
        }),
    );
}

/// A layout that survives as much, or more, on the disks that there are.
fn any_layout(pool: &Pool, failures: usize, rng: &mut Rng) -> ChangeAsk {
    let disks = pool.info().disks.len();
    let all = [
        Resiliency::Simple,
        Resiliency::Mirror { copies: 2 },
        Resiliency::Mirror { copies: 3 },
        Resiliency::Parity { parity: 1 },
        Resiliency::Parity { parity: 2 },
    ];
    let resiliency = *rng.pick(&all);
    let columns = resiliency.columns_min() + rng.below(3) as u8;
    let interleave = ByteCount::kib(*rng.pick(&[4, 8, 12, 24, 64]));
    match Layout::new(resiliency, columns, interleave) {
        Ok(layout) if layout.failures() >= failures && layout.slots() <= disks => {
            ChangeAsk { resiliency: Some(resiliency), columns: Some(columns), interleave: Some(interleave) }
        }
        _ => ChangeAsk { interleave: Some(interleave), ..ChangeAsk::default() },
    }
}

/// A job that changes a layout is paused, resumed or ended.
async fn steer(pool: &Pool, rng: &mut Rng) -> weft_engine::error::Result<()> {
    let ours = |kind: JobKind| matches!(kind, JobKind::Reshape(_));
    let jobs = pool.jobs().into_iter().filter(|job| ours(job.kind) && !has_ended(job.state));
    let jobs: Vec<JobNo> = jobs.map(|job| job.id).collect();
    if jobs.is_empty() {
        return Ok(());
    }
    let job = *rng.pick(&jobs);
    match rng.below(4) {
        0 => pool.job_pause(job).await,
        1 => pool.job_cancel(job).await,
        _ => pool.job_resume(job).await,
    }
}
