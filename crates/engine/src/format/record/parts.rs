//! The numbers that come next, virtual disks, chunks, unmapped stripes and landings as records.

use super::*;
use crate::disk_set::DiskSet;
use crate::limits::{FINE_SHARE_MAX, PINS_MAX};
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

pub(super) fn encode_table(table: &TableRecord, out: &mut Vec<u8>) {
    let tier = table.tier.map(|of| of.next().0 | TABLE_IS_TIER);
    let packs = tier.or(table.packs.map(|of| of.next().0)).unwrap_or(0);
    let (layout, disks) = (encode_layout(table.layout), sets::first(table.disks));
    out.extend_from_slice(TableBody { id: table.id.0, layout, packs, disks }.as_bytes());
    sets::encode(&[table.disks], out);
}

pub(super) fn decode_table(body: &[u8]) -> Result<TableRecord> {
    let (table, beyond) = take::<TableBody>(body)?;
    let (layout, of) = (decode_layout(table.layout)?, (table.packs & !TABLE_IS_TIER).checked_sub(1));
    let (packs, tier) = if table.packs & TABLE_IS_TIER == 0 { (of, None) } else { (None, of) };
    let (packs, tier) = (packs.map(TableNo), tier.map(TableNo));
    Ok(TableRecord { id: TableNo(table.id), layout, disks: sets::decode(table.disks, beyond)?, packs, tier })
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
    let no_cache = || CacheBody { size: 0, disks: 0, layout: body_without_layout() };
    let cache = vdisk.cache.map(|cache| CacheBody {
        size: cache.size.0,
        disks: sets::first(cache.disks),
        layout: encode_layout(cache.layout),
    });
    let sets = sets_of(vdisk);
    let words = sets::beyond(&sets) as u32;
    // What follows it must be told from it.
    let has_tier = vdisk.tier.is_some() || words > 0;
    if let Some(cache) = cache.or_else(|| has_tier.then(no_cache)) {
        out.extend_from_slice(cache.as_bytes());
    }
    let no_tier = || TierBody { size: 0, disks: 0, layout: body_without_layout(), pins: 0, words };
    let tier = vdisk.tier.as_ref().map(|tier| {
        let (disks, layout) = (sets::first(tier.disks), encode_layout(tier.layout));
        TierBody { size: tier.size.0, disks, layout, pins: tier.pins.len() as u32, words }
    });
    if let Some(tier) = tier.or_else(|| has_tier.then(no_tier)) {
        out.extend_from_slice(tier.as_bytes());
    }
    for pin in vdisk.tier.iter().flat_map(|tier| &tier.pins) {
        out.extend_from_slice(PinBody { start: pin.start, end: pin.end }.as_bytes());
    }
    sets::encode(&sets, out);
}

/// The sets of disks of its cache and of its tier.
fn sets_of(vdisk: &VdiskRecord) -> [DiskSet; 2] {
    let tier = vdisk.tier.as_ref().map(|tier| tier.disks);
    [vdisk.cache.map(|cache| cache.disks).unwrap_or_default(), tier.unwrap_or_default()]
}

/// Bytes of the body of a virtual disk's record.
pub(in crate::format) fn vdisk_len(vdisk: &VdiskRecord) -> usize {
    let sets = sets_of(vdisk);
    let words = sets.len() * sets::beyond(&sets) * sets::WORD;
    let has_tier = vdisk.tier.is_some() || words > 0;
    let tier = has_tier as usize * size_of::<TierBody>();
    let pins = vdisk.tier.as_ref().map_or(0, |tier| tier.pins.len()) * size_of::<PinBody>();
    let cache = (vdisk.cache.is_some() || has_tier) as usize * size_of::<CacheBody>();
    size_of::<VdiskBody>() + cache + tier + pins + words
}

/// The layout of nothing.
fn body_without_layout() -> LayoutBody {
    LayoutBody { resiliency: 0, copies: 0, columns: 0, pad_0: 0, interleave: 0 }
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
    let (mut cache, rest) = decode_cache(rest)?;
    let (mut tier, of_cache, of_tier) = decode_tier(rest)?;
    if let Some(cache) = &mut cache {
        cache.disks = sets::decode(sets::first(cache.disks), of_cache)?;
    }
    if cache.is_some_and(|cache| cache.disks.is_empty()) {
        return fail!(Corrupt, "a write-back cache claims to lie on no disk");
    }
    if let Some(tier) = &mut tier {
        tier.disks = sets::decode(sets::first(tier.disks), of_tier)?;
    }
    if tier.as_ref().is_some_and(|tier| tier.pins.last().is_some_and(|last| last.end > vdisk.size)) {
        return fail!(Corrupt, "bytes are pinned that virtual disk {} does not have", vdisk.id);
    }
    Ok(VdiskRecord {
        id: VdiskNo(vdisk.id),
        name: name_from_bytes(&vdisk.name),
        size: ByteCount(vdisk.size),
        sector: vdisk.sector,
        fixed: vdisk.fixed != 0,
        tables: tables.iter().copied().map(TableNo).collect(),
        fine_share: vdisk.fine_share.checked_sub(1),
        cache,
        cache_choice,
        tier,
    })
}

fn decode_cache(body: &[u8]) -> Result<(Option<CacheRecord>, &[u8])> {
    if body.is_empty() {
        return Ok((None, body));
    }
    let (cache, rest) = take::<CacheBody>(body)?;
    if cache.disks == 0 && cache.size == 0 && !rest.is_empty() {
        return Ok((None, rest));
    }
    if cache.size > 1 << 62 {
        return fail!(Corrupt, "a write-back cache claims {} bytes", cache.size);
    }
    let (layout, disks) = (decode_layout(cache.layout)?, sets::decode(cache.disks, &[])?);
    Ok((Some(CacheRecord { size: ByteCount(cache.size), layout, disks }), rest))
}

/// The tier, and the words beyond the first one of the set of the cache and of its own.
fn decode_tier(body: &[u8]) -> Result<(Option<TierRecord>, &[u8], &[u8])> {
    if body.is_empty() {
        return Ok((None, body, body));
    }
    let (tier, mut rest) = take::<TierBody>(body)?;
    if tier.size > 1 << 62 || tier.pins as usize > PINS_MAX {
        return fail!(Corrupt, "a fast tier claims {} bytes and {} pins", tier.size, tier.pins);
    }
    let (mut pins, mut last) = (Vec::new(), 0);
    for _ in 0..tier.pins {
        let (PinBody { start, end }, after) = take::<PinBody>(rest)?;
        if start >= end || start < last {
            return fail!(Corrupt, "a fast tier pins bytes {start} to {end} after {last}");
        }
        (rest, last) = (after, end);
        pins.push(start..end);
    }
    let words = (tier.words as usize).saturating_mul(sets::WORD);
    let Some((of_cache, of_tier)) = rest.split_at_checked(words).filter(|(_, own)| own.len() == words) else {
        return fail!(Corrupt, "a virtual disk claims sets of disks of {} words", tier.words);
    };
    if tier.size == 0 && tier.disks == 0 && tier.layout.copies == 0 && words > 0 {
        return Ok((None, of_cache, &[]));
    }
    let (layout, disks) = (decode_layout(tier.layout)?, sets::decode(tier.disks, &[])?);
    Ok((Some(TierRecord { size: ByteCount(tier.size), layout, disks, pins }), of_cache, of_tier))
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
