"""Layers of several inputs.

Keras 3 joins the masks of merged inputs by Or, and lets them change what Maximum, Minimum and
Multiply compute; Keras 1 and 2 join them by And (``masks="all"``, an argument of ours: see
`version_upgrades`).
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/merging
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.keras.operations.operands import promote
from converter.lower.keras.table import Masked, Roles, Unsupported, keras_layer
from converter.lower.ops.einsum import contract
from converter.lower.ops.norm import unit
from converter.lower.table import Variant
from converter.lower.values import Value

Masks = Sequence[Value | None]


def _align(op: Builder, values: Sequence[Value]) -> Sequence[Value]:
    """Return inputs of one rank and dtype: Keras inserts axes of size 1 after the batch."""
    values = promote(op, *values)
    rank = max(v.rank for v in values)
    return [
        op.unsqueeze(v, list(range(1, 1 + rank - v.rank))) if v.rank < rank else v for v in values
    ]


def _list(mask: Any, count: int) -> Masks:
    return list(mask) if isinstance(mask, list | tuple) else [mask] * count


def _combine_masks(op: Builder, op_type: str, masks: Masks) -> Value | None:
    found = [m for m in masks if m is not None]
    return reduce(lambda a, b: op.elementwise(op_type, a, b), found) if found else None


def _of_whole_rank(values: Sequence[Value], masks: Masks) -> Masks:
    """Return the masks that a merge sees: an input that is given more axes loses its own."""
    rank = max(v.rank for v in values)
    return [m if v.rank == rank else None for v, m in zip(values, masks, strict=True)]


def _merge_masks(op: Builder, masks: Masks, rule: str) -> Value | None:
    """Return the mask of a merge: of Keras 3 where all inputs have one, before where any has."""
    if rule == "all":
        return _combine_masks(op, "And", masks)
    return None if any(m is None for m in masks) else _combine_masks(op, "Or", masks)


@keras_layer(
    Variant("Add", "The sum of the inputs.", op_type="Add"),
)
def merge(
    op: Builder, w: Roles, *values: Value, op_type: str, mask: Any = None, masks: str = 'any',
) -> Masked:  # fmt: skip
    """An element-wise combination of the inputs."""
    del w
    result = reduce(lambda a, b: op.elementwise(op_type, a, b), _align(op, values))
    return Masked(result, _merge_masks(op, _list(mask, len(values)), masks))


@keras_layer("Subtract")
def subtract(
    op: Builder, w: Roles, a: Value, b: Value, /, *, mask: Any = None, masks: str = "any"
) -> Masked:
    """`a - b`."""
    del w
    a, b = _align(op, (a, b))
    return Masked(op.sub(a, b), _merge_masks(op, _list(mask, 2), masks))


@keras_layer("Average")
def average(op: Builder, w: Roles, *values: Value, mask: Any = None, masks: str = "any") -> Masked:
    """The mean of the inputs."""
    del w
    whole = reduce(op.add, _align(op, values))
    if not whole.is_float:  # as TensorFlow divides integers
        small = whole.dtype in ("int8", "uint8", "int16", "uint16")
        whole = op.cast(whole, "float32" if small else "float64")
    result = op.div(whole, float(len(values)))
    return Masked(result, _merge_masks(op, _list(mask, len(values)), masks))


@keras_layer(
    Variant("Maximum", "The maximum of the inputs that are not masked.", op_type="Max"),
    Variant("Minimum", "The minimum of the inputs that are not masked.", op_type="Min"),
)
def merge_extremes(
    op: Builder, w: Roles, *values: Value, op_type: str, mask: Any = None, masks: str = 'any',
) -> Masked:  # fmt: skip
    """The element-wise maximum or minimum of the inputs."""
    del w
    given = _list(mask, len(values))
    whole = _merge_masks(op, given, masks)
    if masks == "all":
        result = reduce(lambda a, b: op.elementwise(op_type, a, b), _align(op, values))
        return Masked(result, whole)
    given = _of_whole_rank(values, given)
    values = tuple(_align(op, values))
    result, seen = values[0], _over(op, values[0], given[0])
    for value, part in zip(values[1:], given[1:], strict=True):
        own = _over(op, value, part)
        # Where one side is masked, the other is used.
        value = value if own is None else op.where(own, value, result)
        result = result if seen is None else op.where(seen, result, value)
        both = own is not None and seen is not None
        seen = _combine_masks(op, "Or", (seen, own)) if both else None
        result = op.elementwise(op_type, result, value)
    return Masked(result, whole)


@keras_layer("Multiply")
def multiply(op: Builder, w: Roles, *values: Value, mask: Any = None, masks: str = "any") -> Masked:
    """The product of the inputs that are not masked."""
    del w
    given = _list(mask, len(values))
    whole = _merge_masks(op, given, masks)
    if masks == "all":
        return Masked(reduce(op.mul, _align(op, values)), whole)
    given = _of_whole_rank(values, given)
    values = tuple(_align(op, values))
    over = [_over(op, v, m) for v, m in zip(values, given, strict=True)]
    kept = [v if m is None else op.where(m, v, 1.0) for v, m in zip(values, over, strict=True)]
    result = reduce(op.mul, kept)
    if None not in given and (seen := _combine_masks(op, "Or", over)) is not None:
        result = op.where(seen, result, 0.0)
    return Masked(result, whole)


def _over(op: Builder, value: Value, mask: Value | None) -> Value | None:
    """Return a mask of steps, to be broadcast over a value's features."""
    if mask is None:
        return None
    if mask.rank != value.rank - 1:
        raise Unsupported(f"a mask of {mask.rank} axes for {value.rank}")
    return op.unsqueeze(mask, [-1])


@keras_layer("Concatenate")
def concatenate(
    op: Builder, w: Roles, *values: Value, axis: int = -1, mask: Any = None, masks: str = "any"
) -> Masked:
    """The inputs concatenated along an axis."""
    del w
    values = tuple(promote(op, *values))
    result = op.concat(values, axis)
    given = _list(mask, len(values))
    if all(m is None for m in given):
        return Masked(result, None)
    place = values[0].axis(axis)
    whole = [_steps(op, v, m) for v, m in zip(values, given, strict=True)]
    if place < values[0].rank - 1:
        return Masked(result, op.concat(whole, place))
    # Along the features each step has several masks, one of each input.
    return Masked(result, _combine_masks(op, "And" if masks == "all" else "Or", whole))


def _steps(op: Builder, value: Value, mask: Value | None) -> Value:
    """Return the mask of an input's steps, which are all there where it has none."""
    if mask is not None:
        if mask.rank != value.rank - 1:
            raise Unsupported(f"a mask of {mask.rank} axes for {value.rank}")
        return mask
    return op.expand(op.constant(value=True, dtype="bool"), value.shape[:-1], like=value)


@keras_layer("Dot")
def dot(
    op: Builder, w: Roles, a: Value, b: Value, /, *,
    axes: int | list[int], normalize: bool = False, least_power: float = 1e-14,
) -> Value:  # fmt: skip
    """The batched dot product of two inputs over an axis of each."""
    del w
    a, b = promote(op, a, b)
    pair = [axes, axes] if isinstance(axes, int) else list(axes)
    i, j = a.axis(pair[0]), b.axis(pair[1])
    if 0 in (i, j):
        raise Unsupported("a product over the batch")
    if normalize:
        a, b = unit(op, a, [i], least_power), unit(op, b, [j], least_power)
    rest_a = [k for k in range(1, a.rank) if k != i]
    rest_b = [k for k in range(1, b.rank) if k != j]
    letters = "abcdefghijklmnopqrstuvw"
    names_a = dict(zip(rest_a, letters, strict=False))
    names_b = dict(zip(rest_b, letters[len(rest_a) :], strict=False))
    left = "".join("z" if k == 0 else "y" if k == i else names_a[k] for k in range(a.rank))
    right = "".join("z" if k == 0 else "y" if k == j else names_b[k] for k in range(b.rank))
    out = "z" + "".join(names_a.values()) + "".join(names_b.values())
    sizes: list[Dim] = [a.shape[0], *(a.shape[k] for k in rest_a), *(b.shape[k] for k in rest_b)]
    result = contract(op, f"{left},{right}->{out}", a, b, shape=tuple(sizes))
    return op.unsqueeze(result, [1]) if result.rank == 1 else result
