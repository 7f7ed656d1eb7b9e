"""Where hostile artifacts are met: in children that are bounded, watched and replaced.

Whatever an artifact is, `convert` reads it or refuses it with an error of ours, within ten seconds
and one GiB, leaves nothing half-written and touches nothing but its output. `Arena.run` holds many
artifacts to that and returns what broke it.

CONVERTER_ATTACK_ROUNDS=N tries N times as much and, from 2 on, attacks in full size: see `size`.
CONVERTER_ATTACK_SECONDS=N waits longer, and CONVERTER_ATTACK_KEEP=folder keeps every artifact that
got through.
"""

import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

SECONDS = float(os.environ.get("CONVERTER_ATTACK_SECONDS", "10"))
ROUNDS = float(os.environ.get("CONVERTER_ATTACK_ROUNDS", "1"))
DEEP = ROUNDS > 1  # takes minutes more
MEMORY = 1 << 30
HARD_MEMORY = MEMORY + (256 << 20)  # a child that wants more gets a MemoryError
OPERATIONS = ("inspect", "safetensors", "portable")
CHILD = Path(__file__).with_name("child.py")
REPOSITORY = CHILD.parents[3]


def size(quick: int, full: int) -> int:
    """Return the size of an attack: ``full``, which takes seconds, or enough to tell what is wrong.

    What takes quadratic time or memory does not pass in quick size either.
    """
    return full if DEEP else quick


@dataclass(frozen=True)
class Attack:
    """One artifact: ``build`` writes it into an empty folder and returns its path."""

    name: str
    build: Callable[[Path], Path]


def a_file(name: str, filename: str, data: bytes) -> Attack:
    """Return the attack that is one file."""
    return a_folder(name, {filename: data}, filename)


def a_folder(name: str, files: Mapping[str, bytes], target: str = ".") -> Attack:
    """Return the attack that is a folder of files; ``target`` is what the user points at."""

    def build(folder: Path) -> Path:
        for relative, data in files.items():
            path = folder / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder / target

    return Attack(name, build)


@dataclass(frozen=True)
class Outcome:
    """What one operation on one artifact came to; ``kind`` is ok, refused or failed."""

    attack: str
    operation: str
    kind: str
    code: int
    text: str
    seconds: float = 0
    peak: int = 0


@dataclass
class Report:
    """What many artifacts came to."""

    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    slowest: Outcome | None = None
    largest: Outcome | None = None

    def add(self, outcome: Outcome) -> None:
        key = outcome.kind if outcome.kind != "refused" else f"exit {outcome.code}"
        self.outcomes[key] += 1
        if outcome.kind == "failed":
            self.failures.append(outcome)
        if self.slowest is None or outcome.seconds > self.slowest.seconds:
            self.slowest = outcome
        if self.largest is None or outcome.peak > self.largest.peak:
            self.largest = outcome

    def __str__(self) -> str:
        lines = [f"{self.inputs} artifacts: {dict(sorted(self.outcomes.items()))}"]
        for word, o in (("slowest", self.slowest), ("largest", self.largest)):
            if o is not None:
                lines.append(
                    f"{word}: {o.attack} {o.operation} {o.seconds:.2f} s {o.peak >> 20} MiB"
                )
        causes: dict[str, list[Outcome]] = {}
        for o in self.failures:
            causes.setdefault(o.text[-300:], []).append(o)
        for group in sorted(causes.values(), key=len, reverse=True)[:20]:
            o = group[0]
            lines.append(f"--- {len(group)} x, first {o.attack} ({o.operation})\n{o.text}")
        return "\n".join(lines)

    def check(self) -> None:
        """Raise AssertionError unless nothing got through."""
        assert self.inputs, "nothing was tried"
        assert not self.failures, str(self)


class Arena:
    """Children in which artifacts are met, each with a folder of its own; use as a context."""

    def __init__(self, root: Path, workers: int = 2) -> None:
        self.corners = [_Corner(root / str(i)) for i in range(workers)]

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *_: object) -> None:
        for corner in self.corners:
            corner.end()
            corner.errors.close()

    def run(self, attacks: Iterable[Attack], *turns: tuple[str, ...]) -> Report:
        """Meet all artifacts, on as many children as there are.

        Args:
            attacks: The artifacts.
            turns: The operations that the first artifact meets, the second, and so on, over again.
        """
        pending = zip(attacks, cycle(turns or (OPERATIONS,)), strict=False)
        report, lock = Report(), threading.Lock()
        errors: list[BaseException] = []

        def work(corner: _Corner) -> None:
            try:
                while not errors:
                    with lock:
                        attack, operations = next(pending, (None, ()))
                    if attack is None:
                        return
                    outcomes = corner.meet(attack, operations)
                    with lock:
                        report.inputs += 1
                        for outcome in outcomes:
                            report.add(outcome)
            except BaseException as e:  # noqa: BLE001 - raised again by the main thread
                errors.append(e)

        threads = [threading.Thread(target=work, args=(c,)) for c in self.corners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return report

    def one(self, attack: Attack, operations: tuple[str, ...] = OPERATIONS) -> list[Outcome]:
        """Meet one artifact; what gets through is an AssertionError."""
        outcomes = self.corners[0].meet(attack, operations)
        failed = [f"{o.operation}: {o.text}" for o in outcomes if o.kind == "failed"]
        assert not failed, "\n".join(failed)
        return outcomes

    def refused(
        self, attack: Attack, code: int = 3, operations: tuple[str, ...] = OPERATIONS
    ) -> str:
        """Meet one artifact that every operation refuses with this exit code; return why."""
        outcomes = self.one(attack, operations)
        assert {(o.kind, o.code) for o in outcomes} == {("refused", code)}, outcomes
        return outcomes[0].text

    def read(self, attack: Attack) -> list[Outcome]:
        """Meet one artifact that every operation must read."""
        outcomes = self.one(attack)
        assert {o.kind for o in outcomes} == {"ok"}, outcomes
        return outcomes


class _Corner:
    """One child, and the folder it works in: ``in`` for the artifact, ``out``, ``cwd``, ``tmp``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process: subprocess.Popen[bytes] | None = None
        for name in ("in", "out", "cwd", "tmp"):
            (root / name).mkdir(parents=True)
        self.errors = (root / "stderr").open("wb")

    def meet(self, attack: Attack, operations: tuple[str, ...]) -> list[Outcome]:
        """Let the child do each operation; a child that dies or hangs is replaced."""
        for name in ("in", "out"):
            empty(self.root / name)
        source = attack.build(self.root / "in")
        before = dict(tree(self.root))
        outcomes = [self._operate(attack.name, source, name) for name in operations]
        by_name = {o.operation: o for o in outcomes}
        after = dict(tree(self.root))
        expected = {
            f"out/o.{name}" for name, o in by_name.items() if o.kind == "ok" and name != "inspect"
        }
        strange = sorted(
            path
            for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)
            and not any(path == e or path.startswith(f"{e}/") for e in expected)
            and path not in ("out", "stderr")
        )
        missing = sorted(e for e in expected if e not in after)
        if strange or missing:
            text = f"files appeared, changed or vanished: {strange[:5]}; missing: {missing}"
            outcomes.append(Outcome(attack.name, "files", "failed", 0, text))
        if any(o.kind == "failed" for o in outcomes):
            self._keep(attack.name)
        return outcomes

    def _operate(self, attack: str, source: Path, operation: str) -> Outcome:
        process = self.process or self._begin()
        request = {
            "source": str(source), "out": str(self.root / "out" / "o"), "operations": [operation]
        }  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        start = time.monotonic()
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._lost(attack, operation, hung=False, start=start)
        answered = self._wait(process, start)
        line = process.stdout.readline() if answered else b""
        if not line:
            return self._lost(attack, operation, hung=not answered, start=start)
        answer = json.loads(line)
        text, kind = answer["text"], answer["kind"]
        if answer["peak"] > MEMORY:
            kind, text = "failed", f"{answer['peak'] >> 20} MiB were resident\n{text}"
            self.end()
        return Outcome(
            attack, operation, kind, answer["code"], text, answer["seconds"], answer["peak"]
        )

    def _wait(self, process: "subprocess.Popen[bytes]", start: float) -> bool:
        """Wait for an answer; tell whether it came within the limit.

        What counts is processor time, since other tests may be running; but a child that only
        waits (for a FIFO, a lock) has an end too.
        """
        begun = spent(process.pid)
        while time.monotonic() - start < 3 * SECONDS:
            if select.select([process.stdout], [], [], 0.2)[0]:
                return True
            if spent(process.pid) - begun > SECONDS:
                return False
        return False

    def _lost(self, attack: str, operation: str, *, hung: bool, start: float) -> Outcome:
        """Describe a child that died or hangs, and end it."""
        process = self.process
        assert process is not None
        if hung:
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)
        self.end()
        stack = (self.root / "stderr").read_bytes()[-3000:].decode(errors="replace")
        what = f"no answer within {SECONDS} s" if hung else f"the child died: {process.returncode}"
        text = f"{what}\n{stack}"
        for path in (self.root / "out", self.root / "tmp"):
            empty(path)
        return Outcome(attack, operation, "failed", 0, text, time.monotonic() - start)

    def _begin(self) -> "subprocess.Popen[bytes]":
        self.errors.truncate(0)
        environment = dict(os.environ) | {
            "TMPDIR": str(self.root / "tmp"), "PYTHONPATH": str(REPOSITORY),
            "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", str(CHILD), str(HARD_MEMORY)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            cwd=self.root / "cwd", env=environment,
        )  # fmt: skip
        return self.process

    def end(self) -> None:
        """Kill the child."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _keep(self, name: str) -> None:
        folder = os.environ.get("CONVERTER_ATTACK_KEEP")
        if folder:
            target = Path(folder) / "".join(c if c.isalnum() else "_" for c in name)[:150]
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(self.root / "in", target, symlinks=True)


def spent(pid: int) -> float:
    """Return the seconds of processor time that a child has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tree(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield everything below a folder, with what tells whether it was changed."""
    pending = [str(folder)]
    skip = len(str(folder)) + 1
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                is_folder = stat.S_ISDIR(status.st_mode)
                size = 0 if is_folder else status.st_size
                when = 0 if is_folder else status.st_mtime_ns
                yield entry.path[skip:], (status.st_mode, size, when)
                if is_folder:
                    pending.append(entry.path)


def empty(folder: Path) -> None:
    """Remove everything in a folder."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
