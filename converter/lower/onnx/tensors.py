"""Map the tensors of an ONNX file to weights of the bundle or small constants.

A tensor is a weight of the bundle if it has the same byte range of the same file. If its bytes are
computed (typed fields, text format), it is the weight of the same origin with equal contents.
Values from which shapes are inferred stay in the graph: runtimes do not read external files then.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from converter.lower.element_types import ELEMENT_TYPES
from converter.lower.graph import Folded, Weight
from converter.lower.onnx.attributes import Opener, array
from formats.containers.protobuf.messages import Message
from formats.core.strings import Strings
from formats.core.weights import DTYPES, Tensor, numpy_dtype
from formats.errors import CorruptError, LimitError, UnsupportedError
from formats.limits import Limits
from formats.onnx import tensors

SMALL = 1 << 10  # bytes of a tensor that may stay in the graph as a constant
# Ops whose output shapes depend on the values of floating-point inputs.
SHAPED_BY_NUMBERS = frozenset(("Range", "Resize", "Upsample"))
Initializer = Weight | Folded | np.ndarray


class Tensors:
    """Maps tensors of a file to the weights of the bundle that was read from it."""

    def __init__(self, weights: Mapping[str, Tensor], member: Opener, limits: Limits) -> None:
        self.weights = weights
        self.member = member
        self.limits = limits
        self._by_place: dict[object, str] = {}
        self._by_origin: dict[tuple[object, ...], list[str]] = {}
        for name, tensor in weights.items():
            self._by_place.setdefault(tensor.identity, name)
            key = (tensor.origin, tensor.dtype.name, tensor.shape)
            self._by_origin.setdefault(key, []).append(name)

    def dense(self, proto: Message, origin: str, *, shapes: bool = False) -> Initializer:
        """Return the initializer for a TensorProto.

        Args:
            proto: Decoded TensorProto.
            origin: Its graph and name, as recorded by the reader of the bundle.
            shapes: Whether shapes are inferred from its values, whatever its dtype.

        Raises:
            UnsupportedError: An initializer cannot have its dtype.
        """
        found = tensors.from_proto(proto, origin, self.member)
        if isinstance(found, Strings):
            return array(found)
        if found.dtype.name not in ELEMENT_TYPES:
            raise UnsupportedError(f"a tensor of {found.dtype}", where=origin)
        is_whole = "float" not in found.dtype.name
        if found.dtype.bits >= 8 and found.nbytes <= SMALL and (is_whole or shapes):
            return found.numpy()
        name = self._named(found)
        if name is not None:
            return Weight(name)
        if found.dtype.bits < 8:
            raise UnsupportedError(f"a tensor of {found.dtype} that is not a weight", where=origin)
        if found.nbytes <= SMALL:
            return found.numpy()
        return Folded(found.dtype.name, found.shape, found.numpy)

    def _named(self, found: Tensor) -> str | None:
        name = self._by_place.get(found.identity)
        if name is not None:
            return name
        for other in self._by_origin.get((found.origin, found.dtype.name, found.shape), ()):
            if _equal(self.weights[other].chunks(), found.chunks()):
                return other
        return None

    def sparse(self, proto: Message, origin: str) -> Initializer:
        """Return a dense initializer for a SparseTensorProto, which runtimes make dense on load.

        Raises:
            LimitError: The dense tensor would be too large.
            UnsupportedError: The elements are strings or packed.
        """
        sizes = tensors.shape_of(proto, origin)
        values = tensors.from_proto(proto.values, origin, self.member)
        indices = tensors.from_proto(proto.indices, origin, self.member)
        if isinstance(values, Strings) or isinstance(indices, Strings) or values.dtype.bits < 8:
            raise UnsupportedError("a sparse tensor of strings or packed elements", where=origin)
        nbytes = DTYPES[values.dtype.name].nbytes(int(np.prod(sizes, dtype=object)))
        most = self.limits.max_inflated_bytes
        if nbytes > most:
            raise LimitError(f"a sparse tensor of {nbytes} bytes, were it dense", where=origin)

        def make() -> np.ndarray:
            dense = np.zeros(sizes, numpy_dtype(values.dtype))
            places = indices.numpy()
            try:
                flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), sizes)
                if (flat < 0).any():
                    raise ValueError("a negative index")  # noqa: TRY301 - as the others
                dense.reshape(-1)[flat] = values.numpy()
            except (ValueError, IndexError, TypeError) as e:
                raise CorruptError(f"a sparse tensor's indices: {e}", where=origin) from e
            return dense

        return Folded(values.dtype.name, sizes, make)


def _equal(a: Iterable[bytes], b: Iterable[bytes]) -> bool:
    """Return whether two iterables of pieces have the same bytes."""
    one, other = bytearray(), bytearray()
    left, right = iter(a), iter(b)
    while True:
        while not one and (piece := next(left, None)) is not None:
            one += piece
        while not other and (piece := next(right, None)) is not None:
            other += piece
        size = min(len(one), len(other))
        if not size:
            return not one and not other
        if one[:size] != other[:size]:
            return False
        del one[:size], other[:size]
