//! `weft mount` and `weft unmount`: a virtual disk as a mounted file system.
//!
//! The daemon offers the virtual disk as a file over FUSE, in a directory beside its control socket; everything else is done by
//! the process of the command: a loop device on the file with direct I/O, `mkfs` with the geometry of the layout, `mount`.
//! The daemon only remembers what is mounted, to mount it again after a restart and to unmount it before it stops, and
//! starts a process for either.
//!
//! [`up`] mounts, [`down`] unmounts, [`filesystem`] knows file systems and their geometry, [`device`] loop devices and
//! what the kernel has, [`tools`] the programs of other packages.
//!
//! Invariants
//! 1. Nothing is formatted that holds anything, unless told by force.
//! 2. A mount that fails leaves nothing behind: no loop device, no export.
//! 3. A loop device goes away by itself with its file system: it is marked so as soon as that is mounted.
//! 4. No thread of the daemon mounts, unmounts or touches a file on a device that the daemon itself serves. It would wait
//!    for its own process; if that were killed, it could never end, and neither would the mount.

pub mod device;
pub mod down;
pub mod filesystem;
pub mod tools;
pub mod up;

use crate::api::error::{Answer, ApiError, Kind};
use crate::api::mount::MountInfo;
use crate::api::name::VdiskName;
use std::path::{Path, PathBuf};

/// The directory of the private export of a mounted virtual disk, beside the daemon's control socket.
pub fn private_dir(socket: &Path, vdisk: &VdiskName) -> PathBuf {
    socket.parent().unwrap_or(Path::new("/")).join("mounts").join(&vdisk.pool).join(&vdisk.vdisk)
}

/// Refuses anybody but root.
fn only_root(again: &str) -> Answer<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(ApiError::new(Kind::NotPossible, "only root mounts block devices").hint(format!("sudo {again}")))
}

/// How a remembered mount is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Mounted, and its device is served.
    Alive,
    /// Mounted, but the daemon that served its device is gone.
    Dead,
    /// Somebody else unmounted it.
    Gone,
}

fn state(mount: &MountInfo, socket: &Path) -> State {
    let mounted = crate::fuse::mounts::mounted_at(&mount.dir).ok().flatten();
    if !mounted.is_some_and(|mounted| mount.is_of(&mounted.source)) {
        return State::Gone;
    }
    let file = private_dir(socket, &mount.vdisk).join(&mount.vdisk.vdisk);
    if device::is_backed_by(&mount.device, &file) { State::Alive } else { State::Dead }
}
