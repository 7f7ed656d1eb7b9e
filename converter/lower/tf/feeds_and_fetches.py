"""Which nodes of a graph without signatures are its inputs, and which its outputs."""

from collections.abc import Sequence

from converter.lower.tf.graphdef import Node

DECODERS = frozenset((
    "DecodeJpeg", "DecodePng", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeWav",
))  # fmt: skip


DEQUEUED = ("QueueDequeue", "QueueDequeueMany", "QueueDequeueUpTo")


FED = frozenset((
    "Placeholder", "PlaceholderWithDefault", "IteratorGetNext", "IteratorGetNextSync",
    *DEQUEUED, *(f"{op}V2" for op in DEQUEUED),
))  # fmt: skip


# What nothing reads and yet is no output.
NO_OUTPUTS = frozenset((
    "NoOp", "Assert", "Const", "Placeholder", "PlaceholderWithDefault", "SaveV2", "RestoreV2",
    "Save", "SaveSlices",
    "MergeV2Checkpoints", "MergeSummary", "ScalarSummary", "HistogramSummary", "ImageSummary",
    "TensorSummary", "TensorSummaryV2", "AudioSummaryV2", "Print", "PrintV2", "Assign",
    "AssignVariableOp", "AssignAdd", "AssignSub", "AssignAddVariableOp", "AssignSubVariableOp",
    "ControlTrigger", "InitializeTable", "InitializeTableV2", "InitializeTableFromTextFileV2",
    "VarIsInitializedOp", "ScatterUpdate", "WriteFile", "QueueCloseV2", "QueueEnqueueV2",
    "QueueEnqueueManyV2", "QueueSizeV2", "Variable", "VariableV2", "VarHandleOp", "ReadVariableOp",
    "ShardedFilename",
))  # fmt: skip


# What yields lists, which are no tensors.
LISTS = (
    "TensorListReserve", "EmptyTensorList", "TensorListFromTensor", "TensorListSetItem",
    "TensorListPushBack", "TensorListScatter", "TensorListSplit", "TensorListResize",
    "TensorListConcatLists", "TensorArrayV", "TensorArrayClose",
)  # fmt: skip


TRAINING = ("ApplyGradient", "ResourceApply", "Apply", "SparseApply", "ResourceSparseApply")


def is_output(node: Node) -> bool:
    """Return whether a node that nothing reads yields what a user wants."""
    if node.op in NO_OUTPUTS or node.op.startswith(TRAINING):
        return False
    if node.op == "Identity" and node.name.endswith("/read"):  # of a variable, for whom it concerns
        return False
    if node.op.startswith(LISTS) or node.attribute("T") in ("variant", "resource"):
        return False
    return not node.name.startswith(("gradients/", "save/", "report_uninitialized_variables"))


def is_pivot(nodes: dict[str, Node], node: Node) -> bool:
    """Return whether a node is what a branch waits for, and so has no value in the other branch."""
    before = nodes.get(node.inputs[0].node) if node.op == "Identity" and node.inputs else None
    return before is not None and before.op in ("Switch", "RefSwitch")


def list_given(
    nodes: dict[str, Node], node: Node
) -> list[tuple[str, tuple[int | str | None, ...] | None]]:
    """Return the dtypes and shapes of what a node is given from outside: by a user, or a pipeline.

    What reads records or images cannot be in a graph; what it hands on is an input.
    """
    if node.op == "Placeholder":
        return [(node.attribute("dtype"), node.attribute("shape"))]
    if node.op.startswith("IteratorGetNext"):
        kinds, shapes = node.attribute("output_types", []), node.attribute("output_shapes", [])
        return [*zip(kinds, [*shapes, *[None] * (len(kinds) - len(shapes))], strict=False)]
    if node.op.removesuffix("V2") not in DEQUEUED or not node.inputs:
        return []
    queue = nodes.get(node.inputs[0].node)
    kinds = node.attribute("component_types", [])
    shapes = [] if queue is None else queue.attribute("shapes", [])
    several = node.op.removesuffix("V2") != "QueueDequeue"
    whole = [(None, *s) if several and s is not None else s for s in shapes]
    return [*zip(kinds, [*whole, *[None] * (len(kinds) - len(whole))], strict=False)]


def find_dependents(nodes: dict[str, Node], roots: set[str]) -> set[str]:
    """Return what depends on any of these nodes."""
    found = set(roots)
    grown = True
    while grown:
        grown = False
        for node in nodes.values():
            if node.name not in found and any(p.node in found for p in node.inputs):
                found.add(node.name)
                grown = True
    return found


def find_dependencies(
    nodes: dict[str, Node], wanted: Sequence[str], given: set[str] | None = None
) -> list[str]:
    """Return what some nodes depend on, themselves included."""
    found: dict[str, None] = {}
    stack = list(wanted)
    while stack:
        name = stack.pop()
        if name in found or name not in nodes or (given and name in given):
            continue
        found[name] = None
        stack.extend(port.node for port in nodes[name].inputs)
    return list(found)
