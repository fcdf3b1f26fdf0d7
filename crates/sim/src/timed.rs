//! A disk without bytes: operations take the time that its model says, and nothing else becomes of them. For what is
//! only to be timed, a terabyte as well as a megabyte.

use crate::disk::DiskStats;
use crate::timing::{Op, Timing};
use crate::world::{Alarm, Device, SimWorld};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use weft_engine::sync::{Promise, promise};
use weft_engine::world::World;

/// A disk that only takes time. A handle: clones are the same disk.
#[derive(Clone)]
pub struct TimedDisk(Rc<Inner>);

struct Inner {
    world: SimWorld,
    me: Weak<Inner>,
    state: RefCell<State>,
}

struct State {
    timing: Box<dyn Timing>,
    under_way: BTreeMap<u64, Promise<()>>,
    submitted: u64,
    alarm: Alarm,
    stats: DiskStats,
}

impl TimedDisk {
    /// A disk in `world`, as fast as `timing` says.
    pub fn new(world: &SimWorld, timing: Box<dyn Timing>) -> TimedDisk {
        let inner = Rc::new_cyclic(|me: &Weak<Inner>| {
            world.attach(me.clone());
            let (under_way, stats) = (BTreeMap::new(), DiskStats::default());
            let state = RefCell::new(State { timing, under_way, submitted: 0, alarm: Alarm::default(), stats });
            Inner { world: world.clone(), me: me.clone(), state }
        });
        TimedDisk(inner)
    }

    /// Hands an operation to the disk, at once; what it returns ends when the operation does.
    pub fn submit(&self, op: Op) -> impl Future<Output = ()> + 'static {
        let (promise, answer) = promise();
        let mut state = self.0.state.borrow_mut();
        state.stats.count(op);
        let id = state.submitted;
        state.submitted += 1;
        state.under_way.insert(id, promise);
        state.timing.submit(self.0.world.now(), id, op);
        self.0.set_alarm(&mut state);
        answer.wait()
    }

    /// What was asked of it so far.
    pub fn stats(&self) -> DiskStats {
        self.0.state.borrow().stats
    }
}

impl Inner {
    fn set_alarm(&self, state: &mut State) {
        if let Some(next) = state.timing.next() {
            state.alarm.set(next, &self.world, &self.me);
        }
    }
}

impl Device for Inner {
    fn due(&self) {
        let now = self.world.now();
        let mut done = Vec::new();
        let mut state = self.state.borrow_mut();
        if !state.alarm.rings(now) {
            return;
        }
        state.timing.advance(now, &mut done);
        let ended: Vec<Promise<()>> = done.iter().filter_map(|id| state.under_way.remove(id)).collect();
        self.set_alarm(&mut state);
        drop(state);
        ended.into_iter().for_each(|promise| promise.keep(()));
    }

    fn abandon(&self) {
        self.state.borrow_mut().under_way.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::{Hdd, HddClass};
    use crate::world::Scheduling;
    use weft_engine::units::{ByteCount, DiskOffset};

    #[test]
    fn a_stream_takes_as_long_as_its_model_says_and_nothing_is_kept() {
        let world = SimWorld::new(1, Scheduling::Fifo);
        let disk = TimedDisk::new(&world, Box::new(Hdd::new(HddClass::HDD_7200_8TB)));
        let (inner, host) = (disk.clone(), world.clone());
        let took = world.block_on(async move {
            for nth in 0..2000 {
                inner.submit(Op::Write(DiskOffset(nth << 20), ByteCount::mib(1))).await;
            }
            inner.submit(Op::Flush).await;
            host.now()
        });
        let rate = (2000u64 << 20) as f64 * 1e9 / took.expect("it ends").0 as f64;
        assert!((240e6..251e6).contains(&rate), "{rate}");
        let stats = disk.stats();
        assert_eq!((stats.writes, stats.written_bytes, stats.flushes), (2000, ByteCount(2000 << 20), 1));
    }
}
