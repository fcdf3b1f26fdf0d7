//! Small random writes with frequent flushes on simulated hard disks, beside a model of a mirror that writes in place
//! on the same disks.

use crate::rng::Rng;
use crate::streams::{Bench, CLASS, Case, LOG, Shape, pattern};
use crate::timing::{Hdd, HddClass};
use crate::{disk::SimDisk, world::Scheduling, world::SimWorld};
use std::rc::Rc;
use weft_engine::io::{Buf, Disk};
use weft_engine::store::{Tuning, join};
use weft_engine::units::{ByteCount, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;

/// Bytes of a write.
const LEN: ByteCount = ByteCount::kib(4);

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The virtual disk, as a stream fills it first; the writes go to what it filled.
    pub fill: Case,
    /// Writes between two flushes; they are under way together.
    pub per_flush: u64,
    /// For so long.
    pub span: Nanos,
    /// How much of the virtual disk may lie in packed stripes, in thousandths.
    pub fine_share: u64,
}

/// Writes per second of each second: the first ones show what the log takes, the last ones what lasts.
pub fn on_parity(load: Load) -> Vec<u64> {
    let (layout, tuning) = (load.fill.layout, Tuning { fine_share: load.fine_share, ..Tuning::default() });
    // Full: what is written finds something everywhere.
    let size = load.fill.per_disk * layout.data_columns() as u64 + ByteCount::mib(1);
    let (slab, disks) = (crate::streams::slab(), layout.slots());
    let bench = Bench::of(&Shape { class: CLASS, disks, layout, size, slab, log: LOG, tuning });
    bench.pass(load.fill, 1.0, 1);
    let blocks = load.fill.per_disk.0 * load.fill.layout.data_columns() as u64 / LEN.0;
    let (vdisk, data) = (bench.vdisk.clone(), Rc::new(pattern(7, LEN)));
    let rates = measure(&bench.world, load, blocks, move |places| {
        let (vdisk, data) = (vdisk.clone(), data.clone());
        async move {
            let write = |at: &u64| vdisk.write(VirtualOffset(at * LEN.0), &data, false);
            join(places.iter().map(write)).await.into_iter().for_each(|written| written.expect("writes work"));
            vdisk.flush().await.expect("flushes work");
        }
    });
    bench.world.halt();
    rates
}

/// Measures the writes on as many disks, each to two of them in place, with as many bytes in use.
pub fn on_mirror_in_place(load: Load, class: &HddClass) -> Vec<u64> {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let disk = |_| SimDisk::new(&world, class.shape(class.capacity), Box::new(Hdd::new(class.clone())));
    let disks: Rc<Vec<SimDisk>> = Rc::new((0..load.fill.layout.slots()).map(disk).collect());
    let blocks = load.fill.per_disk.0 * load.fill.layout.data_columns() as u64 / LEN.0;
    let slice = Buf::copy_of(&pattern(7, LEN)).freeze();
    measure(&world, load, blocks, move |places| {
        let (disks, slice) = (disks.clone(), slice.clone());
        async move {
            let count = disks.len() as u64;
            let copy = |block: u64, nth: u64| {
                let row = DiskOffset(block * 2 / count * LEN.0);
                disks[((block * 2 + nth) % count) as usize].write(row, vec![slice.clone()])
            };
            let writes = places.iter().flat_map(|block| [copy(*block, 0), copy(*block, 1)]);
            join(writes).await.into_iter().for_each(|written| written.expect("writes work"));
            join(disks.iter().map(|disk| disk.flush())).await.into_iter().for_each(|done| done.expect("flushes work"));
        }
    })
}

/// Calls `round` with random places for `load.span`; writes per second, second by second.
fn measure<F: Future<Output = ()> + 'static>(
    world: &SimWorld,
    load: Load,
    blocks: u64,
    round: impl Fn(Vec<u64>) -> F + 'static,
) -> Vec<u64> {
    let host = world.clone();
    let rates = world.block_on(async move {
        let (mut rng, start) = (Rng::new(3), host.now());
        let mut rates = vec![0; (load.span.0 / 1_000_000_000) as usize];
        loop {
            round((0..load.per_flush).map(|_| rng.below(blocks)).collect()).await;
            let second = (host.now().since(start).0 / 1_000_000_000) as usize;
            match rates.get_mut(second) {
                Some(rate) => *rate += load.per_flush,
                None => return rates,
            }
        }
    });
    rates.expect("it ends")
}
