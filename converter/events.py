"""What a conversion says of itself while it runs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from formats.core.bundle import JSON, Bundle, Metadata
from formats.core.storage import File


class Step(NamedTuple):
    """One step of the road, done.

    Attributes:
        name: ``detected``, ``read``, ``normalised``, ``lowered``, ``left out``, ``warning``,
            ``written``, ``verified`` or ``planned``.
        text: What there is to say of it.
        seconds: How long it took, where that says something.
    """

    name: str
    text: str
    seconds: float | None = None


class Progress(NamedTuple):
    """How far a step is."""

    name: str
    done: int
    total: int


class Lowered(NamedTuple):
    """What becomes of the source: its graphs, and what was changed and left out on the way.

    Attributes:
        graphs: Of each its ``signature``, ``nodes``, ``opset`` and ``exporter``.
        metadata: Of the bundle as it will be written.
    """

    graphs: Sequence[dict[str, JSON]]
    metadata: Metadata


class Compared(NamedTuple):
    """A graph beside its source, whatever was found: what reports say of a failure, too.

    Attributes:
        signature: Which; empty where there are none.
        report: As manifests have it.
    """

    signature: str
    report: dict[str, JSON]


class Opened(NamedTuple):
    """The source, as it was read: what reports say of it, whatever becomes of the conversion.

    Attributes:
        format: Row id of the source's format.
        evidence: Why it was taken for that.
        bundle: As read, nothing taken out or renamed yet.
        files: The source's, by name, as far as they were opened.
    """

    format: str
    evidence: str
    bundle: Bundle
    files: Mapping[str, File]
