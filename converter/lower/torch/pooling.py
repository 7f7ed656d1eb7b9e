"""Pooling: the largest or the mean of windows, of one to three dimensions.

torch rounds the number of windows up (``ceil_mode``) only where the last one begins within the
image or the padding before it; ONNX's operators differ, so padding is given explicitly.
Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/Pool.h
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from converter.lower import dims
from converter.lower.graph import Attribute, Dim
from converter.lower.known_values import Numbers, whole
from converter.lower.ops import pool, reduce
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.convolution import windows
from converter.lower.torch.program_values import Int, Ints, numbers
from converter.lower.torch.promotion import kind
from converter.lower.torch.reductions import place_of
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

RANKS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of images.

    Attributes:
        size: Size of each window, by axis.
        step: Stride of each axis.
        around: Padding, on each side.
        spread: Between elements of one.
        more: Further padding at the end, for windows that reach over it.
        counts: How many there are.
    """

    size: list[int]
    step: list[int]
    around: list[int]
    spread: list[int]
    more: list[int]
    counts: list[Dim]

    @property
    def pads(self) -> list[int]:
        """Padding as ONNX has it."""
        return [*self.around, *(a + m for a, m in zip(self.around, self.more, strict=True))]


def windows_of(
    op: Context, spatial: Sequence[Dim], size: Ints, step: Ints, around: Ints, spread: Ints, *,
    up: bool,
) -> Windows:  # fmt: skip
    """Return the windows of images with these spatial axes.

    Raises:
        Unsupported: Rounding up matters, and the size of an axis is not known.
    """
    rank = len(spatial)
    kernel = numbers(size, rank, "a window's size")
    steps = numbers(step, rank, "a step") if step else kernel
    pads, spreads = numbers(around, rank, "padding"), numbers(spread, rank, "a dilation")
    more, counts = [0] * rank, []
    for i, n in enumerate(spatial):
        reach = spreads[i] * (kernel[i] - 1) + 1
        count = windows(op, n, kernel[i], steps[i], spreads[i], 2 * pads[i], up=up)
        if up and steps[i] > 1:
            if not isinstance(n, int) or not isinstance(count, int):
                raise Unsupported("ceil_mode on an axis of a dynamic size")
            if (count - 1) * steps[i] >= n + pads[i]:
                count -= 1
            more[i] = max((count - 1) * steps[i] + reach - n - 2 * pads[i], 0)
        counts.append(count)
    return Windows(kernel, steps, pads, spreads, more, counts)


def _batched(x: Value, rank: int, op: Context) -> tuple[Value, bool]:
    """Return images with a batch, and whether they had one."""
    return (x, True) if x.rank == rank + 2 else (op.unsqueeze(x, [0]), False)


def _max_pool(
    op: Context, x: Value, size: Ints, step: Ints, around: Ints, spread: Ints, rank: int,
    *, places: bool, up: bool = False,
) -> list[Value]:  # fmt: skip
    """Return the largest of each window, and where it is in its image."""
    images, had_batch = _batched(op.named(x), rank, op)
    how = windows_of(op, images.shape[2:], size, step, around, spread, up=up)
    shape = (*images.shape[:2], *how.counts)
    attributes: dict[str, Attribute] = {
        "kernel_shape": how.size, "strides": how.step, "pads": how.pads, "dilations": how.spread,
    }  # fmt: skip
    if any(p >= k for p, k in zip(how.pads, [*how.size, *how.size], strict=True)):
        raise Unsupported("padding that is no smaller than the kernel, which onnxruntime refuses")
    given = op.outer(images)
    wide = given if kind(given.dtype) == 2 or given.dtype in ("int8", "uint8") else None
    if wide is None:
        if places or given.dtype == "int64":
            raise Unsupported(f"windows of {given.dtype}")
        wide = op.cast(given, "float64")
    outputs = [(wide.dtype, shape), *([("int64", shape)] if places else [])]
    made = op.node("MaxPool", [wide], outputs, attributes=attributes)
    found = [op.cast(made[0], given.dtype)]
    if places:
        image = op.scalar_of(dims.product(images.shape[2:]), "int64")
        found.append(op.elementwise("Mod", made[1], image))
    return found if had_batch else [op.squeeze(v, [0]) for v in found]


def _avg_pool(
    op: Context, x: Value, size: Ints, step: Ints, around: Ints, rank: int, *,
    up: bool = False, include: bool = True, divisor: int | None = None,
) -> Value:  # fmt: skip
    """Return the mean of each window, or its sum over a divisor.

    What is counted of padding is that on both sides, and not what is beyond it.
    """
    images, had_batch = _batched(op.named(x), rank, op)
    how = windows_of(op, images.shape[2:], size, step, around, (1,), up=up)
    shape = (*images.shape[:2], *how.counts)
    inner = how.pads
    if divisor is not None or (include and any(how.more)):
        before = [0, 0, *how.around]
        behind = [0, 0, *(how.pads[rank:] if divisor is not None else how.around)]
        images = op.pad(images, before, behind)
        inner = [0] * (2 * rank) if divisor is not None else [0] * rank + how.more
        include = False
    attributes: dict[str, Attribute] = {
        "kernel_shape": how.size, "strides": how.step, "pads": inner,
        "count_include_pad": int(include),
    }  # fmt: skip
    outputs = [(images.dtype, shape)]
    (made,) = op.node("AveragePool", [op.outer(images)], outputs, attributes=attributes)
    if divisor is not None:
        made = op.mul(made, prod(how.size) / divisor)
    return made if had_batch else op.squeeze(made, [0])


# -- windows that depend on the result's size ------------------------------------------------------


def _targets(op: Context, x: Value, size: Sequence[Int | None], rank: int) -> list[Dim]:
    found = [size] * rank if isinstance(size, int) else list(size)
    return [op.axis_of(x, i - rank) if n is None else n for i, n in enumerate(found)]


def _adaptive_mean(op: Context, x: Value, size: Sequence[Int | None], rank: int) -> Value:
    """Return means of windows, one axis after another: each has as many rows in every column."""
    x = op.named(x)
    targets = _targets(op, x, size, rank)
    axes = list(range(x.rank - rank, x.rank))
    if all(t == 1 for t in targets):
        return op.reduce("ReduceMean", x, axes, keepdims=True)
    spatial = x.shape[-rank:]
    parts = [dims.divide_exactly(n, t) for n, t in zip(spatial, targets, strict=True)]
    steps = [p for p in parts if isinstance(p, int)]
    if len(steps) == rank:
        if all(s == 1 for s in steps):
            return x
        found = _avg_pool(op, x, steps, steps, (0,), rank)
        return op.shaped(found, (*x.shape[:-rank], *targets))
    for axis, n, target in zip(axes, spatial, targets, strict=True):
        x = _mean_along(op, x, axis, n, target)
    return x


def _mean_along(op: Context, x: Value, axis: int, n: Dim, target: Dim) -> Value:
    if target == n:
        return x
    if target == 1:
        return op.reduce("ReduceMean", x, [axis], keepdims=True)
    return pool.adaptive_mean(op, x, axis, _number(op, n), _number(op, target), target)


def _number(op: Context, n: Dim) -> Numbers:
    return whole(op, n if isinstance(n, int) else op.scalar_of(n, "int64"))


def _adaptive_max(op: Context, x: Value, size: Sequence[Int | None], rank: int) -> list[Value]:
    """Return the largest of windows, and where each is in its image."""
    x = op.named(x)
    targets = _targets(op, x, size, rank)
    spatial = x.shape[-rank:]
    parts = [dims.divide_exactly(n, t) for n, t in zip(spatial, targets, strict=True)]
    steps = [p for p in parts if isinstance(p, int)]
    if len(steps) == rank:
        return _max_pool(op, x, steps, steps, (0,), (1,), rank, places=True)
    if all(t == 1 for t in targets):
        flat = op.reshape(x, (*x.shape[:-rank], dims.product(spatial)))
        values = reduce.reduce_axes(op, "ReduceMax", flat, [-1])
        found = [values, place_of(op, "ArgMax", flat, -1, keepdim=False)]
        return [op.unsqueeze(v, list(range(-rank, 0))) for v in found]
    counts = [_number(op, n) for n in spatial], [_number(op, n) for n in targets]
    return list(pool.adaptive_max_of_image(op, op.outer(x), *counts, targets))


@aten(
    Variant("adaptive_avg_pool1d", rank=1),
    *(Variant((f"adaptive_avg_pool{n}d", f"_adaptive_avg_pool{n}d"), rank=n) for n in (2, 3)),
)
def adaptive_avg_pool(
    op: Context, self: Value, output_size: Sequence[int | None], *, rank: int
) -> Value:
    """Adaptive average pooling."""
    return _adaptive_mean(op, self, output_size, rank)


@aten(*(Variant(f"adaptive_max_pool{n}d", rank=n) for n in RANKS))
def adaptive_max_pool(
    op: Context, self: Value, output_size: Sequence[int | None], *, rank: int
) -> list[Value]:
    """Adaptive max pooling, and the indices of the maxima."""
    return _adaptive_max(op, self, output_size, rank)


@aten(*(Variant(f"max_pool{n}d", rank=n) for n in RANKS))
def max_pool(
    op: Context, self: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,),
    dilation: Ints = (1,), ceil_mode: bool = False, *, rank: int,
) -> Value:  # fmt: skip
    """The maximum of each window."""
    return _max_pool(
        op, self, kernel_size, stride, padding, dilation, rank, places=False, up=ceil_mode
    )[0]


@aten(*(Variant(f"max_pool{n}d_with_indices", rank=n) for n in RANKS))
def max_pool_with_indices(
    op: Context, self: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,),
    dilation: Ints = (1,), ceil_mode: bool = False, *, rank: int,
) -> list[Value]:  # fmt: skip
    """The maximum of each window, and its index."""
    return _max_pool(
        op, self, kernel_size, stride, padding, dilation, rank, places=True, up=ceil_mode
    )


@aten(*(Variant(f"avg_pool{n}d", rank=n) for n in RANKS))
def avg_pool(
    op: Context, self: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None, *,
    rank: int,
) -> Value:  # fmt: skip
    """The mean of each window."""
    return _avg_pool(
        op, self, kernel_size, stride, padding, rank, up=ceil_mode,
        include=count_include_pad, divisor=divisor_override,
    )  # fmt: skip
