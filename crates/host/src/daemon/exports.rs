//! Exports: adding, removing, restoring.

use super::state::ExportRecord;
use super::{Daemon, lock};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::export::{Address, ExportAdd, ExportInfo, ExportRemove};
use crate::api::name::VdiskName;
use crate::api::watch::{Change, Outcome};
use std::fs;
use std::os::unix::fs::FileTypeExt;

impl Daemon {
    pub(super) fn exports(&self) -> Vec<ExportInfo> {
        let idle = lock(&self.idle);
        let state = lock(&self.state);
        let info = |record: &ExportRecord| {
            let reason = idle.iter().find(|(idle, _)| idle == record).map(|(_, reason)| reason.clone());
            ExportInfo {
                vdisk: record.vdisk.clone(),
                nbd: record.nbd.clone(),
                active: reason.is_none(),
                reason,
                uri: record.nbd.uri(&record.vdisk),
            }
        };
        state.exports.iter().map(info).collect()
    }

    pub(super) fn add_export(&self, request: &ExportAdd) -> Answer<Change> {
        let ExportAdd { vdisk, nbd, dry_run } = request;
        let record = ExportRecord { vdisk: vdisk.clone(), nbd: nbd.clone() };
        let known = lock(&self.state).exports.contains(&record);
        let idle = lock(&self.idle).iter().any(|(idle, _)| *idle == record);
        let subject = format!("export {vdisk} on {nbd}");
        let uri = nbd.uri(vdisk);
        if known && !idle {
            return Ok(Change::new(Outcome::AlreadySo, subject, *dry_run).line(uri));
        }
        if !lock(&self.state).exports.iter().any(|export| export.nbd == *nbd) {
            socket_free(vdisk, nbd)?;
        }
        if !dry_run {
            self.parts.exports.start(vdisk, nbd)?;
            lock(&self.idle).retain(|(idle, _)| *idle != record);
            let remembered = if known { Ok(()) } else { self.remember(|state| state.exports.push(record)) };
            if let Err(error) = remembered {
                let _ = self.parts.exports.stop(vdisk, nbd);
                return Err(error);
            }
        }
        Ok(Change::new(Outcome::Created, subject, *dry_run).line(uri))
    }

    pub(super) fn remove_export(&self, vdisk: &VdiskName, how: &ExportRemove) -> Answer<Change> {
        let leaves =
            |record: &ExportRecord| record.vdisk == *vdisk && how.nbd.as_ref().is_none_or(|nbd| record.nbd == *nbd);
        let leaving: Vec<ExportRecord> =
            lock(&self.state).exports.iter().filter(|record| leaves(record)).cloned().collect();
        if leaving.is_empty() {
            let at = how.nbd.as_ref().map(|nbd| format!(" on {nbd}")).unwrap_or_default();
            return Err(ApiError::new(Kind::NotFound, format!("{vdisk} is not offered{at}")).hint("weft export list"));
        }
        let mut change = Change::new(Outcome::Removed, format!("export {vdisk}"), how.dry_run);
        for record in &leaving {
            change = change.line(record.nbd.to_string());
        }
        if how.dry_run {
            return Ok(change);
        }
        self.remember(|state| state.exports.retain(|record| !leaving.contains(record)))?;
        for record in &leaving {
            let idle = lock(&self.idle).iter().any(|(idle, _)| idle == record);
            if !idle {
                self.parts.exports.stop(&record.vdisk, &record.nbd)?;
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
            let there = pools.iter().flat_map(|pool| &pool.vdisks).any(|vdisk| vdisk.name == export.vdisk);
            let started = match there {
                true => self.parts.exports.start(&export.vdisk, &export.nbd),
                false => Err(ApiError::new(Kind::NotFound, format!("there is no virtual disk {}", export.vdisk))),
            };
            if let Err(error) = started {
                let known = idle_before.iter().any(|(idle, reason)| *idle == export && *reason == error.message);
                if !known {
                    let text = format!("{} is not offered on {}: {}", export.vdisk, export.nbd, error.message);
                    self.parts.journal.warn(Some(&export.vdisk.pool), text);
                }
                idle.push((export, error.message));
            }
        }
        *lock(&self.idle) = idle;
    }

    pub(super) fn stop_exports(&self) {
        for export in self.exports().into_iter().filter(|export| export.active) {
            if let Err(error) = self.parts.exports.stop(&export.vdisk, &export.nbd) {
                self.parts.journal.warn(Some(&export.vdisk.pool), error.message);
            }
        }
    }
}

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
