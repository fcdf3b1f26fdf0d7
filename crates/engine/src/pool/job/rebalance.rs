//! Jobs that move what is sound: everything off one disk, or from full disks to empty ones.
//!
//! Invariants
//! 1. A rebalance moves only slots of segments that have all their redundancy, and only to disks that take them: so it
//!    ends.
//! 2. It brings no two slots of a stripe into one domain.
//! 3. A slot with data leaves a disk that is there only once every slot of its segment has a disk: the room that it
//!    would take is the room that a repair needs. (Metadata without a disk for a copy lacks nothing that was promised.)

use super::super::Pool;
use super::repair::Tally;
use super::{Halt, JobKind, Ticket};
use crate::error::ErrorKind;
use crate::format::record::{OWNER_METADATA, SegmentRecord, Usage};
use crate::mutant::{self, Mutant};
use crate::segment::slots_on;
use crate::units::{DiskNo, SegmentNo};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Disks whose fill levels differ by less than this (in thousandths) are even.
const EVEN: u64 = 20;

impl Pool {
    /// Moves everything off `disk`: to `to` as far as that goes. With `forget`, it leaves the pool then.
    pub(super) async fn evacuate(
        &self,
        disk: DiskNo,
        to: Option<DiskNo>,
        forget: bool,
        ticket: &Ticket,
    ) -> core::result::Result<String, Halt> {
        if !self.store.map.borrow().disks.contains_key(&disk) {
            // The power went before that was on record.
            return Ok(format!("disk {disk} is no part of the pool any more"));
        }
        let kind = JobKind::Evacuate { disk, to, forget };
        let tally = Tally::default();
        let is_asked_for = forget || to.is_some() || mutant::active(Mutant::EmptyingOutlivesUse);
        if is_asked_for || self.is_to_be_empty(disk) {
            // What read caches have there is a copy: it needs no other place.
            let left = self.store.map.borrow_mut().leave_read_caches(disk);
            self.store.append_all(left);
            self.store.signals.drains.notify();
        }
        // Metadata that a checkpoint makes meanwhile goes elsewhere: the disk takes nothing new. One more round finds
        // what was under way.
        for _ in 0..2 {
            let slots = self.slots_leaving(disk);
            ticket.expect(slots.iter().map(|(segment, _)| self.slot_bytes(*segment)).sum());
            let leave = async |(segment, slot)| {
                if !is_asked_for && !self.is_to_be_empty(disk) {
                    return Ok(());
                }
                for other in self.slots_before(segment, slot) {
                    self.find_home(segment, other, None, &tally, ticket).await?;
                }
                match self.slots_before(segment, slot).is_empty() {
                    true => self.find_home(segment, slot, to, &tally, ticket).await,
                    false => Ok(()),
                }
            };
            self.each_at_once(slots, leave).await?;
            if tally.homeless.get() + tally.lost.get() > 0 {
                break;
            }
        }
        if !is_asked_for && !self.is_to_be_empty(disk) {
            // It takes what leaves it: metadata would come back to it, with every repair, and leave again.
            return Ok(String::from("the disk is used again: what it holds stays there"));
        }
        if tally.homeless.get() > 0 || tally.lost.get() > 0 {
            self.note_tried(kind);
        }
        let told = self.tell(&tally)?;
        if !self.slots_leaving(disk).is_empty() {
            self.note_tried(kind);
            let text = format!("disk {disk} still holds {} slabs", self.slots_leaving(disk).len());
            return super::stuck(ErrorKind::NotPossible, text);
        }
        if forget {
            while self.store.hurry_drains(Some(disk)) {
                ticket.advance(&self.store, 0)?;
                self.store.signals.drains.notify();
                self.store.pause().await;
            }
            let name = self.store.map.borrow().disks.get(&disk).map(|disk| disk.record.name.clone());
            self.forget_disk(disk).await?;
            return Ok(format!("{} is no part of the pool any more", name.unwrap_or_default()));
        }
        Ok(told)
    }

    /// The slots of a segment with data that need a disk before `slot` may leave its own, if that is sound.
    pub(in crate::pool) fn slots_before(&self, segment: SegmentNo, slot: usize) -> Vec<usize> {
        let map = self.store.map.borrow();
        let Some(record) = map.segments.get(&segment).map(|found| &found.record) else { return Vec::new() };
        let metadata = record.owner == OWNER_METADATA;
        if metadata || !map.is_sound(record, slot) || mutant::active(Mutant::LeavesBeforeRepair) {
            return Vec::new();
        }
        (0..record.slabs.len()).filter(|other| record.slabs[*other].is_none()).collect()
    }

    /// Moves slabs from the fullest disks to the emptiest until all are filled alike, in proportion to their size.
    pub(super) async fn rebalance(&self, ticket: &Ticket) -> core::result::Result<String, Halt> {
        let mut moved = 0u64;
        let tally = Tally::default();
        ticket.expect(self.excess_slabs() * self.store.slab.0);
        while let Some((segment, slot, to)) = self.next_shift() {
            let before = ticket.done.get();
            let homeless = tally.homeless.get() + tally.lost.get();
            self.find_home(segment, slot, Some(to), &tally, ticket).await?;
            if tally.homeless.get() + tally.lost.get() > homeless {
                break;
            }
            // Counted in slabs: what is moved may be mostly empty.
            let counted = ticket.done.get() - before;
            ticket.step(&self.store, self.store.slab.0.saturating_sub(counted)).await?;
            moved += 1;
        }
        let unsound = self.unsound_bytes();
        let rest = if unsound.0 > 0 { format!("; {unsound} are to be repaired first") } else { String::new() };
        Ok(format!("{moved} slabs moved{rest}"))
    }

    /// Whether nothing is to lie on a disk: its use may have changed since its emptying began by itself.
    fn is_to_be_empty(&self, disk: DiskNo) -> bool {
        self.store.map.borrow().disks.get(&disk).is_some_and(|disk| disk.record.usage.is_for_no_data())
    }

    /// The slots that leave a disk which is to be emptied, metadata first. On a journal disk stays what no other disk
    /// can have.
    fn slots_leaving(&self, disk: DiskNo) -> Vec<(SegmentNo, usize)> {
        let mut slots = self.slots_of(disk);
        let map = self.store.map.borrow();
        let is_journal = map.disks.get(&disk).is_some_and(|disk| disk.record.usage == Usage::Journal);
        slots.retain(|(segment, slot)| !is_journal || map.may_leave_journal(*segment, *slot, disk));
        slots
    }

    /// Disks that are to be emptied because they are retired, or are journals, and hold something that can leave.
    pub(super) fn disks_to_empty(&self) -> Vec<DiskNo> {
        if !self.store.tuning.auto_jobs {
            return Vec::new();
        }
        let holding: Vec<(DiskNo, Usage)> = {
            let map = self.store.map.borrow();
            let emptied =
                map.disks.values().filter(|disk| disk.record.usage.is_for_no_data() && !disk.record.maintenance);
            let holding = emptied.filter(|disk| map.free_soon(disk.record.no) < disk.free.len());
            holding.map(|disk| (disk.record.no, disk.record.usage)).collect()
        };
        let caches = |no: DiskNo| self.store.map.borrow().has_read_cache_on(no);
        let leaves = |(no, usage): &(DiskNo, Usage)| {
            *usage == Usage::Retired || !self.slots_leaving(*no).is_empty() || caches(*no)
        };
        holding.into_iter().filter(leaves).map(|(no, _)| no).collect()
    }

    /// The slots that lie on a disk, metadata first.
    pub(in crate::pool) fn slots_of(&self, disk: DiskNo) -> Vec<(SegmentNo, usize)> {
        let map = self.store.map.borrow();
        let mut found = Vec::new();
        for segment in map.segments.values() {
            let slots = slots_on(&segment.record, disk);
            let data = segment.record.owner != OWNER_METADATA;
            found.extend(
                (0..segment.record.slabs.len())
                    .filter(|slot| slots >> slot & 1 == 1)
                    .map(|slot| (data, segment.record.id, slot)),
            );
        }
        found.sort_unstable();
        found.into_iter().map(|(_, segment, slot)| (segment, slot)).collect()
    }

    /// Slabs above the common fill level.
    fn excess_slabs(&self) -> u64 {
        let map = self.store.map.borrow();
        let (mut used, mut all) = (0, 0);
        map.writable_disks().for_each(|disk| {
            used += (disk.free.len() - map.free_soon(disk.record.no)) as u64;
            all += disk.free.len() as u64;
        });
        let excess =
            |free: usize, len: usize| ((len - free) as u64).saturating_sub((len as u64 * used).div_ceil(all.max(1)));
        map.writable_disks().map(|disk| excess(map.free_soon(disk.record.no), disk.free.len())).sum()
    }

    /// A slot whose move makes the fill levels more even, and where it goes. `None`: they are even, or nothing helps.
    pub(in crate::pool) fn next_shift(&self) -> Option<(SegmentNo, usize, DiskNo)> {
        let map = self.store.map.borrow();
        // Thousandths of a disk that are in use, with `more` slabs beside those that are.
        let level = |no: DiskNo, more: i64| {
            let slabs = map.disks[&no].free.len();
            ((slabs - map.free_soon(no)) as i64 + more) as u64 * 1000 / slabs.max(1) as u64
        };
        // What is not repaired yet stays: the last copy of it would come to lie on a disk that may have just come back.
        let is_whole = |record: &SegmentRecord| {
            // Metadata may have fewer copies than there could be.
            let sound = record.missed == 0 && (record.owner == OWNER_METADATA || map.unsound(record) == 0);
            sound || mutant::active(Mutant::LastCopyShifted)
        };
        // What it does not take would go elsewhere, and be sent to it again for ever. Nor is balance worth what domains
        // are for.
        let takes = |segment: SegmentNo, slot: usize, from: DiskNo, to: DiskNo| {
            let crowds = map.shares_domain(segment, slot, to) && !map.shares_domain(segment, slot, from);
            !crowds && map.home_for(segment, slot, Some(to)).is_some() || mutant::active(Mutant::ShiftNotAsked)
        };
        let mut disks: Vec<DiskNo> = map.writable_disks().map(|disk| disk.record.no).collect();
        disks.sort_by_key(|no| (level(*no, 0), *no));
        for from in disks.iter().rev() {
            for to in &disks {
                // The giver must stay above the taker, or the two would play ball for ever.
                if level(*from, 0) < level(*to, 0) + EVEN || level(*from, -1) < level(*to, 1) {
                    break;
                }
                let fitting = map.segments.values().find_map(|segment| {
                    let slots = slots_on(&segment.record, *from);
                    let slot = slots.trailing_zeros() as usize;
                    let here = slots_on(&segment.record, *to) != 0 || segment.moving.is_some();
                    (slots != 0 && is_whole(&segment.record) && !here && takes(segment.record.id, slot, *from, *to))
                        .then_some((segment.record.id, slot, *to))
                });
                if fitting.is_some() {
                    return fitting;
                }
            }
        }
        None
    }
}
