//! Where a stripe is gathered until it is whole. While it travels to the disks it is a [`super::sealed::Sealed`].
//!
//! Invariants
//! 1. `unlanded` is a subset of `have`; a sector outside `have` is never read from the buffer.
//! 2. `landed` tells the log records that hold data of this buffer which nothing else does.

use crate::bits::BitSet;
use crate::geometry::Layout;
use crate::io::Buf;
use crate::mutant::{self, Mutant};
use crate::stripe::landed::Landed;
use crate::stripe::sealed::Tier;
use crate::units::{BLOCK, Nanos, SECTOR};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Buffers grow by pieces of at most this many bytes, so that a small write into a large stripe costs little memory.
const CHUNK: usize = 32 << 10;

/// A stripe being gathered.
pub struct StripeBuffer {
    pub(super) layout: Layout,
    pub(super) chunks: Vec<Option<Buf>>,
    pub(super) have: BitSet,
    pub(super) unlanded: BitSet,
    /// Tells this buffer from an earlier one of the same stripe.
    pub id: u64,
    /// Whether part of it was read from the disks (or is zeros that nobody wrote) to make it whole.
    pub merged: bool,
    /// Whether it is on its way just to lie in order.
    pub ordered: bool,
    /// The tier that it is to lie in, where that was decided when it was read: it is moved, or merged.
    pub bound: Option<Tier>,
    /// Whether it is on its way just to lie in another tier.
    pub relocated: bool,
    /// Whether all that it has lies below it as well: nobody has written anything into it.
    pub(super) copied: bool,
    /// Whether somebody wrote into it: bytes that are to be kept as they are, zeros or not.
    pub written: bool,
    /// The log records with live data of this buffer.
    pub landed: Landed,
    /// When it was last written to.
    pub touched: Nanos,
    /// Bytes of its memory that a merge has taken from a budget of its own.
    pub lent: usize,
}

impl StripeBuffer {
    /// An empty buffer for one stripe of `layout`.
    pub fn new(layout: Layout, id: u64, now: Nanos) -> StripeBuffer {
        let sectors = (layout.data_len().0 / SECTOR) as usize;
        StripeBuffer {
            layout,
            chunks: (0..chunks_per_strip(layout) * layout.data_columns()).map(|_| None).collect(),
            have: BitSet::empty(sectors),
            unlanded: BitSet::empty(sectors),
            id,
            merged: false,
            ordered: false,
            bound: None,
            relocated: false,
            copied: false,
            written: false,
            landed: Landed::default(),
            touched: now,
            lent: 0,
        }
    }

    /// Takes `bytes` (whole sectors) at byte `at` of the stripe. `landed`: the log holds them already.
    pub fn put(&mut self, at: usize, bytes: &[u8], landed: bool) {
        let sectors = sectors_of(at, bytes.len());
        self.copy_in(at, bytes);
        self.copied &= mutant::active(Mutant::WrittenCopyForgiven);
        self.have.insert(sectors.clone());
        if landed {
            self.unlanded.remove(sectors);
        } else {
            self.unlanded.insert(sectors);
        }
    }

    /// What is filled in from here on comes from below, all of it: if it is still empty, it becomes a copy of that.
    pub fn begin_copy(&mut self) {
        self.copied |= self.have_len() == 0 || mutant::active(Mutant::WrittenCopyForgiven);
    }

    /// Takes `bytes` at `at` where the buffer has nothing of its own: what lies on the disks, for a merge.
    pub fn fill(&mut self, at: usize, bytes: &[u8]) {
        let within = sectors_of(at, bytes.len());
        for run in self.have.runs(within, false) {
            let start = run.start * SECTOR as usize;
            self.copy_in(start, &bytes[start - at..run.end * SECTOR as usize - at]);
            self.have.insert(run);
            self.merged = true;
        }
    }

    /// Copies what the buffer has of `at..at + into.len()` and returns the byte runs (of the stripe) that it has not.
    pub fn get(&self, at: usize, into: &mut [u8]) -> Vec<Range<usize>> {
        let within = sectors_of(at, into.len());
        for run in self.have.runs(within.clone(), true) {
            let (start, end) = (run.start * SECTOR as usize, run.end * SECTOR as usize);
            self.copy_out(start, &mut into[start - at..end - at]);
        }
        bytes_of(self.have.runs(within, false))
    }

    /// The byte runs the buffer has not.
    pub fn holes(&self) -> Vec<Range<usize>> {
        bytes_of(self.have.runs(0..(self.layout.data_len().0 / SECTOR) as usize, false))
    }

    /// Whether it has anything of these bytes (whole sectors).
    pub fn has_any(&self, bytes: Range<usize>) -> bool {
        self.have.first(sectors_of(bytes.start, bytes.len())).is_some()
    }

    /// Bytes that no log record holds yet.
    pub fn unlanded_len(&self) -> usize {
        self.unlanded.count() * SECTOR as usize
    }

    /// Unlanded bytes outside `range`.
    pub fn unlanded_outside(&self, range: Range<usize>) -> usize {
        let inside = self.unlanded.runs(sectors_of(range.start, range.len()), true);
        self.unlanded_len() - inside.iter().map(|run| run.len()).sum::<usize>() * SECTOR as usize
    }

    /// Hands out the unlanded runs, in pieces of at most `piece` bytes, as (byte offset in the stripe, bytes) and
    /// counts them as landed.
    pub fn land(&mut self, piece: usize) -> Vec<(usize, Vec<u8>)> {
        let mut unlanded = core::mem::replace(&mut self.unlanded, BitSet::empty(self.have.len()));
        in_pieces_of(&mut unlanded, piece, |at, bytes| self.copy_out(at, bytes))
    }

    /// Whether every sector is there.
    pub fn is_whole(&self) -> bool {
        self.have.is_full()
    }

    /// Whether it is whole, and nothing but zeros that nobody asked to be kept.
    pub fn is_blank(&self) -> bool {
        let zeros = |chunk: &Buf| chunk.iter().all(|byte| *byte == 0);
        !self.written && self.is_whole() && self.chunks.iter().flatten().all(zeros)
    }

    /// Bytes that are there.
    pub fn have_len(&self) -> usize {
        self.have.count() * SECTOR as usize
    }

    /// Bytes of memory it takes, those of the parity of what is there included: sealing takes no more.
    pub fn memory(&self) -> usize {
        with_parity(self.layout, self.chunks.iter().flatten().map(|chunk| chunk.len()).sum())
    }

    /// Bytes held that no merge has taken from a budget of its own.
    pub fn charged(&self) -> usize {
        self.memory() - self.lent
    }

    /// How much more it takes once `len` bytes at `at` are put.
    pub fn growth(&self, at: usize, len: usize) -> usize {
        let there = self.chunks.iter().flatten().map(|chunk| chunk.len()).sum();
        let new: usize = pieces(self.layout, at, len)
            .filter(|(chunk, ..)| self.chunks[*chunk].is_none())
            .map(|(chunk, ..)| chunk_len(self.layout, chunk))
            .sum();
        with_parity(self.layout, there + new) - with_parity(self.layout, there)
    }

    /// How much an empty one takes once `len` bytes at `at` are put.
    pub fn memory_for(layout: Layout, at: usize, len: usize) -> usize {
        with_parity(layout, pieces(layout, at, len).map(|(chunk, ..)| chunk_len(layout, chunk)).sum())
    }

    /// Takes what an older buffer of the stripe holds, where this one has nothing.
    pub fn take_below(&mut self, older: &StripeBuffer) {
        for hole in self.have.runs(0..self.have.len(), false) {
            for run in older.have.runs(hole, true) {
                let mut bytes = vec![0; run.len() * SECTOR as usize];
                older.copy_out(run.start * SECTOR as usize, &mut bytes);
                self.copy_in(run.start * SECTOR as usize, &bytes);
                self.have.insert(run.clone());
                older.unlanded.runs(run, true).into_iter().for_each(|run| self.unlanded.insert(run));
            }
        }
        self.written |= older.written;
        self.merged |= older.merged;
        self.copied = false;
    }

    /// The blocks of which something is there, and whether all of it is.
    pub fn blocks(&self) -> impl Iterator<Item = (usize, bool)> + '_ {
        let per_block = (BLOCK / SECTOR) as usize;
        let mut next = 0;
        core::iter::from_fn(move || {
            let block = self.have.first(next..self.have.len())? / per_block;
            next = (block + 1) * per_block;
            let holes = self.have.runs(block * per_block..next, false);
            Some((block, holes.is_empty()))
        })
    }

    fn copy_in(&mut self, at: usize, bytes: &[u8]) {
        for (chunk, place, range) in pieces(self.layout, at, bytes.len()) {
            let len = chunk_len(self.layout, chunk);
            if self.chunks[chunk].is_none() && range.len() == len {
                self.chunks[chunk] = Some(Buf::copy_of(&bytes[range]));
                continue;
            }
            let buf = self.chunks[chunk].get_or_insert_with(|| Buf::zeroed(len));
            buf[place..place + range.len()].copy_from_slice(&bytes[range]);
        }
    }

    fn copy_out(&self, at: usize, into: &mut [u8]) {
        for (chunk, place, range) in pieces(self.layout, at, into.len()) {
            let buf = self.chunks[chunk].as_ref().expect("a sector that is held has its chunk");
            let len = range.len();
            into[range].copy_from_slice(&buf[place..place + len]);
        }
    }
}

/// Takes all sectors from `sectors`, in pieces of at most `piece` bytes, as (byte offset in the stripe, what `copy`
/// copies from there).
pub(super) fn in_pieces_of(
    sectors: &mut BitSet,
    piece: usize,
    copy: impl Fn(usize, &mut [u8]),
) -> Vec<(usize, Vec<u8>)> {
    let all = 0..sectors.len();
    let runs = bytes_of(sectors.runs(all.clone(), true));
    sectors.remove(all);
    let copied = |run: Range<usize>| {
        let mut bytes = vec![0; run.len()];
        copy(run.start, &mut bytes);
        (run.start, bytes)
    };
    runs.into_iter().flat_map(|run| in_pieces(run, piece)).map(copied).collect()
}

/// Cuts a run of bytes into pieces of at most `piece`.
pub fn in_pieces(run: Range<usize>, piece: usize) -> impl Iterator<Item = Range<usize>> {
    run.clone().step_by(piece).map(move |at| at..run.end.min(at + piece))
}

/// `data` bytes and their share of the parity.
pub(super) fn with_parity(layout: Layout, data: usize) -> usize {
    data + data * layout.parity() / layout.data_columns()
}

pub(super) fn chunks_per_strip(layout: Layout) -> usize {
    layout.interleave().as_usize().div_ceil(CHUNK)
}

/// Bytes of chunk `chunk` (counted through the stripe): all are full but the last of a strip.
fn chunk_len(layout: Layout, chunk: usize) -> usize {
    let start = chunk % chunks_per_strip(layout) * CHUNK;
    CHUNK.min(layout.interleave().as_usize() - start)
}

/// Cuts stripe bytes `at..at + len` at chunk borders: (chunk, place in it, range of the caller's bytes).
pub(super) fn pieces(layout: Layout, at: usize, len: usize) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let interleave = layout.interleave().as_usize();
    let mut done = 0;
    core::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let (strip, in_strip) = ((at + done) / interleave, (at + done) % interleave);
        let chunk = strip * chunks_per_strip(layout) + in_strip / CHUNK;
        let place = in_strip % CHUNK;
        let take = (chunk_len(layout, chunk) - place).min(len - done);
        let range = done..done + take;
        done += take;
        Some((chunk, place, range))
    })
}

fn sectors_of(at: usize, len: usize) -> Range<usize> {
    let sector = SECTOR as usize;
    assert!(at.is_multiple_of(sector) && len.is_multiple_of(sector), "whole sectors, not {len} bytes at {at}");
    at / sector..(at + len) / sector
}

fn bytes_of(runs: Vec<Range<usize>>) -> Vec<Range<usize>> {
    runs.into_iter().map(|run| run.start * SECTOR as usize..run.end * SECTOR as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Resiliency;
    use crate::units::ByteCount;
    use proptest::prelude::*;

    fn layout() -> Layout {
        Layout::new(Resiliency::Parity { parity: 1 }, 4, ByteCount::kib(40)).unwrap()
    }

    proptest! {
        #[test]
        fn what_was_put_last_is_read_and_the_rest_is_named_as_missing(
            puts in prop::collection::vec((0usize..240, 1usize..120, any::<u8>()), 0..12),
        ) {
            let mut buffer = StripeBuffer::new(layout(), 0, Nanos(0));
            let mut model = vec![None; 240 * 512];
            for (sector, count, value) in puts {
                let count = count.min(240 - sector);
                buffer.put(sector * 512, &vec![value; count * 512], false);
                model[sector * 512..(sector + count) * 512].fill(Some(value));
            }
            let mut bytes = vec![0xEE; 240 * 512];
            for hole in buffer.get(0, &mut bytes) {
                prop_assert!(model[hole.clone()].iter().all(Option::is_none));
                bytes[hole].fill(0xEE);
            }
            for (byte, expected) in bytes.iter().zip(&model) {
                prop_assert_eq!(*byte, expected.unwrap_or(0xEE));
            }
        }
    }

    #[test]
    fn filling_never_overwrites_what_was_put() {
        let mut buffer = StripeBuffer::new(layout(), 0, Nanos(0));
        buffer.put(512, &[1; 512], false);
        buffer.fill(0, &[2; 2048]);
        let mut bytes = [0; 2048];
        assert!(buffer.get(0, &mut bytes).is_empty());
        assert_eq!((bytes[0], bytes[512], bytes[1024]), (2, 1, 2));
    }

    #[test]
    fn landing_hands_out_each_byte_once() {
        let mut buffer = StripeBuffer::new(layout(), 0, Nanos(0));
        buffer.put(1024, &[7; 1024], false);
        assert_eq!(buffer.land(4096), vec![(1024, vec![7; 1024])]);
        assert!(buffer.land(4096).is_empty());
        buffer.put(1024, &[8; 512], false);
        assert_eq!(buffer.land(4096), vec![(1024, vec![8; 512])]);
        buffer.put(0, &[9; 1536], false);
        assert_eq!(buffer.land(1024), vec![(0, vec![9; 1024]), (1024, vec![9; 512])]);
    }
}
