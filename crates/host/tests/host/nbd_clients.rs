//! Real clients against the server: libnbd's tools, qemu's tools and fio, each over a volume in memory that answers
//! out of order. A client that is not installed is skipped, and says so; `WEFT_REQUIRE_CLIENTS=1` makes that a failure.

use crate::common::{Memory, Reversed, Shelf, shape};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weft_host::export::{Volume, VolumeShape};
use weft_host::nbd::{Address, Config, Server};

const SIZE: u64 = 64 << 20;

struct Served {
    server: Server,
    dir: tempfile::TempDir,
    memory: Arc<Memory>,
}

impl Served {
    fn new(shape: VolumeShape) -> Served {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::new(shape);
        let volume: Arc<dyn Volume> = Reversed::new(memory.clone());
        let address = Address::Unix(dir.path().join("s"));
        let server = Server::start(&address, Shelf::of([("pool/disk", volume)]), Config::default()).unwrap();
        Served { server, dir, memory }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///pool/disk?socket={}", self.dir.path().join("s").display())
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }
}

/// Runs a client to success and gives its stdout; `None` when it is not installed.
fn client(program: &str, args: &[&str]) -> Option<String> {
    // nbdsh is of the system's Python, whatever else is called python3 here.
    let path = format!("/usr/bin:/bin:{}", std::env::var("PATH").unwrap_or_default());
    let output = match Command::new(program).args(args).env("PATH", path).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("WEFT_REQUIRE_CLIENTS").is_none(), "{program} is not installed");
            eprintln!("SKIPPED: NOT INSTALLED: {program}");
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {args:?}: {}\n{out}\n{err}", output.status);
    Some(out.into_owned())
}

/// A file with data, zeroes and holes in it, and a length that is whole sectors but not whole pages.
fn make_image(path: &str) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).unwrap();
    file.set_len(SIZE).unwrap();
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
    .take(5 << 20)
    .collect();
    file.write_all_at(&noise, 0).unwrap();
    file.write_all_at(&noise, (20 << 20) + 512).unwrap();
    file.write_all_at(&vec![0; 3 << 20], 40 << 20).unwrap();
    file.write_all_at(&noise[..1536], SIZE - 1536).unwrap();
}

fn same(one: &str, other: &str) {
    assert!(std::fs::read(Path::new(one)).unwrap() == std::fs::read(Path::new(other)).unwrap(), "{one} != {other}");
}

#[test]
fn nbdinfo_sees_what_the_volume_is() {
    for sector in [512, 4096] {
        let served = Served::new(VolumeShape { rotational: true, ..shape(SIZE + 100, sector) });
        let Some(out) = client("nbdinfo", &["--json", &served.uri()]) else { return };
        for wanted in [
            &format!("\"export-size\": {SIZE}"),
            &format!("\"block_size_minimum\": {sector}"),
            "\"block_size_preferred\": 262144",
            "\"block_size_maximum\": 33554432",
            "\"base:allocation\"",
            "\"can_multi_conn\": true",
            "\"can_fua\": true",
            "\"can_fast_zero\": true",
            "\"can_df\": true",
            "\"is_rotational\": true",
            "\"is_read_only\": false",
            "weft virtual disk of",
        ] {
            assert!(out.contains(wanted), "{wanted} is not in\n{out}");
        }
        let list = format!("nbd+unix:///?socket={}", served.file("s"));
        assert!(client("nbdinfo", &["--list", &list]).unwrap().contains("export=\"pool/disk\""));
        // All of a new volume is a hole.
        let map = client("nbdinfo", &["--map", &served.uri()]).unwrap();
        assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "67108864", "3", "hole,zero"]);
        // The empty name is the only export there is.
        assert_eq!(client("nbdinfo", &["--size", &list]).unwrap().trim(), SIZE.to_string());
    }
}

#[test]
fn nbdcopy_writes_and_reads_back_a_sparse_image_over_several_connections() {
    for sector in [512, 4096] {
        let served = Served::new(shape(SIZE, sector));
        let (image, back) = (served.file("image"), served.file("back"));
        make_image(&image);
        if client("nbdcopy", &["--connections=4", "--flush", &image, &served.uri()]).is_none() {
            return;
        }
        assert!(served.memory.flushes.load(Ordering::Relaxed) > 0);
        client("nbdcopy", &["--connections=4", &served.uri(), &back]);
        same(&image, &back);
    }
}

#[test]
fn qemu_img_converts_compares_and_maps_in_both_directions() {
    let served = Served::new(shape(SIZE, 512));
    let (image, back) = (served.file("image"), served.file("back"));
    make_image(&image);
    let convert = ["convert", "-n", "-W", "-f", "raw", "-O", "raw", &image, &served.uri()];
    if client("qemu-img", &convert).is_none() {
        return;
    }
    client("qemu-img", &["compare", "-f", "raw", "-F", "raw", &image, &served.uri()]);
    client("qemu-img", &["convert", "-f", "raw", "-O", "raw", &served.uri(), &back]);
    same(&image, &back);
    let map = client("qemu-img", &["map", "-f", "raw", "--output=json", &served.uri()]).unwrap();
    assert!(map.contains("\"zero\": true") && map.contains("\"data\": true"), "{map}");
    client(
        "qemu-img",
        &[
            "bench",
            "-f",
            "raw",
            "-c",
            "2000",
            "-d",
            "16",
            "-s",
            "12k",
            "-w",
            "--flush-interval=50",
            "--pattern=7",
            &served.uri(),
        ],
    );
}

#[test]
fn qemu_io_writes_zeroes_discards_and_verifies_patterns() {
    let served = Served::new(shape(SIZE, 512));
    let commands = [
        "write -P 0x5a 1536 1M",
        "write -f -P 0xa5 4M 512",
        "read -P 0x5a 1536 1M",
        "read -P 0xa5 4M 512",
        "write -z 64k 128k",
        "write -z -u 256k 64k",
        "read -P 0 64k 128k",
        "read -P 0 256k 64k",
        "discard 512k 64k",
        "read -P 0 512k 64k",
        "aio_write -P 3 8M 4M",
        "aio_write -P 4 12M 4M",
        "aio_flush",
        "read -P 3 8M 4M",
        "read -P 4 12M 4M",
        "flush",
    ];
    let mut args = vec!["-f", "raw"];
    commands.iter().for_each(|command| args.extend(["-c", *command]));
    let uri = served.uri();
    args.push(&uri);
    let Some(out) = client("qemu-io", &args) else { return };
    assert!(!out.contains("verification failed") && !out.contains("failed"), "{out}");
}

#[test]
fn nbdsh_gets_the_errors_of_the_specification_and_the_connection_lives_on() {
    let served = Served::new(shape(SIZE, 4096));
    let script = r#"
import nbd, errno
def fails(number, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except nbd.Error as error:
        assert error.errnum == number, (error, number)
    else:
        assert False, "no error"
h.set_strict_mode(0)
size = h.get_size()
assert h.get_structured_replies_negotiated() and h.can_meta_context("base:allocation")
fails(errno.EINVAL, h.pread, 4096, size)
fails(errno.EINVAL, h.pread, 512, 0)
fails(errno.ENOSPC, h.pwrite, b"x" * 4096, size)
fails(errno.EINVAL, h.pwrite, b"x" * 4096, 512)
fails(errno.ENOSPC, h.zero, 4096, size)
fails(errno.EINVAL, h.trim, 4096, size)
fails(errno.EINVAL, h.pwrite, b"x" * 4096, 0, 1 << 14)
fails(errno.EINVAL, h.pread, (32 << 20) + 4096, 0)
fails(errno.ENOTSUP, h.zero, 4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)
h.zero(8192, 0, nbd.CMD_FLAG_FAST_ZERO)
h.pwrite(b"weft" * 1024, 8192, nbd.CMD_FLAG_FUA)
h.zero(4096, 16384, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
assert h.pread(12288, 4096) == bytes(4096) + b"weft" * 1024 + bytes(4096)
chunks = []
def chunk(data, offset, status, error): chunks.append((offset, len(data), status))
h.pread_structured(12288, 4096, chunk)
assert sorted(chunks) == [(4096, 4096, nbd.READ_HOLE), (8192, 4096, nbd.READ_DATA), (12288, 4096, nbd.READ_HOLE)], chunks
chunks.clear()
h.pread_structured(12288, 4096, chunk, nbd.CMD_FLAG_DF)
assert chunks == [(4096, 12288, nbd.READ_DATA)], chunks
found = []
def extents(context, offset, entries, error): found.append(list(entries))
h.block_status(32768, 0, extents)
assert found == [[8192, 3, 4096, 0, 4096, 3, 4096, 2, 12288, 3]], found
found.clear()
h.block_status(32768, 8192, extents, nbd.CMD_FLAG_REQ_ONE)
assert found == [[4096, 0]], found
fails(errno.EINVAL, h.block_status, 4096, size, extents)
h.cache(4096, 0)
h.trim(size, 0)
assert h.pread(1 << 20, 0) == bytes(1 << 20)
h.flush()
h.shutdown()
"#;
    client("nbdsh", &["--base-allocation", "-u", &served.uri(), "-c", script]);
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let served = Served::new(VolumeShape { read_only: true, ..shape(SIZE, 512) });
    let script = r#"
import nbd, errno
h.set_strict_mode(0)
assert h.is_read_only() and h.can_flush() and not h.can_trim() and not h.can_zero()
for call in [lambda: h.pwrite(b"x" * 512, 0), lambda: h.trim(512, 0), lambda: h.zero(512, 0)]:
    try:
        call()
    except nbd.Error as error:
        assert error.errnum == errno.EPERM, error
    else:
        assert False, "no error"
assert h.pread(512, 0) == bytes(512)
h.flush()
h.shutdown()
"#;
    client("nbdsh", &["-u", &served.uri(), "-c", script]);
}

#[test]
fn fio_verifies_random_writes_and_trims_from_several_jobs() {
    let served = Served::new(shape(SIZE, 512));
    let uri = format!("--uri={}", served.uri());
    // 15 MiB: a whole number of every block size, or fio would write into the next job's part.
    let common = ["--ioengine=nbd", &uri, "--iodepth=16", "--size=15m", "--offset_increment=16m", "--numjobs=4"];
    let verify = ["--verify=crc32c", "--verify_fatal=1", "--randseed=7"];
    let jobs: [&[&str]; 3] = [
        &["--name=random", "--rw=randwrite", "--bsrange=512-64k", "--blockalign=512"],
        &["--name=sequential", "--rw=write", "--bs=192k"],
        &["--name=trims", "--rw=randtrimwrite", "--bs=4k", "--fsync=16"],
    ];
    for job in jobs {
        let verify: &[&str] = if job[0] == "--name=trims" { &[] } else { &verify };
        let args = [&job[..1], &common, &job[1..], verify].concat();
        if client("fio", &args).is_none() {
            return;
        }
    }
    assert!(served.server.connections() <= Config::default().connections);
}
