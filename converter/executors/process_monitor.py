"""Query and control processes of the system: memory, descendants, termination.

Everything is read from ``/proc``. Without it (macOS), children are still ended by process group
and by the watchdog; only the memory limit is not enforced.
"""

import ctypes
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PARENT_DEATH_SIGNAL, CHILD_SUBREAPER = 1, 36  # linux/prctl.h
EXITING = 0x4  # PF_EXITING of linux/sched.h: it no longer runs code of its own
ROUNDS, ROUND_SECONDS = 40, 0.005  # of searching for orphans of dying processes


class Process(NamedTuple):
    """One process, from ``/proc/PID/stat``."""

    parent: int
    resident_bytes: int
    is_dead: bool


def process(pid: int | str) -> Process | None:
    """Return the facts about a process, or None where the system does not provide them.

    Spec: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(fd, 4096)
        fields = text[text.rindex(b")") + 2 :].split()  # a name may contain any character
        is_dead = fields[0] in b"ZX" or bool(int(fields[6]) & EXITING)
        return Process(int(fields[1]), int(fields[21]) * PAGE_BYTES, is_dead)
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(fd)


def processes() -> dict[int, Process]:
    """Return all processes by pid; empty where the system does not list them."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - hundreds, and names are wanted
    except OSError:
        return {}
    found = ((int(name), process(name)) for name in names if name.isdigit())
    return {pid: one for pid, one in found if one is not None}


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    one = process(pid)
    if one is not None:
        return not one.is_dead
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def descendants(roots: Iterable[int], known: Mapping[int, Process]) -> set[int]:
    """Return the roots and all their descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, process in known.items():
        children[process.parent].append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def data_bytes() -> int:
    """Return the bytes that this process has mapped for data, as ``RLIMIT_DATA`` counts them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[5]) * PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def threads() -> int:
    """Return the number of threads of this process; 1 if unknown."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        return 1


def kill(pid: int) -> None:
    """Kill a process and its group, which may be gone already."""
    for end in (os.kill, os.killpg):
        with suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def kill_orphans(mine: Iterable[int]) -> None:
    """Kill every child of this process that it did not start, with all descendants.

    The server inherits the processes that a job leaves (see `adopt_orphans`), generation by
    generation.

    Args:
        mine: Children that this process started and keeps.
    """
    own, here = frozenset(mine), os.getpid()
    for _ in range(ROUNDS):
        known = processes()
        orphans = [
            pid
            for pid, one in known.items()
            if one.parent == here and pid not in own and not one.is_dead
        ]
        if not orphans:
            return
        for pid in descendants(orphans, known):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(ROUND_SECONDS)


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants.

    Spec: https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html
    """
    _prctl(CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """End this process as soon as its parent ends, for whatever reason.

    Args:
        parent: Pid of the parent, which may be gone already.
    """
    _prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def out_of_memory_kills() -> int:
    """Return the number of OOM kills by the kernel; 0 if unknown."""
    for path, key in (("/sys/fs/cgroup/memory.events", "oom_kill"), ("/proc/vmstat", "oom_kill")):
        with suppress(OSError, ValueError):
            for line in Path(path).read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == key:
                    return int(number)
    return 0


_LIBC = ctypes.CDLL(None)


def _prctl(option: int, value: int) -> None:
    with suppress(AttributeError):  # not Linux
        _LIBC.prctl(option, value, 0, 0, 0)
