"""A module that a user trusts: lowerings for layers of their own."""

from converter.lower.keras.api import (
    Builder,
    Masked,
    Roles,
    Unsupported,
    Value,
    activate,
    keras_layer,
)


@keras_layer("Scaled", mask="pass")
def scaled(op: Builder, w: Roles, x: Value, /, *, alpha: float = 0.1, activation=None) -> Value:
    """activation(alpha * x * scale + 1)."""
    print("what a module prints goes nowhere")
    if alpha < 0:
        raise Unsupported(f"alpha {alpha}")
    return activate(op, op.add(op.mul(op.mul(x, w["scale"]), alpha), 1.0), activation)


@keras_layer("Doubled")
def doubled(op, w, x, factor=2.0):
    """Two outputs, and a mask for the second."""
    del w
    low = op.mul(x, factor)
    return Masked([x, low], [None, op.elementwise("Greater", low, 0.0)])


@keras_layer("Lambda:halve")
def halve(op, w, x, by=2.0):
    return op.div(x, by)


@keras_layer("Image")
def image(op, w, x):
    """Moves channels first, as images are inside graphs."""
    return op.softmax(op.transpose(x, [0, 3, 1, 2]), 1)


@keras_layer("Summed")
def summed(op, w, x):
    """A loop over the steps: a graph inside a node."""
    from converter.lower.scan import scan

    first = op.squeeze(op.split(x, 1, [1, x.shape[1] - 1])[0], [1])
    zero = op.mul(first, 0.0)

    def step(states, parts):
        return [op.add(op.mul(states[0], w["scale"]), parts[0])], []

    return scan(op, step, [zero], [x], axis=1)[0][0]
