"""Have torch.export keep Python's loops over sizes that are not known, as torch's ``scan``.

Imports nothing of the project, as the other files of the child. torch.export runs ``for i in
range(n)`` as Python does, so ``n`` becomes the constant of the example: a recurrent model would be
one of a single length. While `as_scans` holds, functions of a model's files have such loops as
bodies that torch traces once. That takes a body of plain statements, whose states are tensors, and
whose results are appended to a list or written to a tensor, once in each iteration:

    for i in range(n):                          for i in range(n):
        state = a[:, i] * state + b[:, i]           state = a[:, i] * state + b[:, i]
        rows.append(state)                          rows[:, i] = state

Other loops, and loops whose number of iterations is known, run as they are. Likewise ``len`` of a
tensor, which is a plain number to Python, is its size there.
Spec: https://docs.pytorch.org/docs/2.13/higher_order_ops/scan.html
"""

import ast
import importlib
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeGuard

HERE = "_loops_of_free_sizes"  # this module's name in the functions that are rewritten
PARTS = "_parts"  # what an iteration adds to the results
# Statements with which the body of a loop is more than the states and results of its iterations.
LEAVING = (
    ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete, ast.Try,
    ast.With, ast.Global, ast.Nonlocal, ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.NamedExpr,
)  # fmt: skip
TEXT = f"""
{{bounds}} = ({{range}},)
if {HERE}.is_free({{bounds}}):
    def {{step}}({{index}}, _held):
        {PARTS} = []
{{given}}
{{body}}
        return {{{{{{states}}}}}}, {PARTS}
    {{held}}, {PARTS} = {HERE}.run(
        {{step}}, {{bounds}}, {{{{n: v for n, v in locals().items() if n in {{names}}}}}}
    )
{{taken}}
{{results}}
else:
    for {{index}} in range(*{{bounds}}):
{{plain}}
"""


@contextmanager
def as_scans(module: Any) -> Iterator[None]:
    """Rewrite the loops in the files of a module's classes."""
    codes: list[tuple[types.FunctionType, types.CodeType]] = []
    for name in sorted({type(part).__module__ for part in module.modules()}):
        for function in _functions(sys.modules.get(name)):
            code = rewrite(function)
            if code is not None:
                codes.append((function, function.__code__))
                function.__code__ = code
                function.__globals__[HERE] = types.SimpleNamespace(**RUNNING)
    try:
        yield
    finally:
        for function, code in codes:
            function.__code__ = code
            function.__globals__.pop(HERE, None)


def _functions(file: Any) -> Iterator[types.FunctionType]:
    """Yield the functions and methods that a file of a model defines."""
    if file is None or file.__name__.startswith("torch."):
        return
    own = [v for v in vars(file).values() if getattr(v, "__module__", "") == file.__name__]
    inner = [v for c in own if isinstance(c, type) for v in vars(c).values()]
    unwrapped = [inspect.unwrap(getattr(v, "__func__", v)) for v in (*own, *inner)]
    found = {id(f): f for f in unwrapped if isinstance(f, types.FunctionType)}
    yield from (f for f in found.values() if f.__globals__ is vars(file))


# -- rewriting -----------------------------------------------------------------------------------


def rewrite(function: types.FunctionType) -> types.CodeType | None:
    """Return the code of a function with its loops and lengths rewritten; None if it has none."""
    if function.__code__.co_freevars or not {"range", "len"} & {*function.__code__.co_names}:
        return None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return None
    made = tree.body[0]
    if not isinstance(made, ast.FunctionDef) or any(map(_is_private, ast.walk(made))):
        return None
    made.decorator_list = []
    loops = _Loops(made)
    loops.visit(made)
    if not loops.count:
        return None
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
    whole = compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec")
    codes = [c for c in whole.co_consts if isinstance(c, types.CodeType)]
    return next(c for c in codes if c.co_name == function.__code__.co_name)


def _is_private(node: ast.AST) -> bool:
    """Return whether this is an attribute that Python renames after the class around it."""
    return isinstance(node, ast.Attribute) and re.fullmatch("__.*(?<!__)", node.attr) is not None


class _Loops(ast.NodeTransformer):
    """Rewrites the loops of a function that lie in no other loop, and lengths of tensors."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function, self.count = function, 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "len":
            self.count += 1
            node.func = ast.parse(f"{HERE}.length", mode="eval").body
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        return node

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        loop = _Loop(self.function, node)
        if not loop.is_known():
            return node
        self.count += 1
        lines = ast.parse(loop.write(self.count)).body
        return [ast.increment_lineno(line, node.lineno - 1) for line in lines]


class _Loop:
    """A loop, its states and its results.

    Attributes:
        index: Name of its variable.
        body: Its statements, as they are in an iteration that torch traces.
        results: Text that adds what all iterations yielded to a list or tensor.
        stored: Names that an iteration stores.
        carried: Those that it reads before it stores them.
    """

    def __init__(self, function: ast.FunctionDef, node: ast.For) -> None:
        self.function, self.node = function, node
        self.index = node.target.id if isinstance(node.target, ast.Name) else ""
        self.body: list[str] = []
        self.results: list[str] = []
        self.stored: set[str] = set()
        self.carried: set[str] = set()

    def is_known(self) -> bool:
        """Return whether the loop is one that is rewritten, having read it."""
        asked = self.node.iter
        is_range = (
            isinstance(asked, ast.Call) and not asked.keywords
            and isinstance(asked.func, ast.Name) and asked.func.id == "range"
        )  # fmt: skip
        parts = [part for line in self.node.body for part in ast.walk(line)]
        if not is_range or not self.index or self.node.orelse:
            return False
        if any(isinstance(part, LEAVING) for part in parts):
            return False
        return all(self._add(line) for line in self.node.body) and self.index not in self.stored

    def _add(self, line: ast.stmt) -> bool:
        """Take a line of the body; False if it does what no iteration of ``scan`` can."""
        result = self._result(line)
        if result is not None:
            self._note_names(ast.parse(result))
            self.body.append(result)
            return True
        for part in ast.walk(line):
            is_stored = isinstance(getattr(part, "ctx", None), ast.Store)
            if _is_append(part) or (is_stored and isinstance(part, (ast.Subscript, ast.Attribute))):
                return False
        self._note_names(line)
        self.body.append(self._picking(line))
        return True

    def _note_names(self, line: ast.AST) -> None:
        names = [n for n in ast.walk(line) if isinstance(n, ast.Name)]
        stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        if not isinstance(line, ast.Assign):  # it is perhaps not stored, or is read as well
            read |= stored
        self.carried |= read - self.stored
        self.stored |= stored

    def _result(self, line: ast.stmt) -> str | None:
        """Return the text of a line that is a part of a result; None if it is none."""
        at = f"{PARTS}[{len(self.results)}]"
        said: Any = getattr(line, "value", line)
        target: Any = line.targets[0] if isinstance(line, ast.Assign) else None
        if isinstance(line, ast.Expr) and _is_append(said):
            name, value = said.func.value.id, self._picking(said.args[0])
            after = f"{name}.append({HERE}.Rows({at}))"
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            place = _find_place(target.slice, self.index)
            if place is None or place.is_row or not place.is_plain:
                return None
            name, row = target.value.id, f"{target.value.id}{place.pick(self.index)}"
            value = f"({self._picking(said)}).to({name}.dtype).expand({row}.shape)"
            after = f"{name}[{place.fill('slice(*{bounds})')}] = {at}.movedim(0, {place.kept})"
        else:
            return None
        used = [n for n in ast.walk(self.node) if isinstance(n, ast.Name) and n.id == name]
        asked = [n.value for n in ast.walk(self.node) if _is_fact(n)]
        if len([n for n in used if n not in asked]) > 1:
            return None
        self.results.append(after)
        return f"{PARTS}.append({value})"

    def _picking(self, node: ast.AST) -> str:
        return ast.unparse(_Picking(self.index).visit(ast.parse(ast.unparse(node))))

    def write(self, number: int) -> str:
        """Return the text that takes the loop's place."""
        end = self.node.end_lineno or 0
        later = [n for n in ast.walk(self.function) if getattr(n, "lineno", 0) > end]
        read = {n.id for n in later if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        states = sorted(self.stored & (self.carried | read))
        bounds, step, held = f"_bounds_{number}", f"_step_{number}", f"_held_{number}"
        asked: Any = self.node.iter
        plain = "\n".join(ast.unparse(line) for line in self.node.body)
        return TEXT.format(
            bounds=bounds, step=step, held=held, index=self.index, names=states,
            range=", ".join(ast.unparse(a) for a in asked.args),
            states=", ".join(f"{n!r}: {n}" for n in states),
            given=_indent([f"if {n!r} in _held: {n} = _held[{n!r}]" for n in states], 8),
            taken=_indent([f"if {n!r} in {held}: {n} = {held}[{n!r}]" for n in states], 4),
            body=_indent(self.body, 8), plain=_indent([plain], 8),
            results=_indent([r.replace("{bounds}", bounds) for r in self.results], 4),
        )  # fmt: skip


def _indent(lines: Sequence[str], width: int) -> str:
    return textwrap.indent("\n".join(lines), " " * width)


def _is_fact(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Return whether this says something of a tensor that no iteration changes."""
    return isinstance(node, ast.Attribute) and node.attr in ("dtype", "device", "shape", "ndim")


def _is_append(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and len(node.args) == 1
        and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        and isinstance(node.func.value, ast.Name)
    )  # fmt: skip


class _Place(NamedTuple):
    """Where the index of an iteration is in an index of several axes.

    Attributes:
        elements: Texts of the index's elements.
        at: Number of the element with the index of an iteration.
        is_row: Whether that is ``i : i + 1``, which keeps the axis.
        axis: Of the tensor that the element belongs to; from the end, if it follows an ellipsis.
        kept: Likewise, of what the index yields.
        is_plain: Whether all other elements are slices, an ellipsis or numbers.
    """

    elements: list[str]
    at: int
    is_row: bool
    axis: int
    kept: int
    is_plain: bool

    def fill(self, text: str) -> str:
        """Return the index with a text in the place of an iteration's index."""
        return ", ".join([*self.elements[: self.at], text, *self.elements[self.at + 1 :]])

    def pick(self, index: str) -> str:
        """Return the text of the index, of whose axis torch selects a row by a tensor."""
        row = self.fill(":" if self.is_row else "0")
        return f".index_select({self.axis}, {index}.reshape(1))[{row}]"


def _find_place(index: ast.expr, name: str) -> _Place | None:
    """Return where the index of an iteration is; None if it is not there, or there twice."""
    elements = index.elts if isinstance(index, ast.Tuple) else [index]
    texts = [ast.unparse(e) for e in elements]
    found = [i for i, text in enumerate(texts) if text in (name, f"{name}:{name} + 1")]
    if len(found) != 1:
        return None
    (at,) = found
    before, after = elements[:at], elements[at + 1 :]
    is_after = any(_is_ellipsis(e) for e in before)
    axes = after if is_after else before
    count = sum(not _is_constant(e, type(None)) for e in axes)
    kept = sum(isinstance(e, ast.Slice) for e in axes)
    is_plain = all(
        isinstance(e, ast.Slice) or _is_ellipsis(e) or _is_constant(e, int)
        for e in (*before, *after)
    )
    axis, kept = (-count - 1, -kept - 1) if is_after else (count, kept)
    return _Place(texts, at, texts[at] != name, axis, kept, is_plain)


def _is_ellipsis(element: ast.expr) -> bool:
    return _is_constant(element, type(...))


def _is_constant(element: ast.expr, kind: type) -> bool:
    return isinstance(element, ast.Constant) and isinstance(element.value, kind)


class _Picking(ast.NodeTransformer):
    """Has torch select the rows ``x[:, i]`` and ``x[:, i : i + 1]`` by an index of iterations."""

    def __init__(self, index: str) -> None:
        self.index = index

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        place = _find_place(node.slice, self.index)
        if place is None or not isinstance(node.ctx, ast.Load):
            return node
        text = f"({ast.unparse(node.value)}){place.pick(self.index)}"
        return ast.parse(text, mode="eval").body


# -- running -------------------------------------------------------------------------------------


def is_free(bounds: Sequence[Any]) -> bool:
    """Return whether the number of iterations is not known."""
    return not all(isinstance(n, int) for n in bounds)


def length(value: Any) -> Any:
    """Return how many elements a value has: of a tensor, the size that ``len`` would fix."""
    torch: Any = importlib.import_module("torch")
    return value.shape[0] if isinstance(value, torch.Tensor) and value.ndim else len(value)


def run(
    step: Callable[[Any, dict[str, Any]], tuple[dict[str, Any], list[Any]]],
    bounds: Sequence[Any], held: dict[str, Any],
) -> tuple[dict[str, Any], list[Any]]:  # fmt: skip
    """Return the states after all iterations, and what the iterations yielded, stacked.

    Args:
        step: An iteration: of an index and states, it returns the next states and what it yields.
        bounds: Of the range of indices.
        held: The states before the first iteration.
    """
    torch: Any = importlib.import_module("torch")
    scan = importlib.import_module("torch._higher_order_ops.scan").scan
    names = [name for name, value in held.items() if isinstance(value, torch.Tensor)]

    def one(carried: tuple[Any, ...], index: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        before = [t.clone() for t in carried]  # which an iteration may write to
        after, parts = step(index, dict(zip(names, before, strict=False)))
        kept = [after[n] for n in names] or before
        return tuple(t.clone() for t in kept), tuple(part.clone() for part in parts)

    first = [held[n].contiguous() for n in names] or [torch.zeros(())]  # of which it takes one
    last, parts = scan(one, tuple(first), torch.arange(*bounds))
    return dict(zip(names, last, strict=False)), [*parts]


class Rows:
    """What all iterations append to a list: one element, which torch.stack and torch.cat take."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    @classmethod
    def __torch_function__(
        cls, function: Any, kinds: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        del kinds
        torch: Any = importlib.import_module("torch")
        tensors, axis = _tensors_and_axis(*args, **(kwargs or {}))
        if function not in (torch.stack, torch.cat):
            raise TypeError(f"{function.__name__} of the parts that a loop yields")
        is_stacked = function is torch.stack
        parts = []
        for tensor in tensors:
            if isinstance(tensor, Rows):
                rank = tensor.rows.ndim - (not is_stacked)
                place = axis % rank
                rows = tensor.rows.movedim(0, place)
                parts.append(rows if is_stacked else rows.flatten(place, place + 1))
            else:
                parts.append(tensor.unsqueeze(axis) if is_stacked else tensor)
        return torch.cat(parts, axis)


def _tensors_and_axis(tensors: Sequence[Any], dim: int = 0) -> tuple[Sequence[Any], int]:
    return tensors, dim


RUNNING = {"is_free": is_free, "length": length, "run": run, "Rows": Rows}
