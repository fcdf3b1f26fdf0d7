//! Whether a disk can leave a pool, and what virtual disks lose by it. Only looks: the commands ask it before they act,
//! and their dry runs print what it says.
//!
//! 1. What lies on the disk needs another place: else it cannot leave at all. Where there is none, hollow segments are
//!    emptied (`homes.rs`).
//! 2. What is written from then on needs as many disks as the layout has slots. Where fewer are left, a segment is
//!    placed with slots that are empty, and the layout survives fewer failures than it promises, or cannot be written:
//!    that is a loss, and a person has to want it. Nothing that was written yet shows it.
//! 3. Where another disk takes the place of the one that leaves, what is short of disks already loses nothing by it.

use super::Pool;
use super::cache::{CacheTurn, DisksThen};
use super::homes::{Homes, NEW};
use crate::error::Result;
use crate::fail;
use crate::format::record::{SegmentRecord, Usage};
use crate::geometry::Layout;
use crate::segment::slots_on;
use crate::segment::{Map, handed_on};
use crate::units::{ByteCount, DiskNo, SegmentNo, TableNo};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What takes the place of a disk that leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Instead {
    /// Nothing does: the other disks take what it holds.
    #[default]
    Nothing,
    /// A new disk of so many bytes, which joins before.
    New(ByteCount),
    /// Another disk of the pool, which takes data from then on whatever it was used for.
    Member(DiskNo),
}

/// What the leaving of a disk comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// Bytes that move to other disks.
    pub moves: ByteCount,
    /// Bytes in segments of which little is in use, which are put into others first, so that there is room.
    pub empties: ByteCount,
    /// What virtual disks lose by it.
    pub losses: Vec<Loss>,
    /// Virtual disks whose write-back caches would have too few disks, and empty themselves.
    pub caches: Vec<String>,
    /// Write-back caches that the pool chooses anew then.
    pub turned: Vec<CacheTurn>,
}

/// A virtual disk that finds too few disks for its layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Its name.
    pub vdisk: String,
    /// Its layout.
    pub layout: Layout,
    /// The disks that are left to it.
    pub left: usize,
}

impl Loss {
    /// How many failures what is written from then on survives; none: it cannot be written.
    pub fn survives(&self) -> Option<u32> {
        survivable(self.layout, self.left)
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} takes {} disks and {} would be left: ",
            self.layout.resiliency(),
            self.layout.slots(),
            self.left
        )?;
        match self.survives() {
            None => f.write_str("nothing new could be written to it"),
            Some(0) => f.write_str("what is written from then on survives no disk failure"),
            Some(1) => f.write_str("what is written from then on survives only one disk failure"),
            Some(n) => write!(f, "what is written from then on survives only {n} disk failures"),
        }
    }
}

/// How many failures a stripe survives that finds `left` disks for the slots of its layout; none: too few for it to be
/// written.
pub fn survivable(layout: Layout, left: usize) -> Option<u32> {
    let empty = layout.slots().saturating_sub(left);
    layout.failures().checked_sub(empty).map(|failures| failures as u32)
}

/// The virtual disks that would find too few disks for their layouts if disk `no` were none of the pool's.
pub fn losses_without(map: &Map, no: DiskNo, instead: Instead) -> Vec<Loss> {
    let mut losses = Vec::new();
    // Where it has several tables, only the newest is written to.
    for record in map.vdisks.values() {
        let Some(table) = record.tables.first().and_then(|table| map.tables.get(table)) else { continue };
        let (layout, disks) = (table.record.layout, table.record.disks);
        let (disks, come, new) = match instead {
            Instead::Nothing => (disks, None, 0),
            Instead::Member(member) => (handed_on(disks, no, member), Some(member), 0),
            // Where the one that leaves is named, the new one will be.
            Instead::New(_) => (disks, None, usize::from(disks.is_empty() || disks.contains(no))),
        };
        let left = map.places_for(disks, layout.slots(), Some(no), come) + new;
        let enough = match instead {
            Instead::Nothing => layout.slots(),
            _ => map.places_for(table.record.disks, layout.slots(), None, None),
        };
        if left < enough {
            losses.push(Loss { vdisk: record.name.clone(), layout, left });
        }
    }
    losses
}

impl Pool {
    /// Judges the leaving of disk `no`: how many bytes would have to move, and what virtual disks would lose. Fails
    /// where what it holds has no other place. Changes nothing.
    pub fn plan_disk_remove(&self, no: DiskNo, instead: Instead) -> Result<Leaving> {
        self.store.check_changeable()?;
        self.store.map.borrow_mut().see_disks();
        let map = self.store.map.borrow();
        let Some(leaving) = map.disks.get(&no) else { return fail!(NotFound, "there is no disk {no}") };
        let name = leaving.record.name.clone();
        if map.disks.len() == 1 && !matches!(instead, Instead::New(_)) {
            return fail!(NotPossible, "{name} is the only disk of the pool: remove the pool instead");
        }
        let mut free: BTreeMap<DiskNo, u64> = map
            .disks
            .values()
            .filter(|disk| {
                let takes = matches!(disk.record.usage, Usage::AutoSelect | Usage::HotSpare);
                disk.healthy && disk.record.no != no && (takes || instead == Instead::Member(disk.record.no))
            })
            // What read caches have there makes room.
            .map(|disk| disk.record.no)
            .map(|no| (no, map.free_soon(no) as u64 + map.read_caches_on(no)))
            .collect();
        if let Instead::New(capacity) = instead {
            free.insert(NEW, self.plan_of_new(capacity)?.slabs as u64);
        }
        let come = if let Instead::Member(member) = instead { Some(member) } else { None };
        let caches = if let Instead::New(_) = instead { Vec::new() } else { Pool::caches_without(&map, no, come) };
        let emptied: Vec<TableNo> = caches.iter().flat_map(|id| map.with_packs(&map.vdisks[id].tables)).collect();
        let (moves, empties) = self.room_for_slots(&map, no, free, &emptied)?;
        let caches = caches.iter().map(|id| map.vdisks[id].name.clone()).collect();
        let losses = losses_without(&map, no, instead);
        drop(map);
        let turned = match instead {
            Instead::Nothing => self.plan_caches_then(&DisksThen::Changed(no, Some(Usage::Retired), None)),
            _ => Vec::new(),
        };
        Ok(Leaving { moves: ByteCount(moves), empties: ByteCount(empties), losses, caches, turned })
    }

    /// The bytes that leave disk `no`, where others have room for all of its slots, and for those that get a disk
    /// before them; and those that lie in hollow segments which are emptied for that. `free`: the slabs that each of
    /// the others has. Segments of tables that are `emptied` need none.
    fn room_for_slots(
        &self,
        map: &Map,
        no: DiskNo,
        free: BTreeMap<DiskNo, u64>,
        emptied: &[TableNo],
    ) -> Result<(u64, u64)> {
        let (mut homeless, mut lacking) = (0, 0);
        // Segments that are short of disks, and the most disks that one is short of.
        let (mut short, mut disks) = (0, 0);
        let mut homes = Homes::new(map, free);
        let mut leave = Vec::new();
        for (segment, slot) in self.slots_of(no) {
            let record = &map.segments[&segment].record;
            let is_packed = map.tables.get(&record.owner).is_some_and(|table| table.record.packs.is_some());
            if is_packed && emptied.contains(&record.owner) || homes.emptied.contains(&segment) {
                continue;
            }
            leave.push(segment);
            let before = self.slots_before(segment, slot).len() as u64;
            let fits = |other| other == NEW || slots_on(record, other) == 0;
            let found = homes.give(segment, before + 1, fits);
            let stays = u64::from(found <= before && !map.may_vanish(record, no));
            let lacks = before.saturating_sub(found) + stays;
            lacking += lacks - stays;
            homeless += stays;
            short += u64::from(lacks > 0);
            disks = disks.max(lacks);
        }
        if homeless + lacking > 0 {
            let (missing, each) = (self.store.slab * (homeless + lacking), self.store.slab * short);
            let of_it = match lacking {
                0 => String::from("of what it holds"),
                _ => format!("({} of that lacks a disk already, and gets one first)", self.store.slab * lacking),
            };
            let new = if disks == 1 { String::from("a disk") } else { format!("{disks} disks") };
            let name = &map.disks[&no].record.name;
            return fail!(
                NoSpace,
                "disk {name} cannot leave: {missing} {of_it} has no place on the other disks (a disk takes one column of a stripe only); add {new} of at least {each} first"
            );
        }
        let moves = leave.into_iter().filter(|segment| !homes.emptied.contains(segment));
        let empties = homes.emptied.iter().map(|segment| self.data_in(*segment)).sum();
        Ok((moves.map(|segment| self.slot_bytes(segment)).sum(), empties))
    }

    /// Bytes of data that lie in a segment.
    fn data_in(&self, segment: SegmentNo) -> u64 {
        let map = self.store.map.borrow();
        let data = |record: &SegmentRecord| record.layout.data_columns() as u64;
        map.segments.get(&segment).map_or(0, |found| data(&found.record)) * self.slot_bytes(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Resiliency;

    fn loss(resiliency: Resiliency, columns: u8, left: usize) -> Loss {
        let layout = Layout::new(resiliency, columns, ByteCount::kib(64)).unwrap();
        Loss { vdisk: "v".into(), layout, left }
    }

    #[test]
    fn every_disk_too_few_is_one_failure_less_until_nothing_can_be_written() {
        let double = |left| loss(Resiliency::Parity { parity: 2 }, 6, left).survives();
        assert_eq!([6, 5, 4, 3].map(double), [Some(2), Some(1), Some(0), None]);
        assert_eq!(double(7), Some(2), "more disks than slots are no more failures");
        assert_eq!(loss(Resiliency::Simple, 3, 2).survives(), None);
        assert_eq!(loss(Resiliency::Mirror { copies: 3 }, 1, 1).survives(), Some(0));
    }

    #[test]
    fn a_loss_is_told_in_numbers() {
        let told = alloc::format!("{}", loss(Resiliency::Parity { parity: 1 }, 4, 3));
        assert!(told.contains("takes 4 disks and 3 would be left"), "{told}");
        assert!(told.ends_with("survives no disk failure"), "{told}");
        assert!(alloc::format!("{}", loss(Resiliency::Simple, 3, 2)).ends_with("nothing new could be written to it"));
    }
}
