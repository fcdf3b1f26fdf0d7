"""A block device as a disk, by either back end: the test of crates/host/tests/host/disks.rs that overwrites one."""

import glob
import os
import subprocess
import tempfile

from files import MIB
from machine import run
from report import Case, Skip

TEST = "disks::a_block_device_is_claimed_read_written_flushed_and_discarded"


def cases(scale):
    return [Case("a block device as a disk", lambda reporter, rng: reporter.check("", disk), ("losetup",))]


def disk():
    beside = os.path.join(os.path.dirname(os.environ["WEFT"]), "deps", "host-*")
    tests = [path for path in glob.glob(beside) if os.access(path, os.X_OK)]
    if not tests:
        raise Skip("the tests of the disks are not built: `make test` builds them")
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(64 * MIB)
        device = run("losetup", "--find", "--show", "--direct-io=on", file.name).strip()
        try:
            ran = subprocess.run([max(tests, key=os.path.getmtime), "--exact", TEST], capture_output=True, text=True,
                                 env={**os.environ, "WEFT_TEST_BLOCK_DEVICE": device})
        finally:
            run("losetup", "--detach", device)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr
