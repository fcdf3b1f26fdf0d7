//! Opening a disk: a plain file or a block device, for this process alone.
//!
//! Invariants
//! 1. An open disk is locked: `flock` on a file, `O_EXCL` on a block device. A second opener, here or in any other
//!    process that keeps the same rule (mounts, LVM, MD, other weft daemons), is refused. The lock goes with the
//!    [`OpenDisk`], a file's also where a process that is just being started still has the descriptor.
//! 2. An existing file is never created over, resized or otherwise changed by opening it.
//! 3. `O_DIRECT` is used only after a direct read of one block has worked.
//! 4. Only a block device that is reached directly speaks of its own cache: all else has the machine's memory before
//!    it.

use super::geometry;
use super::watch::Presence;
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weft_engine::error::{Error, ErrorKind, Result};
use weft_engine::io::{Buf, DiskShape, WriteCache};
use weft_engine::units::{BLOCK, ByteCount};

/// Somebody else serves the file's content: FUSE, NFS, SMB, 9P, Ceph (magic numbers of `statfs(2)`). Even a request
/// that is submitted to io_uring waits there for a place in a queue, or for the file's size.
const SERVED: &[u64] = &[0x6573_5546, 0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997, 0x00c3_6400];
/// Everything is kept in memory: tmpfs, ramfs.
const IN_MEMORY: &[u64] = &[0x0102_1994, 0x8584_58f6];

/// How to open a disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskOptions {
    /// Makes a missing file, sparse and of this size (bytes; whole blocks). An existing file keeps its size.
    pub create: Option<ByteCount>,
    /// Refuses writes and discards (`EROFS`); still claims the disk.
    pub read_only: bool,
    /// Uses the page cache even where direct I/O would work.
    pub buffered: bool,
}

/// A claimed disk: may be opened on any thread and handed to the engine's.
pub struct OpenDisk {
    fd: OwnedFd,
    kind: DiskKind,
    shape: DiskShape,
    direct: bool,
    may_block: bool,
    in_memory: bool,
    read_only: bool,
    created: bool,
    discards: AtomicBool,
    /// Where the kernel says what its write cache is like, where that is the question.
    write_cache: Option<std::fs::File>,
    presence: Arc<Presence>,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskKind {
    /// A plain file.
    File,
    /// A block device.
    Block,
}

impl OpenDisk {
    /// Opens and claims the disk at `path`.
    ///
    /// Errors: `NotFound` (no such path, and nothing to create), `AlreadyExists` (in use by someone), `InvalidInput`
    /// (a directory, a pipe, ..., or smaller than one block), `NotPossible` (permission and anything else).
    pub fn open(path: &Path, options: &DiskOptions) -> Result<OpenDisk> {
        let path = std::path::absolute(path).map_err(|why| {
            Error::new(ErrorKind::InvalidInput, format!("\"{}\" is not a usable path: {why}", path.display()))
        })?;
        match kind_at(&path) {
            Ok(kind) => OpenDisk::open_existing(&path, kind, options),
            Err(Errno::NOENT) => match options.create {
                Some(size) => OpenDisk::create(&path, size, options),
                None => Err(cannot("open", &path, Errno::NOENT)),
            },
            Err(errno) => Err(cannot("open", &path, errno)),
        }
    }

    fn open_existing(path: &Path, kind: Option<DiskKind>, options: &DiskOptions) -> Result<OpenDisk> {
        let Some(kind) = kind else {
            let what = format!("{} is neither a plain file nor a block device", path.display());
            return Err(Error::new(ErrorKind::InvalidInput, what));
        };
        // The names under /dev/disk come and go with udev's moods; the device itself is what must not vanish.
        let path = match kind {
            DiskKind::Block => std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()),
            DiskKind::File => path.to_path_buf(),
        };
        let mut flags = OFlags::CLOEXEC | if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        if kind == DiskKind::Block {
            flags |= OFlags::EXCL;
        }
        let fd = fs::open(&path, flags, Mode::empty()).map_err(|errno| cannot("open", &path, errno))?;
        OpenDisk::claim(fd, path, kind, false, options)
    }

    fn create(path: &Path, size: ByteCount, options: &DiskOptions) -> Result<OpenDisk> {
        if size == ByteCount::ZERO || !size.is_multiple_of(BLOCK) {
            let what = format!("a disk file of {} bytes is not possible: the size must be a multiple of 4 KiB", size.0);
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let fd = fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| cannot("create", path, errno))?;
        let made = lock(&fd, path)
            .and_then(|()| make_durable(&fd, path, size).map_err(|errno| cannot("create", path, errno)))
            .and_then(|()| OpenDisk::claim(fd, path.to_path_buf(), DiskKind::File, true, options));
        if made.is_err() {
            // Nobody else had it: EXCL made it ours. What is left behind would only be in the way of the next try.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn claim(fd: OwnedFd, path: PathBuf, kind: DiskKind, created: bool, options: &DiskOptions) -> Result<OpenDisk> {
        if kind == DiskKind::File {
            lock(&fd, &path)?;
        }
        let presence = Presence::of(&fd, path).map_err(|(path, errno)| cannot("open", &path, errno))?;
        let path = presence.path();
        if presence.look() {
            return Err(cannot("open", path, Errno::NOENT));
        }
        let capacity = fs::seek(&fd, SeekFrom::End(0)).map_err(|errno| cannot("measure", path, errno))?;
        if capacity < BLOCK {
            let what = format!("{} holds {capacity} bytes; a disk needs far more", path.display());
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        let direct = !options.buffered && go_direct(&fd);
        let shape = DiskShape {
            capacity: ByteCount(capacity),
            physical_sector: geometry::physical_sector(&fd, kind),
            rotational: geometry::is_rotational(&fd, kind),
        };
        let (read_only, discards) = (options.read_only, AtomicBool::new(true));
        let may_block = kind == DiskKind::File && is_of_one(&fd, SERVED);
        let in_memory = kind == DiskKind::File && is_of_one(&fd, IN_MEMORY);
        let write_cache = if kind == DiskKind::Block { geometry::write_cache_at(&fd) } else { None };
        let presence = Arc::new(presence);
        Ok(OpenDisk {
            fd,
            kind,
            shape,
            direct,
            may_block,
            in_memory,
            read_only,
            created,
            discards,
            write_cache,
            presence,
        })
    }

    /// What the disk is, as it was when opened.
    pub fn shape(&self) -> DiskShape {
        self.shape
    }

    /// The absolute path by which it was opened (of a block device: with symbolic links resolved).
    pub fn path(&self) -> &Path {
        self.presence.path()
    }

    /// Plain file or block device.
    pub fn kind(&self) -> DiskKind {
        self.kind
    }

    /// Whether the page cache is bypassed.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// What becomes of completed writes when the power fails, as of now. Of a file nothing but a flush makes its size
    /// and its extents durable; and the page cache is as volatile as memory is.
    pub fn write_cache(&self) -> WriteCache {
        match (&self.write_cache, self.kind == DiskKind::Block && self.direct) {
            (_, false) => WriteCache::Host,
            (Some(said), true) => geometry::read_write_cache(said),
            (None, true) => WriteCache::Unknown,
        }
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether opening made the file.
    pub fn was_created(&self) -> bool {
        self.created
    }

    pub(super) fn presence(&self) -> &Arc<Presence> {
        &self.presence
    }

    /// Whether the kernel may let whoever asks for something wait, although it was asked not to.
    pub(super) fn may_block(&self) -> bool {
        self.may_block
    }

    /// Whether no request waits for a device: its file system keeps everything in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    pub(super) fn can_discard(&self) -> bool {
        self.discards.load(Ordering::Relaxed)
    }

    pub(super) fn cannot_discard(&self) {
        self.discards.store(false, Ordering::Relaxed);
    }
}

impl Drop for OpenDisk {
    /// Ends the claim. To close the descriptor is not enough: until a process that was started meanwhile has become
    /// another program, it has all descriptors of this one, and with them their locks.
    fn drop(&mut self) {
        if self.kind == DiskKind::File {
            let _ = fs::flock(&self.fd, FlockOperation::NonBlockingUnlock);
        }
    }
}

impl AsFd for OpenDisk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Display for OpenDisk {
    /// `/disks/a (file, direct I/O)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == DiskKind::File { "file" } else { "block device" };
        let how = if self.direct { "direct" } else { "buffered" };
        write!(f, "{} ({kind}, {how} I/O)", self.path().display())
    }
}

impl fmt::Debug for OpenDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenDisk({self})")
    }
}

/// `None`: something that is no disk.
fn kind_at(path: &Path) -> rustix::io::Result<Option<DiskKind>> {
    Ok(match FileType::from_raw_mode(fs::stat(path)?.st_mode) {
        FileType::RegularFile => Some(DiskKind::File),
        FileType::BlockDevice => Some(DiskKind::Block),
        _ => None,
    })
}

fn lock(fd: &OwnedFd, path: &Path) -> Result<()> {
    fs::flock(fd, FlockOperation::NonBlockingLockExclusive).map_err(|errno| cannot("claim", path, errno))
}

/// The file's size and its name must outlive a crash, or a flushed pool could lose a whole disk.
fn make_durable(fd: &OwnedFd, path: &Path, size: ByteCount) -> rustix::io::Result<()> {
    fs::ftruncate(fd, size.0)?;
    fs::fsync(fd)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let parent = fs::open(parent, OFlags::CLOEXEC | OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    fs::fsync(parent)
}

/// Whether the file is on a file system of one of these.
fn is_of_one(fd: &OwnedFd, kinds: &[u64]) -> bool {
    fs::fstatfs(fd).is_ok_and(|stat| kinds.contains(&(stat.f_type as u32 as u64)))
}

/// Switches the descriptor to direct I/O if a block can be read that way.
fn go_direct(fd: &OwnedFd) -> bool {
    let Ok(flags) = fs::fcntl_getfl(fd) else { return false };
    if fs::fcntl_setfl(fd, flags | OFlags::DIRECT).is_err() {
        return false;
    }
    let mut probe = Buf::zeroed(BLOCK as usize);
    match rustix::io::pread(fd, &mut probe[..], 0) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            // Alignment beyond a block, or a file system that only pretends. Any other error is no reason to give up
            // direct I/O: the medium may be bad in this place.
            let back = fs::fcntl_setfl(fd, flags);
            assert!(back.is_ok(), "a flag that could be set can be cleared");
            false
        }
        _ => true,
    }
}

fn cannot(what: &str, path: &Path, errno: Errno) -> Error {
    let path = path.display();
    match errno {
        Errno::NOENT => Error::new(ErrorKind::NotFound, format!("cannot {what} {path}: it does not exist")),
        Errno::BUSY | Errno::WOULDBLOCK => Error::new(
            ErrorKind::AlreadyExists,
            format!("{path} is in use: by another weft daemon, a mount, or another program that claimed it"),
        ),
        Errno::EXIST => Error::new(ErrorKind::AlreadyExists, format!("cannot {what} {path}: somebody else just did")),
        Errno::NOSPC => Error::new(ErrorKind::NoSpace, format!("cannot {what} {path}: the file system is full")),
        _ => Error::new(ErrorKind::NotPossible, format!("cannot {what} {path}: {errno}")),
    }
}
