//! The engine's thread, seen from the others: work goes in, answers come out, nothing is lost, and it stops cleanly.
//! No test depends on how long anything takes.

use socket2::Socket;
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use weft_engine::error::ErrorKind;
use weft_engine::io::{Buf, Disk};
use weft_engine::sync::{Signal, join_all};
use weft_engine::units::{ByteCount, DiskOffset, Nanos};
use weft_host::disk::{BackendChoice, DiskOptions};
use weft_host::export::{Guest, PayloadPool, Visit};
use weft_host::runtime::{Handle, Local, Options, start};

const LONG: Duration = Duration::from_secs(600);

/// Runs `story` once per back end this machine grants.
fn on_both<S: 'static>(state: fn() -> S, story: impl Fn(Handle<S>)) {
    for io in [BackendChoice::Uring, BackendChoice::Threads] {
        match start(Options { io, unwind: true, ..Options::default() }, state) {
            Ok(engine) => story(engine),
            Err(why) => eprintln!("SKIPPED: {why}"),
        }
    }
}

#[test]
fn a_graph_of_sleeps_and_requests_runs_to_its_end() {
    on_both(
        || (),
        |engine| {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
            let path = dir.path().join("disk");
            let sum = engine.call("graph", move |local| async move {
                let options = DiskOptions { create: Some(ByteCount::mib(1)), ..DiskOptions::default() };
                let disk = local.open_disk(&path, &options).expect("a new disk opens");
                let sum = Rc::new(Cell::new((0, 0u64)));
                let landed = Rc::new(Signal::new());
                for no in 0..64u64 {
                    let (local, disk, sum, landed) = (local.clone(), disk.clone(), sum.clone(), landed.clone());
                    local.clone().spawn("leaf", async move {
                        let world = local.world();
                        let (begun, span) = (world.now(), Nanos(no % 7 * 300_000));
                        world.sleep(span).await;
                        assert!(world.now().since(begun) >= span);
                        let at = DiskOffset(no * 4096);
                        let mut buf = Buf::zeroed(4096);
                        buf[0] = no as u8;
                        disk.write(at, vec![buf.freeze()]).await.expect("the disk writes");
                        let back = disk.read(at, Buf::zeroed(4096)).await.expect("the disk reads");
                        sum.set((sum.get().0 + 1, sum.get().1 + u64::from(back[0])));
                        landed.notify();
                    });
                }
                landed.until(|| sum.get().0 == 64).await;
                sum.get()
            });
            assert_eq!(sum, Ok((64, (0..64).sum())));
            assert_eq!(engine.stop(LONG).unfinished, Vec::<&str>::new());
        },
    );
}

#[test]
fn sleepers_sleep_for_their_spans_at_least() {
    on_both(
        || (),
        |engine| {
            let woken = engine.call("sleepers", |local| async move {
                let world = local.world();
                let begun = world.now();
                let sleeps = [9u64, 1, 5, 0, 3].map(|n| (Nanos::millis(n), world.sleep(Nanos::millis(n))));
                let all = sleeps.map(|(span, sleep)| -> std::pin::Pin<Box<dyn Future<Output = (Nanos, Nanos)>>> {
                    let world = world.clone();
                    Box::pin(async move {
                        sleep.await;
                        (span, world.now().since(begun))
                    })
                });
                join_all(Vec::from(all)).await
            });
            let woken = woken.expect("an answer");
            assert!(woken.len() == 5 && woken.iter().all(|(span, slept)| slept >= span), "{woken:?}");
            engine.stop(LONG);
        },
    );
}

#[test]
fn calls_from_many_threads_are_all_answered() {
    on_both(
        || Cell::new(0u64),
        |engine| {
            std::thread::scope(|scope| {
                for thread in 0..8u64 {
                    let engine = &engine;
                    scope.spawn(move || {
                        for no in 0..500 {
                            let answer = engine.call("add", move |local: Rc<Local<Cell<u64>>>| async move {
                                local.state().set(local.state().get() + 1);
                                thread * 1000 + no
                            });
                            assert_eq!(answer, Ok(thread * 1000 + no));
                        }
                    });
                }
            });
            assert_eq!(engine.call("sum", |local| async move { local.state().get() }), Ok(8 * 500));
            assert!(!engine.stop(LONG).panicked);
        },
    );
}

#[test]
fn a_stop_lets_tasks_end_and_takes_no_new_ones() {
    on_both(
        || Rc::new(Signal::new()),
        |engine| {
            let (ended, has_ended) = mpsc::channel();
            let built = engine.spawn("waiter", move |local: &Rc<Local<Rc<Signal>>>| {
                let signal = local.state().clone();
                Box::pin(async move {
                    signal.changed().await;
                    ended.send(()).expect("the test listens");
                })
            });
            assert_eq!(built, Ok(()));
            // The waiter is waiting once a later call has been answered.
            assert_eq!(engine.call("settle", |_| async {}), Ok(()));
            engine.begin_stop(LONG);
            let refused = engine.spawn("late", |_| Box::pin(async {})).expect_err("a stop has begun");
            assert_eq!(refused.kind, ErrorKind::Closed);
            assert_eq!(engine.run(|local| local.state().notify()), Ok(()));
            assert_eq!(engine.stop(LONG).unfinished, Vec::<&str>::new());
            assert_eq!(has_ended.try_recv(), Ok(()));
            assert_eq!(engine.run(|_| ()).expect_err("the thread has ended").kind, ErrorKind::Closed);
            assert_eq!(engine.stop(LONG).unfinished, Vec::<&str>::new());
        },
    );
}

#[test]
fn a_task_that_never_ends_is_named_and_its_caller_is_let_go() {
    on_both(
        || (),
        |engine| {
            let caller = engine.clone();
            let (waits, is_waiting) = mpsc::channel();
            let called = std::thread::spawn(move || {
                caller.call("stuck", move |_| async move {
                    waits.send(()).expect("the test listens");
                    std::future::pending::<()>().await;
                })
            });
            is_waiting.recv().expect("the task runs");
            assert_eq!(engine.stop(Duration::ZERO).unfinished, ["stuck"]);
            let answer = called.join().expect("no panic").expect_err("there can be no answer");
            assert_eq!(answer.kind, ErrorKind::Closed);
        },
    );
}

#[test]
fn an_end_waits_for_what_is_under_way_and_for_no_timer() {
    on_both(
        || (),
        |engine| {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(1 << 20).unwrap();
            let (path, (written, has_written), (rung, has_rung)) =
                (file.path().to_path_buf(), mpsc::channel(), mpsc::channel());
            let timer = engine.spawn("timer", |local| {
                let sleep = local.world().sleep(Nanos::secs(5));
                Box::pin(async move {
                    sleep.await;
                    rung.send(()).expect("the test listens");
                })
            });
            let writer = engine.spawn("writer", move |local| {
                let disk = local.open_disk(&path, &DiskOptions::default()).expect("a disk");
                Box::pin(async move {
                    for block in 0..64 {
                        let wrote = disk.write(DiskOffset(block * 4096), vec![Buf::zeroed(4096).freeze()]);
                        assert_eq!(wrote.await, Ok(()));
                    }
                    written.send(()).expect("the test listens");
                })
            });
            assert_eq!((timer, writer), (Ok(()), Ok(())));
            assert_eq!(engine.end(LONG).unfinished, ["timer"]);
            assert_eq!((has_written.try_recv(), has_rung.try_recv().is_err()), (Ok(()), true));
        },
    );
}

#[test]
fn a_stop_without_work_needs_no_deadline() {
    on_both(
        || (),
        |engine| {
            assert_eq!(engine.stop(LONG).unfinished, Vec::<&str>::new());
        },
    );
}

#[test]
fn the_state_is_dropped_on_the_engine_thread_when_it_ends() {
    struct Kept(mpsc::Sender<Option<String>>);
    impl Drop for Kept {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().name().map(String::from));
        }
    }
    let (told, tell) = mpsc::channel();
    let engine = start(Options::default(), move || Kept(told)).expect("some back end works");
    engine.stop(LONG);
    assert_eq!(tell.try_recv(), Ok(Some("weft-engine".into())));
}

#[test]
fn a_panic_is_reported_and_closes_the_engine() {
    on_both(
        || (),
        |engine| {
            let answer = engine.call("wrong", |_| async { panic!("as the test wants it") });
            assert_eq!(answer.expect_err("there can be no answer").kind, ErrorKind::Closed);
            assert!(engine.stop(LONG).panicked);
        },
    );
}

/// Sends back what it is sent, until that is the end.
struct Echo {
    socket: Arc<Socket>,
    left: mpsc::Sender<()>,
}

const END: u8 = b'.';

impl Guest for Echo {
    fn socket(&self) -> Arc<Socket> {
        self.socket.clone()
    }

    fn serve(&self, scratch: &mut [u8], _: &Arc<PayloadPool>) -> bool {
        let mut socket = &*self.socket;
        let len = socket.read(scratch).expect("there is something to read");
        socket.write_all(&scratch[..len]).expect("there is room for it");
        len > 0 && scratch[len - 1] != END
    }

    fn leave(&self) {
        // Whoever waited for that may have given up.
        let _ = self.left.send(());
    }
}

#[test]
fn guests_are_served_beside_readers_that_never_rest_and_have_their_input_back_when_they_or_the_thread_end() {
    // More than begin to be waited for at one turn.
    const GUESTS: usize = 60;
    on_both(
        || Cell::new(false),
        |engine| {
            let shm = std::path::Path::new("/dev/shm");
            let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
            let dir = dir.expect("a scratch directory");
            let path = dir.path().join("disk");
            let busy = engine.spawn("reader", move |local| {
                let local = local.clone();
                Box::pin(async move {
                    let options = DiskOptions { create: Some(ByteCount::mib(1)), ..DiskOptions::default() };
                    let disk = local.open_disk(&path, &options).expect("a new disk opens");
                    while !local.state().get() {
                        disk.read(DiskOffset(0), Buf::zeroed(4096)).await.expect("the disk reads");
                    }
                })
            });
            assert_eq!(busy, Ok(()));
            let (left, leaves) = mpsc::channel();
            let buffers = PayloadPool::new(0);
            let mut clients: Vec<UnixStream> = Vec::new();
            for _ in 0..GUESTS {
                let (client, server) = UnixStream::pair().expect("two ends");
                let visit = Visit::new(Arc::new(Echo { socket: Arc::new(server.into()), left: left.clone() }));
                let buffers = buffers.clone();
                engine.run(move |local| local.host(visit, buffers)).expect("it runs");
                clients.push(client);
            }
            if engine.backend().name() == "io_uring" {
                for words in [b"one", b"two"] {
                    clients.iter_mut().for_each(|client| client.write_all(words).unwrap());
                    for client in &mut clients {
                        let mut back = [0; 3];
                        client.read_exact(&mut back).unwrap();
                        assert_eq!(&back, words);
                    }
                }
                assert!(leaves.try_recv().is_err(), "all of them stay");
                clients[..GUESTS / 2].iter_mut().for_each(|client| client.write_all(&[END]).unwrap());
                (0..GUESTS / 2).for_each(|_| leaves.recv().unwrap());
                assert!(leaves.try_recv().is_err(), "the others stay");
            }
            engine.run(|local| local.state().set(true)).unwrap();
            assert_eq!(engine.stop(LONG).unfinished, Vec::<&str>::new());
            drop(left);
            let rest = leaves.iter().count();
            assert!(rest == GUESTS || rest == GUESTS - GUESTS / 2, "{rest} have their input back at the end");
        },
    );
}
