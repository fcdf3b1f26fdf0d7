//! The log's live part, batch by batch, as each log disk holds it.

use super::words::Described;
use super::{Place, Places, Wanted};
use crate::disk_set::DiskSet;
use crate::format::batch::{BATCH_HEAD, BatchHead, decode_head, verify};
use crate::format::label::Label;
use crate::format::record::{self, Record};
use crate::io::Buf;
use crate::units::{BLOCK, ByteCount, DiskNo};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

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

/// Where the next batch is expected.
struct Next<'a> {
    label: &'a Label,
    ring: u64,
    position: u64,
    number: u64,
    chain: u32,
}

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
    let mut next = Next {
        label,
        ring: label.plan.log_len.0,
        position: anchor.log_tail,
        number: anchor.log_tail_batch,
        chain: anchor.log_chain,
    };
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
        next.position = head.position + head.ring_len();
        next.number += 1;
        next.chain = head.crc;
        told.positions.1 = next.position;
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
    /// The batch that is next, from whatever disk has it. It lies where the last one ended, or at the start of the next
    /// round of the ring.
    async fn find(&self, loggers: &[(DiskNo, &Place)], told: &mut LogDump) -> Option<(BatchHead, Buf)> {
        for position in self.candidates() {
            let mut found = None;
            let mut lacking = Vec::new();
            for (no, place) in loggers {
                match self.read(place, position).await {
                    Some(batch) => found = found.or(Some(batch)),
                    None => lacking.push(*no),
                }
            }
            if found.is_some() {
                lacking.into_iter().for_each(|no| told.note_lacking(no, self.number));
                return found;
            }
        }
        None
    }

    fn candidates(&self) -> Vec<u64> {
        let round = self.position.next_multiple_of(self.ring);
        if round == self.position { alloc::vec![round] } else { alloc::vec![self.position, round] }
    }

    async fn read(&self, place: &Place, position: u64) -> Option<(BatchHead, Buf)> {
        let at = place.plan.log_at + ByteCount(position % self.ring);
        let first = place.read(at, BLOCK).await?;
        let head = decode_head(self.label.pool_id, position, self.number, &first)?;
        let left_behind = head.number >= self.label.opened_batch && head.lineage != self.label.lineage.number();
        if left_behind || head.chain != self.chain || position % self.ring + head.ring_len() > self.ring {
            return None;
        }
        let batch = place.read(at, head.ring_len()).await?;
        verify(&head, &batch).then_some((head, batch))
    }

    /// Whether any disk has the head of a batch that would be next.
    async fn is_begun(&self, loggers: &[(DiskNo, &Place)]) -> bool {
        for position in self.candidates() {
            for (_, place) in loggers {
                let at = place.plan.log_at + ByteCount(position % self.ring);
                let block = place.read(at, BLOCK).await;
                if block.is_some_and(|block| decode_head(self.label.pool_id, position, self.number, &block).is_some()) {
                    return true;
                }
            }
        }
        false
    }
}
