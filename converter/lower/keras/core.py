"""Dense, Embedding, and the layers that do nothing at inference.

Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/core
"""

from collections.abc import Mapping
from typing import Any

from converter.lower.builder import Builder
from converter.lower.keras.activations import activate
from converter.lower.keras.table import Masked, Roles, Unsupported, keras_layer
from converter.lower.ops.einsum import contract
from converter.lower.values import Value, total


@keras_layer("Dense", mask="pass")
def dense(
    op: Builder, w: Roles, x: Value, /, *,
    units: int, activation: Any = None, use_bias: bool = True, input_dim: int | None = None,
) -> Value:  # fmt: skip
    """activation(x @ kernel + bias) over the last axis."""
    del input_dim
    kernel = fitting(w["kernel"], None, units)  # [in, out]
    bias = w["bias"] if use_bias else None
    return activate(op, product(op, x, kernel, bias), activation)


def fitting(kernel: Value, *sizes: int | None) -> Value:
    """Return a kernel that has the sizes which its layer's arguments say, None for any.

    Raises:
        Unsupported: It has others: it is the kernel of another class by this name.
    """
    if len(kernel.shape) != len(sizes) or any(
        n is not None and n != m for n, m in zip(sizes, kernel.shape, strict=True)
    ):
        raise Unsupported(f"a kernel {list(kernel.shape)} where its arguments say {list(sizes)}")
    return kernel


def product(op: Builder, x: Value, kernel: Value, bias: Value | None) -> Value:
    """Return `x @ kernel + bias`.

    Raises:
        Unsupported: Their shapes do not fit.
    """
    if isinstance(x.shape[-1], int) and x.shape[-1] != kernel.shape[0]:
        raise Unsupported(f"a kernel {list(kernel.shape)} for {x.shape[-1]} features")
    if bias is not None and bias.shape != kernel.shape[1:]:
        raise Unsupported(f"a bias {list(bias.shape)} for a kernel {list(kernel.shape)}")
    x = x if x.is_float else op.cast(x, kernel.dtype)  # integers, of encoded categories
    if x.rank == 2:
        shape = (x.shape[0], kernel.shape[1])
        return op.emit("Gemm", x, kernel, bias, dtype=x.dtype, shape=shape)
    result = op.matmul(x, kernel)
    return result if bias is None else op.add(result, bias)


@keras_layer("EinsumDense")
def einsum_dense(
    op: Builder, w: Roles, x: Value, /, *,
    equation: str, output_shape: Any, activation: Any = None, bias_axes: str | None = None,
) -> Value:  # fmt: skip
    """activation(einsum(equation, x, kernel) + bias)."""
    del output_shape
    kernel = w["kernel"]
    result = contract(op, equation, x, kernel, shape=einsum_shape(equation, x, kernel))
    if bias_axes:
        result = op.add(result, w["bias"])
    return activate(op, result, activation)


def einsum_shape(equation: str, *operands: Value) -> tuple[Any, ...]:
    """Return the shape of an einsum, whose ellipsis means the leading axes of the first operand.

    Raises:
        Unsupported: The equation does not say its output.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    if not arrow:
        raise Unsupported(f"einsum {equation!r} without an output")
    sizes: dict[str, Any] = {}
    leading: tuple[Any, ...] = ()
    for term, operand in zip(left.split(","), operands, strict=True):
        letters = term.replace("...", "")
        axes = list(operand.shape)
        if "..." in term:
            where = term.index("...")
            count = operand.rank - len(letters)
            leading = max(leading, tuple(axes[where : where + count]), key=len)
            del axes[where : where + count]
        for letter, size in zip(letters, axes, strict=True):
            if not isinstance(sizes.get(letter), int):
                sizes[letter] = size if size is not None else sizes.get(letter)
    shape: list[Any] = []
    letters = right
    if "..." in right:
        where = right.index("...")
        shape = [sizes[c] for c in right[:where]] + list(leading)
        letters = right[where + 3 :]
    return (*shape, *(sizes[c] for c in letters))


@keras_layer("Embedding")
def embedding(
    op: Builder, w: Roles, x: Value, /, *,
    input_dim: int, output_dim: int, mask_zero: bool = False, input_length: Any = None,
    weights: Any = None, dropout: float = 0.0,
) -> Any:  # fmt: skip
    """`embeddings[x]`, with x cast to integers; zeros are masked if `mask_zero` is set."""
    del input_dim, output_dim, input_length, weights, dropout
    numbers = x if x.dtype in ("int32", "int64") else op.cast(x, "int32")
    result = op.gather(w["embeddings"], numbers)
    if not mask_zero:
        return result
    zero = op.constant(0, numbers.dtype)
    return Masked(result, op.unary("Not", op.elementwise("Equal", numbers, zero)))


@keras_layer("ReversibleEmbedding")
def reversible_embedding(
    op: Builder, w: Roles, x: Value, /, *,
    input_dim: int, output_dim: int, tie_weights: bool = True, mask_zero: bool = False,
    reverse_dtype: str | None = None, logit_soft_cap: float | None = None, reverse: bool = False,
) -> Any:  # fmt: skip
    """`embeddings[x]`, or with ``reverse`` `x @ embeddings.T`, within a soft cap."""
    w.leave("embeddings", "reverse_embeddings")  # the one in the other direction
    if not reverse:
        return embedding(op, w, x, input_dim=input_dim, output_dim=output_dim, mask_zero=mask_zero)
    role = "embeddings" if tie_weights else "reverse_embeddings"
    kernel = op.transpose(w[role], [1, 0]) if tie_weights else w[role]
    if reverse_dtype is not None:
        x, kernel = op.cast(x, reverse_dtype), op.cast(kernel, reverse_dtype)
    logits = op.matmul(x, kernel)
    if logit_soft_cap is None:
        return logits
    return op.mul(op.unary("Tanh", op.div(logits, logit_soft_cap)), logit_soft_cap)


def plain_numbers(value: Any) -> Any:
    """Return an argument that may be a serialised array as numbers in lists."""
    if isinstance(value, Mapping):  # {"class_name": "__numpy__", "config": {"value": …}}
        inner = value.get("config")
        value = inner.get("value") if isinstance(inner, Mapping) else None
        if value is None:
            raise Unsupported("an argument that is no numbers")
    return value


@keras_layer("Masking")
def masking(op: Builder, w: Roles, x: Value, /, *, mask_value: Any = 0.0) -> Masked:
    """The input, and a mask of the steps where any feature differs from mask_value."""
    del w
    same = op.elementwise("Equal", x, op.constant(plain_numbers(mask_value), x.dtype))
    # ONNX reduces booleans from opset 20 on.
    differs = op.cast(op.unary("Not", same), "float32")
    kept = op.cast(op.reduce("ReduceMax", differs, [-1], keepdims=True), "bool")
    return Masked(op.where(kept, x, 0.0), op.squeeze(kept, [-1]))


@keras_layer(
    "Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianDropout",
    "AlphaDropout", "GaussianNoise", mask="pass",
)  # fmt: skip
def dropout(
    op: Builder, w: Roles, x: Value, /, *,
    rate: float = 0.0, p: float = 0.0, stddev: float = 0.0, sigma: float = 0.0,
    noise_shape: Any = None, seed: Any = None, data_format: Any = None, dim_ordering: Any = None,
) -> Value:  # fmt: skip
    """The input: noise is for training."""
    del op, w, rate, p, stddev, sigma, noise_shape, seed, data_format, dim_ordering
    return x


@keras_layer("ActivityRegularization", mask="pass")
def activity_regularization(
    op: Builder, w: Roles, x: Value, /, *, l1: float = 0.0, l2: float = 0.0
) -> Value:
    """The input: regularization is for training."""
    del op, w, l1, l2
    return x


@keras_layer("AddLoss", "AddMetric")
def passed_on(
    op: Builder, w: Roles, x: Value, /, *,
    unconditional: Any = None, aggregation: Any = None, metric_name: Any = None,
) -> Value:  # fmt: skip
    """The input: losses and metrics are for training."""
    del op, w, unconditional, aggregation, metric_name
    return x


@keras_layer("Identity")
def identity(
    op: Builder, w: Roles, *values: Value, mask: Any = None, passes_mask: bool = True
) -> Any:
    """The input unchanged."""
    del op, w
    whole = list(values) if len(values) > 1 else values[0]
    return Masked(whole, mask) if passes_mask and isinstance(mask, Value) else whole


@keras_layer("Flatten")
def flatten(op: Builder, w: Roles, x: Value, /, *, data_format: str | None = None) -> Value:
    """The input flattened to [batch, features], in channels-last order."""
    del w
    if data_format in ("channels_first", "th") and x.rank > 2:
        x = op.transpose(x, [0, *range(2, x.rank), 1])
    if x.rank < 2:
        return op.unsqueeze(x, [1])
    return op.reshape(x, (x.shape[0], total(x.shape[1:])))


@keras_layer("Reshape")
def reshape(op: Builder, w: Roles, x: Value, /, *, target_shape: list[int]) -> Value:
    """The input in another shape; the batch axis stays, and one size may be -1."""
    del w
    sizes: list[Any] = list(target_shape)
    if -1 in sizes:
        whole = total(x.shape[1:])
        rest = total([n for n in sizes if n != -1]) or 1
        sizes[sizes.index(-1)] = None if whole is None else whole // rest
    return op.reshape(x, (x.shape[0], *sizes))


@keras_layer("Permute")
def permute(op: Builder, w: Roles, x: Value, /, *, dims: list[int]) -> Value:
    """The input with axes permuted; axes after the batch are counted from 1."""
    del op, w
    return x.transposed([0, *dims])


@keras_layer("RepeatVector")
def repeat_vector(op: Builder, w: Roles, x: Value, /, *, n: int) -> Value:
    """The input repeated along a new axis 1."""
    del w
    return op.expand(op.unsqueeze(x, [1]), (x.shape[0], n, x.shape[1]))
