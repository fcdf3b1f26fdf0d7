//! An export under load: one connection to an NBD server, requests one after the other into it, and replies as they
//! come. One thread sends and one receives, so that neither side waits for the other to read.

use super::{Source, Target, filling};
use crate::api::error::{Answer, ApiError, Kind};
use crate::nbd::wire::{
    INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, Request, SIMPLE_REPLY_MAGIC, cmd, flag, info, option, rep,
};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use weft_lab::jobs::LEN_MAX;
use weft_lab::workload::Ask;

/// Where an export is, as its address says: `nbd+unix:///tank/media?socket=/run/weft/nbd.sock` or
/// `nbd://host:10809/tank/media`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    export: String,
    place: Place,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Unix(PathBuf),
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || {
            format!(
                "`{text}` is no address of an export; nbd+unix:///EXPORT?socket=PATH and nbd://HOST:PORT/EXPORT are"
            )
        };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(String::from).map_err(|_| wrong());
        if let Some(rest) = text.strip_prefix("nbd+unix:///") {
            let (export, query) = rest.split_once('?').ok_or_else(wrong)?;
            let socket = query.split('&').find_map(|part| part.strip_prefix("socket=")).ok_or_else(wrong)?;
            return Ok(Address { export: decoded(export)?, place: Place::Unix(decoded(socket)?.into()) });
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(wrong)?;
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err(wrong());
        }
        let port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let place = Place::Tcp(if port { host.into() } else { format!("{host}:10809") });
        Ok(Address { export: decoded(export)?, place })
    }
}

trait Stream: Read + Write + Send {
    /// Another handle of it.
    fn again(&self) -> io::Result<Box<dyn Stream>>;

    /// Ends it for all handles.
    fn cut(&self);
}

impl Stream for UnixStream {
    fn again(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn cut(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for TcpStream {
    fn again(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }

    fn cut(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// A connection to an export.
pub struct Nbd {
    stream: Box<dyn Stream>,
    size: u64,
    flags: u16,
    /// The cookie of the next request.
    cookie: u64,
}

impl Nbd {
    /// Connects.
    pub fn connect(address: &Address) -> Answer<Nbd> {
        let failed = |error: io::Error| {
            ApiError::new(Kind::NotPossible, format!("the export cannot be reached: {error}")).hint("weft export list")
        };
        let stream: Box<dyn Stream> = match &address.place {
            Place::Unix(path) => Box::new(UnixStream::connect(path).map_err(failed)?),
            Place::Tcp(place) => {
                let stream = TcpStream::connect(place).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                Box::new(stream)
            }
        };
        let mut nbd = Nbd { stream, size: 0, flags: 0, cookie: 0 };
        match nbd.shake_hands(&address.export).map_err(failed)? {
            Ok(()) => Ok(nbd),
            Err(what) => {
                let what = format!("the server has no export `{}` for us: {what}", address.export);
                Err(ApiError::new(Kind::NotFound, what).hint("weft export list"))
            }
        }
    }

    /// Chooses the export; the inner error is what the server says against it.
    fn shake_hands(&mut self, export: &str) -> io::Result<Result<(), String>> {
        let stream = &mut self.stream;
        let strange = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("that is no NBD server: {what}"));
        let hello: [u8; 18] = take(stream)?;
        if number(&hello[..8]) != INIT_MAGIC || number(&hello[8..16]) != OPTION_MAGIC {
            return Err(strange("it greets otherwise"));
        }
        let server = number(&hello[16..]) as u32;
        let mut words = (server & 3).to_be_bytes().to_vec();
        words.extend(OPTION_MAGIC.to_be_bytes());
        words.extend(option::GO.to_be_bytes());
        words.extend((export.len() as u32 + 6).to_be_bytes());
        words.extend((export.len() as u32).to_be_bytes());
        words.extend(export.as_bytes());
        words.extend(0u16.to_be_bytes());
        stream.write_all(&words)?;
        loop {
            let head: [u8; 20] = take(stream)?;
            if number(&head[..8]) != OPTION_REPLY_MAGIC {
                return Err(strange("it answers otherwise"));
            }
            let (kind, len) = (number(&head[12..16]) as u32, number(&head[16..]) as usize);
            let mut data = vec![0; len.min(1 << 16)];
            stream.read_exact(&mut data)?;
            match kind {
                rep::ACK if self.size > 0 => return Ok(Ok(())),
                rep::ACK => return Ok(Err("it says no size".into())),
                rep::INFO if len >= 12 && number(&data[..2]) as u16 == info::EXPORT => {
                    (self.size, self.flags) = (number(&data[2..10]), number(&data[10..12]) as u16);
                }
                kind if kind >> 31 == 1 => {
                    let words = String::from_utf8_lossy(&data).into_owned();
                    return Ok(Err(if words.is_empty() { format!("error {}", kind & 0x7fff_ffff) } else { words }));
                }
                _ => {}
            }
        }
    }

    fn request(&self, ask: Ask, cookie: u64) -> Request {
        let fua = if self.flags & flag::SEND_FUA != 0 { cmd::FLAG_FUA } else { 0 };
        let (flags, command, offset, len) = match ask {
            Ask::Read(at, len) => (0, cmd::READ, at, len),
            Ask::Write(at, len) => (0, cmd::WRITE, at, len),
            Ask::WriteThrough(at, len) => (fua, cmd::WRITE, at, len),
            Ask::Flush => (0, cmd::FLUSH, 0, 0),
            Ask::Forget(at, len) => (0, cmd::TRIM, at, len),
        };
        Request { flags, command, cookie, offset, len: len as u32 }
    }

    /// Sends while there is a place for one more; a place comes back with each reply. In the end all have come back.
    fn send(
        &mut self,
        source: &Source,
        depth: usize,
        places: &Receiver<()>,
        under_way: &UnderWay,
        data: &[u8],
    ) -> io::Result<()> {
        let mut taken = 0;
        let gone = || io::Error::from(io::ErrorKind::ConnectionAborted);
        loop {
            places.recv().map_err(|_| gone())?;
            taken += 1;
            let Some((ask, then)) = source.next() else { break };
            taken -= 1;
            self.cookie += 1;
            under_way.lock().expect("nobody panicked").insert(self.cookie, (ask, then));
            let head = self.request(ask, self.cookie).to_bytes();
            self.stream.write_all(&head)?;
            if let Ask::Write(_, len) | Ask::WriteThrough(_, len) = ask {
                self.stream.write_all(&data[..len as usize])?;
            }
        }
        for _ in taken..depth {
            places.recv().map_err(|_| gone())?;
        }
        let last = Request { flags: 0, command: cmd::FLUSH, cookie: LAST, offset: 0, len: 0 };
        self.stream.write_all(&last.to_bytes())
    }
}

/// The cookie of the flush that ends it, which is no request of the job's.
const LAST: u64 = 0;

type UnderWay = Mutex<BTreeMap<u64, (Ask, Instant)>>;

impl Target for Nbd {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.flags & flag::READ_ONLY != 0
    }

    fn drive(&mut self, source: &Source, depth: usize) -> Answer<()> {
        let (data, under_way) = (filling(LEN_MAX as usize), UnderWay::default());
        let [replies, other] = [self.stream.again(), self.stream.again()];
        let (replies, other) = (replies.map_err(lost)?, other.map_err(lost)?);
        let (give, places) = channel();
        for _ in 0..depth {
            let _ = give.send(());
        }
        let (sending, receiving) = std::thread::scope(|scope| {
            let under_way = &under_way;
            let receiver = scope.spawn(move || {
                let ended = receive(replies, source, &give, under_way);
                if ended.is_err() {
                    // Who sends must not wait for a server that nobody listens to.
                    other.cut();
                }
                ended
            });
            let sending = self.send(source, depth, &places, under_way, &data);
            if sending.is_err() {
                self.stream.cut();
            }
            (sending, receiver.join().expect("the receiver does not panic"))
        });
        receiving?;
        sending.map_err(lost)
    }
}

/// Receives replies, the last one included.
fn receive(stream: Box<dyn Stream>, source: &Source, give: &Sender<()>, under_way: &UnderWay) -> Answer<()> {
    let (mut stream, mut into) = (BufReader::with_capacity(1 << 18, stream), Vec::new());
    loop {
        let head: [u8; 16] = take(&mut stream).map_err(lost)?;
        if number(&head[..4]) as u32 != SIMPLE_REPLY_MAGIC {
            return Err(ApiError::new(Kind::NotPossible, "the server sent what is no reply"));
        }
        let (error, cookie) = (number(&head[4..8]), number(&head[8..]));
        if cookie == LAST {
            return Ok(());
        }
        let asked = under_way.lock().expect("nobody panicked").remove(&cookie);
        let (ask, then) =
            asked.ok_or_else(|| ApiError::new(Kind::NotPossible, "the server answered what nobody had asked"))?;
        if error != 0 {
            return Err(ApiError::new(Kind::NotPossible, format!("{ask:?} failed: NBD error {error}")));
        }
        if let Ask::Read(_, len) = ask {
            into.resize(len as usize, 0);
            stream.read_exact(&mut into).map_err(lost)?;
        }
        source.note(ask, then);
        // Nobody may be sending any more.
        let _ = give.send(());
    }
}

fn lost(error: io::Error) -> ApiError {
    ApiError::new(Kind::NotPossible, format!("the connection was lost: {error}")).hint("weft status")
}

fn take<const LEN: usize>(stream: &mut impl Read) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A number as the protocol writes them, the highest byte first; of eight bytes at most.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_exports_are_shown_with() {
        let address = |text: &str| text.parse::<Address>();
        let unix = address("nbd+unix:///tank/media?socket=/run/weft/n%20bd.sock").unwrap();
        assert_eq!(unix, Address { export: "tank/media".into(), place: Place::Unix("/run/weft/n bd.sock".into()) });
        let tcp = address("nbd://host/tank/media").unwrap();
        assert_eq!(tcp, Address { export: "tank/media".into(), place: Place::Tcp("host:10809".into()) });
        assert_eq!(address("nbd://[::1]:99/a").unwrap().place, Place::Tcp("[::1]:99".into()));
        for wrong in ["/dev/sda", "nbd+unix:///a", "nbd+unix:///a?socke=/b", "nbd:///a", "http://a/b"] {
            assert!(address(wrong).unwrap_err().contains("is no address of an export"), "{wrong}");
        }
    }
}
