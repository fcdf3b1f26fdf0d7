//! The label: who this disk is, which pool it belongs to, where the rest lies. Format: `docs/on-disk-format.md`,
//! "Label".
//!
//! Invariants
//! 1. Four slots: blocks 0 and 1, and the last two blocks of the disk. The label with serial number `n` of its disk is
//!    written to slot `n % 2` of the head and of the tail, so the label before it stays whole until it is durable.
//! 2. A label that decodes is unaltered (CRC32C over the block) and of a version and feature set this engine
//!    understands.
//! 3. A pool that has disks with numbers from [`DISKS_NARROW`] on has an annex beside each label, which is part of it:
//!    the label's block holds its CRC32C, and without it the label does not decode.
//! 4. What is written can be read: [`Label::encode`] asserts it. So counters must be far from their end when a pool is
//!    opened ([`Counters`]).

mod annex;
mod plan;

pub use annex::{ANNEX_LEN, DISKS_BEYOND, DISKS_NARROW, LabelAnnex, has_annex, with_annex};
pub use plan::DiskPlan;

use super::lineage::{LINEAGE_KEPT, Lineage};
use super::{FEATURE_WIDE, FEATURES, Id, VERSION, VERSION_OLDEST, is_name, name_from_bytes, name_to_bytes};
use crate::checksum::crc32c;
use crate::disk_set::{DiskSet, SET_WORDS};
use crate::error::Result;
use crate::fail;
use crate::io::Buf;
use crate::limits::{DISKS_MAX, SLAB_MAX, SLAB_MIN};
use crate::units::{BLOCK, ByteCount, DiskNo, DiskOffset};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use annex::{DiskTable, WORDS_BEYOND};
use core::ops::Deref;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Marks a label.
pub const LABEL_MAGIC: [u8; 8] = *b"WEFTLABL";
/// The shortest log ring; pools that choose for themselves take 1 MiB at least.
pub const LOG_MIN: u64 = 64 << 10;
/// No counter of a label ever gets here by counting; below it, none overflows by counting on.
const COUNTER_MAX: u64 = 1 << 62;
/// What `seen_epochs` says of a disk that was put back from a copy, until it is durably on record that nobody knows
/// what it lacks.
pub const UNSEEN: u64 = COUNTER_MAX - 1;
/// No pool is gone on with from a counter that is not below this: what is left would be for ever, and nothing counts
/// that far.
const BELIEVED_MAX: u64 = 1 << 60;
/// How far a disk's numbers may be ahead of those of all others: a thousand labels a second for 34 years without them.
const NUMBERS_AHEAD: u64 = 1 << 40;
/// How many batches or records of the log a label may be ahead of what others tell.
const RECORDS_AHEAD: u64 = 1 << 48;
/// How many bytes of the log a label may be ahead of what others tell: 9 GB a second for a year.
const BYTES_AHEAD: u64 = 1 << 58;
/// Label slots at either end.
pub const LABEL_SLOTS: u64 = 2;

/// The label as it stands on the disk: one 4 KiB block.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C)]
pub struct LabelBlock {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    pub(crate) crc: u32,
    pub(crate) features_compatible: u64,
    pub(crate) features_read_only: u64,
    pub(crate) features_incompatible: u64,
    pub(crate) pool_id: [u8; 16],
    pub(crate) disk_id: [u8; 16],
    pub(crate) pool_name: [u8; 48],
    pub(crate) epoch: u64,
    pub(crate) opened: u64,
    pub(crate) slab_len: u64,
    pub(crate) disk_len: u64,
    pub(crate) blob_at: u64,
    pub(crate) blob_len: u64,
    pub(crate) log_at: u64,
    pub(crate) log_len: u64,
    pub(crate) data_at: u64,
    pub(crate) slabs: u32,
    pub(crate) disk_no: u16,
    pub(crate) pad_0: u16,
    pub(crate) members: u64,
    pub(crate) current: u64,
    pub(crate) voters: u64,
    pub(crate) loggers: u64,
    pub(crate) checkpoint_no: u64,
    pub(crate) checkpoint_len: u64,
    pub(crate) checkpoint_crc: u32,
    pub(crate) log_chain: u32,
    pub(crate) log_tail: u64,
    pub(crate) log_tail_batch: u64,
    pub(crate) log_redo: u64,
    pub(crate) log_seq: u64,
    pub(crate) opened_batch: u64,
    pub(crate) serial: u64,
    pub(crate) disk_ids: [[u8; 16]; DISKS_NARROW],
    pub(crate) promised: u64,
    pub(crate) lineage: [u64; LINEAGE_KEPT],
    pub(crate) durable_epoch: u64,
    pub(crate) durable_voters: u64,
    pub(crate) seen_epochs: [u64; DISKS_NARROW],
    pub(crate) batch_max: u64,
    pub(crate) batch_max_from: u64,
    pub(crate) members_beyond: [u64; WORDS_BEYOND],
    pub(crate) current_beyond: [u64; WORDS_BEYOND],
    pub(crate) voters_beyond: [u64; WORDS_BEYOND],
    pub(crate) loggers_beyond: [u64; WORDS_BEYOND],
    pub(crate) durable_voters_beyond: [u64; WORDS_BEYOND],
    pub(crate) annex_crc: u32,
    pub(crate) pad_1: [u8; 588],
}

const _: () = assert!(size_of::<LabelBlock>() == BLOCK as usize);
const _: () = assert!(ANNEX_LEN.is_multiple_of(BLOCK));
const _: () = assert!(DISKS_MAX >= DISKS_NARROW && DISKS_MAX <= DISKS_NARROW + DISKS_BEYOND);

/// Which disks are what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// Every disk of the pool, present or not.
    pub members: DiskSet,
    /// Those whose metadata is up to date.
    pub current: DiskSet,
    /// Those whose majority opens the pool; they carry checkpoints.
    pub voters: DiskSet,
    /// Those that carry the log.
    pub loggers: DiskSet,
}

/// Where the newest checkpoint and the log's live part are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Anchor {
    /// The checkpoint's number; it lies in checkpoint area `checkpoint_no % 2`.
    pub checkpoint_no: u64,
    /// Its bytes.
    pub checkpoint_len: u64,
    /// Their CRC32C.
    pub checkpoint_crc: u32,
    /// The position of the oldest batch that is still needed.
    pub log_tail: u64,
    /// That batch's number.
    pub log_tail_batch: u64,
    /// The CRC of the batch before it.
    pub log_chain: u32,
    /// From this position on every record counts; before it only landed data does.
    pub log_redo: u64,
    /// The sequence number of the first record at the tail.
    pub log_seq: u64,
}

/// How long batches of the log are. An older weft, which knows no bound, leaves zeros in its labels, and those are on
/// all disks before its first batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchBound {
    /// Bytes of the ring that a batch takes at most; 0: nothing is said.
    pub most: u64,
    /// The number of the first batch of which that is said.
    pub from: u64,
}

impl BatchBound {
    /// The most bytes that batch `number` takes, and those after it; `None`: nothing is said of it.
    pub fn of(&self, number: u64) -> Option<u64> {
        (self.most > 0 && number >= self.from).then_some(self.most)
    }
}

/// A label, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The pool.
    pub pool_id: Id,
    /// Its name.
    pub pool_name: String,
    /// What it has that a weft may not know and read it all the same (bits): see [`super::FEATURE_PACKS`].
    pub features: u64,
    /// This disk.
    pub disk_id: Id,
    /// Its number in the pool.
    pub disk_no: DiskNo,
    /// Counts the labels of this disk; the newest of its slots is the disk's label.
    pub serial: u64,
    /// Counts label updates of the pool. Of two labels the one with the larger (`lineage.opened`, `epoch`) is newer.
    pub epoch: u64,
    /// The epoch of the last label before this one that is durable on every disk which it calls current.
    pub durable_epoch: u64,
    /// The voters that label names.
    pub durable_voters: DiskSet,
    /// The epoch of the last label that was durable on each disk before this one was written, by number: an older one
    /// on it was put back.
    pub seen_epochs: Box<[u64; DISKS_MAX]>,
    /// The openings for writing that led here.
    pub lineage: Lineage,
    /// The largest number that an opening was promised; see `store/quorum.rs`.
    pub promised: u64,
    /// The number of the first log batch that opening would write: batches from it on count only if that opening wrote
    /// them.
    pub opened_batch: u64,
    /// How long batches are.
    pub batch_bound: BatchBound,
    /// Bytes of a slab.
    pub slab_len: ByteCount,
    /// Where the parts of this disk lie.
    pub plan: DiskPlan,
    /// The pool's disks.
    pub membership: Membership,
    /// The newest checkpoint.
    pub anchor: Anchor,
    /// The identities of the members, by number.
    pub disk_ids: Box<[Id; DISKS_MAX]>,
}

impl Label {
    /// The label's block as it is written, and the annex that goes beside it.
    pub fn encode(&self) -> (Buf, Option<Buf>) {
        let [members, current, voters, loggers, durable_voters] = self.sets().map(|set| {
            let mut words = [0; 1 + WORDS_BEYOND];
            words[..SET_WORDS].copy_from_slice(&set.words());
            words
        });
        let beyond = |words: [u64; 1 + WORDS_BEYOND]| core::array::from_fn(|at| words[1 + at]);
        let annex = (self.features & FEATURE_WIDE != 0).then(|| self.encode_annex());
        let mut block = LabelBlock {
            magic: LABEL_MAGIC,
            version: VERSION,
            crc: 0,
            features_compatible: 0,
            features_read_only: 0,
            features_incompatible: self.features,
            pool_id: self.pool_id.0,
            disk_id: self.disk_id.0,
            pool_name: name_to_bytes(&self.pool_name),
            epoch: self.epoch,
            opened: self.lineage.opened,
            slab_len: self.slab_len.0,
            disk_len: self.plan.disk_len.0,
            blob_at: self.plan.blob_at.0,
            blob_len: self.plan.blob_len.0,
            log_at: self.plan.log_at.0,
            log_len: self.plan.log_len.0,
            data_at: self.plan.data_at.0,
            slabs: self.plan.slabs,
            disk_no: self.disk_no.0,
            pad_0: 0,
            members: members[0],
            current: current[0],
            voters: voters[0],
            loggers: loggers[0],
            checkpoint_no: self.anchor.checkpoint_no,
            checkpoint_len: self.anchor.checkpoint_len,
            checkpoint_crc: self.anchor.checkpoint_crc,
            log_chain: self.anchor.log_chain,
            log_tail: self.anchor.log_tail,
            log_tail_batch: self.anchor.log_tail_batch,
            log_redo: self.anchor.log_redo,
            log_seq: self.anchor.log_seq,
            opened_batch: self.opened_batch,
            serial: self.serial,
            disk_ids: core::array::from_fn(|no| self.disk_ids[no].0),
            promised: self.promised,
            lineage: self.lineage.numbers,
            durable_epoch: self.durable_epoch,
            durable_voters: durable_voters[0],
            seen_epochs: core::array::from_fn(|no| self.seen_epochs[no]),
            batch_max: self.batch_bound.most,
            batch_max_from: self.batch_bound.from,
            members_beyond: beyond(members),
            current_beyond: beyond(current),
            voters_beyond: beyond(voters),
            loggers_beyond: beyond(loggers),
            durable_voters_beyond: beyond(durable_voters),
            annex_crc: annex.as_ref().map_or(0, |annex| crc32c(annex)),
            pad_1: [0; 588],
        };
        block.crc = crc32c(block.as_bytes());
        let block = Buf::copy_of(block.as_bytes());
        assert!(
            Label::decode(&with_annex(&block, annex.as_deref())).as_ref() == Ok(&Some(self.clone())),
            "a label that cannot be read is never written"
        );
        (block, annex)
    }

    /// Its sets of disks, in the order of the block.
    fn sets(&self) -> [DiskSet; 5] {
        let Membership { members, current, voters, loggers } = self.membership;
        [members, current, voters, loggers, self.durable_voters]
    }

    /// Everything in it that only ever rises.
    pub fn counters(&self) -> Counters {
        let Anchor { checkpoint_no, log_redo, log_tail_batch, log_seq, .. } = self.anchor;
        Counters {
            numbers: [self.serial, self.epoch, self.durable_epoch, self.lineage.opened, self.promised, checkpoint_no],
            records: [log_tail_batch, self.opened_batch, log_seq],
            bytes: log_redo,
        }
    }

    /// The labels that stand in the slots of a disk; a slot that could not be read is left out.
    ///
    /// Errors: those of [`Label::decode`].
    pub fn decode_slots<B: Deref<Target = [u8]>>(slots: impl IntoIterator<Item = B>) -> Result<Vec<Label>> {
        let mut labels = Vec::new();
        for slot in slots {
            labels.extend(Label::decode(&slot)?);
        }
        Ok(labels)
    }

    /// The newest of the labels of one disk that are `believed`, and how many of its slots hold none of these.
    pub fn newest(slots: Vec<Label>, believed: impl Fn(&Label) -> bool) -> Option<(Label, usize)> {
        let sound: Vec<Label> = slots.into_iter().filter(believed).collect();
        let damaged = (2 * LABEL_SLOTS as usize).saturating_sub(sound.len());
        sound.into_iter().max_by_key(|label| label.serial).map(|label| (label, damaged))
    }

    /// The newest label of one disk, as far as it can be told by that disk alone, and how many of its slots hold none.
    pub fn newest_alone(slots: Vec<Label>) -> Option<(Label, usize)> {
        Label::newest(slots, |label| label.counters().are_possible())
    }

    /// Reads a label. `Ok(None)`: this is no label of weft, or it is damaged. `Err`: it is one, but of a version this
    /// engine must not touch.
    /// `bytes` are its block and, where the pool has such, its annex right behind it.
    pub fn decode(bytes: &[u8]) -> Result<Option<Label>> {
        let Ok((block, annex)) = LabelBlock::read_from_prefix(bytes) else { return Ok(None) };
        let mut unsealed = block.clone();
        unsealed.crc = 0;
        if block.magic != LABEL_MAGIC || block.crc != crc32c(unsealed.as_bytes()) {
            return Ok(None);
        }
        // What it does not know it neither writes, where it must not write, nor reads.
        let unknown = block.features_incompatible & !FEATURES | block.features_read_only;
        if !(VERSION_OLDEST..=VERSION).contains(&block.version) || unknown != 0 {
            return fail!(
                Corrupt,
                "the disk belongs to pool {:?}, of weft format version {} (features {unknown:#x}); this weft reads versions {VERSION_OLDEST} to {VERSION}: copy its data with the weft that made it",
                name_from_bytes(&block.pool_name),
                block.version
            );
        }
        let plan = DiskPlan {
            disk_len: ByteCount(block.disk_len),
            blob_at: DiskOffset(block.blob_at),
            blob_len: ByteCount(block.blob_len),
            log_at: DiskOffset(block.log_at),
            log_len: ByteCount(block.log_len),
            data_at: DiskOffset(block.data_at),
            slabs: block.slabs,
        };
        let slab = ByteCount(block.slab_len);
        let Some(table) = DiskTable::decode(&block, annex)? else { return Ok(None) };
        let (disk_no, [members, current, voters, loggers, durable_voters]) = (DiskNo(block.disk_no), table.sets);
        // Whoever can write a disk can make the CRC right, too: nothing below may overflow or contradict itself.
        let sound = (SLAB_MIN..=SLAB_MAX).contains(&slab)
            && slab.0.is_power_of_two()
            && plan.log_len <= plan.disk_len
            && plan.disk_len.0 < COUNTER_MAX
            && plan.log_len.0 >= LOG_MIN
            && plan.log_len.is_multiple_of(BLOCK)
            && block.log_tail <= block.log_redo
            && block.log_tail.is_multiple_of(BLOCK)
            && block.log_redo - block.log_tail <= plan.log_len.0
            && [
                block.log_redo,
                block.log_tail_batch,
                block.opened_batch,
                block.log_seq,
                block.epoch,
                block.opened,
                block.promised,
                block.durable_epoch,
                block.serial,
                block.checkpoint_no,
            ]
            .iter()
            .chain(table.seen_epochs.iter())
            .all(|value| *value < COUNTER_MAX)
            && block.batch_max <= COUNTER_MAX
            && block.batch_max_from <= block.opened_batch
            && members.contains(disk_no)
            && (current | voters | loggers).is_subset(members)
            && is_name(&name_from_bytes(&block.pool_name))
            && plan.is_sound(slab, block.features_incompatible & FEATURE_WIDE != 0);
        if !sound {
            return Ok(None);
        }
        Ok(Some(Label {
            pool_id: Id(block.pool_id),
            pool_name: name_from_bytes(&block.pool_name),
            features: block.features_incompatible,
            disk_id: Id(block.disk_id),
            disk_no,
            serial: block.serial,
            epoch: block.epoch,
            durable_epoch: block.durable_epoch,
            durable_voters,
            seen_epochs: table.seen_epochs,
            lineage: Lineage { opened: block.opened, numbers: block.lineage },
            promised: block.promised,
            opened_batch: block.opened_batch,
            batch_bound: BatchBound { most: block.batch_max, from: block.batch_max_from },
            slab_len: slab,
            plan,
            membership: Membership { members, current, voters, loggers },
            anchor: Anchor {
                checkpoint_no: block.checkpoint_no,
                checkpoint_len: block.checkpoint_len,
                checkpoint_crc: block.checkpoint_crc,
                log_tail: block.log_tail,
                log_tail_batch: block.log_tail_batch,
                log_chain: block.log_chain,
                log_redo: block.log_redo,
                log_seq: block.log_seq,
            },
            disk_ids: table.disk_ids,
        }))
    }
}

/// The counters of a label. One that is damaged, or forged, is believed only as far as the labels of the other disks,
/// which rise beside it, make it likely.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    numbers: [u64; 6],
    records: [u64; 3],
    bytes: u64,
}

impl Counters {
    /// The larger of both, one by one.
    pub fn max(self, other: Counters) -> Counters {
        let (numbers, records) = (other.numbers, other.records);
        Counters {
            numbers: core::array::from_fn(|at| self.numbers[at].max(numbers[at])),
            records: core::array::from_fn(|at| self.records[at].max(records[at])),
            bytes: self.bytes.max(other.bytes),
        }
    }

    /// Whether none of them is as near to its end as no counting gets it.
    pub fn are_possible(&self) -> bool {
        self.numbers.iter().chain(&self.records).all(|counter| *counter < BELIEVED_MAX) && self.bytes < BELIEVED_MAX
    }

    /// Whether a pool can have come here that was at `others` when those were written last.
    pub fn are_likely_beside(&self, others: &Counters) -> bool {
        // Counters of one kind are compared together: a disk that has just joined has few labels of its own.
        let ahead = |these: &[u64], those: &[u64], most: u64| {
            these.iter().max().copied().unwrap_or(0).saturating_sub(those.iter().max().copied().unwrap_or(0)) <= most
        };
        self.are_possible()
            && ahead(&self.numbers, &others.numbers, NUMBERS_AHEAD)
            && ahead(&self.records, &others.records, RECORDS_AHEAD)
            && self.bytes.saturating_sub(others.bytes) <= BYTES_AHEAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn label() -> Label {
        let plan = DiskPlan::new(ByteCount::mib(64), ByteCount::mib(1), None).unwrap();
        Label {
            pool_id: Id([1; 16]),
            pool_name: "pool".into(),
            features: 0,
            disk_id: Id([2; 16]),
            disk_no: DiskNo(3),
            serial: 9,
            epoch: 7,
            durable_epoch: 6,
            durable_voters: first(4),
            seen_epochs: Box::new(core::array::from_fn(|no| if no < DISKS_NARROW { no as u64 } else { 0 })),
            lineage: Lineage::founded().opened_as(2, 0xfeed),
            promised: 3,
            opened_batch: 4,
            batch_bound: BatchBound { most: 1 << 16, from: 4 },
            slab_len: ByteCount::mib(1),
            plan,
            membership: Membership { members: first(4), current: first(4), voters: first(4), loggers: first(3) },
            anchor: Anchor {
                checkpoint_no: 1,
                log_tail: 8192,
                log_redo: 8192,
                log_tail_batch: 5,
                log_seq: 9,
                ..Anchor::default()
            },
            disk_ids: Box::new([Id::default(); DISKS_MAX]),
        }
    }

    pub(super) fn first(count: u16) -> DiskSet {
        (0..count).map(DiskNo).collect()
    }

    /// The label's block with other bytes somewhere, and a CRC that says they are meant.
    pub(super) fn forged(at: usize, bytes: &[u8]) -> Buf {
        let (mut block, _) = label().encode();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        block[12..16].fill(0);
        let crc = crc32c(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        block
    }

    #[test]
    fn a_label_reads_back_as_it_was_written() {
        assert_eq!(Label::decode(&label().encode().0), Ok(Some(label())));
        assert_eq!(Label::decode(&forged(0, b"W")), Ok(Some(label())));
    }

    #[test]
    #[should_panic(expected = "never written")]
    fn a_label_that_could_not_be_read_is_never_written() {
        Label { epoch: COUNTER_MAX, ..label() }.encode();
    }

    #[test]
    fn counters_are_believed_as_far_as_the_others_make_them_likely() {
        let here = label().counters();
        let with = |epoch| Label { epoch, ..label() }.counters();
        assert!(here.are_likely_beside(&with(NUMBERS_AHEAD)) && with(NUMBERS_AHEAD).are_likely_beside(&here));
        assert!(!with(NUMBERS_AHEAD + 20).are_likely_beside(&here) && !with(COUNTER_MAX - 1).are_possible());
        assert!(with(BELIEVED_MAX - 1).are_possible() && here.are_likely_beside(&with(COUNTER_MAX - 1)));
        let anchor = Anchor { log_redo: BYTES_AHEAD << 1, log_tail: BYTES_AHEAD << 1, ..label().anchor };
        assert!(!Label { anchor, ..label() }.counters().are_likely_beside(&here));
    }

    #[test]
    fn a_forged_label_whose_log_cannot_be_is_no_label() {
        use core::mem::offset_of;
        for (at, value) in [
            (offset_of!(LabelBlock, log_len), 0),
            (offset_of!(LabelBlock, log_len), u64::MAX - 4095),
            (offset_of!(LabelBlock, log_tail), 100),
            (offset_of!(LabelBlock, log_tail), u64::MAX - 4095),
            (offset_of!(LabelBlock, log_tail_batch), u64::MAX),
            (offset_of!(LabelBlock, batch_max), u64::MAX),
            (offset_of!(LabelBlock, batch_max_from), 5),
            (offset_of!(LabelBlock, epoch), u64::MAX),
            (offset_of!(LabelBlock, promised), u64::MAX),
            (offset_of!(LabelBlock, serial), u64::MAX),
            (offset_of!(LabelBlock, disk_len), u64::MAX - 4095),
            (offset_of!(LabelBlock, slab_len), 0),
        ] {
            assert_eq!(Label::decode(&forged(at, &u64::to_le_bytes(value))), Ok(None), "{value} at {at}");
        }
    }

    #[test]
    fn a_label_with_a_feature_that_forbids_writing_or_reading_is_refused() {
        use core::mem::offset_of;
        for at in [offset_of!(LabelBlock, features_read_only), offset_of!(LabelBlock, features_incompatible)] {
            assert!(Label::decode(&forged(at, &(FEATURES + 1).to_le_bytes())).is_err());
        }
        let known = (FEATURES & !FEATURE_WIDE) as u8;
        let known = forged(offset_of!(LabelBlock, features_incompatible), &[known]);
        assert!(Label::decode(&known).unwrap().is_some());
        assert!(Label::decode(&forged(offset_of!(LabelBlock, features_compatible), &[1])).unwrap().is_some());
    }

    proptest! {
        #[test]
        fn a_forged_label_never_panics(at in 16usize..4088, bytes: [u8; 8], wide: bool) {
            let at = if wide { at / 8 * 8 } else { at };
            let _ = Label::decode(&forged(at, &bytes));
        }
    }
}
