"""Ops that only TorchScript has: what a tensor is like, numbers out of tensors, tensors of numbers.

Numbers known while lowering stay numbers, also where a trace keeps them as tensors
(`ops.prim.NumToTensor`, `int(...)`), so that shapes computed from sizes keep their names.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import Number, ProgramValue, Size, integer
from converter.lower.torch.promotion import (
    DEFAULT,
    FLOATS,
    SCALAR_TYPES,
)
from converter.lower.torch.script.numbers import compute, tensor_of, truth
from converter.lower.torch.script.types import Interpreter
from converter.lower.torch.script.values import Items, Missing, is_number, leaves, words
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.torch.script_objects import DeviceName

Special = Callable[..., Any]
SPECIAL: dict[str, Special] = {}
NUMBERS = {
    name: number for number, name in SCALAR_TYPES.items()
}  # of dtypes, as programs have them
COMPLEX = ("complex64", "complex128")
MOST_NUMBERS = 1 << 16  # of a tensor that is made from a list


def special(*names: str) -> Callable[[Special], Special]:
    """Enter an op that is given the interpreter and the program's own values."""

    def enter(function: Special) -> Special:
        for name in names:
            SPECIAL[name] = function
        return function

    return enter


# -- what a tensor is like -------------------------------------------------------------------------


@special("size", "prim.shape")
def size(interpreter: Interpreter, x: Reference, dim: ProgramValue = None) -> ProgramValue:
    """The sizes of a tensor's axes, or of one."""
    value = x.read()
    if dim is None:
        return Items(
            [integer(interpreter.op.axis_of(value, i)) for i in range(value.rank)],
            interpreter.depth,
        )
    if not isinstance(dim, int) or not -value.rank <= dim < value.rank:
        raise Unsupported(f"the size of axis {words(dim)} of a tensor of {value.rank}")
    return integer(interpreter.op.axis_of(value, dim))


@special("dim", "ndimension", "prim.ndim")
def dim(interpreter: Interpreter, x: Reference) -> int:
    """The number of axes of a tensor."""
    del interpreter
    return x.read().rank


@special("numel")
def numel(interpreter: Interpreter, x: Reference) -> ProgramValue:
    """The number of elements of a tensor."""
    found: ProgramValue = 1
    for n in size(interpreter, x):
        found = compute(interpreter.op, "mul", [found, n])
    return found


@special("prim.dtype")
def dtype_of(interpreter: Interpreter, x: Reference) -> int:
    """A tensor's dtype, as programs number them."""
    del interpreter
    found = NUMBERS.get(x.read().dtype)
    if found is None:
        raise Unsupported(f"dtype {x.read().dtype}")
    return found


@special("prim.device", "device")
def device(interpreter: Interpreter, *what: ProgramValue) -> DeviceName:
    """A device, which means nothing here."""
    del interpreter, what
    return DeviceName("cpu")


@special("prim.layout")
def layout(interpreter: Interpreter, x: Reference) -> int:
    """The layout of a tensor: strided."""
    del interpreter, x
    return 0


@special("is_floating_point")
def is_floating_point(interpreter: Interpreter, x: Reference) -> bool:
    """Return whether a tensor's elements are floating point numbers."""
    del interpreter
    return x.read().dtype in FLOATS


@special("is_complex")
def is_complex(interpreter: Interpreter, x: Reference) -> bool:
    """Return whether a tensor's elements are complex numbers."""
    del interpreter
    return x.read().dtype in COMPLEX


def _always(*names: str, answer: ProgramValue) -> None:
    def apply(
        interpreter: Interpreter, *args: ProgramValue, **kwargs: ProgramValue
    ) -> ProgramValue:
        del interpreter, args, kwargs
        return answer

    for name in names:
        SPECIAL[name] = apply


# Nothing is trained, nothing is on another device, no scripting ends.
_always(
    "prim.is_cuda", "prim.is_sparse", "prim.is_mkldnn", "prim.is_quantized", "is_cuda",
    "prim.is_xla", "prim.is_vulkan", "prim.is_meta",
    "prim.is_mps", "prim.is_nested", "prim.is_leaf", "is_autocast_enabled",
    "is_autocast_cpu_enabled", "is_tracing", "prim.is_ort", "prim.is_maia", "prim.is_xpu",
    "prim.is_ipu", "prim.is_sparse_csr", "is_neg", "is_conj", "is_inference", "prim.is_mtia",
    answer=False,
)  # fmt: skip
_always("prim.type", answer="cpu")
# Without gradients torch takes some layers' kernels that are one op; the text has their parts, too.
_always("is_scripting", "prim.is_cpu", "is_grad_enabled", answer=True)
_always(
    "warn", "warnings.warn", "manual_seed", "set_grad_enabled", "_set_grad_enabled", "print",
    "prim.Print", "backward", "prim.profile", "prim.name",
    answer=None,
)  # fmt: skip


@special("prim.requires_grad", "requires_grad")
def requires_grad(interpreter: Interpreter, x: Reference) -> bool:
    """Return whether a tensor is one of the module's."""
    del interpreter
    return x.read().is_constant


@special("is_contiguous")
def is_contiguous(interpreter: Interpreter, x: Reference, *rest: ProgramValue) -> bool:
    """Return whether a tensor's elements lie in order."""
    del interpreter, rest
    return x.is_contiguous


@special("prim.data", "data", "cpu", "cuda", "requires_grad_", "detach_", "prim.detach")
def same(
    interpreter: Interpreter, x: Reference, *rest: ProgramValue, **named: ProgramValue
) -> Reference:
    """The tensor itself."""
    del interpreter, rest, named
    return x


# -- numbers out of tensors ------------------------------------------------------------------------


def number_of(interpreter: Interpreter, x: Reference) -> ProgramValue:
    """Return the one element of a tensor."""
    known = interpreter.numbers.get(x)
    if known is not None:
        return known
    value = x.read()
    array = interpreter.op.array(value)
    if array is not None:
        if array.size != 1:
            raise Unsupported(f"a number of {array.size} elements")
        return array.reshape(-1)[0].item()
    if any(n not in (1, None) and not isinstance(n, str) for n in value.shape):
        raise Unsupported(f"a number of {list(value.shape)} elements")
    return Number(value if value.rank == 0 else interpreter.op.reshape(value, ()))


@special("item", "prim.NumToScalar", "_local_scalar_dense")
def item(interpreter: Interpreter, x: ProgramValue) -> ProgramValue:
    """The one element of a tensor."""
    return number_of(interpreter, x) if isinstance(x, Reference) else x


@special("Int", "int", "IntImplicit", "prim.Int")
def to_int(interpreter: Interpreter, x: ProgramValue) -> ProgramValue:
    """A tensor's element, or a number, as an integer."""
    found = item(interpreter, x)
    if isinstance(found, Number):
        return (
            found
            if found.value.dtype == "int64"
            else Number(interpreter.op.cast(found.value, "int64"))
        )
    if isinstance(found, Size):
        return found
    if isinstance(found, int | float | str):
        return int(found)
    raise Unsupported(f"an integer of {words(found)}")


@special("Float", "float", "FloatImplicit", "prim.Float")
def to_float(interpreter: Interpreter, x: ProgramValue) -> ProgramValue:
    """A tensor's element, or a number, as a floating point number."""
    found = item(interpreter, x)
    if isinstance(found, Number):
        return Number(interpreter.op.cast(found.value, "float64"))
    if isinstance(found, Size):
        return Number(interpreter.op.scalar(found, "float64"))
    if isinstance(found, int | float | str):
        return float(found)
    raise Unsupported(f"a floating point number of {words(found)}")


@special("Bool", "bool", "prim.Bool")
def to_bool(interpreter: Interpreter, x: ProgramValue) -> ProgramValue:
    """Whether a tensor's element, or a number, is not zero."""
    found = item(interpreter, x)
    if not is_number(found):
        raise Unsupported(f"the truth of {words(found)}")
    return truth(interpreter.op, found)


@special("Scalar", "ScalarImplicit")
def to_scalar(interpreter: Interpreter, x: ProgramValue) -> ProgramValue:
    """A tensor's element."""
    return item(interpreter, x)


# -- tensors of numbers ----------------------------------------------------------------------------


@special("prim.NumToTensor", "scalar_tensor")
def num_to_tensor(
    interpreter: Interpreter, number: ProgramValue, **named: ProgramValue
) -> Reference:
    """A number as a tensor without axes."""
    wanted = named.get("dtype")
    value = tensor_of(interpreter.op, number)
    if wanted is None and value.dtype == "float64" and named:
        wanted = NUMBERS[DEFAULT]
    if wanted is not None:
        value = interpreter.op.cast(value, SCALAR_TYPES[wanted])
    made = Reference.to(value)
    if isinstance(number, int | Size) and not isinstance(number, bool) and value.dtype == "int64":
        interpreter.numbers.remember(made, number)
    return made


@special("tensor", "as_tensor", "prim.as_tensor")
def tensor(interpreter: Interpreter, data: ProgramValue, **named: ProgramValue) -> Reference:
    """A tensor of a number or of lists of numbers; float32 where they are fractions."""
    wanted = named.get("dtype")
    to = None if wanted is None else SCALAR_TYPES[wanted]
    if isinstance(data, Reference):
        value = data.read()
        return data if to in (None, value.dtype) else Reference.to(interpreter.op.cast(value, to))
    found = list(leaves(data))
    if len(found) > MOST_NUMBERS or not all(is_number(one) for one in found):
        raise Unsupported(f"a tensor of {words(data)}")
    if any(isinstance(one, Size | Number) for one in found):
        return Reference.to(_gather(interpreter, data, to))
    array = np.asarray(data)
    kind = to or {"b": "bool", "i": "int64"}.get(array.dtype.kind, DEFAULT)
    made = Reference.to(interpreter.op.constant(array, kind))
    if isinstance(data, int) and kind == "int64":
        interpreter.numbers.remember(made, data)
    return made


def _gather(interpreter: Interpreter, data: ProgramValue, to: str | None) -> Value:
    """Return a tensor of lists, of which some numbers depend on the inputs."""
    op = interpreter.op
    if not isinstance(data, list | tuple):
        value = tensor_of(op, data)
        return op.cast(value, to or (DEFAULT if value.dtype == "float64" else value.dtype))
    parts = [_gather(interpreter, one, to) for one in data]
    kinds = {p.dtype for p in parts}
    kind = to or (DEFAULT if DEFAULT in kinds else parts[0].dtype)
    return op.concat([op.unsqueeze(op.cast(p, kind), [0]) for p in parts], 0)


@special("embedding_bag")
def embedding_bag(
    interpreter: Interpreter, *args: ProgramValue, **named: ProgramValue
) -> ProgramValue:
    """Sums or means of rows; what else torch yields, only its gradients need."""
    made = interpreter.tensor_op("embedding_bag", list(args), named)
    if not isinstance(made, list):
        return made
    return Items([*made[:1], *[Missing("what only gradients need")] * 3], interpreter.depth)


@special("where")
def where(interpreter: Interpreter, condition: Reference, *rest: ProgramValue) -> ProgramValue:
    """One or the other, by a condition; or where one holds, an index for each axis."""
    if rest:
        return interpreter.tensor_op("where", [condition, *rest], {})
    return interpreter.tensor_op(
        "unbind", [interpreter.tensor_op("nonzero", [condition], {}), 1], {}
    )


@special("slice")
def part(
    interpreter: Interpreter,
    x: Reference,
    dim: int = 0,
    start: ProgramValue = None,
    end: ProgramValue = None,
    step: ProgramValue = 1,
) -> ProgramValue:
    """A part of a tensor along an axis."""
    if not any(isinstance(n, Number) for n in (start, end)) or not isinstance(step, int):
        return interpreter.tensor_op("slice", [x, dim, start, end, step], {})
    op = interpreter.op
    low, high = (0 if start is None else start), (_LAST if end is None else end)
    bounds = [op.unsqueeze(op.cast(tensor_of(op, n), "int64"), [0]) for n in (low, high)]

    def taken(base: Value) -> Value:
        at = base.axis(dim)
        places = [op.constant([n], "int64") for n in (base.stored.index(at), step)]
        shape = tuple(None if i == at else n for i, n in enumerate(base.shape))
        (made,) = op.node(
            "Slice", [base, *bounds, *places], [(base.dtype, shape)], stored=base.stored
        )
        return made

    # Bounds are as Python's in both; nothing is written through such a view.
    return x.viewed(taken(x.read()), taken, None, is_contiguous=False)


_LAST = (1 << 63) - 1


@special("narrow")
def narrowed(
    interpreter: Interpreter, x: Reference, dim: int, start: ProgramValue, length: ProgramValue
) -> ProgramValue:
    """A slice of a tensor along an axis, by start and length."""
    if not any(isinstance(n, Number) for n in (start, length)):
        return interpreter.tensor_op("narrow", [x, dim, start, length], {})
    if isinstance(start, Number) or (isinstance(start, int) and start < 0):
        raise Unsupported("a part of a tensor from a place that may count from its end")
    return part(interpreter, x, dim, start, compute(interpreter.op, "add", [start, length]))


@special("as_strided")
def as_strided(
    interpreter: Interpreter, x: Reference, *rest: ProgramValue, **named: ProgramValue
) -> ProgramValue:
    """Elements at regular distances in memory, where those of the tensor lie in order."""
    if not x.is_contiguous:
        raise Unsupported("a view of memory in which the elements do not lie in order")
    return interpreter.tensor_op("as_strided", [x, *rest], named)


# -- what may be nothing ---------------------------------------------------------------------------


def _is_same(a: ProgramValue, b: ProgramValue) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, bool | int | str) and isinstance(b, bool | int | str):
        return bool(a == b)
    return a is b


@special("__is__")
def is_same(interpreter: Interpreter, a: ProgramValue, b: ProgramValue) -> ProgramValue:
    """Return whether two values are one: nearly always whether something is None."""
    del interpreter
    return _is_same(a, b)


@special("__isnot__")
def is_not_same(interpreter: Interpreter, a: ProgramValue, b: ProgramValue) -> ProgramValue:
    """Return whether two values are not one."""
    del interpreter
    return not _is_same(a, b)


@special("_unwrap_optional", "prim.unchecked_unwrap_optional", "prim.unwrap_optional", "wait")
def unwrapped(interpreter: Interpreter, value: ProgramValue) -> ProgramValue:
    """An optional value that is not None."""
    del interpreter
    return value


@special("any")
def any_of(
    interpreter: Interpreter, items: ProgramValue, *rest: ProgramValue, **named: ProgramValue
) -> ProgramValue:
    """Whether any number of a list is true; of a tensor, the table's."""
    return _fold(interpreter, "any", "__or__", items, rest, named)


@special("all")
def all_of(
    interpreter: Interpreter, items: ProgramValue, *rest: ProgramValue, **named: ProgramValue
) -> ProgramValue:
    """Whether all numbers of a list are true; for a tensor, the op of the table."""
    return _fold(interpreter, "all", "__and__", items, rest, named)


def _fold(
    interpreter: Interpreter,
    name: str,
    op: str,
    items: ProgramValue,
    rest: ProgramValue,
    named: dict[str, ProgramValue],
) -> ProgramValue:
    if not isinstance(items, list):
        return interpreter.tensor_op(name, [items, *rest], named)
    found: ProgramValue = name == "all"
    for one in items:
        found = compute(interpreter.op, op, [found, truth(interpreter.op, one)])
    return found


# -- loops and lists of tensors --------------------------------------------------------------------


@special("__range_length")
def range_length(
    interpreter: Interpreter, low: ProgramValue, high: ProgramValue, step: ProgramValue
) -> ProgramValue:
    """The number of elements of a range."""
    if all(isinstance(n, int) for n in (low, high, step)):
        return len(range(low, high, step))
    if not isinstance(step, int) or step == 0:
        raise Unsupported("a range in steps that depend on the inputs")
    bounds = [high, low] if step > 0 else [low, high]
    length = compute(interpreter.op, "sub", bounds)
    if abs(step) != 1:
        rounded = compute(interpreter.op, "add", [length, abs(step) - 1])
        length = compute(interpreter.op, "floordiv", [rounded, abs(step)])
    return compute(interpreter.op, "max", [length, 0])


@special("__derive_index")
def derive_index(
    interpreter: Interpreter, index: ProgramValue, start: ProgramValue, step: ProgramValue
) -> ProgramValue:
    """One number of a range."""
    return compute(interpreter.op, "add", [start, compute(interpreter.op, "mul", [index, step])])


@special("stack")
def stack(interpreter: Interpreter, tensors: ProgramValue, dim: int = 0) -> ProgramValue:
    """Tensors side by side along a new axis."""
    if not isinstance(tensors, Items) or tensors.grown is None:
        return interpreter.tensor_op("stack", [tensors, dim], {})
    whole = tensors.grown
    at = dim + whole.rank if dim < 0 else dim
    order = [*range(1, at + 1), 0, *range(at + 1, whole.rank)]
    return Reference.to(whole.transposed(order))


@special("cat")
def cat(interpreter: Interpreter, tensors: ProgramValue, dim: int = 0) -> ProgramValue:
    """Tensors concatenated along an axis."""
    if not isinstance(tensors, Items) or tensors.grown is None:
        return interpreter.tensor_op("cat", [tensors, dim], {})
    op, whole = interpreter.op, op_named(interpreter, tensors.grown)
    at = dim + whole.rank - 1 if dim < 0 else dim
    order = [*range(1, at + 1), 0, *range(at + 1, whole.rank)]
    turned = whole.transposed(order)
    length = compute(
        interpreter.op, "mul", [integer(turned.shape[at]), integer(turned.shape[at + 1])]
    )
    shape = [*turned.shape[:at], length, *turned.shape[at + 2 :]]
    return Reference.to(op.reshape(turned, shape))


def op_named(interpreter: Interpreter, value: Value) -> Value:
    """Return a value with a name for each of its sizes."""
    return interpreter.op.named(value)
