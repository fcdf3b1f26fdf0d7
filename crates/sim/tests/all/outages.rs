//! Stories that began as storms of outages: each failed before it was put right.

use crate::setting;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::record::{JobKind, OWNER_METADATA, SettingsRecord, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::Disk;
use weft_engine::pool::job::{JobState, has_ended};
use weft_engine::pool::{DiskChange, Pool};
use weft_engine::segment::Segment;
use weft_engine::segment::slots_on;
use weft_engine::store::Tuning;
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;
use weft_sim::rig::Rig;
use weft_sim::rng::Rng;
use weft_sim::sample::sample;
use weft_sim::world::{Scheduling, SimWorld};

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
/// Bytes of a stripe of [`make`]'s virtual disks.
const STRIPE: u64 = 128 << 10;

fn opened(seed: u64, disks: usize, tuning: Tuning) -> (Rig, Rng) {
    setting::opened(seed, disks, ByteCount::mib(16), tuning)
}

/// A virtual disk of two data columns on these disks.
fn make(rig: &Rig, name: &str, resiliency: Resiliency, columns: u8, disks: u64) -> Rc<Vdisk> {
    setting::make(rig, name, ByteCount::mib(4), (resiliency, columns), DiskSet::from_words(&[disks]))
}

/// Disks, jobs and settings change all the while. Each of that takes a block of the log, and no stripe ever does.
#[test]
fn changes_of_the_configuration_never_fill_the_log_while_flushed_data_cannot_leave_it() {
    let (mut rig, mut rng) = opened(1, 6, Tuning { auto_jobs: false, ..Tuning::default() });
    let weak = make(&rig, "weak", Resiliency::Simple, 2, 0b000011);
    let strong = make(&rig, "strong", PARITY, 3, 0b111000);
    let (pool, flushed) = (rig.pool(), weak.clone());
    rig.run(async move {
        flushed.write(VirtualOffset(0), &vec![1; 2 << 20], true).await.unwrap();
        // What lies below the partial stripes is out of reach from now on: they can be merged no more.
        pool.store().disk_lost(DiskNo(0), "the story says so");
        for stripe in 0..13 {
            flushed.write(VirtualOffset(stripe * STRIPE + 4096), &[2; 32 << 10], true).await.unwrap();
        }
        for nth in 0..1000 {
            let change = DiskChange { name: Some(format!("name{nth}")), ..DiskChange::default() };
            pool.disk_set(DiskNo(5), change).await.unwrap();
            if nth % 100 == 0 {
                strong.write(VirtualOffset(nth * 4096), &[3; 64 << 10], true).await.unwrap();
            }
        }
    });
    drop(weak);
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    let vdisk = rig.pool().vdisk("weak").unwrap();
    let (pool, disk) = (rig.pool(), rig.disks[0].clone());
    let right = rig.run(async move {
        if !pool.store().has_disk(DiskNo(0)) {
            pool.attach(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
        }
        let mut right = true;
        for stripe in 0..13 {
            let mut bytes = vec![0; STRIPE as usize];
            vdisk.read(VirtualOffset(stripe * STRIPE), &mut bytes).await.unwrap();
            right &= bytes.iter().enumerate().all(|(at, byte)| *byte == 1 + (4096..36864).contains(&at) as u8);
        }
        right
    });
    assert!(right);
    rig.halt();
}

/// Partial stripes fill the memory, and what lies below them has just gone: a write waits for that as long as a read
/// would.
#[test]
fn a_write_is_not_refused_for_want_of_memory_while_the_disks_that_have_just_gone_may_be_back() {
    let (mut rig, mut rng) = opened(2, 5, Tuning { buffer_memory: 1 << 20, ..Tuning::default() });
    let weak = make(&rig, "weak", Resiliency::Simple, 2, 0b00011);
    let (pool, world, disk) = (rig.pool(), rig.world.clone(), rig.disks[0].clone());
    rig.run(async move {
        weak.write(VirtualOffset(0), &vec![1; 4 << 20], true).await.unwrap();
        disk.vanish();
        pool.store().disk_lost(DiskNo(0), "the story says so");
        let back = world.clone();
        world.spawn(
            "return",
            Box::pin(async move {
                back.sleep(Nanos::secs(5)).await;
                disk.return_intact(&mut rng);
                pool.attach(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
            }),
        );
        for stripe in 0..32 {
            weak.write(VirtualOffset(stripe * STRIPE + 4096), &[2; 64 << 10], false).await.unwrap();
        }
        weak.flush().await.unwrap();
    });
    rig.close().unwrap();
}

/// The first metadata of a pool of two disks is made while one of them is away: once that is back, and a repair is
/// done, it has a copy on each.
#[test]
fn metadata_that_was_made_while_a_disk_was_away_is_on_that_disk_too_once_it_is_back() {
    let (mut rig, mut rng) = opened(3, 2, Tuning { auto_jobs: false, ..Tuning::default() });
    let vdisk = make(&rig, "pair", Resiliency::Mirror { copies: 2 }, 1, 0);
    let (pool, disk) = (rig.pool(), rig.disks[0].clone());
    let homes = rig.run(async move {
        disk.vanish();
        pool.store().disk_lost(DiskNo(0), "the story says so");
        vdisk.write(VirtualOffset(0), &[1; 64 << 10], true).await.unwrap();
        disk.return_intact(&mut rng);
        pool.attach(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
        let repair = pool.job_start(JobKind::Repair, 0).await.unwrap();
        assert_eq!(pool.job_wait(repair).await.unwrap().state, JobState::Done);
        let homes = pool.store().metadata_homes();
        assert_eq!(*pool.store().meta.homes.borrow(), homes, "the last checkpoint knows where metadata is");
        homes
    });
    assert!(!homes.is_empty() && homes.values().all(|on| *on == DiskSet::from_words(&[0b11])), "{homes:?}");
    rig.close().unwrap();
}

/// A virtual disk that is being removed is there after a power cut, for it was not on record that it went; so is what
/// was flushed to it, although a checkpoint was taken meanwhile.
#[test]
fn what_was_flushed_is_there_when_the_power_goes_amid_a_removal() {
    let (mut rig, mut rng) = opened(7, 5, Tuning { auto_jobs: false, ..Tuning::default() });
    let vdisk = make(&rig, "going", PARITY, 3, 0);
    let (pool, world) = (rig.pool(), rig.world.clone());
    rig.run(async move {
        vdisk.write(VirtualOffset(0), &[1; STRIPE as usize], true).await.unwrap();
        vdisk.write(VirtualOffset(STRIPE), &[2; 4096], true).await.unwrap();
        let place = pool.store().map.borrow().tables.values().find_map(|table| table.get(0)).unwrap();
        // A read that is under way, which the removal waits for.
        pool.store().map.borrow_mut().pin(place);
        let removal = pool.clone();
        world.spawn("removal", Box::pin(async move { drop(removal.vdisk_remove("going").await) }));
        world.sleep(Nanos::millis(50)).await;
        assert!(pool.vdisk("going").is_none());
        pool.checkpoint().await.unwrap();
    });
    rig.halt();
    rig.disks.iter().for_each(|disk| disk.power_cut_with(&[]));
    rig.open(&mut rng).unwrap();
    let vdisk = rig.pool().vdisk("going").expect("it was not on record that it went");
    let read = rig.run(async move {
        let mut bytes = vec![0; 4096];
        vdisk.read(VirtualOffset(STRIPE), &mut bytes).await.map(|()| bytes)
    });
    assert!(read.unwrap().iter().all(|byte| *byte == 2), "what was flushed is gone");
    rig.close().unwrap();
}

/// Versions that were not flushed wait in limbo for a disk that does not come back; partial writes above them cannot
/// leave memory, and others wait for that. All of them end, as clients were told, once disks were waited for.
#[test]
fn writes_that_wait_for_memory_which_waits_for_a_disk_end_when_disks_were_waited_for() {
    const STRIPES: u64 = 16;
    let tuning = Tuning {
        buffer_memory: 256 << 10,
        freeze_limit: Nanos::secs(5),
        idle_land: Nanos::millis(20),
        auto_jobs: false,
        ..Tuning::default()
    };
    let (mut rig, _) = opened(2, 5, tuning);
    let weak = make(&rig, "weak", Resiliency::Simple, 2, 0b00111);
    let (pool, world, disks, vdisk) = (rig.pool(), rig.world.clone(), rig.disks.clone(), weak.clone());
    rig.run(async move {
        let store = pool.store();
        vdisk.write(VirtualOffset(0), &vec![1; (STRIPES * STRIPE) as usize], false).await.unwrap();
        while store.commits.in_flight.get() > 0 {
            world.sleep(Nanos::millis(1)).await;
        }
        let turn = store.commits.committing.take().await;
        // Two of the three hold the stripes; the others can take new ones.
        let holds = |segment: &Segment| (segment.record.owner != OWNER_METADATA).then(|| segment.disks());
        let held = store.map.borrow().segments.values().find_map(holds).unwrap().iter().next().unwrap();
        disks[held.0 as usize].vanish();
        store.disk_lost(held, "the story says so");
        drop(turn);
        while store.limbo.withdrawals() < STRIPES {
            world.sleep(Nanos::millis(1)).await;
        }
    });
    let ended = Rc::new(Cell::new(0));
    for stripe in 0..STRIPES {
        let (vdisk, ended) = (weak.clone(), ended.clone());
        let write = async move {
            // Refused is as good.
            let _ = vdisk.write(VirtualOffset(stripe * STRIPE), &[2; 64 << 10], false).await;
            ended.set(ended.get() + 1);
        };
        rig.world.spawn("write", Box::pin(write));
    }
    rig.world.run_until(Nanos::secs(60), || ended.get() == STRIPES);
    assert_eq!(ended.get(), STRIPES, "{}", weak.describe());
    rig.halt();
}

/// Metadata is read from disks only that are up to date. A copy that moves to another one may be the last that can be
/// read.
#[test]
fn metadata_moves_to_no_disk_whose_own_is_behind() {
    let (mut rig, mut rng) = opened(3, 4, Tuning { auto_jobs: false, ..Tuning::default() });
    let vdisk = make(&rig, "vdisk", PARITY, 3, 0);
    let (pool, disks) = (rig.pool(), rig.disks.clone());
    rig.run(async move {
        vdisk.write(VirtualOffset(0), &vec![1; 1 << 20], true).await.unwrap();
        let store = pool.store();
        let homes = || {
            let map = store.map.borrow();
            let metadata = map.segments.values().filter(|found| found.record.owner == OWNER_METADATA);
            metadata.flat_map(|found| found.record.slabs.to_vec()).flatten().map(|at| at.disk).collect::<Vec<DiskNo>>()
        };
        let behind = (0..4).map(DiskNo).find(|no| !homes().contains(no)).expect("there are three copies");
        let member = disks[behind.0 as usize].clone();
        member.vanish();
        store.disk_lost(behind, "the story says so");
        vdisk.write(VirtualOffset(0), &vec![2; 1 << 20], true).await.unwrap();
        member.return_intact(&mut rng);
        pool.attach(Rc::new(member) as Rc<dyn Disk>).await.unwrap();
        assert!(store.has_disk(behind) && !store.is_current(behind));
        let retired = homes()[0];
        let change = DiskChange { usage: Some(Usage::Retired), ..DiskChange::default() };
        pool.disk_set(retired, change).await.unwrap();
        let kind = weft_engine::pool::job::JobKind::Evacuate { disk: retired, to: None, forget: false };
        let job = pool.job_start(kind, 0).await.unwrap();
        pool.job_wait(job).await.unwrap();
        assert!(!homes().contains(&behind), "{:?}", homes());
    });
    rig.halt();
}

/// Slots of one segment are made sound side by side. Each looks for the emptiest disk, and a disk takes one column of a
/// stripe only.
#[test]
fn two_slots_of_a_segment_that_are_rebuilt_at_once_never_come_to_lie_on_one_disk() {
    let (mut rig, _) = opened(4, 7, Tuning::default());
    let vdisk = make(&rig, "vdisk", Resiliency::Parity { parity: 2 }, 4, 0);
    let written = vdisk.clone();
    rig.run(async move { written.write(VirtualOffset(0), &vec![1; 1 << 20], true).await.unwrap() });
    let homes = |rig: &Rig| {
        let pool = rig.pool();
        let map = pool.store().map.borrow();
        let segment = map.segments.values().find(|found| found.record.owner != OWNER_METADATA).unwrap();
        segment.record.slabs.iter().flatten().map(|at| at.disk).collect::<Vec<DiskNo>>()
    };
    let before = homes(&rig);
    // One of the other disks is by far the emptiest.
    let others: Vec<DiskNo> = (0..7).map(DiskNo).filter(|no| !before.contains(no)).collect();
    let filler = make(&rig, "filler", Resiliency::Simple, 2, 1 << others[1].0 | 1 << others[2].0);
    let (pool, world) = (rig.pool(), rig.world.clone());
    let lost = [before[0], before[1]];
    rig.run(async move {
        filler.write(VirtualOffset(0), &vec![1; 4 << 20], true).await.unwrap();
        pool.set(SettingsRecord { repair_after: 1, ..SettingsRecord::default() }).await.unwrap();
        lost.iter().for_each(|no| pool.store().disk_lost(*no, "the story says so"));
        world.sleep(Nanos::secs(60)).await;
    });
    let after = homes(&rig);
    assert!(lost.iter().all(|no| !after.contains(no)), "{before:?} became {after:?}");
    assert_eq!(after.iter().collect::<BTreeSet<_>>().len(), 4, "{before:?} became {after:?}");
    rig.halt();
}

/// Two of three copies of the metadata are rebuilt elsewhere, the third is lost at any step of that, and then the
/// power: only the end of the log knows where the copies are, and no checkpoint. What the pool goes on with can be
/// opened.
#[test]
fn metadata_that_moved_since_the_last_checkpoint_is_found_after_a_crash_at_any_step() {
    for step in 0.. {
        let (mut rig, mut rng) = opened(7, 5, Tuning::default());
        let layout = Layout::new(PARITY, 4, ByteCount::kib(24)).unwrap();
        rig.make_vdisk(layout, ByteCount::kib(512), 4096, true).unwrap();
        let vdisk = rig.pool().vdisk("vdisk").unwrap();
        let (pool, written) = (rig.pool(), vdisk.clone());
        let homes = |pool: &Pool| *pool.store().metadata_homes().values().next().expect("there is metadata");
        let before = rig.run(async move {
            pool.set(SettingsRecord { repair_after: 1, ..SettingsRecord::default() }).await.unwrap();
            written.write(VirtualOffset(0), &vec![1; 512 << 10], true).await.unwrap();
            homes(&pool)
        });
        let copies: Vec<DiskNo> = before.iter().collect();
        let lose = |rig: &Rig, no: DiskNo| {
            rig.disks[no.0 as usize].vanish();
            rig.pool().store().disk_lost(no, "the story says so");
        };
        // Most of it is on disks without the log: no checkpoint follows when those are lost.
        assert_eq!(before, DiskSet::from_words(&[0b11001]));
        copies[1..].iter().for_each(|no| lose(&rig, *no));
        let pool = rig.pool();
        let is_busy = |pool: &Pool| pool.jobs().iter().any(|job| !has_ended(job.state));
        rig.world.run_until(Nanos::secs(60), || is_busy(&pool));
        let from = rig.world.operations();
        rig.world.run_until(Nanos::secs(60), || rig.world.operations() >= from + step || !is_busy(&pool));
        let over = rig.world.operations() < from + step;
        lose(&rig, copies[0]);
        // The others may be opened without it as soon as a label says so.
        let goes_on = || !pool.store().labels.durable.get().current.contains(copies[0]);
        rig.world.run_until(Nanos::millis(100), goes_on);
        drop((pool, vdisk));
        rig.power_cut(&mut rng);
        copies.iter().for_each(|no| rig.disks[no.0 as usize].return_intact(&mut rng));
        let pool = rig.open(&mut rng).unwrap_or_else(|error| panic!("lost at step {step}: {error}"));
        let vdisk = pool.vdisk("vdisk").unwrap();
        drop(pool);
        let mut bytes = vec![0; 512 << 10];
        let read = rig.run(async move { vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes) });
        assert!(read.unwrap().iter().all(|byte| *byte == 1), "lost at step {step}");
        rig.halt();
        if over {
            assert!(step > 100, "nothing was moved");
            return;
        }
    }
}

/// A stripe that was flushed is written anew, and half of that goes with the cache of a disk that is back before the
/// log could be written. What is `beside` happens before the disk goes.
fn lose_a_version(seed: u64, beside: impl AsyncFnOnce(&Rc<Vdisk>) + 'static) -> (Rig, Rc<Vdisk>) {
    let (rig, mut rng) = opened(seed, 5, Tuning { auto_jobs: false, ..Tuning::default() });
    let weak = make(&rig, "weak", Resiliency::Simple, 2, 0b00011);
    let (pool, world, disk, vdisk) = (rig.pool(), rig.world.clone(), rig.disks[0].clone(), weak.clone());
    rig.run(async move {
        vdisk.write(VirtualOffset(0), &[1; STRIPE as usize], true).await.unwrap();
        vdisk.write(VirtualOffset(0), &[2; STRIPE as usize], false).await.unwrap();
        let store = pool.store();
        while store.commits.in_flight.get() > 0 {
            world.sleep(Nanos::millis(1)).await;
        }
        let turn = store.commits.committing.take().await;
        beside(&vdisk).await;
        disk.vanish();
        store.disk_lost(DiskNo(0), "the story says so");
        disk.come_back(&mut rng);
        pool.attach(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
        drop(turn);
        world.sleep(Nanos::secs(2)).await;
    });
    (rig, weak)
}

/// All disks are there, and none comes or goes any more: what may be lost is judged all the same, and nobody waits for
/// ever.
#[test]
fn a_flush_of_what_a_disk_lost_from_its_cache_ends_when_no_disk_is_missing() {
    for seed in sample(0..16) {
        let (mut rig, vdisk) = lose_a_version(seed, async |_: &Rc<Vdisk>| {});
        let (flushed, read) = rig.run(async move {
            let mut bytes = vec![0; STRIPE as usize];
            let flushed = vdisk.flush().await;
            (flushed, vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes))
        });
        // The disk may have kept what it had not flushed.
        let right = read.as_ref().is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 2));
        assert!(right && flushed.is_ok() || flushed.is_err() && read.is_err(), "seed {seed}: {flushed:?}");
        rig.halt();
    }
}

/// A partial write waits in memory while the version below it is lost. To merge it with the one before that would be to
/// bring that back.
#[test]
fn a_partial_write_is_never_merged_with_a_version_older_than_one_that_was_lost() {
    for seed in sample(0..16) {
        let (mut rig, vdisk) = lose_a_version(seed, async |vdisk: &Rc<Vdisk>| {
            vdisk.write(VirtualOffset(4096), &[3; 4096], false).await.unwrap();
        });
        let old = rig.run(async move {
            let _ = vdisk.destage_and_wait(0).await;
            let mut bytes = vec![0; STRIPE as usize];
            vdisk.read(VirtualOffset(0), &mut bytes).await.is_ok() && bytes.contains(&1)
        });
        assert!(!old, "seed {seed}: what was overwritten is back");
        rig.halt();
    }
}

/// A write that a disk missed is told late: while a repair runs that has looked at its segment already, or after it.
#[test]
fn what_is_missed_and_told_late_is_made_good_by_the_next_repair() {
    let (mut rig, mut rng) = opened(5, 4, Tuning::default());
    let vdisk = make(&rig, "vdisk", PARITY, 3, 0);
    let (pool, world, disk) = (rig.pool(), rig.world.clone(), rig.disks[0].clone());
    rig.run(async move {
        pool.set(SettingsRecord { repair_after: u32::MAX, ..SettingsRecord::default() }).await.unwrap();
        vdisk.write(VirtualOffset(0), &vec![1; 4 << 20], true).await.unwrap();
        let store = pool.store();
        let missing = || {
            let map = store.map.borrow();
            let missed =
                map.segments.values().filter(|found| slots_on(&found.record, DiskNo(0)) & found.record.missed != 0);
            missed.count()
        };
        let mark_all = || {
            let records: Vec<_> = store.map.borrow().segments.values().map(|found| found.record.clone()).collect();
            let data = records.iter().filter(|record| record.owner != OWNER_METADATA);
            data.for_each(|record| store.note_missed(record.id, slots_on(record, DiskNo(0))));
        };
        disk.vanish();
        store.disk_lost(DiskNo(0), "the story says so");
        mark_all();
        let all = missing();
        assert!(all > 1);
        disk.return_intact(&mut rng);
        pool.attach(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
        while missing() == all {
            world.sleep(Nanos(100_000)).await;
        }
        // Once while a repair runs, once after the disk has caught up.
        for _ in 0..2 {
            mark_all();
            world.sleep(Nanos::secs(60)).await;
            assert_eq!((missing(), pool.unsound_bytes()), (0, ByteCount::ZERO));
        }
    });
    rig.halt();
}

/// The log empties with checkpoints, and a disk that is back has a share of the metadata to be copied: hours of it in a
/// large pool.
#[test]
fn checkpoints_are_taken_while_the_metadata_of_a_disk_that_is_back_is_copied() {
    let world = SimWorld::new(6, Scheduling::Random);
    let mut rng = world.rng("story");
    let mut rig = Rig::new(world, 3, ByteCount::mib(64));
    // A slab of metadata is many groups of pages that are copied at once.
    rig.create(ByteCount::mib(8)).unwrap();
    rig.open(&mut rng).unwrap();
    let pool = rig.pool();
    let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(4)).unwrap();
    rig.make_vdisk(layout, ByteCount::gib(4), 4096, false).unwrap();
    let (vdisk, disk) = (pool.vdisk("vdisk").unwrap(), rig.disks[0].clone());
    let taken = rig.run(async move {
        let store = pool.store();
        // Each write begins a chunk of the stripe table of its own.
        for nth in 0..120 {
            vdisk.write(VirtualOffset(nth * 8064 * 4096), &[1; 4096], false).await.unwrap();
        }
        vdisk.flush().await.unwrap();
        pool.checkpoint().await.unwrap();
        disk.vanish();
        store.disk_lost(DiskNo(0), "the story says so");
        vdisk.write(VirtualOffset(0), &[2; 4096], true).await.unwrap();
        disk.return_intact(&mut rng);
        pool.attach(Rc::new(disk) as Rc<dyn Disk>).await.unwrap();
        let mut taken = 0;
        while !store.is_current(DiskNo(0)) {
            pool.checkpoint().await.unwrap();
            taken += 1;
        }
        taken
    });
    assert!(taken > 6, "only {taken}: the others had to wait for all of the copying");
    rig.close().unwrap();
}

/// Two versions of a stripe are written, and a batch speaks of the older one only when the disk goes: that one is taken
/// back alone, and the newer one later. What was flushed before both is the truth again, and stays.
#[test]
fn what_was_flushed_is_there_when_two_newer_versions_were_lost_one_after_the_other() {
    for seed in sample(0..48) {
        let (mut rig, mut rng) = opened(100 + seed, 5, Tuning { auto_jobs: false, ..Tuning::default() });
        let weak = make(&rig, "weak", Resiliency::Simple, 2, 0b00011);
        let (pool, world, disk, mut moments) =
            (rig.pool(), rig.world.clone(), rig.disks[0].clone(), rng.fork("moments"));
        rig.run(async move {
            weak.write(VirtualOffset(0), &[1; STRIPE as usize], true).await.unwrap();
            // A part of it that only the log has, until one of the versions is there for good.
            weak.write(VirtualOffset(4096), &[9; 4096], true).await.unwrap();
            let store = pool.store();
            for version in [2, 3] {
                weak.write(VirtualOffset(0), &[version; STRIPE as usize], false).await.unwrap();
                while store.commits.in_flight.get() > 0 {
                    world.sleep(Nanos(100_000)).await;
                }
                let flushed = weak.clone();
                world.spawn("flush", Box::pin(async move { flushed.flush().await.map_or((), drop) }));
                world.sleep(Nanos(moments.below(3_000_000))).await;
            }
            disk.vanish();
            store.disk_lost(DiskNo(0), "the story says so");
            world.sleep(Nanos::secs(1)).await;
            pool.checkpoint().await.unwrap();
            disk.come_back(&mut moments);
        });
        rig.halt();
        rig.disks.iter().for_each(|disk| disk.survive_kill(&mut rng));
        rig.open(&mut rng).unwrap();
        let vdisk = rig.pool().vdisk("weak").unwrap();
        let read = rig.run(async move {
            let mut bytes = vec![0; STRIPE as usize];
            vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
        });
        let bytes = read.unwrap_or_else(|error| panic!("seed {seed}: what was flushed is lost: {error}"));
        let flushed = |at: usize| if (4096..8192).contains(&at) { 9 } else { 1 };
        let right = |content: &dyn Fn(usize) -> u8| bytes.iter().enumerate().all(|(at, byte)| *byte == content(at));
        let told = (bytes[0], bytes[4096]);
        assert!(right(&flushed) || right(&|_| 2) || right(&|_| 3), "seed {seed}: it begins with {told:?}");
        rig.halt();
    }
}
