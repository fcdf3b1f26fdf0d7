//! Fast tiers: what they would be good for.

use super::name::VdiskName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What fast tiers of all sizes would catch of what is asked of a virtual disk, if each held what is sought out most.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct TierCurve {
    /// The virtual disk, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// Its size, in bytes.
    pub size: u64,
    /// Bytes of the ranges that are counted.
    pub range: u64,
    /// Requests that were counted; of those of a day of service ago half. One that goes on where another has just ended
    /// is not.
    pub seeks: u64,
    /// Sizes that double, from one range to all that was ever sought out.
    pub curve: Vec<TierPoint>,
}

/// What a fast tier of one size would catch.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Debug)]
pub struct TierPoint {
    /// Its size, in bytes.
    pub bytes: u64,
    /// That, in percent of the virtual disk.
    pub size_percent: f64,
    /// What it would catch, in percent of the requests that were counted.
    pub seeks_percent: f64,
}
