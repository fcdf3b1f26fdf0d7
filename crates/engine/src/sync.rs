//! What tasks of one thread need to wait for each other: an answer, a change, a room, all of several.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};

/// So few that are joined are polled all each time one is woken: to tell which one costs more. With many it would cost
/// the square of how many there are.
const FEW: usize = 8;

/// Where one answer will be put; see [`promise`].
pub struct Promise<T>(Rc<Once<T>>);

/// Where one answer will come from; see [`promise`].
pub struct Answer<T>(Rc<Once<T>>);

struct Once<T> {
    value: Cell<Option<T>>,
    waker: Cell<Option<Waker>>,
}

/// A place for one value: the [`Promise`] is kept by who will know it, the [`Answer`] by who waits for it.
pub fn promise<T>() -> (Promise<T>, Answer<T>) {
    let once = Rc::new(Once { value: Cell::new(None), waker: Cell::new(None) });
    (Promise(once.clone()), Answer(once))
}

impl<T> Promise<T> {
    /// Gives the answer.
    pub fn keep(self, value: T) {
        self.0.value.set(Some(value));
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

impl<T> Answer<T> {
    /// Waits for the answer.
    pub async fn wait(self) -> T {
        poll_fn(|context| match self.0.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                self.0.waker.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

/// Something that changes, and those who wait for the next change. Waiters re-check their condition in a loop.
#[derive(Default)]
pub struct Signal {
    changes: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    /// A signal nobody waits for.
    pub fn new() -> Signal {
        Signal::default()
    }

    /// Tells every waiter that something changed.
    pub fn notify(&self) {
        self.changes.set(self.changes.get() + 1);
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Waits for the first [`Signal::notify`] after this call (not after the first poll).
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        let seen = self.changes.get();
        poll_fn(move |context| {
            if self.changes.get() != seen {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
    }

    /// Waits until `condition` holds, looking again after every change.
    pub async fn until(&self, condition: impl Fn() -> bool) {
        while !condition() {
            self.changed().await;
        }
    }
}

/// Something one task at a time may do; the others wait their turn, in the order in which they came.
#[derive(Default)]
pub struct Turn {
    /// The number of the next one to come.
    next: Cell<u64>,
    /// The number whose turn it is.
    serving: Cell<u64>,
    freed: Signal,
}

/// Held while it is one's turn.
pub struct TurnGuard<'a>(&'a Turn);

impl Turn {
    /// Waits for the turn. It must be driven to its end, or nobody after it has a turn.
    pub async fn take(&self) -> TurnGuard<'_> {
        let number = self.next.replace(self.next.get() + 1);
        self.freed.until(|| self.serving.get() == number).await;
        TurnGuard(self)
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.serving.set(self.0.serving.get() + 1);
        self.0.freed.notify();
    }
}

/// Begins `future`. What it came to, if that is known at once; else it is to be driven on.
pub async fn begin<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    poll_fn(|context| {
        Poll::Ready(match Pin::new(&mut future).poll(context) {
            Poll::Ready(told) => Some(told),
            Poll::Pending => None,
        })
    })
    .await
}

/// Drives several futures of one kind to their ends at once.
pub async fn join<'a, T, F: Future<Output = T> + 'a>(futures: impl Iterator<Item = F>) -> Vec<T> {
    join_all(futures.map(|future| alloc::boxed::Box::pin(future) as _).collect()).await
}

/// Drives all of `futures` to their ends at once; the answers in the same order.
pub async fn join_all<T>(futures: Vec<Pin<Box<dyn Future<Output = T> + '_>>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(Some).collect();
    let mut answers: Vec<Option<T>> = running.iter().map(|_| None).collect();
    let (count, mut left, mut joined) = (running.len(), running.len(), None::<Joined>);
    poll_fn(|context| {
        let mut poll = |no: usize, context: &mut Context<'_>| {
            let Some(future) = &mut running[no] else { return };
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                answers[no] = Some(value);
                running[no] = None;
                left -= 1;
            }
        };
        if count <= FEW {
            (0..count).for_each(|no| poll(no, context));
        } else {
            let joined = match &mut joined {
                Some(joined) if joined.is_for(context.waker()) => joined,
                other => other.insert(Joined::new(count, context.waker())),
            };
            joined.each_woken(|no, waker| poll(no, &mut Context::from_waker(waker)));
        }
        if left > 0 { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    answers.into_iter().map(|answer| answer.expect("every future was driven to its end")).collect()
}

/// Which futures of a [`join_all`] are to be polled.
struct Joined {
    wakers: Vec<Waker>,
    woken: Arc<Woken>,
}

struct Woken {
    /// A bit for each future.
    bits: Box<[AtomicU64]>,
    /// Wakes the task that waits for all of them.
    task: Waker,
}

/// Wakes one of them.
struct WakesOne {
    no: usize,
    woken: Arc<Woken>,
}

impl Wake for WakesOne {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.bits[self.no / 64].fetch_or(1 << (self.no % 64), Ordering::AcqRel);
        self.woken.task.wake_by_ref();
    }
}

impl Joined {
    /// All of so many are to be polled.
    fn new(count: usize, task: &Waker) -> Joined {
        let bits = (0..count.div_ceil(64)).map(|_| AtomicU64::new(u64::MAX)).collect();
        let woken = Arc::new(Woken { bits, task: task.clone() });
        let wakers = (0..count).map(|no| Waker::from(Arc::new(WakesOne { no, woken: woken.clone() }))).collect();
        Joined { wakers, woken }
    }

    fn is_for(&self, task: &Waker) -> bool {
        self.woken.task.will_wake(task)
    }

    /// Does something with each that was woken since it was polled last, in their order.
    fn each_woken(&self, mut act: impl FnMut(usize, &Waker)) {
        for (word, bits) in self.woken.bits.iter().enumerate() {
            let mut woken = bits.swap(0, Ordering::AcqRel);
            while woken != 0 {
                let no = word * 64 + woken.trailing_zeros() as usize;
                woken &= woken - 1;
                self.wakers.get(no).into_iter().for_each(|waker| act(no, waker));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Executor;

    #[test]
    fn an_answer_given_before_or_after_waiting_arrives() {
        let executor = Executor::new();
        let seen = Rc::new(Cell::new(0));
        let (promise_early, answer_early) = promise();
        let (promise_late, answer_late) = promise();
        promise_early.keep(1);
        let sum = seen.clone();
        executor.spawn("wait", Box::pin(async move { sum.set(answer_early.wait().await + answer_late.wait().await) }));
        let mut scratch = Vec::new();
        while executor.run_ready(&mut scratch) {}
        promise_late.keep(2);
        while executor.run_ready(&mut scratch) {}
        assert_eq!((seen.get(), executor.alive()), (3, 0));
    }

    #[test]
    fn of_many_that_are_joined_only_those_that_were_woken_are_polled() {
        const MANY: usize = 200;
        let executor = Executor::new();
        let polls = Rc::new(Cell::new(0));
        let (promises, answers): (Vec<_>, Vec<_>) = (0..MANY).map(|_| promise()).unzip();
        let (counted, sum) = (polls.clone(), Rc::new(Cell::new(0)));
        let total = sum.clone();
        executor.spawn(
            "join",
            Box::pin(async move {
                let counts = |answer: Answer<usize>| {
                    let (counted, mut waits) = (counted.clone(), Box::pin(answer.wait()));
                    poll_fn(move |context| {
                        counted.set(counted.get() + 1);
                        waits.as_mut().poll(context)
                    })
                };
                let answered = join(answers.into_iter().map(counts)).await;
                assert!(answered.iter().copied().eq(0..MANY), "the answers are in the order of the questions");
                total.set(answered.iter().sum());
            }),
        );
        let mut scratch = Vec::new();
        while executor.run_ready(&mut scratch) {}
        for (no, promise) in promises.into_iter().enumerate().rev() {
            promise.keep(no);
            while executor.run_ready(&mut scratch) {}
        }
        assert_eq!((polls.get(), sum.get()), (2 * MANY, MANY * (MANY - 1) / 2));
    }

    #[test]
    fn whoever_comes_back_at_once_has_its_turn_after_those_who_wait() {
        let executor = Executor::new();
        let (turn, order) = (Rc::new(Turn::default()), Rc::new(RefCell::new(Vec::new())));
        for name in 0..3 {
            let (turn, order) = (turn.clone(), order.clone());
            let job = async move {
                for _ in 0..2 {
                    let _turn = turn.take().await;
                    order.borrow_mut().push(name);
                }
            };
            executor.spawn("one", Box::pin(job));
        }
        let mut scratch = Vec::new();
        while executor.run_ready(&mut scratch) {}
        assert_eq!((order.take(), executor.alive()), (alloc::vec![0, 0, 1, 1, 2, 2], 0));
    }

    #[test]
    fn a_signal_between_the_call_and_the_first_poll_is_not_lost() {
        let executor = Executor::new();
        let signal = Rc::new(Signal::new());
        let inner = signal.clone();
        executor.spawn(
            "wait",
            Box::pin(async move {
                let changed = inner.changed();
                inner.notify();
                changed.await;
            }),
        );
        let mut scratch = Vec::new();
        while executor.run_ready(&mut scratch) {}
        assert_eq!(executor.alive(), 0);
    }
}
