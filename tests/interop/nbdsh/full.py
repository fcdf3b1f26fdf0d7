# Fills a thin pool through URI (and OTHER) until it says ENOSPC; ACT says which part of the story this is. STATE keeps
# what each MiB holds: a number (the seed of its bytes), or a list of what it may hold after a write that failed.
import errno
import json
import os
import random

MIB = 1 << 20
act, state_path = os.environ["ACT"], os.environ["STATE"]
try:
    with open(state_path) as file:
        state = json.load(file)
except FileNotFoundError:
    state = {"next": int(os.environ["SEED"]), "v": {}, "other": {}}
handles = {"v": h, "other": nbd.NBD()}
h.connect_uri(os.environ["URI"])
if act != "more":
    handles["other"].connect_uri(os.environ["OTHER"])


def content(seed):
    return random.Random(seed).randbytes(MIB) if seed else bytes(MIB)


def write(disk, mib):
    """Writes and flushes one MiB; says whether there was room."""
    state["next"] += 1
    before = state[disk].get(str(mib), 0)
    # Block by block, what fails may be the old or the new.
    may = (before if isinstance(before, list) else [before]) + [state["next"]]
    state[disk][str(mib)] = may
    try:
        handles[disk].pwrite(content(state["next"]), mib * MIB)
        handles[disk].flush()
    except nbd.Error as error:
        assert error.errnum == errno.ENOSPC, f"{error} instead of ENOSPC"
        return False
    state[disk][str(mib)] = state["next"]
    return True


def verify():
    for disk, handle in handles.items():
        if act == "more" and disk == "other":
            continue
        for mib, holds in state[disk].items():
            got = handle.pread(MIB, int(mib) * MIB)
            if not isinstance(holds, list):
                assert got == content(holds), f"MiB {mib} of {disk} is not what was flushed"
                continue
            may = [content(seed) for seed in holds]
            for at in range(0, MIB, 4096):
                block = got[at:at + 4096]
                assert any(block == one[at:at + 4096] for one in may), f"MiB {mib} of {disk}, {at}: neither old nor new"


if act == "fill":
    flushed = 0
    for mib in range(24):
        assert str(mib) in state["other"] or write("other", mib), "a fresh pool has no room for 24 MiB"
    mib = len(state["v"])
    while write("v", mib):
        flushed += 1
        mib += 1
        assert mib < 480, "a small pool took 480 MiB"
    # Full is full for everybody; what is there can still be read.
    refusals = 1 + sum(not write(disk, n) for n in range(500, 504) for disk in ("v", "other"))
    assert refusals > 1, "full, and yet all were served"
    verify()
    said = f"{flushed} MiB fitted, {refusals} requests refused"
elif act == "verify":
    verify()
    said = f"{len(state['v']) + len(state['other'])} MiB"
elif act == "trim":
    verify()
    for disk, first, last in (("v", 0, 16), ("v", 500, 504), ("other", 500, 504)):
        # Trimmed bytes may read as anything that stood there, or zeroes; they are not looked at until they are written
        # again.
        for mib in range(first, last):
            state[disk].pop(str(mib), None)
        handles[disk].trim((last - first) * MIB, first * MIB)
        handles[disk].flush()
    written = sum(write(disk, 200 + n) for n in range(4) for disk in ("v", "other"))
    assert written == 8, f"only {written} of 8 MiB fitted after 16 MiB were trimmed"
    verify()
    said = "8 MiB written"
elif act == "holes":
    for mib in range(0, len(state["v"]) - 8, 2):
        state["v"].pop(str(mib), None)
        handles["v"].trim(MIB, mib * MIB)
    handles["v"].flush()
    verify()
    said = f"{len(state['v'])} MiB are left"
elif act == "more":
    written = sum(write("v", 300 + n) for n in range(16))
    assert written == 16, f"only {written} of 16 MiB fitted"
    verify()
    said = "16 MiB written"
with open(state_path, "w") as file:
    json.dump(state, file)
print(said)
