//! A disk that can be taken out of a pool from outside.

use crate::disk::HostDisk;
use std::cell::RefCell;
use std::rc::Rc;
use weft_engine::io::{Buf, Disk, DiskError, DiskShape, IoFuture, IoSlice};
use weft_engine::units::{ByteCount, DiskOffset};

/// A place for a disk: a pool that is given up keeps the place, and the disk is free.
pub struct Socketed {
    shape: DiskShape,
    disk: RefCell<Option<Rc<HostDisk>>>,
}

impl Socketed {
    /// A place with a disk in it.
    pub fn new(disk: Rc<HostDisk>) -> Rc<Socketed> {
        Rc::new(Socketed { shape: disk.shape(), disk: RefCell::new(Some(disk)) })
    }

    /// Takes the disk out.
    pub fn unplug(&self) {
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
}
