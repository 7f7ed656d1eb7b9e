"""Objects of a TorchScript archive that are more than their attributes.

Some modules keep a state, and have their attributes from what their ``__setstate__`` makes of it:
that is walked as any function is. Objects of torch's own classes have no text: packed weights of
quantized layers are read here.
Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/quantized/cpu/conv_serialization.h
"""

from collections.abc import Sequence
from dataclasses import dataclass

from converter.lower.torch import calls
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.prepacked import PACKING
from converter.lower.torch.program_values import ProgramValue
from converter.lower.torch.quantized_tensors import Packed
from converter.lower.torch.script.types import Interpreter
from converter.lower.torch.script.values import Callee, Missing
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.errors import CorruptError
from formats.torch.script_objects import PACKED, Instance


@dataclass(frozen=True, slots=True)
class Cell:
    """The weights of one direction of a quantized recurrent layer.

    Attributes:
        given: Weights that inputs are multiplied by.
        kept: Weights that states are multiplied by.
        fewer: Whether numbers are rounded to half of the integers.
    """

    given: Packed
    kept: Packed
    fewer: bool


def restore(interpreter: Interpreter, owner: Instance) -> None:
    """Give an object the attributes that its ``__setstate__`` makes."""
    state = owner.state
    interpreter.restored.add(owner)
    function = interpreter.method(owner, "__setstate__")
    if function is None or state is None:
        raise CorruptError(f"an object of class {owner.cls} with a state that nothing reads")
    # It has been made before anything was decided.
    around = interpreter.depth, interpreter.undos, interpreter.iterations
    interpreter.depth, interpreter.undos, interpreter.iterations = 0, [], []
    try:
        interpreter.call(Callee(function, owner), [interpreter.stored(state)], {})
    finally:
        interpreter.depth, interpreter.undos, interpreter.iterations = around


def pack(interpreter: Interpreter, value: Instance) -> ProgramValue:
    """Return an object of one of torch's own classes as ops take it."""
    kind = value.cls.removeprefix(PACKED)
    if kind == "quantized.LinearPackedParamsBase":
        return Packed(*_weights(interpreter, value))
    if kind.startswith("quantized.Conv") and kind.endswith("PackedParamsBase"):
        return _convolution(interpreter, value)
    if kind == "rnn.CellParamsBase":
        return _cell(interpreter, value)
    if kind.startswith("xnnpack.") and kind.removeprefix("xnnpack.") in PACKING:
        pack = PACKING[kind.removeprefix("xnnpack.")]
        state = [interpreter.stored(one) for one in value.state or ()]
        return pack(interpreter.op, *(calls.values(one) for one in state))
    return Missing(f"an object of class {value.cls}")


def _weights(interpreter: Interpreter, value: Instance) -> tuple[Value, Value | None]:
    weight, bias = (
        interpreter.stored(value.attributes.get(name)) for name in ("weight", "bias")
    )  # fmt: skip
    if not isinstance(weight, Reference):
        raise Unsupported(f"an object of class {value.cls} without weights")
    return weight.read(), bias.read() if isinstance(bias, Reference) else None


def _convolution(interpreter: Interpreter, value: Instance) -> Packed:
    """Return a packed convolution.

    Its numbers are: how many axes, stride, padding, dilation and output padding of each, groups,
    and whether it is transposed.
    """
    config = value.attributes.get("config")
    numbers = [n for n in config if isinstance(n, int)] if isinstance(config, tuple) else []
    rank = numbers[0] if numbers else 0
    if not 1 <= rank <= 3 or len(numbers) != 4 * rank + 3:
        raise Unsupported(
            f"an object of class {value.cls} that is packed in a way that we do not know"
        )
    steps, around, spaces, more = (tuple(numbers[1 + i * rank :][:rank]) for i in range(4))
    weight, bias = _weights(interpreter, value)
    groups, turned = numbers[-2:]
    return Packed(weight, bias, steps, around, spaces, more, groups, transposed=bool(turned))


def _cell(interpreter: Interpreter, value: Instance) -> ProgramValue:
    state = value.state or ()
    kind = state[0] if state else None
    if kind not in ("quantized_dynamic", "quantized_fp16") or len(state) != 5:
        return Missing(f"recurrent layers that are packed as {kind!r:.40}")
    sides = [interpreter.stored(one) for one in _list_elements(state[4])]
    if len(sides) != 2 or not all(isinstance(one, Packed) for one in sides):
        return Missing("recurrent layers with other weights than two")
    fewer = bool(next(iter(_list_elements(state[3])), 0))
    return Cell(sides[0], sides[1], fewer)


def _list_elements(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()
