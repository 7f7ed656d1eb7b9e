"""The device-neutral intermediate that every reader returns and every writer takes.

Data flows one way: a reader builds a `Bundle` and knows no writer, a writer takes one and knows no
reader. Everything in it is plain, frozen data; only the weights are lazy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from formats.core.storage import Span
from formats.core.weights import Tensor
from formats.errors import Gaps

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output: a name, a dtype, and sizes where an axis' name means dynamic."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None  # None: even the rank is not recorded


@dataclass(frozen=True, slots=True)
class FixedInput(TensorSpec):
    """An argument of a program that is a constant of the conversion, and no input of the graph."""

    value: bool | int | float | str | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """Named inputs and outputs, as the source declares them."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Topology:
    """What the source says about computation, in the source's own words.

    Attributes:
        kind: ``keras_config``, ``graphdef``, ``torchscript``, ``exported_program``, ``onnx``, …
        summary: Counts and names small enough for a manifest (layers, nodes, ops).
        content: The words themselves: parsed JSON, or runs of bytes by name; never live objects.
    """

    kind: str
    summary: Mapping[str, JSON] = field(default_factory=dict)
    content: "JSON | Mapping[str, Span]" = None

    def __repr__(self) -> str:
        return f"<Topology {self.kind}: {dict(self.summary)}>"


@dataclass(frozen=True, slots=True)
class Encoding:
    """How several stored tensors make one logical tensor that no plain dtype can hold.

    Attributes:
        kind: ``quantized``, ``sparse_coo``, ``sparse_csr``, ``string``, …
        dtype: Logical dtype, in the source's words.
        shape: Logical shape.
        parts: Role → name of the tensor in `Bundle.weights`.
        parameters: What else is needed to put it together (axis, scheme, bit width).
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    parts: Mapping[str, str]
    parameters: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SafetyFinding:
    """Something in the source that could run code or reach outside it, were it loaded naively.

    Attributes:
        kind: ``pickle-callable``, ``lambda-bytecode``, ``custom-object``, ``file-op``, ``link``, …
        subject: What is named: ``posix.system``, ``layer 'lambda_1'``.
        where: The member, layer or node that names it.
    """

    kind: str
    subject: str
    where: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of the source that the bundle does not hold, and why.

    Attributes:
        name: What it is.
        reason: Why it is not there.
        gaps: Of ours, where they are the reason: each with how often it is met. They are for
            reports, and in no manifest.
    """

    name: str
    reason: str
    gaps: Gaps = ()

    def plain(self) -> dict[str, JSON]:
        """Return what manifests say of it."""
        return {"name": self.name, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Normalisation:
    """A change made on the way, by name, with how often."""

    name: str
    count: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the source records about itself. What it does not record is absent, never guessed.

    Attributes:
        format: Row id of `formats.catalog`.
        variant: Which of the format's ages or shapes this is, in words.
        framework: Who wrote it: ``torch``, ``keras``, ``tensorflow``, ``onnx``, or None.
        recorded: Versions, backends, byte orders as recorded, under the source's own names.
        devices: Recorded device → number of tensors, or nodes.
        distribution: Strategy and replicas, as far as recorded.
        user: Plain data that came along: epoch, hyper-parameters, training configuration.
        opaque: Path → dotted name of objects that are neither tensors nor plain data.
        tensor_notes: Tensor name → what the source says of it and a plain tensor cannot carry
            (``{"requires_grad": true}``, ``{"persistent": false}``).
        tensor_devices: Tensor name → devices that it was on, more than one if it was mirrored.
    """

    format: str
    variant: str
    framework: str | None = None
    recorded: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    distribution: Mapping[str, JSON] = field(default_factory=dict)
    user: Mapping[str, JSON] = field(default_factory=dict)
    opaque: Mapping[str, str] = field(default_factory=dict)
    tensor_notes: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    tensor_devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    findings: tuple[SafetyFinding, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    normalisations: tuple[Normalisation, ...] = ()


Group = Literal["optimizer", "training"]


@dataclass(frozen=True, slots=True, repr=False)
class Bundle:
    """A model without its framework and without its device.

    Attributes:
        metadata: What the source records.
        weights: The model's tensors by name, in the source's order. Names are unique; tied weights
            are several names whose tensors have one `Tensor.identity`.
        leftovers: Tensors of training that are no part of the model, kept apart by group:
            ``optimizer`` (moments, step counters), ``training`` (random state, loss scale).
        encodings: Logical name → how tensors of ``weights`` or ``leftovers`` make it up.
        assets: Other files the model needs (vocabularies), by relative path.
    """

    metadata: Metadata
    weights: Mapping[str, Tensor]
    leftovers: Mapping[Group, Mapping[str, Tensor]] = field(default_factory=dict)
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    topology: Topology | None = None
    signatures: tuple[Signature, ...] = ()
    assets: Mapping[str, Span] = field(default_factory=dict)

    def __repr__(self) -> str:
        nbytes = sum({t.identity: t.nbytes for t in self.weights.values()}.values())
        kind = self.topology.kind if self.topology is not None else "no topology"
        count = len(self.weights)
        tensors = f"{count} tensor{'s' * (count != 1)}"
        return f"<Bundle of {self.metadata.format}: {tensors}, {nbytes:,} bytes, {kind}>"
