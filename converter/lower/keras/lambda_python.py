"""Python's own functions and methods, as a Lambda's function calls them on what is known.

Each is called here only with plain values that have been looked at: no larger than what they are
worth, and none of the artifact's making.
"""

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Protocol

import numpy as np

from converter.lower.keras import lambda_values as v
from converter.lower.keras.lambda_numpy import check_plain, native
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


class Caller(Protocol):
    """The interface that calls the artifact's functions and stacks tensors."""

    def call(self, callee: Any, given: list[Any]) -> Any:
        """Call something."""

    def binary(self, sign: str, a: Any, b: Any) -> Any:
        """Return ``a sign b``."""

    def compare(self, sign: str, a: Any, b: Any) -> Any:
        """Return how two values compare."""


Function = Callable[..., Any]

# -- builtins --------------------------------------------------------------------------------------


def _len(caller: Caller, value: Any) -> int:
    del caller
    if isinstance(value, Value):
        size = value.shape[0] if value.shape else None
        if not isinstance(size, int):
            raise Unsupported("len of a tensor of unknown size")
        return size
    if isinstance(value, range):
        return len(value)
    return len(v.list_elements(value))


def _range(caller: Caller, *bounds: Any) -> range:
    del caller
    return range(*(_whole(n) for n in bounds))


def _whole(value: Any) -> int:
    if isinstance(value, bool | int | np.integer):
        return int(value)
    raise Unsupported(f"{v.describe(value)} where an integer is expected")


def _number(kind: type) -> Function:
    def convert(caller: Caller, value: Any = 0) -> Any:
        del caller
        if isinstance(value, Value):
            raise Unsupported(f"{kind.__name__} of a tensor")
        if isinstance(value, str) and len(value) > 100:
            raise Unsupported(f"{kind.__name__} of a long text")
        if not isinstance(value, int | float | str | np.generic | np.ndarray):
            raise Unsupported(f"{kind.__name__} of {v.describe(value)}")
        return kind(value)

    return convert


def _bool(caller: Caller, value: Any = False) -> bool:
    del caller
    return v.truth(value)


def _text(caller: Caller, value: Any = "") -> str:
    del caller
    if not isinstance(value, v.PLAIN):
        raise Unsupported(f"text of {v.describe(value)}")
    return str(value)


def _sequence(kind: Callable[[Any], Any]) -> Function:
    def convert(caller: Caller, value: Any = ()) -> Any:
        del caller
        return kind(v.list_elements(value))

    return convert


def _dict(caller: Caller, value: Any = (), **named: Any) -> dict[Any, Any]:
    del caller
    if isinstance(value, Mapping):
        return {**value, **named}
    pairs = [v.list_elements(pair) for pair in v.list_elements(value)]
    if any(len(pair) != 2 or not isinstance(pair[0], v.PLAIN) for pair in pairs):
        raise Unsupported("dict of what are no pairs")
    return dict(pairs) | named


def _zip(caller: Caller, *values: Any) -> list[Any]:
    del caller
    return list(zip(*(v.list_elements(part) for part in values), strict=False))


def _enumerate(caller: Caller, value: Any, start: Any = 0) -> list[Any]:
    del caller
    return list(enumerate(v.list_elements(value), _whole(start)))


def _map(caller: Caller, function: Any, *values: Any) -> list[Any]:
    rows = zip(*(v.list_elements(part) for part in values), strict=False)
    return [caller.call(function, list(row)) for row in rows]


def _filter(caller: Caller, function: Any, value: Any) -> list[Any]:
    return [
        part
        for part in v.list_elements(value)
        if v.truth(part if function is None else caller.call(function, [part]))
    ]


def _sort(caller: Caller, value: Any, key: Any = None, reverse: Any = False) -> list[Any]:
    parts = v.list_elements(value)
    keys = [part if key is None else caller.call(key, [part]) for part in parts]
    if any(not isinstance(k, int | float | str | tuple) for k in keys):
        raise Unsupported("sorting tensors")
    v.count(keys)
    order = sorted(range(len(parts)), key=keys.__getitem__, reverse=v.truth(reverse))
    return [parts[i] for i in order]


def _sum(caller: Caller, value: Any, start: Any = 0) -> Any:
    return reduce(lambda a, b: caller.binary("+", a, b), v.list_elements(value), start)


def _extreme(sign: str) -> Function:
    def choose(caller: Caller, *values: Any) -> Any:
        parts = v.list_elements(values[0]) if len(values) == 1 else list(values)
        if not parts:
            raise Unsupported("the extreme of nothing")
        best = parts[0]
        for part in parts[1:]:
            if v.truth(caller.compare(sign, part, best)):
                best = part
        return best

    return choose


def _abs(caller: Caller, value: Any) -> Any:
    del caller
    if isinstance(value, int | float | complex | np.ndarray):
        return abs(value)
    raise Unsupported(f"abs of {v.describe(value)}")


def _round(caller: Caller, value: Any, digits: Any = None) -> Any:
    del caller
    if not isinstance(value, int | float):
        raise Unsupported(f"round of {v.describe(value)}")
    return round(value) if digits is None else round(value, _whole(digits))


def _pow(caller: Caller, a: Any, b: Any) -> Any:
    return caller.binary("**", a, b)


def _divmod(caller: Caller, a: Any, b: Any) -> Any:
    return (caller.binary("//", a, b), caller.binary("%", a, b))


KINDS: dict[str, tuple[type, ...]] = {
    "list": (list,), "tuple": (tuple,), "dict": (dict,), "int": (int,), "float": (float,),
    "str": (str,), "bool": (bool,), "slice": (slice,),
}  # fmt: skip
TENSORS = ("Tensor", "KerasTensor", "EagerTensor", "Variable", "SparseTensor", "RaggedTensor")


def _isinstance(caller: Caller, value: Any, kinds: Any) -> bool:
    del caller
    for kind in v.list_elements(kinds) if isinstance(kinds, tuple) else [kinds]:
        if not isinstance(kind, v.Named):
            raise Unsupported(f"isinstance of {v.describe(kind)}")
        name = kind.path.removeprefix("builtins.")
        if name in KINDS:
            if isinstance(value, KINDS[name]):
                return True
        elif name.rpartition(".")[2] == "Tensor":
            if isinstance(value, Value):
                return True
        elif name.rpartition(".")[2] not in TENSORS:
            raise Unsupported(f"isinstance of {name}")
    return False


def _callable(caller: Caller, value: Any) -> bool:
    del caller
    return isinstance(value, v.Closure | v.Named | v.Method)


def _slice(caller: Caller, *bounds: Any) -> slice:
    del caller
    return slice(*bounds)


def _print(caller: Caller, *values: Any, **named: Any) -> None:
    """Print nothing: what code says while it is built is not for here."""
    del caller, values, named


def _all(caller: Caller, value: Any) -> bool:
    del caller
    return all(v.truth(part) for part in v.list_elements(value))


def _any(caller: Caller, value: Any) -> bool:
    del caller
    return any(v.truth(part) for part in v.list_elements(value))


BUILTINS: dict[str, Function] = {
    "abs": _abs, "all": _all, "any": _any, "bool": _bool, "callable": _callable, "dict": _dict,
    "divmod": _divmod, "enumerate": _enumerate, "filter": _filter, "float": _number(float),
    "frozenset": _sequence(frozenset), "int": _number(int), "isinstance": _isinstance,
    "len": _len, "list": _sequence(list), "long": _number(int), "map": _map,
    "max": _extreme(">"), "min": _extreme("<"), "pow": _pow, "print": _print, "range": _range,
    "reversed": _sequence(lambda parts: parts[::-1]), "round": _round, "set": _sequence(set),
    "slice": _slice, "sorted": _sort, "str": _text, "sum": _sum, "tuple": _sequence(tuple),
    "unicode": _text, "xrange": _range, "zip": _zip,
}  # fmt: skip

CONSTANTS: dict[str, Any] = {
    "math.pi": math.pi, "math.e": math.e, "math.inf": math.inf, "math.nan": math.nan,
    "numpy.pi": math.pi, "numpy.e": math.e, "numpy.inf": math.inf, "numpy.nan": math.nan,
    "numpy.Inf": math.inf, "numpy.newaxis": None, "tensorflow.newaxis": None,
    "builtins.True": True, "builtins.False": False, "builtins.None": None,
    "builtins.Ellipsis": ..., "tensorflow.image.ResizeMethod.BILINEAR": "bilinear",
    "tensorflow.image.ResizeMethod.NEAREST_NEIGHBOR": "nearest",
    "tensorflow.image.ResizeMethod.BICUBIC": "bicubic",
    "tensorflow.image.ResizeMethod.AREA": "area",
}  # fmt: skip


# -- methods of lists, text and the like -----------------------------------------------------------

METHODS: dict[type, tuple[str, ...]] = {
    list: ("append", "extend", "pop", "insert", "index", "reverse", "copy", "count", "remove"),
    dict: ("get", "items", "keys", "values", "pop", "update", "copy", "setdefault"),
    str: ("endswith", "format", "join", "lower", "replace", "split", "startswith", "upper"),
    tuple: ("index", "count"),
    set: ("add",),
    int: (), float: (),
}  # fmt: skip


def attribute(of: Any, name: str) -> Any:
    """Return an attribute of a plain value.

    Raises:
        Unsupported: We do not have it.
    """
    if isinstance(of, int | None) and not isinstance(of, bool) and name == "value":
        return of  # TensorFlow 1 has an object for each size of a shape
    for kind, names in METHODS.items():
        if isinstance(of, kind) and name in names:
            return v.Method(of, name)
    raise Unsupported(f"attribute {name} of {v.describe(of)}")


def method(of: Any, name: str, given: list[Any], named: Mapping[str, Any]) -> Any:
    """Call a method of a plain value.

    Raises:
        Unsupported: It refuses, or what it makes is too large.
    """
    v.count([given, named, of])
    if isinstance(of, np.ndarray):
        for part in (*given, *named.values()):
            check_plain(part, name)
        given = [native(part) for part in given]
        named = {k: native(part) for k, part in named.items()}
    if isinstance(of, str):
        _check_text(of, name, given, named)
    if isinstance(of, list) and name == "extend":
        given = [v.list_elements(part) for part in given]
    if isinstance(of, dict | set) and name in ("add", "update", "setdefault"):
        keys = [k for part in given[:1] for k in (part if isinstance(part, Mapping) else [part])]
        if any(not isinstance(k, v.PLAIN) for k in keys):
            raise Unsupported(f"{name} of {v.describe(given)}")
    try:
        result = getattr(of, name)(*given, **named)
    except v.FAULTS as e:
        raise v.fault(f"{name} of {v.describe(of)}", e) from e
    if name in ("items", "keys", "values"):
        return [*result]
    if isinstance(result, np.ndarray) and result.dtype.kind not in "biufcSU":
        raise Unsupported(f"{name} of an array of objects")
    return v.python(result)


def _check_text(of: str, name: str, given: list[Any], named: Mapping[str, Any]) -> None:
    """Raise where a method of a string would make a very long one, or look into objects."""
    if name == "format":
        parts = [*given, *named.values()]
        if any(c in of for c in ":.[!") or not all(isinstance(p, v.PLAIN) for p in parts):
            raise Unsupported("a format of text")
        length = of.count("{") * max((len(str(p)) for p in parts), default=0)
    elif name in ("replace", "join"):
        texts = [p for p in given if isinstance(p, str)]
        texts += [
            p
            for part in given
            if isinstance(part, list | tuple)
            for p in part
            if isinstance(p, str)
        ]
        length = (len(of) + 1) * sum(map(len, texts)) if name == "replace" else (
            sum(map(len, texts)) + len(of) * len(texts)
        )  # fmt: skip
    else:
        return
    if length > v.MOST_ELEMENTS:
        raise Unsupported("a very long text")
