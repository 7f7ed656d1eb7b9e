"""Whether a driver is alive: exact on its own machine, by its heartbeat elsewhere."""

import os
import socket
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

BEAT_SECONDS = 5.0
SILENT_SECONDS = 60.0  # of this machine's clock, without a new beat: that driver is dead
STALE_SECONDS = 3600.0  # older than clocks of two machines can be apart: it is dead at first sight


@dataclass(frozen=True, slots=True)
class Driver:
    """A driver, as recorded in the ledger.

    Attributes:
        id: Its own, of all drivers there ever were.
        machine: As `machine` says.
        pid: There.
        started: When its process was, as `started` says.
        beat: Time of its last beat, by its own clock: seconds since the epoch.
    """

    id: str
    machine: str
    pid: int
    started: int
    beat: float

    @property
    def place(self) -> str:
        """The machine and process, for messages."""
        return f"{self.machine.partition('/')[0]}, process {self.pid}"


@dataclass(slots=True)
class Pulse:
    """The heartbeats that one driver has seen."""

    seen: dict[str, tuple[float, float]] = field(default_factory=dict)  # id: its beat, our clock

    def lives(self, driver: Driver) -> bool:
        """Return whether a driver is alive, as far as can be known."""
        if driver.machine == machine():
            return find_start_time(driver.pid) == driver.started
        now = time.monotonic()
        beat, since = self.seen.get(driver.id, (None, now))
        if beat != driver.beat:
            self.seen[driver.id] = (driver.beat, now)
            return time.time() - driver.beat < STALE_SECONDS
        return now - since < SILENT_SECONDS


@cache
def machine() -> str:
    """Return an identifier of this machine, its boot and its process namespace.

    Processes have numbers of their own in each container, so each is a machine here.
    """
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))  # noqa: PTH115 - it names no path
    except OSError:  # not Linux: the name has to do
        pass
    return "/".join(parts)


def boot() -> str:
    """Return host name and boot id, which changes when the machine restarts."""
    return "/".join(machine().split("/")[:2])


def is_lost(place: str) -> bool:
    """Return whether a machine has restarted since, and so lost unflushed writes.

    Args:
        place: As `boot` said there; that of another machine is not known to be lost.
    """
    host, _, since = place.partition("/")
    here, _, now = boot().partition("/")
    return bool(since) and host == here and since != now


def find_start_time(pid: int) -> int:
    """Return the start time of a local process; 0 if it does not exist.

    The unit is the system's own; where it tells no times (it is not Linux), a process that is
    there was started at 1.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        if Path("/proc/self/stat").exists():
            return 0
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return 0
        except PermissionError:
            pass
        return 1
    # Field 22, counted behind the name, which may hold anything; field 3 is the state.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return 0 if fields[0] in b"ZX" else int(fields[19])
