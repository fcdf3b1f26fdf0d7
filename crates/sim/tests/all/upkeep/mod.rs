//! Stories of a pool's life: disks go and come back, jobs are cut short, slabs change hands.

mod away;
mod failing;
mod growing;
mod leaving;

use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::record::{Media, OWNER_METADATA, SegmentRecord, Usage};
use weft_engine::geometry::Resiliency;
use weft_engine::pool::job::{JobInfo, JobKind, JobState, has_ended};
use weft_engine::pool::{DiskChange, NewDisk, Pool, VdiskSpec};
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_sim::rig::Rig;
use weft_sim::rng::Rng;
use weft_sim::world::{Scheduling, SimWorld};

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };

/// A pool of the first `members` of `disks` disks, with a virtual disk over `columns` of them.
fn pool(seed: u64, disks: usize, members: usize, resiliency: Resiliency, columns: u8) -> (Rig, Rng) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("story");
    let mut rig = Rig::new(world, disks, ByteCount::mib(24));
    rig.members = members;
    rig.create(ByteCount::mib(1)).unwrap();
    rig.open(&mut rng).unwrap();
    let pool = rig.pool();
    let spec = VdiskSpec {
        name: "vdisk".into(),
        size: ByteCount::mib(8),
        resiliency,
        columns: Some(columns),
        interleave: Some(ByteCount::kib(16)),
        fixed: false,
        sector: 4096,
        disks: DiskSet::EMPTY,
    };
    rig.run(async move { pool.vdisk_create(&spec).await.map(|_| ()) }).unwrap();
    (rig, rng)
}

fn write(rig: &Rig, offset: u64, len: usize, value: u8) {
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    rig.run(async move { vdisk.write(VirtualOffset(offset), &vec![value; len], true).await.unwrap() });
}

fn reads(rig: &Rig, offset: u64, len: usize, value: u8) {
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let back = rig.run(async move {
        let mut back = vec![0; len];
        vdisk.read(VirtualOffset(offset), &mut back).await.map(|()| back)
    });
    assert!(back.unwrap().iter().all(|byte| *byte == value), "not all of it is {value}");
}

fn sound(rig: &Rig) {
    let pool = rig.pool();
    let report = rig.run(async move { pool.check(false).await.unwrap() });
    assert!(report.is_sound(), "{report:?}");
}

/// Runs a job to its end.
fn job(rig: &Rig, kind: JobKind) -> JobInfo {
    let pool = rig.pool();
    rig.run(async move {
        let id = pool.job_start(kind, 0).await.unwrap();
        pool.job_wait(id).await.unwrap()
    })
}

/// Lets jobs that begin by themselves begin and end, as many as there are.
fn settle(rig: &Rig) {
    let pool = rig.pool();
    rig.run(async move {
        pool.store().pause().await;
        while let Some(job) = pool.jobs().into_iter().find(|job| !has_ended(job.state)) {
            pool.job_wait(job.id).await.unwrap();
        }
    });
}

fn written(pool: &Pool, no: DiskNo) -> u64 {
    pool.store().members.borrow()[&no].counters.written
}

fn usage(rig: &Rig, no: DiskNo) -> Usage {
    rig.pool().store().map.borrow().disks[&no].record.usage
}

#[test]
fn a_job_that_the_power_cut_stopped_goes_on() {
    for kind in [JobKind::Scrub, JobKind::Evacuate { disk: DiskNo(0), to: None, forget: true }] {
        let (mut rig, mut rng) = pool(5, 5, 5, PARITY, 4);
        write(&rig, 0, 7 << 20, 3);
        let started = rig.pool();
        let id = rig.run(async move {
            match kind {
                JobKind::Evacuate { disk, to, .. } => started.disk_remove(disk, to, 0).await.unwrap(),
                other => started.job_start(other, 0).await.unwrap(),
            }
        });
        rig.power_cut(&mut rng);
        rig.open(&mut rng).unwrap();
        let pool = rig.pool();
        let ended = rig.run(async move { pool.job_wait(id).await.unwrap() });
        assert_eq!((ended.kind, ended.state), (kind, JobState::Done), "{ended:?}");
        reads(&rig, 0, 7 << 20, 3);
        sound(&rig);
        rig.close().unwrap();
    }
}

/// Nobody asked for it, so nobody waits for its record.
#[test]
fn a_job_that_began_by_itself_goes_on_under_its_number_after_a_power_cut() {
    let (mut rig, mut rng) = pool(6, 5, 5, PARITY, 4);
    write(&rig, 0, 7 << 20, 3);
    rig.disks[1].vanish();
    let (world, pool) = (rig.world.clone(), rig.pool());
    pool.store().disk_lost(DiskNo(1), "the story says so");
    world.run_until(Nanos::secs(600), || pool.jobs().iter().any(|job| job.state == JobState::Running));
    world.run_until(Nanos::millis(40), || false);
    let begun = pool.jobs().pop().expect("a repair begins by itself");
    assert!(!has_ended(begun.state), "{begun:?}");
    drop(pool);
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    let pool = rig.pool();
    let ended = rig.run(async move { pool.job_wait(begun.id).await });
    let ended = ended.expect("the job is known");
    assert_eq!((ended.kind, ended.began, ended.state), (JobKind::Repair, begun.began, JobState::Done), "{ended:?}");
    reads(&rig, 0, 7 << 20, 3);
    rig.close().unwrap();
}

#[test]
fn what_happened_goes_where_the_disks_go() {
    let (mut rig, mut rng) = pool(12, 4, 4, PARITY, 3);
    let text =
        |no: u64| format!("thing {no} happened, and these words take some room{}", ".".repeat(no as usize % 400));
    let note = |rig: &Rig, range: std::ops::Range<u64>| {
        let pool = rig.pool();
        // Twice: what is known already is not told again.
        for no in range.clone().chain(range) {
            pool.note_event(no, no, no % 3 == 0, text(no));
        }
    };
    note(&rig, 0..700);
    let kept = rig.pool().events();
    assert_eq!(kept.len(), 512, "as many as are remembered while the pool is open");
    write(&rig, 0, 4096, 1);
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    assert_eq!(rig.pool().events(), kept, "what came before a flush outlives a power cut");

    // After a checkpoint the log does not tell of them any more: a part of the small area does.
    for round in 0..3 {
        note(&rig, 700 + round..701 + round);
        let pool = rig.pool();
        rig.run(async move { pool.checkpoint().await }).unwrap();
        rig.close().unwrap();
        rig.open(&mut rng).unwrap();
        let left = rig.pool().events();
        assert!((16..512).contains(&left.len()), "{} are left", left.len());
        assert!(left.windows(2).all(|pair| pair[0].no + 1 == pair[1].no), "the newest, without gaps");
        let last = left.last().unwrap();
        assert_eq!((last.at_ms, &last.text), (700 + round, &text(700 + round)));
    }
    sound(&rig);
}

#[test]
fn rebalance_fills_a_new_disk_in_proportion() {
    let (rig, _) = pool(9, 6, 5, PARITY, 3);
    write(&rig, 0, 8 << 20, 1);
    let pool = rig.pool();
    let new = NewDisk { disk: Rc::new(rig.disks[5].clone()), id: Id([98; 16]), name: "new".into(), media: Media::Ssd };
    let added = pool.clone();
    rig.run(async move { added.disk_add(new, Usage::AutoSelect).await.unwrap() });
    let ended = job(&rig, JobKind::Rebalance);
    assert_eq!(ended.state, JobState::Done, "{ended:?}");
    let used: Vec<u64> = pool.info().disks.iter().map(|disk| disk.allocated.0 >> 20).collect();
    let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    assert!(most - least <= 1, "slabs in use by disk: {used:?}");
    reads(&rig, 0, 8 << 20, 1);
    sound(&rig);
}

/// The two copies of everything are in two domains; the disk that joins is in one of them.
#[test]
fn a_rebalance_brings_no_two_slots_of_a_stripe_into_one_domain() {
    let (rig, _) = pool(12, 3, 2, Resiliency::Mirror { copies: 2 }, 1);
    let pool = rig.pool();
    let named = pool.clone();
    let new = NewDisk { disk: Rc::new(rig.disks[2].clone()), id: Id([97; 16]), name: "new".into(), media: Media::Ssd };
    rig.run(async move {
        named.disk_add(new, Usage::ManualSelect).await.unwrap();
        for (no, domain) in [(0, "a"), (1, "b"), (2, "a")] {
            let domain = Some(domain.into());
            named.disk_set(DiskNo(no), DiskChange { domain, ..DiskChange::default() }).await.unwrap();
        }
    });
    write(&rig, 0, 8 << 20, 1);
    let used = pool.clone();
    let change = DiskChange { usage: Some(Usage::AutoSelect), ..DiskChange::default() };
    rig.run(async move { used.disk_set(DiskNo(2), change).await.unwrap() });
    let ended = job(&rig, JobKind::Rebalance);
    assert_eq!(ended.state, JobState::Done, "{ended:?}");
    let map = pool.store().map.borrow();
    let data = map.segments.values().filter(|segment| segment.record.owner != OWNER_METADATA);
    let on = |segment: &SegmentRecord| segment.slabs.iter().flatten().map(|at| at.disk.0).collect::<Vec<_>>();
    let homes: Vec<Vec<u16>> = data.map(|segment| on(&segment.record)).collect();
    assert!(homes.iter().all(|home| home.contains(&1)), "one copy of each stays in domain b: {homes:?}");
    assert!(homes.iter().filter(|home| home.contains(&2)).count() > 1, "disk 2 takes its part: {homes:?}");
}

#[test]
fn a_full_disk_is_no_reason_to_give_redundancy_away() {
    let (rig, _) = pool(10, 4, 4, PARITY, 3);
    // One disk is full, the others are not: nothing new may lie on fewer disks than the layout has columns.
    let pool = rig.pool();
    {
        let mut map = pool.store().map.borrow_mut();
        for no in [1, 2] {
            let free = &mut map.disks.get_mut(&DiskNo(no)).unwrap().free;
            let len = free.len();
            free.remove(0..len);
        }
    }
    let vdisk = pool.vdisk("vdisk").unwrap();
    let refused = rig.run(async move { vdisk.write(VirtualOffset(0), &[1; 4096], true).await.unwrap_err() });
    assert_eq!(refused.kind, weft_engine::error::ErrorKind::NoSpace, "{refused}");
    let map = pool.store().map.borrow();
    // Metadata has as many copies as there are disks with room.
    let needs = |record: &SegmentRecord| if record.owner == OWNER_METADATA { 2 } else { record.slabs.len() };
    let whole = |record: &SegmentRecord| record.slabs.iter().flatten().count() == needs(record);
    assert!(map.segments.values().all(|segment| whole(&segment.record)));
}
