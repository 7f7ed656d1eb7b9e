"""Version-neutral steps of a function's bytecode.

A Lambda layer keeps its function as marshalled code. Nothing here runs it: what is read is data,
`Code`, whose steps say what the function would do to a stack.

| step | argument | what it does |
|---|---|---|
| constant | the value | pushes it: `Code` for a nested function's body |
| local | name | pushes a variable of this function, whether or not nested ones use it too |
| free | name | pushes a variable of a function around this one |
| global | name | pushes a variable of the module, or else what Python has under that name |
| store, store free, store global | name | pops into such a variable |
| delete | name | forgets a local variable |
| cell | name | pushes the variable itself, local or free: a nested function's closure |
| attribute | name | replaces the top by its attribute; methods too, already bound |
| store attribute, delete attribute | name | pops an object [and, below, the value] |
| store item, delete item | | pops a key, the container below [and, below, the value] |
| call | (positional, names of keywords) | pops arguments and what is called, pushes the result |
| call expanded | whether with keywords | pops [mapping], sequence and what is called; pushes |
| unary | ``-  +  ~  not`` | |
| binary | ``+  -  *  /  //  %  **  @  <<  >>  &  ^  |  []  div`` | div: below |
| in place | the same but ``[]`` | may change its left operand: ``+=`` of a list extends it |
| compare | ``<  <=  ==  !=  >  >=  in  not in  is  is not`` | |
| build | (tuple, list, set, map, slice or string; how many) | a map takes pairs |
| build map | names of keys | takes their values |
| join | (tuple, list, set, map; n) | pops n of any kind, pushes one of this kind with all of them |
| extend | (list, set, map; n) | pops, and adds all of it to what is then n-th from the top |
| append | (list, set, map; n) | the same with one element, or with a key and the value above it |
| format | (conversion ``s r a`` or "", whether with a specification) | of an f-string |
| unpack | how many | replaces a sequence by its elements, the first on top |
| unpack rest | (before, after) | the same with a list of what is between |
| pop | | |
| copy, swap | n | pushes the n-th from the top, or exchanges it with the top (1 is the top) |
| rotate | n | moves the top down to be the n-th |
| iterator | | replaces the top by its iterator |
| next | | pushes the next element; at the end pops the iterator and jumps |
| jump | | |
| jump if | (truth, keep) | pops and jumps if it is so; keep: only pops where it does not jump |
| jump if none | whether it is None | pops, and jumps if it is (or is not) None |
| function | names of what lies below the code, the deepest first | makes a function of them all |
| import | name | pops list and level, pushes the module |
| import from | name | pushes an attribute of the module on top, which stays |
| raise | how many | pops so many and raises them: the way of an ``assert`` that fails |
| yield | | pops the next element of a generator, pushes what is sent to it (None in a ``for``) |
| return | | pops the result; what is left below it is forgotten |

A ``function`` may have ``defaults`` (a tuple), ``keyword defaults`` (a map), ``annotations`` (of no
meaning here) and ``closure`` (a tuple of cells), in this order.
``div`` is division as Python 2 knows it: ``//`` of two integers, ``/`` of anything else.
Where version 3.12 and later run a comprehension in place, its variables have names with a ``#``.
A ``with`` is calls of ``__enter__`` and ``__exit__``, as if nothing were raised in it.
Calls of Python 2's ``print`` and backquotes are those of ``print`` and ``repr``. Its ``str`` is
text where it is ASCII.
Not said: ``try``, ``await``, ``yield from``, classes, ``match``, ``del`` of other variables.

Spec: CPython's Python/marshal.c, Lib/opcode.py and Python/ceval.c, of each version.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        op: Of the table above.
        argument: What the table says.
        target: Of a jump, the number of the step.
        line: In the source, where it is known.
    """

    op: str
    argument: Any = None
    target: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Code:
    """A function's body.

    Attributes:
        name: Of the function, ``<lambda>`` where it has none.
        version: Of Python, the oldest one whose code it can be: (3, 6).
        file: That it was written in, as recorded.
        positional: Names of its parameters, those with defaults last.
        positional_only: How many of them.
        keyword_only: Names of further ones.
        rest: Name of ``*args``, if it has it.
        keywords: Name of ``**kwargs``.
        free: Names of variables of functions around it, in the order of a closure.
        yields: Whether it is a generator: a call gives an iterator over what it yields.
        steps: What it does.

    Two are equal that do the same, whatever the version.
    """

    name: str
    version: tuple[int, int] = field(compare=False)
    file: str
    positional: tuple[str, ...]
    positional_only: int
    keyword_only: tuple[str, ...]
    rest: str | None
    keywords: str | None
    free: tuple[str, ...]
    yields: bool
    steps: tuple[Step, ...]
