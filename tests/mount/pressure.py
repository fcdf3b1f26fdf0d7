"""Writers that dirty many times what their memory group may hold: everything must go on, and nothing may hang.

With CAP_SYS_RESOURCE the daemon is in the same group, which is the worst there is: it must not wait for its own writes.
Without, the kernel lets it wait in a limited group of version 1, so it stays outside, as a service of its own does.
"""

import os
import subprocess
import time

from files import MIB, Content
from host import NEEDS, Host
from machine import PATIENCE
from report import Case, Skip

LIMIT = 192 * MIB


def cases():
    return [Case("memory pressure", story, NEEDS["ext4"])]


def story(reporter, rng):
    with Host(4, "1GiB") as host:
        group = Group()
        try:
            host.weft("vdisk", "create", "p/v", "--size", "1GiB", "--resiliency", "parity", "--columns", "4")
            host.mount("--format", "ext4")
            reporter.check("its memory is locked", locked, host)
            reporter.check("it goes on writing out what it has no memory for", squeezed, host, rng, group)
        finally:
            host.unmount("--force")
            host.stop()
            group.end()


def locked(host):
    status = open(f"/proc/{host.daemon.pid}/status").read()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.endswith(" kB")}
    assert sizes["VmLck"] > sizes["VmRSS"] / 2, sizes
    return f"{sizes['VmRSS'] // 1024} MiB in memory, none may leave"


def squeezed(host, rng, group):
    """Four writers dirty several times what the group may hold."""
    together = is_flusher(host)
    if together:
        group.add(host.daemon.pid)
    content, begun = Content(rng), time.monotonic()
    source = host.path("source")
    with open(source, "wb") as file:
        file.write(content.base)
    script = 'echo $$ > "$1" && for n in $(seq 12); do cat "$2" > "$3-$n" || exit 1; done; sync --file-system "$3-1"'
    writers = [subprocess.Popen(["sh", "-c", script, "sh", group.tasks, source, host.inside(f"w{n}")]) for n in range(4)]
    try:
        for writer in writers:
            assert writer.wait(timeout=60) == 0, "a writer failed"
    except subprocess.TimeoutExpired:
        # Everything that waits for the daemon fails now, instead of waiting until the machine is switched off.
        subprocess.run(["umount", "--force", "--lazy", host.path("mounts/p/v")], timeout=60)
        raise
    most = group.most()
    assert host.daemon.poll() is None, "the daemon is gone"
    host.unmount()
    host.mount()
    for name in os.listdir(host.mnt):
        if name.startswith("w"):
            with open(host.inside(name), "rb") as file:
                assert file.read() == content.base, name
    where = "with" if together else "NO CAP_SYS_RESOURCE: without"
    return f"{4 * 12 * 16} MiB through {most / MIB:.0f} of {LIMIT // MIB} MiB, {where} the daemon, in {time.monotonic() - begun:.1f} s"


def is_flusher(host):
    return "not marked as a flusher" not in "\n".join(host.log)


class Group:
    """A memory control group, of either version."""

    def __init__(self):
        name = f"weft-test-{os.getpid()}"
        if os.path.isdir("/sys/fs/cgroup/memory"):
            self.path, limit, self.peak = f"/sys/fs/cgroup/memory/{name}", "memory.limit_in_bytes", "memory.max_usage_in_bytes"
        elif "memory" in open_or("/sys/fs/cgroup/cgroup.subtree_control").split():
            self.path, limit, self.peak = f"/sys/fs/cgroup/{name}", "memory.max", "memory.peak"
        else:
            raise Skip("no memory control groups here")
        self.tasks = os.path.join(self.path, "cgroup.procs")
        try:
            os.mkdir(self.path)
            with open(os.path.join(self.path, limit), "w") as file:
                file.write(str(LIMIT))
        except OSError as error:
            raise Skip(f"memory control groups cannot be made here: {error}") from error

    def add(self, pid):
        with open(self.tasks, "w") as file:
            file.write(str(pid))

    def most(self):
        return int(open_or(os.path.join(self.path, self.peak)) or 0)

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
