//! Making a pool: an empty configuration, written the way a checkpoint writes it, and then the labels that make it one.

use super::plan::check_name;
use crate::checksum::crc32c;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::FEATURE_WIDE;
use crate::format::Id;
use crate::format::label::DISKS_NARROW;
use crate::format::label::{Anchor, BatchBound, DiskPlan, LOG_MIN, Label, Membership};
use crate::format::lineage::Lineage;
use crate::format::record::{Away, DiskRecord, Media, PoolRecord, PowerProtected, Record, Usage};
use crate::io::{Buf, Disk};
use crate::limits::{DISKS_MAX, SLAB_MAX, SLAB_MIN};
use crate::store::choice::{self, Candidate};
use crate::store::labels::LOGGERS_MIN;
use crate::units::{BLOCK, ByteCount, DiskNo, DiskOffset, JobNo, SegmentNo, TableNo, VdiskNo};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// How much of its beginning and of its end a disk loses that is given back: where others look for what a disk is.
const BLANKED: u64 = 1 << 20;
/// How much of it is discarded at a time: a disk has something else to do, too.
const DISCARDED: u64 = 1 << 30;

/// A disk for a new pool.
pub struct NewDisk {
    /// The disk.
    pub disk: Rc<dyn Disk>,
    /// Random bits that name it for ever.
    pub id: Id,
    /// Its name, for people.
    pub name: String,
    /// What it is made of.
    pub media: Media,
}

/// What a new pool is to be.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Random bits that name it for ever.
    pub id: Id,
    /// Its name, for people.
    pub name: String,
    /// Bytes of a slab: a power of two times 1 MiB, 1 MiB to 1 GiB.
    pub slab: ByteCount,
    /// Bytes of the log ring on every disk, if not what suits the smallest disk.
    pub log_len: Option<ByteCount>,
}

/// Judges the plan of a new pool, and says where the parts of each disk will lie. Changes nothing.
pub fn plan_pool(capacities: &[ByteCount], options: &PoolOptions) -> Result<Vec<DiskPlan>> {
    check_name(&options.name)?;
    if !(SLAB_MIN..=SLAB_MAX).contains(&options.slab) || !options.slab.0.is_power_of_two() {
        return fail!(
            InvalidInput,
            "a slab has {SLAB_MIN} to {SLAB_MAX}, a power of two, not {} bytes",
            options.slab.0
        );
    }
    if capacities.is_empty() || capacities.len() > DISKS_MAX {
        return fail!(InvalidInput, "a pool has 1 to {DISKS_MAX} disks, not {}", capacities.len());
    }
    if let Some(len) = options.log_len
        && (len.0 < LOG_MIN || !len.is_multiple_of(BLOCK))
    {
        return fail!(InvalidInput, "a log has at least {LOG_MIN} bytes, a multiple of {BLOCK}, not {}", len.0);
    }
    let smallest = capacities.iter().min().copied().unwrap_or(ByteCount::ZERO);
    let log_len = match options.log_len {
        Some(len) => len,
        None => DiskPlan::new(smallest, options.slab, None)?.log_len,
    };
    let plan = if is_wide(capacities.len()) { DiskPlan::wide } else { DiskPlan::new };
    let plan = |capacity: &ByteCount| plan(*capacity, options.slab, Some(log_len));
    capacities.iter().map(plan).collect()
}

/// Whether the labels of a pool of `count` new disks have annexes.
fn is_wide(count: usize) -> bool {
    count > DISKS_NARROW
}

/// Makes a pool of `disks`. Whatever they held is lost.
pub fn create(disks: Vec<NewDisk>, options: &PoolOptions) -> LocalBoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let capacities: Vec<ByteCount> = disks.iter().map(|disk| disk.disk.shape().capacity).collect();
        let plans = plan_pool(&capacities, options)?;
        let mut records = vec![Record::Pool(PoolRecord {
            next_segment: SegmentNo(1),
            next_table: TableNo(1),
            next_vdisk: VdiskNo(1),
            next_job: JobNo(1),
            next_disk: DiskNo(disks.len() as u16),
        })];
        for (no, (disk, plan)) in disks.iter().zip(&plans).enumerate() {
            records.push(Record::Disk(DiskRecord {
                no: DiskNo(no as u16),
                media: disk.media,
                usage: Usage::AutoSelect,
                slabs: plan.slabs,
                disk_len: plan.disk_len,
                name: disk.name.clone(),
                domain: String::new(),
                away: Away::No,
                maintenance: false,
                retired_from: Usage::AutoSelect,
                power: PowerProtected::Auto,
            }));
        }
        let mut blob = Vec::new();
        records.iter().for_each(|record| record.encode(&mut blob));
        let all: DiskSet = (0..disks.len() as u16).map(DiskNo).collect();
        let candidate = |(no, disk): (usize, &NewDisk)| Candidate {
            no: DiskNo(no as u16),
            usage: Usage::AutoSelect,
            media: disk.media,
            domain: "",
            now: false,
        };
        let candidates: Vec<Candidate<'_>> = disks.iter().enumerate().map(candidate).collect();
        let mut disk_ids = Box::new([Id::default(); DISKS_MAX]);
        disks.iter().enumerate().for_each(|(no, disk)| disk_ids[no] = disk.id);
        let (voters, loggers) = (choice::voters(&candidates), choice::loggers(&candidates, LOGGERS_MIN));
        let membership = Membership { members: all, current: all, voters, loggers };
        let anchor = Anchor {
            checkpoint_no: 1,
            checkpoint_len: blob.len() as u64,
            checkpoint_crc: crc32c(&blob),
            log_tail_batch: 1,
            log_seq: 1,
            ..Anchor::default()
        };
        // Old labels go first: a disk must never be half of two pools. The blobs and empty logs come next, the labels
        // that refer to them last.
        for (disk, plan) in disks.iter().zip(&plans) {
            wipe(&disk.disk, plan).await?;
            let blob_at = plan.blob_at + plan.blob_len;
            write(&disk.disk, blob_at, Buf::copy_of(&blob)).await?;
            write(&disk.disk, plan.log_at, Buf::zeroed(BLOCK as usize)).await?;
            flush(&disk.disk).await?;
        }
        for (no, (disk, plan)) in disks.iter().zip(&plans).enumerate() {
            let mut label = Label {
                pool_id: options.id,
                pool_name: options.name.clone(),
                features: if is_wide(disks.len()) { FEATURE_WIDE } else { 0 },
                disk_id: disk.id,
                disk_no: DiskNo(no as u16),
                serial: 0,
                epoch: 1,
                durable_epoch: 1,
                durable_voters: voters,
                seen_epochs: Box::new([0; DISKS_MAX]),
                lineage: Lineage::founded(),
                promised: 0,
                opened_batch: 1,
                batch_bound: BatchBound::default(),
                slab_len: options.slab,
                plan: *plan,
                membership,
                anchor,
                disk_ids: disk_ids.clone(),
            };
            let annexes = DiskPlan::label_annexes(plan.disk_len);
            for (slot, at) in DiskPlan::label_slots(plan.disk_len).into_iter().enumerate() {
                label.serial = (slot % 2) as u64;
                let (block, annex) = label.encode();
                if let Some(annex) = annex {
                    write(&disk.disk, annexes[slot], annex).await?;
                }
                write(&disk.disk, at, block).await?;
            }
            flush(&disk.disk).await?;
        }
        Ok(())
    })
}

/// Makes a disk one that belongs to no pool.
pub fn wipe<'a>(disk: &'a Rc<dyn Disk>, plan: &'a DiskPlan) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        for at in DiskPlan::label_slots(plan.disk_len) {
            write(disk, at, Buf::zeroed(BLOCK as usize)).await?;
        }
        flush(disk).await
    })
}

/// Gives a disk back for other use: its beginning and its end are blank afterwards, so that nothing takes it for what
/// it was. What lies between is discarded where the disk can: then all of it is blank, and a file takes no room.
pub fn give_back<'a>(disk: &'a Rc<dyn Disk>, plan: &'a DiskPlan) -> LocalBoxFuture<'a, Result<()>> {
    Box::pin(async move {
        wipe(disk, plan).await?;
        let len = BLANKED.min(plan.disk_len.0 / 2).next_multiple_of(BLOCK);
        for at in [0, plan.disk_len.0 - len] {
            write(disk, DiskOffset(at), Buf::zeroed(len as usize)).await?;
        }
        flush(disk).await?;
        let (mut at, end) = (len, plan.disk_len.0 - len);
        while at < end {
            let piece = DISCARDED.min(end - at);
            // A disk that cannot is given back all the same.
            if disk.discard(DiskOffset(at), ByteCount(piece)).await.is_err() {
                break;
            }
            at += piece;
        }
        Ok(())
    })
}

async fn write(disk: &Rc<dyn Disk>, at: DiskOffset, buf: Buf) -> Result<()> {
    match disk.write(at, vec![buf.freeze()]).await {
        Ok(()) => Ok(()),
        Err(error) => fail!(NotPossible, "a disk of the new pool cannot be written at {}: {error}", at.0),
    }
}

async fn flush(disk: &Rc<dyn Disk>) -> Result<()> {
    match disk.flush().await {
        Ok(()) => Ok(()),
        Err(error) => fail!(NotPossible, "a disk of the new pool cannot be flushed: {error}"),
    }
}
