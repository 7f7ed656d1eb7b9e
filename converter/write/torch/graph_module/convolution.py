"""Convolutions, pooling, and other operators on windows of images."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from converter.write.torch.graph_module.operators import (
    Known,
    NotSupportedError,
    Tensor,
    integers,
    operator,
    torch,
)
from converter.write.torch.graph_module.shaping import pad_constant

F: Any = torch.nn.functional


def _find_pads(
    x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int] | None, auto_pad: str,
) -> list[Any]:  # fmt: skip
    """Return the amounts before each axis, then those after each."""
    rank = len(kernel)
    if auto_pad in ("NOTSET", "VALID"):
        return list(pads) if pads and auto_pad == "NOTSET" else [0] * (2 * rank)
    before, after = [], []
    for size, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
        steps = (size + s - 1) // s
        needed = (steps - 1) * s + (k - 1) * d + 1 - size
        total = max(needed, 0) if isinstance(needed, int) else torch.sym_max(needed, 0)
        less = total // 2
        before.append(less if auto_pad == "SAME_UPPER" else total - less)
        after.append(total - less if auto_pad == "SAME_UPPER" else less)
    return [*before, *after]


def _pad_ends(x: Tensor, pads: Sequence[Any], value: float = 0.0) -> Tensor:
    """Pad the axes of an image with a value."""
    rank = len(pads) // 2
    for i in range(rank):
        x = pad_constant(x, 2 + i, pads[i], pads[i + rank], value)
    return x


def _split_symmetric(x: Tensor, pads: Sequence[Any]) -> tuple[Tensor, list[Any]]:
    """Return the image and amounts of padding that are equal on both sides of each axis."""
    rank = len(pads) // 2
    before, after = list(pads[:rank]), list(pads[rank:])
    if all(isinstance(b, int) and b == a for b, a in zip(before, after, strict=True)):
        return x, before
    return _pad_ends(x, pads), [0] * rank


@operator("Conv")
def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, kernel_shape: list[int] | None = None,
    strides: list[int] | None = None, dilations: list[int] | None = None,
    pads: list[int] | None = None, auto_pad: str = "NOTSET", group: int = 1,
) -> Tensor:  # fmt: skip
    """Convolve with padding of zeros."""
    kernel = kernel_shape or weight.shape[2:]
    rank = len(kernel)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    x, padding = _split_symmetric(x, _find_pads(x, kernel, strides, dilations, pads, auto_pad))
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return function(x, weight, bias, strides, padding, dilations, group)


@operator("ConvTranspose")
def convolve_transposed(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, kernel_shape: list[int] | None = None,
    strides: list[int] | None = None, dilations: list[int] | None = None,
    pads: list[int] | None = None, auto_pad: str = "NOTSET", group: int = 1,
    output_padding: list[int] | None = None, output_shape: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """Convolve with steps between the elements of the input; the result is cut by the padding."""
    kernel = kernel_shape or list(weight.shape[2:])
    rank = len(kernel)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    more = output_padding or [0] * rank
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    whole = function(x, weight, None, strides, 0, 0, group, dilations)
    whole = _pad_ends(whole, [*[0] * rank, *more]) if any(more) else whole
    wanted: list[Any] | None = output_shape
    if auto_pad.startswith("SAME") and wanted is None:
        wanted = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is not None:
        pads = []
        totals = [n - w for n, w in zip(whole.shape[2:], wanted, strict=True)]
        is_upper = auto_pad == "SAME_UPPER"
        first = [t // 2 if is_upper else t - t // 2 for t in totals]
        pads = [*first, *(t - f for t, f in zip(totals, first, strict=True))]
    cut = _pad_ends(whole, [-n for n in pads]) if pads and any(pads) else whole
    return cut if bias is None else cut + bias.reshape([1, -1, *[1] * rank])


# -- pooling -------------------------------------------------------------------------------------


def _pad_to_last_window(
    x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: list[Any], *, ceil_mode: int,
) -> list[Any]:  # fmt: skip
    """Return padding with what the last window needs beyond it, if sizes are rounded up.

    A window that would start in the padding behind the image is none.
    """
    if not ceil_mode:
        return pads
    rank, made = len(kernel), list(pads)
    for i, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True)):
        size, reach = x.shape[2 + i], (k - 1) * d + 1
        whole = size + pads[i] + pads[i + rank] - reach
        steps = torch.sym_min(-(-whole // s), (size + pads[i] - 1) // s)
        made[i + rank] = pads[i + rank] + steps * s - whole
    return made


@operator("MaxPool")
def pool_largest(
    x: Tensor, *, kernel_shape: list[int], strides: list[int] | None = None,
    dilations: list[int] | None = None, pads: list[int] | None = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0, storage_order: int = 0, outputs: int = 1,
) -> list[Tensor]:  # fmt: skip
    """Return the largest element of each window, and perhaps its place in the whole tensor."""
    rank = len(kernel_shape)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    amounts = _find_pads(x, kernel_shape, strides, dilations, pads, auto_pad)
    more = _pad_to_last_window(x, kernel_shape, strides, dilations, amounts, ceil_mode=ceil_mode)
    least = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    padded = _pad_ends(x, more, least)
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    if outputs == 1:
        return [function(padded, kernel_shape, strides, 0, dilations)]
    if storage_order:
        raise NotSupportedError("places of largest elements in column-major order")
    found, places = function(padded, kernel_shape, strides, 0, dilations, return_indices=True)
    spatial, at = [], places
    for i in reversed(range(rank)):
        wide = padded.shape[2 + i]
        spatial.append(at % wide - more[i])
        at = at // wide
    index = torch.zeros_like(places)
    for part, size in zip(reversed(spatial), x.shape[2:], strict=True):
        index = index * size + part
    images = torch.arange(x.shape[0] * x.shape[1]).reshape([*x.shape[:2], *[1] * rank])
    for size in x.shape[2:]:
        images = images * size
    return [found, index + images]


@operator("AveragePool")
def pool_average(
    x: Tensor, *, kernel_shape: list[int], strides: list[int] | None = None,
    dilations: list[int] | None = None, pads: list[int] | None = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0, count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    """Return the mean of each window, with or without the padding."""
    rank = len(kernel_shape)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    amounts = _find_pads(x, kernel_shape, strides, dilations, pads, auto_pad)
    more = _pad_to_last_window(x, kernel_shape, strides, dilations, amounts, ceil_mode=ceil_mode)
    sums = partial(_add_windows, kernel=kernel_shape, strides=strides, dilations=dilations)
    if all(isinstance(n, int) and n == 0 for n in more):
        return sums(x) / math.prod(kernel_shape)
    ones = torch.ones([1, 1, *x.shape[2:]], dtype=x.dtype)
    counted = _pad_ends(ones, amounts, 1.0) if count_include_pad else _pad_ends(ones, amounts)
    beyond = [n - m for n, m in zip(more, amounts, strict=True)]
    return sums(_pad_ends(x, more)) / sums(_pad_ends(counted, beyond))


def _add_windows(
    x: Tensor, *, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Tensor:
    """Return the sum of each window."""
    rank = len(kernel)
    if all(d == 1 for d in dilations):
        function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
        return function(x, kernel, strides) * math.prod(kernel)
    function = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    images = x.reshape([-1, 1, *x.shape[2:]])
    ones = torch.ones([1, 1, *kernel], dtype=x.dtype)
    made = function(images, ones, None, strides, 0, dilations)
    return made.reshape([*x.shape[:2], *made.shape[2:]])


@operator("LpPool")
def pool_norm(
    x: Tensor, *, kernel_shape: list[int], strides: list[int] | None = None,
    dilations: list[int] | None = None, pads: list[int] | None = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0, p: int = 2,
) -> Tensor:  # fmt: skip
    """Return the norm of each window."""
    powers = torch.abs(x) ** p
    means = pool_average(
        powers, kernel_shape=kernel_shape, strides=strides, dilations=dilations, pads=pads,
        auto_pad=auto_pad, ceil_mode=ceil_mode, count_include_pad=1,
    )  # fmt: skip
    return (means * math.prod(kernel_shape)) ** (1 / p)


@operator("GlobalAveragePool")
def average_all(x: Tensor) -> Tensor:
    """Return the mean of each channel."""
    return torch.mean(x, [*range(2, x.ndim)], keepdim=True)


@operator("GlobalMaxPool")
def find_largest_of_all(x: Tensor) -> Tensor:
    """Return the largest element of each channel."""
    return torch.amax(x, [*range(2, x.ndim)], keepdim=True)


# -- windows -------------------------------------------------------------------------------------


@operator("Col2Im")
def fold_windows(
    x: Tensor, image_shape: Known, block_shape: Known, *, dilations: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """Add windows of an image up at their places."""
    amounts = pads or [0, 0, 0, 0]
    image = integers(image_shape)
    if len(image) != 2 or amounts[:2] != amounts[2:]:
        raise NotSupportedError("Col2Im but for images with equal padding on both sides")
    return F.fold(
        x, image, integers(block_shape), dilations or [1, 1], amounts[:2], strides or [1, 1]
    )


@operator("GridSample")
def sample(
    x: Tensor, grid: Tensor, *, mode: str = "linear", padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Tensor:  # fmt: skip
    """Return the values of images at places between -1 and 1."""
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    return F.grid_sample(
        x, grid, modes.get(mode, mode), padding_mode, align_corners=bool(align_corners)
    )


@operator("LRN")
def normalize_across_channels(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """Divide by a power of the sum of squares in nearby channels."""
    first = (size - 1) // 2
    squares = (x * x).movedim(1, -1)
    padded = F.pad(squares, [first, size - 1 - first])
    sums = padded.unfold(-1, size, 1).sum(-1).movedim(-1, 1)
    return x / (bias + alpha / size * sums) ** beta
