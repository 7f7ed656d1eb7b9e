"""Sequences of several lengths in one tensor: packed ones, and nested ones.

torch keeps the elements of packed sequences step by step, and those of nested ones one sequence
after another. In the graph both stay as they were before: with as many steps as the longest has,
beside what says how many of them each has.
Spec: https://docs.pytorch.org/docs/2.13/generated/torch.nn.utils.rnn.pack_padded_sequence.html
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from converter.lower import dims
from converter.lower.ops.recurrent import CUDNN, Kind
from converter.lower.table import Variant
from converter.lower.torch import fused, padding, recurrent
from converter.lower.torch.compound import Compound
from converter.lower.torch.context import Context
from converter.lower.torch.program_values import Int, ProgramValue, Tensors, integer
from converter.lower.torch.table import Row, aten
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value, identity

# What does to each element of a sequence, or to each vector, what it does to others.
EACH = frozenset((
    "dropout", "gelu", "layer_norm", "leaky_relu", "linear", "relu", "sigmoid", "silu", "tanh",
    "to", "contiguous", "clone", "detach", "alias",
))  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Packed(Compound):
    """Packed sequences, [elements, features]: their one part is [steps, batch, features].

    Attributes:
        lengths: How many steps each has: [batch].
    """

    lengths: Value | None = None

    def moved(self, part: Value) -> "Packed":
        """Return other elements of sequences of the same lengths."""
        shape = (self.shape[0], *part.shape[2:])
        return replace(
            self, dtype=part.dtype, shape=shape, stored=identity(len(shape)), parts=(part,)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Nested(Compound):
    """Nested sequences, [batch, steps, features]: their one part is of that shape.

    Attributes:
        kept: Which steps each has: [batch, steps].
    """

    kept: Value | None = None

    def moved(self, part: Value) -> "Nested":
        """Return other elements of sequences of the same lengths."""
        return replace(
            self, dtype=part.dtype, shape=part.shape, stored=identity(part.rank), parts=(part,)
        )


def has_sequences(value: Any) -> bool:
    """Return whether a value is such a tensor."""
    return isinstance(value, Packed | Nested)


def apply(op: Context, row: Row, given: Mapping[str, ProgramValue]) -> ProgramValue:
    """Return what an op yields that is given sequences of several lengths.

    Raises:
        Unsupported: We do not have it for those.
    """
    if row.function in TAKING:
        return row.handler(op, **given)
    first = given[row.parameters[0]]
    if row.name == "_transformer_encoder_layer_fwd" and isinstance(first, Nested):
        return nested_layer(op, **given)
    others = [one for name, one in given.items() if name != row.parameters[0]]
    if row.name.partition(".")[0] not in EACH or any(map(has_sequences, others)):
        raise Unsupported("of sequences of several lengths")
    made = row.handler(op, **{**given, row.parameters[0]: first.real})
    return first.moved(made)


# -- packed ----------------------------------------------------------------------------------------


@aten("_pack_padded_sequence")
def pack_padded_sequence(
    op: Context, input: Value, lengths: Value, batch_first: bool
) -> list[Value]:
    """Packed sequences, and the batch size at each step."""
    x = op.named(input.transposed([1, 0, *range(2, input.rank)]) if batch_first else input)
    lengths = op.cast(lengths, "int64")
    steps = _size(op, "ReduceMax", lengths)
    x = op.cut(x, 0, 0, steps)
    count = _size(op, "ReduceSum", lengths)
    there = op.elementwise("Less", op.unsqueeze(op.range(steps), [1]), op.unsqueeze(lengths, [0]))
    batches = op.reduce("ReduceSum", op.cast(there, "int64"), [1])
    shape = (count, *x.shape[2:])
    packed = Packed(
        "packed sequences", x.dtype, shape, identity(len(shape)), parts=(x,), lengths=lengths
    )
    return [packed, op.shaped(batches, (steps,))]


def _size(op: Context, op_type: str, lengths: Value) -> Int:
    """Return the longest length, or all of them together."""
    inputs = [lengths, op.constant([0], "int64")]
    (found,) = op.node(op_type, inputs, [("int64", (1,))], attributes={"keepdims": 1})
    known = op.array(found)
    if known is not None:
        return int(known[0])
    return op.define(f"n__{found.name}", lambda: found)


@aten("_pad_packed_sequence")
def pad_packed_sequence(
    op: Context, data: Value, batch_sizes: Value, batch_first: bool, padding_value: float,
    total_length: Int,
) -> list[Value]:  # fmt: skip
    """Padded sequences of packed ones, and their lengths."""
    del batch_sizes
    if not isinstance(data, Packed) or data.lengths is None:
        raise Unsupported("packed sequences that something else has packed")
    x = data.real
    steps = integer(op.axis_of(x, 0))
    there = op.elementwise(
        "Less", op.unsqueeze(op.range(steps), [1]), op.unsqueeze(data.lengths, [0])
    )
    wide = op.unsqueeze(there, list(range(2, x.rank)))
    x = op.where(wide, x, op.constant(padding_value, x.dtype))
    if total_length not in (steps, -1, 0):
        more = integer(dims.sub(total_length, steps))
        amounts: list[Int] = [0] * (2 * x.rank - 1)
        x = padding.constant_pad_nd(op, x, [*amounts, more], padding_value)
    return [x.transposed([1, 0, *range(2, x.rank)]) if batch_first else x, data.lengths]


def _through(
    op: Context, data: Value, hidden: Tensors, params: Tensors, kind: Kind, *,
    has_biases: bool, count: int, bidirectional: bool,
) -> list[Value]:  # fmt: skip
    if not isinstance(data, Packed):
        raise Unsupported("packed sequences that something else has packed")
    made, *lasts = recurrent.layers(
        op, data.real, hidden, params, kind, has_biases=has_biases, count=count,
        bidirectional=bidirectional, batch_first=False, lengths=data.lengths,
    )  # fmt: skip
    return [data.moved(made), *lasts]


@aten("lstm.data")
def lstm_data(
    op: Context, data: Value, batch_sizes: Value, hx: Tensors, params: Tensors, has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool,
) -> list[Value]:  # fmt: skip
    """LSTM layers of packed sequences."""
    del batch_sizes
    recurrent.check(dropout, train=train)
    return _through(
        op, data, hx, params, CUDNN["lstm"], has_biases=has_biases, count=num_layers,
        bidirectional=bidirectional,
    )  # fmt: skip


@aten(
    Variant("gru.data", "GRU layers of packed sequences.", mode="gru"),
    Variant("rnn_tanh.data", "RNN layers of packed sequences, with tanh.", mode="rnn_tanh"),
    Variant("rnn_relu.data", "RNN layers of packed sequences, with relu.", mode="rnn_relu"),
)
def one_state_data(
    op: Context, data: Value, batch_sizes: Value, hx: Value, params: Tensors, has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, *, mode: str,
) -> list[Value]:  # fmt: skip
    """Layers of one state, of packed sequences."""
    del batch_sizes
    recurrent.check(dropout, train=train)
    return _through(
        op, data, [hx], params, CUDNN[mode], has_biases=has_biases,
        count=num_layers, bidirectional=bidirectional,
    )  # fmt: skip


# -- nested ----------------------------------------------------------------------------------------


@aten("_nested_tensor_from_mask")
def nested_tensor_from_mask(op: Context, t: Value, mask: Value, mask_check: bool = True) -> Value:
    """Nested sequences without the steps where a mask is false."""
    del mask_check
    x = op.named(t)
    kept = op.cast(mask, "bool")
    return Nested(
        "nested sequences", x.dtype, x.shape, identity(x.rank), parts=(op.outer(x),), kept=kept
    )


@aten("to_padded_tensor")
def to_padded_tensor(
    op: Context, self: Value, padding: float, output_size: list[Int] | None = None
) -> Value:
    """Padded sequences of nested ones."""
    if not isinstance(self, Nested) or self.kept is None:
        raise Unsupported("sequences that something else has nested")
    if output_size is None or [*output_size] != [integer(n) for n in op.named(self).shape]:
        raise Unsupported("another number of steps than there was before")
    x = self.real
    return op.where(op.unsqueeze(self.kept, [-1]), x, op.constant(padding, x.dtype))


def nested_layer(op: Context, src: Nested, **more: ProgramValue) -> Value:
    """Return what an encoder's layer yields of nested sequences: each sees its own steps."""
    if more.get("mask") is not None or src.kept is None:
        raise Unsupported("nested sequences together with a mask")
    hidden = op.unary("Not", src.kept)
    given = {**more, "mask": hidden, "mask_type": fused.BY_KEY}
    return src.moved(fused.transformer_encoder_layer(op, src.real, **given))


TAKING = (lstm_data, one_state_data, pad_packed_sequence, to_padded_tensor)
