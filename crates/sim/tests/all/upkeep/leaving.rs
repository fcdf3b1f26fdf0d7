//! Disks that leave, and others that take their places.

use super::{PARITY, pool, reads, settle, sound, usage, write};
use crate::planted::leaving;
use std::cell::Cell;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::record::{Media, OWNER_METADATA, Usage};
use weft_engine::geometry::Resiliency;
use weft_engine::pool::job::{JobKind, JobState};
use weft_engine::pool::{DiskChange, Instead, NewDisk, Pool, VdiskSpec};
use weft_engine::units::{ByteCount, DiskNo, JobNo, Nanos, SegmentNo, VirtualOffset};
use weft_engine::world::World;
use weft_sim::rig::Rig;
use weft_sim::world::Stop;

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
            let job = pool.disk_remove(DiskNo(turn), Some(to), 0).await.unwrap();
            pool.job_wait(job).await.unwrap()
        });
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
        rig.power_cut(&mut rng);
        rig.open(&mut rng).unwrap();
    }
    let members: Vec<DiskNo> = rig.pool().info().disks.iter().map(|disk| disk.no).collect();
    assert_eq!(members.len(), 4, "{members:?}");
    rig.disks[..4].iter().for_each(|disk| disk.vanish());
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    reads(&rig, 0, 7 << 20, 5);
    sound(&rig);
    rig.close().unwrap();
}

/// The power goes when a disk has left, and before its job is on record as done: the job ends well all the same.
#[test]
fn a_job_whose_disk_has_left_when_the_power_goes_is_done() {
    for (wait, seed) in [0, 1_000_000, 4_000_000, 20_000_000].into_iter().zip(0..) {
        let (mut rig, mut rng) = pool(21 + seed, 5, 5, PARITY, 4);
        write(&rig, 0, 3 << 20, 5);
        let pool = rig.pool();
        let asked = pool.clone();
        let job = rig.run(async move { asked.disk_remove(DiskNo(2), None, 0).await.unwrap() });
        let stop = rig.world.run_until(Nanos::secs(600), || !pool.store().map.borrow().disks.contains_key(&DiskNo(2)));
        assert_eq!(stop, Stop::Done);
        drop(pool);
        rig.world.run_until(Nanos(wait), || false);
        rig.power_cut(&mut rng);
        rig.open(&mut rng).unwrap();
        let pool = rig.pool();
        let ended = rig.run(async move { pool.job_wait(job).await.unwrap() });
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
        assert_eq!(rig.pool().info().disks.len(), 4);
        reads(&rig, 0, 3 << 20, 5);
        sound(&rig);
        rig.close().unwrap();
    }
}

#[test]
fn the_emptying_of_a_disk_that_is_used_again_ends() {
    leaving::the_emptying_of_a_disk_that_is_used_again_ends();
}

#[test]
fn a_disk_that_leaves_does_not_take_the_room_that_a_repair_needs() {
    leaving::a_disk_that_leaves_does_not_take_the_room_that_a_repair_needs();
}

#[test]
fn a_disk_leaves_for_one_that_has_no_copy_of_the_metadata_yet() {
    leaving::a_disk_leaves_for_one_that_has_no_copy_of_the_metadata_yet();
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
            disks: DiskSet::from_words(&[0b11]),
        };
        let vdisk = pool.vdisk_create(&spec).await.unwrap();
        vdisk.write(VirtualOffset(0), &vec![6; 1 << 19], true).await.unwrap();
        let taken = pool.plan_disk_remove(DiskNo(1), Instead::New(ByteCount::mib(8))).unwrap();
        assert_eq!(taken.losses, [], "the new one takes its place");
        assert!(
            pool.plan_disk_remove(DiskNo(1), Instead::Nothing).unwrap().losses.iter().any(|loss| loss.vdisk == "named")
        );
        let to = pool.disk_add(new, Usage::ManualSelect).await.unwrap();
        assert_eq!(pool.plan_disk_remove(DiskNo(1), Instead::Member(to)).unwrap().losses, []);
        let job = pool.disk_remove(DiskNo(1), Some(to), 0).await.unwrap();
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
    assert_eq!(named, DiskSet::only(DiskNo(0)).with(to), "the number of the one that left may be another's some day");
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
fn a_slab_that_metadata_left_is_not_written_when_the_pool_is_opened() {
    let (mut rig, mut rng) = pool(6, 2, 1, Resiliency::Simple, 1);
    write(&rig, 0, 2 << 20, 4);
    let pool = rig.pool();
    let new = NewDisk { disk: Rc::new(rig.disks[1].clone()), id: Id([99; 16]), name: "new".into(), media: Media::Ssd };
    // Metadata goes to the new disk and back; then data is put where it was.
    let ended = rig.run(async move {
        let no = pool.disk_add(new, Usage::AutoSelect).await.unwrap();
        let metadata: Vec<SegmentNo> = {
            let map = pool.store().map.borrow();
            map.segments
                .values()
                .filter(|found| found.record.owner == OWNER_METADATA)
                .map(|found| found.record.id)
                .collect()
        };
        assert!(!metadata.is_empty());
        let retire = |usage| DiskChange { usage: Some(usage), ..DiskChange::default() };
        for (from, other) in [(DiskNo(0), no), (no, DiskNo(0)), (DiskNo(0), no)] {
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
        let job = pool.disk_remove(DiskNo(2), None, 0).await.unwrap();
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

/// Lets `begin` have disk `no` emptied; the job is made to wait before it is over.
fn paused_evacuation<F: Future<Output = ()> + 'static>(
    rig: &Rig,
    no: DiskNo,
    begin: impl FnOnce(Rc<Pool>) -> F,
) -> JobNo {
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

#[test]
fn a_disk_whose_evacuation_is_cancelled_is_used_as_before_also_after_a_power_cut() {
    let used = |usage| DiskChange { usage: Some(usage), ..DiskChange::default() };
    for (seed, before) in [(11, Usage::ManualSelect), (12, Usage::Journal), (13, Usage::AutoSelect)] {
        for (removed, cut) in [(false, false), (false, true), (true, false), (true, true)] {
            let (mut rig, mut rng) = pool(seed, 6, 6, PARITY, 4);
            write(&rig, 0, 7 << 20, 3);
            let job = paused_evacuation(&rig, DiskNo(2), |pool| async move {
                pool.disk_set(DiskNo(2), used(before)).await.unwrap();
                match removed {
                    true => pool.disk_remove(DiskNo(2), None, 0).await.map(drop).unwrap(),
                    false => pool.disk_set(DiskNo(2), used(Usage::Retired)).await.unwrap(),
                }
            });
            assert_eq!(usage(&rig, DiskNo(2)), Usage::Retired);
            if cut {
                rig.power_cut(&mut rng);
                rig.open(&mut rng).unwrap();
            }
            let pool = rig.pool();
            rig.run(async move { pool.job_cancel(job).await.unwrap() });
            assert_eq!(usage(&rig, DiskNo(2)), before);
            settle(&rig);
            let anew = rig.pool().jobs().into_iter().filter(|job| matches!(job.kind, JobKind::Evacuate { .. })).count();
            assert_eq!(anew, 1, "it is not emptied anew");
            rig.power_cut(&mut rng);
            rig.open(&mut rng).unwrap();
            assert_eq!(usage(&rig, DiskNo(2)), before, "that is durable");
            reads(&rig, 0, 7 << 20, 3);
            rig.close().unwrap();
        }
    }
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
    let expected: Vec<DiskNo> = (3..64).chain(3..8).map(DiskNo).collect();
    assert_eq!(given, expected, "0 to 2 are in use all the while");
}

#[test]
fn the_leaving_of_a_disk_that_nothing_lies_on_is_judged_by_what_is_not_written_yet() {
    let (mut rig, _) = pool(11, 5, 4, PARITY, 4);
    let pool = rig.pool();
    let leaving = pool.plan_disk_remove(DiskNo(3), Instead::Nothing).unwrap();
    assert_eq!((leaving.moves, leaving.losses.len()), (ByteCount(0), 1));
    let loss = &leaving.losses[0];
    assert_eq!((loss.vdisk.as_str(), loss.left, loss.survives()), ("vdisk", 3, Some(0)));
    assert!(pool.plan_disk_remove(DiskNo(3), Instead::New(ByteCount::mib(24))).unwrap().losses.is_empty());
    assert_eq!(
        pool.plan_disk_remove(DiskNo(3), Instead::Member(DiskNo(2))).unwrap().losses.len(),
        1,
        "it is in use already"
    );
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
