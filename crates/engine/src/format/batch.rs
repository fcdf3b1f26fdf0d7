//! Log batches: what the log ring is made of. Format: `docs/on-disk-format.md`, "Log batch".
//!
//! Invariants
//! 1. Batch numbers are consecutive; each batch carries the CRC of the one before it and the random number of the
//!    opening that wrote it. A batch left over from before a crash, or by another history, can therefore never be taken
//!    for the successor of one written after it.
//! 2. A batch lies in one piece: it starts at a multiple of 4 KiB and does not wrap; where it would, the rest of the
//!    ring is skipped.

use super::Id;
use crate::checksum::crc32c;
use crate::io::Buf;
use crate::units::BLOCK;
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
    pub(crate) number: u64,
    pub(crate) position: u64,
    pub(crate) first_seq: u64,
    pub(crate) payload_len: u32,
    pub(crate) records: u32,
    pub(crate) chain: u32,
    pub(crate) crc: u32,
}

/// Bytes of the head.
pub const BATCH_HEAD: usize = size_of::<BatchHead>();
const _: () = assert!(BATCH_HEAD == 72);

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

/// The head at the start of `block`, if it claims to be a batch of this pool at this position with this number. The
/// claim is proven by [`verify`] once the whole batch has been read.
pub fn decode_head(pool: Id, position: u64, number: u64, block: &[u8]) -> Option<BatchHead> {
    let (head, _) = BatchHead::read_from_prefix(block).ok()?;
    let ours = head.magic == BATCH_MAGIC && head.pool_id == pool.0;
    (ours && head.position == position && head.number == number).then_some(head)
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
