//! What a person should look at is told on standard error, too, where a service manager keeps it: every warning, as it
//! comes.
//!
//! Invariants
//! 1. Nothing else of the daemon waits for whoever reads it, or does not: it has a thread of its own, which nobody
//!    waits for longer than [`STOP_MAX`].

use super::events::Journal;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::watch::EventInfo;
use crate::harmless;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// How long the end of the daemon waits for what was not told yet.
const STOP_MAX: Duration = Duration::from_secs(1);

/// The thread that tells.
pub(super) struct Teller {
    journal: Arc<Journal>,
    ended: Arc<AtomicBool>,
    /// Disconnected when it has told everything.
    done: Receiver<()>,
}

impl Teller {
    /// Tells what happens from now on.
    pub(super) fn start(journal: Arc<Journal>) -> Answer<Teller> {
        let ended = Arc::new(AtomicBool::new(false));
        let (told, end) = (journal.clone(), ended.clone());
        let (telling, done) = channel();
        let tell = move || {
            let _telling = telling;
            let mut after = 0;
            loop {
                let events = told.follow(after, &end);
                let Some(last) = events.last() else { return };
                after = last.no;
                for line in events.iter().filter_map(line) {
                    // Nobody is left to hear that nobody listens.
                    let _ = io::stderr().write_all(line.as_bytes());
                }
            }
        };
        let thread = thread::Builder::new().name("weft-teller".into()).spawn(tell);
        thread.map_err(|error| ApiError::new(Kind::Internal, format!("no thread for warnings: {error}")))?;
        Ok(Teller { journal, ended, done })
    }

    /// Returns when everything was told, or [`STOP_MAX`] after.
    pub(super) fn stop(self) {
        self.journal.end(&self.ended);
        let _ = self.done.recv_timeout(STOP_MAX);
    }
}

/// What is told of an event, if anything is: of what happened in this run, warnings.
fn line(event: &EventInfo) -> Option<String> {
    let pool = event.pool.as_ref().map(|pool| format!("pool {pool}: ")).unwrap_or_default();
    // One line each, whatever a name may hold.
    let text = harmless::line(&event.text);
    (event.warning && event.fresh).then(|| format!("weft: {pool}{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_this_run_are_told_in_one_line_each() {
        let event = |warning, fresh| EventInfo {
            no: 1,
            at_ms: 0,
            pool: Some("tank".into()),
            warning,
            text: "disk d1 lost: a\ncable".into(),
            in_pool: None,
            fresh,
        };
        assert_eq!(line(&event(true, true)).unwrap(), "weft: pool tank: disk d1 lost: a\\ncable\n");
        assert_eq!((line(&event(false, true)), line(&event(true, false))), (None, None));
    }
}
