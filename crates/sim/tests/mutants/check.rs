//! What a check may do: look. The stories end with a panic if one that is not to repair puts something right.

use crate::story::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_engine::event::Event;
use weft_engine::format::label::DiskPlan;
use weft_engine::format::page::{PAGE_MAGIC, PageKind};
use weft_engine::pool::check::CheckReport;
use weft_engine::pool::job::{JobKind, JobState};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos};
use weft_engine::world::World;

/// A disk that has copies of metadata in every story here.
const WITH_METADATA: usize = 1;
/// The disk that has all of a virtual disk without redundancy.
const WITH_DATA: usize = 0;

/// A disk goes at any moment of a scrub: what it does not answer any more is no bad block, and the scrub proves the
/// rest.
pub fn a_scrub_whose_disk_goes_finds_nothing_bad() {
    [4, 8].into_iter().for_each(a_scrub_of);
}

fn a_scrub_of(seed: u64) {
    let (mut went, mut ended) = (0, false);
    for after in (0..).map(|nth| Nanos(50_000 * nth)) {
        let mut story = Story::new(seed, 4, PARITY);
        story.write_and_flush(0, 12 * story.stripe(), 7);
        let (world, pool) = (story.rig.world.clone(), story.rig.pool());
        let scrub = story.rig.run(async move { pool.job_start(JobKind::Scrub, 0).await.unwrap() });
        let pool = story.rig.pool();
        let over = || pool.jobs().iter().any(|job| job.id == scrub && job.state == JobState::Done);
        world.run_until(after, over);
        ended = over();
        if ended {
            break;
        }
        story.rig.disks[2].vanish();
        let pool = story.rig.pool();
        let job = story.rig.run(async move { pool.job_wait(scrub).await.unwrap() });
        assert_eq!((job.state, job.bad), (JobState::Done, (0, 0)), "{after:?} after it began: {job:?}");
        story.rig.halt();
        went += 1;
    }
    assert!(ended && went > 20, "{went} moments");
}

/// Blocks are bad on one disk, and another one is emptied from any moment of a repairing check on: none of them is
/// left, though slots of their segments move.
pub fn a_repair_beside_moves_leaves_nothing_bad() {
    let (mut beside, mut ended) = (0, false);
    for after in (0..).map(|nth| Nanos(500_000 * nth)) {
        let mut story = Story::new(8, 4, MIRROR3);
        story.write_and_flush(0, 12 * story.stripe(), 7);
        story.checkpoint();
        harm(&story, WITH_DATA);
        let (world, pool, repaired) = (story.rig.world.clone(), story.rig.pool(), Rc::new(Cell::new(false)));
        let told = repaired.clone();
        let repair = async move { told.set(pool.check(true).await.is_ok()) };
        world.spawn("repair", Box::pin(repair));
        world.run_until(after, || repaired.get());
        ended = repaired.get();
        let pool = story.rig.pool();
        story.rig.run(async move {
            let moves = pool.disk_remove(DiskNo(2), None, 0).await.unwrap();
            pool.job_wait(moves).await.unwrap()
        });
        world.run_until(Nanos::secs(60), || repaired.get());
        let left = check(&story, false);
        assert!(left.is_sound(), "{after:?} after it began: {left:?}");
        story.rig.halt();
        if ended {
            break;
        }
        beside += 1;
    }
    assert!(ended && beside > 20, "{beside} moments");
}

/// Blocks of data, of checksums and of the tree are rotten and unreadable on one disk: looking changes nothing and
/// counts nothing against the disk, whoever looks again finds the same, and a repair puts right what was counted.
pub fn a_check_that_only_looks_changes_nothing() {
    for (seed, disks, resiliency) in [(3, 2, MIRROR2), (4, 4, PARITY)] {
        let mut story = Story::new(seed, disks, resiliency);
        story.write_and_flush(0, 6 * story.stripe(), 7);
        story.checkpoint();
        story.close();
        // What was written is in no memory any more.
        story.open().unwrap();
        let harmed = harm(&story, WITH_METADATA);
        story.events();
        let looked = check(&story, false);
        assert!(!looked.is_sound() && looked.curable_blocks > 0 && looked.bad_pages > 0, "{looked:?}");
        assert_eq!((looked.bad_blocks, looked.lost_stripes), (looked.curable_blocks, 0), "{looked:?}");
        assert_eq!(format!("{:?}", check(&story, false)), format!("{looked:?}"), "the second look");
        assert_eq!(contents(&story, WITH_METADATA, harmed.keys()), harmed, "a look changed a block");
        let told = |event: &Event| {
            matches!(event, Event::BlockBad { .. } | Event::BlockHealed { .. } | Event::MetadataHealed { .. })
        };
        assert_eq!(story.events().into_iter().find(told), None);
        assert!(story.info().disks.iter().all(|disk| disk.counters.bad_blocks == 0), "a look was counted");

        let repaired = check(&story, true);
        assert!(repaired.is_sound(), "{repaired:?}");
        assert_eq!((repaired.healed_blocks, repaired.healed_pages), (looked.curable_blocks, looked.bad_pages));
        let whole = check(&story, false);
        assert_eq!((whole.bad_blocks, whole.bad_pages), (0, 0), "{whole:?}");
        assert_eq!(story.byte(0, 6 * story.stripe()).unwrap(), 7);
        story.close();
    }
}

/// One copy of the checksums of what is in use is no more, and its disk says nothing of that: a look tells, and a
/// repair puts it right.
pub fn a_copy_that_lacks_its_checksums_is_damage() {
    let mut story = Story::new(6, 2, MIRROR2);
    story.write_and_flush(0, 6 * story.stripe(), 7);
    story.checkpoint();
    story.close();
    story.open().unwrap();
    let plan = story.plan(WITH_METADATA);
    let blocks = (plan.data_at.0 / BLOCK..plan.disk_len.0 / BLOCK).map(|no| no * BLOCK);
    let sheets: Vec<u64> = blocks.filter(|at| peek(&story, WITH_METADATA, *at).is_some_and(is_sheet)).collect();
    assert!(!sheets.is_empty());
    sheets.iter().for_each(|at| story.rig.disks[WITH_METADATA].rot(DiskOffset(*at)));
    let looked = check(&story, false);
    assert!(looked.bad_pages > 0 && !looked.is_sound(), "{looked:?}");
    let repaired = check(&story, true);
    assert!(repaired.is_sound() && repaired.healed_pages == looked.bad_pages, "{repaired:?}");
    assert_eq!(check(&story, false).bad_pages, 0);
}

fn is_sheet(block: Vec<u8>) -> bool {
    // Magic, CRC and pool come before the kind.
    block.starts_with(&PAGE_MAGIC) && block[24..26] == (PageKind::Sheet as u16).to_le_bytes()
}

/// More than redundancy covers is bad: a look says so, and so does a repair, which heals the rest.
pub fn what_is_lost_is_told_by_a_look_as_by_a_repair() {
    let mut story = Story::new(5, 2, SIMPLE);
    story.write_and_flush(0, 6 * story.stripe(), 7);
    story.checkpoint();
    story.close();
    story.open().unwrap();
    harm(&story, WITH_DATA);
    let looked = check(&story, false);
    assert!(looked.lost_stripes > 0 && looked.curable_blocks == 0 && looked.bad_blocks > 0, "{looked:?}");
    let repaired = check(&story, true);
    let blocks = |report: &CheckReport| (report.bad_blocks, report.curable_blocks, report.lost_stripes);
    assert_eq!(blocks(&repaired), blocks(&looked));
    assert_eq!((repaired.healed_blocks, repaired.healed_pages), (0, looked.bad_pages));
}

pub fn check(story: &Story, repair: bool) -> CheckReport {
    let pool = story.rig.pool();
    story.rig.run(async move { pool.check(repair).await.unwrap() })
}

/// Every third block of data that a disk has, and every block of metadata in its slabs, goes bad, in turns silently and
/// not. What they hold then.
fn harm(story: &Story, disk: usize) -> BTreeMap<u64, Option<Vec<u8>>> {
    let (peek, plan) = (|at| peek(story, disk, at), story.plan(disk));
    let labels = DiskPlan::label_slots(plan.disk_len);
    let blocks = (plan.data_at.0 / BLOCK..plan.disk_len.0 / BLOCK).map(|no| no * BLOCK);
    let blocks = blocks.filter(|at| !labels.contains(&DiskOffset(*at)));
    let is_written = |at: &u64| peek(*at).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0));
    // What the story writes, and its parity, is one byte over and over.
    let is_data = |at: &u64| peek(*at).is_some_and(|bytes| bytes.iter().all(|byte| *byte == bytes[0]));
    let (data, metadata): (Vec<u64>, Vec<u64>) = blocks.filter(is_written).partition(is_data);
    let written: Vec<u64> = data.into_iter().step_by(3).chain(metadata).collect();
    for (nth, at) in written.iter().enumerate() {
        if nth % 2 == 0 {
            story.rig.disks[disk].rot(DiskOffset(*at))
        } else {
            story.rig.disks[disk].spoil(DiskOffset(*at))
        }
    }
    assert!(written.len() > 10, "{written:?}");
    contents(story, disk, written.iter())
}

fn contents<'a>(story: &Story, disk: usize, blocks: impl Iterator<Item = &'a u64>) -> BTreeMap<u64, Option<Vec<u8>>> {
    blocks.map(|at| (*at, peek(story, disk, *at))).collect()
}

/// What a disk holds; `None`: it cannot be read.
fn peek(story: &Story, disk: usize, at: u64) -> Option<Vec<u8>> {
    story.rig.disks[disk].peek(DiskOffset(at), ByteCount(BLOCK)).ok()
}
