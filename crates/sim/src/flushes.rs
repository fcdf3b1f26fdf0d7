//! What a flush costs, in revolutions of the disks: clients that wait for every flush, alone, beside a stream, and
//! beside so many small writes that checkpoints and merges never rest. Time is virtual: the same on every machine.

use crate::disk::SimDisk;
use crate::mixed::quantile;
use crate::rng::Rng;
use crate::streams::{BEGIN, Bench, CLASS, Shape, USUAL_LOG, block_on, pattern, stream_at, thin};
use crate::timing::{HddClass, Ssd, SsdClass};
use crate::world::{Scheduling, SimWorld};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use weft_engine::format::record::Media;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::DiskShape;
use weft_engine::limits::SLAB_DEFAULT;
use weft_engine::store::{Tuning, join};
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;

/// Bytes at the start of the virtual disk that are filled before anything is measured.
const FILLED: ByteCount = ByteCount::mib(512);
/// Where a client appends.
const APPENDS_AT: u64 = (4 << 30) + BEGIN;
/// A seek from the log to data a quarter of the disk away; it stands for all seeks there.
const FAR: u64 = 7_000_000;
/// Bytes of an append.
const APPEND: ByteCount = ByteCount::kib(64);

/// For so long clients write that are many at once: longer than a disk's cache hides what it cannot keep up with.
const SPAN: Nanos = Nanos::secs(5);

/// What the client does whose flushes are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Nothing, for [`SPAN`]: what goes on beside it is measured alone.
    Nothing,
    /// Writes 4 KiB with FUA, one behind the other.
    FuaInOrder,
    /// Writes 4 KiB with FUA, anywhere in what was filled.
    FuaAnywhere,
    /// Appends 64 KiB, one at a time, with a flush every so many bytes.
    Appends(ByteCount),
    /// Writes 4 KiB with FUA, anywhere in what was filled, by so many clients at once, for [`SPAN`].
    FuaAtOnce(u64),
}

/// What goes on meanwhile, on another virtual disk of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// A stream of 1 MiB writes, 4 at once.
    Stream,
    /// 4 KiB writes anywhere, 32 at once with a flush behind each 32.
    SmallWrites,
}

/// What the disks are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// Hard disks of 7200 rpm.
    Hdd,
    /// Hard disks whose data lies far from their log.
    HddFar,
    /// SATA solid-state disks.
    SataSsd,
    /// NVMe solid-state disks.
    NvmeSsd,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its disks, as many as the layout uses.
    pub medium: Medium,
    /// Layout of the virtual disk.
    pub layout: Layout,
    /// What is measured.
    pub load: Load,
    /// What goes on meanwhile.
    pub beside: Beside,
    /// How many flushes are measured, where they are counted.
    pub flushes: u64,
    /// Whether the disks' caches are not volatile.
    pub protected: bool,
}

/// What a measurement gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was run.
    pub case: Case,
    /// How long flushes, or writes with FUA, took; sorted.
    pub took: Vec<Nanos>,
    /// Bytes that the client wrote per second, flushes included.
    pub rate: f64,
    /// Bytes that what went on meanwhile wrote per second.
    pub beside_rate: f64,
    /// Checkpoints meanwhile.
    pub checkpoints: u64,
    /// Bytes that left merged with old ones meanwhile, of both virtual disks.
    pub merged: u64,
    /// Flushes that the disks got meanwhile.
    pub sent: u64,
}

/// All rows.
pub fn cases(medium: Medium, flushes: u64) -> Vec<Case> {
    let layouts = [(Resiliency::Parity { parity: 1 }, 5), (Resiliency::Mirror { copies: 2 }, 1)]
        .map(|(kind, columns)| Layout::new(kind, columns, ByteCount::kib(256)).expect("these layouts are valid"));
    let apart = [64, 256, 1024, 2048, 4096, 16384].map(ByteCount::kib);
    let appends = apart.map(|apart| (Load::Appends(apart), Beside::Nothing));
    let mut loads = vec![(Load::FuaInOrder, Beside::Nothing)];
    loads.extend(appends);
    loads.extend([
        (Load::FuaAnywhere, Beside::Nothing),
        (Load::Nothing, Beside::Stream),
        (Load::FuaInOrder, Beside::Stream),
        (Load::FuaInOrder, Beside::SmallWrites),
        (Load::Appends(ByteCount::mib(1)), Beside::Stream),
    ]);
    let case = |layout, load, beside| {
        // Large ones, and what goes on beside a stream, take long, and memory.
        let few = if beside == Beside::Stream { flushes / 4 } else { flushes };
        let flushes = if let Load::Appends(apart) = load { few.min((384 << 20) / apart.0) } else { few };
        Case { medium, layout, load, beside, flushes, protected: false }
    };
    let rows = layouts.iter().flat_map(|layout| loads.iter().map(|(load, beside)| case(*layout, *load, *beside)));
    rows.collect()
}

/// Rows in pairs: the same on disks that are flushed, and on disks that need no flush.
pub fn power_cases() -> Vec<[Case; 2]> {
    let mut rows = Vec::new();
    for medium in [Medium::Hdd, Medium::SataSsd, Medium::NvmeSsd] {
        for (kind, columns) in [(Resiliency::Mirror { copies: 2 }, 1), (Resiliency::Parity { parity: 1 }, 5)] {
            let layout = Layout::new(kind, columns, ByteCount::kib(256)).expect("these layouts are valid");
            for load in [Load::FuaAtOnce(1), Load::FuaAtOnce(32)] {
                let beside = Beside::Nothing;
                rows.push([false, true].map(|protected| Case { medium, layout, load, beside, flushes: 0, protected }));
            }
        }
    }
    rows
}

/// Runs a case.
pub fn run(case: Case) -> Outcome {
    run_tuned(case, Tuning::default())
}

fn run_tuned(case: Case, tuning: Tuning) -> Outcome {
    let bench = bench(case.medium, case.layout, tuning);
    bench.disks.iter().for_each(|disk| disk.protect(case.protected));
    let other = other_vdisk(&bench, case.layout);
    fill(&bench.world, &bench.vdisk);
    if case.beside == Beside::SmallWrites {
        fill(&bench.world, &other);
    }
    let pause = bench.world.clone();
    block_on(&bench.world, async move { pause.sleep(Nanos::secs(20)).await });
    let (stop, beside) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    start_beside(&bench.world, case.beside, &other, &stop, &beside);
    let (host, vdisk) = (bench.world.clone(), bench.vdisk.clone());
    let merged = || bench.vdisk.counters.merged.get() + other.counters.merged.get();
    let checkpoints = || bench.pool.store().counters.checkpoints.get();
    let sent = || bench.disks.iter().map(|disk| disk.stats().flushes).sum::<u64>();
    let before = (merged(), checkpoints(), sent());
    let (mut took, written, span, besides) = block_on(&bench.world, async move {
        // What goes on meanwhile is at its height by then.
        if case.beside != Beside::Nothing {
            host.sleep(Nanos::secs(3)).await;
        }
        let (start, seen) = (host.now(), beside.get());
        let (took, written) = measure(&host, &vdisk, case).await;
        stop.set(true);
        (took, written, host.now().since(start), beside.get() - seen)
    });
    took.sort_unstable();
    let per_second = |bytes: u64| bytes as f64 * 1e9 / span.0 as f64;
    let outcome = Outcome {
        case,
        took,
        rate: per_second(written),
        beside_rate: per_second(besides),
        checkpoints: checkpoints() - before.1,
        merged: merged() - before.0,
        sent: sent() - before.2,
    };
    bench.world.halt();
    outcome
}

/// A client whose flushes wait for many stripes, alone: however little is written between commits for the sake of those
/// who flush, these stripes do not wait. What does not hold.
pub fn a_flush_of_many_stripes_is_not_held_for_flushes() -> Option<String> {
    let layout = Layout::new(Resiliency::Parity { parity: 1 }, 5, ByteCount::kib(256)).expect("the layout is valid");
    let (load, beside) = (Load::Appends(ByteCount::mib(32)), Beside::Nothing);
    let case = Case { medium: Medium::Hdd, layout, load, beside, flushes: 6, protected: false };
    let took = |flush_turn_bytes| {
        let outcome = run_tuned(case, Tuning { flush_turn_bytes, ..Tuning::default() });
        outcome.took.iter().map(|took| took.0).sum::<u64>() / 1_000_000
    };
    let (with, without) = (took(64 << 10), took(u64::MAX));
    (with > without + without / 10).then(|| format!("6 flushes took {with} ms, and {without} ms where nothing is held"))
}

/// The client; how long each of its flushes took, and how many bytes it wrote.
async fn measure(host: &SimWorld, vdisk: &Rc<Vdisk>, case: Case) -> (Vec<Nanos>, u64) {
    if case.load == Load::Nothing {
        host.sleep(SPAN).await;
        return (vec![Nanos(0)], 0);
    }
    if let Load::FuaAtOnce(clients) = case.load {
        let all = (0..clients).map(|client| fua_anywhere(host, vdisk, client));
        let took: Vec<Nanos> = join(all).await.into_iter().flatten().collect();
        let written = took.len() as u64 * 4096;
        return (took, written);
    }
    let (mut took, mut at, mut rng) = (Vec::new(), APPENDS_AT, Rng::new(5));
    let (block, append) = (pattern(3, ByteCount::kib(4)), pattern(4, APPEND));
    let first = at;
    for nth in 0..case.flushes {
        if let Load::Appends(apart) = case.load {
            for _ in 0..apart.0 / APPEND.0 {
                vdisk.write(VirtualOffset(at), &append, false).await.expect("a sound pool takes writes");
                at += APPEND.0;
            }
        }
        let start = host.now();
        let done = match case.load {
            Load::FuaInOrder => vdisk.write(VirtualOffset(APPENDS_AT + nth * 4096), &block, true).await,
            Load::FuaAnywhere => vdisk.write(VirtualOffset(rng.below(FILLED.0 / 4096) * 4096), &block, true).await,
            Load::Appends(_) => vdisk.flush().await,
            Load::FuaAtOnce(_) | Load::Nothing => unreachable!("measured above"),
        };
        done.expect("a sound pool flushes");
        took.push(host.now().since(start));
        if !matches!(case.load, Load::Appends(_)) {
            at += 4096;
        }
    }
    (took, at - first)
}

/// A client that writes 4 KiB with FUA, one behind the other; how long each took.
async fn fua_anywhere(host: &SimWorld, vdisk: &Rc<Vdisk>, client: u64) -> Vec<Nanos> {
    let (block, mut rng, mut took) = (pattern(3, ByteCount::kib(4)), Rng::new(5 + client), Vec::new());
    let end = host.now() + SPAN;
    while host.now() < end {
        let start = host.now();
        let at = VirtualOffset(rng.below(FILLED.0 / 4096) * 4096);
        vdisk.write(at, &block, true).await.expect("a sound pool takes writes");
        took.push(host.now().since(start));
    }
    took
}

fn start_beside(world: &SimWorld, beside: Beside, vdisk: &Rc<Vdisk>, stop: &Rc<Cell<bool>>, bytes: &Rc<Cell<u64>>) {
    let (stop, bytes, vdisk) = (stop.clone(), bytes.clone(), vdisk.clone());
    match beside {
        Beside::Nothing => {}
        Beside::Stream => {
            let next = Rc::new(Cell::new(0));
            for _ in 0..4 {
                let (stop, bytes, vdisk, next) = (stop.clone(), bytes.clone(), vdisk.clone(), next.clone());
                let data = pattern(5, ByteCount::mib(1));
                let client = async move {
                    while !stop.get() {
                        // Round and round in what memory has room for.
                        let at = next.replace(next.get() + 1) % 256;
                        vdisk.write(VirtualOffset(at << 20), &data, false).await.expect("a sound pool takes writes");
                        bytes.set(bytes.get() + (1 << 20));
                    }
                };
                world.spawn("client", Box::pin(client));
            }
        }
        Beside::SmallWrites => {
            let (data, mut rng) = (pattern(6, ByteCount::kib(4)), Rng::new(7));
            let client = async move {
                while !stop.get() {
                    let places: Vec<u64> = (0..32).map(|_| rng.below(FILLED.0 / 4096) * 4096).collect();
                    let write = |at: &u64| vdisk.write(VirtualOffset(*at), &data, false);
                    join(places.iter().map(write)).await.into_iter().for_each(|written| written.expect("writes work"));
                    vdisk.flush().await.expect("flushes work");
                    bytes.set(bytes.get() + 32 * 4096);
                }
            };
            world.spawn("client", Box::pin(client));
        }
    }
}

fn fill(world: &SimWorld, vdisk: &Rc<Vdisk>) {
    let (data, writing) = (Rc::new(pattern(1, ByteCount::mib(1))), vdisk.clone());
    let one = move |at: u64| {
        let (vdisk, data) = (writing.clone(), data.clone());
        async move { vdisk.write(VirtualOffset(at), &data, false).await.expect("a sound pool takes writes") }
    };
    let (host, vdisk) = (world.clone(), vdisk.clone());
    block_on(world, async move {
        stream_at(&host, 0..FILLED.0, 1 << 20, 8, one).await;
        vdisk.flush().await.expect("a sound pool flushes");
    });
}

pub(crate) fn bench(medium: Medium, layout: Layout, tuning: Tuning) -> Bench {
    let shape = Shape {
        class: CLASS,
        disks: layout.slots(),
        layout,
        size: ByteCount::gib(64),
        slab: SLAB_DEFAULT,
        log: USUAL_LOG,
        tuning,
    };
    let class = match medium {
        Medium::Hdd => return Bench::of(&shape),
        Medium::HddFar => {
            let class = HddClass { settle: FAR, ..CLASS };
            return Bench::of(&Shape { class, ..shape });
        }
        Medium::SataSsd => SsdClass::SATA_SSD,
        Medium::NvmeSsd => SsdClass::NVME_SSD,
    };
    let world = SimWorld::new(1, Scheduling::Fifo);
    let look = DiskShape { capacity: class.capacity, physical_sector: 4096, rotational: false };
    let disk = |_| SimDisk::new(&world, look, Box::new(Ssd::new(class.clone())));
    let disks = (0..shape.disks).map(disk).collect();
    Bench::on(world, disks, Media::Ssd, &shape)
}

fn other_vdisk(bench: &Bench, layout: Layout) -> Rc<Vdisk> {
    let spec = thin("other", layout, ByteCount::gib(64));
    let pool = bench.pool.clone();
    block_on(&bench.world, async move { pool.vdisk_create(&spec).await.expect("there is room") })
}

/// The heading of a table of [`Outcome`]s.
pub const HEADING: &str = "medium  layout                                 client                      beside      \
   p50 ms   rev   p99 ms   rev p99.9 ms   rev   max ms   rev     MB/s   beside checkpoints  merged MiB";

/// The heading of a table of [`power_row`]s.
pub const POWER_HEADING: &str = "\
| disks | layout | at once | flushed: p50, ms | p99 | longest | writes/s | not flushed: p50, ms | p99 | longest | writes/s | flushes for each write: before | then |
|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// A row of that table: what disks that are flushed gave, and disks that need no flush.
pub fn power_row([flushed, spared]: &[Outcome; 2]) -> String {
    let Case { medium, layout, load, .. } = flushed.case;
    let clients = if let Load::FuaAtOnce(clients) = load { clients } else { 1 };
    let side = |outcome: &Outcome| {
        let [p50, p99, longest] = [500, 990, 1000].map(|per_mille| quantile(&outcome.took, per_mille).0 as f64 / 1e6);
        format!("{p50:.3} | {p99:.3} | {longest:.1} | {:.0}", outcome.rate / 4096.0)
    };
    let each = |outcome: &Outcome| format!("{:.2}", outcome.sent as f64 / outcome.took.len() as f64);
    let (left, right, before, then) = (side(flushed), side(spared), each(flushed), each(spared));
    format!("| {medium:?} | {layout} | {clients} | {left} | {right} | {before} | {then} |")
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { medium, layout, load, beside, .. } = self;
        let load = match load {
            Load::Nothing => String::from("nothing"),
            Load::FuaInOrder => String::from("4 KiB FUA in order"),
            Load::FuaAnywhere => String::from("4 KiB FUA anywhere"),
            Load::Appends(apart) => format!("64 KiB, flush each {apart}"),
            Load::FuaAtOnce(clients) => format!("4 KiB FUA, {clients} at once"),
        };
        let beside = match beside {
            Beside::Nothing => "",
            Beside::Stream => "a stream",
            Beside::SmallWrites => "small writes",
        };
        write!(f, "{:7} {:38} {load:27} {beside:12}", format!("{medium:?}"), layout.to_string())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.case)?;
        for per_mille in [500, 990, 999, 1000] {
            let took = quantile(&self.took, per_mille).0 as f64;
            write!(f, " {:8.2} {:5.1}", took / 1e6, took / CLASS.revolution as f64)?;
        }
        let (rate, beside_rate) = (self.rate / 1e6, self.beside_rate / 1e6);
        write!(f, " {rate:8.2} {beside_rate:8.2} {:11} {:11}", self.checkpoints, self.merged >> 20)
    }
}
