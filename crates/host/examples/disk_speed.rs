//! How fast the ways to a disk are, and what the engine's thread costs when idle. Not a test: it prints what it sees.
//!
//! `cargo run --release -p weft-host --example disk_speed -- [DIRECTORY]` makes and removes files in DIRECTORY
//! (default: the temporary directory) and in /dev/shm.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft_engine::error::Result;
use weft_engine::io::{Buf, Disk, IoSlice};
use weft_engine::sync::join_all;
use weft_engine::units::{BLOCK, ByteCount, DiskOffset};
use weft_host::disk::{BackendChoice, DiskOptions, HostDisk};
use weft_host::runtime::{Handle, Options, start};

const SIZE: ByteCount = ByteCount::mib(512);
const READS: u64 = 400_000;
const MIB: u64 = 1 << 20;

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    for io in [BackendChoice::Uring, BackendChoice::Threads] {
        let engine = start(Options { io, ..Options::default() }, || ())?;
        println!("{}", engine.backend());
        for place in [Path::new("/dev/shm"), &directory] {
            for buffered in [false, true] {
                measure(&engine, place, buffered)?;
            }
        }
        round_trips(&engine)?;
        idle(&engine)?;
        engine.stop(Duration::from_secs(10));
    }
    Ok(())
}

fn measure(engine: &Handle, place: &Path, buffered: bool) -> Result<()> {
    let path = place.join(format!("weft-disk-speed-{}", std::process::id()));
    let file = path.clone();
    let answer = engine.call("measure", move |local| async move {
        let options = DiskOptions { create: Some(SIZE), buffered, ..DiskOptions::default() };
        let disk = local.open_disk(&file, &options)?;
        let first = sequential_writes(&disk).await;
        let again = sequential_writes(&disk).await;
        let (deep, single) = (random_reads(&disk, 32, READS).await, random_reads(&disk, 1, READS / 10).await);
        println!("  {}", disk.file());
        println!("    write 1 MiB, depth 8, with flush: new {first:6.0} MB/s, over {again:6.0} MB/s");
        println!("    read 4 KiB, random: depth 32 {:7.0}/s, depth 1 {:7.0}/s", deep, single);
        Ok(())
    });
    let _ = std::fs::remove_file(path);
    answer?
}

/// MB/s, the flush at the end included.
async fn sequential_writes(disk: &Rc<HostDisk>) -> f64 {
    let data: IoSlice = Buf::copy_of(&[0x5a; MIB as usize]).freeze();
    let begun = Instant::now();
    let lanes = (0..8).map(|lane| -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        let (disk, data) = (disk.clone(), data.clone());
        Box::pin(async move {
            for no in (lane..SIZE.0 / MIB).step_by(8) {
                disk.write(DiskOffset(no * MIB), vec![data.clone()]).await.expect("the disk writes");
            }
        })
    });
    join_all(lanes.collect()).await;
    disk.flush().await.expect("the disk flushes");
    SIZE.0 as f64 / 1e6 / begun.elapsed().as_secs_f64()
}

/// Reads per second.
async fn random_reads(disk: &Rc<HostDisk>, depth: u64, reads: u64) -> f64 {
    let begun = Instant::now();
    let lanes = (0..depth).map(|lane| -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        let disk = disk.clone();
        Box::pin(async move {
            let mut place = lane.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut buf = Buf::zeroed(BLOCK as usize);
            for _ in 0..reads / depth {
                place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let block = (place >> 33) % (SIZE.0 / BLOCK);
                buf = disk.read(DiskOffset(block * BLOCK), buf).await.expect("the disk reads");
            }
        })
    });
    join_all(lanes.collect()).await;
    reads as f64 / begun.elapsed().as_secs_f64()
}

/// A call from another thread to the sleeping engine and back.
fn round_trips(engine: &Handle) -> Result<()> {
    let begun = Instant::now();
    for _ in 0..20_000 {
        engine.call("nothing", |_| async {})?;
    }
    println!("  a call and its answer: {:.1} us", begun.elapsed().as_secs_f64() * 1e6 / 20_000.0);
    Ok(())
}

/// Processor time of the whole process while the engine has one open disk and nothing to do.
fn idle(engine: &Handle) -> Result<()> {
    let path = std::env::temp_dir().join(format!("weft-idle-{}", std::process::id()));
    let file = path.clone();
    engine.spawn("hold", move |local| {
        let disk = local.open_disk(&file, &DiskOptions { create: Some(ByteCount::mib(1)), ..DiskOptions::default() });
        Box::pin(async move { disk.expect("a new disk opens").until_gone().await })
    })?;
    engine.call("settle", |_| async {})?;
    let (begun, used) = (Instant::now(), processor_time());
    std::thread::sleep(Duration::from_secs(3));
    let share = (processor_time() - used).as_secs_f64() / begun.elapsed().as_secs_f64();
    println!("  idle with a watched disk: {:.3} % of a processor", share * 100.0);
    let _ = std::fs::remove_file(path);
    Ok(())
}

fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let used = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}
