//! What a read gives: bytes in memory that the client brought, or what the disks gave as it is, without a copy.
//!
//! Invariants
//! 1. Parts do not overlap, and together they are the whole request once the read has succeeded.
//! 2. Nothing in a shared part ever changes: it is [`IoSlice`].
//! 3. Shared parts keep no more than [`KEPT_MAX`] times the request in memory; else they are copied after all.

use crate::io::IoSlice;
use crate::units::BLOCK;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// How much memory shared parts may keep for each byte of the request: they are often pieces of longer buffers.
const KEPT_MAX: usize = 2;

/// Where the bytes of a read go.
pub(super) enum Answer<'a> {
    /// Into the client's memory.
    Filled(&'a mut [u8]),
    /// Nowhere: parts, by the byte of the request where each begins.
    Shared(BTreeMap<usize, AnswerPart>),
}

/// Consecutive bytes of an answer.
#[derive(Debug)]
pub enum AnswerPart {
    /// What a disk gave, to be given back: [`Vdisk::reuse`](super::Vdisk::reuse).
    Slice(IoSlice),
    /// Put together here.
    Bytes(Vec<u8>),
    /// A number of zeros.
    Zeros(usize),
}

impl Answer<'_> {
    /// Memory for these bytes of the request, which the caller fills. What was put together before is gone on with.
    pub(super) fn room(&mut self, range: Range<usize>) -> &mut [u8] {
        let parts = match self {
            Answer::Filled(bytes) => return &mut bytes[range],
            Answer::Shared(parts) => parts,
        };
        let found = parts
            .range(..=range.start)
            .next_back()
            .filter(|(start, part)| matches!(part, AnswerPart::Bytes(bytes) if range.end <= **start + bytes.len()));
        let start = found.map(|(start, _)| *start);
        let start = start.unwrap_or_else(|| {
            parts.insert(range.start, AnswerPart::Bytes(alloc::vec![0; range.len()]));
            range.start
        });
        let Some(AnswerPart::Bytes(bytes)) = parts.get_mut(&start) else { unreachable!("it is there by now") };
        &mut bytes[range.start - start..range.end - start]
    }

    /// These bytes are zeros.
    pub(super) fn zeros(&mut self, range: Range<usize>) {
        match self {
            Answer::Shared(parts) if !is_filled(parts, &range) => {
                parts.insert(range.start, AnswerPart::Zeros(range.len()));
            }
            _ => self.room(range).fill(0),
        }
    }

    /// The bytes from `start` on are those of `slice` that `within` names.
    pub(super) fn takes(&mut self, start: usize, slice: &IoSlice, within: Range<usize>) {
        let whole = |at: usize| at.is_multiple_of(BLOCK as usize);
        let range = start..start + within.len();
        match self {
            Answer::Shared(parts) if whole(within.start) && whole(within.end) && !is_filled(parts, &range) => {
                parts.insert(start, AnswerPart::Slice(slice.slice(within)));
            }
            _ => self.room(range).copy_from_slice(&slice[within]),
        }
    }

    /// These bytes are to be read again.
    pub(super) fn forget(&mut self, range: Range<usize>) {
        if let Answer::Shared(parts) = self {
            parts.retain(|start, _| !range.contains(start));
        }
    }

    /// The parts, in order. `give` takes slices that are of no use any more.
    pub(super) fn into_parts(self, give: impl FnMut(IoSlice)) -> Vec<AnswerPart> {
        let Answer::Shared(parts) = self else { return Vec::new() };
        let parts: Vec<AnswerPart> = parts.into_values().collect();
        let (mut kept, mut len) = (BTreeMap::new(), 0);
        for part in &parts {
            len += part.len();
            if let AnswerPart::Slice(slice) = part {
                kept.insert(slice.memory().0, slice.memory().1);
            }
        }
        if kept.values().sum::<usize>() <= len * KEPT_MAX { parts } else { copied(parts, len, give) }
    }
}

impl AnswerPart {
    /// How many bytes it has.
    fn len(&self) -> usize {
        match self {
            AnswerPart::Slice(slice) => slice.len(),
            AnswerPart::Bytes(bytes) => bytes.len(),
            AnswerPart::Zeros(len) => *len,
        }
    }
}

/// Whether memory for these bytes is there, so that they go there.
fn is_filled(parts: &BTreeMap<usize, AnswerPart>, range: &Range<usize>) -> bool {
    let before = parts.range(..=range.start).next_back();
    before.is_some_and(|(start, part)| matches!(part, AnswerPart::Bytes(_)) && range.start < start + part.len())
}

/// One part with the bytes of all.
fn copied(parts: Vec<AnswerPart>, len: usize, mut give: impl FnMut(IoSlice)) -> Vec<AnswerPart> {
    let mut all = Vec::with_capacity(len);
    for part in parts {
        match part {
            AnswerPart::Slice(slice) => {
                all.extend_from_slice(&slice);
                give(slice);
            }
            AnswerPart::Bytes(bytes) => all.extend_from_slice(&bytes),
            AnswerPart::Zeros(len) => all.resize(all.len() + len, 0),
        }
    }
    alloc::vec![AnswerPart::Bytes(all)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Buf;

    const B: usize = BLOCK as usize;

    fn slice(byte: u8, blocks: usize) -> IoSlice {
        Buf::copy_of(&alloc::vec![byte; blocks * B]).freeze()
    }

    fn flat(parts: &[AnswerPart]) -> Vec<u8> {
        let mut all = Vec::new();
        for part in parts {
            match part {
                AnswerPart::Slice(slice) => all.extend_from_slice(slice),
                AnswerPart::Bytes(bytes) => all.extend_from_slice(bytes),
                AnswerPart::Zeros(len) => all.resize(all.len() + len, 0),
            }
        }
        all
    }

    /// One answer, either way: a part is put together and then filled from slices, others are shared or zeros, and one
    /// does not begin with a block.
    fn ask(answer: &mut Answer<'_>) {
        answer.takes(0, &slice(1, 2), B..2 * B);
        answer.room(B..3 * B)[..B].fill(2);
        answer.takes(2 * B, &slice(3, 1), 0..B);
        answer.zeros(3 * B..4 * B);
        answer.takes(4 * B, &slice(4, 1), 512..B);
        answer.takes(5 * B - 512, &slice(5, 1), 0..512);
        answer.takes(5 * B, &slice(9, 1), 0..B);
        answer.forget(5 * B..6 * B);
        answer.takes(5 * B, &slice(6, 1), 0..B);
    }

    #[test]
    fn shared_parts_are_what_would_have_been_copied() {
        let mut bytes = alloc::vec![0xAA; 6 * B];
        ask(&mut Answer::Filled(&mut bytes));
        let mut answer = Answer::Shared(BTreeMap::new());
        ask(&mut answer);
        let parts = answer.into_parts(|_| panic!("all of it is of use"));
        assert!(matches!(&parts[..], [AnswerPart::Slice(_), AnswerPart::Bytes(_), AnswerPart::Zeros(B), ..]));
        assert_eq!(flat(&parts), bytes);
    }

    #[test]
    fn little_of_long_buffers_is_copied_and_the_buffers_are_given_back() {
        let long = slice(7, 64);
        for (blocks, shared) in [(31, false), (32, true)] {
            let mut answer = Answer::Shared(BTreeMap::new());
            (0..blocks).for_each(|nth| answer.takes(nth * B, &long, nth * B..(nth + 1) * B));
            let mut given = 0;
            let parts = answer.into_parts(|_| given += 1);
            assert_eq!((given, parts.len()), if shared { (0, blocks) } else { (blocks, 1) });
            assert_eq!(flat(&parts), alloc::vec![7; blocks * B]);
        }
    }
}
