"""A machine whose virtual disks are mounted."""

import glob
import os
import subprocess

from machine import Machine, run
from report import Skip

FSCK = {"ext4": ["e2fsck", "-f", "-n"], "xfs": ["xfs_repair", "-n", "-f"], "btrfs": ["btrfs", "check", "--readonly"]}
NEEDS = {"ext4": ("mkfs.ext4",), "xfs": ("mkfs.xfs",), "btrfs": ("mkfs.btrfs",), "ntfs": ("mkfs.ntfs", "ntfs-3g")}


# The kinds of block device that `weft mount` makes, and what each takes besides.
KINDS = ("loop", "ublk", "nbd")
CLIENTS = {"loop": (), "ublk": (), "nbd": ("nbd-client",)}
NODES = {"loop": "/dev/loop-control", "ublk": "/dev/ublk-control", "nbd": "/dev/nbd0"}


def needs_kind(kind):
    """No kernel has to have all of them; `tests/vm/run --modules ublk_drv,nbd` gives one that has."""
    if not os.path.exists(NODES[kind]):
        raise Skip(f"this kernel has no {NODES[kind]}")


def meminfo(name):
    """Bytes, by a word of /proc/meminfo."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name + ":"))


class Host(Machine):
    """A machine with an empty directory `mnt` to mount `p/v` on, by itself with a block device of this kind."""

    def __init__(self, *args, kind="loop", **named):
        needs_kind(kind)
        super().__init__(*args, **named)
        self.kind = kind
        self.mnt, self.fuse = self.path("mnt"), self.path("fuse")
        os.mkdir(self.mnt)
        os.mkdir(self.fuse)

    def __exit__(self, *args):
        mounts = [line.split()[4] for line in open("/proc/self/mountinfo")]
        for mount in reversed([mount for mount in mounts if mount.startswith(self.dir + "/")]):
            subprocess.run(["umount", "--lazy", mount], capture_output=True)
        for line in run("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE").splitlines():
            if self.dir in line:
                subprocess.run(["losetup", "--detach", line.split()[0]], capture_output=True)
        for record in glob.glob(self.path("devices/*/*/device")):
            subprocess.run(["nbd-client", "-d", open(record).read().split()[0]], capture_output=True)
        return super().__exit__(*args)

    def mount(self, *flags):
        return self.weft("mount", "p/v", self.mnt, "--device", self.kind, *flags)

    def unmount(self, *flags):
        return self.weft("unmount", self.mnt, *flags)

    def is_mounted(self):
        return os.path.ismount(self.mnt)

    def inside(self, *names):
        return os.path.join(self.mnt, *names)

    def sync(self):
        run("sync", "--file-system", self.mnt)

    def show(self):
        return self.json("vdisk", "show", "p/v")

    def fsck(self, kind):
        """The unmounted file system has nothing to repair."""
        self.weft("export", "add", "p/v", "--fuse", self.fuse)
        try:
            run(*FSCK[kind], os.path.join(self.fuse, "v"))
        finally:
            self.weft("export", "remove", "p/v", "--fuse", self.fuse)

    def block_devices(self):
        """What there is of block devices of weft's, used or left behind: their names. Other machines have none here."""
        loops = [line for line in run("losetup", "--list", "--noheadings", "--output", "BACK-FILE").splitlines() if self.dir in line]
        ublks = os.listdir("/sys/class/ublk-char") if os.path.isdir("/sys/class/ublk-char") else []
        return loops + ublks + glob.glob("/sys/block/nbd*/pid") + glob.glob(self.path("devices/*/*"))
