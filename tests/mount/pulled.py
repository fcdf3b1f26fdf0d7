"""A device that is pulled at a random moment while its pool serves a file system that is written to. The devices are
made of memory by the kernel's module scsi_debug: in the virtual machine only."""

import os
import subprocess
import threading
import time

from host import NEEDS, Host
from kills import PARITY, Keeper, Stress
from machine import PATIENCE
from report import Case, Skip

DEVICES = 5
# Of each device, and of the virtual disk; what is no ext4 needs room.
SMALL, LARGE = (64, 128), (128, 320)


def cases(scale):
    if not os.environ.get("WEFT_VM"):
        return []
    kinds = ["ext4"] if scale == "quick" else ["ext4", "xfs", "btrfs"]
    # In a sample those that take long, this and `pressure`, take turns.
    return [Case(f"a device pulled: {kind}", lambda reporter, rng, kind=kind: story(reporter, rng, kind),
                 (*NEEDS[kind], "stress-ng"), "long") for kind in kinds]


def story(reporter, rng, kind):
    each, size = SMALL if kind == "ext4" else LARGE
    with Devices(each) as devices, Host(0, pool=False) as host:
        host.kill()
        host.serve(devices.paths)
        host.weft("pool", "create", "p", *devices.paths, "--slab-size", "1MiB")
        host.weft("vdisk", "create", "p/v", "--size", f"{size}MiB", *PARITY)
        host.mount("--format", kind)
        keeper = Keeper(host, rng)
        if reporter.check("nobody notices", pulled, host, rng, keeper, devices, kind):
            reporter.check("nothing is lost", host.nothing_lost)


def pulled(host, rng, keeper, devices, kind):
    stress = Stress(host)
    keeping = threading.Thread(target=keeper.go_on)
    keeping.start()
    promises, moment = rng.randrange(1, 10), rng.uniform(0, 1)
    try:
        keeper.wait_for(promises, stress)
        time.sleep(moment)
        devices.pull(rng.randrange(DEVICES))
        before = keeper.promised
        keeper.wait_for(before + 20, stress)
    finally:
        keeper.stop = True
        keeping.join()
        stress.end()
    lost = [disk for disk in host.json("disk", "list") if disk["state"] != "healthy"]
    host.unmount()
    host.fsck(kind)
    host.mount()
    keeper.verify()
    host.unmount()
    assert len(lost) == 1, f"weft did not notice: {lost}"
    return f"after {promises} promises and {moment:.2f} s; {keeper.promised - before} files fsynced without it, {len(keeper.names)} read again"


class Devices:
    """Five disks, each with memory of its own."""

    def __init__(self, mib):
        self.mib = mib

    def __enter__(self):
        before = set(os.listdir("/sys/block"))
        made = subprocess.run(["/sbin/modprobe", "scsi_debug", f"dev_size_mb={self.mib}", f"add_host={DEVICES}", "per_host_store=1",
                               "lbpu=1", "delay=0"], capture_output=True, text=True)
        if made.returncode != 0:
            raise Skip(f"no scsi_debug in this kernel: {made.stderr}")
        subprocess.run(["/sbin/modprobe", "sd_mod"], check=True)
        begun = time.monotonic()
        while len(names := sorted(set(os.listdir("/sys/block")) - before)) < DEVICES or not all(os.path.exists(f"/dev/{name}") for name in names):
            assert time.monotonic() - begun < PATIENCE, f"only {names}"
            time.sleep(0.05)
        self.names, self.paths = names, [f"/dev/{name}" for name in names]
        return self

    def pull(self, n):
        with open(f"/sys/block/{self.names[n]}/device/delete", "w") as file:
            file.write("1")

    def __exit__(self, *_):
        subprocess.run(["/sbin/modprobe", "-r", "scsi_debug"], capture_output=True)
