//! Virtual disks come, change and go, on the engine's thread: what is planned, and carried out unless the run is dry.

use super::open::OpenPool;
use crate::api::cache::WriteCache;
use crate::api::error::{Answer, ApiError};
use crate::api::name::VdiskName;
use crate::api::read_cache::ReadCache;
use crate::api::share::FineShare;
use crate::daemon::backend::Run;
use crate::ops::disk::DiskList;
use crate::ops::vdisk_set::VdiskSet;
use std::ops::Range;
use std::rc::Rc;
use weft_engine::format::record::{CacheChoice, CacheRecord};
use weft_engine::geometry::Layout;
use weft_engine::pool::cache::{CacheAsk, rounded};
use weft_engine::pool::change::{ChangeAsk, ChangePlan};
use weft_engine::pool::read_cache::{ReadCacheAsk, ReadCachePlan};
use weft_engine::pool::{Amount, Growth, Pool, Refusal, VdiskPlan, Wanted};
use weft_engine::units::ByteCount;

/// A write-back cache that is asked for, and the disks that it is to lie on, one bit each; 0: nobody says.
#[derive(Clone, Copy, Debug)]
pub struct CacheWanted {
    pub cache: WriteCache,
    pub disks: u64,
}

/// A virtual disk that was planned, and its caches.
pub type Planned = (VdiskPlan, Option<CacheRecord>, Option<ReadCachePlan>);

impl CacheWanted {
    /// What is asked of the engine, above stripes of `below` on `disks`. A cache on disks that somebody named is there,
    /// or cannot be; one that the pool chooses may be none.
    fn ask(self, pool: &Pool, below: Layout, disks: u64) -> Answer<Option<CacheAsk>> {
        Ok(match self.cache {
            WriteCache::Off => None,
            WriteCache::Auto => match pool.suggest_cache(below, disks, self.disks) {
                None if self.disks != 0 => {
                    let least = pool.cache_range(below, self.disks, 0)?.least;
                    Some(CacheAsk { size: least, disks: self.disks })
                }
                suggested => suggested,
            },
            WriteCache::Bytes(size) => Some(CacheAsk { size, disks: self.disks }),
        })
    }

    /// Whose word it is: who names disks for a cache has it there, and not where the pool would.
    pub fn choice(self) -> CacheChoice {
        match self.cache {
            WriteCache::Auto if self.disks == 0 => CacheChoice::Auto,
            _ => CacheChoice::Typed,
        }
    }
}

/// Makes a virtual disk.
pub async fn create(
    open: Rc<OpenPool>,
    wanted: Wanted,
    cache: CacheWanted,
    reads: Option<ReadCacheAsk>,
    run: Run,
) -> Answer<Result<Planned, Refusal>> {
    let plan = match open.pool.plan_wanted(&wanted) {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let choice = cache.choice();
    let ask = cache.ask(&open.pool, plan.layout, plan.spec.disks)?;
    let cache = ask.map(|ask| open.pool.plan_cache(plan.layout, &ask)).transpose()?;
    let planned = reads.map(|ask| open.pool.plan_read_cache(None, &ask)).transpose()?;
    if let Run::Real = run {
        open.pool.vdisk_create(&plan.spec).await?;
        if ask.is_some() || choice == CacheChoice::Typed {
            open.pool.vdisk_set_cache(&plan.spec.name, ask.as_ref(), choice).await?;
        }
        if reads.is_some() {
            open.pool.vdisk_set_read_cache(&plan.spec.name, reads.as_ref()).await?;
        }
    }
    Ok(Ok((plan, cache, planned)))
}

/// Changes the read cache of a virtual disk. Says what it is then.
pub async fn set_read_cache(
    open: Rc<OpenPool>,
    name: VdiskName,
    ask: Option<ReadCacheAsk>,
    run: Run,
) -> Answer<Option<ReadCachePlan>> {
    let vdisk = open.vdisk(&name)?;
    let (_, planned) = open.pool.plan_vdisk_read_cache(&name.vdisk, ask.as_ref()).map_err(|error| {
        let range = ask.map(|ask| open.pool.read_cache_range(Some(&vdisk), ask.disks));
        match range {
            Some(Ok(range)) if range.most > ByteCount::ZERO => {
                ApiError::from(error).offer(&VdiskSet::read_cache(&name, ReadCache(range.most)))
            }
            _ => ApiError::from(error).offer(&DiskList::of(&name.pool)),
        }
    })?;
    if let Run::Real = run {
        open.pool.vdisk_set_read_cache(&name.vdisk, ask.as_ref()).await?;
    }
    Ok(planned)
}

/// Changes the write-back cache of a virtual disk. Says what it is then.
pub async fn set_cache(
    open: Rc<OpenPool>,
    name: VdiskName,
    cache: CacheWanted,
    run: Run,
) -> Answer<Option<CacheRecord>> {
    let vdisk = open.vdisk(&name)?;
    let ask = cache.ask(&open.pool, vdisk.layout(), vdisk.disks());
    let ask = ask.map_err(|error| error.offer(&DiskList::of(&name.pool)))?;
    let (_, planned) = open.pool.plan_vdisk_cache(&name.vdisk, ask.as_ref()).map_err(|error| {
        let wrong = ApiError::from(error);
        let range = open.pool.cache_range(vdisk.layout(), ask.map_or(0, |ask| ask.disks), 0);
        match (range, ask) {
            (Ok(range), Some(ask)) if range.least <= range.most => {
                let nearest = WriteCache::Bytes(rounded(ask.size.min(range.most)).max(range.least));
                wrong.offer(&VdiskSet::cache(&name, nearest))
            }
            _ => wrong.offer(&DiskList::of(&name.pool)),
        }
    })?;
    if let Run::Real = run {
        open.pool.vdisk_set_cache(&name.vdisk, ask.as_ref(), cache.choice()).await?;
    }
    Ok(planned)
}

/// Makes a virtual disk larger.
pub async fn resize(open: Rc<OpenPool>, name: String, size: Amount, run: Run) -> Answer<Result<Growth, Refusal>> {
    let planned = open.pool.plan_vdisk_resize(&name, size);
    if let (Ok(growth), Run::Real) = (&planned, run)
        && growth.to > growth.from
    {
        open.pool.vdisk_resize(&name, growth.to).await?;
    }
    Ok(planned)
}

/// Gives a virtual disk another layout, at the moment `now`: what it comes to, or why it cannot be; and the job.
pub async fn change(
    open: Rc<OpenPool>,
    name: String,
    ask: ChangeAsk,
    now: u64,
    run: Run,
) -> Answer<Result<(ChangePlan, Option<u32>), Refusal>> {
    let plan = match open.pool.plan_vdisk_change(&name, &ask).await {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let job = match run {
        Run::Dry => None,
        Run::Real => open.pool.vdisk_change(&name, &ask, now).await?.map(|job| job.0),
    };
    Ok(Ok((plan, job)))
}

/// Gives a virtual disk another name.
pub async fn rename(open: Rc<OpenPool>, old: String, new: String, run: Run) -> Answer<()> {
    match run {
        Run::Dry => open.pool.plan_vdisk_rename(&old, &new).map(|_| ())?,
        Run::Real => open.pool.vdisk_rename(&old, &new).await?,
    }
    Ok(())
}

/// Changes how much of a virtual disk may lie in packed stripes.
pub async fn set_fine_share(open: Rc<OpenPool>, name: String, share: FineShare, run: Run) -> Answer<()> {
    match run {
        Run::Dry => open.pool.plan_fine_share(&name, share.0).map(|_| ())?,
        Run::Real => open.pool.vdisk_set_fine_share(&name, share.0).await?,
    }
    Ok(())
}

/// Removes a virtual disk.
pub async fn remove(open: Rc<OpenPool>, name: String, run: Run) -> Answer<()> {
    match run {
        Run::Dry => open.pool.plan_vdisk_remove(&name).map(|_| ())?,
        Run::Real => open.pool.vdisk_remove(&name).await?,
    }
    Ok(())
}

/// Lets a virtual disk serve again that lost writes.
pub async fn clear(open: Rc<OpenPool>, name: VdiskName, run: Run) -> Answer<Vec<Range<u64>>> {
    let vdisk = open.vdisk(&name)?;
    Ok(match run {
        Run::Dry => vdisk.check_clearable().map(|()| vdisk.plan_clear())?,
        Run::Real => vdisk.clear()?,
    })
}
