//! Heat: what is sought out of a virtual disk is counted, kept, forgotten, and told as the curve of what fast tiers
//! would catch.

use crate::story::*;
use weft_engine::heat::Curve;
use weft_engine::store::heat::HEAT;
use weft_engine::tree::{At, KeyRange};
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::rng::Rng;

const MIB: u64 = 1 << 20;

/// A pool with a virtual disk of 64 MiB, nothing of it mapped.
fn pool() -> Story {
    Story::of_size(5, 4, PARITY, ByteCount::mib(64), false)
}

fn seek(story: &Story, mib: u64, times: u64) {
    let vdisk = story.vdisk();
    story.rig.run(async move {
        for nth in 0..times {
            vdisk.read(VirtualOffset(mib * MIB + nth % 64 * 8192), &mut [0; 4096]).await.unwrap();
        }
    });
}

fn curve(story: &Story) -> Curve {
    let vdisk = story.vdisk();
    story.rig.run(async move { vdisk.heat_curve().await.unwrap() })
}

fn wait(story: &Story, hours: u64) {
    for _ in 0..2 * hours {
        let world = story.rig.world.clone();
        story.rig.run(async move { world.sleep(Nanos::secs(1800)).await });
    }
}

/// How many entries the tree has of it.
fn entries(story: &Story) -> usize {
    let tree = story.rig.pool().store().tree();
    story.rig.run(async move { tree.scan(At::Head, KeyRange::of_kind(HEAT), 100).await.unwrap().entries.len() })
}

#[test]
fn what_is_counted_survives_a_restart_and_a_power_cut_after_a_checkpoint() {
    let mut story = pool();
    seek(&story, 3, 100);
    seek(&story, 40, 20);
    assert_eq!(curve(&story).points, [(ByteCount::mib(1), 100), (ByteCount::mib(2), 120)]);
    wait(&story, 1);
    story.write_and_flush(0, 4096, 1);
    story.checkpoint();
    assert_eq!(entries(&story), 1);
    story.cut();
    story.open().unwrap();
    seek(&story, 3, 50);
    let after = curve(&story);
    assert!((150..=170).contains(&after.seeks), "an hour was forgotten, and both add up: {after:?}");
    story.close();
    story.open().unwrap();
    assert!((110..=120).contains(&curve(&story).seeks), "what no checkpoint had is forgotten: {:?}", curve(&story));
    story.close();
}

#[test]
fn while_a_pool_is_closed_nothing_is_forgotten() {
    let mut story = pool();
    seek(&story, 3, 100);
    wait(&story, 1);
    story.write_and_flush(0, 4096, 1);
    story.checkpoint();
    let before = curve(&story).seeks;
    story.close();
    wait(&story, 48);
    story.open().unwrap();
    assert_eq!(curve(&story).seeks, before);
    wait(&story, 24);
    assert!(curve(&story).seeks.abs_diff(before / 2) <= 2, "half in a day of service");
    story.close();
}

#[test]
fn the_heat_of_a_virtual_disk_goes_with_it_also_where_the_power_does() {
    for cut in [false, true] {
        let mut story = pool();
        seek(&story, 3, 100);
        wait(&story, 1);
        story.write_and_flush(0, 4096, 1);
        story.checkpoint();
        assert_eq!(entries(&story), 1);
        let pool = story.rig.pool();
        story.rig.run(async move { pool.vdisk_remove("vdisk").await.unwrap() });
        if cut {
            story.cut();
            story.open().unwrap();
        }
        story.checkpoint();
        assert_eq!(entries(&story), 0, "cut: {cut}");
        story.close();
    }
}

#[test]
fn to_read_everything_once_leaves_what_is_hot_hot_and_the_curve_tells_what_is_then_measured() {
    let story = pool();
    let mut rng = Rng::new(7);
    // Zipf 0.99 over 64 ranges, in an order of its own.
    let weights: Vec<f64> = (1..=64).map(|rank| 1.0 / f64::from(rank).powf(0.99)).collect();
    let all: f64 = weights.iter().sum();
    let draw = |rng: &mut Rng| {
        let mut at = rng.below(1 << 30) as f64 / f64::from(1u32 << 30) * all;
        let rank = weights.iter().position(|weight| {
            at -= weight;
            at < 0.0
        });
        (rank.unwrap_or(0) as u64 * 37 + 11) % 64
    };
    (0..20_000).for_each(|_| seek(&story, draw(&mut rng), 1));
    let vdisk = story.vdisk();
    story.rig.run(async move {
        for mib in 0..64 {
            vdisk.read(VirtualOffset(mib * MIB), &mut vec![0; MIB as usize]).await.unwrap();
        }
    });
    let told = curve(&story);
    // What the hottest ranges would have caught of as many more.
    let mut counted = [0u64; 64];
    (0..20_000).for_each(|_| counted[draw(&mut rng) as usize] += 1);
    let hottest: Vec<u64> = (0..64).map(|rank| (rank * 37 + 11) % 64).collect();
    for (bytes, seeks) in told.points {
        let ranges = (bytes.0 / MIB) as usize;
        let caught: u64 = hottest[..ranges].iter().map(|range| counted[*range as usize]).sum();
        let (told, measured) = (seeks as f64 / told.seeks as f64, caught as f64 / 20_000.0);
        assert!((told - measured).abs() < 0.05, "{ranges} ranges: told {told}, measured {measured}");
    }
}
