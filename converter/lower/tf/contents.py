"""Track the known elements of small tensors while a graph is lowered.

TensorFlow computes shapes, axes and bounds with ordinary nodes. Their elements are tracked here,
as numbers or symbolic dimensions. A node whose result is known becomes a constant; where it is
partly known, the handlers of its readers (a Reshape, a StridedSlice) see the known dimensions.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim

MOST = 1024  # elements of a tensor that is tracked
CAST = ("float16", "float32", "float64", "int32", "int64", "bool", "int8", "uint8", "int16")

Arrays = Sequence[np.ndarray]
Fold = Callable[[Arrays, Mapping[str, Any]], np.ndarray]


def known(array: np.ndarray) -> bool:
    """Return whether all elements are numbers: none is symbolic or unknown."""
    return array.dtype != object or all(
        not isinstance(n, str) and n is not None for n in array.flat
    )


def objects(numbers: "Sequence[Dim] | np.ndarray") -> np.ndarray:
    """Return dimensions as a vector of objects, or convert an array of integers to objects."""
    if isinstance(numbers, np.ndarray):
        same = np.empty(numbers.shape, object)
        same.reshape(-1)[:] = [n.item() for n in numbers.reshape(-1)]
        return same
    made = np.empty(len(numbers), object)
    made[:] = numbers
    return made


def follows(op: str) -> bool:
    """Return whether the elements of an op's outputs are tracked."""
    return op in STRUCTURAL or op in NUMBERS or op in NAMED


def fold(op: str, arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray | None:
    """Return the known elements of a node's output, or None where the op is not tracked."""
    if all(a.dtype != object for a in arrays):
        function = NUMBERS.get(op) or STRUCTURAL.get(op)
    else:
        arrays = [a if a.dtype == object else _as_objects(a) for a in arrays]
        function = NAMED.get(op) or STRUCTURAL.get(op)
    if function is None:
        return None
    try:
        with np.errstate(all="ignore"):
            result = function(arrays, attributes)
    except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):
        return None  # the handler, or onnxruntime, reports the error
    return result if result.size <= MOST else None


def _as_objects(array: np.ndarray) -> np.ndarray:
    return objects(array) if array.dtype.kind in "iub" else array


# -- structural ops: for numbers and symbolic dimensions -------------------------------------------


def _int(array: np.ndarray) -> int:
    found = array.reshape(-1)[0]
    if not isinstance(found, int | np.integer):
        raise TypeError("a name in place of a number")
    return int(found)


def _ints(array: np.ndarray) -> list[int]:
    return [_int(np.asarray(n, object)) for n in array.reshape(-1)]


def strided_slice(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    """Return the part of an array that a StridedSlice takes."""
    x, begins, ends, steps = arrays[0], arrays[1], arrays[2], _ints(arrays[3])
    masks = {
        k: attributes.get(f"{k}_mask", 0)
        for k in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    index: list[Any] = []
    for i, step in enumerate(steps):
        bit = 1 << i
        if masks["ellipsis"] & bit:
            index.append(Ellipsis)
        elif masks["new_axis"] & bit:
            index.append(None)
        elif masks["shrink_axis"] & bit:
            index.append(_int(begins[i : i + 1]))
        else:
            begin = None if masks["begin"] & bit else _int(begins[i : i + 1])
            end = None if masks["end"] & bit else _int(ends[i : i + 1])
            index.append(slice(begin, end, step))
    return _array(x[tuple(index)], x)


def _array(found: Any, like: np.ndarray) -> np.ndarray:
    if isinstance(found, np.ndarray):
        return found
    made = np.empty((), like.dtype)
    made[()] = found
    return made


def _reshape(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    return arrays[0].reshape(_ints(arrays[1]))


def _squeeze(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    axes = attributes.get("squeeze_dims") or attributes.get("axis") or None
    return np.squeeze(arrays[0], None if axes is None else tuple(axes))


def _slice(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    x, begins, lengths = arrays[0], _ints(arrays[1]), _ints(arrays[2])
    parts = zip(begins, lengths, strict=True)
    return x[tuple(slice(b, None if n < 0 else b + n) for b, n in parts)]


def _gather(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    if attributes.get("batch_dims"):
        raise ValueError("batches")
    axis = _int(arrays[2]) if len(arrays) > 2 else 0
    return _array(np.take(arrays[0], np.asarray(arrays[1], np.int64), axis), arrays[0])


def _pack(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    return np.stack(arrays, attributes.get("axis", 0))


def _concat(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    return np.concatenate(arrays[:-1], _int(arrays[-1]))


def _fill(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    shape = _ints(arrays[0])
    if np.prod(shape, dtype=np.float64) > MOST:
        raise ValueError("too many")
    result = np.empty(shape, arrays[1].dtype)
    result[...] = arrays[1]
    return result


def _tile(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    times = _ints(arrays[1])
    if arrays[0].size * np.prod(times, dtype=np.float64) > MOST:
        raise ValueError("too many")
    return np.tile(arrays[0], times)


def _reverse(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    return np.flip(arrays[0], tuple(_ints(arrays[1])))


def _expand_dims(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    return np.expand_dims(arrays[0], _int(arrays[1]))


def _transpose(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    return np.transpose(arrays[0], _ints(arrays[1]))


def _first(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    return arrays[0]


STRUCTURAL: dict[str, Fold] = {
    "StridedSlice": strided_slice, "Reshape": _reshape, "Squeeze": _squeeze, "Slice": _slice,
    "Gather": _gather, "GatherV2": _gather, "Pack": _pack, "ConcatV2": _concat, "Fill": _fill,
    "Tile": _tile, "ReverseV2": _reverse, "ExpandDims": _expand_dims, "Transpose": _transpose,
}  # fmt: skip


# -- for numbers only ------------------------------------------------------------------------------


def _elementwise(function: Callable[..., Any]) -> Fold:
    def apply(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
        del attributes
        if max(a.size for a in arrays) > MOST:
            raise ValueError("too many")
        return np.asarray(function(*arrays))

    return apply


def _arithmetic(function: Callable[..., Any]) -> Fold:
    apply = _elementwise(function)
    return lambda arrays, attributes: apply(arrays, attributes).astype(arrays[0].dtype)


def _reduce(function: Callable[..., Any]) -> Fold:
    def apply(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
        axes = tuple(_ints(arrays[1]))
        keep = bool(attributes.get("keep_dims", False))
        return np.asarray(function(arrays[0], axis=axes, keepdims=keep)).astype(arrays[0].dtype)

    return apply


def _truncate(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)))


def _cast(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    kind = attributes.get("DstT")
    if kind not in CAST:
        raise ValueError("a type that is not followed")
    return arrays[0].astype(kind)


def _range(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    start, limit, delta = (a.item() for a in arrays)
    if abs((limit - start) / delta) > MOST:
        raise ValueError("too many")
    return np.arange(start, limit, delta).astype(arrays[0].dtype)


def _broadcast_arguments(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    shapes = [tuple(_ints(a)) for a in arrays]
    return np.asarray(np.broadcast_shapes(*shapes), arrays[0].dtype)


def _select(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    condition, a, b = arrays
    return np.asarray(np.where(condition, a, b)).astype(a.dtype)


NUMBERS: dict[str, Fold] = {
    "Add": _arithmetic(np.add), "AddV2": _arithmetic(np.add), "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply), "FloorDiv": _arithmetic(np.floor_divide),
    "FloorMod": _arithmetic(np.mod), "RealDiv": _arithmetic(np.true_divide),
    "Div": _arithmetic(_truncate), "TruncateDiv": _arithmetic(_truncate),
    "Maximum": _arithmetic(np.maximum), "Minimum": _arithmetic(np.minimum),
    "Neg": _arithmetic(np.negative), "Abs": _arithmetic(np.abs), "Sign": _arithmetic(np.sign),
    "Floor": _arithmetic(np.floor), "Ceil": _arithmetic(np.ceil), "Round": _arithmetic(np.rint),
    "Sqrt": _arithmetic(np.sqrt), "Square": _arithmetic(np.square), "Exp": _arithmetic(np.exp),
    "Rsqrt": _arithmetic(lambda x: 1 / np.sqrt(x)), "Pow": _arithmetic(np.power),
    "AddN": lambda arrays, _: np.asarray(sum(arrays)).astype(arrays[0].dtype),
    "Less": _elementwise(np.less), "LessEqual": _elementwise(np.less_equal),
    "Greater": _elementwise(np.greater), "GreaterEqual": _elementwise(np.greater_equal),
    "Equal": _elementwise(np.equal), "NotEqual": _elementwise(np.not_equal),
    "LogicalAnd": _elementwise(np.logical_and), "LogicalOr": _elementwise(np.logical_or),
    "LogicalNot": _elementwise(np.logical_not),
    "Prod": _reduce(np.prod), "Sum": _reduce(np.sum), "Max": _reduce(np.max),
    "Min": _reduce(np.min), "All": _reduce(np.all), "Any": _reduce(np.any),
    "Cast": _cast, "Range": _range, "Select": _select, "SelectV2": _select,
    "BroadcastArgs": _broadcast_arguments,
}  # fmt: skip


# -- for symbolic dimensions -----------------------------------------------------------------------


def _by_element(function: Callable[[Dim, Dim], Any]) -> Fold:
    def apply(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
        del attributes
        a, b = np.broadcast_arrays(*arrays)
        result = np.empty(a.shape, object)
        result.reshape(-1)[:] = [
            function(m, n) for m, n in zip(a.reshape(-1), b.reshape(-1), strict=True)
        ]
        return result

    return apply


def _compare(function: Callable[[int, int], bool]) -> Callable[[Dim, Dim], bool | None]:
    def apply(a: Dim, b: Dim) -> bool | None:
        difference = dims.sub(a, b)
        return function(difference, 0) if isinstance(difference, int) else None

    return apply


def _product(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    x = arrays[0]
    axes = {a + x.ndim if a < 0 else a for a in _ints(arrays[1])}
    if x.ndim != 1 or axes != {0}:
        raise ValueError("more than one axis")
    result = np.empty((1,) if attributes.get("keep_dims") else (), object)
    result[...] = dims.product(list(x))
    return result


def _total(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    x = arrays[0]
    if x.ndim != 1 or attributes.get("keep_dims"):
        raise ValueError("more than one axis")
    total: Dim = 0
    for n in x:
        total = dims.add(total, n)
    result = np.empty((), object)
    result[()] = total
    return result


def _kept_whole(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    if attributes.get("DstT") not in ("int32", "int64"):
        raise ValueError("names of what is no integer")
    return arrays[0]


def _chosen(arrays: Arrays, attributes: Mapping[str, Any]) -> np.ndarray:
    del attributes
    condition, a, b = np.broadcast_arrays(*arrays)
    result = np.empty(a.shape, object)
    for i in np.ndindex(a.shape):
        which: object = condition[i]
        result[i] = None if which is None else (a if which else b)[i]
    return result


NAMED: dict[str, Fold] = {
    "Add": _by_element(dims.add), "AddV2": _by_element(dims.add), "Sub": _by_element(dims.sub),
    "Mul": _by_element(dims.mul), "FloorDiv": _by_element(dims.floordiv),
    "FloorMod": _by_element(dims.modulo), "Div": _by_element(dims.floordiv),
    "TruncateDiv": _by_element(dims.floordiv),
    "Maximum": _by_element(dims.most), "Minimum": _by_element(dims.least),
    "Equal": _by_element(_compare(operator.eq)), "NotEqual": _by_element(_compare(operator.ne)),
    "Less": _by_element(_compare(operator.lt)), "Greater": _by_element(_compare(operator.gt)),
    "LessEqual": _by_element(_compare(operator.le)),
    "GreaterEqual": _by_element(_compare(operator.ge)),
    "Prod": _product, "Sum": _total, "Cast": _kept_whole, "Select": _chosen, "SelectV2": _chosen,
    "Identity": _first,
}  # fmt: skip
