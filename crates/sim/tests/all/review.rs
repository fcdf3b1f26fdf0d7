//! Stories that began as findings of a review: each failed before it was put right.

use std::cell::Cell;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::{Error, ErrorKind};
use weft_engine::format::record::JOB_LEN;
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::DiskError;
use weft_engine::limits::JOBS_KEPT;
use weft_engine::pool::VdiskSpec;
use weft_engine::pool::info::DiskState;
use weft_engine::pool::job::{JobKind, JobState};
use weft_engine::store::execute::Target;
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;
use weft_sim::rig::Rig;
use weft_sim::rng::Rng;
use weft_sim::sample::sample;
use weft_sim::world::{Scheduling, SimWorld};

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };

fn rig(seed: u64, disks: usize, capacity: ByteCount) -> (Rig, Rng) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("story");
    let mut rig = Rig::new(world, disks, capacity);
    rig.create(ByteCount::mib(1)).unwrap();
    rig.open(&mut rng).unwrap();
    (rig, rng)
}

/// A pool of four disks with a virtual disk over all of them.
fn parity_of_four(seed: u64) -> (Rig, Rng, Rc<Vdisk>) {
    let (rig, rng) = rig(seed, 4, ByteCount::mib(16));
    let layout = Layout::new(PARITY, 4, ByteCount::kib(16)).unwrap();
    rig.make_vdisk(layout, ByteCount::mib(2), 4096, false).unwrap();
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    (rig, rng, vdisk)
}

#[test]
fn without_any_disk_that_carries_the_log_a_pool_does_not_open_even_degraded() {
    let (mut rig, mut rng, vdisk) = parity_of_four(1);
    rig.run(async move {
        vdisk.write(VirtualOffset(0), &[7; 4096], false).await.unwrap();
        vdisk.flush().await.unwrap();
    });
    rig.power_cut(&mut rng);
    rig.disks[..3].iter().for_each(|disk| disk.vanish());
    rig.options.degraded = true;
    let error = rig.open(&mut rng).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Lost, "{error}");
}

#[test]
fn a_stripe_that_could_be_written_nowhere_is_never_read_as_it_was_before() {
    let (mut rig, _, vdisk) = parity_of_four(2);
    let pool = rig.pool();
    let stripe = vdisk.stripe_len().as_usize();
    let (old, read) = rig.run(async move {
        let offset = VirtualOffset(0);
        vdisk.write(offset, &vec![1; stripe], false).await.unwrap();
        vdisk.flush().await.unwrap();
        vdisk.write(offset, &vec![2; stripe], false).await.unwrap();
        pool.store().fail(Error::new(ErrorKind::Lost, "the story says so"));
        pool.store().pause().await;
        let mut bytes = vec![0; 4096];
        let read = vdisk.read(offset, &mut bytes).await;
        (bytes[0] == 1, read)
    });
    assert!(!old && read.is_err(), "what was overwritten is back: {read:?}");
    rig.halt();
}

/// segment/allocate.rs, `home_for`.
#[test]
fn two_slots_of_a_segment_that_are_rebuilt_at_once_never_share_a_disk() {
    for seed in 0..4 {
        let (mut rig, _) = rig(50 + seed, 6, ByteCount::mib(16));
        let layout = Layout::new(Resiliency::Mirror { copies: 3 }, 1, ByteCount::kib(16)).unwrap();
        rig.make_vdisk(layout, ByteCount::mib(2), 4096, true).unwrap();
        let pool = rig.pool();
        let (gone, slots_of) = {
            let map = pool.store().map.borrow();
            let fixed = map.segments.values().find(|segment| segment.record.layout == layout).unwrap();
            let disks: Vec<DiskNo> = fixed.record.slabs.iter().flatten().map(|at| at.disk).collect();
            (disks[..2].to_vec(), fixed.record.id)
        };
        gone.iter().for_each(|no| rig.disks[no.0 as usize].vanish());
        let told = rig.run(async move {
            let vdisk = pool.vdisk("vdisk").unwrap();
            vdisk.write(VirtualOffset(0), &vec![1; 1 << 20], true).await.unwrap();
            let job = pool.job_start(JobKind::Repair, 0).await.unwrap();
            assert_eq!(pool.job_wait(job).await.unwrap().state, JobState::Done);
            let map = pool.store().map.borrow();
            let at: Vec<DiskNo> = map.segments[&slots_of].record.slabs.iter().flatten().map(|at| at.disk).collect();
            at
        });
        let mut apart = told.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), 3, "seed {seed}: the copies lie on disks {told:?}");
        rig.halt();
    }
}

#[test]
fn a_virtual_disk_may_be_removed_while_requests_for_it_wait() {
    for seed in sample(0..40) {
        let (mut rig, _, vdisk) = parity_of_four(100 + seed);
        let stripe = vdisk.stripe_len().0;
        let ended = Rc::new(Cell::new(0));
        for client in 0..4u64 {
            let (vdisk, ended) = (vdisk.clone(), ended.clone());
            let job = async move {
                let offset = VirtualOffset(client % 2 * stripe);
                // Any of them may be refused from some moment on; none may bring the pool down.
                let _ = vdisk.write(offset, &vec![1; stripe as usize], false).await;
                let _ = vdisk.discard(offset, stripe, false).await;
                let _ = vdisk.write_zeroes(VirtualOffset(4096), 2 * stripe, false, true).await;
                ended.set(ended.get() + 1);
            };
            rig.world.spawn("client", Box::pin(job));
        }
        let (pool, world) = (rig.pool(), rig.world.clone());
        rig.run(async move {
            world.sleep(Nanos::millis(seed / 4)).await;
            pool.vdisk_remove("vdisk").await.unwrap();
            world.sleep(Nanos::secs(10)).await;
        });
        assert_eq!(ended.get(), 4);
        drop(vdisk);
        rig.close().unwrap();
    }
}

#[test]
fn a_virtual_disk_may_be_removed_while_the_log_is_relieved_of_its_data() {
    for seed in sample(0..40) {
        let (mut rig, _, vdisk) = parity_of_four(200 + seed);
        let (stripe, count) = (vdisk.stripe_len().0, vdisk.size().0 / vdisk.stripe_len().0);
        for client in 0..4 {
            let vdisk = vdisk.clone();
            let writes = async move {
                // A stripe is in flight while more of it is landed. From some moment on all is refused.
                for nth in (client..).step_by(4) {
                    let at = VirtualOffset(nth % count * stripe);
                    let whole = vdisk.write(at, &vec![2; stripe as usize], false).await;
                    if whole.and(vdisk.write(at, &[1; 4096], true).await).is_err() {
                        return;
                    }
                }
            };
            rig.world.spawn("client", Box::pin(writes));
        }
        drop(vdisk);
        let (pool, world) = (rig.pool(), rig.world.clone());
        rig.run(async move {
            let is_full = || {
                let (used, ring) = pool.store().log.fill();
                used > ring / 8 * 3
            };
            while !is_full() {
                world.sleep(Nanos(100_000)).await;
            }
            world.sleep(Nanos(seed * 100_000)).await;
            pool.vdisk_remove("vdisk").await.unwrap();
            world.sleep(Nanos::secs(1)).await;
        });
        rig.close().unwrap();
    }
}

#[test]
fn a_fixed_disk_that_is_planned_as_possible_is_made_and_outlives_the_power() {
    let mut largest = 0;
    for disks in 3..7 {
        for size in 1..40 {
            let (mut rig, mut rng) = rig(disks as u64, disks, ByteCount::mib(12));
            let spec = |name: &str, size: u64, fixed: bool| VdiskSpec {
                name: name.into(),
                size: ByteCount::mib(size),
                resiliency: PARITY,
                columns: Some(3),
                interleave: Some(ByteCount::kib(4)),
                fixed,
                sector: 4096,
                disks: DiskSet::EMPTY,
            };
            let pool = rig.pool();
            if pool.plan_vdisk(&spec("fixed", size, true)).is_err() {
                break;
            }
            let fixed = spec("fixed", size, true);
            rig.run(async move {
                let vdisk = pool.vdisk_create(&fixed).await.expect("it was planned as possible");
                vdisk.write(VirtualOffset(0), &[7; 8192], false).await.unwrap();
                vdisk.flush().await.unwrap();
            });
            largest = largest.max(size);
            rig.power_cut(&mut rng);
            rig.open(&mut rng).unwrap_or_else(|error| panic!("{disks} disks, {size} MiB: {error}"));
            rig.close().unwrap();
        }
    }
    assert!((2..39).contains(&largest), "the largest that fits was not looked for: this story tells nothing");
}

#[test]
fn a_flush_that_lost_more_than_the_layout_survives_is_not_acknowledged() {
    let (mut rig, _) = rig(6, 4, ByteCount::mib(16));
    let layout = Layout::new(Resiliency::Simple, 1, ByteCount::kib(16)).unwrap();
    rig.make_vdisk(layout, ByteCount::mib(1), 4096, false).unwrap();
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let (pool, written) = (rig.pool(), vdisk.clone());
    rig.run(async move {
        written.write(VirtualOffset(0), &[7; 16 << 10], false).await.unwrap();
        pool.store().pause().await;
    });
    let holder = {
        let pool = rig.pool();
        let map = pool.store().map.borrow();
        let place = map.tables.values().flat_map(|table| table.mapped_from(0)).next().expect("it is written").1;
        map.segments[&place.segment].slab(0).unwrap().disk
    };
    rig.disks[holder.0 as usize].fail_next_flush(DiskError::Media);
    let flushed = rig.run(async move { vdisk.flush().await });
    // It waits for the disk that was taken out, and then refuses: the disk may be attached again, and hold what was
    // written.
    assert_eq!(flushed.map_err(|error| error.kind), Err(ErrorKind::Frozen));
    rig.halt();
}

#[test]
fn a_repair_leaves_a_slot_its_home_while_that_may_be_the_only_copy() {
    let (mut rig, mut rng) = rig(5, 5, ByteCount::mib(16));
    let layout = Layout::new(PARITY, 4, ByteCount::kib(16)).unwrap();
    rig.make_vdisk(layout, ByteCount::mib(2), 4096, false).unwrap();
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let data = vec![5; vdisk.stripe_len().as_usize()];
    let written = data.clone();
    rig.run(async move { vdisk.write(VirtualOffset(0), &written, true).await.unwrap() });
    let (away, spoiled, at) = {
        let pool = rig.pool();
        let store = pool.store();
        let place = store.map.borrow().tables.values().flat_map(|table| table.mapped_from(0)).next().unwrap().1;
        let target = Target::new(store, place).unwrap();
        let (away, _) = target.locate(0, 0).unwrap();
        let (spoiled, block) = target.locate(1, 0).unwrap();
        (away.disk.0 as usize, spoiled.disk.0 as usize, store.slab_offset(spoiled, block))
    };
    rig.close().unwrap();
    rig.disks[away].vanish();
    rig.disks[spoiled].rot(at);
    rig.open(&mut rng).unwrap();
    let pool = rig.pool();
    let ended = rig.run(async move {
        let job = pool.job_start(JobKind::Repair, 0).await.unwrap();
        pool.job_wait(job).await.unwrap()
    });
    assert_eq!(ended.state, JobState::Failed, "{ended:?}");
    assert_eq!(ended.failure, Some(ErrorKind::Lost), "{ended:?}");
    rig.close().unwrap();
    rig.disks[away].come_back(&mut rng);
    rig.open(&mut rng).unwrap();
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let back = rig.run(async move {
        let mut back = vec![0; vdisk.stripe_len().as_usize()];
        vdisk.read(VirtualOffset(0), &mut back).await.map(|()| back)
    });
    assert!(back.is_ok_and(|back| back == data), "the disk is back, and with it the data");
    rig.close().unwrap();
}

#[test]
fn flushed_data_that_no_disk_takes_does_not_stop_the_other_virtual_disks() {
    let (mut rig, mut rng) = rig(7, 4, ByteCount::mib(16));
    let doomed = Layout::new(Resiliency::Simple, 4, ByteCount::kib(16)).unwrap();
    let other = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(16)).unwrap();
    rig.make_vdisk_named("doomed", doomed, ByteCount::mib(1), 4096, false).unwrap();
    rig.make_vdisk_named("other", other, ByteCount::mib(1), 4096, false).unwrap();
    let (doomed, other) = (rig.pool().vdisk("doomed").unwrap(), rig.pool().vdisk("other").unwrap());
    let stripe = doomed.stripe_len().as_usize();
    let landed = doomed.clone();
    rig.run(async move { landed.write(VirtualOffset(0), &[7; 4096], true).await.unwrap() });
    rig.disks[3].vanish();
    let log_len = rig.pool().info().log.1.0;
    rig.run(async move {
        // The stripe is whole now, and there are not enough disks for it.
        doomed.write(VirtualOffset(4096), &vec![8; stripe - 4096], false).await.unwrap();
        assert!(doomed.flush().await.is_err());
        // Three times around the log.
        for nth in 0..3 * log_len / 4096 {
            other.write(VirtualOffset(nth % 256 * 4096), &[nth as u8; 4096], true).await.unwrap();
        }
    });
    rig.power_cut(&mut rng);
    rig.disks[3].come_back(&mut rng);
    rig.options.degraded = true;
    rig.open(&mut rng).unwrap();
    let doomed = rig.pool().vdisk("doomed").unwrap();
    let back = rig.run(async move {
        let mut back = vec![0; 4096];
        doomed.read(VirtualOffset(0), &mut back).await.map(|()| back)
    });
    assert!(back.is_ok_and(|back| back == [7; 4096]), "what was flushed is still in the log");
    rig.close().unwrap();
}

#[test]
fn data_is_refused_before_the_configuration_outgrows_its_checkpoint_area() {
    let (mut rig, mut rng) = rig(8, 4, ByteCount::mib(16));
    let layout = Layout::new(PARITY, 4, ByteCount::kib(4)).unwrap();
    rig.make_vdisk(layout, ByteCount::gib(16), 4096, false).unwrap();
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let pool = rig.pool();
    let config = ByteCount::kib(2) + ByteCount((JOBS_KEPT * JOB_LEN) as u64);
    pool.store().map.borrow_mut().config_max = config;
    // Each write begins a chunk of the stripe table of its own.
    let step = vdisk.stripe_len().0 * 8064;
    let written = vdisk.clone();
    let refused = rig.run(async move {
        for nth in 0..100 {
            if let Err(error) = written.write(VirtualOffset(nth * step), &[1; 4096], true).await {
                return Some((nth, error));
            }
        }
        None
    });
    let (count, error) = refused.expect("a hundred chunks do not fit");
    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
    assert!(count > 4, "only {count} chunks fit");
    let len: usize = pool.store().map.borrow().records().iter().map(|record| record.encoded_len()).sum();
    assert!(len as u64 <= config.0, "a checkpoint would have {len} bytes");
    rig.run(async move {
        vdisk.write(VirtualOffset(0), &[2; 4096], true).await.unwrap();
        pool.vdisk_remove("vdisk").await.unwrap();
        pool.checkpoint().await.unwrap();
    });
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    rig.close().unwrap();
}

#[test]
fn a_virtual_disk_lies_on_the_disks_it_was_given_and_stays_there_when_it_is_repaired() {
    let (mut rig, _) = rig(9, 6, ByteCount::mib(16));
    let spec = VdiskSpec {
        name: "some".into(),
        size: ByteCount::mib(2),
        resiliency: PARITY,
        columns: Some(3),
        interleave: Some(ByteCount::kib(16)),
        fixed: false,
        sector: 4096,
        disks: DiskSet::from_words(&[0b11_1100]),
    };
    let pool = rig.pool();
    rig.run(async move {
        let vdisk = pool.vdisk_create(&spec).await.unwrap();
        vdisk.write(VirtualOffset(0), &vec![3; 1 << 20], true).await.unwrap();
        let homes = |pool: &weft_engine::pool::Pool| -> Vec<DiskNo> {
            let map = pool.store().map.borrow();
            let data = map
                .segments
                .values()
                .filter(|segment| segment.record.owner != weft_engine::format::record::OWNER_METADATA);
            data.flat_map(|segment| segment.record.slabs.iter().flatten().map(|at| at.disk).collect::<Vec<_>>())
                .collect()
        };
        let gone = homes(&pool)[0];
        assert!(homes(&pool).iter().all(|no| (2..6).contains(&no.0)), "{:?}", homes(&pool));
        pool.store().disk_lost(gone, "the story says so");
        let job = pool.job_start(JobKind::Repair, 0).await.unwrap();
        let ended = pool.job_wait(job).await.unwrap();
        assert_eq!(ended.state, JobState::Done, "{ended:?}");
        assert!(homes(&pool).iter().all(|no| (2..6).contains(&no.0) && *no != gone), "{:?}", homes(&pool));
    });
    rig.close().unwrap();
}

#[test]
fn a_read_does_not_wait_for_a_disk_that_takes_too_long_and_the_disk_is_named() {
    let (rig, _, vdisk) = parity_of_four(10);
    let data = vec![9; vdisk.stripe_len().as_usize()];
    let written = data.clone();
    let writer = vdisk.clone();
    rig.run(async move { writer.write(VirtualOffset(0), &written, true).await.unwrap() });
    let pool = rig.pool();
    let stalled = {
        let store = pool.store();
        let place = store.map.borrow().tables.values().flat_map(|table| table.mapped_from(0)).next().unwrap().1;
        Target::new(store, place).unwrap().locate(0, 0).unwrap().0.disk
    };
    rig.disks[stalled.0 as usize].stall(Nanos::secs(20));
    let world = rig.world.clone();
    let began = world.now();
    let len = data.len();
    let back = rig.run(async move {
        let mut back = vec![0; len];
        vdisk.read(VirtualOffset(0), &mut back).await.map(|()| back)
    });
    assert!(back.is_ok_and(|back| back == data));
    assert!(world.now().since(began) < Nanos::secs(2), "it took {:?}", world.now().since(began));
    let info = pool.info();
    let disk = info.disks.iter().find(|disk| disk.no == stalled).unwrap();
    assert_eq!((disk.state, disk.counters.overdue), (DiskState::Slow, 1), "{disk:?}");
    let mut rig = rig;
    drop(pool);
    rig.close().unwrap();
}
