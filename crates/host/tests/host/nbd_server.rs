//! Listening, limits and stopping, with raw sockets as clients.

use crate::common::{Hosted, Memory, Shelf, shape};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weft_engine::error::ErrorKind;
use weft_host::errno::NBD_ESHUTDOWN;
use weft_host::export::{Done, Op, Payload, Reply, Volume, VolumeShape, gather};
use weft_host::nbd::transmit::Share;
use weft_host::nbd::wire::{OPTION_MAGIC, Request, cmd, option};
use weft_host::nbd::{Address, Config, Server};

fn shelf() -> Arc<Shelf> {
    of(Memory::new(shape(1 << 20, 512)))
}

/// One volume, whose thread takes short requests from the sockets itself where they come one after the other.
fn of(volume: Arc<dyn Volume>) -> Arc<Shelf> {
    let volume: Arc<dyn Volume> = Arc::new(Hosted(volume));
    Shelf::of([("disk", volume)])
}

fn socket(dir: &tempfile::TempDir) -> (PathBuf, Address) {
    let path = dir.path().join("s");
    (path.clone(), Address::Unix(path))
}

/// Enters transmission with the old, shortest handshake.
fn enter(stream: &mut (impl Read + Write)) {
    try_enter(stream).unwrap();
}

fn try_enter(stream: &mut (impl Read + Write)) -> std::io::Result<()> {
    let mut hello = 3u32.to_be_bytes().to_vec();
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend(option::EXPORT_NAME.to_be_bytes());
    hello.extend(4u32.to_be_bytes());
    hello.extend(b"disk");
    stream.write_all(&hello)?;
    stream.read_exact(&mut [0; 18 + 10])
}

fn ask(stream: &mut impl Write, command: u16, cookie: u64, len: u32) {
    stream.write_all(&Request { flags: 0, command, cookie, offset: 0, len }.to_bytes()).unwrap();
}

/// The error of the next reply that has no data.
fn answer(stream: &mut impl Read) -> u32 {
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).unwrap();
    u32::from_be_bytes(reply[4..8].try_into().unwrap())
}

fn closed(stream: &mut impl Read) -> bool {
    let mut rest = Vec::new();
    // A reset is as closed as an end.
    stream.read_to_end(&mut rest).map_or(true, |_| true)
}

/// Keeps every question until it is told to answer.
#[derive(Default)]
struct Slow(Mutex<Vec<Done>>);

impl Volume for Slow {
    fn shape(&self) -> VolumeShape {
        shape(1 << 20, 512)
    }

    fn submit(&self, _: Op, done: Done) {
        self.0.lock().unwrap().push(done);
    }
}

impl Slow {
    fn wait_for(&self, count: usize) {
        while self.0.lock().unwrap().len() < count {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_stale_socket_file_is_replaced_a_live_one_and_a_plain_file_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "std leaves the file behind");
    let server = Server::start(&address, shelf(), Config::default()).unwrap();
    enter(&mut UnixStream::connect(&path).unwrap());
    let second = Server::start(&address, shelf(), Config::default()).err().unwrap();
    assert_eq!(second.kind, ErrorKind::AlreadyExists);
    enter(&mut UnixStream::connect(&path).unwrap());
    server.stop();
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    let third = Server::start(&address, shelf(), Config::default()).err().unwrap();
    assert_eq!(third.kind, ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_server_leaves_a_socket_file_that_is_no_longer_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let server = Server::start(&address, shelf(), Config::default()).unwrap();
    // Kept under another name, so that its inode number is not taken again.
    std::fs::rename(&path, dir.path().join("away")).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    server.stop();
    assert!(path.exists());
    drop(other);
}

#[test]
fn stopping_completes_what_is_in_flight_and_closes_connections_over_tcp_too() {
    let slow = Arc::new(Slow::default());
    let shelf = of(slow.clone());
    let server = Server::start(&"tcp:127.0.0.1:0".parse().unwrap(), shelf, Config::default()).unwrap();
    let Address::Tcp(place) = server.address().clone() else { panic!("not TCP") };
    let mut stream = TcpStream::connect(&place).unwrap();
    enter(&mut stream);
    ask(&mut stream, cmd::FLUSH, 1, 0);
    ask(&mut stream, cmd::TRIM, 2, 512);
    slow.wait_for(2);
    let stopping = std::thread::spawn(move || server.stop());
    // The second one is dropped unanswered, as by an engine that goes down.
    slow.0.lock().unwrap().remove(0)(Ok(Reply::Done));
    slow.0.lock().unwrap().clear();
    assert_eq!((answer(&mut stream), answer(&mut stream)), (0, NBD_ESHUTDOWN));
    assert!(closed(&mut stream));
    stopping.join().unwrap();
    assert!(TcpStream::connect(&place).is_err());
}

#[test]
fn stopping_does_not_wait_for_a_volume_that_never_answers() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let slow = Arc::new(Slow::default());
    let shelf = of(slow.clone());
    let config = Config { drain: Duration::from_millis(20), ..Config::default() };
    let server = Server::start(&address, shelf, config).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    enter(&mut stream);
    ask(&mut stream, cmd::FLUSH, 1, 0);
    slow.wait_for(1);
    server.stop();
    assert!(closed(&mut stream));
    slow.0.lock().unwrap().remove(0)(Ok(Reply::Done));
}

#[test]
fn a_client_that_reads_nothing_stops_being_read_and_does_not_stop_the_server_from_stopping() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let config = Config { drain: Duration::from_millis(20), ..Config::default() };
    let server = Server::start(&address, shelf(), config).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    enter(&mut stream);
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    // Far more than the sockets and the share of the connection hold: back-pressure must reach this side.
    let read = Request { flags: 0, command: cmd::READ, cookie: 0, offset: 0, len: 1 << 20 }.to_bytes();
    let stuck = (0..100_000).map(|_| stream.write_all(&read)).find(Result::is_err);
    assert!(stuck.is_some(), "100 GB of replies were promised without a byte being taken");
    server.stop();
}

/// Starts what was queued when it is kicked, and answers it as the engine does: together, on a thread of its own.
struct Lazy {
    inner: Arc<Memory>,
    queued: Mutex<Vec<(Op, Done)>>,
    kicks: std::sync::mpsc::SyncSender<Vec<(Op, Done)>>,
}

impl Lazy {
    fn new() -> Arc<Lazy> {
        let inner = Memory::new(shape(1 << 20, 512));
        let (kicks, kicked) = std::sync::mpsc::sync_channel::<Vec<(Op, Done)>>(1 << 10);
        let answering = inner.clone();
        std::thread::spawn(move || {
            for queued in kicked {
                gather(|| queued.into_iter().for_each(|(op, done)| answering.submit(op, done)));
            }
        });
        Arc::new(Lazy { inner, queued: Mutex::default(), kicks })
    }
}

impl Volume for Lazy {
    fn shape(&self) -> VolumeShape {
        self.inner.shape()
    }

    fn submit(&self, op: Op, done: Done) {
        self.queue(op, done);
        self.kick();
    }

    fn queue(&self, op: Op, done: Done) {
        self.queued.lock().unwrap().push((op, done));
    }

    fn kick(&self) {
        let queued = std::mem::take(&mut *self.queued.lock().unwrap());
        if !queued.is_empty() {
            self.kicks.send(queued).unwrap();
        }
    }
}

#[test]
fn a_request_that_is_followed_by_half_of_another_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let volume: Arc<dyn Volume> = Lazy::new();
    let share = Share { requests: 2, bytes: 4096 };
    let server = Server::start(&address, of(volume), Config { share, ..Config::default() }).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    enter(&mut stream);
    // Half a header, half a payload, and more requests than may be in flight: whatever the reader waits for then, what
    // came before is done.
    let write = Request { flags: 0, command: cmd::WRITE, cookie: 9, offset: 0, len: 4096 }.to_bytes();
    let flush = Request { flags: 0, command: cmd::FLUSH, cookie: 1, offset: 0, len: 0 }.to_bytes();
    stream.write_all(&[&flush[..], &write[..14]].concat()).unwrap();
    assert_eq!(answer(&mut stream), 0);
    stream.write_all(&write[14..]).unwrap();
    stream.write_all(&[&[7; 4096][..], &flush, &write, &[7; 100]].concat()).unwrap();
    assert_eq!((answer(&mut stream), answer(&mut stream)), (0, 0));
    stream.write_all(&[&[7; 3996][..], &flush.repeat(5)].concat()).unwrap();
    (0..6).for_each(|_| assert_eq!(answer(&mut stream), 0));
    server.stop();
}

#[test]
fn a_client_that_takes_no_replies_keeps_none_from_another_and_has_all_of_them_whole_later() {
    const READS: u64 = 150;
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let volume = Lazy::new();
    volume.inner.submit(Op::Write { offset: 0, data: Payload::copy_of(&[5; 8192]), fua: false }, Box::new(|_| {}));
    let volume: Arc<dyn Volume> = volume;
    let server = Server::start(&address, of(volume), Config::default()).unwrap();
    let (mut lazy, mut other) = (UnixStream::connect(&path).unwrap(), UnixStream::connect(&path).unwrap());
    enter(&mut lazy);
    enter(&mut other);
    // More than the socket holds.
    (0..READS).for_each(|cookie| ask(&mut lazy, cmd::READ, cookie, 8192));
    for cookie in 0..20 {
        ask(&mut other, cmd::FLUSH, cookie, 0);
        assert_eq!(answer(&mut other), 0);
    }
    let mut seen = Vec::new();
    for _ in 0..READS {
        let mut reply = vec![0; 16 + 8192];
        lazy.read_exact(&mut reply).unwrap();
        assert!(reply[16..].iter().all(|byte| *byte == 5));
        seen.push(u64::from_be_bytes(reply[8..16].try_into().unwrap()));
    }
    assert_eq!(seen, (0..READS).collect::<Vec<_>>());
    server.stop();
}

#[test]
fn one_connection_too_many_is_closed_and_a_place_that_was_left_is_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let config = Config { connections: 1, ..Config::default() };
    let server = Server::start(&address, shelf(), config).unwrap();
    let mut first = UnixStream::connect(&path).unwrap();
    enter(&mut first);
    assert!(closed(&mut UnixStream::connect(&path).unwrap()));
    drop(first);
    while server.connections() > 0 {
        std::thread::yield_now();
    }
    enter(&mut UnixStream::connect(&path).unwrap());
}

#[test]
fn a_client_silent_in_the_handshake_is_sent_away_but_one_silent_afterwards_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let handshake = Duration::from_millis(300);
    let server = Server::start(&address, shelf(), Config { handshake, ..Config::default() }).unwrap();
    let mut silent = UnixStream::connect(&path).unwrap();
    assert!(closed(&mut silent));
    // On a busy machine this side may be too slow for the handshake: then it tries again.
    let mut stream = loop {
        let mut stream = UnixStream::connect(&path).unwrap();
        if try_enter(&mut stream).is_ok() {
            break stream;
        }
    };
    std::thread::sleep(2 * handshake);
    ask(&mut stream, cmd::FLUSH, 1, 0);
    assert_eq!(answer(&mut stream), 0);
    server.stop();
}

#[test]
fn disconnecting_an_export_leaves_the_others_connected() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let shelf = shelf();
    let server = Server::start(&address, shelf.clone(), Config::default()).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    enter(&mut stream);
    ask(&mut stream, cmd::FLUSH, 1, 0);
    assert_eq!(answer(&mut stream), 0);
    server.disconnect("other");
    ask(&mut stream, cmd::FLUSH, 2, 0);
    assert_eq!(answer(&mut stream), 0);
    shelf.0.lock().unwrap().clear();
    server.disconnect("disk");
    assert!(closed(&mut stream));
    assert_eq!(server.connections(), 0);
}

#[test]
fn silent_handshakes_make_room_for_who_comes_and_keep_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let config = Config { choosing: 4, connections: 8, ..Config::default() };
    let server = Server::start(&address, shelf(), config).unwrap();
    let mut silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let mut stream = UnixStream::connect(&path).unwrap();
    enter(&mut stream);
    assert!(silent[..30].iter_mut().all(closed), "the oldest are sent away");
    ask(&mut stream, cmd::FLUSH, 1, 0);
    assert_eq!(answer(&mut stream), 0);
    server.stop();
}

#[test]
fn one_address_takes_its_places_only() {
    let config = Config { of_one_address: 2, ..Config::default() };
    let server = Server::start(&"tcp:0.0.0.0:0".parse().unwrap(), shelf(), config).unwrap();
    let Address::Tcp(place) = server.address().clone() else { panic!("not TCP") };
    let port = place.rsplit_once(':').unwrap().1;
    let connect = |host: &str| TcpStream::connect(format!("{host}:{port}")).unwrap();
    let (mut one, mut two) = (connect("127.0.0.1"), connect("127.0.0.1"));
    enter(&mut one);
    enter(&mut two);
    assert!(closed(&mut connect("127.0.0.1")));
    enter(&mut connect_from("127.0.0.2", &server));
    server.stop();
}

/// Comes from `source` to a server on all addresses.
fn connect_from(source: &str, server: &Server) -> TcpStream {
    let Address::Tcp(place) = server.address().clone() else { panic!("not TCP") };
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let from: std::net::SocketAddr = format!("{source}:0").parse().unwrap();
    socket.bind(&from.into()).unwrap();
    let to: std::net::SocketAddr = format!("127.0.0.1:{}", place.rsplit_once(':').unwrap().1).parse().unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

#[test]
fn who_has_chosen_and_does_nothing_makes_room_when_its_place_is_wanted_the_longest_idle_first() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let config = Config { connections: 2, idle: Duration::ZERO, ..Config::default() };
    let server = Server::start(&address, shelf(), config).unwrap();
    let (mut busy, mut lazy) = (UnixStream::connect(&path).unwrap(), UnixStream::connect(&path).unwrap());
    enter(&mut busy);
    enter(&mut lazy);
    ask(&mut busy, cmd::FLUSH, 1, 0);
    assert_eq!(answer(&mut busy), 0);
    let mut late = UnixStream::connect(&path).unwrap();
    enter(&mut late);
    assert!(closed(&mut lazy));
    ask(&mut busy, cmd::FLUSH, 2, 0);
    assert_eq!(answer(&mut busy), 0);
    server.stop();
}

#[test]
fn who_waits_for_the_volume_is_not_idle() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let slow = Arc::new(Slow::default());
    let volume: Arc<dyn Volume> = slow.clone();
    let config = Config { connections: 1, idle: Duration::ZERO, drain: Duration::from_millis(20), ..Config::default() };
    let server = Server::start(&address, of(volume), config).unwrap();
    let mut waits = UnixStream::connect(&path).unwrap();
    enter(&mut waits);
    ask(&mut waits, cmd::FLUSH, 1, 0);
    slow.wait_for(1);
    assert!(closed(&mut UnixStream::connect(&path).unwrap()), "there is no place");
    assert_eq!(server.connections(), 1);
    server.stop();
}

#[test]
fn an_address_full_of_idle_clients_lets_its_own_next_one_in_and_takes_no_place_of_others() {
    let config = Config { of_one_address: 2, connections: 3, idle: Duration::ZERO, ..Config::default() };
    let server = Server::start(&"tcp:0.0.0.0:0".parse().unwrap(), shelf(), config).unwrap();
    let mut other = connect_from("127.0.0.2", &server);
    enter(&mut other);
    let mut idle = [connect_from("127.0.0.1", &server), connect_from("127.0.0.1", &server)];
    idle.iter_mut().for_each(enter);
    let mut more = Vec::new();
    for _ in 0..5 {
        let mut next = connect_from("127.0.0.1", &server);
        enter(&mut next);
        more.push(next);
    }
    assert!(idle.iter_mut().all(closed));
    ask(&mut other, cmd::FLUSH, 1, 0);
    assert_eq!(answer(&mut other), 0);
    server.stop();
}

#[test]
fn who_is_not_let_in_hears_no_word() {
    let admits = Arc::new(|from: std::net::IpAddr| from.to_string() == "127.0.0.2");
    let config = Config { admits, ..Config::default() };
    let server = Server::start(&"tcp:0.0.0.0:0".parse().unwrap(), shelf(), config).unwrap();
    let mut said = Vec::new();
    let _ = connect_from("127.0.0.1", &server).read_to_end(&mut said);
    assert!(said.is_empty(), "{said:?}");
    enter(&mut connect_from("127.0.0.2", &server));
    server.stop();
}

#[test]
fn payloads_that_never_come_take_no_memory_and_keep_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let (path, address) = socket(&dir);
    let room = weft_host::nbd::Room::new(8 << 20);
    let volume: Arc<dyn Volume> = Memory::new(shape(64 << 20, 512));
    let config = Config { room: room.clone(), ..Config::default() };
    let server = Server::start(&address, of(volume), config).unwrap();
    let held: Vec<UnixStream> = (0..20)
        .map(|_| {
            let mut stream = UnixStream::connect(&path).unwrap();
            enter(&mut stream);
            ask(&mut stream, cmd::WRITE, 1, 32 << 20);
            stream
        })
        .collect();
    let mut stream = UnixStream::connect(&path).unwrap();
    enter(&mut stream);
    // Larger than all the room, so that it needs what others may not have.
    ask(&mut stream, cmd::WRITE, 1, 32 << 20);
    stream.write_all(&vec![7; 32 << 20]).unwrap();
    assert_eq!(answer(&mut stream), 0);
    let (_, now, peak) = room.memory();
    assert!(now == 0 && peak <= (32 << 20), "{now} bytes now, {peak} at most");
    drop(held);
    server.stop();
}
