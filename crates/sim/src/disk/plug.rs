//! A disk as it was plugged in once: after it vanished, this handle of it stays dead, also when the disk is back.

use super::SimDisk;
use std::rc::Rc;
use weft_engine::io::{Buf, Disk, DiskError, DiskShape, IoFuture, IoSlice, WriteCache};
use weft_engine::units::{ByteCount, DiskOffset};

/// A disk as it was plugged in once.
struct Plugged {
    disk: SimDisk,
    time: u64,
}

impl SimDisk {
    /// A handle that answers until the disk vanishes for the next time, as a device node does. The disk itself, used as
    /// a handle, answers again whenever it is back, as a file does.
    pub fn plugged(&self) -> Rc<dyn Disk> {
        Rc::new(Plugged { disk: self.clone(), time: self.unplugged() })
    }

    /// How often it has vanished.
    pub fn unplugged(&self) -> u64 {
        self.0.state.borrow().unplugged
    }
}

impl Plugged {
    fn submit<T: 'static>(&self, ask: impl FnOnce(&SimDisk) -> IoFuture<T> + 'static) -> IoFuture<T> {
        let (disk, time) = (self.disk.clone(), self.time);
        Box::pin(async move {
            match disk.unplugged() == time {
                true => ask(&disk).await,
                false => Err(DiskError::Gone),
            }
        })
    }
}

impl Disk for Plugged {
    fn shape(&self) -> DiskShape {
        self.disk.shape()
    }

    fn read(&self, at: DiskOffset, into: Buf) -> IoFuture<Buf> {
        self.submit(move |disk| disk.read(at, into))
    }

    fn write(&self, at: DiskOffset, from: Vec<IoSlice>) -> IoFuture<()> {
        self.submit(move |disk| disk.write(at, from))
    }

    fn flush(&self) -> IoFuture<()> {
        self.submit(|disk| disk.flush())
    }

    fn discard(&self, at: DiskOffset, len: ByteCount) -> IoFuture<()> {
        self.submit(move |disk| disk.discard(at, len))
    }

    fn write_cache(&self) -> WriteCache {
        self.disk.write_cache()
    }
}
