//! Where a server listens: unix sockets and TCP.
//!
//! Invariants
//! 1. A socket file is removed only if nobody answers on it, or if it is the one this server made.

use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt;
use std::net::ToSocketAddrs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use weft_engine::error::{Error, ErrorKind, Result};

/// Connections the kernel holds until they are accepted.
const BACKLOG: i32 = 128;

/// Where clients find a server: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A unix socket at this path.
    Unix(PathBuf),
    /// `HOST:PORT`; port 0 takes any free one.
    Tcp(String),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        let bad = || Error::new(ErrorKind::InvalidInput, format!("{text:?} is not unix:PATH or tcp:HOST:PORT"));
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Address::Unix(path.into())),
            Some(("tcp", place)) => {
                let (host, port) = place.rsplit_once(':').ok_or_else(bad)?;
                if host.is_empty() || port.parse::<u16>().is_err() {
                    return Err(bad());
                }
                Ok(Address::Tcp(place.into()))
            }
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(place) => write!(f, "tcp:{place}"),
        }
    }
}

/// A listening socket; dropping it takes its socket file away.
pub(super) struct Listener {
    pub(super) socket: Socket,
    pub(super) address: Address,
    /// The socket file made, as device and inode.
    file: Option<(u64, u64)>,
}

impl Listener {
    pub(super) fn bind(address: &Address) -> Result<Listener> {
        match address {
            Address::Unix(path) => bind_unix(path),
            Address::Tcp(place) => bind_tcp(place),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (Address::Unix(path), Some(file)) = (&self.address, self.file)
            && identity(path) == Some(file)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind_unix(path: &Path) -> Result<Listener> {
    let failed = |error| refused(&format!("unix:{}", path.display()), error);
    let place = SockAddr::unix(path).map_err(failed)?;
    remove_stale(path, &place)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
    socket.bind(&place).map_err(failed)?;
    let listener = Listener { socket, address: Address::Unix(path.into()), file: identity(path) };
    listener.socket.listen(BACKLOG).map_err(failed)?;
    Ok(listener)
}

/// Removes what a server that is gone left at `path`.
fn remove_stale(path: &Path, place: &SockAddr) -> Result<()> {
    let failed = |error| refused(&format!("unix:{}", path.display()), error);
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        let context = format!("{} exists and is not a socket", path.display());
        return Err(Error::new(ErrorKind::AlreadyExists, context));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
    // A server whose backlog is full would block the probe.
    probe.set_nonblocking(true).map_err(failed)?;
    match probe.connect(place) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        _ => {
            let context = format!("another server listens on unix:{}", path.display());
            Err(Error::new(ErrorKind::AlreadyExists, context))
        }
    }
}

fn bind_tcp(place: &str) -> Result<Listener> {
    let failed = |error| refused(&format!("tcp:{place}"), error);
    let mut last = std::io::ErrorKind::AddrNotAvailable.into();
    for found in place.to_socket_addrs().map_err(failed)? {
        let bound = (|| {
            let socket = Socket::new(Domain::for_address(found), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&found.into())?;
            socket.listen(BACKLOG)?;
            let bound = socket.local_addr()?.as_socket().unwrap_or(found);
            Ok(Listener { socket, address: Address::Tcp(bound.to_string()), file: None })
        })();
        match bound {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn refused(place: &str, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::AddrInUse => ErrorKind::AlreadyExists,
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
        _ => ErrorKind::NotPossible,
    };
    Error::new(kind, format!("cannot listen on {place}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["unix:/run/a b.sock", "tcp:127.0.0.1:10809", "tcp:[::1]:0"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "tcp:host", "tcp::1", "tcp:host:70000", "/run/x"] {
            assert_eq!(text.parse::<Address>().unwrap_err().kind, ErrorKind::InvalidInput, "{text}");
        }
    }
}
