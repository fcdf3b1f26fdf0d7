//! Which disks hold a virtual disk, for people; see `weft vdisk map`. Nothing here changes anything.

use super::Vdisk;
use super::explain::cut;
use super::read::Extent;
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::units::DiskNo;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

/// Stripes that are looked at before others have a turn.
const AT_ONCE: u64 = 1 << 12;
/// Those of them whose places are in memory together.
const TOGETHER: u64 = 504;

/// Where a piece of a virtual disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lies {
    /// Nowhere: it reads as zeros.
    Nowhere,
    /// In memory, and in the log as far as it was flushed: its stripe is not whole yet, or on its way to the disks.
    Memory,
    /// In whole stripes.
    Stripes,
    /// In stripes of a layout that it is to have no more.
    Older,
    /// In its fast tier.
    Fast,
    /// In packed stripes, those of its write-back cache where it has one.
    Packed,
}

/// A piece of a virtual disk that is everywhere in the same kind of place, on the same disks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its bytes.
    pub range: Range<u64>,
    /// Where they are.
    pub lies: Lies,
    /// The disks of its stripes, parity and copies included; those of one stripe hold parts of all bytes.
    pub disks: Vec<DiskNo>,
    /// How many slots of its stripes are on no disk.
    pub absent: usize,
}

impl Vdisk {
    /// The pieces of `range`, from its start on. Their end is that of `range`, or of as many stripes as may be looked
    /// at before others have a turn, or as have `most` pieces.
    pub fn pieces_placed(&self, range: Range<u64>, most: usize) -> LocalBoxFuture<'_, Result<Vec<Piece>>> {
        Box::pin(async move {
            let len = self.layout().data_len().0;
            let range = range.start..range.end.min(self.size().0);
            let (mut next, end) = (range.start / len, range.end.div_ceil(len));
            let end = end.min(next + AT_ONCE);
            let mut pieces = Vec::new();
            while next < end && pieces.len() < most {
                let stripes = next..(next + TOGETHER).min(end);
                next = stripes.end;
                let _held = self.load_places(stripes.clone()).await?;
                self.check_there()?;
                for stripe in stripes {
                    let start = stripe * len;
                    let within =
                        (range.start.max(start) - start) as usize..(range.end.min(start + len) - start) as usize;
                    self.place_stripe(stripe, within, &mut pieces);
                }
            }
            Ok(pieces)
        })
    }

    /// Adds where the bytes `within` a stripe are. Synchronous.
    fn place_stripe(&self, stripe: u64, within: Range<usize>, pieces: &mut Vec<Piece>) {
        let start = stripe * self.layout().data_len().0;
        let memory = |bytes: Range<usize>| Piece {
            range: start + bytes.start as u64..start + bytes.end as u64,
            lies: Lies::Memory,
            disks: Vec::new(),
            absent: 0,
        };
        let holes = if self.in_flight(stripe).is_some() { Vec::new() } else { self.holes_in_memory(stripe) };
        let mut at = within.start;
        for hole in holes.into_iter().map(|hole| cut(&hole, &within)).filter(|hole| !hole.is_empty()) {
            add(memory(at..hole.start), pieces);
            at = hole.end;
            self.below(stripe, hole).into_iter().for_each(|extent| add(self.piece(extent), pieces));
        }
        add(memory(at..within.end), pieces);
    }

    fn piece(&self, Extent { range, source, .. }: Extent) -> Piece {
        let Some((target, _)) = source else {
            return Piece { range, lies: Lies::Nowhere, disks: Vec::new(), absent: 0 };
        };
        let place = target.place;
        let lies = match self.store.map.borrow().is_fast(place) {
            true => Lies::Fast,
            false if self.is_packed(place.segment) => Lies::Packed,
            false if self.is_older(place.segment) => Lies::Older,
            false => Lies::Stripes,
        };
        let mut disks: Vec<DiskNo> = target.slabs.iter().flatten().map(|at| at.disk).collect();
        disks.sort_unstable();
        Piece { range, lies, absent: target.slabs.len() - disks.len(), disks }
    }
}

/// Adds a piece; to the last one, where it is of the same kind.
fn add(piece: Piece, pieces: &mut Vec<Piece>) {
    if piece.range.is_empty() {
        return;
    }
    let alike = |last: &&mut Piece| {
        (last.range.end, last.lies, &last.disks, last.absent)
            == (piece.range.start, piece.lies, &piece.disks, piece.absent)
    };
    match pieces.last_mut().filter(alike) {
        Some(last) => last.range.end = piece.range.end,
        None => pieces.push(piece),
    }
}
