//! Members of an open pool: adding, removing, replacing, and what the pool knows of them.

use super::Seen;
use super::job::already;
use super::leaving::{told_of_caches, told_of_emptying};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::job::{JobAction, JobInfo, JobKind, StartKind};
use crate::api::pool::{DiskInfo, DiskState, PoolInfo, Usage};
use crate::api::power::{PowerSetting, WriteCache};
use crate::api::watch::{Change, Outcome};
use crate::daemon::backend::{DiskChange, Label, NewMember, Run};
use crate::daemon::candidates::{Asked, Candidate, More, beyond_room, fixed_size, name_members, size_of_disk};
use crate::daemon::engine::labels;
use crate::daemon::opening::wall_clock;
use crate::daemon::{Daemon, find, lock, probe};
use crate::ops::Perform;
use crate::ops::disk::{DiskAdd, DiskList, DiskRemove, DiskReplace, DiskShow};
use crate::ops::job::{JobStart, JobSteer};
use crate::ops::line::ToLine;
use crate::ops::settings::DiskSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use weft_engine::limits;
use weft_engine::pool::cache::CacheTurn;
use weft_engine::pool::{Instead, Leaving};
use weft_engine::units::DiskNo;

/// How long a disk that failed may still be held by what was asked of it before, and how often that is looked at.
const HELD_MAX: Duration = Duration::from_secs(5);
const HELD_EVERY: Duration = Duration::from_millis(20);

impl Perform<DiskList> for Daemon {
    /// The disks of the open pools, then, unless one pool is asked for, everything else that was found.
    fn perform(&self, query: &DiskList) -> Answer<Vec<DiskInfo>> {
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
}

impl Perform<DiskShow> for Daemon {
    fn perform(&self, show: &DiskShow) -> Answer<DiskInfo> {
        let wanted = show.disk.as_str();
        let is_wanted = |disk: &DiskInfo| {
            let in_pool = disk.pool.as_ref().is_some_and(|pool| format!("{pool}/{}", disk.name) == wanted);
            let by_path = disk.path.as_ref().is_some_and(|path| {
                path == Path::new(wanted)
                    || wanted.starts_with('/') && find::identity(path) == find::identity(Path::new(wanted))
            });
            in_pool || by_path || disk.name == wanted || disk.id.as_deref() == Some(wanted)
        };
        let mut found: Vec<DiskInfo> = self.perform(&DiskList::default())?.into_iter().filter(is_wanted).collect();
        match found.len() {
            0 => Err(ApiError::new(
                Kind::NotFound,
                format!("no disk {wanted}; its path, identity, name or POOL/NAME finds one"),
            )
            .offer(&DiskList::default())),
            1 => Ok(found.remove(0)),
            n => {
                let path = found[0].path.clone().unwrap_or_default();
                let message = format!("{n} disks are named {wanted}; a path names one");
                Err(ApiError::new(Kind::InvalidInput, message).offer(&DiskShow::of(path.display())))
            }
        }
    }
}

impl Perform<DiskAdd> for Daemon {
    fn perform(&self, add: &DiskAdd) -> Answer<Change> {
        self.change_pool(&add.pool, |seen| self.add_disks(seen, add))
    }
}

impl Perform<DiskRemove> for Daemon {
    fn perform(&self, remove: &DiskRemove) -> Answer<Change> {
        self.change_pool(&remove.pool, |seen| self.remove_disk(seen, remove))
    }
}

impl Perform<DiskReplace> for Daemon {
    fn perform(&self, replace: &DiskReplace) -> Answer<Change> {
        self.change_pool(&replace.pool, |seen| self.replace_disk(seen, replace))
    }
}

impl Perform<DiskSet> for Daemon {
    fn perform(&self, set: &DiskSet) -> Answer<Change> {
        self.change_pool(&set.pool, |seen| self.set_disk(seen, set))
    }
}

impl Daemon {
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
            ..DiskInfo::stranger(state)
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
            ..DiskInfo::stranger(DiskState::Missing)
        });
        shown.collect()
    }

    fn add_disks(&self, seen: &Seen, request: &DiskAdd) -> Answer<Change> {
        let pool = seen.writable()?;
        let usage = request.usage.unwrap_or(Usage::Auto);
        let plain = DiskAdd { usage: request.usage.filter(|usage| *usage != Usage::Retired), ..request.clone() };
        if usage == Usage::Retired {
            let message = "a disk that is added to be retired takes no data; auto, manual, spare and journal are uses";
            return Err(ApiError::new(Kind::InvalidInput, message).offer(&plain));
        }
        let count = request.disks.len();
        if count == 0 || pool.disks.len() + count > limits::DISKS_MAX {
            let message = format!(
                "pool {} has {} disks and cannot have {count} more; 1 to {} in all are offered",
                pool.name,
                pool.disks.len(),
                limits::DISKS_MAX
            );
            let kind = if count == 0 { Kind::InvalidInput } else { Kind::NotPossible };
            return Err(ApiError::new(kind, message).offer(&DiskAdd::some(&pool.name)));
        }
        let again = |disks: Vec<PathBuf>, more: More| {
            let (create_size, force) = (more.create_size(request.create_size), request.force || more == More::Force);
            DiskAdd { disks, create_size, force, ..plain.clone() }.line()
        };
        let create_size = fixed_size(request.create_size, "size of a file")?;
        let asked = Asked { disks: &request.disks, create_size, force: request.force, again: &again };
        asked.validate()?;
        let candidates = self.candidates(&asked, &seen.open)?;
        let members = name_members(&candidates, &names(pool));
        let mut change =
            Change::new(Outcome::Created, subject(pool, members.iter().map(|m| &m.name)), request.changing.dry_run);
        let both = || candidates.iter().zip(&members);
        let new = |(candidate, member): (&Candidate, &NewMember)| {
            (candidate.capacity, candidate.media(), member.name.clone())
        };
        let turned = self.parts.engine.disk_add_judge(&pool.name, both().map(new).collect(), usage);
        let turned = turned.map_err(|error| shows_disks(error, &pool.name))?;
        for (candidate, member) in both() {
            change = change.line(candidate.describe(&member.name));
        }
        change.changes.extend(beyond_room(&candidates));
        change = change.line(match usage {
            Usage::Auto => format!(
                "new data goes to it; `{}` spreads what is there",
                JobStart::of(&pool.name, StartKind::Rebalance).line()
            ),
            Usage::Manual => "only what asks for it by name goes to it".into(),
            Usage::Spare => "it waits for another disk to be lost".into(),
            Usage::Journal => "no data goes to it; a copy of the log moves to it".into(),
            Usage::Retired => unreachable!("refused above"),
        });
        if request.changing.dry_run {
            change.changes.extend(told_of_caches(pool, &turned));
            return Ok(change);
        }
        for (n, (candidate, member)) in both().enumerate() {
            let one = std::slice::from_ref(candidate);
            match self.with_candidates(one, || self.parts.engine.disk_add(&pool.name, member, usage)) {
                Ok((_, pool)) => self.note_open(&[pool]),
                Err(mut error) => {
                    if n > 0 {
                        let before: Vec<&str> = members[..n].iter().map(|member| member.name.as_str()).collect();
                        error.message += &format!("; added before that: {}", before.join(", "));
                    }
                    return Err(error);
                }
            }
        }
        if !turned.is_empty() {
            change.changes.extend(told_of_caches(pool, &self.parts.engine.review_caches(&pool.name)?));
        }
        Ok(change)
    }

    fn remove_disk(&self, seen: &Seen, request: &DiskRemove) -> Answer<Change> {
        let pool = seen.writable()?;
        let (disk, no) = find_member(pool, &request.disk)?;
        let what = format!("removal of disk {}/{}", pool.name, disk.name);
        if let Some(job) = evacuation(pool, disk) {
            return Ok(already(job, what, request.changing.dry_run));
        }
        let leaving = self.parts.engine.validate_disk_removal(&pool.name, no, Instead::Nothing);
        let leaving = leaving.map_err(|error| match error.kind {
            Kind::NoSpace => self.homeless(pool, disk, error),
            Kind::NotPossible => error.or_hint(|| DiskAdd::some(&pool.name).line()),
            _ => error,
        })?;
        let losses = self.accepted(pool, disk, &leaving, request.force)?;
        let moving = leaving.moves;
        let change = Change::new(Outcome::Started, what, request.changing.dry_run)
            .line(format!("{moving} move to the other disks; then the disk is no part of the pool any more"));
        let change = told_of_emptying(&leaving).into_iter().fold(change, Change::line);
        let change = losses.into_iter().fold(change, Change::line);
        if request.changing.dry_run {
            return Ok(change);
        }
        let job = self.parts.engine.disk_remove(&pool.name, no, None, wall_clock())?;
        Ok(change.job(format!("{}/{job}", pool.name)))
    }

    fn replace_disk(&self, seen: &Seen, request: &DiskReplace) -> Answer<Change> {
        let pool = seen.writable()?;
        let (old, no) = find_member(pool, &request.disk)?;
        if let Some(job) = evacuation(pool, old) {
            let message = format!("disk {} leaves already: job {} is {}", old.name, job.job, job.state);
            return Err(ApiError::new(Kind::NotPossible, message).offer(&JobSteer::of(&job.job, JobAction::Cancel)));
        }
        let weigh = |leaving: Answer<Leaving>| {
            let leaving = leaving.map_err(|error| error.or_hint(|| DiskAdd::some(&pool.name).line()))?;
            let losses = self.accepted(pool, old, &leaving, request.force)?;
            Ok::<_, ApiError>((leaving.moves, told_of_emptying(&leaving).into_iter().chain(losses)))
        };
        let what = |by: &str| format!("replacement of disk {}/{} by {by}", pool.name, old.name);
        // What lies where a missing disk was last seen is another disk.
        let there = |found: &(&DiskInfo, DiskNo)| found.0.state != DiskState::Missing || found.0.name == request.by;
        if let Some((new, to)) = find_member(pool, &request.by).ok().filter(there) {
            if new.name == old.name || new.state != DiskState::Healthy {
                let message = format!("disk {} cannot take the place of {}: it is {}", new.name, old.name, new.state);
                return Err(
                    ApiError::new(Kind::NotPossible, message).hint(DiskReplace::some(&pool.name, &old.name).line())
                );
            }
            let (moving, losses) = weigh(self.parts.engine.validate_disk_removal(&pool.name, no, Instead::Member(to)))?;
            let change = Change::new(Outcome::Started, what(&new.name), request.changing.dry_run)
                .line(format!("{moving} move to disk {}, and to others what it has no room for", new.name));
            let change = losses.into_iter().fold(change, Change::line);
            return self.start_replacing(pool, no, to, new.usage != Some(Usage::Auto), change);
        }
        let disks = [PathBuf::from(&request.by)];
        if !disks[0].is_absolute() {
            let message = format!("pool {} has no disk {}, and it is no absolute path", pool.name, request.by);
            return Err(ApiError::new(Kind::NotFound, message).offer(&DiskList::of(&pool.name)));
        }
        let again = |disks: Vec<PathBuf>, more: More| {
            let (create_size, force) = (more.create_size(request.create_size), request.force || more == More::Force);
            let by = disks.into_iter().map(|disk| disk.display().to_string()).collect();
            DiskReplace { disk: old.name.clone(), by, create_size, force, ..request.clone() }.line()
        };
        let create_size = fixed_size(request.create_size, "size of a file")?;
        let asked = Asked { disks: &disks, create_size, force: request.force, again: &again };
        let candidates = self.candidates(&asked, &seen.open)?;
        let member = name_members(&candidates, &names(pool)).remove(0);
        let new = (candidates[0].capacity, member.name.clone());
        let (moving, losses) = weigh(self.parts.engine.validate_disk_replacement(&pool.name, no, new)?)?;
        let change = Change::new(Outcome::Started, what(&member.name), request.changing.dry_run)
            .line(candidates[0].describe(&member.name))
            .line(format!("{moving} move to it"));
        let change = losses.into_iter().fold(change, Change::line);
        if request.changing.dry_run {
            return Ok(change);
        }
        let usage = old.usage.filter(|usage| *usage != Usage::Retired).unwrap_or(Usage::Auto);
        let add = || self.parts.engine.disk_add(&pool.name, &member, usage);
        let (to, now) = self.with_candidates(&candidates, add)?;
        self.note_open(&[now]);
        self.start_replacing(pool, no, to, false, change)
    }

    /// Starts the job that moves everything from one disk to another, which is given to data when it was not.
    fn start_replacing(&self, pool: &PoolInfo, from: DiskNo, to: DiskNo, give: bool, change: Change) -> Answer<Change> {
        if change.dry_run {
            return Ok(change);
        }
        if give {
            let auto = DiskChange { usage: Some(Usage::Auto), ..DiskChange::default() };
            self.parts.engine.disk_set(&pool.name, to, &auto, Run::Real)?;
        }
        let job = self.parts.engine.disk_remove(&pool.name, from, Some(to), wall_clock())?;
        Ok(change.job(format!("{}/{job}", pool.name)))
    }

    fn set_disk(&self, seen: &Seen, request: &DiskSet) -> Answer<Change> {
        // A frozen pool takes nothing but what it waits for.
        let chance = DiskSet { changing: request.changing, ..DiskSet::back(&request.pool, &request.disk) };
        let pool = &seen.pool;
        let (disk, no) = find_member(pool, &request.disk)?;
        let is_awaited = matches!(disk.state, DiskState::Failed | DiskState::Maintenance);
        if pool.frozen.is_none() || !is_awaited || *request != chance {
            seen.writable()?;
        }
        if request.is_empty() {
            let message = "nothing is set; usage, media, name, domain, maintenance and power-protected can be";
            let hint = DiskSet { usage: Some(Usage::Retired), ..DiskSet::of(&pool.name, &disk.name) }.line();
            return Err(ApiError::new(Kind::InvalidInput, message).hint(hint));
        }
        request.validate()?;
        let name = request.name.as_ref().filter(|name| **name != disk.name);
        if let Some(name) = name.filter(|name| names(pool).contains(name)) {
            let message = format!("pool {} has a disk {name} already", pool.name);
            let hint = DiskSet { name: Some(format!("{name}2")), ..DiskSet::of(&pool.name, &disk.name) }.line();
            return Err(ApiError::new(Kind::AlreadyExists, message).hint(hint));
        }
        let domain = request.domain.as_ref().filter(|domain| disk.domain.as_deref().unwrap_or("") != domain.as_str());
        // A disk that failed was taken out by the pool: it is put back as one that a person took out is.
        let again = request.maintenance == Some(false) && disk.state == DiskState::Failed;
        let maintenance = match (request.maintenance, disk.state) {
            (Some(true), DiskState::Maintenance) | (None, _) => None,
            (Some(false), DiskState::Failed) => None,
            (Some(true), DiskState::Healthy) => Some(true),
            (Some(false), DiskState::Maintenance) => Some(false),
            (Some(false), DiskState::Healthy | DiskState::Returning) => None,
            (Some(_), state) => {
                let message = format!("disk {} is {state}; maintenance is for disks that work", disk.name);
                return Err(ApiError::new(Kind::NotPossible, message)
                    .offer(&DiskShow::of(format!("{}/{}", pool.name, disk.name))));
            }
        };
        let change = DiskChange {
            usage: request.usage.filter(|usage| disk.usage != Some(*usage)),
            media: request.media.filter(|media| disk.media != *media),
            name: name.cloned(),
            domain: domain.cloned(),
            maintenance,
            power_protected: request.power_protected.filter(|said| power_said(disk) != *said),
        };
        let (turned, leaving) = self.change_disk(pool, disk, no, (&change, again), Run::Dry).map_err(|error| {
            match change.power_protected {
                Some(_) => error.or_hint(|| DiskShow::of(format!("{}/{}", pool.name, disk.name)).line()),
                None => error,
            }
        })?;
        let mut lines = told(disk, &change);
        if pool.frozen.is_some() && maintenance == Some(false) {
            lines.push("written to the disks when the pool goes on: until then a restart has it rest again".into());
        }
        if let (Some(usage), Some(leaving)) = (change.usage, leaving) {
            let name = change.name.as_deref().unwrap_or(&disk.name);
            lines.extend(self.told_of_leaving(pool, (disk, name), usage, leaving)?);
        }
        lines.extend(told_of_caches(pool, &turned));
        if again {
            lines.push("it failed, and is given another chance: what it missed is brought to it".into());
        }
        let outcome = if lines.is_empty() { Outcome::AlreadySo } else { Outcome::Changed };
        let mut answer = Change::new(outcome, format!("disk {}/{}", pool.name, disk.name), request.changing.dry_run);
        answer.changes = lines;
        if request.changing.dry_run {
            return Ok(answer);
        }
        self.change_disk(pool, disk, no, (&change, again), Run::Real)?;
        Ok(answer)
    }

    /// Changes what the pool knows of a disk, whether it rests, and uses it again that failed. The caches that the pool
    /// chooses anew, and what becomes of what the disk holds.
    fn change_disk(
        &self,
        pool: &PoolInfo,
        disk: &DiskInfo,
        no: DiskNo,
        (change, again): (&DiskChange, bool),
        run: Run,
    ) -> Answer<(Vec<CacheTurn>, Option<Answer<Leaving>>)> {
        let (mut turned, mut leaving) = (Vec::new(), None);
        if *change != DiskChange::default() {
            let turn = self.parts.engine.disk_set(&pool.name, no, change, run)?;
            if run == Run::Real {
                self.note_open(&[turn.now]);
            }
            (turned, leaving) = (turn.turned, turn.leaving);
        }
        match (again, run) {
            (false, _) => {}
            (true, Run::Dry) => drop(self.may_try_again(pool, disk)?),
            (true, Run::Real) => self.try_again(pool, disk)?,
        }
        Ok((turned, leaving))
    }

    /// Finds the disk that failed where it was: what is there is the disk, whole.
    fn may_try_again(&self, pool: &PoolInfo, disk: &DiskInfo) -> Answer<PathBuf> {
        let replace = |message: String| {
            Err(ApiError::new(Kind::NotPossible, message).offer(&DiskReplace::some(&pool.name, &disk.name)))
        };
        let Some(path) = &disk.path else { return replace(format!("where disk {} is, is not known", disk.name)) };
        match labels::probe(path) {
            Ok(Some(label)) if label.whole && Some(&label.disk_id) == disk.id.as_ref() => Ok(path.clone()),
            Ok(_) => replace(format!("what is at {} is not disk {} any more", path.display(), disk.name)),
            Err(error) => replace(error.message),
        }
    }

    /// Uses a disk again that failed and is still where it was.
    pub(in crate::daemon) fn try_again(&self, pool: &PoolInfo, disk: &DiskInfo) -> Answer<()> {
        let replace = || DiskReplace::some(&pool.name, &disk.name).line();
        let path = &self.may_try_again(pool, disk)?;
        let deadline = Instant::now() + HELD_MAX;
        loop {
            match self.parts.engine.disk_attach(&pool.name, path) {
                Ok(_) => return Ok(()),
                // The last requests to it, from before it failed, still hold it.
                Err(error) if error.kind == Kind::AlreadyExists && Instant::now() < deadline => {
                    thread::sleep(HELD_EVERY);
                }
                Err(error) => return Err(error.or_hint(replace)),
            }
        }
    }
}

/// Offers the list of disks where one of them stands in the way of others.
fn shows_disks(error: ApiError, pool: &str) -> ApiError {
    match error.kind {
        Kind::NotPossible => error.or_hint(|| DiskList::of(pool).line()),
        _ => error,
    }
}

/// What a change of a disk means, one line each.
fn told(disk: &DiskInfo, change: &DiskChange) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(usage) = change.usage {
        let before = disk.usage.map(|usage| format!("{usage} -> ")).unwrap_or_default();
        lines.push(format!("usage {before}{usage}"));
        if usage == Usage::Journal {
            lines.push("it carries the log and nothing else: a copy of that moves to it".into());
        }
    }
    lines.extend(change.media.map(|media| format!("media {} -> {media}", disk.media)));
    lines.extend(change.name.as_ref().map(|name| format!("name {} -> {name}", disk.name)));
    lines.extend(change.domain.as_ref().map(|domain| {
        let or_none = |text: &str| if text.is_empty() { "none".to_string() } else { text.to_string() };
        format!("domain {} -> {}", or_none(disk.domain.as_deref().unwrap_or("")), or_none(domain))
    }));
    lines.extend(change.power_protected.into_iter().flat_map(|said| told_of_power(disk, said)));
    lines.extend(change.maintenance.map(|on| match on {
        true => "in maintenance: nothing is read from it or written to it; what it misses is noted".into(),
        false => "out of maintenance: what it missed is brought to it".into(),
    }));
    lines
}

/// What was said of the power protection of a disk.
fn power_said(disk: &DiskInfo) -> PowerSetting {
    disk.power_protected.map(|power| power.said).unwrap_or_default()
}

/// What it means that something else is said of the power protection of a disk.
fn told_of_power(disk: &DiskInfo, said: PowerSetting) -> [String; 2] {
    let cache = disk.power_protected.map(|power| power.write_cache).unwrap_or_default();
    let meaning = match (said, cache) {
        (PowerSetting::Yes, _) => {
            "no flush is sent to it: if it loses what it has taken when the power fails, that is lost though it was \
             called durable, as far as no other disk has it"
        }
        (PowerSetting::No, _) => "it is flushed, whatever the kernel says of its cache",
        (PowerSetting::Auto, WriteCache::NonVolatile) => {
            "no flush is sent to it: the kernel says that its cache is not volatile"
        }
        (PowerSetting::Auto, _) => "it is flushed until the kernel says that its cache is not volatile",
    };
    [format!("power-protected {} -> {said}", power_said(disk)), meaning.into()]
}

/// The disk of a pool that was meant: by name (`POOL/NAME` as in tables, too), identity or path.
fn find_member<'a>(pool: &'a PoolInfo, wanted: &str) -> Answer<(&'a DiskInfo, DiskNo)> {
    let by_path = |disk: &DiskInfo| {
        let there = wanted.starts_with('/').then(|| find::identity(Path::new(wanted))).flatten();
        disk.path
            .as_deref()
            .is_some_and(|path| path == Path::new(wanted) || there.is_some() && find::identity(path) == there)
    };
    let name = wanted.strip_prefix(&pool.name).and_then(|rest| rest.strip_prefix('/')).unwrap_or(wanted);
    let by_name = pool.disks.iter().find(|disk| disk.name == name);
    let found = by_name.or_else(|| pool.disks.iter().find(|disk| disk.id.as_deref() == Some(wanted) || by_path(disk)));
    match found.and_then(|disk| Some((disk, DiskNo(disk.no?)))) {
        Some(found) => Ok(found),
        None => {
            let message = format!("pool {} has no disk {wanted}; it has {}", pool.name, names(pool).join(", "));
            Err(ApiError::new(Kind::NotFound, message).offer(&DiskList::of(&pool.name)))
        }
    }
}

/// The job that moves everything off a disk.
fn evacuation<'a>(pool: &'a PoolInfo, disk: &DiskInfo) -> Option<&'a JobInfo> {
    let of_disk = |job: &&JobInfo| job.kind == JobKind::Evacuate && job.disk.as_ref() == Some(&disk.name);
    pool.jobs.iter().filter(of_disk).find(|job| !job.state.is_over())
}

fn names(pool: &PoolInfo) -> Vec<String> {
    pool.disks.iter().map(|disk| disk.name.clone()).collect()
}

fn subject<'a>(pool: &PoolInfo, names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<String> = names.map(|name| format!("{}/{name}", pool.name)).collect();
    format!("{} {}", if names.len() == 1 { "disk" } else { "disks" }, names.join(", "))
}
