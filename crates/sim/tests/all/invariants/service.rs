//! What a client of a virtual disk may rely on.

use crate::story::*;
use std::pin::Pin;
use weft_engine::error::{ErrorKind, Result};
use weft_engine::geometry::Resiliency;
use weft_engine::pool::info::Health;
use weft_engine::units::{Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::rig::resiliencies;
use weft_sim::sample::sample;

/// stripe/plan.rs, invariant 1, and stripe/execute.rs, invariant 1: with every tolerated set of disks missing, all data
/// is read, buffers and log included; with one more, an error and never wrong data.
#[test]
fn every_layout_is_read_without_the_disks_it_survives_and_refuses_beyond() {
    for resiliency in resiliencies() {
        let disks = match resiliency {
            Resiliency::Simple => 1,
            Resiliency::Mirror { copies } => copies as usize,
            Resiliency::Parity { parity } => 3 + parity as usize,
        };
        let mut story = Story::new(1, disks, resiliency);
        let stripe = story.stripe();
        story.write_and_flush(0, 8 * stripe, 1);
        story.write_and_flush(8 * stripe, 1536, 2);
        story.close();
        let images = story.images();
        for set in 0u32..1 << disks {
            let lost = set.count_ones() as u8;
            if lost > resiliency.failures() + 1 || lost as usize == disks {
                continue;
            }
            let mut again = story.with_images(&images);
            (0..disks).filter(|no| set >> no & 1 == 1).for_each(|no| again.rig.disks[no].vanish());
            again.rig.options.degraded = true;
            let opened = again.open();
            if lost > resiliency.failures() && opened.is_err() {
                // Metadata has as many copies as failures are survived, and one.
                assert_eq!(kind(opened), Some(ErrorKind::Lost));
                continue;
            }
            opened.unwrap_or_else(|error| panic!("{resiliency} without {set:b}: {error}"));
            if lost <= resiliency.failures() {
                assert_eq!(again.byte(0, 8 * stripe).unwrap(), 1, "{resiliency} without {set:b}");
                assert_eq!(again.byte(8 * stripe, 1536).unwrap(), 2);
                assert_eq!(again.info().health, if lost > 0 { Health::Warning } else { Health::Healthy });
                again.write_and_flush(stripe, stripe, 3);
                assert_eq!(again.byte(stripe, stripe).unwrap(), 3);
                again.close();
            } else {
                assert_eq!(kind(again.read(0, 8 * stripe)), Some(ErrorKind::Lost), "{resiliency} without {set:b}");
                assert_eq!(again.info().health, Health::Unhealthy);
                again.rig.halt();
            }
        }
    }
}

/// vdisk/flush.rs: a FUA write is durable on return, and what was written before it without FUA may go.
#[test]
fn a_fua_write_is_durable_when_it_returns() {
    for (at, len) in [(0, 512), (512, 32 << 10), (0, 64 << 10)] {
        let mut story = Story::new(2, 3, PARITY);
        let vdisk = story.vdisk();
        story.rig.run(async move { vdisk.write(VirtualOffset(at), &vec![4; len as usize], true).await.unwrap() });
        story.write(128 << 10, 512, 9).unwrap();
        story.cut();
        story.open().unwrap();
        assert_eq!(story.byte(at, len).unwrap(), 4);
        assert_eq!(story.byte(128 << 10, 512).unwrap(), 0, "this one was not flushed");
        story.close();
    }
}

/// vdisk/mod.rs, the front gate: what cannot be meant is `InvalidInput`, and changes nothing.
#[test]
fn requests_out_of_range_or_misaligned_are_refused() {
    let mut story = Story::new(3, 2, MIRROR2);
    let size = story.vdisk().size().0;
    for (at, len) in [(size, 512), (size - 512, 1024), (u64::MAX - 511, 512), (1, 512), (512, 100), (256, 256)] {
        assert_eq!(kind(story.write(at, len, 1)), Some(ErrorKind::InvalidInput), "a write of {len} at {at}");
        assert_eq!(kind(story.read(at, len)), Some(ErrorKind::InvalidInput), "a read of {len} at {at}");
        let vdisk = story.vdisk();
        let discard = story.rig.run(async move { vdisk.discard(VirtualOffset(at), len, false).await });
        assert_eq!(kind(discard), Some(ErrorKind::InvalidInput), "a discard of {len} at {at}");
    }
    story.flush().unwrap();
    assert_eq!(story.byte(0, size).unwrap(), 0);
    story.close();
}

/// vdisk/mod.rs, invariants 1 and 3, and stripe/buffer.rs, invariant 2: one stripe is overwritten again and again while
/// its older versions fly; a read always sees the newest that was written before it, and a crash none that is older
/// than the last flush.
#[test]
fn versions_of_one_stripe_stay_in_their_order() {
    for seed in sample(0..8) {
        let mut story = Story::new(seed, 3, PARITY);
        let (vdisk, stripe) = (story.vdisk(), story.stripe() as usize);
        story.rig.run(async move {
            for byte in 1..40u8 {
                vdisk.write(VirtualOffset(0), &vec![byte; stripe], false).await.unwrap();
                vdisk.write(VirtualOffset(512), &vec![byte; 512], false).await.unwrap();
                let mut seen = vec![0; stripe];
                vdisk.read(VirtualOffset(0), &mut seen).await.unwrap();
                assert!(seen.iter().all(|seen| *seen == byte), "{byte}");
                if byte % 13 == 0 {
                    vdisk.flush().await.unwrap();
                }
            }
        });
        story.rig.halt();
        story.rig.disks.iter().for_each(|disk| disk.power_cut(&mut story.rng));
        story.open().unwrap();
        let seen = story.read(0, story.stripe()).unwrap();
        assert!(seen.iter().all(|byte| (39..40).contains(byte)), "39 was flushed: {:?}", &seen[..8]);
        story.close();
    }
}

/// vdisk/read.rs, invariants 1 and 2, and segment/mod.rs, invariant 2: reads beside overwrites that reuse places get
/// one version or the other of every sector, never anything else.
#[test]
fn reads_beside_overwrites_never_see_a_place_that_was_given_away() {
    for seed in sample(0..8) {
        let mut story = Story::new(seed, 2, MIRROR2);
        let (vdisk, stripe) = (story.vdisk(), story.stripe());
        story.write_and_flush(0, 4 * stripe, 1);
        story.rig.run(async move {
            let overwrite = async {
                for round in 0..200u64 {
                    let (no, byte) = (round % 4, (round / 4 % 8) as u8 + no_tag(round % 4));
                    vdisk.write(VirtualOffset(no * stripe), &vec![byte; stripe as usize], round % 7 == 0).await?;
                }
                Ok(())
            };
            let read = async {
                for round in 0..300u64 {
                    let no = round * 3 % 4;
                    let mut seen = vec![0; stripe as usize];
                    vdisk.read(VirtualOffset(no * stripe), &mut seen).await?;
                    let right = |byte: &u8| *byte == 1 || (no_tag(no)..no_tag(no) + 8).contains(byte);
                    assert!(seen.iter().all(right), "stripe {no} holds its own: {:?}", &seen[..4]);
                }
                Ok(())
            };
            let both: Vec<Pin<Box<dyn Future<Output = Result<()>>>>> = vec![Box::pin(overwrite), Box::pin(read)];
            weft_engine::sync::join_all(both).await.into_iter().for_each(|ended| ended.unwrap());
        });
        story.flush().unwrap();
        assert_eq!(story.prove(), 0);
        story.close();
    }
}

/// The first of eight bytes that only stripe `no` is filled with.
fn no_tag(no: u64) -> u8 {
    16 * (no as u8 + 1)
}

/// vdisk/mod.rs, invariant 4: once a write was lost for good every flush says so, and the data that was safe stays
/// readable or is an error.
#[test]
fn after_a_write_is_lost_for_good_no_flush_succeeds() {
    let mut story = Story::new(4, 3, PARITY);
    story.write_and_flush(0, story.stripe(), 1);
    story.write(story.stripe(), 512, 2).unwrap();
    story.rig.disks[0].vanish();
    story.rig.disks[2].vanish();
    let written = story.write(2 * story.stripe(), 2 * story.stripe(), 3);
    let flushed = story.flush();
    assert!(written.is_err() || flushed.is_err(), "two of three disks are gone");
    assert!(story.flush().is_err(), "and it stays so");
    assert!(story.read(0, story.stripe()).is_err_and(|error| error.kind == ErrorKind::Lost));
    story.rig.halt();
}

/// The disks are given up while a stripe is being written, whose layout bears no failure: it is not tried for ever to
/// write it elsewhere.
#[test]
fn a_pool_whose_disks_were_given_up_amid_a_write_ends() {
    for moment in 0..40 {
        let story = Story::new(8, 3, SIMPLE);
        let (vdisk, world) = (story.vdisk(), story.rig.world.clone());
        let write = async move {
            let bytes = vec![1; vdisk.stripe_len().as_usize() * 4];
            let _ = vdisk.write(VirtualOffset(0), &bytes, false).await;
            let _ = vdisk.flush().await;
        };
        world.spawn("writer", Box::pin(write));
        let begun = world.operations();
        world.run_until(Nanos::secs(1), || world.operations() >= begun + moment);
        story.rig.pool().release();
        world.run_until(world.now() + Nanos::secs(5), || false);
        assert!(!world.tasks().contains(&"writer"), "given up after {moment} operations: {:?}", world.tasks());
    }
}
