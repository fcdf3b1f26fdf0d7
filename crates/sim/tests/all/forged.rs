//! Forged contents: whoever can write a disk can make every checksum right. Labels, checkpoints, log records and pages
//! with any number in any field, records twice, missing or in another order: the pool opens and serves, or says what is
//! wrong. Never a panic, never a hang, never memory beyond reason.
//!
//! `WEFT_FORGED=2500 cargo test --profile proof -p weft-sim --test forged` tries so many images; a few of each kind
//! otherwise.

use crate::story::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use weft_engine::checksum::crc32c;
use weft_engine::disk_set::DiskSet;
use weft_engine::dump::{Wanted, dump};
use weft_engine::error::ErrorKind;
use weft_engine::format::batch::BATCH_HEAD;
use weft_engine::format::label::{DiskPlan, Label};
use weft_engine::format::page::PAGE_MAGIC;
use weft_engine::format::record::{
    CacheChoice, ChunkRecord, DiskRecord, JobKind, JobRecord, JobState, PageRun, PoolRecord, Record, VdiskRecord,
    decode,
};
use weft_engine::geometry::Resiliency;
use weft_engine::io::Disk;
use weft_engine::pool::VdiskSpec;
use weft_engine::store::meta::conf::CONF;
use weft_engine::tree::{At, Key, KeyRange};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset, JobNo, SegmentNo, TableNo, VdiskNo, VirtualOffset};
use weft_sim::disk::DiskImage;
use weft_sim::rng::Rng;

/// Where the CRC of a label lies.
const LABEL_CRC: usize = 12;

// What was seen, one by one.

#[test]
fn one_label_with_counters_near_their_end_costs_that_disk_and_not_the_pool() {
    let story = used();
    let epoch = core::mem::offset_of!(RawLabel, epoch);
    for (at, value) in [(epoch, (1 << 62) - 1), (epoch, 1 << 60), (epoch, 1 << 50), (epoch + 8, (1 << 62) - 1)] {
        for slots in [2, 4] {
            let mut images = story.images();
            forge_label(&mut images[1], slots, |block| block[at..at + 8].copy_from_slice(&u64::to_le_bytes(value)));
            let mut again = story.with_images(&images);
            again.open().unwrap_or_else(|error| panic!("{value:#x} at {at}, {slots} slots: {error}"));
            judge(&again);
            again.write_and_flush(0, again.stripe(), 9);
            again.checkpoint();
            again.close();
            // Every label that it wrote can be read.
            let mut once_more = story.with_images(&again.images());
            once_more.open().unwrap();
            assert_eq!(once_more.byte(0, 1024).unwrap(), 9);
            once_more.close();
        }
    }
}

#[test]
fn numbers_that_are_in_use_are_not_given_out_again() {
    let story = used();
    let images = with_records(&story, |records| {
        for record in records.iter_mut() {
            if let Record::Pool(next) = record {
                *next = PoolRecord::default();
            }
        }
    });
    let mut again = story.with_images(&images);
    again.open().unwrap();
    let layout = again.layout;
    again.rig.make_vdisk_named("other", layout, ByteCount::mib(1), 512, false).unwrap();
    judge(&again);
    assert_eq!(again.prove(), 0);
    let ids: Vec<VdiskNo> = again.rig.pool().vdisks().iter().map(|vdisk| vdisk.id()).collect();
    let apart: std::collections::BTreeSet<&VdiskNo> = ids.iter().collect();
    assert!(ids.len() == 3 && apart.len() == 3, "{ids:?}");
    again.close();
}

#[test]
fn a_pool_that_contradicts_itself_does_not_open() {
    let story = used();
    let vdisk = |id, name: &str, tables: Vec<TableNo>| {
        Record::Vdisk(VdiskRecord {
            id,
            name: name.into(),
            size: ByteCount::mib(1),
            sector: 512,
            fixed: false,
            tables,
            fine_share: None,
            cache: None,
            tier: None,
            cache_choice: CacheChoice::Auto,
        })
    };
    let (_, records) = checkpoint_of(&story.images()[0]);
    let own = records.iter().find_map(|record| match record {
        Record::Vdisk(vdisk) => Some(vdisk.clone()),
        _ => None,
    });
    let own = own.unwrap();
    let disk = records.iter().find_map(|record| match record {
        Record::Disk(disk) if disk.no == DiskNo(1) => Some(disk.clone()),
        _ => None,
    });
    let disk = disk.unwrap();
    let renamed = |name: &str| Record::Disk(DiskRecord { name: name.into(), ..disk.clone() });
    let job = |disk| {
        Record::Job(JobRecord {
            id: JobNo(1),
            kind: JobKind::Evacuate { disk, to: None, forget: true },
            state: JobState::Waiting,
            began: 0,
            done: 0,
            total: 0,
            cursor: 0,
            bad: 0,
            healed: 0,
        })
    };
    let pool = |next_segment| Record::Pool(PoolRecord { next_segment, ..PoolRecord::default() });
    let many: Vec<Record<'static>> = (0..500)
        .map(|chunk| {
            let pages = PageRun { segment: SegmentNo(0), first: 0, count: 16 };
            Record::Chunk(ChunkRecord { table: own.tables[0], chunk: chunk + 100, pages, versions: [0; 16] })
        })
        .collect();
    for (what, more) in [
        ("a table of two virtual disks", vec![vdisk(VdiskNo(77), "twin", own.tables.clone())]),
        ("a table twice", vec![vdisk(own.id, &own.name, vec![own.tables[0], own.tables[0]])]),
        ("one name for two", vec![vdisk(VdiskNo(77), &own.name, vec![own.tables[0]])]),
        ("a name that moves the cursor", vec![vdisk(own.id, "\u{1b}[2J", own.tables.clone())]),
        ("a disk with the name of another", vec![renamed("d0")]),
        ("a name of a disk with a line break", vec![renamed("d\n0")]),
        ("a job about a disk that cannot be", vec![job(DiskNo(9999))]),
        ("numbers at their end", vec![pool(SegmentNo(u32::MAX))]),
        (
            "more slabs than the disk has",
            vec![Record::Disk(DiskRecord { slabs: disk.slabs + 1, disk_len: ByteCount::gib(1), ..disk.clone() })],
        ),
        ("hundreds of chunks in one place", many),
    ] {
        let images = with_records(&story, |records| records.extend(more.iter().cloned()));
        let mut again = story.with_images(&images);
        assert_eq!(kind(again.open()), Some(ErrorKind::Corrupt), "{what}");
    }
}

// Many, at random.

#[test]
fn forged_and_damaged_images_open_and_serve_or_are_refused() {
    let count: u64 = std::env::var("WEFT_FORGED").map_or(160, |count| count.parse().expect("a number of images"));
    let seed: u64 = std::env::var("WEFT_FORGED_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let (story, whole) = (used(), used_with(true));
    let (mut opened, mut panics) = (0, Vec::new());
    for no in seed..seed + count {
        let mut rng = Rng::new(no);
        // All of the configuration is in the checkpoint, or most of it in the tree.
        let story = if rng.chance(0.5) { &whole } else { &story };
        let mut images = story.images();
        let what = forge(story, &mut images, &mut rng);
        match catch_unwind(AssertUnwindSafe(|| serves(story, &images))) {
            Ok(served) => opened += served as u64,
            Err(panic) => panics.push(format!("image {no} ({what}): {}", words(&*panic))),
        }
    }
    println!(
        "{count} images: {opened} opened, {} refused, {} panics",
        count - opened - panics.len() as u64,
        panics.len()
    );
    assert!(panics.is_empty(), "{}", panics.join("\n"));
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// Opens the pool, if it opens, and does with it whatever a daemon may.
fn serves(story: &Story, images: &[DiskImage]) -> bool {
    let mut again = story.with_images(images);
    let disks: Vec<Rc<dyn Disk>> = again.rig.disks.iter().map(|disk| Rc::new(disk.clone()) as Rc<dyn Disk>).collect();
    let told = again.rig.run(async move { dump(disks, &Wanted { records: true, keys: Some(KeyRange::ALL) }).await });
    assert_same(&again.images(), images);
    if again.open().is_err() {
        return false;
    }
    assert!(!told.pools.is_empty(), "what opens is told");
    let pool = again.rig.pool();
    let _ = pool.info();
    let _ = (pool.jobs(), pool.events(), pool.settings());
    for vdisk in pool.vdisks() {
        let own = vdisk.clone();
        again.rig.run(async move {
            let _ = own.explain_read(VirtualOffset(0), 4096).await;
            let _ = own.allocation(VirtualOffset(0), own.size().0.min(1 << 20)).await;
            let mut into = vec![0; 64 << 10];
            for at in [0, 64 << 10, 256 << 10] {
                let _ = own.read(VirtualOffset(at), &mut into).await;
            }
            let _ = own.write(VirtualOffset(4096), &[7; 8192], false).await;
            let _ = own.write(VirtualOffset(0), &vec![8; 256 << 10], true).await;
            let _ = own.discard(VirtualOffset(128 << 10), 64 << 10, false).await;
            let _ = own.flush().await;
        });
    }
    let spec = VdiskSpec {
        name: "new".into(),
        size: ByteCount::mib(1),
        resiliency: Resiliency::Mirror { copies: 2 },
        columns: Some(1),
        interleave: None,
        fixed: false,
        sector: 512,
        disks: DiskSet::EMPTY,
    };
    let own = pool.clone();
    again.rig.run(async move {
        if let Ok(vdisk) = own.vdisk_create(&spec).await {
            let _ = vdisk.write(VirtualOffset(0), &vec![3; 128 << 10], true).await;
        }
        let _ = own.check(true).await;
        let _ = own.job_start(JobKind::Scrub, 0).await;
        let _ = own.checkpoint().await;
        let _ = own.vdisk_remove("vdisk").await;
    });
    drop(pool);
    let _ = again.rig.close();
    true
}

/// A pool with whole stripes, landed data, a second virtual disk, a job and an event, cut off.
fn used() -> Story {
    used_with(false)
}

/// `whole`: the last checkpoint has all of the configuration itself, and no tree.
fn used_with(whole: bool) -> Story {
    let mut story = Story::new(7, 3, MIRROR2);
    let layout = story.layout;
    story.rig.make_vdisk_named("second", layout, ByteCount::mib(1), 4096, true).unwrap();
    story.write_and_flush(0, 6 * story.stripe(), 1);
    story.rig.pool().note_event(5, 1, true, "something happened".into());
    story.checkpoint();
    if whole {
        story.rig.pool().store().begin_tree_anew();
        story.checkpoint();
    }
    story.write_and_flush(2 * story.stripe(), 2 * story.stripe(), 3);
    story.write_and_flush(5 * story.stripe(), 512, 4);
    story.cut();
    story
}

fn judge(story: &Story) {
    let stripe = story.stripe();
    for (at, len, byte) in [(0, 2 * stripe, 1), (2 * stripe, 2 * stripe, 3), (5 * stripe, 512, 4)] {
        assert_eq!(story.byte(at, len).unwrap(), byte, "{len} bytes at {at}");
    }
}

/// The beginning of a label, for its offsets.
#[repr(C)]
struct RawLabel {
    magic: [u8; 8],
    version: u32,
    crc: u32,
    features: [u64; 3],
    pool_id: [u8; 16],
    disk_id: [u8; 16],
    pool_name: [u8; 48],
    epoch: u64,
}

/// Changes the newest label of a disk, in its own two slots or in all four, and makes it right again.
fn forge_label(image: &mut DiskImage, slots: usize, change: impl Fn(&mut [u8])) {
    let newest = label_of(image);
    let places = DiskPlan::label_slots(image.shape().capacity);
    for at in places {
        let block = image.read(at, ByteCount(BLOCK)).unwrap();
        let label = Label::decode(&block).unwrap();
        if slots == 4 || label.is_some_and(|label| label.serial == newest.serial) {
            let mut block = newest.encode().0.to_vec();
            change(&mut block);
            seal(&mut block, LABEL_CRC);
            image.overwrite(at, &block);
        }
    }
}

fn seal(block: &mut [u8], at: usize) {
    block[at..at + 4].fill(0);
    let crc = crc32c(block);
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The records of the newest checkpoint, as bytes and decoded.
fn checkpoint_of(image: &DiskImage) -> (Vec<u8>, Vec<Record<'static>>) {
    let label = label_of(image);
    let len = label.anchor.checkpoint_len;
    let at = label.plan.blob_at + label.plan.blob_len * (label.anchor.checkpoint_no % 2);
    let mut blob = image.read(at, ByteCount(len.next_multiple_of(BLOCK))).unwrap();
    blob.truncate(len as usize);
    let mut rest = &blob[..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        records.push(match decode(&mut rest).unwrap() {
            Record::Commit(_) | Record::Move(_) | Record::Landed(_) => unreachable!("no checkpoint has those"),
            record => owned(record),
        });
    }
    (blob, records)
}

fn owned(record: Record<'_>) -> Record<'static> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let bytes: &'static [u8] = bytes.leak();
    decode(&mut &*bytes).unwrap()
}

/// The images with another checkpoint, right in every checksum.
fn with_records(story: &Story, change: impl Fn(&mut Vec<Record<'static>>)) -> Vec<DiskImage> {
    let mut images = story.images();
    let (_, mut records) = checkpoint_of(&images[0]);
    change(&mut records);
    let mut blob = Vec::new();
    records.iter().for_each(|record| record.encode(&mut blob));
    images.iter_mut().for_each(|image| put_checkpoint(image, &blob));
    images
}

fn put_checkpoint(image: &mut DiskImage, blob: &[u8]) {
    let mut label = label_of(image);
    let at = label.plan.blob_at + label.plan.blob_len * (label.anchor.checkpoint_no % 2);
    let mut padded = blob.to_vec();
    padded.resize(blob.len().next_multiple_of(BLOCK as usize), 0);
    if padded.len() as u64 > label.plan.blob_len.0 {
        return;
    }
    image.overwrite(at, &padded);
    (label.anchor.checkpoint_len, label.anchor.checkpoint_crc) = (blob.len() as u64, crc32c(blob));
    for slot in DiskPlan::label_slots(image.shape().capacity) {
        image.overwrite(slot, &label.encode().0);
    }
}

/// A number that is likely to be wrong in an interesting way.
fn number(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => 0,
        1 => 1,
        2 => rng.below(8),
        3 => u64::MAX,
        4 => u64::from(u32::MAX) - rng.below(3),
        5 => 1 << rng.below(63),
        6 => (1 << 62) - 1 - rng.below(4),
        _ => rng.next_u64(),
    }
}

/// Puts a number somewhere into `bytes`, as a field of 1 to 8 bytes.
fn put_number(bytes: &mut [u8], from: usize, rng: &mut Rng) -> usize {
    let width = [1usize, 2, 4, 4, 8, 8][rng.below(6) as usize];
    if bytes.len() < from + width {
        return 0;
    }
    let at = (from + rng.below((bytes.len() - from - width + 1) as u64) as usize) / width * width;
    let at = at.max(from.next_multiple_of(width)).min(bytes.len() - width);
    bytes[at..at + width].copy_from_slice(&number(rng).to_le_bytes()[..width]);
    at
}

fn forge(story: &Story, images: &mut Vec<DiskImage>, rng: &mut Rng) -> String {
    match rng.below(12) {
        0..3 => forge_some_label(images, rng),
        3..7 => forge_checkpoint(images, rng),
        10.. => forge_entries(story, images, rng),
        7 => forge_log(images, rng),
        8 => forge_page(images, rng),
        _ => {
            *images = story.images();
            damage(images, rng)
        }
    }
}

fn forge_some_label(images: &mut [DiskImage], rng: &mut Rng) -> String {
    let (disk, slots) = (rng.below(images.len() as u64) as usize, if rng.below(2) == 0 { 2 } else { 4 });
    let everywhere = rng.below(4) == 0;
    let mut numbers = Rng::new(rng.next_u64());
    let count = 1 + rng.below(3);
    let mut ats = Vec::new();
    let mut edits: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut block = label_of(&images[disk]).encode().0.to_vec();
    for _ in 0..count {
        let before = block.clone();
        // The list of lineage numbers is long, and any number in it is as good as any other.
        let at = put_number(&mut block[..1352], 16, &mut numbers);
        ats.push(at);
        let changed: Vec<usize> = (0..block.len()).filter(|at| block[*at] != before[*at]).collect();
        edits.extend(changed.into_iter().map(|at| (at, vec![block[at]])));
    }
    for (no, image) in images.iter_mut().enumerate() {
        if no == disk || everywhere {
            forge_label(image, slots, |block| {
                edits.iter().for_each(|(at, bytes)| block[*at..*at + 1].copy_from_slice(bytes))
            });
        }
    }
    format!("label of disk {disk}, {slots} slots, at {ats:?}{}", if everywhere { ", on all disks" } else { "" })
}

fn forge_checkpoint(images: &mut [DiskImage], rng: &mut Rng) -> String {
    let (blob, _) = checkpoint_of(&images[0]);
    let mut records: Vec<Vec<u8>> = Vec::new();
    let mut rest = &blob[..];
    while !rest.is_empty() {
        let before = rest;
        decode(&mut rest).unwrap();
        records.push(before[..before.len() - rest.len()].to_vec());
    }
    let mut told = Vec::new();
    for _ in 0..1 + rng.below(2) {
        let at = rng.below(records.len() as u64) as usize;
        let kind = records[at][0];
        match rng.below(8) {
            0 => drop(records.remove(at)),
            1 => {
                let copy = records[at].clone();
                records.push(copy);
            }
            2 => records.swap(at, 0),
            3 => {
                let mut copy = records[at].clone();
                put_number(&mut copy, 8, rng);
                records.push(copy);
            }
            _ => drop(put_number(&mut records[at], 8, rng)),
        }
        told.push(kind);
        if records.is_empty() {
            break;
        }
    }
    let blob = records.concat();
    images.iter_mut().for_each(|image| put_checkpoint(image, &blob));
    format!("checkpoint, records of kinds {told:?}")
}

/// Changes what the tree says of segments and chunks, by its own means: every page above is right.
fn forge_entries(story: &Story, images: &mut Vec<DiskImage>, rng: &mut Rng) -> String {
    let mut again = story.with_images(images);
    again.open().unwrap();
    let pool = again.rig.pool();
    let mut chance = Rng::new(rng.next_u64());
    let told = again.rig.run(async move {
        // What was replayed is in it, too.
        pool.checkpoint().await.unwrap();
        let tree = pool.store().tree();
        let entries = tree.scan(At::Head, KeyRange::of_kind(CONF), 1000).await.unwrap().entries;
        let mut told = Vec::new();
        for _ in 0..1 + chance.below(2) {
            let (key, value) = chance.pick(&entries).clone();
            let (other, another) = chance.pick(&entries).clone();
            let mut value = value.to_vec();
            match chance.below(8) {
                0 => tree.delete(key),
                1 => tree.put(other, &value),
                2 => tree.put(Key::new(CONF, chance.below(12), number(&mut chance), number(&mut chance)), &another),
                3 => tree.put(key, &value[..chance.below(value.len() as u64) as usize]),
                _ => {
                    put_number(&mut value, 8, &mut chance);
                    tree.put(key, &value);
                }
            }
            told.push(key);
        }
        pool.checkpoint().await.unwrap();
        told
    });
    again.cut();
    *images = again.images();
    format!("entries {told:?}")
}

/// Changes records of the log, and every checksum and chain after them.
fn forge_log(images: &mut [DiskImage], rng: &mut Rng) -> String {
    let mut told = Vec::new();
    let seed = rng.next_u64();
    for image in images.iter_mut() {
        let mut rng = Rng::new(seed);
        let label = label_of(image);
        let (start, ring) = (label.plan.log_at, label.plan.log_len.0);
        let mut position = label.anchor.log_tail;
        let mut chain = label.anchor.log_chain;
        loop {
            let at = DiskOffset(start.0 + position % ring);
            let head = image.read(at, ByteCount(BLOCK)).unwrap();
            let field = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
            if !head.starts_with(b"WEFTLOGB") || u64::from_le_bytes(head[40..48].try_into().unwrap()) != position {
                break;
            }
            let payload = field(56) as usize;
            let len = (BATCH_HEAD + payload).next_multiple_of(BLOCK as usize);
            let mut batch = image.read(at, ByteCount(len as u64)).unwrap();
            if rng.below(2) == 0 && payload > 16 {
                let changed = put_number(&mut batch[..BATCH_HEAD + payload.min(400)], BATCH_HEAD, &mut rng);
                told.push((position, changed - BATCH_HEAD.min(changed)));
            }
            batch[64..68].copy_from_slice(&chain.to_le_bytes());
            batch[68..72].fill(0);
            chain = crc32c(&batch[..BATCH_HEAD + payload]);
            batch[68..72].copy_from_slice(&chain.to_le_bytes());
            image.overwrite(at, &batch);
            position += len as u64;
        }
    }
    format!("log, at {told:?}")
}

/// Changes every copy of some page of a stripe table or of checksums.
fn forge_page(images: &mut [DiskImage], rng: &mut Rng) -> String {
    let blocks = |image: &DiskImage| {
        let (from, to) = (label_of(image).plan.data_at.0 / BLOCK, image.shape().capacity.0 / BLOCK);
        (from..to).map(|block| DiskOffset(block * BLOCK)).collect::<Vec<_>>()
    };
    let mut pages: Vec<Vec<u8>> = Vec::new();
    for image in images.iter() {
        for at in blocks(image) {
            let block = image.read(at, ByteCount(BLOCK)).unwrap();
            if block.starts_with(&PAGE_MAGIC) {
                pages.push(block[24..40].to_vec());
            }
        }
    }
    if pages.is_empty() {
        return "no pages".into();
    }
    let chosen = pages[rng.below(pages.len() as u64) as usize].clone();
    let seed = rng.next_u64();
    for image in images.iter_mut() {
        for at in blocks(image) {
            let mut block = image.read(at, ByteCount(BLOCK)).unwrap();
            if block.starts_with(&PAGE_MAGIC) && block[24..40] == chosen[..] {
                let mut rng = Rng::new(seed);
                for _ in 0..3 {
                    put_number(&mut block[..300], 40, &mut rng);
                }
                seal(&mut block, 4);
                image.overwrite(at, &block);
            }
        }
    }
    format!("page {chosen:?}")
}

/// Damage that no checksum covers up.
fn damage(images: &mut [DiskImage], rng: &mut Rng) -> String {
    let mut told = Vec::new();
    for _ in 0..1 + rng.below(20) {
        let disk = rng.below(images.len() as u64) as usize;
        let blocks = images[disk].shape().capacity.0 / BLOCK;
        let block = if rng.below(3) == 0 { rng.below(blocks) } else { rng.below(300).min(blocks - 1) };
        let bytes: Vec<u8> = (0..BLOCK / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        images[disk].overwrite(DiskOffset(block * BLOCK), &bytes);
        told.push((disk, block));
    }
    format!("damage at {told:?}")
}
