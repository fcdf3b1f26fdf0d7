//! How Linux does it: disks, the engine's thread, exports, the control API, the daemon and the command line. The binary
//! `weft` is `cli::main`.
#![warn(missing_docs)]

pub mod api;
pub mod cli;
pub mod daemon;
pub mod disk;
pub mod errno;
pub mod export;
pub mod fuse;
mod harmless;
pub mod load;
pub mod measure;
pub mod mount;
pub mod nbd;
pub mod ops;
pub mod runtime;
pub mod ublk;
pub mod wire;
