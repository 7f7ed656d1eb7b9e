"""THE table of destinations: which module writes to which references.

A module has ``open_destination(reference) -> Destination``.
"""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from converter.destinations.protocol import Destination
from converter.registries.catalog import scheme_of

# Scheme of a reference to the module in `converter.destinations`; "*" stands for all others.
MODULES = {"": "folder", "models": "mlflow", "*": "url"}


def open_destination(reference: str) -> Destination:
    """Open a destination.

    Raises:
        UsageError: The reference is malformed.
        DependencyError: It takes an extra that is not installed.
    """
    module = import_module(f"converter.destinations.{module_of(reference)}")
    opener = getattr(module, "open_destination")  # noqa: B009
    return cast(Callable[[str], Destination], opener)(reference)


def module_of(reference: str) -> str:
    """Return the name of the module that writes to a destination."""
    return MODULES.get(scheme_of(reference), MODULES["*"])
