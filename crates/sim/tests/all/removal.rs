//! What is removed gives its room back only when it can never be there again.

use weft_engine::geometry::{Layout, Resiliency};
use weft_engine::units::{ByteCount, Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::removal::{search, stories};
use weft_sim::rig::Rig;
use weft_sim::sample::sample;
use weft_sim::world::{Scheduling, SimWorld};

#[test]
fn a_crash_anywhere_beside_the_removal_of_a_virtual_disk_takes_nothing_from_it_or_from_the_others() {
    let mut failures = Vec::new();
    for story in sample(stories()) {
        let outcome = search(story, true);
        println!("{}: {} pools opened, {} failures", story.name, outcome.opened, outcome.failures.len());
        failures.extend(outcome.failures);
        // All that the removed one had: its data, and with redundancy more. Nothing where the next one has it again.
        let told = outcome.discarded > 1 << 20;
        assert!(told == (story.rest == Nanos(0)), "{}: the disks were told of {} bytes", story.name, outcome.discarded);
    }
    assert!(failures.is_empty(), "{} failures, the first: {}", failures.len(), failures[0]);
}

#[test]
fn the_slabs_of_what_was_removed_are_used_by_the_next_and_discarded_when_nobody_does_or_the_pool_is_closed() {
    let world = SimWorld::new(3, Scheduling::Random);
    let mut rng = world.rng("story");
    let mut rig = Rig::new(world, 2, ByteCount::mib(16));
    rig.create(ByteCount::mib(1)).unwrap();
    rig.open(&mut rng).unwrap();
    let layout = Layout::new(Resiliency::Mirror { copies: 2 }, 1, ByteCount::kib(64)).unwrap();
    let discarded = |rig: &Rig| rig.disks.iter().map(|disk| disk.stats().discarded_bytes).min().unwrap();
    let before = discarded(&rig);
    // More than half of the pool: one does not fit beside the other.
    for round in 0..3 {
        rig.make_vdisk(layout, ByteCount::mib(7), 4096, true).unwrap();
        let pool = rig.pool();
        rig.run(async move {
            let vdisk = pool.vdisk("vdisk").unwrap();
            vdisk.write(VirtualOffset(0), &vec![round; 7 << 20], true).await.unwrap();
            pool.vdisk_remove("vdisk").await.unwrap();
        });
    }
    assert_eq!(discarded(&rig), before, "the next one has taken them");
    let (clock, one) = (rig.world.clone(), ByteCount::mib(8));
    rig.run(async move { clock.sleep(Nanos::secs(11)).await });
    assert!(discarded(&rig) >= before + one, "nobody has taken them for a while");
    rig.make_vdisk(layout, ByteCount::mib(7), 4096, true).unwrap();
    let pool = rig.pool();
    rig.run(async move { pool.vdisk_remove("vdisk").await.unwrap() });
    rig.close().unwrap();
    assert!(discarded(&rig) >= before + one + one, "the pool was closed");
    rig.open(&mut rng).unwrap();
    let pool = rig.pool();
    rig.run(async move { assert!(pool.check(false).await.unwrap().is_sound()) });
    rig.close().unwrap();
}
