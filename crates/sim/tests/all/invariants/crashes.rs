//! What a crash must not do: data, records, pages and labels in their order.

use crate::story::*;
use weft_engine::error::Result;
use weft_engine::units::{ByteCount, VirtualOffset};
use weft_sim::disk::Fate;
use weft_sim::exhaustive::{Options, run};
use weft_sim::rig::TIMEOUT;
use weft_sim::timing::Latencies;

/// store/replay.rs, invariant 2: what is rebuilt from the log gets versions above every image that an unfinished
/// checkpoint left behind.
#[test]
fn an_unfinished_checkpoint_never_wins_over_the_one_after_the_crash() {
    let story = Story::new(1, 2, MIRROR2);
    story.write_and_flush(0, story.stripe(), 1);
    let begun = story.rig.world.operations();
    story.checkpoint();
    let whole = story.rig.world.operations() - begun;
    for crash in (whole / 2..whole * 2).step_by(2) {
        let mut story = Story::new(1, 2, MIRROR2);
        story.write_and_flush(0, story.stripe(), 1);
        story.rig.world.crash_at(story.rig.world.operations() + crash);
        let (pool, vdisk, len) = (story.rig.pool(), story.vdisk(), story.stripe() as usize);
        let both = async move {
            // The table page gets dirty again while the checkpoint writes it: images of two versions.
            let beside = async {
                for byte in 2..9 {
                    vdisk.write(VirtualOffset(0), &vec![byte; len], true).await?;
                }
                Ok(())
            };
            let futures: Vec<std::pin::Pin<Box<dyn Future<Output = Result<()>>>>> =
                vec![Box::pin(pool.checkpoint()), Box::pin(beside)];
            weft_engine::sync::join_all(futures).await;
        };
        let _ = story.rig.world.block_on_within(TIMEOUT, both);
        story.rig.halt();
        story.rig.disks.iter().for_each(|disk| disk.power_cut_with(&vec![Fate::Kept; disk.unflushed().len()]));
        story.open().unwrap();
        let seen = story.byte(0, story.stripe()).unwrap();
        assert!((1..9).contains(&seen));
        for _ in 0..2 {
            story.cut();
            story.open().unwrap();
            assert_eq!(story.byte(0, story.stripe()).unwrap(), seen, "crash {crash}");
        }
        story.prove();
        story.close();
    }
}

/// store/mod.rs, invariant 3, and store/commit.rs, invariant 1: a commit does not take data for durable that a flush
/// under way has still to bring down. The first disk flushes slowly, so that a checkpoint's flush of it is under way
/// when a stripe commits.
#[test]
fn a_flush_under_way_is_not_taken_for_one_that_ended() {
    let options = Options { only: "mirror2/race-250".into(), ..Options::default() };
    let summary = run(&options).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(summary.opened > 500, "{summary}");
}

/// store/pages.rs, invariant 1: a page of checksums is not dropped from memory while its newest image is still on its
/// way to the disks.
#[test]
fn checksum_pages_under_memory_pressure_are_never_read_back_old() {
    for seed in 0..4 {
        let mut story = Story::of_size(seed, 3, PARITY, ByteCount::mib(5), false);
        story.rig.options.tuning.sheet_memory = 0;
        story.write_and_flush(0, 5 << 20, 0);
        story.close();
        // Reads overtake writes by far.
        let pace =
            Latencies { read: 10_000..50_000, write: 2_000_000..30_000_000, grain: 1000, ..Latencies::default() };
        let mut story = story.on_disks(&story.images(), pace);
        story.open().unwrap();
        // Stripes in several segments, hence several pages.
        let stripes = ByteCount::mib(5).0 / story.stripe();
        let (pool, vdisk, stripe) = (story.rig.pool(), story.vdisk(), story.stripe());
        story.rig.run(async move {
            for round in 1..4u8 {
                let write = async {
                    for no in 0..stripes {
                        vdisk.write(VirtualOffset(no * stripe), &vec![round; stripe as usize], no % 16 == 0).await?;
                    }
                    Ok(())
                };
                let read = async {
                    for no in (0..60 * stripes).map(|no| no * 61 % stripes) {
                        let mut bytes = vec![0; 4096];
                        vdisk.read(VirtualOffset(no * stripe), &mut bytes).await?;
                        assert!([round - 1, round].contains(&bytes[0]));
                    }
                    Ok(())
                };
                let checkpoints = async {
                    for _ in 0..6 {
                        pool.checkpoint().await?;
                    }
                    Ok(())
                };
                let futures: Vec<std::pin::Pin<Box<dyn Future<Output = Result<()>>>>> =
                    vec![Box::pin(write), Box::pin(read), Box::pin(checkpoints)];
                weft_engine::sync::join_all(futures).await.into_iter().collect::<Result<()>>().unwrap();
            }
        });
        assert_eq!(story.prove(), 0);
        story.cut();
        story.open().unwrap();
        assert_eq!(story.prove(), 0);
        story.close();
    }
}
