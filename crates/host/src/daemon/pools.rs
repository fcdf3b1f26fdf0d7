//! Pools and their disks: showing, making and removing.

use super::backend::{Label, NewPool};
use super::candidates::{Asked, Candidate, beyond_room, fixed_size, name_members, size_of_disk};
use super::exports::ending;
use super::opening::Looking;
use super::state::ExportRecord;
use super::{Daemon, find, lock, probe};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::judge;
use crate::api::pool::{ChangeQuery, DiskCounters, DiskInfo, DiskState, Media, PoolCreate, PoolInfo, PoolQuery};
use crate::api::size::typed;
use crate::api::watch::{Change, Outcome};
use std::path::{Path, PathBuf};
use std::time::Instant;
use weft_engine::limits;
use weft_engine::units::ByteCount;

impl Daemon {
    /// The open pools, with where their virtual disks are offered and where missing disks were last seen.
    pub(super) fn pools(&self) -> Answer<Vec<PoolInfo>> {
        let mut pools = self.parts.engine.pools()?;
        let state = lock(&self.state);
        for disk in pools.iter_mut().flat_map(|pool| &mut pool.disks).filter(|disk| disk.path.is_none()) {
            let mut known = state.pools.iter().flat_map(|pool| &pool.disks);
            let known = known.find(|known| Some(&known.id) == disk.id.as_ref());
            disk.path = known.and_then(|known| known.path.clone());
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
        Ok(pools)
    }

    /// One open pool. A pool that is not open is looked for once more.
    pub(super) fn pool(&self, name: &str) -> Answer<PoolInfo> {
        judge::name(name)?;
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
            [] => (format!("no pool {name}; there are no pools"), format!("weft pool create {name} DISK...")),
            [only] => (format!("no pool {name}; there is {only}"), format!("weft pool show {only}")),
            _ => (format!("no pool {name}; there are {}", known.join(", ")), "weft pool list".into()),
        };
        Err(ApiError::new(Kind::NotFound, message).hint(hint))
    }

    pub(super) fn close_pools(&self) -> Answer<()> {
        let mut result = Ok(());
        for pool in self.parts.engine.pools()? {
            let closed = self.parts.engine.pool_close(&pool.name);
            result = result.and(closed);
        }
        result
    }

    pub(super) fn create_pool(&self, request: &PoolCreate) -> Answer<Change> {
        let (create_size, slab_size) = judge_create(request)?;
        let open = self.pools()?;
        if open.iter().any(|pool| pool.name == request.name) {
            let message = format!("a pool named {} is there already", request.name);
            let other = create_command(request, &format!("{}2", request.name), "");
            return Err(ApiError::new(Kind::AlreadyExists, message).hint(other));
        }
        let again = |disks: &[PathBuf], more: &str| {
            create_command(&PoolCreate { disks: disks.to_vec(), ..request.clone() }, &request.name, more)
        };
        let asked = Asked { disks: &request.disks, create_size, force: request.force, again: &again };
        asked.judge()?;
        let candidates = self.candidates(&asked, &open)?;
        let members = name_members(&candidates, &[]);
        let mut change = Change::new(Outcome::Created, format!("pool {}", request.name), request.dry_run);
        for (candidate, member) in candidates.iter().zip(&members) {
            change = change.line(candidate.describe(&member.name));
        }
        change = change.line(format!("slab size {}", typed(slab_size)));
        change.changes.extend(beyond_room(&candidates));
        self.parts.engine.pool_create_judge(
            &request.name,
            slab_size,
            &candidates.iter().map(Candidate::capacity).collect::<Vec<_>>(),
        )?;
        if !request.dry_run {
            let new = NewPool { name: request.name.clone(), slab_size, members };
            self.with_candidates(&candidates, || self.parts.engine.pool_create(&new))?;
            self.remember_pools()?;
        }
        Ok(change)
    }

    pub(super) fn remove_pool(&self, name: &str, how: ChangeQuery) -> Answer<Change> {
        let pool = self.pools()?.into_iter().find(|pool| pool.name == name);
        let pool = pool.ok_or_else(|| ApiError::new(Kind::NotFound, format!("no pool {name}")))?;
        if let Some(vdisk) = pool.vdisks.iter().find(|vdisk| !vdisk.exports.is_empty()) {
            let message =
                format!("{} is offered on {}; its clients would lose it", vdisk.name, vdisk.exports.join(", "));
            return Err(ApiError::new(Kind::NotPossible, message).hint(ending(vdisk)));
        }
        let mut change = Change::new(Outcome::Removed, format!("pool {name}"), how.dry_run);
        for vdisk in &pool.vdisks {
            let (size, used) = (ByteCount(vdisk.size), ByteCount(vdisk.used));
            change = change.line(format!("vdisk {}: {size}, {used} of data", vdisk.name));
        }
        for disk in &pool.disks {
            change = change.line(format!("disk {} is free for other use", disk.name));
        }
        if !how.dry_run {
            self.parts.engine.pool_remove(name)?;
            let gone: Vec<PathBuf> = pool.disks.into_iter().filter_map(|disk| disk.path).collect();
            self.remember(|state| {
                state.disks.retain(|disk| !gone.contains(disk));
                state.pools.retain(|record| record.id != pool.id);
            })?;
        }
        Ok(change)
    }

    /// The disks of the open pools, then, unless one pool is asked for, everything else that was found.
    pub(super) fn disks(&self, query: &PoolQuery) -> Answer<Vec<DiskInfo>> {
        if let Some(pool) = &query.pool {
            return Ok(self.pool(pool)?.disks);
        }
        let open = self.pools()?;
        let others: Vec<DiskInfo> =
            self.labelled(&open).into_iter().map(|(path, label)| self.unclaimed(path, label, &open)).collect();
        let missing = self.missing_of_closed(&open, &others);
        let mut disks: Vec<DiskInfo> = open.into_iter().flat_map(|pool| pool.disks).collect();
        disks.extend(others);
        disks.extend(missing);
        Ok(disks)
    }

    pub(super) fn disk(&self, wanted: &str) -> Answer<DiskInfo> {
        let is_wanted = |disk: &DiskInfo| {
            let in_pool = disk.pool.as_ref().is_some_and(|pool| format!("{pool}/{}", disk.name) == wanted);
            let by_path = disk.path.as_ref().is_some_and(|path| {
                path == Path::new(wanted)
                    || wanted.starts_with('/') && find::identity(path) == find::identity(Path::new(wanted))
            });
            in_pool || by_path || disk.name == wanted || disk.id.as_deref() == Some(wanted)
        };
        let mut found: Vec<DiskInfo> = self.disks(&PoolQuery::default())?.into_iter().filter(is_wanted).collect();
        match found.len() {
            0 => Err(ApiError::new(
                Kind::NotFound,
                format!("no disk {wanted}; its path, identity, name or POOL/NAME finds one"),
            )
            .hint("weft disk list")),
            1 => Ok(found.remove(0)),
            n => {
                let path = found[0].path.clone().unwrap_or_default();
                let message = format!("{n} disks are named {wanted}; a path names one");
                Err(ApiError::new(Kind::InvalidInput, message).hint(format!("weft disk show {}", path.display())))
            }
        }
    }

    /// A disk that was found and is in use by no open pool.
    fn unclaimed(&self, path: PathBuf, label: Answer<Option<Label>>, open: &[PoolInfo]) -> DiskInfo {
        let (state, holds, label) = match label {
            Ok(Some(label)) if open.iter().any(|pool| pool.id == label.pool_id) => {
                let holds = format!("what was a disk of pool {}, which goes on without it", label.pool_name);
                (DiskState::Foreign, Some(holds), Some(label))
            }
            Ok(Some(label)) if !label.whole => {
                let holds =
                    format!("the beginning of a disk of pool {}: it is being copied, or was cut off", label.pool_name);
                (DiskState::Foreign, Some(holds), Some(label))
            }
            Ok(Some(label)) => (DiskState::Closed, Some(format!("pool {}", label.pool_name)), Some(label)),
            Ok(None) => match probe::look(&path) {
                Ok(holds) if holds.is_empty() => (DiskState::Available, None, None),
                Ok(holds) => (DiskState::Foreign, Some(holds.join(" and ")), None),
                Err(error) => (DiskState::Failed, Some(error.to_string()), None),
            },
            Err(error) => (DiskState::Failed, Some(error.message), None),
        };
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = label.as_ref().map(|label| self.member_name(&label.disk_id).unwrap_or(label.disk_name.clone()));
        let member = label.filter(|_| state == DiskState::Closed);
        DiskInfo {
            name: name.filter(|_| state == DiskState::Closed).unwrap_or(file_name),
            pool: member.as_ref().map(|label| label.pool_name.clone()),
            id: member.map(|label| label.disk_id),
            capacity: size_of_disk(&path),
            path: Some(path),
            holds,
            ..stranger(state)
        }
    }

    /// The disks of pools that are not open, as far as the pools were open here and the disks are not in `found`.
    fn missing_of_closed(&self, open: &[PoolInfo], found: &[DiskInfo]) -> Vec<DiskInfo> {
        let unopened = lock(&self.unopened);
        let state = lock(&self.state);
        let closed = state.pools.iter().filter(|record| {
            unopened.iter().any(|unopened| unopened.found.id == record.id)
                && open.iter().all(|pool| pool.id != record.id)
        });
        let members = closed.flat_map(|record| record.disks.iter().map(move |disk| (record, disk)));
        let missing = members.filter(|(_, disk)| found.iter().all(|found| found.id.as_ref() != Some(&disk.id)));
        let shown = missing.map(|(record, disk)| DiskInfo {
            name: disk.name.clone(),
            pool: Some(record.name.clone()),
            id: Some(disk.id.clone()),
            path: disk.path.clone(),
            ..stranger(DiskState::Missing)
        });
        shown.collect()
    }
}

/// A disk of which no more is known than its state.
fn stranger(state: DiskState) -> DiskInfo {
    DiskInfo {
        name: String::new(),
        pool: None,
        no: None,
        id: None,
        path: None,
        capacity: 0,
        allocated: 0,
        state,
        media: Media::Unspecified,
        usage: None,
        slow: false,
        logs: false,
        votes: false,
        domain: None,
        latency: None,
        holds: None,
        counters: DiskCounters::default(),
        out_of_room: false,
        needed_by: Vec::new(),
    }
}

fn judge_create(request: &PoolCreate) -> Answer<(Option<ByteCount>, ByteCount)> {
    judge::name(&request.name)?;
    let slab_size = fixed_size(request.slab_size, "slab size")?.unwrap_or(limits::SLAB_DEFAULT);
    judge::slab_size(slab_size)?;
    let create_size = fixed_size(request.create_size, "size of a file")?;
    if request.disks.is_empty() || request.disks.len() > limits::DISKS_MAX {
        let message = format!("a pool of {} disks is not offered; 1 to {} are", request.disks.len(), limits::DISKS_MAX);
        return Err(
            ApiError::new(Kind::InvalidInput, message).hint(format!("weft pool create {} DISK...", request.name))
        );
    }
    Ok((create_size, slab_size))
}

/// The command that asks for `request` under `name` with `more` flags.
fn create_command(request: &PoolCreate, name: &str, more: &str) -> String {
    let mut command = format!("weft pool create {name}");
    for disk in &request.disks {
        command += &format!(" {}", disk.display());
    }
    let flags = [("--create-size", request.create_size), ("--slab-size", request.slab_size)];
    for (flag, size) in flags {
        if let Some(size) = size {
            command += &format!(" {flag} {size}");
        }
    }
    if request.force && more != "--force" {
        command += " --force";
    }
    if more.is_empty() { command } else { format!("{command} {more}") }
}
