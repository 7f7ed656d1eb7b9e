"""Steps of gradients, which programs of layers that are being trained call by name.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_decomp/decompositions.py
"""

from converter.lower import dims
from converter.lower.ops.scatter import scatter_elements
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Ints
from converter.lower.torch.table import aten
from converter.lower.values import Value


@aten("_softmax_backward_data")
def softmax_backward(
    op: Context, grad_output: Value, output: Value, dim: int, input_dtype: str
) -> Value:
    """The gradient of a softmax, from the one of its result."""
    part = op.mul(grad_output, output)
    whole = op.reduce("ReduceSum", part, [_axis(output, dim)], keepdims=True) if part.rank else part
    return op.cast(op.sub(part, op.mul(output, whole)), input_dtype)


@aten("_log_softmax_backward_data")
def log_softmax_backward(
    op: Context, grad_output: Value, output: Value, dim: int, input_dtype: str
) -> Value:
    """The gradient of a logarithmic softmax, from the one of its result."""
    whole = grad_output
    if whole.rank:
        whole = op.reduce("ReduceSum", grad_output, [_axis(output, dim)], keepdims=True)
    return op.cast(op.sub(grad_output, op.mul(op.unary("Exp", output), whole)), input_dtype)


def _axis(x: Value, dim: int) -> int:
    return x.axis(dim) if x.rank else 0


@aten("native_dropout_backward")
def native_dropout_backward(op: Context, grad_output: Value, mask: Value, scale: float) -> Value:
    """The gradient of a dropout, whose mask is given."""
    return op.mul(op.mul(grad_output, op.cast(mask, grad_output.dtype)), scale)


@aten("max_pool2d_with_indices_backward")
def max_pool_backward(
    op: Context, grad_output: Value, self: Value, kernel_size: Ints, stride: Ints, padding: Ints,
    dilation: Ints, ceil_mode: bool, indices: Value,
) -> Value:  # fmt: skip
    """The gradient of a pooling, added where the largest elements were."""
    del kernel_size, stride, padding, dilation, ceil_mode
    x = op.named(self)
    grad, places = op.named(grad_output), op.named(indices)
    size = dims.product(x.shape[-2:])
    flat = op.filled((*x.shape[:-2], size), 0, grad.dtype)
    shape = (*grad.shape[:-2], dims.product(grad.shape[-2:]))
    updates, at = op.reshape(grad, shape), op.reshape(places, shape)
    made = scatter_elements(op, flat, x.rank - 2, at, updates, "add")
    return op.reshape(made, x.shape)
