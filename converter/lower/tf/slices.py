"""Slice and StridedSlice, with static or computed bounds, and slice assignment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from converter.lower import dims
from converter.lower.builder import END
from converter.lower.graph import Dim, Shape
from converter.lower.ops.scatter import update_slice
from converter.lower.tf import extents
from converter.lower.tf.context import Context
from converter.lower.tf.program_values import ProgramValue, Variable
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


@dataclass(frozen=True, slots=True)
class Cut:
    """A slice along one axis; a bound is an integer, a vector of one element, or None (omitted)."""

    axis: int
    start: int | Value | None
    end: int | Value | None
    step: int | Value
    known_end: Dim = None  # static or symbolic value of an end that is a tensor

    @property
    def is_fixed(self) -> bool:
        """Whether all bounds and the step are static."""
        return not any(isinstance(v, Value) for v in (self.start, self.end, self.step))


@tf_op("StridedSlice")
def strided_slice(
    op: Context, input: Value, begin: Value, end: Value, strides: Value, /, *,
    begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:  # fmt: skip
    """A strided slice of a tensor; each mask's bits select omitted bounds, new or removed axes."""
    steps = op.dims(strides)
    starts, ends = op.dims(begin), op.dims(end)
    count = len(steps)
    new = sum(bool(new_axis_mask >> i & 1) and not ellipsis_mask >> i & 1 for i in range(count))
    has_ellipsis = any(ellipsis_mask >> i & 1 for i in range(count))
    skipped = input.rank - (count - new - int(has_ellipsis))
    if skipped < 0:
        raise Unsupported(f"{count} cuts of {input.rank} axes")
    x, axis, place = input, 0, 0
    cuts: list[Cut] = []
    added: list[int] = []  # new axes of the result
    gone: list[tuple[int, int | Value]] = []  # removed axes, and the index taken of each
    for i in range(count):
        if ellipsis_mask >> i & 1:
            axis, place = axis + skipped, place + skipped
        elif new_axis_mask >> i & 1:
            added.append(place)
            place += 1
        elif shrink_axis_mask >> i & 1:
            gone.append((axis, _bound(op, begin, starts, i)))
            axis += 1
        else:
            start = None if begin_mask >> i & 1 else _bound(op, begin, starts, i)
            stop = None if end_mask >> i & 1 else _bound(op, end, ends, i)
            step = _bound(op, strides, steps, i)
            cuts.append(Cut(axis, start, stop, step, None if stop is None else ends[i]))
            axis, place = axis + 1, place + 1
    x = cut(op, x, cuts)
    for axis, index in reversed(gone):
        x = take_along(op, x, axis, index)
    return op.unsqueeze(x, added) if added else x


def _bound(op: Context, vector: Value, known: Sequence[Dim], number: int) -> int | Value:
    found = known[number]
    if isinstance(found, int):
        return found
    one = (
        op.slice(vector, [0], [number], [number + 1]) if vector.rank else op.unsqueeze(vector, [0])
    )
    return op.cast(one, "int64")


def take_along(op: Context, x: Value, axis: int, index: int | Value) -> Value:
    """Take one index along an axis, and remove the axis; ``index`` may be a vector of one."""
    if isinstance(index, Value):
        return op.gather(x, op.squeeze(index, [0]), axis)
    if x.is_plain:
        return op.gather(x, op.constant(index, "int64"), axis)
    end = index + 1 if index != -1 else END
    return op.squeeze(op.slice(x, [axis], [index], [end]), [axis])


def cut(op: Context, x: Value, cuts: Sequence[Cut]) -> Value:
    """Return a slice of a value along several axes."""
    cuts = [c for c in cuts if not _is_whole(x.shape[c.axis], c)]
    moving = [c for c in cuts if not c.is_fixed or _may_be_before(x.shape[c.axis], c)]
    fixed = [_within(x.shape[c.axis], c) for c in cuts if c not in moving]
    if fixed:
        starts = [c.start if c.start is not None else (0 if c.step > 0 else END) for c in fixed]  # type: ignore[operator]
        ends = [c.end if c.end is not None else (END if c.step > 0 else -END) for c in fixed]  # type: ignore[operator]
        before = x.shape
        x = op.slice(
            x, [c.axis for c in fixed], [int(n) for n in starts if isinstance(n, int)],
            [int(n) for n in ends if isinstance(n, int)], [int(c.step) for c in fixed],  # type: ignore[arg-type]
        )  # fmt: skip
        x = _name_size(x, before, fixed)
    if not moving:
        return x
    starts_in = op.concat([_side(op, c, c.start, 0, END) for c in moving], 0)
    ends_in = op.concat([_end(op, x, c) for c in moving], 0)
    steps_in = op.concat([_vector(op, c.step) for c in moving], 0)
    shape: list[Dim] = list(x.shape)
    for one in moving:
        shape[one.axis] = _size(shape[one.axis], one)
    axes = op.constant([c.axis for c in moving], "int64")
    return op.emit(
        "Slice", x, starts_in, ends_in, axes, steps_in, dtype=x.dtype, shape=tuple(shape)
    )


def _may_be_before(size: Dim, cut: Cut) -> bool:
    """Return whether a reversed slice may start below index 0: ONNX would clamp it to element 0."""
    if isinstance(cut.step, int) and cut.step > 0:
        return False
    if isinstance(cut.start, Value):
        return True
    if cut.start is None or (isinstance(size, int) and isinstance(cut.step, int)):
        return False  # static: `_within` handles it
    return cut.start + size < 0 if isinstance(size, int) else cut.start < -1


def _end(op: Context, x: Value, cut: Cut) -> Value:
    """Return a slice's end as a vector of one: END if a reversed slice is empty."""
    end = _side(op, cut, cut.end, END, -END)
    if not _may_be_before(x.shape[cut.axis], cut):
        return end
    assert cut.start is not None
    place = op.add(_vector(op, cut.start), op.size(x, cut.axis))
    nothing = op.elementwise("Less", place, op.constant([0], "int64"))
    if isinstance(cut.step, Value):
        backwards = op.elementwise("Less", cut.step, op.constant([0], "int64"))
        nothing = op.elementwise("And", nothing, backwards)
    return op.where(nothing, op.constant([END], "int64"), end)


def _side(op: Context, cut: Cut, bound: int | Value | None, rising: int, falling: int) -> Value:
    """Return a bound as a vector of one; an omitted one is `rising` or `falling`, by the step."""
    if bound is not None:
        return _vector(op, bound)
    if isinstance(cut.step, int):
        return op.constant([rising if cut.step > 0 else falling], "int64")
    up = op.elementwise("Greater", cut.step, op.constant([0], "int64"))
    return op.where(up, op.constant([rising], "int64"), op.constant([falling], "int64"))


def _vector(op: Context, bound: int | Value) -> Value:
    return bound if isinstance(bound, Value) else op.constant([bound], "int64")


def _within(size: Dim, cut: Cut) -> Cut:
    """Return an empty static slice as 0:0: ONNX would clamp a start below 0 to element 0."""
    if not isinstance(size, int) or not isinstance(cut.step, int):
        return cut
    start, end = cut.start, cut.end
    if isinstance(start, Value) or isinstance(end, Value) or range(size)[start : end : cut.step]:
        return cut
    return replace(cut, start=0, end=0, step=1)


def _is_whole(size: Dim, cut: Cut) -> bool:
    if cut.step != 1 or cut.start not in (None, 0):
        return False
    if cut.end is None:
        return True
    if isinstance(cut.end, int):
        return isinstance(size, int) and cut.end >= size
    return size is not None and cut.known_end == size


def _name_size(x: Value, before: Shape, cuts: Sequence[Cut]) -> Value:
    """Return a slice with symbolic sizes that are a symbolic dimension less a constant."""
    shape = list(x.shape)
    for one in cuts:
        size, start, end = before[one.axis], one.start or 0, one.end
        if isinstance(size, str) and one.step == 1 and isinstance(start, int) and start >= 0:
            # Symbolic dimensions are assumed large enough: n - 1 is never negative.
            if end is None:
                shape[one.axis] = dims.sub(size, start)
            elif isinstance(end, int) and end < 0:
                shape[one.axis] = dims.sub(dims.add(size, end), start)
        elif isinstance(size, str) and one.step == -1 and one.start is None and end is None:
            shape[one.axis] = size
    return replace(x, shape=tuple(shape))


def _size(size: Dim, cut: Cut) -> Dim:
    """Return the size of a slice along one axis, as far as known."""
    if cut.step != 1 or isinstance(cut.start, Value) or (cut.start or 0) < 0:
        return None
    if cut.known_end is not None and cut.known_end == size:
        return dims.sub(size, cut.start or 0)
    return None


@tf_op("Slice")
def slice_of(op: Context, input: Value, begin: Value, size: Value, /) -> Value:
    """A slice of `size` elements from `begin` on; a size of -1 takes all remaining elements."""
    rank = input.rank
    unknown: list[Dim] = [None] * rank
    starts = op.dims(begin) if op.elements(begin) is not None else unknown
    counts = op.dims(size) if op.elements(size) is not None else unknown
    cuts, shape = [], list(input.shape)
    for axis, (start, count) in enumerate(zip(starts, counts, strict=True)):
        whole = input.shape[axis]
        if start == 0 and (count == -1 or (count is not None and count == whole)):
            continue
        first = _bound(op, begin, starts, axis)
        end: int | Value | None
        if count == -1:
            end = None
            shape[axis] = dims.sub(whole, start)
        elif isinstance(start, int) and isinstance(count, int):
            end = start + count
            shape[axis] = count
        else:
            given = _bound(op, size, counts, axis)
            end = op.add(_vector(op, first), _vector(op, given))
            if count is None:
                # A computed size may be -1, too.
                rest = op.elementwise("Less", given, op.constant([0], "int64"))
                end = op.where(rest, op.constant([END], "int64"), end)
            shape[axis] = count
        cuts.append(Cut(axis, first, end, 1, None))
    made = cut(op, input, cuts)
    return replace(made, shape=tuple(shape))


# -- slice assignment ------------------------------------------------------------------------------


@tf_op("TensorStridedSliceUpdate")
def strided_slice_update(
    op: Context, input: Value, begin: Value, end: Value, strides: Value, value: Value, /, *,
    begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:  # fmt: skip
    """A tensor with a strided slice replaced by a broadcast value."""
    sides = extents.of_all(op, input)
    count = extents.product(op, sides)
    places = extents.reshape_to(op, extents.count_to(op, count), sides)
    part = strided_slice(
        op, places, begin, end, strides, begin_mask=begin_mask, end_mask=end_mask,
        ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
        shrink_axis_mask=shrink_axis_mask,
    )  # fmt: skip
    wide = op.emit("Expand", value, op.emit(
        "Shape", part, dtype="int64", shape=(part.rank,)
    ), dtype=value.dtype, shape=part.shape) if value.shape != part.shape else value  # fmt: skip
    line = op.constant([-1], "int64")
    put = op.emit("Reshape", wide, line, dtype=value.dtype, shape=(None,))
    where = op.emit("Reshape", part, line, dtype="int64", shape=(None,))
    flat = extents.reshape_to(op, input, [count])
    made = op.emit("ScatterElements", flat, where, put, dtype=input.dtype, shape=flat.shape, axis=0)
    return extents.reshape_to(op, made, sides)


@tf_op("XlaDynamicUpdateSlice")
def xla_dynamic_update_slice(op: Context, input: Value, update: Value, indices: Value, /) -> Value:
    """A tensor with a slice, from indices on, replaced by an update."""
    return update_slice(op, input, update, op.cast(indices, "int64"))


@tf_op("StridedSliceGrad")
def strided_slice_grad(
    op: Context, shape: Value, begin: Value, end: Value, strides: Value, dy: Value, /, *,
    begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:  # fmt: skip
    """Zeros with a strided slice replaced by a tensor: the gradient of StridedSlice."""
    zeros = extents.fill(op, op.constant(0, dy.dtype), extents.elements(op, shape))
    return strided_slice_update(
        op, zeros, begin, end, strides, dy, begin_mask=begin_mask, end_mask=end_mask,
        ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
        shrink_axis_mask=shrink_axis_mask,
    )  # fmt: skip


@tf_op("StridedSliceAssign", "ResourceStridedSliceAssign", any_input=True)
def strided_slice_assign(
    op: Session, ref: ProgramValue, begin: Value, end: Value, strides: Value, value: Value, /, *,
    begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> ProgramValue:  # fmt: skip
    """Assign a value to a strided slice of a variable."""
    if not isinstance(ref, Variable):
        raise Unsupported(f"a {type(ref).__name__.lower()} in place of a variable")
    op.state.assign(ref, strided_slice_update(
        op, op.state.read(ref), begin, end, strides, value, begin_mask=begin_mask,
        end_mask=end_mask, ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
        shrink_axis_mask=shrink_axis_mask,
    ))  # fmt: skip
    return ref
