//! Making a device, and ending it.

use super::leftover;
use super::params::{REQUEST, params};
use super::queue::{Answers, Queue};
use crate::disk::ublk::{CONTROL, Control, DEPTH_MAX, numbers, open_device};
use crate::export::{Exports, Volume};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use weft_engine::error::{Error, ErrorKind, Result};

/// The limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Queues, each with a thread of its own.
    pub queues: u16,
    /// Requests of a queue at a time.
    pub depth: u16,
    /// Bytes of reads and writes under way, of all queues together.
    pub bytes: usize,
    /// How long starting waits for the block layer, which reads the first sectors.
    pub start: Duration,
    /// How long ending waits for requests under way, and for a file system on it.
    pub drain: Duration,
}

impl Default for Config {
    fn default() -> Config {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Config {
            queues: cores.clamp(1, 4) as u16,
            depth: 128,
            bytes: 64 << 20,
            start: Duration::from_secs(60),
            drain: Duration::from_secs(10),
        }
    }
}

/// One block device. Dropping it ends it.
pub struct Server {
    number: u32,
    control: Control,
    config: Config,
    queues: Vec<Serving>,
}

/// One queue's thread.
struct Serving {
    answers: Arc<Answers>,
    thread: JoinHandle<()>,
    /// Closed when the thread is done.
    done: Receiver<io::Result<()>>,
}

impl Server {
    /// Makes `/dev/ublkbNUMBER` of the export `name`. What a daemon that died left of such a device goes first.
    ///
    /// Errors: [`ErrorKind::NotFound`] when there is no such export, [`ErrorKind::AlreadyExists`] when the number is
    /// taken, [`ErrorKind::NotPossible`] when the system refuses.
    pub fn start(number: u32, exports: &dyn Exports, name: &str, config: Config) -> Result<Server> {
        let refused = |error: io::Error| refused(number, &error);
        let Some(volume) = exports.open(name) else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no {name} to offer")));
        };
        let control = Control::open().map_err(no_control)?;
        leftover::clear();
        let (queues, depth) = (config.queues.max(1), config.depth.clamp(1, DEPTH_MAX));
        control.add(number, queues, depth, REQUEST, leftover::mark()).map_err(refused)?;
        // From here on dropping the server removes the device.
        let mut server = Server { number, control, config, queues: Vec::new() };
        server.control.set_params(number, &params(&volume.shape())).map_err(refused)?;
        let device = Arc::new(open_device(number).map_err(refused)?);
        for no in 0..queues {
            server
                .queues
                .push(serve(&device, no, depth, &volume, config.bytes / usize::from(queues)).map_err(refused)?);
        }
        drop(device);
        server.control.start(number, config.start).map_err(refused)?;
        Ok(server)
    }

    /// Whether it is still there; somebody else may have ended it.
    pub fn is_there(&self) -> bool {
        !self.queues.is_empty() && self.queues.iter().all(|queue| !queue.thread.is_finished())
    }

    /// Ends the device. Requests under way are answered first. Whoever still uses it gets errors from now on.
    pub fn stop(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        let queues = std::mem::take(&mut self.queues);
        // The queues serve on: a file system that is still on it is written out.
        let stopped = self.control.stop(self.number, self.config.drain);
        let timeout = if stopped.is_ok() { self.config.drain } else { Duration::ZERO };
        for Serving { answers, thread, done } in queues {
            if matches!(done.recv_timeout(timeout), Err(RecvTimeoutError::Timeout)) {
                answers.give_up();
            }
            // A panic there was reported already.
            let _ = thread.join();
        }
        // One that somebody still has open goes when they let go.
        let _ = self.control.delete(self.number, leftover::GONE_WITHIN);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Starts the thread of one queue; it is ready for requests when this returns.
fn serve(device: &Arc<File>, no: u16, depth: u16, volume: &Arc<dyn Volume>, share: usize) -> io::Result<Serving> {
    let answers = Answers::new()?;
    let (told, ready) = channel();
    let (device, volume, theirs) = (device.clone(), volume.clone(), answers.clone());
    let body = move || run(told, || Queue::new(device, no, depth, volume, theirs, share));
    let thread = std::thread::Builder::new().name(format!("ublk queue {no}")).spawn(body)?;
    match ready.recv() {
        Ok(Ok(())) => Ok(Serving { answers, thread, done: ready }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("a thread of a queue died")),
    }
}

fn run(told: Sender<io::Result<()>>, make: impl FnOnce() -> io::Result<Queue>) {
    match make() {
        Ok(queue) => {
            let _ = told.send(Ok(()));
            queue.run();
        }
        Err(error) => drop(told.send(Err(error))),
    }
}

/// Refuses, with the errors of [`Server::start`], a number that could not be had; changes nothing.
pub fn validate(number: u32) -> Result<()> {
    let control = Control::open().map_err(no_control)?;
    match numbers().contains(&number) && !leftover::found(&control).contains(&number) {
        true => Err(refused(number, &io::ErrorKind::AlreadyExists.into())),
        false => Ok(()),
    }
}

fn no_control(error: io::Error) -> Error {
    let why = match error.kind() {
        io::ErrorKind::NotFound => {
            format!("this kernel has no ublk: there is no {CONTROL}; `modprobe ublk_drv` brings it")
        }
        io::ErrorKind::Unsupported => "this kernel's ublk is too old: 6.5 or later is needed".into(),
        _ => format!("cannot open {CONTROL}: {error}"),
    };
    Error::new(ErrorKind::NotPossible, why)
}

fn refused(number: u32, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Error::new(ErrorKind::AlreadyExists, format!("there is a ublk device {number} already"));
    }
    Error::new(ErrorKind::NotPossible, format!("cannot make ublk device {number}: {error}"))
}
