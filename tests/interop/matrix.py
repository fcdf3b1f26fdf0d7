"""Every client against every layout: healthy, with disk files removed while all of them work, and after a crash."""

import os
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import clients
from machine import MIB, Machine
from report import Case, Skip

# Name, disks, disks that may go, layout.
LAYOUTS = [
    ("simple", 4, 0, ["--resiliency", "simple", "--columns", "4"]),
    ("mirror 2", 4, 1, ["--resiliency", "mirror", "--copies", "2"]),
    ("mirror 3", 3, 2, ["--resiliency", "mirror", "--copies", "3"]),
    ("parity 1", 4, 1, ["--resiliency", "parity", "--columns", "4"]),
    ("parity 1, 24 KiB", 4, 1, ["--resiliency", "parity", "--columns", "4", "--interleave", "24KiB"]),
    ("parity 2", 6, 2, ["--resiliency", "parity", "--failures", "2", "--columns", "6"]),
]


def cases():
    return [Case(name, lambda reporter, rng, rest=rest: story(reporter, rng, *rest),
                 alike=f"matrix {name.startswith('parity')}") for name, *rest in LAYOUTS]


def story(reporter, rng, disks, may_go, layout):
    with Machine(disks) as machine:
        there = []
        for make in clients.ALL:
            missing = [tool for tool in make.tools if shutil.which(tool) is None]
            if missing:
                reporter.check(make.name, absent, missing)
                continue
            machine.vdisk(make.name, clients.SIZE, *layout)
            there.append(make(machine, random.Random(rng.random())))
        healthy = [client for client, passed in zip(there, together(reporter, "healthy", there, "round")) if passed]
        reporter.check("healthy: the pool is sound", machine.sound)
        if not may_go:
            reporter.check("killed and restarted", restart, machine)
            together(reporter, "after SIGKILL", healthy, "verify")
            return
        lost = rng.sample(range(disks), may_go)
        under_loss = Loss(machine, healthy, lost)
        passed = under_loss.story(reporter)
        reporter.check(f"without {' and '.join(machine.names[n] for n in lost)}: told", told, machine, lost)
        reporter.check("degraded: killed and restarted", restart, machine)
        together(reporter, "degraded, after SIGKILL", passed, "verify")
        together(reporter, "degraded, from the start", passed, "round")


def together(reporter, when, there, act):
    """All clients at the same time, each on its own virtual disk. Which passed."""
    with ThreadPoolExecutor(len(there) or 1) as threads:
        checks = [threads.submit(reporter.check, f"{when}: {client.name}", getattr(client, act)) for client in there]
        return [check.result() for check in checks]


class Loss:
    """Clients at work while files are removed: every one has a round before, goes on during the loss, and has one after."""

    def __init__(self, machine, there, lost):
        self.machine, self.there, self.lost = machine, there, lost
        self.gone, self.rounds = threading.Event(), threading.Semaphore(0)

    def story(self, reporter):
        remover = threading.Thread(target=self.remove)
        remover.start()
        with ThreadPoolExecutor(len(self.there) or 1) as threads:
            checks = [threads.submit(reporter.check, f"disks lost at work: {client.name}", self.work, client)
                      for client in self.there]
            passed = [client for client, check in zip(self.there, checks) if check.result()]
        self.gone.set()
        remover.join()
        return passed

    def work(self, client):
        rounds = 0
        while True:
            last = self.gone.is_set()
            self.rounds.release()
            client.round()
            rounds += 1
            if last:
                return f"{rounds} rounds"

    def remove(self):
        # Somebody is in the middle of a round at any moment until `gone` is set: each begins the next one at once.
        for _ in self.there:
            self.rounds.acquire()
        start = written(self.machine)
        for n in self.lost:
            self.machine.until("written", "pool", "show", "p", holds=lambda _: self.gone.is_set() or written(self.machine) > start + 4 * MIB)
            os.remove(self.machine.disk(n))
            self.machine.until("missing", "disk", "show", f"p/{self.machine.names[n]}",
                               holds=lambda disk: disk["state"] == "missing")
            start = written(self.machine)
        self.gone.set()


def written(machine):
    return sum(vdisk["counters"]["written_bytes"] for vdisk in machine.json("pool", "show", "p")["vdisks"])


def told(machine, lost):
    events = machine.events()
    for n in lost:
        assert f"disk {machine.names[n]} lost" in events, events
    health = machine.json("status")["health"]
    assert health == "degraded", health


def restart(machine):
    machine.kill()
    machine.serve()


def absent(missing):
    raise Skip(f"NOT INSTALLED: {', '.join(missing)}")
