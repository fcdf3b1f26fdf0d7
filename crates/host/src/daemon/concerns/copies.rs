//! Other files that are there in place of disks.

use crate::api::pool::DiskInfo;

/// What is in the place of a disk, and why it is not taken for it.
pub(super) fn not_taken(disk: &DiskInfo) -> String {
    let there = disk.copy_at.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    format!(
        "; {there} is another file than the disk was, an older copy perhaps, and is not used while the pool cannot do \
        without the disk itself, which it waits for"
    )
}
