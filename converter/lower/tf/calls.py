"""Function calls, conditionals and loops of TensorFlow 2, and TensorFlow 1's Switch."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from converter.lower.tf import branches, loops
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node, Reference
from converter.lower.tf.program_values import DEAD, ProgramValue, Variable
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


@tf_op(
    "PartitionedCall",
    "StatefulPartitionedCall",
    "TPUPartitionedCall",
    "SymbolicCall",
    any_input=True,
)
def call(
    op: Session, *arguments: ProgramValue, f: Reference, config: str = "", config_proto: str = "",
    executor_type: str = "", autotuner_thresh: int = 0, node: Node,
) -> list[ProgramValue]:  # fmt: skip
    """Function call, inlined."""
    del config, config_proto, executor_type, autotuner_thresh
    return op.walker.call(f.name, arguments, node.name)


@tf_op("TPUReplicatedInput", any_input=True)
def replicated_input(
    op: Context,
    *inputs: ProgramValue,
    is_mirrored_variable: bool = False,
    index: int = -1,
    is_packed: bool = False,
) -> ProgramValue:
    """The input of the first replica."""
    del op, is_mirrored_variable, index, is_packed
    return inputs[0]


def _condition(op: Session, value: ProgramValue) -> Value:
    """Convert a condition to a scalar boolean: not zero, or not empty."""
    if isinstance(value, Variable):
        value = op.state.read(value)
    if not isinstance(value, Value):
        raise Unsupported(f"a {type(value).__name__.lower()} for a condition")
    if value.dtype == "string":
        raise Unsupported("a string for a condition")
    if value.rank:
        size = op.emit("Size", value, dtype="int64", shape=())
        return op.elementwise("Greater", size, 0)
    return value if value.dtype == "bool" else op.cast(value, "bool")


@tf_op("If", "StatelessIf", "_If", any_input=True)
def if_(
    op: Session, cond: ProgramValue, /, *inputs: ProgramValue, then_branch: Reference,
    else_branch: Reference,
    output_shapes: Any = (), node: Node,
) -> list[ProgramValue]:  # fmt: skip
    """One of two functions, selected by a condition."""
    del output_shapes
    condition = _condition(op, cond)
    known = op.static(condition)
    if known is not None:
        taken = then_branch if bool(known) else else_branch
        return op.walker.call(taken.name, inputs, node.name)
    calls = [
        partial(op.walker.call, branch.name, inputs, f"{node.name}/{side}")
        for branch, side in ((then_branch, "then"), (else_branch, "else"))
    ]
    return branches.conditional(op, op.state, condition, calls, op.walker.read(node))


@tf_op("Case", "StatelessCase", any_input=True)
def case(
    op: Session, index: Value, /, *inputs: ProgramValue, branches: Sequence[Reference],
    output_shapes: Any = (), node: Node,
) -> list[ProgramValue]:  # fmt: skip
    """One of several functions, selected by an index; the last for an index out of range."""
    del output_shapes
    known = op.static(index)
    if known is not None:
        number = int(known)
        taken = branches[number if 0 <= number < len(branches) else -1]
        return op.walker.call(taken.name, inputs, node.name)
    return _case(op, index, 0, inputs, branches, node)


def _case(
    op: Session, index: Value, number: int, inputs: Sequence[ProgramValue],
    functions: Sequence[Reference], node: Node,
) -> list[ProgramValue]:  # fmt: skip
    def this() -> list[ProgramValue]:
        return op.walker.call(functions[number].name, inputs, f"{node.name}/{number}")

    if number == len(functions) - 1:
        return this()
    condition = op.elementwise("Equal", index, number)
    return branches.conditional(
        op,
        op.state, condition, [this, lambda: _case(op, index, number + 1, inputs, functions, node)],
        op.walker.read(node),
    )  # fmt: skip


@tf_op("While", "StatelessWhile", "_While", any_input=True)
def while_(
    op: Session, *inputs: ProgramValue, cond: Reference, body: Reference, output_shapes: Any = (),
    parallel_iterations: int = 10, node: Node,
) -> list[ProgramValue]:  # fmt: skip
    """Function that is repeated while a condition holds."""
    del output_shapes, parallel_iterations
    walker = op.walker
    library = walker.library
    unchanged = loops.find_unchanged(library.function(body.name))
    return loops.build_loop(
        op, list(inputs),
        lambda operands: walker.call(cond.name, operands, f"{node.name}/cond")[0],
        lambda operands: walker.call(body.name, operands, f"{node.name}/body"),
        unchanged, walker.read(node),
    )  # fmt: skip


@tf_op("_Loop", any_input=True)
def loop_of_frame(op: Session, *inputs: ProgramValue, node: Node) -> list[ProgramValue]:
    """TensorFlow 1 loop, reconstructed from the nodes of its frame."""
    return loops.build_frame_loop(op, list(inputs), node)


# -- TensorFlow 1 ----------------------------------------------------------------------------------


@tf_op("Switch", "RefSwitch", outputs=("output_false", "output_true"), any_input=True)
def switch(
    op: Session, data: ProgramValue, pred: ProgramValue, /, *, node: Node
) -> list[ProgramValue]:
    """The input at the output that the condition selects; the other output is dead."""
    condition = _condition(op, pred)
    known = op.static(condition)
    if known is not None:
        return [DEAD, data] if bool(known) else [data, DEAD]
    op.walker.switched(node, condition)
    return [data, data]
