//! Virtual disks offered over FUSE: one mounted directory for each.

use super::Thread;
use super::exports::{Offered, lock};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use crate::daemon::memory;
use crate::fuse;
use crate::ops::export::ExportList;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The mounted directories of a daemon.
pub(super) struct FuseExports {
    thread: Thread,
    servers: Mutex<BTreeMap<PathBuf, fuse::Server>>,
}

impl FuseExports {
    /// Nothing is mounted yet.
    pub fn new(thread: Thread) -> FuseExports {
        FuseExports { thread, servers: Mutex::default() }
    }

    pub fn start(&self, vdisk: &VdiskName, dir: &Path, read_only: bool) -> Answer<()> {
        // Root's exports may carry loop devices, and so the file systems of this machine.
        if rustix::process::geteuid().is_root() {
            memory::stay_in_memory();
        }
        let mut servers = lock(&self.servers);
        // One that somebody unmounted ends first.
        drop(servers.remove(dir));
        let offered = Offered::new(&self.thread, vdisk, read_only);
        let config = fuse::Config::default();
        let server = fuse::Server::start(dir, offered, &vdisk.to_string(), &vdisk.vdisk, config)?;
        servers.insert(dir.into(), server);
        Ok(())
    }

    pub fn stop(&self, vdisk: &VdiskName, dir: &Path) -> Answer<()> {
        let Some(server) = lock(&self.servers).remove(dir) else {
            let message = format!("{vdisk} is not mounted on {}", dir.display());
            return Err(ApiError::new(Kind::NotFound, message).offer(&ExportList {}));
        };
        server.stop();
        Ok(())
    }

    pub fn serves(&self, dir: &Path) -> bool {
        lock(&self.servers).get(dir).is_some_and(fuse::Server::is_mounted)
    }
}
