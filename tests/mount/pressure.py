"""Writers that dirty many times the memory there is: everything must go on, and nothing may hang.

Two ways for memory to be short. In a limited group: with CAP_SYS_RESOURCE the daemon is in it, too, which is the worst
there is: it must not wait for its own writes. Without, the kernel lets it wait in a limited group of version 1, so it
stays outside, as a service of its own does. And everywhere, with the limits of dirty pages lifted, so that whoever wants
memory must have some written out first: that may freeze a machine, so it is done in the virtual one only (`tests/vm/run`).
"""

import os
import subprocess
import sys
import time

from files import MIB, Content
from host import CLIENTS, KINDS, NEEDS, Host, meminfo
from machine import PATIENCE
from report import Case, Skip

# For the writers and their pages, beside what a daemon that has been at work holds; by the version of control groups.
# With less than this, version 2 kills the writers; in version 1 they wait, and 96 MiB were seen to stop a daemon that
# is no flusher.
ROOM = {1: 96 * MIB, 2: 192 * MIB}
WRITERS = 4
MAPPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mapper.py")
FILES = {"quick": 5, "usual": 24, "long": 48}


def cases(scale):
    made = [Case(f"memory pressure: a group{'' if kind == 'loop' else ', ' + kind}",
                 lambda reporter, rng, kind=kind: story(reporter, rng, kind, FILES[scale], squeezed), (*NEEDS["ext4"], *CLIENTS[kind]), "long")
            for kind in (KINDS if scale != "quick" else KINDS[:1])]
    # It takes an emulated machine many minutes.
    if os.environ.get("WEFT_VM") and scale != "quick":
        made += [Case("memory pressure: the whole machine", lambda reporter, rng: story(reporter, rng, "loop", 2 * FILES[scale], dirtied),
                      NEEDS["ext4"])]
    return made


def story(reporter, rng, kind, files, body):
    content = Content(rng)
    size = (WRITERS * files * len(content.base) + (768 << 20)) >> 20
    with Host(4, f"{size}MiB", kind=kind) as host:
        host.weft("vdisk", "create", "p/v", "--size", f"{size}MiB", "--resiliency", "parity", "--columns", "4")
        host.mount("--format", "ext4")
        with open(host.path("source"), "wb") as file:
            file.write(content.base)
        reporter.check("its memory is locked, others are killed first", locked, host)
        reporter.check("it writes without asking for memory", no_more_memory, host, content, rng)
        reporter.check("it goes on writing out what there is no memory for", body, host, content, files)
        reporter.check("nothing is lost", host.nothing_lost)


def locked(host):
    status = open(f"/proc/{host.daemon.pid}/status").read()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.endswith(" kB")}
    assert sizes["VmLck"] > sizes["VmRSS"] / 2, sizes
    adjusted = int(open(f"/proc/{host.daemon.pid}/oom_score_adj").read())
    assert adjusted <= -900 or not is_flusher(host), adjusted
    return f"{sizes['VmRSS'] // 1024} MiB in memory, none may leave"


def no_more_memory(host, content, rng):
    """Its heap is there from the beginning: pages that it touches for the first time are hardly any."""
    faults = lambda: int(open(f"/proc/{host.daemon.pid}/stat").read().rsplit(")", 1)[1].split()[7])
    host.sync()
    before, names = faults(), []
    while len(names) < 16:
        names.append(content.name(rng, f"{len(names)}", 16 * MIB))
        content.write(host.mnt, names[-1])
    host.sync()
    after = faults()
    for name in names:
        os.remove(host.inside(name))
    # The first requests of this size still make a thread or two.
    assert after - before < 512, f"{after - before} pages"
    return f"{after - before} pages of 4 KiB more, for 256 MiB"


def squeezed(host, content, files):
    """The writers dirty several times what their group may hold."""
    together = is_flusher(host)
    group = Group()
    try:
        if together:
            # From its start, so that all its memory counts. A daemon grows until its buffers have been full once; where
            # there is no room for that, no flag helps.
            host.stop()
            host.serve(group=group.tasks)
            host.mount()
            written_by_all(host, content, max(3, files // 4), os.devnull)
        begun = time.monotonic()
        group.set_limit(group.used() + ROOM[group.version])
        written_by_all(host, content, files, group.tasks)
        most = group.most()
    finally:
        host.unmount("--force")
        host.stop()
        group.end()
        # The next thing that is looked at is the pool.
        host.serve()
    where = "with" if together else "NO CAP_SYS_RESOURCE: without"
    return (f"{WRITERS * files * 16} MiB through {most / MIB:.0f} of {group.limit / MIB:.0f} MiB, {where} the daemon, "
            f"in {time.monotonic() - begun:.1f} s")


def dirtied(host, content, files):
    """The writers dirty several times what the machine has; the kernel lets them until nothing is left."""
    names = ("dirty_ratio", "dirty_background_ratio")
    before = {name: open(f"/proc/sys/vm/{name}").read() for name in names}
    begun = time.monotonic()
    try:
        set_limits({"dirty_ratio": "60", "dirty_background_ratio": "50"})
        least, stalls = written_by_all(host, content, files, os.devnull)
    finally:
        set_limits(before)
        host.unmount("--force")
    total = meminfo("MemTotal")
    return (f"{WRITERS * files * 16} MiB through {total / MIB:.0f} MiB, {least / MIB:.0f} MiB were left at the least, writers waited "
            f"for memory {stalls} times, in {time.monotonic() - begun:.1f} s")


def set_limits(limits):
    for name, value in limits.items():
        with open(f"/proc/sys/vm/{name}", "w") as file:
            file.write(value)


def written_by_all(host, content, files, tasks):
    """Writers in the group, and one more that dirties a mapped file; then what they wrote is compared. How little memory
    was available, and how often somebody waited for it."""
    script = 'echo $$ > "$1" && for n in $(seq "$4"); do cat "$2" > "$3-$n" || exit 1; done; sync --file-system "$3-1"'
    lines = [["sh", "-c", script, "sh", tasks, host.path("source"), host.inside(f"w{n}"), str(files)] for n in range(WRITERS)]
    lines += [[sys.executable, MAPPER, tasks, host.path("source"), host.inside("w-mapped")]]
    stalled, least, begun = stalls(), meminfo("MemAvailable"), time.monotonic()
    writers = [subprocess.Popen(line) for line in lines]
    while any(writer.poll() is None for writer in writers):
        least = min(least, meminfo("MemAvailable"))
        if time.monotonic() - begun > PATIENCE:
            # Everything that waits for the daemon fails now, instead of waiting until the machine is switched off.
            if host.kind == "loop":
                subprocess.run(["umount", "--force", "--lazy", host.path("mounts/p/v")], timeout=60)
            else:
                host.daemon.kill()
            raise AssertionError("the writers never ended")
        time.sleep(0.1)
    stalled = stalls() - stalled
    assert host.daemon.poll() is None, "the daemon is gone"
    assert all(writer.returncode == 0 for writer in writers), "a writer failed"
    host.unmount()
    host.mount()
    names = [name for name in os.listdir(host.mnt) if name.startswith("w")]
    assert len(names) == WRITERS * files + 1, names
    for name in names:
        with open(host.inside(name), "rb") as file:
            assert file.read() == content.base, name
        os.remove(host.inside(name))
    return least, stalled


def is_flusher(host):
    return "not marked as a flusher" not in "\n".join(host.log)


def stalls():
    with open("/proc/vmstat") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("allocstall"))


class Group:
    """A memory control group, of either version."""

    def __init__(self):
        self.limit = 0
        name = f"weft-test-{os.getpid()}"
        if os.path.isdir("/sys/fs/cgroup/memory"):
            self.version, self.path, names = 1, f"/sys/fs/cgroup/memory/{name}", ("limit_in_bytes", "usage_in_bytes", "max_usage_in_bytes")
        elif "memory" in open_or("/sys/fs/cgroup/cgroup.subtree_control").split():
            self.version, self.path, names = 2, f"/sys/fs/cgroup/{name}", ("max", "current", "peak")
        else:
            raise Skip("no memory control groups here")
        self.tasks = os.path.join(self.path, "cgroup.procs")
        self.files = [os.path.join(self.path, f"memory.{name}") for name in names]
        try:
            os.mkdir(self.path)
            self.set_limit(1 << 40)
        except OSError as error:
            raise Skip(f"memory control groups cannot be made here: {error}") from error

    def set_limit(self, limit):
        self.limit = limit
        with open(self.files[0], "w") as file:
            file.write(str(limit))

    def used(self):
        return int(open_or(self.files[1]) or 0)

    def most(self):
        return int(open_or(self.files[2]) or 0)

    def end(self):
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE:
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.05)


def open_or(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
