//! The rest of the seam: time, tasks and events. `weft-host` implements it on Linux, `weft-sim` in virtual time.

use crate::event::Event;
use crate::exec::Task;
use crate::units::Nanos;
use alloc::boxed::Box;
use core::future::Future;
use core::pin::Pin;

/// What the engine asks of the world around it, beside its disks.
pub trait World {
    /// The monotonic clock.
    fn now(&self) -> Nanos;

    /// Completes when the clock has moved on by `span`.
    fn sleep(&self, span: Nanos) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Runs `task` to its end beside the others, on the engine's one thread. `name` is for people.
    fn spawn(&self, name: &'static str, task: Task);

    /// Takes note of `event`.
    fn emit(&self, event: Event);
}
