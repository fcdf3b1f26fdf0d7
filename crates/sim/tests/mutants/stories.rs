//! Stories that catch what no storm finds for certain: each ends with a panic if one rule is broken, and does so
//! whatever the engine's requests are worth in seeds, for it tries every moment.

use crate::story::*;
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use weft_engine::error::{ErrorKind, Result};
use weft_engine::event::Event;
use weft_engine::format::Id;
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::format::record::{JobKind, Media, SettingsRecord, Usage};
use weft_engine::geometry::Layout;
use weft_engine::io::DiskError;
use weft_engine::pool::job::{JobState, has_ended};
use weft_engine::pool::{NewDisk, Pool};
use weft_engine::sync::{join, join_all};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::disk::{DiskImage, Fate, SimDisk, Tear};
use weft_sim::rig::{Rig, TIMEOUT};
use weft_sim::world::{Scheduling, SimWorld};

/// What each of the first `count` stripes is filled with.
fn stripes(story: &Story, count: u64) -> Vec<u8> {
    (0..count).map(|no| story.byte(no * story.stripe(), story.stripe()).unwrap()).collect()
}

pub fn attach(story: &Story, disk: usize) {
    let (pool, disk) = (story.rig.pool(), story.rig.disks[disk].clone());
    story.rig.run(async move { pool.attach(Rc::new(disk)).await.map(drop).unwrap() });
}

/// All disks are away, without what they had not made durable.
fn lose_caches(story: &Story) {
    story.rig.disks.iter().for_each(|disk| {
        disk.vanish();
        disk.power_cut_with(&[]);
    });
}

/// All disks are back as they are.
fn come_back(story: &mut Story) {
    let pool = story.rig.pool();
    story.rig.disks.iter().for_each(|disk| disk.return_intact(&mut story.rng));
    (0..story.rig.disks.len()).filter(|no| !pool.store().has_disk(DiskNo(*no as u16))).for_each(|no| attach(story, no));
}

pub fn repair(story: &Story) {
    let pool = story.rig.pool();
    let ended = story.rig.run(async move {
        let job = pool.job_start(JobKind::Repair, 0).await.unwrap();
        pool.job_wait(job).await.unwrap()
    });
    assert_eq!(ended.state, JobState::Done, "{ended:?}");
}

/// What a power cut leaves that tears all that is not durable.
fn torn(disks: &[SimDisk]) -> Vec<DiskImage> {
    let image = |disk: &SimDisk| disk.after_power_cut(&vec![Fate::Torn(Tear::Head(1)); disk.unflushed().len()]);
    disks.iter().map(image).collect()
}

/// Half of four disks goes on alone, and the power goes with the acknowledgement of a flush: the other half does not
/// open with one of those that went on and knows nothing of it.
pub fn a_flush_that_half_of_the_disks_acknowledged_is_never_opened_without() {
    for seed in 0..12 {
        let mut story = Story::new(seed, 4, MIRROR2);
        story.write_and_flush(0, 4 * story.stripe(), 1);
        story.checkpoint();
        let images = story.images();
        // The log's own writes are the first that fail: nothing else has told the labels.
        story.write(0, 4096, 2).unwrap();
        story.rig.disks[..2].iter().for_each(SimDisk::vanish);
        story.flush().unwrap();
        story.cut();
        story.rig.disks[..2].iter().zip(&images).for_each(|(disk, image)| disk.return_as(image));
        for away in 2..4 {
            let mut others = story.with_images(&story.images());
            others.rig.disks[away].vanish();
            if others.open().is_ok() {
                assert_eq!(others.byte(0, 4096).unwrap(), 2, "seed {seed}, without disk {away}");
            }
            others.rig.halt();
        }
    }
}

/// Three of five disks go at once, whichever they are, and a client flushes: it hears no word, for the three would open
/// without it.
pub fn two_of_five_disks_acknowledge_nothing() {
    for (one, other) in (0..5).flat_map(|one| (0..one).map(move |other| (one, other))) {
        let mut story = Story::new(11, 5, MIRROR2);
        story.write_and_flush(0, story.stripe(), 1);
        story.checkpoint();
        let is_left = |no: usize| no == one || no == other;
        let pool = story.rig.pool();
        for no in (0..5).filter(|no| !is_left(*no)) {
            story.rig.disks[no].vanish();
            pool.store().disk_lost(DiskNo(no as u16), "the story says so");
        }
        drop(pool);
        let told = Rc::new(Cell::new(false));
        let (vdisk, tell) = (story.vdisk(), told.clone());
        let write = async move { tell.set(vdisk.write(VirtualOffset(0), &[2; 4096], true).await.is_ok()) };
        story.rig.world.spawn("write", Box::pin(write));
        story.rig.world.run_until(Nanos::secs(20), || told.get());
        story.cut();
        let mut others = story.with_images(&story.images());
        [one, other].iter().for_each(|no| others.rig.disks[*no].vanish());
        others.open().expect("most of the disks are there");
        let is_old = others.byte(0, 4096).is_ok_and(|byte| byte == 1);
        assert!(!told.get() || !is_old, "disks {one} and {other} acknowledged what the others open without");
        others.rig.halt();
    }
}

/// A whole stripe is lost with the caches of all disks before a flush made it durable, and written anew at any moment
/// of the next batch: the flush that is acknowledged then holds one of the two.
pub fn a_flush_waits_for_what_replaced_a_lost_version() {
    let mut told = 0;
    for step in 0..60 {
        let mut story = Story::new(3, 2, SIMPLE);
        story.close();
        story.rig.options.tuning.auto_jobs = false;
        story.open().unwrap();
        story.write_and_flush(0, story.stripe(), 1);
        story.write(0, story.stripe(), 2).unwrap();
        story.rig.world.run_until(Nanos::millis(20), || false);
        let (pool, world) = (story.rig.pool(), story.rig.world.clone());
        lose_caches(&story);
        let told_now = Rc::new(Cell::new(false));
        let (vdisk, done) = (story.vdisk(), told_now.clone());
        world.spawn("flush", Box::pin(async move { done.set(vdisk.flush().await.is_ok()) }));
        world.run_until(Nanos::millis(50), || (0..2).all(|no| !pool.store().has_disk(DiskNo(no))));
        come_back(&mut story);
        let (vdisk, stripe, writer) = (story.vdisk(), story.stripe(), world.clone());
        let overwrite = async move {
            writer.sleep(Nanos(step * 200_000)).await;
            let _ = vdisk.write(VirtualOffset(0), &vec![3; stripe as usize], false).await;
        };
        world.spawn("overwrite", Box::pin(overwrite));
        world.run_until(Nanos::secs(2), || told_now.get());
        let acknowledged = told_now.get();
        drop(pool);
        story.cut();
        if acknowledged {
            told += 1;
            story.open().unwrap();
            let held = story.byte(0, story.stripe()).unwrap();
            assert!(held != 1, "step {step}: an older version than the two that could be flushed");
            story.rig.halt();
        }
    }
    assert!(told > 0, "no flush was acknowledged at all");
}

/// All disks vanish at any moment of a flush and are back at once, or one does, which is back without what its cache
/// held; the daemon is killed as soon as another batch of the log is durable. What that disk lacks is on record.
pub fn a_kill_after_disks_blinked_leaves_no_stripe_without_redundancy_in_silence() {
    for (forgetful, alone) in (0..3).flat_map(|no| [(no, false), (no, true)]) {
        for step in 1.. {
            let mut story = Story::new(3, 3, PARITY);
            story.close();
            story.rig.options.tuning.auto_jobs = false;
            story.open().unwrap();
            story.write_and_flush(0, story.stripe(), 1);
            story.write(0, 4 * story.stripe(), 2).unwrap();
            let (vdisk, world) = (story.vdisk(), story.rig.world.clone());
            let flushed = Rc::new(Cell::new(false));
            let told = flushed.clone();
            world.spawn("flush", Box::pin(async move { told.set(vdisk.flush().await.is_ok()) }));
            world.run_until(Nanos(step * 300_000), || flushed.get());
            if flushed.get() {
                assert!(step > 10, "the flush takes a few steps");
                story.rig.halt();
                break;
            }
            let pool = story.rig.pool();
            let blinks = |no: &usize| !alone || *no == forgetful;
            for no in (0..3).filter(blinks) {
                story.rig.disks[no].vanish();
                if alone {
                    // It is back before a label without it is written.
                    pool.store().disk_lost(DiskNo(no as u16), "it blinks");
                }
            }
            if !alone {
                world.run_until(Nanos::millis(20), || false);
            }
            for (no, disk) in story.rig.disks.iter().enumerate().filter(|(no, _)| blinks(no)) {
                if no == forgetful {
                    disk.power_cut_with(&[]);
                }
                disk.return_intact(&mut story.rng);
            }
            let durable = pool.store().log.durable();
            (0..3).filter(|no| !pool.store().has_disk(DiskNo(*no))).for_each(|no| attach(&story, no as usize));
            world.run_until(Nanos::secs(1), || pool.store().log.durable() > durable);
            drop(pool);
            story.rig.halt();
            story.rig.disks.iter().for_each(|disk| disk.survive_kill(&mut story.rng));
            story.open().unwrap();
            let on_record = story.rig.pool().unsound_bytes();
            let bad = story.prove();
            assert!(bad == 0 || on_record != ByteCount::ZERO, "disk {forgetful}, step {step}: {bad} blocks are bad");
            story.rig.halt();
        }
    }
}

/// Something is noted after the last checkpoint of a pool that is closed, and its disks are given up: whoever was to
/// write that ends, and the pool has not failed.
pub fn a_pool_whose_disks_were_given_up_writes_nothing_and_ends() {
    let story = Story::new(7, 3, MIRROR2);
    story.write_and_flush(0, story.stripe(), 1);
    let (pool, world) = (story.rig.pool(), story.rig.world.clone());
    let closing = pool.clone();
    story.rig.run(async move { closing.close().await.unwrap() });
    let noted = pool.store().map.borrow_mut().change_disk(DiskNo(1), |disk| disk.usage = Usage::Retired);
    pool.store().append_changes(noted);
    assert_eq!(pool.release().len(), 3);
    story.events();
    world.run_until(Nanos::secs(5), || false);
    let failed = |event: &Event| matches!(event, Event::PoolFailed { .. });
    assert!(!story.events().iter().any(failed), "the pool was closed, and has failed");
    assert!(!world.tasks().contains(&"committer"), "somebody still writes the log: {:?}", world.tasks());
}

/// Most disks go when one has its label, in its cache, and all are back with what they had; the power goes when it has
/// the next one, in the other slot, and takes both. One label is left.
pub fn a_disk_that_is_back_has_a_label_whenever_the_power_goes() {
    let story = Story::new(7, 5, MIRROR2);
    let mut rng = story.rig.world.rng("returns");
    story.write_and_flush(0, story.stripe(), 1);
    let (pool, world, disk) = (story.rig.pool(), story.rig.world.clone(), story.rig.disks[3].clone());
    let slots = DiskPlan::label_slots(disk.image().shape().capacity);
    let volatile = || {
        let unflushed = disk.unflushed();
        slots.iter().filter(|slot| unflushed.iter().any(|write| write.completed && write.at == **slot)).count()
    };
    let soon = Nanos::secs(5);
    story.rig.disks[0].vanish();
    pool.store().disk_lost(DiskNo(0), "the story says so");
    world.run_until(soon, || volatile() == 2);
    assert_eq!(volatile(), 2, "a label is in the cache, at both ends of the disk");
    let gone = || (1..4).map(|no| (DiskNo(no as u16), story.rig.disks[no].clone()));
    gone().for_each(|(no, disk)| {
        disk.vanish();
        pool.store().disk_lost(no, "the story says so");
    });
    world.run_until(soon, || false);
    gone().for_each(|(_, disk)| disk.return_intact(&mut rng));
    assert_eq!(volatile(), 2, "it never lost its power");
    let attached = Rc::new(Cell::new(0));
    for (_, disk) in gone() {
        let (pool, told) = (pool.clone(), attached.clone());
        let attach = async move {
            let is_back = pool.attach(Rc::new(disk)).await.is_ok();
            told.set(told.get() + u32::from(is_back));
        };
        world.spawn("attach", Box::pin(attach));
    }
    world.run_until(soon, || volatile() == 4);
    for seed in 0..64 {
        let fates: Vec<Fate> = (0..disk.unflushed().len() as u64).map(|no| Fate::Ruined(64 * no + seed)).collect();
        let image = disk.after_power_cut(&fates);
        let read = |at: &DiskOffset| image.read(*at, ByteCount(BLOCK));
        let is_whole = |at: &DiskOffset| read(at).is_ok_and(|block| matches!(Label::decode(&block), Ok(Some(_))));
        assert!(slots.iter().any(is_whole), "{fates:?}: no label is left");
    }
    world.run_until(soon, || attached.get() == 3);
    assert_eq!(attached.get(), 3, "the disks are back in the pool");
}

/// A checkpoint is put off, for a commit is taken back while it runs, and begins anew; a power cut anywhere tears what
/// is not durable. What the checkpoint before has written is there.
pub fn a_page_write_that_was_put_off_leaves_the_last_image_alone() {
    for step in 1.. {
        let mut story = Story::new(5, 2, MIRROR2);
        story.close();
        story.rig.options.tuning.auto_jobs = false;
        story.open().unwrap();
        // A torn write leaves the head of a page: what is written later must lie behind that.
        for byte in 1..=2 {
            story.write_and_flush(0, 16 * story.stripe(), byte);
            story.checkpoint();
        }
        story.write(16 * story.stripe(), story.stripe(), 3).unwrap();
        let (pool, world) = (story.rig.pool(), story.rig.world.clone());
        world.run_until(Nanos::millis(20), || false);
        lose_caches(&story);
        let taken = Rc::new(Cell::new(false));
        let (checkpoint, told) = (pool.clone(), taken.clone());
        world.spawn("checkpoint", Box::pin(async move { told.set(checkpoint.checkpoint().await.is_ok()) }));
        world.run_until(Nanos::millis(50), || (0..2).all(|no| !pool.store().has_disk(DiskNo(no))));
        come_back(&mut story);
        world.run_until(Nanos(step * 200_000), || taken.get());
        drop(pool);
        story.rig.halt();
        if taken.get() {
            assert!(step > 10, "the checkpoint takes a few steps");
            break;
        }
        let mut after = story.with_images(&torn(&story.rig.disks));
        after.open().unwrap();
        assert_eq!(stripes(&after, 16), [2; 16], "step {step}");
        after.rig.halt();
    }
}

/// An opening is killed anywhere; the next one is cut off anywhere, and the cut tears all that is not durable: the pool
/// opens.
pub fn two_openings_one_killed_and_one_cut_off_leave_a_pool() {
    let mut whole = Story::new(7, 1, SIMPLE);
    whole.write_and_flush(0, whole.stripe(), 1);
    whole.close();
    let images = whole.images();
    let interrupted = |story: &mut Story, at: u64| {
        let world = story.rig.world.clone();
        world.crash_at(world.operations() + at);
        let opening = story.rig.opening(&mut story.rng);
        let ended = world.block_on_within(TIMEOUT, opening).is_ok();
        story.rig.halt();
        story.rig.disks[0].survive_kill(&mut story.rng);
        ended
    };
    for first in 1.. {
        for second in 1.. {
            let mut story = whole.with_images(&images);
            if interrupted(&mut story, first) {
                return;
            }
            let ended = interrupted(&mut story, second);
            let mut after = story.with_images(&torn(&story.rig.disks));
            after.open().unwrap_or_else(|error| panic!("killed after {first}, cut off after {second}: {error}"));
            assert_eq!(stripes(&after, 1), [1]);
            after.rig.halt();
            if ended {
                break;
            }
        }
    }
}

/// A checkpoint is cut off anywhere, and the cut tears all that is not durable: what was flushed is there.
pub fn a_checkpoint_that_is_torn_anywhere_takes_nothing() {
    const STRIPES: u64 = 64;
    for at in 1.. {
        let mut story = Story::new(8, 1, SIMPLE);
        // Enough stripes that a page of the stripe table changes in more than its first sector: else a torn one is old
        // or new.
        story.write_and_flush(0, STRIPES * story.stripe(), 1);
        story.checkpoint();
        story.write_and_flush(0, STRIPES * story.stripe(), 2);
        let (world, pool) = (story.rig.world.clone(), story.rig.pool());
        world.crash_at(world.operations() + at);
        let ended = world.block_on_within(TIMEOUT, async move { pool.checkpoint().await }).is_ok();
        story.rig.halt();
        let mut after = story.with_images(&torn(&story.rig.disks));
        after.open().unwrap_or_else(|error| panic!("cut off after {at}: {error}"));
        assert_eq!(after.byte(0, STRIPES * after.stripe()).unwrap(), 2, "cut off after {at}");
        after.rig.halt();
        if ended {
            return;
        }
    }
}

/// Two of three disks vanish at any moment of a checkpoint and are back at once, so that no label says so: the pages
/// that they missed are not theirs, and the third one may go for good.
pub fn pages_that_disks_missed_while_a_checkpoint_was_taken_are_written_to_them() {
    for step in 0..160 {
        let mut story = Story::new(step % 4, 3, MIRROR3);
        story.write_and_flush(0, 4 * story.stripe(), 1);
        story.checkpoint();
        story.write_and_flush(0, 2 * story.stripe(), 2);
        let (pool, world, disks) = (story.rig.pool(), story.rig.world.clone(), story.rig.disks.clone());
        let mut rng = story.rng.fork("returns");
        let attached = pool.clone();
        let blink = async move {
            world.sleep(Nanos(step * 300_000)).await;
            disks[1..].iter().for_each(SimDisk::vanish);
            world.sleep(Nanos::millis(3)).await;
            disks[1..].iter().for_each(|disk| disk.return_intact(&mut rng));
            for disk in &disks[1..] {
                // Nobody may have noticed.
                let _ = attached.attach(Rc::new(disk.clone())).await;
            }
            Ok(())
        };
        let both: Vec<Pin<Box<dyn Future<Output = Result<()>>>>> =
            vec![Box::pin(async move { pool.checkpoint().await }), Box::pin(blink)];
        let ended: Result<()> = story.rig.run(async move { join_all(both).await.into_iter().collect() });
        ended.unwrap();
        story.cut();
        story.rig.disks[0].vanish();
        if let Err(error) = story.open() {
            // The power went before one of the two was whole again: a person says that the other one will do, and it
            // does.
            assert_eq!(error.kind, ErrorKind::NotPossible, "step {step}: {error}");
            story.rig.options.degraded = true;
            story.open().unwrap_or_else(|error| panic!("step {step}: {error}"));
        }
        assert_eq!(stripes(&story, 4), [2, 2, 1, 1], "step {step}");
        story.rig.halt();
    }
}

/// A batch that nobody was told of is on one of two log disks, and cannot be read by one opening: the opening that
/// goes on without it is not undone by the next one, which can read it.
pub fn what_an_opening_left_behind_does_not_come_back() {
    // An opening reads a place in one piece with others, alone, and once more.
    (2..6).for_each(what_an_opening_cannot_read_so_often_does_not_come_back);
}

fn what_an_opening_cannot_read_so_often_does_not_come_back(times: u32) {
    for at in 1.. {
        let mut story = Story::new(9, 2, MIRROR2);
        story.write_and_flush(0, story.stripe(), 1);
        story.checkpoint();
        let (world, vdisk, len) = (story.rig.world.clone(), story.vdisk(), story.stripe() as usize);
        world.crash_at(world.operations() + at);
        let written = async move {
            vdisk.write(VirtualOffset(0), &vec![2; len], false).await?;
            vdisk.flush().await
        };
        let ended = world.block_on_within(TIMEOUT, written).is_ok();
        story.rig.halt();
        let kept = vec![Fate::Kept; story.rig.disks[1].unflushed().len()];
        let images = [story.rig.disks[0].image(), story.rig.disks[1].after_power_cut(&kept)];
        let mut story = story.with_images(&images);
        if let Some(block) = first_difference(&images) {
            story.rig.disks[1].fail_next_reads_of(block, times, DiskError::Media);
        }
        story.open().unwrap();
        let seen = stripes(&story, 1);
        story.cut();
        story.open().unwrap();
        assert_eq!(stripes(&story, 1), seen, "cut off after {at}");
        story.rig.halt();
        if ended {
            return;
        }
    }
}

/// The first block of the log that two disks do not share.
fn first_difference(images: &[DiskImage; 2]) -> Option<DiskOffset> {
    let plan = label_of(&images[0]).plan;
    let blocks = (0..plan.log_len.0 / BLOCK).map(|no| plan.log_at + ByteCount(no * BLOCK));
    let block = |image: &DiskImage, at: DiskOffset| image.read(at, ByteCount(BLOCK)).unwrap();
    blocks.into_iter().find(|at| block(&images[0], *at) != block(&images[1], *at))
}

/// A disk that is filled by a job vanishes while the job rests, and is back before the job goes on, without what it had
/// not made durable.
pub fn a_disk_that_blinks_while_the_job_that_fills_it_rests_loses_nothing() {
    for seed in 0..6 {
        let world = SimWorld::new(seed, Scheduling::Random);
        let mut rng = world.rng("story");
        let mut rig = Rig::new(world.clone(), 3, ByteCount::mib(16));
        rig.members = 2;
        // Several groups, and no commit that would make them durable by the way.
        rig.options.tuning.move_memory = 64 << 10;
        rig.options.tuning.commit_interval = Nanos::secs(100);
        // A repair would have its turn first, and the move begin anew.
        rig.options.tuning.auto_jobs = false;
        rig.create(ByteCount::mib(1)).unwrap();
        let pool = rig.open(&mut rng).unwrap();
        let layout = Layout::new(SIMPLE, 1, ByteCount(STRIP)).unwrap();
        rig.make_vdisk(layout, ByteCount::mib(2), 4096, false).unwrap();
        let target = rig.disks[2].clone();
        rig.run(evacuate_with_a_blink(pool.clone(), world, target, rng));
        let vdisk = pool.vdisk("vdisk").unwrap();
        let bytes = rig.run(async move {
            let mut bytes = vec![0xAA; 2 << 20];
            vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
        });
        assert!(bytes.unwrap().iter().all(|byte| *byte == 7), "seed {seed}");
        rig.halt();
    }
}

async fn evacuate_with_a_blink(pool: Rc<Pool>, world: SimWorld, target: SimDisk, mut rng: weft_sim::rng::Rng) {
    let settings = SettingsRecord { repair_after: u32::MAX, foreground_share: 90, ..SettingsRecord::default() };
    pool.set(settings).await.unwrap();
    let vdisk = pool.vdisk("vdisk").unwrap();
    vdisk.write(VirtualOffset(0), &vec![7; 2 << 20], false).await.unwrap();
    vdisk.flush().await.unwrap();
    let new = NewDisk { disk: Rc::new(target.clone()), id: Id([0xAD; 16]), name: "new".into(), media: Media::Ssd };
    let to = pool.disk_add(new, Usage::AutoSelect).await.unwrap();
    pool.checkpoint().await.unwrap();
    let job = pool.job_start(JobKind::Evacuate { disk: DiskNo(0), to: Some(to), forget: false }, 0).await.unwrap();
    // Clients for whose sake the job rests.
    let (reader, clock, busy) = (vdisk.clone(), world.clone(), pool.clone());
    world.spawn(
        "reader",
        Box::pin(async move {
            while busy.jobs().iter().any(|job| !has_ended(job.state)) {
                let _ = reader.read(VirtualOffset(0), &mut [0; 4096]).await;
                clock.sleep(Nanos(200_000)).await;
            }
        }),
    );
    let quiet = |before: u64| {
        let idle = pool.store().members.borrow().get(&to).is_some_and(|member| member.in_flight.get() == 0);
        idle && target.stats().writes == before && !target.unflushed().is_empty()
    };
    for _ in 0..10_000 {
        let before = target.stats().writes;
        world.sleep(Nanos::millis(2)).await;
        if quiet(before) || pool.jobs().iter().all(|job| has_ended(job.state)) {
            break;
        }
    }
    target.vanish();
    let _ = pool.store().disk_flush(to).await;
    target.come_back(&mut rng);
    let _ = pool.attach(Rc::new(target.clone())).await;
    pool.job_wait(job).await.unwrap();
}

/// A disk that was away gets the pages that it missed, so that it serves alone once the other one is gone.
pub fn a_disk_that_is_back_gets_the_pages_that_it_missed() {
    let mut story = Story::new(10, 2, MIRROR2);
    story.write_and_flush(0, 4 * story.stripe(), 1);
    story.checkpoint();
    story.rig.disks[1].vanish();
    story.write_and_flush(0, 4 * story.stripe(), 2);
    story.checkpoint();
    story.rig.disks[1].come_back(&mut story.rng);
    attach(&story, 1);
    repair(&story);
    story.close();
    story.rig.disks[0].vanish();
    story.rig.options.degraded = true;
    story.open().unwrap();
    assert_eq!(stripes(&story, 4), [2; 4]);
    story.close();
}

/// About as many requests as such a repair has.
const REQUESTS: u64 = 120;

/// Two of the three disks with a copy of the tree were away for a checkpoint, and agree with each other; the third
/// takes too long to tell, at any moment of the repair that brings them up to date.
pub fn disks_that_are_back_get_pages_of_the_tree_from_the_one_that_has_them() {
    for nth in 0..REQUESTS {
        let mut story = Story::new(13, 6, MIRROR3);
        story.write_and_flush(0, 4 * story.stripe(), 1);
        story.checkpoint();
        let homes = homes_of_the_tree(&story);
        let (behind, newest) = (&homes[..2], homes[2]);
        behind.iter().for_each(|no| story.rig.disks[*no].vanish());
        for value in 2..4 {
            story.write_and_flush(0, 4 * story.stripe(), value);
            story.checkpoint();
        }
        behind.iter().for_each(|no| story.rig.disks[*no].return_intact(&mut story.rng));
        // At once: neither is up to date before the other is there.
        let disks: Vec<_> = behind.iter().map(|no| story.rig.disks[*no].clone()).collect();
        let pool = story.rig.pool();
        let attached = async move { join(disks.into_iter().map(|disk| pool.attach(Rc::new(disk)))).await };
        assert!(story.rig.run(attached).iter().all(|attached| attached.is_ok()));
        story.rig.slow_from(newest, nth, Nanos::secs(4));
        // The first may have begun when only one of them was back.
        repair(&story);
        repair(&story);
        let pool = story.rig.pool();
        let report = story.rig.run(async move { pool.check(false).await.unwrap() });
        assert!(report.is_sound(), "{nth} requests after the repair began: {report:?}");
        story.close();
    }
}

/// The disks with copies of the first segment of metadata.
fn homes_of_the_tree(story: &Story) -> Vec<usize> {
    let pool = story.rig.pool();
    let map = pool.store().map.borrow();
    let slabs = map.metadata_segments().next().expect("there is metadata").record.slabs.clone();
    slabs.iter().flatten().map(|at| usize::from(at.disk.0)).collect()
}
