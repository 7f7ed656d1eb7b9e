"""Compare the weights of two artifacts of any format: equal, renamed, changed or missing."""

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import nan
from os import cpu_count
from pathlib import Path
from typing import Literal

from converter.notebook import render_table
from formats import catalog
from formats.artifact import Artifact
from formats.core import digests
from formats.core.bundle import Bundle
from formats.core.weights import Tensor
from formats.errors import VerificationError
from formats.limits import DEFAULT, Limits

Kind = Literal["equal", "renamed", "changed", "only in A", "only in B"]


@dataclass(frozen=True, slots=True)
class TensorDiff:
    """The comparison of one tensor.

    Attributes:
        kind: ``equal``, ``renamed``, ``changed``, ``only in A`` or ``only in B``.
        a: Name in A, or None.
        b: Name in B, or None.
        types: Dtype and shape; of both sides where they differ.
        max_abs: Largest absolute difference of the elements of a changed tensor; None where the
            shapes differ or the tensor is not changed.
    """

    kind: Kind
    a: str | None
    b: str | None
    types: str
    max_abs: float | None = None


class TensorDiffs(list[TensorDiff]):
    """A list of comparisons that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [
            (d.kind, d.a or "", d.b or "", d.types, "" if d.max_abs is None else f"{d.max_abs:.6g}")
            for d in self
        ]
        return render_table("A and B", rows, ("", "A", "B", "type", "max |a-b|"))


def diff(
    a: str | Path | Bundle, b: str | Path | Bundle, *, limits: Limits = DEFAULT
) -> list[TensorDiff]:
    """Compare the weights of two artifacts, given by path or as bundles.

    A tensor of A is *equal* where B has the same bytes, dtype and shape under the same name,
    *renamed* where B has them under another name only, and *changed* where B has the name with
    other content.

    Raises:
        VerificationError: Neither artifact holds a tensor, so nothing would be compared.
        ConvertError: An artifact cannot be read, as `converter.pipeline.read`.
    """
    a, b = (x if isinstance(x, Bundle) else catalog.read(Artifact(x, limits)) for x in (a, b))
    if not a.weights and not b.weights:
        raise VerificationError("neither artifact holds a tensor")
    keys_a, keys_b = _compute_keys(a.weights), _compute_keys(b.weights)
    unmatched: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for name, key in keys_b.items():
        if keys_a.get(name) != key:
            unmatched[key].append(name)
    matched: set[str] = set()
    diffs: list[TensorDiff] = TensorDiffs()
    for name, tensor in a.weights.items():
        other: str | None = name
        kind: Kind
        types, distance = _describe_type(tensor), None
        if keys_b.get(name) == keys_a[name]:
            kind = "equal"
        elif unmatched[keys_a[name]]:
            kind, other = "renamed", unmatched[keys_a[name]].pop(0)
        elif name in b.weights:
            kind, distance = "changed", compute_max_abs(tensor, b.weights[name])
            if types != _describe_type(b.weights[name]):
                types += f" -> {_describe_type(b.weights[name])}"
        else:
            kind, other = "only in A", None
        diffs.append(TensorDiff(kind, name, other, types, distance))
        if other is not None:
            matched.add(other)
    diffs += [
        TensorDiff("only in B", None, name, _describe_type(tensor))
        for name, tensor in b.weights.items()
        if name not in matched
    ]
    return diffs


def compute_max_abs(a: Tensor, b: Tensor) -> float | None:
    """Return the largest ``|a - b|``; NaN where only one side is NaN, None where shapes differ."""
    if a.shape != b.shape or not a.size:
        return None
    import numpy as np

    wide = np.complex128 if "complex" in a.dtype.name + b.dtype.name else np.float64
    x, y = a.numpy().astype(wide), b.numpy().astype(wide)
    if (np.isnan(x) != np.isnan(y)).any():
        return nan
    with np.errstate(invalid="ignore"):
        distance = np.abs(x - y)
    distance[(x == y) | (np.isnan(x) & np.isnan(y))] = 0  # inf - inf is NaN
    return float(distance.max())


def _compute_keys(weights: Mapping[str, Tensor]) -> dict[str, tuple[object, ...]]:
    """Return the dtype, shape and digest of each tensor."""
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        computed = pool.map(digests.of_tensor, weights.values())
        return {
            name: (tensor.dtype.name, tensor.shape, digest)
            for (name, tensor), digest in zip(weights.items(), computed, strict=True)
        }


def _describe_type(tensor: Tensor) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"
