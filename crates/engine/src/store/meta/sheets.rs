//! Which version of each checksum page is the truth: an image that is older is what a lost write left.
//!
//! An entry of the tree is (`TREE_SHEETS`, segment, page, 0), and the version of the last image that a checkpoint wrote
//! of the page, in eight bytes, little-endian.
//!
//! Invariants
//! 1. A checkpoint names the versions of the images that it wrote. So a write that all disks lost is noticed, whatever
//!    older image they still have.
//! 2. A version becomes the truth with its image, by the labels that name the checkpoint; no image on the disks is
//!    older from then on.
//! 3. Where the tree has nothing of a page, because a whole checkpoint was taken since, or a page of the tree is lost,
//!    any image of it counts. The next one is named again.

use crate::format::page::{PageId, PageKind, VERSIONS_MAX};
use crate::mutant::{self, Mutant};
use crate::store::Store;
use crate::tree::{At, Key, KeyRange};
use crate::units::SegmentNo;

/// The kind of the tree's entries for versions of checksum pages.
pub const SHEETS: u16 = 5;

fn key(segment: u32, page: u32) -> Key {
    Key::new(SHEETS, segment.into(), page.into(), 0)
}

impl Store {
    /// Notes in the tree which versions these checksum pages, of any pages, have on the disks now.
    pub(in crate::store) fn put_sheet_versions(&self, pages: &[PageId]) {
        let tree = self.tree();
        for id in pages.iter().filter(|id| id.kind == PageKind::Sheet) {
            if let Some((version, _)) = self.pages.written(*id) {
                tree.put(key(id.owner, id.number), &version.to_le_bytes());
            }
        }
    }

    /// Has the tree forget the checksum pages of a segment that is no more.
    pub(super) fn clear_sheet_versions(&self, segment: SegmentNo) {
        self.tree().clear(KeyRange::new(key(segment.0, 0), key(segment.0, u32::MAX)));
    }

    /// The version that an image of a page has at least; 0: any will do. Pages of stripe tables have theirs in the
    /// records of their chunks. For whoever only looks (not `heals`), the tree is left as it lies, too.
    pub(in crate::store) async fn least_version(&self, id: PageId, heals: bool) -> u64 {
        if id.kind != PageKind::Sheet || mutant::active(Mutant::SheetVersionsIgnored) {
            return 0;
        }
        let _looks = (!heals).then(|| self.meta.looks());
        let found = self.tree().get(At::Head, key(id.owner, id.number)).await;
        let bytes = found.ok().flatten().and_then(|value| <[u8; 8]>::try_from(&value[..]).ok());
        bytes.map(u64::from_le_bytes).filter(|version| *version < VERSIONS_MAX).unwrap_or(0)
    }
}
