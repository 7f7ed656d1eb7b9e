"""Lambda: a function of the model's author, kept as bytecode, which is read and never run.

Its steps are walked with the layer's tensors (`converter.lower.keras.lambda_machine`), and what it
calls is looked up by name in our own tables. What that leaves open, for only running it would tell,
is not supported, and the message names it; a trusted module can define the function
(``--trust``).
Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/layers/core/lambda_layer.py
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.element_types import ELEMENT_TYPES
from converter.lower.keras.activations import FUNCTIONS, LAMBDA
from converter.lower.keras.lambda_calls import Names
from converter.lower.keras.lambda_machine import Machine
from converter.lower.keras.lambda_names import Setting
from converter.lower.keras.lambda_values import Budget, Cell, Closure, list_elements
from converter.lower.keras.operations.operands import tensor
from converter.lower.keras.table import Masked, Roles, Unsupported, keras_layer
from converter.lower.values import Value
from formats.errors import ConvertError
from formats.keras.lambda_code import Function, function_of, is_function


@keras_layer("Lambda")
def lambda_(
    op: Builder, w: Roles, *tensors: Value, structure: Any, function: Any,
    output_shape: Any = None, own_mask: Any = None, arguments: Mapping[str, Any] | None = None,
    function_type: Any = None, output_shape_type: Any = None, module: Any = None,
    output_shape_module: Any = None, mask_type: Any = None, mask_module: Any = None,
    setting: Sequence[Any] = (), mask: Any = None,
) -> Any:  # fmt: skip
    """The function of the layer, interpreted from its bytecode without running it."""
    del output_shape, output_shape_type, output_shape_module, function_type, module
    del mask_type, mask_module
    names = Names(op, w, Setting(*setting))
    if name := function_name(function):
        raise Unsupported(f"its function {name} is not in the file")
    called = closure_of(function)
    given = {name: read_argument(value) for name, value in (arguments or {}).items()}
    code = called.code
    if "mask" in (*code.positional[1:], *code.keyword_only):
        given["mask"] = mask
    if "training" in (*code.positional[1:], *code.keyword_only):
        given.setdefault("training", False)
    machine = Machine(names, names.spent)
    result = machine.walk(called, [structure], given)
    own = None
    if is_function(own_mask):
        own = machine.walk(closure_of(own_mask), [structure, mask], {})
        if not isinstance(own, Value | None):
            raise Unsupported("its mask is not one tensor")
    elif own_mask is not None:
        raise Unsupported("a mask that is not a function in the file")
    note(op, w, names.read)
    if called.cells:
        _compare(op, w, names.spent, (str(function), str(arguments), *(x.name for x in tensors)))
    made = _tensors(op, result)
    return made if own is None else Masked(made, own)


def apply_lambda(op: Builder, x: Value, config: Any) -> Value:
    """Apply an activation that is a function of the author's: Keras 3 keeps its code.

    Raises:
        Unsupported: It does what we do not.
    """
    names = Names(op, Roles(op, "activation", {}), Setting(3, 2))
    result = Machine(names, names.spent).walk(closure_of(config), [x], {})
    if not isinstance(result, Value):
        raise Unsupported("an activation that gives more than a tensor")
    note(op, Roles(op, "of an activation", {}), names.read)
    return result


FUNCTIONS[LAMBDA] = apply_lambda


def closure_of(config: Any) -> Closure:
    """Return a recorded function.

    Raises:
        Unsupported: Its code cannot be read.
    """
    try:
        return _closure(function_of(config))
    except ConvertError as e:
        raise Unsupported(e.found.removeprefix("not supported: ")) from e


def _closure(function: Function) -> Closure:
    defaults = tuple(_plain(value) for value in function.defaults)
    return Closure(function.code, defaults, {}, tuple(Cell([_plain(c)]) for c in function.closure))


def _plain(value: Any) -> Any:
    if isinstance(value, Function):
        return _closure(value)
    if isinstance(value, list | tuple):
        return type(value)(_plain(part) for part in value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return value


def read_argument(value: Any) -> Any:
    """Return one of a Lambda's arguments as it was: Keras 2 and 3 write arrays as dicts.

    Raises:
        Unsupported: It is an object.
    """
    if isinstance(value, list):
        return [read_argument(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    kind, inside = value.get("class_name"), value.get("config")
    if value.get("type") == "ndarray" and "value" in value:
        return _array(value["value"], None)
    if kind == "__tuple__" and isinstance(value.get("items"), list):
        return tuple(read_argument(part) for part in value["items"])
    if kind in ("__numpy__", "__tensor__") and isinstance(inside, Mapping):
        return _array(inside.get("value"), str(inside.get("dtype")))
    if is_function(value):
        return closure_of(value)
    if kind is not None:
        raise Unsupported(f"an argument that is a {kind!s:.40}")
    return {str(key): read_argument(part) for key, part in value.items()}


def _array(value: Any, dtype: str | None) -> np.ndarray:
    if dtype is not None and dtype not in ELEMENT_TYPES:
        raise Unsupported(f"an array of {dtype!r:.40}")
    try:
        made = np.array(value, dtype)
    except (TypeError, ValueError, OverflowError) as e:
        raise Unsupported("an argument that is no array") from e
    if made.dtype.kind not in "biuf":
        raise Unsupported(f"an array of {made.dtype}")
    return made


def function_name(function: Any) -> str | None:
    """Return the name of a function that is recorded by it alone; None where its code is there."""
    if is_function(function):
        return None
    name = function.get("config") if isinstance(function, Mapping) else function
    return repr(name)[:60] if isinstance(name, str) else "of an unknown form"


def _tensors(op: Builder, result: Any) -> Any:
    """Return what a function gives, as tensors.

    Raises:
        Unsupported: It gives something else.
    """
    if isinstance(result, Value):
        return result
    if isinstance(result, list | tuple):
        return [_tensors(op, part) for part in list_elements(result)]
    if isinstance(result, bool | int | float | np.ndarray):
        return tensor(op, result)
    raise Unsupported(f"its function gives a {type(result).__name__}")


def _compare(op: Builder, w: Roles, spent: Budget, key: object) -> None:
    """Say of a function that it is one that another layer is already, on the same input.

    Of Lambdas that a loop makes, Keras writes the variables around them as they are at its end.
    """
    other = spent.seen.setdefault(key, w.layer)
    if other != w.layer:
        op.graph.notes.append(
            f"Lambda {w.layer} is the same function of the same input as {other}: where a loop made"
            " both, the file has its variables as they were after the last round"
        )


def note(op: Builder, w: Roles, read: Mapping[str, str]) -> None:
    """Say in the graph's notes that code was read, and as what its names were."""
    names = ", ".join(f"{name!r} as {meaning}" for name, meaning in sorted(read.items()))
    taken = f", {names}" if names else ""
    text = f"Lambda layer {w.layer}: its code was read, not run{taken}"
    if text not in op.graph.notes:
        op.graph.notes.append(text)
