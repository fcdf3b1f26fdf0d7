//! What the daemon does when it is asked: one module for each noun, and which operations run alone.

mod disk;
mod export;
mod job;
mod leaving;
mod mount;
mod pool;
mod vdisk;
mod watch;

use crate::api::error::{Answer, ApiError};
use crate::api::judge;
use crate::api::watch::{Change, Outcome};
use crate::daemon::{Daemon, lock};

impl Daemon {
    /// Runs a changing operation alone, and notes what it changed.
    fn change(&self, pool: &str, operation: impl FnOnce() -> Answer<Change>) -> Answer<Change> {
        let _alone = lock(&self.changing);
        let change = operation()?;
        // A job that has started is told of by the pool itself.
        if !change.dry_run && !matches!(change.outcome, Outcome::AlreadySo | Outcome::Started) {
            let what = match change.outcome {
                Outcome::Changed => format!(": {}", change.changes.join("; ")),
                _ => String::new(),
            };
            self.parts.journal.note(Some(pool), format!("{} {}{what}", change.subject, change.outcome));
        }
        Ok(change)
    }
}

/// Refuses what is no name, and offers `command` with one that is.
fn judge_name(name: &str, command: impl FnOnce(String) -> String) -> Answer<()> {
    judge::name(name).map_err(|bad| {
        let nearest = bad.nearest.clone().unwrap_or_default();
        ApiError::from(bad).hint(command(nearest))
    })
}
