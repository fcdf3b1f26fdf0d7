"""The clients. Each writes over its virtual disk in a way of its own (`round`), and finds again what the last round
left there (`verify`)."""

import json
import os
import tempfile

from machine import MIB, holey_file, nbdsh, run, same_files

SIZE = 32 * MIB


class Client:
    """One client of the virtual disk `p/NAME`; its files lie in a directory of its own."""

    name, tools = "", ()

    def __init__(self, machine, rng):
        self.uri, self.rng = machine.uri(self.name), rng
        self.socket = machine.path("nbd.sock")
        self.dir = tempfile.mkdtemp(dir=machine.dir)

    def file(self, name):
        return os.path.join(self.dir, name)


class QemuImg(Client):
    """convert in and out, compare, map, bench."""

    name, tools = "qemu-img", ("qemu-img",)

    def round(self):
        run("qemu-img", "bench", "-f", "raw", "-w", "-c", "400", "-d", "8", "-s", "6144", "--pattern=9",
            f"--flush-interval={self.rng.choice([50, 100])}", self.uri)
        holey_file(self.file("in"), SIZE, self.rng)
        run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", "-t", "none", self.file("in"), self.uri)
        self.verify()

    def verify(self):
        run("qemu-img", "compare", "-f", "raw", "-F", "raw", self.file("in"), self.uri)
        run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", self.uri, self.file("out.qcow2"))
        run("qemu-img", "compare", "-f", "raw", "-F", "qcow2", self.file("in"), self.file("out.qcow2"))
        run("qemu-img", "bench", "-f", "raw", "-c", "400", "-d", "8", "-s", "65536", self.uri)
        parts = json.loads(run("qemu-img", "map", "-f", "raw", "--output=json", self.uri))
        assert [part["start"] for part in parts[1:]] == [part["start"] + part["length"] for part in parts[:-1]], parts
        assert parts[0]["start"] == 0 and parts[-1]["start"] + parts[-1]["length"] == SIZE, parts
        # Every byte said to be zero is zero.
        with open(self.file("in"), "rb") as file:
            for part in parts:
                if part["zero"]:
                    file.seek(part["start"])
                    assert not any(file.read(part["length"])), f"not zero: {part}"


class QemuIo(Client):
    """Patterns, zeroes, discard, flush; it compares what it reads."""

    name, tools = "qemu-io", ("qemu-io",)

    def round(self):
        self.pattern = p = self.rng.randrange(1, 200)
        self.io(f"write -P {p} 0 8M", f"write -P {p + 1} 1000448 3000320", "flush", f"write -P {p + 2} -f 9M 37k",
                "write -z 2M 1M", "write -z -u 4M 2M", f"aio_write -P {p + 3} 12M 4M",
                f"aio_write -P {p + 4} 20M 512", "aio_flush", f"write -P {p + 5} 24M 8M", "flush", "discard 28M 4M",
                f"write -P {p + 6} 28M 1M", f"writev -P {p + 7} 30M 512 1024 4096 65536", "flush")
        self.verify()

    def verify(self):
        p = self.pattern
        self.io(f"read -P {p} 0 1000448", f"read -P {p + 1} 1000448 1096704", "read -P 0 2M 1M",
                f"read -P {p + 1} 3M 855040", f"read -P {p} 4000768 193536", "read -P 0 4M 2M", f"read -P {p} 6M 2M",
                f"read -P {p + 2} 9M 37k", f"read -P {p + 3} 12M 4M", f"read -P {p + 4} 20M 512",
                f"read -P {p + 5} 24M 4M", f"read -P {p + 6} 28M 1M", f"read -P {p + 7} 30M 71168")

    def io(self, *commands):
        words = [word for command in commands for word in ("-c", command)]
        said = run("qemu-io", "-f", "raw", *words, self.uri)
        wrong = [line for line in said.splitlines() if "failed" in line or "rror" in line]
        assert not wrong, wrong


class Nbdcopy(Client):
    """A file in and out, over several connections."""

    name, tools = "nbdcopy", ("nbdcopy",)

    def round(self):
        holey_file(self.file("in"), SIZE, self.rng)
        size = self.rng.choice([4096, 65536, 262144, 1 << 20])
        run("nbdcopy", "--flush", f"--request-size={size}", "--connections=4", self.file("in"), self.uri)
        self.verify()

    def verify(self):
        if os.path.exists(self.file("out")):
            os.remove(self.file("out"))
        run("nbdcopy", "--connections=2", self.uri, self.file("out"))
        same_files(self.file("in"), self.file("out"))


class Nbdinfo(Client):
    """Size, what the server can do, the map, the list."""

    name, tools = "nbdinfo", ("nbdinfo", "nbdsh")

    def round(self):
        nbdsh("fill.py", uri=self.uri)
        self.verify()

    def verify(self):
        assert run("nbdinfo", "--size", self.uri).strip() == str(SIZE)
        about = json.loads(run("nbdinfo", "--json", self.uri))["exports"][0]
        can = {name: about[name] for name in ("can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn")}
        assert all(can.values()), can
        assert about["export-size"] == SIZE and not about["is_read_only"], about
        assert about["block_size_minimum"] == 512, about
        run("nbdinfo", "--is", "read-only", self.uri) if about["is_read_only"] else None
        for capability in ("fua", "multi-conn", "df", "fast-zero", "trim", "flush"):
            run("nbdinfo", "--can", capability, self.uri)
        names = json.loads(run("nbdinfo", "--list", "--json", f"nbd+unix://?socket={self.socket}"))
        assert "p/nbdinfo" in [export["export-name"] for export in names["exports"]], names
        # fill.py wrote the first 8 MiB and trimmed the rest.
        parts = json.loads(run("nbdinfo", "--map", "--json", self.uri))
        assert sum(part["length"] for part in parts) == SIZE, parts
        assert all(part["type"] == 0 for part in parts if part["offset"] < 8 * MIB), parts
        holes = sum(part["length"] for part in parts if part["type"] == 3)
        assert holes >= 23 * MIB, f"only {holes} bytes of the trimmed 24 MiB are holes: {parts}"
        totals = json.loads(run("nbdinfo", "--map", "--totals", "--json", self.uri))
        assert sum(part["size"] for part in totals) == SIZE, totals


class Nbdsh(Client):
    """Structured reads, FUA, block status, zeroes with flags, requests that must be refused, several connections."""

    name, tools = "nbdsh", ("nbdsh",)

    def round(self):
        self.seed = self.rng.randrange(1 << 30)
        nbdsh("protocol.py", uri=self.uri, seed=self.seed)
        self.verify()

    def verify(self):
        nbdsh("protocol_verify.py", uri=self.uri, seed=self.seed)


class Fio(Client):
    """Verified with CRC32C: sequential and random, several jobs, with trims among them."""

    name, tools = "fio", ("fio",)

    def round(self):
        self.seed = self.rng.randrange(1, 1 << 30)
        self.fio(*self.verified())
        self.fio(
            ["--name=again", "--rw=randtrimwrite", "--bs=64k", "--offset=24m", "--size=8m", "--fsync=16"],
            ["--name=trim", "--rw=randtrim", "--bs=12k", "--offset=16m", "--size=4m", "--numjobs=2"],
            ["--name=over", "--rw=randrw", "--bs=4k-32k", "--offset=20m", "--size=4m", "--fsync=16"],
            ["--name=beside", "--rw=randwrite", "--bs=8k", "--offset=7800k", "--size=384k", "--verify=crc32c"])
        self.verify()

    def verify(self):
        self.fio(*self.verified(), more=["--verify_only"])

    def verified(self):
        return (["--name=seq", "--rw=write", "--bs=120k", "--offset=0", "--size=7800k", "--verify=crc32c"],
                ["--name=rand", "--rw=randwrite", "--bs=4k", "--offset=8m", "--size=4m", "--numjobs=2",
                 "--offset_increment=4m", "--verify=crc32c", "--fsync=100"])

    def fio(self, *jobs, more=()):
        common = ["--ioengine=nbd", f"--uri={self.uri}", "--iodepth=16", f"--randseed={self.seed}", "--thread",
                  "--verify_fatal=1", "--verify_state_save=0", *more]
        run("fio", *common, *(word for job in jobs for word in job))


ALL = (QemuImg, QemuIo, Nbdcopy, Nbdinfo, Nbdsh, Fio)
