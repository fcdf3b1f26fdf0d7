//! What the daemon and its engine tell each other: plain values.

use crate::api::pool::{Media, Usage};
use crate::api::power::PowerSetting;
pub use crate::ops::Run;
use std::path::PathBuf;
use weft_engine::format::label;
use weft_engine::units::ByteCount;

/// What a disk's label says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The pool's identity, 32 hexadecimal digits.
    pub pool_id: String,
    /// The pool's name. A label that is older than others of its pool may know another one.
    pub pool_name: String,
    /// The disk's identity, 32 hexadecimal digits.
    pub disk_id: String,
    /// The disk's name within the pool.
    pub disk_name: String,
    /// Whether the disk is as long as when it joined. A file that is still being copied is not, nor is one that was cut
    /// off.
    pub whole: bool,
    /// The label itself, which is compared with those of other disks.
    pub said: Box<label::Label>,
}

/// A pool to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its unit of allocation on one disk.
    pub slab_size: ByteCount,
    /// Its disks.
    pub members: Vec<NewMember>,
}

/// A disk of a pool to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewMember {
    /// Where it is.
    pub path: PathBuf,
    /// Its name within the pool.
    pub name: String,
}

/// What a pool shall know of a disk from now on. What is `None` stays.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DiskChange {
    /// What it is used for.
    pub usage: Option<Usage>,
    /// What kind of medium it is.
    pub media: Option<Media>,
    /// Its name within the pool.
    pub name: Option<String>,
    /// What it fails together with; empty for nothing.
    pub domain: Option<String>,
    /// Whether it is in maintenance: nothing is read from it or written to it.
    pub maintenance: Option<bool>,
    /// What is said of its write cache.
    pub power_protected: Option<PowerSetting>,
}

/// How to open a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenHow {
    /// Write nothing.
    pub read_only: bool,
    /// Open although disks are missing.
    pub degraded: bool,
    /// Do without members that somebody else has, if the others are enough, as without those that cannot be opened.
    pub partly: bool,
    /// Open it for good, or only to see that it opens: nothing is written then, and it is closed again.
    pub run: Run,
}
