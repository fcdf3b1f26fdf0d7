"""SIGKILL at random moments under load, many times in a row: what was flushed is there, and the pool is sound."""

import json
import os
import random
import subprocess
import threading
import time

from machine import MIB, Machine, holey_file, nbdsh, run, same_files
from report import Case

KILLS = 10
COPY_SIZE = 16 * MIB
STORIES = [
    ("parity 1", 4, None, ["--resiliency", "parity", "--columns", "4", "--interleave", "24KiB"]),
    ("parity 2, a disk lost midway", 5, KILLS // 2, ["--resiliency", "parity", "--failures", "2", "--columns", "5"]),
    ("mirror 2, a disk lost midway", 4, KILLS // 2, ["--resiliency", "mirror", "--copies", "2", "--columns", "2"]),
    ("parity 1 with caches that change, a disk of theirs lost midway", 6, KILLS // 2,
     ["--resiliency", "parity", "--columns", "4", "--interleave", "24KiB"]),
]
# The disks that carry caches, where a story has some: they take nothing by themselves.
CACHES = {"parity 1 with caches that change, a disk of theirs lost midway": (4, 5)}


def cases():
    stories = [(name, *rest, CACHES.get(name, ())) for name, *rest in STORIES]
    return [Case(f"SIGKILL: {name}", lambda reporter, rng, rest=rest: story(reporter, rng, *rest),
                 ("nbdsh", "nbdcopy", "fio"), f"SIGKILL {name.startswith('parity 1')}") for name, *rest in stories]


def story(reporter, rng, disks, lose_at, layout, caches):
    with Machine(disks) as machine:
        for disk in caches:
            machine.weft("disk", "set", "p", f"d{disk}", "usage=manual", "media=ssd")
        for name, size in (("oracle", 16 * MIB), ("copy0", COPY_SIZE), ("copy1", COPY_SIZE), ("fio", 32 * MIB)):
            machine.vdisk(name, size, *layout)
        state = machine.path("oracle.json")
        with open(state, "w") as file:
            json.dump({"gen": 0, "flushes": 0, "may_hold": [[0]] * 4096}, file)
        copies = Copies(machine, rng)
        for kill in range(1, KILLS + 1):
            lose = rng.choice(caches or range(disks)) if kill == lose_at else None
            if not reporter.check(f"kill {kill}", one_kill, machine, rng, copies, state, lose, caches):
                return
        with open(state) as file:
            flushes = json.load(file)["flushes"]
        reporter.check("there were flushes to keep", lambda: check(flushes > KILLS and copies.done > 0,
                                                                   f"{flushes} flushes, {copies.done} copies"))


def check(holds, words):
    assert holds, words
    return words


def change_caches(machine, rng):
    """Gives virtual disks caches, other ones and none, until the daemon is killed."""
    changed = 0
    while True:
        name, size = rng.choice(("oracle", "fio")), rng.choice(("0", "1MiB", "8MiB", "64MiB"))
        try:
            machine.weft("vdisk", "set", f"p/{name}", f"write-cache={size}")
        except AssertionError as error:
            # One disk is not enough for a cache that survives a failure.
            if "needs 2 disks" not in str(error):
                return changed
        changed += 1
        time.sleep(rng.uniform(0, 0.3))


def one_kill(machine, rng, copies, state, lose, caches):
    env = {**os.environ, "PATH": "/usr/bin:" + os.environ["PATH"]}
    fio = subprocess.Popen(["fio", "--ioengine=nbd", f"--uri={machine.uri('fio')}", "--name=load", "--rw=randrw",
                            "--bsrange=4k-256k", "--size=32m", "--iodepth=8", "--time_based", "--runtime=600",
                            "--fsync=50", f"--randseed={rng.randrange(1, 1 << 30)}", "--thread"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    said = []
    oracle = threading.Thread(target=lambda: said.append(outcome(nbdsh, "oracle.py", uri=machine.uri("oracle"), state=state,
                                                                seed=rng.randrange(1 << 30))))
    copier = threading.Thread(target=copies.go_on)
    cacher = threading.Thread(target=change_caches, args=(machine, random.Random(rng.random())))
    works = [oracle, copier] + ([cacher] if caches else [])
    for work in works:
        work.start()
    try:
        moment = rng.uniform(0.05, 2.0)
        time.sleep(moment / 2)
        if lose is not None:
            os.remove(machine.disk(lose))
            machine.until("missing", "disk", "show", f"p/d{lose}", holds=lambda disk: disk["state"] == "missing")
        time.sleep(moment / 2)
    finally:
        machine.kill()
        for work in works:
            work.join()
        fio.kill()
        fio.wait()
    assert "flushes until" in str(said[0]), said[0]
    machine.serve()
    nbdsh("oracle_verify.py", uri=machine.uri("oracle"), state=state)
    copies.verify()
    machine.nothing_lost()
    return f"after {moment:.2f} s, {said[0].strip()}"


def outcome(body, *args, **named):
    try:
        return body(*args, **named)
    except Exception as error:  # handed to the thread that judges it
        return error


class Copies:
    """nbdcopy over one virtual disk and another in turn: whatever ended with its flush stays until the next begins."""

    def __init__(self, machine, rng):
        self.machine, self.rng, self.done, self.turn, self.kept = machine, random.Random(rng.random()), 0, 0, {}

    def go_on(self):
        while True:
            self.turn ^= 1
            name = f"copy{self.turn}"
            self.kept.pop(name, None)
            holey_file(self.file(name), COPY_SIZE, self.rng)
            try:
                run("nbdcopy", "--flush", self.file(name), self.machine.uri(name))
            except AssertionError:
                return
            self.kept[name] = self.file(name)
            self.done += 1

    def verify(self):
        for name, file in self.kept.items():
            out = self.file("out")
            if os.path.exists(out):
                os.remove(out)
            run("nbdcopy", self.machine.uri(name), out)
            same_files(file, out)

    def file(self, name):
        return self.machine.path(f"file-{name}")
