//! Every test of the crate beside its units, in one program: each compiles the engine's tasks anew, and eleven of them
//! took longer to build than to run.

mod command_line;
mod common;
mod daemon;
mod disks;
mod dry_run;
mod engine_thread;
mod fuse_file;
mod load;
mod machine;
mod measure;
mod nbd_bytes;
mod nbd_clients;
mod nbd_server;
mod opening;
