//! Virtual disks come, change and go, on the engine's thread: what is planned, and carried out unless the run is dry.

use super::open::OpenPool;
use crate::api::cache::WriteCache;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use crate::api::read_cache::ReadCache;
use crate::api::share::FineShare;
use crate::api::tier::TierChoice;
use crate::api::vdisk::{Lies, VdiskPiece};
use crate::daemon::backend::Run;
use crate::ops::disk::DiskList;
use crate::ops::job::JobList;
use crate::ops::vdisk_set::VdiskSet;
use std::ops::Range;
use std::rc::Rc;
use weft_engine::disk_set::DiskSet;
use weft_engine::format::record::{CacheChoice, CacheRecord, TierRecord};
use weft_engine::geometry::Layout;
use weft_engine::pool::cache::{CacheAsk, rounded};
use weft_engine::pool::change::{ChangeAsk, ChangePlan};
use weft_engine::pool::job::JobKind;
use weft_engine::pool::read_cache::{ReadCacheAsk, ReadCachePlan};
use weft_engine::pool::tier::TierAsk;
use weft_engine::pool::{Amount, Class, Growth, Pool, Refusal, VdiskPlan, Wanted};
use weft_engine::units::ByteCount;
use weft_engine::vdisk::placed::{self, Piece};

/// A write-back cache that is asked for, and the disks that it is to lie on, one bit each; 0: nobody says.
#[derive(Clone, Copy, Debug)]
pub struct CacheWanted {
    pub cache: WriteCache,
    pub disks: DiskSet,
}

/// A virtual disk that was planned, and what stands above it.
#[derive(Clone, Debug)]
pub struct Planned {
    pub plan: VdiskPlan,
    pub cache: Option<CacheRecord>,
    pub tier: Option<TierRecord>,
    pub reads: Option<ReadCachePlan>,
}

/// What stands above a virtual disk that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Above {
    /// Its write-back cache.
    pub cache: CacheWanted,
    /// Its fast tier; one of no size has an eighth of the virtual disk's.
    pub tier: Option<TierAsk>,
    /// Its read cache.
    pub reads: Option<ReadCacheAsk>,
}

impl CacheWanted {
    /// What is asked of the engine, above stripes of `below` on `disks`. A cache on disks that somebody named is there,
    /// or cannot be; one that the pool chooses may be none.
    fn ask(self, pool: &Pool, below: Layout, disks: DiskSet) -> Answer<Option<CacheAsk>> {
        Ok(match self.cache {
            WriteCache::Off => None,
            WriteCache::Auto => match pool.suggest_cache(below, disks, self.disks) {
                None if !self.disks.is_empty() => {
                    let least = pool.cache_range(below, self.disks, false, 0)?.least;
                    Some(CacheAsk { size: least, disks: self.disks, may_lose: false })
                }
                suggested => suggested,
            },
            WriteCache::Bytes(size) => Some(CacheAsk { size, disks: self.disks, may_lose: false }),
            WriteCache::Unsafe(size) => Some(CacheAsk { size, disks: self.disks, may_lose: true }),
        })
    }

    /// Whose word it is: who names disks for a cache has it there, and not where the pool would.
    pub fn choice(self) -> CacheChoice {
        match self.cache {
            WriteCache::Auto if self.disks.is_empty() => CacheChoice::Auto,
            _ => CacheChoice::Typed,
        }
    }
}

/// Makes a virtual disk.
pub async fn create(open: Rc<OpenPool>, wanted: Wanted, above: Above, run: Run) -> Answer<Result<Planned, Refusal>> {
    let Above { cache, tier, reads } = above;
    let plan = match open.pool.plan_wanted(&wanted) {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let choice = cache.choice();
    let ask = cache.ask(&open.pool, plan.layout, plan.spec.disks)?;
    let cache = ask.map(|ask| open.pool.plan_cache(plan.layout, &ask)).transpose()?;
    let tier_ask = tier.map(|ask| match ask.size {
        ByteCount::ZERO => TierAsk { size: an_eighth(&plan), ..ask },
        _ => ask,
    });
    if tier_ask.is_some() && plan.spec.fixed {
        return Err(ApiError::new(Kind::NotPossible, "a virtual disk with a fast tier is thin: leave --fixed out"));
    }
    let tier = tier_ask.map(|ask| open.pool.plan_tier(plan.layout, plan.spec.disks, &ask, 0)).transpose()?;
    let planned_reads = reads.map(|ask| open.pool.plan_read_cache(None, &ask)).transpose()?;
    if let Run::Real = run {
        open.pool.vdisk_create(&plan.spec).await?;
        if wanted.class == Class::Stream {
            open.pool.vdisk_set_fine_share(&plan.spec.name, Some(0)).await?;
        }
        if ask.is_some() || choice == CacheChoice::Typed {
            open.pool.vdisk_set_cache(&plan.spec.name, ask.as_ref(), choice).await?;
        }
        if let Some(ask) = &tier_ask {
            open.pool.vdisk_set_tier(&plan.spec.name, Some(ask)).await?;
        }
        if reads.is_some() {
            open.pool.vdisk_set_read_cache(&plan.spec.name, reads.as_ref()).await?;
        }
    }
    Ok(Ok(Planned { plan, cache, tier, reads: planned_reads }))
}

/// The size of a fast tier that nobody gave one: an eighth of what lies below, and no less than some stripes.
fn an_eighth(plan: &VdiskPlan) -> ByteCount {
    let len = plan.layout.data_len().0;
    ByteCount((plan.spec.size.0 / 8 / len).max(8) * len)
}

/// Changes the fast tier of a virtual disk. Says what it is then.
pub async fn set_tier(
    open: Rc<OpenPool>,
    name: VdiskName,
    ask: Option<TierAsk>,
    run: Run,
) -> Answer<Option<TierRecord>> {
    let vdisk = open.vdisk(&name)?;
    let (_, planned) = open.pool.plan_vdisk_tier(&name.vdisk, ask.as_ref()).map_err(|error| {
        let wrong = ApiError::from(error);
        match vdisk.is_stacked() {
            true => wrong.offer(&JobList::of(&name.pool)),
            false => wrong.offer(&DiskList::of(&name.pool)),
        }
    })?;
    if let Run::Real = run {
        open.pool.vdisk_set_tier(&name.vdisk, ask.as_ref()).await?;
    }
    Ok(planned)
}

/// Pins pieces of a virtual disk to its fast tier, or lets go of them. Says whether anything changes, and what is
/// pinned then.
pub async fn pin(
    open: Rc<OpenPool>,
    name: VdiskName,
    pieces: Vec<Range<u64>>,
    pinned: bool,
    run: Run,
) -> Answer<(bool, TierRecord)> {
    open.vdisk(&name)?;
    let before =
        open.pool.info().vdisks.into_iter().find(|vdisk| vdisk.name == name.vdisk).and_then(|vdisk| vdisk.tier);
    let (_, planned) = open.pool.plan_pins(&name.vdisk, &pieces, pinned)?;
    let changes = before.is_none_or(|before| before.pins != planned.pins);
    if let (Run::Real, true) = (run, changes) {
        open.pool.vdisk_pin(&name.vdisk, &pieces, pinned).await?;
    }
    Ok((changes, planned))
}

/// Starts the job that carries out at once what the tiers' task does when the pool is idle, at the moment `now`.
pub async fn optimize(open: Rc<OpenPool>, name: VdiskName, now: u64, run: Run) -> Answer<Option<u32>> {
    let vdisk = open.vdisk(&name)?;
    if vdisk.tier_fill().is_none() {
        let message = format!("{name} has no fast tier");
        let nearest = VdiskSet { tier: Some(an_example()), ..VdiskSet::of(&name) };
        return Err(ApiError::new(Kind::NotPossible, message).offer(&nearest));
    }
    open.pool.plan_job_start()?;
    Ok(match run {
        Run::Dry => None,
        Run::Real => Some(open.pool.job_start(JobKind::Optimize(vdisk.id()), now).await?.0),
    })
}

/// A tier to offer to who has none.
pub fn an_example() -> TierChoice {
    "ssd,size=8GiB".parse().expect("it is one")
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
        let (disks, may_lose) = ask.map_or((DiskSet::EMPTY, false), |ask| (ask.disks, ask.may_lose));
        let range = open.pool.cache_range(vdisk.layout(), disks, may_lose, 0);
        match (range, ask) {
            (Ok(range), Some(ask)) if range.least <= range.most => {
                let nearest = rounded(ask.size.min(range.most)).max(range.least);
                let nearest = if may_lose { WriteCache::Unsafe(nearest) } else { WriteCache::Bytes(nearest) };
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

/// A piece of a virtual disk, with the names of its disks.
pub fn piece(open: &OpenPool, piece: Piece) -> VdiskPiece {
    let Piece { range, lies, disks, absent } = piece;
    VdiskPiece {
        offset: range.start,
        length: range.end - range.start,
        lies: match lies {
            placed::Lies::Nowhere => Lies::Nowhere,
            placed::Lies::Memory => Lies::Memory,
            placed::Lies::Stripes => Lies::Stripes,
            placed::Lies::Older => Lies::Older,
            placed::Lies::Fast => Lies::Fast,
            placed::Lies::Packed => Lies::Packed,
        },
        disks: disks.into_iter().map(|no| open.disk_name(no)).collect(),
        absent,
    }
}
