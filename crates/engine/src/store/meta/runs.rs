//! Pages of the tree, many at once: those that lie near each other come with one call, and calls go to all copies side
//! by side.
//!
//! Invariant: a page that came, and does not prove itself, is read from the other copies, and the copy is mended, as
//! where it is read alone (`copies.rs`). What did not come, or not in time, is nobody's fault: it is read when it is
//! needed.

use super::copies::is_page;
use super::room::block_of;
use crate::format::record::SlabAt;
use crate::io::Buf;
use crate::store::{Store, join};
use crate::tree::PageRef;
use crate::units::{BLOCK, SegmentNo};
use alloc::vec;
use alloc::vec::Vec;

/// Blocks between two pages over which a head passes in less time than it takes to come back.
const GAP: u32 = 32;
/// The most blocks of one call.
const RUN_MAX: u32 = 256;

/// Calls that are under way at once.
const RUNS_AT_ONCE: usize = 32;

/// Pages that come with one call.
struct Run {
    segment: SegmentNo,
    first: u32,
    blocks: u32,
    /// Which of those that are wanted.
    pages: Vec<usize>,
}

impl Store {
    /// Reads these pages, in long pieces; absent is what did not come.
    pub(super) async fn read_tree_pages(&self, wants: &[PageRef]) -> Vec<Option<Buf>> {
        let runs = runs_of(wants);
        let mut found: Vec<Option<Buf>> = vec![None; wants.len()];
        for group in runs.chunks(RUNS_AT_ONCE) {
            let came = join(group.iter().enumerate().map(|(nth, run)| self.read_tree_run(nth, run, wants))).await;
            came.into_iter().flatten().for_each(|(no, image)| found[no] = image);
        }
        found
    }

    async fn read_tree_run(&self, nth: usize, run: &Run, wants: &[PageRef]) -> Vec<(usize, Option<Buf>)> {
        // Slabs that somebody knows are nobody else's.
        let _slabs = self.map.borrow().segments.get(&run.segment).map(|segment| segment.record.slabs.clone());
        let there = |at: &SlabAt| self.is_current(at.disk) && !self.is_stalled(at.disk);
        let copies: Vec<SlabAt> = self.page_copies(run.segment, false).into_iter().filter(there).collect();
        if copies.is_empty() {
            return Vec::new();
        }
        let at = copies[nth % copies.len()];
        let (from, len) = (self.slab_offset(at, run.first.into()), run.blocks as usize * BLOCK as usize);
        let Ok(Some(bytes)) = self.disk_read_in_time(at.disk, from, len).await else { return Vec::new() };
        let mut found = Vec::with_capacity(run.pages.len());
        for no in &run.pages {
            let start = (block_of(wants[*no].place).1 - run.first) as usize * BLOCK as usize;
            let image = &bytes[start..start + BLOCK as usize];
            let image = match is_page(wants[*no], image) {
                true => Some(Buf::copy_of(image)),
                false => self.read_tree_page_but(wants[*no], vec![at]).await.ok(),
            };
            found.push((*no, image));
        }
        found
    }
}

/// The calls with which these pages come.
fn runs_of(wants: &[PageRef]) -> Vec<Run> {
    let mut places: Vec<(SegmentNo, u32, usize)> = wants
        .iter()
        .enumerate()
        .map(|(no, want)| {
            let (segment, block) = block_of(want.place);
            (segment, block, no)
        })
        .collect();
    places.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for (segment, block, no) in places {
        match runs.last_mut() {
            Some(run)
                if run.segment == segment
                    && block - (run.first + run.blocks - 1) <= GAP
                    && block - run.first < RUN_MAX =>
            {
                run.blocks = block - run.first + 1;
                run.pages.push(no);
            }
            _ => runs.push(Run { segment, first: block, blocks: 1, pages: vec![no] }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::super::room::place_of;
    use super::*;

    #[test]
    fn pages_that_lie_near_each_other_come_with_one_call() {
        let want =
            |(segment, block): (u32, u32)| PageRef { place: place_of(SegmentNo(segment), block), birth: 1, sum: 1 };
        let wants = [(1, 40), (2, 41), (1, 7), (1, 8), (1, 100), (1, 290), (1, 300)].map(want);
        let runs = runs_of(&wants).into_iter().map(|run| (run.segment.0, run.first, run.blocks, run.pages));
        let expected = [(1, 7, 34, vec![2, 3, 0]), (1, 100, 1, vec![4]), (1, 290, 11, vec![5, 6]), (2, 41, 1, vec![1])];
        assert_eq!(runs.collect::<Vec<_>>(), expected);
        let many: Vec<PageRef> = (0..600).map(|block| want((3, block))).collect();
        let lens: Vec<u32> = runs_of(&many).iter().map(|run| run.blocks).collect();
        assert_eq!(lens, [256, 256, 88]);
    }
}
