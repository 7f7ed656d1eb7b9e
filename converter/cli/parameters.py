"""Options that several commands have, with what `--help` says of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from formats.errors import UsageError

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
