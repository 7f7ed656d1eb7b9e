"""Interprets the text of a TorchScript program from ``forward``, while lowering.

Functions and methods are inlined; branches and loops that only known values decide are taken; the
others become ONNX's (`branches`, `loops`). Expressions are the base class's.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from converter.lower.torch.program_values import Number, ProgramValue, Size
from converter.lower.torch.script.branches import branch
from converter.lower.torch.script.expressions import ExpressionInterpreter
from converter.lower.torch.script.loops import loop
from converter.lower.torch.script.op_calls import call_op
from converter.lower.torch.script.types import (
    Activation,
    Result,
)
from converter.lower.torch.script.values import (
    UNKNOWN,
    Callee,
    Stop,
    Unknown,
    words,
)
from converter.lower.unsupported import MISFITS, Unsupported, explain_misfit
from formats.core.plurals import count
from formats.errors import CorruptError, LimitError
from formats.torch.script_objects import Instance

MOST_STEPS = 60_000  # statements, those of a loop each time
MOST_NODES = 25_000  # 150 microseconds each
DEEPEST = 40  # calls in calls


class ScriptInterpreter(ExpressionInterpreter):
    """Interprets the statements of one program."""

    _steps = 0

    # -- functions -----------------------------------------------------------------------------

    def call(
        self, callee: Callee, args: Sequence[ProgramValue], kwargs: Mapping[str, ProgramValue]
    ) -> ProgramValue:
        """Return what a function of the program's own yields."""
        function = callee.function
        given = [callee.owner, *args] if callee.owner is not None else list(args)
        parameters = function.parameters
        if len(given) > len(parameters):
            raise CorruptError(f"a call with {count('argument', len(given))}", where=function.where)
        names = dict(zip((p.name for p in parameters), given, strict=False))
        names.update(kwargs)
        for p in parameters:
            if p.name not in names:
                if p.default is None:
                    raise CorruptError(f"a call without {p.name}", where=function.where)
                names[p.name] = self.value(p.default)
        if len(self.activations) >= DEEPEST:
            raise LimitError(f"calls in calls, more than {DEEPEST} deep", where=function.where)
        self.activations.append(Activation(function, names))
        before = self.at
        try:
            with self.scope(callee.owner):
                result = self.block(function.body)
        finally:
            self.activations.pop()
            self.at = before
        return None if result is None else result.value

    @contextmanager
    def scope(self, owner: Instance | None) -> Iterator[None]:
        """Name what is built inside after a module."""
        if owner is None or not owner.path:
            yield
        else:
            with self.op.scope(owner.path.rpartition(".")[2]):
                yield

    # -- statements ----------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> Result | None:
        """Interpret statements; return what they return, if they do."""
        for statement in statements:
            result = self.statement(statement)
            if result is not None:
                return result
        return None

    def statement(self, node: ast.stmt) -> Result | None:
        """Interpret one statement."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise LimitError(f"a program of more than {MOST_STEPS} steps, loops unrolled")
        if len(self.op.graph.nodes) > MOST_NODES:
            raise LimitError(f"a graph of more than {MOST_NODES} nodes, loops unrolled")
        self.at = f"{self.activations[-1].function.where}, line {node.lineno}"
        try:
            return self._statement(node)
        except Unsupported as gap:
            self.found(type(node).__name__, str(gap))
            self._forget(node)
            return None
        except MISFITS as e:
            self.found(type(node).__name__, explain_misfit(e))
            self._forget(node)
            return None

    def _statement(self, node: ast.stmt) -> Result | None:
        names = self.activations[-1].names
        if isinstance(node, ast.Assign):
            value = self.value(node.value)
            for target in node.targets:
                self._assign(target, value)
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.Return):
            return Result(None if node.value is None else self.value(node.value))
        elif isinstance(node, ast.If):
            return self._if(node)
        elif isinstance(node, ast.For):
            return self._for(node)
        elif isinstance(node, ast.While):
            return self._while(node)
        elif isinstance(node, ast.With):
            return self.block(node.body)  # no gradients, a profiler's record
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self.value(node.value))
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    names.pop(target.id, None)
        elif not isinstance(node, ast.Pass | ast.AnnAssign | ast.Global):
            raise Unsupported(f"a statement of kind {type(node).__name__}")
        return None

    def _assign(self, target: ast.expr, value: ProgramValue) -> None:
        if isinstance(target, ast.Name):
            self.activations[-1].names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, Unknown):
                value = [UNKNOWN] * len(target.elts)
            self.seen(value)
            if not isinstance(value, list | tuple) or len(value) != len(target.elts):
                raise Unsupported(f"{words(value)} in place of {count('value', len(target.elts))}")
            for one, operand in zip(target.elts, value, strict=True):
                self._assign(one, operand)
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if not isinstance(owner, Instance):
                raise Unsupported(f"an attribute of {words(owner)} that is set")
            self.set_attribute(owner, target.attr, value)
        elif isinstance(target, ast.Subscript):
            call_op(
                self, "_set_item", [self.value(target.value), self.value(target.slice), value], {}
            )
        else:
            raise Unsupported(f"an assignment to a {type(target).__name__}")

    def _forget(self, node: ast.stmt) -> None:
        """Say that what a statement assigns is not known."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                self.activations[-1].names[inner.id] = UNKNOWN

    def condition(self, node: ast.expr) -> "bool | Number":
        """Return what decides a branch or a loop.

        Raises:
            Stop: It is not known.
        """
        found = self.value(node)
        if not isinstance(found, bool | Number):
            found = call_op(self, "bool", [found], {})
        if isinstance(found, Unknown):
            raise Stop
        return bool(found) if not isinstance(found, Number) else self._decided(found)

    def _decided(self, number: Number) -> "bool | Number":
        array = self.op.array(number.value)
        return number if array is None else bool(array.reshape(-1)[0])

    def _if(self, node: ast.If) -> Result | None:
        found = self.condition(node.test)
        if isinstance(found, bool):
            return self.block(node.body if found else node.orelse)
        return branch(self, found.value, node)

    def _for(self, node: ast.For) -> Result | None:
        over = self.value(node.iter)
        if isinstance(over, Unknown):
            raise Stop
        self.seen(over)
        if isinstance(over, Number | Size):
            loop(self, node.target, over, None, node.body)
            return None
        for one in over:
            self._assign(node.target, one)
            result = self.block(node.body)
            if result is not None:
                return result
        return None

    def _while(self, node: ast.While) -> Result | None:
        while True:
            found = self.condition(node.test)
            if not isinstance(found, bool):
                loop(self, None, None, node.test, node.body)
                return None
            if not found:
                return None
            result = self.block(node.body)
            if result is not None:
                return result
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise LimitError(f"a program of more than {MOST_STEPS} steps, loops unrolled")
