"""Protocols between a Lambda's bytecode steps, the walk, and what names and tensors mean."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from converter.lower.values import Value


class Meaning(Protocol):
    """Meanings of names, and operations of tensors."""

    def lookup(self, name: str) -> Any:
        """Return the value of a global name."""

    def attribute(self, of: Any, name: str) -> Any:
        """Return an attribute."""

    def call(self, machine: Any, callee: Any, given: list[Any], named: dict[str, Any]) -> Any:
        """Call what is no function of the artifact's."""

    def binary(self, sign: str, a: Any, b: Any) -> Any:
        """Return ``a sign b``, where one is a tensor."""

    def compare(self, sign: str, a: Any, b: Any) -> Any:
        """Return how two values compare, of which one is a tensor."""

    def unary(self, sign: str, a: Value) -> Any:
        """Return ``-a`` and the like."""

    def item(self, of: Value, key: Any) -> Any:
        """Return ``of[key]``."""


class Walk(Protocol):
    """The interpretation of a Lambda that a call is part of."""

    @property
    def meaning(self) -> Meaning:
        """The meanings of names."""

    def call(
        self, callee: Any, given: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """Call something."""

    def step(self) -> None:
        """Count a step."""

    def spend(self, value: Any) -> None:
        """Count the elements of a list."""
