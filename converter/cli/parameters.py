"""Options that several commands have, with what `--help` says of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from formats.errors import UsageError

if TYPE_CHECKING:
    from converter.options import Options

Trust = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE[=PATH]",
        help="Python that may run, in a child process, for layers and modules of your own.",
    ),
]
Signature = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="One of TensorFlow's signatures; repeatable. Default: all."),
]
Bounds = Annotated[
    list[str] | None,
    typer.Option(metavar="[OUT:]X", help="What may differ, of one output or of all; repeatable."),
]
Examples = Annotated[
    Path | None,
    typer.Option(metavar="FILE.npz", help="An array for each input, in place of random ones."),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Of random inputs.")]
Samples = Annotated[
    int, typer.Option(metavar="N", min=1, help="Random inputs for each combination of sizes.")
]
Factory = Annotated[
    str | None,
    typer.Option(
        metavar="package.module:factory", help="What makes the module that a state dict is of."
    ),
]
Arguments = Annotated[
    str | None, typer.Option("--arch-args", metavar="JSON", help="What --arch is called with.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:DTYPE:SIZES",
        help="An input of a torch program, as image:float32:batch,3,224,224; a word is an axis of any size. Repeatable.",
    ),
]
Tf32 = Annotated[
    bool, typer.Option("--allow-tf32", help="On a GPU, products may be rounded to TF32.")
]
CpuNodes = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="How many nodes may run on the CPU where another device was asked for.",
    ),
]

To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="TARGET",
        help="portable (default), safetensors, onnx, keras, savedmodel, torch, torchscript, pt2 or triton.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="DEV",
        help="What the output is for: cpu, cuda, cuda:1, mps, …; of a SavedModel none (default), cpu, GPU:1, or a full name.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        metavar="fp16|bf16",
        help="Of an ONNX graph's numbers; by default they stay as they are.",
    ),
]
KeepStructure = Annotated[
    bool,
    typer.Option(
        "--keep-structure", help="--to torch: keep the checkpoint's nesting, and all in it."
    ),
]
Exporter = Annotated[
    str,
    typer.Option(
        metavar="auto|native|export|torchscript",
        help="Who makes the graph of a torch program: convert itself, or one of torch's exporters.",
    ),
]
Include = Annotated[
    str, typer.Option(metavar="GROUP,...", help="Keep training state: optimizer, training.")
]
StripPrefix = Annotated[
    str, typer.Option(metavar="auto|none|P", help="Wrapper prefix to take off tensor names.")
]
Verify = Annotated[
    str,
    typer.Option(
        metavar="none|weights|cpu|device|auto",
        help="How far to verify; auto is the most that this machine can do.",
    ),
]
Require = Annotated[
    str | None,
    typer.Option(metavar="weights|cpu|device", help="Fail (exit 1) unless that much was verified."),
]
ShardSize = Annotated[
    str, typer.Option(metavar="SIZE", help="Cut safetensors files there: 500MB, 5GB, 2GiB.")
]
Opset = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Version of ONNX's operators, 18 to 22; default 18, or what the model needs.",
    ),
]
StrictSafety = Annotated[
    bool,
    typer.Option(
        "--strict-safety", help="Refuse a source that names code or files outside it (exit 5)."
    ),
]
Sync = Annotated[
    bool,
    typer.Option(
        "--sync",
        help="Wait until the output is on the disk; what replaces an output always does.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="TOML file with defaults for these options; else [tool.convert] of ./pyproject.toml.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help="The source's format (see `convert formats`); by default its content decides.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks of errors.")]


def bounds(option: str, given: Sequence[str] | None) -> dict[str, float]:
    """Return bounds by output; an empty name stands for all.

    Raises:
        UsageError: One is no number, or less than zero.
    """
    found = {}
    for text in given or ():
        name, _, number = text.rpartition(":")
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = -1.0
        if not 0 <= found[name] < float("inf"):
            raise UsageError(f"{option} {text}", expected="[OUT:]X with X a number, zero or more")
    return found


def options_of(given: "Mapping[str, Any]") -> "Options":
    """Return the options of a conversion from a command's parameters, by name.

    A command that lacks one leaves it at its default.

    Raises:
        UsageError: One is malformed.
    """
    from converter.child.trust import parse_trust
    from converter.options import Comparison, Options, parse_arch, parse_inputs

    plain = (
        "to", "device", "precision", "keep_structure", "exporter", "strip_prefix", "verify",
        "require", "max_shard_size", "opset", "strict_safety", "sync",
    )  # fmt: skip
    return Options(
        **{name: given[name] for name in plain if name in given},
        arch=parse_arch(given["arch"], given["arch_args"]),
        inputs=parse_inputs(given["input"] or ()),
        include=tuple(x.strip() for x in given["include"].split(",") if x.strip()),
        comparison=Comparison(
            bounds("--atol", given["atol"]),
            bounds("--rtol", given["rtol"]),
            given.get("inputs"),
            given["seed"],
            given["samples"],
            given["allow_tf32"],
            given["allow_cpu_nodes"],
        ),
        format=given.get("from_format"),
        checkpoint=given.get("from_checkpoint"),
        overwrite=given["force"],
        signatures=tuple(given["signature"] or ()),
        trust=parse_trust(given["trust"] or ()),
    )
