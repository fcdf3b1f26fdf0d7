//! Damage to labels, checkpoints, log and pages: what is covered is healed and told, what is not is refused.

use crate::story::*;
use std::collections::BTreeSet;
use weft_engine::event::Event;
use weft_engine::format::label::DiskPlan;
use weft_engine::format::page::{CHUNK_ENTRIES, PAGE_MAGIC};
use weft_engine::pool::job::{JobKind, JobState};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, TableNo};

fn healed(story: &Story, disk: DiskNo, what: &str) -> bool {
    let is = |event: &Event| matches!(event, Event::MetadataHealed { disk: no, what: which } if *no == disk && *which == what);
    story.events().iter().any(is)
}

/// A pool with whole stripes, landed data and a checkpoint between them, cut off.
fn used(seed: u64, disks: usize, resiliency: weft_engine::geometry::Resiliency) -> Story {
    let mut story = Story::new(seed, disks, resiliency);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.write_and_flush(story.stripe() + 512, 1024, 2);
    story.checkpoint();
    story.write_and_flush(2 * story.stripe(), 2 * story.stripe(), 3);
    story.write_and_flush(5 * story.stripe(), 512, 4);
    story.cut();
    story
}

fn judge(story: &Story) {
    let stripe = story.stripe();
    for (at, len, byte) in [
        (0, stripe + 512, 1),
        (stripe + 512, 1024, 2),
        (stripe + 1536, stripe - 1536, 1),
        (2 * stripe, 2 * stripe, 3),
        (4 * stripe, stripe, 1),
        (5 * stripe, 512, 4),
        (5 * stripe + 512, stripe - 512, 1),
        (6 * stripe, 2 * stripe, 0),
    ] {
        assert_eq!(story.byte(at, len).unwrap(), byte, "{len} bytes at {at}");
    }
}

/// format/label.rs, invariants 1 and 2: any one slot of any disk may be destroyed; it is said and put right.
#[test]
fn any_single_label_slot_may_be_destroyed() {
    let story = used(1, 2, MIRROR2);
    let images = story.images();
    for disk in 0..2 {
        for slot in DiskPlan::label_slots(images[disk].shape().capacity) {
            let mut damaged = images.clone();
            damaged[disk].overwrite(slot, &[0x5A; BLOCK as usize]);
            let mut again = story.with_images(&damaged);
            again.open().unwrap();
            assert!(healed(&again, DiskNo(disk as u16), "label"), "disk {disk}, slot {slot:?}");
            judge(&again);
            again.close();
            let mut damaged = again.images();
            // All four are sound again: the three others may go now.
            for other in DiskPlan::label_slots(images[disk].shape().capacity).into_iter().filter(|at| *at != slot) {
                if label_of(&damaged[disk]).epoch == label_at(&damaged[disk], slot).epoch {
                    damaged[disk].spoil(other);
                }
            }
            let mut once_more = story.with_images(&damaged);
            once_more.open().unwrap();
            judge(&once_more);
            once_more.close();
        }
    }
}

/// pool/open.rs, `read_configuration`: a destroyed checkpoint of any one voter is seen at once, said, and put right.
#[test]
fn a_checkpoint_may_be_destroyed_on_any_one_voter() {
    let story = used(2, 2, MIRROR2);
    let images = story.images();
    for disk in 0..2usize {
        let label = label_of(&images[disk]);
        let at = label.plan.blob_at + label.plan.blob_len * (label.anchor.checkpoint_no % 2);
        let mut damaged = images.clone();
        damaged[disk].overwrite(at, &[0x5A; BLOCK as usize]);
        let mut again = story.with_images(&damaged);
        again.open().unwrap();
        assert!(healed(&again, DiskNo(disk as u16), "checkpoint"), "disk {disk}");
        judge(&again);
        again.close();
        let mut other_gone = story.with_images(&again.images());
        other_gone.rig.disks[1 - disk].vanish();
        other_gone.rig.options.degraded = true;
        other_gone.open().unwrap();
        judge(&other_gone);
        other_gone.close();
    }
}

/// store/replay.rs: a batch that one log disk lost is read from another, said, and written anew. On all of them:
/// invariant 3, refused.
#[test]
fn a_log_batch_may_be_destroyed_on_one_log_disk_but_not_on_all() {
    let story = used(3, 2, MIRROR2);
    let images = story.images();
    let label = label_of(&images[0]);
    let first = label.plan.log_at + ByteCount(label.anchor.log_tail % label.plan.log_len.0);
    for disk in 0..2usize {
        let mut damaged = images.clone();
        damaged[disk].overwrite(first, &[0x5A; BLOCK as usize]);
        let mut again = story.with_images(&damaged);
        again.open().unwrap();
        assert!(healed(&again, DiskNo(disk as u16), "log batch"), "disk {disk}");
        judge(&again);
        again.close();
    }
    let mut damaged = images.clone();
    damaged.iter_mut().for_each(|image| image.spoil(first));
    let mut again = story.with_images(&damaged);
    assert_eq!(kind(again.open()), Some(weft_engine::error::ErrorKind::Corrupt));
}

/// store/pages.rs, invariant 3, and format/page.rs, invariant 2: every metadata page block of one disk destroyed at
/// once; other copies serve.
#[test]
fn every_metadata_page_of_one_disk_may_be_destroyed() {
    let story = used(4, 3, PARITY);
    let images = story.images();
    for disk in 0..3usize {
        let mut damaged = images.clone();
        let pages = page_blocks(&damaged[disk]);
        assert!(pages.len() > 16, "a chunk and a sheet are there");
        pages.iter().for_each(|at| damaged[disk].spoil(*at));
        let mut again = story.with_images(&damaged);
        again.open().unwrap();
        assert!(healed(&again, DiskNo(disk as u16), "metadata page"), "disk {disk}");
        judge(&again);
        assert_eq!(again.prove(), 0);
        again.close();
    }
    // On every disk: the pool does not guess.
    let mut damaged = images;
    for image in &mut damaged {
        page_blocks(image).into_iter().for_each(|at| image.spoil(at));
    }
    let mut again = story.with_images(&damaged);
    assert_eq!(kind(again.open()), Some(weft_engine::error::ErrorKind::Lost));
}

/// store/proof.rs: a slot that cannot be read is damage although the other one holds the newest image, for it may have
/// held a newer one. Who proves the pool puts it right, so that the copy is enough when it is the only one left.
#[test]
fn a_page_slot_that_cannot_be_read_is_written_anew_even_beside_the_newest_image() {
    for prove in [check_and_repair, scrub] {
        let story = used(5, 2, MIRROR2);
        let mut images = story.images();
        older_slots(&images[0]).into_iter().for_each(|at| images[0].spoil(at));
        let mut again = story.with_images(&images);
        again.open().unwrap();
        prove(&again);
        again.close();
        again.rig.disks[1].vanish();
        again.rig.options.degraded = true;
        again.open().unwrap();
        judge(&again);
        again.close();
    }
}

/// store/proof.rs, invariant 3.
#[test]
fn pages_that_no_disk_holds_any_more_are_written_anew_from_memory() {
    for prove in [check_and_repair, scrub] {
        let mut story = used(6, 2, MIRROR2);
        story.open().unwrap();
        judge(&story);
        let pool = story.rig.pool();
        story.rig.run(async move { drop(pool.store().load_table(TableNo(1), 0..CHUNK_ENTRIES).await.unwrap()) });
        story.checkpoint();
        for disk in &story.rig.disks {
            page_blocks(&disk.image()).into_iter().for_each(|at| disk.spoil(at));
        }
        prove(&story);
        story.cut();
        story.open().unwrap();
        judge(&story);
        assert_eq!(story.prove(), 0);
        story.close();
    }
}

fn check_and_repair(story: &Story) {
    let pool = story.rig.pool();
    let report = story.rig.run(async move { pool.check(true).await.unwrap() });
    assert!(report.is_sound(), "{report:?}");
}

fn scrub(story: &Story) {
    let pool = story.rig.pool();
    story.rig.run(async move {
        let job = pool.job_start(JobKind::Scrub, 0).await.unwrap();
        assert_eq!(pool.job_wait(job).await.unwrap().state, JobState::Done);
    });
}

/// The slots beside the newest image of every page.
fn older_slots(image: &weft_sim::disk::DiskImage) -> Vec<DiskOffset> {
    let data_at = label_of(image).plan.data_at.0;
    let version = |at: u64| {
        let block = image.read(DiskOffset(at), ByteCount(BLOCK)).unwrap();
        let number = u64::from_le_bytes(block[40..48].try_into().unwrap());
        if block.starts_with(&PAGE_MAGIC) { number } else { 0 }
    };
    let other = |at: &DiskOffset| data_at + ((at.0 - data_at) ^ BLOCK);
    let newest = page_blocks(image).into_iter().filter(|at| version(at.0) > version(other(at)));
    newest.map(|at| DiskOffset(other(&at))).collect()
}

fn page_blocks(image: &weft_sim::disk::DiskImage) -> Vec<DiskOffset> {
    let plan = label_of(image).plan;
    let blocks = (plan.data_at.0 / BLOCK..plan.disk_len.0 / BLOCK).map(|no| DiskOffset(no * BLOCK));
    blocks.filter(|at| image.read(*at, ByteCount(BLOCK)).is_ok_and(|block| block.starts_with(&PAGE_MAGIC))).collect()
}

/// stripe/execute.rs, invariants 1 and 2, and everything above: any one block of a disk destroyed, spoiled or rotten;
/// the pool opens, the data is right, what was read bad is healed where it lies, and the disk is clean after a
/// repairing check.
#[test]
fn any_one_block_of_a_disk_may_be_destroyed() {
    for (seed, disks, resiliency) in [(5, 2, MIRROR2), (6, 3, PARITY)] {
        let story = used(seed, disks, resiliency);
        let images = story.images();
        let blocks = images[0].shape().capacity.0 / BLOCK;
        let mut blocks_healed = 0;
        let written: BTreeSet<u64> = (0..blocks).filter(|no| !is_blank(&images[0], *no)).collect();
        assert!(written.len() > 30);
        for no in written {
            let at = DiskOffset(no * BLOCK);
            let mut again = story.with_images(&images);
            if no % 2 == 0 {
                again.rig.disks[0].spoil(at)
            } else {
                again.rig.disks[0].rot(at)
            }
            again.open().unwrap_or_else(|error| panic!("block {no}: {error}"));
            judge(&again);
            let pool = again.rig.pool();
            let report = again.rig.run(async move { pool.check(true).await.unwrap() });
            assert!(report.is_sound(), "block {no}: {report:?}");
            let events = again.events();
            let bad = events
                .iter()
                .any(|event| matches!(event, Event::BlockBad { disk: DiskNo(0), at: place, .. } if *place == at));
            let healed = events.contains(&Event::BlockHealed { disk: DiskNo(0), at });
            assert_eq!(bad, healed, "block {no}: what was found bad is healed");
            blocks_healed += healed as u64;
            assert_eq!(again.prove(), 0);
            again.close();
        }
        assert!(blocks_healed > 10, "{blocks_healed}");
    }
}

fn is_blank(image: &weft_sim::disk::DiskImage, block: u64) -> bool {
    image.read(DiskOffset(block * BLOCK), ByteCount(BLOCK)).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

/// store/replay.rs, invariant 1, and stripe/buffer.rs, invariant 3: landed data survives checkpoints, however many,
/// until a stripe holds it.
#[test]
fn landed_data_outlives_checkpoints_until_a_stripe_holds_it() {
    let mut story = Story::new(7, 3, PARITY);
    story.write_and_flush(512, 1024, 9);
    for round in 0..3 {
        story.checkpoint();
        story.write_and_flush(4 * story.stripe(), story.stripe(), round);
        story.cut();
        story.open().unwrap();
        assert_eq!(story.byte(512, 1024).unwrap(), 9);
        assert_eq!(story.byte(0, 512).unwrap(), 0);
    }
    // Whole now: what had landed is old.
    story.write_and_flush(0, story.stripe(), 5);
    story.cut();
    story.open().unwrap();
    assert_eq!(story.byte(0, story.stripe()).unwrap(), 5);
    story.close();
}

/// log.rs, invariants 1 and 3: many times the ring is written; nothing is overwritten that is still needed.
#[test]
fn the_log_ring_goes_round_many_times() {
    let mut story = Story::new(8, 2, MIRROR2);
    let ring = story.info().log.1.0;
    let rounds = 3 * ring / (8 << 10);
    for round in 0..rounds {
        story.write_and_flush(round % 40 * story.stripe() + 512, 8192, (round % 251) as u8 + 1);
    }
    assert!(story.info().checkpoints > 2 && story.info().log_written > 2 * ring);
    story.cut();
    story.open().unwrap();
    for stripe in 0..40 {
        let last = (0..rounds).rev().find(|round| round % 40 == stripe).unwrap();
        assert_eq!(story.byte(stripe * story.stripe() + 512, 8192).unwrap(), (last % 251) as u8 + 1);
    }
    assert_eq!(story.prove(), 0);
    story.close();
}
