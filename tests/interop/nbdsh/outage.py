# Writes, zeroes, flushes and reads over URI while disks come and go. ACT=load: until the file STOP is there or the
# server dies; ACT=verify: flushes, and reads all. STATE carries what each block may hold from one to the next. A
# request may fail; an answer may not be wrong.
import json
import os
import random
import struct
import time

BLOCK, BLOCKS = 4096, 4096
rng = random.Random(int(os.environ["SEED"]))
act, state_path, stop = os.environ["ACT"], os.environ["STATE"], os.environ.get("STOP", "")
try:
    with open(state_path) as file:
        state = json.load(file)
except FileNotFoundError:
    state = {"gen": 0, "flushes": 0, "failed": 0, "may_hold": [[0]] * BLOCKS}
# The generations a block may hold after a crash, oldest first; below zero and zero: zeroes, written then.
may_hold = [list(gens) for gens in state["may_hold"]]
# What a read may see now: the same, or what was written last.
live = [list(gens) for gens in may_hold]
# The last generation of each block whose write was answered well, in this life of the client.
sure = {}
gen, flushes, failed = state["gen"], 0, 0


def stamp(block, gen):
    return struct.pack("<QQ", block, gen) * (BLOCK // 16) if gen > 0 else bytes(BLOCK)


def judge(first, data, may):
    """What each block holds; it must be one of what it may."""
    for n in range(len(data) // BLOCK):
        block, got = first + n, data[n * BLOCK:(n + 1) * BLOCK]
        held = next((gen for gen in may[block] if got == stamp(block, gen)), None)
        if held is None:
            raise AssertionError(f"block {block} holds {struct.unpack('<QQ', got[:16])}, and may hold {may[block]} (promised {may_hold[block]})")
        yield block, held


class Request:
    """One request under way, of some blocks that no other touches."""

    def __init__(self, first, count):
        global gen
        self.blocks, self.kind = range(first, first + count), rng.choice(["write"] * 5 + ["zero", "fua", "read", "read"])
        if self.kind == "read":
            self.into = nbd.Buffer(count * BLOCK)
            self.cookie = h.aio_pread(self.into, first * BLOCK)
            return
        gen += 1
        self.mine = -gen if self.kind == "zero" else gen
        for block in self.blocks:
            may_hold[block].append(self.mine)
        flags = nbd.CMD_FLAG_FUA if self.kind == "fua" else 0
        if self.kind == "zero":
            self.cookie = h.aio_zero(count * BLOCK, first * BLOCK, flags=flags)
        else:
            data = b"".join(stamp(block, gen) for block in self.blocks)
            self.cookie = h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), first * BLOCK, flags=flags)

    def done(self):
        """Whether it is answered; what that means is noted."""
        global failed
        try:
            if not h.aio_command_completed(self.cookie):
                return False
        except nbd.Error:
            failed += 1
            if self.kind != "read":
                for block in self.blocks:
                    live[block].append(self.mine)
            return True
        if self.kind == "read":
            for block, held in judge(self.blocks[0], self.into.to_bytearray(), live):
                live[block] = [held]
            return True
        for block in self.blocks:
            live[block], sure[block] = [self.mine], self.mine
        if self.kind == "fua":
            promise({block: self.mine for block in self.blocks})
        return True


def promise(gens):
    """These, or what was written later, is what is there from now on."""
    for block, gen in gens.items():
        if gen in may_hold[block]:
            del may_hold[block][:may_hold[block].index(gen)]


def load():
    global flushes, failed
    busy, pending = set(), []
    while not os.path.exists(stop):
        for _ in range(rng.randrange(1, 16)):
            first = rng.choice([rng.randrange(BLOCKS - 64), rng.randrange(64)])
            count = rng.choice([1, 1, 2, 5, 17, 48])
            if busy.isdisjoint(range(first, first + count)):
                busy.update(range(first, first + count))
                pending.append(Request(first, count))
        most = rng.randrange(0, len(pending) + 1)
        while len(pending) > most:
            h.poll(100)
            for request in [request for request in pending if request.done()]:
                pending.remove(request)
                busy.difference_update(request.blocks)
        promised = dict(sure)
        try:
            h.flush()
            flushes += 1
            promise(promised)
        except nbd.Error:
            if h.aio_is_dead() or h.aio_is_closed():
                raise
            failed += 1
            time.sleep(0.05)
    while pending:
        h.poll(100)
        pending[:] = [request for request in pending if not request.done()]


def verify():
    h.flush()
    for first in range(0, BLOCKS, 256):
        for block, held in judge(first, h.pread(256 * BLOCK, first * BLOCK), may_hold):
            may_hold[block] = [held]


# A pool that opens late has its exports a moment later.
for left in range(600, -1, -1):
    try:
        h.connect_uri(os.environ["URI"])
        break
    except nbd.Error:
        if left == 0:
            raise
        time.sleep(0.1)
        h = nbd.NBD()
if stop:
    open(stop + ".connected", "w").close()
ended = "asked to stop"
try:
    load() if act == "load" else verify()
except nbd.Error as error:
    if act == "verify":
        raise
    ended = str(error)
state.update(gen=gen, may_hold=may_hold, flushes=state["flushes"] + flushes, failed=state["failed"] + failed)
with open(state_path + ".new", "w") as file:
    json.dump(state, file)
os.rename(state_path + ".new", state_path)
print(f"{flushes} flushes, {failed} requests failed, until: {ended}")
