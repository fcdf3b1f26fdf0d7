//! Exports: adding, removing, restoring.

use super::state::ExportRecord;
use super::{Daemon, lock};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::export::{Address, ExportAdd, ExportInfo, ExportRemove, Place};
use crate::api::name::VdiskName;
use crate::api::vdisk::VdiskInfo;
use crate::api::watch::{Change, Outcome};
use crate::{fuse, ublk};
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

impl Daemon {
    pub(super) fn exports(&self) -> Vec<ExportInfo> {
        let idle = lock(&self.idle);
        let state = lock(&self.state);
        let info = |record: &ExportRecord| {
            let idle = idle.iter().find(|(idle, _)| idle == record).map(|(_, reason)| reason.clone());
            let reason = idle.or_else(|| self.ended(record).then(|| ENDED.into()));
            let uri = record.at.uri(&record.vdisk);
            let (nbd, fuse, ublk) = record.at.clone().fields();
            let connections = self.parts.exports.connections(&record.vdisk, &record.at);
            let vdisk = record.vdisk.clone();
            ExportInfo { vdisk, nbd, fuse, ublk, connections, active: reason.is_none(), reason, uri }
        };
        state.exports.iter().map(info).collect()
    }

    pub(super) fn add_export(&self, request: &ExportAdd) -> Answer<Change> {
        let ExportAdd { vdisk, dry_run, .. } = request;
        let at = request.place()?;
        let record = ExportRecord { vdisk: vdisk.clone(), at: at.clone() };
        let known = lock(&self.state).exports.contains(&record);
        let idle = lock(&self.idle).iter().any(|(idle, _)| *idle == record) || known && self.ended(&record);
        let subject = format!("export {vdisk} on {at}");
        let uri = at.uri(vdisk);
        if known && !idle {
            return Ok(Change::new(Outcome::AlreadySo, subject, *dry_run).line(uri));
        }
        match &at {
            Place::Nbd(_) if lock(&self.state).exports.iter().any(|export| export.at == at) => {}
            Place::Nbd(address) => socket_free(vdisk, address)?,
            Place::Fuse(dir) => self.directory_free(&record, dir)?,
            Place::Ublk(number) => self.number_free(&record, *number)?,
        }
        if !dry_run {
            self.parts.exports.start(vdisk, &at)?;
            lock(&self.idle).retain(|(idle, _)| *idle != record);
            let remembered = if known { Ok(()) } else { self.remember(|state| state.exports.push(record)) };
            if let Err(error) = remembered {
                let _ = self.parts.exports.stop(vdisk, &at);
                return Err(error);
            }
        }
        Ok(Change::new(Outcome::Created, subject, *dry_run).line(uri))
    }

    pub(super) fn remove_export(&self, vdisk: &VdiskName, how: &ExportRemove) -> Answer<Change> {
        let leaves = |record: &ExportRecord| record.vdisk == *vdisk && how.takes(&record.at);
        let leaving: Vec<ExportRecord> =
            lock(&self.state).exports.iter().filter(|record| leaves(record)).cloned().collect();
        if leaving.is_empty() {
            let at = Place::one_of(how.nbd.clone(), how.fuse.clone(), how.ublk);
            let at = at.map(|at| format!(" on {at}")).unwrap_or_default();
            return Err(ApiError::new(Kind::NotFound, format!("{vdisk} is not offered{at}")).hint("weft export list"));
        }
        let mounts = self.mounts();
        if let Some(mount) = mounts.iter().find(|mount| leaving.iter().any(|record| record.is_of(mount))) {
            let dir = mount.dir.display();
            let message = format!("{vdisk} is mounted on {dir}; its file system would lose it");
            return Err(ApiError::new(Kind::NotPossible, message).hint(format!("weft unmount {dir}")));
        }
        let mut change = Change::new(Outcome::Removed, format!("export {vdisk}"), how.dry_run);
        for record in &leaving {
            change = change.line(record.at.to_string());
        }
        if how.dry_run {
            return Ok(change);
        }
        self.remember(|state| state.exports.retain(|record| !leaving.contains(record)))?;
        for record in &leaving {
            let idle = lock(&self.idle).iter().any(|(idle, _)| idle == record);
            if !idle {
                self.parts.exports.stop(&record.vdisk, &record.at)?;
            }
        }
        lock(&self.idle).retain(|(idle, _)| !leaving.contains(idle));
        Ok(change)
    }

    /// Serves every remembered export that is not served yet and can be (the daemon's invariant 3).
    pub(super) fn restore_exports(&self) {
        let Ok(pools) = self.parts.engine.pools() else { return };
        let mut exports = lock(&self.state).exports.clone();
        let first_time = !std::mem::replace(&mut *lock(&self.restored), true);
        let idle_before = lock(&self.idle).clone();
        exports.retain(|export| first_time || idle_before.iter().any(|(idle, _)| idle == export));
        let mut idle = Vec::new();
        for export in exports {
            // Who uses its old device has its number. `weft mount` ends that first, and then asks for it.
            if matches!(export.at, Place::Ublk(_)) && self.is_of_lost_mount(&export) {
                idle.push((export, LOST.into()));
                continue;
            }
            let there = pools.iter().flat_map(|pool| &pool.vdisks).any(|vdisk| vdisk.name == export.vdisk);
            let started = match there {
                true => self.parts.exports.start(&export.vdisk, &export.at),
                false => Err(ApiError::new(Kind::NotFound, format!("there is no virtual disk {}", export.vdisk))),
            };
            if let Err(error) = started {
                let known = idle_before.iter().any(|(idle, reason)| *idle == export && *reason == error.message);
                if !known {
                    let text = format!("{} is not offered on {}: {}", export.vdisk, export.at, error.message);
                    self.parts.journal.warn(Some(&export.vdisk.pool), text);
                }
                idle.push((export, error.message));
            }
        }
        *lock(&self.idle) = idle;
    }

    pub(super) fn stop_exports(&self) {
        for export in self.exports().into_iter().filter(|export| export.active) {
            let Some(at) = export.place() else { continue };
            if let Err(error) = self.parts.exports.stop(&export.vdisk, &at) {
                self.parts.journal.warn(Some(&export.vdisk.pool), error.message);
            }
        }
    }

    /// Whether somebody else ended an export that was started.
    fn ended(&self, record: &ExportRecord) -> bool {
        !self.parts.exports.serves(&record.vdisk, &record.at)
    }

    /// Refuses the number of a block device that there is already, or where the kernel has none.
    fn number_free(&self, record: &ExportRecord, number: u32) -> Answer<()> {
        let next = || {
            let taken = ublk::numbers();
            (0..).find(|number| !taken.contains(number)).unwrap_or_default()
        };
        let hint = |error: ApiError| match error.kind {
            Kind::AlreadyExists => error.hint(format!("weft export add {} --ublk {}", record.vdisk, next())),
            _ => error.hint("modprobe ublk_drv"),
        };
        let state = lock(&self.state);
        if let Some(other) = state.exports.iter().find(|other| other.at == record.at && *other != record) {
            let message = format!("{} is ublk device {number} already", other.vdisk);
            return Err(hint(ApiError::new(Kind::AlreadyExists, message)));
        }
        drop(state);
        ublk::server::judge(number).map_err(|error| hint(error.into()))
    }

    /// Refuses a directory that another export has, or that cannot be one of this daemon's mounts.
    fn directory_free(&self, record: &ExportRecord, dir: &Path) -> Answer<()> {
        let (vdisk, shown) = (&record.vdisk, dir.display());
        if !dir.is_absolute() {
            return Err(ApiError::new(Kind::InvalidInput, format!("{shown} is no absolute path"))
                .hint(format!("weft export add {vdisk} --fuse /run/weft/{}", vdisk.vdisk)));
        }
        let state = lock(&self.state);
        let other = state.exports.iter().find(|other| other.at == record.at && *other != record);
        if let Some(other) = other {
            return Err(ApiError::new(Kind::NotPossible, format!("{shown} holds {} already", other.vdisk))
                .hint(format!("weft export add {vdisk} --fuse {shown}-{}", vdisk.vdisk)));
        }
        drop(state);
        fuse::server::judge(dir).map_err(ApiError::from).map_err(|error| match error.kind {
            Kind::NotFound => error.hint(format!("mkdir -p {shown}")),
            _ => error.hint(format!("weft export add {vdisk} --fuse {shown}/{}", vdisk.vdisk)),
        })
    }
}

/// The command that ends the first use of a virtual disk.
pub(super) fn ending(vdisk: &VdiskInfo) -> String {
    match vdisk.exports.iter().find_map(|export| export.strip_prefix("mount:")) {
        Some(dir) => format!("weft unmount {dir}"),
        None => format!("weft export remove {}", vdisk.name),
    }
}

/// Why an export is not served whose mount waits for a person, or for the end of the daemon's start.
pub(super) const LOST: &str = "the daemon before was killed, and its device went with it; `weft mount` makes it again";

/// Why an export that was started is not served.
const ENDED: &str = "somebody ended it; adding it again makes it again";

/// Refuses a unix socket's path where something else is, or where nothing can be.
fn socket_free(vdisk: &VdiskName, nbd: &Address) -> Answer<()> {
    let Address::Unix(path) = nbd else { return Ok(()) };
    let shown = path.display();
    if !path.is_absolute() {
        return Err(ApiError::new(Kind::InvalidInput, format!("{shown} is no absolute path"))
            .hint(format!("weft export add {vdisk} --nbd unix:/run/weft/nbd.sock")));
    }
    if !path.parent().is_some_and(std::path::Path::is_dir) {
        let dir = path.parent().unwrap_or(path).display();
        return Err(ApiError::new(Kind::NotFound, format!("no directory {dir} for the socket {shown}"))
            .hint(format!("mkdir -p {dir}")));
    }
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            Err(ApiError::new(Kind::NotPossible, format!("{shown} is there and is no socket"))
                .hint(format!("weft export add {vdisk} --nbd unix:{shown}.sock")))
        }
        _ => Ok(()),
    }
}
