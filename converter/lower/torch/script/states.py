"""Attributes that a TorchScript module assigns in ``forward``, as inputs and outputs of the graph.

A program is interpreted again until what it assigns is known. A tensor that it assigns becomes an
input of the shape that it has after a run; sizes that change from run to run are dynamic. A number
is an input without axes.

A module often begins with an empty tensor or None, and sets the tensor in its first run. Zeros of
the later shape then stand for that beginning. Where the graph cannot be built with a number as an
input, a number that is the same after each run is taken to be that before the first one. Notes say
what was assumed, and verification compares the first run with the module as it is stored.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from converter.lower.graph import Shape, State
from converter.lower.states import make_state
from converter.lower.torch.compound import Compound
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import Number, ProgramValue, Size
from converter.lower.torch.script.inputs import SCALARS
from converter.lower.torch.script.interpreter import ScriptInterpreter
from converter.lower.torch.script.values import elements, words
from converter.lower.values import Value
from formats.core.weights import Tensor
from formats.errors import UnsupportedError
from formats.torch.script_objects import Instance, Objects, TensorAt

MOST_PASSES = 8  # interpretations until what is assigned is known
Key = tuple[Instance, str]  # an object and the name of an attribute


@dataclass(frozen=True, slots=True)
class TensorState:
    """A tensor that is an input.

    Attributes:
        state: Its names and its first value.
        dtype: Its dtype.
        shape: Its shape before each run.
        is_shared: Whether the program writes it in place, for all names of its storage.
    """

    state: State
    dtype: str
    shape: Shape
    is_shared: bool


@dataclass(frozen=True, slots=True)
class NumberState:
    """A number that is an input."""

    state: State
    dtype: str


@dataclass(frozen=True, slots=True)
class Settled:
    """A number, or None, that is the same after each run."""

    value: ProgramValue


Plan = TensorState | NumberState | Settled


@dataclass(slots=True)
class States:
    """What is known of the attributes that a program assigns.

    Attributes:
        objects: The module.
        weights: Tensors of the bundle.
        names: Origin of a tensor -> its name among the weights.
        plans: Attribute -> what becomes of it.
        may_settle: Whether numbers that are the same after each run are constants.
    """

    objects: Objects
    weights: Mapping[str, Tensor]
    names: Mapping[str, str]
    plans: dict[Key, Plan] = field(default_factory=dict)
    may_settle: bool = False

    def seed(self, interpreter: ScriptInterpreter) -> None:
        """Give the planned attributes their values before a run: inputs of the graph.

        Raises:
            UnsupportedError: A state has a dtype that ONNX does not have.
        """
        op = interpreter.op
        for (owner, name), plan in self.plans.items():
            if isinstance(plan, Settled):
                interpreter.fields[owner, name] = plan.value
                continue
            shape = plan.shape if isinstance(plan, TensorState) else ()
            try:
                value = op.input(plan.state.input, plan.dtype, shape)
            except ValueError as e:
                raise UnsupportedError(f"not supported: state {_path(owner, name)}: {e}") from e
            op.graph.states.append(plan.state)
            if isinstance(plan, NumberState):
                interpreter.fields[owner, name] = Number(value)
                continue
            if plan.state.initial is not None:
                op.nonzero.update(n for n in shape if isinstance(n, str))
            for axis, size in enumerate(shape):
                if isinstance(size, str) and size.isidentifier():
                    op.define(size, _measure(interpreter, value, axis))
            found = interpreter.fields[owner, name] = Reference.to(value)
            tensor = self.weights.get(plan.state.tensor)
            if plan.is_shared and tensor is not None and tensor.nbytes:
                interpreter.loaded[tensor] = found

    def results(self, interpreter: ScriptInterpreter) -> list[tuple[str, ProgramValue]]:
        """Return the outputs that are the states after a run."""
        return [
            (plan.state.output, interpreter.fields[key])
            for key, plan in self.plans.items()
            if not isinstance(plan, Settled)
        ]

    def revise(self, interpreter: ScriptInterpreter) -> bool:
        """Compare the attributes after a run with those before it; return whether plans changed.

        Raises:
            UnsupportedError: An attribute can be no state; it is named.
        """
        plans = {
            key: self._continue(interpreter, key, plan, interpreter.fields[key])
            for key, plan in self.plans.items()
        }
        for key, first in self._changed(interpreter):
            plans[key] = self._begin(interpreter, key, first, interpreter.fields[key])
        is_changed, self.plans = plans != self.plans, plans
        return is_changed

    def settle(self) -> bool:
        """Begin anew with numbers as constants; return False where that has been done, or none is.

        A graph often cannot be built where a number that decides branches is an input.
        """
        if self.may_settle or not any(isinstance(p, NumberState) for p in self.plans.values()):
            return False
        self.may_settle, self.plans = True, {}
        return True

    def unkept(self, interpreter: ScriptInterpreter) -> list[str]:
        """Return the attributes that a run changes and that are no inputs and outputs."""
        changed = (_path(*key) for key, _ in self._changed(interpreter))
        planned = {_path(*key) for key in self.plans}
        return [p for p in dict.fromkeys((*interpreter.unkept, *changed)) if p not in planned]

    def _changed(self, interpreter: ScriptInterpreter) -> list[tuple[Key, ProgramValue]]:
        """Return the attributes without a plan that a run changed, and what is stored of them.

        A tensor of several names that the run writes in place is one of them.
        """
        found = []
        written = {
            interpreter.fields[key].storage
            for key, plan in self.plans.items()
            if isinstance(plan, TensorState) and plan.is_shared
        }
        for key, after in [*interpreter.fields.items()]:
            owner, name = key
            if name not in owner.attributes or key in self.plans:
                continue
            first = interpreter.stored(owner.attributes[name])
            is_set = _path(*key) in interpreter.unkept
            if _is_same(first, after) and not (is_set and _is_compound(after)):
                continue
            if isinstance(after, Reference) and not is_set:
                if after.storage in written:
                    continue
                written.add(after.storage)
            found.append((key, first))
        return found

    def notes(self) -> Iterator[str]:
        """Yield what was assumed about the first run."""
        for (owner, name), plan in self.plans.items():
            path = _path(owner, name)
            if isinstance(plan, Settled):
                yield (
                    f"attribute {path} is {_spell(plan.value)} after each run, and is taken to be"
                    " that before the first one"
                )
            elif isinstance(plan, TensorState) and plan.state.initial is not None:
                yield (
                    f"state {path} is stored in another shape than it has after a run: "
                    f"{plan.state.initial:g} of shape {list(plan.shape)} is used instead"
                )

    def _begin(
        self, interpreter: ScriptInterpreter, key: Key, first: ProgramValue, after: ProgramValue
    ) -> Plan:
        """Return the plan of an attribute that a run changed for the first time."""
        path = self._name(key)
        if _is_compound(after):
            raise UnsupportedError(f"not supported: state {path} of complex or quantized numbers")
        if isinstance(after, Reference):
            value = interpreter.op.named(interpreter.op.plain(after.read()))
            is_shared = _path(*key) not in interpreter.unkept
            initial, shape = self._first_value(path, first, value.dtype, value.shape)
            state = make_state(path, shape, initial)
            return TensorState(state, value.dtype, value.shape, is_shared)
        is_known = after is None or isinstance(after, bool | int | float | Size)
        if is_known and (self.may_settle or after is None):
            return Settled(after)
        if isinstance(first, bool | int | float) and (is_known or isinstance(after, Number)):
            return _number(path, first)
        raise UnsupportedError(f"not supported: state {path}, which is {words(after)}")

    def _continue(
        self, interpreter: ScriptInterpreter, key: Key, plan: Plan, after: ProgramValue
    ) -> Plan:
        """Return the plan of an attribute after one more run."""
        path, (owner, name) = self._name(key), key
        if isinstance(plan, Settled):
            first = interpreter.stored(owner.attributes[name])
            if type(after) is type(plan.value) and after == plan.value:
                return plan
            if isinstance(first, bool | int | float):
                return _number(path, first)
            raise UnsupportedError(f"not supported: state {path}, which is not always a tensor")
        if isinstance(plan, NumberState):
            return plan
        if not isinstance(after, Reference):
            raise UnsupportedError(f"not supported: state {path}, which is not always a tensor")
        value = interpreter.op.named(interpreter.op.plain(after.read()))
        if value.dtype != plan.dtype or value.rank != len(plan.shape):
            raise UnsupportedError(
                f"not supported: state {path}, which is {plan.dtype}{list(plan.shape)} before a"
                f" run and {value.dtype}{list(value.shape)} after it"
            )
        axes = [f"{path}_{axis}".replace(".", "_") for axis in range(value.rank)]
        pairs = zip(axes, plan.shape, value.shape, strict=True)
        shape = tuple(m if m in (n, axis) else axis for axis, m, n in pairs)
        if shape == plan.shape:
            return plan
        first = interpreter.stored(owner.attributes[name])
        initial, begin = self._first_value(path, first, value.dtype, shape)
        return TensorState(make_state(path, begin, initial), value.dtype, shape, plan.is_shared)

    def _first_value(
        self, path: str, first: ProgramValue, dtype: str, shape: Shape
    ) -> tuple[float | None, Shape]:
        """Return the first value of a tensor, as a `State` has it, and its shape.

        Raises:
            UnsupportedError: It has another shape than later ones, and elements that differ.
        """
        tensor = self.weights.get(path) if isinstance(first, Reference) else None
        if tensor is None:
            return 0.0, shape
        own = len(tensor.shape) == len(shape) and all(
            m == n or (isinstance(n, str) and n.startswith(path.replace(".", "_")))
            for m, n in zip(tensor.shape, shape, strict=True)
        )
        if own and tensor.dtype.name == dtype:
            return None, tensor.shape
        values = np.unique(tensor.numpy()) if tensor.nbytes else np.zeros(1)
        if values.size > 1:
            raise UnsupportedError(
                f"not supported: state {path}, which is stored as {tensor.dtype}"
                f"{list(tensor.shape)} and is {dtype}{list(shape)} after a run"
            )
        return float(values[0]), shape

    def _name(self, key: Key) -> str:
        """Return the name of an attribute: that of its tensor among the weights, if it is one."""
        owner, name = key
        stored = owner.attributes[name]
        found = self.names.get(stored.origin) if isinstance(stored, TensorAt) else None
        return found or _path(owner, name)


def _path(owner: Instance, name: str) -> str:
    return f"{owner.path}.{name}".lstrip(".")


def _spell(value: ProgramValue) -> str:
    return f"the size {value}" if isinstance(value, Size) else repr(value)


def _number(path: str, first: float) -> NumberState:
    return NumberState(make_state(path, (), first), SCALARS[type(first).__name__])


def _measure(interpreter: ScriptInterpreter, value: Value, axis: int) -> Callable[[], Value]:
    return lambda: interpreter.op.measured(value, axis)


def _is_compound(value: ProgramValue) -> bool:
    """Return whether a value is a tensor of complex or quantized numbers."""
    return isinstance(value, Reference) and isinstance(value.storage.value, Compound)


def _is_same(before: ProgramValue, after: ProgramValue) -> bool:
    """Return whether an attribute is after a run what it was before."""
    if isinstance(before, Reference) and isinstance(after, Reference):
        if after.storage.is_in_doubt:
            return False
        if _is_compound(after):
            return not after.storage.version
        return before.read().name == after.read().name
    if isinstance(before, list | tuple | dict):
        if type(after) is not type(before) or len(after) != len(before):
            return False
        pairs = zip(elements(before), elements(after), strict=True)
        return all(_is_same(a, b) for a, b in pairs)
    if before is None or isinstance(before, bool | int | float | str):
        return type(after) is type(before) and bool(after == before)
    return not isinstance(after, Reference | Number | bool | int | float)
