"""The child that does one job: made ready, put to work, and ended without a way back.

What it changes of itself dies with it. The server's own ends of pipes are closed before any code of
the job's runs.
"""

import gc
import importlib
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, cast

from converter.executors import watching
from converter.executors.orders import LENGTH, Order, unpacked
from converter.job import Job, Outcome, Status, blank_record
from formats.errors import ConvertError

Task: TypeAlias = Callable[[Job, Path], Outcome]
NOTHING_LEFT, SOMETHING_LEFT = b"0", b"1"  # of processes, before the answer
OOM_SCORE = b"500"  # where memory runs out, the system shall end jobs before anything else
# Of address space, above what a job may hold: pages are reserved that are never touched. What
# grows slowly is stopped for what it holds; this turns one huge request into a MemoryError.
HEADROOM_BYTES = 256 << 20


def task_of(name: str) -> Task:
    """Return the function that ``module:function`` names."""
    module, _, function = name.partition(":")
    return cast(Task, getattr(importlib.import_module(module), function))


def be_the_child(
    task: Task,
    order: Order,
    scratch: Path,
    pipes: tuple[int, int],
    close: Iterable[int],
    parent: int,
) -> None:
    """Do one job and end; this does not return.

    Args:
        task: What to do.
        order: With what, within what limits.
        scratch: Folder for temporary files.
        pipes: Where the record goes, and all that is printed.
        close: The server's own file descriptors.
        parent: Pid of the server.
    """
    code = 1
    try:
        answer, words = pipes
        _prepare(order, words, close, parent)
        _write(answer, _answer(task, cast(Job, unpacked(order.job)), scratch))
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
        _say_last(f"SystemExit: {e.code}")
    except BaseException:  # noqa: BLE001 - this is the end of the process
        _say_last(traceback.format_exc())
    finally:
        os._exit(code & 0xFF)


def _prepare(order: Order, words: int, close: Iterable[int], parent: int) -> None:
    gc.disable()  # as the command line does: a job makes few cycles, and takes them with it
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    watching.die_with_parent(parent)
    watching.adopt_orphans()
    for fd in close:
        os.close(fd)
    os.dup2(words, 1)
    os.dup2(words, 2)
    os.close(words)
    with suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(fd, OOM_SCORE)
        finally:
            os.close(fd)
    if order.memory_bytes and not order.has_gpu:  # a GPU's driver reserves more than there is
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = watching.data_bytes() + order.memory_bytes + HEADROOM_BYTES
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _answer(task: Task, job: Job, scratch: Path) -> bytes:
    record = json.dumps(_record(task, job, scratch)).encode()
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return NOTHING_LEFT + record
    return SOMETHING_LEFT + record


def _record(task: Task, job: Job, scratch: Path) -> dict[str, Any]:
    try:
        return dict(task(job, scratch).record)
    except MemoryError as e:
        return _failed(job, "memory", e)
    except Exception as e:  # noqa: BLE001 - `converter.worker` raises nothing; what does is our bug
        return _failed(job, "failed", e)


def _failed(job: Job, status: Status, error: Exception) -> dict[str, Any]:
    name = type(error).__name__
    text = str(error) if isinstance(error, ConvertError) else f"{name}: {error}"
    exit_code = 7 if status == "memory" else getattr(error, "exit_code", 70)
    about = {"type": name, "message": text}
    return blank_record(job) | {"status": status, "exit_code": exit_code, "error": about}


def _write(fd: int, answer: bytes) -> None:
    rest = memoryview(LENGTH.pack(len(answer)) + answer)
    while rest:
        rest = rest[os.write(fd, rest) :]


def complete(answer: bytearray) -> bytes | None:
    """Return an answer, its first byte telling what is left, where it came as a whole."""
    head = LENGTH.size
    if len(answer) > head and len(answer) == head + LENGTH.unpack_from(answer)[0]:
        return bytes(answer[head:])
    return None


def _say_last(text: str) -> None:
    with suppress(Exception):
        sys.stdout.flush()
        os.write(2, text.encode("utf-8", "replace"))
