"""Calls of ops: references become values, the op's handler builds it, and values become references.

Both front ends go through here: exported programs, which name the overload of each op, and
TorchScript, which does not. Ops that write in place (``add_``) are those that do not, and a write.
"""

from collections.abc import Mapping, Sequence

from converter.lower.torch import complexes, quantized, sequences, views
from converter.lower.torch.complex_tensors import Pair, is_complex
from converter.lower.torch.context import Context
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.normalization import update_statistics
from converter.lower.torch.program_values import ProgramValue
from converter.lower.torch.promotion import SCALAR_TYPES
from converter.lower.torch.quantized_tensors import is_quantized
from converter.lower.torch.table import Row, handler_of, plain_name, resolve
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

# What the program says of itself, and computes nothing.
DROPPED = frozenset((
    "_assert_async", "_assert_async.msg", "_assert_scalar", "_assert_tensor_metadata",
    "sym_constrain_range", "sym_constrain_range_for_size", "_functional_assert_async.msg",
    "_functional_assert_scalar", "_functional_sym_constrain_range", "_check_is_size", "_print",
    "_functional_sym_constrain_range_for_size", "_shape_check", "manual_seed", "_warn",
    "_make_dep_token", "_sink_tokens", "_linalg_check_errors",
))  # fmt: skip

# Ops that write to their running statistics, which their names do not say.
WITH_STATISTICS = (
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm",
)  # fmt: skip
DTYPES = ("dtype", "input_dtype")  # parameters that are dtypes, which archives have as numbers


def call(
    op: Context,
    name: str,
    args: Sequence[ProgramValue],
    kwargs: Mapping[str, ProgramValue] | None = None,
    *,
    overload: str | None = None,
) -> ProgramValue:
    """Return what an op yields, built into the graph.

    Args:
        op: Builder.
        name: ``aten.add.Tensor``, ``aten::add``, ``add_``, in any spelling of `plain_name`.
        args: Positional arguments: references for tensors, or lists with them, and other values.
        kwargs: Those by name.
        overload: Where the name has none. If neither says one, the arguments do.

    Returns:
        References for tensors, and Python's own numbers, sizes and lists.

    Raises:
        Unsupported: The op is not in the table, or asks for what it does not do.
    """
    named = dict(kwargs or {})
    plain = plain_name(name)
    if overload not in (None, "", "default") and "." not in plain:
        plain = f"{plain}.{overload}"
    if plain in DROPPED:
        return None
    exact = overload is not None or "." in plain or name.endswith(".default")
    row = _row(plain, args, named, is_exact=exact)
    if row is not None:
        made = _call_row(op, row, args, named)
        if plain.partition(".")[0] in WITH_STATISTICS:
            _update_statistics(op, row.bound(args, named))
        return made
    base = _in_place_of(plain)
    if base is None:
        raise Unsupported
    return _in_place(op, base, args, named, is_exact=exact)


def _update_statistics(op: Context, bound: Mapping[str, ProgramValue]) -> None:
    """Write the running statistics of a batch normalization that trains, as its op does."""
    mean, variance = bound.get("running_mean"), bound.get("running_var")
    if not bound["training"] or mean is None or variance is None:
        return
    after = [mean.read(), variance.read()]
    if op.keeps_state:
        after = update_statistics(op, bound["input"].read(), after[0], after[1], bound["momentum"])
    mean.assign(after[0])
    variance.assign(after[1])


def _in_place_of(plain: str) -> str | None:
    """Return the functional op of one that writes in place, or None."""
    name, dot, overload = plain.partition(".")
    if not name.endswith("_") or name.endswith("__"):
        return None
    return name[:-1] + dot + overload


def _row(
    plain: str, args: Sequence[ProgramValue], kwargs: Mapping[str, ProgramValue], *, is_exact: bool
) -> Row | None:
    """Return the row that is named, or else that which takes the arguments."""
    if is_exact:
        row = handler_of(plain)
        base = _in_place_of(plain)
        if row is not None or (base is not None and handler_of(base) is not None):
            return row
    given = {name: _values(value) for name, value in kwargs.items()}
    return resolve(plain, [_values(value) for value in args], given)


def _call_row(
    op: Context, row: Row, args: Sequence[ProgramValue], kwargs: Mapping[str, ProgramValue]
) -> ProgramValue:
    bound = row.bound(args, kwargs)
    for name in DTYPES:
        dtype = bound.get(name)
        if isinstance(dtype, int):
            if dtype not in SCALAR_TYPES:
                raise Unsupported(f"dtype {dtype}")
            bound[name] = SCALAR_TYPES[dtype]
    given = {name: _values(value) for name, value in bound.items()}
    with op.scope(row.name.replace(".", "_")):
        made = _built(op, row, given)
    view = views.VIEWS.get(row.name.partition(".")[0])
    source = bound.get(row.parameters[0]) if row.parameters else None
    if view is not None and isinstance(source, Reference):
        return _view(op, row, view, source, given, made)
    # What torch computes of elements that lie in another order may lie so, too.
    return references(made, is_contiguous=all(_lies_in_order(value) for value in bound.values()))


def _lies_in_order(value: ProgramValue) -> bool:
    if isinstance(value, list | tuple):
        return all(_lies_in_order(one) for one in value)
    return not isinstance(value, Reference) or value.is_contiguous


def _view(
    op: Context,
    row: Row,
    view: views.View,
    source: Reference,
    given: dict[str, ProgramValue],
    made: ProgramValue,
) -> ProgramValue:
    """Return what an op yields as views of its first argument."""
    rest = {name: operand for name, operand in given.items() if name != row.parameters[0]}

    def one(now: Value, place: int | None) -> Reference:
        def again(base: Value) -> Value:
            found = _built(op, row, {row.parameters[0]: base, **rest})
            value = found if place is None else found[place]
            assert isinstance(value, Value)
            return value

        def write(base: Value, value: Value) -> Value:
            return _written(op, view, base, value, rest, place)

        if view.kind == "same":
            is_copy = now is not source.read() or bool(given.get("copy"))
            return Reference.to(now) if is_copy else source
        return source.viewed(
            now, again, None if view.write is None else write,
            is_contiguous=source.is_contiguous and view.keeps_order,
            is_doubtful=view.kind == "maybe" and not source.is_contiguous,
        )  # fmt: skip

    if isinstance(made, Value):
        return one(made, None)
    return [one(value, place) for place, value in enumerate(made)]


def _built(op: Context, row: Row, given: Mapping[str, ProgramValue]) -> ProgramValue:
    """Return what an op's handler makes, or what it is for complex numbers."""
    if given.get("dtype") in complexes.DTYPES or any(is_complex(one) for one in given.values()):
        return complexes.apply(op, row, given)
    if any(is_quantized(value) for value in given.values()):
        return quantized.apply(op, row, given)
    if any(sequences.has_sequences(value) for value in given.values()):
        return sequences.apply(op, row, given)
    return row.handler(op, **given)


def _written(
    op: Context, view: views.View, base: Value, value: Value, rest: Mapping[str, ProgramValue],
    place: int | None,
) -> Value:  # fmt: skip
    """Return a view's elements put into its base."""
    assert view.write is not None
    if not isinstance(base, Pair):
        return view.write(op, base, value, rest, place)
    parts = zip(base.parts, complexes.pair(op, value, base.real.dtype).parts, strict=True)
    return Pair.of(*(view.write(op, a, b, rest, place) for a, b in parts))


def _in_place(
    op: Context,
    plain: str,
    args: Sequence[ProgramValue],
    kwargs: Mapping[str, ProgramValue],
    *,
    is_exact: bool,
) -> ProgramValue:
    """Write what an op yields into its first argument, and return that."""
    row = _row(plain, args, kwargs, is_exact=is_exact)
    if row is None:
        raise Unsupported
    if "self" in kwargs and row.parameters[0] == "input":  # dropout_(self, …) of dropout(input, …)
        kwargs = {"input" if name == "self" else name: value for name, value in kwargs.items()}
    bound = row.bound(args, kwargs)
    target = bound[row.parameters[0]]
    if not isinstance(target, Reference):
        raise Unsupported("an operation in place, on no tensor")
    if plain.partition(".")[0] in RESHAPING:  # its elements stay where they are
        if "resize" in plain and not target.is_contiguous:
            raise Unsupported("elements that do not lie in order")
        before = target.copied()
        target.become(_call_row(op, row, (), {**bound, row.parameters[0]: before}))
        return target
    made = _call_row(op, row, (), bound)
    if not isinstance(made, Reference):
        raise Unsupported("an operation in place that yields no tensor")
    old = target.read()
    value = op.cast(made.read(), old.dtype)
    if value.shape != old.shape:
        value = op.expand(value, op.named(old).shape, like=old)
    if target.is_doubtful and op.is_outermost:
        target.part()
    target.assign(value)
    return target


RESHAPING = frozenset((
    "squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "resize", "resize_as",
))  # fmt: skip


def _values(value: ProgramValue) -> ProgramValue:
    """Return a value with values for references."""
    if isinstance(value, Reference):
        return value.read()
    if isinstance(value, list | tuple):
        return [_values(one) for one in value]
    return value


def references(value: ProgramValue, *, is_contiguous: bool = True) -> ProgramValue:
    """Return what a handler made with references for values.

    Args:
        value: The values.
        is_contiguous: Whether torch has the elements of all of them in order.
    """
    if isinstance(value, Value):
        return Reference.to(value, is_contiguous=is_contiguous)
    if isinstance(value, list | tuple):
        return [references(one, is_contiguous=is_contiguous) for one in value]
    return value


def values(value: ProgramValue) -> ProgramValue:
    """Return a value of the program with values for its tensors, as they are at present."""
    return _values(value)
