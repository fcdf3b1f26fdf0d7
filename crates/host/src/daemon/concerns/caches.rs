//! What of a pool's write-back caches needs a person.

use super::concern;
use crate::api::cache::WriteCache;
use crate::api::pool::{DiskInfo, DiskState, Media, PoolInfo, Usage};
use crate::api::watch::Attention;
use crate::ops::line::ToLine;
use crate::ops::vdisk_set::VdiskSet;
use weft_engine::units::ByteCount;

/// Caches that too few disks are left to: without a disk that is away, which is told of anyway.
pub(super) fn short(pool: &PoolInfo) -> impl Iterator<Item = Attention> {
    pool.vdisks.iter().filter_map(|vdisk| {
        let cache = vdisk.write_cache.as_ref()?;
        let (needed, have) = (cache.layout.disks_needed(), cache.disks.len());
        (have < needed).then(|| {
            let (disks, named) = (if needed == 1 { "disk" } else { "disks" }, cache.disks_named());
            let message = format!(
                "its write-back cache needs {needed} {disks} and has {named}: it takes nothing, and small writes are \
                 merged"
            );
            concern(format!("vdisk {}", vdisk.name), message, VdiskSet::cache(&vdisk.name, WriteCache::Off).line())
        })
    })
}

/// Caches that may survive less than what lies below them: said for as long as they are there.
pub(super) fn unsafe_ones(pool: &PoolInfo) -> impl Iterator<Item = Attention> {
    let caches = pool.vdisks.iter().filter_map(|vdisk| Some((vdisk, vdisk.write_cache.as_ref()?)));
    caches.filter(|(_, cache)| cache.may_lose && !cache.disks.is_empty()).map(|(vdisk, cache)| {
        let message = format!(
            "its write-back cache is unsafe: what rests there, {} now, is lost with {}, whatever {} survives",
            ByteCount(vdisk.packed),
            cache.lost_with(),
            vdisk.layout.resiliency
        );
        let safe = has_disks_for_cache(pool, usize::from(vdisk.layout.resiliency.failures()) + 1);
        let then = if safe { WriteCache::Bytes(ByteCount(cache.size)) } else { WriteCache::Off };
        concern(format!("vdisk {}", vdisk.name), message, VdiskSet::cache(&vdisk.name, then).line())
    })
}

/// Whether so many solid-state disks are there that a cache may lie on without anybody naming them.
fn has_disks_for_cache(pool: &PoolInfo, needed: usize) -> bool {
    let is_solid = |disk: &&DiskInfo| disk.state == DiskState::Healthy && disk.media == Media::Ssd;
    let count = |used: &dyn Fn(Usage) -> bool| {
        pool.disks.iter().filter(is_solid).filter(|disk| disk.usage.is_some_and(used)).count()
    };
    let manual = |usage| usage == Usage::Manual;
    count(&manual) >= needed || count(&|usage| manual(usage) || usage == Usage::Auto) >= needed
}
