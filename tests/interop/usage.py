"""Wrong usage: the exit code, one line with what was wrong, one `try:` line with a command that works, and nothing changed."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

from machine import MIB, Machine, run
from report import ROOT, Case

# The command, the exit code, what its message must say. {NAME} is a file of the machine.
WRONG = [
    # Sizes and numbers
    ("vdisk create p/n --size 10XB", 2, r"10XB"),
    ("vdisk create p/n --size 0", 2, r"4KiB to 64PiB"),
    ("vdisk create p/n --size 1000", 2, r"4KiB to 64PiB"),
    ("vdisk create p/n --size -1GiB", 2, r""),
    ("vdisk create p/n --size 100PiB", 2, r"4KiB to 64PiB"),
    ("vdisk create p/n --size 8MiB --sector 4096 --size 1", 2, r""),
    ("vdisk create p/n --size 120%", 2, r"100"),
    ("vdisk create p/n", 2, r"--size"),
    ("vdisk create p/n --size", 2, r"lacks its value"),
    ("vdisk create p/n --size 1MiB --interleave 5KiB", 2, r"multiples of 4KiB from 4KiB to 4MiB"),
    ("vdisk create p/n --size 1MiB --interleave 0", 2, r"4KiB to 4MiB"),
    ("vdisk create p/n --size 1MiB --interleave 8MiB", 2, r"4KiB to 4MiB"),
    ("vdisk create p/n --size 1MiB --columns 0", 2, r"1 to 32"),
    ("vdisk create p/n --size 1MiB --columns 33", 2, r"1 to 32"),
    ("vdisk create p/n --size 1MiB --columns four", 2, r"four"),
    ("vdisk create p/n --size 1MiB --resiliency mirror --copies 4", 2, r"2 to 3"),
    ("vdisk create p/n --size 1MiB --resiliency mirror --copies 1", 2, r"2 to 3"),
    ("vdisk create p/n --size 1MiB --resiliency parity --failures 3", 2, r"1 to 2"),
    ("vdisk create p/n --size 1MiB --resiliency raid6", 2, r"simple, mirror, parity"),
    ("vdisk create p/n --size 1MiB --sector 1000", 2, r"512 and 4096"),
    ("vdisk create p/n --size 1MiB --thin --fixed", 2, r"exclude"),
    ("vdisk create p/n --size 1MiB --resiliency parity --columns 2", (2, 3), r"3"),
    ("vdisk create p/n --size 1MiB --resiliency parity --failures 2 --columns 3", (2, 3), r"4"),
    ("vdisk create p/n --size 1MiB --resiliency parity --copies 2", 2, r"copies"),
    ("vdisk create p/n --size 1MiB --resiliency simple --failures 1", 2, r"failure"),
    ("vdisk create p/n --size 4097 --sector 4096", 2, r"4KiB"),
    # Names
    ("vdisk create n --size 1MiB", 2, r"POOL/"),
    ("vdisk create p/-x --size 1MiB", 2, r"name"),
    ("vdisk create p/a/b --size 1MiB", 2, r""),
    (f"vdisk create p/{'x' * 60} --size 1MiB", 2, r"48"),
    ("vdisk create p/v --size 1MiB", 3, r"p/v"),
    ("vdisk create nope/v --size 1MiB", 4, r"nope"),
    # Room and disks
    ("vdisk create p/n --size 1MiB --resiliency parity --columns 5", 3, r"4 disks|5"),
    ("vdisk create p/n --size 1MiB --resiliency mirror --copies 3 --columns 2", 3, r"6|4"),
    ("vdisk create p/n --size 1TiB --fixed", 5, r""),
    ("vdisk create p/n --size 1MiB --disks d0,d9", 4, r"d9"),
    ("vdisk resize p/v 1MiB", 3, r"grow|shrink|smaller"),
    ("vdisk resize p/v 100PiB", 2, r"64PiB"),
    ("vdisk resize p/v big", 2, r"big"),
    ("vdisk resize p/nope 1GiB", 4, r"nope"),
    ("vdisk resize p/fixed 1TiB", 5, r""),
    ("vdisk remove p/nope --yes", 4, r"nope"),
    ("vdisk remove p/v --yes", 3, r"offered|export"),
    ("vdisk remove p/fixed", (2, 3), r"--yes|yes"),
    ("vdisk show p/nope", 4, r"nope"),
    ("vdisk list nope", 4, r"nope"),
    # Pools
    ("pool create p {new1} --create-size 64MiB", 3, r"pool named p"),
    ("pool create q {d0}", 3, r"in use.*disk d0 of pool p"),
    ("pool create q {d0} --force", 3, r"in use.*disk d0 of pool p"),
    ("pool create q {ext4}", 3, r"ext4.*--force"),
    ("pool create q {ext4} {new1} --create-size 256MiB", 3, r"ext4.*--force"),
    ("pool create q {labelled}", 3, r"pool gone.*--force|holds"),
    ("pool create q {blank} {blank}", 2, r"same disk"),
    ("pool create q {blank} {link}", 2, r"same disk"),
    ("pool create q {new1}", 4, r"new1"),
    ("pool create q {dir}", 3, r"no disk"),
    ("pool create q {none/new} --create-size 64MiB", 4, r"directory"),
    ("pool create q {tiny}", (2, 3), r"too small|at least"),
    ("pool create q {new1} --create-size 64MiB --slab-size 3000KiB", 2, r"1MiB to 1GiB"),
    ("pool create q {new1} --create-size 64MiB --slab-size 2GiB", 2, r"1MiB to 1GiB"),
    ("pool create q {new1} --create-size 8MiB", (2, 3, 5), r"at least|small"),
    ("pool create q {new1} --create-size lots", 2, r"lots"),
    ("pool create q", 2, r"DISK"),
    ("pool create q/x {new1} --create-size 64MiB", 2, r"name"),
    ("pool create q {many} --create-size 64MiB", 2, r"64"),
    ("pool remove p --yes", 3, r"offered"),
    ("pool remove spare", (2, 3), r"--yes|yes"),
    ("pool remove nope --yes", 4, r"nope"),
    ("pool show nope", 4, r"nope"),
    ("pool check nope", 4, r"nope"),
    # Disks, exports, watching
    ("disk show nope", 4, r"nope"),
    ("disk list --pool nope", 4, r"nope"),
    # The life of a pool
    ("pool rename p", 2, r"NEW"),
    ("pool rename p a/b", 2, r"name"),
    ("pool rename p spare", 3, r"spare"),
    ("pool rename nope q", 4, r"nope"),
    ("pool set p", 2, r"KEY=VALUE"),
    ("pool set p repair-after=soon", 2, r"never"),
    ("pool set p scrub-every=1m", 2, r"1h"),
    ("pool set p foreground-share=95%", 2, r"0% to 90%"),
    ("pool set p full=90,80,70", 2, r"1 to 99"),
    ("pool set p colour=red", 2, r"repair-after, scrub-every, foreground-share, full"),
    ("pool set nope repair-after=5m", 4, r"nope"),
    ("pool import nope", 4, r"nope"),
    ("pool import --degraded", 2, r"POOL"),
    ("pool export nope", 4, r"nope"),
    ("pool export p", 3, r"offered"),
    ("vdisk rename p/v fixed", 3, r"fixed"),
    ("vdisk rename p/v w", 3, r"offered"),
    ("vdisk rename p/nope w", 4, r"nope"),
    ("vdisk rename p/fixed spare/w", 2, r"stays"),
    ("disk add p {ext4}", 3, r"ext4"),
    ("disk add p {labelled}", 3, r"gone"),
    ("disk add p {d0}", 3, r"disk d0 of pool p"),
    ("disk add p {d0} --force", 3, r"disk d0 of pool p"),
    ("disk add p {tiny}", 2, r"at least"),
    ("disk add p {blank} {link}", 2, r"same disk"),
    ("disk add p {new1}", 4, r"no disk"),
    ("disk add p {dir}", 3, r"no disk"),
    ("disk add p {blank} --usage hot", 2, r"auto, manual, spare, journal"),
    ("disk add p {blank} --usage retired", 2, r"retired"),
    ("disk add p {none/new} --create-size 64MiB", 4, r"no directory"),
    ("disk add nope {blank}", 4, r"nope"),
    ("disk remove p", 2, r"DISK"),
    ("disk remove p d9", 4, r"d0, d1, d2, d3"),
    ("disk remove p d1", 5, r"MiB"),
    ("disk replace p d1", 2, r"NEW"),
    ("disk replace p d9 {blank}", 4, r"d9"),
    ("disk replace p d1 d1", 3, r"d1"),
    ("disk replace p d1 {ext4}", 3, r"ext4"),
    ("disk replace p d1 {tiny}", 2, r"at least"),
    ("disk set p d1", 2, r"KEY=VALUE"),
    ("disk set p d1 usage=hot", 2, r"auto, manual, spare, journal, retired"),
    ("disk set p d1 media=tape", 2, r"hdd, ssd"),
    ("disk set p d1 name=d2", 3, r"d2"),
    ("disk set p d1 maintenance=yes", 2, r"on, off"),
    ("disk set p d9 usage=auto", 4, r"d9"),
    ("job show", 2, r"ID"),
    ("job show x", 2, r"POOL/N"),
    ("job show 99", 4, r"99"),
    ("job pause p/99", 4, r"99"),
    ("job resume nope/1", 4, r"nope"),
    ("job cancel", 2, r"ID"),
    ("job list nope", 4, r"nope"),
    ("scrub", 2, r"POOL"),
    ("scrub nope", 4, r"nope"),
    ("repair nope", 4, r"nope"),
    ("rebalance nope", 4, r"nope"),
    ("export add p/nope --nbd unix:{s.sock}", 4, r"nope"),
    ("export add p/v --nbd ftp:somewhere", 2, r"unix:|tcp:"),
    ("export add p/v --nbd tcp:127.0.0.1:99999", 2, r""),
    ("export add p/v --nbd tcp:127.0.0.1", 2, r""),
    ("export add p/v --nbd unix:relative.sock", 3, r"already.*--read-only.*--shared"),
    ("export add p/v --nbd tcp:0.0.0.0:10809", 3, r"--allow-any"),
    ("export add p/v --nbd tcp:127.0.0.1:10809 --mode 660", 2, r"--mode"),
    ("export add p/v --nbd unix:{s.sock} --mode 999", 2, r"600 to 777"),
    ("export add p/v --nbd unix:{s.sock} --owner nobody-of-that-name", 2, r"nobody-of-that-name"),
    ("export add p/v --nbd unix:{nbd.sock} --read-only", 3, r"already"),
    ("vdisk clear p/nope", 4, r"nope"),
    ("vdisk change p/nope --columns 3", 4, r"nope"),
    ("vdisk change p/v --columns 30", 3, r"disks"),
    ("vdisk change p/v --interleave 5KiB", 2, r"4KiB"),
    ("vdisk change p/v --resiliency simple --failures 1", 2, r"simple"),
    ("export add p/v --nbd unix:{blank}", 3, r"socket"),
    ("export add p/v --nbd unix:{none/s.sock}", 4, r"directory"),
    ("export add p/v", 2, r"--nbd"),
    ("export remove p/fixed", 4, r"not offered"),
    ("export remove p/v --nbd unix:{other.sock}", 4, r"not offered"),
    ("explain p/v read 64MiB 4KiB", (2, 3), r"64 ?MiB"),
    ("explain p/v write 0 100", 2, r"512"),
    ("explain p/v erase 0 4KiB", 2, r"read, write"),
    ("explain p/nope read 0 4KiB", 4, r"nope"),
    ("status nope", 4, r"nope"),
    ("stat nope", 4, r"nope"),
    ("stat p/nope", 4, r"nope"),
    ("stat --interval never", 2, r"never"),
    ("stat --count 3", 2, r"--interval"),
    ("events nope", 4, r"nope"),
    ("completions cobol", 2, r"bash"),
    ("man nope", (2, 4), r"nope"),
    # Command lines
    ("", 2, r""),
    ("pol list", 2, r"there is no `weft pol`"),
    ("vdisk creat p/n --size 1MiB", 2, r"creat"),
    ("vdisk list --everything", 2, r"--everything"),
    ("pool list --color sometimes", 2, r"auto, always, never"),
    ("pool list --quiet --verbose", 2, r"exclude"),
]
# Refused the second time only, or never: what must be taken.
RIGHT = [
    "vdisk create p/n --size 1MiB --interleave 24KiB --dry-run",
    "vdisk create p/n --size 1MiB --interleave 4MiB --dry-run",
    "vdisk create p/n --size 90% --fixed --dry-run",
    "pool create q {ext4} --force --slab-size 1MiB --dry-run",
    "pool create q {labelled} --force --slab-size 1MiB --dry-run",
    "pool create q {new1} --create-size 64MiB --slab-size 1MiB --dry-run",
    "export add p/v --nbd unix:{nbd.sock}",
    "pool rename spare q --dry-run",
    "pool set p repair-after=never full=60,70,80 --dry-run",
    "pool export spare --dry-run",
    "pool import",
    "pool import p",
    "disk add p {blank} --dry-run",
    "disk add p {new1} {new2} --create-size 64MiB --usage spare --dry-run",
    "disk add p {ext4} --force --dry-run",
    "disk replace p d1 {new1} --create-size 128MiB --dry-run",
    "disk set p d1 usage=retired media=ssd name=x domain=y --dry-run",
    "disk set p d1 usage=auto",
    "scrub p --dry-run",
    "repair p --dry-run --wait",
    "rebalance p --dry-run",
    "vdisk rename p/fixed other --dry-run",
    "vdisk remove p/fixed --dry-run",
]
# What needs no daemon to be refused is refused without one, too.
NEEDS_NONE = ("completions", "man")
# The verbs that change something.
CHANGING = ("create", "remove", "change", "resize", "add", "rename", "set", "import", "export", "replace", "pause", "resume", "cancel")


def cases():
    return [Case("wrong usage", story, ("mkfs.ext4",)),
            Case("make demo: what it runs lies where cargo puts it", lambda reporter, rng: reporter.check("", elsewhere))]


def elsewhere():
    scripts = os.path.join(ROOT, "scripts")
    line = [sys.executable, "-c", f"import sys; sys.path.insert(0, {scripts!r}); import rig; print(rig.WEFT)"]
    said = subprocess.run(line, env={**os.environ, "CARGO_TARGET_DIR": "/elsewhere"}, capture_output=True, text=True, check=True)
    assert said.stdout == "/elsewhere/release/weft\n", said.stdout


def story(reporter, rng):
    with Machine(disks=4, size="128MiB", slab="4MiB") as machine:
        prepare(machine)
        # What is new is looked at once it is idle; from then on nothing moves.
        machine.until("looked at", "vdisk", "list", holds=lambda all: not any(one["to_be_ordered"] for one in all))
        before, all_before = snapshot(machine), snapshot(machine, thorough=True)
        for line, code, says in WRONG:
            reporter.check(f"weft {line}"[:90], refused, machine, line, code, says, before)
        for line in RIGHT:
            reporter.check(f"taken: weft {line}"[:90], taken, machine, line, before)
        # Each waits for a daemon that may have been started just now.
        for line, _, _ in WRONG[::16]:
            if line and not line.startswith(NEEDS_NONE):
                reporter.check(f"no daemon: weft {line}"[:90], unreachable, machine, line)
        reporter.check("a second daemon on the same state", second_daemon, machine)
        reporter.check("in the end nothing has changed", lambda: same(machine, all_before, thorough=True))


def prepare(machine):
    machine.vdisk("v", 64 * MIB, "--resiliency", "parity", "--columns", "4")
    machine.weft("vdisk", "create", "p/fixed", "--size", "16MiB", "--fixed")
    machine.weft("pool", "create", "spare", machine.path("s0"), "--create-size", "64MiB", "--slab-size", "1MiB")
    sized(machine.path("ext4"), 64 * MIB)
    run("mkfs.ext4", "-q", "-F", machine.path("ext4"))
    sized(machine.path("blank"), 64 * MIB)
    sized(machine.path("tiny"), MIB)
    os.symlink(machine.path("blank"), machine.path("link"))
    os.mkdir(machine.path("dir"))
    # A disk of a pool that is not here: made, and its other half taken away.
    machine.weft("pool", "create", "gone", machine.path("labelled"), "--create-size", "64MiB", "--slab-size", "1MiB")
    run("cp", "--sparse=always", machine.path("labelled"), machine.path("copy"))
    machine.weft("pool", "remove", "gone", "--yes")
    os.rename(machine.path("copy"), machine.path("labelled"))


def sized(path, size):
    with open(path, "wb") as file:
        file.truncate(size)


def words(machine, line):
    """The words of a line, with the machine's files in it."""
    many = " ".join(machine.path(f"m{n}") for n in range(65))
    place = {f"d{n}": machine.disk(n) for n in range(4)} | {"many": many}
    return shlex.split(re.sub(r"\{(.+?)\}", lambda found: place.get(found[1], machine.path(found[1])), line))


def refused(machine, line, code, says, before):
    codes = code if isinstance(code, tuple) else (code,)
    ran = machine.ran(*words(machine, line))
    said = f"exit {ran.returncode}\n{ran.stdout}{ran.stderr}"
    assert ran.returncode in codes, f"exit {codes} expected; {said}"
    if ran.returncode == 0:
        machine.weft("export", "remove", "p/v", "--nbd", "unix:" + os.path.abspath("relative.sock"))
        return "taken"
    lines = ran.stderr.splitlines()
    assert not ran.stdout and len(lines) == 2, f"two lines on stderr expected; {said}"
    assert lines[0].startswith("weft: ") and lines[1].startswith("try: "), said
    assert re.search(says, lines[0]), f"`{says}` expected; {said}"
    as_json = machine.ran(*words(machine, line), "--json")
    assert as_json.returncode == ran.returncode, f"with --json: {as_json.returncode}\n{as_json.stdout}{as_json.stderr}"
    offered(machine, lines[1].removeprefix("try: "), said)
    same(machine, before)


def offered(machine, command, said):
    """Who does what is offered, and what is offered then, has a command that works after three steps: it is carried
    out here, dry where it changes something."""
    first = command
    for _ in range(3):
        line = shlex.split(command)
        # A template for a person, a command that does not end, or another program's.
        if line[0] != "weft" or line[1] == "serve" or "--interval" in line or "--follow" in line:
            return
        if any(word.isupper() and "/" not in word or "..." in word for word in line):
            return
        changes = line[1] in ("scrub", "repair", "rebalance") or len(line) > 2 and line[2] in CHANGING
        ran = machine.ran(*line[1:], *(["--dry-run"] if changes and "--help" not in line else []))
        # Examples speak of a pool `tank` that is not there: they must be right as command lines.
        if ran.returncode == 0 or any("tank" in word for word in line) and ran.returncode in (3, 4):
            return
        tries = [line for line in ran.stderr.splitlines() if line.startswith("try: ")]
        assert tries, f"`{command}` is offered, fails ({ran.returncode}) and offers nothing:\n{ran.stderr}"
        command = tries[0].removeprefix("try: ")
    raise AssertionError(f"`{first}` is offered and leads nowhere, at last to:\n{ran.stderr}\nfirst:\n{said}")


def taken(machine, line, before):
    machine.weft(*words(machine, line))
    same(machine, before)


def unreachable(machine, line):
    """Without a daemon: 7, or 2 where the line is wrong by itself; the same form."""
    env = {**machine.env(), "WEFT_SOCKET": machine.path("nobody.sock")}
    ran = subprocess.run([os.environ["WEFT"], *words(machine, line)], env=env, capture_output=True, text=True,
                         stdin=subprocess.DEVNULL)
    lines = ran.stderr.splitlines()
    said = f"exit {ran.returncode}\n{ran.stdout}{ran.stderr}"
    assert ran.returncode in (2, 7) and len(lines) == 2 and lines[1].startswith("try: "), said


def second_daemon(machine):
    ran = machine.ran("serve", "--state", machine.path("state"), "--disks", machine.disks_dir)
    assert ran.returncode not in (0, 2), ran.returncode
    lines = ran.stderr.splitlines()
    assert lines[-2].startswith("weft: ") and lines[-1].startswith("try: "), ran.stderr
    other = machine.ran("serve", "--state", machine.path("state2"), "--disks", machine.disks_dir)
    assert other.returncode not in (0, 2), "a second daemon took the socket"
    shutil.rmtree(machine.path("state2"), ignore_errors=True)


def snapshot(machine, thorough=False):
    """All that a command could have changed; of files their content only when `thorough`, else that they were not written to."""
    def still(value):
        if isinstance(value, dict):
            return {name: still(part) for name, part in value.items() if name not in MOVING}
        return [still(part) for part in value] if isinstance(value, list) else value
    answers = [still(machine.json(*line)) for line in
               (("pool", "list"), ("pool", "show", "p"), ("vdisk", "list"), ("disk", "list"), ("export", "list"),
                ("job", "list"))]
    files = {}
    for name in sorted(os.listdir(machine.dir)):
        path = machine.path(name)
        files[name] = content(path, thorough) if name in ("ext4", "labelled", "blank", "tiny") else os.path.isfile(path)
    return json.dumps([answers, files], indent=1, sort_keys=True)


# What moves by itself: the pool writes its events down a moment after they happened, and takes memory for that.
MOVING = ("counters", "open_nanos", "log_fill", "latency", "memory", "compaction")


def content(path, thorough):
    if not thorough:
        about = os.stat(path)
        return [about.st_size, about.st_mtime_ns, about.st_blocks]
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def same(machine, before, thorough=False):
    after = snapshot(machine, thorough)
    if after != before:
        pairs = zip(before.splitlines(), after.splitlines())
        raise AssertionError("changed: " + "; ".join(f"{a.strip()} -> {b.strip()}" for a, b in pairs if a != b))
