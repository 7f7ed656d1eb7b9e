"""Windows over the spatial axes of images: how many there are, and what surrounds an image.

Images are channels-first here. Where a size is known only by name, so is that of the result.
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
    """What moves over an image: for each spatial axis a size, a step and a spread; and padding.

    Attributes:
        sizes: Elements; None where that is not known.
        steps: From one window to the next.
        spreads: From one element of a window to the next.
        padding: SAME, VALID or EXPLICIT.
        before: What is added before each axis, where padding is explicit.
        after: What is added behind it.
    """

    sizes: tuple[int | None, ...]
    steps: tuple[int, ...]
    spreads: tuple[int, ...]
    padding: str
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def reaches(self) -> list[int | None]:
        """From the first element of a window to its last, both counted."""
        return [
            None if k is None else (k - 1) * d + 1
            for k, d in zip(self.sizes, self.spreads, strict=True)
        ]

    def counts(self, spatial: Sequence[Dim]) -> list[Dim]:
        """Return how many windows there are along each axis."""
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
        """Return what is added before and behind each axis; None where that takes its size."""
        if self.padding == "EXPLICIT":
            return list(self.before), list(self.after)
        if self.padding == "VALID" or all(reach == 1 for reach in self.reaches):
            return [0] * len(spatial), [0] * len(spatial)
        if any(k is None for k in self.sizes):
            return None
        return same_padding(spatial, [k or 1 for k in self.sizes], self.steps, self.spreads)

    @property
    def are_named(self) -> bool:
        """Whether ONNX's SAME_UPPER pads as TensorFlow does: not with spread or far windows."""
        near = all(k is None or s <= k for s, k in zip(self.steps, self.sizes, strict=True))
        return self.padding == "SAME" and near and all(d == 1 for d in self.spreads)


def is_first(data_format: str) -> bool:
    """Return whether channels stand before the spatial axes.

    Raises:
        Unsupported: They are cut in pieces of four, as on some devices.
    """
    if "VECT" in data_format:
        raise Unsupported(f"data_format {data_format}")
    return data_format.startswith("NC") or data_format == "CHANNELS_FIRST"


def order(data_format: str) -> str:
    """Return an order of axes in Keras's words."""
    return "channels_first" if is_first(data_format) else "channels_last"


def spatial_of(numbers: Sequence[int], data_format: str, what: str) -> tuple[int, ...]:
    """Return what is said of each axis of an image for the spatial ones.

    Raises:
        Unsupported: Something is said of batches or channels.
    """
    first = is_first(data_format)
    rest = [numbers[0], numbers[1] if first else numbers[-1]]
    if any(n != 1 for n in rest):
        raise Unsupported(f"{what} along batches or channels")
    return tuple(numbers[2:] if first else numbers[1:-1])


def explicit_of(
    numbers: Sequence[int], padding: str, data_format: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return explicit paddings before and behind the spatial axes; nothing where there are none.

    Raises:
        Unsupported: Batches or channels are padded.
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
    """Return an image with its channels before its spatial axes."""
    return channels_first(op, x, order(data_format))


def as_was(op: Context, x: Value, data_format: str) -> Value:
    """Undo `as_first`."""
    return as_given(op, x, order(data_format))


def pad_windows(
    op: Context, image: Value, windows: Windows, fill: float | None = None
) -> tuple[Value, Windows]:
    """Return an image with its padding as elements, and the windows over that.

    Args:
        op: Builder.
        image: Channels-first.
        windows: Over it.
        fill: What the padding is; zeros by default.
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
    """Yield for each element of a window, by its place in it, that of all windows: [N, C, *counts].

    Args:
        op: Builder.
        image: Channels-first, already padded.
        windows: Over it.
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
    """Return what no number of a type is less than."""
    return -inf if "float" in dtype else int(np.iinfo(dtype).min)


def attributes_of(windows: Windows) -> dict[str, Attribute]:
    """Return the attributes of ONNX's pooling that say of which size windows are."""
    return {"kernel_shape": [k or 1 for k in windows.sizes], "strides": list(windows.steps)}
