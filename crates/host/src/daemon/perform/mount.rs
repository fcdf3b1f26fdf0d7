//! Mounted virtual disks: remembering them, mounting them again, unmounting them before the end.
//!
//! Everything that mounts is a process of its own, `weft mount` and `weft unmount` (see `crate::mount`, invariant 4).

use crate::api::error::{Answer, ApiError, Kind};
use crate::api::mount::MountInfo;
use crate::api::watch::{Attention, Change, Outcome};
use crate::daemon::state::ExportRecord;
use crate::daemon::{Daemon, lock};
use crate::fuse;
use crate::ops::Perform;
use crate::ops::line::Line;
use crate::ops::mount::{MountForget, MountList};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

const LOST: &str = "lost its device when the daemon ended";

impl Perform<MountList> for Daemon {
    fn perform(&self, _: &MountList) -> Answer<Vec<MountInfo>> {
        Ok(self.mounts())
    }
}

impl Perform<MountInfo> for Daemon {
    fn perform(&self, mount: &MountInfo) -> Answer<Change> {
        self.vdisk(&mount.vdisk)?;
        self.change(&mount.vdisk.pool, || self.note_mount(mount))
    }
}

impl Perform<MountForget> for Daemon {
    fn perform(&self, which: &MountForget) -> Answer<Change> {
        let pool = self.mounts().into_iter().find(|mount| mount.dir == which.dir).map(|mount| mount.vdisk.pool);
        self.change(&pool.unwrap_or_default(), || self.forget_mount(&which.dir))
    }
}

impl Daemon {
    pub(in crate::daemon) fn mounts(&self) -> Vec<MountInfo> {
        lock(&self.state).mounts.clone()
    }

    /// Remembers a mount that was made, in place of what was mounted there.
    fn note_mount(&self, mount: &MountInfo) -> Answer<Change> {
        if let Some(path) = [&mount.dir, &mount.device, &mount.export].into_iter().find(|path| !path.is_absolute()) {
            let message = format!("{} is no absolute path", path.display());
            return Err(ApiError::new(Kind::InvalidInput, message));
        }
        self.remember(|state| {
            state.mounts.retain(|other| other.dir != mount.dir);
            state.mounts.push(mount.clone());
        })?;
        lock(&self.lost).retain(|(dir, _)| *dir != mount.dir);
        Ok(Change::new(Outcome::Created, format!("mount of {} on {}", mount.vdisk, mount.dir.display()), false))
    }

    fn forget_mount(&self, dir: &Path) -> Answer<Change> {
        let subject = format!("mount on {}", dir.display());
        if !lock(&self.state).mounts.iter().any(|mount| mount.dir == dir) {
            return Ok(Change::new(Outcome::AlreadySo, subject, false));
        }
        self.remember(|state| state.mounts.retain(|mount| mount.dir != dir))?;
        lock(&self.lost).retain(|(lost, _)| *lost != dir);
        Ok(Change::new(Outcome::Removed, subject, false))
    }

    /// When the daemon starts: what is remembered was served by one that is gone. What is not mounted any more, after a
    /// restart of the machine, is forgotten unless it persists.
    pub(in crate::daemon) fn meet_old_mounts(&self) -> Answer<()> {
        let mounted = fuse::mounts::mounts().unwrap_or_default();
        let there = |mount: &MountInfo| mounted.iter().any(|found| found.at == mount.dir && mount.is_of(&found.source));
        let (kept, gone): (Vec<MountInfo>, Vec<MountInfo>) =
            self.mounts().into_iter().partition(|mount| mount.persist || there(mount));
        let lost = |mount: &MountInfo| (mount.dir.clone(), LOST.to_string());
        *lock(&self.lost) = kept.iter().filter(|mount| there(mount)).map(lost).collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.remember(|state| {
            state.mounts = kept;
            state.exports.retain(|export| !gone.iter().any(|mount| export.is_of(mount)));
        })
    }

    /// Whether an export is the private one of a mount whose device went with the daemon that served it.
    pub(in crate::daemon) fn is_of_lost_mount(&self, export: &ExportRecord) -> bool {
        let lost = lock(&self.lost).clone();
        self.mounts().iter().any(|mount| export.is_of(mount) && lost.iter().any(|(dir, _)| *dir == mount.dir))
    }

    /// Mounts again what persists. The API must answer.
    pub(in crate::daemon) fn restore_mounts(&self) {
        for mount in self.mounts().into_iter().filter(|mount| mount.persist) {
            let vdisk = mount.vdisk.to_string();
            let line = [OsStr::new("mount"), OsStr::new(&vdisk), mount.dir.as_os_str(), OsStr::new("--persist")];
            if let Err(error) = self.weft(&line) {
                let text = format!("{vdisk} is not mounted on {}: {}", mount.dir.display(), error.message);
                self.parts.journal.warn(Some(&mount.vdisk.pool), text);
                let mut lost = lock(&self.lost);
                lost.retain(|(dir, _)| *dir != mount.dir);
                lost.push((mount.dir, format!("could not be mounted again: {}", error.message)));
            }
        }
    }

    /// Before the end: writes out and unmounts what is mounted, used or not. The API must answer.
    pub(in crate::daemon) fn end_mounts(&self) {
        for mount in self.mounts() {
            let mut line = vec![OsStr::new("unmount"), mount.dir.as_os_str(), OsStr::new("--force")];
            if mount.persist {
                line.push(OsStr::new("--keep"));
            }
            if let Err(error) = self.weft(&line) {
                let text = format!("{} could not be unmounted: {}", mount.dir.display(), error.message);
                self.parts.journal.warn(Some(&mount.vdisk.pool), text);
            }
        }
    }

    /// What a person must do about mounts.
    pub(in crate::daemon) fn mounts_that_need_a_person(&self) -> Vec<Attention> {
        let lost = lock(&self.lost).clone();
        let mounts = self.mounts();
        let attention = lost.iter().filter_map(|(dir, why)| {
            let mount = mounts.iter().find(|mount| mount.dir == *dir)?;
            let shown = dir.display();
            Some(Attention {
                subject: format!("vdisk {}", mount.vdisk),
                message: format!("its file system on {shown} {why}"),
                hint: Some(Line::new("mount").word(&mount.vdisk).word(shown).into()),
            })
        });
        attention.collect()
    }

    /// Runs this program, whatever became of its file, as a client of this daemon.
    fn weft(&self, line: &[&OsStr]) -> Answer<()> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("--socket").arg(&self.socket).args(line).stdin(Stdio::null());
        let failed = |why: String| ApiError::new(Kind::NotPossible, why);
        let ran = command.output().map_err(|error| failed(error.to_string()))?;
        let said = String::from_utf8_lossy(&ran.stderr);
        let first = said.lines().next().unwrap_or_default();
        if ran.status.success() { Ok(()) } else { Err(failed(first.trim_start_matches("weft: ").into())) }
    }
}
