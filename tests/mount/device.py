"""A block device as a disk, by either back end: the test of crates/host/tests/host/disks.rs that overwrites one. And
devices that tell how much of their lives is used."""

import glob
import json
import os
import subprocess
import tempfile

from files import MIB
from machine import Machine, run
from report import Case, Skip

TEST = "disks::a_block_device_is_claimed_read_written_flushed_and_discarded"


def cases(scale):
    checks = {"a block device as a disk": disk, "a solid-state disk that is nearly worn out": worn}
    return [Case(name, lambda reporter, rng, check=check: reporter.check("", check), ("losetup",))
            for name, check in checks.items()]


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


class Told(Machine):
    """A machine whose disks tell of their lives what a file says: a `smartctl` of its own prints that."""

    def env(self):
        tools = self.path("tools")
        if not os.path.isdir(tools):
            os.mkdir(tools)
            self.tell(91)
            with open(os.path.join(tools, "smartctl"), "w") as script:
                script.write(f"#!/bin/sh\ncat {tools}/said\n")
            os.chmod(script.name, 0o755)
        return {**super().env(), "PATH": f"{tools}:{os.environ['PATH']}"}

    def tell(self, used):
        log = {"percentage_used": used, "data_units_written": 2_000_000}
        with open(self.path("tools/said"), "w") as said:
            json.dump({"power_on_time": {"hours": 8766}, "nvme_smart_health_information_log": log}, said)


def worn():
    with Told(disks=3, size="64MiB", pool=False) as machine:
        devices = []
        try:
            for path in machine.disk_files():
                with open(path, "wb") as file:
                    file.truncate(64 * MIB)
                devices.append(run("losetup", "--find", "--show", path).strip())
            machine.weft("pool", "create", "p", *devices, "--slab-size", "4MiB")
            names = [disk["name"] for disk in machine.json("pool", "show", "p")["disks"]]
            for name in names:
                machine.weft("disk", "set", "p", name, "media=ssd")
            told = machine.until("told", "status", holds=lambda status: len(status["attention"]) == 3)["attention"]
            assert [one["subject"] for one in told] == [f"disk p/{name}" for name in names], told
            says = "91 % of its life is used, about 0.1 years are left"
            assert all(one["message"].startswith(says) for one in told), told
            assert told[1]["hint"] == f"weft disk replace p {names[1]} DISK", told
            assert machine.events().count("has used 91 % of its life") == 3, machine.events()
            machine.tell(12)
            shown = machine.json("disk", "show", f"p/{names[1]}")["wear"]
            assert (shown["used_percent"], shown["written_bytes"]) == (12, 1_024_000_000_000), shown
            machine.stop()
        finally:
            for device in devices:
                run("losetup", "--detach", device)
