//! `weft vdisk change`.

use super::vdisk::VdiskCreate;
use super::{Changing, Verb, Weft, values};
use crate::api::error::{Answer, ApiError};
use crate::api::name::VdiskName;
use crate::api::size::Size;
use crate::api::vdisk::{Resiliency, ResiliencyKind};
use clap::Args;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weft_engine::units::ByteCount;

/// Asks for another layout of a virtual disk that is used. What is left out stays as it is, or is chosen to suit the
/// rest.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct VdiskChange {
    /// Its name
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// What protects the data.
    #[arg(long, value_parser = values::one_of::<ResiliencyKind>())]
    #[serde(default)]
    pub resiliency: Option<ResiliencyKind>,
    /// Copies of a mirror: 2 or 3.
    #[arg(long, value_name = "N", value_parser = values::copies)]
    #[serde(default)]
    pub copies: Option<u8>,
    /// Disk failures to survive: 1 or 2.
    #[arg(long, value_name = "N", value_parser = values::failures)]
    #[serde(default)]
    pub failures: Option<u8>,
    /// Columns, parity columns counted, copies not: 1 to 32.
    #[arg(long, value_name = "N", value_parser = values::columns)]
    #[serde(default)]
    pub columns: Option<u8>,
    /// Bytes of one stripe on one column: any multiple of 4KiB up to 4MiB.
    #[arg(long, value_name = "SIZE", value_parser = values::interleave)]
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub interleave: Option<Size>,
    /// Show the job's progress, and return when it is done
    #[arg(long)]
    #[serde(skip)]
    pub wait: bool,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

impl Verb for VdiskChange {
    fn verb(&self) -> &'static str {
        "vdisk change"
    }

    fn typed(self, _: &impl Weft) -> Answer<VdiskChange> {
        self.as_new(None).validate().map_err(|error| self.said_of_itself(error))?;
        Ok(self)
    }

    fn changing(&mut self) -> Option<&mut Changing> {
        Some(&mut self.changing)
    }

    fn waits(&self) -> bool {
        self.wait
    }
}

impl VdiskChange {
    /// Changes nothing yet; asks a change that is under way to go on.
    pub fn of(vdisk: &VdiskName) -> VdiskChange {
        VdiskChange {
            vdisk: vdisk.clone(),
            resiliency: None,
            copies: None,
            failures: None,
            columns: None,
            interleave: None,
            wait: false,
            changing: Changing::default(),
        }
    }

    /// What protects the data, where that is asked for, of a virtual disk that has `now`: `--failures` alone keeps its
    /// kind.
    pub fn resiliency_asked(&self, now: Option<Resiliency>) -> Answer<Option<Resiliency>> {
        self.as_new(now).resiliency_asked().map_err(|error| self.said_of_itself(error))
    }

    /// The interleave asked for, in bytes.
    pub fn interleave_bytes(&self) -> Answer<Option<ByteCount>> {
        self.as_new(None).interleave_bytes().map_err(|error| self.said_of_itself(error))
    }

    /// Validates all that can be validated without looking at the pool.
    pub fn validate(&self) -> Answer<()> {
        self.as_new(None).validate().map_err(|error| self.said_of_itself(error))
    }

    /// A new virtual disk of which as much is said: one rule says what fits together.
    fn as_new(&self, now: Option<Resiliency>) -> VdiskCreate {
        let kind = self.resiliency.or(match (self.copies, self.failures, now) {
            (None, Some(_), Some(Resiliency::Mirror { .. })) => Some(ResiliencyKind::Mirror),
            (None, Some(_), Some(_)) => Some(ResiliencyKind::Parity),
            _ => None,
        });
        VdiskCreate {
            resiliency: kind,
            copies: self.copies,
            failures: self.failures,
            columns: self.columns,
            interleave: self.interleave,
            ..VdiskCreate::new(self.vdisk.clone(), Size::Bytes(ByteCount::gib(1)))
        }
    }

    /// A refusal of a new one, told of a change: the command that it offers makes nothing new.
    fn said_of_itself(&self, mut error: ApiError) -> ApiError {
        let create = format!("weft vdisk create {} --size 1GiB", self.vdisk);
        error.hint = error.hint.map(|hint| hint.replace(&create, &format!("weft vdisk change {}", self.vdisk)));
        error
    }
}
