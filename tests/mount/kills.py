"""SIGKILL of the daemon under a mounted file system, many times in a row: the journal replays, fsck is clean, and every
file that was fsynced before the kill is intact. The same for the transactions of SQLite, and with a disk that goes."""

import errno
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

from files import KIB, MIB, Content
from host import NEEDS, Host
from machine import PATIENCE
from report import Case

PARITY = ["--resiliency", "parity", "--columns", "4"]
# What changes names, sizes and content of files at random, from Debian's stress-ng.
STRESS = ["stress-ng", "--timeout", "3600", "--hdd", "1", "--hdd-bytes", "16m", "--rename", "1", "--link", "1",
          "--dentry", "1", "--dentries", "256", "--fallocate", "1", "--fallocate-bytes", "16m"]


def cases(scale):
    kinds = ["ext4", "xfs", "btrfs"]
    if scale == "quick":
        kills = [("ext4", 2, None), ("xfs", 2, 1), ("btrfs", 1, None)]
    else:
        kills = [(kind, 20, None) for kind in (kinds if scale == "long" else kinds[:1])]
        kills += [(kind, 6, 3) for kind in (kinds if scale == "long" else kinds[1:2])]
    made = [Case(f"SIGKILL: {kind}, {times} time{'s' if times > 1 else ''}{', a disk taken away midway' if lose else ''}",
                 lambda reporter, rng, args=(kind, times, lose): story(reporter, rng, *args), (*NEEDS[kind], "stress-ng"),
                 alike=f"SIGKILL {bool(lose)}")
            for kind, times, lose in kills]
    times = 1 if scale == "quick" else 10
    return made + [Case(f"SIGKILL: SQLite, journal mode {mode}, {times} time{'s' if times > 1 else ''}",
                        lambda reporter, rng, mode=mode: database(reporter, rng, mode, times), NEEDS["ext4"],
                        "SQLite") for mode in ("wal", "delete")]


def story(reporter, rng, kind, times, lose):
    # Room enough for btrfs, which gives nothing back before it commits.
    with Host(5 if lose else 4, "1GiB") as host:
        host.weft("vdisk", "create", "p/v", "--size", "2GiB", *PARITY)
        host.mount("--format", kind)
        keeper = Keeper(host, rng, gives_back_late=kind == "btrfs")
        for kill in range(1, times + 1):
            if not reporter.check(f"kill {kill}", one_kill, host, rng, keeper, kind, kill == lose):
                return
        reporter.check("there were files to keep", lambda: f"{keeper.promised} fsynced" if keeper.promised > times else 1 / 0)
        host.unmount()
        reporter.check("nothing is lost", host.nothing_lost)


def one_kill(host, rng, keeper, kind, lose):
    stress = Stress(host)
    keeping = threading.Thread(target=keeper.go_on)
    keeping.start()
    # Some promises later, and then at any time: however slow the machine is, there is something to lose.
    promises, moment = rng.randrange(2, 10), rng.uniform(0, 1)
    try:
        keeper.wait_for(keeper.promised + promises, stress)
        time.sleep(moment / 2)
        if lose:
            os.remove(host.disk(rng.randrange(len(host.names))))
        time.sleep(moment / 2)
    finally:
        host.kill()
        keeping.join()
        stress.end()
    host.serve()
    # Replays the journal of the file system.
    host.mount()
    host.unmount()
    host.fsck(kind)
    host.mount()
    keeper.verify()
    subprocess.run(["rm", "-rf", host.inside("stress")], check=True)
    return f"{promises} promises and {moment:.2f} s later, {len(keeper.names)} files"


class Stress:
    """Processes that change the file system at random, in a folder of their own."""

    def __init__(self, host):
        self.folder, self.words = host.inside("stress"), host.path("stress.log")
        os.makedirs(self.folder, exist_ok=True)
        with open(self.words, "wb") as words:
            self.process = subprocess.Popen([*STRESS, "--temp-path", self.folder], stdout=words, stderr=words, start_new_session=True)

    def has_begun(self):
        assert self.process.poll() is None, f"stress-ng ended by itself ({self.process.returncode}): {open(self.words).read()[-500:]}"
        return bool(os.listdir(self.folder))

    def end(self):
        """It, and all it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Keeper:
    """Writes files and fsyncs them, deletes old ones; knows which are promised."""

    def __init__(self, host, rng, gives_back_late=False):
        self.gives_back_late = gives_back_late
        self.host, self.rng, self.content = host, random.Random(rng.random()), Content(rng)
        self.names, self.promised = set(), 0
        self.stop, self.failed = False, None

    def go_on(self):
        """Until it is told to stop, or the file system fails."""
        self.failed = None
        try:
            while not self.stop:
                name = self.content.name(self.rng, f"k{self.promised}", self.rng.choice([100, 5 * KIB, 70 * KIB, 900 * KIB]))
                self.write(name)
                self.names.add(name)
                self.promised += 1
                if len(self.names) > 60:
                    old = self.rng.choice(sorted(self.names))
                    self.names.remove(old)
                    os.remove(self.host.inside(old))
        except OSError as error:
            self.failed = error

    def write(self, name):
        """Makes a file durable. A file system that gives nothing back before it commits may say that there is no room
        to make one where there is: it commits then, and is asked again. What a write or an fsync says, which may come
        from below it, names no file, and is no excuse."""
        try:
            self.content.write(self.host.mnt, name, durable=True)
        except OSError as error:
            refused = error.errno == errno.ENOSPC and error.filename is not None
            if not (refused and self.gives_back_late) or self.host.json("pool", "show", "p")["free"] < 512 * MIB:
                raise
            subprocess.run(["sync", "-f", self.host.mnt], check=True)
            self.content.write(self.host.mnt, name, durable=True)

    def wait_for(self, promised, stress):
        """Until it has promised that many, and the others have begun."""
        begun = time.monotonic()
        while not stress.has_begun() or self.promised < promised:
            assert not self.failed, self.failed
            assert time.monotonic() - begun < PATIENCE, f"only {self.promised} files of {promised}"
            time.sleep(0.01)

    def verify(self):
        for name in self.names:
            self.content.verify(self.host.mnt, name)
        # What was not promised may be there or not, and is of no use.
        for name in os.listdir(self.host.mnt):
            if name.startswith("k") and name not in self.names:
                os.remove(self.host.inside(name))


def database(reporter, rng, mode, times):
    with Host(4, "512MiB") as host:
        host.weft("vdisk", "create", "p/v", "--size", "384MiB", *PARITY)
        host.mount("--format", "ext4")
        log = host.path("committed")
        open(log, "w").close()
        for kill in range(1, times + 1):
            if not reporter.check(f"kill {kill}", one_database_kill, host, rng, mode, log):
                return
        host.unmount()
        host.fsck("ext4")


def one_database_kill(host, rng, mode, log):
    """A process commits transactions and says so outside; all it said must be there, whole."""
    path, before = host.inside("db"), last(log)
    writer = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "committer.py"), path, mode, log], stderr=subprocess.DEVNULL)
    moment = rng.uniform(0.2, 1.0)
    try:
        while last(log) == before:
            time.sleep(0.01)
            assert writer.poll() is None, "the writer ended by itself"
        time.sleep(moment)
    finally:
        host.kill()
        writer.kill()
        writer.wait()
    host.serve()
    host.mount()
    promised = last(log)
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    count, most, whole = database.execute("SELECT count(*), max(n), sum(length(data) = n % 3000 + 1 AND twin = n) FROM t").fetchone()
    database.close()
    assert count == most and whole == count, (count, most, whole)
    assert most >= promised, f"{promised} were committed, {most} are there"
    return f"{promised} committed, {most} there"


def last(log):
    words = open(log).read().split("\n")[:-1]
    return int(words[-1]) if words else 0
