//! A virtual disk: what clients read and write. The stories are in [`write`], [`read`], [`flush`], [`discard`],
//! [`given`], [`destage`] and `clear`; this file owns the state they share.
//!
//! Invariants
//! 1. A stripe has at most one buffer that gathers and one that is in flight; the one in flight is older. Reading looks
//!    at them in that order, then at the tables.
//! 2. Every gathering buffer holds a claim on one free stripe, so what was accepted can always be written.
//! 3. A stripe's next version is not sealed while the one before it is in flight: commits of one stripe are logged in
//!    the order of their contents.
//! 4. After a write was lost for good (more disks failed than the layout survives) every flush fails: nobody is told
//!    that it is safe. Reading what it wrote fails, too: never is an older version read, until its owner clears it.

pub mod ahead;
mod answer;
mod cache;
mod clear;
pub mod destage;
pub mod discard;
mod down;
pub mod explain;
pub mod flush;
mod gate;
mod gather;
mod hold;
pub(crate) mod order;
pub mod pack;
mod packed_ahead;
mod parcel;
mod partial_discards;
mod pins;
pub mod placed;
pub mod read;
mod repack;
pub(crate) mod restack;
pub(crate) mod rise;
pub mod tier;
pub mod write;

pub use answer::AnswerPart;

use crate::disk_set::DiskSet;
use crate::error::{Error, Result};
use crate::exec::LocalBoxFuture;
use crate::fail;
use crate::geometry::Layout;
use crate::heat::Curve;
use crate::store::freeze::frozen;
use crate::store::{Store, lost};
use crate::stripe::buffer::StripeBuffer;
use crate::stripe::sealed::Sealed;
use crate::sync::Signal;
use crate::units::{ByteCount, Nanos, TableNo, VdiskNo, VirtualOffset};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

/// An open virtual disk.
pub struct Vdisk {
    store: Rc<Store>,
    id: VdiskNo,
    stripes: RefCell<BTreeMap<u64, Gathering>>,
    /// Those of them of which the log may lack something that was written: a flush looks at no others.
    unlanded: RefCell<BTreeSet<u64>>,
    /// Bytes of stripes in flight some of which landed on their way.
    landed_in_flight: Cell<u64>,
    /// Sealed stripes that wait to be written.
    queue: Queue,
    /// Those of them that landed: only they make room in the log, so they never wait behind others that wait for it.
    landed_queue: Queue,
    buffers: Cell<u64>,
    /// Flushes that wait for its stripes.
    flushes_waiting: Cell<u32>,
    /// A stripe left, or the disk failed.
    moved: Signal,
    failed: RefCell<Option<Error>>,
    /// Stripes whose newest version could be written nowhere: what the tables say of them is not what clients were
    /// told.
    abandoned: RefCell<BTreeSet<u64>>,
    /// Runs of stripes that wait for disks just now.
    waiting: Cell<u32>,
    /// Since when whole stripes have been waiting for disks, without which they can be written nowhere.
    stuck: Cell<Option<Nanos>>,
    /// Those of them of which the log holds flushed data: it must move on with the log's head, or nothing of the pool
    /// could.
    kept: RefCell<BTreeMap<u64, Rc<Sealed>>>,
    partial_discards: RefCell<partial_discards::PartialDiscards>,
    touched: Cell<Nanos>,
    idle_timer: Cell<bool>,
    /// Stripes that could not be merged when this was tried last: see [`destage::SetAside`].
    set_aside: RefCell<BTreeMap<u64, destage::SetAside>>,
    /// Bytes of their buffers.
    stuck_bytes: Cell<u64>,
    /// Bytes that the log held of stripes that could not leave, and the state of the pool in which they were counted.
    pins: Cell<(u64, u64)>,
    removed: Cell<bool>,
    /// Packed stripes are being written, or stripes are being moved.
    packing: Cell<u32>,
    /// Stripes that are being merged.
    merging: Cell<u32>,
    gate: gate::Gate,
    hold: hold::Hold,
    /// The state of the pool ([`Store::changes`]) in which they could not be.
    unpackable: Cell<Option<u64>>,
    sweep: RefCell<down::Sweep>,
    repack: RefCell<repack::Repack>,
    rise: RefCell<rise::Rise>,
    order: RefCell<order::Order>,
    /// What is known of its fast tier.
    tiering: RefCell<tier::Tiering>,
    /// What it did since the pool was opened.
    pub counters: VdiskCounters,
}

/// The most stripes that leave in one sweep over the addresses.
const SWEEP: usize = 256;

/// Stripes that wait to be written, and how many runs of them are on their way.
#[derive(Default)]
struct Queue {
    /// In the order they became whole.
    stripes: RefCell<VecDeque<u64>>,
    /// Those that go before them, in the order of their addresses.
    sorted: RefCell<VecDeque<u64>>,
    /// How far the sweep has come that takes them, and how many stripes with it.
    swept: Cell<(u64, usize)>,
    runs: Cell<usize>,
    /// How many of those wait for room in the log.
    held: Cell<usize>,
    /// Those of the runs that have not taken their stripes yet.
    begun: Cell<usize>,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.runs.get() == 0 && self.len() == 0
    }

    fn len(&self) -> usize {
        self.stripes.borrow().len() + self.sorted.borrow().len()
    }

    /// The next stripes to be written together, at most `most`. Requests overtake each other, and stripes become whole
    /// in any order: they leave by their addresses, so that they are read as they lie. Who came too late for a sweep
    /// waits for the next one, but not for ever.
    fn take(&self, most: usize) -> Vec<u64> {
        let (mut came, mut sorted) = (self.stripes.borrow_mut(), self.sorted.borrow_mut());
        let mut run = Vec::new();
        while run.len() < most && !(came.is_empty() && sorted.is_empty()) {
            if sorted.is_empty() {
                self.swept.set((0, 0));
            }
            let (from, count) = self.swept.get();
            if count < SWEEP {
                let (now, later) = came.drain(..).partition(|stripe| *stripe >= from);
                *came = later;
                let now: VecDeque<u64> = now;
                sorted.extend(now);
                sorted.make_contiguous().sort_unstable();
            }
            let free = sorted.len().min(most - run.len());
            let taken: Vec<u64> = sorted.drain(..free).collect();
            if let Some(last) = taken.last() {
                self.swept.set((last + 1, count + taken.len()));
            }
            run.extend(taken);
        }
        run.sort_unstable();
        run
    }
}

/// The buffers of one stripe.
#[derive(Default)]
struct Gathering {
    filling: Option<StripeBuffer>,
    in_flight: Option<Rc<Sealed>>,
}

/// What a virtual disk did since the pool was opened. All in bytes but the counts.
#[derive(Default)]
pub struct VdiskCounters {
    /// Read by clients.
    pub read: Cell<u64>,
    /// Those of it that lay in packed stripes.
    pub read_packed: Cell<u64>,
    /// Those of it that came from the read cache.
    pub read_kept: Cell<u64>,
    /// Parts of stripes that were found in the read cache.
    pub kept_hits: Cell<u64>,
    /// Parts of stripes that hard disks had to seek for, and that were not found there.
    pub kept_misses: Cell<u64>,
    /// Written by clients.
    pub written: Cell<u64>,
    /// Read requests.
    pub reads: Cell<u64>,
    /// Write requests.
    pub writes: Cell<u64>,
    /// Flushes, FUA writes included.
    pub flushes: Cell<u64>,
    /// Stripes that were lost before they were durable, and gathered again from memory: see [`Vdisk::gather_lost`].
    pub gathered_again: Cell<u64>,
    /// User bytes that left in stripes which clients had filled.
    pub whole: Cell<u64>,
    /// User bytes that left in stripes which had to be merged with what was there.
    pub merged: Cell<u64>,
    /// User bytes that left in packed stripes.
    pub packed: Cell<u64>,
    /// Partial stripes that left in packed stripes: none of them was merged.
    pub packed_parts: Cell<u64>,
    /// Bytes that were brought together in fewer packed stripes of a cache.
    pub repacked: Cell<u64>,
    /// Bytes that the mover brought out of packed stripes.
    pub destaged: Cell<u64>,
    /// Stripes that it merged for that.
    pub destaged_stripes: Cell<u64>,
    /// User bytes in stripes that were moved to lie in order.
    pub ordered: Cell<u64>,
    /// User bytes in stripes that were brought to the fast tier.
    pub promoted: Cell<u64>,
    /// User bytes in stripes that were moved out of the fast tier.
    pub demoted: Cell<u64>,
    /// Bytes read by clients that lay in the fast tier.
    pub read_fast: Cell<u64>,
    /// User bytes that a flush forced into the log.
    pub landed: Cell<u64>,
    /// Read from the disks because something was written.
    pub read_for_write: Cell<u64>,
}

/// Adds to a counter.
pub(crate) fn add(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

impl Vdisk {
    /// The virtual disk `id` of an open pool.
    pub(crate) fn new(store: Rc<Store>, id: VdiskNo) -> Rc<Vdisk> {
        let touched = Cell::new(store.world.now());
        Rc::new(Vdisk {
            store,
            id,
            stripes: RefCell::default(),
            unlanded: RefCell::default(),
            landed_in_flight: Cell::default(),
            queue: Queue::default(),
            landed_queue: Queue::default(),
            buffers: Cell::new(0),
            flushes_waiting: Cell::new(0),
            moved: Signal::new(),
            failed: RefCell::new(None),
            abandoned: RefCell::default(),
            stuck: Cell::new(None),
            waiting: Cell::new(0),
            kept: RefCell::default(),
            partial_discards: RefCell::default(),
            touched,
            idle_timer: Cell::new(false),
            set_aside: RefCell::default(),
            stuck_bytes: Cell::new(0),
            pins: Cell::default(),
            removed: Cell::new(false),
            packing: Cell::new(0),
            merging: Cell::new(0),
            gate: gate::Gate::default(),
            hold: hold::Hold::default(),
            unpackable: Cell::new(None),
            sweep: RefCell::default(),
            repack: RefCell::default(),
            rise: RefCell::default(),
            order: RefCell::default(),
            tiering: RefCell::default(),
            counters: VdiskCounters::default(),
        })
    }

    /// Its buffers, in words: for whoever looks for what hangs.
    pub fn describe(&self) -> String {
        let stripes = self.stripes.borrow();
        let one = |(stripe, gathering): (&u64, &Gathering)| {
            let filling = gathering
                .filling
                .as_ref()
                .map(|buffer| (buffer.have_len(), buffer.unlanded_len(), buffer.landed.oldest()));
            alloc::format!("{stripe}: gathers {filling:?}, in flight {}", gathering.in_flight.is_some())
        };
        let stripes: Vec<String> = stripes.iter().map(one).collect();
        let queues = [&self.queue, &self.landed_queue]
            .map(|queue| (queue.runs.get(), queue.stripes.borrow().clone(), queue.sorted.borrow().clone()));
        let map = self.store.map.borrow();
        let table = &map.tables[&self.table_of(&map)];
        alloc::format!(
            "failed {:?}, stuck {:?}, log {:?}, landed {:?}, {} free, {} claimed, {} in limbo; (runs, queue) {queues:?}, {}",
            self.failure().map(|error| error.context),
            self.stuck.get(),
            self.store.log.fill(),
            self.store.commits.landings.borrow().iter().take(8).collect::<Vec<_>>(),
            table.free,
            table.claims,
            map.limbo.len(),
            stripes.join("; ")
        )
    }

    /// How many free stripes its buffers have claimed: one each. `None`: some are on their way, and where they are
    /// nobody can tell from outside.
    pub fn claims(&self) -> Option<u64> {
        let stripes = self.stripes.borrow();
        let calm =
            self.queue.is_idle() && self.landed_queue.is_idle() && stripes.values().all(|now| now.in_flight.is_none());
        calm.then(|| stripes.values().filter(|now| now.filling.is_some()).count() as u64)
    }

    /// Its number.
    pub fn id(&self) -> VdiskNo {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.store.map.borrow().vdisks.get(&self.id).map_or_else(String::new, |vdisk| vdisk.name.clone())
    }

    /// Its size.
    pub fn size(&self) -> ByteCount {
        self.store.map.borrow().vdisks.get(&self.id).map_or(ByteCount::ZERO, |vdisk| vdisk.size)
    }

    /// Bytes of its logical sector.
    pub fn sector(&self) -> u32 {
        self.store.map.borrow().vdisks.get(&self.id).map_or(4096, |vdisk| vdisk.sector)
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.store.read_only
    }

    /// What fast tiers of all sizes would catch of what is asked of it.
    pub fn heat_curve(&self) -> LocalBoxFuture<'_, Result<Curve>> {
        Box::pin(async move {
            self.check_there()?;
            Ok(self.store.heat_curve(self.id, self.size()).await)
        })
    }

    /// Whether it was removed: nothing may be asked of it but to end what is in flight.
    pub fn is_removed(&self) -> bool {
        self.removed.get()
    }

    /// The layout that new stripes get.
    pub fn layout(&self) -> Layout {
        let map = self.store.map.borrow();
        map.tables[&self.table_of(&map)].record.layout
    }

    /// The disks it may lie on; none: every disk that takes data by itself.
    pub fn disks(&self) -> DiskSet {
        let map = self.store.map.borrow();
        map.tables[&self.table_of(&map)].record.disks
    }

    /// Why writes were lost for good, if they were.
    pub fn failure(&self) -> Option<Error> {
        let failed = self.failed.borrow().clone();
        failed.or_else(|| {
            (!self.removed.get() && self.store.limbo.has_lost(self.table())).then(|| {
                let layout = self.layout();
                lost(alloc::format!(
                    "disks failed before a write was durable, and lost it: more than {layout} survives"
                ))
            })
        })
    }

    /// Since when writes of this virtual disk have been waiting for disks that are missing, if they do.
    pub fn waits_since(&self) -> Option<Nanos> {
        let limbo = if self.removed.get() { None } else { self.store.limbo.since(self.table()) };
        self.stuck_since().into_iter().chain(limbo).min()
    }

    /// Since when runs of stripes have been waiting for disks, if any does just now. One that tries again waits for
    /// others, for room in the log perhaps, which they must be able to make.
    fn stuck_since(&self) -> Option<Nanos> {
        self.stuck.get().filter(|_| self.waiting.get() > 0)
    }

    /// Refuses what a client asks for once the pool is frozen, or writes of this disk have been waiting for disks, for
    /// too long.
    fn check_flows(&self) -> Result<()> {
        self.store.check_not_frozen()?;
        match self.waits_since() {
            Some(since) if self.store.is_timeout_over(since) && self.store.misses_disks() => {
                Err(frozen(alloc::format!(
                    "too few disks are there to write {}: what was written waits for them in memory",
                    self.layout()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Ends its service: every later request is refused. What the log holds of it stays there: until it is on record
    /// that it was removed, it may be there after a crash.
    pub(crate) fn close(&self) {
        self.removed.set(true);
        self.gate.notify();
        self.store.forget_streams(Some(self.id));
        let freed: u64 = self
            .stripes
            .borrow()
            .values()
            .filter_map(|gathering| gathering.filling.as_ref())
            .map(|buffer| buffer.charged() as u64)
            .sum();
        self.stripes.borrow_mut().values_mut().for_each(|gathering| gathering.filling = None);
        self.store.buffered_changed(-(freed as i64));
        // Who waits for room in the log for it waits in vain.
        self.store.log.moved.notify();
    }

    /// Lets go of what the log holds of it: to be called in the step in which it comes on record that it was removed.
    pub(crate) fn forget_landed(&self) {
        self.store.commits.landings.borrow_mut().retain(|(_, vdisk, _)| *vdisk != self.id);
        self.store.limbo.forget_table(self.table());
    }

    /// Waits until no stripe is on its way to the disks.
    pub(crate) async fn quiesce(&self) {
        let idle = || self.queue.is_idle() && self.landed_queue.is_idle() && self.packing.get() == 0;
        self.moved.until(idle).await;
    }

    /// The newest table of its stack: where writes go.
    pub(crate) fn table(&self) -> TableNo {
        self.table_of(&self.store.map.borrow())
    }

    fn table_of(&self, map: &crate::segment::Map) -> TableNo {
        map.vdisks[&self.id].tables[0]
    }

    /// Lets a request in, when its turn has come.
    async fn enter(&self) -> gate::Pass<'_> {
        self.gate.enter(|| self.removed.get()).await
    }

    /// Refuses what comes, or goes on, after the disk was removed: its tables are gone.
    fn check_there(&self) -> Result<()> {
        if self.removed.get() { fail!(NotFound, "the virtual disk was removed") } else { Ok(()) }
    }

    /// Counts a request that was admitted, and its bytes. Whether a hard disk would seek for it.
    fn count(&self, [requests, bytes]: [&Cell<u64>; 2], offset: VirtualOffset, len: u64) -> bool {
        add(requests, 1);
        add(bytes, len);
        add(&self.store.traffic.requests, 1);
        self.store.note_heat(self.id, self.size(), offset, len)
    }

    /// The front gate: judges a request once.
    fn admit(&self, offset: VirtualOffset, len: usize) -> Result<()> {
        self.check_there()?;
        let (size, sector) = (self.size(), self.sector() as u64);
        if offset.0.checked_add(len as u64).is_none_or(|end| end > size.0) {
            return fail!(
                InvalidInput,
                "bytes {} to {} are asked for, the disk ends at {}",
                offset.0,
                offset.0.saturating_add(len as u64),
                size.0
            );
        }
        if !offset.0.is_multiple_of(sector) || !(len as u64).is_multiple_of(sector) {
            return fail!(
                InvalidInput,
                "offset {} and length {len} must be multiples of the sector, {sector} bytes",
                offset.0
            );
        }
        Ok(())
    }

    fn admit_write(self: &Rc<Self>, offset: VirtualOffset, len: usize) -> Result<()> {
        self.admit(offset, len)?;
        self.store.check_writable()?;
        self.gather_lost();
        match self.failure() {
            Some(error) => Err(error),
            None => self.check_flows(),
        }
    }

    /// Cuts a request at stripe borders: (stripe, byte in it, range of the request's bytes).
    fn pieces(&self, offset: VirtualOffset, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> + use<> {
        let data_len = self.layout().data_len().0;
        let mut done = 0;
        core::iter::from_fn(move || {
            if done == len {
                return None;
            }
            let at = offset.0 + done as u64;
            let take = ((data_len - at % data_len) as usize).min(len - done);
            let range = done..done + take;
            done += take;
            Some((at / data_len, (at % data_len) as usize, range))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_leave_by_their_addresses_and_nobody_waits_for_ever() {
        let queue = Queue::default();
        queue.stripes.borrow_mut().extend([27, 26, 25, 24, 23]);
        assert_eq!(queue.take(3), [23, 24, 25]);
        queue.stripes.borrow_mut().extend([2, 30, 1]);
        assert_eq!(queue.take(3), [26, 27, 30]);
        queue.stripes.borrow_mut().extend([0]);
        assert_eq!((queue.take(1), queue.take(3)), (alloc::vec![0], alloc::vec![1, 2]));
        assert!(queue.is_idle() && queue.take(3).is_empty());
        // A stream goes on in front of the sweep, behind which somebody waits.
        queue.stripes.borrow_mut().extend([100, 101]);
        let mut next = 102;
        let waited = (0..).take_while(|turn| {
            queue.stripes.borrow_mut().push_back(next);
            next += 1;
            if *turn == 1 {
                queue.stripes.borrow_mut().push_back(7);
            }
            queue.take(1) != [7]
        });
        assert!(waited.count() < SWEEP + 4);
    }
}
