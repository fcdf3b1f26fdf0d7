//! Sequential reads of what a stream wrote, on simulated hard disks, beside what raw disks of the same model read in
//! the same place: healthy, and with one disk gone. How many writes were under way decides in which order stripes
//! become whole; how they lie on the disks must not follow from it.

use crate::streams::{BEGIN, Bench, Case, Direction, LOG, block_on, per_second, raw_rate, stream_at};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::world::World;

/// What sequential reads are held to, of what all disks together could give: requests of 1 MiB, eight at once. The goal
/// is 0.95.
pub const LEAST_DEEP: f64 = 0.90;
/// What sequential reads of 64 KiB, one at a time, are held to. The goal is 0.90.
pub const LEAST_SINGLE: f64 = 0.85;
/// What reads with one disk gone are held to, of what the disks that are left could give.
pub const LEAST_DEGRADED: f64 = 0.90;

/// Passes of reading, each over its own part.
const PASSES: u64 = 4;

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
    let healthy = [(0, DEEP), (1, SINGLE)].map(|(nth, client)| read(&bench, case, nth, client) / (raw * disks));
    let from_disks = (read_bytes() - before) as f64 / (range_of(case, 1).end - BEGIN) as f64;
    lose_a_disk(&bench);
    // Where parity stands in, all data columns still come as fast; of a mirror's column one copy less gives its share
    // of every stripe.
    let left = if layout.copies() > 1 { (layout.columns() * (layout.copies() - 1)) as f64 } else { disks };
    let degraded = [(2, DEEP), (3, SINGLE)].map(|(nth, client)| read(&bench, case, nth, client) / (raw * left));
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

/// What the `nth` pass reads.
fn range_of(case: ReadCase, nth: u64) -> std::ops::Range<u64> {
    let disks = (case.layout.data_columns() * case.layout.copies()) as u64;
    let len = (case.per_disk * disks).0.next_multiple_of(DEEP.request.0);
    BEGIN + nth * len..BEGIN + (nth + 1) * len
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
        let all = range_of(case, 0).start..range_of(case, PASSES - 1).end;
        stream_at(&host, all, request.0, depth, one).await;
        vdisk.flush().await.expect("a sound pool flushes");
        // What is still to be done because of the writes, checkpoints for one, is none of the readers' business here.
        host.sleep(Nanos::secs(20)).await;
    });
}

/// Reads a part of what was written; bytes per second.
fn read(bench: &Bench, case: ReadCase, nth: u64, client: Client) -> f64 {
    // Nothing of what the pass before read ahead counts for this one.
    bench.pool.store().forget_streams(None);
    let (request, vdisk, wrong) = (client.request, bench.vdisk.clone(), Rc::new(Cell::new(0u64)));
    let (range, seen) = (range_of(case, nth), wrong.clone());
    let total = range.end - range.start;
    let one = move |at: u64| {
        let (vdisk, seen) = (vdisk.clone(), seen.clone());
        async move {
            let mut into = vec![0; request.as_usize()];
            vdisk.read(VirtualOffset(at), &mut into).await.expect("what was written can be read");
            let mut expected = into.clone();
            fill(at, &mut expected);
            seen.set(seen.get() + (into != expected || into[8] != 0xA5) as u64);
        }
    };
    let host = bench.world.clone();
    let took = block_on(&bench.world, async move {
        let start = host.now();
        stream_at(&host, range, request.0, client.depth, one).await;
        host.now().since(start)
    });
    assert_eq!(wrong.get(), 0, "{}: requests that read something else than was written", case.layout);
    per_second(total, took)
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
