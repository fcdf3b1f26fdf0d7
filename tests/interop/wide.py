"""More disks than a label's block has room for: a pool grows beyond 64 of them, loses some, is killed and opened again.

Each command names disks with three digits as any other."""

import json
import os

from machine import MIB, Machine, holey_file, refused, run, same_files
from report import Case

SIZE = 96 * MIB
FIRST = 62


def cases(long):
    count = 256 if long else 80
    return [Case(f"wide: {count} disks", lambda reporter, rng: story(reporter, rng, count), ("nbdcopy",))]


def story(reporter, rng, count):
    with Machine(FIRST, size="48MiB", slab="1MiB") as machine:
        image = machine.path("image")
        machine.vdisk("v", SIZE, "--resiliency", "parity", "--failures", "2", "--columns", "8")
        reporter.check("more than 256 are refused", too_many, machine)
        reporter.check("written", lambda: write(machine, image, rng))
        reporter.check("it grows beyond 64", lambda: grow(machine, count))
        reporter.check("killed and opened again", lambda: again(machine, image))
        reporter.check("written anew, with a cache on the last ones", lambda: cache(machine, image, rng, count))
        reporter.check("killed and opened again, with the cache", lambda: again(machine, image))
        reporter.check("two are lost while it runs", lambda: lose(machine, image, count))
        reporter.check("the last one leaves", lambda: leave(machine, count))
        reporter.check("stopped, dumped and opened again", lambda: dump(machine, image, count))


def too_many(machine):
    names = [machine.path(f"disks/more{n}") for n in range(257)]
    refused(machine, 2, "1 to 256", "pool", "create", "q", *names, "--create-size", "48MiB")
    refused(machine, 3, "1 to 256", "disk", "add", "p", *names[:256 - FIRST + 1], "--create-size", "48MiB")


def write(machine, image, rng):
    holey_file(image, SIZE, rng)
    run("nbdcopy", "--flush", image, machine.uri("v"))


def whole(machine):
    """Nothing is missing, and nobody is needed."""
    machine.until("whole", "status", holds=lambda told: all(pool["health"] == "healthy" for pool in told["pools"]))


def grow(machine, count):
    more = list(range(FIRST, count))
    machine.names += [f"d{n}" for n in more]
    machine.weft("disk", "add", "p", *(machine.disk(n) for n in more), "--create-size", "48MiB")
    disks = machine.json("disk", "list")
    assert len(disks) == count, disks


def again(machine, image):
    machine.kill()
    machine.serve()
    compare(machine, image)
    machine.sound()


def compare(machine, image):
    copy = machine.path("copy")
    run("nbdcopy", machine.uri("v"), copy)
    same_files(image, copy)
    os.unlink(copy)


def cache(machine, image, rng, count):
    disks = ",".join(f"d{n}" for n in range(count - 4, count))
    machine.weft("vdisk", "set", "p/v", "write-cache=16MiB", f"write-cache-disks={disks}")
    write(machine, image, rng)
    told = machine.json("vdisk", "show", "p/v")
    assert f"d{count - 1}" in json.dumps(told), told


def lose(machine, image, count):
    """Two go for good, and the pool heals by itself; then they are struck off."""
    machine.weft("pool", "set", "p", "repair-after=1s")
    for n in (3, count - 2):
        os.unlink(machine.disk(n))
    machine.until("seen", "disk", "list", holds=lambda told: [disk["state"] for disk in told].count("missing") == 2)
    machine.until("healed", "vdisk", "show", "p/v", holds=lambda told: told["health"] == "healthy")
    machine.nothing_lost()
    compare(machine, image)
    for n in (3, count - 2):
        machine.weft("disk", "remove", "p", f"d{n}", "--wait", "--yes")
    whole(machine)
    machine.sound()


def leave(machine, count):
    machine.weft("disk", "remove", "p", f"d{count - 1}", "--wait", "--yes")
    machine.sound()


def dump(machine, image, count):
    machine.stop()
    told = machine.json("pool", "dump", *(machine.disk(n) for n in range(count) if n not in (3, count - 2, count - 1)))
    members = [member["no"] for member in told["pools"][0]["members"]]
    assert members == [no for no in range(count) if no not in (3, count - 2, count - 1)], members
    machine.serve()
    compare(machine, image)
    machine.sound()
