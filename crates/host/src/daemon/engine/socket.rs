//! A disk that can be taken out of a pool from outside.
//!
//! Invariant: only the pool holds its disks. One that it has lost is closed, and can be claimed again, as soon as the
//! last request to it has ended.

use crate::disk::HostDisk;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use weft_engine::io::{Buf, Disk, DiskError, DiskShape, IoFuture, IoSlice, WriteCache};
use weft_engine::units::{ByteCount, DiskOffset};

/// A place for a disk: a pool that is given up keeps the place, and the disk is free.
pub struct Socketed {
    shape: DiskShape,
    disk: RefCell<Option<Rc<HostDisk>>>,
}

impl Socketed {
    /// Takes the disk out.
    fn unplug(&self) {
        let disk = self.disk.borrow_mut().take();
        drop(disk);
    }

    fn ask<T: 'static>(&self, what: impl FnOnce(&HostDisk) -> IoFuture<T>) -> IoFuture<T> {
        match &*self.disk.borrow() {
            Some(disk) => what(disk),
            None => Box::pin(async { Err(DiskError::Gone) }),
        }
    }
}

/// The places of all disks that were given to a pool. They are the pool's: this keeps none of them.
#[derive(Default)]
pub struct Sockets(RefCell<Vec<Weak<Socketed>>>);

impl Sockets {
    /// Makes a place with a disk in it.
    pub fn plug(&self, disk: Rc<HostDisk>) -> Rc<dyn Disk> {
        let socket = Rc::new(Socketed { shape: disk.shape(), disk: RefCell::new(Some(disk)) });
        let mut sockets = self.0.borrow_mut();
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Rc::downgrade(&socket));
        socket
    }

    /// Takes all disks out.
    pub fn unplug(&self) {
        let sockets: Vec<Rc<Socketed>> = self.0.borrow().iter().filter_map(Weak::upgrade).collect();
        sockets.iter().for_each(|socket| socket.unplug());
    }
}

impl Disk for Socketed {
    fn shape(&self) -> DiskShape {
        self.shape
    }

    fn read(&self, at: DiskOffset, into: Buf) -> IoFuture<Buf> {
        self.ask(|disk| disk.read(at, into))
    }

    fn write(&self, at: DiskOffset, from: Vec<IoSlice>) -> IoFuture<()> {
        self.ask(|disk| disk.write(at, from))
    }

    fn flush(&self) -> IoFuture<()> {
        self.ask(Disk::flush)
    }

    fn discard(&self, at: DiskOffset, len: ByteCount) -> IoFuture<()> {
        self.ask(|disk| disk.discard(at, len))
    }

    fn write_cache(&self) -> WriteCache {
        self.disk.borrow().as_ref().map_or(WriteCache::Unknown, |disk| disk.write_cache())
    }
}
