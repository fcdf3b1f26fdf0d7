//! The pool's one log, in memory: what waits to be written, what is durable, where the live part of the ring begins.
//! The task that writes it is in [`crate::store::commit`], the reader after a crash in [`crate::store::replay`].
//!
//! Invariants
//! 1. Records get consecutive sequence numbers in the order they are appended and become durable in that order.
//! 2. One batch is written at a time; the next is not begun before it is durable.
//! 3. The ring never overwrites what lies between `tail` and `head`: producers reserve room first, and landed data
//!    leaves enough for the commits that retire it.
//! 4. The log always keeps room for what frees it. Live landed data is at most half of the ring. From three quarters on
//!    no batch is written but those that the keeper asks for ([`Log::let_through`]): a checkpoint, and the oldest
//!    landed data, which it moves to the head. Records that nobody reserved room for (disks come and go, jobs begin and
//!    end) wait meanwhile and share a batch, where each of them would else take a block.
//! 5. No batch is longer than the labels say from some batch on, and so no record is: landed data comes in pieces.

mod lengths;
mod room;
mod touched;

use crate::disk_set::DiskSet;
use crate::error::{Error, Result};
use crate::format::batch::{BATCH_HEAD, batch_len, spread};
use crate::format::label::{Anchor, BatchBound};
use crate::format::record::{OWNER_METADATA, Record};
use crate::limits::{BATCH_MAX, COLUMNS_MAX, INTERLEAVE_MAX, SLOTS_MAX};
use crate::sync::Signal;
use crate::units::{BLOCK, SegmentNo};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::cell::RefCell;

/// Bytes of the longest record that comes in one piece: checksums of all slots of a stripe, or units of a packed one,
/// each with 16 bytes.
const RECORD_MAX: u64 = {
    let blocks = INTERLEAVE_MAX.0 / BLOCK;
    let (sums, units) = (SLOTS_MAX as u64 * blocks * 4, COLUMNS_MAX as u64 * blocks * 16);
    4096 + if sums > units { sums } else { units }
};
const _: () = assert!(RECORD_MAX + BLOCK <= BATCH_MAX.0);

pub use room::Room;
pub use touched::Touched;

/// The log, in memory.
pub struct Log {
    state: RefCell<State>,
    /// There is something to write, or a reason to write it now.
    pub wake: Signal,
    /// More is durable, the tail moved, or the log failed.
    pub moved: Signal,
    /// Something is getting scarce: log, memory or stripes.
    pub pressure: Signal,
}

struct State {
    ring: u64,
    /// The most bytes of a batch in the ring; 0: an eighth of it, or one record.
    batch_max: u64,
    lineage: u64,
    /// Where the next batch goes, counted through all rounds of the ring.
    head: u64,
    /// Where the last copy of a batch ends, on whatever disk: no copy of the next one begins before. At most the most
    /// that copies lie behind their batches more than `head`.
    copies_end: u64,
    /// The oldest batch still needed.
    tail: u64,
    number: u64,
    chain: u32,
    next_seq: u64,
    /// Every record below this is durable.
    durable: u64,
    /// Somebody waits for every record below this.
    demanded: u64,
    pending: VecDeque<Vec<u8>>,
    pending_len: u64,
    pending_peak: u64,
    reserved: u64,
    /// The batches from the tail to the head.
    batches: VecDeque<BatchInfo>,
    /// A timer runs that will ask for a commit.
    timer: bool,
    /// Batches may take the room that is kept for the keeper.
    lets_through: bool,
    failed: Option<Error>,
    /// What records said that stands in the tree, since somebody took note of it.
    touched: BTreeSet<Touched>,
    /// Records that say on which disks a metadata segment lies: of each the last durable one, and all later
    /// ones.
    homes: Vec<(u64, SegmentNo, DiskSet)>,
}

/// What is remembered of a batch in the ring.
#[derive(Clone, Copy, Debug)]
pub struct BatchInfo {
    /// The sequence number of its first record.
    pub first_seq: u64,
    /// Where it lies, counted through all rounds.
    pub position: u64,
    /// Its number.
    pub number: u64,
    /// The CRC of the batch before it.
    pub chain: u32,
}

/// Batches that lie side by side in the ring.
pub struct Run {
    /// Each of them.
    pub batches: Vec<BatchInfo>,
    /// Where the first one begins, counted through all rounds.
    pub start: u64,
    /// Where the last one ends, or, where it is the last of its round, where the round does.
    pub end: u64,
}

/// The records of the next batch.
pub struct Taken {
    /// Where it goes.
    pub info: BatchInfo,
    /// The records, encoded.
    pub payload: Vec<u8>,
    /// How many.
    pub records: u32,
}

impl Log {
    /// A log whose ring has `ring` bytes, empty from the anchor's tail on, and that is written in batches of at most
    /// `batch_max` bytes.
    pub fn new(ring: u64, batch_max: u64, anchor: &Anchor) -> Log {
        let state = State {
            ring,
            batch_max,
            lineage: 0,
            head: anchor.log_tail,
            copies_end: anchor.log_tail,
            tail: anchor.log_tail,
            number: anchor.log_tail_batch,
            chain: anchor.log_chain,
            next_seq: anchor.log_seq,
            durable: anchor.log_seq,
            demanded: 0,
            pending: VecDeque::new(),
            pending_len: 0,
            pending_peak: 0,
            reserved: 0,
            batches: VecDeque::new(),
            timer: false,
            // Until there is a keeper.
            lets_through: true,
            failed: None,
            touched: BTreeSet::new(),
            homes: Vec::new(),
        };
        Log { state: RefCell::new(state), wake: Signal::new(), moved: Signal::new(), pressure: Signal::new() }
    }

    /// Takes over where a replay ended: the batches found, the CRC of the last, the sequence number after it, where
    /// the last copy of any ends.
    pub fn resume(
        &self,
        batches: VecDeque<BatchInfo>,
        head: u64,
        number: u64,
        chain: u32,
        next_seq: u64,
        copies_end: u64,
    ) {
        let mut state = self.state.borrow_mut();
        (state.batches, state.head, state.number, state.chain) = (batches, head, number, chain);
        state.copies_end = copies_end;
        (state.next_seq, state.durable) = (next_seq, next_seq);
    }

    /// Appends a record and returns its sequence number. It is durable when [`Log::durable`] says so.
    pub fn append(&self, record: &Record<'_>) -> u64 {
        let mut state = self.state.borrow_mut();
        let mut bytes = Vec::with_capacity(record.encoded_len());
        record.encode(&mut bytes);
        assert!(bytes.len() as u64 <= state.payload_max(), "a record that no batch takes");
        state.pending_len += bytes.len() as u64;
        state.pending_peak = state.pending_peak.max(state.pending_len);
        state.pending.push_back(bytes);
        state.next_seq += 1;
        state.touched.extend(Touched::by(record));
        if let Record::Segment(segment) = record
            && segment.owner == OWNER_METADATA
        {
            let seq = state.next_seq - 1;
            state.homes.push((seq, segment.id, segment.disks()));
        }
        drop(state);
        self.wake.notify();
        self.seq() - 1
    }

    /// The disks of metadata segments as an opening may find them in the log, if the power goes now.
    pub fn homes(&self) -> Vec<(SegmentNo, DiskSet)> {
        self.state.borrow().homes.iter().map(|(_, segment, on)| (*segment, *on)).collect()
    }

    /// Takes note that `what` is to be written to the tree.
    pub fn touch(&self, what: Option<Touched>) {
        self.state.borrow_mut().touched.extend(what);
    }

    /// What records said something of since this was asked last.
    pub fn take_touched(&self) -> BTreeSet<Touched> {
        core::mem::take(&mut self.state.borrow_mut().touched)
    }

    /// Whether a record said something of `what` since [`Log::take_touched`].
    pub fn is_touched(&self, what: Touched) -> bool {
        self.state.borrow().touched.contains(&what)
    }

    /// Puts another record in the place of record `seq`, which must still be pending.
    pub fn replace(&self, seq: u64, record: &Record<'_>) {
        let mut bytes = Vec::with_capacity(record.encoded_len());
        record.encode(&mut bytes);
        let mut state = self.state.borrow_mut();
        let at = seq.checked_sub(state.durable).expect("a durable record is never replaced") as usize;
        let now = bytes.len() as u64;
        let before = core::mem::replace(&mut state.pending[at], bytes).len() as u64;
        state.pending_len = state.pending_len - before + now;
    }

    /// The sequence number of the next record.
    pub fn seq(&self) -> u64 {
        self.state.borrow().next_seq
    }

    /// Every record below this is durable.
    pub fn durable(&self) -> u64 {
        self.state.borrow().durable
    }

    /// The number of the next batch.
    pub fn batch_number(&self) -> u64 {
        self.state.borrow().number
    }

    /// The random number of the opening that writes this log.
    pub fn lineage(&self) -> u64 {
        self.state.borrow().lineage
    }

    /// From now on the opening with this random number writes.
    pub fn belongs_to(&self, lineage: u64) {
        self.state.borrow_mut().lineage = lineage;
    }

    /// Waits until every record below `seq` is durable, and asks for it now.
    pub async fn make_durable(&self, seq: u64) -> Result<()> {
        self.make_durable_unless(seq, || Ok(())).await
    }

    /// Makes the log durable up to `seq`, unless `admitted` refuses while that waits.
    pub async fn make_durable_unless(&self, seq: u64, admitted: impl Fn() -> Result<()>) -> Result<()> {
        loop {
            {
                let mut state = self.state.borrow_mut();
                if state.durable >= seq {
                    return Ok(());
                }
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
                state.demanded = state.demanded.max(seq);
            }
            admitted()?;
            let moved = self.moved.changed();
            self.wake.notify();
            moved.await;
        }
    }

    /// Waits until `len` more bytes may be logged; pair with [`Log::unreserve`] once they have been appended.
    pub async fn reserve(&self, len: u64, room: Room) -> Result<()> {
        self.reserve_unless(len, room, || Ok(())).await
    }

    /// Reserves room in the log, unless `admitted` refuses while that waits.
    pub async fn reserve_unless(&self, len: u64, room: Room, admitted: impl Fn() -> Result<()>) -> Result<()> {
        loop {
            {
                let mut state = self.state.borrow_mut();
                if let Some(error) = &state.failed {
                    return Err(error.clone());
                }
                if state.has_room(len, room) {
                    state.reserved += len;
                    return Ok(());
                }
            }
            admitted()?;
            let moved = self.moved.changed();
            self.demand();
            self.pressure.notify();
            moved.await;
        }
    }

    /// Whether `len` more bytes may be logged just now.
    pub fn has_room(&self, len: u64, room: Room) -> bool {
        self.state.borrow().has_room(len, room)
    }

    /// Batches may (or may no longer) take the room that is kept for what frees the log.
    pub fn let_through(&self, all: bool) {
        self.state.borrow_mut().lets_through = all;
        self.moved.notify();
        if all {
            self.wake.notify();
        }
    }

    /// Whether they may.
    pub fn lets_through(&self) -> bool {
        self.state.borrow().lets_through
    }

    /// Ends a reservation.
    pub fn unreserve(&self, len: u64) {
        self.state.borrow_mut().reserved -= len;
        self.moved.notify();
    }

    /// Bytes of the ring in use, and its size.
    pub fn fill(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.used(), state.ring)
    }

    /// Bytes of records that wait to be written: now, at most so far, and the most there may be.
    pub fn memory(&self) -> (u64, u64, u64) {
        let state = self.state.borrow();
        (state.pending_len, state.pending_peak, state.ring)
    }

    /// Whether anything waits to be written, and whether somebody waits for it (or there is enough of it).
    pub fn pending(&self) -> (bool, bool) {
        let state = self.state.borrow();
        let some = !state.pending.is_empty();
        (some, some && (state.demanded > state.durable || state.pending_len > state.ring / 8))
    }

    /// Notes that a commit timer runs; says whether one ran already.
    pub fn timer_set(&self) -> bool {
        core::mem::replace(&mut self.state.borrow_mut().timer, true)
    }

    /// Notes that the commit timer is over.
    pub fn timer_done(&self) {
        self.state.borrow_mut().timer = false;
    }

    /// Asks for what is pending to be written now.
    pub fn demand(&self) {
        let mut state = self.state.borrow_mut();
        state.demanded = state.next_seq;
        drop(state);
        self.wake.notify();
    }

    /// The sequence number after the last record of the next batch. `None`: nothing is pending, or the ring has no room
    /// for it now.
    pub fn next_batch(&self) -> Option<u64> {
        let state = self.state.borrow();
        let max = state.payload_max().min(state.ring / 8);
        // What is left of the round is used, as far as records fit there.
        let round = state.ring - state.begins_at() % state.ring;
        let mut count = 0;
        let mut len = 0;
        for record in &state.pending {
            let more = len + record.len() as u64;
            let beyond = batch_len(len as usize) <= round && batch_len(more as usize) > round;
            if count > 0 && (more > max || beyond) {
                break;
            }
            len = more;
            count += 1;
        }
        let size = batch_len(len as usize);
        let limit = if state.lets_through { state.ring - spread(state.ring) } else { state.ring / 8 * 6 };
        let fits = state.position_for(size) + size - state.tail <= limit || state.head == state.tail;
        (count > 0 && fits).then_some(state.durable + count)
    }

    /// Where a copy of the next batch may begin at the earliest, on a disk whose copy of the one before ends at `end`.
    pub fn earliest(&self, end: Option<u64>) -> u64 {
        self.state.borrow().head.max(end.unwrap_or(0))
    }

    /// Takes the records below `bound`, which [`Log::next_batch`] gave: the next batch. They may have become shorter
    /// since. It goes to position `wish` where there is room to spare, that is not before the head, and it ends in the
    /// same round.
    pub fn take(&self, bound: u64, wish: u64) -> Taken {
        let mut state = self.state.borrow_mut();
        let first_seq = state.durable;
        let count = (bound - first_seq) as usize;
        let len: u64 = state.pending.iter().take(count).map(|record| record.len() as u64).sum();
        let size = batch_len(len as usize);
        let mut position = state.position_for(size);
        if position == state.head && state.may_skip_to(wish, size) {
            position = wish;
        }
        assert!(position + size - state.tail <= state.ring, "a batch that is taken has its room");
        let payload = state.pending.drain(..count).flatten().collect();
        state.pending_len -= len;
        // What is taken still counts as used until the head has moved.
        state.reserved += len;
        let info = BatchInfo { first_seq, position, number: state.number, chain: state.chain };
        Taken { info, payload, records: count as u32 }
    }

    /// The batch that was taken is durable; the last of its copies ends at `copies_end`.
    pub fn written(&self, taken: &Taken, crc: u32, copies_end: u64) {
        let mut state = self.state.borrow_mut();
        state.reserved -= taken.payload.len() as u64;
        state.head = taken.info.position + batch_len(taken.payload.len());
        state.copies_end = copies_end;
        state.number += 1;
        state.chain = crc;
        state.durable += taken.records as u64;
        state.batches.push_back(taken.info);
        state.forget_homes();
        let filling = state.used() > state.ring / 8 * 3;
        drop(state);
        self.moved.notify();
        if filling {
            self.pressure.notify();
        }
    }

    /// The log can go on no more.
    pub fn fail(&self, error: Error) {
        self.state.borrow_mut().failed.get_or_insert(error);
        self.moved.notify();
        self.wake.notify();
        self.pressure.notify();
    }

    /// Why the log goes on no more.
    pub fn failure(&self) -> Option<Error> {
        self.state.borrow().failed.clone()
    }

    /// The batch that holds record `seq`, or where the next batch will go if it is not written yet.
    pub fn batch_of(&self, seq: u64) -> BatchInfo {
        let state = self.state.borrow();
        let at = state.batches.partition_point(|batch| batch.first_seq <= seq);
        if seq >= state.durable || at == 0 {
            let next =
                BatchInfo { first_seq: state.durable, position: state.head, number: state.number, chain: state.chain };
            return if seq >= state.durable { next } else { state.batches.front().copied().unwrap_or(next) };
        }
        state.batches[at - 1]
    }

    /// The sequence number below which the oldest `len` bytes of the ring's live part lie.
    pub fn seq_after(&self, len: u64) -> u64 {
        let state = self.state.borrow();
        let at = state.batches.partition_point(|batch| batch.position < state.tail + len);
        state.batches.get(at).map_or(state.durable, |batch| batch.first_seq)
    }

    /// The sequence number below which the oldest batches lie that fill `len` bytes at most, the first whatever its
    /// length.
    pub fn seq_within(&self, len: u64) -> u64 {
        let state = self.state.borrow();
        let end_of = |at: usize| state.batches.get(at + 1).map_or(state.head, |next| next.position);
        let fits = (1..state.batches.len()).take_while(|at| end_of(*at) <= state.tail + len).count();
        state.batches.get(fits + 1).map_or(state.durable, |batch| batch.first_seq)
    }

    /// Batches from position `from` on that lie side by side in about `len` bytes at most, the first whatever its
    /// length. `None`: there are none.
    pub fn run_from(&self, from: u64, len: u64) -> Option<Run> {
        let state = self.state.borrow();
        let first = state.batches.partition_point(|batch| batch.position < from);
        let start = state.batches.get(first)?.position;
        let round = start - start % state.ring + state.ring;
        let end_of = |at: usize| state.batches.get(at + 1).map_or(state.head, |next| next.position).min(round);
        let fits = |at: &usize| state.batches[*at].position < round && end_of(*at) <= start.saturating_add(len);
        let last = (first + 1..state.batches.len()).take_while(fits).last().unwrap_or(first);
        Some(Run { batches: state.batches.range(first..=last).copied().collect(), start, end: end_of(last) })
    }

    /// The ring before `batch` is needed no more.
    pub fn cut(&self, batch: BatchInfo) {
        let mut state = self.state.borrow_mut();
        if batch.position == state.tail {
            return;
        }
        state.tail = batch.position;
        while state.batches.front().is_some_and(|first| first.position < batch.position) {
            state.batches.pop_front();
        }
        drop(state);
        self.moved.notify();
        self.wake.notify();
    }

    /// What the labels are to say of the length of batches from the next one on, after they said `before`.
    pub fn bound_after(&self, before: BatchBound) -> BatchBound {
        let state = self.state.borrow();
        match state.batch_max {
            0 => BatchBound::default(),
            // Where the last batches were lost the log goes on before what was said.
            most if most == before.most => BatchBound { most, from: before.from.min(state.number) },
            most => BatchBound { most, from: state.number },
        }
    }

    /// The ring's live part, as positions.
    pub fn live(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.tail, state.head)
    }
}

impl State {
    /// Forgets where metadata segments were before their last durable records.
    fn forget_homes(&mut self) {
        let durable: BTreeMap<SegmentNo, u64> = self
            .homes
            .iter()
            .filter(|(seq, ..)| *seq < self.durable)
            .map(|(seq, segment, _)| (*segment, *seq))
            .collect();
        self.homes.retain(|(seq, segment, _)| durable.get(segment).is_none_or(|last| seq >= last));
    }

    /// The most bytes of records in one batch.
    fn payload_max(&self) -> u64 {
        if self.batch_max > 0 { self.batch_max - BATCH_HEAD as u64 } else { u64::MAX }
    }

    fn used(&self) -> u64 {
        self.head - self.tail + self.pending_len + self.reserved
    }

    fn has_room(&self, len: u64, room: Room) -> bool {
        self.used() + len <= room.limit(self.ring) || self.used() == 0
    }

    /// Where a batch of `size` bytes goes: at the head, or at the start of the next round if one of its copies would
    /// wrap.
    fn position_for(&self, size: u64) -> u64 {
        let wraps =
            self.begins_at() % self.ring + size > self.ring || self.begins_at() / self.ring > self.head / self.ring;
        if wraps { self.head.next_multiple_of(self.ring) } else { self.head }
    }

    /// Where the last of the copies of the next batch may begin.
    fn begins_at(&self) -> u64 {
        self.head.max(self.copies_end)
    }

    /// Whether a batch of `size` bytes may go to `wish`, behind the head, with all its copies in this round.
    fn may_skip_to(&self, wish: u64, size: u64) -> bool {
        let round = self.head - self.head % self.ring + self.ring;
        let last = wish.max(self.copies_end) + size;
        wish >= self.head && last <= round && wish + size - self.tail <= self.ring / 16 * 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn runs_end_with_their_round_and_hold_as_much_as_was_asked_for() {
        let log = Log::new(100, 0, &Anchor::default());
        let at = |position: u64| BatchInfo { first_seq: position, position, number: position, chain: 0 };
        log.resume([10, 30, 60, 100, 130].map(at).into(), 150, 6, 0, 200, 150);
        let run = |from: u64, len: u64| {
            let run = log.run_from(from, len)?;
            Some((run.batches.iter().map(|batch| batch.position).collect::<Vec<u64>>(), run.start, run.end))
        };
        assert_eq!(run(0, 1000), Some((vec![10, 30, 60], 10, 100)), "what is left of the round is nobody's");
        assert_eq!(run(10, 50), Some((vec![10, 30], 10, 60)));
        assert_eq!(run(10, 1), Some((vec![10], 10, 30)), "the first whatever its length");
        assert_eq!(run(61, u64::MAX), Some((vec![100, 130], 100, 150)));
        assert_eq!(run(150, 1000), None);
    }
}
