"""What the demo and the benchmark share: a weft daemon on disk files, real data, and raw files to compare with.

Standard library only. Paths stay relative to the repository, which is the working directory: a unix socket's path may
not be longer than 107 bytes, wherever the clone lies.
"""

import hashlib
import json
import mmap
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

MIB = 1 << 20
# Where cargo puts what it builds, seen from the repository.
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or "target")
WEFT = TARGET / "release" / "weft"


class Trouble(Exception):
    """Something that a person must read; no traceback is wanted."""


class Daemon:
    """A `weft serve` with its files in one directory. It outlives this process unless it is stopped."""

    def __init__(self, home):
        self.home = Path(home)
        self.disks = self.home / "disks"
        self.socket = self.home / "weft.sock"
        self.nbd = self.home / "nbd.sock"
        self.log = self.home / "daemon.log"
        self.pidfile = self.home / "daemon.pid"
        self.process = None

    def start(self):
        """Returns when the daemon is ready; the seconds that took."""
        if len(os.fsencode(self.nbd.absolute())) > 107:
            raise Trouble(f"{self.nbd.absolute()} is too long for a unix socket; clone weft to a shorter path")
        begun = time.monotonic()
        told = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as log:
            line = [WEFT, "serve", "--state", self.home / "state", "--socket", self.socket, "--disks", self.disks]
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True)
        self.pidfile.write_text(f"{self.process.pid}\n")
        while b"weft: ready" not in self.log.read_bytes()[told:]:
            if self.process.poll() is not None or time.monotonic() - begun > 60:
                raise Trouble(f"the daemon does not start; {self.log} says\n{self.log.read_text()}")
            time.sleep(0.005)
        return time.monotonic() - begun

    def kill(self):
        """As a crash does: SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stops the daemon that the process id file names, if that is one of ours and still runs."""
        try:
            pid = int(self.pidfile.read_text())
            line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return
        if line[1:2] != [b"serve"] or os.fsencode(self.socket) not in line:
            return
        os.kill(pid, signal.SIGTERM)
        begun = time.monotonic()
        while is_running(pid):
            if time.monotonic() - begun > 30:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def weft(self, *args):
        """A command that must work; its value."""
        line = [WEFT, "--socket", self.socket, "--json", *args]
        ran = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if ran.returncode != 0:
            raise Trouble(f"weft {' '.join(map(str, args))} failed: {ran.stderr or ran.stdout}")
        return json.loads(ran.stdout)

    def events(self, pool):
        """What happened, oldest first. Events are printed one to a line."""
        line = [WEFT, "--socket", self.socket, "--json", "events", pool]
        return [json.loads(event) for event in subprocess.check_output(line, text=True).splitlines()]

    def uri(self, vdisk):
        return f"nbd+unix:///{vdisk}?socket={self.nbd}"

    def counters(self, vdisk):
        return self.weft("vdisk", "show", vdisk)["counters"]

    def until(self, what, holds, *command):
        """Waits until the value of a command is as it must become; that value."""
        begun = time.monotonic()
        while not holds(value := self.weft(*command)):
            if time.monotonic() - begun > 60:
                raise Trouble(f"waited a minute for this: {what}")
            time.sleep(0.02)
        return value


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def nbdcopy(*args):
    """A copy that must work; its seconds."""
    begun = time.monotonic()
    ran = subprocess.run(["nbdcopy", *args], capture_output=True, text=True)
    if ran.returncode != 0:
        raise Trouble(f"nbdcopy {' '.join(map(str, args))} failed: {ran.stderr}")
    return time.monotonic() - begun


def real_data(paths, size):
    """Fills each of `paths` with a tar of about `size` bytes of programs, libraries and documents of this machine; the
    number of files in all. No two of the tars hold the same file."""
    found, count = files_of_this_machine(), 0
    for path in paths:
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
            while tar.offset < size and (file := next(found, None)):
                if file.stat().st_size > size - tar.offset:
                    continue
                try:
                    tar.add(file, recursive=False)
                    count += 1
                except OSError:
                    continue
            if tar.offset < 16 * MIB:
                raise Trouble(f"this machine has too few files in /usr and {TARGET}/ to make data of")
    return count


def files_of_this_machine():
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True).stdout.strip()
    for top in filter(None, ["/usr/lib", "/usr/bin", "/usr/share", TARGET / "release/deps", sysroot]):
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                    yield path


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_vdisk(uri, size):
    """The digest of the first `size` bytes a client reads."""
    digest, left = hashlib.sha256(), size
    with subprocess.Popen(["nbdcopy", uri, "-"], stdout=subprocess.PIPE) as copy:
        while chunk := copy.stdout.read(MIB):
            digest.update(chunk[:left])
            left -= min(left, len(chunk))
    if copy.returncode != 0 or left:
        raise Trouble(f"reading {uri} back failed")
    return digest.hexdigest()


class RawFiles:
    """Plain files written and read all at once, whole, past the page cache where the file system can: what the disks
    below weft can do at best. Each file gets `size` bytes, cut from `source`."""

    DEPTH = 4

    def __init__(self, folder, source, size, files=4):
        self.paths = [Path(folder, f"raw-{n}") for n in range(1, files + 1)]
        self.size = size // MIB * MIB
        self.source = os.open(source, os.O_RDONLY)
        self.source_size = os.fstat(self.source).st_size // MIB * MIB

    def write(self):
        """MB/s of all files together, made durable."""
        return self.all_at_once(os.O_RDWR | os.O_CREAT, self.write_chunk)

    def read(self):
        """MB/s of all files together."""
        return self.all_at_once(os.O_RDONLY, self.read_chunk)

    def remove(self):
        os.close(self.source)
        for path in self.paths:
            path.unlink(missing_ok=True)

    def all_at_once(self, flags, chunk):
        fds = [open_direct(path, flags) for path in self.paths]
        for fd in fds:
            # What could not be opened past the cache is at least not in it.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        failed = []

        def work(file, first):
            try:
                buffer = mmap.mmap(-1, MIB)
                for at in range(first * MIB, self.size, self.DEPTH * MIB):
                    chunk(fds[file], file, at, buffer)
            except OSError as why:
                failed.append(why)

        threads = [threading.Thread(target=work, args=(n, d)) for n in range(len(fds)) for d in range(self.DEPTH)]
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for fd in fds:
            os.fsync(fd)
        seconds = time.monotonic() - begun
        for fd in fds:
            os.close(fd)
        if failed:
            raise Trouble(f"the raw files fail: {failed[0]}")
        return self.size * len(fds) / seconds / 1e6

    def write_chunk(self, fd, file, at, buffer):
        os.preadv(self.source, [buffer], (file * self.size + at) % self.source_size)
        os.pwritev(fd, [buffer], at)

    def read_chunk(self, fd, _file, at, buffer):
        os.preadv(fd, [buffer], at)


def open_direct(path, flags):
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644)
    except OSError:
        return os.open(path, flags, 0o644)


def run(main):
    """Runs `main`; what a person must read goes to stderr without a traceback."""
    try:
        main()
    except Trouble as why:
        print(f"\n{why}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\ninterrupted; `make demo-clean` cleans up", file=sys.stderr)
        sys.exit(130)
