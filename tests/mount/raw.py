"""fio on the bare block device: random and sequential, verified, with discards in between."""

import os
import subprocess
import time

from files import KIB, MIB
from host import CLIENTS, KINDS, Host
from machine import PATIENCE, run
from report import Case

GIB = 1 << 30


def cases(scale):
    sectors = {kind: (512, 4096) for kind in KINDS}
    if scale == "quick":
        sectors = {"loop": (512,), "ublk": (512,), "nbd": (4096,)}
    return [Case(f"fio on the block device, {kind}, sectors of {sector}",
                 lambda reporter, rng, kind=kind, sector=sector: story(reporter, rng, kind, sector, scale),
                 ("fio", "losetup", *CLIENTS[kind]), "fio") for kind in KINDS for sector in sectors[kind]]


def story(reporter, rng, kind, sector, scale):
    # Of each job; the disk has room for four.
    size = (8 if scale == "quick" else 96) * MIB
    with Host(4, "512MiB", kind=kind) as host:
        host.weft("vdisk", "create", "p/v", "--size", "384MiB", "--resiliency", "parity", "--columns", "4", "--sector", str(sector))
        host.weft("export", "add", "p/v", *EXPORTS[kind](host))
        device = attached(host, sector)
        try:
            reporter.check("what the kernel knows of it", limits, device, kind, sector)
            fio = [f"--filename={device}", "--ioengine=libaio", "--iodepth=16", "--direct=1", "--verify=crc32c", "--verify_fatal=1",
                   f"--randseed={rng.randrange(1 << 30)}", f"--bsrange={sector}-128k", "--bs_unaligned=0", f"--blockalign={sector}"]
            reporter.check("sequential", verified, *fio, "--name=sequential", "--rw=write", f"--size={size * 2}", "--end_fsync=1")
            reporter.check("random", verified, *fio, "--name=random", "--rw=randwrite", f"--size={size}")
            reporter.check("random, with discards beside and before", mixed, device, kind, fio, size)
            reporter.check("all discarded", discarded, host, device)
            reporter.check("a daemon that dies under load", dies, host, device, sector, fio, size)
        finally:
            detached(host, device)
        host.weft("export", "remove", "p/v")
        assert host.block_devices() == [], "something is left"
        reporter.check("the pool is sound", host.sound)


EXPORTS = {"ublk": lambda host: ("--ublk", "7"), "nbd": lambda host: ("--nbd", f"unix:{host.path('socket')}"),
           "loop": lambda host: ("--fuse", host.fuse)}


def attached(host, sector):
    """The bare block device of `p/v`, which is offered."""
    if host.kind == "ublk":
        return "/dev/ublkb7"
    if host.kind == "nbd":
        run("nbd-client", "-unix", host.path("socket"), "/dev/nbd7", "-name", "p/v", "-block-size", str(sector), "-connections", "1",
            "-timeout", "300")
        return "/dev/nbd7"
    return run("losetup", "--find", "--show", "--direct-io=on", "--sector-size", str(sector), os.path.join(host.fuse, "v")).strip()


def detached(host, device):
    """It goes by itself only where the daemon is its driver."""
    if host.kind != "ublk":
        run(*(["nbd-client", "-d"] if host.kind == "nbd" else ["losetup", "--detach"]), device)


def verified(*fio):
    run("fio", *fio)


def mixed(device, kind, fio, size):
    """One job writes and verifies, the next discards, the third discards each block before it writes and verifies it."""
    run("fio", *fio, "--name=write", "--rw=randwrite", "--offset=0", f"--size={size}",
        "--name=discard", "--rw=randtrim", "--verify=0", f"--offset={size}", f"--size={size}", "--bs=64k",
        "--name=both", "--rw=randtrimwrite", f"--offset={size * 2}", f"--size={size}", "--bs=64k")
    # Over a loop device a discard is a promise of zeroes. With the others it is advice: whole stripes are forgotten.
    if kind == "loop":
        with open(device, "rb") as file:
            file.seek(size)
            assert not any(file.read(size)), "a discarded block does not read as zeroes"


def limits(device, kind, sector):
    """A stripe is 3 x 256 KiB here. What of it each kind tells: see docs/guide/file-systems.md."""
    queue = lambda name: open(f"/sys/block/{os.path.basename(device)}/queue/{name}").read().strip()
    names = ("logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size", "discard_granularity")
    known = {name: int(queue(name)) for name in names}
    assert known["logical_block_size"] == sector and int(queue("discard_max_bytes")) > GIB and queue("write_cache") == "write back", known
    if kind == "ublk":
        assert list(known.values()) == [sector, 4 * KIB, 256 * KIB, MIB, 256 * KIB], known
        assert queue("fua") == "1" and int(queue("write_zeroes_max_bytes")) > GIB
        assert int(queue("discard_max_bytes")) % (768 * KIB) == 0 and int(queue("read_ahead_kb")) == 2048
    return ", ".join(f"{name} {value}" for name, value in known.items())


def discarded(host, device):
    run("blkdiscard", device)
    used = host.show()["used"]
    assert used < MIB, used
    with open(device, "rb") as file:
        assert not any(file.read(64 * MIB))


def dies(host, device, sector, fio, size):
    """SIGKILL while fio writes: its requests fail at once, nothing hangs; a new daemon offers what was flushed."""
    flushed = os.urandom(MIB)
    with open(device, "r+b", buffering=0) as file:
        file.seek(size)
        file.write(flushed)
        os.fsync(file.fileno())
    line = ["fio", *fio, "--name=load", "--rw=randwrite", f"--size={size}", "--verify=0", "--time_based", "--runtime=3600", "--fsync=8"]
    load = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    written = lambda: int(open(f"/sys/block/{os.path.basename(device)}/stat").read().split()[4])
    before, begun = written(), time.monotonic()
    while written() < before + 100:
        assert load.poll() is None and time.monotonic() - begun < PATIENCE, "there is no load"
        time.sleep(0.02)
    host.kill()
    begun = time.monotonic()
    # What is asked from now on fails at once. Over NBD what is under way waits until the device is disconnected.
    if host.kind == "nbd":
        assert subprocess.run(["dd", f"if={device}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct"], capture_output=True, timeout=60).returncode != 0
        detached(host, device)
    assert load.wait(timeout=PATIENCE) != 0, "fio met no error"
    took = time.monotonic() - begun
    if host.kind == "loop":
        detached(host, device)
    host.serve()
    device = attached(host, sector)
    with open(device, "rb") as file:
        file.seek(size)
        assert file.read(MIB) == flushed, "what was flushed is not there"
    return f"fio had its error after {took:.1f} s"
