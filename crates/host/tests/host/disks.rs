//! What every disk does, whichever way it takes to the kernel: one suite, run once per back end.
//!
//! The disks are files in cargo's scratch directory (direct I/O where its file system allows it). A block device that
//! may be overwritten is named by `WEFT_TEST_BLOCK_DEVICE`: tests/mount/device.py gives a loop device.

use rustix::io::dup;
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use weft_engine::error::ErrorKind;
use weft_engine::io::{Buf, Disk, DiskError, IoFuture, IoSlice, WriteCache};
use weft_engine::sync::join_all;
use weft_engine::units::{ByteCount, DiskOffset, Nanos};
use weft_host::disk::{BackendChoice, DiskOptions, HostDisk, OpenDisk};
use weft_host::runtime::{Handle, Local, Options, start};

const B: usize = 4096;
const SIZE: ByteCount = ByteCount::mib(16);
const EINVAL: DiskError = DiskError::Os(22);
const EROFS: DiskError = DiskError::Os(30);

/// Every function of `suite` as a test of its own, for each back end.
macro_rules! conformance {
    ($($story:ident)*) => {
        mod uring { $(#[test] fn $story() { super::with(super::BackendChoice::Uring, super::suite::$story); })* }
        mod threads { $(#[test] fn $story() { super::with(super::BackendChoice::Threads, super::suite::$story); })* }
    };
}

conformance! {
    what_is_written_is_read_back
    slices_are_written_one_after_the_other
    more_slices_than_one_call_takes_are_written_whole
    empty_requests_are_done_at_once
    a_misaligned_request_is_our_own_mistake
    beyond_the_end_is_an_error_and_changes_nothing
    flushed_data_is_in_the_file
    discarded_ranges_give_their_room_back
    thousands_of_requests_at_once_are_all_answered
    an_unlinked_file_is_gone_for_every_later_request
    a_replaced_file_is_gone_for_requests_under_way
    a_file_that_shrank_is_a_medium_error
    a_dropped_future_harms_nobody
    requests_nobody_waits_for_do_not_outlive_their_memory
    a_disk_is_opened_once
    a_read_only_disk_refuses_writes
}

/// One scratch directory and one engine thread.
struct Rig {
    dir: tempfile::TempDir,
    engine: Handle,
}

impl Rig {
    fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// Runs `story` on the engine's thread with a new disk.
    fn on_disk<T, F>(&self, story: impl FnOnce(Rc<HostDisk>, Rc<Local>) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let path = self.path();
        self.call(move |local| {
            let disk = local.open_disk(&path, &options(SIZE)).expect("a new disk opens");
            if !disk.file().is_direct() {
                eprintln!("NOTE: no direct I/O in the scratch directory; tested with buffered I/O: {}", disk.file());
            }
            story(disk, local)
        })
    }

    fn call<T, F>(&self, story: impl FnOnce(Rc<Local>) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.engine.call("story", story).expect("the engine's thread answers")
    }
}

/// Runs one story of the suite, unless this machine grants no io_uring: that is said, not hidden.
fn with(io: BackendChoice, story: fn(&Rig)) {
    let engine = match start(Options { io, unwind: true, ..Options::default() }, || ()) {
        Ok(engine) => engine,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let rig = Rig { dir, engine };
    story(&rig);
    let stopped = rig.engine.stop(Duration::from_secs(60));
    assert_eq!((stopped.unfinished, stopped.panicked), (vec![], false));
}

fn options(size: ByteCount) -> DiskOptions {
    DiskOptions { create: Some(size), ..DiskOptions::default() }
}

/// Blocks that differ from each other and from those of every other `seed`.
fn pattern(seed: u64, blocks: usize) -> Buf {
    let mut buf = Buf::zeroed(blocks * B);
    for (word, bytes) in buf.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&(seed << 32 | word as u64).to_le_bytes());
    }
    buf
}

async fn read(disk: &HostDisk, at: u64, blocks: usize) -> Buf {
    disk.read(DiskOffset(at), Buf::zeroed(blocks * B)).await.expect("the disk reads")
}

async fn write(disk: &HostDisk, at: u64, buf: Buf) {
    disk.write(DiskOffset(at), vec![buf.freeze()]).await.expect("the disk writes");
}

async fn every_request(disk: &HostDisk) -> [Result<(), DiskError>; 4] {
    [
        disk.read(DiskOffset(0), Buf::zeroed(B)).await.map(drop),
        disk.write(DiskOffset(0), vec![Buf::zeroed(B).freeze()]).await,
        disk.flush().await,
        disk.discard(DiskOffset(0), ByteCount::kib(4)).await,
    ]
}

mod suite {
    use super::*;

    pub fn what_is_written_is_read_back(rig: &Rig) {
        rig.on_disk(|disk, _| async move {
            assert_eq!(disk.shape().capacity, SIZE);
            assert_eq!(disk.write_cache(), WriteCache::Host, "a file is flushed, whatever is below it");
            let places = [(0, 1), (3 * B, 7), (SIZE.as_usize() - 256 * B, 256)];
            for (seed, (at, blocks)) in places.into_iter().enumerate() {
                write(&disk, at as u64, pattern(seed as u64, blocks)).await;
            }
            for (seed, (at, blocks)) in places.into_iter().enumerate() {
                assert!(*read(&disk, at as u64, blocks).await == *pattern(seed as u64, blocks), "at {at}");
            }
            assert!(read(&disk, B as u64, 2).await.iter().all(|byte| *byte == 0));
        });
    }

    pub fn slices_are_written_one_after_the_other(rig: &Rig) {
        rig.on_disk(|disk, _| async move {
            let (one, two) = (pattern(1, 4).freeze(), pattern(2, 3).freeze());
            let slices = vec![two.slice(B..3 * B), one.slice(0..0), one.slice(3 * B..4 * B), two.slice(0..B)];
            let expected: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            disk.write(DiskOffset(5 * B as u64), slices).await.expect("the disk writes");
            assert!(*read(&disk, 5 * B as u64, 4).await == *expected);
            assert!(read(&disk, 9 * B as u64, 1).await.iter().all(|byte| *byte == 0));
        });
    }

    pub fn more_slices_than_one_call_takes_are_written_whole(rig: &Rig) {
        rig.on_disk(|disk, _| async move {
            let whole = pattern(9, 2500);
            let shared = whole.clone().freeze();
            let slices: Vec<IoSlice> = (0..2500).map(|no| shared.slice(no * B..(no + 1) * B)).collect();
            disk.write(DiskOffset(B as u64), slices).await.expect("the disk writes");
            assert!(*read(&disk, B as u64, 2500).await == *whole);
        });
    }

    pub fn empty_requests_are_done_at_once(rig: &Rig) {
        rig.on_disk(|disk, _| async move {
            assert_eq!(disk.read(DiskOffset(0), Buf::zeroed(0)).await.map(|buf| buf.len()), Ok(0));
            assert_eq!(disk.write(DiskOffset(SIZE.0), vec![]).await, Ok(()));
            assert_eq!(disk.discard(DiskOffset(0), ByteCount::ZERO).await, Ok(()));
        });
    }

    pub fn a_misaligned_request_is_our_own_mistake(rig: &Rig) {
        let refused = rig.on_disk(|disk, _| async move {
            let asked: [Box<dyn Fn() -> bool>; 3] = [
                Box::new(|| panics(|| drop(disk.read(DiskOffset(512), Buf::zeroed(B))))),
                Box::new(|| panics(|| drop(disk.write(DiskOffset(1), vec![Buf::zeroed(B).freeze()])))),
                Box::new(|| panics(|| drop(disk.discard(DiskOffset(0), ByteCount(B as u64 + 512))))),
            ];
            asked.map(|ask| ask())
        });
        assert_eq!(refused, [true; 3]);
    }

    fn panics(act: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).is_err()
    }

    pub fn beyond_the_end_is_an_error_and_changes_nothing(rig: &Rig) {
        rig.on_disk(|disk, _| async move {
            let last = DiskOffset(SIZE.0 - B as u64);
            assert_eq!(disk.write(last, vec![pattern(1, 2).freeze()]).await, Err(EINVAL));
            assert_eq!(disk.read(last, Buf::zeroed(2 * B)).await.map(drop), Err(EINVAL));
            assert_eq!(disk.discard(last, ByteCount::kib(8)).await, Err(EINVAL));
            let far = DiskOffset(u64::MAX - u64::MAX % B as u64);
            assert_eq!(disk.read(far, Buf::zeroed(B)).await.map(drop), Err(EINVAL));
            assert_eq!(disk.flush().await, Ok(()));
        });
        assert_eq!(fs::metadata(rig.path()).expect("the file").len(), SIZE.0);
    }

    pub fn flushed_data_is_in_the_file(rig: &Rig) {
        rig.on_disk(|disk, _| async move {
            write(&disk, 2 * B as u64, pattern(4, 3)).await;
            assert_eq!(disk.flush().await, Ok(()));
        });
        assert!(fs::read(rig.path()).expect("the file")[2 * B..5 * B] == *pattern(4, 3));
    }

    pub fn discarded_ranges_give_their_room_back(rig: &Rig) {
        let path = rig.path();
        let (full, less, shape) = rig.on_disk(|disk, _| async move {
            let allocated = || fs::metadata(&path).expect("the file").blocks() * 512;
            write(&disk, 0, pattern(1, 512)).await;
            disk.flush().await.expect("the disk flushes");
            let full = allocated();
            assert_eq!(disk.discard(DiskOffset(64 * B as u64), ByteCount((256 * B) as u64)).await, Ok(()));
            disk.flush().await.expect("the disk flushes");
            assert!(read(&disk, 0, 64).await[..] == pattern(1, 512)[..64 * B]);
            assert!(read(&disk, 320 * B as u64, 192).await[..] == pattern(1, 512)[320 * B..]);
            (full, allocated(), disk.shape())
        });
        assert_eq!(shape.capacity, SIZE);
        if less == full {
            eprintln!("NOTE: the scratch file system punches no holes; only the answer was tested");
        } else {
            assert_eq!(full - less, (256 * B) as u64);
        }
    }

    pub fn thousands_of_requests_at_once_are_all_answered(rig: &Rig) {
        rig.on_disk(|disk, _| async move {
            let writes: Vec<IoFuture<()>> = (0..3000)
                .map(|no| disk.write(DiskOffset((no * B) as u64), vec![pattern(no as u64, 1).freeze()]))
                .collect();
            assert!(join_all(writes).await.into_iter().all(|answer| answer == Ok(())));
            let reads: Vec<IoFuture<Buf>> =
                (0..3000).map(|no| disk.read(DiskOffset((no * B) as u64), Buf::zeroed(B))).collect();
            for (no, answer) in join_all(reads).await.into_iter().enumerate() {
                assert!(*answer.expect("the disk reads") == *pattern(no as u64, 1), "block {no}");
            }
        });
    }

    pub fn an_unlinked_file_is_gone_for_every_later_request(rig: &Rig) {
        let path = rig.path();
        rig.on_disk(|disk, _| async move {
            let told = Rc::new(Cell::new(0));
            let tell = told.clone();
            disk.on_gone(move || tell.set(tell.get() + 1));
            assert_eq!(every_request(&disk).await, [Ok(()); 4]);
            fs::remove_file(&path).expect("the file is there");
            disk.until_gone().await;
            assert_eq!(every_request(&disk).await, [Err(DiskError::Gone); 4]);
            // A new file under the old name is another disk.
            fs::write(&path, vec![0; SIZE.as_usize()]).expect("room for a file");
            assert!(disk.is_gone() && disk.look());
            assert_eq!(every_request(&disk).await, [Err(DiskError::Gone); 4]);
            assert_eq!(told.get(), 1);
        });
    }

    pub fn a_replaced_file_is_gone_for_requests_under_way(rig: &Rig) {
        let path = rig.path();
        rig.on_disk(|disk, local| async move {
            let ends = Rc::new(Cell::new(0));
            for no in 0..16 {
                let (disk, ends) = (disk.clone(), ends.clone());
                local.spawn("load", async move {
                    let end = loop {
                        if let Err(error) = disk.write(DiskOffset(no * 65536), vec![pattern(no, 4).freeze()]).await {
                            break error;
                        }
                    };
                    assert_eq!(end, DiskError::Gone);
                    ends.set(ends.get() + 1);
                });
            }
            let other = path.with_file_name("other");
            fs::write(&other, b"somebody else's").expect("room for a file");
            fs::rename(&other, &path).expect("the file is replaced");
            let mut rounds = 0;
            while ends.get() < 16 {
                disk.until_gone().await;
                local.world().sleep(Nanos::millis(1)).await;
                rounds += 1;
                assert!(rounds < 60_000, "requests of a disk that is gone are not answered");
            }
            assert_eq!(fs::read(&path).expect("the other file"), b"somebody else's");
        });
    }

    pub fn a_file_that_shrank_is_a_medium_error(rig: &Rig) {
        let path = rig.path();
        rig.on_disk(|disk, _| async move {
            let file = fs::OpenOptions::new().write(true).open(&path).expect("the file opens");
            file.set_len(8 * B as u64).expect("the file shrinks");
            let across = disk.read(DiskOffset(4 * B as u64), Buf::zeroed(8 * B)).await;
            assert_eq!(across.map(drop), Err(DiskError::Media));
            assert_eq!(disk.read(DiskOffset(4 * B as u64), Buf::zeroed(4 * B)).await.map(drop), Ok(()));
        });
    }

    pub fn a_dropped_future_harms_nobody(rig: &Rig) {
        rig.on_disk(|disk, _| async move {
            write(&disk, 0, pattern(7, 64)).await;
            for _ in 0..200 {
                let mut dropped: Vec<_> =
                    (0..8).map(|no| disk.read(DiskOffset(no * 4096), Buf::zeroed(8 * B))).collect();
                std::future::poll_fn(|context| {
                    for future in &mut dropped {
                        let _ = future.as_mut().poll(context);
                    }
                    std::task::Poll::Ready(())
                })
                .await;
                drop(dropped);
                assert!(*read(&disk, 0, 64).await == *pattern(7, 64));
            }
        });
    }

    /// The engine's thread may end first: what is still in the kernel then keeps its memory.
    pub fn requests_nobody_waits_for_do_not_outlive_their_memory(rig: &Rig) {
        let engine = rig.engine.clone();
        rig.on_disk(|disk, local| async move {
            write(&disk, 0, pattern(7, 4096)).await;
            let mut dropped: Vec<_> = (0..400).map(|no| disk.read(DiskOffset(no * 4096), Buf::zeroed(4 * B))).collect();
            std::future::poll_fn(|context| {
                for future in &mut dropped {
                    let _ = future.as_mut().poll(context);
                }
                std::task::Poll::Ready(())
            })
            .await;
            // With the stop under way the thread ends together with this task: after one turn, which submits.
            engine.begin_stop(Duration::from_secs(60));
            local.world().sleep(Nanos(0)).await;
        });
        assert_eq!(rig.engine.stop(Duration::from_secs(60)).unfinished, Vec::<&str>::new());
        let reopened = weft_host::disk::OpenDisk::open(&rig.path(), &DiskOptions::default());
        assert!(reopened.is_ok(), "the disk is free when the thread has ended: {reopened:?}");
    }

    pub fn a_disk_is_opened_once(rig: &Rig) {
        let path = rig.path();
        rig.on_disk(|disk, local| async move {
            assert!(disk.file().was_created());
            let link = path.with_file_name("link");
            std::os::unix::fs::symlink(&path, &link).expect("a link");
            for way in [&path, &link] {
                let error = local.open_disk(way, &options(SIZE)).err().expect("it is open already");
                assert_eq!(error.kind, ErrorKind::AlreadyExists, "{error}");
            }
            write(&disk, 0, pattern(1, 1)).await;
            drop(disk);
            let again = local.open_disk(&path, &options(ByteCount::mib(64))).expect("it is free again");
            assert_eq!((again.file().was_created(), again.shape().capacity), (false, SIZE));
            assert!(*read(&again, 0, 1).await == *pattern(1, 1));
        });
    }

    pub fn a_read_only_disk_refuses_writes(rig: &Rig) {
        let path = rig.path();
        fs::write(&path, &*pattern(3, 8)).expect("room for a file");
        rig.call(move |local| async move {
            let options = DiskOptions { read_only: true, buffered: true, ..DiskOptions::default() };
            let disk = local.open_disk(&path, &options).expect("it opens");
            assert!(!disk.file().is_direct());
            let refused = [Ok(()), Err(EROFS), Ok(()), Err(EROFS)];
            assert_eq!(every_request(&disk).await, refused);
            assert!(*read(&disk, 0, 8).await == *pattern(3, 8));
        });
    }
}

#[test]
fn what_is_no_disk_is_refused_by_kind() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory");
    let open =
        |path: &Path, options: &DiskOptions| weft_host::disk::OpenDisk::open(path, options).err().map(|e| e.kind);
    let plain = DiskOptions::default();
    assert_eq!(open(&dir.path().join("missing"), &plain), Some(ErrorKind::NotFound));
    assert_eq!(open(dir.path(), &plain), Some(ErrorKind::InvalidInput));
    fs::write(dir.path().join("tiny"), [0; 100]).expect("room for a file");
    assert_eq!(open(&dir.path().join("tiny"), &plain), Some(ErrorKind::InvalidInput));
    assert_eq!(open(Path::new("/dev/null"), &plain), Some(ErrorKind::InvalidInput));
    let odd = dir.path().join("odd");
    assert_eq!(open(&odd, &options(ByteCount(5000))), Some(ErrorKind::InvalidInput));
    assert_eq!(open(&dir.path().join("no/such/directory"), &options(SIZE)), Some(ErrorKind::NotFound));
    assert!(!odd.exists());
}

#[test]
fn a_block_device_is_claimed_read_written_flushed_and_discarded() {
    let Some(device) = std::env::var_os("WEFT_TEST_BLOCK_DEVICE") else {
        eprintln!(
            "SKIPPED: WEFT_TEST_BLOCK_DEVICE names no block device; the virtual machine's tests run this with one"
        );
        return;
    };
    for io in [BackendChoice::Uring, BackendChoice::Threads] {
        let device = PathBuf::from(&device);
        with_engine(io, move |local| async move {
            let disk = local.open_disk(&device, &DiskOptions::default()).expect("it opens");
            eprintln!("{}: {} {:?} {:?}", local.backend(), disk.file(), disk.shape(), disk.write_cache());
            assert_eq!(disk.write_cache() == WriteCache::Host, !disk.file().is_direct());
            let error = local.open_disk(&device, &DiskOptions::default()).err().expect("it is claimed");
            assert_eq!(error.kind, ErrorKind::AlreadyExists);
            write(&disk, 0, pattern(1, 256)).await;
            assert_eq!(disk.flush().await, Ok(()));
            assert!(*read(&disk, 0, 256).await == *pattern(1, 256));
            assert_eq!(disk.discard(DiskOffset(0), ByteCount::kib(512)).await, Ok(()));
            assert!(read(&disk, 128 * B as u64, 128).await[..] == pattern(1, 256)[128 * B..]);
            let end = DiskOffset(disk.shape().capacity.0 / B as u64 * B as u64);
            assert_eq!(disk.write(end, vec![pattern(1, 1).freeze()]).await, Err(EINVAL));
        });
    }
}

fn with_engine<F: Future<Output = ()> + 'static>(
    io: BackendChoice,
    story: impl FnOnce(Rc<Local>) -> F + Send + 'static,
) {
    let engine = start(Options { io, unwind: true, ..Options::default() }, || ()).expect("the back end is there");
    engine.call("story", story).expect("the engine's thread answers");
    assert_eq!(engine.stop(Duration::from_secs(60)).unfinished, Vec::<&str>::new());
}

/// A process that is being started has every descriptor until it has become another program.
#[test]
fn a_claim_ends_with_its_disk_whoever_inherited_the_descriptor() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (path, options) = (dir.path().join("disk"), DiskOptions { create: Some(SIZE), ..DiskOptions::default() });
    let disk = OpenDisk::open(&path, &options).unwrap();
    let inherited = dup(&disk).unwrap();
    assert_eq!(OpenDisk::open(&path, &options).err().map(|error| error.kind), Some(ErrorKind::AlreadyExists));
    drop(disk);
    OpenDisk::open(&path, &options).expect("nobody has it any more");
    drop(inherited);
}
