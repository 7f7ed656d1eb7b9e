"""Const, Placeholder and identity ops, and the shape, rank and size of a tensor."""

from typing import Any

from converter.lower import dims
from converter.lower.tf import contents
from converter.lower.tf.constants import read_constant
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.program_values import Complex, ProgramValue, RaggedRows, Variable
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


@tf_op("Const", "HostConst")
def const(op: Context, *, value: Any) -> Value:
    """A constant tensor."""
    return read_constant(op, value)


@tf_op("PlaceholderWithDefault", any_input=True)
def placeholder_with_default(
    op: Context, input: ProgramValue, /, *, shape: Any = None
) -> ProgramValue:
    """The default of an input that is not fed."""
    del op, shape
    return input


@tf_op("Placeholder")
def placeholder(_: Context, *, shape: Any = None) -> Value:
    """An input; it has no value where the signature does not name it."""
    del shape
    raise Unsupported("an input that the signature does not name")


@tf_op(
    "Identity", "StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "CheckNumericsV2",
    "_EagerConst", "LoopCond", "RefIdentity", "DebugGradientIdentity",
    any_input=True,
)  # fmt: skip
def identity(op: Session, input: ProgramValue, /, *, message: str = "") -> ProgramValue:
    """The input, unchanged."""
    del message
    return op.state.read(input) if isinstance(input, Variable) and input.is_reference else input


@tf_op("Print")
def print_(
    op: Context, input: Value, /, *data: Value,
    message: str = "", first_n: int = -1, summarize: int = 3,
) -> Value:  # fmt: skip
    """The input, unchanged; nothing is printed."""
    del op, data, message, first_n, summarize
    return input


@tf_op("IdentityN", any_input=True)
def identity_n(op: Session, *inputs: ProgramValue) -> list[ProgramValue]:
    """The inputs, unchanged."""
    return [identity(op, v) for v in inputs]


@tf_op("XlaSharding", any_input=True)
def xla_sharding(
    op: Context, input: ProgramValue, /, *, sharding: str = "", unspecified_dims: Any = ()
) -> ProgramValue:
    """The input, unchanged; its sharding over devices is dropped."""
    del op, sharding, unspecified_dims
    return input


@tf_op("Shape", any_input=True)
def shape(op: Session, input: ProgramValue, /, *, node: Node) -> Value:
    """The shape of a tensor."""
    dtype = node.attribute("out_type", "int32")
    if isinstance(input, RaggedRows):
        return op.sub(op.shape_vector(input.splits, dtype), op.constant([1], dtype))
    given = input.real if isinstance(input, Complex) else input
    found = given if isinstance(given, Value) else op.walker.tensor(given)
    assert isinstance(found, Value)
    return op.shape_vector(found, dtype)


@tf_op("ShapeN")
def shape_n(op: Context, *inputs: Value, node: Node) -> list[Value]:
    """The shapes of several tensors."""
    return [op.shape_vector(v, node.attribute("out_type", "int32")) for v in inputs]


@tf_op("Rank")
def rank(op: Context, input: Value, /) -> Value:
    """The rank of a tensor."""
    return op.constant(input.rank, "int32")


@tf_op("Size")
def size(op: Context, input: Value, /, *, node: Node) -> Value:
    """The number of elements of a tensor."""
    kind = node.attribute("out_type", "int32")
    known = dims.product(input.shape)
    if isinstance(known, int):
        return op.constant(known, kind)
    made = op.cast(op.emit("Size", input, dtype="int64", shape=()), kind)
    return op.remember(made, contents.objects([known]).reshape(()))
