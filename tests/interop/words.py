"""What the daemon says, and to whom: nobody listens, a terminal would obey, a service manager judges its units."""

import json
import os
import subprocess

from hostile import LAYOUT, SIZE, holds_until
from machine import MIB, Machine
from report import ROOT, Case, Skip


def cases():
    return [
        Case("hostile: nobody takes what the daemon says", lambda reporter, rng: reporter.check("", unheard)),
        Case("hostile: names and times that a terminal would obey", lambda reporter, rng: reporter.check("", obeyed)),
        Case("hostile: units keep what they promise", lambda reporter, rng: reporter.check("", units), ("systemd-analyze",)),
    ]


def unheard():
    """Standard error is full, or nobody reads it: that is no reason to end."""
    with Machine(disks=2, size="128MiB") as machine:
        machine.vdisk("v", SIZE, *LAYOUT)
        machine.stop()
        line = [os.environ["WEFT"], "serve", "--state", machine.path("state"), "--disks", machine.disks_dir]
        reading, writing = os.pipe()
        for stderr in (os.open("/dev/full", os.O_WRONLY), writing):
            daemon = subprocess.Popen(line, env=machine.env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
            os.close(stderr)
            if stderr == writing:
                os.close(reading)
            machine.daemon = daemon
            holds_until(lambda: machine.ran("status").returncode == 0)
            os.rename(machine.disk(1), machine.path("away"))
            machine.until("missing", "disk", "show", "p/d1", holds=lambda disk: disk["state"] == "missing")
            os.rename(machine.path("away"), machine.disk(1))
            machine.until("back", "disk", "show", "p/d1", holds=lambda disk: disk["state"] == "healthy")
            assert daemon.poll() is None, daemon.returncode
            machine.stop()


def obeyed():
    """Names of files, and what an earlier life wrote down, may hold anything; no output has a character that a terminal obeys."""
    evil = "\x1b[2J\x9b1;1H\u202egpj\r"
    with Machine(disks=2, size="128MiB") as machine:
        file = os.path.join(machine.disks_dir, evil)
        with open(file, "wb") as image:
            image.truncate(64 * MIB)
        machine.stop()
        event = {"no": machine.last_event() + 1, "at_ms": (1 << 64) - 1, "pool": "p", "warning": True, "text": f"lost {evil}"}
        with open(machine.path("state/events.jsonl"), "a") as log:
            log.write(json.dumps(event) + "\n" + json.dumps({**event, "no": event["no"] + 1, "at_ms": 0}) + "\n")
        machine.serve()
        lines = [["disk", "list"], ["disk", "show", file], ["disk", "show", evil], ["events"], ["events", "p"], ["status"],
                 ["pool", "create", "q", file, "--dry-run"], ["pool", "create", evil, file], ["disk", "add", "p", file, "--dry-run"],
                 ["export", "add", "p/v", "--nbd", f"unix:/{evil}/s"], ["pool", "import", evil], ["job", "show", evil]]
        seen = 0
        for line in lines:
            for more in ([], ["--json"]):
                ran = machine.ran(*line, *more)
                assert ran.returncode in (0, 2, 3, 4), (line, ran.returncode, ran.stderr)
                raw = [c for c in ran.stdout + ran.stderr if c != "\n" and (c < " " or "\x7f" <= c <= "\x9f" or c == "\u202e")]
                assert not raw, (line, more, ran.stdout, ran.stderr)
                seen += "gpj" in ran.stdout + ran.stderr
        assert seen > len(lines), seen
        assert "9999-12-31" in machine.weft("events", "p"), machine.weft("events", "p")
        machine.kill()
        assert not any(c < " " or "\x7f" <= c <= "\x9f" for line in machine.log for c in line), machine.log


def units():
    """What systemd thinks of them: from 0, nothing to attack, to 10."""
    dist = os.path.join(ROOT, "dist")
    told = []
    for unit, most in (("weft.service", 30), ("weft-mount.service", 60)):
        path = os.path.join(dist, unit)
        ran = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", f"--threshold={most - 1}", path],
                             capture_output=True, text=True)
        if "Overall exposure level" not in ran.stdout:
            raise Skip(f"systemd-analyze judges no files here: {ran.stderr.strip()[:100]}")
        level = ran.stdout.rsplit("Overall exposure level", 1)[1].split(":")[1].split()[0]
        assert ran.returncode == 0, f"{unit}: {level}"
        told.append(f"{unit} {level}")
        with open(path) as file:
            assert any(line.startswith("LimitNOFILE=") for line in file), unit
    return ", ".join(told)
