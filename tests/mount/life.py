"""What a person sees of `weft mount`: refusals, restarts, a daemon that dies, a directory in use."""

import json
import os
import shutil
import subprocess

from files import MIB
from host import CLIENTS, KINDS, NEEDS, NODES, Host
from report import Case


def cases(scale):
    """Quick: all of it through the loop device, and through the others what differs with the device."""
    made = []
    for kind in KINDS:
        name, needs = f"mount, {kind}" if kind != "loop" else "mount", CLIENTS[kind]
        made += [Case(f"{name}: what is refused, and restarts", lambda reporter, rng, kind=kind: story(reporter, kind, scale),
                      ("mkfs.ext4", "mkfs.xfs", *needs), "life"),
                 Case(f"{name}: a daemon that dies", lambda reporter, rng, kind=kind: deaths(reporter, kind, scale),
                      ("mkfs.ext4", *needs), "death")]
    return [*made, Case("mount: ntfs", ntfs, NEEDS["ntfs"])]


def story(reporter, kind, scale):
    with Host(4, "512MiB", kind=kind) as host:
        host.weft("vdisk", "create", "p/v", "--size", "384MiB", "--resiliency", "parity", "--columns", "4")
        checks = (empty_is_not_mounted, dry_run, formatted_and_mounted, busy, what_was_deleted_is_given_back, not_formatted_again, persists, not_after_unmount)
        # What is refused before there is a device is the same with all of them.
        if kind != "loop":
            checks = [check for check in checks[1:] if scale != "quick" or check not in (dry_run, busy)]
        for check in checks:
            if not reporter.check(check.__name__.replace("_", " "), check, host):
                return


def refused(host, code, words, *line):
    ran = host.ran(*line)
    assert ran.returncode == code and words in ran.stderr and "\ntry: " in ran.stderr, (line, ran.returncode, ran.stderr)


def empty_is_not_mounted(host):
    refused(host, 3, "holds no file system", "mount", "p/v", host.mnt)
    refused(host, 4, "no virtual disk", "mount", "p/x", host.mnt)
    refused(host, 4, "no directory", "mount", "p/v", host.path("nowhere"), "--format", "ext4")
    refused(host, 3, "is busy", "mount", "p/v", "/proc", "--format", "ext4")
    refused(host, 3, "is not empty", "mount", "p/v", host.disks_dir, "--format", "ext4")
    refused(host, 4, "mounted nothing", "unmount", host.mnt)
    nobody = subprocess.run([os.environ["WEFT"], "mount", "p/v", host.mnt], env=host.env(), capture_output=True, text=True,
                            user=65534, group=65534)
    assert nobody.returncode == 3 and "only root" in nobody.stderr, nobody
    missing = subprocess.run([os.environ["WEFT"], "unmount", host.mnt, "--dry-run"], env=host.env(), capture_output=True, text=True)
    assert missing.returncode == 4, missing
    assert host.json("export", "list") == [], "a refusal leaves something behind"


def dry_run(host):
    would = host.json("mount", "p/v", host.mnt, "--format", "xfs", "--dry-run")
    assert would["dry_run"] and any("su=262144,sw=3,agcount=4" in line for line in would["changes"]), would
    # Whether it can be mounted as it is, nobody knows yet.
    as_it_is = host.json("mount", "p/v", host.mnt, "--dry-run")["changes"]
    assert any(line.startswith("if it holds a file system") for line in as_it_is), as_it_is
    words = {"ublk": "ublk: ", "nbd": "NBD: ", "loop": "FUSE + loop "}
    best = next(kind for kind in ("ublk", "nbd", "loop") if os.path.exists(NODES[kind]) and all(map(shutil.which, CLIENTS[kind])))
    assert would["changes"][0].startswith(words[best]), would
    asked = host.json("mount", "p/v", host.mnt, "--format", "xfs", "--device", host.kind, "--dry-run")["changes"][0]
    assert asked.startswith(words[host.kind]) and asked.endswith(", as asked"), asked
    for kind, module in (("ublk", "ublk_drv"), ("nbd", "nbd")):
        if not os.path.exists(NODES[kind]) and not loadable(module):
            refused(host, 3, "this kernel has no ", "mount", "p/v", host.mnt, "--device", kind)
    assert not host.is_mounted() and host.json("export", "list") == [] and host.block_devices() == []


def loadable(module):
    return bool(shutil.which("modprobe")) and subprocess.run(["modprobe", "--dry-run", "--quiet", module]).returncode == 0


def formatted_and_mounted(host):
    would = host.json("mount", "p/v", host.mnt, "--format", "ext4", "--device", host.kind, "--dry-run")["changes"]
    told = host.mount("--format", "ext4")
    assert would and all(line in told for line in would), (would, told)
    assert "stride 64, stripe width 192: a stripe is 3 x 256 KiB" in told and f"/dev/{host.kind}" in told and "as asked" in told, told
    options = subprocess.check_output(["findmnt", "-no", "OPTIONS", host.mnt], text=True)
    assert "discard" in options and "stripe=192" in options, options
    assert host.json("mount", "p/v", host.mnt)["outcome"] == "already-so"
    other = host.path("other")
    os.mkdir(other)
    refused(host, 3, "already", "mount", "p/v", other)
    refused(host, 3, "it cannot go on with", "mount", "p/v", host.mnt, "--device", next(kind for kind in KINDS if kind != host.kind))
    refused(host, 3, "is mounted on", "export", "remove", "p/v")
    refused(host, 3, "would lose it", "vdisk", "remove", "p/v", "--yes")
    # Who writes beside the file system destroys it; who only reads does not.
    beside = ["export", "add", "p/v", "--nbd", f"unix:{host.path('beside.sock')}"]
    refused(host, 3, "is mounted on", *beside)
    refused(host, 3, "is mounted on", *beside, "--shared")
    host.weft(*beside, "--read-only")
    host.weft("export", "remove", "p/v", *beside[-2:])
    with open(host.inside("kept"), "w") as file:
        file.write("kept")


def busy(host):
    with open(host.inside("kept")) as file:
        user = subprocess.Popen(["sleep", "600"], stdin=file)
        refused(host, 3, "used by", "unmount", host.mnt)
        refused(host, 3, "used by", "unmount", host.mnt, "--dry-run")
    user.kill()
    user.wait()
    host.unmount()
    assert not host.is_mounted() and host.json("export", "list") == [] and host.block_devices() == []
    # Clients that write to it may be there: it is not mounted beside them.
    beside = ["--nbd", f"unix:{host.path('beside.sock')}"]
    host.weft("export", "add", "p/v", *beside)
    for dry in ([], ["--dry-run"]):
        refused(host, 3, "clients write to it", "mount", "p/v", host.mnt, *dry)
    host.weft("export", "remove", "p/v", *beside)
    # Unmounted by somebody else: what is left goes with the next command.
    host.mount()
    subprocess.run(["umount", host.mnt], check=True)
    host.mount()
    subprocess.run(["umount", host.mnt], check=True)
    host.unmount()
    assert host.json("export", "list") == [] and host.block_devices() == []


def what_was_deleted_is_given_back(host):
    """Also what was deleted a moment ago, in pieces that are no stripes. This much ext4 mostly discards in time by itself: that
    unmounting waits for the rest is judged by `fill`, on disks that are large enough."""
    host.mount()
    empty = host.show()["used"]
    block = os.urandom(4096)
    for n in range(200):
        with open(host.inside(f"f{n}"), "wb") as file:
            file.write(block * n)
    host.sync()
    full = host.show()["used"]
    for n in range(200):
        os.remove(host.inside(f"f{n}"))
    host.unmount()
    left = host.show()["used"]
    # What ext4 itself wrote since: tables, its journal.
    assert full > empty + 70 * MIB and left < empty + 16 * MIB, (empty, full, left)
    return f"{empty >> 20}, {full >> 20}, {left >> 20} MiB in use"


def not_formatted_again(host):
    refused(host, 3, "--force", "mount", "p/v", host.mnt, "--format", "xfs")
    host.mount()
    assert open(host.inside("kept")).read() == "kept"
    host.unmount()
    host.mount("--format", "xfs", "--force")
    assert os.listdir(host.mnt) == []
    with open(host.inside("kept"), "w") as file:
        file.write("kept")
    assert host.json("mount", "p/v", host.mnt, "--persist")["outcome"] == "changed"


def persists(host):
    # Clean stop with the file system in use: it is written out, and the user loses it.
    with open(host.inside("kept")) as file:
        user = subprocess.Popen(["sleep", "600"], stdin=file)
    host.stop()
    assert not host.is_mounted()
    user.kill()
    user.wait()
    assert not [name for name in host.block_devices() if "/devices/" not in name], host.block_devices()
    host.serve()
    assert open(host.inside("kept")).read() == "kept"
    host.kill()
    host.serve()
    assert open(host.inside("kept")).read() == "kept"
    assert json.loads(host.weft("status", "--json"))["attention"] == []
    # The kind that was chosen by hand is kept.
    source = subprocess.check_output(["findmnt", "-no", "SOURCE", host.mnt], text=True)
    assert source.startswith(f"/dev/{host.kind}"), source


def not_after_unmount(host):
    host.unmount()
    host.stop()
    host.serve()
    assert not host.is_mounted() and host.json("export", "list") == [] and host.block_devices() == []


def deaths(reporter, kind, scale):
    with Host(4, "512MiB", kind=kind) as host:
        host.weft("vdisk", "create", "p/v", "--size", "384MiB", "--resiliency", "parity", "--columns", "4")
        host.mount("--format", "ext4")
        reporter.check("errors, and no hang, and mounted again", dies, host)
        if scale != "quick" or kind == "loop":
            reporter.check("also with a user that will not let go", dies_in_use, host)
            reporter.check("what was deleted before is given back by fstrim", dies_after_deleting, host)
        reporter.check("unmounted without any daemon", dies_for_good, host)


def dies(host):
    host.kill()
    ran = subprocess.run(["dd", "if=/dev/zero", f"of={host.inside('x')}", "bs=64k", "count=1", "conv=fsync"], capture_output=True, timeout=60)
    assert ran.returncode != 0
    host.serve()
    attention = host.json("status")["attention"]
    assert "lost its device" in attention[0]["message"], attention
    host.mount()
    with open(host.inside("x"), "w") as file:
        file.write("x")
    assert host.json("status")["attention"] == []


def dies_in_use(host):
    with open(host.inside("x")) as file:
        user = subprocess.Popen(["sleep", "600"], stdin=file)
    host.sync()
    host.kill()
    host.serve()
    host.mount()
    assert open(host.inside("x")).read() == "x"
    user.kill()
    user.wait()


def dies_after_deleting(host):
    host.sync()
    empty = host.show()["used"]
    files = [host.inside(f"f{n}") for n in range(64)]
    for name in files:
        with open(name, "wb") as file:
            file.write(os.urandom(4096) * 256)
    host.sync()
    for name in files:
        os.remove(name)
    host.sync()
    host.kill()
    host.serve()
    told = host.mount()
    assert f"fstrim {host.mnt}" in told, told
    subprocess.run(["fstrim", host.mnt], check=True)
    left = host.show()["used"]
    assert left < empty + 16 * MIB, (empty, left)


def dies_for_good(host):
    host.kill()
    told = host.unmount()
    assert "daemon is gone" in told and not host.is_mounted(), told
    assert host.block_devices() == []
    host.serve()
    assert host.json("export", "list") == [] and host.json("status")["attention"] == []
    host.mount()
    host.unmount()
    assert host.block_devices() == []


def ntfs(reporter, rng):
    with Host(4, "512MiB") as host:
        host.weft("vdisk", "create", "p/v", "--size", "256MiB", "--resiliency", "parity", "--columns", "4")
        reporter.check("formatted, written, read again", written_on_ntfs, host, rng)


def written_on_ntfs(host, rng):
    host.mount("--format", "ntfs")
    data = rng.randbytes(5_000_000)
    with open(host.inside("file"), "wb") as file:
        file.write(data)
    host.unmount()
    host.mount()
    with open(host.inside("file"), "rb") as file:
        assert file.read() == data
    host.unmount()
