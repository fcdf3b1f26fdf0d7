//! Reading ahead: several small requests in one system call.
//!
//! Invariant: what was read ahead lies in the reader itself, on the stack of its connection's thread. On the heap it
//! took a page of half a MiB of the allocator, for each connection.

use std::io::{self, Read};

/// Bytes read ahead; the bytes of large writes pass it by.
const AHEAD: usize = 16 << 10;

/// A reader that asks `from` for more than it is asked for.
pub(super) struct Ahead<R> {
    from: R,
    bytes: [u8; AHEAD],
    at: usize,
    end: usize,
    /// What another had read from there; it comes first.
    back: Vec<u8>,
    back_at: usize,
}

impl<R> Ahead<R> {
    pub(super) fn new(from: R) -> Ahead<R> {
        Ahead { from, bytes: [0; AHEAD], at: 0, end: 0, back: Vec::new(), back_at: 0 }
    }

    /// How many bytes it has that were not asked for yet.
    pub(super) fn has(&self) -> usize {
        self.back.len() - self.back_at + self.end - self.at
    }

    /// Gives back what another has read: `bytes` come before all that is read from now on. There is nothing else that
    /// was not asked for yet.
    pub(super) fn put_back(&mut self, bytes: Vec<u8>) {
        debug_assert_eq!(self.has(), 0, "whoever has the input has all of it");
        (self.back, self.back_at) = (bytes, 0);
    }
}

impl<R: Read> Read for Ahead<R> {
    fn read(&mut self, wanted: &mut [u8]) -> io::Result<usize> {
        if self.back_at < self.back.len() {
            let len = wanted.len().min(self.back.len() - self.back_at);
            wanted[..len].copy_from_slice(&self.back[self.back_at..][..len]);
            self.back_at += len;
            if self.back_at == self.back.len() {
                self.put_back(Vec::new());
            }
            return Ok(len);
        }
        if self.at == self.end {
            if wanted.len() >= AHEAD {
                return self.from.read(wanted);
            }
            (self.at, self.end) = (0, 0);
            self.end = self.from.read(&mut self.bytes)?;
        }
        let len = wanted.len().min(self.end - self.at);
        wanted[..len].copy_from_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives what it has in pieces of every length, with an error between two of them.
    struct Stutters(Vec<u8>, usize);

    impl Read for Stutters {
        fn read(&mut self, wanted: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(3) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let len = wanted.len().min(self.0.len()).min(self.1 * 997);
            wanted[..len].copy_from_slice(&self.0[..len]);
            self.0.drain(..len);
            Ok(len)
        }
    }

    #[test]
    fn bytes_come_in_their_order_however_they_are_given_and_asked_for() {
        let all: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        let mut ahead = Ahead::new(Stutters(all.clone(), 0));
        let mut got = Vec::new();
        for len in [28, 1, 70_000, 0, 16_384, 28, 28, 100_000].into_iter().cycle() {
            let mut part = vec![0; len.min(all.len() - got.len())];
            ahead.read_exact(&mut part).unwrap();
            got.extend(part);
            if got.len() == all.len() {
                break;
            }
        }
        assert_eq!(got, all);
        assert_eq!(ahead.read_exact(&mut [0]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
