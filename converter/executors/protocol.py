"""The messages between a driver and its fork server.

Orders go down, word comes up; both ends are this version of this program. The server looks into
neither more than it must: an order says what it has to watch, and holds the job as the child takes
it; a word holds the outcome's record as the child wrote it. Between two forks it so touches few of
the pages that it shares with its children, each of which costs a copy.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from typing import Literal, NamedTuple

from converter.jobs.job import Job

# What became of a child: "killed" is by SIGKILL and not by us, and "oom" the same while the kernel
# ran out of memory; "spoilt" is a crash in a child that had done other jobs before.
End = Literal[
    "ready", "begun", "answered", "crashed", "timeout", "memory", "killed", "oom", "spoilt"
]
ENDS: tuple[End, ...] = (
    "ready", "begun", "answered", "crashed", "timeout", "memory", "killed", "oom", "spoilt",
)  # fmt: skip
LENGTH = struct.Struct(">Q")
ORDER = struct.Struct(">QdQ?")  # number, seconds, bytes of memory, whether a GPU is used
WORD = struct.Struct(">QBd")  # number, how it ended, seconds
WORK = "converter.executors.worker:work"


@dataclass(frozen=True, slots=True)
class Charter:
    """What a server is told before any order.

    Attributes:
        scratch: Folder for temporary files.
        jobs: How many run at a time.
        first: A job like those to come: what it needs is imported once for all.
        preloads: Whether anything of a conversion's is imported; tests of other tasks do without.
        task: ``module:function``, called with the job and the folder; tests have others.
        environment: Variables that children have otherwise than the server; None for one that they
            do not have.
    """

    scratch: str
    jobs: int
    first: Job
    preloads: bool = True
    task: str = WORK
    environment: Mapping[str, str | None] = field(default_factory=dict)


class Order(NamedTuple):
    """One job to do.

    Attributes:
        number: That no other job of this server has.
        seconds: Until it is stopped; infinite for no limit.
        memory_bytes: Resident, until it is stopped; 0 for no limit.
        has_gpu: Whether it uses one.
        job: As `unpacked` makes a job of it.
    """

    number: int
    seconds: float
    memory_bytes: int
    has_gpu: bool
    job: bytes


class Word(NamedTuple):
    """What a server says of one of its jobs.

    Attributes:
        number: The order's; 0 of the server itself.
        end: What there is to say.
        seconds: How long it ran.
        text: What happened, where it ended badly; the pid of a child that begins; the JSON of the
            record where there is an answer.
    """

    number: int
    end: End
    seconds: float = 0.0
    text: bytes = b""


def packed(thing: object) -> bytes:
    """Return a charter or a job as bytes."""
    return bytes(ForkingPickler.dumps(thing))


def unpacked(some: bytes) -> object:
    """Return what `packed` was given; not for bytes of anybody else's."""
    return ForkingPickler.loads(some)  # type: ignore[attr-defined,no-any-return,unused-ignore]


def framed(some: bytes) -> bytes:
    """Return a message as it goes over the line."""
    return LENGTH.pack(len(some)) + some


def order(number: int, job: Job) -> bytes:
    """Return the frame of an order."""
    needs = job.needs
    seconds = float("inf") if needs.seconds is None else needs.seconds
    head = ORDER.pack(number, seconds, needs.memory_bytes or 0, bool(needs.gpus))
    return framed(head + packed(job))


def order_of(message: bytes) -> Order:
    """Return the order that a message is."""
    number, seconds, memory_bytes, has_gpu = ORDER.unpack_from(message)
    return Order(number, seconds, memory_bytes, has_gpu, message[ORDER.size :])


def word(said: Word) -> bytes:
    """Return the frame of a word."""
    return framed(WORD.pack(said.number, ENDS.index(said.end), said.seconds) + said.text)


def word_of(message: bytes) -> Word:
    """Return the word that a message is."""
    number, end, seconds = WORD.unpack_from(message)
    return Word(number, ENDS[end], seconds, message[WORD.size :])


class Unframing:
    """Takes what comes over the line in whatever pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, some: bytes) -> Iterator[bytes]:
        """Yield the messages that are complete now."""
        buffer = self._buffer
        buffer += some
        at = 0
        while len(buffer) >= at + LENGTH.size:
            end = at + LENGTH.size + LENGTH.unpack_from(buffer, at)[0]
            if len(buffer) < end:
                break
            yield bytes(buffer[at + LENGTH.size : end])
            at = end
        del buffer[:at]
