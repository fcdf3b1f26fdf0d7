"""Hostile neighbours: clients that break the NBD protocol or hold what they can, requests that never end, a local user, disks with
forged contents. Whatever they do, it costs an error; a well-behaved client beside them keeps its latency."""

import json
import os
import random
import resource
import socket
import struct
import subprocess
import threading
import time
from collections import Counter

from machine import MIB, PATIENCE, Machine
from report import Case

SIZE = 64 * MIB
# What a well-behaved client may have to wait at most, in seconds (a connection that the kernel drops is asked for again
# after one, and after three); on a machine without hardware help anything takes longer.
LATENCY = 5.0 if not os.environ.get("WEFT_VM") else 30.0
LAYOUT = ["--resiliency", "mirror", "--copies", "2", "--columns", "1"]
# Hostile clients at a time.
HOSTS = 8
# What a daemon may have more when its clients are gone: what is kept for reading (32 MiB), and as much again.
BACK = 64 * MIB
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZERO, STATUS = range(8)
REQUEST = struct.Struct(">IHHQQI")
OPTION = struct.Struct(">8sII")
MAGIC = 0x25609513


def cases(long=False):
    return [
        Case("hostile: payloads that never come", lambda reporter, rng: reporter.check("", headers_only)),
        Case("hostile: replies that are not taken", lambda reporter, rng: reporter.check("", untaken)),
        Case("hostile: payloads that never end, again and again", lambda reporter, rng: reporter.check("", again)),
        Case("hostile: silent handshakes", lambda reporter, rng: reporter.check("", silent)),
        Case("hostile: one address full of clients", lambda reporter, rng: reporter.check("", crowd)),
        Case("hostile: few descriptors", lambda reporter, rng: reporter.check("", few_descriptors)),
        Case("hostile: half-sent requests for control", lambda reporter, rng: reporter.check("", half_sent)),
        Case("hostile: NBD inputs", lambda reporter, rng: reporter.check("", nbd_inputs, rng, 20_000 if long else 320)),
        Case("hostile: control inputs", lambda reporter, rng: reporter.check("", control_inputs, rng, 2_000 if long else 150)),
    ]


# Clients

class Client:
    """One NBD connection, by hand: what is sent is what is told."""

    def __init__(self, machine, enter=True, name="p/v", path=None, source=None):
        """`source`: over TCP from this address to this port."""
        if source:
            self.socket = socket.create_connection(("127.0.0.1", source[1]), PATIENCE, (source[0], 0))
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            # A connect that waits for its turn is an error on a socket with a timeout.
            self.socket.connect(path or machine.path("nbd.sock"))
        self.socket.settimeout(PATIENCE)
        self.cookie = 0
        if enter:
            self.send(struct.pack(">I", 3), OPTION.pack(b"IHAVEOPT", 1, len(name)), name.encode())
            self.take(18 + 10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def take(self, length):
        got = bytearray()
        while len(got) < length:
            part = self.socket.recv(min(length - len(got), MIB))
            if not part:
                raise ConnectionError("the server closed the connection")
            got += part
        return bytes(got)

    def ask(self, command, offset=0, length=0, payload=b"", flags=0):
        self.cookie += 1
        self.send(REQUEST.pack(MAGIC, flags, command, self.cookie, offset, length), payload)

    def answer(self, length=0):
        _, error, _ = struct.unpack(">IIQ", self.take(16))
        assert error == 0, f"error {error}"
        return self.take(length)

    def is_closed(self):
        """Whether the server has hung up, or does so now."""
        try:
            while self.socket.recv(MIB):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True


class Beside:
    """Something that goes on in a thread of its own beside the body of a `with`: `step()`, over and over; then `judge()`,
    unless the body has failed already."""

    def __init__(self):
        self.error, self.ended = None, threading.Event()
        self.thread = threading.Thread(target=self.live, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.ended.set()
        self.thread.join()
        self.close()
        if kind is None:
            assert self.error is None, f"{type(self).__name__} beside it: {self.error!r}"
            self.judge()

    def live(self):
        try:
            while not self.ended.is_set():
                self.step()
        except Exception as error:  # told by the thread that waits for this one
            self.error = error

    def close(self):
        pass


class Neighbour(Beside):
    """A well-behaved client: writes, reads back and flushes, over and over; notes how long each takes."""

    def __init__(self, machine, length=256 << 10, **how):
        super().__init__()
        self.client, self.length = Client(machine, **how), length
        self.worst, self.rounds = 0.0, 0

    def step(self):
        data = bytes([self.rounds % 256]) * self.length
        at = self.rounds % 64 * self.length
        self.timed(WRITE, at, data)
        assert self.timed(READ, at) == data, f"what was written at {at} is not what is read"
        self.timed(FLUSH)
        self.rounds += 1

    def close(self):
        self.client.socket.close()

    def judge(self):
        assert self.rounds > 0 and self.worst < LATENCY, f"it waited {self.worst:.2f} s, in {self.rounds} rounds"

    def timed(self, command, at=0, payload=b""):
        begun = time.monotonic()
        self.client.ask(command, at, self.length if command != FLUSH else 0, payload)
        got = self.client.answer(self.length if command == READ else 0)
        self.worst = max(self.worst, time.monotonic() - begun)
        return got

    def words(self):
        return f"worst latency beside them {self.worst * 1000:.0f} ms of {self.rounds} rounds"


class Small(Machine):
    """A machine with a small daemon and one virtual disk full of data."""

    def __init__(self, **more):
        super().__init__(disks=2, size="512MiB", pool=False, **more)
        self.weft("pool", "create", "p", *self.disk_files(), "--create-size", "512MiB", "--slab-size", "4MiB")
        self.vdisk("v", SIZE, *LAYOUT)
        with Client(self) as client:
            for at in range(0, SIZE, 4 * MIB):
                client.ask(WRITE, at, 4 * MIB, bytes([at // MIB + 1]) * 4 * MIB)
                client.answer()
            client.ask(FLUSH)
            client.answer()

    def serve(self, disks=None, more=(), group=None):
        super().serve(disks, [*more, "--memory", "64MiB"], group)

    def status(self, word, process=None):
        """A number of /proc/PID/status; sizes in bytes."""
        with open(f"/proc/{process or self.daemon.pid}/status") as file:
            line = next(line for line in file if line.startswith(word + ":"))
        return int(line.split()[1]) * (1024 if line.rstrip().endswith("kB") else 1)

    def memory(self):
        return self.status("VmRSS")


class Memory(Beside):
    """The daemon's memory: before, at most while something goes on, and after it."""

    def __init__(self, machine):
        super().__init__()
        self.machine, self.before, self.after = machine, machine.memory(), None
        self.peak = self.before

    def step(self):
        self.peak = max(self.peak, self.machine.memory())
        self.ended.wait(0.05)

    def judge(self):
        """`below` does."""

    def below(self, peak, after=BACK):
        """`after`: what is left soon after they went."""
        holds_until(lambda: self.machine.memory() - self.before < after)
        self.after = self.machine.memory()
        assert self.peak - self.before < peak and self.after - self.before < after, self.words()

    def words(self):
        return f"memory {self.before / MIB:.0f} MiB, {grown(self.before, self.peak)} at most, {grown(self.before, self.after)} after"


def grown(before, now):
    return f"{(now - before) / MIB:+.0f} MiB"


def holds_until(body, *args):
    """Waits until it is true; gives up after a while, which is for who asks to judge."""
    begun = time.monotonic()
    while not body(*args) and time.monotonic() - begun < 20:
        time.sleep(0.05)


# Memory

def clients_take(clients):
    """What docs/decisions/the-heap-is-mimallocs.md says that clients can make the daemon take."""
    return (2 * clients + 2 * 64) * MIB


def headers_only():
    with Small() as machine:
        with Memory(machine) as memory, Neighbour(machine) as neighbour:
            clients = [Client(machine) for _ in range(60)]
            for client in clients:
                client.ask(WRITE, 0, 32 * MIB, b"x")
            time.sleep(1)
            leave(machine, clients)
        memory.below(160 * MIB)
        return f"60 clients: {memory.words()}; {neighbour.words()}"


def untaken():
    """Clients that send half of large writes, and ask for more replies than they take."""
    with Small() as machine:
        with Memory(machine) as memory, Neighbour(machine) as neighbour:
            clients = [Client(machine) for _ in range(48)]
            pushing = [threading.Thread(target=push, args=(client, number), daemon=True) for number, client in enumerate(clients)]
            for thread in pushing:
                thread.start()
            time.sleep(8)
            leave(machine, clients)
        memory.below(300 * MIB)
        return f"{len(clients)} clients: {memory.words()}; {neighbour.words()}"


def again():
    """Writes of every length of which the last byte never comes, from as many clients as there may be, again and again:
    what a round took is given back before the next, or used by it."""
    with Small() as machine:
        with Memory(machine) as memory, Neighbour(machine) as neighbour:
            for number in range(4):
                clients = [Client(machine) for _ in range(200)]
                for at, client in enumerate(clients):
                    length = (96, 112, 128, 160, 192, 224, 256, 320, 384, 448)[(at + number) % 10] << 10
                    client.ask(WRITE, 0, length, bytes(length - 1))
                time.sleep(1)
                leave(machine, clients)
        memory.below(clients_take(200))
        return f"4 times 200 clients: {memory.words()}; {neighbour.words()}"


def leave(machine, clients):
    """They go; returns when the daemon has seen it."""
    for client in clients:
        client.socket.close()
    holds_until(lambda: machine.status("Threads") < 40)


def push(client, number):
    try:
        client.socket.settimeout(8)
        if number % 3 == 0:
            client.ask(WRITE, 0, 32 * MIB, bytes(20 * MIB))
            return
        for _ in range(200):
            client.ask(READ, 0, 32 * MIB if number % 3 == 1 else 2 * MIB)
    except OSError:
        # It was sent away, or is not read from any more: both are as it should be.
        pass


# Connections

def silent():
    with Small() as machine:
        # Those who have chosen and do nothing are no harm either.
        idle = [Client(machine) for _ in range(64)]
        with Neighbour(machine) as neighbour:
            held, refused = [], 0
            for _ in range(1500):
                try:
                    held.append(Client(machine, enter=False))
                except OSError:
                    refused += 1
            begun = time.monotonic()
            with Client(machine) as late:
                late.ask(READ, 0, 4096)
                late.answer(4096)
            took = time.monotonic() - begun
            status = time.monotonic()
            machine.weft("status")
            status = time.monotonic() - status
        for client in held + idle:
            client.socket.close()
        assert took < LATENCY, f"a client got in after {took:.1f} s"
        return f"in after {took * 1000:.0f} ms beside 64 idle clients and 1500 silent ones; status in {status:.1f} s; {neighbour.words()}"


def crowd():
    """One address has all the places that an address may have, and does nothing with them: others do not notice."""
    port = 20812
    with Small() as machine:
        machine.weft("export", "remove", "p/v")
        machine.weft("export", "add", "p/v", "--nbd", f"tcp:127.0.0.1:{port}", "--allow", "127.0.0.0/8")
        # Through the kernel's lists of TCP, not by hand: what comes from where is what it is about.
        idle = [Client(machine, source=("127.0.0.2", port)) for _ in range(64)]
        assert Client(machine, enter=False, source=("127.0.0.2", port)).is_closed(), "one more than an address may have"
        with Neighbour(machine, source=("127.0.0.3", port)) as neighbour:
            silent = []
            for number in range(300):
                try:
                    silent.append(Client(machine, enter=False, source=(f"127.0.0.{4 + number % 4}", port)))
                except OSError:
                    pass
            begun = time.monotonic()
            with Client(machine, source=("127.0.0.9", port)) as late:
                late.ask(READ, 0, 4096)
                late.answer(4096)
            took = time.monotonic() - begun
        assert took < LATENCY, f"another got in after {took:.1f} s"
        # A place that was given up is free for the same address.
        idle.pop().socket.close()
        holds_until(lambda: machine.json("export", "list")[0]["connections"] == len(idle))
        with Client(machine, source=("127.0.0.2", port)) as again:
            again.ask(FLUSH)
            again.answer()
        for client in idle + silent:
            client.socket.close()
        return f"another got in after {took * 1000:.0f} ms; {neighbour.words()}"


def few_descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0], before[1]))
    machine = Small()
    with machine:
        machine.kill()
        hard = 160
        serve_with_limit(machine, hard)
        held = []
        for _ in range(400):
            try:
                held.append(Client(machine, enter=False))
            except OSError:
                pass
        clients = 0
        for _ in range(200):
            try:
                client = Client(machine)
                held.append(client)
                clients += 1
            except OSError:
                break
        begun = time.monotonic()
        machine.weft("status")
        machine.weft("disk", "list")
        took = time.monotonic() - begun
        for client in held:
            client.socket.close()
        # Until the daemon has seen that they went, whoever comes is sent away.
        holds_until(is_served, machine)
        assert is_served(machine), "places that were given up are not free"
        assert 0 < clients < hard, clients
        assert took < 10, f"commands took {took:.1f} s"
        return f"{clients} clients of {hard} descriptors; two commands in {took:.1f} s"


def is_served(machine):
    try:
        with Client(machine) as client:
            client.ask(READ, 0, 4096)
            client.answer(4096)
        return True
    except OSError:
        return False


def serve_with_limit(machine, hard):
    """The daemon with so many descriptors; its soft limit is lower still, and it raises that by itself."""
    real = os.environ["WEFT"]
    script = machine.path("limited")
    with open(script, "w") as file:
        file.write(f"#!/bin/sh\nulimit -Sn 48 && ulimit -Hn {hard} && exec {real} \"$@\"\n")
    os.chmod(script, 0o755)
    os.environ["WEFT"] = script
    try:
        machine.serve()
    finally:
        os.environ["WEFT"] = real
    with open(f"/proc/{machine.daemon.pid}/limits") as file:
        line = next(line for line in file if line.startswith("Max open files"))
    assert line.split()[3] == str(hard), f"it did not raise its limit: {line}"


def half_sent():
    with Small() as machine:
        held = []
        for number in range(60):
            control = socket.socket(socket.AF_UNIX)
            control.settimeout(PATIENCE)
            try:
                control.connect(machine.path("weft.sock"))
                head = b"POST /v1/vdisks HTTP/1.1\r\nhost: weft\r\ncontent-type: application/json\r\ncontent-length: 100\r\n"
                if number % 10 == 2:
                    never_taken(control)
                else:
                    control.sendall(head[:40] if number % 2 else head + b"\r\n{")
                held.append(control)
            except OSError:
                pass
        begun = time.monotonic()
        for control in held:
            # An answer, or nothing, and then the end. What was not taken in time is cut off.
            try:
                while control.recv(1 << 20):
                    pass
            except ConnectionError:
                pass
        took = time.monotonic() - begun
        machine.weft("status")
        assert took < 60, f"they were held for {took:.0f} s"
        return f"{len(held)} were sent away within {took:.0f} s"


def never_taken(control):
    """Asks for more answers than a socket holds, and takes none."""
    control.settimeout(0.5)
    try:
        for _ in range(200):
            control.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: weft\r\n\r\n" * 20)
    except TimeoutError:
        pass
    control.settimeout(PATIENCE)


# Hostile inputs

def nbd_inputs(rng, count):
    """Sessions with damage: any bytes anywhere, from several clients at a time."""
    with Small() as machine:
        kinds = Counter()
        seeds = [rng.randrange(1 << 64) for _ in range(HOSTS)]
        with Memory(machine) as memory, Neighbour(machine) as neighbour:
            each = [threading.Thread(target=hostile_host, args=(machine, random.Random(seed), count // HOSTS, kinds)) for seed in seeds]
            for thread in each:
                thread.start()
            for thread in each:
                thread.join()
        machine.sound()
        assert kinds.total() == count // HOSTS * HOSTS, kinds
        assert not any("panicked" in line for line in machine.log), machine.log[-10:]
        memory.below(300 * MIB)
        return f"{kinds.total()} inputs of {len(kinds)} kinds: {memory.words()}; {neighbour.words()}"


def hostile_host(machine, rng, count, kinds):
    for _ in range(count):
        kind = rng.choice(INPUTS)
        try:
            with Client(machine, enter=False) as client:
                client.socket.settimeout(0.02)
                kind(client, rng)
                while client.socket.recv(1 << 16):
                    pass
        except OSError:
            pass
        kinds[kind.__name__] += 1


def noise(client, rng):
    client.send(rng.randbytes(rng.randrange(300)))


def greeting(rng):
    return struct.pack(">I", rng.choice([0, 1, 2, 3, 3, 3, 4, 1 << 31, rng.randrange(1 << 32)]))


def options(client, rng):
    client.send(greeting(rng))
    for _ in range(rng.randrange(12)):
        data = rng.randbytes(rng.choice([0, 4, 10, 70, 5000]))
        length = len(data) if rng.random() < 0.8 else rng.randrange(1 << 32)
        magic = b"IHAVEOPT" if rng.random() < 0.95 else rng.randbytes(8)
        client.send(OPTION.pack(magic, rng.choice([*range(12), rng.randrange(1 << 32)]), length), data)


def entered(client, rng, name=b"p/v"):
    client.send(struct.pack(">I", 3))
    if rng.random() < 0.5:
        client.send(OPTION.pack(b"IHAVEOPT", 8, 0))
        if rng.random() < 0.5:
            data = struct.pack(">I", len(name)) + name + struct.pack(">II", 1, 15) + b"base:allocation"
            client.send(OPTION.pack(b"IHAVEOPT", 10, len(data)), data)
    data = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
    client.send(OPTION.pack(b"IHAVEOPT", 7, len(data)), data)


def requests(client, rng):
    """Requests for what nobody else uses: the last quarter of the disk, and what lies beyond it."""
    entered(client, rng)
    for _ in range(rng.randrange(20)):
        offset = rng.choice([48 * MIB + rng.randrange(16 * MIB) // 512 * 512, SIZE, rng.randrange(SIZE, 1 << 64), (1 << 64) - 512])
        length = rng.choice([0, 1, 511, 512, 4096, 65536, 33 * MIB, rng.randrange(1 << 32)])
        command = rng.choice([READ, WRITE, FLUSH, TRIM, CACHE, ZERO, STATUS, 8, 99])
        if command in (WRITE, TRIM, ZERO):
            length = min(length, 16 * MIB) if offset < SIZE else length
        payload = rng.randbytes(min(length, rng.choice([0, 100, 65536]))) if command == WRITE else b""
        magic = MAGIC if rng.random() < 0.97 else rng.randrange(1 << 32)
        client.send(REQUEST.pack(magic, rng.choice([0, 0, 0, 1, 4, rng.randrange(1 << 16)]), command, rng.randrange(1 << 64), offset, length),
                    payload)


def cut(client, rng):
    entered(client, rng)
    client.send(REQUEST.pack(MAGIC, 0, WRITE, 1, 48 * MIB, 32 * MIB)[:rng.randrange(29)], rng.randbytes(rng.randrange(2000)))


def too_long(client, rng):
    client.send(struct.pack(">I", 3), OPTION.pack(b"IHAVEOPT", rng.randrange(12), rng.choice([65537, 32 * MIB, 1 << 31])), bytes(100_000))


INPUTS = [noise, options, requests, requests, cut, too_long]


def control_inputs(rng, count):
    with Small() as machine:
        answers = {}
        with Memory(machine) as memory, Neighbour(machine) as neighbour:
            for _ in range(count):
                said = control_input(machine, rng)
                word = said.split(b" ")[1][:3].decode(errors="replace") if said.startswith(b"HTTP/1.1 ") else "none"
                answers[word] = answers.get(word, 0) + 1
                assert word in ("none", "200") or word.startswith(("4", "50")), said[:200]
                assert word not in ("404", "405") or b"content-type: application/json" in said, said[:200]
        machine.weft("status")
        assert [pool["name"] for pool in machine.json("pool", "list")] == ["p"]
        assert not any("panicked" in line for line in machine.log), machine.log[-10:]
        memory.below(150 * MIB)
        told = ", ".join(f"{word}: {number}" for word, number in sorted(answers.items()))
        return f"{count} inputs ({told}): {memory.words()}; {neighbour.words()}"


def control_input(machine, rng):
    names = ["pools", "disks", "vdisks", "exports", "mounts", "events", "stat", "status", "jobs", "pools/p", "vdisks/p/v", "disks/p/d0",
             "pools/p/check", "vdisks/p/v/explain", "pools/%00", "vdisks/%2e%2e/x", "x" * 9000, "pools/p?dry_run=maybe"]
    # Whatever may change something is only asked whether it would.
    values = [0, -1, 1 << 63, 1.5, None, True, "", "p", "p/v", "x" * 5000, "\x1b[2J", [], {}, [[[]]], "/dev/null", "10XB", "\u0000"]
    fields = ["name", "disks", "size", "pool", "vdisk", "nbd", "force", "create_size", "layout", "columns", "after", "zzz"]
    body = {rng.choice(fields): rng.choice(values) for _ in range(rng.randrange(6))} | {"dry_run": True}
    text = json.dumps(body).encode()
    if rng.random() < 0.3:
        text = rng.choice([b"", b"{", b"[" * 20_000, b"\xff\xfe", b"nul", rng.randbytes(100), b"{" + b'"a":1,' * 10_000 + b'"b":1}'])
    method = rng.choice(["GET", "POST", "PATCH", "PUT", "HEAD", "OPTIONS", "BREW", "G\u00e9T"])
    head = f"{method} /v1/{rng.choice(names)} HTTP/1.1\r\nhost: weft\r\ncontent-type: application/json\r\nconnection: close\r\n"
    head += "".join(f"x-{n}: {'y' * 500}\r\n" for n in range(rng.choice([0, 0, 0, 50, 300])))
    length = rng.choice([len(text), len(text), len(text), len(text) + 5, 0, 1 << 40, -1])
    whole = head.encode() + f"content-length: {length}\r\n\r\n".encode() + text
    if rng.random() < 0.2:
        whole = whole[:rng.randrange(len(whole))]
    if rng.random() < 0.1:
        at = rng.randrange(len(whole) or 1)
        whole = whole[:at] + rng.randbytes(5) + whole[at + 5:]
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(PATIENCE)
        control.connect(machine.path("weft.sock"))
        try:
            control.sendall(whole)
            control.shutdown(socket.SHUT_WR)
            return control.recv(4096)
        except OSError:
            return b""
