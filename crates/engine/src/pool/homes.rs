//! Where the slots of a disk that leaves will find homes, told before any of them moves: on disks that have free slabs,
//! and on those of hollow segments that are emptied where there are none, as the job does it
//! (`job/repair.rs`, [`Pool::find_home`](super::Pool)).
//!
//! Invariants
//! 1. A slab is given to one slot. One of a segment that is emptied is free for others, wherever its slots went before.
//! 2. Segments are emptied as long as the others of their table have places for what they hold, and beside those what
//!    clients need (`segment/hollow.rs`).

use crate::segment::Map;
use crate::segment::hollow::Hollow;
use crate::units::{DiskNo, SegmentNo, TableNo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Stands for a disk that is to join.
pub(super) const NEW: DiskNo = DiskNo(u16::MAX);

/// The slabs that slots can come to.
pub(super) struct Homes {
    /// Free slabs of each disk.
    free: BTreeMap<DiskNo, u64>,
    hollows: Vec<Hollow>,
    /// Free places that tables can do without.
    spare: BTreeMap<TableNo, u64>,
    /// The disks that slots of a segment came to.
    taken: BTreeMap<SegmentNo, Vec<DiskNo>>,
    /// Segments that are emptied.
    pub emptied: BTreeSet<SegmentNo>,
}

impl Homes {
    /// Disks have so many `free` slabs each, and no others take anything. `empties`: hollow segments are emptied where
    /// that is not enough.
    pub fn new(map: &Map, free: BTreeMap<DiskNo, u64>, empties: bool) -> Homes {
        let (hollows, spare) = if empties { map.hollows() } else { Default::default() };
        Homes { free, hollows, spare, taken: BTreeMap::new(), emptied: BTreeSet::new() }
    }

    /// Gives up to `count` slots of a segment homes on different disks that `fit`, those with the most room first. Says
    /// how many found one.
    pub fn give(&mut self, map: &Map, segment: SegmentNo, count: u64, fit: impl Fn(DiskNo) -> bool) -> u64 {
        let mut found = 0;
        while found < count {
            let taken = self.taken.get(&segment).cloned().unwrap_or_default();
            let may = |no: &DiskNo| fit(*no) && !taken.contains(no);
            let best = self.free.iter_mut().filter(|(no, free)| **free > 0 && may(no)).max_by_key(|(_, free)| **free);
            if let Some((no, free)) = best {
                *free -= 1;
                self.taken.entry(segment).or_default().push(*no);
                found += 1;
            } else if !self.empty(map, |no| may(&no)) {
                break;
            }
        }
        found
    }

    /// Empties the most hollow segment that has a slab on a disk that `fits`. `false`: there is none.
    fn empty(&mut self, map: &Map, fits: impl Fn(DiskNo) -> bool) -> bool {
        let slabs = |segment: SegmentNo, taken: &BTreeMap<SegmentNo, Vec<DiskNo>>| {
            let lies = map.segments[&segment].record.slabs.iter().flatten().map(|at| at.disk);
            lies.chain(taken.get(&segment).into_iter().flatten().copied()).collect::<Vec<DiskNo>>()
        };
        let has_room = |hollow: &&Hollow| self.spare.get(&hollow.table).is_some_and(|spare| *spare >= hollow.needs);
        let gives = |no: &DiskNo| self.free.contains_key(no) && fits(*no);
        let mut left = self.hollows.iter().filter(|hollow| !self.emptied.contains(&hollow.segment)).filter(has_room);
        let Some(Hollow { segment, table, all, .. }) =
            left.find(|hollow| slabs(hollow.segment, &self.taken).iter().any(gives))
        else {
            return false;
        };
        let (segment, table, all) = (*segment, *table, *all);
        for no in slabs(segment, &self.taken) {
            if let Some(free) = self.free.get_mut(&no) {
                *free += 1;
            }
        }
        self.taken.remove(&segment);
        self.emptied.insert(segment);
        *self.spare.get_mut(&table).expect("it has room") -= all;
        true
    }
}
