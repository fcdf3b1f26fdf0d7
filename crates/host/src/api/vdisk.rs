//! Virtual disks, as the API speaks of them.

use super::error::{Answer, ApiError, BadValue, Kind};
use super::judge;
use super::name::VdiskName;
use super::pool::Health;
use super::size::{Size, typed};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::{IntoParams, ToSchema};
use weft_engine::units::ByteCount;

/// What protects the data, without its numbers.
#[derive(Serialize, Deserialize, ToSchema, clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum ResiliencyKind {
    /// Nothing: every disk is needed.
    Simple,
    /// Copies.
    Mirror,
    /// Parity columns.
    Parity,
}

/// What protects the data.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Resiliency {
    /// Nothing: every disk is needed.
    Simple,
    /// Everything in this many copies.
    Mirror {
        /// 2 or 3.
        copies: u8,
    },
    /// This many parity columns.
    Parity {
        /// 1 or 2.
        parity: u8,
    },
}

/// Whether room is reserved.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Provisioning {
    /// Room is taken as it is written.
    #[default]
    Thin,
    /// All room is reserved when the disk is made.
    Fixed,
}

/// How a virtual disk lies on the disks.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// What protects the data.
    pub resiliency: Resiliency,
    /// Columns, parity columns counted, copies not.
    pub columns: u8,
    /// Bytes of one stripe on one column.
    pub interleave: u64,
}

/// What a virtual disk did since its pool opened.
#[derive(Serialize, Deserialize, ToSchema, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VdiskCounters {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Bytes clients read.
    pub read_bytes: u64,
    /// Bytes clients wrote.
    pub written_bytes: u64,
    /// Client bytes that left the stripe buffers as part of a whole stripe.
    pub whole_stripe_bytes: u64,
    /// Client bytes that a flush forced into the log before their stripe was whole.
    pub landed_bytes: u64,
    /// Bytes read from disks because of writes.
    pub write_caused_read_bytes: u64,
}

/// One virtual disk.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
pub struct VdiskInfo {
    /// Its name, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub name: VdiskName,
    /// Its size as clients see it, in bytes.
    pub size: u64,
    /// How it lies on the disks.
    pub layout: Layout,
    /// Whether its room is reserved.
    pub provisioning: Provisioning,
    /// Its sector as clients see it, in bytes.
    pub sector: u16,
    /// Bytes of it that hold data.
    pub used: u64,
    /// Bytes of the pool's disks it occupies.
    pub footprint: u64,
    /// The share of its raw bytes that is data, 0 to 1, by its layout.
    pub efficiency: f64,
    /// How well it is.
    pub health: Health,
    /// How many more disks can fail before something of what is written is lost, as of now.
    pub failures_left: u32,
    /// How many can fail before something is lost of what is written from now on; none: too few disks are there to
    /// write it at all.
    pub failures_new: Option<u32>,
    /// Why writes were lost for good, and no more are taken until it is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What it did since the pool opened.
    pub counters: VdiskCounters,
    /// Where it is offered.
    pub exports: Vec<String>,
}

/// Asks for a new virtual disk. What is left out is chosen by the daemon and shown.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct VdiskCreate {
    /// Its name, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub name: VdiskName,
    /// Its size: bytes, `max`, or a share of the room there is.
    #[schema(value_type = String)]
    pub size: Size,
    /// What protects the data.
    #[serde(default)]
    pub resiliency: Option<ResiliencyKind>,
    /// Copies of a mirror: 2 or 3.
    #[serde(default)]
    pub copies: Option<u8>,
    /// Disk failures to survive: 1 or 2.
    #[serde(default)]
    pub failures: Option<u8>,
    /// Columns, parity columns counted, copies not.
    #[serde(default)]
    pub columns: Option<u8>,
    /// Bytes of one stripe on one column.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub interleave: Option<Size>,
    /// Whether room is reserved.
    #[serde(default)]
    pub provisioning: Provisioning,
    /// Bytes of a separate write cache.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub write_cache: Option<Size>,
    /// Its sector as clients see it: 512 or 4096 bytes.
    #[serde(default)]
    pub sector: Option<u16>,
    /// Only these disks of the pool, by name; all unless said.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// Asks for another size.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct VdiskResize {
    /// The new size: bytes, `max`, or a share of the room there is.
    #[schema(value_type = String)]
    pub size: Size,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a request does.
#[derive(Serialize, Deserialize, ToSchema, clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// Asks for the plan of one request.
#[derive(Serialize, Deserialize, IntoParams, ToSchema, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExplainQuery {
    /// What the request does.
    pub operation: Operation,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: u64,
}

/// The plan of one request.
#[derive(Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The virtual disk, `POOL/VDISK`.
    #[schema(value_type = String)]
    pub vdisk: VdiskName,
    /// What the request does.
    pub operation: Operation,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: u64,
    /// The plan, line by line.
    pub plan: Vec<String>,
    /// How many more disks can fail before something of what is written is lost.
    pub failures_left: u32,
    /// How many can fail before something is lost of what is written from now on; none: it cannot be written.
    pub failures_new: Option<u32>,
}

/// What can be lost now, for people: `survive 1 disk failure`.
pub fn survive(failures: Option<u32>) -> String {
    match failures {
        None => "have too few disks to be taken at all".into(),
        Some(0) => "survive no disk failure".into(),
        Some(1) => "survive 1 disk failure".into(),
        Some(n) => format!("survive {n} disk failures"),
    }
}

impl VdiskInfo {
    /// Whether new writes get less redundancy than its layout promises.
    pub fn is_short_of_disks(&self) -> bool {
        self.failures_new.is_none_or(|new| new < u32::from(self.layout.resiliency.failures()))
    }
}

impl Resiliency {
    /// How many disks may be lost.
    pub fn failures(self) -> u8 {
        match self {
            Resiliency::Simple => 0,
            Resiliency::Mirror { copies } => copies - 1,
            Resiliency::Parity { parity } => parity,
        }
    }

    /// The fewest columns this can have.
    pub fn columns_min(self) -> u8 {
        match self {
            Resiliency::Simple | Resiliency::Mirror { .. } => 1,
            Resiliency::Parity { parity } => parity + 2,
        }
    }

    /// How many disks every column needs.
    pub fn disks_per_column(self) -> u8 {
        match self {
            Resiliency::Mirror { copies } => copies,
            Resiliency::Simple | Resiliency::Parity { .. } => 1,
        }
    }

    /// What a pool of `disks` disks gives to those who ask for nothing: simple on one, a mirror on two, parity from
    /// three on, and from eight on parity that survives two failures.
    pub fn default_for(disks: usize) -> Resiliency {
        match disks {
            0 | 1 => Resiliency::Simple,
            2 => Resiliency::Mirror { copies: 2 },
            3..=7 => Resiliency::Parity { parity: 1 },
            _ => Resiliency::Parity { parity: 2 },
        }
    }
}

impl Layout {
    /// Columns that hold data.
    pub fn data_columns(self) -> u8 {
        match self.resiliency {
            Resiliency::Parity { parity } => self.columns - parity,
            Resiliency::Simple | Resiliency::Mirror { .. } => self.columns,
        }
    }

    /// How many different disks one stripe needs.
    pub fn disks_needed(self) -> usize {
        usize::from(self.columns) * usize::from(self.resiliency.disks_per_column())
    }

    /// Bytes of data in one stripe.
    pub fn stripe_data_len(self) -> u64 {
        u64::from(self.data_columns()) * self.interleave
    }

    /// The share of raw bytes that is data, 0 to 1.
    pub fn efficiency(self) -> f64 {
        f64::from(self.data_columns()) / self.disks_needed() as f64
    }
}

impl VdiskCreate {
    /// A request for `name` of `size` that leaves every choice to the daemon.
    pub fn new(name: VdiskName, size: Size) -> VdiskCreate {
        VdiskCreate {
            name,
            size,
            resiliency: None,
            copies: None,
            failures: None,
            columns: None,
            interleave: None,
            provisioning: Provisioning::Thin,
            write_cache: None,
            sector: None,
            disks: Vec::new(),
            dry_run: false,
        }
    }

    /// Judges everything that can be judged without looking at the pool.
    pub fn judge(&self) -> Answer<()> {
        let sector = self.sector.unwrap_or(512);
        judge::sector(sector)?;
        if let Size::Bytes(bytes) = self.size {
            judge::vdisk_size(bytes, u64::from(sector)).map_err(|bad| self.refused(&bad, "--size"))?;
        }
        self.columns.map_or(Ok(()), judge::columns).map_err(|bad| self.refused(&bad, "--columns"))?;
        self.copies.map_or(Ok(()), judge::copies).map_err(|bad| self.refused(&bad, "--copies"))?;
        self.failures.map_or(Ok(()), judge::failures).map_err(|bad| self.refused(&bad, "--failures"))?;
        self.interleave_bytes()?;
        if let Some(resiliency) = self.resiliency_asked()? {
            self.columns_enough(resiliency)?;
        }
        Ok(())
    }

    /// What protects the data: as asked for, else by the number of `disks`.
    pub fn resiliency_for(&self, disks: usize) -> Answer<Resiliency> {
        if let Some(resiliency) = self.resiliency_asked()? {
            return Ok(resiliency);
        }
        let resiliency = match self.failures {
            None => Resiliency::default_for(disks),
            Some(failures) if disks < usize::from(failures) + 2 => Resiliency::Mirror { copies: failures + 1 },
            Some(failures) => Resiliency::Parity { parity: failures },
        };
        self.columns_enough(resiliency)?;
        Ok(resiliency)
    }

    /// The interleave asked for, in bytes.
    pub fn interleave_bytes(&self) -> Answer<Option<ByteCount>> {
        match self.interleave {
            None => Ok(None),
            Some(Size::Bytes(bytes)) => {
                judge::interleave(bytes).map_err(|bad| self.refused(&bad, "--interleave"))?;
                Ok(Some(bytes))
            }
            Some(size) => {
                let bad =
                    BadValue::new(format!("{size} is no interleave; multiples of 4KiB from 4KiB to 4MiB are"), "64KiB");
                Err(self.refused(&bad, "--interleave"))
            }
        }
    }

    fn resiliency_asked(&self) -> Answer<Option<Resiliency>> {
        match (self.resiliency, self.copies, self.failures) {
            (None, None, _) => Ok(None),
            (Some(ResiliencyKind::Simple), None, None) => Ok(Some(Resiliency::Simple)),
            (Some(ResiliencyKind::Simple), ..) => Err(self.wrong(
                "simple keeps one copy and survives no failure, so it takes neither --copies nor --failures",
                "--resiliency mirror",
            )),
            (Some(ResiliencyKind::Parity), Some(_), _) => Err(self.wrong(
                "parity keeps no copies; --failures 1 or 2 says how many disks may fail",
                "--resiliency parity --failures 1",
            )),
            (Some(ResiliencyKind::Parity), None, failures) => {
                Ok(Some(Resiliency::Parity { parity: failures.unwrap_or(1) }))
            }
            (_, Some(copies), Some(failures)) if copies != failures + 1 => Err(self.wrong(
                &format!("{copies} copies survive {} failures, not {failures}", copies.saturating_sub(1)),
                &format!("--resiliency mirror --failures {failures}"),
            )),
            (_, copies, failures) => {
                let copies = copies.unwrap_or_else(|| failures.map_or(2, |failures| failures + 1));
                Ok(Some(Resiliency::Mirror { copies }))
            }
        }
    }

    fn columns_enough(&self, resiliency: Resiliency) -> Answer<()> {
        let min = resiliency.columns_min();
        match self.columns {
            Some(columns) if columns < min => {
                let message = format!("{columns} columns are too few for {resiliency}; {min} to 32 are allowed");
                Err(self.wrong(&message, &format!("{} --columns {min}", resiliency_flags(resiliency))))
            }
            _ => Ok(()),
        }
    }

    fn refused(&self, bad: &BadValue, flag: &str) -> ApiError {
        let nearest = bad.nearest.as_deref().unwrap_or_default();
        let size = if flag == "--size" { String::new() } else { format!("--size {} ", self.size) };
        let command = format!("weft vdisk create {} {size}{flag} {nearest}", self.name);
        ApiError::new(Kind::InvalidInput, &bad.message).hint(command)
    }

    fn wrong(&self, message: &str, flags: &str) -> ApiError {
        let command = format!("weft vdisk create {} --size {} {flags}", self.name, self.size);
        ApiError::new(Kind::InvalidInput, message).hint(command)
    }
}

/// The flags that ask for `resiliency`.
pub fn resiliency_flags(resiliency: Resiliency) -> String {
    match resiliency {
        Resiliency::Simple => "--resiliency simple".into(),
        Resiliency::Mirror { copies } => format!("--resiliency mirror --copies {copies}"),
        Resiliency::Parity { parity } => format!("--resiliency parity --failures {parity}"),
    }
}

impl fmt::Display for Resiliency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resiliency::Simple => f.write_str("simple"),
            Resiliency::Mirror { copies } => write!(f, "mirror of {copies}"),
            Resiliency::Parity { parity: 1 } => f.write_str("single parity"),
            Resiliency::Parity { .. } => f.write_str("dual parity"),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.columns == 1 { "" } else { "s" };
        write!(
            f,
            "{}, {} column{plural}, {} interleave",
            self.resiliency,
            self.columns,
            typed(ByteCount(self.interleave))
        )
    }
}

impl fmt::Display for Provisioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Provisioning::Thin => "thin",
            Provisioning::Fixed => "fixed",
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Read => "read",
            Operation::Write => "write",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(resiliency: Option<ResiliencyKind>, copies: Option<u8>, failures: Option<u8>) -> VdiskCreate {
        let name = "tank/media".parse().unwrap();
        VdiskCreate { resiliency, copies, failures, ..VdiskCreate::new(name, Size::Bytes(ByteCount::gib(1))) }
    }

    #[test]
    fn flags_say_what_protects_the_data_and_contradictions_are_refused() {
        use ResiliencyKind::{Mirror, Parity, Simple};
        let table = [
            (None, None, None, Some(Resiliency::Parity { parity: 1 })),
            (None, Some(3), None, Some(Resiliency::Mirror { copies: 3 })),
            (None, None, Some(2), Some(Resiliency::Parity { parity: 2 })),
            (Some(Simple), None, None, Some(Resiliency::Simple)),
            (Some(Simple), None, Some(1), None),
            (Some(Simple), Some(2), None, None),
            (Some(Mirror), None, None, Some(Resiliency::Mirror { copies: 2 })),
            (Some(Mirror), None, Some(2), Some(Resiliency::Mirror { copies: 3 })),
            (Some(Mirror), Some(3), Some(2), Some(Resiliency::Mirror { copies: 3 })),
            (Some(Mirror), Some(3), Some(1), None),
            (Some(Parity), None, None, Some(Resiliency::Parity { parity: 1 })),
            (Some(Parity), None, Some(2), Some(Resiliency::Parity { parity: 2 })),
            (Some(Parity), Some(2), None, None),
        ];
        for (kind, copies, failures, expected) in table {
            let answer = asked(kind, copies, failures).resiliency_for(4);
            assert_eq!(answer.as_ref().ok(), expected.as_ref(), "{kind:?} {copies:?} {failures:?}");
            if let Err(error) = answer {
                assert!(error.hint.is_some(), "{error}");
            }
        }
    }

    #[test]
    fn a_parity_layout_with_too_few_columns_is_refused_by_the_flags_alone() {
        let mut create = asked(Some(ResiliencyKind::Parity), None, Some(2));
        create.columns = Some(3);
        let error = create.judge().unwrap_err();
        assert!(error.hint.unwrap().ends_with("--resiliency parity --failures 2 --columns 4"));
        create.columns = Some(4);
        assert!(create.judge().is_ok());
    }

    #[test]
    fn efficiency_is_data_columns_over_disks() {
        let layout = |resiliency, columns| Layout { resiliency, columns, interleave: 65_536 };
        assert_eq!(layout(Resiliency::Parity { parity: 1 }, 4).efficiency(), 0.75);
        assert_eq!(layout(Resiliency::Mirror { copies: 2 }, 2).efficiency(), 0.5);
        assert_eq!(layout(Resiliency::Parity { parity: 2 }, 6).stripe_data_len(), 4 * 65_536);
    }
}
