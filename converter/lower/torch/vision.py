"""Ops of torchvision: non-maximum suppression, regions of interest, deformable convolution.

Spec: https://github.com/pytorch/vision/tree/v0.24.1/torchvision/csrc/ops/cpu
"""

from converter.lower import dims
from converter.lower.graph import Attribute, Dim
from converter.lower.ops.nms import suppress
from converter.lower.torch.context import Context
from converter.lower.torch.convolution import convolve, windows
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


@aten("torchvision.nms")
def nms(op: Context, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """Indices of the boxes kept by non-maximum suppression, by descending score."""
    iou = op.constant(iou_threshold, "float32")
    return op.named(suppress(op, dets, scores, op.size(dets, 0), iou))


@aten("torchvision.roi_align", "torchvision._roi_align_forward")
def roi_align(
    op: Context, input: Value, rois: Value, spatial_scale: float, pooled_height: int,
    pooled_width: int, sampling_ratio: int, aligned: bool,
) -> Value:  # fmt: skip
    """Regions of images resized to one size by averages of sampled points: [K, C, h, w]."""
    regions = op.named(rois)
    corners = op.cut(regions, 1, 1, 5)
    which = op.cast(op.squeeze(op.cut(regions, 1, 0, 1), [1]), "int64")
    attributes: dict[str, Attribute] = {
        "mode": "avg", "output_height": pooled_height, "output_width": pooled_width,
        "sampling_ratio": max(sampling_ratio, 0), "spatial_scale": float(spatial_scale),
        "coordinate_transformation_mode": "half_pixel" if aligned else "output_half_pixel",
    }  # fmt: skip
    shape = (regions.shape[0], input.shape[1], pooled_height, pooled_width)
    inputs = [op.outer(input), op.outer(corners), which]
    return op.node("RoiAlign", inputs, [(input.dtype, shape)], attributes=attributes)[0]


@aten("torchvision.roi_pool", "torchvision._roi_pool_forward")
def roi_pool(
    op: Context, input: Value, rois: Value, spatial_scale: float, pooled_height: int,
    pooled_width: int,
) -> list[Value]:  # fmt: skip
    """The maxima of the cells of regions of images; their indices are left out."""
    regions = op.named(rois)
    attributes: dict[str, Attribute] = {
        "pooled_shape": [pooled_height, pooled_width],
        "spatial_scale": float(spatial_scale),
    }
    shape = (regions.shape[0], input.shape[1], pooled_height, pooled_width)
    inputs = [op.outer(input), op.outer(regions)]
    return op.node("MaxRoiPool", inputs, [(input.dtype, shape)], attributes=attributes)


@aten("torchvision.deform_conv2d", "torchvision._deform_conv2d_forward")
def deform_conv2d(
    op: Context, input: Value, weight: Value, offset: Value, mask: Value, bias: Value,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    groups: int, offset_groups: int, use_mask: bool,
) -> Value:  # fmt: skip
    """Deformable convolution: each element of a window is sampled at an offset.

    DeformConv is of opset 19, and graphs are of 18: the points are sampled by GridSample, and a
    convolution of one pixel sums them.
    """
    x = op.named(input)
    kernel = weight.shape[2:]
    if not all(isinstance(n, int) for n in (*kernel, x.shape[1])):
        raise Unsupported("a kernel of unknown size")
    rows, columns = (int(n) for n in kernel if isinstance(n, int))
    count = rows * columns
    around = ((stride_h, pad_h, dilation_h, rows, 0), (stride_w, pad_w, dilation_w, columns, 1))
    out = [
        windows(op, x.shape[2 + i], size, step, spread, 2 * pad)
        for step, pad, spread, size, i in around
    ]
    batch, channels = x.shape[0], x.shape[1]
    assert isinstance(channels, int)
    moved = op.reshape(offset, (dims.mul(batch, offset_groups), count, 2, *out))
    points = []
    for step, pad, spread, size, i in around:
        starts = op.sub(op.mul(op.range(out[i], x.dtype), float(step)), float(pad))
        inside = op.mul(op.range(size, x.dtype), float(spread))
        place = op.add(_across(op, inside, i, rows, columns), _along(op, starts, 3 + i))
        at = op.add(op.squeeze(op.cut(moved, 2, i, i + 1), [2]), op.squeeze(place, [2]))
        points.append(_normalize(op, at, x.shape[2 + i]))
    grid = op.concat([op.unsqueeze(p, [-1]) for p in reversed(points)], -1)
    flat = dims.mul(batch, offset_groups)
    grid = op.reshape(
        op.shaped(grid, (flat, count, *out, 2)), (flat, dims.mul(count, out[0]), out[1], 2)
    )
    each = channels // offset_groups
    images = op.reshape(x, (flat, each, *x.shape[2:]))
    attributes: dict[str, Attribute] = {
        "mode": "linear" if op.graph.opset >= 20 else "bilinear",
        "padding_mode": "zeros",
        "align_corners": 0,
    }
    shape = (flat, each, *grid.shape[1:3])
    taken = op.node("GridSample", [images, grid], [(x.dtype, shape)], attributes=attributes)[0]
    if use_mask:
        weights = op.reshape(mask, (flat, 1, dims.mul(count, out[0]), out[1]))
        taken = op.mul(taken, weights)
    stacked = op.reshape(op.shaped(taken, shape), (batch, channels * count, *out))
    summed = op.reshape(weight, (weight.shape[0], dims.mul(weight.shape[1], count), 1, 1))
    return convolve(
        op, stacked, summed, bias, stride=(1,), padding=(0,), dilation=(1,), groups=groups, rank=2
    )


def _across(op: Context, inside: Value, axis: int, rows: int, columns: int) -> Value:
    """Return coordinates within a window by index of the kernel's element: [1, count, 1, 1, 1]."""
    shape = (rows, 1) if axis == 0 else (1, columns)
    wide = op.expand(op.reshape(inside, shape), (rows, columns))
    return op.reshape(wide, (1, rows * columns, 1, 1, 1))


def _along(op: Context, places: Value, axis: int) -> Value:
    """Return coordinates of windows along one of five axes."""
    return op.unsqueeze(places, [i for i in range(5) if i != axis])


def _normalize(op: Context, at: Value, n: Dim) -> Value:
    """Return coordinates in pixels as those of GridSample, where -1 and 1 are the edges."""
    count = op.scalar_of(n, at.dtype)
    return op.sub(op.div(op.add(op.mul(at, 2.0), 1.0), count), 1.0)
