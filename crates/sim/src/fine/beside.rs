//! Stories of what is written beside the packer, and beside the mover.

use super::{PARITY, Story, bytes_of};
use crate::sample::sample;
use weft_engine::units::{Nanos, VirtualOffset};
use weft_engine::world::World;

/// Whole stripes, and units above them, are written while the mover brings down what was there before.
pub fn what_is_written_beside_the_mover_is_never_replaced_by_what_it_read() {
    for seed in sample(0..24) {
        let mut story = Story::new(500 + seed, PARITY);
        story.fill(1);
        story.scatter(120, 1000);
        story.flush();
        story.destage();
        let pool = story.rig.pool();
        let moving = async move {
            pool.move_everything_down().await;
        };
        story.rig.world.spawn("mover", Box::pin(moving));
        let per = story.per_stripe();
        for nth in 0..30 {
            let stripe = story.rng.below(story.units() / per);
            story.write(stripe * per, per, 7000 + nth);
            story.flush();
            let unit = stripe * per + story.rng.below(per);
            story.write(unit, 1, 8000 + nth);
        }
        story.rig.world.run_until(Nanos::secs(5), || false);
        story.prove();
        story.flush();
        story.crash();
        story.prove();
    }
}

/// Whole stripes, and parts of blocks above them, are written while packing is about to read the rest of blocks of what
/// was there before.
pub fn what_is_written_beside_packing_lies_above_what_was_written_before() {
    for seed in sample(0..24) {
        let mut story = Story::new(600 + seed, PARITY);
        story.fill(1);
        let vdisk = story.vdisk();
        let (size, stripe) = (vdisk.size().0, vdisk.stripe_len().0);
        let mut bytes = bytes_of(1, size);
        for nth in 0..6 {
            // Sectors of blocks of many stripes gather; all of them are to leave.
            for at in (0..size).step_by(stripe as usize) {
                story.write_bytes(&mut bytes, at + 512, &[40 + nth; 512]);
            }
            let pool = story.rig.pool();
            story.rig.world.spawn("packer", Box::pin(async move { pool.destage_everything().await }));
            let pause = Nanos(story.rng.below(2_000_000));
            story.rig.world.run_until(pause, || false);
            for _ in 0..8 {
                let at = story.rng.below(size / stripe) * stripe;
                story.write_bytes(&mut bytes, at, &vec![100 + nth; stripe as usize]);
                story.write_bytes(&mut bytes, at + 1024, &[200 + nth; 1024]);
            }
            story.rig.world.run_until(Nanos::secs(5), || false);
        }
        story.flush();
        story.crash();
        let vdisk = story.vdisk();
        let found = story.rig.run(async move {
            let mut found = vec![0xAA; size as usize];
            vdisk.read(VirtualOffset(0), &mut found).await.map(|()| found)
        });
        let found = found.unwrap();
        let wrong = (0..size as usize).find(|at| found[*at] != bytes[*at]);
        assert!(wrong.is_none(), "seed {seed}: byte {wrong:?} is not what was written last");
    }
}
