//! Mounted virtual disks: the daemon remembers them; `weft mount` and `weft unmount` make and end them.

use super::name::VdiskName;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use utoipa::{IntoParams, ToSchema};

/// A file system that `weft mount` makes.
#[derive(Serialize, Deserialize, ToSchema, clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// The one for everything.
    Ext4,
    /// Large files, many writers.
    Xfs,
    /// Snapshots and checksums of its own.
    Btrfs,
    /// For disks that Windows reads.
    Ntfs,
}

/// A virtual disk whose file system is mounted.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct MountInfo {
    /// The virtual disk, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// The directory it is mounted on, absolute, without symbolic links.
    #[schema(value_type = String)]
    pub dir: PathBuf,
    /// The block device that carries the file system.
    #[schema(value_type = String)]
    pub device: PathBuf,
    /// The directory of the export below that device.
    #[schema(value_type = String)]
    pub export: PathBuf,
    /// The type of the file system.
    pub filesystem: String,
    /// Whether it is mounted again after a restart of the daemon.
    pub persist: bool,
}

/// Which mount to forget.
#[derive(Serialize, Deserialize, IntoParams, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MountForget {
    /// Its directory.
    #[param(value_type = String)]
    #[schema(value_type = String)]
    pub dir: PathBuf,
}

impl MountInfo {
    /// Whether `source`, what the kernel says is mounted, is its device.
    pub fn is_of(&self, source: &str) -> bool {
        self.device == Path::new(source)
    }
}
