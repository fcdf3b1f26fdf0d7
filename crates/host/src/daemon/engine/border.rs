//! The border of one pool: a panic in its engine ends that pool, and nothing else.
//!
//! Everything that runs code of a pool runs inside its border: tasks by [`Border::guard`], short looks by
//! [`Border::look`].
//!
//! Invariants
//! 1. After a panic nothing of the pool runs any more, so nothing is written that follows from what is wrong: its tasks
//!    are not polled again, and are leaked rather than dropped half-way.
//! 2. Whoever waits for an answer of the pool gets an error.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What is told of a panic, once.
type OnDeath = Box<dyn FnOnce(String)>;

/// The border of one pool: whether its engine has panicked, and who is to know.
#[derive(Default)]
pub struct Border {
    dead: Cell<bool>,
    next: Cell<u64>,
    /// Who is to look again when it has died.
    waiting: RefCell<BTreeMap<u64, Waker>>,
    on_death: RefCell<Option<OnDeath>>,
}

/// A future that runs inside a border.
struct Guarded<F> {
    border: Rc<Border>,
    no: u64,
    inside: Option<Pin<Box<F>>>,
}

impl Border {
    /// Calls `told` with the words of the panic, when there is one. It must not look into the pool.
    pub fn on_death(&self, told: impl FnOnce(String) + 'static) {
        *self.on_death.borrow_mut() = Some(Box::new(told));
    }

    /// Whether there was a panic.
    pub fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// Runs `future` inside. `None`: there was a panic, here or in another task of the pool.
    pub fn guard<F: Future>(self: &Rc<Self>, future: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        let no = self.next.get();
        self.next.set(no + 1);
        Guarded { border: self.clone(), no, inside: Some(Box::pin(future)) }
    }

    /// Runs `look` inside. `None`: there was a panic.
    pub fn look<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        if self.dead.get() {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(look)) {
            Ok(seen) => Some(seen),
            Err(panic) => {
                self.die(&*panic);
                None
            }
        }
    }

    fn die(&self, panic: &dyn Any) {
        if self.dead.replace(true) {
            return;
        }
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        if let Some(told) = self.on_death.borrow_mut().take() {
            told(words.unwrap_or_else(|| "no reason given".into()));
        }
        mem::take(&mut *self.waiting.borrow_mut()).into_values().for_each(Waker::wake);
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let border = self.border.clone();
        let inside = self.inside.as_mut();
        let polled = inside.and_then(|inside| border.look(|| inside.as_mut().poll(context)));
        match polled {
            Some(Poll::Pending) => {
                let mut waiting = border.waiting.borrow_mut();
                if !waiting.get(&self.no).is_some_and(|waker| waker.will_wake(context.waker())) {
                    waiting.insert(self.no, context.waker().clone());
                }
                Poll::Pending
            }
            Some(Poll::Ready(value)) => {
                border.waiting.borrow_mut().remove(&self.no);
                Poll::Ready(Some(value))
            }
            None => {
                mem::forget(self.inside.take());
                Poll::Ready(None)
            }
        }
    }
}

impl<F> Drop for Guarded<F> {
    fn drop(&mut self) {
        if self.border.is_dead() {
            mem::forget(self.inside.take());
        } else {
            self.border.waiting.borrow_mut().remove(&self.no);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_engine::exec::Executor;
    use weft_engine::sync::promise;

    #[test]
    fn a_panic_ends_all_tasks_of_its_pool_and_none_of_another() {
        let executor = Executor::new();
        let (mine, other) = (Rc::new(Border::default()), Rc::new(Border::default()));
        let (told, ended, going_on) =
            (Rc::new(RefCell::new(String::new())), Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let words = told.clone();
        mine.on_death(move |why| *words.borrow_mut() = why);
        let (never, answer) = promise::<()>();
        let (waits, count) = (mine.guard(answer.wait()), ended.clone());
        executor.spawn(
            "waits",
            Box::pin(async move {
                assert!(waits.await.is_none());
                count.set(count.get() + 1);
            }),
        );
        let mut scratch = Vec::new();
        while executor.run_ready(&mut scratch) {}
        let (breaks, count) = (mine.guard(async { panic!("slab {} is claimed twice", 3) }), ended.clone());
        executor.spawn(
            "breaks",
            Box::pin(async move {
                let nothing: Option<()> = breaks.await;
                assert!(nothing.is_none());
                count.set(count.get() + 1);
            }),
        );
        let (goes_on, reached) = (other.guard(async { 7 }), going_on.clone());
        executor.spawn("goes on", Box::pin(async move { reached.set(goes_on.await == Some(7)) }));
        while executor.run_ready(&mut scratch) {}
        assert_eq!((ended.get(), executor.alive(), &**told.borrow()), (2, 0, "slab 3 is claimed twice"));
        assert!(going_on.get() && mine.look(|| 1).is_none() && other.look(|| 1) == Some(1));
        drop(never);
    }
}
