"""Random values that the graph draws at run time: the source's distribution, but other values.

Each random operation is recorded in `Graph.random`, so that verification does not compare values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from converter.lower.builder import Builder
from converter.lower.element_types import element_type
from converter.lower.graph import Attribute, Dim
from converter.lower.values import Value

DRAWN = ("float32", "float64")  # dtypes of onnxruntime's random kernels
UNIFORM: Mapping[str, Attribute] = {"low": 0.0, "high": 1.0}
NORMAL: Mapping[str, Attribute] = {"mean": 0.0, "scale": 1.0}


def record(op: Builder, what: str, place: str | None = None) -> None:
    """Record a random operation, under the name of its node in the source if that is known."""
    random = op._outermost.random
    random[place or f"{what} {len(random)}"] = what


def draw(
    op: Builder, op_type: str, shape: Sequence[Dim], sizes: Callable[[], Value], dtype: str,
    attributes: Mapping[str, Attribute],
) -> Value:  # fmt: skip
    """Return random values of a shape; float16 and others are drawn in float32.

    Args:
        op: Builder.
        op_type: RandomUniform or RandomNormal.
        shape: Shape, as far as it is known.
        sizes: Function that returns the shape as an int64 tensor, where it is not static.
        dtype: Dtype of the result.
        attributes: Attributes of the operator: parameters of the distribution, and a seed.
    """
    kind = dtype if dtype in DRAWN else "float32"
    shape, static = tuple(shape), [n for n in shape if isinstance(n, int)]
    attributes = {"dtype": element_type(kind), **attributes}
    if shape and len(static) == len(shape) and op.graph is op._outermost:
        (made,) = op.node(op_type, [], [(kind, shape)], attributes={"shape": static, **attributes})
    else:
        filled = op.emit("ConstantOfShape", sizes(), dtype="float32", shape=shape)
        # Not constant, even if the shape is: each iteration of a loop draws new values.
        like = replace(filled, is_constant=False)
        (made,) = op.node(f"{op_type}Like", [like], [(kind, shape)], attributes=attributes)
    return op.cast(made, dtype)


def scale_to_integers(op: Builder, shares: Value, low: Value, high: Value, dtype: str) -> Value:
    """Scale uniform values (float64) in [0, 1) to integers in [low, high)."""
    low, high = op.cast(low, "int64"), op.cast(high, "int64")
    steps = op.unary("Floor", op.mul(shares, op.cast(op.sub(high, low), "float64")))
    return op.cast(op.add(op.cast(steps, "int64"), low), dtype)


def draw_classes(
    op: Builder, logits: Value, count: int, dtype: str, seed: Mapping[str, Attribute] | None = None
) -> Value:
    """Draw indices of classes [batch, count] from logits [batch, classes].

    Spec: https://onnx.ai/onnx/operators/onnx__Multinomial.html
    """
    given = replace(op.plain(op.cast(logits, "float32")), is_constant=False)
    (made,) = op.node(
        "Multinomial", [given], [(dtype, (logits.shape[0], count))],
        attributes={"dtype": element_type(dtype), "sample_size": count, **(seed or {})},
    )  # fmt: skip
    return made
