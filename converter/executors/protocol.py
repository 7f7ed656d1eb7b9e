"""The messages between a driver and its fork server.

The driver sends orders, the server answers with words; both run the same version of this program.
The server parses no more than it must: an order holds the limits to enforce, and the job as the
bytes that the child takes; a word holds the record as the child wrote it. So between two forks it
touches few of the pages that it shares with its children, each of which costs a copy.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from typing import Literal, NamedTuple

from converter.jobs.job import Job

# What a word reports. "killed": SIGKILL, not sent by us; "oom": the same while the kernel ran out
# of memory; "spoilt": a crash in a child that had run other jobs before.
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
    """The configuration of a server, sent before any order.

    Attributes:
        scratch: Folder for temporary files.
        jobs: Number of jobs that run at a time.
        first: A job like those to come: the modules that it needs are imported once for all.
        preloads: Whether modules of a conversion are imported; tests of other tasks turn it off.
        task: ``module:function``, called with the job and the folder; tests use others.
        environment: Variables whose values in children differ from the server's; None for a
            variable to unset.
    """

    scratch: str
    jobs: int
    first: Job
    preloads: bool = True
    task: str = WORK
    environment: Mapping[str, str | None] = field(default_factory=dict)


class Order(NamedTuple):
    """One job to run.

    Attributes:
        number: Unique among the jobs of this server.
        seconds: Time limit; infinite for none.
        memory_bytes: Limit of resident memory; 0 for none.
        has_gpu: Whether it uses a GPU.
        job: The pickled job, for `unpacked`.
    """

    number: int
    seconds: float
    memory_bytes: int
    has_gpu: bool
    job: bytes


class Word(NamedTuple):
    """A server's message about one of its jobs.

    Attributes:
        number: The order's number; 0 for the server itself.
        end: Kind of the message.
        seconds: How long the job ran.
        text: The error message of a job that ended badly; the pid of a child that begins; the JSON
            of the record of an answer.
    """

    number: int
    end: End
    seconds: float = 0.0
    text: bytes = b""


def pack(value: object) -> bytes:
    """Pickle a charter, a job or an order."""
    return bytes(ForkingPickler.dumps(value))


def unpack(some: bytes) -> object:
    """Unpickle bytes that `packed` made; unsafe for any others."""
    return ForkingPickler.loads(some)  # type: ignore[attr-defined,no-any-return,unused-ignore]


def frame(some: bytes) -> bytes:
    """Return a message with its length prefix."""
    return LENGTH.pack(len(some)) + some


def order(number: int, job: Job) -> bytes:
    """Encode an order as a framed message."""
    needs = job.needs
    seconds = float("inf") if needs.seconds is None else needs.seconds
    head = ORDER.pack(number, seconds, needs.memory_bytes or 0, bool(needs.gpus))
    return frame(head + pack(job))


def order_of(message: bytes) -> Order:
    """Decode a message to an order."""
    number, seconds, memory_bytes, has_gpu = ORDER.unpack_from(message)
    return Order(number, seconds, memory_bytes, has_gpu, message[ORDER.size :])


def word(said: Word) -> bytes:
    """Encode a word as a framed message."""
    return frame(WORD.pack(said.number, ENDS.index(said.end), said.seconds) + said.text)


def word_of(message: bytes) -> Word:
    """Decode a message to a word."""
    number, end, seconds = WORD.unpack_from(message)
    return Word(number, ENDS[end], seconds, message[WORD.size :])


class Unframing:
    """Splits a byte stream, received in chunks of any size, into messages."""

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
