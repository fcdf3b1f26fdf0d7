//! `weft-sim mkpool`: pools of any size without the data, and what their metadata costs.
//!
//! Every stripe of one virtual disk is mapped, as if it had been written, but nothing is: what is not written reads as
//! an error, which its checksum says. The pool is made by the engine itself, on hard disks of which only what was
//! written takes memory. Then it is opened anew, read, changed in 10,000 places, and asked how it is.
//!
//! Bytes and virtual time are exact and the same each time; time of the processor is what this machine takes.

use crate::disk::SimDisk;
use crate::rig::Rig;
use crate::rng::Rng;
use crate::timing::{Hdd, HddClass};
use crate::world::{Scheduling, SimWorld};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weft_engine::disk_set::DiskSet;
use weft_engine::error::{Error, Result};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::limits::{DISKS_MAX, default_slab};
use weft_engine::pool::Pool;
use weft_engine::segment::allocate::Claim;
use weft_engine::segment::commit_record;
use weft_engine::stripe::table::Place;
use weft_engine::units::{BLOCK, ByteCount, Nanos, TableNo, VirtualOffset};
use weft_engine::world::World;

/// What is changed between two checkpoints.
const CHANGES: u64 = 10_000;
/// Those of them that are made before their records are durable.
const CHANGES_AT_ONCE: u64 = 100;
/// Segments that are made to see how long one takes.
const SEGMENTS: u32 = 1000;
/// Bytes that are left in the log when it is as full as it gets without anybody emptying it.
const LOG_LEFT: ByteCount = ByteCount::mib(16);
/// Stripes that land for that.
const LANDED_STRIPES: u64 = 64;
/// Stripes that are mapped between two checkpoints.
const AT_ONCE: u64 = 4 << 20;

/// The pools that are measured unless one is named.
const SIZES: [(usize, ByteCount); 4] = [
    (4, ByteCount(250_000_000_000 / BLOCK * BLOCK)),
    (4, ByteCount(1_000_000_000_000 / BLOCK * BLOCK)),
    (8, ByteCount(2_000_000_000_000 / BLOCK * BLOCK)),
    (16, ByteCount(4_000_000_000_000 / BLOCK * BLOCK)),
];

/// A pool that is to be made.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its disks.
    pub disks: usize,
    /// Bytes of each.
    pub capacity: ByteCount,
    /// Bytes of a slab.
    pub slab: ByteCount,
    /// The layout of its one virtual disk, which takes all room there is.
    pub layout: Layout,
}

/// What its metadata costs.
#[derive(Clone, Debug)]
pub struct Costs {
    /// Stripes that are mapped.
    pub stripes: u64,
    /// Bytes of all disks that hold metadata, as a share of all their bytes.
    pub metadata_share: f64,
    /// Virtual time from the first label that is read to the first answer to a client.
    pub open: Nanos,
    /// Time of the processor for that, without the simulated disks.
    pub open_cpu: Duration,
    /// Bytes that were read for that.
    pub open_read: ByteCount,
    /// Bytes of memory that the open pool counts in its budgets.
    pub memory: ByteCount,
    /// Its segments.
    pub segments: u64,
    /// Bytes of memory that segments and chunks take, about, which are in no budget.
    pub map: ByteCount,
    /// What it takes to open it when the power went after [`CHANGES`] changes.
    pub changed: Reopened,
    /// What it takes when the log was as full of landed data as it gets before somebody empties it.
    pub landed: Reopened,
    /// Bytes that a checkpoint writes to all disks after [`CHANGES`] changes here and there.
    pub checkpoint: ByteCount,
    /// Time of the processor for that.
    pub checkpoint_cpu: Duration,
    /// Time of the processor for one more segment.
    pub segment: Duration,
    /// Time of the processor for what `weft status` asks.
    pub status: Duration,
}

/// An opening after the power went, up to the first answer to a client.
#[derive(Clone, Copy, Debug)]
pub struct Reopened {
    /// Bytes of the log that count.
    pub log: ByteCount,
    /// Virtual time.
    pub time: Nanos,
    /// Time of the processor, without the simulated disks.
    pub cpu: Duration,
    /// Bytes that were read.
    pub read: ByteCount,
}

/// How the command is called.
pub const USAGE: &str = "weft-sim mkpool [DISKSxSIZE [--columns N] [--interleave KIB] [--slab MIB] [--files DIR]]
  mkpool                 what the metadata of full pools of several sizes costs
  mkpool 8x4TB           of that one: single parity, 4 columns, 256 KiB unless it is told otherwise, slabs
                         as `weft pool create` takes them
  mkpool 8x4TB --files DIR  makes its disks as sparse files d0, d1, ... for `weft serve --disks DIR`, without the data";

/// The heading of a table of [`Costs`].
pub const HEADING: &str = "pool                stripes  metadata  open, then read  processor       read    memory   \
    checkpoint  processor   segment    status  segments in memory    made in  peak";

/// Runs `weft-sim mkpool` with these further arguments.
pub fn command(arguments: &[String]) -> ExitCode {
    let told = match parse(arguments) {
        Ok(told) => told,
        Err(why) => {
            eprintln!("weft-sim: {why}\nusage: {USAGE}");
            return ExitCode::from(2);
        }
    };
    match told {
        Told { shapes, files: Some(dir) } => {
            let made = make(&shapes[0]).map_err(|error| error.to_string());
            let done = made.and_then(|rig| write_files(&rig, &dir).map_err(|error| error.to_string()));
            match done {
                Ok(()) => println!("{}: made in {}", shapes[0], dir.display()),
                Err(why) => {
                    eprintln!("weft-sim: {} cannot be made: {why}", shapes[0]);
                    return ExitCode::FAILURE;
                }
            }
        }
        Told { shapes, files: None } => {
            println!("{HEADING}");
            for shape in shapes {
                let began = Instant::now();
                let made = make(&shape).map(|rig| (rig, began.elapsed()));
                match made.and_then(|(mut rig, span)| Ok((measure(&mut rig, &shape)?, span))) {
                    Ok((costs, span)) => {
                        println!("{:18} {costs} {:>8.1} s {:>9}", shape.to_string(), span.as_secs_f64(), peak());
                    }
                    Err(error) => {
                        eprintln!("weft-sim: {shape} cannot be made: {error}");
                        return ExitCode::FAILURE;
                    }
                }
            }
        }
    }
    ExitCode::SUCCESS
}

/// Makes the pool, and its disks.
pub fn make(shape: &Shape) -> Result<Rig> {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let class = HddClass { capacity: shape.capacity, ..HddClass::HDD_7200_8TB };
    let disk = |_| SimDisk::new(&world, class.shape(class.capacity), Box::new(Hdd::new(class.clone())));
    let mut rig = Rig::with_disks(world.clone(), (0..shape.disks).map(disk).collect());
    // What is read of stripes that were never written is bad, and no disk is to be emptied for that.
    rig.options.tuning.auto_jobs = false;
    rig.options.tuning.bad_blocks_max = u64::MAX;
    rig.create(shape.slab)?;
    rig.open(&mut Rng::new(1))?;
    let size = room_for(&rig.pool(), shape.layout);
    rig.make_vdisk(shape.layout, size, 4096, false)?;
    let vdisk = rig.pool().vdisk("vdisk").expect("it was just made");
    let first = vec![7; shape.layout.data_len().as_usize()];
    rig.run(async move { vdisk.write(VirtualOffset(0), &first, true).await })?;
    let stripes = size.0 / shape.layout.data_len().0;
    let mut mapped = 1;
    while mapped < stripes {
        let until = (mapped + AT_ONCE).min(stripes);
        let pool = rig.pool();
        rig.run(async move { map(&pool, mapped..until).await })?;
        mapped = until;
        checkpoint(&rig)?;
    }
    rig.close()?;
    Ok(rig)
}

/// Opens the pool of [`make`], and measures.
pub fn measure(rig: &mut Rig, shape: &Shape) -> Result<Costs> {
    let Reopened { time: open, cpu: open_cpu, read: open_read, .. } = open_and_read(rig)?;
    checkpoint(rig)?;
    let pool = rig.pool();
    let memory = ByteCount(pool.store().memory().iter().map(|budget| budget.used).sum());
    let map = ByteCount(pool.store().map.borrow().memory());
    let segments = pool.store().map.borrow().segments.len() as u64;
    let stripes = mapped(&pool);
    drop(pool);
    change_all(rig, stripes)?;
    let changed = open_after_a_crash(rig)?;
    checkpoint(rig)?;
    fill_log(rig)?;
    let landed = open_after_a_crash(rig)?;
    checkpoint(rig)?;
    change_all(rig, stripes)?;
    let pool = rig.pool();
    let (before, polled) = (traffic(rig).1, rig.world.polled());
    checkpoint(rig)?;
    let (written, checkpoint_cpu) = (ByteCount(traffic(rig).1 - before), rig.world.polled() - polled);
    let started = Instant::now();
    let info = pool.info();
    let status = started.elapsed();
    let raw = (shape.capacity * shape.disks as u64).0 as f64;
    let costs = Costs {
        stripes,
        metadata_share: info.metadata.0 as f64 / raw,
        open,
        open_cpu,
        open_read,
        memory,
        segments,
        map,
        changed,
        landed,
        checkpoint: written,
        checkpoint_cpu,
        segment: segment_time(&pool),
        status,
    };
    rig.halt();
    Ok(costs)
}

/// Changes stripes in [`CHANGES`] places.
fn change_all(rig: &Rig, stripes: u64) -> Result<()> {
    let pool = rig.pool();
    rig.run(async move {
        let mut rng = Rng::new(3);
        for _ in 0..CHANGES / CHANGES_AT_ONCE {
            change(&pool, stripes, &mut rng).await?;
            // What they replace is free when they are durable.
            pool.store().make_durable(pool.store().log.seq()).await?;
        }
        Ok::<_, Error>(())
    })
}

/// Writes parts of stripes again and again, each with a flush, until the log is nearly as full as it gets before it is
/// emptied. They are few, for none can leave as a whole stripe: the rest of it was never written.
fn fill_log(rig: &Rig) -> Result<()> {
    let pool = rig.pool();
    rig.run(async move {
        let vdisk = pool.vdisk("vdisk").expect("the pool has it");
        let (stripe, bytes) = (vdisk.stripe_len().0, vec![9; (vdisk.stripe_len().0 / 2) as usize]);
        let mut writes = (0..LANDED_STRIPES).cycle().map(|nth| VirtualOffset(nth * stripe * 8 % vdisk.size().0));
        let log = &pool.store().log;
        while log.fill().0 + LOG_LEFT.0 < log.fill().1 / 8 * 3 {
            vdisk.write(writes.next().expect("they never end"), &bytes, true).await?;
        }
        Ok::<_, Error>(())
    })
}

fn open_after_a_crash(rig: &mut Rig) -> Result<Reopened> {
    let (tail, head) = rig.pool().store().log.live();
    rig.halt();
    rig.disks.iter().for_each(|disk| disk.power_cut_with(&[]));
    Ok(Reopened { log: ByteCount(head - tail), ..open_and_read(rig)? })
}

fn open_and_read(rig: &mut Rig) -> Result<Reopened> {
    let (before, began, polled) = (traffic(rig).0, rig.world.now(), rig.world.polled());
    rig.open(&mut Rng::new(2))?;
    let vdisk = rig.pool().vdisk("vdisk").expect("the pool has it");
    rig.run(async move { vdisk.read(VirtualOffset(0), &mut [0; 4096]).await })?;
    let (time, cpu) = (rig.world.now().since(began), rig.world.polled() - polled);
    Ok(Reopened { log: ByteCount(0), time, cpu, read: ByteCount(traffic(rig).0 - before) })
}

/// Writes the disks of a closed pool to sparse files `d0`, `d1`, ... in `dir`.
pub fn write_files(rig: &Rig, dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for (no, disk) in rig.disks.iter().enumerate() {
        let (image, file) = (disk.image(), File::create_new(dir.join(format!("d{no}")))?);
        file.set_len(image.shape().capacity.0)?;
        for (at, len) in image.written() {
            let bytes = image.read(at, len).expect("nothing harmed these disks");
            let blocks = bytes.chunks(BLOCK as usize).enumerate();
            for (nth, block) in blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0)) {
                file.write_all_at(block, at.0 + nth as u64 * BLOCK)?;
            }
        }
        file.sync_all()?;
    }
    Ok(())
}

/// What was typed.
struct Told {
    shapes: Vec<Shape>,
    files: Option<PathBuf>,
}

fn parse(arguments: &[String]) -> std::result::Result<Told, String> {
    let (mut disks, mut columns, mut interleave, mut slab, mut files) = (None, 4, 256, None, None);
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is not a number"));
        match word {
            "--columns" => columns = number(value()?)?,
            "--interleave" => interleave = number(value()?)?,
            "--slab" => slab = Some(ByteCount(number(value()?)?.saturating_mul(1 << 20))),
            "--files" => files = Some(PathBuf::from(value()?)),
            word if disks.is_none() && !word.starts_with('-') => disks = Some(parse_disks(word)?),
            word => return Err(format!("what is {word}?")),
        }
    }
    if disks.is_none() && files.is_some() {
        return Err("which disks shall be made?".into());
    }
    let columns = u8::try_from(columns).map_err(|_| format!("{columns} columns are too many"))?;
    let layout = Layout::new(Resiliency::Parity { parity: 1 }, columns, ByteCount::kib(interleave));
    let layout = layout.map_err(|error| error.to_string())?;
    let shape = |(disks, capacity)| {
        let slab = slab.unwrap_or_else(|| default_slab(&vec![capacity; disks]));
        Shape { disks, capacity, slab, layout }
    };
    let shapes = match disks {
        Some(disks) => vec![shape(disks)],
        None => SIZES.iter().copied().map(shape).collect(),
    };
    Ok(Told { shapes, files })
}

/// `8x4TB`: how many disks, and the size of each; GB and TB are decimal.
fn parse_disks(text: &str) -> std::result::Result<(usize, ByteCount), String> {
    let bad = || format!("{text} is not like 8x4TB: 4 to {DISKS_MAX} disks of 1GB to 100TB");
    let (count, size) = text.split_once('x').ok_or_else(bad)?;
    let (size, unit) = match (size.strip_suffix("TB"), size.strip_suffix("GB")) {
        (Some(size), _) => (size, 1_000_000_000_000),
        (_, Some(size)) => (size, 1_000_000_000),
        _ => return Err(bad()),
    };
    let count: usize = count.parse().map_err(|_| bad())?;
    let size = size.parse::<u64>().ok().and_then(|size| size.checked_mul(unit)).ok_or_else(bad)?;
    let possible = (4..=DISKS_MAX).contains(&count) && (1_000_000_000..=100_000_000_000_000).contains(&size);
    if possible { Ok((count, ByteCount(size / BLOCK * BLOCK))) } else { Err(bad()) }
}

/// The largest virtual disk that there is room for, an eighth kept free: stripes are replaced before they are free.
fn room_for(pool: &Pool, layout: Layout) -> ByteCount {
    let map = pool.store().map.borrow();
    let segments = map.segments_possible(layout, DiskSet::EMPTY) / 8 * 7;
    layout.data_len() * (segments * layout.segment_stripes(map.slab) as u64)
}

/// Maps stripes that were never written.
async fn map(pool: &Pool, stripes: std::ops::Range<u64>) -> Result<()> {
    let store = pool.store();
    let table = table_of(pool);
    let mut stripe = stripes.start;
    while stripe < stripes.end {
        let (mut records, wanted) = (Vec::new(), (stripes.end - stripe).min(1024));
        let _held = store.load_table(table, stripe..stripe + wanted).await?;
        let mut map = store.map.borrow_mut();
        for nth in 0..wanted {
            map.ensure_chunk(table, stripe + nth, &mut records)?;
            assert!(map.claim(table, Claim::New, &mut records), "there is room for all of it");
        }
        let mut left = wanted as u32;
        while left > 0 {
            let (place, count) = map.take_stripes(table, left, &mut records)?;
            for nth in 0..count {
                let there = Place { index: place.index + nth, ..place };
                map.commit(table, stripe, Some(there.born(store.log.seq())), store.log.seq());
                stripe += 1;
            }
            map.end_write(place, count);
            left -= count;
        }
        drop(map);
        store.append_all(records);
        // No time passes in which anybody else would: each segment comes with blank checksum pages.
        store.trim_pages();
    }
    Ok(())
}

/// Moves some stripes here and there to other places, as writing them anew would.
async fn change(pool: &Pool, stripes: u64, rng: &mut Rng) -> Result<()> {
    let (store, table) = (pool.store(), table_of(pool));
    let sums = vec![0; store.map.borrow().tables[&table].record.layout.stripe_sums()];
    for _ in 0..CHANGES_AT_ONCE {
        let (stripe, mut records) = (1 + rng.below(stripes - 1), Vec::new());
        let _held = store.load_table(table, stripe..stripe + 1).await?;
        let mut map = store.map.borrow_mut();
        assert!(map.claim(table, Claim::Overwrite, &mut records), "an eighth is free");
        let (place, count) = map.take_stripes(table, 1, &mut records)?;
        store.append_all(records);
        let place = place.born(store.log.seq());
        let seq = store.log.append(&commit_record(table, stripe, place, 0, &sums));
        map.commit(table, stripe, Some(place), seq);
        map.end_write(place, count);
    }
    Ok(())
}

fn segment_time(pool: &Pool) -> Duration {
    let table = table_of(pool);
    let mut map = pool.store().map.borrow_mut();
    let (started, mut made) = (Instant::now(), 0);
    while made < SEGMENTS && map.new_segment(table, &mut Vec::new()).is_ok() {
        made += 1;
    }
    started.elapsed() / made.max(1)
}

fn table_of(pool: &Pool) -> TableNo {
    let map = pool.store().map.borrow();
    let vdisk = map.vdisks.values().next().expect("the pool has one virtual disk");
    vdisk.tables[0]
}

fn mapped(pool: &Pool) -> u64 {
    let vdisk = pool.vdisk("vdisk").expect("the pool has it");
    vdisk.size().0 / vdisk.stripe_len().0
}

fn checkpoint(rig: &Rig) -> Result<()> {
    let pool = rig.pool();
    rig.run(async move { pool.checkpoint().await })
}

/// The most memory that this process had, its simulated disks included.
fn peak() -> ByteCount {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse().ok());
    ByteCount::kib(kib.unwrap_or(0))
}

/// Bytes that were read and written on all disks.
fn traffic(rig: &Rig) -> (u64, u64) {
    let stats = rig.disks.iter().map(SimDisk::stats);
    stats.fold((0, 0), |(read, written), disk| (read + disk.read_bytes.0, written + disk.written_bytes.0))
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{:.2}TB", self.disks, self.capacity.0 as f64 / 1e12)
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |span: Duration| format!("{:.1} ms", span.as_secs_f64() * 1e3);
        write!(f, "{:8} {:7.2} % {:13.2} s ", self.stripes, self.metadata_share * 100.0, self.open.0 as f64 / 1e9)?;
        write!(f, "{:>12} {:>10} {:>9} ", ms(self.open_cpu), self.open_read.to_string(), self.memory.to_string())?;
        write!(f, "{:>12} {:>10} ", self.checkpoint.to_string(), ms(self.checkpoint_cpu))?;
        write!(f, "{:>6.1} us {:>9} ", self.segment.as_secs_f64() * 1e6, ms(self.status))?;
        write!(f, "{:>9} {:>9}", self.segments, self.map.to_string())?;
        let crash = |Reopened { log, time, cpu, read }: Reopened| {
            let time = time.0 as f64 / 1e9;
            format!("log of {log}: open in {time:.2} s, processor {}, {read} read", ms(cpu))
        };
        write!(f, "\n  after a crash with {CHANGES} changes: {}", crash(self.changed))?;
        write!(f, "\n  after a crash with landed data: {}\n  all else:", crash(self.landed))
    }
}
