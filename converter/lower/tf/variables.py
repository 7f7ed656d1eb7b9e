"""Variables: read as the weights that the checkpoint gives them, assigned as it is loaded."""

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
    """A variable of TensorFlow 1: whatever uses it reads it."""
    shared = node.attribute("shared_name", "") or var_name
    return Variable(
        op.place, node.attribute("dtype"), is_reference=True, shared=shared, shape=shape
    )


def _variable(thing: ProgramValue) -> Variable:
    if not isinstance(thing, Variable):
        raise Unsupported(f"a {type(thing).__name__.lower()} where a variable stands")
    return thing


@tf_op("ReadVariableOp", "_ReadVariablesOp", any_input=True)
def read_variable(op: Session, resource: ProgramValue, /) -> Value:
    """What a variable holds."""
    return op.state.read(_variable(resource))


@tf_op("VariableShape", any_input=True)
def variable_shape(op: Session, input: ProgramValue, /, *, node: Node) -> Value:
    """The sizes of what a variable holds."""
    return op.shape_vector(op.state.read(_variable(input)), node.attribute("out_type", "int32"))


@tf_op("VarIsInitializedOp", "IsVariableInitialized", any_input=True)
def is_initialized(op: Session, resource: ProgramValue, /) -> Value:
    """Whether a variable has a value: it does, once the model is loaded."""
    op.state.read(_variable(resource))
    return op.constant(1, "bool")


@tf_op("ResourceGather", any_input=True)
def resource_gather(
    op: Session, resource: ProgramValue, indices: Value, /, *, batch_dims: int = 0
) -> Value:
    """Rows of a variable, by index."""
    return gather_along(op, op.state.read(_variable(resource)), indices, batch_dims, batch_dims)


@tf_op("ResourceGatherNd", any_input=True)
def resource_gather_nd(op: Session, resource: ProgramValue, indices: Value, /) -> Value:
    """Elements of a variable, by their places."""
    return gather_nd(op, op.state.read(_variable(resource)), indices)


# -- changes ---------------------------------------------------------------------------------------


@tf_op("AssignVariableOp", any_input=True)
def assign_variable(
    op: Session, resource: ProgramValue, value: ProgramValue, /
) -> list[ProgramValue]:
    """A variable gets a value."""
    if isinstance(value, Value):
        op.state.assign(_variable(resource), value)
    return []


@tf_op("Assign", any_input=True)
def assign(op: Session, ref: ProgramValue, value: ProgramValue, /) -> ProgramValue:
    """A variable gets a value."""
    if isinstance(value, Value):
        op.state.assign(_variable(ref), value)
    return ref


def _change(op: Session, thing: ProgramValue, op_type: str, value: Value) -> Variable:
    found = _variable(thing)
    before = op.state.read(found)
    op.state.assign(found, op.elementwise(op_type, before, value))
    return found


@tf_op("AssignAddVariableOp", any_input=True)
def assign_add_variable(op: Session, resource: ProgramValue, value: Value, /) -> list[ProgramValue]:
    """A variable grows."""
    _change(op, resource, "Add", value)
    return []


@tf_op("AssignSubVariableOp", any_input=True)
def assign_sub_variable(op: Session, resource: ProgramValue, value: Value, /) -> list[ProgramValue]:
    """A variable shrinks."""
    _change(op, resource, "Sub", value)
    return []


@tf_op("AssignAdd", any_input=True)
def assign_add(op: Session, ref: ProgramValue, value: Value, /) -> ProgramValue:
    """A variable grows."""
    return _change(op, ref, "Add", value)


@tf_op("AssignSub", any_input=True)
def assign_sub(op: Session, ref: ProgramValue, value: Value, /) -> ProgramValue:
    """A variable shrinks."""
    return _change(op, ref, "Sub", value)


# -- what a checkpoint holds -----------------------------------------------------------------------


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
    """Tensors of the checkpoint, by name."""
    del prefix
    wanted = zip(_texts(op, names, "names"), _texts(op, parts, "slices"), strict=True)
    return [_load(op, name, part) for name, part in wanted]


@tf_op("Restore", any_input=True)
def restore(
    op: Session, pattern: ProgramValue, name: Value, /, *, preferred_shard: int = -1
) -> ProgramValue:
    """A tensor of the checkpoint, by name."""
    del pattern, preferred_shard
    return _load(op, _texts(op, name, "names")[0], "")


@tf_op("RestoreSlice", any_input=True)
def restore_slice(
    op: Session, pattern: ProgramValue, name: Value, part: Value, /, *, preferred_shard: int = -1
) -> ProgramValue:
    """A part of a tensor of the checkpoint, by name."""
    del pattern, preferred_shard
    return _load(op, _texts(op, name, "names")[0], _texts(op, part, "slices")[0])


def _load(op: Session, name: str, part: str) -> ProgramValue:
    """Return a tensor; one that is not there matters only if something reads it."""
    try:
        return op.state.stored(name, part)
    except Unsupported:
        return UNKNOWN
