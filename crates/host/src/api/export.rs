//! Exports: a virtual disk offered over a protocol.

mod network;
mod terms;

pub use network::Network;
pub use terms::{SocketMode, SocketOwner, Terms};

use super::error::BadValue;
use super::name::VdiskName;
use crate::ublk::block_device;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use utoipa::{IntoParams, ToSchema};

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

/// Asks for a new export, over one protocol.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct ExportAdd {
    /// The virtual disk, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// Where an NBD server shall listen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub nbd: Option<Address>,
    /// The directory in which it shall be a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub fuse: Option<PathBuf>,
    /// The number of the block device, `/dev/ublkbN`, that it shall be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ublk: Option<u32>,
    /// Let clients only read it.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub read_only: bool,
    /// Make it although another use writes already: for cluster file systems only.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub shared: bool,
    /// Let any machine that reaches the address use it.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub allow_any: bool,
    /// Let these machines use it and no others, each `ADDR` or `ADDR/LEN`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub allow: Vec<Network>,
    /// The mode of its unix socket, in octal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mode: Option<SocketMode>,
    /// Whose its unix socket is, `USER[:GROUP]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<SocketOwner>,
    /// It is the private one of a mount that is being made: no other use may write beside it.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub for_mount: bool,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// Which exports of a virtual disk to remove.
#[derive(Serialize, Deserialize, IntoParams, ToSchema, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExportRemove {
    /// Only the one at this address; all unless one is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    #[schema(value_type = Option<String>)]
    pub nbd: Option<Address>,
    /// Only the one in this directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    #[schema(value_type = Option<String>)]
    pub fuse: Option<PathBuf>,
    /// Only the block device of this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ublk: Option<u32>,
    /// Only those over this protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Protocol>,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
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

impl ExportAdd {
    /// Asks for `vdisk` at `place`, on these terms.
    pub fn at(vdisk: &VdiskName, place: Place, terms: Terms, dry_run: bool) -> ExportAdd {
        let (nbd, fuse, ublk) = place.fields();
        let Terms { read_only, shared, allow_any, allow, mode, owner } = terms;
        let vdisk = vdisk.clone();
        ExportAdd {
            vdisk,
            nbd,
            fuse,
            ublk,
            read_only,
            shared,
            allow_any,
            allow,
            mode,
            owner,
            for_mount: false,
            dry_run,
        }
    }

    /// Asks for `vdisk` at `place` for a mount of it.
    pub fn for_mount(vdisk: &VdiskName, place: Place) -> ExportAdd {
        ExportAdd { for_mount: true, ..ExportAdd::at(vdisk, place, Terms::default(), false) }
    }

    /// How it shall be offered there.
    pub fn terms(&self) -> Terms {
        let ExportAdd { read_only, shared, allow_any, allow, mode, owner, .. } = self.clone();
        Terms { read_only, shared, allow_any, allow, mode, owner }
    }

    /// Where it shall be.
    pub fn place(&self) -> Result<Place, BadValue> {
        Place::one_of(self.nbd.clone(), self.fuse.clone(), self.ublk)
    }
}

impl ExportInfo {
    /// Where it is; none only in an answer that is not weft's.
    pub fn place(&self) -> Option<Place> {
        Place::one_of(self.nbd.clone(), self.fuse.clone(), self.ublk).ok()
    }
}

impl ExportRemove {
    /// Only the one at `place`.
    pub fn at(place: Place) -> ExportRemove {
        let (nbd, fuse, ublk) = place.fields();
        ExportRemove { nbd, fuse, ublk, ..ExportRemove::default() }
    }

    /// Whether the export at `place` is among them.
    pub fn takes(&self, place: &Place) -> bool {
        let over = self.over.is_none_or(|over| over == place.protocol());
        let (nbd, fuse, ublk) = (self.nbd.as_ref(), self.fuse.as_ref(), self.ublk);
        let anywhere = (nbd, fuse, ublk) == (None, None, None);
        let at = match place {
            Place::Nbd(address) => nbd == Some(address),
            Place::Fuse(dir) => fuse == Some(dir),
            Place::Ublk(number) => ublk == Some(*number),
        };
        over && (anywhere || at)
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

    /// Makes the address's path absolute against `dir`.
    pub fn absolute(self, dir: &Path) -> Address {
        match self {
            Address::Unix(path) => Address::Unix(dir.join(path)),
            tcp => tcp,
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

fn is_unset(flag: &bool) -> bool {
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

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

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
    fn a_removal_takes_what_was_said_and_no_other() {
        let (nbd, fuse) = (Place::Nbd("unix:/s".parse().unwrap()), Place::Fuse("/mnt/x".into()));
        let takes = |how: ExportRemove| (how.takes(&nbd), how.takes(&fuse), how.takes(&Place::Ublk(3)));
        assert_eq!(takes(ExportRemove::default()), (true, true, true));
        assert_eq!(takes(ExportRemove { over: Some(Protocol::Fuse), ..Default::default() }), (false, true, false));
        assert_eq!(takes(ExportRemove::at(nbd.clone())), (true, false, false));
        assert_eq!(takes(ExportRemove::at(Place::Fuse("/mnt/y".into()))), (false, false, false));
        assert_eq!(takes(ExportRemove::at(Place::Ublk(3))), (false, false, true));
        assert!(Place::one_of(None, None, None).is_err());
        assert!(Place::one_of("unix:/s".parse().ok(), Some("/mnt/x".into()), None).is_err());
        assert_eq!(fuse.uri(&"tank/media".parse().unwrap()), "/mnt/x/media");
        assert_eq!(Place::Ublk(3).uri(&"tank/media".parse().unwrap()), "/dev/ublkb3");
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
