//! What can be known before a disk is bought.
//!
//! [`plan`] compares the layouts that make sense on given disks: room, rates, time to rebuild, probability of loss,
//! growth. Room is counted by the engine's own allocator on an empty map; rates are shares of what the disks' models
//! do, measured on the engine in virtual time; the rest is arithmetic that stands where it is used. Nothing here looks
//! at a real disk, a clock or a file.
#![warn(missing_docs)]

pub mod arrays;
pub mod beside_md;
pub mod capacity;
pub mod claims;
pub mod command_line;
pub mod disks;
pub mod files;
pub mod jobs;
pub mod measured;
pub mod named;
pub mod page;
pub mod page_cache;
pub mod picture;
pub mod plan;
pub mod plot;
pub mod questions;
pub mod raid;
pub mod ratios;
pub mod recorded;
pub mod spaces;
pub mod specifications;
pub mod survival;
pub mod volume;
pub mod workload;
