//! A copy of metadata that is behind, on a disk that is slow when it is to be mended.

use super::*;
use crate::disk::{DiskImage, SimDisk};
use crate::timing::{Latencies, Random};
use weft_engine::format::page::{PAGE_MAGIC, PageKind};
use weft_engine::units::DiskOffset;

/// The disk that lacks something.
const BEHIND: usize = 1;
/// Longer than the read timeout, and shorter than the write timeout.
const SLOW: Nanos = Nanos::secs(5);

/// An opening finds pages of a table behind on a disk that is slow when they are to be mended, whichever moment that
/// is: a checkpoint later they are mended all the same.
pub fn a_copy_that_is_behind_is_mended_though_its_disk_was_slow_at_the_opening() {
    let mut story = Story::new(22, Resiliency::Mirror { copies: 2 });
    story.fill(1);
    story.scatter(40, 1000);
    story.flush();
    story.destage();
    story.checkpoint();
    let before = story.rig.disks[BEHIND].image();
    story.scatter(40, 2000);
    story.flush();
    story.destage();
    assert!(story.packed() > 0, "what is packed has a table that openings read");
    story.rig.close().unwrap();
    let mut images: Vec<DiskImage> = story.rig.disks.iter().map(SimDisk::image).collect();
    let pages = table_pages(&images[BEHIND]);
    assert!(!pages.is_empty());
    for at in pages {
        images[BEHIND].overwrite(at, &before.read(at, ByteCount(BLOCK)).unwrap());
    }
    let requests = opened_with_a_slow_disk(&story, &images, u64::MAX);
    assert!(requests > 20, "{requests} requests of an opening");
    for slow_at in 0..requests {
        opened_with_a_slow_disk(&story, &images, slow_at);
    }
}

/// Opens the pool with a disk that is slow from request `slow_at` on, for a while. Returns how many operations
/// the opening had.
fn opened_with_a_slow_disk(story: &Story, images: &[DiskImage], slow_at: u64) -> u64 {
    let world = SimWorld::new(99, Scheduling::Random);
    let disk = |(no, image)| {
        let timing = Random::new(Latencies::default(), world.rng(&format!("timing {no}")));
        SimDisk::from_image(&world, image, Box::new(timing))
    };
    let disks = images.iter().enumerate().map(disk).collect();
    let mut rig = Rig { options: story.rig.options, ..Rig::with_disks(world.clone(), disks) };
    let began = rig.requests();
    if slow_at < u64::MAX {
        rig.slow_from(BEHIND, slow_at, SLOW);
    }
    let pool = rig.open(&mut world.rng("opening")).unwrap();
    let requests = rig.requests() - began;
    let report = rig.run(async move {
        world.sleep(Nanos(2 * SLOW.0)).await;
        pool.checkpoint().await.unwrap();
        pool.check(false).await.unwrap()
    });
    assert!(report.is_sound() && report.bad_pages == 0, "slow from request {slow_at} on: {report:?}");
    rig.close().unwrap();
    requests
}

/// Where a disk has pages of stripe tables.
fn table_pages(image: &DiskImage) -> Vec<DiskOffset> {
    let is_table = |at: &DiskOffset| {
        let block = image.read(*at, ByteCount(BLOCK)).unwrap();
        // Magic, CRC and pool come before the kind.
        block.starts_with(&PAGE_MAGIC) && block[24..26] == (PageKind::Table as u16).to_le_bytes()
    };
    let blocks = image.written().into_iter().flat_map(|(at, len)| (at.0 / BLOCK)..(at.0 + len.0).div_ceil(BLOCK));
    blocks.map(|no| DiskOffset(no * BLOCK)).filter(is_table).collect()
}
