//! Clients of a mirror on four disks of which two are away that held some data alone: what they write in part lies
//! above what is out of reach, and fills the log.

use crate::rig::Rig;
use crate::rng::Rng;
use crate::sample::sample;
use crate::world::{Scheduling, SimWorld};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::Disk;
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;

const UNIT: u64 = 4096;
const SIZE: ByteCount = ByteCount::mib(12);
/// For how long clients are at work while the disks are away.
const SPAN: Nanos = Nanos::secs(80);
/// The longest that a request may take: what clients wait for disks, and some more.
const LONGEST: Nanos = Nanos::secs(40);
/// The most batches of the log while nobody asks for anything.
const RESTING: u64 = 20;
/// Stripes of which a little is written where only a little is to be pinned.
const LITTLE: u64 = 96;
/// For how long a client writes without a rest, how often it fills the log at least, and how long a write and its flush
/// may take.
const BUSY: Nanos = Nanos::secs(20);
const ROUNDS: u64 = 5;
/// Clients that do so, and units that each writes before it flushes.
const WRITERS: usize = 8;
const AT_ONCE: u64 = 12;
const PROMPT: Nanos = Nanos::secs(5);

/// What one client saw.
#[derive(Default)]
struct Seen {
    longest: Nanos,
    refused: u64,
    flushed: u64,
    /// What each unit holds for certain.
    words: BTreeMap<u64, Option<u64>>,
}

/// No request waits longer than clients wait for disks, the log is not rewritten while nobody asks for anything,
/// another virtual disk goes on, and all is right when the disks are back.
pub fn what_cannot_leave_the_log_makes_nobody_wait_for_ever() {
    let (mut refused, mut flushed) = (0, 0);
    for seed in sample(0..6) {
        let (own, beside) = story(seed);
        (refused, flushed) = (refused + own, flushed + beside);
    }
    println!("{refused} refused, {flushed} flushes beside");
    assert!(refused > 0, "the log was never full: this story tells nothing");
    assert!(flushed > 0, "nobody else could flush");
}

/// One virtual disk pins a little of the log, and asks for nothing more: the other one, which fills the log again and
/// again, flushes all the time.
pub fn a_little_that_cannot_leave_hinders_nobody_who_writes_much() {
    for seed in sample(0..6) {
        let (mut rig, vdisk, beside, mut rng) = with_two_away(5_300 + seed);
        // A unit of each stripe, of which some lack what lies below.
        rig.run({
            let vdisk = vdisk.clone();
            async move {
                for stripe in 0..LITTLE {
                    let at = VirtualOffset(stripe * (64 << 10));
                    vdisk.write(at, &content(2, UNIT), false).await.expect("there is room in memory");
                }
                vdisk.flush().await.expect("there is room in the log");
            }
        });
        let ring = rig.pool().store().log.fill().1;
        let before = rig.pool().store().log.live().1;
        let seen = writers(&rig, &beside, &mut rng);
        let mut pinned = 0;
        rig.world.run_until(BUSY, || {
            pinned = vdisk.count_pins().max(pinned);
            false
        });
        let rounds = (rig.pool().store().log.live().1 - before) / ring;
        assert!(pinned > 0, "seed {seed}: nothing is pinned, so this story tells nothing");
        let longest = {
            let seen = seen.borrow();
            assert!(seen.refused == 0, "seed {seed}: refused {} times", seen.refused);
            assert!(seen.flushed > 0 && rounds >= ROUNDS, "seed {seed}: the log was filled {rounds} times");
            seen.longest
        };
        assert!(longest < PROMPT, "seed {seed}: who pins nothing waited for {longest:?}");
        come_back(&rig, &mut rng);
        rig.run(async move { vdisk.flush().await.expect("all disks are back") });
        rig.halt();
    }
}

/// A virtual disk is removed while its flush waits for room that what it pins has taken: the flush ends, and others go
/// on.
pub fn what_is_removed_pins_nothing() {
    for seed in sample(0..6) {
        let (mut rig, vdisk, beside, mut rng) = with_two_away(5_500 + seed);
        let seen = client(&rig, vdisk.clone(), &mut rng);
        rig.world.run_until(SPAN, || vdisk.count_pins() > rig.pool().store().log.fill().1 / 5);
        assert!(vdisk.count_pins() > 0, "seed {seed}: nothing is pinned, so this story tells nothing");
        let pool = rig.pool();
        rig.run(async move { pool.vdisk_remove("vdisk").await.expect("nobody else needs it") });
        rig.world.run_until(LONGEST, || false);
        assert!(seen.borrow().longest < LONGEST, "seed {seed}: it waited for {:?}", seen.borrow().longest);
        assert_eq!(vdisk.count_pins(), 0, "seed {seed}");
        let beside = writers(&rig, &beside, &mut rng);
        rig.world.run_until(BUSY, || false);
        assert!(beside.borrow().flushed > 0 && beside.borrow().refused == 0, "seed {seed}: others do not go on");
        assert!(beside.borrow().longest < PROMPT, "seed {seed}: others waited for {:?}", beside.borrow().longest);
        come_back(&rig, &mut rng);
        rig.halt();
    }
}

/// A pool with a mirror of two, one of three, and two disks away, so that some data of the former is out of reach.
fn with_two_away(seed: u64) -> (Rig, Rc<Vdisk>, Rc<Vdisk>, Rng) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("pinned");
    let mut rig = Rig::of_any_kind(world, 4, ByteCount::mib(32));
    rig.log_len = Some(ByteCount::mib(3));
    rig.create(ByteCount::mib(1)).unwrap();
    rig.open(&mut rng).unwrap();
    let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(64)).unwrap();
    rig.make_vdisk(layout, SIZE, 512, false).unwrap();
    let wide = Layout::new(Resiliency::Mirror { copies: 3 }, 1, ByteCount::kib(64)).unwrap();
    rig.make_vdisk_named("beside", wide, ByteCount::mib(4), 512, false).unwrap();
    let (vdisk, beside) = (rig.pool().vdisk("vdisk").unwrap(), rig.pool().vdisk("beside").unwrap());
    [&vdisk, &beside].into_iter().for_each(|disk| fill(&rig, disk));
    // Not the disks without which the pool freezes.
    let away = [1 + rng.below(3) as usize, 0];
    away.iter().for_each(|no| rig.disks[*no].vanish());
    rig.world.run_until(Nanos::secs(2), || false);
    (rig, vdisk, beside, rng)
}

fn story(seed: u64) -> (u64, u64) {
    let (mut rig, vdisk, beside, mut rng) = with_two_away(5_100 + seed);
    let seen: Vec<Rc<RefCell<Seen>>> = [vdisk, beside].into_iter().map(|disk| client(&rig, disk, &mut rng)).collect();
    rig.world.run_until(SPAN, || false);
    rig.world.run_until(LONGEST, || false);
    let batches = rig.pool().store().counters.batches.get();
    rig.world.run_until(Nanos::secs(20), || false);
    let rewritten = rig.pool().store().counters.batches.get() - batches;
    assert!(rewritten <= RESTING, "seed {seed}: {rewritten} batches while nobody asks for anything");
    come_back(&rig, &mut rng);
    for (name, seen) in ["vdisk", "beside"].into_iter().zip(&seen) {
        let seen = seen.borrow();
        assert!(seen.longest < LONGEST, "seed {seed}: {name} waited for {:?}", seen.longest);
        // All that lies below what is written to the other one is within reach.
        assert!(name == "vdisk" || seen.refused == 0, "seed {seed}: {name} was refused {} times", seen.refused);
        let disk = rig.pool().vdisk(name).unwrap();
        rig.run({
            let disk = disk.clone();
            async move { disk.flush().await.expect("all disks are back") }
        });
        let len = disk.size().0 as usize;
        let bytes = rig.run(async move {
            let mut bytes = vec![0; len];
            disk.read(VirtualOffset(0), &mut bytes).await.expect("all disks are back");
            bytes
        });
        for (unit, word) in seen.words.iter().filter_map(|(unit, word)| Some((*unit, (*word)?))) {
            let found = &bytes[(unit * UNIT) as usize..][..UNIT as usize];
            assert!(found == content(word, UNIT), "seed {seed}: {name}: unit {unit} is not of {word}");
        }
    }
    let told = (seen[0].borrow().refused, seen[1].borrow().flushed);
    rig.halt();
    told
}

fn fill(rig: &Rig, disk: &Rc<Vdisk>) {
    let (disk, pool) = (disk.clone(), rig.pool());
    rig.run(async move {
        disk.write(VirtualOffset(0), &content(1, disk.size().0), false).await.unwrap();
        disk.flush().await.unwrap();
        pool.destage_everything().await;
    });
}

/// A client that writes a few units anywhere, flushes now and then, and tries again what is refused.
fn client(rig: &Rig, disk: Rc<Vdisk>, rng: &mut Rng) -> Rc<RefCell<Seen>> {
    let seen = Rc::new(RefCell::new(Seen::default()));
    let (told, world, mut rng) = (seen.clone(), rig.world.clone(), rng.fork("client"));
    let units = disk.size().0 / UNIT;
    let work = async move {
        let end = world.now() + SPAN;
        let mut word = 1;
        while world.now() < end {
            word += 1;
            let begun = world.now();
            let (count, flushes) = (1 + rng.below(8), rng.chance(0.2));
            let unit = rng.below(units - count);
            let done = match flushes {
                true => disk.flush().await,
                false => disk.write(VirtualOffset(unit * UNIT), &content(word, count * UNIT), false).await,
            };
            {
                let mut seen = told.borrow_mut();
                seen.longest = seen.longest.max(world.now().since(begun));
                seen.flushed += (flushes && done.is_ok()) as u64;
                seen.refused += done.is_err() as u64;
                if !flushes {
                    seen.words.extend((unit..unit + count).map(|unit| (unit, done.is_ok().then_some(word))));
                }
            }
            if done.is_err() {
                world.sleep(Nanos::millis(200)).await;
            }
        }
    };
    rig.world.spawn("client", Box::pin(work));
    seen
}

/// Clients that write a few units anywhere and flush, without a rest: what is emptied of the log they fill again.
fn writers(rig: &Rig, disk: &Rc<Vdisk>, rng: &mut Rng) -> Rc<RefCell<Seen>> {
    let seen = Rc::new(RefCell::new(Seen::default()));
    (0..WRITERS).for_each(|nth| writer(rig, disk.clone(), rng.fork(&format!("writer {nth}")), seen.clone()));
    seen
}

fn writer(rig: &Rig, disk: Rc<Vdisk>, mut rng: Rng, told: Rc<RefCell<Seen>>) {
    let world = rig.world.clone();
    let units = disk.size().0 / UNIT;
    let work = async move {
        let end = world.now() + BUSY;
        let mut word = 1;
        while world.now() < end {
            word += 1;
            let begun = world.now();
            let unit = rng.below(units - AT_ONCE);
            let wrote = disk.write(VirtualOffset(unit * UNIT), &content(word, AT_ONCE * UNIT), false).await;
            let done = wrote.and(disk.flush().await);
            let mut seen = told.borrow_mut();
            seen.longest = seen.longest.max(world.now().since(begun));
            seen.flushed += done.is_ok() as u64;
            seen.refused += done.is_err() as u64;
        }
    };
    rig.world.spawn("writer", Box::pin(work));
}

fn come_back(rig: &Rig, rng: &mut Rng) {
    let pool = rig.pool();
    rig.disks.iter().for_each(|disk| disk.return_intact(rng));
    for no in (0..rig.disks.len()).filter(|no| !pool.store().has_disk(DiskNo(*no as u16))) {
        let (pool, disk) = (pool.clone(), Rc::new(rig.disks[no].clone()) as Rc<dyn Disk>);
        let back = async move { pool.attach(disk).await.map(drop).unwrap() };
        rig.world.spawn("disk back", Box::pin(back));
    }
    rig.world.run_until(Nanos::secs(10), || false);
}

fn content(word: u64, len: u64) -> Vec<u8> {
    word.to_le_bytes().iter().copied().cycle().take(len as usize).collect()
}
