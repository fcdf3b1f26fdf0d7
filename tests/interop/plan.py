"""What `weft plan` says of room beside pools that are really made, of sparse files as large as the disks."""

import json

from machine import Machine
from report import Case

# Unequal disks, small ones; then equal ones, and many.
SAMPLE = ["3x2TB,1x8TB", "3x20GB,1x50GB"]
QUESTIONS = [*SAMPLE, "4x4TB", "7x2TB", "1x4TB,1x3TB,2x2TB,2x1TB,2x500GB", "10x1TB"]


def cases(long):
    return [Case(f"planned room: {disks}", lambda reporter, rng, disks=disks: story(reporter, disks))
            for disks in (QUESTIONS if long else SAMPLE)]


def sizes(disks):
    """4x4TB,500GB: the bytes of each disk."""
    units = {"TB": 10**12, "GB": 10**9}
    groups = [group.split("x") for group in disks.split(",")]
    return [int(size[:-2]) * units[size[-2:]] for count, size in groups for _ in range(int(count))]


def story(reporter, disks):
    of = sizes(disks)
    with Machine(len(of), pool=False) as machine:
        for path, size in zip(machine.disk_files(), of):
            with open(path, "wb") as file:
                file.truncate(size)
        for failures in ("0", "1", "2"):
            told = machine.ran("--json", "plan", "--disks", disks, "--failures", failures)
            if told.returncode:
                continue
            for plan in json.loads(told.stdout)["layouts"]:
                if plan["failures"] == int(failures):
                    reporter.check(f"{plan['name']}: as much as was planned", made, machine, plan)


def made(machine, plan):
    """Makes the pool and the largest virtual disk of the layout in it, each anew: a new pool is what was planned."""
    machine.weft("pool", "create", "q", *machine.disk_files())
    machine.weft("vdisk", "create", "q/v", "--size", "max", *plan["options"].split())
    told = json.loads(machine.weft("--json", "vdisk", "show", "q/v"))
    machine.weft("pool", "remove", "q", "--yes")
    assert told["size"] == plan["usable"], f"{told['size']} bytes, and {plan['usable']} were planned"
