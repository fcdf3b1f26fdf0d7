//! `weft export`: who may use a virtual disk, and how.

use super::Changing;
use crate::api::export::{Address, Network, SocketMode, SocketOwner};
use crate::api::name::VdiskName;
use crate::cli::values;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `weft export`.
#[derive(Subcommand, Debug)]
pub enum Export {
    /// Offer a virtual disk to clients; survives a restart of the daemon
    #[command(after_help = "Examples:\n  weft export add tank/media --nbd unix:/run/weft/nbd.sock\n  \
        weft export add tank/media --nbd tcp:127.0.0.1:10809\n  \
        weft export add tank/media --nbd tcp:0.0.0.0:10809 --allow 192.168.1.0/24 --allow 10.0.0.7\n  \
        weft export add tank/media --fuse /srv/media\n  \
        weft export add tank/media --ublk 0\n\n\
        One use writes at a time: a second one is refused unless it only reads, or is --shared.\n\
        NBD over TCP knows no passwords and no encryption: only the other machines of --allow are let in, or all with --allow-any.\n\
        With --fuse the file DIR/VDISK is the virtual disk, without any cache in between.\n\
        With --ublk the block device /dev/ublkbN is (root; Linux 6.5 or later, modprobe ublk_drv).")]
    #[command(group = clap::ArgGroup::new("place").required(true))]
    Add {
        /// The virtual disk; also the name NBD clients ask for
        #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
        vdisk: VdiskName,
        /// Offer it over NBD, on unix:PATH or tcp:HOST:PORT
        #[arg(long, value_name = "ADDRESS", value_parser = values::address, group = "place")]
        nbd: Option<Address>,
        /// Offer it as the file DIR/VDISK; DIR is an empty directory
        #[arg(long, value_name = "DIR", group = "place")]
        fuse: Option<PathBuf>,
        /// Offer it as the block device /dev/ublkbN
        #[arg(long, value_name = "N", group = "place")]
        ublk: Option<u32>,
        /// On which terms.
        #[command(flatten)]
        terms: ExportTerms,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
    /// List the exports
    #[command(after_help = "Examples:\n  weft export list")]
    List,
    /// Stop offering a virtual disk
    #[command(after_help = "Examples:\n  weft export remove tank/media\n  \
        weft export remove tank/media --nbd unix:/run/weft/nbd.sock")]
    Remove {
        /// The virtual disk
        #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
        vdisk: VdiskName,
        /// Only over NBD, or only at this address
        #[arg(long, value_name = "ADDRESS", num_args = 0..=1, value_parser = values::address)]
        nbd: Option<Option<Address>>,
        /// Only over FUSE, or only in this directory
        #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with = "nbd")]
        fuse: Option<Option<PathBuf>>,
        /// Only over ublk, or only this block device
        #[arg(long, value_name = "N", num_args = 0..=1, conflicts_with_all = ["nbd", "fuse"])]
        ublk: Option<Option<u32>>,
        /// How to change it.
        #[command(flatten)]
        changing: Changing,
    },
}

/// On which terms a virtual disk is offered.
#[derive(Args, Clone, Debug)]
pub struct ExportTerms {
    /// Let clients only read it
    #[arg(long, conflicts_with = "shared")]
    pub read_only: bool,
    /// Beside another use that writes: for cluster file systems only, any other is destroyed by it
    #[arg(long)]
    pub shared: bool,
    /// With TCP: let any machine that reaches the address use it
    #[arg(long)]
    pub allow_any: bool,
    /// With TCP: let this machine, or the machines of this network, use it, and no others; may be given several times
    #[arg(long, value_name = "ADDR[/LEN]", conflicts_with = "allow_any", value_parser = values::network)]
    pub allow: Vec<Network>,
    /// With a unix socket: its mode, in octal [default: 600]
    #[arg(long, value_name = "MODE", value_parser = values::socket_mode)]
    pub mode: Option<SocketMode>,
    /// With a unix socket: whose it is, USER[:GROUP]
    #[arg(long, value_name = "USER:GROUP", value_parser = values::socket_owner)]
    pub owner: Option<SocketOwner>,
}
