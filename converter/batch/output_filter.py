"""Outputs never become sources, wherever the destination is: beside a registry, or inside it."""

import os
from collections.abc import Iterable
from pathlib import Path

from converter.batch.request import Request
from converter.filesystem.atomic_output import MARK
from converter.registries.catalog import scheme_of
from formats.errors import UsageError


class Outputs:
    """The outputs of a batch inside its registries."""

    def __init__(self, request: Request, names: Iterable[str]) -> None:
        """Remember where outputs are.

        Args:
            request: With the destination, and the ledger.
            names: Of the outputs that the ledger knows.
        """
        self._is_local = scheme_of(request.destination) == ""
        place = request.destination
        self._place = os.path.realpath(place) if self._is_local else place.rstrip("/")
        self._names = frozenset(names) if self._is_local else frozenset()
        self._inside = False
        self._folders: dict[str, str] = {}  # as they are called, and where they really are

    @property
    def apart(self) -> tuple[str, ...]:
        """Folders to leave out, by their real paths."""
        return (self._place,) if self._is_local else ()

    def check(self, reference: str) -> None:
        """Check a registry before its entries.

        Raises:
            UsageError: It is the destination.
        """
        if self._is_local != (scheme_of(reference) == ""):
            self._inside = False
            return
        root = os.path.realpath(reference) if self._is_local else reference.rstrip("/")
        if root == self._place and (Path(root).is_dir() or not self._is_local):
            raise UsageError(
                "the destination is the registry itself",
                where=reference,
                hint="Give out= a folder of its own; it may be inside the registry",
            )
        self._inside = self._place.startswith(root.rstrip("/") + "/")

    def reason(self, source: str) -> str | None:
        """Return why a source is one of our outputs; None if it is not."""
        if self._is_local != (scheme_of(source) == ""):
            return None
        if not self._is_local:
            is_below = self._inside and source.startswith(self._place + "/")
            return "in the destination" if is_below else None
        folder, _, name = source.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder or "/")
        path = f"{self._folders[folder].rstrip('/')}/{name}"
        if not path.startswith(self._place + "/"):
            return None
        if self._inside:
            return "in the destination"
        parts = path[len(self._place) + 1 :].split("/")
        if any(part.startswith(".") and MARK in part for part in parts):
            return "half-written by another run"
        if any("/".join(parts[:n]) in self._names for n in range(1, len(parts) + 1)):
            return "an output of this batch"
        return None
