"""Format, mount, fill to 95 %, verify, check, delete, several times; with figures of what that cost the disks."""

import mmap
import os
import shutil
import time

from files import MIB, Content, fill
from host import NEEDS, Host, meminfo
from machine import run
from report import Case

# A name, the disks, how many of them hold data, and how weft is told.
PARITY1 = [(f"parity 1, {n} columns", n, n - 1, ["--resiliency", "parity", "--columns", str(n)]) for n in (3, 4, 5, 7)]
PARITY2 = [(f"parity 2, {n} columns", n, n - 2, ["--resiliency", "parity", "--failures", "2", "--columns", str(n)]) for n in (4, 5, 7)]
MIRROR = [(f"mirror of {n}", n, 1, ["--resiliency", "mirror", "--copies", str(n), "--columns", "1"]) for n in (2, 3)]
# What makes the unit of allocation 64 KiB, where the file system can.
LARGE = {"ext4": "-O bigalloc -C 65536", "xfs": "-b size=65536", "btrfs": "-n 65536"}
# Of pwritev, since Linux 6.14, where the file system has it.
RWF_DONTCACHE = 0x80
ROUNDS = {"quick": 2, "usual": 4, "long": 4}
SIZES = {"quick": 96 * MIB, "usual": 320 * MIB, "long": 1536 * MIB}


def cases(scale):
    """Usual: every layout with a file system in turn, and 64 KiB blocks on the layout that nothing aligns with."""
    layouts, kinds = PARITY1 + PARITY2 + MIRROR, ["ext4", "xfs", "btrfs"]
    made = [(layout, kind, large) for layout in layouts for kind in kinds for large in (False, True)]
    if scale != "long":
        made = [(layout, kinds[n % 3], False) for n, layout in enumerate(layouts)]
        made += [(PARITY1[1], kind, True) for kind in kinds[:2]]
    if scale == "quick":
        made = made[:1]
    return [Case(f"fill: {kind}{' 64 KiB' if large else ''} on {name}",
                 lambda reporter, rng, args=(disks, layout, kind, large, scale): story(reporter, rng, *args), NEEDS[kind])
            for (name, *disks, layout), kind, large in made]


def story(reporter, rng, disks, layout, kind, large, scale):
    size, (count, data) = SIZES[scale], disks
    # Room for the data, its redundancy, and what is new while the old is not yet free. Where speed is judged, the first
    # fill must not be the only one that waits for the host to find room for the disks' files.
    with Host(count, f"{size * 3 // 2 // data // MIB + 320}MiB", written=scale == "long") as host:
        host.weft("vdisk", "create", "p/v", "--size", str(size), *layout)
        host.mount("--format", kind, *(["--mkfs=" + LARGE[kind]] if large else []))
        rates, content = [], Content(rng)
        for turn in range(1, ROUNDS[scale] + 1):
            if not reporter.check(f"round {turn}", one_round, host, rng, content, kind, rates, scale == "long"):
                return
        ratios = [rate / rates[0] for rate in rates[1:]]
        print("     refill / first fill: " + ", ".join(f"{ratio:.2f}" for ratio in ratios), flush=True)
        if scale == "long":
            reporter.check("a refill is as fast as the first fill", fast_enough, ratios)
        host.unmount()
        reporter.check("the pool is sound", host.sound)


def one_round(host, rng, content, kind, rates, judged):
    flags = one_memory(host) if judged else 0
    before, begun = host.show()["counters"], time.monotonic()
    names, written = fill(content, rng, host.mnt, flags=flags)
    host.sync()
    rates.append(written / (time.monotonic() - begun) / 1e6)
    room, after = os.statvfs(host.mnt), host.show()["counters"]
    full = 1 - room.f_bfree / room.f_blocks
    # What is not in memory any more must come from the disks.
    host.unmount()
    host.fsck(kind)
    host.mount()
    for name in names:
        content.verify(host.mnt, name)
    used = host.show()["used"]
    for folder in os.listdir(host.mnt):
        if folder != "lost+found":
            shutil.rmtree(host.inside(folder))
    # Freezing makes xfs do at once what it does in the background; its log alone takes 64 MiB.
    run("fsfreeze", "--freeze", host.mnt)
    run("fsfreeze", "--unfreeze", host.mnt)
    host.unmount()
    left = host.show()["used"]
    assert left < used / 10 + 64 * MIB, f"of {used / 1e6:.0f} MB, {left / 1e6:.0f} MB are still in use"
    host.fsck(kind)
    host.mount()
    assert full >= 0.85, f"only {full:.0%} full"
    gone = {key: after[key] - before[key] for key in ("whole_stripe_bytes", "landed_bytes", "write_caused_read_bytes")}
    whole = gone["whole_stripe_bytes"] / max(1, gone["whole_stripe_bytes"] + gone["landed_bytes"])
    return (f"{len(names)} files, {written / 1e6:.0f} MB at {rates[-1]:.0f} MB/s, {full:.1%} full; whole stripes {whole:.1%}, "
            f"reads because of writes {gone['write_caused_read_bytes'] / 1e6:.1f} MB; used {used / 1e6:.0f} -> {left / 1e6:.0f} MB")


def one_memory(host):
    """A hypervisor that takes back what is free gives memory again at less than half of the speed that is judged here. So that
    it is the same in all rounds: pages leave as soon as they are written, or where the file system cannot do that, others
    were used a moment ago. The flags for that."""
    probe = host.inside("probe")
    try:
        with open(probe, "wb") as file:
            os.pwritev(file.fileno(), [b"x"], 0, RWF_DONTCACHE)
        return RWF_DONTCACHE
    except OSError:
        mmap.mmap(-1, meminfo("MemAvailable") // 3, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()
        return 0
    finally:
        os.remove(probe)


def fast_enough(ratios):
    middle = sorted(ratios)[len(ratios) // 2]
    assert middle >= 0.9, ratios
    return f"{middle:.2f}"
