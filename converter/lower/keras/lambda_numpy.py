"""math's and numpy's functions, as a Lambda's function calls them on what is known.

Each is called here only with numbers, and lists and arrays of them, that are no larger than what
they are worth.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from converter.lower.keras import lambda_values as v
from converter.lower.unsupported import Unsupported

MATH = frozenset((
    "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "degrees", "erf", "exp", "expm1",
    "fabs", "floor", "fmod", "gcd", "hypot", "isinf", "isnan", "log", "log10", "log1p", "log2",
    "pow", "radians", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
))  # fmt: skip
# Element by element, and over axes: no larger than their operands together.
ARRAYS = frozenset((
    "abs", "absolute", "add", "amax", "amin", "arccos", "arcsin", "arctan", "arctan2", "argmax",
    "argmin", "argsort", "array", "asarray", "ascontiguousarray", "average", "ceil", "clip",
    "concatenate", "copy", "cos", "cosh", "cumprod", "cumsum", "diff", "divide", "exp",
    "expand_dims", "flip", "float32", "float64", "floor", "floor_divide", "hstack", "int32",
    "int64", "linalg.norm", "log", "log10", "log1p", "log2", "max", "maximum", "mean", "min",
    "minimum", "mod", "moveaxis", "multiply", "negative", "power", "prod", "ravel", "reciprocal",
    "reshape", "roll", "round", "sign", "sin", "sinh", "size", "sort", "sqrt", "square", "squeeze",
    "stack", "std", "subtract", "sum", "swapaxes", "tan", "tanh", "transpose", "true_divide",
    "var", "vstack", "ones_like", "zeros_like", "flipud", "fliplr", "asfarray", "float16", "uint8",
    "shape", "ndim", "logical_not", "logical_and", "logical_or", "equal", "matmul", "dot", "outer",
))  # fmt: skip
# What sizes what they make: their integers are looked at.
CREATED = frozenset(
    ("zeros", "ones", "full", "arange", "linspace", "eye", "identity", "tile", "repeat")
)


def of_math(name: str, given: list[Any]) -> Any:
    """Call a function of the math module.

    Raises:
        Unsupported: There is no such function, or it raises.
    """
    if name not in MATH:
        raise Unsupported(f"math.{name}")
    if any(not isinstance(n, int | float) for n in given):
        raise Unsupported(
            f"math.{name} of {v.describe(next(n for n in given if not isinstance(n, int | float)))}"
        )
    try:
        return getattr(math, name)(*given)
    except v.FAULTS as e:
        raise v.fault(f"math.{name}", e) from e


def of_numpy(name: str, given: list[Any], named: Mapping[str, Any]) -> Any:
    """Call a function of numpy's on what is known.

    Raises:
        Unsupported: There is no such function, an argument is a tensor, or it raises.
    """
    if name not in ARRAYS and name not in CREATED:
        raise Unsupported(f"numpy.{name}")
    every = [*given, *named.values()]
    for part in every:
        check_plain(part, name)
    if name in CREATED:
        _check_size(name, every)
    else:
        v.check_arrays(*every)
    function: Any = np
    for part in name.split("."):
        function = getattr(function, part, None)
    if function is None:
        raise Unsupported(f"numpy.{name}")
    try:
        result = function(*(native(p) for p in given), **{k: native(p) for k, p in named.items()})
    except v.FAULTS as e:
        raise v.fault(f"numpy.{name}", e) from e
    if isinstance(result, np.ndarray) and result.dtype.kind not in "biufcSU":
        raise Unsupported(f"numpy.{name} of objects")
    return v.python(result)


def native(value: Any) -> Any:
    """Return an argument as numpy takes it."""
    return str(value) if isinstance(value, v.Dtype) else value


def check_plain(value: Any, name: str) -> None:
    """Raise unless a value is numbers, or lists of them."""
    v.count(value)
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, list | tuple):
            todo.extend(part)
        elif not isinstance(part, int | float | complex | str | None | np.ndarray | range):
            raise Unsupported(f"numpy.{name} of {v.describe(part)}")


def _check_size(name: str, every: list[Any]) -> None:
    """Raise where what is to be made is too large."""
    size = 1
    todo = list(every)
    while todo:
        part = todo.pop()
        if isinstance(part, list | tuple):
            todo.extend(part)
        elif isinstance(part, np.ndarray):
            size *= max(part.size, 1)
            todo.extend(part.reshape(-1)[:8].tolist() if part.dtype.kind in "iu" else [])
        elif isinstance(part, int | float) and math.isfinite(part):
            size *= max(math.ceil(abs(part)), 1)
    if name in ("eye", "identity"):
        size *= size
    if size > v.MOST_NUMBERS:
        raise Unsupported(f"numpy.{name} of {size} numbers")


ARRAY_METHODS = frozenset((
    "astype", "copy", "flatten", "item", "max", "mean", "min", "ravel", "reshape", "squeeze",
    "sum", "tolist", "transpose", "argmax", "argmin", "std", "prod", "round",
))  # fmt: skip
ARRAY_FACTS = ("shape", "size", "ndim", "T")


def array_attribute(x: np.ndarray, name: str) -> Any:
    """Return an attribute of an array.

    Raises:
        Unsupported: We do not have it.
    """
    if name == "dtype":
        return v.Dtype(x.dtype.name)
    if name in ARRAY_FACTS:
        return getattr(x, name)
    if name in ARRAY_METHODS:
        return v.Method(x, name)
    raise Unsupported(f"attribute {name} of an array")
