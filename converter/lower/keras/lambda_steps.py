"""The steps of bytecode, executed symbolically in one call of a Lambda's function.

Steps: `formats.python_bytecode.steps`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from converter.lower.keras import lambda_values as v
from converter.lower.keras.lambda_protocols import Walk
from converter.lower.keras.lambda_values import Cell, Closure, Named
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.plurals import count
from formats.python_bytecode import Code, Step

CONVERSIONS: dict[str, Callable[[Any], Any]] = {"r": repr, "a": ascii, "s": str, "": lambda x: x}
KEPT_ON_TENSORS = ("_keras_shape", "_uses_learning_phase", "_keras_history")


def call_function(walk: Walk, function: Closure, parameters: dict[str, Any]) -> Any:
    """Return what a call of a function of the artifact's gives.

    Args:
        walk: The walk that the call is part of.
        function: It.
        parameters: Name → value.

    Raises:
        Unsupported: It does what we do not.
    """
    return _Frame(walk, function, parameters).run()


class _Frame:
    """One call of a function of the artifact's."""

    def __init__(self, machine: Walk, function: Closure, found: dict[str, Any]) -> None:
        self.machine = machine
        self.code = function.code
        self.locals = found
        self.cells: dict[str, Cell] = dict(zip(function.code.free, function.cells, strict=False))
        self.stack: list[Any] = []
        self.yielded: list[Any] = []
        self.place = 0

    def run(self) -> Any:
        """Walk the steps up to a return; those of a generator at once, for what it yields."""
        steps = self.code.steps
        while self.place < len(steps):
            step = steps[self.place]
            self.place += 1
            self.machine.step()
            if step.op == "return":
                return iter(self.yielded) if self.code.yields else self.pop()
            do = STEPS.get(step.op)
            if do is None:
                raise Unsupported(f"bytecode that does {step.op}")
            do(self, step)
        raise Unsupported("bytecode without a return")

    # -- the stack -------------------------------------------------------------------------------

    def pop(self) -> Any:
        """Take the top."""
        if not self.stack:
            raise Unsupported("bytecode that takes what is not there")
        return self.stack.pop()

    def take(self, n: int) -> list[Any]:
        """Take n from the top, the lowest first."""
        if n < 0 or n > len(self.stack):
            raise Unsupported("bytecode that takes what is not there")
        found = self.stack[len(self.stack) - n :]
        del self.stack[len(self.stack) - n :]
        return found

    def peek(self, n: int) -> Any:
        """Return the n-th from the top, 1 for the top."""
        if n < 1 or n > len(self.stack):
            raise Unsupported("bytecode that takes what is not there")
        return self.stack[-n]

    def jump(self, step: Step) -> None:
        """Go on elsewhere."""
        if step.target is None or not 0 <= step.target < len(self.code.steps):
            raise Unsupported("bytecode that jumps out of itself")
        self.place = step.target

    # -- variables -------------------------------------------------------------------------------

    def constant(self, step: Step) -> None:
        self.stack.append(step.argument)

    def local(self, step: Step) -> None:
        if step.argument in self.cells:
            return self.free(step)
        if step.argument not in self.locals:
            raise Unsupported(f"variable {step.argument} before it is set")
        return self.stack.append(self.locals[step.argument])

    def free(self, step: Step) -> None:
        content = self.cell_of(step.argument).content
        if not content:
            raise Unsupported(f"variable {step.argument} before it is set")
        self.stack.append(content[0])

    def cell_of(self, name: str) -> Cell:
        """Return the cell of a variable: of its parameter, where it has one."""
        if name not in self.cells:
            known = [self.locals[name]] if name in self.locals else []
            self.cells[name] = Cell(known)
        return self.cells[name]

    def cell(self, step: Step) -> None:
        self.stack.append(self.cell_of(step.argument))

    def global_(self, step: Step) -> None:
        self.stack.append(self.machine.meaning.lookup(step.argument))

    def store(self, step: Step) -> None:
        if step.argument in self.cells:
            return self.store_free(step)
        self.locals[step.argument] = self.pop()
        return None

    def store_free(self, step: Step) -> None:
        self.cell_of(step.argument).content[:] = [self.pop()]

    def delete(self, step: Step) -> None:
        self.locals.pop(step.argument, None)
        if step.argument in self.cells:
            self.cells[step.argument].content.clear()

    # -- values ----------------------------------------------------------------------------------

    def attribute(self, step: Step) -> None:
        self.stack.append(self.machine.meaning.attribute(self.pop(), step.argument))

    def call(self, step: Step) -> None:
        count, names = step.argument
        values = self.take(len(names))
        given = self.take(count)
        named = dict(zip(names, values, strict=True))
        self.stack.append(self.machine.call(self.pop(), given, named))

    def call_expanded(self, step: Step) -> None:
        named = self.pop() if step.argument else {}
        given = v.list_elements(self.pop())
        if not isinstance(named, Mapping) or not all(isinstance(k, str) for k in named):
            raise Unsupported("keywords that are no mapping of names")
        self.stack.append(self.machine.call(self.pop(), given, named))

    def unary(self, step: Step) -> None:
        value = self.pop()
        if step.argument == "not":
            found: Any = not v.truth(value)
        elif isinstance(value, Value):
            found = self.machine.meaning.unary(step.argument, value)
        else:
            found = v.unary(step.argument, value)
        self.stack.append(found)

    def binary(self, step: Step) -> None:
        a, b = self.take(2)
        self.stack.append(self.combined(step.argument, a, b))

    def in_place(self, step: Step) -> None:
        a, b = self.take(2)
        if step.argument == "+" and isinstance(a, list):
            a.extend(v.list_elements(b))
            self.machine.spend(a)
            self.stack.append(a)
        else:
            self.stack.append(self.combined(step.argument, a, b))

    def combined(self, sign: str, a: Any, b: Any) -> Any:
        """Return ``a sign b``."""
        if sign == "[]":
            return self.item(a, b)
        for part in (a, b):
            self.machine.spend(part)
        if isinstance(a, Value) or isinstance(b, Value):
            return self.machine.meaning.binary(sign, a, b)
        if sign == "div":
            sign = "//" if isinstance(a, int) and isinstance(b, int) else "/"
        return v.binary(sign, a, b)

    def item(self, of: Any, key: Any) -> Any:
        """Return ``of[key]``."""
        if isinstance(of, Value):
            return self.machine.meaning.item(of, key)
        if not isinstance(of, Mapping | list | tuple | str | bytes | range | np.ndarray):
            raise Unsupported(f"[] of {v.describe(of)}")
        try:
            found = of[key]
        except v.FAULTS as e:
            raise v.fault(f"{v.describe(of)}[{v.describe(key)}]", e) from e
        return v.Sizes(found) if isinstance(of, v.Sizes) and isinstance(found, tuple) else (
            v.python(found)
        )  # fmt: skip

    def store_item(self, step: Step) -> None:
        del step
        value, of, key = self.take(3)
        if isinstance(of, list) and isinstance(key, int) and -len(of) <= key < len(of):
            of[key] = value
        elif isinstance(of, dict):
            of[_hashable(key)] = value
        else:
            raise Unsupported(f"{v.describe(of)}[{v.describe(key)}] = ...")

    def store_attribute(self, step: Step) -> None:
        _, of = self.take(2)
        # Keras 1 and 2 keep notes on tensors, which say nothing here.
        if not isinstance(of, Value) or step.argument not in KEPT_ON_TENSORS:
            raise Unsupported(f"{v.describe(of)}.{step.argument} = ...")

    def compare(self, step: Step) -> None:
        a, b = self.take(2)
        is_tensor = isinstance(a, Value) or isinstance(b, Value)
        if is_tensor and step.argument not in ("is", "is not", "in", "not in"):
            self.stack.append(self.machine.meaning.compare(step.argument, a, b))
        else:
            self.stack.append(v.compare(step.argument, a, b))

    # -- building --------------------------------------------------------------------------------

    def build(self, step: Step) -> None:
        kind, n = step.argument
        values = self.take(2 * n if kind == "map" else n)
        self.stack.append(_built(kind, values))

    def build_map(self, step: Step) -> None:
        names = step.argument
        self.stack.append(dict(zip(names, self.take(len(names)), strict=True)))

    def join(self, step: Step) -> None:
        kind, n = step.argument
        values = self.take(n)
        if kind == "map":
            found: dict[Any, Any] = {}
            for part in values:
                if not isinstance(part, Mapping):
                    raise Unsupported(f"** of {v.describe(part)}")
                found.update(part)
            self.stack.append(found)
            return
        parts = [part for value in values for part in v.list_elements(value)]
        self.machine.spend(parts)
        self.stack.append(_built(kind, parts))

    def extend(self, step: Step) -> None:
        kind, n = step.argument
        more = self.pop()
        into = self.peek(n)
        if kind == "map" and isinstance(into, dict) and isinstance(more, Mapping):
            into.update(more)
        elif kind == "list" and isinstance(into, list):
            into.extend(v.list_elements(more))
        elif kind == "set" and isinstance(into, set):
            into.update(_hashable(part) for part in v.list_elements(more))
        else:
            raise Unsupported(f"adding to {v.describe(into)}")
        self.machine.spend(list(into))

    def append(self, step: Step) -> None:
        kind, n = step.argument
        values = self.take(2 if kind == "map" else 1)
        into = self.peek(n)
        if kind == "map" and isinstance(into, dict):
            into[_hashable(values[0])] = values[1]
        elif kind == "list" and isinstance(into, list):
            into.append(values[0])
        elif kind == "set" and isinstance(into, set):
            into.add(_hashable(values[0]))
        else:
            raise Unsupported(f"adding to {v.describe(into)}")

    def format(self, step: Step) -> None:
        conversion, has_specification = step.argument
        specification = self.pop() if has_specification else ""
        value = self.pop()
        if not isinstance(value, v.PLAIN) or not isinstance(specification, str):
            raise Unsupported(f"text made of {v.describe(value)}")
        if len(specification) > 8 or any(len(n) > 2 for n in specification.split(".")):
            raise Unsupported(f"text formatted as {specification!r:.20}")
        try:
            text = CONVERSIONS[conversion](value)
            self.stack.append(format(text, specification))
        except (*v.FAULTS,) as e:
            raise v.fault("formatted text", e) from e

    def unpack(self, step: Step) -> None:
        parts = self.parts(step.argument)
        if len(parts) != step.argument:
            raise Unsupported(f"{count('value', len(parts))} for {step.argument} names")
        self.stack.extend(reversed(parts))

    def unpack_rest(self, step: Step) -> None:
        before, after = step.argument
        parts = self.parts(None)
        if len(parts) < before + after:
            raise Unsupported(f"{count('value', len(parts))} for {before + after} names and more")
        end = len(parts) - after
        self.stack.extend(reversed([*parts[:before], parts[before:end], *parts[end:]]))

    def parts(self, wanted: int | None) -> list[Any]:
        """Take what is to be cut in parts; a tensor is cut along its first axis."""
        value = self.pop()
        if not isinstance(value, Value):
            return v.list_elements(value)
        known = value.shape[0] if value.shape else None
        if not isinstance(known, int) or (wanted is not None and known != wanted):
            raise Unsupported("a tensor cut in parts along an axis of unknown size")
        if known > 256:
            raise Unsupported(f"a tensor cut in {known} parts")
        return [self.machine.meaning.item(value, i) for i in range(known)]

    # -- order -----------------------------------------------------------------------------------

    def drop(self, step: Step) -> None:
        del step
        self.pop()

    def copy(self, step: Step) -> None:
        self.stack.append(self.peek(step.argument))

    def swap(self, step: Step) -> None:
        n = step.argument
        other, top = self.peek(n), self.peek(1)
        self.stack[-n], self.stack[-1] = top, other

    def rotate(self, step: Step) -> None:
        n = step.argument
        self.peek(n)
        self.stack.insert(len(self.stack) - n, self.stack.pop())

    # -- flow ------------------------------------------------------------------------------------

    def iterator(self, step: Step) -> None:
        del step
        value = self.peek(1)
        if isinstance(value, Value):
            known = value.shape[0] if value.shape else None
            if not isinstance(known, int) or known > 256:
                raise Unsupported("a loop over a tensor's axis of unknown size")
            self.stack.append(iter(self.parts(known)))
            return
        self.stack[-1] = value if isinstance(value, Iterator) else iter(v.list_elements(value))

    def next(self, step: Step) -> None:
        found = self.peek(1)
        if not isinstance(found, Iterator):
            raise Unsupported(f"a loop over {v.describe(found)}")
        for value in found:
            self.stack.append(v.python(value))
            return
        self.pop()
        self.jump(step)

    def jump_if(self, step: Step) -> None:
        wanted, keep = step.argument
        if v.truth(self.peek(1)) == wanted:
            if not keep:
                self.pop()
            self.jump(step)
        else:
            self.pop()

    def jump_if_none(self, step: Step) -> None:
        if (self.pop() is None) == step.argument:
            self.jump(step)

    def yield_(self, step: Step) -> None:
        del step
        self.yielded.append(self.pop())
        self.stack.append(None)

    def enter(self, step: Step) -> None:
        del step
        scope = self.pop()
        if not isinstance(scope, v.Scope):
            raise Unsupported(f"with {v.describe(scope)}")
        self.stack += [v.Method(scope, "__exit__"), scope]

    def fail(self, step: Step) -> None:
        del step
        raise Unsupported("an error that its code raises")

    # -- functions and modules -------------------------------------------------------------------

    def function(self, step: Step) -> None:
        code = self.pop()
        parts = dict(zip(step.argument, self.take(len(step.argument)), strict=True))
        if not isinstance(code, Code):
            raise Unsupported("a function without code")
        cells = tuple(parts.get("closure") or ())
        if not all(isinstance(cell, Cell) for cell in cells) or len(cells) != len(code.free):
            raise Unsupported(f"function {code.name} without what it sees around it")
        self.stack.append(
            Closure(
                code,
                tuple(parts.get("defaults") or ()),
                dict(parts.get("keyword defaults") or {}),
                cells,
            )
        )

    def import_(self, step: Step) -> None:
        wanted, _ = self.pop(), self.pop()
        name = str(step.argument)
        self.stack.append(Named(name if wanted else name.partition(".")[0]))

    def import_from(self, step: Step) -> None:
        self.stack.append(self.machine.meaning.attribute(self.peek(1), step.argument))


def _built(kind: str, values: list[Any]) -> Any:
    if kind == "tuple":
        return tuple(values)
    if kind == "list":
        return values
    if kind == "set":
        return {_hashable(part) for part in values}
    if kind == "map":
        return {_hashable(k): part for k, part in zip(values[::2], values[1::2], strict=True)}
    if kind == "slice":
        return slice(*values)
    if kind == "string" and all(isinstance(part, str) for part in values):
        v.count(values)
        if sum(map(len, values)) > v.MOST_ELEMENTS:
            raise Unsupported("a very long text")
        return "".join(values)
    raise Unsupported(f"building a {kind}")


def _hashable(value: Any) -> Any:
    if not isinstance(value, (*v.PLAIN, Named)):
        raise Unsupported(f"{v.describe(value)} in a set, or as a key")
    return value


STEPS: dict[str, Callable[[_Frame, Step], None]] = {
    "constant": _Frame.constant,
    "local": _Frame.local,
    "free": _Frame.free,
    "global": _Frame.global_,
    "store": _Frame.store,
    "store free": _Frame.store_free,
    "delete": _Frame.delete,
    "cell": _Frame.cell,
    "attribute": _Frame.attribute,
    "call": _Frame.call,
    "call expanded": _Frame.call_expanded,
    "unary": _Frame.unary,
    "binary": _Frame.binary,
    "in place": _Frame.in_place,
    "store item": _Frame.store_item,
    "store attribute": _Frame.store_attribute,
    "compare": _Frame.compare,
    "build": _Frame.build,
    "build map": _Frame.build_map,
    "join": _Frame.join,
    "extend": _Frame.extend,
    "append": _Frame.append,
    "format": _Frame.format,
    "unpack": _Frame.unpack,
    "unpack rest": _Frame.unpack_rest,
    "pop": _Frame.drop,
    "copy": _Frame.copy,
    "swap": _Frame.swap,
    "rotate": _Frame.rotate,
    "iterator": _Frame.iterator,
    "next": _Frame.next,
    "jump": _Frame.jump,
    "jump if": _Frame.jump_if,
    "jump if none": _Frame.jump_if_none,
    "yield": _Frame.yield_,
    "enter": _Frame.enter,
    "raise": _Frame.fail,
    "function": _Frame.function,
    "import": _Frame.import_,
    "import from": _Frame.import_from,
}
