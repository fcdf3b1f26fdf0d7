//! What virtual disks are written for, as people type it and as it is shown.

use super::size::typed;
use super::vdisk::Layout;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;
use weft_engine::pool;
use weft_engine::units::ByteCount;

/// What a virtual disk makes of writes that are smaller than its stripes.
#[derive(Serialize, Deserialize, ToSchema, clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Small writes leave packed, and are moved into whole stripes later.
    #[default]
    Auto,
    /// Small writes are merged into whole stripes: for media and backups.
    Stream,
    /// Stripes of one unit, 4KiB to 64KiB, that go to the next free place: for databases and virtual machines.
    Log,
}

impl Class {
    /// Which it is, and why, for a virtual disk of this layout.
    pub fn words(self, layout: Layout) -> String {
        let stripe = typed(ByteCount(layout.stripe_data_len()));
        match self {
            Class::Auto => {
                format!("{self}: what is smaller than a stripe of {stripe} leaves packed, and is moved later")
            }
            Class::Stream => {
                format!("{self}: what is smaller than a stripe of {stripe} is merged with what is on the disks")
            }
            Class::Log => {
                format!(
                    "{self}: a stripe is one unit of {stripe}, so a unit goes to the next free place and reads nothing"
                )
            }
        }
    }
}

impl From<pool::Class> for Class {
    fn from(class: pool::Class) -> Class {
        match class {
            pool::Class::Auto => Class::Auto,
            pool::Class::Stream => Class::Stream,
            pool::Class::Log { .. } => Class::Log,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Auto => "auto",
            Class::Stream => "stream",
            Class::Log => "log",
        })
    }
}
