//! What is typed after `weft pool dump`. No operation: whoever dumps reads the disks, without a daemon.

use crate::api::error::BadValue;
use clap::Args;
use std::path::PathBuf;
use weft_engine::store::meta::conf::{CHUNK, CONF, SEGMENT};
use weft_engine::store::meta::room::ROOM;
use weft_engine::tree::{Key, KeyRange};

/// Asks what lies on disks.
#[derive(Args, Clone, PartialEq, Eq, Debug)]
pub struct PoolDump {
    /// A pool, or its disks: block devices or files
    #[arg(value_name = "POOL|DISK", required = true)]
    pub of: Vec<String>,
    /// Where to look for the disks of POOL: a device, a file, or a directory, which means the files in it [default:
    /// where the daemon has them, else all block devices]
    #[arg(long, value_name = "DIR_OR_DEVICE", num_args = 1..)]
    pub disks: Vec<PathBuf>,
    /// List every record of the checkpoint and of the log
    #[arg(long)]
    pub records: bool,
    /// List the entries of the tree below this key: segment/ID, chunk/TABLE/CHUNK, places/SEGMENT/PIECE, the four
    /// numbers, or the first of any of these; `all` lists every entry
    #[arg(long, value_name = "KEY", value_parser = keys)]
    pub key: Option<KeyRange>,
}

/// The keys that begin as `text` says.
fn keys(text: &str) -> Result<KeyRange, BadValue> {
    let bad = || BadValue::new(format!("`{text}` is no key; segment/12, chunk/3/0, places/7 or 3/7/12/0 is"), "all");
    let mut words = text.split('/');
    let named: &[u64] = match words.next() {
        Some("all") if text == "all" => return Ok(KeyRange::ALL),
        Some("segment") => &[CONF as u64, SEGMENT],
        Some("chunk") => &[CONF as u64, CHUNK],
        Some("places") => &[ROOM as u64],
        _ => {
            words = text.split('/');
            &[]
        }
    };
    let mut parts = named.to_vec();
    for word in words {
        parts.push(word.parse().map_err(|_| bad())?);
    }
    let kind = parts.first().and_then(|kind| u16::try_from(*kind).ok()).ok_or_else(bad)?;
    if parts.len() > 4 {
        return Err(bad());
    }
    let end = |rest: u64| {
        let part = |nth: usize| parts.get(nth).copied().unwrap_or(rest);
        Key::new(kind, part(1), part(2), part(3))
    };
    Ok(KeyRange::new(end(0), end(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_or_numbered_and_its_beginning_means_all_below_it() {
        const END: u64 = u64::MAX;
        for (text, first, last) in [
            ("all", Key::MIN, Key::MAX),
            ("segment/12", Key::new(3, 7, 12, 0), Key::new(3, 7, 12, END)),
            ("segment", Key::new(3, 7, 0, 0), Key::new(3, 7, END, END)),
            ("chunk/4/1", Key::new(3, 9, 4, 1), Key::new(3, 9, 4, 1)),
            ("places/5/0", Key::new(4, 5, 0, 0), Key::new(4, 5, 0, END)),
            ("3/7/12/0", Key::new(3, 7, 12, 0), Key::new(3, 7, 12, 0)),
            ("9", Key::new(9, 0, 0, 0), Key::new(9, END, END, END)),
        ] {
            assert_eq!(keys(text), Ok(KeyRange::new(first, last)), "{text}");
        }
        for text in ["", "/", "segment/", "segment/x", "70000", "1/2/3/4/5", "chunk/1/2/3", "all/1", "-1"] {
            assert!(keys(text).is_err(), "{text}");
        }
    }
}
