//! Volumes for tests: in memory, and worse-behaved ones around it.

use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use weft_engine::error::ErrorKind;
use weft_host::export::{
    Done, Exports, Extent, ExtentKind, GUEST_BYTES, Guest, Op, PayloadPool, Pieces, Reply, Visit, Volume, VolumeShape,
    gather,
};

const PAGE: u64 = 4096;

/// A volume in memory that answers at once. Pages that were never written, or were trimmed, are holes.
pub struct Memory {
    shape: VolumeShape,
    pages: Mutex<BTreeMap<u64, Box<[u8]>>>,
    pub flushes: AtomicU64,
}

pub fn shape(size: u64, sector: u32) -> VolumeShape {
    VolumeShape { size, sector, preferred: 192 << 10, strip: 64 << 10, read_only: false, rotational: false }
}

impl Memory {
    pub fn new(shape: VolumeShape) -> Arc<Memory> {
        Arc::new(Memory { shape, pages: Mutex::default(), flushes: AtomicU64::new(0) })
    }

    fn read(&self, offset: u64, len: u32) -> Pieces {
        let pages = self.pages.lock().unwrap();
        let mut pieces = Pieces::new();
        for (page, at, len) in pages_of(offset, len.into()) {
            match pages.get(&page) {
                Some(bytes) => pieces.push_owned(bytes[at..at + len].to_vec()),
                None => pieces.push_zeroes(len as u64),
            }
        }
        pieces
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let mut pages = self.pages.lock().unwrap();
        let mut data = data;
        for (page, at, len) in pages_of(offset, data.len() as u64) {
            let bytes = pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            bytes[at..at + len].copy_from_slice(&data[..len]);
            data = &data[len..];
        }
    }

    /// Zeroes the range; whole pages become holes unless `keep`.
    fn zero(&self, offset: u64, len: u64, keep: bool) {
        let mut pages = self.pages.lock().unwrap();
        let end = offset + len;
        let inside: Vec<u64> = pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(page, _)| *page).collect();
        for page in inside {
            let from = offset.max(page * PAGE) - page * PAGE;
            let to = end.min((page + 1) * PAGE) - page * PAGE;
            if (from, to) == (0, PAGE) && !keep {
                pages.remove(&page);
            } else {
                pages.get_mut(&page).unwrap()[from as usize..to as usize].fill(0);
            }
        }
        if keep {
            for (page, _, _) in pages_of(offset, len.min(1 << 20)) {
                pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            }
        }
    }

    fn status(&self, offset: u64, len: u64, limit: usize) -> Vec<Extent> {
        let pages = self.pages.lock().unwrap();
        let mut extents: Vec<Extent> = Vec::new();
        for (page, _, len) in pages_of(offset, len) {
            let kind = match pages.get(&page) {
                None => ExtentKind::Hole,
                Some(bytes) if bytes.iter().all(|byte| *byte == 0) => ExtentKind::Zero,
                Some(_) => ExtentKind::Data,
            };
            let full = extents.len() == limit;
            match extents.last_mut() {
                Some(last) if last.kind == kind => last.len += len as u64,
                _ if full => break,
                _ => extents.push(Extent { len: len as u64, kind }),
            }
        }
        extents
    }

    pub fn answer(&self, op: Op) -> Result<Reply, ErrorKind> {
        match op {
            Op::Read { offset, len } => return Ok(Reply::Data(self.read(offset, len))),
            Op::Status { offset, len, limit } => return Ok(Reply::Extents(self.status(offset, len, limit))),
            Op::Write { offset, data, .. } => self.write(offset, &data),
            Op::WriteZeroes { no_hole: true, fast: true, .. } => return Err(ErrorKind::NotPossible),
            Op::WriteZeroes { offset, len, no_hole, .. } => self.zero(offset, len, no_hole),
            Op::Trim { offset, len, .. } => self.zero(offset, len, false),
            Op::Flush => {
                self.flushes.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(Reply::Done)
    }
}

impl Volume for Memory {
    fn shape(&self) -> VolumeShape {
        self.shape
    }

    fn submit(&self, op: Op, done: Done) {
        done(self.answer(op));
    }
}

fn pages_of(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let left = offset + len - at;
        let start = at % PAGE;
        let part = left.min(PAGE - start);
        let found = (at / PAGE, start as usize, part as usize);
        at += part;
        (part > 0).then_some(found)
    })
}

/// Answers from another thread, whatever has gathered meanwhile in reverse order.
pub struct Reversed {
    inside: Arc<Memory>,
    queue: Mutex<Sender<(Op, Done)>>,
}

impl Reversed {
    pub fn new(inside: Arc<Memory>) -> Arc<Reversed> {
        let (queue, asked) = channel::<(Op, Done)>();
        let memory = inside.clone();
        std::thread::spawn(move || {
            while let Ok(first) = asked.recv() {
                let mut batch = vec![first];
                batch.extend(asked.try_iter());
                // Effects in order, answers reversed.
                let answers: Vec<_> = batch.into_iter().map(|(op, done)| (memory.answer(op), done)).collect();
                answers.into_iter().rev().for_each(|(answer, done)| done(answer));
            }
        });
        Arc::new(Reversed { inside, queue: Mutex::new(queue) })
    }
}

impl Volume for Reversed {
    fn shape(&self) -> VolumeShape {
        self.inside.shape
    }

    fn submit(&self, op: Op, done: Done) {
        self.queue.lock().unwrap().send((op, done)).unwrap();
    }
}

/// Has a thread that takes requests from the sockets of its clients itself, one for each of them.
pub struct Hosted(pub Arc<dyn Volume>);

impl Volume for Hosted {
    fn shape(&self) -> VolumeShape {
        self.0.shape()
    }

    fn submit(&self, op: Op, done: Done) {
        self.0.submit(op, done);
    }

    fn queue(&self, op: Op, done: Done) {
        self.0.queue(op, done);
    }

    fn kick(&self) {
        self.0.kick();
    }

    fn host(&self, guest: Arc<dyn Guest>) -> bool {
        let (visit, volume) = (Visit::new(guest), self.0.clone());
        std::thread::spawn(move || {
            let (mut scratch, buffers) = (vec![0; GUEST_BYTES], PayloadPool::new(1 << 20));
            let socket = visit.guest().socket();
            let serve = |scratch: &mut [u8]| {
                let stays = visit.guest().serve(scratch, &buffers);
                volume.kick();
                stays
            };
            while {
                poll(&mut [PollFd::new(&*socket, PollFlags::IN)], None).unwrap();
                gather(|| serve(&mut scratch))
            } {}
        });
        true
    }
}

/// Exports by name.
pub struct Shelf(pub Mutex<BTreeMap<String, Arc<dyn Volume>>>);

impl Shelf {
    pub fn of(volumes: impl IntoIterator<Item = (&'static str, Arc<dyn Volume>)>) -> Arc<Shelf> {
        Arc::new(Shelf(Mutex::new(volumes.into_iter().map(|(name, volume)| (name.into(), volume)).collect())))
    }
}

impl Exports for Shelf {
    fn list(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Volume>> {
        self.0.lock().unwrap().get(name).cloned()
    }
}
