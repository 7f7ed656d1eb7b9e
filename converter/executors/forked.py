"""The forked child that runs jobs: set up, run, exit.

Most jobs are small, and a process for each costs more than the job. So a child takes another job
if the last one left nothing behind: it was short, it neither died nor ran out of memory, and the
process state is unchanged (see `State`). All other changes end with the child. The server's ends
of the pipes are closed before any code of the job runs.
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
from converter.executors.protocol import LENGTH, Order, Unframing, pack, unpack
from converter.jobs.job import Job, Outcome, Status, new_record
from converter.jobs.record import Record, RecordedError
from formats.errors import ConvertError

Task: TypeAlias = Callable[[Job, Path], Outcome]
# First byte of an answer: the child exits; exits and leaves processes; can take another job.
NOTHING_LEFT, SOMETHING_LEFT, READY = b"0", b"1", b"2"
LIGHT_SECONDS = 0.5  # the child ends after a job that took longer
GROWTH_BYTES = 64 << 20  # resident memory that a child may gain before it ends
CHUNK_BYTES = 1 << 16
OOM_SCORE = b"500"  # when memory runs out, the system shall kill jobs before anything else
# Address space above the memory limit of a job, for pages that are reserved and never touched. Slow
# growth is stopped by resident memory; this limit turns one huge request into a MemoryError.
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
    """Run a job, and further jobs as they arrive, then exit; this does not return.

    Args:
        task: Function that runs a job.
        order: The first job, with its limits.
        scratch: Folder for temporary files.
        pipes: Descriptors for further orders, for records, and for stdout and stderr.
        close: The server's file descriptors, to be closed.
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
            flag, record = _answer(task, cast(Job, unpack(further.job)), scratch)
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
    """Process state that a job could change, other than memory."""

    folder: str
    mask: int
    environment: dict[str, str]
    files: frozenset[str]
    threads: int
    timer: tuple[float, float]
    handlers: tuple[object, ...]
    limits: tuple[tuple[int, int], ...]


def state() -> State | None:
    """Return the state of this process; None where it cannot be read."""
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
    """Return whether the process state is unchanged, once files held by garbage are closed."""
    if usual is None:
        return False
    now = state()
    if now is not None and now.files != usual.files:
        gc.collect()
        now = state()
    return now == usual


def _prepare(words: int, close: Iterable[int], parent: int) -> None:
    gc.disable()  # as the command line does: a job makes few cycles, freed when the child exits
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
    if order.memory_bytes and not order.has_gpu:  # GPU drivers reserve more than physical memory
        most = process_monitor.data_bytes() + order.memory_bytes + HEADROOM_BYTES
        if now[1] == resource.RLIM_INFINITY or most < now[1]:
            resource.setrlimit(resource.RLIMIT_DATA, (most, now[1]))


def send(orders: int, order: Order) -> None:
    """Send another order to a waiting child.

    Raises:
        BrokenPipeError: The child is gone.
    """
    _write(orders, pack(order))


def _order(orders: int) -> Order | None:
    """Wait for another order; return None if this child gets no more."""
    unframing = Unframing()
    while some := os.read(orders, CHUNK_BYTES):
        for message in unframing.feed(some):
            return cast(Order, unpack(message))
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
    """Return an answer with its first byte (`READY` etc.); None while it is incomplete."""
    head = LENGTH.size
    if len(answer) > head and len(answer) == head + LENGTH.unpack_from(answer)[0]:
        return bytes(answer[head:])
    return None


def _say_last(text: str) -> None:
    with suppress(Exception):
        sys.stdout.flush()
        os.write(2, text.encode("utf-8", "replace"))
