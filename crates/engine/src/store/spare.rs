//! Buffers that were read into and are of use again: the next read of that length need not have its memory cleared
//! first.

use crate::io::{Buf, IoSlice};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// Buffers by their length. What is in them is what was read last: whoever takes one overwrites all of it.
pub struct Spare {
    bufs: RefCell<BTreeMap<usize, Vec<Buf>>>,
    limit: u64,
    used: Cell<u64>,
    peak: Cell<u64>,
}

impl Spare {
    /// None yet, and never more than `limit` bytes.
    pub fn new(limit: u64) -> Spare {
        Spare { bufs: RefCell::default(), limit, used: Cell::new(0), peak: Cell::new(0) }
    }

    /// A buffer of `len` bytes, with anything in it.
    pub fn take(&self, len: usize) -> Buf {
        let found = self.bufs.borrow_mut().get_mut(&len).and_then(Vec::pop);
        if found.is_some() {
            self.used.set(self.used.get() - len as u64);
        }
        found.unwrap_or_else(|| Buf::zeroed(len))
    }

    /// Takes a buffer back, once nobody else has a part of it.
    pub fn give(&self, slice: IoSlice) {
        let Some(buf) = slice.into_buf() else { return };
        let len = buf.len();
        if len as u64 > self.limit / 4 {
            return;
        }
        let mut bufs = self.bufs.borrow_mut();
        while self.used.get() + len as u64 > self.limit {
            // The longest go first: nothing stays for good only because it came first.
            let Some(mut most) = bufs.last_entry() else { break };
            match most.get_mut().pop() {
                Some(old) => self.used.set(self.used.get() - old.len() as u64),
                None => drop(most.remove()),
            }
        }
        bufs.entry(len).or_default().push(buf);
        self.used.set(self.used.get() + len as u64);
        self.peak.set(self.peak.get().max(self.used.get()));
    }

    /// Bytes now, at most so far, and at most ever.
    pub fn memory(&self) -> (u64, u64, u64) {
        (self.used.get(), self.peak.get(), self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_taken_back_when_its_last_part_goes_and_never_beyond_the_limit() {
        let spare = Spare::new(64 << 10);
        let whole = spare.take(8192).freeze();
        let part = whole.slice(0..4096);
        spare.give(whole);
        assert_eq!(spare.memory().0, 0);
        spare.give(part);
        assert_eq!(spare.memory().0, 8192);
        let lens = [16 << 10; 5].map(|len| spare.take(len).freeze());
        lens.into_iter().for_each(|slice| spare.give(slice));
        assert_eq!((spare.memory().0, spare.memory().1), (56 << 10, 56 << 10), "a large one makes room for the last");
        drop(spare.take(16 << 10));
        assert_eq!(spare.memory().0, 40 << 10);
    }
}
