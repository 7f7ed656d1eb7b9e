"""Byte-code of Python, of any version that Keras ran on, as steps that mean the same in all of them.

A Lambda layer keeps its function as marshalled code. Nothing here runs it: what is read is data,
`Code`, whose steps say what the function would do to a stack.

| step | argument | what it does |
|---|---|---|
| constant | the value | pushes it (`Code` for a nested function's body) |
| local, free, global | name | pushes a variable: of the function, of one around it, of the module |
| store, store free, delete | name | pops into a local, pops into a cell, forgets a local |
| cell | name | pushes the cell itself, for a closure |
| attribute | name | replaces the top by its attribute; methods too, already bound |
| call | (positional, names of keywords) | pops arguments and what is called, pushes the result |
| call expanded | whether with keywords | pops [mapping], sequence and what is called |
| unary | ``-  +  ~  not`` | |
| binary | ``+  -  *  /  //  %  **  @  <<  >>  &  ^  |  []`` | in place ones too |
| compare | ``<  <=  ==  !=  >  >=  in  not in  is  is not`` | |
| build | (tuple, list, set, map, slice or string; how many) | a map takes pairs |
| build map | names of keys | takes their values |
| extend | (list, set, map; n) | pops, and adds all of it to the n-th from the top |
| append | (list, set, map; n) | the same with one element, or a key and a value |
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
| function | names of what lies below the code: defaults, keyword defaults, annotations, closure | |
| import | name | pops list and level |
| import from | name | pushes an attribute of the module on top, which stays |
| return | | |

Spec: CPython's Python/marshal.c, Lib/opcode.py and Python/ceval.c, of each version.
"""

from dataclasses import dataclass
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
        steps: What it does.
    """

    name: str
    version: tuple[int, int]
    file: str
    positional: tuple[str, ...]
    positional_only: int
    keyword_only: tuple[str, ...]
    rest: str | None
    keywords: str | None
    free: tuple[str, ...]
    steps: tuple[Step, ...]


def read(data: bytes) -> Code:
    """Return the code that marshalled bytes hold.

    Raises:
        CorruptError: They are damaged.
        UnsupportedError: The code does what these steps cannot say (it yields, awaits, catches),
            or is of a version that is not known.
        LimitError: It is larger than any function.
    """
    raise NotImplementedError
