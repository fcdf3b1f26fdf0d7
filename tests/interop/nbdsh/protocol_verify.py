# What protocol.py left behind: the same sequence of choices.
import os
import random

MIB = 1 << 20
rng = random.Random(int(os.environ["SEED"]))
h.connect_uri(os.environ["URI"])
one = rng.randbytes(3 * MIB + 512)
two = rng.randbytes(100 * 512)
rng.randbytes(2 * MIB)
three = rng.randbytes(MIB)
assert h.pread(len(one), 512) == one
assert h.pread(len(two), 5 * MIB + 512) == two
assert not any(h.pread(2 * MIB, 6 * MIB))
assert h.pread(8 * MIB, 8 * MIB) == bytes(2 * MIB) + three + bytes(5 * MIB)
for n in range(64):
    data = rng.randbytes(rng.randrange(1, 64) * 512)
    assert h.pread(len(data), 20 * MIB + n * 65536 + 512) == data, n
h.shutdown()
