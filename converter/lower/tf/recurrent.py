"""Recurrent layers and cells that are one op: BlockLSTM, GRUBlockCell, CudnnRNN.

The gate order of BlockLSTM is i, c, f, o; that of BlockLSTMV2 is i, f, c, o; those of cuDNN are
i, f, c, o and r, z, h. The weights of cuDNN are one vector: for each layer and direction the input
and recurrent matrices of all gates, each [units, features]; then the biases in the same order.
Spec: https://www.tensorflow.org/api_docs/python/tf/raw_ops/BlockLSTM and CudnnRNNV3,
https://docs.nvidia.com/deeplearning/cudnn/latest/api/cudnn-adv-library.html#cudnngetrnnweightparams
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from converter.lower.ops.recurrent import (
    CUDNN,
    Weights,
    reorder_gates,
    run_cudnn_layer,
    run_layer,
    stack_layers,
    static,
)
from converter.lower.scan import scan
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.program_values import ProgramValue, Record
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value

LSTM_OUTPUTS = ("i", "cs", "f", "o", "ci", "co", "h")


@dataclass(frozen=True, slots=True)
class Block:
    """The weights and settings of a BlockLSTM.

    Attributes:
        w: Kernel [features + units, 4 * units].
        b: Bias [4 * units].
        peepholes: Peephole vectors [units] of i, f and o, or ().
        order: Indices of i, c, f and o among the gates.
        forget_bias: Constant added to the forget gate.
        clip: Bound of the cell state's absolute value, or zero for none.
    """

    w: Value
    b: Value
    peepholes: tuple[Value, ...]
    order: tuple[int, int, int, int]
    forget_bias: float
    clip: float


def _step(op: Context, block: Block, x: Value, cs: Value, h: Value) -> list[Value]:
    """Return i, cs, f, o, ci, co and h of one time step."""
    units = static(cs.shape[1])
    product = op.add(op.matmul(op.concat([x, h], 1), block.w), block.b)
    gates = op.split(product, 1, [units] * 4)
    i, ci, f, o = (gates[place] for place in block.order)
    if block.forget_bias:
        f = op.add(f, block.forget_bias)
    if block.peepholes:
        i = op.add(i, op.mul(cs, block.peepholes[0]))
        f = op.add(f, op.mul(cs, block.peepholes[1]))
    i, f, ci = op.unary("Sigmoid", i), op.unary("Sigmoid", f), op.unary("Tanh", ci)
    cs = op.add(op.mul(ci, i), op.mul(cs, f))
    if block.clip > 0:
        cs = op.clip(cs, -block.clip, block.clip)
    if block.peepholes:
        o = op.add(o, op.mul(cs, block.peepholes[2]))
    o, co = op.unary("Sigmoid", o), op.unary("Tanh", cs)
    return [i, cs, f, o, ci, co, op.mul(co, o)]


V1, V2 = (0, 1, 2, 3), (0, 2, 1, 3)


@tf_op("LSTMBlockCell", outputs=LSTM_OUTPUTS)
def lstm_block_cell(
    op: Context, x: Value, cs_prev: Value, h_prev: Value, w: Value, wci: Value, wcf: Value,
    wco: Value, b: Value, /, *, forget_bias: float = 1.0, cell_clip: float = 3.0,
    use_peephole: bool = False,
) -> list[Value]:  # fmt: skip
    """One time step of an LSTM."""
    peepholes = (wci, wcf, wco) if use_peephole else ()
    block = Block(w, b, peepholes, V1, forget_bias, cell_clip)
    return _step(op, block, x, cs_prev, h_prev)


@tf_op("BlockLSTM", outputs=LSTM_OUTPUTS)
def block_lstm(
    op: Session, seq_len_max: Value, x: Value, cs_prev: Value, h_prev: Value, w: Value, wci: Value,
    wcf: Value, wco: Value, b: Value, /, *, forget_bias: float = 1.0, cell_clip: float = 3.0,
    use_peephole: bool = False, node: Node,
) -> list[ProgramValue]:  # fmt: skip
    """An LSTM over the time steps in the first axis."""
    peepholes = (wci, wcf, wco) if use_peephole else ()
    block = Block(w, b, peepholes, V1, forget_bias, cell_clip)
    return _over_steps(op, block, seq_len_max, x, cs_prev, h_prev, node)


@tf_op("BlockLSTMV2", outputs=LSTM_OUTPUTS)
def block_lstm_v2(
    op: Session, seq_len_max: Value, x: Value, cs_prev: Value, h_prev: Value, w: Value, wci: Value,
    wcf: Value, wco: Value, b: Value, /, *, cell_clip: float = 0.0, use_peephole: bool = False,
    node: Node,
) -> list[ProgramValue]:  # fmt: skip
    """An LSTM over the time steps in the first axis."""
    peepholes = (wci, wcf, wco) if use_peephole else ()
    block = Block(w, b, peepholes, V2, 0.0, cell_clip)
    return _over_steps(op, block, seq_len_max, x, cs_prev, h_prev, node)


def _over_steps(
    op: Session, block: Block, seq_len_max: Value, x: Value, cs: Value, h: Value, node: Node
) -> list[ProgramValue]:
    read = sorted(op.walker.read(node))

    def step(states: list[Value], parts: list[Value]) -> tuple[list[Value], list[Value]]:
        made = _step(op, block, parts[0], *states)
        return [made[1], made[6]], [made[n] for n in read]

    if read == [6] and block.clip <= 0 and x.dtype == "float32":
        outputs = [_native(op, block, x, cs, h)]
    else:
        _, outputs = scan(op, step, [op.plain(cs), op.plain(h)], [op.plain(x)], axis=0)
    counts = _counting(op, x, seq_len_max)
    found: list[ProgramValue] = [Record("output that nothing reads") for _ in LSTM_OUTPUTS]
    for number, value in zip(read, outputs, strict=True):
        found[number] = value if counts is None else op.where(counts, value, 0.0)
    return found


def _counting(op: Context, x: Value, most: Value) -> Value | None:
    """Return the mask [steps, 1, 1] of time steps below `most`, or None if all are."""
    known, steps = op.static(most), x.shape[0]
    if known is not None and isinstance(steps, int) and int(known) >= steps:
        return None
    elements = op.elements(most)
    if elements is not None and steps is not None and elements.reshape(-1)[0] == steps:
        return None
    count = op.squeeze(op.size(x, 0), [0])
    zero, one = op.constant(0, "int64"), op.constant(1, "int64")
    numbers = op.emit("Range", zero, count, one, dtype="int64", shape=(steps,))
    return op.unsqueeze(op.elementwise("Less", numbers, op.cast(most, "int64")), [1, 2])


def _native(op: Context, block: Block, x: Value, cs: Value, h: Value) -> Value:
    """Return the outputs of all time steps, computed by ONNX's LSTM."""
    units, features = static(cs.shape[1]), static(x.shape[2])
    order = "".join("icfo"[block.order.index(n)] for n in range(4))
    weights = reorder_gates(op, op.transpose(block.w, [1, 0]), 0, "LSTM", order)
    kernel, recurrent = op.split(weights, 1, [features, units])
    shift = np.zeros((4, units), "float32")
    shift[block.order[2]] = block.forget_bias
    bias = op.add(block.b, op.constant(shift.reshape(-1)))
    zeros = op.constant(np.zeros(4 * units, "float32"))
    bias = op.concat([reorder_gates(op, bias, 0, "LSTM", order), zeros], 0)
    peepholes = None
    if block.peepholes:
        i_part, f_part, o_part = block.peepholes
        peepholes = op.concat([i_part, o_part, f_part], 0)
    states = [op.unsqueeze(state, [0]) for state in (h, cs)]
    y, _ = run_layer(op, "LSTM", x, [Weights(kernel, recurrent, bias, peepholes)], states)
    return op.squeeze(y, [1])


@tf_op("GRUBlockCell", outputs=("r", "u", "c", "h"))
def gru_block_cell(
    op: Context, x: Value, h_prev: Value, w_ru: Value, w_c: Value, b_ru: Value, b_c: Value, /
) -> list[Value]:
    """One time step of a GRU; the reset gate is applied before the product with the state."""
    units = static(h_prev.shape[1])
    gates = op.add(op.matmul(op.concat([x, h_prev], 1), w_ru), b_ru)
    r, u = op.split(op.unary("Sigmoid", gates), 1, [units] * 2)
    inner = op.concat([x, op.mul(h_prev, r)], 1)
    c = op.unary("Tanh", op.add(op.matmul(inner, w_c), b_c))
    h = op.add(op.mul(u, h_prev), op.mul(op.sub(1.0, u), c))
    return [r, u, c, h]


# -- cuDNN -----------------------------------------------------------------------------------------


def _check_input(input_mode: str, features: int, units: int) -> None:
    if input_mode == "skip_input" or (input_mode == "auto_select" and features == units):
        raise Unsupported("cuDNN's layers that take their input without a product")
    if input_mode not in ("linear_input", "auto_select"):
        raise Unsupported(f"input_mode {input_mode}")


CUDNN_OUTPUTS = ("output", "output_h", "output_c", "reserve_space", "host_reserved")


@tf_op("CudnnRNN", outputs=CUDNN_OUTPUTS[:4])
@tf_op("CudnnRNNV2", outputs=CUDNN_OUTPUTS)
def cudnn_rnn(
    op: Context, input: Value, input_h: Value, input_c: Value, params: Value, /, *,
    rnn_mode: str = "lstm", input_mode: str = "linear_input", direction: str = "unidirectional",
    dropout: float = 0.0, seed: int = 0, seed2: int = 0, is_training: bool = True,
) -> list[ProgramValue]:  # fmt: skip
    """Stacked recurrent layers of cuDNN over the time steps in the first axis."""
    del seed, seed2
    if dropout and is_training:
        raise Unsupported("dropout")
    made = _run_cudnn(op, input, input_h, input_c, params, rnn_mode, direction, input_mode)
    return [*made, *[Record("what only gradients read")] * 2]


@tf_op("CudnnRNNV3", outputs=CUDNN_OUTPUTS)
def cudnn_rnn_v3(
    op: Context, input: Value, input_h: Value, input_c: Value, params: Value,
    sequence_lengths: Value, /, *, rnn_mode: str = "lstm", input_mode: str = "linear_input",
    direction: str = "unidirectional", dropout: float = 0.0, seed: int = 0, seed2: int = 0,
    num_proj: int = 0, is_training: bool = True, time_major: bool = True,
) -> list[ProgramValue]:  # fmt: skip
    """Stacked recurrent layers of cuDNN over sequences of variable length."""
    del seed, seed2
    if dropout and is_training:
        raise Unsupported("dropout")
    if num_proj:
        raise Unsupported("num_proj")
    x, h, c = input, input_h, input_c
    if not time_major:
        x, h, c = (v.transposed((1, 0, 2)) for v in (x, h, c))
    made = _run_cudnn(op, x, h, c, params, rnn_mode, direction, input_mode, sequence_lengths)
    if not time_major:
        made = [v.transposed((1, 0, 2)) for v in made]
    return [*made, *[Record("what only gradients read")] * 2]


def _run_cudnn(
    op: Context, x: Value, h: Value, c: Value, params: Value, mode: str, direction: str,
    input_mode: str, lengths: Value | None = None,
) -> list[Value]:  # fmt: skip
    """Return the outputs and the final states; without a cell state, `c` is returned unchanged.

    Raises:
        Unsupported: A size is unknown, or does not match the weights.
    """
    if mode not in CUDNN:
        raise Unsupported(f"rnn_mode {mode}")
    if direction not in ("unidirectional", "bidirectional"):
        raise Unsupported(f"direction {direction}")
    ways = 2 if direction == "bidirectional" else 1
    count, units, features = static(h.shape[0]), static(h.shape[2]), static(x.shape[2])
    _check_input(input_mode, features, units)
    total = params_size(mode, ways, count // ways, units, features)
    if isinstance(params.shape[0], int) and params.shape[0] != total:
        raise Unsupported(f"{params.shape[0]} weights where {total} are expected")
    size = len(CUDNN[mode].gates) * units
    widths = [n for i in range(count) for n in (features if i < ways else ways * units, units)]
    sizes = [size * width for width in widths] + [size] * (2 * count)
    parts = op.split(op.reshape(params, (total,)), 0, sizes)
    matrices = [op.reshape(v, (size, n)) for v, n in zip(parts, widths, strict=False)]
    biases = parts[2 * count :]
    weights = [[*matrices[i : i + 2], *biases[i : i + 2]] for i in range(0, 2 * count, 2)]
    layers = [
        partial(
            run_cudnn_layer, op, kind=CUDNN[mode], weights=weights[i : i + ways], lengths=lengths
        )
        for i in range(0, count, ways)
    ]
    states = [op.cast(s, x.dtype) for s in ([h, c] if mode == "lstm" else [h])]
    y, after = stack_layers(op, x, states, layers)
    return [y, *after, *([] if mode == "lstm" else [c])]


def params_size(mode: str, ways: int, layers: int, units: int, features: int) -> int:
    """Return the number of elements of cuDNN's weights."""
    gates = len(CUDNN[mode].gates)
    total = 0
    for layer in range(layers):
        width = features if layer == 0 else ways * units
        total += ways * gates * units * (width + units + 2)
    return total


@tf_op("CudnnRNNParamsSize")
def cudnn_params_size(
    op: Context, num_layers: Value, num_units: Value, input_size: Value, /, *,
    rnn_mode: str = "lstm", input_mode: str = "linear_input", direction: str = "unidirectional",
    dropout: float = 0.0, seed: int = 0, seed2: int = 0, num_proj: int = 0, node: Node,
) -> Value:  # fmt: skip
    """The number of elements of cuDNN's weights."""
    del dropout, seed, seed2
    if num_proj:
        raise Unsupported("num_proj")
    layers, units, features = (op.int(v, "a size") for v in (num_layers, num_units, input_size))
    _check_input(input_mode, features, units)
    ways = 2 if direction == "bidirectional" else 1
    size = params_size(rnn_mode, ways, layers, units, features)
    return op.constant([size], node.attribute("S", "int32"))


@tf_op("CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2")
def cudnn_canonical_to_params(
    op: Context, num_layers: Value, num_units: Value, input_size: Value, /, *parts: Value,
    num_params: int = 0, num_params_weights: int = 0, num_params_biases: int = 0,
    rnn_mode: str = "lstm", input_mode: str = "linear_input", direction: str = "unidirectional",
    dropout: float = 0.0, seed: int = 0, seed2: int = 0, num_proj: int = 0,
) -> Value:  # fmt: skip
    """The weights of cuDNN as one vector: all matrices, then all biases."""
    del num_layers, num_units, input_size, dropout, seed, seed2, rnn_mode, direction
    del num_params, num_params_weights, num_params_biases
    if num_proj or input_mode == "skip_input":
        raise Unsupported("num_proj" if num_proj else f"input_mode {input_mode}")
    return op.concat([op.reshape(v, (_total(v),)) for v in parts], 0)


def _total(value: Value) -> int:
    sizes = [n for n in value.shape if isinstance(n, int)]
    if len(sizes) != value.rank:
        raise Unsupported("weights of sizes that are not known")
    return int(np.prod(sizes, dtype=np.int64))
