//! Other files that are there in place of disks, and disks that were rolled back while they were away.

use crate::api::pool::DiskInfo;

/// What is in the place of a disk, and why it is not taken for it.
pub(super) fn not_taken(disk: &DiskInfo) -> String {
    let there = disk.copy_at.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    format!(
        "; {there} is not the disk as it was, an older copy of it perhaps, and is not used while the pool cannot do \
        without the disk itself, which it waits for"
    )
}
