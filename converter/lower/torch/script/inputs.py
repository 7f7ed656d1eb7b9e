"""What a TorchScript program is given: its arguments are recorded, their shapes and dtypes are not.

What the user says holds. Else the first op that an argument meets may say enough: a convolution
fixes the number of axes and of channels. What is left over is asked for, with the argument's name.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import Number, ProgramValue, Size
from converter.lower.torch.script.source import Function
from converter.lower.torch.script.types import Interpreter
from converter.lower.torch.script.values import UNKNOWN, Fields, Items, Missing, words
from formats.core.bundle import FixedInput, TensorSpec
from formats.errors import UnsupportedError, UsageError

SCALARS = {"int": "int64", "float": "float64", "bool": "bool", "number": "float64"}
FIXED_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (float,), "bool": (bool,), "str": (str,), "number": (int, float),
}  # fmt: skip
SPATIAL = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
EXAMPLE = "float32:batch,3,224,224"
USUAL: tuple[tuple[str, tuple[int | str, ...]], ...] = (
    ("float32", ("batch", 3, 224, 224)), ("float32", ("batch", 16000)),
    ("float32", ("batch", 80, 100)), ("float32", ("batch", 64)), ("int64", ("batch", 16)),
)  # fmt: skip


@dataclass(slots=True)
class Probe:
    """An argument whose shape is not known: the ops that it meets may say it."""

    name: str
    dtype: str | None = None
    met: list[str] = field(default_factory=list)  # ops that said nothing


@dataclass(frozen=True, slots=True)
class ArgumentFact:
    """What an op implies about an argument."""

    spec: TensorSpec
    reason: str


class ArgumentLearned(Exception):  # noqa: N818 - interpretation restarts with what it learned
    """An op has said what an argument is like."""

    def __init__(self, fact: ArgumentFact) -> None:
        super().__init__(fact.spec.name)
        self.fact = fact


class UnknownArgument(Exception):  # noqa: N818 - interpretation ends with a question
    """An argument met an op that does not say what it is like."""

    def __init__(self, name: str, op: str) -> None:
        super().__init__(name)
        self.name = name
        self.op = op


# What leaves the number of axes and the channels as they are; the dtype too, but for the casts.
SAME = frozenset((
    "contiguous", "to", "float", "detach", "clone", "alias", "div", "mul", "sub", "add", "relu",
    "relu_", "div_", "mul_", "sub_", "add_", "dropout", "neg", "clamp", "abs", "tanh", "sigmoid",
    "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "replication_pad2d", "batch_norm",
    "replication_pad1d", "log", "exp", "sqrt", "pow", "type_as", "max_pool2d", "avg_pool2d",
    "avg_pool1d", "max_pool1d", "instance_norm",
))  # fmt: skip
CONVOLUTIONS = {
    "conv1d": 1, "conv2d": 2, "conv3d": 3, "_convolution": 0, "convolution": 0,
    "_convolution_mode": 0,
}  # fmt: skip
TRANSPOSED = {"conv_transpose1d": 1, "conv_transpose2d": 2, "conv_transpose3d": 3}
RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))


def probe(
    name: str, args: Sequence[ProgramValue], kwargs: Mapping[str, ProgramValue]
) -> ProgramValue:
    """Return what an op yields of an argument of which nothing is known, or UNKNOWN.

    Raises:
        ArgumentLearned: It says what the argument is like.
    """
    probe = next(a for a in args if isinstance(a, Probe))
    if args[0] is probe and name in CONVOLUTIONS | TRANSPOSED.keys():
        weight = args[1]
        if isinstance(weight, Reference):
            raise ArgumentLearned(_of_convolution(probe, name, weight.read().shape, args))
    if args[0] is probe and name in RECURRENT:
        raise ArgumentLearned(_of_recurrent(probe, [*args, *kwargs.values()]))
    weights = _weights(name, probe, args)
    if weights is not None:
        raise ArgumentLearned(weights)
    if args[0] is probe and name in SAME:
        rest = [a for a in args[1:] if isinstance(a, Reference) and a.read().rank > 1]
        if not rest and not any(isinstance(a, Probe) for a in args[1:]):
            casts = name in ("to", "float", "type_as")
            return Probe(probe.name, probe.dtype or ("?" if casts else None), probe.met)
    probe.met.append(name)
    return UNKNOWN


def _weights(name: str, probe: Probe, args: Sequence[ProgramValue]) -> ArgumentFact | None:
    """Return what a product or an embedding says; of how many axes there are, the usual number."""
    shapes = [a.read().shape if isinstance(a, Reference) else () for a in args]
    dtype = "float32" if probe.dtype in (None, "?") else str(probe.dtype)
    for op, at, other, axis in PRODUCTS:
        if name == op and len(args) > other and args[at] is probe and len(shapes[other]) == 2:
            size = shapes[other][axis]
            if isinstance(size, int):
                reason = f"{name} of weights {list(shapes[other])}, for two axes,"
                return ArgumentFact(TensorSpec(probe.name, dtype, ("batch", size)), reason)
    if name == "embedding" and len(args) > 1 and args[1] is probe:
        reason = "an embedding, for two axes,"
        return ArgumentFact(TensorSpec(probe.name, "int64", ("batch", "sequence")), reason)
    return None


# Op, which argument is the input and which the weights, the weights' axis of as many elements.
PRODUCTS = (("linear", 0, 1, 1), ("addmm", 1, 2, 0), ("mm", 0, 1, 0), ("matmul", 0, 1, 0))


def _of_convolution(
    probe: Probe, name: str, weight: Sequence[object], args: Sequence[ProgramValue]
) -> ArgumentFact:
    transposed = name in TRANSPOSED or (
        name in ("_convolution", "convolution") and len(args) > 6 and args[6] is True
    )
    if name in ("_convolution", "convolution"):
        groups = args[8] if len(args) > 8 else 1
    elif name in TRANSPOSED:
        groups = 1
    else:
        groups = args[6] if len(args) > 6 else 1
    first, second = weight[0], weight[1]
    channels = first if transposed else (
        second * groups if isinstance(second, int) and isinstance(groups, int) else None
    )  # fmt: skip
    axes = SPATIAL.get(len(weight) - 2)
    if axes is None or not isinstance(channels, int):
        raise UnknownArgument(probe.name, name)
    dtype = "float32" if probe.dtype in (None, "?") else str(probe.dtype)
    spec = TensorSpec(probe.name, dtype, ("batch", channels, *axes))
    return ArgumentFact(spec, f"{name} of weights {list(weight)}")


def _of_recurrent(probe: Probe, args: Sequence[ProgramValue]) -> ArgumentFact:
    """``lstm(input, hx, params, biases, layers, dropout, train, bidirectional, batch_first)``."""
    params = args[2]
    if len(args) != 9 or not params:
        raise UnknownArgument(probe.name, "lstm")
    if not isinstance(params, list | tuple) or not isinstance(params[0], Reference):
        raise UnknownArgument(probe.name, "lstm")
    size = params[0].read().shape[1]
    steps = ("batch", "sequence") if args[8] is True else ("sequence", "batch")
    if not isinstance(size, int):
        raise UnknownArgument(probe.name, "lstm")
    return ArgumentFact(TensorSpec(probe.name, "float32", (*steps, size)), "a recurrent layer")


@dataclass(slots=True)
class Arguments:
    """Makes the values that ``forward`` is given.

    Attributes:
        wanted: Inputs by name, as the user declares them; the name "" is the first input.
        learned: Inputs by name, as inferred from the ops.
        fixed: Names of sizes that the program itself fixes.
    """

    wanted: Mapping[str, TensorSpec]
    learned: dict[str, ArgumentFact] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # of arguments, as they are asked for
    tensors: list[str] = field(default_factory=list)  # those that are tensors
    sizes: set[str] = field(default_factory=set)  # names of sizes of inputs

    def made(self, interpreter: Interpreter, function: Function) -> list[ProgramValue]:
        """Return the arguments, and make the graph's inputs.

        Raises:
            UsageError: The user names what is no argument.
            UnsupportedError: An argument is of a kind that a graph cannot be given.
        """
        self.names, self.tensors = [], []
        made = [
            self._made(interpreter, p.name, p.kind, has_default=p.default is not None)
            for p in function.parameters[1:]
        ]
        unknown = sorted(set(self.wanted) - {*self.names, ""})
        if unknown:
            known = ", ".join(self.names) or "none"
            raise UsageError(
                f"inputs={unknown[0]!r}: the program has no such argument", expected=known
            )
        # What is left to its default, after the last that is not.
        while made and isinstance(made[-1], Missing):
            made.pop()
        for i, value in enumerate(made):
            if isinstance(value, Missing):
                default = function.parameters[i + 1].default
                assert default is not None
                made[i] = interpreter.value(default)
        return made

    def _made(
        self, interpreter: Interpreter, name: str, kind: str, *, has_default: bool = False
    ) -> ProgramValue:
        kind = kind.strip() or "Tensor"
        fixed = self.wanted.get(name)
        if isinstance(fixed, FixedInput):
            self.names.append(name)
            interpreter.notes.setdefault(
                f"argument {name} is fixed to {fixed.value!r}; it is no input of the graph"
            )
            return _check_fixed(fixed, kind)
        if kind.startswith("Optional["):
            if name in self.wanted or any(n.startswith(f"{name}_") for n in self.wanted):
                return self._made(interpreter, name, kind[9:-1], has_default=has_default)
            self.names.append(name)
            if not has_default:
                interpreter.notes.setdefault(
                    f"argument {name} is None; inputs=['{name}:…'] gives it"
                )
                return None
            return Missing(name)
        if kind == "Tensor":
            self.names.append(name)
            if has_default and name not in self.wanted:
                return Missing(name)
            return self._tensor(interpreter, name)
        if kind in SCALARS:
            return self._number(interpreter, name, kind, has_default=has_default)
        if kind.startswith("Tuple["):
            inner = _split(kind[6:-1])
            return tuple(self._made(interpreter, f"{name}_{i}", k) for i, k in enumerate(inner))
        if kind == "List[Tensor]":
            count = 0
            while f"{name}_{count}" in self.wanted:
                count += 1
            if count:
                made = [self._made(interpreter, f"{name}_{i}", "Tensor") for i in range(count)]
                return Items(made)
            if not has_default:
                raise UsageError(
                    f"argument {name} is a list of tensors, of which the program says no number",
                    hint=f"Name each: inputs=['{name}_0:{EXAMPLE}', '{name}_1:{EXAMPLE}']",
                )
        if has_default:
            return Missing(name)
        raise UnsupportedError(f"not supported: argument {name} of type {kind}")

    def _number(
        self, interpreter: Interpreter, name: str, kind: str, *, has_default: bool
    ) -> ProgramValue:
        self.names.append(name)
        if has_default and name not in self.wanted:
            interpreter.notes.setdefault(
                f"argument {name} has its default; it is no input of the graph"
            )
            return Missing(name)
        value = interpreter.op.input(name, SCALARS[kind], ())
        return Number(value)

    def _tensor(self, interpreter: Interpreter, name: str) -> ProgramValue:
        self.tensors.append(name)
        spec = self.wanted.get(name, self.wanted.get("") if name == self.names[0] else None)
        if spec is None and name in self.learned:
            spec = self.learned[name].spec
        if spec is None or spec.shape is None:
            return Probe(name)
        shape = tuple(self.fixed.get(n, n) if isinstance(n, str) else n for n in spec.shape)
        try:
            value = interpreter.op.input(name, spec.dtype, shape)
        except ValueError as e:
            raise UsageError(f"inputs={name!r}: {e}") from e
        for axis, n in enumerate(shape):
            if isinstance(n, str):
                self.sizes.add(n)
                interpreter.op.define(n, partial(interpreter.op.measured, value, axis))
        return Reference.to(value)

    def unanswered(self, given: Sequence[ProgramValue]) -> None:
        """Look for arguments that no op said anything of.

        Raises:
            UnknownArgument: There is one.
        """
        for value in given:
            for probe in value if isinstance(value, tuple | list) else (value,):
                if isinstance(probe, Probe):
                    raise UnknownArgument(probe.name, probe.met[0] if probe.met else "nothing")

    def candidates(self) -> Iterator[tuple[list[str], "Arguments"]]:
        """Yield inputs as a user may declare those that are not known, and the arguments then."""
        unknown = [n for n in self.tensors if n not in self.wanted and n not in self.learned]
        for dtype, shape in USUAL:
            specs = [TensorSpec(name, dtype, shape) for name in unknown]
            wanted = {**self.wanted, **{spec.name: spec for spec in specs}}
            yield [*map(spell_input, specs)], Arguments(wanted, dict(self.learned))

    @staticmethod
    def question(name: str, op: str, inputs: Sequence[str]) -> UsageError:
        """Return the error that asks for a shape; the inputs are some that the program takes."""
        hint = "Say its dtype and sizes: inputs=['NAME:DTYPE:SIZE,SIZE,…']"
        if inputs:
            hint = f"Say it, with words for sizes that vary: inputs={inputs}"
        return UsageError(
            f"the program does not say what shape {name} has ({op} reads it, and takes several)",
            hint=hint,
        )


def _check_fixed(fixed: FixedInput, kind: str) -> ProgramValue:
    """Return the value of a fixed argument.

    Raises:
        UsageError: It is not of the type that the program declares.
    """
    value = fixed.value
    inner = kind[9:-1] if kind.startswith("Optional[") else kind
    if value is None and inner != kind:
        return None
    if inner == "float" and type(value) is int:
        return float(value)
    if type(value) not in FIXED_TYPES.get(inner, ()):
        said = (
            "is a tensor: give its dtype and shape" if inner == "Tensor" else f"is of type {kind}"
        )
        raise UsageError(
            f"inputs={fixed.name!r}: the argument {said}, and not {value!r}",
            hint=f"As in inputs=['{fixed.name}:{EXAMPLE}']" if inner == "Tensor" else None,
        )
    return value


def _split(text: str) -> list[str]:
    """Split a list of types at the commas that are outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in (*parts, text[start:]) if p.strip()]


def spell_input(spec: TensorSpec) -> str:
    """Return an input as a user declares it."""
    return f"{spec.name}:{spec.dtype}:{','.join(map(str, spec.shape or ()))}"


NAME = re.compile(r"[^\w.]")


def flatten_outputs(value: ProgramValue, name: str = "output") -> list[tuple[str, ProgramValue]]:
    """Return what a program returns as named outputs, in order.

    Raises:
        UnsupportedError: It is no tensor, number, list, tuple or dict of those.
    """
    if isinstance(value, Fields):
        pairs = [
            (n if name == "output" else f"{name}_{n}", t)
            for n, t in zip(value.names, value, strict=True)
        ]
    elif isinstance(value, list | tuple):
        pairs = [(f"{name}_{i}", t) for i, t in enumerate(value)]
    elif isinstance(value, dict):
        pairs = [
            (NAME.sub("_", str(k)) if name == "output" else f"{name}_{NAME.sub('_', str(k))}", t)
            for k, t in value.items()
        ]
    elif value is None:
        return []
    elif isinstance(value, Reference | Number | Size | bool | int | float):
        return [(name, value)]
    else:
        raise UnsupportedError(f"not supported: an output that is {words(value)}")
    if isinstance(value, Items) and value.grown is not None:
        raise UnsupportedError("not supported: an output that is a list of an unknown length")
    return [found for n, t in pairs for found in flatten_outputs(t, n)]
