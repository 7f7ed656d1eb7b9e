"""THE table of registries: which module reads which references.

A module has ``open(reference, filters) -> Registry``, and ``stage(source, scratch) -> Staged``,
which any process can call with an entry's ``source`` alone.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

from converter.registries.entry import Registry, Staged
from converter.registries.filters import Filters
from formats.errors import UsageError


class Kind(NamedTuple):
    """One row.

    Attributes:
        schemes: What its references begin with, before ``:``; "" for a path.
        module: Name of the module in `converter.registries`, imported when first needed.
    """

    schemes: tuple[str, ...]
    module: str


KINDS = (
    Kind(("",), "folders"),  # a folder, a file, a glob
    Kind(("list",), "lists"),  # list:FILE: a reference a line
    Kind(("models", "runs"), "mlflow"),  # models:/, models:/name@alias, runs:/id/path
    Kind(("*",), "urls"),  # s3://, gs:// and whatever else fsspec knows
)


def scheme_of(reference: str) -> str:
    """Return the scheme of a reference; "" for a path."""
    head, colon, _ = reference.partition(":")
    known = {s for kind in KINDS for s in kind.schemes}
    if not colon or not head.replace("+", "").replace("-", "").isalnum():
        return ""
    return head if head in known or reference.startswith(f"{head}://") else ""


def open_registry(reference: str, filters: Filters) -> Registry:
    """Open a registry.

    Raises:
        UsageError: The reference is malformed.
        DependencyError: It takes an extra that is not installed.
        StorageError: It cannot be reached.
    """
    opener = cast(Callable[[str, Filters], Registry], _function(reference, "open_registry"))
    return opener(reference, filters)


def stage(source: str, scratch: Path) -> Staged:
    """Return an artifact as a local path.

    Args:
        source: As an entry has it.
        scratch: Folder for what has to be fetched.

    Raises:
        StorageError: It cannot be fetched.
        SourceError: It is not there any more.
    """
    return cast(Callable[[str, Path], Staged], _function(source, "stage"))(source, scratch)


def _function(reference: str, name: str) -> object:
    scheme = scheme_of(reference)
    for kind in KINDS:
        if scheme in kind.schemes or kind.schemes == ("*",):
            return getattr(import_module(f"converter.registries.{kind.module}"), name)
    raise UsageError(f"{reference!r:.80} is no registry")
