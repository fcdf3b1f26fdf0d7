//! Disks that are to be emptied.

use crate::story::*;
use std::rc::Rc;
use weft_engine::error::ErrorKind;
use weft_engine::format::Id;
use weft_engine::format::record::{Media, OWNER_METADATA, Usage};
use weft_engine::geometry::Resiliency;
use weft_engine::pool::job::{JobInfo, JobKind, JobState, has_ended};
use weft_engine::pool::{DiskChange, Instead, NewDisk};
use weft_engine::units::{ByteCount, DiskNo};
use weft_sim::disk::SimDisk;
use weft_sim::timing::{Latencies, Random};

/// A disk of two is to be emptied, and is used again before that has ended: the emptying ends, too, or metadata would
/// leave the disk and come back for ever (storm cached 7300105).
pub fn the_emptying_of_a_disk_that_is_used_again_ends() {
    let mut story = Story::of_size(13, 2, SIMPLE, ByteCount::mib(3), false);
    story.write_and_flush(0, 3 << 20, 5);
    let pool = story.rig.pool();
    story.rig.run(async move {
        for usage in [Usage::Retired, Usage::AutoSelect] {
            pool.disk_set(DiskNo(0), used(usage)).await.unwrap();
        }
        assert!(pool.jobs().iter().any(|job| !has_ended(job.state)), "it has begun: {:?}", pool.jobs());
    });
    settle(&story);
    let jobs = story.rig.pool().jobs();
    let emptying = jobs.iter().find(|job| matches!(job.kind, JobKind::Evacuate { .. })).unwrap();
    assert!(emptying.note.contains("used again"), "{emptying:?}");
    assert!(jobs.len() <= 2, "what left came back, and left again: {jobs:?}");
    assert_eq!(story.byte(0, 3 << 20).unwrap(), 5);
    assert_eq!(story.prove(), 0);
    story.close();
}

/// Stripes were written while two of five disks were away, one of which is back and was not repaired yet. A third one,
/// that has all of its strips, is to be emptied: the room on the one that is back is for strips that are lacking, for
/// without them the loss of just that disk would be the loss of the stripes (storm classic 930, while metadata was
/// first read from one disk).
pub fn a_disk_that_leaves_does_not_take_the_room_that_a_repair_needs() {
    for asked_for in [false, true] {
        let mut story = Story::new(7, 5, Resiliency::Parity { parity: 2 });
        story.rig.options.tuning.auto_jobs = false;
        story.close();
        [1, 2].iter().for_each(|away| story.rig.disks[*away].vanish());
        story.open().unwrap();
        let len = 6 * story.stripe();
        story.write_and_flush(0, len, 9);
        story.rig.disks[1].come_back(&mut story.rng);
        let (pool, back) = (story.rig.pool(), Rc::new(story.rig.disks[1].clone()));
        story.rig.run(async move { pool.attach(back).await.unwrap() });
        let foreseen = story.rig.pool().plan_disk_remove(DiskNo(3), Instead::Nothing).unwrap_err();
        assert!(foreseen.context.contains("gets one first") && foreseen.context.contains("add 2 disks"), "{foreseen}");
        let emptied = empty(&story, DiskNo(3), asked_for);
        assert_eq!((emptied.state, emptied.failure), (JobState::Failed, Some(ErrorKind::NoSpace)), "{emptied:?}");
        assert_eq!(strips_lacking(&story), [1], "{emptied:?}");
        story.rig.disks[1].vanish();
        assert_eq!(story.byte(0, len).unwrap(), 9, "it bears one failure");

        // All are back, and there is one more: now it leaves.
        for away in [1, 2] {
            story.rig.disks[away].come_back(&mut story.rng);
            let (pool, back) = (story.rig.pool(), Rc::new(story.rig.disks[away].clone()));
            story.rig.run(async move { pool.attach(back).await.unwrap() });
        }
        let repaired = job(&story, JobKind::Repair);
        assert_eq!(repaired.state, JobState::Done, "{repaired:?}");
        assert!(story.rig.pool().plan_disk_remove(DiskNo(3), Instead::Nothing).is_err(), "there are no more than five");
        add_a_disk(&mut story);
        story.rig.pool().plan_disk_remove(DiskNo(3), Instead::Nothing).unwrap();
        let emptied = empty(&story, DiskNo(3), asked_for);
        assert_eq!(emptied.state, JobState::Done, "{emptied:?}");
        assert_eq!(strips_lacking(&story), [0]);
        story.rig.disks[3].vanish();
        assert_eq!(story.byte(0, len).unwrap(), 9);
        assert_eq!(story.prove(), 0);
        story.rig.halt();
    }
}

/// A pool of two disks gets a third one, which has no copy of the metadata yet: that is room for what leaves the first
/// one, and not for one copy more.
pub fn a_disk_leaves_for_one_that_has_no_copy_of_the_metadata_yet() {
    for instead in [Instead::Nothing, Instead::Member(DiskNo(2))] {
        let mut story = Story::new(8, 2, MIRROR2);
        story.rig.options.tuning.auto_jobs = false;
        story.close();
        story.open().unwrap();
        let len = 6 * story.stripe();
        story.write_and_flush(0, len, 4);
        add_a_disk(&mut story);
        let pool = story.rig.pool();
        pool.plan_disk_remove(DiskNo(0), instead).unwrap();
        let to = matches!(instead, Instead::Member(_)).then_some(DiskNo(2));
        let left = story.rig.run(async move {
            let id = pool.disk_remove(DiskNo(0), to, 0).await.unwrap();
            pool.job_wait(id).await.unwrap()
        });
        assert_eq!(left.state, JobState::Done, "{left:?}");
        story.rig.disks[1].vanish();
        assert_eq!(story.byte(0, len).unwrap(), 4);
        story.rig.halt();
    }
}

/// Has a disk emptied: because it is to leave the pool, if that is `asked_for`, or because it is retired.
fn empty(story: &Story, disk: DiskNo, asked_for: bool) -> JobInfo {
    let pool = story.rig.pool();
    story.rig.run(async move {
        let id = match asked_for {
            true => pool.job_start(JobKind::Evacuate { disk, to: None, forget: true }, 0).await.unwrap(),
            false => {
                pool.disk_set(disk, used(Usage::Retired)).await.unwrap();
                pool.job_start(JobKind::Evacuate { disk, to: None, forget: false }, 0).await.unwrap()
            }
        };
        pool.job_wait(id).await.unwrap()
    })
}

/// How many slots of segments with data have no disk: the different numbers.
fn strips_lacking(story: &Story) -> Vec<usize> {
    let pool = story.rig.pool();
    let map = pool.store().map.borrow();
    let data = map.segments.values().filter(|found| found.record.owner != OWNER_METADATA && !found.mapped.is_empty());
    let mut lacking: Vec<usize> =
        data.map(|found| found.record.slabs.iter().filter(|slab| slab.is_none()).count()).collect();
    lacking.sort_unstable();
    lacking.dedup();
    lacking
}

fn add_a_disk(story: &mut Story) {
    let world = &story.rig.world;
    let timing = Box::new(Random::new(Latencies::default(), world.rng("one more")));
    let disk = SimDisk::new(world, story.images()[0].shape(), timing);
    story.rig.disks.push(disk.clone());
    let new = NewDisk { disk: Rc::new(disk), id: Id([77; 16]), name: "one-more".into(), media: Media::Ssd };
    let pool = story.rig.pool();
    story.rig.run(async move { pool.disk_add(new, Usage::AutoSelect).await.map(drop).unwrap() });
}

fn used(usage: Usage) -> DiskChange {
    DiskChange { usage: Some(usage), ..DiskChange::default() }
}

fn job(story: &Story, kind: JobKind) -> JobInfo {
    let pool = story.rig.pool();
    story.rig.run(async move {
        let id = pool.job_start(kind, 0).await.unwrap();
        pool.job_wait(id).await.unwrap()
    })
}

/// Lets jobs that begin by themselves begin and end, as many as there are.
fn settle(story: &Story) {
    let pool = story.rig.pool();
    story.rig.run(async move {
        pool.store().pause().await;
        while let Some(job) = pool.jobs().into_iter().find(|job| !has_ended(job.state)) {
            pool.job_wait(job.id).await.unwrap();
        }
    });
}
