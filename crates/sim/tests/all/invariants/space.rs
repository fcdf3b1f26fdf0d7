//! Space: what is promised can be written, what is given back is free, a full pool does no harm.

use crate::story::*;
use weft_engine::error::ErrorKind;
use weft_engine::geometry::Resiliency;
use weft_engine::pool::Class;
use weft_engine::units::{BLOCK, ByteCount};

/// segment/mod.rs, invariants 1 to 3, and vdisk/mod.rs, invariant 2: a full thin pool refuses new data, keeps the old,
/// can be overwritten and flushed, and after a discard takes data again.
#[test]
fn a_full_pool_refuses_does_no_harm_and_lives_on_after_a_discard() {
    for resiliency in [MIRROR2, PARITY] {
        let disks = if resiliency == PARITY { 3 } else { 2 };
        let mut story = Story::of_size(1, disks, resiliency, ByteCount::mib(64), false);
        let stripe = story.stripe();
        let mut filled = 0;
        let refused = loop {
            match story.write(filled * stripe, stripe, (filled % 250) as u8 + 1) {
                Ok(()) => filled += 1,
                Err(error) => break error,
            }
            if filled % 8 == 0 {
                story.flush().unwrap();
            }
        };
        assert_eq!(refused.kind, ErrorKind::NoSpace);
        assert!(filled > 100, "{filled} stripes");
        story.flush().unwrap();
        // An overwrite is no new data, whole or in part.
        story.write_and_flush(3 * stripe, stripe, 251);
        story.write_and_flush(4 * stripe, 512, 252);
        assert_eq!(story.info().vdisks[0].failure, None);
        story.cut();
        story.open().unwrap();
        for no in (0..filled).filter(|no| ![3, 4].contains(no)) {
            assert_eq!(story.byte(no * stripe, stripe).unwrap(), (no % 250) as u8 + 1, "stripe {no}");
        }
        assert_eq!(story.byte(3 * stripe, stripe).unwrap(), 251);
        assert_eq!(story.byte(4 * stripe, 512).unwrap(), 252);
        assert_eq!(kind(story.write(filled * stripe, stripe, 1)), Some(ErrorKind::NoSpace));
        story.discard(10 * stripe, 20 * stripe);
        story.flush().unwrap();
        for no in 0..15 {
            story.write((filled + no) * stripe, stripe, 253).unwrap();
        }
        story.flush().unwrap();
        assert_eq!(story.byte(filled * stripe, 15 * stripe).unwrap(), 253);
        assert_eq!(story.byte(10 * stripe, 20 * stripe).unwrap(), 0);
        assert_eq!(story.prove(), 0);
        story.close();
    }
}

/// pool/mod.rs and segment/mod.rs: a fixed disk has its slabs from the start and keeps them; it fills to its end beside
/// a thin one that has no room; more than fits is refused.
#[test]
fn a_fixed_disk_always_has_room_for_all_of_it() {
    let size = ByteCount::mib(2);
    let mut story = Story::of_size(2, 2, MIRROR2, size, true);
    let reserved = story.info().vdisks[0].footprint;
    assert!(reserved.0 >= 2 * size.0, "{reserved}");
    assert_eq!(
        kind(story.rig.make_vdisk_named("huge", story.layout, ByteCount::mib(64), 512, true)),
        Some(ErrorKind::NoSpace)
    );
    story.rig.make_vdisk_named("thin", story.layout, ByteCount::mib(64), 512, false).unwrap();
    let thin = story.rig.pool().vdisk("thin").unwrap();
    let full = story.rig.run(async move {
        let mut at = 0;
        loop {
            let block = vec![1; 16 << 10];
            if let Err(error) = thin.write(weft_engine::units::VirtualOffset(at), &block, true).await {
                return error;
            }
            at += 16 << 10;
        }
    });
    assert_eq!(full.kind, ErrorKind::NoSpace);
    for round in 1..4 {
        story.write_and_flush(0, size.0, round);
    }
    story.discard(0, size.0);
    story.flush().unwrap();
    assert_eq!(story.info().vdisks[0].footprint, reserved, "a discard takes nothing from it");
    story.cut();
    story.open().unwrap();
    story.write_and_flush(0, size.0, 8);
    story.discard(0, size.0);
    story.flush().unwrap();
    assert_eq!(story.info().vdisks[0].footprint, reserved, "nor after another opening");
    story.write_and_flush(0, size.0, 9);
    assert_eq!(story.byte(0, size.0).unwrap(), 9);
    assert_eq!(story.prove(), 0);
    story.close();
}

/// segment/mod.rs, invariants 2 and 4: what is discarded or removed goes back to the pool, and stays so after a crash.
#[test]
fn discarding_and_removing_give_slabs_back() {
    let mut story = Story::of_size(3, 2, MIRROR2, ByteCount::mib(3), false);
    let empty = story.info().allocated;
    story.write_and_flush(0, 3 << 20, 1);
    let full = story.info().allocated;
    assert!(full.0 >= empty.0 + (4 << 20), "{empty} to {full}");
    story.discard(0, 3 << 20);
    story.flush().unwrap();
    let after = story.info().allocated;
    assert!(after.0 < full.0 && after.0 <= empty.0 + (4 << 20), "{full} to {after}");
    assert_eq!(story.byte(0, 3 << 20).unwrap(), 0);
    assert_eq!(story.info().vdisks[0].mapped, ByteCount::ZERO);
    story.cut();
    story.open().unwrap();
    assert!(story.info().allocated <= after, "what was given back stays so");
    assert_eq!(story.byte(0, 3 << 20).unwrap(), 0);
    let pool = story.rig.pool();
    story.rig.run(async move { pool.vdisk_remove("vdisk").await.unwrap() });
    let (allocated, metadata) = (story.info().allocated, story.info().metadata);
    assert_eq!(allocated, metadata, "nothing but metadata is left");
    story.prove();
    story.cut();
    story.open().unwrap();
    assert!(story.rig.pool().vdisks().is_empty());
    assert_eq!(story.info().allocated, allocated);
    story.close();
}

/// stripe/table.rs, invariant 1: a disk that nobody wrote to costs nothing and reads as zeros.
#[test]
fn what_was_never_written_costs_nothing() {
    let mut story = Story::of_size(4, 2, MIRROR2, ByteCount::gib(1 << 20), false);
    let before = story.info().allocated;
    assert_eq!(story.byte(1 << 49, 1 << 20).unwrap(), 0);
    assert_eq!(story.info().allocated, before);
    story.write_and_flush(1 << 49, story.stripe(), 7);
    assert_eq!(story.byte(1 << 49, story.stripe()).unwrap(), 7);
    assert_eq!(story.byte((1 << 49) + story.stripe(), 1 << 20).unwrap(), 0);
    story.close();
}

/// pool/mod.rs, invariants 1 and 2: names are unique, and a change that was told is there after a crash.
#[test]
fn configuration_is_durable_when_it_is_told_and_names_are_unique() {
    let mut story = Story::new(5, 2, MIRROR2);
    story.rig.make_vdisk_named("second", story.layout, ByteCount::mib(1), 512, false).unwrap();
    assert_eq!(
        kind(story.rig.make_vdisk_named("second", story.layout, ByteCount::mib(1), 512, false)),
        Some(ErrorKind::AlreadyExists)
    );
    story.cut();
    story.open().unwrap();
    let pool = story.rig.pool();
    assert_eq!(pool.vdisks().len(), 2);
    story.rig.run(async move {
        pool.vdisk_resize("second", ByteCount::mib(3)).await.unwrap();
        pool.vdisk_remove("vdisk").await.unwrap();
    });
    story.cut();
    story.open().unwrap();
    let pool = story.rig.pool();
    assert_eq!(pool.vdisks().len(), 1);
    assert_eq!(pool.vdisk("second").unwrap().size(), ByteCount::mib(3));
    drop(pool);
    story.close();
}

/// segment/reserve.rs: a thin disk as large as there is room for takes data from its first byte to its last, one after
/// the other or in any order, and then again anywhere; on few disks and many, with slabs that are large and small for
/// them.
#[test]
fn a_thin_disk_of_all_the_room_can_be_written_to_its_end() {
    for (disks, slab, columns, resiliency, class, in_order) in [
        (5, 4, 4, PARITY, Class::Auto, true),
        (9, 4, 4, PARITY, Class::Auto, false),
        (9, 1, 4, PARITY, Class::Auto, true),
        (5, 1, 5, PARITY, Class::Log { unit: None }, false),
        (6, 1, 6, Resiliency::Parity { parity: 2 }, Class::Auto, true),
        (5, 2, 2, MIRROR2, Class::Auto, false),
        (3, 1, 1, MIRROR3, Class::Log { unit: None }, true),
        (1, 1, 1, SIMPLE, Class::Auto, false),
    ] {
        let mut story = Story::of_all_the_room(disks, ByteCount::mib(slab), columns, resiliency, class);
        let size = story.info().vdisks[0].size.0;
        let piece = if in_order { 1 << 20 } else { 64 << 10 };
        let mut starts: Vec<u64> = (0..size).step_by(piece as usize).collect();
        if !in_order {
            starts.sort_by_cached_key(|_| story.rng.next_u64());
        }
        let name = format!("{} on {disks} disks, slabs of {slab} MiB, {size} bytes", story.layout);
        let again: Vec<u64> = (0..500).map(|_| story.rng.below(size / BLOCK) * BLOCK).collect();
        let writes =
            starts.into_iter().map(|at| (at, piece.min(size - at))).chain(again.into_iter().map(|at| (at, BLOCK)));
        let mut blocks = vec![0; (size / BLOCK) as usize];
        for (nth, (at, len)) in writes.enumerate() {
            let byte = nth as u8 | 1;
            story.write(at, len, byte).unwrap_or_else(|error| panic!("{name}: write {nth}, at {at}: {error}"));
            blocks[(at / BLOCK) as usize..((at + len) / BLOCK) as usize].fill(byte);
            if nth % 8 == 7 {
                story.flush().unwrap();
            }
        }
        story.flush().unwrap();
        story.cut();
        story.open().unwrap();
        for (nth, written) in blocks.chunks(256).enumerate() {
            let read = story.read((nth as u64) << 20, written.len() as u64 * BLOCK).unwrap();
            let right = read.chunks(BLOCK as usize).zip(written).all(|(block, byte)| block.iter().all(|at| at == byte));
            assert!(right, "{name}: MiB {nth}");
        }
        story.close();
    }
}
