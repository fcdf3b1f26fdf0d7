//! Opening a pool, after a clean stop or a crash alike. The steps are in [`Pool::open`], in their order.
//!
//! Invariants
//! 1. The newest label decides who is a member and who is current; a disk that it does not name as current, or whose
//!    own label is older than that allows, is never asked for metadata.
//! 2. Opening needs a majority of the newest label's voters, or `degraded` and all that is left (`store/quorum.rs`).
//! 3. No label is believed whose counters are not likely beside those of the other disks (`Counters`): it counts as
//!    damaged.
//! 4. Before anything is written under this opening, its number is promised and then durable in the labels: log batches
//!    of an earlier opening cannot pass for its own.

use super::Pool;
use super::compact::compactor;
use super::job::{due_watch, runner};
use super::keeper::{log_keeper, memory_keeper, metadata_keeper};
use super::mover::mover;
use crate::checksum::crc32c;
use crate::disk_set::DiskSet;
use crate::error::Result;
use crate::event::Event;
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::format::label::{Counters, DiskPlan, Label, UNSEEN};
use crate::format::record::{self, Away};
use crate::io::Disk;
use crate::log::Log;
use crate::mutant::{self, Mutant};
use crate::segment::Map;
use crate::store::labels::read_slot;

use crate::store::commit::committer;
use crate::store::drain::{Discards, drainer};
use crate::store::freeze::{freeze_watch, frozen};
use crate::store::heat::Heats;
use crate::store::labels::Labels;
use crate::store::packs::PacksSaid;
use crate::store::pages::Pages;
use crate::store::quorum::{self, Standing};
use crate::store::replay::Replayed;

use crate::store::state::{Commits, Signals, Traffic};
use crate::store::{Member, PoolCounters, Store, Tuning, join};
use crate::units::{BLOCK, ByteCount, DiskNo, SegmentNo, VdiskNo};
use crate::vdisk::Vdisk;
use crate::world::World;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// How to open a pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Change nothing.
    pub read_only: bool,
    /// Go on with fewer than a majority of the metadata copies.
    pub degraded: bool,
    /// A random number, other for every opening: what this one writes is told apart by it from what another machine may
    /// write. 0: one follows from the clock, which is good enough where there is no other machine.
    pub lineage: u64,
    /// See [`Tuning`].
    pub tuning: Tuning,
}

/// The newest sound label of a disk, and how many of its four slots are damaged. `Ok(None)`: it carries none.
pub fn probe(disk: &Rc<dyn Disk>) -> LocalBoxFuture<'_, Result<Option<(Label, usize)>>> {
    Box::pin(async move { Ok(Label::newest_alone(read_slots(disk).await?)) })
}

/// The labels in the four slots of a disk, those that can be read.
pub(super) async fn read_slots(disk: &Rc<dyn Disk>) -> Result<Vec<Label>> {
    let capacity = disk.shape().capacity;
    if capacity.0 < 4 * BLOCK {
        return Ok(Vec::new());
    }
    let reads = DiskPlan::label_slots(capacity).into_iter().zip(DiskPlan::label_annexes(capacity));
    let reads = reads.map(|(at, annex)| read_slot(&**disk, at, annex));
    Label::decode_slots(join(reads).await.into_iter().flatten())
}

/// One of the disks a pool is opened with.
struct Found {
    disk: Rc<dyn Disk>,
    label: Label,
    damaged: usize,
}

impl Pool {
    /// Opens the pool that `disks` carry, in whatever order.
    pub fn open(
        world: Rc<dyn World>,
        disks: Vec<Rc<dyn Disk>>,
        options: OpenOptions,
    ) -> LocalBoxFuture<'static, Result<Rc<Pool>>> {
        Box::pin(async move {
            let found = read_labels(disks).await?;
            let newest = choose_newest(&found)?;
            let found = leave_strangers(&world, found, &newest);
            check_shapes(&newest, &found)?;
            check_rivals(&newest, &found)?;
            let store = make_store(world, &newest, &found, &options)?;
            read_configuration(&store, &newest).await?;
            *store.meta.homes.borrow_mut() = store.metadata_homes();
            let replayed = store.replay(&newest.anchor).await?;
            store.count_untold_space().await?;
            store.load_kept_tables().await?;
            // A disk without a record was being added, or removed, when the power went.
            store.members.borrow_mut().retain(|no, _| store.map.borrow().disks.contains_key(no));
            if store.map.borrow().disks.keys().any(|no| !store.members.borrow().contains_key(no)) {
                return fail!(
                    Corrupt,
                    "the configuration of pool {} has a disk that its labels do not know",
                    newest.pool_name
                );
            }
            // Which disks there are was not known while the configuration was applied.
            tell_of_disks(&store);
            store.map.borrow_mut().recount()?;
            store.load_tree_room().await?;
            note_health(&store);
            let pool = Rc::new(Pool {
                store: store.clone(),
                vdisks: RefCell::default(),
                checkpointing: Default::default(),
                joining: Default::default(),
                jobs: Default::default(),
                moves_tiers: Default::default(),
            });
            pool.open_vdisks(&replayed)?;
            if !options.read_only {
                pool.start_writing(&newest, &found, &replayed, &options)
                    .await
                    .inspect_err(|_| pool.store.stop_tasks())?;
            }
            store.world.emit(Event::PoolOpened { replayed: replayed.batches, torn: replayed.torn });
            Ok(pool)
        })
    }

    fn open_vdisks(&self, replayed: &Replayed) -> Result<()> {
        let ids: Vec<VdiskNo> = self.store.map.borrow().vdisks.keys().copied().collect();
        for id in ids {
            self.vdisks.borrow_mut().insert(id, Vdisk::new(self.store.clone(), id));
        }
        for landed in &replayed.landed {
            if let Some(vdisk) = self.vdisks.borrow().get(&landed.vdisk) {
                vdisk.restore_landed(landed.seq, landed.offset, &landed.data)?;
            }
        }
        Ok(())
    }

    /// The first writes: labels that name this opening, then whatever damage was seen is put right by a checkpoint.
    async fn start_writing(
        self: &Rc<Self>,
        newest: &Label,
        found: &[Found],
        replayed: &Replayed,
        options: &OpenOptions,
    ) -> Result<()> {
        let store = &self.store;
        // What was replayed, and the labels themselves, may be in the disks' caches only, if a process was killed: no
        // label may be overwritten, and none that follows from the log be written, before that is durable.
        let there =
            store.members.borrow().iter().filter(|(_, member)| member.disk.is_some()).map(|(no, _)| *no).collect();
        if !mutant::active(Mutant::OpeningFlushesNothing) {
            store.flush_all(there).await;
        }
        // Before anything is written: what comes to be of it is on record with the first checkpoint, and the log that
        // tells of it stays until then.
        let rolled_back = store.rolled_back(&replayed.last).await;
        self.begin_opening(newest, found, options).await?;
        store.move_log().await?;
        let given_back = store.map.borrow_mut().drop_empty_segments();
        store.append_all(given_back);
        self.note_absent(rolled_back, &replayed.segments);
        store.heal_suspects().await;
        store.free_empty_packs();
        store.world.spawn("jobs", Box::pin(runner(self.clone())));
        store.world.spawn("due watch", Box::pin(due_watch(self.clone())));
        store.world.spawn("committer", Box::pin(committer(store.clone())));
        store.world.spawn("freeze watch", Box::pin(freeze_watch(store.clone())));
        store.world.spawn("drainer", Box::pin(drainer(store.clone())));
        store.world.spawn("compactor", Box::pin(compactor(self.clone())));
        store.world.spawn("log keeper", Box::pin(log_keeper(self.clone())));
        store.world.spawn("memory keeper", Box::pin(memory_keeper(self.clone())));
        store.world.spawn("metadata keeper", Box::pin(metadata_keeper(self.clone())));
        store.start_follower();
        store.start_shelves();
        let damaged = found.iter().filter(|found| found.damaged > 0);
        for disk in damaged.clone() {
            store.metadata_healed(disk.label.disk_no, "label");
        }
        let healed = store.counters.metadata_healed.get() > 0;
        if replayed.batches > 0 || damaged.count() > 0 || healed || store.pages.outrun.get() {
            // It writes the labels, too: with the ones before it every slot is fresh.
            self.checkpoint().await?;
        }
        store.set_opening(false);
        // Nobody could ask for anything so far: that is no lull.
        store.world.spawn("mover", Box::pin(mover(self.clone())));
        self.start_tier_mover();
        Ok(())
    }

    /// Has this opening promised, and makes it the truth.
    async fn begin_opening(&self, newest: &Label, found: &[Found], options: &OpenOptions) -> Result<()> {
        let store = &self.store;
        let opening = quorum::next_opening(found.iter().map(|found| &found.label));
        let labels: Vec<Label> = found.iter().map(|found| found.label.clone()).collect();
        store.promise(opening, &labels, options.degraded).await?;
        let number = match options.lineage {
            0 => (store.world.now().0 ^ opening.rotate_left(40)) | 1 << 63,
            number => number,
        };
        let lineage = newest.lineage.opened_as(opening, number);
        store.log.belongs_to(number);
        store.labels.opened_batch.set(store.log.batch_number());
        store.labels.batch_bound.set(store.log.bound_after(newest.batch_bound));
        *store.labels.lineage.borrow_mut() = lineage;
        // Nobody can bring a disk back before the pool is open: to wait for one would be to wait for ever.
        store.set_opening(true);
        if options.degraded {
            // A person says that the others do not count.
            let mut durable = store.labels.durable.get();
            durable.voters &= store.current_set();
            store.labels.durable.set(durable);
            store.labels.joint.set(DiskSet::EMPTY);
        }
        store.open_tree_for_writing(opening, number);
        store.writing.set(true);
        store.review_freeze();
        if let Some(reason) = store.frozen() {
            return Err(frozen(reason));
        }
        // Twice: a disk that was put back from a copy made before this opening is then more than one epoch behind.
        for _ in 0..2 {
            store.labels.outdated.set(true);
            store.write_labels().await?;
        }
        Ok(())
    }
}

impl Pool {
    /// What the disks lack that are not there, or are behind: from now on it is kept on record; what they lack already
    /// is, if they were seen to go.
    /// A disk that is away may come back as a copy that has its last label and nothing of what was written since, which
    /// is in `segments`: that counts as missed.
    fn note_absent(&self, rolled_back: BTreeSet<DiskNo>, segments: &BTreeSet<SegmentNo>) {
        let behind: Vec<(DiskNo, bool, bool)> = {
            let members = self.store.members.borrow();
            let is_behind = |member: &Member| member.disk.is_none() || !member.current || member.out_of_step;
            let behind = members.iter().filter(|(_, member)| is_behind(member));
            behind.map(|(no, member)| (*no, member.was_current, member.out_of_step)).collect()
        };
        let careless = mutant::active(Mutant::UnknownAbsenceTracked);
        let forgets = mutant::active(Mutant::AbsenceForgetsLog);
        let segments: Vec<SegmentNo> = segments.iter().copied().filter(|_| !forgets).collect();
        for (no, was_current, out_of_step) in behind {
            let tracked = was_current || careless;
            self.store.note_away(no, if tracked { Away::Tracked } else { Away::Unknown }, &segments);
            // What was on record was true of what it held before it was put back.
            if out_of_step && !careless {
                self.store.note_unknown(no);
            }
        }
        // One that lacks a batch which others have, and not the last one only, lost what it had called durable: it was
        // put back from a copy.
        let last = self.store.log.batch_number().saturating_sub(1);
        let lacked = self.store.commits.lacked.borrow();
        let lacks_batches = lacked.iter().filter(|(_, number)| **number < last).map(|(no, _)| *no);
        let rolled_back: BTreeSet<DiskNo> = lacks_batches.chain(rolled_back).collect();
        drop(lacked);
        for no in rolled_back {
            self.store.world.emit(Event::DiskOutOfStep { disk: no, diverged: false });
            match careless {
                true => self.store.note_away(no, Away::Tracked, &[]),
                false => self.store.note_unknown(no),
            }
        }
    }
}

async fn read_labels(disks: Vec<Rc<dyn Disk>>) -> Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    let slots = join(disks.iter().map(read_slots)).await.into_iter().collect::<Result<Vec<_>>>()?;
    for (no, disk) in disks.into_iter().enumerate() {
        // The history of all other disks; a disk that is alone has that of its other slots only, and those are of one
        // hand.
        let others = slots.iter().enumerate().filter(|(other, slots)| *other != no && !slots.is_empty());
        let others =
            others.map(|(_, slots)| slots.iter().map(Label::counters).reduce(Counters::max).unwrap_or_default());
        let others = others.reduce(Counters::max);
        let believed = |label: &Label| {
            let counters = label.counters();
            others.map_or(counters.are_possible(), |others| counters.are_likely_beside(&others))
        };
        let Some((label, damaged)) = Label::newest(slots[no].clone(), believed) else { continue };
        if found.iter().any(|other| other.label.pool_id != label.pool_id) {
            return fail!(
                InvalidInput,
                "the disks belong to different pools: {} and {}",
                found[0].label.pool_name,
                label.pool_name
            );
        }
        if label.plan.disk_len > disk.shape().capacity {
            return fail!(
                Corrupt,
                "disk {} of pool {} was {} when it joined and has {} now: it was cut off",
                label.disk_id,
                label.pool_name,
                label.plan.disk_len,
                disk.shape().capacity
            );
        }
        if found.iter().any(|other| other.label.disk_id == label.disk_id) {
            return fail!(
                AlreadyExists,
                "disk {} of pool {} is there twice: one is a copy of the other, take it away",
                label.disk_id,
                label.pool_name
            );
        }
        found.push(Found { disk, label, damaged });
    }
    Ok(found)
}

fn choose_newest(found: &[Found]) -> Result<Label> {
    match quorum::newest(found.iter().map(|found| &found.label)) {
        Some(label) => Ok(label.clone()),
        None => fail!(NotFound, "none of the disks carries a pool"),
    }
}

/// Two histories that could both be gone on from: only the owner knows which one is to be kept.
fn check_rivals(newest: &Label, found: &[Found]) -> Result<()> {
    let labels: Vec<&Label> = found.iter().map(|found| &found.label).collect();
    let Some(rival) = quorum::rival(newest, &labels) else { return Ok(()) };
    let of = |history: &Label| {
        let theirs = labels.iter().filter(|label| history.lineage.follows(&label.lineage));
        theirs.map(|label| label.disk_no).collect::<Vec<DiskNo>>()
    };
    fail!(
        NotPossible,
        "pool {} was used twice, each time without the other's disks: disks {:?} know nothing of disks {:?}; take those away whose data is to be given up, open the pool, and add them again",
        newest.pool_name,
        of(newest),
        of(rival)
    )
}

/// All disks of a pool have slabs and logs of one length.
fn check_shapes(newest: &Label, found: &[Found]) -> Result<()> {
    let other = |label: &Label| (label.slab_len, label.plan.log_len) != (newest.slab_len, newest.plan.log_len);
    match found.iter().find(|found| other(&found.label)) {
        Some(Found { label, .. }) => fail!(
            Corrupt,
            "the label of disk {} contradicts that of disk {}, pool {}: take the one away that was tampered with, and open the pool without it",
            label.disk_no,
            newest.disk_no,
            newest.pool_name
        ),
        None => Ok(()),
    }
}

/// Disks that were removed from the pool, and still carry its label, are left alone.
fn leave_strangers(world: &Rc<dyn World>, found: Vec<Found>, newest: &Label) -> Vec<Found> {
    let (members, strangers): (Vec<Found>, Vec<Found>) = found.into_iter().partition(|found| {
        let no = found.label.disk_no;
        newest.membership.members.contains(no) && newest.disk_ids[no.0 as usize] == found.label.disk_id
    });
    for stranger in strangers {
        world.emit(Event::DiskForeign { id: stranger.label.disk_id, pool: newest.pool_name.clone() });
    }
    members
}

fn make_store(world: Rc<dyn World>, newest: &Label, found: &[Found], options: &OpenOptions) -> Result<Rc<Store>> {
    let membership = newest.membership;
    let mut members = BTreeMap::new();
    let mut current = DiskSet::EMPTY;
    for no in membership.members.iter() {
        let id = newest.disk_ids[no.0 as usize];
        let here = found.iter().find(|found| found.label.disk_id == id && found.label.disk_no == no);
        let named_current = membership.current.contains(no);
        let standing = here.map(|found| quorum::standing(newest, &found.label));
        let believed = standing.map_or(named_current, |standing| standing == Standing::Current);
        let believed = believed || mutant::active(Mutant::StaleDiskTrusted);
        if believed && here.is_some() {
            current.insert(no);
        }
        let put_back = here.is_some_and(|found| quorum::is_put_back(newest, &found.label));
        let put_back = put_back && !mutant::active(Mutant::StaleDiskTrusted);
        let seen = newest.seen_epochs[no.0 as usize];
        let strayed = here.is_some_and(|found| quorum::has_strayed(&newest.lineage, seen, &found.label));
        let diverged = strayed || standing == Some(Standing::Diverged);
        let out_of_step = put_back || here.is_some() && !believed && (named_current || diverged);
        if out_of_step {
            world.emit(Event::DiskOutOfStep { disk: no, diverged });
        }
        let plan = here.map_or(newest.plan, |found| found.label.plan);
        let mut member = Member::new(id, plan, here.map(|found| found.disk.clone()), believed);
        member.label_serial = here.map_or(1, |found| found.label.serial);
        member.current_epoch = if named_current { newest.epoch } else { 0 };
        member.seen_epoch = if seen == UNSEEN { 0 } else { seen };
        member.out_of_step = out_of_step || seen == UNSEEN;
        members.insert(no, member);
    }
    if (membership.voters & current).is_empty() || !quorum::may_open(membership.voters, current) && !options.degraded {
        let (present, voters) = ((membership.voters & current).len(), membership.voters.len());
        let missing: Vec<DiskNo> =
            members.iter().filter(|(no, _)| !current.contains(**no)).map(|(no, _)| *no).collect();
        return fail!(
            NotPossible,
            "pool {} has {present} of its {voters} metadata copies, disks {missing:?} are missing or out of date: a majority is needed, or 'weft serve --degraded'",
            newest.pool_name
        );
    }
    let joint = voters_before(newest, found);
    let following = found.iter().filter(|found| newest.lineage.follows(&found.label.lineage));
    let following = following.map(|found| found.label.disk_no).collect();
    if !joint.is_empty() && !quorum::may_open(joint, following) && !options.degraded {
        return fail!(
            NotPossible,
            "the last change of pool {} was cut short, and too few disks are there to say whether it holds: more than half of those that voted before it are needed, or 'weft serve --degraded'",
            newest.pool_name
        );
    }
    let mut map = Map::new(newest.slab_len);
    let there = members.iter().filter(|(_, member)| member.disk.is_some());
    map.slabs_max = there.map(|(no, member)| (*no, member.plan.slabs)).collect();
    map.shelf_memory = options.tuning.shelf_memory;
    map.config_max = members.values().map(|member| member.plan.blob_len).min().unwrap_or(ByteCount::ZERO);
    let traffic = Traffic::new(&world, &options.tuning);
    let heats = Heats::new(world.now());
    let store = Store {
        world,
        id: newest.pool_id,
        slab: newest.slab_len,
        read_only: options.read_only,
        tuning: options.tuning,
        members: RefCell::new(members),
        map: RefCell::new(map),
        log: Log::new(newest.plan.log_len.0, options.tuning.batch_bytes, &newest.anchor),
        pages: Pages::default(),
        tables: Default::default(),
        meta: Default::default(),
        labels: labels_of(newest, joint),
        traffic,
        commits: Commits::default(),
        compaction: Default::default(),
        signals: Signals::default(),
        limbo: Default::default(),
        freeze: Default::default(),
        follower: Default::default(),
        log_places: Default::default(),
        heats,
        stopping: Cell::new(false),
        writing: Cell::new(false),
        discards: Discards::default(),
        packs_said: PacksSaid::new(newest.features),
        counters: PoolCounters::default(),
    };
    Ok(Rc::new(store))
}

/// The voters whose majority is needed beside that of the newest label, which may never have been durable. None: it
/// was, for every disk that it calls current has it.
fn voters_before(newest: &Label, found: &[Found]) -> DiskSet {
    let has = |no: DiskNo| {
        let of = |found: &&Found| found.label.disk_no == no && found.label.lineage == newest.lineage;
        found.iter().find(of).is_some_and(|found| found.label.epoch >= newest.epoch)
    };
    let mut current = newest.membership.current.iter();
    if current.all(has) { DiskSet::EMPTY } else { newest.durable_voters }
}

fn labels_of(newest: &Label, joint: DiskSet) -> Labels {
    let labels = Labels::new(newest);
    labels.joint.set(joint);
    if joint.is_empty() {
        labels.durable_epoch.set(newest.epoch);
        labels.durable_voters.set(newest.membership.voters);
    }
    labels
}

/// The configuration of the newest checkpoint, from any current voter that has it unharmed. All of them are looked at:
/// a damaged copy that is found only when the others are gone is found too late.
async fn read_configuration(store: &Rc<Store>, newest: &Label) -> Result<()> {
    let anchor = newest.anchor;
    let mut damaged = Vec::new();
    let mut unharmed = None;
    let len = ByteCount(anchor.checkpoint_len);
    let read = |no: DiskNo| async move {
        let plan = store.members.borrow()[&no].plan;
        let at = plan.blob_at + plan.blob_len * (anchor.checkpoint_no % 2);
        let whole = len.as_usize().next_multiple_of(BLOCK as usize);
        let blob = if len > plan.blob_len { None } else { store.disk_read(no, at, whole).await.ok() };
        (no, blob)
    };
    for (no, blob) in join(store.voters().into_iter().map(read)).await {
        match blob.filter(|blob| crc32c(&blob[..len.as_usize()]) == anchor.checkpoint_crc) {
            Some(blob) => unharmed = unharmed.or(Some(blob)),
            None => damaged.push(no),
        }
    }
    let Some(blob) = unharmed else {
        return fail!(Lost, "no disk of pool {} holds an undamaged copy of its configuration", newest.pool_name);
    };
    let mut rest = &blob[..anchor.checkpoint_len as usize];
    while !rest.is_empty() {
        let record = record::decode(&mut rest)?;
        store.map.borrow_mut().apply(record)?;
    }
    if store.map.borrow().tree.is_none() {
        // All of the configuration was there: the next checkpoint puts it into the tree.
        store.touch_everything();
    }
    store.open_tree()?;
    store.load_configuration().await?;
    store.load_space().await?;
    store.map.borrow_mut().prove_chunks()?;
    // The next checkpoint writes it anew to every voter.
    damaged.into_iter().for_each(|no| store.metadata_healed(no, "checkpoint"));
    Ok(())
}

/// Tells the map which disks are there.
fn tell_of_disks(store: &Store) {
    let members = store.members.borrow();
    let mut map = store.map.borrow_mut();
    for (no, member) in members.iter() {
        if let Some(room) = map.disks.get_mut(no) {
            room.healthy = member.disk.is_some();
            room.current = member.disk.is_some() && member.current;
        }
    }
}

/// Tells the world which disks are not there.
fn note_health(store: &Rc<Store>) {
    let now = store.world.now();
    for (_, member) in store.members.borrow_mut().iter_mut().filter(|(_, member)| member.disk.is_none()) {
        member.gone = Some(now);
    }
    let members = store.members.borrow();
    // What is not there lacks something when it is back.
    let away = members.iter().filter(|(_, member)| member.disk.is_none() || !member.current);
    away.for_each(|(no, _)| store.labels.strike(*no));
    for (no, member) in members.iter() {
        match (&member.disk, member.current) {
            (None, _) => store.world.emit(Event::DiskLost { disk: *no, reason: "it is missing".into() }),
            (Some(_), false) => store.world.emit(Event::DiskReturned { disk: *no }),
            _ => {}
        }
    }
}
