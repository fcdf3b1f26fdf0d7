# Fills the first 8 MiB of URI and gives the rest back.
import os

MIB = 1 << 20
h.set_strict_mode(0)
h.connect_uri(os.environ["URI"])
h.pwrite(os.urandom(8 * MIB), 0)
for at in range(8, 32, 8):
    h.trim(8 * MIB, at * MIB)
h.flush()
h.shutdown()
