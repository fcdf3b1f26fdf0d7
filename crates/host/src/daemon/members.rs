//! Members of an open pool: adding, removing, replacing, and what the pool knows of them.

use super::backend::DiskChange;
use super::candidates::{Asked, beyond_room, fixed_size, name_members};
use super::jobs::already;
use super::opening::wall_clock;
use super::{Daemon, find};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::job::{JobInfo, JobKind};
use crate::api::pool::{DiskInfo, DiskState, PoolInfo, PoolQuery};
use crate::api::size::{Size, typed};
use crate::api::upkeep::{DiskAdd, DiskRemove, DiskReplace, DiskSet, Usage};
use crate::api::vdisk::{Layout, VdiskInfo, resiliency_flags};
use crate::api::watch::{Change, Outcome};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use weft_engine::limits;
use weft_engine::pool::{Instead, Leaving, Loss};
use weft_engine::units::ByteCount;

/// How long a disk that failed may still be held by what was asked of it before, and how often that is looked at.
const HELD_MAX: Duration = Duration::from_secs(5);
const HELD_EVERY: Duration = Duration::from_millis(20);

impl Daemon {
    pub(super) fn add_disks(&self, pool: &str, request: &DiskAdd) -> Answer<Change> {
        let open = self.pools()?;
        let pool = self.writable_pool_named(pool)?;
        let usage = request.usage.unwrap_or(Usage::Auto);
        if usage == Usage::Retired {
            let message = "a disk that is added to be retired takes no data; auto, manual, spare and journal are uses";
            return Err(ApiError::new(Kind::InvalidInput, message).hint(add_command(&pool.name, request, "")));
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
            return Err(ApiError::new(kind, message).hint(format!("weft disk add {} DISK", pool.name)));
        }
        let again = |disks: &[PathBuf], more: &str| {
            add_command(&pool.name, &DiskAdd { disks: disks.to_vec(), ..request.clone() }, more)
        };
        let create_size = fixed_size(request.create_size, "size of a file")?;
        let asked = Asked { disks: &request.disks, create_size, force: request.force, again: &again };
        asked.judge()?;
        let candidates = self.candidates(&asked, &open)?;
        let members = name_members(&candidates, &names(&pool));
        let mut change =
            Change::new(Outcome::Created, subject(&pool, members.iter().map(|m| &m.name)), request.dry_run);
        for (candidate, member) in candidates.iter().zip(&members) {
            self.parts.engine.disk_add_judge(&pool.name, candidate.capacity(), &member.name)?;
            change = change.line(candidate.describe(&member.name));
        }
        change.changes.extend(beyond_room(&candidates));
        change = change.line(match usage {
            Usage::Auto => format!("new data goes to it; `weft rebalance {}` spreads what is there", pool.name),
            Usage::Manual => "only what asks for it by name goes to it".into(),
            Usage::Spare => "it waits for another disk to be lost".into(),
            Usage::Journal => "no data goes to it; a copy of the log moves to it".into(),
            Usage::Retired => unreachable!("refused above"),
        });
        if request.dry_run {
            return Ok(change);
        }
        for (n, (candidate, member)) in candidates.iter().zip(&members).enumerate() {
            let one = std::slice::from_ref(candidate);
            let added = self.with_candidates(one, || self.parts.engine.disk_add(&pool.name, member, usage));
            if let Err(mut error) = added {
                if n > 0 {
                    let before: Vec<&str> = members[..n].iter().map(|member| member.name.as_str()).collect();
                    error.message += &format!("; added before that: {}", before.join(", "));
                    self.note_pools();
                }
                return Err(error);
            }
        }
        self.note_pools();
        Ok(change)
    }

    pub(super) fn remove_disk(&self, pool: &str, disk: &str, how: DiskRemove) -> Answer<Change> {
        let pool = self.writable_pool_named(pool)?;
        let (disk, no) = find_member(&pool, disk)?;
        let what = format!("removal of disk {}/{}", pool.name, disk.name);
        if let Some(job) = evacuation(&pool, disk) {
            return Ok(already(job, what, how.dry_run));
        }
        let leaving =
            self.parts.engine.disk_remove_judge(&pool.name, no, Instead::Nothing).map_err(|error| {
                match error.kind {
                    Kind::NoSpace => self.homeless(&pool, disk, error),
                    Kind::NotPossible => error.or_hint(|| format!("weft disk add {} DISK", pool.name)),
                    _ => error,
                }
            })?;
        let losses = self.accepted(&pool, disk, &leaving, how.force)?;
        let moving = leaving.moves;
        let change = Change::new(Outcome::Started, what, how.dry_run)
            .line(format!("{moving} move to the other disks; then the disk is no part of the pool any more"));
        let change = losses.into_iter().fold(change, Change::line);
        if how.dry_run {
            return Ok(change);
        }
        let job = self.parts.engine.disk_remove(&pool.name, no, None, wall_clock())?;
        Ok(change.job(format!("{}/{job}", pool.name)))
    }

    pub(super) fn replace_disk(&self, pool: &str, disk: &str, request: &DiskReplace) -> Answer<Change> {
        let open = self.pools()?;
        let pool = self.writable_pool_named(pool)?;
        let (old, no) = find_member(&pool, disk)?;
        if let Some(job) = evacuation(&pool, old) {
            let message = format!("disk {} leaves already: job {} is {}", old.name, job.job, job.state);
            return Err(ApiError::new(Kind::NotPossible, message).hint(format!("weft job cancel {}", job.job)));
        }
        let judge = |instead: Instead| {
            let leaving = self.parts.engine.disk_remove_judge(&pool.name, no, instead);
            let leaving = leaving.map_err(|error| error.or_hint(|| format!("weft disk add {} DISK", pool.name)))?;
            let losses = self.accepted(&pool, old, &leaving, request.force)?;
            Ok::<_, ApiError>((leaving.moves, losses))
        };
        let what = |by: &str| format!("replacement of disk {}/{} by {by}", pool.name, old.name);
        // What lies where a missing disk was last seen is another disk.
        let there = |found: &(&DiskInfo, u16)| found.0.state != DiskState::Missing || found.0.name == request.by;
        if let Some((new, to)) = find_member(&pool, &request.by).ok().filter(there) {
            if new.name == old.name || new.state != DiskState::Healthy {
                let message = format!("disk {} cannot take the place of {}: it is {}", new.name, old.name, new.state);
                return Err(ApiError::new(Kind::NotPossible, message)
                    .hint(format!("weft disk replace {} {} DISK", pool.name, old.name)));
            }
            let (moving, losses) = judge(Instead::Member(to))?;
            let change = Change::new(Outcome::Started, what(&new.name), request.dry_run)
                .line(format!("{moving} move to disk {}, and to others what it has no room for", new.name));
            let change = losses.into_iter().fold(change, Change::line);
            return self.start_replacing(&pool, no, to, new.usage != Some(Usage::Auto), change);
        }
        let disks = [PathBuf::from(&request.by)];
        if !disks[0].is_absolute() {
            let message = format!("pool {} has no disk {}, and it is no absolute path", pool.name, request.by);
            return Err(ApiError::new(Kind::NotFound, message).hint(format!("weft disk list --pool {}", pool.name)));
        }
        let again = |disks: &[PathBuf], more: &str| replace_command(&pool.name, &old.name, &disks[0], request, more);
        let create_size = fixed_size(request.create_size, "size of a file")?;
        let asked = Asked { disks: &disks, create_size, force: request.force, again: &again };
        let candidates = self.candidates(&asked, &open)?;
        let member = name_members(&candidates, &names(&pool)).remove(0);
        let capacity = candidates[0].capacity();
        self.parts.engine.disk_add_judge(&pool.name, capacity, &member.name)?;
        let (moving, losses) = judge(Instead::New(capacity))?;
        let change = Change::new(Outcome::Started, what(&member.name), request.dry_run)
            .line(candidates[0].describe(&member.name))
            .line(format!("{moving} move to it"));
        let change = losses.into_iter().fold(change, Change::line);
        if request.dry_run {
            return Ok(change);
        }
        let usage = old.usage.filter(|usage| *usage != Usage::Retired).unwrap_or(Usage::Auto);
        let add = || self.parts.engine.disk_add(&pool.name, &member, usage);
        let to = self.with_candidates(&candidates, add)?;
        self.note_pools();
        self.start_replacing(&pool, no, to, false, change)
    }

    /// Starts the job that moves everything from one disk to another, which is given to data when it was not.
    fn start_replacing(&self, pool: &PoolInfo, from: u16, to: u16, give: bool, change: Change) -> Answer<Change> {
        if change.dry_run {
            return Ok(change);
        }
        if give {
            let auto = DiskChange { usage: Some(Usage::Auto), ..DiskChange::default() };
            self.parts.engine.disk_set(&pool.name, to, &auto)?;
        }
        let job = self.parts.engine.disk_remove(&pool.name, from, Some(to), wall_clock())?;
        Ok(change.job(format!("{}/{job}", pool.name)))
    }

    pub(super) fn set_disk(&self, pool: &str, disk: &str, request: &DiskSet) -> Answer<Change> {
        // A frozen pool takes nothing but what it waits for.
        let chance = DiskSet { maintenance: Some(false), dry_run: request.dry_run, ..DiskSet::default() };
        let pool = self.open_pool_named(pool)?;
        let (disk, no) = find_member(&pool, disk)?;
        if pool.frozen.is_none() || disk.state != DiskState::Failed || *request != chance {
            self.writable_pool_named(&pool.name)?;
        }
        if request.is_empty() {
            let message = "nothing is set; usage, media, name, domain and maintenance can be";
            let hint = format!("weft disk set {} {} usage=retired", pool.name, disk.name);
            return Err(ApiError::new(Kind::InvalidInput, message).hint(hint));
        }
        request.judge()?;
        let name = request.name.as_ref().filter(|name| **name != disk.name);
        if let Some(name) = name.filter(|name| names(&pool).contains(name)) {
            let message = format!("pool {} has a disk {name} already", pool.name);
            let hint = format!("weft disk set {} {} name={name}2", pool.name, disk.name);
            return Err(ApiError::new(Kind::AlreadyExists, message).hint(hint));
        }
        let domain = request.domain.as_ref().filter(|domain| disk.domain.as_deref().unwrap_or("") != domain.as_str());
        let change = DiskChange {
            usage: request.usage.filter(|usage| disk.usage != Some(*usage)),
            media: request.media.filter(|media| disk.media != *media),
            name: name.cloned(),
            domain: domain.cloned(),
        };
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
                    .hint(format!("weft disk show {}/{}", pool.name, disk.name)));
            }
        };
        if maintenance == Some(true) {
            self.parts.engine.disk_offline_judge(&pool.name, no)?;
        }
        let mut lines = told(disk, &change, maintenance);
        if change.usage == Some(Usage::Retired) {
            let name = change.name.as_ref().unwrap_or(&disk.name);
            lines.push(match self.parts.engine.disk_remove_judge(&pool.name, no, Instead::Nothing) {
                Ok(Leaving { moves, losses }) => match losses.first() {
                    None => format!(
                        "{moves} on it move to the other disks; `weft disk remove {} {name}` takes it out",
                        pool.name
                    ),
                    Some(loss) => format!(
                        "{moves} on it move to the other disks; as {}/{} finds too few disks without it, it still takes new data",
                        pool.name, loss.vdisk
                    ),
                },
                Err(error) => format!(
                    "what is on it moves to the other disks as far as that goes: {}; `weft disk add {} DISK` makes room",
                    error.message, pool.name
                ),
            });
        }
        if change.usage == Some(Usage::Manual)
            && let Ok(leaving) = self.parts.engine.disk_remove_judge(&pool.name, no, Instead::Nothing)
        {
            lines.extend(leaving.losses.iter().map(|loss| format!("{}/{}: {loss}", pool.name, loss.vdisk)));
        }
        if again {
            lines.push("it failed, and is given another chance: what it missed is brought to it".into());
        }
        let outcome = if lines.is_empty() { Outcome::AlreadySo } else { Outcome::Changed };
        let mut answer = Change::new(outcome, format!("disk {}/{}", pool.name, disk.name), request.dry_run);
        answer.changes = lines;
        if request.dry_run {
            return Ok(answer);
        }
        if change != DiskChange::default() {
            self.parts.engine.disk_set(&pool.name, no, &change)?;
            self.note_pools();
        }
        match maintenance {
            None => {}
            Some(true) => self.parts.engine.disk_offline(&pool.name, no)?,
            Some(false) => self.parts.engine.disk_online(&pool.name, no)?,
        }
        if again {
            self.try_again(&pool, disk)?;
        }
        Ok(answer)
    }

    /// What virtual disks lose by the leaving of a disk, one line each. Refused where that is anything and nobody said
    /// that they may, with what would do instead.
    fn accepted(&self, pool: &PoolInfo, disk: &DiskInfo, leaving: &Leaving, force: bool) -> Answer<Vec<String>> {
        let told = leaving.losses.iter().map(|loss| format!("{}/{} ({loss})", pool.name, loss.vdisk));
        if leaving.losses.is_empty() || force {
            return Ok(told.map(|loss| format!("redundancy is given up: {loss}")).collect());
        }
        let named = |loss: &Loss| pool.vdisks.iter().find(|vdisk| vdisk.name.vdisk == loss.vdisk);
        let short: Vec<_> = leaving.losses.iter().filter_map(|loss| Some((named(loss)?, loss.left))).collect();
        let (copied, hint) = self.instead(pool, disk, &short);
        let message = format!(
            "disk {} is needed by {}; another of {} or more in its place would do{copied}; only --force does without",
            disk.name,
            told.collect::<Vec<_>>().join(", "),
            ByteCount(disk.capacity)
        );
        let replace = || format!("weft disk replace {} {} DISK", pool.name, disk.name);
        Err(ApiError::new(Kind::NotPossible, message).hint(hint.unwrap_or_else(replace)))
    }

    /// A disk holds what has no place on the others: `error`, with what would do instead.
    fn homeless(&self, pool: &PoolInfo, disk: &DiskInfo, mut error: ApiError) -> ApiError {
        let left =
            pool.disks.iter().filter(|other| other.name != disk.name && other.state == DiskState::Healthy).count();
        let short = pool.vdisks.iter().filter(|vdisk| vdisk.layout.disks_needed() > left).map(|vdisk| (vdisk, left));
        let (copied, hint) = self.instead(pool, disk, &short.collect::<Vec<_>>());
        error.message += &copied;
        error.hint(hint.unwrap_or_else(|| format!("weft disk add {} DISK", pool.name)))
    }

    /// What would do instead of a disk without which these virtual disks are short of disks, of which so many are left
    /// to them: in words, after "another disk", and as a command that can be typed as it is, if there is one.
    fn instead(&self, pool: &PoolInfo, disk: &DiskInfo, short: &[(&VdiskInfo, usize)]) -> (String, Option<String>) {
        let narrower = short.iter().map(|(vdisk, left)| narrower(pool, vdisk, *left)).collect::<Option<Vec<_>>>();
        let narrower = narrower.filter(|new| !new.is_empty());
        let names = || short.iter().map(|(vdisk, _)| vdisk.name.to_string()).collect::<Vec<_>>().join(", ");
        let copied = match narrower.as_ref().map(Vec::len) {
            None => String::new(),
            Some(1) => {
                format!(", or a new virtual disk with fewer columns, if {} is copied to it and then removed", names())
            }
            Some(_) => {
                format!(", or new virtual disks with fewer columns, if {} are copied to them and then removed", names())
            }
        };
        let lost = matches!(disk.state, DiskState::Missing | DiskState::Failed);
        let replace = |path: PathBuf| format!("weft disk replace {} {} {}", pool.name, disk.name, path.display());
        let narrower = narrower.and_then(|new| new.into_iter().next()).filter(|_| !lost);
        (copied, self.blank_disk(disk.capacity).map(replace).or(narrower))
    }

    /// A disk of this size or more that is blank and in use by no pool.
    fn blank_disk(&self, capacity: u64) -> Option<PathBuf> {
        let mut disks = self.disks(&PoolQuery::default()).ok()?;
        disks.retain(|disk| disk.state == DiskState::Available && disk.capacity >= capacity);
        disks.into_iter().find_map(|disk| disk.path)
    }

    /// Uses a disk again that failed and is still where it was.
    pub(super) fn try_again(&self, pool: &PoolInfo, disk: &DiskInfo) -> Answer<()> {
        let replace = || format!("weft disk replace {} {} DISK", pool.name, disk.name);
        let Some(path) = &disk.path else {
            let message = format!("where disk {} is, is not known", disk.name);
            return Err(ApiError::new(Kind::NotPossible, message).hint(replace()));
        };
        let patience = Instant::now() + HELD_MAX;
        loop {
            match self.parts.engine.disk_attach(&pool.name, path) {
                Ok(_) => return Ok(()),
                // The last requests to it, from before it failed, still hold it.
                Err(error) if error.kind == Kind::AlreadyExists && Instant::now() < patience => {
                    thread::sleep(HELD_EVERY);
                }
                Err(error) => return Err(error.or_hint(replace)),
            }
        }
    }
}

/// The command for a virtual disk as large and as safe as `vdisk` that takes `left` disks at most; `None` where these
/// are too few for that.
fn narrower(pool: &PoolInfo, vdisk: &VdiskInfo, left: usize) -> Option<String> {
    let Layout { resiliency, interleave, .. } = vdisk.layout;
    let columns = u8::try_from(left / usize::from(resiliency.disks_per_column())).ok()?;
    (resiliency.columns_min()..).contains(&columns).then_some(())?;
    let is_taken = |name: &String| pool.vdisks.iter().any(|other| other.name.vdisk == *name);
    let name = (2..).map(|n| format!("{}-{n}", vdisk.name.vdisk)).find(|name| !is_taken(name))?;
    let (size, flags) = (typed(ByteCount(vdisk.size)), resiliency_flags(resiliency));
    let interleave = typed(ByteCount(interleave));
    (name.len() <= limits::NAME_MAX).then(|| {
        format!(
            "weft vdisk create {}/{name} --size {size} {flags} --columns {columns} --interleave {interleave}",
            pool.name
        )
    })
}

/// What a change of a disk means, one line each.
fn told(disk: &DiskInfo, change: &DiskChange, maintenance: Option<bool>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(usage) = change.usage {
        let before = disk.usage.map(|usage| format!("{usage} -> ")).unwrap_or_default();
        lines.push(format!("usage {before}{usage}"));
        if usage == Usage::Journal {
            lines.push("no new data goes to it, and a copy of the log moves to it".into());
        }
    }
    lines.extend(change.media.map(|media| format!("media {} -> {media}", disk.media)));
    lines.extend(change.name.as_ref().map(|name| format!("name {} -> {name}", disk.name)));
    lines.extend(change.domain.as_ref().map(|domain| {
        let or_none = |text: &str| if text.is_empty() { "none".to_string() } else { text.to_string() };
        format!("domain {} -> {}", or_none(disk.domain.as_deref().unwrap_or("")), or_none(domain))
    }));
    lines.extend(maintenance.map(|on| match on {
        true => "in maintenance: nothing is read from it or written to it; what it misses is noted".into(),
        false => "out of maintenance: what it missed is brought to it".into(),
    }));
    lines
}

/// The disk of a pool that was meant: by name, identity or path.
fn find_member<'a>(pool: &'a PoolInfo, wanted: &str) -> Answer<(&'a DiskInfo, u16)> {
    let by_path = |disk: &DiskInfo| {
        let there = wanted.starts_with('/').then(|| find::identity(Path::new(wanted))).flatten();
        disk.path
            .as_deref()
            .is_some_and(|path| path == Path::new(wanted) || there.is_some() && find::identity(path) == there)
    };
    let by_name = pool.disks.iter().find(|disk| disk.name == wanted);
    let found = by_name.or_else(|| pool.disks.iter().find(|disk| disk.id.as_deref() == Some(wanted) || by_path(disk)));
    match found.and_then(|disk| Some((disk, disk.no?))) {
        Some(found) => Ok(found),
        None => {
            let message = format!("pool {} has no disk {wanted}; it has {}", pool.name, names(pool).join(", "));
            Err(ApiError::new(Kind::NotFound, message).hint(format!("weft disk list --pool {}", pool.name)))
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

fn flags(create_size: Option<Size>, force: bool, more: &str) -> String {
    let mut flags = String::new();
    if let Some(size) = create_size {
        flags += &format!(" --create-size {size}");
    }
    if force && more != "--force" {
        flags += " --force";
    }
    if more.is_empty() { flags } else { format!("{flags} {more}") }
}

fn add_command(pool: &str, request: &DiskAdd, more: &str) -> String {
    let mut command = format!("weft disk add {pool}");
    request.disks.iter().for_each(|disk| command += &format!(" {}", disk.display()));
    if let Some(usage) = request.usage.filter(|usage| *usage != Usage::Retired) {
        command += &format!(" --usage {usage}");
    }
    command + &flags(request.create_size, request.force, more)
}

fn replace_command(pool: &str, old: &str, new: &Path, request: &DiskReplace, more: &str) -> String {
    let flags = flags(request.create_size, request.force, more);
    format!("weft disk replace {pool} {old} {}{flags}", new.display())
}
