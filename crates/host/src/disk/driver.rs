//! The two ways to the kernel, and the choice between them.

use super::Done;
use super::alarm::Alarm;
use super::op::Transfer;
use super::threads::Pool;
use super::uring::Ring;
use socket2::Socket;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weft_engine::error::{Error, ErrorKind, Result};

/// Carries requests to the kernel and back. Used by the engine's thread only.
pub(crate) trait Driver {
    /// Takes a request; it starts at the next [`Driver::turn`] at the latest.
    fn submit(&self, transfer: Transfer, done: Done);

    /// Starts what was submitted and answers what is complete. With `wait` and when there is nothing to answer and
    /// `quiet()` holds, sleeps until a completion, the alarm, or the end of `wait`.
    fn turn(&self, wait: Option<Duration>, quiet: &dyn Fn() -> bool);

    /// How many submitted requests are not answered yet.
    fn in_flight(&self) -> usize;

    /// Calls `ready` at a turn, once, when `socket` has something to read, has ended or failed. A driver that cannot
    /// drops it.
    fn poll(&self, socket: Arc<Socket>, ready: Box<dyn FnOnce()>);
}

/// Which driver to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BackendChoice {
    /// io_uring where the kernel grants it, else threads.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// A pool of threads with plain preadv and pwritev.
    Threads,
}

/// Which driver is used, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Backend {
    /// io_uring.
    Uring,
    /// Threads; with the reason where io_uring was wanted.
    Threads {
        /// Why io_uring could not be used; `None` when threads were asked for.
        instead_of_uring: Option<String>,
    },
}

impl BackendChoice {
    /// What `WEFT_IO` in the environment asks for: `uring`, `threads`, or (unset, empty or `auto`) whatever works.
    ///
    /// Errors: `InvalidInput` for any other value.
    pub fn from_env() -> Result<BackendChoice> {
        match std::env::var("WEFT_IO").unwrap_or_default().as_str() {
            "" | "auto" => Ok(BackendChoice::Auto),
            "uring" => Ok(BackendChoice::Uring),
            "threads" => Ok(BackendChoice::Threads),
            other => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("WEFT_IO is \"{other}\"; it may be uring, threads or auto"),
            )),
        }
    }
}

impl Backend {
    /// `io_uring` or `threads`.
    pub fn name(&self) -> &'static str {
        match self {
            Backend::Uring => "io_uring",
            Backend::Threads { .. } => "threads",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Backend::Threads { instead_of_uring: Some(why) } => write!(f, " (io_uring: {why})"),
            _ => Ok(()),
        }
    }
}

/// Sets a driver up on the calling thread, which must be the engine's.
pub(crate) fn choose(choice: BackendChoice, threads: usize, alarm: &Arc<Alarm>) -> Result<(Rc<dyn Driver>, Backend)> {
    let (ring, backend) = decide(choice, || Ring::new(threads, alarm.clone()))?;
    let driver: Rc<dyn Driver> = match ring {
        Some(ring) => Rc::new(ring),
        None => Rc::new(Pool::new(threads, alarm.clone())),
    };
    Ok((driver, backend))
}

/// The ring if there is to be one and it can be set up.
fn decide<R>(choice: BackendChoice, set_up: impl FnOnce() -> io::Result<R>) -> Result<(Option<R>, Backend)> {
    if choice == BackendChoice::Threads {
        return Ok((None, Backend::Threads { instead_of_uring: None }));
    }
    match set_up() {
        Ok(ring) => Ok((Some(ring), Backend::Uring)),
        Err(why) if choice == BackendChoice::Uring => {
            Err(Error::new(ErrorKind::NotPossible, format!("io_uring was asked for, but: {why}")))
        }
        Err(why) => Ok((None, Backend::Threads { instead_of_uring: Some(why.to_string()) })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_io_uring_gets_threads_unless_io_uring_was_asked_for() {
        let refused = || io::Result::<()>::Err(io::Error::from(io::ErrorKind::PermissionDenied));
        let (ring, backend) = decide(BackendChoice::Auto, refused).expect("threads always work");
        assert_eq!((ring, backend.name()), (None, "threads"));
        assert!(backend.to_string().contains("permission denied"), "{backend}");
        let error = decide(BackendChoice::Uring, refused).expect_err("nothing else was allowed");
        assert_eq!(error.kind, ErrorKind::NotPossible);
    }

    #[test]
    fn threads_that_were_asked_for_do_not_touch_io_uring() {
        let (ring, backend) =
            decide(BackendChoice::Threads, || -> io::Result<()> { panic!("touched") }).expect("threads");
        assert_eq!((ring, backend), (None, Backend::Threads { instead_of_uring: None }));
    }
}
