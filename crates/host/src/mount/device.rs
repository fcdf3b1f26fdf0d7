//! The block device of a virtual disk, of whichever kind: made, let go, waited for, taken back.
//!
//! A device has a private export below it (see [`MountInfo::place`]). With ublk both are one; with the others the
//! command makes the device on what the daemon offers, and takes it away before that ends.

use super::choice::{self, Choice};
use super::{devices_dir, loop_device, mounts_dir, nbd_device, private_dir};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::export::{Address, Place};
use crate::api::mount::{MountInfo, Via};
use crate::api::name::VdiskName;
use crate::api::vdisk::VdiskInfo;
use crate::fuse::mounts;
use crate::ops::Perform;
use crate::ops::export::{ExportAdd, ExportList, ExportRemove};
use crate::ublk;
use crate::wire::client::Client;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How many numbers are tried for a ublk device: others may be quicker.
const NUMBERS_TRIED: usize = 16;

/// A device that was made.
pub(super) struct Made {
    pub choice: Choice,
    pub device: PathBuf,
    place: Place,
}

/// Makes the device of `info` as the first of `choices` that works; what the others complained of becomes part of why.
/// What remains of an `earlier` mount of the same kind is used again.
///
/// Errors: those of the last. They leave nothing behind.
pub(super) fn make(
    weft: &Client,
    socket: &Path,
    info: &VdiskInfo,
    choices: Vec<Choice>,
    earlier: Option<&MountInfo>,
) -> Answer<Made> {
    let mut complaints = Vec::new();
    let mut last = None;
    for Choice { via, why, by_hand } in choices {
        let made = choice::load(via).and_then(|()| match via {
            Via::Ublk => make_ublk(weft, info, earlier.and_then(MountInfo::place)),
            Via::Nbd => make_nbd(weft, socket, info),
            Via::Loop => make_loop(weft, socket, info),
        });
        match made {
            Ok((device, place)) => {
                let why = [&[why], complaints.as_slice()].concat().join("; ");
                return Ok(Made { choice: Choice { via, why, by_hand }, device, place });
            }
            Err(error) => {
                complaints.push(format!("not {via}: {}", error.message));
                last = Some(error);
            }
        }
    }
    Err(last.unwrap_or_else(|| ApiError::new(Kind::Internal, "there is no kind of device to choose from")))
}

impl Made {
    /// From now on the device goes with its file system, as far as its kind can do that.
    pub fn settle(&self) -> Answer<()> {
        if self.choice.via == Via::Loop { loop_device::detach(&self.device) } else { Ok(()) }
    }

    /// Takes it back: nothing is left.
    pub fn unmake(self, weft: &Client, vdisk: &VdiskName) {
        let below = Below { via: self.choice.via, device: self.device.clone(), export: self.export() };
        below.release();
        let _ = below.gone();
        withdraw(weft, vdisk, &self.place);
    }

    /// What its device gets its data from, as it is remembered.
    pub fn export(&self) -> PathBuf {
        match &self.place {
            Place::Nbd(Address::Unix(path)) | Place::Fuse(path) => path.clone(),
            _ => self.device.clone(),
        }
    }
}

/// Whether the device of a mount is served now, and not by a daemon that is gone.
pub(super) fn is_served(weft: &Client, socket: &Path, mount: &MountInfo) -> bool {
    let exports = || weft.perform(&ExportList {}).unwrap_or_default();
    match mount.via {
        Via::Loop => {
            let file = private_dir(socket, &mount.vdisk).join(&mount.vdisk.vdisk);
            loop_device::is_backed_by(&mount.device, &file)
        }
        // Nobody but the device connects to a private socket.
        Via::Nbd => {
            let ours = nbd_device::connected_to(&mount.export).is_some_and(|device| device == mount.device);
            let connected =
                |at: Option<Place>, connections: Option<usize>| at == mount.place() && connections > Some(0);
            ours && exports().iter().any(|export| connected(export.place(), export.connections))
        }
        Via::Ublk => exports().iter().any(|export| {
            export.active && export.vdisk == mount.vdisk && export.place().is_some_and(|at| Some(at) == mount.place())
        }),
    }
}

/// What a device is made on, as far as its kind tells.
pub(super) struct Below {
    pub via: Via,
    pub device: PathBuf,
    pub export: PathBuf,
}

impl From<&MountInfo> for Below {
    fn from(mount: &MountInfo) -> Below {
        Below { via: mount.via, device: mount.device.clone(), export: mount.export.clone() }
    }
}

impl Below {
    /// Fails whatever still waits for a device whose daemon is gone; where the kernel has not done that by itself.
    pub fn abort(&self) {
        if self.via == Via::Nbd {
            nbd_device::disconnect(&self.export);
        }
    }

    /// Ends a device that was unmounted, but not its export; whoever still uses it loses it.
    pub fn release(&self) {
        match self.via {
            // It is marked to go by itself; asking again does no harm.
            Via::Loop => drop(loop_device::detach(&self.device)),
            Via::Nbd => nbd_device::disconnect(&self.export),
            // It goes with its export; one whose daemon is gone is ended already, and leaves a number.
            Via::Ublk => ublk::leftover::clear(),
        }
    }

    /// Takes away what a daemon that is gone left of the export.
    pub fn forget(&self) {
        match self.via {
            Via::Loop => drop(mounts::clear_dead(&self.export)),
            Via::Nbd => {
                let _ = fs::remove_file(&self.export);
                let _ = self.export.parent().map(empty);
            }
            Via::Ublk => {}
        }
    }

    /// Waits until a device that was released, and that nobody uses, is gone.
    pub fn gone(&self) -> Answer<()> {
        match self.via {
            Via::Loop => loop_device::gone(&self.device),
            Via::Nbd => nbd_device::gone(&self.device),
            Via::Ublk => Ok(()),
        }
    }
}

/// Takes the private export back; what is not there any more needs no taking.
pub(super) fn withdraw(weft: &Client, vdisk: &VdiskName, place: &Place) {
    let _ = weft.perform(&ExportRemove::at(vdisk, place.clone()));
    let dir = match place {
        Place::Nbd(Address::Unix(path)) => path.parent(),
        Place::Fuse(dir) => Some(dir.as_path()),
        _ => None,
    };
    if let Some(dir) = dir {
        empty(dir);
    }
}

/// Takes away the directory of a virtual disk, and that of its pool, where nothing is in them.
fn empty(dir: &Path) {
    let _ = fs::remove_dir(dir);
    let _ = dir.parent().map(fs::remove_dir);
}

/// What is below a device that was weft's, when there is no daemon to remember it.
pub(super) fn without_daemon(socket: &Path, device: &Path) -> Option<Below> {
    let below = |via, export| Some(Below { via, device: device.into(), export });
    if let Some(file) = loop_device::backing(device) {
        let dir = Path::new(file.trim_end()).parent()?;
        return if dir.starts_with(mounts_dir(socket)) { below(Via::Loop, dir.into()) } else { None };
    }
    if ublk::leftover::is(device) {
        return below(Via::Ublk, device.into());
    }
    let entries = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut sockets = entries(devices_dir(socket)).flat_map(entries).map(|dir| dir.join(SOCKET));
    below(Via::Nbd, sockets.find(|socket| nbd_device::connected_to(socket).as_deref() == Some(device))?)
}

/// The private socket in its directory.
const SOCKET: &str = "socket";

fn make_loop(weft: &Client, socket: &Path, info: &VdiskInfo) -> Answer<(PathBuf, Place)> {
    let dir = private_dir(socket, &info.name);
    private(&dir)?;
    let place = Place::Fuse(dir.clone());
    weft.perform(&ExportAdd::for_mount(&info.name, place.clone()))?;
    let device = loop_device::attach(&dir.join(&info.name.vdisk), info.sector.into());
    Ok((device.inspect_err(|_| withdraw(weft, &info.name, &place))?, place))
}

fn make_nbd(weft: &Client, socket: &Path, info: &VdiskInfo) -> Answer<(PathBuf, Place)> {
    let dir = devices_dir(socket).join(&info.name.pool).join(&info.name.vdisk);
    let address: Address = format!("unix:{}", dir.join(SOCKET).display()).parse()?;
    let Address::Unix(path) = &address else { unreachable!("it was written as one") };
    private(&dir)?;
    // What is left of an earlier one would be forgotten with its record.
    nbd_device::disconnect(path);
    let place = Place::Nbd(address.clone());
    weft.perform(&ExportAdd::for_mount(&info.name, place.clone()))?;
    let device = nbd_device::connect(path, &info.name, info.sector.into());
    Ok((device.inspect_err(|_| withdraw(weft, &info.name, &place))?, place))
}

fn make_ublk(weft: &Client, info: &VdiskInfo, earlier: Option<Place>) -> Answer<(PathBuf, Place)> {
    let earlier = earlier.and_then(|place| if let Place::Ublk(number) = place { Some(number) } else { None });
    let taken = ublk::numbers();
    let free = (0..).filter(|number| !taken.contains(number));
    let mut numbers = earlier.into_iter().chain(free).take(NUMBERS_TRIED);
    loop {
        let Some(number) = numbers.next() else {
            let message = format!("none of {NUMBERS_TRIED} numbers for a ublk device could be had");
            return Err(ApiError::new(Kind::NotPossible, message).hint("ls /dev/ublkc*"));
        };
        let place = Place::Ublk(number);
        match weft.perform(&ExportAdd::for_mount(&info.name, place.clone())) {
            Err(error) if error.kind == Kind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let device = ublk::block_device(number);
                if device.exists() {
                    return Ok((device, place));
                }
                withdraw(weft, &info.name, &place);
                let message = format!("the kernel made no {}; does this system have a devtmpfs?", device.display());
                return Err(ApiError::new(Kind::NotPossible, message));
            }
        }
    }
}

/// Makes a directory that only root looks into, without what a daemon that died left mounted on it.
fn private(dir: &Path) -> Answer<()> {
    let made = mounts::clear_dead(dir).and_then(|_| DirBuilder::new().recursive(true).mode(0o700).create(dir));
    made.map_err(|error| ApiError::new(Kind::NotPossible, format!("cannot make {}: {error}", dir.display())))
}
