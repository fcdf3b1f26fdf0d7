//! The memory of the machine in front of a volume, and where the bytes of a copy come from: writes end when they are in
//! memory, at most at the source's rate; one request after the other goes on to the volume. Nothing is written twice.

use crate::volume::{Done, Volume};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use weft_engine::sync::Signal;
use weft_engine::units::Nanos;
use weft_engine::world::World;
use weft_sim::world::SimWorld;

/// A volume behind memory.
pub struct PageCache(Rc<Inner>);

struct Inner {
    volume: Rc<dyn Volume>,
    /// Bytes it holds at most.
    most: u64,
    /// Bytes per second that come from the source.
    source: u64,
    waiting: RefCell<VecDeque<(u64, u64)>>,
    held: Cell<u64>,
    running: Cell<bool>,
    /// When the source has the next bytes.
    next: Cell<u64>,
    changed: Signal,
}

impl PageCache {
    /// `most` bytes of memory in front of `volume`, filled at `source` bytes per second.
    pub fn new(volume: Rc<dyn Volume>, most: u64, source: u64) -> PageCache {
        PageCache(Rc::new(Inner {
            volume,
            most,
            source,
            waiting: RefCell::default(),
            held: Cell::new(0),
            running: Cell::new(false),
            next: Cell::new(0),
            changed: Signal::new(),
        }))
    }
}

impl Inner {
    async fn write(self: Rc<Self>, at: u64, len: u64) {
        let world = self.volume.world();
        let due = self.next.get().max(world.now().0) + len * 1_000_000_000 / self.source;
        self.next.set(due);
        world.sleep(Nanos(due - world.now().0)).await;
        self.changed.until(|| self.held.get() + len <= self.most).await;
        self.held.set(self.held.get() + len);
        self.waiting.borrow_mut().push_back((at, len));
        if !self.running.replace(true) {
            let cache = self.clone();
            world.spawn("write back", Box::pin(async move { cache.write_back().await }));
        }
    }

    async fn write_back(&self) {
        loop {
            let Some((at, len)) = self.waiting.borrow_mut().pop_front() else { break };
            self.volume.write(at, len, false).await;
            self.held.set(self.held.get() - len);
            self.changed.notify();
        }
        self.running.set(false);
    }
}

impl Volume for PageCache {
    fn world(&self) -> SimWorld {
        self.0.volume.world()
    }

    fn write(&self, at: u64, len: u64, _: bool) -> Done {
        let cache = self.0.clone();
        Box::pin(async move { cache.write(at, len).await })
    }

    fn read(&self, at: u64, len: u64) -> Done {
        self.0.volume.read(at, len)
    }

    fn flush(&self) -> Done {
        let cache = self.0.clone();
        Box::pin(async move {
            cache.changed.until(|| cache.held.get() == 0).await;
            cache.volume.flush().await;
        })
    }

    fn forget(&self, at: u64, len: u64) -> Done {
        self.0.volume.forget(at, len)
    }

    fn moved(&self) -> (u64, u64) {
        self.0.volume.moved()
    }
}
