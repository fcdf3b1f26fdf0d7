//! Stories of where the log and the votes are: on journal disks, on disks of different domains, and moved there without
//! a moment's loss.

use std::rc::Rc;
use weft_engine::event::Event;
use weft_engine::format::Id;
use weft_engine::format::record::{Media, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::job::JobState;
use weft_engine::pool::{DiskChange, NewDisk, Pool};
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::rig::Rig;
use weft_sim::rng::Rng;
use weft_sim::world::{Scheduling, SimWorld};

const SECTOR: u64 = 4096;

/// A pool of the first `members` of `disks` disks, with a small virtual disk of three copies.
fn pool(seed: u64, disks: usize, members: usize) -> (Rig, Rng) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("story");
    let mut rig = Rig::new(world, disks, ByteCount::mib(12));
    rig.members = members;
    rig.create(ByteCount::mib(1)).unwrap();
    rig.open(&mut rng).unwrap();
    let layout = Layout::new(Resiliency::Mirror { copies: 3 }, 1, ByteCount::kib(64)).unwrap();
    rig.make_vdisk(layout, ByteCount::mib(1), SECTOR as u32, false).unwrap();
    (rig, rng)
}

fn used(usage: Usage) -> DiskChange {
    DiskChange { usage: Some(usage), ..DiskChange::default() }
}

fn of(domain: &str) -> DiskChange {
    DiskChange { domain: Some(domain.into()), ..DiskChange::default() }
}

fn set(rig: &Rig, no: DiskNo, change: DiskChange) {
    let pool = rig.pool();
    rig.run(async move { pool.disk_set(no, change).await.unwrap() });
}

fn add(rig: &Rig, at: usize, usage: Usage) -> DiskNo {
    let disk = Rc::new(rig.disks[at].clone());
    let new = NewDisk { disk, id: Id([100 + at as u8; 16]), name: format!("new{at}"), media: Media::Ssd };
    let pool = rig.pool();
    rig.run(async move { pool.disk_add(new, usage).await.unwrap() })
}

/// Data that a flush made durable and that is in the log only: sector `no` is filled with `value`.
fn land(rig: &Rig, no: u64, value: u8) {
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    rig.run(async move { vdisk.write(VirtualOffset(no * SECTOR), &[value; SECTOR as usize], true).await.unwrap() });
}

fn holds(rig: &Rig, no: u64, value: u8) {
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let bytes = rig.run(async move {
        let mut bytes = [0; SECTOR as usize];
        vdisk.read(VirtualOffset(no * SECTOR), &mut bytes).await.map(|()| bytes)
    });
    let bytes = bytes.unwrap_or_else(|error| panic!("sector {no}: {error}"));
    assert!(bytes.iter().all(|byte| *byte == value), "sector {no} holds {} and not {value}", bytes[0]);
}

fn loggers(pool: &Pool) -> Vec<DiskNo> {
    pool.info().disks.iter().filter(|disk| disk.logs).map(|disk| disk.no).collect()
}

fn voters(pool: &Pool) -> Vec<DiskNo> {
    pool.info().disks.iter().filter(|disk| disk.votes).map(|disk| disk.no).collect()
}

/// Waits, in virtual time, until the log and the votes are where they are to be.
fn settled(rig: &Rig) {
    let (pool, world) = (rig.pool(), rig.world.clone());
    rig.run(async move {
        for _ in 0..1000 {
            world.sleep(Nanos::millis(10)).await;
            if pool.store().is_settled() {
                return;
            }
        }
        panic!("the log is on {:?}, votes have {:?}, and that is not what is wanted", loggers(&pool), voters(&pool));
    });
}

#[test]
fn the_log_goes_to_journal_disks_as_they_come_and_back_as_they_go() {
    let (mut rig, mut rng) = pool(1, 6, 4);
    (0..8).for_each(|no| land(&rig, no, 10 + no as u8));
    assert_eq!(loggers(&rig.pool()), [0, 1, 2].map(DiskNo));
    rig.world.take_events();
    let first = add(&rig, 4, Usage::Journal);
    settled(&rig);
    assert_eq!(
        loggers(&rig.pool()),
        [DiskNo(0), DiskNo(1), first],
        "two ordinary disks stay: there are never fewer copies"
    );
    let told = rig
        .world
        .take_events()
        .into_iter()
        .any(|(_, event)| matches!(event, Event::LogMoved { disks } if disks.len() == 3));
    assert!(told, "people are told where the log is");
    let second = add(&rig, 5, Usage::AutoSelect);
    set(&rig, second, used(Usage::Journal));
    settled(&rig);
    assert_eq!(loggers(&rig.pool()), [DiskNo(0), first, second]);
    (8..16).for_each(|no| land(&rig, no, 10 + no as u8));
    rig.power_cut(&mut rng);
    // What the two journal disks carry is all of it.
    (0..2).for_each(|no| rig.disks[no].vanish());
    rig.options.degraded = true;
    rig.open(&mut rng).unwrap();
    (0..16).for_each(|no| holds(&rig, no, 10 + no as u8));
    settled(&rig);
    set(&rig, first, used(Usage::AutoSelect));
    set(&rig, second, used(Usage::Retired));
    settled(&rig);
    assert_eq!(loggers(&rig.pool()), [DiskNo(2), DiskNo(3), first]);
    rig.close().unwrap();
}

#[test]
fn a_crash_anywhere_in_a_move_of_the_log_loses_nothing_even_with_two_disks() {
    let mut points = 0;
    for at in 1.. {
        let (mut rig, mut rng) = pool(2, 6, 6);
        (0..12).for_each(|no| land(&rig, no, 10 + no as u8));
        let (pool, world) = (rig.pool(), rig.world.clone());
        let first = world.operations();
        world.crash_at(first + at);
        let moved = world.block_on_within(Nanos::secs(600), {
            let (pool, world) = (pool.clone(), world.clone());
            async move {
                for no in [3, 4, 5] {
                    pool.disk_set(DiskNo(no), used(Usage::Journal)).await.unwrap();
                }
                while !pool.store().is_settled() {
                    world.sleep(Nanos::millis(1)).await;
                }
            }
        });
        drop(pool);
        world.crash_at(u64::MAX);
        rig.power_cut(&mut rng);
        points = at;
        // Two disks at most are lost with the power, one of the old set and one of the new or both of one.
        let lost = [[0, 3], [1, 2], [4, 5], [2, 5]][at as usize % 4];
        lost.iter().for_each(|no| rig.disks[*no].vanish());
        rig.options.degraded = true;
        rig.open(&mut rng).unwrap_or_else(|error| panic!("crash at operation {at} of the move: {error}"));
        (0..12).for_each(|no| holds(&rig, no, 10 + no as u8));
        settled(&rig);
        rig.close().unwrap();
        if moved.is_ok() {
            break;
        }
    }
    assert!(points > 20, "{points} crash points are too few to be a move of the log");
}

#[test]
fn a_journal_disk_that_fails_is_replaced_at_once_and_nothing_flushed_is_lost() {
    let (mut rig, mut rng) = pool(3, 5, 4);
    let journal = add(&rig, 4, Usage::Journal);
    settled(&rig);
    (0..8).for_each(|no| land(&rig, no, 10 + no as u8));
    rig.disks[4].vanish();
    (8..12).for_each(|no| land(&rig, no, 10 + no as u8));
    settled(&rig);
    assert_eq!(loggers(&rig.pool()), [0, 1, 2].map(DiskNo));
    rig.power_cut(&mut rng);
    rig.disks[4].come_back(&mut rng);
    rig.open(&mut rng).unwrap();
    (0..12).for_each(|no| holds(&rig, no, 10 + no as u8));
    // It is brought up to date, and carries the log again.
    let (pool, world) = (rig.pool(), rig.world.clone());
    rig.run(async move {
        while !loggers(&pool).contains(&journal) {
            world.sleep(Nanos::millis(10)).await;
        }
    });
    (12..14).for_each(|no| land(&rig, no, 10 + no as u8));
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    (0..14).for_each(|no| holds(&rig, no, 10 + no as u8));
    rig.close().unwrap();
}

#[test]
fn a_disk_that_carries_the_log_no_more_is_not_believed_about_it() {
    let (mut rig, mut rng) = pool(4, 6, 6);
    land(&rig, 0, 1);
    for no in [3, 4, 5] {
        set(&rig, DiskNo(no), used(Usage::Journal));
    }
    settled(&rig);
    assert_eq!(loggers(&rig.pool()), [3, 4, 5].map(DiskNo));
    land(&rig, 0, 2);
    rig.power_cut(&mut rng);
    // The old copies alone: what they say of the end of the log is not true any more.
    [3, 4, 5].iter().for_each(|no: &usize| rig.disks[*no].vanish());
    rig.options.degraded = true;
    let refused = rig.open(&mut rng).map(drop).unwrap_err();
    assert!(refused.context.contains("none of the disks that carry the log"), "{refused}");
    rig.disks[4].come_back(&mut rng);
    rig.open(&mut rng).unwrap();
    holds(&rig, 0, 2);
    rig.close().unwrap();
}

#[test]
fn damage_on_one_log_disk_does_not_move_with_the_log() {
    let (mut rig, mut rng) = pool(5, 6, 6);
    (0..12).for_each(|no| land(&rig, no, 10 + no as u8));
    let batches = {
        let pool = rig.pool();
        let log = &pool.store().log;
        log.run_from(log.live().0, u64::MAX >> 1).expect("there are batches").batches
    };
    assert!(batches.len() >= 12);
    // Every batch is unharmed on one of the three only.
    for (nth, batch) in batches.iter().enumerate() {
        for no in (0..3).filter(|no| *no != nth % 3) {
            let plan = rig.pool().store().members.borrow()[&DiskNo(no as u16)].plan;
            rig.disks[no].rot(plan.log_at + ByteCount(batch.position % plan.log_len.0));
        }
    }
    for no in [3, 4, 5] {
        set(&rig, DiskNo(no), used(Usage::Journal));
    }
    settled(&rig);
    assert_eq!(loggers(&rig.pool()), [3, 4, 5].map(DiskNo));
    rig.power_cut(&mut rng);
    (0..2).for_each(|no| rig.disks[no].vanish());
    (4..6).for_each(|no| rig.disks[no].vanish());
    rig.options.degraded = true;
    rig.open(&mut rng).unwrap();
    (0..12).for_each(|no| holds(&rig, no, 10 + no as u8));
    rig.close().unwrap();
}

#[test]
fn no_domain_takes_the_majority_of_the_votes_or_the_whole_log_with_it() {
    let (mut rig, mut rng) = pool(6, 7, 7);
    land(&rig, 0, 1);
    for (no, domain) in ["a", "a", "a", "a", "b", "c", "c"].iter().enumerate() {
        set(&rig, DiskNo(no as u16), of(domain));
    }
    settled(&rig);
    let (log, votes) = (loggers(&rig.pool()), voters(&rig.pool()));
    assert_eq!((log.len(), votes.len()), (3, 5));
    land(&rig, 1, 2);
    for lost in [vec![0, 1, 2, 3], vec![4], vec![5, 6]] {
        rig.close().unwrap();
        lost.iter().for_each(|no: &usize| rig.disks[*no].vanish());
        // Without a word of the operator: the others are a majority. What was on the lost ones is another question.
        rig.open(&mut rng).unwrap_or_else(|error| panic!("without {lost:?}: {error}"));
        rig.halt();
        let mut old = rig.world.rng("back");
        lost.iter().for_each(|no| rig.disks[*no].come_back(&mut old));
        rig.options.degraded = false;
        rig.open(&mut rng).unwrap();
        let repaired = {
            let pool = rig.pool();
            rig.run(async move {
                let job = pool.job_start(weft_engine::pool::job::JobKind::Repair, 0).await.unwrap();
                pool.job_wait(job).await.unwrap()
            })
        };
        assert_eq!(repaired.state, JobState::Done, "{repaired:?}");
        settled(&rig);
    }
    holds(&rig, 1, 2);
    rig.close().unwrap();
}

#[test]
fn a_disk_leaves_the_log_before_it_leaves_the_pool() {
    let (mut rig, mut rng) = pool(7, 6, 5);
    let journal = add(&rig, 5, Usage::Journal);
    settled(&rig);
    (0..8).for_each(|no| land(&rig, no, 10 + no as u8));
    assert!(loggers(&rig.pool()).contains(&journal));
    rig.world.take_events();
    let pool = rig.pool();
    let ended = rig.run(async move {
        let job = pool.disk_remove(journal, None, 0).await.unwrap();
        pool.job_wait(job).await.unwrap()
    });
    assert_eq!(ended.state, JobState::Done, "{ended:?}");
    let told: Vec<Event> = rig.world.take_events().into_iter().map(|(_, event)| event).collect();
    let moved = told.iter().position(|event| matches!(event, Event::LogMoved { .. }));
    let left = told.iter().position(|event| matches!(event, Event::DiskRemoved { .. }));
    assert!(moved.is_some() && moved < left, "{told:?}");
    assert_eq!(loggers(&rig.pool()).len(), 3);
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    (0..8).for_each(|no| holds(&rig, no, 10 + no as u8));
    rig.close().unwrap();
}

#[test]
fn a_disk_that_comes_back_gets_the_part_of_the_log_that_it_missed() {
    let (mut rig, mut rng) = pool(8, 3, 3);
    (0..4).for_each(|no| land(&rig, no, 10 + no as u8));
    rig.disks[2].vanish();
    (4..8).for_each(|no| land(&rig, no, 10 + no as u8));
    rig.disks[2].come_back(&mut rng);
    let (pool, back) = (rig.pool(), Rc::new(rig.disks[2].clone()));
    rig.run(async move { pool.attach(back).await.unwrap() });
    let (pool, world) = (rig.pool(), rig.world.clone());
    rig.run(async move {
        while !pool.store().is_current(DiskNo(2)) {
            world.sleep(Nanos::millis(1)).await;
        }
    });
    settled(&rig);
    assert_eq!(
        (loggers(&rig.pool()), voters(&rig.pool())),
        (vec![DiskNo(0), DiskNo(1), DiskNo(2)], vec![DiskNo(0), DiskNo(1), DiskNo(2)])
    );
    (8..10).for_each(|no| land(&rig, no, 10 + no as u8));
    rig.power_cut(&mut rng);
    // It alone has all of it.
    (0..2).for_each(|no| rig.disks[no].vanish());
    rig.options.degraded = true;
    rig.open(&mut rng).unwrap();
    (0..10).for_each(|no| holds(&rig, no, 10 + no as u8));
    rig.close().unwrap();
}

/// What each disk holds in slabs, data and metadata.
fn allocated(rig: &Rig, no: DiskNo) -> ByteCount {
    let info = rig.pool().info();
    info.disks.iter().find(|disk| disk.no == no).expect("it is of the pool").allocated
}

#[test]
fn journal_disks_fail_to_the_last_with_a_power_cut_anywhere_and_the_log_moves_back_without_a_lost_byte() {
    let mut points = 0;
    for at in (1..).step_by(3) {
        let (mut rig, mut rng) = pool(21, 7, 4);
        let journals: Vec<DiskNo> = (4..7).map(|at| add(&rig, at, Usage::Journal)).collect();
        settled(&rig);
        assert_eq!(loggers(&rig.pool()), journals);
        (0..8).for_each(|no| land(&rig, no, 10 + no as u8));
        let (pool, world) = (rig.pool(), rig.world.clone());
        world.crash_at(world.operations() + at);
        let acknowledged = Rc::new(std::cell::Cell::new(8));
        let (told, disks) = (acknowledged.clone(), rig.disks[4..7].to_vec());
        let vanished = Rc::new(std::cell::Cell::new(0));
        let (gone, clock) = (vanished.clone(), world.clone());
        let done = world.block_on_within(Nanos::secs(600), async move {
            let vdisk = pool.vdisk("vdisk").unwrap();
            for disk in disks {
                disk.vanish();
                gone.set(gone.get() + 1);
                for _ in 0..4 {
                    let no = told.get();
                    let sector = [10 + no as u8; SECTOR as usize];
                    vdisk.write(VirtualOffset(no * SECTOR), &sector, true).await.unwrap();
                    told.set(no + 1);
                }
                while !pool.store().is_settled() {
                    clock.sleep(Nanos::millis(1)).await;
                }
            }
        });
        world.crash_at(u64::MAX);
        points = at;
        rig.power_cut(&mut rng);
        // Those that failed stay away, for good.
        rig.options.degraded = true;
        rig.open(&mut rng).unwrap_or_else(|error| panic!("operation {at}, {} failed: {error}", vanished.get()));
        (0..acknowledged.get()).for_each(|no| holds(&rig, no, 10 + no as u8));
        settled(&rig);
        if done.is_ok() {
            assert_eq!(loggers(&rig.pool()), [0, 1, 2].map(DiskNo));
        }
        rig.close().unwrap();
        if done.is_ok() {
            break;
        }
    }
    assert!(points > 40, "{points} crash points are too few to be three moves of the log");
}

#[test]
fn a_journal_disk_carries_the_log_and_nothing_else_unless_redundancy_would_be_lost_without_it() {
    let (rig, _) = pool(22, 6, 4);
    let journals = [add(&rig, 4, Usage::Journal), add(&rig, 5, Usage::Journal)];
    settled(&rig);
    let fill = |rig: &Rig, name: &str, from: u64| {
        let vdisk = rig.pool().vdisk(name).unwrap();
        let data = vec![7; 64 << 10];
        let pool = rig.pool();
        rig.run(async move {
            for no in from..from + 8 {
                vdisk.write(VirtualOffset(no * (64 << 10)), &data, false).await.unwrap();
            }
            vdisk.flush().await.unwrap();
            pool.checkpoint().await.unwrap();
        });
    };
    let work = |rig: &Rig, kind| {
        let pool = rig.pool();
        let ended = rig.run(async move {
            let job = pool.job_start(kind, 0).await.unwrap();
            pool.job_wait(job).await.unwrap()
        });
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
    };
    let empty = |rig: &Rig| journals.iter().all(|no| allocated(rig, *no) == ByteCount(0));
    fill(&rig, "vdisk", 0);
    work(&rig, weft_engine::pool::job::JobKind::Rebalance);
    // One disk for data is lost: three are left, as many as there are copies.
    rig.disks[3].vanish();
    fill(&rig, "vdisk", 4);
    work(&rig, weft_engine::pool::job::JobKind::Repair);
    assert!(empty(&rig), "no data and no metadata: {:?}", rig.pool().info().disks);
    let logged = |rig: &Rig| rig.pool().info().disks.iter().map(|disk| disk.counters.logged).collect::<Vec<_>>();
    let before = logged(&rig);
    land(&rig, 0, 1);
    let wrote: Vec<u64> = logged(&rig).iter().zip(before).map(|(now, before)| now - before).collect();
    assert!(wrote[4] > 0 && wrote[4] == wrote[5], "both have the same to do: {wrote:?}");
    // Another one: three copies find two disks. Slabs that are taken anew with one too few would be worse than data on
    // a journal disk; what has its slabs already waits for a disk.
    let layout = Layout::new(Resiliency::Mirror { copies: 3 }, 1, ByteCount::kib(64)).unwrap();
    rig.make_vdisk_named("other", layout, ByteCount::mib(1), SECTOR as u32, false).unwrap();
    rig.disks[2].vanish();
    fill(&rig, "vdisk", 8);
    assert!(empty(&rig), "this has its slabs");
    fill(&rig, "other", 0);
    assert!(!empty(&rig), "the third slab is on a journal disk");
}
