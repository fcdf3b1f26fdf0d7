//! Pages of stripe tables come into memory when they are needed, and leave it. Each story ends with a panic if one rule
//! is broken.

use crate::story::*;
use weft_engine::error::ErrorKind;
use weft_engine::format::page::{PAGE_ENTRIES, PAGE_MAGIC, PageKind};
use weft_engine::geometry::Layout;
use weft_engine::stripe::table::PAGE_MEMORY;
use weft_engine::units::{BLOCK, ByteCount, DiskOffset, Nanos, VirtualOffset};
use weft_sim::rig::Rig;
use weft_sim::world::{Scheduling, SimWorld, Stop};

/// A pool with one thin virtual disk whose table has many pages, and memory for `pages` of them.
fn wide(seed: u64, pages: u64) -> Story {
    let world = SimWorld::new(seed, Scheduling::Random);
    let rng = world.rng("story");
    let mut rig = Rig::new(world, 2, ByteCount::mib(16));
    rig.options.tuning.table_memory = pages * PAGE_MEMORY;
    let layout = Layout::new(MIRROR2, 1, ByteCount::kib(4)).unwrap();
    let mut story = Story { rig, rng, layout };
    story.rig.create(ByteCount::mib(1)).unwrap();
    story.open().unwrap();
    story.rig.make_vdisk(layout, ByteCount::gib(1), 4096, false).unwrap();
    story
}

/// Where a stripe of page `nth` of the table begins.
fn in_page(nth: u64) -> u64 {
    (nth * PAGE_ENTRIES as u64 + 7) * 4096
}

fn loads(story: &Story) -> u64 {
    story.rig.pool().store().tables.loads.get()
}

fn tables_in_memory(story: &Story) -> (u64, u64) {
    let budgets = story.rig.pool().store().memory();
    let told = budgets.into_iter().find(|budget| budget.name == "stripe tables").unwrap();
    (told.used / PAGE_MEMORY, told.peak / PAGE_MEMORY)
}

fn read_bytes(story: &Story) -> u64 {
    story.rig.disks.iter().map(|disk| disk.stats().read_bytes.0).sum()
}

/// An opening looks at no page of a stripe table, however many there are; the first read looks at one.
pub fn an_opening_reads_no_page_of_a_stripe_table() {
    let mut read = Vec::new();
    for pages in [1, 60] {
        let mut story = wide(21, 1000);
        (0..pages).for_each(|page| story.write(in_page(page), 4096, page as u8 + 1).unwrap());
        story.flush().unwrap();
        story.close();
        let before = read_bytes(&story);
        story.open().unwrap();
        read.push(read_bytes(&story) - before);
        assert_eq!((loads(&story), tables_in_memory(&story).0), (0, 0));
        let last = pages - 1;
        assert_eq!(story.byte(in_page(last), 4096).unwrap(), last as u8 + 1);
        assert_eq!((loads(&story), tables_in_memory(&story).0), (1, 1));
        assert_eq!(story.prove(), 0);
        story.close();
    }
    println!("an opening read {} bytes with 1 page, {} with 60 in 4 chunks", read[0], read[1]);
    // Each of the 64 pages has two slots, on two disks.
    assert!(read[1] < read[0] + 60 * 2 * BLOCK, "{read:?}");
}

/// Reads all over a table ten times as large as its memory hold no more of it than that, and what is in use by
/// requests.
pub fn reads_all_over_a_table_hold_no_more_of_it_than_there_is_memory_for() {
    let mut story = wide(22, 6);
    for page in 0..60 {
        story.write(in_page(page), 4096, page as u8 + 1).unwrap();
        if page % 5 == 0 {
            story.checkpoint();
        }
    }
    story.flush().unwrap();
    story.close();
    story.open().unwrap();
    for _ in 0..400 {
        let page = story.rng.below(60);
        assert_eq!(story.byte(in_page(page), 4096).unwrap(), page as u8 + 1);
    }
    let (now, peak) = tables_in_memory(&story);
    assert!(now <= 6 && peak <= 7, "{now} pages, {peak} at most");
    assert!(loads(&story) > 200, "{} pages came into memory", loads(&story));
    assert_eq!(story.prove(), 0);
    story.close();
}

/// One step of the crash story: a page of the table, and what is written there (0: it is discarded).
const STEPS: [(u64, u8); 12] =
    [(0, 1), (1, 2), (17, 3), (0, 4), (2, 5), (1, 0), (17, 6), (33, 7), (0, 8), (2, 9), (1, 10), (33, 0)];

/// Pages come and go, for there is memory for one, while stripes are written, read and discarded and checkpoints are
/// taken; the power goes at every disk operation: what was flushed is there.
pub fn a_crash_anywhere_between_loading_changing_and_dropping_pages_loses_nothing() {
    let mut crashes = 0;
    for at in (1..).step_by(2) {
        let mut story = wide(23, 1);
        story.rig.world.crash_at(story.rig.world.operations() + at);
        let (mut flushed, mut written) = ([0u8; 34], [0u8; 34]);
        let crashed = STEPS.iter().enumerate().any(|(nth, step)| {
            written[step.0 as usize] = step.1;
            let went = play(&story, nth, *step);
            if went {
                flushed = written;
            }
            !went
        });
        story.rig.world.crash_at(u64::MAX);
        let mut rng = story.rng.fork(&format!("cut {at}"));
        story.rig.power_cut(&mut rng);
        let mut again = story.with_images(&story.images());
        again.open().unwrap_or_else(|error| panic!("crash {at}: {error}"));
        for page in [0u64, 1, 2, 17, 33] {
            let byte = again.byte(in_page(page), 4096).unwrap();
            let may = [flushed[page as usize], written[page as usize]];
            assert!(may.contains(&byte), "crash {at}: page {page} holds {byte}, not one of {may:?}");
        }
        assert_eq!(again.prove(), 0, "crash {at}");
        again.write_and_flush(in_page(18), 4096, 77);
        again.checkpoint();
        again.close();
        again.open().unwrap();
        assert_eq!(again.byte(in_page(18), 4096).unwrap(), 77);
        assert_eq!(again.prove(), 0, "crash {at}");
        again.rig.halt();
        crashes += 1;
        if !crashed {
            break;
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 50, "there is more to crash than that");
}

/// Does a step; `false`: the power went.
fn play(story: &Story, nth: usize, (page, byte): (u64, u8)) -> bool {
    let (vdisk, pool, at) = (story.vdisk(), story.rig.pool(), VirtualOffset(in_page(page)));
    let act = async move {
        match byte {
            0 => vdisk.discard(at, 4096, true).await.unwrap(),
            byte => vdisk.write(at, &[byte; 4096], true).await.unwrap(),
        }
        if nth % 2 == 1 {
            pool.checkpoint().await.unwrap();
        }
        vdisk.read(VirtualOffset(in_page((nth as u64 * 7) % 34)), &mut [0; 4096]).await.unwrap();
    };
    match story.rig.world.block_on_within(Nanos::secs(600), act) {
        Ok(()) => true,
        Err(Stop::Crashed) => false,
        Err(other) => panic!("it hangs: {other:?}"),
    }
}

/// What changed in a page is in memory until a checkpoint has it, whatever else wants to be there.
pub fn a_page_that_changed_stays_until_a_checkpoint_has_it() {
    let mut story = wide(24, 1);
    for page in 0..12 {
        story.write_and_flush(in_page(page), 4096, page as u8 + 1);
    }
    (0..12).for_each(|page| assert_eq!(story.byte(in_page(page), 4096).unwrap(), page as u8 + 1));
    assert!(tables_in_memory(&story).0 >= 12);
    story.checkpoint();
    (0..12).rev().for_each(|page| assert_eq!(story.byte(in_page(page), 4096).unwrap(), page as u8 + 1));
    assert!(tables_in_memory(&story).0 <= 2, "{:?}", tables_in_memory(&story));
    // Now each comes into memory before it changes, and the one before it is to stay.
    for page in 0..12 {
        story.write_and_flush(in_page(page), 4096, page as u8 + 101);
    }
    (0..12).for_each(|page| assert_eq!(story.byte(in_page(page), 4096).unwrap(), page as u8 + 101));
    assert_eq!(story.prove(), 0);
    story.close();
}

/// The newest image of a page is lost on all disks, and an older one is there: its stripes are errors, all others are
/// served, read and written.
pub fn a_page_that_is_lost_is_an_error_for_its_stripes_only() {
    let mut story = wide(25, 1);
    story.write_and_flush(in_page(0), 4096, 1);
    story.write_and_flush(in_page(1), 4096, 2);
    story.checkpoint();
    story.write_and_flush(in_page(0), 4096, 3);
    story.checkpoint();
    story.close();
    for disk in 0..2 {
        newest_image_of(&story, disk, 0).into_iter().for_each(|at| story.rig.disks[disk].rot(at));
    }
    story.open().unwrap();
    assert_eq!(kind(story.read(in_page(0), 4096)), Some(ErrorKind::Lost));
    assert_eq!(story.byte(in_page(1), 4096).unwrap(), 2);
    story.write_and_flush(in_page(2), 4096, 4);
    assert_eq!(kind(story.write(in_page(0), 4096, 5)), Some(ErrorKind::Lost));
    story.checkpoint();
    let pool = story.rig.pool();
    let report = story.rig.run(async move { pool.check(false).await.unwrap() });
    assert!(report.problems.iter().any(|problem| problem.contains("stripe table")), "{report:?}");
    story.close();
    story.open().unwrap();
    assert_eq!((story.byte(in_page(1), 4096).unwrap(), story.byte(in_page(2), 4096).unwrap()), (2, 4));
    assert_eq!(kind(story.read(in_page(0), 4096)), Some(ErrorKind::Lost));
    story.close();
}

/// One copy is read of a page whose version a checkpoint names. Where the disk of that one lost the last write of it,
/// the other copy is the page, and the first one is mended.
pub fn one_copy_of_a_page_is_read_and_another_one_where_it_is_not_the_page() {
    let mut read = Vec::new();
    for wrong in [None, Some(0), Some(1)] {
        let mut story = wide(28, 100);
        for byte in [1, 3] {
            (0..8).for_each(|page| story.write(in_page(page), 4096, byte).unwrap());
            story.flush().unwrap();
            story.checkpoint();
        }
        story.close();
        if let Some(wrong) = wrong {
            let lost = (0..8).flat_map(|page| newest_image_of(&story, wrong, page));
            lost.for_each(|at| story.rig.disks[wrong].rot(at));
        }
        story.open().unwrap();
        // What else is read first: what the tree says of checksum pages, and the page of checksums.
        assert_eq!(story.byte(in_page(0), 4096).unwrap(), 3);
        let before = read_bytes(&story);
        (1..8).for_each(|page| assert_eq!(story.byte(in_page(page), 4096).unwrap(), 3, "{wrong:?}"));
        read.push(read_bytes(&story) - before);
        let pool = story.rig.pool();
        let report = story.rig.run(async move { pool.check(true).await.unwrap() });
        assert!(report.problems.is_empty() && report.lost_stripes == 0, "{report:?}");
        assert_eq!(story.prove(), 0, "{wrong:?}");
        story.close();
    }
    let (pair, data) = (2 * BLOCK, 4096);
    assert_eq!(read[0], 7 * (pair + data), "one copy of each page");
    // Which of the disks is asked first is its own business; one of them had to be asked again.
    assert!(read[1..].iter().any(|read| *read > 7 * (pair + data)), "{read:?}");
    assert!(read.iter().all(|read| *read <= 7 * (3 * pair + 2 * data)), "{read:?}");
}

/// One disk lost the last write of a page, and the other one, which has it, takes longer than the read timeout: it is
/// waited for.
pub fn a_page_is_waited_for_where_only_a_slow_disk_has_it() {
    for slow in 0..2 {
        let mut story = wide(26, 1);
        story.write_and_flush(in_page(0), 4096, 1);
        story.checkpoint();
        story.write_and_flush(in_page(0), 4096, 3);
        story.checkpoint();
        story.close();
        let other = 1 - slow;
        newest_image_of(&story, other, 0).into_iter().for_each(|at| story.rig.disks[other].rot(at));
        story.open().unwrap();
        story.rig.disks[slow].stall(Nanos::secs(5));
        assert_eq!(story.byte(in_page(0), 4096).unwrap(), 3, "disk {slow} is slow");
        assert_eq!(story.prove(), 0);
        story.close();
    }
}

/// Where the newest image of a page of the stripe table lies on a disk.
fn newest_image_of(story: &Story, disk: usize, page: u32) -> Option<DiskOffset> {
    let image = story.rig.disks[disk].image();
    let plan = label_of(&image).plan;
    let blocks = (plan.data_at.0..plan.disk_len.0).step_by(BLOCK as usize).map(DiskOffset);
    let images = blocks.filter_map(|at| {
        let block = image.read(at, ByteCount(BLOCK)).ok()?;
        let is = block.starts_with(&PAGE_MAGIC)
            && block[24..26] == (PageKind::Table as u16).to_le_bytes()
            && block[32..36] == page.to_le_bytes();
        is.then(|| (u64::from_le_bytes(block[40..48].try_into().unwrap()), at))
    });
    images.max_by_key(|(version, _)| *version).map(|(_, at)| at)
}
