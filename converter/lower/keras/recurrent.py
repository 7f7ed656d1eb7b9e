"""Layers that go over the steps of a sequence: SimpleRNN, LSTM, GRU, and RNN over any cell.

ONNX's own operators do what they can, masks included; the rest is a Scan over the steps. Inside,
steps are axis 1, and outputs stand in the order of the sequence whichever way it is gone through.
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
    flattened,
    gru_cell,
    keywords,
    lstm_cell,
    simple_rnn_cell,
)
from converter.lower.keras.table import Masked, Roles, keras_layer
from converter.lower.scan import scan
from converter.lower.values import Value

SINGLE = ("float32", "float16", "bfloat16")  # what ONNX's own operators are given, as float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """How a layer goes over the steps, in Keras's words.

    A stateful layer begins as Keras does after loading or ``reset_states()``, with zeros: an ONNX
    model keeps nothing from one run to the next.
    """

    return_sequences: bool = False
    return_state: bool = False
    go_backwards: bool = False
    stateful: bool = False
    unroll: bool = False
    time_major: bool = False
    zero_output_for_mask: bool = False


LOOP = frozenset(f.name for f in fields(Loop))
# What is the call's, and what Keras 1 and 2 let a layer say of its input.
BESIDE = (
    "mask", "masked_beside", "initial_state", "num_constants", "input_dim", "input_length",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pass:
    """One way through a sequence."""

    cell: Cell
    initial: list[Value]
    backwards: bool


@dataclass(frozen=True, slots=True)
class Run:
    """What a pass gives.

    Attributes:
        outputs: Of all steps; of a masked one, the output before it, or zeros.
        last: The output of the step done last.
        states: After it.
    """

    outputs: Value
    last: Value
    states: list[Value]


def recurrent_layer(*class_names: str) -> Callable[[Make], Make]:
    """Enter layers that go over steps with the cell that a function makes."""

    def enter(make: Make) -> Make:
        for name in class_names:
            CELLS[name] = make
        keras_layer(*class_names)(_over_steps(make))
        return make

    return enter


def _over_steps(make: Make) -> Callable[..., Masked]:
    """Return the handler of a layer: its arguments are the cell's, the loop's and the call's."""

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
        (run,) = run_passes(op, x, mask, [Pass(cell, initial, loop.go_backwards)])
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
    """Return a layer's cell, and how it goes over steps, from its arguments."""
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
    """Return the mask that is used, and the one that goes on.

    Args:
        mask: What the call gives; a list is of masks that came with its tensors, of which initial
            states are some. Keras 3 does not use those, but hands the first one on.
        masked_beside: Whether it is used all the same.
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
    found = [*given, *flattened(initial_state)]
    return found[: len(found) - (num_constants or 0)]


def flip(op: Builder, x: Value, axis: int) -> Value:
    """Return a value with an axis in reverse order."""
    return op.slice(x, [axis], [-1], [-END], [-1])


def result(op: Builder, run: Run, mask: Value | None, loop: Loop) -> Value:
    """Return what a layer gives: all outputs, in the order of the sequence, or the last."""
    output = run.outputs if loop.return_sequences else run.last
    if mask is None or not loop.zero_output_for_mask:
        return output
    if not loop.return_sequences:
        first = 0 if loop.go_backwards else -1
        keep = op.gather(mask, op.constant(first, "int64"), 1)
    elif loop.unroll and loop.go_backwards:
        # Keras zeroes outputs that stand in reverse order by a mask that does not.
        keep = flip(op, mask, 1)
    else:
        keep = mask
    return op.where(beside(op, keep, output), output, 0.0)


def beside(op: Builder, mask: Value, x: Value) -> Value:
    """Return a mask with axes of one element at its end, as many as x has more."""
    mask = op.cast(mask, "bool")
    return op.unsqueeze(mask, range(mask.rank, x.rank)) if mask.rank < x.rank else mask


def run_passes(op: Builder, x: Value, mask: Value | None, passes: Sequence[Pass]) -> list[Run]:
    """Go through a sequence once or, forth and back, twice.

    Args:
        op: Builder.
        x: [batch, steps, ...].
        mask: [batch, steps, ...]: which steps count; the others leave the states as they are.
        passes: Of which both, where ONNX can, are one operation.
    """
    plain = x.rank == 3 and x.dtype in SINGLE and (mask is None or mask.rank == 2)
    natives = [p.cell.native for p in passes]
    if plain and _together(passes):
        return _native(op, x, mask, passes, [n for n in natives if n is not None])
    return [
        _native(op, x, mask, [p], [n])[0] if plain and n is not None else _scan(op, x, mask, p)
        for p, n in zip(passes, natives, strict=True)
    ]


def _together(passes: Sequence[Pass]) -> bool:
    """Return whether passes are the directions of one of ONNX's own operators."""
    first, *others = (p.cell.native for p in passes)
    if first is None:
        return False
    if not others:
        return True
    (second,) = others
    return (
        second is not None
        and not passes[0].backwards
        and passes[1].backwards
        and (first.op_type, first.units, first.attributes, first.bias is None)
        == (second.op_type, second.units, second.attributes, second.bias is None)
    )


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

    # What Keras puts out before the first step that counts is zero, whatever the initial state.
    zero = _no_output(op, cell, projected, states)
    sequences = [projected, op.cast(mask, "bool")]
    last, (outputs,) = scan(op, masked, [*states, zero], sequences, axis=1, backwards=way.backwards)
    return Run(outputs, last[-1], last[:-1])


def _last(op: Builder, outputs: Value, way: Pass) -> Value:
    """Return the output of the step done last."""
    return op.gather(outputs, op.constant(0 if way.backwards else -1, "int64"), 1)


def _no_output(op: Builder, cell: Cell, projected: Value, states: list[Value]) -> Value:
    """Return zeros of the shape of an output, which may be no state."""
    if cell.result < cell.count:
        return cell.zeros(projected)[cell.result]
    first = op.gather(projected, op.constant(0, "int64"), 1)
    made = cell.step(first, states)[cell.result]
    return op.expand(op.constant(0.0, made.dtype), made.shape, like=projected)


# -- ONNX's own operators ------------------------------------------------------------------------


def _native(
    op: Builder, x: Value, mask: Value | None, passes: Sequence[Pass], cells: Sequence[Native]
) -> list[Run]:
    """Run one of ONNX's own operators, one way or both.

    Steps that a mask leaves out are moved behind the others, of which there are as many as the
    lengths say; outputs are then taken from where their steps went.
    """
    first = cells[0]
    dtype, single = x.dtype, op.cast(x, "float32")
    packing = None if mask is None else _pack(op, op.cast(mask, "bool"))
    if packing is not None:
        single = op.emit(
            "GatherND", single, packing.order, dtype="float32", shape=single.shape, batch_dims=1
        )
    initial = [[op.cast(s, "float32") for s in p.initial] for p in passes]
    count = passes[0].cell.count
    if any(initial):
        # [directions, batch, units] of each state; zeros for a pass that has none.
        zero = op.expand(op.constant(0.0), (x.shape[0], first.units), like=x)
        rows = [states or [zero] * count for states in initial]
        starts = [op.concat([op.unsqueeze(row[n], [0]) for row in rows], 0) for n in range(count)]
    else:
        starts = []
    ways = len(passes)
    weights = [
        _stack(op, [c.kernel for c in cells]), _stack(op, [c.recurrent for c in cells]),
        _stack(op, [c.bias for c in cells]),
    ]  # fmt: skip
    direction = "bidirectional" if ways == 2 else "reverse" if passes[0].backwards else "forward"
    batch, steps, units = x.shape[0], x.shape[1], first.units
    state = ("float32", (ways, batch, units))
    y, *after = op.node(
        first.op_type,
        [
            op.kept(single.transposed([1, 0, 2]), (0, 1, 2)), *weights,
            None if packing is None else packing.lengths, *starts,
        ],
        [("float32", (steps, ways, batch, units)), *[state] * count],
        attributes={
            **_activations([gate for c in cells for gate in c.activations]), **first.attributes,
            "hidden_size": units, "direction": direction,
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
            kept = initial[n] or [op.constant(0.0)] * count
            states = [op.where(some, s, old) for s, old in zip(states, kept, strict=True)]
        states = [op.cast(s, dtype) for s in states]
        runs.append(Run(op.cast(outputs, dtype), op.cast(last, dtype), states))
    return runs


def _stack(op: Builder, values: Sequence[Value | None]) -> Value | None:
    """Return the weights of each direction along a first axis."""
    found = [op.unsqueeze(op.cast(v, "float32"), [0]) for v in values if v is not None]
    return op.concat(found, 0) if found else None


def _direction(op: Builder, x: Value, axis: int, number: int) -> Value:
    size = x.shape[axis]
    return x if size == 1 else op.slice(x, [axis], [number], [number + 1])


def _activations(
    gates: Sequence[tuple[str, float | None, float | None]],
) -> dict[str, Attribute]:
    """Return activations as attributes; alphas and betas are of those that have one."""
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
    """Where the steps of a masked sequence went.

    Attributes:
        order: [batch, steps, 1]: which step is now in each place.
        lengths: [batch]: how many count, as the operators want it.
        some: [batch]: whether any does.
        mask: [batch, steps], of integers.
        counts: [batch, steps]: how many count up to each, itself included.
        total: [batch, 1]: how many count.
    """

    order: Value
    lengths: Value
    some: Value
    mask: Value
    counts: Value
    total: Value

    def unpacked(self, op: Builder, x: Value, *, backwards: bool) -> Value:
        """Return outputs where their steps were; of others, the output before; else zero."""
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
    """Return where the steps that count go: to the front, in their order."""
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
    # Where none counts one is done, and its result is not used: no runtime minds that.
    lengths = op.cast(op.elementwise("Max", length, op.constant(1, "int64")), "int32")
    some = op.elementwise("Greater", length, op.constant(0, "int64"))
    return _Packing(op.unsqueeze(order, [2]), lengths, some, numbers, counts, total)


# -- layers --------------------------------------------------------------------------------------

recurrent_layer("LSTM")(lstm_cell)
recurrent_layer("GRU")(gru_cell)
recurrent_layer("SimpleRNN")(simple_rnn_cell)


@recurrent_layer("RNN")
def any_cell(op: Builder, w: Roles, /, *, cell: Mapping[str, Any]) -> Cell:
    """A cell, or a stack of them, over all steps."""
    return cell_of(op, w, cell)


@recurrent_layer("CuDNNLSTM")
def cudnn_lstm(op: Builder, w: Roles, /, *, units: int, unit_forget_bias: bool = True) -> Cell:
    """LSTM with cuDNN's weights."""
    return lstm_cell(op, w, units=units, unit_forget_bias=unit_forget_bias)


@recurrent_layer("CuDNNGRU")
def cudnn_gru(op: Builder, w: Roles, /, *, units: int) -> Cell:
    """GRU with cuDNN's weights; the reset gate after the product."""
    return gru_cell(op, w, units=units)
