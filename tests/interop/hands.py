"""Safe hands: what an owner may type without losing data. No command and no hint takes redundancy, or data, away in silence."""

import fcntl
import os
import re
import socket
import stat
import subprocess

from machine import MIB, Machine, refused, run
from report import Case, Skip

PARITY = ["--resiliency", "parity", "--columns", "4"]


def cases():
    stories = [
        ("a disk that redundancy needs is not removed in silence", needed, ()),
        ("what is offered instead of a disk that is needed works when it is typed", instead, ("nbdcopy",)),
        ("a lost disk that redundancy needs is not recommended for removal", lost, ()),
        ("a replacement by a disk that is in use already is judged as that", by_member, ()),
        ("one writer's use at a time", one_writer, ()),
        ("a read-only export takes no writes, also after a restart", read_only, ("qemu-io",)),
        ("TCP beyond this machine is asked for by name", tcp, ()),
        ("TCP for the machines that are named and no others", named, ()),
        ("what is not blank is not overwritten in silence", blank, ("mkfs.ext4", "nbdcopy")),
        ("a member whose labels are destroyed is not called free", no_labels, ()),
        ("what weft makes is for its owner only", private, ()),
        ("what is in use is not overwritten, whatever is typed", in_use, ("losetup", "mkfs.ext4")),
        ("what the system swaps to is not overwritten, whatever is typed", swapped_to, ("mkswap", "swapon")),
        ("a socket has the mode that was asked for", socket_mode, ()),
        ("a blank disk at the path of a lost one replaces it", same_path, ("nbdcopy",)),
        ("a member that was truncated does not keep its pool closed", truncated, ("nbdcopy",)),
        ("the newest events are counted", newest, ()),
        ("what promises more than there is, is told", overcommit, ()),
        ("a file larger than the room below it is told", beyond_room, ()),
        ("a member that somebody else holds does not keep its pool closed", claimed, ()),
        ("jobs that ended keep their names over a restart", job_names, ()),
        ("clients that find no room are an event, on standard error, too", no_room, ("nbdcopy",)),
        ("many bad blocks are few events", folded, ("nbdcopy",)),
        ("a full file system is no disk failure, and its disks are back when it has room", full_below, ("nbdcopy", "mount")),
        ("a dry run promises no pool that is then refused", dry_pool, ()),
        ("a hint is about what was typed", hints, ()),
        ("a disk is back after an import without it", back_after_degraded, ("nbdcopy",)),
    ]
    return [Case(f"hands: {name}", lambda reporter, rng, story=story: reporter.check("", story), needs)
            for name, story, needs in stories]


def concern(machine, subject):
    found = [one for one in machine.json("status")["attention"] if one["subject"] == subject]
    assert found, machine.weft("status")
    return found[0]


def needed():
    """Four disks, a layout of four columns, nothing written yet: without one of them all that is written later would survive nothing."""
    with Machine(disks=4, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB", *PARITY)
        for dry in ([], ["--dry-run"]):
            hint = refused(machine, 3, r"p/v .*takes 4 disks and 3 .*--force", "disk", "remove", "p", "d3", *dry)
            assert hint.startswith("weft vdisk create p/v-2 "), hint
        shown = machine.json("vdisk", "show", "p/v")
        assert (shown["failures_left"], shown["failures_new"]) == (1, 1), shown
        told = machine.weft("disk", "remove", "p", "d3", "--force", "--dry-run")
        assert re.search(r"p/v.*survives no disk failure", told), told
        machine.weft("disk", "remove", "p", "d3", "--force", "--wait")
        shown = machine.json("vdisk", "show", "p/v")
        assert (shown["failures_left"], shown["failures_new"]) == (1, 0), shown
        told = machine.weft("vdisk", "show", "p/v")
        assert re.search(r"new writes\s+survive no disk failure", told), told
        assert "redundancy" in concern(machine, "vdisk p/v")["message"], machine.weft("status")
        plan = machine.json("explain", "p/v", "write", "0", "64KiB")
        assert (plan["failures_left"], plan["failures_new"]) == (1, 0), plan
        assert "survive" in machine.weft("explain", "p/v", "write", "0", "64KiB")
        # Another disk in the place of one of the three takes nothing away that is not gone already.
        machine.weft("disk", "replace", "p", "d2", machine.path("n"), "--create-size", "128MiB", "--dry-run")
        # With a fifth disk there are enough again.
        machine.weft("disk", "add", "p", machine.path("n0"), machine.path("n1"), "--create-size", "128MiB")
        assert machine.json("vdisk", "show", "p/v")["failures_new"] == 1
        machine.weft("disk", "remove", "p", "d2", "--wait")


def instead():
    """A disk that is needed leaves without a loss, by what is offered: another, or a virtual disk of fewer columns."""
    with Machine(disks=4, size="128MiB") as machine:
        machine.vdisk("v", 64 * MIB, *PARITY)
        content = os.urandom(32 * MIB)
        with open(machine.path("file"), "wb") as file:
            file.write(content)
        run("nbdcopy", "--flush", machine.path("file"), machine.uri("v"))
        remove = ["disk", "remove", "p", "d3"]
        hint = refused(machine, 5, r"fewer columns, if p/v is copied to it and then removed", *remove)
        assert " --columns 3 " in hint, hint
        machine.weft(*hint.split()[1:])
        assert machine.json("vdisk", "show", "p/v-2")["failures_new"] == 1
        machine.weft("export", "add", "p/v-2", "--nbd", f"unix:{machine.path('nbd.sock')}")
        run("nbdcopy", "--flush", machine.uri("v"), machine.uri("v-2"))
        machine.weft("export", "remove", "p/v")
        machine.weft("vdisk", "remove", "p/v", "--yes")
        machine.weft(*remove, "--wait")
        run("nbdcopy", machine.uri("v-2"), machine.path("out"))
        with open(machine.path("out"), "rb") as out:
            assert out.read(len(content)) == content
        machine.sound()
    with Machine(disks=4, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB", *PARITY)
        path = os.path.join(machine.disks_dir, "new")
        # One that is too small is not offered.
        for size in (100, 128):
            with open(path, "wb") as file:
                file.truncate(size * MIB)
            hint = refused(machine, 3, r"another of 128 MiB or more", "disk", "remove", "p", "d3")
            assert (hint == f"weft disk replace p d3 {path}") == (size == 128), hint
        machine.weft(*hint.split()[1:], "--wait")
        assert machine.json("vdisk", "show", "p/v")["failures_new"] == 1
        # And what it was is blank: it can be used again.
        machine.weft("disk", "add", "p", machine.disk(3))


def lost():
    """One of three is gone, and all data has its redundancy without it, for there is none: it is no disk to remove."""
    with Machine(disks=3, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB", "--resiliency", "parity", "--columns", "3")
        os.remove(machine.disk(2))
        machine.until("missing", "disk", "show", "p/d2", holds=lambda disk: disk["state"] == "missing")
        told = concern(machine, "disk p/d2")
        assert told["hint"] == "weft disk replace p d2 DISK", told
        refused(machine, 3, r"p/v .*takes 3 disks and 2 ", "disk", "remove", "p", "d2")
        assert machine.json("vdisk", "show", "p/v")["failures_new"] == 0
        machine.weft("disk", "replace", "p", "d2", machine.path("n"), "--create-size", "128MiB", "--wait")
        assert machine.json("vdisk", "show", "p/v")["failures_new"] == 1


def by_member():
    """A disk that is in use already is no further one: put in the place of another it leaves one fewer."""
    with Machine(disks=4, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB", *PARITY)
        refused(machine, 3, r"p/v .*takes 4 disks and 3 ", "disk", "replace", "p", "d3", "d2", "--dry-run")
        machine.weft("disk", "add", "p", machine.path("n"), "--create-size", "128MiB", "--usage", "manual")
        machine.weft("disk", "replace", "p", "d3", "n", "--wait")


def one_writer():
    with Machine(disks=3, size="128MiB") as machine:
        machine.vdisk("v", 64 * MIB)
        second = ["export", "add", "p/v", "--nbd", f"unix:{machine.path('second.sock')}"]
        hint = refused(machine, 3, r"p/v .*nbd.sock.*--shared", *second)
        assert hint.endswith("--read-only"), hint
        machine.weft(*hint.split()[1:], "--dry-run")
        machine.weft(*second, "--shared")
        machine.weft("export", "remove", "p/v", *second[-2:])
        machine.weft(*second, "--read-only")
        shown = machine.json("export", "list")
        assert [one.get("read_only", False) for one in shown] == [False, True], shown


def read_only():
    with Machine(disks=3, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB")
        machine.weft("export", "add", "p/v", "--nbd", f"unix:{machine.path('nbd.sock')}", "--read-only")
        for restart in (False, True):
            if restart:
                machine.kill()
                machine.serve()
            uri = machine.uri("v")
            wrote = subprocess.run(["qemu-io", "-f", "raw", "-c", "write -P 1 0 64k", uri], capture_output=True, text=True)
            assert wrote.returncode != 0, wrote.stdout
            run("qemu-io", "-r", "-f", "raw", "-c", "read -P 0 0 64k", uri)


def tcp():
    with Machine(disks=3, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB")
        hint = refused(machine, 3, r"0\.0\.0\.0.*--allow-any", "export", "add", "p/v", "--nbd", "tcp:0.0.0.0:20809")
        assert hint == "weft export add p/v --nbd tcp:127.0.0.1:20809", hint
        machine.weft("export", "add", "p/v", "--nbd", "tcp:127.0.0.1:20809")
        machine.weft("export", "remove", "p/v")
        machine.weft("export", "add", "p/v", "--nbd", "tcp:0.0.0.0:20809", "--allow-any")
        assert "any" in concern(machine, "export p/v")["message"]
        machine.kill()
        machine.serve()
        assert "any" in concern(machine, "export p/v")["message"]
        refused(machine, 2, r"--mode", "export", "add", "p/v", "--nbd", "tcp:127.0.0.1:20810", "--mode", "660", "--shared")


def greeted(port, source):
    """Whether the server says a word to who comes from this address."""
    with socket.socket() as client:
        client.settimeout(30)
        client.bind((source, 0))
        client.connect(("127.0.0.1", port))
        try:
            return client.recv(8) == b"NBDMAGIC"
        except ConnectionError:
            return False


def named():
    with Machine(disks=3, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB")
        machine.weft("vdisk", "create", "p/w", "--size", "64MiB")
        add = ["export", "add", "p/v", "--nbd", "tcp:0.0.0.0:20811"]
        assert refused(machine, 2, r"192\.168\.1\.7/24", *add, "--allow", "192.168.1.7/24").endswith("--allow 192.168.1.0/24")
        refused(machine, 2, r"--allow-any", *add, "--allow", "0.0.0.0/0")
        refused(machine, 2, r"--allow", *add, "--allow", "127.0.0.1", "--allow-any")
        refused(machine, 2, r"--allow", "export", "add", "p/v", "--nbd", f"unix:{machine.path('s')}", "--allow", "127.0.0.1")
        machine.weft(*add, "--allow", "127.0.0.3", "--allow", "127.1.0.0/16")
        refused(machine, 3, r"too", "export", "add", "p/w", "--nbd", "tcp:0.0.0.0:20811", "--allow-any")
        for restart in (False, True):
            if restart:
                machine.kill()
                machine.serve()
            assert [greeted(20811, source) for source in ("127.0.0.1", "127.0.0.3", "127.1.2.3", "127.2.0.1")] == [False, True, True, False]
            told = machine.weft("status")
            assert "127.0.0.3, 127.1.0.0/16" in told and "any machine" not in told, told
        assert machine.json("export", "list")[0]["allow"] == ["127.0.0.3", "127.1.0.0/16"]


def blank():
    with Machine(disks=1, pool=False) as machine:
        contents = {"text": (b"Dear diary, " * 400_000, "text .*Dear diary"), "tail": (bytes(8 * MIB) + b"x", "data of an unknown kind"),
                    "noise": (os.urandom(8 * MIB), "data of an unknown kind"),
                    "middle": (bytes(12 * MIB) + b"Dear diary", "text .*Dear diary.*, 12 MiB from its beginning"),
                    "tar": (b"a".ljust(257, b"\0") + b"ustar", "a tar archive")}
        for name, (data, says) in contents.items():
            path = machine.path(name)
            with open(path, "wb") as file:
                file.write(data)
                file.truncate(max(64 * MIB, len(data)) if name != "tail" else len(data))
            for more in ([], ["--dry-run"]):
                hint = refused(machine, 3, f"holds {says}", "pool", "create", "q", path, "--slab-size", "1MiB", *more)
                assert "--force" in hint, hint
            with open(path, "rb") as file:
                assert file.read(len(data)) == data
        path = machine.path("ext4")
        with open(path, "wb") as file:
            file.truncate(64 * MIB)
        run("mkfs.ext4", "-q", "-F", path)
        refused(machine, 3, "holds an ext4 file system", "pool", "create", "q", path)
        told = machine.weft("pool", "create", "q", path, "--slab-size", "1MiB", "--force")
        assert "overwriting an ext4 file system" in told, told
        # What weft gives back is blank, also where data was, and what it only lost is not.
        machine.weft("vdisk", "create", "q/v", "--size", "64MiB")
        machine.weft("export", "add", "q/v", "--nbd", f"unix:{machine.path('nbd.sock')}")
        run("nbdcopy", "--flush", machine.path("noise"), machine.uri("v").replace("/p/", "/q/"))
        machine.weft("export", "remove", "q/v")
        machine.weft("pool", "remove", "q", "--yes")
        machine.weft("pool", "create", "q", path, "--slab-size", "1MiB")


def no_labels():
    with Machine(disks=3, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB")
        machine.stop()
        with open(machine.disk(1), "r+b") as disk:
            for at in (0, 4096, 128 * MIB - 8192, 128 * MIB - 4096):
                disk.seek(at)
                disk.write(bytes(4096))
        machine.serve()
        states = {disk["path"]: disk["state"] for disk in machine.json("disk", "list") if not disk.get("pool")}
        assert states == {machine.disk(1): "foreign"}, states
        assert "--force" in refused(machine, 3, "holds", "pool", "create", "q", machine.disk(1))


def private():
    """Whatever the umask of who starts it: nobody else reads, or holds a lock of, what the daemon makes."""
    before = os.umask(0)
    try:
        with Machine(disks=2, size="128MiB") as machine:
            machine.vdisk("v", 64 * MIB)
            machine.stop()
            machine.serve()
            found = [os.path.join(dir, name) for dir, dirs, files in os.walk(machine.dir) for name in dirs + files]
            made = [path for path in found if path not in (machine.disks_dir, machine.dir)]
            names = {os.path.basename(path) for path in made}
            assert {"d0", "d1", "state", "state.json", "events.jsonl", "lock", "weft.sock", "weft.sock.lock", "nbd.sock"} <= names, names
            modes = {path: oct(os.lstat(path).st_mode) for path in made if stat.S_IMODE(os.lstat(path).st_mode) & 0o077}
            assert not modes, modes
    finally:
        os.umask(before)


def in_use():
    if os.geteuid():
        raise Skip("only root makes loop devices")
    with Machine(disks=1, pool=False) as machine:
        path, dir = machine.path("image"), machine.path("mounted")
        with open(path, "wb") as file:
            file.truncate(64 * MIB)
        run("mkfs.ext4", "-q", "-F", path)
        os.mkdir(dir)
        made = subprocess.run(["losetup", "--find", "--show", path], capture_output=True, text=True)
        if made.returncode:
            raise Skip(f"no loop device can be made here: {made.stderr.strip()}")
        device = made.stdout.strip()
        try:
            mounted = subprocess.run(["mount", device, dir]).returncode == 0
            create = ["pool", "create", "q", path, "--slab-size", "1MiB", "--force"]
            refused(machine, 3, f"in use: it is behind {device}", *create)
            refused(machine, 3, "in use", *create, "--dry-run")
            os.link(path, machine.path("other"))
            refused(machine, 3, "in use", "pool", "create", "q", machine.path("other"), "--force")
            if mounted:
                refused(machine, 3, "in use", "pool", "create", "q", device, "--force")
                run("umount", dir)
        finally:
            subprocess.run(["umount", dir], capture_output=True)
            subprocess.run(["losetup", "--detach", device])
        machine.until("free", "disk", "list", holds=lambda _: not subprocess.run(["losetup", "-j", path], capture_output=True, text=True).stdout)
        with open(path, "r+b") as held:
            fcntl.lockf(held, fcntl.LOCK_EX)
            refused(machine, 3, "in use: another program has locked it", *create)
        machine.weft(*create)


def swapped_to():
    if os.geteuid():
        raise Skip("only root swaps")
    with Machine(disks=1, pool=False) as machine:
        path = machine.path("some swap")
        with open(path, "wb") as file:
            file.write(bytes(16 * MIB))
        os.chmod(path, 0o600)
        run("mkswap", path)
        swapping = subprocess.run(["swapon", "--priority", "0", path], capture_output=True, text=True)
        if swapping.returncode:
            raise Skip(f"nothing can be swapped to here: {swapping.stderr.strip()}")
        try:
            for more in ([], ["--dry-run"]):
                create = ["pool", "create", "q", path, "--force", *more]
                assert refused(machine, 3, "in use: the system swaps to it", *create) == "swapon --show"
        finally:
            run("swapoff", path)
        assert "--force" in refused(machine, 3, "holds swap space", "pool", "create", "q", path)


def socket_mode():
    with Machine(disks=3, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB")
        path = machine.path("nbd.sock")
        mode = lambda: stat.S_IMODE(os.stat(path).st_mode)
        machine.weft("export", "add", "p/v", "--nbd", f"unix:{path}")
        assert mode() == 0o600, oct(mode())
        machine.weft("export", "remove", "p/v")
        owner = f"{os.getuid()}:{os.getgid()}"
        machine.weft("export", "add", "p/v", "--nbd", f"unix:{path}", "--mode", "660", "--owner", owner)
        assert mode() == 0o660, oct(mode())
        machine.kill()
        machine.serve()
        assert mode() == 0o660, oct(mode())
        for wrong in (["--mode", "999"], ["--mode", "0"], ["--owner", "nobody-of-that-name"]):
            refused(machine, 2, wrong[0], "export", "add", "p/v", "--nbd", f"unix:{path}2", "--shared", *wrong)


def same_path():
    with Machine(disks=4, size="128MiB") as machine:
        machine.vdisk("v", 64 * MIB, "--resiliency", "parity", "--columns", "3")
        with open(machine.path("file"), "wb") as file:
            file.write(os.urandom(32 * MIB))
        run("nbdcopy", "--flush", machine.path("file"), machine.uri("v"))
        os.remove(machine.disk(0))
        machine.until("missing", "disk", "show", "p/d0", holds=lambda disk: disk["state"] == "missing")
        with open(machine.disk(0), "wb") as file:
            file.truncate(128 * MIB)
        machine.weft("disk", "replace", "p", "d0", machine.disk(0), "--wait")
        machine.sound()
        names = [disk["name"] for disk in machine.json("pool", "show", "p")["disks"]]
        assert len(names) == 4, names


def truncated():
    with Machine(disks=4, size="128MiB") as machine:
        machine.vdisk("v", 64 * MIB, "--resiliency", "parity", "--columns", "3")
        with open(machine.path("file"), "wb") as file:
            file.write(os.urandom(32 * MIB))
        run("nbdcopy", "--flush", machine.path("file"), machine.uri("v"))
        machine.stop()
        os.truncate(machine.disk(1), 100 * MIB)
        machine.serve()
        machine.until("open", "pool", "list", holds=lambda pools: [pool["name"] for pool in pools] == ["p"])
        run("nbdcopy", machine.uri("v"), machine.path("out"))
        with open(machine.path("file"), "rb") as a, open(machine.path("out"), "rb") as b:
            assert a.read() == b.read(32 * MIB)
        machine.weft("export", "remove", "p/v")
        machine.weft("pool", "export", "p")
        machine.weft("pool", "import", "p")
        machine.weft("disk", "replace", "p", "d1", machine.path("n"), "--create-size", "128MiB", "--wait")
        machine.sound()


def newest():
    with Machine(disks=3, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB")
        machine.weft("vdisk", "create", "p/w", "--size", "64MiB")
        told = machine.weft("events", "--count", "1")
        assert "vdisk p/w created" in told, told
        told = machine.weft("events", "p", "--count", "2").splitlines()
        assert len(told) == 2 and "p/v" in told[0] and "p/w" in told[1], told


def overcommit():
    with Machine(disks=3, size="128MiB") as machine:
        told = machine.weft("vdisk", "create", "p/v", "--size", "10TiB")
        assert "more than the pool has room for" in told, told
        told = machine.weft("pool", "show", "p")
        assert re.search(r"promised .* more than there is room for", told), told
        assert machine.json("pool", "show", "p")["promised"] >= 15 << 40


def beyond_room():
    with Machine(disks=3, size="128MiB") as machine:
        free = os.statvfs(machine.dir)
        size = free.f_bavail * free.f_frsize * 2 // (1 << 30)
        told = machine.weft("pool", "create", "q", machine.path("q0"), "--create-size", f"{size}GiB", "--dry-run")
        assert "free" in told and "file system" in told, told


def claimed():
    """Another process holds one of the disks when the daemon starts: the others are enough, and it is used when it is free."""
    with Machine(disks=4, size="128MiB") as machine:
        machine.vdisk("v", 64 * MIB, "--resiliency", "parity", "--columns", "3")
        machine.stop()
        with open(machine.disk(1), "r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            machine.serve()
            machine.until("open", "pool", "list", holds=lambda pools: [pool["name"] for pool in pools] == ["p"])
            assert machine.json("disk", "show", "p/d1")["state"] == "missing"
        machine.until("back", "disk", "show", "p/d1", holds=lambda disk: disk["state"] == "healthy")


def job_names():
    with Machine(disks=4, size="128MiB") as machine:
        machine.weft("vdisk", "create", "p/v", "--size", "64MiB", "--resiliency", "parity", "--columns", "3")
        machine.weft("disk", "remove", "p", "d3", "--wait")
        machine.weft("disk", "add", "p", machine.path("other"), "--create-size", "128MiB")
        machine.weft("scrub", "p", "--wait")
        seen = lambda: [(job["job"], job["name"], job["state"], job["done"], job["total"]) for job in machine.json("job", "list", "p")]
        before = seen()
        assert ("p/1", "remove disk d3") in [job[:2] for job in before], before
        machine.stop()
        machine.serve()
        assert seen() == before, (before, seen())


def no_room():
    with Machine(disks=3, size="48MiB", slab="1MiB") as machine:
        machine.vdisk("v", 512 * MIB, "--resiliency", "simple", "--columns", "3")
        with open(machine.path("file"), "wb") as file:
            file.write(os.urandom(200 * MIB))
        ran = subprocess.run(["nbdcopy", machine.path("file"), machine.uri("v")], capture_output=True, text=True)
        assert ran.returncode != 0, "there was room"
        told = [line for line in machine.events().splitlines() if "no space left" in line]
        assert len(told) == 1 and "! p: " in told[0] and "p/v" in told[0], told
        machine.kill()
        assert [line for line in machine.log if line.startswith("weft: pool p: ") and "no space left" in line], machine.log


def folded():
    """A thousand blocks of one disk are wrong: that is told, and what else happened is still there to be read."""
    with Machine(disks=4, size="128MiB") as machine:
        machine.vdisk("v", 64 * MIB, *PARITY)
        with open(machine.path("file"), "wb") as file:
            file.write(os.urandom(64 * MIB))
        run("nbdcopy", "--flush", machine.path("file"), machine.uri("v"))
        machine.stop()
        with open(machine.disk(2), "r+b") as disk:
            for at in range(14 * MIB, 36 * MIB, 16384):
                disk.seek(at)
                disk.write(os.urandom(4096))
        machine.serve()
        machine.weft("scrub", "p", "--wait")
        machine.until("told", "pool", "show", "p", holds=lambda _: "more checksum mismatches" in machine.events())
        single = [line for line in machine.events().splitlines() if "checksum mismatch" in line and "more" not in line]
        assert 1 <= len(single) <= 30, (len(single), single[:3])


def full_below():
    """The file system below the disks is smaller than they are and full: writes wait, no disk is to blame, and all is well when it has room."""
    if os.geteuid():
        raise Skip("only root mounts a small file system")
    with Machine(disks=3, pool=False) as machine:
        below = machine.path("below")
        os.mkdir(below)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600M", "tmpfs", below]).returncode:
            raise Skip("no tmpfs can be mounted here")
        try:
            with open(os.path.join(below, "ballast"), "wb") as ballast:
                ballast.write(b"x" * (500 * MIB))
            disks = [os.path.join(below, f"f{n}") for n in range(3)]
            told = machine.weft("pool", "create", "p", *disks, "--create-size", "256MiB", "--slab-size", "4MiB")
            assert "file system" in told, told
            machine.vdisk("v", 256 * MIB, "--resiliency", "parity", "--columns", "3")
            with open(machine.path("file"), "wb") as file:
                file.write(os.urandom(100 * MIB))
            copy = subprocess.Popen(["nbdcopy", "--flush", machine.path("file"), machine.uri("v")], stderr=subprocess.DEVNULL)
            full = machine.until("full", "pool", "show", "p", holds=lambda pool: any(disk["out_of_room"] for disk in pool["disks"]))
            told = [one for one in machine.json("status")["attention"] if "file system of its file is full" in one["message"]]
            assert told or not any(disk["out_of_room"] for disk in machine.json("pool", "show", "p")["disks"]), machine.weft("status")
            os.remove(os.path.join(below, "ballast"))
            machine.until("well", "pool", "show", "p", holds=lambda pool: pool["health"] == "healthy"
                          and all(job["state"] not in ("waiting", "running") for job in pool["jobs"]))
            copy.wait(timeout=60)
            assert [disk["usage"] for disk in machine.json("pool", "show", "p")["disks"]] == ["auto"] * 3
            if machine.json("vdisk", "show", "p/v").get("failure"):
                machine.weft("vdisk", "clear", "p/v", "--yes")
            run("nbdcopy", "--flush", machine.path("file"), machine.uri("v"))
            machine.sound()
            return f"{sum(disk['out_of_room'] for disk in full['disks'])} disks had none"
        finally:
            machine.kill()
            subprocess.run(["umount", below], check=True)


def dry_pool():
    with Machine(disks=1, pool=False) as machine:
        for more in (["--create-size", "16MiB"], ["--create-size", "64MiB", "--slab-size", "32MiB"]):
            line = ["pool", "create", "q", machine.path("new"), *more]
            dry, wet = machine.ran(*line, "--dry-run"), machine.ran(*line)
            assert dry.returncode == wet.returncode, (line, dry.stdout, dry.stderr, wet.stderr)


def hints():
    with Machine(disks=1, pool=False) as machine:
        machine.weft("pool", "create", "duo", machine.path("d"), "--create-size", "128MiB", "--slab-size", "4MiB")
        for line in (["pool", "set", "duo"], ["disk", "add", "duo"], ["vdisk", "create", "duo/v"], ["export", "add", "duo/v"],
                     ["disk", "remove", "duo"], ["pool", "rename", "duo"]):
            hint = refused(machine, 2, "", *line)
            # What is meant, or what could be: never an example, which is about something else.
            assert "tank" not in hint and ("duo" in hint or hint.endswith(" --help")), (line, hint)


def back_after_degraded():
    """Two of three disks are gone, the pool is opened by the last one, and they come back."""
    with Machine(disks=3, size="128MiB") as machine:
        machine.vdisk("v", 64 * MIB, "--resiliency", "mirror", "--copies", "3", "--columns", "1")
        with open(machine.path("file"), "wb") as file:
            file.write(os.urandom(16 * MIB))
        run("nbdcopy", "--flush", machine.path("file"), machine.uri("v"))
        machine.stop()
        for n in (1, 2):
            os.rename(machine.disk(n), machine.path(f"away{n}"))
        machine.serve()
        # The export waits for its pool, and is not to be removed.
        told = concern(machine, "export p/v")
        assert "pool p is not open" in told["message"] and told["hint"] == concern(machine, "pool p")["hint"], told
        machine.weft("pool", "import", "p", "--degraded", "--yes")
        for n in (1, 2):
            os.rename(machine.path(f"away{n}"), machine.disk(n))
        machine.until("whole", "pool", "show", "p", holds=lambda pool: all(disk["state"] == "healthy" for disk in pool["disks"]))
        assert "but:" not in machine.events(), machine.events()
        machine.sound()
