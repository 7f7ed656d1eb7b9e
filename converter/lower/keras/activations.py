"""Activations: functions named in arguments, and the layers that are nothing else."""

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any, TypeAlias

from converter.lower.builder import Builder
from converter.lower.keras.table import LAYERS, Roles, Unsupported, is_authors, keras_layer
from converter.lower.values import Value

Function: TypeAlias = Callable[..., Value]

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
LAMBDA = "__lambda__"  # what Keras calls a function of the author's
FUNCTIONS: dict[str, Function] = {}


def activation(*names: str) -> Callable[[Function], Function]:
    """Enter a function into the table of activations."""

    def enter(function: Function) -> Function:
        for name in names:
            if name in FUNCTIONS:
                raise ValueError(f"two functions for {name}")
            FUNCTIONS[name] = function
        return function

    return enter


def activate(op: Builder, x: Value, spec: Any) -> Value:
    """Apply an activation as a layer's argument names it.

    Args:
        op: Builder.
        x: Any shape.
        spec: Name, or serialised function or layer with its parameters; None for none.

    Raises:
        Unsupported: It is none of Keras's own, and no trusted module has it.
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


# -- functions -----------------------------------------------------------------------------------
# Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/activations/activations.py


@activation("linear")
def linear(op: Builder, x: Value) -> Value:
    """X."""
    del op
    return x


def _unary(name: str, op_type: str) -> None:
    def function(op: Builder, x: Value) -> Value:
        return op.unary(op_type, x)

    function.__doc__ = f"{op_type} of ONNX, element by element."
    activation(name)(function)


for _name, _op_type in (
    ("sigmoid", "Sigmoid"), ("tanh", "Tanh"), ("softplus", "Softplus"), ("softsign", "Softsign"),
    ("exponential", "Exp"),
):  # fmt: skip
    _unary(_name, _op_type)


@activation("relu")
def relu(
    op: Builder,
    x: Value,
    negative_slope: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
) -> Value:
    """max_value if x >= max_value; x if x > threshold; else negative_slope * (x - threshold)."""
    if threshold == 0 and negative_slope == 0:
        return op.unary("Relu", x) if max_value is None else op.clip(x, 0.0, max_value)
    if threshold == 0 and max_value is None:
        return op.unary("LeakyRelu", x, alpha=float(negative_slope))
    below = op.mul(op.sub(x, threshold), negative_slope)
    above = x if max_value is None else op.clip(x, 0.0, max_value)
    return op.where(op.elementwise("Greater", x, threshold), above, below)


@activation("relu6")
def relu6(op: Builder, x: Value) -> Value:
    """min(max(x, 0), 6)."""
    return op.clip(x, 0.0, 6.0)


@activation("leaky_relu")
def leaky_relu(op: Builder, x: Value, negative_slope: float = 0.2) -> Value:
    """X if x > 0 else negative_slope * x."""
    return op.unary("LeakyRelu", x, alpha=float(negative_slope))


@activation("softmax", "softmax_v2")  # what TensorFlow calls its function
def softmax(op: Builder, x: Value, axis: int | list[int] = -1) -> Value:
    """exp(x) / sum(exp(x)) over an axis, or over several."""
    if isinstance(axis, int):
        return op.softmax(x, axis)
    peak = op.reduce("ReduceMax", x, axis, keepdims=True)
    powers = op.unary("Exp", op.sub(x, peak))
    return op.div(powers, op.reduce("ReduceSum", powers, axis, keepdims=True))


@activation("log_softmax", "log_softmax_v2")
def log_softmax(op: Builder, x: Value, axis: int = -1) -> Value:
    """X - log(sum(exp(x))) over an axis."""
    return op.softmax(x, axis, "LogSoftmax")


@activation("elu")
def elu(op: Builder, x: Value, alpha: float = 1.0) -> Value:
    """X if x > 0 else alpha * (exp(x) - 1)."""
    return op.unary("Elu", x, alpha=float(alpha))


@activation("selu")
def selu(op: Builder, x: Value) -> Value:
    """Scale * elu(x, alpha)."""
    return op.unary("Selu", x, alpha=SELU_ALPHA, gamma=SELU_SCALE)


@activation("celu")
def celu(op: Builder, x: Value, alpha: float = 1.0) -> Value:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    return op.unary("Celu", x, alpha=float(alpha))


@activation("gelu")
def gelu(op: Builder, x: Value, approximate: bool = False) -> Value:
    """X * P(X <= x) for a normal X, exactly or by tanh."""
    half = op.mul(x, 0.5)
    if approximate:
        cube = op.mul(op.mul(x, x), x)
        inner = op.mul(op.add(x, op.mul(cube, 0.044715)), 0.7978845608028654)
        return op.mul(half, op.add(op.unary("Tanh", inner), 1.0))
    error = op.unary("Erf", op.mul(x, 1 / sqrt(2)))
    return op.mul(half, op.add(error, 1.0))


@activation("silu", "swish")
def silu(op: Builder, x: Value) -> Value:
    """X * sigmoid(x)."""
    return op.mul(x, op.unary("Sigmoid", x))


@activation("mish")
def mish(op: Builder, x: Value) -> Value:
    """X * tanh(softplus(x))."""
    return op.mul(x, op.unary("Tanh", op.unary("Softplus", x)))


@activation("hard_sigmoid")
def hard_sigmoid(op: Builder, x: Value) -> Value:
    """relu6(x + 3) / 6."""
    return op.unary("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@activation("keras2_hard_sigmoid")
def keras2_hard_sigmoid(op: Builder, x: Value) -> Value:
    """clip(0.2 * x + 0.5, 0, 1), as Keras 1 and 2 have it."""
    return op.unary("HardSigmoid", x, alpha=0.2, beta=0.5)


@activation("hard_silu", "hard_swish")
def hard_silu(op: Builder, x: Value) -> Value:
    """X * relu6(x + 3) / 6."""
    return op.mul(x, hard_sigmoid(op, x))


@activation("hard_tanh")
def hard_tanh(op: Builder, x: Value) -> Value:
    """x, held between -1 and 1."""
    return op.clip(x, -1.0, 1.0)


@activation("log_sigmoid")
def log_sigmoid(op: Builder, x: Value) -> Value:
    """-softplus(-x)."""
    return op.unary("Neg", op.unary("Softplus", op.unary("Neg", x)))


@activation("tanh_shrink")
def tanh_shrink(op: Builder, x: Value) -> Value:
    """X - tanh(x)."""
    return op.sub(x, op.unary("Tanh", x))


@activation("soft_shrink")
def soft_shrink(op: Builder, x: Value, threshold: float = 0.5) -> Value:
    """X moved towards zero by the threshold, and zero within it."""
    return op.unary("Shrink", x, bias=float(threshold), lambd=float(threshold))


@activation("hard_shrink")
def hard_shrink(op: Builder, x: Value, threshold: float = 0.5) -> Value:
    """X beyond the threshold, zero within it."""
    return op.unary("Shrink", x, bias=0.0, lambd=float(threshold))


@activation("squareplus")
def squareplus(op: Builder, x: Value, b: float = 4.0) -> Value:
    """(x + sqrt(x * x + b)) / 2."""
    root = op.unary("Sqrt", op.add(op.mul(x, x), b))
    return op.mul(op.add(x, root), 0.5)


@activation("sparse_plus")
def sparse_plus(op: Builder, x: Value) -> Value:
    """0 up to -1, x from 1 on, and (x + 1)**2 / 4 between."""
    near = op.add(x, 1.0)
    curve = op.mul(op.mul(near, near), 0.25)
    upper = op.where(op.elementwise("Less", x, 1.0), curve, x)
    return op.where(op.elementwise("LessOrEqual", x, -1.0), 0.0, upper)


@activation("sparse_sigmoid")
def sparse_sigmoid(op: Builder, x: Value) -> Value:
    """(x + 1) / 2, held between 0 and 1."""
    return op.unary("HardSigmoid", x, alpha=0.5, beta=0.5)


@activation("threshold")
def threshold_function(
    op: Builder, x: Value, threshold: float = 0.5, default_value: float = 0.0
) -> Value:
    """X beyond the threshold, else the default."""
    return op.where(op.elementwise("Greater", x, threshold), x, default_value)


@activation("glu")
def glu(op: Builder, x: Value, axis: int = -1) -> Value:
    """A * sigmoid(b) for the halves a, b of x."""
    size = x.shape[x.axis(axis)]
    if not isinstance(size, int) or size % 2:
        raise Unsupported("glu over an axis of unknown or odd size")
    a, b = op.split(x, axis, [size // 2, size // 2])
    return op.mul(a, op.unary("Sigmoid", b))


@activation("sparsemax")
def sparsemax(op: Builder, x: Value, axis: int = -1) -> Value:
    """max(x - tau, 0), with Keras's tau."""
    axis = x.axis(axis)
    x = op.plain(x)
    size = x.shape[axis]
    if not isinstance(size, int):
        raise Unsupported("sparsemax over an axis of unknown size")
    ordered = op.node(
        "TopK",
        [x, op.constant([size], "int64")],
        [(x.dtype, x.shape), ("int64", x.shape)],
        attributes={"axis": axis},
    )[0]
    sums = op.emit("CumSum", ordered, op.constant(axis, "int64"), dtype=x.dtype, shape=x.shape)
    shape = [1] * x.rank
    shape[axis] = size
    ranks = op.reshape(op.constant([float(i + 1) for i in range(size)], x.dtype), shape)
    support = op.elementwise("Greater", op.add(op.mul(ordered, ranks), 1.0), sums)
    count = op.reduce("ReduceSum", op.cast(support, x.dtype), [axis], keepdims=True)
    # The projection would take the last of these sums; every backend of Keras takes all of them.
    inside = op.reduce("ReduceSum", op.where(support, sums, 0.0), [axis], keepdims=True)
    tau = op.div(op.sub(inside, 1.0), count)
    return op.unary("Relu", op.sub(x, tau))


# -- layers --------------------------------------------------------------------------------------


@keras_layer("Activation", mask="pass")
def activation_layer(op: Builder, w: Roles, x: Value, /, *, activation: Any) -> Value:
    """activation(x), for every activation of Keras."""
    del w
    return activate(op, x, activation)


@keras_layer("ReLU", mask="pass")
def relu_layer(
    op: Builder, w: Roles, x: Value, /, *,
    max_value: float | None = None, negative_slope: float | None = 0.0,
    threshold: float | None = 0.0,
) -> Value:  # fmt: skip
    """max_value if x >= max_value; x if x > threshold; else negative_slope * (x - threshold)."""
    del w
    return relu(op, x, float(negative_slope or 0), max_value, float(threshold or 0))


@keras_layer("LeakyReLU", mask="pass")
def leaky_relu_layer(
    op: Builder, w: Roles, x: Value, /, *,
    negative_slope: float | None = None, alpha: float | None = None,
) -> Value:  # fmt: skip
    """X if x > 0 else negative_slope * x."""
    del w
    slope = negative_slope if negative_slope is not None else alpha
    return leaky_relu(op, x, 0.3 if slope is None else slope)


@keras_layer("ELU", mask="pass")
def elu_layer(op: Builder, w: Roles, x: Value, /, *, alpha: float = 1.0) -> Value:
    """X if x > 0 else alpha * (exp(x) - 1)."""
    del w
    return elu(op, x, alpha)


@keras_layer("PReLU", mask="pass")
def prelu(op: Builder, w: Roles, x: Value, /, *, shared_axes: list[int] | None = None) -> Value:
    """X if x > 0 else alpha * x, with alpha learned; the shared axes show in alpha's shape."""
    del shared_axes
    slope = op.plain(op.transpose(w["alpha"], range(w["alpha"].rank)))
    below = op.mul(op.unary("Neg", op.unary("Relu", op.unary("Neg", x))), slope)
    return op.add(op.unary("Relu", x), below)


@keras_layer("ThresholdedReLU", mask="pass")
def thresholded_relu(op: Builder, w: Roles, x: Value, /, *, theta: float = 1.0) -> Value:
    """X if x > theta else 0."""
    del w
    return op.unary("ThresholdedRelu", x, alpha=float(theta))


@keras_layer("Softmax", mask="pass")
def softmax_layer(
    op: Builder, w: Roles, x: Value, given: Value | None = None, /, *,
    axis: int | list[int] = -1, mask: Value | None = None, robust_masking: bool = True,
) -> Value:  # fmt: skip
    """exp(x) / sum(exp(x)) over an axis or several, of what is not masked."""
    del w
    mask = mask if given is None else given
    if mask is None:
        return softmax(op, x, axis)
    low = -3e4 if x.dtype == "float16" else -1e9
    if not robust_masking:  # Keras 2, unless asked; what is wholly masked does not become zero
        hidden = op.sub(1.0, op.cast(mask, x.dtype))
        return softmax(op, op.add(x, op.mul(hidden, low)), axis)
    kept = mask if mask.dtype == "bool" else op.elementwise("Greater", mask, 0.5)
    return op.where(kept, softmax(op, op.where(kept, x, low), axis), 0.0)
