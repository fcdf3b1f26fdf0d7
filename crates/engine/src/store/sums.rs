//! The checksums of stripes, and the mark of whose each is, in the checksum pages (`pages.rs`).
//!
//! Invariants
//! 1. Checksums and mark of a stripe are set in one step, with its commit.
//! 2. Where the reader knows whose stripe it wants, it gets no checksums of another one, nor of another version of it:
//!    an old stripe that agrees with old checksums is not what the table speaks of.

use super::Store;
use super::execute::Target;
use super::pages::Held;
use crate::checksum::owner_mark;
use crate::error::Result;
use crate::fail;
use crate::mutant::{self, Mutant};
use crate::stripe::table::Place;
use crate::units::{SegmentNo, TableNo};
use alloc::vec::Vec;
use core::ops::Range;

impl Store {
    /// The checksums of the stripe's blocks. Who only looks leaves the copies of their pages as they are. An error
    /// (`Lost`): its place is another stripe's (invariant 2).
    pub async fn sums_of(&self, target: &Target) -> Result<Vec<u32>> {
        let (segment, range) = (target.place.segment, target.sums_range());
        let sums =
            if target.looks { self.sums_as_they_lie(segment, range).await } else { self.sums(segment, range).await };
        let mut sums = sums?;
        let mark = if target.owners { sums.pop() } else { None };
        // No mark: the page with it is lost. Those with the checksums may not be.
        if let (Some(mark), Some(owner)) = (mark.filter(|mark| *mark != 0), target.owner)
            && mark != owner
            && !mutant::active(Mutant::OwnerNotCompared)
        {
            let Place { segment, index, .. } = target.place;
            return fail!(Lost, "what lies at stripe {index} of segment {segment} is not what is looked for there");
        }
        Ok(sums)
    }

    /// Notes the checksums of a stripe that was just written, and whose it is, and of which birth. Their pages are in
    /// memory. Synchronous.
    pub fn set_sums(&self, place: Place, (table, stripe): (TableNo, u64), sums: &[u32]) {
        let map = self.map.borrow();
        let record = &map.segments.get(&place.segment).expect("the segment of a stripe that is written exists").record;
        let first = record.sums_range(place.index, 1).start;
        self.pages.set(place.segment, first, sums);
        if record.owners {
            self.pages.set(place.segment, first + sums.len() as u64, &[owner_mark(table, stripe, place.birth)]);
        }
    }

    /// Brings the pages with the checksums of `count` stripes from `place` on into memory, and keeps them there.
    pub async fn load_sums_at(&self, place: Place, count: usize) -> Result<Held<'_>> {
        let range = self
            .map
            .borrow()
            .segments
            .get(&place.segment)
            .map(|segment| segment.record.sums_range(place.index, count as u32));
        self.load_sums(place.segment, range.unwrap_or(0..0)).await
    }

    /// The checksums `range` of `segment`, read from the disks where they are not in memory.
    pub async fn sums(&self, segment: SegmentNo, range: Range<u64>) -> Result<Vec<u32>> {
        let _held = self.load_sums(segment, range.clone()).await?;
        Ok(self.pages.get(segment, range).expect("held pages are in memory"))
    }

    /// The checksums `range` of `segment`, for whoever only looks: copies that lack a page of them are left so.
    pub async fn sums_as_they_lie(&self, segment: SegmentNo, range: Range<u64>) -> Result<Vec<u32>> {
        let _held = self.load(segment, range.clone(), false).await?;
        Ok(self.pages.get(segment, range).expect("held pages are in memory"))
    }

    /// Brings the checksum pages of `range` into memory and keeps them there.
    pub async fn load_sums(&self, segment: SegmentNo, range: Range<u64>) -> Result<Held<'_>> {
        self.load(segment, range, true).await
    }
}
