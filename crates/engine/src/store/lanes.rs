//! The way to each disk, for reads: which copy is read, and when what is read ahead has its turn.
//!
//! The rules
//! 1. What a client, or anybody else, waits for goes to its disk at once. What is read ahead waits until nobody else
//!    reads there, and then only a little of it is under way, so that whoever comes next waits for little. Once
//!    somebody waits for it, it goes at once, too.
//! 2. Of several copies the one is read whose disk has the least to do. A disk that has just read up to there goes on
//!    for a while, as it needs no seek; among disks with about as much to do the nearest head wins.
//! 3. A disk that seeks sorts what it has to read; how much it may is the matter of [`super::order`].

use super::Store;
use super::order::{Asked, Order};
use crate::format::record::Media;
use crate::segment::ahead::Fetch;
use crate::sync::{Promise, promise};
use crate::units::DiskNo;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

/// Bytes read ahead that are under way on a disk at most.
const UNDER_WAY: u64 = 3 << 20;
/// Bytes after which another copy has its turn, on disks that seek and on those that do not.
pub const CHUNK: [u64; 2] = [16 << 20, 1 << 20];
/// Bytes that could be read while a disk seeks.
const SEEK: u64 = 2 << 20;
/// Disks whose work differs by less are taken for equally busy.
const EQUAL: u64 = 1 << 20;

/// The ways to all disks.
#[derive(Default)]
pub struct Lanes(RefCell<BTreeMap<DiskNo, Lane>>);

#[derive(Default)]
struct Lane {
    /// Where the last read ends that was planned, and how many bytes were planned one after the other up to there.
    head: u64,
    run: u64,
    /// Bytes planned that have not been read, seeks counted as such.
    work: u64,
    /// Reads under way that somebody waits for.
    wanted: u32,
    /// Bytes read ahead that are under way.
    ahead: u64,
    /// What they belong to.
    under_way: Vec<Rc<Fetch>>,
    waiting: VecDeque<Waiting>,
    /// What the disk has been given, if it seeks.
    order: Order,
}

struct Waiting {
    bytes: u64,
    fetch: Rc<Fetch>,
    go: Promise<()>,
}

impl Lane {
    fn admits(&self, bytes: u64) -> bool {
        self.wanted == 0 && !self.order.holds() && (self.ahead == 0 || self.ahead + bytes <= UNDER_WAY)
    }

    fn begin(&mut self, bytes: u64, fetch: &Rc<Fetch>) {
        self.ahead += bytes;
        self.under_way.push(fetch.clone());
    }

    fn end(&mut self, bytes: u64, fetch: &Rc<Fetch>) {
        self.ahead -= bytes;
        let mine = self.under_way.iter().position(|other| Rc::ptr_eq(other, fetch));
        mine.map(|at| self.under_way.swap_remove(at));
    }

    fn follows(&self, strip: u64, strip_len: u64) -> bool {
        self.head >= strip && self.head <= strip + strip_len
    }
}

/// What is to be read from a disk.
#[derive(Clone, Debug)]
pub struct Reads {
    /// The disk.
    pub disk: DiskNo,
    /// Whether it seeks.
    pub seeks: bool,
    /// From the first byte to the last one.
    pub range: Range<u64>,
    /// Bytes that are read of that.
    pub bytes: u64,
}

/// Reads under way on a disk, until it is dropped.
pub struct Pass<'a> {
    lanes: &'a Lanes,
    reads: Reads,
    /// What is read ahead; none: somebody waits for them.
    ahead: Option<Rc<Fetch>>,
    /// Their number among those of a disk that seeks.
    number: Option<u64>,
    /// Whether they waited for others.
    waited: bool,
}

/// Work that was planned for a disk, until it is dropped.
pub struct Work<'a> {
    lanes: &'a Lanes,
    disk: DiskNo,
    bytes: u64,
}

impl Lanes {
    /// Begins reads that somebody waits for, once the disk may have them.
    pub async fn wanted(&self, reads: Reads) -> Pass<'_> {
        self.0.borrow_mut().entry(reads.disk).or_default().wanted += 1;
        self.enter(reads, None, false).await
    }

    /// Waits until what `fetch` has to read from a disk may be.
    pub async fn ahead(&self, reads: Reads, fetch: &Rc<Fetch>) -> Pass<'_> {
        let bytes = reads.bytes;
        let answer = {
            let mut lanes = self.0.borrow_mut();
            let lane = lanes.entry(reads.disk).or_default();
            if fetch.urgent.get() || fetch.cancelled.get() || lane.waiting.is_empty() && lane.admits(bytes) {
                lane.begin(bytes, fetch);
                None
            } else {
                let (go, answer) = promise();
                lane.waiting.push_back(Waiting { bytes, fetch: fetch.clone(), go });
                Some(answer)
            }
        };
        let waited = answer.is_some();
        if let Some(answer) = answer {
            answer.wait().await;
        }
        self.enter(reads, Some(fetch.clone()), waited).await
    }

    async fn enter(&self, reads: Reads, ahead: Option<Rc<Fetch>>, waited: bool) -> Pass<'_> {
        let mut pass = Pass { lanes: self, reads, ahead, number: None, waited };
        if pass.reads.seeks {
            let stream = pass.ahead.as_ref().and_then(|fetch| fetch.stream.get());
            let asked = Asked { range: pass.reads.range.clone(), bytes: pass.reads.bytes, stream };
            let entered = pass.lane(|lane| lane.order.enter(asked));
            pass.number = Some(match entered {
                Ok(number) => number,
                Err(told) => {
                    pass.waited = true;
                    told.wait().await
                }
            });
        }
        pass
    }

    /// Lets `fetch` go at once.
    pub fn hurry(&self, fetch: &Rc<Fetch>) {
        if !fetch.urgent.replace(true) {
            self.let_go(fetch);
        }
    }

    /// Ends `fetch` where it has not begun.
    pub fn cancel(&self, fetch: &Rc<Fetch>) {
        if !fetch.cancelled.replace(true) {
            self.let_go(fetch);
        }
    }

    fn let_go(&self, fetch: &Rc<Fetch>) {
        for lane in self.0.borrow_mut().values_mut() {
            let (going, staying) =
                core::mem::take(&mut lane.waiting).into_iter().partition(|waiting| Rc::ptr_eq(&waiting.fetch, fetch));
            lane.waiting = staying;
            let going: VecDeque<Waiting> = going;
            for waiting in going {
                lane.begin(waiting.bytes, &waiting.fetch);
                waiting.go.keep(());
            }
        }
    }

    /// Lets those go who may.
    fn pump(&self, disk: DiskNo) {
        let mut lanes = self.0.borrow_mut();
        let Some(lane) = lanes.get_mut(&disk) else { return };
        while lane.waiting.front().is_some_and(|waiting| lane.admits(waiting.bytes)) {
            let Some(waiting) = lane.waiting.pop_front() else { return };
            lane.begin(waiting.bytes, &waiting.fetch);
            waiting.go.keep(());
        }
    }

    /// Whether somebody waits for what is being read from the disk.
    pub fn is_wanted(&self, disk: DiskNo) -> bool {
        let lanes = self.0.borrow();
        let urgent = |lane: &Lane| lane.under_way.iter().any(|fetch| fetch.urgent.get());
        lanes.get(&disk).is_some_and(|lane| lane.wanted > 0 || urgent(lane))
    }

    /// How well a disk is suited to read from a strip; the least is the best. It goes on where it is for `chunk` bytes.
    pub fn rank(&self, disk: DiskNo, strip: u64, strip_len: u64, chunk: u64) -> u64 {
        let lanes = self.0.borrow();
        let Some(lane) = lanes.get(&disk) else { return 0 };
        let work = match lane.follows(strip, strip_len) {
            true if lane.run < chunk => lane.work.saturating_sub(2 * chunk),
            // It has had its turn: the others are next, unless they have much more to do.
            true => lane.work + chunk,
            false => lane.work + EQUAL,
        };
        let way = lane.head.abs_diff(strip) >> 20;
        (work / EQUAL).min(u32::MAX as u64) << 20 | way.min((1 << 20) - 1)
    }

    /// Takes note that `len` bytes at `at` will be read.
    pub fn plan(&self, disk: DiskNo, at: u64, len: u64, chunk: u64) -> Work<'_> {
        let mut lanes = self.0.borrow_mut();
        let lane = lanes.entry(disk).or_default();
        let follows = lane.head == at;
        // At the end of a chunk the run begins anew, wherever it goes on.
        lane.run = if follows && lane.run < chunk { lane.run + len } else { len };
        lane.head = at + len;
        let bytes = if follows { len } else { len + SEEK };
        lane.work += bytes;
        Work { lanes: self, disk, bytes }
    }
}

impl Pass<'_> {
    /// Whether they have a number among the reads of a disk that seeks.
    pub fn is_ordered(&self) -> bool {
        self.number.is_some()
    }

    /// The disk has been given them.
    pub fn begun(&self) {
        if let Some(number) = self.number {
            self.lane(|lane| lane.order.begun(number));
        }
    }

    /// The disk stalls: nobody is to wait for it one after the other.
    pub fn let_all_go(&self) {
        self.lane(|lane| lane.order.let_all_go());
    }

    /// Whether they waited for others of their disk.
    pub fn waited(&self) -> bool {
        self.waited
    }

    fn lane<T>(&self, look: impl FnOnce(&mut Lane) -> T) -> T {
        look(self.lanes.0.borrow_mut().entry(self.reads.disk).or_default())
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.lane(|lane| {
            match &self.ahead {
                Some(fetch) => lane.end(self.reads.bytes, fetch),
                None => lane.wanted -= 1,
            }
            if let Some(number) = self.number {
                lane.order.leave(number);
            }
        });
        self.lanes.pump(self.reads.disk);
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if let Some(lane) = self.lanes.0.borrow_mut().get_mut(&self.disk) {
            lane.work -= self.bytes;
        }
    }
}

impl Store {
    /// Whether disk `no` seeks: as it tells, or as somebody said, for files tell nothing.
    pub fn is_rotational(&self, no: DiskNo) -> bool {
        let members = self.members.borrow();
        let told = members.get(&no).and_then(|member| member.disk.as_ref()).is_some_and(|disk| disk.shape().rotational);
        let said = || self.map.borrow().disks.get(&no).is_some_and(|disk| disk.record.media == Media::Hdd);
        told || said()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Executor;
    use alloc::boxed::Box;
    use core::cell::Cell;
    use core::future::Future;
    use core::task::{Context, Poll, Waker};

    /// Reads `bytes` of a fetch ahead for ever; how many of them are under way.
    fn ask(executor: &Executor, lanes: &Rc<Lanes>, bytes: &[u64], fetch: &Rc<Fetch>) -> Rc<Cell<usize>> {
        let begun = Rc::new(Cell::new(0));
        for bytes in bytes.iter().copied() {
            let (lanes, fetch, begun) = (lanes.clone(), fetch.clone(), begun.clone());
            let job = async move {
                let reads = Reads { disk: DiskNo(0), seeks: false, range: 0..bytes, bytes };
                core::mem::forget(lanes.ahead(reads, &fetch).await);
                begun.set(begun.get() + 1);
            };
            executor.spawn("ahead", Box::pin(job));
        }
        begun
    }

    #[test]
    fn what_is_read_ahead_waits_for_those_who_want_something_now_until_somebody_wants_it() {
        let (executor, lanes) = (Executor::new(), Rc::new(Lanes::default()));
        let fetches: Vec<Rc<Fetch>> = (0..3).map(|_| Rc::new(Fetch::default())).collect();
        let mut scratch = Vec::new();
        let mut run = || while executor.run_ready(&mut scratch) {};
        let wanted = lanes.wanted(Reads { disk: DiskNo(0), seeks: false, range: 0..4096, bytes: 4096 });
        let wanted = match Box::pin(wanted).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(pass) => pass,
            Poll::Pending => panic!("nothing is in its way"),
        };
        let begun: Vec<_> = fetches.iter().map(|fetch| ask(&executor, &lanes, &[UNDER_WAY / 2], fetch)).collect();
        run();
        assert_eq!(begun.iter().map(|begun| begun.get()).sum::<usize>(), 0);
        lanes.hurry(&fetches[2]);
        run();
        assert_eq!(begun.iter().map(|begun| begun.get()).collect::<Vec<_>>(), [0, 0, 1]);
        drop(wanted);
        run();
        assert_eq!(
            begun.iter().map(|begun| begun.get()).collect::<Vec<_>>(),
            [1, 0, 1],
            "there is no room for the third"
        );
        lanes.cancel(&fetches[1]);
        run();
        assert!(begun[1].get() == 1 && fetches[1].cancelled.get());
    }

    #[test]
    fn of_two_copies_the_one_goes_on_until_its_chunk_ends_and_the_idle_one_goes_before_the_busy_one() {
        let (lanes, chunk) = (Lanes::default(), 4 << 20);
        let best = |at: u64| {
            if lanes.rank(DiskNo(0), at, 1 << 20, chunk) <= lanes.rank(DiskNo(1), at, 1 << 20, chunk) { 0 } else { 1 }
        };
        let (mut work, mut order) = (Vec::new(), Vec::new());
        for at in (0..16).map(|mib| mib << 20) {
            let disk = best(at);
            order.push(disk);
            work.push(lanes.plan(DiskNo(disk), at, 1 << 20, chunk));
        }
        assert_eq!(order, [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]);
        work.retain(|work| work.disk == DiskNo(1));
        assert_eq!(best(1 << 30), 0, "it has nothing to do");
        drop(work);
        assert_eq!(best(20 << 20), 1, "its head is nearest");
    }
}
