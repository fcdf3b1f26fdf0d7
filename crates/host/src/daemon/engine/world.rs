//! The world as one pool sees it: the engine thread's, with its events told under the pool's and its disks' names.

use crate::daemon::events::Journal;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use weft_engine::event::Event;
use weft_engine::exec::Task;
use weft_engine::pool::Pool;
use weft_engine::pool::job::JobState;
use weft_engine::units::Nanos;
use weft_engine::world::World;

/// The world of one pool.
pub struct PoolWorld {
    inner: Rc<dyn World>,
    journal: Arc<Journal>,
    /// The names are known when the pool is open.
    pool: OnceCell<Weak<Pool>>,
    /// What happened before that.
    waiting: RefCell<Vec<Event>>,
    /// What its disks are called, or were when they left.
    disks: RefCell<BTreeMap<u16, String>>,
}

impl PoolWorld {
    /// The world of a pool that is being opened.
    pub fn new(inner: Rc<dyn World>, journal: Arc<Journal>) -> Rc<PoolWorld> {
        let (pool, waiting, disks) = (OnceCell::new(), RefCell::default(), RefCell::default());
        Rc::new(PoolWorld { inner, journal, pool, waiting, disks })
    }

    /// The pool is open: tells what happened until now, and everything later at once, under its names.
    pub fn introduce(&self, pool: &Rc<Pool>) {
        if self.pool.set(Rc::downgrade(pool)).is_ok() {
            self.waiting.take().iter().for_each(|event| self.tell(event));
        }
    }

    /// What a disk is called, or was when it left; its number when that is not known.
    pub fn disk_name(&self, no: u16) -> String {
        // Where an event is told while the map is being changed, the names of before must do.
        if let Some(pool) = self.pool.get().and_then(Weak::upgrade)
            && let Ok(map) = pool.store().map.try_borrow()
            && let Some(disk) = map.disks.get(&no)
        {
            self.disks.borrow_mut().insert(no, disk.record.name.clone());
        }
        self.disks.borrow().get(&no).cloned().unwrap_or_else(|| no.to_string())
    }

    fn tell(&self, event: &Event) {
        let Some(pool) = self.pool.get() else { return self.waiting.borrow_mut().push(event.clone()) };
        let Some(pool) = pool.upgrade().map(|pool| pool.name()) else { return };
        let text = match event {
            // The daemon tells where such a disk is.
            Event::DiskForeign { .. } => return,
            Event::DiskLost { disk, reason } if reason == "maintenance" => format!("{disk} is in maintenance"),
            event => event.to_string(),
        };
        let bad = match event {
            Event::DiskLost { reason, .. } => reason != "maintenance",
            Event::JobEnded { state, .. } => *state == JobState::Failed,
            Event::BlockBad { .. }
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
        self.inner.spawn(name, task);
    }

    fn emit(&self, event: Event) {
        self.tell(&event);
        self.inner.emit(event);
    }
}

/// The engine's sentence, which calls disks by their numbers, with their names instead.
pub fn named(text: &str, name: &dyn Fn(u16) -> String) -> String {
    const DISK: &str = "disk ";
    let mut named = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(DISK) {
        let (before, after) = rest.split_at(at + DISK.len());
        named += before;
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let whole = !after[digits..].starts_with(|c: char| c.is_alphanumeric() || "._-+".contains(c));
        match after[..digits].parse() {
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
    use weft_engine::event::DiskNo;

    #[test]
    fn events_are_told_with_the_names_of_the_disks() {
        let name = |no: u16| if no == 1 { "left".to_string() } else { no.to_string() };
        let lost = |no| Event::DiskLost { disk: DiskNo(no), reason: "a cable".into() }.to_string();
        assert_eq!(named(&lost(1), &name), "disk left lost: a cable");
        assert_eq!(named(&lost(12), &name), "disk 12 lost: a cable");
        assert_eq!(named("job 1 began: replace disk 1 by disk 2", &name), "job 1 began: replace disk left by disk 2");
        for text in ["disk 1x", "disk 1-a", "disk ", "a disk", "disk 99999999 is", ""] {
            assert_eq!(named(text, &name), text);
        }
    }
}
