//! Where disks may be: the places the daemon was given, or the machine's block devices. Disks are known by their
//! labels; this only says where to look for them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Block devices that can hold no member: memory, removable media, and what weft itself may be behind.
const NEVER: [&str; 8] = ["ram", "zram", "sr", "fd", "nbd", "ublk", "loop-control", "mtdblock"];

/// Whether a path leads to something that can be a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// A regular file of so many bytes.
    File(u64),
    /// A block device.
    Block,
    /// Nothing is there.
    Missing,
    /// Something else is there.
    Other,
}

/// What `path` leads to, links followed.
pub fn look(path: &Path) -> Look {
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Look::File(meta.len()),
        Ok(meta) if meta.file_type().is_block_device() => Look::Block,
        Ok(_) => Look::Other,
        Err(_) => Look::Missing,
    }
}

/// Bytes that may still be written to the file system of `path`; `None` where that cannot be told.
pub fn room_below(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Who in the kernel has the file at `path`, and the command that shows it: a loop device, which may be mounted, or
/// swap.
pub fn user_of(path: &Path) -> Option<(String, String)> {
    let own = identity(path)?;
    let is_it = |file: &str| identity(Path::new(file)) == Some(own);
    let loops = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for device in loops.filter(|device| device.file_name().to_string_lossy().starts_with("loop")) {
        let Ok(backing) = fs::read_to_string(device.path().join("loop/backing_file")) else { continue };
        if is_it(backing.trim_end_matches('\n')) {
            let device = format!("/dev/{}", device.file_name().to_string_lossy());
            return Some((format!("it is behind {device}"), format!("losetup {device}")));
        }
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swap = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(is_it);
    swap.then(|| ("the system swaps to it".into(), "swapon --show".into()))
}

/// What tells whether two paths lead to the same thing; `None` when nothing is there.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = fs::metadata(path).ok()?;
    let block = meta.file_type().is_block_device();
    Some(if block { (u64::MAX, meta.rdev()) } else { (meta.dev(), meta.ino()) })
}

/// Every file and block device under `places` (all block devices when `None`), each once, sorted by path.
pub fn scan(places: Option<&[PathBuf]>, hints: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    match places {
        None => paths.extend(block_devices()),
        Some(places) => places.iter().for_each(|place| paths.extend(under(place))),
    }
    paths.extend(hints.iter().filter(|hint| matches!(look(hint), Look::File(_) | Look::Block)).cloned());
    paths.sort();
    let mut seen = BTreeSet::new();
    paths.retain(|path| identity(path).is_some_and(|identity| seen.insert(identity)));
    paths
}

fn under(place: &Path) -> Vec<PathBuf> {
    if matches!(look(place), Look::File(_) | Look::Block) {
        return vec![place.into()];
    }
    let Ok(entries) = fs::read_dir(place) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| matches!(look(path), Look::File(_) | Look::Block)).collect()
}

fn block_devices() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/class/block") else { return Vec::new() };
    let mut devices = Vec::new();
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let empty = fs::read_to_string(entry.path().join("size")).is_ok_and(|size| size.trim() == "0");
        if !empty && !NEVER.iter().any(|never| name.starts_with(never)) {
            // The kernel writes `/` in a device's name as `!`.
            devices.push(Path::new("/dev").join(name.replace('!', "/")));
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_means_the_files_in_it_and_every_file_is_found_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::write(file("b"), "b").unwrap();
        fs::write(file("a"), "a").unwrap();
        fs::create_dir(file("sub")).unwrap();
        fs::write(file("sub/deep"), "c").unwrap();
        std::os::unix::fs::symlink(file("a"), file("link-to-a")).unwrap();
        let places = [dir.path().to_path_buf(), file("b"), file("gone")];
        assert_eq!(scan(Some(&places), &[]), [file("a"), file("b")]);
        assert_eq!(scan(Some(&places), &[file("sub/deep"), file("gone")]), [file("a"), file("b"), file("sub/deep")]);
    }

    #[test]
    fn what_a_path_leads_to_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "four").unwrap();
        assert_eq!(look(&dir.path().join("f")), Look::File(4));
        assert_eq!(look(dir.path()), Look::Other);
        assert_eq!(look(&dir.path().join("none")), Look::Missing);
    }
}
