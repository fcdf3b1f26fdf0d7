//! `weft serve`: the daemon in the foreground, from its start to its clean stop.

use super::config::Options;
use super::memory;
use super::notify::{NOTIFY_SOCKET, notify};
use super::say::say;
use super::{Parts, start};
use crate::api::error::{Answer, ApiError, Kind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weft_engine::store::Tuning;

/// Serves until SIGTERM or SIGINT asks for a clean stop. `parts` makes the engine, after the signals are ours.
pub fn serve(options: &Options, parts: impl FnOnce(Tuning) -> Answer<Parts>) -> Answer<()> {
    let heap = memory::heap(options.memory)?;
    raise_descriptors();
    // Others cannot mount anything that this daemon would serve.
    if rustix::process::geteuid().is_root() {
        memory::begin_with_all_of_the_heap(heap);
        if let Err(error) = memory::never_wait_for_own_writes() {
            say(&format!(
                "not marked as a flusher of I/O ({error}): it lacks CAP_SYS_RESOURCE; short of memory it may wait for \
                its own writes"
            ));
        }
    }
    let mut signals = Signals::new([SIGTERM, SIGINT])
        .map_err(|error| ApiError::new(Kind::Internal, format!("cannot watch for signals: {error}")))?;
    let (fine_share, fine_share_flash) = options.fine_shares();
    let tuning = Tuning { fine_share, fine_share_flash, ..memory::tuning(heap) };
    let running = start(options, parts(options.waits.apply(tuning))?)?;
    running.restore_mounts();
    tell("READY=1");
    say("ready");
    signals.forever().next();
    tell("STOPPING=1");
    say("stopping");
    running.stop()?;
    say("stopped");
    Ok(())
}

/// A daemon has a descriptor for each disk and each client: as many as it may have. Where it may have few, it serves
/// few.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        say(&format!("only {:?} files at a time: {error}", limit.current));
    }
}

/// A service manager that does not listen is no reason to stop serving.
fn tell(state: &str) {
    if let Err(error) = notify(std::env::var_os(NOTIFY_SOCKET), state) {
        say(&format!("cannot tell the service manager {state}: {error}"));
    }
}
