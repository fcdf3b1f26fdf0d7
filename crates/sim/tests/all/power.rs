//! Stories of disks that need no flush, and of those that only seem to.

use crate::story::*;
use std::cell::Cell;
use std::rc::Rc;
use weft_engine::error::{ErrorKind, Result};
use weft_engine::event::Event;
use weft_engine::format::record::PowerProtected;
use weft_engine::geometry::Resiliency;
use weft_engine::io::WriteCache;
use weft_engine::pool::{DiskChange, Pool};
use weft_engine::store::power::Power;
use weft_engine::units::{DiskNo, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_sim::sample::sample;
use weft_sim::storm::{Profile, run_profile};

/// How many disks each pool here has.
const DISKS: usize = 4;
/// How often the work writes what it writes.
const ROUNDS: u8 = 5;

/// Says of disk `no` whether it is protected.
fn say(story: &Story, no: usize, said: PowerProtected) -> Result<()> {
    let pool = story.rig.pool();
    let change = DiskChange { power: Some(said), ..DiskChange::default() };
    story.rig.run(async move { pool.disk_set(DiskNo(no as u16), change).await })
}

/// What the pool knows of the cache of disk `no`.
fn power(story: &Story, no: usize) -> Power {
    story.info().disks[no].power
}

/// How often each disk was flushed since it was made.
fn flushes(story: &Story) -> Vec<u64> {
    story.rig.disks.iter().map(|disk| disk.stats().flushes).collect()
}

/// How many writes disk `no` would lose with its power.
fn unflushed(story: &Story, no: usize) -> usize {
    story.rig.disks[no].unflushed().len()
}

/// Whether a disk came to be flushed no more, or again, since this was asked last.
fn told(story: &Story) -> Vec<(DiskNo, bool)> {
    let told = |event| match event {
        Event::DiskProtected { disk, protected } => Some((disk, protected)),
        _ => None,
    };
    story.events().into_iter().filter_map(told).collect()
}

/// Whole stripes and small writes are flushed again and again, with checkpoints between. `acknowledged`: the round that
/// was flushed last.
async fn work(pool: Rc<Pool>, vdisk: Rc<Vdisk>, acknowledged: Rc<Cell<u8>>, stripe: u64) -> Result<()> {
    for round in 1..=ROUNDS {
        for (at, len) in places(stripe) {
            vdisk.write(VirtualOffset(at), &vec![round; len as usize], false).await?;
        }
        vdisk.flush().await?;
        acknowledged.set(round);
        if round % 2 == 0 {
            pool.checkpoint().await?;
        }
    }
    Ok(())
}

/// Where the work writes.
fn places(stripe: u64) -> [(u64, u64); 3] {
    [(0, stripe), (stripe, 4096), (2 * stripe, 512)]
}

/// Does the work until the power goes at operation `at` of it, opens the pool again, and proves that what was flushed
/// is there. Says whether the work was done before that.
fn cut_at(story: &mut Story, at: u64) -> bool {
    let acknowledged = Rc::new(Cell::new(0));
    let world = story.rig.world.clone();
    world.crash_at(world.operations() + at);
    let working = work(story.rig.pool(), story.vdisk(), acknowledged.clone(), story.stripe());
    let ended = world.block_on_within(Nanos::secs(600), working);
    world.crash_at(u64::MAX);
    story.cut();
    story.open().unwrap_or_else(|error| panic!("operation {at}: {error}"));
    for (from, len) in places(story.stripe()) {
        let byte = story.byte(from, len).unwrap_or_else(|error| panic!("operation {at}: {error}"));
        assert!(byte >= acknowledged.get(), "operation {at}: {from} holds {byte}, {} was flushed", acknowledged.get());
    }
    ended.is_ok_and(|ended| ended.is_ok())
}

/// A pool whose disks have caches that are not volatile.
fn protected(resiliency: Resiliency) -> Story {
    let mut story = Story::new(7, DISKS, resiliency);
    story.close();
    story.rig.disks.iter().for_each(|disk| disk.protect(true));
    story
}

/// store/power.rs, invariants 1 and 2.
#[test]
fn power_cuts_anywhere_take_nothing_from_protected_disks_and_no_flush_is_sent_to_them() {
    for resiliency in [MIRROR2, PARITY] {
        let mut cuts = 0;
        for at in (1..).step_by(3) {
            let mut story = protected(resiliency);
            let before = flushes(&story);
            story.open().unwrap();
            let done = cut_at(&mut story, at);
            story.prove();
            let sent: Vec<u64> = flushes(&story).iter().zip(before).map(|(now, before)| now - before).collect();
            assert_eq!(sent, [2; DISKS], "{resiliency:?}, operation {at}: the first of each opening, and no other");
            let spared = story.info().disks.iter().map(|disk| disk.counters.spared).sum::<u64>();
            assert!(spared > 0, "and others were due");
            story.rig.halt();
            cuts += 1;
            if done {
                break;
            }
        }
        assert!(cuts > 30, "{resiliency:?}: {cuts} cuts are too few for that work");
    }
}

/// store/power.rs, invariant 1: the disk tells of a volatile cache, as one with a battery may; the person knows better.
#[test]
fn what_a_person_says_of_a_disk_holds_over_power_cuts_and_over_what_the_disk_tells() {
    let mut story = protected(MIRROR2);
    story.rig.disks.iter().for_each(|disk| disk.tell_cache(WriteCache::Volatile));
    story.open().unwrap();
    story.write_and_flush(0, 512, 1);
    assert_eq!(power(&story, 0), Power { said: PowerProtected::Auto, cache: WriteCache::Volatile });
    story.events();
    (0..DISKS).for_each(|no| say(&story, no, PowerProtected::Yes).unwrap());
    assert_eq!(told(&story), (0..DISKS as u16).map(|no| (DiskNo(no), true)).collect::<Vec<_>>());
    // Each was flushed once more by then.
    story.write_and_flush(0, 512, 2);
    let before = flushes(&story);
    (3..20).for_each(|byte| story.write_and_flush(0, 512, byte));
    assert_eq!(flushes(&story), before);
    story.cut();
    story.open().unwrap();
    assert_eq!((story.byte(0, 512).unwrap(), power(&story, 3).said), (19, PowerProtected::Yes));
    // And the other way round: a disk that tells that nothing is volatile, of which a person knows that it lies.
    story.rig.disks[0].protect(false);
    story.rig.disks[0].tell_cache(WriteCache::NonVolatile);
    say(&story, 0, PowerProtected::No).unwrap();
    story.write_and_flush(0, 512, 20);
    assert_eq!(unflushed(&story, 0), 0);
    story.close();
}

/// store/power.rs, invariant 3.
#[test]
fn a_disk_that_counts_as_protected_no_more_is_flushed_at_once() {
    let mut story = Story::new(3, DISKS, MIRROR2);
    (0..DISKS).for_each(|no| say(&story, no, PowerProtected::Yes).unwrap());
    story.write_and_flush(0, 4 * story.stripe(), 1);
    let lying: Vec<usize> = (0..DISKS).filter(|no| unflushed(&story, *no) > 0).collect();
    assert!(!lying.is_empty(), "these have volatile caches, whatever was said");
    for no in 0..DISKS {
        say(&story, no, PowerProtected::Auto).unwrap();
        assert_eq!(unflushed(&story, no), 0, "disk {no}: what was called durable is");
    }
    story.cut();
    story.open().unwrap();
    assert_eq!(story.byte(0, 4 * story.stripe()).unwrap(), 1);
    story.close();
}

/// store/power.rs, invariants 1 and 2: as `hdparm -W` does it.
#[test]
fn a_cache_that_is_switched_on_or_off_while_the_disk_is_used_is_noticed() {
    let mut story = protected(MIRROR2);
    story.open().unwrap();
    story.write_and_flush(0, story.stripe(), 1);
    story.events();
    for (round, on) in [(2, true), (3, false), (4, true), (5, false)] {
        story.rig.disks.iter().for_each(|disk| disk.protect(!on));
        let before = flushes(&story);
        story.write_and_flush(0, story.stripe(), round);
        story.checkpoint();
        let sent =
            flushes(&story).iter().zip(before).all(|(now, before)| if on { *now > before } else { *now == before + 1 });
        assert!(sent, "round {round}: each flush is sent, or the first one only");
        assert_eq!(told(&story).len(), DISKS);
        story.cut();
        story.open().unwrap();
        assert_eq!(story.byte(0, story.stripe()).unwrap(), round);
        story.events();
    }
    story.close();
}

/// store/power.rs, invariant 1: what lies in the memory of the machine goes with the power, whatever the disk is like.
#[test]
fn what_the_machine_itself_holds_back_is_flushed_whatever_is_said() {
    let mut story = Story::new(5, DISKS, MIRROR2);
    (0..2).for_each(|no| story.rig.disks[no].tell_cache(WriteCache::Host));
    let refused = say(&story, 0, PowerProtected::Yes).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotPossible);
    assert!(refused.context.contains("only block devices"), "{refused}");
    assert_eq!(power(&story, 0).said, PowerProtected::Auto);
    // One that was a device when that was said, and is a copy of it in a file now.
    say(&story, 2, PowerProtected::Yes).unwrap();
    story.rig.disks[2].tell_cache(WriteCache::Host);
    story.write_and_flush(0, 4 * story.stripe(), 1);
    assert!((0..DISKS).all(|no| unflushed(&story, no) == 0));
    story.cut();
    story.open().unwrap();
    assert_eq!(story.byte(0, 4 * story.stripe()).unwrap(), 1);
    story.close();
}

/// docs/durability.md, "Power-protected disks": a disk that lies is a disk that lost what it lost.
#[test]
fn one_disk_of_which_a_wrong_word_was_said_costs_nothing_where_the_layout_survives_one() {
    for (resiliency, liar) in
        [MIRROR2, MIRROR3, PARITY].into_iter().flat_map(|kind| (0..DISKS).map(move |no| (kind, no)))
    {
        for at in (1..).step_by(7) {
            let mut story = Story::new(9, DISKS, resiliency);
            say(&story, liar, PowerProtected::Yes).unwrap();
            let done = cut_at(&mut story, at);
            story.rig.halt();
            if done {
                break;
            }
        }
    }
}

/// Half of the disks are protected, people say so or not, and caches are switched on and off.
#[test]
fn storms_on_disks_of_which_some_need_no_flush_take_nothing() {
    for seed in sample(0..40) {
        if let Err(why) = run_profile(Profile::Protected, seed) {
            panic!("weft-sim --profile protected {seed}: {why}");
        }
    }
}
