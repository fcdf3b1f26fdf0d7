//! What of the disks' own rates clients get, layout by layout: measured on the engine in virtual time.
//!
//! A measurement takes seconds, so the layouts that a plan considers are measured beforehand on each class of hard
//! disks and kept in `ratios.tsv` (`cargo run --profile proof -p weft-lab --example ratios` makes it anew);
//! [`simulate`] does it again for one layout and class. A test holds the file to the engine.

use crate::disks::Class;
use serde::Serialize;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::{Buf, Disk};
use weft_engine::limits::SLAB_DEFAULT;
use weft_engine::store::{Tuning, join};
use weft_engine::units::{BLOCK, ByteCount, DiskOffset, VirtualOffset};
use weft_engine::world::World;
use weft_sim::disk::SimDisk;
use weft_sim::rng::Rng;
use weft_sim::streams::{Bench, Case, LOG, Shape};
use weft_sim::timing::{Hdd, HddClass};
use weft_sim::world::{Scheduling, SimWorld};

/// Bytes that each disk gets in a measurement.
const PER_DISK: ByteCount = ByteCount::mib(192);
/// Requests of a client of streams.
const REQUEST: ByteCount = ByteCount::mib(1);
/// Random reads in flight for each disk, and how many of them are measured.
const READS: (u64, u64) = (8, 400);

/// Shares of what the disks do by themselves.
#[derive(Clone, Copy, PartialEq, Serialize, Debug)]
pub struct Ratios {
    /// Sequential writes, of data columns x a disk's sequential rate.
    pub write: f64,
    /// Sequential reads, of the same.
    pub read: f64,
    /// Sequential reads with a disk missing, of the same; 0 where a disk may not be missing.
    pub degraded: f64,
    /// Random reads of 4 KiB, of slots x a disk's random reads.
    pub random_read: f64,
}

/// Every layout that a plan considers, with the interleave that weft chooses for hard disks.
pub fn layouts() -> Vec<Layout> {
    let of = |resiliency, columns: std::ops::RangeInclusive<u8>| {
        columns
            .map(move |columns| Layout::new(resiliency, columns, ByteCount::kib(256)).expect("these layouts are valid"))
    };
    let mirrors = [2, 3].map(|copies| of(Resiliency::Mirror { copies }, 1..=4)).into_iter().flatten();
    let simple = of(Resiliency::Simple, 1..=8);
    let single = of(Resiliency::Parity { parity: 1 }, 3..=8);
    simple.chain(mirrors).chain(single).chain(of(Resiliency::Parity { parity: 2 }, 4..=10)).collect()
}

/// The classes that were measured. Another one is taken to be like the first.
pub const CLASSES: [Class; 4] = [Class::Hdd7200, Class::Hdd5400, Class::Hdd10k, Class::Hdd15k];

/// The class whose shares are taken for this one.
pub fn like(class: Class) -> Class {
    if CLASSES.contains(&class) { class } else { CLASSES[0] }
}

/// What was measured beforehand for this resiliency and number of columns, if it is one of [`layouts`].
pub fn known(layout: Layout, class: Class) -> Option<Ratios> {
    let (wanted, class) = (key(layout), like(class).to_string());
    include_str!("ratios.tsv").lines().find_map(|line| {
        let mut fields = line.split('\t');
        if fields.next()? != class || fields.next()? != wanted {
            return None;
        }
        let mut number = || fields.next()?.parse::<f64>().ok();
        Some(Ratios { write: number()?, read: number()?, degraded: number()?, random_read: number()? })
    })
}

/// A row of `ratios.tsv`.
pub fn row(layout: Layout, class: Class, ratios: Ratios) -> String {
    let Ratios { write, read, degraded, random_read } = ratios;
    format!("{class}\t{}\t{write:.3}\t{read:.3}\t{degraded:.3}\t{random_read:.3}", key(layout))
}

fn key(layout: Layout) -> String {
    format!("{} x{}", layout.resiliency(), layout.columns())
}

/// Measures a layout on as many simulated disks as it takes; none where the class is not one of hard disks.
pub fn simulate(layout: Layout, class: Class) -> Option<Ratios> {
    let class = class.hdd()?;
    let (bench, case) = stream_on(&class, layout);
    let most = class.outer_rate as f64 * layout.data_columns() as f64;
    let write = bench.pass(case, class.outer_rate as f64, 1).ratio;
    let read = bench.read(case) / most;
    let random_read = random_reads(&bench, layout) / (raw_random_reads(&class) * layout.slots() as f64);
    let degraded = if layout.failures() == 0 {
        0.0
    } else {
        bench.disks[0].vanish();
        bench.read(case) / most
    };
    bench.world.halt();
    Some(Ratios { write, read, degraded, random_read })
}

/// A pool of as many disks as a layout takes, with one virtual disk, and the stream it is measured with.
pub(crate) fn stream_on(class: &HddClass, layout: Layout) -> (Bench, Case) {
    let bench = Bench::of(&Shape {
        class: class.clone(),
        disks: layout.slots(),
        layout,
        size: ByteCount::gib(4) * layout.data_columns() as u64,
        slab: SLAB_DEFAULT,
        log: LOG,
        tuning: Tuning::default(),
    });
    (bench, Case { layout, request: REQUEST, per_disk: PER_DISK, flush_stripes: None })
}

/// Random reads of 4 KiB per second of what a measurement wrote.
fn random_reads(bench: &Bench, layout: Layout) -> f64 {
    let blocks = PER_DISK.0 * layout.data_columns() as u64 / 2 / BLOCK;
    let readers = READS.0 * layout.slots() as u64;
    let (host, vdisk) = (bench.world.clone(), bench.vdisk.clone());
    let took = bench.world.block_on(async move {
        let start = host.now();
        let reader = |nth: u64| {
            let (vdisk, mut rng) = (vdisk.clone(), Rng::new(nth + 1));
            async move {
                for _ in 0..READS.1 / READS.0 {
                    let mut into = vec![0; BLOCK as usize];
                    let at = VirtualOffset((blocks / 2 + rng.below(blocks)) * BLOCK);
                    vdisk.read(at, &mut into).await.expect("what was written can be read");
                }
            }
        };
        join((0..readers).map(reader)).await;
        host.now().since(start)
    });
    let reads = readers * (READS.1 / READS.0);
    reads as f64 * 1e9 / took.expect("it ends").0 as f64
}

/// Measures one disk alone, over as many bytes.
fn raw_random_reads(class: &HddClass) -> f64 {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disk = SimDisk::new(&world, class.shape(class.capacity), Box::new(Hdd::new(class.clone())));
    let host = world.clone();
    let took = world.block_on(async move {
        let start = host.now();
        let reader = |nth: u64| {
            let (disk, mut rng) = (disk.clone(), Rng::new(nth + 1));
            async move {
                for _ in 0..READS.1 / READS.0 {
                    let at = DiskOffset(ByteCount::gib(2).0 + rng.below(PER_DISK.0 / BLOCK) * BLOCK);
                    disk.read(at, Buf::zeroed(BLOCK as usize)).await.expect("a sound disk can be read");
                }
            }
        };
        join((0..READS.0).map(reader)).await;
        host.now().since(start)
    });
    READS.1 as f64 * 1e9 / took.expect("it ends").0 as f64
}
