//! Which disks need no flush: those that keep what they have taken when the power fails.
//!
//! A flush is what a disk with a volatile cache needs before anything counts as durable on it. One whose cache is not
//! volatile has nothing to do then, but takes its time for it all the same, or is asked over a bus and a queue for
//! nothing.
//!
//! Invariants
//! 1. A flush is left out only where the disk itself tells that nothing of it is volatile, or a person said so; and
//!    never where memory that is not the disk's lies between, whoever says what.
//! 2. The first flush after a disk has come, or has come to count as protected, is sent: what it took before that lay
//!    in a cache that may have been volatile then.
//! 3. What was called durable without a flush is flushed as soon as the disk counts as protected no more.
//! 4. Nobody but [`Store::disk_flush`] leaves a flush out.

use super::Store;
use crate::event::Event;
use crate::format::record::PowerProtected;
use crate::io::WriteCache;
use crate::mutant::{self, Mutant};
use crate::units::DiskNo;

/// What is known of a disk's cache, and what follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Power {
    /// What a person said.
    pub said: PowerProtected,
    /// What the disk tells.
    pub cache: WriteCache,
}

impl Power {
    /// Whether the disk needs no flush.
    pub fn is_protected(self) -> bool {
        match (self.cache, self.said) {
            (WriteCache::Host, _) | (_, PowerProtected::No) => false,
            (_, PowerProtected::Yes) => true,
            (cache, PowerProtected::Auto) => {
                cache == WriteCache::NonVolatile || mutant::active(Mutant::UnprotectedUnflushed)
            }
        }
    }
}

impl Store {
    /// What is known of the cache of disk `no`, as of now.
    pub fn power_of(&self, no: DiskNo) -> Power {
        let said = self.map.borrow().disks.get(&no).map_or(PowerProtected::Auto, |disk| disk.record.power);
        let members = self.members.borrow();
        let disk = members.get(&no).and_then(|member| member.disk.as_ref());
        Power { said, cache: disk.map_or(WriteCache::Unknown, |disk| disk.write_cache()) }
    }

    /// Whether the flush of disk `no` that is due may be left out. Takes note of how the disk is now.
    pub(super) fn needs_no_flush(&self, no: DiskNo) -> bool {
        let now = self.power_of(no).is_protected();
        let Some(before) = self.members.borrow_mut().get_mut(&no).map(|member| member.protected.replace(now)) else {
            return false;
        };
        if before.is_some_and(|before| before != now) {
            self.world.emit(Event::DiskProtected { disk: no, protected: now });
        }
        before == Some(true) && now
    }

    /// Somebody said something else of the cache of disk `no`: it is flushed once, whatever it is now. It was `before`.
    pub fn power_changed(&self, no: DiskNo, before: Power) {
        let now = self.power_of(no).is_protected();
        if now == before.is_protected() {
            return;
        }
        if let Some(member) = self.members.borrow_mut().get_mut(&no) {
            member.protected = None;
            // What counts as flushed may never have been.
            member.completed += 1;
        }
        self.world.emit(Event::DiskProtected { disk: no, protected: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_knows_better_than_the_disk_but_not_what_lies_before_it() {
        const CACHES: [WriteCache; 4] =
            [WriteCache::Unknown, WriteCache::Volatile, WriteCache::NonVolatile, WriteCache::Host];
        let protected = |said| CACHES.map(|cache| Power { said, cache }.is_protected());
        assert_eq!(protected(PowerProtected::Auto), [false, false, true, false]);
        assert_eq!(protected(PowerProtected::Yes), [true, true, true, false]);
        assert_eq!(protected(PowerProtected::No), [false; 4]);
    }
}
