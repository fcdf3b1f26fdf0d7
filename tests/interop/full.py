"""A thin pool that runs out of room under its clients: ENOSPC, nothing lost, and trim or remove make room again."""

from machine import MIB, Machine, nbdsh
from report import Case

LAYOUTS = [
    ("simple", 3, ["--resiliency", "simple", "--columns", "3"]),
    ("mirror 2", 4, ["--resiliency", "mirror", "--copies", "2"]),
    ("parity 1, 24 KiB", 4, ["--resiliency", "parity", "--columns", "4", "--interleave", "24KiB"]),
]


def cases():
    full = [Case(f"pool full: {name}", lambda reporter, rng, rest=rest: story(reporter, rng, *rest), ("nbdsh",))
            for name, *rest in LAYOUTS]
    return full + [Case("a disk leaves a full pool with holes", leaving, ("nbdsh",))]


def story(reporter, rng, disks, layout):
    with Machine(disks, size="48MiB", slab="1MiB") as machine:
        machine.vdisk("v", 512 * MIB, *layout)
        machine.vdisk("other", 512 * MIB, *layout)
        seed = rng.randrange(1 << 30)
        state = machine.path("full.json")

        def step(name, act):
            return reporter.check(name, lambda: nbdsh("full.py", act=act, uri=machine.uri("v"), other=machine.uri("other"),
                                                      seed=seed, state=state).strip())

        if not step("ENOSPC, and what was flushed before is intact", "fill"):
            return
        reporter.check("full: the pool is sound", machine.sound)
        reporter.check("full: a fixed disk is refused with 5", refused, machine)
        reporter.check("full: killed and restarted", lambda: (machine.kill(), machine.serve()))
        step("full, after SIGKILL: all is intact", "verify")
        step("trim makes room, and it can be written", "trim")
        reporter.check("killed and restarted", lambda: (machine.kill(), machine.serve()))
        step("after SIGKILL: all is intact", "verify")
        step("ENOSPC again", "fill")
        reporter.check("removing a disk makes room", remove, machine)
        step("after that the other can be written", "more")
        reporter.check("the pool is sound", machine.sound)


def leaving(reporter, rng):
    """A disk is to leave: refused while the pool is full, and done, with a kill on the way, when half was trimmed."""
    with Machine(6, size="48MiB", slab="1MiB") as machine:
        for name in ("v", "other"):
            machine.vdisk(name, 512 * MIB, "--resiliency", "parity", "--columns", "4", "--interleave", "64KiB")
        seed = rng.randrange(1 << 30)
        state = machine.path("leaving.json")

        def step(name, act):
            uris = {"uri": machine.uri("v"), "other": machine.uri("other")}
            return reporter.check(name, lambda: nbdsh("full.py", act=act, seed=seed, state=state, **uris).strip())

        def stays():
            ran = machine.ran("disk", "remove", "p", "d2")
            assert ran.returncode == 5 and "cannot leave" in ran.stderr, (ran.returncode, ran.stderr)

        def leaves():
            told = machine.weft("disk", "remove", "p", "d2", "--dry-run")
            assert "put together" in told, told
            machine.weft("disk", "remove", "p", "d2")
            machine.kill()
            machine.serve()
            gone = lambda disks: all(disk["pool"] != "p" for disk in disks if disk["name"] == "d2")
            machine.until("d2 has left", "disk", "list", holds=gone)

        step("the pool is filled", "fill")
        reporter.check("full: no disk can leave", stays)
        step("half is trimmed", "holes")
        reporter.check("a disk leaves then", leaves)
        step("after that all is intact", "verify")
        reporter.check("the pool is sound", machine.sound)


def refused(machine):
    ran = machine.ran("vdisk", "create", "p/f", "--size", "32MiB", "--fixed")
    assert ran.returncode == 5, (ran.returncode, ran.stderr)


def remove(machine):
    machine.weft("export", "remove", "p/other")
    machine.weft("vdisk", "remove", "p/other", "--yes")
