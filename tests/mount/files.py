"""Files whose content can be told from their name: slices of one block of random bytes."""

import errno
import os
import subprocess

KIB, MIB = 1 << 10, 1 << 20


class Content:
    def __init__(self, rng):
        self.base = rng.randbytes(16 * MIB)

    def of(self, name):
        """The bytes of a file: its name says where in the base they begin, and how many they are."""
        at, size = (int(word, 16) for word in name.split("-")[-2:])
        return memoryview(self.base)[at:at + size]

    def name(self, rng, prefix, size):
        size = min(size, len(self.base))
        return f"{prefix}-{rng.randrange(len(self.base) - size + 1):x}-{size:x}"

    def write(self, folder, name, durable=False, flags=0):
        path = os.path.join(folder, name)
        with open(path, "wb", buffering=0) as file:
            left, at = self.of(name), 0
            while at < len(left):
                at += os.pwritev(file.fileno(), [left[at:]], at, flags)
            if durable:
                os.fsync(file.fileno())
        if durable:
            directory = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def verify(self, folder, name):
        with open(os.path.join(folder, name), "rb") as file:
            read = file.read()
        assert read == self.of(name), f"{name} is not as it was written: {len(read)} bytes"


def size_of(rng):
    """Many small ones, some large ones."""
    small = rng.random() < 0.7
    return rng.randrange(1, 64 * KIB) if small else rng.randrange(64 * KIB, 12 * MIB)


def fill(content, rng, folder, share=0.95, flags=0):
    """Writes files until the file system is full to its share, or has no room for small ones either; their names and
    how many bytes. `flags`: those of pwritev."""
    names, written, folders, largest = [], 0, 0, 16 * MIB
    while largest >= 16 * KIB:
        room = os.statvfs(folder)
        left = room.f_bfree - (1 - share) * room.f_blocks
        if left <= 0:
            break
        if len(names) % 64 == 0:
            folders += 1
            os.makedirs(os.path.join(folder, f"d{folders}"), exist_ok=True)
        # The last ones are cut to what is left, so that the share is met and not jumped over.
        size = max(1, min(size_of(rng), largest, int(left * room.f_frsize)))
        name = content.name(rng, f"d{folders}/{len(names)}", size)
        try:
            content.write(folder, name, flags=flags)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # What is promised to files is more than they get in the end: after a sync there may be room for smaller
            # ones.
            os.remove(os.path.join(folder, name))
            subprocess.run(["sync", "--file-system", folder], check=True)
            largest //= 2
            continue
        names.append(name)
        written += size
    return names, written
