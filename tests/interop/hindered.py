"""Disks that are there and cannot be used: read-only when the daemon starts, and at rest when the pool waits for disks.
Each pool does without them as if they were gone, says why, and goes on by itself."""

import os
import subprocess
import time

from outage import Crowd
from report import Case, Skip


def cases():
    needs = ("nbdsh", "nbdcopy", "chattr")
    return [Case(f"hindered: {name}", lambda reporter, rng, body=body: reporter.check("", body, rng), needs)
            for name, body in STORIES.items()]


class Sealed:
    """Files that nobody can open for writing, root neither."""

    def __init__(self, paths):
        self.paths = paths

    def __enter__(self):
        if subprocess.run(["chattr", "+i", *self.paths], capture_output=True, check=False).returncode:
            self.__exit__()
            raise Skip("no file can be made immutable here")

    def __exit__(self, *_):
        subprocess.run(["chattr", "-i", *self.paths], capture_output=True, check=False)


def said(crowd, subject):
    found = [one for one in crowd.attention() if one["subject"] == subject]
    assert found, f"nothing is said of {subject}: {crowd.weft('status')}"
    return found[0]["message"], found[0]["hint"]


def crashed(rng, count):
    """A pool of five disks after a crash under work, where `count` of them are named and cannot be opened."""
    crowd = Crowd("parity 1 on 5", rng)
    crowd.busy()
    time.sleep(1)
    crowd.kill()
    crowd.rest()
    return crowd, [crowd.disk(n) for n in rng.sample(range(5), count)]


def one_sealed(rng):
    """One disk cannot be opened when the daemon starts after a crash: the others go on, and it joins when it can."""
    crowd, paths = crashed(rng, 1)
    with crowd:
        with Sealed(paths):
            crowd.serve()
            name = os.path.basename(paths[0])
            message, hint = said(crowd, f"disk p/{name}")
            assert f"{paths[0]} cannot be opened: " in message and hint == f"weft disk show p/{name}", (message, hint)
            crowd.busy()
            time.sleep(1)
            crowd.rest()
            crowd.verify()
            crowd.type_hints(crowd.attention())
        crowd.heals()
        crowd.verify()
        crowd.sound()


def three_sealed(rng):
    """Three of five cannot be opened: the pool waits, says so once, and opens by itself when they can."""
    crowd, paths = crashed(rng, 3)
    with crowd:
        with Sealed(paths):
            crowd.serve()
            message, _ = said(crowd, "pool p")
            assert all(f"cannot open {path}: " in message for path in paths) and "by itself" in message, message
            time.sleep(6)
            told = [line for line in crowd.events().splitlines() if "not opened" in line]
            assert len(told) == 1, told
        crowd.heals()
        crowd.verify()
        crowd.sound()


def at_rest(rng):
    """A disk in maintenance is given back, while clients wait, to a pool that is frozen for want of others."""
    with Crowd("parity 1 on 5", rng) as crowd:
        rests, *away = rng.sample(range(5), 4)
        crowd.weft("disk", "set", "p", crowd.names[rests], "maintenance=on")
        crowd.busy()
        time.sleep(1)
        crowd.leave(away)
        crowd.until("frozen", "pool", "show", "p", holds=lambda pool: pool["frozen"])
        _, hint = said(crowd, f"disk p/{crowd.names[rests]}")
        # Whoever waited for the disks that are away would be refused in the end.
        answer = crowd.weft(*hint.split()[1:])
        assert "until then a restart has it rest again" in answer, answer
        crowd.come_back(away)
        did = crowd.rest()
        crowd.heals()
        crowd.verify()
        crowd.sound()
        return did


def imported_without(rng):
    """An import says beforehand which disk it will do without, and then does."""
    with Crowd("parity 1 on 5", rng) as crowd:
        for name in ["still", "busy"]:
            crowd.weft("export", "remove", f"p/{name}")
        crowd.weft("pool", "export", "p")
        path = crowd.disk(rng.randrange(5))
        with Sealed([path]):
            planned = crowd.weft("pool", "import", "p", "--dry-run")
            assert f"found: {path}, without it: it cannot be opened for writing: " in planned, planned
            crowd.weft("pool", "import", "p")
            message, _ = said(crowd, f"disk p/{os.path.basename(path)}")
            assert f"{path} cannot be opened: " in message, message
        for name in ["still", "busy"]:
            crowd.weft("export", "add", f"p/{name}", "--nbd", f"unix:{crowd.path('nbd.sock')}")
        crowd.heals()
        crowd.whole()
        crowd.sound()


STORIES = {
    "one of five is read-only when the daemon starts": one_sealed,
    "three of five are read-only when the daemon starts": three_sealed,
    "a disk at rest is given back to a frozen pool": at_rest,
    "a pool is imported without one that is read-only": imported_without,
}
