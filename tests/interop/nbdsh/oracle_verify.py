# Reads what oracle.py wrote; every block must hold, whole, one of the generations it may hold. What it holds now is
# what it must hold from here on.
import json
import os
import struct

BLOCK = 4096
with open(os.environ["STATE"]) as file:
    state = json.load(file)
h.connect_uri(os.environ["URI"])
wrong = []
for first in range(0, len(state["may_hold"]), 256):
    data = h.pread(256 * BLOCK, first * BLOCK)
    for n in range(256):
        block, bytes_of = first + n, data[n * BLOCK:(n + 1) * BLOCK]
        named, gen = struct.unpack("<QQ", bytes_of[:16])
        whole = bytes_of == bytes_of[:16] * (BLOCK // 16) and (named == block or not any(bytes_of[:16]))
        if not whole or gen not in state["may_hold"][block]:
            wrong.append(f"block {block} holds generation {gen} of block {named} (whole: {whole}); "
                         f"it may hold {state['may_hold'][block]}")
        state["may_hold"][block] = [gen]
assert not wrong, f"{len(wrong)} blocks: " + "; ".join(wrong[:8])
with open(os.environ["STATE"], "w") as file:
    json.dump(state, file)
