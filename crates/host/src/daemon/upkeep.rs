//! A pool's name and settings, its leaving and coming back.

use super::backend::OpenHow;
use super::opening::{Looking, Why};
use super::state::Wanted;
use super::{Daemon, lock};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::judge;
use crate::api::name::VdiskName;
use crate::api::pool::{ChangeQuery, PoolInfo};
use crate::api::span::Span;
use crate::api::upkeep::{Importable, PoolImport, PoolSet, PoolSettings, Rename};
use crate::api::watch::{Change, Outcome};
use std::time::Instant;

impl Daemon {
    pub(super) fn rename_pool(&self, pool: &str, request: &Rename) -> Answer<Change> {
        judge_name(&request.name, &format!("weft pool rename {pool}"))?;
        let pool = self.writable_pool_named(pool)?;
        let subject = format!("pool {}", pool.name);
        if request.name == pool.name {
            return Ok(Change::new(Outcome::AlreadySo, subject, request.dry_run));
        }
        let taken = self.pools()?.iter().any(|other| other.name == request.name)
            || lock(&self.unopened).iter().any(|other| other.found.name == request.name);
        if taken {
            let message = format!("a pool named {} is there already", request.name);
            let hint = format!("weft pool rename {} {}2", pool.name, request.name);
            return Err(ApiError::new(Kind::AlreadyExists, message).hint(hint));
        }
        nothing_offered(&pool, "know it by its name")?;
        if !request.dry_run {
            self.parts.engine.pool_rename(&pool.name, &request.name)?;
            self.note_pools();
        }
        Ok(Change::new(Outcome::Changed, subject, request.dry_run)
            .line(format!("name {} -> {}", pool.name, request.name)))
    }

    pub(super) fn rename_vdisk(&self, name: &VdiskName, request: &Rename) -> Answer<Change> {
        judge_name(&request.name, &format!("weft vdisk rename {name}"))?;
        let pool = self.writable_pool_named(&name.pool)?;
        let (subject, dry_run) = (format!("vdisk {name}"), request.dry_run);
        if request.name == name.vdisk {
            return Ok(Change::new(Outcome::AlreadySo, subject, dry_run));
        }
        let new = VdiskName { pool: name.pool.clone(), vdisk: request.name.clone() };
        if pool.vdisks.iter().any(|other| other.name == new) {
            let message = format!("a virtual disk named {new} is there already");
            let hint = format!("weft vdisk rename {name} {}2", request.name);
            return Err(ApiError::new(Kind::AlreadyExists, message).hint(hint));
        }
        if let Some(vdisk) = pool.vdisks.iter().find(|vdisk| vdisk.name == *name && !vdisk.exports.is_empty()) {
            let message = format!("{name} is offered on {}; its clients know it by its name", vdisk.exports.join(", "));
            return Err(ApiError::new(Kind::NotPossible, message).hint(format!("weft export remove {name}")));
        }
        if !dry_run {
            self.parts.engine.vdisk_rename(name, &request.name)?;
        }
        Ok(Change::new(Outcome::Changed, subject, dry_run).line(format!("name {name} -> {new}")))
    }

    pub(super) fn set_pool(&self, pool: &str, request: &PoolSet) -> Answer<Change> {
        if request.is_empty() {
            let message = "nothing is set; repair-after, scrub-every, foreground-share and full can be";
            let hint = format!("weft pool set {pool} repair-after=5m");
            return Err(ApiError::new(Kind::InvalidInput, message).hint(hint));
        }
        request.judge()?;
        let pool = self.writable_pool_named(pool)?;
        let now = pool.settings;
        let next = PoolSettings {
            repair_after_seconds: request.repair_after.map_or(now.repair_after_seconds, |span| span.0),
            scrub_every_seconds: request.scrub_every.map_or(now.scrub_every_seconds, |span| span.0),
            foreground_share: request.foreground_share.unwrap_or(now.foreground_share),
            full: request.full.unwrap_or(now.full),
            scrubbed: now.scrubbed,
        };
        let subject = format!("pool {}", pool.name);
        if next == now {
            return Ok(Change::new(Outcome::AlreadySo, subject, request.dry_run));
        }
        if !request.dry_run {
            self.parts.engine.pool_set(&pool.name, &next)?;
        }
        let mut change = Change::new(Outcome::Changed, subject, request.dry_run);
        for ((key, before), (_, after)) in shown(&now).into_iter().zip(shown(&next)) {
            if before != after {
                change = change.line(format!("{key} {before} -> {after}"));
            }
        }
        Ok(change)
    }

    pub(super) fn export_pool(&self, pool: &str, how: ChangeQuery) -> Answer<Change> {
        if let Some(absent) = self.waited_for(pool) {
            let change = Change::new(Outcome::Closed, format!("pool {}", absent.name), how.dry_run).line(format!(
                "it is not waited for any more, also over a restart, until `weft pool import {}`",
                absent.name
            ));
            if !how.dry_run {
                self.want(&absent.id, Wanted::Closed)?;
                self.open_found_pools(Instant::now(), Looking::Survey);
            }
            return Ok(change);
        }
        let pool = self.open_pool_named(pool)?;
        nothing_offered(&pool, "would lose it")?;
        let change = Change::new(Outcome::Closed, format!("pool {}", pool.name), how.dry_run)
            .line(format!("until `weft pool import {}`, also over a restart; its disks may be taken away", pool.name));
        if how.dry_run {
            return Ok(change);
        }
        self.note_pools();
        self.want(&pool.id, Wanted::Closed)?;
        self.parts.engine.pool_close(&pool.name)?;
        self.open_found_pools(Instant::now(), Looking::Survey);
        Ok(change)
    }

    /// A pool that was open here and could not be opened again: its disks are away, for one.
    pub(super) fn waited_for(&self, pool: &str) -> Option<Importable> {
        let open = self.pools().ok()?.iter().any(|open| open.name == pool);
        let unopened = lock(&self.unopened);
        let mut known = unopened.iter().filter(|known| !open && known.found.name == pool && known.why == Why::Failed);
        known.next().map(|known| known.found.clone())
    }

    /// The pools that were found and are not open, after another look.
    pub(super) fn importable_pools(&self) -> Vec<Importable> {
        self.open_found_pools(Instant::now(), Looking::Survey);
        lock(&self.unopened).iter().map(|unopened| unopened.found.clone()).collect()
    }

    pub(super) fn import_pool(&self, request: &PoolImport) -> Answer<Change> {
        let PoolImport { pool: wanted, read_only, degraded, dry_run } = request;
        let meant = |name: &str, id: &str| name == wanted || id == wanted;
        self.open_found_pools(Instant::now(), Looking::Survey);
        let open = self.pools()?;
        if let Some(pool) = open.iter().find(|pool| meant(&pool.name, &pool.id)) {
            if pool.read_only == *read_only {
                return Ok(Change::new(Outcome::AlreadySo, format!("pool {}", pool.name), *dry_run));
            }
            let how = if pool.read_only { "for reading only" } else { "for writing" };
            let message = format!("pool {} is open {how}; it can be imported otherwise after an export", pool.name);
            return Err(ApiError::new(Kind::NotPossible, message).hint(format!("weft pool export {}", pool.name)));
        }
        let mut found = lock(&self.unopened).clone();
        found.retain(|unopened| meant(&unopened.found.name, &unopened.found.id));
        let Importable { name, id, disks, missing, .. } = match found.len() {
            1 => found.remove(0).found,
            0 => {
                let message = format!("no pool {wanted} was found on the disks that are there");
                return Err(ApiError::new(Kind::NotFound, message).hint("weft pool import"));
            }
            n => {
                let message = format!("{n} pools are named {wanted}; an identity names one");
                let hint = format!("weft pool import {}", found[0].found.id);
                return Err(ApiError::new(Kind::InvalidInput, message).hint(hint));
            }
        };
        let mut change = Change::new(Outcome::Opened, format!("pool {name}"), *dry_run).line(if *read_only {
            "for reading only, also over a restart"
        } else {
            "for reading and writing"
        });
        for disk in &disks {
            change = change.line(format!("found: {}", disk.display()));
        }
        if !missing.is_empty() {
            change = change.line(format!("not found: {}", missing.join(", ")));
        }
        if *dry_run {
            return Ok(change);
        }
        let labels = self.labelled(&open).into_iter().filter_map(|(path, label)| Some((path, label.ok()??)));
        // One that was cut off must not keep the others away from whoever needs them.
        let members: Vec<_> = labels.filter(|(_, label)| label.pool_id == id && label.whole).collect();
        let how = OpenHow { read_only: *read_only, degraded: *degraded || self.degraded, partly: false };
        let names: Vec<String> = open.iter().map(|pool| pool.name.clone()).collect();
        self.open_pool(&name, &names, &members, how, Instant::now(), true).map_err(|error| {
            let more = match (*degraded, *read_only) {
                (false, _) if error.kind == Kind::NotPossible => " --read-only --degraded",
                _ => "",
            };
            error.or_hint(|| {
                if more.is_empty() { "weft disk list".into() } else { format!("weft pool import {name}{more}") }
            })
        })?;
        lock(&self.unopened).retain(|unopened| unopened.found.id != id);
        self.note_pools();
        self.want(
            &id,
            match (*read_only, *degraded) {
                (false, _) => Wanted::Open,
                (true, false) => Wanted::ReadOnly,
                (true, true) => Wanted::ReadOnlyDegraded,
            },
        )?;
        self.restore_exports();
        Ok(change)
    }

    /// Remembers how a person wants a pool.
    fn want(&self, id: &str, wanted: Wanted) -> Answer<()> {
        self.remember(|state| {
            if let Some(record) = state.pools.iter_mut().find(|record| record.id == id) {
                record.wanted = wanted;
            }
        })
    }
}

/// The settings as `weft pool set` takes them.
pub(crate) fn shown(settings: &PoolSettings) -> [(&'static str, String); 4] {
    let [a, b, c] = settings.full;
    [
        ("repair-after", Span(settings.repair_after_seconds).to_string()),
        ("scrub-every", Span(settings.scrub_every_seconds).to_string()),
        ("foreground-share", format!("{}%", settings.foreground_share)),
        ("full", format!("{a},{b},{c}")),
    ]
}

fn judge_name(name: &str, command: &str) -> Answer<()> {
    judge::name(name).map_err(|bad| {
        let nearest = bad.nearest.clone().unwrap_or_default();
        ApiError::from(bad).hint(format!("{command} {nearest}"))
    })
}

fn nothing_offered(pool: &PoolInfo, why: &str) -> Answer<()> {
    let Some(vdisk) = pool.vdisks.iter().find(|vdisk| !vdisk.exports.is_empty()) else { return Ok(()) };
    let message = format!("{} is offered on {}; its clients {why}", vdisk.name, vdisk.exports.join(", "));
    Err(ApiError::new(Kind::NotPossible, message).hint(format!("weft export remove {}", vdisk.name)))
}
