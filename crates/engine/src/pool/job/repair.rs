//! Repair: every slot of every segment gets all its strips on a disk that is there.
//!
//! 1. A disk that is back gets its metadata: it may vote, and be read, again. Of one that was put back from an older
//!    copy, and counts as up to date all the same, the metadata is proven.
//! 2. Slots on disks that are there and missed strips get what they missed; slots without a disk get another home:
//!    metadata first, then the segments with the least redundancy left; several at once.
//!
//! Invariants
//! 1. A disk is called current only after every metadata page on it is.
//! 2. Only stripes that are in use are read or written.

use super::super::Pool;
use super::super::moves::Moved;
use super::{Halt, JobKind, Ticket};
use crate::disk_set::DiskSet;
use crate::error::{ErrorKind, Result};
use crate::event::Event;
use crate::fail;
use crate::format::record::{Away, OWNER_METADATA, SlabAt, Usage};
use crate::mutant::{self, Mutant};
use crate::segment::slots_on;
use crate::segment::{Map, Segment};
use crate::store::join;
use crate::units::{ByteCount, DiskNo, Nanos, SegmentNo};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;

/// How often a slot gets another home when the disk it was moved to fails.
const TRIES: usize = 3;

/// [`Ticket`]'s cursor of a repair that a person asked for: it waits for no disk to come back.
pub(super) const ASKED_FOR: u32 = 1;

/// One slot that is to be made sound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Task {
    /// Metadata first.
    data: bool,
    /// Then what has the least redundancy left.
    left: i64,
    segment: SegmentNo,
    slot: usize,
    /// It only lacks what its disk missed.
    in_place: bool,
}

/// What a repair, or an evacuation, did and left.
#[derive(Default)]
pub(in crate::pool) struct Tally {
    /// Slots that are sound now.
    pub moved: Cell<u64>,
    /// Slots for which there is no disk with room.
    pub homeless: Cell<u64>,
    /// Slots of which stripes are lost.
    pub lost: Cell<u64>,
}

impl Tally {
    /// Whether nothing was left.
    pub fn is_clean(&self) -> bool {
        self.homeless.get() + self.lost.get() == 0
    }
}

impl Pool {
    /// When there is something to repair: the time from which on that may be done, 0 if at once.
    pub(super) fn repair_due(&self) -> Option<Nanos> {
        if !self.store.tuning.auto_jobs {
            return None;
        }
        self.store.map.borrow_mut().see_disks();
        let members = self.store.members.borrow();
        let map = self.store.map.borrow();
        let behind = members.iter().any(|(no, member)| {
            let record = map.disks.get(no).map(|disk| &disk.record);
            let away = record.is_some_and(|record| record.away != Away::No);
            // One that rests is brought what it missed when it rests no more.
            member.disk.is_some() && (!member.current || away) && !record.is_some_and(|record| record.maintenance)
        });
        if behind {
            return Some(Nanos(0));
        }
        let slots = map.maybe_lacking().flat_map(|segment| {
            let slots = (0..segment.record.slabs.len()).map(move |slot| (segment, slot));
            slots.filter(|(segment, slot)| map.lacks(&segment.record, *slot))
        });
        // Where nothing has room, a job would only say so. Many slots ask for the same disks.
        let mut hollow: BTreeMap<DiskSet, bool> = BTreeMap::new();
        let due = slots.filter_map(|(segment, slot)| {
            // A write that its disk missed may be told only after the disk has caught up.
            let there =
                |at: SlabAt| map.disks.get(&at.disk).is_some_and(|disk| disk.healthy && !disk.record.maintenance);
            if segment.record.slabs[slot].is_some_and(there) {
                return Some(Nanos(0));
            }
            let due = self.slot_due(segment.record.slabs[slot], &map)?;
            let id = segment.record.id;
            let home = map.home_for(id, slot, None).or_else(|| map.home_in_read_cache(id));
            let disks = if home.is_none() { map.disks_to_empty_for(id) } else { DiskSet::EMPTY };
            let mut can_be_emptied = || *hollow.entry(disks).or_insert_with(|| map.has_hollow(disks));
            (home.is_some() || !disks.is_empty() && can_be_emptied()).then_some(due)
        });
        due.min()
    }

    /// From when on a slot that lies there is rebuilt elsewhere; `None`: its disk is there, or is to be waited for.
    fn slot_due(&self, at: Option<SlabAt>, map: &Map) -> Option<Nanos> {
        let Some(at) = at else { return Some(Nanos(0)) };
        let members = self.store.members.borrow();
        let member = members.get(&at.disk)?;
        let maintenance = map.disks.get(&at.disk).is_some_and(|disk| disk.record.maintenance);
        if member.disk.is_some() || maintenance || map.notes.settings.repair_after == u32::MAX {
            return None;
        }
        Some(Nanos(member.gone.unwrap_or_default().0 + Nanos::secs(map.notes.settings.repair_after as u64).0))
    }

    /// Gives every slot of every segment all its strips on a disk that is there. What there is to say in the end.
    pub(super) async fn repair(&self, ticket: &Ticket) -> core::result::Result<String, Halt> {
        let changes = self.store.signals.changes.get();
        // Also of those that count as up to date: a disk that lost what it had called durable may have lost strips, and
        // pages, if that was before the last label.
        let unknown = self.unknown_disks();
        for no in unknown.iter().filter(|no| self.store.is_current(**no)) {
            self.mend_pages_on(*no).await?;
        }
        unknown.iter().for_each(|no| self.note_what_it_lacks(*no));
        if !unknown.is_empty() {
            self.store.make_durable(self.store.log.seq()).await?;
            // One that was put back once more meanwhile is unknown again.
            let still = self.unknown_disks();
            let known = unknown.into_iter().filter(|no| !still.contains(no));
            known.for_each(|no| self.store.set_out_of_step(no, false));
        }
        for no in self.stale_disks() {
            self.readmit(no).await?;
        }
        self.settle_metadata().await?;
        let tally = Tally::default();
        let tasks = self.repair_tasks(ticket.cursor.get() == ASKED_FOR);
        ticket.expect(tasks.iter().map(|task| self.slot_bytes(task.segment)).sum());
        self.each_at_once(tasks, |task| self.make_sound(task, &tally, ticket)).await?;
        self.note_caught_up();
        self.store.flush_all(self.store.unflushed()).await;
        self.store.write_labels().await?;
        if tally.homeless.get() > 0 || tally.lost.get() > 0 {
            self.note_tried(JobKind::Repair);
        } else if self.repair_due().is_some_and(|due| due <= self.store.world.now()) {
            // What was there to repair when it began is all it could do: the same again would end the same.
            self.note_tried_at(JobKind::Repair, changes);
        }
        self.tell(&tally)
    }

    /// The outcome in words; a failure if something is left.
    pub(super) fn tell(&self, tally: &Tally) -> core::result::Result<String, Halt> {
        if tally.lost.get() > 0 {
            let text = format!(
                "{} slots keep their place: more was lost than the redundancy covers, and what is left of them may be \
                 the only copy",
                tally.lost.get()
            );
            return super::stuck(ErrorKind::Lost, text);
        }
        if tally.homeless.get() > 0 {
            let missing = self.store.slab * tally.homeless.get();
            let text = format!(
                "{missing} found no place: no disk has room that is not in use by the same stripes; add a disk"
            );
            return super::stuck(ErrorKind::NoSpace, text);
        }
        Ok(format!("{} slots are whole again", tally.moved.get()))
    }

    async fn make_sound(&self, task: Task, tally: &Tally, ticket: &Ticket) -> core::result::Result<(), Halt> {
        if task.in_place {
            let moved = self.move_slot(task.segment, task.slot, None, ticket).await?;
            tally.count(moved);
            return Ok(());
        }
        let to = {
            let map = self.store.map.borrow();
            let Some(record) = map.segments.get(&task.segment).map(|found| &found.record) else { return Ok(()) };
            let to = map.copy_home(record, task.slot);
            if to.is_none() && map.is_spare_copy(record, task.slot) {
                // The disk that it was to come to is full, or gone.
                return Ok(());
            }
            to
        };
        self.find_home(task.segment, task.slot, to, tally, ticket).await
    }

    /// Moves a slot to a disk with room: to `to` if that may be.
    pub(in crate::pool) async fn find_home(
        &self,
        segment: SegmentNo,
        slot: usize,
        to: Option<DiskNo>,
        tally: &Tally,
        ticket: &Ticket,
    ) -> core::result::Result<(), Halt> {
        for _ in 0..TRIES {
            let place = || {
                let mut map = self.store.map.borrow_mut();
                let wanted = to.and_then(|_| map.place_slot(segment, slot, to));
                wanted.or_else(|| map.place_slot(segment, slot, None))
            };
            let mut home = place();
            if home.is_none() {
                self.have_read_cache_yield(segment);
            }
            let mut seen = (u64::MAX, Nanos(0));
            while home.is_none() && self.makes_room(segment, &mut seen).await {
                ticket.advance(&self.store, 0)?;
                self.store.log.demand();
                self.store.pause().await;
                home = place();
            }
            let Some(home) = home else {
                if let Moved::Done = self.give_up_copy(segment, slot).await? {
                    tally.count(Moved::Done);
                    return Ok(());
                }
                let gone = !self.store.map.borrow().segments.contains_key(&segment);
                tally.homeless.set(tally.homeless.get() + !gone as u64);
                return Ok(());
            };
            self.promote_spare(home.disk);
            match self.move_slot(segment, slot, Some(home), ticket).await? {
                Moved::Failed => self.store.check_writable()?,
                moved => {
                    tally.count(moved);
                    return Ok(());
                }
            }
        }
        tally.homeless.set(tally.homeless.get() + 1);
        Ok(())
    }

    /// Whether a slab may be free in a moment for a slot that finds no home. What somebody let go may be just what is
    /// looked for; what empties itself looks for nothing; and hollow segments are emptied.
    async fn makes_room(&self, segment: SegmentNo, seen: &mut (u64, Nanos)) -> bool {
        if self.store.map.borrow().is_draining() || self.empties_itself(segment, seen) {
            return true;
        }
        let disks = self.store.map.borrow().disks_to_empty_for(segment);
        !disks.is_empty() && !mutant::active(Mutant::RepairEmptiesNothing) && self.store.compact_on(disks).await
    }

    /// Has a read cache let go of a slab for a slot that finds no home; it is free in a moment.
    fn have_read_cache_yield(&self, segment: SegmentNo) {
        let yields = |map: &mut Map| map.home_in_read_cache(segment).and_then(|no| map.yield_read_cache(no));
        let record = yields(&mut self.store.map.borrow_mut());
        self.store.append_all(record.into_iter().collect());
        self.store.signals.drains.notify();
    }

    /// A hot spare that takes its first slab is one no more.
    fn promote_spare(&self, no: DiskNo) {
        let record = self.store.map.borrow_mut().change_disk(no, |disk| {
            if disk.usage == Usage::HotSpare {
                disk.usage = Usage::AutoSelect;
            }
        });
        if record.is_some() {
            self.store.world.emit(Event::SpareUsed { disk: no });
        }
        self.store.append_changes(record);
        self.store.signals.work.notify();
    }

    /// Does `work` for every one of `tasks`, in their order, several at once; stops at the first that is told to.
    pub(super) async fn each_at_once<T: Copy, F>(
        &self,
        tasks: Vec<T>,
        work: impl Fn(T) -> F,
    ) -> core::result::Result<(), Halt>
    where
        F: Future<Output = core::result::Result<(), Halt>>,
    {
        let next = Cell::new(0);
        let halted = Cell::new(false);
        let worker = async |_: usize| -> core::result::Result<(), Halt> {
            while let (Some(task), false) = (tasks.get(next.get()), halted.get()) {
                next.set(next.get() + 1);
                if let Err(halt) = work(*task).await {
                    halted.set(true);
                    return Err(halt);
                }
            }
            Ok(())
        };
        let ends = join((0..self.moves_at_once()).map(worker)).await;
        ends.into_iter().collect()
    }

    /// Bytes of the strips of one slot that are in use.
    pub(in crate::pool) fn slot_bytes(&self, segment: SegmentNo) -> u64 {
        let map = self.store.map.borrow();
        map.segments.get(&segment).map_or(0, |found| match found.record.owner {
            OWNER_METADATA => 0,
            _ => (found.free.len() - found.free.count()) as u64 * found.record.layout.interleave().0,
        })
    }

    /// Slots to make sound, in their order. `all`: those, too, whose disk may still come back in time.
    fn repair_tasks(&self, all: bool) -> Vec<Task> {
        self.store.map.borrow_mut().see_disks();
        let map = self.store.map.borrow();
        let now = self.store.world.now();
        let mut tasks = Vec::new();
        for segment in map.maybe_lacking() {
            let unsound = map.unsound(&segment.record);
            let left = segment.record.layout.failures() as i64 - unsound as i64;
            for slot in (0..segment.record.slabs.len()).filter(|slot| map.lacks(&segment.record, *slot)) {
                let at = segment.record.slabs[slot];
                if at.is_some_and(|at| map.disks.get(&at.disk).is_some_and(|disk| disk.record.maintenance)) {
                    continue;
                }
                let there = at.is_some_and(|at| self.store.has_disk(at.disk));
                let in_place = there && !map.is_spare_copy(&segment.record, slot);
                if !all && !there && self.slot_due(at, &map).is_none_or(|due| due > now) {
                    continue;
                }
                let data = segment.record.owner != OWNER_METADATA;
                tasks.push(Task { data, left, segment: segment.record.id, slot, in_place });
            }
        }
        tasks.sort_unstable();
        tasks
    }

    fn stale_disks(&self) -> Vec<DiskNo> {
        let members = self.store.members.borrow();
        let map = self.store.map.borrow();
        let rests = |no: &DiskNo| map.disks.get(no).is_some_and(|disk| disk.record.maintenance);
        let stale = members.iter().filter(|(no, member)| member.disk.is_some() && !member.current && !rests(no));
        stale.map(|(no, _)| *no).collect()
    }

    /// Disks that are there and of which nobody knows what they lack.
    fn unknown_disks(&self) -> Vec<DiskNo> {
        let map = self.store.map.borrow();
        let unknown = map.disks.values().filter(|disk| disk.record.away == Away::Unknown && !disk.record.maintenance);
        unknown.map(|disk| disk.record.no).filter(|no| self.store.has_disk(*no)).collect()
    }

    /// Brings the metadata of a disk up to date that missed some; what it lacks of data stays on record.
    async fn readmit(&self, no: DiskNo) -> Result<()> {
        self.note_what_it_lacks(no);
        let losses = self.store.losses(no);
        if !mutant::active(Mutant::ReadmitCopiesNothing) {
            for (segment, at) in self.metadata_on(no) {
                self.copy_pages_in_turns(segment, at).await?;
            }
        }
        if self.store.losses(no) != losses {
            return fail!(NotPossible, "disk {no} went away while it was brought up to date");
        }
        if self.store.disk_flush(no).await.is_err() || self.store.losses(no) != losses {
            return fail!(NotPossible, "disk {no} failed while it was brought up to date");
        }
        if let Some(member) = self.store.members.borrow_mut().get_mut(&no) {
            member.current = member.disk.is_some();
        }
        if let Some(room) = self.store.map.borrow_mut().disks.get_mut(&no) {
            room.current = room.healthy;
        }
        self.store.review_freeze();
        self.store.labels.outdated.set(true);
        self.store.write_labels().await
    }

    /// Where nobody wrote down what a disk lacks, it lacks everything.
    fn note_what_it_lacks(&self, no: DiskNo) {
        let unknown = self.store.map.borrow().disks.get(&no).is_some_and(|disk| disk.record.away != Away::Tracked);
        if !unknown {
            return;
        }
        let mut records = Vec::new();
        let mut map = self.store.map.borrow_mut();
        let lacking: Vec<(SegmentNo, u128)> = map
            .segments
            .values()
            .filter(|segment| segment.record.owner != OWNER_METADATA)
            .map(|segment| (segment.record.id, slots_on(&segment.record, no)))
            .filter(|(_, slots)| *slots != 0)
            .collect();
        records.extend(lacking.into_iter().filter_map(|(segment, slots)| map.mark_missed(segment, slots)));
        records.extend(map.change_disk(no, |disk| disk.away = Away::Tracked));
        drop(map);
        self.store.append_changes(records);
    }

    /// Disks that are there and lack nothing any more are no longer behind.
    fn note_caught_up(&self) {
        let behind: Vec<DiskNo> = {
            let map = self.store.map.borrow();
            map.disks.values().filter(|disk| disk.record.away != Away::No).map(|disk| disk.record.no).collect()
        };
        for no in behind {
            let current = self.store.members.borrow().get(&no).is_some_and(|member| member.current);
            let mut map = self.store.map.borrow_mut();
            let known = map.disks.get(&no).is_some_and(|disk| disk.record.away == Away::Tracked);
            let missed = |segment: &Segment| segment.record.missed & slots_on(&segment.record, no) != 0;
            let lacks = map.maybe_lacking().any(missed);
            if current && known && !lacks {
                let record = map.change_disk(no, |disk| disk.away = Away::No);
                drop(map);
                self.store.append_changes(record);
                self.store.world.emit(Event::DiskCaughtUp { disk: no });
            }
        }
    }

    pub(in crate::pool) fn metadata_on(&self, no: DiskNo) -> Vec<(SegmentNo, SlabAt)> {
        let map = self.store.map.borrow();
        let segments = map.metadata_segments();
        segments
            .flat_map(|found| {
                found.record.slabs.iter().flatten().filter(|at| at.disk == no).map(|at| (found.record.id, *at))
            })
            .collect()
    }

    /// Bytes of the slots that are not sound.
    pub fn unsound_bytes(&self) -> ByteCount {
        ByteCount(self.repair_tasks(true).iter().map(|task| self.slot_bytes(task.segment)).sum())
    }
}

impl Tally {
    fn count(&self, moved: Moved) {
        let counter = match moved {
            Moved::Done | Moved::Moot => &self.moved,
            Moved::Lost => &self.lost,
            Moved::Failed => &self.homeless,
        };
        counter.set(counter.get() + 1);
    }
}
