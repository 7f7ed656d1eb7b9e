"""Ops that leave elements as they are: copies, casts, and ops that only act in training."""

from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.promotion import FLOATS, kind
from converter.lower.torch.random import drop_elements
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


@aten(
    "alias", "detach", "clone", "contiguous", "lift", "lift_fresh", "lift_fresh_copy", "positive",
    "alias_copy", "detach_copy", "lift_fresh_copy.out", "resolve_conj", "resolve_neg",
    "_conj_physical_real",
)  # fmt: skip
def same(op: Context, self: Value) -> Value:
    """The tensor itself."""
    del op
    return self


@aten("_to_copy", "to.dtype_layout", "to.device", "to.dtype", "to.prim_dtype", "to.prim_Device")
def to(op: Context, self: Value, dtype: str | None = None, copy: bool = False) -> Value:
    """The tensor, cast to a dtype if one is given."""
    del copy  # whether it is the same memory
    return self if dtype is None else convert(op, self, dtype)


@aten("to.other", "type_as")
def to_other(op: Context, self: Value, other: Value, copy: bool = False) -> Value:
    """The tensor, cast to the dtype of another one."""
    del copy
    return convert(op, self, other.dtype)


DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "bfloat16": "bfloat16",
}  # fmt: skip


@aten(*(Variant(name, f"The tensor as {dtype}.", dtype=dtype) for name, dtype in DTYPES.items()))
def to_named(op: Context, self: Value, *, dtype: str) -> Value:
    """The tensor, cast to the dtype that the op is named after."""
    return convert(op, self, dtype)


@aten(
    *(
        Variant(f"_cast_{name.capitalize()}", f"The tensor as {dtype}.", dtype=dtype)
        for name, dtype in DTYPES.items()
        if name not in ("bool", "bfloat16")
    )
)
def cast_to_named(op: Context, self: Value, non_blocking: bool = False, *, dtype: str) -> Value:
    """The tensor, cast to the dtype that the op is named after."""
    del non_blocking
    return convert(op, self, dtype)


@aten("convert_element_type")
def convert_element_type(op: Context, a: Value, dtype: str) -> Value:
    """The tensor, cast to another dtype."""
    return convert(op, a, dtype)


def convert(op: Context, x: Value, dtype: str) -> Value:
    """Return a tensor in another dtype, cut off towards zero where it loses a fraction.

    Raises:
        Unsupported: ONNX has no such dtype.
    """
    kind(dtype)
    if x.dtype in FLOATS and dtype in ("int8", "int16", "uint8", "uint16", "uint32", "uint64"):
        # What lies outside wraps around in torch, by way of int64.
        return op.cast(op.cast(x, "int64"), dtype)
    return op.cast(x, dtype)


@aten("dropout")
def dropout(op: Context, input: Value, p: float, train: bool) -> Value:
    """The tensor itself; dropout if the program trains."""
    if train and p:
        return drop_elements(op, "dropout", input, p, op.named(input).shape)
    return input


@aten("feature_dropout")
def feature_dropout(op: Context, input: Value, p: float, train: bool) -> Value:
    """The tensor itself; dropout of whole channels if the program trains."""
    if train and p:
        x = op.named(input)
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:]))
        return drop_elements(op, "feature_dropout", x, p, shape)
    return input


@aten("alpha_dropout", "feature_alpha_dropout")
def alpha_dropout(op: Context, input: Value, p: float, train: bool) -> Value:
    """The tensor itself (inference)."""
    del op
    if train and p:
        raise Unsupported("alpha dropout in training")
    return input


@aten("native_dropout")
def native_dropout(op: Context, input: Value, p: float, train: bool | None) -> list[Value]:
    """The tensor itself (inference), and a mask that keeps everything."""
    if train is not False and p:
        raise Unsupported("dropout in training")
    return [input, op.filled(op.named(input).shape, number=True, dtype="bool")]


@aten("rrelu")
def rrelu(
    op: Context, self: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> Value:
    """`x if x > 0 else x * (lower + upper) / 2` (inference)."""
    if training:
        raise Unsupported("rrelu in training")
    return op.unary("LeakyRelu", self, alpha=(lower + upper) / 2)


@aten("rrelu_with_noise")
def rrelu_with_noise(
    op: Context, self: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False,
) -> Value:  # fmt: skip
    """`x if x > 0 else x * (lower + upper) / 2` (inference)."""
    del noise
    return rrelu(op, self, lower, upper, training)


@aten("rrelu_with_noise_functional")
def rrelu_with_noise_functional(
    op: Context, self: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False,
) -> list[Value]:  # fmt: skip
    """`x if x > 0 else x * (lower + upper) / 2` (inference; the noise is for training)."""
    del noise
    return [rrelu(op, self, lower, upper, training)]
