//! Memory of a daemon that serves the file systems of its own machine.
//!
//! When memory is short the kernel writes dirty pages out, and lets those who ask for memory wait for that. Dirty pages
//! of a file system on a virtual disk are written out through this process: if it waited for memory, it would wait for
//! itself. So
//! - all its threads are marked as flushers of I/O: memory they ask for, also in the kernel, never waits for the
//!   writing of file systems or disks, and their own writes are not slowed down because of what others made dirty;
//! - from the first export on that can carry a file system of this machine (over FUSE, ublk, or NBD on a unix socket),
//!   what it has in memory stays there: no page of its code or data must be read back;
//! - from then on, too, it is among the last that are killed when there is no memory at all: in a limited group it is
//!   by far the largest, and was seen to be killed for the dirty pages of a few small writers, with their file system.
//!
//! They need root, as loop devices and mounts do. Memory is taken when it is mapped and not when it is first touched: a
//! request that is read into a buffer that was never touched was seen to wait for the writing of that very request. The
//! heap has all that the engine may want from the beginning (the allocator maps it as one piece, and locking fills it
//! in), and what is freed stays with it: from then on writing takes no memory from the kernel. What goes beyond it, for
//! many clients, is mapped page by page and given back when it is free.
//!
//! The first of the two is what is needed where the daemon is in a limited memory group (of version 1) together with
//! those who write: there the kernel lets whoever asks for memory wait until pages are written out, locked or not.

use super::say::say;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::size::Size;
use crate::ops::line::Line;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;
use rustix::system::sysinfo;
use std::env;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Once;
use weft_engine::limits::REQUEST_MAX;
use weft_engine::store::Tuning;
use weft_engine::units::ByteCount;

/// What mimalloc maps when the process begins: a number with K, M or G, or of bytes.
const HEAP_VARIABLE: &str = "MIMALLOC_RESERVE_OS_MEMORY";
/// What else it is told then: to keep what is freed there, and to map and unmap page by page what goes beyond it, for a
/// step of many pages could never be given back.
const HEAP_HABITS: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "-1"), ("MIMALLOC_ARENA_RESERVE", "0")];
/// Where the C library is told things; others may have told it some.
const LIBRARY_VARIABLE: &str = "GLIBC_TUNABLES";
/// What it is told then: to give stacks back when their threads end. It keeps 40 MiB of them.
const LIBRARY_HABIT: &str = "glibc.pthread.stack_cache_size=0";

/// Begins this process anew with all of its heap mapped, which the allocator does only before anything else. To be
/// called before there is anything that would be lost; returns where it is done already, or cannot be done.
pub(super) fn begin_with_all_of_the_heap(heap: u64) {
    if env::var_os(HEAP_VARIABLE).is_some() {
        return;
    }
    // Where it cannot be, the heap grows as it is used, as any other does.
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    let told = env::var(LIBRARY_VARIABLE).unwrap_or_default();
    let library = [told.as_str(), LIBRARY_HABIT].into_iter().filter(|habits| !habits.is_empty());
    again.env(LIBRARY_VARIABLE, library.collect::<Vec<_>>().join(":"));
    let error = again.args(arguments).env(HEAP_VARIABLE, format!("{}K", heap >> 10)).envs(HEAP_HABITS).exec();
    say(&format!("its heap grows as it is used ({error})"));
}

/// Marks this thread, and all that it starts from now on, processes too. To be called before any other is started.
///
/// Errors: `PermissionDenied` for other users than root.
pub(super) fn never_wait_for_own_writes() -> io::Result<()> {
    Ok(configure_io_flusher_behavior(true)?)
}

/// What `dist/weft.service` says, too. Not -1000, which is never: a daemon that took all memory there is must end.
const OOM_SCORE_ADJ: i32 = -900;
/// The least of each kind, on however small a machine: some stripes of any layout.
const MEMORY_MIN: u64 = 16 << 20;
/// The most that is taken unasked: what the engine makes use of, but for fine units.
const HEAP_MAX: u64 = 1 << 30;
/// The most that may be asked for: the logs of several pools say where no more units lie.
const HEAP_ASKED_MAX: u64 = 4 << 30;
/// The part of the heap that stripe tables may always have, as a divisor.
const TABLES_OF_HEAP: u64 = 4;
/// The part of all memory that they may have where that is more, as a divisor: who has large pools has memory for them.
const TABLES_OF_ALL: u64 = 8;
/// The largest requests there are, two of them.
const CLIENTS_MIN: u64 = 2 * REQUEST_MAX.0;
/// The most that eight clients make use of.
const CLIENTS_MAX: u64 = 256 << 20;
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// Keeps in memory what is there and what will come, and has others killed first. Only the first call does anything.
pub(super) fn stay_in_memory() {
    static LOCKED: Once = Once::new();
    LOCKED.call_once(|| {
        let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE);
        if let Err(error) = locked {
            say(&format!("its memory cannot be locked ({error}); a file system of this machine on it may stall"));
        }
        if let Err(error) = be_killed_late() {
            say(&format!(
                "it may be killed when there is no memory ({error}), and the file systems of this machine on it fail"
            ));
        }
    });
}

/// Bytes of the daemon's heap: as many as it was asked to take, else what a machine like this one can spare.
///
/// Errors: `InvalidInput` for more than half of the machine, if that is more than [`HEAP_MAX`], or [`HEAP_ASKED_MAX`].
pub(super) fn heap(asked: Option<u64>) -> Answer<u64> {
    heap_of(asked, memory_here())
}

fn heap_of(asked: Option<u64>, total: u64) -> Answer<u64> {
    let most = (total / 2).clamp(HEAP_MAX, HEAP_ASKED_MAX) >> 20 << 20;
    match asked {
        Some(asked) if asked > most => {
            let [asked, most] = [asked, most].map(|bytes| Size::Bytes(ByteCount(bytes)));
            let what = format!("memory of {asked} is too much: up to {most} may be taken here");
            Err(ApiError::new(Kind::InvalidInput, what).hint(Line::serve(&[("memory", &most)])))
        }
        Some(asked) => Ok(asked),
        None => Ok(usual_heap(total)),
    }
}

/// `total`: bytes of memory that there are. It is locked, so a small machine gives a quarter of it to the engine.
fn usual_heap(total: u64) -> u64 {
    (total / 16 * 5).min(HEAP_MAX)
}

/// What the engine may hold of a heap, for one pool: four fifths. The rest is for requests under way, tables, and what
/// lies between.
pub(super) fn tuning(heap: u64) -> Tuning {
    let usual = Tuning::default();
    let (share, all) = (heap / 5 * 4, engine_memory(&usual));
    let part =
        |memory: u64| ((u128::from(memory) * u128::from(share) / u128::from(all)) as u64).clamp(MEMORY_MIN, memory);
    let others = Tuning {
        buffer_memory: part(usual.buffer_memory),
        sheet_memory: part(usual.sheet_memory),
        move_memory: part(usual.move_memory),
        ahead_memory: part(usual.ahead_memory),
        // For each read cache, beside the rest, as stripe tables are.
        shelf_memory: part(usual.shelf_memory),
        // What clients have under way is theirs to hold, and bounded there; here it only must not be less.
        request_memory: usual.request_memory.max(for_clients(&usual) as u64),
        table_memory: (heap / TABLES_OF_HEAP).max(memory_here() / TABLES_OF_ALL),
        fine_memory: 0,
        ..usual
    };
    // Where little is left, small writes are merged. What was asked for beyond the usual is theirs.
    let left = share.saturating_sub(engine_memory(&others));
    Tuning { fine_memory: left.min(usual.fine_memory.max(heap.saturating_sub(HEAP_MAX))), ..others }
}

/// What requests of NBD clients may hold beside the engine, all together: half of what stripes may, so that a client
/// that streams finds its next requests there when the engine takes them.
pub(super) fn for_clients(tuning: &Tuning) -> usize {
    (tuning.buffer_memory / 2).clamp(CLIENTS_MIN, CLIENTS_MAX) as usize
}

fn engine_memory(tuning: &Tuning) -> u64 {
    // A quarter as much as is read ahead lies in buffers that wait to be used again.
    let others = tuning.sheet_memory + tuning.move_memory + tuning.fine_memory;
    tuning.buffer_memory + others + tuning.ahead_memory / 4 * 5
}

/// Bytes of memory that this process may use at most: the machine's, or what the smallest of its control groups allows.
fn memory_here() -> u64 {
    let info = sysinfo();
    let machine = info.totalram.saturating_mul(info.mem_unit.into());
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limits(&groups, Path::new("/sys/fs/cgroup")).into_iter().fold(machine, u64::min)
}

/// The limits of the groups that `groups` (as in /proc/self/cgroup) names, and of those around them. `root`: where
/// groups are mounted. Those that say nothing, or cannot be seen from here, are left out.
fn group_limits(groups: &str, root: &Path) -> Vec<u64> {
    let files = groups.lines().filter_map(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let (kinds, path) = (words.next()?, words.next()?.trim_start_matches('/'));
        let (below, file) = match kinds {
            "" => (root.to_path_buf(), "memory.max"),
            _ if kinds.split(',').any(|kind| kind == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let group = below.join(path);
        Some(group.ancestors().take_while(|dir| dir.starts_with(&below)).map(|dir| dir.join(file)).collect::<Vec<_>>())
    });
    files.flatten().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).collect()
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
    fn a_small_machine_gives_a_third_and_the_engine_gets_most_of_that() {
        let sizes = |heap| {
            let tuning = tuning(heap);
            (tuning.buffer_memory, tuning.sheet_memory, tuning.move_memory)
        };
        let large = usual_heap(64 << 30);
        assert_eq!((large, usual_heap(u64::MAX)), (HEAP_MAX, HEAP_MAX));
        let usual = Tuning::default();
        assert_eq!(sizes(u64::MAX), (usual.buffer_memory, usual.sheet_memory, usual.move_memory));
        for total in [1 << 30, 3 << 30, 64 << 30] {
            let (heap, engine) = (usual_heap(total), engine_memory(&tuning(usual_heap(total))));
            assert!(heap <= total / 3 && engine <= heap / 5 * 4 && engine > heap / 4 * 3, "{total}: {heap}, {engine}");
        }
        assert_eq!(sizes(0), (MEMORY_MIN, MEMORY_MIN, MEMORY_MIN));
    }

    #[test]
    fn what_is_asked_for_beyond_the_usual_is_for_small_writes_and_half_of_the_machine_at_most() {
        let gib = |of: u64| of << 30;
        assert_eq!(heap_of(Some(100 << 20), gib(1)).unwrap(), 100 << 20);
        assert_eq!(heap_of(Some(gib(1)), gib(1)).unwrap(), gib(1), "as before");
        assert_eq!(heap_of(Some(gib(4)), gib(8)).unwrap(), gib(4));
        let refused = heap_of(Some(gib(4)), gib(7)).unwrap_err();
        assert!(refused.message.contains("up to 3584MiB") && refused.hint.is_some(), "{refused:?}");
        assert!(heap_of(Some(gib(5)), gib(64)).is_err());
        let usual = Tuning::default();
        let [large, larger] = [gib(1), gib(2)].map(tuning);
        assert!(large.fine_memory <= usual.fine_memory && larger.fine_memory > 8 * usual.fine_memory);
        assert_eq!(larger.buffer_memory, usual.buffer_memory);
        assert!(engine_memory(&larger) <= gib(2) / 5 * 4);
    }

    #[test]
    fn the_smallest_group_around_a_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let limit = |file: &str, words: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, words).unwrap();
        };
        limit("system.slice/weft.service/memory.max", "max\n");
        limit("system.slice/memory.max", "1073741824\n");
        limit("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
        limit("memory/memory.limit_in_bytes", "4096\n");
        limit("memory.max", "junk");
        let limits = |groups: &str| group_limits(groups, root.path());
        assert_eq!(limits("0::/system.slice/weft.service\n"), [1 << 30]);
        assert_eq!(limits("3:cpu,memory:/a/b\n2:cpuset:/\n"), [9_223_372_036_854_771_712, 4096]);
        assert!(limits("0::/elsewhere\nnonsense\n1:memory\n").is_empty());
    }
}
