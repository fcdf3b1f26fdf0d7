//! How much of their lives the solid-state disks of open pools have used: asked now and then, told before one ends.
//!
//! Invariants
//! 1. Nobody waits for a disk that does not answer: a thread of its own asks, one disk after the other, and no second
//!    one begins before it has ended.
//! 2. A disk is warned of once while it is known here.

use super::events::Journal;
use super::lock;
use crate::api::pool::{DiskState, Media, PoolInfo, Wear};
use crate::measure::wear;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How often a disk is asked.
const EVERY: Duration = Duration::from_secs(3600);
/// Percent of its life that a disk has used when it is to be replaced.
pub(super) const WORN: u64 = 90;

/// What the disks told.
#[derive(Clone, Default)]
pub(super) struct Lives(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// By the identity of a disk: when it was asked, and what it told then.
    told: BTreeMap<String, (Instant, Option<Wear>)>,
    /// A thread asks just now.
    asking: bool,
}

/// A disk that is to be asked.
struct Asked {
    pool: String,
    name: String,
    id: String,
    path: PathBuf,
}

impl Lives {
    /// Asks the disks that were not asked for a while, if there are any.
    pub(super) fn ask(&self, pools: &[PoolInfo], journal: &Arc<Journal>) {
        let due = {
            let mut known = lock(&self.0);
            let due = known.due(pools);
            if known.asking || due.is_empty() {
                return;
            }
            known.asking = true;
            due
        };
        let (lives, journal) = (self.clone(), journal.clone());
        let asks = move || {
            for disk in due {
                let wear = wear::read(&disk.path);
                let is_new = lock(&lives.0).tells(&disk.id, wear);
                if let Some(used) = is_new {
                    let text = format!("disk {} has used {used} % of its life: replace it before it fails", disk.name);
                    journal.warn(Some(&disk.pool), text);
                }
            }
            lock(&lives.0).asking = false;
        };
        if thread::Builder::new().name("weft-lives".into()).spawn(asks).is_err() {
            lock(&self.0).asking = false;
        }
    }

    /// What the disk of this identity told last.
    pub(super) fn of(&self, id: &str) -> Option<Wear> {
        lock(&self.0).told.get(id)?.1
    }
}

impl Known {
    /// The disks to be asked now. Those that are in no pool any more are forgotten.
    fn due(&mut self, pools: &[PoolInfo]) -> Vec<Asked> {
        let is_open = |id: &String| pools.iter().flat_map(|pool| &pool.disks).any(|disk| disk.id.as_ref() == Some(id));
        self.told.retain(|id, _| is_open(id));
        let mut due = Vec::new();
        for pool in pools {
            for disk in pool.disks.iter().filter(|disk| disk.state == DiskState::Healthy && disk.media != Media::Hdd) {
                let (Some(id), Some(path)) = (&disk.id, &disk.path) else { continue };
                if self.told.get(id).is_none_or(|(at, _)| at.elapsed() >= EVERY) {
                    due.push(Asked {
                        pool: pool.name.clone(),
                        name: disk.name.clone(),
                        id: id.clone(),
                        path: path.clone(),
                    });
                }
            }
        }
        due
    }

    /// Takes note of what a disk told. The percent of its life that is used, if it is worn out and was not before.
    fn tells(&mut self, id: &str, wear: Option<Wear>) -> Option<u64> {
        let worn = |wear: Option<Wear>| wear.and_then(|wear| wear.used_percent).filter(|used| *used >= WORN);
        let before = self.told.insert(id.into(), (Instant::now(), wear)).and_then(|(_, wear)| worn(wear));
        worn(wear).filter(|_| before.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_told_of_once_when_its_life_is_nearly_used() {
        let mut known = Known::default();
        let used = |percent| Some(Wear { used_percent: Some(percent), ..Wear::default() });
        assert_eq!(known.tells("a", used(89)), None);
        assert_eq!(known.tells("a", used(90)), Some(90));
        assert_eq!(known.tells("a", used(91)), None);
        assert_eq!(known.tells("b", None), None);
        assert_eq!(known.tells("b", used(104)), Some(104), "some count beyond 100");
    }
}
