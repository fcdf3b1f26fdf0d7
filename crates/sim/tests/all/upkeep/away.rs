//! Disks that are missing for a while, or for good.

use super::{PARITY, job, pool, reads, settle, sound, write, written};
use std::rc::Rc;
use weft_engine::format::Id;
use weft_engine::format::record::{Away, Media, Usage};
use weft_engine::io::Disk;
use weft_engine::pool::NewDisk;
use weft_engine::pool::job::{JobKind, JobState};
use weft_engine::units::{ByteCount, DiskNo, Nanos};
use weft_engine::world::World;

#[test]
fn a_disk_that_comes_back_gets_only_what_it_missed() {
    let (rig, _) = pool(1, 4, 4, PARITY, 4);
    write(&rig, 0, 6 << 20, 1);
    rig.disks[3].vanish();
    write(&rig, 0, 48 << 10, 2);
    let pool = rig.pool();
    let away = pool.store().map.borrow().disks[&DiskNo(3)].record.away;
    assert_eq!(away, Away::Tracked);
    let before = written(&pool, DiskNo(3));
    rig.disks[3].come_back(&mut rig.world.rng("old"));
    let back: Rc<dyn Disk> = Rc::new(rig.disks[3].clone());
    let attached = pool.clone();
    rig.run(async move { attached.attach(back).await.unwrap() });
    settle(&rig);
    assert_eq!(pool.store().map.borrow().disks[&DiskNo(3)].record.away, Away::No, "{:?}", pool.jobs());
    let sent = written(&pool, DiskNo(3)) - before;
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
fn maintenance_is_refused_where_it_would_take_the_last_copy_and_ends_with_what_was_missed() {
    let (rig, _) = pool(8, 4, 4, PARITY, 4);
    write(&rig, 0, 4 << 20, 1);
    let pool = rig.pool();
    let rested = pool.clone();
    rig.run(async move {
        rested.plan_disk_offline(DiskNo(1)).unwrap();
        assert!(rested.store().has_disk(DiskNo(1)), "that was a question only");
        rested.disk_offline(DiskNo(1)).await.unwrap();
        let foreseen = rested.plan_disk_offline(DiskNo(2)).unwrap_err();
        let refused = rested.disk_offline(DiskNo(2)).await.unwrap_err();
        assert!(refused.context.contains("out of reach") && refused.context == foreseen.context, "{refused}");
    });
    write(&rig, 0, 1 << 20, 2);
    let back = pool.clone();
    rig.run(async move { back.disk_online(DiskNo(1)).await.unwrap() });
    settle(&rig);
    assert_eq!(pool.unsound_bytes(), ByteCount(0));
    rig.disks[0].vanish();
    reads(&rig, 0, 1 << 20, 2);
}
