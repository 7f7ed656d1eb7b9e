"""Options of a conversion, and checks for contradictions among them.

All checks here run before the source is opened; checks that depend on the source are made where it
is read.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path

from converter.byte_sizes import parse_size
from converter.child.trust import Trusted
from converter.opsets import OPSETS
from formats.core.bundle import JSON, FixedInput, TensorSpec
from formats.core.weights import DTYPES
from formats.errors import UnsupportedError, UsageError
from formats.limits import DEFAULT, Limits

# How far an output is verified: not at all; its graph runs alone; its weights are equal; it
# computes what the source does, on the CPU; and on the requested device.
LEVELS = ("none", "smoke", "weights", "cpu", "device")
EXPORTERS = ("auto", "native", "export", "torchscript")
PRECISIONS = ("fp16", "bf16")
STATES = ("drop", "io")


@dataclass(frozen=True, slots=True)
class Arch:
    """The factory that builds the nn.Module for a state dict.

    Attributes:
        factory: ``package.module:name``, a class or a function.
        arguments: Its keyword arguments.
    """

    factory: str
    arguments: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Options of a comparison of graphs.

    Attributes:
        atol: Absolute tolerance by output; the empty name stands for all others.
        rtol: Relative tolerance, likewise.
        inputs: A user's .npz, in place of random inputs.
        seed: Seed of random inputs.
        samples: Draws for each combination of sizes.
        layers: Whether the outputs of all layers are compared, and their errors reported. Without
            it, layers are compared up to the first difference, where outputs call for it.
        allow_tf32: Whether a GPU may round products to TF32, on either side.
        allow_cpu_nodes: Number of nodes that may run on the CPU where another device is requested.
        example: A registry's .npz, tried in addition to random inputs if it fits the model.
        timeout: Time limit of each runtime, in seconds.
    """

    atol: Mapping[str, float] = field(default_factory=dict)
    rtol: Mapping[str, float] = field(default_factory=dict)
    inputs: Path | None = None
    seed: int = 0
    samples: int = 1
    layers: bool = False
    allow_tf32: bool = False
    allow_cpu_nodes: int = 0
    example: Path | None = None
    timeout: float = 900.0


@dataclass(frozen=True, slots=True, repr=False)
class Options:
    """Options of a conversion. None means the default.

    Attributes:
        to: A row of `converter.write.catalog`; ``auto`` is the target of the output's suffix, or
            ``portable``.
        device: Device of the output. Targets ``torch``, ``torchscript`` and ``pt2`` take torch's
            name (``cpu``, ``cuda:1``, ``mps``), ``savedmodel`` TensorFlow's (``none``, ``GPU:1``,
            or a full name), ``triton`` and ``onnx`` either.
        precision: ``fp16`` or ``bf16`` for the floating point values of an ONNX graph; None keeps
            their dtypes.
        propagate_nan: Make max-pooling of an ONNX graph return NaN of a window with NaN, and -inf
            of a window of -inf, as torch does; else it is left to the runtime.
        keep_structure: Keep a torch checkpoint's own nesting, and all of its contents.
        format: Row id of the source's format; None detects it by content.
        checkpoint: Prefix, folder or file of the checkpoint with the values of a graph's variables.
        merge_adapter: File or folder of the base model, into which the source, an adapter, is
            merged.
        dequantize: Make floats of quantised weights (GPTQ, AWQ, bitsandbytes, …), as the library
            that wrote them does.
        arch: Factory that builds the nn.Module for a state dict.
        task: What the model of a Hugging Face folder is for, as ``text-generation-with-past``.
        inputs: Inputs of a program that does not record them.
        hinted_inputs: Inputs as a registry declares them, "" for an undeclared name. They are
            ignored if the program cannot be lowered with them.
        exporter: Exporter of torch programs: ``native`` is ours, ``export`` and ``torchscript`` are
            torch's own; ``auto`` tries them in this order.
        state: What becomes of buffers and variables that the source assigns: ``drop`` leaves the
            assignments out, ``io`` makes an input and an output of each.
        include: Groups of training state to keep with the weights.
        strip_prefix: ``auto``, ``none`` or a prefix of tensor names.
        verify: How far to verify: ``none``, ``smoke``, ``weights``, ``cpu``, ``device``, or
            ``auto``, the highest level that this machine supports.
        require: The lowest level of verification that does not fail the conversion.
        comparison: Options of the comparison of graphs.
        max_shard_size: Largest safetensors file, in bytes or as "500MB", "5GB", "2GiB".
        opset: ONNX opset; None for 18, or the lowest higher one with the operators of the model.
        signatures: Names of TensorFlow signatures to convert; all, if empty.
        triton: Settings of a Triton entry, by name (see `converter.write.triton.settings`).
        trust: Modules of the user whose code may run, in child processes, if the source has
            custom layers or modules.
        strict_safety: Refuse a source that refers to code or to files outside itself.
        overwrite: Replace an existing output.
        sync: Wait until the output is on the disk, not only in its cache. Replacing an existing
            output always waits: a power cut may cost the new output, whose source still exists,
            but never the old one.
    """

    to: str = "auto"
    device: str | None = None
    precision: str | None = None
    propagate_nan: bool = False
    keep_structure: bool = False
    format: str | None = None
    checkpoint: Path | None = None
    merge_adapter: Path | None = None
    dequantize: bool = False
    arch: Arch | None = None
    task: str | None = None
    inputs: tuple[TensorSpec, ...] = ()
    hinted_inputs: tuple[TensorSpec, ...] = ()
    exporter: str = "auto"
    state: str = "drop"
    include: tuple[str, ...] = ()
    strip_prefix: str = "auto"
    verify: str = "auto"
    require: str | None = None
    comparison: Comparison = field(default_factory=Comparison)
    max_shard_size: int | str = "50GB"
    opset: int | None = None
    signatures: tuple[str, ...] = ()
    triton: Mapping[str, str] = field(default_factory=dict)
    trust: tuple[Trusted, ...] = ()
    strict_safety: bool = False
    overwrite: bool = False
    sync: bool = False
    limits: Limits = DEFAULT

    def __repr__(self) -> str:
        """Return the fields that differ from their defaults."""
        default = type(self)()
        given = ((f.name, getattr(self, f.name)) for f in fields(self))
        return f"Options({', '.join(f'{n}={v!r}' for n, v in given if v != getattr(default, n))})"

    @property
    def shard_bytes(self) -> int:
        """Return ``max_shard_size`` in bytes.

        Raises:
            UsageError: It is not a size.
        """
        size = self.max_shard_size
        return size if isinstance(size, int) else parse_size(size)

    @property
    def asks_for_graph(self) -> bool:
        """Whether any option explicitly requests a graph."""
        return bool(
            self.arch
            or self.task
            or self.inputs
            or self.exporter != "auto"
            or self.signatures
            or self.state != "drop"
            or self.propagate_nan
        )


FIXED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
AXIS = re.compile(r"[A-Za-z_]\w*\Z")


def parse_inputs(given: Iterable[str]) -> tuple[TensorSpec, ...]:
    """Parse inputs of the form ``NAME:DTYPE:SIZE,SIZE,…`` or ``NAME=VALUE``.

    A size that is a name is dynamic. A value fixes an argument that is no tensor: a number, true,
    false, none, or a string in double quotes.

    Raises:
        UsageError: One is malformed, or a name occurs twice.
    """
    found: dict[str, TensorSpec] = {}
    for text in given:
        if fixed := FIXED.match(text):
            spec = _parse_fixed(text, *fixed.groups())
            if spec.name in found:
                raise UsageError(text, expected="each name once")
            found[spec.name] = spec
            continue
        name, dtype, sizes = [*text.rsplit(":", 2), "", ""][:3]
        expected = "NAME:DTYPE:SIZE,SIZE,…, as in image:float32:batch,3,224,224"
        shape: list[int | str] = []
        for size in filter(None, (part.strip() for part in sizes.split(","))):
            if not size.isascii() or not (size.isdigit() or AXIS.match(size)):
                raise UsageError(f"{text}: size {size!r:.40}", expected=expected)
            shape.append(int(size) if size.isdigit() else size)
        if not name or text.count(":") < 2 or name in found:
            raise UsageError(text, expected=expected)
        if dtype not in DTYPES:
            raise UsageError(f"{text}: dtype {dtype!r:.40}", expected=expected)
        found[name] = TensorSpec(name, dtype, tuple(shape))
    return tuple(found.values())


def _parse_fixed(text: str, name: str, value: str) -> FixedInput:
    """Parse an argument of a fixed value, as JSON or in Python's spelling."""
    words = {"True": True, "False": False, "None": None, "none": None}
    try:
        parsed = words[value] if value in words else json.loads(value)
    except ValueError:
        parsed = ()
    if not isinstance(parsed, bool | int | float | str | None):
        raise UsageError(
            text,
            expected='NAME=VALUE with a number, true, false, none or a string, as in mode="fast"',
            hint=f"Quote a string for the shell, too: '{name}=\"{value:.40}\"'",
        )
    dtype = {bool: "bool", int: "int64", float: "float64"}.get(type(parsed), "")
    return FixedInput(name, dtype, (), parsed)


def check_choice(name: str, value: str, known: Iterable[str]) -> None:
    """Check that the value of an option is one of its choices.

    Raises:
        UsageError: It is not; the message has the closest match and lists all choices.
    """
    choices = list(known)
    if value in choices:
        return
    near = get_close_matches(value.lower(), choices, n=1)
    raise UsageError(
        f"{name}={value!r} is unknown",
        expected=f"{', '.join(choices[:-1])} or {choices[-1]}",
        hint=f"Did you mean {near[0]!r}?" if near else None,
    )


def check(options: Options) -> None:
    """Check the options that do not depend on the target.

    Raises:
        UsageError: Options contradict each other, or a value is not one of the choices.
        UnsupportedError: ``opset`` is not supported.
    """
    check_choice("verify", options.verify, (*LEVELS, "auto"))
    check_choice("require", options.require or "weights", LEVELS[1:])
    check_choice("exporter", options.exporter, EXPORTERS)
    check_choice("state", options.state, STATES)
    check_choice("precision", options.precision or "fp16", PRECISIONS)
    _check_levels(options)
    if options.opset not in (None, *OPSETS):
        raise UnsupportedError(f"opset={options.opset}", expected=f"{min(OPSETS)} to {max(OPSETS)}")
    if options.shard_bytes < 1:
        raise UsageError(f"max_shard_size={options.max_shard_size}", expected="at least 1 byte")


def _check_levels(options: Options) -> None:
    order = LEVELS.index
    least, most = options.require, options.verify
    if least is not None and most != "auto" and order(most) < order(least):
        raise UsageError(f"require={least!r} contradicts verify={most!r}")
