//! Which log records hold bytes of a stripe that are nowhere else: each byte by the newest record of it. So what is
//! alive of the oldest part of the log can be told exactly, and be moved to its head, without moving what landed later.

use alloc::vec::Vec;
use core::ops::Range;

/// The bytes of a stripe that are nowhere but in the log, each with the newest record that has it.
#[derive(Clone, Default, Debug)]
pub struct Landed(Vec<(u64, Range<usize>)>);

impl Landed {
    /// Record `seq` holds these bytes of the stripe now.
    pub fn add(&mut self, seq: u64, bytes: Range<usize>) {
        self.forget(&bytes);
        if !bytes.is_empty() {
            self.0.push((seq, bytes));
        }
    }

    /// Adds what another version of the stripe landed, of whose bytes this one is the newer version.
    pub fn take_over(&mut self, older: &Landed) {
        for (seq, bytes) in &older.0 {
            let mut left = Landed(alloc::vec![(*seq, bytes.clone())]);
            self.0.iter().for_each(|(_, newer)| left.forget(newer));
            self.0.extend(left.0);
        }
    }

    /// The oldest record that is needed.
    pub fn oldest(&self) -> Option<u64> {
        self.0.iter().map(|(seq, _)| *seq).min()
    }

    /// The bytes that records below `bound` hold, in order.
    pub fn below(&self, bound: u64) -> Vec<Range<usize>> {
        let mut found: Vec<_> = self.0.iter().filter(|(seq, _)| *seq < bound).map(|(_, bytes)| bytes.clone()).collect();
        found.sort_unstable_by_key(|bytes| bytes.start);
        found
    }

    /// How many bytes those are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    fn forget(&mut self, bytes: &Range<usize>) {
        let cut = |(seq, old): (u64, Range<usize>)| {
            let before = old.start..old.end.min(bytes.start).max(old.start);
            let after = old.start.max(bytes.end).min(old.end)..old.end;
            [(seq, before), (seq, after)].into_iter().filter(|(_, left)| !left.is_empty())
        };
        self.0 = core::mem::take(&mut self.0).into_iter().flat_map(cut).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_told_by_its_newest_record_and_what_is_replaced_needs_no_record() {
        let mut landed = Landed::default();
        landed.add(5, 0..4096);
        landed.add(7, 8192..12288);
        landed.add(9, 1024..2048);
        assert_eq!((landed.oldest(), landed.below(6)), (Some(5), alloc::vec![0..1024, 2048..4096]));
        landed.add(11, 0..4096);
        assert_eq!((landed.oldest(), landed.below(9)), (Some(7), alloc::vec![8192..12288]));
        assert_eq!(landed.below(12), [0..4096, 8192..12288]);
    }

    #[test]
    fn a_newer_version_takes_over_what_it_did_not_land_itself() {
        let (mut newer, mut older) = (Landed::default(), Landed::default());
        older.add(3, 0..4096);
        newer.add(8, 512..1024);
        newer.take_over(&older);
        assert_eq!((newer.below(4), newer.below(9).len()), (alloc::vec![0..512, 1024..4096], 3));
        newer.take_over(&Landed::default());
        assert_eq!(newer.oldest(), Some(3));
    }
}
