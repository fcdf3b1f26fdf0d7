//! What a label says of each disk: of the first ones in its block, of all others in its annex, which only pools with a
//! disk whose number is [`DISKS_NARROW`] or more have ([`FEATURE_WIDE`]).

use super::{LABEL_MAGIC, Label, LabelBlock};
use crate::checksum::crc32c;
use crate::disk_set::{DiskSet, SET_WORDS};
use crate::error::Result;
use crate::fail;
use crate::format::{FEATURE_WIDE, Id, name_from_bytes};
use crate::io::Buf;
use crate::limits::DISKS_MAX;
use alloc::boxed::Box;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Disks that a label's block has room for.
pub const DISKS_NARROW: usize = 64;
/// Disks that the annex of a label has room for.
pub const DISKS_BEYOND: usize = 960;
/// Bytes of the annex of a label.
pub const ANNEX_LEN: u64 = 24 << 10;
/// Words of a set of disks that follow the first one.
pub(super) const WORDS_BEYOND: usize = DISKS_BEYOND / 64;

/// What a label says of each disk whose number does not fit the block: it lies beside it where the pool has such
/// disks ([`FEATURE_WIDE`]).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C)]
pub struct LabelAnnex {
    pub(crate) disk_ids: [[u8; 16]; DISKS_BEYOND],
    pub(crate) seen_epochs: [u64; DISKS_BEYOND],
    pub(crate) pad_0: [u8; 1536],
}

const _: () = assert!(size_of::<LabelAnnex>() == ANNEX_LEN as usize);

impl Label {
    pub(super) fn encode_annex(&self) -> Buf {
        let mut annex =
            LabelAnnex { disk_ids: [[0; 16]; DISKS_BEYOND], seen_epochs: [0; DISKS_BEYOND], pad_0: [0; 1536] };
        let (ids, seen) = (self.disk_ids.iter().skip(DISKS_NARROW), self.seen_epochs.iter().skip(DISKS_NARROW));
        annex.disk_ids.iter_mut().zip(ids).for_each(|(raw, id)| *raw = id.0);
        annex.seen_epochs.iter_mut().zip(seen).for_each(|(raw, epoch)| *raw = *epoch);
        Buf::copy_of(annex.as_bytes())
    }
}

/// Whether an annex belongs to the label whose block this is.
pub fn has_annex(block: &[u8]) -> bool {
    LabelBlock::read_from_prefix(block)
        .is_ok_and(|(block, _)| block.magic == LABEL_MAGIC && block.features_incompatible & FEATURE_WIDE != 0)
}

/// A label's block and its annex, as [`Label::decode`] takes them.
pub fn with_annex(block: &[u8], annex: Option<&[u8]>) -> Buf {
    Buf::copy_of(&[block, annex.unwrap_or_default()].concat())
}

/// What a label says of each disk, of its block and of its annex.
pub(super) struct DiskTable {
    /// In the order of [`Label::sets`].
    pub(super) sets: [DiskSet; 5],
    pub(super) disk_ids: Box<[Id; DISKS_MAX]>,
    pub(super) seen_epochs: Box<[u64; DISKS_MAX]>,
}

impl DiskTable {
    /// `Ok(None)`: the annex is not that of the block. `Err`: there are more disks than this engine takes.
    pub(super) fn decode(block: &LabelBlock, annex: &[u8]) -> Result<Option<DiskTable>> {
        let set = |word, beyond: &[u64; WORDS_BEYOND]| {
            let words: [u64; 1 + WORDS_BEYOND] = core::array::from_fn(|at| if at == 0 { word } else { beyond[at - 1] });
            words[SET_WORDS..].iter().all(|word| *word == 0).then(|| DiskSet::from_words(&words))
        };
        let sets = [
            set(block.members, &block.members_beyond),
            set(block.current, &block.current_beyond),
            set(block.voters, &block.voters_beyond),
            set(block.loggers, &block.loggers_beyond),
            set(block.durable_voters, &block.durable_voters_beyond),
        ];
        if sets.contains(&None) || block.disk_no as usize >= DISKS_MAX {
            let name = name_from_bytes(&block.pool_name);
            return fail!(Corrupt, "pool {name:?} has more than the {DISKS_MAX} disks that this weft takes");
        }
        let (mut disk_ids, mut seen_epochs) = (Box::new([Id::default(); DISKS_MAX]), Box::new([0; DISKS_MAX]));
        disk_ids.iter_mut().zip(block.disk_ids).for_each(|(id, raw)| *id = Id(raw));
        seen_epochs.iter_mut().zip(block.seen_epochs).for_each(|(epoch, raw)| *epoch = raw);
        if block.features_incompatible & FEATURE_WIDE != 0 {
            let Ok((annex, _)) = LabelAnnex::read_from_prefix(annex) else { return Ok(None) };
            if block.annex_crc != crc32c(annex.as_bytes()) {
                return Ok(None);
            }
            disk_ids.iter_mut().skip(DISKS_NARROW).zip(annex.disk_ids).for_each(|(id, raw)| *id = Id(raw));
            seen_epochs.iter_mut().skip(DISKS_NARROW).zip(annex.seen_epochs).for_each(|(epoch, raw)| *epoch = raw);
        }
        Ok(Some(DiskTable { sets: sets.map(Option::unwrap_or_default), disk_ids, seen_epochs }))
    }
}
