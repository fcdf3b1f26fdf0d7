//! An opening ends, whatever its disks do.

use crate::story::*;
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use weft_engine::error::Result;
use weft_engine::units::Nanos;
use weft_engine::world::World;
use weft_sim::disk::SimDisk;

/// Too many disks vanish at any operation of an opening, its checkpoint included: nobody can bring one back before the
/// pool is open, so it ends (storm split 80001321).
pub fn an_opening_whose_disks_vanish_ends() {
    for (step, (disks, resiliency, gone)) in (0..90).flat_map(|step| [(step, (3, MIRROR3, 2)), (step, (1, SIMPLE, 1))])
    {
        let mut story = Story::new(200, disks, resiliency);
        story.write_and_flush(0, 2 * story.stripe() + 4096, 1);
        story.cut();
        let opening = story.rig.opening(&mut story.rng);
        let (world, leaving) = (story.rig.world.clone(), story.rig.disks.clone());
        let last = world.operations() + step;
        let is_over = Rc::new(Cell::new(false));
        let over = is_over.clone();
        let vanish = async move {
            while world.operations() < last && !over.get() {
                world.sleep(Nanos(10_000)).await;
            }
            leaving[..gone].iter().for_each(SimDisk::vanish);
            Ok(())
        };
        let opening = async move {
            let opened = opening.await.map(drop);
            is_over.set(true);
            opened
        };
        let both: Vec<Pin<Box<dyn Future<Output = Result<()>>>>> = vec![Box::pin(opening), Box::pin(vanish)];
        let _ = story.rig.run(weft_engine::sync::join_all(both));
        story.rig.halt();
        for disk in gone..disks {
            story.rig.disks[disk].survive_kill(&mut story.rng);
        }
        for disk in 0..gone {
            story.rig.disks[disk].come_back(&mut story.rng);
        }
        story.open().unwrap_or_else(|error| panic!("step {step}: {error}"));
        let held = [0, 1].map(|no| story.byte(no * story.stripe(), story.stripe()).unwrap());
        assert_eq!(held, [1; 2], "step {step}");
        story.close();
    }
}
