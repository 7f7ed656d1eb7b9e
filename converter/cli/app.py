"""The Typer application: options, defaults from configuration files, exit codes.

Everything heavy is imported inside the commands, so that ``convert --help`` costs only Typer.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from converter.cli.batch import batch
from converter.cli.completion import completion
from converter.cli.configuration import defaults
from converter.cli.convert import convert
from converter.cli.doctor import doctor
from converter.cli.errors import report, report_text, report_usage
from converter.cli.help_pages import DEFAULT, Command, Group, Interrupted
from converter.cli.parameters import From, Json, Verbose
from converter.cli.terminal import is_terminal, say
from converter.cli.verify import check, verify
from formats.errors import ConvertError, UsageError

if TYPE_CHECKING:
    from converter.inspection import Inspection

app = typer.Typer(
    cls=Group,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Convert any model artifact into exact, portable weights and graphs, without its \
framework.

    convert model.h5                         weights, ONNX graph and manifest: model.portable
    convert model.h5 -o model.onnx           the target follows the suffix
    convert model.pt --to torch --device cpu
    convert a.h5 b.pt -o out/                several, into a folder
    convert ls models/                       what is there, and does it load here?
    convert doctor model.pt                  why does it not load here?
    """,
    epilog="A file that is named like a command is reached as ./inspect, or after --. Where the "
    "command `convert` is ImageMagick's, the same program is `model-convert`.",
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


app.command(
    DEFAULT, cls=Command, short_help="Convert one or several artifacts: the default command."
)(convert)


@app.command(cls=Command, short_help="Show what an artifact is, records and holds.")
def inspect(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE...")],
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
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page: facts, layers, sizes, histograms of weights, and the graph.",
        ),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show what an artifact is, records and holds. Several are a table.

    Weights are read for --html only.
    """
    from converter.api import inspect as describe
    from converter.cli import render, tables
    from converter.cli.each import collect
    from converter.reading import refuse

    if html is not None and len(sources) > 1:
        raise UsageError(f"html= with {len(sources)} sources", expected="one source: a page each")

    def ask(source: str) -> "Inspection":
        return describe(source, format=from_format, html=html)

    with collect(sources, ask, verbose=verbose) as results:
        if len(sources) == 1:
            render.inspection(results[0], as_json=json, every=weights)
        elif json:
            render.document([one.plain() for one in results])
        else:
            tables.inspections(results)
        if sarif is not None:
            render.write_sarif(sarif, [(one.source, one.findings) for one in results])
        if strict_safety:
            for one in results:
                refuse(one.findings, one.source)


@app.command("ls", cls=Command, short_help="List the models of folders: do they load here?")
def list_models(
    folders: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DIR...]", help="Folders, files, globs, s3://…, models:/…."),
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """List models in a table: format, framework, size, devices, does it load here, findings.

    No weight is read, and no framework is imported: whether a model loads here is what `convert
    doctor --fast` predicts. Without DIR, the current folder is listed.
    """
    del verbose
    from converter import listing
    from converter.cli import render, tables
    from converter.cli.progress import Spinner

    with Spinner(enabled=not json and is_terminal(sys.stderr)) as spinner:
        found = []
        for one in listing.list_models(folders or ["."]):
            found.append(one)
            spinner.start("listing", f"{len(found)}: {one.source}")
    if json:
        render.document([one.plain() for one in found])
    elif found:
        tables.models(found)
    else:
        say("no models", sys.stderr)


app.command(cls=Command, short_help="Compare a converted artifact with its source.")(verify)

app.command(cls=Command, short_help="Check bundles against their manifests: the gate.")(check)

app.command(cls=Command, short_help="Say why an artifact does not load here, and what helps.")(
    doctor
)

app.command(cls=Command, short_help="Convert whole folders and registries; resume.")(batch)


@app.command(cls=Command, short_help="Compare the weights of two artifacts of any format.")
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


@app.command(cls=Command, short_help="List formats that are read, and targets to write.")
def formats(json: Json = False) -> None:
    """List the formats that are read, and the targets that are written."""
    from converter.cli import render
    from converter.write.catalog import TARGETS
    from formats.catalog import FORMATS

    render.formats(FORMATS, TARGETS, as_json=json)


@app.command(cls=Command, short_help="List the layers and ops that become ONNX.")
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


app.command(cls=Command, short_help="Print the completion script of bash, zsh or fish.")(completion)


@app.command("help", cls=Command, short_help="Show this page, or that of a command.")
def show_help(
    command: Annotated[str | None, typer.Argument(metavar="[COMMAND]")] = None,
) -> None:
    """Show the page of the program, or of a command."""
    raise typer.Exit(run(["--help"] if command is None else [command, "--help"]))


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
        return report(e, e.exit_code, verbose=verbose)
    except (KeyboardInterrupt, Interrupted):
        return report_text("interrupted: no output is half written", 130)
    except BrokenPipeError:
        return 141
    except typer.Exit as e:
        return int(e.exit_code)
    except typer.Abort:
        return 130
    except MemoryError as e:
        return report(e, 7, verbose=verbose)
    except Exception as e:  # noqa: BLE001 - last line of defence: reported as a bug of ours
        if hasattr(e, "format_message"):  # click's usage errors, wherever Typer keeps them
            return report_usage(e)
        return report(e, 70, verbose=verbose)
    return result if isinstance(result, int) else 0
