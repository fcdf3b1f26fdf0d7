//! A file system that is filled, emptied and filled again, and one that ages, on simulated hard disks: does writing stay as fast as the first time?
//! Virtual time is exact, so the figures are the same on every machine.
//!
//! The file system is what matters of one to a disk: files of 64 KiB to 32 MiB in extents of 4 KiB blocks, placed next to each other from where the
//! last one ended (next fit), in pieces where room is scattered; deleting a file zeroes its extents, as a loop device does with a discard. The page cache
//! writes some files at once and flushes every 256 MiB.
//!
//! The disks are small and equally fast everywhere, so that only the arm's way can make a difference; the pool has little more room than the virtual
//! disk, so that what is freed must be used again.

use crate::rebuild::small;
use crate::rng::Rng;
use crate::streams::{Bench, Shape, block_on, pattern, per_second, stream};
use crate::timing::HddClass;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use weft_engine::store::Tuning;
use weft_engine::stripe::geometry::Layout;
use weft_engine::units::{ByteCount, VirtualOffset};

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
    /// Of the virtual disk.
    pub layout: Layout,
    /// Its size.
    pub size: ByteCount,
    /// Times that everything is deleted and written again.
    pub refills: usize,
    /// Times that half of the files are deleted, at random, and as much is written again.
    pub ages: usize,
}

/// One filling.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Bytes written.
    pub written: u64,
    /// Bytes per second, flushes included.
    pub rate: f64,
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
    let class = small(capacity);
    let bench = Bench::of(&Shape {
        class: HddClass { inner_rate: class.outer_rate, ..class },
        disks: case.layout.slots(),
        layout: case.layout,
        size: case.size,
        slab,
        log: ByteCount::mib(64),
        tuning: Tuning { auto_jobs: false, ..Tuning::default() },
    });
    let mut files = Files::new(case.size);
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
}

impl Files {
    fn new(size: ByteCount) -> Files {
        let free = BTreeMap::from([(0, size.0)]);
        Files { size: size.0, free, free_bytes: size.0, cursor: 0, files: Vec::new(), rng: Rng::new(1) }
    }

    /// Writes files until it is [`FULL`], and makes them durable.
    fn fill(&mut self, bench: &Bench) -> Round {
        let first = self.files.len();
        while (self.size - self.free_bytes) as f64 <= FULL * self.size as f64 {
            // As many of every doubling of the size.
            let len = (BLOCK << (4 + self.rng.below(9))) + self.rng.below(16) * BLOCK;
            let file = self.place(len.min(self.free_bytes));
            self.files.push(file);
        }
        let new = &self.files[first..];
        let extents: Vec<(u64, u64)> = new.iter().flatten().copied().collect();
        let pieces = extents.len() as f64 / new.len() as f64;
        let counters = &bench.vdisk.counters;
        let seen = || [&counters.whole, &counters.merged, &counters.read_for_write].map(|counter| counter.get());
        let (before, start) = (seen(), bench.world.clone());
        let start = weft_engine::world::World::now(&start);
        let written = write(bench, &extents);
        let took = weft_engine::world::World::now(&bench.world).since(start);
        let after = seen();
        let [whole, merged, read_for_write] = std::array::from_fn(|at| after[at] - before[at]);
        let rate = per_second(written, took);
        Round { written, rate, whole: whole as f64 / (whole + merged).max(1) as f64, read_for_write, pieces }
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

/// Writes extents; the bytes of them.
fn write(bench: &Bench, extents: &[(u64, u64)]) -> u64 {
    let requests: Vec<(u64, u64)> = extents
        .iter()
        .flat_map(|(start, end)| {
            (*start..*end).step_by(REQUEST as usize).map(|at| (at, REQUEST.min(*end - at))).collect::<Vec<_>>()
        })
        .collect();
    let data = Rc::new(pattern(7, ByteCount(REQUEST)));
    let mut from = 0;
    while from < requests.len() {
        let mut bytes = 0;
        let batch: Vec<(u64, u64)> = requests[from..]
            .iter()
            .take_while(|(_, len)| {
                bytes += len;
                bytes <= FLUSH_EVERY
            })
            .copied()
            .collect();
        from += batch.len();
        let (count, batch) = (batch.len() as u64, Rc::new(batch));
        let (vdisk, data, host) = (bench.vdisk.clone(), data.clone(), bench.world.clone());
        let one = {
            let (vdisk, batch) = (vdisk.clone(), batch.clone());
            move |nth: u64| {
                let (vdisk, data, (at, len)) = (vdisk.clone(), data.clone(), batch[nth as usize]);
                async move {
                    let bytes = &data[..len as usize];
                    vdisk.write(VirtualOffset(at), bytes, false).await.expect("a sound pool takes writes");
                }
            }
        };
        block_on(&bench.world, async move {
            stream(&host, 0..count, 1, one).await;
            vdisk.flush().await.expect("a sound pool flushes");
        });
    }
    requests.iter().map(|(_, len)| len).sum()
}

/// The heading of a table of [`Outcome`]s.
pub const HEADING: &str =
    "                    written       rate  of the first   whole   reads because of writes   extents a file";

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.case.layout)?;
        let first = self.rounds[0].rate;
        for (nth, round) in self.rounds.iter().enumerate() {
            let name = match nth {
                0 => "first filling".into(),
                nth if nth <= self.case.refills => format!("all anew, {nth}"),
                nth => format!("half anew, {}", nth - self.case.refills),
            };
            writeln!(
                f,
                "  {name:14} {:7} MiB {:5.0} MB/s {:10.2} {:9.2} % {:17.1} MiB {:14.2}",
                round.written >> 20,
                round.rate / 1e6,
                round.rate / first,
                round.whole * 100.0,
                round.read_for_write as f64 / (1 << 20) as f64,
                round.pieces
            )?;
        }
        Ok(())
    }
}
