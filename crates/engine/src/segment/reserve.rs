//! How many segments there is room for: each brings pages of metadata with it, and those take slabs, too.
//!
//! Metadata is placed on the emptiest disks, as data is. Where whatever takes slabs always takes them of the emptiest
//! disks, the order is of no consequence: what fits when all metadata is placed first, fits as it comes.

use super::allocate::SLABS_KEPT;
use super::config::METADATA_LEN;
use super::copies::Copies;
use super::{DiskRoom, Map, PAGE_PAIR, Segment};
use crate::disk_set::DiskSet;
use crate::format::record::{SEGMENT_LEN, SLAB_LEN, TableRecord};
use crate::geometry::Layout;
use crate::mutant::{self, Mutant};
use crate::units::{ByteCount, DiskNo, TableNo};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The most metadata segments that are placed one by one: in a small pool each of them counts.
const STEPS_MAX: u64 = 64;
/// How many are placed one by one where there are more: the last ones, for which disks may have become too few.
const STEPS_LAST: u64 = 8;

impl Map {
    /// How many more segments of `layout` can be reserved on `disks` (none: any), with what is kept about them;
    /// slabs that are free in a moment count.
    pub fn segments_reservable(&self, layout: Layout, disks: DiskSet) -> u64 {
        self.reservable_with(layout, disks, |disk| self.free_soon(disk.record.no))
    }

    /// How many of them can be reserved right now.
    pub fn segments_reservable_now(&self, layout: Layout, disks: DiskSet) -> u64 {
        self.reservable_with(layout, disks, |disk| disk.free.count())
    }

    /// How many segments more [`Map::new_segment`] could make for `table` right now, as far as slabs decide: where
    /// disks are missing (not: full), with as many slots absent as the layout bears.
    pub fn segments_left(&self, table: TableNo) -> u64 {
        let TableRecord { layout, disks, .. } = self.tables[&table].record;
        let free = |disk: &DiskRoom| disk.free.count().saturating_sub(SLABS_KEPT) as u64;
        let free: Vec<u64> = self.disks_for(disks).map(free).collect();
        let missing = layout.slots().saturating_sub(free.len());
        let absent = if mutant::active(Mutant::PacksWaitForDisks) { 0 } else { missing.min(layout.failures()) };
        segments_on(&free, (layout.slots() - absent) as u64)
    }

    /// Stripes in a segment of `table`.
    pub fn stripes_in(&self, table: TableNo) -> u64 {
        self.tables[&table].record.layout.segment_stripes(self.slab) as u64
    }

    /// User bytes of `layout` that there is room for on `disks`, for who has `segments` segments. One segment is held
    /// back: overwriting must never wait for more than a commit.
    pub fn room_for(&self, layout: Layout, segments: u64, disks: DiskSet) -> ByteCount {
        let reservable = (segments + self.segments_reservable(layout, disks)).saturating_sub(1);
        layout.data_len() * layout.segment_stripes(self.slab) as u64 * reservable
    }

    fn reservable_with(&self, layout: Layout, disks: DiskSet, free: impl Fn(&DiskRoom) -> usize) -> u64 {
        let free: BTreeMap<DiskNo, u64> = self.disks.iter().map(|(no, disk)| (*no, free(disk) as u64)).collect();
        let data: Vec<DiskNo> = self.disks_for(disks).map(|disk| disk.record.no).collect();
        let sheet = (self.sheet_pages(layout) as usize).max(1);
        let each = ((self.slab.0 / PAGE_PAIR) as usize / sheet).max(1) as u64;
        let ready = |segment: &Segment| -> u64 {
            let runs = segment.free.runs(0..segment.free.len(), true);
            runs.iter().map(|run| (run.len() / sheet) as u64).sum()
        };
        let record = SEGMENT_LEN + layout.slots() as u64 * SLAB_LEN;
        let metadata = self.metadata_segments();
        let (all, there) = (self.metadata.len() as u64, self.free_pairs());
        let ready: u64 = metadata.map(ready).sum();
        // Sheets need runs, and leave what is kept for the tree; the tree takes any pairs.
        let made_beside = |segments: u64, made: u64| {
            let bulk = self.bulk + segments * record + made * METADATA_LEN;
            let pairs = segments * sheet as u64 + self.pairs_kept(bulk, all + made);
            let runs = segments.saturating_sub(ready).div_ceil(each);
            runs.max(pairs.saturating_sub(there).div_ceil(self.slab.0 / PAGE_PAIR))
        };
        let fits = |segments: u64| {
            let mut free = free.clone();
            // Those that are made have records, too.
            let made = made_beside(segments, made_beside(segments, made_beside(segments, 0)));
            if !self.place_metadata(made, &mut free) {
                return false;
            }
            let left: Vec<u64> = data.iter().map(|no| free[no].saturating_sub(SLABS_KEPT as u64)).collect();
            segments_on(&left, layout.slots() as u64) >= segments
        };
        let most: Vec<u64> = data.iter().map(|no| free[no].saturating_sub(SLABS_KEPT as u64)).collect();
        let (mut fitting, mut beyond) = (0, segments_on(&most, layout.slots() as u64) + 1);
        while beyond - fitting > 1 {
            let middle = fitting + (beyond - fitting) / 2;
            if fits(middle) { fitting = middle } else { beyond = middle }
        }
        fitting
    }

    /// Takes from `free` the slabs of so many metadata segments, placed as [`Map::take_page_run`] places them. `false`:
    /// they find too few disks.
    fn place_metadata(&self, mut segments: u64, free: &mut BTreeMap<DiskNo, u64>) -> bool {
        let ordinary: Vec<DiskNo> = self.writable_disks().map(|disk| disk.record.no).collect();
        let others: Vec<DiskNo> = self.last_resort(DiskSet::EMPTY, 0).map(|disk| disk.record.no).collect();
        while segments > 0 {
            let bulk = if segments > STEPS_MAX { segments - STEPS_LAST } else { 0 };
            segments -= bulk.max(1);
            let has = |no: &&DiskNo| free[*no] > 0;
            let count = ordinary.iter().filter(has).count();
            let Copies { all: copies, apart } = Copies::on(count, others.len());
            let mut on: Vec<DiskNo> = ordinary.iter().filter(has).copied().collect();
            on.sort_by_key(|no| core::cmp::Reverse(free[no]));
            if ordinary.len() < apart {
                on.extend(others.iter().filter(has));
                on.truncate(apart);
            }
            if on.len() < apart {
                return false;
            }
            if bulk > 0 {
                // On one disk both copies are on the same.
                let slabs = bulk * copies as u64;
                if !take_of_the_emptiest(slabs, bulk.max(slabs / on.len() as u64), &on, free) {
                    return false;
                }
                continue;
            }
            on.truncate(apart);
            for nth in 0..copies {
                let left = free.get_mut(&on[nth % on.len()]).expect("it is one of them");
                if *left == 0 && nth < on.len() {
                    return false;
                }
                *left = left.saturating_sub(1);
            }
        }
        true
    }
}

/// Takes so many slabs, one at a time of whichever disk of `on` has the most free ones, and at most `most` of each.
/// `false`: there are too few.
fn take_of_the_emptiest(slabs: u64, most: u64, on: &[DiskNo], free: &mut BTreeMap<DiskNo, u64>) -> bool {
    // Disks with more free slabs than this level come down to it.
    let taken = |level: u64| -> u64 { on.iter().map(|no| free[no].saturating_sub(level).min(most)).sum() };
    if taken(0) < slabs {
        return false;
    }
    let (mut level, mut beyond) = (0, u64::MAX);
    while beyond - level > 1 {
        let middle = level + (beyond - level) / 2;
        if taken(middle) >= slabs { level = middle } else { beyond = middle }
    }
    let mut surplus = taken(level) - slabs;
    for no in on {
        let left = free.get_mut(no).expect("it is one of them");
        let above = left.saturating_sub(level);
        // Those that come down to the level are left with one more, until it adds up.
        let kept = u64::from((1..=most).contains(&above) && surplus > 0);
        surplus -= kept;
        *left -= above.min(most) - kept;
    }
    true
}

/// How many segments of `slots` slots on different disks these free slabs make: `pool/room.rs` says why.
pub fn segments_on(free: &[u64], slots: u64) -> u64 {
    let fits = |segments: u64| {
        free.iter().map(|free| u128::from(*free.min(&segments))).sum::<u128>()
            >= u128::from(slots) * u128::from(segments)
    };
    // Where no disk has more slabs than there would be segments, all of them can be used up.
    let all = free.iter().sum::<u64>() / slots;
    if free.iter().all(|free| *free <= all) {
        return all;
    }
    // What fits `s` fits less: counted up to `s`, slabs grow slower than `s`.
    let (mut fitting, mut beyond) = (0, all + 1);
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::super::allocate::tests::map_of;
    use super::*;
    use crate::format::record::Usage;
    use crate::geometry::Resiliency;

    #[test]
    fn metadata_is_counted_on_the_disk_for_data_and_the_first_that_is_better_than_none() {
        let layout = Layout::new(Resiliency::Simple, 1, ByteCount::kib(64)).unwrap();
        let (mut map, _) = map_of(&[200, 400, 400], layout);
        for no in [1, 2] {
            map.disks.get_mut(&DiskNo(no)).unwrap().record.usage = Usage::Retired;
        }
        let free: BTreeMap<DiskNo, u64> = map.disks.iter().map(|(no, disk)| (*no, disk.free.count() as u64)).collect();
        // One by one, and at once.
        for segments in [10, 100] {
            let mut left = free.clone();
            assert!(map.place_metadata(segments, &mut left));
            let taken: Vec<u64> = free.iter().map(|(no, free)| free - left[no]).collect();
            assert_eq!(taken, [segments, segments, 0]);
        }
    }

    #[test]
    fn slabs_taken_at_once_are_those_that_are_taken_one_by_one() {
        let disks: Vec<DiskNo> = (0..4).map(DiskNo).collect();
        for seed in 0..2000u64 {
            let of =
                |nth: u64, end: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(nth as u32 * 13) >> 7) % end;
            let free: BTreeMap<DiskNo, u64> = disks.iter().map(|no| (*no, of(no.0 as u64, 12))).collect();
            let (slabs, most) = (of(5, 30), 1 + of(6, 9));
            let mut one_by_one = free.clone();
            let fits = (0..slabs).all(|_| {
                let may = one_by_one.iter_mut().filter(|(no, left)| **left > 0 && free[*no] - **left < most);
                may.max_by_key(|(_, left)| **left).map(|(_, left)| *left -= 1).is_some()
            });
            let mut at_once = free.clone();
            assert_eq!(take_of_the_emptiest(slabs, most, &disks, &mut at_once), fits, "{free:?}");
            let sorted = |left: &BTreeMap<DiskNo, u64>| {
                let mut left: Vec<u64> = left.values().copied().collect();
                left.sort_unstable();
                left
            };
            assert!(!fits || sorted(&at_once) == sorted(&one_by_one), "{slabs} of {free:?}, {most} of each");
        }
    }
}
