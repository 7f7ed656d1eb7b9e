"""``convert verify SOURCE CONVERTED``: compare a converted artifact with its source.

The result goes to standard output. A folder alone is checked against its manifests.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from converter.cli.comparison import document, lines
from converter.cli.parameters import Json, Verbose, flags_given, make_options, rows_of
from converter.cli.rows import collects
from converter.cli.terminal import is_terminal
from formats.errors import UsageError

if TYPE_CHECKING:  # keeps `--help` fast
    from converter.options import Options


@collects("options", rows_of("verify"), make_options)
def verify(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="What was converted; or, alone, a folder of portable bundles."
        ),
    ],
    converted: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONVERTED]",
            show_default=False,
            help="An .onnx or .keras file, or what convert wrote of SOURCE.",
        ),
    ] = None,
    *,
    options: "Options",
    reproduce: Annotated[
        bool,
        typer.Option(
            "--reproduce", help="Convert SOURCE again, and compare the bytes with CONVERTED."
        ),
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page: the errors of outputs and of all layers, noise and coverage.",
        ),
    ] = None,
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
    from converter.references import Source, display_name

    if html is not None and (converted is None or reproduce):
        what = "reproduce=" if reproduce else "a folder alone"
        raise UsageError(f"html= with {what}", expected="a source and what was converted from it")
    if converted is None:
        from converter.cli import gate

        others = [flag for flag in flags_given(options, "verify") if flag != "--require"]
        gate.only_two(others)
        with Source(source, is_one=False) as folder:
            code = gate.check(folder.path, require, reports=report or (), as_json=json)
        raise typer.Exit(code)
    if report:
        raise UsageError("--report with two arguments", expected="one: a folder of bundles")
    if reproduce:
        raise typer.Exit(compare_again(source, converted, options, as_json=json))
    from converter.api import verify_artifacts
    from converter.cli.progress import Spinner
    from converter.verification.verify import exit_code

    shown = display_name(converted), display_name(source)
    with Spinner(enabled=not json and is_terminal(sys.stderr)) as spinner:
        spinner.start("comparing", f"{shown[0]} with {shown[1]}, each in its own runtime")
        found = verify_artifacts(source, converted, options, html=html)
    if json:
        document(display_name(source), display_name(converted), found)
    else:
        lines(found, require, layers=options.comparison.layers)
    raise typer.Exit(exit_code(found, require))


def check(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="A bundle, or a folder of bundles; s3://….")
    ],
    require: Annotated[
        str | None,
        typer.Option(metavar="weights|cpu|device", help="Fail (exit 1) if less was verified."),
    ] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.(jsonl|html|xml)", help="Report on all bundles. Repeatable."),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check portable bundles against their manifests: every file's digest, and how far verified.

    This is the gate before a deployment. It needs neither the sources nor a framework.
    """
    del verbose  # `run` has read it
    from converter.cli import gate
    from converter.references import Source

    with Source(folder, is_one=False) as found:
        raise typer.Exit(gate.check(found.path, require, reports=report or (), as_json=json))


def compare_again(source: str, converted: str, options: "Options", *, as_json: bool) -> int:
    """Convert a source again, print which files are equal, and return the exit code."""
    from dataclasses import asdict

    from converter.cli import render
    from converter.cli.terminal import say
    from converter.references import Source
    from converter.reproduction import reproduce

    with Source(source) as original, Source(converted, is_one=False) as output:
        found = reproduce(original.path, output.path, options)
    if as_json:
        render.document({"reproduced": not found.different, **asdict(found)})
    else:
        for name in found.different:
            say(f"different   {name or converted}")
        count = len(found.equal)
        say(f"reproduced  {count} of {count + len(found.different)} files, bit for bit")
    return int(bool(found.different))
