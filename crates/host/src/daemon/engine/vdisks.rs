//! Virtual disks come, change and go, on the engine's thread: what is planned, and carried out unless the run is dry.

use super::open::OpenPool;
use crate::api::error::Answer;
use crate::api::name::VdiskName;
use crate::api::share::FineShare;
use crate::daemon::backend::Run;
use std::ops::Range;
use std::rc::Rc;
use weft_engine::pool::{Amount, Growth, Refusal, VdiskPlan, Wanted};

/// Makes a virtual disk.
pub async fn create(open: Rc<OpenPool>, wanted: Wanted, run: Run) -> Answer<Result<VdiskPlan, Refusal>> {
    let planned = open.pool.plan_wanted(&wanted);
    if let (Ok(plan), Run::Real) = (&planned, run) {
        open.pool.vdisk_create(&plan.spec).await?;
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
