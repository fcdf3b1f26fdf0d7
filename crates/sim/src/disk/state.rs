//! What happens inside the disk: jobs begin, jobs end, the power goes.

use super::content::{Content, Harm};
use super::write::{self, Effect, Fate, Lands, Tear, Write};
use super::{Cached, Inner, Job, Promise, Reply, State, Submission, UnderWay, WriteFault};
use crate::rng::{Rng, fold};
use crate::timing::Op;
use crate::world::{Alarm, Device};
use weft_engine::io::{Buf, DiskError, IoSlice};
use weft_engine::units::{BLOCK, ByteCount, DiskOffset, Nanos, SECTOR};
use weft_engine::world::World;

/// Half of the reads take their bytes when they are submitted, the others when they complete (fault model 1).
const SAMPLED_EARLY: f64 = 0.5;

// Beginnings.
impl State {
    pub(super) fn read_job(&mut self, at: DiskOffset, mut buf: Buf, submission: Submission) -> (Job, Op) {
        let len = ByteCount(buf.len() as u64);
        self.judge(at, len);
        submission.trace(0x1ead, at.0, len.0);
        let sampled = self.rng.chance(SAMPLED_EARLY).then(|| self.sample(at, &mut buf));
        (Job::Read { at, buf, sampled }, Op::Read(at, len))
    }

    pub(super) fn write_job(
        &mut self,
        at: DiskOffset,
        len: ByteCount,
        bytes: Option<Vec<IoSlice>>,
        planned: Option<WriteFault>,
        submission: Submission,
    ) -> (Job, Op) {
        self.judge(at, len);
        let Some(bytes) = bytes else {
            submission.trace(0xd15c, at.0, len.0);
            let effect = Effect::Discard { seed: self.rng.next_u64() };
            let write = Write { at, len, effect, lands: Lands::There };
            return (Job::Write { write, tear: None, result: Ok(()) }, Op::Discard(at, len));
        };
        submission.trace(0x3417e, at.0, len.0 ^ digest(&bytes));
        let mut write = Write { at, len, effect: Effect::Bytes(bytes), lands: Lands::There };
        let (mut tear, mut result) = (None, Ok(()));
        match self.faults.writes.pop_front().or(planned) {
            Some(WriteFault::Misdirect(to)) => {
                self.judge(to, len);
                write.lands = Lands::Elsewhere(to);
            }
            Some(WriteFault::Lose) => write.lands = Lands::Nowhere,
            Some(WriteFault::Error(error)) => {
                tear = Some(Tear::random(write.sectors(), &mut self.rng));
                result = Err(error);
            }
            None => {}
        }
        (Job::Write { write, tear, result }, Op::Write(at, len))
    }

    pub(super) fn flush_job(&mut self, planned: Option<DiskError>, submission: Submission) -> (Job, Op) {
        submission.trace(0xf1, self.completions, 0);
        let result = self.faults.flushes.pop_front().or(planned).map_or(Ok(()), Err);
        (Job::Flush { covers: self.completions, result }, Op::Flush)
    }

    /// The engine asks only for whole blocks that exist.
    fn judge(&self, at: DiskOffset, len: ByteCount) {
        let end = at.0.checked_add(len.0).expect("the end of a request is a number");
        assert!(at.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK), "{at:?}+{len:?} is not whole blocks");
        assert!(end <= self.shape.capacity.0, "{at:?}+{len:?} is beyond the disk's {:?}", self.shape.capacity);
    }

    /// The bytes from `at` as a read gets them at this moment: writes under way may show through.
    fn sample(&mut self, at: DiskOffset, buf: &mut Buf) -> Result<(), DiskError> {
        self.visible.read(at, buf)?;
        let blocks = at.0 / BLOCK..(at.0 + buf.len() as u64) / BLOCK;
        for UnderWay { job, .. } in self.under_way.values() {
            if let Job::Write { write, .. } = job
                && write.lands == Lands::There
                && write.touches(&blocks)
            {
                show_through(write, Tear::Each(self.rng.next_u64()), at, buf);
            }
        }
        Ok(())
    }
}

// Ends.
impl Inner {
    /// Asks the world to be called when the next job ends.
    pub(super) fn set_alarm(&self, state: &mut State) {
        let Some(next) = state.timing.next() else { return };
        let next = next.max(state.stalled_until);
        state.alarm.set(next, &self.world, &self.me);
    }

    fn end(&self, id: u64) {
        let mut state = self.state.borrow_mut();
        let Some(UnderWay { job, promise }) = state.under_way.remove(&id) else { return };
        let counts = !matches!(job, Job::Read { .. });
        let reply: Reply = match job {
            Job::Read { at, mut buf, sampled } => {
                let result = sampled.unwrap_or_else(|| state.sample(at, &mut buf));
                result.map(|()| Some(buf))
            }
            Job::Write { write, tear, result } => {
                state.take_in(write, tear);
                result.map(|()| None)
            }
            Job::Flush { covers, result } => {
                if result.is_ok() {
                    state.make_durable(covers);
                }
                result.map(|()| None)
            }
        };
        drop(state);
        self.world.trace(0xe4d + (self.no << 16), id, u64::from(reply.is_err()));
        if counts {
            self.world.count_operation();
        }
        if !self.world.crashed() {
            promise.keep(reply);
        }
    }
}

impl Device for Inner {
    fn due(&self) {
        let now = self.world.now();
        let mut done = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            if !state.alarm.rings(now) {
                return;
            }
            if now >= state.stalled_until {
                state.timing.advance(now, &mut done);
            }
        }
        for id in done {
            if self.world.crashed() {
                return;
            }
            self.end(id);
        }
        self.set_alarm(&mut self.state.borrow_mut());
    }

    fn abandon(&self) {
        let orphans = self.state.borrow_mut().leave_in_the_air();
        drop(orphans);
    }
}

// The cache and the medium.
impl State {
    /// Every write that is not known to be durable, in the order in which they reach the medium if they do.
    pub(super) fn volatile(&self) -> impl Iterator<Item = (&Write, Option<Tear>)> {
        let cached = self.cache.iter().map(|cached| (&cached.write, cached.tear));
        let in_the_air = self.in_the_air.iter().map(|(write, tear)| (write, *tear));
        let under_way = self.under_way.values().filter_map(|under_way| match &under_way.job {
            Job::Write { write, tear, .. } => Some((write, *tear)),
            _ => None,
        });
        cached.chain(in_the_air).chain(under_way)
    }

    /// A write completes: visible, and durable only where the cache is not volatile.
    pub(super) fn take_in(&mut self, write: Write, tear: Option<Tear>) {
        land(&mut self.visible, &write, tear);
        self.completions += 1;
        self.cache.push(Cached { completion: self.completions, write, tear });
        if self.protected {
            self.make_durable(self.completions);
        }
    }

    /// A flush ends that covers this many completions.
    pub(super) fn make_durable(&mut self, covers: u64) {
        let covered = self.cache.partition_point(|cached| cached.completion <= covers);
        for cached in self.cache.drain(..covered) {
            land(&mut self.durable, &cached.write, cached.tear);
        }
    }

    pub(super) fn after_power_cut(&self, fates: &[Fate]) -> Content {
        let mut content = self.durable.clone();
        for ((write, tear), fate) in self.volatile().zip(fates) {
            match fate {
                Fate::Kept => land(&mut content, write, tear),
                Fate::Dropped => {}
                Fate::Torn(by_power) => content.apply(write, Some(*by_power)),
                Fate::Ruined(seed) => content.ruin(write, *seed),
            }
        }
        content
    }

    pub(super) fn lose_power(&mut self, fates: &[Fate]) {
        assert!(self.under_way.is_empty(), "the world has not been halted");
        self.durable = self.after_power_cut(fates);
        self.visible = self.durable.clone();
        self.cache.clear();
        self.in_the_air.clear();
        self.stalled_until = Nanos(0);
    }

    /// Decides by `rng` about every write that was left in the air: it happened, did not, or did in part.
    pub(super) fn settle_the_air(&mut self, rng: &mut Rng) {
        let writes = std::mem::take(&mut self.in_the_air);
        let fates = write::fates(writes.iter().map(|(write, _)| write.sectors()), rng);
        for ((write, tear), fate) in writes.into_iter().zip(fates) {
            match fate {
                Fate::Kept => self.take_in(write, tear),
                Fate::Torn(tear) => self.take_in(write, Some(tear)),
                Fate::Dropped => {}
                Fate::Ruined(_) => unreachable!("the power stayed on"),
            }
        }
    }

    /// Nobody waits any more: writes under way are left in the air, the rest is forgotten.
    pub(super) fn leave_in_the_air(&mut self) -> Vec<Promise<Reply>> {
        self.timing.reset();
        self.alarm = Alarm::default();
        let mut orphans = Vec::new();
        for (_, UnderWay { job, promise }) in std::mem::take(&mut self.under_way) {
            if let Job::Write { write, tear, .. } = job {
                self.in_the_air.push((write, tear));
            }
            orphans.push(promise);
        }
        orphans
    }

    /// Harms a block of the medium. Reads see it at once, unless a write in the cache hides it.
    pub(super) fn harm_medium(&mut self, block: u64, harm: impl FnOnce(&mut Content, u64, &mut Rng)) {
        harm(&mut self.durable, block, &mut self.rng);
        let hidden = self.cache.iter().any(|cached| cached.write.touches(&(block..block + 1)));
        if !hidden {
            self.visible.copy_block(block, &self.durable);
        }
    }
}

/// Applies a write as it really went; one that failed leaves its range in doubt.
fn land(content: &mut Content, write: &Write, tear: Option<Tear>) {
    content.apply(write, tear);
    if tear.is_some() {
        content.mark(write, Harm::Mixed);
    }
}

/// Puts the sectors of `write` that `tear` keeps over the bytes read from `at`.
fn show_through(write: &Write, tear: Tear, at: DiskOffset, buf: &mut [u8]) {
    let Effect::Bytes(slices) = &write.effect else { return };
    let mut sector = 0;
    for block in slices.iter().flat_map(|slice| slice.chunks_exact(BLOCK as usize)) {
        let place = write.at.0 + sector * SECTOR;
        if place >= at.0 && place < at.0 + buf.len() as u64 {
            for kept in tear.kept(sector, write.sectors()) {
                let from = ((kept - sector) * SECTOR) as usize;
                let to = (place - at.0) as usize + from;
                buf[to..to + SECTOR as usize].copy_from_slice(&block[from..from + SECTOR as usize]);
            }
        }
        sector += BLOCK / SECTOR;
    }
}

/// A cheap digest for the trace: the first word of every block.
fn digest(bytes: &[IoSlice]) -> u64 {
    let blocks = bytes.iter().flat_map(|slice| slice.chunks_exact(BLOCK as usize));
    blocks.fold(0, |hash, block| fold(hash, u64::from_le_bytes(block[..8].try_into().expect("eight bytes"))))
}
