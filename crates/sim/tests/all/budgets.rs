//! Stories of memory: what a pool holds stays within its budgets, whoever writes how much at once, and nobody waits for
//! ever.

use crate::setting;
use std::cell::Cell;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::store::Tuning;
use weft_engine::store::budget::{BudgetInfo, Keeping};
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;
use weft_sim::rig::{Rig, TIMEOUT, resiliencies};
use weft_sim::rng::Rng;
use weft_sim::sample::sample;
use weft_sim::world::Stop;

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };

fn opened(seed: u64, disks: usize, tuning: Tuning) -> (Rig, Rng) {
    setting::opened(seed, disks, ByteCount::mib(64), tuning)
}

fn make(rig: &Rig, name: &str, resiliency: Resiliency, columns: u8, disks: u64) -> Rc<Vdisk> {
    setting::make(rig, name, ByteCount::mib(8), (resiliency, columns), DiskSet::from_words(&[disks]))
}

#[test]
fn stripes_that_cannot_be_merged_stop_nobody_else() {
    let tuning = Tuning { buffer_memory: 1 << 20, ..Tuning::default() };
    let (rig, _) = opened(1, 5, tuning);
    let weak = make(&rig, "weak", Resiliency::Simple, 2, 0b00011);
    let strong = make(&rig, "strong", PARITY, 3, 0b11100);
    let filled = weak.clone();
    rig.run(async move { filled.write(VirtualOffset(0), &vec![1; 8 << 20], true).await.unwrap() });
    let store = rig.pool().store().clone();
    store.disk_lost(DiskNo(0), "the story says so");
    // Partial stripes of the weak one fill the memory; none of them can be merged, for what lies below is out of reach.
    let (world, partial) = (rig.world.clone(), weak.clone());
    world.spawn(
        "partial writes",
        Box::pin(async move {
            for stripe in 0..64 {
                let _ = partial.write(VirtualOffset(stripe * (128 << 10) + (4 << 10)), &[2; 64 << 10], false).await;
            }
        }),
    );
    let writes = strong.clone();
    rig.run(async move {
        for at in 0..64 {
            writes.write(VirtualOffset(at * (128 << 10) + (8 << 10)), &[3; 64 << 10], false).await.unwrap();
        }
        writes.flush().await.unwrap();
    });
    let mut rig = rig;
    drop((weak, strong, store));
    rig.halt();
}

/// The most bytes in stripe buffers while `future` runs.
fn peak_of(rig: &Rig, future: impl Future<Output = ()> + 'static) -> u64 {
    let store = rig.pool().store().clone();
    let done = Rc::new(Cell::new(false));
    let flag = done.clone();
    rig.world.spawn(
        "measured",
        Box::pin(async move {
            future.await;
            flag.set(true);
        }),
    );
    let peak = Cell::new(0);
    let stop = rig.world.run_until(TIMEOUT, || {
        peak.set(peak.get().max(store.traffic.budgets.buffers.used()));
        done.get()
    });
    assert_eq!(stop, Stop::Done, "{:?}", rig.world.tasks());
    peak.get()
}

#[test]
fn writers_that_wait_for_memory_do_not_pass_all_at_once() {
    const LIMIT: u64 = 1 << 20;
    const REQUEST: usize = 128 << 10;
    let (rig, _) = opened(2, 4, Tuning { buffer_memory: LIMIT, ..Tuning::default() });
    let vdisk = make(&rig, "vdisk", PARITY, 4, 0);
    let (world, vdisk) = (rig.world.clone(), vdisk.clone());
    let peak = peak_of(&rig, async move {
        let writes = (0..512u64).map(|no| {
            let (vdisk, world) = (vdisk.clone(), world.clone());
            let offset = VirtualOffset(no * 37 % 40 * (192 << 10) + (4 << 10));
            Box::pin(async move {
                world.sleep(Nanos::millis(no / 64)).await;
                vdisk.write(offset, &[no as u8; REQUEST], false).await.unwrap();
            }) as _
        });
        weft_engine::sync::join_all::<()>(writes.collect()).await;
        vdisk.flush().await.unwrap();
    });
    assert!(peak <= LIMIT + REQUEST as u64, "{peak} bytes were held, {LIMIT} are allowed");
    let mut rig = rig;
    rig.close().unwrap();
}

#[test]
fn a_request_that_is_larger_than_the_whole_budget_gets_through() {
    for resiliency in resiliencies() {
        let (rig, _) = opened(3, 4, Tuning { buffer_memory: 96 << 10, ..Tuning::default() });
        let layout = Layout::new(resiliency, resiliency.columns_min(), ByteCount::kib(64)).unwrap();
        let vdisk = make(&rig, "vdisk", resiliency, layout.columns() as u8, 0);
        rig.run(async move {
            let data: Vec<u8> = (0..3 << 20).map(|at: usize| (at / 4096) as u8).collect();
            vdisk.write(VirtualOffset(4 << 10), &data, true).await.unwrap();
            let mut back = vec![0; data.len()];
            vdisk.read(VirtualOffset(4 << 10), &mut back).await.unwrap();
            assert!(back == data);
        });
        let mut rig = rig;
        rig.close().unwrap();
    }
}

#[test]
fn dirty_checksum_pages_are_written_before_they_are_too_many() {
    const SHEETS: u64 = 64 << 10;
    let (rig, _) = opened(4, 4, Tuning { sheet_memory: SHEETS, ..Tuning::default() });
    let pool = rig.pool();
    let layout = Layout::new(PARITY, 4, ByteCount::kib(64)).unwrap();
    rig.make_vdisk(layout, ByteCount::mib(48), 4096, false).unwrap();
    let (vdisk, world) = (pool.vdisk("vdisk").unwrap(), rig.world.clone());
    let writer = vdisk.clone();
    rig.run(async move {
        for at in 0..48 {
            writer.write(VirtualOffset(at << 20), &vec![at as u8; 1 << 20], false).await.unwrap();
        }
        writer.flush().await.unwrap();
        world.sleep(Nanos::secs(2)).await;
    });
    let memory = pool.store().memory();
    let sheets = memory.iter().find(|budget| budget.name == "checksum pages").unwrap();
    assert!(sheets.used <= SHEETS + (64 << 10), "{sheets:?}");
    rig.run(async move {
        let mut back = vec![0; 48 << 20];
        vdisk.read(VirtualOffset(0), &mut back).await.unwrap();
        assert!(back.chunks(1 << 20).enumerate().all(|(at, part)| part.iter().all(|byte| *byte == at as u8)));
    });
    let mut rig = rig;
    drop(pool);
    rig.close().unwrap();
}

#[test]
fn packed_units_are_no_more_than_their_memory_takes() {
    weft_sim::fine::packed_units_are_no_more_than_their_memory_takes();
}

/// A client with a part of the virtual disk of its own: it does everything at random and knows what it wrote.
async fn client(vdisk: Rc<Vdisk>, start: u64, mut rng: Rng) {
    let mut model = vec![0; OWN];
    for step in 0..60u8 {
        let at = rng.below((OWN / 4096) as u64) as usize * 4096;
        let len = (1 + rng.below((REQUEST / 4096) as u64) as usize) * 4096;
        let len = len.min(OWN - at);
        let (offset, fua) = (VirtualOffset(start + at as u64), rng.chance(0.1));
        match rng.below(12) {
            0 => vdisk.flush().await.unwrap(),
            1 => {
                vdisk.write_zeroes(offset, len as u64, rng.chance(0.5), fua).await.unwrap();
                model[at..at + len].fill(0);
            }
            2 => {
                let mut back = vec![1; len];
                vdisk.read(offset, &mut back).await.unwrap();
                assert!(back == model[at..at + len], "step {step}");
            }
            _ => {
                vdisk.write(offset, &vec![step + 1; len], fua).await.unwrap();
                model[at..at + len].fill(step + 1);
            }
        }
    }
    vdisk.flush().await.unwrap();
    let mut back = vec![1; OWN];
    vdisk.read(VirtualOffset(start), &mut back).await.unwrap();
    assert!(back == model);
}

/// Bytes of a client's own part, and of its largest request.
const OWN: usize = 1 << 20;
const REQUEST: usize = 96 << 10;

/// Whether bytes of a budget are in use that nobody keeps for later.
fn must_be_given_back(budget: &BudgetInfo) -> bool {
    let kept = budget.keeping != Keeping::Waits || ["stripe buffers", "log records"].contains(&budget.name);
    !kept && budget.used > 0
}

#[test]
fn no_budget_is_exceeded_by_more_than_one_request_whatever_clients_do() {
    const LIMIT: u64 = 256 << 10;
    for seed in sample(0..20) {
        let resiliency = resiliencies()[seed as usize % 5];
        let tuning =
            Tuning { buffer_memory: LIMIT, sheet_memory: 16 << 10, move_memory: 64 << 10, ..Tuning::default() };
        let tuning = Tuning { request_memory: REQUEST as u64 * 2, ..tuning };
        let (rig, rng) = opened(100 + seed, 5, tuning);
        let vdisk = make(&rig, "vdisk", resiliency, resiliency.columns_min(), 0);
        let clients = (0..8u64).map(|no| Box::pin(client(vdisk.clone(), no << 20, rng.fork(&format!("{no}")))) as _);
        let clients: Vec<_> = clients.collect();
        rig.run(async move { weft_engine::sync::join_all::<()>(clients).await });
        // What was begun to make room ends by itself.
        let pool = rig.pool();
        rig.run(async move {
            while pool.store().memory().iter().any(must_be_given_back) {
                pool.store().pause().await;
            }
        });
        let stripe = vdisk.layout().raw_len().0;
        for budget in rig.pool().store().memory() {
            let one = match budget.name {
                // The last read of each is larger than all of it.
                "reads" | "writes" => OWN as u64,
                "stripe buffers" => 2 * (REQUEST as u64 + (64 << 10)),
                // One stripe: what is read, as blocks and as bytes, and what it grows by.
                _ => 3 * stripe,
            };
            let enforced = budget.keeping == Keeping::Waits;
            assert!(!enforced || budget.peak <= budget.limit + one, "seed {seed}: {budget:?}");
        }
        let mut rig = rig;
        drop(vdisk);
        rig.close().unwrap();
    }
}

#[test]
fn reads_do_not_wait_for_writes_that_wait_and_neither_are_more_than_their_memory() {
    let tuning = Tuning { request_memory: 128 << 10, ..Tuning::default() };
    let (rig, _) = opened(7, 4, tuning);
    let (weak, strong) = (make(&rig, "weak", Resiliency::Simple, 1, 0b0001), make(&rig, "strong", PARITY, 3, 0b1110));
    let filled = strong.clone();
    rig.run(async move {
        for at in 0..16 {
            filled.write(VirtualOffset(at << 16), &[1; 64 << 10], true).await.unwrap();
        }
    });
    rig.pool().store().disk_lost(DiskNo(0), "the story says so");
    // They wait for the disk, and with them those for which there is no memory.
    for at in 0..16u64 {
        let vdisk = weak.clone();
        let write = async move { drop(vdisk.write(VirtualOffset(at << 16), &[2; 64 << 10], true).await) };
        rig.world.spawn("write", Box::pin(write));
    }
    let (world, reads) = (rig.world.clone(), strong.clone());
    let waited = rig.run(async move {
        let began = world.now();
        for at in 0..16 {
            reads.read(VirtualOffset(at << 16), &mut [0; 64 << 10]).await.unwrap();
        }
        world.now().since(began)
    });
    assert!(waited < Nanos::secs(1), "{waited:?}");
    let memory = rig.pool().store().memory();
    let writes = memory.iter().find(|budget| budget.name == "writes").unwrap();
    assert_eq!((writes.limit, writes.used, writes.peak), (128 << 10, 128 << 10, 128 << 10));
    let mut rig = rig;
    drop((weak, strong));
    rig.halt();
}
