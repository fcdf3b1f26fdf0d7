//! Landed data that a replay has found and no stripe holds yet, kept by where it belongs: a commit finds what it
//! retires without a look at the rest.

use super::replay::Landed;
use crate::units::VdiskNo;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Landed data that a replay has found and no stripe holds yet, by where it belongs.
#[derive(Default)]
pub(super) struct LandedIndex {
    /// By virtual disk, byte offset and sequence number.
    data: BTreeMap<(VdiskNo, u64, u64), Vec<u8>>,
    /// How many were looked at.
    looked_at: u64,
}

impl LandedIndex {
    pub fn add(&mut self, landed: Landed) {
        self.data.insert((landed.vdisk, landed.offset, landed.seq), landed.data);
    }

    /// Forgets what begins in `range` of `vdisk` and was landed before record `before`.
    pub fn retire(&mut self, vdisk: VdiskNo, range: Range<u64>, before: u64) {
        if range.is_empty() {
            return;
        }
        let keys: Vec<_> =
            self.data.range((vdisk, range.start, 0)..(vdisk, range.end, 0)).map(|(key, _)| *key).collect();
        self.looked_at += keys.len() as u64;
        for key in keys.into_iter().filter(|(.., seq)| *seq < before) {
            self.data.remove(&key);
        }
    }

    /// Forgets all of `vdisk`.
    pub fn retire_vdisk(&mut self, vdisk: VdiskNo) {
        self.retire(vdisk, 0..u64::MAX, u64::MAX);
    }

    /// What is left, oldest first.
    pub fn into_landed(self) -> Vec<Landed> {
        let landed = self.data.into_iter().map(|((vdisk, offset, seq), data)| Landed { seq, vdisk, offset, data });
        let mut landed: Vec<Landed> = landed.collect();
        landed.sort_unstable_by_key(|landed| landed.seq);
        landed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn landed(seq: u64, vdisk: VdiskNo, offset: u64) -> Landed {
        Landed { seq, vdisk, offset, data: Vec::new() }
    }

    #[test]
    fn a_commit_looks_at_what_it_retires_however_much_landed_elsewhere() {
        let mut index = LandedIndex::default();
        const STRIPES: u64 = 20_000;
        for stripe in 0..STRIPES {
            index.add(landed(stripe, VdiskNo(1), stripe * 8192));
            index.add(landed(STRIPES + stripe, VdiskNo(2), stripe * 8192));
        }
        for stripe in 0..STRIPES {
            index.retire(VdiskNo(1), stripe * 8192..(stripe + 1) * 8192, STRIPES);
        }
        assert_eq!(index.looked_at, STRIPES);
        index.retire_vdisk(VdiskNo(2));
        assert_eq!(index.looked_at, 2 * STRIPES);
        assert!(index.into_landed().is_empty());
    }

    #[test]
    fn what_landed_after_a_stripe_was_sealed_stays_and_is_told_oldest_first() {
        let mut index = LandedIndex::default();
        for (seq, vdisk, offset) in [(7, 1, 0), (3, 1, 4096), (5, 1, 4096), (4, 1, 8192), (6, 2, 4096)] {
            index.add(landed(seq, VdiskNo(vdisk), offset));
        }
        index.retire(VdiskNo(1), 0..8192, 5);
        let left: Vec<_> = index.into_landed().iter().map(|landed| (landed.seq, landed.vdisk, landed.offset)).collect();
        assert_eq!(left, [(4, VdiskNo(1), 8192), (5, VdiskNo(1), 4096), (6, VdiskNo(2), 4096), (7, VdiskNo(1), 0)]);
    }
}
