//! A file system that is filled, emptied and filled again, and one that ages, on simulated hard disks: does writing
//! stay as fast as the first time? Virtual time is exact, so the figures are the same on every machine.
//!
//! The file system is what matters of one to a disk: files of 64 KiB to 32 MiB in extents of 4 KiB blocks, placed next
//! to each other from where the last one ended (next fit), in pieces where room is scattered; deleting a file zeroes
//! its extents, as a loop device does with a discard. The page cache writes some files at once and flushes every 256
//! MiB.
//!
//! Beside it a raw disk gets a column's part of every extent, in place, with the same flushes: what scattered room
//! costs any layout, with parity and what was there before not counted.
//!
//! The disks are small and equally fast everywhere, so that only the arm's way can make a difference; the pool has
//! little more room than the virtual disk, so that what is freed must be used again.

use crate::disk::SimDisk;
use crate::rebuild::small;
use crate::rng::Rng;
use crate::streams::{Bench, Shape, block_on, pattern, per_second, stream};
use crate::timing::{Hdd, HddClass};
use crate::world::{Scheduling, SimWorld};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use weft_engine::geometry::Layout;
use weft_engine::io::{Buf, Disk};
use weft_engine::store::Tuning;
use weft_engine::units::{ByteCount, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;

const BLOCK: u64 = 4096;
/// Bytes of one request, at most.
const REQUEST: u64 = 1 << 20;
/// Bytes between two flushes.
const FLUSH_EVERY: u64 = 256 << 20;
/// How full the file system gets.
const FULL: f64 = 0.95;

/// A virtual disk and what is done to it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Layout of the virtual disk.
    pub layout: Layout,
    /// Its size.
    pub size: ByteCount,
    /// Times that everything is deleted and written again.
    pub refills: usize,
    /// Times that half of the files are deleted, at random, and as much is written again.
    pub ages: usize,
    /// How much of it may lie in packed stripes, in thousandths; 0: ends of files are merged.
    pub fine_share: u64,
}

/// One filling.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Bytes written.
    pub written: u64,
    /// Bytes per second, flushes included.
    pub rate: f64,
    /// What as many raw disks do as there are data columns.
    pub raw: f64,
    /// Stripes that left whole, of all.
    pub whole: f64,
    /// Bytes read because of writes.
    pub read_for_write: u64,
    /// Extents per file.
    pub pieces: f64,
}

/// The first filling, the refills, then the ages.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was run.
    pub case: Case,
    /// In their order.
    pub rounds: Vec<Round>,
}

/// Runs a case.
pub fn run(case: Case) -> Outcome {
    let slab = ByteCount::mib(16);
    // A fifth more than the data takes: the reserve, metadata, and room to write what is new before the old is free.
    let raw = case.size.0 / case.layout.data_columns() as u64;
    let capacity = ByteCount((raw * 6 / 5 + (256 << 20)).next_multiple_of(slab.0));
    let class = HddClass { inner_rate: small(capacity).outer_rate, ..small(capacity) };
    let bench = Bench::of(&Shape {
        class: class.clone(),
        disks: case.layout.slots(),
        layout: case.layout,
        size: case.size,
        slab,
        log: ByteCount::mib(64),
        tuning: Tuning { auto_jobs: false, fine_share: case.fine_share, ..Tuning::default() },
    });
    let mut files = Files::new(case.size, Raw::new(class, case.layout.data_columns() as u64));
    let mut rounds = vec![files.fill(&bench)];
    for _ in 0..case.refills {
        files.delete(&bench, 1.0);
        rounds.push(files.fill(&bench));
    }
    for _ in 0..case.ages {
        files.delete(&bench, 0.5);
        rounds.push(files.fill(&bench));
    }
    bench.world.halt();
    Outcome { case, rounds }
}

/// The file system.
struct Files {
    size: u64,
    /// Free extents: start -> end, in bytes.
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    /// Where the last file ended.
    cursor: u64,
    files: Vec<Vec<(u64, u64)>>,
    rng: Rng,
    raw: Raw,
}

impl Files {
    fn new(size: ByteCount, raw: Raw) -> Files {
        let free = BTreeMap::from([(0, size.0)]);
        Files { size: size.0, free, free_bytes: size.0, cursor: 0, files: Vec::new(), rng: Rng::new(1), raw }
    }

    /// Writes files until it is [`FULL`], and makes them durable.
    fn fill(&mut self, bench: &Bench) -> Round {
        let first = self.files.len();
        while (self.size - self.free_bytes) as f64 <= FULL * self.size as f64 {
            // Every doubling of the size is equally likely.
            let len = (BLOCK << (4 + self.rng.below(9))) + self.rng.below(16) * BLOCK;
            let file = self.place(len.min(self.free_bytes));
            self.files.push(file);
        }
        let new = &self.files[first..];
        let extents: Vec<(u64, u64)> = new.iter().flatten().copied().collect();
        let pieces = extents.len() as f64 / new.len() as f64;
        let counters = &bench.vdisk.counters;
        let seen = || [&counters.whole, &counters.merged, &counters.read_for_write].map(|counter| counter.get());
        let before = seen();
        let data = Rc::new(pattern(7, ByteCount(REQUEST)));
        let (writer, flusher) = (bench.vdisk.clone(), bench.vdisk.clone());
        let one = move |at: u64, len: u64| {
            let (vdisk, data) = (writer.clone(), data.clone());
            async move {
                vdisk.write(VirtualOffset(at), &data[..len as usize], false).await.expect("a sound pool takes writes")
            }
        };
        let flush = move || {
            let vdisk = flusher.clone();
            async move { vdisk.flush().await.expect("a sound pool flushes") }
        };
        let (written, took) = write(&bench.world, &extents, FLUSH_EVERY, one, flush);
        let after = seen();
        let [whole, merged, read_for_write] = std::array::from_fn(|at| after[at] - before[at]);
        let rate = per_second(written, took);
        let raw = self.raw.write(&extents);
        Round { written, rate, raw, whole: whole as f64 / (whole + merged).max(1) as f64, read_for_write, pieces }
    }

    /// Deletes a part of the files, chosen at random, and lets what that causes come to rest.
    fn delete(&mut self, bench: &Bench, part: f64) {
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.files).into_iter().partition(|_| part >= 1.0 || self.rng.chance(part));
        self.files = kept;
        let mut extents: Vec<(u64, u64)> = gone.into_iter().flatten().collect();
        extents.sort_unstable();
        extents.iter().for_each(|(start, end)| self.release(*start, *end));
        let (vdisk, pool) = (bench.vdisk.clone(), bench.pool.clone());
        block_on(&bench.world, async move {
            for (start, end) in extents {
                vdisk.write_zeroes(VirtualOffset(start), end - start, false, false).await.expect("zeroing works");
            }
            vdisk.flush().await.expect("a sound pool flushes");
            pool.checkpoint().await.expect("a sound pool takes checkpoints");
        });
    }

    /// Takes `len` bytes, from the cursor on.
    fn place(&mut self, len: u64) -> Vec<(u64, u64)> {
        let mut extents = Vec::new();
        let mut left = len;
        while left > 0 {
            let next = self.free.range(self.cursor..).next().or_else(|| self.free.iter().next());
            let (start, end) = next.map(|(start, end)| (*start, *end)).expect("there is room for it");
            let take = left.min(end - start);
            self.free.remove(&start);
            if start + take < end {
                self.free.insert(start + take, end);
            }
            extents.push((start, start + take));
            self.cursor = start + take;
            left -= take;
        }
        self.free_bytes -= len;
        extents
    }

    fn release(&mut self, mut start: u64, mut end: u64) {
        self.free_bytes += end - start;
        if let Some((before, to)) = self.free.range(..start).next_back().map(|(start, end)| (*start, *end))
            && to == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(to) = self.free.remove(&end) {
            end = to;
        }
        self.free.insert(start, end);
    }
}

/// One disk of as many as there are data columns, without weft.
struct Raw {
    world: SimWorld,
    disk: SimDisk,
    columns: u64,
}

impl Raw {
    fn new(class: HddClass, columns: u64) -> Raw {
        let world = SimWorld::new(1, Scheduling::Fifo);
        let disk = SimDisk::new(&world, class.shape(class.capacity), Box::new(Hdd::new(class)));
        Raw { world, disk, columns }
    }

    /// Bytes per second of all columns together, when each gets its part of these extents.
    fn write(&self, extents: &[(u64, u64)]) -> f64 {
        let part = |at: u64| (at / self.columns).next_multiple_of(BLOCK);
        let parts: Vec<(u64, u64)> = extents.iter().map(|(start, end)| (part(*start), part(*end))).collect();
        let slice = Buf::copy_of(&pattern(7, ByteCount(REQUEST))).freeze();
        let (writer, flusher) = (self.disk.clone(), self.disk.clone());
        let one = move |at: u64, len: u64| {
            let (disk, slice) = (writer.clone(), slice.slice(0..len as usize));
            async move { disk.write(DiskOffset(at), vec![slice]).await.expect("a sound disk works") }
        };
        let flush = move || {
            let disk = flusher.clone();
            async move { disk.flush().await.expect("a sound disk works") }
        };
        let (written, took) = write(&self.world, &parts, FLUSH_EVERY / self.columns, one, flush);
        per_second(written, took) * self.columns as f64
    }
}

/// Writes extents by `one` (place, bytes), many at once, with a `flush` every so many bytes; the bytes, and the time it
/// took.
fn write<W, F>(
    world: &SimWorld,
    extents: &[(u64, u64)],
    flush_every: u64,
    one: impl Fn(u64, u64) -> W + Clone + 'static,
    flush: impl Fn() -> F,
) -> (u64, Nanos)
where
    W: Future<Output = ()> + 'static,
    F: Future<Output = ()> + 'static,
{
    let start = world.now();
    let pieces = |(start, end): &(u64, u64)| {
        let end = *end;
        (*start..end).step_by(REQUEST as usize).map(move |at| (at, REQUEST.min(end - at)))
    };
    let requests: Rc<Vec<(u64, u64)>> = Rc::new(extents.iter().flat_map(pieces).collect());
    let (mut from, mut total) = (0, 0);
    while from < requests.len() {
        let (mut to, mut bytes) = (from, 0);
        while to < requests.len() && bytes < flush_every {
            bytes += requests[to].1;
            to += 1;
        }
        let (requests, one) = (requests.clone(), one.clone());
        let nth = move |nth: u64| one(requests[nth as usize].0, requests[nth as usize].1);
        let (host, flushed) = (world.clone(), flush());
        block_on(world, async move {
            stream(&host, from as u64..to as u64, 1, nth).await;
            flushed.await;
        });
        (from, total) = (to, total + bytes);
    }
    (total, world.now().since(start))
}

/// The heading of a table of [`Outcome`]s.
pub const HEADING: &str = "                    written       rate  of the first  raw disks   whole   reads because of writes   extents a file";

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = if self.case.fine_share > 0 { "packed" } else { "merged" };
        writeln!(f, "{}, {ends}", self.case.layout)?;
        let first = self.rounds[0].rate;
        for (nth, round) in self.rounds.iter().enumerate() {
            let name = match nth {
                0 => "first filling".into(),
                nth if nth <= self.case.refills => format!("all anew, {nth}"),
                nth => format!("half anew, {}", nth - self.case.refills),
            };
            writeln!(
                f,
                "  {name:14} {:7} MiB {:5.0} MB/s {:10.2} {:8.0} MB/s {:7.2} % {:15.1} MiB {:14.2}",
                round.written >> 20,
                round.rate / 1e6,
                round.rate / first,
                round.raw / 1e6,
                round.whole * 100.0,
                round.read_for_write as f64 / (1 << 20) as f64,
                round.pieces
            )?;
        }
        Ok(())
    }
}
