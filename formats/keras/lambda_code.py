"""Functions of Keras Lambda layers, as configurations record them, read as data.

| written by | what is under ``function``, ``output_shape`` or ``mask`` |
|---|---|
| Keras 0, 1 and 2.0 | ``[code, defaults, closure]``, the code's bytes one character each |
| Keras 2.1 on, tf.keras | the same with the code in base64; ``function_type`` is ``lambda`` |
| tf.keras, in a SavedModel | the same in ``{"class_name": "__tuple__", "items": [...]}`` |
| Keras 3 | ``{"class_name": "__lambda__", "config": {"code":, "defaults":, "closure":}}`` |
| tf_keras, in ``.keras`` | ``{"class_name": "__lambda__", "config": {"value": [...]}}`` |

Defaults of keyword-only parameters are recorded by none of them.

Source: `func_dump` and `func_load` in
https://github.com/keras-team/keras/blob/v3.5.0/keras/src/utils/python_utils.py
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

from formats.errors import CorruptError, UnsupportedError
from formats.python_bytecode import Code, read_code

JSON: TypeAlias = Any  # as `json.loads` gives it

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_DEEPEST = 50
_INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
_DTYPES = frozenset(("bool", *_INTEGERS, "float16", "float32", "float64"))


@dataclass(frozen=True, slots=True)
class Function:
    """A function that was recorded whole.

    Attributes:
        code: Its body and the names of its parameters.
        defaults: Of the last positional parameters, as many as there are.
        closure: What the variables of `Code.free` are, in that order.

    Defaults and closures are what JSON has, tuples where they are said to be such, `bytes`,
    `slice`, `Ellipsis`, and numpy's arrays. A Function inside them was one there too. Keras 1 and 2
    write lists for tuples, and a function's or a class's bare name for it.
    """

    code: Code
    defaults: tuple[Any, ...] = ()
    closure: tuple[Any, ...] = ()


def is_function(config: JSON) -> bool:
    """Return whether a value is a function recorded as code, not a name, a shape or None."""
    return _parts(config) is not None


def function_of(config: JSON) -> Function:
    """Return the function that a Lambda layer's configuration holds.

    Args:
        config: What is under ``function``, ``output_shape`` or ``mask``; `is_function` is so.

    Raises:
        CorruptError: It is no function, or its code is damaged.
        UnsupportedError: Its code cannot be said in steps.
        LimitError: It is larger than any function.
    """
    return _function(config, 0)


def _function(config: JSON, depth: int) -> Function:
    parts = _parts(config)
    if parts is None:
        raise CorruptError("a Lambda layer's function is not recorded as code")
    text, defaults, closure = parts
    code = read_code(_bytes(text))
    function = Function(
        code, _values(defaults, "defaults", depth), _values(closure, "closure", depth)
    )
    if len(function.defaults) > len(code.positional):
        raise CorruptError(
            f"function {code.name!r} has {len(code.positional)} parameters"
            f" and {len(function.defaults)} defaults"
        )
    if len(function.closure) != len(code.free):
        raise CorruptError(
            f"function {code.name!r} uses {len(code.free)} variables from around it"
            f" and {len(function.closure)} are recorded"
        )
    return function


def _parts(config: JSON) -> tuple[str, JSON, JSON] | None:
    """Return the code's text, the defaults and the closure, still as they are written."""
    if isinstance(config, dict):
        kind, inside = config.get("class_name"), config.get("config")
        if kind == "__lambda__" and isinstance(inside, dict):
            parts = [inside.get(part) for part in ("code", "defaults", "closure")]
            config = inside.get("value", parts)
    if isinstance(config, dict) and config.get("class_name") == "__tuple__":
        config = config.get("items")
    if isinstance(config, (list, tuple)) and len(config) == 3 and isinstance(config[0], str):
        return config[0], config[1], config[2]
    return None


def _bytes(text: str) -> bytes:
    """Return a code's bytes from base64, or from characters that stand for one byte each."""
    if _BASE64.fullmatch(text):
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except binascii.Error:
            pass
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        # A backslash, u and four digits among the bytes were read as one character.
        try:
            return text.encode("raw_unicode_escape")
        except UnicodeEncodeError as e:  # half of a pair of surrogates
            raise CorruptError("a Lambda layer's code is no text of bytes") from e


def _values(config: JSON, what: str, depth: int) -> tuple[Any, ...]:
    values = _value(config, depth)
    if values is None:
        return ()
    if not isinstance(values, (list, tuple)):
        raise CorruptError(f"a function's {what} are a {type(values).__name__}, no list")
    return tuple(values)


def _value(config: JSON, depth: int) -> Any:
    """Return what a recorded value was, where Keras says what it was."""
    if depth > _DEEPEST:
        raise CorruptError("a function's defaults are nested too deeply")
    if isinstance(config, list):
        return [_value(part, depth + 1) for part in config]
    if not isinstance(config, dict):
        return config
    kind, inside = config.get("class_name"), config.get("config")
    if not isinstance(kind, str):
        return {key: _value(part, depth + 1) for key, part in config.items()}
    if kind == "__tuple__" and isinstance(config.get("items"), list):
        return tuple(_value(part, depth + 1) for part in config["items"])
    if kind == "__ellipsis__":
        return ...
    if kind == "__lambda__":
        return _function(config, depth + 1)
    if kind == "__bytes__" and isinstance(inside, dict) and isinstance(inside.get("value"), str):
        return inside["value"].encode()
    if kind == "__slice__" and isinstance(inside, dict):
        return slice(*(_value(inside.get(part), depth + 1) for part in ("start", "stop", "step")))
    if kind in ("__numpy__", "__tensor__") and isinstance(inside, dict):
        return _array(inside)
    raise UnsupportedError(f"not supported: a function's default or closure that is a {kind!r}")


def _array(config: dict[str, JSON]) -> Any:
    import numpy as np

    dtype = config.get("dtype")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise UnsupportedError(f"not supported: a function's default of type {dtype!r}")
    try:
        return np.array(config.get("value"), dtype=dtype)
    except (TypeError, ValueError, OverflowError) as e:
        raise CorruptError("a function's default is no array of the recorded type") from e
