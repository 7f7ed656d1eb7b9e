"""Spatial blocks moved to the batch or the channels and back, and image patches."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from converter.lower import dims
from converter.lower.tf import extents
from converter.lower.tf.context import Context
from converter.lower.tf.dilated_convolution import lower_dilated
from converter.lower.tf.extents import Extent
from converter.lower.tf.graphdef import Node
from converter.lower.tf.padding import pad_constant
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

# -- the batch -------------------------------------------------------------------------------------


@tf_op("SpaceToBatchND")
def space_to_batch_nd(op: Context, input: Value, block_shape: Value, paddings: Value, /) -> Value:
    """Blocks of the padded spatial axes, moved to the batch."""
    blocks = extents.elements(op, block_shape)
    return _to_batch(op, input, blocks, paddings)


@tf_op("SpaceToBatch")
def space_to_batch(op: Context, input: Value, paddings: Value, /, *, block_size: int) -> Value:
    """Blocks of a padded image, moved to the batch."""
    return _to_batch(op, input, [extents.number(op, block_size)] * 2, paddings)


def _to_batch(op: Context, x: Value, blocks: Sequence[Extent], paddings: Value) -> Value:
    count = len(blocks)
    known = op.static(paddings)
    if known is not None:
        known = known.reshape(count, 2)
        rows = np.zeros((x.rank, 2), known.dtype)
        rows[1 : 1 + count] = known
        wide = op.constant(rows)
    else:
        above = op.constant(np.zeros((1, 2), paddings.dtype))
        below = op.constant(np.zeros((x.rank - 1 - count, 2), paddings.dtype))
        wide = op.concat([above, paddings, *([below] if x.rank > 1 + count else [])], 0)
    x = pad_constant(op, x, wide, None)
    batch, *space = extents.of_all(op, x)
    rest = space[count:]
    parts = [extents.div(op, n, b) for n, b in zip(space, blocks, strict=False)]
    pairs = [one for pair in zip(parts, blocks, strict=True) for one in pair]
    split = extents.reshape_to(op, x, [batch, *pairs, *rest])
    inner = [2 + 2 * i for i in range(count)]
    outer = [1 + 2 * i for i in range(count)]
    last = list(range(1 + 2 * count, split.rank))
    turned = op.transpose(split, [*inner, 0, *outer, *last])
    whole = extents.mul(op, extents.product(op, blocks), batch)
    return extents.reshape_to(op, turned, [whole, *parts, *rest])


@tf_op("BatchToSpaceND")
def batch_to_space_nd(
    op: Session, input: Value, block_shape: Value, crops: Value, /, *, node: Node
) -> Value:
    """Blocks of the batch, moved to the spatial axes, which are then cropped."""
    found = lower_dilated(op, node, block_shape, crops)
    if found is not None:
        return found
    return _to_space(op, input, extents.elements(op, block_shape), crops)


@tf_op("BatchToSpace")
def batch_to_space(op: Context, input: Value, crops: Value, /, *, block_size: int) -> Value:
    """Blocks of the batch, moved to an image, which is then cropped."""
    return _to_space(op, input, [extents.number(op, block_size)] * 2, crops)


def _to_space(op: Context, x: Value, blocks: Sequence[Extent], crops: Value) -> Value:
    count = len(blocks)
    whole, *space = extents.of_all(op, x)
    rest = space[count:]
    batch = extents.div(op, whole, extents.product(op, blocks))
    split = extents.reshape_to(op, x, [*blocks, batch, *space])
    order = [count]
    for i in range(count):
        order += [count + 1 + i, i]
    turned = op.transpose(split, [*order, *range(2 * count + 1, split.rank)])
    sides = [extents.mul(op, n, b) for n, b in zip(space, blocks, strict=False)]
    made = extents.reshape_to(op, turned, [batch, *sides, *rest])
    return _crop(op, made, sides, crops)


def _crop(op: Context, x: Value, sides: Sequence[Extent], crops: Value) -> Value:
    known = op.static(crops)
    if known is not None and not known.any():
        return x
    starts, ends = [], []
    for i, side in enumerate(sides):
        row = op.slice(crops, [0], [i], [i + 1]) if known is None else op.constant(known[i])
        low, high = extents.elements(op, row)
        starts.append(low)
        ends.append(extents.sub(op, side, high))
    shape = [extents.sub(op, end, start).dim for start, end in zip(starts, ends, strict=True)]
    axes = op.constant(list(range(1, 1 + len(sides))), "int64")
    return op.emit(
        "Slice", x, extents.vector(op, starts), extents.vector(op, ends), axes,
        dtype=x.dtype, shape=(x.shape[0], *shape, *x.shape[1 + len(sides) :]),
    )  # fmt: skip


# -- channels --------------------------------------------------------------------------------------

# Dtypes that onnxruntime supports, including those that the builder casts.
BLOCKS = frozenset(("float32", "float64", "float16", "bfloat16", "uint8", "int8"))


@tf_op("SpaceToDepth")
def space_to_depth(
    op: Context, input: Value, /, *, block_size: int, data_format: str = "NHWC"
) -> Value:
    """Spatial blocks, moved to the channels."""
    return _blocks(op, input, block_size, data_format, to_space=False)


@tf_op("DepthToSpace")
def depth_to_space(
    op: Context, input: Value, /, *, block_size: int, data_format: str = "NHWC"
) -> Value:
    """Blocks of channels, moved to the spatial axes."""
    return _blocks(op, input, block_size, data_format, to_space=True)


def _blocks(op: Context, x: Value, size: int, data_format: str, *, to_space: bool) -> Value:
    if data_format not in ("NHWC", "NCHW"):
        raise Unsupported(f"data format {data_format}")
    last = data_format == "NHWC"
    image = op.transpose(x, [0, 3, 1, 2]) if last else x
    n, c, h, w = extents.of_all(op, image)
    block = extents.number(op, size)
    square = extents.number(op, size * size)
    if to_space:
        channels = extents.div(op, c, square)
        sides = [extents.mul(op, h, block), extents.mul(op, w, block)]
    else:
        channels = extents.mul(op, c, square)
        sides = [extents.div(op, h, block), extents.div(op, w, block)]
    whole = [n, channels, *sides]
    if x.dtype in BLOCKS:
        how: dict[str, int | str] = {"blocksize": size, **({"mode": "DCR"} if to_space else {})}
        name = "DepthToSpace" if to_space else "SpaceToDepth"
        made = op.emit(name, image, dtype=x.dtype, shape=extents.shape_of(whole), **how)
    elif to_space:
        split = extents.reshape_to(op, image, [n, block, block, channels, h, w])
        made = extents.reshape_to(op, op.transpose(split, [0, 3, 4, 1, 5, 2]), whole)
    else:
        split = extents.reshape_to(op, image, [n, c, sides[0], block, sides[1], block])
        made = extents.reshape_to(op, op.transpose(split, [0, 3, 5, 1, 2, 4]), whole)
    return op.transpose(made, [0, 2, 3, 1]) if last else made


# -- patches ---------------------------------------------------------------------------------------


@tf_op("ExtractImagePatches")
def image_patches(
    op: Context, images: Value, /, *, ksizes: Sequence[int], strides: Sequence[int],
    rates: Sequence[int], padding: str,
) -> Value:  # fmt: skip
    """Patches of images, flattened in the channel axis."""
    return _patches(op, images, ksizes, strides, rates, padding)


@tf_op("ExtractVolumePatches")
def volume_patches(
    op: Context, input: Value, /, *, ksizes: Sequence[int], strides: Sequence[int], padding: str
) -> Value:
    """Patches of volumes, flattened in the channel axis."""
    return _patches(op, input, ksizes, strides, (1,) * 5, padding)


def _patches(
    op: Context, x: Value, kernel: Sequence[int], strides: Sequence[int], rates: Sequence[int],
    padding: str,
) -> Value:  # fmt: skip
    """Gather windows axis by axis: [N, out, k, W, C], then [N, out, k, out, k, C]."""
    if padding not in ("SAME", "VALID"):
        raise Unsupported(f"padding {padding}")
    count = x.rank - 2
    made, rows = x, []
    for axis in range(1, 1 + count):
        reach = (kernel[axis] - 1) * rates[axis] + 1
        size = x.shape[axis]
        if padding == "SAME":
            rows.append(_same(op, extents.of(op, x, axis), reach, strides[axis]))
        elif isinstance(size, int) and size < reach:
            raise Unsupported(f"windows of {reach} in {size}")
    if rows:
        zero = extents.number(op, 0)
        pairs = [zero, zero, *(one for row in rows for one in row), zero, zero]
        vector = op.cast(extents.vector(op, pairs), "int32")
        table = op.emit(
            "Reshape", vector, op.constant([-1, 2], "int64"), dtype="int32", shape=(x.rank, 2)
        )
        known = [one.dim for one in pairs]
        if all(isinstance(n, int) for n in known):
            table = op.constant(np.asarray(known, np.int32).reshape(-1, 2))
        made = pad_constant(op, made, table, None)
    outs = []
    for i in range(count):
        axis, place = 1 + i, 1 + 2 * i
        k, stride, rate = kernel[axis], strides[axis], rates[axis]
        room = extents.sub(op, extents.of(op, made, place), extents.number(op, (k - 1) * rate + 1))
        out = extents.add(
            op, extents.div(op, room, extents.number(op, stride)), extents.number(op, 1)
        )
        if padding == "SAME" and isinstance(x.shape[axis], str):
            named = dims.floordiv(dims.add(x.shape[axis], stride - 1), stride)
            out = Extent(named, out.make)
        starts = op.mul(extents.count_to(op, out), op.constant(stride, "int64"))
        taps = op.constant(np.arange(k) * rate, "int64")
        if isinstance(out.dim, int):
            places = op.constant(np.arange(out.dim)[:, None] * stride + np.arange(k) * rate)
        else:
            places = op.add(op.unsqueeze(starts, [1]), taps)
        made = op.gather(made, places, place)
        outs.append(out)
    order = [0, *(1 + 2 * i for i in range(count)), *(2 + 2 * i for i in range(count))]
    turned = op.transpose(made, [*order, made.rank - 1])
    depth = extents.of(op, x, x.rank - 1)
    taps_all = extents.number(op, int(np.prod([kernel[1 + i] for i in range(count)])))
    shape = [extents.of(op, x, 0), *outs, extents.mul(op, taps_all, depth)]
    result = extents.reshape_to(op, turned, shape)
    return replace(result, shape=extents.shape_of(shape))


def _same(op: Context, size: Extent, reach: int, stride: int) -> tuple[Extent, Extent]:
    """Return the padding before and after an axis for padding SAME."""
    one = extents.number(op, 1)
    step = extents.number(op, stride)
    last = extents.div(op, extents.sub(op, size, one), step)  # index of the last window
    needed = extents.add(op, extents.mul(op, last, step), extents.number(op, reach))
    total = extents.most(op, extents.sub(op, needed, size), extents.number(op, 0))
    low = extents.div(op, total, extents.number(op, 2))
    return low, extents.sub(op, total, low)
