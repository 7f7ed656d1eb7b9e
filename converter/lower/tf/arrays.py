"""Ops on shapes, and ops that concatenate, split, repeat and reorder tensors."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from converter.lower import dims
from converter.lower.builder import END
from converter.lower.graph import Dim, Shape
from converter.lower.tf import contents, extents
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.program_values import ProgramValue, Unranked, Variable
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.tf.unranked import of_any_rank
from converter.lower.values import Value

# -- shapes ----------------------------------------------------------------------------------------


@tf_op("Reshape")
def reshape(op: Context, tensor: Value, shape: Value, /) -> Value | Unranked:
    """The tensor in another shape; the shape, and even its rank, may be computed."""
    if op.elements(shape) is None and shape.rank == 1 and not isinstance(shape.shape[0], int):
        target = op.cast(shape, "int64")
        return of_any_rank(op, "Reshape", [tensor, target], tensor.dtype, allowzero=1)
    return op.shaped(tensor, shape, op.dims(shape))


@tf_op("ExpandDims")
def expand_dims(op: Context, input: Value, dim: Value, /) -> Value:
    """The tensor with a new axis of size 1; the axis may be computed."""
    if op.static(dim) is None:
        place = op.cast(dim if dim.rank else op.unsqueeze(dim, [0]), "int64")
        shape = (None,) * (input.rank + 1)
        return op.emit("Unsqueeze", input, place, dtype=input.dtype, shape=shape)
    return op.unsqueeze(input, [op.int(dim, "a place of a new axis")])


@tf_op("Squeeze")
def squeeze(op: Context, input: Value, /, *, squeeze_dims: Sequence[int] = ()) -> Value:
    """The tensor without axes of size 1: those listed, or all."""
    if squeeze_dims:
        return op.squeeze(input, squeeze_dims)
    ones = [i for i, n in enumerate(input.shape) if n == 1]
    if all(isinstance(n, int) for n in input.shape):
        return op.squeeze(input, ones) if ones else input
    # Unknown sizes are assumed not to be 1. Where one is 1 at run time, this node still yields
    # what TensorFlow yields.
    shape = tuple(n for n in input.shape if n != 1)
    return op.emit("Squeeze", input, dtype=input.dtype, shape=shape)


@tf_op("Transpose", "ConjugateTranspose")
def transpose(op: Context, x: Value, perm: Value, /) -> Value:
    """The tensor with its axes permuted; the permutation may be computed."""
    order = op.static(perm)
    if order is None:
        return transpose_by(op, x, op.cast(perm, "int64"))
    return op.transpose(x, [int(n) % x.rank for n in order])


def transpose_by(op: Context, x: Value, perm: Value) -> Value:
    """Transpose a tensor by a computed permutation, by gathering its elements."""
    sides = extents.of_all(op, x)
    strides: list[extents.Extent] = []
    step = extents.number(op, 1)
    for side in reversed(sides):
        strides.insert(0, step)
        step = extents.mul(op, step, side)
    shape = op.gather(extents.vector(op, sides), perm)
    steps = op.gather(extents.vector(op, strides), perm)
    places: Value | None = None
    for axis, (side, stride) in enumerate(
        zip(extents.elements(op, shape), extents.elements(op, steps), strict=True)
    ):
        line = op.mul(extents.count_to(op, side), stride.vector)
        wide = op.unsqueeze(line, list(range(1, x.rank - axis)))
        places = wide if places is None else op.add(places, wide)
    if places is None:
        return x
    return op.gather(extents.reshape_to(op, x, [step]), places)


@tf_op("InvertPermutation")
def invert_permutation(op: Context, x: Value, /) -> Value:
    """The inverse of a permutation."""
    known = op.static(x)
    if known is not None:
        return op.constant(np.argsort(known), x.dtype)
    places = extents.count_to(op, extents.of(op, x, 0), x.dtype)
    where = op.cast(x, "int64")
    return op.emit("ScatterElements", x, where, places, dtype=x.dtype, shape=x.shape, axis=0)


@tf_op("GuaranteeConst", "DeepCopy")
def same(op: Context, input: Value, /) -> Value:
    """The input, unchanged."""
    del op
    return input


@tf_op("Copy", "CopyHost")
def copied(
    op: Context, input: Value, /, *, tensor_name: str = "", debug_ops_spec: Sequence[str] = ()
) -> Value:
    """The input, unchanged."""
    del op, tensor_name, debug_ops_spec
    return input


@tf_op("EnsureShape", any_input=True)
def ensure_shape(
    op: Session, input: ProgramValue, /, *, shape: Shape | None = None
) -> ProgramValue:
    """The input, with a more static shape."""
    operand = op.state.read(input) if isinstance(input, Variable) else input
    if not isinstance(operand, Value) or shape is None or len(shape) != operand.rank:
        return operand
    both = zip(operand.shape, shape, strict=True)
    return replace(
        operand, shape=tuple(m if isinstance(m, int) or n is None else n for m, n in both)
    )


@tf_op("BroadcastArgs")
def broadcast_args(op: Context, s0: Value, s1: Value, /) -> Value:
    """The shape that two shapes broadcast to."""
    known = op.dims(s0), op.dims(s1)
    rank = max(len(dims) for dims in known)
    a, b = (_led(op, v, rank - len(dims)) for v, dims in zip((s0, s1), known, strict=True))
    made = op.where(op.elementwise("Equal", a, op.constant(1, a.dtype)), b, a)
    wide = ((1,) * (rank - len(dims)) + tuple(dims) for dims in known)
    return op.remember(made, contents.objects([_common(m, n) for m, n in zip(*wide, strict=True)]))


def _led(op: Context, vector: Value, count: int) -> Value:
    """Return a shape with `count` ones prepended."""
    return op.concat([op.constant([1] * count, vector.dtype), vector], 0) if count else vector


def _common(m: Dim, n: Dim) -> Dim:
    if m == 1 or m == n:
        return n
    if n == 1 or (isinstance(m, int) and n is not None):
        return m
    return n if isinstance(n, int) else None


@tf_op("BroadcastGradientArgs", outputs=("r0", "r1"))
def broadcast_gradient_args(op: Context, s0: Value, s1: Value, /) -> list[Value]:
    """The axes along which each of two shapes is broadcast, and axes of size 1."""
    counts = [len(op.dims(v)) for v in (s0, s1)]
    rank = max(counts)
    wide = [_led(op, v, rank - n) for v, n in zip((s0, s1), counts, strict=True)]
    ones = [op.elementwise("Equal", v, op.constant(1, v.dtype)) for v in wide]
    if counts[0] == counts[1]:
        differs = op.unary("Not", op.elementwise("Equal", *wide))
        some = op.reduce("ReduceMax", op.cast(differs, "int32"), [0])
        ones = [op.elementwise("And", v, op.cast(some, "bool")) for v in ones]
    found = [op.emit("NonZero", v, dtype="int64", shape=(1, None)) for v in ones]
    return [op.cast(op.squeeze(v, [0]), s0.dtype) for v in found]


# -- concatenating and splitting -------------------------------------------------------------------


def concatenate(op: Context, values: Sequence[Value], axis: int) -> Value:
    """Concatenate values along an axis; the resulting size is symbolic where possible."""
    made = op.concat(values, axis)
    axis = made.axis(axis)
    total: Dim = 0
    for value in values:
        total = dims.add(total, value.shape[axis])
    shape = (*made.shape[:axis], total, *made.shape[axis + 1 :])
    return replace(made, shape=shape)


@tf_op("ConcatV2")
def concat_v2(op: Context, *inputs: Value) -> Value:
    """Concatenation of tensors along the axis that the last input gives."""
    return concatenate(op, inputs[:-1], op.int(inputs[-1], "an axis"))


@tf_op("Concat")
def concat(op: Context, concat_dim: Value, /, *values: Value) -> Value:
    """Concatenation of tensors along the axis that the first input gives."""
    return concatenate(op, values, op.int(concat_dim, "an axis"))


@tf_op("ParallelConcat")
def parallel_concat(op: Context, *values: Value, shape: Any = None) -> Value:
    """Concatenation of tensors along the first axis."""
    del shape  # the values imply it
    return concatenate(op, values, 0)


@tf_op("Pack")
def pack(op: Context, *values: Value, axis: int = 0) -> Value:
    """Tensors stacked along a new axis."""
    place = axis + values[0].rank + 1 if axis < 0 else axis
    return op.concat([op.unsqueeze(v, [place]) for v in values], place)


@tf_op("ConcatOffset")
def concat_offset(op: Context, concat_dim: Value, /, *shape: Value) -> list[Value]:
    """Offset of each tensor in their concatenation, from the shapes."""
    rank = len(op.dims(shape[0]))
    axis = op.int(concat_dim, "an axis") % rank
    zero = extents.number(op, 0)
    start, found = zero, []
    for vector in shape:
        places = [start if i == axis else zero for i in range(rank)]
        made = op.cast(extents.vector(op, places), vector.dtype)
        found.append(op.remember(made, contents.objects([p.dim for p in places])))
        start = extents.add(op, start, extents.elements(op, vector)[axis])
    return found


@tf_op("Unpack")
def unpack(op: Context, value: Value, /, *, num: int, axis: int = 0) -> list[Value]:
    """The slices of a tensor along an axis, which is removed."""
    place = value.axis(axis)
    if num == 1:
        parts = [value]
    elif num:
        parts = op.split(value, place, [1] * num)
    else:
        parts = []
    made = [op.squeeze(part, [place]) for part in parts]
    known = op.elements(value)
    return made if known is None else _remember_parts(op, made, np.moveaxis(known, place, 0))


def _remember_parts(op: Context, made: Sequence[Value], parts: Iterable[Any]) -> list[Value]:
    """Record the known elements of values; where all are known, return constants."""
    found = []
    for value, part in zip(made, parts, strict=True):
        elements = np.empty(np.shape(part), part.dtype if isinstance(part, np.ndarray) else object)
        elements[...] = part
        if value.dtype != "string" and contents.known(elements):
            found.append(op.constant(elements, value.dtype))
        else:
            found.append(op.remember(value, elements))
    return found


@tf_op("Split")
def split(op: Context, split_dim: Value, value: Value, /, *, num_split: int) -> list[Value]:
    """The tensor split into equal parts along an axis."""
    axis, count = value.axis(op.int(split_dim, "an axis")), num_split
    if count == 1:
        return [value]
    size = value.shape[axis]
    if isinstance(size, int):
        if size % count:
            raise Unsupported(f"{size} elements in {count} equal parts")
        parts = op.split(value, axis, [size // count] * count)
        known = op.elements(value)
        return parts if known is None else _remember_parts(op, parts, np.split(known, count, axis))
    part = dims.divide_exactly(size, count)
    shape = (*value.shape[:axis], part, *value.shape[axis + 1 :])
    attributes = {"axis": value.stored.index(axis), "num_outputs": count}
    return op.node(
        "Split", [value], [(value.dtype, shape)] * count, attributes=attributes,
        stored=value.stored,
    )  # fmt: skip


@tf_op("SplitV")
def split_v(
    op: Context, value: Value, size_splits: Value, split_dim: Value, /, *, num_split: int
) -> list[Value]:
    """The tensor split into parts of given sizes along an axis; -1 is inferred."""
    axis = value.axis(op.int(split_dim, "an axis"))
    if num_split == 1:
        return [value]
    sizes = op.dims(size_splits)
    whole = value.shape[axis]
    if sizes.count(-1) == 1:
        place, rest = sizes.index(-1), whole
        for i, n in enumerate(sizes):
            rest = dims.sub(rest, n) if i != place else rest
        sizes[place] = rest
    if all(isinstance(n, int) for n in sizes):
        numbers = [int(str(n)) for n in sizes]
        parts = op.split(value, axis, numbers)
        known = op.elements(value)
        ends = np.cumsum(numbers)[:-1]
        return parts if known is None else _remember_parts(op, parts, np.split(known, ends, axis))
    vector = op.cast(size_splits, "int64")
    zero = op.constant(0, "int64")
    taken = op.reduce("ReduceSum", op.elementwise("Max", vector, zero), [0], keepdims=True)
    left = op.sub(op.size(value, axis), taken)
    vector = op.where(op.elementwise("Less", vector, zero), left, vector)
    shapes = [(value.dtype, (*value.shape[:axis], n, *value.shape[axis + 1 :])) for n in sizes]
    return op.node(
        "Split", [value, vector], shapes, attributes={"axis": value.stored.index(axis)},
        stored=value.stored,
    )  # fmt: skip


# -- filling and repeating -------------------------------------------------------------------------


def fill_like(op: Context, x: Value, scalar: Value) -> Value:
    """Broadcast a scalar to the shape of a tensor."""
    if not x.rank:
        return scalar
    if all(isinstance(n, int) for n in x.shape):
        return extents.fill(op, scalar, extents.of_all(op, x))
    (shape,) = op.node("Shape", [x], [("int64", (x.rank,))])
    return op.node("Expand", [scalar, shape], [(scalar.dtype, x.shape)], stored=x.stored)[0]


def blank(op: Context, dtype: str) -> Value:
    """Return TensorFlow's default value of a dtype: zero, false or an empty string."""
    return op.constant(np.array("", object)) if dtype == "string" else op.constant(0, dtype)


@tf_op("ZerosLike")
def zeros_like(op: Context, x: Value, /) -> Value:
    """Zeros in the shape of a tensor."""
    return fill_like(op, x, blank(op, x.dtype))


@tf_op("OnesLike")
def ones_like(op: Context, x: Value, /) -> Value:
    """Ones in the shape of a tensor."""
    return fill_like(op, x, op.constant(1, x.dtype))


@tf_op("Fill")
def fill(op: Context, dims: Value, value: Value, /) -> Value:
    """A scalar broadcast to a shape, which may be computed."""
    return _broadcast_to(op, value, dims)


@tf_op("Empty")
def empty(op: Context, shape: Value, /, *, init: bool = False, node: Node) -> Value:
    """An uninitialized tensor: zeros."""
    del init  # uninitialized elements may be zeros, too
    return _broadcast_to(op, blank(op, node.attribute("dtype")), shape)


@tf_op("BroadcastTo")
def broadcast_to(op: Context, input: Value, shape: Value, /) -> Value:
    """The tensor broadcast to a shape, which may be computed."""
    return _broadcast_to(op, input, shape)


def _broadcast_to(op: Context, x: Value, shape: Value) -> Value:
    dims = op.dims(shape)
    if not dims or (tuple(dims) == x.shape and all(n is not None for n in dims)):
        return x
    wide = (1,) * (len(dims) - x.rank) + x.shape
    known: Shape = tuple(m if n is None and m != 1 else n for n, m in zip(dims, wide, strict=True))
    if all(isinstance(n, int) for n in dims):
        vector = op.constant(dims, "int64")
    else:
        vector = op.cast(shape, "int64")
    return op.emit("Expand", x, vector, dtype=x.dtype, shape=known)


@tf_op("Tile")
def tile(op: Context, input: Value, multiples: Value, /) -> Value:
    """The tensor repeated along its axes."""
    times = op.dims(multiples) if op.elements(multiples) is not None else [None] * input.rank
    if all(n == 1 for n in times):
        return input
    shape = tuple(dims.mul(n, k) for n, k in zip(input.shape, times, strict=True))
    if all(isinstance(n, int) for n in times):
        vector = op.constant(times, "int64")
    else:
        vector = op.cast(multiples, "int64")
    return op.emit("Tile", input, vector, dtype=input.dtype, shape=shape)


# -- order -----------------------------------------------------------------------------------------


@tf_op("ReverseV2", "RiscReverse")
def reverse_v2(op: Context, tensor: Value, axis: Value, /) -> Value:
    """The tensor reversed along the given axes."""
    known = op.static(axis)
    if known is not None:
        return _reversed(op, tensor, [int(n) for n in known])
    axes = op.cast(axis, "int64")
    count = op.emit("Shape", axes, dtype="int64", shape=(1,))
    starts, ends, steps = (
        op.emit("Expand", op.constant([n], "int64"), count, dtype="int64", shape=axes.shape)
        for n in (-1, -END, -1)
    )
    return op.emit(
        "Slice", tensor, starts, ends, axes, steps, dtype=tensor.dtype, shape=tensor.shape
    )


@tf_op("Reverse")
def reverse(op: Context, tensor: Value, dims: Value, /) -> Value:
    """The tensor reversed along the axes whose flag is set."""
    known = op.static(dims)
    if known is not None:
        return _reversed(op, tensor, [i for i, marked in enumerate(known) if marked])
    starts, ends, steps = (
        op.where(dims, op.constant([down], "int64"), op.constant([up], "int64"))
        for down, up in ((-1, 0), (-END, END), (-1, 1))
    )
    axes = op.constant(list(range(tensor.rank)), "int64")
    return op.emit(
        "Slice", tensor, starts, ends, axes, steps, dtype=tensor.dtype, shape=tensor.shape
    )


def _reversed(op: Context, x: Value, axes: Sequence[int]) -> Value:
    places = sorted({x.axis(a) for a in axes})
    if not places:
        return x
    count = len(places)
    made = op.slice(x, places, [-1] * count, [-END] * count, [-1] * count)
    return replace(made, shape=x.shape)


@tf_op("Roll")
def roll(op: Context, input: Value, shift: Value, axis: Value, /) -> Value:
    """The tensor rolled along axes: elements shifted past one end return at the other."""
    places = [input.axis(a) for a in op.ints(axis, "axes")]
    steps = extents.elements(op, shift)
    moves: dict[int, extents.Extent] = {}
    for place, step in zip(places, steps, strict=True):
        moves[place] = extents.add(op, moves[place], step) if place in moves else step
    x = input
    for place, step in moves.items():
        x = _roll(op, x, place, step)
    return x


def _roll(op: Context, x: Value, axis: int, step: extents.Extent) -> Value:
    size = x.shape[axis]
    if step.dim == 0 or size in (0, 1):
        return x
    if isinstance(size, int) and isinstance(step.dim, int):
        start = -step.dim % size
        if not start:
            return x
        parts = [op.slice(x, [axis], [start], [END]), op.slice(x, [axis], [0], [start])]
    else:
        count = extents.most(op, extents.of(op, x, axis), extents.number(op, 1)).vector
        start_in = op.elementwise("Mod", op.unary("Neg", step.vector), count)
        axes, zero, end = (op.constant([n], "int64") for n in (axis, 0, END))
        shape = (*x.shape[:axis], None, *x.shape[axis + 1 :])
        parts = [
            op.emit("Slice", x, a, b, axes, dtype=x.dtype, shape=shape)
            for a, b in ((start_in, end), (zero, start_in))
        ]
    return replace(op.concat(parts, axis), shape=x.shape)


# -- indices ---------------------------------------------------------------------------------------


@tf_op("Where")
def where(op: Context, input: Value, /) -> Value:
    """Indices of the nonzero elements, in row-major order."""
    mask = input if input.dtype in ("bool", "float32", "int32", "int64", "uint8") else None
    if mask is None:
        mask = op.cast(input, "float32" if input.is_float else "bool")
        if input.dtype == "float64":  # values too small for float32 are nonzero, too
            same = op.elementwise("Equal", input, op.constant(0, "float64"))
            mask = op.unary("Not", same)
    if not input.rank:
        found = op.emit("NonZero", op.unsqueeze(mask, [0]), dtype="int64", shape=(1, None))
        return op.slice(op.transpose(found, [1, 0]), [1], [0], [0])
    found = op.emit("NonZero", mask, dtype="int64", shape=(input.rank, None))
    return op.transpose(found, [1, 0])
