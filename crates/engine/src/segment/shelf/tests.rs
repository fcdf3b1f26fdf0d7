//! What the index of a read cache finds, forgets, and loads.

use super::*;
use crate::units::DiskNo;
use proptest::prelude::*;

const SLAB: ByteCount = ByteCount::mib(1);

fn shelf(slabs: u32, memory: u64) -> Shelf {
    let mut shelf = Shelf::new(SLAB * u64::from(slabs), memory);
    shelf.set_slabs((0..slabs).map(|slab| SlabAt { disk: DiskNo(0), slab }), SLAB);
    shelf
}

fn place(index: u32, birth: u16) -> Place {
    Place { birth: Birth(birth), ..Place::at(SegmentNo(1), index) }
}

fn keep(shelf: &mut Shelf, place: Place, block: usize, count: usize) {
    let bytes = Buf::zeroed(count * BLOCK as usize);
    assert!(shelf.may_wait(bytes.len() as u64));
    shelf.wait(Fill { place, column: 0, block, bytes });
    while shelf.waits() > 0 {
        if !shelf.is_open() {
            let zone = shelf.next_zone(|_| true).unwrap();
            for (hit, place, column, block) in shelf.begin_zone(zone) {
                shelf.wait_again(Fill { place, column, block, bytes: Buf::zeroed(hit.count * BLOCK as usize) });
            }
        }
        let (spot, fills) = shelf.take(1 << 20).unwrap();
        shelf.written(&spot, &fills);
        shelf.trim();
    }
}

#[test]
fn what_is_found_is_all_of_what_is_looked_for_and_of_that_birth() {
    let mut shelf = shelf(2, 1 << 20);
    keep(&mut shelf, place(3, 1), 4, 8);
    keep(&mut shelf, place(3, 1), 12, 4);
    let found = shelf.find(place(3, 1), 0, &(6..16)).unwrap();
    assert_eq!(found.iter().map(|hit| hit.count).collect::<Vec<_>>(), [6, 4]);
    assert_eq!(found[0].block + 6, found[1].block, "they were written one after the other");
    assert!(shelf.find(place(3, 1), 0, &(3..5)).is_none() && shelf.find(place(3, 1), 0, &(15..17)).is_none());
    assert!(shelf.find(place(3, 2), 0, &(6..7)).is_none() && shelf.find(place(3, 1), 1, &(6..7)).is_none());
    keep(&mut shelf, place(3, 2), 10, 4);
    assert_eq!((shelf.find(place(3, 1), 0, &(6..7)), shelf.held()).1, ByteCount(4 * BLOCK), "what overlaps goes");
    shelf.forget(place(3, 0));
    assert!(shelf.find(place(3, 2), 0, &(10..11)).is_none() && shelf.held() == ByteCount::ZERO);
}

#[test]
fn the_oldest_zone_goes_and_what_was_wanted_of_it_comes_again() {
    let mut shelf = shelf(2, 1 << 20);
    // A zone is full where the longest piece does not fit any more.
    let per_zone = 30;
    for index in 0..per_zone * 2 {
        keep(&mut shelf, place(index, 1), 0, 8);
    }
    (0..4).for_each(|index| shelf.want(place(index, 1), 0, &(0..1)));
    for index in 1000..1004 {
        keep(&mut shelf, place(index, 1), 0, 8);
    }
    let has = |shelf: &Shelf, index: u32| shelf.find(place(index, 1), 0, &(0..8)).is_some();
    assert!((0..4).all(|index| has(&shelf, index)) && !(4..20).any(|index| has(&shelf, index)));
    assert!(has(&shelf, 1003) && has(&shelf, per_zone));
}

#[test]
fn a_miss_counts_the_second_time_and_what_is_too_much_is_passed_by() {
    let mut shelf = shelf(1, 1 << 20);
    assert_eq!([7, 9, 7, 9, 7].map(|address| shelf.missed(address)), [false, false, true, true, true]);
    assert!(shelf.may_wait(WAITING_MAX) && !shelf.may_wait(WAITING_MAX + 1));
    assert_eq!(shelf.counters.passed, WAITING_MAX + 1);
}

#[test]
fn what_was_saved_is_loaded_and_what_cannot_be_is_not() {
    let mut before = shelf(2, 1 << 20);
    keep(&mut before, place(1, 5), 0, 16);
    let (_, saving) = before.saving(true).unwrap();
    let mut after = shelf(2, 1 << 20);
    let zones = after.unread();
    after.load(zones[0].0, saving.serial, saving.pieces.clone(), |_| true);
    assert_eq!(after.find(place(1, 5), 0, &(0..16)).unwrap()[0].block, 2, "behind the index");
    assert_eq!(after.held(), ByteCount(16 * BLOCK));
    let wrong = |change: fn(&mut Listed)| {
        let mut pieces = saving.pieces.clone();
        change(&mut pieces[0]);
        let mut shelf = shelf(2, 1 << 20);
        let zone = shelf.unread()[0].0;
        shelf.load(zone, 1, pieces, |_| true);
        shelf.held()
    };
    assert_eq!(wrong(|listed| listed.at = 1), ByteCount::ZERO, "it would lie in the index");
    assert_eq!(wrong(|listed| listed.at = 255), ByteCount::ZERO, "it would lie in the next zone");
    assert_eq!(wrong(|listed| listed.count = 17), ByteCount::ZERO);
    assert_eq!(wrong(|listed| listed.count = 0), ByteCount::ZERO);
}

proptest! {
    /// Whatever is done: what is found was kept, since it was forgotten last, and lies in one of the slabs; what is
    /// held is no more than there is room for; and the list is no longer than the memory allows.
    #[test]
    fn nothing_is_found_that_was_not_kept(
        steps in prop::collection::vec((0u8..6, 0u32..6, 1u16..4, 0usize..40, 1usize..=PIECE_MAX), 1..300),
        memory in prop::sample::select(vec![1u64 << 20, 40 * ENTRY_MEMORY]),
    ) {
        let mut shelf = shelf(2, memory);
        let mut kept = BTreeMap::new();
        for (what, index, birth, block, count) in steps {
            let at = place(index, birth);
            match what {
                0..=2 => {
                    keep(&mut shelf, at, block, count);
                    (block..block + count).for_each(|block| {
                        kept.insert((index, block), birth);
                    });
                }
                3 => {
                    shelf.forget(at);
                    kept.retain(|(other, _), _| *other != index);
                }
                4 => shelf.set_slabs((0..u32::from(birth)).map(|slab| SlabAt { disk: DiskNo(0), slab }), SLAB),
                _ => shelf.want(at, 0, &(block..block + count)),
            }
            let births = |block| (1..4).map(move |birth| (block, birth));
            for (index, (block, birth)) in (0..6).flat_map(|i| (0..56).flat_map(births).map(move |found| (i, found))) {
                let Some(hits) = shelf.find(place(index, birth), 0, &(block..block + 1)) else { continue };
                prop_assert_eq!(kept.get(&(index, block)), Some(&birth));
                prop_assert!(hits[0].block < SLAB.0 / BLOCK && hits[0].slab[0].is_some());
            }
            prop_assert!(shelf.held().0 <= 3 * SLAB.0 && shelf.listed <= shelf.most.max(1));
        }
    }
}
