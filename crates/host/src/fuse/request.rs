//! What is asked of the file, validated and made an operation of the volume.
//!
//! A file may be read and written at any byte, a volume only in whole sectors. A read takes the sectors around what is
//! wanted. A write of parts of sectors reads those sectors, merges, and writes whole ones (invariant 2 of the module).
//!
//! Invariants
//! 1. What is submitted is in range, whole sectors, not longer than `REQUEST_MAX`, and only asked of volumes that take
//!    it.
//! 2. Like a block device, the file has a fixed size: a write is cut at the end, and one beyond it finds no space.

use super::gate::{Gate, Pass};
use crate::errno::names;
use crate::export::{ExtentKind, Op, PayloadPool, Piece, Pieces, Reply, Volume, VolumeShape};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use weft_engine::error::ErrorKind;
use weft_engine::limits::REQUEST_MAX;

/// An `errno` number.
pub(super) type Errno = i32;

/// The most extents asked for at once while looking for data or a hole.
const EXTENTS_MAX: usize = 1024;

/// The file, as somebody opened it.
pub(super) struct OpenFile {
    volume: Arc<dyn Volume>,
    shape: VolumeShape,
    gate: Arc<Gate>,
    buffers: Arc<PayloadPool>,
}

impl OpenFile {
    /// The file over `volume`; all of one export share the gate and the buffers.
    pub fn new(volume: Arc<dyn Volume>, gate: Arc<Gate>, buffers: Arc<PayloadPool>) -> OpenFile {
        let shape = volume.shape();
        OpenFile { volume, shape, gate, buffers }
    }

    /// Whether it takes no writes.
    pub fn is_read_only(&self) -> bool {
        self.shape.read_only
    }

    /// Reads up to `len` bytes at `offset`; fewer at the end of the file.
    pub fn read(&self, offset: u64, len: u32, answer: impl FnOnce(Result<&[u8], Errno>) + Send + 'static) {
        let wanted = offset.min(self.shape.size)..offset.saturating_add(len.into()).min(self.shape.size);
        if wanted.is_empty() {
            return answer(Ok(&[]));
        }
        let whole = self.whole_sectors(&wanted);
        let len = whole.end - whole.start;
        if len > REQUEST_MAX.0 {
            return answer(Err(libc::EINVAL));
        }
        let pass = self.gate.enter(len as usize);
        let part = (wanted.start - whole.start) as usize..(wanted.end - whole.start) as usize;
        let op = Op::Read { offset: whole.start, len: len as u32 };
        self.submit(op, pass, move |outcome| match outcome {
            Ok(Reply::Data(pieces)) => with_bytes(&pieces, |bytes| match bytes.get(part) {
                Some(bytes) => answer(Ok(bytes)),
                None => answer(Err(libc::EIO)),
            }),
            Ok(_) => answer(Err(libc::EIO)),
            Err(errno) => answer(Err(errno)),
        });
    }

    /// Writes `data` at `offset`, durably when `fua`; the answer is how much was written.
    pub fn write(&self, offset: u64, data: &[u8], fua: bool, answer: impl FnOnce(Result<u32, Errno>) + Send + 'static) {
        if self.shape.read_only {
            return answer(Err(libc::EROFS));
        }
        if offset >= self.shape.size || data.len() as u64 > REQUEST_MAX.0 {
            return answer(if data.is_empty() { Ok(0) } else { Err(libc::ENOSPC) });
        }
        let data = &data[..data.len().min((self.shape.size - offset) as usize)];
        let wanted = offset..offset + data.len() as u64;
        if data.is_empty() {
            return answer(Ok(0));
        }
        if self.whole_sectors(&wanted) != wanted {
            return answer(self.merge(wanted, data, fua));
        }
        let pass = self.gate.enter(data.len());
        let mut copy = self.buffers.take(data.len());
        copy.copy_from_slice(data);
        let len = data.len() as u32;
        self.submit(Op::Write { offset, data: copy, fua }, pass, move |outcome| answer(outcome.map(|_| len)));
    }

    /// Makes durable what was answered.
    pub fn flush(&self, answer: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let pass = self.gate.enter(0);
        self.submit(Op::Flush, pass, move |outcome| answer(outcome.map(drop)));
    }

    /// Makes the range read as zeroes, giving its room back when `punch`. What lies beyond the end is not there.
    pub fn zero(&self, offset: u64, len: u64, punch: bool, answer: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        if self.shape.read_only {
            return answer(Err(libc::EROFS));
        }
        let wanted = offset.min(self.shape.size)..offset.saturating_add(len).min(self.shape.size);
        if wanted.is_empty() {
            return answer(Ok(()));
        }
        let sector = u64::from(self.shape.sector);
        let inner = wanted.start.next_multiple_of(sector)..wanted.end / sector * sector;
        let edges = match inner.start < inner.end {
            true => vec![wanted.start..inner.start, inner.end..wanted.end],
            false => vec![wanted.clone()],
        };
        for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
            let zeroes = vec![0; (edge.end - edge.start) as usize];
            if let Err(errno) = self.merge(edge, &zeroes, false) {
                return answer(Err(errno));
            }
        }
        if inner.start >= inner.end {
            return answer(Ok(()));
        }
        let (offset, len) = (inner.start, inner.end - inner.start);
        let pass = self.gate.enter(0);
        let op = Op::WriteZeroes { offset, len, no_hole: !punch, fast: false, fua: false };
        self.submit(op, pass, move |outcome| answer(outcome.map(drop)));
    }

    /// The first byte at or after `offset` that is data, or that is in a hole; the end of the file is a hole.
    pub fn seek(&self, offset: u64, data: bool) -> Result<u64, Errno> {
        let size = self.shape.size;
        let mut at = offset;
        if at >= size {
            return Err(libc::ENXIO);
        }
        while at < size {
            let start = at / u64::from(self.shape.sector) * u64::from(self.shape.sector);
            let status = Op::Status { offset: start, len: size - start, limit: EXTENTS_MAX };
            let Reply::Extents(extents) = self.ask(status)? else { return Err(libc::EIO) };
            let mut end = start;
            for extent in extents {
                end += extent.len;
                if end > at && (extent.kind == ExtentKind::Data) == data {
                    return Ok(at);
                }
                at = at.max(end);
            }
            if end <= start {
                return Err(libc::EIO);
            }
        }
        if data { Err(libc::ENXIO) } else { Ok(size) }
    }

    /// Writes parts of sectors: reads them, merges, writes whole ones, with nothing else under way.
    fn merge(&self, wanted: Range<u64>, data: &[u8], fua: bool) -> Result<u32, Errno> {
        let _alone = self.gate.alone();
        let (whole, sector) = (self.whole_sectors(&wanted), u64::from(self.shape.sector));
        let mut merged = self.buffers.take((whole.end - whole.start) as usize);
        let (first, last) = (whole.start, whole.end - sector);
        for edge in if first == last { vec![first] } else { vec![first, last] } {
            let Reply::Data(pieces) = self.ask(Op::Read { offset: edge, len: self.shape.sector })? else {
                return Err(libc::EIO);
            };
            let at = (edge - whole.start) as usize;
            with_bytes(&pieces, |bytes| merged[at..at + sector as usize].copy_from_slice(bytes));
        }
        let at = (wanted.start - whole.start) as usize;
        merged[at..at + data.len()].copy_from_slice(data);
        self.ask(Op::Write { offset: whole.start, data: merged, fua })?;
        Ok(data.len() as u32)
    }

    fn submit(&self, op: Op, pass: Pass, answer: impl FnOnce(Result<Reply, Errno>) + Send + 'static) {
        let done = move |outcome: Result<Reply, ErrorKind>| {
            answer(outcome.map_err(|kind| names(kind).errno));
            drop(pass);
        };
        self.volume.submit(op, Box::new(done));
    }

    /// Submits and waits.
    fn ask(&self, op: Op) -> Result<Reply, Errno> {
        let (told, answer) = sync_channel(1);
        self.volume.submit(op, Box::new(move |outcome| drop(told.send(outcome))));
        let outcome = answer.recv().unwrap_or(Err(ErrorKind::Closed));
        outcome.map_err(|kind| names(kind).errno)
    }

    fn whole_sectors(&self, range: &Range<u64>) -> Range<u64> {
        let sector = u64::from(self.shape.sector);
        range.start / sector * sector..range.end.next_multiple_of(sector)
    }
}

/// Hands on the bytes of `pieces` as one run, copied only when they are more than one.
fn with_bytes(pieces: &Pieces, take: impl FnOnce(&[u8])) {
    let mut parts = pieces.iter();
    if let (Some(bytes), None) = (parts.next().and_then(Piece::bytes), parts.next()) {
        return take(bytes);
    }
    let mut all = Vec::with_capacity(pieces.len() as usize);
    for piece in pieces.iter() {
        match piece.bytes() {
            Some(bytes) => all.extend_from_slice(bytes),
            None => all.resize(all.len() + piece.len() as usize, 0),
        }
    }
    take(&all);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{Done, Extent};
    use proptest::prelude::*;
    use std::sync::Mutex;
    use std::thread::scope;

    const SECTOR: usize = 4096;
    const SECTORS: usize = 5;

    /// A volume in memory that insists on what the gate promises. Sectors of zeroes are holes.
    struct Ram(Mutex<Vec<u8>>, bool);

    impl Volume for Ram {
        fn shape(&self) -> VolumeShape {
            let size = self.0.lock().unwrap().len() as u64;
            VolumeShape {
                size,
                sector: SECTOR as u32,
                preferred: 4096,
                strip: 4096,
                read_only: self.1,
                rotational: false,
            }
        }

        fn submit(&self, op: Op, done: Done) {
            let mut bytes = self.0.lock().unwrap();
            let checked = |offset: u64, len: u64| {
                let range = offset as usize..(offset + len) as usize;
                assert!(range.start.is_multiple_of(SECTOR) && range.end.is_multiple_of(SECTOR) && !range.is_empty());
                range
            };
            let reply = match op {
                Op::Read { offset, len } => {
                    let range = checked(offset, len.into());
                    let mut pieces = Pieces::new();
                    let half = range.start + range.len() / 2;
                    pieces.push_owned(bytes[range.start..half].to_vec());
                    pieces.push_owned(bytes[half..range.end].to_vec());
                    Reply::Data(pieces)
                }
                Op::Write { offset, data, .. } => {
                    bytes[checked(offset, data.len() as u64)].copy_from_slice(&data);
                    Reply::Done
                }
                Op::WriteZeroes { offset, len, .. } | Op::Trim { offset, len, .. } => {
                    bytes[checked(offset, len)].fill(0);
                    Reply::Done
                }
                Op::Flush => Reply::Done,
                Op::Status { offset, len, .. } => {
                    let kind = |sector: &[u8]| match sector.iter().all(|byte| *byte == 0) {
                        true => ExtentKind::Hole,
                        false => ExtentKind::Data,
                    };
                    let sectors = bytes[checked(offset, len)].chunks(SECTOR);
                    // Few at a time, so that looking further is seen to work.
                    Reply::Extents(sectors.take(2).map(|s| Extent { len: SECTOR as u64, kind: kind(s) }).collect())
                }
            };
            done(Ok(reply));
        }
    }

    fn file(bytes: Vec<u8>, read_only: bool) -> OpenFile {
        let volume = Arc::new(Ram(Mutex::new(bytes), read_only));
        OpenFile::new(volume, Gate::new(1 << 20), PayloadPool::new(1 << 20))
    }

    fn read(file: &OpenFile, offset: u64, len: u32) -> Vec<u8> {
        let (told, answer) = sync_channel(1);
        file.read(offset, len, move |bytes| told.send(bytes.unwrap().to_vec()).unwrap());
        answer.recv().unwrap()
    }

    fn write(file: &OpenFile, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let (told, answer) = sync_channel(1);
        file.write(offset, data, false, move |written| told.send(written).unwrap());
        answer.recv().unwrap()
    }

    fn zero(file: &OpenFile, offset: u64, len: u64) -> Result<(), Errno> {
        let (told, answer) = sync_channel(1);
        file.zero(offset, len, true, move |zeroed| told.send(zeroed).unwrap());
        answer.recv().unwrap()
    }

    proptest! {
        #[test]
        fn any_bytes_may_be_read_written_and_zeroed_like_those_of_a_file(
            ops in prop::collection::vec((0..3u8, 0..(SECTORS * SECTOR) as u64 + 9, 0..3 * SECTOR, any::<u8>()), 1..40),
        ) {
            let size = SECTORS * SECTOR;
            let (file, mut model) = (file(vec![0; size], false), vec![0u8; size]);
            for (op, offset, len, byte) in ops {
                let range = (offset as usize).min(size)..(offset as usize + len).min(size);
                match op {
                    0 => prop_assert_eq!(&read(&file, offset, len as u32)[..], &model[range]),
                    1 if range.is_empty() && len > 0 => {
                        prop_assert_eq!(write(&file, offset, &vec![byte; len]), Err(libc::ENOSPC));
                    }
                    1 => {
                        prop_assert_eq!(write(&file, offset, &vec![byte; len]), Ok(range.len() as u32));
                        model[range].fill(byte);
                    }
                    _ => {
                        prop_assert_eq!(zero(&file, offset, len as u64), Ok(()));
                        model[range].fill(0);
                    }
                }
            }
            prop_assert_eq!(read(&file, 0, size as u32), model);
        }
    }

    #[test]
    fn writes_of_parts_of_one_sector_at_the_same_time_lose_nothing_of_each_other_nor_of_whole_ones() {
        let file = file(vec![0; 2 * SECTOR], false);
        scope(|scope| {
            for part in 0..4usize {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..200u8 {
                        write(file, (part * 1024 + 7) as u64, &[round; 1000]).unwrap();
                        write(file, SECTOR as u64, &[round; SECTOR]).unwrap();
                    }
                });
            }
        });
        for part in 0..4 {
            assert_eq!(read(&file, part * 1024 + 7, 1000), [199; 1000]);
        }
        assert_eq!(read(&file, SECTOR as u64, SECTOR as u32), [199; SECTOR]);
    }

    #[test]
    fn data_and_holes_are_found_from_any_byte_on() {
        let mut bytes = vec![0; SECTORS * SECTOR];
        bytes[3 * SECTOR + 5] = 1;
        let (file, sector) = (file(bytes, false), SECTOR as u64);
        assert_eq!(file.seek(1, true), Ok(3 * sector));
        assert_eq!(file.seek(1, false), Ok(1));
        assert_eq!(file.seek(3 * sector + 9, true), Ok(3 * sector + 9));
        assert_eq!(file.seek(3 * sector, false), Ok(4 * sector));
        assert_eq!(file.seek(4 * sector, true), Err(libc::ENXIO));
        assert_eq!(file.seek(SECTORS as u64 * sector, false), Err(libc::ENXIO));
    }

    #[test]
    fn what_takes_no_writes_refuses_them() {
        let file = file(vec![7; SECTORS * SECTOR], true);
        assert_eq!(write(&file, 0, &[1]), Err(libc::EROFS));
        assert_eq!(zero(&file, 0, 1), Err(libc::EROFS));
        assert_eq!(read(&file, 1, 3), [7, 7, 7]);
    }
}
