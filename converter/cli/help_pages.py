"""Lay out ``--help``: usage, examples, commands, and options in groups, in any width.

Typer's own pages need Rich for groups, which takes longer to import than everything else here.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from shutil import get_terminal_size
from textwrap import dedent, wrap
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

from converter.cli.terminal import paint

if TYPE_CHECKING:
    from typer import Context

DEFAULT = "SOURCE"  # name of the default command, which users do not type
WIDEST = 100  # columns
LEFT = 28  # columns of names; help of longer ones begins on the next line
NARROW = 64  # columns below which help always begins on the next line
# Titles of the sections of options, in this order.
ARTIFACTS, RUNNING, OUTPUT, SOURCES, WEIGHTS = "Artifacts", "Running", "Output", "Source", "Weights"
GRAPH, CHECKS, CODE, GENERAL = "Graph", "Verification", "Code and safety", "General"
SECTIONS = (ARTIFACTS, RUNNING, OUTPUT, SOURCES, WEIGHTS, GRAPH, CHECKS, CODE, GENERAL)

USAGE = {
    "": ("SOURCE... [--to TARGET] [-o OUT] [OPTIONS]", "COMMAND ..."),
    DEFAULT: ("SOURCE... [--to TARGET] [-o OUT] [OPTIONS]",),
    "verify": ("verify SOURCE CONVERTED [OPTIONS]", "verify DIR [--require LEVEL]"),
}


class Command(TyperCommand):
    """A command whose options are shown in groups."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page of a command."""
        formatter.write("\n".join(_lay_out_command(self, ctx)))


class Interrupted(Exception):  # noqa: N818 - no error
    """Ctrl-C was pressed. Typer would make a bare exit code of a KeyboardInterrupt."""


class Group(TyperGroup):
    """The program itself."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as e:
            raise Interrupted from e

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page of the program."""
        formatter.write("\n".join(_lay_out_program(self, ctx)))


def _lay_out_program(program: Any, ctx: "Context") -> Iterator[str]:
    about, _, examples = dedent(program.help or "").partition("\n\n")
    yield from _usage("", USAGE[""])
    yield from ["", *_fill(about)]
    pairs = [line.strip().partition("  ") for line in examples.strip().splitlines()]
    yield from _section("Examples", [(command, why.strip()) for command, _, why in pairs])
    commands = [(name, command) for name, command in program.commands.items() if not command.hidden]
    yield from _section("Commands", [
        (f"{name}..." if name == DEFAULT else name, command.short_help or command.help)
        for name, command in commands
    ])  # fmt: skip
    yield from _section("Options", _records(program.params, ctx))
    yield from ["", *_fill(program.epilog or "")]


def _lay_out_command(command: Any, ctx: "Context") -> Iterator[str]:
    name = command.name or ""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    names = [a.metavar or a.human_readable_name for a in arguments]
    yield from _usage(name, USAGE.get(name, (" ".join([name, *names, "[OPTIONS]"]),)))
    for paragraph in dedent(command.help or "").split("\n\n"):
        yield from ["", *_fill(" ".join(paragraph.split()))]
    yield from _section("Arguments", [(a.metavar, a.help) for a in arguments if a.help])
    options = [p for p in command.get_params(ctx) if p.param_type_name == "option"]
    groups: dict[str, list[Any]] = {}
    for option in options:
        groups.setdefault(getattr(option, "rich_help_panel", None) or GENERAL, []).append(option)
    for title in sorted(groups, key=SECTIONS.index):
        only = "Options" if len(groups) == 1 else title
        yield from _section(only, _records(groups[title], ctx))


def _records(parameters: Iterable[Any], ctx: "Context") -> list[tuple[str, str]]:
    return [record for p in parameters if (record := p.get_help_record(ctx)) is not None]


def _usage(name: str, forms: Sequence[str]) -> Iterator[str]:
    for i, form in enumerate(forms):
        head = "Usage: " if i == 0 else "       "
        lines = wrap(f"convert {form}", _width() - 7, subsequent_indent="    ", **_WHOLE)
        yield (paint(head, "bold") if i == 0 else head) + lines[0]
        yield from (f"       {line}" for line in lines[1:])
    if name == DEFAULT:
        yield from _fill("       This command is the default, and its name is not typed.")


def _section(title: str, rows: Sequence[tuple[str, str | None]]) -> Iterator[str]:
    if not rows:
        return
    yield from ["", paint(f"{title}:", "bold")]
    width = _width()
    is_narrow = width < NARROW
    left = min(LEFT, max(len(name) for name, _ in rows) + 2)
    for name, text in rows:
        indent = 6 if is_narrow else left + 2
        lines = wrap(" ".join((text or "").split()), width - indent, **_WHOLE)
        if is_narrow or len(name) + 2 > left:
            yield from _fill(f"  {name}", "    ")
        else:
            first = lines.pop(0) if lines else ""
            yield f"  {name:<{left}}{first}".rstrip()
        yield from (" " * indent + line for line in lines)


_WHOLE: Any = {"break_on_hyphens": False, "break_long_words": False}


def _fill(text: str, indent: str = "") -> list[str]:
    start = text[: len(text) - len(text.lstrip())]
    return wrap(
        text.strip(), _width(), initial_indent=start, subsequent_indent=indent or start, **_WHOLE
    )


def _width() -> int:
    return min(get_terminal_size().columns, WIDEST) if sys.stdout else WIDEST
