//! A hard disk: one arm, one spindle, a queue, a cache.
//!
//! The model
//! 1. **Geometry.** The tracks are one spiral. [`Platter::tau`] says when the head would reach a byte if it had
//!    followed the spiral from the start of the disk: sequential access is exactly the zone's rate (head and track
//!    switches are folded into it, as in published sustained rates), the angle of a byte is its tau modulo one
//!    revolution, and the distance between two bytes is the difference of their taus.
//! 2. **Positioning.** Settling + a square-root part (acceleration) + a linear part (coasting), then waiting for the
//!    angle. Within one revolution ahead there is no seek: the head waits on its track.
//! 3. **Queue.** The host hands over at most `queue` commands (SATA: 32). Reads are served shortest positioning first;
//!    one that has waited too long goes first.
//! 4. **Write cache.** A write completes when it has crossed the interface into the cache, and waits when there is no
//!    room. Dirty ranges merge, so the order of arrival within the cache does not matter. They go to the medium upwards
//!    from the head (the shortest positioning among the next few), once there are enough of them, or they are old, or
//!    room or a flush wants it; until then reads go first. When both press, they take turns.
//! 5. **Flush.** SATA's FLUSH CACHE is not queued: it waits for the commands in the disk, and none enters before the
//!    cache is empty.
//! 6. **Read-ahead.** With nothing better to do after a read, the head goes on reading into the buffer, where later
//!    reads find it. A few such segments are remembered.
//! 7. **Write-through.** Such a write (FUA) is queued and sorted as reads are, and answered when it is on the medium.

use super::extents::Extents;
use super::{Agenda, Op, Timing, span_of};
use std::collections::VecDeque;
use std::ops::Range;
use weft_engine::io::DiskShape;
use weft_engine::units::{ByteCount, Nanos};

/// One piece of work for the arm; long transfers are cut so that others get their turn.
const PIECE: u64 = 1 << 20;
/// How much is written before a read gets its turn, when both press.
const TURN: u64 = 4 << 20;
/// How many dirty ranges above the head are compared.
const WINDOW: usize = 64;
/// Dirty bytes that make writing back worthwhile.
const WORTHWHILE: u64 = 4 << 20;
/// Dirty bytes are written back after this long in any case.
const IDLE: u64 = 50_000_000;
/// A read older than this goes first.
const TIMEOUT: u64 = 500_000_000;
/// Read-ahead segments remembered.
const SEGMENTS: usize = 16;
/// From this length on it is a stream.
const STREAM: u64 = 1 << 20;
/// The longest of them.
const SEGMENT_MAX: u64 = 16 << 20;

/// A class of hard disks; times in nanoseconds, rates in bytes per second.
#[derive(Clone, Debug)]
pub struct HddClass {
    /// Its name in tables.
    pub name: &'static str,
    /// Size of the whole disk, whose geometry it is; the simulated disk may use less of it.
    pub capacity: ByteCount,
    /// One revolution.
    pub revolution: u64,
    /// Sustained rate of the outermost zone.
    pub outer_rate: u64,
    /// Sustained rate of the innermost zone.
    pub inner_rate: u64,
    /// Zones in between, equal in bytes.
    pub zones: u64,
    /// The least a seek takes (track to track).
    pub settle: u64,
    /// The square-root part of a seek over the whole stroke.
    pub seek_root: u64,
    /// The linear part of a seek over the whole stroke.
    pub seek_linear: u64,
    /// What a seek takes longer before writing.
    pub write_settle: u64,
    /// Command overhead.
    pub overhead: u64,
    /// Interface rate.
    pub interface_rate: u64,
    /// Room for written data.
    pub write_cache: ByteCount,
    /// The most separate dirty ranges in it.
    pub write_cache_ranges: usize,
    /// How far it reads ahead.
    pub read_ahead: ByteCount,
    /// Commands in the disk at once.
    pub queue: usize,
}

impl HddClass {
    /// A 7200 rpm nearline SATA disk of 8 TB, the class of Seagate Exos 7E8 and WD Ultrastar DC HC310/HC320. The
    /// mechanics follow the HC310's OEM manual: average seek 7.4 ms (write 8.2), track to track 0.23 ms (write 0.32),
    /// latency 4.16 ms; seeks are a little longer here (8 ms), as the larger sisters' are. What is usual in the class
    /// rather than stated by one data sheet: about 250 MB/s outside and half of that inside, 256 MB of cache, random 4
    /// KiB reads at some 80 IOPS alone and 160..250 at queue depth 32, cached random writes at 250..550.
    pub const HDD_7200_8TB: HddClass = HddClass {
        name: "HDD_7200_8TB",
        capacity: ByteCount(8_001_563_222_016),
        revolution: 8_333_333,
        outer_rate: 250_000_000,
        inner_rate: 120_000_000,
        zones: 24,
        settle: 230_000,
        seek_root: 12_300_000,
        seek_linear: 3_300_000,
        write_settle: 600_000,
        overhead: 60_000,
        interface_rate: 550_000_000,
        write_cache: ByteCount::mib(192),
        write_cache_ranges: 1024,
        read_ahead: ByteCount::mib(4),
        queue: 32,
    };

    /// What such a disk reports about itself, of the given size (at most the class's: the outer part of it).
    pub fn shape(&self, capacity: ByteCount) -> DiskShape {
        assert!(capacity <= self.capacity, "a {} has {}", self.name, self.capacity);
        DiskShape { capacity, physical_sector: 4096, rotational: true }
    }
}

/// Where bytes are on the platters.
struct Platter {
    revolution: u64,
    zone_len: u64,
    /// Rate of each zone, and the tau of its first byte.
    zones: Vec<(u64, u64)>,
    /// The tau of the end: the whole stroke.
    stroke: u64,
}

impl Platter {
    fn new(class: &HddClass) -> Platter {
        let zone_len = class.capacity.0.div_ceil(class.zones);
        let fall = (class.outer_rate - class.inner_rate) / (class.zones - 1).max(1);
        let mut tau = 0;
        let mut zones = Vec::new();
        for no in 0..class.zones {
            let rate = class.outer_rate - no * fall;
            zones.push((rate, tau));
            tau += span_of(zone_len, rate);
        }
        Platter { revolution: class.revolution, zone_len, zones, stroke: tau }
    }

    /// When the head would reach byte `at` if it started with the disk.
    fn tau(&self, at: u64) -> u64 {
        let zone = (at / self.zone_len).min(self.zones.len() as u64 - 1);
        let (rate, tau) = self.zones[zone as usize];
        tau + span_of(at - zone * self.zone_len, rate)
    }

    /// The byte that the head has reached at `tau`, rounded down to whole blocks.
    fn byte(&self, tau: u64) -> u64 {
        let zone = self.zones.partition_point(|(_, start)| *start <= tau) - 1;
        let (rate, start) = self.zones[zone];
        let into = u128::from(tau - start) * u128::from(rate) / 1_000_000_000;
        (zone as u64 * self.zone_len + into as u64) & !4095
    }
}

/// A hard disk's queue.
pub struct Hdd {
    class: HddClass,
    platter: Platter,
    /// How far it had turned when time began, in nanoseconds.
    phase: u64,
    /// Not yet in the disk.
    host: VecDeque<(u64, Op)>,
    /// Commands in the disk.
    inside: usize,
    reads: Vec<Read>,
    /// Waiting for room in the cache.
    blocked: VecDeque<(u64, Range<u64>)>,
    flush: Option<u64>,
    dirty: Extents,
    /// Reserved by writes that are crossing the interface.
    promised: u64,
    dirty_since: Nanos,
    destaging: bool,
    /// Written since the last read had its turn.
    turn: u64,
    interface_free: Nanos,
    crossing: Agenda<Crossing>,
    arm: Arm,
    segments: VecDeque<Range<u64>>,
}

/// A read, or a write-through: what the arm has to serve before it is answered.
struct Read {
    id: u64,
    range: Range<u64>,
    since: Nanos,
    writes: bool,
}

enum Crossing {
    /// The answer has reached the host.
    Answer(u64),
    /// A write's data is in the cache.
    Cached(u64, Range<u64>),
}

enum Arm {
    /// Over byte `at`, doing nothing useful.
    Rests { at: u64 },
    /// Reading ahead into `segments[0]`: it was at byte `from` at `since`.
    Ahead { from: u64, since: Nanos },
    /// Reading until `until`; the whole segment will be in the buffer then.
    Reads { read: Read, segment: Range<u64>, until: Nanos },
    /// Writing until `until`.
    Writes { range: Range<u64>, until: Nanos },
}

impl Hdd {
    /// A disk of this class with an empty queue.
    pub fn new(class: HddClass) -> Hdd {
        Hdd {
            platter: Platter::new(&class),
            phase: 0,
            class,
            host: VecDeque::new(),
            inside: 0,
            reads: Vec::new(),
            blocked: VecDeque::new(),
            flush: None,
            dirty: Extents::default(),
            promised: 0,
            dirty_since: Nanos(0),
            destaging: false,
            turn: 0,
            interface_free: Nanos(0),
            crossing: Agenda::new(),
            arm: Arm::Rests { at: 0 },
            segments: VecDeque::new(),
        }
    }
}

impl Hdd {
    /// A disk of this class with an empty queue, the `nth` of many: no two of them have turned as far as each other, as
    /// disks in a machine have not.
    pub fn among(class: HddClass, nth: usize) -> Hdd {
        // Multiples of the golden ratio lie as far apart on the circle as that many points can.
        let phase = (nth as f64 * 0.618_033_988_75).fract() * class.revolution as f64;
        Hdd { phase: phase as u64, ..Hdd::new(class) }
    }
}

impl Timing for Hdd {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        self.host.push_back((id, op));
        self.admit(now);
        self.occupy_arm(now);
    }

    fn next(&self) -> Option<Nanos> {
        let arm = match &self.arm {
            Arm::Reads { until, .. } | Arm::Writes { until, .. } => Some(*until),
            Arm::Rests { .. } | Arm::Ahead { .. } => (!self.dirty.is_empty()).then(|| self.dirty_since + Nanos(IDLE)),
        };
        [arm, self.crossing.next()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<u64>) {
        while let Some(at) = self.next().filter(|at| *at <= now) {
            while let Some(crossing) = self.crossing.take(at) {
                match crossing {
                    Crossing::Answer(id) => self.leave(id, done),
                    Crossing::Cached(id, range) => {
                        self.promised -= range.end - range.start;
                        self.cache(at, range);
                        self.leave(id, done);
                    }
                }
            }
            self.release_arm(at);
            self.admit(at);
            self.occupy_arm(at);
        }
    }

    fn reset(&mut self) {
        *self = Hdd { phase: self.phase, ..Hdd::new(self.class.clone()) };
    }
}

// Commands.
impl Hdd {
    /// Takes commands in while there is room in the queue.
    fn admit(&mut self, now: Nanos) {
        while self.inside < self.class.queue && self.flush.is_none() {
            let Some((id, op)) = self.host.front().copied() else { break };
            if op == Op::Flush && self.inside > 0 {
                break;
            }
            self.host.pop_front();
            self.inside += 1;
            match op {
                Op::Read(at, len) => self.take_read(now, id, at.0..at.0 + len.0),
                Op::Write(at, len) => self.blocked.push_back((id, at.0..at.0 + len.0)),
                Op::WriteThrough(at, len) => {
                    self.cross(now, len.0);
                    let range = at.0..at.0 + len.0;
                    self.forget_stale(now, &range);
                    self.reads.push(Read { id, range, since: now, writes: true });
                }
                Op::Flush => self.flush = Some(id),
                Op::Discard(..) => self.crossing.put(now + Nanos(self.class.overhead), Crossing::Answer(id)),
            }
        }
        self.unblock(now);
        if self.dirty.is_empty()
            && self.promised == 0
            && !matches!(self.arm, Arm::Writes { .. })
            && let Some(id) = self.flush.take()
        {
            self.crossing.put(now + Nanos(self.class.overhead), Crossing::Answer(id));
        }
    }

    fn leave(&mut self, id: u64, done: &mut Vec<u64>) {
        self.inside -= 1;
        done.push(id);
    }

    fn take_read(&mut self, now: Nanos, id: u64, range: Range<u64>) {
        let remembered = self.segments.iter().skip(usize::from(matches!(self.arm, Arm::Ahead { .. })));
        let mut remembered = remembered.cloned().chain(self.ahead(now).map(|(segment, _)| segment));
        let in_buffer = remembered.any(|segment| segment.start <= range.start && range.end <= segment.end);
        if in_buffer || self.dirty.covers(range.clone()) {
            self.answer_read(now, id, range.end - range.start);
        } else {
            self.reads.push(Read { id, range, since: now, writes: false });
        }
    }

    /// Lets writes into the cache, first come first served, while there is room.
    fn unblock(&mut self, now: Nanos) {
        while let Some((_, range)) = self.blocked.front() {
            let len = range.end - range.start;
            let writing = if let Arm::Writes { range, .. } = &self.arm { range.end - range.start } else { 0 };
            let held = self.dirty.bytes() + self.promised + writing;
            // A write larger than the cache goes when the cache is empty.
            let room = held + len <= self.class.write_cache.0 || held == 0;
            let place = self.dirty.count() < self.class.write_cache_ranges || self.dirty.would_merge(range);
            if !room || !place {
                return;
            }
            let Some((id, range)) = self.blocked.pop_front() else { return };
            self.promised += len;
            let at = self.cross(now, len);
            self.crossing.put(at, Crossing::Cached(id, range));
        }
    }

    /// When `len` bytes will have crossed the interface.
    fn cross(&mut self, now: Nanos, len: u64) -> Nanos {
        let start = self.interface_free.max(now);
        self.interface_free = start + Nanos(span_of(len, self.class.interface_rate));
        self.interface_free + Nanos(self.class.overhead)
    }

    fn cache(&mut self, now: Nanos, range: Range<u64>) {
        if self.dirty.is_empty() {
            self.dirty_since = now;
        }
        self.forget_stale(now, &range);
        self.dirty.insert(range);
    }
}

// The arm.
impl Hdd {
    /// What was read before `range` was written is not what is there any more.
    fn forget_stale(&mut self, now: Nanos, range: &Range<u64>) {
        if let Some((reached, _)) = self.ahead(now)
            && range.start < reached.end + PIECE
            && reached.start < range.end
        {
            // Even what comes under the head next may be stale: it stops.
            self.arm = Arm::Rests { at: reached.end };
            self.segments[0] = reached;
        }
        self.segments.retain(|segment| segment.end <= range.start || range.end <= segment.start);
    }

    /// What is being read ahead, as far as it has come, and whether it still goes on.
    fn ahead(&self, now: Nanos) -> Option<(Range<u64>, bool)> {
        let Arm::Ahead { from, since } = self.arm else { return None };
        let start = self.segments.front().map_or(from, |segment| segment.start);
        let reached = self.platter.byte(self.platter.tau(from) + now.since(since).0).max(from);
        let limit = from + self.class.read_ahead.0;
        Some((start..reached.min(limit), reached < limit))
    }

    /// Ends what ends at `now`.
    fn release_arm(&mut self, now: Nanos) {
        match std::mem::replace(&mut self.arm, Arm::Rests { at: 0 }) {
            Arm::Reads { read, until, .. } if until <= now && read.writes => {
                self.arm = Arm::Rests { at: read.range.end };
                self.answer_read(now, read.id, 0);
            }
            Arm::Reads { read, segment, until } if until <= now => {
                self.arm = Arm::Ahead { from: read.range.end, since: now };
                self.answer_read(now, read.id, 0);
                self.segments.push_front(segment);
                self.segments.truncate(SEGMENTS);
                self.answer_from_buffer(now);
            }
            Arm::Writes { range, until } if until <= now => {
                self.turn += range.end - range.start;
                self.arm = Arm::Rests { at: range.end };
                self.dirty_since = now;
            }
            other => self.arm = other,
        }
    }

    /// Answers the waiting reads that the newest segment holds.
    fn answer_from_buffer(&mut self, now: Nanos) {
        let Some(segment) = self.segments.front().cloned() else { return };
        for read in std::mem::take(&mut self.reads) {
            if !read.writes && segment.start <= read.range.start && read.range.end <= segment.end {
                self.answer_read(now, read.id, read.range.end - read.range.start);
            } else {
                self.reads.push(read);
            }
        }
    }

    /// Answers a read, `left` bytes of which have still to cross the interface.
    fn answer_read(&mut self, now: Nanos, id: u64, left: u64) {
        let at = self.cross(now, left);
        self.crossing.put(at, Crossing::Answer(id));
    }

    /// Gives a free arm the most pressing work.
    fn occupy_arm(&mut self, now: Nanos) {
        if matches!(self.arm, Arm::Reads { .. } | Arm::Writes { .. }) {
            return;
        }
        let pressing =
            self.flush.is_some() || !self.blocked.is_empty() || self.dirty.bytes() >= self.class.write_cache.0 / 4 * 3;
        let old = now.since(self.dirty_since).0 >= IDLE;
        let reason = self.destaging || pressing || old || self.dirty.bytes() >= WORTHWHILE;
        self.destaging = reason && !self.dirty.is_empty();
        let reads_first = !pressing || self.turn >= TURN || !self.destaging;
        if reads_first && !self.reads.is_empty() {
            self.turn = 0;
            self.begin_read(now);
        } else if self.destaging {
            self.begin_write(now);
        }
    }

    fn begin_read(&mut self, now: Nanos) {
        let head = self.head(now);
        let patient = |read: &Read| now.since(read.since).0 < TIMEOUT;
        // Those out of patience first, the oldest of them first; then the nearest.
        let Some(best) = (0..self.reads.len()).min_by_key(|no| {
            let read = &self.reads[*no];
            let wait = if patient(read) { self.way_to_read(now, head, read).0 } else { 0 };
            (patient(read), wait, read.since, read.id)
        }) else {
            return;
        };
        let (_, until, segment) = self.way_to_read(now, head, &self.reads[best]);
        let read = self.reads.swap_remove(best);
        self.leave_segment(now, !read.writes && segment.start < read.range.start);
        if read.writes {
            // What the cache held for this place is superseded.
            self.dirty.remove(read.range.clone());
        }
        self.arm = Arm::Reads { read, segment, until };
    }

    /// How long until a read begun now gets its first byte, when it would end, and which segment would be in the buffer
    /// then. A read-ahead that is about to come past just goes on, and what lies between stays in the buffer; to leave
    /// a stream for another place counts as half a revolution more than it takes.
    fn way_to_read(&self, now: Nanos, head: u64, read: &Read) -> (u64, Nanos, Range<u64>) {
        let Range { start, end } = read.range;
        let mut reluctance = 0;
        if let (Some((segment, true)), Arm::Ahead { from, since }) = (self.ahead(now), &self.arm) {
            let track_end = self.platter.tau(segment.end) + self.platter.revolution;
            if !read.writes && segment.start <= start && self.platter.tau(start) < track_end && end > segment.end {
                // Counted from where the read-ahead began: not a nanosecond may get lost, or the angle is missed.
                let until = *since + Nanos(self.platter.tau(end) - self.platter.tau(*from));
                let wait = self.platter.tau(start).saturating_sub(self.platter.tau(segment.end));
                return (wait, until.max(now), segment.start.max(end.saturating_sub(SEGMENT_MAX))..end);
            }
            if segment.end - segment.start >= STREAM {
                reluctance = self.platter.revolution / 2;
            }
        }
        let settle = if read.writes { self.class.write_settle } else { 0 };
        let wait = self.positioning(now, head, start, settle);
        let until = now + Nanos(wait + self.platter.tau(end) - self.platter.tau(start));
        (wait + reluctance, until, start..end)
    }

    fn begin_write(&mut self, now: Nanos) {
        let head = self.head(now);
        let candidates = self.dirty.upwards(head, WINDOW);
        let with_wait =
            candidates.map(|range| (self.positioning(now, head, range.start, self.class.write_settle), range));
        let Some((wait, range)) = with_wait.min_by_key(|(wait, range)| (*wait, range.start)) else { return };
        let range = range.start..range.end.min(range.start + PIECE);
        self.leave_segment(now, false);
        let span = self.platter.tau(range.end) - self.platter.tau(range.start);
        // Whatever is written to the same place from now on is dirty again.
        self.dirty.remove(range.clone());
        self.arm = Arm::Writes { range, until: now + Nanos(wait + span) };
    }

    /// The byte under the head.
    fn head(&self, now: Nanos) -> u64 {
        match &self.arm {
            Arm::Rests { at } => *at,
            Arm::Ahead { from, .. } => self.ahead(now).map_or(*from, |(segment, _)| segment.end),
            Arm::Reads { read, .. } => read.range.end,
            Arm::Writes { range, .. } => range.end,
        }
    }

    /// The arm leaves its read-ahead: notes how far that came, unless the next read takes it over.
    fn leave_segment(&mut self, now: Nanos, taken_over: bool) {
        let Some((reached, _)) = self.ahead(now) else { return };
        self.segments.pop_front();
        if !taken_over {
            self.segments.push_front(reached);
        }
    }

    /// How long until the head is over byte `to`; `settle` more if it has to seek.
    fn positioning(&self, now: Nanos, head: u64, to: u64, settle: u64) -> u64 {
        let (seek, target) = self.seek(head, to);
        let seek = if seek > 0 { seek + settle } else { 0 };
        let turn = self.platter.revolution;
        let arrives = (now.0 + self.phase + seek) % turn;
        seek + (target % turn + turn - arrives) % turn
    }

    /// The seek from byte to byte, and the tau of the target.
    fn seek(&self, head: u64, to: u64) -> (u64, u64) {
        let (here, there) = (self.platter.tau(head), self.platter.tau(to));
        if there >= here && there - here < self.platter.revolution {
            return (0, there);
        }
        let part = here.abs_diff(there) as f64 / self.platter.stroke as f64;
        let flight = self.class.seek_root as f64 * part.sqrt() + self.class.seek_linear as f64 * part;
        (self.class.settle + flight as u64, there)
    }
}
