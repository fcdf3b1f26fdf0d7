//! Stories of the log on two fast disks, and of the one that follows them (`store/follow.rs`).

use crate::rig::Rig;
use crate::rng::Rng;
use crate::world::{Scheduling, SimWorld};
use std::rc::Rc;
use weft_engine::format::record::{Media, Usage};
use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::io::Buf;
use weft_engine::pool::{DiskChange, Pool};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;

const SECTOR: u64 = 4096;
/// The journal disks, by their places.
pub const FAST: [usize; 2] = [3, 4];

/// A pool of three hard disks and two journal disks, with a virtual disk of two copies. What is written to it stays in
/// the log.
pub fn pool(seed: u64) -> (Rig, Rng) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let mut rng = world.rng("story");
    let mut rig = Rig::new(world, 5, ByteCount::mib(12));
    rig.create(ByteCount::mib(1)).unwrap();
    let pool = rig.open(&mut rng).unwrap();
    for no in 0..5 {
        let change = match FAST.contains(&no) {
            true => DiskChange { usage: Some(Usage::Journal), ..DiskChange::default() },
            false => DiskChange { media: Some(Media::Hdd), ..DiskChange::default() },
        };
        let pool = pool.clone();
        rig.run(async move { pool.disk_set(DiskNo(no as u16), change).await.unwrap() });
    }
    let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(64)).unwrap();
    rig.make_vdisk(layout, ByteCount::mib(1), SECTOR as u32, false).unwrap();
    settle(&rig);
    (rig, rng)
}

/// The disks that carry the log.
pub fn loggers(pool: &Pool) -> Vec<DiskNo> {
    pool.info().disks.iter().filter(|disk| disk.logs).map(|disk| disk.no).collect()
}

/// Waits until the log and the votes are where they are to be.
pub fn settle(rig: &Rig) {
    let (pool, world) = (rig.pool(), rig.world.clone());
    rig.run(async move {
        while !pool.store().is_settled() {
            world.sleep(Nanos::millis(10)).await;
        }
    });
}

/// Lets time pass.
pub fn rest(rig: &Rig, span: Nanos) {
    let world = rig.world.clone();
    rig.run(async move { world.sleep(span).await });
}

/// Data that a flush made durable and that is in the log only: sector `no` is filled with `value`. Says whether it was
/// acknowledged.
pub fn land(rig: &Rig, no: u64, value: u8) -> bool {
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    rig.run(async move { vdisk.write(VirtualOffset(no * SECTOR), &[value; SECTOR as usize], true).await.is_ok() })
}

/// The first byte of each of the first `count` sectors.
pub fn first_bytes(rig: &Rig, count: u64) -> Vec<u8> {
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let read = async move {
        let mut bytes = vec![0; (count * SECTOR) as usize];
        vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
    };
    rig.run(read).unwrap().chunks(SECTOR as usize).map(|sector| sector[0]).collect()
}

/// The log has a third copy from the moment on that a virtual disk needs it, and no longer.
pub fn a_layout_that_survives_two_failures_has_three_copies_of_the_log() {
    let (mut rig, mut rng) = pool(2);
    let layout = Layout::new(Resiliency::Mirror { copies: 3 }, 1, ByteCount::kib(64)).unwrap();
    rig.make_vdisk_named("three", layout, ByteCount::mib(1), SECTOR as u32, false).unwrap();
    assert_eq!(loggers(&rig.pool()), [0, 3, 4].map(DiskNo));
    let pool = rig.pool();
    rig.run(async move { pool.vdisk_remove("three").await.unwrap() });
    settle(&rig);
    assert_eq!(loggers(&rig.pool()), FAST.map(|no| DiskNo(no as u16)), "nothing needs it any more");
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    rig.close().unwrap();
}

/// A flush waits for no hard disk: what was copied to the one that follows is flushed when that is to count.
pub fn no_commit_flushes_the_disk_that_follows() {
    let (mut rig, mut rng) = pool(5);
    let flushes = |rig: &Rig| (0..FAST[0]).map(|no| rig.disks[no].stats().flushes).sum::<u64>();
    (0..8).for_each(|no| assert!(land(&rig, no, 1)));
    rest(&rig, Nanos::secs(3));
    let (store, before) = (rig.pool().store().clone(), flushes(&rig));
    assert_eq!(store.follower.reached().unwrap().1, store.log.live().1, "it has all of it");
    (0..8).for_each(|no| assert!(land(&rig, no, 2)));
    assert_eq!(flushes(&rig), before, "nothing but the log was written");
    drop(store);
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    assert_eq!(first_bytes(&rig, 8), [2; 8]);
    rig.close().unwrap();
}

/// A flush waits for no hard disk either that has unflushed writes of which no commit speaks: here, a block that is
/// written once more, as one that is healed.
pub fn no_commit_flushes_a_disk_that_it_says_nothing_of() {
    let (mut rig, _) = pool(6);
    let (pool, vdisk) = (rig.pool(), rig.pool().vdisk("vdisk").unwrap());
    rig.run(async move {
        vdisk.write(VirtualOffset(0), &vec![7; vdisk.size().0 as usize], false).await.unwrap();
        vdisk.flush().await.unwrap();
    });
    rest(&rig, Nanos::secs(3));
    let ours = [7; BLOCK as usize];
    let mut blocks = (0..rig.disks[0].image().shape().capacity.0 / BLOCK).map(|block| DiskOffset(block * BLOCK));
    let at = blocks.find(|at| rig.disks[0].peek(*at, ByteCount(BLOCK)).is_ok_and(|block| block == ours)).unwrap();
    let store = pool.store().clone();
    rig.run(async move { store.disk_write(DiskNo(0), at, vec![Buf::copy_of(&ours).freeze()]).await.unwrap() });
    assert_eq!(pool.store().unflushed(), [DiskNo(0)]);
    let flushes = || (0..FAST[0]).map(|no| rig.disks[no].stats().flushes).sum::<u64>();
    let before = flushes();
    (0..8).for_each(|no| assert!(land(&rig, no, 2)));
    assert_eq!(flushes(), before, "nothing but the log was written");
    drop(pool);
    rig.close().unwrap();
}

/// A virtual disk is removed whose newest stripes are committed and not flushed, in batches so short that these come
/// before the one that says so. Wherever the power goes, the virtual disk is gone, or what it holds is right.
pub fn what_a_removed_disk_had_committed_is_right_where_a_crash_brings_it_back() {
    let mut newer = 0;
    for nth in 0..60 {
        let (mut rig, mut rng) = pool(300 + nth);
        rig.close().unwrap();
        rig.options.tuning.batch_bytes = 16 << 10;
        rig.open(&mut rng).unwrap();
        // Its stripes are so small that their commits are more than a batch takes.
        let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(4)).unwrap();
        rig.make_vdisk_named("leaves", layout, ByteCount::mib(2), SECTOR as u32, false).unwrap();
        settle(&rig);
        let (pool, world, vdisk) = (rig.pool(), rig.world.clone(), rig.pool().vdisk("leaves").unwrap());
        let (size, sleeper) = (vdisk.size().0 as usize, world.clone());
        rig.run(async move {
            vdisk.write(VirtualOffset(0), &vec![1; size], false).await.unwrap();
            vdisk.flush().await.unwrap();
            // That may be on its way still, and durable by what landed of it.
            sleeper.sleep(Nanos::secs(1)).await;
            vdisk.write(VirtualOffset(0), &vec![2; size], false).await.unwrap();
        });
        world.spawn("removal", Box::pin(async move { drop(pool.vdisk_remove("leaves").await) }));
        let (ticking, last) = (world.clone(), world.operations() + nth);
        world.run_until(world.now() + Nanos::secs(1), move || ticking.operations() >= last);
        rig.halt();
        rig.disks.iter().for_each(|disk| disk.power_cut_with(&[]));
        let pool = rig.open(&mut rng).unwrap();
        if let Some(vdisk) = pool.vdisk("leaves") {
            let read = rig.run(async move {
                let mut bytes = vec![0; size];
                vdisk.read(VirtualOffset(0), &mut bytes).await.map(|()| bytes)
            });
            let bytes = read.unwrap_or_else(|error| panic!("cut after {nth} operations: {error}"));
            assert!(bytes.iter().all(|byte| matches!(byte, 1 | 2)), "cut after {nth} operations");
            newer += u64::from(bytes.contains(&2));
        }
        drop(pool);
        rig.close().unwrap();
    }
    assert!(newer > 0, "no commit was durable before the removal was");
}

/// Both vanish at any moment of a write: nothing that was acknowledged is lost, with a power cut afterwards; the pool
/// goes on by itself.
pub fn both_vanish_in_the_midst_of_writes() {
    for at in 0..60 {
        let (mut rig, mut rng) = pool(100 + at);
        (0..4).for_each(|no| assert!(land(&rig, no, 1)));
        rest(&rig, Nanos::millis(at % 5 * 700));
        (4..8).for_each(|no| assert!(land(&rig, no, 1)));
        let (pool, world) = (rig.pool(), rig.world.clone());
        let vdisk = pool.vdisk("vdisk").unwrap();
        let fast: Vec<_> = FAST.iter().map(|no| rig.disks[*no].clone()).collect();
        let gone = {
            let world = world.clone();
            async move {
                world.sleep(Nanos(at * 37_000)).await;
                for disk in fast {
                    disk.vanish();
                    world.sleep(Nanos(at % 3 * 1000)).await;
                }
            }
        };
        world.spawn("gone", Box::pin(gone));
        let written = async move {
            for value in 2..5 {
                for no in 0..8 {
                    vdisk.write(VirtualOffset(no * SECTOR), &[value; SECTOR as usize], true).await.unwrap();
                }
            }
        };
        rig.run(written);
        let _: Rc<Pool> = pool;
        assert_eq!(first_bytes(&rig, 8), [4; 8], "vanished after {at}");
        rig.power_cut(&mut rng);
        rig.open(&mut rng).unwrap_or_else(|error| panic!("vanished after {at}: {error}"));
        assert_eq!(first_bytes(&rig, 8), [4; 8], "vanished after {at}");
        rig.close().unwrap();
    }
}
