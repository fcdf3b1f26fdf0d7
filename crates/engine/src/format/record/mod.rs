//! Log records. The same encoding serves the log and the checkpoint, which is nothing but a log of the present
//! configuration. Format: `docs/on-disk-format.md`, "Records".
//!
//! Invariants
//! 1. A record states an absolute fact ("stripe 7 of table 1 is at segment 3, index 9"), never a change to a fact, so
//!    applying a log twice, or over pages that are newer than it, ends in the same state.
//! 2. Decoding never trusts a length: a record that does not fit its batch, or whose body contradicts itself, ends the
//!    decoding with an error.

mod body;
mod facts;
mod jobs;
mod parts;
mod read_cache;
mod root;
mod sets;

pub(super) use body::kind;
pub(crate) use body::*;
pub use body::{
    CACHE_LEN, CHUNK_LEN, DISK_LEN, EVENT_LEN, JOB_LEN, RecordHead, SEGMENT_LEN, SLAB_LEN, TABLE_LEN, VDISK_LEN,
};
pub use facts::*;
pub use read_cache::READ_CACHE_RUNS_MAX;

use super::{name_from_bytes, name_to_bytes};
use crate::error::Result;
use crate::fail;
use crate::geometry::{Layout, Resiliency};
use crate::limits::{SLOTS_MAX, VDISK_SIZE_MAX};
use crate::units::{BLOCK, Birth, ByteCount, DiskNo, JobNo, SegmentNo, TableNo, VdiskNo};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use body::HEAD;
use core::mem::offset_of;
use jobs::{decode_job, decode_settings, encode_job, encode_settings};
use parts::{
    decode_chunk, decode_landed, decode_pool, decode_table, decode_unmap, decode_vdisk, encode_chunk, encode_pool,
    encode_table, encode_unmap, encode_vdisk,
};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of the record of a virtual disk.
pub fn len_of_vdisk(vdisk: &VdiskRecord) -> usize {
    (HEAD + parts::vdisk_len(vdisk)).next_multiple_of(8)
}

impl Record<'_> {
    /// Bytes of the encoded record.
    pub fn encoded_len(&self) -> usize {
        let body = match self {
            Record::Pool(_) => size_of::<PoolBody>(),
            Record::Disk(_) => size_of::<DiskBody>(),
            Record::Vdisk(vdisk) => parts::vdisk_len(vdisk),
            Record::VdiskDrop(_)
            | Record::TableDrop(_)
            | Record::SegmentDrop(_)
            | Record::DiskDrop(_)
            | Record::JobDrop(_) => size_of::<DropBody>(),
            Record::Settings(_) => size_of::<SettingsBody>(),
            Record::Job(_) => size_of::<JobBody>(),
            Record::Table(table) => size_of::<TableBody>() + sets::beyond(&[table.disks]) * sets::WORD,
            Record::Segment(segment) => size_of::<SegmentBody>() + segment.slabs.len() * size_of::<SlabBody>(),
            Record::Chunk(_) => size_of::<ChunkBody>(),
            Record::Commit(commit) | Record::Move(commit) => size_of::<CommitBody>() + commit.sums.len() * 4,
            Record::Unmap(_) => size_of::<UnmapBody>(),
            Record::Landed(landed) => size_of::<LandedBody>() + landed.data.len(),
            Record::Pack(pack) => size_of::<PackBody>() + pack.runs.len() * size_of::<PackRunBody>(),
            Record::Event(event) => size_of::<EventBody>() + event.text.len(),
            Record::Tree(tree) => root::len(tree),
            Record::ReadCache(cache) => read_cache::len(cache),
        };
        (HEAD + body).next_multiple_of(8)
    }

    /// Appends the encoded record to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let head = RecordHead { kind: self.kind(), pad_0: 0, len: self.encoded_len() as u32 };
        out.extend_from_slice(head.as_bytes());
        match self {
            Record::Pool(pool) => out.extend_from_slice(encode_pool(pool).as_bytes()),
            Record::Disk(disk) => out.extend_from_slice(encode_disk(disk).as_bytes()),
            Record::Vdisk(vdisk) => encode_vdisk(vdisk, out),
            Record::VdiskDrop(VdiskNo(id))
            | Record::TableDrop(TableNo(id))
            | Record::SegmentDrop(SegmentNo(id))
            | Record::JobDrop(JobNo(id)) => {
                out.extend_from_slice(DropBody { id: *id, pad_0: 0 }.as_bytes());
            }
            Record::DiskDrop(DiskNo(no)) => {
                out.extend_from_slice(DropBody { id: u32::from(*no), pad_0: 0 }.as_bytes());
            }
            Record::Settings(settings) => out.extend_from_slice(encode_settings(settings).as_bytes()),
            Record::Job(job) => out.extend_from_slice(encode_job(job).as_bytes()),
            Record::Table(table) => encode_table(table, out),
            Record::Segment(segment) => encode_segment(segment, out),
            Record::Chunk(chunk) => out.extend_from_slice(encode_chunk(chunk).as_bytes()),
            Record::Commit(commit) | Record::Move(commit) => encode_commit(commit, out),
            Record::Unmap(unmap) => out.extend_from_slice(encode_unmap(unmap).as_bytes()),
            Record::Landed(landed) => {
                let body = LandedBody { offset: landed.offset, vdisk: landed.vdisk.0, len: landed.data.len() as u32 };
                out.extend_from_slice(body.as_bytes());
                out.extend_from_slice(&landed.data);
            }
            Record::Pack(pack) => encode_pack(pack, out),
            Record::Event(event) => encode_event(event, out),
            Record::Tree(tree) => root::encode(tree, out),
            Record::ReadCache(cache) => read_cache::encode(cache, out),
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
            Record::Move(_) => kind::MOVE,
            Record::Unmap(_) => kind::UNMAP,
            Record::Landed(_) => kind::LANDED,
            Record::Pack(_) => kind::PACK,
            Record::DiskDrop(_) => kind::DISK_DROP,
            Record::Settings(_) => kind::SETTINGS,
            Record::Job(_) => kind::JOB,
            Record::JobDrop(_) => kind::JOB_DROP,
            Record::Event(_) => kind::EVENT,
            Record::Tree(_) => kind::TREE,
            Record::ReadCache(_) => kind::READ_CACHE,
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
        kind::POOL => Record::Pool(decode_pool(body)?),
        kind::DISK => Record::Disk(decode_disk(body)?),
        kind::VDISK => Record::Vdisk(decode_vdisk(body)?),
        kind::VDISK_DROP => Record::VdiskDrop(VdiskNo(take::<DropBody>(body)?.0.id)),
        kind::TABLE => Record::Table(decode_table(body)?),
        kind::TABLE_DROP => Record::TableDrop(TableNo(take::<DropBody>(body)?.0.id)),
        kind::SEGMENT => Record::Segment(decode_segment(body)?),
        kind::SEGMENT_DROP => Record::SegmentDrop(SegmentNo(take::<DropBody>(body)?.0.id)),
        kind::CHUNK => Record::Chunk(decode_chunk(body)?),
        kind::COMMIT => Record::Commit(decode_commit(body)?),
        kind::MOVE => Record::Move(decode_commit(body)?),
        kind::UNMAP => Record::Unmap(decode_unmap(body)?),
        kind::LANDED => Record::Landed(decode_landed(body)?),
        kind::PACK => Record::Pack(decode_pack(body)?),
        kind::DISK_DROP => Record::DiskDrop(DiskNo(take::<DropBody>(body)?.0.id as u16)),
        kind::SETTINGS => Record::Settings(decode_settings(body)?),
        kind::JOB => Record::Job(decode_job(body)?),
        kind::JOB_DROP => Record::JobDrop(JobNo(take::<DropBody>(body)?.0.id)),
        kind::EVENT => Record::Event(decode_event(body)?),
        kind::TREE => Record::Tree(root::decode(body)?),
        kind::READ_CACHE => Record::ReadCache(read_cache::decode(body)?),
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
        no: disk.no.0,
        media: disk.media as u8,
        usage: disk.usage as u8,
        slabs: disk.slabs,
        disk_len: disk.disk_len.0,
        name: name_to_bytes(&disk.name),
        domain: name_to_bytes(&disk.domain),
        away: disk.away as u8,
        maintenance: disk.maintenance as u8,
        retired_from: disk.retired_from as u8,
        power: disk.power as u8,
        pad_0: [0; 4],
    }
}

fn decode_disk(body: &[u8]) -> Result<DiskRecord> {
    let (disk, _) = take::<DiskBody>(body)?;
    let media = match disk.media {
        1 => Media::Hdd,
        2 => Media::Ssd,
        _ => Media::Unspecified,
    };
    let away = match disk.away {
        0 => Away::No,
        1 => Away::Tracked,
        _ => Away::Unknown,
    };
    Ok(DiskRecord {
        no: DiskNo(disk.no),
        media,
        usage: decode_usage(disk.usage),
        slabs: disk.slabs,
        disk_len: ByteCount(disk.disk_len),
        name: name_from_bytes(&disk.name),
        domain: name_from_bytes(&disk.domain),
        away,
        maintenance: disk.maintenance != 0,
        retired_from: decode_usage(disk.retired_from),
        power: match disk.power {
            1 => PowerProtected::Yes,
            2 => PowerProtected::No,
            _ => PowerProtected::Auto,
        },
    })
}

fn decode_usage(usage: u8) -> Usage {
    match usage {
        1 => Usage::ManualSelect,
        2 => Usage::HotSpare,
        3 => Usage::Journal,
        4 => Usage::Retired,
        _ => Usage::AutoSelect,
    }
}

fn encode_event(event: &EventRecord, out: &mut Vec<u8>) {
    let EventRecord { no, at_ms, told, warning, ref text } = *event;
    let [told @ .., _] = told.to_le_bytes();
    let body = EventBody { no, at_ms, warning: warning as u8, told, len: text.len() as u32 };
    out.extend_from_slice(body.as_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn decode_event(body: &[u8]) -> Result<EventRecord> {
    let (event, rest) = take::<EventBody>(body)?;
    match rest.get(..event.len as usize) {
        // No counter gets beyond that by counting.
        Some(text) if text.len() <= EVENT_TEXT_MAX && event.no < 1 << 62 => Ok(EventRecord {
            no: event.no,
            at_ms: event.at_ms,
            told: u32::from_le_bytes([event.told[0], event.told[1], event.told[2], 0]),
            warning: event.warning != 0,
            text: String::from_utf8_lossy(text).into_owned(),
        }),
        _ => fail!(Corrupt, "event {} claims a text of {} bytes", event.no, event.len),
    }
}

fn encode_pack(pack: &PackRecord, out: &mut Vec<u8>) {
    let PackRecord { table, stripe, retires, ref runs } = *pack;
    out.extend_from_slice(PackBody { stripe, retires, table: table.0, runs: runs.len() as u32 }.as_bytes());
    for run in runs {
        let PackRun { unit, index, count } = *run;
        out.extend_from_slice(PackRunBody { unit, index, count }.as_bytes());
    }
}

fn decode_pack(body: &[u8]) -> Result<PackRecord> {
    let (pack, mut rest) = take::<PackBody>(body)?;
    // The lowest number that is free is taken, and each takes memory.
    if pack.stripe > u32::MAX.into() {
        return fail!(Corrupt, "packed stripe {} cannot be", pack.stripe);
    }
    let mut runs = Vec::new();
    for _ in 0..pack.runs {
        let (run, after) = take::<PackRunBody>(rest)?;
        rest = after;
        let end = run.unit.checked_add(run.count.into());
        if run.index.checked_add(run.count).is_none() || end.is_none_or(|end| end > VDISK_SIZE_MAX.0 / BLOCK) {
            return fail!(Corrupt, "a packed stripe claims units that cannot be");
        }
        runs.push(PackRun { unit: run.unit, index: run.index, count: run.count });
    }
    Ok(PackRecord { table: TableNo(pack.table), stripe: pack.stripe, retires: pack.retires, runs })
}

fn encode_segment(segment: &SegmentRecord, out: &mut Vec<u8>) {
    let body = SegmentBody {
        id: segment.id.0,
        owner: segment.owner.0,
        layout: encode_layout(segment.layout),
        sheet_segment: segment.sheet.segment.0,
        sheet_first: segment.sheet.first,
        sheet_count: segment.sheet.count,
        slots: segment.slabs.len() as u16,
        flags: if segment.owners { SEGMENT_OWNERS } else { 0 },
        missed: [segment.missed as u64, (segment.missed >> 64) as u64],
    };
    out.extend_from_slice(body.as_bytes());
    for slab in segment.slabs.iter() {
        let at = slab.unwrap_or(SlabAt { disk: DISK_ABSENT, slab: 0 });
        out.extend_from_slice(SlabBody { disk: at.disk.0, pad_0: 0, slab: at.slab }.as_bytes());
    }
}

/// The bit of `packs` that says that a table is the fast tier of another one, and has no packed stripes of it.
pub const TABLE_IS_TIER: u32 = 1 << 31;

/// The flag of segments whose sheets have the mark of each stripe's owner.
pub const SEGMENT_OWNERS: u16 = 1;

fn decode_segment(body: &[u8]) -> Result<SegmentRecord> {
    let (segment, mut rest) = take::<SegmentBody>(body)?;
    let layout = decode_layout(segment.layout)?;
    if segment.slots as usize != layout.slots() || layout.slots() > SLOTS_MAX {
        return fail!(Corrupt, "a segment of {} slots claims {}", layout.slots(), segment.slots);
    }
    if segment.flags & !SEGMENT_OWNERS != 0 {
        return fail!(Corrupt, "a segment has flags {:#x}, of which nothing is known", segment.flags);
    }
    let owners = segment.flags & SEGMENT_OWNERS != 0;
    let mut slabs = Vec::with_capacity(layout.slots());
    for _ in 0..segment.slots {
        let (at, after) = take::<SlabBody>(rest)?;
        rest = after;
        slabs.push((at.disk != DISK_ABSENT.0).then_some(SlabAt { disk: DiskNo(at.disk), slab: at.slab }));
    }
    let sheet =
        PageRun { segment: SegmentNo(segment.sheet_segment), first: segment.sheet_first, count: segment.sheet_count };
    let missed = segment.missed[0] as u128 | (segment.missed[1] as u128) << 64;
    Ok(SegmentRecord {
        id: SegmentNo(segment.id),
        owner: TableNo(segment.owner),
        layout,
        sheet,
        owners,
        slabs: slabs.into(),
        missed,
    })
}

fn encode_commit(commit: &CommitRecord<'_>, out: &mut Vec<u8>) {
    let body = CommitBody {
        stripe: commit.stripe,
        table: commit.table.0,
        segment: commit.segment.0,
        index: commit.birth.above(commit.index),
        sums: commit.sums.len() as u32,
        retires: commit.retires,
    };
    out.extend_from_slice(body.as_bytes());
    out.extend_from_slice(commit.sums.as_bytes());
}

fn decode_commit(body: &[u8]) -> Result<CommitRecord<'static>> {
    let (commit, rest) = take::<CommitBody>(body)?;
    let Some(bytes) = rest.get(..commit.sums as usize * 4) else {
        return fail!(Corrupt, "a commit claims {} checksums", commit.sums);
    };
    let sums = bytes.chunks_exact(4).map(|sum| u32::from_le_bytes(sum.try_into().expect("four bytes"))).collect();
    let (index, birth) = Birth::split(commit.index);
    Ok(CommitRecord {
        table: TableNo(commit.table),
        stripe: commit.stripe,
        segment: SegmentNo(commit.segment),
        index,
        birth,
        retires: commit.retires,
        sums: Cow::Owned(sums),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_set::DiskSet;
    use alloc::rc::Rc;
    use alloc::vec;
    use proptest::prelude::*;

    fn samples() -> Vec<Record<'static>> {
        let layout = Layout::new(Resiliency::Parity { parity: 1 }, 3, ByteCount::kib(24)).unwrap();
        let (table, segment, sums) = (TableNo(9), SegmentNo(11), Cow::Owned(vec![1, 2, 3]));
        let birth = Birth::of(1000);
        let commit = CommitRecord { table, stripe: 77, segment, index: 5, birth, retires: 1000, sums };
        vec![
            Record::Pool(PoolRecord {
                next_segment: SegmentNo(7),
                next_table: TableNo(3),
                next_vdisk: VdiskNo(2),
                next_job: JobNo(9),
                next_disk: DiskNo(4),
            }),
            Record::Disk(DiskRecord {
                no: DiskNo(3),
                media: Media::Ssd,
                usage: Usage::HotSpare,
                slabs: 9,
                disk_len: ByteCount::gib(1),
                name: "d3".into(),
                domain: "rack 2".into(),
                away: Away::Tracked,
                maintenance: true,
                retired_from: Usage::Journal,
                power: PowerProtected::No,
            }),
            Record::Vdisk(VdiskRecord {
                id: VdiskNo(4),
                name: "data".into(),
                size: ByteCount::gib(3),
                sector: 512,
                fixed: true,
                tables: vec![TableNo(9), TableNo(8)],
                fine_share: Some(25),
                cache: None,
                tier: None,
                cache_choice: CacheChoice::Typed,
            }),
            Record::Vdisk(VdiskRecord {
                id: VdiskNo(5),
                name: "cached".into(),
                size: ByteCount::gib(3),
                sector: 4096,
                fixed: false,
                tables: vec![TableNo(10)],
                fine_share: None,
                cache: Some(CacheRecord { size: ByteCount::gib(1), layout, disks: DiskSet::from_words(&[0b110]) }),
                tier: None,
                cache_choice: CacheChoice::Auto,
            }),
            Record::Vdisk(VdiskRecord {
                id: VdiskNo(6),
                name: "tiered".into(),
                size: ByteCount::gib(3),
                sector: 4096,
                fixed: false,
                tables: vec![TableNo(11)],
                fine_share: None,
                cache: None,
                tier: Some(TierRecord {
                    size: ByteCount::gib(1),
                    layout,
                    disks: DiskSet::from_words(&[0b110]),
                    pins: vec![0..512, 4096..8192],
                }),
                cache_choice: CacheChoice::Typed,
            }),
            Record::VdiskDrop(VdiskNo(1)),
            Record::Table(TableRecord {
                id: TableNo(9),
                layout,
                disks: DiskSet::from_words(&[0b1011]),
                packs: Some(TableNo(7)),
                tier: None,
            }),
            Record::Table(TableRecord {
                id: TableNo(10),
                layout,
                disks: DiskSet::from_words(&[0b1100]),
                packs: None,
                tier: Some(TableNo(7)),
            }),
            Record::TableDrop(TableNo(2)),
            Record::Segment(SegmentRecord {
                id: SegmentNo(11),
                owner: TableNo(9),
                layout,
                sheet: PageRun { segment: SegmentNo(1), first: 2, count: 3 },
                owners: true,
                slabs: Rc::new([
                    Some(SlabAt { disk: DiskNo(0), slab: 5 }),
                    None,
                    Some(SlabAt { disk: DiskNo(2), slab: 6 }),
                ]),
                missed: 1 << 95 | 4,
            }),
            Record::SegmentDrop(SegmentNo(5)),
            Record::Chunk(ChunkRecord {
                table: TableNo(9),
                chunk: 1,
                pages: PageRun { segment: SegmentNo(1), first: 8, count: 16 },
                versions: [3; 16],
            }),
            Record::Commit(commit.clone()),
            Record::Move(commit),
            Record::Unmap(UnmapRecord { table: TableNo(9), first: 1, count: 2, retires: 3, zero: true }),
            Record::Landed(LandedRecord { vdisk: VdiskNo(4), offset: 512, data: Cow::Owned(vec![7; 512]) }),
            Record::Pack(PackRecord {
                table: TableNo(9),
                stripe: 3,
                retires: 11,
                runs: vec![PackRun { unit: 1 << 40, index: 0, count: 2 }, PackRun { unit: 5, index: 2, count: 1 }],
            }),
            Record::DiskDrop(DiskNo(3)),
            Record::Settings(SettingsRecord { scrubbed: 1 << 40, ..SettingsRecord::default() }),
            Record::Settings(SettingsRecord { tiers_at: Some(0), ..SettingsRecord::default() }),
            Record::Job(JobRecord {
                id: JobNo(4),
                kind: JobKind::Evacuate { disk: DiskNo(3), to: Some(DiskNo(5)), forget: true },
                state: JobState::Paused,
                began: 1 << 33,
                done: 1,
                total: 2,
                cursor: 3,
                bad: 4,
                healed: 5,
            }),
            Record::JobDrop(JobNo(3)),
            Record::Event(EventRecord {
                no: 1 << 40,
                at_ms: 1 << 41,
                told: 0xAB_CDEF,
                warning: true,
                text: "disk d1 löst".into(),
            }),
            Record::Tree(TreeRecord {
                root: core::array::from_fn(|at| at as u8),
                changes: vec![PageChange { segment: SegmentNo(3), first: 1 << 20, count: 2, taken: true }],
                space: true,
            }),
            Record::ReadCache(ReadCacheRecord {
                vdisk: VdiskNo(4),
                size: ByteCount::gib(3),
                disks: DiskSet::from_words(&[0b110]),
                born: 1 << 40,
                runs: vec![
                    SlabRun { disk: DiskNo(1), first: 7, count: 30 },
                    SlabRun { disk: DiskNo(2), first: 0, count: 18 },
                ],
            }),
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
