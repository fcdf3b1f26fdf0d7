//! Pools and their disks: showing, making and removing.

use super::export::ending;
use super::{Seen, writable};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::pool::{CheckReport, DiskInfo, DiskState, Importable, PoolInfo, PoolSettings};
use crate::api::size::typed;
use crate::api::span::Span;
use crate::api::validate;
use crate::api::watch::{Change, Outcome};
use crate::daemon::backend::{Label, NewPool, OpenHow};
use crate::daemon::candidates::{Asked, More, beyond_room, fixed_size, name_members};
use crate::daemon::engine::labels;
use crate::daemon::opening::{Looking, Why};
use crate::daemon::state::{ExportRecord, Wanted};
use crate::daemon::{Daemon, find, lock};
use crate::ops::disk::DiskList;
use crate::ops::export::ExportRemove;
use crate::ops::line::ToLine;
use crate::ops::pool::{
    PoolCheck, PoolCreate, PoolExport, PoolImport, PoolImportable, PoolList, PoolRemove, PoolRename, PoolShow,
};
use crate::ops::settings::PoolSet;
use crate::ops::{Changing, Perform};
use std::path::PathBuf;
use std::time::Instant;
use weft_engine::limits;
use weft_engine::units::ByteCount;

impl Perform<PoolList> for Daemon {
    fn perform(&self, _: &PoolList) -> Answer<Vec<PoolInfo>> {
        self.pools()
    }
}

impl Perform<PoolShow> for Daemon {
    fn perform(&self, show: &PoolShow) -> Answer<PoolInfo> {
        self.pool(&show.pool)
    }
}

impl Perform<PoolCreate> for Daemon {
    fn perform(&self, create: &PoolCreate) -> Answer<Change> {
        self.change(&create.name, || self.create_pool(create))
    }
}

impl Perform<PoolCheck> for Daemon {
    fn perform(&self, check: &PoolCheck) -> Answer<CheckReport> {
        let pool = self.pool(&check.pool)?;
        if check.repair {
            writable(&pool)?;
        }
        let repair = check.repair && !check.changing.dry_run;
        let _alone = repair.then(|| lock(&self.changing));
        self.parts.engine.pool_check(&check.pool, repair)
    }
}

impl Perform<PoolRemove> for Daemon {
    fn perform(&self, remove: &PoolRemove) -> Answer<Change> {
        self.change_pool(&remove.pool, |seen| self.remove_pool(seen, remove))
    }
}

impl Perform<PoolRename> for Daemon {
    fn perform(&self, rename: &PoolRename) -> Answer<Change> {
        self.change_pool(&rename.pool, |seen| self.rename_pool(seen, rename))
    }
}

impl Perform<PoolSet> for Daemon {
    fn perform(&self, set: &PoolSet) -> Answer<Change> {
        self.change_pool(&set.pool, |seen| self.set_pool(seen, set))
    }
}

impl Perform<PoolExport> for Daemon {
    fn perform(&self, export: &PoolExport) -> Answer<Change> {
        // One that is waited for is not there.
        if let Err(error) = self.pool(&export.pool)
            && self.waited_for(&export.pool, &self.pools()?).is_none()
        {
            return Err(error);
        }
        self.change(&export.pool, || self.export_pool(export))
    }
}

impl Perform<PoolImportable> for Daemon {
    fn perform(&self, _: &PoolImportable) -> Answer<Vec<Importable>> {
        let _alone = lock(&self.changing);
        Ok(self.importable_pools())
    }
}

impl Perform<PoolImport> for Daemon {
    fn perform(&self, import: &PoolImport) -> Answer<Change> {
        self.change(&import.pool, || self.import_pool(import))
    }
}

impl Daemon {
    /// The open pools, with where their virtual disks are offered and where missing disks were last seen.
    pub(in crate::daemon) fn pools(&self) -> Answer<Vec<PoolInfo>> {
        let mut pools = self.parts.engine.pools()?;
        let state = lock(&self.state);
        for disk in pools.iter_mut().flat_map(|pool| &mut pool.disks).filter(|disk| disk.path.is_none()) {
            let mut known = state.pools.iter().flat_map(|pool| &pool.disks);
            let known = known.find(|known| Some(&known.id) == disk.id.as_ref());
            disk.path = known.and_then(|known| known.path.clone());
        }
        for disk in pools.iter_mut().flat_map(|pool| &mut pool.disks) {
            disk.wear = disk.id.as_ref().and_then(|id| self.lives.of(id));
        }
        for vdisk in pools.iter_mut().flat_map(|pool| &mut pool.vdisks) {
            let offered = state.exports.iter().filter(|export| export.vdisk == vdisk.name);
            let mount = |export: &ExportRecord| state.mounts.iter().find(|mount| export.is_of(mount));
            let name = |export: &ExportRecord| match mount(export) {
                Some(mount) => format!("mount:{}", mount.dir.display()),
                None => export.at.to_string(),
            };
            vdisk.exports = offered.map(name).collect();
        }
        // Where a disk hangs, to look at it may take long.
        drop(state);
        let disks = pools.iter_mut().flat_map(|pool| &mut pool.disks);
        disks.filter(|disk| disk.state == DiskState::Missing).for_each(|disk| disk.hindrance = hindrance(disk));
        Ok(pools)
    }

    /// One open pool. A pool that is not open is looked for once more.
    pub(in crate::daemon) fn pool(&self, name: &str) -> Answer<PoolInfo> {
        validate::name(name)?;
        if let Some(pool) = self.pools()?.into_iter().find(|pool| pool.name == name) {
            return Ok(pool);
        }
        self.rescan(Instant::now(), Looking::Asked);
        let pools = self.pools()?;
        let known = pools.iter().map(|pool| pool.name.clone()).collect::<Vec<_>>();
        if let Some(pool) = pools.into_iter().find(|pool| pool.name == name) {
            return Ok(pool);
        }
        if let Some(unopened) = lock(&self.unopened).iter().find(|unopened| unopened.found.name == name) {
            let message = format!("pool {name} was found but is not open: {}", unopened.found.reason);
            return Err(ApiError::new(Kind::NotPossible, message).hint(unopened.hint()));
        }
        let (message, hint) = match known.as_slice() {
            [] => (format!("no pool {name}; there are no pools"), PoolCreate::some(name).line()),
            [only] => (format!("no pool {name}; there is {only}"), PoolShow::of(only).line()),
            _ => (format!("no pool {name}; there are {}", known.join(", ")), PoolList {}.line()),
        };
        Err(ApiError::new(Kind::NotFound, message).hint(hint))
    }

    pub(in crate::daemon) fn close_pools(&self) -> Answer<()> {
        let mut result = Ok(());
        for pool in self.parts.engine.pools()? {
            let closed = self.parts.engine.pool_close(&pool.name);
            result = result.and(closed);
        }
        result
    }

    fn create_pool(&self, request: &PoolCreate) -> Answer<Change> {
        let (create_size, slab_size) = validate_create(request)?;
        let open = self.pools()?;
        if open.iter().any(|pool| pool.name == request.name) {
            let message = format!("a pool named {} is there already", request.name);
            let other = PoolCreate { name: format!("{}2", request.name), ..request.clone() };
            return Err(ApiError::new(Kind::AlreadyExists, message).offer(&other));
        }
        let again = |disks: Vec<PathBuf>, more: More| {
            let (create_size, force) = (more.create_size(request.create_size), request.force || more == More::Force);
            PoolCreate { disks, create_size, force, ..request.clone() }.line()
        };
        let asked = Asked { disks: &request.disks, create_size, force: request.force, again: &again };
        asked.validate()?;
        let candidates = self.candidates(&asked, &open)?;
        let members = name_members(&candidates, &[]);
        let capacities: Vec<ByteCount> = candidates.iter().map(|candidate| candidate.capacity).collect();
        let slab_size = slab_size.unwrap_or_else(|| limits::default_slab(&capacities));
        let mut change = Change::new(Outcome::Created, format!("pool {}", request.name), request.changing.dry_run);
        for (candidate, member) in candidates.iter().zip(&members) {
            change = change.line(candidate.describe(&member.name));
        }
        change = change.line(format!("slab size {}", typed(slab_size)));
        change.changes.extend(beyond_room(&candidates));
        self.parts.engine.pool_create_judge(&request.name, slab_size, &capacities)?;
        if !request.changing.dry_run {
            let new = NewPool { name: request.name.clone(), slab_size, members };
            let made = self.with_candidates(&candidates, || self.parts.engine.pool_create(&new))?;
            self.remember_open(&[made])?;
        }
        Ok(change)
    }

    fn remove_pool(&self, seen: &Seen, request: &PoolRemove) -> Answer<Change> {
        let (name, dry_run) = (request.pool.as_str(), request.changing.dry_run);
        let pool = &seen.pool;
        if let Some(vdisk) = pool.vdisks.iter().find(|vdisk| !vdisk.exports.is_empty()) {
            let message =
                format!("{} is offered on {}; its clients would lose it", vdisk.name, vdisk.exports.join(", "));
            return Err(ApiError::new(Kind::NotPossible, message).hint(ending(vdisk)));
        }
        let mut change = Change::new(Outcome::Removed, format!("pool {name}"), dry_run);
        for vdisk in &pool.vdisks {
            let (size, used) = (ByteCount(vdisk.size), ByteCount(vdisk.used));
            change = change.line(format!("vdisk {}: {size}, {used} of data", vdisk.name));
        }
        for disk in &pool.disks {
            change = change.line(format!("disk {} is free for other use", disk.name));
        }
        let removed = self.parts.engine.pool_remove(name, request.changing.run());
        removed.map_err(|error| match error.kind {
            Kind::ReadOnly => error.offer(&PoolExport::of(name)),
            _ => error,
        })?;
        if !dry_run {
            let gone: Vec<&PathBuf> = pool.disks.iter().filter_map(|disk| disk.path.as_ref()).collect();
            self.remember(|state| {
                state.disks.retain(|disk| !gone.contains(&disk));
                state.pools.retain(|record| record.id != pool.id);
            })?;
        }
        Ok(change)
    }

    fn rename_pool(&self, seen: &Seen, request: &PoolRename) -> Answer<Change> {
        super::validate_name(&request.name, |nearest| PoolRename::to(&request.pool, nearest).line())?;
        let pool = seen.writable()?;
        let subject = format!("pool {}", pool.name);
        if request.name == pool.name {
            return Ok(Change::new(Outcome::AlreadySo, subject, request.changing.dry_run));
        }
        let taken = seen.open.iter().any(|other| other.name == request.name)
            || lock(&self.unopened).iter().any(|other| other.found.name == request.name);
        if taken {
            let message = format!("a pool named {} is there already", request.name);
            let hint = PoolRename::to(&pool.name, format!("{}2", request.name)).line();
            return Err(ApiError::new(Kind::AlreadyExists, message).hint(hint));
        }
        nothing_offered(pool, "know it by its name")?;
        let now = self.parts.engine.pool_rename(&pool.name, &request.name, request.changing.run())?;
        if !request.changing.dry_run {
            self.note_open(&[now]);
        }
        Ok(Change::new(Outcome::Changed, subject, request.changing.dry_run)
            .line(format!("name {} -> {}", pool.name, request.name)))
    }

    fn set_pool(&self, seen: &Seen, request: &PoolSet) -> Answer<Change> {
        let pool = request.pool.as_str();
        if request.is_empty() {
            let message = "nothing is set; repair-after, scrub-every, foreground-share, full and tier-schedule can be";
            let hint = PoolSet { repair_after: Some(Span(Some(300))), ..PoolSet::of(pool) }.line();
            return Err(ApiError::new(Kind::InvalidInput, message).hint(hint));
        }
        request.validate()?;
        let pool = seen.writable()?;
        let now = pool.settings;
        let next = PoolSettings {
            repair_after_seconds: request.repair_after.map_or(now.repair_after_seconds, |span| span.0),
            scrub_every_seconds: request.scrub_every.map_or(now.scrub_every_seconds, |span| span.0),
            foreground_share: request.foreground_share.unwrap_or(now.foreground_share),
            full: request.full.unwrap_or(now.full),
            tier_schedule: request.tier_schedule.unwrap_or(now.tier_schedule),
            scrubbed: now.scrubbed,
        };
        let subject = format!("pool {}", pool.name);
        if next == now {
            return Ok(Change::new(Outcome::AlreadySo, subject, request.changing.dry_run));
        }
        self.parts.engine.pool_set(&pool.name, &next, request.changing.run())?;
        let mut change = Change::new(Outcome::Changed, subject, request.changing.dry_run);
        for ((key, before), (_, after)) in now.shown().into_iter().zip(next.shown()) {
            if before != after {
                change = change.line(format!("{key} {before} -> {after}"));
            }
        }
        Ok(change)
    }

    fn export_pool(&self, request: &PoolExport) -> Answer<Change> {
        let (name, dry_run) = (request.pool.as_str(), request.changing.dry_run);
        let open = self.pools()?;
        if let Some(absent) = self.waited_for(name, &open) {
            let change = Change::new(Outcome::Closed, format!("pool {}", absent.name), dry_run).line(format!(
                "it is not waited for any more, also over a restart, until `{}`",
                PoolImport::of(&absent.name).line()
            ));
            if !dry_run {
                self.want(&absent.id, Wanted::Closed)?;
                self.open_found_pools(Instant::now(), Looking::Survey);
            }
            return Ok(change);
        }
        let gone = || ApiError::new(Kind::NotFound, format!("no pool {name}")).offer(&PoolList {});
        let pool = open.iter().find(|open| open.name == name).ok_or_else(gone)?;
        nothing_offered(pool, "would lose it")?;
        let change = Change::new(Outcome::Closed, format!("pool {}", pool.name), dry_run).line(format!(
            "until `{}`, also over a restart; its disks may be taken away",
            PoolImport::of(&pool.name).line()
        ));
        let frozen = pool.frozen.as_ref().map(|frozen| &frozen.reason);
        let change = match frozen {
            Some(why) => change.line(format!("what no flush has covered is given up: {why}")),
            None => change,
        };
        if dry_run {
            return Ok(change);
        }
        self.note_open(&open);
        self.want(&pool.id, Wanted::Closed)?;
        let closed = self.parts.engine.pool_close(&pool.name);
        self.open_found_pools(Instant::now(), Looking::Survey);
        match closed {
            Err(error) if error.kind != Kind::Frozen || frozen.is_none() => {
                let message = format!("pool {} is closed, but not cleanly: {}", pool.name, error.message);
                Err(ApiError { message, ..error })
            }
            _ => Ok(change),
        }
    }

    /// A pool that was open here and could not be opened again: its disks are away, for one.
    fn waited_for(&self, pool: &str, open: &[PoolInfo]) -> Option<Importable> {
        let open = open.iter().any(|open| open.name == pool);
        let unopened = lock(&self.unopened);
        let mut known = unopened.iter().filter(|known| !open && known.found.name == pool && known.why == Why::Failed);
        known.next().map(|known| known.found.clone())
    }

    /// The pools that were found and are not open, after another look.
    fn importable_pools(&self) -> Vec<Importable> {
        self.open_found_pools(Instant::now(), Looking::Survey);
        lock(&self.unopened).iter().map(|unopened| unopened.found.clone()).collect()
    }

    fn import_pool(&self, request: &PoolImport) -> Answer<Change> {
        let PoolImport { pool: wanted, read_only, degraded, changing: Changing { dry_run, .. } } = request;
        let meant = |name: &str, id: &str| name == wanted || id == wanted;
        self.open_found_pools(Instant::now(), Looking::Survey);
        let open = self.pools()?;
        if let Some(pool) = open.iter().find(|pool| meant(&pool.name, &pool.id)) {
            if pool.read_only == *read_only {
                return Ok(Change::new(Outcome::AlreadySo, format!("pool {}", pool.name), *dry_run));
            }
            let how = if pool.read_only { "for reading only" } else { "for writing" };
            let message = format!("pool {} is open {how}; it can be imported otherwise after an export", pool.name);
            return Err(ApiError::new(Kind::NotPossible, message).offer(&PoolExport::of(&pool.name)));
        }
        let mut found = lock(&self.unopened).clone();
        found.retain(|unopened| meant(&unopened.found.name, &unopened.found.id));
        let Importable { name, id, disks, missing, .. } = match found.len() {
            1 => found.remove(0).found,
            0 => {
                let message = format!("no pool {wanted} was found on the disks that are there");
                return Err(ApiError::new(Kind::NotFound, message).offer(&PoolImportable {}));
            }
            n => {
                let message = format!("{n} pools are named {wanted}; an identity names one");
                let hint = PoolImport::of(&found[0].found.id).line();
                return Err(ApiError::new(Kind::InvalidInput, message).hint(hint));
            }
        };
        let mut change = Change::new(Outcome::Opened, format!("pool {name}"), *dry_run).line(if *read_only {
            "for reading only, also over a restart"
        } else {
            "for reading and writing"
        });
        for disk in &disks {
            let why = find::hindrance(disk).filter(|_| !read_only);
            let why = why.map(|why| format!(", without it: it cannot be opened for writing: {why}"));
            change = change.line(format!("found: {}{}", disk.display(), why.unwrap_or_default()));
        }
        if !missing.is_empty() {
            change = change.line(format!("not found: {}", missing.join(", ")));
        }
        let labels = self.labelled(&open).into_iter().filter_map(|(path, label)| Some((path, label.ok()??)));
        // One that was cut off must not keep the others away from whoever needs them.
        let members: Vec<_> = labels.filter(|(_, label)| label.pool_id == id && label.whole).collect();
        let run = request.changing.run();
        let how = OpenHow { read_only: *read_only, degraded: *degraded || self.degraded, partly: false, run };
        let names: Vec<String> = open.iter().map(|pool| pool.name.clone()).collect();
        self.open_pool(&name, &names, &members, how, Instant::now(), true).map_err(|error| {
            let read = PoolImport { read_only: true, degraded: true, ..PoolImport::of(&name) };
            let could = !degraded && error.kind == Kind::NotPossible && self.can_be_read(&disks);
            error.or_hint(|| if could { read.line() } else { DiskList::default().line() })
        })?;
        if *dry_run {
            return Ok(change);
        }
        lock(&self.unopened).retain(|unopened| unopened.found.id != id);
        let open = self.parts.engine.pools().unwrap_or_default();
        self.note_open(&open);
        self.want(
            &id,
            match (*read_only, *degraded) {
                (false, _) => Wanted::Open,
                (true, false) => Wanted::ReadOnly,
                (true, true) => Wanted::ReadOnlyDegraded,
            },
        )?;
        self.restore_exports(&open);
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

/// Why a missing disk cannot be opened where it was last, unless something else is there.
fn hindrance(disk: &DiskInfo) -> Option<String> {
    let path = disk.path.as_deref()?;
    let is_it = |label: &Option<Label>| label.as_ref().map(|label| &label.disk_id) == disk.id.as_ref();
    // Whoever opens a pipe waits for its other end.
    let can_be_read = matches!(find::look(path), find::Look::File(_) | find::Look::Block);
    match can_be_read.then(|| labels::probe(path)) {
        Some(Ok(label)) if !is_it(&label) => None,
        _ => find::hindrance(path),
    }
}

fn nothing_offered(pool: &PoolInfo, why: &str) -> Answer<()> {
    let Some(vdisk) = pool.vdisks.iter().find(|vdisk| !vdisk.exports.is_empty()) else { return Ok(()) };
    let message = format!("{} is offered on {}; its clients {why}", vdisk.name, vdisk.exports.join(", "));
    Err(ApiError::new(Kind::NotPossible, message).offer(&ExportRemove::all(&vdisk.name)))
}

/// The sizes that are asked for: of files that are missing, and of a slab.
fn validate_create(request: &PoolCreate) -> Answer<(Option<ByteCount>, Option<ByteCount>)> {
    validate::name(&request.name)?;
    let slab_size = fixed_size(request.slab_size, "slab size")?;
    slab_size.map_or(Ok(()), validate::slab_size)?;
    let create_size = fixed_size(request.create_size, "size of a file")?;
    if request.disks.is_empty() || request.disks.len() > limits::DISKS_MAX {
        let message = format!("a pool of {} disks is not offered; 1 to {} are", request.disks.len(), limits::DISKS_MAX);
        return Err(ApiError::new(Kind::InvalidInput, message).offer(&PoolCreate::some(&request.name)));
    }
    Ok((create_size, slab_size))
}
