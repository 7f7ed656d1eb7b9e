"""Tables of operations: what a framework calls an operation, and the function that lowers it.

Each framework has its tables (`converter.lower.tf.table`, `converter.lower.torch.table`,
`converter.lower.keras.table`); this module defines rows, how families of handlers are imported and
how arguments are read from signatures.

A *handler* is a function whose signature is the operation's specification: the builder first, then
the tensors and arguments under the framework's own names, with its defaults. The first line of its
docstring is the operation's line in the support matrix (``convert ops``). Operations that differ
only in a setting share a handler; each has a literal row::

    @tf_op(
        Variant("SegmentMax", "Maximum of each segment.", kind="Max"),
        Variant("SegmentMin", "Minimum of each segment.", kind="Min"),
    )
    def reduce_segments(op, data, segment_ids, /, *, kind): ...

    @tf_op(*direct({"Abs": "Abs", "Inv": "Reciprocal"}))
    def unary(op, x, /, *, op_type):
        return op.unary(op_type, x)

An argument that is not in the handler's signature is unsupported and never ignored, unless the
table lists it as irrelevant to inference.

To add an operation, write a handler in the module of its family. To add a family, write a module
and name it in the framework's table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from inspect import CO_VARARGS, signature
from typing import Any, Generic, TypeVar

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)
_NOTHING: frozenset[str] = frozenset()


class Variant:
    """One of several operations of a handler, with the settings that distinguish it.

    Attributes:
        names: Names of the operation.
        summary: Its line in the support matrix; None for that of the handler.
        settings: Keyword arguments for the handler, in addition to the operation's arguments.
    """

    def __init__(
        self, names: str | tuple[str, ...], summary: str | None = None, /, **settings: Any
    ) -> None:
        self.names = (names,) if isinstance(names, str) else names
        self.summary, self.settings = summary, settings


def summarize(text: str | None) -> str:
    """Return the first line of a docstring, for the support matrix."""
    return (text or "").strip().partition("\n")[0]


def direct(op_types: Mapping[str, str], formula: str = "{}(x).") -> list[Variant]:
    """Return variants for operations that are a single ONNX node each, given as ``op_type``."""
    return [
        Variant(name, formula.format(op_type.lower()), op_type=op_type)
        for name, op_type in op_types.items()
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """One operation.

    Attributes:
        name: Name of the operation in the framework.
        handler: Function that lowers it, with the settings of its variant bound.
        summary: What the operation computes, in one line.
        module: Module of the handler.
        parameters: Names of its tensors and arguments, in order.
        positional: Number of parameters that may be positional.
        required: Number of positional parameters without a default.
        arguments: Names of the parameters that may be keyword arguments.
        is_variadic: Whether it takes any number of tensors.
        kinds: Annotations by parameter.
        is_ignored: Function that returns whether an argument is irrelevant to inference.
    """

    name: str
    handler: Handler
    summary: str = ""
    module: str = ""
    parameters: tuple[str, ...] = ()
    positional: int = 0
    required: int = 0
    arguments: frozenset[str] = _NOTHING
    is_variadic: bool = False
    kinds: Mapping[str, Any] = field(default_factory=dict)
    is_ignored: Callable[[str], bool] = _NOTHING.__contains__

    @property
    def function(self) -> Handler:
        """The handler without bound settings, which all its variants share."""
        return self.handler.func if isinstance(self.handler, partial) else self.handler

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return the names that are neither arguments of the handler nor ignored."""
        return [name for name in names if name not in self.arguments and not self.is_ignored(name)]

    def known(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given arguments that the handler takes."""
        return {name: value for name, value in given.items() if name in self.arguments}


R = TypeVar("R", bound=Row)


class OpTable(Mapping[str, R], Generic[R]):
    """Rows by name; the modules that register them (families) are imported on demand.

    A model needs few families, and importing all of them takes longer than lowering it.
    """

    def __init__(
        self, row: type[R], package: str = "", families: Sequence[str] = (), *, leading: int = 1,
        supplied: Sequence[str] = (), is_ignored: Callable[[str], bool] = _NOTHING.__contains__,
    ) -> None:  # fmt: skip
        """Set the families, without importing them.

        Args:
            row: Class of the rows.
            package: Package of the families.
            families: Modules of the package, the most frequently needed first.
            leading: Number of parameters before the operation's own: the builder, and weights.
            supplied: Arguments that the front end passes to handlers, and files do not contain.
            is_ignored: Function that returns whether an argument is irrelevant to inference.
        """
        self.families = tuple(f"{package}.{family}" for family in families)
        self._left = list(self.families)
        self._rows: dict[str, R] = {}
        self._row = row
        self._leading = leading
        self._supplied = frozenset(supplied)
        self._is_ignored = is_ignored

    def enter(self, *names: str | Variant, **more: Any) -> Callable[[H], H]:
        """Return a decorator that registers a handler under these names.

        Args:
            names: Names or variants of the operations.
            more: Further fields of their rows.

        Raises:
            ValueError: A name has a handler already.
        """

        def decorate(handler: H) -> H:
            variants = [one if isinstance(one, Variant) else Variant(one) for one in names]
            settings = frozenset(key for variant in variants for key in variant.settings)
            signed = self._sign(handler, settings) | {"is_ignored": self._is_ignored} | more
            for variant in variants:
                for name in variant.names:
                    if name in self._rows:
                        raise ValueError(f"two handlers for {name}")
                    self._rows[name] = self._make(name, handler, variant, signed)
            return handler

        return decorate

    def _make(self, name: str, handler: Handler, variant: Variant, signed: Mapping[str, Any]) -> R:
        summary = summarize(variant.summary or handler.__doc__)
        bound = partial(handler, **variant.settings) if variant.settings else handler
        return self._row(name=name, handler=bound, summary=summary, **signed)

    def _sign(self, handler: Handler, settings: frozenset[str]) -> dict[str, Any]:
        """Return the fields of a row that follow from a handler's signature."""
        code = getattr(handler, "__code__", None)
        if code is None or handler.__dict__:  # it may have a __signature__ or be wrapped
            return self._inspect(handler)
        positional = code.co_varnames[self._leading : code.co_argcount]
        others = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        named = [name for name in others if name not in settings]
        return {
            "module": handler.__module__,
            "parameters": (*positional, *named),
            "positional": len(positional),
            "required": len(positional) - len(handler.__defaults__ or ()),
            "arguments": frozenset(
                (*positional[max(0, code.co_posonlyargcount - self._leading) :], *named)
            ),
            "is_variadic": bool(code.co_flags & CO_VARARGS),
            "kinds": handler.__annotations__,
        }

    def _inspect(self, handler: Handler) -> dict[str, Any]:
        """Return the fields of `_sign` by `inspect.signature`, for any callable."""
        found = signature(handler).parameters.values()
        positional = [p for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        positional = positional[self._leading :]
        named = [p.name for p in found if p.kind is p.KEYWORD_ONLY]
        return {
            "module": handler.__module__,
            "parameters": (*(p.name for p in positional), *named),
            "positional": len(positional),
            "required": sum(p.default is p.empty for p in positional),
            "arguments": frozenset(
                (*(p.name for p in positional if p.kind is p.POSITIONAL_OR_KEYWORD), *named)
            ),
            "is_variadic": any(p.kind is p.VAR_POSITIONAL for p in found),
            "kinds": {p.name: p.annotation for p in found},
        }

    def __getitem__(self, name: str) -> R:
        while name not in self._rows and self._left:
            import_module(self._left.pop(0))
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        self.import_all()
        return iter(self._rows)

    def __len__(self) -> int:
        self.import_all()
        return len(self._rows)

    def import_all(self) -> None:
        """Import all families."""
        while self._left:
            import_module(self._left.pop(0))

    def support_matrix(self, prefix: str = "") -> list[dict[str, Any]]:
        """Return the entry of each row in the output of ``convert ops``.

        Args:
            prefix: Prefix of the names.
        """
        return [
            {
                "name": f"{prefix}{name}",
                "computes": row.summary,
                "arguments": [
                    p for p in row.parameters if p in row.arguments and p not in self._supplied
                ],
            }
            for name, row in sorted(self.items())
        ]
