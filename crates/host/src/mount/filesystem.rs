//! File systems: how each is made for a layout, how it is mounted, and why so.
//!
//! The kernel's loop driver tells a file system the sector of a virtual disk but not its stripes, so that `mkfs` must
//! be told. Weft needs no alignment to be fast; a file system that knows the stripes fills them one after the other
//! instead of many at a time, and puts its own structures on different columns.

use super::tools::{BLKID, Tool};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::mount::FileSystem;
use crate::api::vdisk::{Layout, Resiliency, VdiskInfo};
use std::path::Path;
use weft_engine::units::{BLOCK, ByteCount};

/// From this size on `mkfs.xfs` chooses the number of allocation groups by itself.
const XFS_LARGE: u64 = 8 << 30;
/// NTFS takes its clusters for a disk of this size or more from [`NTFS_CLUSTER`], of [`BLOCK`] below.
const NTFS_LARGE: u64 = 16 << 30;
const NTFS_CLUSTER: u64 = 64 << 10;

/// How to make a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipe {
    /// The program.
    pub tool: Tool,
    /// What it is told, without the device.
    pub args: Vec<String>,
    /// Why, in words for people.
    pub why: String,
}

impl FileSystem {
    /// The type that blkid says and mount takes.
    pub fn kind(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
            FileSystem::Ntfs => "ntfs",
        }
    }

    /// The program that makes it.
    pub fn maker(self) -> Tool {
        let (name, package) = match self {
            FileSystem::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            FileSystem::Xfs => ("mkfs.xfs", "xfsprogs"),
            FileSystem::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
            FileSystem::Ntfs => ("mkfs.ntfs", "ntfs-3g"),
        };
        Tool { name, package }
    }

    /// How to make it on `vdisk`. `force`: whatever the device holds; `more`: what else the maker is told.
    pub fn recipe(self, vdisk: &VdiskInfo, force: bool, more: &[String]) -> Recipe {
        let layout = &vdisk.layout;
        let (strip, data) = (layout.interleave, data_columns(layout));
        let stripe = format!("a stripe is {data} x {}", ByteCount(strip));
        let (mut args, why): (Vec<String>, String) = match self {
            FileSystem::Ext4 => {
                let stride = strip / BLOCK;
                let width = stride * data;
                (
                    vec![
                        "-q".into(),
                        "-b".into(),
                        "4096".into(),
                        "-E".into(),
                        format!("stride={stride},stripe_width={width}"),
                    ],
                    format!("blocks of 4 KiB, stride {stride}, stripe width {width}: {stripe}"),
                )
            }
            FileSystem::Xfs => {
                // Told of stripes, mkfs.xfs cuts a small disk into more groups than its own log fits in.
                let groups = if vdisk.size < XFS_LARGE { ",agcount=4" } else { "" };
                let geometry = format!("su={strip},sw={data}{groups}");
                let args = ["-q", "-s", "size=4096", "-d", &geometry].map(String::from);
                (args.to_vec(), format!("sectors of 4 KiB, su {}, sw {data}: {stripe}", ByteCount(strip)))
            }
            FileSystem::Btrfs => (
                ["-q", "-s", "4096", "-m", "single", "-d", "single"].map(String::from).to_vec(),
                "sectors of 4 KiB; metadata once, since weft protects it; btrfs takes no stripe geometry".into(),
            ),
            FileSystem::Ntfs => {
                let cluster = if vdisk.size >= NTFS_LARGE { NTFS_CLUSTER } else { BLOCK };
                (
                    vec!["-q".into(), "-Q".into(), "-c".into(), cluster.to_string()],
                    format!("clusters of {}; NTFS takes no stripe geometry", ByteCount(cluster)),
                )
            }
        };
        let forced = match self {
            FileSystem::Ext4 | FileSystem::Ntfs => "-F",
            FileSystem::Xfs | FileSystem::Btrfs => "-f",
        };
        // It was judged already whether something is on it; mkfs.ext4 would ask a person.
        if force || self == FileSystem::Ext4 || self == FileSystem::Ntfs {
            args.push(forced.into());
        }
        args.extend_from_slice(more);
        Recipe { tool: self.maker(), args, why }
    }
}

/// How a file system of type `kind` is mounted: the type for mount, the options, and why.
pub fn mount_options(kind: &str) -> (&str, &'static str, &'static str) {
    match kind {
        // Its own default waits for minutes and gives up what it did not come to before it is unmounted.
        "btrfs" => (kind, "discard=sync", "deletes give their space back"),
        "ntfs" if !kernel_has("ntfs3") => ("ntfs-3g", "rw", "ntfs-3g gives space back only when told (fstrim)"),
        "ntfs" => ("ntfs3", "discard", "deletes give their space back"),
        _ => (kind, "discard", "deletes give their space back"),
    }
}

/// What a device holds, as blkid calls it; none when it finds nothing.
pub fn found_on(device: &Path) -> Answer<Option<String>> {
    let asked = BLKID.output(["--probe", "--output", "export"].map(Path::new).into_iter().chain([device]))?;
    let words = String::from_utf8_lossy(&asked.stdout).into_owned();
    match asked.status.code() {
        Some(0) => {
            let value = |key: &str| words.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            let kind = value("TYPE").or_else(|| value("PTTYPE")).unwrap_or("something");
            Ok(Some(kind.into()))
        }
        Some(2) => Ok(None),
        _ => {
            let said = String::from_utf8_lossy(&asked.stderr).trim().replace('\n', "; ");
            Err(ApiError::new(Kind::NotPossible, format!("cannot tell what {} holds: {said}", device.display())))
        }
    }
}

fn data_columns(layout: &Layout) -> u64 {
    let parity = match layout.resiliency {
        Resiliency::Parity { parity } => parity,
        Resiliency::Simple | Resiliency::Mirror { .. } => 0,
    };
    u64::from(layout.columns.saturating_sub(parity)).max(1)
}

fn kernel_has(filesystem: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some(filesystem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdisk(resiliency: Resiliency, columns: u8, interleave: u64) -> VdiskInfo {
        let layout = Layout { resiliency, columns, interleave };
        VdiskInfo { size: 1 << 30, ..VdiskInfo::sample("tank/media", layout) }
    }

    fn line(format: FileSystem, resiliency: Resiliency, columns: u8, force: bool) -> String {
        format.recipe(&vdisk(resiliency, columns, 96 << 10), force, &["-L".into(), "x".into()]).args.join(" ")
    }

    #[test]
    fn every_maker_is_told_the_stripes_of_the_layout_as_far_as_it_takes_them() {
        let (one, two) = (Resiliency::Parity { parity: 1 }, Resiliency::Parity { parity: 2 });
        assert_eq!(line(FileSystem::Ext4, one, 4, false), "-q -b 4096 -E stride=24,stripe_width=72 -F -L x");
        assert_eq!(line(FileSystem::Ext4, two, 7, false), "-q -b 4096 -E stride=24,stripe_width=120 -F -L x");
        assert_eq!(line(FileSystem::Xfs, one, 3, false), "-q -s size=4096 -d su=98304,sw=2,agcount=4 -L x");
        assert_eq!(
            line(FileSystem::Xfs, Resiliency::Mirror { copies: 3 }, 2, true),
            "-q -s size=4096 -d su=98304,sw=2,agcount=4 -f -L x"
        );
        assert_eq!(line(FileSystem::Btrfs, Resiliency::Simple, 1, true), "-q -s 4096 -m single -d single -f -L x");
        assert_eq!(line(FileSystem::Ntfs, one, 4, false), "-q -Q -c 4096 -F -L x");
        let why = FileSystem::Ext4.recipe(&vdisk(one, 4, 96 << 10), false, &[]).why;
        assert!(why.ends_with("stride 24, stripe width 72: a stripe is 3 x 96 KiB"), "{why}");
    }

    #[test]
    fn file_systems_that_cannot_give_space_back_by_themselves_are_said_to_be_so() {
        assert_eq!(mount_options("xfs"), ("xfs", "discard", "deletes give their space back"));
        assert_eq!(mount_options("btrfs").1, "discard=sync");
        let (kind, options, why) = mount_options("ntfs");
        assert_eq!(kind == "ntfs3", options == "discard");
        assert_eq!(kind == "ntfs3", !why.contains("fstrim"));
    }
}
