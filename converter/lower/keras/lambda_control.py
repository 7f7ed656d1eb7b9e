"""Functions that a Lambda's code calls and and that are no rows of a table.

They are given the machine beside the builder, to call functions of the artifact's.
"""

from collections.abc import Callable
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras import lambda_values as v
from converter.lower.keras.lambda_machine import Machine
from converter.lower.keras.lambda_tensors import function
from converter.lower.keras.lambda_values import Closure
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

MOST_ROUNDS = 256  # that one map is unrolled to


def _chosen(machine: Machine, value: Any) -> Any:
    return machine.call(value) if isinstance(value, Closure) else value


def in_train_phase(op: Builder, machine: Machine, x: Any, alt: Any, training: Any = None) -> Any:
    """The second: that of inference."""
    del op, x, training
    return _chosen(machine, alt)


def in_test_phase(op: Builder, machine: Machine, x: Any, alt: Any, training: Any = None) -> Any:
    """The first: that of inference."""
    del op, alt, training
    return _chosen(machine, x)


def switch(
    op: Builder, machine: Machine, condition: Any, then_expression: Any, else_expression: Any
) -> Any:
    """One or the other, element by element where a tensor says which."""
    if not isinstance(condition, Value):
        return _chosen(machine, then_expression if v.truth(condition) else else_expression)
    pair = [_chosen(machine, part) for part in (then_expression, else_expression)]
    if not all(isinstance(part, Value) for part in pair):
        raise Unsupported("a choice between what are no tensors")
    held = op.cast(condition, "bool")
    more = max(part.rank for part in pair) - held.rank
    if more > 0 and held.rank:
        held = op.unsqueeze(held, list(range(held.rank, held.rank + more)))
    return op.where(held, *pair)


def shape_of(op: Builder, machine: Machine, x: Any) -> Any:
    """The sizes of a tensor, numbers where they are known, tensors where not: Keras 3's."""
    del machine
    if not isinstance(x, Value):
        raise Unsupported("the shape of what is no tensor")
    return tuple(
        n if isinstance(n, int) else op.squeeze(op.cast(op.size(x, i), "int32"), [0])
        for i, n in enumerate(x.shape)
    )


def map_fn(op: Builder, machine: Machine, fn: Any, elems: Any, *rest: Any, **named: Any) -> Any:
    """Apply a function to each slice of a tensor along its first axis, whose size is known."""
    if rest or not set(named) <= {"name", "dtype"}:
        raise Unsupported("map_fn with more than a function and a tensor")
    dtype = named.get("dtype")
    whole = elems if isinstance(elems, list | tuple) else [elems]
    if not whole or not all(isinstance(part, Value) and part.rank for part in whole):
        raise Unsupported("map_fn of what is no tensor")
    sizes = {part.shape[0] for part in whole}
    (size,) = sizes if len(sizes) == 1 else (None,)
    if not isinstance(size, int) or not 0 < size <= MOST_ROUNDS:
        raise Unsupported("map_fn over an axis of unknown size, as the batch")
    made = []
    for i in range(size):
        parts = [function(op, "getitem", part, [i]) for part in whole]
        given = type(elems)(parts) if isinstance(elems, list | tuple) else parts[0]
        made.append(machine.call(fn, [given]))
    if not all(isinstance(part, Value) for part in made):
        raise Unsupported("map_fn of a function that gives more than a tensor")
    stacked = function(op, "stack", made)
    return op.cast(stacked, str(dtype)) if isinstance(dtype, str) else stacked


def reshape(op: Builder, machine: Machine, x: Any, newshape: Any) -> Any:
    """A tensor in another shape, which may be computed: Keras 3's."""
    del machine
    return function(op, "reshape", x, newshape)


CHOICES: dict[str, Callable[..., Any]] = {
    "keras.backend.map_fn": map_fn,
    "keras.ops.reshape": reshape,
    "keras.ops.shape": shape_of,
    **dict.fromkeys(("tensorflow.map_fn", "tensorflow1.map_fn", "tensorflow2.map_fn"), map_fn),
    "keras.backend.in_train_phase": in_train_phase,
    "keras.backend.in_test_phase": in_test_phase,
    "keras.backend.switch": switch,
}
