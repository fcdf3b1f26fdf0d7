//! Log records. The same encoding serves the log and the checkpoint, which is nothing but a log of the present configuration.
//! Format: `docs/on-disk-format.md`, "Records".
//!
//! Invariants
//! 1. A record states an absolute fact ("stripe 7 of table 1 is at segment 3, index 9"), never a change to a fact, so applying a log twice, or over
//!    pages that are newer than it, ends in the same state.
//! 2. Decoding never trusts a length: a record that does not fit its batch, or whose body contradicts itself, ends the decoding with an error.

use super::{name_from_bytes, name_to_bytes};
use crate::error::Result;
use crate::fail;
use crate::limits::SLOTS_MAX;
use crate::stripe::geometry::{Layout, Resiliency};
use crate::units::ByteCount;
use alloc::borrow::Cow;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The most tables of one virtual disk's stack.
pub const TABLES_MAX: usize = 8;
/// The owner of a segment that holds metadata pages.
pub const OWNER_METADATA: u32 = u32::MAX;
pub(super) const DISK_ABSENT: u16 = u16::MAX;

/// One fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record<'a> {
    /// Numbers that were given out already.
    Pool(PoolRecord),
    /// A member.
    Disk(DiskRecord),
    /// A virtual disk exists.
    Vdisk(VdiskRecord),
    /// It does not exist any more.
    VdiskDrop(u32),
    /// A stripe table exists.
    Table(TableRecord),
    /// It does not exist any more; its chunks went with it.
    TableDrop(u32),
    /// A segment exists, here.
    Segment(SegmentRecord),
    /// It does not exist any more; its slabs are free.
    SegmentDrop(u32),
    /// A chunk of a stripe table has its pages here.
    Chunk(ChunkRecord),
    /// A stripe is at a new place.
    Commit(CommitRecord<'a>),
    /// Stripes are unmapped: they read as what lies below, or zeros.
    Unmap(UnmapRecord),
    /// Data that a flush forced out before its stripe was whole.
    Landed(LandedRecord<'a>),
    /// A member is none any more.
    DiskDrop(u32),
    /// What the owner set.
    Settings(SettingsRecord),
    /// A job, as it is now.
    Job(JobRecord),
    /// It is forgotten.
    JobDrop(u32),
}

/// See [`Record::Pool`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolRecord {
    /// The next segment's number.
    pub next_segment: u32,
    /// The next table's number.
    pub next_table: u32,
    /// The next virtual disk's number.
    pub next_vdisk: u32,
    /// The next job's number.
    pub next_job: u32,
}

/// See [`Record::Disk`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskRecord {
    /// Its number in the pool.
    pub no: u16,
    /// [`Media`] as a number.
    pub media: Media,
    /// [`Usage`] as a number.
    pub usage: Usage,
    /// Its slabs.
    pub slabs: u32,
    /// Its size in bytes.
    pub disk_len: ByteCount,
    /// Its name, for people.
    pub name: String,
    /// What may fail with it (an enclosure, a rack); empty: nothing.
    pub domain: String,
    /// What it missed.
    pub away: Away,
    /// Whether a person took it out for a while.
    pub maintenance: bool,
}

/// Whether a disk is behind the others, and what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Away {
    /// It has everything.
    #[default]
    No,
    /// It lacks what [`SegmentRecord::missed`] says, and metadata.
    Tracked,
    /// Nobody wrote down what it lacks.
    Unknown,
}

/// What a disk is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Media {
    /// Not known.
    #[default]
    Unspecified,
    /// It seeks.
    Hdd,
    /// It does not.
    Ssd,
}

/// What a disk is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Usage {
    /// For data, automatically.
    #[default]
    AutoSelect,
    /// Only where it is named.
    ManualSelect,
    /// A reserve.
    HotSpare,
    /// For the log.
    Journal,
    /// For nothing new.
    Retired,
}

/// See [`Record::Vdisk`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VdiskRecord {
    /// Its number; never reused.
    pub id: u32,
    /// Its name, for people.
    pub name: String,
    /// Its size.
    pub size: ByteCount,
    /// Bytes of its logical sector: 512 or 4096.
    pub sector: u32,
    /// Whether its slabs were reserved when it was made.
    pub fixed: bool,
    /// Its stack of stripe tables, newest first.
    pub tables: Vec<u32>,
}

/// See [`Record::Table`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableRecord {
    /// Its number; never reused.
    pub id: u32,
    /// Its layout.
    pub layout: Layout,
    /// The disks its segments may lie on, one bit each; 0: every disk that takes data by itself.
    pub disks: u64,
}

/// One slab of one disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SlabAt {
    /// The disk's number.
    pub disk: u16,
    /// The slab's number on it.
    pub slab: u32,
}

/// A run of metadata page pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRun {
    /// The metadata segment.
    pub segment: u32,
    /// The first page pair.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// See [`Record::Segment`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRecord {
    /// Its number; never reused.
    pub id: u32,
    /// The table its stripes belong to, or [`OWNER_METADATA`].
    pub owner: u32,
    /// The layout of its stripes.
    pub layout: Layout,
    /// Where its checksums are kept; none for metadata segments (`count` 0).
    pub sheet: PageRun,
    /// Its slabs, by slot; `None`: that slot has no disk yet.
    pub slabs: Rc<[Option<SlabAt>]>,
    /// Slots (one bit each) that lack strips of stripes in use: their disk was away when those were written.
    pub missed: u128,
}

/// See [`Record::Settings`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettingsRecord {
    /// Seconds until a missing disk is rebuilt elsewhere; `u32::MAX`: never.
    pub repair_after: u32,
    /// Seconds from the end of a scrub to the next; `u32::MAX`: never.
    pub scrub_every: u32,
    /// When the last scrub ended, in Unix seconds; 0: there was none.
    pub scrubbed: u64,
    /// Percent of the time that jobs leave to clients, 0 to 90.
    pub foreground_share: u8,
    /// Fill levels that are worth a warning, in percent, rising.
    pub full: [u8; 3],
}

impl Default for SettingsRecord {
    fn default() -> SettingsRecord {
        SettingsRecord {
            repair_after: 5 * 60,
            scrub_every: 28 * 24 * 3600,
            scrubbed: 0,
            foreground_share: 50,
            full: [70, 80, 90],
        }
    }
}

/// What a job is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Full redundancy for everything again.
    Repair,
    /// Everything that is written is read and proven.
    Scrub,
    /// All disks filled alike, in proportion to their size.
    Rebalance,
    /// Everything leaves one disk.
    Evacuate {
        /// Which.
        disk: u16,
        /// Where to, as far as that goes.
        to: Option<u16>,
        /// Whether it leaves the pool at the end.
        forget: bool,
    },
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// It has its turn later.
    Waiting,
    /// It is at work.
    Running,
    /// A person stopped it for a while.
    Paused,
    /// It ended.
    Done,
    /// A person ended it.
    Cancelled,
    /// It could not be done.
    Failed,
}

/// See [`Record::Job`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobRecord {
    /// Its number; never reused.
    pub id: u32,
    /// What it does.
    pub kind: JobKind,
    /// How far it is.
    pub state: JobState,
    /// When it was begun, in Unix seconds.
    pub began: u64,
    /// Bytes done.
    pub done: u64,
    /// Of about this many.
    pub total: u64,
    /// The segment it goes on with (a scrub).
    pub cursor: u32,
    /// Bad blocks found.
    pub bad: u64,
    /// Of those, rewritten.
    pub healed: u64,
}

/// See [`Record::Chunk`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkRecord {
    /// The table.
    pub table: u32,
    /// The chunk's number within it.
    pub chunk: u32,
    /// Its pages.
    pub pages: PageRun,
}

/// See [`Record::Commit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitRecord<'a> {
    /// The table.
    pub table: u32,
    /// The virtual stripe.
    pub stripe: u64,
    /// The segment it is in now.
    pub segment: u32,
    /// Its index there.
    pub index: u32,
    /// Landed records of this stripe with a lower sequence number are part of it.
    pub retires: u64,
    /// The checksums of all its blocks, slot after slot.
    pub sums: Cow<'a, [u32]>,
}

/// See [`Record::Unmap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnmapRecord {
    /// The table.
    pub table: u32,
    /// The first virtual stripe.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Landed records of these stripes with a lower sequence number are void.
    pub retires: u64,
}

/// See [`Record::Landed`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LandedRecord<'a> {
    /// The virtual disk.
    pub vdisk: u32,
    /// Where on it, in bytes.
    pub offset: u64,
    /// The bytes: whole sectors.
    pub data: Cow<'a, [u8]>,
}

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
    pub(crate) pad_0: [u8; 6],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct VdiskBody {
    pub(crate) id: u32,
    pub(crate) sector: u32,
    pub(crate) size: u64,
    pub(crate) fixed: u8,
    pub(crate) pad_0: [u8; 3],
    pub(crate) table_count: u32,
    pub(crate) tables: [u32; TABLES_MAX],
    pub(crate) name: [u8; 48],
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
    pub(crate) pad_0: u32,
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
    pub(crate) slots: u32,
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
    pub(crate) pad_0: u32,
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
    pub(crate) pad_0: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct LandedBody {
    pub(crate) offset: u64,
    pub(crate) vdisk: u32,
    pub(crate) len: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct DropBody {
    pub(crate) id: u32,
    pub(crate) pad_0: u32,
}

const HEAD: usize = size_of::<RecordHead>();
/// Bytes of an encoded record of a disk.
pub const DISK_LEN: usize = HEAD + size_of::<DiskBody>();
/// Bytes of an encoded record of a table.
pub const TABLE_LEN: usize = HEAD + size_of::<TableBody>();
/// Bytes of an encoded record of a virtual disk.
pub const VDISK_LEN: usize = HEAD + size_of::<VdiskBody>();
/// Bytes of an encoded record of a chunk.
pub const CHUNK_LEN: u64 = (HEAD + size_of::<ChunkBody>()) as u64;
/// Bytes of an encoded record of a segment, its slots aside.
pub const SEGMENT_LEN: u64 = (HEAD + size_of::<SegmentBody>()) as u64;
/// Bytes of one slot of it.
pub const SLAB_LEN: u64 = size_of::<SlabBody>() as u64;

/// The kinds, by the number that stands on disk.
pub(super) mod kind {
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
    pub const COMMIT: u16 = 16;
    pub const UNMAP: u16 = 17;
    pub const LANDED: u16 = 18;
}

impl Record<'_> {
    /// Bytes of the encoded record.
    pub fn encoded_len(&self) -> usize {
        let body = match self {
            Record::Pool(_) => size_of::<PoolBody>(),
            Record::Disk(_) => size_of::<DiskBody>(),
            Record::Vdisk(_) => size_of::<VdiskBody>(),
            Record::VdiskDrop(_)
            | Record::TableDrop(_)
            | Record::SegmentDrop(_)
            | Record::DiskDrop(_)
            | Record::JobDrop(_) => size_of::<DropBody>(),
            Record::Settings(_) => size_of::<SettingsBody>(),
            Record::Job(_) => size_of::<JobBody>(),
            Record::Table(_) => size_of::<TableBody>(),
            Record::Segment(segment) => size_of::<SegmentBody>() + segment.slabs.len() * size_of::<SlabBody>(),
            Record::Chunk(_) => size_of::<ChunkBody>(),
            Record::Commit(commit) => size_of::<CommitBody>() + commit.sums.len() * 4,
            Record::Unmap(_) => size_of::<UnmapBody>(),
            Record::Landed(landed) => size_of::<LandedBody>() + landed.data.len(),
        };
        (HEAD + body).next_multiple_of(8)
    }

    /// Appends the encoded record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let head = RecordHead { kind: self.kind(), pad_0: 0, len: self.encoded_len() as u32 };
        out.extend_from_slice(head.as_bytes());
        match self {
            Record::Pool(pool) => out.extend_from_slice(
                PoolBody {
                    next_segment: pool.next_segment,
                    next_table: pool.next_table,
                    next_vdisk: pool.next_vdisk,
                    next_job: pool.next_job,
                }
                .as_bytes(),
            ),
            Record::Disk(disk) => out.extend_from_slice(encode_disk(disk).as_bytes()),
            Record::Vdisk(vdisk) => out.extend_from_slice(encode_vdisk(vdisk).as_bytes()),
            Record::VdiskDrop(id)
            | Record::TableDrop(id)
            | Record::SegmentDrop(id)
            | Record::DiskDrop(id)
            | Record::JobDrop(id) => {
                out.extend_from_slice(DropBody { id: *id, pad_0: 0 }.as_bytes());
            }
            Record::Settings(settings) => out.extend_from_slice(encode_settings(settings).as_bytes()),
            Record::Job(job) => out.extend_from_slice(encode_job(job).as_bytes()),
            Record::Table(table) => out.extend_from_slice(
                TableBody { id: table.id, layout: encode_layout(table.layout), pad_0: 0, disks: table.disks }
                    .as_bytes(),
            ),
            Record::Segment(segment) => encode_segment(segment, out),
            Record::Chunk(ChunkRecord { table, chunk, pages }) => out.extend_from_slice(
                ChunkBody {
                    table: *table,
                    chunk: *chunk,
                    segment: pages.segment,
                    first: pages.first,
                    count: pages.count,
                    pad_0: 0,
                }
                .as_bytes(),
            ),
            Record::Commit(commit) => {
                let body = CommitBody {
                    stripe: commit.stripe,
                    table: commit.table,
                    segment: commit.segment,
                    index: commit.index,
                    sums: commit.sums.len() as u32,
                    retires: commit.retires,
                };
                out.extend_from_slice(body.as_bytes());
                out.extend_from_slice(commit.sums.as_bytes());
            }
            Record::Unmap(unmap) => out.extend_from_slice(
                UnmapBody {
                    first: unmap.first,
                    count: unmap.count,
                    retires: unmap.retires,
                    table: unmap.table,
                    pad_0: 0,
                }
                .as_bytes(),
            ),
            Record::Landed(landed) => {
                let body = LandedBody { offset: landed.offset, vdisk: landed.vdisk, len: landed.data.len() as u32 };
                out.extend_from_slice(body.as_bytes());
                out.extend_from_slice(&landed.data);
            }
        }
        out.resize(start + self.encoded_len(), 0);
    }

    fn kind(&self) -> u16 {
        match self {
            Record::Pool(_) => kind::POOL,
            Record::Disk(_) => kind::DISK,
            Record::Vdisk(_) => kind::VDISK,
            Record::VdiskDrop(_) => kind::VDISK_DROP,
            Record::Table(_) => kind::TABLE,
            Record::TableDrop(_) => kind::TABLE_DROP,
            Record::Segment(_) => kind::SEGMENT,
            Record::SegmentDrop(_) => kind::SEGMENT_DROP,
            Record::Chunk(_) => kind::CHUNK,
            Record::Commit(_) => kind::COMMIT,
            Record::Unmap(_) => kind::UNMAP,
            Record::Landed(_) => kind::LANDED,
            Record::DiskDrop(_) => kind::DISK_DROP,
            Record::Settings(_) => kind::SETTINGS,
            Record::Job(_) => kind::JOB,
            Record::JobDrop(_) => kind::JOB_DROP,
        }
    }
}

/// Takes the first record off `bytes`.
pub fn decode<'a>(bytes: &mut &'a [u8]) -> Result<Record<'a>> {
    let Ok((head, _)) = RecordHead::read_from_prefix(bytes) else {
        return fail!(Corrupt, "a record's head is cut off");
    };
    let len = head.len as usize;
    if len < HEAD || len > bytes.len() || !len.is_multiple_of(8) {
        return fail!(Corrupt, "a record claims {len} bytes of {}", bytes.len());
    }
    let body = &bytes[HEAD..len];
    *bytes = &bytes[len..];
    Ok(match head.kind {
        kind::POOL => {
            let (pool, _) = take::<PoolBody>(body)?;
            Record::Pool(PoolRecord {
                next_segment: pool.next_segment,
                next_table: pool.next_table,
                next_vdisk: pool.next_vdisk,
                next_job: pool.next_job,
            })
        }
        kind::DISK => Record::Disk(decode_disk(body)?),
        kind::VDISK => Record::Vdisk(decode_vdisk(body)?),
        kind::VDISK_DROP => Record::VdiskDrop(take::<DropBody>(body)?.0.id),
        kind::TABLE => {
            let (table, _) = take::<TableBody>(body)?;
            Record::Table(TableRecord { id: table.id, layout: decode_layout(table.layout)?, disks: table.disks })
        }
        kind::TABLE_DROP => Record::TableDrop(take::<DropBody>(body)?.0.id),
        kind::SEGMENT => Record::Segment(decode_segment(body)?),
        kind::SEGMENT_DROP => Record::SegmentDrop(take::<DropBody>(body)?.0.id),
        kind::CHUNK => {
            let (chunk, _) = take::<ChunkBody>(body)?;
            let pages = PageRun { segment: chunk.segment, first: chunk.first, count: chunk.count };
            Record::Chunk(ChunkRecord { table: chunk.table, chunk: chunk.chunk, pages })
        }
        kind::COMMIT => decode_commit(body)?,
        kind::UNMAP => {
            let (unmap, _) = take::<UnmapBody>(body)?;
            Record::Unmap(UnmapRecord {
                table: unmap.table,
                first: unmap.first,
                count: unmap.count,
                retires: unmap.retires,
            })
        }
        kind::LANDED => {
            let (landed, rest) = take::<LandedBody>(body)?;
            let Some(data) = rest.get(..landed.len as usize) else {
                return fail!(Corrupt, "a landed record claims {} bytes of {}", landed.len, rest.len());
            };
            Record::Landed(LandedRecord { vdisk: landed.vdisk, offset: landed.offset, data: Cow::Borrowed(data) })
        }
        kind::DISK_DROP => Record::DiskDrop(take::<DropBody>(body)?.0.id),
        kind::SETTINGS => Record::Settings(decode_settings(body)?),
        kind::JOB => Record::Job(decode_job(body)?),
        kind::JOB_DROP => Record::JobDrop(take::<DropBody>(body)?.0.id),
        other => return fail!(Corrupt, "records of kind {other} are not known"),
    })
}

fn take<T: FromBytes>(bytes: &[u8]) -> Result<(T, &[u8])> {
    match T::read_from_prefix(bytes) {
        Ok(taken) => Ok(taken),
        Err(_) => fail!(Corrupt, "a record's body is cut off"),
    }
}

fn encode_layout(layout: Layout) -> LayoutBody {
    let (resiliency, copies) = match layout.resiliency() {
        Resiliency::Simple => (0, 1),
        Resiliency::Mirror { copies } => (1, copies),
        Resiliency::Parity { parity } => (2, parity),
    };
    LayoutBody {
        resiliency,
        copies,
        columns: layout.columns() as u8,
        pad_0: 0,
        interleave: layout.interleave().0 as u32,
    }
}

fn decode_layout(body: LayoutBody) -> Result<Layout> {
    let resiliency = match body.resiliency {
        0 => Resiliency::Simple,
        1 => Resiliency::Mirror { copies: body.copies },
        2 => Resiliency::Parity { parity: body.copies },
        other => return fail!(Corrupt, "resiliency {other} is not known"),
    };
    Layout::new(resiliency, body.columns, ByteCount(body.interleave as u64))
}

fn encode_disk(disk: &DiskRecord) -> DiskBody {
    DiskBody {
        no: disk.no,
        media: disk.media as u8,
        usage: disk.usage as u8,
        slabs: disk.slabs,
        disk_len: disk.disk_len.0,
        name: name_to_bytes(&disk.name),
        domain: name_to_bytes(&disk.domain),
        away: disk.away as u8,
        maintenance: disk.maintenance as u8,
        pad_0: [0; 6],
    }
}

fn decode_disk(body: &[u8]) -> Result<DiskRecord> {
    let (disk, _) = take::<DiskBody>(body)?;
    let media = match disk.media {
        1 => Media::Hdd,
        2 => Media::Ssd,
        _ => Media::Unspecified,
    };
    let usage = match disk.usage {
        1 => Usage::ManualSelect,
        2 => Usage::HotSpare,
        3 => Usage::Journal,
        4 => Usage::Retired,
        _ => Usage::AutoSelect,
    };
    let away = match disk.away {
        0 => Away::No,
        1 => Away::Tracked,
        _ => Away::Unknown,
    };
    Ok(DiskRecord {
        no: disk.no,
        media,
        usage,
        slabs: disk.slabs,
        disk_len: ByteCount(disk.disk_len),
        name: name_from_bytes(&disk.name),
        domain: name_from_bytes(&disk.domain),
        away,
        maintenance: disk.maintenance != 0,
    })
}

fn encode_settings(settings: &SettingsRecord) -> SettingsBody {
    SettingsBody {
        repair_after: settings.repair_after,
        scrub_every: settings.scrub_every,
        scrubbed: settings.scrubbed,
        foreground_share: settings.foreground_share,
        full: settings.full,
        pad_0: 0,
    }
}

fn decode_settings(body: &[u8]) -> Result<SettingsRecord> {
    let (settings, _) = take::<SettingsBody>(body)?;
    Ok(SettingsRecord {
        repair_after: settings.repair_after,
        scrub_every: settings.scrub_every,
        scrubbed: settings.scrubbed,
        foreground_share: settings.foreground_share.min(90),
        full: settings.full,
    })
}

fn encode_job(job: &JobRecord) -> JobBody {
    let (kind, disk, to, forget) = match job.kind {
        JobKind::Repair => (0, DISK_ABSENT, None, false),
        JobKind::Scrub => (1, DISK_ABSENT, None, false),
        JobKind::Rebalance => (2, DISK_ABSENT, None, false),
        JobKind::Evacuate { disk, to, forget } => (3, disk, to, forget),
    };
    JobBody {
        id: job.id,
        kind,
        state: job.state as u8,
        disk,
        to: to.unwrap_or(DISK_ABSENT),
        forget: forget as u8,
        pad_0: 0,
        cursor: job.cursor,
        began: job.began,
        done: job.done,
        total: job.total,
        bad: job.bad,
        healed: job.healed,
    }
}

fn decode_job(body: &[u8]) -> Result<JobRecord> {
    let (job, _) = take::<JobBody>(body)?;
    let kind = match job.kind {
        0 => JobKind::Repair,
        1 => JobKind::Scrub,
        2 => JobKind::Rebalance,
        3 => {
            JobKind::Evacuate { disk: job.disk, to: (job.to != DISK_ABSENT).then_some(job.to), forget: job.forget != 0 }
        }
        other => return fail!(Corrupt, "jobs of kind {other} are not known"),
    };
    let state = match job.state {
        0 => JobState::Waiting,
        1 => JobState::Running,
        2 => JobState::Paused,
        3 => JobState::Done,
        4 => JobState::Cancelled,
        5 => JobState::Failed,
        other => return fail!(Corrupt, "a job is in state {other}, which is not known"),
    };
    Ok(JobRecord {
        id: job.id,
        kind,
        state,
        began: job.began,
        done: job.done,
        total: job.total,
        cursor: job.cursor,
        bad: job.bad,
        healed: job.healed,
    })
}

fn encode_vdisk(vdisk: &VdiskRecord) -> VdiskBody {
    let mut tables = [0; TABLES_MAX];
    tables[..vdisk.tables.len()].copy_from_slice(&vdisk.tables);
    VdiskBody {
        id: vdisk.id,
        sector: vdisk.sector,
        size: vdisk.size.0,
        fixed: vdisk.fixed as u8,
        pad_0: [0; 3],
        table_count: vdisk.tables.len() as u32,
        tables,
        name: name_to_bytes(&vdisk.name),
    }
}

fn decode_vdisk(body: &[u8]) -> Result<VdiskRecord> {
    let (vdisk, _) = take::<VdiskBody>(body)?;
    let Some(tables) = vdisk.tables.get(..vdisk.table_count as usize) else {
        return fail!(Corrupt, "a virtual disk claims {} tables", vdisk.table_count);
    };
    Ok(VdiskRecord {
        id: vdisk.id,
        name: name_from_bytes(&vdisk.name),
        size: ByteCount(vdisk.size),
        sector: vdisk.sector,
        fixed: vdisk.fixed != 0,
        tables: tables.to_vec(),
    })
}

fn encode_segment(segment: &SegmentRecord, out: &mut Vec<u8>) {
    let body = SegmentBody {
        id: segment.id,
        owner: segment.owner,
        layout: encode_layout(segment.layout),
        sheet_segment: segment.sheet.segment,
        sheet_first: segment.sheet.first,
        sheet_count: segment.sheet.count,
        slots: segment.slabs.len() as u32,
        missed: [segment.missed as u64, (segment.missed >> 64) as u64],
    };
    out.extend_from_slice(body.as_bytes());
    for slab in segment.slabs.iter() {
        let at = slab.unwrap_or(SlabAt { disk: DISK_ABSENT, slab: 0 });
        out.extend_from_slice(SlabBody { disk: at.disk, pad_0: 0, slab: at.slab }.as_bytes());
    }
}

fn decode_segment(body: &[u8]) -> Result<SegmentRecord> {
    let (segment, mut rest) = take::<SegmentBody>(body)?;
    let layout = decode_layout(segment.layout)?;
    if segment.slots as usize != layout.slots() || layout.slots() > SLOTS_MAX {
        return fail!(Corrupt, "a segment of {} slots claims {}", layout.slots(), segment.slots);
    }
    let mut slabs = Vec::with_capacity(layout.slots());
    for _ in 0..segment.slots {
        let (at, after) = take::<SlabBody>(rest)?;
        rest = after;
        slabs.push((at.disk != DISK_ABSENT).then_some(SlabAt { disk: at.disk, slab: at.slab }));
    }
    let sheet = PageRun { segment: segment.sheet_segment, first: segment.sheet_first, count: segment.sheet_count };
    let missed = segment.missed[0] as u128 | (segment.missed[1] as u128) << 64;
    Ok(SegmentRecord { id: segment.id, owner: segment.owner, layout, sheet, slabs: slabs.into(), missed })
}

fn decode_commit(body: &[u8]) -> Result<Record<'_>> {
    let (commit, rest) = take::<CommitBody>(body)?;
    let Some(bytes) = rest.get(..commit.sums as usize * 4) else {
        return fail!(Corrupt, "a commit claims {} checksums", commit.sums);
    };
    let sums = bytes.chunks_exact(4).map(|sum| u32::from_le_bytes(sum.try_into().expect("four bytes"))).collect();
    Ok(Record::Commit(CommitRecord {
        table: commit.table,
        stripe: commit.stripe,
        segment: commit.segment,
        index: commit.index,
        retires: commit.retires,
        sums: Cow::Owned(sums),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn samples() -> Vec<Record<'static>> {
        let layout = Layout::new(Resiliency::Parity { parity: 1 }, 3, ByteCount::kib(24)).unwrap();
        vec![
            Record::Pool(PoolRecord { next_segment: 7, next_table: 3, next_vdisk: 2, next_job: 9 }),
            Record::Disk(DiskRecord {
                no: 3,
                media: Media::Ssd,
                usage: Usage::HotSpare,
                slabs: 9,
                disk_len: ByteCount::gib(1),
                name: "d3".into(),
                domain: "rack 2".into(),
                away: Away::Tracked,
                maintenance: true,
            }),
            Record::Vdisk(VdiskRecord {
                id: 4,
                name: "data".into(),
                size: ByteCount::gib(3),
                sector: 512,
                fixed: true,
                tables: vec![9, 8],
            }),
            Record::VdiskDrop(1),
            Record::Table(TableRecord { id: 9, layout, disks: 0b1011 }),
            Record::TableDrop(2),
            Record::Segment(SegmentRecord {
                id: 11,
                owner: 9,
                layout,
                sheet: PageRun { segment: 1, first: 2, count: 3 },
                slabs: Rc::new([Some(SlabAt { disk: 0, slab: 5 }), None, Some(SlabAt { disk: 2, slab: 6 })]),
                missed: 1 << 95 | 4,
            }),
            Record::SegmentDrop(5),
            Record::Chunk(ChunkRecord { table: 9, chunk: 1, pages: PageRun { segment: 1, first: 8, count: 16 } }),
            Record::Commit(CommitRecord {
                table: 9,
                stripe: 77,
                segment: 11,
                index: 5,
                retires: 1000,
                sums: Cow::Owned(vec![1, 2, 3]),
            }),
            Record::Unmap(UnmapRecord { table: 9, first: 1, count: 2, retires: 3 }),
            Record::Landed(LandedRecord { vdisk: 4, offset: 512, data: Cow::Owned(vec![7; 512]) }),
            Record::DiskDrop(3),
            Record::Settings(SettingsRecord { scrubbed: 1 << 40, ..SettingsRecord::default() }),
            Record::Job(JobRecord {
                id: 4,
                kind: JobKind::Evacuate { disk: 3, to: Some(5), forget: true },
                state: JobState::Paused,
                began: 1 << 33,
                done: 1,
                total: 2,
                cursor: 3,
                bad: 4,
                healed: 5,
            }),
            Record::JobDrop(3),
        ]
    }

    #[test]
    fn every_record_reads_back_as_it_was_written() {
        let mut bytes = Vec::new();
        for record in samples() {
            let before = bytes.len();
            record.encode(&mut bytes);
            assert_eq!(bytes.len() - before, record.encoded_len());
        }
        let mut rest = &bytes[..];
        for record in samples() {
            assert_eq!(decode(&mut rest).unwrap(), record);
        }
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn damaged_records_are_errors_or_other_records_but_never_a_panic(
            at in 0usize..2000, value in any::<u8>(), cut in 0usize..2000,
        ) {
            let mut bytes = Vec::new();
            samples().iter().for_each(|record| record.encode(&mut bytes));
            let at = at % bytes.len();
            bytes[at] = value;
            bytes.truncate(bytes.len() - cut % bytes.len());
            let mut rest = &bytes[..];
            while !rest.is_empty() && decode(&mut rest).is_ok() {}
        }
    }
}
