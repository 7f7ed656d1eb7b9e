"""Recurrent layers: single steps of LSTM and GRU, and ONNX's operators over all steps.

Gates have ONNX's letters: i, o, f, c (input, output, forget, cell) of an LSTM, and z, r, h (update,
reset, hidden) of a GRU. The order of a source's gates is a string of these letters.
Spec: https://onnx.ai/onnx/operators/onnx__LSTM.html, onnx__GRU.html, onnx__RNN.html
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from converter.lower.builder import Builder
from converter.lower.graph import Attribute
from converter.lower.ops.activation import sigmoid, tanh
from converter.lower.scan import scan
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value

Function = Callable[[Builder, Value], Value]

GATES = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}  # in ONNX's order
STATES = {"LSTM": 2, "GRU": 1, "RNN": 1}
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one direction, with gates in ONNX's order.

    Attributes:
        kernel: [gates * units, features].
        recurrent: [gates * units, units].
        bias: [2 * gates * units]: the input bias, then the recurrent bias.
        peepholes: [3 * units] of an LSTM, for i, o and f.
    """

    kernel: Value
    recurrent: Value
    bias: Value | None = None
    peepholes: Value | None = None

    @property
    def units(self) -> int:
        """Size of each state."""
        return static(self.recurrent.shape[1])


def static(n: object) -> int:
    """Return a dimension of weights, which must be static.

    Raises:
        Unsupported: It is not static.
    """
    if not isinstance(n, int):
        raise Unsupported("a recurrent layer whose number of units is not known")
    return n


def reorder_gates(op: Builder, x: Value, axis: int, op_type: str, order: str) -> Value:
    """Reorder the gates of weights along an axis from a source's order to ONNX's."""
    wanted = GATES[op_type]
    if order == wanted:
        return x
    size = static(x.shape[axis]) // len(order)
    starts = [order.index(gate) * size for gate in wanted]
    # Slices and not Split: constant folding supports only nodes with one output.
    return op.concat([op.slice(x, [axis], [n], [n + size]) for n in starts], axis)


def split_gates(op: Builder, x: Value, count: int) -> list[Value]:
    """Split the gates along the last axis."""
    return op.split(x, -1, [static(x.shape[-1]) // count] * count)


def run_layer(
    op: Builder, op_type: str, x: Value, weights: Sequence[Weights], states: Sequence[Value], *,
    lengths: Value | None = None, is_reversed: bool = False,
    attributes: Mapping[str, Attribute] | None = None,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """Run one of ONNX's recurrent operators; float16 and bfloat16 are computed in float32.

    Args:
        op: Builder.
        op_type: LSTM, GRU or RNN.
        x: [steps, batch, features].
        weights: Weights of one direction, or of both, the forward one first.
        states: Initial states, each [directions, batch, units]; empty for zeros.
        lengths: Lengths of the sequences, [batch] of int32; all steps by default.
        is_reversed: Whether the only direction is backward.
        attributes: Further attributes of the ONNX operator.

    Returns:
        Outputs [steps, directions, batch, units], and the final states.
    """
    dtype = x.dtype
    single = "float32" if dtype in HALVES else dtype
    directions, units = len(weights), weights[0].units

    def stacked(values: Sequence[Value | None]) -> Value | None:
        present = [op.unsqueeze(op.cast(v, single), [0]) for v in values if v is not None]
        return op.plain(op.concat(present, 0)) if present else None

    inputs = [
        op.plain(op.cast(x, single)), stacked([w.kernel for w in weights]),
        stacked([w.recurrent for w in weights]), stacked([w.bias for w in weights]), lengths,
        *(op.plain(op.cast(state, single)) for state in states),
    ]  # fmt: skip
    if peepholes := stacked([w.peepholes for w in weights]):
        inputs += [None] * (7 - len(inputs)) + [peepholes]
    steps, batch, _ = x.shape
    state = (single, (directions, batch, units))
    direction = "bidirectional" if directions == 2 else "reverse" if is_reversed else "forward"
    made = op.node(
        op_type, inputs,
        [(single, (steps, directions, batch, units)), *[state] * STATES[op_type]],
        attributes={"hidden_size": units, "direction": direction, **(attributes or {})},
    )  # fmt: skip
    outputs, *last = [op.cast(v, dtype) for v in made]
    return outputs, last


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of recurrent layer of cuDNN, which torch shares.

    Attributes:
        op_type: ONNX operator that computes it.
        gates: Order of the gates in its weights.
        activation: Activation of an RNN; empty for others.
    """

    op_type: str
    gates: str
    activation: str = ""


CUDNN = {
    "lstm": Kind("LSTM", "ifco"), "gru": Kind("GRU", "rzh"),
    "rnn_tanh": Kind("RNN", "h", "Tanh"), "rnn_relu": Kind("RNN", "h", "Relu"),
}  # fmt: skip


def run_cudnn_layer(
    op: Builder, x: Value, states: Sequence[Value], *, kind: Kind,
    weights: Sequence[Sequence[Value]], lengths: Value | None = None,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """Run a cuDNN recurrent layer; a GRU applies the reset gate after the matrix product.

    Args:
        op: Builder.
        x: [steps, batch, features].
        states: Initial states, each [directions, batch, units].
        kind: Kind of the layer.
        weights: For each direction: kernel, recurrent kernel, and zero or two biases.
        lengths: Lengths of the sequences; all steps by default.

    Returns:
        Outputs [steps, batch, directions * units], and the final states.
    """
    directions, sides = len(weights), []
    for side in weights:
        kernel, recurrent, *biases = (
            reorder_gates(op, v, 0, kind.op_type, kind.gates) for v in side
        )
        sides.append(Weights(kernel, recurrent, op.concat(biases, 0) if biases else None))
    attributes: dict[str, Attribute] = {}
    if kind.op_type == "GRU":
        attributes["linear_before_reset"] = 1
    if kind.activation:
        attributes["activations"] = [kind.activation] * directions
    y, last = run_layer(
        op, kind.op_type, x, sides, states, attributes=attributes,
        lengths=None if lengths is None else op.cast(lengths, "int32"),
    )  # fmt: skip
    if directions == 1:
        return op.squeeze(y, [1]), last
    shape = (*x.shape[:2], directions * sides[0].units)
    return op.reshape(op.transpose(y, [0, 2, 1, 3]), shape), last


# Function from the input [steps, batch, features] and the states [directions, batch, units] of a
# layer to its outputs, with directions concatenated, and its final states.
Layer = Callable[[Value, list[Value]], tuple[Value, list[Value]]]
# Function from one step of the input and the states to the new states; the first is the output.
Step = Callable[[Value, list[Value]], Sequence[Value]]


def stack_layers(
    op: Builder, x: Value, states: Sequence[Value], layers: Sequence[Layer]
) -> tuple[Value, list[Value]]:
    """Run stacked layers; return the outputs of the last layer and the final states of all layers.

    Args:
        op: Builder.
        x: Input of the first layer.
        states: Initial states, each [layers * directions, batch, units].
        layers: Layers, from first to last.
    """
    lasts: list[list[Value]] = [[] for _ in states]
    for n, layer in enumerate(layers):
        x, ends = layer(x, [_part_of(op, state, n, len(layers)) for state in states])
        for last, end in zip(lasts, ends, strict=True):
            last.append(end)
    return x, [op.concat(last, 0) for last in lasts]


def _part_of(op: Builder, x: Value, n: int, count: int) -> Value:
    """Return the n-th of equal parts along the first axis."""
    size = static(x.shape[0]) // count
    return x if count == 1 else op.slice(x, [0], [n * size], [(n + 1) * size])


def scan_layer(
    op: Builder, directions: Sequence[tuple[Value, Step]], states: Sequence[Value]
) -> tuple[Value, list[Value]]:
    """Run a layer step by step, with a Scan for each direction.

    Args:
        op: Builder.
        directions: Projected input [steps, batch, ...] and step function; the forward one first.
        states: Initial states, each [directions, batch, units].
    """
    outputs: list[Value] = []
    ends: list[list[Value]] = [[] for _ in states]
    for n, (x, step) in enumerate(directions):

        def one(
            before: list[Value], parts: list[Value], step: Step = step
        ) -> tuple[list[Value], list[Value]]:
            made = zip(step(parts[0], before), before, strict=True)
            after = [replace(new, shape=old.shape) for new, old in made]
            return after, after[:1]

        parts = [op.squeeze(_part_of(op, s, n, len(directions)), [0]) for s in states]
        begin = [op.plain(replace(s, shape=(x.shape[1], s.shape[1]))) for s in parts]
        last, (made,) = scan(op, one, begin, [op.plain(x)], axis=0, backwards=n == 1)
        outputs.append(made)
        for end, state in zip(ends, last, strict=True):
            end.append(op.unsqueeze(state, [0]))
    return op.concat(outputs, 2), [op.concat(end, 0) for end in ends]


# -- single steps ----------------------------------------------------------------------------------


def lstm_step(
    op: Builder, gates: Sequence[Value], c: Value, sigma: Function = sigmoid, tau: Function = tanh
) -> tuple[Value, Value]:
    """Return the new states `h = sigma(o) * tau(c')`, `c' = sigma(f) * c + sigma(i) * tau(g)`.

    Args:
        op: Builder.
        gates: i, f, g and o, before their activations.
        c: Cell state.
        sigma: Activation of the gates i, f and o.
        tau: Activation of g and of the new cell state.
    """
    i, f, g, o = gates
    i, f, o = (sigma(op, gate) for gate in (i, f, o))
    c = op.add(op.mul(f, c), op.mul(i, tau(op, g)))
    return op.mul(o, tau(op, c)), c


def gru_step(
    op: Builder, z: Value, r: Value, g: Value, h: Value, recur: Callable[[Value], Value],
    sigma: Function = sigmoid, tau: Function = tanh,
) -> Value:  # fmt: skip
    """Return the new state `z * h + (1 - z) * tau(g + recur(r))`, with sigma applied to z and r.

    Args:
        op: Builder.
        z: Update gate, before its activation.
        r: Reset gate, before its activation.
        g: Input projection for the new state.
        h: State.
        recur: Function from the reset gate to the recurrent projection: r * (hU) or (r * h)U.
        sigma: Activation of the gates.
        tau: Activation of the new state.
    """
    z, r = sigma(op, z), sigma(op, r)
    new = tau(op, op.add(g, recur(r)))
    return op.add(op.mul(z, h), op.mul(op.sub(1.0, z), new))
