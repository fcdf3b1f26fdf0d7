//! Stories of the share of a virtual disk that may lie in packed stripes, and of one that hardly needs any.

use super::{PARITY, Story, UNIT};
use weft_engine::format::record::Media;
use weft_engine::geometry::Layout;
use weft_engine::pool::DiskChange;
use weft_engine::units::{ByteCount, DiskNo, Nanos, VirtualOffset};
use weft_engine::vdisk::placed::{Lies, Piece};

/// Small writes of a virtual disk with a share of zero are merged, what lay packed before goes by itself, and a crash
/// forgets none of that; with a share of its own they are packed again, whatever holds for all others.
pub fn a_share_of_its_own_holds_at_once_and_after_a_crash() {
    let mut story = Story::new(700, PARITY);
    story.fill(1);
    story.scatter(60, 1000);
    story.destage();
    assert!(story.packed() > 0);
    story.set_share(Some(0));
    let vdisk = story.vdisk();
    story.rig.world.run_until(Nanos::secs(60), move || vdisk.packed().0 == 0);
    assert_eq!((story.packed(), story.vdisk().packed().2), (0, 0), "what lay packed is moved");
    story.scatter(60, 2000);
    story.destage();
    assert_eq!(story.packed(), 0, "small writes are merged");
    story.prove();
    story.flush();
    story.crash();
    assert_eq!(story.vdisk().fine_share(), 0);
    story.prove();
    story.rig.close().unwrap();
    story.rig.options.tuning.fine_share = 0;
    story.rig.open(&mut story.rng).unwrap();
    story.set_share(Some(100));
    story.scatter(20, 3000);
    story.destage();
    assert!(story.packed() > 0, "it has a share of its own");
    story.set_share(None);
    let vdisk = story.vdisk();
    story.rig.world.run_until(Nanos::secs(60), move || vdisk.packed().0 == 0);
    assert_eq!((story.packed(), story.vdisk().fine_share()), (0, 0), "what holds for all is zero");
    story.flush();
    story.crash();
    story.prove();
    let pool = story.rig.pool();
    let refused = story.rig.run(async move { pool.vdisk_set_fine_share("vdisk", Some(501)).await });
    assert!(refused.is_err());
}

/// On disks that do not seek more may lie packed, as long as the pool has ample room beside it, unless somebody said
/// how much; on disks that seek it may not.
pub fn more_may_lie_packed_on_disks_that_do_not_seek() {
    let mut story = Story::new(703, PARITY);
    story.rig.close().unwrap();
    story.rig.options.tuning.fine_share = 100;
    story.rig.options.tuning.fine_share_flash = 250;
    story.rig.open(&mut story.rng).unwrap();
    story.fill(1);
    let parts = |thousandths: u64| story.vdisk().size().0 / 1000 * thousandths / story.layout.data_len().0;
    let (usual, more) = (parts(100), parts(250));
    assert!(more > 2 * usual);
    let most = |story: &Story| story.vdisk().packed().2;
    assert_eq!(most(&story), more);
    story.set_share(Some(100));
    assert_eq!(most(&story), usual, "somebody said how much");
    story.set_share(None);
    let seeks = |story: &Story, media: Media| {
        let (pool, change) = (story.rig.pool(), DiskChange { media: Some(media), ..DiskChange::default() });
        story.rig.run(async move { pool.disk_set(DiskNo(1), change).await.unwrap() });
    };
    seeks(&story, Media::Hdd);
    assert_eq!(most(&story), usual, "one of its disks seeks");
    seeks(&story, Media::Ssd);
    assert_eq!(most(&story), more);
    // Others take the room, a few stripes at a time: less may lie packed long before there is none.
    let (layout, len) = (story.layout, story.layout.data_len().0);
    story.rig.make_vdisk_named("large", layout, ByteCount::mib(12), 512, false).unwrap();
    let large = story.rig.pool().vdisk("large").unwrap();
    let more = large.packed().2;
    let mut after = Vec::new();
    for nth in 0..200 {
        if story.rig.make_vdisk_named(&format!("other{nth}"), layout, ByteCount(len * 24), 512, true).is_err() {
            break;
        }
        after.push(large.packed().2);
    }
    let least = after.iter().filter(|most| **most > 0).min();
    assert!(least.is_some_and(|least| least * 2 < more), "{after:?} may lie packed while others take the room");
    story.scatter(60, 1000);
    story.destage();
    story.prove();
}

/// Units that are written whole, anywhere, are stripes of their own: nothing is read, merged or packed because of them,
/// whatever is flushed when, and a crash loses none. What is smaller than a unit leaves packed.
pub fn units_that_are_written_whole_read_nothing() {
    let layout = Layout::in_units(PARITY, 3, false, None, Some(ByteCount::kib(8))).unwrap();
    let mut story = Story::laid_out(701, layout, 0);
    story.fill(1);
    let (blocks, units) = (story.per_stripe(), story.units() / story.per_stripe());
    for nth in 0..300 {
        let unit = story.rng.below(units);
        story.write(unit * blocks, blocks, 1000 + nth);
        if nth % 7 == 0 {
            story.flush();
        }
    }
    story.destage();
    story.flush();
    let counters = &story.vdisk().counters;
    let caused = [&counters.read_for_write, &counters.merged, &counters.packed].map(|counter| counter.get());
    assert_eq!((caused, counters.whole.get() > 0), ([0; 3], true));
    story.crash();
    story.prove();
    story.scatter(40, 2000);
    story.destage();
    assert!(story.packed() > 0, "half a unit leaves packed");
    story.prove();
}

/// What a map of a virtual disk says of each block is where it is read from: in memory what gathers, in packed stripes
/// what left so, in stripes what was written whole, and nowhere what was discarded.
pub fn a_map_says_where_each_block_lies() {
    let mut story = Story::new(702, PARITY);
    story.fill(1);
    let per_stripe = story.per_stripe();
    story.write(0, 1, 2000);
    story.destage();
    story.write(3 * per_stripe + 1, 2, 3000);
    let (vdisk, stripe) = (story.vdisk(), per_stripe * UNIT);
    let pieces = story.rig.run(async move {
        vdisk.write_zeroes(VirtualOffset(5 * stripe), stripe, false, false).await.unwrap();
        vdisk.pieces_placed(0..6 * stripe, 100).await.unwrap()
    });
    assert!(pieces.iter().all(|piece| piece.absent == 0), "{pieces:?}");
    let disks = |piece: &Piece| matches!(piece.lies, Lies::Stripes | Lies::Packed) as usize * story.layout.slots();
    assert!(pieces.iter().all(|piece| piece.disks.len() == disks(piece)), "{pieces:?}");
    let kinds: Vec<_> = pieces.iter().map(|piece| (piece.range.start / UNIT, piece.lies)).collect();
    let at = 3 * per_stripe;
    let expected = [
        (0, Lies::Packed),
        (1, Lies::Stripes),
        (at + 1, Lies::Memory),
        (at + 3, Lies::Stripes),
        (5 * per_stripe, Lies::Nowhere),
    ];
    let differ: Vec<_> = kinds.iter().filter(|kind| !expected.contains(kind)).collect();
    // Slots of other disks begin a piece of the same kind.
    assert!(expected.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    assert!(differ.iter().all(|(_, lies)| *lies == Lies::Stripes), "{kinds:?}");
}
