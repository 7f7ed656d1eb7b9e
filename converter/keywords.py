"""Keywords of the Python API: merged into `Options`, in shorter forms than its fields."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, cast

from converter.child.trust import Trusted, parse_trust
from converter.options import Comparison, Options, parse_inputs
from formats.core.bundle import TensorSpec
from formats.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", Options, Comparison)


def as_names(given: Iterable[str] | str) -> tuple[str, ...]:
    """Return names; a string is one name."""
    return (given,) if isinstance(given, str) else tuple(given)


def as_inputs(given: "Iterable[TensorSpec | str]") -> tuple[TensorSpec, ...]:
    """Return input specs; strings are ``NAME:DTYPE:SIZE,…``.

    Raises:
        UsageError: A string is malformed.
    """
    return tuple(
        spec
        for one in (given if not isinstance(given, str) else (given,))
        for spec in (parse_inputs([one]) if isinstance(one, str) else (one,))
    )


def as_trusted(given: "Iterable[Trusted | str] | str | None") -> tuple[Trusted, ...]:
    """Return trusted modules; strings are ``MODULE`` or ``MODULE=PATH``.

    Raises:
        UsageError: A string is malformed, or names a file that does not exist.
    """
    return tuple(
        module
        for one in ((given,) if isinstance(given, str) else given or ())
        for module in (parse_trust([one]) if isinstance(one, str) else (one,))
    )


# Parsers of keywords that accept shorter forms than the fields of `Options`.
FIELDS: Mapping[str, Callable[[Any], object]] = {
    "inputs": as_inputs,
    "include": as_names,
    "signatures": as_names,
    "trust": as_trusted,
}


def merge_options(options: Options | None, given: Mapping[str, Any]) -> Options:
    """Return options updated with the given keywords.

    Raises:
        UsageError: A keyword and ``options`` give different values.
    """
    values = {n: FIELDS[n](value) if n in FIELDS else value for n, value in given.items()}
    return merge_fields(options or Options(), values, "options=Options")


def merge_fields(held: T, given: Mapping[str, Any], name: str) -> T:
    """Return an options object with some fields replaced.

    A field at its default counts as unset.

    Args:
        held: `Options`, or a `Comparison`.
        given: Values by field.
        name: What messages call the object.

    Raises:
        UsageError: A field already has another value that is not the default.
    """
    default = type(held)()
    for field, value in given.items():
        other = getattr(held, field)
        if other not in (value, getattr(default, field)):
            raise UsageError(
                f"{field}={value!r} contradicts {name}({field}={other!r})", hint="Give it once"
            )
    return replace(held, **given)


def takes_options(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function: merge its keyword arguments into its ``options`` argument."""
    keywords = signature(function).parameters.keys() & {field.name for field in fields(Options)}

    @wraps(function)
    def merged(*args: Any, **given: Any) -> Any:
        named = {name: given.pop(name) for name in keywords & given.keys()}
        given["options"] = merge_options(given.get("options"), named)
        return function(*args, **given)

    return cast("Callable[P, R]", merged)
