//! What a daemon that died left: the kernel ends its block devices, and keeps their numbers and `/dev/ublkcN` until
//! somebody says that they are not needed. Devices of weft's carry a mark with the process that serves them.

use crate::disk::ublk::{self, Control};
use std::path::Path;
use std::time::Duration;

/// The upper half of the mark of weft's devices; the lower is the process.
const WEFT: u64 = 0x7765_6674;
/// How long removing may take: only the number of a device that somebody still has open stays in use longer.
pub(super) const GONE_WITHIN: Duration = Duration::from_millis(500);

/// The mark of devices of this process.
pub(super) fn mark() -> u64 {
    WEFT << 32 | u64::from(std::process::id())
}

/// Removes what is left of devices of weft's whose process has ended. Only root can; for others it does nothing.
pub fn clear() {
    if ublk::numbers().is_empty() {
        return;
    }
    let Ok(control) = Control::open() else { return };
    for number in found(&control) {
        // One that is still open goes with its last user.
        let _ = control.delete(number, GONE_WITHIN);
    }
}

/// Whether a block device is what is left of one of weft's whose process has ended.
pub fn is(device: &Path) -> bool {
    let number = || device.to_str()?.strip_prefix("/dev/ublkb")?.parse::<u32>().ok();
    let Some(number) = number() else { return false };
    Control::open().is_ok_and(|control| found(&control).contains(&number))
}

/// The numbers of devices of weft's whose process has ended.
pub(super) fn found(control: &Control) -> Vec<u32> {
    let dead = |number: &u32| {
        let info = control.info(*number);
        info.is_ok_and(|info| info.mark >> 32 == WEFT && has_ended(info.mark as u32))
    };
    ublk::numbers().into_iter().filter(dead).collect()
}

/// Whether a process is no more, or waits only for its parent to ask after it.
fn has_ended(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The name before may hold anything, brackets too.
    let state = status.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_not_ended_and_one_that_was_waited_for_has() {
        assert!(!has_ended(std::process::id()));
        assert_eq!(mark() as u32, std::process::id());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(has_ended(pid));
    }
}
