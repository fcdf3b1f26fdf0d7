//! The configuration in the tree: what befalls it, and pools that were made before there was a tree.

use crate::planted::configuration;
use crate::story::*;
use weft_engine::checksum::crc32c;
use weft_engine::disk_set::DiskSet;
use weft_engine::error::ErrorKind;
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::format::{VERSION, VERSION_OLDEST};
use weft_engine::geometry::Layout;
use weft_engine::units::{BLOCK, ByteCount, Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::disk::DiskImage;
use weft_sim::rig::Rig;
use weft_sim::sample::sample;
use weft_sim::world::{Scheduling, SimWorld};

#[test]
fn a_checkpoint_for_whose_tree_there_is_no_room_is_taken_all_the_same() {
    configuration::a_checkpoint_for_whose_tree_there_is_no_room_is_taken_all_the_same();
}

#[test]
fn what_a_lost_page_of_the_tree_held_is_written_anew() {
    configuration::what_a_lost_page_of_the_tree_held_is_written_anew();
}

#[test]
fn a_metadata_segment_that_is_made_for_the_tree_of_a_checkpoint_is_found() {
    configuration::a_metadata_segment_that_is_made_for_the_tree_of_a_checkpoint_is_found();
}

#[test]
fn what_is_replayed_is_in_the_next_checkpoint() {
    configuration::what_is_replayed_is_in_the_next_checkpoint();
}

/// A chunk is made, and written to, at any moment of a checkpoint: the checkpoint has it or has it not, but never
/// without its pages.
#[test]
fn a_chunk_that_is_made_while_a_checkpoint_is_taken_is_whole() {
    let chunk = 8064;
    for step in 0..120 {
        let mut story = Story::of_size(5, 3, MIRROR2, ByteCount::mib(256), false);
        story.write_and_flush(0, 6 * story.stripe(), 1);
        let (vdisk, at, len, world) = (story.vdisk(), chunk * story.stripe(), story.stripe(), story.rig.world.clone());
        let writer = async move {
            world.sleep(Nanos(step * 50_000)).await;
            vdisk.write(VirtualOffset(at), &vec![7; len as usize], false).await.unwrap();
            vdisk.flush().await.unwrap();
        };
        story.rig.world.spawn("writer", Box::pin(writer));
        story.checkpoint();
        story.flush().unwrap();
        story.cut();
        let mut again = story.with_images(&story.images());
        again.open().unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert_eq!(again.byte(0, 6 * again.stripe()).unwrap(), 1, "step {step}");
        again.close();
    }
}

#[test]
fn a_virtual_disk_that_is_removed_while_a_checkpoint_is_taken_is_no_riddle() {
    configuration::a_virtual_disk_that_is_removed_while_a_checkpoint_is_taken_is_no_riddle();
}

/// The tree of a pool that is filled, emptied and filled again, down to its last slab, always has pages: nothing else
/// takes those that are kept for it.
#[test]
fn a_pool_that_fills_keeps_pages_for_its_tree() {
    for (seed, slab) in [(1, ByteCount::mib(1)), (2, ByteCount::mib(1)), (3, ByteCount::mib(2))] {
        let world = SimWorld::new(seed, Scheduling::Random);
        let rng = world.rng("story");
        let rig = Rig::new(world, 3, ByteCount::mib(32));
        let layout = Layout::new(MIRROR2, 1, ByteCount::kib(16)).unwrap();
        let mut story = Story { rig, rng, layout };
        story.rig.create(slab).unwrap();
        story.open().unwrap();
        let (mut full, mut named) = (0, Vec::new());
        for nth in 0..600 {
            if full == 3 {
                break;
            }
            if nth % 8 == 0 {
                let name = format!("v{nth}");
                if story.rig.make_vdisk_named(&name, layout, ByteCount::gib(1), 512, false).is_ok() {
                    named.push(name);
                }
            }
            let name: &String = story.rng.pick(&named);
            let vdisk = story.rig.pool().vdisk(name).unwrap();
            // Some of them make chunks.
            let at = VirtualOffset(story.rng.below(6) * (126 << 20) + story.rng.below(64) * (64 << 10));
            let len = 16 << 10 << story.rng.below(6);
            let written = story.rig.run(async move { vdisk.write(at, &vec![1; len], true).await });
            if let Err(error) = written {
                assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
                full += 1;
                for _ in 0..named.len() / 2 {
                    let name = named.swap_remove(story.rng.below(named.len() as u64) as usize);
                    let pool = story.rig.pool();
                    story.rig.run(async move { pool.vdisk_remove(&name).await.unwrap() });
                }
            }
            if nth % 3 == 0 {
                story.checkpoint();
            }
        }
        let pool = story.rig.pool();
        let counters = &pool.store().counters;
        assert_eq!(full, 3, "it fills");
        assert_eq!((counters.whole_checkpoints.get(), counters.checkpoints.get() > 30), (0, true));
        drop(pool);
        assert_eq!(story.prove(), 0);
        story.close();
    }
}

/// The segments that were promised can be had, whatever the tree took and gave back meanwhile.
#[test]
fn what_is_promised_to_a_fixed_disk_is_given_also_after_a_checkpoint() {
    for seed in sample(0..40) {
        let world = SimWorld::new(seed, Scheduling::Random);
        let mut rng = world.rng("story");
        let disks = 3 + rng.below(3) as usize;
        let rig = Rig::new(world, disks, ByteCount::mib(12 + rng.below(60)));
        let interleave = ByteCount(4096 << rng.below(4));
        let layout = Layout::new(*rng.pick(&[MIRROR2, MIRROR3]), 1, interleave).unwrap();
        let mut story = Story { rig, rng, layout };
        story.rig.create(ByteCount::mib(1)).unwrap();
        story.open().unwrap();
        let mut made = 0;
        for round in 0..6 {
            for _ in 0..story.rng.below(4) {
                made += 1;
                let (name, fixed) = (format!("v{made}"), story.rng.chance(0.5));
                let size = ByteCount::mib(1 + story.rng.below(4));
                let _ = story.rig.make_vdisk_named(&name, layout, size, 512, fixed);
                let Some(vdisk) = story.rig.pool().vdisk(&name) else { continue };
                let written = vdisk.clone();
                let _ = story.rig.run(async move { written.write(VirtualOffset(0), &vec![1; 1 << 18], true).await });
                if story.rng.chance(0.4) {
                    let pool = story.rig.pool();
                    story.rig.run(async move { pool.vdisk_remove(&name).await.unwrap() });
                }
            }
            if story.rng.chance(0.7) {
                story.checkpoint();
            }
            let pool = story.rig.pool();
            story.rig.run(async move { pool.store().drained_all().await });
            let promised = story.rig.pool().store().map.borrow().segments_reservable(layout, DiskSet::EMPTY);
            if story.rng.chance(0.7) {
                story.checkpoint();
            }
            // One of them is kept for overwrites.
            if promised > 1 {
                let pool = story.rig.pool();
                let per_segment = layout.data_len() * layout.segment_stripes(ByteCount::mib(1)) as u64;
                let whole = story.rig.make_vdisk_named("all", layout, per_segment * (promised - 1), 512, true);
                whole.unwrap_or_else(|error| panic!("seed {seed}, round {round}, {promised} promised: {error}"));
                story.checkpoint();
                story.rig.run(async move {
                    pool.vdisk_remove("all").await.unwrap();
                    pool.store().drained_all().await;
                });
                story.checkpoint();
            }
        }
        assert_eq!(story.rig.pool().store().counters.whole_checkpoints.get(), 0, "seed {seed}");
        assert_eq!(story.prove(), 0);
        story.close();
    }
}

/// What a checkpoint of a pool of 1 TB writes: all that it has of segments and chunks, or what changed.
#[test]
fn a_checkpoint_writes_what_changed() {
    let world = SimWorld::new(1, Scheduling::Fifo);
    let rng = world.rng("story");
    let layout = Layout::new(PARITY, 5, ByteCount::kib(256)).unwrap();
    let mut story = Story { rig: Rig::new(world, 5, ByteCount::gib(205)), rng, layout };
    let slab = ByteCount::mib(64);
    story.rig.create(slab).unwrap();
    story.open().unwrap();
    let per_segment = layout.data_len() * layout.segment_stripes(slab) as u64;
    story.rig.make_vdisk(layout, per_segment * 2800, 4096, true).unwrap();
    let written = |story: &Story| -> u64 { story.info().disks.iter().map(|disk| disk.counters.written).sum() };
    let mut costs = Vec::new();
    for step in 0..4 {
        match step {
            1 => story.rig.pool().store().begin_tree_anew(),
            3 => story.rig.make_vdisk_named("other", layout, per_segment, 4096, true).unwrap(),
            _ => {}
        }
        let before = written(&story);
        story.checkpoint();
        costs.push(written(&story) - before);
    }
    println!("all of it in the tree, whole, in the tree again, two segments more: {costs:?} bytes");
    story.checkpoint();
    let before = written(&story);
    story.checkpoint();
    let nothing = written(&story) - before;
    assert!(nothing * 10 < costs[1] && costs[3] * 4 < costs[1], "{costs:?}, nothing: {nothing}");
    story.close();
}

/// Gives every label this version.
fn with_version(images: &[DiskImage], version: u32) -> Vec<DiskImage> {
    let mut images = images.to_vec();
    for image in &mut images {
        for at in DiskPlan::label_slots(image.shape().capacity) {
            let mut block = image.read(at, ByteCount(BLOCK)).unwrap();
            block[8..12].copy_from_slice(&version.to_le_bytes());
            block[12..16].fill(0);
            let crc = crc32c(&block);
            block[12..16].copy_from_slice(&crc.to_le_bytes());
            image.overwrite(at, &block);
        }
    }
    images
}

fn version_of(image: &DiskImage) -> Vec<u32> {
    let slots = DiskPlan::label_slots(image.shape().capacity);
    let blocks = slots.into_iter().map(|at| image.read(at, ByteCount(BLOCK)).unwrap());
    blocks.map(|block| u32::from_le_bytes(block[8..12].try_into().unwrap())).collect()
}

/// A pool as a weft before this one left it: all of the configuration in the checkpoint, no tree, more in the log.
fn of_version_2(seed: u64) -> Vec<DiskImage> {
    let mut story = Story::new(seed, 3, PARITY);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.checkpoint();
    story.rig.pool().store().begin_tree_anew();
    story.checkpoint();
    story.write_and_flush(2 * story.stripe(), 2 * story.stripe(), 2);
    story.cut();
    with_version(&story.images(), VERSION_OLDEST)
}

#[test]
fn a_pool_that_was_made_before_there_was_a_tree_opens_and_is_of_the_new_version_from_then_on() {
    let template = Story::new(1, 3, PARITY);
    for seed in sample(0..8) {
        let images = of_version_2(seed);
        assert_eq!(version_of(&images[0]), [VERSION_OLDEST; 4]);
        let mut again = template.with_images(&images);
        again.open().unwrap();
        let judge = |story: &Story| {
            let stripe = story.stripe();
            let parts = [(0, 2, 1), (2, 2, 2), (4, 2, 1)];
            parts.iter().for_each(|(at, len, byte)| assert_eq!(story.byte(at * stripe, len * stripe).unwrap(), *byte));
            assert_eq!(story.prove(), 0);
        };
        judge(&again);
        again.write_and_flush(0, 512, 1);
        again.checkpoint();
        again.cut();
        let images = again.images();
        images.iter().for_each(|image| assert!(version_of(image).contains(&VERSION), "{:?}", version_of(image)));
        let mut once_more = template.with_images(&images);
        once_more.open().unwrap();
        judge(&once_more);
        assert!(!once_more.rig.pool().store().tree_places().is_empty(), "there is a tree now");
        once_more.close();
    }
}

#[test]
fn a_pool_of_a_version_that_is_not_known_is_refused_and_not_touched() {
    let template = Story::new(1, 3, PARITY);
    for version in [1, VERSION + 1] {
        let images = with_version(&of_version_2(3), version);
        assert!(
            Label::decode(
                &images[0].read(DiskPlan::label_slots(images[0].shape().capacity)[0], ByteCount(BLOCK)).unwrap()
            )
            .is_err()
        );
        let mut again = template.with_images(&images);
        assert_eq!(kind(again.open()), Some(ErrorKind::Corrupt), "version {version}");
        assert_same(&again.images(), &images);
    }
}
