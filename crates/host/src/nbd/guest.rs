//! A connection whose requests the volume's own thread takes from the socket: short ones need no other thread then, and
//! what comes together is one system call. The reader of the connection lends its input for that, and has it back with
//! the first request that would have to be waited for: for memory, for a place, for the rest of a long payload.
//!
//! Invariants
//! 1. Either the reader has the input or the volume's thread, never both. Bytes go from one to the other with it, so
//!    requests are taken in the order in which they came.
//! 2. Nothing here waits: neither for the client nor for memory.
//! 3. What is not whole yet is at most one short request: it lies here as it does in [`super::ahead`].
//! 4. The reader gets its input back however the lending ends: also when the thread is gone.
//! 5. A client that sends its requests in crumbs wakes its own reader for them, and nobody else.

use super::negotiate::Session;
use super::parts;
use super::replies::{Asked, Flow};
use super::transmit::{ask, validate};
use super::wire::{REQUEST_HEADER, Request, cmd};
use crate::export::{GUEST_BYTES, Guest, PayloadPool};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The longest payload of a write that is taken here.
pub(super) const SHORT: usize = 32 << 10;
const _: () = assert!(REQUEST_HEADER + SHORT < GUEST_BYTES);

/// How often in a row what came may not have made a request whole.
const CRUMBS_MAX: u32 = 8;

/// One connection, as the volume's thread sees it.
pub(super) struct Visitor {
    socket: Arc<Socket>,
    session: Arc<Session>,
    flow: Arc<Flow>,
    state: Mutex<State>,
    /// Told when the reader has its input back.
    back: Condvar,
}

#[derive(Default)]
struct State {
    /// The volume's thread has the input.
    lent: bool,
    /// What was read and not taken.
    bytes: Vec<u8>,
    /// How often in a row what came did not make a request whole.
    crumbs: u32,
}

impl Visitor {
    pub(super) fn new(socket: Arc<Socket>, session: Arc<Session>, flow: Arc<Flow>) -> Arc<Visitor> {
        Arc::new(Visitor { socket, session, flow, state: Mutex::default(), back: Condvar::new() })
    }

    /// Lends the input, of which nothing was read ahead, to the volume's thread, and waits until that gives it back.
    /// Returns what was read and not taken; `None`: the volume takes no guests.
    pub(super) fn visit(self: &Arc<Self>) -> Option<Vec<u8>> {
        *self.lock() = State { lent: true, ..State::default() };
        if !self.session.volume.host(self.clone()) {
            self.lock().lent = false;
            return None;
        }
        let lent = |state: &mut State| state.lent;
        let mut state = self.back.wait_while(self.lock(), lent).unwrap_or_else(PoisonError::into_inner);
        Some(std::mem::take(&mut state.bytes))
    }

    /// Takes the requests that are whole in `bytes`. How many bytes that was; `Err`: the next one is the reader's.
    fn take_all(&self, bytes: &[u8], buffers: &Arc<PayloadPool>) -> (usize, Result<(), Stop>) {
        let mut at = 0;
        loop {
            match self.take(&bytes[at..], buffers) {
                Ok(Some(taken)) => at += taken,
                Ok(None) => return (at, Ok(())),
                Err(stop) => return (at, Err(stop)),
            }
        }
    }

    /// Takes the first request. How many bytes it has; `None`: it is not whole yet.
    fn take(&self, bytes: &[u8], buffers: &Arc<PayloadPool>) -> Result<Option<usize>, Stop> {
        let Some((header, rest)) = bytes.split_first_chunk::<REQUEST_HEADER>() else { return Ok(None) };
        let request = Request::parse(header).map_err(|_| Stop)?;
        let (asked, cost) = validate(&request, &self.session).map_err(|_| Stop)?;
        let volume = &self.session.volume;
        if request.command == cmd::WRITE {
            let len = request.len as usize;
            if len > SHORT {
                return Err(Stop);
            }
            let Some(payload) = rest.get(..len) else { return Ok(None) };
            let ticket = self.flow.try_enter(request.cookie, Asked::Other, cost).ok_or(Stop)?;
            let mut data = buffers.take(len);
            data.copy_from_slice(payload);
            let fua = request.flags & cmd::FLAG_FUA != 0;
            parts::write(&**volume, request.offset, vec![data], fua, ticket.submit());
            return Ok(Some(REQUEST_HEADER + len));
        }
        if request.command == cmd::DISC {
            return Err(Stop);
        }
        let ticket = self.flow.try_enter(request.cookie, asked, cost).ok_or(Stop)?;
        ask(&**volume, &request, ticket);
        Ok(Some(REQUEST_HEADER))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next request, or the end, is the reader's.
struct Stop;

impl Guest for Visitor {
    fn socket(&self) -> Arc<Socket> {
        self.socket.clone()
    }

    fn serve(&self, scratch: &mut [u8], buffers: &Arc<PayloadPool>) -> bool {
        let mut state = self.lock();
        let kept = state.bytes.len();
        scratch[..kept].copy_from_slice(&state.bytes);
        state.bytes.clear();
        let (came, mut goes_on) = match recv(&self.socket, &mut scratch[kept..], RecvFlags::DONTWAIT) {
            // It has left, or is lost: the reader will see.
            Ok((_, 0)) => (0, false),
            Ok((_, came)) => (came, true),
            Err(Errno::AGAIN | Errno::INTR) => (0, true),
            Err(_) => (0, false),
        };
        let (taken, outcome) = self.take_all(&scratch[..kept + came], buffers);
        state.crumbs = if taken == 0 { state.crumbs + 1 } else { 0 };
        goes_on &= outcome.is_ok() && state.crumbs < CRUMBS_MAX;
        state.bytes.extend_from_slice(&scratch[taken..kept + came]);
        goes_on
    }

    fn leave(&self) {
        self.lock().lent = false;
        self.back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::super::replies::AtOnce;
    use super::super::room::{OWN, Room};
    use super::super::transmit::Share;
    use super::*;
    use crate::export::{Done, Op, Reply, Volume, VolumeShape};
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// Notes what it is asked, and keeps the answers if `holds`.
    #[derive(Default)]
    struct Notes {
        holds: bool,
        asked: Mutex<Vec<String>>,
        held: Mutex<Vec<Done>>,
    }

    impl Volume for Notes {
        fn shape(&self) -> VolumeShape {
            let (sector, preferred, strip) = (512, 4096, 4096);
            VolumeShape { size: 1 << 20, sector, preferred, strip, read_only: false, rotational: false }
        }

        fn submit(&self, op: Op, done: Done) {
            let words = match &op {
                Op::Write { offset, data, .. } => format!("write {offset} {} of {}", data.len(), data[0]),
                Op::Flush => "flush".into(),
                other => format!("{other:?}"),
            };
            self.asked.lock().unwrap().push(words);
            match self.holds {
                true => self.held.lock().unwrap().push(done),
                false => done(Ok(Reply::Done)),
            }
        }
    }

    struct Bench {
        volume: Arc<Notes>,
        client: UnixStream,
        visitor: Arc<Visitor>,
        scratch: Vec<u8>,
        buffers: Arc<PayloadPool>,
    }

    impl Bench {
        fn new(holds: bool, share: Share, room: &Arc<Room>) -> Bench {
            let volume = Arc::new(Notes { holds, ..Notes::default() });
            let (client, server) = UnixStream::pair().unwrap();
            let shape = volume.shape();
            let session = Session { name: "v".into(), volume: volume.clone(), shape, structured: false, status: false };
            let sends: AtOnce = Arc::new(|parts| Ok(parts.iter().map(|part| part.len()).sum()));
            let flow = Flow::new(share, Arc::new(room.open(Box::new(|| {}))), false, Some(sends));
            let visitor = Visitor::new(Arc::new(Socket::from(server)), Arc::new(session), flow);
            Bench { volume, client, visitor, scratch: vec![0; GUEST_BYTES], buffers: PayloadPool::new(0) }
        }

        /// Serves what was sent, and says whether the guest stays.
        fn serve(&mut self, bytes: &[u8]) -> bool {
            self.client.write_all(bytes).unwrap();
            crate::export::gather(|| self.visitor.serve(&mut self.scratch, &self.buffers))
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut *self.volume.asked.lock().unwrap())
        }

        fn left(&self) -> usize {
            self.visitor.lock().bytes.len()
        }
    }

    fn request(command: u16, offset: u64, len: u32) -> Vec<u8> {
        Request { flags: 0, command, cookie: 7, offset, len }.to_bytes().to_vec()
    }

    fn write(offset: u64, byte: u8, len: usize) -> Vec<u8> {
        [request(cmd::WRITE, offset, len as u32), vec![byte; len]].concat()
    }

    const SHARE: Share = Share { requests: 16, bytes: 1 << 20 };

    #[test]
    fn whole_requests_are_taken_in_their_order_and_half_of_one_waits_for_its_rest() {
        let mut bench = Bench::new(false, SHARE, &Room::usual());
        let both = [write(0, 1, 512), request(cmd::FLUSH, 0, 0), write(4096, 2, 4096)].concat();
        for (nth, part) in both.chunks(1000).enumerate() {
            assert!(bench.serve(part), "part {nth}");
        }
        assert_eq!(bench.asked(), ["write 0 512 of 1", "flush", "write 4096 4096 of 2"]);
        assert!(bench.serve(&both.repeat(3)));
        assert_eq!((bench.asked().len(), bench.left()), (9, 0));
    }

    #[test]
    fn what_the_reader_has_to_do_goes_back_with_all_that_follows() {
        let long = request(cmd::WRITE, 0, SHORT as u32 + 512);
        let cases = [long, request(77, 0, 0), request(cmd::READ, 1 << 20, 512), request(cmd::DISC, 0, 0), vec![0; 28]];
        for next in cases {
            let mut bench = Bench::new(false, SHARE, &Room::usual());
            let after = [&next[..], &[9; 100]].concat();
            assert!(!bench.serve(&[&write(0, 1, 512)[..], &after].concat()));
            assert_eq!((bench.asked(), bench.left()), (vec!["write 0 512 of 1".into()], after.len()));
            assert!(bench.visitor.lock().bytes == after);
        }
        let mut bench = Bench::new(false, SHARE, &Room::usual());
        bench.client.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!bench.serve(&[]), "it has left");
    }

    #[test]
    fn crumbs_are_for_the_reader() {
        let mut bench = Bench::new(false, SHARE, &Room::usual());
        let flush = request(cmd::FLUSH, 0, 0);
        for _ in 0..3 {
            assert!(bench.serve(&flush[..20]) && bench.serve(&flush[20..]), "half of a request is no crumb");
        }
        let served = flush.iter().position(|byte| !bench.serve(&[*byte]));
        assert_eq!((served, bench.left()), (Some(CRUMBS_MAX as usize - 1), CRUMBS_MAX as usize));
    }

    #[test]
    fn who_would_have_to_wait_for_a_place_or_for_memory_has_its_input_back() {
        let few = Share { requests: 2, ..SHARE };
        let mut bench = Bench::new(true, few, &Room::usual());
        assert!(bench.serve(&request(cmd::FLUSH, 0, 0).repeat(2)));
        assert!(!bench.serve(&request(cmd::FLUSH, 0, 0)));
        // Others have all the memory but what is its own.
        let room = Room::new(4096);
        let other = room.open(Box::new(|| {}));
        assert!(other.try_take(4096));
        let mut bench = Bench::new(true, SHARE, &room);
        let fits = OWN / SHORT;
        (0..fits).for_each(|_| assert!(bench.serve(&write(0, 3, SHORT))));
        assert!(!bench.serve(&write(0, 3, SHORT)));
        assert_eq!((bench.asked().len(), room.memory().1), (fits, 4096));
        other.give(4096);
        bench.volume.held.lock().unwrap().drain(..).for_each(|done| done(Ok(Reply::Done)));
        assert!(bench.visitor.flow.try_enter(1, Asked::Other, 4096).is_some());
    }
}
