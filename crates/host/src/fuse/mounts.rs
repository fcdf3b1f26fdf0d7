//! What is mounted where, as the kernel tells it, and what a daemon that died left mounted.
//!
//! A FUSE mount whose server is gone stays: whatever is asked of it fails with "transport endpoint is not connected",
//! `stat` of its directory included, until it is unmounted.

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// What the source of every mount of weft's begins with; the virtual disk's name follows.
pub const SOURCE: &str = "weft:";

/// One mount of this mount namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// The directory.
    pub at: PathBuf,
    /// The type of its file system: `fuse`, `ext4`.
    pub kind: String,
    /// What is mounted: for ours [`SOURCE`] and a name, for disks a device.
    pub source: String,
}

/// All mounts that this process sees; the topmost of a directory comes last.
pub fn mounts() -> io::Result<Vec<Mounted>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// What is mounted on `dir` itself, topmost, if anything is.
pub fn mounted_at(dir: &Path) -> io::Result<Option<Mounted>> {
    let dir = resolved(dir)?;
    Ok(mounts()?.into_iter().rev().find(|mounted| mounted.at == dir))
}

/// `dir` without symbolic links, also when it is a mount whose server is gone.
pub fn resolved(dir: &Path) -> io::Result<PathBuf> {
    match dir.canonicalize() {
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            let parent = dir.parent().unwrap_or(dir).canonicalize()?;
            Ok(parent.join(dir.file_name().unwrap_or_default()))
        }
        resolved => resolved,
    }
}

/// Whether `dir` is a mount whose server is gone.
pub fn is_dead(dir: &Path) -> bool {
    // Without the flag the kernel may answer from what the dead server told it last.
    let asked = statx(CWD, dir, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    asked.is_err_and(|error| error == Errno::NOTCONN)
}

/// Unmounts what dead daemons left on `dir`; how many mounts that were. Only mounts of weft's are touched.
pub fn clear_dead(dir: &Path) -> io::Result<usize> {
    let mut cleared = 0;
    while is_dead(dir) {
        let found = mounted_at(dir)?;
        if !found.is_some_and(|found| found.source.starts_with(SOURCE)) {
            break;
        }
        detach(dir, false)?;
        cleared += 1;
    }
    Ok(cleared)
}

/// Takes the mount on `dir` out of the tree, used or not. `abort`: whatever is asked of a FUSE mount fails from now on;
/// only root can.
pub fn detach(dir: &Path, abort: bool) -> io::Result<()> {
    let force = if abort { UnmountFlags::FORCE } else { UnmountFlags::empty() };
    match unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW | force) {
        Err(Errno::PERM) => fusermount(dir, true),
        other => Ok(other?),
    }
}

/// Unmounts `dir`; an error with `ResourceBusy` when it is used.
pub fn unmount_unused(dir: &Path) -> io::Result<()> {
    match unmount(dir, UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => fusermount(dir, false),
        other => Ok(other?),
    }
}

/// Users who may not unmount by themselves have a helper for it.
fn fusermount(dir: &Path, lazily: bool) -> io::Result<()> {
    let mut command = std::process::Command::new("fusermount3");
    command.args(if lazily { &["-u", "-z", "-q"][..] } else { &["-u", "-q"] }).arg("--").arg(dir);
    match command.output()?.status.success() {
        true => Ok(()),
        false => Err(io::ErrorKind::ResourceBusy.into()),
    }
}

/// Reads the kernel's table: fields divided by blanks, a dash before the type and the source, odd bytes as `\ooo`.
fn parse(table: &[u8]) -> Vec<Mounted> {
    let lines = table.split(|byte| *byte == b'\n');
    let mounted = lines.filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        let text = |field: &[u8]| String::from_utf8_lossy(&unescaped(field)).into_owned();
        Some(Mounted {
            at: OsString::from_vec(unescaped(fields.get(4)?)).into(),
            kind: text(fields.get(dash + 1)?),
            source: text(fields.get(dash + 2)?),
        })
    });
    mounted.collect()
}

fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                bytes.push(digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read_with_its_escapes_and_optional_fields() {
        let table = b"36 35 98:0 / /mnt/a\\040b rw,noatime master:1 - fuse weft:tank/media rw\n\
            37 35 7:0 / /srv rw - ext4 /dev/loop0 rw,discard\nnonsense\n\n38 35 7:1 / /x\\ rw - xfs\n";
        let read = parse(table);
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].at.to_str(), read[0].kind.as_str()), (Some("/mnt/a b"), "fuse"));
        assert_eq!(read[0].source, "weft:tank/media");
        assert_eq!((read[1].at.to_str(), read[1].source.as_str()), (Some("/srv"), "/dev/loop0"));
    }

    #[test]
    fn a_directory_that_is_no_mount_is_neither_mounted_nor_dead() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(mounted_at(dir.path()).unwrap(), None);
        assert_eq!((is_dead(dir.path()), clear_dead(dir.path()).unwrap()), (false, 0));
        assert!(mounted_at(Path::new("/proc")).unwrap().is_some_and(|found| found.kind == "proc"));
    }
}
