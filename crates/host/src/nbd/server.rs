//! Accepting connections, and ending them.
//!
//! Invariants
//! 1. A connection is in the table from before its thread starts until that thread is done with it.
//! 2. Stopping sets the flag first, then wakes whoever blocks: nobody starts anything new after being woken.
//! 3. Who has not chosen an export yet makes room for who comes: the oldest of the address that has the most of them.
//!    So neither silence nor noise before the choice keeps anybody out, and one address never takes all places there
//!    are. Where all have chosen, who has done nothing for [`Config::idle`] makes room, the longest idle first: places
//!    are not held for ever by asking for nothing.
//! 4. Descriptors are left for the rest of the daemon: commands, and disks that come back.
//! 5. Stopping never waits for ever: after [`Config::drain`] connections are cut. The threads of one whose volume does
//!    not answer end when it does.

use super::Address;
use super::ahead::Ahead;
use super::listen::Listener;
use super::negotiate::{Session, negotiate, violation};
use super::replies::AtOnce;
use super::room::{Account, Pulse, Room};
use super::transmit::{Share, transmit};
use crate::export::Exports;
use rustix::process::{Resource, getrlimit};
use socket2::{SockAddr, Socket, TcpKeepalive};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_engine::error::{Error, ErrorKind, Result};

/// How long to wait before accepting again when the system has no file or memory to spare.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Descriptors that are left for others, or half of all where there are few.
const DESCRIPTORS_LEFT: u64 = 128;

/// Those that were sent away and have not ended yet.
const LEAVING_MAX: usize = 8;
/// Bytes of the stack of a connection's threads. They are locked in memory with everything else of a daemon that serves
/// its own machine.
pub(super) const STACK: usize = 256 << 10;
/// How long somebody who comes waits for those to end that were sent away.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// The limits of a server.
#[derive(Clone)]
pub struct Config {
    /// Connections at a time; more are closed at once.
    pub connections: usize,
    /// Those of one address, over TCP.
    pub of_one_address: usize,
    /// Those that have not chosen an export yet; one more sends another away.
    pub choosing: usize,
    /// What each connection may hold.
    pub share: Share,
    /// What all connections may hold; usually that of other servers, too.
    pub room: Arc<Room>,
    /// How long a client may take to choose an export.
    pub handshake: Duration,
    /// How long one that has chosen may do nothing where its place is wanted.
    pub idle: Duration,
    /// Whether clients of an address are let in, over TCP.
    pub admits: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// How long stopping waits for requests in flight and for clients to take their replies.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            connections: 256,
            of_one_address: 64,
            choosing: 32,
            room: Room::usual(),
            share: Share { requests: 256, bytes: 32 << 20 },
            handshake: Duration::from_secs(20),
            idle: Duration::from_secs(300),
            admits: Arc::new(|_| true),
            drain: Duration::from_secs(10),
        }
    }
}

/// A server at one address. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    listener: Arc<Listener>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    exports: Arc<dyn Exports>,
    config: Config,
    table: Mutex<Table>,
    /// Told when a connection leaves the table.
    left: Condvar,
}

#[derive(Default)]
struct Table {
    stopping: bool,
    next: u64,
    connections: BTreeMap<u64, Connection>,
}

#[derive(Clone)]
struct Connection {
    socket: Arc<Socket>,
    /// Where it comes from, as far as that is one neighbour; none over unix sockets.
    peer: Option<IpAddr>,
    /// It was sent away, and is about to end.
    leaving: bool,
    /// The export it serves, once that is chosen.
    export: Option<String>,
    /// Whether it does anything, from then on.
    pulse: Option<Arc<Pulse>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Listens at `address` and serves `exports` to whoever connects. A socket file that a dead server left is
    /// replaced; errors: [`ErrorKind::AlreadyExists`] when something else is there, [`ErrorKind::NotPossible`] when
    /// the system refuses.
    pub fn start(address: &Address, exports: Arc<dyn Exports>, config: Config) -> Result<Server> {
        let listener = Arc::new(Listener::bind(address)?);
        let shared = Arc::new(Shared { exports, config, table: Mutex::default(), left: Condvar::new() });
        let (theirs, socket) = (shared.clone(), listener.clone());
        let accepting = std::thread::Builder::new().name("nbd accept".into()).spawn(move || theirs.accept(&socket));
        let accepting = accepting.map_err(|error| Error::new(ErrorKind::NotPossible, format!("no thread: {error}")))?;
        Ok(Server { shared, listener, accepting: Some(accepting) })
    }

    /// Where it listens; for port 0 the port that was taken.
    pub fn address(&self) -> &Address {
        &self.listener.address
    }

    /// How many clients are connected now.
    pub fn connections(&self) -> usize {
        self.shared.lock().connections.len()
    }

    /// How many of them have chosen `export`.
    pub fn connections_to(&self, export: &str) -> usize {
        let table = self.shared.lock();
        table.connections.values().filter(|one| one.export.as_deref() == Some(export)).count()
    }

    /// Ends the connections to `export`, as [`Server::stop`] does. New ones must already find it gone from
    /// [`Exports::open`].
    pub fn disconnect(&self, export: &str) {
        self.shared.end(|connection| connection.export.as_deref() == Some(export));
    }

    /// Closes the listener, completes the requests in flight, closes all connections.
    pub fn stop(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.shared.lock().stopping = true;
        let _ = self.listener.socket.shutdown(Shutdown::Both);
        // A panic there was reported already; the rest must stop all the same.
        let _ = accepting.join();
        self.shared.end(|_| true);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &Listener) {
        loop {
            let accepted = listener.socket.accept();
            if self.lock().stopping {
                return;
            }
            match accepted {
                Ok((socket, from)) => self.admit(socket, &from),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => std::thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    fn admit(self: &Arc<Self>, socket: Socket, from: &SockAddr) {
        let descriptor = socket.as_raw_fd() as u64;
        let from = from.as_socket().map(|from| from.ip().to_canonical());
        if from.is_some_and(|from| !(self.config.admits)(from)) {
            return;
        }
        let (peer, socket) = (from.map(neighbour), Arc::new(socket));
        let connection = Connection { socket, peer, leaving: false, export: None, pulse: None, stop: Arc::default() };
        // Those that were sent away are about to end: what they still have is bounded by waiting for them.
        let crowded = |table: &mut Table| !table.stopping && table.leaving() >= LEAVING_MAX;
        let waited = self.left.wait_timeout_while(self.lock(), LEAVE_WITHIN, crowded);
        let (mut table, late) = waited.unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() || !table.make_place(&self.config, peer, is_scarce(descriptor)) {
            return;
        }
        let no = table.next;
        table.next += 1;
        table.connections.insert(no, connection.clone());
        drop(table);
        let leaving = Leaving { shared: self.clone(), no };
        // When there is no thread to be had, `leaving` is dropped with the closure and the connection closes.
        let _ = std::thread::Builder::new().name("nbd reader".into()).stack_size(STACK).spawn(move || {
            // How it ended is the client's business: it broke the protocol, or left.
            let _ = leaving.shared.serve(&connection, leaving.no);
        });
    }

    fn serve(&self, connection: &Connection, no: u64) -> io::Result<()> {
        let socket = &*connection.socket;
        tune(socket);
        let deadline = Mutex::new(Some(Instant::now() + self.config.handshake));
        socket.set_write_timeout(Some(self.config.handshake))?;
        let mut input = Timed { socket, deadline: &deadline };
        let hangup = || {
            let _ = socket.shutdown(Shutdown::Both);
        };
        let late = connection.socket.clone();
        let account = self.config.room.open(Box::new(move || {
            let _ = late.shutdown(Shutdown::Both);
        }));
        let pulse = account.pulse().clone();
        let entered = |session: &Session| {
            if let Some(entry) = self.lock().connections.get_mut(&no) {
                entry.export = Some(session.name.clone());
                entry.pulse = Some(pulse.clone());
            }
            // Whoever took the export away while it was being chosen did not see this connection.
            match self.exports.open(&session.name) {
                Some(_) => Ok(()),
                None => Err(violation("the export went away")),
            }
        };
        let mut output = socket;
        let (exports, memory) = (&*self.exports, (self.config.share, Arc::new(account)));
        let own = connection.socket.clone();
        let at_once: AtOnce = Arc::new(move |parts| own.send_vectored_with_flags(parts, libc::MSG_DONTWAIT));
        let at_ease = || {
            *deadline.lock().unwrap_or_else(PoisonError::into_inner) = None;
            socket.set_read_timeout(None)?;
            socket.set_write_timeout(None)
        };
        let lends = Some(connection.socket.clone());
        let line = Line { hangup: &hangup, at_ease: &at_ease, at_once: Some(at_once), lends };
        converse(&mut input, &mut output, exports, memory, &connection.stop, &entered, &line)
    }

    /// Ends the connections that `concerned` picks: politely, then by force.
    fn end(&self, concerned: impl Fn(&Connection) -> bool) {
        let mut table = self.lock();
        for connection in table.connections.values().filter(|one| concerned(one)) {
            connection.stop.store(true, Ordering::Release);
            let _ = connection.socket.shutdown(Shutdown::Read);
        }
        for force in [false, true] {
            if force {
                for connection in table.connections.values().filter(|one| concerned(one)) {
                    let _ = connection.socket.shutdown(Shutdown::Both);
                }
            }
            let remain = |table: &mut Table| table.connections.values().any(&concerned);
            let waited = self.left.wait_timeout_while(table, self.config.drain, remain);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Makes a place for one more from `peer` (invariant 3). `false`: there is none. `scarce`: it has one of the last
    /// descriptors.
    fn make_place(&mut self, config: &Config, peer: Option<IpAddr>, scarce: bool) -> bool {
        let own = self.staying().filter(|one| one.peer == peer).count();
        if peer.is_some() && own >= config.of_one_address {
            return self.send_away(peer, config.idle);
        }
        let choosing = self.staying().filter(|one| one.export.is_none()).count();
        if !scarce && choosing < config.choosing && self.staying().count() < config.connections {
            return true;
        }
        let most = most_of(self.staying().filter(|one| one.export.is_none()));
        let most = most.or_else(|| most_of(self.staying().filter(|one| one.is_idle(config.idle))));
        most.is_some_and(|peer| self.send_away(peer, config.idle))
    }

    fn staying(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values().filter(|one| !one.leaving)
    }

    fn leaving(&self) -> usize {
        self.connections.values().filter(|one| one.leaving).count()
    }

    /// Sends one of `peer` away: the oldest that has not chosen an export, else the one that has done nothing for the
    /// longest time, and for `idle` at least. `false`: there is none.
    fn send_away(&mut self, peer: Option<IpAddr>, idle: Duration) -> bool {
        let own = || self.connections.iter().filter(|(_, one)| one.peer == peer && !one.leaving);
        let oldest = own().find(|(_, one)| one.export.is_none());
        let laziest = || own().filter(|(_, one)| one.is_idle(idle)).max_by_key(|(_, one)| one.idle_for());
        let Some(no) = oldest.or_else(laziest).map(|(no, _)| *no) else { return false };
        if let Some(one) = self.connections.get_mut(&no) {
            one.leaving = true;
            let _ = one.socket.shutdown(Shutdown::Both);
        }
        true
    }
}

impl Connection {
    fn idle_for(&self) -> Option<Duration> {
        self.pulse.as_ref()?.idle_for()
    }

    fn is_idle(&self, idle: Duration) -> bool {
        self.idle_for().is_some_and(|since| since >= idle)
    }
}

/// Who has the most of these.
fn most_of<'a>(connections: impl Iterator<Item = &'a Connection>) -> Option<Option<IpAddr>> {
    let mut by_peer: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
    connections.for_each(|one| *by_peer.entry(one.peer).or_default() += 1);
    by_peer.into_iter().max_by_key(|(_, count)| *count).map(|(peer, _)| peer)
}

/// Addresses that one neighbour has as many of as he likes are one: the last 64 bits of IPv6 are his.
fn neighbour(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(_) => addr,
        IpAddr::V6(addr) => Ipv6Addr::from_bits(addr.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// Whether the system gave one of the last descriptors: it gives the lowest that is free.
fn is_scarce(descriptor: u64) -> bool {
    getrlimit(Resource::Nofile).current.is_some_and(|limit| descriptor + DESCRIPTORS_LEFT.min(limit / 2) >= limit)
}

/// One client's whole conversation, over any streams: handshake, then requests until it ends or `stop` is set.
/// `entered` is told the session before the first request.
pub fn converse(
    input: &mut impl Read,
    output: &mut (impl Write + Send),
    exports: &dyn Exports,
    memory: (Share, Arc<Account>),
    stop: &AtomicBool,
    entered: &dyn Fn(&Session) -> io::Result<()>,
    line: &Line<'_>,
) -> io::Result<()> {
    let mut input = Ahead::new(input);
    let Some(session) = negotiate(&mut input, output, exports, entered)? else { return Ok(()) };
    (line.at_ease)()?;
    transmit(&mut input, output, &Arc::new(session), memory, stop, line)
}

/// What can be done with a connection beside reading and writing.
pub struct Line<'a> {
    /// Makes a read of its input that waits return.
    pub hangup: &'a (dyn Fn() + Sync),
    /// Lifts the limits on the time that the handshake takes.
    pub at_ease: &'a (dyn Fn() -> io::Result<()> + Sync),
    /// Sends without waiting; none: only its own thread sends.
    pub at_once: Option<AtOnce>,
    /// The input, for a volume's thread that takes requests from it itself; none: only its own thread reads.
    pub lends: Option<Arc<Socket>>,
}

/// Takes its connection out of the table when the thread ends, however it ends.
struct Leaving {
    shared: Arc<Shared>,
    no: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let connection = self.shared.lock().connections.remove(&self.no);
        if let Some(connection) = connection {
            let _ = connection.socket.shutdown(Shutdown::Both);
        }
        self.shared.left.notify_all();
    }
}

/// Reads that end at a deadline, until there is none any more.
struct Timed<'a> {
    socket: &'a Socket,
    deadline: &'a Mutex<Option<Instant>>,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let deadline = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.set_read_timeout(Some(left))?;
        }
        (&mut &*self.socket).read(into)
    }
}

/// TCP only (a unix socket refuses, which is fine): replies leave at once, and a peer that is gone is noticed.
fn tune(socket: &Socket) {
    if socket.local_addr().is_ok_and(|local| local.as_socket().is_some()) {
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(10));
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_tcp_keepalive(&keepalive);
        let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(120)));
    }
}
