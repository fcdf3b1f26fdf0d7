//! How answers lie on the wire: heads made here, and bytes that belong to the answers, sent without being copied.

use super::negotiate::ALLOCATION_ID;
use super::replies::{Answer, Asked};
use super::wire::{self, chunk};
use crate::export::{Extent, ExtentKind, Pieces, Reply};
use std::io::{self, IoSlice};
use std::ops::Range;

/// The most parts one system call takes; more is an error there, not a short write.
const PARTS_MAX: usize = libc::UIO_MAXIOV as usize;
/// What runs of zeroes are sent from.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// What goes out, in order: heads made here, and bytes that belong to the answers.
#[derive(Default)]
struct Sheet<'a> {
    heads: Vec<u8>,
    parts: Vec<Part<'a>>,
}

enum Part<'a> {
    Head(Range<usize>),
    Bytes(&'a [u8]),
}

/// Sends `batch` but for the `sent` bytes of it that are out, and counts them on: with every call of `write` some go
/// out, or there is an error.
pub(super) fn send(
    batch: &[Answer],
    structured: bool,
    sent: &mut usize,
    mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
) -> io::Result<()> {
    let mut sheet = Sheet::default();
    for answer in batch {
        sheet.put_answer(answer, structured);
    }
    let heads = &sheet.heads;
    let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(sheet.parts.len());
    slices.extend(sheet.parts.iter().map(|part| match part {
        Part::Head(range) => IoSlice::new(&heads[range.clone()]),
        Part::Bytes(bytes) => IoSlice::new(bytes),
    }));
    // An empty slice would look like a closed output.
    debug_assert!(slices.iter().all(|slice| !slice.is_empty()));
    let mut slices = &mut slices[..];
    IoSlice::advance_slices(&mut slices, *sent);
    while !slices.is_empty() {
        match write(&slices[..slices.len().min(PARTS_MAX)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => {
                *sent += more;
                IoSlice::advance_slices(&mut slices, more);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl<'a> Sheet<'a> {
    fn put_answer(&mut self, answer: &'a Answer, structured: bool) {
        let cookie = answer.cookie;
        match (&answer.outcome, answer.asked) {
            (Err(refusal), _) if structured => {
                self.head(|out| wire::put_error_chunk(out, cookie, refusal.error, refusal.why));
            }
            (Err(refusal), _) => self.head(|out| wire::put_simple_reply(out, refusal.error, cookie)),
            (Ok(Reply::Data(pieces)), Asked::Read { offset, fragment, .. }) if structured => {
                self.put_chunks(cookie, offset, pieces, fragment);
            }
            (Ok(Reply::Data(pieces)), _) => {
                self.head(|out| wire::put_simple_reply(out, 0, cookie));
                self.put_pieces(pieces);
            }
            (Ok(Reply::Extents(extents)), Asked::Status { len, limit }) => {
                let extents = descriptors(extents, len, limit);
                self.head(|out| wire::put_status_chunk(out, cookie, ALLOCATION_ID, &extents));
            }
            (Ok(_), _) => self.head(|out| wire::put_simple_reply(out, 0, cookie)),
        }
    }

    /// A read's content: bytes that follow each other in one chunk, each run of zeroes as a hole.
    fn put_chunks(&mut self, cookie: u64, offset: u64, pieces: &'a Pieces, fragment: bool) {
        let last = |rest: u64| if rest == 0 { chunk::FLAG_DONE } else { 0 };
        if !fragment || pieces.iter().all(|piece| piece.bytes().is_some()) {
            self.head(|out| wire::put_data_chunk(out, chunk::FLAG_DONE, cookie, offset, pieces.len() as u32));
            return self.put_pieces(pieces);
        }
        let mut at = offset;
        let mut rest = pieces.len();
        let mut pieces = pieces.iter().peekable();
        while let Some(piece) = pieces.next() {
            let Some(bytes) = piece.bytes() else {
                rest -= piece.len();
                self.head(|out| wire::put_hole_chunk(out, last(rest), cookie, at, piece.len() as u32));
                at += piece.len();
                continue;
            };
            let mut run = vec![bytes];
            while let Some(bytes) = pieces.peek().and_then(|piece| piece.bytes()) {
                run.push(bytes);
                pieces.next();
            }
            let len: u64 = run.iter().map(|bytes| bytes.len() as u64).sum();
            rest -= len;
            self.head(|out| wire::put_data_chunk(out, last(rest), cookie, at, len as u32));
            self.parts.extend(run.into_iter().map(Part::Bytes));
            at += len;
        }
    }

    fn put_pieces(&mut self, pieces: &'a Pieces) {
        for piece in pieces.iter() {
            if let Some(bytes) = piece.bytes() {
                self.parts.push(Part::Bytes(bytes));
                continue;
            }
            let mut left = piece.len() as usize;
            while left > 0 {
                let len = left.min(ZEROES.len());
                self.parts.push(Part::Bytes(&ZEROES[..len]));
                left -= len;
            }
        }
    }

    fn head(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let start = self.heads.len();
        put(&mut self.heads);
        // Heads that follow each other travel as one part.
        if let Some(Part::Head(range)) = self.parts.last_mut() {
            range.end = self.heads.len();
        } else {
            self.parts.push(Part::Head(start..self.heads.len()));
        }
    }
}

/// The extents as the protocol wants them: neighbours of one kind joined, no more than asked for, none empty.
fn descriptors(extents: &[Extent], len: u32, limit: usize) -> Vec<(u32, u32)> {
    const HOLE: u32 = 1 << 0;
    const ZERO: u32 = 1 << 1;
    let mut left = len;
    let mut found: Vec<(u32, u32)> = Vec::new();
    for extent in extents {
        let len = extent.len.min(left.into()) as u32;
        let status = match extent.kind {
            ExtentKind::Data => 0,
            ExtentKind::Zero => ZERO,
            ExtentKind::Hole => HOLE | ZERO,
        };
        let full = found.len() == limit;
        match found.last_mut() {
            _ if len == 0 => break,
            Some((run, same)) if *same == status => *run += len,
            _ if full => break,
            _ => found.push((len, status)),
        }
        left -= len;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn sent(asked: Asked, reply: Reply, structured: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let answer = Answer { cookie: 9, asked, cost: 0, taken: 0, outcome: Ok(reply) };
        send(&[answer], structured, &mut 0, |parts| out.write_vectored(parts)).unwrap();
        out
    }

    fn sparse() -> Pieces {
        let mut pieces = Pieces::new();
        pieces.push_owned(vec![1; 512]);
        pieces.push_owned(vec![2; 512]);
        pieces.push_zeroes(1024);
        pieces
    }

    #[test]
    fn a_sparse_read_goes_out_as_data_and_hole_and_only_the_last_chunk_is_final() {
        let out = sent(Asked::Read { offset: 4096, len: 2048, fragment: true }, Reply::Data(sparse()), true);
        assert_eq!(out.len(), 28 + 1024 + 32);
        assert_eq!((&out[4..8], &out[20..28]), (&[0, 0, 0, 1][..], &4096u64.to_be_bytes()[..]));
        let hole = &out[28 + 1024..];
        assert_eq!((&hole[4..8], &hole[20..28]), (&[0, 1, 0, 2][..], &5120u64.to_be_bytes()[..]));
    }

    #[test]
    fn a_read_that_must_not_be_fragmented_goes_out_as_one_chunk_with_its_zeroes() {
        let out = sent(Asked::Read { offset: 0, len: 2048, fragment: false }, Reply::Data(sparse()), true);
        assert_eq!(out.len(), 28 + 2048);
        assert!(out[28 + 1024..].iter().all(|byte| *byte == 0));
        let plain = sent(Asked::Read { offset: 0, len: 2048, fragment: true }, Reply::Data(sparse()), false);
        assert_eq!(plain.len(), 16 + 2048);
    }

    #[test]
    fn a_reply_of_more_parts_than_one_system_call_takes_is_sent_in_several() {
        let mut pieces = Pieces::new();
        (0..3 * PARTS_MAX).for_each(|_| pieces.push_owned(vec![7]));
        let asked = Asked::Read { offset: 0, len: 3 * PARTS_MAX as u32, fragment: true };
        let answer = Answer { cookie: 9, asked, cost: 0, taken: 0, outcome: Ok(Reply::Data(pieces)) };
        let (mut calls, mut sent) = (0, 0);
        let strict = |parts: &[IoSlice<'_>]| {
            assert!(parts.len() <= PARTS_MAX);
            calls += 1;
            Ok(parts.iter().map(|part| part.len()).sum())
        };
        send(&[answer], true, &mut sent, strict).unwrap();
        assert_eq!((sent, calls), (28 + 3 * PARTS_MAX, 4));
    }

    #[test]
    fn extents_are_joined_cut_to_the_request_and_limited() {
        let extent = |len, kind| Extent { len, kind };
        let all = [
            extent(512, ExtentKind::Data),
            extent(512, ExtentKind::Data),
            extent(1 << 40, ExtentKind::Hole),
            extent(512, ExtentKind::Zero),
        ];
        assert_eq!(descriptors(&all, 4096, 16), [(1024, 0), (3072, 3)]);
        assert_eq!(descriptors(&all, 4096, 1), [(1024, 0)]);
        assert_eq!(descriptors(&all, 512, 16), [(512, 0)]);
    }
}
