//! What lies on disks, for people who have to find out what happened: labels, checkpoint, log and tree as they are,
//! whether a pool could be opened from them or not.
//!
//! ```text
//!   disks --> labels, slot by slot (label.rs) --> the newest of each pool --> checkpoint --> log (log.rs)
//!                                                                                '--> tree (tree.rs), copy by copy
//! ```
//!
//! Invariants
//! 1. Nothing is written, and nothing is healed: a second look finds what the first one found.
//! 2. There is an answer whatever lies there. What cannot be read, or contradicts itself, is part of it.
//! 3. What is believed is decided by the functions that an opening decides with; who differs from it would mislead.
//! 4. Disks may be in use meanwhile: then the parts of the answer may be of different moments, and nothing else.

mod label;
mod log;
mod tree;
mod words;

pub use label::{Member, Slot};
pub use log::{Lacking, LogDump};
pub use tree::{BadCopy, Entry, TreeDump};
pub use words::Described;

use crate::checksum::crc32c;
use crate::disk_set::DiskSet;
use crate::exec::LocalBoxFuture;
use crate::format::Id;
use crate::format::label::{DiskPlan, Label};
use crate::format::record::{self, OWNER_METADATA, Record, SlabAt};
use crate::io::{Buf, Disk};
use crate::store::quorum::{self, Standing};
use crate::tree::KeyRange;
use crate::units::{BLOCK, ByteCount, DiskNo, DiskOffset, SegmentNo};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use label::Looked;

/// What to tell beside the summary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Every record of the checkpoint and of the log.
    pub records: bool,
    /// The tree's entries with these keys.
    pub keys: Option<KeyRange>,
}

/// What lies on some disks.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The label slots of each disk, in the order in which the disks were given.
    pub disks: Vec<Vec<Slot>>,
    /// The pools that they belong to.
    pub pools: Vec<PoolDump>,
}

/// What lies on the disks of one pool.
#[derive(Clone, Debug)]
pub struct PoolDump {
    /// The newest label, and of which disk (as they were given) it is.
    pub newest: (usize, Label),
    /// The disks that the newest label names, and any other one that carries the pool's label.
    pub members: Vec<Member>,
    /// Whether enough disks are there, and believed, to open it without a person's word.
    pub opens: bool,
    /// The number of a disk whose history could be gone on from as well.
    pub rival: Option<DiskNo>,
    /// The newest checkpoint.
    pub checkpoint: CheckpointDump,
    /// The log's live part.
    pub log: LogDump,
    /// The tree; none where the checkpoint names none, or was not found.
    pub tree: Option<TreeDump>,
}

/// The newest checkpoint.
#[derive(Clone, Debug, Default)]
pub struct CheckpointDump {
    /// The disks that hold an unharmed copy.
    pub sound: DiskSet,
    /// The voters that are there and hold none.
    pub harmed: DiskSet,
    /// Records by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Every record, if wanted.
    pub records: Vec<Described>,
    /// Why not all of it could be read.
    pub wrong: Option<String>,
}

/// A disk that is there, with its plan.
struct Place {
    disk: Rc<dyn Disk>,
    plan: DiskPlan,
    standing: Standing,
}

/// The disks of one pool that are there, by number.
struct Places {
    by_no: BTreeMap<DiskNo, Place>,
    slab: ByteCount,
}

/// Tells what lies on `disks`.
pub fn dump(disks: Vec<Rc<dyn Disk>>, wanted: &Wanted) -> LocalBoxFuture<'_, Dump> {
    Box::pin(async move {
        let mut looked = Vec::new();
        for disk in disks {
            looked.push(Looked::at(disk).await);
        }
        let mut ids: Vec<Id> = looked.iter().filter_map(|looked| Some(looked.label.as_ref()?.pool_id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut pools = Vec::new();
        for id in ids {
            pools.extend(dump_pool(id, &looked, wanted).await);
        }
        Dump { disks: looked.into_iter().map(|looked| looked.slots).collect(), pools }
    })
}

async fn dump_pool(id: Id, looked: &[Looked], wanted: &Wanted) -> Option<PoolDump> {
    let labelled = looked.iter().enumerate().filter_map(|(nth, looked)| Some((nth, looked.label.as_ref()?)));
    let own: Vec<(usize, &Label)> = labelled.filter(|(_, label)| label.pool_id == id).collect();
    let newest = quorum::newest(own.iter().map(|(_, label)| *label))?.clone();
    let from = own.iter().find(|(_, label)| **label == newest)?.0;
    let members = label::members(&newest, &own);
    let labels: Vec<&Label> = own.iter().map(|(_, label)| *label).collect();
    let current = members.iter().filter(|member| member.standing == Some(Standing::Current));
    let current = current.map(|member| member.no).collect();
    let places = Places::of(&members, looked, newest.slab_len);
    let mut told = PoolDump {
        opens: quorum::may_open(newest.membership.voters, current),
        rival: quorum::rival(&newest, &labels).map(|label| label.disk_no),
        newest: (from, newest),
        members,
        checkpoint: CheckpointDump::default(),
        log: LogDump::default(),
        tree: None,
    };
    let mut homes: BTreeMap<SegmentNo, Vec<SlabAt>> = BTreeMap::new();
    let mut root = None;
    let label = &told.newest.1;
    told.checkpoint = dump_checkpoint(label, &places, wanted, |record| match record {
        Record::Tree(tree) => root = Some(tree.root),
        record => note_home(&mut homes, record),
    })
    .await;
    told.log = log::dump(label, &places, wanted, |record| note_home(&mut homes, record)).await;
    if let Some(root) = root {
        told.tree = Some(tree::dump(&root, places, homes, wanted).await);
    }
    Some(told)
}

/// Takes note of where a metadata segment lies. One that moved is looked for at both places: its pages prove
/// themselves.
fn note_home(homes: &mut BTreeMap<SegmentNo, Vec<SlabAt>>, record: &Record<'_>) {
    if let Record::Segment(segment) = record
        && segment.owner == OWNER_METADATA
    {
        let known = homes.entry(segment.id).or_default();
        known.extend(segment.slabs.iter().flatten());
        known.sort_unstable();
        known.dedup();
    }
}

/// The newest checkpoint, as every voter holds it; its records are shown to `each`.
async fn dump_checkpoint(
    label: &Label,
    places: &Places,
    wanted: &Wanted,
    mut each: impl FnMut(&Record<'_>),
) -> CheckpointDump {
    let mut told = CheckpointDump::default();
    let mut found = None;
    let anchor = &label.anchor;
    for (no, place) in places.by_no.iter().filter(|(no, _)| label.membership.voters.contains(**no)) {
        let DiskPlan { blob_at, blob_len, .. } = place.plan;
        let len = ByteCount(anchor.checkpoint_len);
        let blob = match len <= blob_len {
            true => place.read(blob_at + blob_len * (anchor.checkpoint_no % 2), len.0).await,
            false => None,
        };
        match blob.filter(|blob| crc32c(&blob[..len.as_usize()]) == anchor.checkpoint_crc) {
            Some(blob) => {
                told.sound.insert(*no);
                found = Some(blob);
            }
            None => told.harmed.insert(*no),
        }
    }
    let Some(blob) = found else {
        told.wrong = Some("no voter that is there holds an unharmed copy".into());
        return told;
    };
    let mut rest = &blob[..anchor.checkpoint_len as usize];
    while !rest.is_empty() {
        match record::decode(&mut rest) {
            Ok(record) => {
                each(&record);
                let described = Described::of(&record, None);
                *told.kinds.entry(described.kind).or_default() += 1;
                told.records.extend(wanted.records.then_some(described));
            }
            Err(error) => {
                told.wrong = Some(error.to_string());
                return told;
            }
        }
    }
    told
}

impl Places {
    fn of(members: &[Member], looked: &[Looked], slab: ByteCount) -> Places {
        let mut by_no = BTreeMap::new();
        for member in members {
            if let (Some(nth), Some(standing)) = (member.disk, member.standing)
                && let Some(label) = &looked[nth].label
            {
                let place = Place { disk: looked[nth].disk.clone(), plan: label.plan, standing };
                by_no.entry(member.no).or_insert(place);
            }
        }
        Places { by_no, slab }
    }

    /// Where block `block` of a slab is, unless there is no such block.
    fn locate(&self, at: SlabAt, block: u32) -> Option<(&Place, DiskOffset)> {
        let place = self.by_no.get(&at.disk)?;
        let there = at.slab < place.plan.slabs && u64::from(block) < self.slab.0 / BLOCK;
        let offset = place.plan.data_at + self.slab * u64::from(at.slab) + ByteCount(u64::from(block) * BLOCK);
        there.then_some((place, offset))
    }
}

impl Place {
    /// `len` bytes from `at` on, and what follows them up to a whole block. `None`: they cannot be read.
    async fn read(&self, at: DiskOffset, len: u64) -> Option<Buf> {
        let len = len.next_multiple_of(BLOCK);
        if at.0.checked_add(len)? > self.disk.shape().capacity.0 {
            return None;
        }
        self.disk.read(at, Buf::zeroed(len as usize)).await.ok()
    }
}
