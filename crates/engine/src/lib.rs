//! What storage means. This crate has no operating system, clock, thread or hash order in it: it is driven
//! through one seam ([`world::World`] and [`io::Disk`]) by `weft-host` on Linux and by `weft-sim` in simulation.
//!
//! Layers, lowest first; imports only point down:
//! `units bits error exec limits histogram` - `sync io` - `checksum parity geometry` - `format` - `event health heat` -
//! `world` - `tree` - `log` - `stripe` (pure) - `segment` - `store` - `vdisk dump` - `pool`. `scripts/tidy` holds the
//! imports against this.
#![no_std]
#![warn(missing_docs)]

#[doc(hidden)]
pub extern crate alloc;

pub mod bits;
pub mod checksum;
pub mod disk_set;
pub mod dump;
pub mod error;
pub mod event;
pub mod exec;
pub mod format;
pub mod geometry;
pub mod health;
pub mod heat;
pub mod histogram;
pub mod io;
pub mod limits;
pub mod log;
pub mod mutant;
pub mod parity;
pub mod pool;
pub mod segment;
pub mod store;
pub mod stripe;
pub mod sync;
pub mod tree;
pub mod units;
pub mod vdisk;
pub mod world;
