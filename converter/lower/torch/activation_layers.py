"""Layers of `torch.nn` that compute element by element or along one axis, as calls of ATen ops."""

from converter.lower.table import Variant
from converter.lower.torch.layers import Call, Own, layer
from converter.lower.torch.program_values import ProgramValue
from converter.lower.unsupported import Unsupported


@layer(
    "Identity", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout",
    "FeatureAlphaDropout",
)  # fmt: skip
def identity(
    call: Call, own: Own, x: ProgramValue, *, p: float = 0.5, inplace: bool = False
) -> ProgramValue:
    """The input unchanged (inference)."""
    del call, own, p, inplace
    return x


# Classes, and the ops of one argument that they call.
FUNCTIONS = {
    "Sigmoid": "sigmoid", "Tanh": "tanh", "SiLU": "silu", "Mish": "mish", "SELU": "selu",
    "Hardswish": "hardswish", "Hardsigmoid": "hardsigmoid", "LogSigmoid": "log_sigmoid",
    "Softsign": "softsign", "Tanhshrink": "tanhshrink",
}  # fmt: skip


@layer(*(Variant(name, f"{op} of each element.", op=op) for name, op in FUNCTIONS.items()))
def activation(
    call: Call, own: Own, x: ProgramValue, *, op: str, inplace: bool = False
) -> ProgramValue:
    """A function of each element."""
    del own, inplace  # nothing else reads the input
    return call(op, x)


@layer("ReLU")
def relu(
    call: Call, own: Own, x: ProgramValue, *, inplace: bool = False, threshold: float = 0,
    value: float = 0,
) -> ProgramValue:  # fmt: skip
    """max(x, 0); before torch 1.0 it was a threshold."""
    del own, inplace
    if threshold or value:
        raise Unsupported(f"threshold {threshold}, value {value}")
    return call("relu", x)


@layer("GELU")
def gelu(call: Call, own: Own, x: ProgramValue, *, approximate: str = "none") -> ProgramValue:
    """`x * P(X <= x)` for a standard normal X."""
    del own
    return call("gelu", x, approximate=approximate)


@layer(
    Variant("ELU", "x if x > 0 else alpha * (exp(x) - 1).", op="elu"),
    Variant("CELU", "max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).", op="celu"),
)
def exponential_unit(
    call: Call, own: Own, x: ProgramValue, *, op: str, alpha: float = 1.0, inplace: bool = False
) -> ProgramValue:
    """An exponential linear unit."""
    del own, inplace
    return call(op, x, alpha)


@layer("LeakyReLU")
def leaky_relu(
    call: Call, own: Own, x: ProgramValue, *, negative_slope: float = 0.01, inplace: bool = False
) -> ProgramValue:
    """`x if x > 0 else negative_slope * x`."""
    del own, inplace
    return call("leaky_relu", x, negative_slope)


@layer("RReLU")
def rrelu(
    call: Call, own: Own, x: ProgramValue, *, lower: float = 1 / 8, upper: float = 1 / 3,
    inplace: bool = False,
) -> ProgramValue:  # fmt: skip
    """`x if x > 0 else slope * x`, with the mean of the two slopes."""
    del own, inplace
    return call("leaky_relu", x, (lower + upper) / 2)


@layer("PReLU")
def prelu(
    call: Call, own: Own, x: ProgramValue, *, num_parameters: int = 1, init: float = 0.25
) -> ProgramValue:
    """`x if x > 0 else weight * x`, with a weight for each channel."""
    del num_parameters, init
    return call("prelu", x, own["weight"])


@layer("Hardtanh")
def hardtanh(
    call: Call, own: Own, x: ProgramValue, *, min_val: float = -1.0, max_val: float = 1.0,
    inplace: bool = False,
) -> ProgramValue:  # fmt: skip
    """min(max(x, min_val), max_val)."""
    del own, inplace
    return call("hardtanh", x, min_val, max_val)


# Before torch 1.0 a ReLU6 was a Hardtanh with its bounds.
@layer("ReLU6")
def relu6(
    call: Call, own: Own, x: ProgramValue, *, min_val: float = 0.0, max_val: float = 6.0,
    inplace: bool = False,
) -> ProgramValue:  # fmt: skip
    """min(max(x, 0), 6)."""
    return hardtanh(call, own, x, min_val=min_val, max_val=max_val, inplace=inplace)


@layer("Threshold")
def threshold(
    call: Call, own: Own, x: ProgramValue, *, threshold: float, value: float, inplace: bool = False
) -> ProgramValue:
    """`x if x > threshold else value`."""
    del own, inplace
    return call("threshold", x, threshold, value)


@layer("Softplus")
def softplus(
    call: Call, own: Own, x: ProgramValue, *, beta: float = 1, threshold: float = 20
) -> ProgramValue:
    """log(1 + exp(beta * x)) / beta."""
    del own
    return call("softplus", x, beta, threshold)


@layer(
    Variant("Softshrink", "Values moved towards zero by lambd; 0 within it.", op="softshrink"),
    Variant("Hardshrink", "Values beyond lambd; 0 within it.", op="hardshrink"),
)
def shrinkage(
    call: Call, own: Own, x: ProgramValue, *, op: str, lambd: float = 0.5
) -> ProgramValue:
    """Soft or hard shrinkage towards zero."""
    del own
    return call(op, x, lambd)


@layer("GLU")
def glu(call: Call, own: Own, x: ProgramValue, *, dim: int = -1) -> ProgramValue:
    """`a * sigmoid(b)` for the halves a and b of x."""
    del own
    return call("glu", x, dim)


@layer(Variant("Softmax", op="softmax"), Variant("LogSoftmax", op="log_softmax"))
def softmax(
    call: Call, own: Own, x: ProgramValue, *, op: str, dim: int | None = None
) -> ProgramValue:
    """Softmax along an axis, or its logarithm."""
    del own
    # Without an axis: as torch.nn.functional._get_softmax_dim has it.
    axis = dim if dim is not None else (0 if x.read().rank in (0, 1, 3) else 1)
    return call(op, x, axis)


@layer("Softmin")
def softmin(call: Call, own: Own, x: ProgramValue, *, dim: int | None = None) -> ProgramValue:
    """softmax(-x) along an axis."""
    return softmax(call, own, call("neg", x), op="softmax", dim=dim)


@layer("Softmax2d")
def softmax_2d(call: Call, own: Own, x: ProgramValue) -> ProgramValue:
    """softmax(x) over channels."""
    del own
    return call("softmax", x, -3)
