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
use crate::units::DiskNo;
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
    /// `Ok(None)`: the annex is not that of the block, or there is none, and disks that belong there. `Err`: there are
    /// more disks than this engine takes.
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
        let sets = sets.map(Option::unwrap_or_default);
        let wide = block.features_incompatible & FEATURE_WIDE != 0;
        let largest = sets.iter().flat_map(|set| set.iter()).chain([DiskNo(block.disk_no)]).max();
        if !wide && largest.is_some_and(|no| no.0 as usize >= DISKS_NARROW) {
            return Ok(None);
        }
        let (mut disk_ids, mut seen_epochs) = (Box::new([Id::default(); DISKS_MAX]), Box::new([0; DISKS_MAX]));
        disk_ids.iter_mut().zip(block.disk_ids).for_each(|(id, raw)| *id = Id(raw));
        seen_epochs.iter_mut().zip(block.seen_epochs).for_each(|(epoch, raw)| *epoch = raw);
        if wide {
            let Ok((annex, _)) = LabelAnnex::read_from_prefix(annex) else { return Ok(None) };
            if block.annex_crc != crc32c(annex.as_bytes()) {
                return Ok(None);
            }
            disk_ids.iter_mut().skip(DISKS_NARROW).zip(annex.disk_ids).for_each(|(id, raw)| *id = Id(raw));
            seen_epochs.iter_mut().skip(DISKS_NARROW).zip(annex.seen_epochs).for_each(|(epoch, raw)| *epoch = raw);
        }
        Ok(Some(DiskTable { sets, disk_ids, seen_epochs }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Membership;
    use super::super::tests::{first, forged, label};
    use super::*;
    use proptest::prelude::*;

    fn wide() -> Label {
        let mut wide = Label { features: FEATURE_WIDE, disk_no: DiskNo(199), ..label() };
        wide.membership = Membership { members: first(200), current: first(200), voters: first(3), loggers: first(3) };
        wide.membership.voters.insert(DiskNo(130));
        wide.disk_ids[199] = Id([7; 16]);
        wide.seen_epochs[199] = 5;
        wide
    }

    #[test]
    fn a_label_of_more_than_64_disks_has_an_annex_and_is_none_without_it() {
        let wide = wide();
        let (block, annex) = wide.encode();
        let mut annex = annex.unwrap();
        assert!(has_annex(&block) && !has_annex(&label().encode().0));
        assert_eq!(Label::decode(&with_annex(&block, Some(&annex))), Ok(Some(wide)));
        assert_eq!(Label::decode(&block), Ok(None));
        annex[135 * 16] ^= 1;
        assert_eq!(Label::decode(&with_annex(&block, Some(&annex))), Ok(None), "it is another label's");
    }

    #[test]
    fn a_label_without_an_annex_that_names_disks_of_one_is_none() {
        let at = core::mem::offset_of!(LabelBlock, members_beyond);
        assert_eq!(Label::decode(&forged(at, &[1])), Ok(None));
        assert_eq!(Label::decode(&forged(core::mem::offset_of!(LabelBlock, disk_no), &[64])), Ok(None));
    }

    #[test]
    fn a_pool_of_more_disks_than_this_engine_takes_is_refused() {
        let at = core::mem::offset_of!(LabelBlock, members_beyond) + (WORDS_BEYOND - 1) * 8;
        assert!(Label::decode(&forged(at, &[1])).is_err());
    }

    proptest! {
        #[test]
        fn a_forged_label_with_an_annex_never_panics(
            at in 16usize..4088,
            in_annex in 0..ANNEX_LEN as usize - 8,
            bytes: [u8; 8],
        ) {
            let (mut block, annex) = wide().encode();
            let mut annex = annex.unwrap();
            annex[in_annex..in_annex + 8].copy_from_slice(&bytes);
            block[at..at + 8].copy_from_slice(&bytes);
            let crc_at = core::mem::offset_of!(LabelBlock, annex_crc);
            block[crc_at..crc_at + 4].copy_from_slice(&crc32c(&annex).to_le_bytes());
            block[12..16].fill(0);
            let crc = crc32c(&block);
            block[12..16].copy_from_slice(&crc.to_le_bytes());
            let _ = Label::decode(&with_annex(&block, Some(&annex)));
        }
    }
}
