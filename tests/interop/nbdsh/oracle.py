# Writes, zeroes, trims to nothing and flushes over two connections to URI until the server dies, knowing at any moment
# what each block may hold. STATE carries that from one life of the server to the next.
import json
import os
import random
import struct

BLOCK, BLOCKS = 4096, 4096
rng = random.Random(int(os.environ["SEED"]))
state_path = os.environ["STATE"]
with open(state_path) as file:
    state = json.load(file)
# The generations a block may hold, oldest first: the one that was promised last, then those written since. 0: zeroes.
may_hold = [list(gens) for gens in state["may_hold"]]
gen = state["gen"]
uri = os.environ["URI"]
handles = [h, nbd.NBD()]


def stamp(block, gen):
    return struct.pack("<QQ", block, gen) * (BLOCK // 16) if gen else bytes(BLOCK)


class Write:
    """One request under way: `blocks` it writes, and how many writes each had seen when this one was sent."""

    def __init__(self, handle, first, count, kind):
        global gen
        gen += 1
        mine = 0 if kind == "zero" else gen
        self.handle, self.blocks, self.fua = handle, range(first, first + count), rng.random() < 0.05
        for block in self.blocks:
            may_hold[block].append(mine)
        flags = nbd.CMD_FLAG_FUA if self.fua else 0
        if kind == "zero":
            self.cookie = handle.aio_zero(count * BLOCK, first * BLOCK, flags=flags)
        else:
            data = b"".join(stamp(block, mine) for block in self.blocks)
            self.cookie = handle.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), first * BLOCK, flags=flags)

    def done(self):
        return self.handle.aio_command_completed(self.cookie)


def wait(pending, most):
    """Until at most `most` of `pending` are under way."""
    while True:
        for write in [write for write in pending if write.done()]:
            pending.remove(write)
            busy.difference_update(write.blocks)
            if write.fua:
                # Nothing overlaps what is under way: the last of each block is this one's.
                for block in write.blocks:
                    del may_hold[block][:-1]
        if len(pending) <= most:
            return
        for handle in handles:
            handle.poll(1)


flushes, busy, pending = 0, set(), []
try:
    for handle in handles:
        handle.connect_uri(uri)
    while True:
        for _ in range(rng.randrange(1, 24)):
            first = rng.choice([rng.randrange(BLOCKS - 64), rng.randrange(64)])
            count = rng.choice([1, 1, 2, 5, 17, 48])
            if busy.isdisjoint(range(first, first + count)):
                busy.update(range(first, first + count))
                pending.append(Write(rng.choice(handles), first, count, rng.choice(["data"] * 9 + ["zero"])))
        wait(pending, rng.randrange(0, len(pending) + 1))
        # What has completed by now, on whichever connection, this flush promises; what is under way it may leave out.
        under_way = {block for write in pending for block in write.blocks}
        promised = [len(gens) - 1 - (block in under_way) for block, gens in enumerate(may_hold)]
        flushed = rng.choice(handles)
        flushed.flush()
        flushes += 1
        # A FUA write that ended meanwhile may have shortened a list already; it was not counted in then.
        for block, last in enumerate(promised):
            del may_hold[block][:last]
except nbd.Error as error:
    ended = str(error)
state.update(gen=gen, may_hold=may_hold, flushes=state["flushes"] + flushes)
with open(state_path, "w") as file:
    json.dump(state, file)
print(f"{flushes} flushes until: {ended}")
