//! Where on each of its disks the log goes on: where the head will be.
//!
//! When a batch comes, a disk that spins has passed the end of the one before. Written there, it waits for a
//! revolution; a client that waits for each of its writes gets no more of them than the disk has revolutions. So a copy
//! of a batch begins as much further on as passed under the head since the last one was durable there, and passes until
//! the disk begins to write. Disks spin each for themselves: each has its copy where it suits it, up to [`spread`]
//! behind the batch's position.
//!
//! How long a disk takes to begin is learnt: a copy that took a revolution more than it should came too late, and the
//! next ones begin further on; as long as none does, they begin less far.
//!
//! What is passed over is lost until the next round of the ring, and when much of the ring is in use, what is in it has
//! to leave it. So nothing is passed over where records alone fill more than an eighth of the ring in a second, else no
//! more than makes it that, and nothing when more than 7 of 16 parts are in use ([`crate::log::Log::take`]).
//!
//! Invariants
//! 1. On each disk copies lie in the order of their batches and do not overlap, each in the round of its position, and
//!    at most [`spread`] behind it.
//! 2. A position is at most [`spread`] behind the end of the batch before, or the start of the next round.
//! 3. The labels of all disks say that copies may lie behind their positions, and positions behind the batch before,
//!    before the first does ([`crate::format::FEATURE_SPREAD`]).
//! 4. What is passed over is bounded, whatever clients do.
//! 5. A copy that is written again, for the batch was cut short, lies where it lay.

use super::Store;
use crate::format::batch::spread;
use crate::log::BatchInfo;
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, DiskNo, Nanos};
use alloc::collections::BTreeMap;
use core::cell::{Cell, RefCell};
use core::ops::Range;

/// Bytes that pass under a head in 2^20 ns: a little more than under the fastest (285 MB/s). Under a slower one less
/// passes, and the copy is waited for that much longer.
const PASSES: u64 = 296 << 10;
/// A head is lost sight of so long after it wrote: less than half a revolution of most disks.
const SEEN_FOR: Nanos = Nanos::millis(4);
/// Nanoseconds that a byte takes to a disk, which begins when it has all of them: SATA has 550 MB/s.
const WIRE: u64 = 2;
/// Copies up to this length cross it in no time that counts.
const SHORT: u64 = 64 << 10;
/// Longer ones take longer to be written than a revolution, and what is passed over for them is dear: they begin where
/// they would if they were short.
const LONG: u64 = 5 << 18;
/// How long a disk is thought to take to begin beside that, at first, at least and at most.
const LEAD: Nanos = Nanos(250_000);
const LEAD_MIN: Nanos = Nanos(60_000);
const LEAD_MAX: Nanos = Nanos::millis(4);
/// Longer copies teach nothing of how long a disk takes to begin: under slow heads they may take a revolution more
/// although they began in time.
const TEACHES: u64 = 256 << 10;
/// Nanoseconds that a byte takes under the slowest heads.
const SLOWEST: u64 = 12;
/// A copy that took so much longer than it should came too late: disks turn in 4 ms and more.
const LATE: Nanos = Nanos::millis(2);
/// Copies in time after which one is tried that begins less far on, and the most of them.
const PATIENCE: u32 = 64;
const PATIENCE_MAX: u32 = 1 << 14;
/// A disk of which even the longest lead is too short is left alone for so long.
const GIVEN_UP_FOR: Nanos = Nanos::secs(60);
/// The calls that make a copy durable: a write and a flush.
const CALLS: u64 = 2;

/// Where the log goes on, on each disk that carries it.
#[derive(Default)]
pub struct LogPlaces {
    heads: RefCell<BTreeMap<DiskNo, Head>>,
    /// Bytes that the log may go on by in a hurry, below zero where it went on by more, and when that was.
    allowance: Cell<(i64, Nanos)>,
    /// Bytes that were passed over so far.
    passed: Cell<u64>,
}

/// Where the head of a disk is, as far as the log knows, and how long it takes to begin.
struct Head {
    /// Where the disk's last copy of a batch lies, counted through all rounds of the ring.
    place: Range<u64>,
    /// That batch's number.
    number: u64,
    /// When it was durable; none: that is not known.
    at: Option<Nanos>,
    /// The disk's calls until then.
    calls: u64,
    lead: Lead,
}

/// How long before its place comes under the head a disk has to be told.
struct Lead {
    lead: Nanos,
    /// The shortest that was long enough for many copies.
    proven: Nanos,
    /// Copies with this one that were in time.
    in_time: u32,
    /// After so many a shorter one is tried.
    patience: u32,
    /// The last so many copies were late.
    late: u32,
    /// It is not tried before.
    given_up: Nanos,
}

impl Head {
    fn new() -> Head {
        Head { place: 0..0, number: 0, at: None, calls: 0, lead: Lead::new() }
    }
}

/// A batch's places on the disks that carry the log.
#[derive(Default)]
pub(super) struct Planned {
    /// Where its position is wished to be.
    pub position: u64,
    /// Where copies are wished to begin, of disks whose heads are seen.
    on: BTreeMap<DiskNo, u64>,
}

impl Planned {
    /// Whether any copy is to begin further on than it must.
    pub fn is_any(&self) -> bool {
        !self.on.is_empty()
    }
}

impl LogPlaces {
    /// Bytes that were passed over since the pool was opened.
    pub fn passed(&self) -> u64 {
        self.passed.get()
    }

    /// The last copy of disk `no` is that of batch `number`, and lies at `place`, or is about to be written there,
    /// counted through all rounds of the ring.
    pub(super) fn lies(&self, no: DiskNo, number: u64, place: Range<u64>) {
        let mut heads = self.heads.borrow_mut();
        let head = heads.entry(no).or_insert_with(Head::new);
        (head.place, head.number, head.at) = (place, number, None);
    }

    /// Where the last copy of disk `no` ends, if that was ever told.
    pub(super) fn end_on(&self, no: DiskNo) -> Option<u64> {
        self.heads.borrow().get(&no).map(|head| head.place.end)
    }

    /// Where disk `no` has its copy of batch `number` already, if that is its last one.
    fn has(&self, no: DiskNo, number: u64) -> Option<u64> {
        let heads = self.heads.borrow();
        let head = heads.get(&no).filter(|head| head.number == number && !mutant::active(Mutant::CopyBehindItself))?;
        Some(head.place.start)
    }

    /// The log is copied to disk `no`, each batch to its position.
    pub(super) fn forget(&self, no: DiskNo) {
        self.heads.borrow_mut().remove(&no);
    }

    /// The largest of those ends, of disks `on`.
    pub(super) fn last_end(&self, on: &[DiskNo]) -> u64 {
        on.iter().filter_map(|no| self.end_on(*no)).max().unwrap_or(0)
    }

    /// A batch of `len` bytes begins `passed` behind the end of the one before.
    pub(super) fn gone_on(&self, passed: u64, len: u64, ring: u64) {
        let (left, since) = self.allowance.get();
        let least = -((ring / 8) as i64);
        self.allowance.set(((left - (passed + len) as i64).max(least), since));
        self.passed.set(self.passed.get() + passed);
    }

    /// Bytes that may be passed over now.
    fn allowed(&self, ring: u64, now: Nanos) -> u64 {
        let (left, since) = self.allowance.get();
        let most = (ring / 8) as i64;
        let more = now.since(since).0.min(2_000_000_000) as i128 * most as i128 / 1_000_000_000;
        let left = (left as i128 + more).min(most as i128) as i64;
        self.allowance.set((left, now));
        left.max(0) as u64
    }
}

impl Lead {
    fn new() -> Lead {
        Lead { lead: LEAD, proven: LEAD, in_time: 0, patience: PATIENCE, late: 0, given_up: Nanos(0) }
    }

    /// A copy that was to begin after `lead` took `took`, the transfer not counted.
    fn learn(&mut self, took: Nanos, now: Nanos) {
        // Where less passes under the head than thought, the place comes later: two and a half times at most.
        if took <= Nanos(self.lead.0 * 5 / 2) + LATE {
            (self.late, self.in_time) = (0, self.in_time + 1);
            if self.in_time >= self.patience {
                (self.proven, self.in_time) = (self.lead, 0);
                self.lead = Nanos(self.lead.0 / 8 * 7).max(LEAD_MIN);
            }
            return;
        }
        (self.late, self.in_time) = (self.late + 1, 0);
        if self.lead < self.proven {
            (self.lead, self.patience) = (self.proven, (self.patience * 2).min(PATIENCE_MAX));
        } else if self.late > 1 && !mutant::active(Mutant::LeadNeverGrows) {
            // One that was late may have had other reasons; two hardly.
            self.lead = Nanos(self.lead.0 / 4 * if self.late > 3 { 8 } else { 5 });
            (self.proven, self.patience) = (self.lead, PATIENCE);
            if self.lead > LEAD_MAX {
                *self = Lead { given_up: now + GIVEN_UP_FOR, ..Lead::new() };
            }
        }
    }
}

impl Store {
    /// Where the copies of the next batch, of `len` bytes, are to begin, and it itself: so that no disk waits for a
    /// revolution.
    pub(super) fn plan_places(&self, len: u64) -> Planned {
        let (now, ring) = (self.world.now(), self.ring_len());
        let loggers = self.loggers();
        let heads = self.log_places.heads.borrow();
        let counts = len <= LONG && !mutant::active(Mutant::LongCopiesBeginAtOnce);
        let wire = Nanos(if counts { len.saturating_sub(SHORT) * WIRE } else { 0 });
        let seen = loggers.iter().filter_map(|no| {
            let head = heads.get(no)?;
            let since = now.since(head.at?);
            let seen = since < SEEN_FOR && now >= head.lead.given_up && self.is_undisturbed(*no, head);
            let ahead = (((since + head.lead.lead + wire).0 as u128 * PASSES as u128) >> 20) as u64;
            seen.then(|| (*no, self.log.earliest(Some(head.place.end)) + ahead.next_multiple_of(BLOCK)))
        });
        let on: BTreeMap<DiskNo, u64> = seen.collect();
        let first = self.log.earliest(None);
        let most = spread(ring).min(self.log_places.allowed(ring, now)) / BLOCK * BLOCK;
        // Where that is less far than any copy is to begin, copies lie further behind it.
        if mutant::active(Mutant::LogLagsBehindHeads) && on.values().min().is_some_and(|place| *place > first + most) {
            return Planned { position: first, on: BTreeMap::new() };
        }
        let position = on.values().min().map_or(first, |place| (*place).min(first + most));
        Planned { position, on }
    }

    /// Where the copy of a batch of `len` bytes is to be written on disk `no`: one that is written again, where it was.
    pub(super) fn place_on(&self, no: DiskNo, batch: &BatchInfo, len: u64, planned: &Planned) -> u64 {
        let at = self.log_places.has(no, batch.number).unwrap_or_else(|| self.choose_place(no, batch, len, planned));
        self.log_places.lies(no, batch.number, at..at + len);
        at
    }

    fn choose_place(&self, no: DiskNo, batch: &BatchInfo, len: u64, planned: &Planned) -> u64 {
        let (ring, position) = (self.ring_len(), batch.position);
        let end = self.log_places.end_on(no).filter(|_| !mutant::active(Mutant::CopiesOverlap));
        let first = end.unwrap_or(0).max(position);
        if !self.is_spread_announced() {
            return first;
        }
        let reach = if mutant::active(Mutant::CopiesTooFar) { 2 * spread(ring) } else { spread(ring) };
        let round = position - position % ring + ring;
        let round = if mutant::active(Mutant::CopiesLeaveTheRound) { round + reach } else { round };
        let last = (position + reach).min(round - len);
        planned.on.get(&no).map_or(first, |at| (*at).min(last).max(first))
    }

    /// The copy that was written to disk `no` last, at `place`, is durable; that was begun at `began`.
    pub(super) fn copy_durable(&self, no: DiskNo, place: Range<u64>, planned: &Planned, began: Nanos) {
        let (now, (calls, in_flight)) = (self.world.now(), self.calls_of(no));
        let mut heads = self.log_places.heads.borrow_mut();
        let Some(head) = heads.get_mut(&no) else { return };
        // What others asked of the disk meanwhile may have taken its time.
        let alone = (calls, in_flight) == (head.calls + CALLS, 0);
        (head.at, head.calls) = (Some(now), calls);
        let teaches = place.end - place.start <= TEACHES;
        if alone && teaches && planned.on.get(&no) == Some(&place.start) {
            let transfer = Nanos((place.end - place.start) * SLOWEST);
            head.lead.learn(now.since(began).since(transfer), now);
        }
    }

    /// Whether the head of disk `no` is where the log left it.
    fn is_undisturbed(&self, no: DiskNo, head: &Head) -> bool {
        let waits = self.is_rotational(no) && !self.power_of(no).is_protected();
        waits && self.calls_of(no) == (head.calls, 0)
    }

    /// The calls of disk `no` that ended, and those in flight.
    fn calls_of(&self, no: DiskNo) -> (u64, u32) {
        let members = self.members.borrow();
        members.get(&no).map_or((0, 0), |member| {
            let counters = &member.counters;
            (counters.reads + counters.writes + counters.flushes, member.in_flight.get())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: u64 = 8_333_333;

    /// Copies on a disk that takes `needs` to begin; how many were late.
    fn copies(lead: &mut Lead, needs: Nanos, count: u32) -> u32 {
        (0..count).map(|_| copy(lead, needs) as u32).sum()
    }

    fn copy(lead: &mut Lead, needs: Nanos) -> bool {
        let late = lead.lead < needs;
        lead.learn(Nanos(lead.lead.0 + if late { TURN } else { 0 }), Nanos(1));
        late
    }

    #[test]
    fn what_a_disk_takes_to_begin_is_found_and_hardly_ever_missed() {
        for needs in [70_000, 130_000, 400_000, 1_500_000].map(Nanos) {
            let mut lead = Lead::new();
            assert!(copies(&mut lead, needs, 2_000) < 40, "{needs:?}");
            assert!(copies(&mut lead, needs, 10_000) < 20, "{needs:?}: it is known");
            assert!(lead.proven >= needs && lead.proven.0 < needs.0 * 3 / 2, "{needs:?}: {:?}", lead.proven);
        }
    }

    #[test]
    fn a_disk_that_is_never_in_time_is_left_alone() {
        let mut lead = Lead::new();
        copies(&mut lead, Nanos::millis(20), 20);
        assert!(lead.given_up > GIVEN_UP_FOR);
    }

    #[test]
    fn the_log_goes_on_by_no_more_than_is_allowed() {
        const RING: u64 = 8 << 20;
        let places = LogPlaces::default();
        let mut passed = 0;
        for nth in 0..1000 {
            let allowed = places.allowed(RING, Nanos::millis(10 * nth)).min(64 << 10);
            places.gone_on(allowed, 4096, RING);
            passed += allowed;
        }
        assert!(passed <= RING / 8 * 11, "10 s: {passed}");
        assert!(passed > RING / 8 * 5, "what records leave of it is used");
        (0..100).for_each(|_| places.gone_on(0, 1 << 20, RING));
        assert_eq!(places.allowed(RING, Nanos::millis(10_500)), 0, "records alone fill it");
    }
}
