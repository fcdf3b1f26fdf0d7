//! How many segments can be reserved: each brings pages of metadata with it, and those take slabs, too.
//!
//! Metadata is placed on the emptiest disks, as data is. Where whatever takes slabs always takes them of the emptiest
//! disks, the order is of no consequence: what fits when all metadata is placed first, fits as it comes.

use super::allocate::{SLABS_KEPT, segments_on};
use super::config::METADATA_LEN;
use super::copies::Copies;
use super::{DiskRoom, Map, PAGE_PAIR, Segment};
use crate::format::record::{SEGMENT_LEN, SLAB_LEN};
use crate::geometry::Layout;
use crate::units::{ByteCount, DiskNo};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The most steps in which metadata is placed: what goes beyond is placed several segments at a time.
const STEPS_MAX: u64 = 1024;

impl Map {
    /// How many more segments of `layout` can be reserved on `disks` (bits; 0: any), with what is kept about them;
    /// slabs that are free in a moment count.
    pub fn segments_reservable(&self, layout: Layout, disks: u64) -> u64 {
        self.reservable_with(layout, disks, |disk| self.free_soon(disk.record.no))
    }

    /// How many of them can be reserved right now.
    pub fn segments_reservable_now(&self, layout: Layout, disks: u64) -> u64 {
        self.reservable_with(layout, disks, |disk| disk.free.count())
    }

    /// User bytes of `layout` that can be reserved by who has `segments` segments. One segment is held back:
    /// overwriting must never wait for more than a commit.
    pub fn room_reservable(&self, layout: Layout, segments: u64, disks: u64) -> ByteCount {
        let reservable = (segments + self.segments_reservable(layout, disks)).saturating_sub(1);
        layout.data_len() * layout.segment_stripes(self.slab) as u64 * reservable
    }

    fn reservable_with(&self, layout: Layout, disks: u64, free: impl Fn(&DiskRoom) -> usize) -> u64 {
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
        let others: Vec<DiskNo> = self.last_resort(0, 0).map(|disk| disk.record.no).collect();
        let step = segments.div_ceil(STEPS_MAX).max(1);
        while segments > 0 {
            let many = step.min(segments);
            segments -= many;
            let has = |no: &&DiskNo| free[*no] > 0;
            let count = ordinary.iter().filter(has).count();
            let Copies { all: copies, apart } = Copies::on(count, others.len());
            let mut on: Vec<DiskNo> = ordinary.iter().filter(has).copied().collect();
            on.sort_unstable_by_key(|no| core::cmp::Reverse(free[no]));
            if ordinary.len() < apart {
                on.extend(others.iter().filter(has));
            }
            if on.len() < apart {
                return false;
            }
            on.truncate(apart);
            // On one disk both copies are on the same.
            for nth in 0..copies {
                let left = free.get_mut(&on[nth % on.len()]).expect("it is one of them");
                if *left < many && nth < on.len() {
                    return false;
                }
                *left = left.saturating_sub(many);
            }
        }
        true
    }
}
