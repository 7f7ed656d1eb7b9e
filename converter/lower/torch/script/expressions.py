"""What expressions of a TorchScript program yield: names, attributes of objects, calls.

Every value of the program is a tensor (`Reference`), Python's own numbers, strings and lists, a
symbolic size, or a module. Statements are the subclass's, `script.interpreter`.
"""

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

from converter.lower.torch.complex_tensors import weight
from converter.lower.torch.context import Context
from converter.lower.torch.mutable_tensors import Reference, Storage
from converter.lower.torch.program_values import Number, ProgramValue, Size
from converter.lower.torch.quantized_tensors import load_quantized
from converter.lower.torch.script.branches import chosen
from converter.lower.torch.script.numbers import compute
from converter.lower.torch.script.objects import pack, restore
from converter.lower.torch.script.op_calls import call_op, tensor_op
from converter.lower.torch.script.source import Class, Function, Source
from converter.lower.torch.script.types import (
    Activation,
    KnownNumbers,
    LoopIteration,
    Result,
    Undo,
)
from converter.lower.torch.script.values import (
    UNKNOWN,
    Callee,
    Fields,
    Items,
    Missing,
    Named,
    Unknown,
    is_text,
    leaves,
    words,
)
from converter.lower.unsupported import Finding, Unsupported
from converter.lower.values import Value
from formats.core.bundle import Encoding
from formats.core.weights import Tensor
from formats.errors import CorruptError, LimitError
from formats.torch.script_objects import PACKED, Instance, Objects, Opaque, TensorAt

MOST_READ = 2_000_000  # arguments of ops, those inside of lists each
IMPLICIT = ("training", "_is_full_backward_hook")  # attributes that old archives do not have
OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "remainder", ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "__and__",
    ast.BitOr: "__or__", ast.BitXor: "__xor__", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt",
    ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Is: "__is__", ast.IsNot: "__isnot__",
    ast.USub: "neg", ast.Not: "__not__", ast.Invert: "bitwise_not",
}  # fmt: skip


class ExpressionInterpreter(ABC):
    """Evaluates the expressions of one program.

    Attributes:
        op: The builder.
        source: The archive's text.
        objects: Its module and constants.
        version: Version of the ops, as the archive records it.
        findings: Unsupported operations in the code interpreted so far.
        notes: Assumptions that were made.
        numbers: Tensors that are known numbers.
        depth: Number of the graph's branches and loops around the current statement.
        activations: Functions being interpreted, the innermost last.
    """

    def __init__(
        self, op: Context, source: Source, objects: Objects, names: Mapping[str, str], version: int,
        encodings: Mapping[str, Encoding] | None = None,
    ) -> None:  # fmt: skip
        """Prepare a program.

        Args:
            op: Builder.
            source: Text.
            objects: Objects of the same archive.
            names: Origin of a tensor -> its name among the bundle's weights.
            version: Version of the ops.
            encodings: Encodings of tensors that no plain dtype can hold.
        """
        self.op = op
        self.source = source
        self.objects = objects
        self.version = version
        self.findings: list[Finding] = []
        self.notes: dict[str, None] = {}
        self.numbers = KnownNumbers()
        self.depth = 0
        self.activations: list[Activation] = []
        self.iterations: list[LoopIteration] = []
        self.counters: list[str] = []  # sizes that count the iterations of loops
        self.doubts: list[tuple[Storage, int]] = []  # unsupported if written to later
        self.unkept: dict[str, None] = {}
        self.restored: set[Instance] = set()  # objects whose ``__setstate__`` has run
        self.fields: dict[tuple[Instance, str], ProgramValue] = {}
        self.undos: list[Undo] = []
        self.loaded: dict[Tensor, Reference] = {}
        self.at = ""
        self._names = names
        self._encodings = encodings or {}
        self._read = 0

    def read(self, count: int) -> None:
        """Count arguments that are read.

        Raises:
            LimitError: There were too many.
        """
        self._read += count
        if self._read > MOST_READ:
            raise LimitError(f"a program that reads more than {MOST_READ} values", where=self.at)

    # -- the subclass's ------------------------------------------------------------------------

    @abstractmethod
    def call(
        self, callee: Callee, args: Sequence[ProgramValue], kwargs: Mapping[str, ProgramValue]
    ) -> ProgramValue:
        """Return what a function of the program's own yields."""

    @abstractmethod
    def block(self, statements: Sequence[ast.stmt]) -> Result | None:
        """Interpret statements; return what they return, if they do."""

    @abstractmethod
    def condition(self, node: ast.expr) -> "bool | Number":
        """Return what decides a branch or a loop.

        Raises:
            Stop: It is not known.
        """

    # -- expressions ---------------------------------------------------------------------------

    def value(self, node: ast.expr) -> ProgramValue:
        """Return what an expression yields."""
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.List):
            return Items([self.value(one) for one in node.elts], self.depth)
        if isinstance(node, ast.Tuple):
            return tuple(self.value(one) for one in node.elts)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {self.value(k): self.value(v) for k, v in pairs if k is not None}
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.UnaryOp):
            return call_op(
                self, OPERATORS.get(type(node.op), "pos"), [self.value(node.operand)], {}
            )
        if isinstance(node, ast.BinOp):
            sides = [self.value(node.left), self.value(node.right)]
            return call_op(self, OPERATORS.get(type(node.op), "?"), sides, {})
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = [self.value(node.left), self.value(node.comparators[0])]
            return call_op(self, OPERATORS.get(type(node.ops[0]), "?"), sides, {})
        if isinstance(node, ast.BoolOp):
            return self._bool(node)
        if isinstance(node, ast.IfExp):
            found = self.condition(node.test)
            if isinstance(found, bool):
                return self.value(node.body if found else node.orelse)
            return chosen(self, found.value, node.body, node.orelse)
        raise Unsupported(f"an expression of kind {type(node).__name__}")

    def _bool(self, node: ast.BoolOp) -> ProgramValue:
        is_and = isinstance(node.op, ast.And)
        found: ProgramValue = is_and
        for one in node.values:
            value = call_op(self, "bool", [self.value(one)], {})
            if isinstance(value, bool):
                if value != is_and:
                    return value
            else:
                found = (
                    value if isinstance(found, bool)
                    else compute(self.op, "__and__" if is_and else "__or__", [found, value])
                )  # fmt: skip
        return found

    def _subscript(self, node: ast.Subscript) -> ProgramValue:
        owner = self.value(node.value)
        if isinstance(owner, Named):  # a type: List[int]
            return Named(ast.unparse(node))
        return call_op(self, "__getitem__", [owner, self.value(node.slice)], {})

    def _name(self, name: str) -> ProgramValue:
        names = self.activations[-1].names if self.activations else {}
        if name in names:
            return names[name]
        if name in ("inf", "nan"):
            return float(name)
        return Named(name)

    def _attribute(self, node: ast.Attribute) -> ProgramValue:
        owner = self.value(node.value)
        if isinstance(owner, Named):
            return self._named(f"{owner.name}.{node.attr}")
        return self.attribute(owner, node.attr)

    def _named(self, name: str) -> ProgramValue:
        if name.startswith("CONSTANTS.c"):
            return self._constant(name.removeprefix("CONSTANTS.c"))
        if name.startswith("__torch__."):
            function = self.source.function(name)
            if function is not None:
                return Callee(function)
        return Named(name)

    def _constant(self, number: str) -> ProgramValue:
        at = int(number) if number.isdigit() and len(number) < 10 else -1
        if not 0 <= at < len(self.objects.constants):
            raise CorruptError(f"text that reads a constant c{number[:20]} that is not there")
        key = (self.objects.root, f"CONSTANTS.c{at}")
        if key not in self.fields:
            self.fields[key] = self.stored(self.objects.constants[at])
        return self.fields[key]

    # -- objects -------------------------------------------------------------------------------

    def attribute(self, owner: ProgramValue, name: str) -> ProgramValue:
        """Return an attribute of a module or another object."""
        if isinstance(owner, Unknown):
            return UNKNOWN
        if isinstance(owner, Missing):
            raise Unsupported(owner.reason)
        if isinstance(owner, Fields) and name in owner.names:
            return owner[owner.names.index(name)]
        if not isinstance(owner, Instance):
            raise Unsupported(f"attribute {name} of {words(owner)}")
        if owner.state is not None and owner not in self.restored:
            restore(self, owner)
        if name == "training":
            if owner.attributes.get(name) and owner is self.objects.root:
                self.notes.setdefault("saved in training mode; the graph is that of inference")
            return False
        key = (owner, name)
        if key not in self.fields:
            self.fields[key] = self._share(owner, name, self._field(owner, name))
            for undo in self.undos:  # it was there before the branch or loop that reads it first
                for one in leaves(self.fields[key]):
                    if isinstance(one, Reference):
                        undo.storages.setdefault(one.storage, one.storage.value)
        return self.fields[key]

    def _share(self, owner: Instance, name: str, field: ProgramValue) -> ProgramValue:
        """Return an attribute; tensors of one storage in the archive are one here."""
        stored = owner.attributes.get(name)
        if not isinstance(stored, TensorAt) or not isinstance(field, Reference):
            return field
        tensor = self.op.weights.get(self._names.get(stored.origin, ""))
        if tensor is None or not tensor.nbytes:
            return field
        return self.loaded.setdefault(tensor, field).copied()

    def method(self, owner: Instance, name: str) -> Function | None:
        """Return a method of an object's class, or of the file that an old module is."""
        cls = self.source.cls(owner.cls)
        if cls is not None:
            return cls.methods.get(name)
        file = self.source.file(owner.cls)
        return None if file is None else file.functions.get(name)

    def _field(self, owner: Instance, name: str) -> ProgramValue:
        if name in owner.attributes:
            return self.stored(owner.attributes[name])
        function = self.method(owner, name)
        if function is not None:
            return Callee(function, owner)
        cls = self.source.cls(owner.cls)
        if cls is not None and name in cls.constants:
            return self._literal(cls, name)
        if name in IMPLICIT:
            return None
        raise CorruptError(f"text that reads {name} of {words(owner)}, which has none")

    def _literal(self, cls: Class, name: str) -> ProgramValue:
        try:
            found = ast.literal_eval(cls.constants[name])
        except (ValueError, TypeError, MemoryError, RecursionError, SyntaxError):
            found = self.value(cls.constants[name])
        return Items(found) if isinstance(found, list) else found

    def set_attribute(self, owner: Instance, name: str, value: ProgramValue) -> None:
        """Set an attribute, and note it: a module keeps it from one run to the next."""
        if self.iterations:
            raise Unsupported(f"attribute {name}, which a loop sets")
        key = (owner, name)
        if self.undos and (name in owner.attributes or key in self.fields):
            before = self.attribute(owner, name)
            for undo in self.undos:
                undo.fields.setdefault(key, before)
        self.fields[key] = value
        if name in owner.attributes:
            self.unkept.setdefault(f"{owner.path}.{name}".lstrip("."))

    def stored(self, value: object) -> ProgramValue:
        """Return what an archive holds as a value of the program."""
        if isinstance(value, TensorAt):
            name = self._names.get(value.origin)
            if name is None:
                return Missing(f"a tensor that was left out, {value.origin}")
            return Reference.to(self._weight(name))
        if isinstance(value, Opaque):
            return Missing(value.what)
        if isinstance(value, Instance) and value.cls.startswith(PACKED):
            return pack(self, value)
        if isinstance(value, list):
            return Items([self.stored(one) for one in value])
        if isinstance(value, tuple):
            return tuple(self.stored(one) for one in value)
        if isinstance(value, dict):
            return {key: self.stored(one) for key, one in value.items()}
        return value

    def _weight(self, name: str) -> Value:
        encoding = self._encodings.get(name)
        return (
            weight(self.op, name) if encoding is None else load_quantized(self.op, name, encoding)
        )

    # -- calls ---------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> ProgramValue:
        callee = self.value(node.func) if not isinstance(node.func, ast.Attribute) else (
            self._method(node.func)
        )  # fmt: skip
        if isinstance(callee, Named) and callee.name in ("annotate", "unchecked_cast"):
            return self._annotated(node)
        if isinstance(callee, Named) and callee.name == "uninitialized":
            return Missing("what the program never sets")
        args = [self.value(one) for one in node.args]
        kwargs = {word.arg: self.value(word.value) for word in node.keywords if word.arg}
        if isinstance(callee, Unknown):
            return UNKNOWN
        if isinstance(callee, Callee):
            return self.call(callee, args, kwargs)
        if isinstance(callee, Named):
            return self._call_named(callee.name, args, kwargs)
        raise Unsupported(f"a call of {words(callee)}")

    def _method(self, node: ast.Attribute) -> ProgramValue:
        owner = self.value(node.value)
        if isinstance(owner, Named):
            return self._named(f"{owner.name}.{node.attr}")
        if isinstance(owner, Instance):
            if owner.state is not None and owner not in self.restored:
                restore(self, owner)
            function = self.method(owner, node.attr)
            if function is not None:
                return Callee(function, owner)
            if node.attr == "__init__":
                return Named("torch.wait")
        if isinstance(owner, Unknown):
            return UNKNOWN
        return self.attribute(owner, node.attr)

    def _annotated(self, node: ast.Call) -> ProgramValue:
        if len(node.args) != 2:
            raise Unsupported("an annotation without a type")
        found = self.value(node.args[1])
        kind = node.args[0].id if isinstance(node.args[0], ast.Name) else ""
        if isinstance(found, Reference) and kind in ("int", "float", "bool"):
            return call_op(self, kind, [found], {})
        if isinstance(found, int) and not isinstance(found, bool) and (
            isinstance(node.args[0], ast.Name) and node.args[0].id == "float"
        ):  # fmt: skip
            return float(found)
        return found

    def _call_named(
        self, name: str, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
    ) -> ProgramValue:
        if name == "getattr":
            if len(args) != 2 or not is_text(args[1]):
                raise Unsupported("getattr of no name")
            return self.attribute(args[0], args[1])
        if name == "hasattr":
            return isinstance(args[0], Instance) and args[1] in args[0].attributes
        if name == "range":
            return self._range(args)
        if name == "fork":
            return self._call_value(args[0], args[1:], kwargs)
        if name.startswith("__torch__."):
            return self._made(name, args, kwargs)
        return call_op(self, name, args, kwargs)

    def _call_value(
        self, value: ProgramValue, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
    ) -> ProgramValue:
        if isinstance(value, Callee):
            return self.call(value, args, kwargs)
        raise Unsupported(f"a call of {words(value)}")

    def _range(self, args: list[ProgramValue]) -> ProgramValue:
        if all(isinstance(n, int) for n in args):
            return range(*args)
        if any(isinstance(n, Unknown) for n in args):
            return UNKNOWN
        if len(args) != 1 or not isinstance(args[0], Number | Size):
            raise Unsupported("a range whose bounds depend on the inputs")
        return args[0]

    def _made(
        self, name: str, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
    ) -> ProgramValue:
        """Make an object of a class of the archive's own."""
        if name.endswith(".__new__"):
            return Instance(name.removesuffix(".__new__"), {}, "")
        cls = self.source.cls(name)
        if cls is None:
            raise Unsupported(f"a call of {name}, whose text is not there")
        if cls.base == "NamedTuple":
            given = dict(zip(cls.kinds, args, strict=False)) | kwargs
            return Fields([given[n] for n in cls.kinds], tuple(cls.kinds))
        made = Instance(name, {}, "")
        init = cls.methods.get("__init__")
        if init is not None:
            self.call(Callee(init, made), args, kwargs)
        return made

    # -- for ops -------------------------------------------------------------------------------

    def tensor_op(
        self, name: str, args: list[ProgramValue], kwargs: dict[str, ProgramValue]
    ) -> ProgramValue:
        """Return an operation of tensors."""
        return tensor_op(self, name, args, kwargs)

    def appended(self, items: Items, item: ProgramValue) -> bool:
        """Return whether a loop of the graph's takes what is appended to a list from before it."""
        if not self.iterations or items.depth >= self.iterations[-1].depth:
            return False
        if self.depth != self.iterations[-1].depth:
            raise Unsupported("a list that grows where only the inputs say whether")
        self.iterations[-1].appended.setdefault(id(items), (items, []))[1].append(item)
        return True

    def seen(self, value: ProgramValue) -> None:
        """Note that what is in a list matters: in a loop that appends to it, that would change."""
        if isinstance(value, Items):
            for one in self.iterations:
                if value.depth < one.depth:
                    one.read[id(value)] = value

    def found(self, op: str, reason: str) -> None:
        """Record something that is not supported."""
        self.findings.append(Finding(f"torch {op}", self.at, reason))

    def tensors(self) -> Iterator[Reference]:
        """Yield all tensors that the program may still read."""
        held = [value for a in self.activations for value in a.names.values()]
        for value in (*held, *self.fields.values()):
            inside = leaves(value)
            self.read(len(inside))
            yield from (one for one in inside if isinstance(one, Reference))
