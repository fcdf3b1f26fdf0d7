//! The numbers that come next, chunks and landings as records.

use super::*;
use crate::units::{DiskNo, SegmentNo};

pub(super) fn encode_pool(pool: &PoolRecord) -> PoolBody {
    PoolBody {
        next_segment: pool.next_segment.0,
        next_table: pool.next_table.0,
        next_vdisk: pool.next_vdisk.0,
        next_job: pool.next_job.0,
        next_disk: pool.next_disk.0,
        pad_0: [0; 6],
    }
}

pub(super) fn decode_pool(body: &[u8]) -> Result<PoolRecord> {
    // It ended with `next_job` once.
    let mut whole = [0; size_of::<PoolBody>()];
    let len = body.len().min(whole.len());
    whole[..len].copy_from_slice(&body[..len]);
    let (pool, _) = take::<PoolBody>(if len < offset_of!(PoolBody, next_disk) { body } else { &whole })?;
    Ok(PoolRecord {
        next_segment: SegmentNo(pool.next_segment),
        next_table: TableNo(pool.next_table),
        next_vdisk: VdiskNo(pool.next_vdisk),
        next_job: JobNo(pool.next_job),
        next_disk: DiskNo(pool.next_disk),
    })
}

pub(super) fn encode_chunk(chunk: &ChunkRecord) -> ChunkBody {
    ChunkBody {
        table: chunk.table.0,
        chunk: chunk.chunk,
        segment: chunk.pages.segment.0,
        first: chunk.pages.first,
        count: chunk.pages.count,
        pad_0: 0,
        versions: chunk.versions,
    }
}

pub(super) fn decode_chunk(body: &[u8]) -> Result<ChunkRecord> {
    let (chunk, _) = take::<ChunkBody>(body)?;
    let pages = PageRun { segment: SegmentNo(chunk.segment), first: chunk.first, count: chunk.count };
    Ok(ChunkRecord { table: TableNo(chunk.table), chunk: chunk.chunk, pages, versions: chunk.versions })
}

pub(super) fn decode_landed(body: &[u8]) -> Result<LandedRecord<'_>> {
    let (landed, rest) = take::<LandedBody>(body)?;
    let Some(data) = rest.get(..landed.len as usize) else {
        return fail!(Corrupt, "a landed record claims {} bytes of {}", landed.len, rest.len());
    };
    Ok(LandedRecord { vdisk: VdiskNo(landed.vdisk), offset: landed.offset, data: Cow::Borrowed(data) })
}
