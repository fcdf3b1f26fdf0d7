"""Runs the cases and says how they went."""

import argparse
import collections
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Skip(Exception):
    """What a case needs is not there."""


class Case:
    """A group of checks that share a machine. `body(reporter, rng)` reports each of them under its own name.

    A sample has one of those that are `alike`, by the same word.
    """

    def __init__(self, name, body, needs=(), alike=None):
        self.name, self.body, self.needs, self.alike = name, body, needs, alike


class Reporter:
    """Counts what passed, and prints one line for each."""

    def __init__(self, group, total):
        self.group, self.total = group, total

    def check(self, name, body, *args):
        """Carries out one check; a failure is told and does not stop the others. Says whether it passed."""
        name = f"{self.group}: {name}" if name else self.group
        begun = time.monotonic()
        try:
            note = body(*args)
        except Skip as skip:
            required = os.environ.get("WEFT_REQUIRE_CLIENTS") == "1"
            self.line("FAIL" if required else "SKIP", name, str(skip))
            return False
        except Exception as error:  # a check may fail in any way; the next one still counts
            self.line("FAIL", name, describe(error) + last_words(args))
            return False
        took = f"{time.monotonic() - begun:.1f} s"
        self.line("ok", name, f"{note}, {took}" if isinstance(note, str) else took)
        return True

    def line(self, verdict, name, words):
        self.total[verdict] += 1
        print(f"{verdict:4} {name} ({words})" if "\n" not in words else f"{verdict:4} {name}\n{words}", flush=True)


def last_words(args):
    """What the daemon of the machine that is among `args` said last."""
    machines = [getattr(arg, "machine", arg) for arg in args]
    machine = next((machine for machine in machines if getattr(machine, "daemon", None)), None)
    if machine is None:
        return ""
    lines = machine.log[-8:] + [line for args in (("pool", "list"), ("events",)) for line in machine.ran(*args).stdout.splitlines()[-12:]]
    return "".join("\n     > " + line for line in lines)


def describe(error):
    where = traceback.extract_tb(error.__traceback__)[-1]
    lines = [f"{type(error).__name__} at {os.path.basename(where.filename)}:{where.lineno}"]
    lines += str(error).strip().splitlines()
    return "\n".join("     | " + line for line in lines)


def main(cases):
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--list", action="store_true", help="print the names of the groups and stop")
    parser.add_argument("--keep", action="store_true", help="keep the directories of the machines")
    parser.add_argument("--long", action="store_true", help="every outage, not a sample: an hour; all hostile input: some minutes")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier run")
    parser.add_argument("--beside", type=int, default=1, help="run so many groups side by side")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(case.name for case in cases))
        return 0
    build()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    os.environ["WEFT_INTEROP_DIR"] = scratch = tempfile.mkdtemp(prefix="weft-interop-")
    cases = [case for case in cases if any(word in case.name for word in asked.words)] if asked.words else sample(cases)
    total = collections.Counter()
    try:
        for verdicts in results(cases, seed, asked.beside):
            total.update(verdicts)
    finally:
        if asked.keep:
            print(f"kept {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"{total['ok']} passed, {total['FAIL']} failed, {total['SKIP']} skipped")
    return 1 if total["FAIL"] or not total["ok"] else 0


def sample(cases):
    """All of them; with WEFT_SAMPLE, the number of a part, one of those that are alike."""
    part = os.environ.get("WEFT_SAMPLE")
    if not part:
        return cases
    groups = collections.defaultdict(list)
    for case in cases:
        groups[case.alike or case.name].append(case)
    chosen = [group[int(part) % len(group)] for group in groups.values()]
    left = [case.name for case in cases if case not in chosen]
    print(f"part {part}: {len(left)} groups are left to other parts: {'; '.join(left)}", flush=True)
    return chosen


def results(cases, seed, beside):
    """Carries out the cases, `beside` of them at once; how often each verdict was given, case by case."""
    if beside == 1:
        yield from (carry_out(case, seed) for case in cases)
        return
    # A process each: cases change their environment. They are inherited, for they cannot be sent.
    global inherited
    inherited = cases, seed
    with multiprocessing.get_context("fork").Pool(beside, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(carry_out_inherited, range(len(cases)), chunksize=1)


def carry_out_inherited(number):
    cases, seed = inherited
    return carry_out(cases[number], seed)


def carry_out(case, seed):
    """Carries out one case; how often each verdict was given."""
    total = collections.Counter()
    reporter = Reporter(case.name, total)
    missing = [tool for tool in case.needs if shutil.which(tool) is None]
    if missing:
        reporter.check("", absent, missing)
        return total
    rng = random.Random(seed ^ zlib.crc32(case.name.encode()))
    # What a group does besides its checks (making its machine) counts only when it fails.
    try:
        case.body(reporter, rng)
    except Skip as skip:
        reporter.check("", absent, [str(skip)])
    except Exception as error:
        reporter.line("FAIL", case.name, describe(error))
    return total


def absent(missing):
    raise Skip(f"NOT INSTALLED: {', '.join(missing)}")


def build():
    """Makes sure that WEFT names a binary."""
    if not os.environ.get("WEFT"):
        subprocess.run(["cargo", "build", "--profile", "proof", "-p", "weft-host"], cwd=ROOT, check=True)
        os.environ["WEFT"] = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR") or "target", "proof", "weft")
    os.environ["WEFT"] = os.path.abspath(os.environ["WEFT"])
