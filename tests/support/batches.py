"""Batches as the tests of crashes start them: small registries, drivers as processes, and ledgers.

Run by itself it prints how a batch bears being killed: ``python tests/support/batches.py [KILLS]``.
"""

import hashlib
import json
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

JOBS = 2
TIMES = {"seconds", "started", "attempts", "host", "output", "steps"}  # that no two runs share


def write_safetensors(path, seed, size=64):
    data = np.random.default_rng(seed).standard_normal(size).astype("<f4").tobytes()
    header = {"w": {"dtype": "F32", "shape": [size], "data_offsets": [0, len(data)]}}
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_registry(folder, count):
    """Make a registry of small artifacts, one in twenty of them damaged."""
    for i in range(count):
        path = folder / f"team{i % 5}" / f"model-{i:03}.safetensors"
        write_safetensors(path, i)
        if i % 20 == 7:
            path.write_bytes(path.read_bytes()[:-10])
    return folder


@dataclass
class Place:
    """A destination with all that a run may leave anything in: its parent, and TMPDIR."""

    root: Path
    registry: Path
    runs: int = 0
    more: tuple = ()

    def __post_init__(self):
        self.out = self.root / "out"
        self.ledger = self.root / "out.ledger.sqlite"
        self.temporary = self.root / "tmp"
        self.temporary.mkdir(parents=True)

    def command(self, *more):
        return [
            sys.executable, "-m", "converter", "batch", str(self.registry), "-o", str(self.out),
            "-j", str(JOBS), "-q", *self.more, *more,
        ]  # fmt: skip

    def start(self, *more, **about):
        self.runs += 1
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        about = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True} | about
        return subprocess.Popen(self.command(*more), env=environment, **about)

    def run(self, *more):
        """Run to the end; return the exit code and what was said."""
        child = self.start(*more)
        said = child.communicate(timeout=100)[1]
        assert "Traceback" not in said, said
        return child.returncode, said

    def outputs(self):
        """Return the digest of every file below the destination."""
        return {
            path.relative_to(self.out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.out.rglob("*"))
            if path.is_file()
        }

    def rows(self):
        """Return the ledger's rows by name, with nothing of times in them."""
        with closing(sqlite3.connect(self.ledger)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            rows = db.execute(
                "SELECT name, source, plan, token, digest, status, exit_code, error, ours, boot,"
                " record FROM outputs JOIN records USING(name)"
            ).fetchall()
            assert db.execute("SELECT * FROM claims").fetchall() == []
            assert db.execute("SELECT * FROM drivers").fetchall() == []
        known = {}
        for name, *row, record in rows:
            compared = {k: v for k, v in json.loads(record).items() if k not in TIMES}
            known[name] = (*row, compared)
        return known

    def inodes(self):
        """Return what tells one publication of an output from another."""
        found = {}
        for path in self.out.glob("*/*.portable"):
            try:
                status = path.stat()
            except FileNotFoundError:  # just being replaced
                continue
            found[path.relative_to(self.out).as_posix()] = (status.st_ino, status.st_ctime_ns)
        return found

    def leftovers(self):
        """Return what is there that no finished run leaves."""
        known = {self.out, self.temporary, self.ledger}
        found = [p for p in self.root.iterdir() if p not in known]
        found += self.temporary.iterdir()
        found += (p for p in self.out.rglob(".*") if ".convert-" in p.name)
        return found

    def processes(self):
        """Return what still runs of any run here: all have this TMPDIR in their environment."""
        mark = f"TMPDIR={self.temporary}".encode()
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and int(path.name) != os.getpid():
                try:
                    if mark in (path / "environ").read_bytes():
                        found.append((path / "cmdline").read_bytes())
                except OSError:
                    continue
        return found

    def check_same(self, other):
        """Compare with an undisturbed run elsewhere."""
        assert self.outputs() == other.outputs()
        mine, theirs = self.rows(), other.rows()
        assert {n: r for n, r in mine.items() if r != theirs.get(n)} == {
            n: r for n, r in theirs.items() if r != mine.get(n)
        }
        assert self.leftovers() == []
        for _ in range(100):
            if not self.processes():
                break
            time.sleep(0.02)
        assert self.processes() == []


def family(pid):
    """Return the pids below a process, those it started itself first."""
    below = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                stat = (path / "stat").read_bytes()
            except OSError:
                continue
            below.setdefault(int(stat[stat.rindex(b")") + 2 :].split()[1]), []).append(
                int(path.name)
            )
    found, level = [], below.get(pid, [])
    while level:
        found.append(level)
        level = [child for one in level for child in below.get(one, [])]
    return found


@dataclass
class Tally:
    """What killing showed."""

    killed: dict = field(default_factory=lambda: {"driver": 0, "server": 0, "worker": 0})
    runs: int = 0
    rounds: int = 0
    again: int = 0
    most_again: int = 0
    seconds: float = 0.0

    def __str__(self):
        kills = ", ".join(f"{n} {who}s" for who, n in self.killed.items())
        return (
            f"{sum(self.killed.values())} kills ({kills}) in {self.runs} runs, {self.rounds} whole"
            f" registries; {self.again} outputs were made again, at most {self.most_again} after"
            f" one kill; {self.seconds:.1f} s"
        )


def kill(child, who, rng):
    """Kill the driver, its fork server or a worker; tell whether there was one."""
    if who == "driver":
        child.send_signal(signal.SIGKILL)
        return True
    level = {"server": 0, "worker": 1}[who]
    while child.poll() is None:  # workers last for some milliseconds
        levels = family(child.pid)
        if len(levels) > level:
            try:
                os.kill(rng.choice(levels[level]), signal.SIGKILL)
            except ProcessLookupError:
                continue
            return True
    return False


def wait_for_a_point(child, place, rng, count):
    """Wait for a moment of a run that no clock knows: so many outputs, and some milliseconds."""
    if rng.random() < 0.2:
        time.sleep(rng.uniform(0, 1.0))  # it starts, or plans, or has just begun
        return
    there = len(place.inodes())
    wanted = rng.randint(there, count)
    while child.poll() is None and len(place.inodes()) < wanted:
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.02))


def bear_kills(root, registry, reference, kills, seed):
    """Kill at random points, and run again, until so many kills were borne.

    Args:
        root: Folder for all of it.
        registry: What is converted.
        reference: A `Place` where it was converted undisturbed.
        kills: How many.
        seed: Of the points, and of who is killed.
    """
    rng = random.Random(seed)
    tally = Tally()
    begin = time.monotonic()
    count = len(reference.inodes())
    while sum(tally.killed.values()) < kills:
        place = Place(root / f"round{tally.rounds}", registry)
        code = None
        while code != 3:  # that of the damaged ones: all are through
            before = place.inodes()
            child = place.start()
            wants = sum(tally.killed.values()) < kills
            if wants:
                wait_for_a_point(child, place, rng, count)
                who = rng.choice(["driver", "driver", "server", "worker"])
                if child.poll() is None:
                    tally.killed[who] += kill(child, who, rng)
            said = child.communicate(timeout=100)[1]
            assert "Traceback" not in said, said
            after = place.inodes()
            again = sum(after.get(name, inode) != inode for name, inode in before.items())
            tally.again += again
            tally.most_again = max(tally.most_again, again)
            code = child.returncode
            # Killed itself, or left by a server that was killed before it had begun anything.
            assert code == 3 or (wants and code in (-9, 7)), (code, said)
        tally.runs += place.runs
        tally.rounds += 1
        place.check_same(reference)
    tally.seconds = time.monotonic() - begin
    return tally


def main(kills=20, count=200, seed=6):
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        registry = make_registry(root / "registry", count)
        reference = Place(root / "reference", registry)
        begin = time.monotonic()
        assert reference.run()[0] == 3
        lasts = time.monotonic() - begin
        print(f"{count} artifacts, undisturbed: {lasts:.1f} s")
        print(bear_kills(root, registry, reference, kills, seed))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
