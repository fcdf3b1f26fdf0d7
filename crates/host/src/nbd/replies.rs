//! The way out of a connection: answers come in from any thread, in any order. The thread that answers sends them
//! where it gathers ([`crate::export::push_later`]), they are short and the socket has room; else the connection's
//! writer does.
//!
//! Invariants
//! 1. One thread at a time has the output. What one begins to send goes out whole before anything else: the rest of
//!    what did not fit is the writer's.
//! 2. Only the writer waits for the client, and only a client that is waited for has a limit of time.
//! 3. A request is *in flight* from [`Flow::enter`] until its reply is written (or the connection is broken). Requests
//!    in flight never exceed the limits, but one alone is always let in, however large.
//! 4. Every [`Ticket`] becomes exactly one reply: a dropped one says that the server is stopping.
//! 5. On a connection whose output failed nothing waits: answers that still come are dropped.
//! 6. The memory that a request holds is taken from the room of all clients while it is taken, and given back when its
//!    bytes are gone: those of a write with its answer, those of a read when its reply was sent.

use super::room::{Account, OWN, Way};
use super::sheet::send;
use super::transmit::Share;
use crate::errno::{self, NBD_EIO, NBD_ENOTSUP, NBD_ESHUTDOWN};
use crate::export::{Outlet, Reply, push_later};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weft_engine::error::ErrorKind;

/// Replies sent with one system call end after so many, or after [`BATCH_BYTES`].
const BATCH_REPLIES: usize = 64;
/// See [`BATCH_REPLIES`].
const BATCH_BYTES: usize = 1 << 20;
/// Answers with more bytes than this are the writer's: whoever answers has other things to do than to copy them.
const AT_ONCE_BYTES: usize = 256 << 10;

/// Sends what goes out without waiting; how many bytes that was.
pub type AtOnce = Arc<dyn Fn(&[IoSlice<'_>]) -> io::Result<usize> + Send + Sync>;

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
    structured: bool,
    /// None: only the writer sends.
    at_once: Option<AtOnce>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Answer>,
    /// What was begun, and is the writer's to end.
    begun: Option<Batch>,
    /// Somebody has the output.
    sending: bool,
    /// The writer waits for something to send, the reader for room.
    writer_waits: bool,
    reader_waits: bool,
    requests: usize,
    bytes: usize,
    /// Bytes that are there, and how many of them were taken from the room.
    taken: usize,
    leased: usize,
    closing: bool,
    broken: bool,
}

/// Answers that go out together, and how many of their bytes are out.
#[derive(Default)]
struct Batch {
    answers: Vec<Answer>,
    sent: usize,
}

/// One request's answer.
pub(super) struct Answer {
    pub(super) cookie: u64,
    pub(super) asked: Asked,
    pub(super) cost: usize,
    pub(super) taken: usize,
    pub(super) outcome: Result<Reply, Refusal>,
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
    pub(super) fn new(share: Share, account: Arc<Account>, structured: bool, at_once: Option<AtOnce>) -> Arc<Flow> {
        let (state, room, ready) = (Mutex::default(), Condvar::new(), Condvar::new());
        Arc::new(Flow { state, room, ready, share, account, structured, at_once })
    }

    /// Waits until a request that holds `cost` bytes may be in flight; calls `waits` before. `None`: the connection is
    /// broken.
    pub(super) fn enter(
        self: &Arc<Self>,
        cookie: u64,
        asked: Asked,
        cost: usize,
        waits: impl FnOnce(),
    ) -> Option<Ticket> {
        let full = |state: &State| {
            let over = state.requests >= self.share.requests || state.bytes + cost > self.share.bytes;
            over && state.requests > 0 && !state.broken
        };
        let mut state = self.lock();
        if full(&state) {
            drop(state);
            waits();
            state = self.lock();
            while full(&state) {
                state.reader_waits = true;
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.reader_waits = false;
        }
        if state.broken {
            return None;
        }
        state.requests += 1;
        state.bytes += cost;
        drop(state);
        Some(Ticket { flow: self.clone(), cookie, asked, cost, taken: 0, submitted: false, answered: false })
    }

    /// Lets a request that holds `cost` bytes in, and counts them, if neither has to be waited for.
    pub(super) fn try_enter(self: &Arc<Self>, cookie: u64, asked: Asked, cost: usize) -> Option<Ticket> {
        let mut state = self.lock();
        let fits = state.requests < self.share.requests && state.bytes + cost <= self.share.bytes;
        let lacking = state.lacking(cost);
        if state.broken || !fits || !self.account.try_take(lacking) {
            return None;
        }
        state.requests += 1;
        state.bytes += cost;
        state.taken += cost;
        state.leased += lacking;
        drop(state);
        Some(Ticket { flow: self.clone(), cookie, asked, cost, taken: cost, submitted: false, answered: false })
    }

    /// No more requests will enter; the writer ends when those in flight are answered.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.ready.notify_one();
    }

    /// The writer's life: sends answers until the flow is closed and empty, or `output` fails.
    pub(super) fn write_to(&self, output: &mut impl Write) -> io::Result<()> {
        while let Some(mut batch) = self.next_batch() {
            self.account.wait_for(Way::Out, batch.taken());
            let sent = send(&batch.answers, self.structured, &mut batch.sent, |parts| output.write_vectored(parts));
            let sent = sent.and_then(|()| output.flush());
            self.account.came(Way::Out);
            self.end(batch, sent.is_ok());
            sent?;
        }
        Ok(())
    }

    /// What is to be sent next, by the writer, which waits for it; `None`: there will be nothing any more.
    fn next_batch(&self) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            if !state.sending
                && let Some(batch) = state.begin()
            {
                return Some(batch);
            }
            if state.closing && state.requests == 0 {
                return None;
            }
            state.writer_waits = true;
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.writer_waits = false;
        }
    }

    /// Whoever had the output has none of `batch` any more, and lets go of the output. `sent`: all of it is out; else
    /// the connection is about to be broken off.
    fn end(&self, batch: Batch, sent: bool) {
        let (count, taken) = (batch.answers.len(), batch.taken());
        let cost: usize = batch.answers.iter().map(|answer| answer.cost).sum();
        // The buffers go before the room they took is given to others.
        drop(batch);
        self.release(taken);
        if !sent {
            return;
        }
        let mut state = self.lock();
        state.sending = false;
        state.requests -= count;
        state.bytes -= cost;
        let reader_waits = state.reader_waits;
        let writer_ends = state.writer_waits && state.closing && state.requests == 0;
        drop(state);
        if reader_waits {
            self.room.notify_one();
        }
        if writer_ends {
            self.ready.notify_one();
        }
    }

    /// The writer is gone (invariant 5).
    pub(super) fn break_off(&self) {
        let mut state = self.lock();
        state.broken = true;
        let unsent = Batch { answers: state.ready.drain(..).collect(), sent: 0 };
        let begun = state.begun.take().unwrap_or_default();
        drop(state);
        let taken = unsent.taken() + begun.taken();
        drop((unsent, begun));
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
    fn take(&self, bytes: usize, waits: impl FnOnce()) -> bool {
        let mut state = self.lock();
        let lacking = state.lacking(bytes);
        if lacking > 0 {
            drop(state);
            waits();
            if !self.account.take(lacking) {
                return false;
            }
            state = self.lock();
        }
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

    fn put(self: &Arc<Self>, answer: Answer) {
        let mut state = self.lock();
        if state.broken {
            drop(state);
            let taken = answer.taken;
            drop(answer);
            return self.release(taken);
        }
        state.ready.push_back(answer);
        // Whoever sends looks again when it is done; a writer that waits is woken by whoever gathers, or else now.
        let idle = state.writer_waits && !state.sending;
        drop(state);
        if (self.at_once.is_none() || !push_later(self)) && idle {
            self.ready.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What is to be taken from the room of all clients before so many bytes more are there.
    fn lacking(&self, bytes: usize) -> usize {
        (self.taken + bytes).saturating_sub(OWN).saturating_sub(self.leased)
    }

    /// The answers that go out next, to whoever has the output from now on.
    fn begin(&mut self) -> Option<Batch> {
        let batch = self.begun.take().unwrap_or_else(|| self.gathered());
        self.sending = !batch.answers.is_empty();
        self.sending.then_some(batch)
    }

    fn gathered(&mut self) -> Batch {
        let mut batch = Batch::default();
        let mut bytes = 0;
        while batch.answers.len() < BATCH_REPLIES && bytes < BATCH_BYTES {
            let Some(answer) = self.ready.pop_front() else { break };
            bytes += answer.cost;
            batch.answers.push(answer);
        }
        batch
    }
}

impl Batch {
    fn taken(&self) -> usize {
        self.answers.iter().map(|answer| answer.taken).sum()
    }
}

impl Outlet for Flow {
    /// Sends what fits into the socket now. The rest, and what is long, is the writer's.
    fn push(&self) {
        let Some(at_once) = &self.at_once else { return };
        loop {
            let mut state = self.lock();
            if state.sending || state.broken {
                return;
            }
            let bytes: usize = state.ready.iter().map(|answer| answer.cost).sum();
            if state.begun.is_some() || bytes > AT_ONCE_BYTES {
                drop(state);
                return self.ready.notify_one();
            }
            let Some(mut batch) = state.begin() else { return };
            drop(state);
            if send(&batch.answers, self.structured, &mut batch.sent, |parts| at_once(parts)).is_err() {
                // It is full, or broken: the writer will see.
                let mut state = self.lock();
                (state.begun, state.sending) = (Some(batch), false);
                drop(state);
                return self.ready.notify_one();
            }
            self.end(batch, true);
        }
    }
}

impl Ticket {
    /// Takes so many bytes more for this request; waits for them, and calls `waits` before. `false`: the connection is
    /// broken.
    pub(super) fn take(&mut self, bytes: usize, waits: impl FnOnce()) -> bool {
        let taken = self.flow.take(bytes, waits);
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

#[cfg(test)]
mod tests {
    use super::super::room::Room;
    use super::*;
    use crate::export::{Pieces, gather};

    fn flow(room: &Arc<Room>) -> Arc<Flow> {
        Flow::new(Share { requests: 4, bytes: 4 << 20 }, Arc::new(room.open(Box::new(|| {}))), false, None)
    }

    fn held(room: &Room) -> usize {
        room.memory().1
    }

    #[test]
    fn memory_is_given_back_with_the_answer_of_a_write_with_the_reply_of_a_read_and_by_a_connection_that_breaks() {
        let room = Room::usual();
        let flow = flow(&room);
        let enter = |cookie| {
            let asked = Asked::Read { offset: 0, len: 512, fragment: true };
            let ticket = flow.enter(cookie, asked, 1 << 20, || {});
            let mut ticket = ticket.unwrap();
            assert!(ticket.take(1 << 20, || {}));
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
            let sent = flow.next_batch().unwrap();
            flow.end(sent, true);
        }
        assert_eq!(held(&room), (1 << 20) - OWN);
        flow.break_off();
        late.finish(data());
        assert_eq!(held(&room), 0);
    }

    #[test]
    fn a_ticket_that_is_dropped_still_answers() {
        let flow = flow(&Room::usual());
        drop(flow.enter(3, Asked::Other, 0, || {}));
        flow.close();
        let mut out = Vec::new();
        flow.write_to(&mut out).unwrap();
        assert_eq!(out.len(), 16);
        assert_eq!(out[4..8], NBD_ESHUTDOWN.to_be_bytes());
    }

    #[test]
    fn a_request_larger_than_the_whole_share_is_let_in_alone() {
        let flow = flow(&Room::usual());
        assert!(flow.enter(1, Asked::Other, 8 << 20, || {}).is_some());
    }

    /// A socket that takes so many bytes before it is full.
    fn at_once(room_for: usize) -> (AtOnce, Arc<Mutex<Vec<u8>>>) {
        let out = Arc::new(Mutex::new(Vec::new()));
        let taken = out.clone();
        let write = move |parts: &[IoSlice<'_>]| {
            let mut out = taken.lock().unwrap();
            let before = out.len();
            for part in parts {
                let fits = part.len().min(room_for.saturating_sub(out.len()));
                out.extend_from_slice(&part[..fits]);
            }
            let more = out.len() - before;
            if more > 0 { Ok(more) } else { Err(io::ErrorKind::WouldBlock.into()) }
        };
        (Arc::new(write), out)
    }

    #[test]
    fn a_thread_that_gathers_sends_what_fits_and_the_writer_goes_on_where_the_socket_was_full() {
        for room_for in [0, 1, 16, 40, 48] {
            let (share, account) = (Share { requests: 4, bytes: 4096 }, Room::usual().open(Box::new(|| {})));
            let (at_once, out) = at_once(room_for);
            let flow = Flow::new(share, Arc::new(account), false, Some(at_once));
            gather(|| {
                (0..3).for_each(|cookie| drop(flow.enter(cookie, Asked::Other, 0, || {})));
                assert!(out.lock().unwrap().is_empty(), "they go out together");
            });
            assert_eq!(out.lock().unwrap().len(), room_for);
            // Behind what was begun.
            drop(flow.enter(3, Asked::Other, 0, || {}));
            flow.close();
            let mut rest = Vec::new();
            flow.write_to(&mut rest).unwrap();
            let all = [&out.lock().unwrap()[..], &rest[..]].concat();
            let cookies: Vec<u8> = all.chunks(16).map(|reply| reply[15]).collect();
            assert_eq!((all.len(), cookies), (64, vec![0, 1, 2, 3]));
        }
    }

    #[test]
    fn long_answers_are_left_to_the_writer() {
        let (share, account) = (Share { requests: 4, bytes: 4 << 20 }, Room::usual().open(Box::new(|| {})));
        let (at_once, out) = at_once(usize::MAX);
        let flow = Flow::new(share, Arc::new(account), false, Some(at_once));
        let asked = Asked::Read { offset: 0, len: 1 << 20, fragment: true };
        gather(|| {
            let mut pieces = Pieces::new();
            pieces.push_zeroes(1 << 20);
            flow.enter(1, asked, 1 << 20, || {}).unwrap().finish(Ok(Reply::Data(pieces)));
        });
        assert!(out.lock().unwrap().is_empty());
        flow.close();
        let mut rest = Vec::new();
        flow.write_to(&mut rest).unwrap();
        assert_eq!(rest.len(), 16 + (1 << 20));
    }
}
