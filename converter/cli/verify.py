"""``convert verify SOURCE CONVERTED``: what was converted, against what it was converted from.

Weights are compared bit for bit where the converted artifact keeps them under the source's names,
or under those that `--to keras` gives them; a graph, a `.keras` file, or what was issued again (a
SavedModel, a program of torch's) is computed beside the source's own. With ``--device`` both are
computed there too, and must have been there. The figures go to standard output.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from converter.cli.comparison import document, lines
from converter.cli.parameters import Json, Verbose, flags_given, make_options, rows_of
from converter.cli.references import Given, fetching
from converter.cli.rows import collects
from formats.errors import UsageError

if TYPE_CHECKING:  # `--help` need not pay for these
    from converter.options import Options

LEVELS = ("weights", "cpu", "device")


@fetching("source", "converted")
@collects("options", rows_of("verify"), make_options)
def verify(
    source: Annotated[
        Given,
        typer.Argument(
            metavar="SOURCE", help="What was converted; or, alone, a folder of portable bundles."
        ),
    ],
    converted: Annotated[
        Given | None,
        typer.Argument(
            metavar="[CONVERTED]",
            show_default=False,
            help="An .onnx or .keras file, or what convert wrote of SOURCE.",
        ),
    ] = None,
    *,
    options: "Options",
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.(jsonl|html|xml)", help="Of a folder alone: report on it. Repeatable."
        ),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare a converted artifact with its source: weights bit by bit, graphs by running both.

    A folder alone, of portable bundles, is held against its manifests: every file's digest, and how
    far each was verified (--require).
    """
    del verbose  # `run` has read it
    require = options.require
    if require not in (None, *LEVELS):
        raise UsageError(f"--require {require}", expected=", ".join(LEVELS))
    if converted is None:
        from converter.cli import gate

        others = [flag for flag in flags_given(options, "verify") if flag != "--require"]
        gate.only_two(others)
        raise typer.Exit(gate.check(source, require, reports=report or (), as_json=json))
    if report:
        raise UsageError("--report with two arguments", expected="one: a folder of bundles")
    from converter.verification.verify import exit_code
    from converter.verification.verify import verify as compare

    found = compare(source, converted, options=options)
    if json:
        document(source, converted, found)
    else:
        lines(found, require)
    raise typer.Exit(exit_code(found, require))
