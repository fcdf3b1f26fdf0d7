"""Two of four disks of a mirror are away that held some of its data alone, and the pool is open: what its client writes
in part lies above what nobody can read, and waits in the log for the disks. Nobody waits for ever meanwhile."""

import itertools
import threading
import time

import machine as machines
from outage import Crowd
from report import Case

# For how long the client goes on: the log is full long before.
WORK = 30


def cases(long):
    if not long:
        return []
    return [Case("lacking: both copies of some data are away, and its client goes on",
                 lambda reporter, rng: reporter.check("", both_copies, rng), ("nbdsh", "nbdcopy"))]


class Lacking(Crowd):
    """Clients wait for disks for two seconds."""

    def serve(self, disks=None, more=(), group=None):
        with open(self.path("weft.toml"), "w") as file:
            file.write('wait.frozen = "2s"\n')
        super().serve(disks, [*more, "--config", self.path("weft.toml")], group)

    def health(self):
        return self.json("vdisk", "show", "p/busy")["health"]

    def lose_both_copies(self):
        """Takes out two disks, one after the other, so that the pool stays open, without which some data is lost."""
        pairs = list(itertools.combinations(range(4), 2))
        self.rng.shuffle(pairs)
        for pair in pairs:
            for n in pair:
                self.leave([n])
                self.until_noticed()
                time.sleep(1.2)
            if self.health() == "failed":
                return
            self.come_back(list(pair))
            self.heals()
        raise AssertionError("no two disks hold anything alone")


def both_copies(rng):
    with Lacking("mirror 2 on 4, one column", rng) as crowd:
        crowd.busy()
        time.sleep(1)
        crowd.rest()
        crowd.lose_both_copies()
        crowd.busy()
        time.sleep(WORK)
        rests = threading.Thread(target=crowd.rest)
        rests.start()
        rests.join(machines.PATIENCE)
        assert not rests.is_alive(), f"the client waits for an answer:\n{crowd.weft('status')}"
        before = written(crowd)
        time.sleep(10)
        wrote = written(crowd) - before
        assert wrote < 64 << 20, f"{wrote} bytes were written while nobody asked for any"
        crowd.told()
        crowd.come_back(crowd.gone[:])
        crowd.whole()


def written(crowd):
    """Bytes that were written to the disks that are there."""
    return sum(disk["counters"]["written_bytes"] for disk in crowd.json("pool", "show", "p")["disks"])
