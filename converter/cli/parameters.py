"""Table of the options of a conversion, and options that each command declares itself.

To add an option, add a field in `converter.options` and a row here, and use it.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from converter.cli.help_pages import CHECKS, CODE, GRAPH, OUTPUT, SOURCES, WEIGHTS
from converter.cli.rows import Fields, Row, below, top
from converter.write.catalog import list_targets
from formats.errors import UsageError

if TYPE_CHECKING:
    from converter.child.trust import Trusted
    from converter.options import Arch, Options
    from formats.core.bundle import TensorSpec

Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TOML file with defaults for these options; else [tool.convert] of ./pyproject.toml.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help="Format of SOURCE (see `convert formats`). Default: detected by content.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks of errors.")]


def split_commas(text: str) -> tuple[str, ...]:
    """Return the items of a comma-separated list."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def as_tuple(given: list[str] | str | None) -> tuple[str, ...]:
    """Return names as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def parse_bounds(given: list[str] | None) -> dict[str, float]:
    """Parse tolerances by output; the empty name applies to all others.

    Raises:
        UsageError: One is not a number, or is negative.
    """
    found = {}
    for text in given or ():
        name, _, number = text.rpartition(":")
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = -1.0
        if not 0 <= found[name] < float("inf"):
            raise UsageError(text, expected="[OUT:]X with X a number, zero or more")
    return found


def parse_arch(factory: str | None = None, arguments: str | None = None) -> "Arch | None":
    """Parse the factory of a module and its arguments.

    Raises:
        UsageError: One of them is malformed, or arguments are given without a factory.
    """
    from converter.options import Arch

    if factory is None:
        if arguments is not None:
            raise UsageError("--arch-args without --arch", expected="--arch package.module:factory")
        return None
    module, _, name = factory.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise UsageError(f"--arch {factory}", expected="package.module:factory")
    try:
        given = json.loads(arguments or "{}")
    except ValueError as e:
        raise UsageError(f"--arch-args is no JSON: {e}") from e
    if not isinstance(given, dict):
        raise UsageError("--arch-args", expected='a JSON object: {"num_classes": 10}')
    return Arch(factory, given)


def parse_inputs(given: list[str] | None) -> "tuple[TensorSpec, ...]":
    """Parse the inputs of a torch program (see `converter.options.parse_inputs`)."""
    from converter import options

    return options.parse_inputs(given or ())


def parse_settings(given: list[str] | None) -> dict[str, str]:
    """Parse settings of the form KEY=VALUE, each key once.

    Raises:
        UsageError: One has no value, or a key occurs twice.
    """
    found: dict[str, str] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not key or not equals or key in found:
            raise UsageError(text, expected="KEY=VALUE, each key once")
        found[key] = value
    return found


def parse_trust(given: list[str] | None) -> "tuple[Trusted, ...]":
    """Parse the trusted modules (see `converter.child.trust.parse_trust`)."""
    from converter.child import trust

    return trust.parse_trust(given or ())


# Commands that share an option.
BOTH = ("convert", "batch")
ALL = (*BOTH, "verify")
NAMES, NAME, FLAG, PATH = list[str] | None, str | None, bool, Path | None

# fmt: off
ROWS: tuple[Row, ...] = (
    Row("to", "--to", str, metavar="TARGET", default="auto", group=OUTPUT, commands=("convert",),
        help=f"{list_targets()}. Default: the one that writes OUT's suffix, or portable."),
    Row("to", "--to", str, metavar="TARGET", default="auto", group=OUTPUT, commands=("batch",),
        help=f"{list_targets()}. Default: portable."),
    Row("device", "--device", NAME, metavar="DEV", group=OUTPUT, commands=BOTH,
        help="Device of the output: cpu, cuda, cuda:1, mps, …; of a SavedModel none (default), cpu, GPU:1, or a full name."),
    Row("device", "--device", NAME, metavar="DEV", group=OUTPUT, commands=("verify",),
        help="Run both models there too, as cuda:0 or GPU:0, and prove where they ran."),
    Row("precision", "--precision", NAME, metavar="fp16|bf16", group=GRAPH, commands=BOTH,
        help="Floating point type of the ONNX graph. Default: unchanged."),
    Row("propagate_nan", "--propagate-nan", FLAG, default=False, group=GRAPH, commands=BOTH,
        help="Make max-pooling return NaN of a window with NaN, as torch does. Default: as the runtime does; most drop NaN, and are faster."),
    Row("keep_structure", "--keep-structure", FLAG, default=False, group=WEIGHTS, commands=BOTH,
        help="With --to torch: keep the checkpoint's nesting and all of its content."),
    Row("format", "--from", NAME, metavar="FORMAT", key="from_format", group=SOURCES, commands=BOTH,
        help="Format of SOURCE (see `convert formats`). Default: detected by content."),
    Row("checkpoint", "--from-checkpoint", PATH, metavar="PREFIX", group=SOURCES, commands=("convert", "verify"),
        help="Checkpoint with the values of a GraphDef's or meta graph's variables."),
    Row("merge_adapter", "--merge-adapter", PATH, metavar="BASE", group=WEIGHTS, commands=("convert", "verify"),
        help="Base model that SOURCE, a LoRA adapter, is merged into."),
    Row("dequantize", "--dequantize", FLAG, default=False, group=WEIGHTS, commands=ALL,
        help="Make floats of quantised weights (GPTQ, AWQ, bitsandbytes, compressed-tensors, fp8, mxfp4, torchao)."),
    Row("arch.factory", "--arch", NAME, metavar="package.module:factory", in_files=False, group=CODE, commands=ALL,
        help="Factory that builds the nn.Module for a state dict."),
    Row("arch.arguments", "--arch-args", NAME, metavar="JSON", in_files=False, group=CODE, commands=ALL,
        help="Keyword arguments of that factory, as a JSON object."),
    Row("task", "--task", NAME, metavar="TASK", group=GRAPH, commands=ALL,
        help="What a Hugging Face folder's model is for: text-classification, …, text-generation-with-past (key-value cache). Default: its configuration's."),
    Row("inputs", "--input", NAMES, metavar="NAME:DTYPE:SIZES|NAME=VALUE", parse=parse_inputs, group=GRAPH, commands=ALL,
        help="Input of a torch program, as image:float32:batch,3,224,224 (a name is a dynamic axis), or an argument that is fixed, as rate=16000. Repeatable."),
    Row("exporter", "--exporter", str, metavar="auto|native|export|torchscript", default="auto", group=GRAPH, commands=BOTH,
        help="What makes the graph of a torch program: convert itself (native), or one of torch's exporters."),
    Row("state", "--state", str, metavar="drop|io", default="drop", group=GRAPH, commands=ALL,
        help="State that a model keeps between runs: drop the assignments, or make an input and an output of each (io)."),
    Row("include", "--include", str, metavar="GROUP,...", default="", parse=split_commas, group=WEIGHTS, commands=("convert",),
        help="Keep training state: optimizer, training."),
    Row("include", "--training-state", str, metavar="GROUP,...", default="", parse=split_commas, group=WEIGHTS, commands=("batch",),
        help="Keep training state: optimizer, training."),
    Row("strip_prefix", "--strip-prefix", str, metavar="auto|none|P", default="auto", group=WEIGHTS, commands=BOTH,
        help="Wrapper prefix to remove from tensor names."),
    Row("verify", "--verify", str, metavar="none|smoke|weights|cpu|device|auto", default="auto", group=CHECKS, commands=BOTH,
        help="How far to verify; auto is as far as this machine can."),
    Row("require", "--require", NAME, metavar="weights|cpu|device", group=CHECKS, commands=BOTH,
        help="Fail (exit 1) unless verified at least this far."),
    Row("require", "--require", NAME, metavar="weights|cpu|device", group=CHECKS, commands=("verify",),
        help="Fail (exit 1; 7 without the device) unless verified at least this far."),
    Row("comparison.atol", "--atol", NAMES, metavar="[OUT:]X", parse=parse_bounds, group=CHECKS, commands=ALL,
        help="Absolute tolerance, of one output or of all. Repeatable."),
    Row("comparison.rtol", "--rtol", NAMES, metavar="[OUT:]X", parse=parse_bounds, group=CHECKS, commands=ALL,
        help="Relative tolerance, of one output or of all. Repeatable."),
    Row("comparison.inputs", "--inputs", PATH, metavar="FILE.npz", group=CHECKS, commands=("convert", "verify"),
        help="Values of the inputs, one array each. Default: random."),
    Row("comparison.seed", "--seed", int, metavar="N", default=0, group=CHECKS, commands=ALL,
        help="Seed of random inputs."),
    Row("comparison.samples", "--samples", int, metavar="N", default=1, min=1, group=CHECKS, commands=ALL,
        help="Random inputs for each combination of sizes."),
    Row("comparison.layers", "--layers", FLAG, default=False, group=CHECKS, commands=ALL,
        help="Compare the outputs of all layers, and report their errors."),
    Row("comparison.allow_tf32", "--allow-tf32", FLAG, default=False, group=CHECKS, commands=ALL,
        help="Let GPUs round products to TF32."),
    Row("comparison.allow_cpu_nodes", "--allow-cpu-nodes", int, metavar="N", default=0, min=0, group=CHECKS, commands=ALL,
        help="How many nodes may run on the CPU when another device is requested."),
    Row("comparison.timeout", "--timeout", float, metavar="SECONDS", default=900.0, group=CHECKS, commands=("verify",),
        help="Time limit of each of the two runtimes."),
    Row("max_shard_size", "--max-shard-size", str, metavar="SIZE", default="50GB", group=OUTPUT, commands=BOTH,
        help="Largest safetensors file: 500MB, 5GB, 2GiB."),
    Row("opset", "--opset", int | None, metavar="N", group=GRAPH, commands=BOTH,
        help="ONNX opset, 18 to 22. Default: 18, or the lowest that the model needs."),
    Row("signatures", "--signature", NAMES, metavar="NAME", parse=as_tuple, group=GRAPH, commands=BOTH,
        help="TensorFlow signature to convert. Repeatable. Default: all."),
    Row("signatures", "--signature", NAME, metavar="NAME", parse=as_tuple, group=GRAPH, commands=("verify",),
        help="TensorFlow signature that CONVERTED was made from."),
    Row("triton", "--triton-option", NAMES, metavar="KEY=VALUE", parse=parse_settings, group=OUTPUT, commands=BOTH,
        help="Setting of a Triton entry: max_batch_size, instances, queue_delay_us, preferred_batch_sizes, version, accelerator (tensorrt, tensorrt-fp16, openvino), layout (model, repository), kserve (URI of the repository). Repeatable."),
    Row("trust", "--trust", NAMES, metavar="MODULE[=PATH]", parse=parse_trust, in_files=False, group=CODE, commands=ALL,
        help="Python module whose code may run, in a child process, for custom layers and modules. Repeatable."),
    Row("strict_safety", "--strict-safety", FLAG, default=False, group=CODE, commands=BOTH,
        help="Refuse a source that names code or files outside itself (exit 5)."),
    Row("sync", "--sync", FLAG, default=False, group=OUTPUT, commands=BOTH,
        help="Wait until the output is on disk. Replacing an output always does."),
    Row("overwrite", "--force", FLAG, default=False, group=OUTPUT, commands=BOTH,
        help="Replace an existing output."),
)
# fmt: on


def rows_of(command: str) -> tuple[Row, ...]:
    """Return the options of a conversion that a command has."""
    return tuple(row for row in ROWS if command in row.commands)


def make_options(fields: Fields) -> "Options":
    """Return options from values by field; missing fields have their defaults.

    Raises:
        UsageError: An architecture is malformed.
    """
    from converter.options import Comparison, Options

    return Options(
        **top(fields),
        arch=parse_arch(**below("arch", fields)),
        comparison=Comparison(**below("comparison", fields)),
    )


def flags_given(options: "Options", command: str) -> list[str]:
    """Return the flags of options that differ from their defaults."""
    from converter.options import Options

    default = Options()
    rows = rows_of(command)
    return [r.flag for r in rows if field_of(options, r.field) != field_of(default, r.field)]


def field_of(options: "Options", field: str) -> object:
    """Return the value of a field, or of one of a nested object; None where that is None."""
    value: object = options
    for name in field.split("."):
        value = getattr(value, name, None)
    return value
