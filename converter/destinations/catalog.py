"""THE table of destinations: which module writes to which references.

A module has ``open_destination(reference) -> Destination``.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, cast

from converter.destinations.protocol import Destination
from converter.registries.catalog import scheme_of


class Kind(NamedTuple):
    """One row.

    Attributes:
        schemes: What its references begin with, before ``:``; "" for a path, "*" for all others.
        module: Name of the module in `converter.destinations`, imported when first needed.
    """

    schemes: tuple[str, ...]
    module: str


KINDS = (
    Kind(("",), "folder"),
    Kind(("models",), "mlflow"),  # models:/{name}_portable
    Kind(("*",), "url"),  # s3://, gs:// and whatever else fsspec knows
)


def open_destination(reference: str) -> Destination:
    """Open a destination.

    Raises:
        UsageError: The reference is malformed.
        DependencyError: It takes an extra that is not installed.
    """
    module = import_module(f"converter.destinations.{find_kind(reference).module}")
    return cast(Callable[[str], Destination], module.open_destination)(reference)


def find_kind(reference: str) -> Kind:
    """Return the row of a destination."""
    scheme = scheme_of(reference)
    return next((kind for kind in KINDS if scheme in kind.schemes), KINDS[-1])
