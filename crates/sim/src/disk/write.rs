//! A write as the disk holds it between its submission and the medium, and the ways it can end at a power cut.

use crate::rng::{Rng, mix};
use weft_engine::io::IoSlice;
use weft_engine::units::{BLOCK, ByteCount, DiskOffset, SECTOR};

/// What becomes of one unflushed write when the power fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It reached the medium whole.
    Kept,
    /// Nothing of it reached the medium.
    Dropped,
    /// Some 512-byte sectors of it reached the medium.
    Torn(Tear),
    /// Each block of it has its old bytes, new ones, junk, or cannot be read, by this seed.
    Ruined(u64),
}

/// Which 512-byte sectors of a torn write survive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tear {
    /// The first so many.
    Head(u64),
    /// The last so many.
    Tail(u64),
    /// Each one or not, by this seed.
    Each(u64),
}

/// One write (or discard) that is not known to be durable, as tests see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unflushed {
    /// Where it was meant to go.
    pub at: DiskOffset,
    /// How long it is.
    pub len: ByteCount,
    /// Whether the engine was told that it completed.
    pub completed: bool,
    /// Whether it is a discard.
    pub discard: bool,
}

/// A write between its submission and the medium.
#[derive(Clone)]
pub(crate) struct Write {
    pub at: DiskOffset,
    pub len: ByteCount,
    pub effect: Effect,
    pub lands: Lands,
}

#[derive(Clone)]
pub(crate) enum Effect {
    Bytes(Vec<IoSlice>),
    Discard { seed: u64 },
}

/// Where a write really goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lands {
    There,
    Elsewhere(DiskOffset),
    Nowhere,
}

impl Write {
    /// The numbers of the blocks it was meant for.
    pub fn blocks(&self) -> std::ops::Range<u64> {
        self.at.0 / BLOCK..(self.at.0 + self.len.0) / BLOCK
    }

    /// How many sectors it has.
    pub fn sectors(&self) -> u64 {
        self.len.0 / SECTOR
    }

    /// Whether it changes any of these blocks, wherever it was meant to go.
    pub fn touches(&self, blocks: &std::ops::Range<u64>) -> bool {
        let start = match self.lands {
            Lands::There => self.at.0 / BLOCK,
            Lands::Elsewhere(at) => at.0 / BLOCK,
            Lands::Nowhere => return false,
        };
        start < blocks.end && blocks.start < start + self.len.0 / BLOCK
    }
}

impl Tear {
    /// A tear of a write of so many sectors, by seed: often at one place, sometimes in shreds.
    pub fn random(sectors: u64, rng: &mut Rng) -> Tear {
        match rng.below(3) {
            0 => Tear::Head(rng.below(sectors.max(1))),
            1 => Tear::Tail(rng.below(sectors.max(1))),
            _ => Tear::Each(rng.next_u64()),
        }
    }

    /// Which of the eight sectors of a block survive, counted from the start of the write. `first` is the first of
    /// them, `sectors` the length of the write.
    pub(crate) fn kept(self, first: u64, sectors: u64) -> impl Iterator<Item = u64> {
        (first..first + BLOCK / SECTOR).filter(move |sector| match self {
            Tear::Head(kept) => *sector < kept,
            Tear::Tail(kept) => *sector >= sectors.saturating_sub(kept),
            Tear::Each(seed) => mix(seed ^ sector).is_multiple_of(2),
        })
    }
}

/// Makes torn writes ruined ones, as likely as `chance` says.
pub(crate) fn ruin(fates: &mut [Fate], chance: f64, rng: &mut Rng) {
    if chance > 0.0 {
        for fate in fates.iter_mut().filter(|fate| matches!(fate, Fate::Torn(_))) {
            if rng.chance(chance) {
                *fate = Fate::Ruined(rng.next_u64());
            }
        }
    }
}

/// How a power cut treats the writes in the cache: some cuts keep all or nothing, most choose write by write.
pub(crate) fn fates(lengths: impl Iterator<Item = u64>, rng: &mut Rng) -> Vec<Fate> {
    let (keep, tear) = match rng.below(8) {
        0 => (0.0, 0.0),
        1 => (1.0, 0.0),
        2 => (0.05, 0.05),
        3 => (0.95, 0.5),
        4 => (0.3, 0.9),
        _ => (0.5, 0.3),
    };
    lengths
        .map(|sectors| match rng.chance(keep) {
            true => Fate::Kept,
            false if rng.chance(tear) => Fate::Torn(Tear::random(sectors, rng)),
            false => Fate::Dropped,
        })
        .collect()
}
