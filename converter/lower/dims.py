"""Arithmetic of dimensions, some of which are symbolic.

A dimension is an integer, the name of a symbolic dimension, or None where it is unknown. The name
of a sum of products is its canonical spelling (``2*batch+1``): equal dimensions have equal names,
however they were computed. Any other result is named after its operands (``(batch+1)//2``), so
that it equals itself. A computed name keeps its terms (`SymbolicDim`); the same string from a
model file is a name like any other.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

Dim: TypeAlias = "int | str | None"  # static, the name of a symbolic dimension, or unknown
Shape: TypeAlias = tuple[Dim, ...]
Terms = dict[tuple[str, ...], int]  # the sorted names of a product -> its coefficient

MULTIPLE = re.compile(r"([1-9]\d{,5})\*\w+")
MAX_LENGTH = 200  # characters of a name; a dimension with a longer name becomes unknown


class SymbolicDim(str):
    """The name of a dimension, with the terms that it was computed from.

    Attributes:
        terms: Products of names and their coefficients, whose sum the dimension is.
        operands: The two operands of a maximum; empty for any other dimension.
    """

    __slots__ = ("operands", "terms")
    terms: Terms
    operands: tuple[Dim, ...]

    def __new__(
        cls, name: str, terms: Terms | None = None, operands: tuple[Dim, ...] = ()
    ) -> "SymbolicDim":
        """Return a name; terms and operands default to those of ``name``."""
        self = super().__new__(cls, name)
        if isinstance(name, SymbolicDim):
            terms, operands = terms or name.terms, operands or name.operands
        self.terms = terms or {(str(name),): 1}
        self.operands = operands
        return self


def add(a: Dim, b: Dim) -> Dim:
    """`a + b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return _of(a, b, _sum)


def sub(a: Dim, b: Dim) -> Dim:
    """`a - b`."""
    return add(a, mul(b, -1))


def mul(a: Dim, b: Dim) -> Dim:
    """`a * b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return _of(a, b, _product)


def floordiv(a: Dim, b: Dim) -> Dim:
    """`a // b`."""
    if a is None or b is None or b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    exact = divide_exactly(a, b)
    return exact if exact is not None else _parse_name(f"({a})//({b})")


def divide_exactly(a: Dim, b: Dim) -> Dim:
    """`a / b` where the remainder is zero, else None."""
    if a is None or b is None or b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return None if a % b else a // b
    above, below = terms(a), terms(b)
    if above == below:
        return 1
    if len(below) != 1:
        return None
    ((names, factor),) = below.items()
    result: Terms = {}
    for product, times in above.items():
        left = list(product)
        for name in names:
            if name not in left:
                return None
            left.remove(name)
        if times % factor:
            return None
        result[tuple(left)] = times // factor
    return _name(result)


def modulo(a: Dim, b: Dim) -> Dim:
    """`a % b`, with the sign of b."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else None
    if divide_exactly(a, b) is not None:
        return 0
    return None if a is None or b is None else _parse_name(f"({a})%({b})")


def least(a: Dim, b: Dim) -> Dim:
    """`min(a, b)`."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if a == b or a is None or b is None:
        return a if a == b else None
    for one, other in ((a, b), (b, a)):
        if isinstance(other, SymbolicDim) and one in other.operands:
            return one
    return _parse_name(f"min({','.join(sorted((str(a), str(b))))})")


def most(a: Dim, b: Dim) -> Dim:
    """`max(a, b)`."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if a == b or a is None or b is None:
        return a if a == b else None
    text = _parse_name(f"max({','.join(sorted((str(a), str(b))))})")
    return None if text is None else SymbolicDim(text, operands=(a, b))


def product(sizes: Sequence[Dim]) -> Dim:
    """Return the product of sizes."""
    result: Dim = 1
    for n in sizes:
        result = mul(result, n)
    return result


def find_factor(name: str) -> int:
    """Return 40 for ``40*n``, of which every size is a multiple, and 1 for any other name."""
    found = MULTIPLE.fullmatch(name)
    return int(found[1]) if found else 1


def terms(size: int | str) -> Terms:
    """Return the products of names, with their coefficients, whose sum a dimension is."""
    if isinstance(size, int):
        return {(): size} if size else {}
    return size.terms if isinstance(size, SymbolicDim) else {(size,): 1}


def _of(a: Dim, b: Dim, combine: Callable[[Terms, Terms], Terms]) -> Dim:
    if a is None or b is None:
        return None
    return _name(combine(terms(a), terms(b)))


def _sum(a: Terms, b: Terms) -> Terms:
    result = dict(a)
    for names, times in b.items():
        result[names] = result.get(names, 0) + times
    return result


def _product(a: Terms, b: Terms) -> Terms:
    result: Terms = {}
    for names, times in a.items():
        for more, factor in b.items():
            together = tuple(sorted(names + more))
            result[together] = result.get(together, 0) + times * factor
    return result


def _name(found: Terms) -> Dim:
    found = {names: times for names, times in found.items() if times}
    if not found:
        return 0
    if found.keys() == {()}:
        return found[()]
    if len(found) == 1:
        ((names, times),) = found.items()
        if len(names) == 1 and times == 1:
            return names[0]
    # Positive terms come first, then negative ones; the constant is last.
    ordered = sorted(found.items(), key=lambda item: (not item[0], item[1] < 0, item[0]))
    text = ""
    for names, times in ordered:
        sign = "-" if times < 0 else "+" if text else ""
        factors = ([str(abs(times))] if abs(times) != 1 or not names else []) + [
            name if name.isidentifier() else f"({name})" for name in names
        ]
        text += sign + "*".join(factors)
    return None if _parse_name(text) is None else SymbolicDim(text, found)


def _parse_name(text: str) -> str | None:
    return text if len(text) <= MAX_LENGTH else None
