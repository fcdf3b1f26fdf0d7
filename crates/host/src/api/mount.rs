//! Mounted virtual disks: the daemon remembers them; `weft mount` and `weft unmount` make and end them.

use super::export::{Address, Place};
use super::name::VdiskName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

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

/// How a virtual disk becomes a block device of this machine; the best first.
#[derive(Serialize, Deserialize, ToSchema, clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// The daemon is the driver of the device.
    Ublk,
    /// The kernel's NBD client, connected to the daemon.
    Nbd,
    /// A loop device on a file that the daemon offers over FUSE.
    #[default]
    Loop,
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
    /// What that device gets its data from: the socket of an NBD server, the directory of a file over FUSE; with ublk
    /// the device itself.
    #[schema(value_type = String)]
    pub export: PathBuf,
    /// How the device is made. Where nothing is said: over FUSE, which was the only way once.
    #[serde(default, skip_serializing_if = "is_loop")]
    pub via: Via,
    /// Whether a person chose that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
    /// The type of the file system.
    pub filesystem: String,
    /// Whether it is mounted again after a restart of the daemon.
    pub persist: bool,
}

impl Via {
    /// All of them, the best first.
    pub const ALL: [Via; 3] = [Via::Ublk, Via::Nbd, Via::Loop];
}

fn is_loop(via: &Via) -> bool {
    *via == Via::Loop
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Via::Ublk => "ublk",
            Via::Nbd => "NBD",
            Via::Loop => "FUSE + loop",
        })
    }
}

impl MountInfo {
    /// Where its private export is; none when what is remembered makes no sense.
    pub fn place(&self) -> Option<Place> {
        Some(match self.via {
            Via::Ublk => Place::Ublk(self.export.to_str()?.strip_prefix("/dev/ublkb")?.parse().ok()?),
            Via::Nbd => Place::Nbd(Address::Unix(self.export.clone())),
            Via::Loop => Place::Fuse(self.export.clone()),
        })
    }

    /// Whether `source`, what the kernel says is mounted, is its device.
    pub fn is_of(&self, source: &str) -> bool {
        self.device == Path::new(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_the_first_versions_is_read_as_one_over_fuse_and_written_as_they_did() {
        let old = r#"{"vdisk":"p/v","dir":"/srv","device":"/dev/loop0","export":"/run/weft/mounts/p/v","filesystem":"ext4","persist":true}"#;
        let read: MountInfo = serde_json::from_str(old).unwrap();
        assert_eq!((read.via, read.by_hand), (Via::Loop, false));
        assert_eq!(read.place(), Some(Place::Fuse("/run/weft/mounts/p/v".into())));
        assert_eq!(serde_json::to_string(&read).unwrap(), old);
        let ublk = MountInfo { via: Via::Ublk, export: "/dev/ublkb7".into(), by_hand: true, ..read.clone() };
        assert_eq!(ublk.place(), Some(Place::Ublk(7)));
        assert_eq!(serde_json::from_str::<MountInfo>(&serde_json::to_string(&ublk).unwrap()).unwrap(), ublk);
        assert_eq!(MountInfo { via: Via::Ublk, ..read }.place(), None);
    }
}
