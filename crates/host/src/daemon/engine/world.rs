//! The world as one pool sees it: the engine thread's, with its events told under the pool's and its disks' names.
//!
//! Invariants
//! 1. What one disk says again and again does not drive out what others say: of each kind [`TOLD_FIRST`] events of a
//!    disk are told one by one, and what follows within [`FOLDED`] in one.

use super::border::Border;
use crate::daemon::events::Journal;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use weft_engine::event::Event;
use weft_engine::exec::Task;
use weft_engine::pool::Pool;
use weft_engine::pool::job::JobState;
use weft_engine::units::{DiskNo, Nanos};
use weft_engine::world::World;

/// The world of one pool.
pub struct PoolWorld {
    inner: Rc<dyn World>,
    border: Rc<Border>,
    journal: Arc<Journal>,
    /// The names are known when the pool is open.
    pool: OnceCell<Weak<Pool>>,
    /// What happened before that.
    waiting: RefCell<Vec<Event>>,
    /// What its disks are called, or were when they left.
    disks: RefCell<BTreeMap<DiskNo, String>>,
    /// The disks that are files on the device of another.
    sharing: RefCell<BTreeSet<DiskNo>>,
    /// What is being told again and again (invariant 1).
    repeated: RefCell<BTreeMap<(DiskNo, &'static str), Repeated>>,
    /// For tasks that tell later.
    own: Weak<PoolWorld>,
}

/// Events of a kind that are told one by one before the others are counted only.
const TOLD_FIRST: u64 = 5;
/// For how long they are counted.
const FOLDED: Nanos = Nanos::secs(10);

/// Events of one kind and disk, of the last while.
#[derive(Default)]
struct Repeated {
    since: Nanos,
    count: u64,
}

impl PoolWorld {
    /// The world of a pool that is being opened.
    pub fn new(inner: Rc<dyn World>, journal: Arc<Journal>, border: Rc<Border>) -> Rc<PoolWorld> {
        Rc::new_cyclic(|own| PoolWorld {
            inner,
            border,
            journal,
            pool: OnceCell::new(),
            waiting: RefCell::default(),
            disks: RefCell::default(),
            repeated: RefCell::default(),
            sharing: RefCell::default(),
            own: own.clone(),
        })
    }

    /// The pool is open: tells what happened until now, and everything later at once, under its names.
    pub fn introduce(&self, pool: &Rc<Pool>) {
        if self.pool.set(Rc::downgrade(pool)).is_ok() {
            self.waiting.take().iter().for_each(|event| self.tell(event));
        }
    }

    /// What a disk is called, or was when it left; its number when that is not known.
    pub fn disk_name(&self, no: DiskNo) -> String {
        // Where an event is told while the map is being changed, the names of before must do.
        if let Some(pool) = self.pool.get().and_then(Weak::upgrade)
            && let Ok(map) = pool.store().map.try_borrow()
            && let Some(disk) = map.disks.get(&no)
        {
            self.disks.borrow_mut().insert(no, disk.record.name.clone());
        }
        self.disks.borrow().get(&no).cloned().unwrap_or_else(|| no.to_string())
    }

    /// What disks were called that may have left.
    pub fn know_names(&self, names: BTreeMap<DiskNo, String>) {
        let mut known = self.disks.borrow_mut();
        for (no, name) in names {
            known.entry(no).or_insert(name);
        }
    }

    /// These disks are files on the device of another.
    pub fn know_sharing(&self, disks: BTreeSet<DiskNo>) {
        *self.sharing.borrow_mut() = disks;
    }

    /// Whether a disk is one of those.
    pub fn shares_its_device(&self, no: DiskNo) -> bool {
        self.sharing.borrow().contains(&no)
    }

    /// Whether an event is one too many of its kind (invariant 1). The first of these sees to it that their number is
    /// told.
    fn is_folded(&self, event: &Event) -> bool {
        let Some((disk, what)) = folded_as(event) else { return false };
        let now = self.inner.now();
        let count = {
            let mut repeated = self.repeated.borrow_mut();
            let repeated = repeated.entry((disk, what)).or_default();
            if repeated.count == 0 || now.since(repeated.since) >= FOLDED && repeated.count <= TOLD_FIRST {
                *repeated = Repeated { since: now, count: 0 };
            }
            repeated.count += 1;
            repeated.count
        };
        if count == TOLD_FIRST + 1 {
            let (own, sleep) = (self.own.clone(), self.inner.sleep(FOLDED));
            let tell_later = async move {
                sleep.await;
                let Some(world) = own.upgrade() else { return };
                let count = world.repeated.borrow_mut().remove(&(disk, what)).map_or(0, |repeated| repeated.count);
                let Some(pool) = world.pool.get().and_then(Weak::upgrade) else { return };
                let more = count.saturating_sub(TOLD_FIRST);
                let text = format!("disk {}: {more} more {what}", world.disk_name(disk));
                world.journal.warn(Some(&pool.name()), text);
            };
            self.inner.spawn("events told later", Box::pin(tell_later));
        }
        count > TOLD_FIRST
    }

    fn tell(&self, event: &Event) {
        let Some(pool) = self.pool.get() else { return self.waiting.borrow_mut().push(event.clone()) };
        if self.is_folded(event) {
            return;
        }
        // What is busy is the device, and that has no peers.
        if matches!(event, Event::DiskSlow { disk, .. } if self.shares_its_device(*disk)) {
            return;
        }
        let Some(pool) = pool.upgrade().map(|pool| pool.name()) else { return };
        let text = match event {
            // The daemon tells where such a disk is.
            Event::DiskForeign { .. } => return,
            event => event.to_string(),
        };
        let bad = match event {
            Event::JobEnded { state, .. } => *state == JobState::Failed,
            Event::DiskLost { .. }
            | Event::BlockBad { .. }
            | Event::BlockLost { .. }
            | Event::MetadataHealed { .. }
            | Event::SpareUsed { .. }
            | Event::DiskSlow { slow: true, .. }
            | Event::DiskRetired { .. }
            | Event::DiskUnreliable { .. }
            | Event::DiskStalled { .. }
            | Event::TaskSpins { .. }
            | Event::DiskOutOfStep { .. }
            | Event::PoolFrozen { .. }
            | Event::PoolFailed { .. } => true,
            _ => false,
        };
        let text = named(&text, &|no| self.disk_name(no));
        match bad {
            true => self.journal.warn(Some(&pool), text),
            false => self.journal.note(Some(&pool), text),
        };
    }
}

impl World for PoolWorld {
    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn sleep(&self, span: Nanos) -> Pin<Box<dyn Future<Output = ()>>> {
        self.inner.sleep(span)
    }

    fn spawn(&self, name: &'static str, task: Task) {
        let inside = self.border.guard(task);
        self.inner.spawn(
            name,
            Box::pin(async move {
                let _ = inside.await;
            }),
        );
    }

    fn emit(&self, event: Event) {
        self.tell(&event);
        self.inner.emit(event);
    }
}

/// The disk of an event that may come again and again, and what many of them are called.
fn folded_as(event: &Event) -> Option<(DiskNo, &'static str)> {
    match event {
        Event::BlockBad { disk, checksum: true, .. } => Some((*disk, "checksum mismatches")),
        Event::BlockBad { disk, checksum: false, .. } => Some((*disk, "read errors")),
        Event::BlockHealed { disk, .. } => Some((*disk, "blocks reconstructed and rewritten")),
        Event::BlockLost { disk, .. } => Some((*disk, "blocks lost, beyond the redundancy")),
        Event::MetadataHealed { disk, .. } => Some((*disk, "copies of metadata rewritten from others")),
        _ => None,
    }
}

/// The engine's sentence, which calls disks by their numbers, with their names instead.
pub fn named(text: &str, name: &dyn Fn(DiskNo) -> String) -> String {
    const DISK: &str = "disk ";
    let mut named = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(DISK) {
        let (before, after) = rest.split_at(at + DISK.len());
        named += before;
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let whole = !after[digits..].starts_with(|c: char| c.is_alphanumeric() || "._-+".contains(c));
        match after[..digits].parse().map(DiskNo) {
            Ok(no) if whole => named += &name(no),
            _ => named += &after[..digits],
        }
        rest = &after[digits..];
    }
    named + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_with_the_names_of_the_disks() {
        let name = |no: DiskNo| if no == DiskNo(1) { "left".to_string() } else { no.to_string() };
        let lost = |no| Event::DiskLost { disk: DiskNo(no), reason: "a cable".into() }.to_string();
        assert_eq!(named(&lost(1), &name), "disk left lost: a cable");
        assert_eq!(named(&lost(12), &name), "disk 12 lost: a cable");
        assert_eq!(named("job 1 began: replace disk 1 by disk 2", &name), "job 1 began: replace disk left by disk 2");
        for text in ["disk 1x", "disk 1-a", "disk ", "a disk", "disk 99999999 is", ""] {
            assert_eq!(named(text, &name), text);
        }
    }
}
