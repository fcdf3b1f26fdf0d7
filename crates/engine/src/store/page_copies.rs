//! The copies of a metadata page: one that is known to be the page, or all of them, and what each gave.
//!
//! Invariants
//! 1. Copies are read only from current disks, unless somebody asks for the others, too.
//! 2. One copy is enough where a checkpoint names the version of the image, and the copy has just that. Newer images
//!    are what a checkpoint left that was cut off, and only an opening, which looks at all copies of the pages that its
//!    log speaks of, must know of them. A copy that lacks the page meanwhile is found when it is read, or proven.
//! 3. A disk that stalls is waited for only where no other copy will do.

use super::lanes::CHUNK;
use super::page_place::{first_block, newest};
use super::{Store, join};
use crate::format::page::PageId;
use crate::format::record::{PageRun, SlabAt};
use crate::io::Buf;
use crate::mutant::{self, Mutant};
use crate::segment::PAGE_PAIR;
use crate::units::{BLOCK, SegmentNo};
use alloc::vec::Vec;

/// What one copy of a page gave.
pub(super) enum Copied {
    /// Its newest image; both slots were read.
    Whole((u64, Buf)),
    /// There is none; both slots were read.
    Blank,
    /// An image; the other slot cannot be read and may hold a newer one.
    Partly((u64, Buf)),
    /// Nothing can be read.
    Unreadable,
    /// Its disk takes longer to tell than the read timeout.
    Late,
}

impl Copied {
    pub(super) fn image(&self) -> Option<&(u64, Buf)> {
        match self {
            Copied::Whole(image) | Copied::Partly(image) => Some(image),
            Copied::Blank | Copied::Unreadable | Copied::Late => None,
        }
    }
}

impl Store {
    /// The image of just that version of a page, from the copy whose disk has the least to do (invariant 2). None: that
    /// copy has another one, or none, or takes too long to tell.
    pub(super) async fn read_one_copy(&self, id: PageId, home: (PageRun, u32), version: u64) -> Option<(u64, Buf)> {
        if !self.writing.get() || version == 0 {
            return None;
        }
        let block = first_block(home);
        let offset = |at: &SlabAt| self.slab_offset(*at, block);
        let copies = self.page_copies(home.0.segment, true).into_iter().filter(|at| !self.is_stalled(at.disk));
        let chunk = |disk| CHUNK[usize::from(!self.is_rotational(disk))];
        let at = copies.min_by_key(|at| self.traffic.lanes.rank(at.disk, offset(at).0, PAGE_PAIR, chunk(at.disk)))?;
        let _work = self.traffic.lanes.plan(at.disk, offset(&at).0, PAGE_PAIR, chunk(at.disk));
        let both = self.disk_read_in_time(at.disk, offset(&at), PAGE_PAIR as usize).await.ok()??;
        newest(self, id, &both).filter(|(found, _)| *found == version || mutant::active(Mutant::OneCopyBelieved))
    }

    /// The newest sound image of one copy, whose pair of slots begins at block `pair` of its slab. `in_time`: within
    /// the read timeout.
    async fn read_copy(&self, id: PageId, at: SlabAt, pair: u64, in_time: bool) -> Copied {
        let (whole, len) = (self.slab_offset(at, pair), PAGE_PAIR as usize);
        let read = match in_time {
            true if self.is_stalled(at.disk) => return Copied::Late,
            true => self.disk_read_in_time(at.disk, whole, len).await,
            false => self.disk_read(at.disk, whole, len).await.map(Some),
        };
        match read {
            Ok(Some(both)) => return newest(self, id, &both).map_or(Copied::Blank, Copied::Whole),
            Ok(None) => return Copied::Late,
            Err(_) => {}
        }
        // One of the two may be readable all the same.
        let slots = [pair, pair + 1].map(|block| self.disk_read(at.disk, self.slab_offset(at, block), BLOCK as usize));
        let found = join(slots.into_iter()).await;
        let whole = found.iter().all(|slot| slot.is_ok());
        let images = found.into_iter().flatten().filter_map(|slot| newest(self, id, &slot));
        match images.max_by_key(|(version, _)| *version) {
            Some(image) if whole => Copied::Whole(image),
            None if whole => Copied::Blank,
            Some(image) => Copied::Partly(image),
            None => Copied::Unreadable,
        }
    }

    /// The version of the newest sound image of a page on the current disks; 0: there is none.
    pub async fn page_version(&self, id: PageId, home: (PageRun, u32)) -> u64 {
        let (_, found) = self.read_copies(id, home, 0, false).await;
        found.iter().filter_map(Copied::image).map(|(version, _)| *version).max().unwrap_or(0)
    }

    /// Every copy of a page on the current disks, and the newest sound image there. With `in_time`, a disk that stalls
    /// is waited for only where no other copy was read whole, with version `least` at least; and never while a pool is
    /// being opened, when a copy that is behind could be taken for the newest.
    pub(super) async fn read_copies(
        &self,
        id: PageId,
        home: (PageRun, u32),
        least: u64,
        in_time: bool,
    ) -> (Vec<SlabAt>, Vec<Copied>) {
        let copies = self.page_copies(home.0.segment, true);
        let first = first_block(home);
        let in_time = in_time && (self.writing.get() || self.read_only);
        let mut found = join(copies.iter().map(|at| self.read_copy(id, *at, first, in_time))).await;
        if !found.iter().any(|found| matches!(found, Copied::Whole((version, _)) if *version >= least)) {
            for (at, found) in copies.iter().zip(&mut found).filter(|(_, found)| matches!(found, Copied::Late)) {
                *found = self.read_copy(id, *at, first, false).await;
            }
        }
        (copies, found)
    }

    /// The copies of a metadata segment on disks that are there; `trusted`: only on current ones.
    pub(super) fn page_copies(&self, segment: SegmentNo, trusted: bool) -> Vec<SlabAt> {
        let map = self.map.borrow();
        let members = self.members.borrow();
        let Some(segment) = map.segments.get(&segment) else { return Vec::new() };
        let trusted = trusted && !mutant::active(Mutant::StaleDiskTrusted);
        let there = |at: &&SlabAt| {
            members.get(&at.disk).is_some_and(|member| member.disk.is_some() && (member.current || !trusted))
        };
        segment.record.slabs.iter().flatten().filter(there).copied().collect()
    }
}
