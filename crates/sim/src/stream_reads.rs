//! Sequential reads of what a stream wrote, on simulated hard disks, beside what raw disks of the same model read in
//! the same place: healthy, and with one disk gone. How many writes were under way decides in which order stripes
//! become whole; how they lie on the disks must not follow from it.

use crate::rng::Rng;
use crate::streams::{BEGIN, Bench, Case, Direction, LOG, block_on, per_second, raw_rate, stream_at};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::store::join;
use weft_engine::units::{ByteCount, DiskNo, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;

/// What sequential reads are held to, of what all disks together could give: requests of 1 MiB, eight at once. The goal
/// is 0.95.
pub const LEAST_DEEP: f64 = 0.90;
/// What sequential reads of 64 KiB, one at a time, are held to. The goal is 0.90.
pub const LEAST_SINGLE: f64 = 0.85;
/// What reads with one disk gone are held to, of what the disks that are left could give.
pub const LEAST_DEGRADED: f64 = 0.90;

/// The longest that one request may take.
const LONGEST: Nanos = Nanos::millis(200);
/// Passes of reading, each over its own part.
const PASSES: u64 = 4;
/// The reader goes on by this part of what counts, as a divisor: what is read ahead is read for somebody then, and all
/// disks have something to do until the last byte that counts has come.
const GOES_ON: u64 = 4;

/// How a client reads, or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client {
    /// Bytes of a request.
    pub request: ByteCount,
    /// Requests under way.
    pub depth: u64,
}

/// Large requests, several at once.
pub const DEEP: Client = Client { request: ByteCount::mib(1), depth: 8 };
/// Small requests, one at a time: the page cache of a program that reads a file.
pub const SINGLE: Client = Client { request: ByteCount::kib(64), depth: 1 };

/// A virtual disk that one client wrote in order.
#[derive(Clone, Copy, Debug)]
pub struct ReadCase {
    /// Layout of the virtual disk.
    pub layout: Layout,
    /// Who wrote it.
    pub writer: Client,
    /// Bytes that each disk gives in each of the four passes.
    pub per_disk: ByteCount,
}

/// Rates of sequential reads, as shares of what the disks could give.
#[derive(Clone, Copy, Debug)]
pub struct ReadOutcome {
    /// What was run.
    pub case: ReadCase,
    /// The share of stripes that lie right behind the one before them.
    pub in_order: f64,
    /// Bytes read from the disks for each byte that the clients of the healthy pool read.
    pub from_disks: f64,
    /// [`DEEP`] and [`SINGLE`].
    pub healthy: [f64; 2],
    /// Both with one disk gone: shares of what the others could give.
    pub degraded: [f64; 2],
}

impl ReadOutcome {
    /// What does not hold.
    pub fn complaints(&self) -> Vec<String> {
        let held = [
            ("1 MiB, eight at once", self.healthy[0], LEAST_DEEP),
            ("64 KiB, one at a time", self.healthy[1], LEAST_SINGLE),
            ("1 MiB, one disk gone", self.degraded[0], LEAST_DEGRADED),
            ("64 KiB, one disk gone", self.degraded[1], LEAST_DEGRADED),
        ];
        let slow = held.into_iter().filter(|(_, ratio, least)| ratio < least);
        slow.map(|(what, ratio, least)| format!("{what}: {ratio:.3} of the disks' rate, not {least}")).collect()
    }
}

/// Every layout that reads are held to: single parity, dual parity, mirrors.
pub fn layouts(interleave: ByteCount) -> Vec<Layout> {
    let single = [3, 4, 5, 7].map(|columns| (Resiliency::Parity { parity: 1 }, columns));
    let dual = [4, 6, 7].map(|columns| (Resiliency::Parity { parity: 2 }, columns));
    let mirrors = [2, 3].map(|copies| (Resiliency::Mirror { copies }, 1));
    let wide = [(Resiliency::Mirror { copies: 2 }, 2)];
    let all = single.into_iter().chain(dual).chain(mirrors).chain(wide);
    all.map(|(resiliency, columns)| Layout::new(resiliency, columns, interleave).expect("these layouts are valid"))
        .collect()
}

/// Every layout, written one request at a time, eight and 32 at once. `interleaves`: with each of them.
pub fn cases(interleaves: &[ByteCount], per_disk: ByteCount) -> Vec<ReadCase> {
    let mut cases = Vec::new();
    for interleave in interleaves {
        for layout in layouts(*interleave) {
            // Until all copies have had a turn, not all disks have something to do.
            let per_disk = if layout.copies() > 1 { per_disk * 2 } else { per_disk };
            let case = |depth| ReadCase { layout, writer: Client { request: ByteCount::mib(1), depth }, per_disk };
            cases.extend([1, 8, 32].map(case));
        }
    }
    cases
}

/// Runs a case.
pub fn run(case: ReadCase) -> ReadOutcome {
    let ReadCase { layout, per_disk, .. } = case;
    let raw = raw_rate(Case { layout, request: ByteCount::mib(1), per_disk, flush_stripes: None }, Direction::Read);
    let bench = Bench::new(layout, Default::default(), LOG);
    write(&bench, case);
    let in_order = in_order(&bench);
    // Parity takes its share of what passes under the heads.
    let disks = (layout.data_columns() * layout.copies()) as f64;
    let read_bytes = || bench.disks.iter().map(|disk| disk.stats().read_bytes.0).sum::<u64>();
    let before = read_bytes();
    // Each pass reads its own quarter of what was written: disks remember what they have just read.
    let healthy = [(0, DEEP), (1, SINGLE)].map(|(nth, client)| read(&bench, case, nth, client).rate / (raw * disks));
    let from_disks = (read_bytes() - before) as f64 / (range_of(case, 1)[1].end - BEGIN) as f64;
    lose_a_disk(&bench);
    // Where parity stands in, all data columns still come as fast; of a mirror's column one copy less gives its share
    // of every stripe.
    let left = if layout.copies() > 1 { (layout.columns() * (layout.copies() - 1)) as f64 } else { disks };
    let degraded = [(2, DEEP), (3, SINGLE)].map(|(nth, client)| read(&bench, case, nth, client).rate / (raw * left));
    let slow = bench.pool.store().members.borrow().values().any(|member| member.slow);
    assert!(!slow, "{}: a disk like the others is called slow", case.layout);
    bench.world.halt();
    ReadOutcome { case, in_order, from_disks, healthy, degraded }
}

/// A disk is gone, and the pool has taken note of it.
fn lose_a_disk(bench: &Bench) {
    bench.disks[0].vanish();
    let (host, vdisk) = (bench.world.clone(), bench.vdisk.clone());
    block_on(&bench.world, async move {
        let mut some = vec![0; 4 << 20];
        vdisk.read(VirtualOffset(0), &mut some).await.expect("one disk may be missing");
        host.sleep(Nanos::secs(20)).await;
    });
}

/// The share of neighbouring stripes whose places are neighbours.
fn in_order(bench: &Bench) -> f64 {
    let store = bench.pool.store();
    let map = store.map.borrow();
    let places: Vec<_> = map.tables.values().flat_map(|table| table.mapped_from(0)).map(|(_, place)| place).collect();
    let next = places.windows(2).filter(|two| two[0].segment == two[1].segment && two[0].index + 1 == two[1].index);
    next.count() as f64 / (places.len() - 1) as f64
}

/// What counts of what the `nth` pass reads, and what it goes on with.
fn range_of(case: ReadCase, nth: u64) -> [std::ops::Range<u64>; 2] {
    let disks = (case.layout.data_columns() * case.layout.copies()) as u64;
    let len = (case.per_disk * disks).0.next_multiple_of(DEEP.request.0);
    let all = len + (len / GOES_ON).next_multiple_of(DEEP.request.0);
    let begin = BEGIN + nth * all;
    [begin..begin + len, begin + len..begin + all]
}

/// What lies at `at`: words that say where they are.
fn fill(at: u64, bytes: &mut [u8]) {
    for (nth, word) in bytes.chunks_exact_mut(4096).enumerate() {
        word[..8].copy_from_slice(&(at + nth as u64 * 4096).to_le_bytes());
    }
}

fn write(bench: &Bench, case: ReadCase) {
    let Client { request, depth } = case.writer;
    let vdisk = bench.vdisk.clone();
    let one = move |at: u64| {
        let vdisk = vdisk.clone();
        async move {
            let mut data = vec![0xA5; request.as_usize()];
            fill(at, &mut data);
            vdisk.write(VirtualOffset(at), &data, false).await.expect("a sound pool takes writes");
        }
    };
    let (host, vdisk) = (bench.world.clone(), bench.vdisk.clone());
    block_on(&bench.world, async move {
        let all = BEGIN..range_of(case, PASSES - 1)[1].end;
        stream_at(&host, all, request.0, depth, one).await;
        vdisk.flush().await.expect("a sound pool flushes");
        // What is still to be done because of the writes, checkpoints for one, is none of the readers' business here.
        host.sleep(Nanos::secs(20)).await;
    });
}

/// What a reader has had so far.
struct Had {
    /// Bytes that count and have not come.
    left: Cell<u64>,
    /// When the last of them came.
    end: Cell<Nanos>,
    longest: Cell<Nanos>,
    /// Requests that read something else than was written.
    wrong: Cell<u64>,
}

/// How a reader fared.
struct Pass {
    /// Bytes per second until all that counts had come.
    rate: f64,
    /// The longest that a request took.
    longest: Nanos,
}

/// Reads a part of what was written.
fn read(bench: &Bench, case: ReadCase, nth: u64, client: Client) -> Pass {
    // Nothing of what the pass before read ahead counts for this one.
    bench.pool.store().forget_streams(None);
    let [counts, goes_on] = range_of(case, nth);
    let (total, start) = (counts.end - counts.start, bench.world.now());
    let (left, zero) = (Cell::new(total), || Cell::new(Nanos(0)));
    let had = Rc::new(Had { left, end: zero(), longest: zero(), wrong: Cell::new(0) });
    let (host, vdisk, has) = (bench.world.clone(), bench.vdisk.clone(), had.clone());
    let one = move |at: u64| {
        let (host, vdisk, has) = (host.clone(), vdisk.clone(), has.clone());
        async move {
            let (began, mut into) = (host.now(), vec![0; client.request.as_usize()]);
            vdisk.read(VirtualOffset(at), &mut into).await.expect("what was written can be read");
            let mut expected = into.clone();
            fill(at, &mut expected);
            has.wrong.set(has.wrong.get() + (into != expected || into[8] != 0xA5) as u64);
            has.longest.set(has.longest.get().max(host.now().since(began)));
            if at < counts.end {
                has.left.set(has.left.get() - client.request.0);
                if has.left.get() == 0 {
                    has.end.set(host.now());
                }
            }
        }
    };
    let host = bench.world.clone();
    block_on(&bench.world, async move {
        stream_at(&host, counts.start..goes_on.end, client.request.0, client.depth, one).await;
    });
    assert_eq!(had.wrong.get(), 0, "{}: requests that read something else than was written", case.layout);
    Pass { rate: per_second(total, had.end.get().since(start)), longest: had.longest.get() }
}

/// Who reads a stream waits for none of its requests much longer than for others, wherever the disks' heads are when it
/// begins; and who reads a little here and there beside it is not passed over for long.
pub fn no_reader_is_passed_over_for_long() {
    let layout = Layout::new(Resiliency::Parity { parity: 1 }, 3, ByteCount::kib(256)).expect("this layout is valid");
    let case = ReadCase { layout, writer: DEEP, per_disk: ByteCount::mib(128) };
    let bench = Bench::new(layout, Default::default(), LOG);
    write(&bench, case);
    let alone = read(&bench, case, 0, DEEP).longest;
    assert!(alone < LONGEST, "a request of a stream took {} ms", alone.0 / 1_000_000);
    let (longest, ended) = (Rc::new(Cell::new(Nanos(0))), Rc::new(Cell::new(false)));
    let (host, vdisk, took, stops) = (bench.world.clone(), bench.vdisk.clone(), longest.clone(), ended.clone());
    let elsewhere = range_of(case, 2)[0].clone();
    let here_and_there = async move {
        let mut rng = Rng::new(7);
        while !stops.get() {
            let (began, at) = (host.now(), elsewhere.start + rng.below((elsewhere.end - elsewhere.start) >> 12 << 12));
            vdisk.read(VirtualOffset(at >> 12 << 12), &mut [0; 4096]).await.expect("what was written can be read");
            took.set(took.get().max(host.now().since(began)));
        }
    };
    bench.world.spawn("reads here and there", Box::pin(here_and_there));
    let beside = read(&bench, case, 1, DEEP).longest.max(longest.get());
    ended.set(true);
    assert!(beside < LONGEST, "a request took {} ms", beside.0 / 1_000_000);
    bench.world.halt();
}

/// A disk that is given more at once than its peers has everybody wait for longer, and is not slow for that.
pub fn a_disk_with_more_to_do_is_not_slow() {
    let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(256)).expect("this layout is valid");
    let bench = Bench::new(layout, Default::default(), LOG);
    let store = bench.pool.store().clone();
    block_on(&bench.world, async move {
        let read = |disk, nth: u64| store.disk_read(DiskNo(disk), DiskOffset((nth * 7919 % 1000) << 30), 64 << 10);
        for round in 0..80 {
            join((0..16).map(|nth| read(0, round * 16 + nth))).await;
            for nth in 0..16 {
                read(1, round * 16 + nth).await.expect("the disk is sound");
            }
        }
        let slow = |no| store.members.borrow()[&DiskNo(no)].slow;
        assert!(!slow(0) && !slow(1), "a disk like its peers is called slow");
    });
    bench.world.halt();
}

/// Who reads a stream waits once for a disk that stalls, and not for each of the reads that it has, or would have had.
pub fn a_stream_waits_once_for_a_disk_that_stalls() {
    let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(256)).expect("this layout is valid");
    let case = ReadCase { layout, writer: DEEP, per_disk: ByteCount::mib(128) };
    let bench = Bench::new(layout, Default::default(), LOG);
    write(&bench, case);
    let limit = bench.pool.store().tuning.read_timeout;
    for nth in 0..PASSES {
        let (host, disk) = (bench.world.clone(), bench.disks[nth as usize % 2].clone());
        let stalls = async move {
            host.sleep(Nanos::millis(100 + 21 * nth)).await;
            disk.stall(Nanos::secs(20));
        };
        bench.world.spawn("stalls", Box::pin(stalls));
        let longest = read(&bench, case, nth, DEEP).longest;
        assert!(longest > limit && longest.0 < limit.0 * 3 / 2, "a request took {} ms", longest.0 / 1_000_000);
        bench.world.run_until(Nanos::secs(60), || false);
    }
    bench.world.halt();
}

/// Where the disks of a mirror take turns, each begins with the beginning of its turn.
pub fn the_disks_of_a_mirror_begin_their_turns_at_the_beginning() {
    for depth in [8, 32] {
        let layout =
            Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(256)).expect("this layout is valid");
        let writer = Client { request: ByteCount::mib(1), depth };
        let outcome = run(ReadCase { layout, writer, per_disk: ByteCount::mib(128) });
        assert!(outcome.complaints().is_empty(), "{outcome}");
    }
}

/// The heading of a table of [`ReadOutcome`]s.
pub const HEADING: &str = "layout                                  written at  in order    1 MiB q8  64 KiB q1    one disk gone: 1 MiB q8  64 KiB q1";

impl fmt::Display for ReadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReadCase { layout, writer, .. } = self.case;
        let ([deep, single], [deep_degraded, single_degraded]) = (self.healthy, self.degraded);
        let (layout, depth, in_order, from_disks) = (layout.to_string(), writer.depth, self.in_order, self.from_disks);
        write!(f, "{layout:42}  depth {depth:2}  {in_order:8.3}  {from_disks:10.3}  {deep:9.3}  {single:9.3}")?;
        write!(f, "  {deep_degraded:24.3}  {single_degraded:9.3}")
    }
}
