"""The Typer application: options, defaults from configuration files, exit codes.

Everything heavy is imported inside the commands, so that ``convert --help`` costs only Typer.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from converter.cli.batch import batch
from converter.cli.configuration import defaults
from converter.cli.doctor import doctor
from converter.cli.parameters import Config, From, Json, Quiet, Verbose, make_options, rows_of
from converter.cli.rows import collects
from converter.cli.spelling import spell_flags
from converter.cli.terminal import say
from converter.cli.verify import verify
from formats.errors import ConvertError, UsageError

if TYPE_CHECKING:
    from converter.options import Options

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Convert any model artifact into exact, portable weights, without its framework.\n\n"
    "convert model.h5 --to portable",
    epilog="A file that is named like a command is reached as ./inspect, or after --.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from converter import __version__

        typer.echo(f"convert {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version  # its callback has acted


@app.command("SOURCE", short_help="Convert SOURCE: the default, needs no command")
@collects("options", rows_of("convert"), make_options)
def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A file, a folder, a checkpoint's prefix; s3://…, gs://…, models:/name/3.",
        ),
    ],
    options: "Options",
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="Output: a path, s3://…. Default: SOURCE's name with the target's suffix, here.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and plan; write nothing.")
    ] = False,
    attest: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write provenance (SLSA, in-toto), a bill of materials (CycloneDX) and, where the "
            "output has none, a manifest.",
        ),
    ] = None,
    config: Config = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert SOURCE."""
    del config, verbose  # `run` has read them
    from converter.api import convert_steps
    from converter.cli import follow

    events = convert_steps(source, out, options, dry_run=dry_run, attest=attest)
    follow.conversion(events, as_json=json, quiet=quiet)


@app.command()
def inspect(
    source: Annotated[str, typer.Argument(metavar="SOURCE")],
    from_format: From = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="List every tensor; by default long lists are cut.")
    ] = False,
    strict_safety: Annotated[
        bool, typer.Option("--strict-safety", help="Fail (exit 5) if there are safety findings.")
    ] = False,
    sarif: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the safety findings as SARIF, for code scanning."),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show what an artifact is, records and holds."""
    del verbose
    from converter.api import inspect as describe
    from converter.cli import render
    from converter.reading import refuse

    found = describe(source, format=from_format)
    render.inspection(found, as_json=json, every=weights)
    if sarif is not None:
        render.write_sarif(sarif, source, found.findings)
    if strict_safety:
        refuse(found.findings, source)


app.command()(verify)

app.command()(doctor)

app.command()(batch)


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare the weights of two artifacts of any format; exit 1 where they differ."""
    del verbose
    from converter.api import diff as compare
    from converter.cli import render

    if not render.differences(compare(a, b), as_json=json):
        raise typer.Exit(1)


@app.command()
def formats(json: Json = False) -> None:
    """List what is read and written."""
    from converter.cli import render
    from formats.catalog import FORMATS

    render.formats(FORMATS, as_json=json)


@app.command()
def ops(
    source: Annotated[str, typer.Argument(metavar="keras|tf|torch")],
    json: Json = False,
) -> None:
    """List the layers, operations and ops that become ONNX."""
    from converter.cli import render
    from converter.lower.support_matrix import MATRICES

    if source not in MATRICES:
        raise UsageError(f"ops {source}", expected="ops keras, ops tf or ops torch")
    render.operations(MATRICES[source](), as_json=json)


def run(arguments: list[str], program: typer.Typer | None = None) -> int:
    """Run the program and return its exit code; errors are printed, never raised.

    Args:
        arguments: Arguments of the command line.
        program: Typer application to run; default: ``convert``.
    """
    verbose = "-v" in arguments or "--verbose" in arguments
    try:
        found = defaults(arguments, convert, batch) if program is None else None
        result = (program or app)(
            arguments, standalone_mode=False, prog_name="convert", default_map=found
        )
    except ConvertError as e:
        return _report(e, e.exit_code, verbose)
    except KeyboardInterrupt:
        return _say("interrupted; nothing was written", 130)
    except BrokenPipeError:
        return 141
    except typer.Exit as e:
        return int(e.exit_code)
    except typer.Abort:
        return 130
    except MemoryError as e:
        return _report(e, 7, verbose)
    except Exception as e:  # noqa: BLE001 - last line of defence: reported as a bug of ours
        if hasattr(e, "format_message"):  # click's usage errors, wherever Typer keeps them
            return _say(f"{e.format_message()}\nTry `convert --help`", 2)
        return _report(e, 70, verbose)
    return result if isinstance(result, int) else 0


def _report(e: BaseException, code: int, verbose: bool) -> int:
    if verbose:
        import traceback

        traceback.print_exception(e)
    text = spell_flags(str(e)) if isinstance(e, ConvertError) else f"{type(e).__name__}: {e}"
    if code == 70:
        text = f"a bug of convert: {text}\nPlease report it with the output of -v"
    return _say("\n".join([text, *map(spell_flags, getattr(e, "__notes__", ()))]), code)


def _say(text: str, code: int) -> int:
    for line in f"convert: error: {text}".split("\n"):
        say(line, sys.stderr)
    return code
