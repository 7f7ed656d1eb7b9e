"""Calls of ops as TorchScript writes them: by position, and without the overload's name.

The overload is found as torch finds it: the first schema that takes the arguments, at first as they
are, then with integers where fractions are wanted.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/frontend/schema_matching.cpp
"""

import ast
from collections.abc import Mapping, Sequence
from functools import cache

from converter.lower.torch import calls
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import Number, ProgramValue, Size
from converter.lower.torch.promotion import kind
from converter.lower.torch.schemas import Argument, Schema, schemas
from converter.lower.torch.script.fixed_sizes import check
from converter.lower.torch.script.inputs import Probe, probe
from converter.lower.torch.script.known_operations import compute_known_integers, fold_constants
from converter.lower.torch.script.lists import LISTS
from converter.lower.torch.script.numbers import KNOWN, compute
from converter.lower.torch.script.ops import SPECIAL, number_of
from converter.lower.torch.script.types import Interpreter
from converter.lower.torch.script.values import (
    UNKNOWN,
    Items,
    Missing,
    Named,
    Raised,
    Unknown,
    is_number,
    is_text,
    leaves,
    words,
)
from converter.lower.torch.table import IGNORED, OPS, handler_of
from converter.lower.unsupported import MISFITS, Unsupported, explain_misfit
from formats.torch.script_objects import DeviceName

BY_FIRST = frozenset(("mul", "add"))  # ops of lists whose second argument may be the list
RAISING = frozenset(("prim.RaiseException", "RaiseException"))
TRUE_DIVISION = 4  # version of the ops since which integers are divided as fractions
ALWAYS_STEPS = {"linspace": 8, "logspace": 9}  # since when they say how many numbers they make
TYPED_FULL = 5  # since which a tensor full of an integer is one of integers


def short_name(name: str) -> str:
    """Return ``ops.prim.NumToTensor`` or ``torch.add`` as the tables have it."""
    for prefix in ("ops.aten.", "ops.", "torch.", "math."):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def call_op(
    interpreter: Interpreter, name: str, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
) -> ProgramValue:
    """Return the result of an op; an unsupported op is recorded, and its result is UNKNOWN.

    Args:
        interpreter: The interpreter.
        name: ``torch.add``, ``ops.prim.device``, ``int``.
        args: Positional arguments.
        kwargs: Those by name.

    Raises:
        Stop: The program raises, or continues in a way that depends on unknown values.
    """
    short = short_name(name)
    if short in RAISING:
        said = next((a for a in args if is_text(a)), "")
        raise Raised(said)
    inside = leaves([*args, *kwargs.values()])
    interpreter.read(len(inside))
    for one in args if short != "append" else args[1:]:
        interpreter.seen(one)
    if short != "append" and any(isinstance(one, Unknown) for one in inside):
        return UNKNOWN
    if any(isinstance(a, Probe) for a in args):
        return probe(short, args, kwargs)
    missing = next((one for one in inside if isinstance(one, Missing)), None)
    if missing is not None and short != "append":
        interpreter.found(short, missing.reason)
        return UNKNOWN
    try:
        return _call_row(interpreter, short, args, kwargs)
    except Unsupported as gap:
        interpreter.found(short, str(gap))
    except MISFITS as e:
        interpreter.found(short, explain_misfit(e))
    return UNKNOWN


def _call_row(
    interpreter: Interpreter, name: str, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
) -> ProgramValue:
    if name == "device" and args and is_text(args[0]):
        return DeviceName(args[0])
    plain = name.removeprefix("prim.")
    first = args[0] if args else None
    if plain in KNOWN and args and all(is_number(a) for a in args):
        return compute(interpreter.op, plain, args)
    if plain in ("min", "max") and len(args) == 1 and isinstance(first, Items):
        return compute(interpreter.op, plain, [*first]) if len(first) > 1 else first[0]
    if plain == "len" and isinstance(first, Reference):
        return SPECIAL["size"](interpreter, first, 0)
    if plain in LISTS and _is_of_lists(plain, args):
        return LISTS[plain](interpreter, *args, **kwargs)
    if name in ("quantized_lstm", "quantized_gru"):
        import converter.lower.torch.script.quantized  # noqa: F401 - rare: entered late, for start-up speed
    if name in SPECIAL:
        return SPECIAL[name](interpreter, *args, **kwargs)
    if name == "isinstance":
        return is_instance(args)
    return tensor_op(interpreter, name, args, kwargs)


def _is_of_lists(name: str, args: Sequence[ProgramValue]) -> bool:
    looked = args[:2] if name in BY_FIRST else args[:1]
    if name in ("eq", "ne"):
        return not any(isinstance(a, Reference) for a in args)
    if name in ("str", "format"):
        return True
    return any(isinstance(a, list | tuple | dict) or is_text(a) for a in looked)


def is_instance(args: Sequence[ProgramValue]) -> bool:
    """Return whether a value is of a type that the text names.

    Raises:
        Unsupported: We do not know the type.
    """
    kinds = {
        "Tensor": Reference, "int": int | Size, "float": float, "bool": bool, "str": str,
        "list": list, "tuple": tuple, "dict": dict, "NoneType": type(None), "None": type(None),
    }  # fmt: skip
    wanted = args[1] if isinstance(args[1], list | tuple) else [args[1]]
    for one in wanted:
        base = one.name.partition("[")[0] if isinstance(one, Named) else ""
        base = {"List": "list", "Tuple": "tuple", "Dict": "dict"}.get(base, base)
        if base not in kinds or isinstance(args[0], Number):
            raise Unsupported(f"isinstance of {words(one)}")
        if isinstance(args[0], kinds[base]) and not (base == "int" and args[0] is True):
            return True
    return False


# -- ops of tensors --------------------------------------------------------------------------------


def tensor_op(
    interpreter: Interpreter, name: str, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
) -> ProgramValue:
    """Return what an op of the table yields.

    Raises:
        Unsupported: It is not in the table, or not for these arguments.
    """
    if name in ("div", "div_") and interpreter.version < TRUE_DIVISION and _of_integers(args):
        kwargs = {**kwargs, "rounding_mode": "trunc"}
    known = compute_known_integers(interpreter, name, args, kwargs)
    if known is not None:
        return SPECIAL["prim.NumToTensor"](interpreter, known)
    folded = fold_constants(interpreter, name, args, kwargs)
    if folded is not None:
        return folded
    if name == "full" and interpreter.version < TYPED_FULL and kwargs.get("dtype") is None:
        args = [args[0], *(SPECIAL["float"](interpreter, one) for one in args[1:2]), *args[2:]]
    if (
        name in ALWAYS_STEPS
        and interpreter.version < ALWAYS_STEPS[name]
        and args[2:3] in ([None], [])
    ):
        args = [*args[:2], 100, *args[3:]]
    found = bound(name, args, kwargs)
    if found is None:
        if not schemas(name):
            return _plain(interpreter, calls.call(interpreter.op, name, args, kwargs))
        given = ", ".join(words(a) for a in args)
        raise Unsupported(f"no overload for {given:.200}")
    schema, named = found
    check(interpreter.op, schema.name, named)
    return _plain(interpreter, _by_schema(interpreter, schema, named))


def _of_integers(args: Sequence[ProgramValue]) -> bool:
    return all(
        kind(a.read().dtype) < 2 if isinstance(a, Reference) else isinstance(a, int)
        for a in args[:2]
    )


def _by_schema(
    interpreter: Interpreter, schema: Schema, named: dict[str, ProgramValue]
) -> ProgramValue:
    """Call an op with arguments by name, those left out that say nothing."""
    base = schema.name
    row = None
    if base.endswith("_") and not base.endswith("__"):
        base = base[:-1]
        row = handler_of(f"{base}.{schema.overload}" if schema.overload else base)
        named = _as_functional(schema, base, named)
    row = row or handler_of(schema.full)
    overload: str | None = schema.overload or "default"
    if row is None:  # an overload that the table has under another name
        rows = [r for r in OPS.overloads(base) if set(r.parameters[: r.required]) <= set(named)]
        row = rows[0] if len(rows) == 1 else None
        overload = None
    given = dict(named)
    if row is not None:
        for argument in schema.arguments:
            if argument.name in row.parameters or argument.name not in given:
                continue
            if argument.name in IGNORED or _is_default(argument, given[argument.name]):
                del given[argument.name]
    kinds = {a.name: a.kind for a in schema.arguments}
    given = {k: _argument(interpreter, v, kinds.get(k, "")) for k, v in given.items()}
    return calls.call(interpreter.op, schema.name, (), given, overload=overload)


NUMBERS = frozenset(("Scalar", "int", "SymInt", "float", "bool"))


def _inner(kind: str) -> str:
    """Return the type of a list's elements, or of what may be nothing."""
    return kind.removesuffix("?").partition("[")[0].removesuffix("?")


def _as_functional(
    schema: Schema, base: str, named: dict[str, ProgramValue]
) -> dict[str, ProgramValue]:
    """Return the arguments of an in-place op under the names of the functional one."""
    for other in schemas(base):
        if other.overload == schema.overload and len(other.arguments) == len(schema.arguments):
            pairs = zip(schema.arguments, other.arguments, strict=True)
            return {new.name: named[old.name] for old, new in pairs if old.name in named}
    return named


def _argument(interpreter: Interpreter, value: ProgramValue, kind: str) -> ProgramValue:
    """Return an argument as handlers take it."""
    if isinstance(value, Reference) and _inner(kind) in NUMBERS:
        return number_of(interpreter, value)
    if isinstance(value, Number) and _inner(kind) == "SymInt":
        return _as_size(interpreter, value)
    if isinstance(value, Items) and value.grown is not None:
        raise Unsupported("a list of as many elements as a loop has rounds")
    if isinstance(value, list | tuple):
        return [_argument(interpreter, one, kind) for one in value]
    if isinstance(value, DeviceName):
        return value.name
    return value


def _as_size(interpreter: Interpreter, number: Number) -> Size:
    """Return a number that the graph computes as the size that it is used for."""
    op = interpreter.op
    return op.define(f"n__{number.value.name}", lambda: op.unsqueeze(number.value, [0]))


def _plain(interpreter: Interpreter, value: ProgramValue) -> ProgramValue:
    """Return what a handler made as a value of the program."""
    if isinstance(value, list):
        return Items([_plain(interpreter, one) for one in value], interpreter.depth)
    return value


def bound(
    name: str, args: Sequence[ProgramValue], kwargs: Mapping[str, ProgramValue]
) -> tuple[Schema, dict[str, ProgramValue]] | None:
    """Return the overload that takes these arguments, and them by name."""
    for widened in (False, True):
        for schema in schemas(name):
            named = _bound(schema, args, kwargs, widened=widened)
            if named is not None:
                return schema, named
    return None


def _bound(
    schema: Schema,
    args: Sequence[ProgramValue],
    kwargs: Mapping[str, ProgramValue],
    *,
    widened: bool,
) -> dict[str, ProgramValue] | None:
    if len(args) > len(schema.arguments):
        return None
    named: dict[str, ProgramValue] = {}
    for i, argument in enumerate(schema.arguments):
        if i < len(args):
            # Old archives give by position what is given by name alone today.
            if argument.is_named and not widened:
                return None
            value = args[i]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        elif argument.default is None:
            return None
        else:
            continue
        if not matches_type(argument.kind, value, widened=widened):
            return None
        named[argument.name] = value
    taken = {a.name for a in schema.arguments[len(args) :]}
    return named if all(word in taken for word in kwargs) else None


def matches_type(kind: str, operand: ProgramValue, *, widened: bool) -> bool:
    """Return whether a value is of a schema's type."""
    if kind.endswith("?"):
        return operand is None or matches_type(kind[:-1], operand, widened=widened)
    if kind.endswith("]"):
        inner, _, count = kind[:-1].rpartition("[")
        if isinstance(operand, list | tuple):
            if isinstance(operand, Items) and operand.grown is not None:
                return inner == "Tensor"
            return all(matches_type(inner, one, widened=widened) for one in operand)
        return bool(count) and matches_type(inner, operand, widened=widened)
    if isinstance(operand, Reference):  # a tensor of one element is a number where one is wanted
        return kind == "Tensor" or (widened and kind in NUMBERS)
    if kind == "Scalar":
        return is_number(operand)
    if kind in ("int", "SymInt"):
        if isinstance(operand, Number):
            return not operand.value.is_float
        return isinstance(operand, int | Size) and not (isinstance(operand, bool) and not widened)
    if kind == "float":
        if isinstance(operand, Number):
            return operand.value.is_float
        return isinstance(operand, float) or (widened and isinstance(operand, int))
    if kind == "bool":
        return isinstance(operand, bool)
    if kind == "str":
        return is_text(operand)
    if kind in ("ScalarType", "Layout", "MemoryFormat", "QScheme"):
        return isinstance(operand, int) and not isinstance(operand, bool)
    if kind == "Device":
        return isinstance(operand, DeviceName)
    return kind in ("t", "Any") or (kind == "Generator" and operand is None)


@cache
def _literal(text: str) -> ProgramValue:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _is_default(argument: Argument, value: ProgramValue) -> bool:
    if argument.default is None:
        return False
    default = _literal(argument.default)
    if isinstance(value, list | tuple) and isinstance(default, list):
        return list(value) == default
    return type(value) is type(default) and bool(value == default)
