"""Windows over the spatial axes of images: their number, and the padding.

Images are channels-first here. Symbolic sizes yield symbolic sizes.
Spec: https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

import numpy as np

from converter.lower import dims
from converter.lower.builder import END
from converter.lower.graph import Attribute, Dim
from converter.lower.ops.conv import as_given, channels_first, same_padding
from converter.lower.tf.context import Context
from converter.lower.tf.table import Unsupported
from converter.lower.values import Value


@dataclass(frozen=True, slots=True)
class Windows:
    """Sliding windows: kernel size, stride and dilation of each spatial axis, and the padding.

    Attributes:
        sizes: Kernel sizes; None if unknown.
        steps: Strides.
        spreads: Dilations.
        padding: SAME, VALID or EXPLICIT.
        before: Explicit padding before each axis.
        after: Explicit padding after each axis.
    """

    sizes: tuple[int | None, ...]
    steps: tuple[int, ...]
    spreads: tuple[int, ...]
    padding: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def reaches(self) -> list[int | None]:
        """Effective kernel sizes, with dilation."""
        return [
            None if k is None else (k - 1) * d + 1
            for k, d in zip(self.sizes, self.spreads, strict=True)
        ]

    def counts(self, spatial: Sequence[Dim]) -> list[Dim]:
        """Return the number of windows along each axis."""
        found: list[Dim] = []
        for i, (n, s, reach) in enumerate(zip(spatial, self.steps, self.reaches, strict=True)):
            if self.padding == "SAME":
                found.append(dims.floordiv(dims.add(n, s - 1), s) if s != 1 else n)
                continue
            if reach is None:
                found.append(None)
                continue
            whole = n if not self.before else dims.add(n, self.before[i] + self.after[i])
            if isinstance(whole, int) and whole < reach:
                found.append(0)
            else:
                found.append(dims.add(dims.floordiv(dims.sub(whole, reach), s), 1))
        return found

    def pads(self, spatial: Sequence[Dim]) -> tuple[list[int], list[int]] | None:
        """Return the padding before and after each axis; None if it depends on an unknown size."""
        if self.padding == "EXPLICIT":
            return list(self.before), list(self.after)
        if self.padding == "VALID" or all(reach == 1 for reach in self.reaches):
            return [0] * len(spatial), [0] * len(spatial)
        if any(k is None for k in self.sizes):
            return None
        return same_padding(spatial, [k or 1 for k in self.sizes], self.steps, self.spreads)

    @property
    def are_named(self) -> bool:
        """Whether ONNX's SAME_UPPER equals SAME: no dilation, strides up to the kernel size."""
        near = all(k is None or s <= k for s, k in zip(self.steps, self.sizes, strict=True))
        return self.padding == "SAME" and near and all(d == 1 for d in self.spreads)


def is_first(data_format: str) -> bool:
    """Return whether a data format is channels-first.

    Raises:
        Unsupported: The channels are vectorized (NCHW_VECT_C).
    """
    if "VECT" in data_format:
        raise Unsupported(f"data_format {data_format}")
    return data_format.startswith("NC") or data_format == "CHANNELS_FIRST"


def order(data_format: str) -> str:
    """Return a data format as channels_first or channels_last."""
    return "channels_first" if is_first(data_format) else "channels_last"


def spatial_of(numbers: Sequence[int], data_format: str, what: str) -> tuple[int, ...]:
    """Return the entries of the spatial axes in a list with one entry per axis.

    Raises:
        Unsupported: An entry of the batch or channel axis is not 1.
    """
    first = is_first(data_format)
    rest = [numbers[0], numbers[1] if first else numbers[-1]]
    if any(n != 1 for n in rest):
        raise Unsupported(f"{what} along batches or channels")
    return tuple(numbers[2:] if first else numbers[1:-1])


def explicit_of(
    numbers: Sequence[int], padding: str, data_format: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return explicit padding before and after the spatial axes; empty if it is not explicit.

    Raises:
        Unsupported: The batch or channel axis is padded.
    """
    if padding != "EXPLICIT":
        return (), ()
    first = is_first(data_format)
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    if any(pairs[0]) or any(pairs[1] if first else pairs[-1]):
        raise Unsupported("paddings of batches or channels")
    inner = pairs[2:] if first else pairs[1:-1]
    return tuple(a for a, _ in inner), tuple(b for _, b in inner)


def as_first(op: Context, x: Value, data_format: str) -> Value:
    """Return an image channels-first."""
    return channels_first(op, x, order(data_format))


def as_was(op: Context, x: Value, data_format: str) -> Value:
    """Undo `as_first`."""
    return as_given(op, x, order(data_format))


def pad_windows(
    op: Context, image: Value, windows: Windows, fill: float | None = None
) -> tuple[Value, Windows]:
    """Return a padded image, and the windows over it, without padding.

    Args:
        op: Builder.
        image: Image, channels-first.
        windows: Windows over the image.
        fill: Padding value, zero by default.
    """
    spatial = image.shape[2:]
    pads = windows.pads(spatial)
    count = windows.counts(spatial)
    bare = replace(windows, padding="VALID", before=(), after=())
    if pads is not None:
        return op.pad(image, [0, 0, *pads[0]], [0, 0, *pads[1]], value=fill), bare
    one, two = op.constant([1], "int64"), op.constant([2], "int64")
    before, after = [op.constant([0, 0], "int64")], [op.constant([0, 0], "int64")]
    for axis, (reach, step) in enumerate(zip(windows.reaches, windows.steps, strict=True), 2):
        if reach is None:
            raise Unsupported("padding SAME with a spread kernel of unknown size")
        size = op.size(image, axis)
        steps = op.constant([step], "int64")
        covered = op.mul(op.div(op.sub(size, one), steps), steps)
        missing = op.sub(op.add(covered, op.constant([reach], "int64")), size)
        whole = op.elementwise("Max", missing, op.constant([0], "int64"))
        before.append(op.div(whole, two))
        after.append(op.sub(whole, before[-1]))
    amounts = op.concat([*before, *after], 0)
    reaches = [reach or 1 for reach in windows.reaches]
    ends = zip(count, windows.steps, reaches, strict=True)
    shape = [dims.add(dims.mul(dims.sub(n, 1), s), r) for n, s, r in ends]
    value = None if fill is None else op.constant(fill, image.dtype)
    (padded,) = op.node(
        "Pad", [op.plain(image), amounts, value],
        [(image.dtype, (*image.shape[:2], *(n if isinstance(n, int) else None for n in shape)))],
    )  # fmt: skip
    return padded, bare


def taps(op: Context, image: Value, windows: Windows) -> Iterator[tuple[tuple[int, ...], Value]]:
    """Yield each index in a window, and the elements there of all windows: [N, C, *counts].

    Args:
        op: Builder.
        image: Padded image, channels-first.
        windows: Windows over the image.
    """
    lengths = [k for k in windows.sizes if k is not None]
    if len(lengths) < len(windows.sizes):
        raise Unsupported("windows of unknown size")
    count = windows.counts(image.shape[2:])
    axes = list(range(2, image.rank))
    for place in product(*map(range, lengths)):
        starts = [i * d for i, d in zip(place, windows.spreads, strict=True)]
        behind = [
            (k - 1) * d - start
            for k, d, start in zip(lengths, windows.spreads, starts, strict=True)
        ]
        cut = op.slice(image, axes, starts, [-n if n else END for n in behind], windows.steps)
        yield place, replace(cut, shape=(*cut.shape[:2], *count))


def lowest(dtype: str) -> float:
    """Return the lowest value of a dtype."""
    return -inf if "float" in dtype else int(np.iinfo(dtype).min)


def attributes_of(windows: Windows) -> dict[str, Attribute]:
    """Return the kernel size and strides as attributes of ONNX's pooling."""
    return {"kernel_shape": [k or 1 for k in windows.sizes], "strides": list(windows.steps)}
