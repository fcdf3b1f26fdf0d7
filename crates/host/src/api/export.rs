//! Exports: a virtual disk offered over a protocol.

mod network;
mod terms;

pub use network::Network;
pub use terms::{SocketMode, SocketOwner, Terms};

use super::error::BadValue;
use super::name::VdiskName;
use crate::ublk::block_device;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use utoipa::ToSchema;

/// Where an NBD server listens: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port. The host is a name or an address, IPv6 addresses without their brackets.
    Tcp {
        /// A name or an address.
        host: String,
        /// 1 to 65535.
        port: u16,
    },
}

/// Where a virtual disk is offered, and over what. In requests and answers it is the one of three fields, `nbd`, `fuse`
/// or `ublk`, that is there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// By an NBD server.
    Nbd(Address),
    /// A file of this directory, called like the virtual disk.
    Fuse(PathBuf),
    /// The block device `/dev/ublkbN` of this number.
    Ublk(u32),
}

/// One export.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// The virtual disk, `POOL/VDISK`; also the name NBD clients ask for.
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// The address its NBD server listens on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub nbd: Option<Address>,
    /// The directory its file is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub fuse: Option<PathBuf>,
    /// The number of its block device, `/dev/ublkbN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ublk: Option<u32>,
    /// How it is offered there.
    #[serde(flatten)]
    pub terms: Terms,
    /// How many connections NBD clients have to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<usize>,
    /// Whether clients can use it now.
    pub active: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What clients are told: the address as NBD clients write it, or the path of the file or the block device.
    pub uri: String,
}

/// What an export speaks.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// The protocol of network block devices.
    Nbd,
    /// The kernel's protocol for file systems in user space.
    Fuse,
    /// The kernel's protocol for block devices in user space.
    Ublk,
}

impl Place {
    /// The one place that is said.
    ///
    /// Errors: the sentence that both or none are.
    pub fn one_of(nbd: Option<Address>, fuse: Option<PathBuf>, ublk: Option<u32>) -> Result<Place, BadValue> {
        match (nbd, fuse, ublk) {
            (Some(nbd), None, None) => Ok(Place::Nbd(nbd)),
            (None, Some(dir), None) => Ok(Place::Fuse(dir)),
            (None, None, Some(number)) => Ok(Place::Ublk(number)),
            _ => Err(BadValue {
                message: "an export is at one place: an NBD address, a directory for FUSE, or a number for ublk".into(),
                nearest: None,
            }),
        }
    }

    /// The three fields it is in requests and answers: `nbd`, `fuse`, `ublk`.
    pub fn fields(self) -> (Option<Address>, Option<PathBuf>, Option<u32>) {
        match self {
            Place::Nbd(address) => (Some(address), None, None),
            Place::Fuse(dir) => (None, Some(dir), None),
            Place::Ublk(number) => (None, None, Some(number)),
        }
    }

    /// What is spoken there.
    pub fn protocol(&self) -> Protocol {
        match self {
            Place::Nbd(_) => Protocol::Nbd,
            Place::Fuse(_) => Protocol::Fuse,
            Place::Ublk(_) => Protocol::Ublk,
        }
    }

    /// What clients are told: the address as NBD clients write it, or the path of the file or the block device.
    pub fn uri(&self, vdisk: &VdiskName) -> String {
        match self {
            Place::Nbd(address) => address.uri(vdisk),
            Place::Fuse(dir) => dir.join(&vdisk.vdisk).display().to_string(),
            Place::Ublk(number) => block_device(*number).display().to_string(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Nbd(address) => address.fmt(f),
            Place::Fuse(dir) => write!(f, "fuse:{}", dir.display()),
            Place::Ublk(number) => write!(f, "ublk:{number}"),
        }
    }
}

impl ExportInfo {
    /// Where it is; none only in an answer that is not weft's.
    pub fn place(&self) -> Option<Place> {
        Place::one_of(self.nbd.clone(), self.fuse.clone(), self.ublk).ok()
    }
}

impl Address {
    /// The address with the export's name, as NBD clients write it.
    pub fn uri(&self, vdisk: &VdiskName) -> String {
        match self {
            Address::Unix(path) => format!("nbd+unix:///{vdisk}?socket={}", path.display()),
            Address::Tcp { host, port } => format!("nbd://{}:{port}/{vdisk}", bracketed(host)),
        }
    }

    /// Whether only this machine reaches it. A name other than `localhost` may mean anything.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp { host, .. } => {
                host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|host| host.is_loopback())
            }
        }
    }
}

impl FromStr for Address {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Address, BadValue> {
        let refused = |why: &str, nearest: &str| {
            Err(BadValue::new(format!("`{text}` {why}; unix:PATH and tcp:HOST:PORT are addresses"), nearest))
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => refused("names no socket", "unix:/run/weft/nbd.sock"),
                1..=107 => Ok(Address::Unix(path.into())),
                _ => refused("is longer than the 107 bytes a socket's path may have", "unix:/run/weft/nbd.sock"),
            };
        }
        let Some(host_port) = text.strip_prefix("tcp:") else {
            let nearest = if text.starts_with('/') { text } else { "/run/weft/nbd.sock" };
            return refused("is no address", &format!("unix:{nearest}"));
        };
        let Some((host, port)) = host_port.rsplit_once(':') else {
            return refused("names no port", &format!("tcp:{host_port}:10809"));
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match port.parse() {
            Ok(port @ 1..) if !host.is_empty() => Ok(Address::Tcp { host: host.into(), port }),
            Ok(1..) => refused("names no host", &format!("tcp:127.0.0.1:{port}")),
            _ => refused("names no port from 1 to 65535", &format!("tcp:{}:10809", bracketed(host))),
        }
    }
}

/// Whether a flag is not set.
pub fn is_unset(flag: &bool) -> bool {
    !flag
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.into() }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } => write!(f, "tcp:{}:{port}", bracketed(host)),
        }
    }
}

as_text!(Address);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_they_are_written() {
        for text in ["unix:/run/weft/nbd.sock", "tcp:localhost:10809", "tcp:[::1]:10809", "tcp:0.0.0.0:1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let vdisk = "tank/media".parse().unwrap();
        assert_eq!("unix:/s".parse::<Address>().unwrap().uri(&vdisk), "nbd+unix:///tank/media?socket=/s");
        assert_eq!("tcp:[::1]:1".parse::<Address>().unwrap().uri(&vdisk), "nbd://[::1]:1/tank/media");
    }

    #[test]
    fn an_address_is_local_only_where_no_other_machine_reaches_it() {
        let local = |text: &str| text.parse::<Address>().unwrap().is_local();
        for text in ["unix:/run/s", "tcp:localhost:1", "tcp:127.0.0.1:1", "tcp:127.9.9.9:1", "tcp:[::1]:1"] {
            assert!(local(text), "{text}");
        }
        for text in ["tcp:0.0.0.0:1", "tcp:[::]:1", "tcp:10.0.0.1:1", "tcp:server:1", "tcp:localhost.lan:1"] {
            assert!(!local(text), "{text}");
        }
    }

    #[test]
    fn wrong_addresses_are_refused_with_one_that_would_do() {
        for text in ["", "unix:", "/run/s", "tcp:host", "tcp:host:0", "tcp:host:99999", "tcp::10809", "tcp:[::1]:x"] {
            let nearest = text.parse::<Address>().expect_err(text).nearest.unwrap();
            assert!(nearest.parse::<Address>().is_ok(), "{text}: {nearest}");
        }
        assert!(format!("unix:/{}", "x".repeat(107)).parse::<Address>().is_err());
    }
}
