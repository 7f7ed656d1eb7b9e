"""Lists of tensors (TensorFlow 2's) and TensorArrays (TensorFlow 1's): see `stacks`.

A TensorArray is a handle, and a flow that orders what is done with it: here the flow is the
content, so that what a loop carries and a branch chooses is what it seems to be.
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


def _list(thing: ProgramValue) -> Stack:
    if not isinstance(thing, Stack):
        raise Unsupported(f"a {type(thing).__name__.lower()} where a list stands")
    if thing.dtype == "variant":
        raise Unsupported("a list of lists")
    return thing


def _tensor(op: Session, thing: ProgramValue) -> Value:
    found = op.walker.tensor(thing)
    if not isinstance(found, Value):
        raise Unsupported(f"a list of what is a {type(found).__name__.lower()}")
    return found


def _dtype(node: Node) -> str:
    dtype = str(node.attribute("element_dtype"))
    if dtype == "resource" or dtype.startswith("complex"):
        raise Unsupported(f"a list of {dtype}")
    return dtype


# -- lists of tensors ------------------------------------------------------------------------------


@tf_op("TensorListReserve")
def reserve(op: Context, element_shape: Value, num_elements: Value, /, *, node: Node) -> Stack:
    """A list of so many elements, none of them set."""
    element = stacks.element_shape(op, element_shape)
    return stacks.new(op, _dtype(node), element, num_elements)


@tf_op("EmptyTensorList")
def empty(op: Context, element_shape: Value, max_num_elements: Value, /, *, node: Node) -> Stack:
    """A list without elements."""
    del max_num_elements  # beyond which pushing fails
    return Stack(_dtype(node), stacks.element_shape(op, element_shape), items=())


@tf_op("TensorListFromTensor", any_input=True)
def from_tensor(
    op: Session, tensor: ProgramValue, element_shape: Value, /, *, node: Node
) -> Stack | RaggedRows:
    """The parts of a tensor along its first axis."""
    if isinstance(tensor, RaggedRows):
        return tensor
    tensor = _tensor(op, tensor)
    return Stack(_dtype(node), stacks.element_shape(op, element_shape)).filled(tensor)


@tf_op("TensorListStack", any_input=True)
def stack(
    op: Context, input_handle: ProgramValue, element_shape: Value, /, *, num_elements: int = -1
) -> Value:
    """All elements along a new first axis."""
    del num_elements  # how many there must be
    return stacks.whole(op, _list(input_handle), stacks.element_shape(op, element_shape))


@tf_op("TensorListGetItem", any_input=True)
def get_item(
    op: Context, input_handle: ProgramValue, index: Value, element_shape: Value, /
) -> ProgramValue:
    """One element."""
    if isinstance(input_handle, RaggedRows):
        return Record(ROW, {"values": ragged.row(op, input_handle, index)})
    element = stacks.element_shape(op, element_shape)
    return stacks.read(op, _list(input_handle), index, element)


@tf_op("TensorListSetItem", any_input=True)
def set_item(
    op: Session, input_handle: ProgramValue, index: Value, item: ProgramValue, /, *,
    resize_if_index_out_of_bounds: bool = False,
) -> Stack:  # fmt: skip
    """A list with one element set."""
    found = _list(input_handle)
    if resize_if_index_out_of_bounds:
        found = replace(found, grows=True)
    return stacks.written(op, found, index, _tensor(op, item))


@tf_op("TensorListPushBack", any_input=True)
def push_back(op: Session, input_handle: ProgramValue, tensor: ProgramValue, /) -> Stack:
    """A list with one more element at its end."""
    if isinstance(input_handle, Stack) and input_handle.dtype == "variant":
        return input_handle  # lists for gradients, which nothing reads
    return stacks.push(op, _list(input_handle), _tensor(op, tensor))


@tf_op("TensorListPopBack", outputs=("output_handle", "tensor"), any_input=True)
def pop_back(
    op: Context, input_handle: ProgramValue, element_shape: Value, /
) -> list[ProgramValue]:
    """A list without its last element, and that."""
    element = stacks.element_shape(op, element_shape)
    return [*stacks.pop(op, _list(input_handle), element)]


@tf_op("TensorListLength", any_input=True)
def list_length(op: Context, input_handle: ProgramValue, /) -> Value:
    """How many elements there are."""
    return stacks.length(op, _list(input_handle))


@tf_op("TensorListResize", any_input=True)
def resize(op: Context, input_handle: ProgramValue, size: Value, /) -> Stack:
    """A list with elements taken from its end, or unset ones added."""
    return stacks.resize(op, _list(input_handle), size)


@tf_op("TensorListElementShape", any_input=True)
def list_element_shape(op: Context, input_handle: ProgramValue, /, *, node: Node) -> Value:
    """The shape of an element."""
    dtype = node.attribute("shape_type", "int32")
    return stacks.shape_vector(op, _list(input_handle), dtype)


@tf_op("TensorListConcat", outputs=("tensor", "lengths"), any_input=True)
def list_concat(
    op: Context, input_handle: ProgramValue, /, *, element_shape: Shape | None = None
) -> list[Value]:
    """The elements one behind the other, and how long each is."""
    rest = None if element_shape is None else element_shape[1:]
    return [*stacks.end_to_end(op, _list(input_handle), rest)]


@tf_op("TensorListConcatV2", outputs=("tensor", "lengths"), any_input=True)
def list_concat_v2(
    op: Context, input_handle: ProgramValue, element_shape: Value, leading_dims: Value, /
) -> list[Value]:
    """The elements one behind the other, and how long each is."""
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
    """Some elements along a new first axis."""
    element = stacks.element_shape(op, element_shape)
    return stacks.gather_elements(op, _list(input_handle), indices, element)


@tf_op("TensorListScatter")
def list_scatter(
    op: Context, tensor: Value, indices: Value, element_shape: Value, /, *, node: Node
) -> Stack:
    """A list with some elements set."""
    element = stacks.element_shape(op, element_shape)
    return stacks.of_scattered(op, _dtype(node), element, indices, tensor, None)


@tf_op("TensorListScatterV2")
def list_scatter_v2(
    op: Context, tensor: Value, indices: Value, element_shape: Value, num_elements: Value, /, *,
    node: Node,
) -> Stack:  # fmt: skip
    """A list of so many elements, some of them set."""
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
    """A list with some elements set, and longer where it must be."""
    found = replace(_list(input_handle), grows=True)
    return replace(stacks.scatter_elements(op, found, indices, tensor), grows=False)


@tf_op("TensorListSplit")
def list_split(
    op: Context, tensor: Value, element_shape: Value, lengths: Value, /, *, node: Node
) -> Stack:
    """A list of parts of a tensor, of these lengths."""
    element = stacks.element_shape(op, element_shape)
    return stacks.cut(op, Stack(_dtype(node), element), tensor, lengths)


@tf_op("TensorListConcatLists", any_input=True)
def concat_lists(op: Context, input_a: ProgramValue, input_b: ProgramValue, /) -> Stack:
    """The elements of one list, then those of another."""
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
    """A TensorArray: its handle, and its flow, which stands for what it holds."""
    del clear_after_read, identical_element_shapes, tensor_array_name
    dtype = str(node.attribute("dtype"))
    found = stacks.new(op, dtype, element_shape, size, grows=dynamic_size)
    return [Handle(op.at, dtype, element_shape, size, grows=dynamic_size), found]


def _flow(op: Context, handle: ProgramValue, flow: ProgramValue) -> Stack:
    """Return what a TensorArray holds; before TensorFlow 1.0, the first flow is only a number."""
    if isinstance(flow, Stack):
        return flow
    if isinstance(handle, Handle) and handle.length is not None:
        return stacks.new(op, handle.dtype, handle.element, handle.length, grows=handle.grows)
    raise Unsupported("a TensorArray whose content is not followed")


@tf_op("TensorArrayWriteV3", "TensorArrayWriteV2", "TensorArrayWrite", any_input=True)
def write(
    op: Session, handle: ProgramValue, index: Value, value: ProgramValue, flow_in: ProgramValue, /
) -> Stack:
    """A TensorArray with one element set."""
    return stacks.written(op, _flow(op, handle, flow_in), index, _tensor(op, value))


@tf_op("TensorArrayReadV3", "TensorArrayReadV2", "TensorArrayRead", any_input=True)
def read(op: Context, handle: ProgramValue, index: Value, flow_in: ProgramValue, /) -> Value:
    """One element of a TensorArray."""
    return stacks.read(op, _flow(op, handle, flow_in), index)


@tf_op("TensorArrayGatherV3", "TensorArrayGatherV2", "TensorArrayGather", any_input=True)
def gather(
    op: Context, handle: ProgramValue, indices: Value, flow_in: ProgramValue, /, *,
    element_shape: Shape | None = None,
) -> Value:  # fmt: skip
    """Some elements of a TensorArray along a new first axis."""
    return stacks.gather_elements(op, _flow(op, handle, flow_in), indices, element_shape)


@tf_op("TensorArrayScatterV3", "TensorArrayScatterV2", "TensorArrayScatter", any_input=True)
def scatter(
    op: Session, handle: ProgramValue, indices: Value, value: ProgramValue, flow_in: ProgramValue, /
) -> Stack:
    """A TensorArray with some elements set."""
    return stacks.scatter_elements(op, _flow(op, handle, flow_in), indices, _tensor(op, value))


@tf_op("TensorArraySizeV3", "TensorArraySizeV2", "TensorArraySize", any_input=True)
def size(op: Context, handle: ProgramValue, flow_in: ProgramValue, /) -> Value:
    """How many elements a TensorArray has."""
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
    """The elements of a TensorArray one behind the other, and how long each is."""
    return [*stacks.end_to_end(op, _flow(op, handle, flow_in), element_shape_except0)]


@tf_op("TensorArraySplitV3", "TensorArraySplitV2", "TensorArraySplit", any_input=True)
def split(
    op: Session, handle: ProgramValue, value: ProgramValue, lengths: Value, flow_in: ProgramValue, /
) -> Stack:
    """A TensorArray of parts of a tensor, of these lengths."""
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
    """All elements of a TensorArray along a new first axis."""
    return stacks.whole(op, _flow(op, handle, flow_in), element_shape)


@tf_op("TensorArrayUnpack", any_input=True)
def unpack(
    op: Context, handle: ProgramValue, value: ProgramValue, flow_in: ProgramValue, /
) -> Stack:
    """A TensorArray of the parts of a tensor along its first axis."""
    if not isinstance(value, Value):
        raise Unsupported(f"a TensorArray of a {type(value).__name__.lower()}")
    return _flow(op, handle, flow_in).filled(value)


@tf_op("TensorArrayCloseV3", "TensorArrayCloseV2", "TensorArrayClose", any_input=True)
def close(op: Context, handle: ProgramValue, /) -> list[Any]:
    """The end of a TensorArray: nothing is left to do."""
    del op, handle
    return []
