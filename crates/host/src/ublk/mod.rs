//! The ublk front end: a virtual disk as a block device of this machine, `/dev/ublkbN`, whose driver is this process.
//! Nothing lies in between: no file system in user space, no loop device, no socket.
//!
//! Read from the outside in: [`server`] makes a device and ends it; `queue` is the thread that takes the block layer's
//! requests, validates them and makes them operations of a [`crate::export::Volume`]; `params` is what the block layer,
//! and through it every file system and volume manager, is told of the virtual disk; [`leftover`] removes what a daemon
//! that died left. The kernel's side is `crate::disk::ublk`.
//!
//! Without recovery (`UBLK_F_USER_RECOVERY`): when this process dies the kernel ends the block device, and whoever uses
//! it gets I/O errors at once. A daemon that comes back has forgotten what was not flushed, so requests must not be
//! kept for it as if nothing had happened.
//!
//! Invariants
//! 1. A request is answered exactly once, by the thread of its queue.
//! 2. The bytes of a queue's requests under way stay within its share, unless one exceeds it alone; the rest waits in
//!    the order it came. No thread blocks on that.
//! 3. No thread that answers requests ever waits for one: a device is started and stopped by other threads.
//! 4. A server that ends waits for nobody for ever: what is not answered in time is given up, and the kernel told so.

pub mod leftover;
mod params;
mod queue;
pub mod server;

pub use crate::disk::ublk::{CONTROL, block_device};
pub use server::{Config, Server};

/// The numbers of all devices there are, whoever serves them.
pub fn numbers() -> Vec<u32> {
    crate::disk::ublk::numbers()
}
