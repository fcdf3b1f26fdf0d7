//! Stripes that were written, and whose disks went before a flush had made them durable.
//!
//! A commit record must not become durable before the stripe it speaks of: the stripe's old version would be given up
//! for one that may be gone. So before a batch is written, its commits are looked at. Those of stripes that too many
//! disks may have lost are *withdrawn*: the record becomes one that says nothing, the table says again what it said
//! before, and the new version is in limbo. Reads go to it all the same, flushes wait for it. When its disks are back
//! it is proven: if enough of its strips are there it is committed anew, else it is lost, and its virtual disk says so.
//! If it was a mere copy, made to lie in a better place, what it was copied from is read again, and nothing is lost.
//!
//! Invariants
//! 1. No commit record is durable whose stripe is not, but for as many strips as its layout can do without.
//! 2. What a commit in limbo would retire stays: the old stripe is not free, landed data stays in the log.
//! 3. What the log keeps of a stripe moves on with the newest content only, and nothing is merged with a version older
//!    than one that was lost.
//! 4. What is in limbo is judged as soon as all its disks are there, whether anything else is to be written or not.
//! 5. A flush waits for what took the place of a version in limbo, however late that came: neither of the two would
//!    else be durable.
//! 6. No commit record is durable before what the disks that are there lack of its stripe is on record: a crash between
//!    the two would leave a stripe without its redundancy, and nobody who knows.
//! 7. A stripe in limbo is read where it was written last, or is an error: never is an older version read.
//! 8. Only a copy of what is durable counts as one: that can be withdrawn no more, so nothing is lost with the copy.

use super::Store;
use super::compact::Elsewhere;
use crate::error::Result;
use crate::format::record::{Record, UnmapRecord};
use crate::mutant::{self, Mutant};
use crate::segment::{Segment, commit_record};
use crate::store::execute::Target;
use crate::stripe::sealed::Sealed;
use crate::stripe::table::{Entry, Place};
use crate::units::{Nanos, SegmentNo, TableNo, VdiskNo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// A commit that is not durable yet.
pub struct Fresh {
    /// The sequence number of its record.
    pub seq: u64,
    /// Whose stripe.
    pub stripe: StripeOf,
    /// Where it was written.
    pub place: Place,
    /// What the table said before.
    pub before: Entry,
    /// What it retires: landed records of this stripe below this sequence number.
    pub retires: u64,
    /// Its content, where the log must keep some of that until it is committed for good.
    pub landed: Kept,
    /// Whether it is a copy of what is durable (invariant 8).
    pub copied: bool,
    /// Whether it was durable before it was committed: no batch flushes its disks, and it is never withdrawn.
    pub flushed: bool,
}

/// The content of a stripe of which the log keeps some.
pub type Kept = Option<Rc<Sealed>>;

/// A stripe of a virtual disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StripeOf {
    /// The table that maps it.
    pub table: TableNo,
    /// Its number.
    pub stripe: u64,
    /// The virtual disk.
    pub vdisk: VdiskNo,
}

/// A stripe in limbo.
struct Withdrawn {
    fresh: Fresh,
    /// Since when.
    since: Nanos,
}

/// Commits that are not durable, stripes in limbo, and those that were lost there.
#[derive(Default)]
pub struct Limbo {
    fresh: RefCell<Vec<Fresh>>,
    /// Where the stripes lie of commits of tables that were dropped, by the numbers of their records. Those may become
    /// durable a batch before it is on record that the table was dropped.
    dropped: RefCell<BTreeMap<u64, SegmentNo>>,
    withdrawn: RefCell<BTreeMap<(TableNo, u64), Withdrawn>>,
    lost: RefCell<BTreeMap<(TableNo, u64), Kept>>,
    /// By table: records below this number take the place of what was withdrawn.
    successors: RefCell<BTreeMap<TableNo, u64>>,
    /// Segments that lack strips, and the record that says so, while that is not durable.
    noted: RefCell<BTreeMap<SegmentNo, u64>>,
    /// How many commits were ever withdrawn.
    withdrawals: Cell<u64>,
    /// When the disks had changed so often, all that are in limbo were looked at.
    looked: Cell<u64>,
    /// Some could not be judged although no disk is missing: they are to be looked at again a little later.
    undecided: Cell<bool>,
    /// A task runs that wakes who waits for what is in limbo.
    watched: Cell<bool>,
}

impl Limbo {
    /// Counts the commits that were withdrawn.
    pub fn withdrawals(&self) -> u64 {
        self.withdrawals.get()
    }

    /// Takes note of the commit of `sealed`. Returns the oldest landed record of a version of it that was in limbo: it
    /// is retired with this one.
    pub fn committed(&self, mut fresh: Fresh, sealed: &Rc<Sealed>) -> Option<u64> {
        let StripeOf { table, stripe, .. } = fresh.stripe;
        fresh.copied = fresh.copied && !self.is_unsettled(table, stripe);
        let before = self.forget(table, stripe, fresh.seq);
        let retired = before.as_ref().and_then(|before| before.landed_from());
        if let Some(before) = &before {
            sealed.landed.borrow_mut().take_over(&before.landed.borrow());
        }
        // If it is taken back, and an older version of it, too, that one's landed data goes on under the newest
        // content: none that is older may follow.
        let older =
            |other: &Fresh| other.landed.is_some() && (other.stripe.table, other.stripe.stripe) == (table, stripe);
        if sealed.landed_from().is_some() || self.fresh.borrow().iter().any(older) {
            fresh.landed = Some(sealed.clone());
        }
        fresh.copied &= fresh.landed.is_none();
        self.fresh.borrow_mut().push(fresh);
        retired
    }

    /// Forgets a stripe that record `seq` unmapped, or replaced. Returns the content of which the log keeps some.
    pub fn forget(&self, table: TableNo, stripe: u64, seq: u64) -> Option<Rc<Sealed>> {
        let withdrawn = self.withdrawn.borrow_mut().remove(&(table, stripe));
        let lost = self.lost.borrow_mut().remove(&(table, stripe));
        if withdrawn.is_some() || lost.is_some() {
            self.replaced(table, seq + 1);
        }
        withdrawn.and_then(|stripe| stripe.fresh.landed).or(lost.flatten())
    }

    /// Whether a version of this stripe is not durable yet, is in limbo, or was lost there.
    fn is_unsettled(&self, table: TableNo, stripe: u64) -> bool {
        let key = (table, stripe);
        let gone = self.withdrawn.borrow().contains_key(&key) || self.lost.borrow().contains_key(&key);
        gone || self.fresh.borrow().iter().any(|fresh| (fresh.stripe.table, fresh.stripe.stripe) == key)
    }

    /// A record below number `until` took the place of what was withdrawn of this table.
    fn replaced(&self, table: TableNo, until: u64) {
        if mutant::active(Mutant::SuccessorsNotAwaited) {
            return;
        }
        let mut successors = self.successors.borrow_mut();
        let before = successors.entry(table).or_default();
        *before = (*before).max(until);
    }

    /// A flush of this table is done when records below this number are durable, too.
    pub fn successors_until(&self, table: TableNo) -> u64 {
        self.successors.borrow().get(&table).copied().unwrap_or(0)
    }

    /// Forgets a table that was dropped.
    pub fn forget_table(&self, table: TableNo) {
        let (gone, left): (Vec<Fresh>, _) =
            self.fresh.take().into_iter().partition(|fresh| fresh.stripe.table == table);
        self.fresh.replace(left);
        if !mutant::active(Mutant::DroppedUnflushed) {
            let unflushed = gone.iter().filter(|fresh| !fresh.flushed);
            self.dropped.borrow_mut().extend(unflushed.map(|fresh| (fresh.seq, fresh.place.segment)));
        }
        self.withdrawn.borrow_mut().retain(|(other, _), _| *other != table);
        self.lost.borrow_mut().retain(|(other, _), _| *other != table);
        self.successors.borrow_mut().remove(&table);
    }

    /// The next record after `seq` that commits this stripe, and is not durable yet.
    fn next_commit(&self, of: StripeOf, seq: u64) -> Option<u64> {
        let later = |fresh: &&Fresh| fresh.stripe == of && fresh.seq > seq;
        self.fresh.borrow().iter().filter(later).map(|fresh| fresh.seq).min()
    }

    /// The stripes of `table` of which a version is not durable yet, is in limbo, or was lost there.
    pub fn unsettled(&self, table: TableNo) -> BTreeSet<u64> {
        let (fresh, withdrawn, lost) = (self.fresh.borrow(), self.withdrawn.borrow(), self.lost.borrow());
        let fresh = fresh.iter().filter(|fresh| fresh.stripe.table == table).map(|fresh| fresh.stripe.stripe);
        let all = (table, 0)..=(table, u64::MAX);
        let in_limbo = withdrawn.range(all.clone()).map(|((_, stripe), _)| *stripe);
        let lost = lost.range(all).map(|((_, stripe), _)| *stripe);
        fresh.chain(in_limbo).chain(lost).collect()
    }

    /// Commits below `durable` are the truth.
    pub fn durable(&self, durable: u64) {
        self.fresh.borrow_mut().retain(|fresh| fresh.seq >= durable);
        self.dropped.borrow_mut().retain(|seq, _| *seq >= durable);
        self.successors.borrow_mut().retain(|_, until| *until > durable);
        self.noted.borrow_mut().retain(|_, seq| *seq >= durable);
    }

    /// The segments with stripes that are committed by records below `bound` which are not durable.
    pub fn segments_below(&self, bound: u64) -> BTreeSet<SegmentNo> {
        let (fresh, dropped) = (self.fresh.borrow(), self.dropped.borrow());
        let fresh = fresh.iter().filter(|fresh| fresh.seq < bound && !fresh.flushed).map(|fresh| fresh.place.segment);
        fresh.chain(dropped.range(..bound).map(|(_, segment)| *segment)).collect()
    }

    /// Whether whoever makes the log durable flushes data disks for a commit first.
    pub fn has_unflushed(&self) -> bool {
        self.fresh.borrow().iter().any(|fresh| !fresh.flushed)
    }

    /// Takes note that the record `seq` says what `segment` lacks.
    pub fn noted(&self, segment: SegmentNo, seq: u64) {
        self.noted.borrow_mut().insert(segment, seq);
    }

    /// Whether what `segment` lacks is on record only in what follows `bound`.
    fn is_noted_later(&self, segment: SegmentNo, bound: u64) -> bool {
        let later = self.noted.borrow().get(&segment).is_some_and(|seq| *seq >= bound);
        later && !mutant::active(Mutant::NotesAfterCommits)
    }

    /// Since when stripes of this table have been in limbo, if any are.
    pub fn since(&self, table: TableNo) -> Option<Nanos> {
        let withdrawn = self.withdrawn.borrow();
        withdrawn.range((table, 0)..=(table, u64::MAX)).map(|(_, stripe)| stripe.since).min()
    }

    /// Whether stripes of this table were lost before they were durable.
    pub fn has_lost(&self, table: TableNo) -> bool {
        self.lost.borrow().range((table, 0)..=(table, u64::MAX)).next().is_some()
    }

    /// The stripes of this table that were lost before they were durable.
    pub fn lost_of(&self, table: TableNo) -> Vec<u64> {
        self.lost.borrow().range((table, 0)..=(table, u64::MAX)).map(|((_, stripe), _)| *stripe).collect()
    }

    /// Whether this stripe was lost before it was durable.
    pub fn is_lost(&self, table: TableNo, stripe: u64) -> bool {
        self.lost.borrow().contains_key(&(table, stripe))
    }

    /// The content of a stripe in limbo of which the log keeps some.
    pub fn landed(&self, table: TableNo, stripe: u64) -> Option<Rc<Sealed>> {
        let withdrawn = self.withdrawn.borrow().get(&(table, stripe)).and_then(|stripe| stripe.fresh.landed.clone());
        withdrawn.or_else(|| self.lost.borrow().get(&(table, stripe)).cloned().flatten())
    }

    /// Bytes that the log keeps of stripes of `table` in limbo.
    pub fn landed_len(&self, table: TableNo) -> u64 {
        let len = |sealed: &Rc<Sealed>| sealed.landed.borrow().count();
        let of_table = (table, 0)..=(table, u64::MAX);
        let withdrawn = self.withdrawn.borrow();
        let withdrawn =
            withdrawn.range(of_table.clone()).filter_map(|(_, stripe)| stripe.fresh.landed.as_ref()).map(len);
        let lost = self.lost.borrow();
        let lost = lost.range(of_table).filter_map(|(_, sealed)| sealed.as_ref()).map(len);
        withdrawn.sum::<u64>() + lost.sum::<u64>()
    }

    /// Whether stripes in limbo have not been looked at since disks came or went: `changes`, see [`Store::changes`].
    pub fn is_due(&self, changes: u64) -> bool {
        !self.withdrawn.borrow().is_empty() && self.looked.get() != changes
    }

    /// Whether nothing is in limbo.
    pub fn is_empty(&self) -> bool {
        self.withdrawn.borrow().is_empty()
    }

    /// Notes that a task runs, or no more, that wakes who waits for what is in limbo; says whether one ran already.
    pub fn watch(&self, runs: bool) -> bool {
        self.watched.replace(runs)
    }

    /// Has all that are in limbo looked at once more: what could not be read then may be there now.
    pub fn look_again(&self) {
        self.looked.set(u64::MAX);
    }

    /// Whether that is to be done a little later, which is asked once.
    pub fn is_undecided(&self) -> bool {
        self.undecided.take()
    }
}

impl Store {
    /// Withdraws the commits below `bound` whose stripes may be lost, or lack strips of which only a later record
    /// speaks. The disks that are there and have strips of them have flushed.
    pub(super) async fn withdraw_unsafe(&self, bound: u64) {
        if mutant::active(Mutant::UnsafeCommits) {
            return;
        }
        let suspects: Vec<(u64, Place)> = {
            let fresh = self.limbo.fresh.borrow();
            let map = self.map.borrow();
            let doubtful = |Place { segment, .. }: Place| {
                let unsound = |found: &Segment| map.unsound(&found.record) > found.record.layout.failures();
                map.segments.get(&segment).is_some_and(unsound) || self.limbo.is_noted_later(segment, bound)
            };
            let below = fresh.iter().filter(|fresh| fresh.seq < bound && !fresh.flushed && doubtful(fresh.place));
            below.map(|fresh| (fresh.seq, fresh.place)).collect()
        };
        let mut withdrawn = Vec::new();
        for (seq, place) in suspects {
            let late = || self.limbo.is_noted_later(place.segment, bound);
            // What is found to lack a strip is noted by that.
            if late() || self.is_safe(place).await != Some(true) || late() {
                withdrawn.push(seq);
            }
        }
        // From the newest on: of two versions of one stripe the later one gives way first.
        for seq in withdrawn.into_iter().rev() {
            self.withdraw(seq);
        }
    }

    /// Commits anew what is in limbo and whose disks are back; gives up what did not survive.
    pub(super) async fn settle_limbo(&self) {
        let changes = self.signals.changes.get();
        if !self.limbo.is_due(changes) {
            return;
        }
        self.limbo.looked.set(changes);
        let mut undecided = false;
        let all: Vec<((TableNo, u64), Place)> =
            self.limbo.withdrawn.borrow().iter().map(|(key, stripe)| (*key, stripe.fresh.place)).collect();
        for (key, place) in all {
            let safe = self.is_safe(place).await;
            let still = self.limbo.withdrawn.borrow().get(&key).is_some_and(|stripe| stripe.fresh.place == place);
            match safe {
                // Without its checksums it stays where it is for now.
                Some(true) if still => undecided |= self.commit_anew(key).await.is_err(),
                Some(false) if still => self.lose(key),
                None => undecided = true,
                _ => {}
            }
        }
        self.limbo.undecided.set(undecided && !self.misses_disks());
        self.signals.room.notify();
        // Who waits for room in the log for a virtual disk that has just failed waits in vain.
        self.log.moved.notify();
    }

    /// Whether enough strips of a stripe are there; `None`: disks are missing that may hold them.
    async fn is_safe(&self, place: Place) -> Option<bool> {
        let Some(target) = Target::new(self, place) else { return Some(false) };
        let seen = self.commits.comings_and_goings.get();
        self.map.borrow_mut().pin(place);
        let lacking = self.slots_lacking(&target).await;
        let records = self.map.borrow_mut().unpin(place);
        self.append_all(records);
        let lacking = lacking.ok()?;
        // What could not be read because a disk went, and came back meanwhile, may be there all the same.
        let away = target.slabs.iter().flatten().any(|at| !self.has_disk(at.disk))
            || seen != self.commits.comings_and_goings.get();
        match lacking.count_ones() as usize <= target.layout.failures() {
            true => {
                self.note_missed(place.segment, lacking);
                Some(true)
            }
            false if away => None,
            false => Some(false),
        }
    }

    fn withdraw(&self, seq: u64) {
        let fresh = {
            let mut all = self.limbo.fresh.borrow_mut();
            let Some(at) = all.iter().position(|fresh| fresh.seq == seq) else { return };
            all.remove(at)
        };
        self.limbo.withdrawals.set(self.limbo.withdrawals.get() + 1);
        let StripeOf { table, stripe, vdisk } = fresh.stripe;
        let nothing = Record::Unmap(UnmapRecord { table, first: stripe, count: 0, retires: 0, zero: false });
        self.log.replace(seq, &nothing);
        let newest = self.map.borrow_mut().withdraw(table, stripe, fresh.place, fresh.before, seq);
        let next = self.limbo.next_commit(fresh.stripe, seq);
        self.map.borrow_mut().fine_withdrawn(table, stripe, seq, next);
        if !newest {
            self.limbo.replaced(table, self.log.seq());
            self.hand_on(fresh);
            return;
        }
        let key = (table, stripe);
        if let Some(newer) = self.limbo.withdrawn.borrow_mut().get_mut(&key) {
            // A newer version of it is in limbo already: that one keeps what this one would have retired.
            if let Some(older) = fresh.landed {
                let newest = newer.fresh.landed.get_or_insert(older.clone()).clone();
                let before = newest.landed_from();
                if !Rc::ptr_eq(&newest, &older) {
                    newest.landed.borrow_mut().take_over(&older.landed.borrow());
                }
                self.relist(vdisk, stripe, before, newest.landed_from());
            }
            let records = self.map.borrow_mut().free(fresh.place);
            self.append_all(records);
            return;
        }
        self.relist(vdisk, stripe, None, fresh.landed.as_ref().and_then(|sealed| sealed.landed_from()));
        self.map.borrow_mut().limbo.insert(key, fresh.place);
        self.limbo.withdrawn.borrow_mut().insert(key, Withdrawn { fresh, since: self.world.now() });
        // All its disks may be there, and no other come or go.
        self.limbo.look_again();
    }

    /// Hands on to the newer commit of a stripe what one leaves that was withdrawn before it: if the newer one is
    /// withdrawn later, the older must not become the truth by that, and what the log keeps of it is needed again.
    fn hand_on(&self, older: Fresh) {
        let mut all = self.limbo.fresh.borrow_mut();
        let next = all.iter_mut().find(|next| next.stripe == older.stripe && next.before == Entry::At(older.place));
        let Some(next) = next else { return };
        next.before = older.before;
        if let Some(older) = older.landed {
            let newest = next.landed.get_or_insert(older.clone());
            if !Rc::ptr_eq(newest, &older) {
                newest.landed.borrow_mut().take_over(&older.landed.borrow());
            }
        }
    }

    /// The oldest log record that keeps data of a stripe was `before`, and is `now`.
    pub fn relist(&self, vdisk: VdiskNo, stripe: u64, before: Option<u64>, now: Option<u64>) {
        let mut landings = self.commits.landings.borrow_mut();
        if let Some(seq) = before {
            landings.remove(&(seq, vdisk, stripe));
        }
        if let Some(seq) = now {
            landings.insert((seq, vdisk, stripe));
        }
    }

    async fn commit_anew(&self, key: (TableNo, u64)) -> Result<()> {
        let Some(place) = self.map.borrow().limbo.get(&key).copied() else { return Ok(()) };
        let Some(target) = Target::new(self, place) else { return Ok(()) };
        let (table, stripe) = key;
        let _held = self.load_table(table, stripe..stripe + 1).await?;
        let sums = self.sums_of(&target).await?;
        // No await from here on.
        let Some(Withdrawn { mut fresh, .. }) = self.limbo.withdrawn.borrow_mut().remove(&key) else { return Ok(()) };
        let record = commit_record(table, stripe, place, fresh.retires, &sums);
        let seq = self.log.append(&record);
        let mut map = self.map.borrow_mut();
        map.limbo.remove(&key);
        fresh.before = map.tables.get(&table).map_or(Entry::Unmapped, |table| table.entry(stripe));
        map.commit(table, stripe, Some(place), seq);
        map.fine_replaced(table, stripe, seq);
        drop(map);
        let landed = fresh.landed.as_ref().and_then(|sealed| sealed.landed_from());
        self.relist(fresh.stripe.vdisk, stripe, landed, None);
        self.limbo.replaced(table, seq + 1);
        self.limbo.fresh.borrow_mut().push(Fresh { seq, ..fresh });
        Ok(())
    }

    /// A stripe did not survive: reading it is an error from now on, and so is every flush. Where only a copy did not,
    /// the tables tell what they told before.
    fn lose(&self, key: (TableNo, u64)) {
        let Some(Withdrawn { fresh, .. }) = self.limbo.withdrawn.borrow_mut().remove(&key) else { return };
        let mut map = self.map.borrow_mut();
        if fresh.copied && !mutant::active(Mutant::LostCopyIsLoss) {
            map.fine_given_up(key.0, key.1);
            let is_fast = fresh.before.place().is_some_and(|before| map.is_fast(before));
            self.compaction.note_moved(Elsewhere { table: key.0, stripe: key.1, is_fast });
        } else {
            self.limbo.lost.borrow_mut().insert(key, fresh.landed);
            // What memory has of it gathers again.
            self.signals.work.notify();
        }
        let Some(place) = map.limbo.remove(&key) else { return };
        let records = map.free(place);
        drop(map);
        self.append_all(records);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Layout, Resiliency};
    use crate::stripe::buffer::StripeBuffer;
    use crate::stripe::sealed::Home;
    use crate::units::{Birth, ByteCount};

    const STRIPE: StripeOf = StripeOf { table: TableNo(1), stripe: 7, vdisk: VdiskNo(1) };

    fn commit(limbo: &Limbo, seq: u64, copied: bool) {
        let layout = Layout::new(Resiliency::Simple, 1, ByteCount::kib(4)).unwrap();
        let mut buffer = StripeBuffer::new(layout, 0, Nanos(0));
        buffer.fill(0, &[0; 4096]);
        let sealed = Rc::new(buffer.seal(0, Home { table: STRIPE.table, layout }));
        let place = Place { segment: SegmentNo(1), index: seq as u32, birth: Birth(seq as u16) };
        let before = Entry::Unmapped;
        limbo.committed(
            Fresh { seq, stripe: STRIPE, place, before, retires: 0, landed: None, copied, flushed: false },
            &sealed,
        );
    }

    fn is_copy(limbo: &Limbo) -> bool {
        limbo.fresh.borrow().last().unwrap().copied
    }

    #[test]
    fn only_a_copy_of_what_is_durable_counts_as_one() {
        let limbo = Limbo::default();
        commit(&limbo, 1, false);
        commit(&limbo, 2, true);
        assert!(!is_copy(&limbo), "what it was copied from may be withdrawn");
        limbo.durable(3);
        commit(&limbo, 3, true);
        assert!(is_copy(&limbo));
        let fresh = limbo.fresh.borrow_mut().pop().unwrap();
        limbo.withdrawn.borrow_mut().insert((STRIPE.table, STRIPE.stripe), Withdrawn { fresh, since: Nanos(0) });
        commit(&limbo, 4, true);
        assert!(!is_copy(&limbo), "what it was copied from may be lost");
        limbo.durable(5);
        limbo.lost.borrow_mut().insert((STRIPE.table, STRIPE.stripe), None);
        commit(&limbo, 5, true);
        assert!(!is_copy(&limbo), "what it was copied from is lost");
    }
}
