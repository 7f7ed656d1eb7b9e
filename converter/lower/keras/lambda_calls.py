"""Calls of library functions in a Lambda's function, which become nodes of the graph.

The module that a function came from is recorded nowhere: `tf`, `K`, `np` and the like are read as
what everybody calls so, which `Names.read` keeps for the graph's notes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from math import inf
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.keras import lambda_names
from converter.lower.keras import lambda_numpy as arrays
from converter.lower.keras import lambda_python as py
from converter.lower.keras import lambda_tensors as tensors
from converter.lower.keras import lambda_values as v
from converter.lower.keras.activations import FUNCTIONS
from converter.lower.keras.inner_layers import call_layer
from converter.lower.keras.lambda_control import CHOICES
from converter.lower.keras.lambda_images import preprocess
from converter.lower.keras.lambda_machine import Machine
from converter.lower.keras.lambda_names import Setting
from converter.lower.keras.lambda_values import Closure, Dtype, Made, Method, Named
from converter.lower.keras.table import Masked, Roles, Row
from converter.lower.keras.tensorflow_ops.elementwise import BINARY
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

# Of all the Lambdas of a model together.
MOST_NODES = 5_000
MOST_BYTES = 1 << 27  # of constants
OTHERS = ("jax", "torch", "theano")  # backends whose tensors are not TensorFlow's
SCOPES = ("name_scope", "device", "control_dependencies", "init_scope", "variable_scope")
# Functions of keras.layers that make a layer and call it.
MERGES = {
    "add": "Add", "average": "Average", "concatenate": "Concatenate", "dot": "Dot",
    "maximum": "Maximum", "minimum": "Minimum", "multiply": "Multiply", "subtract": "Subtract",
}  # fmt: skip
# What is given first to layers that are made with one argument, by position.
ALONE = {
    "Activation": "activation", "Cropping1D": "cropping", "Cropping2D": "cropping",
    "AveragePooling1D": "pool_size", "AveragePooling2D": "pool_size", "Permute": "dims",
    "MaxPooling1D": "pool_size", "MaxPooling2D": "pool_size", "MaxPool2D": "pool_size",
    "RepeatVector": "n", "Reshape": "target_shape", "UpSampling1D": "size",
    "UpSampling2D": "size", "ZeroPadding1D": "padding", "ZeroPadding2D": "padding",
}  # fmt: skip
# What the first argument of TensorFlow's functions is called, where it is given by name.
FIRST = frozenset((
    "a", "data", "features", "image", "images", "input", "input_", "input_tensor", "inputs",
    "logits", "params", "t", "tensor", "tensors", "value", "values", "x",
))  # fmt: skip
# Keras's order of arguments, where it is not that of the handler.
ORDERS = {
    "keras.ops.average": ("x", "axis", "weights"),
    "keras.ops.full": ("shape", "fill_value", "dtype"),
    "keras.ops.pad": ("x", "pad_width", "mode", "constant_values"),
}
# Functions whose numbers size nothing; and how large those may be that others are given.
NUMBERS = frozenset(
    (
        *BINARY,
        "div",
        "divide",
        "truediv",
        "clip",
        "clip_by_value",
        "constant",
        "fill",
        "full",
        "where",
    )
)
MOST: dict[tuple[str, ...], int] = {
    ("resize",): 1 << 13,
    ("eye", "tri", "diag", "split", "unstack", "unpack"): 1 << 11,
    ("extract", "max_pool", "avg_pool", "pool", "conv", "central"): 1 << 13,
}
END = 2**31 - 1  # of a slice
OPERATIONS_AT = "converter.lower.keras.operations"


class Parts(list[Any]):
    """Several results that have names.

    Attributes:
        names: Theirs.
    """

    def __init__(self, values: list[Any], names: tuple[str, ...]) -> None:
        super().__init__(values)
        self.names = names


@dataclass(slots=True)
class Names:
    """The meaning of names in one call of a layer.

    Attributes:
        op: Builder.
        w: The layer's weights: a Lambda has none.
        setting: Setting of the model.
        read: Global name → what it was read as.
        nodes: How many there are.
        spent: Resources used so far.
    """

    op: Builder
    w: Roles
    setting: Setting
    read: dict[str, str] = field(default_factory=dict)
    nodes: int = 0
    spent: v.Budget = field(default_factory=v.Budget)

    def __post_init__(self) -> None:
        """Count from here on."""
        self.nodes = len(self.op.graph.nodes)
        if self.op.spent is None:
            self.op.spent = self.spent
        self.spent = self.op.spent
        self.spent.known = len(self.op.graph.initializers)

    # -- names and values ------------------------------------------------------------------------

    def lookup(self, name: str) -> Any:
        """Return the value of a global name."""
        found = lambda_names.resolve_global(name)
        if name in lambda_names.GLOBALS:
            self.read[name] = lambda_names.GLOBALS[name]
        return found

    def attribute(self, of: Any, name: str) -> Any:
        """Return an attribute."""
        if isinstance(of, Named):
            return lambda_names.member(of, name)
        if isinstance(of, Value):
            if name == "shape" and self.setting.backend == "theano":
                return tensors.function(self.op, "shape", of)
            return tensors.attribute(of, name)
        if isinstance(of, v.Sizes):
            return tensors.shape_attribute(of, name)
        if isinstance(of, Dtype):
            return tensors.dtype_attribute(of, name)
        if isinstance(of, np.ndarray):
            return arrays.array_attribute(of, name)
        if isinstance(of, Parts) and name in of.names:
            return of[of.names.index(name)]
        if isinstance(of, v.Scope) and name in ("__enter__", "__exit__"):
            return Method(of, name)
        if isinstance(of, Closure) and name == "__name__":
            return of.code.name
        return py.attribute(of, name)

    def binary(self, sign: str, a: Any, b: Any) -> Any:
        """Return ``a sign b``."""
        if not isinstance(a, Value) and not isinstance(b, Value):
            return v.binary(sign, a, b)
        if self.setting.backend in OTHERS and not any(_is_float(part) for part in (a, b)):
            raise Unsupported(
                f"{sign} of whole numbers, of which {self.setting.backend} has its own ideas"
            )
        return self._built(sign, lambda: tensors.binary(self.op, sign, a, b))

    def compare(self, sign: str, a: Any, b: Any) -> Any:
        """Return how two values compare."""
        if not isinstance(a, Value) and not isinstance(b, Value):
            return v.compare(sign, a, b)
        numbers = a is not None and b is not None
        if sign in ("==", "!=") and numbers and self.setting.tensorflow != 2:
            raise Unsupported(
                "== of tensors, which in TensorFlow 1 says whether they are the same one"
            )
        return self._built(sign, lambda: tensors.compare(self.op, sign, a, b))

    def unary(self, sign: str, a: Value) -> Any:
        """Return ``-a`` and the like."""
        return self._built(sign, lambda: tensors.unary(self.op, sign, a))

    def item(self, of: Value, key: Any) -> Any:
        """Return ``of[key]``."""
        return self._built("[]", lambda: tensors.item(self.op, of, key))

    def _built(self, what: str, build: Callable[[], Any]) -> Any:
        """Build something.

        Raises:
            Unsupported: It does not go together, or becomes too large.
        """
        try:
            result = build()
        except v.FAULTS as e:
            raise v.fault(what, e) from e
        self.spent.nodes += len(self.op.graph.nodes) - self.nodes
        self.nodes = len(self.op.graph.nodes)
        if self.spent.nodes > MOST_NODES:
            raise Unsupported(f"more than {MOST_NODES} operations")
        constants = self.op.graph.initializers
        if len(constants) > self.spent.known:
            made = islice(reversed(constants.values()), len(constants) - self.spent.known)
            self.spent.bytes += sum(x.nbytes for x in made if isinstance(x, np.ndarray))
            self.spent.known = len(constants)
        if self.spent.bytes > MOST_BYTES:
            raise Unsupported(f"more than {MOST_BYTES} bytes of constants")
        return result

    # -- calls -----------------------------------------------------------------------------------

    def call(self, machine: Machine, callee: Any, given: list[Any], named: dict[str, Any]) -> Any:
        """Call what is no function of the artifact's.

        Raises:
            Unsupported: We do not have it, or it refuses.
        """
        if isinstance(callee, Method):
            return self._method(callee, given, named)
        if isinstance(callee, Made):
            return self._called(callee, given, named)
        if isinstance(callee, Dtype):
            callee = Named(f"numpy.{callee}")
        if not isinstance(callee, Named):
            raise Unsupported(f"its code calls {v.describe(callee)}")
        path = callee.path
        root, _, rest = path.partition(".")
        if root == "builtins":
            return self._builtin(machine, rest, given, named)
        if root == "math":
            return arrays.of_math(rest, [*given, *named.values()])
        if root == "numpy":
            return arrays.of_numpy(rest, given, named)
        if path in CHOICES:
            return self._chosen(path, machine, given, named)
        if rest.rpartition(".")[2] in SCOPES:
            return v.Scope()
        if path.endswith(".preprocess_input") and path.startswith("keras.applications."):
            kind = path.split(".")[2]
            return self._built(path, lambda: preprocess(self.op, kind, *given, **named))
        if path.startswith("keras.layers."):
            return self._made(path.removeprefix("keras.layers."), given, named)
        if path.startswith("keras.activations."):
            return self._activated(path.removeprefix("keras.activations."), given, named)
        found = lambda_names.row(path)
        arguments, keywords = bind_arguments(found, given, named, ORDERS.get(path))
        setting = lambda_names.specify_setting(path, self.setting)
        keywords = untold(found, path, arguments, setting) | keywords
        check_sizes(path, [*arguments, *keywords.values()])
        made = self._built(path, lambda: found.handler(self.op, *arguments, **keywords))
        if rest.endswith("top_k"):
            return Parts(made, ("values", "indices"))
        return made

    def _chosen(self, path: str, machine: Machine, given: list[Any], named: dict[str, Any]) -> Any:
        try:
            return CHOICES[path](self.op, machine, *given, **named)
        except v.FAULTS as e:
            raise v.fault(path, e) from e

    def _builtin(self, machine: Machine, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        if name not in py.BUILTINS:
            raise Unsupported(f"its code calls {name}")
        if name == "abs" and len(given) == 1 and isinstance(given[0], Value):
            return tensors.function(self.op, "abs", given[0])
        try:
            return py.BUILTINS[name](_Caller(machine, self), *given, **named)
        except v.FAULTS as e:
            raise v.fault(name, e) from e

    def _method(self, method: Method, given: list[Any], named: Mapping[str, Any]) -> Any:
        of = method.of
        if isinstance(of, v.Scope):
            return of if method.name == "__enter__" else None
        if isinstance(of, Value):
            return tensors.method(of, method.name, given, named)
        if isinstance(of, v.Sizes):
            return tensors.shape_method(of, method.name, given)
        return py.method(of, method.name, given, named)

    def _activated(self, name: str, given: list[Any], named: Mapping[str, Any]) -> Any:
        if name == "hard_sigmoid" and self.setting.keras < 3:
            name = "keras2_hard_sigmoid"
        if name not in FUNCTIONS or named or len(given) != 1 or not isinstance(given[0], Value):
            raise Unsupported(f"its code calls keras.activations.{name}")
        return self._built(name, lambda: FUNCTIONS[name](self.op, given[0]))

    # -- layers ----------------------------------------------------------------------------------

    def _made(self, class_name: str, given: list[Any], named: dict[str, Any]) -> Any:
        """Make a layer; what a function of keras.layers does is done at once."""
        plain = (bool, int, float, str, type(None))
        if class_name in MERGES and len(given) == 1:
            return self._called(Made(MERGES[class_name], named), given, {})
        if len(given) == 1 and class_name in ALONE:
            given, named = [], {ALONE[class_name]: given[0], **named}
        if given or not all(isinstance(part, plain) for part in flat(list(named.values()))):
            raise Unsupported(f"a layer {class_name} made with more than numbers by name")
        return Made(class_name, named)

    def _called(self, made: Made, given: list[Any], named: Mapping[str, Any]) -> Any:
        """Call a layer that has no weights.

        Raises:
            Unsupported: It would have some, or we do not have it.
        """
        values = list(flat(given))
        if named or not values or not all(isinstance(part, Value) for part in values):
            raise Unsupported(f"a call of layer {made.class_name} with more than tensors")
        config = {k: list(x) if isinstance(x, tuple) else x for k, x in made.config.items()}
        entry = {"class_name": made.class_name, "config": config}
        empty = Roles(self.op, f"{self.w.layer}/{made.class_name}", {}, self.w.dtype)
        result = self._built(made.class_name, lambda: call_layer(self.op, empty, entry, *values))
        return result.value if isinstance(result, Masked) else result


@dataclass(frozen=True, slots=True)
class _Caller:
    """Arguments of calls of Python's built-in functions."""

    machine: Machine
    names: Names

    def call(self, callee: Any, given: list[Any]) -> Any:
        return self.machine.call(callee, given)

    def binary(self, sign: str, a: Any, b: Any) -> Any:
        return self.names.binary(sign, a, b)

    def compare(self, sign: str, a: Any, b: Any) -> Any:
        return self.names.compare(sign, a, b)


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, Value) and value.is_float)


def flat(value: Any) -> Iterator[Any]:
    """Yield what nested lists hold."""
    if isinstance(value, list | tuple):
        for part in value:
            yield from flat(part)
    else:
        yield value


def check_sizes(path: str, arguments: list[Any]) -> None:
    """Raise where a number would make something huge while the graph is built."""
    name = path.rpartition(".")[2]
    if name in NUMBERS:
        return
    most = next((n for heads, n in MOST.items() if name.startswith(heads)), v.MOST_NUMBERS)
    for part in flat(arguments):
        if not isinstance(part, int | float) or not most < abs(part) < inf:
            continue
        if part != END or not name.endswith("slice"):
            raise Unsupported(f"a number as large as {part:.0f} for {path}")


def bind_arguments(
    row: Row, given: list[Any], named: Mapping[str, Any], order: Sequence[str] | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call as a handler takes them.

    The first tensor has another name in each of TensorFlow's functions; handlers of Keras's
    operations take further arguments by name alone, in Keras's order.

    Raises:
        Unsupported: It does not take one of them.
    """
    arguments, found = [_plain_argument(part) for part in given], {}
    for key, value in named.items():
        if key in row.arguments:
            found[key] = _plain_argument(value)
        elif f"{key}_" in row.arguments:
            found[f"{key}_"] = _plain_argument(value)
        elif key in FIRST and not arguments:
            arguments = [_plain_argument(value)]
        elif key != "name":
            raise Unsupported(f"argument {key} of a function")
    if order is not None:
        found |= dict(zip(order, arguments, strict=False))
        arguments = []
    elif not row.is_variadic and row.module.startswith(OPERATIONS_AT):
        others = row.parameters[row.positional :]
        found |= dict(zip(others, arguments[row.positional :], strict=False))
        arguments = arguments[: row.positional]
    return arguments, found


def untold(row: Row, path: str, arguments: list[Any], setting: Setting) -> dict[str, Any]:
    """Return what a handler wants to know of the model, and the call does not say."""
    wanted = row.arguments.difference(row.parameters[: len(arguments)])
    if not path.startswith("keras.backend."):
        wanted -= {"data_format"}  # TensorFlow's own, of which none is NHWC
    return {k: x for k, x in asdict(setting).items() if k in wanted}


def _plain_argument(value: Any) -> Any:
    """Return an argument as handlers take it: dtypes by name, no functions."""
    if isinstance(value, Dtype):
        return str(value)
    if isinstance(value, range):
        return v.list_elements(value)
    if isinstance(value, Closure | Method | Named | Made | v.Scope):
        raise Unsupported(f"{v.describe(value)} as an argument")
    if isinstance(value, tuple) and not isinstance(value, v.Sizes):
        return tuple(_plain_argument(part) for part in value)
    if isinstance(value, list | v.Sizes):
        return [_plain_argument(part) for part in value]
    return value
