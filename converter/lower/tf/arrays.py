"""Shapes of tensors, joining and cutting."""

from collections.abc import Sequence
from dataclasses import dataclass

from converter.lower.builder import END
from converter.lower.graph import Dim, Shape
from converter.lower.tf import sizes
from converter.lower.tf.context import Context
from converter.lower.tf.table import Gap, tf_op
from converter.lower.values import Value


@tf_op("Reshape")
def reshape(op: Context, tensor: Value, shape: Value, /) -> Value:
    """A tensor in another shape, which may be computed."""
    return op.shaped(tensor, shape, op.dims(shape))


@tf_op("Pack")
def pack(op: Context, *values: Value, axis: int = 0) -> Value:
    """Tensors one after another along a new axis."""
    place = axis + values[0].rank + 1 if axis < 0 else axis
    return op.concat([op.unsqueeze(v, [place]) for v in values], place)


# -- slices ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """What a StridedSlice does with one axis; a bound is a number, a scalar tensor, or None."""

    axis: int
    start: int | Value | None
    end: int | Value | None
    step: int
    known_end: Dim = None  # what is known of an end that is a tensor


@tf_op("StridedSlice")
def strided_slice(
    op: Context, input: Value, begin: Value, end: Value, strides: Value, /, *,
    begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Value:  # fmt: skip
    """A part of a tensor; masks say bit by bit what each bound is instead."""
    steps = op.ints(strides, "steps of a slice")
    starts, ends = op.dims(begin), op.dims(end)
    count = len(steps)
    new = sum(bool(new_axis_mask >> i & 1) and not ellipsis_mask >> i & 1 for i in range(count))
    has_ellipsis = any(ellipsis_mask >> i & 1 for i in range(count))
    skipped = input.rank - (count - new - int(has_ellipsis))
    if skipped < 0:
        raise Gap(f"{count} cuts of {input.rank} axes")
    x, axis, place = input, 0, 0
    cuts: list[Cut] = []
    added: list[int] = []  # places of new axes in the result
    gone: list[tuple[int, int | Value]] = []  # axes of which one element is taken, and which
    for i, step in enumerate(steps):
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
            cuts.append(Cut(axis, start, stop, step, None if stop is None else ends[i]))
            axis, place = axis + 1, place + 1
    x = _cut(op, x, cuts)
    for axis, index in reversed(gone):
        x = _taken(op, x, axis, index)
    return op.unsqueeze(x, added) if added else x


def _bound(op: Context, vector: Value, known: Sequence[Dim], number: int) -> int | Value:
    found = known[number]
    if isinstance(found, int):
        return found
    one = (
        op.slice(vector, [0], [number], [number + 1]) if vector.rank else op.unsqueeze(vector, [0])
    )
    return op.cast(one, "int64")


def _taken(op: Context, x: Value, axis: int, index: int | Value) -> Value:
    """Return one element along an axis, and the axis gone."""
    if isinstance(index, int):
        end = index + 1 if index != -1 else END
        return op.squeeze(op.slice(x, [axis], [index], [end]), [axis])
    return op.gather(x, op.squeeze(index, [0]), axis)


def _cut(op: Context, x: Value, cuts: Sequence[Cut]) -> Value:
    cuts = [c for c in cuts if not _is_whole(x.shape[c.axis], c)]
    if not cuts:
        return x
    fixed = [c for c in cuts if not isinstance(c.start, Value) and not isinstance(c.end, Value)]
    if fixed:
        starts = [c.start if c.start is not None else (0 if c.step > 0 else END) for c in fixed]
        ends = [c.end if c.end is not None else (END if c.step > 0 else -END) for c in fixed]
        before = x.shape
        x = op.slice(
            x, [c.axis for c in fixed], [int(n) for n in starts if isinstance(n, int)],
            [int(n) for n in ends if isinstance(n, int)], [c.step for c in fixed],
        )  # fmt: skip
        x = _named(x, before, fixed)
    moving = [c for c in cuts if isinstance(c.start, Value) or isinstance(c.end, Value)]
    if not moving:
        return x
    vectors = []
    for side, masked in (("start", (0, END)), ("end", (END, -END))):
        parts = []
        for cut in moving:
            bound = getattr(cut, side)
            if bound is None:
                bound = masked[cut.step < 0]
            parts.append(bound if isinstance(bound, Value) else op.constant([bound], "int64"))
        vectors.append(op.concat(parts, 0))
    shape: list[Dim] = list(x.shape)
    for cut in moving:
        shape[cut.axis] = _size(shape[cut.axis], cut)
    axes = op.constant([c.axis for c in moving], "int64")
    steps = op.constant([c.step for c in moving], "int64")
    return op.emit("Slice", x, *vectors, axes, steps, dtype=x.dtype, shape=tuple(shape))


def _is_whole(size: Dim, cut: Cut) -> bool:
    if cut.step != 1 or cut.start not in (None, 0):
        return False
    if cut.end is None:
        return True
    if isinstance(cut.end, int):
        return isinstance(size, int) and cut.end >= size
    return size is not None and cut.known_end == size


def _named(x: Value, before: Shape, cuts: Sequence[Cut]) -> Value:
    """Return what a slice yields, with names for the sizes that are some less than a named one."""
    from dataclasses import replace

    shape = list(x.shape)
    for cut in cuts:
        size, start, end = before[cut.axis], cut.start or 0, cut.end
        if isinstance(size, str) and cut.step == 1 and isinstance(start, int) and start >= 0:
            # Names stand for sizes that are large enough: n - 1, and never less than nothing.
            if end is None:
                shape[cut.axis] = sizes.sub(size, start)
            elif isinstance(end, int) and end < 0:
                shape[cut.axis] = sizes.sub(sizes.add(size, end), start)
    return replace(x, shape=tuple(shape))


def _size(size: Dim, cut: Cut) -> Dim:
    """Return the size of a cut along one axis, as far as it can be said."""
    if cut.step != 1 or isinstance(cut.start, Value) or (cut.start or 0) < 0:
        return None
    if cut.known_end is not None and cut.known_end == size:
        return sizes.sub(size, cut.start or 0)
    return None
