//! `weft mount` and `weft unmount`: a virtual disk as a mounted file system.
//!
//! The daemon offers the virtual disk, privately, over whatever the kernel can make a block device of; the rest is done
//! by the process of the command: the device, `mkfs` with the geometry of the layout, `mount`. The daemon only
//! remembers what is mounted, to mount it again after a restart and to unmount it before it stops, and starts a process
//! for either.
//!
//! [`up`] mounts, [`down`] unmounts, [`filesystem`] knows file systems and their geometry, `choice` what the kernel has
//! and which of it is best, `device` makes and ends block devices (`loop_device`, `nbd_device`; ublk is the daemon's),
//! [`tools`] the programs of other packages.
//!
//! Invariants
//! 1. Nothing is formatted that holds anything, unless told by force.
//! 2. A mount that fails leaves nothing behind: no device, no export.
//! 3. A loop device goes away by itself with its file system: it is marked so as soon as that is mounted. Devices of
//!    the other kinds cannot; they go with `weft unmount`, with the next `weft mount`, or with the daemon.
//! 4. No thread of the daemon mounts, unmounts or touches a file on a device that the daemon itself serves. It would
//!    wait for its own process; if that were killed, it could never end, and neither would the mount. (Ending a ublk
//!    device is the kernel's work, while the threads that serve it go on: see `crate::ublk`.)

mod choice;
mod device;
pub mod down;
pub mod extents;
pub mod filesystem;
mod loop_device;
mod nbd_device;
pub mod tools;
pub mod up;

use crate::api::error::{Answer, ApiError, Kind};
use crate::api::mount::MountInfo;
use crate::api::name::VdiskName;
use crate::ops::line::Line;
use crate::wire::client::Client;
use std::path::{Path, PathBuf};

/// The directory of the file of a mounted virtual disk, beside the daemon's control socket.
pub fn private_dir(socket: &Path, vdisk: &VdiskName) -> PathBuf {
    mounts_dir(socket).join(&vdisk.pool).join(&vdisk.vdisk)
}

fn mounts_dir(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or(Path::new("/")).join("mounts")
}

/// Where the sockets of devices are, in a directory for each virtual disk; not in `mounts`, whose directories must be
/// empty.
fn devices_dir(socket: &Path) -> PathBuf {
    socket.parent().unwrap_or(Path::new("/")).join("devices")
}

/// Refuses anybody but root.
fn only_root(again: Line) -> Answer<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(ApiError::new(Kind::NotPossible, "only root mounts block devices")
        .hint(format!("sudo {}", String::from(again))))
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

fn state(weft: &Client, mount: &MountInfo, socket: &Path) -> State {
    let mounted = crate::fuse::mounts::mounted_at(&mount.dir).ok().flatten();
    if !mounted.is_some_and(|mounted| mount.is_of(&mounted.source)) {
        return State::Gone;
    }
    if device::is_served(weft, socket, mount) { State::Alive } else { State::Dead }
}
