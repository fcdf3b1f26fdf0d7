//! What a front end (NBD, FUSE, ublk; vhost-user-blk later) sees of a virtual disk: [`Volume`]. It hides the engine and
//! its thread; front ends hide their protocol from the engine.
//!
//! Invariants
//! 1. The front end validates every request once, against [`VolumeShape`], before `submit`: in range, aligned to the
//!    sector, not longer than [`REQUEST_MAX`] where data travels, writable. Below this line that is taken for granted.
//! 2. Every submitted operation is answered exactly once, from any thread, perhaps before `submit` returns.
//! 3. [`Op::Flush`] covers every write, trim and zeroing of the volume that was answered before the flush was
//!    submitted, whichever connection or front end it came through.

mod guest;
mod lent;
mod outlet;
mod payload;

pub use guest::{GUEST_BYTES, Guest, Visit};
pub use lent::{Lent, Returns};
pub use outlet::{Outlet, gather, push_all, push_later};
pub use payload::{PART, Payload, PayloadPool};

use std::sync::Arc;
use weft_engine::error::ErrorKind;
use weft_engine::limits::REQUEST_MAX;

/// What an export offers.
pub trait Volume: Send + Sync {
    /// What the volume is now. Asked once for each connection.
    fn shape(&self) -> VolumeShape;

    /// Starts `op`; `done` gets its answer (invariant 2). Must not block for long: the caller reads a socket.
    fn submit(&self, op: Op, done: Done);

    /// Starts `op` as `submit` does, but perhaps no sooner than [`Volume::kick`] is called, which the caller does
    /// before it waits for anything. So what comes together wakes the volume once.
    fn queue(&self, op: Op, done: Done) {
        self.submit(op, done);
    }

    /// Starts what was queued.
    fn kick(&self) {}

    /// Takes the requests of `guest` from its socket on the volume's own thread, until it [leaves](Guest::leave).
    /// `false`: this volume takes no guests.
    fn host(&self, _: Arc<dyn Guest>) -> bool {
        false
    }
}

/// The volumes on offer, by name.
pub trait Exports: Send + Sync {
    /// Their names, each at most 4096 bytes.
    fn list(&self) -> Vec<String>;

    /// The volume of that name.
    fn open(&self, name: &str) -> Option<Arc<dyn Volume>>;
}

/// Where an answer goes.
pub type Done = Box<dyn FnOnce(Result<Reply, ErrorKind>) + Send>;

/// What a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeShape {
    /// Its size in bytes.
    pub size: u64,
    /// The smallest unit and alignment of every request: 512 or 4096 bytes.
    pub sector: u32,
    /// The length of request it likes best, in bytes: the data length of a stripe. Need not be a power of two.
    pub preferred: u64,
    /// Bytes of a stripe on one column: whole blocks. Need not be a power of two.
    pub strip: u64,
    /// Whether it takes no writes.
    pub read_only: bool,
    /// Whether its disks seek.
    pub rotational: bool,
}

/// What is asked of a range, as far as the gate tells it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Its bytes.
    Read,
    /// Other bytes instead.
    Write,
    /// To be forgotten.
    Trim,
    /// To read as zeroes.
    Zero,
    /// Only to be looked at.
    Look,
}

/// Why a request is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// `InvalidInput`, `ReadOnly`, or `NoSpace` for what would write beyond the end.
    pub kind: ErrorKind,
    /// In words for people.
    pub why: &'static str,
}

impl VolumeShape {
    /// The gate of front ends whose clients ask for whole sectors: what it lets in keeps invariant 1.
    pub fn admit(&self, access: Access, offset: u64, len: u64) -> Result<(), Refused> {
        let refuse = |kind, why| Err(Refused { kind, why });
        if self.read_only && matches!(access, Access::Write | Access::Trim | Access::Zero) {
            return refuse(ErrorKind::ReadOnly, "the export is read-only");
        }
        if matches!(access, Access::Read | Access::Write) && len > REQUEST_MAX.0 {
            return refuse(ErrorKind::InvalidInput, "longer than the maximum block size");
        }
        let sector = u64::from(self.sector);
        if len == 0 || !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) {
            return refuse(ErrorKind::InvalidInput, "not whole sectors");
        }
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            let writes = matches!(access, Access::Write | Access::Zero);
            return refuse(if writes { ErrorKind::NoSpace } else { ErrorKind::InvalidInput }, "beyond the end");
        }
        Ok(())
    }
}

/// What a front end asks. Offsets and lengths in bytes.
#[derive(Debug)]
pub enum Op {
    /// Answered by [`Reply::Data`] of exactly `len` bytes.
    Read {
        /// From here.
        offset: u64,
        /// This much; at most [`REQUEST_MAX`].
        len: u32,
    },
    /// Answered by [`Reply::Done`] when the bytes will be seen by every later read.
    Write {
        /// To here.
        offset: u64,
        /// At most [`REQUEST_MAX`].
        data: Payload,
        /// Answer only when durable.
        fua: bool,
    },
    /// See invariant 3.
    Flush,
    /// The content of the range no longer matters. Any length.
    Trim {
        /// From here.
        offset: u64,
        /// This much.
        len: u64,
        /// Answer only when durable.
        fua: bool,
    },
    /// The range reads as zeroes from now on. Any length.
    WriteZeroes {
        /// From here.
        offset: u64,
        /// This much.
        len: u64,
        /// Keep (or take) room for the range, so that writing it later cannot run out of space.
        no_hole: bool,
        /// Answer [`ErrorKind::NotPossible`], quickly and without effect, if this is no faster than writing.
        fast: bool,
        /// Answer only when durable.
        fua: bool,
    },
    /// Answered by [`Reply::Extents`] from `offset` on: at least one, at most `limit`, together at most `len` bytes
    /// (and less where that is cheaper), each of whole sectors.
    Status {
        /// From here.
        offset: u64,
        /// This much.
        len: u64,
        /// The most extents wanted; at least one.
        limit: usize,
    },
}

/// What a volume answers.
#[derive(Debug)]
pub enum Reply {
    /// It is done.
    Done,
    /// What was read.
    Data(Pieces),
    /// What the range is made of.
    Extents(Vec<Extent>),
}

/// Part of a volume that is all of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// In bytes; not zero.
    pub len: u64,
    /// What it is.
    pub kind: ExtentKind,
}

/// What a part of a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentKind {
    /// Room is taken; any content.
    Data,
    /// Room is taken; reads as zeroes.
    Zero,
    /// No room is taken, a write may find no space; reads as zeroes.
    Hole,
}

/// The bytes of a read: buffers and runs of zeroes, handed on without being copied.
#[derive(Default, Debug)]
pub struct Pieces {
    pieces: Vec<Piece>,
    len: u64,
}

/// One part of [`Pieces`]; never empty.
#[derive(Debug)]
pub enum Piece {
    /// Bytes of their own.
    Owned(Vec<u8>),
    /// Bytes in memory that goes back to its pool when they were sent.
    Pooled(Payload),
    /// What a disk gave, as it is; it goes back to who lent it when it was sent.
    Lent(Lent),
    /// This many zeroes.
    Zeroes(u64),
}

impl Pieces {
    /// No bytes.
    pub fn new() -> Pieces {
        Pieces::default()
    }

    /// Appends `bytes`.
    pub fn push_owned(&mut self, bytes: Vec<u8>) {
        self.push(bytes.len() as u64, Piece::Owned(bytes));
    }

    /// Appends all of `bytes`.
    pub fn push_pooled(&mut self, bytes: Payload) {
        self.push(bytes.len() as u64, Piece::Pooled(bytes));
    }

    /// Appends all of `bytes`.
    pub fn push_lent(&mut self, bytes: Lent) {
        self.push(bytes.len() as u64, Piece::Lent(bytes));
    }

    /// Appends `len` zeroes.
    pub fn push_zeroes(&mut self, len: u64) {
        if let Some(Piece::Zeroes(run)) = self.pieces.last_mut() {
            *run += len;
            self.len += len;
        } else {
            self.push(len, Piece::Zeroes(len));
        }
    }

    /// How many bytes all parts have together.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parts, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    fn push(&mut self, len: u64, piece: Piece) {
        if len > 0 {
            self.len += len;
            self.pieces.push(piece);
        }
    }
}

impl Piece {
    /// Its bytes; `None` for zeroes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Piece::Owned(bytes) => Some(bytes),
            Piece::Pooled(bytes) => Some(bytes),
            Piece::Lent(bytes) => Some(bytes),
            Piece::Zeroes(_) => None,
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        match self {
            Piece::Zeroes(len) => *len,
            piece => piece.bytes().map_or(0, |bytes| bytes.len() as u64),
        }
    }

    /// Never: pieces without bytes are not kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

const _: () = assert!(REQUEST_MAX.0 <= u32::MAX as u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_zeroes_join_and_empty_pieces_vanish() {
        let mut pieces = Pieces::new();
        pieces.push_zeroes(512);
        pieces.push_zeroes(512);
        pieces.push_owned(Vec::new());
        pieces.push_owned(b"ef".to_vec());
        assert_eq!((pieces.len(), pieces.iter().count()), (1026, 2));
        assert_eq!(pieces.iter().last().and_then(Piece::bytes), Some(&b"ef"[..]));
    }
}
