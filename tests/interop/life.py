"""The life of a pool of real files: disks that go, come back and are replaced, jobs that are killed in their middle."""

import json
import os
import shutil
import signal
import subprocess
import time

from machine import MIB, PATIENCE, Machine, holey_file, refused, run, same_files
from report import Case

SIZE = 320 * MIB
LAYOUT = ["--resiliency", "parity", "--columns", "4", "--interleave", "64KiB"]
# How often a job that was over before it was seen is begun anew.
TRIES = 10


def cases():
    kinds = [Case(f"life: SIGKILL in the middle of a {name}", lambda reporter, rng, kind=kind: reporter.check("", killed, rng, kind),
                  ("nbdcopy",)) for name, kind in KINDS.items()]
    return [Case("life: every disk is replaced", lambda reporter, rng: reporter.check("", replaced, rng), ("nbdcopy",)),
            *kinds,
            Case("life: a job keeps its place over a clean stop", lambda reporter, rng: reporter.check("", stopped, rng), ("nbdcopy",)),
            Case("life: a disk returns", lambda reporter, rng: reporter.check("", returned, rng), ("nbdcopy",)),
            Case("life: people are told", lambda reporter, rng: reporter.check("", told, rng), ("nbdcopy",)),
            Case("life: journal disks fail to the last",
                 lambda reporter, rng: reporter.check("", journals, rng), ("nbdcopy",)),
            Case("life: a clock before 1970", lambda reporter, rng: reporter.check("", before_1970), ("cc", "nbdcopy")),
            Case("life: away and back", lambda reporter, rng: reporter.check("", away_and_back, rng), ("nbdcopy",))]


class Life(Machine):
    """A machine with five disks and a virtual disk `p/v` that is full of a file."""

    def __init__(self, rng):
        super().__init__(disks=5, size="512MiB")
        self.vdisk("v", SIZE, *LAYOUT)
        self.weft("pool", "set", "p", "repair-after=1s")
        self.file = self.path("file")
        holey_file(self.file, SIZE, rng)
        self.copy_in()

    def copy_in(self):
        run("nbdcopy", "--flush", self.file, self.uri("v"))

    def same(self):
        """Everything that was written is read again."""
        out = self.path("out")
        if os.path.exists(out):
            os.remove(out)
        run("nbdcopy", self.uri("v"), out)
        same_files(self.file, out)

    def add(self, name):
        path = os.path.join(self.disks_dir, name)
        self.weft("disk", "add", "p", path, "--create-size", "512MiB")
        return path

    def disks(self):
        return {disk["name"]: disk for disk in self.json("pool", "show", "p")["disks"]}

    def until_disk(self, name, state):
        return self.until(f"{name} {state}", "disk", "show", f"p/{name}", holds=lambda disk: disk["state"] == state)

    def until_whole(self):
        """All data has its full redundancy, and no repair is left to do."""
        self.until("whole", "pool", "show", "p", holds=lambda pool: pool["vdisks"][0]["health"] == "healthy"
                   and all(job["state"] not in ("waiting", "running") for job in pool["jobs"]))

    def until_done(self, job):
        job = self.until("over", "job", "show", job, holds=lambda job: job["state"] in ("done", "failed", "cancelled"))
        assert job["state"] == "done", job


def replaced(rng):
    """One disk after the other is lost, rebuilt on the others, forgotten, and a new one added."""
    with Life(rng) as machine:
        originals, seen = list(machine.disks()), []
        for n, name in enumerate(originals):
            os.remove(machine.disk(n))
            machine.until_disk(name, "missing")
            begun = time.monotonic()
            while True:
                status = machine.json("status", "p")
                seen += [job["done"] for job in status["jobs"] if job["kind"] == "repair" and job["done"] > 0]
                done = [job for job in machine.json("job", "list", "p") if job["kind"] == "repair" and job["state"] == "done"]
                if len(done) > n:
                    break
                assert time.monotonic() - begun < PATIENCE, status
            machine.until_whole()
            concern = [one for one in machine.json("status", "p")["attention"] if one["subject"] == f"disk p/{name}"]
            assert concern[0]["hint"] == f"weft disk remove p {name}", concern
            machine.weft("disk", "remove", "p", name, "--wait")
            machine.add(f"n{n}")
        assert not set(originals) & set(machine.disks()), machine.disks().keys()
        assert seen, "no repair was seen at work in `weft status`"
        machine.same()
        machine.sound()
        machine.stop()
        machine.serve()
        machine.same()
        return f"{len(originals)} disks, repairs seen {len(seen)} times"


def repair(machine, n):
    os.remove(os.path.join(machine.disks_dir, list(machine.disks())[0]))


def scrub(machine, n):
    machine.weft("scrub", "p")


def rebalance(machine, n):
    machine.add(f"n{n}")
    machine.weft("rebalance", "p")


def remove(machine, n):
    machine.add(f"n{n}")
    machine.weft("disk", "remove", "p", list(machine.disks())[0])


def replace(machine, n):
    new = os.path.join(machine.disks_dir, f"n{n}")
    machine.weft("disk", "replace", "p", list(machine.disks())[0], new, "--create-size", "512MiB")


def change(machine, n):
    machine.weft("vdisk", "change", "p/v", "--columns", "34"[n % 2], "--interleave", "128KiB")


KINDS = {"change of layout": ("reshape", change), "repair": ("repair", repair), "scrub": ("scrub", scrub),
         "rebalance": ("rebalance", rebalance), "removal": ("evacuate", remove), "replacement": ("evacuate", replace)}


def killed(rng, kind):
    """The job that was under way goes on by itself after the crash, under its number, and ends well."""
    kind, begin = kind
    with Life(rng) as machine:
        for n in range(TRIES):
            before = {job["id"] for job in machine.json("job", "list", "p")}
            begin(machine, n)
            job = midway(machine, kind, before)
            if job:
                break
            machine.until_whole()
            tidy(machine)
        else:
            raise AssertionError(f"the {kind} was over each time before it was seen")
        machine.kill()
        machine.serve()
        after = machine.json("job", "show", job["job"])
        assert after["state"] in ("waiting", "running", "done") and after["began"] == job["began"], (job, after)
        # A disk that has left is called by its number.
        assert after["name"] == job["name"] or after["state"] == "done", (job, after)
        machine.until_done(job["job"])
        tidy(machine)
        machine.same()
        machine.sound()
        share = 100 * job["done"] // max(job["total"], 1)
        return f"killed at {share} %, found again at {100 * after['done'] // max(after['total'], 1)} %"


def stopped(rng):
    """A scrub goes on with the segment it had come to."""
    with Life(rng) as machine:
        for _ in range(TRIES):
            before = {job["id"] for job in machine.json("job", "list", "p")}
            scrub(machine, 0)
            job = midway(machine, "scrub", before)
            if job:
                break
        machine.stop()
        machine.serve()
        after = machine.json("job", "show", job["job"])
        assert after["done"] >= job["done"], (job, after)
        machine.until_done(job["job"])
        machine.same()
        return f"stopped at {100 * job['done'] // job['total']} %, found again at {100 * after['done'] // after['total']} %"


def midway(machine, kind, before):
    """The new job of this kind, seen at work; `None` when it was over before."""
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        new = [job for job in machine.json("job", "list", "p") if job["kind"] == kind and job["id"] not in before]
        if new and new[0]["state"] == "running" and 0 < new[0]["done"] < new[0]["total"]:
            return new[0]
        if new and new[0]["state"] in ("done", "failed", "cancelled"):
            return None
    raise AssertionError(f"no {kind} began")


def tidy(machine):
    """Disks that are missing for good are forgotten, and the pool has five again."""
    machine.until_whole()
    for name in [name for name, disk in machine.disks().items() if disk["state"] == "missing"]:
        machine.weft("disk", "remove", "p", name, "--wait")
    while len(machine.disks()) < 5:
        machine.add(f"t{time.monotonic_ns()}")


def returned(rng):
    """What a disk missed is brought to it: with it, another may go."""
    with Life(rng) as machine:
        machine.weft("pool", "set", "p", "repair-after=5m")
        aside = machine.path("aside")
        os.rename(machine.disk(1), aside)
        machine.until_disk("d1", "missing")
        holey_file(machine.file, SIZE, rng)
        machine.copy_in()
        os.rename(aside, machine.disk(1))
        machine.until_disk("d1", "healthy")
        machine.until_whole()
        machine.weft("pool", "set", "p", "repair-after=never")
        os.remove(machine.disk(3))
        machine.until_disk("d3", "missing")
        machine.same()
        machine.nothing_lost()
        assert "disk d1 is back" in machine.events(), machine.events()
        return "it missed a whole rewrite"


def told(rng):
    """A hook hears of every event, also after one that hangs; who waits for a job may stop waiting; stopping is quick."""
    with Life(rng) as machine:
        hook, heard = machine.path("hook"), machine.path("heard")
        with open(hook, "w") as file:
            file.write(f"#!/bin/sh\ncat >> {heard}\n")
        os.chmod(hook, 0o755)
        with open(machine.path("weft.toml"), "w") as file:
            file.write(f'[events]\nhook = "{hook}"\n')
        machine.stop()
        machine.serve(more=["--config", machine.path("weft.toml")])
        last = json.loads(machine.weft("events", "--json").splitlines()[0])["no"]
        assert last == 1, "events are numbered on"
        machine.weft("pool", "set", "p", "scrub-every=never")
        os.remove(machine.disk(0))
        machine.until_disk("d0", "missing")
        lost = "disk d0 lost: its file or device is gone"
        begun = time.monotonic()
        while lost not in (told := read(heard)):
            assert time.monotonic() - begun < PATIENCE, told
        events = [json.loads(line) for line in told.splitlines()]
        assert [event["no"] for event in events] == sorted({event["no"] for event in events}), events
        assert any(event["pool"] == "p" and event["warning"] and event["text"] == lost for event in events), events
        assert any("scrub-every 4w -> never" in event["text"] for event in events), events

        machine.until_whole()
        for _ in range(TRIES):
            job = machine.json("scrub", "p")["job"]
            if machine.ran("job", "pause", job).returncode == 0:
                break
        wait = subprocess.Popen([os.environ["WEFT"], "scrub", "p", "--wait"], env=machine.env(), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait.stderr.readline()
        wait.send_signal(signal.SIGINT)
        _, said = wait.communicate(timeout=PATIENCE)
        assert wait.returncode == 1 and f"job {job} goes on" in said, (wait.returncode, said)
        assert machine.json("job", "show", job)["state"] == "paused"
        machine.weft("job", "resume", job)
        machine.until_done(job)
        begun = time.monotonic()
        machine.stop()
        return f"stopped within {time.monotonic() - begun:.1f} s"


def read(path):
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


def away_and_back(rng):
    """A pool is exported and imported, a disk rests, and a disk that left comes back as a stranger."""
    with Life(rng) as machine:
        machine.weft("export", "remove", "p/v")
        machine.weft("pool", "export", "p")
        machine.stop()
        machine.serve()
        assert machine.ran("pool", "show", "p").returncode == 3, "it stays closed over a restart"
        assert [pool["name"] for pool in machine.json("pool", "import")] == ["p"]
        machine.weft("pool", "import", "p", "--read-only")
        assert machine.json("pool", "show", "p")["read_only"]
        machine.weft("pool", "export", "p")
        machine.weft("pool", "import", "p")
        machine.weft("export", "add", "p/v", "--nbd", f"unix:{machine.path('nbd.sock')}")
        machine.same()

        machine.weft("disk", "set", "p", "d2", "maintenance=on")
        assert machine.disks()["d2"]["state"] == "maintenance"
        holey_file(machine.file, SIZE, rng)
        machine.copy_in()
        machine.kill()
        machine.serve()
        assert machine.disks()["d2"]["state"] == "maintenance", "it lasts over a restart"
        machine.weft("disk", "set", "p", "d2", "maintenance=off")
        machine.until_disk("d2", "healthy")
        machine.until_whole()

        aside = machine.path("aside")
        os.rename(machine.disk(4), aside)
        machine.until_disk("d4", "missing")
        machine.until_whole()
        machine.weft("disk", "remove", "p", "d4", "--wait")
        os.rename(aside, machine.disk(4))
        machine.until("noticed", "disk", "list", holds=lambda disks: any(disk["state"] == "foreign" for disk in disks))
        machine.stop()
        machine.serve()
        assert len(machine.disks()) == 4
        machine.same()
        machine.sound()
        known = history(machine)

        # Another machine knows nothing of the pool but what its disks carry.
        machine.stop()
        shutil.rmtree(machine.path("state"))
        machine.serve()
        moved = history(machine)
        kept = [event for event in known if event in moved]
        assert moved[:len(kept)] == kept, "\n".join(map(str, known)) + "\nand then\n" + "\n".join(map(str, moved))
        # A pool that is closed, or may not be written, can take note of nothing.
        lost = [text for event in known if event not in kept for text in event[1:]]
        assert len(lost) < 6 and all("pool opened" in text or text in ("pool p opened", "pool p closed") for text in lost), lost
        # And it learns that once.
        machine.kill()
        machine.serve()
        again = history(machine)
        assert again[:len(moved)] == moved, "\n".join(map(str, again))


def journals(rng):
    """Journal disks go one after the other beside a client, and the daemon is killed: the log moves back whole."""
    with Life(rng) as machine:
        names = ["j1", "j2"]
        paths = [os.path.join(machine.disks_dir, name) for name in names]
        for path in paths:
            machine.weft("disk", "add", "p", path, "--create-size", "512MiB", "--usage", "journal")
        logs = lambda disks: [name for name, disk in disks.items() if disk["logs"]]
        wait = lambda holds: machine.until("where the log is to be", "pool", "show", "p", holds=lambda pool: holds(
            {disk["name"]: disk for disk in pool["disks"]}))
        wait(lambda disks: set(names) <= set(logs(disks)))
        machine.copy_in()
        disks = machine.disks()
        assert all(disks[name]["counters"]["log_written_bytes"] > 0 for name in names), disks
        assert "written since the pool was opened" in machine.weft("disk", "show", "p/j1")
        for name, path in zip(names, paths):
            holey_file(machine.file, SIZE, rng)
            copying = subprocess.Popen(["nbdcopy", "--flush", machine.file, machine.uri("v")])
            os.rename(path, machine.path(f"gone-{name}"))
            assert copying.wait(timeout=PATIENCE) == 0, "no client notices"
            machine.kill()
            machine.serve()
            machine.same()
            wait(lambda disks: name not in logs(disks) and len(logs(disks)) == 3)
        told = [one for one in machine.json("status")["attention"] if "no journal disk is left" in one["message"]]
        assert len(told) == 1 and "the log moved to" in told[0]["message"], machine.json("status")["attention"]
        for name, path in zip(names, paths):
            os.rename(machine.path(f"gone-{name}"), path)
        wait(lambda disks: set(names) <= set(logs(disks)))
        machine.same()
        machine.until_whole()
        machine.sound()


def history(machine):
    """What is known of the pool, of all times."""
    told = [json.loads(line) for line in machine.weft("events", "p", "--json").splitlines()]
    return [(event["at_ms"], event["text"]) for event in told]


# The clock of a machine whose battery is empty, or worse.
CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t which, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, which, now);
    if (!failed && which == CLOCK_REALTIME) now->tv_sec = -1000;
    return failed;
}
"""


def before_1970():
    """With a clock before 1970 virtual disks are served and commands say what is wrong; later all is well."""
    with Machine(disks=3, size="128MiB") as machine:
        with open(machine.path("clock.c"), "w") as source:
            source.write(CLOCK)
        run("cc", "-shared", "-fPIC", "-o", machine.path("clock.so"), machine.path("clock.c"))
        machine.vdisk("v", 64 * MIB)
        content = os.urandom(16 * MIB)
        with open(machine.path("file"), "wb") as file:
            file.write(content)
        for wrong in (True, True, False):
            machine.stop()
            os.environ.update({"LD_PRELOAD": machine.path("clock.so")} if wrong else {})
            try:
                machine.serve()
            finally:
                os.environ.pop("LD_PRELOAD", None)
            if wrong:
                run("nbdcopy", "--flush", machine.path("file"), machine.uri("v"))
                for line in (["status"], ["events"], ["scrub", "p"]):
                    assert refused(machine, 3, "clock of this machine says a time before 1970", *line) == "date"
        assert "1970-01-01T00:00:00" in machine.weft("events", "--count", "1000")
        assert not any("panicked" in line for line in machine.log), machine.log[-10:]
        machine.weft("scrub", "p", "--wait")
        run("nbdcopy", machine.uri("v"), machine.path("out"))
        with open(machine.path("out"), "rb") as out:
            assert out.read(len(content)) == content
        machine.sound()
