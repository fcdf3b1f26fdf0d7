//! Writes before a write-back cache on solid-state disks: what one client gets that has each write flushed, and stories
//! of a cache that is emptied while it is used.

use crate::disk::SimDisk;
use crate::mixed::quantile;
use crate::random_writes::{Load, SERVED_SHARE, SMALL, filled, filled_behind, on_bench};
use crate::rng::Rng;
use crate::streams::{Bench, Case, block_on, pattern};
use crate::timing::{Ssd, SsdClass};
use std::fmt;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::record::{CacheChoice, Media, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::pool::NewDisk;
use weft_engine::pool::cache::CacheAsk;
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::world::World;

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
/// The size of each disk of a cache.
const DISK: ByteCount = ByteCount::gib(16);
/// For so long a client writes, one write behind the other.
const SPAN: Nanos = Nanos::secs(20);

/// Solid-state disks before hard disks, which carry a write-back cache and the log.
#[derive(Clone, Debug)]
pub struct Flash {
    /// What they are.
    pub class: SsdClass,
    /// How many.
    pub disks: usize,
    /// Whether they need no flush.
    pub protected: bool,
    /// The size of the cache.
    pub cache: ByteCount,
}

/// One client that writes anywhere with FUA, one write at a time.
#[derive(Clone, Debug)]
pub struct Row {
    /// The virtual disk, as a stream fills it first.
    pub fill: Case,
    /// Bytes of a write.
    pub len: ByteCount,
    /// What lies before its disks; none: nothing.
    pub flash: Option<Flash>,
}

/// What it got.
pub struct Outcome {
    row: Row,
    /// How long each write took, the quickest first.
    took: Vec<Nanos>,
}

/// The columns of what [`Outcome`] prints.
pub const HEADING: &str = "\
| hard disks | a write | before them | writes/s | p50, ms | p99 | longest |
|---|---|---|---|---|---|---|";

impl Flash {
    /// Has them join, and gives the virtual disk of a bench the cache.
    pub fn add_to(self, bench: &Bench) {
        let (pool, world) = (bench.pool.clone(), bench.world.clone());
        block_on(&bench.world, async move {
            let mut disks = DiskSet::EMPTY;
            for nth in 0..self.disks {
                let disk = SimDisk::new(&world, self.class.shape(DISK), Box::new(Ssd::new(self.class.clone())));
                disk.protect(self.protected);
                let (id, name) = (Id([0x50 + nth as u8; 16]), format!("s{nth}"));
                let new = NewDisk { disk: Rc::new(disk), id, name, media: Media::Ssd };
                disks.insert(pool.disk_add(new, Usage::ManualSelect).await.expect("it joins"));
            }
            let ask = CacheAsk { size: self.cache, disks, may_lose: false };
            pool.vdisk_set_cache("vdisk", Some(&ask), CacheChoice::Typed).await.expect("there is room");
        });
    }
}

/// Hard disks alone, and behind two solid-state disks of either kind, with and without power protection.
pub fn rows() -> Vec<Row> {
    let mirror = (Resiliency::Mirror { copies: 2 }, 4);
    let mut rows = Vec::new();
    for (kind, columns) in [mirror, (PARITY, 5)] {
        let layout = Layout::new(kind, columns, ByteCount::kib(64)).expect("these layouts are valid");
        let per_disk = ByteCount(ByteCount::gib(1).0 / layout.data_columns() as u64);
        let fill = Case { layout, request: ByteCount::mib(1), per_disk, flush_stripes: None };
        for len in [SMALL, ByteCount::kib(64)] {
            rows.push(Row { fill, len, flash: None });
            for class in [SsdClass::SATA_SSD, SsdClass::NVME_SSD] {
                for protected in [false, true] {
                    let flash = Flash { class: class.clone(), disks: 2, protected, cache: ByteCount::gib(4) };
                    rows.push(Row { fill, len, flash: Some(flash) });
                }
            }
        }
    }
    rows
}

/// Measures a row.
pub fn run(row: Row) -> Outcome {
    let bench = filled_behind(ByteCount::gib(1), row.fill, (SERVED_SHARE, 256 << 20));
    if let Some(flash) = row.flash.clone() {
        flash.add_to(&bench);
    }
    let mut took = one_at_a_time(&bench, &row, SPAN, Nanos(0));
    took.sort_unstable();
    bench.world.halt();
    Outcome { row, took }
}

/// Writes anywhere, one at a time, each made durable by a flush, with a pause behind it; how long each took.
fn one_at_a_time(bench: &Bench, row: &Row, span: Nanos, pause: Nanos) -> Vec<Nanos> {
    let (vdisk, world, len) = (bench.vdisk.clone(), bench.world.clone(), row.len.0);
    let places = row.fill.per_disk.0 * row.fill.layout.data_columns() as u64 / len;
    block_on(&bench.world, async move {
        let (data, mut rng, mut took) = (pattern(7, ByteCount(len)), Rng::new(5), Vec::new());
        let end = world.now() + span;
        while world.now() < end {
            let began = world.now();
            vdisk.write(VirtualOffset(rng.below(places) * len), &data, false).await.expect("writes work");
            vdisk.flush().await.expect("flushes work");
            took.push(world.now().since(began));
            if pause > Nanos(0) {
                world.sleep(pause).await;
            }
        }
        took
    })
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { fill, len, flash } = &self.row;
        let before = flash.as_ref().map_or(String::from("nothing"), |flash| {
            let protected = if flash.protected { ", power-protected" } else { "" };
            format!("{} {}{protected}", flash.disks, flash.class.name)
        });
        let [p50, p99, longest] = [500, 990, 1000].map(|per_mille| quantile(&self.took, per_mille).0 as f64 / 1e6);
        let rate = self.took.len() as f64 * 1e9 / SPAN.0 as f64;
        write!(f, "| {} | {len} | {before} | {rate:.0} | {p50:.2} | {p99:.2} | {longest:.1} |", fill.layout)
    }
}

/// Where the log lies on solid-state disks, whoever flushes waits for these alone, while the mover brings down to hard
/// disks what a cache holds.
pub fn no_flush_before_a_cache_waits_for_hard_disks() {
    let (bench, fill) = behind_a_cache((128, 4), 64 << 20);
    let row = Row { fill, len: SMALL, flash: None };
    let mut took = one_at_a_time(&bench, &row, Nanos::secs(15), Nanos::millis(4));
    took.sort_unstable();
    let (moved, late) = (bench.vdisk.counters.destaged_stripes.get(), quantile(&took, 990));
    assert!(moved > 500, "the mover is at work: {moved} stripes");
    assert!(late < Nanos::millis(5), "one of 100 takes {} ms and more", late.0 / 1_000_000);
    bench.world.halt();
}

/// A cache that is full takes as much as is brought down, however long that lasts: packed stripes of which the mover
/// has left a few units each do not use up those that there may be.
pub fn a_full_cache_takes_as_much_as_is_brought_down() {
    a_full_cache(behind_a_cache((128, 32), 16 << 20), Nanos::secs(40));
}

/// Small writes wait for a full cache while the mover lifts some of what they were written into: the others are packed
/// then, and not merged one by one.
pub fn what_cannot_be_packed_any_more_has_no_others_merged() {
    a_full_cache(behind_a_cache((512, 64), 192 << 20), Nanos::secs(60));
}

/// Clients write anywhere for `span`, longer than a cache takes to fill: no second is much worse than most, and what
/// has to leave is packed.
fn a_full_cache((bench, fill): (Bench, Case), span: Nanos) {
    let load = Load { fill, len: SMALL, per_flush: 32, span, fine_share: SERVED_SHARE, cached_on: 2 };
    let random = on_bench(&bench, load);
    let (median, worst) = random.seconds();
    assert!(worst * 2 >= median, "{worst} in the worst second, {median} in most");
    let counters = &bench.vdisk.counters;
    let (merged, moved) = (counters.merged.get() / bench.vdisk.stripe_len().0, counters.destaged_stripes.get());
    let (alone, packed) = (merged - moved, counters.packed_parts.get());
    assert!(alone * 100 < packed, "{alone} stripes were merged one by one, {packed} packed");
    bench.world.halt();
}

/// A virtual disk of single parity with short stripes that is full, and a cache on two disks before it: MiB of the
/// first on each disk, and of the second.
fn behind_a_cache((per_disk, cache): (u64, u64), buffer_memory: u64) -> (Bench, Case) {
    let layout = Layout::new(PARITY, 5, ByteCount::kib(64)).expect("this layout is valid");
    let per_disk = ByteCount::mib(per_disk);
    let fill = Case { layout, request: ByteCount::mib(1), per_disk, flush_stripes: None };
    let bench = filled(fill, (SERVED_SHARE, buffer_memory));
    let cache = ByteCount::mib(cache);
    Flash { class: SsdClass::SATA_SSD, disks: 2, protected: false, cache }.add_to(&bench);
    (bench, fill)
}
