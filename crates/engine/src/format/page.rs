//! Metadata pages: 4 KiB of a stripe table or of a segment's checksums. Format: `docs/on-disk-format.md`, "Metadata
//! page".
//!
//! Invariants
//! 1. A page has two slots (neighbouring blocks) in every copy; version `v` goes to slot `v % 2`, so a torn write never
//!    costs the image before it.
//! 2. A page that decodes is the page that was asked for: pool, kind, owner and number are under its CRC.
//! 3. A page that decodes was written by this history of the pool: what another machine wrote after it had gone on from
//!    the same disks is no page.

use super::Id;
use super::lineage::Lineage;
use crate::checksum::crc32c;
use crate::io::Buf;
use crate::units::BLOCK;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Marks a metadata page.
pub const PAGE_MAGIC: [u8; 4] = *b"WFPG";
/// Bytes of a page after its head.
pub const PAGE_PAYLOAD: usize = BLOCK as usize - size_of::<PageHead>();
/// Checksums in one sheet page.
pub const PAGE_SUMS: usize = PAGE_PAYLOAD / 4;
/// Entries in one stripe-table page.
pub const PAGE_ENTRIES: usize = PAGE_PAYLOAD / 8;
/// Pages of a chunk of a stripe table.
pub const CHUNK_PAGES: u32 = 16;
/// Entries of a chunk of a stripe table.
pub const CHUNK_ENTRIES: u64 = CHUNK_PAGES as u64 * PAGE_ENTRIES as u64;

/// No image has this version by counting: a checkpoint each second reaches it in 68 years.
pub const VERSIONS_MAX: u64 = 1 << 31;

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum PageKind {
    /// Stripe-table entries; owned by a table.
    Table = 1,
    /// Block checksums; owned by a segment.
    Sheet = 2,
}

/// The head of a page.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C)]
pub struct PageHead {
    pub(crate) magic: [u8; 4],
    pub(crate) crc: u32,
    pub(crate) pool_id: [u8; 16],
    pub(crate) kind: u16,
    pub(crate) pad_0: u16,
    pub(crate) owner: u32,
    pub(crate) number: u32,
    pub(crate) pad_1: u32,
    pub(crate) version: u64,
    pub(crate) opened: u64,
    pub(crate) lineage: u64,
}

const _: () = assert!(size_of::<PageHead>() == 64);

/// Which page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PageId {
    /// What it holds.
    pub kind: PageKind,
    /// The table or segment it belongs to.
    pub owner: u32,
    /// Its number within that.
    pub number: u32,
}

/// The block of page `id` with `payload`, written by the newest opening of `lineage`; the image with the larger
/// `version` wins.
pub fn encode(pool: Id, lineage: &Lineage, id: PageId, version: u64, payload: &[u8]) -> Buf {
    let mut block = Buf::zeroed(BLOCK as usize);
    let head = PageHead {
        magic: PAGE_MAGIC,
        crc: 0,
        pool_id: pool.0,
        kind: id.kind as u16,
        pad_0: 0,
        owner: id.owner,
        number: id.number,
        pad_1: 0,
        version,
        opened: lineage.opened,
        lineage: lineage.number(),
    };
    block[..64].copy_from_slice(head.as_bytes());
    block[64..64 + payload.len()].copy_from_slice(payload);
    let crc = crc32c(&block);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
    block
}

/// The version of the image in `block`, if it is a sound image of page `id`; its payload is `block[64..]`.
pub fn decode(pool: Id, lineage: &Lineage, id: PageId, block: &[u8]) -> Option<u64> {
    let (head, payload) = PageHead::read_from_prefix(block).ok()?;
    if head.magic != PAGE_MAGIC || head.pool_id != pool.0 {
        return None;
    }
    if (head.kind, head.owner, head.number) != (id.kind as u16, id.owner, id.number) {
        return None;
    }
    if !lineage.includes(head.opened, head.lineage) {
        return None;
    }
    let mut unsealed = head.clone();
    unsealed.crc = 0;
    let crc = crate::checksum::crc32c_append(crc32c(unsealed.as_bytes()), payload);
    (crc == head.crc && head.version < VERSIONS_MAX).then_some(head.version)
}
