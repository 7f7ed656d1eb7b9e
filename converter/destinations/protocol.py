"""The protocol of destinations, for workers and for the planning of a batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from converter.jobs.job import Job
from converter.jobs.record import Record
from converter.registries.entry import Staged

GONE = "is gone"


@dataclass(frozen=True, slots=True)
class Published:
    """A published output.

    Attributes:
        output: A reference to it.
        facts: What `Destination.find_damage` needs later: for files, size and ETag by name.
        warnings: What the user should know.
    """

    output: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """An output that the destination's own notes describe.

    Attributes:
        name: Of the output.
        source: The job's.
        plan: The job's.
        token: The job's.
        record: Of the conversion, as far as the destination keeps it.
    """

    name: str
    source: str
    plan: str
    token: str
    record: Record


class Destination(Protocol):
    """A place for outputs; each process opens it from its reference."""

    def prepare(self) -> None:
        """Prepare the destination, in the driver, before anything is converted.

        Raises:
            StorageError: It cannot be made or written.
        """

    def find_damage(self, name: str, record: Record) -> str:
        """Return how an output differs from the recorded one; "" where it does not.

        It is asked for each output of a plan, and so looks at names and sizes, not into files.

        Args:
            name: Of the output.
            record: Of the conversion, with the facts that `publish` returned.
        """

    def exists(self, name: str) -> bool:
        """Return whether the output would replace anything, no matter who wrote it.

        Asked in the driver before a job and after a crash, so that an output which a killed run
        published and never recorded is known for ours. A place that tells so itself (of what it
        holds it knows the source's digest) says False.
        """

    def sweep(self, name: str) -> bool:
        """Remove partial outputs of a killed worker; return whether none is left.

        What a live process still writes stays.
        """

    def flush(self) -> None:
        """Wait until published outputs would survive a power cut.

        Raises:
            StorageError: It does not get there.
        """

    def recall(self, known: frozenset[str]) -> Iterable[Recalled]:
        """Return our complete outputs, where the destination itself keeps notes.

        A destination without notes returns nothing: the ledger alone knows.

        Args:
            known: Names that the ledger knows.

        Raises:
            StorageError: It cannot be listed.
        """

    def local(self, name: str, scratch: Path) -> Path:
        """Return the path that the conversion writes: the final one, or a temporary one.

        Raises:
            StorageError: Its folder cannot be made.
        """

    def rename_output(self, old: str, job: Job, source: str, digest: str) -> Published | None:
        """Give the output of a vanished source to a job whose source has the same bytes.

        Args:
            old: Its name by now.
            job: Whose it becomes, under its name.
            source: What the job's source is called.
            digest: Of it.

        Returns:
            As `publish`; None where the output is not what it was taken for, or where the
            destination renames nothing: then the job has to be done.
        """

    def publish(self, made: Path, job: Job, staged: Staged, record: Record) -> Published:
        """Publish a converted and verified output, completely or not at all.

        Args:
            made: As `local` said.
            job: Which.
            staged: Its source.
            record: What is known of it.

        Raises:
            StorageError: It cannot be put there.
        """


def differs(name: str, written: int, found: int) -> str:
    """Return the message for a file whose size differs from the recorded one."""
    what = f"{name} has" if name else "has"
    return f"{what} {found} bytes; {written} were written"
