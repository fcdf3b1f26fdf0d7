//! How reads and stripe writes share a disk that seeks.
//!
//! A disk takes what is written into its cache, and has to empty that before anything else as soon as it is full or
//! somebody flushes. Whoever reads beside a stream of writes would wait for most of a second, again and again, and get
//! a seventh of the disk. So they take turns while both want it:
//! 1. **Writes**, until each disk got [`Tuning::turn_bytes`](super::Tuning::turn_bytes).
//! 2. **A commit**: the cache is emptied now, while it holds little. Reads do not wait longer for any flush than for
//!    this.
//! 3. **Reads**, for [`Tuning::turn_time`](super::Tuning::turn_time), with nothing else in their way.
//!
//! Who is waited for: reads that somebody waits for. What is read ahead holds nobody up ([`super::lanes`]). Between two
//! requests of one client a moment passes, for which the turn is kept. What makes room in the log, the log itself and
//! jobs do not wait for a turn. Disks that do not seek serve all at once.
//!
//! Invariants
//! 1. No run of stripes waits longer than [`HELD_MAX`], whatever reads do and disks fail to do.
//! 2. Where nobody waits for a read, nothing is held.

use super::Store;
use crate::log::Room;
use crate::mutant::{self, Mutant};
use crate::stripe::table::Place;
use crate::units::{DiskNo, Nanos};
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// So long after a read has ended the next one is still expected.
const EXPECTED: Nanos = Nanos::millis(20);
/// How often a run that is held looks whether reads still want its disks.
const LOOK: Nanos = Nanos::millis(4);
/// So long a commit may take until reads have their turn without it.
const COMMIT_MAX: Nanos = Nanos::millis(500);
/// The longest that a run is held.
pub const HELD_MAX: Nanos = Nanos::secs(1);

/// Whose turn it is on each disk.
#[derive(Default)]
pub struct Turns {
    disks: RefCell<BTreeMap<DiskNo, DiskTurn>>,
    /// How many runs of stripes had to wait for reads since the pool was opened.
    pub held: Cell<u64>,
}

#[derive(Default)]
struct DiskTurn {
    phase: Phase,
    /// When the last read ended that somebody waited for.
    read_at: Option<Nanos>,
    /// Runs of stripes that are being written.
    writing: u32,
}

/// What a disk does while both want it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    /// Nobody waits for a read.
    #[default]
    Free,
    /// It writes; so many bytes since its turn began.
    Writes(u64),
    /// What it has taken is to be committed, since then.
    Commits(Nanos),
    /// It reads, until then.
    Reads(Nanos),
}

impl DiskTurn {
    /// Whether a read is expected that somebody waits for.
    fn expects_reads(&self, now: Nanos) -> bool {
        self.read_at.is_some_and(|at| now.since(at) <= EXPECTED)
    }

    /// Where nobody wants to read, it is the turn of writes, and what they write does not count.
    fn look(&mut self, wanted: bool) {
        if !wanted {
            self.phase = Phase::Free;
        } else if self.phase == Phase::Free {
            self.phase = Phase::Writes(0);
        }
    }

    /// How long writes may have to wait; none: it is their turn.
    fn held(&mut self, now: Nanos, wanted: bool, turn_time: Nanos) -> Option<Nanos> {
        self.look(wanted);
        match self.phase {
            Phase::Commits(since) if now.since(since) >= COMMIT_MAX => self.phase = Phase::Reads(now + turn_time),
            Phase::Reads(until) if now >= until && !mutant::active(Mutant::TurnNeverEnds) => {
                self.phase = Phase::Writes(0)
            }
            _ => {}
        }
        match self.phase {
            Phase::Free | Phase::Writes(_) => None,
            Phase::Commits(since) => Some((since + COMMIT_MAX).since(now)),
            Phase::Reads(until) => Some(until.since(now)),
        }
    }

    /// Takes note that `bytes` are written from now on. `most`: of one turn.
    fn begin(&mut self, now: Nanos, bytes: u64, most: u64) {
        self.writing += 1;
        if let Phase::Writes(written) = &mut self.phase {
            *written += bytes;
            if *written >= most {
                self.phase = Phase::Commits(now);
            }
        }
    }

    /// Takes note that a run has ended. `true`: it was the last one before the commit.
    fn end(&mut self) -> bool {
        self.writing -= 1;
        self.writing == 0 && matches!(self.phase, Phase::Commits(_))
    }
}

/// Held while a run of stripes is written.
pub struct WriteTurn<'a> {
    store: &'a Store,
    disks: Vec<DiskNo>,
}

impl Drop for WriteTurn<'_> {
    fn drop(&mut self) {
        let mut turns = self.store.traffic.turns.disks.borrow_mut();
        let ended = self.disks.iter().filter(|no| turns.get_mut(no).is_some_and(DiskTurn::end)).count();
        drop(turns);
        if ended > 0 {
            self.store.log.demand();
        }
    }
}

impl Store {
    /// Waits until it is the turn of writes on all disks of `count` stripes at `place`. `is_flushed`: whether a flush
    /// waits for these stripes.
    pub async fn await_turn(
        self: &Rc<Self>,
        place: Place,
        count: u32,
        room: Room,
        is_flushed: impl Fn() -> bool,
    ) -> WriteTurn<'_> {
        let (mut disks, per_disk) = match self.map.borrow().segments.get(&place.segment) {
            Some(segment) => {
                let disks: Vec<DiskNo> = segment.record.slabs.iter().flatten().map(|at| at.disk).collect();
                (disks, segment.record.layout.interleave().0 * count as u64)
            }
            None => Default::default(),
        };
        disks.retain(|no| self.is_rotational(*no));
        disks.sort_unstable();
        disks.dedup();
        if room == Room::Commit && !disks.is_empty() {
            self.await_flush_turn(per_disk, is_flushed).await;
        }
        let began = self.world.now();
        let mut waited = false;
        let is_over = || self.world.now().since(began) >= HELD_MAX && !mutant::active(Mutant::TurnNeverEnds);
        while room == Room::Commit && !self.stopping.get() && !is_over() {
            let Some(left) = self.held_by_reads(&disks) else { break };
            waited = true;
            let wait = if left == Nanos(0) { LOOK } else { left.min(LOOK) };
            self.world.sleep(wait).await;
        }
        self.traffic.turns.held.set(self.traffic.turns.held.get() + waited as u64);
        let (now, wanted) = (self.world.now(), self.are_read(&disks));
        let mut turns = self.traffic.turns.disks.borrow_mut();
        for no in &disks {
            let turn = turns.entry(*no).or_default();
            turn.look(wanted);
            turn.begin(now, per_disk, self.tuning.turn_bytes);
        }
        drop(turns);
        WriteTurn { store: self, disks }
    }

    /// How long writes to these disks may have to wait for reads.
    fn held_by_reads(&self, disks: &[DiskNo]) -> Option<Nanos> {
        let (now, turn_time, wanted) = (self.world.now(), self.tuning.turn_time, self.are_read(disks));
        let mut turns = self.traffic.turns.disks.borrow_mut();
        let held = |no: &DiskNo| turns.get_mut(no)?.held(now, wanted, turn_time);
        disks.iter().filter_map(held).max()
    }

    /// Whether somebody reads from any of these disks, or is about to. A run needs all of them, and who reads here and
    /// there has each only now and then.
    fn are_read(&self, disks: &[DiskNo]) -> bool {
        let (now, turns) = (self.world.now(), self.traffic.turns.disks.borrow());
        disks
            .iter()
            .any(|no| self.traffic.lanes.is_wanted(*no) || turns.get(no).is_some_and(|turn| turn.expects_reads(now)))
    }

    /// A read of disk `no` has ended that somebody waited for.
    pub fn read_ended(&self, no: DiskNo) {
        if self.is_rotational(no) {
            self.traffic.turns.disks.borrow_mut().entry(no).or_default().read_at = Some(self.world.now());
        }
    }

    /// What disk `no` had taken is durable.
    pub fn turn_flushed(&self, no: DiskNo) {
        let until = self.world.now() + self.tuning.turn_time;
        if let Some(turn) = self.traffic.turns.disks.borrow_mut().get_mut(&no)
            && matches!(turn.phase, Phase::Commits(_))
        {
            turn.phase = Phase::Reads(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Nanos = Nanos::millis(150);

    fn at(millis: u64) -> Nanos {
        Nanos::millis(millis)
    }

    #[test]
    fn writes_commit_and_wait_for_reads_and_then_it_is_their_turn_again() {
        let mut turn = DiskTurn::default();
        assert_eq!(turn.held(at(1), true, TIME), None);
        turn.begin(at(1), 60, 100);
        assert_eq!(turn.held(at(2), true, TIME), None);
        turn.begin(at(2), 40, 100);
        assert!(turn.held(at(3), true, TIME).is_some(), "it has had its share");
        assert!(!turn.end() && turn.end(), "the last one asks for a commit");
        turn.phase = Phase::Reads(at(3) + TIME);
        assert_eq!(turn.held(at(53), true, TIME), Some(at(100)));
        assert_eq!(turn.held(at(153), true, TIME), None);
        assert_eq!(turn.phase, Phase::Writes(0));
    }

    #[test]
    fn nothing_is_held_where_nobody_reads_and_a_turn_is_kept_between_two_reads() {
        let mut turn = DiskTurn::default();
        turn.begin(at(1), 1000, 100);
        assert_eq!((turn.held(at(2), false, TIME), turn.end()), (None, false));
        turn.look(true);
        turn.begin(at(2), 1000, 100);
        turn.read_at = Some(at(3));
        assert!(turn.expects_reads(at(3) + EXPECTED) && !turn.expects_reads(at(4) + EXPECTED));
        assert!(turn.held(at(4), true, TIME).is_some());
        assert_eq!((turn.held(at(5), false, TIME), turn.phase), (None, Phase::Free));
    }

    #[test]
    fn a_commit_that_does_not_come_holds_writes_for_no_longer_than_it_may() {
        let mut turn = DiskTurn::default();
        turn.look(true);
        turn.begin(at(1), 100, 100);
        assert_eq!(turn.held(at(1), true, TIME), Some(COMMIT_MAX));
        assert_eq!(turn.held(at(1) + COMMIT_MAX, true, TIME), Some(TIME));
        assert_eq!(turn.held(at(1) + COMMIT_MAX + TIME, true, TIME), None);
    }
}
