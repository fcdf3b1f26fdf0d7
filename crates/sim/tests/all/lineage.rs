//! Who may speak for a pool, told with the whole engine: disks that vanish together, are put back from copies, and were
//! used elsewhere.

use crate::planted::opening;
use crate::story::*;
use std::rc::Rc;
use weft_engine::error::{ErrorKind, Result};
use weft_engine::event::Event;
use weft_engine::format::label::DiskPlan;
use weft_engine::format::page::PAGE_MAGIC;
use weft_engine::format::record::JobKind;
use weft_engine::io::DiskError;
use weft_engine::pool::job::JobState;
use weft_engine::units::{BLOCK, ByteCount, DiskOffset, Nanos};
use weft_sim::disk::{DiskImage, SimDisk};
use weft_sim::rig::TIMEOUT;
use weft_sim::sample::sample;

/// Stripe `no` is filled with one byte; what each holds, by number.
fn stripes(story: &Story, count: u64) -> Result<Vec<u8>> {
    (0..count).map(|no| story.byte(no * story.stripe(), story.stripe())).collect()
}

fn repair(story: &Story) {
    let pool = story.rig.pool();
    let ended = story.rig.run(async move {
        let job = pool.job_start(JobKind::Repair, 0).await.unwrap();
        pool.job_wait(job).await.unwrap()
    });
    assert_eq!(ended.state, JobState::Done, "{ended:?}");
}

fn attach(story: &Story, disk: usize) {
    let (pool, disk) = (story.rig.pool(), story.rig.disks[disk].clone());
    story.rig.run(async move { pool.attach(Rc::new(disk)).await.map(drop).unwrap() });
}

#[test]
fn one_of_three_disks_acknowledges_nothing_alone_and_the_other_two_open_with_everything() {
    for seed in 0..4 {
        let mut story = Story::new(seed, 3, MIRROR3);
        story.write_and_flush(0, 4 * story.stripe(), 1);
        story.rig.disks[..2].iter().for_each(SimDisk::vanish);
        // It may be taken into memory.
        let _ = story.write(0, story.stripe(), 2);
        assert_eq!(kind(story.flush()), Some(ErrorKind::Frozen));
        assert!(story.events().iter().any(|event| matches!(event, Event::PoolFrozen { .. })));
        story.cut();
        for disk in 0..2 {
            story.rig.disks[disk].come_back(&mut story.rng);
        }
        story.rig.disks[2].vanish();
        story.open().unwrap();
        assert_eq!(stripes(&story, 4).unwrap(), [1; 4]);
        story.write_and_flush(0, story.stripe(), 3);
        story.cut();
        story.rig.disks[2].come_back(&mut story.rng);
        story.open().unwrap();
        assert_eq!(stripes(&story, 4).unwrap(), [3, 1, 1, 1]);
        repair(&story);
        assert_eq!(story.prove(), 0);
        story.close();
    }
}

#[test]
fn a_mirror_goes_on_alone_and_its_partner_does_not_open_whichever_comes_back_first() {
    for seed in 0..4 {
        let mut story = Story::new(10 + seed, 2, MIRROR2);
        story.write_and_flush(0, 4 * story.stripe(), 1);
        let (stays, went) = ((seed % 2) as usize, 1 - (seed % 2) as usize);
        story.rig.disks[went].vanish();
        story.write_and_flush(0, 2 * story.stripe(), 2);
        story.cut();
        story.rig.disks[went].come_back(&mut story.rng);
        let images = story.images();
        // The partner first.
        let mut partner = story.with_images(&images);
        partner.rig.disks[stays].vanish();
        assert_eq!(kind(partner.open()), Some(ErrorKind::NotPossible));
        partner.rig.disks[stays].come_back(&mut story.rng);
        partner.open().unwrap();
        assert_eq!(stripes(&partner, 4).unwrap(), [2, 2, 1, 1]);
        partner.close();
        // The one that went on first.
        let mut alone = story.with_images(&images);
        alone.rig.disks[went].vanish();
        alone.open().unwrap();
        assert_eq!(stripes(&alone, 4).unwrap(), [2, 2, 1, 1]);
        alone.rig.disks[went].come_back(&mut story.rng);
        attach(&alone, went);
        repair(&alone);
        assert_eq!(stripes(&alone, 4).unwrap(), [2, 2, 1, 1]);
        assert_eq!(alone.prove(), 0);
        alone.close();
    }
}

/// Four disks as they were at some time, and as they are after more was written; closed, or cut off.
fn before_and_after(seed: u64, closed: bool) -> (Story, Vec<DiskImage>, Vec<DiskImage>) {
    let mut story = Story::new(seed, 4, PARITY);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.close();
    let before = story.images();
    story.open().unwrap();
    story.write_and_flush(story.stripe(), 2 * story.stripe(), 2);
    story.checkpoint();
    story.write_and_flush(4 * story.stripe(), story.stripe(), 3);
    match closed {
        true => story.close(),
        false => story.cut(),
    }
    let after = story.images();
    (story, before, after)
}

const AFTER: [u8; 6] = [1, 2, 2, 1, 3, 1];

#[test]
fn three_of_four_disks_put_back_from_an_older_copy_never_serve_wrong_data() {
    for closed in [true, false] {
        let (story, before, after) = before_and_after(20 + closed as u64, closed);
        for newer in 0..4 {
            let mut images = before.clone();
            images[newer] = after[newer].clone();
            let mut mixed = story.with_images(&images);
            match mixed.open() {
                Err(error) => assert_eq!(error.kind, ErrorKind::NotPossible, "{error}"),
                Ok(()) => {
                    if let Ok(seen) = stripes(&mixed, 6) {
                        assert_eq!(seen, AFTER, "disk {newer} was not put back");
                    }
                    mixed.rig.halt();
                }
            }
        }
    }
}

#[test]
fn one_of_four_disks_put_back_from_an_older_copy_is_brought_up_to_date() {
    for closed in [true, false] {
        let (story, before, after) = before_and_after(30 + closed as u64, closed);
        for older in 0..4 {
            let mut images = after.clone();
            images[older] = before[older].clone();
            let mut mixed = story.with_images(&images);
            mixed.open().unwrap();
            assert_eq!(stripes(&mixed, 6).unwrap(), AFTER, "disk {older} was put back");
            repair(&mixed);
            assert_eq!(mixed.rig.pool().unsound_bytes(), ByteCount::ZERO);
            assert_eq!(mixed.prove(), 0, "disk {older} was put back");
            mixed.close();
            // Its redundancy is what it says.
            let other = (older + 1) % 4;
            mixed.rig.disks[other].vanish();
            mixed.open().unwrap();
            assert_eq!(stripes(&mixed, 6).unwrap(), AFTER, "without disk {other}");
            mixed.close();
        }
    }
}

/// A pool that was cut off after disk 3 of four had left it, and a copy of that disk from before the last writes.
fn with_a_disk_that_left(seed: u64) -> (Story, DiskImage) {
    let mut story = Story::new(seed, 4, PARITY);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.close();
    let before = story.images()[3].clone();
    story.open().unwrap();
    story.write_and_flush(story.stripe(), 2 * story.stripe(), 2);
    story.write_and_flush(4 * story.stripe(), story.stripe(), 3);
    story.checkpoint();
    story.rig.disks[3].vanish();
    // It is voted out, and misses no strip: nothing of its slots is on record.
    story.checkpoint();
    assert!(story.events().iter().any(|event| matches!(event, Event::DiskLost { .. })));
    story.cut();
    (story, before)
}

/// Disk 3 of four was current, left, and was put back from a copy that was made before that; what it lacks from then on
/// is on record, what it lacks from before is not.
#[test]
fn a_disk_put_back_from_a_copy_that_is_older_than_its_absence_is_brought_everything() {
    for attached in [false, true] {
        let (mut story, before) = with_a_disk_that_left(80 + attached as u64);
        if !attached {
            story.rig.disks[3].return_as(&before);
        }
        story.open().unwrap();
        if attached {
            story.rig.disks[3].return_as(&before);
            attach(&story, 3);
        }
        // A read would mend what it finds.
        repair(&story);
        assert_eq!(story.rig.pool().unsound_bytes(), ByteCount::ZERO);
        assert_eq!(story.prove(), 0, "attached: {attached}");
        assert_eq!(stripes(&story, 6).unwrap(), AFTER);
        story.close();
    }
}

/// The first labels of an opening go to every disk: they must not hide what the old one told, as long as that is not
/// durably on record.
#[test]
fn a_disk_that_was_put_back_is_known_as_that_after_a_crash_at_any_step_of_the_next_opening() {
    let (story, before) = with_a_disk_that_left(85);
    story.rig.disks[3].return_as(&before);
    let images = story.images();
    for step in 1..80 {
        let mut again = story.with_images(&images);
        let world = again.rig.world.clone();
        world.crash_at(world.operations() + step * 2);
        let opening = again.rig.opening(&mut again.rng);
        let _ = world.block_on_within(TIMEOUT, opening);
        world.crash_at(u64::MAX);
        again.rig.halt();
        for disk in &again.rig.disks {
            disk.survive_kill(&mut again.rng);
        }
        again.open().unwrap();
        repair(&again);
        assert_eq!(again.prove(), 0, "step {step}");
        assert_eq!(stripes(&again, 6).unwrap(), AFTER, "step {step}");
        again.close();
    }
}

/// Its label is no evidence, for none was written since the copy was made; but it lacks what others have of the log.
#[test]
fn a_disk_that_lacks_log_batches_it_had_called_durable_gets_its_strips_back() {
    let mut story = Story::new(90, 4, PARITY);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.checkpoint();
    let before = story.images()[0].clone();
    story.write_and_flush(story.stripe(), 2 * story.stripe(), 2);
    story.write_and_flush(4 * story.stripe(), story.stripe(), 3);
    story.write_and_flush(4 * story.stripe(), story.stripe(), 3);
    story.cut();
    story.rig.disks[0].return_as(&before);
    story.open().unwrap();
    assert!(story.events().iter().any(|event| matches!(event, Event::DiskOutOfStep { .. })));
    repair(&story);
    assert_eq!(stripes(&story, 6).unwrap(), AFTER);
    assert_eq!(story.prove(), 0);
    story.close();
}

#[test]
fn a_disk_that_was_used_elsewhere_is_rewritten_whatever_versions_its_pages_have() {
    for seed in sample(0..8) {
        let mut story = Story::new(40 + seed, 3, MIRROR3);
        story.write_and_flush(0, 8 * story.stripe(), 1);
        story.close();
        let images = story.images();
        // Elsewhere.
        let mut elsewhere = story.with_images(&images);
        elsewhere.rig.disks[..2].iter().for_each(SimDisk::vanish);
        elsewhere.rig.options.degraded = true;
        elsewhere.open().unwrap();
        for round in 0..6 {
            elsewhere.write_and_flush((round + seed) % 8 * elsewhere.stripe(), elsewhere.stripe(), 90);
            elsewhere.discard((round + seed + 3) % 8 * elsewhere.stripe(), elsewhere.stripe());
            elsewhere.checkpoint();
        }
        elsewhere.close();
        // Here, without it.
        story.rig.disks[2].vanish();
        story.open().unwrap();
        story.write_and_flush(seed % 8 * story.stripe(), story.stripe(), 2);
        let mut expected = [1; 8];
        expected[seed as usize % 8] = 2;
        if seed % 2 == 1 {
            story.close();
            story.open().unwrap();
        }
        // All together at once: only the owner knows.
        let mut now = story.images();
        now[2] = elsewhere.images()[2].clone();
        let mut together = story.with_images(&now);
        assert_eq!(kind(together.open()), Some(ErrorKind::NotPossible), "seed {seed}");
        // It is attached.
        story.rig.disks[2].return_as(&now[2]);
        attach(&story, 2);
        assert_eq!(stripes(&story, 8).unwrap(), expected, "seed {seed}");
        repair(&story);
        assert_eq!(stripes(&story, 8).unwrap(), expected, "seed {seed}");
        story.close();
        story.open().unwrap();
        assert_eq!(stripes(&story, 8).unwrap(), expected, "seed {seed}");
        assert_eq!(story.prove(), 0, "seed {seed}");
        story.close();
        // What the repaired disk holds serves alone.
        story.rig.disks[..2].iter().for_each(SimDisk::vanish);
        story.rig.options.degraded = true;
        story.open().unwrap();
        assert_eq!(stripes(&story, 8).unwrap(), expected, "seed {seed}");
        story.close();
    }
}

/// The blocks of metadata pages on a disk.
fn page_blocks(image: &DiskImage) -> Vec<DiskOffset> {
    let plan = label_of(image).plan;
    let blocks = (plan.data_at.0 / BLOCK..plan.disk_len.0 / BLOCK).map(|no| DiskOffset(no * BLOCK));
    blocks.filter(|at| image.read(*at, ByteCount(BLOCK)).is_ok_and(|block| block.starts_with(&PAGE_MAGIC))).collect()
}

#[test]
fn page_writes_that_were_lost_on_all_copies_are_an_error_and_not_old_data() {
    let mut story = Story::new(50, 3, PARITY);
    story.write_and_flush(0, 8 * story.stripe(), 1);
    story.checkpoint();
    story.cut();
    let before = story.images();
    story.open().unwrap();
    story.write_and_flush(0, 8 * story.stripe(), 2);
    story.checkpoint();
    story.close();
    let mut images = story.images();
    let mut lost = 0;
    for (image, before) in images.iter_mut().zip(&before) {
        for at in page_blocks(image) {
            let old = before.read(at, ByteCount(BLOCK)).unwrap();
            if old != image.read(at, ByteCount(BLOCK)).unwrap() {
                image.overwrite(at, &old);
                lost += 1;
            }
        }
    }
    assert!(lost > 0, "no page was written");
    let mut after = story.with_images(&images);
    after.open().unwrap();
    let stripe = after.stripe();
    // What is lost is an error for its own stripes.
    for no in 0..8 {
        assert_eq!(kind(after.byte(no * stripe, stripe)), Some(ErrorKind::Lost), "stripe {no}");
    }
    after.rig.halt();
}

#[test]
fn a_checksum_page_that_could_not_be_read_once_is_not_lost() {
    for seed in sample(0..8) {
        let mut story = Story::new(60 + seed, 3, PARITY);
        story.write_and_flush(0, 8 * story.stripe(), 1);
        story.close();
        let images = story.images();
        story.open().unwrap();
        for (disk, image) in story.rig.disks.iter().zip(&images) {
            page_blocks(image).into_iter().for_each(|at| disk.fail_next_read_of(at, DiskError::Media));
        }
        // Whoever comes first may be refused, by whatever reads: never served wrong data.
        for no in 0..8 {
            let at = no * story.stripe();
            match (no + seed) % 3 {
                0 => drop(story.write(at + 512, 1024, 1)),
                1 => drop(story.byte(at, story.stripe()).map(|byte| assert_eq!(byte, 1))),
                _ => {}
            }
        }
        let _ = story.flush();
        story.checkpoint();
        assert_eq!(stripes(&story, 8).unwrap(), [1; 8], "seed {seed}");
        story.cut();
        story.open().unwrap();
        assert_eq!(stripes(&story, 8).unwrap(), [1; 8], "seed {seed}");
        assert_eq!(story.prove(), 0, "seed {seed}");
        story.close();
    }
}

#[test]
fn read_errors_of_the_log_that_do_not_last_keep_no_pool_from_opening() {
    let mut story = Story::new(61, 3, PARITY);
    story.write_and_flush(0, 2 * story.stripe(), 1);
    story.cut();
    for disk in &story.rig.disks {
        let plan = label_of(&disk.image()).plan;
        let blocks = (0..plan.log_len.0 / BLOCK).map(|no| plan.log_at + ByteCount(no * BLOCK));
        blocks.for_each(|at| disk.fail_next_read_of(at, DiskError::Media));
    }
    story.open().unwrap();
    assert_eq!(stripes(&story, 2).unwrap(), [1; 2]);
    story.close();
}

#[test]
fn after_a_kill_and_a_power_cut_amid_the_next_opening_every_disk_has_a_label() {
    for seed in sample(0..60) {
        let mut story = Story::new(70 + seed, 5, PARITY);
        story.write_and_flush(0, 2 * story.stripe(), 1);
        story.close();
        for power in [false, true] {
            let world = story.rig.world.clone();
            world.crash_at(world.operations() + 1 + story.rng.below(90));
            let opening = story.rig.opening(&mut story.rng);
            let _ = world.block_on_within(TIMEOUT, opening);
            story.rig.halt();
            for disk in &story.rig.disks {
                match power {
                    true => disk.power_cut(&mut story.rng),
                    false => disk.survive_kill(&mut story.rng),
                }
            }
        }
        for (no, image) in story.images().iter().enumerate() {
            let slots = DiskPlan::label_slots(image.shape().capacity);
            let sound = |at: &DiskOffset| {
                let block = image.read(*at, ByteCount(BLOCK)).ok();
                block.is_some_and(|block| {
                    weft_engine::format::label::Label::decode(&block).is_ok_and(|label| label.is_some())
                })
            };
            assert!(slots.iter().any(sound), "seed {seed}: disk {no} has no label");
        }
        story.open().unwrap();
        assert_eq!(stripes(&story, 2).unwrap(), [1; 2], "seed {seed}");
        story.close();
    }
}

#[test]
fn an_opening_whose_disks_vanish_ends() {
    opening::an_opening_whose_disks_vanish_ends();
}

#[test]
fn a_pool_whose_disks_vanish_while_a_job_runs_can_be_closed() {
    for step in 0..60 {
        let mut story = Story::new(300, 3, MIRROR3);
        story.write_and_flush(0, 8 * story.stripe(), 1);
        story.rig.disks[2].vanish();
        story.write_and_flush(0, 8 * story.stripe(), 2);
        story.rig.disks[2].come_back(&mut story.rng);
        attach(&story, 2);
        let pool = story.rig.pool();
        story.rig.run(async move { pool.job_start(JobKind::Repair, 0).await.map(drop).unwrap() });
        let _ = story.rig.world.run_until(Nanos(step * 200_000), || false);
        story.rig.disks[..2].iter().for_each(SimDisk::vanish);
        let _ = story.rig.world.run_until(Nanos::millis(20), || false);
        // It may say that it could not write everything; it must not wait for disks that nobody brings back.
        let _ = story.rig.close();
        story.rig.halt();
        for disk in 0..2 {
            story.rig.disks[disk].come_back(&mut story.rng);
        }
        story.open().unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert_eq!(stripes(&story, 8).unwrap(), [2; 8], "step {step}");
        story.close();
    }
}
