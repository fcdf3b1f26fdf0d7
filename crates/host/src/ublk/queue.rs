//! One queue of a device, and the thread that serves it.
//!
//! Invariants
//! 1. What is submitted passed the gate ([`VolumeShape::admit`]), whatever the block layer promises.
//! 2. A tag is in one place at a time: in the kernel, waiting for room, or under way in the volume.

use super::params::{REQUEST, SECTOR};
use crate::disk::Alarm;
use crate::disk::ublk::{
    Description, F_FUA, F_NOUNMAP, News, OP_DISCARD, OP_FLUSH, OP_READ, OP_WRITE, OP_WRITE_ZEROES, QueueRing, data_at,
};
use crate::errno::names;
use crate::export::{Access, Op, PayloadPool, Piece, Pieces, Reply, Volume, VolumeShape};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft_engine::error::ErrorKind;

/// How long the thread sleeps when nothing happens.
const NAP: Duration = Duration::from_secs(600);
/// What runs of zeroes are written from.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// What the thread of a queue shares with those who answer its requests and those who end it.
pub(super) struct Answers {
    alarm: Arc<Alarm>,
    given: Mutex<Vec<(u16, Result<Reply, ErrorKind>)>>,
    give_up: AtomicBool,
}

/// A queue, on its thread.
pub(super) struct Queue {
    ring: QueueRing,
    no: u16,
    device: Arc<File>,
    volume: Arc<dyn Volume>,
    shape: VolumeShape,
    answers: Arc<Answers>,
    buffers: Arc<PayloadPool>,
    /// Bytes of requests under way (the module's invariant 2), and their limit.
    held: usize,
    share: usize,
    waiting: VecDeque<u16>,
    /// What was asked under each tag that is under way.
    asked: Vec<Option<Asked>>,
    /// Tags for which the kernel still brings requests.
    open: usize,
}

#[derive(Clone, Copy)]
struct Asked {
    op: u8,
    len: u64,
    cost: usize,
}

impl Answers {
    pub(super) fn new() -> io::Result<Arc<Answers>> {
        let alarm = Arc::new(Alarm::new()?);
        Ok(Arc::new(Answers { alarm, given: Mutex::default(), give_up: AtomicBool::new(false) }))
    }

    /// Ends the thread whatever is under way: the kernel fails what was not answered.
    pub(super) fn give_up(&self) {
        self.give_up.store(true, Ordering::Release);
        self.alarm.ring();
    }

    fn give(&self, tag: u16, answer: Result<Reply, ErrorKind>) {
        self.given().push((tag, answer));
        self.alarm.ring();
    }

    fn given(&self) -> MutexGuard<'_, Vec<(u16, Result<Reply, ErrorKind>)>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_given_up(&self) -> bool {
        self.give_up.load(Ordering::Acquire)
    }
}

impl Queue {
    /// Queue `no` of `device`, with `depth` tags; to be made and run on one thread.
    pub(super) fn new(
        device: Arc<File>,
        no: u16,
        depth: u16,
        volume: Arc<dyn Volume>,
        answers: Arc<Answers>,
        share: usize,
    ) -> io::Result<Queue> {
        let mut ring = QueueRing::new(device.clone(), no, depth, answers.alarm.clone())?;
        for tag in 0..depth {
            ring.fetch(tag);
        }
        let shape = volume.shape();
        Ok(Queue {
            ring,
            no,
            device,
            volume,
            shape,
            answers,
            buffers: PayloadPool::new(share / 2),
            held: 0,
            share,
            waiting: VecDeque::new(),
            asked: vec![None; depth.into()],
            open: depth.into(),
        })
    }

    /// Serves until the device is stopped, or it is told to give up.
    pub(super) fn run(mut self) {
        while self.open > 0 && !self.answers.has_given_up() {
            let answers = self.answers.clone();
            let news = self.ring.turn(NAP, || answers.given().is_empty() && !answers.has_given_up());
            for one in news {
                match one {
                    News::Request(tag) => self.waiting.push_back(tag),
                    News::Ended(_) => self.open -= 1,
                }
            }
            let given = std::mem::take(&mut *answers.given());
            for (tag, answer) in given {
                self.answer(tag, answer);
            }
            self.begin_waiting();
        }
    }

    fn begin_waiting(&mut self) {
        while let Some(tag) = self.waiting.front().copied() {
            let asked = asked(&self.ring.description(tag));
            if self.held > 0 && self.held + asked.cost > self.share {
                return;
            }
            self.waiting.pop_front();
            match self.op(tag) {
                Ok(op) => {
                    self.held += asked.cost;
                    self.asked[usize::from(tag)] = Some(asked);
                    let answers = self.answers.clone();
                    self.volume.submit(op, Box::new(move |answer| answers.give(tag, answer)));
                }
                Err(errno) => self.ring.commit(tag, -errno),
            }
        }
    }

    /// The operation that is asked for, the bytes of a write taken from the kernel; or the `errno` that is answered.
    fn op(&self, tag: u16) -> Result<Op, i32> {
        let described = self.ring.description(tag);
        if let Some(access) = access(&described)? {
            let (offset, len) = range(&described);
            self.shape.admit(access, offset, len).map_err(|refused| names(refused.kind).errno)?;
            // Less than the gate allows, and all that the kernel was told.
            if matches!(access, Access::Read | Access::Write) && len > REQUEST.into() {
                return Err(libc::EINVAL);
            }
        }
        let op = operation(&described, |len| {
            let mut data = self.buffers.take(len);
            let taken = self.device.read_exact_at(&mut data, data_at(self.no, tag));
            taken.map(|()| data).map_err(|_| libc::EIO)
        })?;
        Ok(op)
    }

    fn answer(&mut self, tag: u16, answer: Result<Reply, ErrorKind>) {
        let Some(asked) = self.asked[usize::from(tag)].take() else { return };
        let result = match answer {
            Ok(Reply::Data(pieces)) if asked.op == OP_READ && pieces.len() == asked.len => {
                match self.hand_over(tag, &pieces) {
                    Ok(()) => asked.len as i32,
                    Err(_) => -libc::EIO,
                }
            }
            Ok(Reply::Done) if asked.op == OP_WRITE => asked.len as i32,
            Ok(Reply::Done) if asked.op != OP_READ => 0,
            Ok(_) => -libc::EIO,
            Err(kind) => -names(kind).errno,
        };
        self.held -= asked.cost;
        self.ring.commit(tag, result);
    }

    /// Gives the kernel the bytes of a read.
    fn hand_over(&self, tag: u16, pieces: &Pieces) -> io::Result<()> {
        let mut at = data_at(self.no, tag);
        for piece in pieces.iter() {
            match piece {
                Piece::Zeroes(len) => write_zeroes(&self.device, at, *len)?,
                piece => self.device.write_all_at(piece.bytes().unwrap_or_default(), at)?,
            }
            at += piece.len();
        }
        Ok(())
    }
}

fn write_zeroes(device: &File, mut at: u64, mut len: u64) -> io::Result<()> {
    while len > 0 {
        let take = len.min(ZEROES.len() as u64);
        device.write_all_at(&ZEROES[..take as usize], at)?;
        (at, len) = (at + take, len - take);
    }
    Ok(())
}

fn asked(described: &Description) -> Asked {
    let (op, (_, len)) = (described.op_flags as u8, range(described));
    let cost = if matches!(op, OP_READ | OP_WRITE) { len as usize } else { 0 };
    Asked { op, len, cost }
}

/// Offset and length in bytes. No sum of sectors overflows: the gate refuses what is beyond the end.
fn range(described: &Description) -> (u64, u64) {
    (described.start.saturating_mul(SECTOR), u64::from(described.sectors) * SECTOR)
}

/// What the gate is asked; nothing for a flush, which has no range.
fn access(described: &Description) -> Result<Option<Access>, i32> {
    Ok(Some(match described.op_flags as u8 {
        OP_READ => Access::Read,
        OP_WRITE => Access::Write,
        OP_DISCARD => Access::Trim,
        OP_WRITE_ZEROES => Access::Zero,
        OP_FLUSH => return Ok(None),
        _ => return Err(libc::EOPNOTSUPP),
    }))
}

/// The operation for a request; `data` takes the bytes of a write.
fn operation<E>(
    described: &Description,
    data: impl FnOnce(usize) -> Result<crate::export::Payload, E>,
) -> Result<Op, E> {
    let (offset, len) = range(described);
    let has = |flag| described.op_flags & flag != 0;
    let fua = has(F_FUA);
    Ok(match described.op_flags as u8 {
        OP_READ => Op::Read { offset, len: len as u32 },
        OP_WRITE => Op::Write { offset, data: data(len as usize)?, fua },
        OP_DISCARD => Op::Trim { offset, len, fua },
        OP_WRITE_ZEROES => Op::WriteZeroes { offset, len, no_hole: has(F_NOUNMAP), fast: false, fua },
        _ => Op::Flush,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Payload;

    const SHAPE: VolumeShape =
        VolumeShape { size: 1 << 20, sector: 4096, preferred: 4096, strip: 4096, read_only: false, rotational: false };

    fn described(op: u8, flags: u32, start: u64, sectors: u32) -> Description {
        Description { op_flags: u32::from(op) | flags, sectors, start }
    }

    fn verdict(described: Description, shape: VolumeShape) -> Result<(), i32> {
        let Some(access) = access(&described)? else { return Ok(()) };
        let (offset, len) = range(&described);
        shape.admit(access, offset, len).map_err(|refused| names(refused.kind).errno)
    }

    #[test]
    fn every_request_of_the_block_layer_becomes_its_operation_with_its_flags() {
        let op = |op, flags| {
            let made = operation::<()>(&described(op, flags, 16, 8), |len| Ok(Payload::copy_of(&vec![7; len])));
            format!("{:?}", made.unwrap())
        };
        assert_eq!(op(OP_READ, 0), "Read { offset: 8192, len: 4096 }");
        assert_eq!(op(OP_WRITE, F_FUA), "Write { offset: 8192, data: Payload(4096 bytes), fua: true }");
        assert_eq!(op(OP_FLUSH, 0), "Flush");
        assert_eq!(op(OP_DISCARD, 0), "Trim { offset: 8192, len: 4096, fua: false }");
        let zeroes = "WriteZeroes { offset: 8192, len: 4096, no_hole: true, fast: false, fua: false }";
        assert_eq!(op(OP_WRITE_ZEROES, F_NOUNMAP), zeroes);
        assert!(access(&described(13, 0, 0, 8)).is_err());
    }

    #[test]
    fn the_gate_is_asked_whatever_the_block_layer_promises() {
        assert_eq!(verdict(described(OP_READ, 0, 0, 8), SHAPE), Ok(()));
        assert_eq!(verdict(described(OP_FLUSH, 0, u64::MAX, 0), SHAPE), Ok(()));
        assert_eq!(verdict(described(OP_READ, 0, 1, 8), SHAPE), Err(libc::EINVAL));
        assert_eq!(verdict(described(OP_WRITE, 0, 2048, 8), SHAPE), Err(libc::ENOSPC));
        assert_eq!(verdict(described(OP_DISCARD, 0, u64::MAX / 4096 * 8, u32::MAX / 8 * 8), SHAPE), Err(libc::EINVAL));
        let read_only = VolumeShape { read_only: true, ..SHAPE };
        for op in [OP_WRITE, OP_DISCARD, OP_WRITE_ZEROES] {
            assert_eq!(verdict(described(op, 0, 0, 8), read_only), Err(libc::EROFS));
        }
    }
}
