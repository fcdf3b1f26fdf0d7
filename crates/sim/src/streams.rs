//! Sequential streams on simulated hard disks, beside what one raw disk of the same model does in the same place: the
//! judge of the engine's policies. Virtual time is exact, so the figures are the same on every machine.
//!
//! A client keeps some requests under way (as a page cache or nbdcopy does), begins off every stripe border, and
//! flushes at the end, or every so many bytes; the flush counts. The raw disk gets the same kind of requests, as many
//! bytes as a column of the virtual disk, and its flush at the end; as disks do not share anything in the model, one
//! disk stands for all of them loaded at once.

use crate::disk::SimDisk;
use crate::timing::{Hdd, HddClass};
use crate::world::{Scheduling, SimWorld};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::Id;
use weft_engine::format::record::Media;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::{Buf, Disk};
use weft_engine::pool::create::create;
use weft_engine::pool::{NewDisk, OpenOptions, Pool, PoolOptions, VdiskSpec};
use weft_engine::store::Tuning;
use weft_engine::sync::{Promise, promise};
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;

/// The disks of every run.
pub const CLASS: HddClass = HddClass::HDD_7200_8TB;
/// What a stream is held to, of data columns x one disk's rate.
pub const LEAST: f64 = 0.90;
/// Requests a client keeps under way, and bytes, whichever is more.
const UNDER_WAY: (u64, u64) = (16, 8 << 20);
/// The part of what a reader reads that does not count, because it lies behind what does, as a divisor.
const GOES_ON: u64 = 5;
/// Where streams begin: off every stripe, strip and checksum border but a sector's.
pub(crate) const BEGIN: u64 = 20 << 10;
/// Bytes of the log ring: less than such disks get by default, as reading it through when the pool opens takes long.
pub const LOG: ByteCount = ByteCount::mib(128);
/// Bytes of the log ring that such disks get by default.
pub const USUAL_LOG: ByteCount = ByteCount::gib(1);

/// A stream on a virtual disk whose pool has as many disks as it has columns.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Layout of the virtual disk.
    pub layout: Layout,
    /// Bytes of a request.
    pub request: ByteCount,
    /// Bytes that each disk gets.
    pub per_disk: ByteCount,
    /// The client flushes after so many stripes; none: at the end only.
    pub flush_stripes: Option<u64>,
}

/// What one pass over the virtual disk gave.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// User bytes written, per second.
    pub rate: f64,
    /// `rate` / (data columns x the raw disk's rate).
    pub ratio: f64,
    /// User bytes that left in whole stripes, or are held until they do for the sake of flushes / user bytes written.
    pub whole: f64,
    /// User bytes that left merged with what was there before.
    pub merged: u64,
    /// User bytes that a flush forced into the log.
    pub landed: u64,
    /// Bytes read because of writes, as the virtual disk counts them.
    pub read_for_write: u64,
    /// Bytes read from all disks meanwhile, metadata included.
    pub disk_read: u64,
    /// Flushes of the busiest disk.
    pub flushes: u64,
    /// Log batches.
    pub batches: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

/// First fill and overwrite, beside the raw disk.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// What was run.
    pub case: Case,
    /// Bytes per second of one raw disk.
    pub raw: f64,
    /// The fill of a new virtual disk.
    pub first: Pass,
    /// The second overwrite of it: what is written lands where the fill and the first overwrite had been.
    pub second: Pass,
}

impl Outcome {
    /// What does not hold: the rate, where one is asked for; and that streams leave in whole stripes and read nothing.
    pub fn complaints(&self, least: Option<f64>) -> Vec<String> {
        let mut found = Vec::new();
        for (pass, name) in [(self.first, "first fill"), (self.second, "second overwrite")] {
            let mut hold = |holds: bool, what: String| {
                if !holds {
                    found.push(format!("{name}: {what}"));
                }
            };
            hold(least.is_none_or(|least| pass.ratio >= least), format!("{:.3} of the disks' rate", pass.ratio));
            hold(pass.whole >= 0.99, format!("{:.2} % left in whole stripes", pass.whole * 100.0));
            // Where flushes have all of a stream land, the log is emptied of its two ends.
            let ends = self.case.flush_stripes.map_or(0, |_| 2 * self.case.layout.data_len().0);
            hold(pass.merged <= ends, format!("{} bytes left merged with old ones", pass.merged));
            hold(pass.read_for_write <= ends, format!("{} bytes were read because of writes", pass.read_for_write));
            hold(pass.disk_read <= 2 * ends, format!("{} bytes were read from the disks", pass.disk_read));
        }
        found
    }
}

/// Every layout that the streams are held to.
pub fn layouts(interleave: ByteCount) -> Vec<Layout> {
    let single = [3, 4, 5, 7, 8, 12].map(|columns| (1, columns));
    let dual = [4, 6, 7, 10].map(|columns| (2, columns));
    let layout = |(parity, columns)| Layout::new(Resiliency::Parity { parity }, columns, interleave);
    single.into_iter().chain(dual).map(|shape| layout(shape).expect("these layouts are valid")).collect()
}

/// The interleaves that the streams are held to.
pub const INTERLEAVES: [ByteCount; 4] =
    [ByteCount::kib(16), ByteCount::kib(64), ByteCount::kib(96), ByteCount::kib(256)];
/// The request sizes that the streams are held to.
pub const REQUESTS: [ByteCount; 4] = [ByteCount::kib(4), ByteCount::kib(64), ByteCount::mib(1), ByteCount::mib(4)];

/// Every layout with every interleave; `full`: with every request size, else with one, by turns.
pub fn cases(full: bool, per_disk: ByteCount) -> Vec<Case> {
    let mut cases = Vec::new();
    for (row, interleave) in INTERLEAVES.into_iter().enumerate() {
        for (column, layout) in layouts(interleave).into_iter().enumerate() {
            let all = REQUESTS.into_iter().enumerate();
            let chosen = all.filter(|(nth, _)| full || *nth == (row + column) % REQUESTS.len());
            cases.extend(chosen.map(|(_, request)| Case { layout, request, per_disk, flush_stripes: None }));
        }
    }
    cases
}

/// One case for each layout; interleaves and request sizes by turns, so that all of them occur with single and with
/// dual parity.
pub fn sample(per_disk: ByteCount) -> impl Iterator<Item = Case> {
    (0..layouts(INTERLEAVES[0]).len()).map(move |nth| {
        let layout = layouts(INTERLEAVES[nth % INTERLEAVES.len()])[nth];
        Case { layout, request: REQUESTS[(nth + nth / 5) % REQUESTS.len()], per_disk, flush_stripes: None }
    })
}

/// Runs a case.
pub fn run(case: Case) -> Outcome {
    let raw = raw_rate(case, Direction::Write);
    let bench = Bench::new(case.layout, Tuning::default(), LOG);
    let first = bench.pass(case, raw, 1);
    bench.pass(case, raw, 2);
    let second = bench.pass(case, raw, 3);
    bench.world.halt();
    Outcome { case, raw, first, second }
}

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the disks.
    Read,
    /// To the disks.
    Write,
}

/// Bytes per second of one raw disk where the pool would put the data.
pub fn raw_rate(case: Case, direction: Direction) -> f64 {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disk = SimDisk::new(&world, CLASS.shape(CLASS.capacity), Box::new(Hdd::new(CLASS)));
    let plan = weft_engine::format::label::DiskPlan::new(CLASS.capacity, slab(), Some(LOG));
    let data_at = plan.expect("the disk is large enough").data_at;
    let (len, inner) = (case.request, disk.clone());
    let slice = Buf::copy_of(&pattern(1, len)).freeze();
    let one = move |at: u64| {
        let (disk, slice) = (inner.clone(), slice.clone());
        async move {
            let at = data_at + ByteCount(at);
            match direction {
                Direction::Write => disk.write(at, vec![slice]).await,
                Direction::Read => disk.read(at, Buf::zeroed(len.as_usize())).await.map(|_| ()),
            }
            .expect("a sound disk works");
        }
    };
    let (host, total) = (world.clone(), case.per_disk.0 / len.0 * len.0);
    let took = block_on(&world, async move {
        let start = host.now();
        stream(&host, 0..total, len.0, one).await;
        if direction == Direction::Write {
            disk.flush().await.expect("a sound disk works");
        }
        host.now().since(start)
    });
    per_second(total, took)
}

/// What a [`Bench`] is made of.
pub struct Shape {
    /// Its disks, all alike.
    pub class: HddClass,
    /// How many.
    pub disks: usize,
    /// Layout of its virtual disk.
    pub layout: Layout,
    /// Size of its virtual disk.
    pub size: ByteCount,
    /// Bytes of a slab.
    pub slab: ByteCount,
    /// Bytes of the log ring.
    pub log: ByteCount,
    /// Tuning of the engine.
    pub tuning: Tuning,
}

/// A pool of hard disks with one thin virtual disk.
pub struct Bench {
    /// Its clock.
    pub world: SimWorld,
    /// Its disks.
    pub disks: Vec<SimDisk>,
    /// The open pool.
    pub pool: Rc<Pool>,
    /// The virtual disk.
    pub vdisk: Rc<Vdisk>,
}

impl Bench {
    /// A new pool of as many disks as the layout uses, just opened, and a virtual disk of 64 GiB per column on it.
    pub fn new(layout: Layout, tuning: Tuning, log: ByteCount) -> Bench {
        let size = ByteCount::gib(64) * layout.data_columns() as u64;
        Bench::of(&Shape { class: CLASS, disks: layout.slots(), layout, size, slab: slab(), log, tuning })
    }

    /// A new pool, just opened, and its virtual disk. No two disks have turned as far as each other.
    pub fn of(shape: &Shape) -> Bench {
        let class = &shape.class;
        let world = SimWorld::new(1, Scheduling::Fifo);
        let disk = |nth| SimDisk::new(&world, class.shape(class.capacity), Box::new(Hdd::among(class.clone(), nth)));
        let disks = (0..shape.disks).map(disk).collect();
        Bench::on(world, disks, Media::Hdd, shape)
    }

    /// A new pool of these disks, whatever class of them the shape names, just opened, and its virtual disk.
    pub fn on(world: SimWorld, disks: Vec<SimDisk>, media: Media, shape: &Shape) -> Bench {
        let layout = shape.layout;
        let new_disk = |(no, disk): (usize, &SimDisk)| NewDisk {
            disk: Rc::new(disk.clone()),
            id: Id([no as u8 + 1; 16]),
            name: format!("d{no}"),
            media,
        };
        let new: Vec<NewDisk> = disks.iter().enumerate().map(new_disk).collect();
        let members: Vec<Rc<dyn Disk>> = new.iter().map(|new| new.disk.clone()).collect();
        let host: Rc<dyn World> = Rc::new(world.clone());
        let (slab, log, tuning) = (shape.slab, shape.log, shape.tuning);
        let pool = block_on(&world, async move {
            let options = PoolOptions { id: Id([0xEE; 16]), name: "pool".into(), slab, log_len: Some(log) };
            create(new, &options).await.expect("a pool can be made");
            Pool::open(host, members, OpenOptions { tuning, ..OpenOptions::default() }).await.expect("the pool opens")
        });
        let spec = thin("vdisk", layout, shape.size);
        let maker = pool.clone();
        let vdisk = block_on(&world, async move { maker.vdisk_create(&spec).await.expect("there is room") });
        Bench { world, disks, pool, vdisk }
    }

    /// Writes the stream once; `word` is what it consists of.
    pub fn pass(&self, case: Case, raw: f64, word: u64) -> Pass {
        let counters = &self.vdisk.counters;
        let seen = || {
            [&counters.whole, &counters.merged, &counters.landed, &counters.read_for_write, &counters.written]
                .map(Cell::get)
        };
        let pool = || (self.pool.store().counters.batches.get(), self.pool.store().counters.checkpoints.get());
        let disk_read = || self.disks.iter().map(|disk| disk.stats().read_bytes.0).sum::<u64>();
        let flushes = || self.disks.iter().map(|disk| disk.stats().flushes).max().unwrap_or(0);
        let (before, pool_before, read_before, flushes_before) = (seen(), pool(), disk_read(), flushes());
        let took = self.write(case, word);
        let (after, pool_after) = (seen(), pool());
        let [whole, merged, landed, read_for_write, written] = std::array::from_fn(|at| after[at] - before[at]);
        let rate = per_second(written, took);
        let gathers = self.vdisk.gathering().len() as u64 * self.vdisk.stripe_len().0;
        let held = if case.flush_stripes.is_some() { gathers } else { 0 };
        Pass {
            rate,
            ratio: rate / (raw * case.layout.data_columns() as f64),
            whole: (whole + held) as f64 / written as f64,
            merged,
            landed,
            read_for_write,
            disk_read: disk_read() - read_before,
            flushes: flushes() - flushes_before,
            batches: pool_after.0 - pool_before.0,
            checkpoints: pool_after.1 - pool_before.1,
        }
    }

    fn write(&self, case: Case, word: u64) -> Nanos {
        let range = range_of(case);
        let data = Rc::new(pattern(word, case.request));
        let vdisk = self.vdisk.clone();
        let one = move |at: u64| {
            let (vdisk, data) = (vdisk.clone(), data.clone());
            async move { vdisk.write(VirtualOffset(at), &data, false).await.expect("a sound pool takes writes") }
        };
        let apart = case.flush_stripes.map(|stripes| stripes * case.layout.data_len().0);
        let step = apart.map_or(range.end - range.start, |apart| apart.next_multiple_of(case.request.0));
        let (host, vdisk) = (self.world.clone(), self.vdisk.clone());
        block_on(&self.world, async move {
            let start = host.now();
            let mut at = range.start;
            while at < range.end {
                let end = (at + step).min(range.end);
                stream(&host, at..end, case.request.0, one.clone()).await;
                vdisk.flush().await.expect("a sound pool flushes");
                at = end;
            }
            host.now().since(start)
        })
    }

    /// Reads what a pass wrote, in order, as if nobody had read it lately; bytes per second. The reader goes on behind
    /// what counts: what is read ahead is read for somebody then.
    pub fn read(&self, case: Case) -> f64 {
        self.pool.store().forget_streams(None);
        let (range, vdisk) = (range_of(case), self.vdisk.clone());
        let counts = range.start..range.end - (range.end - range.start) / GOES_ON / case.request.0 * case.request.0;
        let (left, end) = (Rc::new(Cell::new(counts.end - counts.start)), Rc::new(Cell::new(Nanos(0))));
        let (host, begin) = (self.world.clone(), self.world.now());
        let (to_come, came) = (left.clone(), end.clone());
        let one = move |at: u64| {
            let (host, vdisk, left, end) = (host.clone(), vdisk.clone(), to_come.clone(), came.clone());
            async move {
                let mut into = vec![0; case.request.as_usize()];
                vdisk.read(VirtualOffset(at), &mut into).await.expect("what was written can be read");
                if at < counts.end {
                    left.set(left.get() - case.request.0);
                    end.set(host.now());
                }
            }
        };
        let host = self.world.clone();
        block_on(&self.world, async move { stream(&host, range, case.request.0, one).await });
        assert_eq!(left.get(), 0);
        per_second(counts.end - counts.start, end.get().since(begin))
    }
}

/// The bytes of the virtual disk that a case writes.
fn range_of(case: Case) -> std::ops::Range<u64> {
    let total = case.per_disk.0 * case.layout.data_columns() as u64 / case.request.0 * case.request.0;
    BEGIN..BEGIN + total
}

/// Calls `one` for every `step` of `range`, in order, as many at once as a client keeps under way; ends when all have
/// ended.
pub(crate) async fn stream<F: Future<Output = ()> + 'static>(
    world: &SimWorld,
    range: std::ops::Range<u64>,
    step: u64,
    one: impl Fn(u64) -> F + Clone + 'static,
) {
    stream_at(world, range, step, UNDER_WAY.0.max(UNDER_WAY.1 / step), one).await;
}

/// Calls `one` for every `step` of `range`, in order, `depth` at once; ends when all have ended.
pub(crate) async fn stream_at<F: Future<Output = ()> + 'static>(
    world: &SimWorld,
    range: std::ops::Range<u64>,
    step: u64,
    depth: u64,
    one: impl Fn(u64) -> F + Clone + 'static,
) {
    let next = Rc::new(Cell::new(range.start));
    let mut ends = Vec::new();
    for _ in 0..depth.min((range.end - range.start).div_ceil(step)) {
        let (ended, end): (Promise<()>, _) = promise();
        ends.push(end);
        let (next, one) = (next.clone(), one.clone());
        let task = async move {
            while next.get() < range.end {
                let at = next.replace(next.get() + step);
                one(at).await;
            }
            ended.keep(());
        };
        world.spawn("client", Box::pin(task));
    }
    for end in ends {
        end.wait().await;
    }
}

pub(crate) fn block_on<T: 'static>(world: &SimWorld, future: impl Future<Output = T> + 'static) -> T {
    world.block_on(future).expect("it ends")
}

/// A thin virtual disk on any disks, with sectors of 4 KiB.
pub(crate) fn thin(name: &str, layout: Layout, size: ByteCount) -> VdiskSpec {
    VdiskSpec {
        name: name.into(),
        size,
        resiliency: layout.resiliency(),
        columns: Some(layout.columns() as u8),
        interleave: Some(layout.interleave()),
        fixed: false,
        sector: 4096,
        disks: DiskSet::EMPTY,
    }
}

pub(crate) fn pattern(word: u64, len: ByteCount) -> Vec<u8> {
    word.to_le_bytes().repeat(len.as_usize() / 8)
}

pub(crate) fn per_second(bytes: u64, took: Nanos) -> f64 {
    bytes as f64 * 1e9 / took.0 as f64
}

pub(crate) fn slab() -> ByteCount {
    weft_engine::limits::SLAB_DEFAULT
}

/// The heading of a table of [`Outcome`]s.
pub const HEADING: &str = "layout                                  request  raw MB/s   first fill           second overwrite      whole   read for write";

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { layout, request, .. } = self.case;
        write!(f, "{:38} {:>8} {:9.1}", layout.to_string(), request.to_string(), self.raw / 1e6)?;
        for pass in [&self.first, &self.second] {
            write!(f, "   {:8.1} MB/s {:5.3}", pass.rate / 1e6, pass.ratio)?;
        }
        let whole = self.first.whole.min(self.second.whole);
        let read = self.first.read_for_write + self.second.read_for_write;
        write!(f, "   {:6.2} %   {read}", whole * 100.0)
    }
}
