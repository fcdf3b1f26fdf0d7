//! Where a metadata page lies, and which of its two images is the newer one.

use super::Store;
use crate::format::page::CHUNK_PAGES;
use crate::format::page::{self, PAGE_SUMS, PageId, PageKind};
use crate::format::record::PageRun;
use crate::io::Buf;
use crate::mutant::{self, Mutant};
use crate::segment::PAGE_PAIR;
use crate::units::{BLOCK, TableNo};
use core::ops::Range;

/// Which page holds entries of a table's chunk.
pub fn table_page(table: TableNo, chunk: u32, page: u32) -> PageId {
    PageId { kind: PageKind::Table, owner: table.0, number: chunk * CHUNK_PAGES + page }
}

/// The first of the two blocks of a page within the slabs of its segment. A record that is not proven yet may name any.
pub fn first_block(home: (PageRun, u32)) -> u64 {
    (u64::from(home.0.first) + u64::from(home.1)) * PAGE_PAIR / BLOCK
}

/// Which of the two blocks of a page this version of it goes to.
pub fn slot_of(version: u64) -> u64 {
    if mutant::active(Mutant::PagesKeepOneSlot) { 0 } else { version % 2 }
}

/// What to count on from, after version `version` of a page was begun and may not be durable, so that the next version
/// goes to its slot.
pub fn same_slot(version: u64) -> u64 {
    if mutant::active(Mutant::LastImageOverwritten) { version } else { version + 1 }
}

/// What to count on from, after version `newest` of a page was begun and came to nothing, so that the next version is
/// newer than that and leaves `last`, which is durable, where it is.
pub fn above(last: u64, newest: u64) -> u64 {
    if (newest - last).is_multiple_of(2) { newest } else { newest + 1 }
}

/// The newer sound image of the two slots in `pair`.
pub fn newest(store: &Store, id: PageId, pair: &[u8]) -> Option<(u64, Buf)> {
    let lineage = store.labels.lineage.borrow();
    let slots = pair.chunks_exact(BLOCK as usize);
    let sound = slots.filter_map(|slot| Some((page::decode(store.id, &lineage, id, slot)?, slot)));
    sound.max_by_key(|(version, _)| *version).map(|(version, slot)| (version, Buf::copy_of(slot)))
}

/// Cuts a range of checksums at page borders: (page, range within it).
pub fn parts(range: Range<u64>) -> impl Iterator<Item = (u32, Range<usize>)> {
    let sums = PAGE_SUMS as u64;
    let pages = range.start / sums..range.end.div_ceil(sums);
    pages.map(move |page| {
        let start = range.start.max(page * sums) - page * sums;
        let end = range.end.min((page + 1) * sums) - page * sums;
        (page as u32, start as usize..end as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SegmentNo;

    #[test]
    fn a_page_that_a_forged_record_places_beyond_all_disks_has_an_address_and_no_panic() {
        let run = PageRun { segment: SegmentNo(1), first: u32::MAX, count: u32::MAX };
        assert_eq!(first_block((run, u32::MAX)), 2 * u64::from(u32::MAX) * PAGE_PAIR / BLOCK);
    }
}
