//! Clients: they write, read, flush, discard and zero at random, several at once, and judge every answer.
//!
//! A client is owed success, but for a full pool. While more is missing than the pool survives ([`Strain`]) an
//! operation may end with an error instead; wrong data is never excused, and neither is losing what was flushed.

use crate::oracle::Oracle;
use crate::rig::Rig;
use crate::rng::Rng;
use crate::world::SimWorld;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use weft_engine::error::{Error, ErrorKind};
use weft_engine::units::{Nanos, VirtualOffset};
use weft_engine::vdisk::Vdisk;
use weft_engine::world::World;

/// Whole pieces in which a virtual disk is read from end to end.
const PIECE: u64 = 256 << 10;

/// Whether more is missing than the pool survives, so that errors are excused.
#[derive(Default)]
pub(super) struct Strain {
    now: Cell<bool>,
    /// When it last was.
    last: Cell<Option<Nanos>>,
}

impl Strain {
    pub(super) fn begin(&self) {
        self.now.set(true);
    }

    pub(super) fn end(&self, now: Nanos) {
        if self.now.replace(false) {
            self.last.set(Some(now));
        }
    }

    pub(super) fn is_now(&self) -> bool {
        self.now.get()
    }

    /// Whether an operation that began at `began` and ends now may fail.
    pub(super) fn excuses(&self, began: Nanos) -> bool {
        self.now.get() || self.last.get().is_some_and(|last| last >= began)
    }
}

/// What the clients of a virtual disk share.
pub(super) struct Shared {
    pub(super) oracle: RefCell<Oracle>,
    pub(super) busy: RefCell<Vec<(u64, Range<usize>)>>,
    pub(super) rng: RefCell<Rng>,
    pub(super) tag: Cell<u64>,
    pub(super) done: Cell<u64>,
    pub(super) ops_left: Cell<u64>,
    /// Bytes of a stripe; to be known after the virtual disk is gone, too.
    stripe: Cell<u64>,
    pub(super) clients_left: Cell<u64>,
    pub(super) failure: RefCell<Option<String>>,
    pub(super) full: Cell<u64>,
    /// Operations that ended with an error that was excused.
    pub(super) excused: Cell<u64>,
    /// Whether the pool may freeze: most disks that vote fail at once; or one fails, and another one that went with it
    /// is put back, and has no vote.
    pub(super) may_freeze: Cell<bool>,
    pub(super) strain: Rc<Strain>,
    /// What another machine found in the pool that it opened meanwhile: nothing may be called durable that is not
    /// there.
    pub(super) rival: RefCell<Option<Rc<Seen>>>,
    /// How often a client rests before an operation, and for how long at most, in nanoseconds.
    pub(super) rests: Cell<(f64, u64)>,
}

impl Shared {
    /// For a virtual disk of `size` zeros that is judged in units of `unit` bytes.
    pub(super) fn new(size: u64, unit: u64, rng: Rng, strain: Rc<Strain>) -> Shared {
        Shared {
            oracle: RefCell::new(Oracle::new(size, unit)),
            busy: RefCell::default(),
            rng: RefCell::new(rng),
            tag: Cell::new(1),
            done: Cell::new(0),
            ops_left: Cell::new(0),
            stripe: Cell::new(0),
            clients_left: Cell::new(0),
            failure: RefCell::new(None),
            full: Cell::new(0),
            excused: Cell::new(0),
            may_freeze: Cell::new(false),
            strain,
            rival: RefCell::new(None),
            rests: Cell::new((0.1, 30_000_000)),
        }
    }

    /// Whether the clients are done, or one found something wrong.
    pub(super) fn is_over(&self) -> bool {
        self.clients_left.get() == 0 || self.failure.borrow().is_some()
    }

    /// What was just called durable must be there for whoever has opened the pool elsewhere.
    pub(super) fn judge_rival(&self) -> Result<(), String> {
        let Some(seen) = self.rival.borrow().clone() else { return Ok(()) };
        seen.judge(&mut self.oracle.borrow().clone(), true)
            .map_err(|why| format!("called durable after the pool was opened elsewhere, where it is not: {why}"))
    }

    /// `error` ended an operation that began at `began`: a failure, or excused.
    fn fail(&self, what: String, error: Error, began: Nanos) -> Result<(), String> {
        let is_frozen = error.kind == ErrorKind::Frozen && self.may_freeze.get();
        if !is_frozen && !self.strain.excuses(began) {
            return Err(format!("{what}: {error}"));
        }
        self.excused.set(self.excused.get() + 1);
        Ok(())
    }
}

/// Sends `clients` clients to `vdisk`, for `ops` operations in all.
pub(super) fn start_clients(world: &SimWorld, vdisk: &Rc<Vdisk>, shared: &Rc<Shared>, clients: u64, ops: u64) {
    shared.ops_left.set(ops);
    shared.stripe.set(vdisk.stripe_len().0);
    shared.clients_left.set(clients);
    for client in 0..clients {
        let (vdisk, shared, world_in) = (vdisk.clone(), shared.clone(), world.clone());
        let job = async move {
            while shared.ops_left.get() > 0 && shared.failure.borrow().is_none() {
                shared.ops_left.set(shared.ops_left.get() - 1);
                if let Err(why) = operate(&vdisk, &shared, client, &world_in).await {
                    shared.failure.borrow_mut().get_or_insert(why);
                }
            }
            shared.clients_left.set(shared.clients_left.get() - 1);
        };
        world.spawn("client", Box::pin(job));
    }
}

/// One operation of one client, judged.
pub(super) async fn operate(vdisk: &Rc<Vdisk>, shared: &Shared, client: u64, world: &SimWorld) -> Result<(), String> {
    let (dice, pause) = {
        let mut rng = shared.rng.borrow_mut();
        let (often, most) = shared.rests.get();
        (rng.below(100), if rng.chance(often) { rng.below(most) } else { 0 })
    };
    if pause > 0 {
        world.sleep(Nanos(pause)).await;
    }
    shared.done.set(shared.done.get() + 1);
    match dice {
        0..=9 => flush(vdisk, shared, world).await.map(|_| ()),
        10..=24 => read(vdisk, shared, client, world).await,
        25..=29 => read_in_order(vdisk, shared, client, world).await,
        _ => change(vdisk, shared, client, world, dice).await,
    }
}

/// A write, a discard, or zeroes.
pub(super) async fn change(
    vdisk: &Rc<Vdisk>,
    shared: &Shared,
    client: u64,
    world: &SimWorld,
    dice: u64,
) -> Result<(), String> {
    let Some((units, stripes)) = shared.reserve(client, shared.stripe.get()) else { return Ok(()) };
    let (offset, len) = shared.bytes_of(&units);
    let fua = shared.rng.borrow_mut().chance(0.15);
    let began = world.now();
    let result = match dice {
        30..=37 if stripes => {
            shared.oracle.borrow_mut().begin_discard(units.clone());
            vdisk.discard(offset, len, fua).await
        }
        30..=41 => {
            shared.oracle.borrow_mut().begin(units.clone(), 0);
            let keep = shared.rng.borrow_mut().chance(0.3);
            vdisk.write_zeroes(offset, len, keep, fua).await
        }
        _ => {
            let tag = shared.tag.replace(shared.tag.get() + 1);
            let bytes = {
                let mut oracle = shared.oracle.borrow_mut();
                oracle.begin(units.clone(), tag);
                oracle.bytes(tag, units.len())
            };
            vdisk.write(offset, &bytes, fua).await
        }
    };
    shared.busy.borrow_mut().retain(|(owner, _)| *owner != client);
    match result {
        Ok(()) if fua && dice > 37 => {
            shared.oracle.borrow_mut().durable(units);
            shared.judge_rival()?;
        }
        Ok(()) => {}
        Err(error) => {
            shared.oracle.borrow_mut().failed(units);
            if error.kind == ErrorKind::NoSpace {
                shared.full.set(shared.full.get() + 1);
            } else {
                shared.fail(format!("writing {len} bytes at {}", offset.0), error, began)?;
            }
        }
    }
    Ok(())
}

/// Whether it succeeded.
pub(super) async fn flush(vdisk: &Rc<Vdisk>, shared: &Shared, world: &SimWorld) -> Result<bool, String> {
    let mark = {
        let busy: Vec<Range<usize>> = shared.busy.borrow().iter().map(|(_, range)| range.clone()).collect();
        shared.oracle.borrow().mark(&busy)
    };
    let began = world.now();
    match vdisk.flush().await {
        Ok(()) => {
            shared.oracle.borrow_mut().flushed(&mark);
            shared.judge_rival()?;
            Ok(true)
        }
        Err(error) => {
            shared.oracle.borrow_mut().flush_failed();
            shared.fail("flushing".into(), error, began).map(|()| false)
        }
    }
}

async fn read(vdisk: &Rc<Vdisk>, shared: &Shared, client: u64, world: &SimWorld) -> Result<(), String> {
    let Some((units, _)) = shared.reserve(client, shared.stripe.get()) else { return Ok(()) };
    read_reserved(vdisk, shared, client, world, units).await
}

/// Reads pieces one after the other, as far as nobody else works there: what was read ahead of them meets the changes
/// of others.
async fn read_in_order(vdisk: &Rc<Vdisk>, shared: &Shared, client: u64, world: &SimWorld) -> Result<(), String> {
    if vdisk.is_removed() {
        return Ok(());
    }
    let (total, unit) = (shared.oracle.borrow().units(), shared.oracle.borrow().unit());
    let (mut at, len, pieces, pause) = {
        let mut rng = shared.rng.borrow_mut();
        let most = (vdisk.stripe_len().0 / unit).max(1) + 2;
        let pause = if rng.chance(0.3) { rng.below(20_000_000) } else { 0 };
        (rng.below(total as u64) as usize, 1 + rng.below(most) as usize, 4 + rng.below(12), pause)
    };
    for _ in 0..pieces {
        let units = at..(at + len).min(total);
        if !shared.reserve_just(client, units.clone()) {
            return Ok(());
        }
        at = units.end;
        read_reserved(vdisk, shared, client, world, units).await?;
        if pause > 0 {
            world.sleep(Nanos(pause)).await;
        }
    }
    Ok(())
}

async fn read_reserved(
    vdisk: &Rc<Vdisk>,
    shared: &Shared,
    client: u64,
    world: &SimWorld,
    units: Range<usize>,
) -> Result<(), String> {
    let (offset, len) = shared.bytes_of(&units);
    let mut bytes = vec![0xAA; len as usize];
    let began = world.now();
    let result = vdisk.read(offset, &mut bytes).await;
    shared.busy.borrow_mut().retain(|(owner, _)| *owner != client);
    match result {
        Ok(()) => shared.oracle.borrow().judge(units.start, &bytes).map_err(|why| format!("reading: {why}")),
        Err(error) => shared.fail(format!("reading {len} bytes at {}", offset.0), error, began),
    }
}

impl Shared {
    /// A range of units that nobody else works on, now `client`'s; and whether it is whole stripes.
    pub(super) fn reserve(&self, client: u64, stripe: u64) -> Option<(Range<usize>, bool)> {
        let mut rng = self.rng.borrow_mut();
        let unit = self.oracle.borrow().unit();
        let total = self.oracle.borrow().units() as u64;
        let per_stripe = (stripe / unit).max(1);
        let whole = rng.chance(0.3);
        let len = match rng.below(4) {
            0 => 1 + rng.below(2),
            1 => 1 + rng.below(8),
            2 => 1 + rng.below(per_stripe + 4),
            _ => 1 + rng.below(per_stripe * 3),
        };
        let (start, len) = if whole {
            let stripes = 1 + rng.below(3);
            (rng.below(total.div_ceil(per_stripe)) * per_stripe, stripes * per_stripe)
        } else {
            (rng.below(total), len)
        };
        let units = start as usize..(start + len).min(total) as usize;
        self.reserve_just(client, units.clone()).then_some((units, whole))
    }

    /// Makes these units `client`'s. `false`: there are none, or somebody else works on some.
    fn reserve_just(&self, client: u64, units: Range<usize>) -> bool {
        let mut busy = self.busy.borrow_mut();
        if units.is_empty() || busy.iter().any(|(_, other)| other.start < units.end && units.start < other.end) {
            return false;
        }
        busy.push((client, units));
        true
    }

    pub(super) fn bytes_of(&self, units: &Range<usize>) -> (VirtualOffset, u64) {
        let unit = self.oracle.borrow().unit();
        (VirtualOffset(units.start as u64 * unit), units.len() as u64 * unit)
    }
}

/// Pieces of a virtual disk that were read, and those that could not be.
pub(super) struct Seen {
    /// Bytes, by offset.
    pub(super) pieces: Vec<(u64, Vec<u8>)>,
    /// Byte ranges, each one unit or block, and why.
    pub(super) lost: Vec<(Range<u64>, Error)>,
}

/// Reads `size` bytes of virtual disk `name`. Where that fails, smaller and smaller pieces are read.
pub(super) fn read_all(rig: &Rig, name: &str, size: u64, unit: u64) -> Result<Seen, String> {
    let vdisk = rig.pool().vdisk(name).ok_or_else(|| format!("the virtual disk {name} is gone"))?;
    let reading = async move {
        let mut seen = Seen { pieces: Vec::new(), lost: Vec::new() };
        let mut todo: Vec<Range<u64>> = (0..size).step_by(PIECE as usize).map(|at| at..size.min(at + PIECE)).collect();
        todo.reverse();
        while let Some(range) = todo.pop() {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            match vdisk.read(VirtualOffset(range.start), &mut bytes).await {
                Ok(()) => seen.pieces.push((range.start, bytes)),
                Err(error) if range.end - range.start <= unit.max(4096) => seen.lost.push((range, error)),
                Err(_) => {
                    let half = ((range.end - range.start) / 2).next_multiple_of(unit.max(4096));
                    todo.push(range.start + half..range.end);
                    todo.push(range.start..range.start + half);
                }
            }
        }
        seen
    };
    rig.world
        .block_on_within(crate::rig::TIMEOUT, reading)
        .map_err(|stop| format!("reading everything hangs ({stop:?}); still there: {:?}", rig.world.tasks()))
}

impl Seen {
    /// The first range that could not be read and that `excused` (units) does not excuse.
    pub(super) fn judge_lost(&self, unit: u64, excused: impl Fn(Range<usize>) -> bool) -> Result<(), String> {
        for (range, error) in &self.lost {
            let units = (range.start / unit) as usize..range.end.div_ceil(unit) as usize;
            if !excused(units) {
                return Err(format!("reading everything: at {}: {error}", range.start));
            }
        }
        Ok(())
    }

    /// Judges what was read. With `crashed`, it is the truth from now on.
    pub(super) fn judge(&self, oracle: &mut Oracle, crashed: bool) -> Result<(), String> {
        for (at, bytes) in &self.pieces {
            let first = (at / oracle.unit()) as usize;
            match crashed {
                true => oracle.judge_after_crash(first, bytes)?,
                false => oracle.judge(first, bytes)?,
            }
        }
        Ok(())
    }
}
