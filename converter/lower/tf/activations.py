"""Activations of neural networks, and their gradients, which some inference graphs contain.

Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/kernels/relu_op_functor.h
and cwise_ops.h in the same directory.
"""

from converter.lower.ops import activation as ops
from converter.lower.table import Variant, summarize
from converter.lower.tf.context import Context
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

# fmt: off
FUNCTIONS: dict[str, ops.Activation] = {
    "Elu": ops.elu, "Relu": ops.relu, "Relu6": ops.relu6, "Selu": ops.selu,
    "Sigmoid": ops.sigmoid, "Softplus": ops.softplus, "Softsign": ops.softsign, "Tanh": ops.tanh,
}
# fmt: on


@tf_op(*(Variant(name, summarize(f.__doc__), function=f) for name, f in FUNCTIONS.items()))
def activation(op: Context, features: Value, /, *, function: ops.Activation) -> Value:
    """An activation without parameters."""
    return function(op, features)


@tf_op("LeakyRelu")
def leaky_relu(op: Context, features: Value, /, *, alpha: float = 0.2) -> Value:
    """`x if x > 0 else alpha * x`."""
    return ops.leaky_relu(op, features, alpha)


def apply_fused(op: Context, name: str, x: Value, leakyrelu_alpha: float) -> Value:
    """Apply an activation that a graph optimizer fused with the preceding op.

    Raises:
        Unsupported: The name is not one of an activation.
    """
    if name == "LeakyRelu":
        return ops.leaky_relu(op, x, leakyrelu_alpha)
    if name not in FUNCTIONS:
        raise Unsupported(f"fused with {name}")
    return FUNCTIONS[name](op, x)


# -- gradients -------------------------------------------------------------------------------------


def _where(op: Context, question: str, x: Value, bound: float, a: Value, b: Value) -> Value:
    return op.where(op.elementwise(question, x, op.constant(bound, x.dtype)), a, b)


@tf_op("SigmoidGrad")
def sigmoid_grad(op: Context, y: Value, dy: Value, /) -> Value:
    """`dy * y * (1 - y)`."""
    return op.mul(op.mul(dy, y), op.sub(1.0, y))


@tf_op("TanhGrad")
def tanh_grad(op: Context, y: Value, dy: Value, /) -> Value:
    """`dy * (1 - y * y)`."""
    return op.mul(dy, op.sub(1.0, op.mul(y, y)))


@tf_op("InvGrad", "ReciprocalGrad")
def reciprocal_grad(op: Context, y: Value, dy: Value, /) -> Value:
    """`-dy * y * y`."""
    return op.mul(op.unary("Neg", dy), op.mul(y, y))


@tf_op("SqrtGrad")
def sqrt_grad(op: Context, y: Value, dy: Value, /) -> Value:
    """`0.5 * dy / y`."""
    return op.div(op.mul(dy, 0.5), y)


@tf_op("RsqrtGrad")
def rsqrt_grad(op: Context, y: Value, dy: Value, /) -> Value:
    """`-0.5 * dy * y ** 3`."""
    return op.mul(op.mul(dy, op.mul(y, -0.5)), op.mul(y, y))


@tf_op("ReluGrad")
def relu_grad(op: Context, gradients: Value, features: Value, /) -> Value:
    """Gradient of `relu(x)`: the incoming gradient where `x > 0`, else 0."""
    return op.where(op.elementwise("Greater", features, 0), gradients, 0)


@tf_op("Relu6Grad")
def relu6_grad(op: Context, gradients: Value, features: Value, /) -> Value:
    """Gradient of `relu6(x)`: the incoming gradient where `0 < x < 6`, else 0."""
    zero = op.constant(0, gradients.dtype)
    six = op.constant(6, features.dtype)
    inside = op.elementwise(
        "And", op.elementwise("Greater", features, zero), op.elementwise("Less", features, six)
    )
    return op.where(inside, gradients, zero)


@tf_op("LeakyReluGrad")
def leaky_relu_grad(
    op: Context, gradients: Value, features: Value, /, *, alpha: float = 0.2
) -> Value:
    """Gradient of `leaky_relu(x)`: the incoming gradient, times `alpha` where `x <= 0`."""
    return _where(op, "Greater", features, 0.0, gradients, op.mul(gradients, alpha))


@tf_op("EluGrad")
def elu_grad(op: Context, gradients: Value, outputs: Value, /) -> Value:
    """Gradient of `y = elu(x)`: the incoming gradient, times `y + 1` where `y < 0`."""
    below = op.mul(op.add(outputs, 1.0), gradients)
    return _where(op, "Less", outputs, 0.0, below, gradients)


@tf_op("SeluGrad")
def selu_grad(op: Context, gradients: Value, outputs: Value, /) -> Value:
    """Gradient of `y = selu(x)`: times `scale`, or times `y + scale * alpha` where `y < 0`."""
    below = op.mul(op.add(outputs, ops.SELU_SCALE * ops.SELU_ALPHA), gradients)
    return _where(op, "Less", outputs, 0.0, below, op.mul(gradients, ops.SELU_SCALE))


@tf_op("SoftplusGrad")
def softplus_grad(op: Context, gradients: Value, features: Value, /) -> Value:
    """Gradient of `softplus(x)`: the incoming gradient divided by `1 + exp(-x)`."""
    return op.mul(gradients, op.unary("Sigmoid", features))


@tf_op("SoftsignGrad")
def softsign_grad(op: Context, gradients: Value, features: Value, /) -> Value:
    """Gradient of `softsign(x)`: the incoming gradient divided by `(1 + abs(x)) ** 2`."""
    root = op.add(op.unary("Abs", features), 1.0)
    return op.div(gradients, op.mul(root, root))
