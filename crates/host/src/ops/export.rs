//! Exports: `weft export`, who may use a virtual disk, and how.

use super::line::{Line, ToLine};
use super::table::{Rows, Style, Tone, cell, pairs};
use super::text::Text;
use super::{Changing, Doer, Weft, absolute, here, values, verb};
use crate::api::error::{Answer, ApiError, BadValue};
use crate::api::export::{Address, ExportInfo, Network, Place, Protocol, SocketMode, SocketOwner, Terms, is_unset};
use crate::api::name::VdiskName;
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use utoipa::{IntoParams, ToSchema};

/// `weft export`.
#[derive(Subcommand, Clone, Debug)]
pub enum Export {
    /// Offer a virtual disk to clients; survives a restart of the daemon
    #[command(after_help = "Examples:\n  weft export add tank/media --nbd unix:/run/weft/nbd.sock\n  \
        weft export add tank/media --nbd tcp:127.0.0.1:10809\n  \
        weft export add tank/media --nbd tcp:0.0.0.0:10809 --allow 192.168.1.0/24 --allow 10.0.0.7\n  \
        weft export add tank/media --fuse /srv/media\n  \
        weft export add tank/media --ublk 0\n\n\
        One use writes at a time: a second one is refused unless it only reads, or is --shared.\n\
        NBD over TCP knows no passwords and no encryption: only the other machines of --allow are let in, or \
        all with --allow-any.\n\
        With --fuse the file DIR/VDISK is the virtual disk, without any cache in between.\n\
        With --ublk the block device /dev/ublkbN is (root; Linux 6.5 or later, modprobe ublk_drv).")]
    #[command(group = clap::ArgGroup::new("place").required(true))]
    Add(ExportAdd),
    /// List the exports
    #[command(after_help = "Examples:\n  weft export list")]
    List(ExportList),
    /// Show where one virtual disk is offered, on which terms, and to how many clients
    #[command(after_help = "Examples:\n  weft export show tank/media")]
    Show(ExportShow),
    /// Stop offering a virtual disk
    #[command(after_help = "Examples:\n  weft export remove tank/media\n  \
        weft export remove tank/media --nbd unix:/run/weft/nbd.sock")]
    Remove(ExportRemoveTyped),
}

impl Export {
    /// Does what was typed.
    pub fn run<D: Doer>(self, doer: &mut D) -> D::Done {
        match self {
            Export::Add(operation) => doer.operate(operation),
            Export::List(operation) => doer.operate(operation),
            Export::Show(operation) => doer.operate(operation),
            Export::Remove(typed) => doer.operate(typed.operation()),
        }
    }
}

/// Asks for the exports.
#[derive(Args, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportList {}

/// Asks for the exports of one virtual disk.
#[derive(Args, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct ExportShow {
    /// The virtual disk
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
}

/// Where a virtual disk is offered.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct Offered {
    /// The virtual disk, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// Its exports, in the order they were added.
    pub exports: Vec<ExportInfo>,
}

/// Asks for a new export, over one protocol.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub struct ExportAdd {
    /// The virtual disk, `POOL/VDISK`.
    #[arg(
        value_name = "POOL/VDISK",
        value_parser = values::vdisk,
        help = "The virtual disk; also the name NBD clients ask for"
    )]
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// Where an NBD server shall listen.
    #[arg(
        long,
        value_name = "ADDRESS",
        value_parser = values::address,
        group = "place",
        help = "Offer it over NBD, on unix:PATH or tcp:HOST:PORT"
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub nbd: Option<Address>,
    /// The directory in which it shall be a file.
    #[arg(
        long,
        value_name = "DIR",
        group = "place",
        help = "Offer it as the file DIR/VDISK; DIR is an empty directory"
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub fuse: Option<PathBuf>,
    /// The number of the block device, `/dev/ublkbN`, that it shall be.
    #[arg(long, value_name = "N", group = "place", help = "Offer it as the block device /dev/ublkbN")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ublk: Option<u32>,
    /// Let clients only read it.
    #[arg(long, conflicts_with = "shared")]
    #[serde(default, skip_serializing_if = "is_unset")]
    pub read_only: bool,
    /// Beside another use that writes: for cluster file systems only, any other is destroyed by it.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "is_unset")]
    pub shared: bool,
    /// With TCP: let any machine that reaches the address use it.
    #[arg(long)]
    #[serde(default, skip_serializing_if = "is_unset")]
    pub allow_any: bool,
    /// Let these machines use it and no others, each `ADDR` or `ADDR/LEN`.
    #[arg(
        long,
        value_name = "ADDR[/LEN]",
        conflicts_with = "allow_any",
        value_parser = values::network,
        help = "With TCP: let this machine, or the machines of this network, use it, and no others; may be given \
            several times"
    )]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub allow: Vec<Network>,
    /// With a unix socket: its mode, in octal [default: 600]
    #[arg(long, value_name = "MODE", value_parser = values::socket_mode)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub mode: Option<SocketMode>,
    /// With a unix socket: whose it is, USER[:GROUP]
    #[arg(long, value_name = "USER:GROUP", value_parser = values::socket_owner)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<SocketOwner>,
    /// It is the private one of a mount that is being made: no other use may write beside it.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "is_unset")]
    pub for_mount: bool,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks to remove exports of a virtual disk.
#[derive(Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExportRemove {
    /// The virtual disk.
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// Only the one at this address; all unless one is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub nbd: Option<Address>,
    /// Only the one in this directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub fuse: Option<PathBuf>,
    /// Only the block device of this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ublk: Option<u32>,
    /// Only those over this protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Protocol>,
    /// Only say what would change.
    #[serde(default, rename = "dry_run")]
    #[param(value_type = bool)]
    pub changing: Changing,
}

/// `weft export remove`: a flag without its value means all of its protocol.
#[derive(Args, Clone, Debug)]
pub struct ExportRemoveTyped {
    /// The virtual disk
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    pub vdisk: VdiskName,
    /// Only over NBD, or only at this address
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, value_parser = values::address)]
    pub nbd: Option<Option<Address>>,
    /// Only over FUSE, or only in this directory
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with = "nbd")]
    pub fuse: Option<Option<PathBuf>>,
    /// Only over ublk, or only this block device
    #[arg(long, value_name = "N", num_args = 0..=1, conflicts_with_all = ["nbd", "fuse"])]
    pub ublk: Option<Option<u32>>,
    /// How to change it.
    #[command(flatten)]
    pub changing: Changing,
}

impl ExportRemoveTyped {
    /// What is asked for.
    pub fn operation(self) -> ExportRemove {
        let ExportRemoveTyped { vdisk, nbd, fuse, ublk, changing } = self;
        let over = match (&nbd, &fuse, &ublk) {
            (Some(_), ..) => Some(Protocol::Nbd),
            (_, Some(_), _) => Some(Protocol::Fuse),
            (.., Some(_)) => Some(Protocol::Ublk),
            (None, None, None) => None,
        };
        ExportRemove { vdisk, nbd: nbd.flatten(), fuse: fuse.flatten(), ublk: ublk.flatten(), over, changing }
    }
}

verb!(ExportList: "export list");
verb!(ExportShow: "export show");

verb!(ExportAdd: "export add", changing {
    fn typed(self, _: &impl Weft) -> Answer<ExportAdd> {
        let (nbd, fuse) = placed(self.nbd.clone(), self.fuse.as_deref())?;
        let add = ExportAdd { nbd, fuse, ..self };
        add.place().map_err(ApiError::from)?;
        Ok(add)
    }
});

verb!(ExportRemove: "export remove", changing {
    fn typed(self, _: &impl Weft) -> Answer<ExportRemove> {
        let (nbd, fuse) = placed(self.nbd.clone(), self.fuse.as_deref())?;
        Ok(ExportRemove { nbd, fuse, ..self })
    }
});

/// An address and a directory with absolute paths.
fn placed(nbd: Option<Address>, fuse: Option<&Path>) -> Answer<(Option<Address>, Option<PathBuf>)> {
    let nbd = match nbd {
        Some(Address::Unix(path)) => Some(Address::Unix(here()?.join(path))),
        other => other,
    };
    Ok((nbd, fuse.map(absolute).transpose()?))
}

impl ToLine for ExportRemove {
    fn line(&self) -> String {
        let line = Line::new("export remove").word(&self.vdisk);
        match Place::one_of(self.nbd.clone(), self.fuse.clone(), self.ublk) {
            Ok(Place::Nbd(address)) => line.word("--nbd").word(address),
            Ok(Place::Fuse(dir)) => line.word("--fuse").word(dir.display()),
            Ok(Place::Ublk(number)) => line.word("--ublk").word(number),
            Err(_) => line,
        }
        .into()
    }
}

impl ExportAdd {
    /// Asks for `vdisk` at `place`, on these terms.
    pub fn at(vdisk: &VdiskName, place: Place, terms: Terms) -> ExportAdd {
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
            changing: Changing::default(),
        }
    }

    /// Asks for `vdisk` at `place` for a mount of it.
    pub fn for_mount(vdisk: &VdiskName, place: Place) -> ExportAdd {
        ExportAdd { for_mount: true, ..ExportAdd::at(vdisk, place, Terms::default()) }
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

impl ExportRemove {
    /// Asks to remove all exports of `vdisk`.
    pub fn all(vdisk: &VdiskName) -> ExportRemove {
        ExportRemove { vdisk: vdisk.clone(), ..ExportRemove::default() }
    }

    /// Asks to remove the export of `vdisk` at `place`.
    pub fn at(vdisk: &VdiskName, place: Place) -> ExportRemove {
        let (nbd, fuse, ublk) = place.fields();
        ExportRemove { vdisk: vdisk.clone(), nbd, fuse, ublk, ..ExportRemove::default() }
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

impl Text for Vec<ExportInfo> {
    fn text(&self, style: Style) -> String {
        if self.is_empty() {
            return "no exports\n".into();
        }
        let mut rows = Rows::new(style, &["VDISK", "STATE", "ACCESS", "AT", "CLIENTS", "URI"]);
        for export in self {
            let state = match &export.reason {
                None => ("active".into(), Tone::Good),
                Some(reason) => (format!("idle: {reason}"), Tone::Bad),
            };
            let at = export.place().map_or_else(|| "-".into(), |at| at.to_string());
            let (access, clients) = on_terms(&export.terms);
            rows.row(vec![cell(&export.vdisk), state, cell(access), cell(at), cell(clients), cell(&export.uri)]);
        }
        rows.draw()
    }
}

impl Text for Offered {
    fn text(&self, _: Style) -> String {
        if self.exports.is_empty() {
            return format!("{} is not offered\n", self.vdisk);
        }
        let shown = self.exports.iter().map(|export| {
            let at = export.place().map_or_else(|| "-".into(), |at| at.to_string());
            let (access, clients) = on_terms(&export.terms);
            let mut shown = vec![
                ("vdisk", export.vdisk.to_string()),
                ("at", at),
                ("uri", export.uri.clone()),
                ("state", export.reason.as_ref().map_or_else(|| "active".into(), |why| format!("idle: {why}"))),
                ("access", access.into()),
                ("clients", clients),
            ];
            shown.extend(export.connections.map(|connections| ("connections", connections.to_string())));
            shown.extend(export.terms.mode.map(|mode| ("socket's mode", mode.to_string())));
            shown.extend(export.terms.owner.as_ref().map(|owner| ("socket's owner", owner.to_string())));
            pairs(&shown)
        });
        shown.collect::<Vec<String>>().join("\n")
    }
}

/// What clients may do, and which clients.
fn on_terms(terms: &Terms) -> (&'static str, String) {
    let access = match (terms.read_only, terms.shared) {
        (true, _) => "read",
        (false, true) => "write, shared",
        (false, false) => "write",
    };
    let clients: Vec<String> = terms.allow.iter().map(Network::to_string).collect();
    let clients = match (clients.is_empty(), terms.allow_any) {
        (false, _) => clients.join(" "),
        (true, true) => "any".into(),
        (true, false) => "this machine".into(),
    };
    (access, clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_takes_what_was_said_and_no_other() {
        let (nbd, fuse) = (Place::Nbd("unix:/s".parse().unwrap()), Place::Fuse("/mnt/x".into()));
        let media: VdiskName = "tank/media".parse().unwrap();
        let takes = |how: ExportRemove| (how.takes(&nbd), how.takes(&fuse), how.takes(&Place::Ublk(3)));
        assert_eq!(takes(ExportRemove::default()), (true, true, true));
        assert_eq!(takes(ExportRemove { over: Some(Protocol::Fuse), ..Default::default() }), (false, true, false));
        assert_eq!(takes(ExportRemove::at(&media, nbd.clone())), (true, false, false));
        assert_eq!(takes(ExportRemove::at(&media, Place::Fuse("/mnt/y".into()))), (false, false, false));
        assert_eq!(takes(ExportRemove::at(&media, Place::Ublk(3))), (false, false, true));
        assert!(Place::one_of(None, None, None).is_err());
        assert!(Place::one_of("unix:/s".parse().ok(), Some("/mnt/x".into()), None).is_err());
        assert_eq!(fuse.uri(&"tank/media".parse().unwrap()), "/mnt/x/media");
        assert_eq!(Place::Ublk(3).uri(&"tank/media".parse().unwrap()), "/dev/ublkb3");
    }
}
