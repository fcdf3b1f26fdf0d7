//! What is held against a disk: failed writes, bad blocks, slow answers; and what follows from it.
//!
//! Invariant: a block that nobody can heal is held against its disk once, however often it is read.

use super::{Member, Store};
use crate::event::Event;
use crate::format::record::Usage;
use crate::health::is_slow;
use crate::io::{Disk, DiskError};
use crate::mutant::{self, Mutant};
use crate::units::{DiskNo, DiskOffset, Nanos};
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;

/// Unhealed blocks of a disk that are known one by one; what is beyond them counts whenever it is read.
const KNOWN_MAX: usize = 4096;

/// The bad blocks that are held against a disk.
#[derive(Default)]
pub struct BadBlocks {
    unhealed: BTreeSet<DiskOffset>,
    count: u64,
}

impl BadBlocks {
    /// A block cannot be read, or is wrong. Says how many there were, if it counts.
    fn shows(&mut self, at: DiskOffset) -> Option<u64> {
        if self.unhealed.contains(&at) && !mutant::active(Mutant::BadBlockCountedAgain) {
            return None;
        }
        if self.unhealed.len() < KNOWN_MAX {
            self.unhealed.insert(at);
        }
        self.count += 1;
        Some(self.count)
    }
}

impl Store {
    /// Goes on without a disk that failed; one that keeps failing is retired. Nothing is held against it that was asked
    /// of it before it was last lost: it has been given another chance since.
    pub(super) fn disk_failed(&self, no: DiskNo, asked: &Rc<dyn Disk>, error: DiskError, reason: &str) {
        let now = self.disk(no);
        if !now.is_ok_and(|now| Rc::ptr_eq(&now, asked)) {
            return;
        }
        self.disk_lost(no, reason);
        if let Some(member) = self.members.borrow_mut().get_mut(&no) {
            member.out_of_room = error == DiskError::Full;
        }
        // What fills up below a disk is no fault of it: it is used again when there is room.
        if matches!(error, DiskError::Gone | DiskError::Full) {
            return;
        }
        self.count(no, |counters| counters.failures += 1);
        let failures = self.members.borrow().get(&no).map_or(0, |member| member.counters.failures);
        if failures >= self.tuning.failures_max && self.writing.get() {
            self.retire_disk(no, Event::DiskUnreliable { disk: no, failures });
        }
    }

    /// Counts a bad block, and tells about it.
    pub fn bad_block(&self, no: DiskNo, at: DiskOffset, checksum: bool) {
        self.count(no, |counters| counters.bad_blocks += 1);
        self.world.emit(Event::BlockBad { disk: no, at, checksum });
        let count = self.members.borrow_mut().get_mut(&no).and_then(|member| member.bad.shows(at));
        if count == Some(self.tuning.bad_blocks_max) && self.writing.get() {
            self.retire_disk(no, Event::DiskRetired { disk: no, bad_blocks: self.tuning.bad_blocks_max });
        }
    }

    /// A disk that cannot be relied on takes nothing new; what it holds moves elsewhere.
    fn retire_disk(&self, no: DiskNo, why: Event) {
        let record = self.map.borrow_mut().change_disk(no, |disk| disk.usage = Usage::Retired);
        if record.is_some() {
            self.world.emit(why);
            self.append_changes(record);
            self.changed();
        }
    }

    /// Counts a healed block, and tells about it.
    pub fn healed_block(&self, no: DiskNo, at: DiskOffset) {
        self.count(no, |counters| counters.healed_blocks += 1);
        if let Some(member) = self.members.borrow_mut().get_mut(&no) {
            member.bad.unhealed.remove(&at);
        }
        self.world.emit(Event::BlockHealed { disk: no, at });
    }

    /// Counts a damaged metadata copy that was rewritten, and tells about it.
    pub fn metadata_healed(&self, no: DiskNo, what: &'static str) {
        self.counters.metadata_healed.set(self.counters.metadata_healed.get() + 1);
        self.world.emit(Event::MetadataHealed { disk: no, what });
    }

    /// Compares a disk with its peers, and tells when it has become an outlier or is none any more.
    pub(super) fn judge_latency(&self, no: DiskNo) {
        let quantile = |member: &Member| match member.service.is_empty() {
            true => member.latency.quantile(900),
            false => member.service.quantile(900),
        };
        let (own, was_slow, mut peers) = {
            let members = self.members.borrow();
            let map = self.map.borrow();
            let media = |no: &DiskNo| map.disks.get(no).map(|disk| disk.record.media);
            let Some(member) = members.get(&no) else { return };
            let peers = members.iter().filter(|(other, peer)| {
                **other != no && media(other) == media(&no) && peer.disk.is_some() && !peer.latency.is_empty()
            });
            (quantile(member), member.slow, peers.map(|(_, peer)| quantile(peer)).collect::<Vec<Nanos>>())
        };
        peers.sort_unstable();
        let Some(median) = peers.get(peers.len() / 2).copied() else { return };
        let slow = is_slow(own, median);
        if slow != was_slow {
            if let Some(member) = self.members.borrow_mut().get_mut(&no) {
                member.slow = slow;
            }
            self.world.emit(Event::DiskSlow { disk: no, slow, own, median });
        }
    }
}
