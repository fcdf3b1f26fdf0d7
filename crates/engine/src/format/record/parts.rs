//! The numbers that come next, virtual disks, chunks, unmapped stripes and landings as records.

use super::*;
use crate::limits::FINE_SHARE_MAX;
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

pub(super) fn encode_vdisk(vdisk: &VdiskRecord, out: &mut Vec<u8>) {
    let mut tables = [0; TABLES_MAX];
    tables.iter_mut().zip(&vdisk.tables).for_each(|(raw, table)| *raw = table.0);
    let body = VdiskBody {
        id: vdisk.id.0,
        sector: vdisk.sector,
        size: vdisk.size.0,
        fixed: vdisk.fixed as u8,
        cache_choice: vdisk.cache_choice as u8,
        fine_share: vdisk.fine_share.map_or(0, |share| share + 1),
        table_count: vdisk.tables.len() as u32,
        tables,
        name: name_to_bytes(&vdisk.name),
    };
    out.extend_from_slice(body.as_bytes());
    if let Some(CacheRecord { size, layout, disks }) = vdisk.cache {
        out.extend_from_slice(CacheBody { size: size.0, disks, layout: encode_layout(layout) }.as_bytes());
    }
}

pub(super) fn decode_vdisk(body: &[u8]) -> Result<VdiskRecord> {
    let (vdisk, rest) = take::<VdiskBody>(body)?;
    let Some(tables) = vdisk.tables.get(..vdisk.table_count as usize) else {
        return fail!(Corrupt, "a virtual disk claims {} tables", vdisk.table_count);
    };
    if vdisk.fine_share > FINE_SHARE_MAX + 1 {
        return fail!(Corrupt, "a virtual disk claims a fine share of {} thousandths", vdisk.fine_share - 1);
    }
    let cache_choice = match vdisk.cache_choice {
        0 => CacheChoice::Auto,
        1 => CacheChoice::Typed,
        other => return fail!(Corrupt, "somebody chose the cache of a virtual disk who is not known: {other}"),
    };
    Ok(VdiskRecord {
        id: VdiskNo(vdisk.id),
        name: name_from_bytes(&vdisk.name),
        size: ByteCount(vdisk.size),
        sector: vdisk.sector,
        fixed: vdisk.fixed != 0,
        tables: tables.iter().copied().map(TableNo).collect(),
        fine_share: vdisk.fine_share.checked_sub(1),
        cache: if rest.is_empty() { None } else { Some(decode_cache(rest)?) },
        cache_choice,
    })
}

fn decode_cache(body: &[u8]) -> Result<CacheRecord> {
    let (cache, _) = take::<CacheBody>(body)?;
    if cache.disks == 0 || cache.size > 1 << 62 {
        return fail!(Corrupt, "a write-back cache claims {} bytes on disks {:#b}", cache.size, cache.disks);
    }
    Ok(CacheRecord { size: ByteCount(cache.size), layout: decode_layout(cache.layout)?, disks: cache.disks })
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

pub(super) fn encode_unmap(unmap: &UnmapRecord) -> UnmapBody {
    let UnmapRecord { table, first, count, retires, zero } = *unmap;
    UnmapBody { first, count, retires, table: table.0, zero: zero as u32 }
}

pub(super) fn decode_unmap(body: &[u8]) -> Result<UnmapRecord> {
    let (unmap, _) = take::<UnmapBody>(body)?;
    let UnmapBody { first, count, retires, table, zero } = unmap;
    match zero {
        0 | 1 => Ok(UnmapRecord { table: TableNo(table), first, count, retires, zero: zero == 1 }),
        other => fail!(Corrupt, "stripes of table {table} are unmapped in a way that is not known: {other}"),
    }
}

pub(super) fn decode_landed(body: &[u8]) -> Result<LandedRecord<'_>> {
    let (landed, rest) = take::<LandedBody>(body)?;
    let Some(data) = rest.get(..landed.len as usize) else {
        return fail!(Corrupt, "a landed record claims {} bytes of {}", landed.len, rest.len());
    };
    Ok(LandedRecord { vdisk: VdiskNo(landed.vdisk), offset: landed.offset, data: Cow::Borrowed(data) })
}
