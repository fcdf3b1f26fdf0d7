//! Write-back caches: what one would be, and setting it. What it does is in `vdisk/cache.rs`.

use super::Pool;
use crate::error::Result;
use crate::fail;
use crate::format::record::{CacheRecord, Media, Record};
use crate::geometry::{Layout, Resiliency};
use crate::units::ByteCount;
use crate::vdisk::Vdisk;
use alloc::rc::Rc;
use alloc::vec;

/// The smallest and the largest interleave of a cache: small writes of one moment fill a packed stripe, and a
/// solid-state disk writes it with one request.
const INTERLEAVES: (ByteCount, ByteCount) = (ByteCount::kib(64), ByteCount::mib(1));
/// Packed stripes that a cache has room for, at least.
const STRIPES_MIN: u64 = 2;

/// A write-back cache that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheAsk {
    /// The most bytes of data that may lie in it.
    pub size: ByteCount,
    /// The disks that it may lie on, one bit each; 0: those that it lies on already, or every solid-state disk that
    /// takes data.
    pub disks: u64,
}

impl Pool {
    /// Plans a write-back cache for a virtual disk of this layout: it survives what that survives.
    pub fn plan_cache(&self, below: Layout, ask: &CacheAsk) -> Result<CacheRecord> {
        self.store.check_changeable()?;
        let map = self.store.map.borrow();
        let named = ask.disks != 0;
        let there = map.disks_for(ask.disks).filter(|disk| named || disk.record.media == Media::Ssd);
        let disks = there.fold(0u64, |set, disk| set | 1 << disk.record.no);
        let layout = cache_layout(below, map.slab)?;
        let (needed, have) = (layout.slots(), disks.count_ones() as usize);
        if have < needed {
            let of = if named { "of those named" } else { "solid-state disks" };
            return fail!(
                NotPossible,
                "a write-back cache must survive what {below} survives, {} failed disks, and so lies on {needed} disks \
                 or more; {of} {have} take data",
                below.failures()
            );
        }
        let (least, room) = (layout.data_len() * STRIPES_MIN, map.room_for(layout, 0, disks));
        if ask.size < least || ask.size > room {
            return fail!(
                InvalidInput,
                "a write-back cache here has {least} to {room}, which is what its disks have room for, not {}",
                ask.size
            );
        }
        Ok(CacheRecord { size: ask.size, layout, disks })
    }

    /// Plans the write-back cache of a virtual disk that there is; `None`: it is to have none.
    pub fn plan_vdisk_cache(&self, name: &str, ask: Option<&CacheAsk>) -> Result<(Rc<Vdisk>, Option<CacheRecord>)> {
        let vdisk = self.plan_vdisk_remove(name)?;
        let now = vdisk.cache();
        let Some(ask) = ask else { return Ok((vdisk, None)) };
        let disks = if ask.disks == 0 { now.map_or(0, |now| now.disks) } else { ask.disks };
        let cache = self.plan_cache(vdisk.layout(), &CacheAsk { disks, ..*ask })?;
        Ok((vdisk, Some(cache)))
    }

    /// Gives a virtual disk this write-back cache from now on. What lies elsewhere leaves by itself.
    pub async fn vdisk_set_cache(&self, name: &str, ask: Option<&CacheAsk>) -> Result<()> {
        let (_, planned) = self.plan_vdisk_cache(name, ask)?;
        if planned.is_some() {
            self.store.announce_caches().await?;
        }
        // Meanwhile the disks may have changed, and the virtual disk may be gone.
        let (vdisk, cache) = self.plan_vdisk_cache(name, ask)?;
        let record = {
            let mut map = self.store.map.borrow_mut();
            let record = map.vdisks.get_mut(&vdisk.id()).expect("an open virtual disk has its record");
            record.cache = cache;
            record.clone()
        };
        self.store.append_all(vec![Record::Vdisk(record)]);
        self.store.signals.packed.notify();
        self.store.make_durable(self.store.log.seq()).await
    }
}

/// The layout of a cache above stripes of `below`: as many failures survived, one column.
fn cache_layout(below: Layout, slab: ByteCount) -> Result<Layout> {
    let resiliency = match below.failures() {
        0 => Resiliency::Simple,
        failures => Resiliency::Mirror { copies: failures as u8 + 1 },
    };
    let interleave = below.data_len().max(INTERLEAVES.0).min(INTERLEAVES.1).min(slab);
    Layout::new(resiliency, 1, interleave)
}
