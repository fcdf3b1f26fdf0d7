//! Stories of a log on hard disks that goes on where their heads are (`store/log_places.rs`).

use crate::disk::SimDisk;
use crate::rig::Rig;
use crate::rng::Rng;
use crate::sample::sample;
use crate::timing::{Hdd, HddClass};
use crate::world::{Scheduling, SimWorld, Stop};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_engine::format::batch::{BatchHead, decode_head, spread};
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::format::record::{Media, Usage};
use weft_engine::format::{FEATURE_SPREAD, Id};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::log::BatchInfo;
use weft_engine::pool::DiskChange;
use weft_engine::units::{BLOCK, ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::world::World;

const CLASS: HddClass = HddClass::HDD_7200_8TB;
/// Hard disks, and others that may carry the log.
const HARD: usize = 4;
const FAST: [usize; 2] = [4, 5];
/// A log that is long enough for a second of single writes.
const LONG: ByteCount = ByteCount::mib(256);
/// One of which an eighth is soon passed over.
const SHORT: ByteCount = ByteCount::mib(64);
/// Nanoseconds after which the next write comes: at once, a moment later, when the head is lost sight of.
const PAUSES: [u64; 5] = [0, 20_000, 700_000, 0, 6_000_000];
/// Blocks of the virtual disk that are written to.
const BLOCKS: u64 = 64;

/// Who flushes each write waits for no revolution, whatever the disks have turned: and then copies lie apart, each on
/// its disk where that suits it, as the labels say.
pub fn who_flushes_each_write_waits_for_no_revolution() {
    let story = Story::new(1, LONG);
    // The heads are found, and how long the disks take to begin.
    story.run_at_once(100);
    let took = story.run_at_once(300);
    assert!(took.0 < 300 * CLASS.revolution / 3, "300 writes took {} ms", took.0 / 1_000_000);
    let apart = |no: usize| story.copies_on(no).iter().any(|(at, head)| *at > head.position);
    assert!((0..HARD).any(apart), "copies lie behind their positions");
    assert!(story.rig.pool().store().log_places.passed() > 0, "and positions behind the batches before");
    assert!(story.rig.disks[..HARD].iter().all(|disk| story.label(disk).features & FEATURE_SPREAD != 0));
}

/// Where so much was passed over that the log may not go on further for a while, copies lie further behind their
/// positions, as far as they may, and no revolution is waited for until then.
pub fn copies_lie_further_behind_where_the_log_may_not_go_on() {
    let story = Story::new(3, SHORT);
    // The heads are found, and what may be passed over is nearly used up.
    story.run_at_once(60);
    let took = story.run_at_once(40);
    assert!(took.0 < 5 * CLASS.revolution, "40 writes took {} ms", took.0 / 1_000_000);
}

/// No revolution is waited for either by a disk that takes its time to begin, once that is known; and one that takes
/// longer than a revolution costs what it did.
pub fn how_long_disks_take_to_begin_is_learnt() {
    for (overhead, most) in [(300_000, CLASS.revolution / 3 * 2), (5_000_000, 3 * CLASS.revolution)] {
        let story = Story::of(2, LONG, HddClass { overhead, ..CLASS });
        story.run_at_once(100);
        let took = story.run_at_once(100);
        assert!(took.0 < 100 * most, "100 writes took {} ms, {overhead}", took.0 / 1_000_000);
    }
}

/// The power goes at any moment, over and over, while the log goes round; a disk may be away at an opening, or have a
/// batch that cannot be read.
pub fn a_crash_at_any_moment_loses_nothing_of_a_spread_log() {
    for seed in sample(0..24) {
        let mut story = Story::new(100 + seed, ByteCount::mib(1 << (seed % 3)));
        for round in 0..6 {
            story.begin();
            let span = Nanos(story.rng.below(400_000_000));
            story.rig.world.run_until(span, || false);
            story.rig.power_cut(&mut story.rng);
            let lost = story.rng.below(2 * HARD as u64) as usize;
            match round % 3 {
                0 if lost < HARD => story.spoil_a_batch(lost),
                1 if lost < HARD => story.rig.disks[lost].vanish(),
                _ => {}
            }
            story.rig.options.degraded = true;
            story.rig.open(&mut story.rng).unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            story.judge();
            story.check_copies();
            if story.rig.disks[lost % HARD].is_gone() {
                story.rig.disks[lost].come_back(&mut story.rng);
                let (pool, back) = (story.rig.pool(), Rc::new(story.rig.disks[lost].clone()));
                story.rig.run(async move { pool.attach(back).await.expect("it is the one that went") });
            }
            story.run(20);
        }
        story.rig.close().unwrap();
        story.rig.open(&mut story.rng).unwrap();
        story.judge();
        assert!(story.written.next.get() > 6 * 20, "it hardly went on");
    }
}

/// On each disk copies lie in the order of their batches, none over another, no further behind its position than it
/// may, and none beyond the ring, wherever its rounds end.
pub fn copies_lie_in_order_and_within_their_rounds() {
    for seed in sample(0..6) {
        let mut story = Story::new(200 + seed, ByteCount::mib(4 << (seed % 3)));
        for round in 0..16 {
            story.run_at_once(100);
            story.check_copies();
            if round % 4 == 3 {
                story.rig.power_cut(&mut story.rng);
                story.rig.open(&mut story.rng).unwrap();
                assert_eq!(story.rig.pool().info().metadata_healed, 0, "each disk has each batch");
                story.check_copies();
            }
        }
    }
}

/// All disks are away for a moment when nobody may wait for them any more, whichever operation of a batch that is: what
/// is written again when they are back lies where it lay.
pub fn a_batch_that_is_cut_short_has_one_copy_on_each_disk() {
    let mut again = 0;
    for nth in sample(0..40) {
        let mut story = Story::new(400, ByteCount::mib(16));
        story.run_at_once(20);
        let pool = story.rig.pool();
        let number = pool.store().log.batch_number();
        story.begin();
        let (world, first) = (story.rig.world.clone(), story.rig.world.operations() + nth);
        story.rig.world.run_until(Nanos::secs(1), move || world.operations() >= first);
        story.rig.disks.iter().for_each(SimDisk::vanish);
        pool.store().refuse_to_wait();
        story.rig.world.run_until(Nanos::secs(1), || false);
        again += pool.store().commits.cut_short.borrow().is_some() as u64;
        story.rig.disks.iter().for_each(|disk| disk.return_intact(&mut story.rng));
        for no in (0..story.rig.disks.len()).filter(|no| !pool.store().has_disk(DiskNo(*no as u16))) {
            let (pool, disk) = (pool.clone(), Rc::new(story.rig.disks[no].clone()));
            // One alone may wait for the others.
            let back = async move { drop(pool.attach(disk).await) };
            story.rig.world.spawn("disk back", Box::pin(back));
        }
        story.rig.world.run_until(Nanos::secs(5), || false);
        assert!(pool.store().log.batch_number() > number, "away after {nth} operations: it goes on");
        story.check_copies();
        story.check_single();
    }
    assert!(again > 0, "no batch was cut short");
}

/// A disk was put back from a copy, and lacks the last of the log: it is not looked through for each batch.
pub fn a_disk_that_lacks_many_batches_is_looked_through_once() {
    let mut story = Story::new(500, ByteCount::mib(64));
    story.run_at_once(20);
    let no = story.rig.pool().store().loggers()[0].0 as usize;
    let before = story.rig.disks[no].image();
    story.run_at_once(200);
    let numbers = story.batches().len();
    story.rig.power_cut(&mut story.rng);
    story.rig.disks[no].vanish();
    story.rig.disks[no].return_as(&before);
    let read = story.rig.disks[no].stats().read_bytes;
    story.rig.open(&mut story.rng).unwrap();
    let (healed, read) = (story.rig.pool().info().metadata_healed, story.rig.disks[no].stats().read_bytes - read);
    assert!(healed > 50, "it lacked {healed} of {numbers} batches");
    assert!(read < ByteCount::mib(192), "{read} were read");
    story.judge();
    story.check_copies();
}

/// A disk whose copies lie behind their positions follows the log when others carry it, and has all of it when those
/// are lost.
pub fn a_disk_with_spread_copies_may_follow_and_carry_the_log_again() {
    for seed in sample(0..6) {
        let mut story = Story::new(300 + seed, ByteCount::mib(128));
        story.run(60);
        let (pool, journal) = (story.rig.pool(), DiskChange { usage: Some(Usage::Journal), ..DiskChange::default() });
        story.rig.run(async move {
            for no in FAST {
                pool.disk_set(DiskNo(no as u16), journal.clone()).await.expect("it may be one");
            }
        });
        let pool = story.rig.pool();
        let moved = move || pool.store().loggers() == FAST.map(|no| DiskNo(no as u16));
        assert_eq!(story.rig.world.run_until(Nanos::secs(60), moved), Stop::Done, "the others carry it");
        // Most of what was written before is in the log alone, and in its old copies.
        story.run(3);
        let span = Nanos(story.rng.below(3_000_000_000));
        story.rig.world.run_until(span, || false);
        story.run(3);
        FAST.iter().for_each(|no| story.rig.disks[*no].vanish());
        story.run(5);
        story.rig.power_cut(&mut story.rng);
        story.rig.options.degraded = true;
        story.rig.open(&mut story.rng).unwrap();
        story.judge();
        story.run(20);
    }
}

/// A pool on disks of one class, those that carry the log first, and a client of a virtual disk.
struct Story {
    rig: Rig,
    rng: Rng,
    written: Rc<Written>,
}

/// What each block holds: what was acknowledged, and what was begun since.
#[derive(Default)]
struct Written {
    durable: RefCell<BTreeMap<u64, u8>>,
    begun: Cell<Option<(u64, u8)>>,
    next: Cell<u64>,
}

impl Story {
    fn new(seed: u64, log: ByteCount) -> Story {
        Story::of(seed, log, CLASS)
    }

    fn of(seed: u64, log: ByteCount, class: HddClass) -> Story {
        let world = SimWorld::new(seed, Scheduling::Random);
        let mut rng = world.rng("story");
        let capacity = ByteCount::mib(192) + log;
        let shape = class.shape(capacity);
        let hard = (0..HARD).map(|nth| SimDisk::new(&world, shape, Box::new(Hdd::among(class.clone(), nth))));
        let fast = Rig::new(world.clone(), FAST.len(), capacity).disks;
        let mut rig = Rig::with_disks(world.clone(), hard.chain(fast).collect());
        rig.log_len = Some(log);
        rig.create(ByteCount::mib(1)).expect("blank disks take a pool");
        rig.open(&mut rng).expect("it opens");
        let layout = Layout::new(Resiliency::Parity { parity: 1 }, 3, ByteCount::kib(16)).expect("it is valid");
        rig.make_vdisk(layout, ByteCount::mib(1), 4096, false).expect("there is room");
        // Hard disks carry the log until the others are to.
        let pool = rig.pool();
        rig.run(async move {
            for no in 0..HARD + FAST.len() {
                let change = match FAST.contains(&no) {
                    true => DiskChange { usage: Some(Usage::HotSpare), ..DiskChange::default() },
                    false => DiskChange { media: Some(Media::Hdd), ..DiskChange::default() },
                };
                pool.disk_set(DiskNo(no as u16), change).await.expect("it may be so");
            }
        });
        let pool = rig.pool();
        let apart = move || pool.store().is_settled() && pool.store().loggers().iter().all(|no| no.0 < HARD as u16);
        rig.world.run_until(Nanos::secs(60), apart);
        assert!(rig.pool().store().loggers().iter().all(|no| no.0 < HARD as u16), "hard disks carry the log");
        Story { rig, rng, written: Rc::default() }
    }

    /// The client writes blocks, each flushed, `count` of them.
    fn run(&self, count: u64) {
        self.rig.run(self.client(count, &PAUSES));
    }

    /// It writes without pauses; how long that takes.
    fn run_at_once(&self, count: u64) -> Nanos {
        let began = self.rig.world.now();
        self.rig.run(self.client(count, &[0]));
        self.rig.world.now().since(began)
    }

    /// It begins, and goes on.
    fn begin(&self) {
        self.rig.world.spawn("client", Box::pin(self.client(u64::MAX, &PAUSES)));
    }

    fn client(&self, count: u64, pauses: &'static [u64]) -> impl Future<Output = ()> + use<> {
        let vdisk = self.rig.pool().vdisk("vdisk").expect("it is there");
        let (world, written) = (self.rig.world.clone(), self.written.clone());
        async move {
            for _ in 0..count {
                let nth = written.next.replace(written.next.get() + 1);
                let (block, value) = (nth * 37 % BLOCKS, (nth % 251) as u8 + 1);
                written.begun.set(Some((block, value)));
                if vdisk.write(VirtualOffset(block * BLOCK), &[value; BLOCK as usize], true).await.is_err() {
                    return;
                }
                written.durable.borrow_mut().insert(block, value);
                world.sleep(Nanos(pauses[nth as usize % pauses.len()])).await;
            }
        }
    }

    /// Everything that was acknowledged is there.
    fn judge(&mut self) {
        let vdisk = self.rig.pool().vdisk("vdisk").expect("it is there");
        let read = async move {
            let mut bytes = vec![0; (BLOCKS * BLOCK) as usize];
            vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
        };
        let bytes = self.rig.run(read).expect("all can be read");
        let begun = self.written.begun.take();
        for (block, held) in bytes.chunks(BLOCK as usize).enumerate() {
            let durable = self.written.durable.borrow().get(&(block as u64)).copied().unwrap_or(0);
            let may_be = begun.filter(|(at, _)| *at == block as u64).map(|(_, value)| value);
            assert!(held.iter().all(|byte| *byte == held[0]), "block {block} is torn");
            assert!(held[0] == durable || may_be == Some(held[0]), "block {block}: {}, not {durable}", held[0]);
            self.written.durable.borrow_mut().insert(block as u64, held[0]);
        }
    }

    fn label(&self, disk: &SimDisk) -> Label {
        let shape = weft_engine::io::Disk::shape(disk);
        let slots = DiskPlan::label_slots(shape.capacity);
        let labels = slots.into_iter().filter_map(|at| {
            let bytes = disk.peek(at, ByteCount(BLOCK)).ok()?;
            Label::decode(&bytes).ok()?
        });
        labels.max_by_key(|label| label.serial).expect("it has a label")
    }

    /// Each disk that carries the log has a copy of each batch, in order, none over another, and where it may be.
    fn check_copies(&self) {
        let store = self.rig.pool().store().clone();
        let (ring, batches) = (store.log.fill().1, self.batches());
        for no in store.loggers() {
            let copies = self.copies_on(no.0 as usize);
            let mut end = 0;
            for batch in &batches {
                let copy =
                    copies.iter().find(|(_, head)| (head.position, head.number) == (batch.position, batch.number));
                let Some((at, head)) = copy else { panic!("disk {no} has no copy of batch {}", batch.number) };
                assert!(
                    *at >= end.max(head.position) && at - head.position <= spread(ring),
                    "disk {no}: {at}, {head:?}"
                );
                end = at + head.ring_len();
                assert_eq!(at / ring, (end - 1) / ring, "it leaves the ring");
            }
        }
    }

    /// No disk that carries the log has two copies of a batch.
    fn check_single(&self) {
        for no in self.rig.pool().store().loggers() {
            let copies = self.copies_on(no.0 as usize);
            for batch in self.batches() {
                let is_it =
                    |(_, head): &&(u64, BatchHead)| (head.position, head.number) == (batch.position, batch.number);
                let count = copies.iter().filter(is_it).count();
                assert_eq!(count, 1, "disk {no} has {count} copies of batch {}", batch.number);
            }
        }
    }

    /// The batches of the log's live part.
    fn batches(&self) -> Vec<BatchInfo> {
        let store = self.rig.pool().store().clone();
        let (mut from, mut batches) = (0, Vec::new());
        while let Some(run) = store.log.run_from(from, u64::MAX) {
            from = run.end;
            batches.extend(run.batches);
        }
        batches
    }

    /// What claims to be a batch in the log of a disk: where it lies, counted through all rounds, and its head.
    fn copies_on(&self, no: usize) -> Vec<(u64, BatchHead)> {
        let disk = &self.rig.disks[no];
        let plan = self.label(disk).plan;
        let mut copies = Vec::new();
        for block in 0..plan.log_len.0 / BLOCK {
            let Ok(bytes) = disk.peek(plan.log_at + ByteCount(block * BLOCK), ByteCount(BLOCK)) else { continue };
            let number = bytes[32..40].try_into().map(u64::from_le_bytes).expect("it is long enough");
            if let Some(head) = decode_head(Id([0xEE; 16]), number, &bytes) {
                let round = head.position - head.position % plan.log_len.0;
                copies.push((round + block * BLOCK, head));
            }
        }
        copies
    }

    /// One of the last batches of a disk cannot be read any more.
    fn spoil_a_batch(&mut self, no: usize) {
        let mut copies = self.copies_on(no);
        copies.sort_unstable_by_key(|(_, head)| head.number);
        let back = self.rng.below(4) as usize;
        let plan = self.label(&self.rig.disks[no]).plan;
        if let Some((at, _)) = copies.iter().rev().nth(back) {
            self.rig.disks[no].spoil(plan.log_at + ByteCount(at % plan.log_len.0));
        }
    }
}
