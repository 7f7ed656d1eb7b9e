"""A small machine for `formats.python_bytecode.steps`, to see that they do what Python does.

It runs functions of our own only.
"""

import builtins
import operator
from collections.abc import Callable, Generator
from typing import Any

from formats.python_bytecode import Code


def _div(a: Any, b: Any) -> Any:
    return a // b if isinstance(a, int) and isinstance(b, int) else a / b


UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert, "not": operator.not_}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "[]": operator.getitem,
    "div": _div,
}
IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "//": operator.ifloordiv,
    "%": operator.imod,
    "**": operator.ipow,
    "@": operator.imatmul,
    "<<": operator.ilshift,
    ">>": operator.irshift,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
    "div": _div,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
    "is": lambda a, b: a is b,
    "is not": lambda a, b: a is not b,
}
CONVERSIONS: dict[str, Callable[[Any], Any]] = {"": lambda v: v, "s": str, "r": repr, "a": ascii}
LARGEST = 200_000  # steps of one call


class Cell:
    """A variable."""

    def __init__(self, *value: Any) -> None:
        self.value = value

    def get(self, name: str) -> Any:
        if not self.value:
            raise UnboundLocalError(name)
        return self.value[0]


class Function:
    """A function of steps, that can be called."""

    def __init__(
        self,
        code: Code,
        globals: dict[str, Any],
        defaults: tuple[Any, ...] = (),
        keyword_defaults: dict[str, Any] | None = None,
        closure: tuple[Cell, ...] = (),
    ) -> None:
        self.code = code
        self.__name__ = code.name
        self.globals = globals
        self.defaults = defaults
        self.keyword_defaults = keyword_defaults or {}
        assert len(closure) == len(code.free)
        self.free = dict(zip(code.free, closure, strict=True))

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        variables = {name: Cell(value) for name, value in self.bound(args, keywords).items()}
        run = self.run(variables)
        if self.code.yields:
            return run
        try:
            next(run)
        except StopIteration as e:
            return e.value
        raise AssertionError("yielded")

    def bound(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
        code = self.code
        values: dict[str, Any] = dict(zip(code.positional, args, strict=False))
        over = args[len(code.positional) :]
        if code.rest:
            values[code.rest] = over
        elif over:
            raise TypeError("too many arguments")
        others = {}
        for name, value in keywords.items():
            named = (*code.positional[code.positional_only :], *code.keyword_only)
            if name in named and name not in values:
                values[name] = value
            elif code.keywords and name not in named:
                others[name] = value
            else:
                raise TypeError(name)
        if code.keywords:
            values[code.keywords] = others
        if self.defaults:
            last = code.positional[-len(self.defaults) :]
            values = {**dict(zip(last, self.defaults, strict=True)), **values}
        values = {**self.keyword_defaults, **values}
        missing = {*code.positional, *code.keyword_only} - set(values)
        if missing:
            raise TypeError(f"missing {missing}")
        return values

    def run(self, variables: dict[str, Cell]) -> Generator[Any, Any, Any]:
        stack: list[Any] = []
        pop, push = stack.pop, stack.append
        at = 0
        for _ in range(LARGEST):
            step = self.code.steps[at]
            at += 1
            op, argument = step.op, step.argument
            if op == "return":
                return pop()
            if op == "yield":
                push((yield pop()))
            elif op in ("jump", "jump if", "jump if none", "next"):
                assert step.target is not None
                if self.jumps(op, argument, stack):
                    at = step.target
            elif op in ("local", "store", "delete", "cell", "free", "store free"):
                outside = "free" in op or (op == "cell" and argument in self.free)
                cells = self.free if outside else variables
                cells.setdefault(argument, Cell())
                if op in ("local", "free"):
                    push(cells[argument].get(argument))
                elif op == "cell":
                    push(cells[argument])
                else:
                    cells[argument].value = () if op == "delete" else (pop(),)
            elif op == "global":
                found = self.globals.get(argument, self)
                push(getattr(builtins, argument) if found is self else found)
            elif op == "store global":
                self.globals[argument] = pop()
            else:
                self.does(op, argument, stack)
        raise AssertionError("runs too long")

    def jumps(self, op: str, argument: Any, stack: list[Any]) -> bool:
        if op == "jump":
            return True
        if op == "next":
            try:
                stack.append(next(stack[-1]))
            except StopIteration:
                stack.pop()
                return True
            return False
        if op == "jump if none":
            return bool((stack.pop() is None) == argument)
        truth, keep = argument
        value = stack[-1]
        goes = bool(value) == truth
        if not (goes and keep):
            stack.pop()
        return goes

    def does(self, op: str, argument: Any, stack: list[Any]) -> None:
        pop, push = stack.pop, stack.append

        def several(count: int) -> list[Any]:
            taken = stack[len(stack) - count :]
            assert len(taken) == count
            del stack[len(stack) - count :]
            return taken

        match op:
            case "constant":
                push(argument)
            case "attribute":
                push(getattr(pop(), argument))
            case "store attribute":
                value, thing = several(2)
                setattr(thing, argument, value)
            case "delete attribute":
                delattr(pop(), argument)
            case "store item":
                value, container, key = several(3)
                container[key] = value
            case "delete item":
                container, key = several(2)
                del container[key]
            case "call":
                positional, names = argument
                values = several(positional + len(names))
                keywords = dict(zip(names, values[positional:], strict=True))
                push(pop()(*values[:positional], **keywords))
            case "call expanded":
                keywords = pop() if argument else {}
                sequence = pop()
                push(pop()(*sequence, **keywords))
            case "unary":
                push(UNARY[argument](pop()))
            case "binary" | "in place" | "compare":
                a, b = several(2)
                table = {"binary": BINARY, "in place": IN_PLACE, "compare": COMPARE}[op]
                push(table[argument](a, b))
            case "build":
                kind, count = argument
                values = several(2 * count if kind == "map" else count)
                push(self.built(kind, values))
            case "build map":
                push(dict(zip(argument, several(len(argument)), strict=True)))
            case "join":
                kind, count = argument
                parts = several(count)
                if kind == "map":
                    push({key: value for part in parts for key, value in part.items()})
                else:
                    push(self.built(kind, [value for part in parts for value in part]))
            case "extend":
                kind, place = argument
                value = pop()
                (stack[-place].extend if kind == "list" else stack[-place].update)(value)
            case "append":
                kind, place = argument
                value = pop()
                if kind == "map":
                    key = pop()
                    stack[-place][key] = value
                else:
                    (stack[-place].append if kind == "list" else stack[-place].add)(value)
            case "format":
                conversion, special = argument
                specification = pop() if special else ""
                push(format(CONVERSIONS[conversion](pop()), specification))
            case "unpack":
                values = list(pop())
                if len(values) != argument:
                    raise ValueError(argument)
                stack.extend(reversed(values))
            case "unpack rest":
                before, after = argument
                values = list(pop())
                if len(values) < before + after:
                    raise ValueError(argument)
                rest = values[before : len(values) - after]
                behind = values[len(values) - after :]
                stack.extend(reversed([*values[:before], rest, *behind]))
            case "pop":
                pop()
            case "copy":
                push(stack[-argument])
            case "swap":
                stack[-1], stack[-argument] = stack[-argument], stack[-1]
            case "rotate":
                top = pop()
                stack.insert(len(stack) - argument + 1, top)
            case "iterator":
                push(iter(pop()))
            case "function":
                code = pop()
                parts = dict(zip(argument, several(len(argument)), strict=True))
                closure = parts.get("closure", ())
                more = parts.get("keyword defaults")
                push(Function(code, self.globals, parts.get("defaults", ()), more, closure))
            case "import":
                level, names = several(2)
                push(__import__(argument, None, None, names, level))
            case "import from":
                push(getattr(stack[-1], argument))
            case "raise":
                first, *more = several(argument)
                raise first(*more) if isinstance(first, type) else first
            case _:
                raise AssertionError(f"no step is called {op}")

    def built(self, kind: str, values: list[Any]) -> Any:
        if kind == "map":
            return dict(zip(values[::2], values[1::2], strict=True))
        if kind == "string":
            return "".join(values)
        if kind == "slice":
            return slice(*values)
        return {"tuple": tuple, "list": list, "set": set}[kind](values)
