//! Where disks may be: the places the daemon was given, or the machine's block devices. Disks are known by their
//! labels; this only says where to look for them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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

/// When the file at `path` was written to last; `None` for all that is no file.
pub fn written(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?.modified().ok()
}

/// Why the disk at `path` cannot be opened for reading and writing; `None` where it can be, and where nothing is there.
/// Claims nothing.
pub fn hindrance(path: &Path) -> Option<String> {
    let gone = |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
    let said = |error: io::Error| (!gone(&error)).then(|| error.to_string());
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) => return said(error),
    };
    let block = meta.file_type().is_block_device();
    if !block && !meta.is_file() {
        return None;
    }
    // When a block device is closed that was open for writing, udev looks at it anew: it is not opened so only to look.
    match fs::File::options().read(true).write(!block).open(path) {
        Err(error) => said(error),
        Ok(_) => (block && is_set_read_only(meta.rdev())).then(|| "the device is read-only".into()),
    }
}

/// Whether the kernel refuses writes to a block device.
fn is_set_read_only(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|said| said.trim() == "1")
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
    let is_it = |file: &Path| identity(file) == Some(own);
    let loops = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for device in loops.filter(|device| device.file_name().to_string_lossy().starts_with("loop")) {
        let Ok(backing) = fs::read_to_string(device.path().join("loop/backing_file")) else { continue };
        if is_it(Path::new(backing.trim_end_matches('\n'))) {
            let device = format!("/dev/{}", device.file_name().to_string_lossy());
            return Some((format!("it is behind {device}"), format!("losetup {device}")));
        }
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swap = swapped_to(&swaps).iter().any(|file| is_it(file));
    swap.then(|| ("the system swaps to it".into(), "swapon --show".into()))
}

/// The files and devices that `swaps` (as /proc/swaps) names. There, white space and backslashes of a name are
/// backslashes with three octal digits.
fn swapped_to(swaps: &str) -> Vec<PathBuf> {
    let names = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let whole = |name: &str| {
        let mut bytes = Vec::new();
        let mut rest = name.as_bytes();
        while let [first, left @ ..] = rest {
            let octal = left.get(..3).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
            let escaped = octal.filter(|_| *first == b'\\');
            bytes.push(escaped.unwrap_or(*first));
            rest = if escaped.is_some() { &left[3..] } else { left };
        }
        PathBuf::from(OsString::from_vec(bytes))
    };
    names.map(whole).collect()
}

/// What tells whether two paths lead to the same thing; `None` when nothing is there.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    thing(path).map(|thing| thing.place)
}

/// A device, or a file, told from whatever comes in its place: file systems give the number of a file that was deleted
/// to the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thing {
    /// See [`identity`].
    pub place: (u64, u64),
    /// When a file was made, where its file system knows.
    made: Option<SystemTime>,
}

/// What is at `path`; `None`: nothing is.
pub fn thing(path: &Path) -> Option<Thing> {
    let meta = fs::metadata(path).ok()?;
    let block = meta.file_type().is_block_device();
    let place = if block { (u64::MAX, meta.rdev()) } else { (meta.dev(), meta.ino()) };
    Some(Thing { place, made: meta.created().ok().filter(|_| !block) })
}

impl Thing {
    /// Whether this, which has come in the place of `before`, is another file. Devices, and file systems that were
    /// mounted anew, have other numbers without being others.
    pub fn is_another_file_than(self, before: Thing) -> bool {
        let made_anew = matches!((self.made, before.made), (Some(now), Some(then)) if now != then);
        before.place.0 != u64::MAX && (made_anew || self.place.1 != before.place.1)
    }
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
    fn a_file_that_got_the_number_of_one_that_was_deleted_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d0");
        fs::write(&path, "before").unwrap();
        let before = thing(&path).unwrap();
        fs::write(&path, "it grows").unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        assert!(!thing(&dir.path().join("moved")).unwrap().is_another_file_than(before), "it was moved");
        let made = before.made.map(|made| made + std::time::Duration::from_millis(1));
        let after = Thing { made, ..before };
        assert_eq!(after.is_another_file_than(before), made.is_some());
        assert!(Thing { place: (before.place.0, before.place.1 + 1), ..before }.is_another_file_than(before));
        let mounted_anew = Thing { place: (before.place.0 + 1, before.place.1), ..before };
        assert!(!mounted_anew.is_another_file_than(before));
        assert!(!Thing { made: None, ..before }.is_another_file_than(before), "where nobody knows when it was made");
        let device = |number| Thing { place: (u64::MAX, number), made: None };
        assert!(!device(2).is_another_file_than(device(1)));
    }

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
    fn what_the_system_swaps_to_is_known_by_its_name_whatever_it_is() {
        let swaps = "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                     /dev/sda2                               partition\t1048572\t\t0\t\t-2\n\
                     /srv/my\\040swap\\134x                      file\t\t65532\t\t0\t\t-3\n\
                     /a\\9                      file\t\t65532\t\t0\t\t-3\n";
        assert_eq!(swapped_to(swaps), ["/dev/sda2", "/srv/my swap\\x", "/a\\9"].map(PathBuf::from));
        assert!(swapped_to("").is_empty());
    }

    #[test]
    fn what_is_in_the_way_of_opening_a_disk_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::write(file("f"), "four").unwrap();
        std::os::unix::fs::symlink(file("loop"), file("loop")).unwrap();
        assert!(hindrance(&file("loop")).unwrap().contains("symbolic links"));
        for nothing in ["f", "none", "f/below", "."] {
            assert_eq!(hindrance(&file(nothing)), None, "{nothing}");
        }
        // Root may write whatever its mode says; a program that runs nobody may write.
        assert!(hindrance(&std::env::current_exe().unwrap()).is_some());
        assert!(written(&file("f")).is_some() && written(&file(".")).is_none());
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
