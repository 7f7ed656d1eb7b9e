"""Arithmetic of sizes, of which some are only names.

A size is a number, the name of a dynamic one, or None. What is computed of named sizes is a sum of
products of names, and its canonical spelling (``2*batch+1``) is its name: equal sizes have equal
names, whatever way they were computed. What is no such sum gets a name made of its operands'
(``(batch+1)//2``), so that it equals itself.
"""

from collections.abc import Callable

from converter.lower.graph import Dim

Terms = dict[tuple[str, ...], int]  # the names of a product, sorted -> how often

LONGEST = 200  # letters of a name; a size that takes more is not known
_TERMS: dict[str, Terms] = {}  # of names that were made here
_LARGER: dict[str, tuple[Dim, Dim]] = {}  # name of the larger one of two -> those


def forget() -> None:
    """Forget what names are made of: another model has others."""
    _TERMS.clear()


def add(a: Dim, b: Dim) -> Dim:
    """A + b."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return _of(a, b, _sum)


def sub(a: Dim, b: Dim) -> Dim:
    """A - b."""
    return add(a, mul(b, -1))


def mul(a: Dim, b: Dim) -> Dim:
    """A * b."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return _of(a, b, _product)


def floordiv(a: Dim, b: Dim) -> Dim:
    """A / b, rounded down."""
    if a is None or b is None or b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    exact = divided(a, b)
    return exact if exact is not None else _named(f"({a})//({b})")


def divided(a: Dim, b: Dim) -> Dim:
    """A / b where that leaves no rest, else None."""
    if a is None or b is None or b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return None if a % b else a // b
    above, below = _terms(a), _terms(b)
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
    """A modulo b, of b's sign."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else None
    if divided(a, b) is not None:
        return 0
    return None if a is None or b is None else _named(f"({a})%({b})")


def least(a: Dim, b: Dim) -> Dim:
    """The smaller one."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if a == b or a is None or b is None:
        return a if a == b else None
    for one, other in ((a, b), (b, a)):
        if one in _LARGER.get(str(other), ()):
            return one
    return _named(f"min({','.join(sorted((str(a), str(b))))})")


def most(a: Dim, b: Dim) -> Dim:
    """The larger one."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if a == b or a is None or b is None:
        return a if a == b else None
    found = _named(f"max({','.join(sorted((str(a), str(b))))})")
    if found is not None:
        _LARGER[found] = (a, b)
    return found


def product(sizes: "list[Dim] | tuple[Dim, ...]") -> Dim:
    """The product of sizes."""
    result: Dim = 1
    for n in sizes:
        result = mul(result, n)
    return result


def terms(name: str) -> Terms:
    """Return what a name is the sum of: products of names, and how often each."""
    return _terms(name)


def _of(a: Dim, b: Dim, combine: Callable[[Terms, Terms], Terms]) -> Dim:
    if a is None or b is None:
        return None
    return _name(combine(_terms(a), _terms(b)))


def _terms(size: int | str) -> Terms:
    if isinstance(size, int):
        return {(): size} if size else {}
    return _TERMS.get(size, {(size,): 1})


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


def _name(terms: Terms) -> Dim:
    terms = {names: times for names, times in terms.items() if times}
    if not terms:
        return 0
    if terms.keys() == {()}:
        return terms[()]
    if len(terms) == 1:
        ((names, times),) = terms.items()
        if len(names) == 1 and times == 1:
            return names[0]
    # Constants last; what is subtracted after what is added.
    ordered = sorted(terms.items(), key=lambda item: (not item[0], item[1] < 0, item[0]))
    text = ""
    for names, times in ordered:
        sign = "-" if times < 0 else "+" if text else ""
        factors = ([str(abs(times))] if abs(times) != 1 or not names else []) + [
            name if name.isidentifier() else f"({name})" for name in names
        ]
        text += sign + "*".join(factors)
    found = _named(text)
    if found is not None:
        _TERMS[text] = terms
    return found


def _named(text: str) -> str | None:
    return text if len(text) <= LONGEST else None
