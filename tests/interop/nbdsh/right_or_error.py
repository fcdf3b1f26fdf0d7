# Reads URI piece by piece: each is what FILE holds there, or an error.
import os

PIECE = 65536
h.connect_uri(os.environ["URI"])
right = failed = 0
with open(os.environ["FILE"], "rb") as file:
    for at in range(0, h.get_size(), PIECE):
        try:
            got = h.pread(PIECE, at)
        except nbd.Error:
            failed += 1
            continue
        file.seek(at)
        assert got == file.read(PIECE), f"other data at {at}, and no error"
        right += 1
print(f"{right} pieces right, {failed} errors")
