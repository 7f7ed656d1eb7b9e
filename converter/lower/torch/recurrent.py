"""Recurrent layers: stacked and bidirectional LSTM, GRU and RNN.

torch keeps the gates of an LSTM in the order i, f, c, o, and those of a GRU as r, z, h; the reset
gate of a GRU is applied after the product.
Spec: https://docs.pytorch.org/docs/2.13/nn.html#recurrent-layers
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from converter.lower import dims
from converter.lower.graph import Attribute
from converter.lower.ops.activation import Activation, relu, tanh
from converter.lower.ops.recurrent import (
    Weights,
    gru_step,
    lstm_step,
    merge_directions,
    reorder_gates,
    run_layer,
    static,
)
from converter.lower.scan import scan
from converter.lower.table import Variant
from converter.lower.torch.context import Context
from converter.lower.torch.linear import linear
from converter.lower.torch.program_values import Tensors
from converter.lower.torch.table import aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of recurrent layer.

    Attributes:
        op_type: ONNX's operator.
        gates: The order of torch's gates, by ONNX's letters.
        attributes: Further ones of the operator.
    """

    op_type: str
    gates: str
    attributes: dict[str, Attribute] = field(default_factory=dict)


LSTM = Kind("LSTM", "ifco")
GRU = Kind("GRU", "rzh", {"linear_before_reset": 1})


def plain(activation: str, directions: int) -> Kind:
    """Return the kind of an RNN with an activation."""
    return Kind("RNN", "h", {"activations": [activation] * directions})


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
        kind: Of the layers.
        has_biases: Whether there are biases among them.
        count: Number of layers.
        bidirectional: Whether each layer has both directions.
        batch_first: Whether the first axis is the batch rather than the steps.
        lengths: Of the sequences; all steps by default.

    Raises:
        Unsupported: The number of weights does not fit.
    """
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if kind is LSTM and len(params) == (each + 1) * directions * count:
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
    lasts: list[list[Value]] = [[] for _ in hidden]
    for layer in range(count):
        mine = params[layer * directions * each :][: directions * each]
        sides = [mine[i * each :][:each] for i in range(directions)]
        states = [
            h if count == 1 else op.cut(h, 0, layer * directions, (layer + 1) * directions)
            for h in hidden
        ]
        if each % 2:
            if lengths is not None:
                raise Unsupported("an LSTM with projections, of packed sequences")
            x, ends = _projected(op, x, states, sides, has_biases=has_biases)
        else:
            x, ends = _layer(op, x, states, sides, kind, lengths, has_biases=has_biases)
        for last, end in zip(lasts, ends, strict=True):
            last.append(end)
    found = [op.concat(last, 0) for last in lasts]
    if not has_batch:
        x = op.squeeze(x, [1])
        found = [op.squeeze(v, [1]) for v in found]
    if batch_first:
        x = x.transposed([1, 0, *range(2, x.rank)])
    return [x, *found]


def _layer(
    op: Context, x: Value, states: Sequence[Value], sides: Sequence[Tensors], kind: Kind,
    lengths: Value | None, *, has_biases: bool,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """Return the outputs of one layer, with directions concatenated, and its last states."""

    def ordered(x: Value) -> Value:
        return reorder_gates(op, x, 0, kind.op_type, kind.gates)

    weights = [
        Weights(
            ordered(side[0]), ordered(side[1]),
            op.concat([ordered(b) for b in side[2:4]], 0) if has_biases else None,
        )
        for side in sides
    ]  # fmt: skip
    ends_at = None if lengths is None else op.cast(lengths, "int32")
    made, last = run_layer(
        op, kind.op_type, x, weights, states, lengths=ends_at, attributes=kind.attributes
    )  # fmt: skip
    return merge_directions(op, made), last


def _projected(
    op: Context, x: Value, states: Sequence[Value], sides: Sequence[Tensors], *, has_biases: bool
) -> tuple[Value, list[Value]]:
    """Return the outputs and last states of an LSTM layer with projections (proj_size)."""
    outputs: list[Value] = []
    ends: list[list[Value]] = [[], []]
    for i, side in enumerate(sides):
        w_ih, w_hh, *rest = side
        b_ih, b_hh = rest[:2] if has_biases else (None, None)
        given = linear(op, x, w_ih, b_ih)

        def one(
            before: list[Value], parts: list[Value], w_hh: Value = w_hh, b_hh: Value | None = b_hh,
            projection: Value = rest[-1],
        ) -> tuple[list[Value], list[Value]]:  # fmt: skip
            gates = op.add(parts[0], linear(op, before[0], w_hh, b_hh))
            whole, cell = lstm_step(op, _parts(op, gates, 4), before[1])
            after = [linear(op, whole, projection), cell]
            after = [op.shaped(a, b.shape) for a, b in zip(after, before, strict=True)]
            return after, after[:1]

        begin = [op.squeeze(op.cut(s, 0, i, i + 1), [0]) for s in states]
        begin = [op.plain(op.shaped(s, (x.shape[1], s.shape[1]))) for s in begin]
        last, made = scan(op, one, begin, [op.plain(given)], axis=0, backwards=i == 1)
        outputs.append(made[0])
        for end, state in zip(ends, last, strict=True):
            end.append(op.unsqueeze(state, [0]))
    return op.concat(outputs, 2), [op.concat(end, 0) for end in ends]


@aten("lstm.input")
def lstm(
    op: Context, input: Value, hx: Tensors, params: Tensors, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> list[Value]:  # fmt: skip
    """LSTM layers."""
    check(dropout, train=train)
    return layers(
        op, input, hx, params, LSTM, has_biases=has_biases, count=num_layers,
        bidirectional=bidirectional, batch_first=batch_first,
    )  # fmt: skip


@aten("gru.input")
def gru(
    op: Context, input: Value, hx: Value, params: Tensors, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> list[Value]:  # fmt: skip
    """GRU layers."""
    check(dropout, train=train)
    return layers(
        op, input, [hx], params, GRU, has_biases=has_biases, count=num_layers,
        bidirectional=bidirectional, batch_first=batch_first,
    )  # fmt: skip


@aten(
    Variant("rnn_tanh.input", "RNN layers, with tanh.", activation="Tanh"),
    Variant("rnn_relu.input", "RNN layers, with relu.", activation="Relu"),
)
def rnn(
    op: Context, input: Value, hx: Value, params: Tensors, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool, *, activation: str,
) -> list[Value]:  # fmt: skip
    """RNN layers."""
    check(dropout, train=train)
    return layers(
        op, input, [hx], params, plain(activation, 1 + bidirectional), has_biases=has_biases,
        count=num_layers, bidirectional=bidirectional, batch_first=batch_first,
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


def _parts(op: Context, x: Value, count: int) -> list[Value]:
    part = dims.divided(x.shape[-1], count)
    return op.split(x, -1, [static(part)] * count)


@aten("lstm_cell")
def lstm_cell(
    op: Context, input: Value, hx: Tensors, w_ih: Value, w_hh: Value, b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> list[Value]:  # fmt: skip
    """One step of an LSTM."""
    gates = op.add(*_gates(op, input, hx[0], w_ih, w_hh, b_ih, b_hh))
    return list(lstm_step(op, _parts(op, gates, 4), hx[1]))


@aten("gru_cell")
def gru_cell(
    op: Context, input: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Value:  # fmt: skip
    """One step of a GRU."""
    given, kept = _gates(op, input, hx, w_ih, w_hh, b_ih, b_hh)
    (r, z, n), (hr, hz, hn) = _parts(op, given, 3), _parts(op, kept, 3)
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
