"""A machine whose virtual disks are mounted."""

import os
import subprocess

from machine import Machine, run

FSCK = {"ext4": ["e2fsck", "-f", "-n"], "xfs": ["xfs_repair", "-n", "-f"], "btrfs": ["btrfs", "check", "--readonly"]}
NEEDS = {"ext4": ("mkfs.ext4",), "xfs": ("mkfs.xfs",), "btrfs": ("mkfs.btrfs",), "ntfs": ("mkfs.ntfs", "ntfs-3g")}


class Host(Machine):
    """A machine with an empty directory `mnt` to mount `p/v` on."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
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
        return super().__exit__(*args)

    def mount(self, *flags):
        return self.weft("mount", "p/v", self.mnt, *flags)

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
