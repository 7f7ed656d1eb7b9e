"""Operations on TensorLists and TensorArrays, of TensorFlow 1 and 2.

Elements are kept separately while indices and length are static, else stacked in one tensor. An
element that is not set reads as zeros, as in a TensorList; the tensor is built on demand.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from converter.lower import dims
from converter.lower.graph import Dim, Node, Shape
from converter.lower.tf import contents
from converter.lower.tf.context import Context
from converter.lower.tf.list_elements import merge_shapes, read_inside, report_element
from converter.lower.tf.program_values import Stack
from converter.lower.tf.table import Unsupported
from converter.lower.values import Value

MOST_ITEMS = 64  # maximum number of elements that are kept separately


def element_shape(op: Context, shape: Value) -> Shape | None:
    """Return the element shape in a tensor of sizes, of which -1 is unknown."""
    if shape.rank == 0:
        return None
    found = op.dims(shape)
    return tuple(None if isinstance(n, int) and n < 0 else n for n in found)


def new(
    op: Context, dtype: str, element: Shape | None, length: Value, *, grows: bool = False
) -> Stack:
    """Return a list whose elements are all unset."""
    known = op.static(length)
    if known is not None and int(known) <= MOST_ITEMS:
        return Stack(dtype, element, items=(None,) * max(int(known), 0), grows=grows)
    return Stack(dtype, element, length=length, grows=grows)


def length(op: Context, stack: Stack) -> Value:
    """Return the number of elements, a scalar of int32."""
    if stack.sought:  # a placeholder: the graph built with it is discarded
        return op.input(op.unique("length"), "int32", ())
    if stack.loop is not None and (stack.grows or stack.items == ()):
        read_inside(stack)
    if stack.items is not None:
        return op.constant(len(stack.items), "int32")
    if stack.tensor is None or (stack.length is not None and not stack.grows):
        return op.constant(0, "int32") if stack.length is None else stack.length
    n = stack.tensor.shape[0]
    if isinstance(n, int):
        return op.constant(n, "int32")
    found = op.cast(op.squeeze(op.size(stack.tensor, 0), [0]), "int32")
    return op.remember(found, scalar(n))


def scalar(n: Dim) -> np.ndarray:
    """Return a dimension as the known elements of a scalar."""
    made = np.empty((), object)
    made[()] = n
    return made


def known_length(op: Context, stack: Stack) -> Dim:
    """Return the number of elements, as far as known."""
    if stack.items is not None:
        return len(stack.items)
    if stack.tensor is not None:
        return stack.tensor.shape[0]
    return None if stack.length is None else size_of(op, stack.length)


def size_of(op: Context, value: Value) -> Dim:
    """Return the dimension in a scalar, as far as known."""
    found = op.elements(value)
    if found is None or found.size != 1:
        return None
    n = found.reshape(-1)[0]
    return n if n is None or isinstance(n, str) else int(n)


def whole(op: Context, stack: Stack, element: Shape | None = None) -> Value:
    """Return all elements stacked in one tensor, with zeros for those that are not set.

    Args:
        op: The builder.
        stack: The list.
        element: Shape of an element, as far as known from elsewhere.

    Raises:
        Unsupported: No element is set, and the shape of the zeros is unknown.
    """
    read_inside(stack, element)
    if stack.tensor is not None:
        tensor = stack.tensor
        shape = merge_shapes(tensor.shape[1:], element)
        return replace(tensor, shape=(tensor.shape[0], *shape)) if shape else tensor
    element = merge_shapes(stack.element, element)
    items = stack.items or ()
    like = next((v for v in items if v is not None), None)
    if like is None:
        return zeros(op, stack.dtype, length(op, stack), element)
    if any(v is not None and v.rank != like.rank for v in items):
        raise Unsupported("a list of elements of several ranks, as one tensor")
    filler = None
    if None in items:
        shape = merge_shapes(like.shape, element)
        filler = op.squeeze(zeros(op, stack.dtype, op.constant(1, "int32"), shape), [0])
    rows = [v if v is not None else filler for v in items]
    return op.concat([op.unsqueeze(v, [0]) for v in rows if v is not None], 0)


def dense(op: Context, stack: Stack) -> Stack:
    """Return a list stacked in one tensor if any element is set, else unchanged."""
    if stack.items is None or not any(v is not None for v in stack.items):
        return stack
    return stack.filled(whole(op, stack))


def zeros(op: Context, dtype: str, count: Value, element: Shape | None) -> Value:
    """Return `count` elements of zeros, stacked.

    Raises:
        Unsupported: The shape of an element is unknown.
    """
    if element is None:
        raise Unsupported("a list of which no element's shape is known")
    zero = op.constant(np.array("", object)) if dtype == "string" else op.constant(0, dtype)
    n = size_of(op, count)
    if isinstance(n, int):
        first = op.constant([n], "int64")
    else:
        first = op.reshape(op.cast(count, "int64"), (1,))
    vector = op.concat([first, sizes_vector(op, element)], 0) if element else first
    return op.emit("Expand", zero, vector, dtype=dtype, shape=(n, *element))


def sizes_vector(op: Context, dims: Sequence[Dim]) -> Value:
    """Return sizes as a vector of int64; symbolic ones are taken from a tensor that has them.

    Raises:
        Unsupported: A size is unknown, or no tensor has it.
    """
    if all(isinstance(n, int) for n in dims):
        return op.constant(list(dims), "int64")
    parts = []
    for n in dims:
        if isinstance(n, int):
            parts.append(op.constant([n], "int64"))
        else:
            parts.append(_size_named(op, n))
    return op.concat(parts, 0)


def _size_named(op: Context, name: str | None) -> Value:
    if name is None:
        raise Unsupported("a list whose elements' sizes are known only once there are some")
    graphs = op.enclosing[::-1]
    seen = [value for graph in graphs for value in graph.inputs]
    seen += [out for graph in graphs for node in graph.nodes for out in node.outputs]
    for value in seen:
        spec = op.graph.specs.get(value)
        if spec is not None and name in spec.shape and not spec.unranked:
            axis = spec.shape.index(name)
            there = Value(value, spec.dtype, spec.shape, tuple(range(len(spec.shape))))
            return op.size(there, axis)
    raise Unsupported(f"a size {name} that no tensor has")


# -- one element -----------------------------------------------------------------------------------


def read(op: Context, stack: Stack, index: Value, element: Shape | None = None) -> Value:
    """Return one element."""
    read_inside(stack, element)
    known = op.static(index)
    if stack.items is not None and known is not None:
        place = int(known)
        if not 0 <= place < len(stack.items):
            raise Unsupported(f"element {place} of a list of {len(stack.items)}")
        found = stack.items[place]
        if found is not None:
            return found
    return op.gather(whole(op, stack, element), index)


def written(op: Context, stack: Stack, index: Value, item: Value) -> Stack:
    """Return a list with one element set."""
    element = merge_shapes(stack.element, item.shape)
    if stack.loop is not None:
        if stack.sought and element is not None:
            report_element(stack, element)
        if stack.written is not None:
            read_inside(stack, element)
        return replace(stack, written=(index, item), element=element)
    known = op.static(index)
    if stack.items is not None and known is not None:
        place, items = int(known), list(stack.items)
        if place >= len(items) and stack.grows:
            items += [None] * (place + 1 - len(items))
        if not 0 <= place < len(items):
            raise Unsupported(f"element {place} of a list of {len(items)}")
        items[place] = item
        return replace(stack, items=tuple(items), element=element)
    tensor = whole(op, stack, item.shape)
    if tensor.shape[0] == 1 and None in tensor.shape[1:] and not stack.grows:
        # The only element is replaced; the stored one may be smaller (see `loops`).
        return stack.filled(op.unsqueeze(item, [0]))
    place_in = op.reshape(op.cast(index, "int64"), (1, 1))
    if stack.grows:
        tensor = long_enough(op, tensor, op.add(op.reshape(place_in, (1,)), 1))
    return stack.filled(_scatter(op, tensor, place_in, op.unsqueeze(item, [0])))


def long_enough(op: Context, tensor: Value, count: Value) -> Value:
    """Pad a tensor with zeros at the end, to at least `count` elements."""
    lacking = op.emit(
        "Max", op.sub(op.cast(count, "int64"), op.size(tensor, 0)), op.constant([0], "int64"),
        dtype="int64", shape=(1,),
    )  # fmt: skip
    return _longer(op, tensor, lacking)


def _longer(op: Context, tensor: Value, lacking: Value, count: Dim = None) -> Value:
    """Append `lacking` (a vector of one) elements of zeros to a tensor."""
    none = [0] * tensor.rank
    behind = op.concat([op.constant(none, "int64"), lacking], 0)
    if tensor.rank > 1:
        behind = op.concat([behind, op.constant(none[1:], "int64")], 0)
    shape = (count, *tensor.shape[1:])
    if tensor.dtype in PADDED:
        return op.emit("Pad", tensor, behind, dtype=tensor.dtype, shape=shape)
    more = zeros(op, tensor.dtype, op.squeeze(lacking, [0]), tensor.shape[1:])
    return replace(op.concat([tensor, more], 0), shape=shape)


# Dtypes of onnxruntime's Pad.
PADDED = frozenset(
    ("float32", "float64", "float16", "int32", "int64", "uint32", "uint64", "int8", "uint8", "bool")
)


def _scatter(op: Context, tensor: Value, places: Value, rows: Value) -> Value:
    shape = merge_shapes(tensor.shape[1:], rows.shape[1:])
    assert shape is not None
    return op.emit(
        "ScatterND", tensor, places, rows, dtype=tensor.dtype, shape=(tensor.shape[0], *shape)
    )


def push(op: Context, stack: Stack, item: Value) -> Stack:
    """Return a list with an element appended."""
    element = merge_shapes(stack.element, item.shape)
    if stack.loop is not None:
        if stack.sought and element is not None:
            report_element(stack, element)
        if stack.written is not None:
            read_inside(stack, element)
        return replace(stack, written=(None, item), element=element)
    if stack.items is not None:
        return replace(stack, items=(*stack.items, item), element=element)
    tensor, row = whole(op, stack, item.shape), op.unsqueeze(item, [0])
    made = op.concat([tensor, row], 0)
    return stack.filled(replace(made, shape=(dims.add(tensor.shape[0], 1), *made.shape[1:])))


def pop(op: Context, stack: Stack, element: Shape | None) -> tuple[Stack, Value]:
    """Return a list without its last element, and that element.

    Raises:
        Unsupported: The list is empty.
    """
    read_inside(stack, element)
    if stack.items is not None:
        if not stack.items:
            raise Unsupported("the last element of an empty list")
        last = stack.items[-1]
        if last is None:
            last = op.squeeze(
                zeros(
                    op, stack.dtype, op.constant(1, "int32"), merge_shapes(stack.element, element)
                ),
                [0],
            )
        return replace(stack, items=stack.items[:-1]), last
    tensor = whole(op, stack, element)
    last = op.gather(tensor, op.constant(-1, "int64"))
    rest = op.slice(tensor, [0], [0], [-1])
    rest = replace(rest, shape=(dims.sub(tensor.shape[0], 1), *rest.shape[1:]))
    return stack.filled(rest), last


# -- several elements ------------------------------------------------------------------------------


def gather_elements(op: Context, stack: Stack, indices: Value, element: Shape | None) -> Value:
    """Return the elements at indices, stacked."""
    read_inside(stack, element)
    known = op.static(indices)
    if stack.items is not None and known is not None and known.size:
        rows = [read(op, stack, op.constant(int(n), "int32"), element) for n in known]
        return op.concat([op.unsqueeze(v, [0]) for v in rows], 0)
    tensor = whole(op, stack, element)
    if is_range(op, indices, known_length(op, stack), stack.length):
        return tensor
    return op.gather(tensor, indices)


def is_range(op: Context, indices: Value, count: Dim, limit: Value | None = None) -> bool:
    """Return whether indices are known to be 0, 1, ..., `count` - 1."""
    known = op.static(indices)
    if known is not None:
        return isinstance(count, int) and known.tolist() == list(range(count))
    node = _producer(op, indices)
    if node is None or node.op_type != "Range":
        return False
    start, stop, step = (_value(op, name) for name in node.inputs)
    first, delta = op.static(start), op.static(step)
    if first is None or delta is None or int(first) != 0 or int(delta) != 1:
        return False
    if limit is not None and _origin(op, stop) == _origin(op, limit):
        return True
    while True:
        found = size_of(op, stop)
        if found is not None:
            return found == count
        before = _producer(op, stop)
        if before is None or before.op_type not in MOVED:
            return False
        stop = _value(op, before.inputs[0])


MOVED = frozenset(("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"))


def _value(op: Context, name: str) -> Value:
    spec = op.graph.specs[name]
    return Value(name, spec.dtype, spec.shape, tuple(range(len(spec.shape))))


def _origin(op: Context, value: Value) -> str:
    """Return the name of the value from which a scalar is only cast and reshaped."""
    node = _producer(op, value)
    while node is not None and node.op_type in MOVED:
        value = _value(op, node.inputs[0])
        node = _producer(op, value)
    return value.name


def _producer(op: Context, value: Value) -> Node | None:
    for graph in op.enclosing:
        for node in reversed(graph.nodes):
            if value.name in node.outputs:
                return node
    return None


def scatter_elements(op: Context, stack: Stack, indices: Value, rows: Value) -> Stack:
    """Return a list with the elements at indices set."""
    read_inside(stack, rows.shape[1:])
    count = known_length(op, stack)
    is_empty = stack.tensor is None and not any(v is not None for v in stack.items or ())
    if is_empty and is_range(op, indices, rows.shape[0]):
        same = count == rows.shape[0] and count is not None
        if same or (stack.grows and (count == 0 or count is None)):
            return stack.filled(rows)
    places = op.unsqueeze(op.cast(indices, "int64"), [1])
    known = op.static(indices)
    if stack.items is not None and known is not None:
        for number, index in enumerate(known.tolist()):
            item = op.gather(rows, op.constant(number, "int64"))
            stack = written(op, stack, op.constant(index, "int32"), item)
        return stack
    tensor = whole(op, stack, rows.shape[1:])
    if stack.grows:
        tensor = long_enough(op, tensor, op.add(_largest(op, indices), 1))
    return stack.filled(_scatter(op, tensor, places, rows))


def _largest(op: Context, indices: Value) -> Value:
    """Return the maximum of a vector, at least -1, as a vector of one int64."""
    low = op.constant([-1], "int64")
    every = op.concat([low, op.cast(indices, "int64")], 0)
    return op.reduce("ReduceMax", every, [0], keepdims=True)


def of_scattered(
    op: Context, dtype: str, element: Shape | None, indices: Value, rows: Value, count: int | None
) -> Stack:
    """Return a new list with the elements at indices set; its length is by default sufficient."""
    known = op.static(indices)
    if count is None and known is None and is_range(op, indices, rows.shape[0]):
        return Stack(dtype, element).filled(rows)
    if count is None and known is not None:
        count = int(known.max(initial=-1)) + 1
    if count is not None:
        return scatter_elements(
            op, new(op, dtype, element, op.constant(count, "int32")), indices, rows
        )
    size = op.cast(op.squeeze(op.add(_largest(op, indices), 1), [0]), "int32")
    return scatter_elements(op, Stack(dtype, element, length=size), indices, rows)


def end_to_end(op: Context, stack: Stack, rest: Shape | None) -> tuple[Value, Value]:
    """Return the elements concatenated along their first axis, and the length of each.

    Args:
        op: The builder.
        stack: The list.
        rest: Shape of an element without its first axis, as far as known.
    """
    read_inside(stack, None if rest is None else (None, *rest))
    items = stack.items
    if items and all(v is not None for v in items):
        rows = [v for v in items if v is not None]
        lengths = op.concat([op.size(v, 0) for v in rows], 0)
        return op.concat(rows, 0), lengths
    tensor = whole(op, stack, None if rest is None else (None, *rest))
    if tensor.rank < 2:
        raise Unsupported("scalars, one behind the other")
    count, each = tensor.shape[:2]
    vector = op.concat([op.constant([-1], "int64"), _sizes_behind(op, tensor, 2)], 0)
    shape = (dims.mul(count, each), *tensor.shape[2:])
    made = op.emit("Reshape", tensor, vector, dtype=tensor.dtype, shape=shape)
    lengths = op.emit(
        "Expand", op.size(tensor, 1), op.size(tensor, 0), dtype="int64", shape=(count,)
    )
    return made, lengths


def _sizes_behind(op: Context, tensor: Value, axis: int) -> Value:
    if all(isinstance(n, int) for n in tensor.shape[axis:]):
        return op.constant(list(tensor.shape[axis:]), "int64")
    (found,) = op.node(
        "Shape", [op.plain(tensor)], [("int64", (tensor.rank - axis,))], attributes={"start": axis}
    )
    return found


def cut(op: Context, stack: Stack, value: Value, lengths: Value) -> Stack:
    """Split a tensor along its first axis into a list of elements of these lengths."""
    known = op.static(lengths)
    if known is None:
        raise Unsupported("parts of a list whose lengths are computed")
    parts = op.split(value, 0, [int(n) for n in known]) if known.size else []
    return replace(stack, items=tuple(parts), tensor=None, length=None, loop=None, written=None)


def resize(op: Context, stack: Stack, size: Value) -> Stack:
    """Return a list truncated or extended by unset elements to a size."""
    read_inside(stack)
    known = op.static(size)
    if stack.items is not None and known is not None:
        kept = stack.items[: int(known)]
        return replace(stack, items=(*kept, *[None] * (int(known) - len(kept))))
    tensor = whole(op, stack)
    count = op.reshape(op.cast(size, "int64"), (1,))
    zero = op.constant([0], "int64")
    shape = (None, *tensor.shape[1:])
    part = op.emit("Slice", tensor, zero, count, zero, dtype=tensor.dtype, shape=shape)
    return stack.filled(long_enough(op, part, count))


def follow_loop(op: Context, first: Value, whole_length: Value, *, fits: bool) -> Value:
    """Return the elements of a list after a loop, with zeros for those that it did not set.

    Args:
        op: The builder.
        first: Elements that the loop set, stacked.
        whole_length: Number of elements of the list.
        fits: Whether all elements are known to be set.
    """
    count = size_of(op, whole_length)
    if fits:
        return replace(first, shape=(count, *first.shape[1:]))
    vector = op.reshape(op.cast(whole_length, "int64"), (1,))
    return _longer(op, first, op.sub(vector, op.size(first, 0)), count)


def shape_vector(op: Context, stack: Stack, dtype: str) -> Value:
    """Return the shape of an element as a vector, with -1 for unknown sizes."""
    element = stack.element
    if stack.tensor is not None:
        element = merge_shapes(stack.tensor.shape[1:], element)
    if element is None:
        return op.constant(-1, dtype)
    if all(isinstance(n, int) for n in element):
        return op.constant(np.asarray(element, dtype))
    if stack.tensor is not None:
        found = op.cast(_sizes_behind(op, stack.tensor, 1), dtype)
    else:
        found = op.cast(sizes_vector(op, element), dtype)
    return op.remember(found, contents.objects(element))
