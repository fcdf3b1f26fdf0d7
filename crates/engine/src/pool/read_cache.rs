//! Read caches: what one would be, and setting it. What one does is in `store/shelf.rs`.

use super::Pool;
use super::cache::set_of;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::record::Usage;
use crate::units::ByteCount;
use crate::vdisk::Vdisk;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;

/// A read cache that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadCacheAsk {
    /// Its size; whole slabs are taken for it.
    pub size: ByteCount,
    /// The disks that it may lie on; none: those that it lies on already, or solid-state disks, those that
    /// take nothing by themselves if there are any.
    pub disks: DiskSet,
}

/// What read caches there may be of a virtual disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadCacheRange {
    /// The most bytes.
    pub most: ByteCount,
    /// The disks.
    pub disks: DiskSet,
}

/// A read cache as it would be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadCachePlan {
    /// The size that is asked for.
    pub size: ByteCount,
    /// Bytes of the slabs that it takes.
    pub capacity: ByteCount,
    /// The disks that it may lie on.
    pub disks: DiskSet,
}

impl Pool {
    /// What read caches there may be on `disks` (none: solid-state ones), for a virtual disk that there is, or for a
    /// new one.
    pub fn read_cache_range(&self, vdisk: Option<&Vdisk>, disks: DiskSet) -> Result<ReadCacheRange> {
        let map = self.store.map.borrow();
        let now = vdisk.and_then(|vdisk| map.read_caches.get(&vdisk.id())).map(|cache| &cache.record);
        let named = !disks.is_empty();
        let disks = match (named, now) {
            (true, _) => set_of(map.disks_for(disks)),
            (false, Some(now)) => now.disks,
            (false, None) => {
                let kept = self.solid_state(|usage| usage == Usage::ManualSelect);
                let any = self.solid_state(|usage| matches!(usage, Usage::ManualSelect | Usage::AutoSelect));
                if !kept.is_empty() { kept } else { any }
            }
        };
        if set_of(map.disks_for(disks)).is_empty() || disks.is_empty() {
            let why = match (named, now.is_some()) {
                (true, _) => "none of the disks that are named takes data",
                (false, true) => "none of its disks takes data: name others",
                (false, false) => "the pool has no solid-state disk that takes data: name its disks, or add one",
            };
            return fail!(NotPossible, "a read cache: {why}");
        }
        let have = now.map_or(&[][..], |now| &now.runs);
        let slabs = map.read_cache_room(disks, have);
        Ok(ReadCacheRange { most: map.slab * slabs, disks })
    }

    /// Plans a read cache for a virtual disk that there is, or for a new one.
    pub fn plan_read_cache(&self, vdisk: Option<&Vdisk>, ask: &ReadCacheAsk) -> Result<ReadCachePlan> {
        self.store.check_changeable()?;
        let ReadCacheRange { most, disks } = self.read_cache_range(vdisk, ask.disks)?;
        let capacity = self.store.slab * ask.size.0.div_ceil(self.store.slab.0);
        if ask.size == ByteCount::ZERO || capacity > most {
            let least = self.store.slab.min(most);
            return fail!(
                InvalidInput,
                "a read cache here has {least} to {most}, which is what its disks have room for, not {}",
                ask.size
            );
        }
        Ok(ReadCachePlan { size: ask.size, capacity, disks })
    }

    /// Plans the read cache of the virtual disk called `name`; `None`: it is to have none.
    pub fn plan_vdisk_read_cache(
        &self,
        name: &str,
        ask: Option<&ReadCacheAsk>,
    ) -> Result<(Rc<Vdisk>, Option<ReadCachePlan>)> {
        let vdisk = self.plan_vdisk_remove(name)?;
        let plan = ask.map(|ask| self.plan_read_cache(Some(&vdisk), ask)).transpose()?;
        Ok((vdisk, plan))
    }

    /// Gives a virtual disk this read cache from now on. What lies in slabs that it keeps stays.
    pub fn vdisk_set_read_cache<'a>(
        &'a self,
        name: &'a str,
        ask: Option<&'a ReadCacheAsk>,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (_, planned) = self.plan_vdisk_read_cache(name, ask)?;
            if planned.is_some() {
                self.store.announce_read_caches().await?;
            }
            // Meanwhile the disks may have changed, and the virtual disk may be gone.
            let (mut vdisk, mut plan) = self.plan_vdisk_read_cache(name, ask)?;
            while self.waits_for_slabs(&vdisk, plan.as_ref()) {
                self.store.drained_some().await;
                (vdisk, plan) = self.plan_vdisk_read_cache(name, ask)?;
            }
            let (size, disks) = plan.map_or((ByteCount::ZERO, DiskSet::EMPTY), |plan| (plan.size, plan.disks));
            let record = self.store.map.borrow_mut().set_read_cache(vdisk.id(), size, disks, self.store.log.seq())?;
            self.store.append_all(vec![record]);
            self.store.signals.drains.notify();
            self.store.start_shelves();
            self.store.make_durable(self.store.log.seq()).await
        })
    }

    /// Whether there is room for a read cache, but some of it still drains.
    fn waits_for_slabs(&self, vdisk: &Vdisk, plan: Option<&ReadCachePlan>) -> bool {
        let map = self.store.map.borrow();
        let Some(plan) = plan.filter(|_| map.is_draining()) else { return false };
        let now = map.read_caches.get(&vdisk.id()).map_or(&[][..], |cache| &cache.record.runs);
        let drains: usize = map.disks_for(plan.disks).map(|disk| map.draining_on(disk.record.no)).sum();
        let room = map.read_cache_room(plan.disks, now).saturating_sub(drains as u64);
        room < plan.capacity.0 / map.slab.0
    }
}
