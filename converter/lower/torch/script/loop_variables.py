"""Which names the body of a loop reads from the iteration before."""

import ast
from collections import Counter
from collections.abc import Iterable, Sequence


def assigned_names(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements assign."""
    return {
        inner.id
        for statement in body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }


def needed_from_before(
    body: Sequence[ast.stmt], test: ast.expr | None, function: Sequence[ast.stmt]
) -> set[str]:
    """Return the names that a loop assigns and that are read in later iterations, or after it.

    Args:
        body: The loop's.
        test: Condition of a ``while``.
        function: All statements of the function that it is in.
    """
    found = _read_first(body, set())
    if test is not None:
        found |= set(_reads(test))
    elsewhere = Counter[str]()
    for statement in function:
        elsewhere.update(_reads(statement))
    for statement in body:
        elsewhere.subtract(_reads(statement))
    found |= {name for name, count in elsewhere.items() if count > 0}
    return found & assigned_names(body)


def _reads(node: ast.AST) -> list[str]:
    return [
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
    ]


def _read_first(body: Sequence[ast.stmt], known: set[str]) -> set[str]:
    """Return what statements read before they assign it; ``known`` gets what they all assign."""
    found: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.If):
            found |= set(_reads(statement.test)) - known
            sides = [set(known), set(known)]
            for side, block in zip(sides, (statement.body, statement.orelse), strict=True):
                found |= _read_first(block, side)
            known |= sides[0] & sides[1]
        elif isinstance(statement, ast.For | ast.While):
            first = statement.iter if isinstance(statement, ast.For) else statement.test
            found |= set(_reads(first)) - known
            inside = set(known)
            if isinstance(statement, ast.For):
                inside |= {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)}
            found |= _read_first(statement.body, inside)
        else:
            found |= set(_reads(statement)) - known
            known |= assigned_names([statement])
    return found
