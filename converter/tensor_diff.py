"""Two artifacts tensor by tensor, whatever their containers: equal, renamed, changed, missing."""

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import nan
from os import cpu_count
from typing import Literal

from formats.core import digests
from formats.core.bundle import Bundle
from formats.core.weights import Tensor
from formats.errors import VerificationError

Kind = Literal["equal", "renamed", "changed", "only in A", "only in B"]


@dataclass(frozen=True, slots=True)
class Difference:
    """What became of one tensor.

    Attributes:
        kind: The verdict.
        a: Name in A, or None.
        b: Name in B, or None.
        types: Dtype and shape; of both sides where they differ.
        max_abs: Largest absolute difference of elements, where both have one shape and numbers to
            subtract; None elsewhere.
    """

    kind: Kind
    a: str | None
    b: str | None
    types: str
    max_abs: float | None = None


def diff(a: Bundle, b: Bundle) -> list[Difference]:
    """Compare the weights of two bundles.

    A tensor of A is *equal* where B has the same bytes, dtype and shape under the same name,
    *renamed* where only under another one, *changed* where the name is there with other content.

    Raises:
        VerificationError: Both are empty, so that nothing would be compared.
    """
    if not a.weights and not b.weights:
        raise VerificationError("neither artifact holds a tensor")
    keys_a, keys_b = _keys(a.weights), _keys(b.weights)
    unclaimed: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name, key in keys_b.items():
        if keys_a.get(name) != key:
            unclaimed[key].append(name)
    matched: set[str] = set()
    found: list[Difference] = []
    for name, tensor in a.weights.items():
        if keys_b.get(name) == keys_a[name]:
            found.append(Difference("equal", name, name, _type(tensor)))
            matched.add(name)
        elif unclaimed[keys_a[name]]:
            other = unclaimed[keys_a[name]].pop(0)
            found.append(Difference("renamed", name, other, _type(tensor)))
            matched.add(other)
        elif name in b.weights:
            types = _type(tensor)
            if types != _type(b.weights[name]):
                types += f" -> {_type(b.weights[name])}"
            found.append(Difference("changed", name, name, types, max_abs(tensor, b.weights[name])))
            matched.add(name)
        else:
            found.append(Difference("only in A", name, None, _type(tensor)))
    found += [
        Difference("only in B", None, name, _type(tensor))
        for name, tensor in b.weights.items()
        if name not in matched
    ]
    return found


def max_abs(a: Tensor, b: Tensor) -> float | None:
    """Return the largest |a - b|; NaN where only one side is NaN, None across shapes."""
    if a.shape != b.shape or not a.size:
        return None
    import numpy as np

    wide = np.complex128 if "complex" in a.dtype.name + b.dtype.name else np.float64
    x, y = a.numpy().astype(wide), b.numpy().astype(wide)
    if (np.isnan(x) != np.isnan(y)).any():
        return nan
    with np.errstate(invalid="ignore"):
        gap = np.abs(x - y)
    gap[(x == y) | (np.isnan(x) & np.isnan(y))] = 0  # equal infinities subtract to NaN
    return float(gap.max())


def _keys(weights: Mapping[str, Tensor]) -> dict[str, tuple[object, ...]]:
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        found = pool.map(digests.of_tensor, weights.values())
        return {
            name: (tensor.dtype.name, tensor.shape, digest)
            for (name, tensor), digest in zip(weights.items(), found, strict=True)
        }


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"
