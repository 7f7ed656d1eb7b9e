"""Find the inputs and outputs of a graph without signatures."""

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


# Ops that are not outputs, although nothing reads them.
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


# Ops whose outputs are lists and not tensors.
LISTS = (
    "TensorListReserve", "EmptyTensorList", "TensorListFromTensor", "TensorListSetItem",
    "TensorListPushBack", "TensorListScatter", "TensorListSplit", "TensorListResize",
    "TensorListConcatLists", "TensorArrayV", "TensorArrayClose",
)  # fmt: skip


TRAINING = ("ApplyGradient", "ResourceApply", "Apply", "SparseApply", "ResourceSparseApply")


def is_output(node: Node) -> bool:
    """Return whether a node that nothing reads is an output of the model."""
    if node.op in NO_OUTPUTS or node.op.startswith(TRAINING):
        return False
    if node.op == "Identity" and node.name.endswith("/read"):  # reads a variable
        return False
    if node.op.startswith(LISTS) or node.attribute("T") in ("variant", "resource"):
        return False
    return not node.name.startswith(("gradients/", "save/", "report_uninitialized_variables"))


def is_pivot(nodes: dict[str, Node], node: Node) -> bool:
    """Return whether a node is the control pivot of a branch, without a value in the other one."""
    before = nodes.get(node.inputs[0].node) if node.op == "Identity" and node.inputs else None
    return before is not None and before.op in ("Switch", "RefSwitch")


def list_given(
    nodes: dict[str, Node], node: Node
) -> list[tuple[str, tuple[int | str | None, ...] | None]]:
    """Return the dtypes and shapes that a node receives from outside: from a caller or a pipeline.

    An ONNX graph cannot contain an input pipeline; the tensors that it yields become inputs.
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
    """Return the names of all nodes that depend on any of these nodes."""
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
    """Return the names of the nodes that some nodes depend on, including themselves."""
    found: dict[str, None] = {}
    stack = list(wanted)
    while stack:
        name = stack.pop()
        if name in found or name not in nodes or (given and name in given):
            continue
        found[name] = None
        stack.extend(port.node for port in nodes[name].inputs)
    return list(found)
