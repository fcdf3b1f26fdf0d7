//! What one storm in thousands runs into: a disk that is slow at one moment, a move before a repair, disks that are
//! back while the pool is being closed. Each story ends with a panic if one rule is broken.

use crate::check::check;
use crate::stories::attach;
use crate::story::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::label::DiskPlan;
use weft_engine::format::page::PAGE_MAGIC;
use weft_engine::format::record::{Media, OWNER_METADATA, Usage};
use weft_engine::geometry::Layout;
use weft_engine::pool::job::{JobInfo, JobKind, JobState};
use weft_engine::pool::{NewDisk, Pool, VdiskSpec};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos, SegmentNo, VirtualOffset};
use weft_engine::world::World;
use weft_sim::rig::Rig;
use weft_sim::world::{Scheduling, SimWorld};

/// A disk that has copies of metadata in every story here.
const WITH_METADATA: usize = 1;
/// Longer than the read timeout, and shorter than the write timeout.
const SLOW: Nanos = Nanos::secs(5);
/// More operations than a flush has.
const OPERATIONS: u64 = 60;

/// Pages of the tree are rotten on a disk that is slow for a while, whichever moment of a look that is: they are not
/// taken for sound, but the disk is waited for.
pub fn a_look_waits_for_what_a_slow_disk_has_of_the_tree() {
    let mut story = Story::new(21, 2, MIRROR2);
    story.write_and_flush(0, 6 * story.stripe(), 7);
    story.checkpoint();
    story.close();
    story.open().unwrap();
    // The story writes one byte over and over; what is neither that nor a page of the other kinds is the tree's.
    let is_of_tree = |block: &[u8]| !block.starts_with(&PAGE_MAGIC) && block.iter().any(|byte| *byte != block[0]);
    let rotten = blocks_like(&story, WITH_METADATA, is_of_tree);
    assert!(!rotten.is_empty(), "the tree has pages");
    rotten.iter().for_each(|at| story.rig.disks[WITH_METADATA].rot(*at));
    let began = story.rig.requests();
    let looked = check(&story, false);
    let requests = story.rig.requests() - began;
    assert!(looked.bad_pages > 0 && requests > 20, "{requests} requests: {looked:?}");
    for slow_at in 0..requests {
        story.rig.slow_from(WITH_METADATA, slow_at, SLOW);
        assert_eq!(check(&story, false).bad_pages, looked.bad_pages, "slow from request {slow_at} on");
        let world = story.rig.world.clone();
        story.rig.run(async move { world.sleep(SLOW).await });
    }
}

/// All disks are away for a moment when nobody may wait for them any more, for the pool is about to be closed,
/// whichever operation of a flush that is. The flush may fail; once they are back another one ends, and nothing is
/// lost.
pub fn what_is_cut_short_by_a_closing_is_written_when_the_disks_are_back() {
    let (mut cut_short, mut whole) = (0, 0);
    for nth in 0..OPERATIONS {
        let mut story = Story::new(23, 2, MIRROR2);
        story.write_and_flush(0, 4 * story.stripe(), 1);
        story.write(story.stripe() / 2, 2 * story.stripe(), 2).unwrap();
        let (pool, world, vdisk) = (story.rig.pool(), story.rig.world.clone(), story.vdisk());
        let flushed = Rc::new(Cell::new(None));
        let told = flushed.clone();
        world.spawn("flush", Box::pin(async move { told.set(Some(vdisk.flush().await.is_ok())) }));
        let (ticking, first) = (world.clone(), world.operations() + nth);
        world.run_until(Nanos::secs(1), move || ticking.operations() >= first);
        story.rig.disks.iter().for_each(|disk| disk.vanish());
        pool.store().refuse_to_wait();
        world.run_until(Nanos::secs(1), || false);
        cut_short += u64::from(!flushed.get().expect("nobody waits for disks while a pool is being closed"));

        story.rig.disks.iter().for_each(|disk| disk.return_intact(&mut story.rng));
        for no in (0..story.rig.disks.len()).filter(|no| !pool.store().has_disk(DiskNo(*no as u16))) {
            let (pool, disk) = (pool.clone(), Rc::new(story.rig.disks[no].clone()));
            // One alone may wait for the other.
            let back = async move { pool.attach(disk).await.map(drop).unwrap() };
            world.spawn("disk back", Box::pin(back));
        }
        world.run_until(Nanos::secs(2), || false);
        // It may have been told that disks failed; but it ends.
        let flushed = flushed.get() == Some(true) || story.flush().is_ok();
        whole += u64::from(flushed);
        drop(pool);
        drop(story.rig.close());
        story.rig.halt();
        let mut story = story.with_images(&story.images());
        story.open().unwrap();
        let byte = story.byte(story.stripe(), story.stripe()).unwrap();
        assert!(byte == 2 || byte == 1 && !flushed, "away after {nth} operations: {byte}");
        assert_eq!(story.prove(), 0);
        story.close();
    }
    assert!(cut_short > 10 && whole > 10, "{cut_short} flushes were cut short, and {whole} were whole in the end");
}

/// A disk is back that missed writes, and another one is empty: a rebalance moves nothing that is to be repaired first.
pub fn a_rebalance_leaves_alone_what_is_not_repaired_yet() {
    let story = wide(24, 3, 2);
    let pool = story.rig.pool();
    story.write_and_flush(0, 1 << 20, 1);
    lose(&story, 1);
    story.write_and_flush(0, 8 << 20, 2);
    attach(&story, 1);
    let new =
        NewDisk { disk: Rc::new(story.rig.disks[2].clone()), id: Id([98; 16]), name: "new".into(), media: Media::Ssd };
    let adding = pool.clone();
    story.rig.run(async move { adding.disk_add(new, Usage::AutoSelect).await.unwrap() });
    let before = missed(&pool);
    assert!(!before.is_empty(), "nothing was missed");
    assert_eq!(job(&story, JobKind::Rebalance).state, JobState::Done);
    let after = missed(&pool);
    assert_eq!(before, after, "what is not repaired was moved");
    for kind in [JobKind::Repair, JobKind::Rebalance] {
        assert_eq!(job(&story, kind).state, JobState::Done);
    }
    assert_eq!(missed(&pool), BTreeMap::new());
    let used: Vec<u64> = pool.info().disks.iter().map(|disk| disk.allocated.0 >> 20).collect();
    assert!(used[2] > 0, "slabs in use by disk: {used:?}");
    assert!(check(&story, false).is_sound());
    assert_eq!(story.byte(0, 8 << 20).unwrap(), 2);
}

/// The emptiest disk is back, and not up to date yet: data of others may not lie there, and metadata must not.
pub fn a_rebalance_ends_where_the_emptiest_disk_takes_nothing() {
    let story = wide(11, 5, 5);
    let pool = story.rig.pool();
    let spec = VdiskSpec {
        name: "narrow".into(),
        size: ByteCount::mib(16),
        resiliency: MIRROR2,
        columns: Some(1),
        interleave: Some(ByteCount(STRIP)),
        fixed: false,
        sector: 4096,
        disks: DiskSet::from_words(&[0b01111]),
    };
    let making = pool.clone();
    story.rig.run(async move {
        let vdisk = making.vdisk_create(&spec).await.unwrap();
        vdisk.write(VirtualOffset(0), &vec![3; 8 << 20], true).await.unwrap();
        making.store().disk_lost(DiskNo(4), "its device is gone");
        vdisk.write(VirtualOffset(8 << 20), &vec![4; 8 << 20], true).await.unwrap();
    });
    attach(&story, 4);
    assert!(!pool.store().map.borrow().disks[&DiskNo(4)].current, "it is to be stale");
    // Up to date after the repair, it takes metadata from the others.
    for kind in [JobKind::Rebalance, JobKind::Repair, JobKind::Rebalance] {
        let ended = job(&story, kind);
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
    }
    assert!(pool.store().metadata_homes().values().any(|on| on.contains(DiskNo(4))));
    assert!(check(&story, false).is_sound());
}

/// A pool of the first `members` of `disks` disks of 24 MiB, in which no job begins by itself.
fn wide(seed: u64, disks: usize, members: usize) -> Story {
    let world = SimWorld::new(seed, Scheduling::Random);
    let rng = world.rng("story");
    let mut rig = Rig::new(world, disks, ByteCount::mib(24));
    rig.members = members;
    rig.options.tuning.auto_jobs = false;
    let layout = Layout::new(MIRROR2, 1, ByteCount(STRIP)).unwrap();
    let mut story = Story { rig, rng, layout };
    story.rig.create(ByteCount::mib(1)).unwrap();
    story.open().unwrap();
    story.rig.make_vdisk(layout, ByteCount::mib(8), 4096, false).unwrap();
    story
}

fn lose(story: &Story, disk: usize) {
    story.rig.pool().store().disk_lost(DiskNo(disk as u16), "its device is gone");
}

/// Runs a job to its end.
fn job(story: &Story, kind: JobKind) -> JobInfo {
    let pool = story.rig.pool();
    story.rig.run(async move {
        let id = pool.job_start(kind, 0).await.unwrap();
        pool.job_wait(id).await.unwrap()
    })
}

/// Where the segments of data lie that are to be repaired.
fn missed(pool: &Pool) -> BTreeMap<SegmentNo, Vec<u16>> {
    let map = pool.store().map.borrow();
    let records = map.segments.values().map(|segment| &segment.record);
    let missed = records.filter(|record| record.owner != OWNER_METADATA && map.unsound(record) > 0);
    missed.map(|record| (record.id, record.slabs.iter().flatten().map(|at| at.disk.0).collect())).collect()
}

/// The written blocks in the slabs of a disk that `is_like` what is looked for.
fn blocks_like(story: &Story, disk: usize, is_like: impl Fn(&[u8]) -> bool) -> Vec<DiskOffset> {
    let plan = story.plan(disk);
    let labels = DiskPlan::label_slots(plan.disk_len);
    let all = (plan.data_at.0 / BLOCK..plan.disk_len.0 / BLOCK).map(|no| DiskOffset(no * BLOCK));
    let is_found = |at: &DiskOffset| {
        let block = story.rig.disks[disk].peek(*at, ByteCount(BLOCK)).unwrap();
        block.iter().any(|byte| *byte != 0) && is_like(&block)
    };
    all.filter(|at| !labels.contains(at) && is_found(at)).collect()
}
