//! A disk that others need is to leave: what is lost by that, and what would do instead.

use crate::api::cache::{CacheInfo, in_words};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use crate::api::pool::{DiskInfo, DiskState, PoolInfo, Usage};
use crate::api::size::Size;
use crate::api::vdisk::{Layout, VdiskInfo};
use crate::daemon::Daemon;
use crate::ops::Perform;
use crate::ops::disk::{DiskAdd, DiskList, DiskRemove, DiskReplace};
use crate::ops::job::JobList;
use crate::ops::line::ToLine;
use crate::ops::vdisk::VdiskCreate;
use std::path::PathBuf;
use weft_engine::limits;
use weft_engine::pool::cache::CacheTurn;
use weft_engine::pool::{Leaving, Loss};
use weft_engine::units::ByteCount;

impl Daemon {
    /// What virtual disks lose by the leaving of a disk, one line each. Refused where that is anything and nobody said
    /// that they may, with what would do instead.
    pub(super) fn accepted(
        &self,
        pool: &PoolInfo,
        disk: &DiskInfo,
        leaving: &Leaving,
        force: bool,
    ) -> Answer<Vec<String>> {
        let told = leaving.losses.iter().map(|loss| format!("{}/{} ({loss})", pool.name, loss.vdisk));
        if leaving.losses.is_empty() || force {
            let emptied = leaving.caches.iter().map(|vdisk| {
                let cache = format!("the write-back cache of {}/{vdisk} has too few disks then", pool.name);
                format!("{cache}: it takes nothing more, and empties itself first")
            });
            let given_up = told.map(|loss| format!("redundancy is given up: {loss}"));
            return Ok(given_up.chain(emptied).chain(told_of_caches(pool, &leaving.turned)).collect());
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
        let replace = || DiskReplace::some(&pool.name, &disk.name).line();
        Err(ApiError::new(Kind::NotPossible, message).hint(hint.unwrap_or_else(replace)))
    }

    /// What becomes of the data of a disk that shall take no more of it by itself, one line each; it will have this
    /// name. Refused where it is to be a journal, and would have to go on with data: that carries the log and nothing
    /// else.
    pub(super) fn told_of_leaving(
        &self,
        pool: &PoolInfo,
        (disk, name): (&DiskInfo, &str),
        usage: Usage,
        leaving: Answer<Leaving>,
    ) -> Answer<Vec<String>> {
        let losses = |leaving: &Leaving| -> Vec<String> {
            leaving.losses.iter().map(|loss| format!("{}/{}: {loss}", pool.name, loss.vdisk)).collect()
        };
        let add = || DiskAdd::some(&pool.name).line();
        Ok(match (usage, leaving) {
            (Usage::Journal, Ok(leaving)) if leaving.losses.is_empty() => match leaving.moves {
                ByteCount::ZERO => Vec::new(),
                moves => vec![format!("{moves} on it move to the other disks; `{}` shows how far that is", jobs(pool))],
            },
            (Usage::Journal, Ok(leaving)) => {
                let message = format!(
                    "disk {} cannot be a journal, which carries the log and nothing else: {}; add another disk for \
                     data first",
                    disk.name,
                    losses(&leaving).join(", ")
                );
                return Err(ApiError::new(Kind::NotPossible, message).hint(add()));
            }
            (Usage::Journal, Err(error)) if error.kind == Kind::NoSpace => {
                return Err(self.homeless(pool, disk, error));
            }
            (Usage::Journal, Err(error)) => return Err(error.or_hint(add)),
            (Usage::Retired, Ok(leaving)) => vec![match leaving.losses.first() {
                None => format!(
                    "{} on it move to the other disks; `{}` takes it out",
                    leaving.moves,
                    DiskRemove::of(&pool.name, name).line()
                ),
                Some(loss) => format!(
                    "{} on it move to the other disks; as {}/{} finds too few disks without it, it still takes new \
                     data",
                    leaving.moves, pool.name, loss.vdisk
                ),
            }],
            (Usage::Retired, Err(error)) => vec![format!(
                "what is on it moves to the other disks as far as that goes: {}; `{}` makes room",
                error.message,
                add()
            )],
            (_, leaving) => leaving.map(|leaving| losses(&leaving)).unwrap_or_default(),
        })
    }

    /// A disk holds what has no place on the others: `error`, with what would do instead.
    pub(super) fn homeless(&self, pool: &PoolInfo, disk: &DiskInfo, mut error: ApiError) -> ApiError {
        let left =
            pool.disks.iter().filter(|other| other.name != disk.name && other.state == DiskState::Healthy).count();
        let short = pool.vdisks.iter().filter(|vdisk| vdisk.layout.disks_needed() > left).map(|vdisk| (vdisk, left));
        let (copied, hint) = self.instead(pool, disk, &short.collect::<Vec<_>>());
        error.message += &copied;
        error.hint(hint.unwrap_or_else(|| DiskAdd::some(&pool.name).line()))
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
        let replace = |path: PathBuf| {
            let by = path.display().to_string();
            DiskReplace { by, ..DiskReplace::some(&pool.name, &disk.name) }.line()
        };
        let narrower = narrower.and_then(|new| new.into_iter().next()).filter(|_| !lost);
        (copied, self.blank_disk(disk.capacity).map(replace).or(narrower.map(|new| new.line())))
    }

    /// A disk of this size or more that is blank and in use by no pool.
    fn blank_disk(&self, capacity: u64) -> Option<PathBuf> {
        let mut disks = self.perform(&DiskList::default()).ok()?;
        disks.retain(|disk| disk.state == DiskState::Available && disk.capacity >= capacity);
        disks.into_iter().find_map(|disk| disk.path)
    }
}

fn jobs(pool: &PoolInfo) -> String {
    JobList { pool: Some(pool.name.clone()) }.line()
}

/// What is emptied to make room for what a disk held; none: nothing is.
pub(super) fn told_of_emptying(leaving: &Leaving) -> Option<String> {
    let Leaving { empties, .. } = leaving;
    (empties.0 > 0).then(|| {
        format!(
            "there is no room for all of it before what lies here and there is put together: {empties} move for that"
        )
    })
}

/// The caches that the pool chooses anew, one line each.
pub(super) fn told_of_caches(pool: &PoolInfo, turned: &[CacheTurn]) -> Vec<String> {
    let before = |vdisk: &str| {
        let found = pool.vdisks.iter().find(|found| found.name.vdisk == vdisk);
        found.and_then(|found| found.write_cache.clone()).map(|cache| CacheInfo { drains: false, ..cache })
    };
    let told = turned.iter().map(|CacheTurn { vdisk, to, disks, .. }| {
        let to = to.map(|to| CacheInfo::new(to, disks.clone()));
        let (was, will) = (in_words(before(vdisk).as_ref(), true), in_words(to.as_ref(), false));
        format!("{}/{vdisk}: write cache {was} -> {will}", pool.name)
    });
    told.collect()
}

/// Asks for a virtual disk as large and as safe as `vdisk` that takes `left` disks at most; `None` where these are too
/// few for that.
fn narrower(pool: &PoolInfo, vdisk: &VdiskInfo, left: usize) -> Option<VdiskCreate> {
    let Layout { resiliency, interleave, .. } = vdisk.layout;
    let columns = u8::try_from(left / usize::from(resiliency.disks_per_column())).ok()?;
    (resiliency.columns_min()..).contains(&columns).then_some(())?;
    let is_taken = |name: &String| pool.vdisks.iter().any(|other| other.name.vdisk == *name);
    let name = (2..).map(|n| format!("{}-{n}", vdisk.name.vdisk)).find(|name| !is_taken(name))?;
    (name.len() <= limits::NAME_MAX).then(|| {
        let name = VdiskName { pool: pool.name.clone(), vdisk: name };
        let create = VdiskCreate::new(name, Size::Bytes(ByteCount(vdisk.size))).with(resiliency);
        VdiskCreate { columns: Some(columns), interleave: Some(Size::Bytes(ByteCount(interleave))), ..create }
    })
}
