//! The index of a zone of a read cache: which blocks of which stripes lie in it. Format: `docs/on-disk-format.md`,
//! "Read caches".
//!
//! Invariants
//! 1. Nothing that is wrong here can make a read wrong: what is found by it is proven with the checksums of its stripe.
//!    An index that is old, torn, or of another cache costs hits only, and so it is written without any flush.
//! 2. A block that decodes is unaltered (CRC32C over it), and of this pool, this cache and this zone.

use super::Id;
use crate::checksum::crc32c;
use crate::format::record::SlabAt;
use crate::io::Buf;
use crate::units::{BLOCK, Birth, SegmentNo, VdiskNo};
use alloc::vec::Vec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Marks a block of an index.
pub const ZONE_MAGIC: [u8; 8] = *b"WEFTZONE";
/// Entries of one block.
pub const ZONE_ENTRIES: usize = (BLOCK as usize - size_of::<ZoneHead>()) / size_of::<ZoneEntry>();
/// The most blocks of a zone, those of its index included.
pub const ZONE_BLOCKS_MAX: u32 = 2048;

/// The head of a block.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct ZoneHead {
    pub(crate) magic: [u8; 8],
    pub(crate) crc: u32,
    pub(crate) slab: u32,
    pub(crate) pool_id: [u8; 16],
    pub(crate) born: u64,
    pub(crate) serial: u64,
    pub(crate) vdisk: u32,
    pub(crate) first: u32,
    pub(crate) number: u16,
    pub(crate) entries: u16,
    pub(crate) disk: u16,
    pub(crate) pad_0: u16,
}

/// One piece: blocks of a strip.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct ZoneEntry {
    pub(crate) segment: u32,
    pub(crate) index: u32,
    pub(crate) column: u16,
    pub(crate) birth: u16,
    pub(crate) block: u16,
    pub(crate) at: u16,
    pub(crate) count: u16,
    pub(crate) pad_0: u16,
}

/// Which zone of which cache of which pool it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneName {
    /// The pool.
    pub pool: Id,
    /// The virtual disk.
    pub vdisk: VdiskNo,
    /// See [`super::record::ReadCacheRecord::born`].
    pub born: u64,
    /// The slab.
    pub slab: SlabAt,
    /// The first block of the zone in the slab.
    pub first: u32,
}

/// Blocks of one strip of one version of a stripe, and where they lie in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The segment of the stripe.
    pub segment: SegmentNo,
    /// Its index there.
    pub index: u32,
    /// Its birth.
    pub birth: Birth,
    /// The data column.
    pub column: u16,
    /// The first block within the strip.
    pub block: u16,
    /// How many blocks.
    pub count: u16,
    /// The block of the zone where they begin.
    pub at: u16,
}

/// Blocks that the index of a zone of so many blocks takes: room for as many pieces as it has blocks.
pub fn index_blocks(blocks: u32) -> u32 {
    blocks.div_ceil(ZONE_ENTRIES as u32)
}

/// Encodes block `number` of the index: these pieces, [`ZONE_ENTRIES`] at most.
pub fn encode(name: &ZoneName, serial: u64, number: u16, pieces: &[Listed]) -> Buf {
    let ZoneName { pool, vdisk, born, slab, first } = *name;
    let mut head = ZoneHead {
        magic: ZONE_MAGIC,
        crc: 0,
        slab: slab.slab,
        pool_id: pool.0,
        born,
        serial,
        vdisk: vdisk.0,
        first,
        number,
        entries: pieces.len() as u16,
        disk: slab.disk.0,
        pad_0: 0,
    };
    let mut buf = Buf::zeroed(BLOCK as usize);
    let mut at = size_of::<ZoneHead>();
    for piece in pieces {
        let Listed { segment, index, birth, column, block, count, at: lies } = *piece;
        let entry = ZoneEntry { segment: segment.0, index, column, birth: birth.0, block, at: lies, count, pad_0: 0 };
        buf[at..at + size_of::<ZoneEntry>()].copy_from_slice(entry.as_bytes());
        at += size_of::<ZoneEntry>();
    }
    buf[..size_of::<ZoneHead>()].copy_from_slice(head.as_bytes());
    head.crc = crc32c(&buf);
    buf[..size_of::<ZoneHead>()].copy_from_slice(head.as_bytes());
    buf
}

/// The serial number and the pieces of block `number` of the index of this zone; none: it is not that.
pub fn decode(block: &[u8], name: &ZoneName, number: u16) -> Option<(u64, Vec<Listed>)> {
    let (head, mut rest) = ZoneHead::read_from_prefix(block).ok()?;
    let ZoneName { pool, vdisk, born, slab, first } = *name;
    let is_it = head.magic == ZONE_MAGIC
        && head.pool_id == pool.0
        && (head.born, head.vdisk, head.first, head.number) == (born, vdisk.0, first, number)
        && (head.disk, head.slab) == (slab.disk.0, slab.slab);
    let mut zeroed = Vec::from(block);
    zeroed[..size_of::<ZoneHead>()].copy_from_slice(ZoneHead { crc: 0, ..head }.as_bytes());
    if !is_it || head.entries as usize > ZONE_ENTRIES || crc32c(&zeroed) != head.crc {
        return None;
    }
    let mut pieces = Vec::with_capacity(head.entries as usize);
    for _ in 0..head.entries {
        let (entry, after) = ZoneEntry::read_from_prefix(rest).ok()?;
        rest = after;
        let ZoneEntry { segment, index, column, birth, block, at, count, .. } = entry;
        pieces.push(Listed { segment: SegmentNo(segment), index, birth: Birth(birth), column, block, count, at });
    }
    Some((head.serial, pieces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::DiskNo;

    fn name() -> ZoneName {
        let slab = SlabAt { disk: DiskNo(3), slab: 9 };
        ZoneName { pool: Id([7; 16]), vdisk: VdiskNo(2), born: 1 << 40, slab, first: 2048 }
    }

    fn pieces() -> Vec<Listed> {
        let piece = |nth: u16| Listed {
            segment: SegmentNo(1 << 20),
            index: nth.into(),
            birth: Birth(nth + 1),
            column: 31,
            block: 1023,
            count: 16,
            at: nth * 7,
        };
        (0..ZONE_ENTRIES as u16).map(piece).collect()
    }

    #[test]
    fn an_index_reads_back_as_it_was_written_and_only_for_its_own_zone() {
        let block = encode(&name(), 77, 1, &pieces());
        assert_eq!(decode(&block, &name(), 1), Some((77, pieces())));
        assert_eq!(decode(&block, &name(), 0), None);
        let others = [
            ZoneName { pool: Id([8; 16]), ..name() },
            ZoneName { vdisk: VdiskNo(3), ..name() },
            ZoneName { born: 1, ..name() },
            ZoneName { slab: SlabAt { disk: DiskNo(4), slab: 9 }, ..name() },
            ZoneName { slab: SlabAt { disk: DiskNo(3), slab: 8 }, ..name() },
            ZoneName { first: 0, ..name() },
        ];
        assert!(others.iter().all(|other| decode(&block, other, 1).is_none()));
    }

    #[test]
    fn a_block_in_which_a_byte_is_another_is_none() {
        let block = encode(&name(), 77, 0, &pieces());
        for at in 0..BLOCK as usize {
            let mut damaged = block.to_vec();
            damaged[at] ^= 0x10;
            assert_eq!(decode(&damaged, &name(), 0), None, "byte {at}");
        }
    }
}
