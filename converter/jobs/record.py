"""The record of one conversion: the facts that ledger, reports, notes and tags derive from.

A record is plain data that passes between processes and machines. Its JSON has the same schema,
with a version, in the ledger, in reports as JSON lines and in notes next to outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from converter.version import VERSION
from formats.core.bundle import JSON

SCHEMA = 1  # version of the JSON; earlier records have no version and the same keys
KEYS = {"unsupported": "gaps"}  # fields that have another name in JSON


class NewerRecordError(ValueError):
    """A record has a schema that only a newer convert knows."""


@dataclass(frozen=True, slots=True)
class RecordedError:
    """What stopped a conversion.

    Attributes:
        type: Name of the exception's class.
        message: Its message, with its notes.
    """

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of a conversion, as `converter.events.Step`."""

    name: str
    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedGraph:
    """One graph of an output.

    Attributes:
        signature: Its name; "" where the source has none.
        nodes: Number of its nodes.
        opset: Its ONNX opset.
        exporter: The tool that made it; "" for our own lowering.
    """

    signature: str
    nodes: int | None = None
    opset: int | None = None
    exporter: str | None = None


@dataclass(frozen=True, slots=True)
class Unsupported:
    """An op, argument or dtype that is not supported.

    Attributes:
        what: Its description, the same for every model.
        count: Number of occurrences in the model.
    """

    what: str
    count: int


@dataclass(frozen=True, slots=True)
class RecordedVerification:
    """How far an output is verified.

    Attributes:
        reached: ``none``, ``weights``, ``cpu`` or ``device``.
        weights: Number and bytes of the equal tensors; None where none was compared.
        graphs: Each graph's comparison, as in manifests, by signature, failed ones included.
            Comparisons of reduced with full precision are named ``in fp16``.
    """

    reached: str = "none"
    weights: Mapping[str, JSON] | None = None
    graphs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """All facts about a job for reports.

    Attributes:
        source: Source of the job.
        name: Name of the job's output.
        entry: Name of the source in its registry, or "".
        output: Reference to the output; None where there is none.
        published: Facts with which the destination later checks the output.
        moved_from: Name of the output while its source had another name.
        plan: Digest of the options and the tool's version.
        to: Target.
        status: How the job ended; ``pending`` where it has not begun.
        exit_code: Exit code of `formats.errors`; None where the job has not begun.
        error: The error that stopped it.
        bytes: Size of the source files that were opened.
        format: Row id of the source's format.
        variant: Variant of the format, from the reader.
        evidence: Why the format was detected.
        framework: Framework that wrote the source.
        recorded: Versions and other facts that the source records.
        devices: Devices that the source records, with their counts.
        distribution: Strategy and replicas that the source records.
        source_digest: Digest of the source's files.
        weights_digest: Digest of the weights, independent of the container.
        tensors: Number of the source's tensors.
        weight_bytes: Bytes of the source's weights, each storage counted once.
        normalisations: Changes to the source, with counts, as in the manifest.
        left_out: Parts that are not in the output, with reasons, as in the manifest.
        unsupported: Features that failed the conversion or cost it a graph; ``gaps`` in JSON.
        findings: Findings of the reader: ``kind``, ``subject``, ``where``.
        warnings: Warning messages.
        graphs: Graphs of the output.
        verification: How far the output is verified.
        steps: Steps in the order in which they ended.
        seconds: Total wall time.
        attempts: How often the job was begun.
        started: Seconds since the epoch.
        host: Name of the machine.
        tool: Version of convert.
    """

    source: str
    name: str
    entry: str = ""
    output: str | None = None
    published: Mapping[str, Any] = field(default_factory=dict)
    moved_from: str | None = None
    plan: str = ""
    to: str = ""
    status: str = "failed"
    exit_code: int | None = 70
    error: RecordedError | None = None
    bytes: int | None = None
    format: str | None = None
    variant: str | None = None
    evidence: str | None = None
    framework: str | None = None
    recorded: Mapping[str, JSON] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    distribution: Mapping[str, JSON] = field(default_factory=dict)
    source_digest: str | None = None
    weights_digest: str | None = None
    tensors: int = 0
    weight_bytes: int = 0
    normalisations: tuple[Mapping[str, Any], ...] = ()
    left_out: tuple[Mapping[str, Any], ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    graphs: tuple[RecordedGraph, ...] = ()
    verification: RecordedVerification = field(default_factory=RecordedVerification)
    steps: tuple[RecordedStep, ...] = ()
    seconds: float = 0.0
    attempts: int = 1
    started: float | None = None
    host: str | None = None
    tool: str | None = VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON: every key, always in the same order."""
        return {"schema": SCHEMA, **_to_json(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Record":
        """Read a record of this version or an earlier one; missing keys get defaults.

        Raises:
            NewerRecordError: A newer convert wrote it.
            ValueError: It is not a record.
        """
        try:
            if value.get("schema", 0) > SCHEMA:
                raise NewerRecordError(f"it has schema {value['schema']}; known is {SCHEMA}")
            found = {f: value[key] for f, key in _FIELDS if key in value}
            for name, part in _PARTS.items():
                if found.get(name) is not None:
                    found[name] = part(**found[name])
            for name in _TUPLES:
                found[name] = tuple(found.get(name, ()))
            for name, item in _ITEMS.items():
                found[name] = tuple(item(**one) for one in found.get(name, ()))
            return cls(**found)
        except (TypeError, KeyError, AttributeError) as e:
            raise ValueError(f"it is no record: {e}") from e


_FIELDS = tuple((f.name, KEYS.get(f.name, f.name)) for f in fields(Record))
_PARTS: Mapping[str, type] = {"error": RecordedError, "verification": RecordedVerification}
_TUPLES = ("normalisations", "left_out", "findings", "warnings")
_ITEMS: Mapping[str, type] = {
    "unsupported": Unsupported,
    "graphs": RecordedGraph,
    "steps": RecordedStep,
}


def _to_json(value: Any) -> dict[str, Any]:
    return {KEYS.get(f, f): _plain(getattr(value, f)) for f in value.__slots__}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return _to_json(value) if isinstance(value, (*_PARTS.values(), *_ITEMS.values())) else value
