//! Writes before a write-back cache on solid-state disks: what one client gets that has each write flushed, and stories
//! of a cache that is emptied while it is used.

use crate::disk::SimDisk;
use crate::mixed::quantile;
use crate::random_writes::{Load, Random, SERVED_SHARE, SMALL, filled_behind, on_bench};
use crate::rng::Rng;
use crate::sample::sample;
use crate::streams::{Bench, Case, block_on, pattern};
use crate::timing::{Ssd, SsdClass};
use crate::world::{Scheduling, SimWorld};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use weft_engine::format::Id;
use weft_engine::format::record::{CacheChoice, Media, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::{Buf, Disk};
use weft_engine::pool::NewDisk;
use weft_engine::pool::cache::CacheAsk;
use weft_engine::segment::fine::Spot;
use weft_engine::stripe::table::Place;
use weft_engine::units::{ByteCount, DiskNo, DiskOffset, Nanos, VirtualOffset};
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

/// A virtual disk behind a cache, what filled it, and the disks of the cache.
type Cached = (Bench, Case, BTreeMap<DiskNo, SimDisk>);

/// What it got.
pub struct Outcome {
    /// The first columns of its line.
    what: String,
    /// How long each write took, the quickest first.
    took: Vec<Nanos>,
}

/// The columns of what [`Outcome`] prints.
pub const HEADING: &str = "\
| hard disks | a write | before them | writes/s | p50, ms | p99 | longest |
|---|---|---|---|---|---|---|";

impl Flash {
    fn name(&self) -> String {
        format!("{}{}", self.class.name, if self.protected { ", power-protected" } else { "" })
    }

    /// Has them join, and gives the virtual disk of a bench the cache. Returns them by their numbers.
    pub fn add_to(self, bench: &Bench) -> BTreeMap<DiskNo, SimDisk> {
        let (pool, world) = (bench.pool.clone(), bench.world.clone());
        block_on(&bench.world, async move {
            let mut joined = BTreeMap::new();
            for nth in 0..self.disks {
                let disk = SimDisk::new(&world, self.class.shape(DISK), Box::new(Ssd::new(self.class.clone())));
                disk.protect(self.protected);
                let (id, name) = (Id([0x50 + nth as u8; 16]), format!("s{nth}"));
                let new = NewDisk { disk: Rc::new(disk.clone()), id, name, media: Media::Ssd };
                joined.insert(pool.disk_add(new, Usage::ManualSelect).await.expect("it joins"), disk);
            }
            let ask = CacheAsk { size: self.cache, disks: joined.keys().copied().collect(), may_lose: false };
            pool.vdisk_set_cache("vdisk", Some(&ask), CacheChoice::Typed).await.expect("there is room");
            joined
        })
    }
}

/// Solid-state disks of either kind, with and without power protection.
fn kinds() -> impl Iterator<Item = Flash> {
    [SsdClass::SATA_SSD, SsdClass::NVME_SSD].into_iter().flat_map(|class| {
        [false, true].map(|protected| Flash { class: class.clone(), disks: 2, protected, cache: ByteCount::gib(4) })
    })
}

/// [`run_alone`] of all that [`rows`] have.
pub fn alone() -> Vec<Outcome> {
    [SMALL, ByteCount::kib(64)].into_iter().flat_map(|len| kinds().map(move |flash| run_alone(&flash, len))).collect()
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
            rows.extend(kinds().map(|flash| Row { fill, len, flash: Some(flash) }));
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
    let before =
        row.flash.as_ref().map_or(String::from("nothing"), |flash| format!("{} {}", flash.disks, flash.name()));
    Outcome { what: format!("{} | {} | {before}", row.fill.layout, row.len), took }
}

/// Measures the same writes to one of these solid-state disks, in place: more than that nobody gets who waits for it.
pub fn run_alone(flash: &Flash, len: ByteCount) -> Outcome {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disk = SimDisk::new(&world, flash.class.shape(DISK), Box::new(Ssd::new(flash.class.clone())));
    let (clock, data) = (world.clone(), Buf::copy_of(&pattern(7, len)).freeze());
    let protected = flash.protected;
    let mut took = block_on(&world, async move {
        let (mut rng, mut took) = (Rng::new(5), Vec::new());
        while clock.now() < SPAN {
            let began = clock.now();
            let at = DiskOffset(rng.below(ByteCount::gib(1).0 / len.0) * len.0);
            disk.write(at, vec![data.slice(0..data.len())]).await.expect("it works");
            if !protected {
                disk.flush().await.expect("it works");
            }
            took.push(clock.now().since(began));
        }
        took
    });
    took.sort_unstable();
    Outcome { what: format!("none: one {}, in place | {len} | ", flash.name()), took }
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
        let [p50, p99, longest] = [500, 990, 1000].map(|per_mille| quantile(&self.took, per_mille).0 as f64 / 1e6);
        let rate = self.took.len() as f64 * 1e9 / SPAN.0 as f64;
        write!(f, "| {} | {rate:.0} | {p50:.2} | {p99:.2} | {longest:.1} |", self.what)
    }
}

/// Where the log lies on solid-state disks, whoever flushes waits for these alone, while the mover brings down to hard
/// disks what a cache holds.
pub fn no_flush_before_a_cache_waits_for_hard_disks() {
    let bench = flushes_before_a_cache(behind_a_cache((128, 4), 64 << 20), SMALL, 990);
    let moved = bench.vdisk.counters.destaged_stripes.get();
    assert!(moved > 500, "the mover is at work: {moved} stripes");
    bench.world.halt();
}

/// Nor does who flushes the last part of a stripe that is on its way to hard disks now that it is whole.
pub fn what_becomes_whole_is_flushed_without_hard_disks() {
    let bench = behind_a_cache_and(ByteCount::gib(1), (16, 64), 64 << 20);
    let bench = flushes_before_a_cache(bench, ByteCount::kib(64), 950);
    let (whole, size) = (bench.vdisk.counters.whole.get(), bench.vdisk.size().0);
    assert!(whole > 2 * size, "{whole} bytes of {size} were in stripes that became whole");
    bench.world.halt();
}

/// Who flushes more than the hard disks take waits a little now and then, and not long for all at once: what is on its
/// way is bounded.
pub fn who_flushes_more_than_hard_disks_take_never_waits_long() {
    let (bench, fill, _) = behind_a_cache_and(ByteCount::gib(1), (128, 512), 256 << 20);
    let row = Row { fill, len: ByteCount::mib(1), flash: None };
    let (world, store, most) = (bench.world.clone(), bench.pool.store().clone(), Rc::new(Cell::new(0)));
    let seen = most.clone();
    let watching = async move {
        loop {
            seen.set(store.commits.in_flight.get().max(seen.get()));
            world.sleep(Nanos::millis(5)).await;
        }
    };
    bench.world.spawn("watcher", Box::pin(watching));
    let took = one_at_a_time(&bench, &row, Nanos::secs(12), Nanos(0));
    let (longest, per_second) = (took.iter().max().expect("some"), took.len() / 12);
    assert!(most.get() < 80 << 20, "{} MiB are on their way", most.get() >> 20);
    assert!(*longest < Nanos::millis(400), "{} ms", longest.0 / 1_000_000);
    assert!(per_second > 120, "{per_second} a second, 105 where each waits for its stripes");
    bench.world.halt();
}

/// A client writes anywhere before a cache, with a flush after each write, so many of 1000 of which wait for
/// solid-state disks alone.
fn flushes_before_a_cache((bench, fill, _): Cached, len: ByteCount, per_mille: usize) -> Bench {
    let row = Row { fill, len, flash: None };
    let mut took = one_at_a_time(&bench, &row, Nanos::secs(15), Nanos::millis(4));
    took.sort_unstable();
    let late = quantile(&took, per_mille);
    let rest = 1000 - per_mille;
    assert!(late < Nanos::millis(5), "{rest} of 1000 take {} ms and more", late.0 / 1_000_000);
    bench
}

/// A cache that is full takes as much as is brought down, however long that lasts: packed stripes of which the mover
/// has left a few units each do not use up those that there may be.
pub fn a_full_cache_takes_as_much_as_is_brought_down() {
    a_full_cache((128, 32), 16 << 20, Nanos::secs(40));
}

/// Small writes wait for a full cache while the mover lifts some of what they were written into: the others are packed
/// then, and not merged one by one.
pub fn what_cannot_be_packed_any_more_has_no_others_merged() {
    a_full_cache((512, 64), 160 << 20, Nanos::secs(60));
}

/// Clients write anywhere for `span`, longer than a cache takes to fill: no second is much worse than most, and what
/// has to leave is packed.
fn a_full_cache(sizes: (u64, u64), buffer_memory: u64, span: Nanos) {
    let (bench, fill, _) = behind_a_cache(sizes, buffer_memory);
    let (median, worst) = write_anywhere(&bench, fill, span).seconds();
    assert!(worst * 2 >= median, "{worst} in the worst second, {median} in most");
    let counters = &bench.vdisk.counters;
    let (merged, moved) = (counters.merged.get() / bench.vdisk.stripe_len().0, counters.destaged_stripes.get());
    let (alone, packed) = (merged - moved, counters.packed_parts.get());
    assert!(alone * 100 < packed, "{alone} stripes were merged one by one, {packed} packed");
    bench.world.halt();
}

/// Packed stripes of a full cache that cannot be read, neither copy, stay where they are: what is written goes on, and
/// what else rests there comes down.
pub fn what_cannot_be_read_of_a_full_cache_is_in_nobodys_way() {
    let (bench, fill, disks) = behind_a_cache((64, 16), 16 << 20);
    let before = write_anywhere(&bench, fill, Nanos::secs(15)).seconds().0;
    let spoilt = spoil_some(&bench, &disks);
    let counters = &bench.vdisk.counters;
    let (repacked, moved) = (counters.repacked.get(), counters.destaged_stripes.get());
    let after = write_anywhere(&bench, fill, Nanos::secs(15)).seconds().0;
    assert!(spoilt > 1 && repacked > 0, "{spoilt} are spoilt, {repacked} bytes were packed again");
    assert!(after * 3 > before, "{before} writes a second before, {after} after {spoilt} packed stripes were spoilt");
    assert!(counters.destaged_stripes.get() > moved && counters.repacked.get() > repacked, "all goes on");
    let shown = bench.pool.info().disks.iter().map(|disk| disk.counters.bad_blocks).max();
    assert!(shown < Some(100), "{shown:?} times a bad block was read: it is set aside");
    bench.world.halt();
}

/// A client that reads again and again what nobody can heal gets its error each time, and no disk is retired for that.
pub fn a_block_that_nobody_can_heal_is_held_against_its_disk_once() {
    let (bench, fill, disks) = behind_a_cache((32, 8), 16 << 20);
    write_anywhere(&bench, fill, Nanos::millis(50));
    let pool = bench.pool.clone();
    block_on(&bench.world, async move { pool.destage_everything().await });
    assert!(spoil_some(&bench, &disks) > 0, "something rests there");
    let (vdisk, size) = (bench.vdisk.clone(), bench.vdisk.size().0);
    let errors = block_on(&bench.world, async move {
        let read = async |at: u64| vdisk.read(VirtualOffset(at), &mut [0; SMALL.0 as usize]).await.is_err();
        let mut at = 0;
        while at < size && !read(at).await {
            at += SMALL.0;
        }
        assert!(at < size, "something cannot be read");
        let mut errors = 0;
        for _ in 0..300 {
            errors += u64::from(read(at).await);
        }
        errors
    });
    let usage: Vec<Usage> = bench.pool.info().disks.iter().map(|disk| disk.usage).collect();
    assert_eq!((errors, usage.contains(&Usage::Retired)), (300, false), "{usage:?}");
    bench.world.halt();
}

/// A virtual disk is removed while its cache is emptied, or what rests there is packed again.
pub fn a_virtual_disk_may_go_while_its_cache_is_emptied() {
    for nth in sample(0..24) {
        let (bench, fill, _) = behind_a_cache((32, 4), 16 << 20);
        write_anywhere(&bench, fill, Nanos::secs(4));
        let counters = &bench.vdisk.counters;
        assert!(counters.repacked.get() > 0 && counters.destaged.get() > 0, "both is done");
        bench.world.run_until(Nanos::millis(nth * 3), || false);
        let pool = bench.pool.clone();
        block_on(&bench.world, async move { pool.vdisk_remove("vdisk").await.expect("it may go") });
        bench.world.run_until(Nanos::secs(1), || false);
        bench.world.halt();
    }
}

/// Spoils a unit of some packed stripes, on all disks that have it. Says of how many.
fn spoil_some(bench: &Bench, disks: &BTreeMap<DiskNo, SimDisk>) -> usize {
    let store = bench.pool.store();
    let map = store.map.borrow();
    let packs = map.tables.values().find(|table| table.record.packs.is_some()).expect("there is a cache");
    let fine = packs.record.packs.and_then(|of| map.fine(of)).expect("it has units");
    let blocks = packs.record.layout.strip_blocks() as u64;
    let resting = |(stripe, place)| Some((place, fine.units_in(stripe).find_map(|unit| fine.get(unit))?));
    let chosen: Vec<(Place, Spot)> = packs.mapped_in(0..u64::MAX).filter_map(resting).step_by(24).collect();
    for (place, spot) in &chosen {
        for at in map.segments[&place.segment].record.slabs.iter().flatten() {
            disks[&at.disk].spoil(store.slab_offset(*at, place.index as u64 * blocks + spot.index as u64));
        }
    }
    chosen.len()
}

/// 4 KiB anywhere, with a flush after 32 of them.
fn write_anywhere(bench: &Bench, fill: Case, span: Nanos) -> Random {
    on_bench(bench, Load { fill, len: SMALL, per_flush: 32, span, fine_share: SERVED_SHARE, cached_on: 2 })
}

/// A virtual disk of single parity with short stripes that is full, and a cache on two disks before it, which come with
/// it: MiB of the first on each disk, and of the second. The log is short.
fn behind_a_cache(sizes: (u64, u64), buffer_memory: u64) -> Cached {
    behind_a_cache_and(ByteCount::mib(32), sizes, buffer_memory)
}

/// [`behind_a_cache`] with such a log.
fn behind_a_cache_and(log: ByteCount, (per_disk, cache): (u64, u64), buffer_memory: u64) -> Cached {
    let layout = Layout::new(PARITY, 5, ByteCount::kib(64)).expect("this layout is valid");
    let per_disk = ByteCount::mib(per_disk);
    let fill = Case { layout, request: ByteCount::mib(1), per_disk, flush_stripes: None };
    let bench = filled_behind(log, fill, (SERVED_SHARE, buffer_memory));
    let cache = ByteCount::mib(cache);
    let disks = Flash { class: SsdClass::SATA_SSD, disks: 2, protected: false, cache }.add_to(&bench);
    (bench, fill, disks)
}
