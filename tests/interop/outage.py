"""Crowds of disks that go and come back: a cable, an enclosure, a bus reset, a snapshot put back. Files are moved out of the daemon's directory, and back.

What is judged after each: every flushed byte is there, the pool is whole again without a word from anybody, `weft status` has told the truth at each
moment, and every command that it offered works."""

import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import threading
import time

import machine as machines
from machine import MIB, Machine, holey_file, nbdsh, run, same_files
from report import Case, Skip

DISK = "192MiB"
SIZE = 16 * MIB
AWAY = 3.0
LAYOUTS = {
    "simple on 3": (3, ["--resiliency", "simple", "--columns", "3"]),
    "mirror 2 on 2": (2, ["--resiliency", "mirror", "--copies", "2", "--columns", "1"]),
    "mirror 2 on 4": (4, ["--resiliency", "mirror", "--copies", "2", "--columns", "2"]),
    "mirror 2 on 4, one column": (4, ["--resiliency", "mirror", "--copies", "2", "--columns", "1"]),
    "mirror 3 on 3": (3, ["--resiliency", "mirror", "--copies", "3", "--columns", "1"]),
    "parity 1 on 3": (3, ["--resiliency", "parity", "--columns", "3"]),
    "parity 1 on 4": (4, ["--resiliency", "parity", "--columns", "4", "--interleave", "16KiB"]),
    "parity 1 on 5": (5, ["--resiliency", "parity", "--columns", "4"]),
    "parity 2 on 5": (5, ["--resiliency", "parity", "--failures", "2", "--columns", "5"]),
    "parity 1 on 4, cached": (4, ["--resiliency", "parity", "--columns", "4", "--interleave", "16KiB",
                                  "--write-cache", "8MiB", "--write-cache-disks", "d0,d1"]),
    "parity 1 on 4, in units": (4, ["--resiliency", "parity", "--class", "log", "--unit", "16KiB"]),
    # The last two are solid-state disks.
    "parity 1 on 6, tiered": (6, ["--tier", "ssd,size=8MiB",
                                  "--tier", "hdd,resiliency=parity,columns=4,interleave=16KiB",
                                  "--read-cache", "8MiB", "--read-cache-disks", "d4,d5"]),
}
FAILURES = {"simple": 0, "mirror 2": 1, "mirror 3": 2, "parity 1": 1, "parity 2": 2}
# What each case of the sample goes through; the long run goes through all.
SAMPLE = {"parity 1 on 4": ["3 of 4, idle", "4 of 4, busy", "kill, 3 gone while it runs"], "parity 2 on 5": ["3 of 5, busy"],
          "parity 1 on 4, cached": ["3 of 4, busy"], "parity 1 on 4, in units": ["3 of 4, busy"],
          "parity 1 on 6, tiered": ["3 of 6, busy", "stop, 4 gone while it runs"],
          "mirror 2 on 2": ["1 of 2, busy", "2 of 2, idle"], "mirror 3 on 3": ["2 of 3, busy", "stop, 2 gone before the start"]}
SAMPLED = ["a pool grew, and the disks that it was made of go", "three of four are rolled back",
           "three of five come back as old copies, then as they are",
           "a disk leaves, and comes back older after a restart",
           "a flushed overwrite is not read as it was, killed"]


def cases(long):
    found = [Case(f"outage: {name}", lambda reporter, rng, name=name: layout(reporter, rng, name, None if long else SAMPLE[name]),
                  ("nbdsh", "nbdcopy")) for name in LAYOUTS if long or name in SAMPLE]
    for name, body in STORIES.items():
        if long or name in SAMPLED:
            needs = ("nbdsh", "nbdcopy") + (("nbdkit", "nbdfuse", "fusermount3") if body == bus else ())
            found.append(Case(f"outage: {name}", lambda reporter, rng, body=body: reporter.check("", body, rng), needs))
    return found


class Crowd(Machine):
    """A machine with two virtual disks: `p/still` holds a file, `p/busy` what a client writes and reads all the time."""

    def __init__(self, name, rng):
        disks, self.flags = LAYOUTS[name]
        self.survives = next(failures for kind, failures in FAILURES.items() if name.startswith(kind))
        super().__init__(disks=disks, pool=False)
        self.rng = rng
        self.prepare()
        self.weft("pool", "create", "p", *self.disk_files(), "--create-size", DISK, "--slab-size", "4MiB")
        if name.endswith("tiered"):
            for disk in self.names:
                self.weft("disk", "set", "p", disk, "media=ssd" if disk in self.names[-2:] else "media=hdd")
        self.away, self.gone = self.path("away"), []
        os.mkdir(self.away)
        self.weft("pool", "set", "p", "scrub-every=never")
        self.client, self.rounds = None, 0
        self.vdisk("still", SIZE, *self.flags)
        self.vdisk("busy", SIZE, *self.flags)
        self.fill()

    def prepare(self):
        """What is to be done before there is a pool."""

    def __exit__(self, *what):
        super().__exit__(*what)
        if self.client:
            # Without the daemon it ends.
            self.client.join()

    # Disks

    def leave(self, disks):
        """All at once: a cable, not one after the other."""
        for n in disks:
            os.rename(self.disk(n), os.path.join(self.away, self.names[n]))
        self.gone += disks

    def come_back(self, disks):
        for n in disks:
            os.rename(os.path.join(self.away, self.names[n]), self.disk(n))
            self.gone.remove(n)

    def until_noticed(self):
        """The daemon knows of every disk whether it is there."""
        gone = sorted(self.names[n] for n in self.gone)
        self.until(f"without {gone}", "pool", "show", "p", holds=lambda pool: gone == sorted(
            disk["name"] for disk in pool["disks"] if disk["state"] == "missing"))

    # Data

    def fill(self):
        file = self.path("file")
        holey_file(file, SIZE, self.rng)
        run("nbdcopy", "--flush", file, self.uri("still"))
        with open(file, "rb") as opened:
            self.still = hashlib.sha256(opened.read()).hexdigest()

    def busy(self):
        """A client begins to write, flush and read."""
        if os.path.exists(self.path("stop")):
            os.remove(self.path("stop"))
        self.said = []
        self.client = threading.Thread(target=lambda: self.said.append(outcome(self.nbdsh, "load")))
        self.client.start()

    def rest(self):
        """Ends it; what it read was right."""
        if self.client is None:
            return ""
        open(self.path("stop"), "w").close()
        self.client.join()
        self.client = None
        assert isinstance(self.said[0], str), self.said[0]
        return self.said[0].strip()

    def nbdsh(self, act):
        self.rounds += 1
        return nbdsh("outage.py", act=act, uri=self.uri("busy"), state=self.path("busy.json"), stop=self.path("stop"),
                     seed=self.rng.randrange(1 << 30))

    def verify(self):
        """Every flushed byte is there."""
        out = self.path("out")
        if os.path.exists(out):
            os.remove(out)
        run("nbdcopy", self.uri("still"), out)
        with open(out, "rb") as file:
            assert hashlib.sha256(file.read()).hexdigest() == self.still, "p/still is not what was flushed"
        self.nbdsh("verify")

    # Words

    def attention(self):
        return self.json("status")["attention"]

    def told(self):
        """What the daemon says while disks are away is true, and each command it offers works."""
        names = {self.names[n] for n in self.gone}
        # It looks twice a second.
        begun = time.monotonic()
        while (known := self.known_missing()) != names:
            assert time.monotonic() - begun < machines.PATIENCE, f"{names} are away, and it says {known}:\n{self.weft('status')}"
            time.sleep(0.05)
        status, pool = self.looked()
        of_pool = [one["message"] for one in status["attention"] if one["subject"] == "pool p"]
        if not pool:
            words = [message for message in of_pool if message.startswith("not open")]
            assert words and all(name in words[0] for name in names) and "by itself" in words[0], (names, status)
            assert status["health"] == "failed", status
            self.type_hints(status["attention"])
            return words[0]
        assert {disk["name"] for disk in pool["disks"] if disk["state"] == "missing"} == names, pool["disks"]
        assert all(f"disk p/{name}" in [one["subject"] for one in status["attention"]] for name in names), status
        assert pool["health"] != "healthy" and not pool["read_only"], pool
        frozen = pool["frozen"]
        words = [message for message in of_pool if message.startswith("frozen")]
        assert (pool["health"] == "frozen") == bool(words) == bool(frozen), (pool["health"], frozen, words)
        if frozen:
            assert set(frozen["missing"]) == names and frozen["reason"] and frozen["seconds"] >= 0, frozen
            assert "by itself" in words[0], words
        self.type_hints(status["attention"])
        return words[0] if words else status["attention"][0]["message"]

    def looked(self):
        """The status, and the pool if it is open, of one moment: pools open and freeze by themselves."""
        def shown():
            return self.json("pool", "show", "p") if self.json("pool", "list") else None

        def essence(pool):
            return pool and (pool["health"], bool(pool["frozen"]), [disk["state"] for disk in pool["disks"]])

        begun = time.monotonic()
        while True:
            pool, status = shown(), self.json("status")
            if essence(pool) == essence(shown()) and bool(pool) == bool(status["pools"]):
                return status, pool
            assert time.monotonic() - begun < machines.PATIENCE, f"it never stays as it is: {pool}"

    def known_missing(self):
        """The names of the disks that the pool misses, open or not, as the daemon knows it."""
        if self.json("pool", "list"):
            return {disk["name"] for disk in self.json("pool", "show", "p")["disks"] if disk["state"] == "missing"}
        return {name for pool in self.json("pool", "import") for name in pool["missing"]}

    def type_hints(self, attention):
        """Every command that is offered works when it is typed, as long as it is offered: what was waited for may have
        happened meanwhile."""
        for one in attention:
            words = (one["hint"] or "weft status").split()[1:]
            if "DISK" in words:
                words = [self.path("spare") if word == "DISK" else word for word in words] + ["--create-size", DISK]
            changes = words[:2] in (["disk", "replace"], ["disk", "remove"], ["disk", "set"], ["disk", "add"], ["pool", "import"], ["export", "remove"])
            ran = self.ran(*words, *(["--dry-run"] if changes else []))
            if ran.returncode != 0:
                still = [(other["subject"], other["hint"]) for other in self.attention()]
                assert (one["subject"], one["hint"]) not in still, \
                    f"{one}\nbut weft {' '.join(words)}: {ran.returncode}\n{ran.stdout}{ran.stderr}"

    def heals(self):
        """The pool becomes whole by itself. The limit is on what happens: nothing may stand still for minutes."""
        seen, since = None, time.monotonic()
        while True:
            status = self.json("status")
            denied = [one for one in status["attention"] if "not open" in one["message"]]
            assert not (status["pools"] and denied), f"the pool is open, and it says {denied}"
            # A machine with other things to do is slow now and then, and so are its files.
            needs = [one for one in status["attention"] if not one["message"].startswith("slow")]
            whole = status["pools"] and status["health"] == "healthy" and not needs and not status["jobs"]
            if whole:
                return
            progress = (len(self.weft("events", "p")), [(job["job"], job["done"], job["state"]) for job in status["jobs"]])
            if progress != seen:
                seen, since = progress, time.monotonic()
            assert time.monotonic() - since < machines.PATIENCE, f"not whole, and nothing goes on:\n{self.weft('status')}{self.events()}"
            time.sleep(0.1)

    def whole(self):
        """All is well again. That a disk has just gone may not be known when that is looked at, and be found by the
        check: then it is not over yet."""
        while True:
            before = self.events()
            self.heals()
            self.verify()
            report = self.check()
            if report["sound"] or self.events() == before:
                break
        assert report["sound"] and not report["problems"], report
        assert self.json("status")["health"] == "healthy"

    def descriptors(self):
        """The disks that the daemon holds open, and whether each is one that is there."""
        held, root = [], f"/proc/{self.daemon.pid}/fd"
        for fd in os.listdir(root):
            try:
                path = os.readlink(os.path.join(root, fd))
            except FileNotFoundError:
                continue
            if path.startswith(self.dir) and any(os.path.basename(path).startswith(name) for name in self.names):
                held.append(path)
        return sorted(held)

    def memory(self):
        """What the daemon takes, in MiB."""
        with open(f"/proc/{self.daemon.pid}/status") as file:
            return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmRSS"))


def outcome(body, *args):
    try:
        return body(*args)
    except Exception as error:  # handed to the thread that judges it
        return error


# The layouts

def layout(reporter, rng, name, only):
    """Every interesting outage of one layout, one after the other on the same pool; one that failed is followed by a new pool."""
    crowd = None
    try:
        for step, body in outages(LAYOUTS[name][0], rng):
            if only is not None and step not in only:
                continue
            if crowd is None:
                crowd = Crowd(name, rng)
                warm = crowd.memory()
            if not reporter.check(step, body, crowd):
                crowd.__exit__()
                crowd = None
        if crowd is not None:
            reporter.check("the daemon gives its memory back", gives_back, crowd, warm)
    finally:
        if crowd is not None:
            crowd.__exit__()


def outages(disks, rng):
    """Names and bodies. Which disks go, and in which order they come, is drawn."""
    half = disks // 2
    for count in sorted({1, half, half + 1, disks - 1, disks} - {0}):
        for busy in (False, True):
            yield f"{count} of {disks}, {'busy' if busy else 'idle'}", lambda crowd, count=count, busy=busy: blink(crowd, count, busy)
        for ending, moment in itertools.product(("stop", "kill"), MOMENTS):
            yield f"{ending}, {count} {moment}", lambda crowd, count=count, ending=ending, moment=moment: restart(crowd, count, ending, moment)
    yield "again and again, busy", flicker


def drawn(crowd, count):
    return crowd.rng.sample(range(len(crowd.names)), count)


def blink(crowd, count, busy):
    """Disks are away for some seconds while the daemon runs."""
    if busy:
        crowd.busy()
        time.sleep(0.5)
    disks = drawn(crowd, count)
    crowd.leave(disks)
    begun = time.monotonic()
    crowd.until_noticed()
    said = crowd.told()
    time.sleep(max(0, AWAY - (time.monotonic() - begun)))
    crowd.rng.shuffle(disks)
    crowd.come_back(disks)
    begun = time.monotonic()
    if busy:
        time.sleep(0.5)
    did = crowd.rest()
    crowd.whole()
    held = crowd.descriptors()
    assert held == sorted(crowd.disk_files()), f"the daemon holds {held}"
    return f"whole after {time.monotonic() - begun:.1f} s{'; ' + did if did else ''}; {said.splitlines()[0]}"


def flicker(crowd):
    """The same cable, a few times in a row, more disks than half of them among them."""
    crowd.busy()
    for _ in range(5):
        disks = drawn(crowd, crowd.rng.randrange(1, len(crowd.names) + 1))
        crowd.leave(disks)
        time.sleep(crowd.rng.choice([0.01, 0.1, 0.3, 0.6, 1.5]))
        crowd.rng.shuffle(disks)
        for n in disks:
            crowd.come_back([n])
            time.sleep(crowd.rng.choice([0, 0, 0.3]))
    did = crowd.rest()
    crowd.whole()
    return did


MOMENTS = ["gone before the start", "gone while it runs", "back before the start", "on their way back"]


def restart(crowd, count, ending, moment):
    """The daemon ends and starts while disks are away; they come back one after the other."""
    disks = drawn(crowd, count)
    end = crowd.stop if ending == "stop" else crowd.kill
    crowd.busy()
    time.sleep(0.5)
    if moment == "gone before the start":
        finish(crowd, end)
        crowd.leave(disks)
    else:
        crowd.leave(disks)
        crowd.until_noticed()
        crowd.rng.shuffle(disks)
        if moment == "on their way back":
            crowd.come_back(disks[:1])
        finish(crowd, end)
        if moment == "back before the start":
            crowd.come_back(crowd.gone[:])
    crowd.serve()
    told = []
    for n in crowd.rng.sample(crowd.gone, len(crowd.gone)):
        told.append(crowd.told())
        crowd.come_back([n])
        time.sleep(crowd.rng.choice([0, 0.2, 1]))
    crowd.whole()
    return told[0].splitlines()[0] if told else None


def finish(crowd, end):
    """Ends the daemon; the client ends with it, or has ended before."""
    if end == crowd.stop:
        # A client that is still there when the daemon stops is told so.
        crowd.daemon.send_signal(signal.SIGTERM)
        status, crowd.daemon = crowd.daemon.wait(timeout=machines.PATIENCE), None
        # 6: what was not flushed could not be kept.
        assert status in (0, 6), f"the daemon stopped with {status}:\n" + "\n".join(crowd.log[-20:])
    else:
        end()
    crowd.rest()


def gives_back(crowd, warm):
    now = crowd.memory()
    assert now < warm + 160, f"{warm} MiB at the beginning, {now} MiB now"
    return f"{warm} MiB at the beginning, {now} MiB now"


# Stories

def copies(crowd, name, disks):
    """Copies of the disks as they are now."""
    os.makedirs(crowd.path(name), exist_ok=True)
    for n in disks:
        run("cp", "--sparse=always", crowd.disk(n), os.path.join(crowd.path(name), crowd.names[n]))


def put(crowd, name, disks):
    """The copies take the place of the disks, as files of their own."""
    for n in disks:
        run("cp", "--sparse=always", os.path.join(crowd.path(name), crowd.names[n]), crowd.path("new"))
        os.rename(crowd.path("new"), crowd.disk(n))


def put_instead(crowd, name, n):
    """The copy comes in place of a disk that is away."""
    put(crowd, name, [n])
    os.remove(os.path.join(crowd.away, crowd.names[n]))
    crowd.gone.remove(n)


def has_what_it_missed(crowd, n):
    """The pool is whole again, and a disk that was put back has all it should have: another one may go."""
    crowd.whole()
    other = crowd.rng.choice([m for m in range(len(crowd.names)) if m != n])
    crowd.leave([other])
    crowd.until_noticed()
    crowd.verify()
    crowd.come_back([other])
    crowd.whole()


def worked(crowd):
    """Data is written that the copies do not have."""
    crowd.busy()
    time.sleep(1)
    crowd.rest()
    crowd.fill()


def one_rolled_back(rng, while_running):
    with Crowd("parity 1 on 4", rng) as crowd:
        for ending in (crowd.stop, crowd.kill):
            n = rng.randrange(4)
            copies(crowd, "old", [n])
            worked(crowd)
            if while_running:
                put(crowd, "old", [n])
                # It goes and is back in one step: only the daemon's own words tell that it was seen.
                wait_for(crowd, f"disk {crowd.names[n]} lost")
            else:
                ending()
                put(crowd, "old", [n])
                crowd.serve()
            has_what_it_missed(crowd, n)


def older_after_a_restart(rng):
    """A disk is away when the daemon ends; a copy of it comes back that was made before its last writes. Its label is
    the one that it left with."""
    with Crowd("parity 1 on 5", rng) as crowd:
        for moment in ("seen to leave, killed", "seen to leave, stopped", "gone when the daemon was"):
            n = rng.randrange(5)
            copies(crowd, "old", [n])
            worked(crowd)
            if moment == "gone when the daemon was":
                crowd.kill()
                crowd.leave([n])
                crowd.serve()
                crowd.until_noticed()
                crowd.kill()
            else:
                crowd.leave([n])
                crowd.until_noticed()
                finish(crowd, crowd.kill if moment.endswith("killed") else crowd.stop)
            put_instead(crowd, "old", n)
            crowd.serve()
            has_what_it_missed(crowd, n)


def three_rolled_back(rng):
    """Three of four disks are put back as they were: what is read is right or an error, and the right ones make all well."""
    with Crowd("parity 1 on 4", rng) as crowd:
        said = []
        for ending in (crowd.stop, crowd.kill):
            disks = rng.sample(range(4), 3)
            copies(crowd, "old", disks)
            worked(crowd)
            crowd.rest()
            ending()
            copies(crowd, "right", disks)
            put(crowd, "old", disks)
            crowd.serve()
            said.append(never_wrong(crowd))
            crowd.kill()
            put(crowd, "right", disks)
            crowd.serve()
            crowd.heals()
            crowd.verify()
        return "; ".join(said)


def three_wrong_ones(rng):
    """Three of five disks come back as old copies while the daemon runs, then as they are: no byte is ever wrong, none
    of the copies is taken for its disk, and all is well, and nothing lost, without a restart."""
    with Crowd("parity 1 on 5", rng) as crowd:
        disks = three_leave(crowd)
        put(crowd, "old", disks)
        time.sleep(AWAY)
        until_not_used(crowd, 3)
        said = never_wrong(crowd)
        for n in disks:
            os.remove(crowd.disk(n))
        time.sleep(1)
        crowd.come_back(disks)
        crowd.heals()
        crowd.verify()
        return said


def three_leave(crowd):
    """Three of five disks are away, and much was written since copies of them were made: which."""
    disks = crowd.rng.sample(range(5), 3)
    copies(crowd, "old", disks)
    worked(crowd)
    crowd.leave(disks)
    crowd.until_noticed()
    return disks


def until_not_used(crowd, count):
    """So many files are there that are not taken for the disks that they are copies of."""
    told = lambda: sum("is not the disk as it was" in one["message"] for one in crowd.attention())
    wait_until(crowd, f"that {count} copies are not used", lambda: told() == count)


def deleted_ones(rng):
    """Three of five disks are deleted, and old copies come in their places, with their numbers where the file system
    gives those out again: none is taken for its disk."""
    with Crowd("parity 1 on 5", rng) as crowd:
        disks = rng.sample(range(5), 3)
        copies(crowd, "old", disks)
        worked(crowd)
        numbers = {n: os.stat(crowd.disk(n)).st_ino for n in disks}
        for n in disks:
            os.remove(crowd.disk(n))
        crowd.gone += disks
        crowd.until_noticed()
        # The lowest number is given out first.
        for n in sorted(disks, key=numbers.get):
            run("cp", "--sparse=always", os.path.join(crowd.path("old"), crowd.names[n]), crowd.disk(n))
        until_not_used(crowd, 3)
        again = sum(os.stat(crowd.disk(n)).st_ino == numbers[n] for n in disks)
        return f"{again} of 3 have the number of the one that was deleted; {never_wrong(crowd)}"


def rolled_back_away(rng):
    """Three of five disks are rolled back while they are away, and are the same files, with labels as they were: none
    is taken for what it was."""
    with Crowd("parity 1 on 5", rng) as crowd:
        disks = three_leave(crowd)
        away = lambda n: os.path.join(crowd.away, crowd.names[n])
        was = {n: os.stat(away(n)).st_ino for n in disks}
        os.makedirs(crowd.path("now"))
        for n in disks:
            run("cp", "--sparse=always", away(n), crowd.path("now"))
        time.sleep(AWAY)
        for kept in "old", "now":
            for n in disks:
                run("cp", os.path.join(crowd.path(kept), crowd.names[n]), away(n))
            crowd.come_back(disks)
            assert was == {n: os.stat(crowd.disk(n)).st_ino for n in disks}, "they are other files"
            if kept == "old":
                until_not_used(crowd, 3)
                crowd.leave(disks)
                crowd.until_noticed()
        crowd.heals()
        crowd.verify()


def moved_files(rng):
    """The file of each disk becomes another one while the daemon runs, one after the other: each is proven, and taken
    for the disk."""
    with Crowd("parity 1 on 4", rng) as crowd:
        for n in rng.sample(range(4), 4):
            copies(crowd, "same", [n])
            crowd.leave([n])
            crowd.until_noticed()
            put_instead(crowd, "same", n)
            crowd.whole()
        crowd.kill()
        crowd.serve()
        crowd.whole()


def frozen_export(rng):
    """A pool that waits for disks is exported, says what is given up, and is imported when they are back."""
    with Crowd("parity 1 on 5", rng) as crowd:
        disks = rng.sample(range(5), 3)
        crowd.leave(disks)
        crowd.until_noticed()
        for name in ["still", "busy"]:
            crowd.weft("export", "remove", f"p/{name}")
        for words in [["--dry-run"], []]:
            said = crowd.weft("pool", "export", "p", *words)
            assert "no flush has covered is given up" in said, said
        assert crowd.json("pool", "list") == [] and not crowd.attention(), crowd.attention()
        crowd.come_back(disks)
        crowd.weft("pool", "import", "p")
        for name in ["still", "busy"]:
            crowd.weft("export", "add", f"p/{name}", "--nbd", f"unix:{crowd.path('nbd.sock')}")
        crowd.whole()


def wait_for(crowd, words):
    wait_until(crowd, words, lambda: words in crowd.events())


def wait_until(crowd, words, told):
    begun = time.monotonic()
    while not told():
        assert time.monotonic() - begun < machines.PATIENCE, f"never told: {words}\n{crowd.events()}"
        time.sleep(0.1)


def never_wrong(crowd):
    """Whatever can be read of the virtual disk is what was flushed; says what that was."""
    opened = [pool["name"] for pool in crowd.json("pool", "list")]
    if not opened:
        words = [one["message"] for one in crowd.attention() if one["subject"] == "pool p"]
        assert words, crowd.attention()
        crowd.type_hints(crowd.attention())
        return f"not opened: {words[0]}"
    assert crowd.json("status")["attention"], "three of four disks are old, and nothing is said"
    wrong = outcome(nbdsh_read, crowd)
    assert isinstance(wrong, str), wrong
    return wrong.strip()


def nbdsh_read(crowd):
    return nbdsh("right_or_error.py", uri=crowd.uri("still"), file=crowd.path("file"))


def all_rolled_back(rng):
    """All disks are put back as they were together: that is an earlier pool, whole."""
    with Crowd("parity 1 on 4", rng) as crowd:
        crowd.kill()
        copies(crowd, "old", range(4))
        crowd.serve()
        file = crowd.still
        crowd.fill()
        crowd.kill()
        put(crowd, "old", range(4))
        crowd.serve()
        crowd.still = file
        crowd.whole()


def blanked(rng):
    """A disk is empty when it comes back: it is none of the pool's, the pool says so, and a new one takes its place."""
    with Crowd("parity 1 on 5", rng) as crowd:
        n = rng.randrange(5)
        crowd.leave([n])
        with open(crowd.disk(n), "wb") as file:
            file.truncate(os.path.getsize(os.path.join(crowd.away, crowd.names[n])))
        crowd.until_noticed()
        crowd.verify()
        crowd.told()
        crowd.kill()
        crowd.serve()
        crowd.verify()
        crowd.told()
        crowd.weft("disk", "replace", "p", crowd.names[n], crowd.disk(n), "--wait")
        crowd.gone.remove(n)
        crowd.verify()
        crowd.heals()
        crowd.sound()


def swapped(rng):
    """Disks come back under each other's names, with the daemon running: they are known by their labels."""
    with Crowd("parity 1 on 5", rng) as crowd:
        crowd.busy()
        for _ in range(3):
            one, other, third = rng.sample(range(5), 3)
            crowd.leave([one, other, third])
            time.sleep(1)
            names = [crowd.names[n] for n in (one, other, third)]
            for target, source in zip((one, other, third), names[1:] + names[:1]):
                os.rename(os.path.join(crowd.away, source), crowd.disk(target))
            crowd.gone = []
            crowd.heals()
        crowd.rest()
        crowd.whole()


def twin(rng):
    """A copy of one disk lies beside it: the disk is used, or the pool waits, and says so; when the copy is gone all is well by itself."""
    with Crowd("mirror 2 on 4", rng) as crowd:
        n = rng.randrange(4)
        copies(crowd, "old", [n])
        worked(crowd)
        beside = os.path.join(crowd.disks_dir, "beside")
        shutil.copyfile(os.path.join(crowd.path("old"), crowd.names[n]), beside)
        crowd.busy()
        wait_for(crowd, "is a copy of disk")
        # The disk goes, its older copy stays: what is there then is old.
        crowd.leave([n])
        time.sleep(3)
        crowd.rest()
        crowd.verify()
        os.remove(beside)
        crowd.come_back([n])
        crowd.whole()
        crowd.stop()
        shutil.copyfile(os.path.join(crowd.path("old"), crowd.names[n]), beside)
        crowd.serve()
        if crowd.json("pool", "list"):
            crowd.verify()
        else:
            said = [one["message"] for one in crowd.attention() if one["subject"] == "pool p"]
            assert said and "twice" in said[0], crowd.attention()
        crowd.type_hints(crowd.attention())
        os.remove(beside)
        crowd.whole()


def old_megabyte(rng, ending):
    """Five disks, an overwrite that was flushed, three away, a restart: the old megabyte is never read without an error."""
    with Crowd("parity 1 on 5", rng) as crowd:
        disks = rng.sample(range(5), 3)
        crowd.fill()
        crowd.leave(disks)
        crowd.until_noticed()
        time.sleep(2)
        finish(crowd, crowd.stop if ending == "stop" else crowd.kill)
        said = []
        for n in [*disks, None]:
            crowd.serve()
            if crowd.json("pool", "list"):
                assert crowd.json("status")["attention"] or not crowd.gone
                said.append(nbdsh_read(crowd).strip())
            if n is None:
                break
            crowd.kill()
            crowd.come_back([n])
        crowd.whole()
        return "; ".join(said)


def longer(rng):
    """Most disks are away for longer than clients wait: they get errors, the pool waits on, and all that was flushed is there afterwards."""
    with Crowd("parity 1 on 4", rng) as crowd:
        crowd.busy()
        time.sleep(1)
        crowd.leave([0, 1, 2])
        crowd.until_noticed()
        time.sleep(40)
        crowd.told()
        crowd.come_back([1, 0, 2])
        time.sleep(2)
        did = crowd.rest()
        assert " 0 requests failed" not in did, did
        crowd.whole()
        return did


def one_by_one(rng):
    """All disks go one after the other, and come back so, in every order; the daemon keeps running."""
    with Crowd("mirror 3 on 3", rng) as crowd:
        crowd.busy()
        for order in itertools.permutations(range(3)):
            for n in rng.sample(range(3), 3):
                crowd.leave([n])
                time.sleep(rng.choice([0, 0.4]))
            crowd.until_noticed()
            crowd.told()
            for n in order:
                crowd.come_back([n])
                time.sleep(rng.choice([0, 0.7, 1.5]))
            crowd.heals()
        did = crowd.rest()
        crowd.whole()
        return did


class Bus(Crowd):
    """Three of the four disks are on a bus whose writes fail while there is a file `trigger`."""

    def prepare(self):
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            raise Skip("/dev/fuse cannot be used here")
        self.fuses = []
        for n in range(3):
            back = self.path(f"back{n}")
            with open(back, "wb") as file:
                file.truncate(192 * MIB)
            open(self.disk(n), "wb").close()
            line = ["nbdfuse", self.disk(n), "--command", "nbdkit", "-s", "--filter=error", "file", back, "error-pwrite=EIO",
                    "error-pwrite-rate=100%", f"error-pwrite-file={self.path('trigger')}"]
            self.fuses.append(subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                               start_new_session=True))
            begun = time.monotonic()
            while os.path.getsize(self.disk(n)) != 192 * MIB:
                assert time.monotonic() - begun < machines.PATIENCE, "nbdfuse did not mount"
                time.sleep(0.02)

    def __exit__(self, *what):
        if self.daemon:
            self.kill()
        for n, fuse in enumerate(self.fuses):
            subprocess.run(["fusermount3", "-uqz", self.disk(n)], check=False)
            os.killpg(fuse.pid, signal.SIGKILL)
            fuse.wait()
        super().__exit__(*what)


def bus(rng):
    """Writes to most disks fail, though all are there: the pool waits, tries them again, and goes on."""
    with Bus("parity 1 on 4", rng) as crowd:
        crowd.busy()
        time.sleep(0.5)
        open(crowd.path("trigger"), "w").close()
        crowd.until("frozen", "pool", "show", "p", holds=lambda pool: pool["frozen"])
        status = crowd.json("status")
        assert status["health"] == "frozen", status
        crowd.type_hints(status["attention"])
        os.remove(crowd.path("trigger"))
        # Nobody types anything.
        crowd.until("not frozen", "pool", "show", "p", holds=lambda pool: not pool["frozen"])
        did = crowd.rest()
        # What failed is counted against the disks.
        begun = time.monotonic()
        while crowd.json("status")["health"] != "healthy":
            assert time.monotonic() - begun < machines.PATIENCE, crowd.weft("status") + crowd.events()
            time.sleep(0.1)
        crowd.verify()
        crowd.sound()
        return did


def grown(rng):
    """Pools of few disks grow, and what is made then survives the loss of the disks that they were made of; a pool of
    three becomes one of two."""
    double = ["--resiliency", "parity", "--failures", "2", "--columns", "6"]
    for first, disks, layout, lost in [(1, 2, ["--resiliency", "mirror"], 1), (2, 6, double, 2)]:
        with Machine(disks=disks, pool=False) as machine:
            files = machine.disk_files()
            machine.weft("pool", "create", "p", *files[:first], "--create-size", DISK, "--slab-size", "4MiB")
            machine.vdisk("early", 4 * MIB, "--resiliency", "simple", "--columns", "1")
            file = machine.path("file")
            holey_file(file, 4 * MIB, rng)
            run("nbdcopy", "--flush", file, machine.uri("early"))
            machine.weft("disk", "add", "p", *files[first:], "--create-size", DISK)
            machine.vdisk("late", 4 * MIB, *layout)
            run("nbdcopy", "--flush", file, machine.uri("late"))
            machine.until("at rest", "job", "list", holds=lambda jobs: all(job["state"] == "done" for job in jobs))
            for gone in files[:lost]:
                os.remove(gone)
            away = lambda disks: [disk["state"] for disk in disks].count("missing") == lost
            machine.until("noticed", "disk", "list", "--pool", "p", holds=away)
            for ending in [None, machine.kill]:
                if ending:
                    ending()
                    machine.serve()
                run("nbdcopy", machine.uri("late"), machine.path("back"))
                same_files(file, machine.path("back"))
    with Machine(disks=3, pool=False) as machine:
        machine.weft("pool", "create", "p", *machine.disk_files(), "--create-size", DISK, "--slab-size", "4MiB")
        machine.vdisk("late", 4 * MIB, "--resiliency", "mirror")
        file = machine.path("file")
        holey_file(file, 4 * MIB, rng)
        run("nbdcopy", "--flush", file, machine.uri("late"))
        machine.weft("disk", "remove", "p", "d0")
        machine.until("two disks", "disk", "list", "--pool", "p", holds=lambda all: len(all) == 2)
        machine.sound()


STORIES = {
    "a pool grew, and the disks that it was made of go": grown,
    "the bus fails": bus,
    "one disk is rolled back while the daemon is down": lambda rng: one_rolled_back(rng, False),
    "one disk is rolled back under the daemon": lambda rng: one_rolled_back(rng, True),
    "a disk leaves, and comes back older after a restart": older_after_a_restart,
    "three of four are rolled back": three_rolled_back,
    "three of five come back as old copies, then as they are": three_wrong_ones,
    "three of five are deleted, old copies come": deleted_ones,
    "three of five are rolled back while they are away": rolled_back_away,
    "each file is replaced by a copy of itself": moved_files,
    "a frozen pool is exported": frozen_export,
    "all are rolled back together": all_rolled_back,
    "a disk comes back blank": blanked,
    "disks come back swapped": swapped,
    "a copy of a disk lies beside it": twin,
    "a flushed overwrite is not read as it was, killed": lambda rng: old_megabyte(rng, "kill"),
    "a flushed overwrite is not read as it was, stopped": lambda rng: old_megabyte(rng, "stop"),
    "longer than clients wait": longer,
    "one after the other, in every order": one_by_one,
}
