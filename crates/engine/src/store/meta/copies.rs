//! The copies of the tree's pages on the disks.
//!
//! Invariants
//! 1. A copy counts only if it is what the page's parent refers to. So every disk that is there may be asked, also one
//!    that missed updates: what it has proves itself, or is nothing. Those that missed nothing are asked first.
//! 2. A disk that does not answer within the read timeout is waited for only if no other copy proves itself.
//! 3. A copy that was found wrong is written anew, from one that proved itself, unless somebody only looks.
//! 4. A page was written only if a disk took it whose metadata is up to date.
//! 5. Who copies a page without knowing who refers to it believes what all copies say alike, if a disk that missed
//!    nothing is among them; else the tree is asked. (The disk that has the newest page may take too long to tell.)

use super::room::{block_of, place_of};
use super::{Refs, shape};
use crate::error::Result;
use crate::fail;
use crate::format::record::SlabAt;
use crate::io::{Buf, IoSlice};
use crate::mutant::{self, Mutant};
use crate::store::{Store, join};
use crate::tree::{PageRef, Place};
use crate::units::{BLOCK, DiskNo, SegmentNo};
use alloc::vec;
use alloc::vec::Vec;

/// What a disk gave.
enum Copied {
    Image(Buf),
    Unreadable,
    Late,
}

/// What the proof of some pages of the tree found.
#[derive(Default)]
pub struct TreeProof {
    /// Pages of which some copies were wrong; those that are mended are right now.
    pub damaged: Vec<Place>,
    /// Pages that no copy has.
    pub lost: Vec<Place>,
    /// Blocks of the segment of which a disk takes longer to tell than the read timeout.
    pub late: Vec<(DiskNo, u32)>,
}

/// What the proof of one page of the tree found.
struct PageProof {
    /// How many copies are wrong; `None`: no copy has it.
    wrong: Option<usize>,
    /// A disk that did not tell what it has in time.
    late: Option<DiskNo>,
}

impl Store {
    /// The page that `want` refers to, from whatever copy proves itself; wrong ones are healed.
    pub(super) async fn read_tree_page(&self, want: PageRef) -> Result<Buf> {
        self.read_tree_page_but(want, Vec::new()).await
    }

    /// Does what [`Store::read_tree_page`] does, but for copies of which it is known that they are `bad`.
    pub(super) async fn read_tree_page_but(&self, want: PageRef, mut bad: Vec<SlabAt>) -> Result<Buf> {
        let (segment, _) = block_of(want.place);
        // Slabs that somebody knows are nobody else's.
        let _slabs = self.map.borrow().segments.get(&segment).map(|segment| segment.record.slabs.clone());
        let copies = self.tree_copies(want.place);
        // A copy that has moved since is none any more.
        bad.retain(|at| copies.contains(at));
        let (mut good, mut late) = (None, Vec::new());
        for at in copies.iter().filter(|at| !bad.contains(at)).copied().collect::<Vec<SlabAt>>() {
            match self.read_tree_copy(at, want.place, true).await {
                Copied::Image(image) if is_page(want, &image) => {
                    good = Some(image);
                    break;
                }
                Copied::Late => late.push(at),
                _ => bad.push(at),
            }
        }
        for at in if good.is_none() { late } else { Vec::new() } {
            match self.read_tree_copy(at, want.place, false).await {
                Copied::Image(image) if is_page(want, &image) => {
                    good = Some(image);
                    break;
                }
                _ => bad.push(at),
            }
        }
        let Some(good) = good else {
            let tried = copies.len();
            return fail!(Lost, "page {} of the tree cannot be read: {tried} copies were tried", want.place.0);
        };
        if self.meta.looked_at.get() > 0 {
            return Ok(good);
        }
        if !bad.is_empty() && !self.writing.get() {
            self.meta.suspects.borrow_mut().push((want, bad));
        } else {
            self.heal_tree_copies(want.place, &bad, &good).await;
        }
        Ok(good)
    }

    /// Writes a page to all its copies.
    pub(super) async fn write_tree_page(&self, place: Place, image: IoSlice) -> Result<()> {
        let (segment, block) = block_of(place);
        let _slabs = self.map.borrow().segments.get(&segment).map(|segment| segment.record.slabs.clone());
        let mut copies = self.page_copies(segment, false);
        if mutant::active(Mutant::TreeWrittenOnce) {
            copies.truncate(1);
        }
        let offset = |at: &SlabAt| self.slab_offset(*at, u64::from(block));
        let writes = copies.iter().map(|at| self.disk_write(at.disk, offset(at), vec![image.clone()]));
        let written = join(writes).await;
        if copies.iter().zip(written).any(|(at, written)| written.is_ok() && self.is_current(at.disk)) {
            return Ok(());
        }
        fail!(Frozen, "no disk whose metadata is up to date took page {} of the tree", place.0)
    }

    /// Writes every page of the tree that lies in a metadata segment to the slab `to` of it, but for those that no disk
    /// has. No checkpoint may run meanwhile.
    pub async fn copy_tree_pages(&self, segment: SegmentNo, blocks: &[u32], to: SlabAt) -> Result<()> {
        if mutant::active(Mutant::TreeLeftBehind) {
            return Ok(());
        }
        let refs = Refs::default();
        let copied = join(blocks.iter().map(|block| self.copy_tree_page(place_of(segment, *block), to, &refs))).await;
        copied.into_iter().collect()
    }

    async fn copy_tree_page(&self, place: Place, to: SlabAt, refs: &Refs) -> Result<()> {
        let (copies, mut found) = self.read_all_tree_copies(place, Some(to)).await;
        for (at, found) in copies.iter().zip(&mut found) {
            // A slab that gets its pages only now has none to compare.
            let is_page = |image: &Buf| PageRef::claimed(&shape(), place, image).is_some();
            if *at == to && !matches!(found, Copied::Image(image) if is_page(image)) {
                *found = Copied::Late;
            }
        }
        let known = copies.iter().zip(&found).filter(|(at, _)| **at != to);
        let unreadable = known.clone().all(|(_, found)| !matches!(found, Copied::Image(_)));
        let Some(image) = self.tree_image(place, &copies, &found, refs).await? else {
            if unreadable && self.meta.room.borrow().is_rooted(place) {
                return fail!(Lost, "page {} of the tree cannot be read, and so not be copied", place.0);
            }
            return Ok(());
        };
        let (_, block) = block_of(place);
        let is_there =
            |(at, found): (&SlabAt, &Copied)| *at == to && matches!(found, Copied::Image(own) if own[..] == image[..]);
        if copies.iter().zip(&found).any(is_there) {
            return Ok(());
        }
        if self.disk_write(to.disk, self.slab_offset(to, u64::from(block)), vec![image.freeze()]).await.is_err() {
            return fail!(NotPossible, "disk {} failed while metadata was copied to it", to.disk);
        }
        Ok(())
    }

    /// Proves every copy of these pages of the tree; what is wrong is put right where it `mends`. No checkpoint may run
    /// meanwhile.
    pub async fn prove_tree_pages(&self, segment: SegmentNo, blocks: &[u32], mends: bool) -> Result<TreeProof> {
        let _looks = (!mends).then(|| self.meta.looks());
        let refs = Refs::default();
        let rooted = |block: &u32| {
            let place = place_of(segment, *block);
            self.meta.room.borrow().is_rooted(place).then_some(place)
        };
        let places: Vec<Place> = blocks.iter().filter_map(rooted).collect();
        let proven = join(places.iter().map(|place| self.prove_tree_page(*place, &refs, mends))).await;
        let mut proof = TreeProof::default();
        for (place, proven) in places.into_iter().zip(proven) {
            let PageProof { wrong, late } = proven?;
            proof.late.extend(late.map(|no| (no, block_of(place).1)));
            match wrong {
                None => proof.lost.push(place),
                Some(0) => {}
                Some(_) => proof.damaged.push(place),
            }
        }
        Ok(proof)
    }

    async fn prove_tree_page(&self, place: Place, refs: &Refs, mends: bool) -> Result<PageProof> {
        let (copies, found) = self.read_all_tree_copies(place, None).await;
        let late = copies.iter().zip(&found).find(|(_, found)| matches!(found, Copied::Late)).map(|(at, _)| at.disk);
        let late = late.filter(|_| !mutant::active(Mutant::LateTreeCopyPassed));
        let Some(image) = self.tree_image(place, &copies, &found, refs).await? else {
            // Nothing may refer to it: places of which nobody knows better count as taken.
            let wanted = refs.get(self).await?.contains_key(&place);
            let is_open = !wanted || found.iter().any(|found| matches!(found, Copied::Late));
            return Ok(PageProof { wrong: is_open.then_some(0), late: late.filter(|_| wanted) });
        };
        let is_wrong = |found: &Copied| match found {
            Copied::Image(own) => own[..] != image[..],
            Copied::Unreadable => true,
            Copied::Late => false,
        };
        let bad = copies.iter().zip(&found).filter(|(_, found)| is_wrong(found)).map(|(at, _)| *at);
        let bad: Vec<SlabAt> = bad.collect();
        if mends {
            self.heal_tree_copies(place, &bad, &image).await;
        }
        Ok(PageProof { wrong: Some(bad.len()), late })
    }

    /// The image of what lies at `place`, of what its copies gave (invariant 5).
    async fn tree_image(&self, place: Place, copies: &[SlabAt], found: &[Copied], refs: &Refs) -> Result<Option<Buf>> {
        let claims = |found: &Copied| match found {
            Copied::Image(image) => PageRef::claimed(&shape(), place, image).map(|claimed| (claimed, image.clone())),
            _ => None,
        };
        let claims: Vec<_> = found.iter().map(claims).collect();
        let mut sound = claims.iter().flatten();
        let first = sound.next();
        let alike = sound.all(|(claimed, _)| first.is_some_and(|(first, _)| first == claimed));
        let missing =
            found.iter().zip(&claims).any(|(found, claim)| matches!(found, Copied::Image(_)) && claim.is_none());
        let of_current = |(at, claim): (&SlabAt, &Option<_>)| claim.is_some() && self.is_current(at.disk);
        let current = copies.iter().zip(&claims).any(of_current) || mutant::active(Mutant::StalePagesBelieved);
        if let Some((_, image)) = first.filter(|_| alike && !missing && current) {
            return Ok(Some(image.clone()));
        }
        let Some(want) = refs.get(self).await?.get(&place).copied() else { return Ok(None) };
        if let Some((_, image)) = claims.into_iter().flatten().find(|(claimed, _)| *claimed == want) {
            return Ok(Some(image));
        }
        match found.iter().any(|found| matches!(found, Copied::Late)) {
            // That disk is waited for.
            true => Ok(self.read_tree_page(want).await.ok()),
            false => Ok(None),
        }
    }

    /// Every copy of a page. A disk that does not answer is waited for where no copy but that in `to` was read.
    async fn read_all_tree_copies(&self, place: Place, to: Option<SlabAt>) -> (Vec<SlabAt>, Vec<Copied>) {
        let copies = self.tree_copies(place);
        let mut found = join(copies.iter().map(|at| self.read_tree_copy(*at, place, true))).await;
        let is_source = |(at, found): (&SlabAt, &Copied)| Some(*at) != to && matches!(found, Copied::Image(_));
        if !copies.iter().zip(&found).any(is_source) {
            for (at, found) in copies.iter().zip(&mut found).filter(|(_, found)| matches!(found, Copied::Late)) {
                *found = self.read_tree_copy(*at, place, false).await;
            }
        }
        (copies, found)
    }

    async fn read_tree_copy(&self, at: SlabAt, place: Place, in_time: bool) -> Copied {
        let (_, block) = block_of(place);
        let offset = self.slab_offset(at, u64::from(block));
        let read = match in_time {
            true if self.is_stalled(at.disk) => return Copied::Late,
            true => self.disk_read_in_time(at.disk, offset, BLOCK as usize).await,
            false => self.disk_read(at.disk, offset, BLOCK as usize).await.map(Some),
        };
        match read {
            Ok(Some(image)) => Copied::Image(image),
            Ok(None) => Copied::Late,
            Err(_) => Copied::Unreadable,
        }
    }

    async fn heal_tree_copies(&self, place: Place, bad: &[SlabAt], good: &Buf) {
        if mutant::active(Mutant::TreeNotHealed) {
            return;
        }
        let (_, block) = block_of(place);
        for at in bad.iter().filter(|at| self.has_disk(at.disk)) {
            self.metadata_healed(at.disk, "metadata page");
            // A disk that fails this is taken out; the page has other copies.
            let _ =
                self.disk_write(at.disk, self.slab_offset(*at, u64::from(block)), vec![good.clone().freeze()]).await;
        }
    }

    /// The copies of a page on disks that are there: those that missed nothing first, and not always the same one.
    fn tree_copies(&self, place: Place) -> Vec<SlabAt> {
        let (segment, block) = block_of(place);
        let (mut current, behind): (Vec<_>, Vec<_>) =
            self.page_copies(segment, false).into_iter().partition(|at| self.is_current(at.disk));
        if !current.is_empty() {
            let turn = block as usize % current.len();
            current.rotate_left(turn);
        }
        current.extend(behind);
        current
    }
}

pub(super) fn is_page(want: PageRef, image: &[u8]) -> bool {
    mutant::active(Mutant::TreeCopyBelieved) || want.proves(&shape(), image).is_ok()
}
