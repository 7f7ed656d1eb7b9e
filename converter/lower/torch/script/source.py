"""The source text of a TorchScript archive, parsed: classes, methods and functions by full name.

The text is a small subset of Python, so Python's own parser reads it; nothing of it is run. A file
is parsed when something in it is looked for. Its size and its brackets are measured before: a
parser takes a hundred times the text's memory.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/docs/serialization.md
"""

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from formats.core.storage import Span
from formats.errors import CorruptError, LimitError
from formats.limits import MIB

MAX_FILE_BYTES = 16 * MIB  # of one file of source text
MAX_TOKENS = 1_000_000  # names, brackets and commas of all files that are parsed
MAX_BRACKETS = 150  # one inside the other; Python's parser takes 200

TOKEN = re.compile(r"[\w.]+|[^\s\w]")
# A byte above 127 in a string: torch writes the octal digits of a signed number, each as the
# character that many places after "0", or before it. No version of torch reads them again.
SIGNED_BYTES = re.compile(r"\\\\|((?:\\[./0](?!00)[)-0]{2}|\\[./]00)+)")
TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument that a function declares."""

    name: str
    kind: str  # its type, as written: "Tensor", "Optional[int]"; "" where none is
    default: ast.expr | None


@dataclass(frozen=True, slots=True)
class Function:
    """One function or method.

    Attributes:
        name: Its own name.
        parameters: Parameters in order, ``self`` included.
        body: Its statements.
        where: The member that it is in, and its name there.
        returns: Its type, as written; "" where none is.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: list[ast.stmt]
    where: str
    returns: str


@dataclass(slots=True)
class Class:
    """One class: a module's, or one of TorchScript's own.

    Attributes:
        name: Full name, ``__torch__.torch.nn.modules.conv.Conv2d``.
        base: Its base class: ``Module``, ``NamedTuple``, ``Enum``, ``Interface`` or none.
        methods: Methods by name.
        constants: ``Final`` attributes -> their values.
        kinds: Attribute -> its type, as written, in order.
    """

    name: str
    base: str
    methods: dict[str, Function] = field(default_factory=dict)
    constants: dict[str, ast.expr] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class File:
    """The declarations of one file."""

    classes: dict[str, Class] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)


class Source:
    """The source text of an archive.

    Attributes:
        members: Names of the files, without ``code/`` and ``.py``.
    """

    def __init__(self, content: Mapping[str, Span]) -> None:
        self.members = {
            name.removeprefix("code/").removesuffix(".py"): span
            for name, span in content.items()
            if name.startswith("code/") and name.endswith(".py")
        }
        self._files: dict[str, File] = {}
        self._tokens = 0

    def file(self, member: str) -> File | None:
        """Return what a file declares, or None where there is no such file.

        Raises:
            CorruptError: It is no source text.
            LimitError: It is too long, or nests too deeply.
        """
        if member not in self.members:
            return None
        if member not in self._files:
            self._files[member] = self._parse(member)
        return self._files[member]

    def cls(self, name: str) -> Class | None:
        """Return a class by its full name."""
        module, _, last = name.rpartition(".")
        found = self.file(module.replace(".", "/"))
        return None if found is None else found.classes.get(last)

    def function(self, name: str) -> Function | None:
        """Return a function that is no method by its full name."""
        module, _, last = name.rpartition(".")
        found = self.file(module.replace(".", "/"))
        return None if found is None else found.functions.get(last)

    def _parse(self, member: str) -> File:
        span, where = self.members[member], f"code/{member}.py"
        if span.length > MAX_FILE_BYTES:
            raise LimitError(f"{span.length} bytes of source text", where=where)
        try:
            text = decode_signed_bytes(span.read(0, span.length).decode("utf-8"))
        except UnicodeDecodeError as e:
            raise CorruptError("source text that is not UTF-8", where=where, offset=e.start) from e
        self._tokens += _measure(text, where)
        if self._tokens > MAX_TOKENS:
            raise LimitError(f"source text of more than {MAX_TOKENS} words and signs", where=where)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what Python thinks of odd literals
                tree = ast.parse(text)
        except (SyntaxError, ValueError) as e:
            line = getattr(e, "lineno", None)
            at = f" in line {line}" if line else ""
            raise CorruptError(f"source text that is damaged{at}: {e!s:.100}", where=where) from e
        except (RecursionError, MemoryError) as e:
            raise LimitError("source text that nests too deeply", where=where) from e
        return _declare(tree, member.replace("/", "."), where)


def decode_signed_bytes(text: str) -> str:
    """Return source text with the characters that torch has written as `SIGNED_BYTES`."""

    def decode(found: re.Match[str]) -> str:
        if found[1] is None:  # a backslash, escaped
            return found[0]
        digits = [ord(c) - ord("0") for c in found[1] if c != "\\"]
        octal = zip(*[iter(digits)] * 3, strict=True)
        data = bytes((64 * high + 8 * middle + low) % 256 for high, middle, low in octal)
        return data.decode("utf-8", "replace")

    return SIGNED_BYTES.sub(decode, text)


def _measure(text: str, where: str) -> int:
    """Return the number of tokens.

    Raises:
        LimitError: It nests more deeply than Python's parser takes.
    """
    count = depth = 0
    plain = TEXT.sub('""', text)
    for found in TOKEN.finditer(plain):
        count += 1
        if count > MAX_TOKENS:
            break
        sign = plain[found.start()]
        if sign in "([{":
            depth += 1
            if depth > MAX_BRACKETS:
                raise LimitError(f"source text of {depth} brackets in each other", where=where)
        elif sign in ")]}":
            depth -= 1
    return count


def _declare(tree: ast.Module, module: str, where: str) -> File:
    file = File()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            # Before torch 1.3 a file is a module: its methods, without a class around them.
            made = _function(statement, where)
            file.functions[made.name] = made
        elif isinstance(statement, ast.ClassDef):
            file.classes[statement.name] = _class(statement, module, where)
        elif not isinstance(statement, ast.Assign | ast.Import | ast.ImportFrom):
            raise CorruptError(
                f"source text with a {type(statement).__name__} outside of functions",
                where=f"{where}:{statement.lineno}",
            )
    return file


def _class(node: ast.ClassDef, module: str, where: str) -> Class:
    base = ast.unparse(node.bases[0]) if node.bases else ""
    made = Class(f"{module}.{node.name}", base)
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            function = _function(statement, where, node.name)
            made.methods[function.name] = function
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name, kind = statement.target.id, ast.unparse(statement.annotation)
            made.kinds[name] = kind
            if statement.value is not None:
                made.constants[name] = statement.value
        elif isinstance(statement, ast.Assign):
            for name, value in _list_assignments(statement):
                made.constants[name] = value
    return made


def _list_assignments(statement: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Yield ``name = value``; ``__annotations__["0"] = …`` declares what is no identifier."""
    for target in statement.targets:
        if isinstance(target, ast.Name) and not target.id.startswith("__"):
            yield target.id, statement.value


def _function(node: ast.FunctionDef, where: str, inside: str = "") -> Function:
    given = [*node.args.posonlyargs, *node.args.args]
    defaults = [None] * (len(given) - len(node.args.defaults)) + list(node.args.defaults)
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    parameters = [
        Parameter(a.arg, "" if a.annotation is None else ast.unparse(a.annotation), default)
        for a, default in (*zip(given, defaults, strict=True), *named)
    ]
    returns = "" if node.returns is None else ast.unparse(node.returns)
    name = f"{inside}.{node.name}" if inside else node.name
    return Function(node.name, tuple(parameters), node.body, f"{where}: {name}", returns)
