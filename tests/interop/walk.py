"""Random walks: a pool of real files goes through faults, changes of its layouts and caches, jobs, and all of these in
the midst of each other.

Judged is what `outage.py` judges, whenever a walk comes to rest: every flushed byte is there, the pool is whole again
by itself, what `weft status` says is true, each command that it offers works, and memory is given back."""

import os
import time

import machine as machines
import outage
from machine import run
from outage import Crowd
from report import Case

STEPS, WALKS = 40, 14
START = ["parity 1 on 4", "parity 1 on 5", "parity 2 on 5", "mirror 2 on 4", "mirror 3 on 3",
         "parity 1 on 4, cached", "parity 1 on 6, tiered"]
# Disks that a pool grows to, and shrinks to.
MOST, FEWEST = 8, 3
# What virtual disks are made with beside those that are looked at.
BESIDE = [["--resiliency", "mirror"], ["--resiliency", "parity"], ["--resiliency", "mirror", "--fixed"],
          ["--resiliency", "parity", "--class", "log"]]
# What `weft vdisk change` is asked for; what does not fit the pool is refused, and that is no fault.
CHANGES = [["--columns", "3"], ["--columns", "4"], ["--interleave", "16KiB"], ["--interleave", "64KiB"],
           ["--resiliency", "mirror", "--copies", "2"], ["--resiliency", "mirror", "--copies", "3"],
           ["--resiliency", "parity", "--failures", "1"], ["--resiliency", "parity", "--failures", "2"]]
# How commands may end: some are not possible as things are.
REFUSED = (2, 3, 4, 5, 6)


def cases(long):
    """Walks are a long run: what they go through, and so what they find, is another thing each time."""
    starts = START * (WALKS // len(START)) if long else []
    return [case(f"walk: {start}, {nth}", start) for nth, start in enumerate(starts)]


def case(name, start):
    def body(reporter, rng):
        reporter.check("", walk, rng, start, STEPS)

    return Case(name, body, ("nbdsh", "nbdcopy"))


def walk(rng, start, steps):
    with Crowd(start, rng) as crowd:
        crowd.trail = [start]
        warm = crowd.memory()
        try:
            for _ in range(steps):
                step = rng.choices(list(STEPS_OF), [weight for weight, _ in STEPS_OF.values()])[0]
                crowd.trail.append(step)
                STEPS_OF[step][1](crowd)
                if rng.random() < 0.3:
                    crowd.trail.append("rest")
                    rest(crowd)
            rest(crowd)
            outage.gives_back(crowd, warm)
        except Exception as error:
            raise AssertionError(f"after {'; '.join(crowd.trail)}:\n{error}") from error
        return f"{start}: {'; '.join(crowd.trail[1:])}"


def rest(crowd):
    """All is well again, whatever went on; jobs, a change of layout among them, end."""
    crowd.rest()
    if crowd.gone:
        crowd.come_back(crowd.gone[:])
    crowd.whole()


# The steps. Each leaves the daemon running; disks may be away, and jobs under way.

def leave(crowd):
    there = [n for n in range(len(crowd.names)) if n not in crowd.gone]
    crowd.leave(crowd.rng.sample(there, crowd.rng.randrange(1, len(there) + 1)) if there else [])
    time.sleep(crowd.rng.choice([0, 0.2, 1]))


def come_back(crowd):
    for n in crowd.rng.sample(crowd.gone, crowd.rng.randrange(0, len(crowd.gone) + 1)):
        crowd.come_back([n])
        time.sleep(crowd.rng.choice([0, 0, 0.3]))


def busy(crowd):
    if crowd.client is None and not crowd.gone:
        begin(crowd)
    else:
        crowd.rest()


def begin(crowd):
    """The client is at work when this returns."""
    connected = crowd.path("stop.connected")
    if os.path.exists(connected):
        os.remove(connected)
    crowd.busy()
    begun = time.monotonic()
    while not os.path.exists(connected):
        assert time.monotonic() - begun < machines.PATIENCE and not crowd.said, f"it does not begin: {crowd.said}"
        time.sleep(0.02)
    time.sleep(crowd.rng.choice([0.1, 0.5]))


def end(crowd):
    """The daemon ends in one way or the other; disks come and go meanwhile."""
    outage.finish(crowd, crowd.rng.choice([crowd.stop, crowd.kill]))
    if crowd.rng.random() < 0.5:
        come_back(crowd)
    elif crowd.rng.random() < 0.5:
        leave(crowd)
    crowd.serve()


def tell(crowd):
    if crowd.gone:
        crowd.told()


def change(crowd):
    """The layout of a virtual disk begins to be another one."""
    mentioned = crowd.rng.choice(CHANGES)
    ran = crowd.ran("vdisk", "change", crowd.rng.choice(["p/busy", "p/still"]), *mentioned)
    crowd.trail[-1] += f" {' '.join(mentioned)}: {ran.returncode}"
    assert ran.returncode in (0, *REFUSED), ran.stderr


def cache(crowd):
    names = [crowd.names[n] for n in crowd.rng.sample(range(len(crowd.names)), min(3, len(crowd.names)))]
    to = crowd.rng.choice([["write-cache=0"], ["write-cache=8MiB", f"write-cache-disks={','.join(names)}"]])
    ran = crowd.ran("vdisk", "set", crowd.rng.choice(["p/busy", "p/still"]), *to)
    crowd.trail[-1] += f" {to[0]}: {ran.returncode}"
    assert ran.returncode in (0, *REFUSED), ran.stderr


def job(crowd):
    what = crowd.rng.choice(["scrub", "repair", "rebalance"])
    ran = crowd.ran(what, "p")
    crowd.trail[-1] += f" {what}: {ran.returncode}"
    assert ran.returncode in (0, *REFUSED), ran.stderr


def put_back_old(crowd):
    """A disk is put back as it was some time ago, while the pool is closed and otherwise whole."""
    rest(crowd)
    n = crowd.rng.randrange(len(crowd.names))
    outage.copies(crowd, "old", [n])
    begin(crowd)
    if crowd.rng.random() < 0.5:
        change(crowd)
    outage.finish(crowd, crowd.rng.choice([crowd.stop, crowd.kill]))
    outage.put(crowd, "old", [n])
    crowd.serve()


def put_back_old_alive(crowd):
    """A disk is put back as it was some time ago, while the pool is in use and otherwise whole."""
    rest(crowd)
    n = crowd.rng.randrange(len(crowd.names))
    outage.copies(crowd, "old", [n])
    begin(crowd)
    lost = f"disk {crowd.names[n]} lost"
    before = crowd.events().count(lost)
    outage.put(crowd, "old", [n])
    outage.wait_until(crowd, lost, lambda: crowd.events().count(lost) > before)


def put_back_old_away(crowd):
    """A disk leaves, the daemon ends, and the disk is back as it was some time ago."""
    rest(crowd)
    n = crowd.rng.randrange(len(crowd.names))
    outage.copies(crowd, "old", [n])
    begin(crowd)
    crowd.leave([n])
    if crowd.rng.random() < 0.7:
        crowd.until_noticed()
    outage.finish(crowd, crowd.rng.choice([crowd.stop, crowd.kill]))
    outage.put_instead(crowd, "old", n)
    crowd.serve()


def grow(crowd):
    """The pool gets another disk, of one usage or the other."""
    if len(crowd.names) >= MOST:
        return
    name = f"e{len(crowd.trail)}"
    usage = crowd.rng.choice(["auto", "auto", "spare", "journal", "manual"])
    path = os.path.join(crowd.disks_dir, name)
    ran = crowd.ran("disk", "add", "p", path, "--create-size", outage.DISK, "--usage", usage)
    crowd.trail[-1] += f" {name} {usage}: {ran.returncode}"
    assert ran.returncode in (0, *REFUSED), ran.stderr
    if ran.returncode == 0:
        crowd.names.append(name)


def shrink(crowd):
    """A disk leaves the pool for good, with what lies on it moved away."""
    if crowd.gone or len(crowd.names) <= FEWEST:
        return
    name = crowd.rng.choice(crowd.names)
    ran = crowd.ran("disk", "remove", "p", name, "--wait")
    crowd.trail[-1] += f" {name}: {ran.returncode}"
    assert ran.returncode in (0, 1, *REFUSED), ran.stderr
    if name not in {disk["name"] for disk in crowd.json("disk", "list", "--pool", "p")}:
        os.remove(crowd.disk(crowd.names.index(name)))
        crowd.names.remove(name)
    elif (state := crowd.json("disk", "show", f"p/{name}")["usage"]) == "retired":
        crowd.weft("disk", "set", "p", name, "usage=auto")
        crowd.trail[-1] += f", {state}"


def replace(crowd):
    """A disk is gone for good, or its place taken by an empty one, and another takes its place."""
    rest(crowd)
    n = crowd.rng.randrange(len(crowd.names))
    begin(crowd)
    crowd.leave([n])
    if crowd.rng.random() < 0.5:
        with open(crowd.disk(n), "wb") as file:
            file.truncate(os.path.getsize(os.path.join(crowd.away, crowd.names[n])))
    crowd.until_noticed()
    crowd.told()
    os.remove(os.path.join(crowd.away, crowd.names[n]))
    new = f"r{len(crowd.trail)}"
    old, crowd.names[n] = crowd.names[n], new
    crowd.gone.remove(n)
    if os.path.exists(os.path.join(crowd.disks_dir, old)):
        os.rename(os.path.join(crowd.disks_dir, old), crowd.disk(n))
    line = ["disk", "replace", "p", old, crowd.disk(n), "--create-size", outage.DISK]
    crowd.weft(*line, *crowd.rng.choice([[], ["--wait"]]))
    crowd.trail[-1] += f" {old} by {new}"


def beside(crowd):
    """A virtual disk comes, is written to, or goes."""
    if not pool_is_open(crowd):
        return
    names = [vdisk["name"] for vdisk in crowd.json("vdisk", "list", "p") if vdisk["name"] not in ("p/still", "p/busy")]
    if names and crowd.rng.random() < 0.5:
        name = crowd.rng.choice(names)
        crowd.ran("export", "remove", name)
        ran = crowd.ran("vdisk", "remove", name, "--yes")
        crowd.trail[-1] += f" -{name}: {ran.returncode}"
    else:
        name, what = f"v{len(crowd.trail)}", crowd.rng.choice(BESIDE)
        size = crowd.rng.choice(["16MiB", "50MiB", "1GiB"])
        ran = crowd.ran("vdisk", "create", f"p/{name}", "--size", size, *what)
        crowd.trail[-1] += f" +{name} {size} {' '.join(what)}: {ran.returncode}"
        if ran.returncode == 0 and not crowd.gone:
            crowd.weft("export", "add", f"p/{name}", "--nbd", f"unix:{crowd.path('nbd.sock')}")
            run("nbdcopy", "--flush", crowd.path("file"), crowd.uri(name))
    assert ran.returncode in (0, *REFUSED), ran.stderr


def anew(crowd):
    """What lies still is written anew."""
    if not crowd.gone and pool_is_open(crowd):
        crowd.fill()


def pool_is_open(crowd):
    return bool(crowd.json("pool", "list"))


STEPS_OF = {"grow": (2, grow), "shrink": (1, shrink), "replace": (1, replace), "beside": (2, beside), "anew": (1, anew),
            "leave": (4, leave), "come back": (4, come_back), "busy": (3, busy), "end": (3, end), "tell": (2, tell),
            "change": (3, change), "cache": (2, cache), "job": (2, job), "old": (1, put_back_old),
            "old, alive": (1, put_back_old_alive), "old, away": (1, put_back_old_away)}
