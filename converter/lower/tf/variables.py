"""Variables: read as weights of the checkpoint, assigned while the model is loaded."""

from typing import Any

from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.indexing import gather_along, gather_nd
from converter.lower.tf.program_values import UNKNOWN, ProgramValue, Variable
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


@tf_op("VarHandleOp")
def var_handle(op: Context, *, shape: Any, allowed_devices: Any = (), node: Node) -> Variable:
    """The handle of a variable."""
    del allowed_devices
    return Variable(
        op.place,
        node.attribute("dtype"),
        is_reference=False,
        shared=node.attribute("shared_name", ""),
        shape=shape,
    )


@tf_op("Variable", "VariableV2", "TemporaryVariable", "AutoReloadVariable")
def variable(op: Context, *, shape: Any, var_name: str = "", node: Node) -> Variable:
    """A reference variable of TensorFlow 1, which is read wherever it is used."""
    shared = node.attribute("shared_name", "") or var_name
    return Variable(
        op.place, node.attribute("dtype"), is_reference=True, shared=shared, shape=shape
    )


def _variable(operand: ProgramValue) -> Variable:
    if not isinstance(operand, Variable):
        raise Unsupported(f"a {type(operand).__name__.lower()} in place of a variable")
    return operand


@tf_op("ReadVariableOp", "_ReadVariablesOp", any_input=True)
def read_variable(op: Session, resource: ProgramValue, /) -> Value:
    """The value of a variable."""
    return op.state.read(_variable(resource))


@tf_op("VariableShape", any_input=True)
def variable_shape(op: Session, input: ProgramValue, /, *, node: Node) -> Value:
    """The shape of a variable's value."""
    return op.shape_vector(op.state.read(_variable(input)), node.attribute("out_type", "int32"))


@tf_op("VarIsInitializedOp", "IsVariableInitialized", any_input=True)
def is_initialized(op: Session, resource: ProgramValue, /) -> Value:
    """Whether a variable is initialized: true once the model is loaded."""
    op.state.read(_variable(resource))
    return op.constant(1, "bool")


@tf_op("ResourceGather", any_input=True)
def resource_gather(
    op: Session, resource: ProgramValue, indices: Value, /, *, batch_dims: int = 0
) -> Value:
    """The rows of a variable at indices."""
    return gather_along(op, op.state.read(_variable(resource)), indices, batch_dims, batch_dims)


@tf_op("ResourceGatherNd", any_input=True)
def resource_gather_nd(op: Session, resource: ProgramValue, indices: Value, /) -> Value:
    """The slices of a variable at multi-dimensional indices."""
    return gather_nd(op, op.state.read(_variable(resource)), indices)


# -- assignments -----------------------------------------------------------------------------------


@tf_op("AssignVariableOp", any_input=True)
def assign_variable(
    op: Session, resource: ProgramValue, value: ProgramValue, /
) -> list[ProgramValue]:
    """Assign a value to a variable."""
    if isinstance(value, Value):
        op.state.assign(_variable(resource), value)
    return []


@tf_op("Assign", any_input=True)
def assign(op: Session, ref: ProgramValue, value: ProgramValue, /) -> ProgramValue:
    """Assign a value to a variable."""
    if isinstance(value, Value):
        op.state.assign(_variable(ref), value)
    return ref


def _change(op: Session, operand: ProgramValue, op_type: str, value: Value) -> Variable:
    found = _variable(operand)
    before = op.state.read(found)
    op.state.assign(found, op.elementwise(op_type, before, value))
    return found


@tf_op("AssignAddVariableOp", any_input=True)
def assign_add_variable(op: Session, resource: ProgramValue, value: Value, /) -> list[ProgramValue]:
    """Add a value to a variable."""
    _change(op, resource, "Add", value)
    return []


@tf_op("AssignSubVariableOp", any_input=True)
def assign_sub_variable(op: Session, resource: ProgramValue, value: Value, /) -> list[ProgramValue]:
    """Subtract a value from a variable."""
    _change(op, resource, "Sub", value)
    return []


@tf_op("AssignAdd", any_input=True)
def assign_add(op: Session, ref: ProgramValue, value: Value, /) -> ProgramValue:
    """Add a value to a variable."""
    return _change(op, ref, "Add", value)


@tf_op("AssignSub", any_input=True)
def assign_sub(op: Session, ref: ProgramValue, value: Value, /) -> ProgramValue:
    """Subtract a value from a variable."""
    return _change(op, ref, "Sub", value)


# -- checkpoint ------------------------------------------------------------------------------------


def _texts(op: Context, value: Value, what: str) -> list[str]:
    found = op.static(value)
    if found is None:
        raise Unsupported(f"{what} that are computed")
    return [
        t.decode("utf-8", "surrogateescape") if isinstance(t, bytes) else str(t)
        for t in found.reshape(-1)
    ]


@tf_op("RestoreV2", any_input=True)
def restore_v2(
    op: Session, prefix: ProgramValue, names: Value, parts: Value, /
) -> list[ProgramValue]:
    """The tensors of the checkpoint with these names."""
    del prefix
    wanted = zip(_texts(op, names, "names"), _texts(op, parts, "slices"), strict=True)
    return [_load(op, name, part) for name, part in wanted]


@tf_op("Restore", any_input=True)
def restore(
    op: Session, pattern: ProgramValue, name: Value, /, *, preferred_shard: int = -1
) -> ProgramValue:
    """The tensor of the checkpoint with this name."""
    del pattern, preferred_shard
    return _load(op, _texts(op, name, "names")[0], "")


@tf_op("RestoreSlice", any_input=True)
def restore_slice(
    op: Session, pattern: ProgramValue, name: Value, part: Value, /, *, preferred_shard: int = -1
) -> ProgramValue:
    """A slice of the tensor of the checkpoint with this name."""
    del pattern, preferred_shard
    return _load(op, _texts(op, name, "names")[0], _texts(op, part, "slices")[0])


def _load(op: Session, name: str, part: str) -> ProgramValue:
    """Return a tensor of the checkpoint; UNKNOWN if missing, which matters only if it is read."""
    try:
        return op.state.stored(name, part)
    except Unsupported:
        return UNKNOWN
