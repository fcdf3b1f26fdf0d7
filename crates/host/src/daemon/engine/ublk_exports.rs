//! Virtual disks offered over ublk: one block device for each.

use super::Thread;
use super::exports::{Offered, lock};
use crate::api::error::{Answer, ApiError, Kind};
use crate::api::name::VdiskName;
use crate::daemon::memory;
use crate::ops::export::ExportList;
use crate::ublk;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The block devices of a daemon.
pub(super) struct UblkExports {
    thread: Thread,
    servers: Mutex<BTreeMap<u32, ublk::Server>>,
}

impl UblkExports {
    /// None yet.
    pub fn new(thread: Thread) -> UblkExports {
        UblkExports { thread, servers: Mutex::default() }
    }

    pub fn start(&self, vdisk: &VdiskName, number: u32, read_only: bool) -> Answer<()> {
        // It may carry the file systems of this machine.
        memory::stay_in_memory();
        let mut servers = lock(&self.servers);
        // One that somebody ended goes first.
        drop(servers.remove(&number));
        let offered = Offered::new(&self.thread, vdisk, read_only);
        let server = ublk::Server::start(number, &*offered, &vdisk.to_string(), ublk::Config::default())?;
        servers.insert(number, server);
        Ok(())
    }

    pub fn stop(&self, vdisk: &VdiskName, number: u32) -> Answer<()> {
        let Some(server) = lock(&self.servers).remove(&number) else {
            let message = format!("{vdisk} is not ublk device {number}");
            return Err(ApiError::new(Kind::NotFound, message).offer(&ExportList {}));
        };
        server.stop();
        Ok(())
    }

    pub fn serves(&self, number: u32) -> bool {
        lock(&self.servers).get(&number).is_some_and(ublk::Server::is_there)
    }
}
