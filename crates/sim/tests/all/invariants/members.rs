//! Who is a member, who is current, and what may be asked of whom.

use crate::story::*;
use std::rc::Rc;
use weft_engine::error::ErrorKind;
use weft_engine::event::Event;
use weft_engine::io::{Disk, DiskError};
use weft_engine::pool::Pool;
use weft_engine::pool::info::DiskState;
use weft_engine::units::{BLOCK, ByteCount, DiskNo};
use weft_engine::world::World;
use weft_sim::disk::SimDisk;
use weft_sim::rig::Rig;

/// pool/open.rs, invariants 1 and 2, and store/mod.rs, invariant 2: a disk that missed writes comes back: the new data
/// is read. Alone, it is refused.
#[test]
fn a_stale_disk_never_wins_and_does_not_open_the_pool_alone() {
    let mut story = Story::new(1, 2, MIRROR2);
    story.write_and_flush(0, 4 * story.stripe(), 1);
    story.rig.disks[1].vanish();
    story.write_and_flush(0, 2 * story.stripe() + 512, 2);
    assert!(story.events().iter().any(|event| matches!(event, Event::DiskLost { disk: DiskNo(1), .. })));
    story.cut();
    story.rig.disks[1].come_back(&mut story.rng);
    let images = story.images();
    story.open().unwrap();
    assert_eq!(story.info().disks[1].state, DiskState::Stale);
    assert_eq!(story.byte(0, 2 * story.stripe() + 512).unwrap(), 2);
    assert_eq!(story.byte(2 * story.stripe() + 512, story.stripe()).unwrap(), 1);
    story.close();
    // With the old disk alone.
    let mut alone = story.with_images(&images);
    alone.rig.disks[0].vanish();
    assert_eq!(kind(alone.open()), Some(ErrorKind::NotPossible));
}

/// pool/open.rs, invariant 2: of three disks two open the pool, one only when the operator says so; and two old ones
/// are refused once the third went on alone.
#[test]
fn a_majority_opens_and_a_minority_is_asked_for_by_name() {
    let mut story = Story::new(2, 3, MIRROR3);
    story.write_and_flush(0, story.stripe(), 1);
    story.close();
    story.rig.disks[0].vanish();
    story.open().unwrap();
    assert_eq!(story.byte(0, story.stripe()).unwrap(), 1);
    story.cut();
    story.rig.disks[1].vanish();
    // The two wrote labels that name two voters: one is no majority.
    assert_eq!(kind(story.open()), Some(ErrorKind::NotPossible));
    story.rig.options.degraded = true;
    story.open().unwrap();
    story.write_and_flush(0, story.stripe(), 2);
    story.close();
    story.rig.options.degraded = false;
    story.rig.disks[0].come_back(&mut story.rng);
    story.rig.disks[1].come_back(&mut story.rng);
    story.open().unwrap();
    assert_eq!(story.byte(0, story.stripe()).unwrap(), 2, "the one that went on is right");
    story.close();
}

/// pool/open.rs: identity decides, not order; `Rig::open` shuffles, here every order is tried.
#[test]
fn the_order_of_the_disks_means_nothing() {
    let mut story = Story::new(3, 3, PARITY);
    story.write_and_flush(0, 5 * story.stripe(), 7);
    story.close();
    let images = story.images();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut other = story.with_images(&order.map(|no| images[no].clone()));
        other.open().unwrap();
        assert_eq!(other.byte(0, 5 * story.stripe()).unwrap(), 7);
        assert_eq!(other.prove(), 0);
        other.close();
    }
}

/// pool/open.rs: a copy of a member and a member of another pool are refused, and nothing is written.
#[test]
fn a_duplicate_and_a_foreign_disk_are_refused() {
    let mut story = Story::new(4, 2, MIRROR2);
    story.write_and_flush(0, story.stripe(), 1);
    story.close();
    let images = story.images();
    let mut twice = story.with_images(&[images[0].clone(), images[1].clone(), images[1].clone()]);
    assert_eq!(kind(twice.open()), Some(ErrorKind::AlreadyExists));
    assert_same(&twice.images()[..2], &images);
    // Another pool: the same disks, another pool identity.
    let foreign = foreign_member();
    let mut mixed = story.with_images(&[images[0].clone(), images[1].clone(), foreign]);
    assert_eq!(kind(mixed.open()), Some(ErrorKind::InvalidInput));
    assert_same(&mixed.images()[..2], &images);
}

/// A disk of a pool with another identity.
fn foreign_member() -> weft_sim::disk::DiskImage {
    use weft_engine::format::Id;
    use weft_engine::format::record::Media;
    use weft_engine::pool::create::create;
    use weft_engine::pool::{NewDisk, PoolOptions};
    let story = Story::new(5, 1, SIMPLE);
    let disk: SimDisk = story.rig.disks[0].clone();
    let new = NewDisk { disk: Rc::new(disk.clone()), id: Id([9; 16]), name: "x".into(), media: Media::Ssd };
    let options = PoolOptions { id: Id([0xDD; 16]), name: "other".into(), slab: ByteCount::mib(1), log_len: None };
    story.rig.run(async move { create(vec![new], &options).await.unwrap() });
    disk.image()
}

/// store/mod.rs, invariant 1: a disk that fails a write or a flush is out at once, and the promise of that flush holds
/// without it.
#[test]
fn a_disk_that_dies_during_a_flush_is_out_and_the_flush_holds() {
    for after in 0..12 {
        let mut story = Story::new(6, 3, PARITY);
        story.write_and_flush(0, 2 * story.stripe(), 1);
        story.write(0, story.stripe(), 2).unwrap();
        story.write(story.stripe(), 512, 3).unwrap();
        let (vdisk, world, disk) = (story.vdisk(), story.rig.world.clone(), story.rig.disks[2].clone());
        story.rig.run(async move {
            let die = async {
                world.sleep(weft_engine::units::Nanos::millis(after)).await;
                disk.vanish();
                Ok(())
            };
            let both: Vec<std::pin::Pin<Box<dyn Future<Output = weft_engine::error::Result<()>>>>> =
                vec![Box::pin(vdisk.flush()), Box::pin(die)];
            weft_engine::sync::join_all(both).await.into_iter().for_each(|ended| ended.unwrap());
        });
        story.cut();
        story.open().unwrap();
        assert_eq!(story.byte(0, story.stripe()).unwrap(), 2, "after {after} ms");
        assert_eq!(story.byte(story.stripe(), 512).unwrap(), 3);
        assert_eq!(story.byte(story.stripe() + 512, story.stripe() - 512).unwrap(), 1);
        story.prove();
        story.close();
    }
}

/// store/mod.rs, invariant 1: the same for errors that a disk reports while it stays there.
#[test]
fn a_disk_that_reports_a_failed_write_or_flush_is_taken_out() {
    for flush in [false, true] {
        let mut story = Story::new(7, 2, MIRROR2);
        story.write_and_flush(0, story.stripe(), 1);
        story.events();
        match flush {
            true => story.rig.disks[1].fail_next_flush(DiskError::Os(5)),
            false => story.rig.disks[1].fault_next_write(weft_sim::disk::WriteFault::Error(DiskError::Os(5))),
        }
        story.write_and_flush(0, story.stripe(), 2);
        assert!(story.events().iter().any(|event| matches!(event, Event::DiskLost { disk: DiskNo(1), .. })));
        assert_eq!(story.info().disks[1].state, DiskState::Missing);
        story.cut();
        story.open().unwrap();
        assert_eq!(story.byte(0, story.stripe()).unwrap(), 2);
        assert_eq!(story.info().disks[1].state, DiskState::Stale, "it is there again, and not believed");
        story.close();
    }
}

/// pool/open.rs, `OpenOptions::read_only`: nothing is changed, after a crash with work left and with damage to heal.
#[test]
fn a_read_only_opening_changes_no_byte_and_refuses_writes() {
    let mut story = Story::new(8, 3, PARITY);
    story.write_and_flush(0, 3 * story.stripe() + 1024, 5);
    story.cut();
    let plan = story.plan(0);
    story.rig.disks[0].rot(weft_engine::units::DiskOffset(BLOCK));
    story.rig.disks[1].rot(plan.log_at);
    story.rig.disks[2].rot(plan.data_at + ByteCount(BLOCK));
    let before = story.images();
    story.rig.options.read_only = true;
    story.open().unwrap();
    assert_eq!(story.byte(0, 3 * story.stripe() + 1024).unwrap(), 5);
    assert_eq!(kind(story.write(0, 512, 1)), Some(ErrorKind::ReadOnly));
    story.flush().unwrap();
    story.close();
    assert_same(&story.images(), &before);
    assert!(story.rig.disks.iter().all(|disk| disk.unflushed().is_empty()), "not even an unflushed write");
}

/// pool/open.rs: no disk, or one that was never weft's, is no pool.
#[test]
fn disks_without_a_label_are_no_pool() {
    let story = Story::new(9, 1, SIMPLE);
    let world = story.rig.world.clone();
    let shape = story.rig.disks[0].shape();
    let blank =
        SimDisk::new(&world, shape, Box::new(weft_sim::timing::Random::new(Default::default(), world.rng("x"))));
    let rig: &Rig = &story.rig;
    let seam: Rc<dyn World> = Rc::new(world);
    let opened =
        rig.run(async move { Pool::open(seam, vec![Rc::new(blank) as Rc<dyn Disk>], Default::default()).await });
    assert_eq!(kind(opened), Some(ErrorKind::NotFound));
}
