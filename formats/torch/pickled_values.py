"""Values of a decoded torch pickle: their children by name, and whether they are tensors."""

import base64
from collections.abc import Iterator
from math import isfinite
from typing import TypeGuard

from formats.containers.pickle.values import Global, Map, Odd, Record, SetOf
from formats.core.bundle import JSON
from formats.limits import KIB
from formats.torch.globals import legacy_tensor
from formats.torch.numpy_globals import NumpyArray, NumpyScalar, NumpyType
from formats.torch.tensor_values import StorageRef, TensorValue

SCALARS = frozenset({type(None), bool, int, float, str})
SCRIPT_NOISE = frozenset({"training", "_is_full_backward_hook"})


def key_text(key: object) -> str:
    """Return a dict key, or another name, as text."""
    if type(key) is str:
        return key
    if isinstance(key, bytes):
        return key[: 2 * KIB].decode("utf-8", "backslashreplace")
    if isinstance(key, Odd):
        return _odd_text(key.value)
    return str(key)


def _odd_text(value: object) -> str:
    if isinstance(value, tuple):
        inside = ", ".join(str(v)[:80] if type(v) in SCALARS else "…" for v in value[:16])
        return f"({inside})"
    if isinstance(value, Global):
        return value.name
    if isinstance(value, Record):
        inside = ", ".join(str(v)[:80] for v in value.args[:4] if type(v) in SCALARS)
        return f"{value.cls}({inside})"
    if isinstance(value, NumpyScalar):
        return str(value.value)[:80]
    if isinstance(value, int):
        return hex(value)
    return type(value).__name__


def plain(value: object) -> JSON:
    """Return a scalar as JSON can hold it: JSON knows no infinities, and no bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, complex) or (isinstance(value, float) and not isfinite(value)):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 64:
        return hex(value)
    return value if isinstance(value, (bool, int, float)) else None


def leaf_text(value: object) -> str | None:
    """Return what has nothing inside, and is no scalar, in words."""
    if isinstance(value, complex):
        return str(value)
    if isinstance(value, Global):
        return value.name
    if isinstance(value, NumpyType):
        return f"numpy.{value.code[:80]}"
    if isinstance(value, Record) and value.cls == "torch.device":
        return ":".join(str(a)[:80] for a in value.args[:2] if isinstance(a, (str, int)))
    return _odd_text(value.value) if isinstance(value, Odd) else None


def as_tensor(value: object) -> TensorValue | None:
    """Return what is a tensor in any of the ways that pickles have for one, or None."""
    if isinstance(value, TensorValue):
        return value
    if isinstance(value, Record):
        return legacy_tensor(value)
    if isinstance(value, NumpyArray):
        return value.tensor
    if isinstance(value, StorageRef):
        elements = value.nbytes // value.type.itemsize * value.type.per_byte
        return TensorValue("strided", value.type, (elements,), storage=value)
    return None


def row(value: object) -> tuple[int, ...] | None:
    """Return sizes or offsets, or None where they are none."""
    if isinstance(value, (tuple, list)) and len(value) <= 64:
        numbers = tuple(n for n in value if type(n) is int)
        if len(numbers) == len(value):
            return numbers
    return None


def is_module(record: Record) -> bool:
    """Return whether an object keeps tensors as `torch.nn.Module` does."""
    state = state_dict(record)
    return isinstance(state.get("_parameters"), dict) and isinstance(state.get("_modules"), dict)


def state_dict(record: Record) -> dict[object, object]:
    """Return an object's attributes by name, or nothing where its state is no dict."""
    state = record.state[0] if record.state else None
    return state if isinstance(state, dict) else {}


def list_children(value: object) -> Iterator[tuple[str, object]]:
    """Yield what is directly inside a container, with its name."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield key_text(key), child
        if isinstance(value, Map) and value.state:
            yield from attributes(value.state)
    elif isinstance(value, (list, tuple)):
        for i, child in enumerate(value):
            yield str(i), child
    elif isinstance(value, SetOf):
        for i, child in enumerate(value.items):
            yield str(i), child
    elif isinstance(value, NumpyArray):
        for i, child in enumerate(value.objects or ()):
            yield str(i), child
    elif isinstance(value, Record):
        for i, child in enumerate(value.args):
            yield str(i), child
        for state in value.state:
            if value.cls.startswith("__torch__."):
                yield from script_attributes(value.cls, state)
            elif value.cls == "torch.ScriptObject" and _is_named_state(state):
                yield from script_attributes(state[1], state[0])
            else:
                yield from attributes(state)
        for i, child in enumerate(value.items):
            yield str(i), child
        for key, child in value.pairs.items():
            yield key_text(key), child


def _is_named_state(state: object) -> TypeGuard[tuple[object, str]]:
    """Return whether a state is ``(the object's own state, name of its TorchScript class)``."""
    return isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], str)


def width(value: object) -> int:
    """Return about how many values are directly inside a container."""
    if isinstance(value, Record):
        states = sum(len(s) for s in value.state if isinstance(s, (dict, list, tuple)))
        return len(value.args) + len(value.items) + len(value.pairs) + states
    if isinstance(value, SetOf):
        return len(value.items)
    if isinstance(value, NumpyArray):
        return len(value.objects or ())
    return len(value) if isinstance(value, (dict, list, tuple)) else 0


def attributes(state: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes that a state given to BUILD sets."""
    if isinstance(state, dict):
        for key, child in state.items():
            yield key_text(key), child
    elif isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        if state[0] is not None:  # (attributes, slots)
            yield from attributes(state[0] if isinstance(state[0], dict) else (state[0],))
        yield from attributes(state[1])
    elif isinstance(state, (tuple, list)):
        for i, child in enumerate(state):
            yield str(i), child
    elif state is not None:
        yield "state", state


def script_attributes(cls: str, state: object) -> Iterator[tuple[str, object]]:
    """Yield what a TorchScript object holds, packed parameters by their roles.

    Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/quantized/cpu/conv_serialization.h
    """
    if not isinstance(state, tuple) or "quantized" not in cls:
        for key, child in attributes(state):
            if key not in SCRIPT_NOISE:
                yield key, child
        return
    values: list[object] = list(state)
    if "Conv" in cls and len(state) == 3 and all(isinstance(s, (list, tuple)) for s in state[1:]):
        # Version 2: [parameters, weight], [bias]; version 3: [numbers], [None, weight, bias].
        lists = [x for s in state[1:] if isinstance(s, (list, tuple)) for x in s]
        values = [state[0], *(lists[1:] if state[0] == "2" else lists)]
    weights = [i for i, v in enumerate(values) if _is_weight(v)]
    for i, child in enumerate(values):
        if len(weights) == 1 and i == weights[0]:
            yield "weight", child
        elif len(weights) == 1 and i == weights[0] + 1 and isinstance(child, TensorValue):
            yield "bias", child
        else:
            yield str(i), child


def _is_weight(value: object) -> bool:
    return isinstance(value, TensorValue) and (value.layout == "quantized" or len(value.shape) > 1)
