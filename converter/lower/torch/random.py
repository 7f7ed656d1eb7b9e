"""Random numbers: ONNX draws others of the same distribution (`converter.lower.ops.random`).

Spec: https://docs.pytorch.org/docs/2.13/torch.html#random-sampling
"""

from collections.abc import Callable, Mapping, Sequence

from converter.lower.graph import Attribute, Dim
from converter.lower.ops.random import (
    NORMAL,
    UNIFORM,
    draw,
    draw_classes,
    record,
    scale_to_integers,
)
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.ordering import argsort
from converter.lower.torch.program_values import Int, Ints, Number, Scalar
from converter.lower.torch.promotion import DEFAULT, kind
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Draw = Callable[[Context, str, Sequence[Dim], str], Value]


def _draw(
    op: Context, what: str, op_type: str, shape: Sequence[Dim], dtype: str,
    distribution: Mapping[str, Attribute],
) -> Value:  # fmt: skip
    record(op, what)
    return draw(op, op_type, shape, lambda: op.vector(tuple(shape)), dtype, distribution)


def uniform_of(op: Context, what: str, shape: Sequence[Dim], dtype: str) -> Value:
    """Return uniform numbers from 0 to below 1."""
    return _draw(op, what, "RandomUniform", shape, dtype, UNIFORM)


def normal_of(op: Context, what: str, shape: Sequence[Dim], dtype: str) -> Value:
    """Return standard normal numbers."""
    return _draw(op, what, "RandomNormal", shape, dtype, NORMAL)


DRAWS = (
    ("rand", "Uniform numbers from 0 to 1; not the numbers that torch draws.", uniform_of),
    ("randn", "Standard normal numbers; not the numbers that torch draws.", normal_of),
)


@aten(*(Variant((n, f"{n}.generator"), text, what=n, drawn=d) for n, text, d in DRAWS))
def draw_of_size(
    op: Context, size: Ints, dtype: str | None = None, *, what: str, drawn: Draw
) -> Value:
    """Random numbers of a shape."""
    return drawn(op, what, size, dtype or DEFAULT)


@aten(
    *(
        Variant((f"{n}_like", f"{n}_like.generator"), text, what=f"{n}_like", drawn=d)
        for n, text, d in DRAWS
    )
)
def draw_like(
    op: Context, self: Value, dtype: str | None = None, *, what: str, drawn: Draw
) -> Value:
    """Random numbers of the shape of a tensor."""
    return drawn(op, what, op.named(self).shape, dtype or self.dtype)


def _whole(op: Context, what: str, low: Int, high: Int, shape: Sequence[Dim], dtype: str) -> Value:
    shares = uniform_of(op, what, shape, "float64")
    bounds = op.scalar(low, "int64"), op.scalar(high, "int64")
    return scale_to_integers(op, shares, *bounds, dtype)


@aten("randint", "randint.generator")
def randint(op: Context, high: Int, size: Ints, dtype: str | None = None) -> Value:
    """Integers from 0 to below a bound; not the numbers that torch draws."""
    return _whole(op, "randint", 0, high, size, dtype or "int64")


@aten("randint.low", "randint.low_generator")
def randint_low(op: Context, low: Int, high: Int, size: Ints, dtype: str | None = None) -> Value:
    """Integers from low to below high; not the numbers that torch draws."""
    return _whole(op, "randint", low, high, size, dtype or "int64")


@aten("randint_like", "randint_like.generator")
def randint_like(op: Context, self: Value, high: Int, dtype: str | None = None) -> Value:
    """Integers from 0 to below a bound; not the numbers that torch draws."""
    return _whole(op, "randint_like", 0, high, op.named(self).shape, dtype or self.dtype)


@aten("randint_like.low_dtype", "randint_like.low_generator_dtype")
def randint_like_low(
    op: Context, self: Value, low: Int, high: Int, dtype: str | None = None
) -> Value:
    """Integers from low to below high; not the numbers that torch draws."""
    return _whole(op, "randint_like", low, high, op.named(self).shape, dtype or self.dtype)


@aten("randperm", "randperm.generator")
def randperm(op: Context, n: Int, dtype: str | None = None) -> Value:
    """A random permutation of 0 to n - 1; not the one that torch draws."""
    return op.cast(argsort(op, uniform_of(op, "randperm", [n], "float32")), dtype or "int64")


@aten("uniform", "uniform_functional")
def uniform(op: Context, self: Value, from_: Scalar = 0.0, to: Scalar = 1.0) -> Value:
    """Uniform numbers between two bounds, in the tensor's shape; not those that torch draws."""
    low, high = (_plain(n) for n in (from_, to))
    made = uniform_of(op, "uniform", op.named(self).shape, self.dtype)
    return op.add(op.mul(made, high - low), low)


@aten("normal_functional", "normal")
def normal_functional(op: Context, self: Value, mean: float = 0.0, std: float = 1.0) -> Value:
    """Normal numbers, in the tensor's shape; not the numbers that torch draws."""
    made = normal_of(op, "normal", op.named(self).shape, self.dtype)
    return op.add(op.mul(made, std), mean)


@aten("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_of_tensors(op: Context, mean: Value | float, std: Value | float = 1.0) -> Value:
    """Normal values with a mean and deviation each; not the values that torch draws."""
    tensors = [x for x in (mean, std) if isinstance(x, Value)]
    like = op.add(*tensors) if len(tensors) == 2 else tensors[0]
    made = normal_of(op, "normal", op.named(like).shape, like.dtype)
    return op.add(op.mul(made, std), mean)


@aten("normal.float_float")
def normal_numbers(
    op: Context, mean: float, std: float, size: Ints, dtype: str | None = None
) -> Value:
    """Normal numbers; not the numbers that torch draws."""
    return op.add(op.mul(normal_of(op, "normal", size, dtype or DEFAULT), std), mean)


@aten("bernoulli", "bernoulli.p", "bernoulli.float", "bernoulli.Tensor")
def bernoulli(op: Context, self: Value, p: Value | float | None = None) -> Value:
    """Ones with a probability, else zeros; not the numbers that torch draws."""
    x = op.named(self)
    shares = uniform_of(op, "bernoulli", x.shape, "float32")
    if p is None:
        p = op.cast(x, "float32")
    bound = op.cast(p, "float32") if isinstance(p, Value) else op.constant(p, "float32")
    return op.cast(op.elementwise("Less", shares, bound), self.dtype)


@aten("exponential")
def exponential(op: Context, self: Value, lambd: float = 1.0) -> Value:
    """Exponentially distributed numbers; not the numbers that torch draws."""
    shares = uniform_of(op, "exponential", op.named(self).shape, self.dtype)
    rest = op.sub(op.constant(1.0, self.dtype), shares)
    return op.div(op.unary("Neg", op.unary("Log", rest)), lambd)


@aten("multinomial")
def multinomial(op: Context, self: Value, num_samples: int, replacement: bool = False) -> Value:
    """Indices of classes drawn by probabilities; not the indices that torch draws."""
    if num_samples != 1 and not replacement:
        raise Unsupported("several draws without replacement")
    x = op.unsqueeze(self, [0]) if self.rank == 1 else self
    record(op, "multinomial")
    logarithms = op.unary("Log", op.cast(x, "float32"))
    made = draw_classes(op, logarithms, num_samples, "int64")
    return op.squeeze(made, [0]) if self.rank == 1 else made


def drop_elements(op: Context, what: str, x: Value, p: float, shape: Sequence[Dim]) -> Value:
    """Return x with a share p of it set to zero, and the rest divided by 1 - p."""
    if kind(x.dtype) < 2:
        raise Unsupported("dropout of integers")
    shares = uniform_of(op, what, shape, "float32")
    kept = op.cast(op.elementwise("GreaterOrEqual", shares, op.constant(p, "float32")), x.dtype)
    return op.mul(op.mul(x, kept), 1 / (1 - p) if p < 1 else 0.0)


def _plain(number: Scalar) -> float:
    if isinstance(number, Number) or not isinstance(number, int | float):
        raise Unsupported("a bound that is computed from the inputs")
    return float(number)
