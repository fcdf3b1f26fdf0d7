//! A pool: disks under one configuration, and the virtual disks on them.
//!
//! Invariants
//! 1. A change of configuration is in the map and in the log in one step, and durable before the caller hears of it.
//! 2. Names of virtual disks are unique within the pool.

pub mod check;
pub mod create;
pub mod history;
pub mod info;
pub mod job;
pub mod keeper;
pub mod leaving;
pub mod members;
pub mod moves;
pub mod open;
pub mod room;

use crate::error::Result;
use crate::fail;
use crate::format::Id;
use crate::format::is_name;
use crate::format::record::{Record, VdiskRecord};
use crate::limits::{CHUNKS_MAX, NAME_MAX, VDISK_SIZE_MAX};
use crate::store::Store;
use crate::stripe::geometry::{Layout, Resiliency};
use crate::stripe::table::CHUNK_ENTRIES;
use crate::units::ByteCount;
use crate::vdisk::Vdisk;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;

pub use create::{NewDisk, PoolOptions};
pub use leaving::{Instead, Leaving, Loss};
pub use members::DiskChange;
pub use open::{OpenOptions, probe};

/// An open pool.
pub struct Pool {
    store: Rc<Store>,
    vdisks: RefCell<BTreeMap<u32, Rc<Vdisk>>>,
    checkpointing: crate::sync::Turn,
    /// Held while a disk joins or leaves.
    joining: crate::sync::Turn,
    jobs: job::Jobs,
}

/// What a new virtual disk is to be.
#[derive(Clone, Debug)]
pub struct VdiskSpec {
    /// Its name: not empty, at most [`NAME_MAX`] bytes, without `/`, `@`, white space and control characters.
    pub name: String,
    /// Its size; rounded up to 4 KiB.
    pub size: ByteCount,
    /// What it survives, and how.
    pub resiliency: Resiliency,
    /// Columns; chosen by [`Layout::default_for`] if not given.
    pub columns: Option<u8>,
    /// Interleave; chosen likewise.
    pub interleave: Option<ByteCount>,
    /// Whether its slabs are reserved now.
    pub fixed: bool,
    /// Bytes of its logical sector: 512 or 4096.
    pub sector: u32,
    /// The disks it may lie on, one bit each; 0: every disk that takes data by itself.
    pub disks: u64,
}

impl Pool {
    /// The pool's identity.
    pub fn id(&self) -> Id {
        self.store.id
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.store.labels.pool_name.borrow().clone()
    }

    /// What all its virtual disks share; for tests and tools.
    pub fn store(&self) -> &Rc<Store> {
        &self.store
    }

    /// The virtual disk called `name`.
    pub fn vdisk(&self, name: &str) -> Option<Rc<Vdisk>> {
        self.vdisks.borrow().values().find(|vdisk| vdisk.name() == name).cloned()
    }

    /// All virtual disks.
    pub fn vdisks(&self) -> Vec<Rc<Vdisk>> {
        self.vdisks.borrow().values().cloned().collect()
    }

    /// What `spec` would become: its layout and the record of it. Changes nothing.
    pub fn plan_vdisk(&self, spec: &VdiskSpec) -> Result<(Layout, VdiskRecord)> {
        check_name(&spec.name)?;
        if self.vdisk(&spec.name).is_some() {
            return fail!(AlreadyExists, "a virtual disk named {} exists already", spec.name);
        }
        if ![512, 4096].contains(&spec.sector) {
            return fail!(InvalidInput, "a sector has 512 or 4096 bytes, not {}", spec.sector);
        }
        let size = check_size(spec.size)?;
        let map = self.store.map.borrow();
        let disks = map.disks_for(spec.disks).count();
        let rotational = map.disks_for(spec.disks).any(|disk| disk.record.media != crate::format::record::Media::Ssd);
        let default = Layout::default_for(spec.resiliency, disks, rotational)?;
        let columns = spec.columns.unwrap_or(default.columns() as u8);
        let layout = Layout::new(spec.resiliency, columns, spec.interleave.unwrap_or(default.interleave()))?;
        if layout.slots() > disks {
            return fail!(
                NotPossible,
                "{layout} needs {} disks, {} {disks} that take data; {}",
                layout.slots(),
                if spec.disks == 0 { "the pool has" } else { "of those named there are" },
                widest(spec.resiliency, disks)
            );
        }
        if layout.interleave() > map.slab {
            return fail!(
                InvalidInput,
                "the interleave {} is larger than the pool's slabs of {}",
                layout.interleave(),
                map.slab
            );
        }
        let fixed = spec.fixed;
        if size.0 / layout.data_len().0 / CHUNK_ENTRIES >= CHUNKS_MAX as u64 {
            let most = ByteCount(CHUNKS_MAX as u64 * CHUNK_ENTRIES * layout.data_len().0);
            return fail!(InvalidInput, "{layout} allows disks of up to {most}; a larger interleave allows more");
        }
        if fixed {
            let (needed, possible) = (segments_for(layout, size, map.slab), map.segments_possible(layout, spec.disks));
            if needed > possible {
                let room = (possible.saturating_sub(1)) * layout.segment_stripes(map.slab) as u64 * layout.data_len().0;
                return fail!(
                    NoSpace,
                    "a fixed disk of {size} does not fit: {} is the most for {layout}",
                    ByteCount(room)
                );
            }
        }
        let name = spec.name.clone();
        Ok((layout, VdiskRecord { id: 0, name, size, sector: spec.sector, fixed, tables: Vec::new() }))
    }

    /// Makes a virtual disk.
    pub async fn vdisk_create(&self, spec: &VdiskSpec) -> Result<Rc<Vdisk>> {
        self.store.check_changeable()?;
        let (mut layout, mut record) = self.plan_vdisk(spec)?;
        while self.must_wait_for_slabs(&record, layout, spec.disks) {
            self.store.drained_some().await;
            self.store.check_changeable()?;
            (layout, record) = self.plan_vdisk(spec)?;
        }
        let (size, fixed) = (record.size, record.fixed);
        let id = {
            let mut map = self.store.map.borrow_mut();
            let (id, mut records) = map.new_vdisk(record, layout, spec.disks);
            let table = map.vdisks[&id].tables[0];
            if fixed {
                for _ in 0..segments_for(layout, size, map.slab) {
                    if let Err(error) = map.new_segment(table, &mut records) {
                        // A metadata segment that was made on the way stays, and others will use it: all of it is
                        // logged.
                        records.extend(map.drop_vdisk(id));
                        drop(map);
                        self.store.append_all(records);
                        return Err(error);
                    }
                }
            }
            drop(map);
            self.store.append_all(records);
            id
        };
        let vdisk = Vdisk::new(self.store.clone(), id);
        self.vdisks.borrow_mut().insert(id, vdisk.clone());
        self.store.make_durable(self.store.log.seq()).await?;
        Ok(vdisk)
    }

    /// Whether there is room for a new fixed virtual disk, but some of it still drains.
    fn must_wait_for_slabs(&self, record: &VdiskRecord, layout: Layout, disks: u64) -> bool {
        let map = self.store.map.borrow();
        let needed = segments_for(layout, record.size, map.slab);
        record.fixed && map.is_draining() && map.segments_possible_now(layout, disks) < needed
    }

    /// Removes a virtual disk and gives its space back.
    pub async fn vdisk_remove(&self, name: &str) -> Result<()> {
        self.store.check_changeable()?;
        let Some(vdisk) = self.vdisk(name) else { return fail!(NotFound, "there is no virtual disk named {name}") };
        self.vdisks.borrow_mut().remove(&vdisk.id());
        vdisk.close();
        vdisk.quiesce().await;
        // Reads that are under way, a scrub's included, end before its slabs can become somebody else's.
        while self.is_being_read(&vdisk) {
            self.store.pause().await;
        }
        let records = self.store.map.borrow_mut().drop_vdisk(vdisk.id());
        self.store.append_all(records);
        self.store.make_durable(self.store.log.seq()).await?;
        self.store.room.notify();
        self.store.changed();
        Ok(())
    }

    /// Makes a virtual disk larger.
    pub async fn vdisk_resize(&self, name: &str, size: ByteCount) -> Result<()> {
        self.store.check_changeable()?;
        let size = check_size(size)?;
        let Some(vdisk) = self.vdisk(name) else { return fail!(NotFound, "there is no virtual disk named {name}") };
        while self.growth_waits_for_slabs(vdisk.id(), size) {
            self.store.drained_some().await;
            self.store.check_writable()?;
            if self.vdisk(name).is_none_or(|now| !Rc::ptr_eq(&now, &vdisk)) {
                return fail!(NotFound, "there is no virtual disk named {name} any more");
            }
        }
        let records = {
            let mut map = self.store.map.borrow_mut();
            let mut record = map.vdisks[&vdisk.id()].clone();
            if size < record.size {
                return fail!(
                    NotPossible,
                    "{name} has {} and can only grow; to shrink it, copy it to a smaller disk",
                    record.size
                );
            }
            let mut records = Vec::new();
            if record.fixed {
                let table = record.tables[0];
                let layout = map.tables[&table].record.layout;
                let have = map.tables[&table].segments.len() as u64;
                let needed = segments_for(layout, size, map.slab).saturating_sub(have);
                if needed > map.segments_possible(layout, map.tables[&table].record.disks) {
                    return fail!(NoSpace, "the pool has no room to grow {name} to {size}");
                }
                for _ in 0..needed {
                    if let Err(error) = map.new_segment(table, &mut records) {
                        // What was added stays with the disk as room to spare; it is in the map, so it is logged.
                        drop(map);
                        self.store.append_all(records);
                        return Err(error);
                    }
                }
            }
            record.size = size;
            map.vdisks.insert(record.id, record.clone());
            records.push(Record::Vdisk(record));
            records
        };
        self.store.append_all(records);
        self.store.make_durable(self.store.log.seq()).await
    }

    /// Whether there is room for a fixed virtual disk to grow, but some of it still drains.
    fn growth_waits_for_slabs(&self, id: u32, size: ByteCount) -> bool {
        let map = self.store.map.borrow();
        let Some(record) = map.vdisks.get(&id).filter(|record| record.fixed && map.is_draining()) else { return false };
        let table = &map.tables[&record.tables[0]];
        let (layout, disks) = (table.record.layout, table.record.disks);
        let needed = segments_for(layout, size, map.slab).saturating_sub(table.segments.len() as u64);
        map.segments_possible_now(layout, disks) < needed && needed <= map.segments_possible(layout, disks)
    }

    fn is_being_read(&self, vdisk: &Vdisk) -> bool {
        let map = self.store.map.borrow();
        let Some(record) = map.vdisks.get(&vdisk.id()) else { return false };
        let mut segments = record.tables.iter().flat_map(|table| map.tables[table].segments.iter());
        segments.any(|segment| map.is_pinned(*segment))
    }

    /// Makes everything durable, takes a checkpoint and ends the background tasks. The pool is of no use afterwards.
    pub async fn close(&self) -> Result<()> {
        let mut result = Ok(());
        self.store.forget_streams(None);
        if !self.store.read_only {
            // Nobody waits any more for disks that are missing, a job that is to stop included.
            self.store.refuse_to_wait();
        }
        self.stop_jobs().await;
        if !self.store.read_only {
            for vdisk in self.vdisks() {
                result = result.and(vdisk.flush().await);
                vdisk.quiesce().await;
            }
            if result.is_ok() {
                result = self.checkpoint().await;
            }
            if result.is_ok() {
                self.store.drained_all().await;
                // Once more: a disk that is put back from a copy made while the pool was open is then more than one
                // epoch behind.
                self.store.labels.outdated.set(true);
                result = self.store.write_labels().await;
            }
        }
        self.store.stopping.set(true);
        self.store.forget_streams(None);
        self.store.log.wake.notify();
        self.store.log.pressure.notify();
        self.store.work.notify();
        self.store.drains.notify();
        result
    }

    /// Takes a checkpoint, one at a time.
    pub async fn checkpoint(&self) -> Result<()> {
        let _turn = self.checkpointing.take().await;
        self.store.checkpoint(|| self.store.landings.borrow().first().map(|(seq, ..)| *seq)).await
    }
}

/// Segments that hold `size` bytes, with one to spare so that overwriting never waits for more than a commit.
fn segments_for(layout: Layout, size: ByteCount, slab: ByteCount) -> u64 {
    let stripes = size.0.div_ceil(layout.data_len().0);
    stripes.div_ceil(layout.segment_stripes(slab) as u64) + 1
}

fn check_size(size: ByteCount) -> Result<ByteCount> {
    let size = ByteCount(size.0.saturating_add(4095) / 4096 * 4096);
    if size == ByteCount::ZERO || size > VDISK_SIZE_MAX {
        return fail!(InvalidInput, "a virtual disk has 4 KiB to {VDISK_SIZE_MAX}, not {} bytes", size.0);
    }
    Ok(size)
}

/// Refuses names that could not be typed or stored.
pub fn check_name(name: &str) -> Result<()> {
    if !is_name(name) {
        return fail!(
            InvalidInput,
            "a name has 1 to {NAME_MAX} bytes, without white space, '/', '@' and ',', and does not begin with '-': {name:?}"
        );
    }
    Ok(())
}

fn widest(resiliency: Resiliency, disks: usize) -> String {
    let columns = disks / resiliency.copies() as usize;
    if columns < resiliency.columns_min() as usize {
        let least = resiliency.columns_min() as usize * resiliency.copies() as usize;
        return alloc::format!("{resiliency} takes at least {least} disks");
    }
    alloc::format!("--columns {columns} would work")
}
