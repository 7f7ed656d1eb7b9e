"""Events that a conversion yields while it runs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from formats.core.bundle import JSON, Bundle, Metadata
from formats.core.storage import File


class Step(NamedTuple):
    """A finished step.

    Attributes:
        name: ``detected``, ``read``, ``renamed``, ``normalised``, ``lowered``, ``left out``,
            ``warning``, ``written``, ``verified``, ``attested`` or ``planned``.
        text: Its result in words.
        seconds: Duration, where it matters.
    """

    name: str
    text: str
    seconds: float | None = None


class Started(NamedTuple):
    """A step begins that does not tell how much of it is done; a `Step` says when it is finished.

    Attributes:
        name: As of a step, in its running form: ``comparing``.
        text: What is being done.
    """

    name: str
    text: str


class Progress(NamedTuple):
    """How much of a step is done.

    Attributes:
        name: As of a step: ``written``.
        done: Bytes.
        total: Bytes.
        item: Tensor or file that is being written.
    """

    name: str
    done: int
    total: int
    item: str = ""


class Lowered(NamedTuple):
    """The source is lowered: its graphs, and what was changed or left out.

    Attributes:
        graphs: ``signature``, ``nodes``, ``opset`` and ``exporter`` of each.
        metadata: Metadata of the bundle that will be written.
    """

    graphs: Sequence[dict[str, JSON]]
    metadata: Metadata


class Compared(NamedTuple):
    """A graph has been compared with its source, whatever the result.

    Attributes:
        signature: Name of the signature; "" if the source has none.
        report: The comparison, as in the manifest.
    """

    signature: str
    report: dict[str, JSON]


class Opened(NamedTuple):
    """The source has been read; reports use it even if the conversion fails later.

    Attributes:
        format: Row id of the source's format.
        evidence: Why it was detected as that format.
        bundle: As read, before normalisation.
        files: Files of the source that were opened, by name.
    """

    format: str
    evidence: str
    bundle: Bundle
    files: Mapping[str, File]
