//! What all virtual disks of a pool share: the members, the map, the log, the metadata pages, and the disk calls that
//! notice when a member fails.
//!
//! Invariants
//! 1. Every disk access of the engine goes through the calls here; a disk that fails a write or a flush, or is gone, is
//!    taken out in the same step.
//! 2. Once a disk was taken out, nothing is acknowledged as durable before the labels of the others say so: an old disk
//!    that comes back can then never pass for a current one.
//! 3. A write counts as durable only when a flush that began after it has ended, whoever asked for that flush; or on a
//!    disk that needs none ([`power`]).
//! 4. No borrow of a `RefCell` lives across an `.await`.

pub mod blame;
pub mod budget;
mod calls;
pub mod checkpoint;
pub mod choice;
pub mod commit;
pub mod compact;
pub mod drain;
pub mod execute;
pub mod flush_turns;
pub mod follow;
pub mod freeze;
pub mod heat;
pub mod labels;
mod landed;
pub mod lanes;
pub mod last_writes;
pub mod limbo;
pub mod log_move;
pub mod log_places;
mod log_read;
pub mod meta;
mod moved;
mod order;
pub mod packs;
mod page_copies;
pub mod page_place;
pub mod pages;
pub mod power;
pub mod proof;
pub mod quorum;
pub mod replay;
pub mod rolled_back;
pub mod shelf;
pub mod spare;
pub mod state;
pub mod streams;
pub mod strips;
mod sums;
pub mod table_pages;
pub mod timeout;
pub mod together;
pub mod tuning;
pub mod turns;

use self::blame::BadBlocks;
use crate::disk_set::DiskSet;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::fail;
use crate::format::Id;
use crate::format::label::DiskPlan;
use crate::format::record::{Away, Record, SlabAt};
use crate::histogram::Histogram;
use crate::io::{Disk, DiskError};
use crate::log::Log;
use crate::mutant::{self, Mutant};
use crate::segment::drain::Former;
use crate::segment::{Map, slots_on};
use crate::sync::Turn;
pub use crate::sync::join;
use crate::units::{BLOCK, ByteCount, DiskNo, DiskOffset, Nanos, SegmentNo};
use crate::world::World;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::Future;
use labels::Labels;
use last_writes::LastWrites;
use pages::Pages;
use state::{Commits, Signals, Traffic};
pub use tuning::Tuning;

/// The shared part of an open pool.
pub struct Store {
    /// Clock, tasks, events.
    pub world: Rc<dyn World>,
    /// The pool.
    pub id: Id,
    /// Bytes of a slab.
    pub slab: ByteCount,
    /// Whether writes are refused.
    pub read_only: bool,
    /// See [`Tuning`].
    pub tuning: Tuning,
    /// The members by number.
    pub members: RefCell<BTreeMap<DiskNo, Member>>,
    /// Configuration and space.
    pub map: RefCell<Map>,
    /// The log.
    pub log: Log,
    /// Checksum pages.
    pub pages: Pages,
    /// Which pages of stripe tables are needed.
    pub tables: table_pages::TablePages,
    /// The tree, and which pages are its.
    pub meta: meta::Meta,
    /// Labels and membership.
    pub labels: Labels,
    /// Whether too few disks are there.
    pub freeze: freeze::Freeze,
    /// One more copy of the log.
    pub follower: follow::Follower,
    /// Where the log goes on, on each of its disks.
    pub log_places: log_places::LogPlaces,
    /// Requests on their way to the disks.
    pub traffic: Traffic,
    /// What is not durable yet.
    pub commits: Commits,
    /// What tasks wait for.
    pub signals: Signals,
    /// Commits that are not durable yet, and what became of their stripes where disks were lost.
    pub limbo: limbo::Limbo,
    /// The background tasks are to end.
    pub stopping: Cell<bool>,
    /// The log may be appended to: the pool has been opened for writing.
    pub writing: Cell<bool>,
    /// See [`packs::PacksSaid`].
    pub packs_said: packs::PacksSaid,
    /// Who lacks slabs, and what is done about it.
    pub compaction: compact::Compaction,
    /// How often ranges of the virtual disks are sought out.
    pub heats: heat::Heats,
    /// Who is told of slabs that are free.
    pub discards: drain::Discards,
    /// Counters of the whole pool.
    pub counters: PoolCounters,
}

/// One disk of the pool.
pub struct Member {
    /// Its identity.
    pub id: Id,
    /// Where its parts lie.
    pub plan: DiskPlan,
    /// The disk; none when it is missing or was taken out.
    pub disk: Option<Rc<dyn Disk>>,
    /// Whether its metadata is up to date.
    pub current: bool,
    /// Whether its metadata was up to date when the pool was opened.
    pub was_current: bool,
    /// The epoch of the last durable label that calls it current.
    pub current_epoch: u64,
    /// The epoch of the last label that is known to be durable on it: with an older one it was put back from a copy. 0:
    /// unknown.
    pub seen_epoch: u64,
    /// Whether it was put back from an older copy, or used elsewhere, and it is not durably on record yet what it
    /// lacks.
    pub out_of_step: bool,
    /// The serial number of its newest label.
    pub label_serial: u64,
    /// Writes that completed, and how many of those a completed flush covers. A flush under way covers nothing yet.
    pub completed: u64,
    /// What was completed when the disk was flushed last.
    pub flushed: u64,
    /// Whose turn it is to flush it, of those who share flushes.
    pub flushing: Rc<Turn>,
    /// Segments with strips on it that were written since the last label that is known to be durable on it was begun,
    /// and the value of `completed` after the last of them. With an older label a disk is known to have been put back
    /// from a copy; a copy with that label may lack all of these, flushed or not.
    pub touched: BTreeMap<SegmentNo, u64>,
    /// What was written to it last.
    pub last: LastWrites,
    /// What came in its place last was not taken for it: an older copy of it, perhaps.
    pub copy_refused: bool,
    /// Since when it has not been there.
    pub gone: Option<Nanos>,
    /// Whether it counted as one that needs no flush when it was to be flushed last; none: not yet, or it is to be
    /// flushed in any case.
    pub protected: Option<bool>,
    /// How often it was taken out.
    pub losses: u64,
    /// Whether its metadata was up to date when it was taken out last.
    pub left_current: bool,
    /// A disk that a person took out for a while.
    pub parked: Option<Rc<dyn Disk>>,
    /// What is held against it of the blocks that it showed to be bad.
    pub bad: BadBlocks,
    /// What it did since the pool was opened.
    pub counters: DiskCounters,
    /// How long its reads and writes took.
    pub latency: Histogram,
    /// How long it had each of them to itself, if it seeks: it is compared with its peers by that then. Who is given
    /// more at once has everybody wait longer, and is not slow for that.
    pub service: Histogram,
    /// When it answered last.
    pub answered: Nanos,
    /// Whether it is an outlier among its peers.
    pub slow: bool,
    /// How many of its requests are overdue.
    pub stalled: Rc<Cell<u32>>,
    /// How many of its requests have not ended, given up or not.
    pub in_flight: Rc<Cell<u32>>,
    /// Whether it was named because it stalls.
    pub named: bool,
    /// Whether it was taken out because there was no room below it.
    pub out_of_room: bool,
}

impl Member {
    /// A member that has done nothing yet. `named_current`: the labels say that its metadata is up to date, which
    /// counts if the disk is there.
    pub fn new(id: Id, plan: DiskPlan, disk: Option<Rc<dyn Disk>>, named_current: bool) -> Member {
        Member {
            id,
            plan,
            current: named_current && disk.is_some(),
            was_current: named_current,
            current_epoch: 0,
            seen_epoch: 0,
            out_of_step: false,
            label_serial: 1,
            disk,
            completed: 0,
            flushed: 0,
            flushing: Rc::default(),
            touched: BTreeMap::new(),
            last: LastWrites::default(),
            copy_refused: false,
            gone: None,
            protected: None,
            losses: 0,
            left_current: false,
            parked: None,
            bad: BadBlocks::default(),
            counters: DiskCounters::default(),
            latency: Histogram::default(),
            service: Histogram::default(),
            answered: Nanos(0),
            slow: false,
            stalled: Rc::default(),
            in_flight: Rc::default(),
            named: false,
            out_of_room: false,
        }
    }
}

/// What a disk did since the pool was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskCounters {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Calls to read.
    pub reads: u64,
    /// Calls to write.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Flushes that were left out, for the disk needs none.
    pub spared: u64,
    /// Bytes of the log among those written, moves of it included.
    pub logged: u64,
    /// Blocks that could not be read or failed their checksum.
    pub bad_blocks: u64,
    /// Blocks that were reconstructed and rewritten.
    pub healed_blocks: u64,
    /// How often it was taken out because a write or a flush failed.
    pub failures: u64,
    /// Reads and writes under way.
    pub in_flight: u32,
    /// Reads that took so long that they were answered from other disks.
    pub overdue: u64,
    /// Nanoseconds spent in reads and writes, added up.
    pub busy: u64,
    /// The slowest read or write, in nanoseconds.
    pub slowest: u64,
}

/// What the pool did since it was opened.
#[derive(Default)]
pub struct PoolCounters {
    /// Log batches written.
    pub batches: Cell<u64>,
    /// Log bytes written, one copy.
    pub log_bytes: Cell<u64>,
    /// Checkpoints taken.
    pub checkpoints: Cell<u64>,
    /// Those of them that had all of the configuration, for the tree could not take it.
    pub whole_checkpoints: Cell<u64>,
    /// Metadata copies found damaged and rewritten.
    pub metadata_healed: Cell<u64>,
}

impl Store {
    /// The numbers of the disks with completed writes that no flush has made durable yet; a flush may be under way.
    pub fn unflushed(&self) -> Vec<DiskNo> {
        let members = self.members.borrow();
        members
            .iter()
            .filter(|(_, member)| member.flushed < member.completed && member.disk.is_some())
            .map(|(no, _)| *no)
            .collect()
    }

    /// Goes on without disk `no`, which was lost for this reason.
    pub fn disk_lost(&self, no: DiskNo, reason: &str) {
        self.do_without(no, Event::DiskLost { disk: no, reason: String::from(reason) });
    }

    /// Goes on without disk `no`, and tells of it by this event.
    pub fn do_without(&self, no: DiskNo, event: Event) {
        let mut members = self.members.borrow_mut();
        let Some(member) = members.get_mut(&no) else { return };
        let Some(disk) = member.disk.take() else { return };
        member.left_current = core::mem::take(&mut member.current);
        member.losses += 1;
        self.commits.comings_and_goings.set(self.commits.comings_and_goings.get() + 1);
        member.gone = Some(self.world.now());
        member.last.lose(member.left_current);
        let mut touched: Vec<SegmentNo> = core::mem::take(&mut member.touched).into_keys().collect();
        if mutant::active(Mutant::TouchedForgotten) {
            touched.clear();
        }
        drop(members);
        [&self.traffic.read_timeout, &self.traffic.write_timeout].iter().for_each(|timeout| timeout.lost(&disk));
        self.labels.strike(no);
        if let Some(room) = self.map.borrow_mut().disks.get_mut(&no) {
            (room.healthy, room.current) = (false, false);
        }
        if self.writing.get() {
            self.note_away(no, Away::Tracked, &touched);
        }
        self.labels.outdated.set(true);
        self.world.emit(event);
        self.review_freeze();
        self.log.demand();
        self.log.pressure.notify();
        self.changed();
    }

    /// Puts on record that nobody knows what disk `no` lacks, whatever was known before.
    pub fn note_unknown(&self, no: DiskNo) {
        let record = self.map.borrow_mut().change_disk(no, |disk| disk.away = Away::Unknown);
        self.append_changes(record);
        self.set_out_of_step(no, true);
    }

    /// Notes whether disk `no` is out of step: the labels say so until what it lacks is durably on record.
    pub fn set_out_of_step(&self, no: DiskNo, out_of_step: bool) {
        if let Some(member) = self.members.borrow_mut().get_mut(&no) {
            member.out_of_step = out_of_step;
            member.seen_epoch = 0;
        }
        self.labels.outdated.set(true);
    }

    /// Puts on record that disk `no` is behind from now on, and lacks strips of these segments.
    pub fn note_away(&self, no: DiskNo, away: Away, segments: &[SegmentNo]) {
        let record = self.map.borrow_mut().change_disk(no, |disk| {
            if disk.away == Away::No {
                disk.away = away;
            }
        });
        self.append_changes(record);
        for id in segments {
            let slots = self.map.borrow().segments.get(id).map_or(0, |segment| slots_on(&segment.record, no));
            self.note_missed(*id, slots);
        }
    }

    /// Puts on record that these slots (bits) of a segment lack strips.
    pub fn note_missed(&self, segment: SegmentNo, slots: u128) {
        if slots == 0 {
            return;
        }
        let record = self.map.borrow_mut().mark_missed(segment, slots);
        if let Some(record) = record {
            // A repair that runs just now may be past it.
            self.changed();
            self.limbo.noted(segment, self.log.append(&record));
        }
    }

    /// Strips of `segment` were written to disk `no`.
    pub fn touched(&self, no: DiskNo, segment: SegmentNo) {
        if let Some(member) = self.members.borrow_mut().get_mut(&no) {
            let completed = member.completed;
            member.touched.insert(segment, completed);
        }
    }

    /// Something is possible, or necessary, that was not.
    pub fn changed(&self) {
        self.signals.changes.set(self.signals.changes.get() + 1);
        self.signals.packed.notify();
        self.signals.work.notify();
    }

    /// Whether disk `no` can be used now.
    pub fn has_disk(&self, no: DiskNo) -> bool {
        self.members.borrow().get(&no).is_some_and(|member| member.disk.is_some())
    }

    /// Whether disk `no` can be used now, and its metadata is up to date.
    pub fn is_current(&self, no: DiskNo) -> bool {
        self.members.borrow().get(&no).is_some_and(|member| member.disk.is_some() && member.current)
    }

    /// Where block `block` of a slab lies on its disk.
    pub fn slab_offset(&self, at: SlabAt, block: u64) -> DiskOffset {
        let members = self.members.borrow();
        let plan = &members[&at.disk].plan;
        plan.data_at + self.slab * at.slab as u64 + ByteCount(block * BLOCK)
    }

    /// The bits of the disks that are there.
    pub fn present_set(&self) -> DiskSet {
        let members = self.members.borrow();
        members.iter().filter(|(_, member)| member.disk.is_some()).map(|(no, _)| *no).collect()
    }

    /// The bits of the disks that are there and up to date.
    pub fn current_set(&self) -> DiskSet {
        let members = self.members.borrow();
        let current = members.iter().filter(|(_, member)| member.current && member.disk.is_some());
        current.map(|(no, _)| *no).collect()
    }

    /// Appends configuration records to the log, in order, and keeps the checksum pages in step with new segments and
    /// with those that go.
    pub fn append_all(&self, records: Vec<Record<'static>>) {
        for record in records {
            let seq = self.log.append(&record);
            match &record {
                Record::Segment(segment) => self.pages.add_blank(segment.id, segment.sheet.count),
                Record::SegmentDrop(id) => {
                    self.pages.forget(*id);
                    self.map.borrow_mut().is_dropped_at(Former::Segment(*id), seq);
                }
                Record::TableDrop(id) => self.map.borrow_mut().is_dropped_at(Former::Table(*id), seq),
                Record::ReadCache(cache) => self.map.borrow_mut().is_dropped_at(Former::ReadCache(cache.vdisk), seq),
                _ => {}
            }
        }
    }

    /// Appends records that change what exists already; segments among them keep their checksum pages.
    pub fn append_changes(&self, records: impl IntoIterator<Item = Record<'static>>) {
        for record in records {
            self.log.append(&record);
        }
    }

    /// The pool accepts no more writes.
    pub fn fail(&self, error: Error) {
        if error.kind == ErrorKind::Frozen {
            // It is being closed while disks are missing: nobody has failed.
            return;
        }
        if self.log.failure().is_none() {
            self.world.emit(Event::PoolFailed { reason: error.context.clone() });
        }
        self.log.fail(error);
        self.signals.room.notify();
        self.signals.work.notify();
        self.signals.packed.notify();
    }

    /// Refuses changes of the configuration while the pool is read-only, has failed, or is frozen.
    pub fn check_changeable(&self) -> Result<()> {
        self.check_writable()?;
        match self.frozen() {
            Some(reason) => Err(freeze::frozen(reason)),
            None => Ok(()),
        }
    }

    /// Refuses changes to a pool that is read-only or has failed.
    pub fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return fail!(ReadOnly, "the pool was opened read-only");
        }
        match self.log.failure() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Adds to the buffered bytes (or takes from them) and tells who waits for room.
    pub fn buffered_changed(&self, by: i64) {
        match by < 0 {
            true => self.traffic.budgets.buffers.give(by.unsigned_abs()),
            false => self.traffic.budgets.buffers.add(by as u64),
        }
        if by < 0 {
            self.signals.room.notify();
        }
    }

    /// Adds to the bytes of sealed stripes (or takes from them).
    pub fn in_flight_changed(&self, by: i64) {
        self.commits
            .in_flight
            .set(self.commits.in_flight.get().checked_add_signed(by).expect("sealed stripes are counted exactly"));
    }

    /// How often disk `no` was lost: what was written to it before the last time, and not flushed, counts for nothing.
    pub fn losses(&self, no: DiskNo) -> u64 {
        self.members.borrow().get(&no).map_or(u64::MAX, |member| member.losses)
    }

    /// How often disks were lost, all together.
    pub fn losses_of_all(&self) -> u64 {
        self.members.borrow().values().map(|member| member.losses).sum()
    }

    fn disk(&self, no: DiskNo) -> core::result::Result<Rc<dyn Disk>, DiskError> {
        let members = self.members.borrow();
        members.get(&no).and_then(|member| member.disk.clone()).ok_or(DiskError::Gone)
    }

    async fn timed<T>(&self, no: DiskNo, seeks: bool, io: impl Future<Output = T>) -> T {
        let start = self.world.now();
        self.count(no, |counters| counters.in_flight += 1);
        let result = io.await;
        let now = self.world.now();
        let took = now.since(start);
        self.count(no, |counters| {
            counters.in_flight -= 1;
            counters.busy += took.0;
            counters.slowest = counters.slowest.max(took.0);
        });
        let add = |member: &mut Member| {
            let before = core::mem::replace(&mut member.answered, now);
            if seeks && !mutant::active(Mutant::QueueIsSlow) {
                member.service.add(now.since(start.max(before)));
            }
            member.latency.add(took)
        };
        if self.members.borrow_mut().get_mut(&no).is_some_and(add) {
            self.judge_latency(no);
        }
        result
    }

    /// Takes note that so many bytes of the log were written to disk `no`.
    fn count_logged(&self, no: DiskNo, len: usize) {
        self.count(no, |counters| counters.logged += len as u64);
    }

    fn count(&self, no: DiskNo, add: impl FnOnce(&mut DiskCounters)) {
        if let Some(member) = self.members.borrow_mut().get_mut(&no) {
            add(&mut member.counters);
        }
    }
}

/// The error of data beyond the redundancy.
pub fn lost(context: String) -> Error {
    Error::new(ErrorKind::Lost, context)
}
