"""Describe artifacts as plain data. Nothing is converted, and no weight is read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from converter import safety
from converter.byte_sizes import readable_size
from converter.notebook import render_table
from formats import catalog
from formats.artifact import Artifact
from formats.core.bundle import (
    JSON,
    Bundle,
    Encoding,
    LeftOut,
    Normalisation,
    SafetyFinding,
    Signature,
)
from formats.core.plurals import count, list_counts
from formats.core.weights import Tensor
from formats.limits import DEFAULT, Limits


@dataclass(frozen=True, slots=True)
class FileTotals:
    """The files that were opened: how many, and their total size in bytes."""

    count: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over named tensors.

    Attributes:
        tensors: Number of names.
        tied: Number of names that share the storage of another one.
        parameters: Number of elements; shared storage counts once.
        bytes: Size of the elements; shared storage counts once.
        dtypes: Dtype → number of names.
    """

    tensors: int
    tied: int
    parameters: int
    bytes: int
    dtypes: Mapping[str, int]

    def __str__(self) -> str:
        dtypes = list_counts(self.dtypes)
        return (
            f"{count('tensor', self.tensors)}, {count('parameter', self.parameters)}, "
            f"{readable_size(self.bytes)}"
            + (f", {dtypes}" if dtypes else "")
            + (f", {self.tied} tied" if self.tied else "")
        )


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: its name, dtype, shape, size in bytes, and path in the source."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    origin: str


class TopologySummary(NamedTuple):
    """The kind of a computation, and counts and names of its parts."""

    kind: str
    summary: Mapping[str, JSON]


@dataclass(frozen=True, slots=True, repr=False)
class Inspection:
    """The description of an artifact: format, recorded facts and contents.

    Attributes:
        source: Path as given; "" for a bundle.
        format: Row id of `formats.catalog`.
        evidence: Why it was detected as that format; "" for a bundle.
        variant: Version or layout of the format.
        framework: Framework that wrote it, if known.
        recorded: Versions, backends and byte orders as recorded.
        devices: Recorded device → number of tensors or nodes.
        distribution: Recorded strategy and replicas.
        files: The files opened so far.
        weights: Sums over the model's weights.
        tensors: Each of these weights.
        leftovers: Training group → sums over its tensors.
        encodings: Tensors stored as several parts.
        topology: The computation, if there is one.
        signatures: Inputs and outputs as declared.
        assets: Other files → size in bytes.
        user: Plain data stored with the model.
        opaque: Path → class of objects that are neither tensors nor plain data.
        left_out: What a conversion leaves out, with the reason.
        normalisations: Changes made by reading.
        findings: What would run code in an unsafe loader.
    """

    source: str
    format: str
    evidence: str
    variant: str
    framework: str | None
    recorded: Mapping[str, str]
    devices: Mapping[str, int]
    distribution: Mapping[str, JSON]
    files: FileTotals
    weights: Totals
    tensors: tuple[TensorInfo, ...]
    leftovers: Mapping[str, Totals]
    encodings: Mapping[str, Encoding]
    topology: TopologySummary | None
    signatures: tuple[Signature, ...]
    assets: Mapping[str, int]
    user: Mapping[str, JSON]
    opaque: Mapping[str, str]
    left_out: tuple[LeftOut, ...]
    normalisations: tuple[Normalisation, ...]
    findings: tuple[SafetyFinding, ...]

    def plain(self) -> dict[str, Any]:
        """Return the inspection as a JSON-like dict with one key per attribute."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def __repr__(self) -> str:
        return f"<Inspection of {self.source or 'a bundle'}: {self.format}, {self.weights}>"

    def _repr_html_(self) -> str:
        rows = [
            ("format", f"{self.format} ({self.variant})"),
            ("recorded", _pairs(self.recorded)),
            ("devices", _pairs(self.devices)),
            ("weights", self.weights),
            *self.leftovers.items(),
            ("topology", self.topology.kind if self.topology else ""),
            *(("left out", f"{x.name}: {x.reason}") for x in self.left_out),
            *(("finding", safety.describe(x)) for x in self.findings),
        ]
        facts = render_table(self.source or "a bundle", [row for row in rows if row[1]])
        tensors = [(t.name, t.dtype, list(t.shape)) for t in self.tensors]
        return facts + render_table("weights", tensors, ("name", "dtype", "shape"))


def inspect(
    source: str | Path | Bundle, *, format: str | None = None, limits: Limits = DEFAULT
) -> Inspection:
    """Describe an artifact, or a bundle already read.

    Args:
        source: File, folder, checkpoint prefix, or bundle.
        format: Row id of `formats.catalog`; by default detected from the content.
        limits: Limits of reading.

    Raises:
        ConvertError: As `converter.pipeline.read`.
    """
    if isinstance(source, Bundle):
        return _describe(source)
    artifact, match, bundle = read_artifact(source, format, limits)
    return describe_artifact(artifact, match, bundle, str(source))


def read_artifact(
    source: str | Path, format: str | None = None, limits: Limits = DEFAULT
) -> tuple[Artifact, catalog.Match, Bundle]:
    """Detect and read an artifact; no weight is read.

    Raises:
        ConvertError: As `converter.pipeline.read`.
    """
    artifact = Artifact(source, limits)
    match = catalog.detect(artifact, format)
    bundle = match.format.read(artifact)
    catalog.check_expansion(bundle, artifact)
    return artifact, match, bundle


def describe_artifact(
    artifact: Artifact, match: catalog.Match, bundle: Bundle, source: str
) -> Inspection:
    """Return the description of an artifact that was read; ``source`` is what it is called."""
    sizes = [file.size for file in artifact.opened.values()]
    return _describe(
        bundle, source, match.format.id, match.evidence, FileTotals(len(sizes), sum(sizes))
    )


def _describe(
    bundle: Bundle,
    source: str = "",
    format: str = "",
    evidence: str = "",
    files: FileTotals = FileTotals(),
) -> Inspection:
    about, topology = bundle.metadata, bundle.topology
    return Inspection(
        source=source,
        format=format or about.format,
        evidence=evidence,
        variant=about.variant,
        framework=about.framework,
        recorded=dict(about.recorded),
        devices=dict(about.devices),
        distribution=dict(about.distribution),
        files=files,
        weights=_totals(bundle.weights),
        tensors=tuple(
            TensorInfo(name, t.dtype.name, tuple(t.shape), t.nbytes, t.origin)
            for name, t in bundle.weights.items()
        ),
        leftovers={group: _totals(members) for group, members in bundle.leftovers.items()},
        encodings=dict(bundle.encodings),
        topology=TopologySummary(topology.kind, dict(topology.summary)) if topology else None,
        signatures=bundle.signatures,
        assets={name: span.length for name, span in bundle.assets.items()},
        user=dict(about.user),
        opaque=dict(about.opaque),
        left_out=about.left_out,
        normalisations=about.normalisations,
        findings=about.findings,
    )


def _totals(tensors: Mapping[str, Tensor]) -> Totals:
    distinct = {t.identity: t for t in tensors.values()}.values()
    return Totals(
        tensors=len(tensors),
        tied=len(tensors) - len(distinct),
        parameters=sum(t.size for t in distinct),
        bytes=sum(t.nbytes for t in distinct),
        dtypes=dict(Counter(t.dtype.name for t in tensors.values())),
    )


def _plain(value: Any) -> Any:
    """Return a value with dataclasses at any depth as dicts, and all else unchanged."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, TopologySummary):
        return value._asdict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {k: asdict(v) if isinstance(v, Totals | Encoding) else v for k, v in value.items()}
    return value


def _pairs(table: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in table.items())
