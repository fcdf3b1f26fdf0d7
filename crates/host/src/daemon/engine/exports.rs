//! Virtual disks offered over NBD: one server for each address, which offers as many of them as are asked for there.

use super::Thread;
use super::volume::VdiskVolume;
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::export::Address;
use crate::api::name::VdiskName;
use crate::daemon::backend::ExportServer;
use crate::export::{Exports, Volume};
use crate::nbd;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The NBD servers of a daemon.
pub struct NbdExports {
    thread: Thread,
    servers: Mutex<BTreeMap<Address, Listening>>,
}

struct Listening {
    server: nbd::Server,
    offered: Arc<Offered>,
}

/// What one server offers.
struct Offered {
    thread: Thread,
    names: Mutex<BTreeSet<VdiskName>>,
}

impl NbdExports {
    /// No server yet.
    pub fn new(thread: Thread) -> NbdExports {
        NbdExports { thread, servers: Mutex::default() }
    }
}

impl ExportServer for NbdExports {
    fn start(&self, vdisk: &VdiskName, at: &Address) -> Answer<()> {
        let mut servers = lock(&self.servers);
        if let Some(listening) = servers.get(at) {
            lock(&listening.offered.names).insert(vdisk.clone());
            return Ok(());
        }
        let names = Mutex::new(BTreeSet::from([vdisk.clone()]));
        let offered = Arc::new(Offered { thread: self.thread.clone(), names });
        let server = nbd::Server::start(&nbd_address(at)?, offered.clone(), nbd::Config::default())?;
        servers.insert(at.clone(), Listening { server, offered });
        Ok(())
    }

    fn stop(&self, vdisk: &VdiskName, at: &Address) -> Answer<()> {
        let mut servers = lock(&self.servers);
        let Some(listening) = servers.get(at) else {
            return Err(ApiError::new(Kind::NotFound, format!("nothing is offered on {at}")).hint("weft export list"));
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
        lock(&self.names).iter().map(VdiskName::to_string).collect()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Volume>> {
        let name: VdiskName = name.parse().ok()?;
        if !lock(&self.names).contains(&name) {
            return None;
        }
        VdiskVolume::open(&self.thread, name).map(|volume| Arc::new(volume) as Arc<dyn Volume>)
    }
}

fn nbd_address(at: &Address) -> Answer<nbd::Address> {
    Ok(at.to_string().parse()?)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
