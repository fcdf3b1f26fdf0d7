//! What lies on disks is told as it is, whatever it is, and nothing is changed by that.

use crate::story::*;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::dump::{Dump, PoolDump, Slot, Wanted, dump};
use weft_engine::io::Disk;
use weft_engine::store::quorum::Standing;
use weft_engine::tree::{Key, KeyRange};
use weft_engine::units::{BLOCK, ByteCount, DiskNo, DiskOffset};
use weft_sim::disk::DiskImage;

const SUMMARY: Wanted = Wanted { records: false, keys: None };

/// What lies on the disks of `story`, of which the pool is closed, or was killed.
fn told(story: &Story, wanted: Wanted) -> Dump {
    let disks: Vec<Rc<dyn Disk>> = story.rig.disks.iter().map(|disk| Rc::new(disk.clone()) as Rc<dyn Disk>).collect();
    story.rig.run(async move { dump(disks, &wanted).await })
}

fn told_of(story: &Story, images: &[DiskImage]) -> PoolDump {
    let mut pools = told(&story.with_images(images), SUMMARY).pools;
    assert_eq!(pools.len(), 1);
    pools.remove(0)
}

/// A pool of four disks with some stripes in its tree and some data in its log only, as a power cut left it.
fn cut_short() -> Story {
    let mut story = Story::new(7, 4, PARITY);
    story.write_and_flush(0, 4 * story.stripe(), 1);
    story.checkpoint();
    story.write_and_flush(4 * story.stripe(), 2 * story.stripe(), 2);
    story.write_and_flush(10 * story.stripe(), 4096, 3);
    story.cut();
    story
}

/// The pages of the tree on a disk, by the place that each says it has.
fn tree_pages(image: &DiskImage) -> BTreeMap<u64, Vec<DiskOffset>> {
    let from = label_of(image).plan.data_at.0 / BLOCK;
    let mut pages: BTreeMap<u64, Vec<DiskOffset>> = BTreeMap::new();
    for block in from..image.shape().capacity.0 / BLOCK {
        let at = DiskOffset(block * BLOCK);
        let page = image.read(at, ByteCount(BLOCK)).unwrap();
        if page.starts_with(b"WFTP") {
            pages.entry(u64::from_le_bytes(page[24..32].try_into().unwrap())).or_default().push(at);
        }
    }
    pages
}

#[test]
fn a_pool_that_was_cut_short_is_told_whole_and_left_as_it_was() {
    let story = cut_short();
    let before = story.images();
    let keys = Some(KeyRange::ALL);
    let told = told(&story, Wanted { records: true, keys });
    assert_same(&story.images(), &before);
    assert!(told.disks.iter().flatten().all(|slot| matches!(slot, Slot::Label(_))), "{:?}", told.disks);
    let [pool] = &told.pools[..] else { panic!("one pool: {told:?}") };
    assert!(pool.opens && pool.rival.is_none());
    assert!(pool.members.iter().all(|member| member.standing == Some(Standing::Current) && !member.put_back));
    let label = &pool.newest.1;
    assert_eq!((pool.checkpoint.sound, pool.checkpoint.harmed), (label.membership.voters, DiskSet::EMPTY));
    assert_eq!(pool.checkpoint.kinds["DISK"], 4);
    let log = &pool.log;
    assert_eq!(log.on, label.membership.loggers);
    assert!(log.kinds["COMMIT"] >= 2 && log.kinds["LANDED"] >= 1 && log.landed == 4096, "{log:?}");
    assert!(log.lacking.is_empty() && log.wrong.is_none() && !log.torn);
    assert_eq!(log.records.len() as u64, log.kinds.values().sum::<u64>());
    assert!(log.records.iter().any(|record| record.text.starts_with("4096 bytes at ")), "{:?}", log.records);
    let tree = pool.tree.as_ref().unwrap();
    assert!(tree.lost.is_empty() && tree.bad.is_empty() && tree.wrong.is_none() && tree.pages > 0, "{tree:?}");
    assert!(tree.kinds["segment"] > 0 && tree.kinds["chunk"] > 0, "{tree:?}");
    assert!(tree.entries.iter().any(|entry| entry.kind == "segment" && entry.value.contains("disk/slab")));
    assert_eq!(tree.entries.len() as u64, tree.kinds.values().sum::<u64>());
}

#[test]
fn only_the_keys_that_are_wanted_are_listed() {
    let story = cut_short();
    let all = told(&story, Wanted { records: false, keys: Some(KeyRange::ALL) });
    let entries = &all.pools[0].tree.as_ref().unwrap().entries;
    let (kind, major, middle, minor) = entries[entries.len() / 2].key;
    let key = Key::new(kind, major, middle, minor);
    let one = told(&story, Wanted { records: false, keys: Some(KeyRange::new(key, key)) });
    assert_eq!(one.pools[0].tree.as_ref().unwrap().entries, [entries[entries.len() / 2].clone()]);
}

#[test]
fn a_damaged_copy_is_named_and_a_page_that_no_copy_has_is_lost_with_its_keys() {
    let story = cut_short();
    let images = story.images();
    let reached = told_of(&story, &images).tree.unwrap().pages;
    let mut seen = (0, 0);
    let of_disk = |disk: usize| tree_pages(&images[disk]).into_iter().map(move |(place, at)| (disk, place, at));
    for (disk, place, at) in (0..images.len()).flat_map(of_disk) {
        let mut one = images.clone();
        at.iter().for_each(|at| one[disk].overwrite(*at, &[0xEE; BLOCK as usize]));
        let tree = told_of(&story, &one).tree.unwrap();
        assert!(tree.lost.is_empty(), "another disk has it: {tree:?}");
        assert_eq!(tree.pages, reached);
        let named: Vec<(u64, DiskNo)> = tree.bad.iter().map(|bad| (bad.place.0, bad.disk)).collect();
        seen.0 += named.len();
        assert!(named.is_empty() || named == [(place, DiskNo(disk as u16))], "{named:?}");
        let mut all = images.clone();
        for image in &mut all {
            let of_place = tree_pages(image).remove(&place).unwrap_or_default();
            of_place.iter().for_each(|at| image.overwrite(*at, &[0xEE; BLOCK as usize]));
        }
        let tree = told_of(&story, &all).tree.unwrap();
        assert_eq!(tree.lost.len(), named.len(), "{tree:?}");
        assert!(tree.lost.iter().all(|lost| lost.place.0 == place) && tree.bad.is_empty(), "{tree:?}");
        seen.1 += tree.lost.len();
    }
    assert!(seen.0 > 0 && seen.1 == seen.0, "the newest root has pages: {seen:?}");
}

#[test]
fn what_is_missing_behind_or_damaged_is_said_disk_by_disk() {
    let mut story = Story::new(8, 5, PARITY);
    story.write_and_flush(0, 4 * story.stripe(), 1);
    let old = story.images();
    story.rig.disks[4].vanish();
    story.write_and_flush(0, 4 * story.stripe(), 2);
    story.checkpoint();
    story.write_and_flush(6 * story.stripe(), story.stripe(), 2);
    story.cut();
    let mut images = story.images();
    images[4] = old[4].clone();
    let pool = told_of(&story, &images);
    assert_eq!(pool.members[4].standing, Some(Standing::Behind));
    assert!(pool.opens);
    // One alone of what was left.
    let alone = told_of(&story, &images[..1]);
    assert!(!alone.opens && alone.members[1..].iter().all(|member| member.disk.is_none()));
    let label = &pool.newest.1;
    let voter = label.membership.voters.iter().next().unwrap();
    let logger = label.membership.loggers.iter().next().unwrap();
    let plan = label_of(&images[voter.0 as usize]).plan;
    let area = plan.blob_at + plan.blob_len * (label.anchor.checkpoint_no % 2);
    images[voter.0 as usize].overwrite(area, &[0xEE; BLOCK as usize]);
    let plan = label_of(&images[logger.0 as usize]).plan;
    let batch = plan.log_at + ByteCount(label.anchor.log_tail % plan.log_len.0);
    images[logger.0 as usize].overwrite(batch, &[0xEE; BLOCK as usize]);
    for slot in 0..2 {
        images[2].overwrite(DiskOffset(slot * BLOCK), &[0xEE; BLOCK as usize]);
    }
    let disks = told(&story.with_images(&images), SUMMARY);
    assert!(matches!(disks.disks[2][..], [Slot::Other, Slot::Other, Slot::Label(_), Slot::Label(_)]));
    let pool = &disks.pools[0];
    assert_eq!(pool.checkpoint.harmed, DiskSet::only(voter));
    let lacking: Vec<(DiskNo, u64, u64)> =
        pool.log.lacking.iter().map(|lacking| (lacking.disk, lacking.first, lacking.count)).collect();
    assert_eq!(lacking, [(logger, label.anchor.log_tail_batch, 1)]);
    assert!(pool.log.batches.1 > 0 && pool.log.wrong.is_none());
}

#[test]
fn disks_of_two_pools_and_blank_ones_are_told_apart() {
    let mut first = Story::new(9, 3, PARITY);
    first.close();
    let mut images = first.images();
    let shape = images[0].shape();
    images.push(DiskImage::blank(shape));
    let told = told(&first.with_images(&images), SUMMARY);
    assert_eq!(told.pools.len(), 1);
    assert!(told.disks[3].iter().all(|slot| matches!(slot, Slot::Blank)));
    // An image with the pool's label twice: a copy of a disk.
    images[3] = images[2].clone();
    let pool = told_of(&first, &images);
    assert_eq!(pool.members.iter().filter(|member| member.no == DiskNo(2)).count(), 2);
    assert_eq!(pool.members[3].standing, None, "the second one is nobody");
}
