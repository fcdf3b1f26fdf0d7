//! Disks that are put back from older copies, and writes that all disks lost: what is older than what was called
//! durable is never believed, whatever it says of itself. Each story ends with a panic if one rule is broken.

use crate::stories::{attach, repair};
use crate::story::*;
use std::rc::Rc;
use weft_engine::error::{ErrorKind, Result};
use weft_engine::event::Event;
use weft_engine::exec::LocalBoxFuture;
use weft_engine::format::page::{PAGE_MAGIC, PageKind};
use weft_engine::geometry::Resiliency;
use weft_engine::io::Disk;
use weft_engine::pool::Pool;
use weft_engine::store::execute::Target;
use weft_engine::store::meta::sheets::SHEETS;
use weft_engine::tree::KeyRange;
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos, VirtualOffset};
use weft_engine::world::World;
use weft_sim::disk::DiskImage;

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
        is_made_whole(&mixed, &format!("disk {older} was put back"));
        mixed.close();
    }
}

/// A repair ends well, and no disk lacks anything after it.
fn is_made_whole(story: &Story, when: &str) {
    repair(story);
    assert_eq!(story.rig.pool().unsound_bytes(), ByteCount::ZERO, "{when}");
    assert_eq!(story.prove(), 0, "{when}");
}

/// What somebody set out to read while a disk was brought up to date, and finds old when that is over, is no fault of
/// the disk. What is found bad by those who come later is.
pub fn a_read_that_began_before_a_disk_was_brought_up_to_date_accuses_nobody() {
    let mut story = Story::new(31, 4, PARITY);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.close();
    let before = story.images()[3].clone();
    story.open().unwrap();
    story.write_and_flush(0, 6 * story.stripe(), 2);
    story.close();
    story.rig.disks[3].return_as(&before);
    story.open().unwrap();
    assert_eq!(story.byte(0, story.stripe()).unwrap(), 2);
    let pool = story.rig.pool();
    let set_out = target(&pool);
    repair(&story);
    for (nth, (target, accuses)) in [(set_out, false), (target(&pool), true)].into_iter().enumerate() {
        let at = (0..4).filter_map(|slot| target.locate(slot, nth)).find(|(at, _)| at.disk == DiskNo(3));
        let (at, block) = at.expect("disk 3 has a strip of every stripe");
        story.rig.disks[3].rot(pool.store().slab_offset(at, block));
        let proving = pool.clone();
        let proven = story.rig.run(async move { proving.store().prove_stripe(&target).await.unwrap() });
        assert_eq!((proven.bad(), proven.healed), (1, 1));
        let accused = story.events().iter().any(|event| matches!(event, Event::BlockBad { disk: DiskNo(3), .. }));
        assert_eq!(accused, accuses, "of those who came later: {accuses}");
    }
    assert_eq!(story.prove(), 0);
    drop(pool);
    story.close();
}

/// The first stripe of the virtual disk, for somebody who reads it.
fn target(pool: &Pool) -> Target {
    let place = {
        let map = pool.store().map.borrow();
        let table = map.vdisks.values().next().expect("the story made it").tables[0];
        map.place_of(table, 0).expect("it is written")
    };
    Target::new(pool.store(), place).expect("its segment is there")
}

/// A disk is put back from a copy that was made after its last label, and before writes that were flushed: neither its
/// label tells, nor the log, where it carries none. It is proven as a whole, and has what it is to have.
pub fn a_disk_that_is_put_back_from_a_copy_made_since_its_last_label_is_proven() {
    let mut story = Story::new(32, 5, PARITY);
    story.write_and_flush(0, 12 * story.stripe(), 1);
    story.checkpoint();
    story.write_and_flush(0, story.stripe(), 2);
    let before = story.images();
    story.write_and_flush(story.stripe(), 8 * story.stripe(), 3);
    story.cut();
    let after = story.images();
    let mut silent = 0;
    for older in 0..5 {
        if label_of(&before[older]).serial != label_of(&after[older]).serial {
            continue;
        }
        silent += 1;
        for killed_at in [None, Some(5), Some(20), Some(40)] {
            let mut images = after.clone();
            images[older] = before[older].clone();
            let mut mixed = story.with_images(&images);
            if let Some(operations) = killed_at {
                // The next opening finds the same, also where labels were written meanwhile.
                let opening = mixed.rig.opening(&mut mixed.rng);
                mixed.rig.world.spawn("opening", Box::pin(async move { drop(opening.await) }));
                let (ticking, last) = (mixed.rig.world.clone(), mixed.rig.world.operations() + operations);
                mixed.rig.world.run_until(Nanos::secs(5), move || ticking.operations() >= last);
                mixed.cut();
                mixed = mixed.with_images(&mixed.images());
            }
            mixed.open().unwrap();
            is_made_whole(&mixed, &format!("disk {older} was put back, and the opening cut off at {killed_at:?}"));
            assert_eq!(mixed.byte(story.stripe(), 8 * story.stripe()).unwrap(), 3);
            mixed.close();
        }
    }
    assert!(silent >= 2, "of {silent} disks the labels tell nothing");
}

/// A disk that is back, and not brought up to date yet, takes new strips; then it is put back from a copy made before
/// those, which its label does not tell. What is on record of what it missed before is not all that it lacks.
pub fn a_disk_that_is_put_back_before_it_was_up_to_date_is_proven() {
    const BEHIND: usize = 2;
    let mut story = Story::of_size(34, 5, PARITY, ByteCount::mib(8), false);
    let stripe = story.stripe();
    story.close();
    // No job brings it up to date.
    story.rig.options.tuning.auto_jobs = false;
    story.open().unwrap();
    story.write_and_flush(0, 4 * stripe, 1);
    story.rig.disks[BEHIND].vanish();
    story.write_and_flush(0, 4 * stripe, 2);
    let mut rng = story.rng.fork("back");
    story.rig.disks[BEHIND].return_intact(&mut rng);
    attach(&story, BEHIND);
    // The next segment is one of which it missed nothing.
    story.write_and_flush(0, 80 * stripe, 3);
    story.checkpoint();
    let before = story.images();
    story.write_and_flush(20 * stripe, 8 * stripe, 4);
    story.cut();
    let mut images = story.images();
    assert_eq!(label_of(&before[BEHIND]).serial, label_of(&images[BEHIND]).serial, "its label tells nothing");
    images[BEHIND] = before[BEHIND].clone();
    let mut mixed = story.with_images(&images);
    mixed.rig.options.tuning.auto_jobs = true;
    mixed.open().unwrap();
    is_made_whole(&mixed, "what it lacks was brought back");
    assert_eq!(mixed.byte(20 * stripe, 8 * stripe).unwrap(), 4);
    mixed.close();
}

/// A disk is lost, and put back from a copy that was made since its last label and before its last writes, which were
/// flushed. What is written while it is away is not all that it lacks.
pub fn a_disk_that_is_lost_and_put_back_older_is_brought_all_since_its_last_label() {
    lost_and_put_back_older(|story, lost| {
        story.rig.disks[lost].vanish();
        // It is seen to go, on its own.
        story.write_and_flush(story.stripe(), story.stripe(), 4);
        story.close();
    });
}

/// A disk is away when its pool is opened after a crash, and put back from a copy that was made since its last label.
/// What the log says was written to it counts as missed.
pub fn a_disk_that_is_away_at_an_opening_and_put_back_older_is_brought_what_the_log_says() {
    lost_and_put_back_older(|story, lost| {
        story.cut();
        story.rig.disks[lost].vanish();
        story.open().unwrap();
        story.close();
    });
}

/// Each disk of five is lost in this way, and put back as it was before its last flushed writes.
fn lost_and_put_back_older(lose: impl Fn(&mut Story, usize)) {
    for lost in 0..5 {
        let mut story = Story::of_size(35, 5, PARITY, ByteCount::mib(8), false);
        let stripe = story.stripe();
        story.write_and_flush(0, 40 * stripe, 1);
        story.checkpoint();
        let before = story.images()[lost].clone();
        story.write_and_flush(stripe, 30 * stripe, 2);
        assert_eq!(label_of(&before).serial, label_of(&story.images()[lost]).serial, "its label tells nothing");
        lose(&mut story, lost);
        story.rig.disks[lost].return_as(&before);
        story.open().unwrap();
        is_made_whole(&story, &format!("what disk {lost} lacks was brought back"));
        assert_eq!(story.byte(2 * stripe, 29 * stripe).unwrap(), 2);
        story.close();
    }
}

/// A disk is put back from a copy that is one label old, while nothing says yet that the newest label is durable: it
/// may be that the power went while the labels were written, so it counts as up to date. The log tells that it is not.
pub fn pages_of_a_disk_that_is_put_back_one_label_old_are_brought_up_to_date() {
    let mut story = Story::new(33, 4, PARITY);
    story.rig.make_vdisk_named("other", story.layout, ByteCount::mib(1), 512, false).unwrap();
    story.write_and_flush(0, 12 * story.stripe(), 1);
    story.checkpoint();
    let before = story.images();
    // The log says nothing of its pages after the checkpoint: no opening reads them.
    let (other, len) = (story.rig.pool().vdisk("other").unwrap(), 4 * story.stripe() as usize);
    story.rig.run(async move { other.write(VirtualOffset(0), &vec![3; len], true).await.unwrap() });
    story.checkpoint();
    (0..3).for_each(|no| story.write_and_flush(no * story.stripe(), story.stripe(), 2));
    story.cut();
    let after = story.images();
    let mut current = 0;
    for older in 0..4 {
        let mut images = after.clone();
        images[older] = before[older].clone();
        current += usize::from(label_of(&before[older]).epoch >= label_of(&after[0]).durable_epoch);
        let mut mixed = story.with_images(&images);
        mixed.open().unwrap();
        repair(&mixed);
        let pool = mixed.rig.pool();
        let report = mixed.rig.run(async move { pool.check(false).await.unwrap() });
        assert!(report.is_sound() && report.bad_pages == 0, "disk {older} was put back: {report:?}");
        assert_eq!(mixed.byte(0, 3 * story.stripe()).unwrap(), 2);
        mixed.close();
    }
    assert_eq!(current, 4, "so many disks count as up to date");
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

/// One of two disks went on alone, and is away when a person has the pool opened with the other. What it holds since
/// then is another history's, whether it is attached or there at the next opening.
pub fn a_disk_that_went_on_while_an_older_one_was_told_to_is_proven() {
    let mut story = Story::new(14, 2, MIRROR2);
    let stripe = story.stripe();
    story.write_and_flush(0, 6 * stripe, 1);
    story.checkpoint();
    story.rig.disks[1].vanish();
    // It comes to write where the other one has what was written first.
    for value in 2..12 {
        story.write_and_flush(0, 6 * stripe, value);
        story.checkpoint();
    }
    story.cut();
    let images = story.images();
    for attached in [true, false] {
        let mut older = story.with_images(&images);
        older.rig.options.degraded = true;
        older.rig.disks[0].vanish();
        // Nothing is written: what the other one misses of that would be proven with it.
        older.open().unwrap();
        if attached {
            older.rig.disks[0].return_intact(&mut older.rng);
            attach(&older, 0);
        } else {
            older.close();
            older.rig.disks[0].return_intact(&mut older.rng);
            older.open().unwrap();
        }
        is_made_whole(&older, &format!("attached: {attached}"));
        assert_eq!(older.byte(stripe, 2 * stripe).unwrap(), 1, "the person said that this is the truth");
        older.close();
    }
}

/// All disks lost what was written to the places of data, and to checksum pages, since some time: what lies there
/// agrees with the checksums of then.
pub fn old_data_that_agrees_with_old_checksums_is_an_error() {
    for resiliency in [MIRROR2, MIRROR3, PARITY] {
        let mut story = lost_since(resiliency, |_| ());
        let pool = story.rig.pool();
        let report = story.rig.run(async move { pool.check(false).await.unwrap() });
        assert!(report.bad_pages > 0, "old checksum pages are taken for the newest: {report:?}");
        nothing_old_is_read(&mut story, resiliency);
    }
}

/// The tree says nothing of the versions of checksum pages, and all disks lost what was written to them, and to the
/// places of data, since some time: an older version of the stripe lies where the newest one should.
pub fn an_older_version_in_its_own_place_is_an_error() {
    for resiliency in [MIRROR2, MIRROR3, PARITY] {
        let mut story = lost_since(resiliency, |story| {
            let pool = story.rig.pool();
            pool.store().tree().clear(KeyRange::of_kind(SHEETS));
            story.checkpoint();
        });
        nothing_old_is_read(&mut story, resiliency);
    }
}

/// The stripes that the stories of lost writes write over and over.
const REWRITTEN: u64 = 8;
/// What they hold in the end.
const NEWEST: u8 = 29;

/// A pool whose stripes were written over many times, open, of which all disks lost what was written of data and of
/// checksum pages for some time, till the end. `before_the_end` is done when all is written.
fn lost_since(resiliency: Resiliency, before_the_end: impl Fn(&mut Story)) -> Story {
    let mut story = Story::new(13, 4, resiliency);
    let write = |story: &mut Story, value| {
        story.write_and_flush(0, REWRITTEN * story.stripe(), value);
        story.checkpoint();
    };
    (1..20).for_each(|value| write(&mut story, value));
    story.cut();
    let before = story.images();
    story.open().unwrap();
    (20..=NEWEST).for_each(|value| write(&mut story, value));
    before_the_end(&mut story);
    story.close();
    let images: Vec<DiskImage> = story.images().iter().zip(&before).map(|(now, before)| lose(now, before)).collect();
    let mut story = story.with_images(&images);
    story.open().unwrap();
    story
}

/// Each stripe is the newest, or an error; what is written anew is sound, and stays so, and so are the checksum pages,
/// once they are mended.
fn nothing_old_is_read(story: &mut Story, resiliency: Resiliency) {
    let stripe = story.stripe();
    let mut lost = 0;
    for no in 0..REWRITTEN {
        match story.byte(no * stripe, stripe) {
            Ok(byte) => assert_eq!(byte, NEWEST, "stripe {no} of {resiliency:?} is as it was before"),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Lost, "{error}");
                lost += 1;
            }
        }
    }
    assert!(lost > 0, "no place was used again");
    story.write_and_flush(0, REWRITTEN * stripe, NEWEST + 1);
    story.checkpoint();
    story.close();
    story.open().unwrap();
    assert_eq!(story.byte(0, REWRITTEN * stripe).unwrap(), NEWEST + 1);
    let pool = story.rig.pool();
    story.rig.run(async move { pool.check(true).await.unwrap() });
    assert_eq!(story.prove(), 0);
    story.close();
}

/// A disk as it is `now`, but that what lies in its slabs is as it was `before`, except stripe tables and the tree.
fn lose(now: &DiskImage, before: &DiskImage) -> DiskImage {
    let plan = label_of(now).plan;
    let mut image = now.clone();
    for at in (plan.data_at.0..plan.disk_len.0).step_by(BLOCK as usize).map(DiskOffset) {
        let [now, before] = [now, before].map(|image| image.read(at, ByteCount(BLOCK)).unwrap());
        let sheet =
            |block: &[u8]| block.starts_with(&PAGE_MAGIC) && block[24..26] == (PageKind::Sheet as u16).to_le_bytes();
        let data = |block: &[u8]| block.iter().all(|byte| *byte == block[0]);
        if now != before && (sheet(&now) || data(&now)) && (sheet(&before) || data(&before)) {
            image.overwrite(at, &before);
        }
    }
    image
}

/// The map says of two stripes that each lies where the other does.
pub fn a_place_that_came_to_be_another_stripe_s_is_an_error() {
    for resiliency in [SIMPLE, MIRROR2, PARITY] {
        let mut story = Story::new(14, 4, resiliency);
        let stripe = story.stripe();
        (0..4).for_each(|no| story.write_and_flush(no * stripe, stripe, 1 + no as u8));
        {
            let pool = story.rig.pool();
            let mut map = pool.store().map.borrow_mut();
            let table = map.vdisks.values().next().unwrap().tables[0];
            let table = map.tables.get_mut(&table).unwrap();
            let places = [table.get(1), table.get(2)];
            table.set(1, places[1]);
            table.set(2, places[0]);
        }
        for no in 0..4 {
            let read = story.byte(no * stripe, stripe);
            match no {
                1 | 2 => assert_eq!(kind(read), Some(ErrorKind::Lost), "stripe {no} of {resiliency:?}"),
                _ => assert_eq!(read.unwrap(), 1 + no as u8),
            }
            // What is merged with it would make it the truth.
            if no == 1 {
                let _ = story.write(no * stripe + 512, 512, 9);
                assert_eq!(kind(story.flush().and_then(|()| story.byte(no * stripe, 512))), Some(ErrorKind::Lost));
            }
        }
        let pool = story.rig.pool();
        let report = story.rig.run(async move { pool.check(false).await.unwrap() });
        assert_eq!(report.lost_stripes, 2, "{report:?}");
        assert!(report.problems.iter().any(|problem| problem.contains("not what is looked for")), "{report:?}");
        story.rig.halt();
    }
}

/// Two of four disks come back as older copies, other files or devices that were rolled back: the pool takes neither
/// while it cannot do without them, and serves what was flushed when the disks themselves are back. One alone it takes,
/// proves, and takes for the disk.
pub fn older_copies_take_nothing_with_them() {
    old_copies_come(|pool, disk| Box::pin(async move { pool.attach_copy(disk).await }));
    old_copies_come(|pool, disk| Box::pin(async move { pool.attach(disk).await }));
}

type Attaching = fn(Rc<Pool>, Rc<dyn Disk>) -> LocalBoxFuture<'static, Result<DiskNo>>;

fn old_copies_come(attaching: Attaching) {
    let mut story = Story::new(33, 4, PARITY);
    story.write_and_flush(0, 6 * story.stripe(), 1);
    let before = story.images();
    story.write_and_flush(0, 6 * story.stripe(), 2);
    let come_as_copy = |story: &Story, disk: usize| {
        story.rig.disks[disk].return_as(&before[disk]);
        let (pool, disk) = (story.rig.pool(), story.rig.disks[disk].clone());
        story.rig.run(attaching(pool, Rc::new(disk)))
    };
    let itself = [2, 3].map(|disk| story.rig.disks[disk].image());
    [2, 3].into_iter().for_each(|disk| vanish(&story, disk));
    for disk in [2, 3] {
        let refused = come_as_copy(&story, disk).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NotPossible, "{refused}");
        assert!(refused.context.contains("older copy"), "{refused}");
        story.rig.disks[disk].vanish();
    }
    for (disk, image) in [2, 3].into_iter().zip(&itself) {
        story.rig.disks[disk].return_as(image);
        attach(&story, disk);
    }
    assert_eq!(story.byte(0, 6 * story.stripe()).unwrap(), 2);
    is_made_whole(&story, "the disks themselves are back");
    vanish(&story, 3);
    come_as_copy(&story, 3).unwrap();
    assert_eq!(story.byte(0, 6 * story.stripe()).unwrap(), 2);
    is_made_whole(&story, "a copy was proven");
    vanish(&story, 2);
    assert_eq!(story.byte(0, 6 * story.stripe()).unwrap(), 2, "from the copy");
    story.rig.halt();
}

/// A disk that is not proven yet is nothing that a pool can go on with alone: no other is taken out for maintenance.
pub fn no_disk_is_taken_out_while_another_is_not_proven() {
    let mut story = Story::of_size(35, 4, PARITY, ByteCount::mib(8), false);
    story.close();
    // No job proves it.
    story.rig.options.tuning.auto_jobs = false;
    story.open().unwrap();
    story.write_and_flush(0, 6 * story.stripe(), 1);
    let before = story.images();
    story.write_and_flush(0, 6 * story.stripe(), 2);
    // What it lacks is on no record.
    story.checkpoint();
    vanish(&story, 3);
    story.rig.disks[3].return_as(&before[3]);
    attach(&story, 3);
    let pool = story.rig.pool();
    let refused = story.rig.run(async move { pool.disk_offline(DiskNo(2)).await.unwrap_err() });
    assert!(refused.context.contains("out of reach"), "{refused}");
    is_made_whole(&story, "it was proven");
    let pool = story.rig.pool();
    story.rig.run(async move { pool.disk_offline(DiskNo(2)).await.unwrap() });
    assert_eq!(story.byte(0, 6 * story.stripe()).unwrap(), 2);
    story.rig.halt();
}

fn vanish(story: &Story, disk: usize) {
    story.rig.disks[disk].vanish();
    story.rig.pool().store().disk_lost(DiskNo(disk as u16), "the story says so");
}

/// Two of four disks blink, again and again: each time they are taken for what they are, whatever was written over
/// since they were asked last, and whatever they lost with their power.
pub fn disks_that_blink_are_no_copies() {
    let mut story = Story::new(34, 4, PARITY);
    for nth in 0..24 {
        let (pool, name) = (story.rig.pool(), format!("pool{nth}"));
        story.rig.run(async move { pool.rename(&name).await.unwrap() });
        story.write_and_flush(nth % 6 * story.stripe(), story.stripe(), nth as u8 + 1);
        // On its way to the disks, or being flushed, when they go.
        story.write((nth + 3) % 6 * story.stripe(), story.stripe(), nth as u8 + 100).unwrap();
        let (world, vdisk) = (story.rig.world.clone(), story.rig.pool().vdisk("vdisk").unwrap());
        world.spawn("flush", Box::pin(async move { drop(vdisk.flush().await) }));
        story.rig.run(async move { world.sleep(Nanos(nth * 20_000)).await });
        [2, 3].into_iter().for_each(|disk| vanish(&story, disk));
        for disk in [2, 3] {
            story.rig.disks[disk].come_back(&mut story.rng);
            attach(&story, disk);
        }
        assert!(story.rig.pool().store().frozen().is_none(), "at {nth}");
        // It may be lost, with the power of two disks.
        if story.flush().is_err() {
            story.rig.pool().vdisk("vdisk").unwrap().clear().unwrap();
        }
        story.write_and_flush((nth + 3) % 6 * story.stripe(), story.stripe(), nth as u8 + 100);
    }
    is_made_whole(&story, "all are back");
    story.rig.halt();
}
