//! The seam to the disks, and the buffers that cross it.
//!
//! Invariants
//! 1. A buffer handed to a disk is owned by the request until its future completes: nobody can change it underneath.
//! 2. Every access is whole 4 KiB blocks at a multiple of 4 KiB, in memory aligned to 4 KiB (so `O_DIRECT` always
//!    fits).
//! 3. A completed write is *volatile* until a later `flush` of the same disk completes. A flush covers every write that
//!    completed before the flush was first polled. Where [`Disk::write_cache`] says [`WriteCache::NonVolatile`], a
//!    completed write is durable without one.

use crate::units::{BLOCK, ByteCount, DiskOffset};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::ops::{Deref, DerefMut, Range};
use core::pin::Pin;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The answer of a disk, later. Owns all it needs; must be driven to its end once polled.
pub type IoFuture<T> = Pin<Box<dyn Future<Output = Result<T, DiskError>>>>;

/// One physical disk, as the engine sees it. Calls are submitted when first polled and may run concurrently and out of
/// order; overlapping concurrent writes are the caller's mistake.
pub trait Disk {
    /// What the disk is. Constant while it is open.
    fn shape(&self) -> DiskShape;

    /// Fills `into` from `at`, and gives it back.
    fn read(&self, at: DiskOffset, into: Buf) -> IoFuture<Buf>;

    /// Writes the slices one after the other from `at`. On an error any part of the range may hold old or new bytes.
    fn write(&self, at: DiskOffset, from: Vec<IoSlice>) -> IoFuture<()>;

    /// Makes every write that has completed durable.
    fn flush(&self) -> IoFuture<()>;

    /// Tells the disk that the range's content no longer matters. Reading it afterwards yields anything.
    fn discard(&self, at: DiskOffset, len: ByteCount) -> IoFuture<()>;

    /// What becomes of completed writes when the power fails, as of now: a cache may be switched on or off while the
    /// disk is in use.
    fn write_cache(&self) -> WriteCache {
        WriteCache::Unknown
    }
}

/// What a disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskShape {
    /// Its size in bytes; weft uses whole blocks of it.
    pub capacity: ByteCount,
    /// Its unit of atomic writing, as it reports it: 512 or 4096.
    pub physical_sector: u32,
    /// Whether it seeks.
    pub rotational: bool,
}

/// What becomes of what a disk has taken and was not flushed when the power fails, as far as can be known.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WriteCache {
    /// Nobody knows.
    #[default]
    Unknown,
    /// It may be lost with the disk's own cache.
    Volatile,
    /// Nothing is lost.
    NonVolatile,
    /// It may lie in memory that is not the disk's, whatever the disk is like: a file system's, or the page cache.
    Host,
}

/// Why a disk did not do as asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskError {
    /// The disk is not there any more, or will not answer again.
    Gone,
    /// The medium failed here; other places may work.
    Media,
    /// There is no room below it: the file system of its file, or its thin volume, is full. The disk itself is well.
    Full,
    /// Any other error, with its operating-system number.
    Os(i32),
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::Gone => f.write_str("the disk is gone"),
            DiskError::Media => f.write_str("medium error"),
            DiskError::Full => {
                f.write_str("no room is left below it: the file system of its file, or its thin volume, is full")
            }
            DiskError::Os(errno) => write!(f, "I/O error {errno}"),
        }
    }
}

/// 4 KiB of memory at a multiple of 4 KiB.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK as usize]);

/// Owned bytes for disks: a whole number of 4 KiB blocks, aligned to 4 KiB.
pub struct Buf {
    pages: Box<[Page]>,
}

impl Buf {
    /// `len` zero bytes; `len` must be a multiple of 4 KiB.
    pub fn zeroed(len: usize) -> Buf {
        assert!(len.is_multiple_of(BLOCK as usize), "a buffer is whole blocks, not {len} bytes");
        let pages = <[Page]>::new_box_zeroed_with_elems(len / BLOCK as usize).expect("out of memory");
        Buf { pages }
    }

    /// A copy of `bytes`, padded with zeros to whole blocks.
    pub fn copy_of(bytes: &[u8]) -> Buf {
        let (whole, rest) = bytes.as_chunks();
        if rest.is_empty() {
            // Nothing is cleared first.
            return Buf { pages: whole.iter().map(|page| Page(*page)).collect() };
        }
        let mut buf = Buf::zeroed(bytes.len().next_multiple_of(BLOCK as usize));
        buf[..bytes.len()].copy_from_slice(bytes);
        buf
    }

    /// This buffer as something that can be written in parts and shared, but never changed.
    pub fn freeze(self) -> IoSlice {
        let len = self.len();
        IoSlice { buf: Arc::new(self), range: 0..len }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.pages.as_bytes()
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut_bytes()
    }
}

impl Clone for Buf {
    fn clone(&self) -> Buf {
        Buf { pages: self.pages.clone() }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

/// An immutable, shared part of a buffer: whole blocks.
#[derive(Clone)]
pub struct IoSlice {
    buf: Arc<Buf>,
    range: Range<usize>,
}

impl IoSlice {
    /// A part of `buf`; whole blocks.
    pub fn new(buf: Arc<Buf>, range: Range<usize>) -> IoSlice {
        assert!(range.start.is_multiple_of(BLOCK as usize) && range.end.is_multiple_of(BLOCK as usize));
        assert!(range.start <= range.end && range.end <= buf.len());
        IoSlice { buf, range }
    }

    /// The whole buffer again, if nobody else has a part of it.
    pub fn into_buf(self) -> Option<Buf> {
        Arc::try_unwrap(self.buf).ok()
    }

    /// Which buffer it is a part of, and how long that is: memory that it keeps.
    pub fn memory(&self) -> (usize, usize) {
        (Arc::as_ptr(&self.buf).addr(), self.buf.len())
    }

    /// A part of this part; whole blocks.
    pub fn slice(&self, range: Range<usize>) -> IoSlice {
        assert!(range.end <= self.range.len());
        IoSlice::new(self.buf.clone(), self.range.start + range.start..self.range.start + range.end)
    }
}

impl Deref for IoSlice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.range.clone()]
    }
}

impl fmt::Debug for IoSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoSlice({:?})", self.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_padded_with_zeros() {
        let buf = Buf::copy_of(b"weft");
        assert_eq!(buf.len(), 4096);
        assert!((buf.as_ptr() as usize).is_multiple_of(4096));
        assert_eq!(&buf[..5], b"weft\0");
    }

    #[test]
    fn a_slice_of_a_slice_is_counted_from_its_own_start() {
        let mut buf = Buf::zeroed(4 * 4096);
        buf[2 * 4096] = 7;
        let slice = buf.freeze().slice(4096..4 * 4096);
        assert_eq!(slice.slice(4096..2 * 4096)[0], 7);
    }
}
