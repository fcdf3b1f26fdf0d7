//! Stories of stripes that were lost before they were durable, and of which the log, and so memory, has what was
//! written: they gather again, and nobody has to say so.

use super::{PARITY, Story, bytes_of};
use crate::sample::sample;
use std::cell::RefCell;
use std::rc::Rc;
use weft_engine::geometry::Resiliency;
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::world::World;

/// How many stripes are written anew in each round.
const STRIPES: u64 = 4;

impl Story {
    /// A full virtual disk, all of it durable, of which a few stripes are written anew: the log has a part of each, and
    /// all of each is in flight, or has just come down.
    fn with_a_landed_part(seed: u64) -> Story {
        let resiliency = if seed.is_multiple_of(2) { PARITY } else { Resiliency::Mirror { copies: 2 } };
        let mut story = Story::new(2_900 + seed, resiliency);
        story.fill(1);
        let per = story.per_stripe();
        let landed = 1 + story.rng.below(per - 1);
        (0..STRIPES).for_each(|stripe| story.write(stripe * per, landed, 10 + stripe));
        story.flush();
        (0..STRIPES).for_each(|stripe| story.write(stripe * per + landed, per - landed, 20 + stripe));
        story.pause_up_to(30);
        story
    }

    /// Lets some time pass, `most` milliseconds at most.
    fn pause_up_to(&mut self, most: u64) {
        let moment = Nanos(self.rng.below(most * 1_000_000));
        self.rig.world.run_until(moment, || false);
    }

    fn gathered_again(&self) -> u64 {
        self.vdisk().counters.gathered_again.get()
    }

    /// Has a disk without the log stall for a while once something has gathered again: that does not come down at once.
    fn stall_when_gathered(&self) {
        let (vdisk, store) = (self.vdisk(), self.rig.pool().store().clone());
        let loggers = store.loggers();
        let spared = (0..self.rig.disks.len()).rfind(|no| !loggers.contains(&DiskNo(*no as u16)));
        let (disk, world) = (self.rig.disks[spared.expect("a disk without the log")].clone(), self.rig.world.clone());
        let watch = async move {
            while vdisk.counters.gathered_again.get() == 0 && !store.stopping.get() {
                world.sleep(Nanos::millis(1)).await;
            }
            disk.stall(Nanos::secs(2));
        };
        self.rig.world.spawn("stall", Box::pin(watch));
    }

    /// Everything is as it was written, and the virtual disk does its work, though nobody cleared it.
    fn has_lost_nothing(&self, when: &str) {
        let vdisk = self.vdisk();
        assert!(vdisk.failure().is_none(), "{when}: {:?}, {:?} would be given up", vdisk.failure(), vdisk.plan_clear());
        self.prove_bytes();
    }

    /// Nothing is lost after a while, when all has left memory, and after a crash. How many stripes gathered again.
    fn comes_to_rest(&mut self, seed: u64) -> u64 {
        self.rig.world.run_until(Nanos::secs(20), || false);
        self.has_lost_nothing(&format!("seed {seed}"));
        let again = self.gathered_again();
        self.destage();
        self.flush();
        self.prove();
        self.crash();
        self.prove();
        again
    }
}

/// A flush is under way, or not, when all disks lose their caches. Where it ends well, the power is cut at once.
pub fn what_the_log_has_of_a_lost_version_is_written_again_and_a_flush_waits_for_that() {
    let (mut again, mut flushed) = (0, 0);
    for seed in sample(0..96) {
        let mut story = Story::with_a_landed_part(seed);
        let ended = Rc::new(RefCell::new(None));
        if !seed.is_multiple_of(3) {
            let (vdisk, ended) = (story.vdisk(), ended.clone());
            let flush = async move { drop(ended.replace(Some(vdisk.flush().await))) };
            story.rig.world.spawn("flush", Box::pin(flush));
            story.pause_up_to(20);
        }
        story.lose_caches();
        let before = ended.borrow().is_some();
        story.stall_when_gathered();
        story.come_back();
        story.rig.world.run_until(Nanos::secs(20), || ended.borrow().is_some());
        if !before && ended.borrow().as_ref().is_some_and(|flushed| flushed.is_ok()) {
            flushed += (story.gathered_again() > 0) as u64;
            again += story.gathered_again();
            story.crash();
            story.has_lost_nothing(&format!("seed {seed}, after a flush"));
            continue;
        }
        again += story.comes_to_rest(seed);
    }
    println!("{again} gathered again, {flushed} flushes waited for some");
    assert!(again > 0 && flushed > 0, "none was lost: this story tells nothing");
}

/// Clients write the same stripes anew, some whole and some in part, while all disks are away: what gathers again lies
/// below that.
pub fn what_gathers_again_lies_below_what_was_written_since() {
    let mut again = 0;
    for seed in sample(0..96) {
        let mut story = Story::with_a_landed_part(seed);
        story.lose_caches();
        let per = story.per_stripe();
        for stripe in 0..STRIPES {
            let count = if story.rng.chance(0.5) { per } else { 1 + story.rng.below(per - 1) };
            let (vdisk, unit, word) = (story.vdisk(), stripe * per, 30 + stripe);
            let bytes = bytes_of(word, ByteCount(count * super::UNIT).0);
            let write = async move { vdisk.write(VirtualOffset(unit * super::UNIT), &bytes, false).await.unwrap() };
            story.rig.world.spawn("write", Box::pin(write));
            story.words.extend((unit..unit + count).map(|unit| (unit, word)));
        }
        story.pause_up_to(100);
        story.come_back();
        again += story.comes_to_rest(seed);
    }
    println!("{again} gathered again");
    assert!(again > 0, "none was lost: this story tells nothing");
}
