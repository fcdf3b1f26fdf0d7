//! Where the slots of a disk that leaves will find homes, told before any of them moves: on disks that have free slabs,
//! and on those of hollow segments that are emptied where there are none, as the job does it (`job/repair.rs`).
//!
//! Invariants
//! 1. A slab is given to one slot. One of a segment that is emptied is free for others, wherever its slots went before.
//! 2. A segment is emptied only where the job would find it, and empty it (`segment/hollow.rs`): among the most hollow
//!    ones of its table, while the others have places for what it holds, and beside those what clients need. So what it
//!    takes to give a home does not grow with the pool.

use crate::mutant::{self, Mutant};
use crate::segment::Map;
use crate::segment::hollow::{HollowTable, LOOKS};
use crate::units::{DiskNo, SegmentNo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Stands for a disk that is to join.
pub(super) const NEW: DiskNo = DiskNo(u16::MAX);

/// The slabs that slots can come to.
pub(super) struct Homes<'a> {
    map: &'a Map,
    /// Free slabs of each disk.
    free: BTreeMap<DiskNo, u64>,
    /// What can be emptied; none: nobody has asked yet.
    tables: Option<Vec<HollowTable>>,
    /// The disks that slots of a segment came to.
    taken: BTreeMap<SegmentNo, Vec<DiskNo>>,
    /// Segments that are emptied.
    pub emptied: BTreeSet<SegmentNo>,
}

impl<'a> Homes<'a> {
    /// Disks have so many `free` slabs each, and no others take anything.
    pub fn new(map: &'a Map, free: BTreeMap<DiskNo, u64>) -> Homes<'a> {
        Homes { map, free, tables: None, taken: BTreeMap::new(), emptied: BTreeSet::new() }
    }

    /// Gives up to `count` slots of a segment homes on different disks that `fit`, those with the most room first. Says
    /// how many found one.
    pub fn give(&mut self, segment: SegmentNo, count: u64, fit: impl Fn(DiskNo) -> bool) -> u64 {
        let mut taken = Vec::new();
        while (taken.len() as u64) < count {
            let may = |no: DiskNo| fit(no) && !taken.contains(&no);
            let best = self.free.iter_mut().filter(|(no, free)| **free > 0 && may(**no)).max_by_key(|(_, free)| **free);
            if let Some((no, free)) = best {
                *free -= 1;
                taken.push(*no);
            } else if !self.empty(may) {
                break;
            }
        }
        let found = taken.len() as u64;
        self.taken.entry(segment).or_default().extend(taken);
        found
    }

    /// Empties the most hollow segment that has a slab on a disk that `fits`. `false`: there is none.
    fn empty(&mut self, fits: impl Fn(DiskNo) -> bool) -> bool {
        if mutant::active(Mutant::LeavesWithoutEmptying) {
            return false;
        }
        let Homes { map, free, tables, taken, emptied } = self;
        let tables = tables.get_or_insert_with(|| map.hollow_tables());
        let slabs_of = |id: SegmentNo| {
            let lie = map.segments[&id].record.slabs.iter().flatten().map(|at| at.disk);
            lie.chain(taken.get(&id).into_iter().flatten().copied())
        };
        let mut best = None;
        for (table, found) in tables.iter().enumerate() {
            let mut looked_at = found.segments.iter().take(LOOKS).enumerate();
            let suits = looked_at.find(|(_, hollow)| {
                found.spare >= hollow.needs && slabs_of(hollow.id).any(|no| free.contains_key(&no) && fits(no))
            });
            best = best.max(suits.map(|(nth, hollow)| (hollow.free * 1024 / hollow.all, hollow.id, table, nth)));
        }
        let Some((_, id, table, nth)) = best else { return false };
        let slabs: Vec<DiskNo> = slabs_of(id).collect();
        for no in slabs {
            free.entry(no).and_modify(|free| *free += 1);
        }
        let table = &mut tables[table];
        table.spare -= table.segments.remove(nth).map_or(0, |hollow| hollow.all);
        taken.remove(&id);
        emptied.insert(id);
        true
    }
}
