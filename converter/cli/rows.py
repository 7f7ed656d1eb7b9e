"""Declare options of commands as rows of a table, and collect their values into one object.

A row names the field that its value is stored in. `collects` adds the options of a table to a
command, and calls it with the object built from them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from formats.errors import UsageError

KEYWORD_ONLY = Parameter.KEYWORD_ONLY  # parameters with defaults may precede those without
Fields = Mapping[str, Any]  # values by field


@dataclass(frozen=True, slots=True)
class Row:
    """An option or an argument of the command line.

    Attributes:
        field: Field of the value; ``comparison.atol`` is a field of a nested object.
        flags: As in ``--jobs -j``; "" for an argument.
        type: What Typer reads: ``str | None``, ``list[str] | None``, ``bool``, …
        help: One or two sentences for ``--help``.
        metavar: Placeholder of the value in ``--help``.
        default: The default, before parsing.
        parse: Converts the value to the field's; None keeps it unchanged.
        min: Minimum of a number.
        key: Name of the parameter, if it is not that of the flag.
        in_files: Whether a configuration file may set it.
        group: Title of the section of ``--help`` that shows it.
        commands: Commands that have it, where several share a table.
    """

    field: str
    flags: str
    type: Any
    help: str
    metavar: str | None = None
    default: Any = None
    parse: Callable[[Any], Any] | None = None
    min: float | None = None
    key: str = ""
    in_files: bool = True
    group: str | None = None
    commands: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The flag for messages; the metavar of an argument."""
        return self.flags.partition(" ")[0] or str(self.metavar)

    @property
    def name(self) -> str:
        """The parameter's name, and the key in a configuration file."""
        return self.key or self.flag.lstrip("-").replace("-", "_")

    def value(self, given: Any) -> Any:
        """Return the field's value.

        Raises:
            UsageError: It is malformed.
        """
        if self.parse is None:
            return given
        try:
            return self.parse(given)
        except UsageError as e:  # parsers know only the string
            raise UsageError(f"{self.flag} {e.found}", expected=e.expected, hint=e.hint) from e

    def parameter(self) -> Parameter:
        """Return the parameter that Typer reads."""
        about: Any
        if self.flags:
            about = typer.Option(
                *self.flags.split(), metavar=self.metavar, help=self.help, min=self.min,
                rich_help_panel=self.group, show_default="Default:" not in self.help,
            )  # fmt: skip
            default = self.default
        else:
            about = typer.Argument(metavar=self.metavar, help=self.help)
            default = Parameter.empty
        return Parameter(
            self.name, KEYWORD_ONLY, default=default, annotation=Annotated[self.type, about]
        )


def collects(
    parameter: str, rows: Sequence[Row], make: Callable[[Fields], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a parameter of a command by the options of a table.

    Args:
        parameter: The parameter that receives the object.
        rows: The options.
        make: Builds the object from values by field.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shown: list[Parameter] = []
        for own in signature(command).parameters.values():
            is_table = own.name == parameter
            shown += [r.parameter() for r in rows] if is_table else [own.replace(kind=KEYWORD_ONLY)]

        @wraps(command)
        def collected(**given: Any) -> None:
            made = make({row.field: row.value(given.pop(row.name)) for row in rows})
            command(**given, **{parameter: made})

        # Typer reads both attributes.
        collected.__signature__ = signature(command).replace(parameters=shown)  # type: ignore[attr-defined]
        collected.__annotations__ = {p.name: p.annotation for p in shown}
        return collected

    return decorate


def nest_rows(prefix: str, rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows of a nested object with prefixed fields."""
    return tuple(replace(row, field=f"{prefix}.{row.field}") for row in rows)


def below(prefix: str, fields: Fields) -> dict[str, Any]:
    """Return the fields of a nested object, without the prefix."""
    start = f"{prefix}."
    return {name[len(start) :]: value for name, value in fields.items() if name.startswith(start)}


def top(fields: Fields) -> dict[str, Any]:
    """Return the fields that do not belong to nested objects."""
    return {name: value for name, value in fields.items() if "." not in name}
