//! Sets of disks in records. The first word of a set is a field; the words beyond it, which only pools with a disk
//! whose number is 64 or more have, follow what else the record holds: as many for each set as the longest takes.

use super::Result;
use crate::disk_set::{DiskSet, SET_WORDS};
use crate::fail;
use alloc::vec::Vec;

/// Bytes of a word.
pub(super) const WORD: usize = size_of::<u64>();

/// The first word of a set.
pub(super) fn first(set: DiskSet) -> u64 {
    set.words()[0]
}

/// How many words of each of `sets` lie beyond the first one.
pub(super) fn beyond(sets: &[DiskSet]) -> usize {
    sets.iter().filter_map(|set| set.words().iter().rposition(|word| *word != 0)).max().unwrap_or(0)
}

/// Appends the words that lie beyond the first one.
pub(super) fn encode(sets: &[DiskSet], out: &mut Vec<u8>) {
    let count = beyond(sets);
    for set in sets {
        set.words()[1..=count].iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
}

/// The set of a `first` word and the words beyond it.
pub(super) fn decode(first: u64, beyond: &[u8]) -> Result<DiskSet> {
    let (words, []) = beyond.as_chunks::<WORD>() else { return fail!(Corrupt, "a set of disks is cut off") };
    if words.len() >= SET_WORDS {
        return fail!(Corrupt, "a set of disks claims {} words", 1 + words.len());
    }
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    Ok(DiskSet::from_words(&core::iter::once(first).chain(words).collect::<Vec<u64>>()))
}

#[cfg(test)]
mod tests {
    use crate::disk_set::{DiskSet, SET_WORDS};
    use crate::format::record::{self, CacheRecord, ReadCacheRecord, Record, SlabRun, TableRecord, TierRecord};
    use crate::geometry::{Layout, Resiliency};
    use crate::units::{ByteCount, DiskNo, TableNo, VdiskNo};
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn disks() -> impl Strategy<Value = DiskSet> {
        let numbers = prop::sample::select(Vec::from([1u16, 64, 65, 128, 256]));
        let set = numbers.prop_flat_map(|below| prop::collection::btree_set(0..below, 1..5));
        set.prop_map(|numbers| numbers.into_iter().map(DiskNo).collect())
    }

    fn reads_back(record: &Record<'_>) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(bytes.len(), record.encoded_len());
        let mut rest = &bytes[..];
        assert_eq!(record::decode(&mut rest).as_ref(), Ok(record));
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn sets_of_any_width_read_back(
            cached in prop::option::of(disks()),
            tiered in prop::option::of(disks()),
            table in prop::option::of(disks()),
            kept in disks(),
            runs in 1..6u32,
            pins in 0..4u64,
        ) {
            let layout = Layout::new(Resiliency::Simple, 4, ByteCount::kib(64)).unwrap();
            let size = ByteCount::gib(1);
            let vdisk = record::VdiskRecord {
                id: VdiskNo(3),
                name: "v".into(),
                size,
                sector: 512,
                fixed: false,
                tables: [TableNo(1)].into_iter().collect(),
                fine_share: None,
                cache: cached.map(|disks| CacheRecord { size, layout, disks }),
                cache_choice: record::CacheChoice::Typed,
                tier: tiered.map(|disks| TierRecord {
                    size,
                    layout,
                    disks,
                    pins: (0..pins).map(|nth| nth << 20..(nth << 20) + 4096).collect(),
                }),
            };
            reads_back(&Record::Vdisk(vdisk));
            let disks = table.unwrap_or_default();
            reads_back(&Record::Table(TableRecord { id: TableNo(1), layout, disks, packs: None, tier: None }));
            let runs = (0..runs).map(|first| SlabRun { disk: DiskNo(200), first, count: 1 }).collect();
            reads_back(&Record::ReadCache(ReadCacheRecord { vdisk: VdiskNo(3), size, disks: kept, born: 7, runs }));
        }
    }

    #[test]
    fn a_set_of_more_words_than_there_can_be_is_refused() {
        assert_eq!(super::decode(1, &[0; 8 * (SET_WORDS - 1)]), Ok(DiskSet::only(DiskNo(0))));
        assert!(super::decode(1, &[0; 8 * SET_WORDS]).is_err() && super::decode(1, &[0; 7]).is_err());
    }
}
