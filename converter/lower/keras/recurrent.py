"""Recurrent layers: SimpleRNN, LSTM, GRU, and RNN with any cell.

ONNX's own operators are used where they can be, masks included; else a Scan over the steps. Steps
are axis 1 here, and outputs are in the order of the sequence in both directions.
Spec: https://github.com/keras-team/keras/blob/v3.15.0/keras/src/backend/tensorflow/rnn.py
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from converter.lower.builder import END, Builder
from converter.lower.graph import Attribute
from converter.lower.keras.cells import (
    CELLS,
    Cell,
    Make,
    Native,
    cell_of,
    flatten,
    gru_cell,
    keywords,
    lstm_cell,
    simple_rnn_cell,
)
from converter.lower.keras.table import Masked, Roles, keras_layer
from converter.lower.ops.recurrent import run_layer
from converter.lower.scan import scan
from converter.lower.values import Value

DIRECTIONS = ("forward", "backward")  # of the two layers of Bidirectional
SINGLE = ("float32", "float16", "bfloat16")  # dtypes that ONNX's operators compute, in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Arguments of a recurrent layer besides those of its cell.

    A stateful layer starts from zeros, as Keras does after loading or ``reset_states()``, unless
    its states are inputs: an ONNX model keeps no state between runs.
    """

    return_sequences: bool = False
    return_state: bool = False
    go_backwards: bool = False
    stateful: bool = False
    unroll: bool = False
    time_major: bool = False
    zero_output_for_mask: bool = False


LOOP = frozenset(f.name for f in fields(Loop))
# Arguments of the call, and those of Keras 1 and 2 about the input.
BESIDE = (
    "mask", "masked_beside", "initial_state", "num_constants", "input_dim", "input_length",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pass:
    """One direction through a sequence.

    Attributes:
        cell: The cell.
        initial: Initial states; zeros if there are none.
        backwards: Whether it begins with the last step.
        stateful: The weights of a layer that starts from the states of the call before, named as
            its states are; None for other layers.
    """

    cell: Cell
    initial: list[Value]
    backwards: bool
    stateful: Roles | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a pass.

    Attributes:
        outputs: Outputs of all steps; for a masked step, the output before it, or zeros.
        last: The output of the last step in the direction of the pass.
        states: The states after it.
    """

    outputs: Value
    last: Value
    states: list[Value]


def recurrent_layer(*class_names: str) -> Callable[[Make], Make]:
    """Enter recurrent layers whose cell a function makes."""

    def enter(make: Make) -> Make:
        for name in class_names:
            CELLS[name] = make
        keras_layer(*class_names)(_over_steps(make))
        return make

    return enter


def _over_steps(make: Make) -> Callable[..., Masked]:
    """Return the handler of a layer; it takes the arguments of the cell, the loop and the call."""

    @wraps(make)
    def handler(
        op: Builder, w: Roles, x: Value, /, *given: Value, mask: Any = None,
        masked_beside: bool = False, initial_state: Any = None, num_constants: int | None = None,
        **arguments: Any,
    ) -> Masked:  # fmt: skip
        used, kept = masks_of_call(mask, masked_beside=masked_beside)
        cell, loop = layer_parts(op, w, make, arguments)
        x, mask = batch_first(x, used, loop)
        initial = states_of_call(given, initial_state, num_constants)
        way = Pass(cell, initial, loop.go_backwards, w if loop.stateful else None)
        (run,) = run_passes(op, x, mask, [way])
        output = result(op, run, mask, loop)
        if loop.return_sequences and loop.go_backwards:
            output = flip(op, output, 1)
        if loop.return_sequences:
            output = as_given(output, loop)
        states = run.states if loop.return_state else []
        return Masked([output, *states], kept if loop.return_sequences else None)

    loop = [Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default) for f in fields(Loop)]
    beside = [Parameter(n, Parameter.KEYWORD_ONLY, default=None) for n in BESIDE]
    handler.__dict__["__signature__"] = Signature([*keywords(make), *loop, *beside])
    return handler


def layer_parts(
    op: Builder, w: Roles, make: Make, arguments: Mapping[str, Any]
) -> tuple[Cell, Loop]:
    """Return a layer's cell and loop from its arguments."""
    loop = Loop(**{n: v for n, v in arguments.items() if n in LOOP})
    rest = {n: v for n, v in arguments.items() if n not in LOOP and n not in BESIDE}
    return make(op, w, **rest), loop


def batch_first(x: Value, mask: Value | None, loop: Loop) -> tuple[Value, Value | None]:
    """Return a sequence and its mask with the steps in axis 1."""
    if not loop.time_major:
        return x, mask
    return as_given(x, loop), None if mask is None else as_given(mask, loop)


def as_given(x: Value, loop: Loop) -> Value:
    """Undo `batch_first` for an output that has steps."""
    if not loop.time_major:
        return x
    return x.transposed([1, 0, *range(2, x.rank)])


def masks_of_call(mask: Any, *, masked_beside: bool) -> tuple[Value | None, Value | None]:
    """Return the mask that is used, and the mask of the output.

    Args:
        mask: Mask of the call. A list holds the masks of all its tensors, initial states included;
            Keras 3 does not use these, but passes the first one on.
        masked_beside: Whether the first of a list is used, too.
    """
    if isinstance(mask, Value):
        return mask, mask
    found = mask[0] if mask else None
    return found if masked_beside else None, found


def states_of_call(
    given: Sequence[Value], initial_state: Any, num_constants: int | None
) -> list[Value]:
    """Return the initial states of a call, without its constants.

    Keras 2 records a call's constants as its last tensors. StackedRNNCells takes them for cells of
    custom classes; cells of Keras's own read none.
    """
    found = [*given, *flatten(initial_state)]
    return found[: len(found) - (num_constants or 0)]


def flip(op: Builder, x: Value, axis: int) -> Value:
    """Return a value with an axis in reverse order."""
    return op.slice(x, [axis], [-1], [-END], [-1])


def result(op: Builder, run: Run, mask: Value | None, loop: Loop) -> Value:
    """Return all outputs of a layer, in the order of the sequence, or the last one."""
    output = run.outputs if loop.return_sequences else run.last
    if mask is None or not loop.zero_output_for_mask:
        return output
    if not loop.return_sequences:
        first = 0 if loop.go_backwards else -1
        keep = op.gather(mask, op.constant(first, "int64"), 1)
    elif loop.unroll and loop.go_backwards:
        # Keras masks the reversed outputs by a mask that is not reversed.
        keep = flip(op, mask, 1)
    else:
        keep = mask
    return op.where(beside(op, keep, output), output, 0.0)


def beside(op: Builder, mask: Value, x: Value) -> Value:
    """Return a mask with trailing axes of one element, up to the rank of x."""
    mask = op.cast(mask, "bool")
    return op.unsqueeze(mask, range(mask.rank, x.rank)) if mask.rank < x.rank else mask


def run_passes(op: Builder, x: Value, mask: Value | None, passes: Sequence[Pass]) -> list[Run]:
    """Run one pass through a sequence, or a forward and a backward one.

    Args:
        op: Builder.
        x: [batch, steps, ...].
        mask: [batch, steps, ...]; steps that are masked out leave the states as they are.
        passes: One or two; two are one bidirectional operator where ONNX has it.
    """
    if op.layer_states is not None:
        passes = [op.layer_states.begin(way, x) for way in passes]
    runs = _run_all(op, x, mask, passes)
    if op.layer_states is not None:
        for way, run in zip(passes, runs, strict=True):
            op.layer_states.end(way, run.states)
    return runs


def _run_all(op: Builder, x: Value, mask: Value | None, passes: Sequence[Pass]) -> list[Run]:
    plain = x.rank == 3 and x.dtype in SINGLE and (mask is None or mask.rank == 2)
    natives = [p.cell.native for p in passes]
    if plain and _together(passes):
        return _native(op, x, mask, passes, [n for n in natives if n is not None])
    return [
        _native(op, x, mask, [p], [n])[0] if plain and n is not None else _scan(op, x, mask, p)
        for p, n in zip(passes, natives, strict=True)
    ]


def _together(passes: Sequence[Pass]) -> bool:
    """Return whether one of ONNX's operators computes all passes."""
    natives = [p.cell.native for p in passes]
    kinds = [(n.op_type, n.attributes, n.weights.units, n.weights.bias is None)
             for n in natives if n is not None]  # fmt: skip
    if len(kinds) < len(passes) or len(passes) == 1:
        return len(kinds) == len(passes)
    return not passes[0].backwards and passes[1].backwards and kinds[0] == kinds[1]


# -- step by step --------------------------------------------------------------------------------


def _scan(op: Builder, x: Value, mask: Value | None, way: Pass) -> Run:
    cell = way.cell
    projected = cell.project(x)
    states = [op.cast(s, x.dtype) for s in way.initial] or cell.zeros(projected)
    if mask is None:

        def step(states: list[Value], parts: list[Value]) -> tuple[list[Value], list[Value]]:
            after = cell.step(parts[0], states)
            return after[: cell.count], [after[cell.result]]

        last, (outputs,) = scan(op, step, states, [projected], axis=1, backwards=way.backwards)
        ends = last[cell.result] if cell.result < cell.count else _last(op, outputs, way)
        return Run(outputs, ends, last)

    def masked(states: list[Value], parts: list[Value]) -> tuple[list[Value], list[Value]]:
        part, counts = parts
        before, output = states[:-1], states[-1]
        after = cell.step(part, before)
        output = op.where(beside(op, counts, output), after[cell.result], output)
        after = [
            op.where(beside(op, counts, old), new, old)
            for new, old in zip(after, before, strict=False)
        ]
        return [*after, output], [output]

    # The output of Keras before the first unmasked step is zero, whatever the initial state.
    zero = _no_output(op, cell, projected, states)
    sequences = [projected, op.cast(mask, "bool")]
    last, (outputs,) = scan(op, masked, [*states, zero], sequences, axis=1, backwards=way.backwards)
    return Run(outputs, last[-1], last[:-1])


def _last(op: Builder, outputs: Value, way: Pass) -> Value:
    """Return the output of the last step in the direction of the pass."""
    return op.gather(outputs, op.constant(0 if way.backwards else -1, "int64"), 1)


def _no_output(op: Builder, cell: Cell, projected: Value, states: list[Value]) -> Value:
    """Return zeros of the shape of an output."""
    if cell.result < cell.count:
        return cell.zeros(projected)[cell.result]
    first = op.gather(projected, op.constant(0, "int64"), 1)
    made = cell.step(first, states)[cell.result]
    return op.expand(op.constant(0.0, made.dtype), made.shape, like=projected)


# -- ONNX's own operators ------------------------------------------------------------------------


def _native(
    op: Builder, x: Value, mask: Value | None, passes: Sequence[Pass], cells: Sequence[Native]
) -> list[Run]:
    """Run one of ONNX's own operators, in one direction or both.

    Masked steps are moved to the end, and lengths count the others.
    Outputs are then gathered from where their steps went.
    """
    first, batch, count = cells[0], x.shape[0], passes[0].cell.count
    dtype, ways, units = x.dtype, len(passes), cells[0].weights.units
    packing = None if mask is None else _pack(op, op.cast(mask, "bool"))
    if packing is not None:
        x = op.emit("GatherND", x, packing.order, dtype=dtype, shape=x.shape, batch_dims=1)
    initial = [[op.cast(s, dtype) for s in p.initial] for p in passes]
    starts: list[Value] = []
    if any(initial):
        # [directions, batch, units] of each state; zeros for a pass that has none.
        zero = op.expand(op.constant(0.0, dtype), (batch, units), like=x)
        rows = [states or [zero] * count for states in initial]
        starts = [op.concat([op.unsqueeze(row[n], [0]) for row in rows], 0) for n in range(count)]
    y, after = run_layer(
        op, first.op_type, op.transpose(x, [1, 0, 2]), [c.weights for c in cells], starts,
        lengths=None if packing is None else packing.lengths,
        is_reversed=ways == 1 and passes[0].backwards,
        attributes={
            **first.attributes, **_activations([gate for c in cells for gate in c.activations])
        },
    )  # fmt: skip
    runs = []
    for n, way in enumerate(passes):
        outputs = op.squeeze(_direction(op, y, 1, n), [1]).transposed([1, 0, 2])
        states = [op.squeeze(_direction(op, s, 0, n), [0]) for s in after]
        last = states[0]
        if packing is not None:
            outputs = packing.unpacked(op, outputs, backwards=way.backwards)
            some = op.unsqueeze(packing.some, [1])
            last = op.where(some, last, 0.0)
            kept = initial[n] or [op.constant(0.0, dtype)] * count
            states = [op.where(some, s, old) for s, old in zip(states, kept, strict=True)]
        runs.append(Run(outputs, last, states))
    return runs


def _direction(op: Builder, x: Value, axis: int, number: int) -> Value:
    size = x.shape[axis]
    return x if size == 1 else op.slice(x, [axis], [number], [number + 1])


def _activations(
    gates: Sequence[tuple[str, float | None, float | None]],
) -> dict[str, Attribute]:
    """Return activations as attributes of the operator."""
    found: dict[str, Attribute] = {"activations": [name for name, _, _ in gates]}
    alphas = [alpha for _, alpha, _ in gates if alpha is not None]
    betas = [beta for _, _, beta in gates if beta is not None]
    if alphas:
        found["activation_alpha"] = alphas
    if betas:
        found["activation_beta"] = betas
    return found


@dataclass(frozen=True, slots=True)
class _Packing:
    """The steps of a masked sequence, moved so that masked ones come last.

    Attributes:
        order: [batch, steps, 1]: the step that is at each index now.
        lengths: [batch]: number of steps that are not masked, at least 1, for the operator.
        some: [batch]: whether any step is not masked.
        mask: [batch, steps]: the mask as integers.
        counts: [batch, steps]: cumulative sum of the mask.
        total: [batch, 1]: sum of the mask.
    """

    order: Value
    lengths: Value
    some: Value
    mask: Value
    counts: Value
    total: Value

    def unpacked(self, op: Builder, x: Value, *, backwards: bool) -> Value:
        """Return outputs at their own steps; masked steps repeat the output before, or are zero."""
        one = op.constant(1, "int64")
        if backwards:
            place = op.sub(self.counts, self.mask)
            there = op.elementwise("Less", place, self.total)
            place = op.elementwise("Min", place, op.sub(op.size(self.counts, 1), one))
        else:
            place = op.sub(self.counts, one)
            there = op.elementwise("GreaterOrEqual", place, op.constant(0, "int64"))
            place = op.elementwise("Max", place, op.constant(0, "int64"))
        taken = op.emit(
            "GatherND", x, op.unsqueeze(place, [2]), dtype=x.dtype, shape=x.shape, batch_dims=1
        )
        return op.where(op.unsqueeze(there, [2]), taken, 0.0)


def _pack(op: Builder, mask: Value) -> _Packing:
    """Return how a mask moves its steps to the front, in their order."""
    steps = mask.shape[1]
    numbers = op.cast(mask, "int64")
    counts = op.emit("CumSum", numbers, op.constant(1, "int64"), dtype="int64", shape=mask.shape)
    total = op.reduce("ReduceSum", numbers, [1], keepdims=True)
    size = op.size(mask, 1)
    if isinstance(steps, int):
        step = op.constant(np.arange(steps, dtype=np.int64))
    else:
        bounds = [op.constant(0, "int64"), op.squeeze(size, [0]), op.constant(1, "int64")]
        step = op.emit("Range", *bounds, dtype="int64", shape=(steps,))
    keys = op.where(mask, step, op.add(step, size))
    _, order = op.node(
        "TopK", [op.plain(keys), size], [("int64", mask.shape), ("int64", mask.shape)],
        attributes={"axis": 1, "largest": 0, "sorted": 1},
    )  # fmt: skip
    length = op.squeeze(total, [1])
    # A sequence without steps runs one, whose result is not used.
    lengths = op.cast(op.elementwise("Max", length, op.constant(1, "int64")), "int32")
    some = op.elementwise("Greater", length, op.constant(0, "int64"))
    return _Packing(op.unsqueeze(order, [2]), lengths, some, numbers, counts, total)


# -- layers --------------------------------------------------------------------------------------

recurrent_layer("LSTM")(lstm_cell)
recurrent_layer("GRU")(gru_cell)
recurrent_layer("SimpleRNN")(simple_rnn_cell)


@recurrent_layer("RNN")
def any_cell(op: Builder, w: Roles, /, *, cell: Mapping[str, Any]) -> Cell:
    """A cell, or stacked cells, run over all steps."""
    return cell_of(op, w, cell)


@recurrent_layer("CuDNNLSTM")
def cudnn_lstm(op: Builder, w: Roles, /, *, units: int, unit_forget_bias: bool = True) -> Cell:
    """LSTM with cuDNN's weights."""
    return lstm_cell(op, w, units=units, unit_forget_bias=unit_forget_bias)


@recurrent_layer("CuDNNGRU")
def cudnn_gru(op: Builder, w: Roles, /, *, units: int) -> Cell:
    """GRU with cuDNN's weights; the reset gate is applied after the product."""
    return gru_cell(op, w, units=units)
