//! The structures of this module as values, so that a test can hold `docs/on-disk-format.md` against them. A field that
//! is missing here does not compile; one that is missing there, or stands there and not here, fails
//! `tests/format_doc.rs`.

use super::batch::BatchHead;
use super::label::{LabelAnnex, LabelBlock};
use super::page::{CHUNK_ENTRIES, CHUNK_PAGES, PAGE_ENTRIES, PAGE_SUMS, PageHead, PageKind};
use super::record::*;
use super::zone::{ZONE_BLOCKS_MAX, ZONE_ENTRIES, ZoneEntry, ZoneHead};
use alloc::vec;
use alloc::vec::Vec;

/// A field: its name, its offset and its width in bytes.
pub type Field = (&'static str, usize, usize);

macro_rules! layout {
    ($type:ident { $($field:ident)* }) => {{
        // A pattern without `..`: the list of fields is complete, or this does not compile.
        fn _every_field(all: &$type) {
            let $type { $($field: _),* } = all;
        }
        (stringify!($type), alloc::vec![$((stringify!($field), core::mem::offset_of!($type, $field), $crate::format::doc::width(|all: &$type| &all.$field))),*])
    }};
}

pub(crate) use layout;

/// Bytes of a field.
pub(crate) fn width<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Every structure that stands on a disk, with its fields in their order.
pub fn layouts() -> Vec<(&'static str, Vec<Field>)> {
    vec![
        layout!(LabelBlock {
            magic version crc features_compatible features_read_only features_incompatible pool_id disk_id pool_name epoch opened
            slab_len disk_len blob_at blob_len log_at log_len data_at slabs disk_no pad_0 members current voters loggers
            checkpoint_no checkpoint_len checkpoint_crc log_chain log_tail log_tail_batch log_redo log_seq opened_batch serial disk_ids promised
            lineage durable_epoch durable_voters seen_epochs batch_max batch_max_from members_beyond
            current_beyond voters_beyond loggers_beyond durable_voters_beyond annex_crc pad_1
        }),
        layout!(LabelAnnex { disk_ids seen_epochs pad_0 }),
        layout!(BatchHead { magic pool_id lineage number position first_seq payload_len records chain crc }),
        layout!(PageHead { magic crc pool_id kind pad_0 owner number pad_1 version opened lineage }),
        layout!(RecordHead { kind pad_0 len }),
        layout!(PoolBody { next_segment next_table next_vdisk next_job next_disk pad_0 }),
        layout!(DiskBody { no media usage slabs disk_len name domain away maintenance retired_from power pad_0 }),
        layout!(VdiskBody { id sector size fixed cache_choice fine_share table_count tables name }),
        layout!(CacheBody { size disks layout }),
        layout!(TierBody { size disks layout pins words }),
        layout!(PinBody { start end }),
        layout!(ReadCacheBody { size disks born vdisk runs }),
        layout!(SlabRunBody { disk pad_0 first count }),
        layout!(ZoneHead { magic crc slab pool_id born serial vdisk first number entries disk pad_0 }),
        layout!(ZoneEntry { segment index column birth block at count pad_0 }),
        layout!(DropBody { id pad_0 }),
        layout!(LayoutBody { resiliency copies columns pad_0 interleave }),
        layout!(TableBody { id layout packs disks }),
        layout!(SegmentBody { id owner layout sheet_segment sheet_first sheet_count slots flags missed }),
        layout!(SlabBody { disk pad_0 slab }),
        layout!(ChunkBody { table chunk segment first count pad_0 versions }),
        layout!(CommitBody { stripe table segment index sums retires }),
        layout!(UnmapBody { first count retires table zero }),
        layout!(LandedBody { offset vdisk len }),
        layout!(PackBody { stripe retires table runs }),
        layout!(PackRunBody { unit index count }),
        layout!(SettingsBody { repair_after scrub_every scrubbed foreground_share full tiers_at pad_0 }),
        layout!(TreeBody { root changes space }),
        layout!(PageChangeBody { segment first count taken }),
        layout!(EventBody { no at_ms warning told len }),
        layout!(JobBody { id kind state disk to forget pad_0 cursor began done total bad healed }),
    ]
}

/// Numbers that stand on disks, and numbers that follow from the structures, by name.
pub fn numbers() -> Vec<(&'static str, u64)> {
    vec![
        ("VERSION", super::VERSION as u64),
        ("VERSION_OLDEST", super::VERSION_OLDEST as u64),
        ("FEATURE_PACKS", super::FEATURE_PACKS),
        ("FEATURE_CACHES", super::FEATURE_CACHES),
        ("FEATURE_STACKS", super::FEATURE_STACKS),
        ("FEATURE_TIERS", super::FEATURE_TIERS),
        ("TABLE_IS_TIER", TABLE_IS_TIER as u64),
        ("PINS_MAX", crate::limits::PINS_MAX as u64),
        ("FEATURE_READ_CACHES", super::FEATURE_READ_CACHES),
        ("FEATURE_MOVES", super::FEATURE_MOVES),
        ("FEATURE_WIDE", super::FEATURE_WIDE),
        ("FEATURE_SPREAD", super::FEATURE_SPREAD),
        ("POOL", kind::POOL as u64),
        ("DISK", kind::DISK as u64),
        ("VDISK", kind::VDISK as u64),
        ("VDISK_DROP", kind::VDISK_DROP as u64),
        ("TABLE", kind::TABLE as u64),
        ("TABLE_DROP", kind::TABLE_DROP as u64),
        ("SEGMENT", kind::SEGMENT as u64),
        ("SEGMENT_DROP", kind::SEGMENT_DROP as u64),
        ("CHUNK", kind::CHUNK as u64),
        ("DISK_DROP", kind::DISK_DROP as u64),
        ("SETTINGS", kind::SETTINGS as u64),
        ("JOB", kind::JOB as u64),
        ("JOB_DROP", kind::JOB_DROP as u64),
        ("EVENT", kind::EVENT as u64),
        ("TREE", kind::TREE as u64),
        ("COMMIT", kind::COMMIT as u64),
        ("UNMAP", kind::UNMAP as u64),
        ("LANDED", kind::LANDED as u64),
        ("PACK", kind::PACK as u64),
        ("MOVE", kind::MOVE as u64),
        ("READ_CACHE", kind::READ_CACHE as u64),
        ("ZONE_ENTRIES", ZONE_ENTRIES as u64),
        ("ZONE_BLOCKS_MAX", ZONE_BLOCKS_MAX as u64),
        ("PAGE_TABLE", PageKind::Table as u64),
        ("PAGE_SHEET", PageKind::Sheet as u64),
        ("PAGE_SUMS", PAGE_SUMS as u64),
        ("PAGE_ENTRIES", PAGE_ENTRIES as u64),
        ("CHUNK_PAGES", CHUNK_PAGES as u64),
        ("CHUNK_ENTRIES", CHUNK_ENTRIES),
        ("TABLES_MAX", TABLES_MAX as u64),
        ("OWNER_METADATA", OWNER_METADATA.0 as u64),
        ("DISK_ABSENT", DISK_ABSENT.0 as u64),
    ]
}
