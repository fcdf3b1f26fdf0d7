//! Stories of disks that hold data and come to be journals: the log, and nothing else, is on them then.

use super::{PARITY, Story};
use crate::rig::resiliencies;
use crate::sample::sample;
use weft_engine::format::record::Usage;
use weft_engine::geometry::Resiliency;
use weft_engine::pool::DiskChange;
use weft_engine::pool::job::{JobKind, JobState};
use weft_engine::units::{DiskNo, Nanos};

impl Story {
    fn to_journal(&self, no: u16) {
        let pool = self.rig.pool();
        let change = DiskChange { usage: Some(Usage::Journal), ..DiskChange::default() };
        self.rig.run(async move { pool.disk_set(DiskNo(no), change).await.unwrap() });
    }

    /// Slabs of a disk that data or metadata has.
    fn held_by(&self, no: u16) -> usize {
        let pool = self.rig.pool();
        let map = pool.store().map.borrow();
        let slabs = map.segments.values().flat_map(|segment| segment.record.slabs.iter().flatten());
        slabs.filter(|at| at.disk == DiskNo(no)).count()
    }

    /// Waits until a disk holds nothing but the log.
    fn until_held_by_none(&self, no: u16) {
        let pool = self.rig.pool();
        let there = move || {
            let map = pool.store().map.borrow();
            map.segments.values().flat_map(|segment| segment.record.slabs.iter().flatten()).any(|at| at.disk.0 == no)
        };
        self.rig.world.run_until(Nanos::secs(120), move || !there());
        assert_eq!(self.held_by(no), 0, "{:?}", self.rig.pool().jobs());
    }
}

/// What lies on a disk that comes to be a journal leaves it, by a job; the pool can do without it then.
pub fn a_disk_that_becomes_a_journal_carries_the_log_and_nothing_else() {
    for (seed, resiliency) in resiliencies().into_iter().enumerate() {
        let mut story = Story::new(1_100 + seed as u64, resiliency);
        story.fill(1);
        story.scatter(60, 1_000);
        story.destage();
        let no = (0..story.rig.disks.len() as u16).max_by_key(|no| story.held_by(*no)).unwrap();
        assert!(story.held_by(no) > 0);
        story.to_journal(no);
        story.until_held_by_none(no);
        story.rig.world.run_until(Nanos::secs(30), || false);
        let jobs = story.rig.pool().jobs();
        let emptied = |kind| matches!(kind, JobKind::Evacuate { disk, forget: false, .. } if disk == DiskNo(no));
        assert!(jobs.iter().any(|job| emptied(job.kind) && job.state == JobState::Done), "{jobs:?}");
        assert!(jobs.iter().all(|job| job.state == JobState::Done), "{jobs:?}");
        assert!(story.rig.pool().store().loggers().contains(&DiskNo(no)));
        story.scatter(60, 2_000);
        story.destage();
        story.flush();
        assert_eq!(story.held_by(no), 0);
        story.prove();
        story.crash();
        story.prove();
        story.rig.close().unwrap();
        story.rig.disks[no as usize].vanish();
        story.rig.open(&mut story.rng).unwrap();
        story.prove_bytes();
    }
}

/// The power goes at any moment of it.
pub fn a_crash_while_a_disk_becomes_a_journal_loses_nothing_and_it_goes_on() {
    for seed in sample(0..20) {
        let mut story = Story::new(1_200 + seed, resiliencies()[seed as usize % 5]);
        story.fill(1);
        let no = story.rng.below(story.rig.disks.len() as u64) as u16;
        story.to_journal(no);
        for round in 0..3 {
            story.scatter(20, 1_000 + round * 1_000);
            story.flush();
            let steps = Nanos(story.rng.below(200_000_000));
            story.rig.world.run_until(steps, || false);
            story.crash();
            story.prove();
        }
        story.until_held_by_none(no);
        story.prove();
    }
}

/// What no other disk can have stays on a disk that comes to be a journal, without a job that fails again and again,
/// and leaves when there is another disk for data.
pub fn what_no_other_disk_can_have_stays_on_a_journal_until_there_is_one() {
    let mut story = Story::new(1_300, PARITY);
    let last = story.rig.disks.len() as u16 - 1;
    story.fill(1);
    story.to_journal(last);
    story.until_held_by_none(last);
    // There are as many disks for data as a stripe takes now.
    story.to_journal(0);
    story.rig.world.run_until(Nanos::secs(60), || false);
    assert!(story.held_by(0) > 0, "its stripes would lack a column");
    assert!(story.rig.pool().jobs().iter().all(|job| job.state == JobState::Done), "{:?}", story.rig.pool().jobs());
    story.prove();
    let pool = story.rig.pool();
    let back = DiskChange { usage: Some(Usage::AutoSelect), ..DiskChange::default() };
    story.rig.run(async move { pool.disk_set(DiskNo(last), back).await.unwrap() });
    story.until_held_by_none(0);
    story.prove();
}

/// With one disk for data left, the other copy of the metadata stays on the journal.
pub fn a_journal_keeps_the_copies_of_metadata_that_too_few_others_have() {
    let mut story = Story::new(1_310, Resiliency::Simple);
    story.fill(1);
    for no in 1..story.rig.disks.len() as u16 {
        story.to_journal(no);
        story.rig.world.run_until(Nanos::secs(60), || false);
    }
    story.checkpoint();
    story.rig.world.run_until(Nanos::secs(60), || false);
    let pool = story.rig.pool();
    assert!(pool.store().map.borrow().metadata_failures_left().is_none_or(|left| left > 0), "{:?}", pool.jobs());
    story.prove();
}
