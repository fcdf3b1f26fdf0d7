"""Disks with forged contents, given to a daemon that serves others: whoever can write a disk can make every checksum right. The pool opens and
serves, or is refused with a reason; the daemon lives, keeps its memory, and a well-behaved client of another pool keeps its latency."""

import os
import shutil
import struct
import subprocess

from hostile import FLUSH, READ, WRITE, Client, Memory, Neighbour, Small
from machine import MIB
from report import Case

BLOCK = 4096
SIZE = 16 * MIB
DISKS = 3
LABEL_CRC, LOG_CRC = 12, 68
LOG_HEAD = 72
# The fields of a label that are used here: offset and format.
FIELDS = {"pool_name": (72, "48s"), "blob_at": (152, "<Q"), "blob_len": (160, "<Q"), "log_at": (168, "<Q"), "log_len": (176, "<Q"),
          "checkpoint_no": (232, "<Q"), "checkpoint_len": (240, "<Q"), "checkpoint_crc": (248, "<I"), "log_chain": (252, "<I"),
          "log_tail": (256, "<Q"), "serial": (296, "<Q")}
# The last field that means something, but for lists of numbers.
LABEL_END = 1352


def cases(long=False):
    count = 250 if long else 6
    return [Case("hostile: forged disks", lambda reporter, rng: reporter.check("", forged, rng, count), ("cp",))]


def forged(rng, count):
    with Small() as machine:
        story = Story(machine)
        told = {}
        with Memory(machine) as memory, Neighbour(machine) as neighbour:
            for _ in range(count):
                kind = rng.choice(KINDS)
                opened = story.tell(kind, rng)
                key = f"{kind.__name__} {'opened' if opened else 'refused'}"
                told[key] = told.get(key, 0) + 1
                wrong = [line for line in machine.log if "panicked" in line]
                assert not wrong, (key, wrong[:3])
        assert machine.daemon.poll() is None, machine.log[-10:]
        assert [pool["name"] for pool in machine.json("pool", "list")] == ["p"], machine.weft("pool", "list")
        machine.sound()
        memory.below(200 * MIB)
        words = ", ".join(f"{key}: {number}" for key, number in sorted(told.items()))
        return f"{count} images ({words}): {memory.words()}; {neighbour.words()}"


class Story:
    """A second pool of the machine, as a crash left it, to be forged again and again."""

    def __init__(self, machine):
        self.machine = machine
        self.place, self.kept, self.work = (machine.path(name) for name in ("forged", "kept", "work"))
        for path in (self.place, self.kept, self.work):
            os.mkdir(path)
        self.restart()
        files = [os.path.join(self.place, f"f{n}") for n in range(DISKS)]
        machine.weft("pool", "create", "q", *files, "--create-size", str(SIZE), "--slab-size", "1MiB")
        machine.weft("vdisk", "create", "q/v", "--size", "4MiB", "--resiliency", "mirror", "--copies", "2", "--columns", "1")
        machine.weft("vdisk", "create", "q/w", "--size", "4MiB", "--resiliency", "parity", "--columns", "3", "--interleave", "16KiB")
        for name in ("v", "w"):
            self.use(f"q/{name}")
        # What lies in the log stays there.
        machine.kill()
        for file in files:
            shutil.move(file, self.kept)
        self.restart()

    def restart(self):
        if self.machine.daemon:
            self.machine.kill()
        self.machine.serve([self.machine.disks_dir, self.place])

    def use(self, name):
        """Writes and reads what it lets anybody write and read."""
        path = self.machine.path("forged.sock")
        added = self.machine.ran("export", "add", name, "--nbd", f"unix:{path}")
        if added.returncode:
            return
        try:
            with Client(self.machine, name=name, path=path) as client:
                client.socket.settimeout(5)
                for at, length in ((0, 1 << 20), (1 << 20, 300 << 10), (8192, 512)):
                    client.ask(WRITE, at, length, bytes([at % 251 + 1]) * length)
                    client.take(16)
                client.ask(FLUSH)
                client.take(16)
                client.ask(READ, 0, 65536)
                client.take(16)
        except OSError:
            # Refused, or cut off.
            pass
        self.machine.weft("export", "remove", name)

    def tell(self, kind, rng):
        """Forges the pool, gives it to the daemon, does with it what it lets anybody do, and takes it away again. Says whether it opened."""
        machine = self.machine
        images = []
        for n in range(DISKS):
            path = os.path.join(self.work, f"f{n}")
            subprocess.run(["cp", "--sparse=always", os.path.join(self.kept, f"f{n}"), path], check=True)
            images.append(Image(path))
        kind(images, rng)
        for image in images:
            image.close()
            os.rename(image.path, os.path.join(self.place, os.path.basename(image.path)))
        machine.weft("disk", "list")
        imported = machine.ran("pool", "import", "q")
        # A forged identity makes two pools of one, and people have to say which they mean.
        unclear = imported.returncode == 2 and " pools are named q" in imported.stderr
        assert unclear or imported.returncode in (0, 1, 3, 4, 6), (imported.returncode, imported.stderr)
        names = [pool["name"] for pool in machine.json("pool", "list") if pool["name"] != "p"]
        for pool in names:
            for vdisk in machine.json("vdisk", "list", pool):
                self.use(vdisk["name"])
            for line in (["pool", "check", pool], ["events", pool, "--count", "20"], ["scrub", pool], ["status", pool],
                         ["vdisk", "create", f"{pool}/new", "--size", "1MiB"]):
                ran = machine.ran(*line)
                assert ran.returncode in (0, 1, 3, 4, 5, 6), (line, ran.returncode, ran.stderr)
                assert not any(c < " " and c != "\n" for c in ran.stdout + ran.stderr), (line, ran.stdout, ran.stderr)
        for pool in names:
            machine.ran("pool", "export", pool, "--yes")
        for entry in os.listdir(self.place):
            os.remove(os.path.join(self.place, entry))
        return bool(names)


class Image:
    """A disk's file."""

    def __init__(self, path):
        self.path, self.file = path, open(path, "r+b")
        self.slots = [0, BLOCK, SIZE - 2 * BLOCK, SIZE - BLOCK]
        self.label = max((self.read(at) for at in self.slots), key=lambda label: get(label, "serial"))

    def close(self):
        self.file.close()

    def read(self, at, length=BLOCK):
        self.file.seek(at)
        return bytearray(self.file.read(length))

    def write(self, at, data):
        self.file.seek(at)
        self.file.write(data)

    def put_label(self, label, everywhere=True):
        """Makes it right, and puts it in the place of the newest, or of all."""
        seal(label, LABEL_CRC)
        for at in self.slots:
            if everywhere or get(self.read(at), "serial") == get(self.label, "serial"):
                self.write(at, label)

    def checkpoint(self):
        at = get(self.label, "blob_at") + get(self.label, "checkpoint_no") % 2 * get(self.label, "blob_len")
        return at, self.read(at, get(self.label, "checkpoint_len"))


def get(label, field):
    at, form = FIELDS[field]
    return struct.unpack_from(form, label, at)[0]


def put(label, field, value):
    at, form = FIELDS[field]
    struct.pack_into(form, label, at, value)


def seal(data, at):
    data[at:at + 4] = bytes(4)
    struct.pack_into("<I", data, at, crc32c(data))


def table():
    entries = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        entries.append(value)
    return entries


TABLE = table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


# What is forged

def odd_number(rng):
    """One that is likely to be wrong in an interesting way."""
    return rng.choice([0, 1, rng.randrange(8), (1 << 64) - 1, (1 << 32) - 1 - rng.randrange(3), 1 << rng.randrange(63),
                       (1 << 62) - 1 - rng.randrange(4), rng.randrange(1 << 64)])


def odd_field(data, begin, end, rng):
    """Puts one somewhere into `data`, as a field of 1 to 8 bytes."""
    width = rng.choice([1, 2, 4, 4, 8, 8])
    if end - begin >= width:
        at = begin + rng.randrange((end - begin) // width) * width
        data[at:at + width] = odd_number(rng).to_bytes(8, "little")[:width]


def label(images, rng):
    """Numbers in the label of one disk, or of all."""
    chosen, everywhere, seed = rng.randrange(DISKS), rng.random() < 0.3, rng.randrange(1 << 32)
    for n, image in enumerate(images):
        if n == chosen or everywhere:
            own = type(rng)(seed)
            forged = bytearray(image.label)
            for _ in range(1 + own.randrange(3)):
                odd_field(forged, 16, LABEL_END, own)
            image.put_label(forged, own.random() < 0.5)


def name(images, rng):
    """A name that a terminal would obey."""
    evil = rng.choice([b"\x1b[2J\x1b[1;1H", b"a\nb", "\u202egpj".encode(), b"\xff\xfe", b"../../p", b"", b"p"]).ljust(48, b"\0")
    for image in images:
        forged = bytearray(image.label)
        put(forged, "pool_name", evil)
        image.put_label(forged)


def checkpoint(images, rng):
    """Numbers in its records, with every checksum right."""
    seed = rng.randrange(1 << 32)
    for image in images:
        own = type(rng)(seed)
        at, blob = image.checkpoint()
        for _ in range(1 + own.randrange(3)):
            odd_field(blob, 0, len(blob), own)
        if own.random() < 0.2:
            blob = blob[:own.randrange(len(blob)) // 8 * 8]
        image.write(at, blob)
        forged = bytearray(image.label)
        put(forged, "checkpoint_crc", crc32c(blob))
        put(forged, "checkpoint_len", len(blob))
        image.put_label(forged, everywhere=False)


def log(images, rng):
    """Numbers in its records, with every checksum and the chain right."""
    seed = rng.randrange(1 << 32)
    for image in images:
        own = type(rng)(seed)
        start, ring = get(image.label, "log_at"), get(image.label, "log_len")
        position, chain = get(image.label, "log_tail"), get(image.label, "log_chain")
        while True:
            at = start + position % ring
            head = image.read(at)
            if not head.startswith(b"WEFTLOGB") or struct.unpack_from("<Q", head, 40)[0] != position:
                break
            payload = struct.unpack_from("<I", head, 56)[0]
            whole = LOG_HEAD + payload
            length = -(-whole // BLOCK) * BLOCK
            batch = image.read(at, length)
            if own.random() < 0.5:
                odd_field(batch, LOG_HEAD, LOG_HEAD + min(payload, 400), own)
            struct.pack_into("<II", batch, LOG_CRC - 4, chain, 0)
            chain = crc32c(batch[:whole])
            struct.pack_into("<I", batch, LOG_CRC, chain)
            image.write(at, batch)
            position += length


def damage(images, rng):
    """Blocks of random bytes, most of them where the metadata is."""
    for _ in range(1 + rng.randrange(20)):
        at = rng.randrange(SIZE // BLOCK) if rng.random() < 0.3 else rng.randrange(300)
        rng.choice(images).write(at * BLOCK, rng.randbytes(BLOCK))


def cut(images, rng):
    """A file that ends early."""
    image = rng.choice(images)
    image.file.truncate(rng.choice([0, 1, BLOCK, 3 * BLOCK + 5, rng.randrange(SIZE)]))


def mixed(images, rng):
    """Labels of one disk on another, and of another time."""
    a, b = rng.sample(images, 2)
    b.put_label(bytearray(a.label), rng.random() < 0.5)


KINDS = [label, label, label, name, checkpoint, checkpoint, checkpoint, log, log, damage, cut, mixed]
