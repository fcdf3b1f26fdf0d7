//! One reader per kind of value. Each refuses with the allowed range and the nearest value it would take.

use crate::api::cache::WriteCache;
use crate::api::error::BadValue;
use crate::api::export::{Address, Network, SocketMode, SocketOwner};
use crate::api::job::job_name;
use crate::api::name::VdiskName;
use crate::api::read_cache::ReadCache;
use crate::api::size::{self, Size};
use crate::api::tier::{Piece, TierSpec};
use crate::api::validate;
use crate::ops::settings::{DiskSet, PoolSet};
use crate::ops::vdisk_set::Setting;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, Resettable, TypedValueParser};
use std::time::Duration;
use weft_engine::units::ByteCount;

type Read<T> = Result<T, BadValue>;

pub(crate) fn name(text: &str) -> Read<String> {
    validate::name(text)?;
    Ok(text.into())
}

pub(crate) fn vdisk(text: &str) -> Read<VdiskName> {
    text.parse()
}

pub(crate) fn job(text: &str) -> Read<String> {
    job_name(text)?;
    Ok(text.into())
}

pub(crate) fn pool_setting(text: &str) -> Read<PoolSet> {
    text.parse()
}

pub(crate) fn disk_setting(text: &str) -> Read<DiskSet> {
    text.parse()
}

pub(crate) fn vdisk_setting(text: &str) -> Read<Setting> {
    text.parse()
}

pub(crate) fn pool_or_vdisk(text: &str) -> Read<String> {
    if text.contains('/') {
        return text.parse().map(|name: VdiskName| name.to_string());
    }
    name(text)
}

pub(crate) fn size(text: &str) -> Read<Size> {
    text.parse()
}

pub(crate) fn fixed_size(text: &str) -> Read<Size> {
    size::bytes(text).map(Size::Bytes)
}

pub(crate) fn byte_count(text: &str) -> Read<u64> {
    size::bytes(text).map(|bytes| bytes.0)
}

pub(crate) fn write_cache(text: &str) -> Read<WriteCache> {
    text.parse()
}

pub(crate) fn tier(text: &str) -> Read<TierSpec> {
    text.parse()
}

pub(crate) fn piece(text: &str) -> Read<Piece> {
    text.parse()
}

pub(crate) fn read_cache(text: &str) -> Read<ReadCache> {
    text.parse()
}

pub(crate) fn unit(text: &str) -> Read<Size> {
    validated(text, validate::unit)
}

pub(crate) fn interleave(text: &str) -> Read<Size> {
    validated(text, validate::interleave)
}

pub(crate) fn network(text: &str) -> Read<Network> {
    text.parse()
}

pub(crate) fn memory(text: &str) -> Read<Size> {
    validated(text, validate::memory)
}

pub(crate) fn slab_size(text: &str) -> Read<Size> {
    validated(text, validate::slab_size)
}

pub(crate) fn range(text: &str) -> Read<u64> {
    let bytes = size::bytes(text)?;
    validate::request_range(bytes)?;
    Ok(bytes.0)
}

pub(crate) fn columns(text: &str) -> Read<u8> {
    counted(text, validate::columns, "4")
}

pub(crate) fn copies(text: &str) -> Read<u8> {
    counted(text, validate::copies, "2")
}

pub(crate) fn failures(text: &str) -> Read<u8> {
    counted(text, validate::failures, "1")
}

/// Reads what [`failures`] reads, or 0.
pub(crate) fn failures_or_none(text: &str) -> Read<u8> {
    if text == "0" { Ok(0) } else { failures(text) }
}

pub(crate) fn sector(text: &str) -> Read<u16> {
    let bytes = size::bytes(text)?;
    let bytes = u16::try_from(bytes.0).unwrap_or(u16::MAX);
    validate::sector(bytes).map(|()| bytes)
}

pub(crate) fn address(text: &str) -> Read<Address> {
    text.parse()
}

pub(crate) fn socket_mode(text: &str) -> Read<SocketMode> {
    text.parse()
}

pub(crate) fn socket_owner(text: &str) -> Read<SocketOwner> {
    text.parse()
}

pub(crate) fn span(text: &str) -> Read<Duration> {
    match humantime::parse_duration(text) {
        Ok(span) if !span.is_zero() => Ok(span),
        _ => Err(BadValue::new(format!("`{text}` is no span of time; 500ms, 1s and 5min are"), "1s")),
    }
}

/// One of a few words, named in the help without a line for each.
pub(crate) fn one_of<T: ValueEnum + Send + Sync + 'static>() -> impl TypedValueParser<Value = T> {
    let names = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let without_help = names.map(|value| value.help(Resettable::Reset));
    PossibleValuesParser::new(without_help).map(|name| T::from_str(&name, false).expect("it is one of the variants"))
}

fn validated(text: &str, validate: impl Fn(ByteCount) -> Read<()>) -> Read<Size> {
    let bytes = size::bytes(text)?;
    validate(bytes).map(|()| Size::Bytes(bytes))
}

fn counted(text: &str, validate: impl Fn(u8) -> Read<()>, nearest: &str) -> Read<u8> {
    match text.parse::<u8>() {
        Ok(n) => validate(n).map(|()| n),
        // A number that does not fit is taken as the largest that does.
        Err(_) if !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()) => validate(u8::MAX)
            .map(|()| u8::MAX)
            .map_err(|bad| BadValue { message: bad.message.replacen("255", text, 1), ..bad }),
        Err(_) => Err(BadValue::new(format!("`{text}` is no number"), nearest)),
    }
}
