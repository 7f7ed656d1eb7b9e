"""Tables of operations: what a framework calls an operation, and the function that lowers it.

Each framework has its tables (`converter.lower.tf.table`, `converter.lower.torch.table`,
`converter.lower.keras.table`); what a row is, how families are found and how arguments are bound is
said here, once.

A *handler* is a function whose signature is the operation's specification: the builder first, then
the tensors and arguments under the framework's own names, with its defaults. The first line of its
docstring is the operation's line in the support matrix (``convert ops``). Operations that differ
in a setting alone share a handler, and are literal rows of it::

    @tf_op(
        Variant("SegmentMax", "The largest of each segment.", kind="Max"),
        Variant("SegmentMin", "The smallest of each segment.", kind="Min"),
    )
    def reduce_segments(op, data, segment_ids, /, *, kind): ...

    @tf_op(*direct({"Abs": "Abs", "Inv": "Reciprocal"}))
    def unary(op, x, /, *, op_type):
        return op.unary(op_type, x)

An argument that is in no signature is unsupported, never ignored, unless the table says that it
has no meaning for inference.

To add an operation, write a handler in the family it belongs to. To add a family, write a module
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
    """One of several rows of a handler, by what distinguishes it.

    Attributes:
        names: Of the operation, which may have several.
        summary: Its line in the support matrix; None for the handler's own.
        settings: What the handler is given for it, by name, beside the operation's own arguments.
    """

    def __init__(
        self, names: str | tuple[str, ...], summary: str | None = None, /, **settings: Any
    ) -> None:
        self.names = (names,) if isinstance(names, str) else names
        self.summary, self.settings = summary, settings


def summarize(text: str | None) -> str:
    """Return the first line of a docstring."""
    return (text or "").strip().partition("\n")[0]


def direct(op_types: Mapping[str, str], formula: str = "{}(x).") -> list[Variant]:
    """Return rows of operations that are one node of ONNX each, which is their ``op_type``."""
    return [
        Variant(name, formula.format(op_type.lower()), op_type=op_type)
        for name, op_type in op_types.items()
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """One operation.

    Attributes:
        name: As the framework has it.
        handler: Lowers it; the row's settings are bound.
        summary: What it computes, in one line.
        module: Where the handler is written.
        parameters: Names of its tensors and arguments, in order.
        positional: How many of these may be given by position.
        required: How many of these have no default.
        arguments: Names of those that may be given by name.
        is_variadic: Whether it takes any number of tensors.
        kinds: Annotations, by parameter.
        is_ignored: Tells names of arguments that have no meaning for inference.
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
        """The handler as it is written, which its variants share."""
        return self.handler.func if isinstance(self.handler, partial) else self.handler

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return those names that are neither arguments of the handler nor without meaning."""
        return [name for name in names if name not in self.arguments and not self.is_ignored(name)]

    def known(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the given arguments that the handler takes."""
        return {name: value for name, value in given.items() if name in self.arguments}


R = TypeVar("R", bound=Row)


class OpTable(Mapping[str, R], Generic[R]):
    """Rows by name, entered by families: modules that are imported when a row is looked for.

    A model needs few of them, and importing all takes longer than lowering it.
    """

    def __init__(
        self, row: type[R], package: str = "", families: Sequence[str] = (), *, leading: int = 1,
        supplied: Sequence[str] = (), is_ignored: Callable[[str], bool] = _NOTHING.__contains__,
    ) -> None:  # fmt: skip
        """Name the families.

        Args:
            row: Class of the rows.
            package: Where the families are.
            families: Modules below it, those first that most models need.
            leading: How many parameters precede the operation's own: the builder, and weights.
            supplied: Arguments that handlers may take and no file gives: the front end does.
            is_ignored: Tells names of arguments that have no meaning for inference.
        """
        self.families = tuple(f"{package}.{family}" for family in families)
        self._left = list(self.families)
        self._rows: dict[str, R] = {}
        self._row = row
        self._leading = leading
        self._supplied = frozenset(supplied)
        self._is_ignored = is_ignored

    def enter(self, *names: str | Variant, **more: Any) -> Callable[[H], H]:
        """Return a decorator that enters a handler under these names.

        Args:
            names: Of the operations.
            more: What else their rows say.

        Raises:
            ValueError: One of them is taken.
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
        """Return what a handler's signature says of an operation's own arguments."""
        code = getattr(handler, "__code__", None)
        if code is None or handler.__dict__:  # it may say that it has another signature
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
        """Return what a handler's signature says, however it is made."""
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
        """Return what ``convert ops`` prints of each row.

        Args:
            prefix: What stands in front of the names.
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
