//! What the daemon does when it is asked: one module for each noun, and which operations run alone.

mod disk;
mod export;
mod job;
mod leaving;
mod mount;
mod plan;
mod pool;
mod tier;
#[cfg(test)]
mod trips;
mod vdisk;
mod vdisk_change;
mod watch;

use crate::api::error::{Answer, ApiError, Kind};
use crate::api::pool::PoolInfo;
use crate::api::validate;
use crate::api::watch::{Change, Outcome};
use crate::daemon::{Daemon, lock};
use crate::ops::pool::PoolList;
use crate::ops::watch::StatusShow;
pub(super) use export::Idle;

impl Daemon {
    /// Runs a changing operation alone, and notes what it changed.
    fn change(&self, pool: &str, operation: impl FnOnce() -> Answer<Change>) -> Answer<Change> {
        let _alone = lock(&self.changing);
        let change = operation()?;
        self.tell(pool, &change);
        Ok(change)
    }

    /// Runs a changing operation alone, on what is seen of the open pools in one look, and notes what it changed. A
    /// pool that is not open is looked for once more.
    fn change_pool(&self, pool: &str, operation: impl FnOnce(&Seen) -> Answer<Change>) -> Answer<Change> {
        let mut alone = lock(&self.changing);
        let mut seen = self.look_at(pool)?;
        if seen.is_none() {
            // Who looks takes the lock for it.
            drop(alone);
            self.pool(pool)?;
            alone = lock(&self.changing);
            seen = self.look_at(pool)?;
        }
        let gone = || ApiError::new(Kind::NotFound, format!("no pool {pool}")).offer(&PoolList {});
        let change = operation(&seen.ok_or_else(gone)?)?;
        self.tell(pool, &change);
        drop(alone);
        Ok(change)
    }

    /// One look at the open pools; `None` when `pool` is none of them.
    fn look_at(&self, pool: &str) -> Answer<Option<Seen>> {
        let open = self.pools()?;
        let found = open.iter().find(|open| open.name == pool).cloned();
        Ok(found.map(|pool| Seen { open, pool }))
    }

    /// Notes what changed.
    fn tell(&self, pool: &str, change: &Change) {
        // A job that has started is told of by the pool itself.
        if !change.dry_run && !matches!(change.outcome, Outcome::AlreadySo | Outcome::Started) {
            let what = match change.outcome {
                Outcome::Changed => format!(": {}", change.changes.join("; ")),
                _ => String::new(),
            };
            self.parts.journal.note(Some(pool), format!("{} {}{what}", change.subject, change.outcome));
        }
    }
}

/// What a changing operation sees: one look at the open pools, for as long as it runs.
struct Seen {
    /// All of them.
    open: Vec<PoolInfo>,
    /// The one it is about.
    pool: PoolInfo,
}

impl Seen {
    /// The pool, for an operation that writes to it.
    fn writable(&self) -> Answer<&PoolInfo> {
        writable(&self.pool).map(|()| &self.pool)
    }
}

/// Refuses a pool to which nothing can be written now.
fn writable(pool: &PoolInfo) -> Answer<()> {
    let refused = |kind, message| Err(ApiError::new(kind, message).offer(&StatusShow::of(&pool.name)));
    if pool.read_only {
        return refused(Kind::ReadOnly, format!("pool {} accepts no writes", pool.name));
    }
    match &pool.frozen {
        None => Ok(()),
        Some(frozen) => refused(
            Kind::Frozen,
            format!("pool {} is frozen {frozen}; it goes on by itself when enough of its disks are back", pool.name),
        ),
    }
}

/// Refuses what is no name, and offers `command` with one that is.
fn validate_name(name: &str, command: impl FnOnce(String) -> String) -> Answer<()> {
    validate::name(name).map_err(|bad| {
        let nearest = bad.nearest.clone().unwrap_or_default();
        ApiError::from(bad).hint(command(nearest))
    })
}
