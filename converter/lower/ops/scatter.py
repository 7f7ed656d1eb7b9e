"""Elements put into tensors at indices, or joined there with what was before.

What is added, multiplied or compared at one index several times is accumulated in float32 where it
is narrower: onnxruntime does so in no narrower type.
"""

from converter.lower.builder import Builder
from converter.lower.graph import Attribute
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

NARROW = frozenset(("float16", "bfloat16"))


def scatter_nd(
    op: Builder, x: Value, indices: Value, updates: Value, reduction: str = "none"
) -> Value:
    """Return a tensor with elements or slices put at indices.

    Args:
        op: Builder.
        x: The tensor.
        indices: [..., depth], as many along the last axis as axes are indexed.
        updates: [..., the axes of x that are not indexed].
        reduction: How they join with what was there: none, add, mul, max or min.

    Raises:
        Unsupported: The reduction is of booleans or strings.
    """
    wide, how = _accumulate_as(x, reduction)
    given = op.cast(x, wide), op.cast(indices, "int64"), op.cast(updates, wide)
    return op.cast(op.emit("ScatterND", *given, dtype=wide, shape=x.shape, **how), x.dtype)


def scatter_elements(
    op: Builder, x: Value, axis: int, indices: Value, updates: Value, reduction: str = "none"
) -> Value:
    """Return a tensor with elements along an axis put at indices.

    Args:
        op: Builder.
        x: The tensor, of any rank but 0.
        axis: The axis.
        indices: Along the axis; at all other axes, elements stay where they are.
        updates: Of the same shape.
        reduction: How they join with what was there: none, add, mul, max or min.

    Raises:
        Unsupported: The reduction is of booleans or strings.
    """
    wide, how = _accumulate_as(x, reduction)
    given = op.cast(x, wide), indices, op.cast(updates, wide)
    made = op.emit("ScatterElements", *given, dtype=wide, shape=x.shape, axis=x.axis(axis), **how)
    return op.cast(made, x.dtype)


def _accumulate_as(x: Value, reduction: str) -> tuple[str, dict[str, Attribute]]:
    if reduction == "none":
        return x.dtype, {}
    if x.dtype in ("bool", "string"):
        raise Unsupported(f"{reduction} of {x.dtype}")
    return "float32" if x.dtype in NARROW else x.dtype, {"reduction": reduction}
