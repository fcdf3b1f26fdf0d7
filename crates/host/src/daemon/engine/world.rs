//! The world as one pool sees it: the engine thread's, with its events told under the pool's and its disks' names.

use crate::daemon::events::Journal;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use weft_engine::event::Event;
use weft_engine::exec::Task;
use weft_engine::units::Nanos;
use weft_engine::world::World;

/// The world of one pool.
pub struct PoolWorld {
    inner: Rc<dyn World>,
    journal: Arc<Journal>,
    names: RefCell<Names>,
}

/// The disks' names are known when the pool is open; what happens before waits for them.
enum Names {
    Unknown(Vec<Event>),
    Known { pool: String, disks: BTreeMap<u16, String> },
}

impl PoolWorld {
    /// The world of a pool that is being opened.
    pub fn new(inner: Rc<dyn World>, journal: Arc<Journal>) -> Rc<PoolWorld> {
        Rc::new(PoolWorld { inner, journal, names: RefCell::new(Names::Unknown(Vec::new())) })
    }

    /// The pool is open and has these names: tells what happened until now, and everything later at once.
    pub fn introduce(&self, pool: &str, disks: BTreeMap<u16, String>) {
        let names = Names::Known { pool: pool.to_string(), disks };
        if let Names::Unknown(waiting) = self.names.replace(names) {
            waiting.iter().for_each(|event| self.tell(event));
        }
    }

    fn tell(&self, event: &Event) {
        match &mut *self.names.borrow_mut() {
            Names::Unknown(waiting) => waiting.push(event.clone()),
            Names::Known { pool, disks } => {
                let text = text(event, disks);
                let bad = matches!(
                    event,
                    Event::DiskLost { .. }
                        | Event::BlockBad { .. }
                        | Event::BlockLost { .. }
                        | Event::MetadataHealed { .. }
                        | Event::PoolFailed { .. }
                );
                match bad {
                    true => self.journal.warn(Some(pool), text),
                    false => self.journal.note(Some(pool), text),
                };
            }
        }
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

/// The engine's sentence, which begins with the disk's number, with its name instead.
fn text(event: &Event, disks: &BTreeMap<u16, String>) -> String {
    let text = event.to_string();
    let disk = match event {
        Event::DiskLost { disk, .. }
        | Event::DiskReturned { disk }
        | Event::BlockBad { disk, .. }
        | Event::BlockHealed { disk, .. }
        | Event::BlockLost { disk, .. }
        | Event::MetadataHealed { disk, .. }
        | Event::DiskCaughtUp { disk }
        | Event::DiskAdded { disk }
        | Event::DiskRemoved { disk }
        | Event::SpareUsed { disk } => *disk,
        Event::PoolOpened { .. }
        | Event::DiskForeign { .. }
        | Event::JobStarted { .. }
        | Event::JobEnded { .. }
        | Event::PoolFailed { .. } => return text,
    };
    match (text.strip_prefix(&disk.to_string()), disks.get(&disk.0)) {
        (Some(rest), Some(name)) => format!("disk {name}{rest}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::event::DiskNo;

    #[test]
    fn events_are_told_with_the_names_of_the_disks() {
        let disks = BTreeMap::from([(1, "left".to_string())]);
        let lost = |no| Event::DiskLost { disk: DiskNo(no), reason: "a cable".into() };
        assert_eq!(text(&lost(1), &disks), "disk left lost: a cable");
        assert_eq!(text(&lost(12), &disks), "disk 12 lost: a cable");
    }
}
