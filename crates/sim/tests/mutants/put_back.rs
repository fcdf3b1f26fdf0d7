//! Disks that are put back from older copies: what was written to them since is proven, whatever the copy says of
//! itself. Each story ends with a panic if one rule is broken.

use crate::stories::repair;
use crate::story::*;
use weft_engine::units::{ByteCount, Nanos};
use weft_engine::world::World;

/// Nobody knows what a disk lacks that was put back from an older copy: all of it is proven.
pub fn a_disk_that_is_put_back_from_an_older_copy_is_proven_as_a_whole() {
    let mut story = Story::new(11, 4, PARITY);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.close();
    let before = story.images();
    story.open().unwrap();
    story.write_and_flush(story.stripe(), 2 * story.stripe(), 2);
    story.close();
    let after = story.images();
    for older in 0..4 {
        let mut images = after.clone();
        images[older] = before[older].clone();
        let mut mixed = story.with_images(&images);
        mixed.open().unwrap();
        repair(&mixed);
        assert_eq!(mixed.rig.pool().unsound_bytes(), ByteCount::ZERO);
        assert_eq!(mixed.prove(), 0, "disk {older} was put back");
        mixed.close();
    }
}

/// A disk is lost at any operation of an opening, once it has its promise, and then put back from a copy that was made
/// before the label that the promise repeats: what it lacks from before the opening is on no record.
pub fn a_disk_that_an_opening_lost_is_proven_when_it_is_put_back_from_before_that() {
    let mut story = Story::new(12, 4, PARITY);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.checkpoint();
    let before = story.images()[3].clone();
    story.write_and_flush(story.stripe(), 2 * story.stripe(), 2);
    story.checkpoint();
    story.cut();
    let images = story.images();
    let mut noticed = 0;
    for step in 0..80 {
        let mut story = story.with_images(&images);
        let (world, disk) = (story.rig.world.clone(), story.rig.disks[3].clone());
        let last = world.operations() + step;
        let goes = async move {
            while world.operations() < last {
                world.sleep(Nanos(10_000)).await;
            }
            disk.vanish();
        };
        story.rig.world.spawn("goes", Box::pin(goes));
        story.open().unwrap();
        story.close();
        if label_of(&story.images()[3]).promised == label_of(&before).promised {
            continue;
        }
        noticed += 1;
        story.rig.disks[3].return_as(&before);
        story.open().unwrap();
        repair(&story);
        assert_eq!(story.prove(), 0, "lost at operation {step} of the opening");
        story.close();
    }
    assert!(noticed > 0, "no opening got as far as its promise");
}
