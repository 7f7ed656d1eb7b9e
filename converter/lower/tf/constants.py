"""Constants of a TensorFlow graph: weights of the bundle, or small arrays in the graph."""

from typing import Any

from converter.lower.tf.context import Context
from converter.lower.tf.state import texts
from converter.lower.unsupported import Unsupported
from converter.lower.values import Value
from formats.core.strings import Strings
from formats.tensorflow import tensor_proto

MAX_BYTES = 1 << 26  # of a constant in memory; a TensorProto of a few bytes may expand to many


def read_constant(op: Context, value: Any) -> Value:
    """Return the constant that a TensorProto holds.

    Raises:
        Unsupported: It is large and not a weight of the bundle.
    """
    name = op.constants.get(op.place)
    if name is not None and tensor_proto.type_name(value.dtype) != "string":  # as two tensors
        return op.weight(name)
    found = tensor_proto.from_proto(value, op.at)
    if isinstance(found, Strings):
        return op.constant(texts(found.values(), found.shape))
    if found.nbytes > MAX_BYTES:
        raise Unsupported(f"a constant of {found.nbytes} bytes that is no weight of the model")
    return op.constant(found.numpy(), found.dtype.name)
