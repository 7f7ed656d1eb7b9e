"""Dynamically quantized LSTM and GRU: inputs are quantized at once, states at each step.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/RNN.cpp
"""

from collections.abc import Callable, Sequence
from functools import partial

from converter.lower.ops.recurrent import gru_step, lstm_step, scan_layer, split_gates, stack_layers
from converter.lower.torch.context import Context
from converter.lower.torch.mutable_tensors import Reference
from converter.lower.torch.program_values import ProgramValue
from converter.lower.torch.quantized import dynamic_linear
from converter.lower.torch.script.objects import Cell
from converter.lower.torch.script.ops import special
from converter.lower.torch.script.types import Interpreter
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

# Builder, gates of the input and of the state, states -> new states.
Step = Callable[[Context, Value, Value, Sequence[Value]], list[Value]]


def _lstm(op: Context, given: Value, kept: Value, states: Sequence[Value]) -> list[Value]:
    return list(lstm_step(op, split_gates(op, op.add(kept, given), 4), states[1]))


def _gru(op: Context, given: Value, kept: Value, states: Sequence[Value]) -> list[Value]:
    (r, z, n), (hr, hz, hn) = split_gates(op, given, 3), split_gates(op, kept, 3)
    r, z = op.add(hr, r), op.add(hz, z)
    return [gru_step(op, z, r, n, states[0], lambda reset: op.mul(hn, reset))]


def _run(
    op: Context, x: Value, states: Sequence[Value], *, cells: Sequence[Cell], step: Step
) -> tuple[Value, list[Value]]:
    """Return the outputs of one layer and its last states; inputs are quantized at once."""
    directions = []
    for cell in cells:

        def one(x: Value, before: list[Value], cell: Cell = cell) -> list[Value]:
            return step(op, x, dynamic_linear(op, before[0], cell.kept, fewer=cell.fewer), before)

        directions.append((dynamic_linear(op, x, cell.given, fewer=cell.fewer), one))
    return scan_layer(op, directions, states)


def _layers(
    interpreter: Interpreter,
    input: ProgramValue,
    hidden: Sequence[ProgramValue],
    params: ProgramValue,
    rest: Sequence[ProgramValue],
    step: Step,
) -> list[Reference]:
    """Return the outputs of stacked layers, and their last states.

    Args:
        interpreter: Interpreter of the program.
        input: Input of the first layer.
        hidden: States: [layers * directions, batch, features].
        params: Packed weights of each layer and direction.
        rest: has_biases, num_layers, dropout, train, bidirectional and batch_first.
        step: Step of one cell.
    """
    op = interpreter.op
    if not isinstance(input, Reference) or len(rest) != 6 or not isinstance(params, list):
        raise Unsupported("packed sequences")
    if not all(isinstance(cell, Cell) for cell in params):
        raise Unsupported("weights that are packed in a way that we do not know")
    _, count, _, _, both, first = rest
    directions = 2 if both else 1
    if len(params) != count * directions:
        raise Unsupported(f"{len(params)} weights of {count} layers")
    x = input.read()
    if first:
        x = x.transposed([1, 0, 2])
    x = op.named(x)
    states = [one.read() for one in hidden]
    x, lasts = stack_layers(op, x, states, [
        partial(_run, op, cells=params[i : i + directions], step=step)
        for i in range(0, len(params), directions)
    ])  # fmt: skip
    if first:
        x = x.transposed([1, 0, 2])
    return [Reference.to(v) for v in (x, *lasts)]


@special("quantized_lstm")
def quantized_lstm(
    interpreter: Interpreter,
    input: ProgramValue,
    hx: ProgramValue,
    params: ProgramValue,
    *rest: ProgramValue,
    **named: ProgramValue,
) -> list[Reference]:
    """LSTM layers with quantized weights."""
    del named  # the dtype of the weights
    if not isinstance(hx, list):
        raise Unsupported("packed sequences")
    return _layers(interpreter, input, hx, params, rest, _lstm)


@special("quantized_gru")
def quantized_gru(
    interpreter: Interpreter,
    input: ProgramValue,
    hx: ProgramValue,
    params: ProgramValue,
    *rest: ProgramValue,
    **named: ProgramValue,
) -> list[Reference]:
    """GRU layers with quantized weights."""
    del named
    return _layers(interpreter, input, [hx], params, rest, _gru)
