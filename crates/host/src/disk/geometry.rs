//! What the kernel says about the device behind a descriptor (sysfs, one ioctl). Nothing here can fail: what cannot be
//! found out is answered with the careful default.

use super::file::DiskKind;
use rustix::fs::{self, major, minor};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use weft_engine::io::WriteCache;
use weft_engine::units::{BLOCK, SECTOR};

/// 512 or 4096; 512 (a write may tear at any sector) where nothing is known.
pub(super) fn physical_sector(fd: &OwnedFd, kind: DiskKind) -> u32 {
    let reported = match kind {
        DiskKind::Block => fs::ioctl_blkpbszget(fd).ok(),
        DiskKind::File => queue_value(fd, kind, "physical_block_size"),
    };
    match reported {
        Some(bytes) if u64::from(bytes) >= BLOCK => BLOCK as u32,
        _ => SECTOR as u32,
    }
}

/// Whether the device, or the one under the file system of a file, seeks; `false` where nothing is known.
pub(crate) fn is_rotational(fd: &OwnedFd, kind: DiskKind) -> bool {
    queue_value(fd, kind, "rotational") == Some(1)
}

/// Where the kernel says what the write cache of a block device is like; a partition's is that of the whole disk.
pub(super) fn write_cache_at(fd: &OwnedFd) -> Option<File> {
    let device = PathBuf::from("/sys/dev/block").join(device_name(fs::fstat(fd.as_fd()).ok()?.st_rdev));
    let open = |path: &str| File::open(device.join(path)).ok();
    open("queue/write_cache").or_else(|| open("../queue/write_cache"))
}

/// What the kernel says there now.
pub(super) fn read_write_cache(said: &File) -> WriteCache {
    let mut word = [0; 16];
    let len = said.read_at(&mut word, 0).unwrap_or(0);
    match word[..len].trim_ascii() {
        b"write through" => WriteCache::NonVolatile,
        b"write back" => WriteCache::Volatile,
        _ => WriteCache::Unknown,
    }
}

/// The device number in the form sysfs and mountinfo use, `8:17`.
pub(super) fn device_name(dev: u64) -> String {
    format!("{}:{}", major(dev), minor(dev))
}

fn queue_value(fd: &OwnedFd, kind: DiskKind, name: &str) -> Option<u32> {
    let stat = fs::fstat(fd.as_fd()).ok()?;
    let dev = match kind {
        DiskKind::Block => stat.st_rdev,
        DiskKind::File if major(stat.st_dev) == 0 => mounted_device(stat.st_dev)?,
        DiskKind::File => stat.st_dev,
    };
    let device = PathBuf::from("/sys/dev/block").join(device_name(dev));
    // A partition has no queue of its own; its directory lies in that of the whole disk.
    let value = std::fs::read_to_string(device.join("queue").join(name))
        .or_else(|_| std::fs::read_to_string(device.join("../queue").join(name)));
    value.ok()?.trim().parse().ok()
}

/// File systems such as btrfs show a device number of their own; the mount table knows the real device.
fn mounted_device(dev: u64) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let source = mount_source(&table, &device_name(dev))?;
    Some(fs::stat(source).ok()?.st_rdev).filter(|dev| *dev != 0)
}

/// The source (`/dev/sda2`) of the first mount whose device number is `device`.
fn mount_source<'a>(table: &'a str, device: &str) -> Option<&'a str> {
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(device))?;
    let (_, after) = line.split_once(" - ")?;
    after.split(' ').nth(1).filter(|source| source.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn a_cache_is_what_the_kernel_says_at_that_moment_and_any_other_word_is_none() {
        let mut file = tempfile::tempfile().unwrap();
        for (words, cache) in [
            ("", WriteCache::Unknown),
            ("write back\n", WriteCache::Volatile),
            ("write through\n", WriteCache::NonVolatile),
            ("none\n", WriteCache::Unknown),
            ("write through, and more\n", WriteCache::Unknown),
        ] {
            file.set_len(0).unwrap();
            file.rewind().unwrap();
            file.write_all(words.as_bytes()).unwrap();
            assert_eq!(read_write_cache(&file), cache, "{words:?}");
        }
    }

    #[test]
    fn the_mount_table_names_the_device_of_a_file_system_without_one() {
        let table = "22 1 8:2 / / rw - ext4 /dev/sda2 rw\n\
                     41 22 0:36 /@home /home rw,relatime shared:1 master:2 - btrfs /dev/sdb1 rw,ssd\n\
                     42 22 0:37 / /run rw - tmpfs tmpfs rw\n";
        assert_eq!(mount_source(table, "0:36"), Some("/dev/sdb1"));
        assert_eq!(mount_source(table, "0:37"), None);
        assert_eq!(mount_source(table, "0:99"), None);
    }
}
