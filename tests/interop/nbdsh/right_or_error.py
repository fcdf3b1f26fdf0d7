# Reads pieces of URI from beginning to end: each is what FILE holds there, or an error.
import os

PIECE = 65536
STRIDE = 5 * PIECE
h.connect_uri(os.environ["URI"])
right = failed = 0
with open(os.environ["FILE"], "rb") as file:
    for at in range(0, h.get_size(), STRIDE):
        try:
            got = h.pread(PIECE, at)
        except nbd.Error:
            failed += 1
            continue
        file.seek(at)
        assert got == file.read(PIECE), f"other data at {at}, and no error"
        right += 1
print(f"{right} pieces right, {failed} errors")
