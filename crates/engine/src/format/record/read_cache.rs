//! Read caches as records.

use super::body::{ReadCacheBody, SlabRunBody};
use super::{ReadCacheRecord, Result, SlabRun, sets, take};
use crate::fail;
use crate::units::{ByteCount, DiskNo, VdiskNo};
use alloc::vec::Vec;
use zerocopy::IntoBytes;

/// The most runs of slabs of one read cache.
pub const READ_CACHE_RUNS_MAX: usize = 256;

pub(super) fn len(cache: &ReadCacheRecord) -> usize {
    let words = sets::beyond(&[cache.disks]) * sets::WORD;
    size_of::<ReadCacheBody>() + cache.runs.len() * size_of::<SlabRunBody>() + words
}

pub(super) fn encode(cache: &ReadCacheRecord, out: &mut Vec<u8>) {
    let ReadCacheRecord { vdisk, size, disks, born, ref runs } = *cache;
    let first = sets::first(disks);
    let body = ReadCacheBody { size: size.0, disks: first, born, vdisk: vdisk.0, runs: runs.len() as u32 };
    out.extend_from_slice(body.as_bytes());
    for SlabRun { disk, first, count } in runs {
        out.extend_from_slice(SlabRunBody { disk: disk.0, pad_0: 0, first: *first, count: *count }.as_bytes());
    }
    sets::encode(&[disks], out);
}

pub(super) fn decode(body: &[u8]) -> Result<ReadCacheRecord> {
    let (cache, mut rest) = take::<ReadCacheBody>(body)?;
    let contradicts = || fail!(Corrupt, "the read cache of virtual disk {} contradicts itself", cache.vdisk);
    if cache.runs as usize > READ_CACHE_RUNS_MAX || cache.size > 1 << 62 {
        return contradicts();
    }
    let mut runs = Vec::with_capacity(cache.runs as usize);
    for _ in 0..cache.runs {
        let (run, after) = take::<SlabRunBody>(rest)?;
        rest = after;
        if run.count == 0 || run.first.checked_add(run.count).is_none() {
            return fail!(Corrupt, "a read cache claims slabs that cannot be");
        }
        runs.push(SlabRun { disk: DiskNo(run.disk), first: run.first, count: run.count });
    }
    // What is left beside whole words fills the record up.
    let disks = sets::decode(cache.disks, &rest[..rest.len() / sets::WORD * sets::WORD])?;
    if disks.is_empty() != runs.is_empty() {
        return contradicts();
    }
    let (vdisk, size) = (VdiskNo(cache.vdisk), ByteCount(cache.size));
    Ok(ReadCacheRecord { vdisk, size, disks, born: cache.born, runs })
}
