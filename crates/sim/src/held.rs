//! A client that flushes after every little that it writes, on simulated hard disks: its whole stripes are held in
//! memory, so that a flush waits for the log alone, and leave all the same.

use crate::flushes::{Medium, bench};
use crate::mixed::quantile;
use crate::streams::{Bench, CLASS, block_on, pattern};
use std::rc::Rc;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::store::Tuning;
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;

/// Bytes of a write.
const WRITE: u64 = 64 << 10;
/// Flushes, each after a whole stripe of parity, or four of a mirror.
const FLUSHES: u64 = 96;
const BEFORE_EACH: u64 = 1 << 20;
/// What a stream writes without a flush.
const STREAM: u64 = 32 << 20;
/// The most bytes that may gather for each data column.
const HELD_MAX: u64 = 4 << 20;

/// What does not hold of clients that append and flush, go on as streams, and rest.
pub fn what_is_flushed_often_is_held_and_leaves() -> Option<String> {
    let layouts = [(Resiliency::Parity { parity: 1 }, 5), (Resiliency::Mirror { copies: 2 }, 1)];
    layouts.into_iter().find_map(|(resiliency, columns)| {
        let layout = Layout::new(resiliency, columns, ByteCount::kib(256)).expect("these layouts are valid");
        let bench = bench(Medium::Hdd, layout, Tuning::default());
        let told = story(&bench, layout);
        bench.world.halt();
        told.err().map(|why| format!("{layout}: {why}"))
    })
}

fn story(bench: &Bench, layout: Layout) -> Result<(), String> {
    let (world, vdisk, most) = (bench.world.clone(), bench.vdisk.clone(), HELD_MAX * layout.data_columns() as u64);
    let gathers = |vdisk: &Vdisk| vdisk.gathering().len() as u64 * vdisk.stripe_len().0;
    let (took, held) = block_on(&bench.world, {
        let (world, vdisk) = (world.clone(), vdisk.clone());
        async move {
            let (mut took, mut held) = (Vec::new(), 0);
            for nth in 0..FLUSHES {
                append(&vdisk, nth * BEFORE_EACH, BEFORE_EACH).await;
                let begun = world.now();
                vdisk.flush().await.expect("a sound pool flushes");
                took.push(world.now().since(begun));
                held = held.max(gathers(&vdisk));
            }
            (took, held)
        }
    });
    let mut lasting = took[FLUSHES as usize / 4..].to_vec();
    lasting.sort_unstable();
    let (median, longest) = (quantile(&lasting, 500), quantile(&lasting, 1000));
    // What the issue of speed asks of a flush after each MiB.
    if median.0 > CLASS.revolution * 13 / 10 || longest.0 > CLASS.revolution * 7 {
        return Err(format!("a flush takes {median:?}, and {longest:?} at most"));
    }
    let (landed, flushed) = (vdisk.counters.landed.get(), FLUSHES * BEFORE_EACH);
    // What fills a stripe with which all leave is written, not landed.
    if landed < flushed / 2 {
        return Err(format!("{landed} bytes landed of {flushed} that were flushed"));
    }
    if held > most {
        return Err(format!("{held} bytes gather, at most {most} may"));
    }
    // A stream: it takes what was held with it.
    block_on(&bench.world, {
        let (world, vdisk) = (world.clone(), vdisk.clone());
        async move {
            append(&vdisk, FLUSHES * BEFORE_EACH, STREAM).await;
            world.sleep(Nanos::secs(2)).await;
        }
    });
    if gathers(&vdisk) > 0 {
        return Err(format!("{} bytes gather still behind a stream", gathers(&vdisk)));
    }
    block_on(&bench.world, {
        let vdisk = vdisk.clone();
        async move {
            for nth in 0..5 {
                append(&vdisk, FLUSHES * BEFORE_EACH + STREAM + nth * BEFORE_EACH, BEFORE_EACH).await;
                vdisk.flush().await.expect("a sound pool flushes");
            }
        }
    });
    if gathers(&vdisk) == 0 {
        return Err(String::from("nothing is held when it flushes often again"));
    }
    block_on(&bench.world, async move { world.sleep(Nanos::secs(15)).await });
    if gathers(&vdisk) > 0 {
        return Err(format!("{} bytes gather still while it rests", gathers(&vdisk)));
    }
    Ok(())
}

async fn append(vdisk: &Rc<Vdisk>, at: u64, len: u64) {
    let data = pattern(4, ByteCount(WRITE));
    for nth in 0..len / WRITE {
        vdisk.write(VirtualOffset(at + nth * WRITE), &data, false).await.expect("a sound pool takes writes");
    }
}
