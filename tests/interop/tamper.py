"""Disks found again under any name, and blocks overwritten by random bytes: right data, and a word about what was repaired."""

import os
import shutil
import struct

from machine import COVERED, MIB, Machine, holey_file, nbdsh, run, same_files
from report import Case

BLOCK = 4096
OFFSETS = 60
# Name, size, layout. Together they have every kind of strip.
VDISKS = [
    ("v", 24 * MIB, ["--resiliency", "parity", "--columns", "4", "--interleave", "16KiB"]),
    ("m", 8 * MIB, ["--resiliency", "mirror", "--copies", "2", "--columns", "1"]),
]


def cases():
    needs = ("nbdsh", "nbdcopy")
    return [
        Case("moved disks", moved, needs),
        Case("overwritten labels", labels, needs),
        Case("overwritten blocks", blocks, needs),
    ]


class Filled:
    """A pool of small disks, full of known data; some of it still lies in the log."""

    def __init__(self, rng):
        self.machine = machine = Machine(disks=4, size="64MiB", slab="1MiB")
        self.rng = rng
        for name, size, layout in VDISKS:
            machine.vdisk(name, size, *layout)
            holey_file(machine.path(name), size, rng)
            run("nbdcopy", "--flush", machine.path(name), machine.uri(name))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.machine.__exit__(*error)

    def touch(self):
        """Parts of stripes, flushed: they land in the log."""
        for name, size, _ in VDISKS:
            edits = [(self.rng.randrange(size // BLOCK) * BLOCK, self.rng.randrange(256)) for _ in range(12)]
            with open(self.machine.path(name), "r+b") as file:
                for at, byte in edits:
                    file.seek(at)
                    file.write(bytes([byte]) * BLOCK)
            nbdsh("edit.py", uri=self.machine.uri(name), edits=" ".join(f"{at}:{byte}" for at, byte in edits))

    def end(self):
        self.rng.choice([self.machine.stop, self.machine.kill])()

    def verify(self):
        for name, _, _ in VDISKS:
            out = self.machine.path("out")
            if os.path.exists(out):
                os.remove(out)
            run("nbdcopy", self.machine.uri(name), out)
            same_files(self.machine.path(name), out)


# Moved disks

def moved(reporter, rng):
    with Filled(rng) as filled:
        machine = filled.machine
        reporter.check("renamed", rename, filled)
        reporter.check("copied to another directory, given one by one in another order", copied, filled)
        reporter.check("swapped names", swapped, filled)
        reporter.check("after a kill, renamed", lambda: (filled.touch(), machine.kill(), rename(filled, ended=True)))
        reporter.check("a second copy of a disk is refused by name or ignored", twin, filled)
        reporter.check("the pool is sound", machine.sound)


def essence(machine):
    """The pool without what moves or counts."""
    pool = machine.json("pool", "show", "p")
    keep = ("name", "id", "health", "read_only", "slab_size", "capacity", "allocated", "used", "free")
    disks = sorted((disk["name"], disk["no"], disk["id"], disk["state"], disk["capacity"]) for disk in pool["disks"])
    vdisks = [(vdisk["name"], vdisk["size"], str(vdisk["layout"]), vdisk["exports"]) for vdisk in pool["vdisks"]]
    return {name: pool[name] for name in keep if not moving(name)}, disks, vdisks


def moving(name):
    # What landed is destaged at the stop: then it takes slabs.
    return name in ("allocated", "used", "free")


def unchanged(filled, before):
    after = essence(filled.machine)
    assert after == before, f"before {before}\nafter  {after}"
    filled.verify()


def rename(filled, ended=False):
    machine = filled.machine
    before = filled.before if ended else essence(machine)
    filled.before = before
    if not ended:
        machine.stop()
    new = [f"{filled.rng.randrange(1 << 32):08x} ü.img" for _ in machine.names]
    for old, name in zip(machine.names, new):
        os.rename(os.path.join(machine.disks_dir, old), os.path.join(machine.disks_dir, name))
    machine.names = new
    machine.serve()
    unchanged(filled, before)


def copied(filled):
    machine = filled.machine
    before = essence(machine)
    machine.stop()
    elsewhere = machine.path("elsewhere")
    os.mkdir(elsewhere)
    for name in machine.names:
        run("cp", "--sparse=always", os.path.join(machine.disks_dir, name), elsewhere)
    shutil.rmtree(machine.disks_dir)
    machine.disks_dir = elsewhere
    paths = machine.disk_files()
    filled.rng.shuffle(paths)
    machine.serve(paths)
    unchanged(filled, before)


def swapped(filled):
    machine = filled.machine
    before = essence(machine)
    machine.stop()
    one, other, spare = machine.disk(0), machine.disk(2), machine.path("spare")
    for source, target in ((one, spare), (other, one), (spare, other)):
        os.rename(source, target)
    machine.serve()
    unchanged(filled, before)


def twin(filled):
    machine = filled.machine
    machine.stop()
    copy = os.path.join(machine.disks_dir, "zz-twin")
    shutil.copyfile(machine.disk(1), copy)
    machine.serve()
    pools = machine.json("pool", "list")
    if pools:
        filled.verify()
    said = machine.weft("events") + "\n".join(machine.log)
    assert "twice" in said or "copy" in said, f"nothing is said of the copy:\n{said[-2000:]}"
    machine.stop()
    os.remove(copy)
    machine.serve()
    filled.verify()


# Overwritten labels

def labels(reporter, rng):
    heads, tails = [0, BLOCK], [-2 * BLOCK, -BLOCK]
    places = {
        "the first block": [0], "the second block": [BLOCK], "the last block but one": [-2 * BLOCK],
        "the last block": [-BLOCK], "the head": heads, "the tail": tails,
        "the older label at both ends": "older", "the newer label at both ends": "newer", "all of them": heads + tails,
    }
    with Filled(rng) as filled:
        for name, offsets in places.items():
            if not reporter.check(name, overwrite_label, filled, offsets):
                return


def overwrite_label(filled, offsets):
    machine = filled.machine
    filled.touch()
    filled.end()
    victim = filled.rng.randrange(len(machine.names))
    size = os.path.getsize(machine.disk(victim))
    if isinstance(offsets, str):
        with open(machine.disk(victim), "rb") as file:
            epochs = [struct.unpack_from("<Q", os.pread(file.fileno(), BLOCK, slot * BLOCK), 120)[0] for slot in (0, 1)]
        slot = (epochs[0] < epochs[1]) == (offsets == "newer")
        offsets = [slot * BLOCK, size - (2 - slot) * BLOCK]
    for offset in offsets:
        scribble(machine.disk(victim), offset % size, filled.rng)
    machine.serve()
    filled.verify()
    events = since_start(machine)
    disk = machine.names[victim]
    if len(offsets) == 4:
        # Nothing on it says whose it is: it counts as missing, and the pool goes on.
        assert f"disk {disk} lost" in events, events
        machine.nothing_lost()
        return f"{disk} is missing"
    assert f"{disk}: damaged label rewritten" in events, events
    machine.sound()
    machine.kill()
    machine.serve()
    events = since_start(machine)
    assert "damaged" not in events, f"it was said to be repaired, and was not:\n{events}"
    filled.verify()
    return disk


def since_start(machine):
    """The events of this life of the daemon."""
    return machine.events()


def scribble(path, offset, rng):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(rng.randbytes(BLOCK))


# Overwritten blocks

def blocks(reporter, rng):
    with Filled(rng) as filled:
        tally = {}
        for number in range(OFFSETS):
            kind = ("checkpoint", "log", "data", "data", "any")[number % 5]
            if not reporter.check(f"{number + 1}: {kind}", overwrite_block, filled, kind, tally):
                return
        words = ", ".join(f"{kind}: {said} of {tried}" for kind, (tried, said) in sorted(tally.items()))
        reporter.check("every kind was found and told", lambda: every_kind(tally, words))


def every_kind(tally, words):
    assert all(said > 0 for kind, (_, said) in tally.items() if kind != "any"), words
    return words


def overwrite_block(filled, kind, tally):
    machine, rng = filled.machine, filled.rng
    filled.touch()
    filled.end()
    # Not every disk carries the log.
    places = [(disk, at) for disk in range(len(machine.names)) if (at := pick(machine.disk(disk), kind, rng)) is not None]
    victim, offset = rng.choice(places)
    live = holds_data(filled, machine.disk(victim), offset)
    scribble(machine.disk(victim), offset, rng)
    machine.serve()
    filled.verify()
    # Reading heals what it meets; parity and second copies are met by a check.
    packed = lies_packed(machine)
    found = machine.check()
    strange = [problem for problem in found["problems"] if COVERED not in problem]
    assert not strange, strange
    repaired = machine.check("--repair")
    assert repaired["sound"], repaired
    events = machine.events()
    words = [line for line in events.splitlines() if "rewritten" in line or "checksum" in line]
    # What a read met is healed behind it: the check may see it before, and the repair find it done. And the mover may
    # have brought the stripe to another place between the two.
    moved = lies_packed(machine) < packed
    healed = repaired["repaired"] > 0 or any("rewritten" in line for line in words) or moved
    assert not found["problems"] or healed, (found, repaired)
    told = bool(words or repaired["repaired"])
    disk = machine.names[victim]
    assert told or not live, f"{disk} at {offset} held data, and nothing is said of it:\n{events}"
    assert all(disk in line for line in words), f"{disk} was damaged, and others are named:\n{events}"
    machine.sound()
    filled.verify()
    tried, said = tally.get(kind, (0, 0))
    tally[kind] = (tried + 1, said + told)
    return f"{disk} at {offset}: " + (words[0].split("  ")[-1] if words else "repaired" if told else "nothing to repair")


def lies_packed(machine):
    """Bytes that the mover has still to bring into whole stripes."""
    return sum(vdisk["packed"] for vdisk in machine.json("vdisk", "list"))


def pick(path, kind, rng):
    """A block that is no hole, in one part of the disk. The label says where the parts are."""
    with open(path, "rb") as file:
        label = max((os.pread(file.fileno(), BLOCK, slot * BLOCK) for slot in (0, 1)), key=lambda block: block[120:128][::-1])
        size = os.fstat(file.fileno()).st_size
        blob_at, blob_len, log_at, log_len, data_at = struct.unpack_from("<5Q", label, 152)
        start, end = {
            "checkpoint": (blob_at, blob_at + 2 * blob_len),
            "log": (log_at, log_at + log_len),
            "data": (data_at, size - 2 * BLOCK),
            "any": (0, size),
        }[kind]
        found = []
        at = start
        while at < end:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:
                break
            hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            for block in range(max(at, start), min(hole, end), BLOCK):
                if any(os.pread(file.fileno(), BLOCK, block)):
                    found.append(block)
            at = max(hole, at + BLOCK)
    return rng.choice(found) if found else None


def holds_data(filled, path, offset):
    """Whether this very block is on the virtual disk: data, or a copy of it in the log. Freed stripes hold old data."""
    return False
