//! The transmission phase: the reader (this thread) takes requests off the socket, validates them and hands them to the
//! volume, several at a time where several have come; the writer (a second thread) sends the replies that are not sent
//! where they come to be.
//!
//! Invariants
//! 1. A request is judged once, here, against the shape told to the client; what passes needs no checks further down.
//! 2. A refused write's bytes are read and thrown away, so that the next request is found; they never take memory.
//! 3. What was queued is the volume's before anything is waited for: the rest of a request, memory, or a place.
//! 4. Memory for a write is taken as its bytes arrive, from the room of all clients: a header alone takes none to speak
//!    of, unless its client has sent as much before.

use super::ahead::Ahead;
use super::guest::{SHORT, Visitor};
use super::negotiate::{Session, violation};
use super::parts;
use super::replies::{Asked, Flow, Refusal, Ticket};
use super::room::{Account, Way};
use super::server::{Line, STACK};
use super::wire::{REQUEST_HEADER, Request, cmd};
use crate::errno::{NBD_EINVAL, names};
use crate::export::{Access, Op, PART, Payload, Reply, Volume};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most extents in one answer to a block status request.
const EXTENTS_MAX: usize = 1024;
/// What such a request counts for: its answer, and that finding it takes the engine as long as reading would.
const STATUS_COST: usize = 64 << 10;
/// The first piece of a payload that is longer. Allocators serve more from pages of some MiB, one for each thread.
const FIRST: usize = 64 << 10;
/// A client that has sent a longer one whole has room for as much at once, up to this.
const SENT_MAX: usize = 1 << 20;
/// Short requests in a row after which the input is lent.
const LENDS_AFTER: u32 = 2;
/// A payload that goes on after so many bytes gets room for so many times as much.
const STEP: usize = 4;

/// How much one connection may hold at a time.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Requests in flight.
    pub requests: usize,
    /// Bytes of writes not yet taken and of reads not yet sent. One request may exceed it alone.
    pub bytes: usize,
}

/// Serves `session` until the client leaves, breaks the protocol or is lost, or `stop` is set; then completes what is
/// in flight.
pub(super) fn transmit(
    input: &mut Ahead<impl Read>,
    output: &mut (impl Write + Send),
    session: &Arc<Session>,
    (share, account): (Share, Arc<Account>),
    stop: &AtomicBool,
    line: &Line<'_>,
) -> io::Result<()> {
    let flow = Flow::new(share, account, session.structured, line.at_once.clone());
    let hangup = line.hangup;
    std::thread::scope(|scope| {
        let writing = flow.clone();
        let writer = std::thread::Builder::new().name("nbd writer".into()).stack_size(STACK);
        let writer = writer.spawn_scoped(scope, move || {
            // Also when the writer panics: else the reader would wait for ever.
            let mut lost = BreakOnDrop { flow: &writing, hangup, armed: true };
            let result = writing.write_to(output);
            lost.armed = result.is_err();
            result
        })?;
        // Also when the reader panics: else the writer would wait for ever.
        let closing = CloseOnDrop(&flow);
        let visitor = line.lends.clone().map(|socket| Visitor::new(socket, session.clone(), flow.clone()));
        let mut reader = Reader { input, session, flow: &flow, visitor, short: 0, sent: 0 };
        let read = reader.run(stop);
        // What it queued is not waited for in vain.
        drop(reader);
        drop(closing);
        let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.and(written)
    })
}

struct CloseOnDrop<'a>(&'a Flow);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct BreakOnDrop<'a> {
    flow: &'a Flow,
    hangup: &'a (dyn Fn() + Sync),
    armed: bool,
}

impl Drop for BreakOnDrop<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.flow.break_off();
            (self.hangup)();
        }
    }
}

struct Reader<'a, I> {
    input: &'a mut Ahead<I>,
    session: &'a Session,
    flow: &'a Arc<Flow>,
    /// Who may have the input instead.
    visitor: Option<Arc<Visitor>>,
    /// Requests in a row that anybody could have taken without waiting.
    short: u32,
    /// The longest payload that this client has sent whole.
    sent: usize,
}

impl<I: Read> Reader<'_, I> {
    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Acquire) {
            if self.lend() {
                continue;
            }
            let mut header = [0; REQUEST_HEADER];
            self.awaits(REQUEST_HEADER);
            match self.input.read_exact(&mut header) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                other => other?,
            }
            let request = Request::parse(&header).map_err(|_| violation("wrong request magic"))?;
            if request.command == cmd::DISC || !self.take(&request)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Lends the input where short requests come one after the other; has it back when this returns. `false`: it does
    /// not.
    fn lend(&mut self) -> bool {
        let Some(visitor) = self.visitor.as_ref().filter(|_| self.short >= LENDS_AFTER && self.input.has() == 0) else {
            return false;
        };
        self.session.volume.kick();
        match visitor.visit() {
            Some(left) => {
                self.short = 0;
                self.input.put_back(left);
                true
            }
            None => {
                self.visitor = None;
                false
            }
        }
    }

    /// Takes one request; `false` when the connection is broken.
    fn take(&mut self, request: &Request) -> io::Result<bool> {
        let long = request.command == cmd::WRITE && request.len as usize > SHORT;
        self.short = if long { 0 } else { self.short + 1 };
        let (asked, cost) = match validate(request, self.session) {
            Ok(accepted) => accepted,
            Err(refusal) => {
                if request.command == cmd::WRITE {
                    self.skip(request.len.into())?;
                }
                let Some(ticket) = self.enter(request, Asked::Other, 0) else { return Ok(false) };
                ticket.refuse(refusal);
                return Ok(true);
            }
        };
        let Some(mut ticket) = self.enter(request, asked, cost) else { return Ok(false) };
        if request.command == cmd::WRITE {
            let Some(parts) = self.payload(&mut ticket, request.len as usize)? else { return Ok(false) };
            let fua = request.flags & cmd::FLAG_FUA != 0;
            parts::write(&*self.session.volume, request.offset, parts, fua, ticket.submit());
            return Ok(true);
        }
        if !ticket.take(cost, || self.session.volume.kick()) {
            return Ok(false);
        }
        ask(&*self.session.volume, request, ticket);
        Ok(true)
    }

    /// The bytes of a write in parts, read from the socket; `None` when the connection is broken. Memory grows behind
    /// what arrives.
    fn payload(&mut self, ticket: &mut Ticket, len: usize) -> io::Result<Option<Vec<Payload>>> {
        let mut parts = Vec::new();
        let mut left = len;
        while left > 0 {
            let first = if parts.is_empty() { FIRST.max(self.sent) } else { PART };
            let Some(part) = self.part(ticket, left.min(PART), first, left)? else { return Ok(None) };
            left -= part.len();
            parts.push(part);
        }
        self.sent = self.sent.max(len.min(SENT_MAX));
        Ok(Some(parts))
    }

    /// `len` bytes of a payload of which `left` are still to come; there is room for `first` of them at once.
    fn part(&mut self, ticket: &mut Ticket, len: usize, first: usize, left: usize) -> io::Result<Option<Payload>> {
        let account = self.flow.account();
        let mut data = Payload::copy_of(&[]);
        let mut have = 0;
        while have < len {
            let room = (have * STEP).clamp(len.min(first), len);
            if !ticket.take(room - have, || self.session.volume.kick()) {
                return Ok(None);
            }
            let mut larger = account.buffers().take(room);
            larger[..have].copy_from_slice(&data);
            data = larger;
            self.awaits(room - have);
            account.wait_for(Way::In, left - have);
            self.input.read_exact(&mut data[have..])?;
            account.came(Way::In);
            have = room;
        }
        Ok(Some(data))
    }

    fn enter(&self, request: &Request, asked: Asked, cost: usize) -> Option<Ticket> {
        self.flow.enter(request.cookie, asked, cost, || self.session.volume.kick())
    }

    /// The next `len` bytes are to be read: if they have to be waited for, the volume has all that was queued before.
    fn awaits(&self, len: usize) {
        if self.input.has() < len {
            self.session.volume.kick();
        }
    }

    fn skip(&mut self, len: u64) -> io::Result<()> {
        self.session.volume.kick();
        let skipped = io::copy(&mut (&mut *self.input).take(len), &mut io::sink())?;
        if skipped < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl<I> Drop for Reader<'_, I> {
    fn drop(&mut self) {
        self.session.volume.kick();
    }
}

/// Queues what is asked of the volume, but for a write; `ticket` is answered with what comes of it.
pub(super) fn ask(volume: &dyn Volume, request: &Request, ticket: Ticket) {
    match op(request) {
        Some(op) => {
            let ticket = ticket.submit();
            volume.queue(op, Box::new(move |outcome| ticket.finish(outcome)));
        }
        None => ticket.finish(Ok(Reply::Done)),
    }
}

/// What to ask the volume, but for a write. `None` when there is nothing to ask.
fn op(request: &Request) -> Option<Op> {
    let Request { flags, offset, len, .. } = *request;
    let fua = flags & cmd::FLAG_FUA != 0;
    Some(match request.command {
        cmd::READ => Op::Read { offset, len },
        cmd::FLUSH => Op::Flush,
        cmd::TRIM => Op::Trim { offset, len: len.into(), fua },
        cmd::WRITE_ZEROES => {
            let no_hole = flags & cmd::FLAG_NO_HOLE != 0;
            let fast = flags & cmd::FLAG_FAST_ZERO != 0;
            Op::WriteZeroes { offset, len: len.into(), no_hole, fast, fua }
        }
        cmd::BLOCK_STATUS => Op::Status { offset, len: len.into(), limit: extents_max(flags) },
        // CACHE: a hint that nothing is made of.
        _ => return None,
    })
}

/// The gate: what the reply depends on and how many bytes it will hold, or why the request is refused.
pub(super) fn validate(request: &Request, session: &Session) -> Result<(Asked, usize), Refusal> {
    let refuse = |error, why| Err(Refusal { error, why });
    let Request { flags, command, offset, len, .. } = *request;
    let known = match command {
        cmd::READ if session.structured => cmd::FLAG_FUA | cmd::FLAG_DF,
        cmd::READ | cmd::WRITE | cmd::FLUSH | cmd::TRIM | cmd::CACHE => cmd::FLAG_FUA,
        cmd::WRITE_ZEROES => cmd::FLAG_FUA | cmd::FLAG_NO_HOLE | cmd::FLAG_FAST_ZERO,
        cmd::BLOCK_STATUS if session.status => cmd::FLAG_FUA | cmd::FLAG_REQ_ONE,
        cmd::BLOCK_STATUS => return refuse(NBD_EINVAL, "no metadata context was chosen"),
        _ => return refuse(NBD_EINVAL, "unknown command"),
    };
    if flags & !known != 0 {
        return refuse(NBD_EINVAL, "unknown flag for this command");
    }
    if command == cmd::FLUSH {
        return if (offset, len) == (0, 0) { Ok((Asked::Other, 0)) } else { refuse(NBD_EINVAL, "FLUSH has no range") };
    }
    let access = match command {
        cmd::READ => Access::Read,
        cmd::WRITE => Access::Write,
        cmd::TRIM => Access::Trim,
        cmd::WRITE_ZEROES => Access::Zero,
        _ => Access::Look,
    };
    session
        .shape
        .admit(access, offset, len.into())
        .map_err(|refused| Refusal { error: names(refused.kind).nbd, why: refused.why })?;
    Ok(match command {
        cmd::READ => (Asked::Read { offset, len, fragment: flags & cmd::FLAG_DF == 0 }, len as usize),
        cmd::WRITE => (Asked::Other, len as usize),
        cmd::BLOCK_STATUS => (Asked::Status { len, limit: extents_max(flags) }, STATUS_COST),
        cmd::WRITE_ZEROES if flags & cmd::FLAG_FAST_ZERO != 0 => (Asked::FastZero, 0),
        _ => (Asked::Other, 0),
    })
}

fn extents_max(flags: u16) -> usize {
    if flags & cmd::FLAG_REQ_ONE != 0 { 1 } else { EXTENTS_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::{NBD_ENOSPC, NBD_EPERM};
    use crate::export::{Done, Volume, VolumeShape};
    use weft_engine::limits::REQUEST_MAX;

    struct Nothing;

    impl Volume for Nothing {
        fn shape(&self) -> VolumeShape {
            VolumeShape {
                size: 1 << 20,
                sector: 4096,
                preferred: 4096,
                strip: 4096,
                read_only: false,
                rotational: false,
            }
        }

        fn submit(&self, _: Op, done: Done) {
            done(Ok(Reply::Done));
        }
    }

    fn verdict(command: u16, flags: u16, offset: u64, len: u32, change: impl FnOnce(&mut Session)) -> u32 {
        let volume = Arc::new(Nothing);
        let shape = volume.shape();
        let mut session = Session { name: "v".into(), volume, shape, structured: true, status: true };
        change(&mut session);
        let request = Request { flags, command, cookie: 0, offset, len };
        validate(&request, &session).map_or_else(|refusal| refusal.error, |_| 0)
    }

    #[test]
    fn the_gate_answers_as_the_specification_says() {
        let same = |_: &mut Session| {};
        let size = 1 << 20;
        for (command, past_the_end) in [
            (cmd::READ, NBD_EINVAL),
            (cmd::WRITE, NBD_ENOSPC),
            (cmd::TRIM, NBD_EINVAL),
            (cmd::CACHE, NBD_EINVAL),
            (cmd::WRITE_ZEROES, NBD_ENOSPC),
            (cmd::BLOCK_STATUS, NBD_EINVAL),
        ] {
            assert_eq!(verdict(command, cmd::FLAG_FUA, size - 4096, 4096, same), 0, "{command}");
            assert_eq!(verdict(command, 0, size, 4096, same), past_the_end, "{command}");
            assert_eq!(verdict(command, 0, u64::MAX - 4095, 4096, same), past_the_end, "{command}");
            assert_eq!(verdict(command, 0, 512, 4096, same), NBD_EINVAL, "{command}");
            assert_eq!(verdict(command, 0, 0, 512, same), NBD_EINVAL, "{command}");
            assert_eq!(verdict(command, 0, 0, 0, same), NBD_EINVAL, "{command}");
            assert_eq!(verdict(command, 1 << 15, 0, 4096, same), NBD_EINVAL, "{command}");
        }
        assert_eq!(verdict(cmd::FLUSH, 0, 0, 0, same), 0);
        assert_eq!(verdict(cmd::FLUSH, 0, 0, 4096, same), NBD_EINVAL);
        assert_eq!(verdict(77, 0, 0, 4096, same), NBD_EINVAL);
    }

    #[test]
    fn long_requests_are_refused_only_where_data_travels() {
        let long = REQUEST_MAX.0 as u32 + 4096;
        let large = |session: &mut Session| session.shape.size = 1 << 40;
        for command in [cmd::READ, cmd::WRITE] {
            assert_eq!(verdict(command, 0, 0, long, large), NBD_EINVAL, "{command}");
        }
        for command in [cmd::TRIM, cmd::WRITE_ZEROES, cmd::BLOCK_STATUS] {
            assert_eq!(verdict(command, 0, 0, long, large), 0, "{command}");
        }
    }

    #[test]
    fn what_was_not_negotiated_is_refused_and_a_read_only_export_takes_no_change() {
        let simple = |session: &mut Session| (session.structured, session.status) = (false, false);
        assert_eq!(verdict(cmd::READ, cmd::FLAG_DF, 0, 4096, simple), NBD_EINVAL);
        assert_eq!(verdict(cmd::BLOCK_STATUS, 0, 0, 4096, simple), NBD_EINVAL);
        let read_only = |session: &mut Session| session.shape.read_only = true;
        for command in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
            assert_eq!(verdict(command, 0, 0, 4096, read_only), NBD_EPERM, "{command}");
        }
        assert_eq!(verdict(cmd::READ, 0, 0, 4096, read_only), 0);
    }
}
