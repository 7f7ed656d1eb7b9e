"""Run a script in a child process with limits of time and memory.

The protocol is a folder: ``question.json`` and arrays as .npy in, ``answer.json`` and arrays as
.npy out. The child gets the folder as its argument and as its working directory, so that it never
imports a module from the user's working directory. Its output is kept only for error messages. It
does not outlive us (see `converter.child.parent_watchdog`).
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from converter.byte_sizes import readable_size
from formats.errors import DependencyError

QUESTION, ANSWER, DONE = "question.json", "answer.json", "done"
SERVE = "serve"  # the argument of `parent_watchdog`
# Scripts that answer several questions in one process: importing a framework takes seconds.
SERVED = frozenset(("run_keras.py", "run_tensorflow.py", "run_torch.py"))
_LOCAL = threading.local()  # of each thread the children that serve it
LOG = "log.txt"
PYTHON_VARIABLE = "CONVERT_TENSORFLOW_PYTHON"  # another Python, which has TensorFlow or Keras
TORCH_PYTHON_VARIABLE = "CONVERT_TORCH_PYTHON"  # another Python, which has torch
LEASH = Path(__file__).with_name("parent_watchdog.py")
MAX_ANSWER_BYTES = 256 << 20  # parsing takes several times as much memory
POLL_SECONDS = 0.05

# CPU only, one stable numeric mode, no log output.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONIOENCODING": "utf-8",
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """Resource limits of a child.

    Attributes:
        seconds: Time limit.
        memory_bytes: Limit of resident memory; None for nine tenths of the free memory.
    """

    seconds: float = 900.0
    memory_bytes: int | None = None


def ask(
    script: Path,
    folder: Path,
    question: Mapping[str, Any],
    *,
    what: str,
    allowance: Allowance,
    python: str = sys.executable,
    environment: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """Run a script on a question in a folder, and return its answer.

    Args:
        script: A script of this package that any Python can run.
        folder: Existing folder for the files of both sides.
        question: Data that JSON can hold.
        what: Name of the child in messages.
        allowance: Limits of the child.
        python: The interpreter.
        environment: Variables in addition to `ENVIRONMENT`; None for our own value of a variable.

    Raises:
        DependencyError: It died, hung, took too much memory, or gave no answer.
    """
    (folder / QUESTION).write_text(json.dumps(question))
    for name in (ANSWER, DONE):
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    servers = getattr(_LOCAL, "servers", None)
    if servers is None or script.name not in SERVED:
        run([python, str(script), str(folder)], folder, what, allowance, environment or {})
    else:
        servers.ask(python, script, folder, what, allowance, environment or {})
    try:
        size = (folder / ANSWER).stat().st_size
        if size > MAX_ANSWER_BYTES:
            raise DependencyError(f"the child running {what} answered {readable_size(size)}")
        answer = json.loads((folder / ANSWER).read_text())
    except (OSError, ValueError) as e:
        raise DependencyError(f"the child running {what} gave no answer{_last(folder)}") from e
    if not isinstance(answer, dict):
        raise DependencyError(f"the child running {what} answered {answer!r:.60}")
    return answer


@contextmanager
def reuse_children() -> Iterator[None]:
    """Start each framework once for all questions inside the block, instead of once for each.

    Blocks may be nested: the outermost one holds the processes.
    """
    if getattr(_LOCAL, "servers", None) is not None:
        yield
        return
    _LOCAL.servers = _Servers()
    try:
        yield
    finally:
        _LOCAL.servers.close()
        _LOCAL.servers = None


class _Servers:
    """Children that answer several questions, by what they were started with."""

    def __init__(self) -> None:
        self._children: dict[tuple[object, ...], subprocess.Popen[bytes]] = {}
        self._home = tempfile.TemporaryDirectory(prefix="convert-child-")

    def ask(
        self,
        python: str,
        script: Path,
        folder: Path,
        what: str,
        allowance: Allowance,
        environment: Mapping[str, str | None],
    ) -> None:
        """Have a child answer the question in a folder.

        Raises:
            DependencyError: It cannot be started, died, hung, or took too much memory.
        """
        limit = allowance.memory_bytes or _free_bytes()
        key = (python, script, *sorted(environment.items(), key=str))
        child = self._children.get(key)
        if child is None or child.poll() is not None:
            command = [python, SERVE, str(script)]
            home = Path(self._home.name)
            with (home / LOG).open("wb") as log:
                child = self._children[key] = _start(command, home, environment, log)
        done, is_healthy = folder / DONE, False
        try:
            if child.stdin is not None:
                child.stdin.write(f"{folder.absolute()}\n".encode())
                child.stdin.flush()
            _wait(child, what, allowance.seconds, limit, done.exists)
            is_healthy = done.exists()
        except BrokenPipeError:
            child.wait()
        finally:
            if not is_healthy:
                _end(self._children.pop(key))
        if not is_healthy:
            _check_end(child, what, folder if _last(folder) else Path(self._home.name))

    def close(self) -> None:
        """End all children."""
        for child in self._children.values():
            _end(child)
        self._home.cleanup()


def run(
    command: Sequence[str],
    folder: Path,
    what: str,
    allowance: Allowance,
    environment: Mapping[str, str | None],
) -> None:
    """Run a script to its end.

    Args:
        command: Python, the script and its arguments.
        folder: Working directory, where its output is logged.
        what: Name of the child in messages.
        allowance: Limits of the child.
        environment: Variables in addition to `ENVIRONMENT`; None for our own value of a variable.

    Raises:
        DependencyError: It cannot be started, died, hung, or took too much memory.
    """
    limit = allowance.memory_bytes or _free_bytes()
    with (folder / LOG).open("wb") as log:
        child = _start(command, folder, environment, log)
        try:
            _wait(child, what, allowance.seconds, limit)
        finally:
            _end(child)
    _check_end(child, what, folder)


def _start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str | None], log: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Start a script that ends with us."""
    try:
        return subprocess.Popen(  # noqa: S603 - our own script
            [command[0], str(LEASH), *command[1:]],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=folder,
            # Temporary files that a framework leaves are removed with the folder.
            env={**_variables(environment), "TMPDIR": str(folder.absolute())},
            start_new_session=True,
        )
    except OSError as e:
        raise DependencyError(f"cannot be run: {e.strerror}", where=command[0]) from e


def _check_end(child: "subprocess.Popen[bytes]", what: str, folder: Path) -> None:
    """Raise DependencyError if a child did not end well."""
    code = child.returncode
    if code < 0:
        name = signal.Signals(-code).name if -code in _SIGNALS else f"signal {-code}"
        hint = "Perhaps it ran out of memory" if name == "SIGKILL" else None
        raise DependencyError(f"the child running {what} died of {name}{_last(folder)}", hint=hint)
    if code:
        raise DependencyError(f"the child running {what} ended with {code}{_last(folder)}")


def _variables(given: Mapping[str, str | None]) -> dict[str, str]:
    ours = {name: os.environ.get(name) if v is None else v for name, v in given.items()}
    merged = {**os.environ, **ENVIRONMENT, **ours}
    return {name: value for name, value in merged.items() if value is not None}


_SIGNALS = frozenset(int(s) for s in signal.Signals)


def _wait(
    child: "subprocess.Popen[bytes]",
    what: str,
    seconds: float,
    limit: int | None,
    is_done: Callable[[], bool] = lambda: False,
) -> None:
    """Return when a child has ended, or is done with a question."""
    end = time.monotonic() + seconds
    while not is_done():
        with suppress(subprocess.TimeoutExpired):
            child.wait(POLL_SECONDS)
            return
        if time.monotonic() > end:
            raise DependencyError(
                f"the child running {what} took longer than {seconds:g} s and was stopped"
            )
        used = _resident_bytes(child.pid)
        if limit is not None and used > limit:
            raise DependencyError(
                f"the child running {what} took {readable_size(used)} of memory and was stopped",
                expected=f"at most {readable_size(limit)}",
            )


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Kill a child and its process group, and close the pipe to it."""
    _kill(child)
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.close()


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """Kill the child and its process group."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if unknown."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _free_bytes() -> int | None:
    """Return nine tenths of the free memory in bytes; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 * 9 // 10
    return None


def _last(folder: Path) -> str:
    """Return the last line that a child printed, as the end of a message."""
    try:
        text = (folder / LOG).read_bytes()[-4096:].decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""
