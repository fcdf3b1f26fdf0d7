"""Disks that are there and ill: one that answers late, one whose writes fail. Each is a file that nbdfuse makes of an nbdkit with a temper."""

import os
import shutil
import signal
import socket
import subprocess
import time

from machine import MIB, PATIENCE, Machine, holey_file, run, same_files
from report import Case, Skip

SIZE = 48 * MIB
LAYOUT = ["--resiliency", "parity", "--columns", "4", "--interleave", "16KiB"]
# How late the slow disk answers a read.
SLOW = "300ms"


def cases():
    needs = ("nbdcopy", "nbdkit", "nbdfuse", "fusermount3")
    return [Case("ill: a slow disk is named and not waited for", lambda reporter, rng: reporter.check("", slow, rng), needs),
            Case("ill: a disk that failed gets another chance", lambda reporter, rng: reporter.check("", chance, rng), needs),
            Case("ill: a disk that failed and was plugged in anew", lambda reporter, rng: reporter.check("", replugged, rng), needs)]


class Ward(Machine):
    """A machine with four disks, of which `d3` is what a plugin makes of the file `back`, and a virtual disk `p/v` full of a file."""

    def __init__(self, rng):
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            raise Skip("/dev/fuse cannot be used here")
        super().__init__(disks=4, pool=False)
        self.fuse = None
        self.back = self.path("back")
        with open(self.back, "wb") as file:
            file.truncate(512 * MIB)
        self.plug()
        self.weft("pool", "create", "p", *self.disk_files(), "--create-size", "512MiB", "--slab-size", "4MiB")
        self.weft("pool", "set", "p", "repair-after=never", "scrub-every=never")
        # Disks are compared with those of their kind, and the kernel knows of what kind a file is only where it lies on
        # a device.
        for name in self.names:
            self.weft("disk", "set", "p", name, "media=ssd")
        self.vdisk("v", SIZE, *LAYOUT)
        self.file = self.path("file")
        holey_file(self.file, SIZE, rng)
        self.copy_in()

    def mount(self, *plugin):
        """Makes the fourth disk: what nbdkit gives with these arguments."""
        open(self.disk(3), "ab").close()
        line = ["nbdfuse", self.disk(3), "--command", "nbdkit", "-s", *plugin]
        self.fuse = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                     start_new_session=True)
        begun = time.monotonic()
        while os.path.getsize(self.disk(3)) != 512 * MIB:
            assert self.fuse.poll() is None and time.monotonic() - begun < PATIENCE, "nbdfuse did not mount"
            time.sleep(0.02)

    def pull(self):
        if self.fuse:
            subprocess.run(["fusermount3", "-uqz", self.disk(3)], check=False)
            # nbdkit and whatever it waits for are of the same session.
            os.killpg(self.fuse.pid, signal.SIGKILL)
            self.fuse.wait()
            self.fuse = None

    def __exit__(self, *what):
        if self.daemon:
            # Requests to a disk that hangs end with the disk.
            self.daemon.kill()
            self.pull()
            self.daemon.wait()
            self.daemon = None
        if not os.environ.get("WEFT_INTEROP_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)

    def copy_in(self):
        run("nbdcopy", "--flush", self.file, self.uri("v"))

    def same(self):
        out = self.path("out")
        if os.path.exists(out):
            os.remove(out)
        run("nbdcopy", self.uri("v"), out)
        same_files(self.file, out)

    def state(self):
        return self.json("disk", "show", "p/d3")["state"]

    def concern(self):
        """What `weft status` says of the disk."""
        found = [one for one in self.json("status", "p")["attention"] if one["subject"] == "disk p/d3"]
        return found[0] if found else None


class SlowWard(Ward):
    def plug(self):
        self.mount("-t", "16", "--filter=pause", "--filter=delay", "file", self.back, f"rdelay={SLOW}",
                   f"pause-control={self.path('pause')}")

    def pause(self, order):
        """`p`: the disk answers nothing any more; `r`: it does again."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(self.path("pause"))
            control.sendall(order.encode())
            assert control.recv(1).decode() == order.upper()

    def read_some(self):
        """Reads all, a few requests at a time: more would only queue up at the disk."""
        run("nbdcopy", "--connections=1", "--requests=2", self.uri("v"), "null:")


def slow(rng):
    with SlowWard(rng) as machine:
        begun = time.monotonic()
        while "disk d3 is slow: a tenth of its requests take" not in machine.events():
            assert time.monotonic() - begun < PATIENCE, machine.json("disk", "show", "p/d3")
            machine.read_some()
        concern = machine.concern()
        assert concern["message"].startswith("slow: 1 in 100 of its requests waits"), concern
        assert "reads that wait too long are computed from the others" in concern["message"], concern
        assert concern["hint"] == "weft disk replace p d3 DISK", concern
        assert machine.json("disk", "show", "p/d3")["slow"] and machine.state() == "healthy"
        named = time.monotonic() - begun

        # Who waits for it now waits for ever: what is read is read from the others.
        machine.pause("p")
        begun = time.monotonic()
        machine.same()
        took = time.monotonic() - begun
        machine.pause("r")
        return f"named after {named:.1f} s; all of it read in {took:.1f} s while the disk answered nothing"


def failing(machine, fails):
    """Writes to the disk fail from now on, or do not."""
    trigger = machine.path("trigger")
    if fails:
        open(trigger, "w").close()
    elif os.path.exists(trigger):
        os.remove(trigger)


class FailingWard(Ward):
    def plug(self):
        self.mount("--filter=error", "file", self.path("back"), "error-pwrite=EIO", "error-pwrite-rate=100%",
                   f"error-pwrite-file={self.path('trigger')}")

    def fail(self, rng):
        """Overwrites everything while the disk fails."""
        failing(self, True)
        holey_file(self.file, SIZE, rng)
        self.copy_in()
        self.until("failed", "disk", "show", "p/d3", holds=lambda disk: disk["state"] == "failed")
        concern = self.concern()
        assert concern["hint"] == "weft disk set p d3 maintenance=off", concern
        assert "it answered with errors" in concern["message"], concern

    def until_well(self):
        self.until("well", "disk", "show", "p/d3", holds=lambda disk: disk["state"] == "healthy")
        self.until("whole", "pool", "show", "p", holds=lambda pool: pool["vdisks"][0]["health"] == "healthy")

    def proven(self):
        """It has what it missed: another disk may go."""
        os.remove(self.disk(1))
        self.until("missing", "disk", "show", "p/d1", holds=lambda disk: disk["state"] == "missing")
        self.same()
        self.nothing_lost()


def chance(rng):
    with FailingWard(rng) as machine:
        machine.fail(rng)
        chance = ["disk", "set", "p", "d3", "maintenance=off"]
        assert "another chance" in machine.weft(*chance, "--dry-run")
        assert machine.state() == "failed"
        # It fails again when it is brought what it missed.
        machine.weft(*chance)
        machine.until("failed again", "disk", "show", "p/d3",
                      holds=lambda disk: disk["state"] == "failed" and disk["counters"]["errors"] >= 2)
        failing(machine, False)
        machine.weft(*chance)
        machine.until_well()
        assert "disk d3 is up to date again" in machine.events(), machine.events()
        machine.proven()


def replugged(rng):
    with FailingWard(rng) as machine:
        machine.fail(rng)
        machine.pull()
        machine.until("missing", "disk", "show", "p/d3", holds=lambda disk: disk["state"] == "missing")
        failing(machine, False)
        machine.plug()
        # Nobody types anything.
        machine.until_well()
        machine.proven()
