"""fio on the bare block device: random and sequential, verified, with discards in between."""

import os

from files import MIB
from host import Host
from machine import run
from report import Case


def cases(scale):
    return [Case(f"fio on the block device, sectors of {sector}", lambda reporter, rng, sector=sector: story(reporter, rng, sector, scale),
                 ("fio", "losetup")) for sector in (512, 4096)]


def story(reporter, rng, sector, scale):
    # Of each job; the disk has room for four.
    size = (16 if scale == "quick" else 96) * MIB
    with Host(4, "512MiB") as host:
        host.weft("vdisk", "create", "p/v", "--size", "384MiB", "--resiliency", "parity", "--columns", "4", "--sector", str(sector))
        host.weft("export", "add", "p/v", "--fuse", host.fuse)
        device = run("losetup", "--find", "--show", "--direct-io=on", "--sector-size", str(sector), os.path.join(host.fuse, "v")).strip()
        try:
            reporter.check("what the kernel knows of it", limits, device, sector)
            fio = [f"--filename={device}", "--ioengine=libaio", "--iodepth=16", "--direct=1", "--verify=crc32c", "--verify_fatal=1",
                   f"--randseed={rng.randrange(1 << 30)}", f"--bsrange={sector}-128k", "--bs_unaligned=0", f"--blockalign={sector}"]
            reporter.check("sequential", verified, *fio, "--name=sequential", "--rw=write", f"--size={size * 2}", "--end_fsync=1")
            reporter.check("random", verified, *fio, "--name=random", "--rw=randwrite", f"--size={size}")
            reporter.check("random, with discards beside and before", mixed, device, fio, size)
            reporter.check("all discarded", discarded, host, device)
        finally:
            run("losetup", "--detach", device)
        host.weft("export", "remove", "p/v")
        reporter.check("the pool is sound", host.sound)


def verified(*fio):
    run("fio", *fio)


def mixed(device, fio, size):
    """One job writes and verifies, the next discards, the third discards each block before it writes and verifies it."""
    run("fio", *fio, "--name=write", "--rw=randwrite", "--offset=0", f"--size={size}",
        "--name=discard", "--rw=randtrim", "--verify=0", f"--offset={size}", f"--size={size}", "--bs=64k",
        "--name=both", "--rw=randtrimwrite", f"--offset={size * 2}", f"--size={size}", "--bs=64k")
    with open(device, "rb") as file:
        file.seek(size)
        assert not any(file.read(size)), "a discarded block does not read as zeroes"


def limits(device, sector):
    queue = lambda name: int(open(f"/sys/block/{os.path.basename(device)}/queue/{name}").read())
    known = {name: queue(name) for name in ("logical_block_size", "physical_block_size", "minimum_io_size", "optimal_io_size")}
    assert known["logical_block_size"] == sector and queue("discard_max_bytes") > 0, known
    return ", ".join(f"{name} {value}" for name, value in known.items())


def discarded(host, device):
    run("blkdiscard", device)
    used = host.show()["used"]
    assert used < MIB, used
    with open(device, "rb") as file:
        assert not any(file.read(64 * MIB))
