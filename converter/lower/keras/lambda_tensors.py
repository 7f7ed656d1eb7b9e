"""Operators, indexing, attributes and methods of tensors in a Lambda's function.

 They are those of TensorFlow's tensors, on which Keras calls a Lambda; `TF_FUNCTIONS` has the
functions. A Python number takes the dtype of the tensor that it is combined with.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras import lambda_values as v
from converter.lower.keras.table import TF_FUNCTIONS
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.plurals import count

# fmt: off
BINARY = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "truediv", "//": "floordiv",
    "%": "floormod", "**": "pow", "@": "matmul", "div": "div",
}
LOGICAL = {"&": "logical_and", "|": "logical_or", "^": "logical_xor"}
BITS = {"&": "bitwise.bitwise_and", "|": "bitwise.bitwise_or", "^": "bitwise.bitwise_xor"}
COMPARE = {
    "<": "less", "<=": "less_equal", "==": "equal", "!=": "not_equal", ">": "greater",
    ">=": "greater_equal",
}
# fmt: on


def function(op: Builder, name: str, *given: Any, **named: Any) -> Value:
    """Call a function of TensorFlow's that gives one tensor."""
    made: Value = TF_FUNCTIONS[name].handler(op, *given, **named)
    return made


def parts(op: Builder, name: str, *given: Any) -> list[Value]:
    """Call a function of TensorFlow's that gives several tensors."""
    made: list[Value] = TF_FUNCTIONS[name].handler(op, *given)
    return made


def check_operands(a: Any, b: Any) -> None:
    """Raise where TensorFlow would: a fraction that meets integers, other dtypes."""
    for one, other in ((a, b), (b, a)):
        if not isinstance(one, Value | int | float | list | tuple | np.ndarray):
            raise Unsupported(f"a tensor and {v.describe(one)}")
        if isinstance(one, list | tuple):
            v.count(one)
        whole = isinstance(other, Value) and not other.is_float and other.dtype != "complex64"
        fraction = isinstance(one, float) or (isinstance(one, np.ndarray) and one.dtype.kind == "f")
        if whole and fraction:
            raise Unsupported("a fraction that meets a tensor of whole numbers")
    if isinstance(a, Value) and isinstance(b, Value) and a.dtype != b.dtype:
        raise Unsupported(f"an operation on tensors of {a.dtype} and {b.dtype}")


def binary(op: Builder, sign: str, a: Any, b: Any) -> Any:
    """Return ``a sign b``.

    Raises:
        Unsupported: TensorFlow refuses them, or we do not have it.
    """
    check_operands(a, b)
    if sign == "**" and isinstance(a, Value) and isinstance(b, int | float) and b == 2:
        return op.mul(a, a)
    tensor = a if isinstance(a, Value) else b
    if sign in LOGICAL:
        return function(op, (LOGICAL if tensor.dtype == "bool" else BITS)[sign], a, b)
    if sign not in BINARY:
        raise Unsupported(f"a tensor {sign}")
    return function(op, BINARY[sign], a, b)


def compare(op: Builder, sign: str, a: Any, b: Any) -> Any:
    """Return how elements compare.

    Raises:
        Unsupported: TensorFlow refuses them.
    """
    if a is None or b is None:
        return sign == "!="
    check_operands(a, b)
    return function(op, COMPARE[sign], a, b)


def unary(op: Builder, sign: str, x: Value) -> Any:
    """Return ``-x`` and the like."""
    if sign == "+":
        return x
    if sign == "~":
        return function(op, "logical_not" if x.dtype == "bool" else "bitwise.invert", x)
    return function(op, "negative", x)


def item(op: Builder, x: Value, key: Any) -> Any:
    """Return ``x[key]``.

    Raises:
        Unsupported: It is indexed by what TensorFlow does not take, or we do not.
    """
    places = key if isinstance(key, tuple) else (key,)
    for part in places:
        bounds = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
        for bound in bounds:
            whole = isinstance(bound, Value | int) and not isinstance(bound, bool)
            if isinstance(bound, Value) and (bound.is_float or bound.rank > 0):
                raise Unsupported("an index that is a tensor of more than one number")
            if not whole and bound is not None and bound is not ...:
                raise Unsupported(f"a tensor's [{v.describe(bound)}]")
    if sum(part is not None and part is not ... for part in places) > x.rank:
        raise Unsupported(f"{count('index', len(places))} for a tensor of {x.rank} axes")
    plain = all(p is not ... and p is not None for p in places)
    for part, size in zip(places, x.shape, strict=False):
        if not plain or not isinstance(part, int) or not isinstance(size, int):
            continue
        if not -size <= part < size:
            raise Unsupported(f"number {part} of an axis of {size}")
    return function(op, "getitem", x, places)


# -- attributes ----------------------------------------------------------------------------------

METHODS = frozenset(("get_shape", "set_shape", "ref"))


def sizes(x: Value) -> v.Sizes:
    """Return the shape of a tensor as code sees it: None where only running tells."""
    return v.Sizes(n if isinstance(n, int) else None for n in x.shape)


def attribute(x: Value, name: str) -> Any:
    """Return an attribute of a tensor.

    Raises:
        Unsupported: We do not have it.
    """
    if name in ("shape", "_keras_shape", "_shape"):
        return sizes(x)
    if name == "dtype":
        return v.Dtype(x.dtype)
    if name == "ndim":
        return x.rank
    if name in METHODS:
        return v.Method(x, name)
    raise Unsupported(f"attribute {name} of a tensor")


def method(x: Value, name: str, given: list[Any], named: Mapping[str, Any]) -> Any:
    """Call a method of a tensor."""
    del given, named
    if name == "get_shape":
        return sizes(x)
    return None  # set_shape: what the graph knows already, or has no use for


def shape_attribute(x: v.Sizes, name: str) -> Any:
    """Return an attribute of a shape.

    Raises:
        Unsupported: We do not have it.
    """
    if name in ("ndims", "rank"):
        return len(x)
    if name == "dims":
        return [*x]
    if name in ("as_list", "is_fully_defined", "num_elements", "index", "count", "with_rank"):
        return v.Method(x, name)
    raise Unsupported(f"attribute {name} of a shape")


def shape_method(x: v.Sizes, name: str, given: list[Any]) -> Any:
    """Call a method of a shape."""
    if name == "as_list":
        return [*x]
    if name == "with_rank":
        return x
    if name == "is_fully_defined":
        return None not in x
    if name == "num_elements":
        known = [n for n in x if n is not None]
        return int(np.prod(known)) if len(known) == len(x) else None
    try:
        return getattr(tuple(x), name)(*given)
    except v.FAULTS as e:
        raise v.fault(f"{name} of a shape", e) from e


def dtype_attribute(x: v.Dtype, name: str) -> Any:
    """Return an attribute of a dtype.

    Raises:
        Unsupported: We do not have it.
    """
    facts = {
        "name": str(x), "base_dtype": x, "as_numpy_dtype": x, "is_floating": "float" in x,
        "is_integer": "int" in x, "is_bool": x == "bool",
    }  # fmt: skip
    if name not in facts:
        raise Unsupported(f"attribute {name} of a dtype")
    return facts[name]
