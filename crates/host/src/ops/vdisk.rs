//! Virtual disks: `weft vdisk`, and the plan of one request.

use super::vdisk_change::VdiskChange;
use super::vdisk_map::VdiskMap;
use super::vdisk_set::VdiskSetTyped;
use super::{Changing, Doer, Harm, Weft, values, verb};
use crate::api::cache::WriteCache;
use crate::api::class::Class;
use crate::api::error::{Answer, ApiError, BadValue, Kind};
use crate::api::name::VdiskName;
use crate::api::read_cache::ReadCache;
use crate::api::size::Size;
use crate::api::tier::TierSpec;
use crate::api::validate;
use crate::api::vdisk::{Operation, Provisioning, Resiliency, ResiliencyKind};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::str::FromStr;
use utoipa::{IntoParams, ToSchema};
use weft_engine::units::ByteCount;

/// `weft vdisk`.
#[derive(Subcommand, Clone, Debug)]
pub enum Vdisk {
    /// Make a virtual disk
    #[command(after_help = "Examples:\n  weft vdisk create tank/media --size 20GiB\n  \
        weft vdisk create tank/media --size 90% --resiliency parity --failures 2 --columns 6\n  \
        weft vdisk create tank/vm --size 100GiB --resiliency mirror --copies 2 --fixed\n  \
        weft vdisk create tank/vm --size 4TiB --tier ssd,size=50GiB,resiliency=mirror,columns=2 \
        --tier hdd,resiliency=parity,columns=7\n  \
        weft vdisk create tank/vm --size 4TiB --resiliency mirror-parity\n  \
        weft vdisk create tank/db --size 100GiB --class log --unit 16KiB\n\n\
        Unless said: simple on 1 disk, mirror on 2, parity on 3 to 7, parity that survives 2 failures from 8 on.")]
    Create(VdiskCreate),
    /// List the virtual disks
    #[command(after_help = "Examples:\n  weft vdisk list")]
    List(VdiskList),
    /// Show one virtual disk
    #[command(after_help = "Examples:\n  weft vdisk show tank/media")]
    Show(VdiskShow),
    /// Grow a virtual disk
    #[command(after_help = "Examples:\n  weft vdisk resize tank/media 2TiB\n  weft vdisk resize tank/media max")]
    Resize(VdiskResize),
    /// Give a virtual disk another name
    #[command(after_help = "Examples:\n  weft vdisk rename tank/media films")]
    Rename(VdiskRename),
    /// Change what a virtual disk does, while it is used
    #[command(after_help = "Examples:\n  weft vdisk set tank/vm write-cache=8GiB write-cache-disks=s1,s2\n  \
        weft vdisk set tank/vm write-cache=0\n  weft vdisk set tank/vm read-cache=100GiB\n  \
        weft vdisk set tank/media fine-share=5%\n  \
        weft vdisk set tank/vm tier=ssd,size=50GiB\n  weft vdisk set tank/vm tier=0\n\n\
        write-cache is how much of what small writes bring may rest on solid-state disks first; 0 empties it and lets \
        go of them.\n\
        read-cache is how much of what is read again and again may lie on solid-state disks, too; 0 lets go of them.\n\
        fine-share is how much of it may lie in packed stripes on its own disks instead; 0 has small writes merged.\n\
        tier is its fast tier: what is written whole goes there first, and what is sought out most comes to lie there; \
        0 moves all of it back.")]
    Set(VdiskSetTyped),
    /// Give a virtual disk another layout, while it is used
    #[command(after_help = "Examples:\n  weft vdisk change tank/media --columns 6 --dry-run\n  \
        weft vdisk change tank/media --resiliency parity --failures 2 --wait\n  \
        weft vdisk change tank/media --interleave 256KiB\n\n\
        What is left out stays as it is, or is chosen to suit the rest. What is written from now on has the new \
        layout; a job brings the rest there.\n\
        The job can be paused. Cancelled, it stops where it is, and all is used as ever; asked for again, it goes on.")]
    Change(VdiskChange),
    /// Let a virtual disk serve again that lost writes; says what is given up
    #[command(
        after_help = "Examples:\n  weft vdisk clear tank/media --dry-run\n  weft vdisk clear tank/media --yes\n\n\
        A virtual disk fails when more disks went than its layout survives before a write was durable: from then on \
        its flushes fail, and what was lost\n\
        is an error to read. Cleared, it takes requests again. What was flushed is there; where a write that was not \
        flushed is given up, what was there before\n\
        is read again: check the file system on it before you trust it."
    )]
    Clear(VdiskClear),
    /// Show which disks hold a virtual disk, piece by piece
    #[command(after_help = "Examples:\n  weft vdisk map tank/media\n  \
        weft vdisk map tank/media --offset 3GiB --length 1GiB --json")]
    Map(VdiskMap),
    /// Remove a virtual disk with all it holds
    #[command(after_help = "Examples:\n  weft vdisk remove tank/media --dry-run\n  weft vdisk remove tank/media --yes")]
    Remove(VdiskRemove),
}

impl Vdisk {
    /// Does what was typed.
    pub fn run<D: Doer>(self, doer: &mut D) -> D::Done {
        match self {
            Vdisk::Create(operation) => doer.operate(operation),
            Vdisk::List(operation) => doer.operate(operation),
            Vdisk::Show(operation) => doer.operate(operation),
            Vdisk::Resize(operation) => doer.operate(operation),
            Vdisk::Rename(operation) => doer.operate(operation),
            Vdisk::Set(typed) => doer.operate(typed.operation()),
            Vdisk::Change(operation) => doer.operate(operation),
            Vdisk::Clear(operation) => doer.operate(operation),
            Vdisk::Map(operation) => doer.operate(operation),
            Vdisk::Remove(operation) => doer.operate(operation),
        }
    }
}

/// Asks for a new virtual disk. What is left out is chosen by the daemon and shown.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct VdiskCreate {
    /// Its name, `POOL/VDISK`.
    #[arg(id = "vdisk", value_name = "POOL/VDISK", value_parser = values::vdisk, help = "Its name")]
    #[schema(value_type = String)]
    pub name: VdiskName,
    /// Its size: bytes, `max`, or a share of the room there is.
    #[arg(long, value_parser = values::size, help = "Its size: 20GiB, 4TB, max, 90%")]
    #[schema(value_type = String)]
    pub size: Size,
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
    /// What it is written for [default: auto]
    #[arg(long, value_parser = values::one_of::<Class>())]
    #[serde(default)]
    pub class: Option<Class>,
    /// With class log, bytes of a unit: a multiple of 4KiB, and of the data columns, up to 64KiB [default: 64KiB on
    /// disks that seek, 16KiB on others]
    #[arg(long, value_name = "SIZE", value_parser = values::unit)]
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub unit: Option<Size>,
    /// Take room as it is written (the default)
    #[arg(long, conflicts_with = "fixed")]
    #[serde(skip)]
    pub thin: bool,
    /// Reserve all room now
    #[arg(long)]
    #[serde(skip)]
    pub fixed: bool,
    /// Whether room is reserved.
    #[arg(skip)]
    #[serde(default)]
    pub provisioning: Provisioning,
    /// Its write-back cache: SIZE, 0 for none, or auto: the pool chooses, anew when its disks change [default: auto];
    /// SIZE,unsafe may survive less than what lies below it
    #[arg(long, value_name = "SIZE[,unsafe]|auto|0", value_parser = values::write_cache)]
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub write_cache: Option<WriteCache>,
    /// The disks that the cache lies on.
    #[arg(long, value_name = "D,D,...", value_delimiter = ',', requires = "write_cache")]
    #[serde(default)]
    pub write_cache_disks: Vec<String>,
    /// A tier, given twice: the fast one with its size, then the one below: ssd,size=50GiB,resiliency=mirror,columns=2
    #[arg(long, value_name = "TIER", value_parser = values::tier)]
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub tier: Vec<TierSpec>,
    /// Its read cache: SIZE, on solid-state disks, or 0 for none [default: 0]
    #[arg(long, value_name = "SIZE|0", value_parser = values::read_cache)]
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub read_cache: Option<ReadCache>,
    /// The disks that the read cache lies on.
    #[arg(long, value_name = "D,D,...", value_delimiter = ',', requires = "read_cache")]
    #[serde(default)]
    pub read_cache_disks: Vec<String>,
    /// The sector clients see: 512 or 4096 [default: 512]
    #[arg(long, value_name = "BYTES", value_parser = values::sector)]
    #[serde(default)]
    pub sector: Option<u16>,
    /// Only these disks of the pool.
    #[arg(long, value_name = "D,D,...", value_delimiter = ',')]
    #[serde(default)]
    pub disks: Vec<String>,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks for the virtual disks of the open pools.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Default, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VdiskList {
    /// Only this pool's.
    #[arg(value_parser = values::name)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// Asks for one virtual disk.
#[derive(Args, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct VdiskShow {
    /// Its name
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
}

/// Asks for another size.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct VdiskResize {
    /// Its name
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// The new size: bytes, `max`, or a share of the room there is.
    #[arg(value_parser = values::size, help = "Its new size")]
    #[schema(value_type = String)]
    pub size: Size,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks for another name.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[schema(as = Rename)]
pub struct VdiskRename {
    /// Its name
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// The new name.
    #[arg(id = "new", value_name = "NEW", value_parser = values::pool_or_vdisk, help = "Its new name within the pool")]
    pub name: String,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks to let a virtual disk serve again that lost writes.
#[derive(Args, Serialize, Deserialize, ToSchema, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[schema(as = ChangeQuery)]
pub struct VdiskClear {
    /// Its name
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[schema(value_type = bool)]
    pub changing: Changing,
}

/// Asks to remove a virtual disk with all it holds.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VdiskRemove {
    /// Its name
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// Only say what would change.
    #[command(flatten)]
    #[serde(default, rename = "dry_run")]
    #[param(value_type = bool)]
    pub changing: Changing,
}

/// Asks for the plan of one request.
#[derive(Args, Serialize, Deserialize, IntoParams, Clone, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Explain {
    /// The virtual disk
    #[arg(value_name = "POOL/VDISK", value_parser = values::vdisk)]
    #[serde(skip)]
    pub vdisk: VdiskName,
    /// What the request does.
    #[arg(value_parser = values::one_of::<Operation>())]
    pub operation: Operation,
    /// Where it begins, in bytes.
    #[arg(value_parser = values::range, help = "Where it begins")]
    pub offset: u64,
    /// How long it is, in bytes.
    #[arg(value_parser = values::range, help = "How long it is")]
    pub length: u64,
}

verb!(VdiskList: "vdisk list");
verb!(VdiskShow: "vdisk show");
verb!(VdiskResize: "vdisk resize", changing);
verb!(Explain: "explain");

verb!(VdiskCreate: "vdisk create", changing {
    fn typed(self, _: &impl Weft) -> Answer<VdiskCreate> {
        let provisioning = if self.fixed { Provisioning::Fixed } else { Provisioning::Thin };
        let create = VdiskCreate { provisioning, ..self };
        create.validate()?;
        Ok(create)
    }

    fn beside(&self) -> Vec<(&'static str, Value)> {
        let fixed = self.provisioning == Provisioning::Fixed;
        vec![("vdisk", self.name.to_string().into()), ("thin", self.thin.into()), ("fixed", fixed.into())]
    }
});

verb!(VdiskRename: "vdisk rename", changing {
    /// The new name may name the pool, too, when it is the same.
    fn typed(self, _: &impl Weft) -> Answer<VdiskRename> {
        let Some((pool, plain)) = self.name.split_once('/') else { return Ok(self) };
        let plain = VdiskRename { name: plain.into(), ..self.clone() };
        if pool == self.vdisk.pool {
            return Ok(plain);
        }
        let message = format!("{} is in pool {} and stays there; {pool} is another", self.vdisk, self.vdisk.pool);
        Err(ApiError::new(Kind::InvalidInput, message).offer(&plain))
    }

    fn beside(&self) -> Vec<(&'static str, Value)> {
        vec![("new", self.name.as_str().into())]
    }
});

verb!(VdiskClear: "vdisk clear", changing {
    fn harm(&self) -> Option<Harm> {
        Some(Harm {
            what: "clearing % gives up writes that were lost",
            question: "Clear %? What it lost is given up.",
            otherwise: "was left as it is",
        })
    }
});

verb!(VdiskRemove: "vdisk remove", changing {
    fn harm(&self) -> Option<Harm> {
        Some(Harm::REMOVAL)
    }
});

impl VdiskShow {
    /// Asks for the virtual disk `name`.
    pub fn of(name: &VdiskName) -> VdiskShow {
        VdiskShow { vdisk: name.clone() }
    }
}

impl VdiskRename {
    /// Asks to call the virtual disk `vdisk` `name`.
    pub fn to(vdisk: &VdiskName, name: impl Into<String>) -> VdiskRename {
        VdiskRename { vdisk: vdisk.clone(), name: name.into(), changing: Changing::default() }
    }
}

impl VdiskClear {
    /// Asks to let the virtual disk `name` serve again.
    pub fn of(name: &VdiskName) -> VdiskClear {
        VdiskClear { vdisk: name.clone(), changing: Changing::default() }
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
            class: None,
            unit: None,
            thin: false,
            fixed: false,
            provisioning: Provisioning::Thin,
            write_cache: None,
            write_cache_disks: Vec::new(),
            tier: Vec::new(),
            read_cache: None,
            read_cache_disks: Vec::new(),
            sector: None,
            disks: Vec::new(),
            changing: Changing::default(),
        }
    }

    /// Validates all that can be validated without looking at the pool.
    pub fn validate(&self) -> Answer<()> {
        self.class_asked()?;
        if let Some(Size::Bytes(unit)) = self.unit {
            let log = |plain| VdiskCreate { class: Some(Class::Log), ..plain };
            validate::unit(unit)
                .map_err(|bad| self.refused(&bad, |plain, size| VdiskCreate { unit: Some(size), ..log(plain) }))?;
        }
        if !self.tier.is_empty() || self.resiliency == Some(ResiliencyKind::MirrorParity) {
            return self.apart()?.0.validate();
        }
        let sector = self.sector.unwrap_or(512);
        validate::sector(sector)?;
        if let Size::Bytes(bytes) = self.size {
            validate::vdisk_size(bytes, u64::from(sector))
                .map_err(|bad| self.refused(&bad, |plain, size| VdiskCreate { size, ..plain }))?;
        }
        self.columns
            .map_or(Ok(()), validate::columns)
            .map_err(|bad| self.refused(&bad, |plain, n| VdiskCreate { columns: Some(n), ..plain }))?;
        self.copies
            .map_or(Ok(()), validate::copies)
            .map_err(|bad| self.refused(&bad, |plain, n| VdiskCreate { copies: Some(n), ..plain }))?;
        self.failures
            .map_or(Ok(()), validate::failures)
            .map_err(|bad| self.refused(&bad, |plain, n| VdiskCreate { failures: Some(n), ..plain }))?;
        self.interleave_bytes()?;
        if let Some(resiliency) = self.resiliency_asked()? {
            self.columns_enough(resiliency)?;
        }
        Ok(())
    }

    /// The interleave asked for, in bytes.
    pub fn interleave_bytes(&self) -> Answer<Option<ByteCount>> {
        match self.interleave {
            None => Ok(None),
            Some(Size::Bytes(bytes)) => {
                validate::interleave(bytes)
                    .map_err(|bad| self.refused(&bad, |plain, size| VdiskCreate { interleave: Some(size), ..plain }))?;
                Ok(Some(bytes))
            }
            Some(size) => {
                let bad =
                    BadValue::new(format!("{size} is no interleave; multiples of 4KiB from 4KiB to 4MiB are"), "64KiB");
                Err(self.refused(&bad, |plain, size| VdiskCreate { interleave: Some(size), ..plain }))
            }
        }
    }

    /// What is to protect the data, where that is asked for.
    pub fn resiliency_asked(&self) -> Answer<Option<Resiliency>> {
        match (self.resiliency, self.copies, self.failures) {
            (Some(ResiliencyKind::MirrorParity), ..) => Err(self.wrong(
                "mirror-parity is for a new virtual disk; `weft vdisk set` gives one that there is a fast tier",
                VdiskCreate { resiliency: Some(ResiliencyKind::Parity), ..self.plain() },
            )),
            (None, None, _) => Ok(None),
            (Some(ResiliencyKind::Simple), None, None) => Ok(Some(Resiliency::Simple)),
            (Some(ResiliencyKind::Simple), ..) => Err(self.wrong(
                "simple keeps one copy and survives no failure, so it takes neither --copies nor --failures",
                VdiskCreate { resiliency: Some(ResiliencyKind::Mirror), ..self.plain() },
            )),
            (Some(ResiliencyKind::Parity), Some(_), _) => Err(self.wrong(
                "parity keeps no copies; --failures 1 or 2 says how many disks may fail",
                self.plain().with(Resiliency::Parity { parity: 1 }),
            )),
            (Some(ResiliencyKind::Parity), None, failures) => {
                Ok(Some(Resiliency::Parity { parity: failures.unwrap_or(1) }))
            }
            (_, Some(copies), Some(failures)) if copies != failures + 1 => Err(self.wrong(
                &format!("{copies} copies survive {} failures, not {failures}", copies.saturating_sub(1)),
                VdiskCreate { resiliency: Some(ResiliencyKind::Mirror), failures: Some(failures), ..self.plain() },
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
                Err(self.wrong(&message, VdiskCreate { columns: Some(min), ..self.plain().with(resiliency) }))
            }
            _ => Ok(()),
        }
    }

    /// Asks for this protection, too.
    pub fn with(self, resiliency: Resiliency) -> VdiskCreate {
        let (kind, copies, failures) = match resiliency {
            Resiliency::Simple => (ResiliencyKind::Simple, None, None),
            Resiliency::Mirror { copies } => (ResiliencyKind::Mirror, Some(copies), None),
            Resiliency::Parity { parity } => (ResiliencyKind::Parity, None, Some(parity)),
        };
        VdiskCreate { resiliency: Some(kind), copies, failures, ..self }
    }

    /// Asks for its name and its size, and for nothing else.
    pub(super) fn plain(&self) -> VdiskCreate {
        VdiskCreate::new(self.name.clone(), self.size)
    }

    /// Refuses a value of its own, and offers the nearest in its place.
    fn refused<T: FromStr>(&self, bad: &BadValue, instead: impl FnOnce(VdiskCreate, T) -> VdiskCreate) -> ApiError {
        let error = ApiError::new(Kind::InvalidInput, &bad.message);
        match bad.nearest.as_ref().and_then(|nearest| nearest.parse().ok()) {
            Some(nearest) => error.offer(&instead(self.plain(), nearest)),
            None => error,
        }
    }

    pub(super) fn wrong(&self, message: &str, instead: VdiskCreate) -> ApiError {
        ApiError::new(Kind::InvalidInput, message).offer(&instead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::geometry;

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
            let chosen = || geometry::Resiliency::chosen(4, failures).into();
            let answer = asked(kind, copies, failures).resiliency_asked();
            let answer: Answer<Resiliency> = answer.map(|given| given.unwrap_or_else(chosen));
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
        let error = create.validate().unwrap_err();
        assert!(error.hint.unwrap().ends_with("--resiliency parity --failures 2 --columns 4"));
        create.columns = Some(4);
        assert!(create.validate().is_ok());
    }
}
