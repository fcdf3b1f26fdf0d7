//! Disks that fail writes, and what becomes of those.

use super::{PARITY, job, pool, reads, settle, sound, usage, write};
use std::rc::Rc;
use weft_engine::error::ErrorKind;
use weft_engine::event::Event;
use weft_engine::format::record::{Away, Usage};
use weft_engine::geometry::Resiliency;
use weft_engine::io::{Disk, DiskError};
use weft_engine::pool::job::{JobKind, JobState};
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::disk::WriteFault;
use weft_sim::rig::Rig;

#[test]
fn a_disk_that_failed_a_write_gets_another_chance_and_is_retired_when_it_fails_again_and_again() {
    let (rig, _) = pool(14, 6, 6, PARITY, 4);
    write(&rig, 0, 4 << 20, 1);
    for failure in 1..=3u64 {
        let fault = WriteFault::Error(DiskError::Os(5));
        rig.disks[3].fault_next_write(fault);
        let pool = rig.pool();
        for turn in 0..100 {
            write(&rig, turn % 8 * (48 << 10), 48 << 10, 10 + failure as u8);
            if !pool.store().has_disk(DiskNo(3)) {
                break;
            }
        }
        assert!(!pool.store().has_disk(DiskNo(3)), "it failed");
        assert_eq!(pool.info().disks[3].counters.failures, failure);
        assert_eq!(usage(&rig, DiskNo(3)), if failure < 3 { Usage::AutoSelect } else { Usage::Retired });
        write(&rig, 1 << 20, 48 << 10, 20 + failure as u8);
        let again: Rc<dyn Disk> = Rc::new(rig.disks[3].clone());
        rig.run(async move { pool.attach(again).await.unwrap() });
        settle(&rig);
        let pool = rig.pool();
        assert_eq!(
            pool.store().map.borrow().disks[&DiskNo(3)].record.away,
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
        .any(|(_, event)| matches!(event, Event::DiskUnreliable { failures: 3, .. }));
    assert!(told, "people are told");
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

/// A virtual disk of one stripe on one disk: 1 is durable there, 2 was written after it and was not flushed, but for
/// its first half if `landed`. The disk goes without a flush and comes back with what it had.
fn lost_write(seed: u64, landed: bool) -> Rig {
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
    let (pool, world, disk) = (rig.pool(), rig.world.clone(), rig.disks[holder.0 as usize].clone());
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
    rig
}

#[test]
fn a_virtual_disk_that_lost_a_write_serves_again_when_it_is_cleared_and_says_what_was_given_up() {
    let fails = |rig: &Rig| rig.pool().vdisk("vdisk").unwrap().failure().is_some();
    let lost: Vec<Rig> = (200..220).map(|seed| lost_write(seed, false)).filter(fails).collect();
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
fn what_the_log_holds_of_a_lost_write_gathers_again_by_itself() {
    let mut again = 0;
    for seed in 300..340 {
        let mut rig = lost_write(seed, true);
        let vdisk = rig.pool().vdisk("vdisk").unwrap();
        let stripe = vdisk.stripe_len().as_usize();
        assert!(vdisk.failure().is_none() && vdisk.plan_clear().is_empty(), "all of it is still in memory");
        again += vdisk.counters.gathered_again.get();
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
    assert!(again > 0, "no write was lost: this story tells nothing");
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
            if !pool.store().has_disk(DiskNo(3)) {
                break;
            }
        }
        assert!(!pool.store().has_disk(DiskNo(3)) && pool.info().disks[3].out_of_room, "it was taken out");
        let (attached, back) = (pool.clone(), rig.disks[3].clone());
        rig.run(async move { attached.attach(Rc::new(back)).await.map(drop).unwrap() });
        settle(&rig);
        assert!(!pool.info().disks[3].out_of_room);
        assert_eq!(
            (usage(&rig, DiskNo(3)), pool.info().disks[3].counters.failures),
            (Usage::AutoSelect, 0),
            "it is well"
        );
    }
    let reasons = rig.world.take_events().into_iter().filter_map(|(_, event)| match event {
        Event::DiskLost { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reasons.filter(|reason| reason.contains("no room is left below it")).count(), 5, "people are told why");
    sound(&rig);
}

#[test]
fn a_repair_that_finds_no_place_ends_with_a_code_that_says_so() {
    let (rig, _) = pool(16, 4, 3, PARITY, 3);
    write(&rig, 0, 4 << 20, 1);
    rig.pool().store().disk_lost(DiskNo(0), "the story says so");
    let ended = job(&rig, JobKind::Repair);
    assert_eq!((ended.state, ended.failure), (JobState::Failed, Some(ErrorKind::NoSpace)), "{ended:?}");
    let (attached, back) = (rig.pool(), rig.disks[0].clone());
    rig.run(async move { attached.attach(Rc::new(back)).await.map(drop).unwrap() });
    let ended = job(&rig, JobKind::Repair);
    assert_eq!((ended.state, ended.failure), (JobState::Done, None), "{ended:?}");
}
