//! What `weft mount` and `weft unmount` tell the daemon. A mount that was made is noted by what it is: the operation is
//! [`MountInfo`](crate::api::mount::MountInfo) itself.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::IntoParams;

/// Asks for the mounted virtual disks.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct MountList {}

/// Which mount to forget.
#[derive(Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MountForget {
    /// Its directory.
    #[param(value_type = String)]
    pub dir: PathBuf,
}
