"""The table of operators, and how the operands of a node are passed to a function.

To add an operator: a function in the module of its family, with its inputs as parameters and its
attributes as keywords, under the decorator ``@operator("Name")``.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

torch: Any = importlib.import_module("torch")

Tensor: TypeAlias = Any  # torch.Tensor
# Values that are known while a module is traced: constants, and arrays of sizes, which may be
# symbolic. Only the parameters with this annotation are given them; others get tensors.
Known: TypeAlias = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])
FAMILIES = (
    "elementwise", "shaping", "indexing", "reductions", "convolution", "normalization",
    "recurrent", "resize", "quantization", "linear_algebra",
)  # fmt: skip


class Operator(NamedTuple):
    """A row of the table.

    Attributes:
        function: Takes the inputs by position and the attributes by name.
        known: Which of its parameters take known values.
        is_variadic: Whether it takes any number of inputs.
        wants_count: Whether it takes the number of the node's outputs as ``outputs``.
    """

    function: Callable[..., Any]
    known: tuple[bool, ...]
    is_variadic: bool
    wants_count: bool


class Given(np.ndarray[Any, Any]):
    """A known value that a branch or a turn of a loop is given as a tensor as well.

    Attributes:
        tensor: Where there is one; values computed from this have none.
    """

    tensor: Tensor | None

    def __array_finalize__(self, _: object) -> None:
        """Derive an array."""
        self.tensor = None


class NotSupportedError(Exception):
    """The graph has something that this module has no words for in torch."""


class SymbolicError(Exception):
    """The shape of a result is symbolic, so that it is no known value but a tensor."""


TORCH: dict[str, Operator] = {}  # of tensors
NUMPY: dict[str, Callable[..., Any]] = {}  # of known values alone


def operator(*names: str) -> Callable[[F], F]:
    """Enter a function of tensors under the names of its operators."""

    def enter(function: F) -> F:
        code = function.__code__
        names_of = code.co_varnames[: code.co_argcount]
        annotations = {n: str(a) for n, a in function.__annotations__.items()}
        known = tuple("ndarray" in annotations.get(n, "") for n in names_of)
        is_variadic, wants_count = bool(code.co_flags & 4), "outputs" in code.co_varnames
        for name in names:
            TORCH[name] = Operator(function, known, is_variadic, wants_count)
        return function

    return enter


def on_known(*names: str) -> Callable[[F], F]:
    """Enter a function of known values alone, which may be symbolic sizes."""

    def enter(function: F) -> F:
        NUMPY.update(dict.fromkeys(names, function))
        return function

    return enter


def apply(
    op_type: str, operands: Sequence[Any], attributes: Mapping[str, Any], outputs: int
) -> Sequence[Any]:
    """Return what an operator gives: known values where it is defined on them, else tensors.

    Raises:
        NotSupportedError: The operator is not in the table.
    """
    row = TORCH.get(op_type)
    if op_type in NUMPY and all(isinstance(v, np.ndarray) or v is None for v in operands):
        try:
            return _as_sequence(NUMPY[op_type](*operands, **attributes))
        except SymbolicError:
            assert row is not None
    if row is None:
        raise NotSupportedError(f"operator {op_type}")
    takes_known = (*row.known, *[False] * len(operands))
    given = [
        value if value is None else to_known(value) if takes else to_tensor(value)
        for value, takes in zip(operands, takes_known, strict=False)
    ]
    more = {"outputs": outputs} if row.wants_count else {}
    return _as_sequence(row.function(*given, **attributes, **more))


def _as_sequence(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


def to_tensor(value: Any) -> Tensor:
    """Return a value as a tensor; symbolic sizes become one as the program runs."""
    if not isinstance(value, np.ndarray):
        return value
    if isinstance(value, Given) and value.tensor is not None:
        return value.tensor
    if value.dtype != object:
        return from_numpy(value)
    is_real = any(isinstance(v, (float, torch.SymFloat)) for v in value.flat)
    dtype = torch.float32 if is_real else torch.int64
    parts = [torch.scalar_tensor(v, dtype=dtype) for v in value.flat]
    return torch.stack(parts).reshape(value.shape) if parts else torch.zeros(0, dtype=dtype)


def from_numpy(array: Known) -> Tensor:
    """Return an array as a tensor; NumPy's extensions for machine learning included."""
    special = getattr(torch, array.dtype.name, None) if array.dtype.kind == "V" else None
    if array.dtype.name.startswith(("bfloat16", "float8")):
        special = getattr(torch, array.dtype.name)
        plain = np.int16 if array.dtype.itemsize == 2 else np.uint8
        return torch.from_numpy(np.array(array).view(plain)).view(special)
    if special is not None or array.dtype.kind in "OSU":
        raise NotSupportedError(f"a constant of {array.dtype.name}")
    return torch.from_numpy(np.array(array))


def to_known(value: Any) -> Known:
    """Return a value as an array of sizes; those in a tensor are read from it as it runs."""
    if isinstance(value, np.ndarray):
        return value
    items = value.tolist()
    if value.dtype.is_floating_point or all(isinstance(v, int) for v in np.ravel(items)):
        return np.asarray(items)
    made = np.empty(tuple(value.shape), dtype=object)
    made[...] = items
    return made


def integers(known: Known) -> list[Any]:
    """Return known integers as a list; symbolic ones stay so."""
    return [v if isinstance(v, torch.SymInt) else int(v) for v in np.ravel(known)]


def load_families() -> None:
    """Import the modules that enter the operators."""
    for name in FAMILIES:
        importlib.import_module(f"{__package__}.{name}")
    importlib.import_module(f"{__package__}.known")
