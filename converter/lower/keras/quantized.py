"""Layers with quantized weights: integers with a scale, or float8.

Where Keras also quantizes the inputs of a call, the graph does so with the same rounding. A row is
named by class and mode, "Dense int8": `class_of_a_mode` joins them.
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/quantizers
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from converter.lower.builder import Builder
from converter.lower.graph import Dim
from converter.lower.keras.activations import activate
from converter.lower.keras.core import einsum_shape
from converter.lower.keras.table import Masked, Roles, Unsupported, keras_layer
from converter.lower.ops.einsum import contract
from converter.lower.ops.quantize import quantize_by_size, round_to_float8
from converter.lower.values import Value, total

# -- inputs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    """The integers that inputs of a call are quantized to."""

    low: float = -127
    high: float = 127
    epsilon: float = 1e-7


def input_range(config: Any, default: Range | None) -> Range | None:
    """Return the range that a layer quantizes its inputs to, or None.

    Raises:
        Unsupported: The quantizer is not AbsMaxQuantizer.
    """
    if not isinstance(config, Mapping):
        return default
    quantizer = (config.get("config") or {}).get("activation_quantizer")
    if quantizer is None:
        return None
    if quantizer.get("class_name") != "AbsMaxQuantizer":
        raise Unsupported(f"quantizer {quantizer.get('class_name')}")
    given = quantizer["config"]
    low, high = given.get("value_range", (-127, 127))
    return Range(low, high, given.get("epsilon", 1e-7))


def quantize_by_range(op: Builder, x: Value, axes: list[int], to: Range) -> tuple[Value, Value]:
    """Return x as integers of a range, in its own dtype, and the factor."""
    return quantize_by_size(op, x, axes, to.low, to.high, to.epsilon)


def single(op: Builder, x: Value) -> Value:
    """Return x in a dtype in which sums of products of int8 are exact."""
    return x if x.dtype == "float64" else op.cast(x, "float32")


# -- weights ---------------------------------------------------------------------------------------


def unpack_int4(op: Builder, packed: Value, axis: int, count: Dim, *, signed: bool = True) -> Value:
    """Return int4 values unpacked from bytes along an axis, the low nibble first."""
    wide = op.cast(packed, "int32")
    low = op.elementwise("Mod", wide, 16)
    high = op.elementwise("Mod", op.div(op.sub(wide, low), 16), 16)
    if signed:  # -8 to -1 are stored as 8 to 15
        low, high = (op.sub(op.elementwise("Mod", op.add(n, 8), 16), 8) for n in (low, high))
    place = packed.axis(axis)
    pairs = op.concat([op.unsqueeze(n, [place + 1]) for n in (low, high)], place + 1)
    size = packed.shape[place]
    whole = size * 2 if isinstance(size, int) else None
    line = op.reshape(pairs, (*packed.shape[:place], whole, *packed.shape[place + 1 :]))
    return line if whole == count or not isinstance(count, int) else op.slice(
        line, [place], [0], [count]
    )  # fmt: skip


def in_groups(op: Builder, w: Roles, numbers: Value, axis: int, prefix: str = "kernel") -> Value:
    """Return (numbers - zero) * scale, with a zero and a scale for each group along an axis."""
    groups = op.cast(w.exact("g_idx"), "int64")
    scale = op.gather(w[f"{prefix}_scale"], groups, axis)
    zero = op.gather(w.exact(f"{prefix}_zero"), groups, axis)
    return op.mul(op.sub(op.cast(numbers, scale.dtype), op.cast(zero, scale.dtype)), scale)


def dequantize_calibrated(op: Builder, w: Roles, bits: int, columns: Dim) -> Value:
    """Return the kernel [in, out] of GPTQ or AWQ: integers [out, in] in groups along in."""
    kept = w.exact("quantized_kernel")
    numbers = unpack_int4(op, kept, 0, columns, signed=False) if bits == 4 else kept
    kernel = op.transpose(in_groups(op, w, numbers, -1), [1, 0])
    return op.div(kernel, op.unsqueeze(w["awq_scales"], [-1])) if "awq_scales" in w else kernel


def bits_of(dtype: Any) -> int:
    """Return the number of bits of weights from a dtype policy, as "gptq/4/128"."""
    inner = dtype.get("config") if isinstance(dtype, Mapping) else None
    parts = str(inner.get("mode", "") if isinstance(inner, Mapping) else dtype).split("/")
    return int(parts[1]) if len(parts) > 1 and parts[0] == "gptq" else 4


def leave_history(w: Roles) -> None:
    """Leave out the weights that only float8 training reads."""
    w.leave("inputs_amax_history", "kernel_amax_history", "outputs_grad_amax_history")
    w.leave("outputs_grad_scale")


def add_bias_and_activate(
    op: Builder, w: Roles, x: Value, activation: Any, *, has_bias: bool
) -> Value:
    """Return activation(x + bias)."""
    return activate(op, op.add(x, w["bias"]) if has_bias else x, activation)


def bias_of_float8(op: Builder, w: Roles) -> Value:
    """Return a bias rounded to bfloat16 where the layer computes in float32."""
    bias = w["bias"]
    return op.cast(op.cast(bias, "bfloat16"), bias.dtype) if bias.dtype == "float32" else bias


# -- Dense -----------------------------------------------------------------------------------------


def multiply_quantized(
    op: Builder, x: Value, kernel: Value, scale: Value, to: Range | None
) -> Value:
    """Return x @ kernel / scale for a kernel of integers; x is quantized if a range is given."""
    dtype = x.dtype
    if to is not None:
        x, factor = quantize_by_range(op, x, [-1], to)
        scale = op.mul(scale, factor)
    whole = single(op, x) if to is not None else x
    result = op.matmul(whole, op.cast(kernel, whole.dtype))
    return op.div(op.cast(result, dtype), scale)


@keras_layer("Dense int8", mask="pass")
def dense_int8(
    op: Builder, w: Roles, x: Value, /, *,
    units: int, activation: Any = None, use_bias: bool = True, quantization_config: Any = None,
) -> Value:  # fmt: skip
    """activation(x @ kernel / scale + bias), with x quantized, too."""
    del units
    to = input_range(quantization_config, Range())
    result = multiply_quantized(op, x, w.exact("kernel"), w["kernel_scale"], to)
    return add_bias_and_activate(op, w, result, activation, has_bias=use_bias)


@keras_layer("Dense int4", mask="pass")
def dense_int4(
    op: Builder, w: Roles, x: Value, /, *,
    units: int, activation: Any = None, use_bias: bool = True, quantization_config: Any = None,
) -> Value:  # fmt: skip
    """activation(x @ kernel + bias) with int4 weights, scaled by channel or in groups."""
    packed = w.exact("kernel")
    if packed.shape[-1] != (units + 1) // 2:
        raise Unsupported("a kernel that an older Keras packed")
    kernel = unpack_int4(op, packed, -1, units)
    if "kernel_zero" in w:
        result = op.matmul(x, op.cast(in_groups(op, w, kernel, 0), x.dtype))
    else:
        to = input_range(quantization_config, None)
        result = multiply_quantized(op, x, kernel, w["kernel_scale"], to)
    return add_bias_and_activate(op, w, result, activation, has_bias=use_bias)


@keras_layer("Dense float8", mask="pass")
def dense_float8(
    op: Builder, w: Roles, x: Value, /, *,
    units: int, activation: Any = None, use_bias: bool = True,
) -> Value:  # fmt: skip
    """activation(x @ kernel + bias) with x and kernel rounded to float8."""
    del units
    leave_history(w)
    inputs = round_to_float8(op, x, w["inputs_scale"])
    result = op.matmul(inputs, round_to_float8(op, w["kernel"], w["kernel_scale"]))
    return activate(op, op.add(result, bias_of_float8(op, w)) if use_bias else result, activation)


@keras_layer("Dense gptq", "Dense awq", mask="pass")
def dense_calibrated(
    op: Builder, w: Roles, x: Value, /, *,
    units: int, activation: Any = None, use_bias: bool = True, dtype: Any = None,
) -> Value:  # fmt: skip
    """activation(x @ kernel + bias) with weights of GPTQ or AWQ."""
    kernel = dequantize_calibrated(op, w, bits_of(dtype), units)
    result = op.matmul(x, op.cast(kernel, x.dtype))
    return add_bias_and_activate(op, w, result, activation, has_bias=use_bias)


# -- EinsumDense -----------------------------------------------------------------------------------


def expand_ellipsis(equation: str, rank: int) -> tuple[str, str, str]:
    """Return the subscripts of input, kernel and output, with letters for an ellipsis."""
    left, _, output = equation.replace(" ", "").partition("->")
    inputs, _, kernel = left.partition(",")
    missing = rank - len(inputs.replace("...", ""))
    free = [c for c in "ABCDEFGH" if c not in equation][:missing]
    return inputs.replace("...", "".join(free)), kernel, output.replace("...", "".join(free))


def kernel_shape(
    x: Value, inputs: str, kernel: str, output: str, output_shape: Any
) -> tuple[Dim, ...]:
    """Return the shape of a kernel that is not packed."""
    sizes: dict[str, Dim] = dict(zip(inputs, x.shape, strict=True))
    last = [output_shape] if isinstance(output_shape, int) else list(output_shape)
    for letter, n in zip(reversed(output), reversed(last), strict=False):
        if letter not in sizes:
            sizes[letter] = n
    return tuple(sizes[letter] for letter in kernel)


def quantized_einsum(
    op: Builder, x: Value, kernel: Value, scale: Value | None, to: Range | None, equation: str
) -> Value:
    """Return einsum(equation, x, kernel) / scale; x is quantized if a range is given."""
    dtype = x.dtype
    inputs, _, output = expand_ellipsis(equation, x.rank)
    divisors = [] if scale is None else [scale]
    if to is not None:
        summed = [i for i, letter in enumerate(inputs) if letter not in output]
        x, factor = quantize_by_range(op, x, summed, to)
        x = single(op, x)
        # The factor has no summed axes, and its other axes in the order of the output.
        kept = [letter for letter in inputs if letter in output]
        factor = op.squeeze(factor, summed)
        factor = op.transpose(factor, [kept.index(c) for c in output if c in kept])
        missing = [i for i, letter in enumerate(output) if letter not in kept]
        divisors.insert(0, op.unsqueeze(factor, missing) if missing else factor)
    kernel = op.cast(kernel, x.dtype)
    result = contract(op, equation, x, kernel, shape=einsum_shape(equation, x, kernel))
    result = op.cast(result, dtype)
    if not divisors:
        return result
    return op.div(result, divisors[0] if len(divisors) == 1 else op.mul(*divisors))


@keras_layer("EinsumDense int8", mask="pass")
def einsum_dense_int8(
    op: Builder, w: Roles, x: Value, /, *,
    equation: str, output_shape: Any, activation: Any = None, bias_axes: str | None = None,
    quantization_config: Any = None,
) -> Value:  # fmt: skip
    """activation(einsum(equation, x, kernel) / scale + bias), with x quantized, too."""
    del output_shape
    to = input_range(quantization_config, Range())
    result = quantized_einsum(op, x, w.exact("kernel"), w["kernel_scale"], to, equation)
    return add_bias_and_activate(op, w, result, activation, has_bias=bool(bias_axes))


@keras_layer("EinsumDense int4", mask="pass")
def einsum_dense_int4(
    op: Builder, w: Roles, x: Value, /, *,
    equation: str, output_shape: Any, activation: Any = None, bias_axes: str | None = None,
    quantization_config: Any = None,
) -> Value:  # fmt: skip
    """activation(einsum(equation, x, kernel) + bias) with int4 weights."""
    letters = expand_ellipsis(equation, x.rank)
    shape = kernel_shape(x, *letters, output_shape)
    columns = total([n for n, c in zip(shape, letters[1], strict=True) if c in letters[2]])
    kernel = unpack_int4(op, w.exact("kernel"), -1, columns)
    if "kernel_zero" in w:
        weights, to = in_groups(op, w, kernel, 0), None
    else:
        scale = w["kernel_scale"]
        weights = op.div(op.cast(kernel, scale.dtype), scale)
        to = input_range(quantization_config, None)
    result = quantized_einsum(op, x, op.reshape(weights, shape), None, to, equation)
    return add_bias_and_activate(op, w, result, activation, has_bias=bool(bias_axes))


@keras_layer("EinsumDense float8", mask="pass")
def einsum_dense_float8(
    op: Builder, w: Roles, x: Value, /, *,
    equation: str, output_shape: Any, activation: Any = None, bias_axes: str | None = None,
) -> Value:  # fmt: skip
    """activation(einsum(equation, x, kernel) + bias) with x and kernel rounded to float8."""
    del output_shape
    leave_history(w)
    inputs = round_to_float8(op, x, w["inputs_scale"])
    kernel = round_to_float8(op, w["kernel"], w["kernel_scale"])
    result = contract(op, equation, inputs, kernel, shape=einsum_shape(equation, inputs, kernel))
    return activate(op, op.add(result, bias_of_float8(op, w)) if bias_axes else result, activation)


@keras_layer("EinsumDense gptq", "EinsumDense awq", mask="pass")
def einsum_dense_calibrated(
    op: Builder, w: Roles, x: Value, /, *,
    equation: str, output_shape: Any, activation: Any = None, bias_axes: str | None = None,
    dtype: Any = None, gptq_unpacked_column_size: Any = None, awq_unpacked_column_size: Any = None,
) -> Value:  # fmt: skip
    """activation(einsum(equation, x, kernel) + bias) with weights of GPTQ or AWQ."""
    del gptq_unpacked_column_size, awq_unpacked_column_size  # the scale has as many rows
    letters = expand_ellipsis(equation, x.rank)
    shape = kernel_shape(x, *letters, output_shape)
    columns = w["kernel_scale"].shape[0]
    kernel = op.reshape(dequantize_calibrated(op, w, bits_of(dtype), columns), shape)
    result = quantized_einsum(op, x, kernel, None, None, equation)
    return add_bias_and_activate(op, w, result, activation, has_bias=bool(bias_axes))


# -- Embedding -------------------------------------------------------------------------------------


def look_up(op: Builder, w: Roles, numbers: Value, width: int) -> Value:
    """Return rows of quantized embeddings, scaled by row or in groups of a row."""
    kept = w.exact("embeddings")
    packed = kept.shape[-1] != width
    rows = op.gather(unpack_int4(op, kept, -1, width) if packed else kept, numbers)
    scale = w["embeddings_scale"]
    if "embeddings_zero" not in w:
        return op.div(op.cast(rows, scale.dtype), op.unsqueeze(op.gather(scale, numbers), [-1]))
    groups = op.cast(w.exact("g_idx"), "int64")
    scale = op.gather(op.gather(scale, numbers), groups, -1)
    zero = op.gather(op.gather(w.exact("embeddings_zero"), numbers), groups, -1)
    return op.mul(op.sub(op.cast(rows, scale.dtype), op.cast(zero, scale.dtype)), scale)


@keras_layer("Embedding int8", "Embedding int4")
def embedding(
    op: Builder, w: Roles, x: Value, /, *,
    input_dim: int, output_dim: int, mask_zero: bool = False,
) -> Any:  # fmt: skip
    """embeddings[x] of quantized embeddings; index 0 is masked if asked."""
    del input_dim
    numbers = x if x.dtype in ("int32", "int64") else op.cast(x, "int32")
    result = look_up(op, w, numbers, output_dim)
    if not mask_zero:
        return result
    zero = op.constant(0, numbers.dtype)
    return Masked(result, op.unary("Not", op.elementwise("Equal", numbers, zero)))


@keras_layer("ReversibleEmbedding int8", "ReversibleEmbedding int4")
def reversible_embedding(
    op: Builder, w: Roles, x: Value, /, *,
    input_dim: int, output_dim: int, tie_weights: bool = True, mask_zero: bool = False,
    reverse_dtype: str | None = None, logit_soft_cap: float | None = None, reverse: bool = False,
    quantization_config: Any = None,
) -> Any:  # fmt: skip
    """embeddings[x] of quantized embeddings, or x @ embeddings.T with x quantized, too."""
    del reverse_dtype  # Keras ignores it where weights are quantized
    if not reverse:
        return embedding(op, w, x, input_dim=input_dim, output_dim=output_dim, mask_zero=mask_zero)
    role = "embeddings" if tie_weights else "reverse_embeddings"
    numbers = w.exact(role)
    if tie_weights:
        numbers = op.transpose(numbers, [1, 0])
    if numbers.shape[0] != output_dim:
        numbers = unpack_int4(op, numbers, 0, output_dim)
    to = input_range(quantization_config, Range())
    if "embeddings_zero" not in w:
        logits = multiply_quantized(op, x, numbers, w[f"{role}_scale"], to)
    else:
        axes = (1, 0) if tie_weights else (0, 1)
        groups = op.cast(w.exact("g_idx"), "int64")
        scale, zero = (
            op.gather(op.transpose(v, axes), groups, 0)
            for v in (w[f"{role}_scale"], w.exact(f"{role}_zero"))
        )
        away = op.sub(op.cast(numbers, scale.dtype), op.cast(zero, scale.dtype))
        kernel, one = op.mul(away, scale), op.constant(1.0, x.dtype)
        logits = multiply_quantized(op, x, kernel, one, to)
    if logit_soft_cap is None:
        return logits
    return op.mul(op.unary("Tanh", op.div(logits, logit_soft_cap)), logit_soft_cap)
