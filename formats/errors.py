"""Every error of the project, and the exit code each one means.

ConvertError
├── VerificationError            1   the output is not the source, or nothing was compared
├── UsageError                   2   the command line or the call is wrong
├── SourceError                  3   the source is unreadable
│   ├── UnknownFormatError           no format claims these bytes
│   ├── CorruptError                 the bytes contradict their format
│   └── LimitError                   the source asks for more than formats/limits.py grants
├── UnsupportedError             4   the source is valid; we cannot convert it yet
├── SafetyError                  5   refused
├── StorageError                 6   reading or writing a folder, disk, registry or store failed
├── DependencyError              7   a missing extra, a dead child, a time-out
└── InternalError               70   our bug

A message says what was found, what was expected, where, and what to do next; the parts stay
readable as attributes. Every error pickles, notes included, so that a child can hand it up.
"""

import errno
from typing import Any, ClassVar, TypeAlias

Gaps: TypeAlias = "tuple[tuple[str, int], ...]"


class ConvertError(Exception):
    """Base of every error the project raises.

    Args:
        found: What was found, as a clause.
        expected: What was expected instead.
        where: The file, member, layer or tensor.
        offset: Byte offset in ``where``.
        hint: What the user can do next.
        gaps: What of the source we cannot do, each with how often it is met: for machines to count.
    """

    exit_code: ClassVar[int] = 70

    def __init__(
        self,
        found: str,
        *,
        expected: str | None = None,
        where: object = None,
        offset: int | None = None,
        hint: str | None = None,
        gaps: Gaps = (),
    ) -> None:
        super().__init__(found)
        self.found = found
        self.expected = expected
        self.where = None if where is None else str(where)
        self.offset = offset
        self.hint = hint
        self.gaps = gaps

    def __str__(self) -> str:
        text = f"{self.where}: " if self.where else ""
        text += self.found
        if self.offset is not None:
            text += f" at byte {self.offset}"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.hint:
            text += f". {self.hint}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.found), self.__dict__)


def _rebuild(kind: type[ConvertError], found: str) -> ConvertError:
    return kind(found)


class VerificationError(ConvertError):
    """The output is not the source, or nothing was compared."""

    exit_code = 1


class UsageError(ConvertError):
    """The command line or the call is wrong."""

    exit_code = 2


class SourceError(ConvertError):
    """The source is unreadable."""

    exit_code = 3


class UnknownFormatError(SourceError):
    """No format claims these bytes."""


class CorruptError(SourceError):
    """The bytes contradict the format they claim to be."""


class LimitError(SourceError):
    """The source asks for more than `formats.limits.Limits` grants."""


class UnsupportedError(ConvertError):
    """The source is valid, and we cannot convert it yet."""

    exit_code = 4


class SafetyError(ConvertError):
    """Refused, because going on could harm."""

    exit_code = 5


class StorageError(ConvertError):
    """Reading or writing a disk, registry or object store failed."""

    exit_code = 6

    @classmethod
    def writing(cls, where: object, e: OSError) -> "StorageError":
        """Return the error for an operating system's failure to write ``where``."""
        full = e.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "Free some space, or write elsewhere: out=" if full else None
        return cls(f"cannot be written: {e.strerror}", where=where, hint=hint)


class DependencyError(ConvertError):
    """This machine lacks something: an extra, a device, time."""

    exit_code = 7


class InternalError(ConvertError):
    """A bug of ours."""

    exit_code = 70
