"""Constant and mirror padding, by static or computed amounts."""

from dataclasses import replace

from converter.lower import dims
from converter.lower.graph import Shape
from converter.lower.ops.pad import pad_ends
from converter.lower.tf import extents
from converter.lower.tf.arrays import blank, concatenate
from converter.lower.tf.context import Context
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


@tf_op("Pad")
def pad(op: Context, input: Value, paddings: Value, /) -> Value:
    """A tensor padded with zeros."""
    return pad_constant(op, input, paddings, None)


@tf_op("PadV2")
def pad_v2(op: Context, input: Value, paddings: Value, constant_values: Value, /) -> Value:
    """A tensor padded with a constant."""
    return pad_constant(op, input, paddings, constant_values)


def pad_constant(op: Context, x: Value, paddings: Value, number: Value | None) -> Value:
    """Return a tensor padded with a constant, zero by default; paddings: [[before, after], ...]."""
    known = op.static(paddings)
    if known is not None and not known.any():
        return x
    shape = _shape(op, x, paddings)
    if x.dtype == "string":
        return _of_texts(op, x, paddings, blank(op, "string") if number is None else number)
    fill = None if number is None else op.cast(number, x.dtype)
    if known is not None:
        return replace(pad_ends(op, x, known.tolist(), "constant", fill), shape=shape)
    vector = _vector(op, paddings)
    return op.emit("Pad", x, vector, fill, dtype=x.dtype, shape=shape, mode="constant")


def _vector(op: Context, paddings: Value) -> Value:
    """Return paddings [[before, after], ...] in ONNX's order: all before, then all after."""
    turned = op.transpose(op.cast(paddings, "int64"), [1, 0])
    return op.emit("Reshape", turned, op.constant([-1], "int64"), dtype="int64", shape=(None,))


def _shape(op: Context, x: Value, paddings: Value) -> Shape:
    known = op.elements(paddings)
    if known is None:
        return (None,) * x.rank
    around = iter(extents.numbers(known))
    return tuple(dims.add(n, dims.add(next(around), next(around))) for n in x.shape)


def _of_texts(op: Context, x: Value, paddings: Value, text: Value) -> Value:
    for axis in range(x.rank):
        sides = []
        for end in (0, 1):
            row = op.slice(paddings, [0, 1], [axis, end], [axis + 1, end + 1])
            count = extents.elements(op, row)[0]
            shape = extents.of_all(op, x)
            shape[axis] = count
            sides.append([] if count.dim == 0 else [extents.fill(op, text, shape)])
        x = concatenate(op, [*sides[0], x, *sides[1]], axis)
    return x


@tf_op("MirrorPad")
def mirror_pad(op: Context, input: Value, paddings: Value, /, *, mode: str) -> Value:
    """A tensor padded by reflection, without (REFLECT) or with (SYMMETRIC) its edge elements."""
    known = op.static(paddings)
    if known is not None and not known.any():
        return input
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise Unsupported(f"padding mode {mode}")
    shape = _shape(op, input, paddings)
    if known is not None:
        return replace(pad_ends(op, input, known.tolist(), mode.lower()), shape=shape)
    made = input
    for axis in range(input.rank):
        made = _mirror_computed(op, made, paddings, axis, symmetric=mode == "SYMMETRIC")
    return replace(made, shape=shape)


def _mirror_computed(
    op: Context, x: Value, paddings: Value, axis: int, *, symmetric: bool
) -> Value:
    """Return a value mirrored by computed amounts: a Gather of indices reflected at the ends."""
    row = op.slice(paddings, [0], [axis], [axis + 1])
    low, high = extents.elements(op, row)
    if low.dim == 0 and high.dim == 0:
        return x
    size = extents.of(op, x, axis)
    count = extents.add(op, extents.add(op, low, size), high)
    places = op.sub(extents.count_to(op, count), low.vector)
    if symmetric:
        # Index -1 is reflected to 0, and -2 to 1.
        before = op.sub(op.unary("Neg", places), op.constant(1, "int64"))
        places = op.elementwise("Max", places, before)
    else:
        places = op.unary("Abs", places)
    last = op.mul(size.vector, op.constant(2, "int64"))
    turned = op.sub(op.sub(last, op.constant(1 if symmetric else 2, "int64")), places)
    return op.gather(x, op.elementwise("Min", places, turned), axis)
