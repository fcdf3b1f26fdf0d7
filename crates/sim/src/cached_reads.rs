//! Reads that seek the same again and again, on simulated hard disks, without and with a read cache on one solid-state
//! disk.

use crate::disk::SimDisk;
use crate::rng::Rng;
use crate::streams::{Bench, CLASS, Case, LOG, Shape};
use crate::timing::{Ssd, SsdClass};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::record::{Media, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::Disk;
use weft_engine::pool::NewDisk;
use weft_engine::pool::read_cache::ReadCacheAsk;
use weft_engine::store::{Tuning, join};
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::world::World;

/// The columns of what [`Reads`] prints.
pub const HEADING: &str = "                                   reads/s   hits   mean ms   99 % ms   SSD written/s";
/// Bytes that each disk has of the virtual disk.
const PER_DISK: ByteCount = ByteCount::mib(256);
/// Reads that are under way at once.
const DEPTH: u64 = 8;
/// How often the second most wanted is wanted, for each time that the most wanted is: 2^-0.99; and so on.
const ZIPF: f64 = 0.99;
/// For so long the cache is filled before anything is measured.
const WARM_UP: Nanos = Nanos::secs(300);
/// In so many parts.
const PARTS: u64 = 100;
/// For so long it is measured.
const SPAN: Nanos = Nanos::secs(30);

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes of a read.
    pub len: ByteCount,
    /// The read cache; 0 bytes: none.
    pub cache: ByteCount,
}

/// What came of it.
pub struct Reads {
    load: Load,
    /// Reads per second.
    pub rate: f64,
    /// The share of them that the cache had.
    pub hits: f64,
    mean: Nanos,
    p99: Nanos,
    written: f64,
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = if self.load.cache == ByteCount::ZERO { "none".into() } else { self.load.cache.to_string() };
        let name = format!("{} reads, cache {cache}", self.load.len);
        let ms = |time: Nanos| time.0 as f64 / 1e6;
        let (rate, hits, mean, p99) = (self.rate, self.hits * 100.0, ms(self.mean), ms(self.p99));
        write!(f, "{name:<32} {rate:>9.0} {hits:>5.0}% {mean:>9.2} {p99:>9.2}   {:>7.2} MB", self.written / 1e6)
    }
}

/// What is run for people: 4 KiB and 64 KiB, without a cache, and with one of an eighth and of half of the virtual
/// disk.
pub fn loads() -> impl Iterator<Item = Load> {
    let of = |len| [0, 128, 512].map(|mib| Load { len, cache: ByteCount::mib(mib) });
    [ByteCount::kib(4), ByteCount::kib(64)].into_iter().flat_map(of)
}

/// Measures it.
pub fn run(load: Load) -> Reads {
    let layout = Layout::new(Resiliency::Parity { parity: 1 }, 5, ByteCount::kib(256)).expect("this layout is valid");
    let fill = Case { layout, request: ByteCount::mib(1), per_disk: PER_DISK, flush_stripes: None };
    let filled = PER_DISK * layout.data_columns() as u64;
    let size = filled + ByteCount::mib(1);
    let (slab, tuning) = (crate::streams::slab(), Tuning::default());
    let bench = Bench::of(&Shape { class: CLASS, disks: layout.slots(), layout, size, slab, log: LOG, tuning });
    bench.pass(fill, 1.0, 1);
    let cache = (load.cache > ByteCount::ZERO).then(|| add_cache(&bench, load.cache));
    let wanted = Rc::new(Zipf::new(filled.0 / load.len.0));
    for part in 0..PARTS {
        read_for(&bench, load, &wanted, Nanos(WARM_UP.0 / PARTS), 100 + part);
        // A cache needs no flush, but a simulated disk keeps all that was written since the last one.
        if let Some(disk) = cache.clone() {
            crate::streams::block_on(&bench.world, async move { disk.flush().await.expect("flushes work") });
        }
    }
    let counters = || {
        let (counters, store) = (&bench.vdisk.counters, bench.pool.store());
        let filled = store.shelf_info(bench.vdisk.id()).map_or(0, |shelf| shelf.counters.filled);
        (counters.kept_hits.get(), counters.kept_misses.get(), filled)
    };
    let before = counters();
    let mut took = read_for(&bench, load, &wanted, SPAN, 6);
    let after = counters();
    took.sort_unstable();
    let (hits, misses) = (after.0 - before.0, after.1 - before.1);
    let seconds = SPAN.0 as f64 / 1e9;
    bench.world.halt();
    Reads {
        load,
        rate: took.len() as f64 / seconds,
        hits: hits as f64 / (hits + misses).max(1) as f64,
        mean: Nanos(took.iter().map(|took| took.0).sum::<u64>() / took.len().max(1) as u64),
        p99: crate::mixed::quantile(&took, 990),
        written: (after.2 - before.2) as f64 / seconds,
    }
}

/// Reads what is wanted for a span. How long each read took.
fn read_for(bench: &Bench, load: Load, wanted: &Rc<Zipf>, span: Nanos, seed: u64) -> Vec<Nanos> {
    let (vdisk, world, wanted) = (bench.vdisk.clone(), bench.world.clone(), wanted.clone());
    crate::streams::block_on(&bench.world, async move {
        let (took, end) = (RefCell::new(Vec::new()), Nanos(world.now().0 + span.0));
        let rng = Cell::new(Rng::new(seed));
        let client = |_| async {
            let mut buf = vec![0; load.len.as_usize()];
            while world.now() < end {
                let mut drawn = rng.replace(Rng::new(0));
                let at = wanted.draw(&mut drawn) * load.len.0;
                rng.set(drawn);
                let began = world.now();
                vdisk.read(VirtualOffset(at), &mut buf).await.expect("reads work");
                took.borrow_mut().push(world.now().since(began));
            }
        };
        join((0..DEPTH).map(client)).await;
        took.into_inner()
    })
}

/// Adds a SATA solid-state disk, and a read cache on it.
fn add_cache(bench: &Bench, size: ByteCount) -> Rc<SimDisk> {
    let (pool, world) = (bench.pool.clone(), bench.world.clone());
    crate::streams::block_on(&bench.world, async move {
        let class = SsdClass::SATA_SSD;
        let disk = Rc::new(SimDisk::new(&world, class.shape(ByteCount::gib(16)), Box::new(Ssd::new(class))));
        let new = NewDisk { disk: disk.clone(), id: Id([0x50; 16]), name: "s0".into(), media: Media::Ssd };
        pool.disk_add(new, Usage::ManualSelect).await.expect("it joins");
        let ask = ReadCacheAsk { size, disks: DiskSet::EMPTY };
        pool.vdisk_set_read_cache("vdisk", Some(&ask)).await.expect("there is room");
        disk
    })
}

/// Places of which each is wanted less than the one before, scattered.
struct Zipf {
    /// The sum of the shares up to each rank.
    sums: Vec<f64>,
}

impl Zipf {
    fn new(count: u64) -> Zipf {
        assert!(count.is_power_of_two(), "they are scattered by an odd number");
        let shares = (1..=count).map(|rank| (rank as f64).powf(-ZIPF));
        let sums = shares.scan(0.0, |sum, share| {
            *sum += share;
            Some(*sum)
        });
        Zipf { sums: sums.collect() }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let all = self.sums[self.sums.len() - 1];
        let drawn = rng.below(1 << 53) as f64 / (1u64 << 53) as f64 * all;
        let rank = self.sums.partition_point(|sum| *sum <= drawn).min(self.sums.len() - 1) as u64;
        rank.wrapping_mul(0x9e37_79b9_7f4a_7c15 | 1) % self.sums.len() as u64
    }
}
