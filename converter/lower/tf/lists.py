"""Lists of tensors (TensorFlow 2) and TensorArrays (TensorFlow 1): see `stacks`.

A TensorArray is a handle, and a flow that orders the ops on it. Here the flow is the content, so
that loops carry it and branches select it like any other value.
Spec: https://www.tensorflow.org/api_docs/python/tf/raw_ops/TensorListReserve and TensorArrayV3
"""

from dataclasses import replace
from typing import Any

from converter.lower.graph import Shape
from converter.lower.tf import list_elements, ragged, stacks
from converter.lower.tf.context import Context
from converter.lower.tf.graphdef import Node
from converter.lower.tf.program_values import Handle, ProgramValue, RaggedRows, Record, Stack
from converter.lower.tf.ragged import ROW
from converter.lower.tf.session import Session
from converter.lower.tf.table import Unsupported, tf_op
from converter.lower.values import Value


def _list(operand: ProgramValue) -> Stack:
    if not isinstance(operand, Stack):
        raise Unsupported(f"a {type(operand).__name__.lower()} in place of a list")
    if operand.dtype == "variant":
        raise Unsupported("a list of lists")
    return operand


def _tensor(op: Session, operand: ProgramValue) -> Value:
    found = op.walker.tensor(operand)
    if not isinstance(found, Value):
        raise Unsupported(f"a list that contains a {type(found).__name__.lower()}")
    return found


def _dtype(node: Node) -> str:
    dtype = str(node.attribute("element_dtype"))
    if dtype == "resource" or dtype.startswith("complex"):
        raise Unsupported(f"a list of {dtype}")
    return dtype


# -- lists of tensors ------------------------------------------------------------------------------


@tf_op("TensorListReserve")
def reserve(op: Context, element_shape: Value, num_elements: Value, /, *, node: Node) -> Stack:
    """List of a given length, with no element set."""
    element = stacks.element_shape(op, element_shape)
    return stacks.new(op, _dtype(node), element, num_elements)


@tf_op("EmptyTensorList")
def empty(op: Context, element_shape: Value, max_num_elements: Value, /, *, node: Node) -> Stack:
    """Empty list."""
    del max_num_elements  # the limit for pushing elements
    return Stack(_dtype(node), stacks.element_shape(op, element_shape), items=())


@tf_op("TensorListFromTensor", any_input=True)
def from_tensor(
    op: Session, tensor: ProgramValue, element_shape: Value, /, *, node: Node
) -> Stack | RaggedRows:
    """List of the slices of a tensor along its first axis."""
    if isinstance(tensor, RaggedRows):
        return tensor
    tensor = _tensor(op, tensor)
    return Stack(_dtype(node), stacks.element_shape(op, element_shape)).filled(tensor)


@tf_op("TensorListStack", any_input=True)
def stack(
    op: Context, input_handle: ProgramValue, element_shape: Value, /, *, num_elements: int = -1
) -> Value:
    """Elements of a list stacked along a new first axis."""
    del num_elements  # the required length
    return stacks.whole(op, _list(input_handle), stacks.element_shape(op, element_shape))


@tf_op("TensorListGetItem", any_input=True)
def get_item(
    op: Context, input_handle: ProgramValue, index: Value, element_shape: Value, /
) -> ProgramValue:
    """Element of a list."""
    if isinstance(input_handle, RaggedRows):
        return Record(ROW, {"values": ragged.row(op, input_handle, index)})
    element = stacks.element_shape(op, element_shape)
    return stacks.read(op, _list(input_handle), index, element)


@tf_op("TensorListSetItem", any_input=True)
def set_item(
    op: Session, input_handle: ProgramValue, index: Value, item: ProgramValue, /, *,
    resize_if_index_out_of_bounds: bool = False,
) -> Stack:  # fmt: skip
    """List with one element set."""
    found = _list(input_handle)
    if resize_if_index_out_of_bounds:
        found = replace(found, grows=True)
    return stacks.written(op, found, index, _tensor(op, item))


@tf_op("TensorListPushBack", any_input=True)
def push_back(op: Session, input_handle: ProgramValue, tensor: ProgramValue, /) -> Stack:
    """List with an element appended."""
    if isinstance(input_handle, Stack) and input_handle.dtype == "variant":
        return input_handle  # lists of lists are for gradients, which nothing reads
    return stacks.push(op, _list(input_handle), _tensor(op, tensor))


@tf_op("TensorListPopBack", outputs=("output_handle", "tensor"), any_input=True)
def pop_back(
    op: Context, input_handle: ProgramValue, element_shape: Value, /
) -> list[ProgramValue]:
    """List without its last element, and that element."""
    element = stacks.element_shape(op, element_shape)
    return [*stacks.pop(op, _list(input_handle), element)]


@tf_op("TensorListLength", any_input=True)
def list_length(op: Context, input_handle: ProgramValue, /) -> Value:
    """Length of a list."""
    return stacks.length(op, _list(input_handle))


@tf_op("TensorListResize", any_input=True)
def resize(op: Context, input_handle: ProgramValue, size: Value, /) -> Stack:
    """List truncated, or extended with unset elements."""
    return stacks.resize(op, _list(input_handle), size)


@tf_op("TensorListElementShape", any_input=True)
def list_element_shape(op: Context, input_handle: ProgramValue, /, *, node: Node) -> Value:
    """Shape of the elements of a list."""
    dtype = node.attribute("shape_type", "int32")
    return stacks.shape_vector(op, _list(input_handle), dtype)


@tf_op("TensorListConcat", outputs=("tensor", "lengths"), any_input=True)
def list_concat(
    op: Context, input_handle: ProgramValue, /, *, element_shape: Shape | None = None
) -> list[Value]:
    """Concatenation of the elements of a list, and their lengths."""
    rest = None if element_shape is None else element_shape[1:]
    return [*stacks.end_to_end(op, _list(input_handle), rest)]


@tf_op("TensorListConcatV2", outputs=("tensor", "lengths"), any_input=True)
def list_concat_v2(
    op: Context, input_handle: ProgramValue, element_shape: Value, leading_dims: Value, /
) -> list[Value]:
    """Concatenation of the elements of a list, and their lengths."""
    found = _list(input_handle)
    if leading_dims.shape != (0,) and found.items is not None and None in found.items:
        raise Unsupported("sizes for elements that are not set")
    element = stacks.element_shape(op, element_shape)
    rest = None if element is None else element[1:]
    return [*stacks.end_to_end(op, found, rest)]


@tf_op("TensorListGather", any_input=True)
def list_gather(
    op: Context, input_handle: ProgramValue, indices: Value, element_shape: Value, /
) -> Value:
    """Elements of a list, gathered by index and stacked along a new first axis."""
    element = stacks.element_shape(op, element_shape)
    return stacks.gather_elements(op, _list(input_handle), indices, element)


@tf_op("TensorListScatter")
def list_scatter(
    op: Context, tensor: Value, indices: Value, element_shape: Value, /, *, node: Node
) -> Stack:
    """List with the given indices set."""
    element = stacks.element_shape(op, element_shape)
    return stacks.of_scattered(op, _dtype(node), element, indices, tensor, None)


@tf_op("TensorListScatterV2")
def list_scatter_v2(
    op: Context, tensor: Value, indices: Value, element_shape: Value, num_elements: Value, /, *,
    node: Node,
) -> Stack:  # fmt: skip
    """List of a given length with the given indices set."""
    element, count = stacks.element_shape(op, element_shape), op.static(num_elements)
    if count is None:
        found = stacks.new(op, _dtype(node), element, num_elements)
        return stacks.scatter_elements(op, found, indices, tensor)
    known = None if int(count) < 0 else int(count)
    return stacks.of_scattered(op, _dtype(node), element, indices, tensor, known)


@tf_op("TensorListScatterIntoExistingList", any_input=True)
def list_scatter_into(
    op: Context, input_handle: ProgramValue, tensor: Value, indices: Value, /
) -> Stack:
    """List with the given indices set, extended where necessary."""
    found = replace(_list(input_handle), grows=True)
    return replace(stacks.scatter_elements(op, found, indices, tensor), grows=False)


@tf_op("TensorListSplit")
def list_split(
    op: Context, tensor: Value, element_shape: Value, lengths: Value, /, *, node: Node
) -> Stack:
    """List of consecutive parts of a tensor, of the given lengths."""
    element = stacks.element_shape(op, element_shape)
    return stacks.cut(op, Stack(_dtype(node), element), tensor, lengths)


@tf_op("TensorListConcatLists", any_input=True)
def concat_lists(op: Context, input_a: ProgramValue, input_b: ProgramValue, /) -> Stack:
    """Concatenation of two lists."""
    a, b = _list(input_a), _list(input_b)
    if a.items is not None and b.items is not None:
        return Stack(
            a.dtype, list_elements.merge_shapes(a.element, b.element), items=(*a.items, *b.items)
        )
    both = [stacks.whole(op, a, b.element), stacks.whole(op, b, a.element)]
    return a.filled(op.concat(both, 0))


# -- TensorArrays ----------------------------------------------------------------------------------


@tf_op(
    "TensorArrayV3", "TensorArrayV2", "TensorArray", outputs=("handle", "flow"),
)  # fmt: skip
def tensor_array(
    op: Context, size: Value, /, *, element_shape: Shape | None = None, dynamic_size: bool = False,
    clear_after_read: bool = True, identical_element_shapes: bool = False,
    tensor_array_name: str = "", node: Node,
) -> list[ProgramValue]:  # fmt: skip
    """A TensorArray: its handle, and its flow, which represents its content."""
    del clear_after_read, identical_element_shapes, tensor_array_name
    dtype = str(node.attribute("dtype"))
    found = stacks.new(op, dtype, element_shape, size, grows=dynamic_size)
    return [Handle(op.at, dtype, element_shape, size, grows=dynamic_size), found]


def _flow(op: Context, handle: ProgramValue, flow: ProgramValue) -> Stack:
    """Return the content of a TensorArray; before TensorFlow 1.0, the first flow is a scalar."""
    if isinstance(flow, Stack):
        return flow
    if isinstance(handle, Handle) and handle.length is not None:
        return stacks.new(op, handle.dtype, handle.element, handle.length, grows=handle.grows)
    raise Unsupported("a TensorArray whose content is not followed")


@tf_op("TensorArrayWriteV3", "TensorArrayWriteV2", "TensorArrayWrite", any_input=True)
def write(
    op: Session, handle: ProgramValue, index: Value, value: ProgramValue, flow_in: ProgramValue, /
) -> Stack:
    """TensorArray with one element set."""
    return stacks.written(op, _flow(op, handle, flow_in), index, _tensor(op, value))


@tf_op("TensorArrayReadV3", "TensorArrayReadV2", "TensorArrayRead", any_input=True)
def read(op: Context, handle: ProgramValue, index: Value, flow_in: ProgramValue, /) -> Value:
    """Element of a TensorArray."""
    return stacks.read(op, _flow(op, handle, flow_in), index)


@tf_op("TensorArrayGatherV3", "TensorArrayGatherV2", "TensorArrayGather", any_input=True)
def gather(
    op: Context, handle: ProgramValue, indices: Value, flow_in: ProgramValue, /, *,
    element_shape: Shape | None = None,
) -> Value:  # fmt: skip
    """Elements of a TensorArray, gathered by index and stacked along a new first axis."""
    return stacks.gather_elements(op, _flow(op, handle, flow_in), indices, element_shape)


@tf_op("TensorArrayScatterV3", "TensorArrayScatterV2", "TensorArrayScatter", any_input=True)
def scatter(
    op: Session, handle: ProgramValue, indices: Value, value: ProgramValue, flow_in: ProgramValue, /
) -> Stack:
    """TensorArray with the given indices set."""
    return stacks.scatter_elements(op, _flow(op, handle, flow_in), indices, _tensor(op, value))


@tf_op("TensorArraySizeV3", "TensorArraySizeV2", "TensorArraySize", any_input=True)
def size(op: Context, handle: ProgramValue, flow_in: ProgramValue, /) -> Value:
    """Length of a TensorArray."""
    return stacks.length(op, _flow(op, handle, flow_in))


@tf_op(
    "TensorArrayConcatV3", "TensorArrayConcatV2", "TensorArrayConcat",
    outputs=("value", "lengths"), any_input=True,
)  # fmt: skip
def concat(
    op: Context,
    handle: ProgramValue,
    flow_in: ProgramValue,
    /,
    *,
    element_shape_except0: Shape | None = None,
) -> list[Value]:
    """Concatenation of the elements of a TensorArray, and their lengths."""
    return [*stacks.end_to_end(op, _flow(op, handle, flow_in), element_shape_except0)]


@tf_op("TensorArraySplitV3", "TensorArraySplitV2", "TensorArraySplit", any_input=True)
def split(
    op: Session, handle: ProgramValue, value: ProgramValue, lengths: Value, flow_in: ProgramValue, /
) -> Stack:
    """TensorArray of consecutive parts of a tensor, of the given lengths."""
    return stacks.cut(op, _flow(op, handle, flow_in), _tensor(op, value), lengths)


@tf_op("TensorArrayPack", any_input=True)
def pack(
    op: Context,
    handle: ProgramValue,
    flow_in: ProgramValue,
    /,
    *,
    element_shape: Shape | None = None,
) -> Value:
    """Elements of a TensorArray stacked along a new first axis."""
    return stacks.whole(op, _flow(op, handle, flow_in), element_shape)


@tf_op("TensorArrayUnpack", any_input=True)
def unpack(
    op: Context, handle: ProgramValue, value: ProgramValue, flow_in: ProgramValue, /
) -> Stack:
    """TensorArray of the slices of a tensor along its first axis."""
    if not isinstance(value, Value):
        raise Unsupported(f"a TensorArray of a {type(value).__name__.lower()}")
    return _flow(op, handle, flow_in).filled(value)


@tf_op("TensorArrayCloseV3", "TensorArrayCloseV2", "TensorArrayClose", any_input=True)
def close(op: Context, handle: ProgramValue, /) -> list[Any]:
    """End of a TensorArray's lifetime; emits no node."""
    del op, handle
    return []
