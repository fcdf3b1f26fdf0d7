//! The structures of records as they stand on disks, little-endian, without gaps.

use super::facts::{ROOT_LEN, TABLES_MAX};
use crate::format::page::CHUNK_PAGES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The head of every record; `len` counts it and the body, and is a multiple of 8.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub struct RecordHead {
    pub(crate) kind: u16,
    pub(crate) pad_0: u16,
    pub(crate) len: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolBody {
    pub(crate) next_segment: u32,
    pub(crate) next_table: u32,
    pub(crate) next_vdisk: u32,
    pub(crate) next_job: u32,
    pub(crate) next_disk: u16,
    pub(crate) pad_0: [u8; 6],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct DiskBody {
    pub(crate) no: u16,
    pub(crate) media: u8,
    pub(crate) usage: u8,
    pub(crate) slabs: u32,
    pub(crate) disk_len: u64,
    pub(crate) name: [u8; 48],
    pub(crate) domain: [u8; 48],
    pub(crate) away: u8,
    pub(crate) maintenance: u8,
    pub(crate) retired_from: u8,
    pub(crate) power: u8,
    pub(crate) pad_0: [u8; 4],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct VdiskBody {
    pub(crate) id: u32,
    pub(crate) sector: u32,
    pub(crate) size: u64,
    pub(crate) fixed: u8,
    pub(crate) cache_choice: u8,
    pub(crate) fine_share: u16,
    pub(crate) table_count: u32,
    pub(crate) tables: [u32; TABLES_MAX],
    pub(crate) name: [u8; 48],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct CacheBody {
    pub(crate) size: u64,
    pub(crate) disks: u64,
    pub(crate) layout: LayoutBody,
}

/// The runs follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct ReadCacheBody {
    pub(crate) size: u64,
    pub(crate) disks: u64,
    pub(crate) born: u64,
    pub(crate) vdisk: u32,
    pub(crate) runs: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct SlabRunBody {
    pub(crate) disk: u16,
    pub(crate) pad_0: u16,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct TierBody {
    pub(crate) size: u64,
    pub(crate) disks: u64,
    pub(crate) layout: LayoutBody,
    pub(crate) pins: u32,
    pub(crate) words: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct PinBody {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct LayoutBody {
    pub(crate) resiliency: u8,
    pub(crate) copies: u8,
    pub(crate) columns: u8,
    pub(crate) pad_0: u8,
    pub(crate) interleave: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct TableBody {
    pub(crate) id: u32,
    pub(crate) layout: LayoutBody,
    pub(crate) packs: u32,
    pub(crate) disks: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct SegmentBody {
    pub(crate) id: u32,
    pub(crate) owner: u32,
    pub(crate) layout: LayoutBody,
    pub(crate) sheet_segment: u32,
    pub(crate) sheet_first: u32,
    pub(crate) sheet_count: u32,
    pub(crate) slots: u16,
    pub(crate) flags: u16,
    pub(crate) missed: [u64; 2],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct SettingsBody {
    pub(crate) repair_after: u32,
    pub(crate) scrub_every: u32,
    pub(crate) scrubbed: u64,
    pub(crate) foreground_share: u8,
    pub(crate) full: [u8; 3],
    pub(crate) tiers_at: u16,
    pub(crate) pad_0: u16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct JobBody {
    pub(crate) id: u32,
    pub(crate) kind: u8,
    pub(crate) state: u8,
    pub(crate) disk: u16,
    pub(crate) to: u16,
    pub(crate) forget: u8,
    pub(crate) pad_0: u8,
    pub(crate) cursor: u32,
    pub(crate) began: u64,
    pub(crate) done: u64,
    pub(crate) total: u64,
    pub(crate) bad: u64,
    pub(crate) healed: u64,
}

/// The changes follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct TreeBody {
    pub(crate) root: [u8; ROOT_LEN],
    pub(crate) changes: u32,
    pub(crate) space: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct PageChangeBody {
    pub(crate) segment: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) taken: u32,
}

/// The text follows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct EventBody {
    pub(crate) no: u64,
    pub(crate) at_ms: u64,
    pub(crate) warning: u8,
    pub(crate) told: [u8; 3],
    pub(crate) len: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct SlabBody {
    pub(crate) disk: u16,
    pub(crate) pad_0: u16,
    pub(crate) slab: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct ChunkBody {
    pub(crate) table: u32,
    pub(crate) chunk: u32,
    pub(crate) segment: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) pad_0: u32,
    pub(crate) versions: [u32; CHUNK_PAGES as usize],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct CommitBody {
    pub(crate) stripe: u64,
    pub(crate) table: u32,
    pub(crate) segment: u32,
    pub(crate) index: u32,
    pub(crate) sums: u32,
    pub(crate) retires: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct UnmapBody {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) retires: u64,
    pub(crate) table: u32,
    pub(crate) zero: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct LandedBody {
    pub(crate) offset: u64,
    pub(crate) vdisk: u32,
    pub(crate) len: u32,
}

/// The runs follow.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct PackBody {
    pub(crate) stripe: u64,
    pub(crate) retires: u64,
    pub(crate) table: u32,
    pub(crate) runs: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct PackRunBody {
    pub(crate) unit: u64,
    pub(crate) index: u32,
    pub(crate) count: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct DropBody {
    pub(crate) id: u32,
    pub(crate) pad_0: u32,
}

pub(super) const HEAD: usize = size_of::<RecordHead>();
/// Bytes of an encoded record of a disk.
pub const DISK_LEN: usize = HEAD + size_of::<DiskBody>();
/// Bytes of an encoded record of a job.
pub const JOB_LEN: usize = HEAD + size_of::<JobBody>();
/// Bytes of an encoded record of a table.
pub const TABLE_LEN: usize = HEAD + size_of::<TableBody>();
/// Bytes of an encoded record of a virtual disk, without a write-back cache.
pub const VDISK_LEN: usize = HEAD + size_of::<VdiskBody>();
/// Bytes more of one with a write-back cache.
pub const CACHE_LEN: usize = size_of::<CacheBody>();
/// Bytes of an encoded record of a chunk.
pub const CHUNK_LEN: u64 = (HEAD + size_of::<ChunkBody>()) as u64;
/// Bytes of an encoded record of a segment, its slots aside.
pub const SEGMENT_LEN: u64 = (HEAD + size_of::<SegmentBody>()) as u64;
/// Bytes of an encoded record of an event, its text aside.
pub const EVENT_LEN: u64 = (HEAD + size_of::<EventBody>()) as u64;
/// Bytes of one slot of it.
pub const SLAB_LEN: u64 = size_of::<SlabBody>() as u64;

/// The kinds, by the number that stands on disk.
pub(in crate::format) mod kind {
    pub const POOL: u16 = 1;
    pub const DISK: u16 = 2;
    pub const VDISK: u16 = 3;
    pub const VDISK_DROP: u16 = 4;
    pub const TABLE: u16 = 5;
    pub const TABLE_DROP: u16 = 6;
    pub const SEGMENT: u16 = 7;
    pub const SEGMENT_DROP: u16 = 8;
    pub const CHUNK: u16 = 9;
    pub const DISK_DROP: u16 = 10;
    pub const SETTINGS: u16 = 11;
    pub const JOB: u16 = 12;
    pub const JOB_DROP: u16 = 13;
    pub const EVENT: u16 = 14;
    pub const TREE: u16 = 15;
    pub const COMMIT: u16 = 16;
    pub const UNMAP: u16 = 17;
    pub const LANDED: u16 = 18;
    pub const PACK: u16 = 19;
    pub const MOVE: u16 = 20;
    pub const READ_CACHE: u16 = 21;
}
