"""A module that a user trusts: lowerings for what is inside layers; it needs no Keras."""

from converter.lower.keras.api import Unsupported, keras_layer


@keras_layer("Activation:my_swish")
def my_swish(op, w, x):
    """The file calls it my_package>my_swish."""
    return op.mul(x, op.unary("Sigmoid", op.mul(x, 0.5)))


@keras_layer("Activation:swish")
def swish(op, w, x):
    """Keras 2 had one of this name, too."""
    return op.mul(x, op.unary("Sigmoid", op.mul(x, 1.5)))


@keras_layer("Scaled")
def scaled(op, w, x, alpha=0.1):
    if alpha < 0:
        raise Unsupported(f"alpha {alpha}")
    return op.mul(op.mul(x, w["scale"]), alpha)


@keras_layer("Minimal", states=("units",))
def minimal(op, w, x, h, *, units):
    h = op.unary("Tanh", op.add(op.matmul(x, w["kernel"]), op.matmul(h, w["recurrent"])))
    return [h, h]


@keras_layer("Apart", states=("units", "more"))
def apart(op, w, x, h, c, *, units, more):
    """The output is no state."""
    h = op.unary("Tanh", op.add(op.matmul(x, w["kernel"]), h))
    c = op.add(op.mul(c, 0.5), op.reduce("ReduceMean", h, [-1], keepdims=True))
    return [op.concat([c, h], -1), h, c]


@keras_layer("Unsaid")
def unsaid(op, w, x, h):
    return [h, h]


@keras_layer("Short", states=("units",))
def short(op, w, x, h, *, units):
    return h
