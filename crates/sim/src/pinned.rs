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

fn story(seed: u64) -> (u64, u64) {
    let world = SimWorld::new(5_100 + seed, Scheduling::Random);
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
