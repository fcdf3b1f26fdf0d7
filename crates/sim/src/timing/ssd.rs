//! A solid-state disk: dies behind one controller, one interface and a write buffer.
//!
//! The model
//! 1. **Commands.** The controller starts one command after the other, `command` apart, at most `queue` at once.
//! 2. **Reads.** Flash is read in pages of 16 KiB, each on the die its number falls to; dies work side by side, pages
//!    of one die one after the other. What was read crosses the interface in turn.
//! 3. **Writes.** Data crosses the interface into the buffer and is answered there. The buffer empties at the sustained
//!    program rate; with no room left, writes wait for it.
//! 4. **Flush.** Takes until what is in the buffer is programmed, and `flush` more. On SATA it is not queued: it waits
//!    for the commands before it, and those after it wait for it. A write-through takes the time of both, and keeps
//!    nobody waiting.
//!
//! Everything follows from the moment of submission, so the model needs no inner steps. Garbage collection and the
//! slowing down of reads by programming are not modelled: they depend on history that no data sheet gives.

use super::{Agenda, Op, Timing, span_of};
use crate::rng::mix;
use weft_engine::io::DiskShape;
use weft_engine::units::{BLOCK, ByteCount, Nanos};

/// Bytes that are read from a die at once.
const PAGE: u64 = 16 << 10;

/// A class of solid-state disks; times in nanoseconds, rates in bytes per second.
#[derive(Clone, Debug)]
pub struct SsdClass {
    /// Its name in tables.
    pub name: &'static str,
    /// Size.
    pub capacity: ByteCount,
    /// Dies that can be read side by side.
    pub dies: u64,
    /// Time to read a page of a die.
    pub die_read: u64,
    /// Between the starts of two reads or flushes.
    pub command: u64,
    /// Between the starts of two writes.
    pub write_command: u64,
    /// From the data's arrival in the buffer to the answer.
    pub answer: u64,
    /// Interface rate, towards the host.
    pub read_rate: u64,
    /// Interface rate, from the host.
    pub write_rate: u64,
    /// Rate at which the buffer empties.
    pub program_rate: u64,
    /// Size of the buffer.
    pub buffer: ByteCount,
    /// What a flush takes beyond emptying the buffer.
    pub flush: u64,
    /// Commands at once.
    pub queue: usize,
    /// Whether flushes are not queued (SATA).
    pub flush_exclusive: bool,
}

impl SsdClass {
    /// A SATA SSD: the class of Samsung 870 EVO 1 TB. Its data sheet says: 560/530 MB/s sequential, 4 KiB random
    /// reads/writes 98k/88k per second at depth 32 and 13k/36k at depth 1.
    pub const SATA_SSD: SsdClass = SsdClass {
        name: "SATA_SSD",
        capacity: ByteCount(1_000_204_886_016),
        dies: 32,
        die_read: 58_000,
        command: 10_300,
        write_command: 11_400,
        answer: 8_700,
        read_rate: 560_000_000,
        write_rate: 530_000_000,
        program_rate: 530_000_000,
        buffer: ByteCount::mib(32),
        flush: 1_000_000,
        queue: 32,
        flush_exclusive: true,
    };

    /// An NVMe SSD behind PCIe 3.0 x4: the class of Samsung 970 EVO Plus 1 TB. Its data sheet says: 3500/3300 MB/s
    /// sequential, 4 KiB random 19k reads and 60k writes per second at depth 1, and at most 600k/550k at depth 32, of
    /// which a review measured 355k writes.
    pub const NVME_SSD: SsdClass = SsdClass {
        name: "NVME_SSD",
        capacity: ByteCount(1_000_204_886_016),
        dies: 64,
        die_read: 48_000,
        command: 2_000,
        write_command: 2_200,
        answer: 12_800,
        read_rate: 3_500_000_000,
        write_rate: 3_300_000_000,
        program_rate: 3_300_000_000,
        buffer: ByteCount::mib(64),
        flush: 400_000,
        queue: 1024,
        flush_exclusive: false,
    };

    /// What such a disk reports about itself, of the given size (at most the class's).
    pub fn shape(&self, capacity: ByteCount) -> DiskShape {
        assert!(capacity <= self.capacity, "a {} has {}", self.name, self.capacity);
        DiskShape { capacity, physical_sector: 4096, rotational: false }
    }
}

/// A solid-state disk's queue.
pub struct Ssd {
    class: SsdClass,
    agenda: Agenda<u64>,
    /// The moments at which the commands inside end.
    inside: Agenda<()>,
    last_end: Nanos,
    controller_free: Nanos,
    die_free: Vec<Nanos>,
    to_host_free: Nanos,
    from_host_free: Nanos,
    /// When the buffer will be empty.
    programmed: Nanos,
    /// No command starts before this.
    barrier: Nanos,
}

impl Ssd {
    /// A disk of this class with an empty queue.
    pub fn new(class: SsdClass) -> Ssd {
        Ssd {
            agenda: Agenda::new(),
            inside: Agenda::new(),
            last_end: Nanos(0),
            controller_free: Nanos(0),
            die_free: vec![Nanos(0); class.dies as usize],
            to_host_free: Nanos(0),
            from_host_free: Nanos(0),
            programmed: Nanos(0),
            barrier: Nanos(0),
            class,
        }
    }

    /// When a command submitted now gets a place in the queue and its turn at the controller.
    fn start(&mut self, now: Nanos, gap: u64) -> Nanos {
        while self.inside.take(now).is_some() {}
        let mut start = now.max(self.barrier).max(self.controller_free);
        if self.inside.entries.len() >= self.class.queue
            && let Some(freed) = self.inside.next()
        {
            self.inside.take(freed);
            start = start.max(freed);
        }
        self.controller_free = start + Nanos(gap);
        self.controller_free
    }

    fn read(&mut self, start: Nanos, at: u64, len: u64) -> Nanos {
        let (mut page, end) = (at / PAGE, at + len);
        let mut done = start;
        while page * PAGE < end {
            // Consecutive pages fall on consecutive dies, in another order in each round.
            let round = page / self.class.dies;
            let die = ((page ^ mix(round)) % self.class.dies) as usize;
            let read = self.die_free[die].max(start) + Nanos(self.class.die_read);
            self.die_free[die] = read;
            let part = end.min((page + 1) * PAGE) - at.max(page * PAGE);
            self.to_host_free = self.to_host_free.max(read) + Nanos(span_of(part, self.class.read_rate));
            done = done.max(self.to_host_free);
            page += 1;
        }
        done
    }

    fn write(&mut self, start: Nanos, len: u64) -> Nanos {
        // Room: what is not yet programmed when the last byte arrives must fit.
        let backlog_max = span_of(self.class.buffer.0.saturating_sub(len), self.class.program_rate);
        let room_at = Nanos(self.programmed.0.saturating_sub(backlog_max));
        let arrives = self.from_host_free.max(start).max(room_at) + Nanos(span_of(len, self.class.write_rate));
        self.from_host_free = arrives;
        self.programmed = self.programmed.max(start) + Nanos(span_of(len.max(BLOCK), self.class.program_rate));
        arrives + Nanos(self.class.answer)
    }
}

impl Timing for Ssd {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let end = match op {
            Op::Read(at, len) => {
                let start = self.start(now, self.class.command);
                self.read(start, at.0, len.0)
            }
            Op::Write(_, len) => {
                let start = self.start(now, self.class.write_command);
                self.write(start, len.0)
            }
            Op::WriteThrough(_, len) => {
                let start = self.start(now, self.class.write_command);
                let arrived = self.write(start, len.0);
                if self.class.flush == 0 { arrived } else { arrived.max(self.programmed) + Nanos(self.class.flush) }
            }
            Op::Flush => {
                let start = self.start(now, self.class.command);
                let after = if self.class.flush_exclusive { self.last_end } else { start };
                let end = start.max(after).max(self.programmed) + Nanos(self.class.flush);
                if self.class.flush_exclusive {
                    self.barrier = end;
                }
                end
            }
            Op::Discard(..) => self.start(now, self.class.command) + Nanos(self.class.answer),
        };
        self.last_end = self.last_end.max(end);
        self.inside.put(end, ());
        self.agenda.put(end, id);
    }

    fn next(&self) -> Option<Nanos> {
        self.agenda.next()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<u64>) {
        while let Some(id) = self.agenda.take(now) {
            done.push(id);
        }
    }

    fn reset(&mut self) {
        *self = Ssd::new(self.class.clone());
    }
}
