//! One request to a disk, and how far it has come. Both drivers move data by the same rules, which are here:
//!
//! 1. The kernel may do less than asked: the rest is asked for again, from a block boundary.
//! 2. An interrupted call is repeated; a call that makes no progress [`IDLE_MAX`] times in a row is an error.
//! 3. A file that ends before its size is a damaged place, not the end of the disk.
//! 4. A disk that cannot discard has done all it can.

use super::file::OpenDisk;
use rustix::io::Errno;
use std::sync::Arc;
use weft_engine::io::{Buf, DiskError, IoSlice};
use weft_engine::units::BLOCK;

/// The most pieces of memory one call takes (the kernel's UIO_MAXIOV).
pub(super) const PIECES_MAX: usize = 1024;
/// The most bytes one call moves; the kernel's own limit is 2 GiB less a page.
pub(super) const CALL_BYTES_MAX: usize = 1 << 30;
/// Calls without progress before it counts as an error.
const IDLE_MAX: u32 = 100;

/// Bytes that are copied in less time than it takes to wake a thread that does it.
const SHORT: u64 = 64 << 10;

/// A request and all its memory. Offsets and lengths are bytes, whole blocks.
pub(crate) enum Op {
    Read { at: u64, buf: Buf },
    Write { at: u64, slices: Vec<IoSlice> },
    Flush,
    Discard { at: u64, len: u64 },
}

/// A request on its way.
pub(crate) struct Transfer {
    pub(super) file: Arc<OpenDisk>,
    pub(super) op: Op,
    done: usize,
    idle: u32,
}

/// What comes after a call to the kernel.
pub(super) enum Step {
    /// The rest needs another call.
    Again,
    /// The request is complete.
    End(Result<(), DiskError>),
}

impl Op {
    /// Refuses what the disk must not be asked.
    pub(super) fn validate(&self, file: &OpenDisk) -> Result<(), Errno> {
        let (at, changes) = match self {
            Op::Flush => return Ok(()),
            Op::Read { at, .. } => (*at, false),
            Op::Write { at, .. } | Op::Discard { at, .. } => (*at, true),
        };
        let end = at.checked_add(self.len()).ok_or(Errno::INVAL)?;
        if end > file.shape().capacity.0 {
            return Err(Errno::INVAL);
        }
        if changes && file.is_read_only() { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// Whether the request is complete before it began.
    pub(super) fn is_nothing(&self, file: &OpenDisk) -> bool {
        match self {
            Op::Flush => false,
            Op::Discard { len, .. } => *len == 0 || !file.can_discard(),
            Op::Read { .. } | Op::Write { .. } => self.len() == 0,
        }
    }

    /// Whether it is soon done where nothing has to be waited for.
    pub(super) fn is_short(&self) -> bool {
        !matches!(self, Op::Discard { .. }) && self.len() <= SHORT
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Op::Read { buf, .. } => buf.len() as u64,
            Op::Write { slices, .. } => slices.iter().map(|slice| slice.len() as u64).sum(),
            Op::Flush => 0,
            Op::Discard { len, .. } => *len,
        }
    }
}

impl Transfer {
    pub(super) fn new(file: Arc<OpenDisk>, op: Op) -> Transfer {
        Transfer { file, op, done: 0, idle: 0 }
    }

    /// Where on the disk the next call begins.
    pub(super) fn next_at(&self) -> u64 {
        match &self.op {
            Op::Read { at, .. } | Op::Write { at, .. } => at + self.done as u64,
            Op::Discard { at, .. } => *at,
            Op::Flush => 0,
        }
    }

    /// The memory the next call of a read fills.
    pub(super) fn next_room(&mut self) -> &mut [u8] {
        let Op::Read { buf, .. } = &mut self.op else { unreachable!("only a read has room to fill") };
        let end = buf.len().min(self.done + CALL_BYTES_MAX);
        &mut buf[self.done..end]
    }

    /// The memory the next call of a write takes, piece by piece.
    pub(super) fn next_pieces(&self) -> impl Iterator<Item = &[u8]> {
        let Op::Write { slices, .. } = &self.op else { unreachable!("only a write has pieces to take") };
        let mut skip = self.done;
        let mut left = CALL_BYTES_MAX;
        slices
            .iter()
            .filter_map(move |slice| {
                let skipped = skip.min(slice.len());
                skip -= skipped;
                let piece = &slice[skipped..];
                let piece = &piece[..piece.len().min(left)];
                left -= piece.len();
                (!piece.is_empty()).then_some(piece)
            })
            .take(PIECES_MAX)
    }

    /// Takes the kernel's answer to the last call: bytes moved (anything for flush and discard), or an error.
    pub(super) fn advance(&mut self, answer: Result<usize, Errno>) -> Step {
        match (answer, &self.op) {
            (Err(Errno::INTR | Errno::AGAIN), _) => self.pause(),
            (Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY), Op::Discard { .. }) => {
                self.file.cannot_discard();
                Step::End(Ok(()))
            }
            (Err(errno), _) => Step::End(Err(disk_error(errno))),
            (Ok(_), Op::Flush | Op::Discard { .. }) => Step::End(Ok(())),
            (Ok(0), _) => Step::End(Err(DiskError::Media)),
            (Ok(bytes), _) => self.move_on(bytes),
        }
    }

    fn move_on(&mut self, bytes: usize) -> Step {
        let total = self.op.len() as usize;
        let done = self.done + bytes;
        assert!(done <= total, "the kernel moved {bytes} bytes more than it was asked to");
        if done == total {
            return Step::End(Ok(()));
        }
        let whole = done - done % BLOCK as usize;
        if whole == self.done {
            return self.pause();
        }
        self.done = whole;
        self.idle = 0;
        Step::Again
    }

    fn pause(&mut self) -> Step {
        self.idle += 1;
        if self.idle < IDLE_MAX { Step::Again } else { Step::End(Err(DiskError::Os(Errno::AGAIN.raw_os_error()))) }
    }
}

/// What the kernel's error means to the engine.
pub(super) fn disk_error(errno: Errno) -> DiskError {
    match errno {
        Errno::NODEV | Errno::NXIO => DiskError::Gone,
        // ENODATA is the block layer's medium error, EILSEQ its failed integrity check; EUCLEAN and EBADMSG are how
        // file systems report their own bad checksums.
        Errno::IO | Errno::ILSEQ | Errno::NODATA | Errno::BADMSG | Errno::UCLEAN => DiskError::Media,
        Errno::NOSPC | Errno::DQUOT => DiskError::Full,
        other => DiskError::Os(other.raw_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::DiskOptions;
    use super::*;
    use weft_engine::units::ByteCount;

    const B: usize = BLOCK as usize;

    fn transfer(op: Op) -> (tempfile::TempDir, Transfer) {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let options = DiskOptions { create: Some(ByteCount::mib(1)), ..DiskOptions::default() };
        let file = OpenDisk::open(&scratch.path().join("disk"), &options).expect("a scratch disk opens");
        (scratch, Transfer::new(Arc::new(file), op))
    }

    fn slices(blocks: &[usize]) -> Vec<IoSlice> {
        blocks.iter().map(|blocks| Buf::zeroed(blocks * B).freeze()).collect()
    }

    #[test]
    fn a_short_write_goes_on_at_the_block_where_it_stopped() {
        let (_scratch, mut transfer) = transfer(Op::Write { at: 4 * BLOCK, slices: slices(&[2, 3, 1]) });
        assert!(matches!(transfer.advance(Ok(3 * B + 512)), Step::Again));
        assert_eq!(transfer.next_at(), 7 * BLOCK);
        assert_eq!(transfer.next_pieces().map(<[u8]>::len).collect::<Vec<_>>(), [2 * B, B]);
        assert!(matches!(transfer.advance(Ok(3 * B)), Step::End(Ok(()))));
    }

    #[test]
    fn more_pieces_than_a_call_takes_are_split() {
        let (_scratch, mut transfer) = transfer(Op::Write { at: 0, slices: slices(&[1; PIECES_MAX + 5]) });
        assert_eq!(transfer.next_pieces().count(), PIECES_MAX);
        assert!(matches!(transfer.advance(Ok(PIECES_MAX * B)), Step::Again));
        assert_eq!(transfer.next_pieces().count(), 5);
    }

    #[test]
    fn a_read_that_ends_early_is_a_medium_error() {
        let (_scratch, mut transfer) = transfer(Op::Read { at: 0, buf: Buf::zeroed(4 * B) });
        assert!(matches!(transfer.advance(Ok(B)), Step::Again));
        assert_eq!(transfer.next_room().len(), 3 * B);
        assert!(matches!(transfer.advance(Ok(0)), Step::End(Err(DiskError::Media))));
    }

    #[test]
    fn a_call_that_is_never_served_ends_in_an_error() {
        let (_scratch, mut transfer) = transfer(Op::Flush);
        let again =
            (0..10 * IDLE_MAX).take_while(|_| matches!(transfer.advance(Err(Errno::AGAIN)), Step::Again)).count();
        assert_eq!(again as u32, IDLE_MAX - 1);
    }

    #[test]
    fn errors_are_sorted_into_gone_medium_and_other() {
        assert_eq!(disk_error(Errno::NODEV), DiskError::Gone);
        assert_eq!(disk_error(Errno::NXIO), DiskError::Gone);
        assert_eq!(disk_error(Errno::IO), DiskError::Media);
        assert_eq!(disk_error(Errno::ILSEQ), DiskError::Media);
        assert_eq!((disk_error(Errno::NOSPC), disk_error(Errno::DQUOT)), (DiskError::Full, DiskError::Full));
        assert_eq!(disk_error(Errno::AGAIN), DiskError::Os(Errno::AGAIN.raw_os_error()));
    }

    #[test]
    fn a_disk_that_cannot_discard_is_asked_once() {
        let (_scratch, mut transfer) = transfer(Op::Discard { at: 0, len: BLOCK });
        assert!(!transfer.op.is_nothing(&transfer.file));
        assert!(matches!(transfer.advance(Err(Errno::OPNOTSUPP)), Step::End(Ok(()))));
        assert!(transfer.op.is_nothing(&transfer.file));
    }
}
