//! A hard disk that waits a moment for its host before it writes back, as the emulated disks of the lab do on which md
//! was measured. [`weft_sim::timing::Hdd`] writes back as soon as nothing else is asked for.
//!
//! The model
//! 1. Mechanics are those of [`HddClass`], at one rate everywhere: one spiral, settling and seeks, the angle.
//! 2. Reads, and writes past the cache, are served by the least positioning, with a little patience for old ones.
//! 3. After a read it reads on into one of 16 buffers until something else is done. It writes back only when no host
//!    has had it move for [`Policy::idle`], unless the cache is three quarters full, or a flush or a write waits: then
//!    reading and writing back take turns.
//! 4. What is dirty keeps the epoch that it was written in; a flush ends its epoch, waits for what is dirty of it and
//!    older, and keeps nobody else waiting.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use weft_engine::units::Nanos;
use weft_sim::timing::{HddClass, Op, Timing};

/// Buffers of what was read.
const BUFFERS: usize = 16;
/// What a rotation is missed by at most without being missed, in nanoseconds.
const JUST: u64 = 3000;

/// A class of such disks.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Mechanics, cache and queue.
    pub class: HddClass,
    /// How long the host must have been quiet before it writes back, in nanoseconds.
    pub idle: u64,
    /// The most that is written back in one go, in bytes.
    pub chunk: u64,
    /// Dirty extents that are compared above the arm, and below it.
    pub compared: usize,
}

/// Such a disk.
pub struct Drive {
    policy: Policy,
    host: VecDeque<Command>,
    inside: usize,
    reads: Vec<Command>,
    /// Writes that wait for room in the cache, and the epochs that they came in.
    blocked: VecDeque<(Command, u64)>,
    /// Flushes, the epochs that they end, and when they came.
    flushes: VecDeque<(u64, u64, u64)>,
    dirty: Vec<Dirty>,
    dirty_bytes: u64,
    epoch: u64,
    work: Option<Work>,
    /// Where the arm is, and since when it has nothing to do there.
    at: u64,
    free: u64,
    last_host: u64,
    turn: bool,
    /// Reading on: into which buffer, until where.
    ahead: Option<(usize, u64)>,
    buffers: Vec<(Range<u64>, u64)>,
    clock: u64,
    interface: u64,
    answers: BTreeMap<(u64, u64), u64>,
    answered: u64,
    wake: Option<u64>,
}

#[derive(Clone)]
struct Command {
    id: u64,
    bytes: Range<u64>,
    since: u64,
    writes: bool,
    /// Past the cache.
    through: bool,
}

#[derive(Clone)]
struct Dirty {
    bytes: Range<u64>,
    epoch: u64,
    since: u64,
}

/// What the arm is doing.
struct Work {
    bytes: Range<u64>,
    until: u64,
    what: What,
}

enum What {
    /// A command of the host.
    Serves(Command),
    /// Writing back what was written in this epoch.
    WritesBack(u64),
}

impl Drive {
    /// A disk with nothing to do.
    pub fn new(policy: Policy) -> Drive {
        assert_eq!(policy.class.outer_rate, policy.class.inner_rate, "it has one rate everywhere");
        Drive {
            policy,
            host: VecDeque::new(),
            inside: 0,
            reads: Vec::new(),
            blocked: VecDeque::new(),
            flushes: VecDeque::new(),
            dirty: Vec::new(),
            dirty_bytes: 0,
            epoch: 1,
            work: None,
            at: 0,
            free: 0,
            last_host: 0,
            turn: false,
            ahead: None,
            buffers: vec![(0..0, 0); BUFFERS],
            clock: 0,
            interface: 0,
            answers: BTreeMap::new(),
            answered: 0,
            wake: None,
        }
    }
}

impl Timing for Drive {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let (bytes, writes) = match op {
            Op::Read(at, len) => (at.0..at.0 + len.0, false),
            Op::Write(at, len) | Op::WriteThrough(at, len) => (at.0..at.0 + len.0, true),
            Op::Flush => (0..0, true),
            Op::Discard(..) => return self.answer(id, now.0 + self.policy.class.overhead),
        };
        let through = matches!(op, Op::WriteThrough(..));
        let command = Command { id, bytes, since: now.0, writes, through };
        if self.inside >= self.policy.class.queue {
            self.host.push_back(command);
        } else {
            self.accept(command, now.0);
        }
        self.run(now.0);
    }

    fn next(&self) -> Option<Nanos> {
        let answer = self.answers.keys().next().map(|(at, _)| *at);
        answer.into_iter().chain(self.wake).min().map(Nanos)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<u64>) {
        while let Some(at) = self.next().filter(|at| *at <= now) {
            self.run(at.0);
            while let Some(entry) = self.answers.first_entry().filter(|entry| entry.key().0 <= at.0) {
                done.push(entry.remove());
                self.inside = self.inside.saturating_sub(1);
                if let Some(next) = self.host.pop_front() {
                    self.accept(next, at.0);
                }
            }
            self.run(at.0);
        }
    }

    fn reset(&mut self) {
        *self = Drive::new(self.policy.clone());
    }
}

// Commands.
impl Drive {
    fn accept(&mut self, command: Command, now: u64) {
        self.inside += 1;
        let Range { start, end } = command.bytes;
        if start == end {
            self.flushes.push_back((command.id, self.epoch, now));
            self.epoch += 1;
            return self.end_flushes(now);
        }
        if command.writes {
            let ahead = self.ahead.map(|(nth, _)| nth);
            for (nth, (buffer, _)) in self.buffers.iter_mut().enumerate() {
                if buffer.end > start && buffer.start < end && ahead != Some(nth) {
                    *buffer = 0..0;
                }
            }
            if command.through || self.policy.class.write_cache.0 == 0 {
                self.reads.push(command);
            } else if self.blocked.is_empty() && self.has_room(end - start) {
                self.cache(command, self.epoch, now);
            } else {
                self.blocked.push_back((command, self.epoch));
            }
            return;
        }
        if self.is_dirty(&command.bytes) || self.is_buffered(&command.bytes, now) {
            self.answer_over(command.id, end - start, now);
        } else {
            self.reads.push(command);
        }
    }

    fn has_room(&self, len: u64) -> bool {
        let class = &self.policy.class;
        self.dirty_bytes + len <= class.write_cache.0 && self.dirty.len() < class.write_cache_ranges
    }

    fn cache(&mut self, command: Command, epoch: u64, now: u64) {
        let bytes = command.bytes;
        self.clean(&bytes);
        let nth = self.dirty.partition_point(|dirty| dirty.bytes.end <= bytes.start);
        self.dirty_bytes += bytes.end - bytes.start;
        self.answer_over(command.id, bytes.end - bytes.start, now);
        self.dirty.insert(nth, Dirty { bytes, epoch, since: now });
        for first in [nth, nth.wrapping_sub(1)] {
            if let (Some(a), Some(b)) = (self.dirty.get(first), self.dirty.get(first.wrapping_add(1)))
                && a.bytes.end == b.bytes.start
                && a.epoch == b.epoch
            {
                let (end, since) = (b.bytes.end, a.since.min(b.since));
                self.dirty[first].bytes.end = end;
                self.dirty[first].since = since;
                self.dirty.remove(first + 1);
            }
        }
    }

    /// Forgets what is dirty of these bytes.
    fn clean(&mut self, bytes: &Range<u64>) {
        let mut nth = self.dirty.partition_point(|dirty| dirty.bytes.end <= bytes.start);
        while let Some(dirty) = self.dirty.get(nth).filter(|dirty| dirty.bytes.start < bytes.end).cloned() {
            let both = dirty.bytes.start.max(bytes.start)..dirty.bytes.end.min(bytes.end);
            self.dirty_bytes -= both.end - both.start;
            let left = [dirty.bytes.start..both.start, both.end..dirty.bytes.end];
            let left: Vec<Dirty> = left
                .into_iter()
                .filter(|part| part.start < part.end)
                .map(|bytes| Dirty { bytes, ..dirty.clone() })
                .collect();
            let count = left.len();
            self.dirty.splice(nth..=nth, left);
            nth += count;
        }
    }

    fn is_dirty(&self, bytes: &Range<u64>) -> bool {
        let writing = self.work.as_ref().is_some_and(|work| {
            matches!(work.what, What::WritesBack(_)) && work.bytes.start <= bytes.start && bytes.end <= work.bytes.end
        });
        let nth = self.dirty.partition_point(|dirty| dirty.bytes.end <= bytes.start);
        let mut at = bytes.start;
        let covered = self.dirty[nth..].iter().any(|dirty| {
            let follows = dirty.bytes.start <= at;
            at = if follows { dirty.bytes.end } else { at };
            follows && at >= bytes.end
        });
        writing || covered
    }

    /// Whether a buffer holds these bytes by now; the one that is being read into goes on for them.
    fn is_buffered(&mut self, bytes: &Range<u64>, now: u64) -> bool {
        self.clock += 1;
        for nth in 0..BUFFERS {
            let held = self.held(nth, now);
            if held.start <= bytes.start && bytes.end <= held.end {
                self.buffers[nth].1 = self.clock;
                let more = bytes.end + self.policy.class.read_ahead.0;
                self.ahead = self.ahead.map(|(ahead, limit)| match ahead == nth && held.end < limit {
                    true => (ahead, limit.max(more)),
                    false => (ahead, limit),
                });
                return true;
            }
        }
        false
    }

    fn end_flushes(&mut self, now: u64) {
        while let Some((id, epoch, _)) = self.flushes.front().copied() {
            let writing = matches!(&self.work, Some(Work { what: What::WritesBack(of), .. }) if *of <= epoch);
            let dirty = self.dirty.iter().any(|dirty| dirty.epoch <= epoch);
            if writing || dirty || self.blocked.front().is_some_and(|(_, of)| *of <= epoch) {
                return;
            }
            self.flushes.pop_front();
            self.answer(id, now + self.policy.class.overhead);
        }
    }

    fn answer_over(&mut self, id: u64, len: u64, now: u64) {
        let class = &self.policy.class;
        self.interface = self.interface.max(now) + class.overhead + span(len, class.interface_rate);
        self.answer(id, self.interface);
    }

    fn answer(&mut self, id: u64, at: u64) {
        self.answered += 1;
        self.answers.insert((at, self.answered), id);
    }
}

// The arm.
impl Drive {
    /// Ends and begins what there is to do by now.
    fn run(&mut self, now: u64) {
        loop {
            if let Some(work) = self.work.take_if(|work| work.until <= now) {
                self.end(work);
                continue;
            }
            self.wake = self.work.as_ref().map(|work| work.until);
            if self.wake.is_some() {
                return;
            }
            let read = self.reads.iter().map(|read| read.since.max(self.free)).min();
            let (urgent, back) = self.writes_back_at();
            let Some(at) = read.into_iter().chain(back).min() else { return };
            if at > now {
                self.wake = Some(at);
                return;
            }
            let writes =
                back.is_some_and(|back| back <= at) && (read.is_none_or(|read| read > at) || urgent && self.turn);
            self.turn = if urgent { !writes } else { self.turn };
            if !(if writes { self.write_back(at) } else { self.serve(at) }) {
                return;
            }
        }
    }

    /// Whether writing back presses, and when it begins.
    fn writes_back_at(&self) -> (bool, Option<u64>) {
        let Some(first) = self.dirty.first() else { return (false, None) };
        let class = &self.policy.class;
        let full =
            self.dirty_bytes * 4 > class.write_cache.0 * 3 || self.dirty.len() * 4 > class.write_cache_ranges * 3;
        let urgent = full || !self.flushes.is_empty() || !self.blocked.is_empty();
        let oldest = self.dirty.iter().take(8).map(|dirty| dirty.since).min().unwrap_or(first.since);
        let quiet = self.last_host + self.policy.idle;
        let wanted = if full { 0 } else { self.flushes.front().map_or(0, |(_, _, since)| *since) };
        let alone = if self.dirty.len() == 1 { oldest } else { 0 };
        (urgent, Some(self.free.max(if urgent { wanted.max(alone) } else { quiet.max(oldest) })))
    }

    fn end(&mut self, work: Work) {
        let Work { bytes, until, what } = work;
        (self.free, self.at) = (until, bytes.end);
        let command = match what {
            What::WritesBack(_) => {
                self.dirty_bytes -= bytes.end - bytes.start;
                while self.blocked.front().is_some_and(|(next, _)| self.has_room(next.bytes.end - next.bytes.start)) {
                    let Some((next, epoch)) = self.blocked.pop_front() else { break };
                    self.cache(next, epoch, until);
                }
                return self.end_flushes(until);
            }
            What::Serves(command) => command,
        };
        self.last_host = until;
        self.answer(command.id, until + self.policy.class.overhead);
        if command.writes {
            return;
        }
        let (ahead, clock) = (self.policy.class.read_ahead.0, self.clock + 1);
        let follows = (0..BUFFERS).rfind(|nth| {
            let (buffer, _) = &self.buffers[*nth];
            buffer.end == bytes.start && buffer.start < buffer.end
        });
        let oldest = || (0..BUFFERS).min_by_key(|nth| self.buffers[*nth].1).unwrap_or(0);
        let nth = follows.unwrap_or_else(oldest);
        let start = if follows.is_some() { self.buffers[nth].0.start } else { bytes.start };
        self.buffers[nth] = (start.max(bytes.end.saturating_sub(2 * ahead + (1 << 20)))..bytes.end, clock);
        self.clock = clock;
        self.ahead = (ahead > 0).then_some((nth, bytes.end + ahead));
    }

    /// Serves the command that is nearest; whether there was one.
    fn serve(&mut self, at: u64) -> bool {
        let head = self.head(at);
        let mut best: Option<(i128, usize, u64)> = None;
        for (nth, read) in self.reads.iter().enumerate().filter(|(_, read)| read.since <= at) {
            let mut from = read.bytes.start;
            if !read.writes {
                for buffer in 0..BUFFERS {
                    let held = self.held(buffer, at);
                    from = if held.start <= from && from < held.end { held.end } else { from };
                }
                if from >= read.bytes.end || self.is_dirty(&read.bytes) {
                    let read = self.reads.remove(nth);
                    self.answer_over(read.id, read.bytes.end - read.bytes.start, at);
                    return true;
                }
            }
            let way = match self.ahead {
                Some((_, limit)) if !read.writes && head < limit && (head..=limit).contains(&from) => {
                    self.tau(from) - self.tau(head)
                }
                _ => self.way(at, head, from, read.writes),
            };
            let age = at - read.since;
            let waited = if age > 1_000_000_000 { 1_000_000_000_000 } else { 0 };
            let cost = i128::from(way) - i128::from(age / 50) - waited;
            if best.is_none_or(|(least, _, _)| cost < least) {
                best = Some((cost, nth, from));
            }
        }
        let Some((_, nth, from)) = best else { return false };
        let read = self.reads.remove(nth);
        self.begin(at, from..read.bytes.end, What::Serves(read));
        true
    }

    /// Writes back what is nearest, or oldest; whether there is anything.
    fn write_back(&mut self, at: u64) -> bool {
        let head = self.head(at);
        let until = self.flushes.front().map_or(u64::MAX, |(_, epoch, _)| *epoch);
        let border = self.dirty.partition_point(|dirty| dirty.bytes.end <= head);
        let due = |nth: &usize| self.dirty[*nth].epoch <= until;
        let above = (border..self.dirty.len()).filter(due).take(self.policy.compared);
        let below = (0..border).rev().filter(due).take(self.policy.compared);
        let oldest = (0..self.dirty.len()).filter(due).min_by_key(|nth| self.dirty[*nth].since);
        let cost = |nth: &usize| {
            let dirty = &self.dirty[*nth];
            let way = self.way(at, head, dirty.bytes.start, true);
            i128::from(way) - i128::from(at.saturating_sub(dirty.since) / 500)
        };
        let Some(nth) = above.chain(below).chain(oldest).min_by_key(cost) else {
            self.turn = false;
            self.end_flushes(at);
            return !self.reads.is_empty();
        };
        let Dirty { bytes, epoch, .. } = self.dirty[nth].clone();
        let end = bytes.end.min(bytes.start + self.policy.chunk);
        if end == bytes.end {
            self.dirty.remove(nth);
        } else {
            self.dirty[nth].bytes.start = end;
        }
        self.begin(at, bytes.start..end, What::WritesBack(epoch));
        true
    }

    fn begin(&mut self, at: u64, bytes: Range<u64>, what: What) {
        let head = self.head(at);
        let reads = matches!(&what, What::Serves(command) if !command.writes);
        let follows =
            self.ahead.filter(|(_, limit)| reads && head < *limit && (self.at..=*limit).contains(&bytes.start));
        if follows.is_some() {
            // It just goes on: counted from where reading on began, lest the angle is missed.
            let until = (self.free + self.tau(bytes.end) - self.tau(self.at)).max(at);
            self.ahead = None;
            self.work = Some(Work { bytes: self.at..bytes.end, until, what });
            return;
        }
        self.stop(at);
        let way = self.way(at.max(self.free), self.at, bytes.start, !reads);
        let until = at.max(self.free) + way + self.tau(bytes.end) - self.tau(bytes.start);
        self.work = Some(Work { bytes, until, what });
    }

    /// Stops reading on; what came by is in the buffer.
    fn stop(&mut self, at: u64) {
        let reached = self.head(at);
        let Some((nth, _)) = self.ahead.take() else { return };
        self.buffers[nth].0.end = self.buffers[nth].0.end.max(reached);
        (self.at, self.free) = (reached, self.free.max(at));
    }

    /// What a buffer holds by now.
    fn held(&self, nth: usize, now: u64) -> Range<u64> {
        let (buffer, _) = &self.buffers[nth];
        let ahead = self.ahead.is_some_and(|(ahead, _)| ahead == nth);
        buffer.start..if ahead { self.head(now) } else { buffer.end }
    }

    /// The byte under the head.
    fn head(&self, now: u64) -> u64 {
        let Some((_, limit)) = self.ahead.filter(|_| now > self.free) else { return self.at };
        let passed = u128::from(now - self.free) * u128::from(self.policy.class.outer_rate) / 1_000_000_000;
        (self.at + passed as u64).min(limit)
    }

    /// How long until the head is over a byte.
    fn way(&self, now: u64, head: u64, to: u64, writes: bool) -> u64 {
        let class = &self.policy.class;
        let track = |at: u64| self.tau(at) / class.revolution;
        let seek = match track(head).abs_diff(track(to)) {
            0 => 0,
            1..=2 => class.settle,
            _ => {
                let part = head.abs_diff(to) as f64 / class.capacity.0 as f64;
                class.settle + (class.seek_root as f64 * part.sqrt() + class.seek_linear as f64 * part) as u64
            }
        };
        let seek = if seek > 0 && writes { seek + class.write_settle } else { seek };
        let arrives = (now + seek) % class.revolution;
        let turn = (self.tau(to) % class.revolution + class.revolution - arrives) % class.revolution;
        seek + if turn > class.revolution - JUST { 0 } else { turn }
    }

    fn tau(&self, at: u64) -> u64 {
        span(at, self.policy.class.outer_rate)
    }
}

fn span(len: u64, rate: u64) -> u64 {
    (u128::from(len) * 1_000_000_000 / u128::from(rate)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaces::array::{Array, Kind, Part};
    use weft_engine::units::ByteCount;
    use weft_engine::world::World;

    fn took(asks: impl AsyncFnOnce(&Array) + 'static) -> f64 {
        let class = HddClass {
            capacity: ByteCount::gib(1),
            outer_rate: 180_000_000,
            inner_rate: 180_000_000,
            write_cache: ByteCount::mib(32),
            ..HddClass::HDD_7200_8TB
        };
        let policy = Policy { class, idle: 1_000_000, chunk: 1536 << 10, compared: 16 };
        let array = Array::new(&[Kind::Waits(policy)]);
        let world = array.world.clone();
        let nanos = world.clone().block_on(async move {
            asks(&array).await;
            world.now().0
        });
        nanos.expect("a sound disk answers") as f64 / 1e9
    }

    #[test]
    fn streams_have_its_rate_and_bursts_that_of_the_interface() {
        let part = |nth: u64| Part { disk: 0, at: nth << 20, len: 1 << 20 };
        let writes = took(async move |array: &Array| {
            for nth in 0..256 {
                array.write(&[part(nth)]).await;
            }
            array.flush_all().await;
        });
        let reads = took(async move |array: &Array| {
            for nth in 0..256 {
                array.read(&[part(nth)]).await;
            }
        });
        let burst = took(async move |array: &Array| array.write(&(0..8).map(part).collect::<Vec<_>>()).await);
        let least = 256.0 * 1048576.0 / 180e6;
        assert!((least..1.05 * least).contains(&writes) && (least..1.05 * least).contains(&reads), "{writes} {reads}");
        assert!(burst < 0.4 * 8.0 * 1048576.0 / 180e6, "{burst}");
    }

    #[test]
    fn a_flush_waits_for_what_was_written_before_it_and_a_read_of_what_is_dirty_for_nothing() {
        let far = |nth: u64| Part { disk: 0, at: (nth * 7919 % 100_000) << 12, len: 4096 };
        let cached = took(async move |array: &Array| {
            for nth in 0..64 {
                array.write(&[far(nth)]).await;
                array.read(&[far(nth)]).await;
            }
        });
        let flushed = took(async move |array: &Array| {
            for nth in 0..64 {
                array.write(&[far(nth)]).await;
            }
            array.flush_all().await;
        });
        assert!(cached < 0.02 && flushed > 0.1 && flushed < 0.6, "{cached} {flushed}");
    }
}
