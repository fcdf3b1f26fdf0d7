//! The mounted directory, its one file, and what the kernel asks of them.

use super::gate::Gate;
use super::request::OpenFile;
use crate::export::{Exports, PayloadPool};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

const FILE: INodeNo = INodeNo(2);
/// How long the kernel may believe what it was told: the size changes when the virtual disk is grown.
const BELIEVE: Duration = Duration::from_secs(1);
/// Requests in the background at a time, asynchronous direct I/O of a loop device among them. The kernel's own default
/// of 12 starves it.
const BACKGROUND: u16 = 128;
/// The kernel sends no longer requests than this, and by default no longer ones than 1 MiB.
const WRITE_MAX: u32 = 4 << 20;
/// What `statfs` counts in. The kernel takes it for the grain of discards of a loop device on the file.
const STATFS_BLOCK: u64 = 4096;

/// What the server and its mounted directory share.
pub(super) struct Shared {
    pub exports: Arc<dyn Exports>,
    /// The export, by the name that `exports` knows.
    pub name: String,
    /// The file's name in the directory.
    pub file: String,
    pub gate: Arc<Gate>,
    pub buffers: Arc<PayloadPool>,
    /// Whether whatever is asked from now on is refused.
    pub closing: AtomicBool,
}

/// The directory.
pub(super) struct Tree {
    shared: Arc<Shared>,
    made: SystemTime,
    open: Mutex<Handles>,
}

#[derive(Default)]
struct Handles {
    next: u64,
    files: BTreeMap<u64, Arc<OpenFile>>,
}

impl Tree {
    pub fn new(shared: Arc<Shared>) -> Tree {
        Tree { shared, made: SystemTime::now(), open: Mutex::default() }
    }

    fn attributes(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o500, 0),
            FILE => {
                let volume = self.shared.exports.open(&self.shared.name).ok_or(Errno::EIO)?;
                let shape = volume.shape();
                (FileType::RegularFile, if shape.read_only { 0o400 } else { 0o600 }, shape.size)
            }
            _ => return Err(Errno::ENOENT),
        };
        Ok(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: STATFS_BLOCK as u32,
            flags: 0,
        })
    }

    /// The open file behind a handle, unless the export ends.
    fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Errno> {
        if self.shared.closing.load(Ordering::Acquire) {
            return Err(Errno::EIO);
        }
        self.handles().files.get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an older kernel lacks costs speed, nothing else. The writeback cache is not among them, for good reason.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_HANDLE_KILLPRIV_V2);
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.set_max_write(WRITE_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent != INodeNo::ROOT || name != OsStr::new(&self.shared.file) {
            return reply.error(Errno::ENOENT);
        }
        match self.attributes(FILE) {
            Ok(attributes) => reply.entry(&BELIEVE, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Ok(attributes) => reply.attr(&BELIEVE, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    /// Opening with O_TRUNC changes no size, as with a block device, so that `cp` and `dd` can write here; asking for
    /// another size, mode or owner is refused. Times are not kept.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let attributes = match self.attributes(ino) {
            Ok(attributes) => attributes,
            Err(errno) => return reply.error(errno),
        };
        let by_opening = handle.is_none() && size == Some(0);
        let same_size = size.is_none_or(|size| size == attributes.size) || by_opening;
        let same_mode = mode.is_none_or(|mode| mode & 0o7777 == u32::from(attributes.perm));
        let same_owner = uid.is_none_or(|uid| uid == attributes.uid) && gid.is_none_or(|gid| gid == attributes.gid);
        match same_size && same_mode && same_owner {
            true => reply.attr(&BELIEVE, &attributes),
            false => reply.error(Errno::EPERM),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino != FILE {
            return reply.error(Errno::EISDIR);
        }
        if self.shared.closing.load(Ordering::Acquire) {
            return reply.error(Errno::EIO);
        }
        let Some(volume) = self.shared.exports.open(&self.shared.name) else { return reply.error(Errno::EIO) };
        let file = OpenFile::new(volume, self.shared.gate.clone(), self.shared.buffers.clone());
        if file.is_read_only() && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let mut handles = self.handles();
        let handle = handles.next;
        handles.next += 1;
        handles.files.insert(handle, Arc::new(file));
        reply.opened(
            FileHandle(handle),
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH,
        );
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let closed = self.handles().files.remove(&handle.0);
        reply.ok();
        drop(closed);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.file(handle) {
            Ok(file) => file.read(offset, size, |outcome| match outcome {
                Ok(bytes) => reply.data(bytes),
                Err(errno) => reply.error(Errno::from_i32(errno)),
            }),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // O_SYNC contains the bit of O_DSYNC.
        let fua = flags.0 & libc::O_DSYNC != 0;
        match self.file(handle) {
            Ok(file) => file.write(offset, data, fua, |outcome| match outcome {
                Ok(written) => reply.written(written),
                Err(errno) => reply.error(Errno::from_i32(errno)),
            }),
            Err(errno) => reply.error(errno),
        }
    }

    /// Closing promises nothing.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.file(handle) {
            Ok(file) => file.flush(|outcome| empty(reply, outcome)),
            Err(errno) => reply.error(errno),
        }
    }

    /// Punching a hole and zeroing a range are promises: both read as zeroes afterwards. Reserving room is not offered.
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let punch = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            libc::FALLOC_FL_PUNCH_HOLE => true,
            libc::FALLOC_FL_ZERO_RANGE => false,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        match self.file(handle) {
            Ok(file) => file.zero(offset, length, punch, |outcome| empty(reply, outcome)),
            Err(errno) => reply.error(errno),
        }
    }

    fn lseek(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let data = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.file(handle).map(|file| file.seek(offset, data)) {
            Ok(Ok(at)) => reply.offset(at as i64),
            Ok(Err(errno)) => reply.error(Errno::from_i32(errno)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let (here, file) = (FileType::Directory, FileType::RegularFile);
        let entries =
            [(INodeNo::ROOT, here, "."), (INodeNo::ROOT, here, ".."), (FILE, file, self.shared.file.as_str())];
        for (n, (ino, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, n as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let size = self.attributes(FILE).map_or(0, |attributes| attributes.size);
        reply.statfs(size / STATFS_BLOCK, 0, 0, 1, 0, STATFS_BLOCK as u32, 255, STATFS_BLOCK as u32);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}

fn empty(reply: ReplyEmpty, outcome: Result<(), i32>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(Errno::from_i32(errno)),
    }
}
