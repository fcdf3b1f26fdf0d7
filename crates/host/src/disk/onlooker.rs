//! A disk that is read without being claimed: for whoever looks on while others may use it.
//!
//! Invariants
//! 1. The disk is opened for reading only, and asked for nothing else.
//! 2. Nothing is locked: a daemon that starts meanwhile finds the disk free.

use rustix::fs::{self, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use weft_engine::io::{Buf, Disk, DiskError, DiskShape, IoFuture, IoSlice};
use weft_engine::units::{BLOCK, ByteCount, DiskOffset};

/// A disk that is only looked at. Every answer of it is there when its future is first polled.
pub struct Onlooker {
    fd: OwnedFd,
    capacity: ByteCount,
}

impl Onlooker {
    /// Opens the disk at `path`; a pipe, or anything else that is no file and no block device, is `EINVAL`.
    pub fn open(path: &Path) -> Result<Onlooker, Errno> {
        let kind = fs::FileType::from_raw_mode(fs::stat(path)?.st_mode);
        if !matches!(kind, fs::FileType::RegularFile | fs::FileType::BlockDevice) {
            return Err(Errno::INVAL);
        }
        let (fd, _) = open_to_read(path)?;
        let capacity = ByteCount(fs::seek(&fd, SeekFrom::End(0))? / BLOCK * BLOCK);
        Ok(Onlooker { fd, capacity })
    }

    fn read_now(&self, at: DiskOffset, mut into: Buf) -> Result<Buf, DiskError> {
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.fd, &mut into[done..], at.0 + done as u64) {
                Ok(0) => return Err(DiskError::Media),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(Errno::IO) => return Err(DiskError::Media),
                Err(errno) => return Err(DiskError::Os(errno.raw_os_error())),
            }
        }
        Ok(into)
    }
}

/// Opens for reading, past the page cache where that is possible: then `true` comes with it.
pub(crate) fn open_to_read(path: &Path) -> Result<(OwnedFd, bool), Errno> {
    let flags = OFlags::CLOEXEC | OFlags::RDONLY;
    let direct = fs::open(path, flags | OFlags::DIRECT, Mode::empty()).and_then(|fd| {
        match rustix::io::pread(&fd, &mut Buf::zeroed(BLOCK as usize)[..], 0) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Err(Errno::INVAL),
            _ => Ok(fd),
        }
    });
    match direct {
        Ok(fd) => Ok((fd, true)),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((fs::open(path, flags, Mode::empty())?, false)),
        Err(errno) => Err(errno),
    }
}

impl Disk for Onlooker {
    fn shape(&self) -> DiskShape {
        DiskShape { capacity: self.capacity, physical_sector: BLOCK as u32, rotational: false }
    }

    fn read(&self, at: DiskOffset, into: Buf) -> IoFuture<Buf> {
        let read = self.read_now(at, into);
        Box::pin(async move { read })
    }

    fn write(&self, _: DiskOffset, _: Vec<IoSlice>) -> IoFuture<()> {
        Box::pin(async { Err(read_only()) })
    }

    fn flush(&self) -> IoFuture<()> {
        Box::pin(async { Err(read_only()) })
    }

    fn discard(&self, _: DiskOffset, _: ByteCount) -> IoFuture<()> {
        Box::pin(async { Err(read_only()) })
    }
}

fn read_only() -> DiskError {
    DiskError::Os(Errno::ROFS.raw_os_error())
}
