"""Layers of several inputs.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/merging
"""

from collections.abc import Sequence
from functools import reduce

from converter.lower.builder import Builder
from converter.lower.keras.table import Gap, Roles, keras_layer
from converter.lower.values import Value


def _aligned(op: Builder, values: Sequence[Value]) -> Sequence[Value]:
    """Return inputs of one rank: Keras puts axes of one element behind the batch."""
    rank = max(v.rank for v in values)
    return [
        op.unsqueeze(v, list(range(1, 1 + rank - v.rank))) if v.rank < rank else v for v in values
    ]


def _merge(op_type: str, *names: str, formula: str) -> None:
    def handler(op: Builder, w: Roles, *values: Value) -> Value:
        del w
        aligned = _aligned(op, values)
        return reduce(lambda a, b: op.elementwise(op_type, a, b), aligned)

    handler.__doc__ = formula
    keras_layer(*names, mask="merge")(handler)


_merge("Add", "Add", formula="The sum of the inputs.")
_merge("Mul", "Multiply", formula="The product of the inputs.")
_merge("Max", "Maximum", formula="The largest of the inputs.")
_merge("Min", "Minimum", formula="The smallest of the inputs.")


@keras_layer("Subtract", mask="merge")
def subtract(op: Builder, w: Roles, *values: Value) -> Value:
    """A - b."""
    del w
    a, b = _aligned(op, values)
    return op.sub(a, b)


@keras_layer("Average", mask="merge")
def average(op: Builder, w: Roles, *values: Value) -> Value:
    """The mean of the inputs."""
    del w
    whole = reduce(op.add, _aligned(op, values))
    return op.div(whole, float(len(values)))


@keras_layer("Concatenate", mask="merge")
def concatenate(op: Builder, w: Roles, *values: Value, axis: int = -1) -> Value:
    """The inputs one after another along an axis."""
    del w
    return op.concat(values, axis)


@keras_layer("Dot")
def dot(
    op: Builder, w: Roles, a: Value, b: Value, /, *,
    axes: int | list[int], normalize: bool = False,
) -> Value:  # fmt: skip
    """The product of two inputs summed over an axis of each, batch by batch."""
    del w
    pair = [axes, axes] if isinstance(axes, int) else list(axes)
    i, j = a.axis(pair[0]), b.axis(pair[1])
    if 0 in (i, j):
        raise Gap("a product over the batch")
    if normalize:
        a, b = (_unit(op, v, axis) for v, axis in ((a, i), (b, j)))
    rest_a = [k for k in range(1, a.rank) if k != i]
    rest_b = [k for k in range(1, b.rank) if k != j]
    letters = "abcdefghijklmnopqrstuvw"
    names_a = dict(zip(rest_a, letters, strict=False))
    names_b = dict(zip(rest_b, letters[len(rest_a) :], strict=False))
    left = "".join("z" if k == 0 else "y" if k == i else names_a[k] for k in range(a.rank))
    right = "".join("z" if k == 0 else "y" if k == j else names_b[k] for k in range(b.rank))
    out = "z" + "".join(names_a.values()) + "".join(names_b.values())
    shape = (a.shape[0], *(a.shape[k] for k in rest_a), *(b.shape[k] for k in rest_b))
    result = op.einsum(f"{left},{right}->{out}", a, b, shape=shape)
    return op.unsqueeze(result, [1]) if result.rank == 1 else result


def _unit(op: Builder, x: Value, axis: int) -> Value:
    power = op.reduce("ReduceSum", op.mul(x, x), [axis], keepdims=True)
    return op.div(x, op.unary("Sqrt", op.elementwise("Max", power, op.constant(1e-12, x.dtype))))
