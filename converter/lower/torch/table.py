"""THE table of torch's ATen ops: a function each, whose signature is the op's schema.

A handler takes the builder, and then the schema's arguments under their names, with their defaults.
An argument that is in no signature is unsupported, never ignored, except what says only where a
tensor is kept (`IGNORED`). Annotations tell overloads apart where a source does not name them.

To add an op, write its handler into the family it belongs to, in torch's own formulation and by
other handlers where torch composes it::

    @aten("xlogy.Tensor", "special_xlogy")
    def xlogy(op: Context, self: Value, other: Value) -> Value:
        \"\"\"A * log(b), and 0 where a is 0.\"\"\"
        a, b = together(op, [self, other], floating(result_type(self, other)))
        return op.where(op.elementwise("Equal", a, 0.0), 0.0, op.mul(a, op.unary("Log", b)))

and a row into ``fixtures/torch_ops/rows/<family>.py``, which ``make.py`` runs with torch; of an op
that several front ends have, what it computes goes to `converter.lower.ops`, with a row beside
NumPy in ``tests/converter/lower/ops/test_one_meaning.py``, which needs no framework. A family is a
module of handlers; a new one is named in `OPS`.
Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/native_functions.yaml
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from converter.lower.table import OpTable
from converter.lower.table import Row as OpRow
from converter.lower.torch.program_values import Size
from converter.lower.unsupported import Unsupported
from formats.core.plurals import count

# Arguments that say where and how a tensor is kept, or how it is to be computed, and never what.
IGNORED = frozenset((
    "device", "layout", "memory_format", "pin_memory", "non_blocking", "requires_grad",
    "generator", "enable_gqa_hint", "is_coalesced",
))  # fmt: skip
# Prefixes of names in programs of each age.
PREFIXES = ("torch.ops.", "torch._ops.", "aten.", "aten::", "prims.", "prims::")


@dataclass(frozen=True, slots=True)
class Row(OpRow):
    """One overload of one op: ``add.Tensor``; the name of the default overload has no dot."""

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name, without those that say nothing of what is computed.

        Raises:
            Unsupported: There are more, others or fewer than the handler takes.
        """
        if len(args) > len(self.parameters):
            raise Unsupported(count("argument", len(args)))
        found = dict(zip(self.parameters, args, strict=False))
        for word, value in kwargs.items():
            name = f"{word}_" if iskeyword(word) else word
            if name in self.arguments:
                found[name] = value
            elif not self.is_ignored(name):
                raise Unsupported(f"argument {name}")
        missing = [p for p in self.parameters[: self.required] if p not in found]
        if missing:
            raise Unsupported(f"no argument {missing[0]}")
        return found

    def takes(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, exactly: bool) -> bool:
        """Return whether arguments are of the kinds that this overload takes.

        Args:
            args: Positional ones.
            kwargs: Those by name.
            exactly: Whether a single number is no list of them.
        """
        try:
            found = self.bound(args, kwargs)
        except Unsupported:
            return False
        return all(
            matches_annotation(self.kinds.get(name, Any), value, exactly=exactly)
            for name, value in found.items()
        )


class AtenTable(OpTable[Row]):
    """The table of ATen's ops, in which an op may have several overloads."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._overloads: dict[str, list[Row]] = {}

    def overloads(self, name: str) -> Sequence[Row]:
        """Return all overloads of an op, in the order in which they are to be tried."""
        self.import_all()  # those of one op may be in several families
        if not self._overloads:
            for row in self.values():
                self._overloads.setdefault(row.name.partition(".")[0], []).append(row)
        return self._overloads.get(name, ())


# A new family is named here.
OPS = AtenTable(
    Row, __package__, (
    "basics", "arithmetic", "activations", "convolution", "normalization", "linear", "shaping",
    "slicing", "pooling", "reductions", "creation", "attention", "indexing", "scattering",
    "padding", "embedding", "elementwise", "recurrent", "resizing", "ordering", "symbols",
    "unfold", "fused", "complexes", "fourier", "spectrograms", "matrices", "special", "random",
    "vision", "experts", "quantized", "sequences", "prepacked", "decomposed", "stacking", "losses",
    "numerics", "slopes", "factors", "reflections", "gradients", "polynomials", "float_parts",
    ),
    is_ignored=IGNORED.__contains__,
)  # fmt: skip


aten = OPS.enter  # ``@aten("relu", "add.Tensor")``: with the overload, unless it is the default one


def plain_name(target: str) -> str:
    """Return ``torch.ops.aten.add.Tensor`` or ``aten::add.Tensor`` as the table has it.

    Names of other libraries than torch's keep theirs: ``torchvision.nms``.
    """
    name = target
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name.replace("::", ".").removesuffix(".default")


def handler_of(name: str, overload: str | None = None) -> Row | None:
    """Return the row of an op, or None.

    Args:
        name: Name in any spelling, with or without its overload.
        overload: Its name; ``default`` and the empty text are the default one.
    """
    plain = plain_name(name)
    return OPS.get(f"{plain}.{overload}" if overload not in (None, "", "default") else plain)


def resolve(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Row | None:
    """Return the overload that takes these arguments, or None: for sources that name none."""
    plain = plain_name(name)
    if "." in plain:
        return OPS.get(plain)
    for exactly in (True, False):
        for row in OPS.overloads(plain):
            if row.takes(args, kwargs, exactly=exactly):
                return row
    return None


def matches_annotation(kind: Any, value: Any, *, exactly: bool = False) -> bool:
    """Return whether a value is of the kind that an annotation says.

    Args:
        kind: The annotation.
        value: Value of the program.
        exactly: Whether a single number is no list of them.
    """
    if kind is Any:
        return True
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(matches_annotation(one, value, exactly=exactly) for one in get_args(kind))
    if origin is not None:  # Sequence[...]
        (inner,) = get_args(kind)
        if isinstance(value, list | tuple):
            return all(matches_annotation(inner, one) for one in value)
        if exactly or isinstance(value, bool):
            return False
        return isinstance(value, int | Size) and matches_annotation(inner, value)
    if kind is None or kind is NoneType:
        return value is None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int)
    if kind is str:
        return isinstance(value, str) and not isinstance(value, Size)
    return isinstance(value, kind)
