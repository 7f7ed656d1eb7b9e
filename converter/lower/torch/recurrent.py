"""Recurrent layers: stacked and bidirectional LSTM, GRU and RNN.

torch keeps weights as cuDNN does: gates of an LSTM are in the order i, f, c, o, of a GRU r, z, h.
Spec: https://docs.pytorch.org/docs/2.13/nn.html#recurrent-layers
"""

from collections.abc import Callable, Sequence
from functools import partial

from converter.lower.ops.activation import Activation, relu, tanh
from converter.lower.ops.recurrent import (
    CUDNN,
    Kind,
    gru_step,
    lstm_step,
    run_cudnn_layer,
    scan_layer,
    split_gates,
    stack_layers,
)
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.linear import linear
from converter.lower.torch.program_values import Tensors
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


def layers(
    op: Context, x: Value, hidden: Sequence[Value], params: Tensors, kind: Kind, *,
    has_biases: bool, count: int, bidirectional: bool, batch_first: bool,
    lengths: Value | None = None,
) -> list[Value]:  # fmt: skip
    """Return the outputs of stacked layers, and their last states.

    Args:
        op: Builder.
        x: Input of the first layer.
        hidden: Initial states, [layers * directions, batch, units] each.
        params: Weights, for each layer and direction.
        kind: Kind of the layers.
        has_biases: Whether there are biases among them.
        count: Number of layers.
        bidirectional: Whether each layer has both directions.
        batch_first: Whether the first axis is the batch rather than the steps.
        lengths: Lengths of the sequences; all steps by default.

    Raises:
        Unsupported: The number of weights does not fit.
    """
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if kind.op_type == "LSTM" and len(params) == (each + 1) * directions * count:
        each += 1  # a projection
    if len(params) != each * directions * count:
        raise Unsupported(f"{len(params)} weights of {count} recurrent layers")
    if batch_first:
        x = x.transposed([1, 0, *range(2, x.rank)])
    has_batch = x.rank == 3
    if not has_batch:
        x = op.unsqueeze(x, [1])
        hidden = [op.unsqueeze(h, [1]) for h in hidden]
    x = op.named(x)
    sides = [params[i : i + each] for i in range(0, len(params), each)]
    run: Callable[..., tuple[Value, list[Value]]] = partial(
        run_cudnn_layer, op, kind=kind, lengths=lengths
    )
    if each > 2 + 2 * has_biases:
        if lengths is not None:
            raise Unsupported("an LSTM with projections, of packed sequences")
        run = partial(_project, op)
    x, found = stack_layers(op, x, hidden, [
        partial(run, weights=sides[i : i + directions]) for i in range(0, len(sides), directions)
    ])  # fmt: skip
    if not has_batch:
        x = op.squeeze(x, [1])
        found = [op.squeeze(v, [1]) for v in found]
    if batch_first:
        x = x.transposed([1, 0, *range(2, x.rank)])
    return [x, *found]


def _project(
    op: Context, x: Value, states: Sequence[Value], *, weights: Sequence[Tensors]
) -> tuple[Value, list[Value]]:
    """Return the outputs and last states of an LSTM layer with projections (proj_size)."""
    directions = []
    for w_ih, w_hh, *biases, projection in weights:
        b_ih, b_hh = biases or (None, None)

        def step(
            x: Value, before: list[Value], w_hh: Value = w_hh, b_hh: Value | None = b_hh,
            projection: Value = projection,
        ) -> list[Value]:  # fmt: skip
            gates = op.add(x, linear(op, before[0], w_hh, b_hh))
            whole, cell = lstm_step(op, split_gates(op, gates, 4), before[1])
            return [linear(op, whole, projection), cell]

        directions.append((linear(op, x, w_ih, b_ih), step))
    return scan_layer(op, directions, states)


@aten("lstm.input")
def lstm(
    op: Context, input: Value, hx: Tensors, params: Tensors, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> list[Value]:  # fmt: skip
    """LSTM layers."""
    check(dropout, train=train)
    return layers(
        op, input, hx, params, CUDNN["lstm"], has_biases=has_biases, count=num_layers,
        bidirectional=bidirectional, batch_first=batch_first,
    )  # fmt: skip


@aten(
    Variant("gru.input", "GRU layers.", mode="gru"),
    Variant("rnn_tanh.input", "RNN layers, with tanh.", mode="rnn_tanh"),
    Variant("rnn_relu.input", "RNN layers, with relu.", mode="rnn_relu"),
)
def one_state_layers(
    op: Context, input: Value, hx: Value, params: Tensors, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool, *, mode: str,
) -> list[Value]:  # fmt: skip
    """Layers of one state."""
    check(dropout, train=train)
    return layers(
        op, input, [hx], params, CUDNN[mode], has_biases=has_biases, count=num_layers,
        bidirectional=bidirectional, batch_first=batch_first,
    )  # fmt: skip


def check(dropout: float, *, train: bool) -> None:
    """Raise Unsupported for dropout in training."""
    if train and dropout:
        raise Unsupported("dropout in training")


# -- single steps ----------------------------------------------------------------------------------


def _gates(
    op: Context, x: Value, h: Value, w_ih: Value, w_hh: Value, b_ih: Value | None,
    b_hh: Value | None,
) -> tuple[Value, Value]:  # fmt: skip
    return linear(op, x, w_ih, b_ih), linear(op, h, w_hh, b_hh)


@aten("lstm_cell")
def lstm_cell(
    op: Context, input: Value, hx: Tensors, w_ih: Value, w_hh: Value, b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> list[Value]:  # fmt: skip
    """One step of an LSTM."""
    gates = op.add(*_gates(op, input, hx[0], w_ih, w_hh, b_ih, b_hh))
    return list(lstm_step(op, split_gates(op, gates, 4), hx[1]))


@aten("gru_cell")
def gru_cell(
    op: Context, input: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Value:  # fmt: skip
    """One step of a GRU."""
    given, kept = _gates(op, input, hx, w_ih, w_hh, b_ih, b_hh)
    (r, z, n), (hr, hz, hn) = split_gates(op, given, 3), split_gates(op, kept, 3)
    return gru_step(
        op, op.add(z, hz), op.add(r, hr), n, hx, lambda reset: op.mul(reset, hn)
    )  # fmt: skip


@aten(
    Variant("rnn_tanh_cell", "One step of an RNN, with tanh.", function=tanh),
    Variant("rnn_relu_cell", "One step of an RNN, with relu.", function=relu),
)
def rnn_cell(
    op: Context, input: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None,
    b_hh: Value | None = None, *, function: Activation,
) -> Value:  # fmt: skip
    """One step of an RNN."""
    return function(op, op.add(*_gates(op, input, hx, w_ih, w_hh, b_ih, b_hh)))
