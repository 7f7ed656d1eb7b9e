"""What a driver and its fork server say to each other.

Orders go down a pipe as `multiprocessing.connection` sends them: both ends are this version of this
program, and nothing of an artifact's is in them. Word comes up as frames of our own, because
the server must never wait for a driver that is busy: a length, a line of JSON, and the record of
the outcome as the child wrote it, which the server does not look into.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from converter.job import Job

# What became of a child: "killed" is by SIGKILL and not by us, and "oom" the same while the kernel
# ran out of memory.
End = Literal["ready", "begun", "answered", "crashed", "timeout", "memory", "killed", "oom"]
LENGTH = struct.Struct(">I")
WORK = "converter.worker:work"


@dataclass(frozen=True, slots=True)
class Charter:
    """What a server is told before any order.

    Attributes:
        scratch: Folder for temporary files; each job has one in it while it runs.
        jobs: How many run at a time.
        first: A job like those to come: what it needs is imported once for all.
        task: ``module:function``, called with the job and its folder; tests have others.
    """

    scratch: str
    jobs: int
    first: Job
    task: str = WORK


class Order(NamedTuple):
    """One job to do, under a number that no other job of this server has."""

    number: int
    job: Job


class Word(NamedTuple):
    """What a server says of one of its jobs.

    Attributes:
        number: The order's; -1 of the server itself.
        end: What there is to say.
        message: What happened, where it ended badly.
        seconds: How long it ran.
        record: JSON of the outcome's record, where it was answered.
    """

    number: int
    end: End
    message: str = ""
    seconds: float = 0.0
    record: bytes = b""


def framed(word: Word) -> bytes:
    """Return a word as it goes over the line."""
    head = json.dumps(word[:4]).encode() + b"\n"
    return LENGTH.pack(len(head) + len(word.record)) + head + word.record


class Unframing:
    """Takes what comes over the line in whatever pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, some: bytes) -> Iterator[Word]:
        """Yield the words that are complete now."""
        buffer = self._buffer
        buffer += some
        at = 0
        while len(buffer) >= at + LENGTH.size:
            end = at + LENGTH.size + LENGTH.unpack_from(buffer, at)[0]
            if len(buffer) < end:
                break
            head, _, record = bytes(buffer[at + LENGTH.size : end]).partition(b"\n")
            number, kind, message, seconds = json.loads(head)
            yield Word(number, kind, message, seconds, record)
            at = end
        del buffer[:at]
