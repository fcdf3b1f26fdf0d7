//! The log's live part, batch by batch, as each log disk holds it.

use super::words::Described;
use super::{Place, Places, Wanted};
use crate::disk_set::DiskSet;
use crate::format::FEATURE_SPREAD;
use crate::format::batch::{BATCH_HEAD, BatchHead, Expected, spread, verify};
use crate::format::label::Label;
use crate::format::record::{self, Record};
use crate::io::Buf;
use crate::units::{BLOCK, ByteCount, DiskNo, DiskOffset};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

/// The log's live part.
#[derive(Clone, Debug, Default)]
pub struct LogDump {
    /// The log disks that are there.
    pub on: DiskSet,
    /// The number of the first batch, and how many follow one another from there.
    pub batches: (u64, u64),
    /// Where the first batch begins and where the last one ends, counted through all rounds of the ring.
    pub positions: (u64, u64),
    /// The sequence numbers of the first record and of the one after the last.
    pub seqs: (u64, u64),
    /// Records by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Bytes of landed data.
    pub landed: u64,
    /// Log disks that are there and lack batches which others have.
    pub lacking: Vec<Lacking>,
    /// Whether a batch was begun after the last one.
    pub torn: bool,
    /// Every record, if wanted.
    pub records: Vec<Described>,
    /// Why not all of it could be read.
    pub wrong: Option<String>,
}

/// A log disk that lacks batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lacking {
    /// Its number.
    pub disk: DiskNo,
    /// The first batch that it lacks.
    pub first: u64,
    /// How many.
    pub count: u64,
}

/// The next batch.
struct Next<'a> {
    label: &'a Label,
    expected: Expected,
    chain: u32,
    /// Where the copies of earlier batches end, by disk, counted through all rounds of the ring.
    ends: BTreeMap<DiskNo, u64>,
}

/// Bytes of the first piece that is read where a copy may begin anywhere: most begin a little further on. The next one
/// has twice as many.
const PIECE: u64 = 64 << 10;
/// The most bytes of such a piece.
const PIECE_MAX: u64 = 1 << 20;

/// Reads the log that `label` names, from its tail on; records from where they count are shown to `each`.
pub(super) async fn dump(
    label: &Label,
    places: &Places,
    wanted: &Wanted,
    mut each: impl FnMut(&Record<'_>),
) -> LogDump {
    let anchor = &label.anchor;
    let mut told = LogDump {
        batches: (anchor.log_tail_batch, 0),
        positions: (anchor.log_tail, anchor.log_tail),
        seqs: (anchor.log_seq, anchor.log_seq),
        ..LogDump::default()
    };
    let loggers = places.by_no.iter().filter(|(no, _)| label.membership.loggers.contains(**no));
    let loggers: Vec<(DiskNo, &Place)> = loggers.map(|(no, place)| (*no, place)).collect();
    told.on = loggers.iter().map(|(no, _)| *no).collect();
    let ring = label.plan.log_len.0;
    let expected = Expected {
        pool: label.pool_id,
        number: anchor.log_tail_batch,
        from: anchor.log_tail,
        ring,
        spread: if label.features & FEATURE_SPREAD == 0 { 0 } else { spread(ring) },
    };
    let mut next = Next { label, expected, chain: anchor.log_chain, ends: BTreeMap::new() };
    while let Some((head, batch)) = next.find(&loggers, &mut told).await {
        told.batches.1 += 1;
        let mut rest = &batch[BATCH_HEAD..BATCH_HEAD + head.payload_len as usize];
        let mut seq = head.first_seq;
        for _ in 0..head.records {
            match record::decode(&mut rest) {
                Ok(record) => told.note(&record, seq, head.position >= anchor.log_redo, wanted, &mut each),
                Err(error) => {
                    told.wrong = Some(alloc::format!("record {seq} of batch {}: {error}", head.number));
                    return told;
                }
            }
            seq += 1;
        }
        next.expected.from = head.position + head.ring_len();
        next.expected.number += 1;
        next.chain = head.crc;
        told.positions.1 = next.expected.from;
        told.seqs.1 = seq;
    }
    told.torn = next.is_begun(&loggers).await;
    if told.on.is_empty() {
        told.wrong = Some("none of the disks that carry it is there".to_string());
    }
    told
}

impl LogDump {
    fn note(
        &mut self,
        record: &Record<'_>,
        seq: u64,
        counts: bool,
        wanted: &Wanted,
        each: &mut impl FnMut(&Record<'_>),
    ) {
        if counts {
            each(record);
        }
        if let Record::Landed(landed) = record {
            self.landed += landed.data.len() as u64;
        }
        let described = Described::of(record, Some(seq));
        *self.kinds.entry(described.kind).or_default() += 1;
        self.records.extend(wanted.records.then_some(described));
    }

    fn note_lacking(&mut self, disk: DiskNo, number: u64) {
        match self.lacking.iter_mut().find(|lacking| lacking.disk == disk) {
            Some(lacking) => lacking.count += 1,
            None => self.lacking.push(Lacking { disk, first: number, count: 1 }),
        }
    }
}

impl Next<'_> {
    /// The batch that is next, from whatever disk has it. It lies where the last one ended, or behind that, or in the
    /// next round of the ring.
    async fn find(&mut self, loggers: &[(DiskNo, &Place)], told: &mut LogDump) -> Option<(BatchHead, Buf)> {
        for round in 0..2 {
            let mut found = None;
            let mut lacking = Vec::new();
            for (no, place) in loggers {
                match self.read(place, self.places(*no)[round].clone()).await {
                    Some((at, head, batch)) => {
                        self.ends.insert(*no, at + head.ring_len());
                        found = found.or(Some((head, batch)));
                    }
                    None => lacking.push(*no),
                }
            }
            if found.is_some() {
                lacking.into_iter().for_each(|no| told.note_lacking(no, self.expected.number));
                return found;
            }
        }
        None
    }

    fn places(&self, no: DiskNo) -> [Range<u64>; 2] {
        self.expected.places(self.ends.get(&no).copied().unwrap_or(0))
    }

    /// The batch, if a sound copy of it begins in `places`, and where.
    async fn read(&self, place: &Place, places: Range<u64>) -> Option<(u64, BatchHead, Buf)> {
        let mut from = places.start;
        while from < places.end {
            let Some((at, head)) = self.head(place, from..places.end).await else { break };
            let left_behind = head.number >= self.label.opened_batch && head.lineage != self.label.lineage.number();
            if !left_behind
                && head.chain == self.chain
                && let Some(batch) = place.read(self.offset(place, at), head.ring_len()).await
                && verify(&head, &batch)
            {
                return Some((at, head, batch));
            }
            from = at + BLOCK;
        }
        None
    }

    /// The first head of the batch in `places`, and where. What cannot be read has none.
    async fn head(&self, place: &Place, places: Range<u64>) -> Option<(u64, BatchHead)> {
        let mut from = places.start;
        let mut most = PIECE;
        while from < places.end {
            let len = most.min(places.end - from);
            let piece = place.read(self.offset(place, from), len).await;
            if piece.is_none() && len > BLOCK {
                most = (len / 2 / BLOCK * BLOCK).max(BLOCK);
                continue;
            }
            let found = piece.and_then(|bytes| self.expected.find(from, &bytes));
            if found.is_some() {
                return found;
            }
            from += len;
            most = (most * 2).min(PIECE_MAX);
        }
        None
    }

    fn offset(&self, place: &Place, at: u64) -> DiskOffset {
        place.plan.log_at + ByteCount(at % self.expected.ring)
    }

    /// Whether any disk has the head of a batch that would be next.
    async fn is_begun(&self, loggers: &[(DiskNo, &Place)]) -> bool {
        for (no, place) in loggers {
            for places in self.places(*no) {
                if self.head(place, places).await.is_some() {
                    return true;
                }
            }
        }
        false
    }
}
