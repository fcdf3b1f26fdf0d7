//! Who may speak for a pool. Pure: from labels and from which disks are there, to whether a pool may be opened, may go
//! on, and which disks are believed. `weft-sim` explores every sequence of events over these functions for pools of up
//! to five disks (`crates/sim/src/quorum.rs`).
//!
//! The protocol
//! 1. *Opening* needs more than half of the voters of the newest label. Before an opening writes anything it has a
//!    number promised: one larger than any number on the disks that are there, durable on more than half of the voters.
//!    So of two openings from the same label the later one knows of the earlier, and labels are ordered by (opening,
//!    epoch).
//! 2. *Going on* needs half of the voters of the last label that was durable on all disks it calls current.
//!    The other half cannot be opened elsewhere meanwhile: it is no majority. Below half the pool freezes.
//!    It needs half of the voters of each label written since, too: one that was cut short may be durable, and open the
//!    pool elsewhere.
//! 3. A disk is voted out by a label without it, durable on all disks that the label calls current; only then is
//!    anything acknowledged without it.
//!
//! Invariants
//! 1. Any set of disks that may open a pool shares a disk with any set that may go on: two histories never both
//!    acknowledge anything.
//! 2. What one label made durable is known to every later opening: labels change the voters by a vote of the voters
//!    before.
//! 3. A disk is believed only if its own label is no older than the last durable one, of a history that the newest goes
//!    on from.

use crate::disk_set::DiskSet;
use crate::format::label::Label;
use crate::format::lineage::Lineage;
use crate::mutant::{self, Mutant};

/// How a disk stands to the newest label of its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It took part in everything: its metadata is up to date.
    Current,
    /// It missed something, or was put back from an older copy: nothing of its metadata is believed.
    Behind,
    /// It was written by another history of the pool since: what it holds may look newer than it is.
    Diverged,
}

/// How the disk with label `own` stands to `newest`. A label is written to one disk after the other, so the last ones
/// may be missing on a disk; but none that was durable on all disks it calls current.
pub fn standing(newest: &Label, own: &Label) -> Standing {
    if !newest.lineage.follows(&own.lineage) {
        return Standing::Diverged;
    }
    let named = newest.membership.current.contains(own.disk_no);
    if named && own.epoch >= newest.durable_epoch { Standing::Current } else { Standing::Behind }
}

/// Whether the disk with label `own` held a newer one when `newest` was written: it was put back from a copy, or lost
/// what it had called durable. Its strips are to be proven. That alone takes no vote from it: one label may be lost
/// where all the rest is there, and metadata proves itself, by version and lineage.
pub fn is_put_back(newest: &Label, own: &Label) -> bool {
    own.epoch < newest.seen_epochs[own.disk_no.0 as usize]
}

/// Whether the disk with label `own`, of an opening before that of `newest`, got labels in that one which the disks did
/// not have that were opened without it: a person told an older part of the pool to go on. `seen`: the newest epoch
/// that they know to be durable on it. A label says of a disk that is there that it has the one before.
pub fn has_strayed(newest: &Lineage, seen: u64, own: &Label) -> bool {
    let strayed = own.lineage.opened < newest.opened && own.epoch > seen.saturating_add(1);
    strayed && !mutant::active(Mutant::StrayedBelieved)
}

/// The newest of some labels; none where there are none.
pub fn newest<'a>(labels: impl Iterator<Item = &'a Label>) -> Option<&'a Label> {
    labels.max_by_key(|label| (label.lineage.opened, label.epoch))
}

/// Whether `current` (bits: disks that are there and believed) may open a pool with these voters.
pub fn may_open(voters: DiskSet, current: DiskSet) -> bool {
    (voters & current).len() * 2 > voters.len()
}

/// Whether `current` (bits: disks that are there and believed) may go on with an open pool whose last durable label
/// names these voters.
pub fn may_go_on(voters: DiskSet, current: DiskSet) -> bool {
    let there = (voters & current).len();
    there > 0 && there * 2 >= voters.len()
}

/// The number that the next opening asks for: larger than any of which the disks that are there know.
pub fn next_opening<'a>(labels: impl Iterator<Item = &'a Label>) -> u64 {
    labels.map(|label| label.promised.max(label.lineage.opened)).max().unwrap_or(0) + 1
}

/// The newest label of another history that could be opened from the disks that are there as well as the newest one:
/// nobody but the owner of the pool can say which of the two is to be kept. Where a disk that it calls current took no
/// part in it, it was never durable, and nothing was ever acknowledged under it.
pub fn rival<'a>(newest: &Label, labels: &'a [&'a Label]) -> Option<&'a Label> {
    let others = labels.iter().copied().filter(|label| standing(newest, label) == Standing::Diverged);
    let opens_alone = |label: &&Label| {
        let named = |other: &&&Label| label.membership.current.contains(other.disk_no);
        let durable = labels.iter().filter(named).all(|other| other.lineage.follows(&label.lineage));
        let believed = labels.iter().filter(|other| standing(label, other) == Standing::Current);
        durable && may_open(label.membership.voters, believed.map(|other| other.disk_no).collect())
    };
    self::newest(others.filter(opens_alone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_open(voters: u64, current: u64) -> bool {
        super::may_open(DiskSet::from_words(&[voters]), DiskSet::from_words(&[current]))
    }

    fn may_go_on(voters: u64, current: u64) -> bool {
        super::may_go_on(DiskSet::from_words(&[voters]), DiskSet::from_words(&[current]))
    }

    #[test]
    fn who_may_open_and_who_may_go_on_always_share_a_disk() {
        for voters in 1u64..64 {
            for opens in (0..64).filter(|set| may_open(voters, *set)) {
                for goes_on in (0..64).filter(|set| may_go_on(voters, *set)) {
                    assert_ne!(opens & goes_on & voters, 0, "{voters:b} {opens:b} {goes_on:b}");
                }
            }
        }
    }

    #[test]
    fn half_of_the_voters_go_on_and_do_not_open() {
        assert!(may_go_on(0b11, 0b01) && !may_open(0b11, 0b01));
        assert!(may_go_on(0b1111, 0b0011) && !may_open(0b1111, 0b0011));
        assert!(!may_go_on(0b111, 0b001) && may_go_on(0b111, 0b011) && may_open(0b111, 0b011));
        assert!(may_open(0b1, 0b1) && !may_open(0b1, 0b10) && !may_go_on(0b1, 0));
        assert!(!may_go_on(0, 0b1) && !may_open(0, 0b1));
    }
}
