//! `weft mount`.

use super::choice::{Choice, choices};
use super::device::{self, Made};
use super::filesystem::{found_on, mount_options};
use super::tools::{MOUNT, UMOUNT};
use super::{State, down, only_root, state};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::export::ExportInfo;
use crate::api::mount::{FileSystem, MountInfo, Via};
use crate::api::name::VdiskName;
use crate::api::vdisk::VdiskInfo;
use crate::api::watch::{Change, Outcome};
use crate::fuse::mounts;
use crate::ops::Perform;
use crate::ops::export::{ExportList, ExportRemove};
use crate::ops::line::{Line, on_path};
use crate::ops::mount::MountList;
use crate::ops::vdisk::VdiskShow;
use crate::wire::client::Client;
use std::io;
use std::path::{Path, PathBuf};
use weft_engine::units::ByteCount;

/// What to mount, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The virtual disk.
    pub vdisk: VdiskName,
    /// Where; absolute.
    pub dir: PathBuf,
    /// Make this file system first.
    pub format: Option<FileSystem>,
    /// What else `mkfs` is told.
    pub mkfs: Vec<String>,
    /// Make it whatever is there.
    pub force: bool,
    /// The kind of block device; the best there is unless said.
    pub via: Option<Via>,
    /// Mount it again after a restart of the daemon.
    pub persist: bool,
    /// Only say what would change.
    pub dry_run: bool,
}

/// Mounts a virtual disk. What a daemon that died left of an earlier mount of it goes first.
///
/// `socket`: the daemon's control socket. Errors leave nothing behind.
pub fn mount(weft: &Client, socket: &Path, request: &Request) -> Answer<Change> {
    let Request { vdisk, dir, .. } = request;
    only_root(again(vdisk, dir))?;
    let info = weft.perform(&VdiskShow { vdisk: vdisk.clone() })?;
    let subject = format!("mount of {vdisk} on {}", dir.display());
    let (mut persist, mut via) = (request.persist, request.via);
    let mut earlier = Vec::new();
    for mount in weft.perform(&MountList {})?.into_iter().filter(|mount| mount.vdisk == *vdisk) {
        let here = mounts::resolved(dir).is_ok_and(|dir| dir == mount.dir);
        if state(weft, &mount, socket) != State::Alive {
            persist |= here && mount.persist;
            via = via.or((here && mount.by_hand).then_some(mount.via));
            if !request.dry_run {
                down::clear(weft, &mount, here)?;
            }
            earlier.push(mount);
            continue;
        }
        if here {
            return already(weft, request, mount, subject);
        }
        let there = mount.dir.display();
        return Err(ApiError::new(Kind::AlreadyExists, format!("{vdisk} is mounted on {there} already"))
            .hint(Line::new("unmount").word(there)));
    }
    for tool in [MOUNT].into_iter().chain(request.format.map(FileSystem::maker)) {
        tool.installed()?;
    }
    let choices = choices(via)?;
    validate_used(request, &info)?;
    validate_offered(weft, vdisk, &earlier)?;
    let change = Change::new(Outcome::Created, subject, request.dry_run);
    if request.dry_run {
        let dead = mounts::is_dead(dir) || weft.perform(&MountList {})?.iter().any(|mount| mount.dir == *dir);
        if !dead {
            free(request)?;
        }
        let plan = choices.first().map(|choice| planned(request, &info, choice));
        // Nothing may be changed to find out, and only a device tells what is on it.
        let open = request.format.is_none().then_some(
            "if it holds a file system, which is looked for once its device is there: else nothing is mounted",
        );
        let lines = plan.into_iter().flatten().chain(open.map(String::from));
        return Ok(lines.fold(change, Change::line));
    }
    let dir = free(request)?;
    let request = Request { persist, ..request.clone() };
    let made = device::make(weft, socket, &info, choices, earlier.last())?;
    match on_device(weft, &request, &info, &made, &dir) {
        Ok((mount, lines)) => {
            // What an earlier mount got its data from is of no use any more, unless it is the same again.
            let old = earlier.iter().filter(|old| old.export != mount.export).filter_map(MountInfo::place);
            old.for_each(|place| device::withdraw(weft, vdisk, &place));
            let trim = (!earlier.is_empty() && request.format.is_none()).then(|| {
                format!(
                    "what was deleted just before the last mount ended may still take room: fstrim {}",
                    dir.display()
                )
            });
            Ok(lines.into_iter().chain(trim).fold(change, Change::line))
        }
        Err(error) => {
            made.unmake(weft, vdisk);
            Err(error)
        }
    }
}

/// What is known of a mount before it is made: the kind of its device, and how its file system is made.
fn planned(request: &Request, info: &VdiskInfo, choice: &Choice) -> Vec<String> {
    let recipe = request.format.map(|format| format.recipe(info, request.force, &request.mkfs));
    let made = recipe.map(|recipe| [format!("{} {}", recipe.tool.name, recipe.args.join(" ")), recipe.why]);
    [choice.why.clone()].into_iter().chain(made.into_iter().flatten()).collect()
}

/// Formats, mounts and remembers; what is remembered, and what was done in words.
fn on_device(
    weft: &Client,
    request: &Request,
    info: &VdiskInfo,
    made: &Made,
    dir: &Path,
) -> Answer<(MountInfo, Vec<String>)> {
    let device = made.device.as_path();
    let mut lines = planned(request, info, &made.choice);
    lines.push(format!("the device is {}", device.display()));
    let found = found_on(device)?;
    let kind = match (request.format, found) {
        (Some(_), Some(found)) if !request.force => return Err(holds(request, &found)),
        (Some(format), _) => {
            let recipe = format.recipe(info, request.force, &request.mkfs);
            recipe.tool.run(recipe.args.iter().map(AsRef::as_ref).chain([device.as_os_str()]))?;
            format.kind().to_string()
        }
        (None, Some(found)) => {
            lines.push(format!("it holds {found}"));
            found
        }
        (None, None) => return Err(holds_nothing(request)),
    };
    let (kind, options, why) = mount_options(&kind);
    let words = ["-t", kind, "-o", options].map(std::ffi::OsStr::new);
    MOUNT.run(words.into_iter().chain([device.as_os_str(), dir.as_os_str()])).map_err(|error| {
        let used = down::users_of_device(device);
        if used.is_empty() { error } else { error.hint(format!("kill {}", down::pids(&used))) }
    })?;
    let mount = MountInfo {
        vdisk: request.vdisk.clone(),
        dir: dir.into(),
        device: device.into(),
        export: made.export(),
        via: made.choice.via,
        by_hand: made.choice.by_hand,
        filesystem: kind.into(),
        persist: request.persist,
    };
    if let Err(error) = weft.perform(&mount) {
        let _ = UMOUNT.run([dir]);
        return Err(error);
    }
    made.settle()?;
    lines.push(format!("mounted with {options}: {why}"));
    if request.persist {
        lines.push("mounted again whenever the daemon starts".into());
    }
    Ok((mount, lines))
}

/// Answers for a mount that is there already: only whether it persists can still change.
fn already(weft: &Client, request: &Request, mount: MountInfo, subject: String) -> Answer<Change> {
    if request.format.is_some() {
        let dir = mount.dir.display();
        return Err(ApiError::new(
            Kind::NotPossible,
            format!("{} is mounted on {dir}; formatting would destroy it", mount.vdisk),
        )
        .hint(Line::new("unmount").word(dir)));
    }
    if let Some(via) = request.via.filter(|via| *via != mount.via) {
        let dir = mount.dir.display();
        let message = format!("{} is mounted on {dir} with {}; it cannot go on with {via}", mount.vdisk, mount.via);
        return Err(ApiError::new(Kind::NotPossible, message).hint(Line::new("unmount").word(dir)));
    }
    if mount.persist || !request.persist {
        return Ok(Change::new(Outcome::AlreadySo, subject, request.dry_run).line(mount.device.display().to_string()));
    }
    if !request.dry_run {
        weft.perform(&MountInfo { persist: true, ..mount })?;
    }
    Ok(Change::new(Outcome::Changed, subject, request.dry_run).line("mounted again whenever the daemon starts"))
}

/// Refuses to format what has data, and to mount what has none, as far as the daemon can tell.
fn validate_used(request: &Request, info: &VdiskInfo) -> Answer<()> {
    match request.format {
        Some(_) if info.used > 0 && !request.force => Err(holds(request, &format!("{} of data", ByteCount(info.used)))),
        _ => Ok(()),
    }
}

/// Refuses to mount what clients may write to. `earlier`: mounts that are gone, whose exports are of no use to anybody.
fn validate_offered(weft: &Client, vdisk: &VdiskName, earlier: &[MountInfo]) -> Answer<()> {
    let own = |export: &ExportInfo| earlier.iter().any(|mount| mount.place() == export.place());
    let exports = weft.perform(&ExportList {})?;
    let Some(at) = exports
        .iter()
        .find(|export| export.vdisk == *vdisk && !export.terms.read_only && !own(export))
        .and_then(ExportInfo::place)
    else {
        return Ok(());
    };
    let message = format!(
        "{vdisk} is offered on {at}, where clients write to it; a file system mounted beside them would be destroyed"
    );
    Err(ApiError::new(Kind::NotPossible, message).offer(&ExportRemove::at(vdisk, at)))
}

/// The command that mounts a virtual disk.
fn again(vdisk: &VdiskName, dir: &Path) -> Line {
    Line::new("mount").word(vdisk).word(dir.display())
}

fn holds(request: &Request, what: &str) -> ApiError {
    let Request { vdisk, dir, .. } = request;
    let message = format!("{vdisk} holds {what}, which formatting would destroy; only --force does it");
    ApiError::new(Kind::NotPossible, message).hint(again(vdisk, dir))
}

fn holds_nothing(request: &Request) -> ApiError {
    let Request { vdisk, dir, .. } = request;
    ApiError::new(Kind::NotPossible, format!("{vdisk} holds no file system that this system knows"))
        .hint(again(vdisk, dir).word("--format").word("ext4"))
}

/// The directory without symbolic links, if it can be mounted on.
fn free(request: &Request) -> Answer<PathBuf> {
    let (vdisk, shown) = (&request.vdisk, request.dir.display());
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            ApiError::new(Kind::NotFound, format!("no directory {shown}")).hint(on_path("mkdir -p", &request.dir))
        }
        _ => ApiError::new(Kind::NotPossible, format!("cannot mount on {shown}: {error}")),
    };
    let dir = mounts::resolved(&request.dir).map_err(failed)?;
    if let Some(found) = mounts::mounted_at(&dir).map_err(failed)? {
        return Err(ApiError::new(Kind::NotPossible, format!("{shown} is busy: {} is mounted on it", found.source))
            .hint(on_path("umount", &request.dir)));
    }
    if dir.read_dir().map_err(failed)?.next().is_some() {
        let message = format!("{shown} is not empty; what is in it would be hidden");
        return Err(ApiError::new(Kind::NotPossible, message).hint(again(vdisk, &request.dir.join(&vdisk.vdisk))));
    }
    Ok(dir)
}
