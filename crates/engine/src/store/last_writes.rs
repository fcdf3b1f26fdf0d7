//! What was written to a disk last, and made durable: by that a disk which returns is told from an older copy of
//! itself.
//!
//! A device may be rolled back while it is away, and be the same device for the host: a volume put back from a
//! snapshot, a loop device over an older file. No label tells, where none was written since the copy was made, and
//! while the pool is frozen none is. The last blocks that a flush covered do: a copy lacks the last of them, or has all
//! that a flush covered.
//!
//! Invariants
//! 1. Only what a flush covered that began after the write had completed is asked for. What a disk that was lost had
//!    not made durable is asked for never.
//! 2. No block is asked for that something was written over since, or that was discarded, whether that succeeded or
//!    not: a disk that has all that it should is never taken for a copy.
//! 3. What was written to a copy is asked for only once that was proven: until then the disk itself may come back.
//! 4. There is nothing to tell a block of zeros from one that was never written, so that none is asked for.

use super::Store;
use crate::checksum::crc32c;
use crate::io::{Buf, Disk, IoSlice};
use crate::mutant::{self, Mutant};
use crate::units::{BLOCK, ByteCount, DiskNo, DiskOffset};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::ops::Range;

/// How many blocks are asked for. The last would do, if nothing were ever written over.
const KEPT: usize = 4;
/// The most flushes of one disk at a time that are looked at; more of them cover nothing here.
const FLUSHES: usize = 8;

/// A block as it was written.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    at: DiskOffset,
    sum: u32,
    /// The number of the write, of those to its disk that count.
    nth: u64,
}

impl Written {
    /// The last block of a write of `from` at `at`, the checksum of which counts. None: it is nothing but zeros.
    pub fn last_of(at: DiskOffset, from: &[IoSlice]) -> Option<Written> {
        let block = from.last()?.last_chunk::<{ BLOCK as usize }>()?;
        let len: usize = from.iter().map(|slice| slice.len()).sum();
        let at = DiskOffset(at.0 + len as u64 - BLOCK);
        block.iter().any(|byte| *byte != 0).then(|| Written { at, sum: crc32c(block), nth: 0 })
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        self.at.0 < range.end && range.start < self.at.0 + BLOCK
    }
}

/// The last blocks that were written to one disk.
#[derive(Debug, Default)]
pub struct LastWrites {
    /// Writes that completed.
    count: u64,
    /// The last that completed.
    completed: Option<Written>,
    /// What each flush under way will have covered.
    flushing: Vec<Written>,
    /// What flushes covered, the newest last.
    durable: Vec<Written>,
    /// What they covered on the disk itself, while a copy of it is used that was not proven yet.
    itself: Option<Vec<Written>>,
}

impl LastWrites {
    /// What lies here is about to be written over, or discarded.
    pub fn end(&mut self, at: DiskOffset, len: ByteCount) {
        if mutant::active(Mutant::WrittenOverIsAskedFor) {
            return;
        }
        let range = at.0..at.0 + len.0;
        self.completed = self.completed.filter(|written| !written.overlaps(&range));
        self.flushing.retain(|written| !written.overlaps(&range));
        self.durable.retain(|written| !written.overlaps(&range));
    }

    /// A write completed, with this block.
    pub fn complete(&mut self, written: Written) {
        self.count += 1;
        self.completed = Some(Written { nth: self.count, ..written });
    }

    /// A flush begins. What [`LastWrites::flushed`] is to be told when it has ended well.
    pub fn flush(&mut self) -> u64 {
        if self.flushing.len() < FLUSHES {
            self.flushing.extend(self.completed.take());
        }
        self.count
    }

    /// The flush that began at `count` has ended well.
    pub fn flushed(&mut self, count: u64) {
        let newer = self.flushing.iter().position(|written| written.nth > count).unwrap_or(self.flushing.len());
        self.durable.extend(self.flushing.drain(..newer));
        let many = self.durable.len().saturating_sub(KEPT);
        self.durable.drain(..many);
    }

    /// A copy is used for the disk from now on.
    pub fn set_aside(&mut self) {
        *self = LastWrites { itself: Some(core::mem::take(&mut self.durable)), ..LastWrites::default() };
    }

    /// The disk was lost, and was up to date or not: what no flush had covered may be lost, too. A copy that never was
    /// up to date says nothing of the disk itself.
    pub fn lose(&mut self, current: bool) {
        if let Some(durable) = self.itself.take().filter(|_| !current) {
            self.durable = durable;
        }
        if !mutant::active(Mutant::LostIsAskedFor) {
            self.completed = None;
            self.flushing.clear();
        }
    }
}

impl Store {
    /// Whether a copy is used for disk `no` that is not proven yet.
    pub fn is_unproven_copy(&self, no: DiskNo) -> bool {
        self.members.borrow().get(&no).is_some_and(|member| !member.current && member.last.itself.is_some())
    }

    /// Something else is used for disk `no` from now on, which may lack what was written to that.
    pub fn set_last_writes_aside(&self, no: DiskNo) {
        if let Some(member) = self.members.borrow_mut().get_mut(&no) {
            member.last.set_aside();
        }
    }

    /// Whether `disk`, which is to be disk `no` again, lacks one of the blocks that were made durable on that last.
    pub async fn lacks_last_writes(&self, no: DiskNo, disk: &Rc<dyn Disk>) -> bool {
        if mutant::active(Mutant::RolledBackReturns) {
            return false;
        }
        let last = self.members.borrow().get(&no).map_or_else(Vec::new, |member| member.last.durable.clone());
        for Written { at, sum, .. } in last.into_iter().rev() {
            // What cannot be read tells nothing.
            let Ok(block) = disk.read(at, Buf::zeroed(BLOCK as usize)).await else { continue };
            if crc32c(&block) != sum {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(last: &mut LastWrites, block: u64) {
        let at = DiskOffset(block * BLOCK);
        last.end(at, ByteCount(BLOCK));
        let mut buf = Buf::zeroed(BLOCK as usize);
        buf[7] = 1;
        last.complete(Written::last_of(at, &[buf.freeze()]).unwrap());
    }

    fn write_and_flush(last: &mut LastWrites, block: u64) {
        write(last, block);
        let flush = last.flush();
        last.flushed(flush);
    }

    fn asked_for(last: &LastWrites) -> Vec<u64> {
        last.durable.iter().map(|written| written.at.0 / BLOCK).collect()
    }

    #[test]
    fn only_what_a_flush_covered_is_asked_for() {
        let mut last = LastWrites::default();
        write(&mut last, 1);
        let first = last.flush();
        write(&mut last, 2);
        let second = last.flush();
        write(&mut last, 3);
        last.flushed(first);
        assert_eq!(asked_for(&last), [1]);
        last.flushed(second);
        assert_eq!(asked_for(&last), [1, 2]);
        last.lose(true);
        let third = last.flush();
        last.flushed(third);
        assert_eq!(asked_for(&last), [1, 2]);
    }

    #[test]
    fn a_later_flush_covers_what_an_earlier_one_that_has_not_ended_does() {
        let mut last = LastWrites::default();
        write(&mut last, 1);
        let first = last.flush();
        write(&mut last, 2);
        let second = last.flush();
        last.flushed(second);
        assert_eq!(asked_for(&last), [1, 2]);
        last.flushed(first);
        assert_eq!(asked_for(&last), [1, 2]);
    }

    #[test]
    fn what_is_written_over_is_not_asked_for() {
        let mut last = LastWrites::default();
        for block in 1..8 {
            write_and_flush(&mut last, block);
        }
        assert_eq!(asked_for(&last), [4, 5, 6, 7]);
        last.end(DiskOffset(5 * BLOCK), ByteCount(2 * BLOCK));
        assert_eq!(asked_for(&last), [4, 7]);
        write(&mut last, 9);
        let flush = last.flush();
        last.end(DiskOffset(8 * BLOCK), ByteCount(2 * BLOCK));
        last.flushed(flush);
        assert_eq!(asked_for(&last), [4, 7]);
    }

    #[test]
    fn what_was_written_to_a_copy_is_asked_for_once_that_is_up_to_date() {
        for (current, asked) in [(false, [1]), (true, [2])] {
            let mut last = LastWrites::default();
            write_and_flush(&mut last, 1);
            last.lose(true);
            last.set_aside();
            assert_eq!(asked_for(&last), []);
            write_and_flush(&mut last, 2);
            last.lose(current);
            assert_eq!(asked_for(&last), asked);
        }
    }

    #[test]
    fn zeros_are_not_asked_for() {
        let zeros = || Buf::zeroed(BLOCK as usize).freeze();
        assert!(Written::last_of(DiskOffset(0), &[zeros()]).is_none());
        let full = Buf::copy_of(&[1; BLOCK as usize]).freeze();
        let written = Written::last_of(DiskOffset(0), &[zeros(), full]);
        assert_eq!(written.unwrap().at, DiskOffset(BLOCK));
        assert!(Written::last_of(DiskOffset(0), &[]).is_none());
    }
}
