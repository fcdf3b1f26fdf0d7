"""SIGKILL of the daemon under a mounted file system, many times in a row: the journal replays, fsck is clean, and every
file that was fsynced before the kill is intact. The same for the transactions of SQLite, and with a disk that goes."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

from files import KIB, Content
from host import NEEDS, Host
from report import Case

PARITY = ["--resiliency", "parity", "--columns", "4"]
# What changes names, sizes and content of files at random, from Debian's stress-ng.
STRESS = ["stress-ng", "--quiet", "--timeout", "600", "--hdd", "1", "--hdd-bytes", "16m", "--rename", "1", "--link", "1",
          "--dentry", "1", "--dentries", "256", "--fallocate", "1", "--fallocate-bytes", "16m", "--punch", "1"]


def cases(long):
    kinds = ["ext4", "xfs", "btrfs"]
    kills = [(kind, 20, None) for kind in (kinds if long else kinds[:1])]
    kills += [(kind, 6, 3) for kind in (kinds if long else kinds[1:2])]
    made = [Case(f"SIGKILL: {kind}, {times} times{', a disk taken away midway' if lose else ''}",
                 lambda reporter, rng, args=(kind, times, lose): story(reporter, rng, *args), (*NEEDS[kind], "stress-ng"))
            for kind, times, lose in kills]
    modes = ["wal", "delete"] if long else ["wal"]
    return made + [Case(f"SIGKILL: SQLite, journal mode {mode}, 10 times",
                        lambda reporter, rng, mode=mode: database(reporter, rng, mode), NEEDS["ext4"]) for mode in modes]


def story(reporter, rng, kind, times, lose):
    with Host(5 if lose else 4, "512MiB") as host:
        host.weft("vdisk", "create", "p/v", "--size", "512MiB", *PARITY)
        host.mount("--format", kind)
        keeper = Keeper(host, rng)
        for kill in range(1, times + 1):
            if not reporter.check(f"kill {kill}", one_kill, host, rng, keeper, kind, kill == lose):
                return
        reporter.check("there were files to keep", lambda: f"{keeper.promised} fsynced" if keeper.promised > times else 1 / 0)
        host.unmount()
        reporter.check("nothing is lost", host.nothing_lost)


def one_kill(host, rng, keeper, kind, lose):
    os.makedirs(host.inside("stress"), exist_ok=True)
    stress = subprocess.Popen([*STRESS, "--temp-path", host.inside("stress")], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True)
    keeping = threading.Thread(target=keeper.go_on)
    keeping.start()
    moment = rng.uniform(0.2, 1.2)
    try:
        time.sleep(moment / 2)
        if lose:
            os.remove(host.disk(rng.randrange(len(host.names))))
        time.sleep(moment / 2)
    finally:
        host.kill()
        keeping.join()
        end(stress)
    host.serve()
    # Replays the journal of the file system.
    host.mount()
    host.unmount()
    host.fsck(kind)
    host.mount()
    keeper.verify()
    subprocess.run(["rm", "-rf", host.inside("stress")], check=True)
    return f"after {moment:.2f} s, {len(keeper.names)} files"


def end(group):
    """Ends a process and all it started."""
    os.killpg(group.pid, signal.SIGKILL)
    group.wait()


class Keeper:
    """Writes files and fsyncs them, deletes old ones; knows which are promised."""

    def __init__(self, host, rng):
        self.host, self.rng, self.content = host, random.Random(rng.random()), Content(rng)
        self.names, self.promised = set(), 0

    def go_on(self):
        """Until the file system fails."""
        try:
            while True:
                name = self.content.name(self.rng, f"k{self.promised}", self.rng.choice([100, 5 * KIB, 70 * KIB, 900 * KIB]))
                self.content.write(self.host.mnt, name, durable=True)
                self.names.add(name)
                self.promised += 1
                if len(self.names) > 60:
                    old = self.rng.choice(sorted(self.names))
                    self.names.remove(old)
                    os.remove(self.host.inside(old))
        except OSError:
            return

    def verify(self):
        for name in self.names:
            self.content.verify(self.host.mnt, name)
        # What was not promised may be there or not, and is of no use.
        for name in os.listdir(self.host.mnt):
            if name.startswith("k") and name not in self.names:
                os.remove(self.host.inside(name))


def database(reporter, rng, mode):
    with Host(4, "512MiB") as host:
        host.weft("vdisk", "create", "p/v", "--size", "384MiB", *PARITY)
        host.mount("--format", "ext4")
        log = host.path("committed")
        open(log, "w").close()
        for kill in range(1, 11):
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
