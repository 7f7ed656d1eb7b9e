"""Activations as Keras names them: functions in arguments of layers, and layers of their own.

Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/activations/activations.py
"""

from collections.abc import Mapping
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.table import LAYERS, Roles, Unsupported, is_authors, keras_layer
from converter.lower.ops import activation as ops
from converter.lower.values import Value

LAMBDA = "__lambda__"  # how Keras names a function of the model's author


def linear(op: Builder, x: Value) -> Value:
    """Return the input."""
    del op
    return x


def keras2_hard_sigmoid(op: Builder, x: Value) -> Value:
    """min(max(0.2 * x + 0.5, 0), 1), the hard sigmoid of Keras 1 and 2."""
    return ops.hard_sigmoid(op, x, 0.2)


# Names in arguments, and the functions, which take the serialised parameters by name.
FUNCTIONS: dict[str, ops.Activation] = {
    "linear": linear, "exponential": ops.exponential, "tanh": ops.tanh, "softsign": ops.softsign,
    "sigmoid": ops.sigmoid, "hard_sigmoid": ops.hard_sigmoid, "log_sigmoid": ops.log_sigmoid,
    "keras2_hard_sigmoid": keras2_hard_sigmoid, "sparse_sigmoid": ops.sparse_sigmoid,
    "hard_tanh": ops.hard_tanh, "relu": ops.relu, "relu6": ops.relu6,
    "leaky_relu": ops.leaky_relu, "threshold": ops.threshold, "elu": ops.elu, "selu": ops.selu,
    "celu": ops.celu, "gelu": ops.gelu, "silu": ops.silu, "swish": ops.silu,
    "hard_silu": ops.hard_silu, "hard_swish": ops.hard_silu, "mish": ops.mish, "glu": ops.glu,
    "softplus": ops.softplus, "squareplus": ops.squareplus, "sparse_plus": ops.sparse_plus,
    "tanh_shrink": ops.tanh_shrink, "soft_shrink": ops.soft_shrink,
    "hard_shrink": ops.hard_shrink, "softmax": ops.softmax, "log_softmax": ops.log_softmax,
    "softmax_v2": ops.softmax, "log_softmax_v2": ops.log_softmax,  # names of TensorFlow's functions
    "sparsemax": ops.sparsemax,
}  # fmt: skip


def activate(op: Builder, x: Value, spec: Any) -> Value:
    """Apply an activation as a layer's argument names it.

    Args:
        op: Builder.
        x: Any shape.
        spec: Name, or serialised function or layer with its parameters; None for none.

    Raises:
        Unsupported: Neither Keras nor a trusted module defines it.
    """
    if spec is None:
        return x
    if op.supplies is not None:
        found = op.supplies.activation(op, x, spec)
        if isinstance(found, Value):
            return found
    arguments: Mapping[str, Any] = {}
    if isinstance(spec, Mapping):
        name = spec.get("class_name")
        config = spec.get("config")
        if name == LAMBDA or (name is None and "value" in spec):
            LAYERS["Lambda"]  # its family enters the function
            # Keras 3 writes the inner part of its own form, which it does not read again.
            code = spec if name else {"class_name": LAMBDA, "config": spec}
            return FUNCTIONS[LAMBDA](op, x, code)
        if name in ("function", "__function__", "Activation") or isinstance(config, str):
            # Keras 3 calls a function "function"; its name is its config.
            if isinstance(config, Mapping):
                config = config.get("activation", config.get("name"))
            return activate(op, x, config)
        if is_authors(spec.get("module")) or ">" in str(name):
            raise Unsupported(f"activation {name!r} of {spec.get('module') or 'its author'}")
        row = LAYERS.get(str(name))
        if row is not None and isinstance(config, Mapping):
            if unknown := row.unknown(config):
                raise Unsupported(f"activation {name} has arguments {', '.join(unknown)}")
            result = row.handler(op, Roles(op, str(name), {}), x, **row.known(config))
            if isinstance(result, Value):
                return result
        spec, arguments = name, config if isinstance(config, Mapping) else {}
    function = FUNCTIONS.get(str(spec))
    if function is None:
        raise Unsupported(f"activation {spec!r}")
    return function(op, x, **arguments)


# -- layers --------------------------------------------------------------------------------------


@keras_layer("Activation", mask="pass")
def activation_layer(op: Builder, w: Roles, x: Value, /, *, activation: Any) -> Value:
    """activation(x), for every activation of Keras."""
    del w
    return activate(op, x, activation)


@keras_layer("ReLU", mask="pass")
def relu(
    op: Builder, w: Roles, x: Value, /, *,
    max_value: float | None = None, negative_slope: float | None = 0.0,
    threshold: float | None = 0.0,
) -> Value:  # fmt: skip
    """max_value if x >= max_value; x if x > threshold; else negative_slope * (x - threshold)."""
    del w
    return ops.relu(op, x, float(negative_slope or 0), max_value, float(threshold or 0))


@keras_layer("LeakyReLU", mask="pass")
def leaky_relu(
    op: Builder, w: Roles, x: Value, /, *,
    negative_slope: float | None = None, alpha: float | None = None,
) -> Value:  # fmt: skip
    """`x if x > 0 else negative_slope * x`."""
    del w
    slope = negative_slope if negative_slope is not None else alpha
    return ops.leaky_relu(op, x, 0.3 if slope is None else slope)


@keras_layer("ELU", mask="pass")
def elu(op: Builder, w: Roles, x: Value, /, *, alpha: float = 1.0) -> Value:
    """`x if x > 0 else alpha * (exp(x) - 1)`."""
    del w
    return ops.elu(op, x, alpha)


@keras_layer("PReLU", mask="pass")
def prelu(op: Builder, w: Roles, x: Value, /, *, shared_axes: list[int] | None = None) -> Value:
    """`x if x > 0 else alpha * x`, for a learned alpha that is broadcast along shared axes."""
    del shared_axes  # the shape of alpha has ones there
    return ops.prelu(op, x, w["alpha"])


@keras_layer("ThresholdedReLU", mask="pass")
def thresholded_relu(op: Builder, w: Roles, x: Value, /, *, theta: float = 1.0) -> Value:
    """`x * (x > theta)`."""
    del w
    return ops.thresholded_relu(op, x, float(theta))


@keras_layer("Softmax", mask="pass")
def softmax(
    op: Builder, w: Roles, x: Value, given: Value | None = None, /, *,
    axis: int | list[int] = -1, mask: Value | None = None, robust_masking: bool = True,
) -> Value:  # fmt: skip
    """`exp(x) / sum(exp(x))` over one axis or several, of elements that are not masked."""
    del w
    mask = mask if given is None else given
    if mask is None:
        return ops.softmax(op, x, axis)
    low = -3e4 if x.dtype == "float16" else -1e9
    if not robust_masking:  # the default of Keras 2, which leaves rows that are fully masked
        hidden = op.sub(1.0, op.cast(mask, x.dtype))
        return ops.softmax(op, op.add(x, op.mul(hidden, low)), axis)
    kept = mask if mask.dtype == "bool" else op.elementwise("Greater", mask, 0.5)
    return op.where(kept, ops.softmax(op, op.where(kept, x, low), axis), 0.0)
