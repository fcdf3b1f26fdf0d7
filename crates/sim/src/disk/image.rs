//! What is durably on a disk: all that is left of it when the power is off.

use super::content::{Content, Harm};
use super::write::{Effect, Lands, Write};
use std::fmt;
use weft_engine::io::{Buf, DiskError, DiskShape};
use weft_engine::units::{BLOCK, ByteCount, DiskOffset};

/// The durable content of a disk. Cheap to clone: an exhaustive search keeps thousands.
#[derive(Clone)]
pub struct DiskImage {
    pub(crate) shape: DiskShape,
    pub(crate) content: Content,
}

impl DiskImage {
    /// A disk as it comes from the shop: all zeros.
    pub fn blank(shape: DiskShape) -> DiskImage {
        DiskImage { shape, content: Content::default() }
    }

    /// What the disk is.
    pub fn shape(&self) -> DiskShape {
        self.shape
    }

    /// `len` bytes from `at` (whole blocks); the medium's error if one of them cannot be read.
    pub fn read(&self, at: DiskOffset, len: ByteCount) -> Result<Vec<u8>, DiskError> {
        assert!(at.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK) && at.0 + len.0 <= self.shape.capacity.0);
        let mut bytes = vec![0; len.as_usize()];
        self.content.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// The ranges in which anything was ever written; everything else is zeros.
    pub fn written(&self) -> Vec<(DiskOffset, ByteCount)> {
        let end = self.shape.capacity.0;
        let cut = |(at, len): (u64, u64)| (DiskOffset(at), ByteCount(len.min(end - at)));
        self.content.written().map(cut).collect()
    }

    /// Puts whole blocks of `bytes` at `at`: how tests damage a label or plant a foreign one.
    pub fn overwrite(&mut self, at: DiskOffset, bytes: &[u8]) {
        let len = ByteCount(bytes.len() as u64);
        assert!(at.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK) && at.0 + len.0 <= self.shape.capacity.0);
        let effect = Effect::Bytes(vec![Buf::copy_of(bytes).freeze()]);
        self.content.apply(&Write { at, len, effect, lands: Lands::There }, None);
    }

    /// Makes the block at `at` unreadable.
    pub fn spoil(&mut self, at: DiskOffset) {
        self.content.spoil(at.0 / BLOCK);
    }

    /// A hash of every byte: equal contents have equal ones.
    pub fn fingerprint(&self) -> u64 {
        self.content.fingerprint()
    }

    /// Every block harmed by a fault and not rewritten since.
    pub fn harmed(&self) -> Vec<(DiskOffset, Harm)> {
        self.content.harmed()
    }
}

impl fmt::Debug for DiskImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskImage({})", self.shape.capacity)
    }
}
