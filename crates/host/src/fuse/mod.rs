//! The FUSE front end: a virtual disk as one file of its size in a directory, `DIR/VDISK`. The kernel's loop driver
//! makes a block device of it, so that any Linux has one, also where neither NBD nor ublk is to be had.
//!
//! Read from the outside in: [`server`] mounts and unmounts; `tree` is the directory, the file and what the kernel asks
//! of them; `request` validates what is asked of the file and turns it into operations of a [`crate::export::Volume`];
//! `gate` says what may be under way at the same time; [`mounts`] knows what is mounted where, and clears what a daemon
//! that died left behind.
//!
//! Nothing is cached by the kernel: the file is open for direct I/O, its writeback cache is not asked for, so a write
//! that was answered is in the engine and FSYNC is the engine's flush. FUSE-over-io_uring is not used: the library has
//! none.
//!
//! Invariants
//! 1. The kernel's request is answered exactly once, whatever becomes of the volume.
//! 2. A write of parts of sectors excludes every other operation of the same export while it reads, merges and writes.
//! 3. A server that ends answers what is under way, and refuses what comes after, before its mount goes.
//! 4. The process never uses a file below a mount of its own: a thread that waited for an answer of its own process
//!    would keep the process, and so the mount, from dying.

mod gate;
pub mod mounts;
mod request;
pub mod server;
mod tree;

pub use server::{Config, Server};
