"""An entry of a registry: one artifact, before anything of it is read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from formats.core.bundle import JSON, TensorSpec


@dataclass(frozen=True, slots=True)
class Entry:
    """An artifact to convert, or a damaged file that will fail.

    Attributes:
        source: As any process finds it: an absolute path, a URL, ``models:/name/3``.
        name: Relative to the registry, with ``/`` between folders: ``team/model.h5``.
        nbytes: Size of all its files; None where the registry does not say.
        token: What changes when the artifact does (sizes and times, an ETag); "" for unknown.
        format: Row id of `formats.catalog`, as far as looking from outside tells; "" for unknown.
        evidence: Why.
        checkpoint: Of the values of this graph's variables, in the terms of ``source``; or "".
        note: Facts for the conversion that the artifact does not record; or "".
    """

    source: str
    name: str
    nbytes: int | None
    token: str
    format: str = ""
    evidence: str = ""
    checkpoint: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file of a registry that is not an artifact, or is part of another one.

    Attributes:
        source: As an entry's.
        reason: In a few words that many have in common: ``no model``, ``a second copy of …``.
        name: Name of an entry of the registry that holds a model; "" for anything else.
        token: As an entry's, of a file whose content says that it is no artifact; or "".
    """

    source: str
    reason: str
    name: str = ""
    token: str = field(default="", compare=False)


Found: TypeAlias = "Entry | Skipped"


@dataclass(frozen=True, slots=True)
class Staged:
    """An artifact as a local path, with its registry's metadata.

    Attributes:
        path: Of the artifact; in the scratch folder where the registry is elsewhere.
        inputs: Of its program, as the registry declares them, where the artifact may not.
        example: A ``.npz`` with an array for each input.
        facts: What a destination wants to know again: ids, signature, tags.
        checkpoint: Of the values of this graph's variables.
    """

    path: Path
    inputs: tuple[TensorSpec, ...] = ()
    example: Path | None = None
    facts: Mapping[str, JSON] = field(default_factory=dict)
    checkpoint: Path | None = None


class Registry(Protocol):
    """A place with artifacts in it."""

    @property
    def label(self) -> str:
        """The registry's name among others: the last part of its reference."""

    def find(self) -> Iterator[Found]:
        """Yield the entries, in a fixed order.

        Raises:
            StorageError: It cannot be listed.
            SourceError: There is no such thing.
        """
