//! Stories: one test per thing that must be true, told with the unchanged engine on simulated disks.

use weft_engine::checksum::{BlockAddress, block_checksum};
use weft_engine::geometry::Layout;
use weft_engine::units::{ByteCount, SegmentNo, VirtualOffset};
use weft_sim::rig::{Rig, resiliencies};
use weft_sim::rng::Rng;
use weft_sim::world::{Scheduling, SimWorld};

fn rig(seed: u64, disks: usize) -> (Rig, Rng) {
    let world = SimWorld::new(seed, Scheduling::Random);
    let rng = world.rng("story");
    (Rig::new(world, disks, ByteCount::mib(16)), rng)
}

/// With a small virtual disk of single parity on three disks; the bytes of its stripes.
fn rig_with_vdisk(seed: u64) -> (Rig, Rng, u64) {
    let (mut rig, mut rng) = rig(seed, 3);
    rig.create(ByteCount::mib(1)).unwrap();
    rig.open(&mut rng).unwrap();
    let layout = Layout::new(resiliencies()[3], 3, ByteCount::kib(32)).unwrap();
    rig.make_vdisk(layout, ByteCount::mib(2), 4096, false).unwrap();
    (rig, rng, layout.data_len().0)
}

#[test]
fn what_was_written_and_flushed_is_read_back_after_a_power_cut_with_every_resiliency() {
    for resiliency in resiliencies() {
        let layout = Layout::new(resiliency, resiliency.columns_min(), ByteCount::kib(16)).unwrap();
        let (mut rig, mut rng) = rig(7, layout.slots());
        rig.create(ByteCount::mib(1)).unwrap();
        rig.open(&mut rng).unwrap();
        rig.make_vdisk(layout, ByteCount::mib(2), 4096, false).unwrap();
        let data: Vec<u8> = (0..300 * 1024u32).map(|at| (at / 7 * 13) as u8).collect();
        let vdisk = rig.pool().vdisk("vdisk").unwrap();
        let (wrote, written) = (vdisk.clone(), data.clone());
        rig.run(async move {
            wrote.write(VirtualOffset(20 * 1024), &written, false).await.unwrap();
            wrote.flush().await.unwrap();
        });
        drop(vdisk);
        rig.power_cut(&mut rng);
        rig.open(&mut rng).unwrap();
        let vdisk = rig.pool().vdisk("vdisk").unwrap();
        let mut back = vec![1; data.len() + 8192];
        let back = rig.run(async move {
            vdisk.read(VirtualOffset(16 * 1024), &mut back).await.unwrap();
            back
        });
        assert_eq!(back[..4096], [0; 4096], "{layout}: before it there are zeros");
        assert!(back[4096..][..data.len()] == data, "{layout}: the data is there");
        let pool = rig.pool();
        let report = rig.run(async move { pool.check(false).await.unwrap() });
        assert!(report.is_sound(), "{layout}: {report:?}");
        rig.close().unwrap();
    }
}

#[test]
fn a_stripe_that_is_zeroed_piece_by_piece_gives_its_space_back() {
    const K: u64 = 1 << 10;
    let (mut rig, mut rng, stripe) = rig_with_vdisk(8);
    let vdisk = rig.pool().vdisk("vdisk").unwrap();
    let used = |rig: &Rig| rig.pool().info().vdisks[0].mapped.0;

    let disk = vdisk.clone();
    rig.run(async move { disk.write(VirtualOffset(0), &vec![7; 4 * stripe as usize], true).await.unwrap() });
    assert_eq!(used(&rig), 4 * stripe);
    // Nothing is there: there is nothing to take room for.
    let disk = vdisk.clone();
    rig.run(async move { disk.write_zeroes(VirtualOffset(9 * stripe + 4 * K), 8 * K, false, true).await.unwrap() });
    assert_eq!(used(&rig), 4 * stripe);

    // The first stripe in two pieces with a flush between, the second in two that meet in one buffer; the third is
    // asked to keep its room, and somebody writes into the fourth.
    let disk = vdisk.clone();
    rig.run(async move {
        let zero = async |at: u64, len: u64, keep: bool| {
            disk.write_zeroes(VirtualOffset(at), len, keep, false).await.unwrap();
        };
        zero(0, 12 * K, false).await;
        disk.flush().await.unwrap();
        disk.destage_and_wait(0).await.unwrap();
        zero(12 * K, stripe - 12 * K, false).await;
        zero(stripe + 12 * K, stripe - 12 * K, false).await;
        zero(stripe, 12 * K, false).await;
        zero(2 * stripe, stripe / 2, true).await;
        zero(2 * stripe + stripe / 2, stripe / 2, true).await;
        zero(3 * stripe, stripe / 2, false).await;
        disk.write(VirtualOffset(3 * stripe + stripe / 2), &vec![0; stripe as usize / 2], false).await.unwrap();
        for no in 0..4 {
            disk.destage_and_wait(no).await.unwrap();
        }
        disk.flush().await.unwrap();
    });
    assert_eq!(used(&rig), 2 * stripe, "what was written, or is to be kept");
    drop(vdisk);
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    assert_eq!(used(&rig), 2 * stripe);
    let (pool, vdisk) = (rig.pool(), rig.pool().vdisk("vdisk").unwrap());
    rig.run(async move {
        let mut back = vec![1; 4 * stripe as usize];
        vdisk.read(VirtualOffset(0), &mut back).await.unwrap();
        assert!(back.iter().all(|byte| *byte == 0));
        assert!(pool.check(false).await.unwrap().is_sound());
    });
}

#[test]
fn a_stripe_that_is_given_back_piece_by_piece_is_unmapped_with_the_last_piece_that_holds_anything() {
    const K: u64 = 1 << 10;
    let (mut rig, mut rng, stripe) = rig_with_vdisk(9);
    let vdisk = rig.pool().vdisk("vdisk").unwrap();

    // Not zeros, with the checksum of zeros: the polynomial itself.
    let mut posing = vec![0; 4096];
    posing[..8].copy_from_slice(&(0x82f6_3b78u64 << 1 | 1).to_le_bytes());
    let somewhere = BlockAddress { segment: SegmentNo(1), slot: 0, block: 5 };
    assert_eq!(block_checksum(somewhere, &posing), block_checksum(somewhere, &[0; 4096]));

    let (disk, whole) = (vdisk.clone(), [7; 64 << 10]);
    assert_eq!(stripe, 64 * K);
    let (pool, forged) = (rig.pool(), posing.clone());
    rig.run(async move {
        let write = async |at: u64, data: &[u8]| disk.write(VirtualOffset(at), data, true).await.unwrap();
        let discard = async |at: u64, len: u64| disk.discard(VirtualOffset(at), len, true).await.unwrap();
        let zero = async |at: u64, len: u64| disk.write_zeroes(VirtualOffset(at), len, false, true).await.unwrap();
        let used = || pool.info().vdisks[0].mapped.0 / stripe;
        // All of it, in pieces that overlap.
        write(0, &whole).await;
        discard(12 * K, 20 * K).await;
        discard(0, 16 * K).await;
        assert_eq!(used(), 1);
        discard(28 * K, 36 * K).await;
        assert_eq!(used(), 0);
        // What was ever written of it; the rest lies there as zeros, or nowhere.
        write(stripe + 8 * K, &whole[..8 << 10]).await;
        disk.destage_and_wait(1).await.unwrap();
        write(2 * stripe, &whole[..8 << 10]).await;
        assert_eq!(used(), 1, "the other is in the log");
        discard(stripe + 8 * K, 4 * K).await;
        assert_eq!(used(), 1);
        discard(stripe + 12 * K, 4 * K).await;
        assert_eq!(used(), 0);
        discard(2 * stripe, 8 * K).await;
        disk.destage_and_wait(2).await.unwrap();
        assert_eq!(used(), 0);
        // What somebody wrote meanwhile is there, and is given back like anything else.
        write(3 * stripe, &whole).await;
        discard(3 * stripe, 32 * K).await;
        write(3 * stripe + 4 * K, &whole[..4 << 10]).await;
        zero(3 * stripe + 32 * K, 32 * K).await;
        disk.destage_and_wait(3).await.unwrap();
        assert_eq!(used(), 1);
        zero(3 * stripe + 4 * K, 4 * K).await;
        assert_eq!(used(), 0);
        // What only looks like zeros stays.
        write(4 * stripe, &whole[..8 << 10]).await;
        write(4 * stripe + 16 * K, &forged).await;
        disk.destage_and_wait(4).await.unwrap();
        discard(4 * stripe, 8 * K).await;
        assert_eq!(used(), 1);
        disk.flush().await.unwrap();
    });
    drop(vdisk);
    rig.power_cut(&mut rng);
    rig.open(&mut rng).unwrap();
    assert_eq!(rig.pool().info().vdisks[0].mapped.0, stripe);
    let (pool, vdisk) = (rig.pool(), rig.pool().vdisk("vdisk").unwrap());
    rig.run(async move {
        let mut back = vec![1; 5 * stripe as usize];
        vdisk.read(VirtualOffset(0), &mut back).await.unwrap();
        let (zeros, last) = back.split_at(4 * stripe as usize);
        assert!(zeros.iter().all(|byte| *byte == 0));
        assert_eq!(last[16 << 10..][..4096], posing);
        assert!(pool.check(false).await.unwrap().is_sound());
    });
}
