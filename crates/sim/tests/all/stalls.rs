//! Stories of one disk that answers nothing for a while: whoever can do without it does, and says which disk it was.

use std::rc::Rc;
use weft_engine::event::Event;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::{Buf, Disk, DiskError};
use weft_engine::pool::Pool;
use weft_engine::pool::job::{JobKind, JobState, has_ended};
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;
use weft_sim::rig::{Rig, resiliencies};
use weft_sim::rng::Rng;
use weft_sim::world::{Scheduling, SimWorld};

const SIZE: usize = 1 << 20;

/// A pool with as many disks as the layout has slots, and a virtual disk of one MiB full of `value`.
fn filled(seed: u64, layout: Layout, value: u8) -> (Rig, Rng) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("story");
    let mut rig = Rig::new(world, layout.slots(), ByteCount::mib(16));
    rig.create(ByteCount::mib(1)).unwrap();
    rig.open(&mut rng).unwrap();
    rig.make_vdisk(layout, ByteCount(SIZE as u64), 4096, false).unwrap();
    let vdisk = vdisk(&rig);
    rig.run(async move { vdisk.write(VirtualOffset(0), &vec![value; SIZE], true).await.unwrap() });
    (rig, rng)
}

fn vdisk(rig: &Rig) -> Rc<Vdisk> {
    rig.pool().vdisk("vdisk").unwrap()
}

fn layout(resiliency: Resiliency) -> Layout {
    Layout::new(resiliency, resiliency.columns_min(), ByteCount::kib(16)).unwrap()
}

/// Layouts that survive the loss of a disk.
fn redundant() -> impl Iterator<Item = Layout> {
    resiliencies().into_iter().map(layout).filter(|layout| layout.failures() > 0)
}

fn reads(rig: &Rig, value: u8) -> Nanos {
    let (vdisk, began) = (vdisk(rig), rig.world.now());
    let back = rig.run(async move {
        let mut back = vec![0; SIZE];
        vdisk.read(VirtualOffset(0), &mut back).await.map(|()| back)
    });
    assert!(back.unwrap().iter().all(|byte| *byte == value), "not all of it is {value}");
    rig.world.now().since(began)
}

fn lost(rig: &Rig) -> Vec<(DiskNo, String)> {
    let events = rig.world.events().into_iter();
    events
        .filter_map(|(_, event)| match event {
            Event::DiskLost { disk, reason } => Some((disk, reason)),
            _ => None,
        })
        .collect()
}

/// Lets jobs that begin by themselves begin and end, as many as there are.
async fn settle(pool: Rc<Pool>) {
    pool.store().pause().await;
    while let Some(job) = pool.jobs().into_iter().find(|job| !has_ended(job.state)) {
        pool.job_wait(job.id).await.unwrap();
    }
}

#[test]
fn a_cold_read_waits_no_longer_than_the_read_timeout_whichever_disk_stalls() {
    for layout in redundant() {
        for stalled in 0..layout.slots() {
            let (mut rig, mut rng) = filled(1, layout, 7);
            rig.close().unwrap();
            rig.open(&mut rng).unwrap();
            rig.disks[stalled].stall(Nanos::secs(60));
            let took = reads(&rig, 7);
            assert!(took < Nanos::millis(2500), "{layout}, disk {stalled}: the read took {took:?}");
            assert!(lost(&rig).is_empty(), "no disk is given up for a read");
            rig.halt();
        }
    }
}

#[test]
fn a_disk_that_stalls_under_writes_is_taken_out_within_the_write_timeout_and_comes_back() {
    for layout in redundant() {
        for stalled in 0..layout.slots() {
            let (rig, _) = filled(2, layout, 7);
            rig.disks[stalled].stall(Nanos::secs(600));
            let (writer, began) = (vdisk(&rig), rig.world.now());
            rig.run(async move {
                writer.write(VirtualOffset(0), &vec![8; SIZE], false).await.unwrap();
                writer.flush().await.unwrap();
            });
            let took = rig.world.now().since(began);
            assert!(took < Nanos::secs(35), "{layout}, disk {stalled}: the flush took {took:?}");
            let gone = lost(&rig);
            assert_eq!(gone.iter().map(|(disk, _)| disk.0 as usize).collect::<Vec<_>>(), [stalled], "{gone:?}");
            reads(&rig, 8);

            let (pool, world, disk) = (rig.pool(), rig.world.clone(), rig.disks[stalled].clone());
            rig.run(async move {
                world.sleep(Nanos::secs(620)).await;
                pool.attach(Rc::new(disk)).await.unwrap();
                settle(pool.clone()).await;
                let job = pool.job_start(JobKind::Repair, 0).await.unwrap();
                assert_eq!(pool.job_wait(job).await.unwrap().state, JobState::Done);
                assert!(pool.check(false).await.unwrap().is_sound());
            });
            reads(&rig, 8);
            let mut rig = rig;
            rig.close().unwrap();
        }
    }
}

#[test]
fn a_disk_that_stalls_and_cannot_be_spared_is_waited_for_and_named_once() {
    let (rig, _) = filled(3, layout(Resiliency::Simple), 7);
    rig.disks[0].stall(Nanos::secs(200));
    let writer = vdisk(&rig);
    let began = rig.world.now();
    rig.run(async move { writer.write(VirtualOffset(0), &vec![8; SIZE], true).await.unwrap() });
    assert!(rig.world.now().since(began) >= Nanos::secs(190), "it needs the disk");
    assert!(lost(&rig).is_empty(), "{:?}", lost(&rig));
    let named: Vec<Event> = rig.world.events().into_iter().map(|(_, event)| event).collect();
    let named: Vec<&Event> = named.iter().filter(|event| matches!(event, Event::DiskStalled { .. })).collect();
    assert!(matches!(named[..], [Event::DiskStalled { disk: DiskNo(0), .. }]), "{named:?}");
    reads(&rig, 8);
    let mut rig = rig;
    rig.close().unwrap();
}

#[test]
fn what_a_disk_answers_after_it_was_lost_counts_for_nothing() {
    let (rig, _) = filled(4, layout(Resiliency::Parity { parity: 1 }), 7);
    let pool = rig.pool();
    let (store, at) = (pool.store().clone(), {
        let members = pool.store().members.borrow();
        members[&DiskNo(1)].plan.blob_at
    });
    rig.disks[1].stall(Nanos::secs(20));
    let before = store.members.borrow()[&DiskNo(1)].completed;
    let (world, disk) = (rig.world.clone(), rig.disks[1].clone());
    let (written, flushed) = rig.run(async move {
        let (writing, flushing) = (store.clone(), store.clone());
        let (written, write) = weft_engine::sync::promise();
        let (flushed, flush) = weft_engine::sync::promise();
        let write_task = async move {
            let bytes = vec![Buf::zeroed(4096).freeze()];
            written.keep(writing.disk_write(DiskNo(1), at, bytes).await);
        };
        world.spawn("write", Box::pin(write_task));
        world.spawn("flush", Box::pin(async move { flushed.keep(flushing.disk_flush(DiskNo(1)).await) }));
        world.sleep(Nanos::secs(1)).await;
        store.disk_lost(DiskNo(1), "the story says so");
        // It is the very same disk, as after a maintenance.
        if let Some(member) = store.members.borrow_mut().get_mut(&DiskNo(1)) {
            member.disk = Some(Rc::new(disk) as Rc<dyn Disk>);
        }
        (write.wait().await, flush.wait().await)
    });
    assert_eq!((written, flushed), (Err(DiskError::Gone), Err(DiskError::Gone)));
    assert_eq!(pool.store().members.borrow()[&DiskNo(1)].completed, before, "it was not counted");
    let mut rig = rig;
    drop(pool);
    rig.halt();
}

#[test]
fn what_cannot_leave_the_log_makes_nobody_wait_for_ever() {
    weft_sim::pinned::what_cannot_leave_the_log_makes_nobody_wait_for_ever();
}

#[test]
fn a_little_that_cannot_leave_hinders_nobody_who_writes_much() {
    weft_sim::pinned::a_little_that_cannot_leave_hinders_nobody_who_writes_much();
}

#[test]
fn what_is_removed_pins_nothing() {
    weft_sim::pinned::what_is_removed_pins_nothing();
}
