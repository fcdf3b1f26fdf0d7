//! A workload on an export, with our server at the other end.

use crate::common::{Memory, Shelf, shape};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_engine::error::ErrorKind;
use weft_host::api::error::Kind;
use weft_host::export::{Done, Op, Volume, VolumeShape};
use weft_host::load::{Nbd, Target, run};
use weft_host::nbd::{Address, Config, Server};
use weft_lab::jobs::Job;

fn job(text: &str) -> Job {
    Job::read(text).unwrap().remove(0)
}

struct Bench {
    _dir: tempfile::TempDir,
    _server: Server,
    place: String,
}

impl Bench {
    fn of(volume: Arc<dyn Volume>) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let server = Server::start(&Address::Unix(path.clone()), Shelf::of([("disk", volume)]), Config::default());
        Bench { _dir: dir, _server: server.unwrap(), place: path.display().to_string() }
    }

    fn connect(&self, export: &str) -> Result<Nbd, weft_host::api::error::ApiError> {
        Nbd::connect(&format!("nbd+unix:///{export}?socket={}", self.place).parse().unwrap())
    }
}

#[test]
fn a_job_is_run_on_an_export_with_many_requests_under_way() {
    let memory = Memory::new(shape(4 << 20, 512));
    let bench = Bench::of(memory.clone());
    let mut nbd = bench.connect("disk").unwrap();
    assert_eq!((nbd.size(), nbd.read_only()), (4 << 20, false));
    let fill = run(&mut nbd, &job("[a]\nrw=write\nbs=1m\niodepth=3\nfsync=2")).unwrap();
    assert_eq!((fill.requests, fill.bytes, fill.seconds.iter().sum::<u64>()), (4, 4 << 20, 4 << 20));
    // Two of the job's, and the one that ends it.
    assert_eq!(memory.flushes.load(Ordering::Relaxed), 3);
    // A connection serves job after job.
    let reads = run(&mut nbd, &job("[a]\nrw=randread\nbs=4k\niodepth=32\nnumjobs=4")).unwrap();
    assert_eq!((reads.requests, reads.bytes), (1024, 4 << 20));
    assert_eq!(reads.latency.histogram.iter().map(|bucket| bucket.count).sum::<u64>(), 1024);
    assert!(reads.latency.p50 <= reads.latency.p99 && reads.latency.p99 <= reads.latency.max);
}

#[test]
fn an_export_that_is_not_there_is_told_and_so_is_a_server_that_is_none() {
    let bench = Bench::of(Memory::new(shape(1 << 20, 512)));
    let error = bench.connect("other").err().unwrap();
    assert_eq!(error.kind, Kind::NotFound);
    assert!(error.message.contains("no export `other`"), "{error:?}");
    let none = Nbd::connect(&"nbd+unix:///disk?socket=/no/such/socket".parse().unwrap()).err().unwrap();
    assert!(none.message.contains("cannot be reached"));
}

/// Fails every write.
struct Broken;

impl Volume for Broken {
    fn shape(&self) -> VolumeShape {
        shape(1 << 20, 512)
    }

    fn submit(&self, _: Op, done: Done) {
        done(Err(ErrorKind::NotPossible));
    }
}

#[test]
fn the_first_request_that_fails_ends_it_however_many_wait() {
    let bench = Bench::of(Arc::new(Broken));
    let mut nbd = bench.connect("disk").unwrap();
    let error = run(&mut nbd, &job("[a]\nrw=write\nbs=64k\niodepth=16")).unwrap_err();
    assert!(error.message.contains("failed: NBD error"), "{error:?}");
}
