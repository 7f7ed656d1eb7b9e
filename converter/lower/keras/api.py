"""Lowerings written in a trusted module: ``--trust my_module=path/to/my_module.py``.

    from converter.lower.keras.api import Builder, Roles, Value, keras_layer

    @keras_layer("Scaled")  # the class as the model's configuration names it
    def scaled(op: Builder, w: Roles, x: Value, /, *, alpha: float = 0.1) -> Value:
        return op.mul(op.mul(x, w["scale"]), alpha)

It is a handler as our own are (`converter.lower.keras.table`): the builder, the layer's weights,
its tensors by position, then the layer's arguments by name, with their defaults. An argument that
is not in the signature is unsupported; ``config`` in it takes the whole configuration.
``w["scale"]`` is a weight under the name that ``convert inspect --weights`` shows after that of the
layer. Weights are known by dtype and shape, without values. For a Lambda, whose code is never run,
the name is ``"Lambda:<layer name>"`` and the arguments are those that the Lambda keeps for its
function; for an activation it is ``"Activation:<its name>"``. A recurrent cell takes a step and its
states and returns its output, then its new states; ``states=("units",)`` names their sizes.
`Unsupported` is raised for what the lowering does not do; `Masked` returns a mask with the value.
"""

from collections.abc import Callable, Sequence
from inspect import Parameter, signature

from converter.lower.builder import Builder
from converter.lower.keras.activations import activate
from converter.lower.keras.table import Masked, Roles, Row, Unsupported, is_without_meaning
from converter.lower.table import H, Handler, OpTable
from converter.lower.values import Value

__all__ = ["Builder", "Masked", "Roles", "Unsupported", "Value", "activate", "keras_layer"]

LOWERINGS = OpTable(Row, leading=2, is_ignored=is_without_meaning)


def keras_layer(
    *class_names: str, mask: str = "drop", states: Sequence[str] = ()
) -> Callable[[H], H]:
    """Register a lowering for these classes.

    Args:
        class_names: Names of the classes in the model's configuration.
        mask: ``pass`` passes the input's mask on.
        states: For a recurrent cell, the arguments that are the sizes of its states.

    Raises:
        ValueError: One of them has a lowering.
    """
    if mask not in ("drop", "pass", "merge"):
        raise ValueError(f"mask={mask!r}: 'drop', 'pass' or 'merge'")

    def register(handler: H) -> H:
        arguments = _arguments(handler)
        LOWERINGS.enter(*class_names, mask=mask, states=tuple(states), arguments=arguments)(handler)
        return handler

    return register


def _arguments(handler: Handler) -> frozenset[str]:
    """Return the names of a layer's arguments: tensors have no defaults."""
    return frozenset(
        p.name
        for p in signature(handler).parameters.values()
        if p.kind is Parameter.KEYWORD_ONLY
        or (p.kind is Parameter.POSITIONAL_OR_KEYWORD and p.default is not Parameter.empty)
    )
