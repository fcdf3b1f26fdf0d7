//! A simulated disk: bytes, a volatile write cache, and every way we know for a disk to fail.
//!
//! Fault model
//! 1. **Order.** Operations complete in any order, after the time its [`Timing`] gives. A write that completed is seen
//!    by every later read. A read that overlaps a write still under way gets, sector by sector, old or new bytes; one
//!    that was submitted before a write and completes after it may get the old ones.
//! 2. **Volatile cache.** A completed write is not durable. A flush makes exactly the writes durable that completed
//!    before it was submitted; the others stay volatile, however old they get. A disk that is [`SimDisk::protect`]ed
//!    has none: what has completed is durable.
//! 3. **Power cut.** Each write that is not durable, completed or not, is kept, dropped, or torn at 512-byte sectors,
//!    whatever becomes of the others: later ones may survive where earlier ones do not. (Where two survive for one
//!    sector, the one that completed later wins.) With [`FaultPlan::ruin`], one that is torn may also leave junk in its
//!    blocks, or blocks that cannot be read.
//! 4. **Latent error.** A block cannot be read until it is written anew. **Transient error.** It cannot be read once.
//! 5. **Bit rot.** A block changes by itself. A write in the cache hides it, until a power cut takes that write away.
//! 6. **Misdirected write.** It lands elsewhere; both places are wrong then. **Lost write.** It reports success only.
//! 7. **Errors.** A write that fails has written any of its sectors. A flush that fails has made nothing durable.
//! 8. **Stall.** The disk answers nothing for a while, then everything at once.
//! 9. **Vanishing.** Everything under way and everything later ends with [`DiskError::Gone`]. It may come back with
//!    what it had then, minus what a power cut takes; or, if only its cable was pulled, with all that it took. A handle
//!    of before ([`SimDisk::plugged`]) stays dead.
//! 10. **Discard.** Each block of it afterwards has its old bytes, zeros, or junk; as volatile as a write.
//!
//! Not in the model, because weft does not claim to survive it: a flush that lies, and a disk that reports a capacity
//! or an identity that is not its own. (A disk that lies about its cache is: [`SimDisk::tell_cache`].)

mod content;
mod faults;
mod image;
mod plug;
mod state;
mod write;

pub use content::Harm;
pub use faults::{Fault, FaultPlan, Guard, WriteFault};
pub use image::DiskImage;
pub use write::{Fate, Tear, Unflushed};

use crate::rng::Rng;
use crate::timing::{Op, Timing};
use crate::world::{Alarm, SimWorld};
use content::Content;
use faults::Faults;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use weft_engine::io::{Buf, Disk, DiskError, DiskShape, IoFuture, IoSlice, WriteCache};
use weft_engine::sync::{Answer, Promise, promise};
use weft_engine::units::{BLOCK, ByteCount, DiskOffset, Nanos};
use weft_engine::world::World;
use write::{Effect, Lands, Write};

/// What was asked of a disk since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskStats {
    /// Reads.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: ByteCount,
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: ByteCount,
    /// Discards.
    pub discards: u64,
    /// Bytes of them.
    pub discarded_bytes: ByteCount,
    /// Flushes.
    pub flushes: u64,
}

impl DiskStats {
    pub(crate) fn count(&mut self, op: Op) {
        let (count, bytes, len) = match op {
            Op::Read(_, len) => (&mut self.reads, &mut self.read_bytes, len),
            Op::Write(_, len) | Op::WriteThrough(_, len) => (&mut self.writes, &mut self.written_bytes, len),
            Op::Discard(_, len) => (&mut self.discards, &mut self.discarded_bytes, len),
            Op::Flush => return self.flushes += 1,
        };
        *count += 1;
        *bytes += len;
    }
}

/// A simulated disk. A handle: clones are the same disk, which outlives power cuts of its world.
#[derive(Clone)]
pub struct SimDisk(Rc<Inner>);

struct Inner {
    world: SimWorld,
    me: Weak<Inner>,
    no: u64,
    state: RefCell<State>,
}

struct State {
    shape: DiskShape,
    timing: Box<dyn Timing>,
    rng: Rng,
    faults: Faults,
    /// What survives for certain.
    durable: Content,
    /// What reads see: `durable` and everything in `cache`.
    visible: Content,
    /// Completed and not durable, in the order of completion.
    cache: Vec<Cached>,
    /// Whether what has completed survives a power cut.
    protected: bool,
    /// What it tells of its cache, where that is not how it is.
    tells: Option<WriteCache>,
    completions: u64,
    under_way: BTreeMap<u64, UnderWay>,
    submissions: u64,
    /// Writes that were under way when everybody stopped waiting, oldest first; see [`SimDisk::power_cut`].
    in_the_air: Vec<(Write, Option<Tear>)>,
    alarm: Alarm,
    stalled_until: Nanos,
    gone: bool,
    /// How often it has vanished.
    unplugged: u64,
    /// Which file it is, or which device: a copy is another one.
    file: u64,
    stats: DiskStats,
}

struct Cached {
    completion: u64,
    write: Write,
    /// What a write that failed wrote all the same.
    tear: Option<Tear>,
}

struct UnderWay {
    job: Job,
    promise: Promise<Reply>,
}

type Reply = Result<Option<Buf>, DiskError>;

enum Job {
    Read { at: DiskOffset, buf: Buf, sampled: Option<Result<(), DiskError>> },
    Write { write: Write, tear: Option<Tear>, result: Result<(), DiskError> },
    Flush { covers: u64, result: Result<(), DiskError> },
}

impl SimDisk {
    /// A blank disk in `world`, as fast as `timing` says. Its random stream follows from the world's seed and from how
    /// many disks that world has already.
    pub fn new(world: &SimWorld, shape: DiskShape, timing: Box<dyn Timing>) -> SimDisk {
        SimDisk::from_image(world, &DiskImage::blank(shape), timing)
    }

    /// A disk with the content of `image`, else as [`SimDisk::new`].
    pub fn from_image(world: &SimWorld, image: &DiskImage, timing: Box<dyn Timing>) -> SimDisk {
        assert!(image.shape.capacity.is_multiple_of(BLOCK), "a simulated disk is whole blocks");
        let inner = Rc::new_cyclic(|me: &Weak<Inner>| {
            let no = world.attach(me.clone()) as u64;
            let state = State {
                shape: image.shape,
                timing,
                rng: world.rng(&format!("disk {no}")),
                faults: Faults::default(),
                durable: image.content.clone(),
                visible: image.content.clone(),
                cache: Vec::new(),
                protected: world.draws_protected(no),
                tells: None,
                completions: 0,
                under_way: BTreeMap::new(),
                submissions: 0,
                in_the_air: Vec::new(),
                alarm: Alarm::default(),
                stalled_until: Nanos(0),
                gone: false,
                unplugged: 0,
                file: 0,
                stats: DiskStats::default(),
            };
            Inner { world: world.clone(), me: me.clone(), no, state: RefCell::new(state) }
        });
        SimDisk(inner)
    }

    /// What was asked of it so far.
    pub fn stats(&self) -> DiskStats {
        self.0.state.borrow().stats
    }

    /// The writes that a power cut may take, in the order in which they would reach the medium.
    pub fn unflushed(&self) -> Vec<Unflushed> {
        let state = self.0.state.borrow();
        let completed = state.cache.len();
        let numbered = state.volatile().enumerate();
        numbered
            .map(|(no, (write, _))| Unflushed {
                at: write.at,
                len: write.len,
                completed: no < completed,
                discard: matches!(write.effect, Effect::Discard { .. }),
            })
            .collect()
    }

    /// What would be on the disk after a power cut with these fates, one for each of [`SimDisk::unflushed`]; missing
    /// ones are dropped. The disk itself is left alone.
    pub fn after_power_cut(&self, fates: &[Fate]) -> DiskImage {
        let state = self.0.state.borrow();
        DiskImage { shape: state.shape, content: state.after_power_cut(fates) }
    }

    /// What is durably on the disk: as if the power cut took everything else.
    pub fn image(&self) -> DiskImage {
        self.after_power_cut(&[])
    }

    /// Decides by `rng` about every write that is not durable (fault model 3). The power is back afterwards: the disk
    /// can be used again. [`SimWorld::halt`] must have been called.
    pub fn power_cut(&self, rng: &mut Rng) {
        let mut state = self.0.state.borrow_mut();
        let mut fates = write::fates(state.volatile().map(|(write, _)| write.sectors()), rng);
        write::ruin(&mut fates, state.faults.plan.ruin, rng);
        state.lose_power(&fates);
    }

    /// Cuts the power like [`SimDisk::power_cut`], with the fates given.
    pub fn power_cut_with(&self, fates: &[Fate]) {
        self.0.state.borrow_mut().lose_power(fates);
    }

    /// The engine was killed, but the power stayed on: completed writes are as visible as before, and each one that was
    /// still under way happened, did not, or did in part. [`SimWorld::halt`] must have been called.
    pub fn survive_kill(&self, rng: &mut Rng) {
        let mut state = self.0.state.borrow_mut();
        assert!(state.under_way.is_empty(), "the world has not been halted");
        state.settle_the_air(rng);
    }

    /// From now on its cache is not volatile, or is again; it tells so. What it has taken is durable then.
    pub fn protect(&self, protected: bool) {
        let mut state = self.0.state.borrow_mut();
        state.protected = protected;
        let all = state.completions;
        state.make_durable(all);
    }

    /// From now on it tells this of its cache, however that is.
    pub fn tell_cache(&self, cache: WriteCache) {
        self.0.state.borrow_mut().tells = Some(cache);
    }

    /// Whether its cache is not volatile.
    pub fn is_protected(&self) -> bool {
        self.0.state.borrow().protected
    }

    /// From now on faults befall it by chance (fault model 4 to 8).
    pub fn set_plan(&self, plan: FaultPlan) {
        self.0.state.borrow_mut().faults.plan = plan;
    }

    /// Asks `guard` before every fault of the plan.
    pub fn set_guard(&self, guard: Guard) {
        self.0.state.borrow_mut().faults.guard = Some(guard);
    }

    /// Makes the block at `at` unreadable.
    pub fn spoil(&self, at: DiskOffset) {
        self.0.state.borrow_mut().harm_medium(at.0 / BLOCK, |content, block, _| content.spoil(block));
    }

    /// Changes the block at `at` behind everyone's back.
    pub fn rot(&self, at: DiskOffset) {
        self.0.state.borrow_mut().harm_medium(at.0 / BLOCK, Content::rot);
    }

    /// Plans `fault` for the next write that is submitted and has none planned yet.
    pub fn fault_next_write(&self, fault: WriteFault) {
        self.0.state.borrow_mut().faults.writes.push_back(fault);
    }

    /// Plans `error` for the next read of the block at `at`; the one after it succeeds.
    pub fn fail_next_read_of(&self, at: DiskOffset, error: DiskError) {
        self.fail_next_reads_of(at, 1, error);
    }

    /// Plans `error` for the next `times` reads of the block at `at`; the one after them succeeds.
    pub fn fail_next_reads_of(&self, at: DiskOffset, times: u32, error: DiskError) {
        self.0.state.borrow_mut().faults.reads.insert(at.0 / BLOCK, (times, error));
    }

    /// Plans `error` for the next flush.
    pub fn fail_next_flush(&self, error: DiskError) {
        self.0.state.borrow_mut().faults.flushes.push_back(error);
    }

    /// Answers nothing for `span` from now.
    pub fn stall(&self, span: Nanos) {
        let mut state = self.0.state.borrow_mut();
        state.stalled_until = state.stalled_until.max(self.0.world.now() + span);
    }

    /// Is not there any more: fault model 9.
    pub fn vanish(&self) {
        let mut state = self.0.state.borrow_mut();
        state.gone = true;
        state.unplugged += 1;
        let orphans = state.leave_in_the_air();
        drop(state);
        self.0.world.trace(0x90e, self.0.no, 0);
        for promise in orphans {
            promise.keep(Err(DiskError::Gone));
        }
    }

    /// Is back with what it had when it vanished, minus what `rng` decides that was lost with its power.
    pub fn come_back(&self, rng: &mut Rng) {
        self.power_cut(rng);
        self.0.state.borrow_mut().gone = false;
    }

    /// Is back, and never lost its power: what it had taken is as volatile as before, and each write that was under way
    /// happened, did not, or did in part.
    pub fn return_intact(&self, rng: &mut Rng) {
        let mut state = self.0.state.borrow_mut();
        state.settle_the_air(rng);
        state.gone = false;
    }

    /// Is back with the content of `image`, as if somebody had put an older copy, or another disk, in its place.
    pub fn return_as(&self, image: &DiskImage) {
        let mut state = self.0.state.borrow_mut();
        assert!(state.under_way.is_empty(), "it is not gone, and the world has not been halted");
        assert_eq!(state.shape, image.shape, "a disk keeps its shape");
        state.durable = image.content.clone();
        state.visible = image.content.clone();
        state.cache.clear();
        state.in_the_air.clear();
        state.stalled_until = Nanos(0);
        state.gone = false;
    }

    /// Which file it is: 0, unless somebody said otherwise.
    pub fn file(&self) -> u64 {
        self.0.state.borrow().file
    }

    /// Is another file from now on.
    pub fn set_file(&self, file: u64) {
        self.0.state.borrow_mut().file = file;
    }

    /// Whether it has vanished.
    pub fn is_gone(&self) -> bool {
        self.0.state.borrow().gone
    }

    /// The ledger: every block that a fault has harmed and that was not durably rewritten since, or that a write under
    /// way is going to harm; lowest first. A block may stand there twice with different harms.
    pub fn harmed(&self) -> Vec<(DiskOffset, Harm)> {
        let state = self.0.state.borrow();
        let mut all: BTreeSet<(DiskOffset, Harm)> = state.visible.harmed().into_iter().collect();
        all.extend(state.durable.harmed());
        let faulty = state.volatile().filter(|(write, tear)| write.lands != Lands::There || tear.is_some());
        for (write, tear) in faulty {
            let intended = if tear.is_some() { Harm::Mixed } else { Harm::Missed };
            all.extend(write.blocks().map(|no| (DiskOffset(no * BLOCK), intended)));
            if let Lands::Elsewhere(at) = write.lands {
                let places = (0..write.len.0 / BLOCK).map(|no| DiskOffset(at.0 + no * BLOCK));
                all.extend(places.map(|at| (at, Harm::Overwritten)));
            }
        }
        all.into_iter().collect()
    }

    /// What a fault has done to the block at `at` as reads see it now.
    pub fn harm(&self, at: DiskOffset) -> Option<Harm> {
        self.0.state.borrow().visible.harm(at.0 / BLOCK)
    }

    /// What a read of `len` bytes from `at` would give now; takes no time and suffers no fault but those there are.
    pub fn peek(&self, at: DiskOffset, len: ByteCount) -> Result<Vec<u8>, DiskError> {
        let state = self.0.state.borrow();
        DiskImage { shape: state.shape, content: state.visible.clone() }.read(at, len)
    }
}

impl Disk for SimDisk {
    fn shape(&self) -> DiskShape {
        self.0.state.borrow().shape
    }

    fn read(&self, at: DiskOffset, into: Buf) -> IoFuture<Buf> {
        let disk = self.clone();
        Box::pin(async move {
            let len = into.len() as u64;
            let drawn = disk.draw(|state| state.faults.draw_read(at, len, &mut state.rng));
            let planned = disk.0.state.borrow_mut().faults.take_read_error(at, len);
            let fails = drawn.iter().any(|fault| matches!(fault, Fault::Transient(..)));
            let planned = planned.or(fails.then_some(DiskError::Media));
            let reply = disk.submit(move |state, world| state.read_job(at, into, world)).await?;
            if let Some(error) = planned {
                return Err(error);
            }
            Ok(reply.expect("a read gives its buffer back"))
        })
    }

    fn write(&self, at: DiskOffset, from: Vec<IoSlice>) -> IoFuture<()> {
        let disk = self.clone();
        let len = ByteCount(from.iter().map(|slice| slice.len() as u64).sum());
        Box::pin(async move { disk.submit_write(at, len, Some(from)).await })
    }

    fn flush(&self) -> IoFuture<()> {
        let disk = self.clone();
        Box::pin(async move {
            let faults = disk.draw(|state| state.faults.draw_flush(&mut state.rng));
            let planned = faults.contains(&Fault::FlushError).then_some(DiskError::Os(5));
            disk.submit(move |state, world| state.flush_job(planned, world)).await.map(drop)
        })
    }

    fn discard(&self, at: DiskOffset, len: ByteCount) -> IoFuture<()> {
        let disk = self.clone();
        Box::pin(async move { disk.submit_write(at, len, None).await })
    }

    fn write_cache(&self) -> WriteCache {
        let state = self.0.state.borrow();
        state.tells.unwrap_or(if state.protected { WriteCache::NonVolatile } else { WriteCache::Volatile })
    }
}

impl SimDisk {
    /// Submits a write, or a discard if there are no bytes.
    async fn submit_write(&self, at: DiskOffset, len: ByteCount, bytes: Option<Vec<IoSlice>>) -> Result<(), DiskError> {
        let planned = match &bytes {
            Some(_) => self.draw(|state| state.faults.draw_write(at, len, state.shape.capacity, &mut state.rng)),
            None => Vec::new(),
        };
        let planned = planned.into_iter().find_map(|fault| match fault {
            Fault::Misdirect { to, .. } => Some(WriteFault::Misdirect(to)),
            Fault::Lose(..) => Some(WriteFault::Lose),
            Fault::WriteError(..) => Some(WriteFault::Error(DiskError::Os(5))),
            _ => None,
        });
        self.submit(move |state, world| state.write_job(at, len, bytes, planned, world)).await.map(drop)
    }

    /// Hands a job to the disk and waits for its end. After a crash point nothing is taken any more, and nothing ends.
    async fn submit(&self, job: impl FnOnce(&mut State, Submission) -> (Job, Op)) -> Reply {
        match self.start(job) {
            Some(answer) => answer.wait().await,
            None => std::future::pending().await,
        }
    }

    fn start(&self, job: impl FnOnce(&mut State, Submission) -> (Job, Op)) -> Option<Answer<Reply>> {
        let world = &self.0.world;
        if world.crashed() {
            return None;
        }
        let (promise, answer) = promise();
        let mut state = self.0.state.borrow_mut();
        if state.gone {
            promise.keep(Err(DiskError::Gone));
            return Some(answer);
        }
        assert!(state.in_the_air.is_empty(), "after a halt, call power_cut or survive_kill before using the disk");
        let (job, op) = job(&mut state, Submission { world, disk: self.0.no });
        state.stats.count(op);
        let counts = !matches!(job, Job::Read { .. });
        let id = state.submissions;
        state.submissions += 1;
        state.under_way.insert(id, UnderWay { job, promise });
        state.timing.submit(world.now(), id, op);
        self.0.set_alarm(&mut state);
        drop(state);
        if counts {
            world.count_operation();
        }
        Some(answer)
    }

    /// Lets the planned faults of an operation happen, if the guard agrees; returns those that happen to the operation.
    fn draw(&self, draw: impl FnOnce(&mut State) -> Vec<Fault>) -> Vec<Fault> {
        if self.0.world.crashed() || self.is_gone() {
            return Vec::new();
        }
        let (mut drawn, guard) = {
            let mut state = self.0.state.borrow_mut();
            (draw(&mut state), state.faults.guard.clone())
        };
        drawn.retain(|fault| guard.as_ref().is_none_or(|allows| allows(*fault)));
        for fault in &drawn {
            match fault {
                Fault::Latent(at) => self.spoil(*at),
                Fault::Rot(at) => self.rot(*at),
                Fault::Stall(span) => self.stall(*span),
                Fault::Transient(..)
                | Fault::Misdirect { .. }
                | Fault::Lose(..)
                | Fault::WriteError(..)
                | Fault::FlushError => {}
            }
        }
        drawn
    }
}

/// Where a job is being submitted, for the trace.
struct Submission<'a> {
    world: &'a SimWorld,
    disk: u64,
}

impl Submission<'_> {
    fn trace(&self, what: u64, a: u64, b: u64) {
        self.world.trace(what + (self.disk << 16), a, b);
    }
}

#[cfg(test)]
mod tests;
