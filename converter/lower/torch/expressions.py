"""Sizes as exported programs write them: ``2*s0 + 1``, or sympy's own ``Add(Mul(...), ...)``."""

import ast
import re
from collections.abc import Callable, Mapping

from converter.lower import dims
from converter.lower.graph import Dim
from converter.lower.torch.context import Context

LONGEST = 2000  # letters
ASSUMPTIONS = re.compile(r"(Symbol\('\w+')[^()]*\)")

Operation = Callable[[Context, Dim, Dim], Dim]
_NAMED: dict[str, Operation] = {
    "Add": lambda _, a, b: dims.add(a, b), "Mul": lambda _, a, b: dims.mul(a, b),
    "FloorDiv": Context.floordiv, "CleanDiv": Context.floordiv, "IntTrueDiv": lambda *_: None,
    "Mod": Context.modulo, "PythonMod": Context.modulo, "CeilDiv": Context.ceildiv,
    "Max": Context.most, "Min": Context.least,
}  # fmt: skip
_SIGNS: Mapping[type[ast.operator], Operation] = {
    ast.Add: _NAMED["Add"], ast.Mult: _NAMED["Mul"], ast.FloorDiv: Context.floordiv,
    ast.Mod: Context.modulo, ast.Sub: lambda _, a, b: dims.sub(a, b),
}  # fmt: skip


def parse_size(op: Context, text: str, names: Mapping[str, str]) -> Dim:
    """Return a size, or None where it is spelled in a way that is not followed.

    Args:
        op: Builder.
        text: The expression.
        names: Symbols that have other names here.
    """
    if len(text) > LONGEST:
        return None
    try:
        tree = ast.parse(ASSUMPTIONS.sub(r"\1)", text), mode="eval").body
        return _size(op, tree, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _size(op: Context, node: ast.expr, names: Mapping[str, str]) -> Dim:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return dims.mul(_size(op, node.operand, names), -1)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow):
            return _power(_size(op, node.left, names), _size(op, node.right, names))
        combine = _SIGNS.get(type(node.op))
        if combine is None:
            return None
        return combine(op, _size(op, node.left, names), _size(op, node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        return _call(op, node.func.id, node.args, names)
    return None


def _call(op: Context, name: str, args: list[ast.expr], names: Mapping[str, str]) -> Dim:
    first = args[0]
    if name == "Symbol" and isinstance(first, ast.Constant):
        return names.get(str(first.value), str(first.value))
    found = [_size(op, a, names) for a in args]
    if name == "Integer":
        return found[0]
    if name == "Pow" and len(found) == 2:
        return _power(found[0], found[1])
    combine = _NAMED.get(name)
    if combine is None:
        return None
    result = found[0]
    for other in found[1:]:
        result = combine(op, result, other)
    return result


def _power(base: Dim, exponent: Dim) -> Dim:
    if not isinstance(exponent, int) or not 0 <= exponent <= 8:
        return None
    return dims.product([base] * exponent)
