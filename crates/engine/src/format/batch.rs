//! Log batches: what the log ring is made of. Format: `docs/on-disk-format.md`, "Log batch".
//!
//! Invariants
//! 1. Batch numbers are consecutive; each batch carries the CRC of the one before it and the random number of the
//!    opening that wrote it. A batch left over from before a crash, or by another history, can therefore never be taken
//!    for the successor of one written after it.
//! 2. A batch lies in one piece: it starts at a multiple of 4 KiB and does not wrap; where it would, the rest of the
//!    ring is skipped.
//! 3. Each disk's copy of it lies at its position, or, where the labels say that this may be, up to [`spread`] behind
//!    it; a position is where the batch before ended, or as much behind that, or the start of the next round.

use super::Id;
use crate::checksum::crc32c;
use crate::io::Buf;
use crate::mutant::{self, Mutant};
use crate::units::BLOCK;
use core::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Marks a log batch.
pub const BATCH_MAGIC: [u8; 8] = *b"WEFTLOGB";

/// The head of a batch; the records follow at once.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Debug)]
#[repr(C)]
pub struct BatchHead {
    pub(crate) magic: [u8; 8],
    pub(crate) pool_id: [u8; 16],
    pub(crate) lineage: u64,
    /// Its number.
    pub number: u64,
    /// Where it begins, counted through all rounds of the ring.
    pub position: u64,
    pub(crate) first_seq: u64,
    pub(crate) payload_len: u32,
    pub(crate) records: u32,
    pub(crate) chain: u32,
    pub(crate) crc: u32,
}

/// Bytes of the head.
pub const BATCH_HEAD: usize = size_of::<BatchHead>();
const _: () = assert!(BATCH_HEAD == 72);

/// The most bytes that a copy of a batch lies behind its position, and a position behind the end of the batch before,
/// on a ring of `ring` bytes: what passes under a head in one revolution (of 5,400 a minute at 200 MB/s, of 7,200 at
/// 280), and little of a small ring. Whole blocks.
pub fn spread(ring: u64) -> u64 {
    (ring / 16).min(5 << 19) / BLOCK * BLOCK
}

impl BatchHead {
    /// Bytes of the whole batch in the ring.
    pub fn ring_len(&self) -> u64 {
        (BATCH_HEAD as u64 + self.payload_len as u64).next_multiple_of(BLOCK)
    }
}

/// Bytes in the ring of a batch with `payload` bytes of records.
pub fn batch_len(payload: usize) -> u64 {
    (BATCH_HEAD + payload).next_multiple_of(BLOCK as usize) as u64
}

/// The batch as it is written, and its CRC (the next one's chain).
pub fn encode(mut head: BatchHead, payload: &[u8]) -> (Buf, u32) {
    head.magic = BATCH_MAGIC;
    head.payload_len = payload.len() as u32;
    head.crc = 0;
    let mut buf = Buf::zeroed(batch_len(payload.len()) as usize);
    buf[..BATCH_HEAD].copy_from_slice(head.as_bytes());
    buf[BATCH_HEAD..BATCH_HEAD + payload.len()].copy_from_slice(payload);
    let crc = crc32c(&buf[..BATCH_HEAD + payload.len()]);
    buf[BATCH_HEAD - 4..BATCH_HEAD].copy_from_slice(&crc.to_le_bytes());
    (buf, crc)
}

/// Where the copies of a batch may lie, and what it must say of itself.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The pool.
    pub pool: Id,
    /// The batch's number.
    pub number: u64,
    /// Where the batch before it ended, counted through all rounds of the ring.
    pub from: u64,
    /// Bytes of the ring.
    pub ring: u64,
    /// The most bytes that a copy lies behind its position, and a position behind `from`: [`spread`], or none.
    pub spread: u64,
}

impl Expected {
    /// Where a copy may begin in the round in which the batch before ended, and in the next one, counted through all
    /// rounds, on a disk whose copies of earlier ones end at `end`. A block of each range is whole.
    pub fn places(&self, end: u64) -> [Range<u64>; 2] {
        let round = self.round_end();
        let behind = if mutant::active(Mutant::CopiesFoundNearby) { 0 } else { self.spread };
        let here = self.from.max(end)..(self.from + self.spread + behind + BLOCK).min(round);
        let there = if self.from.is_multiple_of(self.ring) { round } else { round + self.spread + BLOCK };
        [here, round.max(end)..there]
    }

    /// The first head in `bytes`, which lie at `at`, that claims to be of that batch and whose copy may lie there, and
    /// where. The claim is proven by [`verify`] once the whole batch has been read.
    pub fn find(&self, at: u64, bytes: &[u8]) -> Option<(u64, BatchHead)> {
        find_head(at, bytes, |at, block| self.decode(at, block))
    }

    /// Whether any block of `bytes` claims to begin this batch or a later one.
    pub fn is_reached(&self, bytes: &[u8]) -> bool {
        bytes
            .chunks_exact(BLOCK as usize)
            .any(|block| decode(self.pool, block).is_some_and(|head| head.number >= self.number))
    }

    /// The head at the start of `block`, if it claims to be of that batch, and its copy may lie at `at`.
    pub fn decode(&self, at: u64, block: &[u8]) -> Option<BatchHead> {
        let head = decode_head(self.pool, self.number, block)?;
        let round = self.round_end();
        let here = (self.from..=self.from + self.spread).contains(&head.position) && head.position < round;
        let there = !self.from.is_multiple_of(self.ring) && head.position == round;
        ((here || there) && may_lie(&head, at, self.ring, self.spread)).then_some(head)
    }

    /// Where the round ends in which the byte behind the batch before lies.
    fn round_end(&self) -> u64 {
        self.from - self.from % self.ring + self.ring
    }
}

/// Whether a copy of a batch with this head may lie at `at`, counted through all rounds of the ring.
pub fn may_lie(head: &BatchHead, at: u64, ring: u64, spread: u64) -> bool {
    let behind = at.checked_sub(head.position).is_some_and(|behind| behind <= spread);
    behind && at / ring == head.position / ring && at % ring + head.ring_len() <= ring
}

/// The first block of `bytes`, which lie at `at`, whose head `decode` finds, and where that is.
pub fn find_head(at: u64, bytes: &[u8], decode: impl Fn(u64, &[u8]) -> Option<BatchHead>) -> Option<(u64, BatchHead)> {
    let mut blocks = bytes.chunks_exact(BLOCK as usize).zip((at..).step_by(BLOCK as usize));
    blocks.find_map(|(block, at)| Some((at, decode(at, block)?)))
}

/// The head at the start of `block`, if it claims to be a batch of this pool with this number.
pub fn decode_head(pool: Id, number: u64, block: &[u8]) -> Option<BatchHead> {
    decode(pool, block).filter(|head| head.number == number)
}

fn decode(pool: Id, block: &[u8]) -> Option<BatchHead> {
    let (head, _) = BatchHead::read_from_prefix(block).ok()?;
    (head.magic == BATCH_MAGIC && head.pool_id == pool.0).then_some(head)
}

/// Whether `batch` (from its head on) is what was written.
pub fn verify(head: &BatchHead, batch: &[u8]) -> bool {
    let end = BATCH_HEAD + head.payload_len as usize;
    if batch.len() < end {
        return false;
    }
    let mut unsealed = head.clone();
    unsealed.crc = 0;
    crate::checksum::crc32c_append(crc32c(unsealed.as_bytes()), &batch[BATCH_HEAD..end]) == head.crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const RING: u64 = 1 << 20;
    const SPREAD: u64 = 64 << 10;

    fn head(position: u64) -> BatchHead {
        let (magic, pool_id) = (BATCH_MAGIC, [7; 16]);
        let (lineage, number, first_seq, records, chain) = (1, 5, 9, 1, 3);
        BatchHead { magic, pool_id, lineage, number, position, first_seq, payload_len: 5000, records, chain, crc: 0 }
    }

    fn expected(from: u64) -> Expected {
        Expected { pool: Id([7; 16]), number: 5, from, ring: RING, spread: SPREAD }
    }

    #[test]
    fn a_batch_lies_a_spread_behind_the_one_before_at_most_and_its_copies_behind_that() {
        let next = expected(RING + 8192);
        let counts = |position: u64, at: u64| next.decode(at, head(position).as_bytes()).is_some();
        let first = RING + 8192;
        assert!(counts(first, first) && counts(first + SPREAD, first + 2 * SPREAD));
        assert!(!counts(first - BLOCK, first) && !counts(first + SPREAD + BLOCK, first + SPREAD + BLOCK));
        assert!(!counts(first, first + SPREAD + BLOCK) && !counts(first + BLOCK, first));
        assert!(counts(2 * RING, 2 * RING) && counts(2 * RING, 2 * RING + SPREAD), "or in the next round");
        assert!(!counts(2 * RING + BLOCK, 2 * RING + BLOCK) && !counts(2 * RING, 2 * RING + SPREAD + BLOCK));
        let [here, there] = next.places(0);
        assert_eq!((here, there), (first..first + 2 * SPREAD + BLOCK, 2 * RING..2 * RING + SPREAD + BLOCK));
        assert_eq!(next.places(first + BLOCK)[0].start, first + BLOCK, "behind what the disk has");
    }

    #[test]
    fn a_copy_is_in_the_round_of_its_position_and_in_one_piece() {
        let last = 2 * RING - 8192;
        let next = expected(last - BLOCK);
        let counts = |position: u64, at: u64| next.decode(at, head(position).as_bytes()).is_some();
        assert!(counts(last, last) && counts(last - BLOCK, last));
        assert!(!counts(last - BLOCK, last + BLOCK), "it would go on behind the ring");
        assert!(!counts(last, 2 * RING), "nor does it lie in the next round");
        assert_eq!(expected(2 * RING).places(0)[1], 3 * RING..3 * RING, "it begins there, and nowhere else");
        let found = next.find(last - BLOCK, &[[0; BLOCK as usize].as_slice(), &padded(&head(last))].concat());
        assert_eq!(found.map(|(at, _)| at), Some(last));
    }

    fn padded(head: &BatchHead) -> Vec<u8> {
        let mut block = head.as_bytes().to_vec();
        block.resize(BLOCK as usize, 0);
        block
    }
}
