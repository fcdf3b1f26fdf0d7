//! Stories of a pool's life: disks go and come back, jobs are cut short, slabs change hands.

use std::cell::Cell;
use std::rc::Rc;
use weft_engine::event::Event;
use weft_engine::format::Id;
use weft_engine::format::record::{Away, Media, OWNER_METADATA, Usage};
use weft_engine::io::DiskError;
use weft_engine::pool::job::{JobKind, JobState, has_ended};
use weft_engine::pool::{DiskChange, Instead, NewDisk, Pool, VdiskSpec};
use weft_engine::stripe::geometry::Resiliency;
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::disk::WriteFault;
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
        disks: 0,
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
fn job(rig: &Rig, kind: JobKind) -> weft_engine::pool::job::JobInfo {
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

fn written(pool: &Pool, no: u16) -> u64 {
    pool.store().members.borrow()[&no].counters.written
}

#[test]
fn a_disk_that_comes_back_gets_only_what_it_missed() {
    let (rig, _) = pool(1, 4, 4, PARITY, 4);
    write(&rig, 0, 6 << 20, 1);
    rig.disks[3].vanish();
    write(&rig, 0, 48 << 10, 2);
    let pool = rig.pool();
    let away = pool.store().map.borrow().disks[&3].record.away;
    assert_eq!(away, Away::Tracked);
    let before = written(&pool, 3);
    rig.disks[3].come_back(&mut rig.world.rng("old"));
    let back: Rc<dyn weft_engine::io::Disk> = Rc::new(rig.disks[3].clone());
    let attached = pool.clone();
    rig.run(async move { attached.attach(back).await.unwrap() });
    settle(&rig);
    assert_eq!(pool.store().map.borrow().disks[&3].record.away, Away::No, "{:?}", pool.jobs());
    let sent = written(&pool, 3) - before;
    assert!(sent < 1 << 20, "{sent} bytes for one stripe of 16 KiB strips");
    reads(&rig, 0, 48 << 10, 2);
    reads(&rig, 48 << 10, 5 << 20, 1);
    sound(&rig);
}

#[test]
fn a_missing_disk_is_rebuilt_by_itself_when_its_time_is_over_and_not_before() {
    let (rig, _) = pool(2, 5, 5, PARITY, 4);
    write(&rig, 0, 4 << 20, 7);
    rig.disks[1].vanish();
    write(&rig, 4 << 20, 48 << 10, 8);
    let pool = rig.pool();
    let world = rig.world.clone();
    let waited = pool.clone();
    rig.run(async move {
        world.sleep(Nanos::secs(290)).await;
        assert!(waited.unsound_bytes().0 > 0, "it may still come back");
        world.sleep(Nanos::secs(20)).await;
    });
    settle(&rig);
    assert_eq!(pool.unsound_bytes(), ByteCount(0), "{:?}", pool.jobs());
    reads(&rig, 0, 4 << 20, 7);
    rig.disks[2].vanish();
    reads(&rig, 0, 4 << 20, 7);
}

#[test]
fn a_hot_spare_takes_the_place_of_a_lost_disk() {
    let (rig, _) = pool(3, 5, 4, PARITY, 4);
    write(&rig, 0, 4 << 20, 7);
    let pool = rig.pool();
    let new =
        NewDisk { disk: Rc::new(rig.disks[4].clone()), id: Id([77; 16]), name: "spare".into(), media: Media::Ssd };
    let added = pool.clone();
    let spare = rig.run(async move { added.disk_add(new, Usage::HotSpare).await.unwrap() });
    assert!(pool.store().map.borrow().disks[&spare].free.is_full(), "a spare holds nothing");
    rig.disks[0].vanish();
    write(&rig, 0, 48 << 10, 8);
    let repaired = job(&rig, JobKind::Repair);
    assert_eq!(repaired.state, JobState::Done, "{repaired:?}");
    assert_eq!(pool.store().map.borrow().disks[&spare].record.usage, Usage::AutoSelect);
    rig.disks[1].vanish();
    reads(&rig, 48 << 10, 3 << 20, 7);
}

#[test]
fn every_disk_may_be_replaced_one_after_the_other() {
    let (mut rig, mut rng) = pool(4, 8, 4, PARITY, 4);
    write(&rig, 0, 7 << 20, 5);
    for turn in 0..4u16 {
        let disk = Rc::new(rig.disks[4 + turn as usize].clone());
        let new = NewDisk { disk, id: Id([100 + turn as u8; 16]), name: format!("new{turn}"), media: Media::Ssd };
        let pool = rig.pool();
        let ended = rig.run(async move {
            let to = pool.disk_add(new, Usage::AutoSelect).await.unwrap();
            let job = pool.disk_remove(turn, Some(to), 0).await.unwrap();
            pool.job_wait(job).await.unwrap()
        });
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
        rig.power_cut(&mut rng);
        rig.open(&mut rng).unwrap();
    }
    let members: Vec<u16> = rig.pool().info().disks.iter().map(|disk| disk.no).collect();
    assert_eq!(members.len(), 4, "{members:?}");
    rig.disks[..4].iter().for_each(|disk| disk.vanish());
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    reads(&rig, 0, 7 << 20, 5);
    sound(&rig);
    rig.close().unwrap();
}

#[test]
fn who_takes_the_place_of_a_disk_is_named_where_that_was() {
    let (mut rig, mut rng) = pool(12, 5, 4, PARITY, 4);
    let pool = rig.pool();
    let disk = Rc::new(rig.disks[4].clone());
    let new = NewDisk { disk, id: Id([100; 16]), name: "new".into(), media: Media::Ssd };
    let to = rig.run(async move {
        let spec = VdiskSpec {
            name: "named".into(),
            size: ByteCount::mib(1),
            resiliency: Resiliency::Mirror { copies: 2 },
            columns: Some(1),
            interleave: Some(ByteCount::kib(16)),
            fixed: false,
            sector: 4096,
            disks: 0b11,
        };
        let vdisk = pool.vdisk_create(&spec).await.unwrap();
        vdisk.write(VirtualOffset(0), &vec![6; 1 << 19], true).await.unwrap();
        let taken = pool.plan_disk_remove(1, Instead::New(ByteCount::mib(8))).unwrap();
        assert_eq!(taken.losses, [], "the new one takes its place");
        assert!(pool.plan_disk_remove(1, Instead::Nothing).unwrap().losses.iter().any(|loss| loss.vdisk == "named"));
        let to = pool.disk_add(new, Usage::ManualSelect).await.unwrap();
        assert_eq!(pool.plan_disk_remove(1, Instead::Member(to)).unwrap().losses, []);
        let job = pool.disk_remove(1, Some(to), 0).await.unwrap();
        let ended = pool.job_wait(job).await.unwrap();
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
        to
    });
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    let pool = rig.pool();
    let named = {
        let store = pool.store();
        let map = store.map.borrow();
        let record = map.vdisks.values().find(|vdisk| vdisk.name == "named").unwrap();
        map.tables[&record.tables[0]].record.disks
    };
    assert_eq!(named, 1 | 1 << to, "the number of the one that left may be another's some day");
    let vdisk = pool.vdisk("named").unwrap();
    rig.run(async move {
        vdisk.write(VirtualOffset(1 << 19), &vec![7; 1 << 19], true).await.unwrap();
        let mut bytes = vec![0; 1 << 20];
        vdisk.read(VirtualOffset(0), &mut bytes).await.unwrap();
        assert!(bytes[..1 << 19].iter().all(|byte| *byte == 6) && bytes[1 << 19..].iter().all(|byte| *byte == 7));
    });
    let info = rig.pool().info();
    let named = info.vdisks.iter().find(|vdisk| vdisk.name == "named").unwrap();
    assert_eq!((named.failures_left, named.failures_new), (1, Some(1)));
    sound(&rig);
    rig.close().unwrap();
}

#[test]
fn a_job_that_the_power_cut_stopped_goes_on() {
    for kind in [JobKind::Scrub, JobKind::Evacuate { disk: 0, to: None, forget: true }] {
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

#[test]
fn a_slab_that_metadata_left_is_not_written_when_the_pool_is_opened() {
    let (mut rig, mut rng) = pool(6, 2, 1, Resiliency::Simple, 1);
    write(&rig, 0, 2 << 20, 4);
    let pool = rig.pool();
    let new = NewDisk { disk: Rc::new(rig.disks[1].clone()), id: Id([99; 16]), name: "new".into(), media: Media::Ssd };
    // Metadata goes to the new disk and back; then data is put where it was.
    let ended = rig.run(async move {
        let no = pool.disk_add(new, Usage::AutoSelect).await.unwrap();
        let metadata: Vec<u32> = {
            let map = pool.store().map.borrow();
            map.segments
                .values()
                .filter(|found| found.record.owner == OWNER_METADATA)
                .map(|found| found.record.id)
                .collect()
        };
        assert!(!metadata.is_empty());
        let retire = |usage| DiskChange { usage: Some(usage), ..DiskChange::default() };
        for (from, other) in [(0, no), (no, 0), (0, no)] {
            pool.disk_set(other, retire(Usage::AutoSelect)).await.unwrap();
            pool.disk_set(from, retire(Usage::Retired)).await.unwrap();
            let job = pool.job_start(JobKind::Evacuate { disk: from, to: None, forget: false }, 0).await.unwrap();
            let ended = pool.job_wait(job).await.unwrap();
            assert_eq!(ended.state, JobState::Done, "{ended:?}");
            let vdisk = pool.vdisk("vdisk").unwrap();
            vdisk.write(VirtualOffset(4 << 20), &vec![9; 3 << 20], true).await.unwrap();
        }
        true
    });
    assert!(ended);
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    reads(&rig, 0, 2 << 20, 4);
    reads(&rig, 4 << 20, 3 << 20, 9);
    sound(&rig);
    rig.close().unwrap();
}

#[test]
fn a_removed_disk_is_not_read_and_does_not_keep_the_pool_from_opening() {
    let (mut rig, mut rng) = pool(7, 5, 5, PARITY, 4);
    write(&rig, 0, 4 << 20, 1);
    rig.disks[2].vanish();
    write(&rig, 0, 4 << 20, 2);
    let pool = rig.pool();
    let ended = rig.run(async move {
        let job = pool.disk_remove(2, None, 0).await.unwrap();
        pool.job_wait(job).await.unwrap()
    });
    assert_eq!(ended.state, JobState::Done, "{ended:?}");
    rig.close().unwrap();
    rig.disks[2].come_back(&mut rng);
    rig.open(&mut rng).unwrap();
    assert_eq!(rig.pool().info().disks.len(), 4);
    reads(&rig, 0, 4 << 20, 2);
    sound(&rig);
    rig.close().unwrap();
}

#[test]
fn maintenance_is_refused_where_it_would_take_the_last_copy_and_ends_with_what_was_missed() {
    let (rig, _) = pool(8, 4, 4, PARITY, 4);
    write(&rig, 0, 4 << 20, 1);
    let pool = rig.pool();
    let rested = pool.clone();
    rig.run(async move {
        rested.plan_disk_offline(1).unwrap();
        assert!(rested.store().has_disk(1), "that was a question only");
        rested.disk_offline(1).await.unwrap();
        let foreseen = rested.plan_disk_offline(2).unwrap_err();
        let refused = rested.disk_offline(2).await.unwrap_err();
        assert!(refused.context.contains("out of reach") && refused.context == foreseen.context, "{refused}");
    });
    write(&rig, 0, 1 << 20, 2);
    let back = pool.clone();
    rig.run(async move { back.disk_online(1).await.unwrap() });
    settle(&rig);
    assert_eq!(pool.unsound_bytes(), ByteCount(0));
    rig.disks[0].vanish();
    reads(&rig, 0, 1 << 20, 2);
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
            pool.note_event(no, no % 3 == 0, text(no));
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

#[test]
fn a_full_disk_is_no_reason_to_give_redundancy_away() {
    let (rig, _) = pool(10, 4, 4, PARITY, 3);
    // One disk is full, the others are not: nothing new may lie on fewer disks than the layout has columns.
    let pool = rig.pool();
    {
        let mut map = pool.store().map.borrow_mut();
        for no in [1, 2] {
            let free = &mut map.disks.get_mut(&no).unwrap().free;
            let len = free.len();
            free.remove(0..len);
        }
    }
    let vdisk = pool.vdisk("vdisk").unwrap();
    let refused = rig.run(async move { vdisk.write(VirtualOffset(0), &[1; 4096], true).await.unwrap_err() });
    assert_eq!(refused.kind, weft_engine::error::ErrorKind::NoSpace, "{refused}");
    let map = pool.store().map.borrow();
    assert!(map.segments.values().all(|segment| segment.record.slabs.iter().all(Option::is_some)));
}

/// Lets `begin` have disk `no` emptied; the job is made to wait before it is over.
fn paused_evacuation<F: Future<Output = ()> + 'static>(rig: &Rig, no: u16, begin: impl FnOnce(Rc<Pool>) -> F) -> u32 {
    let (pool, world) = (rig.pool(), rig.world.clone());
    let paused = Rc::new(Cell::new(None));
    let (begin, seen) = (begin(pool.clone()), paused.clone());
    let watch = async move {
        for _ in 0..100_000 {
            let empties = |kind| matches!(kind, JobKind::Evacuate { disk, .. } if disk == no);
            if let Some(job) = pool.jobs().into_iter().find(|job| empties(job.kind)) {
                pool.job_pause(job.id).await.unwrap();
                return seen.set(Some(job.id));
            }
            world.sleep(Nanos(10_000)).await;
        }
    };
    let both: Vec<std::pin::Pin<Box<dyn Future<Output = ()>>>> = vec![Box::pin(watch), Box::pin(begin)];
    rig.run(async move { weft_engine::sync::join_all(both).await });
    paused.get().expect("somebody empties the disk")
}

fn usage(rig: &Rig, no: u16) -> Usage {
    rig.pool().store().map.borrow().disks[&no].record.usage
}

#[test]
fn a_disk_whose_evacuation_is_cancelled_is_used_as_before_also_after_a_power_cut() {
    let used = |usage| DiskChange { usage: Some(usage), ..DiskChange::default() };
    for (seed, before) in [(11, Usage::ManualSelect), (12, Usage::Journal), (13, Usage::AutoSelect)] {
        for (removed, cut) in [(false, false), (false, true), (true, false), (true, true)] {
            let (mut rig, mut rng) = pool(seed, 6, 6, PARITY, 4);
            write(&rig, 0, 7 << 20, 3);
            let job = paused_evacuation(&rig, 2, |pool| async move {
                pool.disk_set(2, used(before)).await.unwrap();
                match removed {
                    true => pool.disk_remove(2, None, 0).await.map(drop).unwrap(),
                    false => pool.disk_set(2, used(Usage::Retired)).await.unwrap(),
                }
            });
            assert_eq!(usage(&rig, 2), Usage::Retired);
            if cut {
                rig.power_cut(&mut rng);
                rig.open(&mut rng).unwrap();
            }
            let pool = rig.pool();
            rig.run(async move { pool.job_cancel(job).await.unwrap() });
            assert_eq!(usage(&rig, 2), before);
            settle(&rig);
            let anew = rig.pool().jobs().into_iter().filter(|job| matches!(job.kind, JobKind::Evacuate { .. })).count();
            assert_eq!(anew, 1, "it is not emptied anew");
            rig.power_cut(&mut rng);
            rig.open(&mut rng).unwrap();
            assert_eq!(usage(&rig, 2), before, "that is durable");
            reads(&rig, 0, 7 << 20, 3);
            rig.close().unwrap();
        }
    }
}

#[test]
fn a_disk_that_failed_a_write_gets_another_chance_and_is_retired_when_it_fails_again_and_again() {
    let (rig, _) = pool(14, 6, 6, PARITY, 4);
    write(&rig, 0, 4 << 20, 1);
    for failure in 1..=3u64 {
        let fault = weft_sim::disk::WriteFault::Error(weft_engine::io::DiskError::Os(5));
        rig.disks[3].fault_next_write(fault);
        let pool = rig.pool();
        for turn in 0..100 {
            write(&rig, turn % 8 * (48 << 10), 48 << 10, 10 + failure as u8);
            if !pool.store().has_disk(3) {
                break;
            }
        }
        assert!(!pool.store().has_disk(3), "it failed");
        assert_eq!(pool.info().disks[3].counters.failures, failure);
        assert_eq!(usage(&rig, 3), if failure < 3 { Usage::AutoSelect } else { Usage::Retired });
        write(&rig, 1 << 20, 48 << 10, 20 + failure as u8);
        let again: Rc<dyn weft_engine::io::Disk> = Rc::new(rig.disks[3].clone());
        rig.run(async move { pool.attach(again).await.unwrap() });
        settle(&rig);
        let pool = rig.pool();
        assert_eq!(
            pool.store().map.borrow().disks[&3].record.away,
            Away::No,
            "it has what it missed: {:?}",
            pool.jobs()
        );
        reads(&rig, 1 << 20, 48 << 10, 20 + failure as u8);
        sound(&rig);
    }
    let pool = rig.pool();
    assert_eq!(pool.info().disks[3].allocated, ByteCount(0), "what it held has moved: {:?}", pool.jobs());
    let told = rig
        .world
        .take_events()
        .into_iter()
        .any(|(_, event)| matches!(event, weft_engine::event::Event::DiskUnreliable { failures: 3, .. }));
    assert!(told, "people are told");
}

#[test]
fn the_number_of_a_disk_that_left_is_given_again_only_after_all_others_were() {
    let (mut rig, mut rng) = pool(9, 4, 3, Resiliency::Mirror { copies: 2 }, 1);
    let mut given = Vec::new();
    for round in 0..66u8 {
        let (pool, disk) = (rig.pool(), rig.disks[3].clone());
        let new = NewDisk { disk: Rc::new(disk), id: Id([round + 100; 16]), name: "new".into(), media: Media::Ssd };
        given.push(rig.run(async move {
            let no = pool.disk_add(new, Usage::ManualSelect).await.unwrap();
            let job = pool.disk_remove(no, None, 0).await.unwrap();
            assert_eq!(pool.job_wait(job).await.unwrap().state, JobState::Done);
            no
        }));
        if round % 20 == 7 {
            rig.power_cut(&mut rng);
            rig.open(&mut rng).unwrap();
        }
    }
    let expected: Vec<u16> = (3..64).chain(3..8).collect();
    assert_eq!(given, expected, "0 to 2 are in use all the while");
}

#[test]
fn stripes_that_could_not_be_written_leave_no_claim_on_free_ones() {
    let (rig, _) = pool(10, 2, 2, Resiliency::Simple, 2);
    write(&rig, 0, 256 << 10, 1);
    rig.disks[1].vanish();
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let (pool, world, disk) = (rig.pool(), rig.world.clone(), rig.disks[1].clone());
    let (writer, mut rng) = (vdisk.clone(), world.rng("back"));
    // How it ends is another story.
    let write = async move { drop(writer.write(VirtualOffset(0), &vec![2; 6 << 20], false).await) };
    world.spawn("write", Box::pin(write));
    rig.run(async move {
        world.sleep(Nanos::secs(120)).await;
        disk.come_back(&mut rng);
        let _ = pool.attach(Rc::new(disk)).await;
        world.sleep(Nanos::secs(120)).await;
        let _ = vdisk.flush().await;
        let claims: u64 = pool.store().map.borrow().tables.values().map(|table| table.claims).sum();
        assert_eq!(claims, vdisk.claims().expect("nothing is under way"), "one for each buffer");
    });
}

#[test]
fn the_leaving_of_a_disk_that_nothing_lies_on_is_judged_by_what_is_not_written_yet() {
    let (mut rig, _) = pool(11, 5, 4, PARITY, 4);
    let pool = rig.pool();
    let leaving = pool.plan_disk_remove(3, Instead::Nothing).unwrap();
    assert_eq!((leaving.moves, leaving.losses.len()), (ByteCount(0), 1));
    let loss = &leaving.losses[0];
    assert_eq!((loss.vdisk.as_str(), loss.left, loss.survives()), ("vdisk", 3, Some(0)));
    assert!(pool.plan_disk_remove(3, Instead::New(ByteCount::mib(24))).unwrap().losses.is_empty());
    assert_eq!(pool.plan_disk_remove(3, Instead::Member(2)).unwrap().losses.len(), 1, "it is in use already");
    let info = |pool: &Pool| (pool.info().vdisks[0].failures_left, pool.info().vdisks[0].failures_new);
    assert_eq!(info(&pool), (1, Some(1)));
    // One that is lost could leave: it is named as needed all the same.
    rig.disks[3].vanish();
    write(&rig, 0, 48 << 10, 1);
    assert_eq!(info(&pool), (0, Some(0)));
    assert_eq!(pool.info().disks[3].needed_by, ["vdisk"]);
    let new = NewDisk { disk: Rc::new(rig.disks[4].clone()), id: Id([77; 16]), name: "d4".into(), media: Media::Ssd };
    rig.members = 5;
    let adding = pool.clone();
    rig.run(async move { adding.disk_add(new, Usage::AutoSelect).await.map(drop) }).unwrap();
    assert!(pool.info().disks[3].needed_by.is_empty());
    assert_eq!(info(&pool).1, Some(1));
}

/// A virtual disk of one stripe on one disk: 1 is durable there, 2 was written after it and was not flushed, but for
/// its first half if `landed`. The disk goes without a flush and comes back with what it had; `None` where that was
/// all.
fn lost_write(seed: u64, landed: bool) -> Option<Rig> {
    let (rig, _) = pool(seed, 3, 3, Resiliency::Simple, 1);
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let stripe = vdisk.stripe_len().as_usize();
    write(&rig, 0, stripe, 1);
    if landed {
        write(&rig, 0, stripe / 2, 2);
    }
    let (pool, writer) = (rig.pool(), vdisk.clone());
    rig.run(async move {
        let from = if landed { stripe / 2 } else { 0 };
        writer.write(VirtualOffset(from as u64), &vec![2; stripe - from], false).await.unwrap();
        pool.store().world.sleep(Nanos::millis(50)).await;
    });
    let holder = {
        let pool = rig.pool();
        let map = pool.store().map.borrow();
        let place = map.tables.values().flat_map(|table| table.mapped_from(0)).next().expect("it is written").1;
        map.segments[&place.segment].slab(0).unwrap().disk
    };
    let (pool, world, disk) = (rig.pool(), rig.world.clone(), rig.disks[holder as usize].clone());
    let (flusher, mut rng) = (vdisk.clone(), world.rng("back"));
    disk.vanish();
    rig.run(async move {
        let _ = flusher.flush().await;
        // Its cache had no power.
        disk.power_cut(&mut rng);
        disk.come_back(&mut rng);
        let _ = pool.attach(Rc::new(disk)).await;
        world.sleep(Nanos::secs(120)).await;
    });
    vdisk.failure().map(|_| rig)
}

#[test]
fn a_virtual_disk_that_lost_a_write_serves_again_when_it_is_cleared_and_says_what_was_given_up() {
    let lost: Vec<Rig> = (200..220).filter_map(|seed| lost_write(seed, false)).collect();
    assert!(!lost.is_empty(), "no write was lost: this story tells nothing");
    for rig in lost {
        let vdisk = rig.pool().vdisk("vdisk").unwrap();
        let stripe = vdisk.stripe_len().0;
        let all: Vec<_> = std::iter::once(0..stripe).collect();
        assert_eq!(vdisk.plan_clear(), all);
        assert_eq!(vdisk.clear().unwrap(), all);
        assert!(vdisk.failure().is_none() && vdisk.plan_clear().is_empty());
        reads(&rig, 0, stripe as usize, 1);
        write(&rig, 0, stripe as usize, 3);
        reads(&rig, 0, stripe as usize, 3);
        sound(&rig);
    }
}

#[test]
fn what_the_log_holds_of_a_lost_write_is_not_given_up_when_its_virtual_disk_is_cleared() {
    let lost: Vec<Rig> = (300..340).filter_map(|seed| lost_write(seed, true)).collect();
    assert!(!lost.is_empty(), "no write was lost: this story tells nothing");
    for mut rig in lost {
        let vdisk = rig.pool().vdisk("vdisk").unwrap();
        let stripe = vdisk.stripe_len().as_usize();
        assert!(vdisk.plan_clear().is_empty(), "all of it is still in memory");
        assert!(vdisk.clear().unwrap().is_empty());
        reads(&rig, 0, stripe, 2);
        let flushed = vdisk.clone();
        rig.run(async move { flushed.flush().await.unwrap() });
        drop(vdisk);
        let mut rng = rig.world.rng("cut");
        rig.power_cut(&mut rng);
        rig.open(&mut rng).unwrap();
        reads(&rig, 0, stripe, 2);
        settle(&rig);
        sound(&rig);
    }
}

#[test]
fn a_disk_with_no_room_below_it_is_taken_out_and_never_retired_for_it() {
    let (rig, _) = pool(12, 5, 5, PARITY, 4);
    let pool = rig.pool();
    write(&rig, 0, 4 << 20, 1);
    for failure in 1..=5 {
        rig.disks[3].fault_next_write(WriteFault::Error(DiskError::Full));
        for turn in 0..100 {
            write(&rig, turn % 8 * (48 << 10), 48 << 10, 10 + failure);
            if !pool.store().has_disk(3) {
                break;
            }
        }
        assert!(!pool.store().has_disk(3) && pool.info().disks[3].out_of_room, "it was taken out");
        let (attached, back) = (pool.clone(), rig.disks[3].clone());
        rig.run(async move { attached.attach(Rc::new(back)).await.map(drop).unwrap() });
        settle(&rig);
        assert!(!pool.info().disks[3].out_of_room);
        assert_eq!((usage(&rig, 3), pool.info().disks[3].counters.failures), (Usage::AutoSelect, 0), "it is well");
    }
    let reasons = rig.world.take_events().into_iter().filter_map(|(_, event)| match event {
        Event::DiskLost { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reasons.filter(|reason| reason.contains("no room is left below it")).count(), 5, "people are told why");
    sound(&rig);
}
