//! How often the ranges of each virtual disk are sought out ([`crate::heat`]), kept in memory and, now and then, in the
//! tree.
//!
//! An entry of the tree is (`TREE_HEAT`, virtual disk, stretch, 0), and the stretch in the bytes that
//! [`crate::heat::STRETCH_LEN`] describes.
//!
//! Invariants
//! 1. Nobody waits for it: it is read when somebody asks, or before it is written first; it is written by a checkpoint
//!    that is taken anyway, every [`EVERY`] at most. What a crash takes is that much of it.
//! 2. It is worth no page that anything else needs: without room for all of it beside what is kept free for the tree,
//!    none is written.
//! 3. The clock counts hours of service: while a pool is closed nothing is forgotten.

use super::Store;
use crate::heat::{Curve, Heat, STRETCH_LEN, hour_of};
use crate::tree::{At, Key, KeyRange};
use crate::units::{ByteCount, Nanos, VdiskNo, VirtualOffset};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// The kind of the tree's entries for heat.
pub const HEAT: u16 = 7;
/// How long a checkpoint leaves out what was counted since the one that had it.
const EVERY: Nanos = Nanos::secs(900);
/// Entries that are read at once.
const BATCH: usize = 64;
/// An hour of the clock.
const HOUR: u64 = 3_600_000_000_000;

/// The heat of all virtual disks of a pool.
pub struct Heats {
    of: RefCell<BTreeMap<VdiskNo, Known>>,
    /// When the pool was opened.
    opened: Nanos,
    /// When it was written last.
    written: Cell<Nanos>,
}

impl Heats {
    /// Knows nothing yet of a pool that is opened now.
    pub fn new(now: Nanos) -> Heats {
        Heats { of: RefCell::default(), opened: now, written: Cell::new(now) }
    }
}

/// What is known of one.
struct Known {
    heat: Heat,
    /// The hour of service with which the clock began when the pool was opened; none: that was not read yet.
    past: Option<u64>,
}

fn key(vdisk: VdiskNo, stretch: u32) -> Key {
    Key::new(HEAT, vdisk.0.into(), stretch.into(), 0)
}

fn all_of(vdisk: VdiskNo) -> KeyRange {
    KeyRange::new(key(vdisk, 0), key(vdisk, u32::MAX))
}

impl Store {
    /// Takes note of a request of a client. Whether a hard disk would seek for it.
    pub fn note_heat(&self, vdisk: VdiskNo, size: ByteCount, offset: VirtualOffset, len: u64) -> bool {
        let mut all = self.heats.of.borrow_mut();
        let known = all.entry(vdisk).or_insert_with(|| Known { heat: Heat::new(size), past: None });
        let hour = self.hours_open() + known.past.unwrap_or(0);
        known.heat.note(offset, len, hour)
    }

    /// What tiers of all sizes would catch of what is asked of a virtual disk.
    pub async fn heat_curve(&self, vdisk: VdiskNo, size: ByteCount) -> Curve {
        self.load_heat(vdisk, size).await;
        let all = self.heats.of.borrow();
        // It may have been forgotten meanwhile, with its virtual disk.
        all.get(&vdisk).map_or_else(
            || Heat::new(size).curve(0),
            |known| known.heat.curve(self.hours_open() + known.past.unwrap_or(0)),
        )
    }

    /// How hot the ranges of a virtual disk are that were ever sought out, each with its number.
    pub async fn heat_of_ranges(&self, vdisk: VdiskNo, size: ByteCount) -> Vec<(u32, u64)> {
        self.load_heat(vdisk, size).await;
        let all = self.heats.of.borrow();
        let hour = |known: &Known| self.hours_open() + known.past.unwrap_or(0);
        all.get(&vdisk).map_or(Vec::new(), |known| known.heat.ranges(hour(known)))
    }

    /// Bytes of a range of a virtual disk.
    pub fn heat_range(&self, vdisk: VdiskNo, size: ByteCount) -> ByteCount {
        let all = self.heats.of.borrow();
        all.get(&vdisk).map_or_else(|| Heat::new(size).range(), |known| known.heat.range())
    }

    /// Forgets a virtual disk that is no more; what the tree has of it goes with the record that says so.
    pub fn forget_heat(&self, vdisk: VdiskNo) {
        self.heats.of.borrow_mut().remove(&vdisk);
    }

    /// Has the tree forget the heat of a virtual disk that is no more.
    pub(super) fn clear_heat(&self, vdisk: VdiskNo) {
        self.tree().clear(all_of(vdisk));
    }

    /// Puts into the tree what was counted, where that is due.
    pub(super) async fn put_heat(&self) {
        let now = self.world.now();
        if now.since(self.heats.written.get()) < EVERY {
            return;
        }
        self.heats.written.set(now);
        let vdisks = |store: &Store| -> BTreeMap<VdiskNo, ByteCount> {
            store.map.borrow().vdisks.values().map(|vdisk| (vdisk.id, vdisk.size)).collect()
        };
        for (vdisk, size) in vdisks(self) {
            if self.heats.of.borrow().contains_key(&vdisk) {
                self.load_heat(vdisk, size).await;
            }
        }
        let (there, mut all, tree) = (vdisks(self), self.heats.of.borrow_mut(), self.tree());
        all.retain(|vdisk, _| there.contains_key(vdisk));
        let bytes = all.values().map(|known| known.heat.stretches() as u64 * STRETCH_LEN as u64).sum();
        if !self.map.borrow().tree_may_grow(bytes) {
            return;
        }
        for (vdisk, known) in all.iter_mut() {
            for (stretch, bytes) in known.heat.take_changed() {
                tree.put(key(*vdisk, stretch), &bytes);
            }
        }
    }

    /// Has all that is in memory written anew: the tree has nothing of it.
    pub(super) fn touch_heat(&self) {
        self.heats.of.borrow_mut().values_mut().for_each(|known| known.heat.touch());
    }

    /// Reads what the tree has of a virtual disk, once. What is lost of it is forgotten.
    async fn load_heat(&self, vdisk: VdiskNo, size: ByteCount) {
        if self.heats.of.borrow().get(&vdisk).is_some_and(|known| known.past.is_some()) {
            return;
        }
        let (tree, mut entries, mut rest) = (self.tree(), alloc::vec::Vec::new(), Some(all_of(vdisk)));
        while let Some(range) = rest.take() {
            let Ok(scanned) = tree.scan(At::Head, range, BATCH).await else { break };
            entries.extend(scanned.entries);
            rest = scanned.next.map(|next| KeyRange::new(next, range.last));
        }
        let mut all = self.heats.of.borrow_mut();
        let known = all.entry(vdisk).or_insert_with(|| Known { heat: Heat::new(size), past: None });
        if known.past.is_some() {
            return; // somebody else has loaded it meanwhile
        }
        let past = entries.iter().filter_map(|(_, bytes)| hour_of(bytes)).max().unwrap_or(0);
        known.past = Some(past);
        known.heat.resume(past);
        entries.iter().for_each(|(key, bytes)| known.heat.load(key.middle as u32, bytes));
    }

    /// Hours since the pool was opened.
    fn hours_open(&self) -> u64 {
        self.world.now().since(self.heats.opened).0 / HOUR
    }
}
