//! A pool: disks under one configuration, and the virtual disks on them.
//!
//! Invariants
//! 1. A change of configuration is in the map and in the log in one step, and durable before the caller hears of it.
//! 2. Names of virtual disks are unique within the pool.

pub mod cache;
pub mod change;
pub mod check;
mod compact;
pub mod create;
pub mod history;
mod homes;
pub mod info;
pub mod job;
pub mod keeper;
pub mod leaving;
pub mod members;
pub mod mover;
pub mod moves;
pub mod open;
pub mod plan;
pub mod read_cache;
pub mod returning;
pub mod room;
pub mod tier;

use crate::disk_set::DiskSet;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::Id;
use crate::format::label::DiskPlan;
use crate::format::record::Record;
use crate::geometry::Resiliency;
use crate::io::Disk;
use crate::mutant::{self, Mutant};
use crate::store::Store;
use crate::units::{ByteCount, VdiskNo};
use crate::vdisk::Vdisk;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

pub use create::{NewDisk, PoolOptions};
pub use leaving::{Instead, Leaving, Loss};
pub use members::DiskChange;
pub use open::{OpenOptions, probe};
use plan::segments_for;
pub use plan::{Amount, Class, Growth, Protection, Refusal, VdiskPlan, Wanted};

/// An open pool.
pub struct Pool {
    store: Rc<Store>,
    vdisks: RefCell<BTreeMap<VdiskNo, Rc<Vdisk>>>,
    checkpointing: crate::sync::Turn,
    /// Held while a disk joins or leaves.
    joining: crate::sync::Turn,
    jobs: job::Jobs,
    /// Somebody moves stripes between tiers.
    moves_tiers: Cell<bool>,
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
    /// The disks it may lie on; none: every disk that takes data by itself.
    pub disks: DiskSet,
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

    /// Makes a virtual disk.
    pub fn vdisk_create<'a>(&'a self, spec: &'a VdiskSpec) -> LocalBoxFuture<'a, Result<Rc<Vdisk>>> {
        Box::pin(async move {
            let mut plan = self.plan_vdisk(spec)?;
            while self.must_wait_for_slabs(&plan) {
                self.store.drained_some().await;
                plan = self.plan_vdisk(spec)?;
            }
            let (layout, record) = (plan.layout, plan.record());
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
            // It may need more copies of the log than there are.
            self.store.move_log().await?;
            self.store.make_durable(self.store.log.seq()).await?;
            // Whoever puts virtual disks in order may have gone to sleep when there was none.
            self.store.signals.packed.notify();
            Ok(vdisk)
        })
    }

    /// Whether there is room for a new fixed virtual disk, but some of it still drains.
    fn must_wait_for_slabs(&self, plan: &VdiskPlan) -> bool {
        let map = self.store.map.borrow();
        let needed = segments_for(plan.layout, plan.spec.size, map.slab);
        let there = || map.segments_reservable_now(plan.layout, plan.spec.disks);
        plan.spec.fixed && map.is_draining() && there() < needed
    }

    /// Removes a virtual disk and gives its space back.
    pub fn vdisk_remove<'a>(&'a self, name: &'a str) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let vdisk = self.plan_vdisk_remove(name)?;
            self.vdisks.borrow_mut().remove(&vdisk.id());
            vdisk.close();
            vdisk.quiesce().await;
            // Reads that are under way, a scrub's included, end before its slabs can become somebody else's.
            while self.is_being_read(&vdisk) {
                self.store.pause().await;
            }
            vdisk.forget_landed();
            self.store.forget_heat(vdisk.id());
            let records = self.store.map.borrow_mut().drop_vdisk(vdisk.id());
            self.store.append_all(records);
            self.store.make_durable(self.store.log.seq()).await?;
            self.store.signals.room.notify();
            self.store.changed();
            Ok(())
        })
    }

    /// Makes a virtual disk larger.
    pub fn vdisk_resize<'a>(&'a self, name: &'a str, size: ByteCount) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut growth = self.plan_vdisk_resize(name, Amount::Bytes(size))?;
            let Some(vdisk) = self.vdisk(name) else { return Err(Refusal::Unknown(name.into()).into()) };
            while self.growth_waits_for_slabs(vdisk.id(), growth.to) {
                self.store.drained_some().await;
                if self.vdisk(name).is_none_or(|now| !Rc::ptr_eq(&now, &vdisk)) {
                    return fail!(NotFound, "there is no virtual disk named {name} any more");
                }
                growth = self.plan_vdisk_resize(name, Amount::Bytes(size))?;
            }
            let records = {
                let mut map = self.store.map.borrow_mut();
                let mut record = map.vdisks[&vdisk.id()].clone();
                let mut records = Vec::new();
                if record.fixed {
                    let table = record.tables[0];
                    let layout = map.tables[&table].record.layout;
                    let have = map.tables[&table].segments.len() as u64;
                    for _ in have..segments_for(layout, growth.to, map.slab) {
                        if let Err(error) = map.new_segment(table, &mut records) {
                            // What was added stays with the disk as room to spare; it is in the map, so it is logged.
                            drop(map);
                            self.store.append_all(records);
                            return Err(error);
                        }
                    }
                }
                record.size = growth.to;
                map.vdisks.insert(record.id, record.clone());
                records.push(Record::Vdisk(record));
                records
            };
            self.store.append_all(records);
            self.store.signals.packed.notify();
            self.store.make_durable(self.store.log.seq()).await
        })
    }

    /// Whether there is room for a fixed virtual disk to grow, but some of it still drains.
    fn growth_waits_for_slabs(&self, id: VdiskNo, size: ByteCount) -> bool {
        let map = self.store.map.borrow();
        let Some(record) = map.vdisks.get(&id).filter(|record| record.fixed && map.is_draining()) else { return false };
        let table = &map.tables[&record.tables[0]];
        let (layout, disks) = (table.record.layout, table.record.disks);
        let needed = segments_for(layout, size, map.slab).saturating_sub(table.segments.len() as u64);
        map.segments_reservable_now(layout, disks) < needed && needed <= map.segments_reservable(layout, disks)
    }

    fn is_being_read(&self, vdisk: &Vdisk) -> bool {
        let map = self.store.map.borrow();
        let Some(record) = map.vdisks.get(&vdisk.id()) else { return false };
        let tables = map.with_packs(&record.tables);
        let mut segments = tables.iter().flat_map(|table| map.tables[table].segments.iter());
        segments.any(|segment| map.is_pinned(*segment))
    }

    /// Makes everything durable, takes a checkpoint and ends the background tasks. The pool is of no use afterwards.
    pub fn close(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut result = Ok(());
            self.store.forget_streams(None);
            if !self.store.read_only {
                // Nobody waits any more for disks that are missing, a job that is to stop included.
                self.store.refuse_to_wait();
            }
            self.stop_jobs().await;
            if !self.store.read_only {
                for vdisk in self.vdisks() {
                    vdisk.release_held();
                    result = result.and(vdisk.flush().await);
                    vdisk.quiesce().await;
                }
                self.store.save_shelves().await;
                if result.is_ok() {
                    // The next opening has less to read.
                    result = self.store.relist_packs(u64::MAX, u64::MAX).await;
                }
                if result.is_ok() {
                    result = self.checkpoint().await;
                }
                if result.is_ok() {
                    result = self.store.move_log().await;
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
            self.store.log.moved.notify();
            self.store.log.pressure.notify();
            self.store.signals.work.notify();
            self.store.signals.packed.notify();
            self.store.signals.fills.notify();
            self.store.signals.drains.notify();
            self.store.compaction.asked.notify();
            result
        })
    }

    /// Gives up the disks of a pool that was closed. Whoever still wants to write to them (a record that came after the
    /// last checkpoint) is refused, and ends.
    pub fn release(&self) -> Vec<(Rc<dyn Disk>, DiskPlan)> {
        self.store.stop_tasks();
        if !mutant::active(Mutant::ReleasedPoolGoesOn) {
            self.store.log.fail(Error::new(ErrorKind::Closed, "the pool is closed"));
        }
        // A stripe that is being written looks for disks that take it elsewhere: there are none.
        self.store.map.borrow_mut().disks.values_mut().for_each(|room| (room.healthy, room.current) = (false, false));
        let mut members = self.store.members.borrow_mut();
        members.values_mut().filter_map(|member| Some((member.disk.take()?, member.plan))).collect()
    }

    /// Takes a checkpoint, one at a time.
    pub fn checkpoint(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let _turn = self.checkpointing.take().await;
            self.store.checkpoint(|| self.store.oldest_needed()).await
        })
    }
}
