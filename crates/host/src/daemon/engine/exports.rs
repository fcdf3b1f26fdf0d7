//! Virtual disks offered to clients. Over NBD: one server for each address, which offers as many of them as are asked
//! for there. Over FUSE and ublk: see `fuse_exports` and `ublk_exports`.

use super::Thread;
use super::fuse_exports::FuseExports;
use super::ublk_exports::UblkExports;
use super::volume::VdiskVolume;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::export::{Address, Place, Terms};
use crate::api::name::VdiskName;
use crate::api::pool::{Keeping, MemoryBudget};
use crate::daemon::memory;
use crate::daemon::sockets::give_socket;
use crate::export::{Exports, Volume};
use crate::nbd;
use crate::ops::export::ExportList;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All export servers of a daemon.
pub struct HostExports {
    nbd: NbdExports,
    fuse: FuseExports,
    ublk: UblkExports,
}

/// The NBD servers of a daemon.
struct NbdExports {
    thread: Thread,
    /// What the clients of all servers share.
    room: Arc<nbd::Room>,
    servers: Mutex<BTreeMap<Address, Listening>>,
}

struct Listening {
    server: nbd::Server,
    offered: Arc<Offered>,
}

/// What one server offers.
pub(super) struct Offered {
    thread: Thread,
    /// Their names, and whether they can only be read.
    names: Mutex<BTreeMap<VdiskName, bool>>,
}

impl HostExports {
    /// No server yet. Requests of all NBD clients hold `memory` bytes at most.
    pub fn new(thread: Thread, memory: usize) -> HostExports {
        let nbd = NbdExports { thread: thread.clone(), room: nbd::Room::new(memory), servers: Mutex::default() };
        HostExports { nbd, fuse: FuseExports::new(thread.clone()), ublk: UblkExports::new(thread) }
    }
}

impl HostExports {
    /// Offers `vdisk` under its name on `at`, beside whatever else is offered there.
    pub fn start(&self, vdisk: &VdiskName, at: &Place, terms: &Terms) -> Answer<()> {
        match at {
            Place::Nbd(address) => self.nbd.start(vdisk, address, terms),
            Place::Fuse(dir) => self.fuse.start(vdisk, dir, terms.read_only),
            Place::Ublk(number) => self.ublk.start(vdisk, *number, terms.read_only),
        }
    }

    /// Stops offering `vdisk` on `at`: its clients are disconnected.
    pub fn stop(&self, vdisk: &VdiskName, at: &Place) -> Answer<()> {
        match at {
            Place::Nbd(address) => self.nbd.stop(vdisk, address),
            Place::Fuse(dir) => self.fuse.stop(vdisk, dir),
            Place::Ublk(number) => self.ublk.stop(vdisk, *number),
        }
    }

    /// What clients' requests hold in memory, of all pools.
    pub fn memory(&self) -> Vec<MemoryBudget> {
        let (limit, used, peak) = self.nbd.room.memory();
        let [limit, used, peak] = [limit, used, peak].map(|bytes| bytes as u64);
        let name = "requests of NBD clients".into();
        vec![MemoryBudget { name, keeping: Keeping::Enforced, limit: Some(limit), used, peak }]
    }

    /// Whether what was started is still served; somebody else may have ended it.
    pub fn serves(&self, _: &VdiskName, at: &Place) -> bool {
        match at {
            Place::Nbd(address) => lock(&self.nbd.servers).contains_key(address),
            Place::Fuse(dir) => self.fuse.serves(dir),
            Place::Ublk(number) => self.ublk.serves(*number),
        }
    }

    /// How many connections clients have to it, where clients connect.
    pub fn connections(&self, vdisk: &VdiskName, at: &Place) -> Option<usize> {
        let Place::Nbd(address) = at else { return None };
        lock(&self.nbd.servers).get(address).map(|listening| listening.server.connections_to(&vdisk.to_string()))
    }
}

impl Offered {
    /// Offers `vdisk` for now; others may follow.
    pub fn new(thread: &Thread, vdisk: &VdiskName, read_only: bool) -> Arc<Offered> {
        let names = Mutex::new(BTreeMap::from([(vdisk.clone(), read_only)]));
        Arc::new(Offered { thread: thread.clone(), names })
    }
}

impl NbdExports {
    fn start(&self, vdisk: &VdiskName, at: &Address, terms: &Terms) -> Answer<()> {
        // The kernel may be a client, for the file systems of this machine.
        if matches!(at, Address::Unix(_)) && rustix::process::geteuid().is_root() {
            memory::stay_in_memory();
        }
        let mut servers = lock(&self.servers);
        if let Some(listening) = servers.get(at) {
            lock(&listening.offered.names).insert(vdisk.clone(), terms.read_only);
            return Ok(());
        }
        let offered = Offered::new(&self.thread, vdisk, terms.read_only);
        let allow = terms.allow.clone();
        let admits = Arc::new(move |from| allow.is_empty() || allow.iter().any(|network| network.has(from)));
        let config = nbd::Config { room: self.room.clone(), admits, ..nbd::Config::default() };
        let server = nbd::Server::start(&nbd_address(at)?, offered.clone(), config)?;
        if let Address::Unix(path) = at
            && let Err(error) = give_socket(path, terms)
        {
            server.stop();
            return Err(error);
        }
        servers.insert(at.clone(), Listening { server, offered });
        Ok(())
    }

    fn stop(&self, vdisk: &VdiskName, at: &Address) -> Answer<()> {
        let mut servers = lock(&self.servers);
        let Some(listening) = servers.get(at) else {
            return Err(ApiError::new(Kind::NotFound, format!("nothing is offered on {at}")).offer(&ExportList {}));
        };
        let left = {
            let mut names = lock(&listening.offered.names);
            names.remove(vdisk);
            names.len()
        };
        if left > 0 {
            listening.server.disconnect(&vdisk.to_string());
        } else if let Some(listening) = servers.remove(at) {
            listening.server.stop();
        }
        Ok(())
    }
}

impl Exports for Offered {
    fn list(&self) -> Vec<String> {
        lock(&self.names).keys().map(VdiskName::to_string).collect()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Volume>> {
        let name: VdiskName = name.parse().ok()?;
        let read_only = *lock(&self.names).get(&name)?;
        VdiskVolume::open(&self.thread, name, read_only).map(|volume| Arc::new(volume) as Arc<dyn Volume>)
    }
}

fn nbd_address(at: &Address) -> Answer<nbd::Address> {
    Ok(at.to_string().parse()?)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
