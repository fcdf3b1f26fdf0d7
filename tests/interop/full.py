"""A thin pool that runs out of room under its clients: ENOSPC, nothing lost, and trim or remove make room again."""

from machine import MIB, Machine, nbdsh
from report import Case

LAYOUTS = [
    ("simple", 3, ["--resiliency", "simple", "--columns", "3"]),
    ("mirror 2", 4, ["--resiliency", "mirror", "--copies", "2"]),
    ("parity 1, 24 KiB", 4, ["--resiliency", "parity", "--columns", "4", "--interleave", "24KiB"]),
]


def cases():
    return [Case(f"pool full: {name}", lambda reporter, rng, rest=rest: story(reporter, rng, *rest), ("nbdsh",))
            for name, *rest in LAYOUTS]


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


def refused(machine):
    ran = machine.ran("vdisk", "create", "p/f", "--size", "32MiB", "--fixed")
    assert ran.returncode == 5, (ran.returncode, ran.stderr)


def remove(machine):
    machine.weft("export", "remove", "p/other")
    machine.weft("vdisk", "remove", "p/other", "--yes")
