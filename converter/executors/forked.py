"""The forked child that runs jobs: set up, run, exit.

Most jobs are small, and to make a process for each costs more than they do. So a child takes
another one where the last has left nothing behind: it was short, it neither died nor ran out of
memory, and the process is as it was before (see `State`). Whatever else it changed dies with it.
The server's own ends of pipes are closed before any code of the job's runs.
"""

import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

from converter.executors import process_monitor
from converter.executors.protocol import LENGTH, Order, Unframing, packed, unpacked
from converter.jobs.job import Job, Outcome, Status, new_record
from converter.jobs.record import Record, RecordedError
from formats.errors import ConvertError

Task: TypeAlias = Callable[[Job, Path], Outcome]
# What comes before the answer: the child ends; it ends and leaves processes; it takes another job.
NOTHING_LEFT, SOMETHING_LEFT, READY = b"0", b"1", b"2"
LIGHT_SECONDS = 0.5  # a job that took longer is worth a process of its own
GROWTH_BYTES = 64 << 20  # resident, that a child may gain before it ends
CHUNK_BYTES = 1 << 16
OOM_SCORE = b"500"  # where memory runs out, the system shall end jobs before anything else
# Of address space, above what a job may hold: pages are reserved that are never touched. What
# grows slowly is stopped for what it holds; this turns one huge request into a MemoryError.
HEADROOM_BYTES = 256 << 20
HANDLED = (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
LIMITED = (
    resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE,
    resource.RLIMIT_NOFILE,
)  # fmt: skip


def task_of(name: str) -> Task:
    """Return the function that ``module:function`` names."""
    module, _, function = name.partition(":")
    return cast(Task, getattr(importlib.import_module(module), function))


def be_the_child(
    task: Task,
    order: Order,
    scratch: Path,
    pipes: tuple[int, int, int],
    close: Iterable[int],
    parent: int,
) -> None:
    """Do one job, and others as they come, and end; this does not return.

    Args:
        task: What to do.
        order: With what first, within what limits.
        scratch: Folder for temporary files.
        pipes: Where further orders come from, where records go, and all that is printed.
        close: The server's own file descriptors.
        parent: Pid of the server.
    """
    code = 1
    try:
        orders, answer, words = pipes
        _prepare(words, close, parent)
        most, usual = process_monitor.resident_bytes() + GROWTH_BYTES, state()
        hard = resource.getrlimit(resource.RLIMIT_DATA)
        further: Order | None = order
        while further is not None:
            _limit(further, hard)
            begin = time.monotonic()
            flag, record = _answer(task, cast(Job, unpacked(further.job)), scratch)
            resource.setrlimit(resource.RLIMIT_DATA, hard)
            is_as_before = (
                flag == NOTHING_LEFT
                and time.monotonic() - begin < LIGHT_SECONDS
                and process_monitor.resident_bytes() < most
                and _is_as(usual)
            )
            _write(answer, (READY if is_as_before else flag) + record)
            further = _order(orders) if is_as_before else None
        code = 0
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
        _say_last(f"SystemExit: {e.code}")
    except BaseException:  # noqa: BLE001 - this is the end of the process
        _say_last(traceback.format_exc())
    finally:
        os._exit(code & 0xFF)


class State(NamedTuple):
    """What a job could change of its process, other than its memory."""

    folder: str
    mask: int
    environment: dict[str, str]
    files: frozenset[str]
    threads: int
    timer: tuple[float, float]
    handlers: tuple[object, ...]
    limits: tuple[tuple[int, int], ...]


def state() -> State | None:
    """Return the state of this process; None where it cannot be told."""
    try:
        mask = os.umask(0o77)
        os.umask(mask)
        return State(
            os.getcwd(),  # noqa: PTH109
            mask,
            dict(os.environ),
            frozenset(os.listdir("/proc/self/fd")),  # noqa: PTH208
            process_monitor.threads(),
            signal.getitimer(signal.ITIMER_REAL),
            tuple(map(signal.getsignal, HANDLED)),
            tuple(map(resource.getrlimit, LIMITED)),
        )
    except OSError:
        return None


def _is_as(usual: State | None) -> bool:
    """Return whether this process is as it was, files apart that only garbage holds open."""
    if usual is None:
        return False
    now = state()
    if now is not None and now.files != usual.files:
        gc.collect()
        now = state()
    return now == usual


def _prepare(words: int, close: Iterable[int], parent: int) -> None:
    gc.disable()  # as the command line does: a job makes few cycles, and they end with the child
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    process_monitor.die_with_parent(parent)
    process_monitor.adopt_orphans()
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


def _limit(order: Order, now: tuple[int, int]) -> None:
    if order.memory_bytes and not order.has_gpu:  # a GPU's driver reserves more than there is
        most = process_monitor.data_bytes() + order.memory_bytes + HEADROOM_BYTES
        if now[1] == resource.RLIM_INFINITY or most < now[1]:
            resource.setrlimit(resource.RLIMIT_DATA, (most, now[1]))


def send(orders: int, order: Order) -> None:
    """Give a child that waits for it another order.

    Raises:
        BrokenPipeError: It is gone.
    """
    _write(orders, packed(order))


def _order(orders: int) -> Order | None:
    """Wait for another order; None where there is none for this child."""
    unframing = Unframing()
    while some := os.read(orders, CHUNK_BYTES):
        for message in unframing.feed(some):
            return cast(Order, unpacked(message))
    return None


def _answer(task: Task, job: Job, scratch: Path) -> tuple[bytes, bytes]:
    record = _record(task, job, scratch)
    text = json.dumps(record.to_json()).encode()
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return NOTHING_LEFT, text
    return SOMETHING_LEFT, text


def _record(task: Task, job: Job, scratch: Path) -> Record:
    try:
        return task(job, scratch).record
    except MemoryError as e:
        return _failed(job, "memory", e)
    except Exception as e:  # noqa: BLE001 - `converter.executors.worker` raises nothing; what does is our bug
        return _failed(job, "failed", e)


def _failed(job: Job, status: Status, error: Exception) -> Record:
    name = type(error).__name__
    text = str(error) if isinstance(error, ConvertError) else f"{name}: {error}"
    exit_code = 7 if status == "memory" else getattr(error, "exit_code", 70)
    about = RecordedError(name, text)
    return replace(new_record(job), status=status, exit_code=exit_code, error=about)


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
