"""Convert graphs to plain data and back, for the answers of child processes.

Data from a child process are untrusted and validated like a file: undefined names, unknown domains
and dtypes, invalid shapes, cycles. The rules of the operators themselves are checked by onnx where
it is installed (`problem`).
"""

import base64
import binascii
import importlib.util
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from converter.lower.element_types import ELEMENT_TYPES, numpy_type
from converter.lower.emit import DOMAINS
from converter.lower.graph import Attribute, Graph, Node, Shape, Spec, Weight
from converter.lower.node_builder import MAX_FLOAT

OP_TYPE = re.compile(r"[A-Z][A-Za-z0-9_]{0,99}\Z")
MAX_CONSTANT_BYTES = 64 << 20
MAX_DEPTH = 8  # of nested subgraphs
MAX_RANK = 64


class MalformedGraphError(ValueError):
    """The data do not describe a valid graph."""


# -- encoding ------------------------------------------------------------------------------------


def encode(graph: Graph) -> dict[str, Any]:
    """Return a graph as data for JSON.

    Raises:
        ValueError: The graph contains a value that cannot be encoded.
    """
    return {
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "specs": {name: [s.dtype, list(s.shape)] for name, s in graph.specs.items()},
        "initializers": {
            name: {"weight": i.tensor} if isinstance(i, Weight) else _encode(i)
            for name, i in graph.initializers.items()
        },
        "nodes": [
            [n.op_type, n.inputs, n.outputs, {k: _encode(v) for k, v in n.attributes.items()},
             n.domain]
            for n in graph.nodes
        ],
    }  # fmt: skip


def _encode(value: Any) -> dict[str, Any]:
    if isinstance(value, Graph):
        return {"graph": encode(value)}
    if isinstance(value, np.ndarray):
        shape = list(value.shape)
        if value.dtype.kind in "OUS":
            return {"texts": [str(text) for text in value.flat], "shape": shape}
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"dtype": value.dtype.name, "shape": shape, "data": data}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float | np.floating):
        return {"float": repr(float(value))}  # JSON has no infinity
    if isinstance(value, list | tuple) and any(isinstance(v, float) for v in value):
        return {"floats": [repr(float(v)) for v in value]}
    if isinstance(value, list | tuple):
        return {"value": [v.item() if isinstance(v, np.generic) else v for v in value]}
    if isinstance(value, bool | int | str):
        return {"value": value}
    raise ValueError(f"an attribute of type {type(value).__name__}")


# -- decoding ------------------------------------------------------------------------------------


def decode(
    content: Any, name: str, opset: int, given: Sequence[str], weights: Mapping[str, Any]
) -> Graph:
    """Return the graph that plain data describes.

    Args:
        content: Plain data.
        name: Name for the graph.
        opset: Opset of the graph.
        given: Names that the graph's inputs must have.
        weights: Weights that its initializers may name.

    Raises:
        MalformedGraphError: The data do not describe a valid graph.
    """
    try:
        graph = _decode(content, name, opset, 0, frozenset())
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as e:
        if isinstance(e, MalformedGraphError):
            raise
        raise MalformedGraphError(f"its description is malformed ({e!r:.200})") from e
    _require(graph.inputs == list(given), "its inputs are not those that the lowering was given")
    for initializer in graph.initializers.values():
        if isinstance(initializer, Weight):
            _require(initializer.tensor in weights, f"unknown weight {initializer.tensor!r:.80}")
    return graph


def _require(holds: object, found: str) -> None:
    if not holds:
        raise MalformedGraphError(found)


def _decode(content: Any, name: str, opset: int, depth: int, outside: frozenset[str]) -> Graph:
    _require(depth < MAX_DEPTH, f"subgraphs nested deeper than {MAX_DEPTH}")
    graph = Graph(name, opset, inputs=_names(content["inputs"]), outputs=_names(content["outputs"]))
    graph.specs = {str(k): _spec(dtype, shape) for k, (dtype, shape) in content["specs"].items()}
    for key, value in content["initializers"].items():
        if "weight" in value:
            graph.initializers[key] = Weight(str(value["weight"]))
        else:
            array = _attribute(value, opset, depth, frozenset())
            _require(isinstance(array, np.ndarray), f"initializer {key!r:.80} is not an array")
            assert isinstance(array, np.ndarray)
            graph.initializers[key] = array
    made = set(outside) | set(graph.initializers)
    _fresh(graph.inputs, made)
    for op_type, inputs, outputs, attributes, domain in content["nodes"]:
        _require(
            isinstance(op_type, str) and OP_TYPE.match(op_type), f"an operator {op_type!r:.80}"
        )
        _require(domain in ("", *DOMAINS), f"an operator of domain {domain!r:.80}")
        for wanted in _names(inputs):
            _require(
                not wanted or wanted in made, f"{op_type} reads {wanted!r:.80}, which is undefined"
            )
        read = {
            str(k): _attribute(v, opset, depth + 1, frozenset(made)) for k, v in attributes.items()
        }
        _fresh(_names(outputs), made)
        graph.nodes.append(Node(op_type, list(inputs), list(outputs), read, "", domain))
    for wanted in graph.outputs:
        _require(wanted in made, f"an output {wanted!r:.80}, which is undefined")
    return graph


def _names(names: Any) -> list[str]:
    _require(isinstance(names, list) and all(isinstance(n, str) for n in names), "invalid names")
    return list(names)


def _fresh(names: Sequence[str], made: set[str]) -> None:
    for name in names:
        _require(name and name not in made, f"two values called {name!r:.80}")
        made.add(name)


def _spec(dtype: Any, shape: Any) -> Spec:
    _require(dtype in ELEMENT_TYPES, f"dtype {dtype!r:.80}")
    _require(isinstance(shape, list) and len(shape) <= MAX_RANK, f"shape {shape!r:.80}")
    for n in shape:
        fits = n is None or isinstance(n, str) or (type(n) is int and 0 <= n < 1 << 62)
        _require(fits, f"a size {n!r:.80}")
    return Spec(dtype, tuple(shape))


def _attribute(value: Any, opset: int, depth: int, outside: frozenset[str]) -> Attribute:
    (kind,) = {"graph", "texts", "dtype", "bytes", "float", "floats", "value"} & set(value)
    if kind == "graph":
        return _decode(value["graph"], "body", opset, depth, outside)
    if kind in ("texts", "dtype"):
        return _array(value)
    if kind == "bytes":
        return base64.b64decode(value["bytes"], validate=True)
    if kind == "float":
        return _single(value["float"])
    if kind == "floats":
        return [_single(text) for text in value["floats"]]
    found: Attribute = value["value"]
    for part in found if isinstance(found, list) else [found]:
        fits = isinstance(part, str) or (isinstance(part, int) and -(1 << 63) <= part < 1 << 63)
        _require(fits, f"an attribute {part!r:.80}")
    return found


def _single(text: str) -> float:
    number = float(text)
    _require(not MAX_FLOAT < abs(number) < float("inf"), f"{text} does not fit a 32-bit float")
    return number


def _array(value: Any) -> np.ndarray:
    shape = tuple(value["shape"])
    _require(all(type(n) is int and n >= 0 for n in shape), f"shape {shape!r:.80}")
    if "texts" in value:
        return np.array([str(t) for t in value["texts"]], object).reshape(shape)
    dtype = numpy_type(value["dtype"])
    _require(dtype.kind != "O" and prod(shape) * dtype.itemsize <= MAX_CONSTANT_BYTES, "its size")
    try:
        data = base64.b64decode(value["data"], validate=True)
    except binascii.Error as e:
        raise MalformedGraphError("the bytes of a constant are not valid base64") from e
    return np.frombuffer(data, dtype).reshape(shape)


def problem(model: bytes, specs: Mapping[str, Spec]) -> str:
    """Return why onnx rejects a model; an empty string if it is valid or onnx is not installed.

    Args:
        model: Serialized ModelProto.
        specs: Declared dtypes and shapes of values, which must agree with those that onnx infers.
    """
    if importlib.util.find_spec("onnx") is None:
        return ""
    import onnx

    try:
        proto = onnx.load_model_from_string(model)
        onnx.checker.check_model(proto)
        inferred = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except Exception as e:  # noqa: BLE001 - onnx raises many types of errors
        return " ".join(str(e).split())[:300]
    for info in [*inferred.graph.value_info, *inferred.graph.output]:
        kind = info.type.tensor_type
        if info.name not in specs or not kind.elem_type:
            continue
        spec = specs[info.name]
        if kind.elem_type != ELEMENT_TYPES[spec.dtype]:
            return f"{info.name} is not {spec.dtype}, as the lowering says"
        if kind.HasField("shape") and not _same(spec.shape, kind.shape.dim):
            sizes = [d.dim_value or d.dim_param or None for d in kind.shape.dim]
            return f"{info.name} has the shape {sizes}, not {list(spec.shape)}"
    return ""


def _same(shape: Shape, dims: Sequence[Any]) -> bool:
    if len(shape) != len(dims):
        return False
    return all(
        not isinstance(n, int) or not d.HasField("dim_value") or d.dim_value == n
        for n, d in zip(shape, dims, strict=True)
    )
