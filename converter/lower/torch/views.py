"""Which ops yield views, and how what is written to a view gets into its base."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from converter.lower import dims
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import integer
from converter.lower.torch.scattering import select_scatter, slice_scatter
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, inverse

# Builder, base, what the view is now, the view's other arguments, which of several views.
Write = Callable[[Context, Value, Value, Mapping[str, Any], int | None], Value]


@dataclass(frozen=True, slots=True)
class View:
    """The way in which an op's result shares memory with its first argument.

    Attributes:
        kind: ``view``; ``maybe`` where torch copies what it cannot view; ``same`` where it returns
            its argument if there is nothing to do, and else a copy.
        keeps_order: Whether a view of elements that lie in order has them in order, too.
        write: Function that writes the view's elements into the base; None where that is not done
            yet.
    """

    kind: Literal["view", "maybe", "same"]
    keeps_order: bool
    write: Write | None = None


def _as_it_was(
    op: Context, base: Value, value: Value, given: Mapping[str, Any], place: int | None
) -> Value:
    """Another shape of all elements: back to the base's."""
    del given, place
    return op.reshape(value, op.named(base).shape)


def _same(
    op: Context, base: Value, value: Value, given: Mapping[str, Any], place: int | None
) -> Value:
    del given, place
    return op.cast(value, base.dtype)


def _swap(
    op: Context, base: Value, value: Value, given: Mapping[str, Any], place: int | None
) -> Value:
    del op, place
    names = [n for n in given if n not in ("dim0", "dim1", "axis0", "axis1")]
    if names:
        raise Unsupported(f"argument {names[0]}")
    order = list(range(base.rank))
    one, other = [base.axis(int(n)) for n in given.values()] if given else (-2, -1)
    if base.rank > 1:
        order[one], order[other] = order[other], order[one]
    return value.transposed(order)


def _permute(
    op: Context, base: Value, value: Value, given: Mapping[str, Any], place: int | None
) -> Value:
    del op, place
    return value.transposed(inverse([base.axis(int(n)) for n in given["dims"]]))


def _select(
    op: Context, base: Value, value: Value, given: Mapping[str, Any], place: int | None
) -> Value:
    del place
    return select_scatter(op, base, value, given["dim"], given["index"])


def _slice(
    op: Context, base: Value, value: Value, given: Mapping[str, Any], place: int | None
) -> Value:
    del place
    return slice_scatter(op, base, value, **given)


def _narrow(
    op: Context, base: Value, value: Value, given: Mapping[str, Any], place: int | None
) -> Value:
    del place
    start = given["start"]
    if isinstance(start, int) and start < 0:
        start = dims.add(op.axis_of(base, given["dim"]), start)
    end = integer(dims.add(start, given["length"]))
    return slice_scatter(op, base, value, given["dim"], start, end)


def _take(
    op: Context, base: Value, value: Value, given: Mapping[str, Any], place: int | None
) -> Value:
    assert place is not None
    return select_scatter(op, base, value, given.get("dim", 0), place)


# fmt: off
VIEWS: dict[str, View] = {
    "alias":       View("view", keeps_order=True, write=_same),
    "detach":      View("view", keeps_order=True, write=_same),
    "contiguous":  View("maybe", keeps_order=True, write=_same),
    "view":        View("view", keeps_order=True, write=_as_it_was),
    "view_as":     View("view", keeps_order=True, write=_as_it_was),
    "reshape":     View("maybe", keeps_order=True, write=_as_it_was),
    "reshape_as":  View("maybe", keeps_order=True, write=_as_it_was),
    "flatten":     View("maybe", keeps_order=True, write=_as_it_was),
    "unflatten":   View("view", keeps_order=True, write=_as_it_was),
    "squeeze":     View("view", keeps_order=True, write=_as_it_was),
    "unsqueeze":   View("view", keeps_order=True, write=_as_it_was),
    "atleast_1d":  View("view", keeps_order=True, write=_as_it_was),
    "atleast_2d":  View("view", keeps_order=True, write=_as_it_was),
    "atleast_3d":  View("view", keeps_order=True, write=_as_it_was),
    "transpose":   View("view", keeps_order=False, write=_swap),
    "swapaxes":    View("view", keeps_order=False, write=_swap),
    "swapdims":    View("view", keeps_order=False, write=_swap),
    "t":           View("view", keeps_order=False, write=_swap),
    "permute":     View("view", keeps_order=False, write=_permute),
    "select":      View("view", keeps_order=False, write=_select),
    "slice":       View("view", keeps_order=False, write=_slice),
    "narrow":      View("view", keeps_order=False, write=_narrow),
    "unbind":      View("view", keeps_order=False, write=_take),
    **dict.fromkeys(
        ("numpy_T", "mT", "mH", "adjoint", "matrix_H", "movedim", "moveaxis", "expand", "expand_as",
         "broadcast_to", "split", "split_with_sizes", "chunk", "tensor_split", "diagonal",
         "unfold"),
        View("view", keeps_order=False),
    ),
    **dict.fromkeys(
        ("to", "type_as", "float", "double", "half", "bfloat16", "long", "int", "short", "char",
         "byte", "bool", "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout",
         "positive", "lift", "lift_fresh", "resolve_conj", "resolve_neg"),
        View("same", keeps_order=True),
    ),
}
# fmt: on
