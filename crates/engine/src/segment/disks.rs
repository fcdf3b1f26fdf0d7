//! The members' records and slabs, and which of them a table may use.

use super::Map;
use crate::bits::BitSet;
use crate::disk_set::DiskSet;
use crate::format::record::{DiskRecord, Media, Record, Usage};
use crate::units::{ByteCount, DiskNo};
use alloc::vec::Vec;

/// One member's slabs.
#[derive(Clone)]
pub struct DiskRoom {
    /// Its name, size and use.
    pub record: DiskRecord,
    /// Whether it is there and takes writes.
    pub healthy: bool,
    /// Whether the metadata on it is up to date, too.
    pub current: bool,
    /// Its free slabs.
    pub free: BitSet,
}

impl DiskRoom {
    /// The room of a disk that is there and holds nothing.
    pub fn empty(record: DiskRecord) -> DiskRoom {
        let mut free = BitSet::empty(record.slabs as usize);
        free.insert(0..record.slabs as usize);
        DiskRoom { record, healthy: true, current: true, free }
    }
}

impl Map {
    /// A disk joins, all its slabs free. `config_max`: the room for the configuration on it.
    pub fn add_disk(&mut self, record: DiskRecord, config_max: ByteCount) {
        self.config_max = self.config_max.min(config_max);
        self.disks.insert(record.no, DiskRoom::empty(record));
    }

    /// Whether some of the disks seek that a table may use which is restricted to `disks` (none: it is not). One of
    /// which nobody knows seeks.
    pub fn seeks(&self, disks: DiskSet) -> bool {
        self.disks_for(disks).any(|disk| disk.record.media != Media::Ssd)
    }

    /// Where the search for the number of a new disk begins: after that of the one that joined last.
    pub fn next_disk(&self) -> DiskNo {
        match self.notes.next.next_disk {
            DiskNo(0) => self.disks.keys().next_back().map(|no| no.next()).unwrap_or_default(),
            next => next,
        }
    }

    /// Changes the record of a disk; one that is retired keeps what it was used for. Returns it, if it was changed.
    pub fn change_disk(&mut self, no: DiskNo, change: impl FnOnce(&mut DiskRecord)) -> Option<Record<'static>> {
        let disk = self.disks.get_mut(&no)?;
        let before = disk.record.clone();
        change(&mut disk.record);
        if disk.record.usage == Usage::Retired && before.usage != Usage::Retired {
            disk.record.retired_from = before.usage;
        }
        (before != disk.record).then(|| Record::Disk(disk.record.clone()))
    }

    /// Names disk `to` wherever tables name disk `no`, whose place it takes.
    pub fn hand_on(&mut self, no: DiskNo, to: DiskNo) -> Vec<Record<'static>> {
        self.rename_disks(|disks| handed_on(disks, no, to))
    }

    /// Names disk `no`, which leaves, no more: its number will be another disk's some day. A table that names no other
    /// keeps it, for one that names none takes every disk.
    pub fn forget_named(&mut self, no: DiskNo) -> Vec<Record<'static>> {
        self.rename_disks(|disks| if disks == DiskSet::only(no) { disks } else { disks.without(no) })
    }

    fn rename_disks(&mut self, change: impl Fn(DiskSet) -> DiskSet) -> Vec<Record<'static>> {
        let mut records = Vec::new();
        for table in self.tables.values_mut() {
            let disks = change(table.record.disks);
            if disks != table.record.disks {
                table.record.disks = disks;
                records.push(Record::Table(table.record));
            }
        }
        for vdisk in self.vdisks.values_mut() {
            let before = (vdisk.cache, vdisk.tier.as_ref().map(|tier| tier.disks));
            vdisk.cache.iter_mut().for_each(|cache| cache.disks = change(cache.disks));
            vdisk.tier.iter_mut().for_each(|tier| tier.disks = change(tier.disks));
            if before != (vdisk.cache, vdisk.tier.as_ref().map(|tier| tier.disks)) {
                records.push(Record::Vdisk(vdisk.clone()));
            }
        }
        for cache in self.read_caches.values_mut() {
            let disks = change(cache.record.disks);
            // One that has no other disk has slabs there still, and goes with them.
            if disks != cache.record.disks && !disks.is_empty() {
                cache.record.disks = disks;
                records.push(Record::ReadCache(cache.record.clone()));
            }
        }
        records
    }

    /// Disks that take new data without being asked.
    pub fn writable_disks(&self) -> impl Iterator<Item = &DiskRoom> {
        self.disks_for(DiskSet::EMPTY)
    }

    /// Disks that take new data of a table that is restricted to `disks` (none: it is not).
    pub fn disks_for(&self, disks: DiskSet) -> impl Iterator<Item = &DiskRoom> {
        self.disks.values().filter(move |disk| {
            let named = disks.contains(disk.record.no) && disk.record.usage == Usage::ManualSelect;
            let allowed = disks.is_empty() || disks.contains(disk.record.no);
            disk.healthy && allowed && (named || disk.record.usage == Usage::AutoSelect)
        })
    }
}

/// Who is named when disk `to` takes the place of disk `no`.
pub fn handed_on(disks: DiskSet, no: DiskNo, to: DiskNo) -> DiskSet {
    if disks.contains(no) { disks.with(to) } else { disks }
}
