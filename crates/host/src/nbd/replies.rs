//! The way out of a connection: answers come in from any thread, in any order; one writer sends them.
//!
//! Invariants
//! 1. A request is *in flight* from [`Flow::enter`] until its reply is written (or the connection is broken). Requests
//!    in flight never exceed the limits, but one alone is always let in, however large.
//! 2. Every [`Ticket`] becomes exactly one reply: a dropped one says that the server is stopping.
//! 3. On a connection whose output failed nothing waits: answers that still come are dropped.
//! 4. The memory that a request holds is taken from the room of all clients while it is taken, and given back when its
//!    bytes are gone: those of a write with its answer, those of a read when its reply was sent.

use super::negotiate::ALLOCATION_ID;
use super::room::{Account, OWN, Way};
use super::transmit::Share;
use super::wire::{self, chunk};
use crate::errno::{self, NBD_EIO, NBD_ENOTSUP, NBD_ESHUTDOWN};
use crate::export::{Extent, ExtentKind, Pieces, Reply};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weft_engine::error::ErrorKind;

/// Replies sent with one system call end after so many, or after [`BATCH_BYTES`].
const BATCH_REPLIES: usize = 64;
/// See [`BATCH_REPLIES`].
const BATCH_BYTES: usize = 1 << 20;
/// The most parts one system call takes; more is an error there, not a short write.
const PARTS_MAX: usize = libc::UIO_MAXIOV as usize;
/// What runs of zeroes are sent from.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// What was asked, as far as its reply depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Read { offset: u64, len: u32, fragment: bool },
    Status { len: u32, limit: usize },
    FastZero,
    Other,
}

/// An error for a client: the value of the protocol, and a few words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) error: u32,
    pub(super) why: &'static str,
}

/// One connection's requests in flight.
pub(super) struct Flow {
    state: Mutex<State>,
    /// Told when something left: there may be room.
    room: Condvar,
    /// Told when there is something for the writer.
    ready: Condvar,
    share: Share,
    account: Arc<Account>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Answer>,
    requests: usize,
    bytes: usize,
    /// Bytes that are there, and how many of them were taken from the room.
    taken: usize,
    leased: usize,
    closing: bool,
    broken: bool,
}

struct Answer {
    cookie: u64,
    asked: Asked,
    cost: usize,
    taken: usize,
    outcome: Result<Reply, Refusal>,
}

/// The right and the duty to answer one request.
pub(super) struct Ticket {
    flow: Arc<Flow>,
    cookie: u64,
    asked: Asked,
    cost: usize,
    taken: usize,
    /// The volume has it.
    submitted: bool,
    answered: bool,
}

impl Flow {
    pub(super) fn new(share: Share, account: Arc<Account>) -> Arc<Flow> {
        let state = Mutex::default();
        Arc::new(Flow { state, room: Condvar::new(), ready: Condvar::new(), share, account })
    }

    /// Waits until a request that holds `cost` bytes may be in flight. `None`: the connection is broken.
    pub(super) fn enter(self: &Arc<Self>, cookie: u64, asked: Asked, cost: usize) -> Option<Ticket> {
        let full = |state: &mut State| {
            let over = state.requests >= self.share.requests || state.bytes + cost > self.share.bytes;
            over && state.requests > 0 && !state.broken
        };
        let mut state = self.room.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if state.broken {
            return None;
        }
        state.requests += 1;
        state.bytes += cost;
        drop(state);
        Some(Ticket { flow: self.clone(), cookie, asked, cost, taken: 0, submitted: false, answered: false })
    }

    /// No more requests will enter; the writer ends when those in flight are answered.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.ready.notify_one();
    }

    /// The writer's life: sends answers until the flow is closed and empty, or `output` fails.
    pub(super) fn write_to(&self, output: &mut impl Write, structured: bool) -> io::Result<()> {
        loop {
            let batch = self.next_batch();
            if batch.is_empty() {
                return Ok(());
            }
            let (mut cost, mut taken) = (0, 0);
            for answer in &batch {
                (cost, taken) = (cost + answer.cost, taken + answer.taken);
            }
            let count = batch.len();
            self.account.wait_for(Way::Out, taken);
            let sent = send(output, &batch, structured);
            self.account.came(Way::Out);
            // The buffers go before the room they took is given to others.
            drop(batch);
            self.release(taken);
            sent?;
            let mut state = self.lock();
            state.requests -= count;
            state.bytes -= cost;
            drop(state);
            self.room.notify_one();
        }
    }

    /// The writer is gone: see invariant 3.
    pub(super) fn break_off(&self) {
        let mut state = self.lock();
        state.broken = true;
        let unsent = std::mem::take(&mut state.ready);
        drop(state);
        let taken = unsent.iter().map(|answer| answer.taken).sum();
        drop(unsent);
        self.release(taken);
        self.account.close();
        self.room.notify_all();
    }

    /// Whose memory it is.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Takes memory; waits for it where others have it. `false`: the connection is broken. One thread alone takes: what
    /// was leased for bytes that others gave back meanwhile is too much, never too little.
    fn take(&self, bytes: usize) -> bool {
        let state = self.lock();
        let lacking = (state.taken + bytes).saturating_sub(OWN).saturating_sub(state.leased);
        drop(state);
        if !self.account.take(lacking) {
            return false;
        }
        let mut state = self.lock();
        state.taken += bytes;
        state.leased += lacking;
        self.give_what_is_too_much(state);
        true
    }

    fn release(&self, bytes: usize) {
        let mut state = self.lock();
        state.taken -= bytes;
        self.give_what_is_too_much(state);
    }

    fn give_what_is_too_much(&self, mut state: MutexGuard<'_, State>) {
        let too_much = state.leased.saturating_sub(state.taken.saturating_sub(OWN));
        state.leased -= too_much;
        drop(state);
        self.account.give(too_much);
    }

    fn next_batch(&self) -> Vec<Answer> {
        let idle = |state: &mut State| state.ready.is_empty() && !(state.closing && state.requests == 0);
        let mut state = self.ready.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_REPLIES && bytes < BATCH_BYTES {
            let Some(answer) = state.ready.pop_front() else { break };
            bytes += answer.cost;
            batch.push(answer);
        }
        batch
    }

    fn put(&self, answer: Answer) {
        let mut state = self.lock();
        if state.broken {
            drop(state);
            let taken = answer.taken;
            drop(answer);
            return self.release(taken);
        }
        state.ready.push_back(answer);
        drop(state);
        self.ready.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Takes so many bytes more for this request; waits for them. `false`: the connection is broken.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let taken = self.flow.take(bytes);
        self.taken += if taken { bytes } else { 0 };
        taken
    }

    /// It goes to the volume now.
    pub(super) fn submit(mut self) -> Ticket {
        self.flow.account.pulse().asks();
        self.submitted = true;
        self
    }

    /// Answers with what the volume said.
    pub(super) fn finish(self, outcome: Result<Reply, ErrorKind>) {
        let fast = matches!(self.asked, Asked::FastZero);
        let outcome = match outcome {
            Ok(reply) => fitting(self.asked, reply),
            Err(ErrorKind::NotPossible) if fast => Err(Refusal { error: NBD_ENOTSUP, why: "not fast" }),
            Err(kind) => Err(Refusal { error: errno::names(kind).nbd, why: words(kind) }),
        };
        self.answer(outcome);
    }

    /// Answers with an error.
    pub(super) fn refuse(self, refusal: Refusal) {
        self.answer(Err(refusal));
    }

    fn answer(mut self, outcome: Result<Reply, Refusal>) {
        self.put(outcome);
    }

    fn put(&mut self, outcome: Result<Reply, Refusal>) {
        self.answered = true;
        if std::mem::take(&mut self.submitted) {
            self.flow.account.pulse().answered();
        }
        let mut taken = std::mem::take(&mut self.taken);
        if !matches!(outcome, Ok(Reply::Data(_) | Reply::Extents(_))) {
            self.flow.release(std::mem::take(&mut taken));
        }
        self.flow.put(Answer { cookie: self.cookie, asked: self.asked, cost: self.cost, taken, outcome });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            self.put(Err(Refusal { error: NBD_ESHUTDOWN, why: "the volume is stopping" }));
        }
    }
}

/// `reply` if it answers the question; a volume that says anything else must not derail the protocol.
fn fitting(asked: Asked, reply: Reply) -> Result<Reply, Refusal> {
    let fits = match (asked, &reply) {
        (Asked::Read { len, .. }, Reply::Data(pieces)) => pieces.len() == u64::from(len),
        (Asked::Status { .. }, Reply::Extents(extents)) => extents.first().is_some_and(|extent| extent.len > 0),
        (Asked::FastZero | Asked::Other, Reply::Done) => true,
        _ => false,
    };
    debug_assert!(fits, "{asked:?} was answered by {reply:?}");
    if fits { Ok(reply) } else { Err(Refusal { error: NBD_EIO, why: "the volume gave no proper answer" }) }
}

fn words(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidInput => "the request is not valid here",
        ErrorKind::NotFound => "not found",
        ErrorKind::AlreadyExists => "exists already",
        ErrorKind::NotPossible => "not possible now",
        ErrorKind::NoSpace => "the pool is full",
        ErrorKind::ReadOnly => "the export is read-only",
        ErrorKind::Lost => "more is lost than the redundancy covers",
        ErrorKind::Frozen => "too few disks are there for now",
        ErrorKind::Corrupt => "what was read is damaged beyond repair",
        ErrorKind::Closed => "the pool is stopping",
    }
}

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

fn send(output: &mut impl Write, batch: &[Answer], structured: bool) -> io::Result<()> {
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
    while !slices.is_empty() {
        match output.write_vectored(&slices[..slices.len().min(PARTS_MAX)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => IoSlice::advance_slices(&mut slices, sent),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    output.flush()
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
    use super::super::room::Room;
    use super::*;

    fn sent(asked: Asked, reply: Reply, structured: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let answer = Answer { cookie: 9, asked, cost: 0, taken: 0, outcome: Ok(reply) };
        send(&mut out, &[answer], structured).unwrap();
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
        struct Strict(usize);
        impl Write for Strict {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.write_vectored(&[IoSlice::new(bytes)])
            }
            fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
                assert!(parts.len() <= PARTS_MAX);
                let sent: usize = parts.iter().map(|part| part.len()).sum();
                self.0 += sent;
                Ok(sent)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut pieces = Pieces::new();
        (0..3 * PARTS_MAX).for_each(|_| pieces.push_owned(vec![7]));
        let asked = Asked::Read { offset: 0, len: 3 * PARTS_MAX as u32, fragment: true };
        let answer = Answer { cookie: 9, asked, cost: 0, taken: 0, outcome: Ok(Reply::Data(pieces)) };
        let mut output = Strict(0);
        send(&mut output, &[answer], true).unwrap();
        assert_eq!(output.0, 28 + 3 * PARTS_MAX);
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

    fn flow(room: &Arc<Room>) -> Arc<Flow> {
        Flow::new(Share { requests: 4, bytes: 4 << 20 }, Arc::new(room.open(Box::new(|| {}))))
    }

    fn held(room: &Room) -> usize {
        room.memory().1
    }

    #[test]
    fn memory_is_given_back_with_the_answer_of_a_write_with_the_reply_of_a_read_and_by_a_connection_that_breaks() {
        let room = Room::usual();
        let flow = flow(&room);
        let enter = |cookie| {
            let mut ticket = flow.enter(cookie, Asked::Read { offset: 0, len: 512, fragment: true }, 1 << 20).unwrap();
            assert!(ticket.take(1 << 20));
            ticket
        };
        let data = || {
            let mut pieces = Pieces::new();
            pieces.push_zeroes(512);
            Ok(Reply::Data(pieces))
        };
        let (write, read, late) = (enter(1), enter(2), enter(3));
        assert_eq!(held(&room), (3 << 20) - OWN);
        write.finish(Err(ErrorKind::NoSpace));
        read.finish(data());
        assert_eq!(held(&room), (2 << 20) - OWN);
        for _ in 0..2 {
            let sent = flow.next_batch();
            flow.release(sent.iter().map(|answer| answer.taken).sum());
        }
        assert_eq!(held(&room), (1 << 20) - OWN);
        flow.break_off();
        late.finish(data());
        assert_eq!(held(&room), 0);
    }

    #[test]
    fn a_ticket_that_is_dropped_still_answers() {
        let flow = flow(&Room::usual());
        drop(flow.enter(3, Asked::Other, 0));
        flow.close();
        let mut out = Vec::new();
        flow.write_to(&mut out, false).unwrap();
        assert_eq!(out.len(), 16);
        assert_eq!(out[4..8], NBD_ESHUTDOWN.to_be_bytes());
    }

    #[test]
    fn a_request_larger_than_the_whole_share_is_let_in_alone() {
        let flow = flow(&Room::usual());
        assert!(flow.enter(1, Asked::Other, 8 << 20).is_some());
    }
}
