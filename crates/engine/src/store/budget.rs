//! What a pool holds in memory: every budget there is, in one place.
//!
//! Invariants
//! 1. Bytes are taken before they are there, in the step that decides about it, and given back when they are gone.
//! 2. What is larger than a whole budget gets through alone: nobody waits for ever.
//! 3. Memory for new stripes ends an eighth before the limit: a stripe that is being filled can become whole, or a
//!    stream would have to be merged.
//! 4. Who merges to empty the log has a budget of its own: it waits for nobody who waits for the log.

use super::follow::RECENT_MAX;
use super::{Store, Tuning};
use crate::sync::Signal;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// The most bytes that merges hold by default: so many stripes at once that disks can put their reads in order.
const MERGES_MAX: u64 = 192 << 20;

/// How a budget is kept to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeping {
    /// Whoever wants more waits.
    Waits,
    /// What is over it is dropped, or written away, soon.
    Trims,
    /// It is counted only.
    Counts,
}

/// Bytes of one kind that a pool holds in memory, and how many it may.
pub struct Budget {
    name: &'static str,
    keeping: Keeping,
    limit: u64,
    used: Cell<u64>,
    peak: Cell<u64>,
    given: Signal,
    /// Who waits, in the order in which they came, and whether it is for a new stripe.
    waiting: RefCell<BTreeMap<u64, bool>>,
    tickets: Cell<u64>,
    /// Bytes of stripes that cannot leave.
    stuck: Cell<u64>,
    /// The state of the pool ([`Store::changes`]) in which nothing could be done for those who wait.
    hopeless: Cell<Option<u64>>,
}

/// What a budget is like now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetInfo {
    /// What it is for.
    pub name: &'static str,
    /// See [`Keeping`].
    pub keeping: Keeping,
    /// The most bytes; 0: no limit.
    pub limit: u64,
    /// Bytes now.
    pub used: u64,
    /// The most bytes since the pool was opened.
    pub peak: u64,
}

/// The budgets of an open pool.
pub struct Budgets {
    /// Stripes that are gathered or on their way to the disks, parity included.
    pub buffers: Budget,
    /// What is read, and what a stripe grows by, to merge partial stripes.
    pub merges: Budget,
    /// Bytes of merges that are done to empty the log.
    pub log_merges: Budget,
    /// Strips that move from disk to disk.
    pub moves: Budget,
    /// Reads of clients under way.
    pub reads: Budget,
    /// Writes of clients under way. They wait for more than reads do, which therefore do not wait for them.
    pub writes: Budget,
    /// Stripes that could be written nowhere, of which the log holds flushed data. Their virtual disk takes no more
    /// writes, so they are no more than it had in its buffers.
    pub kept: Budget,
}

/// Bytes of a budget; they are given back when this is dropped.
pub struct Lease<'a> {
    budget: &'a Budget,
    bytes: u64,
}

/// A place in the queue of a budget, until it is dropped.
pub struct Ticket<'a> {
    budget: &'a Budget,
    no: u64,
}

impl Budgets {
    /// Nothing is held.
    pub fn new(tuning: &Tuning) -> Budgets {
        let merges = (tuning.buffer_memory / 2).min(MERGES_MAX);
        Budgets {
            buffers: Budget::new("stripe buffers", Keeping::Waits, tuning.buffer_memory),
            merges: Budget::new("merges", Keeping::Waits, merges),
            log_merges: Budget::new("merges for the log", Keeping::Waits, merges),
            moves: Budget::new("moves", Keeping::Waits, tuning.move_memory),
            reads: Budget::new("reads", Keeping::Waits, tuning.request_memory),
            writes: Budget::new("writes", Keeping::Waits, tuning.request_memory),
            kept: Budget::new("unwritable stripes", Keeping::Counts, 0),
        }
    }
}

impl Budget {
    fn new(name: &'static str, keeping: Keeping, limit: u64) -> Budget {
        Budget {
            name,
            keeping,
            limit,
            used: Cell::new(0),
            peak: Cell::new(0),
            given: Signal::new(),
            waiting: RefCell::default(),
            tickets: Cell::new(0),
            stuck: Cell::new(0),
            hopeless: Cell::new(None),
        }
    }

    /// The most bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes now.
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// What it is like now.
    pub fn info(&self) -> BudgetInfo {
        let Budget { name, keeping, limit, .. } = *self;
        BudgetInfo { name, keeping, limit, used: self.used.get(), peak: self.peak.get() }
    }

    /// Takes bytes, whether they fit or not.
    pub fn add(&self, bytes: u64) {
        self.used.set(self.used.get() + bytes);
        self.peak.set(self.peak.get().max(self.used.get()));
    }

    /// Gives bytes back.
    pub fn give(&self, bytes: u64) {
        self.used.set(self.used.get().checked_sub(bytes).expect("memory is counted exactly"));
        self.given.notify();
    }

    /// Holds bytes that are counted only.
    pub fn hold(&self, bytes: u64) -> Lease<'_> {
        self.add(bytes);
        Lease { budget: self, bytes }
    }

    /// Takes bytes as soon as they fit, or nobody else has any; who came first is first.
    pub async fn take(&self, bytes: u64) -> Lease<'_> {
        let fits = || self.used.get() == 0 || self.used.get() + bytes <= self.limit;
        if self.waiting.borrow().is_empty() && fits() {
            return self.hold(bytes);
        }
        let ticket = self.wait(true);
        self.given.until(|| self.is_first(Some(&ticket)) && fits()).await;
        self.hold(bytes)
    }

    /// Whether a stripe buffer of `own` bytes may grow by `bytes` now. `healthy`: of a virtual disk without stripes
    /// that cannot leave, for which those of the others do not count, up to half of the budget.
    pub fn admits(&self, bytes: u64, own: u64, healthy: bool, ticket: Option<&Ticket<'_>>) -> bool {
        let (used, stuck) = (self.used.get(), self.stuck.get());
        let limit = if own == 0 { self.limit / 8 * 7 } else { self.limit };
        let beside = if healthy { stuck.min(self.limit / 2) } else { 0 };
        let alone = used.saturating_sub(if healthy { stuck } else { 0 }) <= own;
        (own > 0 || self.is_first(ticket)) && (alone || used + bytes <= limit + beside)
    }

    /// Queues. `fresh`: for a new stripe.
    pub fn wait(&self, fresh: bool) -> Ticket<'_> {
        let no = self.tickets.get();
        self.tickets.set(no + 1);
        self.waiting.borrow_mut().insert(no, fresh);
        Ticket { budget: self, no }
    }

    /// Whether somebody waits.
    pub fn is_wanted(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Whether anything cannot leave.
    pub fn has_stuck(&self) -> bool {
        self.stuck.get() > 0
    }

    /// Notes how many bytes cannot leave, and in which state of the pool nothing can be done about it. Says whether
    /// that is news.
    pub fn note_stuck(&self, bytes: u64, hopeless: Option<u64>) -> bool {
        let before = (self.stuck.replace(bytes), self.hopeless.replace(hopeless));
        before != (bytes, hopeless)
    }

    /// Whether nothing could be done for those who wait, in this state of the pool.
    pub fn is_hopeless(&self, changes: u64) -> bool {
        self.hopeless.get() == Some(changes)
    }

    /// Whether nobody waits for a new stripe who came before.
    fn is_first(&self, ticket: Option<&Ticket<'_>>) -> bool {
        let waiting = self.waiting.borrow();
        let mut fresh = waiting.iter().filter(|(_, fresh)| **fresh).map(|(no, _)| *no);
        fresh.next().is_none_or(|first| ticket.is_some_and(|ticket| ticket.no <= first))
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.budget.waiting.borrow_mut().remove(&self.no);
        self.budget.given.notify();
    }
}

impl Store {
    /// Every budget of the pool.
    pub fn memory(&self) -> Vec<BudgetInfo> {
        let Budgets { buffers, merges, log_merges, moves, reads, writes, kept } = &self.traffic.budgets;
        let mut all: Vec<BudgetInfo> =
            [buffers, merges, log_merges, moves, reads, writes, kept].iter().map(|budget| budget.info()).collect();
        let (used, peak) = self.pages.memory();
        all.push(BudgetInfo {
            name: "checksum pages",
            keeping: Keeping::Trims,
            limit: self.tuning.sheet_memory,
            used,
            peak,
        });
        let (used, peak) = self.map.borrow().ahead.memory();
        let limit = self.tuning.ahead_memory;
        all.push(BudgetInfo { name: "read ahead", keeping: Keeping::Trims, limit, used, peak });
        let (used, peak, limit) = self.traffic.spare.memory();
        all.push(BudgetInfo { name: "buffers for reads", keeping: Keeping::Trims, limit, used, peak });
        let ((used, peak), limit) = (self.table_memory(), self.tuning.table_memory);
        all.push(BudgetInfo { name: "stripe tables", keeping: Keeping::Trims, limit, used, peak });
        let (used, peak) = (self.map.borrow().fine_takes().memory, self.map.borrow().fine_peak);
        let limit = self.tuning.fine_memory;
        all.push(BudgetInfo { name: "packed units", keeping: Keeping::Trims, limit, used, peak });
        let (used, peak, limit) = self.shelves_memory();
        if limit > 0 {
            all.push(BudgetInfo { name: "read caches", keeping: Keeping::Trims, limit, used, peak });
        }
        let (used, peak, limit) = self.log.memory();
        all.push(BudgetInfo { name: "log records", keeping: Keeping::Waits, limit, used, peak });
        let (used, peak) = self.follower.memory();
        all.push(BudgetInfo { name: "log to copy", keeping: Keeping::Trims, limit: RECENT_MAX, used, peak });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_stripes_leave_room_for_those_that_are_being_filled_and_queue() {
        let budget = Budget::new("test", Keeping::Waits, 800);
        budget.add(650);
        assert!(budget.admits(50, 0, true, None) && !budget.admits(51, 0, true, None));
        assert!(budget.admits(150, 100, true, None) && !budget.admits(151, 100, true, None));
        let (first, second) = (budget.wait(true), budget.wait(true));
        assert!(!budget.admits(1, 0, true, None) && !budget.admits(1, 0, true, Some(&second)));
        assert!(budget.admits(1, 0, true, Some(&first)) && budget.admits(1, 1, true, None));
        drop(first);
        assert!(budget.admits(1, 0, true, Some(&second)));
    }

    #[test]
    fn what_is_larger_than_the_budget_gets_through_alone() {
        let budget = Budget::new("test", Keeping::Waits, 800);
        assert!(budget.admits(5000, 0, true, None));
        budget.add(1);
        assert!(!budget.admits(5000, 0, true, None) && budget.admits(5000, 1, true, None));
        budget.note_stuck(1, None);
        assert!(budget.admits(5000, 0, true, None) && !budget.admits(5000, 0, false, None));
    }
}
