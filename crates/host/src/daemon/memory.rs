//! Memory of a daemon that serves the file systems of its own machine.
//!
//! When memory is short the kernel writes dirty pages out, and lets those who ask for memory wait for that. Dirty pages of
//! a file system on a virtual disk are written out through this process: if it waited for memory, it would wait for
//! itself. So
//! - all its threads are marked as flushers of I/O: memory they ask for, also in the kernel, never waits for the writing
//!   of file systems or disks, and their own writes are not slowed down because of what others made dirty;
//! - from the first export on that can carry a file system of this machine (over FUSE, ublk, or NBD on a unix socket), what
//!   it has in memory stays there: no page of its code or data must be read back;
//! - from then on, too, it is among the last that are killed when there is no memory at all: in a limited group it is by far
//!   the largest, and was seen to be killed for the dirty pages of a few small writers, with their file system.
//!
//! They need root, as loop devices and mounts do. Memory is taken when it is mapped and not when it is first touched: a
//! request that is read into a buffer that was never touched was seen to wait for the writing of that very request.
//!
//! The first of the two is what is needed where the daemon is in a limited memory group (of version 1) together with
//! those who write: there the kernel lets whoever asks for memory wait until pages are written out, locked or not.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;
use rustix::system::sysinfo;
use std::fs;
use std::io;
use std::sync::Once;
use weft_engine::store::Tuning;

/// Marks this thread, and all that it starts from now on, processes too. To be called before any other is started.
///
/// Errors: `PermissionDenied` for other users than root.
pub(super) fn never_wait_for_own_writes() -> io::Result<()> {
    Ok(configure_io_flusher_behavior(true)?)
}

/// What `dist/weft.service` says, too. Not -1000, which is never: a daemon that took all memory there is must end.
const OOM_SCORE_ADJ: i32 = -900;
/// Of each kind, on however small a machine: some stripes of any layout.
const MEMORY_MIN: u64 = 16 << 20;
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// Keeps in memory what is there and what will come, and has others killed first. Only the first call does anything.
pub(super) fn stay_in_memory() {
    static LOCKED: Once = Once::new();
    LOCKED.call_once(|| {
        let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE);
        if let Err(error) = locked {
            eprintln!("weft: its memory cannot be locked ({error}); a file system of this machine on it may stall");
        }
        if let Err(error) = be_killed_late() {
            eprintln!("weft: it may be killed when there is no memory ({error}), and the file systems of this machine on it fail");
        }
    });
}

/// What the engine may hold in memory here. It is locked there, so a small machine gives it less: a quarter, all together.
pub(super) fn tuning() -> Tuning {
    let info = sysinfo();
    scaled(info.totalram.saturating_mul(info.mem_unit.into()))
}

/// `total`: bytes of memory that the machine has.
fn scaled(total: u64) -> Tuning {
    let usual = Tuning::default();
    let all = usual.buffer_memory + usual.sheet_memory + usual.move_memory;
    let share = (total / 4).min(all);
    let part = |memory: u64| (memory * share / all).max(MEMORY_MIN);
    Tuning {
        buffer_memory: part(usual.buffer_memory),
        sheet_memory: part(usual.sheet_memory),
        move_memory: part(usual.move_memory),
        ..usual
    }
}

/// Errors: what /proc says; `PermissionDenied` without CAP_SYS_RESOURCE.
fn be_killed_late() -> io::Result<()> {
    let now = fs::read_to_string(OOM_SCORE_FILE)?;
    // Whoever started it may have asked for more.
    if now.trim().parse().is_ok_and(|now: i32| now <= OOM_SCORE_ADJ) {
        return Ok(());
    }
    fs::write(OOM_SCORE_FILE, OOM_SCORE_ADJ.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_gets_a_quarter_of_a_small_machine_and_what_it_likes_on_a_large_one() {
        let sizes = |total| {
            let tuning = scaled(total);
            (tuning.buffer_memory, tuning.sheet_memory, tuning.move_memory)
        };
        let usual = Tuning::default();
        assert_eq!(sizes(64 << 30), (usual.buffer_memory, usual.sheet_memory, usual.move_memory));
        assert_eq!(sizes(u64::MAX), sizes(64 << 30));
        let (buffers, sheets, moves) = sizes(1 << 30);
        assert!(buffers + sheets + moves <= 256 << 20 && buffers > 64 << 20, "{buffers} {sheets} {moves}");
        assert_eq!(sizes(0), (MEMORY_MIN, MEMORY_MIN, MEMORY_MIN));
    }
}
