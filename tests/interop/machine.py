"""A machine: a directory of disk files, a daemon, and commands typed at it."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

MIB = 1 << 20
# Far more than anything here takes; when it is over the case has failed. A machine without hardware help takes longer.
PATIENCE = int(os.environ.get("WEFT_PATIENCE") or (1200 if os.environ.get("WEFT_VM") else 240))
# What a check says of blocks that are bad and not beyond the redundancy.
COVERED = "until they are repaired"


class Machine:
    def __init__(self, disks=4, size="512MiB", slab="4MiB", pool=True, written=False):
        """`written`: the disks' files have all their blocks beforehand, as disks do."""
        self.dir = tempfile.mkdtemp(dir=os.environ["WEFT_INTEROP_DIR"])
        self.disks_dir = self.path("disks")
        os.mkdir(self.disks_dir)
        self.names = [f"d{n}" for n in range(disks)]
        self.daemon, self.log = None, []
        self.serve()
        if written:
            for disk in self.disk_files():
                run("dd", "if=/dev/zero", f"of={disk}", "bs=4M", f"count={size}", "iflag=count_bytes", "oflag=direct")
        if pool:
            made = [] if written else ["--create-size", size]
            self.weft("pool", "create", "p", *self.disk_files(), *made, "--slab-size", slab)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.daemon:
            self.kill()
        if not os.environ.get("WEFT_INTEROP_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def disk(self, n):
        return os.path.join(self.disks_dir, self.names[n])

    def disk_files(self):
        return [self.disk(n) for n in range(len(self.names))]

    # The daemon

    def serve(self, disks=None, more=(), group=None):
        """Starts the daemon on the directory of disks, or on these paths, with more flags; returns when it is ready.
        `group`: the file with the processes of the control group that it begins in."""
        self.lived = self.last_event()
        within = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', group] if group else []
        line = [*within, os.environ["WEFT"], "serve", "--state", self.path("state"), *more,
                "--disks", *(disks or [self.disks_dir])]
        self.daemon = subprocess.Popen(line, env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
        told = []
        for line in self.daemon.stderr:
            told.append(line.rstrip())
            if told[-1] == "weft: ready":
                break
        else:
            raise AssertionError("the daemon ended:\n" + "\n".join(told))
        self.log += told
        # A full pipe must not stop it.
        pipe = self.daemon.stderr
        threading.Thread(target=lambda: self.log.extend(line.rstrip() for line in pipe), daemon=True).start()

    def kill(self):
        """Kills the daemon like a crash does; it must have been alive."""
        alive = self.daemon.poll() is None
        self.daemon.kill()
        status, self.daemon = self.daemon.wait(), None
        assert alive, f"the daemon had ended by itself ({status}):\n" + "\n".join(self.log[-20:])

    def stop(self):
        """Asks the daemon to stop, as a service manager does."""
        self.daemon.send_signal(signal.SIGTERM)
        status, self.daemon = self.daemon.wait(timeout=PATIENCE), None
        assert status == 0, f"the daemon stopped with {status}:\n" + "\n".join(self.log[-20:])

    # Commands

    def env(self):
        return {**os.environ, "WEFT_SOCKET": self.path("weft.sock")}

    def ran(self, *line):
        return subprocess.run([os.environ["WEFT"], *line], env=self.env(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE)

    def weft(self, *line):
        """A command that must work; its words."""
        ran = self.ran(*line)
        assert ran.returncode == 0, f"weft {' '.join(line)}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def json(self, *line):
        return json.loads(self.weft(*line, "--json"))

    def until(self, what, *line, holds):
        """Waits until the value of a command is as it must become."""
        begun = time.monotonic()
        while not holds(value := self.json(*line)):
            assert time.monotonic() - begun < PATIENCE, f"never {what}: {value}"
            time.sleep(0.02)
        return value

    def vdisk(self, name, size, *layout):
        """Makes `p/name` and offers it."""
        self.weft("vdisk", "create", f"p/{name}", "--size", str(size), *layout)
        self.weft("export", "add", f"p/{name}", "--nbd", f"unix:{self.path('nbd.sock')}")

    def uri(self, name):
        return f"nbd+unix:///p/{name}?socket={self.path('nbd.sock')}"

    def events(self):
        """What happened to the pool in this life of the daemon, a line each."""
        told = [json.loads(line) for line in self.weft("events", "p", "--json").splitlines()]
        return "".join(f"{event['at_ms']}  {'! ' if event['warning'] else ''}p: {event['text']}\n"
                       for event in told if event["no"] > self.lived)

    def last_event(self):
        """The number of the last event that the daemon has written down, in whatever life."""
        try:
            with open(self.path("state/events.jsonl")) as file:
                return max((json.loads(line)["no"] for line in file if line.endswith("\n")), default=0)
        except FileNotFoundError:
            return 0

    def check(self, *flags):
        """What `pool check` finds; its exit code must agree."""
        ran = self.ran("pool", "check", "p", "--json", *flags)
        assert ran.stdout, f"pool check {flags}: {ran.returncode}\n{ran.stderr}"
        report = json.loads(ran.stdout)
        assert ran.returncode == (0 if report["sound"] else 1), (ran.returncode, report)
        return report

    def sound(self):
        """There is nothing wrong with the pool."""
        report = self.check()
        assert report["sound"] and not report["problems"], report

    def nothing_lost(self):
        """At most redundancy is missing: every stripe can be had."""
        wrong = [problem for problem in self.check()["problems"] if COVERED not in problem]
        assert not wrong, wrong


def refused(machine, code, says, *line):
    """A command that must be refused; the command that is offered instead."""
    ran = machine.ran(*line)
    said = f"weft {' '.join(line)}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
    assert ran.returncode == code, f"exit {code} expected; {said}"
    assert re.search(says, ran.stderr), f"`{says}` expected; {said}"
    hints = [line.removeprefix("try: ") for line in ran.stderr.splitlines() if line.startswith("try: ")]
    assert hints, said
    return hints[0]


def run(*line, env=None, stdin=None):
    """A client that must succeed; its words."""
    ran = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, stdin=stdin or subprocess.DEVNULL,
                         env={**os.environ, **(env or {})})
    assert ran.returncode == 0, f"{' '.join(line)}: {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"
    return ran.stdout


def nbdsh(script, **env):
    """Runs one of the scripts beside this file in nbdsh."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nbdsh", script)
    # The bindings belong to the distribution's Python; another one may be first in the PATH.
    env = {**{name.upper(): str(value) for name, value in env.items()}, "PATH": "/usr/bin:" + os.environ["PATH"]}
    return run("nbdsh", "-c", f"exec(compile(open({path!r}).read(), {script!r}, 'exec'))", env=env)


def same_files(one, other):
    with open(one, "rb") as a, open(other, "rb") as b:
        at = 0
        while True:
            left, right = a.read(MIB), b.read(MIB)
            if left != right:
                first = next((n for n, (x, y) in enumerate(zip(left, right)) if x != y), min(len(left), len(right)))
                raise AssertionError(f"{other} differs from {one} at {at + first}")
            if not left:
                return
            at += len(left)


def holey_file(path, size, rng):
    """A file of data that no two places share, with holes at odd places."""
    with open(path, "wb") as file:
        file.truncate(size)
        at = 0
        while at < size:
            length = min(rng.choice([512, 4096, 70_144, 300_032, 2 * MIB]), size - at)
            if rng.random() < 0.7:
                file.seek(at)
                file.write(rng.randbytes(length))
            at += length
