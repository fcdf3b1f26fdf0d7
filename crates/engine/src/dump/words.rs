//! Records and entries of the tree in words.

use crate::format::record::{
    self, CacheChoice, JobKind, OWNER_METADATA, ReadCacheRecord, Record, SegmentRecord, TableRecord, VdiskRecord,
};
use crate::store::heat::HEAT;
use crate::store::meta::conf::{self, CONF};
use crate::store::meta::room::ROOM;
use crate::store::meta::sheets::SHEETS;
use crate::store::meta::space::SPACE;
use crate::tree::Key;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A record in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// Its sequence number; none in a checkpoint.
    pub seq: Option<u64>,
    /// Its kind, as `docs/on-disk-format.md` calls it.
    pub kind: &'static str,
    /// What it states.
    pub text: String,
}

impl Described {
    /// Describes `record`.
    pub fn of(record: &Record<'_>, seq: Option<u64>) -> Described {
        let (kind, text) = in_words(record);
        Described { seq, kind, text }
    }
}

/// What there is, or is no more.
fn in_words(record: &Record<'_>) -> (&'static str, String) {
    match record {
        Record::Pool(next) => (
            "POOL",
            format!(
                "next segment {}, table {}, virtual disk {}, job {}, disk {}",
                next.next_segment, next.next_table, next.next_vdisk, next.next_job, next.next_disk
            ),
        ),
        Record::Disk(disk) => (
            "DISK",
            format!(
                "{}: {:?}, {:?}, {:?}, {} in {} slabs, behind: {:?}, power-protected: {:?}{}",
                disk.no,
                disk.name,
                disk.usage,
                disk.media,
                disk.disk_len,
                disk.slabs,
                disk.away,
                disk.power,
                if disk.maintenance { ", in maintenance" } else { "" }
            ),
        ),
        Record::Vdisk(vdisk) => (
            "VDISK",
            format!(
                "{}: {:?}, {}, sectors of {}, {}, tables {:?}{}",
                vdisk.id,
                vdisk.name,
                vdisk.size,
                vdisk.sector,
                if vdisk.fixed { "fixed" } else { "thin" },
                vdisk.tables,
                cache_of(vdisk) + &tier_of(vdisk)
            ),
        ),
        Record::VdiskDrop(id) => ("VDISK_DROP", id.to_string()),
        Record::ReadCache(cache) => ("READ_CACHE", read_cache_in_words(cache)),
        Record::Table(table) => ("TABLE", table_in_words(table)),
        Record::TableDrop(id) => ("TABLE_DROP", id.to_string()),
        Record::Segment(segment) => ("SEGMENT", segment_in_words(segment)),
        Record::SegmentDrop(id) => ("SEGMENT_DROP", id.to_string()),
        Record::Tree(tree) => ("TREE", format!("a root, {} changes of its places", tree.changes.len())),
        Record::Chunk(chunk) => (
            "CHUNK",
            format!(
                "{} of table {}: pages {}+{} of segment {}, versions {:?}",
                chunk.chunk, chunk.table, chunk.pages.first, chunk.pages.count, chunk.pages.segment, chunk.versions
            ),
        ),
        Record::DiskDrop(no) => ("DISK_DROP", no.to_string()),
        Record::JobDrop(id) => ("JOB_DROP", id.to_string()),
        Record::Commit(_)
        | Record::Move(_)
        | Record::Unmap(_)
        | Record::Landed(_)
        | Record::Pack(_)
        | Record::Settings(_)
        | Record::Job(_)
        | Record::Event(_) => done_in_words(record),
    }
}

/// What was done, or is to be done.
fn done_in_words(record: &Record<'_>) -> (&'static str, String) {
    match record {
        Record::Commit(commit) => (
            "COMMIT",
            format!(
                "stripe {} of table {}: index {} of segment {}, birth {}; retires landed records below {}",
                commit.stripe, commit.table, commit.index, commit.segment, commit.birth.0, commit.retires
            ),
        ),
        Record::Move(moved) => (
            "MOVE",
            format!(
                "stripe {} of table {}: index {} of segment {}, birth {}",
                moved.stripe, moved.table, moved.index, moved.segment, moved.birth.0
            ),
        ),
        Record::Unmap(unmap) => (
            "UNMAP",
            format!(
                "stripes {}+{} of table {}{}; retires landed records below {}",
                unmap.first,
                unmap.count,
                unmap.table,
                if unmap.zero { ": zeros" } else { "" },
                unmap.retires
            ),
        ),
        Record::Landed(landed) => {
            ("LANDED", format!("{} bytes at {} of virtual disk {}", landed.data.len(), landed.offset, landed.vdisk))
        }
        Record::Pack(pack) => {
            let units: u64 = pack.runs.iter().map(|run| u64::from(run.count)).sum();
            let runs = pack.runs.len();
            let text = format!("stripe {} of table {}: {units} units in {runs} runs", pack.stripe, pack.table);
            ("PACK", format!("{text}; retires landed records below {}", pack.retires))
        }
        Record::Settings(settings) => (
            "SETTINGS",
            format!(
                "repair after {} s, scrub every {} s, last at {} s, {} % for clients, full at {:?} %, tiers at {:?} \
                 minutes of each day",
                settings.repair_after,
                settings.scrub_every,
                settings.scrubbed,
                settings.foreground_share,
                settings.full,
                settings.tiers_at
            ),
        ),
        Record::Job(job) => (
            "JOB",
            format!(
                "{}: {}, {:?}, {} of {} bytes, {} blocks bad, {} healed",
                job.id,
                job_in_words(job.kind),
                job.state,
                job.done,
                job.total,
                job.bad,
                job.healed
            ),
        ),
        Record::Event(event) => {
            let warning = if event.warning { "warning, " } else { "" };
            ("EVENT", format!("{}: {warning}{} ms: {:?}", event.no, event.at_ms, event.text))
        }
        other => unreachable!("{other:?} says what there is"),
    }
}

/// The write-back cache of a virtual disk, where there is one or its owner said that there is to be none.
fn cache_of(vdisk: &VdiskRecord) -> String {
    match (vdisk.cache, vdisk.cache_choice) {
        (None, CacheChoice::Auto) => String::new(),
        (None, CacheChoice::Typed) => ", no cache (typed)".into(),
        (Some(cache), choice) => {
            let by = if choice == CacheChoice::Auto { "auto" } else { "typed" };
            format!(", cache of {} on disks {:?}, {} ({by})", cache.size, cache.disks, cache.layout)
        }
    }
}

/// The fast tier of a virtual disk, where there is one.
fn tier_of(vdisk: &VdiskRecord) -> String {
    vdisk.tier.as_ref().map_or(String::new(), |tier| {
        let pins = if tier.pins.is_empty() { String::new() } else { format!(", pinned {:?}", tier.pins) };
        format!(", fast tier of {} on disks {:?}, {}{pins}", tier.size, tier.disks, tier.layout)
    })
}

fn read_cache_in_words(cache: &ReadCacheRecord) -> String {
    let runs = cache.runs.iter().map(|run| format!("{}/{}+{}", run.disk, run.first, run.count));
    let runs: Vec<String> = runs.collect();
    let (vdisk, size, born) = (cache.vdisk, cache.size, cache.born);
    format!("of virtual disk {vdisk}: {size} on disks {:?}, born {born}, disk/slab {}", cache.disks, runs.join(" "))
}

fn table_in_words(table: &TableRecord) -> String {
    let packs = table.packs.map_or(String::new(), |of| format!(", packed stripes of table {of}"));
    let packs = table.tier.map_or(packs, |of| format!(", fast tier of table {of}"));
    format!("{}: {}, disks {:?}{packs}", table.id, table.layout, table.disks)
}

fn segment_in_words(segment: &SegmentRecord) -> String {
    let owner = match segment.owner {
        OWNER_METADATA => "metadata".to_string(),
        table => format!("table {table}"),
    };
    let slabs: Vec<String> = segment
        .slabs
        .iter()
        .map(|slab| slab.map_or("-".to_string(), |at| format!("{}/{}", at.disk, at.slab)))
        .collect();
    let missed = if segment.missed == 0 { String::new() } else { format!(", slots {:#x} lack strips", segment.missed) };
    format!("{} of {owner}: {}, disk/slab {}{missed}", segment.id, segment.layout, slabs.join(" "))
}

fn job_in_words(kind: JobKind) -> String {
    match kind {
        JobKind::Repair => "repair".into(),
        JobKind::Scrub => "scrub".into(),
        JobKind::Rebalance => "rebalance".into(),
        JobKind::Reshape(vdisk) => format!("reshape virtual disk {vdisk}"),
        JobKind::Optimize(vdisk) => format!("optimize the tiers of virtual disk {vdisk}"),
        JobKind::Evacuate { disk, to: None, .. } => format!("evacuate disk {disk}"),
        JobKind::Evacuate { disk, to: Some(to), .. } => format!("evacuate disk {disk} to disk {to}"),
    }
}

/// What an entry of the tree is.
pub(super) fn kind_of(key: Key) -> &'static str {
    match key.kind {
        CONF if key.major == conf::SEGMENT => "segment",
        CONF if key.major == conf::CHUNK => "chunk",
        CONF => "configuration",
        ROOM => "places",
        SHEETS => "checksum page",
        HEAT => "heat",
        SPACE => "space in use",
        _ => "unknown",
    }
}

/// The value of an entry: a record in words, where it is a whole one, else hexadecimal digits.
pub(super) fn described(key: Key, value: &[u8]) -> String {
    let mut rest = value;
    match record::decode(&mut rest) {
        Ok(record) if key.kind == CONF && rest.is_empty() => in_words(&record).1,
        _ => value.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
