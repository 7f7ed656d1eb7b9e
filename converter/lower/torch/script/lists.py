"""Lists, dicts and strings of a TorchScript program: all of it happens while lowering.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/csrc/jit/runtime/register_prim_ops.cpp
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import Number, ProgramValue, Size, integer
from converter.lower.torch.script.numbers import compute
from converter.lower.torch.script.types import Interpreter
from converter.lower.torch.script.values import MOST_ITEMS, Items, Raised, has_tensors, words
from converter.lower.unsupported import Unsupported
from formats.core.plurals import count

List = Callable[..., Any]
LISTS: dict[str, List] = {}


def on_lists(*names: str) -> Callable[[List], List]:
    """Return a decorator that adds an op on lists, dicts and strings."""

    def enter(function: List) -> List:
        for name in names:
            LISTS[name] = function
        return function

    return enter


def place(index: ProgramValue, what: str = "an index") -> int:
    """Return a known index.

    Raises:
        Unsupported: It depends on the inputs.
    """
    if isinstance(index, bool) or not isinstance(index, int):
        raise Unsupported(f"{what} of a list that depends on the inputs")
    return index


def known(items: ProgramValue) -> Sequence[Any]:
    """Return the elements of a list whose length is known.

    Raises:
        Unsupported: It is not.
    """
    if isinstance(items, Items) and items.grown is not None:
        raise Unsupported("a list of as many elements as a loop has rounds")
    if not isinstance(items, list | tuple):
        raise Unsupported(f"{words(items)} in place of a list")
    return items


def _same(a: ProgramValue, b: ProgramValue) -> bool:
    if isinstance(a, Reference) or isinstance(b, Reference):
        raise Unsupported("a comparison of lists of tensors")
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Number | Size) or isinstance(b, Number | Size):
        if isinstance(a, Size) and isinstance(b, Size) and a == b:
            return True
        raise Unsupported("a comparison of lists of numbers that depend on the inputs")
    return bool(a == b)


@on_lists("eq")
def equal(interpreter: Interpreter, a: ProgramValue, b: ProgramValue) -> bool:
    """Return whether lists, strings or devices are equal."""
    del interpreter
    return _same(a, b)


@on_lists("ne")
def unequal(interpreter: Interpreter, a: ProgramValue, b: ProgramValue) -> bool:
    """Return whether lists, strings or devices are not equal."""
    del interpreter
    return not _same(a, b)


@on_lists("append")
def append(interpreter: Interpreter, items: Items, item: ProgramValue) -> Items:
    """Append to a list."""
    if not interpreter.appended(items, item):
        _changeable(interpreter, items).append(item)
        if len(items) > MOST_ITEMS:
            raise Unsupported(f"a list of {count('element', len(items))}")
    return items


def _changeable(interpreter: Interpreter, items: ProgramValue) -> Any:
    """Return a list that is about to change.

    Raises:
        Unsupported: Whether it does depends on the inputs.
    """
    if isinstance(items, Items):
        known(items)
        if items.depth < interpreter.depth:
            raise Unsupported("a list that changes where only the inputs say whether")
        return items
    if isinstance(items, dict):
        if interpreter.depth:
            raise Unsupported("a dict that changes where only the inputs say whether")
        return items
    raise Unsupported(f"{words(items)} that changes")


@on_lists("insert")
def insert(interpreter: Interpreter, items: Items, index: int, item: ProgramValue) -> None:
    """Insert into a list."""
    _changeable(interpreter, items).insert(place(index), item)


@on_lists("extend")
def extend(interpreter: Interpreter, items: Items, more: ProgramValue) -> None:
    """Append all of another list."""
    _changeable(interpreter, items).extend(known(more))
    if len(items) > MOST_ITEMS:
        raise Unsupported(f"a list of {count('element', len(items))}")


@on_lists("pop")
def pop(interpreter: Interpreter, items: ProgramValue, *rest: ProgramValue) -> ProgramValue:
    """Take an element out of a list or a dict."""
    found = _changeable(interpreter, items)
    if isinstance(found, dict):
        return found.pop(*rest)
    return found.pop(place(rest[0]) if rest else -1)


@on_lists("remove")
def remove(interpreter: Interpreter, items: Items, item: ProgramValue) -> None:
    """Take the first element that is equal out of a list."""
    found = _changeable(interpreter, items)
    del found[next(i for i, one in enumerate(found) if _same(one, item))]


@on_lists("reverse")
def reverse(interpreter: Interpreter, items: Items) -> None:
    """Turn a list around."""
    _changeable(interpreter, items).reverse()


@on_lists("clear")
def clear(interpreter: Interpreter, items: ProgramValue) -> None:
    """Empty a list or a dict."""
    _changeable(interpreter, items).clear()


@on_lists("sort")
def sort(interpreter: Interpreter, items: Items, reverse: bool = False) -> None:
    """Sort a list of known numbers or strings."""
    found = _changeable(interpreter, items)
    if not all(isinstance(n, int | float | str) and not isinstance(n, Size) for n in found):
        raise Unsupported("sorting what depends on the inputs")
    found.sort(reverse=reverse)


@on_lists("sorted")
def sorted_list(interpreter: Interpreter, items: Items, *rest: ProgramValue) -> Items:
    """A sorted copy of a list."""
    made = Items(known(items), interpreter.depth)
    sort(interpreter, made, *rest)
    return made


@on_lists("_set_item")
def set_item(
    interpreter: Interpreter, items: ProgramValue, index: ProgramValue, item: ProgramValue
) -> ProgramValue:
    """Replace an element of a list, or an entry of a dict."""
    found = _changeable(interpreter, items)
    if isinstance(found, dict):
        found[_key(index)] = item
    else:
        found[place(index)] = item
    return found


def _key(key: ProgramValue) -> Any:
    if isinstance(key, Size | Number) or not isinstance(key, int | float | str):
        raise Unsupported(f"a dict's key that is {words(key)}")
    return key


@on_lists("delete", "Delete")
def delete(interpreter: Interpreter, items: ProgramValue, index: ProgramValue) -> None:
    """Take an element out of a list or a dict."""
    found = _changeable(interpreter, items)
    del found[_key(index) if isinstance(found, dict) else place(index)]


@on_lists("__getitem__", "select")
def get_item(interpreter: Interpreter, items: ProgramValue, index: ProgramValue) -> ProgramValue:
    """An element of a list or a tuple, an entry of a dict, or a letter."""
    del interpreter
    if isinstance(items, dict):
        key = _key(index)
        if key not in items:
            raise Raised(f"a dict without {key!r}")
        return items[key]
    if isinstance(items, str) and not isinstance(items, Size):
        return items[place(index)]
    found, at = known(items), place(index)
    if not -len(found) <= at < len(found):
        raise Raised(f"element {at} of {len(found)}")
    return found[at]


@on_lists("slice")
def slice_list(
    interpreter: Interpreter,
    items: ProgramValue,
    start: ProgramValue = None,
    end: ProgramValue = None,
    step: int = 1,
) -> ProgramValue:
    """A part of a list or a string."""
    found = items if isinstance(items, str) else known(items)
    bounds = [None if n is None else place(n, "a bound") for n in (start, end)]
    part = found[bounds[0] : bounds[1] : place(step)]
    if isinstance(items, str | tuple):
        return part
    return Items(part, interpreter.depth)


@on_lists("len")
def length(interpreter: Interpreter, items: ProgramValue) -> ProgramValue:
    """The number of elements of a list, a dict or a string."""
    if isinstance(items, Items) and items.grown is not None:
        return integer(interpreter.op.axis_of(items.grown, 0))
    return len(items)


@on_lists("list", "copy")
def list_of(interpreter: Interpreter, items: ProgramValue) -> ProgramValue:
    """A copy of a list or a dict; the letters of a string."""
    if isinstance(items, dict):
        return dict(items)
    found = items if isinstance(items, str) else known(items)
    return Items(list(found), interpreter.depth)


@on_lists("add", "add_")
def joined(interpreter: Interpreter, a: ProgramValue, b: ProgramValue) -> ProgramValue:
    """One list or string after another."""
    if isinstance(a, str) and isinstance(b, str):
        _check_length(len(a) + len(b))
        return a + b
    return Items([*known(a), *known(b)], interpreter.depth)


@on_lists("mul")
def repeated(interpreter: Interpreter, a: ProgramValue, b: ProgramValue) -> Items:
    """A list several times after itself."""
    items, times = (b, a) if isinstance(a, int) else (a, b)
    count = place(times, "a length")
    if len(known(items)) * max(count, 0) > MOST_ITEMS:
        raise Unsupported(f"a list {count} times after itself")
    return Items(list(known(items)) * count, interpreter.depth)


@on_lists("__contains__", "contains")
def contains(interpreter: Interpreter, items: ProgramValue, item: ProgramValue) -> bool:
    """Return whether something is in a list, a dict or a string."""
    del interpreter
    if isinstance(items, dict):
        return _key(item) in items
    if isinstance(items, str):
        return item in items
    return any(_same(one, item) for one in known(items))


@on_lists("index")
def index_of(interpreter: Interpreter, items: ProgramValue, item: ProgramValue) -> int:
    """The index of an element in a list."""
    del interpreter
    for i, one in enumerate(known(items)):
        if _same(one, item):
            return i
    raise Raised("a list without the element that is looked for")


@on_lists("count")
def count_of(interpreter: Interpreter, items: ProgramValue, item: ProgramValue) -> int:
    """The number of occurrences of an element in a list."""
    del interpreter
    if isinstance(items, str):
        return items.count(item)
    return sum(_same(one, item) for one in known(items))


@on_lists("keys")
def keys(interpreter: Interpreter, entries: dict[Any, Any]) -> Items:
    """The keys of a dict."""
    return Items(list(entries), interpreter.depth)


@on_lists("values")
def values(interpreter: Interpreter, entries: dict[Any, Any]) -> Items:
    """The entries of a dict."""
    return Items(list(entries.values()), interpreter.depth)


@on_lists("items")
def pairs(interpreter: Interpreter, entries: dict[Any, Any]) -> Items:
    """The keys and entries of a dict."""
    return Items(list(entries.items()), interpreter.depth)


@on_lists("get")
def get(
    interpreter: Interpreter,
    entries: dict[Any, Any],
    key: ProgramValue,
    default: ProgramValue = None,
) -> ProgramValue:
    """An entry of a dict, or something else."""
    del interpreter
    return entries.get(_key(key), default)


@on_lists("setdefault")
def set_default(
    interpreter: Interpreter, entries: dict[Any, Any], key: ProgramValue, default: ProgramValue
) -> ProgramValue:
    """An entry of a dict, made if it is not there."""
    return _changeable(interpreter, entries).setdefault(_key(key), default)


@on_lists("update")
def update(interpreter: Interpreter, entries: dict[Any, Any], more: dict[Any, Any]) -> None:
    """Add the entries of another dict."""
    _changeable(interpreter, entries).update(more)


@on_lists("sum")
def total(interpreter: Interpreter, items: ProgramValue) -> ProgramValue:
    """The sum of a list's numbers."""
    found: ProgramValue = 0
    for one in known(items):
        found = compute(interpreter.op, "add", [found, one])
    return found


# -- strings ---------------------------------------------------------------------------------------

FIELD = re.compile(r"\{\{|\}\}|\{[^{}]*\}")


@on_lists("format")
def formatted(interpreter: Interpreter, pattern: str, *args: ProgramValue) -> str:
    """A string with others in it: for messages, where what is not known is named."""
    del interpreter
    rest = iter(args)
    return FIELD.sub(lambda found: _spell(next(rest, "…")) if found[0] == "{}" else "", pattern)


@on_lists("percentFormat")
def percent(interpreter: Interpreter, pattern: str, *args: ProgramValue) -> str:
    """A string with others in it."""
    del interpreter
    rest = iter(args)
    return re.sub(r"%[-\d.]*[a-zA-Z]", lambda _: _spell(next(rest, "…")), pattern)


@on_lists("str")
def to_string(interpreter: Interpreter, value: ProgramValue) -> str:
    """A value as a string."""
    del interpreter
    return _spell(value)


def _spell(value: ProgramValue) -> str:
    if has_tensors(value) or isinstance(value, Number | Size):
        return "…"
    return str(value)[:1000]


@on_lists("join")
def join(interpreter: Interpreter, between: str, parts: ProgramValue) -> str:
    """Strings with another one between them."""
    del interpreter
    found = known(parts)
    _check_length(sum(len(part) for part in found) + len(between) * len(found))
    return between.join(found)


def _check_length(count: int) -> None:
    if count > MOST_ITEMS:
        raise Unsupported("a text that grows without end")


@on_lists("replace")
def replaced(interpreter: Interpreter, text: str, old: str, new: str, times: int = -1) -> str:
    """A string with substrings replaced."""
    del interpreter
    _check_length(len(text) + (text.count(old) if old else len(text) + 1) * len(new))
    return text.replace(old, new, times)


def _text(name: str, method: Callable[..., Any]) -> None:
    def apply(interpreter: Interpreter, text: str, *args: ProgramValue) -> ProgramValue:
        found = method(text, *args)
        return Items(found, interpreter.depth) if isinstance(found, list) else found

    LISTS[name] = apply


for _name, _method in (
    ("lower", str.lower), ("upper", str.upper), ("strip", str.strip), ("split", str.split),
    ("startswith", str.startswith), ("endswith", str.endswith),
    ("find", str.find), ("lstrip", str.lstrip), ("rstrip", str.rstrip), ("isdigit", str.isdigit),
):  # fmt: skip
    _text(_name, _method)
