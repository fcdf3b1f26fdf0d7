//! The order in which a disk that seeks gets what it has to read.
//!
//! Such a disk sorts: of all that it has been given it reads what comes under its head first. That serves small reads
//! here and there well. Of a stream it may begin in the middle, and who waits for the beginning waits for as long as
//! more of the stream comes: half a second, with some.
//!
//! Invariants
//! 1. The disk is given the reads of a stream in their order, and of one for which it has to seek only the first before
//!    it has answered that. What goes on a little behind a long read that is of no stream waits for its answer.
//! 2. Who was overtaken by [`OVERTAKEN`] bytes of younger reads is answered before the disk is given another one.
//! 3. Nobody waits for a disk that stalls.
//! 4. Who waits has a read at the disk, or before it among those that wait, for which it waits: all go in the end.

use crate::mutant::{self, Mutant};
use crate::sync::{Answer, Promise, promise};
use alloc::collections::VecDeque;
use core::ops::Range;

/// Bytes that younger reads of a disk may bring before an older one: what a disk reads in four revolutions, and far
/// more than it reads of small pieces that it sorts for the sake of its arm.
pub const OVERTAKEN: u64 = 8 << 20;
/// Bytes of a stream that a disk is given at once.
const UNDER_WAY: u64 = 4 << 20;
/// What begins so many times its length behind a read goes on from there, as far as anybody can tell.
const BEHIND: u64 = 8;
/// The least bytes of a long read.
const LONG: u64 = 64 << 10;
/// Streams whose ends are remembered.
const STREAMS: usize = 16;

/// The reads of one disk.
#[derive(Default)]
pub struct Order {
    /// Those that it may have, oldest first.
    at_disk: VecDeque<AtDisk>,
    /// Those that wait, in the order in which they came.
    held: VecDeque<Held>,
    /// Where each stream was last, latest last.
    ends: VecDeque<(u64, u64)>,
    /// The next read's number.
    next: u64,
}

/// What is to be read.
#[derive(Clone, Debug)]
pub struct Asked {
    /// From the first byte to the last one.
    pub range: Range<u64>,
    /// Bytes that are read of that.
    pub bytes: u64,
    /// The stream that it is ahead of.
    pub stream: Option<u64>,
}

/// A read that the disk may have.
struct AtDisk {
    number: u64,
    asked: Asked,
    /// The disk has it.
    begun: bool,
    /// The disk has to seek for it.
    seeks: bool,
    /// Bytes of younger ones that were answered before.
    overtaken: u64,
}

struct Held {
    asked: Asked,
    go: Promise<u64>,
}

impl Order {
    /// Lets the disk have a read, if it may now. Returns its number, or who will tell it.
    pub fn enter(&mut self, asked: Asked) -> Result<u64, Answer<u64>> {
        if self.may_go(&asked, self.held.len()) {
            return Ok(self.go(asked));
        }
        let (go, told) = promise();
        self.held.push_back(Held { asked, go });
        Err(told)
    }

    /// The disk has been given the read of this number.
    pub fn begun(&mut self, number: u64) {
        if let Some(read) = self.at_disk.iter_mut().find(|read| read.number == number) {
            read.begun = true;
        }
        self.let_go();
    }

    /// The disk has answered the read of this number, or it is waited for no more.
    pub fn leave(&mut self, number: u64) {
        let Some(nth) = self.at_disk.iter().position(|read| read.number == number) else { return };
        let Some(AtDisk { asked, .. }) = self.at_disk.remove(nth) else { return };
        self.at_disk.iter_mut().take(nth).for_each(|read| read.overtaken += asked.bytes);
        self.let_go();
    }

    /// The disk stalls: nobody is to wait for it one after the other.
    pub fn let_all_go(&mut self) {
        for Held { asked, go } in core::mem::take(&mut self.held) {
            go.keep(self.go(asked));
        }
    }

    /// Whether somebody waits until the disk may have his read.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    fn let_go(&mut self) {
        let mut nth = 0;
        while nth < self.held.len() {
            if !self.may_go(&self.held[nth].asked, nth) {
                nth += 1;
            } else if let Some(Held { asked, go }) = self.held.remove(nth) {
                go.keep(self.go(asked));
            }
        }
    }

    /// Whether the disk may have a read before which `held` others wait.
    fn may_go(&self, asked: &Asked, held: usize) -> bool {
        let overtaken = self.at_disk.front().is_some_and(|oldest| oldest.overtaken >= OVERTAKEN);
        if overtaken && !mutant::active(Mutant::OvertakesForEver) {
            return false;
        }
        if mutant::active(Mutant::BeginsInTheMiddle) {
            return true;
        }
        let mut under_way = 0;
        for read in self.at_disk.iter().filter(|read| asked.follows(&read.asked)) {
            if asked.stream.is_none() || read.seeks || !read.begun {
                return false;
            }
            under_way += read.asked.bytes;
        }
        let first = !self.held.iter().take(held).any(|held| asked.follows(&held.asked));
        first && (under_way == 0 || under_way + asked.bytes <= UNDER_WAY)
    }

    fn go(&mut self, asked: Asked) -> u64 {
        let mut seeks = true;
        if let Some(stream) = asked.stream {
            let before = self.ends.iter().position(|(other, _)| *other == stream);
            let end = before.and_then(|nth| self.ends.remove(nth));
            seeks = end.is_none_or(|(_, end)| !goes_on(&asked.range, &(end.saturating_sub(asked.bytes)..end)));
            self.ends.push_back((stream, asked.range.end));
            if self.ends.len() > STREAMS {
                self.ends.pop_front();
            }
        }
        self.next += 1;
        self.at_disk.push_back(AtDisk { number: self.next, asked, begun: false, seeks, overtaken: 0 });
        self.next
    }
}

impl Asked {
    /// Whether this is to come after `before`.
    fn follows(&self, before: &Asked) -> bool {
        match (self.stream, before.stream) {
            (Some(stream), Some(other)) => stream == other,
            _ => before.range.end - before.range.start >= LONG && goes_on(&self.range, &before.range),
        }
    }
}

/// Whether who reads `range` after `before` seems to go on from there.
fn goes_on(range: &Range<u64>, before: &Range<u64>) -> bool {
    let most = (before.end - before.start) * BEHIND;
    range.start >= before.end && range.start - before.end <= most
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const LEN: u64 = 1 << 20;

    /// Asks for the MiB number `nth`.
    fn ask(order: &mut Order, nth: u64, stream: Option<u64>) -> Option<u64> {
        order.enter(Asked { range: nth * LEN..(nth + 1) * LEN, bytes: LEN, stream }).ok()
    }

    /// The MiB that the disk may have, in this order.
    fn given(order: &Order) -> Vec<u64> {
        order.at_disk.iter().map(|read| read.asked.range.start / LEN).collect()
    }

    #[test]
    fn a_stream_comes_in_its_order_and_others_come_between() {
        let mut order = Order::default();
        let first = ask(&mut order, 100, Some(7)).unwrap();
        order.begun(first);
        for nth in [101, 102, 103, 104, 105, 106, 300, 301] {
            assert!(ask(&mut order, nth, Some(7)).is_none());
        }
        assert!(ask(&mut order, 500, Some(8)).is_some() && ask(&mut order, 700, None).is_some());
        order.leave(first);
        assert_eq!(given(&order), [500, 700, 101], "the next one only once the disk has this one");
        let last_of =
            |order: &Order| order.at_disk.iter().rfind(|read| read.asked.stream == Some(7)).map(|read| read.number);
        for _ in 0..4 {
            let last = last_of(&order).unwrap();
            order.begun(last);
        }
        assert_eq!(given(&order), [500, 700, 101, 102, 103, 104]);
        for expected in [105, 106, 300] {
            let oldest = order.at_disk[2].number;
            order.leave(oldest);
            let last = last_of(&order).unwrap();
            order.begun(last);
            assert_eq!(given(&order).last(), Some(&expected));
        }
        for _ in 0..3 {
            assert_eq!(given(&order).last(), Some(&300), "it seeks for that: the rest has to wait");
            let oldest = order.at_disk[2].number;
            order.leave(oldest);
        }
        let oldest = order.at_disk[2].number;
        order.leave(oldest);
        assert_eq!(given(&order), [500, 700, 301]);
        assert!(!order.holds());
    }

    #[test]
    fn long_reads_of_no_stream_wait_for_those_before_them() {
        let mut order = Order::default();
        let first = ask(&mut order, 10, None).unwrap();
        assert!(ask(&mut order, 11, None).is_none() && ask(&mut order, 12, None).is_none());
        assert!(ask(&mut order, 1000, None).is_some());
        order.leave(first);
        assert_eq!(given(&order), [1000, 11]);
    }

    #[test]
    fn who_was_overtaken_by_much_is_waited_for() {
        let mut order = Order::default();
        let oldest = ask(&mut order, 1000, None).unwrap();
        for nth in 0..OVERTAKEN / LEN {
            let read = ask(&mut order, nth, None).unwrap();
            order.leave(read);
        }
        assert!(ask(&mut order, OVERTAKEN / LEN, None).is_none());
        order.leave(oldest);
        assert!(!order.holds());
    }

    #[test]
    fn small_reads_here_and_there_are_the_disks_to_sort() {
        let mut order = Order::default();
        let at = |nth: u64| nth * 7919 % 1000 * (1 << 16);
        let mut ask = |nth| order.enter(Asked { range: at(nth)..at(nth) + 4096, bytes: 4096, stream: None }).is_ok();
        assert!((0..32).all(&mut ask));
    }
}
